//! What happened, for people and for bit-identity.

use crate::packet::{Body, Packet};
use crate::tcp::Payload;
use crate::world::LinkId;
use neater_base::Instant;
use neater_base::net::NetEvent;
use neater_link::DropReason;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The most events that are kept; older ones are dropped.
pub const MAX_TRACE: usize = 1 << 20;

/// What kind of packet it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A UDP datagram.
    Udp,
    /// A UDP-Lite datagram.
    UdpLite {
        /// Its checksum coverage, as its header says.
        coverage: u16,
    },
    /// A TCP segment.
    Tcp {
        /// It opens a direction.
        syn: bool,
        /// It acknowledges.
        ack: bool,
        /// It closes a direction.
        fin: bool,
        /// It resets.
        rst: bool,
        /// Bytes of payload.
        payload: u32,
    },
    /// An ICMP or ICMPv6 error.
    Icmp {
        /// The message's type.
        icmp_type: u8,
        /// The message's code.
        icmp_code: u8,
    },
}

/// What became of a packet at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceVerdict {
    /// It has crossed a link.
    Crossed {
        /// When it entered the link.
        entered: Instant,
    },
    /// A link dropped it.
    Dropped(DropReason),
    /// It reached its host.
    Delivered,
    /// A router found that it had crossed too many links.
    Expired,
    /// It reached its host with a wrong bit, and the host dropped it.
    Corrupt,
    /// Nobody has its destination address, or whoever has it is switched off.
    Unreachable,
}

/// One packet at one place: at the end of a link, or where it is dropped, or arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When it left the link, was dropped, or arrived.
    pub time: Instant,
    /// The link it was on; `None` where it ends.
    pub link: Option<LinkId>,
    /// The source address of the packet.
    pub from: SocketAddr,
    /// The destination address of the packet.
    pub to: SocketAddr,
    /// What it was.
    pub kind: PacketKind,
    /// Bytes, IP header included.
    pub size: u32,
    /// What became of it.
    pub verdict: TraceVerdict,
}

/// The trace and the digest of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    enabled: bool,
    events: VecDeque<TraceEvent>,
    digest: Digest,
}

impl Recorder {
    pub(crate) fn new(seed: u64) -> Self {
        let mut digest = Digest(0);
        digest.number(seed);
        Self { enabled: false, events: VecDeque::new(), digest }
    }

    pub(crate) fn enable(&mut self, on: bool) {
        self.enabled = on;
    }

    pub(crate) fn take(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events).into()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Records a packet at one place. The digest also covers the bytes it carries, where it is sent.
    pub(crate) fn packet(&mut self, time: Instant, link: Option<LinkId>, packet: &Packet, verdict: TraceVerdict) {
        let size = packet.len();
        let d = &mut self.digest;
        d.number(time.as_nanos());
        d.number(link.map_or(u64::MAX, |l| l.0 as u64));
        d.address(&packet.source);
        d.address(&packet.destination);
        d.number(u64::from(size) << 8 | packet.ecn as u64);
        match verdict {
            TraceVerdict::Crossed { entered } => d.number(entered.as_nanos()),
            TraceVerdict::Dropped(_) => d.number(1),
            TraceVerdict::Delivered => d.number(2),
            TraceVerdict::Unreachable => d.number(3),
            TraceVerdict::Expired => d.number(4),
            TraceVerdict::Corrupt => d.number(5),
        }
        match &packet.body {
            Body::Udp(payload) => d.bytes(payload),
            Body::UdpLite { payload, coverage } => {
                d.number(u64::from(*coverage));
                d.bytes(payload);
            }
            Body::Tcp(s) => {
                d.number(s.seq.0);
                d.number(s.ack.map_or(0, |a| a.0));
                let flags = [s.syn, s.fin, s.rst, s.ece, s.cwr];
                d.number(flags.iter().fold(s.window, |n, f| n << 1 | u64::from(*f)));
                if let Some(ts) = s.timestamps {
                    d.number(u64::from(ts.value) << 32 | u64::from(ts.echo));
                }
                for (start, end) in s.sack.blocks() {
                    d.number(start.0);
                    d.number(end.0);
                }
                match &s.payload {
                    Payload::Bytes(bytes) => d.bytes(bytes),
                    Payload::Zeros(n) => d.number(u64::from(*n)),
                }
            }
            Body::Icmp(icmp) => {
                let (icmp_type, icmp_code) = icmp.kind.type_and_code(packet.source.is_ipv6());
                d.number(u64::from(icmp_type) << 8 | u64::from(icmp_code));
            }
        }
        if self.enabled {
            self.keep(time, link, packet, size, verdict);
        }
    }

    #[cold]
    fn keep(&mut self, time: Instant, link: Option<LinkId>, packet: &Packet, size: u32, verdict: TraceVerdict) {
        if self.events.len() >= MAX_TRACE {
            self.events.pop_front();
        }
        let (from, to, kind) = (packet.source, packet.destination, kind(packet));
        self.events.push_back(TraceEvent { time, link, from, to, kind, size, verdict });
    }

    /// Covers what a host was told in the digest.
    pub(crate) fn event(&mut self, time: Instant, host: usize, event: &NetEvent) {
        let d = &mut self.digest;
        d.number(time.as_nanos());
        d.number(host as u64);
        match event {
            NetEvent::Ready { token, ready } => {
                d.number(token.0);
                let flags = [ready.readable, ready.writable, ready.error, ready.hangup];
                d.number(flags.iter().fold(1, |n, f| n << 1 | u64::from(*f)));
            }
            NetEvent::PathsChanged => d.number(101),
            NetEvent::NamesChanged => d.number(102),
            NetEvent::Resumed { gap } => d.number(gap.as_nanos() as u64),
        }
    }
}

fn kind(packet: &Packet) -> PacketKind {
    match &packet.body {
        Body::Udp(_) => PacketKind::Udp,
        Body::UdpLite { coverage, .. } => PacketKind::UdpLite { coverage: *coverage },
        Body::Tcp(s) => PacketKind::Tcp {
            syn: s.syn,
            ack: s.ack.is_some(),
            fin: s.fin,
            rst: s.rst,
            payload: s.payload.len() as u32,
        },
        Body::Icmp(icmp) => {
            let (icmp_type, icmp_code) = icmp.kind.type_and_code(packet.source.is_ipv6());
            PacketKind::Icmp { icmp_type, icmp_code }
        }
    }
}

/// A running hash: fast, 64 bits, not meant to resist an adversary.
#[derive(Clone, Copy, Debug)]
struct Digest(u64);

impl Digest {
    fn number(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.number(u64::from(*byte));
        }
    }

    fn address(&mut self, addr: &SocketAddr) {
        match addr {
            SocketAddr::V4(a) => self.number(u64::from(a.ip().to_bits()) << 16 | u64::from(a.port())),
            SocketAddr::V6(a) => {
                self.bytes(&a.ip().octets());
                self.number(u64::from(a.port()));
            }
        }
    }

    fn finish(self) -> u64 {
        let mut h = self.0;
        h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        h ^ (h >> 33)
    }
}
