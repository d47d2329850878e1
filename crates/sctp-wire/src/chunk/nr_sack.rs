//! NR-SACK (Natarajan 2009, section 3.3.1), in the layout that FreeBSD and usrsctp deployed.
//!
//! ```text
//! |   Type = 16   |  Chunk Flags  |         Chunk Length          |
//! |                      Cumulative TSN Ack                       |
//! |          Advertised Receiver Window Credit (a_rwnd)           |
//! | Number of Gap Ack Blocks = N  | Number of NR Gap Ack Blocks=M |
//! | Number of Duplicate TSNs = X  |           Reserved            |
//! |    Gap Ack Block #1 Start     |     Gap Ack Block #1 End      |
//! /                              ...                              /
//! |   NR Gap Ack Block #1 Start   |    NR Gap Ack Block #1 End    |
//! /                              ...                              /
//! |                        Duplicate TSN 1                        |
//! /                              ...                              /
//! ```

use super::sack::{GapBlock, Sack, gaps};
use crate::array::Array;
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// What was received, and what of it will never be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NrSack<'a> {
    /// All TSNs up to here were received.
    pub cumulative: Tsn,
    /// How many bytes its sender can still take.
    pub a_rwnd: u32,
    /// What was received beyond, and may be taken back; blocks are as in [`Sack::gaps`].
    pub gaps: Array<'a, GapBlock>,
    /// What was received beyond, and will not be taken back. The two lists have no TSN in common as
    /// FreeBSD and usrsctp write them; in the form of 2009 the first one has them all.
    pub non_renegable: Array<'a, GapBlock>,
    /// TSNs that came once more since the last acknowledgment, as often as they came.
    pub duplicates: Array<'a, Tsn>,
    /// As [`Sack::packets`].
    pub packets: u8,
}

impl<'a> NrSack<'a> {
    /// Its type.
    pub const KIND: u8 = 16;
    pub(super) const NAME: &'static str = "NR-SACK";
    /// How long it is without blocks and duplicates, which take four bytes each, in bytes.
    pub const HEADER_LEN: usize = 20;

    #[inline]
    pub(super) fn decode(flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let (cumulative, a_rwnd) = (Tsn(fields.u32()?), fields.u32()?);
        let (blocks, others) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let duplicates = usize::from(fields.u16()?);
        fields.u16()?;
        let list = gaps(&mut fields, blocks)?;
        let non_renegable = gaps(&mut fields, others)?;
        let duplicates = Array::take(&mut fields, duplicates)?;
        fields.end()?;
        Ok(Self { cumulative, a_rwnd, gaps: list, non_renegable, duplicates, packets: flags >> 6 })
    }

    #[inline]
    pub(super) const fn flags(&self) -> u8 {
        (if self.packets > Sack::MOST_PACKETS { Sack::MOST_PACKETS } else { self.packets }) << 6
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let count = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        out.u32(self.cumulative.0);
        out.u32(self.a_rwnd);
        out.u16(count(self.gaps.len()));
        out.u16(count(self.non_renegable.len()));
        out.u16(count(self.duplicates.len()));
        out.u16(0);
        self.gaps.write(out);
        self.non_renegable.write(out);
        self.duplicates.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;
    use crate::error::Problem;

    #[test]
    fn both_lists_and_duplicates_have_their_places() {
        let chunk = NrSack {
            cumulative: Tsn(12),
            a_rwnd: 4660,
            gaps: Array::new(&[GapBlock { start: 2, end: 3 }]),
            non_renegable: Array::new(&[GapBlock { start: 5, end: 5 }, GapBlock { start: 7, end: 9 }]),
            duplicates: Array::new(&[Tsn(11)]),
            packets: 2,
        };
        assert_wire(
            chunk,
            &[
                16, 0x80, 0, 36, 0, 0, 0, 12, 0, 0, 0x12, 0x34, 0, 1, 0, 2, 0, 1, 0, 0, 0, 2, 0, 3, 0, 5, 0, 5, 0, 7,
                0, 9, 0, 0, 0, 11,
            ],
        );
    }

    #[test]
    fn a_backward_block_of_either_list_is_an_error() {
        for (first, second) in [((0, 1), (1, 1)), ((1, 1), (3, 2))] {
            let mut wire = vec![16, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
            for (start, end) in [first, second] {
                wire.extend([0, start, 0, end]);
            }
            let error = decode(&wire).unwrap_err();
            assert!(matches!(error.problem, Problem::Value { .. }), "{error}");
        }
    }
}
