//! Sending and receiving on a flow, whichever protocol carries it.
//!
//! *Responsible for* handing each call to the protocol of the flow. *Not responsible for* the
//! queues, rates, events and ends of the connection that uses the flow.

use super::{Carriers, FlowId, tcp, udp};
use crate::carrier::peer::Peer;
use crate::carrier::terms::{DatagramSource, Read, Remains, Sender, WriteError};
use crate::context::Context;
use crate::event::ConnectionError;
use crate::queue::{Budget, Flushed, SendQueue};
use crate::receive::Received;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, Sock, SocketOption};
use neater_quic::ConnectionApi;
use std::io::IoSlice;

/// The largest payload of a UDP datagram over IPv4, in bytes (RFC 768, RFC 791); IPv6 allows 20
/// more, which cannot be relied on.
const UDP_PAYLOAD_MAX: usize = 65_507;

const MESSAGES_ONLY: &str = "this connection carries datagrams: send messages on it";
const DATAGRAMS_ONLY: &str = "this connection carries datagrams";

impl Carriers {
    /// Whether what is received of a flow now came before the peer's handshake was complete, and
    /// may be a replay.
    pub(crate) fn is_early(&self, flow: FlowId) -> bool {
        match flow {
            FlowId::Channel(k) => self.sockets.is_early(k),
            FlowId::Stream { quic, .. } => self.quic.connections.get(quic).is_some_and(|q| q.conn.is_handshaking()),
            _ => false,
        }
    }

    /// Whether a write on a flow would get somewhere, as far as is known.
    pub(crate) fn may_write(&self, flow: FlowId) -> bool {
        match flow {
            FlowId::Channel(k) | FlowId::Peer { channel: k } => {
                self.sockets.channels.get(k).is_some_and(|c| c.writable)
            }
            FlowId::Dtls { dtls } => self.dtls.may_write(dtls),
            _ => true,
        }
    }

    /// Sends what the protocol of a flow holds back itself, the queue being empty. The messages
    /// that have left with it are reported.
    pub(crate) fn flush_held<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId, queue: &mut SendQueue) -> Flushed {
        let mut done = Flushed::default();
        if let FlowId::Channel(k) = flow
            && let Some(ch) = self.sockets.channels.get_mut(k)
        {
            tcp::flush_held(&mut cx.net, ch, queue, &mut done);
        }
        done
    }

    /// Sends as much of a queue as a flow takes, within a budget.
    pub(crate) fn send<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        flow: FlowId,
        sender: &Sender,
        queue: &mut SendQueue,
        budget: &mut Budget,
    ) -> Flushed {
        let mut done = Flushed::default();
        match flow {
            FlowId::Channel(k) => match self.sockets.channels.get_mut(k) {
                Some(ch) if ch.carries_datagrams() => {
                    let peer = Peer::from(ch.remote);
                    udp::send(&mut cx.net, ch, peer, queue, budget, (&mut done, &mut cx.packet));
                }
                Some(ch) => tcp::send(&mut cx.net, ch, queue, budget, &mut done),
                None => {}
            },
            FlowId::Peer { channel } => {
                if let (Some(ch), Some(peer)) = (self.sockets.channels.get_mut(channel), sender.peer) {
                    udp::send(&mut cx.net, ch, peer, queue, budget, (&mut done, &mut cx.packet));
                }
            }
            FlowId::Stream { quic, stream } => self.quic.send((quic, stream), queue, budget, &mut done),
            FlowId::Datagrams { quic } => self.quic.send_datagrams(quic, queue, budget, &mut done),
            FlowId::Sctp { sctp, stream } => self.sctp.send(sender, (sctp, stream), queue, budget, &mut done),
            FlowId::Dtls { dtls } => self.dtls.send(cx, dtls, queue, budget, &mut done),
            FlowId::None | FlowId::StreamPending { .. } | FlowId::SctpPending { .. } => {}
        }
        done
    }

    /// Writes bytes on a flow, without a queue; returns how many it took.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub(crate) fn write<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        flow: FlowId,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize, WriteError> {
        match flow {
            FlowId::Channel(k) => match self.sockets.channels.get_mut(k) {
                Some(ch) if ch.carries_bytes() => tcp::write(&mut cx.net, ch, bufs),
                Some(_) => Err(WriteError::Refused(ConnectionError::Unsupported(MESSAGES_ONLY))),
                None => Err(WriteError::Refused(ConnectionError::Closed)),
            },
            FlowId::Stream { quic, stream } => self.quic.write((quic, stream), bufs),
            FlowId::Sctp { sctp, stream } => self.sctp.write((sctp, stream), bufs),
            _ => Err(WriteError::Refused(ConnectionError::Unsupported(MESSAGES_ONLY))),
        }
    }

    /// The largest datagram that a flow can send now, in bytes.
    pub(crate) fn datagram_max(&mut self, flow: Option<FlowId>) -> usize {
        match flow {
            Some(FlowId::Datagrams { quic }) => {
                self.quic.connections.get_mut(quic).and_then(|q| q.conn.max_datagram()).unwrap_or(0)
            }
            Some(FlowId::Dtls { dtls }) => self.dtls.sessions.get(dtls).map_or(0, super::dtls::Dtls::max_message),
            _ => UDP_PAYLOAD_MAX,
        }
    }

    /// The socket of a flow, if `conn` alone uses it.
    pub(crate) fn socket_of(&self, flow: FlowId, conn: Key) -> Option<Sock> {
        match flow {
            FlowId::Channel(k) => self
                .sockets
                .channels
                .get(k)
                .filter(|c| c.used_by == super::channel::SocketUse::Conn(conn))
                .map(|c| c.sock),
            FlowId::Dtls { dtls } => self.dtls.socket_of(dtls, conn),
            _ => None,
        }
    }

    /// Sets an option of the socket of a flow that `conn` uses.
    ///
    /// # Errors
    /// The error of the operating system; [`ErrorKind::Unsupported`] if the connection has no
    /// socket of its own.
    pub(crate) fn set_option<N: Net>(
        &self,
        cx: &mut Context<N>,
        (flow, conn): (FlowId, Key),
        option: SocketOption,
    ) -> Result<(), NetError> {
        match self.socket_of(flow, conn) {
            Some(sock) => cx.net.set(sock, option),
            None => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Sets `connPriority` of the connection that uses a flow (RFC 9622 section 8.1.2): lower goes
    /// first. False: the flow shares no session whose streams could be ranked.
    pub(crate) fn set_priority(&mut self, flow: FlowId, priority: u32) -> bool {
        match flow {
            FlowId::Stream { quic, stream } => {
                if let Some(q) = self.quic.connections.get_mut(quic) {
                    // QUIC has it the other way round: higher goes first, 0 is the default, as 100
                    // is here.
                    q.conn.set_priority(stream, 100i32.saturating_sub(i32::try_from(priority).unwrap_or(i32::MAX)));
                }
            }
            FlowId::Sctp { sctp, stream } => self.sctp.set_priority(sctp, stream, priority),
            _ => return false,
        }
        true
    }

    /// Reads bytes from a flow.
    #[inline]
    pub(crate) fn read<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId, buf: &mut [u8]) -> Read {
        match flow {
            FlowId::Channel(k) => match self.sockets.channels.get_mut(k) {
                Some(ch) if ch.carries_bytes() => tcp::read(&mut cx.net, ch, buf),
                Some(_) => Read::Failed(ConnectionError::Unsupported(DATAGRAMS_ONLY)),
                None => Read::Gone,
            },
            FlowId::Stream { quic, stream } => self.quic.read(cx, (quic, stream), buf),
            FlowId::Sctp { sctp, stream } => self.sctp.read(&cx.limits, (sctp, stream), buf).into(),
            FlowId::None | FlowId::StreamPending { .. } | FlowId::SctpPending { .. } => Read::Gone,
            _ => Read::Failed(ConnectionError::Unsupported(DATAGRAMS_ONLY)),
        }
    }

    /// Reads what had arrived on a socket before its connection broke; `None`: the socket is gone.
    pub(crate) fn read_remains<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        channel: Key,
        buf: &mut [u8],
    ) -> Option<Remains> {
        Some(tcp::read_remains(&mut cx.net, self.sockets.channels.get_mut(channel)?, buf))
    }

    /// Takes the next message of a flow that has message boundaries ([`FlowId::has_messages`]), or
    /// the next part of a long one. `None`: there is none now, which [`Carriers::nothing_to_read`]
    /// explains.
    pub(crate) fn receive<N: Net>(&mut self, cx: &Context<N>, flow: FlowId) -> Option<Received> {
        match flow {
            FlowId::Sctp { sctp, stream } => self.sctp.receive(&cx.limits, (sctp, stream)),
            _ => None,
        }
    }

    /// What there is on such a flow when no message is: its end (`Some(0)`), an error, or nothing
    /// yet.
    pub(crate) fn nothing_to_read(&self, flow: FlowId) -> Result<Option<usize>, ConnectionError> {
        match flow {
            FlowId::Sctp { sctp, stream } => Ok(self.sctp.has_ended((sctp, stream))?.then_some(0)),
            _ => Ok(None),
        }
    }

    /// Where the datagrams of a flow come from, when none are queued.
    pub(crate) fn datagram_source(&self, flow: FlowId) -> DatagramSource {
        let lost = match flow {
            FlowId::Channel(k) => return DatagramSource::Socket(k),
            FlowId::Peer { .. } => None,
            FlowId::Datagrams { quic } => {
                self.quic.connections.get(quic).and_then(|q| q.lost.clone()).map(ConnectionError::Quic)
            }
            FlowId::Dtls { dtls } => self.dtls.sessions.get(dtls).and_then(super::dtls::Dtls::lost),
            _ => return DatagramSource::Gone,
        };
        lost.map_or(DatagramSource::Pushed, DatagramSource::Lost)
    }

    /// Notes that a flow's own socket is worth reading, whatever was seen of it before.
    pub(crate) fn expect_data(&mut self, flow: FlowId) {
        if let FlowId::Channel(k) = flow
            && let Some(ch) = self.sockets.channels.get_mut(k)
        {
            ch.readable = true;
        }
    }

    /// Why the byte stream on a socket is gone, if it is: the system may report it only once.
    /// `None` for datagrams.
    pub(crate) fn stream_error<N: Net>(&mut self, cx: &mut Context<N>, channel: Key) -> Option<ConnectionError> {
        let ch = self.sockets.channels.get_mut(channel).filter(|ch| ch.carries_bytes())?;
        let error = cx.net.take_error(ch.sock)?;
        Some(tcp::broken(&mut cx.net, ch, error))
    }
}
