//! Writing a packet.

use core::ops::Range;

use crate::checksum::{self, Checksum};
use crate::chunk::{Auth, HmacId, Pad};
use crate::error::Full;
use crate::packet::CommonHeader;
use crate::writer::{Emit, Writer};
use crate::{PACKET_MAX, padded};

/// Writes a packet into a buffer, chunk by chunk, up to the buffer's length.
#[derive(Debug)]
pub struct PacketBuilder<'b> {
    out: Writer<'b>,
    signing: Option<Signing>,
    slot: Option<AuthSlot>,
}

/// A set of chunk types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkSet([u64; 4]);

impl ChunkSet {
    /// None.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds a type.
    pub const fn insert(&mut self, kind: u8) {
        self.0[(kind >> 6) as usize] |= 1 << (kind & 63);
    }

    /// Whether a type is in it.
    #[must_use]
    pub const fn contains(&self, kind: u8) -> bool {
        self.0[(kind >> 6) as usize] & 1 << (kind & 63) != 0
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a | e, b | f, c | g, d | h])
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, [0, 0, 0, 0])
    }
}

impl FromIterator<u8> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = u8>>(kinds: I) -> Self {
        let mut set = Self::EMPTY;
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }
}

/// Which chunks go behind an AUTH chunk, and what is in that (RFC 4895 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signing {
    /// Which of the keys that both endpoints share.
    pub key: u16,
    /// With which algorithm.
    pub hmac: HmacId,
    /// The chunks that the peer takes only behind an AUTH chunk.
    pub kinds: ChunkSet,
}

impl Signing {
    /// How many bytes of every packet are kept for the AUTH chunk: of those chunks that fill
    /// packets (DATA, I-DATA, SACK) one must know beforehand what fits.
    #[must_use]
    pub const fn reserved(&self) -> usize {
        let fills = self.kinds.contains(0) || self.kinds.contains(3) || self.kinds.contains(64);
        match self.hmac.digest_len() {
            Some(len) if fills => Auth::HEADER_LEN + padded(len),
            _ => 0,
        }
    }
}

/// Where the digest of an AUTH chunk goes that [`PacketBuilder::push_auth`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the digest is zeros until it is set"]
pub struct AuthSlot {
    start: usize,
    digest: Range<usize>,
}

impl<'b> PacketBuilder<'b> {
    /// A packet with that header and no chunks. The buffer's length is the limit: all that the path
    /// takes of an SCTP packet, without what IP, UDP and DTLS add. Of it the largest multiple of
    /// four up to [`PACKET_MAX`] is used.
    ///
    /// # Errors
    /// [`Full`] if not even the header fits.
    pub fn new(buffer: &'b mut [u8], header: CommonHeader) -> Result<Self, Full> {
        let limit = buffer.len().min(PACKET_MAX) & !3;
        let mut out = Writer::new(&mut buffer[..limit]);
        header.write(&mut out);
        if out.overflowed() { Err(Full) } else { Ok(Self { out, signing: None, slot: None }) }
    }

    /// From now on chunks of the types that `signing` names are put behind an AUTH chunk, which is
    /// written when the first of them comes. [`PacketBuilder::auth`] returns it, if there is one,
    /// and it needs its digest before the packet is finished.
    pub const fn sign(&mut self, signing: Signing) {
        self.signing = Some(signing);
    }

    /// The AUTH chunk that [`PacketBuilder::sign`] made necessary.
    #[must_use = "the digest is zeros until it is set"]
    pub fn auth(&self) -> Option<AuthSlot> {
        self.slot.clone()
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

    /// The longest chunk, header included, that still fits, in bytes, with the AUTH chunk that it
    /// may need. A multiple of four.
    #[must_use]
    pub const fn room(&self) -> usize {
        match self.signing {
            Some(ref signing) => self.out.room().saturating_sub(signing.reserved()),
            None => self.out.room(),
        }
    }

    /// Adds a chunk and its padding.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; the packet is as it was.
    #[inline]
    pub fn push(&mut self, chunk: &impl Emit) -> Result<(), Full> {
        let start = self.out.len();
        chunk.emit(&mut self.out);
        self.out.align();
        if self.out.overflowed() {
            self.out.rewind(start);
            return Err(Full);
        }
        match self.signing {
            Some(signing) if self.slot.is_none() => self.sign_first(start, signing, chunk),
            _ => Ok(()),
        }
    }

    /// What was written at `start` is written again behind an AUTH chunk, if it must be there.
    #[cold]
    fn sign_first(&mut self, start: usize, signing: Signing, chunk: &impl Emit) -> Result<(), Full> {
        let kind = self.out.written().get(start).copied();
        if !kind.is_some_and(|kind| signing.kinds.contains(kind)) {
            return Ok(());
        }
        self.out.rewind(start);
        self.signing = None;
        let done = self.push_auth(signing.key, signing.hmac, signing.hmac.digest_len().unwrap_or(0)).and_then(|slot| {
            self.push(chunk)?;
            Ok(slot)
        });
        match done {
            Ok(slot) => self.slot = Some(slot),
            Err(Full) => {
                self.out.rewind(start);
                self.signing = Some(signing);
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Adds an AUTH chunk (RFC 4895 section 5.1) with a digest of `digest_len` zeros, to be set
    /// when the packet is complete.
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

    /// What the digest covers: from the AUTH chunk, with zeros for its digest, to the end of the
    /// packet so far (RFC 4895 section 6.2).
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

    /// Adds a PAD chunk (RFC 4820) that makes the packet `len` bytes long, for a probe. Does
    /// nothing if it is already that long.
    ///
    /// # Errors
    /// [`Full`] if `len` is no multiple of four or beyond the limit; the packet is as it was.
    pub fn pad_to(&mut self, len: usize) -> Result<(), Full> {
        let missing = len.saturating_sub(self.out.len());
        if missing == 0 {
            return Ok(());
        }
        if !missing.is_multiple_of(4) || missing > self.out.room() {
            return Err(Full);
        }
        self.push(&Pad { len: missing - Pad::HEADER_LEN })
    }

    /// Writes the checksum, and returns the length of the packet, in bytes.
    #[must_use]
    pub fn finish(mut self, checksum: Checksum) -> usize {
        if checksum == Checksum::Crc32c {
            // `new` has written the field as zero.
            let sum = checksum::compute_zeroed(self.out.written());
            // CommonHeader::LEN bytes have been written by `new`.
            self.out.written_mut()[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        self.out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Chunk, CookieAck, CookieEcho};
    use crate::{Packet, Tag, ZeroChecksum};

    const HEADER: CommonHeader = CommonHeader { source_port: 5000, destination_port: 5001, tag: Tag(7) };

    fn chunks(packet: &[u8]) -> Vec<Chunk<'_>> {
        let packet = Packet::parse(packet).unwrap();
        packet.verify(ZeroChecksum::Refused).unwrap();
        assert_eq!(packet.header, HEADER);
        packet.chunks().map(|raw| Chunk::decode(&raw.unwrap()).unwrap()).collect()
    }

    #[test]
    fn chunks_that_must_be_signed_go_behind_one_auth_chunk() {
        let kinds: ChunkSet = [CookieEcho::KIND, 0, 255].into_iter().collect();
        assert!(kinds.contains(0) && kinds.contains(255) && !kinds.contains(64) && !kinds.is_empty());
        assert!(ChunkSet::EMPTY.is_empty());
        let mut buffer = [0; 100];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        packet.sign(Signing { key: 3, hmac: HmacId::SHA1, kinds });
        packet.push(&CookieAck).unwrap();
        assert_eq!((packet.auth(), packet.len()), (None, 16));
        packet.push(&CookieEcho { cookie: &[1; 4] }).unwrap();
        packet.push(&CookieEcho { cookie: &[2; 4] }).unwrap();
        let slot = packet.auth().unwrap();
        assert_eq!((packet.signed(&slot).len(), packet.len()), (28 + 8 + 8, 60));
        packet.set_digest(&slot, &[9; 20]);
        let len = packet.finish(Checksum::Crc32c);
        let all = chunks(&buffer[..len]);
        assert_eq!(all[1], Auth { key: 3, hmac: HmacId::SHA1, digest: &[9; 20] }.into());
        assert_eq!((all.len(), all[0], all[3]), (4, CookieAck.into(), CookieEcho { cookie: &[2; 4] }.into()));

        // No room for both: nothing is written, and a later packet is signed all the same.
        let mut small = [0; 44];
        let mut packet = PacketBuilder::new(&mut small, HEADER).unwrap();
        packet.sign(Signing { key: 0, hmac: HmacId::SHA1, kinds });
        assert_eq!((packet.push(&CookieEcho { cookie: &[1; 8] }), packet.len(), packet.auth()), (Err(Full), 12, None));
        packet.push(&CookieEcho { cookie: &[] }).unwrap();
        assert!(packet.auth().is_some());
    }

    #[test]
    fn a_chunk_that_does_not_fit_leaves_the_packet_as_it_was() {
        let mut buffer = [0xff; 31];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        assert!(packet.is_empty());
        // 31 bytes hold a packet of 28.
        assert_eq!((packet.len(), packet.room()), (12, 16));
        packet.push(&CookieAck).unwrap();
        assert_eq!(packet.push(&CookieEcho { cookie: &[1; 9] }), Err(Full));
        assert_eq!((packet.len(), packet.room(), packet.is_empty()), (16, 12, false));
        packet.push(&CookieEcho { cookie: &[1; 5] }).unwrap();
        assert_eq!(packet.push(&CookieAck), Err(Full));
        let len = packet.finish(Checksum::Crc32c);
        assert_eq!(len, 28);
        assert_eq!(chunks(&buffer[..len]), [CookieAck.into(), CookieEcho { cookie: &[1; 5] }.into()]);
        // The padding is zero although the buffer was not.
        assert_eq!(buffer[25..], [0, 0, 0, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_buffer_without_room_for_the_header_is_refused() {
        assert_eq!(PacketBuilder::new(&mut [0; 11], HEADER).map(|_| ()), Err(Full));
        assert_eq!(PacketBuilder::new(&mut [0; 12], HEADER).unwrap().room(), 0);
    }

    #[test]
    fn a_packet_is_never_longer_than_a_length_can_say() {
        let mut buffer = vec![0; 100_000];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        assert_eq!(packet.len() + packet.room(), PACKET_MAX);
        packet.push(&Pad { len: packet.room() - 4 }).unwrap();
        assert_eq!(packet.room(), 0);
        let len = packet.finish(Checksum::Crc32c);
        assert_eq!(chunks(&buffer[..len]), [Pad { len: PACKET_MAX - 16 }.into()]);
    }

    #[test]
    fn a_packet_is_padded_to_a_length() {
        let mut buffer = [0; 64];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        packet.push(&CookieAck).unwrap();
        assert_eq!(packet.pad_to(18), Err(Full));
        assert_eq!(packet.pad_to(68), Err(Full));
        packet.pad_to(16).unwrap();
        packet.pad_to(0).unwrap();
        assert_eq!(packet.len(), 16);
        packet.pad_to(20).unwrap();
        packet.pad_to(64).unwrap();
        let len = packet.finish(Checksum::Crc32c);
        assert_eq!(chunks(&buffer[..len]), [CookieAck.into(), Pad { len: 0 }.into(), Pad { len: 40 }.into()]);
    }

    #[test]
    fn a_checksum_of_zero_is_left_zero() {
        let mut buffer = [0xff; 16];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        packet.push(&CookieAck).unwrap();
        assert_eq!(packet.finish(Checksum::Zero), 16);
        let packet = Packet::parse(&buffer).unwrap();
        assert_eq!(packet.checksum(), 0);
        assert!(packet.verify(ZeroChecksum::Accepted).is_ok() && packet.verify(ZeroChecksum::Refused).is_err());
    }

    #[test]
    fn what_is_signed_is_what_the_receiver_checks() {
        let mut buffer = [0xff; 128];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        packet.push(&CookieAck).unwrap();
        let slot = packet.push_auth(3, HmacId::SHA1, 20).unwrap();
        packet.push(&CookieEcho { cookie: b"odd" }).unwrap();
        let signed = packet.signed(&slot).to_vec();
        assert_eq!(signed[..8], [15, 0, 0, 28, 0, 3, 0, 1]);
        assert_eq!((&signed[8..28], signed.len()), (&[0; 20][..], 36));
        packet.set_digest(&slot, &[9; 20]);
        let len = packet.finish(Checksum::Crc32c);
        let packet = Packet::parse(&buffer[..len]).unwrap();
        let auth = packet.chunks().nth(1).unwrap().unwrap();
        assert_eq!(packet.auth_input(&auth).unwrap().concat(), signed);
        assert_eq!(chunks(&buffer[..len])[1], Auth { key: 3, hmac: HmacId::SHA1, digest: &[9; 20] }.into());
    }

    #[test]
    fn a_digest_of_another_length_stays_within_its_place() {
        let mut buffer = [0; 128];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        assert_eq!(packet.push_auth(3, HmacId(9), 129), Err(Full));
        let slot = packet.push_auth(3, HmacId(9), 2).unwrap();
        packet.push(&CookieAck).unwrap();
        packet.set_digest(&slot, &[1; 40]);
        let len = packet.finish(Checksum::Crc32c);
        let expected = [Auth { key: 3, hmac: HmacId(9), digest: &[1; 2] }.into(), CookieAck.into()];
        assert_eq!(chunks(&buffer[..len]), expected);
    }
}
