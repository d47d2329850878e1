//! RFC 5061: addresses that come and go.

use crate::support::keys::{Handshake, handshake, signed};
use crate::support::{PORTS, Packet, World, address, kinds, ms, record};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{
    AddressChange, AddressError, AssociationConfig, AssociationId, CloseReason, Event, Extensions, LayerId, PathState,
    Route,
};
use neater_sctp_wire::chunk::{Asconf, AsconfAck, Auth};
use neater_sctp_wire::{AsconfSerial, Chunk, Packet as Wire, Parameter, Parameters, Tag};
use std::net::{IpAddr, Ipv4Addr};

const ONE: LayerId = LayerId(1);
const ZERO: LayerId = LayerId(0);

fn movable() -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions { dynamic_addresses: true, ..Extensions::default() },
        ..AssociationConfig::default()
    }
}

/// The client has two addresses and uses the first; the server has one. `told`: addresses are
/// named.
fn world(told: bool) -> (World, [AssociationId; 2]) {
    let mut client = crate::support::config(0, 2, movable());
    client.tell_addresses = told;
    let server = crate::support::config(1, 1, movable());
    let mut w = World::with(4, [client, server], vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))]);
    let route = w.route(1, 0);
    // Both addresses in the INIT chunk would be known from the beginning.
    let a = w.ends[0].connect(w.now, PORTS[1], &[route]).unwrap();
    w.run(Duration::from_secs(2));
    let b = w.events[1][0].0;
    (w, [a, b])
}

fn changed(w: &World, end: usize, change: AddressChange) -> Option<bool> {
    w.events[end].iter().rev().find_map(|(_, e)| match e {
        Event::AddressChanged { change: c, done } if *c == change => Some(*done),
        _ => None,
    })
}

fn exchange(w: &mut World, [a, b]: [AssociationId; 2]) {
    w.send(0, a, 0, &[1; 5000]);
    w.send(1, b, 0, &[2; 5000]);
    w.run(Duration::from_secs(5));
    assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1));
}

/// The client's first address can no longer be reached.
fn cut(w: &mut World) {
    let gone = address(0, 0);
    w.tap = Some(Box::new(move |_, packet| packet.from != gone && packet.to != gone));
}

#[test]
fn data_does_not_follow_a_packet_to_an_address_that_the_peer_has_not_named_but_to_another_port() {
    let (mut w, ids) = world(false);
    let before = w.ends[1].paths(ids[1]);
    let home = w.addresses[0][0];
    w.addresses[0][0].set_ip("10.0.0.77".parse().unwrap());
    w.send(0, ids[0], 0, b"from elsewhere");
    w.run(Duration::from_secs(1));
    assert_eq!(w.read(1, ids[1]).len(), 1, "the tag is right");
    let routes = |w: &World| w.ends[1].paths(ids[1]).iter().map(|p| p.route).collect::<Vec<_>>();
    assert_eq!(routes(&w), before.iter().map(|p| p.route).collect::<Vec<_>>());
    // A NAT has forgotten the port (RFC 6951 section 5.4).
    w.addresses[0][0] = home;
    w.addresses[0][0].set_port(7777);
    w.send(0, ids[0], 0, b"from another port");
    w.run(Duration::from_secs(5));
    assert_eq!(routes(&w)[0].remote, w.addresses[0][0]);
    w.read(1, ids[1]);
    exchange(&mut w, ids);
}

#[test]
fn an_address_is_added_behind_a_nat_and_the_old_one_goes() {
    let (mut w, ids) = world(false);
    let log = record(&mut w);
    w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ONE)]).unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(changed(&w, 0, AddressChange::Add(ONE)), Some(true));
    for (end, id) in ids.into_iter().enumerate() {
        let paths = w.ends[end].paths(id);
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths.iter().all(|p| p.state == PathState::Active), "verified: {paths:?}");
    }
    assert_eq!(w.ends[1].paths(ids[1])[1].route.remote, address(0, 1));
    // Only wildcards are in the packets, and AUTH is in front of them.
    let asconf: Vec<Vec<u8>> =
        log.borrow().iter().map(|(_, b)| b.clone()).filter(|b| kinds(b).contains(&Asconf::KIND)).collect();
    assert!(!asconf.is_empty());
    for bytes in &asconf {
        let kinds = kinds(bytes);
        assert!(kinds.iter().position(|k| *k == Auth::KIND) < kinds.iter().position(|k| *k == Asconf::KIND));
        for raw in Wire::parse(bytes).unwrap().chunks().flatten() {
            if let Ok(Chunk::Asconf(a)) = Chunk::decode(&raw) {
                assert!(a.address.is_unspecified());
                assert!(
                    a.requests.iter().flatten().all(|r| matches!(r, Parameter::AddIp(r) if r.address.is_unspecified()))
                );
            }
        }
    }
    w.ends[0].change_addresses(ids[0], &[AddressChange::Prefer(ONE), AddressChange::KeepOnly(ONE)]).unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(changed(&w, 0, AddressChange::Prefer(ONE)), Some(true));
    assert_eq!(changed(&w, 0, AddressChange::KeepOnly(ONE)), Some(true));
    cut(&mut w);
    exchange(&mut w, ids);
    assert_eq!(w.ends[1].paths(ids[1]).iter().map(|p| p.route.remote).collect::<Vec<_>>(), [address(0, 1)]);
    assert_eq!(w.ends[0].paths(ids[0]).iter().map(|p| p.route.layer).collect::<Vec<_>>(), [ONE]);
    assert!(w.events[1].iter().any(|(_, e)| matches!(e, Event::Path { state: PathState::Removed, .. })));
}

#[test]
fn addresses_that_are_told_are_named() {
    let (mut w, ids) = world(true);
    let log = record(&mut w);
    let changes = [AddressChange::Add(ONE), AddressChange::Prefer(ONE), AddressChange::Remove(ZERO)];
    w.ends[0].change_addresses(ids[0], &changes).unwrap();
    w.run(Duration::from_secs(3));
    assert_eq!(changes.map(|c| changed(&w, 0, c)), [Some(true); 3], "{:?}", w.events);
    let ip = address(0, 1).ip();
    let named = log.borrow().iter().any(|(_, b)| {
        Wire::parse(b).unwrap().chunks().flatten().any(|raw| {
            matches!(Chunk::decode(&raw), Ok(Chunk::Asconf(a))
                if a.requests.iter().flatten().any(|r| matches!(r, Parameter::AddIp(r) if r.address == ip)))
        })
    });
    assert!(named);
    exchange(&mut w, ids);
    assert_eq!(w.ends[1].paths(ids[1]).iter().map(|p| p.route.remote.ip()).collect::<Vec<_>>(), [ip]);
}

#[test]
fn what_is_in_flight_on_an_address_that_goes_takes_another_way() {
    let (mut w, ids) = world(false);
    w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ONE)]).unwrap();
    w.run(Duration::from_secs(1));
    // The server sends to the first address, which no longer receives anything; the client reports
    // so over the second.
    w.send(1, ids[1], 0, &[7; 60_000]);
    w.flush();
    cut(&mut w);
    w.ends[0].change_addresses(ids[0], &[AddressChange::KeepOnly(ONE)]).unwrap();
    let before = w.now;
    w.run_until(Duration::from_secs(60), |w| changed(w, 0, AddressChange::KeepOnly(ONE)) == Some(true));
    w.run(Duration::from_secs(2));
    assert_eq!(w.read(0, ids[0]).len(), 1, "after {:?}", w.now - before);
    assert_eq!(w.ends[1].buffered(ids[1]), 0);
}

#[test]
fn an_answer_that_is_lost_is_given_again_and_the_change_made_once() {
    for kind in [Asconf::KIND, AsconfAck::KIND] {
        let (mut w, ids) = world(false);
        let mut left = 2;
        w.tap = Some(Box::new(move |_, packet| {
            let hit = left > 0 && kinds(&packet.bytes).contains(&kind);
            left -= i32::from(hit);
            !hit
        }));
        w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ONE)]).unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(changed(&w, 0, AddressChange::Add(ONE)), Some(true), "{kind}");
        assert_eq!(w.ends[1].paths(ids[1]).len(), 2);
        assert_eq!(
            w.events[1].iter().filter(|(_, e)| matches!(e, Event::Path { state: PathState::Unconfirmed, .. })).count(),
            1
        );
    }
}

#[test]
fn a_peer_that_never_answers_is_unreachable() {
    let (mut w, ids) = world(false);
    w.tap = Some(Box::new(|end, _| end == 0));
    w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ONE)]).unwrap();
    w.run(Duration::from_secs(300));
    assert_eq!(w.closed(0), Some(CloseReason::Unreachable), "RFC 5061 section 5.1, B2");
}

#[test]
fn what_cannot_be_changed_is_said() {
    let (mut w, [a, b]) = world(false);
    let e = &mut w.ends[0];
    assert_eq!(e.change_addresses(a, &[AddressChange::Add(LayerId(9))]), Err(AddressError::NoSuchLayer));
    assert_eq!(e.change_addresses(a, &[AddressChange::Prefer(ONE)]), Err(AddressError::NoSuchLayer));
    assert_eq!(e.change_addresses(a, &[AddressChange::Remove(ZERO)]), Err(AddressError::LastAddress));
    assert_eq!(e.change_addresses(a, &[AddressChange::KeepOnly(ONE)]), Err(AddressError::LastAddress));
    assert_eq!(e.change_addresses(a, &[AddressChange::Add(ZERO); 17]), Err(AddressError::TooMany));
    let two = e.add_layer(crate::support::layer(2, 0));
    let many = [AddressChange::Add(ONE), AddressChange::Add(two), AddressChange::Remove(ZERO)];
    assert_eq!(e.change_addresses(a, &many), Err(AddressError::NotExpressible));
    e.abort(a, b"");
    assert_eq!(e.change_addresses(a, &[AddressChange::Add(ONE)]), Err(AddressError::NotEstablished));
    let _ = b;
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let [a, _] = w.established();
    assert_eq!(w.ends[0].change_addresses(a, &[AddressChange::Add(ZERO)]), Err(AddressError::NotSupported));
    for error in [
        AddressError::NotEstablished,
        AddressError::NotSupported,
        AddressError::NoSuchLayer,
        AddressError::TooMany,
        AddressError::LastAddress,
        AddressError::NotExpressible,
    ] {
        assert!(error.to_string().len() > 20);
    }
}

/// The answer of `end` to requests that come from `from` with our tag, in a packet that the tap
/// signs: the requests of another chunk are replaced before it is signed, so the association itself
/// is asked.
#[test]
fn requests_that_must_be_refused_are_refused_each_with_its_cause() {
    use neater_sctp_wire::parameter::{AddIp, DeleteIp, SetPrimary};
    let source = address(0, 0).ip();
    let other = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
    let add = |address, correlation| Parameter::from(AddIp { correlation, address });
    let delete = |address, correlation| Parameter::from(DeleteIp { correlation, address });
    let prefer = |address, correlation| Parameter::from(SetPrimary { correlation, address });
    // Requests, and for each the cause of its refusal.
    let cases: Vec<(Vec<Parameter<'static>>, Answers)> = vec![
        (vec![delete(source, 1)], vec![(1, Some(0xa0))]),
        (vec![add(other, 1), delete(source, 2)], vec![(2, Some(0xa2))]),
        (vec![add(IpAddr::V4(Ipv4Addr::BROADCAST), 1), add(other, 2)], vec![(1, Some(0xa4)), (2, Some(0xa1))]),
        (vec![prefer(other, 5), prefer(source, 6)], vec![(5, Some(0xa4)), (6, None)]),
        (vec![add(other, 1), add(other, 2), delete(other, 3)], vec![]),
        // Eight are done; by an error nothing behind them is taken for done (section 5.1, A7 and
        // A8).
        ((1..12).map(|i| prefer(source, i)).collect(), vec![(9, Some(0xa1))]),
    ];
    for (requests, expected) in cases {
        let (mut w, [_, b]) = world(false);
        let answers = ask(&mut w, &requests);
        assert_eq!(answers, Some(expected), "{requests:?}");
        assert_eq!(w.closed(1), None);
        assert!(w.ends[1].paths(b).iter().any(|p| p.route.remote == address(0, 0)));
    }
}

#[test]
fn no_more_addresses_than_paths_are_taken() {
    use neater_sctp_wire::parameter::AddIp;
    let (mut w, [_, b]) = world(false);
    let most = AssociationConfig::default().max_paths;
    let mut taken = 0;
    for i in 0..20u8 {
        let request = AddIp { correlation: 1, address: IpAddr::V4(Ipv4Addr::new(10, 9, 9, i)) };
        let answer = ask_with(&mut w, AsconfSerial(0).plus(u32::from(i)), &[request.into()]).unwrap();
        taken += usize::from(answer.is_empty());
        assert!(answer.is_empty() || answer == [(1, Some(0xa1))]);
    }
    assert_eq!((taken, w.ends[1].paths(b).len()), (most - 1, most));
}

#[test]
fn a_request_of_an_unknown_type_is_reported_if_its_type_says_so() {
    use neater_sctp_wire::parameter::AddIp;
    let (mut w, [_, b]) = world(false);
    let more = AddIp { correlation: 3, address: IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)) }.into();
    // Section 4.1.1: by the highest bits, as in RFC 9260 section 3.2.1; what follows is looked at.
    for (serial, kind, answers) in [(0, 0xc0ffu16, vec![(1, Some(8)), (3, None)]), (1, 0x80ff, vec![])] {
        let mut unknown = kind.to_be_bytes().to_vec();
        unknown.extend([0, 12, 0, 0, 0, 1, 9, 9, 9, 9]);
        let mut list: Vec<Parameter<'_>> = Parameters::from_bytes(&unknown).iter().map(Result::unwrap).collect();
        list.push(more);
        assert_eq!(ask_with(&mut w, AsconfSerial(serial), &list), Some(answers), "{kind:#x}");
    }
    assert_eq!(w.ends[1].paths(b).len(), 2);
}

#[test]
fn a_long_question_is_answered_in_a_packet_and_holds_up_nothing() {
    let (mut w, [a, b]) = world(false);
    // Four unknown requests of 200 bytes, each to be reported as it is.
    let mut unknown = Vec::new();
    for i in 1..=4u8 {
        unknown.extend([0xc0, 0xff, 0, 200, 0, 0, 0, i]);
        unknown.extend([9; 192]);
    }
    let list: Vec<Parameter<'_>> = Parameters::from_bytes(&unknown).iter().map(Result::unwrap).collect();
    let answers = ask(&mut w, &list).expect("an answer");
    assert_eq!(answers.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(answers.iter().all(|(_, cause)| cause.is_some()), "none is done: {answers:?}");
    exchange(&mut w, [a, b]);
}

#[test]
fn addresses_that_come_and_go_many_times_are_remembered_in_a_bounded_number() {
    use neater_sctp_wire::parameter::{AddIp, DeleteIp};
    let (mut w, [_, b]) = world(false);
    let before = format!("{:?}", w.ends[1]).len();
    for i in 0..200u32 {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a63_0000 + i));
        let add = AddIp { correlation: 1, address }.into();
        let delete = DeleteIp { correlation: 2, address }.into();
        assert_eq!(ask_with(&mut w, AsconfSerial(0).plus(i), &[add, delete]), Some(vec![]));
    }
    assert_eq!(w.ends[1].paths(b).len(), 1);
    // Each event of a path is kept for the application, 400 of them; of the addresses themselves no
    // more than 16.
    let events = core::iter::from_fn(|| w.ends[1].poll_event()).count();
    assert!(events >= 400, "{events}");
    let after = format!("{:?}", w.ends[1]).len();
    assert!(after < before + 4000, "{before} {after}");
}

/// The numbers of requests, each with the cause of its refusal if it was refused.
type Answers = Vec<(u32, Option<u16>)>;

fn ask(w: &mut World, requests: &[Parameter<'_>]) -> Option<Answers> {
    ask_with(w, AsconfSerial(0), requests)
}

/// Gives the server an ASCONF chunk, authenticated with keys that we compute here as in RFC 4895
/// section 6.1.
fn ask_with(w: &mut World, more: AsconfSerial, requests: &[Parameter<'_>]) -> Option<Answers> {
    let secrets = watched();
    let serial = AsconfSerial(secrets.initials[0].wrapping_add(more.0));
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let asconf = Asconf { serial, address: nowhere, requests: Parameters::new(requests) };
    let bytes = signed(PORTS, secrets.tags[1], &secrets.key, &[&asconf]);
    let packet = Packet { from: address_of_client(), to: address(1, 0), bytes, ect: false, whole: true };
    w.deliver(1, 0, &packet, false);
    let mut out = vec![0; 2000];
    let mut answers = None;
    while let Some(sent) = w.ends[1].poll_transmit(w.now, &mut out) {
        for raw in Wire::parse(&out[..sent.len]).unwrap().chunks().flatten() {
            if let Ok(Chunk::AsconfAck(ack)) = Chunk::decode(&raw) {
                assert_eq!(ack.serial, serial);
                assert_eq!(sent.route.remote, address_of_client(), "E6: to where it came from");
                let list = ack.responses.iter().map(|r| match r.unwrap() {
                    Parameter::ErrorIndication(e) => {
                        (e.correlation, Some(e.causes.iter().next().unwrap().unwrap().code()))
                    }
                    Parameter::Success(s) => (s.correlation, None),
                    other => panic!("{other:?}"),
                });
                answers = Some(list.collect());
            }
        }
    }
    answers
}

fn address_of_client() -> std::net::SocketAddr {
    address(0, 0)
}

/// Watches the handshake of a world like those of these tests: it is the same in all of them.
fn watched() -> Handshake {
    let mut client = crate::support::config(0, 2, movable());
    client.tell_addresses = false;
    let links = vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(15))];
    let mut twin = World::with(4, [client, crate::support::config(1, 1, movable())], links);
    let log = record(&mut twin);
    let route = twin.route(1, 0);
    twin.ends[0].connect(twin.now, PORTS[1], &[route]).unwrap();
    twin.run(Duration::from_secs(2));
    handshake(&log)
}

#[test]
fn an_answer_to_nothing_ends_the_association() {
    // F0: nothing is outstanding, and the number is not an old one.
    let (mut w, [_, b]) = world(false);
    let _ = b;
    let secrets = watched();
    let ids = w.ends[1].agreed(w.events[1][0].0).unwrap();
    assert!(ids.0.dynamic_addresses);
    // Half the circle of numbers is ahead of the server's, wherever it is.
    let acks = [0u32, 1 << 30, 1 << 31, 3 << 30]
        .map(|serial| AsconfAck { serial: AsconfSerial(serial), responses: Parameters::EMPTY });
    let bytes = signed(PORTS, secrets.tags[1], &secrets.key, &[&acks[0], &acks[1], &acks[2], &acks[3]]);
    w.deliver(1, 0, &Packet { from: address(0, 0), to: address(1, 0), bytes, ect: false, whole: true }, false);
    w.flush();
    assert!(matches!(w.closed(1), Some(CloseReason::PeerMisbehaved(_))));
}

#[test]
fn asconf_without_auth_is_dropped_with_all_that_follows() {
    let (mut w, [_, b]) = world(false);
    let secrets = watched();
    let request =
        [neater_sctp_wire::parameter::AddIp { correlation: 1, address: IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)) }.into()];
    let asconf = Asconf {
        serial: AsconfSerial(secrets.initials[0]),
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        requests: Parameters::new(&request),
    };
    let abort = neater_sctp_wire::chunk::Abort { reflected: false, causes: neater_sctp_wire::Causes::EMPTY };
    let bytes = crate::support::packet(PORTS, Tag(secrets.tags[1]), &[asconf.into(), abort.into()]);
    w.deliver(1, 0, &Packet { from: address(0, 0), to: address(1, 0), bytes, ect: false, whole: true }, false);
    w.flush();
    assert_eq!((w.closed(1), w.ends[1].paths(b).len()), (None, 1));
    assert_eq!(w.ends[1].association_stats(b).unwrap().unauthenticated, 1);
}

#[test]
fn a_deleted_address_is_not_adopted_again_from_a_stray_packet() {
    let (mut w, ids) = world(false);
    w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ONE)]).unwrap();
    w.run(Duration::from_secs(1));
    w.ends[0].change_addresses(ids[0], &[AddressChange::KeepOnly(ONE)]).unwrap();
    w.run(Duration::from_secs(1));
    // A packet of the association from the old address, as if it had been delayed.
    let secrets = handshake_tag(&mut w, ids[0]);
    let heartbeat = neater_sctp_wire::chunk::Heartbeat { info: b"late" };
    let bytes = crate::support::packet(PORTS, secrets, &[heartbeat.into()]);
    w.deliver(1, 0, &Packet { from: address(0, 0), to: address(1, 0), bytes, ect: false, whole: true }, false);
    w.run(Duration::from_secs(1));
    let remotes: Vec<_> = w.ends[1].paths(ids[1]).iter().map(|p| p.route).collect();
    assert_eq!(remotes, [Route { layer: ZERO, remote: address(0, 1) }]);
    // Until it is added again.
    w.ends[0].change_addresses(ids[0], &[AddressChange::Add(ZERO)]).unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(w.ends[1].paths(ids[1]).len(), 2);
    exchange(&mut w, ids);
}

/// The tag of packets to the server.
fn handshake_tag(w: &mut World, a: AssociationId) -> Tag {
    let log = record(w);
    w.send(0, a, 0, b"x");
    w.run(ms(200));
    let tag = log.borrow().iter().find(|(end, _)| *end == 0).map(|(_, b)| Wire::parse(b).unwrap().header.tag).unwrap();
    w.tap = None;
    let b = w.events[1][0].0;
    w.read(1, b);
    tag
}

#[test]
fn what_comes_into_the_place_of_a_preferred_address_is_not_preferred() {
    use neater_sctp_wire::parameter::{AddIp, DeleteIp, SetPrimary};
    let (mut w, [_, b]) = world(false);
    let second = address(0, 1).ip();
    let third = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
    w.ends[0].change_addresses(w.events[0][0].0, &[AddressChange::Add(ONE)]).unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(w.ends[1].paths(b).len(), 2);
    let prefer = SetPrimary { correlation: 1, address: second }.into();
    assert_eq!(ask_with(&mut w, AsconfSerial(1), &[prefer]), Some(vec![]));
    let primaries = |w: &World| w.events[1].iter().filter(|(_, e)| matches!(e, Event::PrimaryPath { .. })).count();
    let delete = DeleteIp { correlation: 2, address: second }.into();
    assert_eq!(ask_with(&mut w, AsconfSerial(2), &[delete]), Some(vec![]));
    w.run(ms(1));
    let before = primaries(&w);
    let add = AddIp { correlation: 3, address: third }.into();
    assert_eq!(ask_with(&mut w, AsconfSerial(3), &[add]), Some(vec![]));
    // The new address takes the place of the second one, and answers for it: the way there is
    // verified.
    w.addresses[0].push(std::net::SocketAddr::new(third, address(0, 0).port()));
    w.run(Duration::from_secs(5));
    assert_eq!(primaries(&w), before, "{:?}", w.events[1]);
}
