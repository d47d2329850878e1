//! The plan built by the kernel alone: routers as namespaces, links as queueing disciplines (`--emulator netem`).
//!
//! *Responsible for* the devices of a wire and what is put at them, the forwarding of routers, counters. *Not for* the words of
//! the disciplines ([`super::netem`]).
//!
//! A wire is two pairs of veth devices with a bridge between them, in a namespace of all wires: the queue is at the sender's
//! device, where its own sockets feel it, and what happens on the wire is behind it. Both ends of a wire have one hardware
//! address and no ARP, so that a packet needs no neighbour and none is asked for; the bridge learns nothing and passes on.

use super::error::{LiveError, Result};
use super::hosts::Told;
use super::lab::LinkReport;
use super::netem::{self, Stages};
use super::netns::Netns;
use super::plan::{Kind, Plan, Routes, What};
use super::tun;
use neater_link::LinkConfig;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::Command;

/// An Ethernet header, in bytes.
const ETHERNET: u64 = 14;

/// Both directions of every wire in the kernel's words.
#[derive(Clone, Debug)]
pub struct Words(Vec<[Stages; 2]>);

/// What a plan is in the kernel's words.
///
/// # Errors
/// [`LiveError::Usage`] with everything that it has no words for, link by link.
pub fn words(plan: &Plan) -> Result<Words> {
    let mut wrong = Vec::new();
    for node in plan.nodes.iter().filter(|n| n.nat.is_some()) {
        wrong.push(format!("{}: NAT boxes", node.name));
    }
    for node in plan.nodes.iter().filter(|n| !n.filters.is_empty()) {
        wrong.push(format!("{}: a router's firewall", node.name));
    }
    let mut all = Vec::new();
    for (n, wire) in plan.wires.iter().enumerate() {
        let mut stages = [Stages::default(), Stages::default()];
        for (side, to) in stages.iter_mut().enumerate() {
            *to = side_words(plan, n, side, &wire.config[side], &mut wrong);
        }
        all.push(stages);
    }
    let mut now = all.clone();
    for change in &plan.changes {
        let What::Link { wire, side, config } = &change.what else { continue };
        let (Some(old), Some(link)) = (now.get_mut(*wire), plan.wires.get(*wire)) else { continue };
        let new = side_words(plan, *wire, *side, config, &mut wrong);
        for (old, new) in [(&old[*side].queue, &new.queue), (&old[*side].wire, &new.wire)] {
            if retell("", old, new).is_none() {
                wrong.push(format!("{}: a schedule that changes the discipline of a queue", link.name));
            }
        }
        old[*side] = new;
    }
    if wrong.is_empty() {
        return Ok(Words(all));
    }
    wrong.dedup();
    Err(LiveError::Usage(format!(
        "the kernel's emulation has no words for:\n  {}\nUse --emulator neater, which has all of it",
        wrong.join("\n  ")
    )))
}

fn side_words(plan: &Plan, wire: usize, side: usize, config: &LinkConfig, wrong: &mut Vec<String>) -> Stages {
    let Some(link) = plan.wires.get(wire) else { return Stages::default() };
    let (node, interface) = link.ends[side];
    let mtu = plan.nodes[node].interfaces[interface].mtu;
    netem::stages(config, mtu).unwrap_or_else(|all| {
        wrong.extend(all.into_iter().map(|w| format!("{}: {w}", link.name)));
        Stages::default()
    })
}

/// The lines that turn the disciplines of a device from one to another; `None` if that takes more than telling them.
fn retell(device: &str, old: &[String], new: &[String]) -> Option<String> {
    let kind = |line: &String| line.split(' ').find(|w| ["netem", "tbf"].contains(w)).map(str::to_owned);
    let below = |line: &String| line.split(' ').nth(4).map(str::to_owned);
    let shape = |lines: &[String]| {
        lines.iter().enumerate().map(|(i, l)| if i == 0 { kind(l) } else { below(l) }).collect::<Vec<_>>()
    };
    let told =
        |verb: &str| new.iter().fold(String::new(), |out, words| out + &format!("qdisc {verb} dev {device} {words}\n"));
    match (old.is_empty(), new.is_empty()) {
        (true, true) => Some(String::new()),
        (true, false) => Some(told("add")),
        (false, true) => Some(format!("qdisc del dev {device} root\n")),
        (false, false) => (shape(old) == shape(new)).then(|| told("change")),
    }
}

/// Whether this kernel has the queueing disciplines for it.
///
/// # Errors
/// [`LiveError::Privileges`]: which it lacks, and what the kernel said.
pub fn check(words: &Words) -> Result<()> {
    super::privileges::need("tc", "iproute2")?;
    let kinds: BTreeSet<String> =
        words.0.iter().flatten().flat_map(|s| s.kinds().map(str::to_owned).collect::<Vec<_>>()).collect();
    let trial = Netns::new()?;
    trial.ip("link set lo up\n")?;
    for kind in kinds {
        let least = match kind.as_str() {
            "tbf" => " rate 1mbit burst 1600 limit 3000",
            "netem" | "pfifo" | "pfifo_head_drop" | "bfifo" => " limit 2000",
            _ => "",
        };
        if let Err(e) = trial.tc(&format!("qdisc replace dev lo root {kind}{least}\n")) {
            return Err(LiveError::Privileges(format!(
                "this kernel cannot emulate the scenario: it has no {kind} (modprobe sch_{kind}): {e}\nUse --emulator \
                 neater, which needs none"
            )));
        }
    }
    Ok(())
}

/// The wires.
#[derive(Debug)]
pub struct Kernel {
    netns: Netns,
    words: Words,
}

impl Kernel {
    /// Makes the devices of all wires and hands their ends to the nodes, whose namespaces `of` gives.
    ///
    /// # Errors
    /// A device cannot be made.
    pub fn new(plan: &Plan, words: Words, of: &[Netns]) -> Result<Self> {
        let netns = Netns::new()?;
        let _ = netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        let path = |node: usize| format!("/proc/{}/fd/{}", std::process::id(), of[node].raw());
        let mut lines = String::new();
        for (n, wire) in plan.wires.iter().enumerate() {
            let mtu = wire.ends.iter().map(|(node, i)| plan.nodes[*node].interfaces[*i].mtu).max().unwrap_or(1500);
            let address = format!("02:6e:65:61:{:02x}:{:02x}", n >> 8 & 0xff, n & 0xff);
            let _ = writeln!(lines, "link add b{n} type bridge stp_state 0 forward_delay 0 mcast_snooping 0");
            for (side, (node, i)) in wire.ends.iter().enumerate() {
                let (port, name, to) = (port(n, side), &plan.nodes[*node].interfaces[*i].name, path(*node));
                let _ = writeln!(
                    lines,
                    "link add {port} mtu {mtu} type veth peer name {name} mtu {mtu} address {address} netns {to}\n\
                     link set dev {port} master b{n}\n\
                     link set dev {port} type bridge_slave learning off flood on mcast_flood on bcast_flood on\n\
                     link set dev {port} up"
                );
            }
            let _ = writeln!(lines, "link set dev b{n} up");
        }
        netns.ip(&lines)?;
        for n in 0..plan.wires.len() {
            for side in 0..2 {
                netns.with(|| tun::offloads_off(&port(n, side)))?;
            }
        }
        Ok(Self { netns, words })
    }

    /// Puts the disciplines at the devices of a node, and at the wires that lead to it.
    ///
    /// # Errors
    /// The kernel does not take one.
    pub fn emulate(&self, plan: &Plan, node: usize, netns: &Netns) -> Result<()> {
        let (mut own, mut wires) = (String::new(), String::new());
        for i in &plan.nodes[node].interfaces {
            let (wire, side) = i.wire;
            let stages = &self.words.0[wire];
            own.push_str(&retell(&i.name, &[], &stages[side].queue).unwrap_or_default());
            // What comes to this node is what the other end sent.
            wires.push_str(&retell(&port(wire, side), &[], &stages[1 - side].wire).unwrap_or_default());
        }
        for (netns, lines) in [(netns, own), (&self.netns, wires)] {
            if !lines.is_empty() {
                netns.tc(&lines)?;
            }
        }
        Ok(())
    }

    /// What a schedule tells the kernel, in order of the plan's changes: where and what.
    ///
    /// # Errors
    /// A namespace cannot be held.
    pub fn retold(&self, plan: &Plan, of: &[Netns]) -> Result<Vec<Told>> {
        let mut now = self.words.0.clone();
        let mut all = Vec::new();
        for change in &plan.changes {
            let What::Link { wire, side, config } = &change.what else { continue };
            let link = &plan.wires[*wire];
            let new = side_words(plan, *wire, *side, config, &mut Vec::new());
            let (from, to) = (link.ends[*side], link.ends[1 - *side]);
            let device = &plan.nodes[from.0].interfaces[from.1].name;
            let queue = retell(device, &now[*wire][*side].queue, &new.queue).unwrap_or_default();
            let far = port(*wire, 1 - *side);
            let travel = retell(&far, &now[*wire][*side].wire, &new.wire).unwrap_or_default();
            let what = format!("link {} from {} to {}", link.name, plan.nodes[from.0].name, plan.nodes[to.0].name);
            all.push((change.at, what, vec![(of[from.0].again()?, queue), (self.netns.again()?, travel)]));
            now[*wire][*side] = new;
        }
        Ok(all)
    }

    /// What the links did so far. Delivered is what left the wire, lost what entered it and neither left nor travels any more
    /// or still; the queue's drops are the discipline's own count.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn links(&self, plan: &Plan, of: &[Netns]) -> Result<Vec<LinkReport>> {
        let devices =
            self.netns.with(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default()))?;
        let mut all = Vec::new();
        for (n, wire) in plan.wires.iter().enumerate() {
            for side in 0..2 {
                let (from, to) = (wire.ends[side], wire.ends[1 - side]);
                let (_, entered) = counters(&devices, &port(n, side), 0);
                let (bytes, delivered) = counters(&devices, &port(n, 1 - side), 8);
                let queue_full = drops(&of[from.0], &plan.nodes[from.0].interfaces[from.1].name)?;
                all.push(LinkReport {
                    link: wire.name.clone(),
                    from: plan.nodes[from.0].name.clone(),
                    to: plan.nodes[to.0].name.clone(),
                    offered: entered + queue_full,
                    delivered,
                    delivered_bytes: bytes.saturating_sub(delivered * ETHERNET),
                    lost: entered.saturating_sub(delivered),
                    queue_full,
                    managed: 0,
                    marked: 0,
                    other: 0,
                });
            }
        }
        Ok(all)
    }
}

/// The device of a wire at an end, in the namespace of the wires.
fn port(wire: usize, side: usize) -> String {
    format!("w{wire}{}", if side == 0 { 'a' } else { 'b' })
}

/// Bytes and packets of a device, received (0) or sent (8), in the kernel's table.
fn counters(table: &str, device: &str, from: usize) -> (u64, u64) {
    let line = table.lines().filter_map(|l| l.split_once(':')).find(|(name, _)| name.trim() == device);
    let numbers: Vec<u64> =
        line.map(|(_, rest)| rest.split_whitespace().filter_map(|n| n.parse().ok()).collect()).unwrap_or_default();
    (numbers.get(from).copied().unwrap_or(0), numbers.get(from + 1).copied().unwrap_or(0))
}

/// What the disciplines at a device dropped.
fn drops(netns: &Netns, device: &str) -> Result<u64> {
    let text = netns.with(|| {
        let out = Command::new("tc").args(["-s", "-j", "qdisc", "show", "dev", device]).output();
        Ok(out.map(|o| o.stdout).unwrap_or_default())
    })?;
    let all: Value = serde_json::from_slice(&text).unwrap_or_default();
    // The root counts what its children drop.
    let root = all.as_array().into_iter().flatten().find(|q| q["root"] == true);
    Ok(root.and_then(|q| q["drops"].as_u64()).unwrap_or(0))
}

/// The lines for `ip` that make a router of a namespace: its addresses and routes.
#[must_use]
pub fn router_batch(plan: &Plan, node: usize, routes: &Routes, ipv6: bool) -> String {
    let mut out = String::from("link set lo up\n");
    let router = &plan.nodes[node];
    let usable = |a: &IpAddr| ipv6 || a.is_ipv4();
    for i in &router.interfaces {
        let _ = writeln!(out, "link set dev {} arp off mtu {} multicast off up", i.name, i.mtu);
        for (address, prefix) in i.addresses.iter().filter(|(a, _)| usable(a)) {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(out, "addr add {address}/{prefix} dev {}{nodad}", i.name);
        }
    }
    for (to, ways) in routes.iter().filter(|(a, _)| usable(a)) {
        let names: Vec<&str> = ways.iter().map(|w| router.interfaces[*w].name.as_str()).collect();
        let _ = match names.as_slice() {
            [] => Ok(()),
            [one] => writeln!(out, "route replace {to} dev {one}"),
            many => {
                let hops: String = many.iter().map(|n| format!(" nexthop dev {n}")).collect();
                writeln!(out, "route replace {to}{hops}")
            }
        };
    }
    out
}

/// The settings that make a namespace forward, for both families.
pub const FORWARD: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv4.fib_multipath_hash_policy", "1"),
    ("net.ipv6.fib_multipath_hash_policy", "1"),
];

/// What a host's own devices need besides, before its addresses: no neighbours are asked for.
#[must_use]
pub fn host_prelude(plan: &Plan, node: usize) -> String {
    plan.nodes[node].interfaces.iter().fold(String::new(), |out, i| out + &format!("link set dev {} arp off\n", i.name))
}

/// Whether a node forwards.
#[must_use]
pub fn forwards(plan: &Plan, node: usize) -> bool {
    plan.nodes[node].kind == Kind::Router
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Change, NatPlan};
    use super::*;
    use neater_link::{Loss, NatConfig, QueueLimit};
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_plan_is_told_whole_or_refused_with_everything_that_is_wrong() {
        let link = LinkConfig::rate(10_000_000, 10 * MS).with_queue(QueueLimit::Packets(50));
        let mut plan = Plan::dumbbell(1, link.clone(), link.clone(), 1);
        let told = words(&plan).expect("has words");
        assert_eq!(told.0[0][0].queue.len(), 2);
        assert!(told.0[1][0].queue.is_empty() && told.0[1][0].wire.is_empty());
        plan.changes
            .push(Change { at: MS, what: What::Link { wire: 0, side: 0, config: link.clone().with_down(true) } });
        words(&plan).expect("down is a loss of all");
        let bytes = link.clone().with_queue(QueueLimit::Bytes(9000));
        plan.changes.push(Change { at: MS * 2, what: What::Link { wire: 0, side: 0, config: bytes } });
        plan.wires[0].config[1].loss = Loss::EveryNth(3);
        let config = NatConfig::symmetric([192, 0, 2, 1].into());
        plan.nodes[0].nat = Some(NatPlan { outside: 0, config });
        let error = words(&plan).expect_err("no words").to_string();
        for part in ["left: NAT", "middle: the loss of every nth", "changes the discipline", "--emulator neater"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn disciplines_are_changed_where_they_stay_what_they_are() {
        let told = |c: &LinkConfig| netem::stages(c, 1500).expect("told").wire;
        let (near, far) = (told(&LinkConfig::delay(MS)), told(&LinkConfig::delay(5 * MS)));
        let words = retell("w0b", &near, &far).expect("the same kind");
        assert_eq!(words, "qdisc change dev w0b root handle 1: netem limit 1000000 delay 5000us\n");
        assert_eq!(retell("w0b", &near, &[]).expect("goes"), "qdisc del dev w0b root\n");
        assert!(retell("w0b", &[], &near).expect("comes").starts_with("qdisc add dev w0b root"));
        assert_eq!(counters("  w0a: 10 2 0 0 0 0 0 0 30 4 0\n", "w0a", 8), (30, 4));
    }
}
