//! Padding (RFC 4820 section 4).
//!
//! ```text
//! |     Parameter Type = 0x8005   |       Parameter Length        |
//! /                         Padding Data                          /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// Nothing, so that an INIT is as long as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// How many bytes follow type and length. They are written as zeros, and not looked at.
    pub len: usize,
}

impl Padding {
    /// Its type.
    pub const KIND: u16 = 0x8005;
    pub(super) const NAME: &'static str = "Padding";

    #[allow(clippy::unnecessary_wraps, reason = "all parameters are read through this signature")]
    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, WireError> {
        Ok(Self { len: fields.left() })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.zeros(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_as_long_as_one_likes() {
        assert_wire(Padding { len: 0 }, &[0x80, 5, 0, 4]);
        assert_wire(Padding { len: 3 }, &[0x80, 5, 0, 7, 0, 0, 0]);
        assert_eq!(decode(&[0x80, 5, 0, 6, 1, 2]), Ok(Padding { len: 2 }.into()));
    }
}
