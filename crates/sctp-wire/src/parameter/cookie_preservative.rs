//! Cookie Preservative (RFC 9260 section 3.3.2.1.3).
//!
//! ```text
//! |        Type = 9               |          Length = 8           |
//! |          Suggested Cookie Life-Span Increment (msec.)         |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A wish for a longer life of the cookie, after one that came back too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePreservative {
    /// How much longer, in milliseconds.
    pub increment_ms: u32,
}

impl CookiePreservative {
    /// Its type.
    pub const KIND: u16 = 9;
    pub(super) const NAME: &'static str = "Cookie Preservative";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let increment_ms = fields.u32()?;
        fields.end().map(|()| Self { increment_ms })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.increment_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_wire(CookiePreservative { increment_ms: 0x0102_0304 }, &[0, 9, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0, 9, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
