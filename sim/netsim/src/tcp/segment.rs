//! Sequence numbers and segments.

use bytes::Bytes;

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
/// Bytes of the options of a SYN: maximum segment size (4), window scale (3) and one byte of padding.
pub(crate) const SYN_OPTIONS: u32 = 8;
/// The largest window that a SYN can state: it is never scaled (RFC 7323 section 2.2).
pub(crate) const MAX_UNSCALED_WINDOW: u64 = 65_535;

/// A TCP segment (RFC 9293 section 3.1), without the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Option<Seq>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// In bytes, already scaled.
    pub(crate) window: u64,
    /// The option of a SYN.
    pub(crate) mss: Option<u32>,
    pub(crate) payload: Bytes,
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

    /// Bytes of header, options and payload.
    pub(crate) fn wire_len(&self) -> u32 {
        HEADER + if self.syn { SYN_OPTIONS } else { 0 } + self.payload.len() as u32
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

    #[test]
    fn a_reset_takes_its_number_from_the_acknowledgment_or_acknowledges_everything() {
        let syn = Segment { seq: Seq(7), syn: true, ..Segment::default() };
        let reset = syn.reset_reply().unwrap();
        assert_eq!((reset.seq, reset.ack, reset.rst), (Seq(0), Some(Seq(8)), true));
        let data =
            Segment { seq: Seq(7), ack: Some(Seq(90)), payload: Bytes::from_static(b"abc"), ..Segment::default() };
        let reset = data.reset_reply().unwrap();
        assert_eq!((reset.seq, reset.ack), (Seq(90), None));
        assert_eq!(reset.reset_reply(), None);
    }

    #[test]
    fn a_syn_carries_options_and_takes_one_number() {
        let syn = Segment { seq: Seq(7), syn: true, ..Segment::default() };
        assert_eq!((syn.wire_len(), syn.len(), syn.end()), (28, 1, Seq(8)));
    }
}
