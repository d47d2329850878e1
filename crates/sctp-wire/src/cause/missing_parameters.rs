//! Missing Mandatory Parameter (RFC 9260 section 3.3.10.2).
//!
//! ```text
//! |        Cause Code = 2         |   Cause Length = 8 + N * 2    |
//! |                 Number of missing params = N                  |
//! |     Missing Param Type #1     |     Missing Param Type #2     |
//! /                              ...                              /
//! ```

use crate::array::Array;
use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::writer::Writer;

/// Parameters that must be in an INIT or INIT ACK are not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissingParameters<'a> {
    /// Their types.
    pub kinds: Array<'a, u16>,
}

impl<'a> MissingParameters<'a> {
    /// Its code.
    pub const CODE: u16 = 2;
    pub(super) const NAME: &'static str = "Missing Mandatory Parameter";

    pub(super) fn decode(mut fields: Fields<'a>) -> Result<Self, WireError> {
        let place = fields;
        let count = fields.u32()?;
        // More cannot follow within a length of 16 bits, whatever the machine's word.
        let fits = usize::try_from(count).ok().filter(|count| *count <= usize::from(u16::MAX));
        let count = fits.ok_or(place.error(Problem::Value { field: "the number of parameters", value: count }))?;
        let kinds = Array::take(&mut fields, count)?;
        fields.end_or_padding().map(|()| Self { kinds })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(u32::try_from(self.kinds.len()).unwrap_or(u32::MAX));
        self.kinds.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn a_count_and_as_many_types() {
        assert_wire(MissingParameters { kinds: Array::new(&[7]) }, &[0, 2, 0, 10, 0, 0, 0, 1, 0, 7]);
        for count in [[0, 0, 0, 2], [0xff; 4], [0, 1, 0, 0]] {
            assert!(decode(&[&[0, 2, 0, 10][..], &count, &[0, 7]].concat()).is_err());
        }
    }
}
