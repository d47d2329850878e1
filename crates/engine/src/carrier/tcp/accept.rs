//! Connections that come over TCP.
//!
//! *Responsible for* what is accepted, and for its TLS handshake. *Not responsible for* whether and when it is accepted
//! ([`crate::listen`]).

use crate::carrier::FlowId;
use crate::carrier::channel::{Behind, Channel, Kind};
use crate::carrier::dispatch::{CarrierSocket, CarrierTimer};
use crate::conn::Conn;
use crate::engine::fast_path;
use crate::listen::{HANDSHAKE_TIMEOUT, Listener};
use crate::{Engine, Stack};
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_tls::TlsStream;
use neater_tls::rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;

impl Listener {
    /// What TLS runs with at its TCP sockets, if it does.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let config = self.request.0.setups.tls_server.as_ref()?;
        self.addrs.iter().any(|(s, _)| *s == Stack::Tls).then(|| config.clone())
    }

    /// Whether what is accepted has to shake hands before it is delivered.
    pub(crate) fn needs_handshake(&self) -> bool {
        self.tls().is_some()
    }
}

// Until the protocols report events.
impl<N: Net> Engine<N> {
    /// Accepts one connection that is no more than its socket, and delivers it.
    #[inline]
    fn accept_plain(&mut self, listener: Key, key: Key) -> Result<(), NetError> {
        let (channel, _) = self.accept_one(listener, key, Kind::Tcp)?;
        self.incoming_ready(listener, channel);
        Ok(())
    }

    /// Accepts one connection, and delivers it or begins its handshake.
    #[inline]
    pub(crate) fn accept_next(&mut self, listener: Key, key: Key) -> Result<(), NetError> {
        match self.listeners.get(listener).and_then(Listener::tls) {
            Some(config) => self.accept_tls(listener, key, config),
            None if self.cx.config.fast_path && self.listeners.get(listener).is_some_and(Listener::takes_sockets) => {
                fast_path!(self).accept(listener, key)
            }
            None => self.accept_plain(listener, key),
        }
    }

    /// Accepts one connection, whose handshake is to begin later.
    pub(crate) fn accept_to_wait(&mut self, listener: Key, key: Key) -> Result<(Key, SocketAddr), NetError> {
        self.accept_one(listener, key, Kind::TlsPending)
    }

    /// Accepts one connection, and begins its handshake.
    fn accept_tls(&mut self, listener: Key, key: Key, config: Arc<ServerConfig>) -> Result<(), NetError> {
        let (channel, _) = self.accept_one(listener, key, Kind::TlsPending)?;
        self.serve_tls(listener, channel, config);
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
    pub(crate) fn begin_handshake(&mut self, listener: Key, key: Key) {
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
}
