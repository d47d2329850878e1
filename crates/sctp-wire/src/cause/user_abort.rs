//! User-Initiated Abort (RFC 9260 section 3.3.10.12).
//!
//! ```text
//! |        Cause Code = 12        |         Cause Length          |
//! /                    Upper Layer Abort Reason                   /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The application wanted it so; its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAbort<'a>(pub &'a [u8]);

impl<'a> UserAbort<'a> {
    /// Its code.
    pub const CODE: u16 = 12;
    pub(super) const NAME: &'static str = "User-Initiated Abort";

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
        assert_wire(UserAbort(&[1, 2, 3]), &[0, 12, 0, 7, 1, 2, 3]);
        assert_wire(UserAbort(&[]), &[0, 12, 0, 4]);
    }
}
