//! RANDOM (RFC 4895 section 3.1).
//!
//! ```text
//! |           Type = 0x8002      |            Length             |
//! /                         Random Number                         /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The sender's part of the key: 32 random bytes (RFC 4895 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random<'a>(pub &'a [u8]);

impl<'a> Random<'a> {
    /// Its type.
    pub const KIND: u16 = 0x8002;
    pub(super) const NAME: &'static str = "RANDOM";

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
        assert_wire(Random(&[1, 2, 3]), &[0x80, 2, 0, 7, 1, 2, 3]);
        assert_wire(Random(&[]), &[0x80, 2, 0, 4]);
    }
}
