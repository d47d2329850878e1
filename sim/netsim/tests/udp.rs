//! UDP between two hosts, from the outside.

mod common;

use common::*;
use neater_base::net::{
    Ecn, ErrorKind, Net, NetError, RecvBatch, RecvMeta, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_link::{Codel, Discipline, Filter, LinkConfig, Match, Protocol, QueueLimit, TooBig};
use neater_netsim::SimNet;
use std::net::SocketAddr;

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

fn bind(net: &mut SimNet, token: u64, local: &str) -> Sock {
    let local = addr(local);
    net.udp(Token(token), local, &SocketOptions { local: Some(local), ..plain() }).unwrap()
}

fn kind<T>(result: Result<T, NetError>) -> Result<T, ErrorKind> {
    result.map_err(|e| e.kind)
}

fn recv(net: &mut SimNet, sock: Sock) -> Result<Vec<(RecvMeta, Vec<u8>)>, ErrorKind> {
    let mut batch = RecvBatch::default();
    let mut all = Vec::new();
    match net.recv(sock, &mut batch) {
        Ok(_) => all.extend(batch.filled().map(|(m, b)| (m, b.to_vec()))),
        Err(e) => return Err(e.kind),
    }
    Ok(all)
}

#[test]
fn a_datagram_arrives_with_all_that_is_known_of_it() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    for (local, remote, source) in [("0.0.0.0:53", "192.0.2.2:53", A4), ("[::]:53", "[2001:db8::2]:53", A6)] {
        let s = bind(&mut server, 1, local);
        let c = client.udp(Token(2), addr(local), &plain()).unwrap();
        assert_eq!(recv(&mut server, s), Err(ErrorKind::WouldBlock));
        let sent = p.world.now();
        client.send(c, &Transmit { ecn: Ecn::Ect0, ..to(remote, b"hi") }).unwrap();
        assert!(step_until(&p.world, S, || p.world.has_events(p.b)));
        assert_eq!(p.world.now() - sent, MS * 10);
        assert!(readiness(&mut server).iter().any(|(t, r)| *t == 1 && r.readable));
        let got = recv(&mut server, s).unwrap();
        let port = client.local_addr(c).unwrap().port();
        assert!((32_768..=60_999).contains(&port));
        let meta = RecvMeta {
            source: SocketAddr::new(source.parse().unwrap(), port),
            local: Some(addr(remote).ip()),
            interface: Some(p.iface_b.index),
            ecn: Ecn::Ect0,
            start: 0,
            len: 2,
            stride: 2,
        };
        assert_eq!(got, [(meta, b"hi".to_vec())]);
    }
}

#[test]
fn a_drained_batch_is_told_of_what_comes_next_without_asking_again() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = client.udp(Token(2), addr("0.0.0.0:0"), &plain()).unwrap();
    let mut batch = RecvBatch::default();
    assert_eq!(kind(server.recv(s, &mut batch)), Err(ErrorKind::WouldBlock));
    for _ in 0..2 {
        for _ in 0..=neater_base::net::BATCH {
            client.send(c, &to("192.0.2.2:53", b"hi")).unwrap();
        }
        assert!(step_until(&p.world, S, || p.world.has_events(p.b)));
        p.world.run_until(p.world.now() + S);
        assert!(readiness(&mut server).iter().any(|(t, r)| *t == 1 && r.readable));
        assert_eq!((kind(server.recv(s, &mut batch)), batch.drained), (Ok(neater_base::net::BATCH), false));
        // Here nobody asks again, and the next round is told of all the same.
        assert_eq!((kind(server.recv(s, &mut batch)), batch.drained), (Ok(1), true));
    }
}

#[test]
fn a_train_is_sent_as_datagrams_and_received_uncoalesced() {
    let p = pair(1, LinkConfig::rate(10_000_000, MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    assert_eq!(client.max_segments(c), 10);
    let data = random_bytes(1, 9 * 1200 + 100);
    client.send(c, &Transmit { segment_size: Some(1200), ..to("192.0.2.2:53", &data) }).unwrap();
    wait(&p.world, S);
    let got = recv(&mut server, s).unwrap();
    let lens: Vec<_> = got.iter().map(|(m, _)| (m.len, m.stride)).collect();
    assert_eq!(lens[..9], [(1200, 1200); 9]);
    assert_eq!(lens[9..], [(100, 100)]);
    assert_eq!(got.concat_payload(), data);
    let eleven = vec![0; 11];
    let train = Transmit { segment_size: Some(1), ..to("192.0.2.2:53", &eleven) };
    assert_eq!(kind(client.send(c, &train)), Err(ErrorKind::InvalidInput));
    let wide = vec![0; 4000];
    let train = Transmit { segment_size: Some(2000), ..to("192.0.2.2:53", &wide) };
    assert_eq!(kind(client.send(c, &train)), Err(ErrorKind::MessageTooLarge));
}

trait Payloads {
    fn concat_payload(&self) -> Vec<u8>;
}

impl Payloads for Vec<(RecvMeta, Vec<u8>)> {
    fn concat_payload(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, b)| b.clone()).collect()
    }
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    let p = pair(1, LinkConfig::default());
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    client.send(c, &to("192.0.2.2:53", b"")).unwrap();
    wait(&p.world, MS);
    assert_eq!(recv(&mut server, s).unwrap().len(), 1);
}

#[test]
fn a_closed_port_refuses_a_connected_socket_once_and_not_an_unconnected_one() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let mut client = p.world.net(p.a);
    let loose = bind(&mut client, 1, "0.0.0.0:0");
    client.send(loose, &to("192.0.2.2:53", b"?")).unwrap();
    let c = bind(&mut client, 2, "0.0.0.0:0");
    client.udp_connect(c, addr("192.0.2.2:53")).unwrap();
    assert_eq!(client.local_addr(c).unwrap().ip().to_string(), A4);
    assert_eq!(recv(&mut client, c), Err(ErrorKind::WouldBlock));
    assert_eq!(recv(&mut client, loose), Err(ErrorKind::WouldBlock));
    client.send(c, &to("192.0.2.2:53", b"?")).unwrap();
    wait(&p.world, S);
    let ready = readiness(&mut client);
    assert!(ready.len() == 1 && ready[0].0 == 2 && ready[0].1.readable);
    assert_eq!(recv(&mut client, c), Err(ErrorKind::ConnectionRefused));
    assert_eq!(recv(&mut client, c), Err(ErrorKind::WouldBlock));
    assert_eq!(recv(&mut client, loose), Err(ErrorKind::WouldBlock));
    client.send(c, &to("192.0.2.2:53", b"?")).unwrap();
    wait(&p.world, S);
    assert_eq!(kind(client.send(c, &to("192.0.2.2:53", b"?"))), Err(ErrorKind::ConnectionRefused));
    assert_eq!(kind(client.send(c, &to("192.0.2.2:53", b"?"))), Ok(()));
}

#[test]
fn icmp_errors_are_queued_for_who_asks() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let mut client = p.world.net(p.a);
    let c = bind(&mut client, 2, "[::]:0");
    client.set(c, SocketOption::IcmpErrors(true)).unwrap();
    client.send(c, &to("[2001:db8::2]:53", b"?")).unwrap();
    wait(&p.world, S);
    assert!(readiness(&mut client).iter().any(|(t, r)| *t == 2 && r.error));
    let icmp = client.take_icmp_error(c).unwrap();
    assert_eq!((icmp.icmp_type, icmp.icmp_code), (1, 4));
    assert_eq!(icmp.destination, Some(addr("[2001:db8::2]:53")));
    assert_eq!(icmp.offender, Some(B6.parse().unwrap()));
    assert_eq!(client.take_icmp_error(c), None);
}

#[test]
fn a_connected_socket_hears_only_its_peer() {
    let p = pair(1, LinkConfig::default());
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let c = bind(&mut client, 2, "0.0.0.0:4000");
    client.udp_connect(c, addr("192.0.2.2:53")).unwrap();
    let (peer, stranger) = (bind(&mut server, 1, "0.0.0.0:53"), bind(&mut server, 1, "0.0.0.0:54"));
    server.send(stranger, &to("192.0.2.1:4000", b"lie")).unwrap();
    server.send(peer, &to("192.0.2.1:4000", b"truth")).unwrap();
    wait(&p.world, MS);
    assert_eq!(recv(&mut client, c).unwrap().concat_payload(), b"truth");
}

#[test]
fn a_filter_for_udp_leaves_tcp_alone() {
    let p = pair(1, LinkConfig::delay(MS).with_filter(Filter::drop(Match::Protocol(Protocol::Udp))));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:80");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    client.send(c, &to("192.0.2.2:80", b"?")).unwrap();
    established(&p, &mut client, &mut server);
    assert_eq!(recv(&mut server, s), Err(ErrorKind::WouldBlock));
    assert_eq!(p.world.link_counters(p.ab).filtered, 1);
}

#[test]
fn a_full_receive_buffer_drops() {
    let p = pair(1, LinkConfig::default());
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    for _ in 0..300 {
        client.send(c, &to("192.0.2.2:53", &[0; 1000])).unwrap();
    }
    wait(&p.world, S);
    let mut got = 0;
    while let Ok(batch) = recv(&mut server, s) {
        assert!(batch.len() <= 16);
        got += batch.len();
    }
    assert_eq!(got, 208 * 1024 / 1064);
}

#[test]
fn a_full_send_buffer_blocks_and_the_writer_is_woken_when_half_is_free() {
    let link = LinkConfig::rate(10_000_000, MS * 10).with_queue(QueueLimit::Packets(10_000));
    let p = pair(1, link);
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    let mut sent = 0;
    while client.send(c, &to("192.0.2.2:53", &[0; 1000])).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 208 * 1024 / 1028);
    assert!(readiness(&mut client).is_empty());
    let start = p.world.now();
    assert!(step_until(&p.world, S, || p.world.has_events(p.a)));
    assert!(readiness(&mut client).iter().any(|(t, r)| *t == 2 && r.writable));
    let drained = (p.world.now() - start).as_secs_f64() * 10_000_000.0 / 8.0;
    assert!((100_000.0..112_000.0).contains(&drained), "{drained} bytes");
    client.send(c, &to("192.0.2.2:53", &[0; 1000])).unwrap();
    let mut got = 0;
    wait(&p.world, S);
    while let Ok(batch) = recv(&mut server, s) {
        got += batch.len();
    }
    assert_eq!(got, 208 * 1024 / 1064, "what the receiver's buffer holds");
}

#[test]
fn sizes_are_checked_locally_and_fragments_travel_unless_forbidden() {
    let p = pair(1, LinkConfig::rate(100_000_000, MS));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    let data = random_bytes(1, 65_508);
    assert_eq!(kind(client.send(c, &to("192.0.2.2:53", &data))), Err(ErrorKind::MessageTooLarge));
    client.send(c, &to("192.0.2.2:53", &data[1..])).unwrap();
    wait(&p.world, S);
    assert_eq!(recv(&mut server, s).unwrap().concat_payload(), data[1..]);
    assert_eq!(p.world.link_counters(p.ab).offered, 65_515u64.div_ceil(1480));
    client.set(c, SocketOption::DontFragment(true)).unwrap();
    assert_eq!(kind(client.send(c, &to("192.0.2.2:53", &data[..1473]))), Err(ErrorKind::MessageTooLarge));
    client.send(c, &to("192.0.2.2:53", &data[..1472])).unwrap();
}

#[test]
fn a_lost_fragment_loses_the_datagram() {
    let p = pair(1, LinkConfig::default().without([1]));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = bind(&mut client, 2, "0.0.0.0:0");
    client.send(c, &to("192.0.2.2:53", &[0; 4000])).unwrap();
    client.send(c, &to("192.0.2.2:53", &[0; 3999])).unwrap();
    wait(&p.world, S);
    assert_eq!(recv(&mut server, s).unwrap().len(), 1);
}

#[test]
fn a_smaller_path_is_learnt_from_icmp() {
    let p = pair(1, LinkConfig::delay(MS).with_mtu(1280, TooBig::Report));
    let mut client = p.world.net(p.a);
    let c = bind(&mut client, 2, "0.0.0.0:0");
    client.set(c, SocketOption::DontFragment(true)).unwrap();
    client.set(c, SocketOption::IcmpErrors(true)).unwrap();
    client.send(c, &to("192.0.2.2:53", &[0; 1300])).unwrap();
    wait(&p.world, S);
    let icmp = client.take_icmp_error(c).unwrap();
    assert_eq!((icmp.icmp_type, icmp.icmp_code, icmp.mtu), (3, 4, Some(1280)));
    assert_eq!(recv(&mut client, c), Err(ErrorKind::MessageTooLarge));
    // It is advice: who forbids fragments finds the path's size himself (RFC 8899), and a forged error changes nothing.
    client.send(c, &to("192.0.2.2:53", &[0; 1300])).unwrap();
    client.send(c, &to("192.0.2.2:53", &[0; 1252])).unwrap();
}

#[test]
fn a_port_is_taken_once_unless_it_is_shared() {
    let p = pair(1, LinkConfig::default());
    let mut net = p.world.net(p.a);
    bind(&mut net, 1, "0.0.0.0:53");
    let open = |net: &mut SimNet, local: &str, reuse_address| {
        let local = addr(local);
        kind(net.udp(Token(1), local, &SocketOptions { local: Some(local), reuse_address, ..plain() }))
    };
    assert_eq!(open(&mut net, "192.0.2.1:53", false), Err(ErrorKind::AddrInUse));
    assert!(open(&mut net, "[::]:53", false).is_ok(), "the families are separate");
    assert_eq!(open(&mut net, "192.0.2.9:54", false), Err(ErrorKind::AddrNotAvailable));
    assert!(open(&mut net, "0.0.0.0:55", true).is_ok() && open(&mut net, "0.0.0.0:55", true).is_ok());
    let other = net.udp(Token(1), addr("[::]:0"), &SocketOptions { local: Some(addr("0.0.0.0:0")), ..plain() });
    assert_eq!(kind(other), Err(ErrorKind::InvalidInput));
}

#[test]
fn a_socket_bound_to_an_interface_that_is_down_cannot_send() {
    let p = pair(1, LinkConfig::default());
    let mut net = p.world.net(p.a);
    let bound = SocketOptions { interface: Some(p.iface_a.index), ..plain() };
    let c = net.udp(Token(1), addr("0.0.0.0:0"), &bound).unwrap();
    let free = bind(&mut net, 2, "0.0.0.0:0");
    p.world.set_interface_up(p.iface_a, false);
    assert_eq!(kind(net.send(c, &to("192.0.2.2:53", b"?"))), Err(ErrorKind::NetworkDown));
    assert_eq!(kind(net.send(free, &to("192.0.2.2:53", b"?"))), Err(ErrorKind::NetworkUnreachable));
    assert_eq!(net.source_for("192.0.2.2".parse().unwrap()), None);
    p.world.set_interface_up(p.iface_a, true);
    assert_eq!(kind(net.send(c, &to("192.0.2.2:53", b"?"))), Ok(()));
    p.world.remove_address(p.iface_a, A4.parse().unwrap());
    let gone = Transmit { source: Some(A4.parse().unwrap()), ..to("192.0.2.2:53", b"?") };
    assert_eq!(kind(net.send(free, &gone)), Err(ErrorKind::AddrNotAvailable));
}

#[test]
fn a_wrong_bit_reaches_only_who_does_without_a_checksum() {
    let p = pair(1, LinkConfig { corrupt: 1.0, ..LinkConfig::delay(MS) });
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = client.udp(Token(2), addr("0.0.0.0:0"), &plain()).unwrap();
    let sent = [0; 1000];
    let mut arrived = 0;
    for checked in [true, false] {
        client.set(c, SocketOption::NoUdpChecksum(!checked)).unwrap();
        for _ in 0..50 {
            client.send(c, &to("192.0.2.2:53", &sent)).unwrap();
            wait(&p.world, MS * 10);
            for (_, bytes) in recv(&mut server, s).unwrap_or_default() {
                assert!(!checked);
                arrived += 1;
                // A flip in the header leaves the payload as it was, or cuts it.
                assert!(bytes.iter().map(|b| b.count_ones()).sum::<u32>() <= 1);
            }
        }
    }
    // Most of the 8,064 bits are payload.
    assert!(arrived > 45, "{arrived}");
    assert_eq!(p.world.link_counters(p.ab).corrupted, 100);
}

#[test]
fn a_queue_that_marks_sets_the_codepoint_of_those_who_understand() {
    let managed = Discipline::Codel(Codel { ecn: true, ..Codel::default() });
    let link = LinkConfig::rate(1_000_000, MS).with_queue(QueueLimit::Packets(1000)).with_discipline(managed);
    let p = pair(1, link);
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = client.udp(Token(2), addr("0.0.0.0:0"), &plain()).unwrap();
    let mut got = Vec::new();
    for ecn in [Ecn::Ect0, Ecn::NotEct] {
        // 2 s of traffic in one: a standing queue.
        for _ in 0..250 {
            client.send(c, &Transmit { ecn, ..to("192.0.2.2:53", &[0; 972]) }).unwrap();
            wait(&p.world, MS * 4);
            got.extend(recv(&mut server, s).unwrap_or_default());
        }
        for _ in 0..500 {
            wait(&p.world, MS * 10);
            got.extend(recv(&mut server, s).unwrap_or_default());
        }
    }
    let counters = p.world.link_counters(p.ab);
    let marked = got.iter().filter(|(meta, _)| meta.ecn == Ecn::Ce).count() as u64;
    assert!(marked > 5 && counters.managed > 5, "{counters:?}");
    assert_eq!((marked, counters.queue_full), (counters.marked, 0));
    assert_eq!(got.len() as u64, counters.delivered);
    assert!(got.iter().all(|(meta, _)| meta.ecn != Ecn::Ect1));
}

#[test]
fn a_link_may_deliver_twice() {
    let p = pair(1, LinkConfig { duplicate: 1.0, ..LinkConfig::delay(MS) });
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let s = bind(&mut server, 1, "0.0.0.0:53");
    let c = client.udp(Token(2), addr("0.0.0.0:0"), &plain()).unwrap();
    // The second in three pieces, whose copies are pieces of nothing.
    for (len, times) in [(100, 2), (4000, 1)] {
        client.send(c, &to("192.0.2.2:53", &vec![7; len])).unwrap();
        wait(&p.world, MS * 10);
        let got = recv(&mut server, s).unwrap();
        assert!(got.len() == times && got.iter().all(|(_, bytes)| *bytes == vec![7; len]));
    }
}
