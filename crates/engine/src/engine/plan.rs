//! What a race would try.
//!
//! *Responsible for* asking names as an establishment does, and for letting its race run on in time
//! that does not pass, among silent peers. *Not responsible for* the order: it is the same race
//! that makes it.
//!
//! *Invariants*: nothing is sent but to name servers, and no socket is opened for a peer; nothing
//! is learnt from it.

use crate::establish::{Path, rated};
use crate::event::{AttemptError, Fate, Step};
use crate::{ConnectionId, Engine, EstablishmentError, LocalEndpoint, RemoteEndpoint, Request, Stack};
use neater_base::Key;
use neater_base::net::{ErrorKind, Net};
use neater_race::{CandidateOutcome, Output};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// Finds out what [`Engine::initiate_from`] would try now, in which order and when, if no peer
    /// ever answered. Names are asked for as they are for a connection; nothing else is sent.
    ///
    /// It ends like an establishment that fails, with
    /// [`Event::EstablishmentError`](crate::Event::EstablishmentError): with
    /// [`Reason::Planned`](crate::Reason::Planned) and every candidate, or with the reason why
    /// there would be none. Candidates that would be started have the time of it in
    /// [`CandidateOutcome::started`](crate::CandidateOutcome); those that this host would refuse
    /// have failed. What is cached from earlier connections, and tried alone before all of them, is
    /// a step of the timeline ([`Step::FromCache`]).
    ///
    /// # Errors
    /// As [`Engine::initiate`].
    pub fn plan(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        locals: &[LocalEndpoint],
    ) -> Result<ConnectionId, EstablishmentError> {
        self.cx.now = self.cx.net.now();
        let (mut conn, outcome) = self.prepare(request, remotes, locals, None)?;
        let (outcome, rated) = rated::apply(&mut conn, outcome, &self.outcomes, self.cx.now, None);
        conn.cold().planning = true;
        let conn = self.conns.insert(conn);
        self.report_advice(conn);
        rated.into_iter().for_each(|step| self.step(conn, step));
        if let Some(outcome) = outcome
            && let Some(stack) = Stack::from_number(outcome.stack.0)
        {
            self.step(conn, Step::FromCache { stack, addr: outcome.addr });
        }
        self.begin_race(conn, locals, None, None);
        Ok(ConnectionId(conn))
    }

    /// Whether it is only to be found out what would be tried.
    pub(crate) fn is_plan(&self, conn: Key) -> bool {
        self.conns.get(conn).and_then(|c| c.cold.as_ref()).is_some_and(|e| e.planning)
    }

    /// The result that this host itself would give an attempt. An attempt with a local address of
    /// its own may have routes that are not known here.
    pub(crate) fn would_open(&mut self, addr: SocketAddr, path: &Path) -> Result<(), AttemptError> {
        let scoped = matches!(addr.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast());
        let elsewhere = path.interface.is_some() || path.local.is_some() || path.way.is_some();
        if elsewhere || scoped || self.cx.net.source_for(addr.ip()).is_some() {
            return Ok(());
        }
        Err(AttemptError::Net(ErrorKind::NetworkUnreachable.into()))
    }

    /// Once name resolution is complete, all that is left to be found out takes no time.
    pub(crate) fn go_on_planning(&mut self, conn: Key) {
        let Some(est) = self.conns.get(conn).and_then(|c| c.est.as_deref()) else { return };
        if !est.planning || est.beginning || self.names.is_awaited_by(conn, &est.lookups) {
            return;
        }
        let really = self.cx.now;
        loop {
            let now = self.cx.now;
            let Some(est) = self.est(conn) else { break };
            match est.race.poll_output(now) {
                Some(Output::Start(candidate)) => self.start(conn, candidate),
                Some(Output::Doubted(candidate, doubt)) => self.doubted(conn, &candidate, &doubt),
                Some(Output::Lost) => break,
                // No peer answers.
                Some(Output::Won(_) | Output::Cancel(_)) => {}
                None => {
                    let left = est.race.report().iter().any(|r| matches!(r.outcome, CandidateOutcome::NotStarted));
                    let Some(next) = est.race.next_timeout().filter(|_| left) else { break };
                    let next = next.max(now);
                    est.race.handle_timeout(next);
                    self.cx.now = next;
                }
            }
        }
        self.cx.now = really;
        self.lost(conn);
    }

    /// Whether a plan has come to more than that nothing could be tried.
    pub(crate) fn is_planned(&self, conn: Key, candidates: &[crate::CandidateOutcome]) -> bool {
        self.is_plan(conn) && candidates.iter().any(|c| !matches!(c.fate, Fate::Failed(_)))
    }
}
