//! What the engine asks of a QUIC implementation.

use crate::{Connection, ConnectionEvent, EndpointEvent, Handle, QuicError, Tuning};
use bytes::{Bytes, BytesMut};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Ecn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Names a stream of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) quinn_proto::StreamId);

impl StreamId {
    /// The number on the wire (RFC 9000 section 2.1).
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(quinn_proto::VarInt::from(self.0))
    }
    /// Both ways or one way.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self.0.dir() {
            quinn_proto::Dir::Bi => Direction::Both,
            quinn_proto::Dir::Uni => Direction::One,
        }
    }
    /// Whether the client opened it.
    #[must_use]
    pub fn by_client(self) -> bool {
        self.0.initiator().is_client()
    }
}

/// Both ways or one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Bidirectional.
    Both,
    /// Unidirectional, from the opener.
    One,
}

impl From<Direction> for quinn_proto::Dir {
    fn from(d: Direction) -> Self {
        match d {
            Direction::Both => Self::Bi,
            Direction::One => Self::Uni,
        }
    }
}

/// A batch of datagrams to send: `size` bytes in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// From which address, if it matters.
    pub source: Option<IpAddr>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// How many bytes.
    pub size: usize,
    /// Length of each datagram but the last.
    pub segment_size: Option<usize>,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Its sender.
    pub source: SocketAddr,
    /// Which of our addresses it came to.
    pub local: Option<IpAddr>,
    /// ECN codepoint.
    pub ecn: Ecn,
}

/// What a datagram turned out to be.
#[derive(Debug)]
pub enum Arrival {
    /// Nothing to do.
    Nothing,
    /// It belongs to this connection.
    For(Handle, ConnectionEvent),
    /// It begins this connection.
    New(Handle, Box<Connection>),
    /// The endpoint answers by itself; the bytes are in the caller's buffer.
    Respond(Transmit),
    /// It carries a connection id of another engine.
    Foreign(Foreign),
}

/// A datagram with a connection id of another engine.
#[derive(Debug)]
pub struct Foreign {
    /// That engine's number.
    pub engine: u8,
    /// The datagram, to be passed on.
    pub data: BytesMut,
    /// The answer to its sender if there is no such engine: a stateless reset (RFC 9000 section
    /// 10.3).
    pub answer: Option<(Transmit, Box<[u8]>)>,
}

/// What happens on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's handshake data is there: it is reachable and speaks QUIC.
    Reachable,
    /// The handshake is complete.
    Connected,
    /// The connection is over.
    Lost(QuicError),
    /// The peer has opened streams.
    Opened(Direction),
    /// Worth reading.
    Readable(StreamId),
    /// Worth writing.
    Writable(StreamId),
    /// Everything sent on the stream, and its end, has been acknowledged.
    Finished(StreamId),
    /// The peer does not want more of this stream.
    Stopped(StreamId, u64),
    /// More streams may be opened.
    Available(Direction),
    /// Datagrams have arrived.
    DatagramReceived,
    /// There is room for datagrams again.
    DatagramsUnblocked,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// So many bytes.
    Data(usize),
    /// Nothing now.
    Blocked,
    /// The peer has finished the stream.
    End,
    /// The peer has abandoned the stream with this code.
    Reset(u64),
    /// The stream is not open for reading.
    Closed,
}

/// Figures of a connection since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// UDP datagrams and bytes sent.
    pub sent: (u64, u64),
    /// UDP datagrams and bytes received.
    pub received: (u64, u64),
    /// STREAM and DATAGRAM frames received: data of the peer's application.
    pub data_frames: u64,
    /// STREAM frames among them.
    pub stream_frames: u64,
    /// PATH_CHALLENGE frames received: the peer is not sure yet where this side is (RFC 9000
    /// section 8.2).
    pub challenges: u64,
    /// Packets and bytes declared lost.
    pub lost: (u64, u64),
    /// Congestion events.
    pub congestion_events: u64,
    /// UDP payload that fits into one packet.
    pub mtu: u16,
}

/// How the peer acknowledges what this side sends: the one sign that it arrives. That packets of
/// the peer arrive is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgements {
    /// When packets were last acknowledged that had not been before. `None`: none was yet.
    pub last: Option<Instant>,
    /// Since when packets that ask for it wait to be acknowledged, and none was. `None`: none
    /// waits. Data that waits to be sent again after it was lost counts, too.
    pub waiting_since: Option<Instant>,
}

/// What a client connection is set up with.
#[derive(Clone, Debug)]
pub struct ClientSetup {
    /// Must be limited to TLS 1.3.
    pub tls: Arc<rustls::ClientConfig>,
    /// The rest.
    pub tuning: Tuning,
}

/// One UDP port's worth of QUIC.
pub trait EndpointApi: Sized {
    /// Begins a connection; its first packets come out of the connection's `poll_transmit`.
    ///
    /// # Errors
    /// [`QuicError::Configuration`]: the TLS configuration cannot carry QUIC, or the address or
    /// name is impossible.
    fn connect(
        &mut self,
        now: Instant,
        setup: &ClientSetup,
        remote: SocketAddr,
        name: &str,
    ) -> Result<(Handle, Connection), QuicError>;
    /// Takes a datagram. Responses are appended to `out`.
    fn handle_datagram(&mut self, now: Instant, meta: Datagram, data: BytesMut, out: &mut Vec<u8>) -> Arrival;
    /// Takes what a connection has for its endpoint, and may return something for that connection.
    fn handle_event(&mut self, handle: Handle, event: EndpointEvent) -> Option<ConnectionEvent>;
    /// Forgets a connection that ends without the usual exchange. Nothing of it may be handed to
    /// the endpoint afterwards.
    fn forget(&mut self, handle: Handle);
    /// Stops accepting new connections.
    fn stop_accepting(&mut self);
    /// How many connections are not yet drained.
    fn open_connections(&self) -> usize;
}

/// One QUIC connection.
pub trait ConnectionApi {
    /// Takes an event from the endpoint.
    fn handle_event(&mut self, event: ConnectionEvent);
    /// Early or repeated calls do nothing.
    fn handle_timeout(&mut self, now: Instant);
    /// When to call [`ConnectionApi::handle_timeout`].
    fn next_timeout(&mut self) -> Option<Instant>;
    /// What has happened.
    fn poll_event(&mut self) -> Option<Event>;
    /// An event for the endpoint.
    fn poll_endpoint_event(&mut self) -> Option<EndpointEvent>;
    /// What to send, written to `buf` (cleared first); at most `max_datagrams` equal segments.
    fn poll_transmit(&mut self, now: Instant, max_datagrams: usize, buf: &mut Vec<u8>) -> Option<Transmit>;

    /// Opens a stream; `None` while the peer's limit is reached ([`Event::Available`] follows when
    /// it is not).
    fn open(&mut self, direction: Direction) -> Option<StreamId>;
    /// Takes a stream that the peer opened.
    fn accept(&mut self, direction: Direction) -> Option<StreamId>;
    /// Writes some of `data`; `Ok(0)` means blocked until [`Event::Writable`].
    ///
    /// # Errors
    /// The peer's code if it stopped the stream, `None` if the stream is not open for writing.
    fn write(&mut self, stream: StreamId, data: &[u8]) -> Result<usize, Option<u64>>;
    /// Ends the sending direction after what was written.
    fn finish(&mut self, stream: StreamId);
    /// Abandons the sending direction.
    fn reset(&mut self, stream: StreamId, code: u64);
    /// Refuses what the peer may still send.
    fn stop(&mut self, stream: StreamId, code: u64);
    /// Whether the peer has abandoned its direction, and with which code; after that the stream
    /// cannot be read any more.
    fn received_reset(&mut self, stream: StreamId) -> Option<u64>;
    /// Reads as many bytes as are there and fit, in order.
    fn read(&mut self, stream: StreamId, buf: &mut [u8]) -> ReadOutcome;
    /// How many streams of this direction the peer may have open at once. What it was allowed
    /// before stays allowed.
    fn set_peer_streams(&mut self, direction: Direction, count: u32);
    /// Higher goes first; 0 is the default.
    fn set_priority(&mut self, stream: StreamId, priority: i32);
    /// Queues a datagram. `Ok(false)`: no room now.
    ///
    /// # Errors
    /// The largest size that would fit (0: the peer takes no datagrams).
    fn send_datagram(&mut self, data: Bytes) -> Result<bool, usize>;
    /// Takes a received datagram.
    fn recv_datagram(&mut self) -> Option<Bytes>;
    /// The largest datagram that fits now; `None` if the peer takes none.
    fn max_datagram(&mut self) -> Option<usize>;

    /// Ends the connection with an application error code.
    fn close(&mut self, now: Instant, code: u64, reason: &[u8]);
    /// Our address has changed: probe the path from the new one.
    fn local_address_changed(&mut self);
    /// Sends a PING.
    fn ping(&mut self);
    /// Whether the handshake is still going on.
    fn is_handshaking(&self) -> bool;
    /// Whether the connection's state can be dropped.
    fn is_drained(&self) -> bool;
    /// Whether early data can be sent (client) or was received (server).
    fn has_early_data(&self) -> bool;
    /// Whether the server took the early data. Meaningful once connected.
    fn accepted_early_data(&self) -> bool;
    /// The application protocol agreed on.
    fn alpn(&self) -> Option<Vec<u8>>;
    /// The peer's certificates, leaf first, in DER.
    fn peer_certificates(&self) -> Vec<Vec<u8>>;
    /// The name that the client asked for (server side).
    fn server_name(&self) -> Option<String>;
    /// The peer's address now.
    fn remote(&self) -> SocketAddr;
    /// Our address now, if known.
    fn local_ip(&self) -> Option<IpAddr>;
    /// UDP payload that fits into one packet now.
    fn mtu(&self) -> u16;
    /// Whether something that was written to a stream may not have left yet, because the congestion
    /// window or the pacer has held something of this connection back ever since, or no packets
    /// were requested since. If it is false, all has left, but for what a peer's new address waits
    /// for until it is validated (RFC 9000 section 8). Valid for a connection that is over, too.
    fn has_unsent(&self, stream: StreamId) -> bool;
    /// Bytes of datagrams that have not left yet.
    fn queued_datagrams(&mut self) -> usize;
    /// Whether data of the connection's streams waits to be sent or acknowledged. `stream` is one
    /// that this side has sent on and not given up; when the connection is over the answer is yes.
    fn has_unacknowledged(&mut self, stream: StreamId) -> bool;
    /// Bytes of packets on the present path that the peer has acknowledged.
    fn acknowledged(&self) -> u64;
    /// Whether what this side sends is acknowledged. As of the last
    /// [`ConnectionApi::poll_transmit`].
    fn acknowledgements(&self) -> Acknowledgements;
    /// Figures.
    fn stats(&self) -> Stats;
    /// Bounds unacknowledged and unsent data.
    fn set_send_window(&mut self, bytes: u64);
    /// The window of all streams together (RFC 9000 section 4.1), and the most bytes that the peer
    /// may make this side keep: after the window was made smaller, more than that until so much was
    /// read.
    fn receive_window(&self) -> (u64, u64);
    /// Whether streams hold so much more or less unread that another window may suit; returns true
    /// once.
    fn unread_has_shifted(&mut self) -> bool;
    /// The window that suits what the program reads in one round trip and what streams hold unread,
    /// if it is not the one that there is. `streams`: so many may be read. `give`: what this
    /// connection does not need others do.
    fn suitable_receive_window(&mut self, now: Instant, streams: usize, give: bool) -> Option<u64>;
    /// Sets that window.
    fn set_receive_window(&mut self, bytes: u64);
}
