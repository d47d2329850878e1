//! A9: SCTP raced against TCP, by engines in virtual time: who wins, what a silent or refusing path costs, and what a loser leaves
//! at the server.

use super::{Lab, Outcome};
use crate::measure::{MeasureError, Result, failed};
use crate::report::{Bound, Figure};
use neater_engine::{Stack, Step};
use neater_link::{Filter, Match, Protocol};
use neater_property::TransportProperties;
use neater_testkit::{Ask, Fault, FlowId, Manner, Plan, Town};
use std::time::Duration;

/// Round-trip times, in milliseconds.
const ROUND_TRIPS: [u64; 2] = [20, 100];
/// What NEAT waited between two attempts, in milliseconds.
const DELAYS: [u64; 2] = [10, 260];
/// No connect takes longer in virtual time.
const LIMIT: Duration = Duration::from_secs(20);
const PORT: u16 = 443;

/// What is the matter with SCTP.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    /// Nothing: both are as far away.
    EqualRtt,
    /// Its packets vanish.
    Dropped,
    /// INIT arrives, and what the server answers vanishes.
    Unanswered,
    /// The network says that it does not carry it.
    Refused,
}

impl Case {
    const ALL: [Self; 4] = [Self::EqualRtt, Self::Dropped, Self::Unanswered, Self::Refused];

    const fn name(self) -> &'static str {
        match self {
            Self::EqualRtt => "equal_rtt",
            Self::Dropped => "dropped",
            Self::Unanswered => "unanswered",
            Self::Refused => "refused",
        }
    }

    fn plan(self, seed: u64, round_trip: u64) -> Plan {
        let mut plan = Plan::new(seed).delay(Duration::from_micros(round_trip * 500));
        match self {
            Self::EqualRtt => {}
            Self::Dropped => plan = plan.fault(Fault::UdpBlocked),
            Self::Refused => plan = plan.fault(Fault::UdpRejected),
            Self::Unanswered => plan.v4.1.filters.push(Filter::drop(Match::Protocol(Protocol::Udp))),
        }
        plan
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// A connect that has come to its end.
struct Connect {
    stack: Stack,
    took: Duration,
    /// From TCP's being established to its being chosen, if it was.
    waited: Option<Duration>,
}

fn connect(town: &mut Town, ask: &Ask) -> Result<Connect> {
    let flow: FlowId = town.open(ask, Manner::default());
    if !town.play.run_until(LIMIT, |p| p.flow(flow).is_ready() || p.flow(flow).is_over()) {
        return failed("a connect did not end");
    }
    let took = town.play.flow(flow).establishment();
    let engine = town.play.engine(flow.node);
    let (Some(stack), Some(took)) = (engine.stack(flow.conn), took) else {
        return failed(format!("a connect failed: {:?}", town.play.flow(flow).end()));
    };
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    let at = |chosen: bool| {
        steps.iter().find_map(|e| match e.step {
            Step::Established { stack: Stack::Tcp, .. } if !chosen => Some(e.at),
            Step::Chosen { stack: Stack::Tcp, .. } if chosen => Some(e.at),
            _ => None,
        })
    };
    let waited = at(true).zip(at(false)).map(|(chosen, up)| chosen.saturating_sub(up));
    // A word each way, and an orderly end: the outcome was a good one.
    town.play.say(flow, "ping", neater_engine::SendOptions { is_final: true, ..Default::default() });
    if !town.play.run_until(LIMIT, |p| p.flow(flow).is_over()) {
        return failed("a connection that was made carries nothing");
    }
    Ok(Connect { stack, took, waited })
}

/// Both eligible, SCTP preferred.
fn both(delay: u64) -> Result<Ask> {
    let mut properties = TransportProperties::new();
    let bad = |e: neater_property::PropertyError| MeasureError::Failed(e.to_string());
    properties.set("multistreaming", "prefer").map_err(bad)?;
    properties.set("_neater.attemptDelay", delay as f64).map_err(bad)?;
    let mut ask = Ask::over(&[Stack::Sctp, Stack::Tcp]).properties(properties);
    // Without a framer only a stream of bytes is the same over both.
    ask.options.bytes = true;
    Ok(ask)
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let seeds = lab.seeds.unwrap_or(if lab.quick { 3 } else { 20 });
    for case in Case::ALL {
        for delay in DELAYS {
            (lab.progress)(&format!("{}, {delay} ms between attempts", case.name()));
            point(lab.seed, seeds, case, delay, &mut out)?;
        }
    }
    out.runs = Some(seeds * ROUND_TRIPS.len());
    for (name, title, unit) in [
        ("sctp_wins", "Connects that SCTP wins", "share"),
        ("added_delay_ms", "Delay added by trying SCTP", "ms"),
        ("server_state", "Associations that losers leave at the server", "associations"),
    ] {
        out.panel(name, title, unit, |f| (f.variant.clone(), "netsim".to_owned()));
    }
    Ok(out)
}

/// One case with one delay between attempts, over all round-trip times and seeds.
fn point(seed: u64, seeds: usize, case: Case, delay: u64, out: &mut Outcome) -> Result<()> {
    let variant = format!("{}-{delay}ms", case.name());
    let (mut wins, mut left) = (0usize, 0u64);
    let (mut added, mut again, mut over, mut most) = (0f64, 0f64, 0f64, 0f64);
    let mut slower = Vec::new();
    let runs = seeds * ROUND_TRIPS.len();
    for (run, round_trip) in (0..runs).map(|run| (run, ROUND_TRIPS[run % ROUND_TRIPS.len()])) {
        let mut town = case.plan(seed.wrapping_add(run as u64), round_trip).build();
        let ask = both(delay)?;
        town.listen(&ask, PORT, Manner::echo());
        let alone = connect(&mut town, &Ask::over(&[Stack::Tcp]))?.took;
        let first = connect(&mut town, &ask)?;
        wins += usize::from(first.stack == Stack::Sctp);
        out.sample("connect_ms", first.stack.as_str(), &variant, run, ms(first.took));
        slower.push(ms(first.took) - ms(alone));
        if let Some(waited) = first.waited {
            // At most the delay between attempts, or half of the winner's handshake.
            let grace = ms(Duration::from_millis(delay).min(alone / 2));
            added = added.max(ms(waited));
            over = over.max(ms(waited) - grace);
            most = most.max(grace);
        }
        if case != Case::EqualRtt {
            // Silence is known as such after a while.
            town.play.run_for(Duration::from_secs(2));
            let second = connect(&mut town, &ask)?;
            again = again.max(ms(second.took) - ms(alone));
            left = left.max(town.play.stats(town.server).sctp_associations);
        }
    }
    let figure = |name: &str, of: &str, unit| Figure::new("A9", name, format!("{variant}{of}"), unit);
    let share = wins as f64 / runs as f64;
    let wins = figure("sctp_wins", "", "1").value(share, runs);
    let later = slower.iter().copied().fold(f64::MIN, f64::max);
    if case == Case::EqualRtt {
        out.figures.push(wins.judge(Bound::AtLeast(1.0)).with("ready_later_than_tcp_alone_ms", later));
        return Ok(());
    }
    out.figures.push(wins.judge(Bound::AtMost(0.0)));
    let waited = figure("added_delay_ms", "", "ms").value(added, runs).with("ready_later_than_tcp_alone_ms", later);
    // What is refused is not waited for.
    let most = match case {
        Case::Refused => 0.0,
        // Some run has waited longer than its own grace.
        _ if over > 0.0 => added - over,
        _ => most,
    };
    out.figures.push(waited.judge(Bound::AtMost(most)));
    out.figures.push(figure("added_delay_ms", "-cached", "ms").value(again, runs).judge(Bound::AtMost(0.0)));
    out.figures.push(figure("server_state", "", "1").value(left as f64, runs).judge(Bound::AtMost(0.0)));
    Ok(())
}
