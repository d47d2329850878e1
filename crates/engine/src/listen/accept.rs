//! Connections that come over TCP.
//!
//! *Responsible for* accepting within the budget and the bounds of a listener, and for TLS handshakes of what was accepted.
//! *Not responsible for* whom a full listener gives up for others ([`crate::backlog`]).

use super::{HANDSHAKE_TIMEOUT, Listener};
use crate::carrier::FlowId;
use crate::carrier::channel::{Behind, Channel, Kind};
use crate::carrier::dispatch::{CarrierSocket, CarrierTimer};
use crate::conn::Conn;
use crate::engine::fast_path;
use crate::event::Event;
use crate::timer::Timer;
use crate::{ConnectionId, Engine, ListenerId, Stack};
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_tls::TlsStream;
use neater_tls::rustls::ServerConfig;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Connections accepted per socket and turn.
pub(super) const ACCEPT_BUDGET: usize = 64;
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

    /// What TLS runs with at its TCP sockets, if it does.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let config = self.request.0.setups.tls_server.as_ref()?;
        self.addrs.iter().any(|(s, _)| *s == Stack::Tls).then(|| config.clone())
    }

    /// Whether it has room, and what comes over TCP can be delivered as it is: no handshake, no framer, no rate.
    pub(crate) fn delivers_plainly(&self) -> bool {
        let has_room = self.limit.is_none_or(|n| n > 0) && !self.backlog.is_full() && !self.backlog.has_waiting();
        has_room && self.takes_sockets() && self.handshaking == 0 && self.tls().is_none()
    }

    /// Whether a connection over TCP is ready as soon as TCP is: no framer, no rate.
    #[inline]
    fn takes_sockets(&self) -> bool {
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
        for key in l.channels.clone() {
            self.accept(listener, key);
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
            if !matches!(c.kind, Kind::Accept) {
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
            let accepted = match (crowded, self.listeners.get(listener).and_then(Listener::tls)) {
                (Some((_, crowd)), _) => self.accept_of_many(listener, key, crowd),
                (None, Some(config)) => self.accept_tls(listener, key, config),
                (None, None)
                    if self.cx.config.fast_path
                        && self.listeners.get(listener).is_some_and(Listener::takes_sockets) =>
                {
                    fast_path!(self).accept(listener, key)
                }
                (None, None) => self.accept_plain(listener, key),
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

    /// Accepts one connection that is no more than its socket, and delivers it.
    #[inline]
    pub(crate) fn accept_plain(&mut self, listener: Key, key: Key) -> Result<(), NetError> {
        let (channel, _) = self.accept_one(listener, key, Kind::Tcp)?;
        self.incoming_ready(listener, channel);
        Ok(())
    }

    /// Accepts one connection, and begins its handshake.
    fn accept_tls(&mut self, listener: Key, key: Key, config: Arc<ServerConfig>) -> Result<(), NetError> {
        let (channel, _) = self.accept_one(listener, key, Kind::TlsPending)?;
        self.serve_tls(listener, channel, config);
        Ok(())
    }

    /// Accepts one connection while one source, `crowd`, holds most of the room: it takes the place of one of that source's, or waits.
    #[cold]
    fn accept_of_many(&mut self, listener: Key, key: Key, crowd: IpAddr) -> Result<(), NetError> {
        let (channel, remote) = self.accept_one(listener, key, Kind::TlsPending)?;
        // The crowd's own never displace one of their own, and cost no look at all that there are.
        if crate::backlog::source(remote.ip()) != crowd && self.evict_handshake(listener, Some(remote.ip())).is_ok() {
            self.begin_handshake(listener, channel);
        } else {
            self.cx.timers.push(self.cx.now + HANDSHAKE_TIMEOUT, CarrierTimer::channel(channel));
            self.wait_for_handshake(listener, channel);
        }
        Ok(())
    }

    /// Takes one connection from the network.
    #[inline]
    fn accept_one(&mut self, listener: Key, key: Key, kind: Kind) -> Result<(Key, SocketAddr), NetError> {
        let Some(sock) = self.carriers.channels.get(key).map(|c| c.sock) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let (sock, remote) =
            self.cx.net.accept(sock, CarrierSocket::channel(self.carriers.channels.next_key()).token())?;
        let mut channel = Channel::new(sock, kind, Behind::Listener(listener), remote, self.cx.now);
        (channel.connected, channel.writable, channel.readable) = (true, true, true);
        Ok((self.carriers.channels.insert(channel), remote))
    }

    /// The handshake begins of a connection that was accepted earlier.
    #[cold]
    fn begin_handshake(&mut self, listener: Key, key: Key) {
        let Some(l) = self.listeners.get(listener) else { return };
        let tls = l.tls();
        let Some(channel) = self.carriers.channels.get_mut(key) else { return };
        channel.started = self.cx.now;
        if let Some(config) = tls {
            return self.serve_tls(listener, key, config);
        }
        channel.kind = Kind::Tcp;
        self.incoming_ready(listener, key);
    }

    fn serve_tls(&mut self, listener: Key, key: Key, config: Arc<ServerConfig>) {
        let Some(channel) = self.carriers.channels.get_mut(key) else { return };
        match TlsStream::server(config) {
            Ok(tls) => {
                channel.kind = Kind::Tls(Box::new(tls));
                self.count_handshake(listener, key);
                self.cx.timers.push(self.cx.now + HANDSHAKE_TIMEOUT, CarrierTimer::channel(key));
                self.drive_incoming(listener, key);
            }
            Err(_) => {
                if let Some(gone) = self.carriers.channels.remove(key) {
                    self.cx.net.abort(gone.sock);
                }
            }
        }
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

    /// Moves the handshake of an incoming connection on.
    pub(crate) fn drive_incoming(&mut self, listener: Key, key: Key) {
        match self.drive_tls(key) {
            Ok(true) => {
                self.handshake_over(listener);
                self.incoming_ready(listener, key);
            }
            Ok(false) if self.carriers.has_early(key) => {
                // The request says that early data is welcome, or it would not have been accepted.
                let deadline = self.carriers.channels.get(key).map(|c| c.started + HANDSHAKE_TIMEOUT);
                self.handshake_over(listener);
                self.incoming_ready(listener, key);
                if let Some(ch) = self.carriers.channels.get_mut(key) {
                    ch.deadline = deadline;
                }
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(target: "neater::listen", "handshake failed: {error}");
                if let Some(c) = self.carriers.channels.remove(key) {
                    self.cx.net.close(c.sock);
                }
                self.handshake_over(listener);
            }
        }
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

    /// An incoming connection over TCP has its whole stack.
    #[inline]
    fn incoming_ready(&mut self, listener: Key, key: Key) {
        let Some(l) = self.listeners.get(listener) else { return };
        let Some(ch) = self.carriers.channels.get_mut(key) else { return };
        let (request, now) = (l.request.0.clone(), self.cx.now);
        let stack = if matches!(ch.kind, Kind::Tcp) { Stack::Tcp } else { Stack::Tls };
        let mut c = Conn::new(request, Arc::default(), now);
        (c.stack, c.passive, c.flow) = (Some(stack), true, FlowId::Channel(key));
        let conn = self.conns.insert(c);
        ch.behind = Behind::Conn(conn);
        ch.deadline = None;
        self.deliver_incoming(listener, conn);
    }

    /// Tells of a connection that a listener delivers.
    #[inline]
    pub(crate) fn report_received(&mut self, listener: Key, conn: Key) {
        self.cx.stats.received += 1;
        self.count_received(listener);
        self.notices.push_received(ListenerId(listener), ConnectionId(conn));
    }
}
