//! Supported Address Types (RFC 9260 section 3.3.2.1.5).
//!
//! ```text
//! |           Type = 12           |            Length             |
//! |        Address Type #1        |        Address Type #2        |
//! /                            ......                             /
//! ```

use crate::array::Array;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The types of the address parameters that the sender can use; without this parameter, all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedAddressTypes<'a> {
    /// 5 for IPv4, 6 for IPv6; others are to be ignored.
    pub types: Array<'a, u16>,
}

impl<'a> SupportedAddressTypes<'a> {
    /// Its type.
    pub const KIND: u16 = 12;
    pub(super) const NAME: &'static str = "Supported Address Types";

    pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { types: Array::rest(fields)? })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.types.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn a_type_takes_two_bytes() {
        assert_wire(SupportedAddressTypes { types: Array::new(&[5, 6]) }, &[0, 12, 0, 8, 0, 5, 0, 6]);
        assert!(decode(&[0, 12, 0, 5, 0]).is_err());
    }
}
