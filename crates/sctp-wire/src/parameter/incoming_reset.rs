//! Incoming SSN Reset Request (RFC 6525 section 4.2).
//!
//! ```text
//! |     Parameter Type = 14       |  Parameter Length = 8 + 2 * N |
//! |          Re-configuration Request Sequence Number             |
//! |  Stream Number 1 (optional)   |    Stream Number 2 (optional) |
//! /                            ......                             /
//! ```

use crate::array::Array;
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{ReconfigSeq, StreamId};
use crate::writer::Writer;

/// The sender asks the receiver to reset streams that the receiver sends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IncomingReset<'a> {
    /// The request's number.
    pub request: ReconfigSeq,
    /// Which streams; all, if it is empty.
    pub streams: Array<'a, StreamId>,
}

impl<'a> IncomingReset<'a> {
    /// Its type.
    pub const KIND: u16 = 14;
    pub(super) const NAME: &'static str = "Incoming SSN Reset Request";
    /// How long it is without its streams, which take two bytes each, in bytes.
    pub const HEADER_LEN: usize = 8;

    pub(super) fn decode(mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { request: ReconfigSeq(fields.u32()?), streams: Array::rest(fields)? })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.request.0);
        self.streams.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn streams_are_optional() {
        assert_wire(IncomingReset { request: ReconfigSeq(1), streams: Array::EMPTY }, &[0, 14, 0, 8, 0, 0, 0, 1]);
        let some = IncomingReset { request: ReconfigSeq(1), streams: Array::new(&[StreamId(4)]) };
        assert_wire(some, &[0, 14, 0, 10, 0, 0, 0, 1, 0, 4]);
    }
}
