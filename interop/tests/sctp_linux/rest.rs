//! Authentication, congestion marks, and what tshark says of all of it.

use super::messages::{ROLES, both, brisk, open};
use super::protocol::status;
use super::{Ground, Test};
use neater_interop::Scratch;
use neater_interop::sctp::{Batch, Role, Wish, decode_errors};
use neater_link::{Codel, Discipline, LinkConfig};
use neater_sctp::{Event, SharedKey};
use neater_sctp_wire::StreamId;
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    ("chunks_are_authenticated_in_both_directions", false, authenticated),
    ("a_key_that_both_were_given", false, shared_key),
    ("congestion_marks_are_echoed_and_heeded", false, marks),
    ("tshark_finds_no_fault_with_any_packet", false, tshark),
];

fn authenticated(ground: &mut Ground) {
    for role in ROLES {
        for sha256 in [true, false] {
            let mut wish = Wish::linux(role, &ground.machine);
            wish.config.extensions.authentication = true;
            // DATA, SACK, HEARTBEAT and its answer, and what ends the association; of us they want DATA.
            wish.config.authentication.required = vec![0, 3, 4, 5, 6, 7, 8];
            wish.config.authentication.sha256 = sha256;
            wish.peer.extend(["--auth", "--auth-chunk", "0"]);
            let mut world = open(wish);
            assert!(world.driver.endpoint().agreed(world.id).expect("it is up").0.authentication, "{role:?}");
            both(&mut world, &Batch::reliable(200, 20, 1..=3000));
            both(&mut world, &Batch::reliable(3, 2, 100_000..=100_000));
            world.settle();
            let stats = world.driver.endpoint().association_stats(world.id).expect("it is up");
            assert_eq!(stats.unauthenticated, 0, "{role:?} {sha256}");
            world.part();
        }
    }
}

/// Key 1, and another one in the middle.
fn shared_key(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish::linux(role, &ground.machine);
        wish.config.extensions.authentication = true;
        wish.config.authentication.required = vec![0];
        wish.config.authentication.keys = vec![SharedKey { id: 1, secret: b"correct".to_vec() }];
        wish.config.authentication.key = 1;
        wish.peer.extend(["--auth", "--auth-chunk", "0", "--key", "correct"]);
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(100, 10, 1..=3000));
        world.settle();
        assert!(world.driver.endpoint().set_key(world.id, SharedKey { id: 2, secret: b"horse".to_vec() }));
        world.peer.tell("key 2 horse");
        world.until("the peer to have the key", |w| w.peer.has("key-asked"));
        world.peer.tell("use-key 2");
        assert!(world.driver.endpoint().use_key(world.id, 2));
        both(&mut world, &Batch::reliable(100, 10, 1..=3000));
        world.settle();
        let stats = world.driver.endpoint().association_stats(world.id).expect("it is up");
        assert_eq!(stats.unauthenticated, 0, "{role:?}");
        world.part();
    }
}

/// A queue that marks in place of dropping: both sides slow down and nothing is sent again.
fn marks(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = brisk(ground, role, 0.0);
        wish.config.extensions.ecn = true;
        wish.link = LinkConfig {
            queue: neater_link::QueueLimit::Packets(1000),
            discipline: Discipline::Codel(Codel { ecn: true, ..Codel::default() }),
            ..LinkConfig::rate(10_000_000, Duration::from_millis(10))
        };
        let mut world = open(wish);
        assert!(world.driver.endpoint().agreed(world.id).expect("it is up").0.ecn);
        both(&mut world, &Batch::reliable(300, 4, 10_000..=10_000));
        world.settle();
        let stats = world.driver.endpoint().association_stats(world.id).expect("it is up");
        let theirs = status(&mut world);
        assert!(stats.marked > 0, "{stats:?}");
        assert_eq!(stats.retransmissions, 0, "nothing was lost: {stats:?}; {theirs}");
        world.part();
    }
}

fn tshark(ground: &mut Ground) {
    let scratch = Scratch::new("sctp-linux");
    for (index, role) in ROLES.into_iter().enumerate() {
        // No wrong bits: those would be found, and rightly.
        let mut wish = brisk(ground, role, 0.05);
        wish.link.corrupt = 0.0;
        wish.capture = Some(scratch.path().join(format!("{index}.pcap")));
        wish.config.extensions.authentication = true;
        wish.config.extensions.dynamic_addresses = true;
        wish.peer.extend(["--auth", "--asconf"]);
        if role == Role::Client {
            wish.config.linux_fragments = true;
            wish.peer.push("--interleave");
        }
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(100, 20, 1..=5000));
        let loose = Batch { policy: "rtx 0".to_owned(), ..Batch::reliable(40, 20, 1..=3000) };
        if role != Role::Client {
            // With I-DATA this peer cannot be told that something is given up.
            world.ours(&loose);
        }
        world.theirs(&loose);
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
            Err(why) => neater_interop::say_skipped(format_args!("{why}")),
        }
    }
}
