//! Unrecognized Parameter (RFC 9260 section 3.3.3.1.2).
//!
//! ```text
//! |           Type = 8           |            Length             |
//! /                     Unrecognized Parameter                    /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A parameter of the INIT that the responder did not know: type, length and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecognized<'a>(pub &'a [u8]);

impl<'a> Unrecognized<'a> {
    /// Its type.
    pub const KIND: u16 = 8;
    pub(super) const NAME: &'static str = "Unrecognized Parameter";

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
        assert_wire(Unrecognized(&[1, 2, 3]), &[0, 8, 0, 7, 1, 2, 3]);
        assert_wire(Unrecognized(&[]), &[0, 8, 0, 4]);
    }
}
