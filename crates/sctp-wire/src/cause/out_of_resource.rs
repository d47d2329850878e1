//! Out of Resource (RFC 9260 section 3.3.10.4).
//!
//! ```text
//! |        Cause Code = 4         |       Cause Length = 4        |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The sender can do no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfResource;

impl OutOfResource {
    /// Its code.
    pub const CODE: u16 = 4;
    pub(super) const NAME: &'static str = "Out of Resource";

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
        assert_wire(OutOfResource, &[0, 4, 0, 4]);
        assert!(decode(&[0, 4, 0, 5, 0]).is_err());
    }
}
