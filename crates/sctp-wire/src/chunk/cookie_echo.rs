//! COOKIE ECHO (RFC 9260 section 3.3.11).
//!
//! ```text
//! |   Type = 10   |  Chunk Flags  |            Length             |
//! /                            Cookie                             /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The cookie of the INIT ACK comes back to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieEcho<'a> {
    /// The value of the State Cookie parameter.
    pub cookie: &'a [u8],
}

impl<'a> CookieEcho<'a> {
    /// Its type.
    pub const KIND: u8 = 10;
    pub(super) const NAME: &'static str = "COOKIE ECHO";
    /// How long it is without the cookie, in bytes.
    pub const HEADER_LEN: usize = 4;

    pub(super) fn decode(_flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { cookie: fields.rest() })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn the_cookie_is_its_value() {
        assert_wire(CookieEcho { cookie: b"cooky" }, b"\x0a\0\0\x09cooky\0\0\0");
    }
}
