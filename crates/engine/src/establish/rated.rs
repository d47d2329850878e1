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
use neater_race::{Outcome, OutcomeCache, RateKey, RatedStack, StackId, is_slower};

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
    // Policies and endpoints that name a protocol have an order of their own.
    let named = conn.advice().is_some() || conn.remotes.iter().any(|r| r.protocol.is_some());
    let unranked = unranked || named;
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
    let Some(first) = order.first().copied() else { return (outcome, None) };
    let rated: Vec<_> = conn.request.stacks.iter().map(rated).collect();
    // The stacks among which rates have decided which goes first.
    let count = rated.iter().take_while(|s| s.is_as_good_as(&first)).count();
    let changed = order.get(..count) != rated.get(..count);
    let slower = |stack| match (rate(stack), rate(first.stack)) {
        (Some(own), Some(best)) => is_slower(own.bytes_per_second, best.bytes_per_second),
        _ => false,
    };
    let fails = |stack: StackId| {
        let key = conn.cache_key();
        key.is_some_and(|key| outcomes.marks(now, &key).any(|mark| mark.penalty.stack == stack))
    };
    // What has won a race, and is slower than what goes first, is not tried alone, unless what goes
    // first has failed lately.
    let gives_way = |o: &Outcome| {
        let as_good = rated.iter().take(count).any(|s| s.stack == o.stack);
        o.stack != first.stack && as_good && (tries_other || slower(o.stack)) && !fails(first.stack)
    };
    let had = outcome.is_some();
    let outcome = outcome.filter(|o| !gives_way(o));
    let known = |s: &RatedStack| Some((Stack::from_number(s.stack.0)?, rate(s.stack)?.bytes_per_second));
    let rates: Vec<_> = order.iter().take(count).filter_map(known).collect();
    let order: Vec<_> = order.iter().filter_map(|s| Stack::from_number(s.stack.0)).collect();
    let step = match order.first() {
        Some(first) if changed || had && outcome.is_none() => Some(Step::ByRate { first: *first, rates, tries_other }),
        _ => None,
    };
    if order != conn.request.stacks {
        conn.cold().order = Some(order.into());
    }
    (outcome, step)
}
