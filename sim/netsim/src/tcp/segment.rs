//! Sequence numbers and segments.

use super::payload::Payload;
use neater_base::net::Ecn;

/// A position in one direction's sequence space.
///
/// It is 64 bits wide so that nothing has to be unwrapped; a segment's size still counts the four bytes that the number
/// has on the wire. Initial numbers are random over 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(pub(crate) u64);

impl Seq {
    /// The position `n` further on.
    pub(crate) const fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// The position `n` before.
    pub(crate) const fn minus(self, n: u64) -> Self {
        Self(self.0.saturating_sub(n))
    }

    /// How far this position lies after `earlier`; 0 if it does not.
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Bytes of a TCP header without options (RFC 9293 section 3.1).
pub(crate) const HEADER: u32 = 20;
/// The largest window that a SYN can state: it is never scaled (RFC 7323 section 2.2).
pub(crate) const MAX_UNSCALED_WINDOW: u64 = 65_535;
/// Bytes of the timestamps option and the two of padding before it.
pub(crate) const TIMESTAMPS: u32 = 12;
/// Bytes of an MPTCP option without data, and with them.
pub(crate) const MULTIPATH: u32 = 12;
pub(crate) const MULTIPATH_DATA: u32 = 20;
/// Subtypes of the MPTCP option, in the upper half of a byte (RFC 8684 section 3).
const MP_CAPABLE: u8 = 1;
const DSS: u8 = 2 << 4;
/// Blocks of selective acknowledgment that fit beside timestamps (RFC 2018 section 3).
pub(crate) const MAX_SACK: usize = 3;

/// The timestamps option (RFC 7323 section 3), in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamps {
    pub(crate) value: u32,
    pub(crate) echo: u32,
}

/// The blocks of a selective acknowledgment, the most recent first (RFC 2018 section 4); a duplicate may come before them
/// (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sack {
    blocks: [(Seq, Seq); MAX_SACK],
    count: u8,
}

impl Sack {
    /// Adds a block unless there is no room. Empty blocks are left out.
    pub(crate) fn push(&mut self, start: Seq, end: Seq) {
        if start < end
            && let Some(place) = self.blocks.get_mut(usize::from(self.count))
        {
            *place = (start, end);
            self.count += 1;
        }
    }

    pub(crate) fn first_only(mut self) -> Self {
        self.count = self.count.min(1);
        self
    }

    pub(crate) fn blocks(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.count)]
    }

    fn wire_len(&self) -> u32 {
        if self.count == 0 { 0 } else { 4 + 8 * u32::from(self.count) }
    }
}

/// A TCP segment (RFC 9293 section 3.1), without the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Option<Seq>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// ECN-Echo (RFC 3168 section 6.1).
    pub(crate) ece: bool,
    /// Congestion window reduced.
    pub(crate) cwr: bool,
    /// In bytes, already scaled.
    pub(crate) window: u64,
    /// By how many bits the window is shifted on the wire.
    pub(crate) shift: u8,
    /// Options of a SYN: maximum segment size, window scale, selective acknowledgments permitted.
    pub(crate) mss: Option<u32>,
    pub(crate) scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) sack: Sack,
    /// MPTCP (RFC 8684): in a SYN, that the sender takes part; behind it the receiver's token, by which it finds the
    /// connection whatever addresses the segment comes from.
    pub(crate) multipath: Option<u64>,
    /// The ECN codepoint of its packet: to send with, or as it arrived.
    pub(crate) ecn: Ecn,
    pub(crate) payload: Payload,
}

impl Segment {
    /// How much sequence space it takes.
    pub(crate) fn len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.syn) + u64::from(self.fin)
    }

    /// The position after it.
    pub(crate) fn end(&self) -> Seq {
        self.seq.plus(self.len())
    }

    /// Bytes of options, padded to a multiple of four.
    pub(crate) fn options_len(&self) -> u32 {
        let ts = if self.timestamps.is_some() { TIMESTAMPS } else { 0 } + self.multipath_len();
        if !self.syn {
            return ts + self.sack.wire_len();
        }
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.scale.is_some() { 4 } else { 0 };
        // Beside timestamps it takes the place of their padding.
        let sack = if self.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        mss + scale + sack + ts
    }

    /// MP_CAPABLE; with data their mapping, without them their acknowledgment alone (RFC 8684 sections 3.1 and 3.3).
    fn multipath_len(&self) -> u32 {
        match self.multipath {
            None => 0,
            Some(_) if self.payload.is_empty() => MULTIPATH,
            Some(_) => MULTIPATH_DATA,
        }
    }

    /// Writes the options as they are on the wire, [`Segment::options_len`] bytes of them.
    pub(crate) fn write_options(&self, out: &mut Vec<u8>) {
        const NOP: u8 = 1;
        if let Some(mss) = self.mss {
            out.extend([2, 4]);
            out.extend((mss.min(65_535) as u16).to_be_bytes());
        }
        match (self.syn && self.sack_permitted, self.timestamps) {
            (true, _) => out.extend([4, 2]),
            (false, Some(_)) => out.extend([NOP, NOP]),
            (false, None) => {}
        }
        match self.timestamps {
            Some(ts) => {
                out.extend([8, 10]);
                out.extend(ts.value.to_be_bytes());
                out.extend(ts.echo.to_be_bytes());
            }
            None if self.syn && self.sack_permitted => out.extend([NOP, NOP]),
            None => {}
        }
        if let Some(scale) = self.scale {
            out.extend([NOP, 3, 3, scale]);
        }
        let blocks = self.sack.blocks();
        if !self.syn && !blocks.is_empty() {
            out.extend([NOP, NOP, 5, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                out.extend((start.0 as u32).to_be_bytes());
                out.extend((end.0 as u32).to_be_bytes());
            }
        }
        if let Some(token) = self.multipath {
            let (len, subtype) = (self.multipath_len() as usize, if self.syn { MP_CAPABLE } else { DSS });
            let end = out.len() + len;
            out.extend([30, len as u8, subtype, 1]);
            out.extend(token.to_be_bytes());
            out.resize(end, 0);
        }
    }

    /// Bytes of header, options and payload.
    pub(crate) fn wire_len(&self) -> u32 {
        HEADER + self.options_len() + self.payload.len() as u32
    }

    /// The reset that answers a segment for which there is no connection (RFC 9293 section 3.10.7.1); none for a reset.
    pub(crate) fn reset_reply(&self) -> Option<Self> {
        if self.rst {
            return None;
        }
        Some(match self.ack {
            Some(ack) => Self { seq: ack, rst: true, ..Self::default() },
            None => Self { ack: Some(self.end()), rst: true, ..Self::default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_reset_takes_its_number_from_the_acknowledgment_or_acknowledges_everything() {
        let syn = Segment { seq: Seq(7), syn: true, ..Segment::default() };
        let reset = syn.reset_reply().unwrap();
        assert_eq!((reset.seq, reset.ack, reset.rst), (Seq(0), Some(Seq(8)), true));
        let payload = Payload::Bytes(Bytes::from_static(b"abc"));
        let data = Segment { seq: Seq(7), ack: Some(Seq(90)), payload, ..Segment::default() };
        let reset = data.reset_reply().unwrap();
        assert_eq!((reset.seq, reset.ack), (Seq(90), None));
        assert_eq!(reset.reset_reply(), None);
    }

    #[test]
    fn options_are_as_long_as_what_is_written() {
        let ts = Some(Timestamps { value: 1, echo: 2 });
        for syn in [false, true] {
            for timestamps in [None, ts] {
                for sack_permitted in [false, true] {
                    for scale in [None, Some(7)] {
                        let multipath = scale.map(u64::from);
                        let mut s = Segment { syn, timestamps, multipath, ..Segment::default() };
                        if syn {
                            (s.mss, s.scale, s.sack_permitted) = (Some(1460), scale, sack_permitted);
                        } else {
                            s.sack.push(Seq(1), Seq(5));
                            s.sack.push(Seq(9), Seq(9));
                            s.sack.push(Seq(1 << 33), Seq((1 << 33) + 5));
                        }
                        let mut out = Vec::new();
                        s.write_options(&mut out);
                        assert_eq!(out.len() as u32, s.options_len(), "{s:?}");
                        assert_eq!(out.len() % 4, 0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_syn_of_today_is_sixty_bytes_with_its_ip_header() {
        let timestamps = Some(Timestamps::default());
        let syn = Segment {
            syn: true,
            mss: Some(1460),
            scale: Some(7),
            sack_permitted: true,
            timestamps,
            ..Segment::default()
        };
        assert_eq!((syn.wire_len(), syn.len(), syn.end()), (40, 1, Seq(1)));
    }

    #[test]
    fn a_selective_acknowledgment_has_room_for_three_blocks() {
        let mut sack = Sack::default();
        for i in 0..5 {
            sack.push(Seq(i * 10), Seq(i * 10 + 5));
        }
        assert_eq!((sack.blocks().len(), sack.wire_len()), (3, 28));
    }
}
