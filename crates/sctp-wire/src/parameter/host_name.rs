//! Host Name Address (RFC 9260 section 3.3.2.1.4).
//!
//! ```text
//! |           Type = 11          |            Length             |
//! /                           Host Name                           /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A host name, with at least one NUL behind it. No endpoint may send it, and its receiver aborts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostName<'a>(pub &'a [u8]);

impl<'a> HostName<'a> {
    /// Its type.
    pub const KIND: u16 = 11;
    pub(super) const NAME: &'static str = "Host Name Address";

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
        assert_wire(HostName(&[1, 2, 3]), &[0, 11, 0, 7, 1, 2, 3]);
        assert_wire(HostName(&[]), &[0, 11, 0, 4]);
    }
}
