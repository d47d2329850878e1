//! ECN Capable (RFC 4960 appendix A; RFC 9260 section 3.3.2 keeps its number).
//!
//! ```text
//! |        Type = 0x8000          |          Length = 4           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The sender understands congestion marks, ECNE and CWR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnCapable;

impl EcnCapable {
    /// Its type.
    pub const KIND: u16 = 0x8000;
    pub(super) const NAME: &'static str = "ECN Capable";

    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, WireError> {
        fields.end().map(|()| Self)
    }

    pub(super) const fn write(&self, _out: &mut Writer<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_has_no_value() {
        assert_wire(EcnCapable, &[0x80, 0, 0, 4]);
        assert!(decode(&[0x80, 0, 0, 5, 0]).is_err());
    }
}
