//! Waking the driver from another thread.

use crate::sys::{ForkGuard, WakeHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes the descriptor of an [`OsNet`](crate::OsNet) readable, from any thread.
///
/// What the driver is woken for is put where it will look before [`Waker::wake`] is called, and is
/// looked for after `poll`: then it is found, and any number of calls between two polls costs one
/// system call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: WakeHandle,
    guard: ForkGuard,
    /// A wake-up is under way that `poll` has not yet seen.
    pending: AtomicBool,
}

impl Waker {
    pub(crate) fn new(handle: WakeHandle, guard: ForkGuard) -> Self {
        Self(Arc::new(Inner { handle, guard, pending: AtomicBool::new(false) }))
    }

    /// Wakes the driver. In a child of `fork` it does nothing: the driver is the parent's.
    pub fn wake(&self) {
        // Release: what was written before is seen by the `poll` that takes the wake-up.
        if !self.0.pending.swap(true, Ordering::AcqRel) && !self.0.guard.forked() {
            self.0.handle.notify();
        }
    }

    /// Whether this process is a child of the one that made the network.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.0.guard.forked()
    }

    /// The wake-up has been seen; the next one makes a new edge.
    pub(crate) fn taken(&self) {
        self.0.pending.swap(false, Ordering::AcqRel);
    }
}
