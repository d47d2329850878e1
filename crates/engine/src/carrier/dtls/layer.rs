//! DTLS as a packet layer: packets of another carrier are the messages of sessions
//! ([`crate::carrier::layer`]).
//!
//! *Responsible for* the commands of [`Layers`](crate::carrier::layer::Layers), by which a layer is
//! a socket here, and a path a session. *Not responsible for* what sessions report, which is
//! decided where it happens.

use super::socket::{DtlsSocket, Serves};
use super::{Dtls, DtlsCarrier, Sealed};
use crate::carrier::ids::Due;
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use neater_base::net::{Net, NetError, Sock, SocketOptions};
use neater_base::{Instant, Key};
use std::net::SocketAddr;

impl DtlsCarrier {
    /// A socket with a client's session, which begins its handshake.
    pub(in crate::carrier) fn open_layer<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        user: Key,
        to: (SocketAddr, &str),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        let opened = self.open_client(cx, to, request, options)?;
        Ok(self.lend(user, opened))
    }

    /// The same, for a server that another session leads to.
    pub(in crate::carrier) fn open_layer_beside<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        user: Key,
        (beside, to): (Key, SocketAddr),
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        let opened = self.open_client_beside(cx, (to, beside), request, options)?;
        Ok(self.lend(user, opened))
    }

    /// A client's session and its socket are a layer of this user's.
    fn lend(&mut self, user: Key, (socket, sock, session): (Key, Sock, Key)) -> (Key, Sock) {
        if let Some(d) = self.sessions.get_mut(session) {
            d.user = Some(user);
        }
        if let Some(s) = self.sockets.get_mut(socket) {
            s.user = Some(user);
        }
        (socket, sock)
    }

    /// A listener's socket, for the sessions of its clients.
    pub(in crate::carrier) fn listen_layer<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        (user, listener): (Key, Key),
        addr: SocketAddr,
        request: &Compiled,
        options: &SocketOptions,
    ) -> Result<(Key, Sock), AttemptError> {
        let (socket, sock) = self.open_socket(cx, addr, options)?;
        let mut s = DtlsSocket::server(sock, Serves::new(listener, request));
        s.user = Some(user);
        self.sockets.insert(s);
        Ok((socket, sock))
    }

    /// The session that leads to a peer.
    pub(in crate::carrier) fn path(&self, layer: Key, to: SocketAddr) -> Option<Key> {
        self.sockets.get(layer)?.peers.of_remote(to).next()
    }

    /// Sends packets, each `segment` bytes long but the last: as many datagrams of one length, in
    /// one call.
    ///
    /// # Errors
    /// The error of the network: `WouldBlock` means that the packets are kept until the socket
    /// takes them.
    pub(in crate::carrier) fn send_packets<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        key: Key,
        packets: &[u8],
        segment: usize,
    ) -> Result<(), NetError> {
        let now = cx.now;
        let Some(d) = self.sessions.get_mut(key) else { return Ok(()) };
        let Some(s) = self.sockets.get_mut(d.socket) else { return Ok(()) };
        for packet in packets.chunks(segment.max(1)) {
            if d.session.send(now, packet).is_err() {
                // What the session reports about its end is handled in the next turn.
                cx.timers.push(now, Due::Dtls(key).into());
                return Ok(());
            }
        }
        let mut result = Ok(());
        let mut next = d.session.poll_transmit();
        while let Some(first) = next {
            let mut sealed = Sealed::one(first);
            next = d.session.poll_transmit();
            while let Some(datagram) = next.take_if(|datagram| sealed.takes(datagram)) {
                sealed.bytes.extend_from_slice(&datagram);
                next = d.session.poll_transmit();
            }
            let sent = cx.net.send(s.sock, &d.transmit_all(&sealed));
            if sent.is_err_and(|e| e.is_would_block()) {
                s.writable = false;
                d.blocked = Some(sealed);
            }
            result = result.and(sent);
        }
        result
    }

    /// One more of the user's sessions uses this one.
    pub(in crate::carrier) fn join(&mut self, key: Key) {
        if let Some(d) = self.sessions.get_mut(key) {
            d.users += 1;
        }
    }

    /// One less does.
    pub(in crate::carrier) fn leave<N: Net>(&mut self, cx: &mut Context<N>, key: Key, until: Instant) {
        if self.sessions.get_mut(key).is_some_and(Dtls::leave) {
            cx.timers.push(until, Due::DtlsIncoming(key).into());
        }
    }
}
