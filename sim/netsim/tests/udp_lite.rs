//! UDP-Lite (RFC 3828) between hosts, from the outside.

mod common;

use common::*;
use neater_base::net::{
    Ecn, ErrorKind, InterfaceKind, Net, NetError, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_link::{Filter, LinkConfig, Match, NatConfig, Protocol};
use neater_netsim::{PacketKind, SimNet, TraceVerdict, World};
use std::net::IpAddr;

/// Bytes of the header.
const HEADER: usize = 8;

fn to<'a>(destination: &str, contents: &'a [u8]) -> Transmit<'a> {
    Transmit {
        destination: addr(destination),
        source: None,
        interface: None,
        ecn: Ecn::NotEct,
        segment_size: None,
        contents,
    }
}

fn lite(set: &[SocketOption]) -> SocketOptions {
    SocketOptions { udp_lite: true, set: set.to_vec(), ..plain() }
}

fn bind(net: &mut SimNet, token: u64, local: &str, options: &SocketOptions) -> Sock {
    let local = addr(local);
    net.udp(Token(token), local, &SocketOptions { local: Some(local), ..options.clone() }).unwrap()
}

fn covers(net: &mut SimNet, sock: Sock, bytes: u16) {
    net.set(sock, SocketOption::ChecksumCoverage(bytes)).unwrap();
}

fn kind<T>(result: Result<T, NetError>) -> Result<T, ErrorKind> {
    result.map_err(|e| e.kind)
}

/// Everything that waits.
fn recv(net: &mut SimNet, sock: Sock) -> Vec<Vec<u8>> {
    let (mut batch, mut all) = (RecvBatch::default(), Vec::new());
    while net.recv(sock, &mut batch).is_ok() {
        all.extend(batch.filled().map(|(_, b)| b.to_vec()));
    }
    all
}

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

#[test]
fn a_datagram_crosses_as_protocol_136_and_reaches_sockets_of_its_protocol_only() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    for (local, remote) in [("0.0.0.0:53", "192.0.2.2:53"), ("[::]:53", "[2001:db8::2]:53")] {
        let (s, twin) = (bind(&mut server, 1, local, &lite(&[])), bind(&mut server, 2, local, &plain()));
        let taken = SocketOptions { local: Some(addr(local)), ..lite(&[]) };
        assert_eq!(kind(server.udp(Token(3), addr(local), &taken)), Err(ErrorKind::AddrInUse));
        let (c, udp) = (bind(&mut client, 4, local, &lite(&[])), bind(&mut client, 5, local, &plain()));
        assert_eq!((client.max_segments(c), client.max_segments(udp)), (1, 10));
        let train = Transmit { segment_size: Some(1), ..to(remote, b"two") };
        assert_eq!(kind(client.send(c, &train)), Err(ErrorKind::InvalidInput));
        covers(&mut client, c, 9);
        assert!(recv(&mut server, s).is_empty());
        p.world.trace(true);
        client.send(c, &Transmit { ecn: Ecn::Ect0, ..to(remote, b"lite") }).unwrap();
        client.send(udp, &to(remote, b"udp")).unwrap();
        wait(&p.world, S);
        p.world.trace(false);
        assert!(readiness(&mut server).iter().any(|(t, r)| *t == 1 && r.readable));
        let mut batch = RecvBatch::default();
        assert_eq!(kind(server.recv(s, &mut batch)), Ok(1));
        assert_eq!((batch.metas[0].source.port(), batch.metas[0].ecn), (53, Ecn::Ect0));
        assert_eq!(batch.filled().next().unwrap().1, b"lite");
        assert_eq!(recv(&mut server, twin), [b"udp"]);
        let trace = p.world.take_trace();
        assert_eq!(trace[0].kind, PacketKind::UdpLite { coverage: 9 });
        assert_eq!(trace[0].size as usize, HEADER + 4 + if addr(remote).is_ipv4() { 20 } else { 40 });
        for sock in [c, udp] {
            client.close(sock);
        }
        for sock in [s, twin] {
            server.close(sock);
        }
    }
    assert!(p.world.is_empty());
}

#[test]
fn a_receiver_gets_what_is_covered_as_far_as_it_demands() {
    let p = pair(1, LinkConfig::delay(MS));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let c = bind(&mut client, 1, "0.0.0.0:0", &lite(&[]));
    // What it demands, and of datagrams of 8 + 100 bytes that are covered so far, which it gets.
    for (least, gets) in [
        (None, [8, 20, 107, 108, 5000, 0].as_slice()),
        (Some(8), &[8, 20, 107, 108, 5000, 0]),
        (Some(20), &[20, 107, 108, 5000, 0]),
        (Some(0), &[108, 5000, 0]),
        (Some(200), &[108, 5000, 0]),
    ] {
        let demand: Vec<_> = least.map(SocketOption::MinChecksumCoverage).into_iter().collect();
        let s = bind(&mut server, 2, "0.0.0.0:53", &lite(&demand));
        for coverage in [8, 20, 107, 108, 5000, 0_u16] {
            covers(&mut client, c, coverage);
            let mut contents = [7; 100];
            contents[..2].copy_from_slice(&coverage.to_be_bytes());
            client.send(c, &to("192.0.2.2:53", &contents)).unwrap();
        }
        wait(&p.world, MS * 10);
        let got = recv(&mut server, s);
        assert!(got.iter().map(|d| u16::from_be_bytes([d[0], d[1]])).eq(gets.iter().copied()), "{least:?}");
        server.close(s);
    }
}

#[test]
fn options_are_those_of_the_protocol() {
    let p = pair(1, LinkConfig::default());
    let mut net = p.world.net(p.a);
    let (sock, udp) = (bind(&mut net, 1, "0.0.0.0:0", &lite(&[])), bind(&mut net, 2, "0.0.0.0:0", &plain()));
    let both = |n| [SocketOption::ChecksumCoverage(n), SocketOption::MinChecksumCoverage(n)];
    for option in both(8).into_iter().chain(both(0)).chain(both(u16::MAX)) {
        assert_eq!(kind(net.set(sock, option)), Ok(()));
        assert_eq!(kind(net.set(udp, option)), Err(ErrorKind::Unsupported));
    }
    for option in (1..8).flat_map(both) {
        assert_eq!(kind(net.set(sock, option)), Err(ErrorKind::InvalidInput));
        assert_eq!(kind(net.udp(Token(3), addr("0.0.0.0:0"), &lite(&[option]))), Err(ErrorKind::InvalidInput));
    }
    // There is no datagram of UDP-Lite without a checksum.
    assert_eq!(kind(net.set(sock, SocketOption::NoUdpChecksum(true))), Err(ErrorKind::Unsupported));
    assert_eq!(p.world.open_sockets(p.a), 2, "what could not be opened as it should be was not opened");
}

/// How many bits of datagrams of zeros are wrong, and where the first is; of 200 that are sent.
fn damaged(world: &World, client: &mut SimNet, server: &mut SimNet, coverage: u16, len: usize) -> Vec<(u32, usize)> {
    let s = bind(server, 1, "[::]:53", &lite(&[]));
    let c = bind(client, 2, "[::]:0", &lite(&[]));
    covers(client, c, coverage);
    let mut all = Vec::new();
    for _ in 0..200 {
        client.send(c, &to("[2001:db8::2]:53", &vec![0; len])).unwrap();
        wait(world, MS * 10);
        all.extend(recv(server, s));
    }
    client.close(c);
    server.close(s);
    assert!(all.iter().all(|d| d.len() == len));
    let wrong = |d: &Vec<u8>| d.iter().map(|b| b.count_ones()).sum();
    all.iter().map(|d| (wrong(d), d.iter().position(|b| *b != 0).unwrap_or(len))).collect()
}

#[test]
fn damage_arrives_where_the_checksum_does_not_cover_and_loses_the_datagram_elsewhere() {
    let p = pair(1, LinkConfig { corrupt: 1.0, ..LinkConfig::delay(MS) });
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    // Each has one wrong bit, anywhere.
    p.world.trace(true);
    for (coverage, arrive) in [(8, 190..=200), (508, 70..=130), (1000, 0..=8), (1008, 0..=0), (0, 0..=0)] {
        let got = damaged(&p.world, &mut client, &mut server, coverage, 1000);
        assert!(arrive.contains(&got.len()), "{coverage}: {}", got.len());
        assert!(got.iter().all(|(wrong, first)| *wrong == 1 && first + HEADER >= coverage.into()), "{coverage}");
    }
    assert_eq!(p.world.link_counters(p.ab).corrupted, 1000);
    let fates = p.world.take_trace();
    let ended = |fate| fates.iter().filter(|e| e.link.is_none() && e.verdict == fate).count();
    assert!(ended(TraceVerdict::Corrupt) > 450 && ended(TraceVerdict::Delivered) > 250);
    assert_eq!(ended(TraceVerdict::Corrupt) + ended(TraceVerdict::Delivered), 1000);
    // One of UDP is dropped wherever it is.
    let (s, c) = (bind(&mut server, 1, "0.0.0.0:53", &plain()), bind(&mut client, 2, "0.0.0.0:0", &plain()));
    client.send(c, &to("192.0.2.2:53", &[0; 1000])).unwrap();
    wait(&p.world, S);
    assert!(recv(&mut server, s).is_empty());
}

#[test]
fn a_datagram_in_pieces_is_damaged_in_each_and_lost_where_one_is_covered_there() {
    let p = pair(1, LinkConfig { corrupt: 1.0, ..LinkConfig::delay(MS) });
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    // Three pieces of up to 1,448 bytes, each behind a fragment header of 8.
    let got = damaged(&p.world, &mut client, &mut server, 8, 4000);
    assert!((180..=199).contains(&got.len()), "{}", got.len());
    assert!(got.iter().all(|(wrong, first)| *wrong == 3 && first + HEADER < 1448));
    // The first piece is covered to its end: its wrong bit spoils the datagram.
    assert!(damaged(&p.world, &mut client, &mut server, 1448, 4000).is_empty());
    // With a wrong bit in a part of the pieces, some have one that is wrong in the pieces behind.
    let seldom = LinkConfig { corrupt: 0.3, ..LinkConfig::delay(MS) };
    p.world.set_link(p.ab, seldom);
    let got = damaged(&p.world, &mut client, &mut server, 1448, 4000);
    assert!((100..=180).contains(&got.len()), "{}", got.len());
    assert!(got.iter().all(|(wrong, first)| *wrong <= 2 && first + HEADER >= 1448));
    for wrong in 0..=2 {
        assert!(got.iter().any(|(bits, _)| *bits == wrong), "{wrong}");
    }
}

#[test]
fn each_link_of_a_way_may_damage_a_datagram() {
    let world = World::new(1);
    let hosts = [A6, B6].map(|addr| {
        let host = world.add_host(addr);
        let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ip(addr)]);
        let link = LinkConfig { corrupt: 1.0, ..LinkConfig::delay(MS) };
        world.attach(iface, link.clone(), link);
        host
    });
    let (mut client, mut server) = (world.net(hosts[0]), world.net(hosts[1]));
    let got = damaged(&world, &mut client, &mut server, 8, 1000);
    assert!((185..=200).contains(&got.len()), "{}", got.len());
    // Two bits, unless the second link puts right what the first has done.
    assert!(got.iter().all(|(wrong, _)| matches!(wrong, 0 | 2)) && got.iter().any(|(wrong, _)| *wrong == 2));
    // The chance that neither is covered, a quarter, and not a half.
    let got = damaged(&world, &mut client, &mut server, 504, 1000);
    assert!((25..=80).contains(&got.len()), "{}", got.len());
}

#[test]
fn errors_of_the_network_reach_the_socket_of_the_protocol_that_they_are_about() {
    let p = pair(1, LinkConfig::delay(MS));
    let (mut client, server) = (p.world.net(p.a), p.world.net(p.b));
    for (local, remote, port, protocol) in
        [("0.0.0.0:4000", "192.0.2.2:53", (3, 3), (3, 2)), ("[::]:4000", "[2001:db8::2]:53", (1, 4), (4, 1))]
    {
        let c = bind(&mut client, 1, local, &lite(&[SocketOption::IcmpErrors(true)]));
        let udp =
            bind(&mut client, 2, local, &SocketOptions { udp_lite: false, ..lite(&[SocketOption::IcmpErrors(true)]) });
        for (has, expected) in [(true, port), (false, protocol)] {
            p.world.set_udp_lite(p.b, has);
            client.send(c, &to(remote, b"anyone?")).unwrap();
            wait(&p.world, S);
            let icmp = client.take_icmp_error(c).unwrap();
            assert_eq!((icmp.icmp_type, icmp.icmp_code), expected);
            assert_eq!((icmp.destination, icmp.quoted.as_slice()), (Some(addr(remote)), b"anyone?".as_slice()));
            assert_eq!((client.take_icmp_error(c), client.take_icmp_error(udp)), (None, None));
            // The same as an error of the next call.
            assert!(client.recv(c, &mut RecvBatch::default()).is_err_and(|e| !e.is_would_block()));
        }
        client.close(c);
        client.close(udp);
    }
    // A scripted service speaks UDP.
    p.world.set_udp_lite(p.b, true);
    p.world.udp_service(p.b, 53, Box::new(|_, _, _, _| vec![(MS, b"answer".to_vec())]));
    let c = bind(&mut client, 1, "0.0.0.0:4000", &lite(&[]));
    client.udp_connect(c, addr("192.0.2.2:53")).unwrap();
    client.send(c, &to("192.0.2.2:53", b"?")).unwrap();
    wait(&p.world, S);
    assert_eq!(kind(client.recv(c, &mut RecvBatch::default())), Err(ErrorKind::ConnectionRefused));
    drop(server);
}

#[test]
fn a_host_without_udp_lite_says_so() {
    let p = pair(1, LinkConfig::default());
    let mut net = p.world.net(p.a);
    assert_eq!(net.udp_lite_obstacle(), None);
    p.world.set_udp_lite(p.a, false);
    assert!(net.udp_lite_obstacle().is_some());
    assert_eq!(kind(net.udp(Token(1), addr("0.0.0.0:0"), &lite(&[]))), Err(ErrorKind::Unsupported));
    assert!(net.udp(Token(1), addr("0.0.0.0:0"), &plain()).is_ok());
}

#[test]
fn a_firewall_takes_it_for_what_it_is_and_not_for_udp() {
    let rules = [
        (Filter::drop(Match::Protocol(Protocol::Udp)), true),
        (Filter::drop(Match::Service(Protocol::Udp, 53)), true),
        // TCP or UDP to a port.
        (Filter::drop(Match::DestinationPort(53)), true),
        (Filter::drop(Match::Service(Protocol::UDP_LITE, 53)), false),
        (Filter::drop(Match::Service(Protocol::UDP_LITE, 54)), true),
        (Filter::reject(Match::Protocol(Protocol::UDP_LITE)), false),
        (Filter::drop(Match::Any), false),
    ];
    for (rule, passes) in rules {
        let p = pair(1, LinkConfig::delay(MS).with_filter(rule));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (s, c) = (bind(&mut server, 1, "0.0.0.0:53", &lite(&[])), bind(&mut client, 2, "0.0.0.0:0", &lite(&[])));
        client.udp_connect(c, addr("192.0.2.2:53")).unwrap();
        client.send(c, &to("192.0.2.2:53", b"?")).unwrap();
        wait(&p.world, S);
        assert_eq!(recv(&mut server, s).len(), usize::from(passes), "{rule:?}");
    }
}

#[test]
fn a_nat_box_drops_it_and_neighbours_behind_one_have_it() {
    let world = World::new(1);
    let link = || LinkConfig::delay(MS);
    // The box that lets everybody in.
    let nat = world.add_nat(NatConfig::full_cone(ip("203.0.113.1")), link(), link());
    let [a, b] = ["10.0.0.2", "10.0.0.3"].map(|addr| {
        let host = world.add_host(addr);
        let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ip(addr)]);
        world.attach_behind(iface, nat, link(), link());
        host
    });
    let server = world.add_host("server");
    let iface = world.add_interface(server, "eth0", InterfaceKind::Wired, &[ip("198.51.100.1")]);
    world.attach(iface, link(), link());
    let [mut a, mut b, mut server] = [a, b, server].map(|host| world.net(host));
    let open = |net: &mut SimNet| bind(net, 1, "0.0.0.0:7000", &lite(&[]));
    let (sa, sb, ss) = (open(&mut a), open(&mut b), open(&mut server));
    // UDP has made a mapping of the same port.
    let udp = bind(&mut a, 2, "0.0.0.0:7000", &plain());
    a.send(udp, &to("198.51.100.1:9", b"udp")).unwrap();
    wait(&world, S);
    a.send(sa, &to("198.51.100.1:7000", b"out")).unwrap();
    a.send(sa, &to("203.0.113.1:7000", b"hairpin")).unwrap();
    a.send(sa, &to("10.0.0.3:7000", b"direct")).unwrap();
    server.send(ss, &to("203.0.113.1:7000", b"in")).unwrap();
    wait(&world, S);
    assert_eq!((recv(&mut server, ss), recv(&mut a, sa)), (vec![], vec![]));
    assert_eq!(recv(&mut b, sb), [b"direct"]);
    let counters = world.with_nat(nat, |nat, _| nat.counters());
    assert_eq!((counters.out, counters.dropped_out, counters.dropped_in, counters.mapped), (1, 2, 1, 1));
}
