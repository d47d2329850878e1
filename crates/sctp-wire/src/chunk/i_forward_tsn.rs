//! I-FORWARD-TSN (RFC 8260 section 2.3.1).
//!
//! ```text
//! |   Type = 194  |  Flags = 0x00 |      Length = Variable        |
//! |                       New Cumulative TSN                      |
//! |       Stream Identifier       |          Reserved           |U|
//! |                       Message Identifier                      |
//! /                              ...                              /
//! ```

use crate::array::{Array, Fixed};
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{Mid, StreamId, Tsn};
use crate::writer::Writer;

/// A stream of which messages are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedMessage {
    /// The stream.
    pub stream: StreamId,
    /// Of its unordered messages, not of its ordered ones.
    pub unordered: bool,
    /// The last message that is skipped.
    pub mid: Mid,
}

impl Fixed for SkippedMessage {
    const SIZE: usize = 8;

    fn read(bytes: &[u8]) -> Self {
        Self {
            stream: StreamId::read(&bytes[..2]),
            unordered: bytes[3] & 1 != 0,
            mid: Mid(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])),
        }
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.stream.0);
        out.u16(u16::from(self.unordered));
        out.u32(self.mid.0);
    }
}

/// Its sender will not send abandoned I-DATA chunks again: the receiver acts as if it had them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IForwardTsn<'a> {
    /// All TSNs up to here count as received.
    pub cumulative: Tsn,
    /// The streams that wait for nothing any more up to a message.
    pub skipped: Array<'a, SkippedMessage>,
}

impl<'a> IForwardTsn<'a> {
    /// Its type.
    pub const KIND: u8 = 194;
    pub(super) const NAME: &'static str = "I-FORWARD-TSN";
    /// How long it is without its streams, which take eight bytes each, in bytes.
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
    fn ordered_and_unordered_messages_of_a_stream() {
        let skipped = Array::new(&[
            SkippedMessage { stream: StreamId(1), unordered: false, mid: Mid(9) },
            SkippedMessage { stream: StreamId(1), unordered: true, mid: Mid(0x0102_0304) },
        ]);
        let wire = [194, 0, 0, 24, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0, 9, 0, 1, 0, 1, 1, 2, 3, 4];
        assert_wire(IForwardTsn { cumulative: Tsn(7), skipped }, &wire);
        assert!(decode(&[194, 0, 0, 12, 0, 0, 0, 7, 0, 1, 0, 0]).is_err());
    }
}
