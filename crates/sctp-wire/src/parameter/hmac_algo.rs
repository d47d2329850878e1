//! HMAC-ALGO (RFC 4895 section 3.3).
//!
//! ```text
//! |     Parameter Type = 0x8004   |       Parameter Length        |
//! |          HMAC Identifier 1    |      HMAC Identifier 2        |
//! /                              ...                              /
//! ```

use crate::array::Array;
use crate::chunk::HmacId;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The digests that the sender can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HmacAlgo<'a> {
    /// The best first.
    pub algorithms: Array<'a, HmacId>,
}

impl<'a> HmacAlgo<'a> {
    /// Its type.
    pub const KIND: u16 = 0x8004;
    pub(super) const NAME: &'static str = "HMAC-ALGO";

    pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { algorithms: Array::rest(fields)? })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.algorithms.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn an_algorithm_takes_two_bytes() {
        let algorithms = Array::new(&[HmacId::SHA256, HmacId::SHA1]);
        assert_wire(HmacAlgo { algorithms }, &[0x80, 4, 0, 8, 0, 3, 0, 1]);
        assert!(decode(&[0x80, 4, 0, 7, 0, 3, 0]).is_err());
    }
}
