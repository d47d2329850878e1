//! Connections that come over TCP.
//!
//! *Responsible for* what is accepted, and for its TLS handshake. *Not responsible for* whether and
//! when it is accepted ([`crate::listen`]).

use crate::carrier::channel::{Channel, Kind, SocketUse};
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::{CarrierSocket, CarrierTimer};
use crate::carrier::{SessionId, SocketCarrier};
use crate::context::Context;
use crate::context::HANDSHAKE_TIMEOUT;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_tls::TlsStream;
use std::net::SocketAddr;

/// How the handshake of a connection that was accepted has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// There is none: the connection has its whole stack.
    Complete(SessionId),
    /// It goes on with [`SocketCarrier::advance_incoming`].
    Open,
    /// It could not begin, and the connection is gone.
    Failed,
}

impl SocketCarrier {
    /// Whether what is accepted at a socket has its whole stack at once.
    #[inline]
    pub(crate) fn accepts_plainly(&self, at: Key) -> bool {
        self.channels.get(at).is_some_and(Channel::accepts_plainly)
    }

    /// Accepts one connection for a listener; [`SocketCarrier::begin_handshake`] follows, now or
    /// later.
    ///
    /// # Errors
    /// The error of the operating system; [`ErrorKind::WouldBlock`]: none waits.
    #[inline]
    pub(crate) fn accept_from<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        listener: Key,
        at: Key,
    ) -> Result<(Key, SocketAddr), NetError> {
        let Some(Channel { sock, kind: Kind::Accept(tls), .. }) = self.channels.get(at) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let (sock, remote) = cx.net.accept(*sock, CarrierSocket::channel(self.channels.next_key()).token())?;
        let kind = Kind::Accepted(tls.clone());
        let mut channel = Channel::new(sock, kind, SocketUse::Listener(listener), remote, cx.now);
        (channel.connected, channel.writable, channel.readable) = (true, true, true);
        Ok((self.channels.insert(channel), remote))
    }

    /// The handshake begins of a connection that was accepted. It has to be counted before it goes
    /// on.
    pub(crate) fn begin_handshake<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Begun {
        let Some(channel) = self.channels.get_mut(key) else { return Begun::Failed };
        channel.started = cx.now;
        let config = match &mut channel.kind {
            Kind::Accepted(config) => config.take(),
            _ => return Begun::Failed,
        };
        let Some(config) = config else {
            channel.kind = Kind::Tcp;
            return Begun::Complete(SessionId::Channel(key));
        };
        match TlsStream::server(config) {
            Ok(tls) => {
                channel.kind = Kind::Tls(Box::new(tls));
                cx.timers.push(cx.now + HANDSHAKE_TIMEOUT, CarrierTimer::channel(key));
                Begun::Open
            }
            Err(_) => {
                self.abort_channel(cx, key);
                Begun::Failed
            }
        }
    }

    /// Moves the handshake of an incoming connection on, and reports what has become of it.
    pub(crate) fn advance_incoming<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(listener) = self.channels.get(key).and_then(|c| c.used_by.listener()) else { return };
        let complete = match self.drive_tls(cx, key) {
            Ok(true) => true,
            Ok(false) if self.has_early(key) => {
                // The request allows early data, or it would not have been accepted.
                if let Some(ch) = self.channels.get_mut(key) {
                    ch.deadline = Some(ch.started + HANDSHAKE_TIMEOUT);
                }
                true
            }
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(target: "neater::listen", "handshake failed: {error}");
                if let Some(c) = self.channels.remove(key) {
                    cx.net.close(c.sock);
                }
                false
            }
        };
        self.events.push_back(CarrierEvent::HandshakeOver { listener });
        if complete {
            let session = SessionId::Channel(key);
            self.events.push_back(CarrierEvent::Accepted { session, listener });
        }
    }

    /// A connection that was accepted is carried by its socket from now on.
    #[inline]
    pub(in crate::carrier) fn hand_over(&mut self, key: Key, conn: Key) {
        if let Some(ch) = self.channels.get_mut(key) {
            ch.used_by = SocketUse::Conn(conn);
        }
    }
}
