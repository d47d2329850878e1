//! SSN/TSN Reset Request (RFC 6525 section 4.3).
//!
//! ```text
//! |     Parameter Type = 15       |      Parameter Length = 8     |
//! |         Re-configuration Request Sequence Number              |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::ReconfigSeq;
use crate::writer::Writer;

/// All numbers of both directions restart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsnTsnReset {
    /// The request's number.
    pub request: ReconfigSeq,
}

impl SsnTsnReset {
    /// Its type.
    pub const KIND: u16 = 15;
    pub(super) const NAME: &'static str = "SSN/TSN Reset Request";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let request = ReconfigSeq(fields.u32()?);
        fields.end().map(|()| Self { request })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.request.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_is_one_number() {
        assert_wire(SsnTsnReset { request: ReconfigSeq(0x0102_0304) }, &[0, 15, 0, 8, 1, 2, 3, 4]);
        assert!(decode(&[0, 15, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0]).is_err());
    }
}
