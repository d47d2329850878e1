//! I-DATA (RFC 8260 section 2.1).
//!
//! ```text
//! |   Type = 64   |  Res  |I|U|B|E|            Length             |
//! |                              TSN                              |
//! |           Stream              |           Reserved            |
//! |                      Message Identifier                       |
//! |    Payload Protocol Identifier / Fragment Sequence Number     |
//! /                           User Data                           /
//! ```

use super::data;
use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{Fsn, Mid, Ppid, StreamId, Tsn};
use crate::writer::Writer;

/// Which fragment of its message a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first: it has the B bit and carries the application's identifier of its protocol; its
    /// FSN is 0.
    First(Ppid),
    /// A later one, with its number.
    Later(Fsn),
}

/// One fragment of a message, or all of it; fragments of different messages may be interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IData<'a> {
    /// Its place among all I-DATA chunks of this direction.
    pub tsn: Tsn,
    /// The stream.
    pub stream: StreamId,
    /// The message's place in its stream, among the ordered or the unordered ones.
    pub mid: Mid,
    /// Which fragment it is.
    pub part: Part,
    /// The sender asks for a SACK without delay.
    pub immediate: bool,
    /// The message is delivered without waiting for those before it.
    pub unordered: bool,
    /// The last fragment.
    pub ending: bool,
    /// The bytes; see [`super::Data::payload`].
    pub payload: &'a [u8],
}

impl<'a> IData<'a> {
    /// Its type.
    pub const KIND: u8 = 64;
    pub(super) const NAME: &'static str = "I-DATA";
    /// How long it is without its payload, in bytes.
    pub const HEADER_LEN: usize = 20;

    #[inline]
    pub(super) fn decode(flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let [t0, t1, t2, t3, s0, s1, _, _, m0, m1, m2, m3, w0, w1, w2, w3] = fields.array()?;
        let (tsn, stream) = (Tsn(u32::from_be_bytes([t0, t1, t2, t3])), StreamId(u16::from_be_bytes([s0, s1])));
        let (mid, word) = (Mid(u32::from_be_bytes([m0, m1, m2, m3])), u32::from_be_bytes([w0, w1, w2, w3]));
        let part = if flags & data::flags(false, false, true, false) != 0 {
            Part::First(Ppid(word))
        } else {
            Part::Later(Fsn(word))
        };
        Ok(Self {
            tsn,
            stream,
            mid,
            part,
            immediate: flags & data::flags(true, false, false, false) != 0,
            unordered: flags & data::flags(false, true, false, false) != 0,
            ending: flags & data::flags(false, false, false, true) != 0,
            payload: fields.rest(),
        })
    }

    #[inline]
    pub(super) fn flags(&self) -> u8 {
        data::flags(self.immediate, self.unordered, matches!(self.part, Part::First(_)), self.ending)
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        let word = match self.part {
            Part::First(ppid) => ppid.0,
            Part::Later(fsn) => fsn.0,
        };
        let ([t0, t1, t2, t3], [s0, s1]) = (self.tsn.0.to_be_bytes(), self.stream.0.to_be_bytes());
        let ([m0, m1, m2, m3], [w0, w1, w2, w3]) = (self.mid.0.to_be_bytes(), word.to_be_bytes());
        out.array([t0, t1, t2, t3, s0, s1, 0, 0, m0, m1, m2, m3, w0, w1, w2, w3]);
        out.bytes(self.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    const CHUNK: IData<'static> = IData {
        tsn: Tsn(1),
        stream: StreamId(2),
        mid: Mid(3),
        part: Part::First(Ppid(4)),
        immediate: false,
        unordered: false,
        ending: true,
        payload: b"ab",
    };

    #[test]
    fn the_first_fragment_has_a_ppid_and_the_b_bit() {
        assert_wire(CHUNK, b"\x40\x03\0\x16\0\0\0\x01\0\x02\0\0\0\0\0\x03\0\0\0\x04ab\0\0");
    }

    #[test]
    fn a_later_fragment_has_its_number() {
        let later = IData { part: Part::Later(Fsn(7)), ending: false, immediate: true, unordered: true, ..CHUNK };
        assert_wire(later, b"\x40\x0c\0\x16\0\0\0\x01\0\x02\0\0\0\0\0\x03\0\0\0\x07ab\0\0");
    }
}
