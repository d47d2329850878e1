//! The order that rates of earlier transfers make.
//!
//! *Responsible for* which stacks of a request are equally good, and for whose rates count.
//! *Not responsible for* the rates and the order (`neater_race::Rates`).
//!
//! *Invariants*: what the program states about properties, and security, go before rates; of a
//! connection that shares no cached state, or that asks for low latency, no rate is used.

use crate::Stack;
use crate::conn::Conn;
use crate::endpoint::RemoteEndpoint;
use crate::event::Step;
use crate::request::Compiled;
use core::hash::BuildHasher;
use neater_base::{Instant, Rng};
use neater_policy::weight;
use neater_race::{Outcome, OutcomeCache, RateKey, RatedStack, StackId};

/// The host that rates are remembered of, if they are for this request.
pub(crate) fn host(request: &Compiled, remotes: &[RemoteEndpoint]) -> Option<u64> {
    // Of what is slowed down by the program nothing is learnt.
    let fast = request.rates.1.is_none();
    let counts = fast && request.isolation == 0 && request.properties.measured_rates();
    let [remote] = remotes else { return None };
    let hasher = foldhash::fast::FixedState::with_seed(5);
    let host = match (&remote.host, remote.addr) {
        (Some(name), _) => hasher.hash_one(name.to_ascii_lowercase()),
        (None, addr) => hasher.hash_one(addr?),
    };
    counts.then_some(host)
}

/// Puts the stacks of a connection in the order that rates make, and takes away the cached outcome
/// if another stack goes first. `rng` decides whether another than the fastest is tried.
pub(crate) fn apply(
    conn: &mut Conn,
    outcome: Option<Outcome>,
    outcomes: &OutcomeCache,
    now: Instant,
    rng: Option<&mut Rng>,
) -> (Option<Outcome>, Option<Step>) {
    let rates = outcomes.rates();
    let unranked = rates.is_empty() || conn.request.policy.capacity_profile.is_low_latency();
    // A network that is not noted means that the connection is bound to a part of the host.
    let (Some(network), false) = (conn.network, unranked) else { return (outcome, None) };
    let Some(host) = host(&conn.request, &conn.remotes) else { return (outcome, None) };
    let network = network.get();
    let class = |stack: Stack| {
        let ranked = conn.request.policy.ranked.iter().find(|r| r.stack == stack as u16);
        let points = ranked.into_iter().flat_map(|r| &r.reasons).map(|reason| reason.verdict.points());
        // Lesser reasons are defaults, and what is measured is better than those.
        points.filter(|points| points.abs() >= weight::AVOIDED).sum()
    };
    let rated = |s: &Stack| RatedStack { stack: StackId(*s as u16), class: class(*s), secure: s.is_secure() };
    let mut order: Vec<_> = conn.request.stacks.iter().map(rated).collect();
    let tries_other = rates.order(now, network, host, &mut order, rng);
    let rate = |stack| rates.get(now, &RateKey { network, host, stack });
    let known: Vec<_> =
        order.iter().filter_map(|s| Some((Stack::from_number(s.stack.0)?, rate(s.stack)?.bytes_per_second))).collect();
    let order: Vec<_> = order.iter().filter_map(|s| Stack::from_number(s.stack.0)).collect();
    let Some(first) = order.first().copied() else { return (outcome, None) };
    let is_other = order != conn.request.stacks;
    // What won a race, and is slower than what goes first, is not tried alone.
    let counts = |o: &Outcome| {
        let measured = known.iter().any(|(stack, _)| *stack == first);
        let as_good = Stack::from_number(o.stack.0).is_some_and(|s| class(s) == class(first));
        o.stack.0 == first as u16 || !as_good || !(is_other || measured && rate(o.stack).is_some())
    };
    let had = outcome.is_some();
    let outcome = outcome.filter(counts);
    let changes = is_other || had && outcome.is_none();
    if is_other {
        conn.ext().order = Some(order.into());
    }
    (outcome, changes.then_some(Step::ByRate { first, rates: known, tries_other }))
}
