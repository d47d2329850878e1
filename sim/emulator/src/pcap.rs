//! Reads what tcpdump writes: pcap files whose packets begin with the IP header.

use super::error::{Result, failed};
use std::path::Path;

/// The most of a file that is read.
const FILE_MAX: u64 = 2 << 30;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it was seen, in nanoseconds of wall-clock time. Captures on one machine share the clock.
    pub at: u64,
    /// How long it was.
    pub len: u32,
    /// What was kept of it, from the IP header on.
    pub bytes: Vec<u8>,
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is no pcap file of raw IP packets.
pub fn read(file: &Path) -> Result<Vec<Packet>> {
    let name = file.display().to_string();
    match std::fs::metadata(file) {
        Ok(m) if m.len() > FILE_MAX => return failed(&name, "more than 2 GiB: too much to read at once"),
        Ok(_) => {}
        Err(e) => return failed(&name, e),
    }
    match std::fs::read(file) {
        Ok(bytes) => parse(&bytes).or_else(|why| failed(&name, why)),
        Err(e) => failed(&name, e),
    }
}

/// Parses the text of a file (draft-ietf-opsawg-pcap, in this machine's byte order). A last packet that is not whole is left
/// out: the writer was stopped there.
fn parse(bytes: &[u8]) -> std::result::Result<Vec<Packet>, String> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let unit = match word(0) {
        Some(0xa1b2_3c4d) => 1,
        Some(0xa1b2_c3d4) => 1000,
        _ => return Err("no pcap file of this machine's byte order".to_owned()),
    };
    // LINKTYPE_RAW is 101 in files; some writers use the value of OpenBSD's or of the kernel's.
    match word(20).map(|l| l & 0x0fff_ffff) {
        Some(101 | 12 | 14) => {}
        other => return Err(format!("link type {other:?} instead of raw IP (101)")),
    }
    let mut packets = Vec::new();
    let mut at = 24;
    while let (Some(secs), Some(part), Some(kept), Some(len)) = (word(at), word(at + 4), word(at + 8), word(at + 12)) {
        let Some(data) = bytes.get(at + 16..at + 16 + kept as usize) else { break };
        let time = u64::from(secs) * 1_000_000_000 + u64::from(part) * unit;
        packets.push(Packet { at: time, len, bytes: data.to_vec() });
        at += 16 + kept as usize;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for w in [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65_535, link] {
            out.extend_from_slice(&w.to_ne_bytes());
        }
        for (secs, nanos, data) in packets {
            for w in [*secs, *nanos, data.len() as u32, 1500] {
                out.extend_from_slice(&w.to_ne_bytes());
            }
            out.extend_from_slice(data);
        }
        out
    }

    #[test]
    fn packets_are_read_with_nanoseconds_and_a_cut_one_is_left_out() {
        let whole = file(101, &[(3, 7, b"E12"), (4, 8, b"`")]);
        let got = parse(&whole).expect("a file");
        assert_eq!(got[0], Packet { at: 3_000_000_007, len: 1500, bytes: b"E12".to_vec() });
        assert_eq!(got.len(), 2);
        assert_eq!(parse(&whole[..whole.len() - 1]).expect("a file").len(), 1);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(parse(b"").is_err());
        assert!(parse(&file(1, &[])).expect_err("Ethernet").contains("raw IP"));
    }
}
