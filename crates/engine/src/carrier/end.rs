//! The end of directions and of connections, whatever carries them.
//!
//! *Responsible for* what the protocol below does when a direction ends, is abandoned or refused,
//! and when a connection is closed, aborted, given up or released; and for how far a closing
//! connection is. *Not responsible for* the states of connections, for how long a closing may take,
//! and for what the program is notified of: these are decided by what the operations here return
//! (`closing`, `terminate`).

use crate::carrier::channel::{Channel, Kind, SocketUse};
use crate::carrier::peer::Peer;
use crate::carrier::tcp::tls_out;
use crate::carrier::terms::{Closed, Delivery, End, Progress, SessionOver};
use crate::carrier::{Carriers, FlowId};
use crate::closing::{ABORTED, NO_CODE};
use crate::connection::state::Sides;
use crate::context::Context;
use crate::event::ConnectionError;
use core::time::Duration;
use neater_base::net::{Net, StreamInfo};
use neater_base::{Instant, Key};
use neater_quic::{ConnectionApi, Direction};

/// How much later than the last progress an answer of the peer must have come to be news: systems
/// state its age coarsely.
const COARSE: Duration = Duration::from_millis(100);

impl Carriers {
    /// Ends this side's direction, after everything that was sent. True: the end is out; false: not
    /// yet; `None`: there is no flow any more.
    pub(crate) fn finish<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId) -> Option<bool> {
        match flow {
            FlowId::Channel(k) => {
                let ch = self.sockets.channels.get_mut(k)?;
                match &mut ch.kind {
                    Kind::Tcp => {}
                    Kind::Tls(tls) => {
                        tls.close_notify();
                        // It waits for the handshake of a connection that was delivered before its
                        // end.
                        let queued = tls.close_notify_queued();
                        if !matches!(tls_out(&mut cx.net, ch), Ok(true)) || !queued {
                            return Some(false);
                        }
                    }
                    _ => return Some(true),
                }
                // A connection that is gone already is reported when it is read.
                let _ = cx.net.shutdown_write(ch.sock);
            }
            FlowId::Stream { quic, stream } => {
                if let Some(q) = self.quic.connections.get_mut(quic) {
                    q.conn.finish(stream);
                }
                self.quic.mark_dirty(quic);
            }
            FlowId::Sctp { sctp, stream } => self.sctp.finish(sctp, stream),
            _ => {}
        }
        Some(true)
    }

    /// Whether this side's direction can be abandoned alone, with a code. TCP and TLS have no word
    /// for it.
    pub(crate) fn can_reset(&self, flow: FlowId) -> bool {
        let FlowId::Channel(k) = flow else { return true };
        !self.sockets.channels.get(k).is_some_and(|ch| matches!(ch.kind, Kind::Tcp | Kind::Tls(_)))
    }

    /// Abandons this side's direction with a code, where the peer can be notified of it.
    pub(crate) fn reset(&mut self, flow: FlowId, code: u64) {
        match flow {
            FlowId::Stream { quic, stream } => self.quic.reset(quic, stream, code),
            FlowId::Sctp { sctp, stream } => self.sctp.reset(sctp, stream, code),
            _ => {}
        }
    }

    /// Receives nothing more of a flow, and notifies the peer of it where that can be
    /// (STOP_SENDING, RFC 9000 section 3.5).
    pub(crate) fn stop<N: Net>(&mut self, cx: &Context<N>, flow: FlowId, code: u64) {
        match flow {
            FlowId::Stream { quic, stream } => self.quic.stop(quic, stream, code),
            FlowId::Sctp { sctp, stream } => self.sctp.stop(&cx.limits, sctp, stream, code),
            _ => {}
        }
    }

    /// Whether the peer of a flow that receives nothing more was notified of it. A peer that gives
    /// streams of SCTP no meaning is not: there the association's end is the only one.
    pub(crate) fn reports_stop(&self, flow: FlowId) -> bool {
        match flow {
            FlowId::Sctp { sctp, .. } => self.sctp.associations.get(sctp).is_some_and(|a| a.mux),
            _ => true,
        }
    }

    /// Whether the peer has all that was sent on a stream.
    pub(crate) fn is_delivered(&mut self, flow: FlowId) -> bool {
        match flow {
            FlowId::Stream { quic, stream } => self.quic.is_delivered(quic, stream),
            FlowId::Sctp { sctp, stream } => self.sctp.is_idle(sctp, stream),
            _ => false,
        }
    }

    /// With which code the peer has abandoned its direction of a stream; `read`: what reading has
    /// found before, which the session forgets then.
    pub(crate) fn peer_reset(&mut self, flow: FlowId, read: Option<u64>) -> Option<u64> {
        let FlowId::Stream { quic, stream } = flow else { return None };
        read.or_else(|| self.quic.connections.get_mut(quic).and_then(|q| q.conn.received_reset(stream)))
    }

    /// Ends the flow of a closing connection in order: what was sent is delivered. Its queue is
    /// empty. To be called again whenever the flow has become writable, until it is over.
    pub(crate) fn close<N: Net>(&mut self, cx: &mut Context<N>, conn: Key, flow: FlowId, sides: Sides) -> Closed {
        let mut session = None;
        let Sides { read_closed, fin_done, fin_acked, .. } = sides;
        let end = match flow {
            FlowId::Channel(k) => return self.sockets.close_socket(cx, conn, k, sides),
            FlowId::Stream { quic, stream } => match self.quic.connections.get_mut(quic) {
                None => End::Done,
                Some(q) => match q.lost.clone() {
                    Some(e) => End::Failed(ConnectionError::Quic(e)),
                    None => {
                        if !read_closed {
                            q.conn.stop(stream, NO_CODE);
                        }
                        let receive_only = stream.direction() == Direction::One && stream.by_client() != q.client;
                        if !fin_done {
                            q.conn.finish(stream);
                        }
                        self.quic.mark_dirty(quic);
                        // With nothing to be acknowledged there is no acknowledgement to wait for.
                        if receive_only || fin_done && fin_acked { End::Done } else { End::Waits }
                    }
                },
            },
            FlowId::Sctp { sctp, stream } => {
                match self.sctp.associations.get(sctp).map(|a| (a.is_over(), a.lost.clone(), a.mux)) {
                    None => End::Done,
                    Some((true, Some(reason), _)) if !fin_acked => End::Failed(ConnectionError::Sctp(reason)),
                    // One connection, one association: it ends when the peer has everything (RFC
                    // 9260 section 9.2).
                    Some((false, None, false)) => {
                        session = self.sctp.close(cx.now, sctp, None);
                        End::Waits
                    }
                    Some(_) => {
                        if !read_closed {
                            self.sctp.stop(&cx.limits, sctp, stream, NO_CODE);
                        }
                        self.sctp.finish(sctp, stream);
                        if fin_done && fin_acked { End::Done } else { End::Waits }
                    }
                }
            }
            FlowId::Datagrams { quic } => {
                let waits = self.quic.close_datagrams(quic);
                return if waits { End::Waits.into() } else { End::Done.into() };
            }
            _ => return End::Done.into(),
        };
        Closed { fin_done: true, session, ..end.into() }
    }

    /// Drops what the peer still sends to a closing connection that has something to send.
    pub(crate) fn discard_incoming<N: Net>(&mut self, cx: &mut Context<N>, conn: Key, flow: FlowId) -> Closed {
        match flow {
            FlowId::Channel(key) => self.sockets.discard(cx, conn, key),
            FlowId::Sctp { sctp, stream } => {
                self.sctp.ignore_incoming(sctp, stream);
                End::Waits.into()
            }
            _ => End::Waits.into(),
        }
    }

    /// How far a closing connection is that has so many bytes in its queue.
    pub(crate) fn progress<N: Net>(&mut self, cx: &Context<N>, flow: FlowId, queued: u64) -> Progress {
        let mut progress = Progress { mark: queued, packets: 0, unanswered: None };
        match flow {
            // What the engine hands to the system moves from one term to the other.
            FlowId::Channel(key) => {
                if let Some(i) = self.stream_info(cx, key) {
                    progress.mark += i.in_flight.unwrap_or(0) + i.unsent.unwrap_or(0);
                    progress.unanswered = i.unanswered;
                }
            }
            // The session takes no more than the peer has room for: what it has taken arrives as
            // long as the path carries anything. Before that, only what it takes counts.
            FlowId::Stream { quic, .. } if queued == 0 => {
                progress.mark = self.quic.connections.get(quic).map_or(0, |q| q.conn.acknowledged());
            }
            FlowId::Datagrams { quic } => {
                progress.mark += self.quic.connections.get_mut(quic).map_or(0, |q| q.conn.queued_datagrams() as u64);
            }
            FlowId::Sctp { sctp, .. } => {
                progress.packets = self.sctp.packets_received(sctp);
                if queued == 0 {
                    progress.mark = self.sctp.acknowledged(sctp);
                }
            }
            _ => {}
        }
        progress
    }

    /// Whether the peer of a closing connection has answered since the last progress, if only to
    /// report that it has no room: since then, or with `more` packets than before.
    pub(crate) fn answered_since<N: Net>(&self, cx: &Context<N>, flow: FlowId, moved: Instant, more: bool) -> bool {
        match flow {
            FlowId::Channel(key) => {
                let ago = self.stream_info(cx, key).and_then(|i| i.last_heard);
                ago.is_some_and(|ago| ago + COARSE < cx.now.saturating_since(moved))
            }
            FlowId::Stream { quic, .. } => {
                self.quic.connections.get(quic).is_some_and(|q| q.last_heard() > moved + COARSE)
            }
            FlowId::Sctp { .. } => more,
            _ => false,
        }
    }

    /// Asks the peer of a closing connection whether it is there when it has been silent for so
    /// long. TCP and SCTP ask a peer without room again and again. QUIC does not, and its idle
    /// timeout would end the session of a reader that has paused. `stands_still`: there was no
    /// progress for as long; `unwanted`: what the peer sends is not received any more.
    pub(crate) fn ask_peer<N: Net>(
        &mut self,
        cx: &Context<N>,
        flow: FlowId,
        silence: Duration,
        stands_still: bool,
        unwanted: bool,
    ) {
        let FlowId::Stream { quic, stream } = flow else { return };
        let Some(q) = self.quic.connections.get_mut(quic).filter(|q| q.connected && q.lost.is_none()) else {
            return;
        };
        if stands_still && unwanted {
            // The peer may be closing, too, and wait for us to read.
            q.conn.stop(stream, NO_CODE);
        }
        let silent = cx.now.saturating_since(q.last_heard()) >= silence;
        if silent {
            q.conn.ping();
        }
        if silent || stands_still {
            self.quic.mark_dirty(quic);
        }
    }

    /// Checks whether the peer has everything that a closing connection has sent.
    pub(crate) fn check_closed<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId) -> End {
        match flow {
            FlowId::Channel(key) => self.sockets.check_delivered(cx, key),
            _ => End::Waits,
        }
    }

    /// Whether the peer has what was sent on a connection whose both directions have ended; `None`:
    /// the peer has not ended its own, or the flow does not report it.
    pub(crate) fn both_delivered<N: Net>(
        &self,
        cx: &mut Context<N>,
        flow: FlowId,
        peer_ended: bool,
    ) -> Option<Delivery> {
        let FlowId::Channel(key) = flow else { return None };
        let hangup = || self.sockets.channels.get(key).is_some_and(|ch| ch.hangup && !matches!(ch.kind, Kind::Udp));
        (peer_ended || hangup()).then(|| self.sockets.delivered(cx, key, true))
    }

    fn stream_info<N: Net>(&self, cx: &Context<N>, key: Key) -> Option<StreamInfo> {
        cx.net.stream_info(self.sockets.channels.get(key)?.sock).ok()
    }

    /// Gives up what was sent and is not taken, or not acknowledged. `unwritten`: a part of it is
    /// still in the queue, and the peer must not take a part for the whole.
    pub(crate) fn give_up<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        flow: FlowId,
        unwritten: bool,
    ) -> Option<SessionOver> {
        match flow {
            FlowId::Channel(key) => {
                let ch = self.sockets.channels.remove(key)?;
                // What the system has all of it may still deliver.
                if unwritten { cx.net.abort(ch.sock) } else { cx.net.close(ch.sock) }
            }
            FlowId::Stream { quic, stream } => self.quic.reset(quic, stream, ABORTED),
            FlowId::Sctp { sctp, stream } if self.sctp.associations.get(sctp).is_some_and(|a| a.mux) => {
                self.sctp.reset(sctp, stream, ABORTED);
            }
            // Its association is being shut down, which a peer with a closed window can make last
            // for ever.
            FlowId::Sctp { sctp, .. } => return self.sctp.close(cx.now, sctp, Some(ABORTED)),
            _ => {}
        }
        None
    }

    /// Ends a flow at once: nothing more is delivered, and the peer is notified where the protocol
    /// can.
    pub(crate) fn abort<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId, code: u64) {
        match flow {
            FlowId::Channel(_) => self.abort_socket(cx, flow),
            FlowId::Stream { quic, stream } => {
                self.quic.reset(quic, stream, code);
                self.quic.stop(quic, stream, code);
            }
            FlowId::Sctp { sctp, stream } => {
                self.sctp.stop(&cx.limits, sctp, stream, code);
                self.sctp.reset(sctp, stream, code);
            }
            _ => {}
        }
    }

    /// Ends the socket of a flow at once, if it is one of its own.
    pub(crate) fn abort_socket<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId) {
        if let FlowId::Channel(key) = flow
            && let Some(ch) = self.sockets.channels.remove(key)
        {
            cx.net.abort(ch.sock);
        }
    }

    /// The connection does not use the flow any more. What was not ended in order is given up, and
    /// the peer notified; it changes nothing about what was. `peer`: the connection's, where
    /// several share a socket; `listens`: whether a listener still does. [`FlowId::session`] may be
    /// left without flows then.
    pub(crate) fn release<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        conn: Key,
        flow: FlowId,
        Sides { read_closed, fin_done, .. }: Sides,
        peer: Option<Peer>,
        listens: impl FnOnce(Key) -> bool,
    ) -> Option<SessionOver> {
        let mut over = None;
        match flow {
            FlowId::Channel(k) => {
                // One that lingers goes with its connection, as long as that waits: nothing else
                // would end it.
                let is_its = |used_by: &SocketUse| match used_by {
                    SocketUse::Conn(of) => *of == conn,
                    SocketUse::Lingering(l) => l.is_for(conn),
                    _ => false,
                };
                if self.sockets.channels.get(k).is_some_and(|ch| is_its(&ch.used_by))
                    && let Some(ch) = self.sockets.channels.remove(k)
                {
                    cx.net.close(ch.sock);
                }
            }
            FlowId::Stream { quic, stream } => {
                if !fin_done {
                    self.quic.reset(quic, stream, NO_CODE);
                }
                if !read_closed {
                    self.quic.stop(quic, stream, NO_CODE);
                }
                self.quic.unbind(quic, Some(stream));
            }
            FlowId::Datagrams { quic } => self.quic.unbind(quic, None),
            FlowId::Sctp { sctp, stream } => {
                match self.sctp.associations.get(sctp).map(|a| (a.mux, a.lost.is_some())) {
                    Some((true, false)) => {
                        if !read_closed {
                            self.sctp.stop(&cx.limits, sctp, stream, NO_CODE);
                        }
                        if fin_done {
                            self.sctp.finish(sctp, stream);
                        } else {
                            self.sctp.reset(sctp, stream, NO_CODE);
                        }
                    }
                    Some((false, false)) => over = self.sctp.close(cx.now, sctp, Some(NO_CODE)),
                    _ => {}
                }
                self.sctp.unbind(&cx.limits, sctp, stream);
            }
            FlowId::Dtls { dtls } => self.dtls.drop_session(cx, dtls),
            FlowId::Peer { channel } => {
                if let (Some(Channel { kind: Kind::UdpShared(shared), used_by, .. }), Some(peer)) =
                    (self.sockets.channels.get_mut(channel), peer)
                {
                    shared.peers.remove(&peer);
                    // The last connection of a listener that has stopped takes the socket with it.
                    if shared.peers.is_empty()
                        && !matches!(*used_by, SocketUse::Listener(l) if listens(l))
                        && let Some(c) = self.sockets.channels.remove(channel)
                    {
                        cx.net.close(c.sock);
                    }
                }
            }
            FlowId::None | FlowId::StreamPending { .. } | FlowId::SctpPending { .. } => {}
        }
        over
    }
}
