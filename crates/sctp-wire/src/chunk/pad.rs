//! PAD (RFC 4820 section 3).
//!
//! ```text
//! | Type = 0x84   |   Flags=0     |             Length            |
//! /                         Padding Data                          /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// Nothing, so that a packet is as long as a probe must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pad {
    /// How many bytes follow the header. They are written as zeros, and not looked at.
    pub len: usize,
}

impl Pad {
    /// Its type.
    pub const KIND: u8 = 0x84;
    pub(super) const NAME: &'static str = "PAD";
    /// How long it is when it is shortest, in bytes.
    pub const HEADER_LEN: usize = 4;

    pub(super) fn decode(_flags: u8, fields: Fields<'_>) -> Result<Self, WireError> {
        Ok(Self { len: fields.left() })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
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
        assert_wire(Pad { len: 0 }, &[0x84, 0, 0, 4]);
        assert_wire(Pad { len: 5 }, &[0x84, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&[0x84, 0, 0, 6, 1, 2]), Ok(Pad { len: 2 }.into()));
    }
}
