//! A plan from a scenario: the same files as the simulator's.

use super::error::{LiveError, Result};
use super::plan::{Change, Interface, Kind, NatPlan, Node, Plan, Routes, What, Wire};
use neater_scenario::{Action, Controller, NodeKind, RtoFloor, Scenario, TcpSettings, interface_mtu, link_seed};
use std::collections::BTreeMap;
use std::fmt::Write as _;

impl Plan {
    /// The network of a scenario, with the random choices of `seed`. Its traffic and probes are for those who run things
    /// in it.
    ///
    /// # Errors
    /// The scenario has what the lab cannot build.
    pub fn from_scenario(scenario: &Scenario, seed: u64) -> Result<Self> {
        let mut plan = Self::new(seed);
        for node in &scenario.nodes {
            let kind = match node.kind {
                NodeKind::Host => Kind::Host,
                NodeKind::Router => Kind::Router,
            };
            let told = kernel(&node.tcp).map_err(|why| LiveError::Usage(format!("{}: {why}", node.name)))?;
            let (mut sysctls, route_options) = told;
            // What is said in the kernel's own words counts more.
            sysctls.extend(node.sysctls.clone());
            let filters = node.filters.clone();
            plan.nodes.push(Node {
                name: node.name.clone(),
                kind,
                interfaces: Vec::new(),
                sysctls,
                route_options,
                filters,
                nat: node.nat.as_ref().map(|n| NatPlan { outside: n.outside, config: n.config.clone() }),
            });
        }
        for (n, link) in scenario.links.iter().enumerate() {
            let mut ends = [(0, 0); 2];
            let [there, back] = link.directions.each_ref().map(|d| d.config.clone());
            for (side, end) in link.ends.iter().enumerate() {
                let node = &mut plan.nodes[end.node];
                // What a host knows of; a router has none of the kernel's interfaces.
                let mtu = interface_mtu(&link.directions[side].config);
                let mtu = if node.kind == Kind::Host { mtu.min(65_535) } else { mtu.clamp(1280, 65_535) };
                ends[side] = (end.node, node.interfaces.len());
                let (name, addresses) = (end.interface.clone(), end.addresses.clone());
                node.interfaces.push(Interface { name, wire: (n, side), addresses, mtu });
            }
            // As in the simulator.
            let seeds = [0, 1].map(|side| link_seed(seed, &link.name, side));
            plan.wires.push(Wire { name: link.name.clone(), ends, config: [there, back], seeds });
        }
        plan.given_routes = routes(scenario, &plan);
        for event in &scenario.events {
            let what = match &event.action {
                Action::Link { link, direction, config } => {
                    What::Link { wire: *link, side: *direction, config: config.config.clone() }
                }
                Action::Nat { node, what } => What::Nat { node: *node, what: *what },
                Action::Interface { link, end, up } => {
                    let (node, interface) = plan.wires[*link].ends[*end];
                    What::Interface { node, interface, up: *up }
                }
            };
            plan.changes.push(Change { at: event.at, what });
        }
        plan.check().map_err(LiveError::Usage)?;
        Ok(plan)
    }
}

/// The scenario's routes in terms of interfaces.
fn routes(scenario: &Scenario, plan: &Plan) -> Vec<Routes> {
    let computed = neater_scenario::Routes::compute(scenario);
    let mut all = Vec::new();
    for (n, node) in plan.nodes.iter().enumerate() {
        let mut routes = Routes::new();
        for (to, link) in scenario.links.iter().enumerate() {
            let vias = computed.next_links(n, to);
            let out: Vec<usize> =
                vias.iter().filter_map(|via| node.interfaces.iter().position(|i| i.wire.0 == *via)).collect();
            if out.is_empty() {
                continue;
            }
            for end in link.ends.iter().filter(|end| end.node != n) {
                routes.extend(end.addresses.iter().map(|(a, _)| (*a, out.clone())));
            }
        }
        all.push(routes);
    }
    all
}

/// What a scenario says of TCP, as the kernel is told it: settings of the namespace, and options of its routes.
///
/// # Errors
/// The kernel has no word for it.
fn kernel(tcp: &TcpSettings) -> core::result::Result<(BTreeMap<String, String>, String), String> {
    if tcp.rto_floor == Some(RtoFloor::Timeout) {
        return Err(
            "tcp has rto-floor = \"timeout\", and Linux's TCP has its least timeout bound the variation: leave it \
                    out in the lab"
                .to_owned(),
        );
    }
    let mut sysctls = BTreeMap::new();
    let mut set = |key: &str, value: String| sysctls.insert(format!("net.ipv4.{key}"), value);
    if let Some(controller) = tcp.controller {
        let name = match controller {
            Controller::NewReno => "reno",
            Controller::Cubic => "cubic",
        };
        set("tcp_congestion_control", name.to_owned());
    }
    for (key, value) in
        [("tcp_sack", tcp.sack), ("tcp_recovery", tcp.rack), ("tcp_ecn", tcp.ecn), ("tcp_timestamps", tcp.timestamps)]
    {
        if let Some(on) = value {
            set(key, u8::from(on).to_string());
        }
    }
    // Tail loss probes have a switch of their own; without RACK there are none, as in the simulator. 3 is the kernel's default.
    if let Some(on) = tcp.rack {
        set("tcp_early_retrans", if on { "3" } else { "0" }.to_owned());
    }
    // A scenario counts payload. The kernel counts what holds it, too: it takes half of a receive buffer for that; in a send
    // buffer it is little.
    for (key, bytes, times) in [("tcp_wmem", tcp.send_buffer, 1), ("tcp_rmem", tcp.receive_buffer, 2)] {
        if let Some(bytes) = bytes {
            let bytes = bytes.saturating_mul(times).min(i32::MAX as u64);
            set(key, format!("{bytes} {bytes} {bytes}"));
        }
    }
    let mut options = String::new();
    if let Some(segments) = tcp.initial_window {
        let _ = write!(options, "initcwnd {segments} ");
    }
    if let Some(rto) = tcp.min_rto {
        if rto.as_millis() == 0 {
            return Err("tcp has min-rto below 1 ms, which the kernel cannot be told".to_owned());
        }
        let _ = write!(options, "rto_min {}ms ", rto.as_millis());
    }
    if tcp.delayed_ack == Some(false) {
        options.push_str("quickack 1 ");
    }
    Ok((sysctls, options.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> Scenario {
        Scenario::parse(neater_scenario::shipped(name).expect("shipped"), &[]).expect("parses")
    }

    #[test]
    fn the_shipped_topologies_become_plans_with_the_ways_of_the_scenario() {
        for name in ["dumbbell", "dual-dumbbell", "two-paths", "three-paths", "access-tree"] {
            let scenario = shipped(name);
            let computed = neater_scenario::Routes::compute(&scenario);
            let plan = Plan::from_scenario(&scenario, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
            let routes = plan.routes();
            let mut ways = 0;
            for from in scenario.hosts() {
                for (to, link) in scenario.hosts().flat_map(|h| scenario.links_of(h).map(move |(l, _)| (h, l))) {
                    let path = computed.path(&scenario, from, link).filter(|_| to != from);
                    let end = scenario.links[link].ends.iter().find(|e| e.node == to).expect("an end");
                    let mut at = from;
                    for wire in path.iter().flatten() {
                        let out = routes[at][&end.addresses[0].0][0];
                        assert_eq!(plan.nodes[at].interfaces[out].wire.0, *wire, "{name}");
                        at = plan.peer(at, out).expect("a wire").0;
                    }
                    ways += usize::from(path.is_some() && at == to);
                }
            }
            assert!(ways >= 2, "{name}: {ways}");
        }
    }

    #[test]
    fn tcp_settings_are_told_to_the_kernel() {
        let tcp = TcpSettings {
            controller: Some(Controller::NewReno),
            sack: Some(false),
            initial_window: Some(3),
            min_rto: Some(std::time::Duration::from_secs(1)),
            receive_buffer: Some(65_536),
            send_buffer: Some(100_000),
            delayed_ack: Some(false),
            ..TcpSettings::default()
        };
        let (sysctls, options) = kernel(&tcp).expect("all of it can be said");
        assert_eq!(sysctls["net.ipv4.tcp_congestion_control"], "reno");
        assert_eq!(sysctls["net.ipv4.tcp_sack"], "0");
        assert_eq!(sysctls["net.ipv4.tcp_rmem"], "131072 131072 131072", "half of it is window");
        assert_eq!(sysctls["net.ipv4.tcp_wmem"], "100000 100000 100000", "nearly all of it is payload");
        assert_eq!(options, "initcwnd 3 rto_min 1000ms quickack 1");
        assert_eq!(sysctls.len(), 4);
        for (on, recovery, probes) in [(true, "1", "3"), (false, "0", "0")] {
            let (sysctls, _) = kernel(&TcpSettings { rack: Some(on), ..TcpSettings::default() }).expect("can be said");
            assert_eq!(sysctls["net.ipv4.tcp_recovery"], recovery);
            assert_eq!(sysctls["net.ipv4.tcp_early_retrans"], probes, "the probes of RFC 8985 go with it");
        }
        let floor = |rto_floor| kernel(&TcpSettings { rto_floor: Some(rto_floor), ..TcpSettings::default() });
        assert!(floor(RtoFloor::Variation).is_ok());
        assert!(floor(RtoFloor::Timeout).is_err_and(|why| why.contains("rto-floor")));
    }
}
