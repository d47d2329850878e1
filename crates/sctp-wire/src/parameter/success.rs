//! Success Indication (RFC 5061 section 4.2.5).
//!
//! ```text
//! |        Type = 0xc005          |          Length = 8           |
//! |                 ASCONF-Response Correlation ID                |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A request was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Success {
    /// The request's number.
    pub correlation: u32,
}

impl Success {
    /// Its type.
    pub const KIND: u16 = 0xc005;
    pub(super) const NAME: &'static str = "Success Indication";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let correlation = fields.u32()?;
        fields.end().map(|()| Self { correlation })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.correlation);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_wire(Success { correlation: 0x0102_0304 }, &[0xc0, 5, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0xc0, 5, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
