//! Protocol Violation (RFC 9260 section 3.3.10.13).
//!
//! ```text
//! |        Cause Code = 13        |         Cause Length          |
//! /                     Additional Information                    /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// Anything else that the peer must not do, in words perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolViolation<'a>(pub &'a [u8]);

impl<'a> ProtocolViolation<'a> {
    /// Its code.
    pub const CODE: u16 = 13;
    pub(super) const NAME: &'static str = "Protocol Violation";

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
        assert_wire(ProtocolViolation(&[1, 2, 3]), &[0, 13, 0, 7, 1, 2, 3]);
        assert_wire(ProtocolViolation(&[]), &[0, 13, 0, 4]);
    }
}
