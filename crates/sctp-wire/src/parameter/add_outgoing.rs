//! Add Outgoing Streams Request (RFC 6525 section 4.5).
//!
//! ```text
//! |     Parameter Type = 17       |      Parameter Length = 12    |
//! |          Re-configuration Request Sequence Number             |
//! |      Number of new streams    |         Reserved              |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::ReconfigSeq;
use crate::writer::Writer;

/// The sender wants to send on more streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddOutgoing {
    /// The request's number.
    pub request: ReconfigSeq,
    /// How many more.
    pub streams: u16,
}

impl AddOutgoing {
    /// Its type.
    pub const KIND: u16 = 17;
    pub(super) const NAME: &'static str = "Add Outgoing Streams Request";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let (request, streams) = (ReconfigSeq(fields.u32()?), fields.u16()?);
        fields.u16()?;
        fields.end().map(|()| Self { request, streams })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.request.0);
        out.u16(self.streams);
        out.u16(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn a_number_and_a_count() {
        let request = AddOutgoing { request: ReconfigSeq(1), streams: 0x0203 };
        assert_wire(request, &[0, 17, 0, 12, 0, 0, 0, 1, 2, 3, 0, 0]);
        assert_eq!(decode(&[0, 17, 0, 12, 0, 0, 0, 1, 2, 3, 9, 9]), Ok(request.into()));
    }
}
