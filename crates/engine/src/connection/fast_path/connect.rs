//! Connections that are no more than their socket: opened, accepted and released.

use super::FastPath;
use crate::carrier::FlowId;
use crate::carrier::channel::{Channel, SocketUse};
use crate::carrier::ids::CarrierSocket;
use crate::conn::{Conn, ConnectionState};
use crate::timer::Timer;
use crate::{ConnectionId, ListenerId, RemoteEndpoint, Request, Stack};
use core::num::NonZeroU64;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_race::Outcome;
use std::sync::Arc;

/// What has become of an attempt that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connected {
    NotYet,
    /// The program has released the connection meanwhile.
    AndReleased,
    AndWanted,
}

impl<N: Net> FastPath<'_, N> {
    /// Whether a connection of this request to this endpoint may be opened here at all.
    #[inline]
    pub(crate) fn may_connect(&self, request: &Request, remote: &RemoteEndpoint) -> bool {
        request.0.direct && remote.interface.is_none() && !self.advised && self.conns.len() < self.cx.limits.connections
    }

    /// Opens a connection by its cached outcome, over TCP. `None`: not here; why, the general way
    /// will find out.
    #[inline(always)]
    pub(crate) fn connect(
        &mut self,
        request: &Request,
        remotes: &Arc<[RemoteEndpoint]>,
        network: NonZeroU64,
        outcome: &Outcome,
    ) -> Option<Key> {
        if outcome.stack.0 != Stack::PLAIN as u16 {
            return None;
        }
        let (addr, patience) = (&outcome.addr, crate::establish::patience(outcome, &request.0));
        self.cx.stats.attempts += 1;
        let (now, net, sockets) = (self.cx.now, &mut self.cx.net, &mut *self.sockets);
        let conn = self.conns.try_insert_with(|conn| {
            let channel = sockets.try_insert_with(|channel| {
                let sock = net
                    .connect(
                        CarrierSocket::channel(channel).token(),
                        *addr,
                        request.0.setups.socket_options(Stack::PLAIN),
                    )
                    .ok()?;
                Some(Channel::plain(sock, SocketUse::Alone(conn), *addr, now))
            })?;
            let mut new = Conn::new(request.0.clone(), remotes.clone(), now);
            new.network = Some(network);
            new.flow = FlowId::Channel(channel);
            Some(new)
        })?;
        self.cx.stats.initiated += 1;
        self.cx.stats.cache_hits += 1;
        self.cx.timers.push_in_order(now.after_nanos(patience), Timer::Cached(conn));
        Some(conn)
    }

    /// The cached outcome, tried alone over plain TCP, has ended, or has not ended after all.
    /// `None`: this is not that way.
    #[inline]
    pub(crate) fn connect_ended(&mut self, socket: Key, conn: Key) -> Option<Result<Connected, NetError>> {
        let ch = self.sockets.get_mut(socket)?;
        if !ch.is_plain() || !ch.writable || ch.connected {
            return None;
        }
        let c = self.conns.get_mut(conn).filter(|c| c.is_plain())?;
        // The result can be asked for only once.
        Some(match self.cx.net.connect_result(ch.sock) {
            Ok(()) => {
                ch.connected = true;
                // Nothing was promised about readability, so it must be tried.
                ch.readable = true;
                ch.used_by = SocketUse::Conn(conn);
                c.state = ConnectionState::Established;
                c.stack = Some(Stack::PLAIN);
                c.since = self.cx.now;
                Ok(if c.released { Connected::AndReleased } else { Connected::AndWanted })
            }
            Err(e) if e.is_would_block() => {
                ch.writable = false;
                Ok(Connected::NotYet)
            }
            Err(e) => Err(e),
        })
    }

    /// Reports a connection that [`FastPath::connect_ended`] has found to be established.
    #[inline]
    pub(crate) fn report_connected(&mut self, conn: Key, connected: Connected) {
        if connected != Connected::NotYet {
            self.cx.stats.established += 1;
        }
        if connected == Connected::AndWanted {
            self.notices.push_ready(ConnectionId(conn));
        }
    }

    /// Accepts a connection that is delivered as it is.
    pub(crate) fn accept(&mut self, listener: Key, socket: Key) -> Result<(), NetError> {
        let (Some(l), Some(ch)) = (self.listeners.get(listener), self.sockets.get(socket)) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let request = l.request.0.clone();
        let key = self.sockets.next_key();
        let (sock, remote) = self.cx.net.accept(ch.sock, CarrierSocket::channel(key).token())?;
        let now = self.cx.now;
        let sockets = &mut *self.sockets;
        let inserted = self.conns.try_insert_with(|conn| {
            let mut channel = Channel::plain(sock, SocketUse::Conn(conn), remote, now);
            (channel.connected, channel.writable, channel.readable) = (true, true, true);
            sockets.insert(channel);
            let mut c = Conn::new(request, Arc::default(), now);
            (c.stack, c.passive, c.flow) = (Some(Stack::PLAIN), true, FlowId::Channel(key));
            c.state = ConnectionState::Established;
            Some(c)
        });
        let Some(conn) = inserted else { return Ok(()) };
        self.cx.stats.established += 1;
        self.cx.stats.received += 1;
        if let Some(l) = self.listeners.get_mut(listener) {
            l.count_received(self.cx.limits.untaken);
        }
        self.notices.push_received(ListenerId(listener), ConnectionId(conn));
        Ok(())
    }

    /// The program has released the connection: a plain one that was not reported on is removed.
    /// False: it was not removed.
    #[inline]
    pub(crate) fn release(&mut self, conn: Key) -> bool {
        let sockets = &mut *self.sockets;
        let on = self.cx.config.fast_path;
        let sock = self.conns.discard_if(conn, |c| {
            c.released = true;
            // A plain TCP connection on which nothing was sent or received needs no orderly close.
            let silent = c.state == ConnectionState::Established
                && (c.bytes_sent, c.bytes_received) == (0, 0)
                && c.cold.is_none()
                && c.group.is_none()
                && c.tx.is_empty();
            match c.flow {
                FlowId::Channel(k) if silent && on => sockets.discard_if(k, |ch| ch.is_plain().then_some(ch.sock)),
                _ => None,
            }
        });
        if let Some(sock) = sock {
            self.cx.net.close(sock);
        }
        sock.is_some()
    }
}
