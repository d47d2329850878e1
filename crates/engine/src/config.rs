//! What an engine is made with, and its figures.

use crate::stacks::settings::{Crypto, Qlog};

/// Bounds of one engine. Each is enforced, and what happens at it is part of the interface. Where
/// nothing would ever move at 0, it counts as 1: `send_buffer`, `engine_bytes`, `handshakes`,
/// `unverified`, `untaken`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may wait in one connection's send queue, with some 80 for keeping each message;
    /// beyond it `send` answers [`crate::SendError::Blocked`]. Default 256 kB. On QUIC the window
    /// follows the path, up to twice the bandwidth-delay product and 64 MB.
    pub send_buffer: usize,
    /// Bytes that may wait in the send queues of all connections together, parts of unfinished
    /// messages that framers keep included. When that is reached (the last message may exceed it),
    /// a connection may queue its [`Limits::send_floor`], or one message of at most
    /// [`Limits::send_buffer`] if its queue is empty: a flow goes on whatever the others do. Longer
    /// messages wait, but for those of connections that are being established and the rest of one
    /// that was begun in parts. What QUIC connections keep of what they have sent, until it is
    /// acknowledged, beyond 256 kB each, and SCTP associations, beyond [`Limits::send_buffer`]
    /// each, stays within what is left, or half of this. What their peers may send ahead of their
    /// readers, beyond 1.25 MB each, stays within as much again, and follows what the programs
    /// read, up to twice the bandwidth-delay product and 64 MB. Default 64 MB.
    ///
    /// So at worst an engine keeps, `E` being this, beside what its sockets hold in the kernel:
    ///
    /// - to be sent: 2 `E` (1.5 `E` where queues are full) and one message of at most
    ///   [`Limits::message`]; for each connection, the larger of [`Limits::send_floor`] and one
    ///   message of at most [`Limits::send_buffer`]; for each QUIC connection 256 kB, for each SCTP
    ///   association [`Limits::send_buffer`], for each connection over TLS 64 kB of records, which
    ///   are not counted among what is queued;
    /// - received: `E` and, for each QUIC connection, 1.25 MB; of datagrams `E` and, for each
    ///   connection, the larger of [`Limits::send_floor`] and one datagram, and for SCTP what
    ///   [`Limits::datagram_buffer`] allows; of a message that its framer has not got all of, what
    ///   the framer allows.
    pub engine_bytes: usize,
    /// Bytes that any connection may queue, whatever the others do. Default 16 kB.
    pub send_floor: usize,
    /// Bytes of received datagrams kept for a program that does not take them; of an SCTP
    /// association, whose peer is bound by flow control, four times as many at first, and up to 64
    /// times as many as the program takes what comes faster; all associations of one listener
    /// together four times [`Limits::engine_bytes`], and 64 kB each beyond that. While all other
    /// connections together keep [`Limits::engine_bytes`] of datagrams, each keeps
    /// [`Limits::send_floor`], or one. Default 256 kB.
    pub datagram_buffer: usize,
    /// The largest message that is accepted whole, when the queue is empty; also the most that a
    /// framer may keep of a message that is sent in parts. Default 64 MB.
    pub message: usize,
    /// Incoming connections per listener whose handshake is not finished. Default 1,024. Beyond it,
    /// the oldest that has had two seconds makes room for the next; connections wait in the kernel
    /// until then. Where one source (an address, or of IPv6 a network of 64 bits) holds more than
    /// half of them, others take the places of its oldest, and as many of its own wait outside the
    /// kernel; of more than these, its oldest are refused.
    pub handshakes: usize,
    /// DTLS clients per socket of a listener that have sent a ClientHello and have not yet proved
    /// that they receive at their address. Default 1,024. Beyond it the oldest is forgotten: a host
    /// that sends so many hellos under false addresses in one round trip of a client's keeps that
    /// client out. They do not count among `handshakes`.
    pub unverified: usize,
    /// Connections per listener that were delivered and that the program has not taken
    /// ([`crate::Engine::taken`]). Default 1,024. At this limit TCP's wait in the kernel, streams
    /// of QUIC in their connection, new connections of QUIC and datagrams of new peers are refused;
    /// delivery goes on when a quarter is free. Handshakes that are under way then are still
    /// finished and delivered. As many sessions of QUIC per socket may be there without a stream;
    /// the oldest that has had two seconds makes room for the next. A group holds as many streams
    /// of its peer's that the program has not taken ([`crate::Engine::taken_stream`]), dead ones
    /// included; more wait in their connection.
    pub untaken: usize,
    /// Peers of one shared UDP socket. Default 65,536.
    pub udp_peers: usize,
    /// SCTP associations at one port that peers at one address (for IPv6, in one network of 64
    /// bits) have opened: more are refused. Many hosts may be behind one address. Default 4,096.
    pub sctp_per_source: usize,
    /// Connections in all. Default 1,000,000.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            send_buffer: 256 << 10,
            engine_bytes: 64 << 20,
            send_floor: 16 << 10,
            datagram_buffer: 256 << 10,
            message: 64 << 20,
            handshakes: 1024,
            unverified: 1024,
            untaken: 1024,
            udp_peers: 65_536,
            sctp_per_source: 4096,
            connections: 1_000_000,
        }
    }
}

impl Limits {
    /// With no bound at which nothing would ever move, and no program be notified.
    pub(crate) fn usable(self) -> Self {
        Self {
            send_buffer: self.send_buffer.max(1),
            engine_bytes: self.engine_bytes.max(1),
            handshakes: self.handshakes.max(1),
            unverified: self.unverified.max(1),
            untaken: self.untaken.max(1),
            ..self
        }
    }
}

/// What an engine is made with.
#[derive(Clone)]
pub struct EngineConfig {
    /// Everything random follows from it. In production: 32 bytes from the operating system.
    pub seed: [u8; 32],
    /// The engine's number in connection ids, so that several engines can share a port.
    pub engine: u8,
    /// Keys shared by the engines of one listener; derived from the seed when `None`. With it,
    /// listeners share their ports with those of other engines, and datagrams for these are kept
    /// for [`crate::Engine::take_misrouted`].
    pub shared_secret: Option<[u8; 32]>,
    /// A secret that outlives the process: with it a QUIC server that was restarted at the same
    /// address resets the connections of its former process (stateless reset, RFC 9000 section
    /// 10.3), whose clients would otherwise wait for their idle timeout. It must be known to no
    /// other program, and to no other machine that may serve at the same address and port: a host
    /// that answers with it ends connections (section 21.11). Derived from what the engine has for
    /// its life when `None`.
    pub reset_secret: Option<[u8; 32]>,
    /// Whether SCTP associations over UDP and over IP offer congestion marks (ECN, RFC 3168 and RFC
    /// 4960 appendix A): where the peer offers them too, and a queue on the way marks, the window
    /// comes down without a loss. Off by default, as RFC 9260 has taken the appendix out and only
    /// reserves its chunks. DTLS hides marks: below it nothing is offered.
    pub sctp_ecn: bool,
    /// Cryptography, roots of trust and the wall clock of TLS and QUIC.
    pub crypto: Crypto,
    /// Bounds.
    pub limits: Limits,
    /// Whether plain TCP connections may take the fast path. Off, they go the general way, which
    /// does the same: for tests that compare both.
    pub fast_path: bool,
    /// Where qlog traces of QUIC connections go; nowhere if `None`.
    pub qlog: Option<Qlog>,
}

impl core::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("engine", &self.engine)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl EngineConfig {
    /// Default limits.
    #[must_use]
    pub fn new(seed: [u8; 32], crypto: Crypto) -> Self {
        let limits = Limits::default();
        Self {
            seed,
            engine: 0,
            shared_secret: None,
            reset_secret: None,
            sctp_ecn: false,
            crypto,
            limits,
            fast_path: true,
            qlog: None,
        }
    }
}

/// Figures of an engine since it was made; the first ten are of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Connections that exist.
    pub connections: u64,
    /// Sockets of connections, attempts and listeners that exist (QUIC's not counted).
    pub channels: u64,
    /// QUIC connections that exist.
    pub quic_connections: u64,
    /// SCTP associations that exist.
    pub sctp_associations: u64,
    /// Bytes in send queues, as [`Limits::engine_bytes`] counts them.
    pub bytes_queued: u64,
    /// What peers of QUIC connections may send ahead of their readers, beyond 1.25 MB of each
    /// connection.
    pub receive_windows: u64,
    /// What may be kept of what was sent, until it is acknowledged, beyond 256 kB of each QUIC
    /// connection and [`Limits::send_buffer`] of each SCTP association.
    pub send_windows: u64,
    /// Deadlines, stale ones included.
    pub timers: u64,
    /// Connection groups that exist.
    pub groups: u64,
    /// Listeners that exist.
    pub listeners: u64,
    /// Connections initiated.
    pub initiated: u64,
    /// Connections established, by either side.
    pub established: u64,
    /// Connections that could not be established.
    pub failed: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Connections that a cached outcome opened with one attempt.
    pub cache_hits: u64,
    /// Connections received by listeners.
    pub received: u64,
    /// Datagrams of another engine that arrived here.
    pub foreign_datagrams: u64,
    /// Incoming connections turned away at a limit.
    pub refused: u64,
    /// Datagrams that came to a listener and that no connection got: they were of no protocol that
    /// it speaks there, or of a new peer for which there was no room.
    pub unclaimed_datagrams: u64,
    /// At which limits, and what else was dropped or kept waiting at one.
    pub refusals: Refusals,
}

/// What was turned away, dropped or kept waiting because a limit was reached: numbers since the
/// engine was made. No peer or program is notified of most of it, so a server reports what becomes
/// more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Incoming handshakes that were given up for others ([`Limits::handshakes`]), or that took too
    /// long.
    pub handshakes: u64,
    /// Incoming connections whose handshake never began, because one source held most of
    /// [`Limits::handshakes`].
    pub not_begun: u64,
    /// DTLS clients that were forgotten before they had proved their address
    /// ([`Limits::unverified`]).
    pub unverified: u64,
    /// Connections and sessions that no kernel keeps, while the program takes none
    /// ([`Limits::untaken`], or its own limit), and sessions without a stream that made room for
    /// others.
    pub untaken: u64,
    /// New peers of a shared UDP socket ([`Limits::udp_peers`]).
    pub peers: u64,
    /// Connections and sessions beyond [`Limits::connections`].
    pub connections: u64,
    /// Streams of sessions beyond [`Limits::connections`], or that nothing takes any more.
    pub streams: u64,
    /// SCTP associations that were refused ([`Limits::sctp_per_source`] among others).
    pub associations: u64,
    /// Datagrams that were dropped because the program did not take earlier ones
    /// ([`Limits::datagram_buffer`]).
    pub datagrams: u64,
    /// How often a listener has left connections waiting in the kernel, because a limit was
    /// reached.
    pub delays: u64,
}

impl Refusals {
    /// Every number, with the words for what it counts.
    #[must_use]
    pub const fn counts(&self) -> [(&'static str, u64); 10] {
        [
            ("handshakes", self.handshakes),
            ("connections before their handshake", self.not_begun),
            ("unverified DTLS clients", self.unverified),
            ("connections that the program did not take", self.untaken),
            ("peers of UDP sockets", self.peers),
            ("connections beyond the limit", self.connections),
            ("streams", self.streams),
            ("SCTP associations", self.associations),
            ("datagrams", self.datagrams),
            ("delays in accepting", self.delays),
        ]
    }

    /// What has been added since these earlier ones.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            handshakes: self.handshakes.saturating_sub(earlier.handshakes),
            not_begun: self.not_begun.saturating_sub(earlier.not_begun),
            unverified: self.unverified.saturating_sub(earlier.unverified),
            untaken: self.untaken.saturating_sub(earlier.untaken),
            peers: self.peers.saturating_sub(earlier.peers),
            connections: self.connections.saturating_sub(earlier.connections),
            streams: self.streams.saturating_sub(earlier.streams),
            associations: self.associations.saturating_sub(earlier.associations),
            datagrams: self.datagrams.saturating_sub(earlier.datagrams),
            delays: self.delays.saturating_sub(earlier.delays),
        }
    }
}

/// What is turned away, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    Handshake,
    NotBegun,
    Unverified,
    Untaken,
    Peer,
    Connection,
    Stream,
}

impl EngineStats {
    /// Something incoming is turned away.
    pub(crate) fn refuse(&mut self, what: Refusal) {
        self.refused += 1;
        let count = match what {
            Refusal::Handshake => &mut self.refusals.handshakes,
            Refusal::NotBegun => &mut self.refusals.not_begun,
            Refusal::Unverified => &mut self.refusals.unverified,
            Refusal::Untaken => &mut self.refusals.untaken,
            Refusal::Peer => &mut self.refusals.peers,
            Refusal::Connection => &mut self.refusals.connections,
            Refusal::Stream => &mut self.refusals.streams,
        };
        *count += 1;
    }
}
