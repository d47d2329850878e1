//! quinn-proto behind our traits.

use crate::api::{
    Acknowledgements, Arrival, ClientSetup, ConnectionApi, Datagram, Direction, EndpointApi, Event, Foreign,
    ReadOutcome, Stats, StreamId, Transmit,
};
use crate::closing::Closing;
use crate::config::{Qlog, QlogOf};
use crate::congestion::{self, Signals};
use crate::receive::Receiving;
use crate::{Epoch, Identity, QuicError, Tuning};
use bytes::{Bytes, BytesMut};
use neater_base::net::Ecn;
use neater_base::{Instant, Rng};
use quinn_proto::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn_proto::{self as q, EcnCodepoint, VarInt};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Names a connection within its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub usize);

/// From the endpoint to one connection, with the length of the datagram that it is about.
#[derive(Debug)]
pub struct ConnectionEvent(q::ConnectionEvent, usize);

/// From one connection to its endpoint.
#[derive(Debug)]
pub struct EndpointEvent(q::EndpointEvent);

const CID_LEN: usize = 8;
/// So many times the shortest round trip is believed to be the path's own, jitter and the waits of
/// a radio included.
const INFLATED: u32 = 4;
/// Handshakes in progress beyond which a client must prove its address first (RFC 9000 section
/// 8.1.2), unless fewer are allowed: see [`Endpoint::limit_handshakes`].
const RETRY_ABOVE: usize = 1000;
/// However few are allowed, so many may go on unproven: a proof costs honest clients a round trip.
const RETRY_LEAST: usize = 64;
/// Handshakes in progress beyond which new ones are refused.
const REFUSE_ABOVE: usize = 10_000;

/// Connection ids of [`CID_LEN`] bytes: the engine's number, then random bytes.
struct Cids {
    engine: u8,
    rng: Arc<Mutex<Rng>>,
}

impl q::ConnectionIdGenerator for Cids {
    fn generate_cid(&mut self) -> q::ConnectionId {
        let mut id = [0; CID_LEN];
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut id);
        id[0] = self.engine;
        q::ConnectionId::new(&id)
    }
    fn cid_len(&self) -> usize {
        CID_LEN
    }
    fn cid_lifetime(&self) -> Option<core::time::Duration> {
        None
    }
}

/// Wall time for tokens, as the engine last set it.
struct TokenClock(Arc<std::sync::atomic::AtomicU64>);

#[allow(clippy::disallowed_types, reason = "quinn-proto's trait speaks SystemTime; the value comes from outside")]
impl q::TimeSource for TokenClock {
    fn now(&self) -> std::time::SystemTime {
        let secs = self.0.load(std::sync::atomic::Ordering::Relaxed);
        std::time::SystemTime::UNIX_EPOCH + core::time::Duration::from_secs(secs)
    }
}

/// What accepted connections are set up with.
fn setup(
    tls: Arc<rustls::ServerConfig>,
    tuning: &Tuning,
    token_key: &[u8],
    wall: &Arc<std::sync::atomic::AtomicU64>,
) -> Result<Arc<q::ServerConfig>, QuicError> {
    let crypto = QuicServerConfig::try_from(tls).map_err(|e| QuicError::Configuration(e.to_string()))?;
    let token = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, &[]).extract(token_key);
    let mut server = q::ServerConfig::new(Arc::new(crypto), Arc::new(token));
    server.transport_config(Arc::new(tuning.transport()));
    server.migration(tuning.migration);
    server.time_source(Arc::new(TokenClock(wall.clone())));
    Ok(Arc::new(server))
}

/// quinn-proto's endpoint.
pub struct Endpoint {
    inner: q::Endpoint,
    epoch: Epoch,
    engine: u8,
    rng: Arc<Mutex<Rng>>,
    wall: Arc<std::sync::atomic::AtomicU64>,
    handshaking: usize,
    retry_above: usize,
    accepting: bool,
    server: bool,
    qlog: Option<Qlog>,
    /// What accepted connections are set up with, when each has a trace of its own.
    traced: Option<(Arc<q::ServerConfig>, Tuning)>,
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint").field("open", &self.inner.open_connections()).finish_non_exhaustive()
    }
}

/// QUIC as RFC 9000 has it (section 15). The drafts before it, which quinn-proto would offer in
/// Version Negotiation, are not tested with anything.
const VERSION_1: u32 = 1;

impl Endpoint {
    /// An endpoint that accepts connections if `server` is given.
    ///
    /// # Errors
    /// [`QuicError::Configuration`] when the TLS configuration cannot carry QUIC.
    pub fn new(
        epoch: Epoch,
        identity: &Identity,
        server: Option<(Arc<rustls::ServerConfig>, &Tuning)>,
    ) -> Result<Self, QuicError> {
        let mut rng = Rng::new(identity.seed);
        let seed = rng.seed();
        let rng = Arc::new(Mutex::new(rng));
        let wall = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &identity.reset_key);
        let mut config = q::EndpointConfig::new(Arc::new(reset));
        let (engine, cids) = (identity.engine, rng.clone());
        config.cid_generator(move || Box::new(Cids { engine, rng: cids.clone() }));
        config.rng_seed(Some(seed)).supported_versions(vec![VERSION_1]);
        let accepting = server.is_some();
        let tuning = server.as_ref().filter(|_| identity.qlog.is_some()).map(|(_, tuning)| Tuning::clone(tuning));
        let server = server.map(|(tls, tuning)| setup(tls, tuning, &identity.token_key, &wall)).transpose()?;
        let traced = server.clone().zip(tuning);
        let inner = q::Endpoint::new(Arc::new(config), server, true, None);
        let (qlog, server) = (identity.qlog.clone(), accepting);
        Ok(Self {
            inner,
            epoch,
            engine,
            rng,
            wall,
            handshaking: 0,
            retry_above: RETRY_ABOVE,
            accepting,
            server,
            qlog,
            traced,
        })
    }

    /// Sets the wall time, for the age of tokens.
    pub fn set_wall(&mut self, wall: neater_base::WallTime) {
        self.wall.store(wall.0.as_secs(), std::sync::atomic::Ordering::Relaxed);
    }

    fn accept(&mut self, incoming: q::Incoming, now: Instant, out: &mut Vec<u8>) -> Arrival {
        let now = self.epoch.theirs(now);
        if !self.accepting || self.handshaking >= REFUSE_ABOVE {
            return Arrival::Respond(self.inner.refuse(incoming, out).into());
        }
        if self.handshaking >= self.retry_above && incoming.may_retry() {
            return match self.inner.retry(incoming, out) {
                Ok(t) => Arrival::Respond(t.into()),
                Err(e) => Arrival::Respond(self.inner.refuse(e.into_incoming(), out).into()),
            };
        }
        match self.inner.accept(incoming, now, out, self.traced_setup()) {
            Ok((handle, inner)) => {
                self.handshaking += 1;
                Arrival::New(Handle(handle.0), Box::new(Connection::new(inner, self.epoch)))
            }
            Err(e) => e.response.map_or(Arrival::Nothing, |t| Arrival::Respond(t.into())),
        }
    }

    /// What the next connection that is accepted is set up with, if it has a trace of its own.
    fn traced_setup(&self) -> Option<Arc<q::ServerConfig>> {
        let (setup, tuning) = self.traced.as_ref()?;
        let stream = self.qlog.as_ref()?.stream(QlogOf::Server, self.epoch)?;
        let (mut setup, mut transport) = (q::ServerConfig::clone(setup), tuning.transport());
        transport.qlog_stream(Some(stream));
        setup.transport_config(Arc::new(transport));
        Some(Arc::new(setup))
    }

    /// Accepts connections again, after [`EndpointApi::stop_accepting`], with another certificate
    /// perhaps. Those that it has go on as they were set up.
    ///
    /// # Errors
    /// [`QuicError::Configuration`] when the TLS configuration cannot carry QUIC.
    pub fn accept_again(
        &mut self,
        identity: &Identity,
        tls: Arc<rustls::ServerConfig>,
        tuning: &Tuning,
    ) -> Result<(), QuicError> {
        let server = setup(tls, tuning, &identity.token_key, &self.wall)?;
        self.traced = identity.qlog.is_some().then(|| (server.clone(), tuning.clone()));
        self.inner.set_server_config(Some(server));
        (self.accepting, self.server) = (true, true);
        Ok(())
    }

    /// Whether it accepts connections, or did: other engines may share its port.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.server
    }

    /// Of so many handshakes at once as the caller allows, the second half must come from clients
    /// that have proved their addresses: forged ones cannot use up all.
    pub fn limit_handshakes(&mut self, most: usize) {
        self.retry_above = (most / 2).clamp(RETRY_LEAST, RETRY_ABOVE);
    }

    /// A connection that this endpoint accepted has finished its handshake, or failed.
    pub fn handshake_over(&mut self) {
        self.handshaking = self.handshaking.saturating_sub(1);
    }
}

/// The number of the engine that chose a packet's destination connection id, where it must be one
/// that an engine chose: in packets with a short header, which begin with it (RFC 9000 section
/// 17.3), and in Handshake packets. Those that come before may carry an id of the client's choice.
fn engine_of(packet: &[u8]) -> Option<u8> {
    const VERSION_1: [u8; 4] = [0, 0, 0, 1];
    const HANDSHAKE: u8 = 0b10;
    match *packet {
        [first, engine, ..] if first & 0x80 == 0 => Some(engine),
        [first, v0, v1, v2, v3, len, engine, ..]
            if [v0, v1, v2, v3] == VERSION_1 && first >> 4 & 0b11 == HANDSHAKE && usize::from(len) == CID_LEN =>
        {
            Some(engine)
        }
        _ => None,
    }
}

impl Endpoint {
    /// A packet that does not seem to be for this engine.
    fn foreign(&mut self, now: Instant, meta: Datagram, engine: u8, data: BytesMut, out: &mut Vec<u8>) -> Arrival {
        // A stateless reset looks like such a packet with a random id: it is for the connection
        // whose token it ends with (RFC 9000 section 10.3.1). The endpoint's answer to an unknown
        // packet is not sent if the other engine knows it.
        let (kept, before, len) = (data.clone(), out.len(), data.len());
        let ecn = EcnCodepoint::from_bits(meta.ecn as u8);
        let event = self.inner.handle(self.epoch.theirs(now), meta.source, meta.local, ecn, data, out);
        let answer = match event {
            Some(q::DatagramEvent::ConnectionEvent(handle, event)) => {
                return Arrival::For(Handle(handle.0), ConnectionEvent(event, len));
            }
            Some(q::DatagramEvent::Response(t)) => out.get(before..).map(|answer| (t.into(), answer.into())),
            _ => None,
        };
        out.truncate(before);
        Arrival::Foreign(Foreign { engine, data: kept, answer })
    }
}

impl EndpointApi for Endpoint {
    fn connect(
        &mut self,
        now: Instant,
        setup: &ClientSetup,
        remote: SocketAddr,
        name: &str,
    ) -> Result<(Handle, Connection), QuicError> {
        let crypto =
            QuicClientConfig::try_from(setup.tls.clone()).map_err(|e| QuicError::Configuration(e.to_string()))?;
        let mut config = q::ClientConfig::new(Arc::new(crypto));
        let mut transport = setup.tuning.transport();
        transport.qlog_stream(self.qlog.as_ref().and_then(|q| q.stream(QlogOf::Client, self.epoch)));
        config.transport_config(Arc::new(transport));
        let rng = self.rng.clone();
        config.initial_dst_cid_provider(Arc::new(move || {
            let mut id = [0; 16];
            rng.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut id);
            q::ConnectionId::new(&id)
        }));
        let (handle, inner) = self
            .inner
            .connect(self.epoch.theirs(now), config, remote, name)
            .map_err(|e| QuicError::Configuration(e.to_string()))?;
        Ok((Handle(handle.0), Connection::new(inner, self.epoch)))
    }

    fn handle_datagram(&mut self, now: Instant, meta: Datagram, data: BytesMut, out: &mut Vec<u8>) -> Arrival {
        // Only sockets that accept connections may be shared by several engines.
        if self.server
            && let Some(engine) = engine_of(&data).filter(|e| *e != self.engine)
        {
            return self.foreign(now, meta, engine, data, out);
        }
        let ecn = EcnCodepoint::from_bits(meta.ecn as u8);
        let len = data.len();
        let event = self.inner.handle(self.epoch.theirs(now), meta.source, meta.local, ecn, data, out);
        match event {
            None => Arrival::Nothing,
            Some(q::DatagramEvent::ConnectionEvent(handle, event)) => {
                Arrival::For(Handle(handle.0), ConnectionEvent(event, len))
            }
            Some(q::DatagramEvent::NewConnection(incoming)) => self.accept(incoming, now, out),
            Some(q::DatagramEvent::Response(t)) => Arrival::Respond(t.into()),
        }
    }

    fn handle_event(&mut self, handle: Handle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.inner.handle_event(q::ConnectionHandle(handle.0), event.0).map(|e| ConnectionEvent(e, 0))
    }

    fn forget(&mut self, handle: Handle) {
        let _ = self.inner.handle_event(q::ConnectionHandle(handle.0), q::EndpointEvent::drained());
    }

    fn stop_accepting(&mut self) {
        self.accepting = false;
    }

    fn open_connections(&self) -> usize {
        self.inner.open_connections()
    }
}

impl From<q::Transmit> for Transmit {
    fn from(t: q::Transmit) -> Self {
        Self {
            destination: t.destination,
            source: t.src_ip,
            ecn: t.ecn.map_or(Ecn::NotEct, |e| Ecn::from_bits(e as u8)),
            size: t.size,
            segment_size: t.segment_size,
        }
    }
}

/// quinn-proto's connection.
pub struct Connection {
    inner: q::Connection,
    epoch: Epoch,
    /// See [`ConnectionApi::set_send_window`].
    window: u64,
    receiving: Receiving,
    /// How streams ended whose last bytes were read together with that: the next read returns it.
    ended: BTreeMap<q::StreamId, ReadOutcome>,
    /// The streams of which something may not have left yet, in order.
    unsent: Vec<q::StreamId>,
    signals: Arc<Signals>,
    /// Whose they are.
    controller: usize,
    /// Room for datagrams that wait to leave, when none does.
    datagram_room: usize,
    /// How often it answers once it is over.
    closing: Closing,
    acknowledgements: Acknowledgements,
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connection").field("remote", &self.inner.remote_address()).finish_non_exhaustive()
    }
}

impl Connection {
    fn new(mut inner: q::Connection, epoch: Epoch) -> Self {
        let datagram_room = inner.datagrams().send_buffer_space();
        let (window, receiving) = (Tuning::SEND_WINDOW_MIN, Receiving::new());
        let (signals, controller) = (congestion::signals(&inner), congestion::identity(&inner));
        let (ended, unsent, closing) = (BTreeMap::new(), Vec::new(), Closing::new());
        let acknowledgements = Acknowledgements::default();
        Self {
            inner,
            epoch,
            window,
            receiving,
            ended,
            unsent,
            signals,
            controller,
            datagram_room,
            closing,
            acknowledgements,
        }
    }

    /// quinn-proto (0.11) arms its timer for what is in flight on the path of now alone. What was
    /// sent on another one and got lost would be sent again only after something else had been
    /// acknowledged, and perhaps there is nothing else: so there is.
    fn moved_from(&mut self, before: SocketAddr) {
        if self.inner.remote_address() != before {
            self.inner.ping();
        }
        let controller = congestion::identity(&self.inner);
        if controller != self.controller {
            self.controller = controller;
            self.signals = congestion::signals(&self.inner);
        }
    }

    /// A connection that is over sends CONNECTION_CLOSE and nothing else, and repeats it ever more
    /// rarely.
    fn poll_close(&mut self, now: Instant, max_datagrams: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.closing.may_send() {
            return None;
        }
        let transmit = self.inner.poll_transmit(self.epoch.theirs(now), max_datagrams.max(1), buf).map(Transmit::from);
        self.closing.on_sent(transmit.as_ref().map(|t| t.size));
        transmit
    }

    /// Nothing of a stream is to be sent any more.
    fn nothing_unsent(&mut self, stream: q::StreamId) {
        if let Ok(at) = self.unsent.binary_search(&stream) {
            self.unsent.remove(at);
        }
    }

    /// Something was written to a stream, and has not left.
    fn written(&mut self, stream: q::StreamId) {
        if let Err(at) = self.unsent.binary_search(&stream) {
            self.unsent.insert(at, stream);
        }
    }

    fn handshake(&self) -> Option<Box<HandshakeData>> {
        self.inner.crypto_session().handshake_data()?.downcast().ok()
    }

    /// Whether this side may write on the stream: quinn-proto panics when asked otherwise.
    fn may_send(&self, s: StreamId) -> bool {
        s.0.dir() == q::Dir::Bi || s.0.initiator() == self.inner.side()
    }

    fn may_receive(&self, s: StreamId) -> bool {
        s.0.dir() == q::Dir::Bi || s.0.initiator() != self.inner.side()
    }
}

fn code(n: u64) -> VarInt {
    VarInt::from_u64(n).unwrap_or(VarInt::MAX)
}

impl ConnectionApi for Connection {
    fn handle_event(&mut self, event: ConnectionEvent) {
        let before = self.inner.remote_address();
        if event.1 > 0 && self.inner.is_closed() {
            self.closing.on_received(event.1);
        }
        self.receiving.arrived(event.1);
        self.inner.handle_event(event.0);
        self.moved_from(before);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let before = self.inner.remote_address();
        self.inner.handle_timeout(self.epoch.theirs(now));
        self.moved_from(before);
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.inner.poll_timeout().map(|t| self.epoch.ours(t))
    }

    fn poll_event(&mut self) -> Option<Event> {
        use q::StreamEvent as S;
        let dir = |d| if d == q::Dir::Bi { Direction::Both } else { Direction::One };
        Some(match self.inner.poll()? {
            q::Event::HandshakeDataReady => Event::Reachable,
            q::Event::Connected => Event::Connected,
            q::Event::ConnectionLost { reason } => Event::Lost(reason.into()),
            q::Event::Stream(S::Opened { dir: d }) => Event::Opened(dir(d)),
            q::Event::Stream(S::Readable { id }) => {
                self.receiving.filled(id);
                Event::Readable(StreamId(id))
            }
            q::Event::Stream(S::Writable { id }) => Event::Writable(StreamId(id)),
            q::Event::Stream(S::Finished { id }) => {
                self.nothing_unsent(id);
                Event::Finished(StreamId(id))
            }
            // Until this side has reset it, quinn-proto goes on sending.
            q::Event::Stream(S::Stopped { id, error_code }) => Event::Stopped(StreamId(id), error_code.into_inner()),
            q::Event::Stream(S::Available { dir: d }) => Event::Available(dir(d)),
            q::Event::DatagramReceived => Event::DatagramReceived,
            q::Event::DatagramsUnblocked => Event::DatagramsUnblocked,
        })
    }

    fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.inner.poll_endpoint_events().map(EndpointEvent)
    }

    fn poll_transmit(&mut self, now: Instant, max_datagrams: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        if self.inner.is_closed() {
            return self.poll_close(now, max_datagrams, buf);
        }
        if let Some(in_flight) = self.signals.take_acknowledged() {
            let waiting_since = in_flight.then_some(now);
            self.acknowledgements = Acknowledgements { last: Some(now), waiting_since };
        }
        self.signals.take_asked();
        let transmit = self.inner.poll_transmit(self.epoch.theirs(now), max_datagrams.max(1), buf).map(Transmit::from);
        // Nothing was held back: what was written has left, unless to send has ended the connection
        // (its keys were used too often).
        let asked = self.signals.take_asked();
        if transmit.is_some() && asked {
            self.acknowledgements.waiting_since.get_or_insert(now);
        }
        if transmit.is_none() && !asked && !self.inner.is_closed() && !self.inner.is_handshaking() {
            self.unsent.clear();
        }
        transmit
    }

    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.inner.streams().open(direction.into()).map(StreamId)
    }

    fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        self.inner.streams().accept(direction.into()).map(StreamId)
    }

    fn write(&mut self, stream: StreamId, data: &[u8]) -> Result<usize, Option<u64>> {
        if !self.may_send(stream) {
            return Err(None);
        }
        match self.inner.send_stream(stream.0).write(data) {
            Ok(n) => {
                if n > 0 {
                    self.written(stream.0);
                }
                Ok(n)
            }
            Err(q::WriteError::Blocked) => Ok(0),
            Err(q::WriteError::Stopped(c)) => Err(Some(c.into_inner())),
            Err(q::WriteError::ClosedStream) => Err(None),
        }
    }

    fn finish(&mut self, stream: StreamId) {
        if self.may_send(stream) {
            // Already finished, reset or stopped: nothing more to send on it.
            let _ = self.inner.send_stream(stream.0).finish();
        }
    }

    fn reset(&mut self, stream: StreamId, c: u64) {
        if self.may_send(stream) {
            let _ = self.inner.send_stream(stream.0).reset(code(c));
            self.nothing_unsent(stream.0);
        }
    }

    fn stop(&mut self, stream: StreamId, c: u64) {
        self.ended.remove(&stream.0);
        self.receiving.was_read(stream.0, 0, true);
        if self.may_receive(stream) {
            let _ = self.inner.recv_stream(stream.0).stop(code(c));
        }
    }

    fn received_reset(&mut self, stream: StreamId) -> Option<u64> {
        if !self.may_receive(stream) {
            return None;
        }
        if let Some(ReadOutcome::Reset(code)) = self.ended.get(&stream.0) {
            return Some(*code);
        }
        Some(self.inner.recv_stream(stream.0).received_reset().ok()??.into_inner())
    }

    fn read(&mut self, stream: StreamId, buf: &mut [u8]) -> ReadOutcome {
        if !self.may_receive(stream) {
            return ReadOutcome::Closed;
        }
        if let Some(end) = self.ended.remove(&stream.0) {
            return end;
        }
        let mut recv = self.inner.recv_stream(stream.0);
        let Ok(mut chunks) = recv.read(true) else {
            self.receiving.was_read(stream.0, 0, true);
            return ReadOutcome::Closed;
        };
        let (mut some, mut filled) = (false, 0);
        let last = loop {
            match chunks.next(buf.len() - filled) {
                Ok(Some(chunk)) => {
                    some = true;
                    buf[filled..][..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    filled += chunk.bytes.len();
                    if filled == buf.len() {
                        break ReadOutcome::Blocked;
                    }
                }
                Ok(None) => break ReadOutcome::End,
                Err(q::ReadError::Blocked) => break ReadOutcome::Blocked,
                Err(q::ReadError::Reset(c)) => break ReadOutcome::Reset(c.into_inner()),
            }
        };
        // Whether credit must be sent is found out by poll_transmit, which the caller drains
        // anyway.
        let _ = chunks.finalize();
        self.receiving.was_read(stream.0, filled, filled < buf.len());
        if !some {
            return last;
        }
        // quinn-proto reports the end of a stream once, and then forgets the stream.
        if last != ReadOutcome::Blocked {
            self.ended.insert(stream.0, last);
        }
        ReadOutcome::Data(filled)
    }

    fn set_peer_streams(&mut self, direction: Direction, count: u32) {
        self.inner.set_max_concurrent_streams(direction.into(), VarInt::from_u32(count));
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        if self.may_send(stream) {
            let _ = self.inner.send_stream(stream.0).set_priority(priority);
        }
    }

    fn send_datagram(&mut self, data: Bytes) -> Result<bool, usize> {
        let mut datagrams = self.inner.datagrams();
        match datagrams.send(data, false) {
            Ok(()) => Ok(true),
            Err(q::SendDatagramError::Blocked(_)) => Ok(false),
            Err(_) => Err(datagrams.max_size().unwrap_or(0)),
        }
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        self.inner.datagrams().recv()
    }

    fn max_datagram(&mut self) -> Option<usize> {
        self.inner.datagrams().max_size()
    }

    fn close(&mut self, now: Instant, c: u64, reason: &[u8]) {
        congestion::let_go(&self.inner);
        self.inner.close(self.epoch.theirs(now), code(c), Bytes::copy_from_slice(reason));
    }

    fn local_address_changed(&mut self) {
        self.inner.local_address_changed();
    }

    fn ping(&mut self) {
        self.inner.ping();
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    fn has_early_data(&self) -> bool {
        self.inner.has_0rtt()
    }

    fn accepted_early_data(&self) -> bool {
        self.inner.accepted_0rtt()
    }

    fn alpn(&self) -> Option<Vec<u8>> {
        self.handshake()?.protocol
    }

    fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let Some(identity) = self.inner.crypto_session().peer_identity() else {
            return Vec::new();
        };
        identity
            .downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>()
            .map_or_else(|_| Vec::new(), |certs| certs.iter().map(|c| c.to_vec()).collect())
    }

    fn server_name(&self) -> Option<String> {
        self.handshake()?.server_name
    }

    fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    fn mtu(&self) -> u16 {
        self.inner.current_mtu()
    }

    fn has_unsent(&self, stream: StreamId) -> bool {
        self.unsent.binary_search(&stream.0).is_ok()
    }

    fn queued_datagrams(&mut self) -> usize {
        self.datagram_room.saturating_sub(self.inner.datagrams().send_buffer_space())
    }

    fn has_unacknowledged(&mut self, stream: StreamId) -> bool {
        if !self.may_send(stream) {
            return false;
        }
        // quinn-proto reveals it only by the window: a byte of room is free unless something is
        // kept for the peer.
        self.inner.set_send_window(1);
        let kept = self.inner.send_stream(stream.0).write(&[]) == Err(q::WriteError::Blocked);
        self.inner.set_send_window(self.window);
        kept
    }

    fn acknowledged(&self) -> u64 {
        congestion::acknowledged(&self.inner)
    }

    fn acknowledgements(&self) -> Acknowledgements {
        self.acknowledgements
    }

    fn stats(&self) -> Stats {
        let s = self.inner.stats();
        Stats {
            rtt: s.path.rtt,
            congestion_window: self.inner.congestion_state().metrics().congestion_window,
            sent: (s.udp_tx.datagrams, s.udp_tx.bytes),
            received: (s.udp_rx.datagrams, s.udp_rx.bytes),
            data_frames: s.frame_rx.stream + s.frame_rx.datagram,
            stream_frames: s.frame_rx.stream,
            challenges: s.frame_rx.path_challenge,
            lost: (s.path.lost_packets, s.path.lost_bytes),
            congestion_events: s.path.congestion_events,
            mtu: s.path.current_mtu,
        }
    }

    fn set_send_window(&mut self, bytes: u64) {
        self.window = bytes;
        self.inner.set_send_window(bytes);
    }

    fn receive_window(&self) -> (u64, u64) {
        (self.receiving.window(), self.receiving.exposed())
    }

    fn unread_has_shifted(&mut self) -> bool {
        self.receiving.has_shifted()
    }

    fn suitable_receive_window(&mut self, now: Instant, streams: usize, give: bool) -> Option<u64> {
        // What a round trip takes longer than that is mostly a queue of what the peer was let send:
        // a window that follows it makes it longer, and where nothing but this host's speed is the
        // limit, larger windows only leave its caches.
        let rtt = self.inner.rtt().min(INFLATED * self.inner.min_rtt());
        self.receiving.suitable(now, rtt, streams, give)
    }

    fn set_receive_window(&mut self, bytes: u64) {
        self.receiving.set(bytes);
        self.inner.set_receive_window(code(bytes));
    }
}
