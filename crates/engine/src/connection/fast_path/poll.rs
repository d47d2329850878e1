//! Readiness, where all that follows from it is a report to the program.

use super::FastPath;
use crate::carrier::channel::SocketUse;
use crate::carrier::ids::channel_of;
use crate::conn::ConnectionState;
use crate::listen::gave_up;
use crate::timer::Timer;
use neater_base::net::{Net, NetEvent};
use neater_base::{Instant, Key};

/// Connections accepted per socket and call: others wait for the turn.
const ACCEPT_BUDGET: usize = 16;

impl<N: Net> FastPath<'_, N> {
    /// Handles an event, if it only lets bytes flow, ends an attempt of [`FastPath::connect`], or
    /// has a connection accepted that is delivered as it is. False: it is for a turn. `now`: the
    /// time, once something has asked for it.
    #[inline]
    pub(crate) fn on_event(&mut self, event: NetEvent, now: &mut Option<Instant>) -> bool {
        if let NetEvent::Ready { token, ready } = event
            && !ready.error
            && let Some(key) = channel_of(token)
            && let Some(ch) = self.sockets.get_mut(key)
        {
            match ch.used_by {
                SocketUse::Conn(conn) if ch.is_plain() => {
                    ch.note(ready);
                    return self.on_ready(conn, ready.readable || ready.hangup, ready.writable);
                }
                SocketUse::Alone(conn) if ch.is_plain() => {
                    ch.note(ready);
                    self.read_clock(now);
                    return self.on_connect_ended(key, conn);
                }
                SocketUse::Listener(listener) if ch.accepts_plainly() => {
                    ch.note(ready);
                    self.read_clock(now);
                    return self.accept_all(listener, key);
                }
                _ => {}
            }
        }
        false
    }

    /// Once for all events of a call.
    #[inline]
    fn read_clock(&mut self, now: &mut Option<Instant>) {
        if now.is_none() {
            self.cx.now = self.cx.net.now();
            *now = Some(self.cx.now);
        }
    }

    fn on_connect_ended(&mut self, socket: Key, conn: Key) -> bool {
        // Policies want to see how it went.
        if self.advised {
            return false;
        }
        match self.connect_ended(socket, conn) {
            Some(Ok(connected)) => {
                self.report_connected(conn, connected);
                true
            }
            // What comes next may be another attempt, of any protocol: a turn's business.
            Some(Err(e)) => {
                *self.refused = Some((socket, e));
                false
            }
            None => false,
        }
    }

    /// Accepts those there are, where a connection is no more than its socket. What is left over,
    /// and whatever keeps the listener from accepting, is a turn's business.
    fn accept_all(&mut self, listener: Key, socket: Key) -> bool {
        for _ in 0..ACCEPT_BUDGET {
            let Some(l) = self.listeners.get(listener) else { return false };
            if !l.delivers_plainly() || self.conns.len() >= self.cx.limits.connections {
                return false;
            }
            match self.accept(listener, socket) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => return true,
                Err(e) if gave_up(&e) => {}
                Err(e) => {
                    *self.refused = Some((socket, e));
                    return false;
                }
            }
        }
        false
    }

    /// Whether no deadline that means anything has come. The network is to be armed again where one
    /// was dropped (`Some`).
    #[inline]
    pub(crate) fn nothing_due(&mut self, now: Option<Instant>) -> NextDeadline {
        let Some(next) = self.cx.timers.next() else { return NextDeadline::AsArmed };
        let now = now.unwrap_or_else(|| self.cx.net.now());
        if next > now {
            return NextDeadline::AsArmed;
        }
        // Each connection that was opened by a cached outcome leaves one behind.
        let conns = &*self.conns;
        let awaits = |c: Key| conns.get(c).is_some_and(|c| c.state == ConnectionState::Establishing);
        self.cx.timers.prune_due(now, |t| !matches!(t, Timer::Cached(c) if !awaits(*c)));
        if self.cx.timers.next().is_some_and(|at| at <= now) { NextDeadline::Due } else { NextDeadline::Later }
    }
}

/// What is known of the next deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextDeadline {
    /// It is what the network was armed for, or there is none.
    AsArmed,
    /// Those that had come meant nothing any more: the network is to be armed for a later one.
    Later,
    /// It has come.
    Due,
}
