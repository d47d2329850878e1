//! CWR (RFC 4960 appendix A; RFC 9260 section 3.2 keeps its number).
//!
//! ```text
//! |   Type = 13   |  Chunk Flags  |          Length = 8           |
//! |                      Lowest TSN Number                        |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// The congestion window was reduced because of an ECNE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cwr {
    /// The lowest TSN of the ECNE that it answers.
    pub lowest: Tsn,
}

impl Cwr {
    /// Its type.
    pub const KIND: u8 = 13;
    pub(super) const NAME: &'static str = "CWR";

    pub(super) fn decode(_flags: u8, mut fields: Fields<'_>) -> Result<Self, WireError> {
        let lowest = Tsn(fields.u32()?);
        fields.end()?;
        Ok(Self { lowest })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.lowest.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_eight_bytes_long() {
        assert_wire(Cwr { lowest: Tsn(0x0102_0304) }, &[13, 0, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[13, 0, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
