//! Supported Extensions (RFC 5061 section 4.2.7).
//!
//! ```text
//! |           Type = 0x8008      |            Length             |
//! /                          Chunk Types                          /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The types of the chunks, beyond RFC 9260, that the sender knows, a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedExtensions<'a>(pub &'a [u8]);

impl<'a> SupportedExtensions<'a> {
    /// Its type.
    pub const KIND: u16 = 0x8008;
    pub(super) const NAME: &'static str = "Supported Extensions";

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
        assert_wire(SupportedExtensions(&[1, 2, 3]), &[0x80, 8, 0, 7, 1, 2, 3]);
        assert_wire(SupportedExtensions(&[]), &[0x80, 8, 0, 4]);
    }
}
