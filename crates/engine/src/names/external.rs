//! Names that the program, or the system's resolver, finds the addresses of, in place of name
//! servers.
//!
//! Resolution is an effect with an id, and the stub resolver is only one possible source of
//! answers. This is for names that no name server knows: multicast DNS, the modules of
//! nsswitch.conf, a directory of the program's own.
//!
//! *Responsible for* the questions: which connection waits for which, for how long, and what comes
//! of an answer. *Not responsible for* names that this host decides by itself (the hosts file,
//! `localhost`), nor for keeping answers (`neater-dns`).
//!
//! *Invariants*: equal questions under way are one; at most [`MAX_QUESTIONS`]; each is over after
//! [`PATIENCE`] at the latest, so that no race waits for a resolver that has forgotten; an answer
//! to a question that is over has no effect.

use crate::context::Context;
use crate::timer::Timer;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use std::collections::{BTreeMap, VecDeque};

/// Questions under way at most; further names fail with [`neater_dns::ResolveError::TooMany`].
pub(crate) const MAX_QUESTIONS: usize = 1024;
/// A question that has no answer by then has failed: longer than the system's resolver waits for
/// two name servers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A name of which an external resolver is to find the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuestion {
    /// What [`crate::Engine::answer_name`] wants back.
    pub id: u64,
    /// The name, as the program wrote it.
    pub name: String,
    /// Only the addresses that are good for this interface (its index) are of use.
    pub interface: Option<u32>,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFailure {
    /// The name does not exist.
    NoSuchName,
    /// It could not be found out whether it does.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) interface: Option<u32>,
    pub(crate) waiters: Vec<(Key, u16)>,
    due: Instant,
    /// It was asked on another network than this host is attached to now: the answer is for the
    /// waiting connections, and is not cached.
    pub(crate) elsewhere: bool,
}

/// The questions under way.
#[derive(Debug, Default)]
pub(crate) struct External {
    asked: BTreeMap<u64, Asked>,
    index: BTreeMap<(String, Option<u32>), u64>,
    /// The program has not taken these yet.
    untaken: VecDeque<u64>,
    next: u64,
    /// The deadline of the first question is set.
    armed: bool,
    /// No more are asked.
    pub(crate) over: bool,
}

impl External {
    pub(crate) fn remove(&mut self, id: u64) -> Option<Asked> {
        let asked = self.asked.remove(&id)?;
        let key = (asked.name.to_ascii_lowercase(), asked.interface);
        if self.index.get(&key) == Some(&id) {
            self.index.remove(&key);
        }
        self.untaken.retain(|u| *u != id);
        Some(asked)
    }

    /// The host is attached to another network: later questions share nothing with those under way.
    pub(crate) fn network_changed(&mut self) {
        self.index.clear();
        self.asked.values_mut().for_each(|a| a.elsewhere = true);
    }

    /// Whether the program has questions to take.
    #[inline]
    pub(crate) fn has_questions(&self) -> bool {
        !self.untaken.is_empty()
    }

    pub(crate) fn take_questions(&mut self) -> Vec<NameQuestion> {
        let untaken = core::mem::take(&mut self.untaken);
        let question = |id: u64| {
            let asked = self.asked.get(&id)?;
            Some(NameQuestion { id, name: asked.name.clone(), interface: asked.interface })
        };
        untaken.into_iter().filter_map(question).collect()
    }

    /// Adds a question, or a waiter to one that is under way. False: there are too many.
    pub(crate) fn ask<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        waiter: (Key, u16),
        name: &str,
        interface: Option<u32>,
    ) -> bool {
        let key = (name.to_ascii_lowercase(), interface);
        if let Some(asked) = self.index.get(&key).and_then(|id| self.asked.get_mut(id)) {
            if !asked.waiters.contains(&waiter) {
                asked.waiters.push(waiter);
            }
            return true;
        }
        if self.asked.len() >= MAX_QUESTIONS {
            return false;
        }
        let (id, due) = (self.next, cx.now + PATIENCE);
        self.next += 1;
        self.index.insert(key, id);
        self.untaken.push_back(id);
        let asked = Asked { name: name.to_owned(), interface, waiters: vec![waiter], due, elsewhere: false };
        self.asked.insert(id, asked);
        self.arm(cx);
        cx.again = true;
        true
    }

    /// The next question whose time is over; its deadline has come.
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<Asked> {
        self.armed = false;
        // They were asked in the order of their ids, and all wait as long.
        let (id, _) = self.asked.first_key_value().filter(|(_, a)| a.due <= now)?;
        self.remove(*id)
    }

    /// Sets the deadline of the question that was asked first: one is enough, for all wait as long.
    pub(crate) fn arm<N: Net>(&mut self, cx: &mut Context<N>) {
        if let Some((_, first)) = self.asked.first_key_value().filter(|_| !self.armed) {
            self.armed = true;
            cx.timers.push(first.due, Timer::ExternalNames);
        }
    }

    /// Whether a connection waits for an answer.
    pub(crate) fn is_asked_by(&self, conn: Key) -> bool {
        self.asked.values().any(|a| a.waiters.iter().any(|w| w.0 == conn))
    }

    /// A connection no longer waits for what it has asked: its paths may soon be others.
    pub(crate) fn forget(&mut self, conn: Key) {
        for asked in self.asked.values_mut() {
            asked.waiters.retain(|w| w.0 != conn);
        }
    }
}
