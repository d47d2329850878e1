//! What is kept: of a peer that does its worst, no more than the bounds allow; of associations that
//! are over, nothing.
//!
//! Everything an endpoint keeps is in its debug form. The commas in it are its entries, whichever
//! list they are in: a list that was added after these tests were written is counted, too.

use crate::support::raw::{FIRST, Raw, data};
use crate::support::{World, config, ms};
use core::time::Duration;
use neater_base::Rng;
use neater_link::LinkConfig;
use neater_sctp::{
    AssociationConfig, Authentication, CloseReason, Config, Endpoint, Event, Extensions, LayerId, Reliability, Route,
    SendOptions,
};
use neater_sctp_wire::cause::{InvalidStream, UnrecognizedChunk};
use neater_sctp_wire::chunk::{
    Cwr, Data, Ecne, Error, ForwardTsn, Heartbeat, HeartbeatAck, IData, IForwardTsn, Pad, Part, ReConfig, Sack,
    Skipped, SkippedMessage,
};
use neater_sctp_wire::parameter::{
    AddIncoming, AddOutgoing, EcnCapable, ForwardTsnSupported, OutgoingReset, SupportedExtensions,
};
use neater_sctp_wire::{Array, Causes, Fsn, Mid, Parameters, ReconfigSeq, Ssn, StreamId, Tsn};

/// How many entries all lists of an endpoint have together, and a constant for what is no list.
fn entries(endpoint: &Endpoint) -> usize {
    format!("{endpoint:?}").matches(',').count()
}

/// With every extension that needs no key.
fn connected(interleaving: bool) -> Raw {
    let config = AssociationConfig {
        receive_buffer: 20_000,
        inbound_streams: 1000,
        extensions: Extensions {
            partial_reliability: true,
            reconfiguration: true,
            ecn: true,
            interleaving,
            ..Extensions::NONE
        },
        ..AssociationConfig::rfc9260()
    };
    let kinds = [ReConfig::KIND, ForwardTsn::KIND, IData::KIND, IForwardTsn::KIND];
    let kinds = if interleaving { &kinds[..] } else { &kinds[..2] };
    let list = [ForwardTsnSupported.into(), SupportedExtensions(kinds).into(), EcnCapable.into()];
    Raw::connected_with(config, Parameters::new(&list))
}

/// Gives a chunk many times to an association whose application takes neither packets nor events;
/// how many entries that makes.
fn flood(name: &str, times: u32, interleaving: bool, mut next: impl FnMut(&mut Raw, u32)) -> usize {
    let mut raw = connected(interleaving);
    let before = entries(&raw.server);
    for i in 0..times {
        next(&mut raw, i);
    }
    let grown = entries(&raw.server) - before;
    // It is still up, or was ended by rule; then everything of it goes with its last event.
    raw.events();
    let id = raw.id.unwrap();
    raw.server.release(id);
    raw.take();
    raw.events();
    assert_eq!((raw.server.kept(), raw.server.is_idle()), (0, true), "{name}");
    let left = entries(&raw.server);
    assert!(left <= before, "{name}: {before} entries before, {left} after");
    grown
}

#[test]
fn control_chunks_that_nobody_takes_the_answers_of_leave_a_bounded_number() {
    type Step = fn(&mut Raw, u32);
    let cases: [(&str, usize, Step); 8] = [
        ("heartbeats", 8 * 1100, |raw, i| raw.chunk(&Heartbeat { info: &[i as u8; 1000] })),
        ("answers to no heartbeat", 100, |raw, i| {
            let nonce = [i.to_be_bytes(); 3].concat();
            raw.chunk(&HeartbeatAck { info: &nonce });
        }),
        ("unknown chunks", 8 * 400, |raw, i| raw.bytes(&[0xfa, i as u8, 0, 4])),
        ("errors", 1024 * 10, |raw, i| {
            let causes = [InvalidStream { stream: StreamId(i as u16) }.into()];
            raw.chunk(&Error { causes: Causes::new(&causes) });
        }),
        ("reports of unknown chunks", 1024 * 10, |raw, _| {
            let causes = [UnrecognizedChunk(&[0xc1, 0, 0, 4]).into()];
            raw.chunk(&Error { causes: Causes::new(&causes) });
        }),
        ("requests with wrong numbers", 200, |raw, i| {
            let request = [AddOutgoing { request: ReconfigSeq(FIRST + 9 + i), streams: 1 }.into()];
            raw.chunk(&ReConfig { parameters: Parameters::new(&request) });
        }),
        ("echoes and answers to them", 100, |raw, i| {
            raw.chunk(&Ecne { lowest: Tsn(raw.initial.0.wrapping_add(i)) });
            raw.chunk(&Cwr { lowest: Tsn(i) });
        }),
        ("padding", 50, |raw, _| raw.chunk(&Pad { len: 100 })),
    ];
    for (name, most, step) in cases {
        let grown = flood(name, 4000, false, step);
        assert!(grown <= most, "{name}: {grown} entries more");
    }
}

#[test]
fn requests_that_are_done_leave_a_bounded_number_of_events_and_no_more_streams_than_agreed() {
    // Each reset is an event; an application that takes none has the peer wait.
    let grown = flood("resets", 6000, false, |raw, i| {
        let number = ReconfigSeq(FIRST.wrapping_add(i));
        let reset = OutgoingReset {
            request: number,
            response: ReconfigSeq(raw.initial.0.wrapping_sub(1)),
            last_tsn: Tsn(FIRST.wrapping_sub(1)),
            streams: Array::EMPTY,
        };
        raw.chunk(&ReConfig { parameters: Parameters::new(&[reset.into()]) });
        raw.take();
    });
    assert!(grown <= 1024 * 10, "{grown}");
    let mut raw = connected(false);
    for i in 0..5000u32 {
        let request = [AddIncoming { request: ReconfigSeq(FIRST + i), streams: 1000 }.into()];
        raw.chunk(&ReConfig { parameters: Parameters::new(&request) });
        let more = [AddOutgoing { request: ReconfigSeq(FIRST + i), streams: 1000 }.into()];
        raw.chunk(&ReConfig { parameters: Parameters::new(&more) });
        raw.take();
    }
    let (out, inbound) = raw.server.streams(raw.id.unwrap());
    assert!(out <= 1024 && inbound <= 1000, "{out} {inbound}");
}

#[test]
fn data_that_can_never_be_delivered_is_bounded_by_the_buffer_and_the_number_of_gaps() {
    // A receive buffer of 20,000 bytes: a chunk of one byte is charged with what it costs to keep
    // it.
    type Step = fn(&mut Raw, u32);
    let cases: [(&str, bool, Step); 6] = [
        ("fragments without a beginning", false, |raw, i| raw.chunk(&data(FIRST + 2 * i + 2, false, false, b"x"))),
        ("beginnings without an end", false, |raw, i| {
            raw.chunk(&Data { unordered: true, ..data(FIRST + 2 * i + 1, true, false, b"x") });
        }),
        ("messages that wait for the one before, on many streams", false, |raw, i| {
            let stream = StreamId((i % 1000) as u16);
            raw.chunk(&Data { stream, ssn: Ssn(1 + (i / 1000) as u16), ..data(FIRST + i, true, true, b"x") });
        }),
        ("messages that nobody reads", false, |raw, i| {
            raw.chunk(&Data { unordered: true, ..data(FIRST + i, true, true, b"x") });
        }),
        ("copies", false, |raw, _| raw.chunk(&Data { unordered: true, ..data(FIRST, true, true, b"x") })),
        ("fragments of many messages at once", true, |raw, i| {
            raw.chunk(&IData {
                tsn: Tsn(FIRST + i),
                stream: StreamId((i % 1000) as u16),
                mid: Mid(i / 1000),
                part: Part::Later(Fsn(1 + i % 7)),
                immediate: false,
                unordered: i % 2 == 0,
                ending: false,
                payload: b"x",
            });
        }),
    ];
    for (name, interleaving, step) in cases {
        let grown = flood(name, 20_000, interleaving, step);
        assert!(grown <= 60_000, "{name}: {grown} entries more");
    }
}

#[test]
fn what_is_given_up_again_and_again_costs_nothing() {
    for interleaving in [false, true] {
        let grown = flood("forward", 3000, interleaving, |raw, i| {
            let cumulative = Tsn(FIRST + i);
            if interleaving {
                let list: Vec<SkippedMessage> = (0..100)
                    .map(|s| SkippedMessage { stream: StreamId(s * 10), unordered: s % 2 == 0, mid: Mid(i) })
                    .collect();
                raw.chunk(&IForwardTsn { cumulative, skipped: Array::new(&list) });
            } else {
                let list: Vec<Skipped> =
                    (0..200).map(|s| Skipped { stream: StreamId(s * 5), ssn: Ssn(i as u16) }).collect();
                raw.chunk(&ForwardTsn { cumulative, skipped: Array::new(&list) });
            }
            raw.take();
        });
        // The next number of each of a thousand streams.
        assert!(grown <= 5000, "interleaving {interleaving}: {grown}");
    }
}

#[test]
fn reports_about_what_we_sent_cost_nothing_whatever_they_say() {
    let mut raw = connected(false);
    raw.send(&[1204; 50]);
    raw.take();
    let before = entries(&raw.server);
    let mut rng = Rng::from_number(5);
    for _ in 0..5000 {
        let blocks: Vec<_> = (0..200)
            .map(|_| {
                let start = 2 + rng.below(60_000) as u16;
                neater_sctp_wire::chunk::GapBlock { start, end: start + rng.below(5000) as u16 }
            })
            .collect();
        let duplicates: Vec<Tsn> = (0..50).map(|_| Tsn(rng.u32())).collect();
        let cumulative = Tsn(raw.initial.0.wrapping_sub(1));
        raw.chunk(&Sack {
            cumulative,
            a_rwnd: rng.u32(),
            gaps: Array::new(&blocks),
            duplicates: Array::new(&duplicates),
            packets: 0,
        });
        if rng.chance(0.1) {
            raw.take();
        }
    }
    assert_eq!(raw.closed(), None);
    assert!(entries(&raw.server) <= before + 2000, "{} {}", before, entries(&raw.server));
}

#[test]
fn sources_that_know_the_tag_keep_one_question_open() {
    let mut raw = connected(false);
    let before = entries(&raw.server);
    for i in 0..5000u32 {
        let from = std::net::SocketAddr::new(std::net::Ipv4Addr::from(0x0a01_0000 + i).into(), 9899);
        let tag = raw.tag;
        raw.give_from(from, tag, &Heartbeat { info: b"\0\x01\0\x08abcd" });
    }
    assert!(entries(&raw.server) <= before + 400);
    assert_eq!(raw.server.paths(raw.id.unwrap()).len(), 1);
}

#[test]
fn inits_leave_nothing_but_answers_that_are_bounded() {
    let mut raw = Raw::listening(AssociationConfig::default());
    let before = entries(&raw.server);
    for i in 0..20_000u32 {
        raw.init((i % 60_000) as u16 + 1);
    }
    // 256 answers of at most 1,200 bytes wait, whose bytes are entries; no more than a quarter of
    // them for one source.
    assert!(entries(&raw.server) <= before + 70 * 1200 + 1100, "{}", entries(&raw.server));
    raw.take();
    assert!(entries(&raw.server) <= before + 1100, "answers to sources are counted in 1,024 groups");
    assert_eq!((raw.server.kept(), raw.server.associations(), raw.server.next_timeout()), (0, 0, None));
}

/// How two ends can come to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Shutdown,
    Abort,
    Vanish,
    Release,
    ReleaseUnread,
}

#[test]
fn however_an_association_ends_nothing_of_it_is_left() {
    for end in [End::Shutdown, End::Abort, End::Vanish, End::Release, End::ReleaseUnread] {
        for secured in [false, true] {
            let association = AssociationConfig {
                extensions: Extensions {
                    authentication: secured,
                    dynamic_addresses: secured,
                    ecn: true,
                    ..Extensions::default()
                },
                authentication: Authentication { required: vec![Data::KIND], ..Authentication::default() },
                max_association_retransmits: 3,
                ..AssociationConfig::default()
            };
            let configs = [0, 1].map(|e| config(e, 2, association.clone()));
            let links = vec![LinkConfig::delay(ms(10)).with_loss(0.02), LinkConfig::delay(ms(20))];
            let mut w = World::with(7, configs, links);
            let before = [entries(&w.ends[0]), entries(&w.ends[1])];
            let ids = w.established();
            let now = w.now;
            for (e, id) in ids.into_iter().enumerate() {
                for stream in 0..30u16 {
                    let reliability = match stream % 3 {
                        0 => Reliability::Full,
                        1 => Reliability::Until(now + ms(u64::from(stream))),
                        _ => Reliability::Retransmissions(0),
                    };
                    let options = SendOptions { reliability, report: true, ..SendOptions::default() };
                    w.ends[e].send(id, StreamId(stream), vec![stream as u8; 3000].into(), options).unwrap();
                }
                let _ = w.ends[e].reset_outgoing(id, &[StreamId(1)]);
            }
            w.run(ms(35));
            match end {
                End::Shutdown => {
                    let now = w.now;
                    w.ends[0].shutdown(now, ids[0]);
                }
                End::Abort => w.ends[0].abort(ids[0], b"enough"),
                End::Vanish => w.tap = Some(Box::new(|_, _| false)),
                End::Release | End::ReleaseUnread => w.ends[0].release(ids[0]),
            }
            w.run(Duration::from_secs(200));
            for (e, id) in ids.into_iter().enumerate() {
                if end != End::ReleaseUnread {
                    w.read(e, id);
                }
                // The abort itself can be lost; then the other side finds out by itself, or is
                // notified here.
                if w.ends[e].kept() > 0 {
                    w.ends[e].release(id);
                }
            }
            w.run(Duration::from_secs(1));
            for (e, before) in before.into_iter().enumerate() {
                let what = format!("{end:?}, secured {secured}, end {e}");
                assert_eq!((w.ends[e].associations(), w.ends[e].kept()), (0, 0), "{what}");
                assert_eq!((w.ends[e].next_timeout(), w.ends[e].is_idle()), (None, true), "{what}");
                // The used cookie is remembered, answers are counted in 1,024 groups of sources,
                // and the table of associations has 32 free places.
                let left = entries(&w.ends[e]).saturating_sub(before);
                assert!(left <= 1024 + 2 * 32 + 20, "{what}: {left} entries");
            }
            let over = |e: usize| w.events[e].iter().filter(|(_, x)| matches!(x, Event::Closed(_))).count();
            assert!(over(0) <= 1 && over(1) <= 1, "the last event comes once");
        }
    }
}

#[test]
fn many_associations_come_and_go_and_leave_nothing() {
    let server = Config { accept: true, ..config(1, 1, AssociationConfig::default()) };
    let mut endpoint = Endpoint::new(server, [3; 32], &[4; 32]);
    let mut now = neater_base::Instant::ZERO + Duration::from_secs(5);
    let before = entries(&endpoint);
    let mut buffer = vec![0; 2000];
    let mut peak = 0;
    for round in 0..20u32 {
        let mut clients: Vec<Endpoint> = (0..50)
            .map(|i| {
                let mut c = config(0, 1, AssociationConfig::default());
                c.port = 1000 + i;
                Endpoint::new(c, [(round * 50 + u32::from(i)) as u8; 32], &[1; 32])
            })
            .collect();
        let route = Route { layer: LayerId(0), remote: crate::support::address(1, 0) };
        for c in &mut clients {
            let id = c.connect(now, crate::support::PORTS[1], &[route]).unwrap();
            c.send(id, StreamId(0), vec![7; 50].into(), SendOptions::default()).unwrap();
            c.shutdown(now, id);
        }
        // Without a network between them: each side hands over its packets, until neither has any.
        for _ in 0..400 {
            for (i, c) in clients.iter_mut().enumerate() {
                while let Some(t) = c.poll_transmit(now, &mut buffer) {
                    let from: std::net::SocketAddr = format!("10.0.{round}.{}:9899", i + 1).parse().unwrap();
                    endpoint.handle_packet(now, Route { layer: LayerId(0), remote: from }, false, &buffer[..t.len]);
                }
            }
            while let Some(t) = endpoint.poll_transmit(now, &mut buffer) {
                let octets = match t.route.remote.ip() {
                    std::net::IpAddr::V4(a) => a.octets(),
                    std::net::IpAddr::V6(_) => unreachable!(),
                };
                let to = usize::from(octets[3]) - 1;
                clients[to].handle_packet(now, route, false, &buffer[..t.len]);
            }
            peak = peak.max(endpoint.kept());
            while let Some((id, _)) = endpoint.poll_event() {
                while endpoint.receive(id).is_some() {}
            }
            now += ms(5);
            endpoint.handle_timeout(now);
            clients.iter_mut().for_each(|c| c.handle_timeout(now));
        }
        for c in &mut clients {
            let closed: Vec<_> = core::iter::from_fn(|| c.poll_event()).collect();
            assert!(closed.iter().any(|(_, e)| *e == Event::Closed(CloseReason::Shutdown)), "{closed:?}");
        }
        assert_eq!((endpoint.kept(), endpoint.associations()), (0, 0), "round {round}");
        now += Duration::from_secs(70);
    }
    assert!(peak >= 50, "they were there at once: {peak}");
    // The cookies of the last round are remembered until the next one is used.
    let left = entries(&endpoint) - before;
    assert!(left <= 1024 + 3 * 50 + 2 * 64 + 20, "{left}");
}
