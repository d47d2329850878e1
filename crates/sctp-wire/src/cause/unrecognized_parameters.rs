//! Unrecognized Parameters (RFC 9260 section 3.3.10.8).
//!
//! ```text
//! |        Cause Code = 8         |         Cause Length          |
//! /                    Unrecognized Parameters                    /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::parameter::Parameters;
use crate::writer::Writer;

/// The parameters of the INIT ACK that the sender does not know, each with type, length, value and
/// padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnrecognizedParameters<'a>(pub &'a [u8]);

impl<'a> UnrecognizedParameters<'a> {
    /// Its code.
    pub const CODE: u16 = 8;
    pub(super) const NAME: &'static str = "Unrecognized Parameters";

    #[allow(clippy::unnecessary_wraps, reason = "all causes are read through this signature")]
    pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self(fields.rest()))
    }

    /// The parameters one by one. Those are [`crate::Parameter::Unknown`] that are not known here
    /// either.
    #[must_use]
    pub const fn parameters(&self) -> Parameters<'a> {
        List::from_bytes(self.0)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::Parameter;

    #[test]
    fn its_value_is_what_it_carries() {
        assert_wire(UnrecognizedParameters(&[1, 2, 3]), &[0, 8, 0, 7, 1, 2, 3]);
        assert_wire(UnrecognizedParameters(&[]), &[0, 8, 0, 4]);
    }
    #[test]
    fn its_parameters_are_found_one_by_one() {
        let cause = UnrecognizedParameters(&[0xc0, 0x77, 0, 5, 1, 0, 0, 0, 0xc0, 0x78, 0, 4]);
        let kinds: Vec<_> = cause.parameters().iter().map(|parameter| parameter.map(|p| p.kind())).collect();
        assert_eq!(kinds, [Ok(0xc077), Ok(0xc078)]);
        assert!(matches!(cause.parameters().iter().next(), Some(Ok(Parameter::Unknown(raw))) if raw.value == [1]));
    }
}
