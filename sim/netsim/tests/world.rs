//! Topologies, time, services and what drives hosts.

mod common;

use common::*;
use neater_base::net::{
    Ecn, ErrorKind, InterfaceKind, NameConfig, Net, NetEvent, RecvBatch, SocketOptions, Token, Transmit,
};
use neater_base::{Instant, WallTime};
use neater_link::{DropReason, Filter, LinkConfig, Match, Protocol};
use neater_netsim::{HostId, IfaceId, LinkId, PacketKind, SimNet, TcpAction, TraceVerdict, World};
use std::net::IpAddr;

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

/// A phone with Wi-Fi (10 ms) and cellular (50 ms), and a server (5 ms), all on the internet.
fn internet() -> (World, HostId, HostId, IfaceId, IfaceId, IfaceId) {
    let world = World::new(5);
    let (phone, server) = (world.add_host("phone"), world.add_host("server"));
    let wifi = world.add_interface(phone, "wlan0", InterfaceKind::WiFi, &[ip("192.0.2.1"), ip("2001:db8:1::1")]);
    let cell = world.add_interface(phone, "wwan0", InterfaceKind::Cellular, &[ip("198.51.100.1")]);
    let eth = world.add_interface(server, "eth0", InterfaceKind::Wired, &[ip("203.0.113.1"), ip("2001:db8:2::1")]);
    for (iface, ms) in [(wifi, 10), (cell, 50), (eth, 5)] {
        world.attach(iface, LinkConfig::delay(MS * ms), LinkConfig::delay(MS * ms));
    }
    (world, phone, server, wifi, cell, eth)
}

fn connect_time(world: &World, net: &mut SimNet, options: &SocketOptions) -> Result<u128, ErrorKind> {
    let start = world.now();
    let sock = net.connect(Token(1), addr("203.0.113.1:80"), options).map_err(|e| e.kind)?;
    assert!(step_until(world, S * 100, || net.connect_result(sock).map_err(|e| e.kind) != Err(ErrorKind::WouldBlock)));
    net.connect_result(sock).map_err(|e| e.kind)?;
    net.close(sock);
    Ok((world.now() - start).as_millis())
}

#[test]
fn the_way_follows_the_interface_the_source_or_the_default_route() {
    let (world, phone, server, wifi, cell, _) = internet();
    let (mut net, mut far) = (world.net(phone), world.net(server));
    far.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    assert_eq!(connect_time(&world, &mut net, &plain()), Ok(30));
    let bound = SocketOptions { interface: Some(cell.index), ..plain() };
    assert_eq!(connect_time(&world, &mut net, &bound), Ok(110));
    let sourced = SocketOptions { local: Some(addr("198.51.100.1:0")), ..plain() };
    assert_eq!(connect_time(&world, &mut net, &sourced), Ok(110));
    assert_eq!(net.source_for(ip("203.0.113.1")), Some(ip("192.0.2.1")));
    assert_eq!(net.source_for(ip("2001:db8:2::1")), Some(ip("2001:db8:1::1")));
    world.set_interface_up(wifi, false);
    assert_eq!(net.source_for(ip("203.0.113.1")), Some(ip("198.51.100.1")));
    assert_eq!(net.source_for(ip("2001:db8:2::1")), None);
    assert_eq!(connect_time(&world, &mut net, &plain()), Ok(110));
    world.set_interface_up(wifi, true);
    world.set_default_routes(wifi, false, true);
    assert_eq!(net.source_for(ip("203.0.113.1")), Some(ip("198.51.100.1")));
}

#[test]
fn interfaces_and_changes_of_them_are_told() {
    let (world, phone, _, wifi, cell, _) = internet();
    let mut net = world.net(phone);
    assert!(!world.has_events(phone), "a new handle knows the state");
    let names: Vec<_> =
        net.interfaces().iter().map(|i| (i.index, i.name.as_str(), i.default_v4, i.default_v6)).collect();
    assert_eq!(names, [(1, "lo", false, false), (2, "wlan0", true, true), (3, "wwan0", true, false)]);
    world.remove_address(wifi, ip("192.0.2.1"));
    world.add_address(
        cell,
        neater_base::net::InterfaceAddr { addr: ip("2001:db8:3::1"), prefix: 64, temporary: true, deprecated: false },
    );
    assert!(world.has_events(phone));
    assert_eq!(events(&mut net), [NetEvent::PathsChanged]);
    let defaults: Vec<_> = net.interfaces().iter().map(|i| (i.default_v4, i.default_v6)).collect();
    assert_eq!(defaults, [(false, false), (false, true), (true, true)]);
    world.set_interface_up(wifi, false);
    events(&mut net);
    assert!(!net.interfaces()[1].up && !net.interfaces()[1].default_v6);
}

#[test]
fn a_route_of_several_links_adds_up() {
    let world = World::new(1);
    let (a, b) = (world.add_host("a"), world.add_host("b"));
    let ia = world.add_interface(a, "e", InterfaceKind::Wired, &[ip(A4)]);
    let ib = world.add_interface(b, "e", InterfaceKind::Wired, &[ip(B4)]);
    let hops: Vec<LinkId> = (1..=3).map(|ms| world.add_link(LinkConfig::delay(MS * ms))).collect();
    world.set_route(ia, ib, &hops);
    world.set_route(ib, ia, &hops[..1]);
    let (mut net, mut far) = (world.net(a), world.net(b));
    far.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let start = world.now();
    let sock = net.connect(Token(1), addr("192.0.2.2:80"), &plain()).unwrap();
    assert!(step_until(&world, S, || net.connect_result(sock).is_ok()));
    assert_eq!(world.now() - start, MS * 7);
    world.set_route(ia, ib, &[]);
    assert_eq!(net.connect(Token(1), addr("192.0.2.2:80"), &plain()).unwrap_err().kind, ErrorKind::NetworkUnreachable);
}

#[test]
fn a_host_reaches_itself_by_loopback_and_by_its_own_addresses() {
    let p = pair(1, LinkConfig::default().with_down(true));
    let mut net = p.world.net(p.a);
    net.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    net.listen(Token(1), addr("[::]:80"), &plain()).unwrap();
    for to in ["127.0.0.1:80", "192.0.2.1:80", "[::1]:80", "[2001:db8::1]:80"] {
        let sock = net.connect(Token(2), addr(to), &plain()).unwrap();
        assert!(step_until(&p.world, S, || net.connect_result(sock).is_ok()), "{to}");
        assert_eq!(net.local_addr(sock).unwrap().ip(), addr(to).ip());
    }
}

#[test]
fn descriptors_are_limited_and_a_refused_connection_stays_in_the_queue() {
    let p = pair(1, LinkConfig::delay(MS));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    p.world.set_max_sockets(p.a, 2);
    p.world.set_max_sockets(p.b, 1);
    let l = server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let u = client.udp(Token(1), addr("0.0.0.0:0"), &plain()).unwrap();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    let full = Err(ErrorKind::TooManyFiles);
    assert_eq!(client.connect(Token(3), addr("192.0.2.2:80"), &plain()).map_err(|e| e.kind), full);
    assert_eq!(client.udp(Token(3), addr("0.0.0.0:0"), &plain()).map_err(|e| e.kind), full);
    assert_eq!(client.listen(Token(3), addr("0.0.0.0:81"), &plain()).map_err(|e| e.kind), full);
    client.close(u);
    client.udp(Token(3), addr("0.0.0.0:0"), &plain()).unwrap();
    wait(&p.world, MS * 10);
    client.connect_result(c).unwrap();
    assert_eq!(server.accept(l, Token(4)).map_err(|e| e.kind), Err(ErrorKind::TooManyFiles));
    assert_eq!(server.accept(l, Token(4)).map_err(|e| e.kind), Err(ErrorKind::TooManyFiles));
    p.world.set_max_sockets(p.b, 2);
    server.accept(l, Token(4)).unwrap();
}

#[test]
fn a_closed_handle_names_nothing() {
    let p = pair(1, LinkConfig::default());
    let mut net = p.world.net(p.a);
    let u = net.udp(Token(1), addr("0.0.0.0:0"), &plain()).unwrap();
    net.close(u);
    let none = ErrorKind::NotConnected;
    assert_eq!(net.local_addr(u).unwrap_err().kind, none);
    assert_eq!(net.recv(u, &mut RecvBatch::default()).unwrap_err().kind, none);
    assert_eq!(net.read(u, &mut [0]).unwrap_err().kind, none);
    assert_eq!(net.accept(u, Token(1)).unwrap_err().kind, none);
    let v = net.udp(Token(1), addr("0.0.0.0:0"), &plain()).unwrap();
    assert_ne!(u, v);
    net.close(u);
    assert!(net.local_addr(v).is_ok());
}

#[test]
fn clocks_go_together_and_the_wall_clock_may_jump() {
    let world = World::starting_at(1, Instant::from_nanos(77), WallTime(S * 1000));
    let host = world.add_host("a");
    let mut net = world.net(host);
    assert_eq!((net.now(), net.wall()), (Instant::from_nanos(77), WallTime(S * 1000)));
    wait(&world, S * 5);
    assert_eq!((net.now(), net.wall()), (Instant::from_nanos(77) + S * 5, WallTime(S * 1005)));
    world.set_wall(WallTime(S * 3));
    wait(&world, S);
    assert_eq!((net.now(), net.wall()), (Instant::from_nanos(77) + S * 6, WallTime(S * 4)));
    world.inject(host, NetEvent::Resumed { gap: S * 60 });
    assert_eq!(events(&mut net), [NetEvent::Resumed { gap: S * 60 }]);
}

#[test]
fn wake_ups_are_armed_deadlines_again_and_events() {
    let world = World::new(1);
    let (a, b) = (world.add_host("a"), world.add_host("b"));
    let (mut na, mut nb) = (world.net(a), world.net(b));
    let start = world.now();
    assert_eq!(world.next_wakeup(), None);
    na.arm(Some(start + S * 2), false);
    nb.arm(Some(start + S), false);
    assert_eq!(world.next_wakeup(), Some((b, start + S)));
    assert!(!world.has_events(b));
    world.run_until(start + S);
    assert!(world.has_events(b) && !world.has_events(a));
    nb.arm(None, false);
    assert_eq!(world.next_wakeup(), Some((a, start + S * 2)));
    nb.arm(None, true);
    assert_eq!(world.next_wakeup(), Some((b, start + S)));
    assert!(world.has_events(b));
    drop(nb);
    assert!(!world.has_events(b), "nobody is there to have a turn");
    world.set_name_config(a, NameConfig { resolv_conf: b"nameserver 192.0.2.53".to_vec(), hosts: Vec::new() });
    assert!(world.has_events(a));
    assert_eq!(events(&mut na), [NetEvent::NamesChanged]);
    assert_eq!(na.name_config().resolv_conf, b"nameserver 192.0.2.53");
}

#[test]
fn dropping_the_last_handle_ends_the_process() {
    let p = pair(1, LinkConfig::delay(MS));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (_, _, s) = established(&p, &mut client, &mut server);
    let second = p.world.net(p.a);
    drop(client);
    assert_eq!(p.world.open_sockets(p.a), 1);
    drop(second);
    assert_eq!(p.world.open_sockets(p.a), 0);
    wait(&p.world, MS * 10);
    assert_eq!(read(&mut server, s), Ok(Vec::new()), "the peer sees the end");
}

#[test]
fn a_udp_service_answers_when_and_what_it_likes() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    p.world.udp_service(
        p.b,
        53,
        Box::new(|_, _, question, rng| {
            let mut lie = vec![0; 4];
            rng.fill(&mut lie);
            vec![(MS * 100, question.to_vec()), (MS * 5, lie)]
        }),
    );
    let mut net = p.world.net(p.a);
    let sock = net.udp(Token(1), addr("0.0.0.0:0"), &plain()).unwrap();
    net.udp_connect(sock, addr("192.0.2.2:53")).unwrap();
    let start = p.world.now();
    let contents = b"who?";
    let destination = addr("192.0.2.2:53");
    net.send(
        sock,
        &Transmit { destination, source: None, interface: None, ecn: Ecn::NotEct, segment_size: None, contents },
    )
    .unwrap();
    let mut batch = RecvBatch::default();
    let mut got = Vec::new();
    step_until(&p.world, S, || {
        if net.recv(sock, &mut batch).is_ok() {
            got.extend(batch.filled().map(|(_, b)| (p.world.now() - start, b.to_vec())));
        }
        false
    });
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].0, got[1].0), (MS * 25, MS * 120));
    assert!(got[0].1.len() == 4 && got[0].1 != contents && got[1].1 == contents);
}

#[test]
fn a_tcp_service_greets_answers_and_closes() {
    let p = pair(1, LinkConfig::delay(MS * 10).with_loss(0.05));
    let mut greeted = std::collections::BTreeSet::new();
    p.world.tcp_service(
        p.b,
        7,
        Box::new(move |_, peer, received, _| {
            if greeted.insert(peer) {
                return vec![(MS * 5, TcpAction::Send(b"hello ".to_vec()))];
            }
            // One request is four bytes.
            if received.len() < 4 {
                return Vec::new();
            }
            let mut answer: Vec<u8> = received.drain(..4).collect();
            answer.resize(400_000, b'.');
            vec![(MS * 50, TcpAction::Send(answer)), (MS * 50, TcpAction::Close)]
        }),
    );
    let mut net = p.world.net(p.a);
    for _ in 0..3 {
        let sock = net.connect(Token(1), addr("192.0.2.2:7"), &plain()).unwrap();
        assert!(step_until(&p.world, S * 10, || net.connect_result(sock).is_ok()));
        write(&mut net, sock, b"pi").unwrap();
        wait(&p.world, S);
        write(&mut net, sock, b"ng").unwrap();
        let mut got = Vec::new();
        let ended = step_until(&p.world, S * 100, || match read(&mut net, sock) {
            Ok(bytes) if bytes.is_empty() => true,
            Ok(bytes) => {
                got.extend(bytes);
                false
            }
            Err(_) => false,
        });
        assert!(ended && got.starts_with(b"hello ping..") && got.len() == 400_006, "{}", got.len());
        net.close(sock);
    }
    drop(net);
    wait(&p.world, S * 200);
    assert!(p.world.is_empty());
}

#[test]
fn a_tcp_service_can_reset() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    p.world.tcp_service(p.b, 7, Box::new(|_, _, _, _| vec![(MS, TcpAction::Abort)]));
    let mut net = p.world.net(p.a);
    let sock = net.connect(Token(1), addr("192.0.2.2:7"), &plain()).unwrap();
    assert!(step_until(&p.world, S, || read(&mut net, sock) == Err(ErrorKind::ConnectionReset)));
}

#[test]
fn the_trace_tells_every_step_of_a_packet() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let mut net = p.world.net(p.a);
    p.world.trace(true);
    net.connect(Token(1), addr("192.0.2.2:81"), &plain()).unwrap();
    wait(&p.world, S);
    let trace = p.world.take_trace();
    let story: Vec<_> = trace.iter().map(|e| (e.link, e.size, e.verdict)).collect();
    let at = |ms| trace[0].time - MS * 10 + MS * ms;
    let expected = [
        (Some(p.ab), 60, TraceVerdict::Crossed { entered: at(0) }),
        (None, 60, TraceVerdict::Delivered),
        (Some(p.ba), 40, TraceVerdict::Crossed { entered: at(10) }),
        (None, 40, TraceVerdict::Delivered),
    ];
    assert_eq!(story, expected);
    assert!(matches!(trace[0].kind, PacketKind::Tcp { syn: true, ack: false, .. }));
    assert!(matches!(trace[2].kind, PacketKind::Tcp { rst: true, .. }));
    assert!(p.world.take_trace().is_empty());
    p.world.set_link(p.ab, LinkConfig::default().with_filter(Filter::drop(Match::Protocol(Protocol::Tcp))));
    net.connect(Token(1), addr("192.0.2.2:81"), &plain()).unwrap();
    p.world.step();
    assert_eq!(p.world.take_trace()[0].verdict, TraceVerdict::Dropped(DropReason::Filtered));
}

#[test]
fn worlds_and_handles_can_move_between_threads() {
    fn send<T: Send>() {}
    send::<World>();
    send::<SimNet>();
}

#[test]
fn an_address_that_moves_takes_its_packets_along() {
    let (world, phone, server, _, _, eth) = internet();
    let spare = world.add_host("spare");
    let other = world.add_interface(spare, "eth0", InterfaceKind::Wired, &[]);
    world.attach(other, LinkConfig::delay(MS * 100), LinkConfig::delay(MS * 100));
    let (mut net, mut old, mut new) = (world.net(phone), world.net(server), world.net(spare));
    old.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    new.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    assert_eq!(connect_time(&world, &mut net, &plain()), Ok(30));
    world.remove_address(eth, ip("203.0.113.1"));
    let home =
        neater_base::net::InterfaceAddr { addr: ip("203.0.113.1"), prefix: 24, temporary: false, deprecated: false };
    world.add_address(other, home);
    assert_eq!(connect_time(&world, &mut net, &plain()), Ok(220));
}
