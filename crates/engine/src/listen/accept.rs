//! Connections that wait in the kernel until they are accepted.
//!
//! *Responsible for* accepting within the budget and the bounds of a listener.
//! *Not responsible for* whom a full listener gives up for others ([`crate::backlog`]).

use super::{HANDSHAKE_TIMEOUT, Listener};
use crate::carrier::Begun;
use crate::carrier::SessionId;
use crate::carrier::dispatch::CarrierTimer;
use crate::conn::Conn;
use crate::engine::fast_path;
use crate::event::{ConnectionError, Event};
use crate::timer::Timer;
use crate::{ConnectionId, Engine, ListenerId};
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use std::net::IpAddr;
use std::sync::Arc;

/// Connections accepted per socket and turn.
pub(crate) const ACCEPT_BUDGET: usize = 64;
/// A listener without descriptors tries again after this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

impl Listener {
    /// One more of what the listener may deliver is delivered; `max`: how many the program may leave untaken.
    pub(crate) fn count_received(&mut self, max: usize) {
        self.backlog.count_untaken(max);
        if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(1);
        }
    }

    /// Whether it has room, and what is accepted can be delivered as soon as it has its whole stack: no framer, no rate.
    pub(crate) fn delivers_plainly(&self) -> bool {
        let has_room = self.limit.is_none_or(|n| n > 0) && !self.backlog.is_full() && !self.backlog.has_waiting();
        has_room && self.takes_sockets() && self.handshaking == 0
    }

    /// Whether a connection over TCP is ready as soon as TCP is: no framer, no rate.
    #[inline]
    pub(crate) fn takes_sockets(&self) -> bool {
        let request = &self.request.0;
        !request.framer.frames() && request.rates == (None, None)
    }
}

/// Whether it concerns the connection alone that was to be accepted: its peer has gone while it waited.
pub(crate) fn gave_up(error: &NetError) -> bool {
    matches!(error.kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

impl<N: Net> Engine<N> {
    pub(crate) fn accept_again(&mut self, listener: Key) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.accept_armed = None;
        for at in l.listening.clone() {
            if let Some(socket) = self.carriers.accepts_at(at) {
                self.accept(listener, socket);
            }
        }
    }

    /// Accepts what waits, within the budget and the limits.
    pub(crate) fn accept(&mut self, listener: Key, key: Key) {
        if let Some(e) = self.take_refused(key) {
            return self.cannot_accept(listener, e);
        }
        let mut crowd = None;
        for round in 0.. {
            let Some(c) = self.carriers.channels.get(key) else { return };
            if !c.accepts() {
                return;
            }
            let Some(l) = self.listeners.get(listener) else { return };
            if l.limit == Some(0) || l.backlog.is_full() {
                return;
            }
            // Those in their handshake will be delivered, too: they count against the limit.
            let limited = l.limit.is_some_and(|n| n <= l.handshaking as u64);
            let mut crowded = None;
            if limited || l.handshaking >= self.cx.limits.handshakes {
                match self.evict_handshake(listener, None) {
                    Ok(()) => {}
                    Err(Some(at)) => {
                        // Asked once: a crowd does not come and go within one turn.
                        match *crowd.get_or_insert_with(|| self.crowd(listener)) {
                            Some(source) if !limited => crowded = Some((at, source)),
                            _ => return self.delay_accept(listener, at - self.cx.now),
                        }
                    }
                    Err(None) => return,
                }
            }
            let Some(l) = self.listeners.get(listener) else { return };
            if self.conns.len() >= self.cx.limits.connections {
                // Whose end will make room is not known: look again.
                return self.delay_accept(listener, ACCEPT_RETRY);
            }
            if round >= ACCEPT_BUDGET {
                self.cx.again = true;
                return self.arm_accept(listener, Duration::ZERO);
            }
            if crowded.is_none() && l.backlog.has_waiting() {
                if let Some(waited) = self.has_waited(listener) {
                    self.begin_handshake(listener, waited);
                }
                continue;
            }
            if let Some((at, crowd)) = crowded
                && let Err(again) = self.make_room_to_wait(listener, crowd)
            {
                return self
                    .arm_accept(listener, again.map_or(at, |again| again.min(at)).saturating_since(self.cx.now));
            }
            let accepted = match crowded {
                Some((_, crowd)) => self.accept_of_many(listener, key, crowd),
                None => self.accept_next(listener, key),
            };
            match accepted {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    if let Some(c) = self.carriers.channels.get_mut(key) {
                        c.readable = false;
                    }
                    if let Some((at, _)) = crowded {
                        self.arm_accept(listener, at.saturating_since(self.cx.now));
                    }
                    return;
                }
                Err(e) if gave_up(&e) => {}
                Err(e) => return self.cannot_accept(listener, e),
            }
        }
    }

    /// Accepts one connection, and delivers it or begins its handshake.
    #[inline]
    fn accept_next(&mut self, listener: Key, key: Key) -> Result<(), NetError> {
        if self.cx.config.fast_path
            && self.carriers.accepts_plainly(key)
            && self.listeners.get(listener).is_some_and(Listener::takes_sockets)
        {
            return fast_path!(self).accept(listener, key);
        }
        let (channel, _) = self.carriers.accept_from(&mut self.cx, listener, key)?;
        self.begin_handshake(listener, channel);
        Ok(())
    }

    /// The handshake begins of a connection that was accepted.
    fn begin_handshake(&mut self, listener: Key, channel: Key) {
        if !self.listeners.contains(listener) {
            return;
        }
        match self.carriers.begin_handshake(&mut self.cx, channel) {
            Begun::Complete(session) => drop(self.accepted(session, listener)),
            Begun::Open => {
                self.count_handshake(listener, channel);
                self.carriers.advance_incoming(&mut self.cx, channel);
                // What it is bounded by counts before the next is accepted.
                self.drain_carriers();
            }
            Begun::Failed => {}
        }
    }

    /// A session that carries one connection is up at a listener, which takes it. `None`: one of them is gone.
    pub(crate) fn accepted(&mut self, session: SessionId, listener: Key) -> Option<Key> {
        let l = self.listeners.get(listener)?;
        let (stack, _) = self.carriers.describe(session)?;
        let mut c = Conn::new(l.request.0.clone(), Arc::default(), self.cx.now);
        (c.stack, c.passive) = (Some(stack), true);
        let conn = self.conns.insert(c);
        let (flow, superseded) = self.carriers.accept(&mut self.cx, session, conn);
        if let Some(c) = self.conns.get_mut(conn) {
            c.flow = flow;
        }
        if let Some(superseded) = superseded {
            self.fail_connection(superseded, ConnectionError::Net(ErrorKind::ConnectionReset.into()));
        }
        self.deliver_incoming(listener, conn);
        Some(conn)
    }

    /// Tells of what keeps a listener from accepting, once for each time that it tries again.
    #[cold]
    fn cannot_accept(&mut self, listener: Key, error: NetError) {
        if matches!(error.kind, ErrorKind::TooManyFiles | ErrorKind::NoBuffers) {
            self.note_shortage();
        }
        if self.arm_accept_once(listener, ACCEPT_RETRY) {
            self.notify_listener(listener, Event::ListenerError(error));
        }
    }

    /// Accepts one connection while one source, `crowd`, holds most of the room: it takes the place of one of that source's, or waits.
    #[cold]
    fn accept_of_many(&mut self, listener: Key, key: Key, crowd: IpAddr) -> Result<(), NetError> {
        let (channel, remote) = self.carriers.accept_from(&mut self.cx, listener, key)?;
        // The crowd's own never displace one of their own, and cost no look at all that there are.
        if crate::eviction::source(remote.ip()) != crowd && self.evict_handshake(listener, Some(remote.ip())).is_ok() {
            self.begin_handshake(listener, channel);
        } else {
            self.cx.timers.push(self.cx.now + HANDSHAKE_TIMEOUT, CarrierTimer::channel(channel));
            self.wait_for_handshake(listener, channel);
        }
        Ok(())
    }

    /// Leaves what waits in the kernel, because a limit was reached.
    fn delay_accept(&mut self, listener: Key, after: Duration) {
        if self.arm_accept_once(listener, after) {
            self.cx.stats.refusals.delays += 1;
        }
    }

    fn arm_accept(&mut self, listener: Key, after: Duration) {
        self.arm_accept_once(listener, after);
    }

    /// Sets the deadline to accept again, unless an earlier one is set. True: none was.
    fn arm_accept_once(&mut self, listener: Key, after: Duration) -> bool {
        let Some(l) = self.listeners.get_mut(listener) else { return false };
        let at = self.cx.now + after;
        if l.accept_armed.is_some_and(|armed| armed <= at) {
            return false;
        }
        let is_first = l.accept_armed.replace(at).is_none();
        self.cx.timers.push(at, Timer::Accept(listener));
        is_first
    }

    pub(crate) fn handshake_over(&mut self, listener: Key) {
        let full = self.cx.limits.handshakes;
        let Some(l) = self.listeners.get_mut(listener) else { return };
        let was_full = l.handshaking >= full || l.limit.is_some_and(|n| n <= l.handshaking as u64);
        l.handshaking = l.handshaking.saturating_sub(1);
        if was_full {
            self.cx.again = true;
            self.arm_accept(listener, Duration::ZERO);
        }
    }

    /// Tells of a connection that a listener delivers.
    #[inline]
    pub(crate) fn report_received(&mut self, listener: Key, conn: Key) {
        self.cx.stats.received += 1;
        self.count_received(listener);
        self.notices.push_received(ListenerId(listener), ConnectionId(conn));
    }
}
