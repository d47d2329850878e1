//! What a listener needs: sockets that listen, and the end of their listening.
//!
//! *Responsible for* opening such a socket for a stack, for opening one again that is there for the
//! connections of a listener that has stopped, and for closing it. *Not responsible for* limits and
//! fairness ([`crate::listen`], [`crate::backlog`]).
//!
//! *Invariants*: connections that were delivered go on when their socket does not listen any more;
//! it is closed with the last of them.

use super::Carriers;
use super::channel::{Channel, Kind, SocketUse};
use super::sctp::PacketLayer;
use super::udp::shared::Shared;
use crate::Stack;
use crate::carrier::ids::CarrierSocket;
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Net, SocketOptions};
use std::net::SocketAddr;
use std::sync::Arc;

/// A socket that listens, or the part of one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening(Place);

/// What is inside a [`Listening`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A TCP socket, or one of UDP that connections share.
    Channel(Key),
    /// A socket of QUIC's.
    Quic(Key),
    /// An SCTP port.
    Sctp(Key),
    /// A socket of DTLS sessions.
    Dtls(Key),
}

impl Carriers {
    /// Where something listens.
    pub(crate) fn listening_addr<N: Net>(&self, cx: &Context<N>, at: Listening) -> Result<SocketAddr, AttemptError> {
        let sock = match at.0 {
            Place::Channel(key) => self.sockets.channels.get(key).map(|c| c.sock),
            Place::Quic(key) => self.quic.sockets.get(key).map(|s| s.sock),
            Place::Sctp(end) => return self.sctp.listening_addr(cx, end),
            Place::Dtls(key) => self.dtls.sock(key),
        };
        Ok(cx.net.local_addr(sock.ok_or(AttemptError::NoAddress)?)?)
    }

    /// The port of UDP below the ports of a protocol that has ports of its own.
    pub(crate) fn encapsulation_port<N: Net>(&self, cx: &Context<N>, at: Listening) -> Option<u16> {
        match at.0 {
            Place::Sctp(end) => self.sctp.udp_port(cx, end),
            Place::Channel(_) | Place::Quic(_) | Place::Dtls(_) => None,
        }
    }

    /// Opens a socket that listens for TCP, or for the peers of UDP; or takes one of these that a
    /// listener has left.
    fn open_channel<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        listener: Key,
        (stack, addr): (Stack, SocketAddr),
        request: &Compiled,
        options: SocketOptions,
    ) -> Result<Key, AttemptError> {
        if stack.over_udp()
            && let Some(key) = self.reopen_shared(listener, stack, request, &options)
        {
            return Ok(key);
        }
        let key = self.sockets.channels.next_key();
        let token = CarrierSocket::channel(key).token();
        let (sock, kind) = match stack {
            Stack::Udp => {
                (cx.net.udp(token, addr, &options)?, Kind::UdpShared(Box::new(Shared::new(request.soft_errors))))
            }
            _ => {
                let tls = request.setups.tls_server.as_ref().filter(|_| stack == Stack::Tls).cloned();
                (cx.net.listen(token, addr, &options)?, Kind::Accept(tls))
            }
        };
        let local = cx.net.local_addr(sock).inspect_err(|_| cx.net.close(sock))?;
        let mut channel = Channel::new(sock, kind, SocketUse::Listener(listener), addr, cx.now);
        channel.connected = true;
        channel.writable = stack.over_udp();
        self.sockets.channels.insert(channel);
        if stack.over_udp() {
            self.sockets.shared.push((key, SocketOptions { local: Some(local), ..options }));
        }
        Ok(key)
    }

    /// Listens again at a UDP socket that is there for the connections of a listener that has
    /// stopped, if there is one: another cannot have its port.
    fn reopen_shared(
        &mut self,
        listener: Key,
        stack: Stack,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Option<Key> {
        let channels = &mut self.sockets.channels;
        self.sockets.left_behind.retain(|(key, _)| channels.contains(*key));
        let fits = |key: &Key| match channels.get(*key).map(|c| &c.kind) {
            Some(Kind::UdpShared(_)) => stack == Stack::Udp,
            _ => false,
        };
        let at = self.sockets.left_behind.iter().position(|(key, of)| of == options && fits(key))?;
        let (key, options) = self.sockets.left_behind.swap_remove(at);
        let channel = channels.get_mut(key)?;
        channel.used_by = SocketUse::Listener(listener);
        if let Kind::UdpShared(shared) = &mut channel.kind {
            shared.soft_errors = request.soft_errors;
        }
        self.sockets.shared.push((key, options));
        Some(key)
    }

    /// Aborts what was accepted for a listener and is not delivered.
    pub(crate) fn abort_undelivered<N: Net>(&mut self, cx: &mut Context<N>, listener: Key) {
        let unfinished: Vec<_> = self
            .sockets
            .channels
            .iter()
            .filter(|(_, c)| c.used_by == SocketUse::Listener(listener) && !matches!(c.kind, Kind::UdpShared(_)))
            .map(|(k, _)| k)
            .collect();
        for key in unfinished {
            self.sockets.abort_channel(cx, key);
        }
    }

    /// Listens with a stack at an address, whose port may be 0 for any; `udp_port`: at which port
    /// of UDP, where the stack has other ports above it.
    ///
    /// # Errors
    /// The system refuses. Nothing was opened then.
    pub(crate) fn open_listening<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        listener: Key,
        stack: Stack,
        (addr, udp_port): (SocketAddr, Option<u16>),
        interface: Option<u32>,
        request: &Arc<Compiled>,
    ) -> Result<Listening, AttemptError> {
        let base = request.setups.socket_options(stack);
        // Engines that share a secret may share ports.
        let reuse_address = base.reuse_address || cx.config.shared_secret.is_some();
        let mut options = SocketOptions { interface, local: Some(addr), reuse_address, ..base.clone() };
        options.set.extend(request.setups.option_for_family(stack, addr.is_ipv4())?);
        Ok(Listening(if matches!(stack, Stack::Quic | Stack::QuicDatagram) {
            Place::Quic(match self.quic.reopen_socket(cx, &options, listener, request)? {
                Some(key) => key,
                None => self.quic.open_socket(cx, addr, &options, Some((listener, request)))?,
            })
        } else if let Some(below) = PacketLayer::of(stack) {
            let at = SocketAddr::new(addr.ip(), stack.encapsulation_port(udp_port).unwrap_or(neater_sctp::UDP_PORT));
            let options = SocketOptions { local: Some(at), ..options };
            let (sctp, mut layers) = self.over_layers();
            let at = (below, addr.port());
            Place::Sctp(sctp.listen(cx, &mut layers, (listener, request), at, &options)?)
        } else if stack == Stack::Dtls {
            Place::Dtls(self.dtls.listen(cx, listener, addr, request, &options)?)
        } else {
            Place::Channel(self.open_channel(cx, listener, (stack, addr), request, options)?)
        }))
    }

    /// Tries a socket that has begun to listen: no event is promised before that. Returns it if
    /// connections are accepted from it ([`super::SocketCarrier::accept_from`]).
    pub(crate) fn poll_listening<N: Net>(&mut self, cx: &mut Context<N>, at: Listening) -> Option<Key> {
        match at.0 {
            Place::Channel(key) if self.sockets.channels.get(key).is_some_and(Channel::accepts) => return Some(key),
            Place::Channel(key) => self.sockets.shared_ready(cx, key, false),
            Place::Quic(key) => self.quic.socket_readable(cx, key),
            Place::Sctp(end) => match self.sctp.layer_below(end) {
                Some(layer) => self.read_sessions(layer, None),
                None => self.sctp.poll_endpoint(cx, end),
            },
            Place::Dtls(key) => self.read_sessions(key, None),
        }
        None
    }

    /// The socket from which connections are accepted, where these wait in the kernel.
    pub(crate) fn accepts_at(&self, at: Listening) -> Option<Key> {
        match at.0 {
            Place::Channel(key) => Some(key).filter(|k| self.sockets.channels.get(*k).is_some_and(Channel::accepts)),
            Place::Quic(_) | Place::Sctp(_) | Place::Dtls(_) => None,
        }
    }

    /// A socket no longer listens; it lives on for the connections that it has.
    pub(crate) fn stop_listening<N: Net>(&mut self, cx: &mut Context<N>, at: Listening) {
        match at.0 {
            Place::Channel(key) => self.stop_listening_at_channel(cx, key),
            Place::Quic(key) => self.quic.stop_listening(cx, key),
            Place::Sctp(end) => {
                if let Some(layer) = self.sctp.layer_below(end) {
                    self.layers().stop_listening(cx, layer);
                }
                self.sctp.stop_listening(cx, end);
                // The next listener at this port does not wait for a turn.
                self.tie(cx);
            }
            Place::Dtls(key) => self.dtls.stop_listening(cx, key),
        }
    }

    fn stop_listening_at_channel<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let shared = self.sockets.shared.iter().position(|(of, _)| *of == key);
        let shared = shared.map(|at| self.sockets.shared.swap_remove(at));
        self.sockets.left_behind.retain(|(key, _)| self.sockets.channels.contains(*key));
        let kept = match self.sockets.channels.get(key).map(|c| &c.kind) {
            Some(Kind::UdpShared(shared)) => !shared.peers.is_empty(),
            _ => false,
        };
        if kept {
            self.sockets.left_behind.extend(shared);
        } else if let Some(c) = self.sockets.channels.remove(key) {
            cx.net.close(c.sock);
        }
    }
}
