//! Error Cause Indication (RFC 5061 section 4.2.3).
//!
//! ```text
//! |    Type = 0xC003              |      Length = Variable        |
//! |             ASCONF-Response Correlation ID                    |
//! /                        Error Cause(s)                         /
//! ```

use crate::cause::Causes;
use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::writer::Writer;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorIndication<'a> {
    /// The request's number.
    pub correlation: u32,
    /// Why.
    pub causes: Causes<'a>,
}

impl<'a> ErrorIndication<'a> {
    /// Its type.
    pub const KIND: u16 = 0xc003;
    pub(super) const NAME: &'static str = "Error Cause Indication";

    pub(super) fn decode(mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { correlation: fields.u32()?, causes: List::rest(fields) })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.correlation);
        self.causes.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::cause::{Cause, OutOfResource};

    #[test]
    fn it_wraps_causes() {
        let causes = List::new(&const { [Cause::OutOfResource(OutOfResource)] });
        assert_wire(ErrorIndication { correlation: 9, causes }, &[0xc0, 3, 0, 12, 0, 0, 0, 9, 0, 4, 0, 4]);
    }
}
