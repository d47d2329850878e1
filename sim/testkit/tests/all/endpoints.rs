//! Where connections come from and by which interface they go.

use neater_base::net::{InterfaceAddr, Net};
use neater_engine::{EstablishmentError, LocalEndpoint, Reason, RemoteEndpoint, Stack};
use neater_testkit::town::{CLIENT_V4, CLIENT_V6, SERVER_V6, server_by_name, server_v4, server_v6};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const OTHER_V4: &str = "192.0.2.9";

fn town() -> Town {
    let mut town = Plan::new(1).build();
    town.play.world().add_address(town.client_iface, address(OTHER_V4));
    for stack in [Stack::Tcp, Stack::Quic] {
        town.listen(&Ask::over(&[stack]), 443, Manner::patient());
    }
    town
}

fn address(a: &str) -> InterfaceAddr {
    InterfaceAddr { addr: ip(a), prefix: 24, temporary: false, deprecated: false }
}

fn ip(a: &str) -> IpAddr {
    a.parse().expect("an address")
}

fn from(a: &str) -> LocalEndpoint {
    LocalEndpoint::new().with_ip_address(ip(a))
}

fn initiate(
    town: &mut Town,
    stack: Stack,
    remote: &RemoteEndpoint,
    locals: &[LocalEndpoint],
) -> Result<FlowId, EstablishmentError> {
    let request = town.request(&Ask::over(&[stack]));
    let remotes = [remote.clone()].into();
    let node = town.client;
    let conn = town.play.engine(node).initiate_from(&request, &remotes, locals, None)?;
    Ok(town.play.adopt(node, conn, Manner::patient()))
}

/// The address that a connection comes from.
fn came_from(town: &mut Town, stack: Stack, remote: &RemoteEndpoint, locals: &[LocalEndpoint]) -> SocketAddr {
    let flow = initiate(town, stack, remote, locals).unwrap_or_else(|e| panic!("{e}"));
    ready(town, flow)
}

fn ready(town: &mut Town, flow: FlowId) -> SocketAddr {
    let ready = town.play.run_until(10 * S, |p| p.flow(flow).is_ready());
    assert!(ready, "{:?}", town.play.flow(flow).end());
    town.play.engine(flow.node).local_addr(flow.conn).expect("established")
}

#[test]
fn any_of_several_local_endpoints_will_do_in_any_order() {
    for stack in [Stack::Tcp, Stack::Quic] {
        let mut town = town();
        let both = [from(CLIENT_V4), from(CLIENT_V6)];
        let turned = [from(CLIENT_V6), from(CLIENT_V4)];
        for locals in [&both, &turned] {
            assert_eq!(came_from(&mut town, stack, &server_v4(), locals).ip(), ip(CLIENT_V4), "{stack}");
            assert_eq!(came_from(&mut town, stack, &server_v6(), locals).ip(), ip(CLIENT_V6), "{stack}");
        }
        // By name, each address is reached from the endpoint of its family.
        for local in [CLIENT_V4, CLIENT_V6, OTHER_V4] {
            assert_eq!(came_from(&mut town, stack, &server_by_name(), &[from(local)]).ip(), ip(local), "{stack}");
        }
    }
}

/// An unspecified address is any of its family, and no other.
#[test]
fn a_family_can_be_all_that_is_said_of_where_a_connection_comes_from() {
    for stack in [Stack::Tcp, Stack::Quic] {
        let mut town = town();
        for (any, of) in [("0.0.0.0", CLIENT_V4), ("::", CLIENT_V6)] {
            assert_eq!(came_from(&mut town, stack, &server_by_name(), &[from(any)]).ip(), ip(of), "{stack}");
        }
        let error = initiate(&mut town, stack, &server_v4(), &[from("::")]).map(drop).unwrap_err();
        assert!(error.to_string().contains("family"), "{error}");
    }
}

#[test]
fn local_and_remote_endpoints_of_different_families_are_refused_at_once() {
    let mut town = town();
    let e = initiate(&mut town, Stack::Tcp, &server_v6(), &[from(CLIENT_V4)]).expect_err("refused");
    assert_eq!(e.reason, Reason::InvalidConfiguration, "{e}");
    let many = vec![from(CLIENT_V4); 9];
    let e = initiate(&mut town, Stack::Tcp, &server_v4(), &many).expect_err("refused");
    assert!(e.to_string().contains("the limit is 8"), "{e}");
}

#[test]
fn a_local_port_alone_goes_with_either_family() {
    let zone = format!("six.test AAAA {SERVER_V6}\n");
    let mut town = Plan::new(2).zone(zone).build();
    town.listen(&Ask::over(&[Stack::Tcp]), 443, Manner::patient());
    let six = RemoteEndpoint::new().with_host_name("six.test").with_port(443);
    let port = LocalEndpoint::new().with_port(45_454);
    let local = came_from(&mut town, Stack::Tcp, &six, &[port]);
    assert_eq!((local.ip(), local.port()), (ip(CLIENT_V6), 45_454));
}

#[test]
fn a_clone_comes_from_where_its_parent_was_told_to_come_from() {
    let mut town = town();
    let local = from(OTHER_V4).with_port(45_454);
    let parent = initiate(&mut town, Stack::Tcp, &server_v4(), &[local]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(ready(&mut town, parent), SocketAddr::new(ip(OTHER_V4), 45_454));
    let direction = neater_engine::StreamDirection::Both;
    let clone =
        town.play.engine(parent.node).clone_connection(parent.conn, direction).unwrap_or_else(|e| panic!("{e}"));
    let clone = town.play.adopt(parent.node, clone, Manner::patient());
    let from = ready(&mut town, clone);
    assert_eq!(from.ip(), ip(OTHER_V4));
    assert_ne!(from.port(), 45_454, "that is its parent's");
}

#[test]
fn an_interface_that_does_not_exist_is_an_error_wherever_it_is_named() {
    let mut town = town();
    for remote in [server_v4().with_interface("nope0"), server_by_name().with_interface("nope0")] {
        let e = initiate(&mut town, Stack::Tcp, &remote, &[]).expect_err("refused");
        assert_eq!(e.reason, Reason::InvalidConfiguration);
        assert!(e.to_string().contains("no interface `nope0`"), "{e}");
    }
    let zoned = RemoteEndpoint::new().with_host_name("[fe80::1%nope]").with_port(443);
    let e = initiate(&mut town, Stack::Tcp, &zoned, &[]).expect_err("refused");
    assert!(e.to_string().contains("no interface `nope`"), "{e}");
    let host = town.play.host(town.client);
    let index = town.play.world().net(host).interfaces().iter().find(|i| i.name == "eth0").expect("there").index;
    for name in ["eth0".to_owned(), index.to_string()] {
        came_from(&mut town, Stack::Tcp, &server_v4().with_interface(&name), &[]);
    }
}
