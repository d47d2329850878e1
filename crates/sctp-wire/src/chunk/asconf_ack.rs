//! ASCONF-ACK (RFC 5061 section 4.1.2).
//!
//! ```text
//! | Type = 0x80   |  Chunk Flags  |      Chunk Length             |
//! |                     Sequence Number                           |
//! |                 ASCONF Parameter Response#1                   |
//! /                             ....                              /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::number::AsconfSerial;
use crate::parameter::Parameters;
use crate::writer::Writer;

/// The answer to ASCONF.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsconfAck<'a> {
    /// The number of what it answers.
    pub serial: AsconfSerial,
    /// Error Cause and Success Indications. What is not mentioned succeeded.
    pub responses: Parameters<'a>,
}

impl<'a> AsconfAck<'a> {
    /// Its type.
    pub const KIND: u8 = 0x80;
    pub(super) const NAME: &'static str = "ASCONF-ACK";

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { serial: AsconfSerial(fields.u32()?), responses: List::rest(fields) })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.serial.0);
        self.responses.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::cause::{Cause, DeleteLastAddress};
    use crate::parameter::{ErrorIndication, Parameter, Success};

    #[test]
    fn success_without_and_with_a_word() {
        assert_wire(AsconfAck { serial: AsconfSerial(5), responses: List::EMPTY }, &[0x80, 0, 0, 8, 0, 0, 0, 5]);
        let responses = List::new(&const { [Parameter::Success(Success { correlation: 9 })] });
        let wire = [0x80, 0, 0, 16, 0, 0, 0, 5, 0xc0, 5, 0, 8, 0, 0, 0, 9];
        assert_wire(AsconfAck { serial: AsconfSerial(5), responses }, &wire);
    }

    /// The example of RFC 5061 section 4.3.1.
    #[test]
    fn the_example_of_a_refused_deletion() {
        const TLV: &[u8] = &[0xc0, 2, 0, 16, 1, 2, 0x34, 0x76, 0, 5, 0, 8, 0xc0, 0, 2, 1];
        let responses = List::new(
            &const {
                [Parameter::ErrorIndication(ErrorIndication {
                    correlation: 0x0102_3476,
                    causes: List::new(&const { [Cause::DeleteLastAddress(DeleteLastAddress(TLV))] }),
                })]
            },
        );
        let wire = [&[0x80, 0, 0, 36, 0, 0, 0, 7, 0xc0, 3, 0, 28, 1, 2, 0x34, 0x76, 0, 0xa0, 0, 20][..], TLV].concat();
        assert_wire(AsconfAck { serial: AsconfSerial(7), responses }, &wire);
    }
}
