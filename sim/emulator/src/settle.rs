//! Makes the network of a host ready: addresses, routes, kernel settings, offloads.
//!
//! By iproute2 rather than over netlink: a batch for `ip` is what its reader would have typed, can be printed and tried by
//! hand, and costs one process per host. Kernel settings are files, and offloads an ioctl.

use super::error::{LiveError, Result, failed};
use super::netns::Netns;
use super::plan::{Node, Plan, Routes};
use super::tun;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

/// Settings of every host. A plan's own come after them.
///
/// Nothing is remembered from one connection to the next, no packet is sent that no program asked for (duplicate address
/// detection, router solicitations), no answer is withheld by rate limits, and the congestion control is named.
pub const SYSCTLS: [(&str, &str); 17] = [
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.icmp_ratelimit", "0"),
    ("net.ipv4.ping_group_range", "0 2147483647"),
    ("net.ipv4.ip_unprivileged_port_start", "0"),
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.all.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.autoconf", "0"),
    ("net.ipv6.icmp.ratelimit", "0"),
    // Addresses stay with an interface that goes down, as those of IPv4 do.
    ("net.ipv6.conf.all.keep_addr_on_down", "1"),
    ("net.ipv6.conf.default.keep_addr_on_down", "1"),
];

/// The settings that a record of a run names, whether they were set or not.
pub const RECORDED: [&str; 12] = [
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_moderate_rcvbuf",
];

/// The metric of the default route over the first interface of a host; the next one's is one more, and so on.
const DEFAULT_METRIC: u32 = 1000;

/// The metric of a route that holds where there is no other.
const NEVER_METRIC: u32 = 100_000;

/// Where the kernel keeps the congestion controls that need no privilege. It is one list for all namespaces.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Whether the kernel speaks IPv6.
#[must_use]
pub fn has_ipv6() -> bool {
    fs::exists("/proc/net/if_inet6").unwrap_or(false)
}

/// The lines for `ip` that configure a host whose interfaces are there.
#[must_use]
pub fn batch(plan: &Plan, node: usize, routes: &Routes, ipv6: bool) -> String {
    let mut out = String::from("link set lo up\n");
    let Some(host) = plan.nodes.get(node) else { return out };
    let usable = |a: &IpAddr| ipv6 || a.is_ipv4();
    for i in &host.interfaces {
        let _ = writeln!(out, "link set dev {} mtu {} txqueuelen {} multicast off up", i.name, i.mtu, tun::QUEUE);
        for (address, prefix) in i.addresses.iter().filter(|(a, _)| usable(a)) {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(out, "addr add {address}/{prefix} dev {}{nodad}", i.name);
        }
    }
    out.push_str(&route_lines(host, routes, ipv6, None));
    out
}

/// The lines for `ip` that restore what the kernel forgets when an interface goes down: the routes over it.
#[must_use]
pub fn restore(plan: &Plan, node: usize, interface: usize, routes: &Routes, ipv6: bool) -> String {
    plan.nodes.get(node).map_or_else(String::new, |host| route_lines(host, routes, ipv6, Some(interface)))
}

/// The routes of a host, or those over one interface of it. Two interfaces may lead everywhere: the first is preferred, and
/// the second takes over when the first goes down.
fn route_lines(host: &Node, routes: &Routes, ipv6: bool, only: Option<usize>) -> String {
    let mut out = String::new();
    let usable = |a: &IpAddr| ipv6 || a.is_ipv4();
    let chosen = |number: usize| only.is_none_or(|only| only == number);
    let options = if host.route_options.is_empty() { String::new() } else { format!(" {}", host.route_options) };
    let everywhere: &[&str] = if ipv6 { &["0.0.0.0/0", "::/0"] } else { &["0.0.0.0/0"] };
    if host.interfaces.len() > 1 {
        // What is sent from an address leaves through its interface: a table for each, chosen by the source.
        for (number, i) in host.interfaces.iter().enumerate().filter(|(n, _)| chosen(*n)) {
            let table = 100 + number;
            for (address, _) in i.addresses.iter().filter(|(a, _)| usable(a)) {
                let all = if address.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
                // Rules outlive the interface.
                if only.is_none() {
                    let family = if address.is_ipv6() { "-6 " } else { "" };
                    let _ = writeln!(out, "{family}rule add from {address} table {table}");
                    // While the interface is down, nothing leaves over another one with this address.
                    let _ = writeln!(out, "route replace unreachable {all} table {table} metric {NEVER_METRIC}");
                }
                let _ = writeln!(out, "route replace {all} dev {} src {address} table {table}{options}", i.name);
            }
        }
        // What is sent from no address in particular takes a shortest way.
        for (to, ways) in routes.iter().filter(|(a, _)| usable(a)) {
            let Some((n, i)) = ways.first().and_then(|w| Some((*w, host.interfaces.get(*w)?))) else { continue };
            if chosen(n) {
                let _ = writeln!(out, "route replace {to} dev {}{}{options}", i.name, source(i, to));
            }
        }
    }
    for (number, i) in host.interfaces.iter().enumerate().filter(|(n, _)| chosen(*n)) {
        for all in everywhere {
            let metric = DEFAULT_METRIC + number as u32;
            let _ = writeln!(out, "route replace {all} dev {} metric {metric}{options}", i.name);
        }
    }
    out
}

fn source(i: &super::plan::Interface, to: &IpAddr) -> String {
    let own = i.addresses.iter().map(|(a, _)| a).find(|a| a.is_ipv6() == to.is_ipv6());
    own.map_or_else(String::new, |a| format!(" src {a}"))
}

/// Lets hosts use a congestion control as their default: the kernel wants it in a list that all namespaces share.
///
/// # Errors
/// The kernel does not have it.
pub fn allow_congestion_control(name: &str) -> Result<()> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !available.split_whitespace().any(|n| n == name) {
        return Err(LiveError::Usage(format!(
            "this kernel has no congestion control {name:?}; it has {}. A module may be missing (modprobe tcp_{name})",
            available.trim()
        )));
    }
    let allowed = read(ALLOWED);
    if allowed.split_whitespace().any(|n| n == name) {
        return Ok(());
    }
    let more = format!("{} {name}", allowed.trim());
    fs::write(ALLOWED, &more).or_else(|e| failed(&format!("adding {name} to {ALLOWED}"), e))
}

/// Sets the kernel settings of a host: the lab's, then its own.
///
/// # Errors
/// A setting of the plan does not exist or does not take its value.
pub fn sysctls(netns: &Netns, own: &BTreeMap<String, String>, ipv6: bool) -> Result<()> {
    for (key, value) in SYSCTLS.iter().filter(|(k, _)| ipv6 || !k.starts_with("net.ipv6")) {
        let key = *key;
        if own.contains_key(key) {
            continue;
        }
        if key == "net.ipv4.tcp_congestion_control" {
            allow_congestion_control(value)?;
            netns.sysctl(key, value)?;
        } else {
            // Older kernels lack one or the other; what matters is recorded as it is.
            let _ = netns.sysctl(key, value);
        }
    }
    for (key, value) in own {
        if key == "net.ipv4.tcp_congestion_control" {
            allow_congestion_control(value)?;
        }
        netns.sysctl(key, value)?;
    }
    Ok(())
}

/// The hosts file of the lab: every name with its addresses, `name` for the first interface, `name-eth1` for others.
#[must_use]
pub fn hosts_file(plan: &Plan, ipv6: bool) -> String {
    let mut out = String::from("127.0.0.1 localhost\n");
    if ipv6 {
        out.push_str("::1 localhost\n");
    }
    for node in &plan.nodes {
        for (n, i) in node.interfaces.iter().enumerate() {
            for (address, _) in i.addresses.iter().filter(|(a, _)| ipv6 || a.is_ipv4()) {
                let short = if n == 0 { format!("{} ", node.name) } else { String::new() };
                let _ = writeln!(out, "{address} {short}{}-{}", node.name, i.name);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_link::LinkConfig;

    #[test]
    fn a_host_with_one_interface_has_a_default_route_and_no_tables() {
        let plan = Plan::dumbbell(1, LinkConfig::default(), LinkConfig::default(), 1);
        let node = plan.node("client1").expect("there");
        let text = batch(&plan, node, &plan.routes()[node], true);
        assert!(text.contains("route replace ::/0 dev eth0 metric 1000"), "{text}");
        assert!(!text.contains("table"), "{text}");
        assert!(!batch(&plan, node, &plan.routes()[node], false).contains("fd00"));
        let hosts = hosts_file(&plan, true);
        assert!(hosts.lines().any(|l| l == "10.0.1.1 client1 client1-eth0"), "{hosts}");
    }

    #[test]
    fn the_cc_of_no_kernel_is_refused_with_what_there_is() {
        let error = allow_congestion_control("no-such").expect_err("unknown");
        assert!(error.to_string().contains("reno"), "{error}");
    }
}
