//! Peers that mean no good: floods, nonsense, and packets that were changed on the way.

#![allow(clippy::needless_range_loop, reason = "an end is a number, and many things have one per end")]

use crate::support::raw::{FIRST, Raw, data};
use crate::support::{World, config, ms};
use core::time::Duration;
use neater_base::Rng;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, CloseReason, Event, Layer};
use neater_sctp_wire::chunk::{CookieEcho, Data, Init, Sack};
use neater_sctp_wire::{Array, Chunk, Packet as Wire, Parameter, Parameters, Ssn, StreamId, Tag, Tsn};

#[test]
fn a_flood_of_inits_costs_a_bounded_number_of_answers_and_nothing_that_stays() {
    let mut raw = Raw::listening(AssociationConfig::default());
    for i in 0..20_000u32 {
        raw.init(1 + (i % 60_000) as u16);
    }
    assert_eq!(raw.server.kept(), 0);
    assert!(raw.take().len() <= 256);
    assert!(raw.server.stats().replies_suppressed > 19_000);
    // Without answers out of the way, the next second's are given again.
    raw.now += Duration::from_secs(2);
    raw.init(77);
    assert_eq!(raw.take().len(), 1);
}

#[test]
fn strangers_from_one_source_are_answered_seldom_and_others_all_the_same() {
    let mut raw = Raw::listening(AssociationConfig::default());
    let limits = neater_sctp::Config { replies_per_source: 3, ..config(1, 1, AssociationConfig::default()) };
    raw.server = neater_sctp::Endpoint::new(limits, [3; 32], &[4; 32]);
    // Packets out of the blue, each to be answered by an ABORT chunk (RFC 9260 section 8.4, point
    // 8).
    let answers = |raw: &mut Raw, from: &str, times: u16| {
        for port in 0..times {
            let remote = std::net::SocketAddr::new(from.parse().unwrap(), 10_000 + port);
            raw.give_from(remote, Tag(5), &data(FIRST, true, true, b"x"));
        }
        raw.take().len()
    };
    assert_eq!(answers(&mut raw, "192.0.2.66", 100), 3, "whatever its ports");
    assert_eq!(answers(&mut raw, "198.51.100.9", 2), 2);
    assert_eq!(answers(&mut raw, "2001:db8::1", 2) + answers(&mut raw, "2001:db8::2", 2), 3, "one network of IPv6");
    raw.now += Duration::from_secs(1);
    assert_eq!(answers(&mut raw, "192.0.2.66", 100), 3, "in every second");
}

/// A host that can receive at an address gets its cookies back: only a bound keeps it from having
/// all the associations that there may be.
fn remote(host: &str, port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::new(host.parse().unwrap(), port)
}

/// Asks for an association, and returns the answer.
fn ask(raw: &mut Raw, from: std::net::SocketAddr) -> Vec<u8> {
    let init = Init {
        tag: Tag(7),
        a_rwnd: 100_000,
        outbound_streams: 10,
        inbound_streams: 10,
        initial_tsn: Tsn(FIRST),
        parameters: Parameters::EMPTY,
    };
    raw.give_from(from, Tag::ZERO, &init);
    raw.take().remove(0)
}

/// The tag and the cookie of an INIT ACK chunk.
fn cookie(answer: &[u8]) -> Option<(Tag, Vec<u8>)> {
    let chunk = Wire::parse(answer).unwrap().chunks().next().unwrap().unwrap();
    let Ok(Chunk::InitAck(ack)) = Chunk::decode(&chunk) else { return None };
    let cookie = ack.0.parameters.iter().flatten().find_map(|p| match p {
        Parameter::StateCookie(c) => Some(c.0.to_vec()),
        _ => None,
    });
    Some((ack.0.tag, cookie?))
}

#[test]
fn one_source_has_no_more_associations_than_it_may_and_others_are_taken_all_the_same() {
    let mut raw = Raw::listening(AssociationConfig::default());
    let limits = neater_sctp::Config { max_per_source: 3, ..config(1, 1, AssociationConfig::default()) };
    raw.server = neater_sctp::Endpoint::new(limits, [3; 32], &[4; 32]);
    // Cookies cost nothing, and all are given before one has come back.
    let cookies: Vec<_> = (0..10u16)
        .map(|i| {
            let from = remote("192.0.2.66", 1000 + i);
            (from, cookie(&ask(&mut raw, from)).unwrap())
        })
        .collect();
    for (from, (tag, bytes)) in &cookies {
        raw.give_from(*from, *tag, &CookieEcho { cookie: bytes });
    }
    assert_eq!(raw.server.associations(), 3);
    let aborts = raw.take().iter().filter(|p| crate::support::kinds(p)[0] == 6).count();
    assert_eq!(aborts, 7, "the others are told");
    // From then on there are no cookies either; elsewhere there are.
    assert!(cookie(&ask(&mut raw, remote("192.0.2.66", 2000))).is_none());
    let other = remote("198.51.100.9", 1000);
    let (tag, bytes) = cookie(&ask(&mut raw, other)).unwrap();
    raw.give_from(other, tag, &CookieEcho { cookie: &bytes });
    assert_eq!(raw.server.associations(), 4);
    // One that is over makes room for another.
    let ids: Vec<_> = core::iter::from_fn(|| raw.server.poll_event()).map(|(id, _)| id).collect();
    raw.server.release(ids[0]);
    raw.take();
    let from = remote("192.0.2.66", 3000);
    let (tag, bytes) = cookie(&ask(&mut raw, from)).unwrap();
    raw.give_from(from, tag, &CookieEcho { cookie: &bytes });
    assert_eq!(raw.server.associations(), 4);
}

#[test]
fn all_associations_together_hold_no_more_than_they_may_and_each_gets_on() {
    const BUDGET: usize = 300_000;
    const FLOOR: usize = 64 << 10;
    let mut config =
        crate::support::config(1, 1, AssociationConfig { receive_buffer: 1 << 20, ..AssociationConfig::rfc9260() });
    config.receive_budget = BUDGET;
    let mut raw = Raw::listening(AssociationConfig::rfc9260());
    raw.server = neater_sctp::Endpoint::new(config, [3; 32], &[4; 32]);
    let payload = [7; 1000];
    let message = |n| Data { unordered: true, ..data(FIRST + n, true, true, &payload) };
    let mut all = Vec::new();
    for i in 1..=20u8 {
        let from = remote(&format!("192.0.2.{i}"), 3000);
        let (tag, bytes) = cookie(&ask(&mut raw, from)).unwrap();
        raw.give_from(from, tag, &CookieEcho { cookie: &bytes });
        let events = core::iter::from_fn(|| raw.server.poll_event());
        let (id, _) = events.filter(|(_, e)| *e == Event::Accepted).last().expect("accepted");
        all.push((from, tag, id));
        raw.take();
        for n in 0..400 {
            raw.give_from(from, tag, &message(n));
            raw.take();
        }
        assert!(raw.server.unread() <= BUDGET + all.len() * FLOOR, "{} after {i}", raw.server.unread());
    }
    assert!(raw.server.unread() > BUDGET);
    // The last one has come as far as any may, and goes on when it is read.
    let (from, tag, id) = *all.last().unwrap();
    let mut next = u32::try_from(core::iter::from_fn(|| raw.server.receive(id)).count()).unwrap();
    assert!((30..400).contains(&next), "{next}");
    for _ in 0..10 {
        for n in next..400 {
            raw.give_from(from, tag, &message(n));
            raw.take();
        }
        next += u32::try_from(core::iter::from_fn(|| raw.server.receive(id)).count()).unwrap();
    }
    assert_eq!((next, raw.closed()), (400, None));
    for (_, _, id) in all {
        raw.server.abort(id, &[]);
        raw.take();
        while raw.server.receive(id).is_some() {}
        raw.server.release(id);
    }
    while raw.server.poll_event().is_some() {}
    assert_eq!(raw.server.unread(), 0);
}

#[test]
fn what_waits_for_a_hole_is_read_when_it_is_filled_though_others_hold_everything() {
    let mut config =
        crate::support::config(1, 1, AssociationConfig { receive_buffer: 1 << 20, ..AssociationConfig::rfc9260() });
    config.receive_budget = 600_000;
    let mut raw = Raw::listening(AssociationConfig::rfc9260());
    raw.server = neater_sctp::Endpoint::new(config, [3; 32], &[4; 32]);
    let open = |raw: &mut Raw, host: &str| {
        let from = remote(host, 3000);
        let (tag, bytes) = cookie(&ask(raw, from)).unwrap();
        raw.give_from(from, tag, &CookieEcho { cookie: &bytes });
        raw.take();
        let events = core::iter::from_fn(|| raw.server.poll_event());
        (from, tag, events.filter(|(_, e)| *e == Event::Accepted).last().expect("accepted").0)
    };
    let (a, b) = (open(&mut raw, "192.0.2.1"), open(&mut raw, "192.0.2.2"));
    let payload = [7; 1000];
    let ordered = |n: u32| Data { ssn: Ssn(n as u16), ..data(FIRST + n, true, true, &payload) };
    for n in 1..=400 {
        raw.give_from(a.0, a.1, &ordered(n));
        raw.give_from(b.0, b.1, &ordered(n - 1));
        raw.take();
    }
    assert!((500_000..700_000).contains(&raw.server.unread()), "{}", raw.server.unread());
    assert!(raw.server.receive(a.2).is_none(), "the first is missing");
    raw.give_from(a.0, a.1, &ordered(0));
    let read = core::iter::from_fn(|| raw.server.receive(a.2)).count();
    assert!(read > 100, "{read}");
}

#[test]
fn what_can_never_be_read_is_bounded_though_others_hold_everything() {
    let mut config =
        crate::support::config(1, 1, AssociationConfig { receive_buffer: 1 << 17, ..AssociationConfig::rfc9260() });
    config.receive_budget = 0;
    let mut raw = Raw::listening(AssociationConfig::rfc9260());
    raw.server = neater_sctp::Endpoint::new(config, [3; 32], &[4; 32]);
    let from = remote("192.0.2.1", 3000);
    let (tag, bytes) = cookie(&ask(&mut raw, from)).unwrap();
    raw.give_from(from, tag, &CookieEcho { cookie: &bytes });
    let payload = [7; 1000];
    // Everything in order, but for the number of the first message, which never comes.
    for n in 0..2000 {
        let data = Data { ssn: Ssn(n as u16 + 1), ..data(FIRST + n, true, true, &payload) };
        raw.give_from(from, tag, &data);
        raw.take();
    }
    assert!(raw.server.unread() <= 3 << 17, "{}", raw.server.unread());
}

#[test]
fn tiny_fragments_that_never_end_fill_the_buffer_and_no_more() {
    let association = AssociationConfig { receive_buffer: 50_000, ..AssociationConfig::rfc9260() };
    let mut raw = Raw::connected(association);
    // Every second TSN is missing.
    for i in 0..30_000u32 {
        raw.chunk(&data(FIRST + 2 * i + 2, false, false, b"x"));
        raw.take();
    }
    let stats = raw.server.association_stats(raw.id.unwrap()).unwrap();
    assert!(stats.chunks_received * 65 <= 2 * 50_000, "{stats:?}");
    assert!(stats.dropped > 20_000, "{stats:?}");
    assert_eq!(raw.closed(), None);
}

#[test]
fn what_contradicts_itself_ends_the_association() {
    type Step = fn(&mut Raw);
    let cases: [(&str, Step); 4] = [
        ("no data", |r| r.chunk(&data(FIRST, true, true, b""))),
        ("two beginnings", |r| {
            r.chunk(&data(FIRST, true, false, b"a"));
            r.chunk(&data(FIRST + 1, true, false, b"b"));
        }),
        ("an end without a middle", |r| {
            r.chunk(&data(FIRST + 1, false, true, b"a"));
            r.chunk(&data(FIRST + 2, false, true, b"b"));
        }),
        ("a SACK chunk for what was not sent", |r| {
            let cumulative = r.initial.plus(100);
            r.chunk(&Sack { cumulative, a_rwnd: 1, gaps: Array::EMPTY, duplicates: Array::EMPTY, packets: 0 });
        }),
    ];
    for (what, step) in cases {
        let mut raw = Raw::connected(AssociationConfig::rfc9260());
        step(&mut raw);
        let closed = raw.closed();
        assert!(matches!(closed, Some(CloseReason::PeerMisbehaved(_))), "{what}: {closed:?}");
        let last = raw.take().pop().unwrap();
        let kind = Wire::parse(&last).unwrap().chunks().next().unwrap().unwrap().kind;
        assert_eq!((kind, raw.server.kept()), (6, 0), "{what}: ABORT");
    }
}

#[test]
fn data_for_a_stream_that_there_is_not_is_acknowledged_and_reported() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    raw.chunk(&Data { stream: StreamId(5000), ..data(FIRST, true, true, b"x") });
    let kinds: Vec<u8> = raw
        .take()
        .iter()
        .flat_map(|p| Wire::parse(p).unwrap().chunks().flatten().map(|c| c.kind).collect::<Vec<_>>())
        .collect();
    assert!(kinds.contains(&9), "ERROR: {kinds:?}");
    raw.now += ms(500);
    raw.server.handle_timeout(raw.now);
    let sack = raw.take().into_iter().next();
    assert!(sack.is_some() || kinds.contains(&3), "acknowledged");
}

/// Packets that are changed on the way, with a checksum that is none: nothing panics, time goes on,
/// and nothing is left.
#[test]
fn changed_packets_never_do_more_than_end_the_association() {
    for seed in 0..400 {
        let mut rng = Rng::from_number(seed);
        let configs = [0, 1].map(|end| {
            let mut c = config(end, 1, AssociationConfig { receive_buffer: 30_000, ..AssociationConfig::default() });
            c.layers = vec![Layer { authenticates: true, ..crate::support::layer(0, end) }];
            c
        });
        let mut w = World::with(seed, configs, vec![LinkConfig::delay(ms(5)).with_loss(0.05)]);
        let ids = w.established();
        let mut dice = Rng::from_number(seed + 1000);
        w.tap = Some(Box::new(move |_, packet| {
            if dice.chance(0.15) {
                // Anywhere behind the tag; half of the time in the header of the first chunk.
                for _ in 0..1 + dice.below(4) {
                    let span = if dice.chance(0.5) { 20 } else { packet.bytes.len() as u64 - 12 };
                    let at = 12 + dice.below(span.min(packet.bytes.len() as u64 - 12)) as usize;
                    packet.bytes[at] = if dice.chance(0.3) { 0xff } else { dice.u32() as u8 };
                }
                if dice.chance(0.2) {
                    let len = 12 + dice.below(packet.bytes.len() as u64 - 12) as usize / 4 * 4;
                    packet.bytes.truncate(len.max(16));
                }
                packet.bytes[8..12].fill(0);
            }
            true
        }));
        for _ in 0..30 {
            for end in 0..2 {
                let payload = vec![end as u8; 1 + rng.below(4000) as usize];
                let stream = StreamId(rng.below(30) as u16);
                let options = neater_sctp::SendOptions { unordered: rng.chance(0.3), ..Default::default() };
                let _ = w.ends[end].send(ids[end], stream, payload.into(), options);
            }
            w.run(ms(rng.below(200)));
            for end in 0..2 {
                w.read(end, ids[end]);
            }
        }
        for end in 0..2 {
            assert!(w.ends[end].buffered(ids[end]) <= 8 << 20);
            w.ends[end].release(ids[end]);
        }
        w.tap = None;
        w.run(Duration::from_secs(1));
        assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0), "seed {seed}");
    }
}
