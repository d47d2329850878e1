use super::super::plan::Change;
use super::*;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A UDP packet of `len` bytes between the first addresses of two nodes.
fn udp(plan: &Plan, from: &str, to: &str, v6: bool, len: usize, hops: u8) -> Vec<u8> {
    let of = |name| plan.address(plan.node(name).expect("node"), v6).expect("address");
    let mut p = vec![0; len];
    match (of(from), of(to)) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            p[0] = 0x45;
            p[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            (p[8], p[9]) = (hops, 17);
            p[12..16].copy_from_slice(&a.octets());
            p[16..20].copy_from_slice(&b.octets());
            let sum = packet::checksum(&p[..20], 0);
            p[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            p[0] = 0x60;
            p[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
            (p[6], p[7]) = (17, hops);
            p[8..24].copy_from_slice(&a.octets());
            p[24..40].copy_from_slice(&b.octets());
        }
        _ => panic!("one family"),
    }
    p
}

fn enter(f: &mut Fabric, now: Instant, port: usize, bytes: &[u8]) {
    let made = f.pool().fill(|b| {
        b[..bytes.len()].copy_from_slice(bytes);
        Ok::<_, ()>(bytes.len())
    });
    f.arrive(now, port, made.expect("a buffer").expect("fits"));
}

/// Runs it dry and returns what came out, with its bytes.
fn drain(f: &mut Fabric) -> Vec<(usize, Instant, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        while let Some((port, at, p)) = f.poll_output() {
            all.push((port, at, p.bytes().to_vec()));
            f.pool().give_back(p);
        }
        match f.next_timeout() {
            Some(at) => f.advance(at),
            None => return all,
        }
    }
}

fn port(plan: &Plan, f: &Fabric, name: &str) -> usize {
    let node = plan.node(name).expect("node");
    f.ports().iter().position(|p| p.node == node).expect("port")
}

#[test]
fn a_packet_crosses_the_dumbbell_in_rate_and_delay_and_loses_two_hops() {
    for v6 in [false, true] {
        let plan = Plan::dumbbell(2, LinkConfig::rate(8_000_000, 10 * MS), LinkConfig::default(), 1);
        let mut f = Fabric::new(&plan, 64, Instant::ZERO);
        let from = port(&plan, &f, "client2");
        let start = Instant::from_nanos(5_000_000);
        for _ in 0..3 {
            enter(&mut f, start, from, &udp(&plan, "client2", "server1", v6, 1000, 64));
        }
        let out = drain(&mut f);
        assert_eq!(out.len(), 3);
        for (i, (to, at, bytes)) in out.iter().enumerate() {
            assert_eq!(*to, port(&plan, &f, "server1"));
            assert_eq!(at.saturating_since(start), 10 * MS + MS * (i as u32 + 1), "1 ms for 1,000 bytes at 8 Mbit/s");
            assert_eq!(if v6 { bytes[7] } else { bytes[8] }, 62);
            assert!(v6 || packet::checksum(&bytes[..20], 0) == 0);
        }
        assert_eq!(f.pool().free(), 64, "every buffer came back");
    }
}

#[test]
fn a_full_link_that_is_looked_at_late_loses_no_rate() {
    // 1,500 bytes at 500 Mbit/s take 24 us. It is looked at for each packet, after each nap, or after a stall of 50 ms.
    let config = LinkConfig::rate(500_000_000, 5 * MS).with_queue(neater_link::QueueLimit::Packets(4000));
    let dues = |every: Duration| {
        let plan = Plan::dumbbell(1, config.clone(), LinkConfig::default(), 1);
        let mut f = Fabric::new(&plan, 5000, Instant::ZERO);
        let from = port(&plan, &f, "client1");
        let packet = udp(&plan, "client1", "server1", false, 1500, 64);
        for _ in 0..3000 {
            enter(&mut f, Instant::ZERO, from, &packet);
        }
        let (mut now, mut all) = (Instant::ZERO, Vec::new());
        while f.next_timeout().is_some() {
            now += every;
            f.advance(now);
            while let Some((_, due, p)) = f.poll_output() {
                assert!(due <= now && now.saturating_since(due) <= every);
                all.push(due);
                f.pool().give_back(p);
            }
        }
        all
    };
    let exact: Vec<Instant> = (1..=3000u32).map(|n| Instant::ZERO + 5 * MS + Duration::from_micros(24) * n).collect();
    for every in [Duration::from_micros(1), Duration::from_micros(67), 50 * MS] {
        assert!(dues(every) == exact, "looked at every {every:?}");
    }
}

#[test]
fn a_router_sends_errors_to_the_sender_and_answers_echo() {
    for v6 in [false, true] {
        let mut plan = Plan::dumbbell(1, LinkConfig::default(), LinkConfig::default(), 1);
        plan.wires[0].config[0].mtu = 1300;
        let mut f = Fabric::new(&plan, 64, Instant::ZERO);
        let client = port(&plan, &f, "client1");
        let now = Instant::from_nanos(7);
        let mut send = |bytes: &[u8]| {
            enter(&mut f, now, client, bytes);
            let out = drain(&mut f);
            assert_eq!(out.len(), 1);
            assert_eq!(out[0].0, client);
            out[0].2.clone()
        };
        let kind = |p: &[u8]| {
            let t = packet::transport(p).expect("transport");
            (p[t.at], p[t.at + 1])
        };
        let big = send(&udp(&plan, "client1", "server1", v6, 1400, 64));
        assert_eq!(kind(&big), if v6 { (2, 0) } else { (3, 4) });
        let (from, _) = packet::addresses(&big).expect("whole");
        assert_eq!(Some(from), plan.address(0, v6), "from the router's end of the link");
        let expired = send(&udp(&plan, "client1", "server1", v6, 100, 1));
        assert_eq!(kind(&expired), if v6 { (3, 0) } else { (11, 0) });
        let mut lost = udp(&plan, "client1", "server1", v6, 100, 64);
        let at = if v6 { 39 } else { 19 };
        lost[at] = 77; // nobody's address
        assert_eq!(kind(&send(&lost)), if v6 { (1, 0) } else { (3, 0) });
        let mut echo = udp(&plan, "client1", "left", v6, 100, 64);
        (echo[if v6 { 6 } else { 9 }], echo[if v6 { 40 } else { 20 }]) = if v6 { (58, 128) } else { (1, 8) };
        assert_eq!(kind(&send(&echo)), if v6 { (129, 0) } else { (0, 0) });
        let c = f.counters();
        assert_eq!((c.icmp_errors, c.no_route, c.hops_exceeded, c.echoed), (3, 1, 1, 1));
        assert_eq!(f.pool().free(), 64);
    }
}

#[test]
fn a_host_on_a_link_without_a_router_is_told_by_its_neighbour() {
    let mut plan = Plan::pair(LinkConfig::default(), LinkConfig::default(), 1);
    plan.wires[0].config[0].mtu = 1300;
    let mut f = Fabric::new(&plan, 8, Instant::ZERO);
    enter(&mut f, Instant::ZERO, 0, &udp(&plan, "client", "server", false, 1400, 1));
    let out = drain(&mut f);
    assert_eq!((out.len(), out[0].0), (1, 0));
    assert_eq!(packet::addresses(&out[0].2).map(|a| a.0), plan.address(1, false));
    // The same link takes what fits, and hops are for routers to count.
    enter(&mut f, Instant::ZERO, 0, &udp(&plan, "client", "server", false, 1300, 1));
    let out = drain(&mut f);
    assert_eq!((out[0].0, out[0].2[8]), (1, 1));
}

#[test]
fn what_is_not_ip_is_counted_and_running_out_of_buffers_too() {
    let plan = Plan::dumbbell(1, LinkConfig::rate(1_000_000, MS), LinkConfig::default(), 1);
    let mut f = Fabric::new(&plan, 4, Instant::ZERO);
    enter(&mut f, Instant::ZERO, 0, &[0xff; 40]);
    assert_eq!(f.counters().not_ip, 1);
    let p = udp(&plan, "client1", "server1", false, 1500, 64);
    for _ in 0..4 {
        enter(&mut f, Instant::ZERO, 0, &p);
    }
    assert!(f.pool().fill(|_| Ok::<_, ()>(1)).is_none(), "all are on the link");
    assert_eq!(drain(&mut f).len(), 4);
    assert_eq!(f.pool().free(), 4);
}

#[test]
fn a_schedule_changes_a_link_when_it_is_time() {
    let mut plan = Plan::pair(LinkConfig::delay(MS), LinkConfig::default(), 1);
    for (at, ms) in [(20, 5), (10, 3)] {
        let what = What::Link { wire: 0, side: 0, config: LinkConfig::delay(ms * MS) };
        plan.changes.push(Change { at: at * MS, what });
    }
    let start = Instant::from_nanos(1_000);
    let mut f = Fabric::new(&plan, 8, start);
    for (at, delay) in [(0, 1), (9, 1), (10, 3), (15, 3), (21, 5)] {
        let now = start + at * MS;
        f.advance(now);
        enter(&mut f, now, 0, &udp(&plan, "client", "server", false, 100, 64));
        while f.outputs.is_empty() {
            let next = f.next_timeout().expect("a packet is under way");
            f.advance(next);
        }
        let (_, arrived, p) = f.poll_output().expect("it came");
        assert_eq!(arrived.saturating_since(now), delay * MS, "sent at {at} ms");
        f.pool().give_back(p);
    }
}
