//! INIT (RFC 9260 section 3.3.2).
//!
//! ```text
//! |   Type = 1    |  Chunk Flags  |      Chunk Length             |
//! |                         Initiate Tag                          |
//! |          Advertised Receiver Window Credit (a_rwnd)           |
//! |  Number of Outbound Streams   |   Number of Inbound Streams   |
//! |                          Initial TSN                          |
//! /              Optional/Variable-Length Parameters              /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::number::{Tag, Tsn};
use crate::parameter::Parameters;
use crate::writer::Writer;

/// The parameters of an endpoint when an association begins.
///
/// Values that RFC 9260 forbids (a zero tag, no streams, a window below 1,500) are read as they
/// are: the answer depends on the state of the association.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Init<'a> {
    /// The tag that packets to its sender carry.
    pub tag: Tag,
    /// The receive window, in bytes.
    pub a_rwnd: u32,
    /// How many streams the sender wants to send on.
    pub outbound_streams: u16,
    /// How many streams the sender can receive on.
    pub inbound_streams: u16,
    /// The TSN of the first DATA chunk.
    pub initial_tsn: Tsn,
    /// Addresses, extensions, and in INIT ACK the cookie.
    pub parameters: Parameters<'a>,
}

impl<'a> Init<'a> {
    /// Its type.
    pub const KIND: u8 = 1;
    pub(super) const NAME: &'static str = "INIT";
    /// How long it is without its parameters, in bytes.
    pub const HEADER_LEN: usize = 20;

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self {
            tag: Tag(fields.u32()?),
            a_rwnd: fields.u32()?,
            outbound_streams: fields.u16()?,
            inbound_streams: fields.u16()?,
            initial_tsn: Tsn(fields.u32()?),
            parameters: List::rest(fields),
        })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.tag.0);
        out.u32(self.a_rwnd);
        out.u16(self.outbound_streams);
        out.u16(self.inbound_streams);
        out.u32(self.initial_tsn.0);
        self.parameters.write(out);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::parameter::{ForwardTsnSupported, Parameter, SupportedExtensions};

    pub(in crate::chunk) const INIT: Init<'static> = Init {
        tag: Tag(0x0102_0304),
        a_rwnd: 65_536,
        outbound_streams: 10,
        inbound_streams: 2048,
        initial_tsn: Tsn(0x0506_0708),
        parameters: List::EMPTY,
    };

    #[test]
    fn without_and_with_parameters() {
        let fixed = [1, 2, 3, 4, 0, 1, 0, 0, 0, 10, 8, 0, 5, 6, 7, 8];
        assert_wire(INIT, &[&[1, 0, 0, 20][..], &fixed].concat());
        let parameters = List::new(
            &const {
                [
                    Parameter::SupportedExtensions(SupportedExtensions(&[130])),
                    Parameter::ForwardTsnSupported(ForwardTsnSupported),
                ]
            },
        );
        let wire = [&[1, 0, 0, 32][..], &fixed, &[0x80, 8, 0, 5, 130, 0, 0, 0, 0xc0, 0, 0, 4]].concat();
        assert_wire(Init { parameters, ..INIT }, &wire);
    }
}
