//! RFC 5061: where the peer wants data to go first, and changes that a peer does not understand or
//! forgets.

use crate::support::keys::{Handshake, handshake, signed};
use crate::support::{Log, PORTS, Packet, Tap, World, address, kinds, ms, record, sum};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{
    AddressChange, AddressError, AssociationConfig, AssociationId, Event, Extensions, LayerId, PathId, PathState,
};
use neater_sctp_wire::cause::UnrecognizedParameters;
use neater_sctp_wire::chunk::{Asconf, AsconfAck, Data, Init, InitAck};
use neater_sctp_wire::parameter::ErrorIndication;
use neater_sctp_wire::{AsconfSerial, Causes, Parameters};
use std::net::{IpAddr, Ipv4Addr};

fn movable(dynamic_addresses: bool) -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions { dynamic_addresses, ..Extensions::default() },
        ..AssociationConfig::default()
    }
}

/// Puts a SET PRIMARY parameter behind the others of a chunk that stands alone in its packet
/// (section 4.2.4).
fn prefer(kind: u8, wanted: IpAddr) -> Tap {
    Box::new(move |_, packet| {
        if kinds(&packet.bytes) == [kind] {
            let IpAddr::V4(wanted) = wanted else { panic!() };
            packet.bytes.extend([0xc0, 4, 0, 16, 0, 0, 0, 9, 0, 5, 0, 8]);
            packet.bytes.extend(wanted.octets());
            let len = (packet.bytes.len() - 12) as u16;
            packet.bytes[14..16].copy_from_slice(&len.to_be_bytes());
            sum(&mut packet.bytes);
        }
        true
    })
}

/// Two ends with two addresses each.
fn two_homes(tap: Tap, dynamic_addresses: bool) -> (World, [AssociationId; 2]) {
    let configs = [0, 1].map(|end| crate::support::config(end, 2, movable(dynamic_addresses)));
    let mut w = World::with(4, configs, vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))]);
    w.tap = Some(tap);
    let ids = w.established();
    w.run(Duration::from_secs(3));
    (w, ids)
}

/// Which addresses of the other side an end sends data to.
fn destinations(w: &mut World, end: usize, id: AssociationId) -> Vec<std::net::SocketAddr> {
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = seen.clone();
    w.tap = Some(Box::new(move |from, packet| {
        if from == end && kinds(&packet.bytes).iter().any(|k| [Data::KIND, 64].contains(k)) {
            log.borrow_mut().push(packet.to);
        }
        true
    }));
    w.send(end, id, 0, &[7; 5000]);
    w.run(Duration::from_secs(2));
    let mut found = seen.borrow().clone();
    found.dedup();
    found
}

fn chosen(w: &World, end: usize) -> Option<PathId> {
    w.events[end].iter().rev().find_map(|(_, e)| match e {
        Event::PrimaryPath { path } => Some(*path),
        _ => None,
    })
}

#[test]
fn section_4_2_4_an_init_chunk_may_say_where_data_is_to_go_first() {
    let second = address(0, 1);
    let (mut w, [a, b]) = two_homes(prefer(Init::KIND, second.ip()), true);
    assert_eq!(chosen(&w, 1), Some(PathId(1)));
    assert_eq!(destinations(&mut w, 1, b), [second]);
    // The other direction has its own mind.
    assert_eq!(chosen(&w, 0), None);
    assert_eq!(destinations(&mut w, 0, a), [address(1, 0)]);
}

#[test]
fn section_4_2_4_an_init_ack_chunk_may_say_it_too() {
    let second = address(1, 1);
    let (mut w, [a, b]) = two_homes(prefer(InitAck::KIND, second.ip()), true);
    assert_eq!((chosen(&w, 0), chosen(&w, 1)), (Some(PathId(1)), None));
    assert_eq!(destinations(&mut w, 0, a), [second]);
    assert_eq!(destinations(&mut w, 1, b), [address(0, 0)]);
}

#[test]
fn section_5_4_a_preferred_address_is_verified_before_it_is_used() {
    let second = address(0, 1);
    let mut ask = prefer(Init::KIND, second.ip());
    // Nothing reaches it: for example, a victim's address.
    let (mut w, [_, b]) = two_homes(Box::new(move |end, p| ask(end, p) && (end == 0 || p.to != second)), true);
    assert_eq!(w.ends[1].paths(b)[1].state, PathState::Unconfirmed);
    let log = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = log.clone();
    w.tap = Some(Box::new(move |end, p| {
        let there = end == 1 && p.to == second;
        // HEARTBEAT, and HEARTBEAT ACK, which may go to an address that is not confirmed.
        count.set(count.get() + i32::from(there && kinds(&p.bytes).iter().any(|k| ![4, 5].contains(k))));
        !there
    }));
    w.send(1, b, 0, &[7; 50_000]);
    w.run(Duration::from_secs(20));
    assert_eq!(w.read(0, w.events[0][0].0).len(), 1);
    assert_eq!((log.get(), chosen(&w, 1)), (0, None), "nothing but heartbeats and answers to them went there");
}

#[test]
fn a_preferred_address_that_is_none_of_the_peer_s_or_was_not_agreed_on_is_nothing() {
    let stranger = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5));
    let (w, _) = two_homes(prefer(Init::KIND, stranger), true);
    assert_eq!(chosen(&w, 1), None);
    // The wildcard is where the INIT chunk came from, where data goes anyway.
    let (w, _) = two_homes(prefer(Init::KIND, Ipv4Addr::UNSPECIFIED.into()), true);
    assert_eq!(chosen(&w, 1), None);
    let (mut w, [_, b]) = two_homes(prefer(Init::KIND, address(0, 1).ip()), false);
    assert_eq!(chosen(&w, 1), None);
    assert_eq!(destinations(&mut w, 1, b), [address(0, 0)]);
}

#[test]
fn a_preferred_path_that_fails_is_left_and_taken_again() {
    let second = address(0, 1);
    let (mut w, [_, b]) = two_homes(prefer(Init::KIND, second.ip()), true);
    w.tap = Some(Box::new(move |_, p| p.to != second && p.from != second));
    w.send(1, b, 0, &[7; 5000]);
    w.run(Duration::from_secs(10));
    assert_eq!(chosen(&w, 1), Some(PathId(0)));
    w.tap = None;
    w.run(Duration::from_secs(60));
    assert_eq!(destinations(&mut w, 1, b), [second]);
}

/// A client with two addresses, of which it uses one, and its handshake.
fn client() -> (World, [AssociationId; 2], Handshake) {
    let mut client = crate::support::config(0, 2, movable(true));
    client.tell_addresses = true;
    let configs = [client, crate::support::config(1, 1, movable(true))];
    let mut w = World::with(4, configs, vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))]);
    let log = record(&mut w);
    let route = w.route(1, 0);
    let a = w.ends[0].connect(w.now, PORTS[1], &[route]).unwrap();
    w.run(Duration::from_secs(2));
    let b = w.events[1][0].0;
    let known = handshake(&log);
    (w, [a, b], known)
}

/// The server does not understand this request: what it sends in place of its answer.
fn not_understood(known: &Handshake, serial: u32, request: &[u8]) -> Packet {
    let causes = [UnrecognizedParameters(request).into()];
    let indication = ErrorIndication { correlation: serial, causes: Causes::new(&causes) };
    let list = [indication.into()];
    let ack = AsconfAck { serial: AsconfSerial(serial), responses: Parameters::new(&list) };
    let bytes = signed([PORTS[1], PORTS[0]], known.tags[0], &known.key, &[&ack]);
    Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }
}

/// The ASCONF chunks that the client has sent: their serial numbers from its first on, and the
/// types of their requests.
fn asked(log: &Log, known: &Handshake) -> Vec<(u32, u16)> {
    let packets: Vec<Vec<u8>> = log.borrow().iter().filter(|(end, _)| *end == 0).map(|(_, b)| b.clone()).collect();
    let mut found = Vec::new();
    crate::support::watch::each(&packets, |_, chunk| {
        if let neater_sctp_wire::Chunk::Asconf(a) = chunk {
            let number = a.serial.0.wrapping_sub(known.initials[0]);
            found.extend(a.requests.iter().flatten().map(|r| (number, r.kind())));
        }
    });
    found.dedup();
    found
}

const ADD: u16 = 0xc001;
const PRIMARY: u16 = 0xc004;

#[test]
fn section_5_3_f3b_a_peer_that_does_not_understand_set_primary_is_never_asked_for_it_again() {
    let (mut w, [a, _], known) = client();
    let log = Log::default();
    let seen = log.clone();
    // It never reaches the server.
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        end == 1 || !kinds(&packet.bytes).contains(&Asconf::KIND)
    }));
    let prefer = AddressChange::Prefer(LayerId(0));
    let add = AddressChange::Add(LayerId(1));
    w.ends[0].change_addresses(a, &[prefer, prefer, add, prefer]).unwrap();
    w.run(ms(50));
    let packet = not_understood(&known, known.initials[0], &[0xc0, 4, 0, 16]);
    w.deliver(0, 0, &packet, false);
    w.run(ms(50));
    assert_eq!(asked(&log, &known), [(0, PRIMARY), (1, ADD)], "the other two are not sent");
    let refused = w.events[0].iter().filter(|(_, e)| *e == Event::AddressChanged { change: prefer, done: false });
    assert_eq!(refused.count(), 3);
    // Adding is another matter, and goes on; asking for it later is refused at once.
    w.tap = None;
    assert_eq!(w.ends[0].change_addresses(a, &[prefer]), Err(AddressError::NotSupported));
    assert_eq!(w.closed(0), None);
}

#[test]
fn section_5_3_f3a_a_peer_that_does_not_understand_adding_is_asked_for_nothing_more() {
    let (mut w, [a, _], known) = client();
    let log = Log::default();
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        end == 1 || !kinds(&packet.bytes).contains(&Asconf::KIND)
    }));
    let changes = [AddressChange::Add(LayerId(1)), AddressChange::Prefer(LayerId(1))];
    w.ends[0].change_addresses(a, &changes).unwrap();
    w.run(ms(50));
    let packet = not_understood(&known, known.initials[0], &[0xc0, 1, 0, 16]);
    w.deliver(0, 0, &packet, false);
    w.run(Duration::from_secs(5));
    assert_eq!(asked(&log, &known), [(0, ADD)]);
    for change in changes {
        assert!(w.saw(0, &Event::AddressChanged { change, done: false }), "{change:?}");
    }
    assert_eq!(w.ends[0].change_addresses(a, &changes), Err(AddressError::NotSupported));
    assert_eq!((w.closed(0), w.ends[0].paths(a).len()), (None, 1));
}

#[test]
fn section_5_1_an_old_answer_is_nothing_and_an_answer_is_taken_once() {
    let (mut w, [a, b], known) = client();
    let add = AddressChange::Add(LayerId(1));
    w.ends[0].change_addresses(a, &[add]).unwrap();
    w.run(Duration::from_secs(2));
    assert!(w.saw(0, &Event::AddressChanged { change: add, done: true }));
    // The same number again, refused this time: it is old.
    let packet = not_understood(&known, known.initials[0], &[0xc0, 1, 0, 16]);
    w.deliver(0, 0, &packet, false);
    w.run(ms(100));
    assert_eq!((w.closed(0), w.ends[0].paths(a).len(), w.ends[1].paths(b).len()), (None, 2, 2));
    assert!(w.ends[0].agreed(a).unwrap().0.dynamic_addresses);
}

#[test]
fn requests_that_a_peer_forgets_by_starting_again_are_reported_as_not_done() {
    let (mut w, [a, _], _) = client();
    // Neither request reaches the server, which then loses its memory.
    w.tap = Some(Box::new(|end, p| end == 1 || !kinds(&p.bytes).iter().any(|k| [Asconf::KIND, 130].contains(k))));
    let changes = [AddressChange::Add(LayerId(1)), AddressChange::Prefer(LayerId(1))];
    w.ends[0].change_addresses(a, &changes).unwrap();
    let streams = vec![neater_sctp::StreamId(2)];
    w.ends[0].reset_outgoing(a, &streams).unwrap();
    w.run(ms(100));
    w.ends[1] = neater_sctp::Endpoint::new(crate::support::config(1, 1, movable(true)), [99; 32], &[9; 32]);
    let (now, route) = (w.now, w.route(0, 0));
    w.ends[1].connect(now, PORTS[0], &[route]).unwrap();
    w.run(Duration::from_secs(3));
    assert!(w.saw(0, &Event::Restarted), "{:?}", w.events[0]);
    for change in changes {
        assert!(w.saw(0, &Event::AddressChanged { change, done: false }), "{change:?}");
    }
    assert!(w.saw(0, &Event::OutgoingReset { streams, done: false }));
    // A request for more streams is forgotten, too.
    w.ends[0].add_outgoing(a, 3).unwrap();
    w.run(ms(100));
    w.ends[1] = neater_sctp::Endpoint::new(crate::support::config(1, 1, movable(true)), [98; 32], &[8; 32]);
    let (now, route) = (w.now, w.route(0, 0));
    w.ends[1].connect(now, PORTS[0], &[route]).unwrap();
    w.run(Duration::from_secs(3));
    let (streams, _) = w.ends[0].streams(a);
    assert!(w.saw(0, &Event::StreamsAdded { outbound: streams, done: false }), "{:?}", w.events[0]);
    // All of it can be asked for again.
    w.tap = None;
    w.ends[0].change_addresses(a, &changes[..1]).unwrap();
    w.ends[0].add_outgoing(a, 3).unwrap();
    w.run(Duration::from_secs(3));
    assert!(w.saw(0, &Event::AddressChanged { change: changes[0], done: true }));
    assert!(w.events[0].iter().any(|(_, e)| matches!(e, Event::StreamsAdded { done: true, .. })));
}
