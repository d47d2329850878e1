//! Names: from the resolver's answers to the races that wait for them.

use super::Engine;
use crate::caches::Caches;
use crate::event::{AttemptError, Step};
use crate::names::external::{NameFailure, NameQuestion};
use crate::names::{ExternalAnswer, NameEvent, addresses, describe, service};
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_dns::{Answer, Question, RecordKind, ResolveError, ServiceBinding};
use neater_race::{Family, Input as RaceInput, PathId, Service};
use std::net::IpAddr;

impl<N: Net> Engine<N> {
    /// Whether names are asked of the program, by [`Engine::take_name_questions`], instead of name
    /// servers. Names of the hosts file and special ones (`localhost`) stay this engine's business,
    /// and service bindings (HTTPS records) are not asked for. For connections that are opened from
    /// now on.
    pub fn ask_program_for_names(&mut self, ask: bool) {
        match &mut self.names.external {
            // Those under way are answered yet, or time out.
            Some(external) => external.over = !ask,
            None => self.names.external = ask.then(Box::default),
        }
    }

    /// Whether [`Engine::take_name_questions`] has something.
    #[inline]
    #[must_use]
    pub fn has_name_questions(&self) -> bool {
        self.names.external.as_ref().is_some_and(|e| e.has_questions())
    }

    /// The names whose addresses are to be found since the last call. Each is to be answered by
    /// [`Engine::answer_name`].
    pub fn take_name_questions(&mut self) -> Vec<NameQuestion> {
        self.names.external.as_mut().map(|e| e.take_questions()).unwrap_or_default()
    }

    /// Answers a question: with the addresses, in the order of preference that the answer has (they
    /// are sorted by RFC 6724 again), and how long they hold for further connections. An answer to
    /// a question that is over, or was never asked, has no effect.
    pub fn answer_name(&mut self, id: u64, answer: Result<&[IpAddr], NameFailure>, lifetime: Duration) {
        if self.is_forked() {
            return;
        }
        self.cx.now = self.cx.net.now();
        let Some(waiters) = self.names.answer_external(&self.cx, id, answer.ok(), lifetime) else { return };
        let answer = answer.map_err(|e| match e {
            NameFailure::NoSuchName => ResolveError::NoSuchName,
            NameFailure::Failed => ResolveError::Elsewhere,
        });
        self.external_answer(waiters, answer);
        // The caller waits for nothing: what attempts have begun is driven by the next turn.
        self.cx.again = true;
    }

    /// What is remembered from one connection to the next.
    pub fn caches(&mut self) -> Caches<'_, N> {
        Caches { cx: &mut self.cx, names: &mut self.names, outcomes: &mut self.outcomes }
    }

    /// Starts a lookup for one path of a connection's race.
    pub(crate) fn look_up(&mut self, conn: Key, path: u16, name: &str, port: u16, https: bool, interface: Option<u32>) {
        match self.names.ask_external(&mut self.cx, (conn, path), name, interface) {
            Some(ExternalAnswer::Later) => return,
            Some(ExternalAnswer::Known(answer)) => {
                return self.race_addresses(conn, path, answer.as_deref().map_err(|e| *e));
            }
            None => {}
        }
        let (obstacle, changed) = self.names.obstacle(&self.cx);
        if changed {
            self.outcomes.forget_outcomes();
            self.drain_names();
        }
        if let Some(error) = obstacle {
            let path = PathId(path);
            for family in [Family::V6, Family::V4] {
                self.race_input(conn, RaceInput::Answer { path, family, result: Err(AttemptError::Net(error)) });
            }
            if https {
                self.race_input(conn, RaceInput::Services { path, result: Err(AttemptError::Net(error)) });
            }
            return;
        }
        let question = Question { name, a: true, aaaa: true, https: https.then_some(port), interface };
        let id = self.names.look_up(&self.cx, (conn, path), &question);
        if let Some(est) = self.est(conn) {
            est.lookups.push(id);
        }
    }

    /// The host's configuration of names has changed.
    pub(crate) fn names_changed(&mut self) {
        if self.names.reconfigure(&self.cx) {
            // Names may mean other addresses now.
            self.outcomes.forget_outcomes();
            self.drain_names();
        }
    }

    /// Until when an address of this family may be taken for that of a connection's only remote
    /// endpoint: the addresses of its name are valid for as long as the name server has stated.
    /// `None`: the endpoint has no name.
    pub(crate) fn resolved_until(&mut self, conn: Key, v4: bool) -> Option<Instant> {
        let remotes = self.conns.get(conn)?.remotes.clone();
        let [remote] = &remotes[..] else { return None };
        let host = remote.host.as_deref().filter(|_| remote.addr.is_none())?;
        Some(self.names.expiry(&self.cx, host, v4))
    }

    /// Does what the resolver wants, and takes its answers to the races.
    pub(crate) fn drain_names(&mut self) {
        while let Some(event) = self.names.poll_event(&mut self.cx) {
            match event {
                NameEvent::Answer { conn, path, kind, answer } => {
                    self.race_answer(conn, path, kind, answer);
                    self.drain_race(conn);
                }
                NameEvent::ServicesSoFar { conn, path, services } => {
                    let services = self.services(conn, PathId(path), &services);
                    self.race_input(conn, RaceInput::ServicesSoFar { path: PathId(path), services });
                    self.drain_race(conn);
                }
                NameEvent::Done { conn } => {
                    self.go_on_planning(conn);
                    // The last answer came while the lookup was still under way.
                    self.settle_unanswered(conn);
                }
            }
        }
    }

    /// The external resolver has not answered in time.
    pub(crate) fn external_names_timeout(&mut self) {
        while let Some(asked) = self.names.external.as_mut().and_then(|e| e.overdue(self.cx.now)) {
            self.external_answer(asked.waiters, Err(ResolveError::Elsewhere));
        }
        if let Some(external) = &mut self.names.external {
            external.arm(&mut self.cx);
        }
    }

    pub(crate) fn external_answer(&mut self, waiters: Vec<(Key, u16)>, answer: Result<&[IpAddr], ResolveError>) {
        for (conn, path) in waiters {
            self.race_addresses(conn, path, answer);
            self.drain_race(conn);
        }
    }

    /// What an external resolver has found is an answer to every question at once.
    pub(crate) fn race_addresses(&mut self, conn: Key, path: u16, answer: Result<&[IpAddr], ResolveError>) {
        let Some(services) = self.conns.get(conn).filter(|c| c.est.is_some()).map(|c| c.request.services) else {
            return;
        };
        if services {
            // They were not asked for.
            let result = answer.map(|_| Vec::new()).map_err(AttemptError::Resolve);
            self.race_input(conn, RaceInput::Services { path: PathId(path), result });
        }
        // The race begins with the first AAAA: by then it knows all addresses.
        for (kind, v4) in [(RecordKind::A, true), (RecordKind::Aaaa, false)] {
            let of = |all: &[IpAddr]| all.iter().filter(|a| a.is_ipv4() == v4).copied().collect();
            let answer = answer.map_or_else(Answer::Failed, |all| Answer::Addresses(of(all)));
            self.race_answer(conn, path, kind, answer);
        }
    }

    /// Reports what is known of one kind of records to the race of a connection.
    pub(crate) fn race_answer(&mut self, conn: Key, path: u16, kind: RecordKind, answer: Answer) {
        let record = match kind {
            RecordKind::A => "A",
            RecordKind::Aaaa => "AAAA",
            RecordKind::Https => "HTTPS",
        };
        let found = describe(&answer);
        self.step(conn, Step::Resolved { record, found });
        let path = PathId(path);
        let input = match (kind, answer) {
            (RecordKind::Https, Answer::Services(list)) => {
                RaceInput::Services { path, result: Ok(self.services(conn, path, &list)) }
            }
            (RecordKind::Https, Answer::Failed(e)) => {
                RaceInput::Services { path, result: Err(AttemptError::Resolve(e)) }
            }
            (RecordKind::Https, Answer::Addresses(_)) => RaceInput::Services { path, result: Ok(Vec::new()) },
            (_, answer) => {
                let family = if kind == RecordKind::A { Family::V4 } else { Family::V6 };
                let unfit = family == Family::V4 && self.conns.get(conn).is_some_and(|c| c.request.only_v6)
                    || self.est(conn).and_then(|e| e.path_family(path)).is_some_and(|f| f != family);
                let result = match answer {
                    Answer::Addresses(_) if unfit => Ok(Vec::new()),
                    Answer::Addresses(list) => Ok(addresses(&mut self.cx.net, &list)),
                    Answer::Services(_) => Ok(Vec::new()),
                    Answer::Failed(e) => Err(AttemptError::Resolve(e)),
                };
                RaceInput::Answer { path, family, result }
            }
        };
        self.race_input(conn, input);
    }

    /// Service bindings in the terms of the race, for one path.
    pub(crate) fn services(&mut self, conn: Key, path: PathId, list: &[ServiceBinding]) -> Vec<Service> {
        let alpn = self.conns.get(conn).map(|c| c.request.alpn.clone()).unwrap_or_default();
        let mut services: Vec<_> = list.iter().map(|b| service(&mut self.cx.net, b, &alpn)).collect();
        let only_v6 = self.conns.get(conn).is_some_and(|c| c.request.only_v6);
        if let Some(family) = self.est(conn).and_then(|e| e.path_family(path)).or(only_v6.then_some(Family::V6)) {
            for service in &mut services {
                service.hints.retain(|a| Family::of(&a.addr) == family);
                service.target.iter_mut().for_each(|t| t.retain(|a| Family::of(&a.addr) == family));
            }
        }
        services
    }
}
