//! SCTP with a queue on the way that marks (RFC 3168, RFC 4960 appendix A), between two engines.

use neater_engine::{SendOptions, Stack};
use neater_link::{Codel, Counters, Discipline, QueueLimit};
use neater_testkit::{Ask, Manner, Plan};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const BYTES: usize = 8_000_000;

/// What became of a bulk transfer's packets at the bottleneck, and how long the transfer took.
fn transfer(stack: Stack, offers: (bool, bool)) -> (Counters, Duration) {
    let mut plan = Plan { sctp_ecn: offers, ..Plan::new(1).rate(10_000_000) };
    plan.access.0 = plan
        .access
        .0
        .with_queue(QueueLimit::Packets(1000))
        .with_discipline(Discipline::Codel(Codel { ecn: true, ..Codel::default() }));
    let mut town = plan.build();
    let (c, s) = town.pair(&Ask::over(&[stack]), Manner::patient(), Manner::patient());
    let begun = town.play.now();
    let whole: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    for part in whole.chunks(80_000) {
        town.play.say(c, part.to_vec(), SendOptions::default());
    }
    assert!(town.play.run_until(60 * S, |p| p.flow(s).messages.len() == BYTES / 80_000), "{stack:?}");
    let took = town.play.now().saturating_since(begun);
    assert!(town.play.flow(s).messages.concat() == whole);
    let counters = town.play.world().link_counters(town.client_links.0);
    town.play.end();
    (counters, took)
}

#[test]
fn where_both_ends_offer_marks_the_window_comes_down_without_a_loss() {
    let (marking, took) = transfer(Stack::Sctp, (true, true));
    assert!(marking.marked > 5, "{marking:?}");
    assert_eq!((marking.managed, marking.queue_full), (0, 0), "nothing is lost");
    // 6.4 s at the rate of the link.
    assert!(took < 8 * S, "{took:?}");
    for offers in [(false, false), (true, false), (false, true)] {
        let (dropping, _) = transfer(Stack::Sctp, offers);
        assert_eq!(dropping.marked, 0, "{offers:?}: nobody may be told so");
        assert!(dropping.managed > 5, "{offers:?}: {dropping:?}");
    }
}

/// DTLS does not say what arrived marked: to offer it would hide congestion.
#[test]
fn under_dtls_nothing_is_offered() {
    let (counters, _) = transfer(Stack::SctpDtls, (true, true));
    assert_eq!(counters.marked, 0);
    assert!(counters.managed > 5, "{counters:?}");
}
