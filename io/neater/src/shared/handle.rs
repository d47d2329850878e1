//! The owners of an engine: its driver, and the public objects.
//!
//! *Responsible for* what happens when the last of either goes. *Not responsible for* anything that
//! is done with the engine.

use super::Shared;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

/// The driver's handle of the engine. When the last possible driver is gone, all waiting ends.
pub(crate) struct Driving(pub(crate) Arc<Shared>);

impl core::fmt::Debug for Driving {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl core::ops::Deref for Driving {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        // A driver may be dropped because the program's code has panicked below it, and the engine
        // may be half done.
        if catch_unwind(AssertUnwindSafe(|| self.0.orphan())).is_err() {
            tracing::error!(target: "neater::event", "the engine could not be given up in order");
        }
    }
}

/// A counted reference of a public object.
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        shared.users.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }

    /// The same parameters, with callbacks that panic instead of waiting for themselves.
    pub(crate) fn marked(&self, security: &crate::SecurityParameters) -> crate::SecurityParameters {
        let (marked, gone) = {
            let mut callbacks = self.0.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            (callbacks.marked(security, &self.downgrade()), core::mem::take(&mut callbacks.gone))
        };
        drop(gone);
        marked
    }

    /// The engine, without keeping it.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl core::ops::Deref for Handle {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            if self.0.policies.get().is_some() {
                // What was seen last would be lost with this program.
                crate::policies::publish(&self.0);
            }
            self.0.kick();
        }
    }
}

impl core::fmt::Debug for Handle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Neater")
    }
}
