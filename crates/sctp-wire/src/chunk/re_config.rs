//! RE-CONFIG (RFC 6525 section 3.1).
//!
//! ```text
//! | Type = 130    |  Chunk Flags  |      Chunk Length             |
//! /                  Re-configuration Parameter                   /
//! /             Re-configuration Parameter (optional)             /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::parameter::Parameters;
use crate::writer::Writer;

/// Streams are reset or added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReConfig<'a> {
    /// One parameter, or two: RFC 6525 section 3.1 lists which go together, and the association
    /// checks that.
    pub parameters: Parameters<'a>,
}

impl<'a> ReConfig<'a> {
    /// Its type.
    pub const KIND: u8 = 130;
    pub(super) const NAME: &'static str = "RE-CONFIG";

    pub(super) fn decode(_flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { parameters: List::rest(fields) })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.parameters.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::array::Array;
    use crate::number::{ReconfigSeq, StreamId, Tsn};
    use crate::parameter::{IncomingReset, OutgoingReset, Parameter};

    #[test]
    fn a_reset_of_both_directions() {
        const STREAMS: Array<'static, StreamId> = Array::new(&[StreamId(5)]);
        let parameters = List::new(
            &const {
                [
                    Parameter::OutgoingReset(OutgoingReset {
                        request: ReconfigSeq(1),
                        response: ReconfigSeq(2),
                        last_tsn: Tsn(3),
                        streams: STREAMS,
                    }),
                    Parameter::IncomingReset(IncomingReset { request: ReconfigSeq(4), streams: STREAMS }),
                ]
            },
        );
        let wire = [
            &[130, 0, 0, 34, 0, 13, 0, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 5, 0, 0][..],
            &[0, 14, 0, 10, 0, 0, 0, 4, 0, 5, 0, 0],
        ]
        .concat();
        assert_wire(ReConfig { parameters }, &wire);
    }
}
