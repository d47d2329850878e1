//! What flows carry: bytes that follow from who says them and where they stand, so that whoever hears them can tell that
//! they are the right ones without having been told.
//!
//! *Responsible for* contents, lengths of messages and the head of a flow. *Not for* moving or checking them.

/// Bytes of a flow's head.
pub(crate) const HEAD: usize = 16;
const MAGIC: [u8; 4] = *b"vopr";

/// One direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the one that opened it.
    Up = 0,
    /// Back.
    Down = 1,
}

/// Mixes a number (the finaliser of SplitMix64: Steele, Lea and Flood 2014, section 5).
pub(crate) const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

const fn word(flow: u32, way: Way, at: u64) -> u64 {
    mix(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((flow as u64) << 1 | way as u64).wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// The bytes of a flow from `offset` on.
pub(crate) fn bytes(flow: u32, way: Way, offset: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let skip = (offset % 8) as usize;
    let mut at = offset / 8;
    while out.len() < len + skip {
        out.extend_from_slice(&word(flow, way, at).to_le_bytes());
        at += 1;
    }
    out.truncate(len + skip);
    out.drain(..skip);
    out
}

/// Where these bytes begin to be others than those of the flow from `offset` on.
pub(crate) fn wrong_at(flow: u32, way: Way, offset: u64, heard: &[u8]) -> Option<usize> {
    let said = bytes(flow, way, offset, heard.len());
    if said == heard { None } else { said.iter().zip(heard).position(|(a, b)| a != b) }
}

/// How long the message is that begins at `offset`, of a flow with messages of about this length.
pub(crate) fn message_len(flow: u32, way: Way, offset: u64, about: u32) -> usize {
    1 + (mix(word(flow, way, offset) ^ 0x6c65_6e67_7468) % (2 * u64::from(about.max(1)))) as usize
}

/// The head of a flow: which one it is, and which of its records.
pub(crate) fn head(flow: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&flow.to_be_bytes());
    head[8..].copy_from_slice(&mix(u64::from(flow) ^ 0x6865_6164).to_be_bytes());
    head
}

/// Which flow a head names; `None` if it is none.
pub(crate) fn read_head(bytes: &[u8]) -> Option<u32> {
    let flow = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
    (bytes.get(..HEAD)? == head(flow)).then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_of_a_flow_is_known_by_its_place() {
        let all = bytes(7, Way::Up, 0, 100);
        for (from, to) in [(0, 100), (3, 50), (8, 16), (9, 10), (97, 100)] {
            assert_eq!(bytes(7, Way::Up, from as u64, to - from), all[from..to]);
            assert_eq!(wrong_at(7, Way::Up, from as u64, &all[from..to]), None);
        }
        assert!(wrong_at(7, Way::Down, 0, &all).is_some());
        assert!(wrong_at(8, Way::Up, 0, &all).is_some());
        assert!(wrong_at(7, Way::Up, 1, &all[..99]).is_some());
        let mut bad = all;
        bad[42] ^= 1;
        assert_eq!(wrong_at(7, Way::Up, 0, &bad), Some(42));
    }

    #[test]
    fn a_head_is_known_and_nothing_else_is_one() {
        assert_eq!(read_head(&head(300)), Some(300));
        let mut bad = head(300);
        bad[7] ^= 1;
        assert_eq!(read_head(&bad), None);
        assert_eq!(read_head(b"vopr"), None);
    }
}
