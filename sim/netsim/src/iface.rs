//! Interfaces, and which source address is used.

use crate::nat::NatId;
use crate::world::{IfaceId, LinkId};
use neater_base::net::{Interface, InterfaceAddr};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Index of the loopback interface that every host has.
pub(crate) const LOOPBACK_INDEX: u32 = 1;

/// An interface and what it is plugged into.
#[derive(Debug)]
pub(crate) struct IfaceState {
    pub(crate) public: Interface,
    /// The access links to and from the internet.
    pub(crate) access: Option<(LinkId, LinkId)>,
    /// The NAT box that they lead to, if they do not lead to the internet itself.
    pub(crate) nat: Option<NatId>,
    /// The links of the way to another interface, first to last.
    pub(crate) routes: BTreeMap<IfaceId, Arc<[LinkId]>>,
    /// The link to a router or host of a scenario.
    pub(crate) wire: Option<LinkId>,
    /// How far each subnet is by that link; `u32::MAX` is out of reach.
    pub(crate) metrics: Vec<u32>,
    /// Whether default routes are wanted, for IPv4 and IPv6.
    pub(crate) wants_default: (bool, bool),
}

impl IfaceState {
    pub(crate) fn new(public: Interface) -> Self {
        Self {
            public,
            access: None,
            nat: None,
            routes: BTreeMap::new(),
            wire: None,
            metrics: Vec::new(),
            wants_default: (true, true),
        }
    }

    /// Derives what is derived: default routes need an access link, an address of the family, and the interface up.
    pub(crate) fn refresh(&mut self) {
        let usable = self.public.up && (self.access.is_some() || self.wire.is_some());
        let has = |v4: bool| self.public.addrs.iter().any(|a| a.addr.is_ipv4() == v4);
        let (v4, v6) = (has(true), has(false));
        self.public.default_v4 = usable && self.wants_default.0 && v4;
        self.public.default_v6 = usable && self.wants_default.1 && v6;
    }

    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        self.public.addrs.iter().any(|a| a.addr == addr)
    }

    pub(crate) fn has_default(&self, v4: bool) -> bool {
        if v4 { self.public.default_v4 } else { self.public.default_v6 }
    }

    /// The source address towards `remote`: rules 2 (scope), 3 (not deprecated), 7 (temporary) and 8 (longest prefix) of
    /// RFC 6724 section 5, in this order. `temporary` is the wish of the socket; without one, temporary addresses are
    /// preferred, as the RFC says.
    pub(crate) fn source_for(&self, remote: IpAddr, temporary: Option<bool>) -> Option<IpAddr> {
        let wish = temporary.unwrap_or(true);
        let rank = |a: &InterfaceAddr| {
            let scope = is_link_local(a.addr) == is_link_local(remote);
            (scope, !a.deprecated, a.temporary == wish, common_prefix(a.addr, remote).min(a.prefix))
        };
        let family = self.public.addrs.iter().filter(|a| a.addr.is_ipv4() == remote.is_ipv4());
        // Of equals the first: `max_by_key` takes the last.
        family.rev().max_by_key(|a| rank(a)).map(|a| a.addr)
    }
}

fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}

fn common_prefix(a: IpAddr, b: IpAddr) -> u8 {
    let bits = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    bits as u8
}

/// An address with the usual prefix length of its family: 24 or 64 bits.
pub(crate) fn plain_address(addr: IpAddr) -> InterfaceAddr {
    InterfaceAddr { addr, prefix: if addr.is_ipv4() { 24 } else { 64 }, temporary: false, deprecated: false }
}

/// The addresses of the loopback interface.
pub(crate) fn loopback_addresses() -> Vec<InterfaceAddr> {
    let v4 = InterfaceAddr { prefix: 8, ..plain_address(Ipv4Addr::LOCALHOST.into()) };
    let v6 = InterfaceAddr { prefix: 128, ..plain_address(Ipv6Addr::LOCALHOST.into()) };
    vec![v4, v6]
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::InterfaceKind;

    fn iface(addrs: Vec<InterfaceAddr>) -> IfaceState {
        IfaceState::new(Interface {
            index: 2,
            name: "e".into(),
            kind: InterfaceKind::Wired,
            up: true,
            addrs,
            mtu: 1500,
            default_v4: false,
            default_v6: false,
        })
    }

    #[test]
    fn the_source_address_is_chosen_by_scope_then_age_then_privacy_then_prefix() {
        let a = |s: &str| plain_address(s.parse().unwrap());
        let remote: IpAddr = "2001:db8:2::9".parse().unwrap();
        let plain = a("2001:db8:2::1");
        let far = a("2001:db8:1::1");
        let temporary = InterfaceAddr { temporary: true, ..a("2001:db8:1::2") };
        let old = InterfaceAddr { deprecated: true, ..a("2001:db8:2::2") };
        let local = a("fe80::1");
        let pick = |addrs: &[InterfaceAddr], t| iface(addrs.to_vec()).source_for(remote, t);
        assert_eq!(pick(&[local, old, far, plain], None), Some(plain.addr));
        assert_eq!(pick(&[local, old, far, plain, temporary], None), Some(temporary.addr));
        assert_eq!(pick(&[local, old, far, plain, temporary], Some(false)), Some(plain.addr));
        assert_eq!(pick(&[local, old], None), Some(old.addr));
        assert_eq!(pick(&[a("192.0.2.1")], None), None);
    }
}
