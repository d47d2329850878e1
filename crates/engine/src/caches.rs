//! What an engine remembers from one connection to the next: answers of name servers, and outcomes
//! of races.
//!
//! *Responsible for* forgetting them, and for carrying outcomes from one process to the next. *Not
//! responsible for* using them, nor for files.

use crate::context::Context;
use crate::names::Names;
use core::fmt;
use core::hash::BuildHasher;
use neater_base::net::Net;
use neater_race::{OutcomeCache, SavedError};

/// The caches of an engine: see [`crate::Engine::caches`].
pub struct Caches<'a, N> {
    pub(crate) cx: &'a mut Context<N>,
    pub(crate) names: &'a mut Names,
    pub(crate) outcomes: &'a mut OutcomeCache,
}

impl<N> fmt::Debug for Caches<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").field("outcomes", &self.outcomes.len()).finish_non_exhaustive()
    }
}

impl<N: Net> Caches<'_, N> {
    /// Forgets every answer and every outcome.
    pub fn flush(&mut self) {
        self.names.flush_cache(self.cx);
        *self.outcomes = OutcomeCache::new(self.cx.rng.u64());
    }

    /// The outcomes of races as text for [`Caches::import_outcomes`] of a later engine on this
    /// host, of at most [`MAX_SAVED`](neater_race::MAX_SAVED) bytes; `None` if nothing was learnt
    /// but what was imported. There are addresses in it, and names and networks as numbers from
    /// which they can be guessed; of isolated connections (`isolateSession`) there is nothing.
    #[must_use]
    pub fn export_outcomes(&self) -> Option<String> {
        self.outcomes.export(self.cx.net.now(), self.cx.net.wall(), self.basis())
    }

    /// Takes in what [`Caches::export_outcomes`] has written, as far as nothing is known here of
    /// the same endpoint, needs and network. Each outcome counts as long as it would have there, by
    /// wall-clock time; one that has worked counts only while names are resolved by the same
    /// configuration. Returns for how many circumstances there was something.
    ///
    /// # Errors
    /// The text is damaged, of another version, or from a time that is still to come. Nothing has
    /// changed.
    pub fn import_outcomes(&mut self, text: &str) -> Result<usize, SavedError> {
        self.outcomes.import(self.cx.net.now(), self.cx.net.wall(), self.basis(), text)
    }

    /// What the addresses of outcomes rest on: how names are resolved.
    fn basis(&self) -> u64 {
        let config = self.cx.net.name_config();
        let texts = (&config.resolv_conf, &config.hosts, self.names.has_external_resolver());
        foldhash::fast::FixedState::with_seed(4).hash_one(texts)
    }
}
