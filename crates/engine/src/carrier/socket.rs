//! Sockets of TCP and UDP: what their readiness and their deadlines mean.
//!
//! *Responsible for* finding out whose a socket is, and for the work that its carrier has with it.
//! *Not responsible for* the readiness of a connection, which its reader and writer are notified
//! of: that is returned, not reported, because it is the commonest of all.

use super::SessionId;
use super::channel::{Channel, Kind, SocketUse};
use super::event::{CarrierEvent, Events};
use super::terms::{At, Reading};
use crate::config::Refusal;
use crate::context::Context;
use crate::context::HANDSHAKE_TIMEOUT;
use crate::event::AttemptError;
use neater_base::net::{Net, Ready, SocketOptions};
use neater_base::{Key, Slab};
use std::collections::VecDeque;

/// Whose a socket is that has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A connection's, that may be worth reading or writing.
    Conn { conn: Key, readable: bool, writable: bool },
    /// A connection's, and the system reports an error.
    Error { conn: Key },
    /// The only attempt of this connection. [`SocketCarrier::on_socket_ready`] follows, unless its
    /// end was found in another way.
    Alone { conn: Key },
    /// A listener's, which may accept from it.
    Accepts { listener: Key },
    /// Anything else, which [`SocketCarrier::on_socket_ready`] sees to; `writable`: that is news.
    Other { writable: bool },
}

impl Channel {
    /// Whether connections are accepted from it that have their whole stack at once.
    #[inline]
    pub(crate) fn accepts_plainly(&self) -> bool {
        matches!(self.kind, Kind::Accept(None))
    }

    /// Notes readiness, and finds out whose the socket is.
    #[inline]
    fn wake(&mut self, ready: Ready) -> Woken {
        let (readable, writable) = self.note(ready);
        match self.used_by {
            SocketUse::Conn(conn) if ready.error => Woken::Error { conn },
            SocketUse::Conn(conn) => {
                let readable = readable || ready.readable || ready.hangup;
                Woken::Conn { conn, readable, writable: writable || ready.writable }
            }
            SocketUse::Alone(conn) => Woken::Alone { conn },
            SocketUse::Listener(listener) if self.accepts() => Woken::Accepts { listener },
            _ => Woken::Other { writable },
        }
    }
}

/// The sockets of TCP, TLS and UDP.
#[derive(Debug, Default)]
pub(crate) struct SocketCarrier {
    pub(crate) events: Events,
    pub(crate) channels: Slab<Channel>,
    /// Lingering sockets that were not read empty within the budget.
    pub(crate) pending_lingers: Vec<Key>,
    /// Shared UDP sockets, likewise.
    pub(crate) pending_shared: Vec<Key>,
    /// Sockets, of these and of DTLS, that are to be read when everything that was reported is
    /// handled.
    pub(in crate::carrier) reading: VecDeque<Reading>,
    /// The UDP sockets of listeners that connections share, and what they were opened with, with
    /// the ports that they got.
    pub(crate) shared: Vec<(Key, SocketOptions)>,
    /// The same of listeners that have stopped: see [`super::listen`].
    pub(crate) left_behind: Vec<(Key, SocketOptions)>,
}

impl SocketCarrier {
    /// A UDP socket of a listener's is to be read.
    pub(in crate::carrier) fn read_shared(&mut self, socket: Key) {
        self.reading.push_back(Reading(At::Shared { socket, round: 0 }));
    }

    /// Aborts the connection on a socket. False: it is gone.
    pub(crate) fn abort_channel<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> bool {
        let gone = self.channels.remove(key);
        if let Some(c) = &gone {
            cx.net.abort(c.sock);
        }
        gone.is_some()
    }

    /// A socket is ready. `None`: it is gone.
    #[inline]
    pub(crate) fn wake(&mut self, key: Key, ready: Ready) -> Option<Woken> {
        Some(self.channels.get_mut(key)?.wake(ready))
    }

    /// Does what there is to do about a socket that is ready and no connection's.
    pub(crate) fn on_socket_ready<N: Net>(&mut self, cx: &mut Context<N>, key: Key, writable: bool) {
        let Some(c) = self.channels.get(key) else { return };
        match (c.used_by, &c.kind) {
            (SocketUse::Attempt(_) | SocketUse::Alone(_), _) => self.advance_attempt(cx, key),
            (SocketUse::Listener(_), Kind::UdpShared(_)) => self.shared_ready(cx, key, writable),
            // Its handshake has not begun.
            (SocketUse::Listener(_), Kind::Accepted(_)) => {}
            (SocketUse::Listener(_), _) => self.advance_incoming(cx, key),
            (SocketUse::Lingering(_), _) => self.go_on_lingering(cx, key),
            (SocketUse::Conn(_), _) => {}
        }
    }

    /// Drops what the peer of a lingering socket sends, and reports what that means.
    pub(in crate::carrier) fn go_on_lingering<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        if let Some((conn, closed)) = self.linger(cx, key) {
            self.events.push_back(CarrierEvent::CloseWentOn { conn, closed });
        }
    }

    /// The deadline of a socket has come.
    pub(in crate::carrier) fn on_socket_timer<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(ch) = self.channels.get(key) else { return };
        match (ch.used_by, &ch.kind) {
            (SocketUse::Lingering(_), _) => self.lingered(cx, key),
            (SocketUse::Listener(_), Kind::Accept(_) | Kind::UdpShared(_)) => {}
            (SocketUse::Listener(_), Kind::Accepted(_)) => {
                // It has waited so long for its handshake to begin that its peer will have given
                // up.
                self.abort_channel(cx, key);
                cx.stats.refuse(Refusal::NotBegun);
            }
            (SocketUse::Listener(_), _) if cx.now - ch.started < HANDSHAKE_TIMEOUT => self.advance_incoming(cx, key),
            (SocketUse::Listener(listener), _) => {
                self.abort_channel(cx, key);
                cx.stats.refuse(Refusal::Handshake);
                self.events.push_back(CarrierEvent::HandshakeOver { listener });
            }
            (SocketUse::Attempt(attempt) | SocketUse::Alone(attempt), Kind::Tls(t))
                if t.is_handshaking() && ch.deadline.is_some_and(|d| d <= cx.now) =>
            {
                let session = SessionId::Channel(key);
                let error = AttemptError::TimedOut;
                self.events.push_back(CarrierEvent::Failed { attempt, session, error });
            }
            (SocketUse::Attempt(_) | SocketUse::Alone(_), _) => self.advance_attempt(cx, key),
            (SocketUse::Conn(conn), _) if super::tcp::early::unfinished(ch) => {
                self.events.push_back(CarrierEvent::HandshakeDue { conn });
            }
            (SocketUse::Conn(_), _) => {}
        }
    }
}
