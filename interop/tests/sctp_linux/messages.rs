//! Messages: of every length, on many streams, in order or not, reliable or not, over links that lose.

use super::{Ground, Test};
use neater_interop::sctp::{Batch, Role, Wish, World};
use neater_link::{LinkConfig, Loss, Overtaking};
use neater_sctp::{AssociationConfig, RtoConfig, Scheduler};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    ("messages_of_one_byte_to_a_megabyte_on_one_to_a_thousand_streams", true, of_every_length),
    ("messages_to_and_from_a_socket_for_one_association", false, one_to_one),
    ("unordered_messages", false, unordered),
    ("five_percent_of_the_packets_are_lost", true, |g| losses(g, &[0.05])),
    ("one_to_ten_percent_of_the_packets_are_lost", false, |g| losses(g, &[0.0, 0.01, 0.1])),
    ("the_stack_of_the_standard_alone", false, standard_alone),
    ("messages_that_may_be_given_up_arrive_or_are_reported", true, partial),
    ("small_messages_overtake_a_large_one_by_interleaving", true, interleaving),
    ("interleaved_messages_at_five_percent_loss", false, interleaved_loss),
    ("schedulers_of_both_sides", false, schedulers),
];

pub(super) const ROLES: [Role; 2] = [Role::Client, Role::Server];

/// Loss, and everything else that real paths do: 5 ms each way, packets that overtake others, copies, wrong bits.
pub(super) fn rough(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: if loss > 0.0 { Loss::Random(loss) } else { Loss::None },
        overtaking: Some(Overtaking { probability: 0.05, gap: 1 }),
        duplicate: 0.01,
        corrupt: 0.005,
        ..LinkConfig::delay(Duration::from_millis(5))
    }
}

/// Timers that fit a round trip of 10 ms, so that losses do not cost seconds.
pub(super) fn brisk(ground: &Ground, role: Role, loss: f64) -> Wish {
    let mut wish = Wish { link: rough(loss), ..Wish::linux(role, &ground.machine) };
    wish.config.rto =
        RtoConfig { initial: Duration::from_millis(150), min: Duration::from_millis(50), max: Duration::from_secs(1) };
    wish.config.max_association_retransmits = 40;
    wish.config.max_path_retransmits = 40;
    wish.peer.extend(["--rto", "50"]);
    wish
}

/// An association with Linux.
pub(super) fn open(wish: Wish) -> World {
    World::open(wish).unwrap_or_else(|why| panic!("{why}"))
}

/// The same messages both ways.
pub(super) fn both(world: &mut World, batch: &Batch) {
    world.ours(batch);
    world.theirs(batch);
}

fn of_every_length(ground: &mut Ground) {
    for role in ROLES {
        let mut world = open(Wish::linux(role, &ground.machine));
        for batch in [
            Batch::reliable(100, 1, 1..=1),
            Batch::reliable(1000, 1000, 1..=2000),
            Batch::reliable(20, 10, 50_000..=100_000),
            Batch::reliable(3, 2, 1_000_000..=1_000_000),
        ] {
            both(&mut world, &batch);
        }
        world.settle();
        world.part();
    }
}

fn one_to_one(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = brisk(ground, role, 0.01);
        wish.peer.push("--one-to-one");
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(200, 50, 1..=5000));
        both(&mut world, &Batch::reliable(2, 2, 300_000..=300_000));
        world.settle();
        world.part();
    }
}

fn unordered(ground: &mut Ground) {
    for role in ROLES {
        let mut world = open(Wish::linux(role, &ground.machine));
        both(&mut world, &Batch { unordered: true, ..Batch::reliable(300, 20, 1..=20_000) });
        world.settle();
        world.part();
    }
}

fn losses(ground: &mut Ground, rates: &[f64]) {
    for role in ROLES {
        for (seed, loss) in (1..).zip(rates) {
            let mut world = open(Wish { seed, ..brisk(ground, role, *loss) });
            both(&mut world, &Batch::reliable(150, 20, 1..=5000));
            both(&mut world, &Batch { unordered: true, ..Batch::reliable(50, 20, 1..=5000) });
            both(&mut world, &Batch::reliable(2, 2, 100_000..=100_000));
            world.settle();
            world.part();
        }
    }
}

fn standard_alone(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = brisk(ground, role, 0.03);
        let rto = wish.config.rto;
        wish.config = AssociationConfig { rto, max_association_retransmits: 40, ..AssociationConfig::rfc9260() };
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(200, 20, 1..=5000));
        world.settle();
        world.part();
    }
}

fn partial(ground: &mut Ground) {
    for role in ROLES {
        let mut world = open(brisk(ground, role, 0.1));
        for policy in ["ttl 30", "rtx 0", "rtx 1"] {
            for unordered in [false, true] {
                both(&mut world, &Batch { unordered, policy: policy.to_owned(), ..Batch::reliable(60, 8, 1..=4000) });
            }
        }
        both(&mut world, &Batch::reliable(20, 8, 1..=4000));
        account(&mut world);
        assert!(!world.failed.is_empty(), "at 10 % loss something is given up");
        world.part();
    }
}

/// Settles, and has an account of every message of ours that did not arrive. Linux reports those of its own that it never sent
/// as a whole, and not those that were lost: what it says was not sent must not have arrived.
fn account(world: &mut World) {
    world.settle();
    world.until("an account of every message", |w| w.out.given_up().all(|number| w.failed.contains(&number)));
    let unsent = world.peer.events.iter().filter(|e| e["event"] == "send-failed" && e["flags"] == 0);
    let numbers: BTreeSet<u64> = unsent.filter_map(|e| e["ppid"].as_u64()).collect();
    let given_up: BTreeSet<u64> = world.back.given_up().map(u64::from).collect();
    assert!(!numbers.is_empty() && numbers.is_subset(&given_up), "{numbers:?} {given_up:?}");
}

fn interleaving(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = brisk(ground, role, 0.01);
        // 8 Mbit/s: the large message takes a second.
        wish.link = LinkConfig {
            queue: neater_link::QueueLimit::Packets(100),
            ..LinkConfig::rate(8_000_000, Duration::from_millis(5))
        };
        wish.config.scheduler = Scheduler::RoundRobin;
        // Linux' numbers: first come 0, priority 1, round robin 2.
        wish.config.linux_fragments = true;
        wish.peer.extend(["--interleave", "--scheduler", "2"]);
        let mut world = open(wish);
        let agreed = world.driver.endpoint().agreed(world.id).expect("it is up").0;
        assert!(agreed.interleaving, "I-DATA is agreed upon");
        let (large, small) = (Batch::reliable(1, 1, 800_000..=800_000), Batch::reliable(30, 30, 1..=500));
        both(&mut world, &large);
        both(&mut world, &small);
        // Message 1 is the large one.
        world.until("small ones before the large one", |w| w.out.arrived() >= 25 && w.back.arrived() >= 25);
        let busy = |mut missing: Box<dyn Iterator<Item = u32> + '_>| missing.any(|n| n == 1);
        assert!(busy(Box::new(world.out.missing())), "our large one is under way");
        assert!(busy(Box::new(world.back.missing())), "their large one is under way");
        world.settle();
        world.part();
    }
}

fn interleaved_loss(ground: &mut Ground) {
    for role in ROLES {
        let mut wish = Wish { seed: 9, ..brisk(ground, role, 0.05) };
        wish.config.scheduler = Scheduler::RoundRobinPerPacket;
        wish.config.linux_fragments = true;
        wish.peer.extend(["--interleave", "--scheduler", "2"]);
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(100, 20, 1..=20_000));
        both(&mut world, &Batch { unordered: true, ..Batch::reliable(50, 20, 1..=20_000) });
        both(&mut world, &Batch::reliable(50, 20, 1..=20_000));
        world.settle();
        world.part();
    }
}

fn schedulers(ground: &mut Ground) {
    let ours = [Scheduler::FirstCome, Scheduler::Priority, Scheduler::FairBandwidth, Scheduler::WeightedFair];
    for (n, scheduler) in ours.into_iter().enumerate() {
        let mut wish = brisk(ground, Role::Client, 0.02);
        wish.config.scheduler = scheduler;
        wish.config.linux_fragments = true;
        wish.peer.extend(["--interleave", "--scheduler", ["0", "1", "2", "0"][n]]);
        let mut world = open(wish);
        both(&mut world, &Batch::reliable(200, 10, 1..=6000));
        both(&mut world, &Batch { unordered: true, ..Batch::reliable(50, 10, 1..=6000) });
        world.settle();
        world.part();
    }
}
