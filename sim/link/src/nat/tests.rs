use super::*;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::BTreeMap;

const OUTSIDE: &str = "203.0.113.1";
const S: Duration = Duration::from_secs(1);

fn at(s: u32) -> Instant {
    Instant::ZERO + S * s
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn outside() -> IpAddr {
    OUTSIDE.parse().unwrap()
}

fn udp(source: &str, destination: &str) -> NatPacket {
    let (source, destination) = (addr(source), addr(destination));
    NatPacket { protocol: Protocol::Udp, source, destination, tcp: TcpFlags::default() }
}

fn tcp(source: &str, destination: &str, flags: &str) -> NatPacket {
    let has = |f| flags.contains(f);
    let tcp = TcpFlags { syn: has('S'), ack: has('A'), fin: has('F'), rst: has('R') };
    NatPacket { protocol: Protocol::Tcp, tcp, ..udp(source, destination) }
}

/// Sends out and returns the outside port.
fn out(nat: &mut Nat, now: Instant, packet: NatPacket) -> u16 {
    match nat.outbound(now, &packet) {
        Translation::Pass { source, destination } => {
            assert_eq!((source.ip(), destination), (outside(), packet.destination));
            source.port()
        }
        other => panic!("{other:?}"),
    }
}

/// Whether a packet from outside gets in, to `inside`.
fn gets_in(nat: &mut Nat, now: Instant, from: &str, port: u16, inside: &str) -> bool {
    match nat.inbound(now, &udp(from, &format!("{OUTSIDE}:{port}"))) {
        Translation::Pass { source, destination } => {
            assert_eq!((source, destination), (addr(from), addr(inside)));
            true
        }
        Translation::Drop(NatDrop::Filtered | NatDrop::NoMapping) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_classic_kinds_map_and_filter_as_their_names_say() {
    let kinds = [
        // One outside endpoint for all peers; then who gets in: another port of the peer, another address.
        (NatConfig::full_cone(outside()), true, [true, true]),
        (NatConfig::restricted_cone(outside()), true, [true, false]),
        (NatConfig::port_restricted_cone(outside()), true, [false, false]),
        (NatConfig::symmetric(outside()), false, [false, false]),
    ];
    for (config, one, welcome) in kinds {
        let mut nat = Nat::new(config, 1);
        let (inside, peer) = ("10.0.0.2:5000", "198.51.100.1:53");
        let port = out(&mut nat, at(0), udp(inside, peer));
        assert_eq!(out(&mut nat, at(1), udp(inside, peer)), port, "the same for the same peer");
        assert!(gets_in(&mut nat, at(1), peer, port, inside));
        assert_eq!(["198.51.100.1:54", "198.51.100.2:53"].map(|p| gets_in(&mut nat, at(1), p, port, inside)), welcome);
        for other in ["198.51.100.1:54", "198.51.100.2:53"] {
            assert_eq!(out(&mut nat, at(2), udp(inside, other)) == port, one);
        }
        assert!(!gets_in(&mut nat, at(2), peer, port ^ 1, inside), "nothing there");
    }
    // Address-dependent: another port of the peer shares, another address does not.
    let mapping = Dependence::AddressDependent;
    let mut nat = Nat::new(NatConfig { mapping, ..NatConfig::full_cone(outside()) }, 1);
    let ports =
        ["198.51.100.1:1", "198.51.100.1:2", "198.51.100.2:1"].map(|p| out(&mut nat, at(0), udp("10.0.0.2:5", p)));
    assert!(ports[0] == ports[1] && ports[0] != ports[2]);
}

#[test]
fn udp_state_goes_after_its_time_and_is_kept_alive() {
    let (inside, peer) = ("10.0.0.2:5000", "198.51.100.1:53");
    for refresh in [true, false] {
        let mut nat = Nat::new(NatConfig { udp_refresh_inbound: refresh, ..NatConfig::full_cone(outside()) }, 1);
        let port = out(&mut nat, at(0), udp(inside, peer));
        assert!(gets_in(&mut nat, at(299), peer, port, inside));
        assert_eq!(gets_in(&mut nat, at(300), peer, port, inside), refresh);
        assert_eq!(nat.mappings(at(600)), 0);
        out(&mut nat, at(700), udp(inside, peer));
        out(&mut nat, at(999), udp(inside, peer));
        assert!(gets_in(&mut nat, at(1298), peer, port, inside));
    }
    // The permission of one peer ends although another keeps the mapping alive.
    let mut nat = Nat::new(NatConfig::port_restricted_cone(outside()), 1);
    let port = out(&mut nat, at(0), udp(inside, peer));
    for s in [100, 200, 300, 400] {
        out(&mut nat, at(s), udp(inside, "198.51.100.9:9"));
    }
    assert!(!gets_in(&mut nat, at(400), peer, port, inside));
    assert!(gets_in(&mut nat, at(400), "198.51.100.9:9", port, inside));
}

#[test]
fn tcp_state_follows_the_connection() {
    let (inside, peer, back) = ("10.0.0.2:5000", "198.51.100.1:80", "203.0.113.1:5000");
    let mut nat = Nat::new(NatConfig::port_restricted_cone(outside()), 1);
    assert_eq!(nat.outbound(at(0), &tcp(inside, peer, "A")), Translation::Drop(NatDrop::NoMapping), "not a beginning");
    assert_eq!(out(&mut nat, at(0), tcp(inside, peer, "S")), 5000);
    // Half open: four minutes.
    assert_eq!(nat.mappings(at(239)), 1);
    assert_eq!(nat.mappings(at(240)), 0);
    let come =
        |nat: &mut Nat, s, flags| matches!(nat.inbound(at(s), &tcp(peer, back, flags)), Translation::Pass { .. });
    let go =
        |nat: &mut Nat, s, flags| matches!(nat.outbound(at(s), &tcp(inside, peer, flags)), Translation::Pass { .. });
    assert!(go(&mut nat, 300, "S") && come(&mut nat, 301, "SA") && go(&mut nat, 301, "A"));
    // Established: two hours and four minutes.
    assert!(go(&mut nat, 301 + 7439, "A"));
    assert!(come(&mut nat, 301 + 7439 + 7439, "A"));
    // Closed by both: four minutes again.
    assert!(go(&mut nat, 15_200, "FA") && come(&mut nat, 15_200, "FA") && go(&mut nat, 15_200, "A"));
    assert!(come(&mut nat, 15_439, "A"));
    assert!(!come(&mut nat, 15_439 + 240, "A"));
    // A reset ends it as well, and a new connection with the same addresses begins anew.
    assert!(go(&mut nat, 20_000, "S") && come(&mut nat, 20_000, "SA") && come(&mut nat, 20_001, "RA"));
    assert!(go(&mut nat, 20_100, "S") && come(&mut nat, 20_100, "SA"));
    assert!(come(&mut nat, 20_100 + 7439, "A"));
    // Who adopts connections takes one in its midst, and gives it the long time.
    let mut nat = Nat::new(NatConfig { adopts_connections: true, ..NatConfig::symmetric(outside()) }, 1);
    assert!(go(&mut nat, 0, "A"));
    assert_eq!(nat.mappings(at(7000)), 1);
    assert_eq!(nat.outbound(at(0), &tcp("10.0.0.2:1", peer, "R")), Translation::Drop(NatDrop::NoMapping));
}

#[test]
fn ports_are_kept_counted_or_random() {
    let peer = "198.51.100.1:53";
    let ports = |ports, sources: &[&str]| -> Vec<u16> {
        let mut nat = Nat::new(NatConfig { ports, port_range: 2000..=2004, ..NatConfig::full_cone(outside()) }, 8);
        sources.iter().map(|s| out(&mut nat, at(0), udp(s, peer))).collect()
    };
    let sources = ["10.0.0.2:2001", "10.0.0.3:2001", "10.0.0.4:2001", "10.0.0.5:53"];
    assert_eq!(ports(PortAllocation::Preserving, &sources), [2001, 2002, 2003, 2000]);
    assert_eq!(ports(PortAllocation::Contiguous, &sources), [2000, 2001, 2002, 2003]);
    let mut random =
        ports(PortAllocation::Random, &["10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3", "10.0.0.2:4", "10.0.0.2:5"]);
    assert_ne!(random, [2000, 2001, 2002, 2003, 2004]);
    random.sort_unstable();
    assert_eq!(random, [2000, 2001, 2002, 2003, 2004]);
}

#[test]
fn tables_and_ports_are_bounded() {
    let peer = "198.51.100.1:53";
    let config = NatConfig { max_mappings: 3, ..NatConfig::full_cone(outside()) };
    let mut nat = Nat::new(config.clone(), 1);
    for i in 2..5 {
        out(&mut nat, at(i), udp(&format!("10.0.0.{i}:1000"), peer));
    }
    assert_eq!(nat.outbound(at(5), &udp("10.0.0.9:1", peer)), Translation::Drop(NatDrop::TableFull));
    out(&mut nat, at(302), udp("10.0.0.9:1", peer));
    let mut nat = Nat::new(NatConfig { port_range: 5..=6, ..config }, 1);
    out(&mut nat, at(0), udp("10.0.0.2:5", peer));
    out(&mut nat, at(0), udp("10.0.0.2:6", peer));
    assert_eq!(nat.outbound(at(5), &udp("10.0.0.9:1", peer)), Translation::Drop(NatDrop::NoPort));
    assert_eq!(out(&mut nat, at(300), udp("10.0.0.9:5", peer)), 5, "the port of a mapping that has ended");
    let mut nat = Nat::new(NatConfig::full_cone(outside()), 1);
    for i in 0..MAX_PEERS as u32 + 100 {
        let peer = SocketAddr::new(std::net::Ipv4Addr::from_bits(0xc633_0000 + i).into(), 9);
        out(&mut nat, at(0), NatPacket { destination: peer, ..udp("10.0.0.2:5", peer.to_string().as_str()) });
    }
    assert_eq!(nat.mappings(at(1)), 1);
}

#[test]
fn inside_endpoints_meet_by_their_outside_endpoints_if_they_may() {
    let mut nat = Nat::new(NatConfig::port_restricted_cone(outside()), 1);
    let (a, b, peer) = ("10.0.0.2:5000", "10.0.0.3:6000", "198.51.100.1:53");
    out(&mut nat, at(0), udp(a, peer));
    out(&mut nat, at(0), udp(b, peer));
    // The filter holds here, too: both have to send.
    assert_eq!(nat.outbound(at(1), &udp(a, "203.0.113.1:6000")), Translation::Drop(NatDrop::Filtered));
    let (source, destination) = (addr("203.0.113.1:6000"), addr(a));
    assert_eq!(nat.outbound(at(1), &udp(b, "203.0.113.1:5000")), Translation::Hairpin { source, destination });
    let (source, destination) = (addr("203.0.113.1:5000"), addr(b));
    assert_eq!(nat.outbound(at(1), &udp(a, "203.0.113.1:6000")), Translation::Hairpin { source, destination });
    let mut nat = Nat::new(NatConfig { hairpinning: false, ..NatConfig::full_cone(outside()) }, 1);
    assert_eq!(nat.outbound(at(1), &udp(a, "203.0.113.1:6000")), Translation::Drop(NatDrop::NoHairpin));
}

#[test]
fn a_box_can_rebind_forget_and_move() {
    let (inside, peer) = ("10.0.0.2:5000", "198.51.100.1:53");
    for config in [NatConfig::port_restricted_cone(outside()), NatConfig::symmetric(outside())] {
        let mut nat = Nat::new(config, 1);
        let old = out(&mut nat, at(0), udp(inside, peer));
        nat.rebind(at(1));
        assert!(!gets_in(&mut nat, at(1), peer, old, inside));
        let new = out(&mut nat, at(2), udp(inside, peer));
        assert_ne!(old, new);
        assert!(gets_in(&mut nat, at(2), peer, new, inside));
        nat.set_external("203.0.113.77".parse().unwrap());
        let moved = Translation::Pass { source: addr(&format!("203.0.113.77:{new}")), destination: addr(peer) };
        assert_eq!(nat.outbound(at(3), &udp(inside, peer)), moved);
        assert!(!gets_in(&mut nat, at(3), peer, new, inside), "nobody has the old address");
        nat.forget();
        assert_eq!(nat.mappings(at(3)), 0);
    }
}

#[test]
fn forwarded_ports_stay_and_let_everybody_in() {
    let mut nat = Nat::new(NatConfig::symmetric(outside()), 1);
    let server = "10.0.0.2:8080";
    nat.forward(Protocol::Udp, 80, addr(server));
    nat.forget();
    nat.rebind(at(0));
    assert!(gets_in(&mut nat, at(1_000_000), "198.51.100.7:7", 80, server));
    assert_eq!(out(&mut nat, at(1_000_000), udp(server, "198.51.100.7:7")), 80, "answers come from there");
    nat.forward(Protocol::Udp, 81, addr(server));
    assert!(!gets_in(&mut nat, at(1_000_000), "198.51.100.7:7", 80, server));
}

#[test]
fn errors_find_their_way_in_and_out() {
    let mut nat = Nat::new(NatConfig::symmetric(outside()), 1);
    let (inside, peer) = ("10.0.0.2:5000", "198.51.100.1:53");
    let port = out(&mut nat, at(0), udp(inside, peer));
    let seen = format!("{OUTSIDE}:{port}");
    assert_eq!(nat.inbound_error(at(1), &udp(&seen, peer)), Some(addr(inside)));
    assert_eq!(nat.inbound_error(at(1), &udp("203.0.113.2:1", peer)), None);
    assert_eq!(nat.outbound_error(at(1), &udp(peer, inside)), Some(addr(&seen)));
    assert_eq!(nat.outbound_error(at(1), &udp("198.51.100.9:9", inside)), None, "no mapping towards that peer");
    let mut nat = Nat::new(NatConfig { icmp_errors: false, ..NatConfig::full_cone(outside()) }, 1);
    let port = out(&mut nat, at(0), udp(inside, peer));
    assert_eq!(nat.inbound_error(at(1), &udp(&format!("{OUTSIDE}:{port}"), peer)), None);
}

#[test]
fn a_family_without_an_outside_address_does_not_get_out() {
    let mut nat = Nat::new(NatConfig::full_cone(outside()), 1);
    let v6 = udp("[fd00::2]:5000", "[2001:db8::1]:53");
    assert_eq!(nat.outbound(at(0), &v6), Translation::Drop(NatDrop::NoAddress));
    let mut nat = Nat::new(NatConfig::full_cone("2001:db8::99".parse().unwrap()), 1);
    let pass = Translation::Pass { source: addr("[2001:db8::99]:5000"), destination: v6.destination };
    assert_eq!(nat.outbound(at(0), &v6), pass);
    assert_eq!((nat.counters().out, nat.counters().mapped, nat.counters().dropped_out), (1, 1, 0));
}

proptest! {
    /// Whatever is sent: no outside endpoint belongs to two inside endpoints, answers reach who asked, nobody else gets in.
    #[test]
    fn answers_reach_who_asked(
        kind in 0usize..4,
        sends in prop::collection::vec((0u8..4, 0u16..4, 0u8..4, 0u16..3, 0u32..200), 1..80),
    ) {
        let mut nat = Nat::new([
            NatConfig::full_cone, NatConfig::restricted_cone, NatConfig::port_restricted_cone, NatConfig::symmetric,
        ][kind](outside()), 3);
        let mut now = at(0);
        let mut holders: BTreeMap<u16, (SocketAddr, Instant)> = BTreeMap::new();
        for (host, port, peer, peer_port, pause) in sends {
            now += S * pause;
            let inside = addr(&format!("10.0.0.{host}:{}", 5000 + port));
            let peer = addr(&format!("198.51.100.{peer}:{}", 50 + peer_port));
            let packet = NatPacket { source: inside, destination: peer, ..udp("0.0.0.0:1", "0.0.0.0:1") };
            let given = out(&mut nat, now, packet);
            if let Some((holder, last)) = holders.insert(given, (inside, now)) {
                prop_assert!(holder == inside || now - last >= S * 300);
            }
            let answer = NatPacket { source: peer, destination: SocketAddr::new(outside(), given), ..packet };
            prop_assert_eq!(nat.inbound(now, &answer), Translation::Pass { source: peer, destination: inside });
            let stranger = NatPacket { source: addr("192.0.2.99:1"), ..answer };
            let passed = matches!(nat.inbound(now, &stranger), Translation::Pass { .. });
            prop_assert_eq!(passed, kind == 0);
        }
    }
}

#[test]
fn udp_lite_does_not_pass_and_leaves_no_mapping() {
    let mut nat = Nat::new(NatConfig::full_cone(outside()), 1);
    let lite = |from, to| NatPacket { protocol: Protocol::UDP_LITE, ..udp(from, to) };
    let dropped = Translation::Drop(NatDrop::UnknownProtocol);
    assert_eq!(nat.outbound(at(0), &lite("10.0.0.2:7000", "198.51.100.1:53")), dropped);
    // Not even a forwarded port lets it in.
    nat.forward(Protocol::UDP_LITE, 0, addr("10.0.0.2:0"));
    assert_eq!(nat.inbound(at(0), &lite("198.51.100.1:53", "203.0.113.1:0")), dropped);
    assert_eq!((nat.counters().dropped_out, nat.counters().dropped_in, nat.counters().mapped), (1, 1, 0));
}
