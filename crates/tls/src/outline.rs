//! The outline of a certificate (RFC 5280 section 4.1): its version, dates and key, read without
//! judging any of it.
//!
//! webpki reads certificates of version 3 alone. One that is trusted by its pin may be of version
//! 1, as appliances still make them: then the handshake is verified with the key that stands in it.

use core::time::Duration;
use neater_base::WallTime;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version, which one of version 1 does not have.
const VERSION: u8 = 0xa0;

/// From when until when a certificate is valid, both included. Seconds count from 1970; what is
/// earlier is 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second in which it is valid (`notBefore`).
    pub not_before: WallTime,
    /// The last one (`notAfter`).
    pub not_after: WallTime,
}

/// From when until when a certificate is valid, as it stands there: nothing else of it is looked
/// at. `None` if it is not a certificate in DER (RFC 5280 section 4.1.2.5).
#[must_use]
pub fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    Outline::of(certificate)?.validity()
}

/// One element of DER.
struct Element<'a> {
    tag: u8,
    contents: &'a [u8],
    /// With its tag and its length.
    whole: &'a [u8],
}

/// What elements are taken from, one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next element. Tags of one byte and lengths below 16 MB are all that certificates have.
    fn next(&mut self) -> Option<Element<'a>> {
        let input = self.0;
        let (&tag, rest) = input.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, b| length << 8 | usize::from(*b)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Element { tag, contents, whole: input.get(..input.len() - rest.len())? })
    }

    /// The next element, if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|e| e.tag == tag)
    }
}

/// The fields of a certificate.
pub(crate) struct Outline<'a> {
    /// It has no version, and so is of version 1.
    pub(crate) is_v1: bool,
    validity: &'a [u8],
    key: Element<'a>,
}

impl<'a> Outline<'a> {
    /// The outline of a certificate; `None` if it is none.
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Self> {
        let outer = Reader(certificate).expect(SEQUENCE)?;
        let mut fields = Reader(Reader(outer.contents).expect(SEQUENCE)?.contents);
        let is_v1 = fields.0.first() != Some(&VERSION);
        if !is_v1 {
            fields.next()?;
        }
        fields.expect(INTEGER)?;
        // The algorithm of its signature, and its issuer.
        fields.expect(SEQUENCE)?;
        fields.expect(SEQUENCE)?;
        let validity = fields.expect(SEQUENCE)?.contents;
        // Its subject.
        fields.expect(SEQUENCE)?;
        Some(Self { is_v1, validity, key: fields.expect(SEQUENCE)? })
    }

    fn validity(&self) -> Option<Validity> {
        let mut times = Reader(self.validity);
        let mut next = || time(&times.next()?);
        Some(Validity { not_before: next()?, not_after: next()? })
    }

    /// Its key, as `SubjectPublicKeyInfo`.
    pub(crate) fn key(&self) -> SubjectPublicKeyInfoDer<'a> {
        self.key.whole.into()
    }

    /// Whether its key has made this signature, and with this algorithm. `None` if the key is not
    /// for the algorithm.
    pub(crate) fn verifies(
        &self,
        algorithm: &dyn SignatureVerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Option<bool> {
        let mut parts = Reader(self.key.contents);
        let id = parts.expect(SEQUENCE)?;
        let (unused, key) = parts.expect(BIT_STRING)?.contents.split_first()?;
        if *unused != 0 || id.contents != algorithm.public_key_alg_id().as_ref() {
            return None;
        }
        Some(algorithm.verify_signature(key, message, signature).is_ok())
    }
}

/// A time of a certificate: of the world, to the second (RFC 5280 section 4.1.2.5).
fn time(element: &Element<'_>) -> Option<WallTime> {
    let digits = element.contents.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digits = digits.get(from..to)?;
        Some(digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
    };
    let (year, at) = match (element.tag, digits.len()) {
        // Of two digits, those below 50 are of the 21st century.
        (UTC_TIME, 12) => number(0, 2).map(|y| (if y < 50 { 2000 + y } else { 1900 + y }, 2))?,
        (GENERALIZED_TIME, 14) => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |i: usize| number(at + 2 * i, at + 2 * i + 2);
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let year_from_march = if month > 2 { year } else { year.checked_sub(1)? };
    let leap_days = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    /// Days from 1 March of the year 0 to the beginning of 1970.
    const DAYS_TO_1970: u64 = 719_468;
    let days = year_from_march * 365 + leap_days + days_before_month + day - 1;
    let seconds = days.saturating_sub(DAYS_TO_1970) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(WallTime(Duration::from_secs(if days < DAYS_TO_1970 { 0 } else { seconds })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |tag, text: &[u8]| {
            let element = Element { tag, contents: text, whole: text };
            time(&element).map(|t| t.0.as_secs())
        };
        assert_eq!(of(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(of(UTC_TIME, b"690101000000Z"), Some(0), "before 1970");
        assert_eq!(of(UTC_TIME, b"000229120000Z"), Some(951_825_600));
        assert_eq!(of(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(of(GENERALIZED_TIME, b"20500101000000Z"), Some(2_524_608_000));
        assert_eq!(of(GENERALIZED_TIME, b"99991231235959Z"), Some(253_402_300_799));
        for bad in [&b"7001010000Z"[..], b"701301000000Z", b"700001000000Z", b"70010100000aZ", b"700101000000", b""] {
            assert_eq!(of(UTC_TIME, bad), None, "{bad:?}");
        }
        assert_eq!(of(INTEGER, b"700101000000Z"), None);
    }

    #[test]
    fn a_certificate_says_how_long_it_is_valid() {
        let wall = WallTime(Duration::from_secs(1_750_000_000));
        let identity = crate::self_signed(&["a.example"], wall, [7; 32]);
        let certificate = &identity.chain[0];
        let validity = validity(certificate).expect("a certificate");
        let (from, to) = (validity.not_before.0.as_secs(), validity.not_after.0.as_secs());
        assert!((1_750_000_000 - 2 * 86_400..=1_750_000_000 - 86_400).contains(&from), "{from}");
        assert!((1_750_000_000 + 364 * 86_400..=1_750_000_000 + 366 * 86_400).contains(&to), "{to}");
        let parsed = rustls::server::ParsedCertificate::try_from(certificate).expect("of version 3");
        let outline = Outline::of(certificate).expect("a certificate");
        assert!(!outline.is_v1 && outline.key() == parsed.subject_public_key_info());
        // Cut anywhere, it is none, and no reason to panic.
        for n in 0..certificate.len() {
            assert!(Outline::of(&certificate[..n]).is_none(), "{n}");
        }
    }
}
