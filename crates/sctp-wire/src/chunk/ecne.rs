//! ECNE (RFC 4960 appendix A; RFC 9260 section 3.2 keeps its number).
//!
//! ```text
//! |   Type = 12   |  Chunk Flags  |          Length = 8           |
//! |                      Lowest TSN Number                        |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// A packet came with a congestion mark; repeated until a CWR comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecne {
    /// The lowest TSN of the packet that was marked first.
    pub lowest: Tsn,
}

impl Ecne {
    /// Its type.
    pub const KIND: u8 = 12;
    pub(super) const NAME: &'static str = "ECNE";

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
        assert_wire(Ecne { lowest: Tsn(0x0102_0304) }, &[12, 0, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[12, 0, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
