//! ERROR (RFC 9260 section 3.3.10).
//!
//! ```text
//! |   Type = 9    |  Chunk Flags  |            Length             |
//! /                   one or more Error Causes                    /
//! ```

use crate::cause::Causes;
use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::writer::Writer;

/// Something is wrong, but not so wrong that the association ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error<'a> {
    /// What.
    pub causes: Causes<'a>,
}

impl<'a> Error<'a> {
    /// Its type.
    pub const KIND: u8 = 9;
    pub(super) const NAME: &'static str = "ERROR";

    pub(super) fn decode(_flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { causes: List::rest(fields) })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.causes.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::cause::{Cause, InvalidStream, OutOfResource};
    use crate::number::StreamId;

    #[test]
    fn several_causes() {
        let causes = List::new(
            &const { [Cause::InvalidStream(InvalidStream { stream: StreamId(7) }), Cause::OutOfResource(OutOfResource)] },
        );
        assert_wire(Error { causes }, &[9, 0, 0, 16, 0, 1, 0, 8, 0, 7, 0, 0, 0, 4, 0, 4]);
    }
}
