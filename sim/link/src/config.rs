//! What a link is like, and what it may know of a packet.

use crate::queue::{Codel, FqCodel, Red};
use crate::rate::Rate;
use crate::wire::{Jitter, Loss};
use core::time::Duration;
use neater_base::net::Ecn;
use std::net::SocketAddr;
use std::sync::Arc;

/// The transport protocol of a packet, as far as a middlebox looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Protocol number 17.
    Udp,
    /// Protocol number 6.
    Tcp,
    /// Protocol number 1, or 58 for IPv6.
    Icmp,
    /// Any other protocol number.
    Other(u8),
}

impl Protocol {
    /// UDP-Lite (RFC 3828): to middleboxes a protocol of its own, which they do not take for UDP.
    pub const UDP_LITE: Self = Self::Other(136);
}

/// The version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(addr: &SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }
}

/// What a link may look at: the headers, never the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Where from. The port is 0 where the protocol has none.
    pub source: SocketAddr,
    /// Where to. The port is 0 where the protocol has none.
    pub destination: SocketAddr,
    /// The ECN codepoint.
    pub ecn: Ecn,
}

/// What a filter looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All packets of a transport protocol.
    Protocol(Protocol),
    /// All packets of a family.
    Family(Family),
    /// TCP or UDP packets to a port.
    DestinationPort(u16),
    /// Packets of one protocol to a port.
    Service(Protocol, u16),
    /// All packets.
    Any,
}

impl Match {
    /// Whether the packet is meant.
    #[must_use]
    pub fn matches(&self, meta: &PacketMeta) -> bool {
        let ported = matches!(meta.protocol, Protocol::Udp | Protocol::Tcp);
        match *self {
            Self::Protocol(protocol) => meta.protocol == protocol,
            Self::Family(family) => Family::of(&meta.destination) == family,
            Self::DestinationPort(port) => ported && meta.destination.port() == port,
            Self::Service(protocol, port) => meta.protocol == protocol && meta.destination.port() == port,
            Self::Any => true,
        }
    }
}

/// What a filter does with the packets it looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drops them without a word.
    Drop,
    /// Drops them and lets the network tell the sender ("administratively prohibited").
    Reject,
}

/// One rule of a firewall. It concerns the packets that match, that are large enough, and that come after the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Which packets.
    pub what: Match,
    /// What happens to them.
    pub action: Action,
    /// Only packets of more bytes than this, IP header included: 0 for all.
    pub larger_than: u32,
    /// How many of them pass before the rule begins to hold: 0 for none. Counted from when the link got the rule.
    pub after: u64,
}

impl Filter {
    /// A rule that drops silently.
    #[must_use]
    pub const fn drop(what: Match) -> Self {
        Self { what, action: Action::Drop, larger_than: 0, after: 0 }
    }

    /// A rule that drops and reports.
    #[must_use]
    pub const fn reject(what: Match) -> Self {
        Self { what, action: Action::Reject, larger_than: 0, after: 0 }
    }

    /// The same for packets of more than `bytes` bytes only.
    #[must_use]
    pub const fn larger_than(mut self, bytes: u32) -> Self {
        self.larger_than = bytes;
        self
    }

    /// The same after the first `packets` that it concerns have passed.
    #[must_use]
    pub const fn after(mut self, packets: u64) -> Self {
        self.after = packets;
        self
    }

    /// Whether the rule concerns a packet of `len` bytes.
    #[must_use]
    pub fn concerns(&self, meta: &PacketMeta, len: u32) -> bool {
        len > self.larger_than && self.what.matches(meta)
    }
}

/// How much may wait. A packet counts from its arrival until its last bit is sent; a packet that finds the link idle is
/// always accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// This many bytes of IP packets.
    Bytes(u64),
    /// This many packets.
    Packets(usize),
}

/// Who waits, in which order, and who is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out; a packet for which there is no room is dropped.
    #[default]
    DropTail,
    /// First in, first out; when there is no room, those that have waited longest are dropped.
    HeadDrop,
    /// First in, first out; packets are dropped at random before there is no room.
    Red(Red),
    /// First in, first out; packets are dropped at the head when they have waited too long for too long.
    Codel(Codel),
    /// Flows take turns, and CoDel rules in each. When there is no room, the oldest packet of the flow with most bytes is
    /// dropped.
    FqCodel(FqCodel),
}

/// A fraction of packets overtakes the others: it arrives as soon as its last bit has left, without any delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overtaking {
    /// With which probability, 0 to 1.
    pub probability: f64,
    /// After an overtaker this many packets less one are not asked; 0 and 1 ask each. With probability 1, every packet whose
    /// number is a multiple of it overtakes.
    pub gap: u32,
}

/// What becomes of a packet that is larger than the MTU. It is dropped in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooBig {
    /// The network tells the sender (ICMP fragmentation needed, ICMPv6 packet too big).
    #[default]
    Report,
    /// Nobody hears of it: a path MTU black hole.
    BlackHole,
}

/// What one direction of a link is like.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// How fast it sends. `Rate::Fixed(0)` is the same as [`LinkConfig::down`].
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay that differs from packet to packet.
    pub jitter: Jitter,
    /// How much the jitter of a packet resembles that of the one before it, 0 to 1 (exclusive); see [`Jitter`].
    pub jitter_correlation: f64,
    /// Let jitter change the order of packets. Otherwise a packet waits for the one before it.
    pub reorder: bool,
    /// Packets that overtake others.
    pub overtaking: Option<Overtaking>,
    /// Which packets are lost on the wire.
    pub loss: Loss,
    /// The probability that a packet arrives twice, 0 to 1. The copy has a jitter of its own.
    pub duplicate: f64,
    /// The probability that a bit of a packet's IP payload flips, 0 to 1. Copies are sound.
    pub corrupt: f64,
    /// How much may wait.
    pub queue: QueueLimit,
    /// Who waits, in which order, and who is dropped.
    pub discipline: Discipline,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether larger packets are reported.
    pub too_big: TooBig,
    /// The firewall: the first rule that matches decides.
    pub filters: Vec<Filter>,
    /// Everything is dropped: the cable is cut.
    pub down: bool,
}

impl Default for LinkConfig {
    /// Unlimited, without delay or loss, 1,500 bytes MTU; room for 256 packets, which matters once a rate is set.
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Jitter::None,
            jitter_correlation: 0.0,
            reorder: false,
            overtaking: None,
            loss: Loss::None,
            duplicate: 0.0,
            corrupt: 0.0,
            queue: QueueLimit::Packets(256),
            discipline: Discipline::DropTail,
            mtu: 1500,
            too_big: TooBig::Report,
            filters: Vec::new(),
            down: false,
        }
    }
}

impl LinkConfig {
    /// A link that only delays.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// A link with a rate in bits per second and a propagation delay.
    #[must_use]
    pub fn rate(bits_per_second: u64, delay: Duration) -> Self {
        Self { rate: Rate::Fixed(bits_per_second), delay, ..Self::default() }
    }

    /// The same with each packet lost with probability `p`, 0 to 1.
    #[must_use]
    pub fn with_loss(mut self, p: f64) -> Self {
        self.loss = Loss::Random(p);
        self
    }

    /// The same without the packets of these indices.
    #[must_use]
    pub fn without(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.loss = Loss::Indices(Arc::new(indices.into_iter().collect()));
        self
    }

    /// The same with jitter: extra delay, uniform between zero and `jitter`, order kept.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = Jitter::Uniform(jitter);
        self
    }

    /// The same with another queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueLimit) -> Self {
        self.queue = queue;
        self
    }

    /// The same with another discipline of the queue.
    #[must_use]
    pub fn with_discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// The same with another MTU, and whether larger packets are reported.
    #[must_use]
    pub fn with_mtu(mut self, mtu: u32, too_big: TooBig) -> Self {
        self.mtu = mtu;
        self.too_big = too_big;
        self
    }

    /// The same with one more rule in the firewall.
    #[must_use]
    pub fn with_filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// The same, cut (`true`) or mended.
    #[must_use]
    pub fn with_down(mut self, down: bool) -> Self {
        self.down = down;
        self
    }
}
