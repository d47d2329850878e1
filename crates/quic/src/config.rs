//! What a QUIC endpoint is set up with.

use crate::clock::Epoch;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use neater_base::Instant;
use quinn_proto::{MtuDiscoveryConfig, TransportConfig, VarInt};
use ring::hmac;
use std::sync::Arc;

/// Where qlog traces of QUIC connections go (draft-ietf-quic-qlog-main-schema): asked for a writer
/// once for each connection that is opened or accepted. Times in a trace count from
/// [`Instant::ZERO`], so a simulated run writes the same bytes when it is repeated.
#[derive(Clone)]
pub struct Qlog(Arc<MakeWriter>);

type MakeWriter = dyn Fn(QlogOf) -> Option<Box<dyn std::io::Write + Send + Sync>> + Send + Sync;

/// What a trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QlogOf {
    /// One connection that was opened here.
    Client,
    /// One connection that was accepted here.
    Server,
}

impl Qlog {
    /// Traces go to what `writer` returns; nowhere if it returns nothing.
    pub fn new(
        writer: impl Fn(QlogOf) -> Option<Box<dyn std::io::Write + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(writer))
    }

    pub(crate) fn stream(&self, of: QlogOf, epoch: Epoch) -> Option<quinn_proto::QlogStream> {
        let mut config = quinn_proto::QlogConfig::default();
        config.writer((self.0)(of)?).start_time(epoch.theirs(Instant::ZERO));
        config.into_stream()
    }
}

impl core::fmt::Debug for Qlog {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Qlog")
    }
}

/// Keys and number of one engine's QUIC endpoints.
///
/// Endpoints of one listener on several engines share the two keys and differ in the number.
#[derive(Clone)]
pub struct Identity {
    /// The engine's number: the first byte of every connection id it issues, so that a packet which
    /// arrives at the wrong engine can be passed on.
    pub engine: u8,
    /// Seeds everything random in the endpoint.
    pub seed: [u8; 32],
    /// Signs stateless reset tokens (RFC 9000 section 10.3).
    pub reset_key: [u8; 32],
    /// Seals retry and address validation tokens (RFC 9000 section 8.1).
    pub token_key: [u8; 32],
    /// Where traces go.
    pub qlog: Option<Qlog>,
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Identity").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// The key for the stateless reset tokens of an endpoint at `local`, from a secret that endpoints
/// at other addresses have, too: none of them can be made to send a token that ends the connections
/// of another (RFC 9000 section 21.11).
#[must_use]
pub fn reset_key_at(secret: &[u8; 32], local: SocketAddr) -> [u8; 32] {
    let (ip, port) = (local.ip().to_canonical(), local.port().to_be_bytes());
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(b"stateless reset");
    match ip {
        IpAddr::V4(ip) => context.update(&ip.octets()),
        IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&port);
    let mut key = [0; 32];
    key.copy_from_slice(context.sign().as_ref());
    key
}

/// What can be tuned per connection. The defaults suit the public Internet.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The connection ends when nothing was received for this long; `None`: never. Default 30 s.
    pub idle_timeout: Option<Duration>,
    /// A PING is sent after this much silence; `None` (default): never.
    pub keep_alive: Option<Duration>,
    /// Bidirectional streams that the peer may have open. Default 256.
    pub peer_bidi_streams: u32,
    /// Unidirectional streams that the peer may have open. Default 64.
    pub peer_uni_streams: u32,
    /// Bytes that the peer may send on one stream ahead of its reader (RFC 9000 section 4.1), as
    /// far as the connection's window allows, which begins at [`Tuning::RECEIVE_WINDOW_MIN`] and
    /// follows what is read. Default 16 MB (100 ms at 1.3 Gbit/s).
    pub stream_window: u32,
    /// Bytes of unacknowledged and unsent data kept for the peer, at first. It follows the path:
    /// see [`Tuning::SEND_WINDOW_MAX`].
    pub send_window: u64,
    /// Accept and send unreliable datagrams (RFC 9221), with this much buffer each way; 0 switches
    /// them off.
    pub datagram_buffer: usize,
    /// Whether the peer's address may change (RFC 9000 section 9).
    pub migration: bool,
    /// Largest UDP payload to probe for (RFC 8899). Default 1452: an Ethernet frame over IPv6.
    pub mtu_upper_bound: u16,
}

impl Tuning {
    /// The send window never grows past this.
    pub const SEND_WINDOW_MAX: u64 = 64 << 20;
    /// The send window a connection starts with.
    pub const SEND_WINDOW_MIN: u64 = 256 << 10;
    /// Bytes that the peer may send on all streams together ahead of their readers, at first: 100
    /// ms at 100 Mbit/s.
    pub const RECEIVE_WINDOW_MIN: u64 = 1_250_000;
    /// That window never grows past this.
    pub const RECEIVE_WINDOW_MAX: u64 = 64 << 20;
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            idle_timeout: Some(Duration::from_secs(30)),
            keep_alive: None,
            peer_bidi_streams: 256,
            peer_uni_streams: 64,
            stream_window: 16 << 20,
            send_window: Self::SEND_WINDOW_MIN,
            datagram_buffer: 1 << 20,
            migration: true,
            mtu_upper_bound: 1452,
        }
    }
}

/// A packet is lost when so many later ones have arrived, or when it was sent this much longer than
/// a round trip before one that has (RFC 9002 section 6.1, which recommends 3 and 9/8, and more
/// where the order of packets changes). quinn-proto cannot learn that a packet which it took for
/// lost was only late: it would reduce its window for each such packet, and could not undo it. So
/// what TCP finds out (RFC 8985) is assumed: packets are late by a time, and how many others
/// overtake them depends on the rate, so time decides. The count is so large that up to 8 Gbit/s 3
/// ms are not taken for a loss; where more is in flight it still finds losses before the time does.
/// A receiver with quinn-proto drops what is more than 129 packets late, whatever the sender
/// thinks. See docs/decisions/0017.
const PACKET_THRESHOLD: u32 = 2048;
/// See [`PACKET_THRESHOLD`]. A single loss is repaired 3/8 of a round trip later than by the
/// recommended value.
const TIME_THRESHOLD: f32 = 1.5;

impl Tuning {
    pub(crate) fn transport(&self) -> TransportConfig {
        let mut t = TransportConfig::default();
        // A timeout too long for the wire's field means "never", which is what the field's largest
        // value amounts to.
        t.max_idle_timeout(self.idle_timeout.and_then(|d| d.try_into().ok()));
        t.keep_alive_interval(self.keep_alive);
        t.max_concurrent_bidi_streams(VarInt::from_u32(self.peer_bidi_streams));
        t.max_concurrent_uni_streams(VarInt::from_u32(self.peer_uni_streams));
        t.stream_receive_window(VarInt::from_u32(self.stream_window));
        t.receive_window(VarInt::from_u32(Self::RECEIVE_WINDOW_MIN as u32));
        t.send_window(self.send_window);
        t.datagram_receive_buffer_size((self.datagram_buffer > 0).then_some(self.datagram_buffer));
        t.datagram_send_buffer_size(self.datagram_buffer);
        let mut mtud = MtuDiscoveryConfig::default();
        mtud.upper_bound(self.mtu_upper_bound);
        t.mtu_discovery_config(Some(mtud));
        t.packet_threshold(PACKET_THRESHOLD).time_threshold(TIME_THRESHOLD);
        t.congestion_controller_factory(Arc::new(crate::congestion::Controllers));
        t
    }
}
