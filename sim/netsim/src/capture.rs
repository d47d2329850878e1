//! Packet records in the format pcapng (draft-ietf-opsawg-pcapng), which Wireshark reads.

use crate::packet::{Body, Packet};
use crate::wire;
use neater_base::{Instant, WallTime};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The most bytes of one record; packets after that are left out.
pub const MAX_CAPTURE: usize = 1 << 30;

/// Connections whose window scale is remembered; windows of more are written unscaled.
const MAX_CONNECTIONS: usize = 1 << 16;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// LINKTYPE_RAW: a packet begins with its IP header.
const RAW_IP: u16 = 101;

/// Whether a packet leaves the place of the record, or comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    In,
    Out,
}

/// One record: packets at one interface.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The file so far.
    pub(crate) bytes: Vec<u8>,
    snap: usize,
    /// Nanoseconds of the wall clock at [`Instant::ZERO`].
    epoch: i128,
    scratch: Vec<u8>,
    /// The window scale that the SYN from one address to another has offered.
    shifts: BTreeMap<(SocketAddr, SocketAddr), u8>,
}

impl Capture {
    /// An empty record at an interface of this name. `wall` is the wall clock at `now`; `snap` the most bytes that are kept of
    /// a packet.
    pub(crate) fn new(interface: &str, wall: WallTime, now: Instant, snap: usize) -> Self {
        let epoch = wall.0.as_nanos() as i128 - i128::from(now.as_nanos());
        let (bytes, scratch, shifts) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut this = Self { bytes, snap, epoch, scratch, shifts };
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, 4, concat!("neater-netsim ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(&mut body, 0, &[]);
        block(&mut this.bytes, SECTION_HEADER, &body);
        body.clear();
        body.extend(RAW_IP.to_le_bytes());
        body.extend([0, 0]);
        body.extend((snap as u32).to_le_bytes());
        option(&mut body, 2, interface.as_bytes());
        // if_tsresol: nanoseconds.
        option(&mut body, 9, &[9]);
        option(&mut body, 0, &[]);
        block(&mut this.bytes, INTERFACE, &body);
        this
    }

    /// By how much the window of a segment is scaled: both sides have offered to, as far as the record has seen.
    fn shift(&mut self, packet: &Packet) -> u8 {
        let Body::Tcp(segment) = &packet.body else { return 0 };
        let (there, back) = ((packet.source, packet.destination), (packet.destination, packet.source));
        if segment.syn {
            match segment.scale {
                Some(scale) if self.shifts.len() < MAX_CONNECTIONS => self.shifts.insert(there, scale),
                _ => self.shifts.remove(&there),
            };
        }
        if self.shifts.contains_key(&back) { self.shifts.get(&there).copied().unwrap_or(0) } else { 0 }
    }

    /// Adds a packet.
    pub(crate) fn packet(&mut self, at: Instant, flow: Flow, packet: &Packet, hop_limit: u8) {
        if self.bytes.len() > MAX_CAPTURE {
            return;
        }
        self.scratch.clear();
        let shift = self.shift(packet);
        wire::encode(packet, hop_limit, shift, &mut self.scratch);
        let kept = self.scratch.len().min(self.snap);
        let time = u64::try_from(self.epoch + i128::from(at.as_nanos())).unwrap_or(0);
        let mut body = Vec::with_capacity(40 + kept);
        body.extend(0_u32.to_le_bytes());
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend((kept as u32).to_le_bytes());
        body.extend((self.scratch.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.scratch[..kept]);
        body.resize(body.len().next_multiple_of(4), 0);
        let direction = if flow == Flow::In { 1u32 } else { 2 };
        option(&mut body, 2, &direction.to_le_bytes());
        option(&mut body, 0, &[]);
        block(&mut self.bytes, ENHANCED_PACKET, &body);
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    debug_assert!(body.len().is_multiple_of(4));
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(len);
    out.extend_from_slice(body);
    out.extend(len);
}
