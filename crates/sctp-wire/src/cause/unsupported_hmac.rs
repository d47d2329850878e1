//! Unsupported HMAC Identifier (RFC 4895 section 4.1).
//!
//! ```text
//! |      Cause Code = 0x0105      |       Cause Length = 6        |
//! |         HMAC Identifier       |            Padding            |
//! ```

use crate::chunk::HmacId;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// An AUTH chunk has a digest that the sender cannot check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnsupportedHmac {
    /// Its algorithm.
    pub hmac: HmacId,
}

impl UnsupportedHmac {
    /// Its code.
    pub const CODE: u16 = 0x0105;
    pub(super) const NAME: &'static str = "Unsupported HMAC Identifier";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let hmac = HmacId(fields.u16()?);
        fields.end_or_padding().map(|()| Self { hmac })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.hmac.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn its_padding_may_be_counted() {
        let cause = UnsupportedHmac { hmac: HmacId(2) };
        assert_wire(cause, &[1, 5, 0, 6, 0, 2]);
        assert_eq!(decode(&[1, 5, 0, 8, 0, 2, 0, 0]), Ok(cause.into()));
    }
}
