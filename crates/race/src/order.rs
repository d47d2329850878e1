//! The order in which one path's candidates are started.
//!
//! *Responsible for* flattening the branches below a path, protocol and endpoint (RFC 9623 section
//! 4.1.2), to one list. *Not responsible for* time: whether a candidate of the list is started, and
//! when, is the race's decision.
//!
//! *Invariants*: no candidate appears twice; addresses without a route stand last; services leave
//! room for what needs none; with a First Address Family Count of 1, the first two attempts differ
//! in the stack's group and in the address family if the path has such candidates.

use crate::resolution::Resolution;
use crate::sort::first_family;
use crate::{Address, Config, Family, StackOption, sort_destinations};
use std::net::{IpAddr, SocketAddr};

/// The part of all candidates that services leave to the name's own addresses.
const KEPT_PART: usize = 4;

/// A place in the list. `path` and `stack` are ranks: lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) path: u16,
    pub(crate) stack: u16,
    pub(crate) addr: SocketAddr,
}

/// A stack within a block, with what the order needs of it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    stack: u16,
    group: u8,
    port: u16,
}

/// Stacks and addresses that are tried with each other: those of one service, or those without a
/// service.
struct Block {
    lanes: Vec<Lane>,
    /// Sorted by RFC 6724.
    addresses: Vec<Address>,
}

/// One attempt: a lane and an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    stack: u16,
    group: u8,
    addr: SocketAddr,
}

/// The candidates of the path with rank `path`, best first, at most [`Config::max_candidates`].
///
/// Services stand in the order of their priority, before addresses without a service. Within each,
/// attempts are interleaved [diagonally](interleave). Addresses without a route follow after all
/// the others.
pub(crate) fn plan<F: Clone>(
    config: &Config,
    path: u16,
    resolution: &Resolution<F>,
    stacks: &[StackOption],
) -> Vec<Planned> {
    let blocks = blocks(resolution, stacks);
    let mut attempts = tier(config, &blocks, |a| a.source.is_some());
    for attempt in tier(config, &blocks, |a| a.source.is_none()) {
        push_new(&mut attempts, attempt, config.max_candidates);
    }
    attempts.into_iter().map(|a| Planned { path, stack: a.stack, addr: a.addr }).collect()
}

/// How many candidates each path may have, when the paths have these numbers of them and `max` is
/// the most altogether.
///
/// Each has its equal share for certain, so that a path with many addresses does not crowd out the
/// next one; what a path leaves of its share goes to the others, better ones first.
pub(crate) fn shares(max: usize, wanted: &[usize]) -> Vec<usize> {
    let share = max / wanted.len().max(1);
    let mut granted: Vec<usize> = wanted.iter().map(|w| (*w).min(share)).collect();
    let mut left = max - granted.iter().sum::<usize>();
    for (granted, wanted) in granted.iter_mut().zip(wanted) {
        let more = (wanted - *granted).min(left);
        *granted += more;
        left -= more;
    }
    granted
}

fn blocks<F: Clone>(resolution: &Resolution<F>, stacks: &[StackOption]) -> Vec<Block> {
    let lane = |(rank, option): (usize, &StackOption), service_port: Option<u16>| Lane {
        stack: rank as u16,
        group: option.group,
        port: service_port.or(option.port).unwrap_or(resolution.spec.port),
    };
    let mut out = Vec::with_capacity(resolution.services().len() + 1);
    for service in resolution.services() {
        let listed = stacks.iter().enumerate().filter(|(_, option)| service.stacks.contains(&option.id));
        let lanes = listed.map(|entry| lane(entry, service.port)).collect();
        let mut addresses = Vec::new();
        resolution.service_addresses(service, &mut addresses);
        sort_destinations(&mut addresses);
        out.push(Block { lanes, addresses });
    }
    let free = stacks.iter().enumerate().filter(|(_, option)| !option.needs_service);
    let lanes = free.map(|entry| lane(entry, None)).collect();
    let mut addresses = Vec::new();
    resolution.own_addresses(Family::V6, &mut addresses);
    resolution.own_addresses(Family::V4, &mut addresses);
    sort_destinations(&mut addresses);
    out.push(Block { lanes, addresses });
    out
}

/// The attempts of all blocks, as far as their addresses are `wanted`.
fn tier(config: &Config, blocks: &[Block], wanted: impl Fn(&Address) -> bool) -> Vec<Attempt> {
    let mut out: Vec<Attempt> = Vec::new();
    // However many addresses services have, what needs none of them is tried as well.
    let kept = blocks.last().map_or(0, |b| b.lanes.len() * b.addresses.iter().filter(|a| wanted(a)).count());
    let kept = kept.min(config.max_candidates / KEPT_PART);
    for (i, block) in blocks.iter().enumerate() {
        let most = if i + 1 == blocks.len() { config.max_candidates } else { config.max_candidates - kept };
        let addresses: Vec<Address> = block.addresses.iter().filter(|a| wanted(a)).copied().collect();
        // The count is about the beginning of the whole list.
        let count = if out.is_empty() { config.first_family_count } else { 1 };
        for attempt in interleave(&block.lanes, &addresses, config.preferred_family, count) {
            if !push_new(&mut out, attempt, most) {
                break;
            }
        }
    }
    vary_second(&mut out, config.first_family_count);
    out
}

/// Appends what is not there yet; false when there is no room for more.
fn push_new(out: &mut Vec<Attempt>, attempt: Attempt, max: usize) -> bool {
    if out.len() >= max {
        return false;
    }
    if !out.iter().any(|a| (a.stack, a.addr) == (attempt.stack, attempt.addr)) {
        out.push(attempt);
    }
    true
}

/// One lane's addresses of one family, and how far they have been used.
struct Cell {
    lane: Lane,
    family: Family,
    used: usize,
    /// How many of the used ones count as a turn: the surplus of a First Address Family Count above
    /// 1 does not.
    turns: usize,
}

/// All attempts of a block.
///
/// Each round gives every pair of stack and family one turn. The next turn goes to a pair that
/// differs from the one before in the stack's group first and in the family second, and among those
/// to the best stack. So (QUIC, TCP) × (IPv6, IPv4) becomes QUIC/v6, TCP/v4, QUIC/v4, TCP/v6: a
/// dead family and a blocked protocol are both left after one delay. With one stack this is RFC
/// 8305 section 4's interleaving; with one family, groups alternate.
fn interleave(lanes: &[Lane], sorted: &[Address], preferred: Family, first_family_count: usize) -> Vec<Attempt> {
    let Some(first) = first_family(sorted, preferred) else { return Vec::new() };
    let of =
        |family: Family| -> Vec<IpAddr> { sorted.iter().filter(|a| a.family() == family).map(|a| a.addr).collect() };
    let (first_addrs, second_addrs) = (of(first), of(first.other()));
    let addrs = |family: Family| if family == first { &first_addrs } else { &second_addrs };
    let cell = |lane: &Lane, family| Cell { lane: *lane, family, used: 0, turns: 0 };
    let mut cells: Vec<Cell> = lanes.iter().flat_map(|lane| [cell(lane, first), cell(lane, first.other())]).collect();

    let mut out: Vec<Attempt> = Vec::with_capacity(lanes.len() * sorted.len());
    let (mut round, mut last_group, mut last_family) = (0, None, first.other());
    loop {
        let ahead =
            out.len() < first_family_count && cells.iter().any(|c| c.family == first && c.used < addrs(first).len());
        let open = cells.iter_mut().filter(|c| c.used < addrs(c.family).len() && (!ahead || c.family == first));
        let open: Vec<&mut Cell> = open.collect();
        if let Some(turns) = open.iter().map(|c| c.turns).min().filter(|turns| *turns > round) {
            // A new round begins like the first one, with the first family.
            round = turns;
            last_family = first.other();
        }
        let key = |c: &&mut Cell| (c.turns, last_group == Some(c.lane.group), c.family == last_family, c.lane.stack);
        // `min_by_key` returns the first of equals; cells stand in rank order.
        let Some(cell) = open.into_iter().min_by_key(key) else { return out };
        let Some(addr) = addrs(cell.family).get(cell.used) else { return out };
        cell.used += 1;
        cell.turns += usize::from(out.len() + 1 >= first_family_count);
        (last_group, last_family) = (Some(cell.lane.group), cell.family);
        let addr = SocketAddr::new(*addr, cell.lane.port);
        out.push(Attempt { stack: cell.lane.stack, group: cell.lane.group, addr });
    }
}

/// Moves up to second place the first attempt that differs most from the one in first place.
///
/// [`interleave`] sees to that within a block. A service that lists one stack alone, or has
/// addresses of one family alone, would otherwise keep the race on what may be blocked for as long
/// as it has addresses.
fn vary_second(list: &mut [Attempt], first_family_count: usize) {
    let Some((first, rest)) = list.split_first_mut() else { return };
    let differs = |a: &Attempt| {
        let other_family = first_family_count == 1 && a.addr.is_ipv4() != first.addr.is_ipv4();
        (a.group != first.group, other_family)
    };
    let Some(best) = rest.iter().map(differs).max() else { return };
    if let Some(found) = rest.iter().position(|a| differs(a) == best) {
        rest[..=found].rotate_right(1);
    }
}

#[cfg(test)]
mod tests;
