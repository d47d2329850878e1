//! Endpoints that a program adds to a connection and removes from it (RFC 9622 section 7.5).

use core::time::Duration;
use neater_base::net::InterfaceKind;
use neater_engine::{
    EndpointChange as Change, EndpointError as E, EngineConfig, LocalEndpoint, PathInfo, PathUse, SendOptions, Stack,
};
use neater_link::{Filter, LinkConfig, Match};
use neater_netsim::IfaceId;
use neater_property::{Preference, Role, TransportProperties};
use neater_testkit::town::{SERVER_V4, SERVER_V6, server_v4};
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, security};
use std::net::{IpAddr, SocketAddr};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// The server's other address, on an interface of its own.
const OTHER: &str = "198.51.100.77";

fn ask(stack: Stack, multipath: &str) -> Ask {
    let mut all = TransportProperties::new();
    all.set_text("multipath", multipath).unwrap();
    Ask::over(&[stack]).properties(all)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A connection to a server that has another address, over 10 ms.
fn town(seed: u64, stack: Stack, client: &str) -> (Town, FlowId, IfaceId) {
    let mut town = Plan::new(seed).delay(10 * MS).build();
    let world = town.play.world().clone();
    let iface = world.add_interface(town.play.host(town.server), "eth2", InterfaceKind::Wired, &[ip(OTHER)]);
    world.attach(iface, LinkConfig::delay(10 * MS), LinkConfig::delay(10 * MS));
    town.listen(&ask(stack, "Passive"), 443, Manner::echo());
    let flow = town.open_to(&ask(stack, client), &[server_v4()], Manner::default());
    town.play.say(flow, "first ", SendOptions::default());
    town.play.run_for(S);
    assert!(town.play.flow(flow).is_ready(), "{:?}", town.play.flow(flow).end());
    (town, flow, iface)
}

fn wifi(town: &Town) {
    let world = town.play.world();
    let iface = world.add_interface(town.play.host(town.client), "wlan0", InterfaceKind::WiFi, &[ip("203.0.113.9")]);
    world.attach(iface, LinkConfig::delay(10 * MS), LinkConfig::delay(10 * MS));
}

fn change(town: &mut Town, flow: FlowId, change: &Change) -> Result<(), E> {
    let done = town.play.engine(flow.node).change_endpoints(flow.conn, change);
    town.play.run_for(S);
    done
}

fn paths(town: &mut Town, flow: FlowId) -> Vec<PathInfo> {
    town.play.engine(flow.node).paths(flow.conn)
}

fn working(town: &mut Town, flow: FlowId) -> usize {
    let works = |p: &&PathInfo| matches!(p.state, PathUse::InUse | PathUse::Standby);
    paths(town, flow).iter().filter(works).count()
}

fn swallow(town: &Town, way: neater_testkit::town::Way) {
    for link in [way.to, way.from] {
        town.play.world().set_link(link, LinkConfig::delay(10 * MS).with_filter(Filter::drop(Match::Any)));
    }
}

fn comes_back(town: &mut Town, flow: FlowId, words: &'static str) {
    let all = town.play.flow(flow).received.len() + words.len();
    town.play.say(flow, words, SendOptions::default());
    let came = town.play.run_until(10 * S, |p| p.flow(flow).received.len() == all);
    assert!(came, "{:?}", paths(town, flow));
}

fn ends(mut town: Town, flow: FlowId) {
    town.play.say(flow, "last", SendOptions { is_final: true, ..SendOptions::default() });
    assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_over()), "{:?}", paths(&mut town, flow));
    assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed));
    town.play.end();
}

/// Also where the client opens no paths by itself: the server's first address dies, and no byte is lost.
#[test]
fn a_peers_address_that_is_added_is_used_when_the_first_dies() {
    for multipath in ["Active", "Passive"] {
        let (mut town, flow, _) = town(1, Stack::Sctp, multipath);
        let other = SocketAddr::new(ip(OTHER), 0);
        assert_eq!(change(&mut town, flow, &Change::AddRemote(other)), Ok(()), "{multipath}");
        assert_eq!(working(&mut town, flow), 2, "{multipath}: {:?}", paths(&mut town, flow));
        assert_eq!(change(&mut town, flow, &Change::AddRemote(other)), Ok(()), "once more changes nothing");
        assert_eq!(paths(&mut town, flow).len(), 2);
        comes_back(&mut town, flow, "second ");
        let first = town.v4;
        swallow(&town, first);
        comes_back(&mut town, flow, "third ");
        ends(town, flow);
    }
}

/// The wrong address of a host that knows nothing of the association: it says so, by ICMP or by an ABORT chunk, and that ends nothing.
#[test]
fn an_address_of_another_host_does_no_harm() {
    for listens in [false, true] {
        another_host(listens);
    }
}

fn another_host(listens: bool) {
    let (mut town, flow, _) = town(3, Stack::Sctp, "Active");
    let world = town.play.world().clone();
    let host = world.add_host("another");
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ip("198.51.100.200")]);
    world.attach(iface, LinkConfig::delay(10 * MS), LinkConfig::delay(10 * MS));
    if listens {
        let config = EngineConfig::new([9; 32], security::crypto(3, 9));
        let node = town.play.add(host, world.net(host), config);
        let request = town.compile(node, Role::Listen, &ask(Stack::Sctp, "Passive")).unwrap();
        town.play.serve(node, Manner::echo());
        town.play.listen(node, &request, &[LocalEndpoint::new().with_port(443)]).unwrap();
    }
    let there = SocketAddr::new(ip("198.51.100.200"), 0);
    assert_eq!(change(&mut town, flow, &Change::AddRemote(there)), Ok(()));
    town.play.run_for(120 * S);
    assert_eq!(working(&mut town, flow), 1, "{:?}", paths(&mut town, flow));
    assert_eq!(change(&mut town, flow, &Change::RemoveRemote(there)), Ok(()));
    assert_eq!(paths(&mut town, flow).len(), 1);
    comes_back(&mut town, flow, "second ");
    ends(town, flow);
}

#[test]
fn a_peers_address_that_is_removed_is_used_no_more_and_the_last_stays() {
    let (mut town, flow, _) = town(4, Stack::Sctp, "Active");
    let [first, other] = [SERVER_V4, OTHER].map(|a| SocketAddr::new(ip(a), 0));
    assert_eq!(change(&mut town, flow, &Change::RemoveRemote(first)), Err(E::Last));
    assert_eq!(change(&mut town, flow, &Change::RemoveRemote(other)), Err(E::Unused));
    assert_eq!(change(&mut town, flow, &Change::AddRemote(other)), Ok(()));
    assert_eq!(change(&mut town, flow, &Change::RemoveRemote(first)), Ok(()));
    let left = paths(&mut town, flow);
    assert_eq!(left.iter().map(|p| p.remote.ip()).collect::<Vec<_>>(), [ip(OTHER)]);
    assert_eq!(town.play.engine(flow.node).remote_addr(flow.conn).map(|a| a.ip()), Some(ip(OTHER)));
    let first_way = town.v4;
    swallow(&town, first_way);
    comes_back(&mut town, flow, "second ");
    for none in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        assert_eq!(change(&mut town, flow, &Change::AddRemote(SocketAddr::new(ip(none), 0))), Err(E::NoAddress));
    }
    ends(town, flow);
}

/// IPv4 and IPv6 in one association: when one dies the other carries on.
#[test]
fn an_address_of_the_other_version_of_ip_makes_a_path() {
    let (mut town, flow, _) = town(5, Stack::Sctp, "Active");
    let v6 = SocketAddr::new(ip(SERVER_V6), 0);
    assert_eq!(change(&mut town, flow, &Change::AddRemote(v6)), Ok(()));
    assert_eq!(working(&mut town, flow), 2, "{:?}", paths(&mut town, flow));
    assert!(paths(&mut town, flow).iter().any(|p| p.local.is_ipv6() && p.remote.is_ipv6()));
    comes_back(&mut town, flow, "second ");
    let first = town.v4;
    swallow(&town, first);
    comes_back(&mut town, flow, "third ");
    ends(town, flow);
}

/// An interface that the program has removed is not used again, also when the host's addresses change, until it adds it.
#[test]
fn an_interface_is_removed_and_added() {
    for stack in [Stack::Sctp, Stack::SctpDtls] {
        let (mut town, flow, _) = town(6, stack, "Active");
        wifi(&town);
        town.play.run_for(S);
        assert_eq!(working(&mut town, flow), 2, "{stack}");
        for name in ["wlan0", "eth0"] {
            let local = LocalEndpoint::new().with_interface(name);
            assert_eq!(change(&mut town, flow, &Change::RemoveLocal(local.clone())), Ok(()), "{stack} {name}");
            let kept = if name == "eth0" { "wlan0" } else { "eth0" };
            let by: Vec<_> = paths(&mut town, flow).into_iter().map(|p| p.interface.unwrap()).collect();
            assert_eq!(by, [kept], "{stack}");
            let server = town.play.accepted(town.server)[0];
            assert_eq!(working(&mut town, server), 1, "{stack} {name}: the peer knows");
            let only = LocalEndpoint::new().with_interface(kept);
            assert_eq!(change(&mut town, flow, &Change::RemoveLocal(only)), Err(E::Last));
            let host = town.play.host(town.client);
            let tun = town.play.world().add_interface(host, &format!("t{kept}"), InterfaceKind::Tunnel, &[]);
            town.play.world().set_interface_up(tun, false);
            town.play.run_for(S);
            assert_eq!(paths(&mut town, flow).len(), 1, "{stack} {name}: it stays removed");
            comes_back(&mut town, flow, "more ");
            assert_eq!(change(&mut town, flow, &Change::AddLocal(local.clone())), Ok(()));
            town.play.run_for(S);
            assert_eq!(working(&mut town, flow), 2, "{stack} {name}: {:?}", paths(&mut town, flow));
            assert_eq!(change(&mut town, flow, &Change::AddLocal(local)), Ok(()), "once more changes nothing");
            assert_eq!(paths(&mut town, flow).len(), 2, "{stack}");
        }
        comes_back(&mut town, flow, "second ");
        ends(town, flow);
    }
}

/// With three of them one is removed: the wildcard of an ASCONF chunk can only say which one is kept.
#[test]
fn one_interface_of_three_is_removed() {
    let (mut town, flow, _) = town(7, Stack::Sctp, "Active");
    wifi(&town);
    let host = town.play.host(town.client);
    let lte = town.play.world().add_interface(host, "wwan0", InterfaceKind::Cellular, &[ip("203.0.113.30")]);
    town.play.world().attach(lte, LinkConfig::delay(30 * MS), LinkConfig::delay(30 * MS));
    town.play.run_for(2 * S);
    assert_eq!(working(&mut town, flow), 3);
    let local = LocalEndpoint::new().with_ip_address(ip("203.0.113.9"));
    assert_eq!(change(&mut town, flow, &Change::RemoveLocal(local)), Ok(()));
    town.play.run_for(S);
    let by: Vec<_> = paths(&mut town, flow).into_iter().map(|p| (p.interface.unwrap(), p.state)).collect();
    assert_eq!(by, [("eth0".into(), PathUse::InUse), ("wwan0".into(), PathUse::Standby)]);
    let server = town.play.accepted(town.server)[0];
    assert_eq!(working(&mut town, server), 2);
    ends(town, flow);
}

/// A listener's connection names another address to its client, and takes it back.
#[test]
fn a_server_names_its_other_address() {
    let (mut town, flow, _) = town(8, Stack::Sctp, "Active");
    let server = town.play.accepted(town.server)[0];
    let other = LocalEndpoint::new().with_ip_address(ip(OTHER));
    assert_eq!(change(&mut town, server, &Change::RemoveLocal(other.clone())), Err(E::Unused));
    assert_eq!(change(&mut town, server, &Change::AddLocal(other.clone())), Ok(()));
    town.play.run_for(S);
    assert_eq!((working(&mut town, flow), working(&mut town, server)), (2, 2), "{:?}", paths(&mut town, flow));
    assert_eq!(change(&mut town, server, &Change::RemoveLocal(other.clone())), Ok(()));
    assert_eq!((working(&mut town, flow), working(&mut town, server)), (1, 1), "{:?}", paths(&mut town, flow));
    assert_eq!(change(&mut town, server, &Change::AddLocal(other)), Ok(()));
    town.play.run_for(S);
    let first = town.v4;
    swallow(&town, first);
    comes_back(&mut town, flow, "second ");
    let first = LocalEndpoint::new().with_interface("eth0");
    assert_eq!(change(&mut town, server, &Change::RemoveLocal(first)), Ok(()));
    town.play.run_for(5 * S);
    assert_eq!((paths(&mut town, flow).len(), paths(&mut town, server).len()), (1, 1));
    ends(town, flow);
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let (mut town, flow, _) = town(9, Stack::Sctp, "Disabled");
    let other = SocketAddr::new(ip(OTHER), 0);
    assert_eq!(change(&mut town, flow, &Change::AddRemote(other)), Err(E::OnePath));
    ends(town, flow);
    for stack in [Stack::Tcp, Stack::Quic] {
        let (mut town, flow, _) = self::town(10, stack, "Active");
        assert_eq!(change(&mut town, flow, &Change::AddRemote(other)), Err(E::OnePath), "{stack}");
        let local = LocalEndpoint::new().with_interface("eth0");
        assert_eq!(change(&mut town, flow, &Change::RemoveLocal(local)), Err(E::OnePath), "{stack}");
        ends(town, flow);
    }
    let (mut town, flow, _) = self::town(11, Stack::SctpDtls, "Active");
    assert!(matches!(change(&mut town, flow, &Change::AddRemote(other)), Err(E::Unsupported(_))));
    let nowhere = LocalEndpoint::new().with_interface("nowhere0");
    assert_eq!(change(&mut town, flow, &Change::AddLocal(nowhere.clone())), Err(E::NoInterface));
    assert_eq!(change(&mut town, flow, &Change::RemoveLocal(nowhere)), Err(E::Unused));
    assert_eq!(change(&mut town, flow, &Change::AddLocal(LocalEndpoint::new())), Err(E::NoInterface));
    assert_eq!(change(&mut town, flow, &Change::RemoveLocal(LocalEndpoint::new())), Err(E::Unused));
    ends(town, flow);
    // A client that opens no paths has a peer that takes none.
    let (mut town, flow, _) = self::town(12, Stack::Sctp, "Passive");
    wifi(&town);
    town.play.run_for(S);
    let local = LocalEndpoint::new().with_interface("wlan0");
    let done = change(&mut town, flow, &Change::AddLocal(local));
    assert!(matches!(done, Err(E::Unsupported(_))), "{done:?}");
    ends(town, flow);
    // What a property prohibits stays so.
    let mut prohibited = Ask::over(&[Stack::Sctp]);
    let mut all = TransportProperties::new();
    all.set_text("multipath", "Active").unwrap();
    all.interface(Preference::Prohibit, "wlan0").unwrap();
    prohibited = prohibited.properties(all);
    let mut town = Plan::new(13).delay(10 * MS).build();
    town.listen(&ask(Stack::Sctp, "Passive"), 443, Manner::echo());
    wifi(&town);
    let flow = town.open_to(&prohibited, &[server_v4()], Manner::default());
    town.play.say(flow, "first ", SendOptions::default());
    town.play.run_for(S);
    assert_eq!(paths(&mut town, flow).len(), 1);
    let local = LocalEndpoint::new().with_interface("wlan0");
    assert_eq!(change(&mut town, flow, &Change::AddLocal(local)), Err(E::Prohibited));
    ends(town, flow);
}

/// A second address of an interface is a path of its own, and the first goes on as it was; one that is added again at once is back.
#[test]
fn a_second_address_of_an_interface_is_another_path() {
    let (mut town, flow, _) = town(14, Stack::Sctp, "Active");
    wifi(&town);
    town.play.run_for(S);
    assert_eq!(working(&mut town, flow), 2);
    let host = town.play.host(town.client);
    let second = "203.0.113.10".parse().unwrap();
    let iface = town.play.world().add_interface(host, "x0", InterfaceKind::Wired, &[second]);
    town.play.world().attach(iface, LinkConfig::delay(10 * MS), LinkConfig::delay(10 * MS));
    let third =
        neater_base::net::InterfaceAddr { addr: ip("203.0.113.11"), prefix: 24, temporary: false, deprecated: false };
    town.play.world().add_address(iface, third);
    town.play.run_for(S);
    let before = paths(&mut town, flow).len();
    let another = LocalEndpoint::new().with_ip_address(ip("203.0.113.11"));
    let used = paths(&mut town, flow).iter().any(|p| p.local.ip() == ip("203.0.113.11"));
    let another = if used { LocalEndpoint::new().with_ip_address(second) } else { another };
    assert_eq!(change(&mut town, flow, &Change::AddLocal(another)), Ok(()));
    town.play.run_for(S);
    assert_eq!(working(&mut town, flow), before + 1, "{:?}", paths(&mut town, flow));
    let server = town.play.accepted(town.server)[0];
    assert_eq!(working(&mut town, server), before + 1);
    let local = LocalEndpoint::new().with_interface("wlan0");
    let engine = town.play.engine(flow.node);
    assert_eq!(engine.change_endpoints(flow.conn, &Change::RemoveLocal(local.clone())), Ok(()));
    assert_eq!(engine.change_endpoints(flow.conn, &Change::AddLocal(local)), Ok(()));
    town.play.run_for(5 * S);
    assert_eq!(working(&mut town, flow), before + 1, "{:?}", paths(&mut town, flow));
    comes_back(&mut town, flow, "second ");
    ends(town, flow);
}
