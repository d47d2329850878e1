//! RFC 6951: packets in UDP, whose ports and addresses may change under an association.

use crate::support::{PORTS, Packet, World, address, kinds, ms, record};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, Event, LayerId, Route};
use neater_sctp_wire::chunk::Heartbeat;
use neater_sctp_wire::{Packet as Wire, Tag};
use std::net::SocketAddr;

const HEARTBEAT: u8 = Heartbeat::KIND;

fn world(association: AssociationConfig) -> (World, [AssociationId; 2]) {
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let ids = w.established();
    w.run(ms(500));
    (w, ids)
}

fn heartbeats(association: AssociationConfig, port: u16) -> usize {
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    (0..2).for_each(|end| w.addresses[end][0].set_port(port));
    w.established();
    let log = record(&mut w);
    w.run(Duration::from_secs(300));
    let log = log.borrow();
    log.iter().filter(|(end, b)| *end == 0 && kinds(b)[0] == HEARTBEAT).count()
}

#[test]
fn idle_paths_in_udp_are_kept_open_every_fifteen_seconds() {
    let default = AssociationConfig::default;
    let in_udp = heartbeats(default(), 9899);
    assert!((18..=20).contains(&in_udp), "{in_udp} in 300 s");
    let over_ip = heartbeats(default(), 0);
    assert!((8..=10).contains(&over_ip), "{over_ip} in 300 s: HB.interval is 30 s");
    let faster = AssociationConfig { encapsulated_heartbeat_interval: Some(Duration::from_secs(5)), ..default() };
    assert!(heartbeats(faster, 9899) > 50);
    let not = AssociationConfig { encapsulated_heartbeat_interval: None, ..default() };
    assert_eq!(heartbeats(not, 9899), over_ip);
    let silent = AssociationConfig { heartbeat_interval: None, ..default() };
    assert_eq!(heartbeats(silent, 9899), 0);
}

fn tag_of(w: &mut World, from: usize, id: AssociationId) -> Tag {
    let log = record(w);
    w.send(from, id, 0, b"x");
    w.run(ms(300));
    let tag = log.borrow().iter().find(|(end, _)| *end == from).map(|(_, b)| Wire::parse(b).unwrap().header.tag);
    w.tap = None;
    tag.unwrap()
}

/// What the server sends from now on, and where to.
fn destinations(w: &mut World, time: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        if end == 1 {
            seen.borrow_mut().push((packet.to, packet.bytes.clone()));
        }
        true
    }));
    w.run(time);
    w.tap = None;
    log.take()
}

fn stray(w: &mut World, from: SocketAddr, tag: Tag) {
    let heartbeat = Heartbeat { info: b"hello" };
    let bytes = crate::support::packet(PORTS, tag, &[heartbeat.into()]);
    w.deliver(1, 0, &Packet { from, to: address(1, 0), bytes, ect: false, whole: true }, false);
}

#[test]
fn one_packet_from_elsewhere_moves_nothing_until_a_nonce_has_come_back_from_there() {
    let (mut w, [a, b]) = world(AssociationConfig::default());
    let tag = tag_of(&mut w, 0, a);
    w.read(1, b);
    let thief: SocketAddr = "10.0.0.66:666".parse().unwrap();
    stray(&mut w, thief, tag);
    w.send(1, b, 0, &[5; 3000]);
    let sent = destinations(&mut w, Duration::from_secs(5));
    let (to_thief, to_client): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(to, _)| *to == thief);
    assert!(!to_thief.is_empty() && to_thief.len() <= 3, "an answer and a question: {}", to_thief.len());
    assert!(to_thief.iter().all(|(_, b)| kinds(b).iter().all(|k| [4, 5].contains(k))), "no data");
    assert!(to_client.len() >= 3);
    assert_eq!(w.ends[1].paths(b)[0].route.remote, address(0, 0));
    assert_eq!(w.read(0, a).len(), 1);
}

#[test]
fn a_nonce_that_comes_back_from_yet_elsewhere_or_a_wrong_one_moves_nothing() {
    let (mut w, [a, b]) = world(AssociationConfig::default());
    let tag = tag_of(&mut w, 0, a);
    let (second, third): (SocketAddr, SocketAddr) =
        ("10.0.0.66:666".parse().unwrap(), "10.0.0.67:667".parse().unwrap());
    stray(&mut w, second, tag);
    let mut buffer = vec![0; 2000];
    let mut info = None;
    while let Some(t) = w.ends[1].poll_transmit(w.now, &mut buffer) {
        for raw in Wire::parse(&buffer[..t.len]).unwrap().chunks().flatten().filter(|c| c.kind == HEARTBEAT) {
            assert_eq!(t.route.remote, second);
            info = Some(raw.value[4..].to_vec());
        }
    }
    let info = info.expect("a question");
    let answer = |w: &mut World, from, info: &[u8]| {
        let ack = neater_sctp_wire::chunk::HeartbeatAck { info };
        let bytes = crate::support::packet(PORTS, tag, &[ack.into()]);
        w.deliver(1, 0, &Packet { from, to: address(1, 0), bytes, ect: false, whole: true }, false);
        w.ends[1].paths(b)[0].route.remote
    };
    let mut wrong = info.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(answer(&mut w, second, &wrong), address(0, 0));
    assert_eq!(answer(&mut w, third, &info), address(0, 0));
    assert_eq!(answer(&mut w, second, &info[..5]), address(0, 0));
    // The right one from the right place.
    assert_eq!(answer(&mut w, second, &info), second);
    assert_eq!(w.ends[1].paths(b).len(), 1, "it took the place of the other");
}

#[test]
fn a_packet_with_a_wrong_tag_does_not_even_raise_the_question() {
    let (mut w, [a, _]) = world(AssociationConfig::default());
    let tag = tag_of(&mut w, 0, a);
    let thief: SocketAddr = "10.0.0.66:666".parse().unwrap();
    stray(&mut w, thief, Tag(tag.0 ^ 4));
    let sent = destinations(&mut w, Duration::from_secs(5));
    assert!(sent.iter().all(|(to, b)| *to != thief || kinds(b) == [6]), "at most an ABORT chunk");
}

#[test]
fn a_new_way_starts_with_a_fresh_window() {
    let (mut w, [a, b]) = world(AssociationConfig::default());
    for _ in 0..20 {
        w.send(1, b, 0, &[1; 60_000]);
        w.run(ms(200));
        w.read(0, a);
    }
    let before = w.ends[1].paths(b)[0].window;
    w.addresses[0][0].set_port(7777);
    w.send(0, a, 0, b"from another port");
    w.run(Duration::from_secs(1));
    let path = w.ends[1].paths(b)[0];
    assert_eq!(path.route, Route { layer: LayerId(0), remote: w.addresses[0][0] });
    assert!(path.window < before / 2, "{} was {before}", path.window);
    assert!(w.events[1].iter().any(|(_, e)| matches!(e, Event::Path { route, .. } if route.remote.port() == 7777)));
    w.send(1, b, 0, b"answer");
    w.run(ms(500));
    assert!(w.read(0, a).iter().any(|m| m.payload == b"answer"));
}

/// RFC 4007 section 6: the interface is part of a link-local address.
#[test]
fn a_link_local_peer_is_answered_on_the_interface_that_it_is_behind() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    for end in 0..2 {
        let address = format!("fe80::{}", end + 1).parse().unwrap();
        w.addresses[end][0] = std::net::SocketAddrV6::new(address, 9899, 0, 3).into();
    }
    let [a, b] = w.established();
    w.send(1, b, 0, b"there");
    w.run(Duration::from_secs(2));
    assert_eq!(w.read(0, a).len(), 1);
    let paths = w.ends[1].paths(b);
    assert_eq!((paths.len(), paths[0].route.remote), (1, w.addresses[0][0]));
    assert!(!w.events[1].iter().any(|(_, e)| matches!(e, Event::Path { .. })), "it has not come from elsewhere");
}

#[test]
fn a_flood_of_sources_keeps_one_question_open_and_no_more() {
    let (mut w, [a, b]) = world(AssociationConfig::default());
    let tag = tag_of(&mut w, 0, a);
    let bytes_before = w.bytes[1];
    for i in 0..2000u32 {
        let from = SocketAddr::new(std::net::Ipv4Addr::from(0x0a00_1000 + i).into(), 9899);
        stray(&mut w, from, tag);
        w.flush();
    }
    w.run(Duration::from_secs(1));
    assert_eq!(w.ends[1].paths(b).len(), 1);
    // A packet with our tag is answered: with no more bytes than it has, and 56 of a question now
    // and then.
    let asked = 2000 * 28;
    assert!(w.bytes[1] - bytes_before <= asked + 56 * 100, "{}", w.bytes[1] - bytes_before);
}
