//! By which interfaces, and from which addresses, a host may be reached.

use crate::failure::Failure;
use neater_base::net::{Interface, InterfaceKind};
use serde_json::{Value, json};
use std::fmt;
use std::net::IpAddr;

/// How many ways are asked.
pub(super) const MAX_WAYS: usize = 64;

/// One way to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The interface and the address there; `None` leaves both to the system's routes.
    pub(super) by: Option<(String, IpAddr)>,
    pub(super) remote: IpAddr,
}

impl Way {
    pub(super) fn to_json(&self) -> Value {
        let (interface, local) = self.by.as_ref().map(|(name, local)| (name.as_str(), local.to_string())).unzip();
        json!({"interface": interface, "local": local, "address": self.remote.to_string()})
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some((name, local)) => write!(f, "{name} {local} -> {}", self.remote),
            None => write!(f, "as routed -> {}", self.remote),
        }
    }
}

/// That all interfaces that were named are there.
pub(super) fn known(wanted: &[String], interfaces: &[Interface]) -> Result<(), Failure> {
    let there = |name: &&String| interfaces.iter().any(|i| i.name == **name);
    let Some(missing) = wanted.iter().find(|name| !there(name)) else { return Ok(()) };
    let names: Vec<&str> = interfaces.iter().map(|i| i.name.as_str()).collect();
    Err(Failure::usage(format!("--interface {missing}: there are {}", names.join(", "))))
}

/// The ways to these addresses: by every interface that is up, has a fitting address and leads
/// there, or by those that are wanted whether or not routes lead there. An address to which none
/// leads is asked as the system routes.
pub(super) fn ways(remotes: &[IpAddr], interfaces: &[Interface], wanted: &[String]) -> Vec<Way> {
    let mut found = Vec::new();
    for &remote in remotes {
        let before = found.len();
        for interface in interfaces.iter().filter(|i| i.up) {
            let named = wanted.contains(&interface.name);
            if !wanted.is_empty() && !named {
                continue;
            }
            if let Some(local) = local_address(interface, remote).filter(|_| named || leads(interface, remote)) {
                found.push(Way { by: Some((interface.name.clone(), local)), remote });
            }
        }
        if found.len() == before && wanted.is_empty() {
            found.push(Way { by: None, remote });
        }
    }
    found
}

/// Whether routes lead by an interface to an address: the loopback to this host, another to the
/// networks of its addresses and, with a default route, to the world.
pub(crate) fn leads(interface: &Interface, remote: IpAddr) -> bool {
    if interface.kind == InterfaceKind::Loopback || remote.is_loopback() {
        return interface.kind == InterfaceKind::Loopback && remote.is_loopback();
    }
    let default = if remote.is_ipv4() { interface.default_v4 } else { interface.default_v6 };
    default || interface.addrs.iter().any(|a| same_network(a.addr, a.prefix, remote))
}

fn same_network(a: IpAddr, prefix: u8, b: IpAddr) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    };
    let ((x, width), (y, other)) = (bits(a), bits(b));
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(width))).unwrap_or(0);
    width == other && (x ^ y) & mask == 0
}

/// The address of an interface to use towards another: of the same version of IP, and on the same
/// network if there is one.
fn local_address(interface: &Interface, remote: IpAddr) -> Option<IpAddr> {
    let link_local = |a: IpAddr| match a {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let fits = |a: &IpAddr| a.is_ipv4() == remote.is_ipv4() && link_local(*a) == link_local(remote);
    let usable = interface.addrs.iter().filter(|a| !a.deprecated && fits(&a.addr));
    usable.clone().find(|a| same_network(a.addr, a.prefix, remote)).or_else(|| usable.clone().next()).map(|a| a.addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::InterfaceAddr;

    fn interface(name: &str, kind: InterfaceKind, addrs: &[(&str, u8)], default: bool) -> Interface {
        let addr = |(a, prefix): &(&str, u8)| InterfaceAddr {
            addr: a.parse().expect("an address"),
            prefix: *prefix,
            temporary: false,
            deprecated: false,
        };
        Interface {
            index: 1,
            name: name.into(),
            kind,
            up: true,
            addrs: addrs.iter().map(addr).collect(),
            mtu: 1500,
            default_v4: default,
            default_v6: false,
        }
    }

    fn shown(remotes: &[&str], all: &[Interface], wanted: &[&str]) -> Vec<String> {
        let remotes: Vec<IpAddr> = remotes.iter().map(|r| r.parse().expect("an address")).collect();
        let wanted: Vec<String> = wanted.iter().map(|w| (*w).to_owned()).collect();
        ways(&remotes, all, &wanted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ways_are_those_that_lead_there() {
        let all = [
            interface("lo", InterfaceKind::Loopback, &[("127.0.0.1", 8), ("::1", 128)], false),
            interface("eth0", InterfaceKind::Wired, &[("192.0.2.1", 24), ("fe80::1", 64)], true),
            interface("eth1", InterfaceKind::Wired, &[("198.51.100.1", 25), ("203.0.113.1", 24)], false),
        ];
        assert_eq!(shown(&["127.0.0.2"], &all, &[]), ["lo 127.0.0.1 -> 127.0.0.2"]);
        assert_eq!(shown(&["198.51.100.200"], &all, &[]), ["eth0 192.0.2.1 -> 198.51.100.200"], "beyond /25");
        let both = ["eth0 192.0.2.1 -> 203.0.113.9", "eth1 203.0.113.1 -> 203.0.113.9"];
        assert_eq!(shown(&["203.0.113.9"], &all, &[]), both, "from the address of its network");
        assert_eq!(shown(&["8.8.8.8"], &all, &["eth1"]), ["eth1 198.51.100.1 -> 8.8.8.8"], "because it was asked for");
        assert_eq!(shown(&["2001:db8::1"], &all, &[]), ["as routed -> 2001:db8::1"]);
        assert!(shown(&["2001:db8::1"], &all, &["eth0"]).is_empty(), "a link-local address does not lead there");
    }

    #[test]
    fn an_interface_that_is_not_there_is_told() {
        let all = [interface("lo", InterfaceKind::Loopback, &[], false)];
        let failure = known(&["eth9".to_owned()], &all).expect_err("none");
        assert!(failure.message.contains("eth9: there are lo"), "{}", failure.message);
    }
}
