//! What the manager's candidates mean for a connection.

use super::ask::{Ask, Usable};
use crate::manager::{Decision, Stage};
use crate::option;
use crate::pvd::same_name;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{BuildHasher, Hash, Hasher};
use neater_base::net::SocketOption;
use neater_property::SelectionProperty;
use neater_property::neat::{NeatProperty, NeatValue};
use std::net::IpAddr;

/// How many paths a race has room for; what ranks behind is left out.
const MAX_PATHS: usize = 16;

/// A stack, and what its sockets are opened with beyond what the program's needs ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The engine's number for the stack.
    pub stack: u16,
    /// Options, to be set after those of the needs.
    pub options: Vec<SocketOption>,
}

/// Stacks to be tried by one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvisedPath {
    /// The interface by its index; `None` leaves it to the system.
    pub interface: Option<u32>,
    /// The address to come from; `None` leaves it to the system.
    pub local: Option<IpAddr>,
    /// The stacks, best first; at least one.
    pub picks: Vec<Pick>,
}

/// The advice of policies for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The ways, best first, at least one. A way stands here more than once where another one's
    /// stacks rank between its own.
    pub paths: Vec<AdvisedPath>,
    /// The same for equal advice, different for different; 0 for advice that changes nothing.
    pub number: u64,
}

impl Advice {
    /// Whether the connection is to be opened as if there were no policies.
    #[must_use]
    pub const fn is_neutral(&self) -> bool {
        self.number == 0
    }

    fn new(paths: Vec<AdvisedPath>, ask: &Ask<'_>) -> Self {
        let plain = |path: &AdvisedPath| {
            let as_asked = path.picks.iter().map(|p| p.stack).eq(ask.stacks.iter().map(|s| s.features.id));
            path.interface.is_none() && as_asked && path.picks.iter().all(|p| p.options.is_empty())
        };
        let number = if paths.len() == 1 && paths.iter().all(plain) { 0 } else { number_of(&paths) };
        Self { paths, number }
    }
}

fn number_of(paths: &[AdvisedPath]) -> u64 {
    let mut h = foldhash::fast::FixedState::with_seed(0x6164_7669_6365).build_hasher();
    for path in paths {
        (path.interface, path.local).hash(&mut h);
        for pick in &path.picks {
            pick.stack.hash(&mut h);
            // Their texts, because options are compared only here.
            pick.options.iter().for_each(|o| format!("{o:?}").hash(&mut h));
        }
    }
    h.finish().max(1)
}

/// The policies leave no way to the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The rules that took candidates away; none where something else is wrong.
    pub rules: Vec<(Stage, String)>,
    /// The other end; empty where there were too many alternatives to decide.
    pub host: String,
    /// The provisioning domains that the program requires.
    pub domains: Vec<String>,
}

impl Denied {
    pub(super) const fn too_many() -> Self {
        Self { rules: Vec::new(), host: String::new(), domains: Vec::new() }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            return f.write_str("the policies make too many alternatives of this request");
        }
        write!(f, "the policies leave no transport and no interface for {}", self.host)?;
        for (i, (stage, uid)) in self.rules.iter().enumerate() {
            write!(f, "{} {} {uid}", if i == 0 { ": denied by" } else { "," }, stage.as_str())?;
        }
        if !self.domains.is_empty() {
            write!(f, "; the provisioning domain {} is required", self.domains.join(" and "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Denied {}

/// A candidate of the manager's, as far as it is one of the connection's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Its place among those that were asked for.
    pub(super) stack: usize,
    /// The interface by its place among those that are usable, and the address; `None`: no row.
    pub(super) place: Option<(usize, Option<IpAddr>)>,
    pub(super) evaluated: f64,
    pub(super) others: f64,
    pub(super) options: Vec<SocketOption>,
    /// Options that cannot be set, and why.
    pub(super) vain: Vec<String>,
    /// How much the program prefers its provisioning domain.
    pub(super) wish: i32,
}

impl Found {
    fn better(&self, other: &Self) -> Ordering {
        let scores = other.evaluated.total_cmp(&self.evaluated).then(other.others.total_cmp(&self.others));
        scores.then(other.wish.cmp(&self.wish))
    }

    /// Whether the two have the same stated properties.
    fn weighs_like(&self, other: &Self) -> bool {
        self.better(other).is_eq() && self.options == other.options
    }
}

/// What a decision comes to.
pub(super) enum Read {
    Advice(Advice),
    /// No candidate is left.
    Nothing,
    /// There are interfaces, and candidates without any only.
    WithoutRows(Advice),
}

/// Whether a value means true or false: NEAT has numbers for it, too.
fn truth(value: &NeatValue) -> Option<bool> {
    match value {
        NeatValue::Bool(b) => Some(*b),
        NeatValue::Number(n) if *n == 1.0 => Some(true),
        NeatValue::Number(n) if *n == 0.0 => Some(false),
        _ => None,
    }
}

/// Reads candidate `i`: one for each stack that it means. Why it is none of the connection's
/// otherwise.
pub(super) fn candidates(
    decision: &Decision,
    i: usize,
    ask: &Ask<'_>,
    usable: &[Usable],
) -> Result<Vec<Found>, String> {
    let first = candidate(decision, i, ask, usable)?;
    let Some(named) = ask.stacks.get(first.stack) else { return Ok(vec![first]) };
    // Stacks of one name, such as SCTP over UDP and over IP, are not distinguished by policies.
    let alike = |s: &super::Named| s.transport == named.transport && s.features.secure == named.features.secure;
    let others = ask.stacks.iter().enumerate().skip(first.stack + 1).filter(|(_, s)| alike(s));
    let others: Vec<Found> = others
        .filter(|(_, s)| is_as_required(decision, i, s).is_ok())
        .map(|(stack, _)| Found { stack, ..first.clone() })
        .collect();
    Ok([vec![first], others].concat())
}

fn candidate(decision: &Decision, i: usize, ask: &Ask<'_>, usable: &[Usable]) -> Result<Found, String> {
    let value = |key: &str| decision.get(i, key).map(|p| &*p.value);
    let Some(NeatValue::Text(transport)) = value("transport") else { return Err("it names no transport".into()) };
    let security = match decision.get(i, "security") {
        // An unknown requirement is met by no candidate.
        Some(p)
            if p.precedence >= NeatProperty::IMMUTABLE && *p.value != NeatValue::Any && truth(&p.value).is_none() =>
        {
            return Err(format!("security = {} is neither true nor false", p.value));
        }
        Some(p) => truth(&p.value),
        None => None,
    };
    let is_meant = |s: &super::Named| s.is_meant(transport, security);
    let Some(stack) = ask.stacks.iter().position(is_meant) else {
        let how = if security == Some(false) { " in the clear" } else { "" };
        return Err(format!("{transport}{how} cannot serve these needs, or is not there"));
    };
    is_as_required(decision, i, &ask.stacks[stack])?;
    if let (Some(NeatValue::Text(wanted)), asked) = (value("remote_ip"), ask.addr)
        && (asked.is_none() || wanted.parse().ok() != asked)
    {
        return Err(format!("it is about {wanted}"));
    }
    if let Some(NeatValue::Number(port)) = value("port")
        && *port != f64::from(ask.port)
    {
        return Err(format!("it is about port {port}"));
    }
    let place = match (value("interface"), value("local_ip")) {
        (None | Some(NeatValue::Any), _) => None,
        (Some(NeatValue::Text(name)), local) => {
            let Some(at) = usable.iter().position(|u| u.name == *name) else {
                return Err(format!("{name} does not lead there"));
            };
            let local = match local {
                // It is reached from an address that no row has: a link-local one.
                _ if usable[at].addrs.is_empty() => None,
                Some(NeatValue::Text(text)) => {
                    let has = |a: &IpAddr| usable[at].addrs.contains(a);
                    Some(
                        text.parse()
                            .ok()
                            .filter(has)
                            .ok_or_else(|| format!("{name} does not lead there from {text}"))?,
                    )
                }
                _ => None,
            };
            Some((at, local))
        }
        (Some(other), _) => return Err(format!("{other} is no interface")),
    };
    let domain = match value("pvd") {
        Some(NeatValue::Text(domain)) => Some(domain.as_str()),
        _ => None,
    };
    let wish = wish(ask, place.map(|(at, _)| usable[at].name.as_str()), domain)?;
    let over_tcp = ask.stacks[stack].transport == "TCP";
    let (mut set, mut vain) = (Vec::new(), Vec::new());
    let score = decision.score(i);
    let (evaluated, mut others) = score.map_or((0.0, 0.0), |s| (s.evaluated, s.others));
    for p in decision.properties(i) {
        if option::is_option(&p.key) && !is_own_dscp(p, ask) {
            match option::option_of(&p.key, &p.value, over_tcp) {
                Ok(option) => set.push(option),
                Err(why) => vain.push(format!("{} = {} has no effect: {why}", p.key, p.value)),
            }
        }
        // A route that the system knows is no preference of a program or policy.
        if &*p.key == "default_route" && !p.evaluated {
            others -= p.score;
        }
    }
    Ok(Found { stack, place, evaluated, others, options: set, vain, wish })
}

/// How much the program prefers the provisioning domain of a candidate, 0 without a preference;
/// otherwise the reason why the program excludes it (RFC 9622 section 6.2.12). Addresses that no
/// network has named a domain for are of the implicit domain of their interface (RFC 7556 section
/// 2), which has the interface's name.
fn wish(ask: &Ask<'_>, interface: Option<&str>, domain: Option<&str>) -> Result<i32, String> {
    use neater_property::Preference as P;
    let mut wish = 0;
    for (preference, name) in &ask.needs.pvd {
        let fits = match (interface, domain) {
            // Without a row, the domain is unknown.
            (None, _) => false,
            (Some(_), Some(domain)) => same_name(domain, name),
            (Some(interface), None) => interface == name,
        };
        match (preference, fits) {
            (P::Require, false) => return Err(format!("it is not of the provisioning domain {name}")),
            (P::Prohibit, true) => return Err(format!("it is of the provisioning domain {name}")),
            (P::Prefer, true) => wish += 1,
            (P::Avoid, true) => wish -= 1,
            _ => {}
        }
    }
    Ok(wish)
}

/// Whether this is the codepoint that the needs ask for anyway.
fn is_own_dscp(p: &crate::manager::Decided, ask: &Ask<'_>) -> bool {
    let own = option::dscp_of(ask.needs.connection.capacity_profile);
    &*p.key == "dscp" && *p.value == NeatValue::Number(own.into())
}

/// A policy may require and prohibit, by an immutable property, what RFC 9622 lets programs require
/// and prohibit.
fn is_as_required(decision: &Decision, i: usize, stack: &super::Named) -> Result<(), String> {
    let f = &stack.features;
    for p in decision.properties(i).filter(|p| p.precedence >= NeatProperty::IMMUTABLE) {
        let Some(property) = SelectionProperty::ALL.into_iter().find(|s| s.name().eq_ignore_ascii_case(&p.key)) else {
            continue;
        };
        let (has, is_fixed) = (f.provides | f.configurable, f.provides - f.configurable);
        match truth(&p.value) {
            Some(true) if !has.contains(property) => {
                return Err(format!("a policy requires {}, which {} does not have", property.name(), f.name));
            }
            Some(false) if is_fixed.contains(property) => {
                return Err(format!("a policy prohibits {}, which {} always has", property.name(), f.name));
            }
            None if *p.value != NeatValue::Any => {
                return Err(format!("{} = {} is neither true nor false", property.name(), p.value));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What the candidates of a decision come to.
pub(super) fn read(decision: &Decision, ask: &Ask<'_>, usable: &[Usable]) -> Read {
    let mut found: Vec<Found> = Vec::new();
    for i in 0..decision.len() {
        for candidate in candidates(decision, i, ask, usable).unwrap_or_default() {
            let same = |f: &Found| (f.stack, f.place) == (candidate.stack, candidate.place);
            match found.iter_mut().find(|f| same(f)) {
                // Rows that refine the same path: the best one counts.
                Some(held) if candidate.better(held).is_lt() => *held = candidate,
                Some(_) => {}
                None => found.push(candidate),
            }
        }
    }
    let (bare, bound): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|f| f.place.is_none());
    let bound = merge_addresses(bound, usable);
    if bound.is_empty() {
        if bare.is_empty() {
            return Read::Nothing;
        }
        let advice = Advice::new(lay_out(bare, usable, ask), ask);
        return if usable.is_empty() { Read::Advice(advice) } else { Read::WithoutRows(advice) };
    }
    // What must be of one domain is bound to it: by itself the system might choose another.
    let same_everywhere = if ask.required_domains().next().is_some() { None } else { everywhere(&bound, usable.len()) };
    let chosen = if let Some(anywhere) = same_everywhere { anywhere } else { bound };
    Read::Advice(Advice::new(lay_out(chosen, usable, ask), ask))
}

/// Leaves the address to the system where the addresses of an interface do not differ in their
/// properties.
fn merge_addresses(bound: Vec<Found>, usable: &[Usable]) -> Vec<Found> {
    let mut merged: Vec<Found> = Vec::new();
    for found in &bound {
        let Some((at, local)) = found.place else { continue };
        let of_these = |f: &&Found| f.stack == found.stack && f.place.is_some_and(|(i, _)| i == at);
        let family: Vec<&Found> = bound.iter().filter(of_these).collect();
        let whole = family.iter().find(|f| f.place == Some((at, None)));
        // The candidate of the interface covers each address without a better candidate of its own.
        let is_covered = local.is_some() && whole.is_some_and(|w| w.better(found).is_le());
        let all_alike = whole.is_none()
            && family.len() == usable.get(at).map_or(0, |u| u.addrs.len())
            && family.iter().all(|f| f.weighs_like(found));
        if is_covered {
            continue;
        }
        let place = Some((at, if all_alike { None } else { local }));
        if !merged.iter().any(|m| m.stack == found.stack && m.place == place) {
            merged.push(Found { place, ..found.clone() });
        }
    }
    merged
}

/// The candidates without their interfaces, if every interface has the same.
fn everywhere(bound: &[Found], interfaces: usize) -> Option<Vec<Found>> {
    let of = |at: usize| -> Vec<&Found> {
        let mut of: Vec<&Found> = bound.iter().filter(|f| f.place.is_some_and(|(i, _)| i == at)).collect();
        of.sort_by_key(|f| f.stack);
        of
    };
    let first = of(0);
    if first.is_empty() || first.iter().any(|f| f.place != Some((0, None))) {
        return None;
    }
    for at in 1..interfaces {
        let other = of(at);
        let alike = |(a, b): (&&Found, &&Found)| a.stack == b.stack && b.place == Some((at, None)) && a.weighs_like(b);
        if other.len() != first.len() || !first.iter().zip(&other).all(alike) {
            return None;
        }
    }
    Some(first.into_iter().map(|f| Found { place: None, ..f.clone() }).collect())
}

/// The candidates in rank order, those that stand together and go the same way as one path.
fn lay_out(mut found: Vec<Found>, usable: &[Usable], ask: &Ask<'_>) -> Vec<AdvisedPath> {
    // Of equals, the needs' own order decides: paths first, then stacks (RFC 9623 section 4.1).
    found.sort_by(|a, b| {
        let own = |f: &Found| {
            let (at, local) = f.place.unwrap_or_default();
            let addr = local.and_then(|l| usable.get(at)?.addrs.iter().position(|a| *a == l));
            (f.place.is_some(), at, addr, f.stack)
        };
        a.better(b).then_with(|| own(a).cmp(&own(b)))
    });
    let mut paths: Vec<AdvisedPath> = Vec::new();
    for f in found {
        let interface = f.place.and_then(|(at, _)| usable.get(at)).map(|u| u.index);
        let local = f.place.and_then(|(_, local)| local);
        let Some(stack) = ask.stacks.get(f.stack) else { continue };
        let pick = Pick { stack: stack.features.id, options: f.options };
        match paths.last_mut() {
            Some(last) if (last.interface, last.local) == (interface, local) => last.picks.push(pick),
            _ => paths.push(AdvisedPath { interface, local, picks: vec![pick] }),
        }
    }
    paths.truncate(MAX_PATHS);
    paths
}
