//! The key vectors of RFC 4895: both sides' parameters of authentication in INIT and INIT ACK
//! chunks, and what follows from it.

use crate::config::Authentication;
use neater_sctp_wire::ChunkSet;
use neater_sctp_wire::chunk::{Auth, HmacId, Init, InitAck, ShutdownComplete};
use neater_sctp_wire::parameter::{ChunkList, HmacAlgo, Random};
use ring::hmac;

/// How long the random number is (RFC 4895 section 6.1).
pub(crate) const RANDOM_LEN: usize = 32;
/// The longest key vector of a peer that is kept, in bytes: it is in the cookie. One that names
/// more chunks is treated as a peer without authentication.
const MAX_VECTOR: usize = 128;

/// The three parameters of an INIT or INIT ACK chunk.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) random: Option<Random<'a>>,
    pub(super) chunks: Option<ChunkList<'a>>,
    pub(super) algorithms: Option<HmacAlgo<'a>>,
}

impl Parts<'_> {
    /// The vector, each parameter padded; empty if the peer does not authenticate.
    pub(super) fn vector(&self) -> Vec<u8> {
        let (Some(random), Some(algorithms)) = (self.random, self.algorithms) else { return Vec::new() };
        let chunks = self.chunks.map_or(&[][..], |c| c.0);
        let mut vector = Vec::with_capacity(64);
        put(&mut vector, Random::KIND, random.0);
        if self.chunks.is_some() {
            put(&mut vector, ChunkList::KIND, chunks);
        }
        let algorithms: Vec<u8> = algorithms.algorithms.iter().flat_map(|a| a.0.to_be_bytes()).collect();
        put(&mut vector, HmacAlgo::KIND, &algorithms);
        if vector.len() > MAX_VECTOR { Vec::new() } else { vector }
    }
}

/// Which of the algorithms that have numbers we can compute (RFC 4895 section 3.3).
pub(crate) fn algorithm(hmac: HmacId) -> Option<hmac::Algorithm> {
    match hmac {
        HmacId::SHA1 => Some(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        HmacId::SHA256 => Some(hmac::HMAC_SHA256),
        _ => None,
    }
}

/// Whether the sender of a vector can check anything that we can compute; of an empty one, from a
/// side that does not authenticate, false.
pub(super) fn has_common_algorithm(vector: &[u8]) -> bool {
    KeyVector::read(vector).algorithms.iter().any(|a| algorithm(*a).is_some())
}

/// Our own vector.
pub(super) fn vector(random: &[u8; RANDOM_LEN], config: &Authentication) -> Vec<u8> {
    let mut vector = Vec::with_capacity(64);
    put(&mut vector, Random::KIND, random);
    if !config.required.is_empty() {
        put(&mut vector, ChunkList::KIND, &config.required);
    }
    let algorithms: &[u8] = if config.sha256 { &[0, 3, 0, 1] } else { &[0, 1] };
    put(&mut vector, HmacAlgo::KIND, algorithms);
    vector
}

fn put(vector: &mut Vec<u8>, kind: u16, value: &[u8]) {
    vector.extend_from_slice(&kind.to_be_bytes());
    vector.extend_from_slice(&((4 + value.len()) as u16).to_be_bytes());
    vector.extend_from_slice(value);
    vector.resize(vector.len().next_multiple_of(4), 0);
}

/// A vector, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyVector {
    /// The parameters one behind the other without padding (RFC 4895 section 6.1).
    pub(crate) bytes: Vec<u8>,
    /// The chunks that its sender takes only if they are authenticated.
    pub(crate) required: ChunkSet,
    /// The algorithms that its sender can check, the best first.
    pub(crate) algorithms: Vec<HmacId>,
}

impl KeyVector {
    /// Reads what [`Parts::vector`] or [`vector`] made.
    pub(crate) fn read(mut padded: &[u8]) -> Self {
        let mut read = Self::default();
        while let Some(&[high, low, a, b]) = padded.first_chunk::<4>() {
            let len = usize::from(u16::from_be_bytes([a, b]));
            let Some(parameter) = padded.get(..len).filter(|p| p.len() >= 4) else { break };
            read.bytes.extend_from_slice(parameter);
            let value = &parameter[4..];
            match u16::from_be_bytes([high, low]) {
                ChunkList::KIND => {
                    // These cannot be authenticated, and are ignored in the list (RFC 4895 section
                    // 3.2).
                    let never = [Init::KIND, InitAck::KIND, ShutdownComplete::KIND, Auth::KIND];
                    read.required = value.iter().copied().filter(|kind| !never.contains(kind)).collect();
                }
                HmacAlgo::KIND => {
                    let ids = value.chunks_exact(2).map(|id| HmacId(u16::from_be_bytes([id[0], id[1]])));
                    read.algorithms = ids.collect();
                }
                _ => {}
            }
            padded = padded.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        read
    }

    /// The association shared key: the key of both endpoints, then the vector that is the smaller
    /// number, then the larger (section 6.1).
    pub(crate) fn shared(&self, other: &Self, secret: &[u8]) -> Vec<u8> {
        // Both begin with the type of RANDOM, which is not zero: the longer is the larger number.
        let (a, b) = (&self.bytes, &other.bytes);
        let (small, large) = if (a.len(), a) <= (b.len(), b) { (a, b) } else { (b, a) };
        [secret, small, large].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_sctp_wire::Array;

    #[test]
    fn a_vector_is_read_as_it_was_made_and_the_key_is_the_same_on_both_sides() {
        let config = Authentication { required: vec![0, 192, 128], ..Authentication::default() };
        let ours = vector(&[7; 32], &config);
        assert_eq!(ours.len(), 36 + 8 + 8);
        let read = KeyVector::read(&ours);
        assert_eq!(read.bytes.len(), 36 + 7 + 8, "padding is not part of the key");
        assert!(read.required.contains(192) && !read.required.contains(1));
        assert_eq!(read.algorithms, [HmacId::SHA256, HmacId::SHA1]);

        let ids = [HmacId::SHA1];
        let parts = Parts {
            random: Some(Random(&[9; 32])),
            chunks: None,
            algorithms: Some(HmacAlgo { algorithms: Array::new(&ids) }),
        };
        let theirs = KeyVector::read(&parts.vector());
        assert_eq!(theirs.bytes.len(), 36 + 6);
        let key = read.shared(&theirs, b"secret");
        assert_eq!(key, theirs.shared(&read, b"secret"));
        // The shorter is the smaller number, though its bytes are larger.
        assert_eq!(key, [&b"secret"[..], &theirs.bytes, &read.bytes].concat());
        let other = KeyVector::read(&vector(&[8; 32], &config));
        assert_eq!(read.shared(&other, b""), [&read.bytes[..], &other.bytes].concat());
    }

    #[test]
    fn a_peer_says_too_little_or_too_much() {
        assert!(Parts { random: Some(Random(&[9; 32])), ..Parts::default() }.vector().is_empty(), "no algorithms");
        let ids = [HmacId::SHA1];
        let many = [1; 100];
        let parts = Parts {
            random: Some(Random(&[9; 32])),
            chunks: Some(ChunkList(&many)),
            algorithms: Some(HmacAlgo { algorithms: Array::new(&ids) }),
        };
        assert!(parts.vector().is_empty(), "longer than a cookie has room for");
        assert_eq!(KeyVector::read(&[0x80, 2, 0, 99]), KeyVector::default());
        assert_eq!(KeyVector::read(&[0x80, 2, 0, 3]), KeyVector::default());
    }
}
