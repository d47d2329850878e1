//! CHUNKS (RFC 4895 section 3.2).
//!
//! ```text
//! |           Type = 0x8003      |            Length             |
//! /                          Chunk Types                          /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The types of the chunks that the sender accepts only authenticated, a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkList<'a>(pub &'a [u8]);

impl<'a> ChunkList<'a> {
    /// Its type.
    pub const KIND: u16 = 0x8003;
    pub(super) const NAME: &'static str = "CHUNKS";

    #[allow(clippy::unnecessary_wraps, reason = "all parameters are read through this signature")]
    pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self(fields.rest()))
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn its_value_is_what_it_carries() {
        assert_wire(ChunkList(&[1, 2, 3]), &[0x80, 3, 0, 7, 1, 2, 3]);
        assert_wire(ChunkList(&[]), &[0x80, 3, 0, 4]);
    }
}
