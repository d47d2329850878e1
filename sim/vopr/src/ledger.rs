//! The book of all flows: who has said, heard and promised what, and whether that can be true.
//!
//! *Responsible for* the invariants of data: what is heard was said, in order, once; an end is heard only where one was
//! said; what was acknowledged was heard. *Not for* time (`run`) and not for events (`events`).
//!
//! Programs write into it what they do, before they do it; it is never asked what they should do.

use crate::content::{self, Way};
use neater_base::Instant;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// One direction of a flow.
///
/// A safely replayable head may have several servers take the flow; then these are the most of any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Direction {
    /// Bytes offered to `send`, whether or not it took them.
    offered: u64,
    /// Bytes that `send` has taken.
    accepted: u64,
    /// Bytes that the peer's program has received.
    delivered: u64,
    /// A sender has ended in order after so many bytes.
    finished: BTreeSet<u64>,
    /// The sender's system has said that the peer has everything.
    acknowledged: bool,
    /// The receiver's program has seen the end.
    ended: bool,
}

/// How one side of a flow fared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// It has not begun.
    None,
    /// It is at it, and at what.
    At(&'static str),
    /// It did all it had to do.
    Done,
    /// It gave up, as its plan said.
    GaveUp,
    /// Its host lost its power, or its program was ended with the world.
    Killed,
    /// It met with an error.
    Failed(String),
}

/// One flow.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Which program's.
    app: usize,
    ways: [Direction; 2],
    /// What its two sides have come to: who opened it, and who took it.
    fates: [Fate; 2],
    /// How many servers took it. More than one only if it began with early data.
    taken: u32,
    replayable: bool,
    /// When something last moved.
    moved: Instant,
    /// The hosts of both sides.
    hosts: [usize; 2],
}

#[derive(Debug, Default)]
pub(crate) struct LedgerState {
    pub(crate) flows: Vec<Flow>,
    /// The first thing that cannot be true.
    pub(crate) failure: Option<String>,
    /// What happened, if somebody wants to know.
    lines: Option<Vec<(Instant, String)>>,
    started: Instant,
    /// Tasks are being dropped because their process has ended: they do not close anything.
    pub(crate) killing: bool,
    /// Hosts at which something may lose what was acknowledged: a reset that came from neither side, a lost power.
    pub(crate) lossy: BTreeSet<usize>,
    pub(crate) bytes: u64,
}

/// A handle to the book of a world.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Rc<RefCell<LedgerState>>);

impl Ledger {
    pub(crate) fn new(start: Instant, tracing: bool) -> Self {
        let lines = tracing.then(Vec::new);
        Self(Rc::new(RefCell::new(LedgerState { lines, started: start, ..LedgerState::default() })))
    }

    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut LedgerState) -> T) -> T {
        call(&mut self.0.borrow_mut())
    }

    /// Notes something for the time line, if there is one.
    pub(crate) fn note(&self, now: Instant, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0.borrow_mut().lines {
            lines.push((now, line()));
        }
    }

    /// The time line, in the order of time.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        let (mut lines, started) = self.with(|b| (b.lines.take().unwrap_or_default(), b.started));
        lines.sort_by_key(|(at, _)| *at);
        let text = |(at, line): (Instant, String)| {
            let ms = (at - started).as_micros() as f64 / 1000.0;
            format!("{ms:>12.3} ms  {line}")
        };
        lines.into_iter().map(text).collect()
    }

    /// Something cannot be true.
    pub(crate) fn fail(&self, why: impl FnOnce() -> String) {
        self.with(|b| {
            if b.failure.is_none() {
                b.failure = Some(why());
            }
        });
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.with(|b| b.failure.is_some())
    }

    /// A new flow of a program, from one host to another.
    pub(crate) fn open(&self, now: Instant, app: usize, hosts: [usize; 2], replayable: bool) -> u32 {
        self.with(|b| {
            b.flows.push(Flow {
                app,
                ways: Default::default(),
                fates: [Fate::At("opening"), Fate::None],
                taken: 0,
                replayable,
                moved: now,
                hosts,
            });
            b.flows.len() as u32 - 1
        })
    }

    /// A server has read the head of a flow: `None` if there is no such flow, or if it must not take it.
    pub(crate) fn take(&self, now: Instant, flow: u32, host: usize) -> Option<usize> {
        self.with(|b| {
            let Some(f) = b.flows.get_mut(flow as usize) else {
                b.failure.get_or_insert(format!("the head of flow {flow} was heard, which nobody has opened"));
                return None;
            };
            f.taken += 1;
            f.moved = now;
            if f.hosts[1] != host {
                let why = format!("flow {flow} to h{} arrived at h{host}", f.hosts[1]);
                b.failure.get_or_insert(why);
                return None;
            }
            if f.taken > 1 && !f.replayable {
                let why = format!("flow {flow} was taken {} times, and is not safely replayable", f.taken);
                b.failure.get_or_insert(why);
                return None;
            }
            f.fates[1] = Fate::At("serving");
            Some(f.app)
        })
    }

    fn flow<T>(&self, flow: u32, call: impl FnOnce(&mut Flow) -> T) -> T {
        self.with(|b| call(&mut b.flows[flow as usize]))
    }

    fn way<T>(&self, flow: u32, way: Way, call: impl FnOnce(&mut Direction) -> T) -> T {
        self.flow(flow, |f| call(&mut f.ways[way as usize]))
    }

    /// `send` is asked to take bytes up to here.
    pub(crate) fn offer(&self, flow: u32, way: Way, end: u64) {
        self.way(flow, way, |d| d.offered = d.offered.max(end));
    }

    /// `send` has taken the bytes up to here.
    pub(crate) fn accept(&self, now: Instant, flow: u32, way: Way, end: u64) {
        self.flow(flow, |f| {
            let d = &mut f.ways[way as usize];
            d.accepted = d.accepted.max(end);
            f.moved = now;
        });
    }

    /// Bytes from `at` on were heard: checks that they are those. `content`: whose bytes they should be.
    pub(crate) fn hear(&self, now: Instant, flow: u32, way: Way, content: Way, at: u64, heard: &[u8]) {
        self.with(|b| {
            let f = &mut b.flows[flow as usize];
            let d = &mut f.ways[way as usize];
            let end = at + heard.len() as u64;
            let why = if let Some(wrong) = content::wrong_at(flow, content, at, heard) {
                Some(format!("flow {flow} {way:?}: byte {} is not what was said", at + wrong as u64))
            } else if end > d.offered {
                Some(format!("flow {flow} {way:?}: {end} bytes heard, {} said", d.offered))
            } else {
                None
            };
            d.delivered = d.delivered.max(end);
            f.moved = now;
            b.bytes += heard.len() as u64;
            if let Some(why) = why {
                b.failure.get_or_insert(why);
            }
        });
    }

    /// The sender ends its direction in order, after so many bytes.
    pub(crate) fn finish(&self, flow: u32, way: Way, after: u64) {
        self.with(|b| {
            if !b.killing {
                b.flows[flow as usize].ways[way as usize].finished.insert(after);
            }
        });
    }

    /// The end of a direction was heard after so many bytes.
    pub(crate) fn hear_end(&self, now: Instant, flow: u32, way: Way, after: u64) {
        self.with(|b| {
            let f = &mut b.flows[flow as usize];
            let d = &mut f.ways[way as usize];
            d.ended = true;
            f.moved = now;
            if !d.finished.contains(&after) {
                let why = format!(
                    "flow {flow} {way:?}: its end was heard after {after} bytes, and said after {:?} of {}",
                    d.finished, d.accepted
                );
                b.failure.get_or_insert(why);
            }
        });
    }

    /// The sender was told that its peer has everything.
    pub(crate) fn acknowledge(&self, flow: u32, way: Way) {
        self.way(flow, way, |d| d.acknowledged = true);
    }

    /// A datagram of a flow has come back.
    pub(crate) fn echoed(&self, flow: u32) {
        self.way(flow, Way::Down, |d| d.delivered += 1);
    }

    pub(crate) fn set_fate(&self, now: Instant, flow: u32, side: usize, fate: Fate) {
        self.flow(flow, |f| {
            f.fates[side] = fate;
            f.moved = now;
        });
    }

    /// A host has lost its power: whatever it was at is over.
    pub(crate) fn kill(&self, host: usize) {
        self.with(|b| {
            for f in &mut b.flows {
                for side in 0..2 {
                    if f.hosts[side] == host && matches!(f.fates[side], Fate::At(_)) {
                        f.fates[side] = Fate::Killed;
                    }
                }
            }
        });
    }

    /// What cannot be true now that all programs are over.
    pub(crate) fn settle(&self) {
        self.with(|b| {
            let why = b.flows.iter().enumerate().find_map(|(n, f)| {
                [Way::Up, Way::Down].into_iter().find_map(|way| {
                    let d = &f.ways[way as usize];
                    let receiver = &f.fates[if way == Way::Up { 1 } else { 0 }];
                    // Who gave up, or was ended, has heard what it wanted. A reset may come between the system and the program.
                    // Who never began has no excuse: its system took what it was not given.
                    let lossy = f.hosts.iter().any(|h| b.lossy.contains(h));
                    let excused = lossy || matches!(receiver, Fate::GaveUp | Fate::Killed) || f.taken > 1;
                    (d.acknowledged && d.delivered < d.accepted && !excused).then(|| {
                        format!(
                            "flow {n} {way:?}: all {} bytes were acknowledged, and {} heard; the receiver: {receiver:?}",
                            d.accepted, d.delivered
                        )
                    })
                })
            });
            if let Some(why) = why {
                b.failure.get_or_insert(why);
            }
        });
    }

    /// Whether a flow moves no more although both its sides are at it.
    pub(crate) fn stalled(&self, since: Instant) -> Option<String> {
        self.with(|b| {
            let at = b.flows.iter().position(|f| {
                let busy = f.fates.iter().any(|fate| matches!(fate, Fate::At(_)));
                busy && f.moved < since
            })?;
            Some(format!("flow {at} does not move: {}", b.flows[at].describe()))
        })
    }

    /// All flows in words.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.with(|b| b.flows.iter().enumerate().map(|(n, f)| format!("flow {n} {}", f.describe())).collect())
    }
}

impl Flow {
    /// How whoever opened it and whoever took it fared.
    pub(crate) fn fates(&self) -> &[Fate; 2] {
        &self.fates
    }

    /// What has come back to whoever opened it: bytes, or datagrams.
    pub(crate) fn came_back(&self) -> u64 {
        self.ways[Way::Down as usize].delivered
    }

    fn describe(&self) -> String {
        let way = |d: &Direction| {
            let end = match (d.finished.is_empty(), d.ended) {
                (false, true) => ", ended and heard",
                (false, false) => ", ended",
                _ => "",
            };
            format!("{} said, {} heard{end}", d.accepted, d.delivered)
        };
        format!(
            "of app {} (h{} to h{}): up {}; down {}; client {:?}; server {:?}",
            self.app,
            self.hosts[0],
            self.hosts[1],
            way(&self.ways[0]),
            way(&self.ways[1]),
            self.fates[0],
            self.fates[1]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant::from_nanos(1);

    /// A flow from host 0 to host 1 of which `said` bytes were said.
    fn flow(said: u64, replayable: bool) -> Ledger {
        let ledger = Ledger::new(T, false);
        assert_eq!(ledger.open(T, 7, [0, 1], replayable), 0);
        ledger.offer(0, Way::Up, said);
        ledger.accept(T, 0, Way::Up, said);
        ledger
    }

    fn hear(ledger: &Ledger, from: u64, len: usize) {
        ledger.hear(T, 0, Way::Up, Way::Up, from, &content::bytes(0, Way::Up, from, len));
    }

    fn failure(ledger: &Ledger) -> String {
        ledger.with(|b| b.failure.clone()).unwrap_or_default()
    }

    #[test]
    fn what_was_said_and_ended_may_be_heard_and_ended() {
        let ledger = flow(100, false);
        assert_eq!(ledger.take(T, 0, 1), Some(7));
        hear(&ledger, 0, 60);
        hear(&ledger, 60, 40);
        ledger.finish(0, Way::Up, 100);
        ledger.hear_end(T, 0, Way::Up, 100);
        ledger.acknowledge(0, Way::Up);
        ledger.settle();
        assert_eq!(failure(&ledger), "");
    }

    #[test]
    fn what_was_not_said_is_not_heard() {
        let ledger = flow(100, false);
        hear(&ledger, 90, 11);
        assert!(failure(&ledger).contains("101 bytes heard, 100 said"));
        let ledger = flow(100, false);
        ledger.hear(T, 0, Way::Up, Way::Up, 0, &content::bytes(0, Way::Up, 1, 10));
        assert!(failure(&ledger).contains("is not what was said"));
    }

    #[test]
    fn an_end_is_heard_only_where_one_was_said() {
        for (said, ended, heard) in [(100, None, 100), (100, Some(100), 99), (100, Some(50), 100)] {
            let ledger = flow(said, false);
            if let Some(after) = ended {
                ledger.finish(0, Way::Up, after);
            }
            ledger.hear_end(T, 0, Way::Up, heard);
            assert!(failure(&ledger).contains("its end was heard"), "{said} {ended:?} {heard}");
        }
    }

    #[test]
    fn what_was_acknowledged_was_heard_or_there_is_a_reason() {
        let acknowledged = |lossy: &[usize], fate| {
            let ledger = flow(100, false);
            ledger.take(T, 0, 1);
            hear(&ledger, 0, 99);
            ledger.acknowledge(0, Way::Up);
            ledger.set_fate(T, 0, 1, fate);
            ledger.with(|b| b.lossy.extend(lossy));
            ledger.settle();
            !failure(&ledger).is_empty()
        };
        let failed = || Fate::Failed("reset".into());
        assert!(acknowledged(&[], failed()));
        assert!(acknowledged(&[], Fate::Done));
        assert!(acknowledged(&[], Fate::None), "it was taken from the sender and given to nobody");
        assert!(!acknowledged(&[0], failed()) && !acknowledged(&[1], failed()));
        assert!(acknowledged(&[2], failed()), "what goes wrong at others is no excuse");
        assert!(!acknowledged(&[], Fate::GaveUp));
    }

    #[test]
    fn a_flow_is_taken_once_by_the_host_it_was_for() {
        let ledger = flow(0, false);
        assert_eq!(ledger.take(T, 0, 2), None);
        assert!(failure(&ledger).contains("arrived at h2"));
        let ledger = flow(0, false);
        assert_eq!((ledger.take(T, 0, 1), ledger.take(T, 0, 1)), (Some(7), None));
        assert!(failure(&ledger).contains("taken 2 times"));
        let ledger = flow(0, true);
        assert_eq!((ledger.take(T, 0, 1), ledger.take(T, 0, 1)), (Some(7), Some(7)), "safely replayable");
        assert_eq!(ledger.take(T, 1, 1), None);
        assert!(failure(&ledger).contains("which nobody has opened"));
    }

    #[test]
    fn a_flow_that_stands_still_is_named() {
        let ledger = flow(0, false);
        assert!(ledger.stalled(T).is_none());
        assert!(ledger.stalled(T + core::time::Duration::from_secs(1)).is_some_and(|why| why.contains("flow 0")));
        ledger.set_fate(T, 0, 0, Fate::Done);
        assert!(ledger.stalled(T + core::time::Duration::from_secs(1)).is_none());
    }
}
