//! What is refused, by which side, and how that is reported.

use crate::support::raw::{FIRST, Raw};
use crate::support::{PORTS, Packet, World, address, kinds, ms};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{
    AddressChange, AssociationConfig, Authentication, CloseReason, Config, ConnectError, Event, Extensions, LayerId,
    Route,
};
use neater_sctp_wire::chunk::{Asconf, Error, Init, InitAck};
use neater_sctp_wire::parameter::{AddIncoming, StateCookie, SupportedExtensions};
use neater_sctp_wire::{Cause, Causes, Chunk, Packet as Wire, Parameter, Parameters, ReconfigSeq, Tag, Tsn};

#[test]
fn an_association_that_cannot_be_opened_is_refused_with_a_reason() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let (now, route) = (w.now, w.route(1, 0));
    let e = &mut w.ends[0];
    let elsewhere = Route { layer: LayerId(9), ..route };
    let cases = [
        (e.connect(now, 0, &[route]), ConnectError::NoPort),
        (e.connect(now, 1, &[]), ConnectError::NoRoute),
        (e.connect(now, 1, &[route, elsewhere]), ConnectError::NoSuchLayer),
    ];
    for (result, error) in cases {
        assert_eq!(result, Err(error));
        assert!(error.to_string().len() > 10);
    }
    e.connect(now, PORTS[1], &[route]).unwrap();
    assert_eq!(e.connect(now, PORTS[1], &[route]), Err(ConnectError::Exists));
    assert!(ConnectError::Exists.to_string().contains("already"));

    let config = Config { max_associations: 1, ..crate::support::config(1, 1, AssociationConfig::default()) };
    let mut w = World::with(
        1,
        [crate::support::config(0, 1, AssociationConfig::default()), config],
        vec![LinkConfig::delay(ms(10))],
    );
    w.established();
    let third = Route { layer: LayerId(0), remote: "10.0.0.77:9899".parse().unwrap() };
    let now = w.now;
    assert_eq!(w.ends[1].connect(now, 77, &[third]), Err(ConnectError::TooMany));
    assert!(ConnectError::TooMany.to_string().contains("as many"));
    // And a client is notified by ABORT (section 5.1, Out of Resource).
    let init = init(Parameters::EMPTY);
    let bytes = crate::support::packet([77, PORTS[1]], Tag::ZERO, &[init.into()]);
    w.deliver(1, 0, &Packet { from: third.remote, to: address(1, 0), bytes, ect: false, whole: true }, false);
    let mut buffer = vec![0; 1500];
    let sent = w.ends[1].poll_transmit(w.now, &mut buffer).unwrap();
    let first = Wire::parse(&buffer[..sent.len]).unwrap().chunks().next().unwrap().unwrap();
    let Ok(Chunk::Abort(abort)) = Chunk::decode(&first) else { panic!("{first:?}") };
    assert!(matches!(abort.causes.iter().next(), Some(Ok(Cause::OutOfResource(_)))));
}

fn init(parameters: Parameters<'_>) -> Init<'_> {
    Init { tag: Tag(5), a_rwnd: 5000, outbound_streams: 9, inbound_streams: 9, initial_tsn: Tsn(5), parameters }
}

/// A client whose INIT is answered by this INIT ACK chunk; how its attempt ends, and what it sends
/// last.
fn answered(config: AssociationConfig, ack: Init<'_>) -> (Option<CloseReason>, Vec<u8>, bool) {
    answered_over(config, ack, false)
}

/// The same, behind a layer that authenticates packets or not.
fn answered_over(config: AssociationConfig, ack: Init<'_>, protected: bool) -> (Option<CloseReason>, Vec<u8>, bool) {
    let mut configs =
        [crate::support::config(0, 1, config), crate::support::config(1, 1, AssociationConfig::default())];
    configs[0].layers[0].authenticates = protected;
    let mut w = World::with(1, configs, vec![LinkConfig::delay(ms(10))]);
    let log = crate::support::Log::default();
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        false
    }));
    w.connect(0);
    w.flush();
    let tag = Tag(u32::from_be_bytes(log.borrow()[0].1[16..20].try_into().unwrap()));
    let bytes = crate::support::packet([PORTS[1], PORTS[0]], tag, &[InitAck(ack).into()]);
    w.deliver(0, 0, &Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }, false);
    w.flush();
    let last = kinds(&log.borrow().last().unwrap().1);
    let reachable = w.saw(0, &Event::Reachable);
    (w.closed(0), last, reachable)
}

#[test]
fn an_init_ack_that_cannot_be_used_ends_the_attempt() {
    let default = AssociationConfig::default;
    let (closed, last, _) = answered(default(), init(Parameters::EMPTY));
    assert!(matches!(closed, Some(CloseReason::Refused(why)) if why.contains("cookie")), "{closed:?}");
    assert_eq!(last, [6], "ABORT: a mandatory parameter is missing");
    let long = [1; 1101];
    let cookie = [StateCookie(&long).into()];
    let (closed, last, _) = answered(default(), init(Parameters::new(&cookie)));
    assert!(matches!(closed, Some(CloseReason::Refused(why)) if why.contains("too long")), "{closed:?}");
    assert_eq!(last, [6]);
    // RFC 5061 section 6: a peer with ASCONF and without AUTH.
    let kinds = [Asconf::KIND, 0x80];
    let list = [StateCookie(&[1; 40]).into(), SupportedExtensions(&kinds).into()];
    let config =
        AssociationConfig { extensions: Extensions { dynamic_addresses: true, ..Extensions::default() }, ..default() };
    let (closed, last, _) = answered(config.clone(), init(Parameters::new(&list)));
    assert!(matches!(closed, Some(CloseReason::Refused(why)) if why.contains("authentication")), "{closed:?}");
    assert_eq!(last, [6]);
    // Behind DTLS it is left out instead: COOKIE ECHO follows.
    let (closed, last, reachable) = answered_over(config, init(Parameters::new(&list)), true);
    assert_eq!((closed, last, reachable), (None, vec![10], true));
    // What the client does not know is reported with the cookie.
    let mut list = vec![0, 7, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8];
    list.extend([0xf1, 0x23, 0, 8, 1, 2, 3, 4]);
    let (closed, last, reachable) = answered(default(), init(Parameters::from_bytes(&list)));
    assert_eq!((closed, last, reachable), (None, vec![10, Error::KIND], true));
}

#[test]
fn strict_authentication_says_why_it_refuses() {
    let config = AssociationConfig {
        extensions: Extensions { authentication: true, ..Extensions::default() },
        authentication: Authentication { required: vec![0], ..Authentication::default() },
        ..AssociationConfig::default()
    };
    let list = [StateCookie(&[1; 40]).into()];
    let (closed, last, _) = answered(config, init(Parameters::new(&list)));
    assert_eq!((closed, last), (Some(CloseReason::Refused("authentication is required")), vec![6]));
}

#[test]
fn a_peer_that_may_ask_for_more_of_our_streams_gets_them() {
    let config = AssociationConfig {
        outbound_streams: 200,
        extensions: Extensions { reconfiguration: true, ..Extensions::NONE },
        ..AssociationConfig::rfc9260()
    };
    let kinds = [130];
    let supported = [SupportedExtensions(&kinds).into()];
    let mut raw = Raw::connected_with(config, Parameters::new(&supported));
    let add = [AddIncoming { request: ReconfigSeq(FIRST), streams: 5 }.into()];
    raw.chunk(&neater_sctp_wire::chunk::ReConfig { parameters: Parameters::new(&add) });
    let mut asked = Vec::new();
    for packet in raw.take() {
        for chunk in Wire::parse(&packet).unwrap().chunks().flatten() {
            if let Ok(Chunk::ReConfig(r)) = Chunk::decode(&chunk) {
                asked.extend(r.parameters.iter().flatten().map(|p| match p {
                    Parameter::AddOutgoing(a) => u32::from(a.streams),
                    Parameter::ReconfigResponse(r) => 1000 + r.result.0,
                    other => panic!("{other:?}"),
                }));
            }
        }
    }
    asked.sort_unstable();
    assert_eq!(asked, [5, 1001], "performed, and our own request for them");
}

/// A client that has asked for a change, with the server's answers taken away by the tap that is
/// given.
fn asking(change: AddressChange, tap: crate::support::Tap) -> (World, neater_sctp::AssociationId) {
    let config = AssociationConfig {
        extensions: Extensions { dynamic_addresses: true, ..Extensions::default() },
        ..AssociationConfig::default()
    };
    // The server has room for one path: a second address is refused.
    let small = AssociationConfig { max_paths: 1, ..config.clone() };
    let mut client = crate::support::config(0, 2, config);
    client.tell_addresses = false;
    let links = vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(10))];
    let mut w = World::with(4, [client, crate::support::config(1, 1, small)], links);
    let (now, route) = (w.now, w.route(1, 0));
    let a = w.ends[0].connect(now, PORTS[1], &[route]).unwrap();
    w.run(Duration::from_secs(1));
    w.tap = Some(tap);
    w.ends[0].change_addresses(a, &[change, AddressChange::Prefer(LayerId(0))]).unwrap();
    w.run(Duration::from_secs(3));
    (w, a)
}

#[test]
fn a_change_that_the_peer_refuses_is_told_and_the_next_one_is_made() {
    let add = AddressChange::Add(LayerId(1));
    let (w, a) = asking(add, Box::new(|_, _| true));
    assert!(w.saw(0, &Event::AddressChanged { change: add, done: false }));
    assert!(w.saw(0, &Event::AddressChanged { change: AddressChange::Prefer(LayerId(0)), done: true }));
    assert_eq!((w.ends[0].paths(a).len(), w.closed(0)), (1, None));
}

#[test]
fn a_peer_that_does_not_know_asconf_is_not_asked_again() {
    // RFC 5061 section 5.1, A9.
    let add = AddressChange::Add(LayerId(1));
    let (mut w, a) = asking(add, Box::new(|end, packet| end == 1 || !kinds(&packet.bytes).contains(&Asconf::KIND)));
    assert!(!w.saw(0, &Event::AddressChanged { change: add, done: false }), "no answer yet");
    let log = crate::support::record(&mut w);
    w.send(1, w.events[1][0].0, 0, b"x");
    w.run(ms(200));
    let tag = log.borrow().iter().find(|(end, _)| *end == 1).map(|(_, b)| Wire::parse(b).unwrap().header.tag).unwrap();
    let unknown = [Asconf::KIND, 0, 0, 4];
    let causes = [Cause::UnrecognizedChunk(neater_sctp_wire::cause::UnrecognizedChunk(&unknown))];
    let bytes = crate::support::packet([PORTS[1], PORTS[0]], tag, &[Error { causes: Causes::new(&causes) }.into()]);
    w.deliver(0, 0, &Packet { from: address(1, 0), to: address(0, 0), bytes, ect: false, whole: true }, false);
    w.flush();
    for change in [add, AddressChange::Prefer(LayerId(0))] {
        assert!(w.saw(0, &Event::AddressChanged { change, done: false }), "{change:?}");
    }
    assert_eq!(w.ends[0].change_addresses(a, &[add]), Err(neater_sctp::AddressError::NotSupported));
}

/// Those of usrsctp and Linux have the INIT chunks of both sides in them, with all addresses.
#[test]
fn a_long_cookie_is_echoed() {
    let long = [1; 1100];
    let cookie = [StateCookie(&long).into()];
    for required in [vec![], vec![neater_sctp_wire::chunk::Data::KIND]] {
        let authentication = neater_sctp::Authentication { required, ..Default::default() };
        let config = AssociationConfig { authentication, ..AssociationConfig::default() };
        let (closed, last, reachable) = answered(config, init(Parameters::new(&cookie)));
        assert_eq!((closed, last.as_slice(), reachable), (None, &[10][..], true), "COOKIE ECHO");
    }
}
