//! Targets in `sim/link`: traces of delivery opportunities, links of any configuration, NAT boxes.

use neater_base::net::Ecn;
use neater_base::{Instant, Reader};
use neater_link::{
    Codel, DeliveryTrace, Dependence, Discipline, DropReason, Filter, FqCodel, Jitter, Link, LinkConfig, Loss,
    MAX_QUEUED_PACKETS, Match, Nat, NatConfig, NatPacket, Output, Overtaking, PacketMeta, PortAllocation, Protocol,
    QueueLimit, Rate, RateSteps, Red, TcpFlags, Translation,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Packets of one run.
const PACKETS: u64 = 2000;

/// Any text is a trace that can be written and read again, or an error that names its line.
pub fn link_trace(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match DeliveryTrace::parse(&text) {
        Ok(trace) => {
            assert!(trace.period() > Duration::ZERO && trace.mean_rate() > 0.0);
            let written = trace.to_text();
            assert_eq!(DeliveryTrace::parse(&written).as_ref(), Ok(&trace));
            assert!(written.lines().count() <= text.lines().count());
            carries(&trace);
        }
        Err(error) => assert!(error.line <= text.lines().count() && !error.to_string().is_empty()),
    }
}

/// A link with the trace delivers in order, at times of opportunities, no more than they have room for.
fn carries(trace: &DeliveryTrace) {
    let config = LinkConfig { rate: Rate::Trace(Arc::new(trace.clone())), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for i in 0..20u32 {
        link.offer(Instant::ZERO, i, 700 + i * 40, &meta(0));
    }
    let mut carried: BTreeMap<Instant, u32> = BTreeMap::new();
    let mut next = 0;
    while let Some(now) = link.next_timeout() {
        while let Some(Output::Deliver { packet, at, .. }) = link.poll(now) {
            assert_eq!(packet, next);
            next += 1;
            assert_eq!(at.as_nanos() % 1_000_000, 0);
            *carried.entry(at).or_default() += 700 + packet * 40;
        }
    }
    assert_eq!(next, 20);
}

fn meta(byte: u8) -> PacketMeta {
    let addr = |host: u8, port: u16| SocketAddr::new(Ipv4Addr::new(192, 0, 2, host).into(), port);
    PacketMeta {
        protocol: [Protocol::Udp, Protocol::Tcp, Protocol::Icmp, Protocol::Other(132)][usize::from(byte & 3)],
        source: addr(byte >> 6, u16::from(byte >> 4)),
        destination: addr(200, 443),
        ecn: Ecn::from_bits(byte >> 2),
    }
}

/// A small number, read so that its extremes are likely.
fn number(r: &mut Reader<'_>, most: u64) -> u64 {
    match r.u8().unwrap_or(0) {
        255 => most,
        byte => u64::from(byte) * most / 1000,
    }
}

fn chance(r: &mut Reader<'_>) -> f64 {
    [0.0, 0.01, 0.1, 0.5, 0.9, 1.0, f64::NAN, -1.0][usize::from(r.u8().unwrap_or(0) & 7)]
}

fn time(r: &mut Reader<'_>) -> Duration {
    Duration::from_micros(number(r, 2_000_000))
}

fn rate(r: &mut Reader<'_>) -> Rate {
    match r.u8().unwrap_or(0) & 3 {
        0 => Rate::Unlimited,
        1 => Rate::Fixed(number(r, 100_000_000)),
        2 => {
            let steps = [(Duration::ZERO, number(r, 50_000_000)), (time(r), number(r, 50_000_000))];
            RateSteps::new(steps, Some(time(r))).map_or(Rate::Unlimited, |s| Rate::Steps(Arc::new(s)))
        }
        _ => {
            let mut times: Vec<u32> = (0..4).map(|_| number(r, 50) as u32).collect();
            times.sort_unstable();
            DeliveryTrace::from_millis(times).map_or(Rate::Unlimited, |t| Rate::Trace(Arc::new(t)))
        }
    }
}

fn config(r: &mut Reader<'_>) -> LinkConfig {
    let codel = Codel { target: time(r) / 20, interval: time(r), ecn: true };
    LinkConfig {
        rate: rate(r),
        delay: time(r),
        jitter: match r.u8().unwrap_or(0) % 5 {
            0 => Jitter::None,
            1 => Jitter::Uniform(time(r)),
            2 => Jitter::Normal(time(r)),
            3 => Jitter::Pareto { scale: time(r), shape: chance(r) },
            _ => Jitter::Values([time(r), time(r)].into()),
        },
        jitter_correlation: chance(r),
        reorder: r.u8().unwrap_or(0) & 1 == 1,
        overtaking: (r.u8().unwrap_or(0) & 3 == 3).then(|| Overtaking { probability: chance(r), gap: 3 }),
        loss: match r.u8().unwrap_or(0) % 6 {
            0 => Loss::None,
            1 => Loss::Random(chance(r)),
            2 => Loss::EveryNth(number(r, 30)),
            3 => Loss::GilbertElliott {
                to_bad: chance(r),
                to_good: chance(r),
                loss_good: chance(r),
                loss_bad: chance(r),
            },
            4 => Loss::Bursts { start: chance(r), length: number(r, 40) as u32 },
            _ => Loss::BurstsAt { times: [time(r)].into(), length: 3 },
        },
        duplicate: chance(r),
        corrupt: chance(r),
        queue: match r.u8().unwrap_or(0) & 1 {
            0 => QueueLimit::Packets(number(r, 3000) as usize),
            _ => QueueLimit::Bytes(number(r, 1_000_000)),
        },
        discipline: match r.u8().unwrap_or(0) % 5 {
            0 => Discipline::DropTail,
            1 => Discipline::HeadDrop,
            2 => Discipline::Red(Red { max_probability: chance(r), weight: chance(r), ..Red::new(2, number(r, 50)) }),
            3 => Discipline::Codel(codel),
            _ => Discipline::FqCodel(FqCodel { codel, flows: number(r, 2000) as u16, quantum: number(r, 9000) as u32 }),
        },
        filters: match r.u8().unwrap_or(0) & 7 {
            7 => vec![
                Filter::reject(Match::Protocol(Protocol::Icmp)).after(2),
                Filter::drop(Match::Any).larger_than(1400),
            ],
            _ => Vec::new(),
        },
        down: r.u8().unwrap_or(0) > 250,
        ..LinkConfig::default()
    }
}

/// What was offered, and what has become of it.
#[derive(Default)]
struct Account {
    offered: Vec<(Instant, u32)>,
    /// Originals that arrived, copies that arrived, and drops.
    fates: Vec<[u32; 3]>,
    /// The youngest that arrived.
    last: Option<usize>,
}

impl Account {
    /// Takes everything out of a link. `ordered`: nothing may overtake.
    fn drain(&mut self, link: &mut Link<usize>, now: Instant, ordered: bool) {
        while let Some(output) = link.poll(now) {
            let (packet, at, kind) = match output {
                Output::Deliver { packet, at, copy, corrupt, .. } => {
                    let payload = u64::from(self.offered[packet].1.saturating_sub(20));
                    assert!(corrupt.is_none_or(|c| u64::from(c.bit) < payload * 8));
                    (packet, at, usize::from(copy))
                }
                Output::Drop { packet, at, reason, .. } => {
                    assert!(reason != DropReason::Rejected || packet > 1, "two pass the rule");
                    (packet, at, 2)
                }
            };
            assert!(at <= now && at >= self.offered[packet].0, "{at:?} at {now:?}");
            if kind == 0 && ordered {
                assert!(self.last.is_none_or(|last| last < packet), "{packet} after {:?}", self.last);
                self.last = Some(packet);
            }
            self.fates[packet][kind] += 1;
        }
        assert!(link.queued_packets(now) <= MAX_QUEUED_PACKETS + 1);
        assert!(link.next_timeout().is_none_or(|at| at > now), "{:?} is left at {now:?}", link.next_timeout());
    }
}

/// Any configuration, changed at any time, any packets: each comes out once, and its copy at most once, not before it was
/// offered and not after it was looked for; where order is kept, in order; and in the end nothing is left.
pub fn link_packets(data: &[u8]) {
    let mut r = Reader::new(data);
    let mut link = Link::new(config(&mut r), 7);
    let keeps_order =
        |c: &LinkConfig| !c.reorder && c.overtaking.is_none() && !matches!(c.discipline, Discipline::FqCodel(_));
    let mut ordered = keeps_order(link.config());
    let mut now = Instant::from_nanos(1_000_000);
    let mut account = Account::default();
    while let Ok(op) = r.u8() {
        if account.offered.len() as u64 >= PACKETS {
            break;
        }
        match op & 7 {
            0 => {
                let new = config(&mut r);
                ordered &= keeps_order(&new);
                link.set_config(now, new);
            }
            1 => now += time(&mut r),
            2 => now = now.max(link.next_timeout().unwrap_or(now)),
            _ => {
                let len = u32::from(r.u8().unwrap_or(0)) * 6;
                let burst = if op & 8 == 8 { 1 + u32::from(op >> 4) } else { 1 };
                for _ in 0..burst {
                    account.offered.push((now, len));
                    account.fates.push([0; 3]);
                    link.offer(now, account.offered.len() - 1, len, &meta(op));
                }
            }
        }
        // Every other time nobody looks.
        if op & 128 == 0 {
            account.drain(&mut link, now, ordered);
        }
    }
    // It may take long, but not for ever: a link that sends nothing has rate 0, and drops.
    let mut turns = 0;
    account.drain(&mut link, now, ordered);
    while let Some(at) = link.next_timeout() {
        now = now.max(at);
        account.drain(&mut link, now, ordered);
        turns += 1;
        assert!(turns <= 4 * PACKETS + 10, "it never ends");
    }
    assert_eq!(link.queued_packets(now), 0);
    for (i, [arrived, copies, dropped]) in account.fates.iter().enumerate() {
        assert_eq!(arrived + dropped, 1, "packet {i}");
        assert!(copies <= arrived, "packet {i}");
    }
    let counters = link.counters();
    let total = |kind: usize| account.fates.iter().map(|f| u64::from(f[kind])).sum::<u64>();
    assert_eq!((counters.delivered, counters.duplicated), (total(0), total(1)));
    let drops = counters.down + counters.filtered + counters.too_big + counters.queue_full;
    assert_eq!(drops + counters.managed + counters.lost, total(2));
}

/// Any packets from inside and outside: an outside endpoint has one inside endpoint, and who was asked may answer at once.
pub fn link_nat(data: &[u8]) {
    let mut r = Reader::new(data);
    let outside = IpAddr::from([203, 0, 113, 1]);
    let kinds = [
        Dependence::EndpointIndependent,
        Dependence::AddressDependent,
        Dependence::AddressAndPortDependent,
        Dependence::EndpointIndependent,
    ];
    let kind = r.u8().unwrap_or(0);
    let config = NatConfig {
        mapping: kinds[usize::from(kind & 3)],
        filtering: kinds[usize::from(kind >> 2 & 3)],
        ports: [PortAllocation::Preserving, PortAllocation::Contiguous, PortAllocation::Random]
            [usize::from(kind >> 4) % 3],
        port_range: 2000..=2000 + u16::from(r.u8().unwrap_or(0)),
        max_mappings: usize::from(r.u8().unwrap_or(0)),
        ..NatConfig::full_cone(outside)
    };
    let mut nat = Nat::new(config.clone(), 1);
    let mut now = Instant::ZERO;
    while let (Ok(op), Ok(who)) = (r.u8(), r.u8()) {
        let inside = SocketAddr::new(Ipv4Addr::new(10, 0, 0, who & 3).into(), 1998 + u16::from(who >> 2 & 7));
        let peer = SocketAddr::new(Ipv4Addr::new(198, 51, 100, who >> 5 & 3).into(), 50 + u16::from(who >> 7));
        let protocol = if op & 8 == 8 { Protocol::Tcp } else { Protocol::Udp };
        let tcp = TcpFlags { syn: op & 16 == 16, ack: op & 32 == 32, fin: op & 64 == 64, rst: op & 128 == 128 };
        match op & 7 {
            0 => now += Duration::from_secs(u64::from(who)),
            1 if who & 1 == 0 => nat.rebind(now),
            1 => nat.forget(),
            2 => {
                let destination = SocketAddr::new(outside, inside.port());
                if let Translation::Pass { source, destination } =
                    nat.inbound(now, &NatPacket { protocol, source: peer, destination, tcp })
                {
                    assert!(source == peer && !destination.ip().is_loopback() && destination.port() < 2006);
                }
            }
            _ => {
                let packet = NatPacket { protocol, source: inside, destination: peer, tcp };
                match nat.outbound(now, &packet) {
                    Translation::Pass { source, destination } => {
                        assert!(source.ip() == outside && destination == peer);
                        assert!(config.port_range.contains(&source.port()));
                        let answer = NatPacket { protocol, source: peer, destination: source, tcp };
                        assert_eq!(nat.inbound(now, &answer), Translation::Pass { source: peer, destination: inside });
                        assert_eq!(
                            nat.inbound_error(now, &NatPacket { source, destination: peer, ..packet }),
                            Some(inside)
                        );
                    }
                    Translation::Hairpin { .. } => panic!("nobody was asked for by an outside address"),
                    Translation::Drop(_) => {}
                }
            }
        }
        assert!(nat.mappings(now) <= config.max_mappings);
    }
}
