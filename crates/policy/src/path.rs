//! Which interfaces may serve, and in which order.

use crate::request::{Reason, Verdict, write_ruled_out};
use crate::select::weight;
use core::cmp::Reverse;
use core::fmt;
use neater_base::net::{Interface, InterfaceKind};
use neater_property::{Needs, Preference, SelectionProperty as P};

/// An interface with a default route: more destinations can be reached.
const DEFAULT_ROUTE: i32 = 10;
/// The loopback interface: only this host can be reached.
const LOOPBACK: i32 = 20;

/// An interface that may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedPath {
    /// The system's index of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The sum of the reasons; higher is better.
    pub score: i32,
    /// What speaks for and against it.
    pub reasons: Vec<Reason>,
}

/// An interface that cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludedPath {
    /// The system's index of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Everything that rules it out; at least one reason.
    pub reasons: Vec<Reason>,
}

/// What is asked of paths leaves none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPaths {
    /// What rules out each interface, in the order of their indices.
    pub paths: Vec<ExcludedPath>,
}

impl fmt::Display for NoPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no interface can do this: ")?;
        if self.paths.is_empty() {
            return f.write_str("there is none");
        }
        for (i, path) in self.paths.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            write_ruled_out(f, &path.name, &path.reasons)?;
        }
        Ok(())
    }
}

impl std::error::Error for NoPaths {}

/// Ranks `interfaces` by the preferences for interfaces, provisioning domains and temporary
/// addresses: by name or by type (`loopback`, `wired`, `wifi`, `cellular`, `tunnel`, `other`, and
/// some other words for them).
///
/// Interfaces that are down or have no address are excluded. Loopback ranks last of equals; whether
/// it can reach a destination is for routing to decide. No interfaces at all give no paths, which
/// leaves the choice to the system, unless something is required.
///
/// # Errors
/// [`NoPaths`] when every interface is excluded, or there is none and one is required.
///
/// # Spec
/// RFC 9622 sections 6.2.11 to 6.2.13. Several required names must all fit the same interface.
pub fn rank_paths(needs: &Needs, interfaces: &[Interface]) -> Result<Vec<RankedPath>, NoPaths> {
    let mut ranked = Vec::new();
    let mut excluded = Vec::new();
    for interface in interfaces {
        let (index, name) = (interface.index, interface.name.clone());
        let reasons = exclusions(needs, interface);
        if reasons.is_empty() {
            let reasons = preferences(needs, interface);
            let score = reasons.iter().map(|r| r.verdict.points()).sum();
            ranked.push(RankedPath { index, name, score, reasons });
        } else {
            excluded.push(ExcludedPath { index, name, reasons });
        }
    }
    let requires = |set: &[(Preference, String)]| set.iter().any(|(p, _)| *p == Preference::Require);
    let demanding =
        requires(&needs.interface) || requires(&needs.pvd) || needs.require.contains(P::UseTemporaryLocalAddress);
    if ranked.is_empty() && (demanding || !interfaces.is_empty()) {
        excluded.sort_by_key(|e| e.index);
        return Err(NoPaths { paths: excluded });
    }
    ranked.sort_by_key(|r| (Reverse(r.score), r.index));
    Ok(ranked)
}

/// Everything that rules the interface out.
fn exclusions(needs: &Needs, interface: &Interface) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut exclude = |property, preference, text: String| {
        reasons.push(Reason { property, preference, verdict: Verdict::Excludes, text });
    };
    let name = &interface.name;
    if !interface.up {
        exclude("interface", Preference::NoPreference, format!("{name} is down"));
    }
    if interface.addrs.is_empty() {
        exclude("interface", Preference::NoPreference, format!("{name} has no address"));
    }
    for (preference, wanted) in &needs.interface {
        match (preference, is_called(interface, wanted)) {
            (Preference::Require, false) => exclude("interface", *preference, format!("{wanted} required")),
            (Preference::Prohibit, true) => exclude("interface", *preference, format!("{wanted} prohibited")),
            _ => {}
        }
    }
    // Which addresses are of a domain is for the advice of policies to decide, which is asked
    // first: without it, none is known.
    for (preference, wanted) in needs.pvd.iter().filter(|(p, _)| *p == Preference::Require) {
        exclude(
            "pvd",
            *preference,
            format!("{wanted} required, no provisioning domain is known: `neater pm` receives them"),
        );
    }
    let temporary = P::UseTemporaryLocalAddress;
    match needs.preference(temporary) {
        Preference::Require if !has_temporary(interface) => {
            exclude(temporary.name(), Preference::Require, format!("required, {name} has none"));
        }
        Preference::Prohibit if !has_permanent(interface) => {
            exclude(temporary.name(), Preference::Prohibit, format!("prohibited, {name} has no other"));
        }
        _ => {}
    }
    reasons
}

/// What speaks for the interface and against it.
fn preferences(needs: &Needs, interface: &Interface) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut add = |property, preference, verdict, text: String| {
        reasons.push(Reason { property, preference, verdict, text });
    };
    for (preference, wanted) in needs.interface.iter().filter(|(_, wanted)| is_called(interface, wanted)) {
        match preference {
            Preference::Prefer => {
                add("interface", *preference, Verdict::Adds(weight::PREFERRED), format!("{wanted} preferred"));
            }
            Preference::Avoid => {
                add("interface", *preference, Verdict::Subtracts(weight::AVOIDED), format!("{wanted} avoided"));
            }
            Preference::Require | Preference::Prohibit | Preference::NoPreference => {}
        }
    }
    let temporary = P::UseTemporaryLocalAddress;
    let explicit = needs.explicit.contains(temporary);
    match needs.preference(temporary) {
        Preference::Prefer if has_temporary(interface) => {
            let points = if explicit { weight::PREFERRED } else { weight::PREFERRED_BY_DEFAULT };
            add(temporary.name(), Preference::Prefer, Verdict::Adds(points), "preferred".into());
        }
        Preference::Avoid if !has_permanent(interface) => {
            let points = if explicit { weight::AVOIDED } else { weight::AVOIDED_BY_DEFAULT };
            add(temporary.name(), Preference::Avoid, Verdict::Subtracts(points), "avoided".into());
        }
        _ => {}
    }
    if interface.default_v4 || interface.default_v6 {
        add("interface", Preference::NoPreference, Verdict::Adds(DEFAULT_ROUTE), "has a default route".into());
    }
    if interface.kind == InterfaceKind::Loopback {
        add("interface", Preference::NoPreference, Verdict::Subtracts(LOOPBACK), "reaches this host only".into());
    }
    reasons
}

fn has_temporary(interface: &Interface) -> bool {
    interface.addrs.iter().any(|a| a.temporary && !a.deprecated)
}

fn has_permanent(interface: &Interface) -> bool {
    interface.addrs.iter().any(|a| !a.temporary)
}

/// Whether `wanted` is the interface's name, or a word for its type.
fn is_called(interface: &Interface, wanted: &str) -> bool {
    let words: &[&str] = match interface.kind {
        InterfaceKind::Loopback => &["loopback"],
        InterfaceKind::Wired => &["wired", "ethernet"],
        InterfaceKind::WiFi => &["wifi", "wi-fi", "wlan"],
        InterfaceKind::Cellular => &["cellular", "mobile"],
        InterfaceKind::Tunnel => &["tunnel", "vpn"],
        _ => &["other"],
    };
    interface.name == wanted || words.iter().any(|w| w.eq_ignore_ascii_case(wanted))
}
