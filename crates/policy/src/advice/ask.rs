//! A connection in NEAT's words.

use crate::manager::Requests;
use crate::option::dscp_of;
use crate::path::rank_paths;
use crate::stack::StackFeatures;
use neater_base::net::{Interface, InterfaceKind};
use neater_property::neat::{NeatArray, NeatProperty, NeatValue};
use neater_property::{CapacityProfile, Needs, Preference, SelectionProperty};
use std::net::IpAddr;

/// A stack that may serve, and what policies call it: `TCP` with and without `security` are two
/// stacks.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// What it can do.
    pub features: StackFeatures,
    /// The value of `transport`.
    pub transport: &'static str,
}

impl Named {
    /// Whether a candidate with this transport and security, if it states any, means this stack.
    /// `TLS` and `DTLS` are TCP and UDP with security, as alternative names.
    pub(super) fn is_meant(&self, transport: &str, security: Option<bool>) -> bool {
        let secure = self.features.secure;
        let alias = match self.transport {
            "TCP" if secure => "TLS",
            "UDP" if secure => "DTLS",
            other => other,
        };
        if transport.eq_ignore_ascii_case(alias) && alias != self.transport {
            return security != Some(false);
        }
        transport.eq_ignore_ascii_case(self.transport) && security.is_none_or(|s| s == secure)
    }
}

/// One connection that is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What the program needs, of RFC 9622.
    pub needs: &'a Needs,
    /// The stacks that may serve, in the order that the needs alone give them. Nothing else is ever
    /// advised.
    pub stacks: &'a [Named],
    /// The program; empty where that is not known.
    pub app: &'a str,
    /// The name of the other end.
    pub host: Option<&'a str>,
    /// Its address, if that is given and not resolved.
    pub addr: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Properties beyond those of RFC 9622 that the program states, such as `profile` and
    /// `flow_size`.
    pub extra: &'a [NeatProperty],
    /// What the program binds it to: any of these interfaces, by name, or of those that have these
    /// addresses. Nothing: the system's choice.
    pub bound: &'a [Bound<'a>],
}

/// Where a connection is bound to, by its local endpoint or by the zone of the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// The interface of this name, or, as the zone of an address may be (RFC 4007 section 11.2), of
    /// this index.
    Interface(&'a str),
    /// That which has this address.
    Address(IpAddr),
    /// One of several local endpoints that leaves the choice to the system.
    Anywhere,
}

impl Bound<'_> {
    fn is(&self, interface: &Interface) -> bool {
        match self {
            Self::Interface(name) => interface.name == *name || name.parse() == Ok(interface.index),
            Self::Address(addr) => interface.addrs.iter().any(|a| a.addr == *addr),
            Self::Anywhere => false,
        }
    }
}

/// An interface with an address, by which the other end may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usable {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) addrs: Vec<IpAddr>,
}

impl Ask<'_> {
    /// One request for each stack, in their order.
    ///
    /// What a program requires or prohibits has been seen to before policies are asked, so that its
    /// wishes are optional here: rows need not repeat them, and a policy cannot bring back what
    /// they have excluded. Defaults are bases.
    ///
    /// A connection that is bound to an interface without an address of which there could be a row
    /// (a link-local one) states of the interface what a row would state.
    #[must_use]
    pub fn requests(&self, interfaces: &[Interface]) -> Requests {
        let common = self.common();
        let of = |stack: &Named| {
            let mut array = common.clone();
            array.replace(NeatProperty::new("transport", stack.transport));
            array.replace(NeatProperty::new("security", stack.features.secure));
            array
        };
        if self.bound.is_empty() {
            return Requests::from_arrays(self.stacks.iter().map(of));
        }
        let usable = self.usable(interfaces);
        let bare = |i: &&Interface| usable.iter().any(|u| u.index == i.index && u.addrs.is_empty());
        let facts: Vec<NeatArray> = interfaces.iter().filter(bare).map(crate::rows::interface_facts).collect();
        let plain = self.stacks.iter().filter(|_| facts.len() < usable.len() || usable.is_empty()).map(of);
        let with = |facts: &NeatArray, stack: &Named| {
            let mut array = of(stack);
            facts.iter().for_each(|p| array.replace(p.clone()));
            array
        };
        let bare = facts.iter().flat_map(|facts| self.stacks.iter().map(move |stack| with(facts, stack)));
        Requests::from_arrays(plain.chain(bare))
    }

    /// The provisioning domains of which every way must be.
    pub(super) fn required_domains(&self) -> impl Iterator<Item = &str> {
        let required = self.needs.pvd.iter().filter(|(p, _)| *p == Preference::Require);
        required.map(|(_, name)| name.as_str())
    }

    fn common(&self) -> NeatArray {
        let mut array = NeatArray::new();
        let mut say = |key: &str, value: NeatValue| array.replace(NeatProperty::new(key, value));
        if !self.app.is_empty() {
            say("app", self.app.into());
        }
        if let Some(host) = self.host {
            say("domain_name", host.to_ascii_lowercase().trim_end_matches('.').into());
        }
        if let Some(addr) = self.addr {
            say("remote_ip", addr.to_string().as_str().into());
        }
        say("port", NeatValue::Number(self.port.into()));
        if let Some(word) = capacity_word(self.needs.connection.capacity_profile) {
            say("capacity_profile", word.into());
        }
        let dscp = dscp_of(self.needs.connection.capacity_profile);
        if dscp != 0 {
            say("dscp", NeatValue::Number(dscp.into()));
        }
        for property in SelectionProperty::ALL {
            let preference = self.needs.preference(property);
            if preference != Preference::NoPreference {
                let stated = self.needs.explicit.contains(property);
                let precedence = if stated { NeatProperty::OPTIONAL } else { NeatProperty::BASE };
                let wish = NeatProperty::from_preference(property.name(), preference);
                array.replace(wish.with_precedence(precedence));
            }
        }
        for (key, wanted) in [("pvd_required", Preference::Require), ("pvd_preferred", Preference::Prefer)] {
            let names = self.needs.pvd.iter().filter(|(p, _)| *p == wanted);
            let names: Vec<NeatValue> = names.map(|(_, name)| NeatValue::Text(name.to_ascii_lowercase())).collect();
            if let (false, Ok(set)) = (names.is_empty(), NeatValue::set(names)) {
                array.replace(NeatProperty::new(key, set));
            }
        }
        for property in self.extra {
            // What stands there already is the connection's own.
            if array.get(&property.key).is_none()
                && !matches!(&*property.key, "transport" | "security" | "interface" | "pvd")
            {
                array.replace(property.clone());
            }
        }
        array
    }

    /// The interfaces that lead to the other end, as far as that is known before its name is
    /// resolved, in the order of the needs; none where only the system can decide.
    pub(super) fn usable(&self, interfaces: &[Interface]) -> Vec<Usable> {
        let local = |name: &str| name == "localhost" || name.ends_with(".localhost");
        let host = self.host.map(|h| h.to_ascii_lowercase());
        let here = match self.addr {
            Some(addr) => addr.is_loopback() || interfaces.iter().any(|i| i.addrs.iter().any(|a| a.addr == addr)),
            None => host.is_some_and(|h| local(h.trim_end_matches('.'))),
        };
        // Which addresses are of a domain is seen in the rows.
        let without = (!self.needs.pvd.is_empty()).then(|| Needs { pvd: Vec::new(), ..self.needs.clone() });
        let needs = without.as_ref().unwrap_or(self.needs);
        // A program that binds a connection uses that interface, wherever routes lead and whatever
        // it has for addresses.
        let is_bound = |i: &Interface| i.up && self.bound.iter().any(|b| b.is(i));
        let free = self.bound.is_empty() || self.bound.contains(&Bound::Anywhere);
        let ranked = if free { rank_paths(needs, interfaces).unwrap_or_default() } else { Vec::new() };
        let ranked = ranked.iter().filter_map(|r| interfaces.iter().find(|i| i.index == r.index));
        let fitting: Vec<&Interface> =
            ranked.filter(|i| (i.kind == InterfaceKind::Loopback) == here && !is_bound(i)).collect();
        let leads = |i: &Interface| self.addr.is_some_and(|a| on_link(i, a));
        let out = |i: &Interface| match self.addr {
            Some(IpAddr::V4(_)) => i.default_v4,
            Some(IpAddr::V6(_)) => i.default_v6,
            None => i.default_v4 || i.default_v6,
        };
        let all = here || !fitting.iter().any(|i| out(i) || leads(i));
        let usable = fitting.into_iter().filter(|i| all || out(i) || leads(i));
        let usable = usable.map(|i| (i, false)).chain(interfaces.iter().filter(|i| is_bound(i)).map(|i| (i, true)));
        let family = |a: &IpAddr| self.addr.is_none_or(|to| to.is_ipv4() == a.is_ipv4());
        let usable = usable.filter_map(|(i, bound)| {
            let addrs: Vec<IpAddr> = crate::rows::row_addresses(i).filter(family).collect();
            let there = bound || !addrs.is_empty();
            there.then(|| Usable { index: i.index, name: i.name.clone(), addrs })
        });
        usable.collect()
    }

    /// The other end, for people.
    pub(super) fn target(&self) -> String {
        match (self.host, self.addr) {
            (Some(host), _) => format!("{host}:{}", self.port),
            (None, Some(IpAddr::V6(addr))) => format!("[{addr}]:{}", self.port),
            (None, Some(addr)) => format!("{addr}:{}", self.port),
            (None, None) => format!("port {}", self.port),
        }
    }
}

/// Whether an address is a neighbour's.
fn on_link(interface: &Interface, to: IpAddr) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 32),
        IpAddr::V6(a) => (a.to_bits(), 128),
    };
    let (to_bits, width) = bits(to);
    interface.addrs.iter().any(|a| {
        let (own, own_width) = bits(a.addr);
        let prefix = u32::from(a.prefix);
        own_width == width && prefix > 0 && prefix <= width && (own ^ to_bits) >> (128 - prefix) == 0
    })
}

/// What the ready-made profiles call a capacity profile (RFC 9622 section 8.1.6).
const fn capacity_word(profile: CapacityProfile) -> Option<&'static str> {
    match profile {
        CapacityProfile::Default => None,
        CapacityProfile::Scavenger => Some("scavenger"),
        CapacityProfile::LowLatencyInteractive | CapacityProfile::LowLatencyNonInteractive => Some("low-latency"),
        CapacityProfile::ConstantRateStreaming => Some("constant-rate"),
        CapacityProfile::CapacitySeeking => Some("capacity-seeking"),
    }
}
