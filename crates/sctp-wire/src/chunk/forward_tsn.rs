//! FORWARD TSN (RFC 3758 section 3.2).
//!
//! ```text
//! |   Type = 192  |  Flags = 0x00 |        Length = Variable      |
//! |                      New Cumulative TSN                       |
//! |         Stream-1              |       Stream Sequence-1       |
//! /                              ...                              /
//! ```

use crate::array::{Array, Fixed};
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{Ssn, StreamId, Tsn};
use crate::writer::Writer;

/// A stream of which ordered messages are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The stream.
    pub stream: StreamId,
    /// The last message of it that is skipped.
    pub ssn: Ssn,
}

impl Fixed for Skipped {
    const SIZE: usize = 4;

    fn read(bytes: &[u8]) -> Self {
        Self { stream: StreamId::read(&bytes[..2]), ssn: Ssn(u16::read(&bytes[2..])) }
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.stream.0);
        out.u16(self.ssn.0);
    }
}

/// Its sender will not send abandoned DATA chunks again: the receiver acts as if it had them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardTsn<'a> {
    /// All TSNs up to here count as received.
    pub cumulative: Tsn,
    /// The streams that wait for nothing any more up to a message.
    pub skipped: Array<'a, Skipped>,
}

impl<'a> ForwardTsn<'a> {
    /// Its type.
    pub const KIND: u8 = 192;
    pub(super) const NAME: &'static str = "FORWARD TSN";
    /// How long it is without its streams, which take four bytes each, in bytes.
    pub const HEADER_LEN: usize = 8;

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { cumulative: Tsn(fields.u32()?), skipped: Array::rest(fields)? })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.cumulative.0);
        self.skipped.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn streams_are_optional_and_whole() {
        assert_wire(ForwardTsn { cumulative: Tsn(7), skipped: Array::EMPTY }, &[192, 0, 0, 8, 0, 0, 0, 7]);
        let skipped = Array::new(&[Skipped { stream: StreamId(1), ssn: Ssn(2) }]);
        assert_wire(ForwardTsn { cumulative: Tsn(7), skipped }, &[192, 0, 0, 12, 0, 0, 0, 7, 0, 1, 0, 2]);
        assert!(decode(&[192, 0, 0, 10, 0, 0, 0, 7, 0, 1]).is_err());
    }
}
