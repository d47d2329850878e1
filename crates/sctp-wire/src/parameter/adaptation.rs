//! Adaptation Layer Indication (RFC 5061 section 4.2.6).
//!
//! ```text
//! |        Type = 0xc006          |          Length = 8           |
//! |                     Adaptation Code point                     |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// What the application runs over SCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptation {
    /// The application's number for it; not looked at here.
    pub code: u32,
}

impl Adaptation {
    /// Its type.
    pub const KIND: u16 = 0xc006;
    pub(super) const NAME: &'static str = "Adaptation Layer Indication";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let code = fields.u32()?;
        fields.end().map(|()| Self { code })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.code);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_wire(Adaptation { code: 0x0102_0304 }, &[0xc0, 6, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0xc0, 6, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
