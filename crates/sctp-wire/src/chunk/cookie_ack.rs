//! COOKIE ACK (RFC 9260 section 3.3.12).
//!
//! ```text
//! |   Type = 11   |  Chunk Flags  |          Length = 4           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The cookie was good: the association is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieAck;

impl CookieAck {
    /// Its type.
    pub const KIND: u8 = 11;
    pub(super) const NAME: &'static str = "COOKIE ACK";

    pub(super) fn decode(_flags: u8, fields: Fields<'_>) -> Result<Self, WireError> {
        fields.end().map(|()| Self)
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) const fn write(&self, _out: &mut Writer<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_a_header_and_nothing_else() {
        assert_wire(CookieAck, &[11, 0, 0, 4]);
        assert!(decode(&[11, 0, 0, 8, 0, 0, 0, 0]).is_err());
    }
}
