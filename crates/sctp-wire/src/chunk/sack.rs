//! SACK (RFC 9260 section 3.3.4).
//!
//! ```text
//! |   Type = 3    |  Chunk Flags  |         Chunk Length          |
//! |                      Cumulative TSN Ack                       |
//! |          Advertised Receiver Window Credit (a_rwnd)           |
//! | Number of Gap Ack Blocks = N  |  Number of Duplicate TSNs = M |
//! |    Gap Ack Block #1 Start     |     Gap Ack Block #1 End      |
//! /                              ...                              /
//! |                        Duplicate TSN 1                        |
//! /                              ...                              /
//! ```

use crate::array::{Array, Fixed};
use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// A run of TSNs that were received beyond the first gap, as offsets to the cumulative TSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapBlock {
    /// The offset of the first, from 1 (from 2, if the cumulative TSN is right).
    pub start: u16,
    /// The offset of the last, not below `start`.
    pub end: u16,
}

impl Fixed for GapBlock {
    const SIZE: usize = 4;

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self { start: u16::read(&bytes[..2]), end: u16::read(&bytes[2..]) }
    }

    #[inline]
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(u32::from(self.start) << 16 | u32::from(self.end));
    }
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack<'a> {
    /// All TSNs up to here were received.
    pub cumulative: Tsn,
    /// How many bytes its sender can still take.
    pub a_rwnd: u32,
    /// What was received beyond. Of received blocks it is known that none is backward or begins at
    /// 0; they may overlap and come in any order.
    pub gaps: Array<'a, GapBlock>,
    /// TSNs that came once more since the last SACK, as often as they came.
    pub duplicates: Array<'a, Tsn>,
    /// How many packets with data it stands for, 1 to [`Sack::MOST_PACKETS`], if its sender delays
    /// acknowledgments for concurrent multipath transfer; 0: it does not state it. The two highest
    /// bits of the flags, as FreeBSD and usrsctp have it.
    pub packets: u8,
}

/// Reads a list of blocks, none of which is backward or begins at 0.
#[inline]
pub(super) fn gaps<'a>(fields: &mut Fields<'a>, blocks: usize) -> Result<Array<'a, GapBlock>, WireError> {
    let place = *fields;
    let gaps = Array::<GapBlock>::take(fields, blocks)?;
    for gap in gaps.iter() {
        if gap.start == 0 {
            return Err(place.error(Problem::Value { field: "the start of a gap block", value: 0 }));
        }
        if gap.end < gap.start {
            let value = u32::from(gap.end);
            return Err(place.error(Problem::Value { field: "the end of a gap block, before its start,", value }));
        }
    }
    Ok(gaps)
}

impl<'a> Sack<'a> {
    /// Its type.
    pub const KIND: u8 = 3;
    pub(super) const NAME: &'static str = "SACK";
    /// How long it is without blocks and duplicates, which take four bytes each, in bytes.
    pub const HEADER_LEN: usize = 16;
    /// The largest value of [`Sack::packets`].
    pub const MOST_PACKETS: u8 = 3;

    #[inline]
    pub(super) fn decode(flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let (cumulative, a_rwnd) = (Tsn(fields.u32()?), fields.u32()?);
        let (blocks, duplicates) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let gaps = gaps(&mut fields, blocks)?;
        let duplicates = Array::take(&mut fields, duplicates)?;
        fields.end()?;
        Ok(Self { cumulative, a_rwnd, gaps, duplicates, packets: flags >> 6 })
    }

    #[inline]
    pub(super) const fn flags(&self) -> u8 {
        (if self.packets > Self::MOST_PACKETS { Self::MOST_PACKETS } else { self.packets }) << 6
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let count = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        out.u32(self.cumulative.0);
        out.u32(self.a_rwnd);
        out.u16(count(self.gaps.len()));
        out.u16(count(self.duplicates.len()));
        self.gaps.write(out);
        self.duplicates.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    /// The example of RFC 9260 section 3.3.4.
    #[test]
    fn the_example_of_the_rfc() {
        let sack = Sack {
            cumulative: Tsn(12),
            a_rwnd: 4660,
            gaps: Array::new(&[GapBlock { start: 2, end: 3 }, GapBlock { start: 5, end: 5 }]),
            duplicates: Array::EMPTY,
            packets: 0,
        };
        assert_wire(sack, &[3, 0, 0, 24, 0, 0, 0, 12, 0, 0, 0x12, 0x34, 0, 2, 0, 0, 0, 2, 0, 3, 0, 5, 0, 5]);
    }

    #[test]
    fn duplicates_follow_the_blocks() {
        let sack = Sack {
            cumulative: Tsn(1),
            a_rwnd: 0,
            gaps: Array::new(&[GapBlock { start: 2, end: 2 }]),
            duplicates: Array::new(&[Tsn(0x0102_0304), Tsn(1)]),
            packets: 0,
        };
        let wire = [3, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0, 2, 1, 2, 3, 4, 0, 0, 0, 1];
        assert_wire(sack, &wire);
    }

    #[test]
    fn counts_that_do_not_fit_the_length_are_errors() {
        let mut wire = [3, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 2];
        assert!(decode(&wire).is_ok());
        wire[15] = 1;
        assert_eq!(decode(&wire).unwrap_err().problem, Problem::Short { needed: 4, left: 0 });
        wire[15] = 0;
        wire[13] = 0;
        assert_eq!(decode(&wire).unwrap_err().problem, Problem::Trailing { extra: 4 });
        wire[12] = 0xff;
        assert_eq!(decode(&wire).unwrap_err().problem, Problem::Short { needed: 0xff00 * 4, left: 4 });
    }

    #[test]
    fn a_block_that_begins_at_the_cumulative_tsn_or_runs_backward_is_an_error() {
        for (start, end) in [(0, 1), (3, 2)] {
            let wire = [3, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, start, 0, end];
            let error = decode(&wire).unwrap_err();
            assert!(matches!(error.problem, Problem::Value { .. }), "{error}");
        }
    }
}
