//! DATA (RFC 9260 section 3.3.1; the I bit: RFC 7053).
//!
//! ```text
//! |   Type = 0    |  Res  |I|U|B|E|            Length             |
//! |                              TSN                              |
//! |           Stream              |    Stream Sequence Number     |
//! |                  Payload Protocol Identifier                  |
//! /                           User Data                           /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{Ppid, Ssn, StreamId, Tsn};
use crate::writer::Writer;

/// One fragment of a message, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Its place among all DATA chunks of this direction.
    pub tsn: Tsn,
    /// The stream.
    pub stream: StreamId,
    /// The message's place in its stream; means nothing if it is unordered.
    pub ssn: Ssn,
    /// The application's identifier of its protocol.
    pub ppid: Ppid,
    /// The sender asks for a SACK without delay.
    pub immediate: bool,
    /// The message is delivered without waiting for those before it.
    pub unordered: bool,
    /// The first fragment.
    pub beginning: bool,
    /// The last fragment.
    pub ending: bool,
    /// The bytes. Never empty in what is sent; a received chunk without any is a protocol violation
    /// that its receiver answers with a No User Data cause (RFC 9260 section 6.2).
    pub payload: &'a [u8],
}

const IMMEDIATE: u8 = 8;
const UNORDERED: u8 = 4;
const BEGINNING: u8 = 2;
const ENDING: u8 = 1;

impl<'a> Data<'a> {
    /// Its type.
    pub const KIND: u8 = 0;
    pub(super) const NAME: &'static str = "DATA";
    /// How long it is without its payload, in bytes.
    pub const HEADER_LEN: usize = 16;

    /// An ordered message in one fragment, yet without payload.
    #[must_use]
    pub const fn whole(tsn: Tsn, stream: StreamId, ssn: Ssn, ppid: Ppid) -> Self {
        let (beginning, ending) = (true, true);
        Self { tsn, stream, ssn, ppid, immediate: false, unordered: false, beginning, ending, payload: &[] }
    }

    #[inline]
    pub(super) fn decode(flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let [t0, t1, t2, t3, s0, s1, n0, n1, p0, p1, p2, p3] = fields.array()?;
        Ok(Self {
            tsn: Tsn(u32::from_be_bytes([t0, t1, t2, t3])),
            stream: StreamId(u16::from_be_bytes([s0, s1])),
            ssn: Ssn(u16::from_be_bytes([n0, n1])),
            ppid: Ppid(u32::from_be_bytes([p0, p1, p2, p3])),
            immediate: flags & IMMEDIATE != 0,
            unordered: flags & UNORDERED != 0,
            beginning: flags & BEGINNING != 0,
            ending: flags & ENDING != 0,
            payload: fields.rest(),
        })
    }

    #[inline]
    pub(super) fn flags(&self) -> u8 {
        flags(self.immediate, self.unordered, self.beginning, self.ending)
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let [t0, t1, t2, t3] = self.tsn.0.to_be_bytes();
        let ([s0, s1], [n0, n1]) = (self.stream.0.to_be_bytes(), self.ssn.0.to_be_bytes());
        let [p0, p1, p2, p3] = self.ppid.0.to_be_bytes();
        out.array([t0, t1, t2, t3, s0, s1, n0, n1, p0, p1, p2, p3]);
        out.bytes(self.payload);
    }
}

/// The flags that DATA and I-DATA share.
#[inline]
pub(super) fn flags(immediate: bool, unordered: bool, beginning: bool, ending: bool) -> u8 {
    let bit = |set: bool, mask: u8| if set { mask } else { 0 };
    bit(immediate, IMMEDIATE) | bit(unordered, UNORDERED) | bit(beginning, BEGINNING) | bit(ending, ENDING)
}

#[cfg(test)]
mod tests {
    use super::super::Chunk;
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn a_whole_message_with_padding() {
        let data = Data { payload: b"hello", ..Data::whole(Tsn(0x0102_0304), StreamId(5), Ssn(6), Ppid(0x0708_090a)) };
        let mut wire = vec![0, 3, 0, 21, 1, 2, 3, 4, 0, 5, 0, 6, 7, 8, 9, 10];
        wire.extend_from_slice(b"hello\0\0\0");
        assert_wire(data, &wire);
    }

    #[test]
    fn each_flag_has_its_bit() {
        let none = Data {
            beginning: false,
            ending: false,
            payload: b"abcd",
            ..Data::whole(Tsn(1), StreamId(0), Ssn(0), Ppid(0))
        };
        let cases = [
            (Data { immediate: true, ..none }, 8),
            (Data { unordered: true, ..none }, 4),
            (Data { beginning: true, ..none }, 2),
            (Data { ending: true, ..none }, 1),
            (none, 0),
        ];
        for (data, flags) in cases {
            let wire = [&[0, flags, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], b"abcd"].concat();
            assert_wire(data, &wire);
        }
    }

    #[test]
    fn a_message_without_bytes_is_read_so_that_it_can_be_answered() {
        let chunk = decode(&[0, 3, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(matches!(chunk, Chunk::Data(Data { tsn: Tsn(9), payload: [], .. })));
    }

    #[test]
    fn reserved_flags_are_ignored() {
        let chunk = decode(&[0, 0xf3, 0, 17, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        assert_eq!(chunk, Data { payload: &[1], ..Data::whole(Tsn(9), StreamId(0), Ssn(0), Ppid(0)) }.into());
    }
}
