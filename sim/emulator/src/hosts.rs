//! What a schedule does to hosts: interfaces that go down and up at their times.
//!
//! A thread of its own, because the kernel takes its time over an interface (it waits for who still uses it), and the emulator
//! must not. The interface really goes down: its system flushes the routes over it and tells whoever listens (netlink), and
//! programs see what they would see. When it comes up again, the addresses are still there, and the routes are put back, as a
//! network manager would. When each change was asked for and when it was done is kept for the record.

use super::error::{Result, failed, last};
use super::netns::Netns;
use super::plan::{Kind, Plan, What};
use super::{sys, tun};
use neater_base::Instant;
use serde::Serialize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A change, as it was.
#[derive(Clone, Debug, Serialize)]
pub struct Happened {
    /// What: `HOST.INTERFACE down`.
    pub what: String,
    /// When it was to happen, from the start of the emulation, in seconds.
    pub at: f64,
    /// When the kernel had done it.
    pub done: f64,
    /// What went wrong, if something did.
    pub failed: Option<String>,
}

/// A change that waits for its time.
struct Task {
    at: Duration,
    what: String,
    /// The interface.
    name: String,
    up: bool,
    /// A socket of the host, through which its interfaces are reached without going there.
    door: OwnedFd,
    netns: Netns,
    /// What gives the routes back, for `ip -batch`.
    routes: String,
}

#[derive(Default)]
struct Shared {
    stop: Mutex<bool>,
    woken: Condvar,
    done: Mutex<Vec<Happened>>,
}

/// The thread. Dropping it ends it, and what has not happened yet does not.
pub struct Hosts {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").finish_non_exhaustive()
    }
}

impl Hosts {
    /// Starts it, if the plan has anything for it; times count from `start`. `netns` and `routes` give the
    /// namespace of a node, and the lines for `ip` that restore the routes over an interface of it.
    ///
    /// # Errors
    /// A host cannot be entered, or there is no thread for it.
    pub fn start(
        plan: &Plan,
        start: Instant,
        netns: impl Fn(usize) -> Result<Netns>,
        routes: impl Fn(usize, usize) -> String,
    ) -> Result<Self> {
        let mut tasks: Vec<Task> = Vec::new();
        for change in &plan.changes {
            let What::Interface { node, interface, up } = change.what else { continue };
            let Some(host) = plan.nodes.get(node).filter(|n| n.kind == Kind::Host) else { continue };
            let Some(name) = host.interfaces.get(interface).map(|i| i.name.clone()) else { continue };
            let netns = netns(node)?;
            let door = netns.with(sys::datagram_socket)?;
            let what = format!("{}.{name} {}", host.name, if up { "up" } else { "down" });
            tasks.push(Task { at: change.at, what, name, up, door, netns, routes: routes(node, interface) });
        }
        tasks.sort_by_key(|t| t.at);
        let shared = Arc::new(Shared::default());
        if tasks.is_empty() {
            return Ok(Self { shared, thread: None });
        }
        let ours = Arc::clone(&shared);
        let run = move || {
            for task in tasks {
                if !ours.wait_until(start + task.at) {
                    return;
                }
                let failed = task.run().err().map(|e| e.to_string());
                let done = sys::now().saturating_since(start).as_secs_f64();
                let change = Happened { what: task.what, at: task.at.as_secs_f64(), done, failed };
                ours.done.lock().unwrap_or_else(PoisonError::into_inner).push(change);
            }
        };
        match std::thread::Builder::new().name("hosts".into()).spawn(run) {
            Ok(thread) => Ok(Self { shared, thread: Some(thread) }),
            Err(e) => failed("a thread for the schedule of interfaces", e),
        }
    }

    /// What has happened so far.
    #[must_use]
    pub fn changes(&self) -> Vec<Happened> {
        self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.woken.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits; false if it is told to stop meanwhile.
    fn wait_until(&self, at: Instant) -> bool {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = at.saturating_since(sys::now());
            if *stop || left.is_zero() {
                return !*stop;
            }
            stop = self.woken.wait_timeout(stop, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Task {
    fn run(&self) -> Result<()> {
        if !tun::set_up(self.door.as_raw_fd(), &self.name, self.up) {
            return last(&self.what);
        }
        if self.up { self.netns.ip(&self.routes) } else { Ok(()) }
    }
}
