//! The usual topologies, as code; `[topology]` in a file makes the same ones.
//!
//! Every function returns a [`Builder`] to which traffic, probes and more links can be added.

use crate::builder::{Builder, Pair};
use crate::model::NodeIndex;

/// Hosts `l1` ... `lN` and `r1` ... `rM` on both sides of one link.
///
/// ```text
///   l1 ──l1──┐                          ┌──r1── r1
///            left ════ bottleneck ════ right
///   lN ──lN──┘                          └──rM── rM
/// ```
#[must_use]
pub fn dumbbell(left: u32, right: u32, access: &Pair, bottleneck: &Pair) -> Builder {
    let mut b = Builder::new("dumbbell");
    let (l, r) = (b.router("left"), b.router("right"));
    b.link("bottleneck", l, r, bottleneck.clone());
    edges(&mut b, "l", left, l, access);
    edges(&mut b, "r", right, r, access);
    b
}

/// Hosts `{prefix}1` ... at a router, each by a link of its name.
fn edges(b: &mut Builder, prefix: &str, count: u32, router: NodeIndex, access: &Pair) {
    for i in 1..=count {
        let name = format!("{prefix}{i}");
        let host = b.host(name.clone());
        b.link(name, host, router, access.clone());
    }
}

/// Two dumbbells that share nothing but the dual-homed hosts `s` and `r` (the second founding document's topology 2,
/// section 3.4): `edges` single-homed hosts at each router make cross traffic.
///
/// ```text
///        ┌──s1── r1 ══ bottleneck1 ══ r2 ──d1──┐
///     s ─┤                                     ├─ r
///        └──s2── r3 ══ bottleneck2 ══ r4 ──d2──┘      and hosts r1e1 ... at each router
/// ```
#[must_use]
pub fn dual_dumbbell(edges_each: u32, access: &Pair, bottlenecks: &[Pair; 2]) -> Builder {
    let mut b = Builder::new("dual-dumbbell");
    let (s, r) = (b.host("s"), b.host("r"));
    for (i, bottleneck) in bottlenecks.iter().enumerate() {
        let (near, far) = (b.router(format!("r{}", 2 * i + 1)), b.router(format!("r{}", 2 * i + 2)));
        b.link(format!("bottleneck{}", i + 1), near, far, bottleneck.clone());
        b.link(format!("s{}", i + 1), s, near, access.clone());
        b.link(format!("d{}", i + 1), r, far, access.clone());
        edges(&mut b, &format!("r{}e", 2 * i + 1), edges_each, near, access);
        edges(&mut b, &format!("r{}e", 2 * i + 2), edges_each, far, access);
    }
    b
}

/// Disjoint paths between the multihomed hosts `a` and `b`, one for each pair of directions: `a ─ x1 ═ path1 ═ y1 ─ b`.
#[must_use]
pub fn disjoint_paths(access: &Pair, paths: &[Pair]) -> Builder {
    let mut b = Builder::new("paths");
    let (from, to) = (b.host("a"), b.host("b"));
    for (i, path) in paths.iter().enumerate() {
        let n = i + 1;
        let (x, y) = (b.router(format!("x{n}")), b.router(format!("y{n}")));
        b.link(format!("path{n}"), x, y, path.clone());
        b.link(format!("a{n}"), from, x, access.clone());
        b.link(format!("b{n}"), to, y, access.clone());
    }
    b
}

/// A tree of access networks: the host `server` at the router `root`, below it one level of routers for each number but
/// the last (`fan_out[0]` below the root, `fan_out[1]` below each of those, ...), and hosts `h1` ... at the leaves. Level n
/// has links like `levels[n]`; their "forward" is upwards.
#[must_use]
pub fn access_tree(server: &Pair, fan_out: &[u32], levels: &[Pair]) -> Builder {
    let mut b = Builder::new("access-tree");
    let (host, root) = (b.host("server"), b.router("root"));
    b.link("server", host, root, server.clone());
    let mut parents = vec![root];
    for (level, (count, pair)) in fan_out.iter().zip(levels).enumerate() {
        let last = level + 1 == fan_out.len();
        let mut children = Vec::new();
        for parent in &parents {
            for _ in 0..*count {
                let name = if last {
                    format!("h{}", children.len() + 1)
                } else {
                    format!("n{}-{}", level + 1, children.len() + 1)
                };
                let child = if last { b.host(name.clone()) } else { b.router(name.clone()) };
                b.link(name, child, *parent, pair.clone());
                children.push(child);
            }
        }
        parents = children;
    }
    b
}

/// What a fat tree is like.
#[derive(Clone, Debug, PartialEq)]
pub struct FatTree {
    /// Ports of a switch: even, 2 to 24.
    pub k: u32,
    /// Pods: `k` in the full tree, fewer in a part of it.
    pub pods: u32,
    /// Hosts at each edge switch: `k / 2` in the full tree.
    pub hosts: u32,
    /// Links between hosts and edge switches.
    pub access: Pair,
    /// Links between edge and aggregation switches.
    pub edge: Pair,
    /// Links between aggregation and core switches.
    pub core: Pair,
}

/// A fat tree of switches with `k` ports (Al-Fares, Loukissas and Vahdat 2008): `(k/2)²` core switches `c1` ..., pods of
/// `k/2` aggregation switches `a1-1` ... and `k/2` edge switches `e1-1` ..., hosts `h1-1-1` ... (pod, edge, number). All
/// paths between two pods are equally long; which one a flow takes follows from a hash of its 5-tuple.
#[must_use]
pub fn fat_tree(t: &FatTree) -> Builder {
    let half = t.k / 2;
    let mut b = Builder::new("fat-tree");
    let cores: Vec<_> = (1..=half * half).map(|i| b.router(format!("c{i}"))).collect();
    for pod in 1..=t.pods {
        let aggregation: Vec<_> = (1..=half).map(|i| b.router(format!("a{pod}-{i}"))).collect();
        for (i, a) in aggregation.iter().enumerate() {
            for j in 0..half as usize {
                let core = i * half as usize + j;
                b.link(format!("a{pod}-{}-c{}", i + 1, core + 1), *a, cores[core], t.core.clone());
            }
        }
        for e in 1..=half {
            let edge = b.router(format!("e{pod}-{e}"));
            for (i, a) in aggregation.iter().enumerate() {
                b.link(format!("e{pod}-{e}-a{}", i + 1), edge, *a, t.edge.clone());
            }
            edges(&mut b, &format!("h{pod}-{e}-"), t.hosts, edge, &t.access);
        }
    }
    b
}
