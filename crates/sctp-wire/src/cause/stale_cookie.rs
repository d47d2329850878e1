//! Stale Cookie (RFC 9260 section 3.3.10.3).
//!
//! ```text
//! |        Cause Code = 3         |       Cause Length = 8        |
//! |                  Measure of Staleness (usec.)                 |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The cookie was good, but came back too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaleCookie {
    /// By how much, in microseconds, rounded up; 0 if the sender does not state it.
    pub staleness_us: u32,
}

impl StaleCookie {
    /// Its code.
    pub const CODE: u16 = 3;
    pub(super) const NAME: &'static str = "Stale Cookie";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let staleness_us = fields.u32()?;
        fields.end().map(|()| Self { staleness_us })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.staleness_us);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_wire(StaleCookie { staleness_us: 0x0102_0304 }, &[0, 3, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0, 3, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
