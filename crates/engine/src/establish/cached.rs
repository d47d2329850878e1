//! The outcome of an earlier race, tried alone.

use super::{Attempt, Path};
use crate::carrier::FlowId;
use crate::carrier::establish::HANDSHAKE_PATIENCE;
use crate::conn::ConnectionState;
use crate::event::{AttemptError, EstablishmentError, Reason, Step};
use crate::policy::Way;
use crate::request::Compiled;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, Stack};
use bytes::Bytes;
use neater_base::net::{Net, NetError};
use neater_base::{Instant, Key};
use neater_race::{BadCause, Lesson, MAX_ATTEMPT_DELAY, Outcome, StackId};

const NO_STREAM: &str = "the QUIC session is there, but the peer has allowed no stream in it";
const NO_OTHER_STREAM: &str =
    "the session has no stream left for this connection: the peer allows no more beside the others";

/// How long the cached outcome is tried alone, in nanoseconds: as long as between two attempts, and not less than its peer needs
/// to answer as quickly as last time, with a quarter of that for the vagaries of queues. Without that, every connect over a path
/// that is longer than the delay between attempts would race again, and wait for a better candidate that is silent. Never longer
/// than establishment may take in all.
#[inline]
pub(crate) fn patience(outcome: &Outcome, request: &Compiled) -> u64 {
    const MOST: u64 = MAX_ATTEMPT_DELAY.as_nanos() as u64 * 4 / 5;
    // In nanoseconds from the beginning: each flow pays for this.
    let rtt = outcome.rtt.map_or(0, |rtt| rtt.as_nanos() as u64).min(MOST);
    request.attempt_delay.max(rtt + rtt / 4).min(request.most_patience)
}

impl<N: Net> Engine<N> {
    /// Tries what worked last time, alone. False: it failed at once.
    pub(super) fn try_cached(&mut self, conn: Key, stack: Stack, outcome: &Outcome, first: &Option<Bytes>) -> bool {
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
                // An attempt without a handshake was established at once, and has already become the connection.
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
        if c.state != ConnectionState::Establishing || c.est.is_some() || c.is_greeting() {
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

    /// A member of a group waits until others have ended, or the peer allows more streams: as long as its request says, or for ever.
    pub(crate) fn await_room_beside_others(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.request.timeout.is_some()) {
            self.await_stream(conn);
        }
    }

    fn stream_until(&self, conn: Key) -> Option<Instant> {
        let c = self.conns.get(conn)?;
        Some(c.request.timeout.map_or(c.since + HANDSHAKE_PATIENCE, |t| c.began + t))
    }

    /// The peer has had its time to allow a stream. A peer that has shaken hands and lets nobody speak is no better than one that has
    /// died after set-up: the next race puts it back.
    fn no_stream_yet(&mut self, conn: Key) {
        if self.stream_until(conn).is_none_or(|until| until > self.cx.now) {
            return;
        }
        let Some(c) = self.conns.get(conn) else { return };
        // Beside streams that it carries, a session is as good as any.
        let beside_others = self.carriers.carries_others(c.flow);
        let lesson = self.lesson_key(c).zip(c.stack).zip(self.remote_addr(ConnectionId(conn)));
        let reason = if c.request.timeout.is_some() { Reason::Timeout } else { Reason::EstablishmentFailed };
        if let Some(((key, stack), addr)) = lesson.filter(|_| !beside_others) {
            self.outcomes.record_bad(self.cx.now, key, Lesson::new(StackId(stack as u16), addr, BadCause::Died));
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
}
