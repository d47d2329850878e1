//! State Cookie (RFC 9260 section 3.3.3.1.1).
//!
//! ```text
//! |           Type = 7           |            Length             |
//! /                             Cookie                            /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// What the responder needs to make the association, signed, for the initiator to send back in a
/// COOKIE ECHO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCookie<'a>(pub &'a [u8]);

impl<'a> StateCookie<'a> {
    /// Its type.
    pub const KIND: u16 = 7;
    pub(super) const NAME: &'static str = "State Cookie";

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
        assert_wire(StateCookie(&[1, 2, 3]), &[0, 7, 0, 7, 1, 2, 3]);
        assert_wire(StateCookie(&[]), &[0, 7, 0, 4]);
    }
}
