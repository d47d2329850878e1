//! Policies of this host and its user: where they lie, and what they do to a connection.
//!
//! *Responsible for* finding the files and reading them when they change (`watch`), for following a
//! manager (`link`), for publishing the connections' measurements to it (`teller`), and for naming
//! file and line (`story`). *Not responsible for* what they mean (`neater-policy`) and for opening
//! connections accordingly (the engine).
//!
//! *Invariants*: where there is neither a folder of policies nor a manager, they are looked for at
//! most once a second; a folder that other users may write to is not read; a file that cannot be
//! understood leaves its earlier policies in force.

pub mod folder;
mod follower;
mod link;
mod story;
mod teller;
mod watch;

use crate::Neater;
pub use follower::Follower;
use neater_policy::advice::Adviser;
use neater_policy::manager::Fault;
use neater_policy::protocol::Heard;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
pub use story::{PolicySource, PolicyStory};
use teller::{Ready, Teller};
use watch::{REST, Texts};
pub(crate) use watch::{Watch, Whence};

/// The variable that names folders, with `:` between them; empty, there are none.
pub const VARIABLE: &str = "NEATER_POLICY";
/// Where an administrator's policies lie.
pub const SYSTEM: &str = "/etc/neater/policy";

impl Neater {
    /// Begins to follow the policies of these folders.
    pub(crate) fn follow(&self, watch: Watch, app: &str) {
        follow(&self.handle, watch, app);
    }

    /// Begins to look for policies that may come.
    pub(crate) fn follow_later(&self, app: String) {
        let _ = self.handle.later.set(Later::new(app));
    }

    /// Reads policies that have changed. Nothing where there are none.
    pub(crate) fn look_at_policies(&self) {
        crate::policies::look(&self.handle);
    }

    /// What is wrong with the files of policies, or odd about them, as of when they were last read.
    #[must_use]
    pub fn policy_faults(&self) -> Vec<Fault> {
        let Some(watch) = self.handle.policies.get() else { return Vec::new() };
        watch.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }
}

/// Where the socket for requests of a policy manager is, if there may be one: `NEAT_PM_SOCKET`, or
/// else in `~/.neat` or `/run/neater`. Its other sockets lie beside it.
#[must_use]
pub fn manager_socket() -> Option<PathBuf> {
    link::socket()
}

/// What a program without policies looks for again: they may come while it runs.
#[derive(Debug)]
pub(crate) struct Later {
    app: String,
    /// In seconds of a clock that is cheap to read.
    next: AtomicU64,
    /// Held by the thread that looks: another one, which comes meanwhile, must not repeat that
    /// work.
    looking: Mutex<()>,
}

impl Later {
    pub(crate) fn new(app: String) -> Self {
        Self { app, next: AtomicU64::new(coarse() + REST.as_secs()), looking: Mutex::new(()) }
    }

    #[inline]
    fn look(&self, shared: &crate::shared::Shared) {
        let (now, next) = (coarse(), self.next.load(Ordering::Relaxed));
        if now > next {
            self.find(shared, now, next);
        }
    }

    #[cold]
    fn find(&self, shared: &crate::shared::Shared, now: u64, next: u64) {
        // One of several threads does; and what a child of `fork` finds must not reach its parent.
        let Ok(_held) = self.looking.try_lock() else { return };
        let mine = self.next.compare_exchange(next, now + REST.as_secs(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !mine || shared.is_forked() || shared.policies.get().is_some() {
            return;
        }
        match Watch::begin(Whence::Usual) {
            Ok(Some(watch)) => follow(shared, watch, &self.app),
            Ok(None) => {}
            Err(e) => tracing::warn!(target: "neater::policy", "{e}"),
        }
    }
}

/// Seconds of the coarse clock, which is read without a system call and without looking at the
/// hardware.
#[allow(unsafe_code, reason = "the standard library has no coarse clock")]
#[inline]
fn coarse() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The C library's, and not rustix's, which under valgrind looks for the kernel's code where
    // there is none. SAFETY: `now` is a timespec that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.unsigned_abs()
}

/// Begins to follow policies.
fn follow(shared: &crate::shared::Shared, mut watch: Watch, app: &str) {
    shared.with_later(|s| s.engine.policies().set_adviser(Some(Adviser::new()), app));
    if let Some(link) = &mut watch.link {
        share(shared, link.begin());
    }
    // The first caller has made the engine, or has found them.
    let _ = shared.policies.set(Mutex::new(watch));
    look(shared);
}

/// Lets the ready-made policies count where no others do yet, unless the program wants none.
pub(crate) fn advise(shared: &crate::shared::Shared) {
    if let (None, Some(later)) = (shared.policies.get(), shared.later.get()) {
        shared.with_later(|s| {
            if !s.engine.policies().are_asked() {
                s.engine.policies().set_adviser(Some(Adviser::new()), &later.app);
            }
        });
    }
}

/// See [`Neater::look_at_policies`].
#[inline]
pub(crate) fn look(shared: &crate::shared::Shared) {
    match (shared.policies.get(), shared.later.get()) {
        (Some(watch), _) => look_at(shared, watch),
        (None, Some(later)) => later.look(shared),
        (None, None) => {}
    }
}

fn look_at(shared: &crate::shared::Shared, watch: &Mutex<Watch>) {
    // Another thread is looking already.
    let Ok(mut watch) = watch.try_lock() else { return };
    if shared.is_forked() {
        // The connection is the parent's: what is read from it is lost to that.
        return;
    }
    if let Some(link) = &mut watch.link {
        let heard = link.poll();
        // Another manager than the one that was followed before may be there.
        let path = link.path().to_path_buf();
        if watch.teller.as_ref().is_none_or(|teller| !teller.is_beside(&path)) {
            watch.teller = Some(Teller::beside(&path));
        }
        share(shared, heard);
    } else if let Some(heard) = watch.find_manager() {
        share(shared, heard);
    }
    let Some(texts) = watch.changed() else { return };
    let (pib, cib) = (Texts::sources(&texts.pib), Texts::sources(&texts.cib));
    let report = shared.with_later(|s| s.engine.policies().load(&pib, &cib));
    watch.take_faults(report.faults, texts.unreadable, &texts.kept);
}

/// Gives the engine what a manager has sent.
fn share(shared: &crate::shared::Shared, heard: Heard) {
    if heard.is_empty() {
        return;
    }
    shared.with_later(|s| {
        if let Some(tables) = heard.tables {
            s.engine.policies().share(tables);
        }
        s.engine.policies().share_facts(heard.facts);
    });
}

/// Publishes the measurements of this program's connections to the local manager, if one runs. It
/// never waits; what the manager does not take now is sent later.
#[cold]
pub(crate) fn publish(shared: &crate::shared::Shared) {
    let Some(watch) = shared.policies.get() else { return };
    let Ok(mut watch) = watch.try_lock() else { return };
    if shared.is_forked() {
        // The connection is the parent's.
        return;
    }
    match watch.teller.as_mut().map(Teller::is_ready) {
        // There is no manager to send them to.
        None | Some(Ready::Absent) => drop(shared.with_later(|s| s.engine.policies().take_facts())),
        Some(Ready::Busy) => shared.with_later(|s| s.engine.policies().hold_facts()),
        Some(ready) => {
            let facts = shared.with_later(|s| {
                if matches!(ready, Ready::Anew) {
                    s.engine.policies().report_facts_again();
                }
                s.engine.policies().take_facts()
            });
            if let Some(teller) = &mut watch.teller {
                teller.publish(&facts);
            }
        }
    }
}

/// The name of this program for policies where it sets none: the name of its file.
pub(crate) fn own_name() -> String {
    let path = std::env::args_os().next().map(PathBuf::from);
    path.and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned())).unwrap_or_default()
}
