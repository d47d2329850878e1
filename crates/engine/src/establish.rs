//! From a request to an established connection: the cached outcome alone, or the race.

mod anew;
mod cached;
mod check;
mod ended;
mod lessons;
mod paths;
mod plan;
mod refusal;
mod report;
mod served;
mod unanswered;

pub(crate) use self::cached::patience;
use self::check::{check_locals, check_names, check_remotes, refused_first};
pub(crate) use self::lessons::Trials;
pub use self::served::{Carrier, ServiceOutcome};
use crate::carrier::establish::Target;
use crate::carrier::{FlowId, SessionId};
use crate::conn::{Conn, ConnectionState, cache_key};
use crate::engine::fast_path;
use crate::event::{AttemptError, EstablishmentError, Reason, Step};
use crate::policy::{self, Way};
use crate::timer::Timer;
use crate::{ConnectionId, Engine, LocalEndpoint, RemoteEndpoint, Request, Stack};
use bytes::Bytes;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError, SocketOptions};
use neater_base::{Instant, Key};
use neater_race::{
    Address, Candidate, CandidateId, Config, Family, Input, Outcome, Output, PathId, Progress, Race, StackId,
    StackOption,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// Endpoints that one connection may be given.
pub const MAX_REMOTES: usize = 8;

/// An attempt that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) candidate: Option<CandidateId>,
    pub(crate) session: SessionId,
    pub(crate) stack: Stack,
    pub(crate) addr: SocketAddr,
}

/// One path of a race.
#[derive(Clone, Debug)]
struct Path {
    remote: usize,
    interface: Option<u32>,
    local: Option<SocketAddr>,
    /// The local port, where there is no local address: 0 is any.
    port: u16,
    /// The way that policies say, if they change anything.
    way: Option<Way>,
    /// The one family that the interface of such a way has addresses of.
    family: Option<Family>,
}

impl Path {
    /// The address that an attempt towards `addr` is bound to, if it matters.
    fn local_for(&self, addr: SocketAddr) -> Option<SocketAddr> {
        self.local.or_else(|| (self.port != 0).then(|| crate::listen::any_like(addr.ip(), self.port)))
    }
}

/// A connection that is being established by a race.
#[derive(Debug)]
pub(crate) struct Establishing {
    race: Race<AttemptError>,
    pub(crate) attempts: Vec<Attempt>,
    /// The cached outcome has become this candidate, and the race has not been told yet.
    adopted: Option<CandidateId>,
    /// Answers that are known already are still being handed to the race.
    beginning: bool,
    paths: Vec<Path>,
    /// What the host was attached to when the race began.
    network: NonZeroU64,
    armed: Option<Instant>,
    /// Resolution has not been heard of yet: cancelled when the race is over.
    pub(crate) lookups: Vec<neater_dns::LookupId>,
    has_deadline: bool,
    /// When an attempt without a handshake is looked at again.
    unanswered_at: Option<Instant>,
    /// Nothing is tried: see [`Engine::plan`].
    pub(crate) planning: bool,
}

impl<N: Net> Engine<N> {
    /// Opens a connection to any of `remotes`, which all offer the same service. It is [`ConnectionState::Establishing`]
    /// until [`Ready`](crate::Event::Ready) or [`EstablishmentError`](crate::Event::EstablishmentError); messages may be
    /// sent at once and wait.
    ///
    /// `first` is a message that may be sent as early data, because it is safely replayable; it is sent exactly as if it
    /// were handed to [`Engine::send`] next if the stack cannot do that.
    ///
    /// # Errors
    /// What can be known before anything is sent: [`Reason::InvalidConfiguration`], [`Reason::Exhausted`].
    pub fn initiate(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        local: Option<&LocalEndpoint>,
        first: Option<Bytes>,
    ) -> Result<ConnectionId, EstablishmentError> {
        self.initiate_from(request, remotes, local.map_or(&[], core::slice::from_ref), first)
    }

    /// As [`Engine::initiate`], from any of several local endpoints: each is a path of its own, in this order (RFC 9623
    /// section 4.1.3). None is any.
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
            && let Some(outcome) = self.outcomes.look_up(self.cx.now, &cache_key(network, remote, &request.0))
            && let Some(conn) = fast_path!(self).connect(request, remotes, network, outcome)
        {
            return Ok(ConnectionId(conn));
        }
        self.initiate_in_full(request, remotes, locals, first)
    }

    /// All other ways.
    #[inline(never)]
    fn initiate_in_full(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        locals: &[LocalEndpoint],
        first: Option<Bytes>,
    ) -> Result<ConnectionId, EstablishmentError> {
        let (conn, outcome) = self.prepare(request, remotes, locals, first.as_ref())?;
        self.cx.stats.initiated += 1;
        let conn = self.conns.insert(conn);
        self.report_advice(conn);
        let known = outcome.and_then(|o| Some((Stack::from_number(o.stack.0)?, o)));
        if !known.is_some_and(|(stack, outcome)| self.try_cached(conn, stack, &outcome, &first)) {
            self.begin_race(conn, locals, first, None);
        }
        Ok(ConnectionId(conn))
    }

    /// A connection that is to be established, and the outcome of an earlier race, if there is one that counts.
    fn prepare(
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
            self.zone_index(name)?;
        }
        // Whoever else is asked may have names of another kind.
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
        // An outcome does not tell by which interface it came about.
        let mut anywhere = request.0.properties.interfaces().is_empty() && remotes[0].interface.is_none();
        if let Some(advice) = advice {
            anywhere &= policy::binds_nothing(&advice);
            conn.ext().advice = Some(advice);
        }
        let mut outcome = None;
        if remotes.len() == 1 && locals.is_empty() && anywhere {
            conn.network = Some(self.network());
            outcome = conn.cache_key().and_then(|key| self.outcomes.get(self.cx.now, &key));
        }
        if !locals.is_empty() {
            conn.ext().locals = locals.into();
        }
        Ok((conn, outcome))
    }

    pub(crate) fn est(&mut self, conn: Key) -> Option<&mut Establishing> {
        self.conns.get_mut(conn)?.est.as_deref_mut()
    }

    /// Lays out paths, asks for names, starts the race. `direct` is the cached outcome, if it is still being tried: it
    /// takes part as the candidate that it is, and counts from its own start.
    fn begin_race(&mut self, conn: Key, locals: &[LocalEndpoint], first: Option<Bytes>, direct: Option<Attempt>) {
        let Some(c) = self.conns.get(conn) else { return };
        let (request, remotes, since, advice) = (c.request.clone(), c.remotes.clone(), c.since, c.advice().cloned());
        let laid = match &advice {
            Some(advice) => self.lay_out_as_advised(&request, &remotes, locals, advice),
            None => self.lay_out(&request, &remotes, locals),
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
        let stacks: Vec<_> = request
            .stacks
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
                planning: c.ext.as_ref().is_some_and(|e| e.planning),
            }));
        }
        if let Some(data) = first {
            self.keep_first(conn, data);
        }
        self.heed_lessons(conn);
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
                // The next start counts from that of the cached outcome, but not before all that is known is told.
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

    fn start(&mut self, conn: Key, candidate: Candidate) {
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

    /// Makes the cached outcome that is being tried the candidate that the race wants to start. False: it is another one.
    fn adopt(&mut self, conn: Key, candidate: &Candidate, stack: Stack) -> bool {
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
    fn open_attempt(
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
        let first = c.ext.as_ref().and_then(|e| e.early.clone());
        let may_become = may_become(c, stack);
        let base = request.setups.socket_options(stack);
        let custom;
        let pick = path.way.as_ref().and_then(|w| w.path()?.picks.iter().find(|p| p.stack == stack as u16));
        let more = pick.map_or(&[][..], |p| &p.options);
        // What policies say of other interfaces does not hold for what never leaves this host.
        let here = path.way.is_some() && addr.ip().is_loopback();
        let local = path.local_for(addr).filter(|l| !here || l.ip().is_loopback() || l.ip().is_unspecified());
        let interface = path.interface.filter(|_| !here);
        let bare = request.setups.option_for_family(stack, addr.is_ipv4()).map_err(AttemptError::Net)?;
        let options = if interface.is_some() || local.is_some() || !more.is_empty() || bare.is_some() {
            let mut with = SocketOptions { interface, local, ..base.clone() };
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
        let Some(id) = candidate else {
            // The cached outcome: it wins at once, over a race that may have begun meanwhile.
            if self.is_watched(conn)
                && let Some((stack, addr)) = self.carriers.describe(session)
            {
                self.step(conn, Step::Established { stack, addr });
            }
            self.become_established(conn, session);
            return;
        };
        if let Some((stack, addr)) = self.carriers.describe(session) {
            self.step(conn, Step::Established { stack, addr });
        }
        self.race_input(conn, Input::Progress { candidate: id, progress: Progress::Established });
        self.drain_race(conn);
    }

    /// An attempt has failed: release it, tell the race.
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
                self.heed_refusal(conn, &error);
                self.race_input(conn, Input::Progress { candidate, progress: Progress::Failed(error) });
                self.drain_race(conn);
            }
            None => {
                self.note_cached_failure(conn, &error);
                self.heed_refusal(conn, &error);
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
    fn withdraw(&mut self, conn: Key, candidate: Option<CandidateId>) {
        let Some(est) = self.est(conn) else { return };
        let Some(i) = est.attempts.iter().position(|a| a.candidate == candidate) else { return };
        let attempt = est.attempts.swap_remove(i);
        self.carriers.release_attempt(&mut self.cx, attempt.session, true);
        self.step(conn, Step::Withdrawn { stack: attempt.stack, addr: attempt.addr });
    }
}

/// What an attempt may go on as, where its peer does not offer what it was started for: it may serve, too, and nothing that would
/// serve better is still to have its turn.
fn may_become(c: &Conn, stack: Stack) -> Option<Stack> {
    let instead = stack.offered_instead()?;
    let rank = |stack: Stack| c.request.stacks.iter().position(|s| *s == stack);
    let next = rank(instead).zip(rank(stack)).is_some_and(|(instead, before)| instead <= before + 1);
    let named = c.remotes.iter().all(|r| r.protocol.is_none_or(|only| only == instead));
    // Policies choose ways and socket options for each stack.
    (next && named && c.advice().is_none()).then_some(instead)
}

/// The error of an operation on the network as that of an attempt.
impl From<NetError> for AttemptError {
    fn from(e: NetError) -> Self {
        Self::Net(e)
    }
}
