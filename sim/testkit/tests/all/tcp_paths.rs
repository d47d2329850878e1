//! TCP with several paths (RFC 9622 section 6.2.14, RFC 8684), as the race and programs see it.

use core::time::Duration;
use neater_base::net::InterfaceKind;
use neater_engine::{LocalEndpoint, SendOptions, Stack, Step};
use neater_link::LinkConfig;
use neater_netsim::{IfaceId, LinkId};
use neater_property::TransportProperties;
use neater_testkit::town::{CLIENT_V4, server_v4};
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const BOTH: [Stack; 2] = [Stack::Tcp, Stack::Tls];

fn ask(stack: Stack, multipath: &str) -> Ask {
    let mut all = TransportProperties::new();
    if !multipath.is_empty() {
        all.set_text("multipath", multipath).unwrap_or_else(|e| panic!("{e}"));
    }
    Ask::over(&[stack]).properties(all)
}

/// A client with two networks, and a server that listens as its properties say.
fn town(stack: Stack, listener: &str) -> (Town, IfaceId, (LinkId, LinkId)) {
    let mut town = Plan::new(7).delay(10 * MS).build();
    town.listen(&ask(stack, listener), 443, Manner::echo());
    let world = town.play.world();
    let addrs = ["203.0.113.9"].map(|a| a.parse().unwrap());
    let iface = world.add_interface(town.play.host(town.client), "wlan0", InterfaceKind::WiFi, &addrs);
    let links = world.attach(iface, LinkConfig::delay(10 * MS), LinkConfig::delay(10 * MS));
    (town, iface, links)
}

fn open(town: &mut Town, stack: Stack, multipath: &str) -> FlowId {
    let flow = town.open_to(&ask(stack, multipath), &[server_v4()], Manner::patient());
    town.play.say(flow, "first ", SendOptions::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).count == 6), "{:?}", town.play.flow(flow).end());
    flow
}

/// Whether the peer takes part, as `explain` shows it; `None`: nothing of that was asked for.
fn agreed(town: &mut Town, flow: FlowId) -> Option<bool> {
    let steps = town.play.engine(flow.node).timeline(flow.conn);
    steps.iter().find_map(|t| if let Step::SeveralPaths { agreed, .. } = t.step { Some(agreed) } else { None })
}

fn locals(town: &mut Town, flow: FlowId) -> Vec<String> {
    town.play.engine(flow.node).paths(flow.conn).iter().map(|p| p.local.ip().to_string()).collect()
}

fn why(town: &mut Town, flow: FlowId) -> Option<&'static str> {
    town.play.engine(flow.node).paths(flow.conn)[0].why
}

/// Says something more, which comes back within this time.
fn goes_on(town: &mut Town, flow: FlowId, within: Duration) -> bool {
    let count = town.play.flow(flow).count;
    town.play.say(flow, "more", SendOptions::default());
    town.play.run_until(within, |p| p.flow(flow).count == count + 4)
}

#[test]
fn a_connection_outlives_its_path_where_both_sides_take_part() {
    for stack in BOTH {
        for gone in [false, true] {
            let (mut town, ..) = town(stack, "");
            let flow = open(&mut town, stack, "Active");
            assert_eq!((agreed(&mut town, flow), locals(&mut town, flow)), (Some(true), vec![CLIENT_V4.to_owned()]));
            assert_eq!(why(&mut town, flow), None);
            if gone {
                // With its address: what ends ordinary TCP within seconds.
                town.play.world().set_interface_up(town.client_iface, false);
                town.play.world().remove_address(town.client_iface, CLIENT_V4.parse().unwrap());
            } else {
                let (up, down) = town.client_links;
                for link in [up, down] {
                    let config = town.play.world().link_config(link).with_down(true);
                    town.play.world().set_link(link, config);
                }
            }
            assert!(goes_on(&mut town, flow, 5 * S), "{stack} {gone}: {:?}", town.play.flow(flow).end());
            assert_eq!(locals(&mut town, flow)[0], "203.0.113.9", "{stack} {gone}");
            town.play.run_for(20 * S);
            assert!(goes_on(&mut town, flow, S), "{stack} {gone}: {:?}", town.play.flow(flow).end());
            let last = SendOptions { is_final: true, ..SendOptions::default() };
            town.play.say(flow, "last", last);
            assert!(town.play.run_until(5 * S, |p| p.flow(flow).is_over()));
            assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{stack} {gone}");
        }
    }
}

#[test]
fn a_peer_or_a_box_without_it_makes_it_ordinary_tcp_and_the_program_sees_that() {
    for stack in BOTH {
        for stripped in [false, true] {
            let (mut town, ..) = town(stack, if stripped { "" } else { "Disabled" });
            town.play.world().set_multipath_stripped(town.client_links.0, stripped);
            let flow = open(&mut town, stack, "Active");
            assert_eq!(agreed(&mut town, flow), Some(false), "{stack} {stripped}");
            assert!(why(&mut town, flow).unwrap().contains("no MPTCP"));
            assert!(goes_on(&mut town, flow, S));
        }
    }
}

#[test]
fn nothing_is_asked_for_without_the_property_and_nothing_on_a_host_that_cannot() {
    for (multipath, can) in [("", true), ("Disabled", true), ("Active", false)] {
        let (mut town, ..) = town(Stack::Tcp, "");
        town.play.world().set_multipath(town.play.host(town.client), can);
        let flow = open(&mut town, Stack::Tcp, multipath);
        assert_eq!((agreed(&mut town, flow), why(&mut town, flow)), (None, None), "{multipath} {can}");
    }
}

/// Further paths would leave from other addresses, and by other interfaces, than the program has named.
#[test]
fn a_local_endpoint_that_was_named_is_the_only_one() {
    let client: std::net::IpAddr = CLIENT_V4.parse().unwrap();
    let free = LocalEndpoint::new().with_port(40_000);
    let named = [LocalEndpoint::new().with_interface("eth0"), LocalEndpoint::new().with_ip_address(client)];
    for (local, expected) in named.into_iter().map(|l| (l, None)).chain([(free, Some(true))]) {
        let (mut town, ..) = town(Stack::Tcp, "");
        let request = town.request(&ask(Stack::Tcp, "Active"));
        let node = town.client;
        let (remotes, locals) = ([server_v4()].into(), [local.clone()]);
        let conn = town.play.engine(node).initiate_from(&request, &remotes, &locals, None).unwrap();
        let flow = town.play.adopt(node, conn, Manner::patient());
        town.play.run_for(S);
        assert_eq!(agreed(&mut town, flow), expected, "{local:?}");
    }
}

/// The second path loses the options: it is refused, and the connection waits for its first one.
#[test]
fn a_path_that_is_refused_is_given_up_and_the_first_one_serves_when_it_is_back() {
    let (mut town, _, (up, _)) = town(Stack::Tcp, "");
    let flow = open(&mut town, Stack::Tcp, "Active");
    town.play.world().set_multipath_stripped(up, true);
    let links = town.client_links;
    let set = |town: &Town, down| {
        for link in [links.0, links.1] {
            let config = town.play.world().link_config(link).with_down(down);
            town.play.world().set_link(link, config);
        }
    };
    set(&town, true);
    assert!(!goes_on(&mut town, flow, 5 * S));
    assert!(!town.play.flow(flow).is_over());
    set(&town, false);
    let all = town.play.run_until(30 * S, |p| p.flow(flow).count == 10);
    let by = locals(&mut town, flow);
    assert!(all, "{:?} {by:?}", town.play.flow(flow).end());
    assert_eq!(by[0], CLIENT_V4);
}
