//! Zero Checksum Acceptable (RFC 9653 section 4).
//!
//! ```text
//! |         Type = 0x8001         |          Length = 8           |
//! |           Error Detection Method Identifier (EDMID)           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// How errors are detected without the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorDetection(pub u32);

impl ErrorDetection {
    /// SCTP over DTLS (RFC 8261), whose records are authenticated.
    pub const DTLS: Self = Self(1);
}

/// The sender accepts packets whose checksum is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroChecksumAcceptable {
    /// Under this condition.
    pub method: ErrorDetection,
}

impl ZeroChecksumAcceptable {
    /// Its type.
    pub const KIND: u16 = 0x8001;
    pub(super) const NAME: &'static str = "Zero Checksum Acceptable";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let method = ErrorDetection(fields.u32()?);
        fields.end().map(|()| Self { method })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.method.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn it_names_one_method() {
        let wire = [0x80, 1, 0, 8, 0, 0, 0, 1];
        assert_wire(ZeroChecksumAcceptable { method: ErrorDetection::DTLS }, &wire);
        assert!(decode(&[0x80, 1, 0, 4]).is_err());
    }
}
