//! Outgoing SSN Reset Request (RFC 6525 section 4.1).
//!
//! ```text
//! |     Parameter Type = 13       | Parameter Length = 16 + 2 * N |
//! |           Re-configuration Request Sequence Number            |
//! |           Re-configuration Response Sequence Number           |
//! |                Sender's Last Assigned TSN                     |
//! |  Stream Number 1 (optional)   |    Stream Number 2 (optional) |
//! /                            ......                             /
//! ```

use crate::array::Array;
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{ReconfigSeq, StreamId, Tsn};
use crate::writer::Writer;

/// The sender's streams restart at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutgoingReset<'a> {
    /// The request's number.
    pub request: ReconfigSeq,
    /// The number of the incoming request that it answers, or else one before the next that is
    /// expected.
    pub response: ReconfigSeq,
    /// The last TSN that the sender assigned before.
    pub last_tsn: Tsn,
    /// Which streams; all, if it is empty.
    pub streams: Array<'a, StreamId>,
}

impl<'a> OutgoingReset<'a> {
    /// Its type.
    pub const KIND: u16 = 13;
    pub(super) const NAME: &'static str = "Outgoing SSN Reset Request";
    /// How long it is without its streams, which take two bytes each, in bytes.
    pub const HEADER_LEN: usize = 16;

    pub(super) fn decode(mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self {
            request: ReconfigSeq(fields.u32()?),
            response: ReconfigSeq(fields.u32()?),
            last_tsn: Tsn(fields.u32()?),
            streams: Array::rest(fields)?,
        })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.request.0);
        out.u32(self.response.0);
        out.u32(self.last_tsn.0);
        self.streams.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn streams_are_optional() {
        let all = OutgoingReset {
            request: ReconfigSeq(1),
            response: ReconfigSeq(2),
            last_tsn: Tsn(3),
            streams: Array::EMPTY,
        };
        assert_wire(all, &[0, 13, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        let some = OutgoingReset { streams: Array::new(&[StreamId(4), StreamId(5), StreamId(6)]), ..all };
        assert_wire(some, &[0, 13, 0, 22, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 4, 0, 5, 0, 6]);
        assert!(decode(&[0, 13, 0, 17, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0]).is_err());
    }
}
