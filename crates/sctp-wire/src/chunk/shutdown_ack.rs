//! SHUTDOWN ACK (RFC 9260 section 3.3.9).
//!
//! ```text
//! |   Type = 8    |  Chunk Flags  |          Length = 4           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The answer to SHUTDOWN: everything has arrived here, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownAck;

impl ShutdownAck {
    /// Its type.
    pub const KIND: u8 = 8;
    pub(super) const NAME: &'static str = "SHUTDOWN ACK";

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
        assert_wire(ShutdownAck, &[8, 0, 0, 4]);
        assert!(decode(&[8, 0, 0, 8, 0, 0, 0, 0]).is_err());
    }
}
