//! What associations do besides carrying messages: they are agreed upon, changed, ended and begun again.

use super::messages::{ROLES, both, brisk, open};
use super::{Ground, Test};
use neater_interop::sctp::{Batch, Role, Wish, World};
use neater_sctp::{CloseReason, Event, Extensions};
use neater_sctp_wire::StreamId;
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    ("what_both_have_is_agreed_upon", true, agreed_upon),
    ("streams_are_reset_and_added_from_either_side", true, streams),
    ("a_shutdown_from_either_side_loses_nothing", true, shutdowns),
    ("an_abort_from_either_side_arrives", true, aborts),
    ("a_peer_that_starts_again_restarts_the_association", true, peer_restarts),
    ("a_peer_whose_machine_boots_again_restarts_the_association", false, machine_restarts),
    ("we_start_again_and_the_peer_notices", true, we_restart),
];

/// Everything that both sides have: what is agreed upon is the same on both sides.
fn agreed_upon(ground: &mut Ground) {
    ground.agreed.push(String::new());
    ground.agreed.push("| Opened by | Extension | We | Linux |".to_owned());
    ground.agreed.push("|---|---|---|---|".to_owned());
    for role in ROLES {
        let mut wish = Wish::linux(role, &ground.machine);
        wish.config.extensions =
            Extensions { ecn: true, authentication: true, dynamic_addresses: true, ..Extensions::default() };
        wish.config.linux_fragments = true;
        wish.config.adaptation = Some(0x1234_5678);
        wish.peer.extend(["--interleave", "--auth", "--asconf", "--adaptation", "0x9abcdef0"]);
        let mut world = open(wish);
        let (agreed, adaptation) = world.driver.endpoint().agreed(world.id).expect("it is up");
        let (out, inbound) = world.driver.endpoint().streams(world.id);
        let status = status(&mut world);
        let rows = [
            ("I-DATA (RFC 8260)", agreed.interleaving, "interleaving"),
            ("PR-SCTP (RFC 3758)", agreed.partial_reliability, "partial"),
            ("RE-CONFIG (RFC 6525)", agreed.reconfiguration, "reconfiguration"),
            ("AUTH (RFC 4895)", agreed.authentication, "authentication"),
            ("ASCONF (RFC 5061)", agreed.dynamic_addresses, "addresses"),
            ("ECN (RFC 3168)", agreed.ecn, "ecn"),
        ];
        let who = if role == Role::Client { "us" } else { "Linux" };
        let yes = |b: bool| if b { "yes" } else { "no" };
        for (name, ours, theirs) in rows {
            let theirs = status[theirs] == 1;
            ground.agreed.push(format!("| {who} | {name} | {} | {} |", yes(ours), yes(theirs)));
            // With I-DATA we give nothing up towards a peer that does not name I-FORWARD-TSN (RFC 8260 section 2.3.1).
            let wanted = !name.starts_with("PR-SCTP");
            assert!(ours == wanted && theirs, "{role:?}: {name}: we {ours}, they {theirs}");
        }
        // Linux has no RFC 9653, so that nobody leaves checksums out.
        assert!(!agreed.zero_checksum);
        ground.agreed.push(format!("| {who} | Zero checksum (RFC 9653) | no | unknown to it |"));
        assert_eq!(adaptation, Some(0x9abc_def0));
        world.until("our adaptation indication", |w| {
            w.peer.event("adaptation").is_some_and(|e| e["code"] == 0x1234_5678)
        });
        assert_eq!((status["out"].as_u64(), status["in"].as_u64()), (Some(inbound.into()), Some(out.into())));
        ground.agreed.push(format!(
            "| {who} | Streams, ours and theirs | {out}, {inbound} | {}, {} |",
            status["in"], status["out"]
        ));
        both(&mut world, &Batch::reliable(50, 10, 1..=5000));
        world.settle();
        world.part();
    }
    // Without I-DATA both give messages up.
    let mut world = open(Wish::linux(Role::Client, &ground.machine));
    let agreed = world.driver.endpoint().agreed(world.id).expect("it is up").0;
    let theirs = status(&mut world);
    assert!(agreed.partial_reliability && !agreed.interleaving && theirs["partial"] == 1, "{agreed:?} {theirs}");
    world.part();
    // And each of them may be missing on their side.
    let mut wish = Wish::linux(Role::Client, &ground.machine);
    wish.peer.extend(["--no-pr", "--no-ecn", "--no-reconf"]);
    wish.config.extensions.ecn = true;
    let mut world = open(wish);
    let agreed = world.driver.endpoint().agreed(world.id).expect("it is up").0;
    assert_eq!(agreed, Extensions::NONE);
    both(&mut world, &Batch::reliable(50, 10, 1..=5000));
    world.settle();
    world.part();
}

/// What the peer says of the association.
pub(super) fn status(world: &mut World) -> serde_json::Value {
    world.peer.events.retain(|e| e["event"] != "status");
    world.peer.tell("status");
    world.until("the peer's status", |w| w.peer.has("status"));
    world.peer.event("status").expect("it is there").clone()
}

fn streams(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish::linux(role, &ground.machine);
        wish.config.outbound_streams = 8;
        wish.config.inbound_streams = 64;
        wish.peer = vec!["--streams", "8,64"];
        let mut world = open(wish);
        let batch = Batch::reliable(40, 8, 1..=3000);
        both(&mut world, &batch);
        world.settle();

        let two = [StreamId(1), StreamId(2)];
        world.driver.endpoint().reset_outgoing(world.id, &two).expect("it can be asked");
        world.until("our streams to be reset", |w| w.has(&Event::OutgoingReset { streams: two.to_vec(), done: true }));
        world.until("the peer to notice", |w| w.peer.event("reset").is_some_and(|e| e["streams"] == 2));
        world.ours(&batch);
        world.settle();

        world.driver.endpoint().reset_incoming(world.id, &[StreamId(3)]).expect("it can be asked");
        world.until("their stream to be reset", |w| {
            w.has(&Event::IncomingReset { streams: vec![StreamId(3)], number: 1 })
        });
        world.theirs(&batch);
        world.settle();

        world.peer.events.clear();
        world.events.clear();
        world.peer.tell("reset out 4 5");
        world.until("their streams to be reset", |w| {
            w.has(&Event::IncomingReset { streams: vec![StreamId(4), StreamId(5)], number: 2 }) && w.peer.has("reset")
        });
        world.theirs(&batch);
        world.settle();

        world.peer.events.clear();
        world.peer.tell("reset in 6");
        world.until("them to know that we have reset ours", |w| w.peer.has("reset"));
        both(&mut world, &batch);
        world.settle();

        world.driver.endpoint().add_outgoing(world.id, 8).expect("it can be asked");
        world.until("more streams for us", |w| w.has(&Event::StreamsAdded { outbound: 16, done: true }));
        world.peer.events.clear();
        world.peer.tell("add 4 0");
        world.until("more streams for them", |w| w.peer.event("streams").is_some_and(|e| e["out"] == 4));
        both(&mut world, &Batch::reliable(48, 12, 1..=3000));
        world.settle();
        let status = status(&mut world);
        assert_eq!((status["out"].as_u64(), status["in"].as_u64()), (Some(12), Some(16)), "{status}");
        world.part();
    }
}

fn shutdowns(ground: &mut Ground) {
    for role in ROLES {
        for they_begin in [false, true] {
            let mut world = open(brisk(ground, role, 0.03));
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
            world.until("the end", |w| w.closed().is_some() && w.peer.has("closed"));
            assert_eq!(world.closed(), Some(&CloseReason::Shutdown));
            world.settle();
            world.nothing_left();
        }
    }
}

fn aborts(ground: &mut Ground) {
    for role in ROLES {
        let mut world = open(Wish::linux(role, &ground.machine));
        world.driver.endpoint().abort(world.id, b"enough");
        // Linux hands the code of the cause on: User-Initiated Abort (RFC 9260 section 3.3.10.12).
        world.until("the peer to be told", |w| w.peer.event("lost").is_some_and(|e| e["error"] == 12));
        assert_eq!(world.closed(), Some(&CloseReason::Aborted));
        world.nothing_left();

        let mut world = open(Wish::linux(role, &ground.machine));
        world.peer.tell("abort");
        world.until("us to be told", |w| w.closed().is_some());
        let told = CloseReason::PeerAborted { cause: Some(12), reason: b"enough".to_vec() };
        assert_eq!(world.closed(), Some(&told));
        world.nothing_left();
    }
}

fn peer_restarts(ground: &mut Ground) {
    let mut world = open(Wish::linux(Role::Server, &ground.machine));
    let batch = Batch::reliable(50, 10, 1..=5000);
    both(&mut world, &batch);
    world.settle();
    world.restart_peer().unwrap_or_else(|why| panic!("{why}"));
    restarted(&mut world, &batch);
}

fn restarted(world: &mut World, batch: &Batch) {
    world.until("a restart", |w| w.has(&Event::Restarted));
    world.until("the peer to be connected", |w| w.peer.has("connected"));
    both(world, batch);
    world.settle();
    world.part();
}

fn machine_restarts(ground: &mut Ground) {
    let mut wish = Wish::linux(Role::Server, &ground.machine);
    // What it hears of an association that it does not know it aborts, and rightly: then there is none to be restarted.
    wish.config.heartbeat_interval = None;
    let mut world = open(wish);
    let batch = Batch::reliable(50, 10, 1..=5000);
    both(&mut world, &batch);
    world.settle();
    // The last acknowledgment may be owed yet (RFC 9260 section 6.2), and it would be such a packet.
    world.pass(Duration::from_millis(500));
    ground.machine.borrow_mut().reboot();
    world.start_peer_again().unwrap_or_else(|why| panic!("{why}"));
    restarted(&mut world, &batch);
}

/// Our endpoint forgets everything and opens the association again, with the same ports.
fn we_restart(ground: &mut Ground) {
    let mut world = open(Wish::linux(Role::Client, &ground.machine));
    let batch = Batch::reliable(50, 10, 1..=5000);
    both(&mut world, &batch);
    world.settle();
    world.restart_us();
    world.until("the peer to notice", |w| w.peer.has("restart"));
    both(&mut world, &batch);
    world.settle();
    world.pass(Duration::from_millis(100));
    world.part();
}
