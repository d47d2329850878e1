//! HEARTBEAT ACK (RFC 9260 section 3.3.6): the Heartbeat Info comes back.
//!
//! ```text
//! |   Type = 5    |  Chunk Flags  |     Heartbeat Ack Length      |
//! |    Heartbeat Info Type = 1    |        HB Info Length         |
//! /                Sender-Specific Heartbeat Info                 /
//! ```

use super::Heartbeat;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The answer to HEARTBEAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAck<'a> {
    /// What the HEARTBEAT brought.
    pub info: &'a [u8],
}

impl<'a> HeartbeatAck<'a> {
    /// Its type.
    pub const KIND: u8 = 5;
    pub(super) const NAME: &'static str = "HEARTBEAT ACK";

    pub(super) fn decode(flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Heartbeat::decode(flags, fields).map(|Heartbeat { info }| Self { info })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        Heartbeat { info: self.info }.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn its_info_is_that_of_the_heartbeat() {
        assert_wire(HeartbeatAck { info: b"12345678" }, b"\x05\0\0\x10\0\x01\0\x0c12345678");
    }
}
