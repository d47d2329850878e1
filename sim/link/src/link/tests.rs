use super::*;
use crate::config::{Family, Filter, Match, Protocol};
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

fn arrivals(link: &mut Link, n: usize, gap: Duration) -> Vec<Option<Instant>> {
    let mut now = Instant::ZERO;
    let mut out = Vec::new();
    for _ in 0..n {
        out.push(match link.offer(now, 1000, &udp()) {
            Verdict::Deliver(t) => Some(t),
            Verdict::Drop(_) => None,
        });
        now += gap;
    }
    out
}

#[test]
fn an_unlimited_link_only_delays() {
    let mut link = Link::new(LinkConfig::delay(MS * 20), 1);
    assert_eq!(link.offer(at(5), 1500, &udp()), Verdict::Deliver(at(25)));
    assert_eq!(link.offer(at(5), 1500, &udp()), Verdict::Deliver(at(25)));
    assert_eq!(link.queued_bytes(at(5)), 0);
}

#[test]
fn packets_are_sent_one_after_another_at_the_rate() {
    // 1,250 bytes at 10 Mbit/s take 1 ms.
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS * 20), 1);
    for i in 1..=4 {
        assert_eq!(link.offer(at(0), 1250, &udp()), Verdict::Deliver(at(20 + i)));
    }
    assert_eq!(link.queued_bytes(at(0)), 5000);
    assert_eq!(link.queued_bytes(at(3)), 1250);
    // The link has been idle since 4 ms; what it did not send then is gone.
    assert_eq!(link.offer(at(100), 1250, &udp()), Verdict::Deliver(at(121)));
}

#[test]
fn a_full_queue_drops_the_newcomer_by_packets() {
    let config = LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Packets(3));
    let mut link = Link::new(config, 1);
    let verdicts: Vec<_> = (0..5).map(|_| link.offer(at(0), 1250, &udp())).collect();
    assert!(verdicts[..3].iter().all(|v| matches!(v, Verdict::Deliver(_))));
    assert_eq!(verdicts[3..], [Verdict::Drop(DropReason::QueueFull); 2]);
    assert_eq!(link.offer(at(1), 1250, &udp()), Verdict::Deliver(at(5)));
    assert_eq!(link.counters().queue_full, 2);
}

#[test]
fn a_full_queue_drops_the_newcomer_by_bytes() {
    let config = LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Bytes(2000));
    let mut link = Link::new(config, 1);
    assert!(matches!(link.offer(at(0), 1250, &udp()), Verdict::Deliver(_)));
    assert_eq!(link.offer(at(0), 1250, &udp()), Verdict::Drop(DropReason::QueueFull));
    assert!(matches!(link.offer(at(0), 750, &udp()), Verdict::Deliver(_)));
    assert_eq!(link.counters().max_queued_bytes, 2000);
}

#[test]
fn an_idle_link_accepts_a_packet_larger_than_its_queue() {
    let mut link = Link::new(LinkConfig::rate(10_000_000, MS).with_queue(QueueLimit::Bytes(10)), 1);
    assert!(matches!(link.offer(at(0), 1250, &udp()), Verdict::Deliver(_)));
    assert_eq!(link.offer(at(0), 1, &udp()), Verdict::Drop(DropReason::QueueFull));
}

#[test]
fn random_loss_is_near_its_probability_and_uses_the_rate() {
    let mut link = Link::new(LinkConfig::rate(8_000_000, MS).with_loss(0.1), 7);
    let got = arrivals(&mut link, 10_000, MS);
    let lost = got.iter().filter(|t| t.is_none()).count();
    assert!((900..1100).contains(&lost), "{lost}");
    assert_eq!(link.counters().lost, lost as u64);
    // 1,000 bytes at 8 Mbit/s are 1 ms: the link was busy all the time, lost packets included.
    assert_eq!(link.busy_until(), at(10_000));
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
    assert_eq!(link.offer(at(0), 1281, &udp()), Verdict::Drop(DropReason::TooBig { mtu: 1280 }));
    assert!(matches!(link.offer(at(0), 1280, &udp()), Verdict::Deliver(_)));
    link.set_config(LinkConfig::delay(MS).with_mtu(1280, TooBig::BlackHole));
    assert_eq!(link.offer(at(0), 1281, &udp()), Verdict::Drop(DropReason::BlackHole));
    assert_eq!(link.counters().too_big, 2);
}

#[test]
fn the_firewall_stops_what_it_names_and_nothing_else() {
    let tcp = |to| packet(Protocol::Tcp, to);
    let udp = |to| packet(Protocol::Udp, to);
    let passes = |filter, meta: PacketMeta| {
        let mut link = Link::new(LinkConfig::default().with_filter(filter), 1);
        matches!(link.offer(at(0), 100, &meta), Verdict::Deliver(_))
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
    assert_eq!(link.offer(at(0), 100, &udp()), Verdict::Drop(DropReason::Rejected));
}

#[test]
fn a_link_that_is_down_drops_everything_until_it_is_mended() {
    let up = LinkConfig::delay(MS);
    let mut link = Link::new(up.clone().with_down(true), 1);
    assert_eq!(link.offer(at(0), 100, &udp()), Verdict::Drop(DropReason::Down));
    link.set_config(LinkConfig { rate: Some(0), ..up.clone() });
    assert_eq!(link.offer(at(0), 100, &udp()), Verdict::Drop(DropReason::Down));
    link.set_config(up);
    assert_eq!(link.offer(at(0), 100, &udp()), Verdict::Deliver(at(1)));
    assert_eq!((link.counters().offered, link.counters().down, link.counters().delivered), (3, 2, 1));
}

#[test]
fn a_faster_configuration_does_not_overtake_what_is_on_its_way() {
    let mut link = Link::new(LinkConfig::delay(MS * 100), 1);
    assert_eq!(link.offer(at(0), 100, &udp()), Verdict::Deliver(at(100)));
    link.set_config(LinkConfig::delay(MS));
    assert_eq!(link.offer(at(1), 100, &udp()), Verdict::Deliver(at(100)));
    assert_eq!(link.offer(at(200), 100, &udp()), Verdict::Deliver(at(201)));
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
    let accepted =
        (0..MAX_QUEUED_PACKETS + 100).filter(|_| matches!(link.offer(at(0), 20, &udp()), Verdict::Deliver(_))).count();
    assert_eq!(accepted, MAX_QUEUED_PACKETS);
}
