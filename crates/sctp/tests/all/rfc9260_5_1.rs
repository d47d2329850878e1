//! RFC 9260 sections 5.1, 8.4 and 8.5: handshakes that meet what they should not, and packets that
//! are out of the blue.

use crate::support::raw::Raw;
use crate::support::watch::{all_kinds, each};
use crate::support::{PORTS, Packet, World, address, config, kinds, ms, record};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, CloseReason, Event, Layer, LayerId, Route, SendOptions};
use neater_sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Heartbeat, Init, InitAck, Sack, ShutdownAck, ShutdownComplete,
};
use neater_sctp_wire::parameter::{HostName, StateCookie};
use neater_sctp_wire::{Array, Causes, Chunk, Packet as Wire, Parameter, Parameters, StreamId, Tag, Tsn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const ABORT: u8 = Abort::KIND;

fn init(parameters: Parameters<'_>) -> Init<'_> {
    Init { tag: Tag(5), a_rwnd: 5000, outbound_streams: 9, inbound_streams: 9, initial_tsn: Tsn(5), parameters }
}

fn deliver(w: &mut World, to: usize, tag: Tag, chunks: &[Chunk<'_>]) {
    let bytes = crate::support::packet([PORTS[1 - to], PORTS[to]], tag, chunks);
    w.deliver(to, 0, &Packet { from: address(1 - to, 0), to: address(to, 0), bytes, ect: false, whole: true }, false);
}

/// A client whose INIT chunk has gone nowhere, with the tag that it has chosen.
fn opening(association: AssociationConfig) -> (World, neater_sctp::AssociationId, Tag, crate::support::Log) {
    let mut w = World::new(3, association, LinkConfig::delay(ms(10)));
    let log = crate::support::Log::default();
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        false
    }));
    let a = w.connect(0);
    w.flush();
    let tag = Tag(u32::from_be_bytes(log.borrow()[0].1[16..20].try_into().unwrap()));
    (w, a, tag, log)
}

fn last(log: &crate::support::Log) -> Vec<u8> {
    log.borrow().last().unwrap().1.clone()
}

#[test]
fn section_5_1_5_a_cookie_is_good_at_the_port_where_it_was_made_and_at_no_other() {
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.init(9899);
    let answer = raw.take().remove(0);
    let packet = Wire::parse(&answer).unwrap();
    let Chunk::InitAck(ack) = Chunk::decode(&packet.chunks().next().unwrap().unwrap()).unwrap() else { panic!() };
    let cookie = ack.0.parameters.iter().flatten().find_map(|p| match p {
        Parameter::StateCookie(c) => Some(c.0.to_vec()),
        _ => None,
    });
    let cookie = cookie.unwrap();
    let echo = CookieEcho { cookie: &cookie };
    // Another listener of the same program: it has the same secret.
    let mut elsewhere = config(1, 1, AssociationConfig::default());
    elsewhere.port += 1;
    let mut other = neater_sctp::Endpoint::new(elsewhere, [3; 32], &[4; 32]);
    let bytes = crate::support::packet([PORTS[0], PORTS[1] + 1], ack.0.tag, &[echo.into()]);
    other.handle_packet(raw.now, Route { layer: LayerId(0), remote: address(0, 0) }, false, &bytes);
    assert_eq!((other.associations(), other.stats().cookies_refused), (0, 1));
    raw.give(9899, ack.0.tag, &echo);
    assert_eq!(raw.server.associations(), 1);
}

#[test]
fn section_5_1_1_messages_for_streams_that_the_peer_does_not_take_are_given_back() {
    let few = AssociationConfig { inbound_streams: 3, ..AssociationConfig::default() };
    let configs = [config(0, 1, AssociationConfig::default()), config(1, 1, few)];
    let mut w = World::with(2, configs, vec![LinkConfig::delay(ms(10))]);
    let a = w.connect(0);
    let ids: Vec<_> = [1, 2, 3, 500]
        .map(|s| w.ends[0].send(a, StreamId(s), vec![1; 50].into(), SendOptions::default()).unwrap())
        .to_vec();
    w.run(Duration::from_secs(1));
    assert_eq!(w.ends[0].streams(a).0, 3);
    let failed: Vec<_> = w.events[0]
        .iter()
        .filter_map(|(_, e)| match e {
            Event::Failed { message, sent, .. } => Some((*message, *sent)),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [(ids[2], false), (ids[3], false)]);
    let b = w.events[1][0].0;
    assert_eq!(w.read(1, b).len(), 2);
}

#[test]
fn section_5_2_4_a_peer_that_starts_again_with_fewer_streams_gets_what_it_takes() {
    let mut w = World::new(2, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let [a, _] = w.established();
    // The server receives nothing more, and then has lost its memory; what was not begun waits for
    // it.
    w.tap = Some(Box::new(|end, p| end == 1 || kinds(&p.bytes).iter().all(|k| [1, 2, 10, 11].contains(k))));
    w.send(0, a, 0, &[1; 60_000]);
    w.flush();
    w.send(0, a, 2, b"few");
    w.send(0, a, 900, b"too many");
    let few = AssociationConfig { inbound_streams: 5, ..AssociationConfig::default() };
    w.ends[1] = neater_sctp::Endpoint::new(config(1, 1, few), [77; 32], &[78; 32]);
    let (now, route) = (w.now, w.route(0, 0));
    let b = w.ends[1].connect(now, PORTS[0], &[route]).unwrap();
    w.run(ms(200));
    w.tap = None;
    w.run(Duration::from_secs(3));
    assert!(w.saw(0, &Event::Restarted), "{:?}", w.events[0]);
    let failed: Vec<_> = w.events[0]
        .iter()
        .filter_map(|(_, e)| match e {
            Event::Failed { stream, sent, .. } => Some((stream.0, *sent)),
            _ => None,
        })
        .collect();
    assert!(failed.contains(&(0, true)) && failed.contains(&(900, false)) && failed.len() == 2, "{failed:?}");
    let got: Vec<_> = w.read(1, b).into_iter().map(|m| m.payload).collect();
    assert_eq!(got, [b"few"]);
}

#[test]
fn section_3_3_3_an_init_ack_with_a_tag_of_zero_ends_the_attempt_without_a_word() {
    let (mut w, a, tag, log) = opening(AssociationConfig::default());
    let cookie = [StateCookie(&[1; 40]).into()];
    deliver(&mut w, 0, tag, &[InitAck(Init { tag: Tag::ZERO, ..init(Parameters::new(&cookie)) }).into()]);
    w.flush();
    assert!(matches!(w.closed(0), Some(CloseReason::Refused(_))));
    assert_eq!(kinds(&last(&log)), [1], "there is no tag to say it with");
    w.ends[0].release(a);
    assert_eq!(w.ends[0].kept(), 0);
}

#[test]
fn section_5_1_2_b_an_init_ack_with_a_host_name_is_answered_by_abort_with_that_name() {
    let (mut w, _, tag, log) = opening(AssociationConfig::default());
    let list = [StateCookie(&[1; 40]).into(), HostName(b"example.org\0").into()];
    deliver(&mut w, 0, tag, &[InitAck(init(Parameters::new(&list))).into()]);
    w.flush();
    assert!(matches!(w.closed(0), Some(CloseReason::Refused(why)) if why.contains("host")));
    let sent = last(&log);
    assert_eq!((kinds(&sent), Wire::parse(&sent).unwrap().header.tag), (vec![ABORT], Tag(5)));
    assert!(sent.windows(11).any(|w| w == b"example.org"));
}

#[test]
fn section_8_5_1_e_a_shutdown_ack_of_an_older_association_is_answered_while_the_new_one_opens() {
    let (mut w, a, _, log) = opening(AssociationConfig::default());
    deliver(&mut w, 0, Tag(4711), &[ShutdownAck.into()]);
    w.flush();
    let sent = last(&log);
    let packet = Wire::parse(&sent).unwrap();
    let Ok(Chunk::ShutdownComplete(complete)) = Chunk::decode(&packet.chunks().next().unwrap().unwrap()) else {
        panic!("{:?}", kinds(&sent))
    };
    assert_eq!((packet.header.tag, complete.reflected), (Tag(4711), true));
    assert_eq!((w.closed(0), w.ends[0].is_over(a)), (None, false), "and the handshake goes on");
    // With the right tag it is the same: nothing is shut down here.
    let tag = Tag(u32::from_be_bytes(log.borrow()[0].1[16..20].try_into().unwrap()));
    deliver(&mut w, 0, tag, &[ShutdownAck.into()]);
    w.flush();
    assert!(!w.ends[0].is_over(a));
}

#[test]
fn chunks_that_come_before_their_time_are_nothing() {
    let (mut w, a, tag, log) = opening(AssociationConfig::default());
    let sack = Sack { cumulative: Tsn(1), a_rwnd: 1, gaps: Array::EMPTY, duplicates: Array::EMPTY, packets: 0 };
    let payload = [1; 10];
    let data = neater_sctp_wire::chunk::Data { payload: &payload, ..crate::support::raw::data(5, true, true, b"") };
    let early: [Chunk<'_>; 6] = [
        sack.into(),
        data.into(),
        CookieAck.into(),
        Heartbeat { info: b"\0\x01\0\x08abcd" }.into(),
        neater_sctp_wire::chunk::Shutdown { cumulative: Tsn(1) }.into(),
        ShutdownComplete { reflected: false }.into(),
    ];
    let before = log.borrow().len();
    for chunk in early {
        deliver(&mut w, 0, tag, &[chunk]);
        w.flush();
        assert!(!w.ends[0].is_over(a), "{chunk:?}");
    }
    assert_eq!(log.borrow().len(), before, "in COOKIE-WAIT nothing is answered");
    assert!(w.ends[0].receive(a).is_none());
}

#[test]
fn section_8_4_1_what_does_not_come_from_one_host_is_not_answered() {
    let sources = ["224.0.0.1:9899", "255.255.255.255:9899", "0.0.0.0:9899", "[ff02::1]:9899", "[::]:9899"];
    for source in sources {
        let mut raw = Raw::listening(AssociationConfig::default());
        let from: SocketAddr = source.parse().unwrap();
        raw.give_from(from, Tag(9), &Heartbeat { info: b"\0\x01\0\x08abcd" });
        raw.give_from(from, Tag(9), &ShutdownAck);
        raw.give_from(from, Tag::ZERO, &init(Parameters::EMPTY));
        assert!(raw.take().is_empty(), "{source}");
        assert_eq!(raw.server.stats().cookies_sent, 0);
    }
}

#[test]
fn section_8_4_each_chunk_out_of_the_blue_has_its_answer() {
    let stale = [neater_sctp_wire::cause::StaleCookie { staleness_us: 1 }.into()];
    let other = [neater_sctp_wire::cause::OutOfResource.into()];
    let error = |causes: &'static [neater_sctp_wire::Cause<'static>]| -> Chunk<'static> {
        neater_sctp_wire::chunk::Error { causes: Causes::new(causes) }.into()
    };
    let (stale, other): (&'static _, &'static _) = (Box::leak(Box::new(stale)), Box::leak(Box::new(other)));
    let beat: Chunk<'_> = Heartbeat { info: b"\0\x01\0\x08abcd" }.into();
    let abort: Chunk<'_> = Abort { reflected: false, causes: Causes::EMPTY }.into();
    let complete: Chunk<'_> = ShutdownComplete { reflected: false }.into();
    let cases: Vec<(Vec<Chunk<'_>>, Option<u8>)> = vec![
        (vec![beat], Some(ABORT)),
        (vec![abort], None),
        (vec![beat, abort], None),
        (vec![ShutdownAck.into()], Some(ShutdownComplete::KIND)),
        (vec![beat, ShutdownAck.into()], Some(ShutdownComplete::KIND)),
        (vec![complete], None),
        (vec![CookieAck.into()], None),
        (vec![error(stale)], None),
        (vec![error(other)], Some(ABORT)),
    ];
    for (chunks, answer) in cases {
        let mut raw = Raw::listening(AssociationConfig::default());
        raw.tag = Tag(77);
        raw.together(&chunks);
        let sent = raw.take();
        assert_eq!(all_kinds(&sent), answer.into_iter().collect::<Vec<_>>(), "{chunks:?}");
        for packet in sent {
            assert_eq!(Wire::parse(&packet).unwrap().header.tag, Tag(77), "reflected");
            assert_eq!(packet[13] & 1, 1, "the T bit");
        }
        // With a tag of zero there is no endpoint to answer.
        raw.tag = Tag::ZERO;
        raw.together(&chunks);
        assert!(raw.take().is_empty());
    }
}

/// The cookie in an INIT ACK chunk, and the tag that it was sent with.
fn cookie(raw: &mut Raw) -> (Vec<u8>, Tag) {
    let (mut cookie, mut tag) = (Vec::new(), Tag::ZERO);
    each(&raw.take(), |_, chunk| {
        if let Chunk::InitAck(ack) = chunk {
            tag = ack.0.tag;
            cookie.extend(ack.0.parameters.iter().flatten().flat_map(|p| match p {
                Parameter::StateCookie(c) => c.0.to_vec(),
                _ => Vec::new(),
            }));
        }
    });
    assert!(!cookie.is_empty());
    (cookie, tag)
}

#[test]
fn section_5_1_5_a_cookie_counts_only_from_the_port_that_asked_for_it() {
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.init(9899);
    let (cookie, tag) = cookie(&mut raw);
    let bytes = crate::support::packet([PORTS[0] + 1, PORTS[1]], tag, &[CookieEcho { cookie: &cookie }.into()]);
    raw.server.handle_packet(raw.now, Route { layer: LayerId(0), remote: address(0, 0) }, false, &bytes);
    raw.give(9899, Tag(tag.0 ^ 1), &CookieEcho { cookie: &cookie });
    assert_eq!((raw.server.stats().cookies_refused, raw.server.kept()), (2, 0));
    // From another UDP port it is the same peer behind a NAT (RFC 6951 section 5.4).
    raw.give(4000, tag, &CookieEcho { cookie: &cookie });
    assert_eq!(raw.server.stats().accepted, 1);
}

#[test]
fn a_server_that_has_stopped_accepting_takes_no_cookie_that_it_gave_before() {
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.init(9899);
    let (cookie, tag) = cookie(&mut raw);
    raw.server.set_accept(false);
    raw.give(9899, tag, &CookieEcho { cookie: &cookie });
    assert_eq!((raw.server.stats().accepted, raw.server.kept()), (0, 0));
    assert!(raw.events().is_empty());
}

#[test]
fn addresses_in_an_init_chunk_that_cannot_be_paths_are_none_but_are_known() {
    let mut raw = Raw::listening(AssociationConfig::default());
    let listed: Vec<IpAddr> = ["224.0.0.5", "0.0.0.0", "255.255.255.255", "2001:db8::7", "10.0.0.1", "10.7.7.7"]
        .map(|a| a.parse().unwrap())
        .to_vec();
    let list: Vec<Parameter<'_>> = listed.iter().map(|a| Parameter::from(*a)).collect();
    raw.init_with(9899, Parameters::new(&list));
    let (cookie, tag) = cookie(&mut raw);
    raw.give(9899, tag, &CookieEcho { cookie: &cookie });
    let (id, event) = raw.server.poll_event().unwrap();
    assert_eq!(event, Event::Accepted);
    let paths: Vec<IpAddr> = raw.server.paths(id).iter().map(|p| p.route.remote.ip()).collect();
    assert_eq!(paths, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 7, 7, 7))]);
}

#[test]
fn a_packet_through_a_layer_that_there_is_not_or_for_nobody_is_nothing() {
    let mut raw = Raw::listening(AssociationConfig::default());
    let bytes = crate::support::packet(PORTS, Tag::ZERO, &[init(Parameters::EMPTY).into()]);
    raw.server.handle_packet(raw.now, Route { layer: LayerId(9), remote: address(0, 0) }, false, &bytes);
    assert!(raw.take().is_empty());
    for len in 0..bytes.len() {
        raw.server.handle_packet(raw.now, Route { layer: LayerId(0), remote: address(0, 0) }, false, &bytes[..len]);
    }
    assert!(raw.take().is_empty());
    assert_eq!(raw.server.stats().malformed, bytes.len() as u64, "cut anywhere");
    // A layer that comes later is one.
    let layer = raw.server.add_layer(Layer::udp());
    raw.server.handle_packet(raw.now, Route { layer, remote: address(0, 0) }, false, &bytes);
    assert_eq!(raw.take().len(), 1);
}

#[test]
fn a_reply_that_does_not_fit_into_the_buffer_is_dropped_and_the_next_one_goes() {
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.init(9899);
    raw.give(9899, Tag(9), &Heartbeat { info: b"\0\x01\0\x08abcd" });
    let mut small = [0; 100];
    let sent = raw.server.poll_transmit(raw.now, &mut small).unwrap();
    assert_eq!(kinds(&small[..sent.len]), [ABORT], "the INIT ACK packet is longer");
    assert!(raw.server.poll_transmit(raw.now, &mut small).is_none() && raw.server.is_idle());
}

#[test]
fn a_peer_s_first_tsn_may_be_the_last_number_there_is() {
    let mut raw = Raw::listening(AssociationConfig::rfc9260());
    raw.give(9899, Tag::ZERO, &Init { initial_tsn: Tsn(u32::MAX), ..init(Parameters::EMPTY) });
    let (cookie, tag) = cookie(&mut raw);
    raw.give(9899, tag, &CookieEcho { cookie: &cookie });
    raw.tag = tag;
    raw.id = raw.server.poll_event().map(|(id, _)| id);
    for (i, tsn) in [u32::MAX, 0, 1].into_iter().enumerate() {
        let ssn = neater_sctp_wire::Ssn(i as u16);
        raw.chunk(&neater_sctp_wire::chunk::Data { ssn, ..crate::support::raw::data(tsn, true, true, &[i as u8]) });
    }
    assert_eq!(raw.read().iter().map(|m| m.payload[0]).collect::<Vec<_>>(), [0, 1, 2]);
    let report = crate::support::watch::reports(&raw.wait(ms(500))).pop().unwrap();
    assert_eq!((report.cumulative, report.gaps.len()), (1, 0));
}

#[test]
fn both_abort_at_the_same_time_and_nothing_is_answered_twice() {
    let mut w = World::new(3, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    let log = record(&mut w);
    w.ends[0].abort(a, b"one");
    w.ends[1].abort(b, b"other");
    w.run(Duration::from_secs(2));
    let aborts: Vec<usize> = log.borrow().iter().filter(|(_, p)| kinds(p) == [ABORT]).map(|(e, _)| *e).collect();
    assert_eq!(aborts, [0, 1]);
    assert_eq!((w.closed(0), w.closed(1)), (Some(CloseReason::Aborted), Some(CloseReason::Aborted)));
}
