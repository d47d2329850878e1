//! Our SCTP and usrsctp, over UDP on loopback, with an emulated link in between: every message is accounted for.

use neater_interop::sctp::{Batch, Driver, Place, Role, Wish, World, between_links, decode_errors};
use neater_interop::{Scratch, skip};
use neater_link::{LinkConfig, Loss, Overtaking};
use neater_sctp::{
    AddressChange, AssociationConfig, CloseReason, Event, LayerId, Multipath, PathState, RtoConfig, Scheduler,
};
use neater_sctp_wire::StreamId;
use std::time::Duration;

const ROLES: [Role; 2] = [Role::Client, Role::Server];

macro_rules! world {
    ($wish:expr) => {
        match World::open($wish) {
            Ok(world) => world,
            Err(why) => skip!("{why}"),
        }
    };
}

/// Loss, and everything else that real paths do: 5 ms each way, packets that overtake others, copies, wrong bits.
fn rough(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: if loss > 0.0 { Loss::Random(loss) } else { Loss::None },
        overtaking: Some(Overtaking { probability: 0.05, gap: 1 }),
        duplicate: 0.01,
        corrupt: 0.005,
        ..LinkConfig::delay(Duration::from_millis(5))
    }
}

/// Timers that fit a round trip of 10 ms, so that losses do not cost seconds.
fn brisk(role: Role, loss: f64) -> Wish {
    let mut wish = Wish { link: rough(loss), ..Wish::new(role) };
    wish.config.rto =
        RtoConfig { initial: Duration::from_millis(150), min: Duration::from_millis(50), max: Duration::from_secs(1) };
    wish.config.max_association_retransmits = 40;
    wish.config.max_path_retransmits = 40;
    wish.peer.extend(["--rto", "50"]);
    wish
}

#[test]
fn messages_of_one_byte_to_a_megabyte_on_one_to_a_thousand_streams() {
    for role in ROLES {
        let mut world = world!(Wish::new(role));
        for batch in [
            Batch::reliable(100, 1, 1..=1),
            Batch::reliable(1000, 1000, 1..=2000),
            Batch::reliable(20, 10, 50_000..=100_000),
            Batch::reliable(3, 2, 1_000_000..=1_000_000),
        ] {
            world.ours(&batch);
            world.theirs(&batch);
        }
        world.settle();
        world.part();
    }
}

#[test]
fn unordered_messages() {
    for role in ROLES {
        let mut world = world!(Wish::new(role));
        let batch = Batch { unordered: true, ..Batch::reliable(300, 20, 1..=20_000) };
        world.ours(&batch);
        world.theirs(&batch);
        world.settle();
        world.part();
    }
}

#[test]
fn nothing_is_lost_at_one_to_ten_percent_loss_with_reordering_copies_and_wrong_bits() {
    for role in ROLES {
        for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.05), (4, 0.1)] {
            let mut world = world!(Wish { seed, ..brisk(role, loss) });
            for batch in [
                Batch::reliable(150, 20, 1..=5000),
                Batch { unordered: true, ..Batch::reliable(50, 20, 1..=5000) },
                Batch::reliable(2, 2, 100_000..=100_000),
            ] {
                world.ours(&batch);
                world.theirs(&batch);
            }
            world.settle();
            world.part();
        }
    }
}

#[test]
fn the_stack_of_the_standard_alone_talks_to_it_too() {
    for role in ROLES {
        let mut wish = brisk(role, 0.03);
        let rto = wish.config.rto;
        wish.config = AssociationConfig { rto, max_association_retransmits: 40, ..AssociationConfig::rfc9260() };
        let mut world = world!(wish);
        let batch = Batch::reliable(200, 20, 1..=5000);
        world.ours(&batch);
        world.theirs(&batch);
        world.settle();
        world.part();
    }
}

#[test]
fn messages_that_may_be_given_up_arrive_or_are_reported() {
    for role in ROLES {
        let mut world = world!(brisk(role, 0.1));
        for policy in ["ttl 30", "rtx 0", "rtx 1"] {
            for unordered in [false, true] {
                let batch = Batch { unordered, policy: policy.to_owned(), ..Batch::reliable(60, 8, 1..=4000) };
                world.ours(&batch);
                world.theirs(&batch);
            }
        }
        let reliable = Batch::reliable(20, 8, 1..=4000);
        world.ours(&reliable);
        world.theirs(&reliable);
        world.settle();
        // What is under way has time to arrive or to be given up.
        world.until("an account of every message", |w| w.out.given_up().all(|number| w.failed.contains(&number)));
        world.until("the peer's account", |w| {
            let told: Vec<_> = w.peer.events.iter().filter(|e| e["event"] == "send-failed").collect();
            w.back.given_up().all(|number| told.iter().any(|e| e["ppid"] == number))
        });
        assert!(!world.failed.is_empty(), "at 10 % loss something is given up");
        world.part();
    }
}

#[test]
fn small_messages_overtake_a_large_one_by_interleaving() {
    for role in ROLES {
        let mut wish = brisk(role, 0.01);
        // 8 Mbit/s: the large message takes a second.
        wish.link = LinkConfig {
            queue: neater_link::QueueLimit::Packets(100),
            ..LinkConfig::rate(8_000_000, Duration::from_millis(5))
        };
        wish.config.scheduler = Scheduler::RoundRobin;
        wish.peer.extend(["--interleave", "--scheduler", "1"]);
        let mut world = world!(wish);
        let agreed = world.driver.endpoint().agreed(world.id).expect("it is up").0;
        assert!(agreed.interleaving, "I-DATA is agreed upon");
        let (large, small) = (Batch::reliable(1, 1, 800_000..=800_000), Batch::reliable(30, 30, 1..=500));
        for batch in [&large, &small] {
            world.ours(batch);
            world.theirs(batch);
        }
        // Message 1 is the large one.
        world.until("small ones before the large one", |w| w.out.arrived() >= 25 && w.back.arrived() >= 25);
        assert!(
            world.out.missing().any(|n| n == 1) && world.back.missing().any(|n| n == 1),
            "the large ones are under way"
        );
        world.settle();
        world.part();
    }
}

#[test]
fn interleaved_messages_at_five_percent_loss() {
    for role in ROLES {
        let mut wish = Wish { seed: 9, ..brisk(role, 0.05) };
        wish.config.scheduler = Scheduler::RoundRobinPerPacket;
        wish.peer.extend(["--interleave", "--scheduler", "2"]);
        let mut world = world!(wish);
        // Only ours may be given up. Where some of theirs may be, usrsctp 0.9.5 gives up reliable ones among its I-DATA chunks
        // as well, and says so itself (`send-failed`): ten of 200 in this very test.
        for (batch, both) in [
            (Batch::reliable(100, 20, 1..=20_000), true),
            (Batch { unordered: true, ..Batch::reliable(50, 20, 1..=20_000) }, true),
            (Batch { policy: "rtx 0".to_owned(), ..Batch::reliable(50, 20, 1..=4000) }, false),
            (Batch { policy: "rtx 0".to_owned(), unordered: true, ..Batch::reliable(50, 20, 1..=4000) }, false),
            (Batch::reliable(50, 20, 1..=20_000), true),
        ] {
            world.ours(&batch);
            if both {
                world.theirs(&batch);
            }
        }
        world.settle();
        world.part();
    }
}

#[test]
fn streams_are_reset_and_added_from_either_side() {
    for role in ROLES {
        let mut wish = Wish::new(role);
        wish.config.outbound_streams = 8;
        wish.config.inbound_streams = 64;
        wish.peer = vec!["--streams", "8,64"];
        let mut world = world!(wish);
        let batch = Batch::reliable(40, 8, 1..=3000);
        world.ours(&batch);
        world.theirs(&batch);
        world.settle();

        let two = [StreamId(1), StreamId(2)];
        world.driver.endpoint().reset_outgoing(world.id, &two).expect("it can be asked");
        world.until("our streams to be reset", |w| w.has(&Event::OutgoingReset { streams: two.to_vec(), done: true }));
        world.until("the peer to notice", |w| {
            w.peer.event("reset").is_some_and(|e| e["flags"] == 1 && e["streams"] == 2)
        });
        world.ours(&batch);
        world.settle();

        world.driver.endpoint().reset_incoming(world.id, &[StreamId(3)]).expect("it can be asked");
        world.until("their stream to be reset", |w| {
            w.has(&Event::IncomingReset { streams: vec![StreamId(3)], number: 1 })
        });
        // Before it has our answer, usrsctp takes nothing for that stream (EAGAIN).
        world
            .until("the peer to know", |w| w.peer.event("reset").is_some_and(|e| e["flags"] == 2 && e["streams"] == 1));
        world.theirs(&batch);
        world.settle();

        world.peer.events.clear();
        world.peer.tell("reset both");
        world.until("both directions to be reset", |w| {
            let told = |flags: u64| w.peer.events.iter().filter(move |e| e["event"] == "reset" && e["flags"] == flags);
            // No streams means all. usrsctp resets its own in several steps when some are busy.
            let all = told(2).any(|e| e["streams"] == 0);
            let sum: u64 = told(2).filter_map(|e| e["streams"].as_u64()).sum();
            told(1).any(|e| e["streams"] == 0) && (all || sum == 8)
        });
        world.ours(&batch);
        world.theirs(&batch);
        world.settle();

        world.driver.endpoint().add_outgoing(world.id, 8).expect("it can be asked");
        world.until("more streams for us", |w| w.has(&Event::StreamsAdded { outbound: 16, done: true }));
        world.peer.tell("add 4 0");
        world.until("more streams for them", |w| w.peer.event("streams").is_some_and(|e| e["out"] == 12));
        let more = Batch::reliable(48, 12, 1..=3000);
        world.ours(&more);
        world.theirs(&more);
        world.settle();
        world.part();
    }
}

#[test]
fn a_shutdown_from_either_side_loses_nothing() {
    for role in ROLES {
        for they_begin in [false, true] {
            let mut world = world!(brisk(role, 0.03));
            let batch = Batch::reliable(100, 10, 1..=5000);
            if they_begin {
                world.theirs(&batch);
                world.peer.tell("shutdown");
            } else {
                world.ours(&batch);
                // What was handed over is delivered first; what was not is the test's to hand over.
                world.until("all messages handed over", |w| w.all_handed_over());
                let now = world.driver.now();
                world.driver.endpoint().shutdown(now, world.id);
            }
            world.until("the end", |w| w.closed().is_some() && (w.peer.has("closed") || w.peer.has("lost")));
            assert_eq!(world.closed(), Some(&CloseReason::Shutdown));
            world.settle();
            world.nothing_left();
        }
    }
}

#[test]
fn an_abort_from_either_side_arrives() {
    for role in ROLES {
        let mut world = world!(Wish::new(role));
        world.driver.endpoint().abort(world.id, b"enough");
        // usrsctp hands the code of the cause on: User-Initiated Abort (RFC 9260 section 3.3.10.12).
        world.until("the peer to be told", |w| w.peer.event("lost").is_some_and(|e| e["error"] == 12));
        assert_eq!(world.closed(), Some(&CloseReason::Aborted));
        world.nothing_left();

        let mut world = world!(Wish::new(role));
        world.peer.tell("abort");
        world.until("us to be told", |w| w.closed().is_some());
        let Some(CloseReason::PeerAborted { cause, .. }) = world.closed() else { panic!("{:?}", world.events) };
        assert!(matches!(cause, None | Some(12)), "{cause:?}");
        world.nothing_left();
    }
}

#[test]
fn a_peer_that_starts_again_without_a_word_restarts_the_association() {
    let mut world = world!(Wish::new(Role::Server));
    let batch = Batch::reliable(50, 10, 1..=5000);
    world.ours(&batch);
    world.theirs(&batch);
    world.settle();
    if let Err(why) = world.restart_peer() {
        skip!("{why}");
    }
    world.until("a restart", |w| w.has(&Event::Restarted));
    world.until("the peer to be connected", |w| w.peer.has("connected"));
    world.ours(&batch);
    world.theirs(&batch);
    world.settle();
    world.part();
}

#[test]
fn tshark_finds_no_fault_with_any_packet() {
    let scratch = Scratch::new("sctp-capture");
    for (index, role) in ROLES.into_iter().enumerate() {
        let path = scratch.path().join(format!("{index}.pcap"));
        // No wrong bits: those would be found, and rightly.
        let mut wish = brisk(role, 0.05);
        wish.link.corrupt = 0.0;
        wish.capture = Some(path);
        let mut world = world!(wish);
        for batch in [
            Batch::reliable(100, 20, 1..=5000),
            Batch { policy: "rtx 0".to_owned(), ..Batch::reliable(40, 20, 1..=3000) },
        ] {
            world.ours(&batch);
            world.theirs(&batch);
        }
        world.settle();
        world.driver.endpoint().reset_outgoing(world.id, &[StreamId(1)]).expect("it can be asked");
        world.until("a reset", |w| w.events.iter().any(|e| matches!(e, Event::OutgoingReset { done: true, .. })));
        world.part();
        let capture = world.driver.recorded().expect("it was recorded").finish();
        match decode_errors(&capture) {
            Ok((good, bad)) => {
                assert!(good > 100, "{good} packets are sound");
                assert!(bad.is_empty(), "{} packets are not: {bad:#?}", bad.len());
            }
            Err(why) => skip!("{why}"),
        }
    }
}

/// usrsctp computes the same keys: it authenticates what we require, and takes what we authenticate because it requires that.
#[test]
fn chunks_are_authenticated_in_both_directions() {
    for role in ROLES {
        for sha256 in [true, false] {
            let mut wish = Wish::new(role);
            wish.config.extensions.dynamic_addresses = true;
            // DATA, SACK, I-DATA, and what ends the association.
            wish.config.authentication.required = vec![0, 3, 6, 7, 8, 64];
            wish.config.authentication.sha256 = sha256;
            // And DATA from us.
            wish.peer.extend(["--auth-chunk", "0"]);
            let mut world = world!(wish);
            let id = world.id;
            let agreed = world.driver.endpoint().agreed(id).expect("it is up").0;
            assert!(agreed.authentication && agreed.dynamic_addresses, "{role:?}: {agreed:?}");
            for batch in [Batch::reliable(200, 20, 1..=3000), Batch::reliable(3, 2, 100_000..=100_000)] {
                world.ours(&batch);
                world.theirs(&batch);
            }
            world.settle();
            let stats = world.driver.endpoint().association_stats(id).expect("it is up");
            assert_eq!(stats.unauthenticated, 0, "{role:?} {sha256}");
            world.part();
        }
    }
}

/// An ASCONF chunk of ours is checked and answered by usrsctp. Its address stays: one that is added again is no change.
/// Both say what they will not take back, the peer with its own concurrent multipath transfer on: the difference between the two shows
/// in what holes mean, on one path as on several.
#[test]
fn acknowledgments_of_what_is_not_dropped_again_are_understood_on_both_sides() {
    for role in ROLES {
        for multipath in [None, Some(Multipath::default())] {
            let mut wish = brisk(role, 0.05);
            wish.peer.extend(["--nr-sack", "--cmt"]);
            wish.config.extensions.nr_sack = true;
            wish.config.multipath = multipath;
            let mut world = world!(wish);
            let agreed = world.driver.endpoint().agreed(world.id);
            assert!(agreed.is_some_and(|(x, _)| x.nr_sack), "{agreed:?}");
            for unordered in [false, true] {
                let batch = Batch { unordered, ..Batch::reliable(300, 20, 1..=5000) };
                world.ours(&batch);
                world.theirs(&batch);
                world.settle();
            }
            world.part();
        }
    }
}

#[test]
fn a_change_of_addresses_is_answered() {
    for role in ROLES {
        let mut wish = Wish::new(role);
        wish.config.extensions.dynamic_addresses = true;
        let mut world = world!(wish);
        let (id, change) = (world.id, AddressChange::Prefer(LayerId(0)));
        world.driver.endpoint().change_addresses(id, &[change]).expect("it may be asked");
        let answered = |d: &Driver| {
            d.events.iter().find_map(|(_, e)| match e {
                Event::AddressChanged { change: c, done } if *c == change => Some(*done),
                _ => None,
            })
        };
        assert!(world.driver.until("the answer", Duration::from_secs(20), |d| answered(d)), "{role:?}");
        world.ours(&Batch::reliable(10, 2, 1..=2000));
        world.theirs(&Batch::reliable(10, 2, 1..=2000));
        world.settle();
        world.part();
    }
}

/// Whether all paths of an association over two links are usable: from each address of ours to each of theirs.
fn all_paths(world: &mut World) -> bool {
    let paths = world.driver.endpoint().paths(world.id);
    paths.iter().filter(|p| p.state == PathState::Active).count() == 4
}

/// Concurrent multipath transfer, potentially failed and NR-SACK on both sides, over two links: new data of both sides uses both
/// paths, and goes over the other one while one is cut.
#[test]
fn both_sides_send_over_two_links_at_once_and_over_one_while_the_other_is_cut() {
    match between_links("both_sides_send_over_two_links_at_once_and_over_one_while_the_other_is_cut") {
        Ok(true) => {}
        Ok(false) => return,
        Err(why) => skip!("{why}"),
    }
    for role in ROLES {
        let mut wish = Wish { link: rough(0.02), place: Place::UsrsctpLinks, ..brisk(role, 0.02) };
        wish.peer.extend(["--nr-sack", "--cmt", "--pf", "1"]);
        wish.config.multipath = Some(Multipath::default());
        wish.config.extensions.nr_sack = true;
        wish.config.heartbeat_interval = Some(Duration::from_millis(300));
        let mut world = world!(wish);
        let agreed = world.driver.endpoint().agreed(world.id);
        assert!(agreed.is_some_and(|(x, _)| x.nr_sack), "{agreed:?}");
        world.peer.tell("heartbeat 300");
        world.until("all paths", all_paths);
        let both = |world: &mut World, count| {
            let batch = Batch::reliable(count, 20, 1..=5000);
            world.ours(&batch);
            world.theirs(&batch);
        };
        both(&mut world, 400);
        world.settle();
        let used: Vec<_> = world.driver.endpoint().paths(world.id).iter().map(|p| (p.sent, p.received)).collect();
        let (ours, theirs) = (|u: &&(u64, u64)| u.0 > 50, |u: &&(u64, u64)| u.1 > 50_000);
        let count = (used.iter().filter(ours).count(), used.iter().filter(theirs).count());
        assert!(count.0 >= 2 && count.1 >= 2, "{role:?}: {used:?}");
        for cut in [LayerId(1), LayerId(0)] {
            both(&mut world, 100);
            world.driver.cut(Some(cut));
            both(&mut world, 100);
            world.settle();
            world.driver.cut(None);
            world.until("the paths to come back", all_paths);
        }
        world.part();
    }
}
