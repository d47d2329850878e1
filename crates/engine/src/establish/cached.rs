//! The outcome of an earlier race, tried alone.

use super::{Attempt, Path, What};
use crate::advised::Way;
use crate::channel::Behind;
use crate::conn::{ConnectionState, Io};
use crate::engine::Timer;
use crate::event::{AttemptError, Step};
use crate::request::Compiled;
use crate::{Engine, Stack};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Net, NetError};
use neater_race::{MAX_ATTEMPT_DELAY, Outcome};

/// How long the cached outcome is tried alone, in nanoseconds: as long as between two attempts, and not less than its peer needs
/// to answer as quickly as last time, with a quarter of that for the vagaries of queues. Without that, every connect over a path
/// that is longer than the delay between attempts would race again, and wait for a better candidate that is silent. Never longer
/// than establishment may take in all.
#[inline]
pub(super) fn patience(outcome: &Outcome, request: &Compiled) -> u64 {
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
            Ok(what) => {
                self.stats.cache_hits += 1;
                let Some(c) = self.conns.get_mut(conn) else { return true };
                // An attempt that was established at once (UDP) has already become the connection.
                if c.state == ConnectionState::Establishing {
                    c.io = match what {
                        What::Channel(k) => Io::Channel(k),
                        What::Quic(quic) => Io::StreamPending { quic },
                        What::Sctp(sctp) => Io::SctpPending { sctp },
                        What::Dtls(dtls) => Io::Dtls { dtls },
                    };
                    let at = self.now.after_nanos(patience(outcome, &c.request));
                    self.timers.push(at, Timer::Cached(conn));
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
        let what = match core::mem::replace(&mut c.io, Io::None) {
            Io::Channel(k) => What::Channel(k),
            Io::StreamPending { quic } => What::Quic(quic),
            Io::SctpPending { sctp } => What::Sctp(sctp),
            Io::Dtls { dtls } => What::Dtls(dtls),
            other => {
                c.io = other;
                return;
            }
        };
        let direct = self.describe(what).map(|(stack, addr)| Attempt { candidate: None, what, stack, addr });
        self.begin_race(conn, &[], None, direct);
    }

    /// The cached outcome, tried alone over plain TCP, could not be established.
    #[cold]
    pub(crate) fn cached_failed(&mut self, key: Key, error: NetError) {
        if let Some(Behind::Attempt(conn, candidate)) = self.channels.get(key).map(|c| c.behind) {
            self.attempt_failed(conn, candidate, What::Channel(key), AttemptError::Net(error));
        }
    }
}
