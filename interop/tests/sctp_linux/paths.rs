//! Several paths, other networks below, and addresses that come and go.

use super::messages::{ROLES, both, brisk, open};
use super::protocol::status;
use super::{Ground, Test};
use neater_interop::sctp::{Batch, Place, Role, Wish, World, address};
use neater_sctp::{AddressChange, Event, LayerId, Multipath, PathState};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    ("messages_straight_over_ip", true, over_ip),
    ("messages_over_ipv6", false, over_v6),
    ("two_paths_one_of_which_fails_and_comes_back", true, failover),
    ("new_data_goes_over_both_paths_at_once_and_over_one_while_the_other_is_cut", true, concurrent),
    ("two_paths_straight_over_ip_of_both_versions", false, two_versions),
    ("heartbeats_of_both_sides_are_answered", false, heartbeats),
    ("addresses_of_ours_come_and_go", false, our_addresses),
    ("addresses_of_theirs_come_and_go", false, their_addresses),
];

/// A place with these paths: the card, and whether it is IPv6.
fn place(ground: &Ground, udp: bool, paths: &[(u8, bool)], spare: &[IpAddr]) -> Place {
    Place::Linux { machine: ground.machine.clone(), udp, paths: paths.to_vec(), spare: spare.to_vec() }
}

fn over_ip(ground: &mut Ground) {
    for role in ROLES {
        let wish = Wish { place: place(ground, false, &[(0, false)], &[]), ..brisk(ground, role, 0.02) };
        exchange(wish);
    }
}

fn over_v6(ground: &mut Ground) {
    for role in ROLES {
        for udp in [true, false] {
            exchange(Wish { place: place(ground, udp, &[(0, true)], &[]), ..brisk(ground, role, 0.02) });
        }
    }
}

fn exchange(wish: Wish) {
    let mut world = open(wish);
    both(&mut world, &Batch::reliable(200, 20, 1..=5000));
    both(&mut world, &Batch::reliable(2, 2, 200_000..=200_000));
    world.settle();
    world.part();
}

fn two_versions(ground: &mut Ground) {
    for role in ROLES {
        exchange(Wish { place: place(ground, false, &[(0, false), (1, true)], &[]), ..brisk(ground, role, 0.02) });
    }
}

fn usable(world: &mut World) -> usize {
    world.driver.endpoint().paths(world.id).iter().filter(|p| p.state == PathState::Active).count()
}

/// Concurrent multipath transfer and the potentially-failed state, with a receiver that knows of neither, nor of NR-SACK.
fn concurrent(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish { place: place(ground, true, &[(0, false), (1, false)], &[]), ..brisk(ground, role, 0.02) };
        wish.config.multipath = Some(Multipath::default());
        wish.config.extensions.nr_sack = true;
        wish.config.heartbeat_interval = Some(Duration::from_millis(300));
        let mut world = open(wish);
        world.until("two paths", |w| usable(w) == 2);
        both(&mut world, &Batch::reliable(400, 20, 1..=5000));
        world.settle();
        let sent: Vec<u64> = world.driver.endpoint().paths(world.id).iter().map(|p| p.sent).collect();
        assert!(sent.iter().all(|n| *n > 50), "{sent:?}");
        for cut in [LayerId(1), LayerId(0)] {
            both(&mut world, &Batch::reliable(100, 10, 1..=5000));
            world.driver.cut(Some(cut));
            both(&mut world, &Batch::reliable(100, 10, 1..=5000));
            world.settle();
            world.driver.cut(None);
            world.until("the path to come back", |w| usable(w) == 2);
        }
        world.part();
    }
}

/// Both paths are confirmed, the first one is cut, and messages arrive by the other one; then the other way round.
fn failover(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish { place: place(ground, true, &[(0, false), (1, false)], &[]), ..brisk(ground, role, 0.0) };
        wish.config.max_path_retransmits = 2;
        wish.config.heartbeat_interval = Some(Duration::from_millis(300));
        let mut world = open(wish);
        world.until("two paths", |w| usable(w) == 2);
        both(&mut world, &Batch::reliable(50, 10, 1..=3000));
        world.settle();
        for cut in [LayerId(0), LayerId(1)] {
            world.driver.cut(Some(cut));
            both(&mut world, &Batch::reliable(50, 10, 1..=3000));
            world.settle();
            world.until("a path to fail", |w| usable(w) == 1);
            world.driver.cut(None);
            world.until("it to come back", |w| usable(w) == 2);
        }
        world.part();
    }
}

fn heartbeats(ground: &mut Ground) {
    let mut wish = brisk(ground, Role::Client, 0.0);
    wish.config.heartbeat_interval = Some(Duration::from_millis(100));
    let mut world = open(wish);
    world.peer.tell("heartbeats 100");
    let before = (world.driver.endpoint().association_stats(world.id).expect("it is up"), status(&mut world));
    world.pass(Duration::from_secs(3));
    let after = (world.driver.endpoint().association_stats(world.id).expect("it is up"), status(&mut world));
    let packets = |s: &serde_json::Value| s["packets_in"].as_u64().expect("a number");
    // About ten of ours and as many of theirs in three seconds, each with an answer; nothing else is said.
    assert!(after.0.packets_received >= before.0.packets_received + 12, "{before:?} {after:?}");
    assert!(packets(&after.1) >= packets(&before.1) + 12, "{before:?} {after:?}");
    assert!(world.driver.endpoint().paths(world.id).iter().all(|p| p.errors == 0 && p.state == PathState::Active));
    world.part();
}

fn changed(world: &mut World, change: AddressChange) -> bool {
    world.driver.endpoint().change_addresses(world.id, &[change]).expect("it may be asked");
    let mut outcome = None;
    world.until("the answer to a change", |w| {
        outcome = w.events.iter().find_map(|e| match e {
            Event::AddressChanged { change: c, done } if *c == change => Some(*done),
            _ => None,
        });
        outcome.is_some()
    });
    outcome == Some(true)
}

/// We begin with one address, add another on the other card, prefer it, and take the first one away.
fn our_addresses(ground: &mut Ground) {
    for role in ROLES {
        let second = address(1, false, 1);
        let mut wish = Wish { place: place(ground, true, &[(0, false)], &[second]), ..brisk(ground, role, 0.0) };
        wish.config.extensions.dynamic_addresses = true;
        wish.config.heartbeat_interval = Some(Duration::from_millis(300));
        wish.peer.extend(["--auth", "--asconf"]);
        let mut world = open(wish);
        assert!(changed(&mut world, AddressChange::Add(LayerId(1))), "{role:?}: they take it");
        world.until("the peer to have confirmed it", |w| {
            w.peer.events.iter().any(|e| e["address"] == second.to_string() && e["state"] == "confirmed")
        });
        assert!(changed(&mut world, AddressChange::Prefer(LayerId(1))), "{role:?}: they send there");
        both(&mut world, &Batch::reliable(50, 10, 1..=3000));
        world.settle();
        assert_eq!(status(&mut world)["primary"], second.to_string(), "{role:?}");
        assert!(changed(&mut world, AddressChange::Remove(LayerId(0))), "{role:?}: they let it go");
        both(&mut world, &Batch::reliable(50, 10, 1..=3000));
        world.settle();
        world.part();
    }
}

/// They do the same.
fn their_addresses(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish { place: place(ground, true, &[(0, false), (1, false)], &[]), ..brisk(ground, role, 0.0) };
        wish.config.extensions.dynamic_addresses = true;
        wish.config.heartbeat_interval = Some(Duration::from_millis(300));
        wish.peer.extend(["--auth", "--asconf"]);
        let mut world = open(wish);
        world.until("two paths", |w| usable(w) == 2);
        let theirs = |n| address(n, false, 2);
        let remotes = |w: &mut World| -> Vec<IpAddr> {
            w.driver.endpoint().paths(w.id).iter().map(|p| p.route.remote.ip()).collect()
        };
        world.peer.tell(&format!("address remove {}", theirs(1)));
        world.until("one path", |w| remotes(w).iter().all(|a| *a == theirs(0)));
        both(&mut world, &Batch::reliable(30, 10, 1..=3000));
        world.settle();
        world.peer.tell(&format!("address add {}", theirs(1)));
        world.until("two again", |w| remotes(w).contains(&theirs(1)) && usable(w) == 2);
        world.peer.tell(&format!("address prefer {}", theirs(1)));
        both(&mut world, &Batch::reliable(30, 10, 1..=3000));
        world.settle();
        let told = world.peer.events.iter().filter(|e| e["event"] == "address-asked").collect::<Vec<_>>();
        assert!(told.iter().all(|e| e["why"] == ""), "{told:?}");
        world.part();
    }
}
