//! SHUTDOWN (RFC 9260 section 3.3.8).
//!
//! ```text
//! |   Type = 7    |  Chunk Flags  |          Length = 8           |
//! |                      Cumulative TSN Ack                       |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// Its sender has nothing more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// All TSNs up to here were received.
    pub cumulative: Tsn,
}

impl Shutdown {
    /// Its type.
    pub const KIND: u8 = 7;
    pub(super) const NAME: &'static str = "SHUTDOWN";

    pub(super) fn decode(_flags: u8, mut fields: Fields<'_>) -> Result<Self, WireError> {
        let cumulative = Tsn(fields.u32()?);
        fields.end()?;
        Ok(Self { cumulative })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.cumulative.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_eight_bytes_long() {
        assert_wire(Shutdown { cumulative: Tsn(0x0102_0304) }, &[7, 0, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[7, 0, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
