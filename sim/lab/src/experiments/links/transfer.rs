//! One flow over one or several links, from the connection call to the last byte, as the engine
//! opens it: the association begins on the first link, and the others are added as soon as it is up
//! (`docs/decisions/0038`).

use crate::experiments::multipath::world::{Carried, PORT, World, address, layer};
use bytes::Bytes;
use neater_base::Instant;
use neater_link::LinkConfig;
use neater_sctp::{
    AddressChange, AssociationConfig, AssociationId, AssociationStats, Config, Endpoint, Event, Extensions, LayerId,
    Multipath, PathStats, Route, SendOptions,
};
use neater_sctp_wire::StreamId;
use std::time::Duration;

/// What the application hands over at once.
const MESSAGE: usize = 16_384;
/// How often it looks whether there is room.
const TICK: Duration = Duration::from_millis(5);
/// A transfer that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// What was seen of a transfer. Times count from the connection call.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) completed: Option<Duration>,
    /// Bytes that had arrived in order by then.
    pub(super) course: Vec<(Duration, u64)>,
    /// Of each link, in the direction of the data.
    pub(super) carried: Vec<Carried>,
    pub(super) paths: Vec<PathStats>,
    pub(super) stats: AssociationStats,
}

impl Seen {
    /// Bytes that had arrived in order by then.
    pub(super) fn by(&self, time: Duration) -> u64 {
        let at = self.course.partition_point(|(t, _)| *t <= time);
        at.checked_sub(1).map_or(0, |i| self.course[i].1)
    }
}

/// An end as the engine makes it (`crates/engine/src/carrier/sctp/socket.rs`).
pub(super) fn end(accepts: bool, multipath: Option<Multipath>) -> Config {
    Config {
        layers: vec![layer(None)],
        port: PORT,
        accept: accepts,
        association: AssociationConfig {
            extensions: Extensions { dynamic_addresses: true, ..Extensions::default() },
            pair_addresses: false,
            reached_everywhere: accepts,
            search_idle: false,
            heartbeat_interval: Some(Duration::from_secs(15)),
            base_packet: 1252,
            multipath,
            ..AssociationConfig::default()
        },
        ..Config::default()
    }
}

/// Two hosts and an association between them that is being opened.
pub(super) struct Flow {
    pub(super) world: World,
    pub(super) begin: Instant,
    pub(super) ours: AssociationId,
    links: usize,
    added: bool,
    pub(super) sent: u64,
}

impl Flow {
    pub(super) fn open(links: &[LinkConfig], cross: &[f64], multipath: Option<Multipath>, seed: u64) -> Option<Self> {
        let ends = [end(false, multipath), end(true, multipath)];
        let mut world = World::new(ends, links, cross, seed);
        let route = Route { layer: LayerId(0), remote: address(1, 0) };
        let begin = world.now;
        let ours = world.ends[0].connect(world.now, PORT, &[route]).ok()?;
        Some(Self { world, begin, ours, links: links.len(), added: false, sent: 0 })
    }

    /// Runs until then. Links are added and the receiver reads as soon as the association is up.
    pub(super) fn run_to(&mut self, until: Instant) {
        let w = &mut self.world;
        while w.now < until && !self.added {
            let next = (w.now + Duration::from_millis(1)).min(until);
            w.run_to(next);
            if w.reader.is_none() {
                w.reader = w.events[1].iter().find(|(_, _, e)| *e == Event::Accepted).map(|(_, id, _)| *id);
            }
            if w.events[0].iter().any(|(_, _, e)| matches!(e, Event::Connected)) {
                self.added = true;
                for _ in 1..self.links {
                    let added = w.ends[0].add_layer(layer(None));
                    let asked = w.ends[0].change_addresses(self.ours, &[AddressChange::Add(added)]);
                    debug_assert!(asked.is_ok(), "{asked:?}");
                }
            }
        }
        w.run_to(until);
        w.events[0].clear();
    }

    /// The application hands over what there is room for, `most` bytes at most in all.
    pub(super) fn fill(&mut self, payload: &Bytes, most: u64) {
        fill(&mut self.world.ends[0], self.ours, payload, &mut self.sent, most);
    }
}

/// Hands over what there is room for, until `most` bytes have been in all.
pub(super) fn fill(end: &mut Endpoint, id: AssociationId, payload: &Bytes, sent: &mut u64, most: u64) {
    loop {
        let left = most.saturating_sub(*sent).min(payload.len() as u64) as usize;
        if left == 0 || end.send(id, StreamId(0), payload.slice(..left), SendOptions::default()).is_err() {
            return;
        }
        *sent += left as u64;
    }
}

/// Transfers so many bytes.
pub(super) fn transfer(links: &[LinkConfig], multipath: Option<Multipath>, bytes: u64, seed: u64) -> Seen {
    let mut seen = Seen::default();
    let Some(mut flow) = Flow::open(links, &[], multipath, seed) else { return seen };
    let payload = Bytes::from(vec![7; MESSAGE]);
    while flow.world.read < bytes && flow.world.now - flow.begin < LIMIT {
        flow.fill(&payload, bytes);
        let next = flow.world.now + TICK;
        flow.run_to(next);
    }
    let w = &mut flow.world;
    let begin = flow.begin;
    seen.course = w.course.iter().map(|(at, read)| (*at - begin, *read)).collect();
    seen.completed = seen.course.last().filter(|(_, read)| *read == bytes).map(|(at, _)| *at);
    seen.carried.clone_from(&w.carried[0]);
    seen.paths = w.ends[0].paths(flow.ours);
    seen.stats = w.ends[0].association_stats(flow.ours).unwrap_or_default();
    seen
}
