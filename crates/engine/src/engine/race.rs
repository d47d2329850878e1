//! Races.
//!
//! # A host whose network changes
//!
//! An attempt from an address that the host has lost cannot succeed, and nothing reports that: the
//! system retransmits for minutes. So the race restarts from the addresses that the host has now.
//! An attempt from an address that is still there goes on, and the race with it: another interface
//! that comes up, or goes, is no reason to restart an attempt that takes long.
//!
//! # Refusal
//!
//! A peer that was refused does not get what was meant for it in the clear.
//!
//! Opportunistic security uses what the peer offers: without TLS the connection is in the clear. A
//! peer that speaks TLS and is then found not to be the one that was meant (it has another
//! certificate than those pinned, the application's trust verification rejects it) is another case:
//! RFC 9622 section 6.3.8 makes that the end of an attempt, and the attempts at the same endpoint
//! without security would only hide it. So they are not started, and those that run are withdrawn.
//! Nor does it count in later races: otherwise a host on the path could have stacks without
//! security tried first.

use crate::carrier::blame::is_refusal;
use crate::carrier::terms::{HANDSHAKE_PATIENCE, Target};
use crate::carrier::{FlowId, SessionId};
use crate::conn::{Conn, ConnectionState, cache_key};
use crate::establish::cached::patience;
use crate::establish::check::{check_locals, check_names, check_remotes, refused_first};
use crate::establish::paths;
use crate::establish::penalties::FAIR_TIME;
use crate::establish::rated;
use crate::establish::unanswered::Verdict;
use crate::establish::{Attempt, Establishing, Path};
use crate::event::{AttemptError, EstablishmentError, Reason, Step};
use crate::policy::Way;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, LocalEndpoint, RemoteEndpoint, Request, Stack, policy};
use bytes::Bytes;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError, SocketOptions};
use neater_base::{Instant, Key};
use neater_race::{
    Address, BadCause, Candidate, CandidateId, CandidateOutcome, Config, Family, Input, Outcome, Output, PathId,
    Penalty, Progress, Race, StackId, StackOption,
};
use std::net::SocketAddr;
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// Opens a connection to any of `remotes`, which all offer the same service. It is
    /// [`ConnectionState::Establishing`] until [`Ready`](crate::Event::Ready) or
    /// [`EstablishmentError`](crate::Event::EstablishmentError); messages may be sent at once and
    /// wait.
    ///
    /// `first` is a message that may be sent as early data, because it is safely replayable; it is
    /// sent exactly as if it were handed to [`Engine::send`] next if the stack cannot do that.
    ///
    /// # Errors
    /// What can be known before anything is sent: [`Reason::InvalidConfiguration`],
    /// [`Reason::Exhausted`].
    pub fn initiate(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        local: Option<&LocalEndpoint>,
        first: Option<Bytes>,
    ) -> Result<ConnectionId, EstablishmentError> {
        self.initiate_from(request, remotes, local.map_or(&[], core::slice::from_ref), first)
    }

    /// As [`Engine::initiate`], from any of several local endpoints: each is a path of its own, in
    /// this order (RFC 9623 section 4.1.3). None is any.
    ///
    /// # Errors
    /// As [`Engine::initiate`].
    #[inline]
    pub fn initiate_from(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        locals: &[LocalEndpoint],
        first: Option<Bytes>,
    ) -> Result<ConnectionId, EstablishmentError> {
        self.cx.now = self.cx.net.now();
        if let ([remote], [], None) = (&remotes[..], locals, &first)
            && let Some(network) = self.network
            && fast_path!(self).may_connect(request, remote)
            && (self.outcomes.rates().is_empty() || request.0.stacks.len() == 1)
            && let Some(outcome) = self.outcomes.look_up(self.cx.now, &cache_key(network, remote, &request.0))
            && let Some(conn) = fast_path!(self).connect(request, remotes, network, outcome)
        {
            return Ok(ConnectionId(conn));
        }
        self.initiate_in_full(request, remotes, locals, first)
    }

    /// All other ways.
    #[inline(never)]
    pub(crate) fn initiate_in_full(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        locals: &[LocalEndpoint],
        first: Option<Bytes>,
    ) -> Result<ConnectionId, EstablishmentError> {
        let (mut conn, outcome) = self.prepare(request, remotes, locals, first.as_ref())?;
        let rng = Some(&mut self.cx.rng);
        let (outcome, rated) = rated::apply(&mut conn, outcome, &self.outcomes, self.cx.now, rng);
        self.cx.stats.initiated += 1;
        let conn = self.conns.insert(conn);
        self.report_advice(conn);
        rated.into_iter().for_each(|step| self.step(conn, step));
        let known = outcome.and_then(|o| Some((Stack::from_number(o.stack.0)?, o)));
        if !known.is_some_and(|(stack, outcome)| self.try_cached(conn, stack, &outcome, &first)) {
            self.begin_race(conn, locals, first, None);
        }
        Ok(ConnectionId(conn))
    }

    /// A connection that is to be established, and the outcome of an earlier race, if there is one
    /// that counts.
    pub(crate) fn prepare(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        locals: &[LocalEndpoint],
        first: Option<&Bytes>,
    ) -> Result<(Conn, Option<Outcome>), EstablishmentError> {
        self.own_to_establish()?;
        check_remotes(remotes, &request.0)?;
        check_locals(locals, remotes)?;
        for name in remotes.iter().filter_map(|r| r.interface.as_deref()) {
            paths::zone_index(self.cx.net.interfaces(), name)?;
        }
        // Another resolver may have names of another kind.
        if !self.names.has_external_resolver() {
            check_names(remotes)?;
        }
        let own = request.0.isolate.as_ref().map(|isolate| self.isolated(request, isolate));
        let request = own.as_ref().unwrap_or(request);
        if let Some(data) = first {
            self.check_message(request, data.len()).map_err(|e| refused_first(&e))?;
        }
        if self.conns.len() >= self.cx.limits.connections {
            return Err(EstablishmentError::new(
                Reason::Exhausted,
                format!("this engine has {} connections, its limit", self.cx.limits.connections),
            ));
        }
        let advice = self.policies.advice_for(request, remotes, locals, self.cx.net.wall())?;
        let mut conn = Conn::new(request.0.clone(), remotes.clone(), self.cx.now);
        // An outcome does not record its interface.
        let mut anywhere = request.0.properties.interfaces().is_empty() && remotes[0].interface.is_none();
        if let Some(advice) = advice {
            anywhere &= policy::binds_nothing(&advice);
            conn.cold().advice = Some(advice);
        }
        let mut outcome = None;
        if remotes.len() == 1 && locals.is_empty() && anywhere {
            conn.network = Some(self.network());
            outcome = conn.cache_key().and_then(|key| self.outcomes.get(self.cx.now, &key));
            // It may come from a file.
            outcome = outcome.filter(|o| Stack::from_number(o.stack.0).is_some_and(|s| request.0.admits(s)));
        }
        if !locals.is_empty() {
            conn.cold().locals = locals.into();
        }
        Ok((conn, outcome))
    }

    pub(crate) fn est(&mut self, conn: Key) -> Option<&mut Establishing> {
        self.conns.get_mut(conn)?.est.as_deref_mut()
    }

    /// Lays out paths, asks for names, starts the race. `direct` is the cached outcome, if it is
    /// still being tried: it takes part as the candidate that it is, and counts from its own start.
    pub(crate) fn begin_race(
        &mut self,
        conn: Key,
        locals: &[LocalEndpoint],
        first: Option<Bytes>,
        direct: Option<Attempt>,
    ) {
        let Some(c) = self.conns.get(conn) else { return };
        let (request, remotes, since, advice) = (c.request.clone(), c.remotes.clone(), c.since, c.advice().cloned());
        let laid = match &advice {
            Some(advice) => paths::lay_out_as_advised(self.cx.net.interfaces(), &request, &remotes, locals, advice),
            None => paths::lay_out(self.cx.net.interfaces(), &request, &remotes, locals),
        };
        let (paths, specs) = match laid {
            Ok(laid) => laid,
            Err(error) => {
                if let Some(direct) = direct {
                    self.carriers.release_attempt(&mut self.cx, direct.session, true);
                }
                return self.fail(conn, error);
            }
        };
        let by_rate = c.cold.as_ref().and_then(|e| e.order.clone());
        let stacks: Vec<_> = by_rate
            .as_deref()
            .unwrap_or(&request.stacks)
            .iter()
            .map(|s| StackOption {
                id: StackId(*s as u16),
                group: u8::from(s.may_be_blocked()),
                port: None,
                needs_service: false,
                secure: s.is_secure(),
            })
            .collect();
        let config = Config {
            attempt_delay: Duration::from_nanos(request.attempt_delay),
            // Trying the cached outcome alone has taken of it.
            deadline: request.timeout.map(|t| since + t),
            ..Config::default()
        };
        let network = self.network();
        let ways: Vec<_> = paths.iter().map(|p| (p.remote, p.interface)).collect();
        let mut race = Race::new(self.cx.now, config, specs, stacks, self.cx.rng.seed());
        for (i, way) in paths.iter().enumerate().filter_map(|(i, p)| Some((i, p.way.as_ref()?.path()?))) {
            let picks: Vec<_> = way.picks.iter().map(|p| StackId(p.stack)).collect();
            race.restrict(PathId(i as u16), &picks);
        }
        if let Some(c) = self.conns.get_mut(conn) {
            c.est = Some(Box::new(Establishing {
                race,
                attempts: direct.into_iter().collect(),
                adopted: None,
                beginning: true,
                paths,
                network,
                armed: None,
                lookups: Vec::new(),
                has_deadline: request.timeout.is_some(),
                unanswered_at: None,
                planning: c.cold.as_ref().is_some_and(|e| e.planning),
            }));
        }
        if let Some(data) = first {
            self.keep_first(conn, data);
        }
        self.pass_history(conn);
        for (path, (remote, interface)) in ways.into_iter().enumerate() {
            let r = &remotes[remote];
            match (r.addr, &r.host) {
                (Some(addr), _) if addr.is_ipv4() && request.only_v6 => {}
                (Some(addr), _) => {
                    let source = self.cx.net.source_for(addr);
                    let input = Input::Answer {
                        path: PathId(path as u16),
                        family: Family::of(&addr),
                        result: Ok(vec![Address::new(addr, source)]),
                    };
                    self.race_input(conn, input);
                }
                (None, Some(host)) => {
                    let name = host.clone();
                    self.step(conn, Step::Resolving { name: name.to_string() });
                    self.look_up(conn, path as u16, &name, r.port, request.services, interface);
                }
                (None, None) => {}
            }
        }
        self.drain_names();
        if let Some(est) = self.est(conn) {
            est.beginning = false;
        }
        self.drain_race(conn);
    }

    /// Gives the race a fact, without drawing the consequences yet.
    pub(crate) fn race_input(&mut self, conn: Key, input: Input<AttemptError>) {
        let now = self.cx.now;
        if let Some(est) = self.est(conn) {
            est.race.handle_input(now, input);
        }
    }

    pub(crate) fn race_timeout(&mut self, conn: Key) {
        let now = self.cx.now;
        if let Some(est) = self.est(conn) {
            est.armed = est.armed.filter(|at| *at > now);
            if est.race.is_over() {
                return self.lost(conn);
            }
            est.race.handle_timeout(now);
            self.drain_race(conn);
        }
    }

    /// Does what the race wants, until it wants nothing.
    pub(crate) fn drain_race(&mut self, conn: Key) {
        let now = self.cx.now;
        loop {
            let since = self.conns.get(conn).map_or(now, |c| c.since);
            let Some(est) = self.est(conn) else { return };
            let Some(output) = est.race.poll_output(now) else {
                // The next start counts from that of the cached outcome, but not before the race
                // has everything that is known.
                match est.adopted.take_if(|_| !est.beginning) {
                    Some(id) => est.race.began_before(now, id, since),
                    None => break,
                }
                continue;
            };
            match output {
                Output::Doubted(candidate, doubt) => self.doubted(conn, &candidate, &doubt),
                Output::Start(candidate) => self.start(conn, candidate),
                Output::Cancel(id) => self.withdraw(conn, Some(id)),
                Output::Won(id) => return self.won(conn, Some(id)),
                Output::Lost => return self.lost(conn),
            }
        }
        let Some(est) = self.est(conn) else { return };
        let (next, planning) = (est.race.next_timeout(), est.planning);
        if let Some(at) = next
            && est.armed.is_none_or(|a| at < a)
        {
            est.armed = Some(at);
            self.cx.timers.push(at, Timer::Race(conn));
        }
        if planning {
            self.go_on_planning(conn);
        } else {
            self.settle_unanswered(conn);
        }
    }

    pub(crate) fn start(&mut self, conn: Key, candidate: Candidate) {
        let Some(stack) = Stack::from_number(candidate.stack.0) else { return };
        let Some(c) = self.conns.get(conn) else { return };
        let Some(path) = c.est.as_ref().and_then(|e| e.paths.get(candidate.path.0 as usize)).cloned() else { return };
        let only = c.remotes.get(path.remote).and_then(|r| r.protocol);
        let planning = c.est.as_ref().is_some_and(|e| e.planning);
        if self.adopt(conn, &candidate, stack) {
            return;
        }
        self.step(conn, Step::Started { stack, addr: candidate.addr });
        let result = if only.is_some_and(|s| s != stack) {
            Err(AttemptError::Net(ErrorKind::InvalidInput.into()))
        } else if let Err(refused) = self.may_try(conn, stack) {
            Err(refused)
        } else if planning {
            self.would_open(candidate.addr, &path)
        } else {
            self.open_attempt(conn, Some(candidate.id), stack, candidate.addr, &path).map(drop)
        };
        if let Err(error) = result {
            if matches!(&error, AttemptError::Net(e) if e.kind == ErrorKind::TooManyFiles) {
                self.note_shortage();
            }
            self.step(conn, Step::Failed { stack, addr: candidate.addr, error: error.clone() });
            let progress = Progress::Failed(error);
            self.race_input(conn, Input::Progress { candidate: candidate.id, progress });
        }
    }

    /// Makes the cached outcome that is being tried the candidate that the race wants to start.
    /// False: it is another one.
    pub(crate) fn adopt(&mut self, conn: Key, candidate: &Candidate, stack: Stack) -> bool {
        let (now, id) = (self.cx.now, Some(candidate.id));
        let Some(est) = self.est(conn) else { return false };
        let direct = |a: &&mut Attempt| a.candidate.is_none() && (a.stack, a.addr) == (stack, candidate.addr);
        let Some(attempt) = est.attempts.iter_mut().find(direct) else { return false };
        attempt.candidate = id;
        est.adopted = id;
        let session = attempt.session;
        let answered = self.carriers.adopt(now, session, conn);
        self.step(conn, Step::Started { stack, addr: candidate.addr });
        if let Some(rtt) = answered {
            self.step(conn, Step::Reachable { stack, addr: candidate.addr, rtt });
            self.race_input(conn, Input::Progress { candidate: candidate.id, progress: Progress::Reachable { rtt } });
        }
        true
    }

    /// Opens the sockets of one attempt.
    pub(crate) fn open_attempt(
        &mut self,
        conn: Key,
        candidate: Option<CandidateId>,
        stack: Stack,
        addr: SocketAddr,
        path: &Path,
    ) -> Result<SessionId, AttemptError> {
        self.cx.stats.attempts += 1;
        let c = self.conns.get(conn).ok_or(AttemptError::ClosedByPeer)?;
        let (request, remotes) = (c.request.clone(), c.remotes.clone());
        let first = c.cold.as_ref().and_then(|e| e.early.clone());
        let may_become = may_become(c, stack);
        let base = request.setups.socket_options(stack);
        let custom;
        let pick = path.way.as_ref().and_then(|w| w.path()?.picks.iter().find(|p| p.stack == stack as u16));
        let more = pick.map_or(&[][..], |p| &p.options);
        // The advice of policies about other interfaces does not apply to traffic that never leaves
        // this host.
        let here = path.way.is_some() && addr.ip().is_loopback();
        let local = path.local_for(addr).filter(|l| !here || l.ip().is_loopback() || l.ip().is_unspecified());
        let interface = path.interface.filter(|_| !here);
        let bare = request.setups.option_for_family(stack, addr.is_ipv4()).map_err(AttemptError::Net)?;
        let options = if interface.is_some() || local.is_some() || !more.is_empty() || bare.is_some() {
            // Further paths would leave from whatever address and by whatever interface the
            // system's path manager knows.
            let free = interface.is_none() && local.is_none_or(|l| l.ip().is_unspecified());
            let multipath = base.multipath && free;
            let mut with = SocketOptions { interface, local, multipath, ..base.clone() };
            with.set.extend(bare);
            with.set.extend_from_slice(more);
            custom = with;
            &custom
        } else {
            base
        };
        let remote = remotes.get(path.remote);
        let to = Target {
            stack,
            addr,
            alone: candidate.is_none(),
            remote,
            remotes: &remotes,
            request: &request,
            options,
            first: first.as_ref(),
            may_become,
        };
        let session = self.carriers.connect(&mut self.cx, conn, &to)?;
        if let Some(est) = self.est(conn) {
            est.attempts.push(Attempt { candidate, session, stack, addr });
        }
        if !stack.has_handshake() && (candidate.is_none() || request.has_no_handshake()) {
            // A connectionless stack is established as soon as a path is selected (RFC 9623
            // section 4.6). Beside others it waits for their answers: see `unanswered`.
            self.attempt_established(conn, candidate, session);
        }
        Ok(session)
    }

    /// An attempt has had an answer from its peer.
    pub(crate) fn reachable(
        &mut self,
        conn: Key,
        candidate: Option<CandidateId>,
        stack: Stack,
        addr: SocketAddr,
        rtt: Duration,
    ) {
        if let Some(candidate) = candidate {
            self.step(conn, Step::Reachable { stack, addr, rtt });
            self.race_input(conn, Input::Progress { candidate, progress: Progress::Reachable { rtt } });
            self.drain_race(conn);
        }
    }

    /// The whole stack of an attempt is up.
    pub(crate) fn attempt_established(&mut self, conn: Key, candidate: Option<CandidateId>, session: SessionId) {
        let Some(c) = self.conns.get(conn) else { return };
        if c.state != ConnectionState::Establishing {
            return;
        }
        let described = self.carriers.describe(session);
        let asked = described.is_some_and(|(stack, _)| c.request.setups.socket_options(stack).multipath);
        if let Some((stack, addr)) = described.filter(|_| candidate.is_some() || self.is_watched(conn)) {
            self.step(conn, Step::Established { stack, addr });
            if asked && let Some(agreed) = self.carriers.sockets.agreed_on_paths(&self.cx, session) {
                self.step(conn, Step::SeveralPaths { stack, addr, agreed });
            }
        }
        let Some(id) = candidate else {
            // The cached outcome: it wins at once, over a race that may have begun meanwhile.
            self.become_established(conn, session);
            return;
        };
        self.race_input(conn, Input::Progress { candidate: id, progress: Progress::Established });
        self.drain_race(conn);
    }

    /// An attempt has failed: release it, notify the race.
    pub(crate) fn attempt_failed(
        &mut self,
        conn: Key,
        candidate: Option<CandidateId>,
        session: SessionId,
        error: AttemptError,
    ) {
        let described = self.carriers.describe(session);
        self.carriers.release_attempt(&mut self.cx, session, false);
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state != ConnectionState::Establishing {
            return;
        }
        if let Some(est) = &mut c.est {
            est.attempts.retain(|a| a.session != session);
        }
        if let Some((stack, addr)) = described {
            self.step(conn, Step::Failed { stack, addr, error: error.clone() });
        }
        match candidate {
            Some(candidate) => {
                self.handle_refusal(conn, &error);
                self.race_input(conn, Input::Progress { candidate, progress: Progress::Failed(error) });
                self.drain_race(conn);
            }
            None => {
                self.note_cached_failure(conn, &error);
                self.handle_refusal(conn, &error);
                let Some(c) = self.conns.get_mut(conn) else { return };
                if c.state != ConnectionState::Establishing {
                    return;
                }
                match &c.est {
                    None => {
                        c.flow = FlowId::None;
                        self.begin_race(conn, &[], None, None);
                    }
                    Some(est) if est.race.is_over() => self.lost(conn),
                    Some(_) => self.settle_unanswered(conn),
                }
            }
        }
    }

    /// Withdraws the attempt of a candidate.
    pub(crate) fn withdraw(&mut self, conn: Key, candidate: Option<CandidateId>) {
        let Some(est) = self.est(conn) else { return };
        let Some(i) = est.attempts.iter().position(|a| a.candidate == candidate) else { return };
        let attempt = est.attempts.swap_remove(i);
        self.carriers.release_attempt(&mut self.cx, attempt.session, true);
        self.step(conn, Step::Withdrawn { stack: attempt.stack, addr: attempt.addr });
    }

    /// Restarts the races that cannot be won as they are: with attempts from addresses that are
    /// gone, or with nothing but queries to name servers of another network. `moved`: it is the
    /// addresses that have changed, and not the name servers.
    pub(crate) fn race_anew(&mut self, moved: bool) {
        // Without any way out every attempt would fail at once. There may soon be another one, or
        // the old one again.
        if !self.cx.has_way_out() {
            return;
        }
        for conn in self.conns.keys() {
            if self.is_in_vain(conn, moved) {
                self.begin_anew(conn);
            }
        }
    }

    /// The attempt of a connection that tries the cached outcome alone.
    pub(crate) fn cached_attempt(&self, conn: Key) -> Option<SessionId> {
        let flow = self.conns.get(conn)?.flow;
        self.carriers.awaited_attempt(conn, flow)
    }

    pub(crate) fn is_in_vain(&self, conn: Key, moved: bool) -> bool {
        let Some(c) = self.conns.get(conn).filter(|c| c.state == ConnectionState::Establishing) else { return false };
        match &c.est {
            None => {
                moved && self.cached_attempt(conn).is_some_and(|session| self.is_from_nowhere(session) == Some(true))
            }
            Some(est) if est.attempts.is_empty() => {
                (!moved || Some(est.network) != self.network) && (self.names.is_awaited_by(conn, &est.lookups))
            }
            Some(est) => {
                let (mut lost, mut alive) = (false, false);
                for attempt in &est.attempts {
                    match self.is_from_nowhere(attempt.session) {
                        Some(true) => lost = true,
                        Some(false) => alive = true,
                        None => {}
                    }
                }
                moved && lost && !alive
            }
        }
    }

    /// Whether an attempt comes from an address that this host does not have any more; `None`: its
    /// address is not known.
    pub(crate) fn is_from_nowhere(&self, session: SessionId) -> Option<bool> {
        self.carriers.source_of(&self.cx.net, session).map(|from| {
            let has = |i: &neater_base::net::Interface| i.up && i.addrs.iter().any(|a| a.addr == from);
            !from.is_loopback() && !self.cx.net.interfaces().iter().any(has)
        })
    }

    /// Gives up all that a connection has tried, and begins again.
    pub(crate) fn begin_anew(&mut self, conn: Key) {
        tracing::debug!(target: "neater::race", connection = ?conn, "the network has changed: the race restarts");
        if let Some(session) = self.cached_attempt(conn) {
            if let Some(c) = self.conns.get_mut(conn) {
                c.flow = FlowId::None;
            }
            self.give_up(conn, session);
        }
        if let Some(est) = self.conns.get_mut(conn).and_then(|c| c.est.take()) {
            for attempt in &est.attempts {
                self.give_up(conn, attempt.session);
            }
            for id in &est.lookups {
                self.names.abandon(&mut self.cx, *id);
            }
            if let Some(external) = &mut self.names.external {
                external.forget(conn);
            }
        }
        let network = self.network();
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.network.is_some() {
            c.network = Some(network);
        }
        // Rates were measured on another network.
        let locals = c.cold.as_mut().map(|e| (e.order = None, e.locals.clone()).1).unwrap_or_default();
        self.begin_race(conn, &locals, None, None);
    }

    pub(crate) fn give_up(&mut self, conn: Key, session: SessionId) {
        let described = self.carriers.describe(session);
        self.carriers.release_attempt(&mut self.cx, session, true);
        if let Some((stack, addr)) = described {
            self.step(conn, Step::Withdrawn { stack, addr });
        }
    }

    /// Tries what worked last time, alone. False: it failed at once.
    pub(crate) fn try_cached(&mut self, conn: Key, stack: Stack, outcome: &Outcome, first: &Option<Bytes>) -> bool {
        let addr = outcome.addr;
        if self.is_watched(conn) {
            self.step(conn, Step::FromCache { stack, addr });
        }
        if let Some(data) = first {
            self.keep_first(conn, data.clone());
        }
        let way = Way::first_of(self.conns.get(conn).and_then(|c| c.advice()));
        let path = Path { remote: 0, interface: None, local: None, port: 0, way, family: None };
        match self.open_attempt(conn, None, stack, addr, &path) {
            Ok(session) => {
                self.cx.stats.cache_hits += 1;
                let Some(c) = self.conns.get_mut(conn) else { return true };
                // An attempt without a handshake was established at once, and has already become
                // the connection.
                if c.state == ConnectionState::Establishing {
                    c.flow = session.awaiting();
                    let at = self.cx.now.after_nanos(patience(outcome, &c.request));
                    self.cx.timers.push(at, Timer::Cached(conn));
                }
                true
            }
            Err(error) => {
                self.note_cached_failure(conn, &error);
                false
            }
        }
    }

    /// The cached outcome has not answered in time: race the rest, without giving it up.
    pub(crate) fn cached_timeout(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.state != ConnectionState::Establishing || c.est.is_some() || c.is_framer_handshaking() {
            return;
        }
        if self.carriers.awaits_stream(conn, c.flow) {
            return self.no_stream_yet(conn);
        }
        let Some(session) = c.flow.awaited() else { return };
        c.flow = FlowId::None;
        let direct =
            self.carriers.describe(session).map(|(stack, addr)| Attempt { candidate: None, session, stack, addr });
        self.begin_race(conn, &[], None, direct);
    }

    /// The session that has won allows no stream: until when it may.
    pub(crate) fn await_stream(&mut self, conn: Key) {
        if let Some(until) = self.stream_until(conn) {
            self.cx.timers.push(until, Timer::Cached(conn));
        }
    }

    /// A member of a group waits until others have ended, or the peer allows more streams: as long
    /// as its request allows, or for ever.
    pub(crate) fn await_room_beside_others(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.request.timeout.is_some()) {
            self.await_stream(conn);
        }
    }

    pub(crate) fn stream_until(&self, conn: Key) -> Option<Instant> {
        let c = self.conns.get(conn)?;
        Some(c.request.timeout.map_or(c.since + HANDSHAKE_PATIENCE, |t| c.began + t))
    }

    /// The peer has had its time to allow a stream. A peer that has shaken hands and allows no
    /// stream is no better than one that has died after set-up: the next race puts it back.
    pub(crate) fn no_stream_yet(&mut self, conn: Key) {
        if self.stream_until(conn).is_none_or(|until| until > self.cx.now) {
            return;
        }
        let Some(c) = self.conns.get(conn) else { return };
        // Beside streams that it carries, a session is as good as any.
        let beside_others = self.carriers.carries_others(c.flow);
        let penalty = self.penalty_key(c).zip(c.stack).zip(self.remote_addr(ConnectionId(conn)));
        let reason = if c.request.timeout.is_some() { Reason::Timeout } else { Reason::EstablishmentFailed };
        if let Some(((key, stack), addr)) = penalty.filter(|_| !beside_others) {
            self.outcomes.record_bad(self.cx.now, key, Penalty::new(StackId(stack as u16), addr, BadCause::Died));
        }
        self.fail(conn, EstablishmentError::new(reason, if beside_others { NO_OTHER_STREAM } else { NO_STREAM }));
    }

    /// The cached outcome, tried alone on a socket of its own, could not be established.
    #[cold]
    pub(crate) fn cached_failed(&mut self, key: Key, error: NetError) {
        if let Some((conn, session)) = self.carriers.attempt_at(key) {
            self.attempt_failed(conn, None, session, AttemptError::Net(error));
        }
    }

    /// Whether this stack may be tried for a connection, as far as earlier attempts have taught.
    pub(crate) fn may_try(&self, conn: Key, stack: Stack) -> Result<(), AttemptError> {
        let refused = self.conns.get(conn).and_then(|c| c.cold.as_ref()).is_some_and(|e| e.refused);
        if refused && !stack.is_secure() { Err(AttemptError::PeerRefused) } else { Ok(()) }
    }

    /// Draws the consequence of an attempt's failure for attempts without security.
    pub(crate) fn handle_refusal(&mut self, conn: Key, error: &AttemptError) {
        if !is_refusal(error) {
            return;
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        // It holds for the race that begins when the cached outcome is refused, too.
        c.cold().refused = true;
        let Some(est) = &c.est else { return };
        let bare: Vec<(Option<CandidateId>, SessionId)> =
            est.attempts.iter().filter(|a| !a.stack.is_secure()).map(|a| (a.candidate, a.session)).collect();
        for (candidate, session) in bare {
            self.attempt_failed(conn, candidate, session, AttemptError::PeerRefused);
        }
    }

    /// Establishes an attempt over UDP if nothing better is left to hope for.
    pub(crate) fn settle_unanswered(&mut self, conn: Key) {
        let Some((attempt, verdict)) = self.judge_unanswered(conn) else { return };
        match verdict {
            Verdict::Now => self.attempt_established(conn, attempt.candidate, attempt.session),
            Verdict::At(at) => {
                let Some(est) = self.est(conn) else { return };
                if est.unanswered_at.replace(at) != Some(at) {
                    self.cx.timers.push(at, Timer::Race(conn));
                }
            }
            Verdict::Later => {}
        }
    }

    /// The attempt over UDP that waits, if there is one, and what is to become of it.
    pub(crate) fn judge_unanswered(&self, conn: Key) -> Option<(Attempt, Verdict)> {
        let c = self.conns.get(conn).filter(|c| c.state == ConnectionState::Establishing)?;
        let est = c.est.as_deref().filter(|e| !e.beginning && !e.race.is_over())?;
        let silent = |a: &&Attempt| !a.stack.has_handshake() && a.candidate.is_some();
        // The common case: there is none, and no report is made.
        est.attempts.iter().find(silent)?;
        let report = est.race.report();
        let running = |a: &Attempt| {
            let of = report.iter().find(|r| Some(r.candidate.id) == a.candidate);
            of.filter(|r| matches!(r.outcome, CandidateOutcome::Running)).and_then(|r| r.started_at)
        };
        let waiting = est.attempts.iter().filter(silent).find_map(|a| Some((*a, running(a)?)));
        let (attempt, since) = waiting?;

        let mut latest: Option<Instant> = None;
        let mut left = self.names.is_awaited_by(conn, &est.lookups);
        for r in report.iter().filter(|r| Stack::from_number(r.candidate.stack.0).is_none_or(Stack::has_handshake)) {
            match r.outcome {
                CandidateOutcome::NotStarted => left = true,
                CandidateOutcome::Running if r.reachable_at.is_none() => latest = latest.max(r.started_at),
                CandidateOutcome::Running | CandidateOutcome::Established => return Some((attempt, Verdict::Later)),
                _ => {}
            }
        }
        // The cached outcome, which the race has not come to yet.
        for direct in est.attempts.iter().filter(|a| a.candidate.is_none()) {
            if self.carriers.answered_after(self.cx.now, direct.session).is_some() {
                return Some((attempt, Verdict::Later));
            }
            latest = latest.max(Some(c.since));
        }
        let until = match latest {
            None if !left => return Some((attempt, Verdict::Now)),
            Some(latest) if !left => since.max(latest) + FAIR_TIME,
            _ => since + LONGEST,
        };
        let mut until = until.min(since + LONGEST);
        if let Some(timeout) = c.request.timeout {
            until = until.min(since + (c.since + timeout).saturating_since(since) / 2);
        }
        Some((attempt, if until <= self.cx.now { Verdict::Now } else { Verdict::At(until) }))
    }
}

/// What an attempt may go on as, where its peer does not offer what it was started for: it may
/// serve, too, and nothing that would serve better is still to have its turn.
fn may_become(c: &Conn, stack: Stack) -> Option<Stack> {
    let instead = stack.offered_instead()?;
    let rank = |stack: Stack| c.request.stacks.iter().position(|s| *s == stack);
    let next = rank(instead).zip(rank(stack)).is_some_and(|(instead, before)| instead <= before + 1);
    let named = c.remotes.iter().all(|r| r.protocol.is_none_or(|only| only == instead));
    // Policies choose ways and socket options for each stack.
    (next && named && c.advice().is_none()).then_some(instead)
}

const NO_STREAM: &str = "the session is there, but the peer has allowed no stream in it";

const NO_OTHER_STREAM: &str =
    "the session has no stream left for this connection: the peer allows no more beside the others";

/// However many candidates there are, UDP waits no longer for an answer to one of them.
const LONGEST: Duration = Duration::from_secs(5);
