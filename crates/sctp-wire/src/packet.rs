//! A received packet and its chunks.
//!
//! ```text
//! |     Source Port Number        |   Destination Port Number     |
//! |                      Verification Tag                         |
//! |                           Checksum                            |
//! /                          Chunk #1 ...                         /
//! ```
//!
//! RFC 9260 section 3; a chunk is type (8 bits), flags (8), length (16, without padding) and value
//! (section 3.2).

use core::fmt;

use crate::checksum::{self, ZeroChecksum};
use crate::chunk;
use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::list::UnknownAction;
use crate::number::Tag;
use crate::padded;
use crate::writer::Writer;

/// The header of every packet (RFC 9260 section 3.1), without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// The sender's port, from 1.
    pub source_port: u16,
    /// The receiver's port, from 1.
    pub destination_port: u16,
    /// The tag that the receiver chose, or one of the exceptions of section 8.5.1.
    pub tag: Tag,
}

impl CommonHeader {
    /// How long it is on the wire, with its checksum, in bytes.
    pub const LEN: usize = 12;

    #[inline]
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let ([s0, s1], [d0, d1]) = (self.source_port.to_be_bytes(), self.destination_port.to_be_bytes());
        let [t0, t1, t2, t3] = self.tag.0.to_be_bytes();
        out.array([s0, s1, d0, d1, t0, t1, t2, t3, 0, 0, 0, 0]);
    }
}

/// A packet whose common header was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its header.
    pub header: CommonHeader,
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the common header. Chunks and checksum are looked at when they are asked for.
    ///
    /// # Errors
    /// If the packet is shorter than its header, or a port is zero: RFC 9260 section 3.1 forbids
    /// that, and no association has it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new(bytes, 0, "common header");
        let port = |fields: &mut Fields<'_>, field| match fields.u16()? {
            0 => Err(WireError::new(fields.offset() - 2, "common header", Problem::Value { field, value: 0 })),
            port => Ok(port),
        };
        let source_port = port(&mut fields, "the source port")?;
        let destination_port = port(&mut fields, "the destination port")?;
        let tag = Tag(fields.u32()?);
        fields.u32()?;
        Ok(Self { header: CommonHeader { source_port, destination_port, tag }, bytes })
    }

    /// That the checksum is right.
    ///
    /// # Errors
    /// [`Problem::Checksum`] if it is not: the packet is to be dropped silently (RFC 9260 section
    /// 6.8).
    pub fn verify(&self, zero: ZeroChecksum) -> Result<(), WireError> {
        checksum::verify(self.bytes, zero)
    }

    /// The checksum field, lowest byte first: the CRC32c, or zero (RFC 9653).
    #[must_use]
    pub fn checksum(&self) -> u32 {
        checksum::field(self.bytes)
    }

    /// All of it.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The chunks in order. An error is the last that comes.
    #[must_use]
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks { rest: self.bytes.get(CommonHeader::LEN..).unwrap_or_default(), offset: CommonHeader::LEN }
    }

    /// What the digest of an AUTH chunk of this packet covers, in three parts: the chunk up to its
    /// digest, the digest as zeros, its padding and all chunks behind it (RFC 4895 section 6.2).
    ///
    /// `None` if `raw` is not an AUTH chunk of this packet, or is too short for one.
    #[must_use]
    pub fn auth_input(&self, raw: &RawChunk<'a>) -> Option<[&'a [u8]; 3]> {
        // RFC 4895 knows digests of 20 and 32 bytes; a chunk length cannot name more than this.
        static ZEROS: [u8; 128] = [0; 128];
        let bytes = self.bytes.get(raw.offset..)?;
        if raw.kind != chunk::Auth::KIND || bytes.get(..raw.bytes.len())? != raw.bytes {
            return None;
        }
        let digest = raw.bytes.len().checked_sub(chunk::Auth::HEADER_LEN)?;
        Some([&bytes[..chunk::Auth::HEADER_LEN], ZEROS.get(..digest)?, &bytes[raw.bytes.len()..]])
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.chunks().map(|raw| raw.and_then(|raw| chunk::Chunk::decode(&raw)));
        f.debug_struct("Packet").field("header", &self.header).field("chunks", &DebugAll(chunks)).finish()
    }
}

struct DebugAll<I>(I);

impl<I: Iterator<Item: fmt::Debug> + Clone> fmt::Debug for DebugAll<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.clone()).finish()
    }
}

/// A chunk as it stands in the packet.
///
/// Two are equal if their content is the same, wherever they stand.
#[derive(Clone, Copy)]
pub struct RawChunk<'a> {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// What follows its header, without padding.
    pub value: &'a [u8],
    /// All of it: header and value, without padding.
    pub bytes: &'a [u8],
    /// Where it begins, in bytes from the beginning of the packet.
    pub offset: usize,
}

impl<'a> RawChunk<'a> {
    /// How long the header of every chunk is, in bytes.
    pub const HEADER_LEN: usize = 4;

    /// What to do with it if its type is not known (RFC 9260 section 3.2).
    #[must_use]
    pub const fn unknown_action(&self) -> UnknownAction {
        UnknownAction::from_bits(self.kind >> 6)
    }

    pub(crate) const fn fields(&self, what: &'static str) -> Fields<'a> {
        Fields::new(self.value, self.offset + Self::HEADER_LEN, what)
    }
}

impl PartialEq for RawChunk<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.flags, self.value) == (other.kind, other.flags, other.value)
    }
}

impl Eq for RawChunk<'_> {}

impl fmt::Debug for RawChunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, flags, value, offset, .. } = self;
        write!(f, "RawChunk {{ kind: {kind}, flags: {flags:#04x}, value: {value:02x?}, offset: {offset} }}")
    }
}

/// The chunks of a packet, as they stand in it.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Chunks<'a> {
    fn first(&self) -> Result<RawChunk<'a>, WireError> {
        let mut fields = Fields::new(self.rest, self.offset, "chunk header");
        let [kind, flags, high, low] = fields.array()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let bytes = self.rest.get(..length).ok_or_else(|| {
            WireError::new(self.offset, "chunk", Problem::Short { needed: length, left: self.rest.len() })
        })?;
        let value = bytes.get(RawChunk::HEADER_LEN..).ok_or_else(|| {
            let problem = Problem::Value { field: "the length", value: length as u32 };
            WireError::new(self.offset + 2, "chunk header", problem)
        })?;
        Ok(RawChunk { kind, flags, value, bytes, offset: self.offset })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<RawChunk<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let chunk = self.first();
        // Without a length there is no next chunk.
        let len = chunk.map_or(self.rest.len(), |chunk| padded(chunk.bytes.len()));
        self.rest = self.rest.get(len..).unwrap_or_default();
        self.offset += len;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(chunks: &[u8]) -> Vec<u8> {
        [&[0x13, 0x88, 0x13, 0x89, 0, 0, 0, 7, 0, 0, 0, 0], chunks].concat()
    }

    #[test]
    fn the_common_header_is_read_and_its_faults_are_named() {
        let bytes = packet(&[]);
        let header = CommonHeader { source_port: 5000, destination_port: 5001, tag: Tag(7) };
        let parsed = Packet::parse(&bytes).unwrap();
        assert_eq!((parsed.header, parsed.bytes(), parsed.chunks().count()), (header, &bytes[..], 0));
        for len in 0..12 {
            let error = Packet::parse(&bytes[..len]).unwrap_err();
            assert!(matches!(error.problem, Problem::Short { .. }) && error.offset <= len, "{error}");
        }
        for (at, name) in [(0, "the source port"), (2, "the destination port")] {
            let mut zero = bytes.clone();
            zero[at..at + 2].fill(0);
            let error = Packet::parse(&zero).unwrap_err();
            assert_eq!(error, WireError::new(at, "common header", Problem::Value { field: name, value: 0 }));
        }
    }

    #[test]
    fn chunks_are_found_behind_each_others_padding_whatever_it_is() {
        let bytes = packet(&[11, 0, 0, 4, 0x80, 1, 0, 5, 9, 1, 2, 3, 0xff, 0, 0, 5, 8]);
        let chunks: Vec<_> = Packet::parse(&bytes).unwrap().chunks().map(Result::unwrap).collect();
        assert_eq!(chunks[0], RawChunk { kind: 11, flags: 0, value: &[], bytes: &bytes[12..16], offset: 12 });
        assert_eq!(chunks[1], RawChunk { kind: 0x80, flags: 1, value: &[9], bytes: &bytes[16..21], offset: 16 });
        // The padding of the last is missing.
        assert_eq!(chunks[2], RawChunk { kind: 0xff, flags: 0, value: &[8], bytes: &bytes[24..29], offset: 24 });
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[0].unknown_action(), UnknownAction::Stop);
        assert_eq!(chunks[1].unknown_action(), UnknownAction::Skip);
        assert_eq!(chunks[2].unknown_action(), UnknownAction::SkipAndReport);
        assert_eq!(format!("{:?}", chunks[1]), "RawChunk { kind: 128, flags: 0x01, value: [09], offset: 16 }");
    }

    #[test]
    fn an_impossible_length_ends_the_walk_with_an_error() {
        let cases: &[(&[u8], WireError)] = &[
            (&[1, 0], WireError::new(16, "chunk header", Problem::Short { needed: 4, left: 2 })),
            (&[1, 0, 0, 3], WireError::new(18, "chunk header", Problem::Value { field: "the length", value: 3 })),
            (&[1, 0, 0, 0], WireError::new(18, "chunk header", Problem::Value { field: "the length", value: 0 })),
            (&[1, 0, 0, 9, 1, 2], WireError::new(16, "chunk", Problem::Short { needed: 9, left: 6 })),
        ];
        for (tail, error) in cases {
            let bytes = packet(&[&[11, 0, 0, 4], *tail].concat());
            let chunks: Vec<_> = Packet::parse(&bytes).unwrap().chunks().collect();
            assert_eq!((chunks.len(), chunks[0].unwrap().kind, chunks[1]), (2, 11, Err(*error)));
        }
    }

    #[test]
    fn what_an_auth_chunk_covers() {
        let chunks = [11, 0, 0, 4, 15, 0, 0, 10, 0, 1, 0, 3, 0xaa, 0xbb, 0, 0, 0xc1, 0, 0, 4];
        let bytes = packet(&chunks);
        let parsed = Packet::parse(&bytes).unwrap();
        let raw: Vec<_> = parsed.chunks().map(Result::unwrap).collect();
        let expected: [&[u8]; 3] = [&[15, 0, 0, 10, 0, 1, 0, 3], &[0, 0], &[0, 0, 0xc1, 0, 0, 4]];
        assert_eq!(parsed.auth_input(&raw[1]), Some(expected));
        assert_eq!(parsed.auth_input(&raw[0]), None);
        let foreign = RawChunk { offset: 9999, ..raw[1] };
        assert_eq!(parsed.auth_input(&foreign), None);
        let empty = packet(&[15, 0, 0, 6, 0, 1, 0, 0]);
        let parsed = Packet::parse(&empty).unwrap();
        assert_eq!(parsed.auth_input(&parsed.chunks().next().unwrap().unwrap()), None);
    }
}
