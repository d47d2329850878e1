//! HEARTBEAT (RFC 9260 section 3.3.5), with its one parameter, Heartbeat Info.
//!
//! ```text
//! |   Type = 4    |  Chunk Flags  |       Heartbeat Length        |
//! |    Heartbeat Info Type = 1    |        HB Info Length         |
//! /                Sender-Specific Heartbeat Info                 /
//! ```

use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::writer::Writer;

/// A probe of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// What only its sender understands, and gets back. RFC 9260 wants the time and the address in
    /// it, and a nonce of at least 64 bits where the path is verified.
    pub info: &'a [u8],
}

/// The type of the Heartbeat Info parameter.
const INFO: u16 = 1;

impl<'a> Heartbeat<'a> {
    /// Its type.
    pub const KIND: u8 = 4;
    pub(super) const NAME: &'static str = "HEARTBEAT";
    /// How long it is without what its sender puts into it, in bytes.
    pub const HEADER_LEN: usize = 8;

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let place = fields;
        let (kind, length) = (fields.u16()?, fields.u16()?);
        if kind != INFO {
            return Err(place.error(Problem::Value { field: "the type of its parameter", value: u32::from(kind) }));
        }
        let Some(length) = usize::from(length).checked_sub(4) else {
            let value = u32::from(length);
            return Err(place.error(Problem::Value { field: "the length of its parameter", value }));
        };
        let info = fields.take(length)?;
        fields.end_or_padding()?;
        Ok(Self { info })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.item(INFO, |out| out.bytes(self.info));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn its_info_is_a_parameter() {
        assert_wire(Heartbeat { info: b"nonce" }, b"\x04\0\0\x0d\0\x01\0\x09nonce\0\0\0");
        assert_wire(Heartbeat { info: b"" }, b"\x04\0\0\x08\0\x01\0\x04");
    }

    #[test]
    fn counted_padding_is_taken_and_more_is_not() {
        assert_eq!(decode(b"\x04\0\0\x10\0\x01\0\x09nonce\0\0\0"), Ok(Heartbeat { info: b"nonce" }.into()));
        assert!(decode(b"\x04\0\0\x14\0\x01\0\x09nonce\0\0\0\0\0\0\0").is_err());
    }

    #[test]
    fn another_parameter_or_an_impossible_length_is_an_error() {
        for wire in [
            &b"\x04\0\0\x08\0\x02\0\x04"[..],
            b"\x04\0\0\x08\0\x01\0\x03",
            b"\x04\0\0\x08\0\x01\0\x05",
            b"\x04\0\0\x04",
        ] {
            assert!(decode(wire).is_err(), "{wire:?}");
        }
    }
}
