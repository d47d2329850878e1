//! The CRC32c of a packet (RFC 9260 section 6.8 and appendix A), and doing without it (RFC 9653).

use crate::error::{Problem, WireError};

/// What [`crate::PacketBuilder::finish`] puts into the checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The CRC32c of the packet.
    Crc32c,
    /// Zero, because the packet layer detects errors better and the peer has declared that it
    /// accepts that (RFC 9653 section 5.2).
    Zero,
}

/// Whether a checksum of zero is accepted in place of the CRC32c (RFC 9653 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroChecksum {
    /// No.
    Refused,
    /// Yes: this side has declared it, and the packet layer has checked the packet.
    Accepted,
}

/// The CRC32c of a packet with its checksum field taken as zero.
///
/// `packet` has a common header; what is shorter is summed as if it ended where it ends.
pub(crate) fn compute(packet: &[u8]) -> u32 {
    let Some((head, rest)) = packet.split_first_chunk::<12>() else { return crc32c::crc32c(packet) };
    let mut zeroed = *head;
    zeroed[8..].fill(0);
    crc32c::crc32c_append(crc32c::crc32c(&zeroed), rest)
}

/// The CRC32c of a packet whose checksum field is zero: one stretch.
pub(crate) fn compute_zeroed(packet: &[u8]) -> u32 {
    debug_assert!(field(packet) == 0, "the field counts as zero");
    crc32c::crc32c(packet)
}

/// The checksum field: the CRC goes out with its lowest byte first (RFC 9260 appendix A).
pub(crate) fn field(packet: &[u8]) -> u32 {
    packet.get(8..12).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// That the checksum field is right.
pub(crate) fn verify(packet: &[u8], zero: ZeroChecksum) -> Result<(), WireError> {
    let found = field(packet);
    if found == 0 && zero == ZeroChecksum::Accepted {
        return Ok(());
    }
    let computed = compute(packet);
    if found == computed { Ok(()) } else { Err(WireError::new(8, "packet", Problem::Checksum { found, computed })) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The check of RFC 9260 appendix A, a bit at a time: the polynomial 0x1EDC6F41, reflected.
    fn bitwise(bytes: impl Iterator<Item = u8>) -> u32 {
        !bytes.fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        })
    }

    #[test]
    fn the_check_value_of_the_catalogues() {
        assert_eq!(bitwise(b"123456789".iter().copied()), 0xe306_9283);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn zero_is_accepted_only_where_it_was_agreed() {
        let packet = [0x13, 0x88, 0x13, 0x89, 0, 0, 0, 7, 0, 0, 0, 0, 11, 0, 0, 4];
        assert_eq!(verify(&packet, ZeroChecksum::Accepted), Ok(()));
        let computed = compute(&packet);
        assert_eq!(
            verify(&packet, ZeroChecksum::Refused),
            Err(WireError::new(8, "packet", Problem::Checksum { found: 0, computed }))
        );
        // A sum that is there must be right, whatever was agreed.
        let mut wrong = packet;
        wrong[8] = 1;
        assert!(verify(&wrong, ZeroChecksum::Accepted).is_err());
    }

    proptest! {
        #[test]
        fn it_is_the_bitwise_crc_with_the_field_as_zero(packet in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let zeroed = packet.iter().enumerate().map(|(i, byte)| {
                if packet.len() >= 12 && (8..12).contains(&i) { 0 } else { *byte }
            });
            prop_assert_eq!(compute(&packet), bitwise(zeroed));
        }

        #[test]
        fn one_wrong_bit_is_found(mut packet in proptest::collection::vec(any::<u8>(), 12..200), at: prop::sample::Index, bit in 0..8) {
            let sum = compute(&packet);
            packet[8..12].copy_from_slice(&sum.to_le_bytes());
            prop_assert_eq!(verify(&packet, ZeroChecksum::Refused), Ok(()));
            let index = at.index(packet.len());
            packet[index] ^= 1u8 << bit;
            prop_assert!(verify(&packet, ZeroChecksum::Refused).is_err());
        }
    }
}
