//! The host's interfaces, and the source addresses that follow from its routes.
//!
//! *Responsible for* looking when first asked, watching from then on, and reporting when its last
//! answer is no longer true. *Deliberately not here*: how the system is asked.
//!
//! *Invariants*: a program that asks for none of it pays nothing; changes within [`SETTLE`] of the
//! first are reported together.

use crate::sys::{self, PathChange, PathMonitor, Poller, SourceProbe};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Interface;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An interface that comes up sends a dozen messages; they are waited for.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);
/// Source addresses remembered; then all are forgotten.
const MAX_SOURCES: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    monitor: OnceCell<PathMonitor>,
    list: OnceCell<Vec<Interface>>,
    probe: SourceProbe,
    sources: BTreeMap<IpAddr, Option<IpAddr>>,
    seen: PathChange,
    due: Option<Instant>,
}

impl Paths {
    /// Whether changes will be noticed. Watching begins before looking, so that none falls between.
    ///
    /// What fails, for lack of a descriptor perhaps, is tried again the next time.
    fn watch(&self, poller: &Poller) -> bool {
        if self.monitor.get().is_none()
            && let Ok(monitor) = PathMonitor::open(poller)
        {
            let _ = self.monitor.set(monitor);
        }
        self.monitor.get().is_some()
    }

    /// The interfaces; none when the system does not report them.
    pub(crate) fn interfaces(&self, poller: &Poller) -> &[Interface] {
        if self.list.get().is_none() {
            self.watch(poller);
            if let Ok(list) = sys::list_interfaces() {
                let _ = self.list.set(list);
            }
        }
        self.known()
    }

    /// What has been reported so far, without a query.
    pub(crate) fn known(&self) -> &[Interface] {
        self.list.get().map_or(&[], |l| l)
    }

    /// The source address towards `remote`.
    pub(crate) fn source_for(&mut self, poller: &Poller, remote: IpAddr) -> Option<IpAddr> {
        if !self.watch(poller) {
            // Without news of changes an answer may not be kept.
            return self.probe.ask(remote).ok().flatten();
        }
        if let Some(source) = self.sources.get(&remote) {
            return *source;
        }
        // A query that could not be made is no answer.
        let source = self.probe.ask(remote).ok()?;
        if self.sources.len() >= MAX_SOURCES {
            self.sources.clear();
        }
        self.sources.insert(remote, source);
        source
    }

    /// The monitor has something.
    pub(crate) fn notice(&mut self, now: Instant) {
        let Some(monitor) = self.monitor.get() else { return };
        let change = monitor.drain();
        if change == PathChange::default() {
            return;
        }
        self.sources.clear();
        self.seen.maybe |= change.maybe;
        self.seen.routes |= change.routes;
        self.due.get_or_insert(now + SETTLE);
    }

    /// When [`Paths::settle`] wants to be called.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Looks again; returns whether there is something to report.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        self.sources.clear();
        let seen = core::mem::take(&mut self.seen);
        // A list that was never requested cannot be compared; sources may have changed.
        let Some(old) = self.list.get_mut() else { return true };
        match sys::list_interfaces() {
            Ok(new) if new == *old => seen.routes,
            Ok(new) => {
                *old = new;
                true
            }
            // What was known is better than nothing.
            Err(_) => seen.routes,
        }
    }
}
