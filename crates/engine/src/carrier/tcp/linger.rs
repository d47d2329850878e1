//! The orderly end of a TCP socket: what was sent is delivered, and what the peer still sends is
//! read and dropped.
//!
//! *Responsible for* a socket from the end of its connection's send queue on. Closing a socket with
//! unread data would reset the connection and destroy what the peer has not read yet (RFC 1122
//! section 4.2.2.13): the socket lingers until the peer has ended its direction. *Not responsible
//! for* how long the connection may take (`closing`).
//!
//! *Invariants*: a peer that never stops sending costs no more than [`LINGER_READS`] reads of a
//! turn; once what was sent is delivered, the socket waits for [`LINGER`] at most.

use super::tls_out;
use crate::carrier::SocketCarrier;
use crate::carrier::channel::{Kind, SocketUse};
use crate::carrier::ids::CarrierTimer;
use crate::carrier::terms::LINGER;
use crate::carrier::terms::{Closed, Delivery, End};
use crate::connection::state::Sides;
use crate::context::Context;
use crate::event::ConnectionError;
use neater_base::net::Net;
use neater_base::{Instant, Key};

/// Reads of a lingering socket in one turn.
const LINGER_READS: usize = 64;

/// The state of a socket whose connection has nothing more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lingering {
    /// Until when the socket waits for the peer's end once what was sent is delivered.
    until: Instant,
    /// The connection, until what was sent is delivered.
    conn: Option<Key>,
    /// The peer has ended its direction.
    peer_ended: bool,
}

impl Lingering {
    /// Whether a connection still waits for what was sent to be delivered.
    pub(in crate::carrier) fn is_for(&self, conn: Key) -> bool {
        self.conn == Some(conn)
    }
}

impl SocketCarrier {
    /// Ends the socket of a closing connection, whose queue is empty.
    pub(crate) fn close_socket<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        conn: Key,
        key: Key,
        Sides { untouched, peer_ended, fin_done, .. }: Sides,
    ) -> Closed {
        let Some(ch) = self.channels.get(key) else { return End::Done.into() };
        if ch.used_by != SocketUse::Conn(conn) {
            // It lingers already.
            return End::Waits.into();
        }
        let plain = match &ch.kind {
            Kind::Tls(tls) => tls.wants_write(),
            Kind::Tcp if untouched => return self.drop_socket(cx, key),
            Kind::Tcp => false,
            _ => return self.drop_socket(cx, key),
        };
        // Both sides have sent everything, and the peer has it: our end goes with the socket.
        let over = peer_ended && !plain && self.delivered(cx, key, true) == Delivery::Done;
        let Some(ch) = self.channels.get_mut(key) else { return End::Waits.into() };
        if let Kind::Tls(tls) = &mut ch.kind {
            tls.close_notify();
            let queued = tls.close_notify_queued();
            match tls_out(&mut cx.net, ch) {
                Ok(true) if queued => {}
                // Goes on when the socket is writable; or at the end of the handshake.
                Ok(_) => return End::Waits.into(),
                Err(_) if over => {}
                Err(e) => return End::Failed(ConnectionError::Net(e)).into(),
            }
        }
        if over {
            return self.drop_socket(cx, key);
        }
        let Some(ch) = self.channels.get_mut(key) else { return End::Waits.into() };
        if !fin_done && let Err(e) = cx.net.shutdown_write(ch.sock) {
            return Closed { fin_done: true, ..End::Failed(ConnectionError::Net(e)).into() };
        }
        ch.used_by = SocketUse::Lingering(Lingering { until: cx.now + LINGER, conn: Some(conn), peer_ended });
        let mut closed = self.linger(cx, key).map_or_else(|| End::Waits.into(), |(_, closed)| closed);
        if closed.end == End::Waits {
            closed.end = self.check_delivered(cx, key);
        }
        Closed { fin_done: true, ..closed }
    }

    fn drop_socket<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Closed {
        if let Some(ch) = self.channels.remove(key) {
            cx.net.close(ch.sock);
        }
        End::Done.into()
    }

    /// Drops what a peer sends to a connection that is closing and still has something to send: a
    /// peer that is closing, too, would wait for that, and this side for the peer.
    pub(crate) fn discard<N: Net>(&mut self, cx: &mut Context<N>, conn: Key, key: Key) -> Closed {
        let Some(ch) = self.channels.get(key).filter(|ch| ch.used_by == SocketUse::Conn(conn)) else {
            return End::Waits.into();
        };
        let fits = match &ch.kind {
            Kind::Tcp => true,
            // A handshake still needs what comes.
            Kind::Tls(tls) => !tls.is_handshaking(),
            _ => false,
        };
        let closed = if fits { self.linger(cx, key) } else { None };
        closed.map_or_else(|| End::Waits.into(), |(_, closed)| closed)
    }

    /// Drops what a peer still sends, until it ends its direction: so much in a turn. Returns the
    /// connection, and what has become of it; `None`: nothing that concerns one.
    pub(crate) fn linger<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> Option<(Key, Closed)> {
        let ch = self.channels.get_mut(key)?;
        let (conn, lingers) = match ch.used_by {
            SocketUse::Lingering(l) => (l.conn, true),
            SocketUse::Conn(conn) => (Some(conn), false),
            _ => return None,
        };
        let mut scratch = core::mem::take(&mut cx.scratch);
        scratch.resize(64 << 10, 0);
        // `None`: there is more.
        let mut end = None;
        for _ in 0..LINGER_READS {
            match ch.read(&mut cx.net, &mut scratch) {
                Ok(0) => end = Some(Ok(true)),
                Ok(_) => continue,
                Err(e) if e.is_would_block() => end = Some(Ok(false)),
                Err(e) => end = Some(Err(e)),
            }
            break;
        }
        cx.scratch = scratch;
        match (end, conn) {
            (None, _) => {
                self.pending_lingers.push(key);
                cx.again = true;
                None
            }
            (Some(Ok(false)), _) => None,
            // Writing meets it, too, if it concerns what is to be delivered.
            (Some(Err(_)), _) if !lingers => None,
            // What was sent may still be on its way, though the peer has nothing more to send.
            (Some(Ok(true)), Some(conn)) => {
                if let SocketUse::Lingering(l) = &mut ch.used_by {
                    l.peer_ended = true;
                }
                let end = self.check_delivered(cx, key);
                Some((conn, Closed { peer_ended: true, ..end.into() }))
            }
            (Some(end), conn) => {
                self.drop_socket(cx, key);
                // What was sent may not have arrived.
                Some((conn?, End::Failed(ConnectionError::Net(end.err()?)).into()))
            }
        }
    }

    /// Whether the peer has acknowledged everything that was given to a socket. `ended`: the peer
    /// has ended its direction, which has to do where the system does not report it.
    pub(crate) fn delivered<N: Net>(&self, cx: &mut Context<N>, key: Key, ended: bool) -> Delivery {
        let Some(ch) = self.channels.get(key) else { return Delivery::Open };
        match cx.net.stream_info(ch.sock) {
            Ok(i) if i.in_flight.unwrap_or(u64::from(!ended)) + i.unsent.unwrap_or(0) == 0 => Delivery::Done,
            Ok(_) => Delivery::Open,
            // The system has done with the connection: in order, or there is an error.
            Err(_) => match cx.net.take_error(ch.sock) {
                None => Delivery::Done,
                Some(e) => Delivery::Failed(ConnectionError::Net(e)),
            },
        }
    }

    /// A connection is closed when its peer has everything; its socket may linger for the peer's
    /// end a little longer.
    pub(crate) fn check_delivered<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> End {
        let Some(ch) = self.channels.get(key) else { return End::Waits };
        let SocketUse::Lingering(l @ Lingering { conn: Some(_), peer_ended, .. }) = ch.used_by else {
            return End::Waits;
        };
        match self.delivered(cx, key, peer_ended) {
            Delivery::Open => End::Waits,
            Delivery::Done if peer_ended => {
                self.drop_socket(cx, key);
                End::Done
            }
            Delivery::Done => {
                // From the delivery on: a socket that is closed resets a peer that sends, and what
                // that has not read yet may go with it.
                let until = cx.now + LINGER;
                if let Some(ch) = self.channels.get_mut(key) {
                    ch.used_by = SocketUse::Lingering(Lingering { until, conn: None, ..l });
                }
                cx.timers.push(until, CarrierTimer::channel(key));
                End::Done
            }
            Delivery::Failed(error) => {
                self.drop_socket(cx, key);
                End::Failed(error)
            }
        }
    }

    /// The time is over in which a socket may wait for its peer's end.
    pub(crate) fn lingered<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        // Before what was sent is delivered, it is the connection's time that counts.
        if let Some(ch) = self.channels.get(key)
            && let SocketUse::Lingering(Lingering { until, conn: None, .. }) = ch.used_by
            && until <= cx.now
        {
            self.drop_socket(cx, key);
        }
    }
}
