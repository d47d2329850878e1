//! RFC 9260 section 5, and the tag rules of section 8.

use crate::support::{PORTS, Packet, World, address, ms};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, CloseReason, ConnectError, Event};
use neater_sctp_wire::chunk::{Abort, CookieAck, Init, Shutdown, ShutdownAck};
use neater_sctp_wire::parameter::HostName;
use neater_sctp_wire::{
    Causes, Checksum, Chunk, CommonHeader, Emit, Packet as Wire, PacketBuilder, Parameters, Tag, Tsn,
};
use std::cell::RefCell;
use std::rc::Rc;

fn world() -> World {
    World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)))
}

fn kinds(bytes: &[u8]) -> Vec<u8> {
    Wire::parse(bytes).unwrap().chunks().flatten().map(|c| c.kind).collect()
}

/// Packets with their senders.
type Log = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

/// Remembers all packets; drops those that `drop` names by sender and first chunk, so often.
fn recorder(w: &mut World, drop: Vec<(usize, u8, u32)>) -> Log {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (log, mut drop) = (Rc::clone(&seen), drop);
    w.tap = Some(Box::new(move |end, packet| {
        log.borrow_mut().push((end, packet.bytes.clone()));
        let first = kinds(&packet.bytes)[0];
        match drop.iter_mut().find(|(e, k, n)| (*e, *k) == (end, first) && *n > 0) {
            Some((_, _, n)) => {
                *n -= 1;
                false
            }
            None => true,
        }
    }));
    seen
}

/// Gives a packet with one chunk to an end, from where the other is.
fn inject(w: &mut World, to: usize, tag: Tag, chunk: &impl Emit) {
    let mut buffer = [0; 1000];
    let header = CommonHeader { source_port: PORTS[1 - to], destination_port: PORTS[to], tag };
    let mut packet = PacketBuilder::new(&mut buffer, header).unwrap();
    packet.push(chunk).unwrap();
    let len = packet.finish(Checksum::Crc32c);
    let packet =
        Packet { from: address(1 - to, 0), to: address(to, 0), bytes: buffer[..len].to_vec(), ect: false, whole: true };
    w.deliver(to, 0, &packet, false);
}

/// What an end sends now: the tags and the first chunks.
fn answers(w: &mut World, end: usize) -> Vec<(u32, u8, u8)> {
    let mut buffer = vec![0; 2000];
    core::iter::from_fn(|| {
        let t = w.ends[end].poll_transmit(w.now, &mut buffer)?;
        let packet = Wire::parse(&buffer[..t.len]).unwrap();
        let first = packet.chunks().next().unwrap().unwrap();
        Some((packet.header.tag.0, first.kind, first.flags))
    })
    .collect()
}

#[test]
fn each_chunk_of_the_handshake_is_sent_again_when_it_is_lost() {
    // INIT, INIT ACK, COOKIE ECHO, COOKIE ACK.
    for (end, kind) in [(0, 1), (1, 2), (0, 10), (1, 11)] {
        let mut w = world();
        recorder(&mut w, vec![(end, kind, 2)]);
        let [a, b] = w.established();
        w.run(Duration::from_secs(10));
        assert!(w.saw(0, &Event::Connected), "chunk {kind}");
        w.send(0, a, 0, b"x");
        w.send(1, b, 0, b"y");
        w.run(ms(500));
        assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1), "chunk {kind}");
        assert_eq!(w.ends[1].stats().accepted, 1);
    }
}

#[test]
fn early_data_is_sent_again_with_its_cookie() {
    let mut w = world();
    recorder(&mut w, vec![(0, 10, 1)]);
    let a = w.connect(0);
    w.send(0, a, 0, b"early");
    w.run(Duration::from_secs(10));
    let b = w.events[1][0].0;
    let got = w.read(1, b);
    assert_eq!((got.len(), got[0].payload.as_slice()), (1, &b"early"[..]));
}

#[test]
fn a_peer_that_never_answers_is_unreachable() {
    for kind in [1, 10] {
        let mut w = world();
        let seen = recorder(&mut w, vec![(0, kind, u32::MAX)]);
        w.connect(0);
        w.run(Duration::from_secs(1000));
        assert_eq!(w.closed(0), Some(CloseReason::Unreachable));
        let sent = seen.borrow().iter().filter(|(e, b)| *e == 0 && kinds(b)[0] == kind).count();
        assert_eq!(sent, 9, "Max.Init.Retransmits is 8");
        assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0));
    }
}

#[test]
fn nothing_is_kept_of_a_peer_before_its_cookie_comes_back() {
    let mut w = world();
    recorder(&mut w, vec![(0, 10, u32::MAX)]);
    w.connect(0);
    w.run(ms(100));
    assert_eq!((w.ends[1].kept(), w.ends[1].stats().cookies_sent, w.ends[1].next_timeout()), (0, 1, None));
}

#[test]
fn the_answer_to_our_init_is_at_most_three_times_as_long() {
    let mut w = world();
    let seen = recorder(&mut w, vec![]);
    w.established();
    let seen = seen.borrow();
    assert_eq!((kinds(&seen[0].1), kinds(&seen[1].1)), (vec![1], vec![2]));
    assert!(seen[1].1.len() <= 3 * seen[0].1.len(), "{} {}", seen[0].1.len(), seen[1].1.len());
}

#[test]
fn both_sides_open_at_once_and_there_is_one_association() {
    for (delay, seed) in [(0, 1), (3, 2), (9, 3), (11, 4), (15, 5), (19, 6), (21, 7), (29, 8)] {
        let mut w = World::new(seed, AssociationConfig::default(), LinkConfig::delay(ms(10)));
        // The one that listens opens as well.
        let a = w.connect(0);
        w.run(ms(delay));
        let before = w.events[1].iter().find(|(_, e)| *e == Event::Accepted).map(|(id, _)| *id);
        let routes = [w.route(0, 0)];
        let opened = w.ends[1].connect(w.now, PORTS[0], &routes);
        let b = match before {
            Some(b) => {
                assert_eq!(opened, Err(ConnectError::Exists));
                b
            }
            None => opened.unwrap(),
        };
        w.run(Duration::from_secs(5));
        assert_eq!((w.ends[0].associations(), w.ends[1].associations()), (1, 1), "after {delay} ms");
        w.send(0, a, 0, b"x");
        w.send(1, b, 0, b"y");
        w.run(ms(500));
        assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1), "after {delay} ms");
        assert_eq!((w.closed(0), w.closed(1)), (None, None));
    }
}

#[test]
fn a_peer_that_starts_again_is_told_apart_and_data_flows() {
    let mut w = world();
    let [a, b] = w.established();
    w.send(0, a, 2, b"old");
    w.run(ms(300));
    assert_eq!(w.read(1, b).len(), 1);
    // The client crashes: a new endpoint with another seed takes its place.
    let association = AssociationConfig::default();
    w.ends[0] = neater_sctp::Endpoint::new(crate::support::config(0, 1, association), [99; 32], &[1; 32]);
    let a = w.connect(0);
    w.run(ms(500));
    assert!(w.saw(1, &Event::Restarted));
    assert_eq!(w.ends[1].associations(), 1);
    w.send(0, a, 2, b"new");
    w.send(1, b, 2, b"back");
    w.run(ms(500));
    assert_eq!(w.read(1, b)[0].payload, b"new");
    assert_eq!(w.read(0, a)[0].payload, b"back");
}

#[test]
fn a_stale_cookie_is_refused_and_the_handshake_begins_again() {
    let mut w = world();
    let held = Rc::new(RefCell::new(None));
    let hold = Rc::clone(&held);
    w.tap = Some(Box::new(move |end, packet| {
        if end == 0 && kinds(&packet.bytes)[0] == 10 && hold.borrow().is_none() {
            *hold.borrow_mut() = Some(packet.clone());
        }
        // All cookies are lost.
        !(end == 0 && kinds(&packet.bytes)[0] == 10)
    }));
    w.connect(0);
    w.run(Duration::from_secs(70));
    assert_eq!(w.closed(0), None);
    w.tap = None;
    let cookie = held.borrow().clone().unwrap();
    w.deliver(1, 0, &cookie, false);
    assert_eq!((w.ends[1].stats().cookies_refused, w.ends[1].kept()), (1, 0));
    w.run(Duration::from_secs(5));
    assert!(w.saw(0, &Event::Connected));
}

#[test]
fn a_copy_of_a_cookie_does_not_open_again_what_is_over() {
    let mut w = world();
    let held = Rc::new(RefCell::new(None));
    let hold = Rc::clone(&held);
    w.tap = Some(Box::new(move |end, packet| {
        if end == 0 && kinds(&packet.bytes)[0] == 10 {
            *hold.borrow_mut() = Some(packet.clone());
        }
        true
    }));
    let a = w.connect(0);
    w.send(0, a, 0, b"once");
    w.run(Duration::from_secs(2));
    let b = w.events[1][0].0;
    assert_eq!(w.read(1, b).len(), 1);
    w.ends[0].abort(a, b"");
    w.run(Duration::from_secs(2));
    assert_eq!((w.ends[0].associations(), w.ends[1].associations()), (0, 0));
    let accepted = |w: &crate::support::World| w.events[1].iter().filter(|(_, e)| *e == Event::Accepted).count();
    assert_eq!(accepted(&w), 1);
    let cookie = held.borrow().clone().unwrap();
    w.deliver(1, 0, &cookie, false);
    w.run(Duration::from_secs(2));
    assert_eq!((w.ends[1].associations(), w.ends[1].stats().cookies_refused, accepted(&w)), (0, 1, 1));
}

#[test]
fn a_forged_cookie_or_one_for_another_tag_is_dropped_silently() {
    let mut w = world();
    let seen = recorder(&mut w, vec![(0, 10, u32::MAX)]);
    w.connect(0);
    w.run(ms(100));
    let echo = seen.borrow().iter().find(|(e, b)| *e == 0 && kinds(b)[0] == 10).unwrap().1.clone();
    w.tap = None;
    let mut forged = echo.clone();
    forged[40] ^= 1;
    // The checksum is made right again.
    let parsed = Wire::parse(&forged).unwrap();
    let chunk = Chunk::decode(&parsed.chunks().next().unwrap().unwrap()).unwrap();
    let tag = parsed.header.tag;
    inject(&mut w, 1, tag, &chunk);
    let genuine = Wire::parse(&echo).unwrap();
    let chunk = Chunk::decode(&genuine.chunks().next().unwrap().unwrap()).unwrap();
    inject(&mut w, 1, Tag(tag.0 ^ 1), &chunk);
    assert_eq!((w.ends[1].kept(), w.ends[1].stats().cookies_refused), (0, 2));
    assert_eq!(answers(&mut w, 1), []);
}

#[test]
fn impossible_inits_are_answered_by_abort_and_nothing_else() {
    let good = Init {
        tag: Tag(77),
        a_rwnd: 100_000,
        outbound_streams: 1,
        inbound_streams: 1,
        initial_tsn: Tsn(1),
        parameters: Parameters::EMPTY,
    };
    let mut w = world();
    inject(&mut w, 1, Tag::ZERO, &Init { outbound_streams: 0, ..good });
    inject(&mut w, 1, Tag::ZERO, &Init { a_rwnd: 100, ..good });
    let host = [HostName(b"host\0").into()];
    inject(&mut w, 1, Tag::ZERO, &Init { parameters: Parameters::new(&host), ..good });
    assert_eq!(answers(&mut w, 1), [(77, 6, 0); 3]);
    inject(&mut w, 1, Tag::ZERO, &Init { tag: Tag::ZERO, ..good });
    inject(&mut w, 1, Tag(5), &good);
    assert_eq!(answers(&mut w, 1), [], "a tag that must be zero, or must not");
    inject(&mut w, 0, Tag::ZERO, &good);
    assert_eq!(answers(&mut w, 0), [(77, 6, 0)], "nobody listens");
    assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0));
}

#[test]
fn packets_out_of_the_blue_are_answered_as_section_8_4_says() {
    let mut w = world();
    inject(&mut w, 1, Tag(9), &Shutdown { cumulative: Tsn(1) });
    assert_eq!(answers(&mut w, 1), [(9, 6, 1)], "ABORT with the tag reflected");
    inject(&mut w, 1, Tag(9), &ShutdownAck);
    assert_eq!(answers(&mut w, 1), [(9, 14, 1)], "SHUTDOWN COMPLETE with the tag reflected");
    inject(&mut w, 1, Tag(9), &Abort { reflected: false, causes: Causes::EMPTY });
    inject(&mut w, 1, Tag(9), &CookieAck);
    inject(&mut w, 1, Tag::ZERO, &Shutdown { cumulative: Tsn(1) });
    assert_eq!(answers(&mut w, 1), []);
    assert!(w.ends[1].stats().out_of_the_blue >= 4);
}

#[test]
fn an_abort_needs_the_right_tag() {
    let mut w = world();
    let seen = recorder(&mut w, vec![]);
    w.established();
    let tag_of = |end: usize| {
        let seen = seen.borrow();
        let (_, bytes) = seen.iter().rfind(|(e, _)| *e != end).unwrap();
        Wire::parse(bytes).unwrap().header.tag
    };
    let (ours, theirs) = (tag_of(0), tag_of(1));
    inject(&mut w, 0, Tag(ours.0 ^ 4), &Abort { reflected: false, causes: Causes::EMPTY });
    inject(&mut w, 0, ours, &Abort { reflected: true, causes: Causes::EMPTY });
    inject(&mut w, 0, theirs, &Abort { reflected: false, causes: Causes::EMPTY });
    w.flush();
    assert_eq!((w.closed(0), w.ends[0].stats().wrong_tag), (None, 3));
    assert_eq!(answers(&mut w, 0), []);
    inject(&mut w, 0, theirs, &Abort { reflected: true, causes: Causes::EMPTY });
    w.flush();
    assert_eq!(w.closed(0), Some(CloseReason::PeerAborted { cause: None, reason: vec![] }));
}

#[test]
fn engines_have_their_number_in_every_tag() {
    let association = AssociationConfig::default();
    let configs =
        [crate::support::config(0, 1, association.clone()), crate::support::config(1, 1, association)].map(|mut c| {
            c.engine = Some(0xab);
            c
        });
    let mut w = World::with(1, configs, vec![LinkConfig::delay(ms(10))]);
    let seen = recorder(&mut w, vec![]);
    w.established();
    let tags: Vec<u32> = seen.borrow().iter().map(|(_, b)| Wire::parse(b).unwrap().header.tag.0).collect();
    assert!(tags.iter().skip(1).all(|t| t >> 24 == 0xab), "{tags:x?}");
}
