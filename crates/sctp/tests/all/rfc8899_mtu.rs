//! RFC 8899: the largest packet that a path takes; and what ICMP reports of it and other things
//! (RFC 9260 section 10).

use crate::support::{PORTS, World, address, kinds, ms, record};
use core::time::Duration;
use neater_link::{LinkConfig, TooBig};
use neater_sctp::{AssociationConfig, AssociationId, CloseReason, Event, IcmpError, Layer, LayerId, PathState, Route};
use neater_sctp_wire::Packet as Wire;
use neater_sctp_wire::chunk::{Heartbeat, Pad};

const OVERHEAD: u16 = 28;

/// Layers of `mtu` bytes over links that take `link` bytes.
fn world(mtu: u16, link: u32, too_big: TooBig) -> World {
    let configs = [0, 1].map(|end| {
        let mut c = crate::support::config(end, 1, AssociationConfig::default());
        c.layers = vec![Layer { mtu, overhead: OVERHEAD, ..crate::support::layer(0, end) }];
        c
    });
    World::with(6, configs, vec![LinkConfig::delay(ms(10)).with_mtu(link, too_big)])
}

fn room(w: &World, end: usize, id: AssociationId) -> u16 {
    w.ends[end].paths(id)[0].room
}

fn narrow(w: &mut World, mtu: u32, too_big: TooBig) {
    let now = w.now;
    for way in 0..2 {
        w.links[way][0].set_config(now, LinkConfig::delay(ms(10)).with_mtu(mtu, too_big));
    }
}

fn transfer(w: &mut World, [a, b]: [AssociationId; 2], bytes: usize, limit: Duration) -> Duration {
    let begin = w.now;
    w.send(0, a, 0, &vec![3; bytes]);
    let mut got = 0;
    while got < bytes && w.now < begin + limit {
        w.run(ms(10));
        got += w.read(1, b).iter().map(|m| m.payload.len()).sum::<usize>();
    }
    assert_eq!(got, bytes, "within {limit:?}");
    w.now - begin
}

#[test]
fn the_size_is_found_by_probes_that_carry_nothing() {
    for (link, least) in [(1500, 1472), (1420, 1376), (1300, 1256), (1280, 1236)] {
        let mut w = world(1500, link, TooBig::BlackHole);
        let log = record(&mut w);
        let ids = w.established();
        assert!(room(&w, 0, ids[0]) == 1232, "the base until something larger has been shown");
        w.run(Duration::from_secs(60));
        for (end, id) in ids.into_iter().enumerate() {
            let found = room(&w, end, id);
            assert!((least..=link as u16 - OVERHEAD).contains(&found), "{link}: {found}");
        }
        let log = log.borrow();
        let large: Vec<_> = log.iter().filter(|(_, b)| b.len() > 1232).collect();
        assert!(!large.is_empty());
        for (_, bytes) in large {
            assert_eq!(kinds(bytes), [Heartbeat::KIND, Pad::KIND]);
        }
        drop(log);
        assert_eq!(w.ends[0].association_stats(ids[0]).unwrap().timeouts, 0);
        assert_eq!(w.ends[0].paths(ids[0])[0].errors, 0, "a lost probe is no error (section 6.2.1.2)");
        transfer(&mut w, ids, 100_000, Duration::from_secs(5));
    }
}

#[test]
fn what_was_found_is_used() {
    let mut w = world(9000, 9000, TooBig::BlackHole);
    let ids = w.established();
    w.run(Duration::from_secs(2));
    assert_eq!(room(&w, 0, ids[0]), 8972);
    let log = record(&mut w);
    transfer(&mut w, ids, 100_000, Duration::from_secs(5));
    assert!(log.borrow().iter().filter(|(end, b)| *end == 0 && b.len() > 8900).count() >= 10);
}

#[test]
fn a_black_hole_that_opens_is_noticed_and_what_was_cut_before_still_arrives() {
    let mut w = world(1500, 1500, TooBig::BlackHole);
    let ids = w.established();
    w.run(Duration::from_secs(2));
    assert_eq!(room(&w, 0, ids[0]), 1472);
    narrow(&mut w, 1300, TooBig::BlackHole);
    let log = record(&mut w);
    transfer(&mut w, ids, 50_000, Duration::from_secs(30));
    assert!(log.borrow().iter().any(|(_, b)| b.len() > 1272), "chunks that were cut for 1,472 bytes");
    let stats = w.ends[0].association_stats(ids[0]).unwrap();
    assert!(stats.black_holes >= 1);
    w.run(Duration::from_secs(60));
    let found = room(&w, 0, ids[0]);
    assert!((1232..=1272).contains(&found), "{found}");
    // New messages are cut for it: no timeouts any more.
    transfer(&mut w, ids, 50_000, Duration::from_secs(3));
    assert_eq!(w.ends[0].association_stats(ids[0]).unwrap().timeouts, stats.timeouts);
    // And when the path widens the search finds that ten minutes later.
    narrow(&mut w, 1500, TooBig::BlackHole);
    w.run(Duration::from_secs(700));
    assert_eq!(room(&w, 0, ids[0]), 1472);
}

#[test]
fn a_path_below_the_base_is_survived() {
    let mut w = world(1500, 700, TooBig::BlackHole);
    let ids = w.established();
    transfer(&mut w, ids, 20_000, Duration::from_secs(60));
    w.run(Duration::from_secs(20));
    assert_eq!(room(&w, 0, ids[0]), 456);
    transfer(&mut w, ids, 20_000, Duration::from_secs(3));
    // An outage is not a narrow path: soon after it everything is as before.
    narrow(&mut w, 1500, TooBig::BlackHole);
    w.run(Duration::from_secs(200));
    assert_eq!(room(&w, 0, ids[0]), 1472);
}

#[test]
fn the_network_s_reports_make_the_search_short() {
    let mut slow = world(1500, 1400, TooBig::BlackHole);
    let mut quick = world(1500, 1400, TooBig::Report);
    let took = |w: &mut World| {
        let [a, _] = w.established();
        let begin = w.now;
        while room(w, 0, a) < 1356 {
            w.run(ms(5));
            assert!(w.now < begin + Duration::from_secs(60));
        }
        w.now - begin
    };
    let (slow, quick) = (took(&mut slow), took(&mut quick));
    assert!(quick < Duration::from_millis(200) && slow > Duration::from_secs(2), "{quick:?} {slow:?}");
}

#[test]
fn a_path_that_becomes_narrow_and_says_so_costs_one_round_trip() {
    let mut w = world(1500, 1500, TooBig::Report);
    let ids = w.established();
    w.run(Duration::from_secs(2));
    narrow(&mut w, 1400, TooBig::Report);
    let took = transfer(&mut w, ids, 50_000, Duration::from_secs(30));
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(w.ends[0].association_stats(ids[0]).unwrap().black_holes, 0);
    w.run(Duration::from_secs(5));
    assert!((1356..=1372).contains(&room(&w, 0, ids[0])), "{}", room(&w, 0, ids[0]));
}

/// A quotation of a packet with these ports and this tag.
fn quote(source: u16, destination: u16, tag: u32) -> Vec<u8> {
    let mut quoted = vec![0; 12];
    quoted[..2].copy_from_slice(&source.to_be_bytes());
    quoted[2..4].copy_from_slice(&destination.to_be_bytes());
    quoted[4..8].copy_from_slice(&tag.to_be_bytes());
    quoted
}

#[test]
fn icmp_counts_only_about_packets_of_ours() {
    let mut w = world(1500, 1500, TooBig::Report);
    let log = record(&mut w);
    let ids = w.established();
    w.run(Duration::from_secs(2));
    let tag = log.borrow().iter().rev().find(|(end, _)| *end == 0).map(|(_, b)| Wire::parse(b).unwrap().header.tag.0);
    let (tag, route) = (tag.unwrap(), w.route(1, 0));
    let now = w.now;
    let elsewhere = Route { remote: "10.8.8.8:9899".parse().unwrap(), ..route };
    let error = IcmpError::ProtocolUnreachable;
    let wrong = [
        (route, quote(PORTS[0], PORTS[1], tag ^ 1)),
        (route, quote(PORTS[0], PORTS[1], 0)),
        (route, quote(PORTS[0] + 1, PORTS[1], tag)),
        (route, quote(PORTS[0], PORTS[1] + 1, tag)),
        (elsewhere, quote(PORTS[0], PORTS[1], tag)),
        (route, quote(PORTS[0], PORTS[1], tag)[..7].to_vec()),
        (route, Vec::new()),
    ];
    for (i, (route, quoted)) in wrong.iter().enumerate() {
        w.ends[0].handle_icmp(now, *route, error, quoted);
        w.ends[0].handle_icmp(now, *route, IcmpError::PacketTooBig { size: 1300 }, quoted);
        assert_eq!((w.ends[0].stats().icmp, w.ends[0].stats().icmp_ignored), (0, 2 * i as u64 + 2), "{i}");
    }
    w.flush();
    assert_eq!((w.closed(0), room(&w, 0, ids[0])), (None, 1472));
    // Absurd sizes from an attacker that has seen the tag do not go below the base.
    for size in [0, 8, 552, 1228] {
        w.ends[0].handle_icmp(now, route, IcmpError::PacketTooBig { size }, &quote(PORTS[0], PORTS[1], tag));
        assert_eq!(room(&w, 0, ids[0]), 1472, "{size}");
    }
    w.ends[0].handle_icmp(now, route, IcmpError::Unreachable, &quote(PORTS[0], PORTS[1], tag));
    assert_eq!(w.ends[0].paths(ids[0])[0].errors, 1);
    // RFC 6951 section 5.5: to UDP the port is the protocol.
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &quote(PORTS[0], PORTS[1], tag));
    w.flush();
    assert!(matches!(w.closed(0), Some(CloseReason::Refused(_))));
}

#[test]
fn port_unreachable_says_nothing_of_sctp_over_ip() {
    // ICMP3; a route without a port is not in UDP.
    let mut server = crate::support::config(1, 1, AssociationConfig::default());
    server.accept = true;
    let mut w = World::with(
        1,
        [crate::support::config(0, 1, AssociationConfig::default()), server],
        vec![LinkConfig::delay(ms(10))],
    );
    for end in 0..2 {
        w.addresses[end][0].set_port(0);
    }
    let log = record(&mut w);
    let [a, _] = w.established();
    let tag = log.borrow().iter().rev().find(|(end, _)| *end == 0).map(|(_, b)| Wire::parse(b).unwrap().header.tag.0);
    let (route, now, quoted) = (w.route(1, 0), w.now, quote(PORTS[0], PORTS[1], tag.unwrap()));
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &quoted);
    assert_eq!((w.ends[0].stats().icmp, w.ends[0].paths(a)[0].errors), (1, 0));
    w.ends[0].handle_icmp(now, route, IcmpError::ProtocolUnreachable, &quoted);
    w.flush();
    assert!(matches!(w.closed(0), Some(CloseReason::Refused(_))));
}

#[test]
fn an_init_that_nobody_hears_is_refused_by_icmp_at_once() {
    let mut w = world(1500, 1500, TooBig::Report);
    let log = record(&mut w);
    w.connect(0);
    w.flush();
    let init = log.borrow()[0].1.clone();
    let (now, route) = (w.now, Route { layer: LayerId(0), remote: address(1, 0) });
    let mut forged = init[..20].to_vec();
    forged[16] ^= 1;
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &forged);
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &init[..19]);
    w.flush();
    assert_eq!(w.closed(0), None, "not our tag, or too little of it");
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &init[..20]);
    w.flush();
    assert!(matches!(w.closed(0), Some(CloseReason::Refused(_))));
    assert_eq!(w.ends[0].kept(), 0);
    // Once the association is up, reports about its INIT chunk are obsolete.
    let mut w = world(1500, 1500, TooBig::Report);
    let log = record(&mut w);
    let [a, _] = w.established();
    let init = log.borrow()[0].1.clone();
    let now = w.now;
    w.ends[0].handle_icmp(now, route, IcmpError::PortUnreachable, &init[..20]);
    assert_eq!(w.ends[0].paths(a)[0].state, PathState::Active);
    w.flush();
    assert!(w.closed(0).is_none() && !w.events[0].iter().any(|(_, e)| matches!(e, Event::Closed(_))));
}

#[test]
fn without_the_search_the_layer_is_believed() {
    let association = AssociationConfig { search_mtu: false, ..AssociationConfig::default() };
    let configs = [0, 1].map(|end| {
        let mut c = crate::support::config(end, 1, association.clone());
        c.layers = vec![Layer { mtu: 1500, overhead: OVERHEAD, ..crate::support::layer(0, end) }];
        c
    });
    let mut w = World::with(6, configs, vec![LinkConfig::delay(ms(10))]);
    let [a, _] = w.established();
    w.run(Duration::from_secs(5));
    assert_eq!((room(&w, 0, a), w.ends[0].association_stats(a).unwrap().mtu_probes), (1472, 0));
}

#[test]
fn who_has_nothing_to_send_need_not_search() {
    let configs = [0, 1].map(|end| {
        let association = AssociationConfig { search_idle: false, ..AssociationConfig::default() };
        let mut c = crate::support::config(end, 1, association);
        c.layers = vec![Layer { mtu: 1500, overhead: OVERHEAD, ..crate::support::layer(0, end) }];
        c
    });
    let mut w = World::with(6, configs, vec![LinkConfig::delay(ms(10)).with_mtu(1500, TooBig::BlackHole)]);
    let ids = w.established();
    let probes = |w: &World, end: usize| w.ends[end].association_stats(ids[end]).unwrap().mtu_probes;
    transfer(&mut w, ids, 2000, Duration::from_secs(5));
    w.run(Duration::from_secs(60));
    assert_eq!((probes(&w, 0), probes(&w, 1), room(&w, 0, ids[0])), (0, 0, 1232));
    transfer(&mut w, ids, 100_000, Duration::from_secs(5));
    assert_eq!((probes(&w, 0), probes(&w, 1), room(&w, 0, ids[0])), (1, 0, 1472));
}

#[test]
fn the_base_is_what_is_configured() {
    let configs = [0, 1].map(|end| {
        let association = AssociationConfig { base_packet: 1195, ..AssociationConfig::default() };
        let mut c = crate::support::config(end, 1, association);
        c.layers = vec![Layer { mtu: 1500, overhead: OVERHEAD, ..crate::support::layer(0, end) }];
        c
    });
    let mut w = World::with(6, configs, vec![LinkConfig::delay(ms(10)).with_mtu(1280, TooBig::BlackHole)]);
    let ids = w.established();
    assert_eq!(room(&w, 0, ids[0]), 1192, "whole words");
    w.run(Duration::from_secs(60));
    assert!((1236..=1252).contains(&room(&w, 0, ids[0])), "{}", room(&w, 0, ids[0]));
    transfer(&mut w, ids, 100_000, Duration::from_secs(5));
}
