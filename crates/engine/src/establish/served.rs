//! What later races learn from how a connection served.
//!
//! That a connection could be established does not mean that it is of use: a peer may accept and be
//! silent, speak another protocol, or break the rules of its own. *Responsible for* taking reports
//! of that from programs, and from the engine where it sees it by itself, to the history of
//! outcomes. *Not responsible for* what a race makes of them (`neater-race`).

use crate::event::ConnectionError;
use crate::{ConnectionId, Engine, Stack};
use core::num::NonZeroU64;
use neater_base::Key;
use neater_base::net::Net;
use neater_race::{BadCause, CacheKey, Lesson, StackId};
use std::net::SocketAddr;

/// How a connection that was established has served, as far as it matters to later races: see
/// [`Engine::report_service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceOutcome {
    /// The peer has answered as it should. Withdraws what was reported before.
    Answered,
    /// The peer has not answered what it was asked, in the time that the program gives it.
    Silent,
    /// The peer has broken the rules of the protocol that was to be spoken, or has ended the
    /// connection in place of an answer.
    Broken,
    /// The peer has demanded that it be asked by another protocol, such as H3_VERSION_FALLBACK of
    /// HTTP/3 (RFC 9114 section 8.1).
    WantsOther,
}

/// What carries a connection, as the history of outcomes knows it: stack and remote address, and
/// for which network, endpoint and needs. It holds when the connection is over, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    network: NonZeroU64,
    key: CacheKey,
    stack: Stack,
    addr: SocketAddr,
}

impl Carrier {
    /// The protocol stack.
    #[must_use]
    pub const fn stack(&self) -> Stack {
        self.stack
    }

    /// The remote address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl<N: Net> Engine<N> {
    /// What carries an established connection that was initiated here; `None` of any other, such as
    /// one that was received or cloned.
    #[must_use]
    pub fn carrier(&self, conn: ConnectionId) -> Option<Carrier> {
        let c = self.conns.get(conn.0)?;
        let stack = c.stack?;
        let (network, key) = match c.network {
            Some(network) => (network, c.cache_key()?),
            None => c.ext.as_ref()?.outcome_key?,
        };
        // Where the race has found it, wherever it has moved since.
        let addr = if c.flow.may_migrate() { self.carriers.found_at(c.flow)? } else { self.remote_addr(conn)? };
        Some(Carrier { network, key, stack, addr })
    }

    /// Reports how a connection has served. What is reported against a carrier is advice to later
    /// races to the same endpoint for the same needs on the same network: its outcome is not tried
    /// alone any more, and the others are tried before it, none in the clear before one that is
    /// encrypted. It is never excluded. That lasts a minute, and up to ten when it happens again; a
    /// demand for another protocol lasts ten at once, if it came by a stack that shows who has made
    /// it.
    ///
    /// A report that comes after the host has moved to another network is dropped.
    pub fn report_service(&mut self, carrier: &Carrier, outcome: ServiceOutcome) {
        self.cx.now = self.cx.net.now();
        self.note_service(carrier, outcome);
    }

    fn note_service(&mut self, carrier: &Carrier, outcome: ServiceOutcome) {
        if self.network != Some(carrier.network) {
            return;
        }
        let Carrier { key, stack, addr, .. } = *carrier;
        let id = StackId(stack as u16);
        tracing::debug!(target: "neater::race", %stack, %addr, ?outcome, "how a connection has served");
        let cause = match outcome {
            ServiceOutcome::Answered => return self.outcomes.record_served(&key, id, addr),
            ServiceOutcome::Silent => BadCause::Unanswered,
            ServiceOutcome::WantsOther if stack.is_secure() => BadCause::WantsOther,
            // In the clear, anything on the path can send that.
            ServiceOutcome::Broken | ServiceOutcome::WantsOther => BadCause::Broken,
        };
        // A peer that does not serve at one of its addresses what networks tend to block will hardly do so at another.
        let lesson = Lesson { suspect_group: stack.may_be_blocked(), ..Lesson::new(id, addr, cause) };
        self.outcomes.record_bad(self.cx.now, key, lesson);
    }

    /// A framer can make nothing of the first that the peer has sent, or its handshake was not
    /// finished.
    pub(crate) fn note_bad_framing(&mut self, conn: Key, error: &ConnectionError) {
        let before = |c: &crate::conn::Conn| {
            c.messages_received == 0 && !c.ext.as_ref().is_some_and(|e| e.receiver.has_delivered())
        };
        let outcome = match error {
            ConnectionError::TimedOut => ServiceOutcome::Silent,
            ConnectionError::Framer(_) => ServiceOutcome::Broken,
            error => return self.note_early_death(conn, error),
        };
        if self.conns.get(conn).is_some_and(before)
            && let Some(carrier) = self.carrier(ConnectionId(conn))
        {
            self.note_service(&carrier, outcome);
        }
    }

    /// A connection was lost before anything had come back.
    pub(super) fn note_death(&mut self, conn: Key) {
        let Some(carrier) = self.carrier(ConnectionId(conn)).filter(|c| self.network == Some(c.network)) else {
            return;
        };
        let lesson = Lesson::new(StackId(carrier.stack as u16), carrier.addr, BadCause::Died);
        self.outcomes.record_bad(self.cx.now, carrier.key, lesson);
    }
}
