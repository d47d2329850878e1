//! What the engine needs no more and may not destroy itself.
//!
//! *Responsible for* keeping what belongs to the program (data that was handed over without being
//! copied, framers) from being dropped while the engine is borrowed: its destructor may be the
//! program's own code, which may call the engine. *Not responsible for* when it is dropped: the
//! driver takes it with [`crate::Engine::take_spent`].

use crate::conn::ColdState;
use bytes::Bytes;

/// Things of the program's that the engine has finished with, to be dropped when the engine is not
/// borrowed.
#[derive(Debug, Default)]
pub struct Spent {
    data: Vec<Bytes>,
    #[allow(clippy::vec_box, reason = "it comes boxed, and is large")]
    rare: Vec<Box<ColdState>>,
}

impl Spent {
    /// Whether there is nothing to drop.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.rare.is_empty()
    }

    /// Empties `data`.
    pub(crate) fn keep_all(&mut self, data: &mut Vec<Bytes>) {
        if self.data.is_empty() {
            core::mem::swap(&mut self.data, data);
        } else {
            self.data.append(data);
        }
    }

    pub(crate) fn keep(&mut self, data: Bytes) {
        self.data.push(data);
    }

    pub(crate) fn keep_cold_state(&mut self, rare: Box<ColdState>) {
        self.rare.push(rare);
    }
}
