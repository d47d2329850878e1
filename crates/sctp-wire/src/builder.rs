//! Writing a packet.

use core::ops::Range;

use crate::PACKET_MAX;
use crate::checksum::{self, Checksum};
use crate::chunk::{Auth, HmacId, Pad};
use crate::error::Full;
use crate::packet::CommonHeader;
use crate::writer::{Emit, Writer};

/// Writes a packet into a buffer, chunk by chunk, up to the buffer's length.
#[derive(Debug)]
pub struct PacketBuilder<'b> {
    out: Writer<'b>,
}

/// Where the digest of an AUTH chunk goes that [`PacketBuilder::push_auth`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the digest is zeros until it is set"]
pub struct AuthSlot {
    start: usize,
    digest: Range<usize>,
}

impl<'b> PacketBuilder<'b> {
    /// A packet with that header and no chunks. The buffer's length is the limit: all that the path takes of an SCTP packet,
    /// without what IP, UDP and DTLS add. Of it the largest multiple of four up to [`PACKET_MAX`] is used.
    ///
    /// # Errors
    /// [`Full`] if not even the header fits.
    pub fn new(buffer: &'b mut [u8], header: CommonHeader) -> Result<Self, Full> {
        let limit = buffer.len().min(PACKET_MAX) & !3;
        let mut out = Writer::new(&mut buffer[..limit]);
        header.write(&mut out);
        if out.overflowed() { Err(Full) } else { Ok(Self { out }) }
    }

    /// How long the packet is so far, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether it has no chunks.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.out.len() <= CommonHeader::LEN
    }

    /// The longest chunk, header included, that still fits, in bytes. A multiple of four.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.out.room()
    }

    /// Adds a chunk and its padding.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; the packet is as it was.
    pub fn push(&mut self, chunk: &impl Emit) -> Result<(), Full> {
        let start = self.out.len();
        chunk.emit(&mut self.out);
        self.out.align();
        if self.out.overflowed() {
            self.out.rewind(start);
            return Err(Full);
        }
        Ok(())
    }

    /// Adds an AUTH chunk (RFC 4895 section 5.1) with a digest of `digest_len` zeros, to be set when the packet is complete.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; the packet is as it was.
    pub fn push_auth(&mut self, key: u16, hmac: HmacId, digest_len: usize) -> Result<AuthSlot, Full> {
        const ZEROS: [u8; 128] = [0; 128];
        let start = self.out.len();
        self.push(&Auth { key, hmac, digest: ZEROS.get(..digest_len).ok_or(Full)? })?;
        let digest = start + Auth::HEADER_LEN;
        Ok(AuthSlot { start, digest: digest..digest + digest_len })
    }

    /// What the digest covers: from the AUTH chunk, with zeros for its digest, to the end of the packet so far (RFC 4895
    /// section 6.2).
    #[must_use]
    pub fn signed(&self, slot: &AuthSlot) -> &[u8] {
        self.out.written().get(slot.start..).unwrap_or_default()
    }

    /// Puts the digest where its zeros are. A digest of another length is cut or leaves zeros.
    pub fn set_digest(&mut self, slot: &AuthSlot, digest: &[u8]) {
        if let Some(space) = self.out.written_mut().get_mut(slot.digest.clone()) {
            space.iter_mut().zip(digest).for_each(|(to, from)| *to = *from);
        }
    }

    /// Adds a PAD chunk (RFC 4820) that makes the packet `len` bytes long, for a probe. Does nothing if it is already that long.
    ///
    /// # Errors
    /// [`Full`] if `len` is no multiple of four or beyond the limit; the packet is as it was.
    pub fn pad_to(&mut self, len: usize) -> Result<(), Full> {
        let missing = len.saturating_sub(self.out.len());
        if missing == 0 {
            return Ok(());
        }
        if missing % 4 != 0 || missing > self.out.room() {
            return Err(Full);
        }
        self.push(&Pad { len: missing - Pad::HEADER_LEN })
    }

    /// Writes the checksum, and says how long the packet is, in bytes.
    #[must_use]
    pub fn finish(mut self, checksum: Checksum) -> usize {
        if checksum == Checksum::Crc32c {
            let sum = checksum::compute(self.out.written());
            // CommonHeader::LEN bytes have been written by `new`.
            self.out.written_mut()[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        self.out.len()
    }
}
