//! AUTH (RFC 4895 section 5.1).
//!
//! ```text
//! | Type = 0x0F   |   Flags=0     |             Length            |
//! |    Shared Key Identifier      |        HMAC Identifier        |
//! /                             HMAC                              /
//! ```

use crate::array::Fixed;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// A digest algorithm (RFC 4895 section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HmacId(pub u16);

impl HmacId {
    /// HMAC with SHA-1: a digest of 20 bytes. Every implementation must have it.
    pub const SHA1: Self = Self(1);
    /// HMAC with SHA-256: a digest of 32 bytes.
    pub const SHA256: Self = Self(3);

    /// How long its digests are, in bytes, if it is known.
    #[must_use]
    pub const fn digest_len(self) -> Option<usize> {
        match self {
            Self::SHA1 => Some(20),
            Self::SHA256 => Some(32),
            _ => None,
        }
    }
}

impl Fixed for HmacId {
    const SIZE: usize = 2;

    fn read(bytes: &[u8]) -> Self {
        Self(u16::read(bytes))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.0);
    }
}

/// All chunks behind it in the packet are authenticated; [`crate::Packet::auth_input`] returns what
/// the digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Which of the keys that both endpoints share.
    pub key: u16,
    /// With which algorithm.
    pub hmac: HmacId,
    /// The digest. Its length is not compared with the algorithm here.
    pub digest: &'a [u8],
}

impl<'a> Auth<'a> {
    /// Its type.
    pub const KIND: u8 = 15;
    pub(super) const NAME: &'static str = "AUTH";
    /// How long it is without the digest, in bytes.
    pub const HEADER_LEN: usize = 8;

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { key: fields.u16()?, hmac: HmacId(fields.u16()?), digest: fields.rest() })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.key);
        out.u16(self.hmac.0);
        out.bytes(self.digest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn key_algorithm_and_digest() {
        let auth = Auth { key: 2, hmac: HmacId::SHA1, digest: &[7; 20] };
        assert_wire(auth, &[&[15, 0, 0, 28, 0, 2, 0, 1][..], &[7; 20]].concat());
        assert_eq!(
            (HmacId::SHA256.digest_len(), HmacId::SHA1.digest_len(), HmacId(2).digest_len()),
            (Some(32), Some(20), None)
        );
    }
}
