//! What can be set: of an endpoint, and of its associations.

use crate::ids::Route;
use crate::multipath::{Multipath, SilentProbing};
use core::time::Duration;
use neater_cc::{
    Base, Congestion, Cubic, CubicConfig, HyStartConfig, IdleRule, InitialWindow, NewReno, NewRenoConfig, PacingConfig,
    Reduction,
};
use neater_sctp_wire::chunk::{Asconf, AsconfAck, Auth, Init, InitAck, ShutdownComplete};
use std::net::IpAddr;

/// The most chunk types that we want to be authenticated: they are in every INIT chunk and cookie.
pub(crate) const MAX_REQUIRED: usize = 32;
/// The most keys of one association.
pub(crate) const MAX_KEYS: usize = 16;

/// The description of a packet layer (UDP, raw IP, DTLS). One instance per local address that
/// packets leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The local address, if it is fixed: announced to the peer when [`Config::tell_addresses`] is
    /// set.
    pub address: Option<IpAddr>,
    /// The largest IP packet that the link takes, in bytes.
    pub mtu: u16,
    /// What lies between the IP packet and the SCTP packet, in bytes: IP and UDP headers, or those
    /// of DTLS.
    pub overhead: u16,
    /// Whether the layer guarantees by itself that packets arrive as they were sent: then the
    /// checksum may be left out (RFC 9653).
    pub authenticates: bool,
}

impl Layer {
    /// UDP over IPv6 on a path that may be as narrow as IPv6 allows; fits IPv4 as well.
    #[must_use]
    pub const fn udp() -> Self {
        Self { address: None, mtu: 1280, overhead: 48, authenticates: false }
    }

    /// The largest SCTP packet, in bytes; a multiple of four.
    #[must_use]
    pub const fn room(&self) -> u16 {
        let room = self.mtu.saturating_sub(self.overhead);
        (if room < MIN_ROOM { MIN_ROOM } else { room }) / 4 * 4
    }
}

/// The least room for a packet that is believed: RFC 9260 section 7.3 leaves it to path MTU
/// discovery, and IPv4 guarantees 576 bytes (RFC 791), less the largest overhead.
pub const MIN_ROOM: u16 = 456;

/// The bounds of the retransmission timeout (RFC 9260 section 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoConfig {
    /// `RTO.Initial`.
    pub initial: Duration,
    /// `RTO.Min`.
    pub min: Duration,
    /// `RTO.Max`.
    pub max: Duration,
}

/// How losses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// By three miss indications (RFC 9260 section 7.2.4).
    MissIndications,
    /// By time, and with a probe for losses at the end (RFC 8985, applied to TSNs).
    RackTlp,
}

/// The congestion control policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Slow start and congestion avoidance with byte counting (RFC 9260 section 7.2).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
}

/// What limits bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// At most this many packets in answer to one event: `Max.Burst` (RFC 9260 section 6.1, rule
    /// D).
    Packets(u32),
    /// Packets are spread over the round trip.
    Paced(PacingConfig),
    /// Nothing.
    Unlimited,
}

/// Congestion control and loss recovery of every path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// How losses are found.
    pub detection: LossDetection,
    /// The policy.
    pub policy: Policy,
    /// The first window.
    pub initial_window: InitialWindow,
    /// How the window comes down.
    pub reduction: Reduction,
    /// How slow start is left before there is a loss: HyStart++ (RFC 9406) or Linux's HyStart;
    /// `None`: not at all.
    pub hystart: Option<HyStartConfig>,
    /// With CUBIC, until there was congestion: the window grows by at least one packet for so many
    /// that are acknowledged ([`CubicConfig::unknown_growth`]).
    pub unknown_growth: Option<u32>,
    /// What limits bursts.
    pub burst: Burst,
}

impl Recovery {
    /// What makes transports fast today: CUBIC, an initial window of ten full packets, HyStart as
    /// Linux has it (`docs/decisions/0017` has the reasons), proportional rate reduction, loss
    /// detection by time, pacing.
    #[must_use]
    pub fn modern() -> Self {
        Self {
            detection: LossDetection::RackTlp,
            policy: Policy::Cubic,
            // What ten segments of a TCP carry, the limit of RFC 6928 section 2, also while packets
            // still have the size that every path takes: what the search for larger ones finds does
            // not widen the window (RFC 8899 section 3, item 7).
            initial_window: InitialWindow::Bytes(14_600),
            reduction: Reduction::Proportional,
            hystart: Some(HyStartConfig::Paced),
            unknown_growth: Some(20),
            // TCP in Linux doubles its window by what acknowledgments let go, unpaced; two windows
            // per round trip are not enough for that, and hide how long a flight takes from
            // HyStart.
            burst: Burst::Paced(PacingConfig { slow_start_percent: 400, ..PacingConfig::default() }),
        }
    }

    /// As in RFC 9260, and nothing more.
    #[must_use]
    pub const fn rfc9260() -> Self {
        Self {
            detection: LossDetection::MissIndications,
            policy: Policy::NewReno,
            initial_window: InitialWindow::Rfc3390,
            reduction: Reduction::Instant,
            hystart: None,
            unknown_growth: None,
            burst: Burst::Packets(4),
        }
    }

    /// The congestion control of a new path whose largest chunk is `mss` bytes.
    pub(crate) fn congestion(&self, mss: u64) -> Congestion {
        let paced = matches!(self.burst, Burst::Paced(_));
        let cubic = CubicConfig {
            hystart: self.hystart,
            unknown_growth: self.unknown_growth,
            // The window does not grow unused, so it is what was in flight, but for the reports
            // that thin out while it drains.
            base: Base::Window,
            // RFC 9406 section 4.3: a sender that paces needs no limit. A receiver that is handed
            // many packets at once answers them with one SACK chunk.
            slow_start_limit: if paced { u32::MAX } else { CubicConfig::rfc9438().slow_start_limit },
            ..CubicConfig::rfc9438()
        };
        let controller: Box<dyn neater_cc::Controller> = match self.policy {
            Policy::NewReno => Box::new(NewReno::new(NewRenoConfig::rfc5681())),
            Policy::Cubic => Box::new(Cubic::new(cubic)),
        };
        let pacing = if let Burst::Paced(p) = self.burst { Some(p) } else { None };
        let config = neater_cc::Config {
            initial_window: self.initial_window,
            reduction: self.reduction,
            idle: IdleRule::Decay,
            grow_unused: false,
            pacing,
        };
        Congestion::new(config, controller, mss)
    }
}

/// Which stream may send next when several streams have something to send (RFC 8260 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// The message that was handed over first (section 3.1).
    #[default]
    FirstCome,
    /// Streams take turns (section 3.2).
    RoundRobin,
    /// Streams take turns with packets (section 3.3).
    RoundRobinPerPacket,
    /// The stream with the smallest priority value; equal ones take turns (section 3.4).
    Priority,
    /// Each stream gets the same share of the bytes (section 3.5).
    FairBandwidth,
    /// Each stream gets a share of the bytes in proportion to its weight (section 3.6).
    WeightedFair,
}

/// The protocol extensions that we offer, used when the peer offers them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// I-DATA (RFC 8260).
    pub interleaving: bool,
    /// FORWARD-TSN (RFC 3758).
    pub partial_reliability: bool,
    /// RE-CONFIG (RFC 6525).
    pub reconfiguration: bool,
    /// ECN (RFC 4960 appendix A, RFC 3168), for packet layers that send [`crate::Transmit::ect`]
    /// and report what arrived marked: one that does only the former would hide congestion. Off
    /// unless asked for: RFC 9260 has taken the appendix out and only reserves the types of its
    /// chunks, so that no standard in force defines how peers react; where both ends have it the
    /// window comes down without a loss (`tests/ecn.rs`, `tests/rfc9260_7.rs`).
    pub ecn: bool,
    /// No checksum over a layer that authenticates (RFC 9653).
    pub zero_checksum: bool,
    /// AUTH (RFC 4895), as [`AssociationConfig::authentication`] describes.
    pub authentication: bool,
    /// NR-SACK (Natarajan 2009, chapter 3): what has arrived out of order and will not be dropped
    /// again is reported so, and the sender keeps it no longer.
    pub nr_sack: bool,
    /// ASCONF (RFC 5061): addresses come and go while the association lives. Brings
    /// `authentication` with it.
    pub dynamic_addresses: bool,
}

impl Extensions {
    /// None of them.
    pub const NONE: Self = Self {
        interleaving: false,
        partial_reliability: false,
        reconfiguration: false,
        ecn: false,
        zero_checksum: false,
        authentication: false,
        nr_sack: false,
        dynamic_addresses: false,
    };

    /// Those that both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            interleaving: self.interleaving && other.interleaving,
            partial_reliability: self.partial_reliability && other.partial_reliability,
            reconfiguration: self.reconfiguration && other.reconfiguration,
            ecn: self.ecn && other.ecn,
            zero_checksum: self.zero_checksum && other.zero_checksum,
            authentication: self.authentication && other.authentication,
            nr_sack: self.nr_sack && other.nr_sack,
            dynamic_addresses: self.dynamic_addresses && other.dynamic_addresses,
        }
    }
}

impl Default for Extensions {
    /// All but ECN, AUTH, ASCONF and NR-SACK.
    fn default() -> Self {
        Self { interleaving: true, partial_reliability: true, reconfiguration: true, zero_checksum: true, ..Self::NONE }
    }
}

/// A key that both endpoints have been given: an endpoint pair shared key (RFC 4895 section 6.1).
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey {
    /// Its number.
    pub id: u16,
    /// Its bytes; none at all is the default key of all endpoints.
    pub secret: Vec<u8>,
}

impl core::fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "shared key {} of {} bytes", self.id, self.secret.len())
    }
}

/// How chunks are authenticated (RFC 4895), with [`Extensions::authentication`]. The same for all
/// associations of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// The types of chunks that we take only if they are authenticated; ASCONF and ASCONF-ACK
    /// always are. INIT, INIT ACK, SHUTDOWN COMPLETE and AUTH cannot be (section 3.2) and are left
    /// out; at most 32 are taken. A peer that does not authenticate is refused if there are any.
    pub required: Vec<u8>,
    /// SHA-256 is asked for before SHA-1, which every endpoint must have (section 3.3); else SHA-1
    /// alone.
    pub sha256: bool,
    /// The keys, at most 16. None: the empty one with number 0.
    pub keys: Vec<SharedKey>,
    /// The number of the key that we send with.
    pub key: u16,
}

impl Default for Authentication {
    fn default() -> Self {
        Self { required: Vec::new(), sha256: true, keys: Vec::new(), key: 0 }
    }
}

/// What buffers have room for before anything is known of the path, in bytes, unless they are
/// configured to be smaller: what is under way at 100 Mbit/s and 80 ms.
pub const INITIAL_BUFFER: u32 = 1 << 20;

/// What every association of an endpoint begins with.
#[derive(Clone, Debug)]
pub struct AssociationConfig {
    /// How many streams we wish to send on, 1 to 65,535.
    pub outbound_streams: u16,
    /// How many streams we accept, 1 to 65,535.
    pub inbound_streams: u16,
    /// The largest receive buffer in bytes, at least 4,096 (`a_rwnd` is at least 1,500: RFC 9260
    /// section 3.3.2). It grows while the application takes so much that the buffer would be the
    /// limit.
    pub receive_buffer: u32,
    /// How large it is at first, at least 4,096 bytes; never more than
    /// [`AssociationConfig::receive_buffer`]. [`INITIAL_BUFFER`].
    pub first_receive_buffer: u32,
    /// How many bytes of payload may wait to be sent or acknowledged, at most. Up to
    /// [`INITIAL_BUFFER`] may at any time, more as the congestion windows grow and where a path is
    /// slower than others.
    pub send_buffer: usize,
    /// How many messages may wait to be sent.
    pub max_messages: usize,
    /// The largest message we send, in bytes.
    pub max_message: usize,
    /// Retransmission timeout.
    pub rto: RtoConfig,
    /// `Max.Init.Retransmits`.
    pub max_init_retransmits: u32,
    /// `Association.Max.Retrans`.
    pub max_association_retransmits: u32,
    /// `Path.Max.Retrans`.
    pub max_path_retransmits: u32,
    /// `HB.interval`; `None`: no heartbeats except to verify paths.
    pub heartbeat_interval: Option<Duration>,
    /// The same for paths in UDP, whose way may lead through a NAT that forgets (RFC 6951 section
    /// 4); the shorter of the two counts.
    pub encapsulated_heartbeat_interval: Option<Duration>,
    /// `PFMR`: a path with more errors than this is doubted while there is another one (RFC 7829
    /// section 3); `None`: not before it has failed.
    pub potentially_failed: Option<u32>,
    /// The congestion window of a path whose heartbeat is answered after it was potentially failed,
    /// in full packets: 1 is CMT-PF1, 2 CMT-PF2 (Natarajan 2009, section 4.3.1); `None`: as the
    /// timeout has left it, which is one.
    pub potentially_failed_window: Option<u32>,
    /// While no path answers, how they are probed; `None`: as each of them would be by itself.
    pub silent_probing: Option<SilentProbing>,
    /// New data goes over all active paths at once; `None`: over one of them.
    pub multipath: Option<Multipath>,
    /// `PSMR`: with more errors than this on the preferred path, the one in its place becomes the
    /// preferred one (RFC 7829 section 5); `None`: never.
    pub primary_switchover: Option<u32>,
    /// Search for the largest packet that each path takes, up to what its layer does (RFC 8899);
    /// else that is believed.
    pub search_mtu: bool,
    /// Search also while there is next to nothing to send: many associations that are opened at
    /// once and send little need no probes.
    pub search_idle: bool,
    /// The size of packets, in bytes, that every path is believed to take until something larger
    /// has been shown to arrive: `BASE_PLPMTU` (RFC 8899 section 5.1.2). At first 1,232, which is
    /// what the least link of IPv6 takes with UDP.
    pub base_packet: u16,
    /// `SACK.Delay`, at most 500 ms (RFC 9260 section 6.2).
    pub sack_delay: Duration,
    /// Acknowledge at the latest with this many packets.
    pub sack_every: u32,
    /// Whether a packet of the peer's to another packet layer makes a path there, when a nonce was
    /// answered: for a host that is reached at all of its addresses. Otherwise a layer is used when
    /// the peer has taken its address (RFC 5061 section 5.3, F1).
    pub reached_everywhere: bool,
    /// The most paths.
    pub max_paths: usize,
    /// Congestion control and loss recovery.
    pub recovery: Recovery,
    /// Which stream may send next.
    pub scheduler: Scheduler,
    /// Extensions.
    pub extensions: Extensions,
    /// Number the fragments of I-DATA as Linux does (6.1 at least), and expect it: those after the
    /// first from 0, and not from 1 as RFC 8260 section 2.1 has it. Only for peers that are known
    /// to be Linux with interleaving, which cannot be known before it is too late: with any other,
    /// and with Linux otherwise, a message of several fragments is lost or ends the association.
    pub linux_fragments: bool,
    /// Where a peer names as many addresses as there are layers, each goes by the layer of the same
    /// number; otherwise, and without this, all go by the layer that the peer was met on. For
    /// layers that stand for networks which both ends have.
    pub pair_addresses: bool,
    /// The adaptation indication that we send (RFC 5061 section 4.2.6).
    pub adaptation: Option<u32>,
    /// Authenticated chunks.
    pub authentication: Authentication,
    /// What was handed over before the peer has lost its memory and was not begun is sent to the
    /// restarted peer, and an end that was asked for is still wanted (RFC 9260 section 5.2.4,
    /// action A). Otherwise all of that is given up: for a program that sends different data on
    /// different associations, it would reach the wrong one; and until [`crate::Event::Restarted`]
    /// has been taken, nothing more is taken for the new one.
    pub outlives_restart: bool,
}

impl Default for AssociationConfig {
    fn default() -> Self {
        Self {
            outbound_streams: 1024,
            inbound_streams: 65_535,
            receive_buffer: 16 << 20,
            first_receive_buffer: INITIAL_BUFFER,
            send_buffer: 64 << 20,
            max_messages: 65_536,
            max_message: 16 << 20,
            rto: RtoConfig {
                initial: Duration::from_secs(1),
                min: Duration::from_millis(200),
                max: Duration::from_secs(60),
            },
            max_init_retransmits: 8,
            max_association_retransmits: 10,
            max_path_retransmits: 5,
            heartbeat_interval: Some(Duration::from_secs(30)),
            encapsulated_heartbeat_interval: Some(Duration::from_secs(15)),
            search_mtu: true,
            search_idle: true,
            base_packet: crate::path::BASE,
            potentially_failed: Some(0),
            potentially_failed_window: Some(2),
            silent_probing: Some(SilentProbing::default()),
            multipath: None,
            primary_switchover: None,
            sack_delay: Duration::from_millis(100),
            sack_every: 2,
            reached_everywhere: false,
            max_paths: 8,
            recovery: Recovery::modern(),
            scheduler: Scheduler::default(),
            extensions: Extensions::default(),
            linux_fragments: false,
            pair_addresses: true,
            adaptation: None,
            authentication: Authentication::default(),
            outlives_restart: true,
        }
    }
}

impl AssociationConfig {
    /// The protocol as RFC 9260 has it, with its suggested values (section 16) and without
    /// extensions.
    #[must_use]
    pub fn rfc9260() -> Self {
        Self {
            rto: RtoConfig {
                initial: Duration::from_secs(1),
                min: Duration::from_secs(1),
                max: Duration::from_secs(60),
            },
            sack_delay: Duration::from_millis(200),
            recovery: Recovery::rfc9260(),
            encapsulated_heartbeat_interval: None,
            search_mtu: false,
            potentially_failed: None,
            potentially_failed_window: None,
            silent_probing: None,
            extensions: Extensions::NONE,
            ..Self::default()
        }
    }

    /// Concurrent multipath transfer as it was published: RFC 9260 with the algorithms of Iyengar
    /// 2006, and with `potentially_failed` CMT-PF2 of Natarajan 2009.
    #[must_use]
    pub fn as_published(potentially_failed: bool) -> Self {
        Self {
            multipath: Some(Multipath::as_published()),
            potentially_failed: potentially_failed.then_some(0),
            potentially_failed_window: potentially_failed.then_some(2),
            ..Self::rfc9260()
        }
    }

    /// How long a path may be idle before it is looked at.
    pub(crate) fn heartbeat_interval(&self, route: Route) -> Option<Duration> {
        let encapsulated = self.encapsulated_heartbeat_interval.filter(|_| route.remote.port() != 0);
        // Without heartbeats at all there are none in UDP either.
        self.heartbeat_interval.map(|i| encapsulated.map_or(i, |e| e.min(i)))
    }

    /// The same with every value in its range.
    #[must_use]
    pub(crate) fn sane(mut self) -> Self {
        self.outbound_streams = self.outbound_streams.max(1);
        self.inbound_streams = self.inbound_streams.max(1);
        self.receive_buffer = self.receive_buffer.max(4096);
        self.first_receive_buffer = self.first_receive_buffer.clamp(4096, self.receive_buffer);
        self.max_message = self.max_message.max(1);
        self.sack_delay = self.sack_delay.min(Duration::from_millis(500));
        self.sack_every = self.sack_every.max(1);
        self.max_paths = self.max_paths.clamp(1, 32);
        self.rto.max = self.rto.max.max(self.rto.min);
        self.rto.initial = self.rto.initial.clamp(self.rto.min, self.rto.max);
        self.extensions.authentication |= self.extensions.dynamic_addresses;
        let auth = &mut self.authentication;
        auth.required
            .extend(self.extensions.dynamic_addresses.then_some([Asconf::KIND, AsconfAck::KIND]).into_iter().flatten());
        auth.required.sort_unstable();
        auth.required.dedup();
        auth.required.retain(|k| ![Init::KIND, InitAck::KIND, ShutdownComplete::KIND, Auth::KIND].contains(k));
        auth.required.truncate(MAX_REQUIRED);
        auth.keys.truncate(MAX_KEYS);
        self
    }
}

/// What an endpoint is like.
#[derive(Clone, Debug)]
pub struct Config {
    /// The packet layers, at least one; [`crate::LayerId`] is an index.
    pub layers: Vec<Layer>,
    /// Our SCTP port.
    pub port: u16,
    /// Take associations that peers open.
    pub accept: bool,
    /// Announce to the peer the addresses of all layers (more than one path). Behind a NAT they
    /// mean nothing to the peer.
    pub tell_addresses: bool,
    /// The first byte of every verification tag of ours: which of several engines on one port an
    /// association belongs to.
    pub engine: Option<u8>,
    /// Does not answer packets of associations that it does not know, where RFC 9260 section 8.4
    /// wants an ABORT chunk, nor INIT chunks unless it accepts: for packet layers where a packet
    /// may be another program's.
    pub reserved: bool,
    /// How long a state cookie may be used: `Valid.Cookie.Life`.
    pub cookie_life: Duration,
    /// The most associations at once.
    pub max_associations: usize,
    /// The most of those that peers at one address (for IPv6, in one network of 64 bits) have
    /// opened: a host that can receive at one address gets through the cookies as often as it
    /// likes, and must not have them all. Many hosts may be behind one address.
    pub max_per_source: usize,
    /// What all associations together may hold of unread data of peers, in bytes. Each may hold 64
    /// kB beyond it (as a receive buffer of that size: up to three times as much where holes are
    /// filled), so that it gets on when others keep everything, and as much as its own buffer
    /// allows where nothing of what it holds could be read otherwise; what comes when there is no
    /// room is dropped, as if the network had lost it, and windows close.
    pub receive_budget: usize,
    /// The most stateless answers that wait to be sent.
    pub max_replies: usize,
    /// Stateless answers to packets out of the blue, and INIT ACK chunks larger than three times
    /// their INIT, per second.
    pub replies_per_second: u32,
    /// Of those, the most for one address (for IPv6, one network of 64 bits) per second.
    pub replies_per_source: u32,
    /// For the associations.
    pub association: AssociationConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            layers: vec![Layer::udp()],
            port: neater_sctp_wire::UDP_PORT,
            accept: false,
            tell_addresses: false,
            engine: None,
            reserved: false,
            cookie_life: Duration::from_secs(60),
            max_associations: 100_000,
            max_per_source: usize::MAX,
            receive_budget: usize::MAX,
            max_replies: 256,
            replies_per_second: 1000,
            replies_per_source: 100,
            association: AssociationConfig::default(),
        }
    }
}
