//! RFC 4895: authenticated chunks.

use crate::support::{PORTS, Packet, World, address, kinds, ms, record, sum};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, Authentication, CloseReason, Event, Extensions, SharedKey};
use neater_sctp_wire::chunk::{Abort, Auth, CookieAck, CookieEcho, Data, HmacId, Init, Sack};
use neater_sctp_wire::parameter::{HmacAlgo, Random};
use neater_sctp_wire::{Array, Cause, Causes, Chunk, Packet as Wire, Parameters, Ppid, Ssn, StreamId, Tag, Tsn};

const AUTH: u8 = Auth::KIND;
const DATA: u8 = Data::KIND;
const COOKIE_ECHO: u8 = CookieEcho::KIND;

fn authenticating(required: &[u8]) -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions { authentication: true, interleaving: false, ..Extensions::default() },
        authentication: Authentication { required: required.to_vec(), ..Authentication::default() },
        ..AssociationConfig::default()
    }
}

fn key(id: u16, secret: &[u8]) -> SharedKey {
    SharedKey { id, secret: secret.to_vec() }
}

/// Both ends with these settings of the client and of the server.
fn world(client: AssociationConfig, server: AssociationConfig) -> World {
    let configs = [crate::support::config(0, 1, client), crate::support::config(1, 1, server)];
    World::with(3, configs, vec![LinkConfig::delay(ms(10))])
}

fn exchange(w: &mut World, [a, b]: [AssociationId; 2]) {
    w.send(0, a, 0, &[1; 5000]);
    w.send(1, b, 0, &[2; 5000]);
    w.run(Duration::from_secs(3));
    assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1));
}

/// The tag that an end puts into its packets.
fn tag_of(log: &crate::support::Log, end: usize) -> Tag {
    let log = log.borrow();
    let (_, bytes) = log.iter().rev().find(|(e, _)| *e == end).unwrap();
    Wire::parse(bytes).unwrap().header.tag
}

#[test]
fn chunks_that_the_peer_requires_go_behind_auth_and_others_need_not() {
    let mut w = world(authenticating(&[DATA]), authenticating(&[]));
    let log = record(&mut w);
    let ids = w.established();
    assert!(w.ends[0].agreed(ids[0]).unwrap().0.authentication);
    exchange(&mut w, ids);
    let data = |end| {
        let log = log.borrow();
        log.iter().filter(|(e, b)| *e == end && kinds(b).contains(&DATA)).map(|(_, b)| kinds(b)).collect::<Vec<_>>()
    };
    assert!(data(0).len() >= 5 && data(0).iter().all(|k| !k.contains(&AUTH)), "the server requires nothing");
    for kinds in data(1) {
        let (auth, first) = (kinds.iter().position(|k| *k == AUTH), kinds.iter().position(|k| *k == DATA));
        assert!(auth.is_some() && auth < first, "{kinds:?}");
    }
    assert!(log.borrow().iter().all(|(_, b)| b.len() <= 1232));
}

#[test]
fn what_was_changed_on_the_way_is_dropped_silently_and_comes_again() {
    let mut w = world(authenticating(&[DATA]), authenticating(&[DATA]));
    let ids = w.established();
    w.run(ms(100));
    let mut left = 3;
    w.tap = Some(Box::new(move |_, packet| {
        if left > 0 && kinds(&packet.bytes).contains(&DATA) {
            left -= 1;
            *packet.bytes.last_mut().unwrap() ^= 1;
            sum(&mut packet.bytes);
        }
        true
    }));
    exchange(&mut w, ids);
    let refused = |end: usize| w.ends[end].association_stats(ids[end]).unwrap().unauthenticated;
    assert_eq!(refused(0) + refused(1), 3);
}

#[test]
fn a_required_chunk_without_auth_is_as_if_it_had_not_come() {
    for (required, expect_open) in [(vec![Abort::KIND], true), (vec![DATA], false)] {
        let mut w = world(authenticating(&required), authenticating(&[]));
        let log = record(&mut w);
        let [a, _] = w.established();
        w.run(ms(200));
        let tag = tag_of(&log, 1);
        let abort = Chunk::Abort(Abort { reflected: false, causes: Causes::EMPTY });
        let bytes = crate::support::packet([PORTS[1], PORTS[0]], tag, &[abort]);
        w.deliver(0, 0, &Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }, false);
        w.run(ms(100));
        assert_eq!(w.closed(0).is_none(), expect_open, "{required:?}");
        if expect_open {
            assert_eq!(w.ends[0].association_stats(a).unwrap().unauthenticated, 1);
            // The peer's own ABORT is authenticated.
            let b = w.events[1][0].0;
            w.ends[1].abort(b, b"bye");
            w.run(ms(100));
            assert!(matches!(w.closed(0), Some(CloseReason::PeerAborted { .. })));
        }
    }
}

/// RFC 9260 section 6 and our exception: data of an established peer stands for its COOKIE ACK
/// chunk.
#[test]
fn data_does_not_stand_for_a_cookie_ack_that_must_be_authenticated() {
    for (required, taken) in [(vec![], true), (vec![CookieAck::KIND], false)] {
        let mut w = world(authenticating(&required), authenticating(&[]));
        let log = crate::support::Log::default();
        let seen = log.clone();
        w.tap = Some(Box::new(move |end, packet| {
            seen.borrow_mut().push((end, packet.bytes.clone()));
            // The cookie does not get through.
            end == 1 || kinds(&packet.bytes)[0] == Init::KIND
        }));
        w.connect(0);
        w.run(ms(200));
        let (tag, initial) = log
            .borrow()
            .iter()
            .find_map(|(_, bytes)| {
                let packet = Wire::parse(bytes).unwrap();
                match Chunk::decode(&packet.chunks().next().unwrap().unwrap()).unwrap() {
                    Chunk::InitAck(ack) => Some((packet.header.tag, ack.0.initial_tsn)),
                    _ => None,
                }
            })
            .unwrap();
        let data = Data::whole(initial, StreamId(0), Ssn(0), Ppid(0));
        let bytes = crate::support::packet([PORTS[1], PORTS[0]], tag, &[Data { payload: b"so there", ..data }.into()]);
        w.deliver(0, 0, &Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }, false);
        w.run(ms(100));
        assert_eq!(w.saw(0, &Event::Connected), taken, "{required:?}");
        assert_eq!(w.saw(0, &Event::Readable), taken, "{required:?}");
    }
}

#[test]
fn a_server_takes_only_clients_that_have_its_key() {
    let with = |keys: Vec<SharedKey>, id| {
        let mut c = authenticating(&[COOKIE_ECHO]);
        (c.authentication.keys, c.authentication.key) = (keys, id);
        c
    };
    let server = || with(vec![key(1, b"first"), key(7, b"seventh")], 1);
    for (client, good) in [
        (with(vec![key(7, b"seventh"), key(1, b"first")], 7), true),
        (with(vec![key(7, b"wrong")], 7), false),
        (with(vec![key(9, b"seventh")], 9), false),
        (with(vec![], 0), false),
    ] {
        let what = format!("{:?}", client.authentication);
        let mut w = world(client, server());
        let log = record(&mut w);
        let a = w.connect(0);
        w.send(0, a, 0, b"early");
        w.run(Duration::from_secs(2));
        assert_eq!(w.saw(1, &Event::Accepted), good, "{what}");
        assert_eq!(w.ends[1].kept(), usize::from(good), "{what}");
        let echo = log.borrow().iter().map(|(_, b)| kinds(b)).find(|k| k.contains(&COOKIE_ECHO)).unwrap();
        assert_eq!(echo[..3], [AUTH, COOKIE_ECHO, DATA], "{what}");
        assert_eq!(w.ends[1].stats().cookies_refused > 0, !good, "{what}");
        if good {
            let b = w.events[1][0].0;
            assert_eq!(w.read(1, b)[0].payload, b"early");
        }
    }
}

#[test]
fn keys_are_changed_while_the_association_lives() {
    let mut w = world(authenticating(&[DATA]), authenticating(&[DATA]));
    let ids = w.established();
    exchange(&mut w, ids);
    for (end, id) in ids.into_iter().enumerate() {
        assert!(w.ends[end].set_key(id, key(0, b"")));
        assert!(w.ends[end].set_key(id, key(5, b"new")));
    }
    exchange(&mut w, ids);
    assert!(w.ends[0].use_key(ids[0], 5) && !w.ends[0].use_key(ids[0], 6));
    exchange(&mut w, ids);
    assert!(!w.ends[0].remove_key(ids[0], 5), "in use");
    assert!(w.ends[1].use_key(ids[1], 5));
    assert!(w.ends[0].remove_key(ids[0], 0) && !w.ends[0].remove_key(ids[0], 0));
    exchange(&mut w, ids);
    // Without the key that the peer uses nothing gets through, and nothing breaks.
    assert!(w.ends[1].use_key(ids[1], 0) && w.ends[1].remove_key(ids[1], 5));
    w.send(0, ids[0], 0, b"unheard");
    w.run(Duration::from_secs(2));
    assert!(w.read(1, ids[1]).is_empty());
    assert!(w.ends[1].set_key(ids[1], key(5, b"new")));
    w.run(Duration::from_secs(10));
    assert_eq!(w.read(1, ids[1]).len(), 1);
    for id in 10..40 {
        let taken = w.ends[0].set_key(ids[0], key(id, b"x"));
        assert_eq!(taken, id < 25, "at most 16");
    }
    assert!(!format!("{:?}", key(1, b"secret")).contains("secret"));
}

#[test]
fn an_algorithm_that_was_not_asked_for_is_reported() {
    let mut w = world(authenticating(&[DATA]), authenticating(&[]));
    let log = record(&mut w);
    let [a, _] = w.established();
    w.run(ms(200));
    let tag = tag_of(&log, 1);
    let sack = Sack { cumulative: Tsn(0), a_rwnd: 1, gaps: Array::EMPTY, duplicates: Array::EMPTY, packets: 0 };
    let auth = Auth { key: 0, hmac: HmacId(2), digest: &[0; 16] };
    let bytes = crate::support::packet([PORTS[1], PORTS[0]], tag, &[auth.into(), sack.into()]);
    w.deliver(0, 0, &Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }, false);
    w.run(ms(50));
    assert_eq!(w.closed(0), None, "the SACK behind it was not looked at");
    let reported = log.borrow().iter().any(|(end, b)| {
        *end == 0
            && Wire::parse(b).unwrap().chunks().flatten().any(|c| match Chunk::decode(&c) {
                Ok(Chunk::Error(e)) => e.causes.iter().flatten().any(|c| matches!(c, Cause::UnsupportedHmac(_))),
                _ => false,
            })
    });
    assert!(reported && w.ends[0].association_stats(a).unwrap().unauthenticated == 1);
}

#[test]
fn digests_are_sha256_if_both_can_and_sha1_else() {
    for (sha256, len) in [(true, 8 + 32), (false, 8 + 20)] {
        let mut server = authenticating(&[DATA]);
        server.authentication.sha256 = sha256;
        let mut w = world(authenticating(&[DATA]), server);
        let log = record(&mut w);
        let ids = w.established();
        exchange(&mut w, ids);
        let log = log.borrow();
        let from_client = log.iter().filter(|(end, _)| *end == 0).flat_map(|(_, b)| {
            Wire::parse(b)
                .unwrap()
                .chunks()
                .flatten()
                .filter(|c| c.kind == AUTH)
                .map(|c| c.bytes.len())
                .collect::<Vec<_>>()
        });
        let lens: Vec<usize> = from_client.collect();
        assert!(!lens.is_empty() && lens.iter().all(|l| *l == len), "{lens:?}");
    }
}

#[test]
fn a_peer_without_authentication_is_refused_if_it_is_needed_and_else_served() {
    for (required, good) in [(vec![DATA], false), (vec![], true)] {
        for strict in [0, 1] {
            let mut configs = [AssociationConfig::default(), AssociationConfig::default()];
            configs[strict] = authenticating(&required);
            let [client, server] = configs;
            let mut w = world(client, server);
            w.connect(0);
            w.run(Duration::from_secs(5));
            assert_eq!(w.saw(0, &Event::Connected), good, "{required:?} {strict}");
            assert_eq!(w.closed(0).is_some(), !good, "{required:?} {strict}");
        }
    }
}

#[test]
fn a_restart_and_a_collision_have_new_keys_on_both_sides() {
    let mut w = world(authenticating(&[DATA]), authenticating(&[DATA]));
    let [_, b] = w.established();
    // The client starts again from nothing.
    let config = crate::support::config(0, 1, authenticating(&[DATA]));
    w.ends[0] = neater_sctp::Endpoint::new(config, [77; 32], &[78; 32]);
    let a = w.connect(0);
    w.run(Duration::from_secs(3));
    assert!(w.saw(1, &Event::Restarted));
    exchange(&mut w, [a, b]);

    // At 15 ms the server has answered the client's INIT, with another tag and random number than
    // those of its own INIT.
    for after in [0, 5, 15] {
        let mut w = world(authenticating(&[DATA, COOKIE_ECHO]), authenticating(&[DATA, COOKIE_ECHO]));
        let a = w.connect(0);
        w.run(ms(after));
        let ids = [a, w.connect(1)];
        w.run(Duration::from_secs(3));
        assert!(w.saw(0, &Event::Connected) && w.saw(1, &Event::Connected), "{after}");
        exchange(&mut w, ids);
    }
}

/// RFC 4895 section 3.3: a list of algorithms has SHA-1 in it. One without any that we have is an
/// attacker's on the path, who would rather that nothing is authenticated.
#[test]
fn a_list_of_algorithms_that_nobody_has_does_not_switch_authentication_off() {
    for (algorithm, required, kind) in [(1, vec![DATA], 2), (2, vec![DATA], Abort::KIND), (2, vec![], 2)] {
        let mut w = world(authenticating(&[]), authenticating(&required));
        let ids = [HmacId(algorithm)];
        let parameters = [Random(&[5; 32]).into(), HmacAlgo { algorithms: Array::new(&ids) }.into()];
        let init = Init {
            tag: Tag(9),
            a_rwnd: 10_000,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::new(&parameters),
        };
        let bytes = crate::support::packet(PORTS, Tag::ZERO, &[init.into()]);
        w.deliver(1, 0, &Packet { from: address(0, 0), to: address(1, 0), bytes, ect: false, whole: true }, false);
        let mut buffer = vec![0; 2000];
        let sent = w.ends[1].poll_transmit(w.now, &mut buffer).unwrap();
        assert_eq!(kinds(&buffer[..sent.len]), [kind], "{algorithm} {required:?}");
    }
}

#[test]
fn a_random_number_of_another_length_is_a_violation() {
    let mut w = world(authenticating(&[]), authenticating(&[]));
    let ids = [HmacId::SHA1];
    for (len, kind) in [(31, Abort::KIND), (32, 2), (33, Abort::KIND)] {
        let random = vec![5; len];
        let parameters = [Random(&random).into(), HmacAlgo { algorithms: Array::new(&ids) }.into()];
        let init = Init {
            tag: Tag(9),
            a_rwnd: 10_000,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::new(&parameters),
        };
        let bytes = crate::support::packet(PORTS, Tag::ZERO, &[init.into()]);
        w.deliver(1, 0, &Packet { from: address(0, 0), to: address(1, 0), bytes, ect: false, whole: true }, false);
        let mut buffer = vec![0; 2000];
        let sent = w.ends[1].poll_transmit(w.now, &mut buffer).unwrap();
        assert_eq!(kinds(&buffer[..sent.len]), [kind], "{len}");
    }
}
