//! Invalid Mandatory Parameter (RFC 9260 section 3.3.10.7).
//!
//! ```text
//! |        Cause Code = 7         |       Cause Length = 4        |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A field of INIT or INIT ACK must not be as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMandatoryParameter;

impl InvalidMandatoryParameter {
    /// Its code.
    pub const CODE: u16 = 7;
    pub(super) const NAME: &'static str = "Invalid Mandatory Parameter";

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
        assert_wire(InvalidMandatoryParameter, &[0, 7, 0, 4]);
        assert!(decode(&[0, 7, 0, 5, 0]).is_err());
    }
}
