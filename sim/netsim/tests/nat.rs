//! NAT boxes in a world: TCP, UDP and ICMP through them.

mod common;

use common::*;
use neater_base::net::{
    Ecn, ErrorKind, InterfaceKind, Net, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_link::{LinkConfig, NatConfig, TooBig};
use neater_netsim::{HostId, IfaceId, NatId, SimNet, World};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

const OUTSIDE: &str = "203.0.113.1";
const SERVER: &str = "198.51.100.1";
const INSIDE: [&str; 2] = ["10.0.0.2", "10.0.0.3"];

/// Two hosts behind a box, a server in the internet, 5 ms on each of the links.
struct Home {
    world: World,
    hosts: [HostId; 2],
    ifaces: [IfaceId; 2],
    server: HostId,
    nat: NatId,
}

fn home_with(config: NatConfig, outer: LinkConfig) -> Home {
    let world = World::new(1);
    let link = || LinkConfig::delay(MS * 5);
    let nat = world.add_nat(config, outer.clone(), outer);
    let inside = INSIDE.map(|addr| {
        let host = world.add_host(addr);
        let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ip(addr)]);
        world.attach_behind(iface, nat, link(), link());
        (host, iface)
    });
    let server = world.add_host("server");
    let iface = world.add_interface(server, "eth0", InterfaceKind::Wired, &[ip(SERVER)]);
    world.attach(iface, link(), link());
    Home { world, hosts: inside.map(|i| i.0), ifaces: inside.map(|i| i.1), server, nat }
}

fn home(config: NatConfig) -> Home {
    home_with(config, LinkConfig::delay(MS * 5))
}

fn udp(net: &mut SimNet, local: &str) -> Sock {
    let local = addr(local);
    net.udp(Token(9), local, &SocketOptions { local: Some(local), ..plain() }).unwrap()
}

fn send(net: &mut SimNet, sock: Sock, to: &str, contents: &[u8]) -> Result<(), ErrorKind> {
    let transmit = Transmit {
        destination: addr(to),
        source: None,
        interface: None,
        ecn: Ecn::NotEct,
        segment_size: None,
        contents,
    };
    net.send(sock, &transmit).map_err(|e| e.kind)
}

/// Who has sent something.
fn senders(net: &mut SimNet, sock: Sock) -> Vec<SocketAddr> {
    let mut batch = RecvBatch::default();
    let mut all = Vec::new();
    while net.recv(sock, &mut batch).is_ok() {
        all.extend(batch.metas.iter().map(|m| m.source));
    }
    all
}

#[test]
fn a_datagram_leaves_with_the_address_of_the_box_and_the_answer_finds_back() {
    let h = home(NatConfig::port_restricted_cone(ip(OUTSIDE)));
    let (mut a, mut b, mut server) = (h.world.net(h.hosts[0]), h.world.net(h.hosts[1]), h.world.net(h.server));
    let (sa, sb, ss) = (udp(&mut a, "0.0.0.0:7000"), udp(&mut b, "0.0.0.0:7000"), udp(&mut server, "0.0.0.0:53"));
    let start = h.world.now();
    send(&mut a, sa, "198.51.100.1:53", b"a").unwrap();
    assert!(step_until(&h.world, S, || !senders(&mut server, ss).is_empty()));
    assert_eq!(h.world.now() - start, MS * 15, "inner link, box's link, server's link");
    send(&mut a, sa, "198.51.100.1:53", b"a").unwrap();
    send(&mut b, sb, "198.51.100.1:53", b"b").unwrap();
    wait(&h.world, MS * 100);
    let seen = senders(&mut server, ss);
    assert_eq!(seen, ["203.0.113.1:7000", "203.0.113.1:7001"].map(addr));
    send(&mut server, ss, "203.0.113.1:7001", b"to b").unwrap();
    wait(&h.world, MS * 100);
    assert_eq!((senders(&mut a, sa).len(), senders(&mut b, sb)), (0, vec![addr("198.51.100.1:53")]));
    // A stranger does not get in, nor does anybody by the inside address.
    let other = udp(&mut server, "0.0.0.0:54");
    send(&mut server, other, "203.0.113.1:7001", b"?").unwrap();
    send(&mut server, other, "10.0.0.3:7000", b"?").unwrap();
    wait(&h.world, MS * 100);
    assert!(senders(&mut b, sb).is_empty());
    let counters = h.world.with_nat(h.nat, |nat, _| nat.counters());
    assert_eq!((counters.out, counters.inward, counters.dropped_in, counters.mapped), (3, 1, 1, 2));
}

#[test]
fn bulk_data_crosses_a_box_and_dies_when_it_forgets() {
    let h = home(NatConfig::symmetric(ip(OUTSIDE)));
    let data = random_bytes(3, 300_000);
    let mut receiver = Receiver::new(h.world.net(h.server), 4096, Duration::ZERO, 4);
    let mut sender = Sender::new(h.world.net(h.hosts[0]), addr("198.51.100.1:80"), data.clone(), 3000, 5);
    assert!(run(&h.world, &mut [&mut sender, &mut receiver], S * 100));
    assert!(receiver.data == data);
    // A connection that the box does not know any more does not get out: it times out.
    let (mut client, mut server) = (h.world.net(h.hosts[1]), h.world.net(h.server));
    let listener = server.listen(Token(1), addr("0.0.0.0:81"), &plain()).unwrap();
    let options = SocketOptions { set: vec![SocketOption::UserTimeout(Some(S * 30))], ..plain() };
    let c = client.connect(Token(2), addr("198.51.100.1:81"), &options).unwrap();
    assert!(step_until(&h.world, S * 5, || client.connect_result(c).is_ok()));
    wait(&h.world, MS * 100);
    let (_, remote) = server.accept(listener, Token(3)).unwrap();
    assert_eq!(remote.ip(), ip(OUTSIDE));
    h.world.with_nat(h.nat, |nat, _| nat.forget());
    write(&mut client, c, b"lost").unwrap();
    wait(&h.world, S * 60);
    assert_eq!(read(&mut client, c), Err(ErrorKind::TimedOut));
}

#[test]
fn errors_of_the_network_are_told_in_the_words_of_who_is_told() {
    // The server has no socket at the port: what it quotes has the outside address, and the inside host knows it.
    let h = home(NatConfig::port_restricted_cone(ip(OUTSIDE)));
    let (mut a, mut server) = (h.world.net(h.hosts[0]), h.world.net(h.server));
    let sa = udp(&mut a, "0.0.0.0:7000");
    a.udp_connect(sa, addr("198.51.100.1:9")).unwrap();
    send(&mut a, sa, "198.51.100.1:9", b"?").unwrap();
    wait(&h.world, MS * 100);
    assert_eq!(send(&mut a, sa, "198.51.100.1:9", b"?"), Err(ErrorKind::ConnectionRefused));
    // The other way round: the inside host has closed its socket, and the box still has the mapping.
    let ss = udp(&mut server, "0.0.0.0:9");
    server.udp_connect(ss, addr("203.0.113.1:7000")).unwrap();
    a.close(sa);
    send(&mut server, ss, "203.0.113.1:7000", b"?").unwrap();
    wait(&h.world, MS * 100);
    assert_eq!(send(&mut server, ss, "203.0.113.1:7000", b"?"), Err(ErrorKind::ConnectionRefused));
}

#[test]
fn path_mtus_are_found_on_both_sides_of_a_box() {
    // Beyond the box from inside: the box's own access link.
    let h = home_with(NatConfig::symmetric(ip(OUTSIDE)), LinkConfig::delay(MS).with_mtu(1300, TooBig::Report));
    let data = random_bytes(3, 100_000);
    let mut receiver = Receiver::new(h.world.net(h.server), 4096, Duration::ZERO, 4);
    let mut sender = Sender::new(h.world.net(h.hosts[0]), addr("198.51.100.1:80"), data.clone(), 3000, 5);
    assert!(run(&h.world, &mut [&mut sender, &mut receiver], S * 20));
    assert!(receiver.data == data);
    // From outside: the link behind the box.
    let h = home(NatConfig::full_cone(ip(OUTSIDE)));
    let narrow = LinkConfig::delay(MS).with_mtu(1300, TooBig::Report);
    h.world.attach_behind(h.ifaces[0], h.nat, LinkConfig::delay(MS), narrow);
    h.world.with_nat(h.nat, |nat, _| nat.forward(neater_link::Protocol::Tcp, 80, addr("10.0.0.2:80")));
    let mut receiver = Receiver::new(h.world.net(h.hosts[0]), 4096, Duration::ZERO, 4);
    let mut sender = Sender::new(h.world.net(h.server), addr("203.0.113.1:80"), data.clone(), 3000, 5);
    assert!(run(&h.world, &mut [&mut sender, &mut receiver], S * 20));
    assert!(receiver.data == data);
}

#[test]
fn neighbours_meet_directly_and_by_the_box() {
    let h = home(NatConfig::full_cone(ip(OUTSIDE)));
    let (mut a, mut b) = (h.world.net(h.hosts[0]), h.world.net(h.hosts[1]));
    let (sa, sb) = (udp(&mut a, "0.0.0.0:7000"), udp(&mut b, "0.0.0.0:8000"));
    send(&mut a, sa, "10.0.0.3:8000", b"direct").unwrap();
    wait(&h.world, MS * 10);
    assert_eq!(senders(&mut b, sb), [addr("10.0.0.2:7000")]);
    send(&mut b, sb, "198.51.100.1:53", b"makes a mapping").unwrap();
    wait(&h.world, MS * 100);
    send(&mut a, sa, "203.0.113.1:8000", b"hairpin").unwrap();
    wait(&h.world, MS * 10);
    assert_eq!(senders(&mut b, sb), [addr("203.0.113.1:7000")]);
}

#[test]
fn two_homes_may_use_the_same_addresses() {
    let h = home(NatConfig::full_cone(ip(OUTSIDE)));
    let link = || LinkConfig::delay(MS * 5);
    let nat = h.world.add_nat(NatConfig::full_cone(ip("203.0.113.2")), link(), link());
    let host = h.world.add_host("other");
    let iface = h.world.add_interface(host, "eth0", InterfaceKind::Wired, &[ip(INSIDE[0])]);
    h.world.attach_behind(iface, nat, link(), link());
    let (mut a, mut far) = (h.world.net(h.hosts[0]), h.world.net(host));
    let (sa, sf) = (udp(&mut a, "0.0.0.0:7000"), udp(&mut far, "0.0.0.0:7000"));
    send(&mut a, sa, "198.51.100.1:53", b"opens").unwrap();
    wait(&h.world, MS * 100);
    send(&mut far, sf, "203.0.113.1:7000", b"box to box").unwrap();
    wait(&h.world, MS * 100);
    assert_eq!(senders(&mut a, sa), [addr("203.0.113.2:7000")]);
    assert!(senders(&mut far, sf).is_empty());
}

#[test]
fn a_box_that_rebinds_changes_what_the_peer_sees() {
    let h = home(NatConfig::port_restricted_cone(ip(OUTSIDE)));
    let (mut a, mut server) = (h.world.net(h.hosts[0]), h.world.net(h.server));
    let (sa, ss) = (udp(&mut a, "0.0.0.0:7000"), udp(&mut server, "0.0.0.0:53"));
    let mut seen = Vec::new();
    for step in 0..3 {
        send(&mut a, sa, "198.51.100.1:53", b"a").unwrap();
        wait(&h.world, MS * 100);
        seen.extend(senders(&mut server, ss));
        h.world
            .with_nat(h.nat, |nat, now| if step == 0 { nat.rebind(now) } else { nat.set_external(ip("203.0.113.77")) });
    }
    assert_eq!(seen, ["203.0.113.1:7000", "203.0.113.1:7001", "203.0.113.77:7001"].map(addr));
}
