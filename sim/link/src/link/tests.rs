use super::*;
use crate::config::{Family, Filter, Match, Protocol};
use crate::queue::{Codel, FqCodel};
use crate::wire::Jitter;
use core::time::Duration;
use neater_base::net::Ecn;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u32) -> Instant {
    Instant::ZERO + MS * ms
}

fn packet(protocol: Protocol, destination: &str) -> PacketMeta {
    let destination = destination.parse().unwrap();
    PacketMeta { protocol, source: "192.0.2.1:1000".parse().unwrap(), destination, ecn: Ecn::NotEct }
}

fn udp() -> PacketMeta {
    packet(Protocol::Udp, "192.0.2.2:53")
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrived(Instant),
    Dropped(DropReason),
}

/// Polls as a simulator does, until nothing is to come, and sorts the packets by their number.
fn finish(link: &mut Link<usize>) -> Vec<(usize, Fate)> {
    let mut out = Vec::new();
    while let Some(now) = link.next_timeout() {
        while let Some(output) = link.poll(now) {
            out.push(match output {
                Output::Deliver { packet, at, .. } => (packet, Fate::Arrived(at)),
                Output::Drop { packet, reason, .. } => (packet, Fate::Dropped(reason)),
            });
        }
    }
    out
}

/// Offers one packet and waits for its fate.
fn one(link: &mut Link<usize>, now: Instant, len: u32, meta: &PacketMeta) -> Fate {
    link.offer(now, 0, len, meta);
    let fates = finish(link);
    assert_eq!(fates.len(), 1);
    fates[0].1
}

fn arrivals(link: &mut Link<usize>, n: usize, gap: Duration) -> Vec<Option<Instant>> {
    let mut now = Instant::ZERO;
    for i in 0..n {
        link.offer(now, i, 1000, &udp());
        now += gap;
    }
    let mut fates = finish(link);
    fates.sort_by_key(|f| f.0);
    assert_eq!(fates.len(), n);
    fates.iter().map(|f| if let Fate::Arrived(at) = f.1 { Some(at) } else { None }).collect()
}

#[test]
fn an_unlimited_link_only_delays() {
    let mut link = Link::new(LinkConfig::delay(MS * 20), 1);
    assert_eq!(one(&mut link, at(5), 1500, &udp()), Fate::Arrived(at(25)));
    link.offer(at(30), 1, 1500, &udp());
    assert_eq!((link.queued_bytes(at(30)), link.queued_packets(at(30))), (0, 0));
    assert_eq!(link.next_timeout(), Some(at(50)));
    assert!(link.poll(at(49)).is_none());
    let late = Output::Deliver { packet: 1, at: at(50), ce: false, corrupt: None, copy: false };
    assert_eq!(link.poll(at(70)), Some(late), "exact, though late");
    assert_eq!(link.next_timeout(), None);
}

#[test]
fn packets_are_sent_one_after_another_at_the_rate() {
    // 1,250 bytes at 10 Mbit/s take 1 ms.
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS * 20), 1);
    for i in 0..4 {
        link.offer(at(0), i, 1250, &udp());
    }
    assert_eq!((link.queued_bytes(at(0)), link.queued_packets(at(0))), (5000, 4));
    assert_eq!(link.drained_at(), at(4));
    assert_eq!(link.queued_bytes(at(3)), 1250);
    assert_eq!(finish(&mut link), [21, 22, 23, 24].map(|ms| (ms as usize - 21, Fate::Arrived(at(ms)))));
    // The link has been idle since 4 ms; what it did not send then is gone.
    assert_eq!(one(&mut link, at(100), 1250, &udp()), Fate::Arrived(at(121)));
}

#[test]
fn a_full_queue_drops_the_newcomer_by_packets() {
    let config = LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Packets(3));
    let mut link = Link::new(config, 1);
    for i in 0..5 {
        link.offer(at(0), i, 1250, &udp());
    }
    assert_eq!(link.next_timeout(), Some(at(0)), "a drop is told at once");
    for packet in [3, 4] {
        assert_eq!(link.poll(at(0)), Some(Output::Drop { packet, reason: DropReason::QueueFull, at: at(0) }));
    }
    link.offer(at(1), 5, 1250, &udp());
    let got: Vec<_> = finish(&mut link).iter().map(|f| f.0).collect();
    assert_eq!(got, [0, 1, 2, 5]);
    assert_eq!(link.counters().queue_full, 2);
}

#[test]
fn a_full_queue_drops_the_newcomer_by_bytes() {
    let config = LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Bytes(2000));
    let mut link = Link::new(config, 1);
    for (i, len) in [1250, 1250, 750].into_iter().enumerate() {
        link.offer(at(0), i, len, &udp());
    }
    let dropped = (1, Fate::Dropped(DropReason::QueueFull));
    assert_eq!(finish(&mut link), [dropped, (0, Fate::Arrived(at(2))), (2, Fate::Arrived(at(2) + MS * 6 / 10))]);
    assert_eq!(link.counters().max_queued_bytes, 2000);
}

#[test]
fn an_idle_link_accepts_a_packet_larger_than_its_queue() {
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Bytes(10)), 1);
    link.offer(at(0), 0, 1250, &udp());
    link.offer(at(0), 1, 1, &udp());
    assert_eq!(finish(&mut link), [(1, Fate::Dropped(DropReason::QueueFull)), (0, Fate::Arrived(at(2)))]);
}

#[test]
fn random_loss_is_near_its_probability_and_uses_the_rate() {
    let mut link = Link::new(LinkConfig::rate(8_000_000, MS).with_loss(0.1), 7);
    let got = arrivals(&mut link, 10_000, MS);
    let lost = got.iter().filter(|t| t.is_none()).count();
    assert!((900..1100).contains(&lost), "{lost}");
    assert_eq!(link.counters().lost, lost as u64);
    // 1,000 bytes at 8 Mbit/s are 1 ms: the link was busy all the time, lost packets included.
    assert_eq!(link.drained_at(), at(10_000));
}

#[test]
fn a_lost_packet_is_told_of_when_its_last_bit_has_left() {
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS * 20).without([1]), 1);
    for i in 0..3 {
        link.offer(at(0), i, 1250, &udp());
    }
    assert_eq!(link.next_timeout(), Some(at(21)), "the first is on the wire, the others wait for the transmitter");
    assert_eq!(link.poll(at(2)), Some(Output::Drop { packet: 1, reason: DropReason::Lost, at: at(2) }));
    assert_eq!(finish(&mut link), [(0, Fate::Arrived(at(21))), (2, Fate::Arrived(at(23)))]);
}

#[test]
fn listed_packets_are_lost_and_no_others() {
    let mut link = Link::new(LinkConfig::delay(MS).without([0, 3]), 1);
    let lost: Vec<_> = arrivals(&mut link, 6, MS).iter().map(Option::is_none).collect();
    assert_eq!(lost, [true, false, false, true, false, false]);
}

#[test]
fn jitter_keeps_the_order_unless_reordering_is_allowed() {
    let ordered = LinkConfig::delay(MS * 10).with_jitter(MS * 50);
    let got = arrivals(&mut Link::new(ordered.clone(), 3), 500, MS);
    assert!(got.is_sorted());
    let spread: Vec<_> = got.iter().flatten().enumerate().map(|(i, t)| *t - at(i as u32)).collect();
    assert!(spread.iter().all(|d| (MS * 10..=MS * 60).contains(d)), "delay within the jitter");
    let free = LinkConfig { reorder: true, ..ordered };
    assert!(!arrivals(&mut Link::new(free, 3), 500, MS).is_sorted());
}

#[test]
fn larger_packets_than_the_mtu_are_reported_or_vanish() {
    let mut link = Link::new(LinkConfig::delay(MS).with_mtu(1280, TooBig::Report), 1);
    assert_eq!(one(&mut link, at(0), 1281, &udp()), Fate::Dropped(DropReason::TooBig { mtu: 1280 }));
    assert_eq!(one(&mut link, at(0), 1280, &udp()), Fate::Arrived(at(1)));
    link.set_config(at(1), LinkConfig::delay(MS).with_mtu(1280, TooBig::BlackHole));
    assert_eq!(one(&mut link, at(1), 1281, &udp()), Fate::Dropped(DropReason::BlackHole));
    assert_eq!(link.counters().too_big, 2);
}

#[test]
fn the_firewall_stops_what_it_names_and_nothing_else() {
    let tcp = |to| packet(Protocol::Tcp, to);
    let udp = |to| packet(Protocol::Udp, to);
    let passes = |filter, meta: PacketMeta| {
        let mut link = Link::new(LinkConfig::default().with_filter(filter), 1);
        one(&mut link, at(0), 100, &meta) == Fate::Arrived(at(0))
    };
    let no_udp = Filter::drop(Match::Protocol(Protocol::Udp));
    assert!(!passes(no_udp, udp("192.0.2.2:53")) && passes(no_udp, tcp("192.0.2.2:53")));
    let no_tcp = Filter::drop(Match::Protocol(Protocol::Tcp));
    assert!(passes(no_tcp, udp("192.0.2.2:53")) && !passes(no_tcp, tcp("192.0.2.2:53")));
    let no_443 = Filter::drop(Match::DestinationPort(443));
    assert!(!passes(no_443, udp("192.0.2.2:443")) && !passes(no_443, tcp("192.0.2.2:443")));
    assert!(passes(no_443, tcp("192.0.2.2:80")) && passes(no_443, packet(Protocol::Icmp, "192.0.2.2:443")));
    let no_quic = Filter::drop(Match::Service(Protocol::Udp, 443));
    assert!(!passes(no_quic, udp("192.0.2.2:443")) && passes(no_quic, tcp("192.0.2.2:443")));
    let no_v6 = Filter::drop(Match::Family(Family::V6));
    assert!(!passes(no_v6, udp("[2001:db8::2]:53")) && passes(no_v6, udp("192.0.2.2:53")));
}

#[test]
fn a_rejecting_rule_says_so() {
    let rule = Filter::reject(Match::Protocol(Protocol::Udp));
    let mut link = Link::new(LinkConfig::default().with_filter(rule), 1);
    assert_eq!(one(&mut link, at(0), 100, &udp()), Fate::Dropped(DropReason::Rejected));
}

#[test]
fn a_link_that_is_down_drops_everything_until_it_is_mended() {
    let up = LinkConfig::delay(MS);
    let mut link = Link::new(up.clone().with_down(true), 1);
    assert_eq!(one(&mut link, at(0), 100, &udp()), Fate::Dropped(DropReason::Down));
    link.set_config(at(0), LinkConfig { rate: Rate::Fixed(0), ..up.clone() });
    assert_eq!(one(&mut link, at(0), 100, &udp()), Fate::Dropped(DropReason::Down));
    link.set_config(at(0), up);
    assert_eq!(one(&mut link, at(0), 100, &udp()), Fate::Arrived(at(1)));
    assert_eq!((link.counters().offered, link.counters().down, link.counters().delivered), (3, 2, 1));
}

#[test]
fn what_waits_is_dropped_when_the_link_goes_down_and_what_was_sent_arrives() {
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS * 20), 1);
    for i in 0..4 {
        link.offer(at(0), i, 1250, &udp());
    }
    let down = link.config().clone().with_down(true);
    link.set_config(at(1), down);
    let gone = Fate::Dropped(DropReason::Down);
    let expected = [(2, gone), (3, gone), (0, Fate::Arrived(at(21))), (1, Fate::Arrived(at(22)))];
    assert_eq!(finish(&mut link), expected);
    assert_eq!(link.queued_bytes(at(30)), 0);
}

#[test]
fn what_waits_is_sent_at_the_new_rate() {
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS * 20), 1);
    for i in 0..4 {
        link.offer(at(0), i, 1250, &udp());
    }
    link.set_config(at(1), LinkConfig::rate(1_000_000, MS * 20));
    // The second had begun and keeps its time; the third takes ten times as long.
    let expected = [(0, 21), (1, 22), (2, 32), (3, 42)].map(|(i, ms)| (i, Fate::Arrived(at(ms))));
    assert_eq!(finish(&mut link), expected);
}

#[test]
fn a_faster_configuration_does_not_overtake_what_is_on_its_way() {
    let mut link = Link::new(LinkConfig::delay(MS * 100), 1);
    link.offer(at(0), 0, 100, &udp());
    link.set_config(at(1), LinkConfig::delay(MS));
    link.offer(at(1), 1, 100, &udp());
    assert_eq!(finish(&mut link), [(0, Fate::Arrived(at(100))), (1, Fate::Arrived(at(100)))]);
    assert_eq!(one(&mut link, at(200), 100, &udp()), Fate::Arrived(at(201)));
}

#[test]
fn the_same_seed_gives_the_same_fate_and_another_seed_another() {
    let config = LinkConfig::delay(MS).with_loss(0.3).with_jitter(MS * 5);
    let run = |seed| arrivals(&mut Link::new(config.clone(), seed), 200, MS);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_loss_rate_does_not_change_the_jitter() {
    let base = LinkConfig { reorder: true, ..LinkConfig::delay(MS).with_jitter(MS * 5) };
    let clean = arrivals(&mut Link::new(base.clone(), 9), 200, MS);
    let lossy = arrivals(&mut Link::new(base.with_loss(0.5), 9), 200, MS);
    assert!(lossy.iter().zip(&clean).all(|(l, c)| l.is_none() || l == c));
    assert!(lossy.iter().any(Option::is_none));
}

#[test]
fn a_generous_queue_limit_is_still_bounded() {
    let config = LinkConfig::rate(1000, MS).with_queue(QueueLimit::Bytes(u64::MAX));
    let mut link = Link::new(config, 1);
    for i in 0..MAX_QUEUED_PACKETS + 100 {
        link.offer(at(0), i, 20, &udp());
    }
    assert_eq!(link.queued_packets(at(0)), MAX_QUEUED_PACKETS);
    assert_eq!(link.counters().queue_full, 100);
}

#[test]
fn a_queue_that_drops_its_head_keeps_the_youngest() {
    let config =
        LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Packets(4)).with_discipline(Discipline::HeadDrop);
    let mut link = Link::new(config.clone(), 1);
    for i in 0..10 {
        link.offer(at(0), i, 1250, &udp());
        assert!(link.queued_packets(at(0)) <= 4);
    }
    let arrived = |fates: Vec<(usize, Fate)>| -> Vec<usize> {
        fates.iter().filter(|f| matches!(f.1, Fate::Arrived(_))).map(|f| f.0).collect()
    };
    // The one that is being sent stays.
    assert_eq!(arrived(finish(&mut link)), [0, 7, 8, 9]);
    // What does not fit beside that one is dropped, and nobody for its sake.
    let mut link = Link::new(config.with_queue(QueueLimit::Bytes(3000)), 1);
    for (i, len) in [1250, 1250, 2000, 500, 1000].into_iter().enumerate() {
        link.offer(at(0), i, len, &udp());
    }
    assert_eq!(arrived(finish(&mut link)), [0, 3, 4]);
}

/// Poisson arrivals of packets of 1,250 bytes at a link of 10 Mbit/s, which takes 1 ms for each.
fn mean_wait(utilisation: f64, packets: usize) -> f64 {
    let config = LinkConfig::rate(10_000_000, Duration::ZERO).with_queue(QueueLimit::Packets(10_000));
    let mut link = Link::new(config, 1);
    let mut rng = Rng::from_number(5);
    let (mut now, mut offered) = (0.0, Vec::new());
    let mut waited = 0.0;
    for i in 0..packets {
        now += -(1.0 - rng.unit()).ln() * 1e6 / utilisation;
        let at = Instant::from_nanos(now as u64);
        offered.push(at);
        link.offer(at, i, 1250, &udp());
        while let Some(Output::Deliver { packet, at, .. }) = link.poll(at) {
            waited += (at - offered[packet]).as_secs_f64() * 1e3 - 1.0;
        }
    }
    waited / link.counters().delivered as f64
}

#[test]
fn packets_that_come_by_chance_wait_as_pollaczek_and_khinchine_say() {
    // M/D/1: the mean wait is ρ / (2 (1 - ρ)) times the time of service.
    for (utilisation, tolerance) in [(0.3, 0.01), (0.5, 0.02), (0.8, 0.12)] {
        let (got, expected) = (mean_wait(utilisation, 200_000), utilisation / (2.0 * (1.0 - utilisation)));
        assert!((got - expected).abs() < tolerance, "{utilisation}: {got} is not {expected}");
    }
}

#[test]
fn codel_holds_a_standing_queue_near_its_target() {
    // 12 Mbit/s offered to 10 for 20 s, by a sender that does not react, would fill 1,000 packets.
    let run = |discipline| {
        let config = LinkConfig::rate(10_000_000, Duration::ZERO).with_discipline(discipline);
        let mut link = Link::new(config.with_queue(QueueLimit::Packets(1000)), 1);
        let mut delays = Vec::new();
        let mut offered = Vec::new();
        for i in 0..24_000 {
            let now = Instant::from_nanos(i as u64 * 833_333);
            offered.push(now);
            link.offer(now, i, 1250, &udp());
            while let Some(output) = link.poll(now) {
                if let Output::Deliver { packet, at, .. } = output {
                    delays.push((at - offered[packet]).as_secs_f64() * 1e3);
                }
            }
        }
        (delays[delays.len() - 1000..].iter().sum::<f64>() / 1000.0, link.counters())
    };
    let (tail, tail_counters) = run(Discipline::DropTail);
    let (managed, counters) = run(Discipline::Codel(Codel::default()));
    assert!(tail > 990.0 && tail_counters.managed == 0, "{tail}");
    assert!(managed < 50.0 && counters.queue_full == 0 && counters.managed > 3000, "{managed}, {counters:?}");
}

#[test]
fn a_sparse_flow_does_not_wait_behind_a_bulk_flow() {
    let longest = |discipline| {
        let config = LinkConfig::rate(10_000_000, MS).with_discipline(discipline);
        let mut link = Link::new(config.with_queue(QueueLimit::Packets(100)), 1);
        let sparse = packet(Protocol::Udp, "192.0.2.2:9");
        let (mut longest, mut dropped) = (Duration::ZERO, 0);
        for ms in 0..2000u32 {
            for i in 0..2 {
                link.offer(at(ms), (ms * 10 + i) as usize, 1250, &udp());
            }
            if ms % 20 == 10 {
                link.offer(at(ms), 1_000_000 + ms as usize, 125, &sparse);
            }
            while let Some(output) = link.poll(at(ms)) {
                match output {
                    Output::Deliver { packet, at: arrived, .. } if packet >= 1_000_000 => {
                        longest = longest.max(arrived - at((packet - 1_000_000) as u32));
                    }
                    Output::Drop { packet, .. } if packet >= 1_000_000 => dropped += 1,
                    _ => {}
                }
            }
        }
        (longest, dropped)
    };
    let (waited, dropped) = longest(Discipline::DropTail);
    assert!(waited > MS * 80 && dropped > 10, "{waited:?}, {dropped}");
    // A packet that is being sent, its own time, and the propagation delay.
    let (waited, dropped) = longest(Discipline::FqCodel(FqCodel::default()));
    assert!(waited <= MS * 2 + MS * 2 / 10 && dropped == 0, "{waited:?}, {dropped}");
}

#[test]
fn a_schedule_changes_the_link_in_time_however_late_it_is_looked_at() {
    let schedule = Schedule::new(
        vec![(MS * 10, Change::Down), (MS * 20, Change::Up), (MS * 20, Change::Delay(MS * 5))],
        Some(MS * 100),
    );
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS), 1);
    link.set_schedule(at(0), schedule.unwrap());
    for i in 0..12 {
        link.offer(at(0), i, 1250, &udp());
    }
    // Ten have left when the cable is cut; two wait then. Nobody looks before 15 ms.
    link.offer(at(15), 20, 1250, &udp());
    link.offer(at(30), 21, 1250, &udp());
    let mut got = Vec::new();
    while let Some(output) = link.poll(at(300)) {
        got.push(match output {
            Output::Deliver { packet, at, .. } => (packet, at, true),
            Output::Drop { packet, at, .. } => (packet, at, false),
        });
    }
    got.sort_unstable();
    // The eleventh had begun.
    let mut expected: Vec<_> = (0..11).map(|i| (i, at(i as u32 + 2), true)).collect();
    expected.extend([(11, at(10), false), (20, at(15), false), (21, at(36), true)]);
    assert_eq!(got, expected);
    assert_eq!(link.counters().down, 2);
    // The next round has begun at 100 ms, and the third at 200: it is up again.
    assert_eq!(one(&mut link, at(300), 1250, &udp()), Fate::Arrived(at(306)));
    assert_eq!(one(&mut link, at(311), 1250, &udp()), Fate::Dropped(DropReason::Down));
}

#[test]
fn a_rule_may_spare_small_packets_and_the_first_ones() {
    let rule = Filter::drop(Match::Protocol(Protocol::Udp)).larger_than(1000).after(2);
    let mut link = Link::new(LinkConfig::delay(MS).with_filter(rule), 1);
    let passed: Vec<_> = [1000, 1001, 500, 1200, 1001, 1000]
        .into_iter()
        .map(|len| one(&mut link, at(0), len, &udp()) == Fate::Arrived(at(1)))
        .collect();
    assert_eq!(passed, [true, true, true, true, false, true]);
    let everything = LinkConfig::default().with_filter(Filter::drop(Match::Any).after(1));
    link.set_config(at(5), everything);
    assert_eq!(one(&mut link, at(5), 100, &udp()), Fate::Arrived(at(5)));
    assert_eq!(one(&mut link, at(5), 100, &udp()), Fate::Dropped(DropReason::Filtered));
}

#[test]
fn an_overtaker_arrives_first_and_a_copy_behind_its_original() {
    let overtaking = Some(crate::config::Overtaking { probability: 1.0, gap: 3 });
    let mut link = Link::new(LinkConfig { overtaking, ..LinkConfig::delay(MS * 10) }, 1);
    for i in 0..6 {
        link.offer(at(i), i as usize, 100, &udp());
    }
    let order: Vec<_> = finish(&mut link).iter().map(|f| f.0).collect();
    assert_eq!(order, [2, 5, 0, 1, 3, 4]);
    let mut link = Link::new(LinkConfig { duplicate: 1.0, ..LinkConfig::delay(MS * 10) }, 1);
    link.offer(at(0), 7, 100, &udp());
    let copies: Vec<_> = std::iter::from_fn(|| link.poll(at(10)))
        .map(|o| if let Output::Deliver { packet, at, copy, .. } = o { (packet, at, copy) } else { panic!("{o:?}") })
        .collect();
    assert_eq!(copies, [(7, at(10), false), (7, at(10), true)]);
}

#[test]
fn a_recorded_link_delivers_with_its_opportunities() {
    let trace = crate::DeliveryTrace::parse("2\n4\n4\n10\n").unwrap();
    let config = LinkConfig { rate: Rate::Trace(trace.into()), ..LinkConfig::delay(MS) };
    let mut link = Link::starting_at(at(1000), config.with_queue(QueueLimit::Packets(4)), 1);
    for i in 0..6 {
        link.offer(at(1000), i, 1500, &udp());
    }
    assert_eq!(link.queued_packets(at(1000)), 4);
    assert_eq!(link.drained_at(), at(1010));
    let full = Fate::Dropped(DropReason::QueueFull);
    let expected = [(0, 1003), (1, 1005), (2, 1005), (3, 1011)].map(|(i, ms)| (i, Fate::Arrived(at(ms))));
    assert_eq!(finish(&mut link), [vec![(4, full), (5, full)], expected.to_vec()].concat());
}

#[test]
fn jitter_of_a_link_without_reordering_never_reorders_whatever_its_shape() {
    for jitter in [Jitter::Normal(MS * 20), Jitter::Pareto { scale: MS * 5, shape: 1.1 }] {
        let config = LinkConfig { jitter, duplicate: 0.2, ..LinkConfig::delay(MS * 20) };
        let mut link = Link::new(config, 3);
        (0..500).for_each(|i| link.offer(at(i), i as usize, 100, &udp()));
        assert!(finish(&mut link).is_sorted_by_key(|f| f.0));
    }
}
