//! What is done with readiness where a turn would be too much: among the doings of somebody else's reactor.
//!
//! *Invariants*: nothing of the program's runs here (no framer, no callback, no destructor), and no protocol; what is not so simple
//! is left to the next turn, and nothing that the network has told is lost on the way.

use crate::carrier::channel::{Behind, Channel, Kind};
use crate::carrier::dispatch::channel_of;
use crate::conn::{ConnectionState, Conns};
use crate::listen::gave_up;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, Stack};
use neater_base::net::{Net, NetError, NetEvent};
use neater_base::{Instant, Key};

/// Connections accepted per socket and glance: others wait for the reactor.
const ACCEPT_BUDGET: usize = 16;

impl<N: Net> Engine<N> {
    /// Takes readiness from the network where all that follows from it is to tell those who wait for bytes of plain streams, for one to
    /// be connected as the last one was, or for one to be accepted, and leaves everything else to the next [`Engine::turn`]. It runs
    /// nothing of the program's (no framer, no callback, no destructor) and no protocol, so that it may be called where a turn may not.
    /// False: a turn has more to do.
    ///
    /// A turn that follows takes what was left for all that there is, so that the network is not asked twice. Whoever has seen the
    /// descriptor become readable and has not called this says so by [`Engine::look_again`].
    pub fn glance(&mut self) -> bool {
        if self.cx.again || !self.net_events.is_empty() || self.needs_settling() || self.names.has_unread() {
            self.look_again();
            return false;
        }
        let mut events = core::mem::take(&mut self.net_events);
        let more = self.cx.net.poll(&mut events);
        // One that is not so simple is rarely alone.
        let mut now = None;
        let left = match events.iter().position(|e| !self.told_quickly(*e, &mut now)) {
            None => {
                events.clear();
                false
            }
            Some(told) => {
                events.drain(..told);
                true
            }
        };
        self.net_events = events;
        self.glanced = left && !more;
        !more && !left && self.nothing_due(now)
    }

    /// Whether no deadline that means anything has come.
    #[inline]
    fn nothing_due(&mut self, now: Option<Instant>) -> bool {
        let Some(next) = self.cx.timers.next() else { return true };
        let now = now.unwrap_or_else(|| self.cx.net.now());
        if next > now {
            return true;
        }
        // Each connection by a cached outcome leaves one behind.
        let conns = &self.conns;
        let awaits = |c: Key| conns.get(c).is_some_and(|c| c.state == ConnectionState::Establishing);
        self.cx.timers.prune_due(now, |t| !matches!(t, Timer::Cached(c) if !awaits(*c)));
        if self.cx.timers.next().is_some_and(|at| at <= now) {
            return false;
        }
        self.arm();
        true
    }

    /// The next turn is to ask the network whatever [`Engine::glance`] has left to it.
    pub fn look_again(&mut self) {
        self.glanced = false;
    }

    /// Draws the consequences of an event if they are those of [`Engine::quick_ready`], [`plain_ended`] or
    /// [`Engine::accepted_quickly`], and no other.
    /// `now`: the time, once something has asked for it.
    #[inline]
    pub(crate) fn told_quickly(&mut self, event: NetEvent, now: &mut Option<Instant>) -> bool {
        if let NetEvent::Ready { token, ready } = event
            && !ready.error
            && let Some(key) = channel_of(token)
            && let Some(ch) = self.carriers.channels.get_mut(key)
        {
            match (&ch.kind, ch.behind) {
                (Kind::Tcp, Behind::Conn(conn)) => {
                    ch.note(ready);
                    return self.quick_ready(conn, ready.readable || ready.hangup, ready.writable);
                }
                (Kind::Tcp, Behind::Attempt(id, None)) => {
                    ch.note(ready);
                    self.look_at_clock(now);
                    return self.connected_quickly(key, id);
                }
                (Kind::Accept, Behind::Listener(listener)) => {
                    ch.note(ready);
                    self.look_at_clock(now);
                    return self.accepted_quickly(listener, key);
                }
                _ => {}
            }
        }
        false
    }

    /// Once for all that a glance sees.
    #[inline]
    fn look_at_clock(&mut self, now: &mut Option<Instant>) {
        if now.is_none() {
            self.cx.now = self.cx.net.now();
            *now = Some(self.cx.now);
        }
    }

    fn connected_quickly(&mut self, key: Key, id: Key) -> bool {
        // Policies want to see how it went.
        if self.adviser.is_some() {
            return false;
        }
        let Some(c) = self.carriers.channels.get_mut(key) else { return false };
        match plain_ended(c, id, &mut self.conns, &mut self.cx.net, self.cx.now) {
            Some(Ok(connected)) => {
                self.tell_connected(id, connected);
                true
            }
            // What comes next may be another attempt, of any protocol: a turn's business.
            Some(Err(e)) => {
                self.refused = Some((key, e));
                false
            }
            None => false,
        }
    }

    /// Delivers whom there is to accept, where a connection is no more than its socket. What is left over, and whatever keeps the
    /// listener from accepting, is a turn's business.
    fn accepted_quickly(&mut self, listener: Key, key: Key) -> bool {
        for _ in 0..ACCEPT_BUDGET {
            let Some(l) = self.listeners.get(listener) else { return false };
            if !l.delivers_plainly() || self.conns.len() >= self.cx.limits.connections {
                return false;
            }
            match self.accept_plain(listener, key) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => return true,
                Err(e) if gave_up(&e) => {}
                Err(e) => {
                    self.refused = Some((key, e));
                    return false;
                }
            }
        }
        false
    }

    /// What a glance was told of the end of an attempt, or of why nothing can be accepted, and the network need not tell again.
    #[cold]
    pub(crate) fn take_refused(&mut self, key: Key) -> Option<NetError> {
        self.refused.take_if(|(refused, _)| *refused == key).map(|(_, e)| e)
    }

    #[inline]
    pub(crate) fn tell_connected(&mut self, id: Key, connected: Connected) {
        if connected != Connected::NotYet {
            self.cx.stats.established += 1;
        }
        if connected == Connected::AndWanted {
            self.notices.push_ready(ConnectionId(id));
        }
    }
}

/// What has become of an attempt that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connected {
    NotYet,
    /// Nobody holds the connection any more.
    AndReleased,
    AndWanted,
}

/// The commonest way to a connection, kept short: the cached outcome, tried alone over plain TCP, has ended, or has not ended after all.
/// `None`: this is not that way.
#[inline]
pub(crate) fn plain_ended<N: Net>(
    c: &mut Channel,
    id: Key,
    conns: &mut Conns,
    net: &mut N,
    now: Instant,
) -> Option<Result<Connected, NetError>> {
    if !matches!(c.kind, Kind::Tcp) || !c.writable || c.connected {
        return None;
    }
    let conn = conns.get_mut(id).filter(|c| c.is_plain())?;
    // The result can be asked for only once.
    Some(match net.connect_result(c.sock) {
        Ok(()) => {
            c.connected = true;
            // Nothing was promised about readability, so it must be tried.
            c.readable = true;
            c.behind = Behind::Conn(id);
            conn.state = ConnectionState::Established;
            conn.stack = Some(Stack::Tcp);
            conn.since = now;
            Ok(if conn.released { Connected::AndReleased } else { Connected::AndWanted })
        }
        Err(e) if e.is_would_block() => {
            c.writable = false;
            Ok(Connected::NotYet)
        }
        Err(e) => Err(e),
    })
}
