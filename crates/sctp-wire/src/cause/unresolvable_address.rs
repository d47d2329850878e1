//! Unresolvable Address (RFC 9260 section 3.3.10.5).
//!
//! ```text
//! |        Cause Code = 5         |         Cause Length          |
//! /                      Unresolvable Address                     /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The address or host name parameter that the sender cannot use: type, length and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvableAddress<'a>(pub &'a [u8]);

impl<'a> UnresolvableAddress<'a> {
    /// Its code.
    pub const CODE: u16 = 5;
    pub(super) const NAME: &'static str = "Unresolvable Address";

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
        assert_wire(UnresolvableAddress(&[1, 2, 3]), &[0, 5, 0, 7, 1, 2, 3]);
        assert_wire(UnresolvableAddress(&[]), &[0, 5, 0, 4]);
    }
}
