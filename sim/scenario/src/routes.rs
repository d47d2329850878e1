//! Routes: shortest paths over all equal ones, and the explicit rules above them.
//!
//! A destination is a link (its subnet), because a host with several interfaces has an address on each: packets to an
//! address arrive over the link that it belongs to. Hosts never forward. The length of a path is the sum of the metrics of
//! its links; the subnet's own link counts too.

use crate::model::{LinkIndex, NodeIndex, NodeKind, Scenario};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A distance that nothing has.
const UNREACHABLE: u32 = u32::MAX;

/// The routes of a scenario.
#[derive(Clone, Debug)]
pub struct Routes {
    nodes: usize,
    /// Distance from each node to each link, by link and then node.
    distances: Vec<u32>,
    /// Links and neighbours of each node, in the order of links.
    neighbours: Vec<Vec<(LinkIndex, NodeIndex)>>,
    rules: BTreeMap<(NodeIndex, LinkIndex), Vec<LinkIndex>>,
    forwards: Vec<bool>,
    metrics: Vec<u32>,
}

impl Routes {
    /// Computes the routes between all nodes and all links.
    #[must_use]
    pub fn compute(s: &Scenario) -> Self {
        let nodes = s.nodes.len();
        let mut neighbours = vec![Vec::new(); nodes];
        for (i, link) in s.links.iter().enumerate() {
            for end in 0..2 {
                neighbours[link.ends[end].node].push((i, link.ends[1 - end].node));
            }
        }
        let mut rules = BTreeMap::new();
        for rule in &s.routes {
            for (link, _) in s.links_of(rule.to).filter(|(l, _)| rule.on.is_none_or(|on| on == *l)) {
                rules.insert((rule.node, link), rule.via.clone());
            }
        }
        let mut routes = Self {
            nodes,
            distances: vec![UNREACHABLE; nodes * s.links.len()],
            neighbours,
            rules,
            forwards: s.nodes.iter().map(|n| n.kind == NodeKind::Router).collect(),
            metrics: s.links.iter().map(|l| l.metric).collect(),
        };
        for (i, link) in s.links.iter().enumerate() {
            routes.spread(i, [link.ends[0].node, link.ends[1].node]);
        }
        routes
    }

    /// Dijkstra from the two ends of a link outwards; only routers pass on.
    fn spread(&mut self, link: LinkIndex, ends: [NodeIndex; 2]) {
        let distances = &mut self.distances[link * self.nodes..(link + 1) * self.nodes];
        let mut heap = BinaryHeap::new();
        for end in ends {
            distances[end] = self.metrics[link];
            heap.push(Reverse((self.metrics[link], end)));
        }
        while let Some(Reverse((distance, node))) = heap.pop() {
            if distance > distances[node] || !self.forwards[node] {
                continue;
            }
            for &(via, next) in &self.neighbours[node] {
                let longer = distance.saturating_add(self.metrics[via]);
                if longer < distances[next] {
                    distances[next] = longer;
                    heap.push(Reverse((longer, next)));
                }
            }
        }
    }

    /// How far a link is from a node; `None` if it cannot be reached.
    #[must_use]
    pub fn distance(&self, node: NodeIndex, to: LinkIndex) -> Option<u32> {
        Some(self.distances[to * self.nodes + node]).filter(|d| *d != UNREACHABLE)
    }

    /// How far a link is from a node if the way begins with the link `via`; `None` if it cannot be reached so.
    #[must_use]
    pub fn distance_via(&self, node: NodeIndex, via: LinkIndex, to: LinkIndex) -> Option<u32> {
        if via == to {
            return self.neighbours[node].iter().any(|(l, _)| *l == via).then(|| self.metrics[to]);
        }
        let (_, next) = *self.neighbours[node].iter().find(|(l, _)| *l == via)?;
        if !self.forwards[next] {
            return None;
        }
        // A neighbour whose own best way leads back here is no way.
        self.distance(next, to)?.checked_add(self.metrics[via])
    }

    /// The links by which a node sends packets for an address on the link `to`: the explicit rule's, or those of all
    /// shortest paths, in the order of links. Empty if there is no way.
    #[must_use]
    pub fn next_links(&self, node: NodeIndex, to: LinkIndex) -> Vec<LinkIndex> {
        if self.neighbours[node].iter().any(|(l, _)| *l == to) {
            return vec![to];
        }
        if let Some(via) = self.rules.get(&(node, to)) {
            return via.clone();
        }
        let Some(best) = self.distance(node, to) else { return Vec::new() };
        let on_the_way = |&&(via, next): &&(LinkIndex, NodeIndex)| {
            self.forwards[next] && self.distance(next, to).is_some_and(|d| d.saturating_add(self.metrics[via]) == best)
        };
        self.neighbours[node].iter().filter(on_the_way).map(|(l, _)| *l).collect()
    }

    /// The links of one way from a node to an address on the link `to`, always by the first of equal ones. `None` if there
    /// is no way, or explicit rules lead in a circle.
    #[must_use]
    pub fn path(&self, s: &Scenario, from: NodeIndex, to: LinkIndex) -> Option<Vec<LinkIndex>> {
        let (mut node, mut path) = (from, Vec::new());
        loop {
            let link = *self.next_links(node, to).first()?;
            path.push(link);
            if link == to {
                return Some(path);
            }
            let ends = &s.links[link].ends;
            node = if ends[0].node == node { ends[1].node } else { ends[0].node };
            if path.len() > self.nodes {
                return None;
            }
        }
    }
}
