//! Names that the program, or the system's resolver, finds the addresses of, in place of name servers.
//!
//! Resolution is an effect with an id, and the stub resolver is only one of those who may answer. This is for names
//! that no name server knows: multicast DNS, the modules of nsswitch.conf, a directory of the program's own.
//!
//! *Responsible for* the questions: who waits for which, for how long, and what comes of an answer. *Not responsible for* names that
//! this host decides by itself (the hosts file, `localhost`), nor for keeping answers (`neater-dns`).
//!
//! *Invariants*: equal questions under way are one; at most [`MAX_QUESTIONS`]; each is over after [`PATIENCE`] at the latest, so that
//! nobody waits for a resolver that has forgotten; an answer to a question that is over has no effect.

use crate::Engine;
use crate::event::AttemptError;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_dns::{Answer, RecordKind, ResolveError};
use neater_race::{Input as RaceInput, PathId};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Questions under way at most; further names fail with [`ResolveError::TooMany`].
pub(crate) const MAX_QUESTIONS: usize = 1024;
/// A question that has no answer by then has failed: longer than the system's resolver waits for two name servers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A name that somebody else is to find the addresses of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuestion {
    /// What [`Engine::answer_name`] wants back.
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
struct Asked {
    name: String,
    interface: Option<u32>,
    waiters: Vec<(Key, u16)>,
    due: Instant,
    /// It was asked on another network than this host is attached to now: the answer is for those who wait, and is not kept.
    elsewhere: bool,
}

/// The questions under way.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    asked: BTreeMap<u64, Asked>,
    index: BTreeMap<(String, Option<u32>), u64>,
    /// Nobody has taken these yet.
    untold: VecDeque<u64>,
    next: u64,
    /// The deadline of the first question is set.
    armed: bool,
    /// No more are asked.
    over: bool,
}

impl Outside {
    fn remove(&mut self, id: u64) -> Option<Asked> {
        let asked = self.asked.remove(&id)?;
        let key = (asked.name.to_ascii_lowercase(), asked.interface);
        if self.index.get(&key) == Some(&id) {
            self.index.remove(&key);
        }
        self.untold.retain(|u| *u != id);
        Some(asked)
    }

    /// The host is attached to another network: later questions share nothing with those under way.
    pub(crate) fn network_changed(&mut self) {
        self.index.clear();
        self.asked.values_mut().for_each(|a| a.elsewhere = true);
    }
}

impl<N: Net> Engine<N> {
    /// Whether names are asked of the program, by [`Engine::take_name_questions`], instead of name servers. Names of the hosts
    /// file and special ones (`localhost`) stay this engine's business, and service bindings (HTTPS records) are not asked for.
    /// For connections that are opened from now on.
    pub fn ask_program_for_names(&mut self, ask: bool) {
        match &mut self.outside {
            // Those under way are answered yet, or time out.
            Some(outside) => outside.over = !ask,
            None => self.outside = ask.then(Box::default),
        }
    }

    /// Whether the names of a connection that is opened now are asked of the program.
    pub(crate) fn asks_outside(&self) -> bool {
        self.outside.as_ref().is_some_and(|o| !o.over)
    }

    /// Whether [`Engine::take_name_questions`] has something.
    #[inline]
    #[must_use]
    pub fn has_name_questions(&self) -> bool {
        self.outside.as_ref().is_some_and(|o| !o.untold.is_empty())
    }

    /// The names whose addresses are to be found since the last call. Each is to be answered by [`Engine::answer_name`].
    pub fn take_name_questions(&mut self) -> Vec<NameQuestion> {
        let Some(outside) = &mut self.outside else { return Vec::new() };
        let untold = core::mem::take(&mut outside.untold);
        let question = |id: u64| {
            let asked = outside.asked.get(&id)?;
            Some(NameQuestion { id, name: asked.name.clone(), interface: asked.interface })
        };
        untold.into_iter().filter_map(question).collect()
    }

    /// Answers a question: with the addresses, in the order of preference that the answer has (RFC 6724 orders them anew), and how
    /// long they hold for further connections. An answer to a question that is over, or was never asked, has no effect.
    pub fn answer_name(&mut self, id: u64, answer: Result<&[IpAddr], NameFailure>, lifetime: Duration) {
        if self.is_forked() {
            return;
        }
        let Some(asked) = self.outside.as_mut().and_then(|o| o.remove(id)) else { return };
        self.cx.now = self.cx.net.now();
        let answer = match answer {
            Ok(addresses) => {
                let now = self.cx.now;
                if !asked.elsewhere {
                    self.resolver().tell(now, &asked.name, asked.interface, addresses, lifetime);
                }
                Ok(addresses)
            }
            Err(NameFailure::NoSuchName) => Err(ResolveError::NoSuchName),
            Err(NameFailure::Failed) => Err(ResolveError::Elsewhere),
        };
        for (conn, path) in asked.waiters {
            self.tell_race(conn, path, answer);
            self.drain_race(conn);
        }
        // Whoever has called waits for nothing: what attempts have begun is seen to by the next turn.
        self.cx.again = true;
    }

    /// Asks the program, if names are asked of it and this one is not this host's own business. True: somebody else's business now.
    pub(crate) fn ask_outside(&mut self, conn: Key, path: u16, name: &str, interface: Option<u32>) -> bool {
        if !self.asks_outside() || self.resolver().decides(name) {
            return false;
        }
        let now = self.cx.now;
        if let Some(addresses) = self.resolver().told(now, name, interface) {
            self.tell_race(conn, path, Ok(&addresses));
            return true;
        }
        let Some(outside) = &mut self.outside else { return false };
        let key = (name.to_ascii_lowercase(), interface);
        let waiter = (conn, path);
        if let Some(asked) = outside.index.get(&key).and_then(|id| outside.asked.get_mut(id)) {
            if !asked.waiters.contains(&waiter) {
                asked.waiters.push(waiter);
            }
            return true;
        }
        if outside.asked.len() >= MAX_QUESTIONS {
            self.tell_race(conn, path, Err(ResolveError::TooMany));
            return true;
        }
        let (id, due) = (outside.next, now + PATIENCE);
        outside.next += 1;
        outside.index.insert(key, id);
        outside.untold.push_back(id);
        outside
            .asked
            .insert(id, Asked { name: name.to_owned(), interface, waiters: vec![waiter], due, elsewhere: false });
        self.arm_outside();
        self.cx.again = true;
        true
    }

    /// Whoever was asked has not answered.
    pub(crate) fn outside_timeout(&mut self) {
        let now = self.cx.now;
        if let Some(outside) = &mut self.outside {
            outside.armed = false;
        }
        // They were asked in the order of their ids, and all wait as long.
        let overdue = |o: &Outside| o.asked.first_key_value().filter(|(_, a)| a.due <= now).map(|(id, _)| *id);
        while let Some(asked) = self.outside.as_deref_mut().and_then(|o| o.remove(overdue(o)?)) {
            for (conn, path) in asked.waiters {
                self.tell_race(conn, path, Err(ResolveError::Elsewhere));
                self.drain_race(conn);
            }
        }
        self.arm_outside();
    }

    /// Sets the deadline of the question that was asked first: one is enough, for all wait as long.
    fn arm_outside(&mut self) {
        let Some(outside) = self.outside.as_deref_mut().filter(|o| !o.armed) else { return };
        if let Some((_, first)) = outside.asked.first_key_value() {
            outside.armed = true;
            self.cx.timers.push(first.due, crate::timer::Timer::Outside);
        }
    }

    /// Whether a connection waits for an answer.
    pub(crate) fn is_asking_outside(&self, conn: Key) -> bool {
        self.outside.as_ref().is_some_and(|o| o.asked.values().any(|a| a.waiters.iter().any(|w| w.0 == conn)))
    }

    /// A connection no longer waits for what it has asked: its paths may soon be others.
    pub(crate) fn forget_outside(&mut self, conn: Key) {
        for asked in self.outside.iter_mut().flat_map(|o| o.asked.values_mut()) {
            asked.waiters.retain(|w| w.0 != conn);
        }
    }

    fn tell_race(&mut self, conn: Key, path: u16, answer: Result<&[IpAddr], ResolveError>) {
        let Some(services) = self.conns.get(conn).filter(|c| c.est.is_some()).map(|c| c.request.services) else {
            return;
        };
        if services {
            // Nobody was asked for them.
            let result = answer.map(|_| Vec::new()).map_err(AttemptError::Resolve);
            self.race_input(conn, RaceInput::Services { path: PathId(path), result });
        }
        // The race begins with the first AAAA: by then it knows all addresses.
        for (kind, v4) in [(RecordKind::A, true), (RecordKind::Aaaa, false)] {
            let of = |all: &[IpAddr]| all.iter().filter(|a| a.is_ipv4() == v4).copied().collect();
            let answer = answer.map_or_else(Answer::Failed, |all| Answer::Addresses(of(all)));
            self.deliver_answer(conn, path, kind, answer);
        }
    }
}
