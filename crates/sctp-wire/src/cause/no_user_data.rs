//! No User Data (RFC 9260 section 3.3.10.9).
//!
//! ```text
//! |        Cause Code = 9         |       Cause Length = 8        |
//! |                              TSN                              |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::Tsn;
use crate::writer::Writer;

/// A DATA chunk has no data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoUserData {
    /// The TSN of the chunk.
    pub tsn: Tsn,
}

impl NoUserData {
    /// Its code.
    pub const CODE: u16 = 9;
    pub(super) const NAME: &'static str = "No User Data";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let tsn = Tsn(fields.u32()?);
        fields.end().map(|()| Self { tsn })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.tsn.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_wire(NoUserData { tsn: Tsn(0x0102_0304) }, &[0, 9, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0, 9, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
