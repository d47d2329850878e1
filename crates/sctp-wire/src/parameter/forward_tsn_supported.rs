//! Forward-TSN-Supported (RFC 3758 section 3.1).
//!
//! ```text
//! |        Type = 0xc000          |          Length = 4           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The sender knows FORWARD TSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardTsnSupported;

impl ForwardTsnSupported {
    /// Its type.
    pub const KIND: u16 = 0xc000;
    pub(super) const NAME: &'static str = "Forward-TSN-Supported";

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
        assert_wire(ForwardTsnSupported, &[0xc0, 0, 0, 4]);
        assert!(decode(&[0xc0, 0, 0, 5, 0]).is_err());
    }
}
