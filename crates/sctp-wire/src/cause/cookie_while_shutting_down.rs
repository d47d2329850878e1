//! Cookie Received While Shutting Down (RFC 9260 section 3.3.10.10).
//!
//! ```text
//! |        Cause Code = 10        |       Cause Length = 4        |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A cookie came while the association ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieWhileShuttingDown;

impl CookieWhileShuttingDown {
    /// Its code.
    pub const CODE: u16 = 10;
    pub(super) const NAME: &'static str = "Cookie Received While Shutting Down";

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
        assert_wire(CookieWhileShuttingDown, &[0, 10, 0, 4]);
        assert!(decode(&[0, 10, 0, 5, 0]).is_err());
    }
}
