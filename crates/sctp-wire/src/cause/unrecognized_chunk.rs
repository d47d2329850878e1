//! Unrecognized Chunk Type (RFC 9260 section 3.3.10.6).
//!
//! ```text
//! |        Cause Code = 6         |         Cause Length          |
//! /                       Unrecognized Chunk                      /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The chunk that the sender does not know: type, flags, length and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnrecognizedChunk<'a>(pub &'a [u8]);

impl<'a> UnrecognizedChunk<'a> {
    /// Its code.
    pub const CODE: u16 = 6;
    pub(super) const NAME: &'static str = "Unrecognized Chunk Type";

    #[allow(clippy::unnecessary_wraps, reason = "all causes are read through this signature")]
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
        assert_wire(UnrecognizedChunk(&[1, 2, 3]), &[0, 6, 0, 7, 1, 2, 3]);
        assert_wire(UnrecognizedChunk(&[]), &[0, 6, 0, 4]);
    }
}
