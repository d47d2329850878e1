//! The certificate chains in the transcript of a handshake.
//!
//! dimpl gives its caller the peer's first certificate only. The others, which most authorities'
//! certificates cannot be verified without, are in the transcript that both sides hash, and that
//! passes through our hash functions in one piece and in the clear. What is found here decides
//! nothing by itself: it is a heap of candidate intermediates, taken only if it begins with the
//! certificate that the peer has proved to own.

use rustls::pki_types::CertificateDer;

/// The handshake type of a Certificate message (RFC 8446 section 4).
const CERTIFICATE: u8 = 11;
/// The longest chain that is looked at; webpki goes six deep.
const MAX_CHAIN: usize = 16;

/// Bytes that are taken from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    /// A number of `n` bytes, at most three.
    fn number(&mut self, n: usize) -> Option<usize> {
        self.take(n).map(|b| b.iter().fold(0, |v, b| v << 8 | usize::from(*b)))
    }
}

/// Every list of certificates in a transcript of DTLS 1.2 (RFC 6347 section 4.2.6: messages with
/// their headers of 12 bytes, as if never fragmented) or 1.3 (RFC 9147 section 5.2: headers of 4
/// bytes, as in TLS). Nothing, if it is something else.
pub(crate) fn in_transcript(transcript: &[u8]) -> Vec<Vec<CertificateDer<'static>>> {
    // The offset of the first fragment is 0 and its length is the message's: in 1.3 these are six
    // random bytes.
    let old = transcript.len() >= 12 && transcript[6..9] == [0; 3] && transcript[9..12] == transcript[1..4];
    let mut reader = Reader(transcript);
    let mut found = Vec::new();
    while let Some((kind, body)) = message(&mut reader, old) {
        if kind == CERTIFICATE {
            found.extend(list(body, old));
        }
    }
    found
}

fn message<'a>(reader: &mut Reader<'a>, old: bool) -> Option<(u8, &'a [u8])> {
    let kind = *reader.take(1)?.first()?;
    let length = reader.number(3)?;
    if old {
        reader.take(8)?;
    }
    Some((kind, reader.take(length)?))
}

/// The certificates of one message (RFC 5246 section 7.4.2, RFC 8446 section 4.4.2); `None` if it
/// is empty or damaged.
fn list(body: &[u8], old: bool) -> Option<Vec<CertificateDer<'static>>> {
    let mut reader = Reader(body);
    if !old {
        let context = reader.number(1)?;
        reader.take(context)?;
    }
    let length = reader.number(3)?;
    let mut entries = Reader(reader.take(length)?);
    let mut chain = Vec::new();
    while !entries.0.is_empty() && chain.len() < MAX_CHAIN {
        let length = entries.number(3)?;
        chain.push(CertificateDer::from(entries.take(length)?.to_vec()));
        if !old {
            let extensions = entries.number(2)?;
            entries.take(extensions)?;
        }
    }
    (!chain.is_empty()).then_some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(kind: u8, body: &[u8], old: bool) -> Vec<u8> {
        let length = &(body.len() as u32).to_be_bytes()[1..];
        let mut out = [&[kind], length].concat();
        if old {
            out.extend([0, 0]);
            out.extend([0; 3]);
            out.extend(length);
        }
        out.extend(body);
        out
    }

    fn hello(old: bool) -> Vec<u8> {
        with_header(1, &[[0xfe, 0xfd].as_slice(), &[7; 60]].concat(), old)
    }

    #[test]
    fn chains_are_found_in_transcripts_of_both_versions() {
        let old = with_header(11, &[0, 0, 11, 0, 0, 2, 1, 2, 0, 0, 3, 3, 4, 5], true);
        let new = with_header(11, &[1, 9, 0, 0, 16, 0, 0, 2, 1, 2, 0, 1, 7, 0, 0, 3, 3, 4, 5, 0, 0], false);
        let expected: Vec<CertificateDer<'static>> = vec![vec![1, 2].into(), vec![3, 4, 5].into()];
        assert_eq!(in_transcript(&[hello(true), old].concat()), vec![expected.clone()]);
        assert_eq!(in_transcript(&[hello(false), new].concat()), vec![expected]);
    }

    #[test]
    fn damage_is_no_chain_and_no_panic() {
        let whole = [hello(true), with_header(11, &[0, 0, 5, 0, 0, 2, 1, 2], true)].concat();
        assert_eq!(in_transcript(&whole).len(), 1);
        for n in 0..whole.len() {
            assert!(in_transcript(&whole[..n]).is_empty());
        }
        assert!(in_transcript(&[hello(false), with_header(11, &[0, 0, 0, 0], false)].concat()).is_empty());
        assert!(in_transcript(&[hello(true), with_header(11, &[0, 0, 9, 0, 0, 200, 1], true)].concat()).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = in_transcript(&bytes);
        }
    }
}
