//! `Net`: the only door to the outside.
//!
//! The engine is generic over this trait and knows nothing else of the world. There are two
//! implementations, sockets (`neater-net`) and a network in virtual time (`neater-netsim`), and a
//! decorator that injects faults into either.
//!
//! The contract that both keep and the engine relies on:
//!
//! * **Nothing blocks.** An operation that cannot proceed returns [`ErrorKind::WouldBlock`].
//! * **Readiness is edge-triggered.** After `WouldBlock` or a batch that is `drained`, and only
//!   then, a [`NetEvent::Ready`] with the socket's token is promised when it may be worth trying
//!   again. A stream socket that connects reports writability once when its connection is made or
//!   has failed; one that was accepted may be written at once, and need not report it. Spurious
//!   events are allowed. That an established stream is gone because of an error is reported once,
//!   with [`Ready::error`], though nothing was tried; so is that both its directions have ended,
//!   with [`Ready::hangup`].
//! * **Sockets are handles**, valid until closed; a handle that names nothing gives
//!   [`ErrorKind::NotConnected`].
//! * **Writes never raise a signal**, descriptors are not inherited over `exec`.

use crate::{Instant, WallTime};
use core::any::Any;
use core::fmt;
use core::num::NonZeroUsize;
use core::time::Duration;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

/// A socket of a [`Net`]: an opaque handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sock(pub u64);

/// A number that the engine gives to a socket and gets back with its readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a socket has become ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Worth reading, accepting or receiving.
    pub readable: bool,
    /// Worth writing, or the connection attempt has come to an end.
    pub writable: bool,
    /// An error is pending, or the error queue holds something.
    pub error: bool,
    /// The peer has closed its sending direction, or the connection is gone.
    pub hangup: bool,
}

/// One fact from the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A socket is worth another try.
    Ready {
        /// The token that the socket was opened with.
        token: Token,
        /// What for.
        ready: Ready,
    },
    /// Interfaces, addresses or routes have changed: [`Net::interfaces`] returns the new state.
    PathsChanged,
    /// The resolver configuration or the hosts file has changed: [`Net::name_config`] returns the
    /// new state.
    NamesChanged,
    /// The clock jumped by more than 10 s: the machine was suspended or the process stopped.
    Resumed {
        /// How long it was away, at least.
        gap: Duration,
    },
}

/// Why an operation of [`Net`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again after the next readiness event.
    WouldBlock,
    /// The peer answered with a refusal (TCP RST to a SYN, ICMP port unreachable).
    ConnectionRefused,
    /// The peer reset the connection.
    ConnectionReset,
    /// The connection was aborted locally.
    ConnectionAborted,
    /// The peer did not answer in time.
    TimedOut,
    /// No route to the network, or a router reported so.
    NetworkUnreachable,
    /// A router reported that the host cannot be reached.
    HostUnreachable,
    /// The interface is down.
    NetworkDown,
    /// The port is in use.
    AddrInUse,
    /// The local address does not exist on this host.
    AddrNotAvailable,
    /// The address family is not supported.
    FamilyNotSupported,
    /// Not allowed: a firewall rule, a privileged port, a missing capability.
    PermissionDenied,
    /// The process or the system has no descriptor left.
    TooManyFiles,
    /// The system has no memory or buffer left.
    NoBuffers,
    /// The datagram is larger than the path allows.
    MessageTooLarge,
    /// Written to after the direction was closed.
    BrokenPipe,
    /// The socket does not exist or is not connected.
    NotConnected,
    /// An argument makes no sense.
    InvalidInput,
    /// The platform cannot do this.
    Unsupported,
    /// The engine was made in another process: a child of `fork` must make its own.
    Forked,
    /// The engine has no driver any more.
    NotDriven,
    /// Anything else; the code shows which.
    Other,
}

impl ErrorKind {
    /// The kind in words that fit after "failed: ".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WouldBlock => "not ready",
            Self::ConnectionRefused => "connection refused",
            Self::ConnectionReset => "connection reset by peer",
            Self::ConnectionAborted => "connection aborted",
            Self::TimedOut => "timed out",
            Self::NetworkUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::NetworkDown => "network is down",
            Self::AddrInUse => "address already in use",
            Self::AddrNotAvailable => "address not available on this host",
            Self::FamilyNotSupported => "address family not supported",
            Self::PermissionDenied => "permission denied",
            Self::TooManyFiles => "too many open files",
            Self::NoBuffers => "no buffer space",
            Self::MessageTooLarge => "message too large for the path",
            Self::BrokenPipe => "direction already closed",
            Self::NotConnected => "not connected",
            Self::InvalidInput => "invalid argument",
            Self::Unsupported => "not supported on this platform",
            Self::Forked => "engine belongs to another process (create one after fork)",
            Self::NotDriven => {
                "the engine has no driver any more (the runtime that it was made on has ended, or its Driver was dropped)"
            }
            Self::Other => "system error",
        }
    }
}

/// An error of [`Net`]: a kind that code can match on, and the system's own number for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetError {
    /// What happened.
    pub kind: ErrorKind,
    /// The system's error number, if one is behind it.
    pub code: Option<i32>,
}

impl NetError {
    /// An error without a system number.
    #[must_use]
    pub const fn new(kind: ErrorKind) -> Self {
        Self { kind, code: None }
    }

    /// Whether this only means "not now".
    #[must_use]
    pub fn is_would_block(&self) -> bool {
        self.kind == ErrorKind::WouldBlock
    }
}

impl From<ErrorKind> for NetError {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.code) {
            (ErrorKind::Other, Some(code)) => write!(f, "system error {code}"),
            (kind, _) => f.write_str(kind.as_str()),
        }
    }
}

impl std::error::Error for NetError {}

/// Explicit Congestion Notification codepoint (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the two low bits of the traffic class.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// What a socket is opened with. The default asks for nothing and costs no system call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Bind to this address and port; port 0 lets the system choose.
    pub local: Option<SocketAddr>,
    /// Bind to this interface, by index.
    pub interface: Option<u32>,
    /// Prefer (`true`) or avoid (`false`) temporary IPv6 source addresses (RFC 8981); `None` leaves
    /// the system's choice.
    pub temporary_address: Option<bool>,
    /// Options that can also be set later.
    pub set: Vec<SocketOption>,
    /// Let another socket share the local address (a second listener, a server that restarts).
    pub reuse_address: bool,
    /// On a listener: how many established connections may wait to be accepted.
    pub backlog: Option<u32>,
    /// With [`Net::udp`]: UDP-Lite (RFC 3828) instead of UDP. It is a protocol of its own, with
    /// ports of its own.
    pub udp_lite: bool,
    /// With [`Net::connect`] and [`Net::listen`]: TCP that offers, or accepts, several paths
    /// (MPTCP, RFC 8684). Where the system has none of that, or cannot set the other options on
    /// such a socket, it is ordinary TCP: [`Net::stream_paths`] reports what it is.
    pub multipath: bool,
}

/// An option of an open socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOption {
    /// Send small segments at once (switches Nagle's algorithm off).
    NoDelay(bool),
    /// Differentiated services codepoint, 0 to 63.
    Dscp(u8),
    /// Probe an idle connection after this long (TCP: idle time; the interval is a tenth of it, at
    /// least 1 s); `None` switches it off.
    KeepAlive(Option<Duration>),
    /// How long transmitted data may stay unacknowledged before the connection fails; `None` is the
    /// system's default.
    UserTimeout(Option<Duration>),
    /// Ask for this much kernel receive buffer, in bytes.
    ReceiveBuffer(usize),
    /// Ask for this much kernel send buffer, in bytes.
    SendBuffer(usize),
    /// Deliver ICMP errors through [`Net::take_icmp_error`].
    IcmpErrors(bool),
    /// Forbid fragmentation of sent packets (IPv4: the DF bit).
    DontFragment(bool),
    /// IPv4 only: leave the UDP checksum out.
    NoUdpChecksum(bool),
    /// Rank among what waits in this host's queues, 0 (the default) to 6, as Linux counts it: 2 is
    /// bulk, 6 interactive.
    Priority(u8),
    /// Wake the writer only when fewer than this many unsent bytes are in the kernel
    /// (TCP_NOTSENT_LOWAT).
    NotSentLowWater(u32),
    /// UDP-Lite only: how many bytes of each datagram its checksum covers, counted from the first
    /// byte of the UDP-Lite header, which has 8. 0 (the default) is the whole datagram, and so is
    /// more than it has; 1 to 7 are `InvalidInput` (RFC 3828 section 3.1).
    ChecksumCoverage(u16),
    /// UDP-Lite only: the least coverage of received datagrams, counted likewise. The system drops
    /// a datagram that is covered in part, and less than this; 0 drops all that are covered in
    /// part. The default is 8, which drops none.
    MinChecksumCoverage(u16),
}

/// A batch of equally long datagrams to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where to.
    pub destination: SocketAddr,
    /// Source address, if it matters.
    pub source: Option<IpAddr>,
    /// By which interface it leaves, regardless of routes to the destination; only together with a
    /// source.
    pub interface: Option<u32>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Length of each datagram but the last; `None`: all of `contents` is one datagram.
    pub segment_size: Option<usize>,
    /// The payload.
    pub contents: &'a [u8],
}

/// What is known of received datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// Where from.
    pub source: SocketAddr,
    /// The local address they were sent to, if known.
    pub local: Option<IpAddr>,
    /// The interface they came in by, if known.
    pub interface: Option<u32>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Where in its buffer they begin: some systems deliver a header first.
    pub start: usize,
    /// Bytes received, all segments together.
    pub len: usize,
    /// Length of each datagram but the last (the system may have coalesced several); equals `len`
    /// for a single one.
    pub stride: usize,
}

/// How many buffers a [`RecvBatch`] holds.
pub const BATCH: usize = 16;
/// Bytes in each buffer of a [`RecvBatch`]: 64 kB, so that a coalesced train fits.
pub const BATCH_BUFFER: usize = 65_536;

/// Buffers for received datagrams, used again for every call.
#[derive(Debug)]
pub struct RecvBatch {
    /// `BATCH` buffers of `BATCH_BUFFER` bytes.
    pub buffers: Vec<Box<[u8]>>,
    /// What each filled buffer holds.
    pub metas: Vec<RecvMeta>,
    /// Nothing more was there. It counts as [`ErrorKind::WouldBlock`]: the next arrival is
    /// reported, and nothing is found before.
    pub drained: bool,
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self {
            buffers: (0..BATCH).map(|_| vec![0; BATCH_BUFFER].into_boxed_slice()).collect(),
            metas: Vec::with_capacity(BATCH),
            drained: false,
        }
    }
}

impl RecvBatch {
    /// The filled buffers with what is known of them.
    pub fn filled(&mut self) -> impl Iterator<Item = (RecvMeta, &mut [u8])> {
        self.metas.iter().zip(self.buffers.iter_mut()).map(|(m, b)| (*m, &mut b[m.start..m.start + m.len]))
    }
}

/// What an ICMP error quotes of the offending packet: the beginning of what the socket was given to
/// send.
///
/// A sender of packets with a secret near their beginning can verify by it that the error is about
/// one of them, and not forged.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Quoted {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Quoted {
    /// As much as is kept.
    pub const MAX: usize = 32;

    /// The beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut quoted = Self::default();
        let len = bytes.len().min(Self::MAX);
        quoted.bytes[..len].copy_from_slice(&bytes[..len]);
        quoted.len = len as u8;
        quoted
    }

    /// What there is; a router may quote nothing.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes quoted", self.len)
    }
}

/// An ICMP error that concerns a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The destination that the offending packet had.
    pub destination: Option<SocketAddr>,
    /// What the message quotes of that packet, behind the UDP header if there was one.
    pub quoted: Quoted,
    /// The sender of the error.
    pub offender: Option<IpAddr>,
    /// ICMP or ICMPv6 type.
    pub icmp_type: u8,
    /// ICMP or ICMPv6 code.
    pub icmp_code: u8,
    /// The next-hop MTU, where the message carries one.
    pub mtu: Option<u32>,
    /// The error that a plain socket call would have given.
    pub error: NetError,
}

/// What kind of link an interface is (RFC 9622 section 6.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterfaceKind {
    /// Loops back to this host.
    Loopback,
    /// Ethernet and its like.
    Wired,
    /// IEEE 802.11.
    WiFi,
    /// Mobile broadband.
    Cellular,
    /// A tunnel or VPN.
    Tunnel,
    /// Not known.
    Other,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddr {
    /// The address.
    pub addr: IpAddr,
    /// Length of the on-link prefix.
    pub prefix: u8,
    /// A temporary address (RFC 8981).
    pub temporary: bool,
    /// Not to be used for new connections.
    pub deprecated: bool,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's index.
    pub index: u32,
    /// The system's name.
    pub name: String,
    /// What kind of link it is.
    pub kind: InterfaceKind,
    /// Whether it is up and has carrier.
    pub up: bool,
    /// Its addresses.
    pub addrs: Vec<InterfaceAddr>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether an IPv4 default route leads through it.
    pub default_v4: bool,
    /// Whether an IPv6 default route leads through it.
    pub default_v6: bool,
}

/// How names are resolved here: the texts, not yet parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameConfig {
    /// The contents of `/etc/resolv.conf` or its like.
    pub resolv_conf: Vec<u8>,
    /// The contents of `/etc/hosts` or its like.
    pub hosts: Vec<u8>,
}

/// What the system knows of a stream connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rtt_var: Option<Duration>,
    /// Congestion window, in bytes.
    pub congestion_window: Option<u64>,
    /// Segments retransmitted so far.
    pub retransmits: Option<u64>,
    /// Bytes that are sent and not acknowledged.
    pub in_flight: Option<u64>,
    /// Bytes that were written and not yet sent.
    pub unsent: Option<u64>,
    /// The path MTU, in bytes.
    pub path_mtu: Option<u32>,
    /// Delivery rate, in bytes per second.
    pub delivery_rate: Option<u64>,
    /// Bytes that the peer has acknowledged so far. Some systems count a SYN or FIN as one more: it
    /// is a number that grows.
    pub acknowledged: Option<u64>,
    /// Bytes that have come from the peer, in order.
    pub received: Option<u64>,
    /// How long ago the peer last acknowledged anything, if only that it is there and has no room.
    pub last_heard: Option<Duration>,
    /// How often the system has asked the peer since, by sending again or by a probe of a window
    /// that is closed: 0 when no answer is due.
    pub unanswered: Option<u32>,
}

/// One of the paths of a stream (RFC 8684 section 1.3: a subflow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// What the system knows of it, as of a connection of its own.
    pub info: StreamInfo,
}

/// What has become of the wish for several paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPaths {
    /// The peer takes part, and these are the paths now; there may be none for a moment.
    Several(Vec<Subflow>),
    /// It is one TCP connection: the peer has no MPTCP, or something on the way took its options
    /// out (RFC 8684 section 3.7).
    FellBack,
}

type Result<T> = core::result::Result<T, NetError>;

/// A way for the bytes of one TCP connection around the [`Net`] that owns it, from any thread.
///
/// The owner opens it, and closes it whenever bytes may not pass (something waits before them, the
/// connection is being closed). It is closed when it is made, closes itself when the system does
/// not take or have bytes, and is closed with its socket; [`Net::read`] and [`Net::write`] then
/// return what the direct stream has observed, and the contract of readiness holds as if they had
/// been called in its place.
///
/// Code that knows the [`Net`] finds its own kind of direct stream behind this (`Any`), and needs
/// no virtual call for each piece. So do the byte streams of `neater`, which use the direct streams
/// of `neater-net` and of no other network.
pub trait DirectStream: Any + Send + Sync + core::fmt::Debug {
    /// Writes some of the bytes, at least one. `None`: nothing was done, and the owner of the
    /// [`Net`] knows why.
    fn write(&self, buf: &[u8]) -> Option<NonZeroUsize>;
    /// Reads bytes, at least one. `None`: nothing was done, and the owner of the [`Net`] knows why.
    fn read(&self, buf: &mut [u8]) -> Option<NonZeroUsize>;
    /// Whether it has closed itself because the system has nothing to be read, and nothing has been
    /// reported since: the owner of the [`Net`] would find nothing now. Call it where the owner is
    /// at rest (under its lock), so that a later waiter misses no report. False where that is not
    /// known.
    fn is_dry(&self) -> bool {
        false
    }
    /// For the owner: lets bytes pass in these directions.
    fn open(&self, write: bool, read: bool);
    /// For the owner: lets nothing pass from here on. Nothing is under way when it returns.
    fn close(&self);
    /// How many bytes were written and read on it.
    fn bytes(&self) -> (u64, u64);
}

/// The only door to the outside. See the module's documentation for the contract.
pub trait Net {
    /// Monotonic time that goes on while the machine sleeps.
    fn now(&self) -> Instant;
    /// Wall-clock time.
    fn wall(&self) -> WallTime;

    /// Starts a TCP connection. Its end is reported as writability; [`Net::connect_result`] returns
    /// how it ended.
    ///
    /// # Errors
    /// What can be known at once: no route, no descriptor, a local address in use.
    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock>;
    /// How a connection attempt ended: `WouldBlock` while it has not.
    ///
    /// # Errors
    /// Why it failed.
    fn connect_result(&mut self, sock: Sock) -> Result<()>;
    /// Listens for TCP connections.
    ///
    /// # Errors
    /// Address in use or not available, no permission, no descriptor.
    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock>;
    /// Takes one established connection; `token` becomes its token.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `TooManyFiles` leaves it in the queue.
    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)>;
    /// Reads bytes; `Ok(0)` is the end of the peer's direction.
    ///
    /// # Errors
    /// `WouldBlock`, or why the connection is gone.
    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize>;
    /// Writes some of the bytes, at least one.
    ///
    /// # Errors
    /// `WouldBlock`, or why the connection is gone.
    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize>;
    /// A handle to the direct stream of a connected stream, which has one; `None` where there is no
    /// such thing.
    fn direct_stream(&mut self, sock: Sock) -> Option<Box<dyn DirectStream>> {
        let _ = sock;
        None
    }
    /// Closes the sending direction after what was written (TCP FIN).
    ///
    /// # Errors
    /// When the connection is gone.
    fn shutdown_write(&mut self, sock: Sock) -> Result<()>;
    /// Releases the socket. Written data of a stream is still delivered by the system.
    fn close(&mut self, sock: Sock);
    /// Releases a stream socket and sends the peer a reset.
    fn abort(&mut self, sock: Sock);
    /// What the system knows of a stream.
    ///
    /// # Errors
    /// When the socket is not a connected stream.
    fn stream_info(&self, sock: Sock) -> Result<StreamInfo>;
    /// The paths of a stream that was opened with [`SocketOptions::multipath`], or accepted from a
    /// listener that was. `None`: it is a socket of ordinary TCP, or not connected.
    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        let _ = sock;
        None
    }

    /// Why an established stream is gone, if it is and was not ended in order. The system may
    /// report it only once, here or as the result of another call; what had arrived can still be
    /// read.
    fn take_error(&mut self, sock: Sock) -> Option<NetError>;

    /// Opens a UDP socket, bound to `options.local` or to any address of the family of `family`; a
    /// UDP-Lite socket if `options.udp_lite` is set, which is used in the same way and has no
    /// segmentation offload. A datagram of UDP-Lite that is damaged where its checksum covers it is
    /// dropped, as one of UDP; one that is damaged elsewhere is received as it is.
    ///
    /// # Errors
    /// As [`Net::listen`]; `Unsupported` where there is no UDP-Lite.
    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock>;
    /// Why this host cannot open UDP-Lite sockets, in words that fit after "because"; `None`:
    /// nothing is known against it.
    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        Some("this network has no UDP-Lite")
    }
    /// Opens a socket for the packets of an IP protocol that the system does not speak itself. It
    /// is used like one for datagrams, but for the ports, which are 0: it gets what is sent to any
    /// of this host's addresses, or to that of `options.local`, without the IP header. A packet
    /// goes to every such socket.
    ///
    /// # Errors
    /// As [`Net::listen`]; `PermissionDenied` where it takes a privilege, `Unsupported` where there
    /// is no such thing.
    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        let _ = (token, protocol, family, options);
        Err(NetError::new(ErrorKind::Unsupported))
    }
    /// Why this host cannot use [`Net::raw`] for a protocol, in words that fit after "because";
    /// `None`: nothing is known against it.
    fn raw_obstacle(&mut self, protocol: u8) -> Option<&'static str> {
        let _ = protocol;
        Some("this network carries TCP and UDP only")
    }
    /// Fixes the peer of a UDP socket: only its datagrams are received, and its ICMP errors
    /// reported.
    ///
    /// # Errors
    /// No route.
    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()>;
    /// Sends datagrams; all or none.
    ///
    /// # Errors
    /// `WouldBlock`; `MessageTooLarge` when the path is known to be smaller; an ICMP error of an
    /// earlier datagram.
    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()>;
    /// Receives up to [`BATCH`] buffers of datagrams and returns how many are filled.
    /// [`RecvBatch::drained`] shows whether there were more, which saves a call that would return
    /// [`ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// `WouldBlock`, or an ICMP error of an earlier datagram.
    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize>;
    /// How many segments one [`Transmit`] may hold on this socket (1: no segmentation offload).
    fn max_segments(&self, sock: Sock) -> usize;
    /// Takes one ICMP error from the socket's error queue.
    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError>;

    /// The socket's own address.
    ///
    /// # Errors
    /// When there is no such socket.
    fn local_addr(&self, sock: Sock) -> Result<SocketAddr>;
    /// The system's own number of a socket, for options that this trait has not; `None` where there
    /// is none. It is the network's: who has it neither closes it nor reads from it.
    fn descriptor(&self, sock: Sock) -> Option<i32> {
        let _ = sock;
        None
    }
    /// Sets an option.
    ///
    /// # Errors
    /// `Unsupported`, or the error of the operating system.
    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()>;

    /// Appends what has happened since the last call, without waiting. Returns true if more may be
    /// pending.
    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool;
    /// Makes the pollable descriptor readable at `deadline`, and at once if `again` is true.
    fn arm(&mut self, deadline: Option<Instant>, again: bool);

    /// The interfaces of this host.
    fn interfaces(&self) -> &[Interface];
    /// The source address that the system would use towards `remote`; `None` when there is no route
    /// (RFC 6724 section 6, rule 1).
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr>;
    /// How names are resolved here.
    fn name_config(&self) -> &NameConfig;
    /// Why [`Net::name_config`] is empty, if its files could not be read when it was last asked
    /// for: for lack of a descriptor, for example. Then it may be asked for again.
    fn name_config_error(&self) -> Option<NetError> {
        None
    }

    /// Whether this process is a child of the one that made this network: then every operation
    /// fails with [`ErrorKind::Forked`] and has no effect. Asked often, so it costs a few
    /// instructions.
    #[inline]
    fn forked(&self) -> bool {
        false
    }
}

/// A network known only at run time, as `Box<dyn Net + Send>`: each operation costs an indirect
/// call.
#[warn(clippy::missing_trait_methods, reason = "a default would hide what the network itself does")]
impl<T: Net + ?Sized> Net for Box<T> {
    fn now(&self) -> Instant {
        (**self).now()
    }
    fn wall(&self) -> WallTime {
        (**self).wall()
    }
    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        (**self).connect(token, remote, options)
    }
    fn connect_result(&mut self, sock: Sock) -> Result<()> {
        (**self).connect_result(sock)
    }
    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        (**self).listen(token, local, options)
    }
    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)> {
        (**self).accept(listener, token)
    }
    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        (**self).read(sock, buf)
    }
    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        (**self).write(sock, bufs)
    }
    fn direct_stream(&mut self, sock: Sock) -> Option<Box<dyn DirectStream>> {
        (**self).direct_stream(sock)
    }
    fn shutdown_write(&mut self, sock: Sock) -> Result<()> {
        (**self).shutdown_write(sock)
    }
    fn close(&mut self, sock: Sock) {
        (**self).close(sock)
    }
    fn abort(&mut self, sock: Sock) {
        (**self).abort(sock)
    }
    fn stream_info(&self, sock: Sock) -> Result<StreamInfo> {
        (**self).stream_info(sock)
    }
    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        (**self).stream_paths(sock)
    }
    fn take_error(&mut self, sock: Sock) -> Option<NetError> {
        (**self).take_error(sock)
    }
    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        (**self).udp(token, family, options)
    }
    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        (**self).raw(token, protocol, family, options)
    }
    fn raw_obstacle(&mut self, protocol: u8) -> Option<&'static str> {
        (**self).raw_obstacle(protocol)
    }

    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        (**self).udp_lite_obstacle()
    }
    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()> {
        (**self).udp_connect(sock, remote)
    }
    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        (**self).send(sock, transmit)
    }
    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        (**self).recv(sock, batch)
    }
    fn max_segments(&self, sock: Sock) -> usize {
        (**self).max_segments(sock)
    }
    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError> {
        (**self).take_icmp_error(sock)
    }
    fn descriptor(&self, sock: Sock) -> Option<i32> {
        (**self).descriptor(sock)
    }
    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        (**self).local_addr(sock)
    }
    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()> {
        (**self).set(sock, option)
    }
    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        (**self).poll(events)
    }
    fn arm(&mut self, deadline: Option<Instant>, again: bool) {
        (**self).arm(deadline, again)
    }
    fn interfaces(&self) -> &[Interface] {
        (**self).interfaces()
    }
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        (**self).source_for(remote)
    }
    fn name_config(&self) -> &NameConfig {
        (**self).name_config()
    }
    fn name_config_error(&self) -> Option<NetError> {
        (**self).name_config_error()
    }
    fn forked(&self) -> bool {
        (**self).forked()
    }
}
