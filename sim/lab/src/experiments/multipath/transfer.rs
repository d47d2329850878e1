//! A transfer over two paths, of which one may fail: what is transferred, and what is seen of it.

use super::world::{PORT, World, address, layer};
use bytes::Bytes;
use neater_link::LinkConfig;
use neater_sctp::{
    AssociationConfig, AssociationStats, Config, Event, LayerId, PathState, PathStats, Route, SendOptions,
};
use neater_sctp_wire::StreamId;
use std::time::Duration;

/// Payload of a message: one fills a packet of 1,500 bytes.
const MESSAGE: usize = 1444;
/// From the handshake to the first data: by then both paths are confirmed.
const SETTLING: Duration = Duration::from_secs(3);
/// The same where others send: by then they all do.
const WARMING: Duration = Duration::from_secs(10);
/// How often the sender's queue is filled up.
const TICK: Duration = Duration::from_millis(10);

/// What is to be run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The same at both ends.
    pub(super) association: AssociationConfig,
    /// One each way for each path.
    pub(super) links: Vec<LinkConfig>,
    /// What others send on each path, in both directions, in bytes per second; none do where there
    /// is nothing.
    pub(super) cross: Vec<f64>,
    /// How much is transferred; `None`: until `limit`.
    pub(super) bytes: Option<u64>,
    /// When the second path fails, and when it comes back, after the first data.
    pub(super) failure: Option<(Duration, Option<Duration>)>,
    /// The run ends as soon as the sender finds out that the second path has failed.
    pub(super) until_found: bool,
    pub(super) limit: Duration,
}

impl Plan {
    fn end(&self, end: usize) -> Config {
        Config {
            layers: (0..self.links.len()).map(|path| layer(Some(address(end, path).ip()))).collect(),
            port: PORT,
            accept: end == 1,
            tell_addresses: true,
            association: self.association.clone(),
            ..Config::default()
        }
    }
}

/// What was seen. Times count from the first data.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Bytes that the receiving application had after each tick.
    pub(super) received: Vec<(Duration, u64)>,
    /// When it had all.
    pub(super) completed: Option<Duration>,
    /// When the sender gave the second path up.
    pub(super) found: Option<Duration>,
    pub(super) stats: Option<AssociationStats>,
    pub(super) paths: Vec<PathStats>,
    /// How often a timeout of data on the second path was the second, third, fourth and fifth
    /// without an acknowledgment between them.
    pub(super) consecutive: [u64; 4],
}

impl Seen {
    /// Bytes that had arrived by then.
    pub(super) fn by(&self, time: Duration) -> u64 {
        let at = self.received.partition_point(|(t, _)| *t <= time);
        at.checked_sub(1).map_or(0, |i| self.received[i].1)
    }

    /// Bytes per second between two times.
    pub(super) fn goodput(&self, from: Duration, to: Duration) -> f64 {
        (self.by(to) - self.by(from)) as f64 / (to - from).as_secs_f64()
    }
}

/// Transfers what the plan says.
pub(super) fn run(plan: &Plan, seed: u64) -> Seen {
    let mut w = World::new([0, 1].map(|end| plan.end(end)), &plan.links, &plan.cross, seed);
    let routes: Vec<Route> =
        (0..plan.links.len()).map(|p| Route { layer: LayerId(p as u16), remote: address(1, p) }).collect();
    let mut seen = Seen::default();
    let Ok(ours) = w.ends[0].connect(w.now, PORT, &routes) else { return seen };
    let settled = w.now + if plan.cross.is_empty() { SETTLING } else { WARMING };
    w.run_to(settled);
    let Some(theirs) = w.events[1].iter().find(|(_, _, e)| *e == Event::Accepted).map(|(_, id, _)| *id) else {
        return seen;
    };
    w.events[0].clear();
    let begin = w.now;
    let payload = Bytes::from(vec![7; MESSAGE]);
    w.reader = Some(theirs);
    let (mut sent, mut failed, mut restored) = (0u64, false, false);
    let (mut timeouts, mut delivered, mut in_a_row) = (0, 0, 0u64);
    while seen.completed.is_none() && w.now - begin < plan.limit {
        let at = w.now - begin;
        if let Some((from, to)) = plan.failure {
            if at >= from && !core::mem::replace(&mut failed, true) {
                w.set_down(1, true);
            }
            if to.is_some_and(|to| at >= to) && !core::mem::replace(&mut restored, true) {
                w.set_down(1, false);
            }
        }
        loop {
            let left = plan.bytes.map_or(MESSAGE as u64, |b| b - sent).min(MESSAGE as u64) as usize;
            if left == 0 || w.ends[0].send(ours, StreamId(0), payload.slice(..left), SendOptions::default()).is_err() {
                break;
            }
            sent += left as u64;
        }
        let next = w.now + TICK;
        w.run_to(next);
        let at = w.now - begin;
        seen.received.push((at, w.read));
        if plan.bytes == Some(w.read) {
            seen.completed = Some(at);
        }
        if let Some(path) = (!plan.cross.is_empty()).then(|| w.ends[0].paths(ours)).and_then(|p| p.get(1).copied()) {
            if path.delivered > delivered {
                in_a_row = 0;
            }
            for _ in timeouts..path.timeouts {
                in_a_row += 1;
                if let Some(count) = (in_a_row as usize).checked_sub(2).and_then(|i| seen.consecutive.get_mut(i)) {
                    *count += 1;
                }
            }
            (timeouts, delivered) = (path.timeouts, path.delivered);
        }
        let gone = w.events[0]
            .drain(..)
            .find(|(_, _, event)| matches!(event, Event::Path { path, state: PathState::Inactive, .. } if path.0 == 1));
        if let Some((when, ..)) = gone {
            seen.found.get_or_insert(when - begin);
            if plan.until_found && failed {
                break;
            }
        }
    }
    seen.stats = w.ends[0].association_stats(ours);
    seen.paths = w.ends[0].paths(ours);
    seen
}

/// Runs the same for several seeds, on as many threads as there are to be.
pub(in crate::experiments) fn each<T: Send>(count: usize, jobs: usize, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let result = run(i as u64 + 1);
                    if let Ok(mut results) = results.lock() {
                        results.push((i, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
