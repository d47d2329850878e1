//! Certificates and keys from PEM text (RFC 7468), with errors that name what the text is instead.

use crate::identity::Identity;
use core::fmt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The longest PEM text that is read, in bytes: five times a system's bundle of authorities.
pub const PEM_LIMIT: usize = 1 << 20;

/// Why a PEM text gives no certificate or no key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PemError {
    /// There is no text.
    Empty,
    /// It is longer than [`PEM_LIMIT`].
    TooLarge,
    /// It is binary DER.
    Binary,
    /// It has no `-----BEGIN` line.
    NotPem,
    /// It holds a private key where a certificate is wanted.
    KeyInsteadOfCertificate,
    /// It holds a certificate where a private key is wanted.
    CertificateInsteadOfKey,
    /// It holds something else; the label of its first section.
    SomethingElse(Box<str>),
    /// The private key is encrypted with a passphrase.
    EncryptedKey,
    /// It holds several private keys.
    SeveralKeys,
    /// A section is damaged; the text explains how.
    Damaged(Box<str>),
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty: it should hold PEM text that begins with -----BEGIN"),
            Self::TooLarge => f.write_str("the file is larger than 1 MiB: this is not a certificate or key"),
            Self::Binary => f.write_str(
                "the file is binary (DER), not PEM: convert it with 'openssl x509 -inform der' or 'openssl pkey -inform der'",
            ),
            Self::NotPem => f.write_str("the file is not PEM: it has no line that begins with -----BEGIN"),
            Self::KeyInsteadOfCertificate => {
                f.write_str("the file holds a private key where a certificate is expected: the two may be swapped")
            }
            Self::CertificateInsteadOfKey => {
                f.write_str("the file holds a certificate where a private key is expected: the two may be swapped")
            }
            Self::SomethingElse(label) => {
                write!(f, "the file holds \"{label}\", neither a certificate nor a private key in PKCS#8, PKCS#1 or SEC1 form")
            }
            Self::EncryptedKey => {
                f.write_str("the private key is encrypted: decrypt it with 'openssl pkey -in FILE -out NEWFILE'")
            }
            Self::SeveralKeys => f.write_str("the file holds several private keys: leave only the right one"),
            Self::Damaged(why) => write!(f, "the file is damaged ({why}): get it again"),
        }
    }
}

impl std::error::Error for PemError {}

/// What a text holds, by its labels.
#[derive(Default)]
struct Contents {
    certificates: usize,
    keys: usize,
    encrypted: bool,
    other: Option<Box<str>>,
}

fn survey(pem: &[u8]) -> Result<Contents, PemError> {
    if pem.len() > PEM_LIMIT {
        return Err(PemError::TooLarge);
    }
    if pem.iter().all(u8::is_ascii_whitespace) {
        return Err(PemError::Empty);
    }
    let mut contents = Contents::default();
    let mut sections = 0;
    for line in pem.split(|b| matches!(b, b'\n' | b'\r')) {
        // Encryption in the old style is declared inside a section (RFC 1421 section 4.6.1.1).
        contents.encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
        let Some(label) = line.strip_prefix(b"-----BEGIN ") else { continue };
        sections += 1;
        let label = String::from_utf8_lossy(label);
        match label.trim_end().trim_end_matches('-') {
            "CERTIFICATE" => contents.certificates += 1,
            "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => contents.keys += 1,
            "ENCRYPTED PRIVATE KEY" => contents.encrypted = true,
            other => {
                let short: String = other.chars().filter(|c| !c.is_control()).take(40).collect();
                contents.other.get_or_insert(short.into());
            }
        }
    }
    match (sections, pem) {
        // A DER SEQUENCE of more than 127 bytes.
        (0, [0x30, 0x81..=0x84, ..]) => Err(PemError::Binary),
        (0, _) => Err(PemError::NotPem),
        _ => Ok(contents),
    }
}

fn damaged(e: &rustls::pki_types::pem::Error) -> PemError {
    PemError::Damaged(e.to_string().chars().filter(|c| !c.is_control()).take(120).collect::<String>().into())
}

/// All certificates of a PEM text, in order; at least one. Other sections are passed over.
///
/// # Errors
/// What the text is instead.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let contents = survey(pem)?;
    if contents.certificates == 0 {
        return Err(match contents.other {
            _ if contents.keys > 0 || contents.encrypted => PemError::KeyInsteadOfCertificate,
            Some(label) => PemError::SomethingElse(label),
            None => PemError::NotPem,
        });
    }
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| damaged(&e))?;
    if certificates.is_empty() || certificates.iter().any(|c| c.is_empty()) {
        return Err(PemError::Damaged("a certificate without contents".into()));
    }
    Ok(certificates)
}

/// The one private key of a PEM text, in PKCS#8, PKCS#1 or SEC1 form. Other sections are passed
/// over.
///
/// # Errors
/// What the text is instead.
pub fn private_key_from_pem(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    let contents = survey(pem)?;
    match (contents.encrypted, contents.keys) {
        (true, _) => return Err(PemError::EncryptedKey),
        (false, 0) => {
            return Err(match contents.other {
                _ if contents.certificates > 0 => PemError::CertificateInsteadOfKey,
                Some(label) => PemError::SomethingElse(label),
                None => PemError::NotPem,
            });
        }
        (false, 1) => {}
        _ => return Err(PemError::SeveralKeys),
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| damaged(&e))
}

/// A certificate chain, end entity first, and its key from PEM texts. Both may be the same text.
///
/// # Errors
/// What either text is instead. Whether the two belong together is checked when a configuration is
/// made.
pub fn identity_from_pem(chain: &[u8], key: &[u8]) -> Result<Identity, PemError> {
    Ok(Identity { chain: certificates_from_pem(chain)?, key: private_key_from_pem(key)? })
}

/// Certificates as PEM text, one behind the other: what others are given that are to trust them.
#[must_use]
pub fn certificates_to_pem(chain: &[CertificateDer<'_>]) -> String {
    chain.iter().map(|der| to_pem("CERTIFICATE", der)).collect()
}

/// A private key as PEM text, by the form that it has.
#[must_use]
pub fn private_key_to_pem(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        // PKCS#8; the enum may grow.
        _ => "PRIVATE KEY",
    };
    to_pem(label, key.secret_der())
}

/// DER as PEM (RFC 7468 section 3): lines of 64 letters of base64 (RFC 4648 section 4).
fn to_pem(label: &str, der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let word = three.iter().fold(0_u32, |word, b| word << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for i in 0..4 {
                let letter = LETTERS[(word >> (18 - 6 * i)) as usize & 63];
                text.push(if i <= three.len() { char::from(letter) } else { '=' });
            }
        }
        text.push('\n');
    }
    text + "-----END " + label + "-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    // "hello" and nothing secret: labels decide, contents are judged later.
    const CERT: &str = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";

    #[test]
    fn a_chain_and_a_key_may_share_a_text() {
        let both = format!("subject=example\n{CERT}{CERT}{KEY}");
        let id = identity_from_pem(both.as_bytes(), both.as_bytes()).unwrap();
        assert_eq!(id.chain.len(), 2);
        assert_eq!(id.chain[0].as_ref(), b"hello");
        assert_eq!(id.key.secret_der(), b"hello");
    }

    #[test]
    fn what_is_written_is_read_again() {
        for length in 0..200_u8 {
            let der: Vec<u8> = (0..length).collect();
            let text = to_pem("CERTIFICATE", &der);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let read = CertificateDer::pem_slice_iter(text.as_bytes()).next().unwrap().unwrap();
            assert_eq!(read.as_ref(), der);
        }
    }

    #[test]
    fn errors_say_what_the_text_is_instead() {
        let certificate = |t: &str| certificates_from_pem(t.as_bytes()).unwrap_err();
        let key = |t: &str| private_key_from_pem(t.as_bytes()).unwrap_err();
        assert_eq!(certificate(""), PemError::Empty);
        assert_eq!(certificate(" \n"), PemError::Empty);
        assert_eq!(certificate("hello"), PemError::NotPem);
        assert_eq!(certificate(KEY), PemError::KeyInsteadOfCertificate);
        assert_eq!(key(CERT), PemError::CertificateInsteadOfKey);
        assert_eq!(key(&KEY.repeat(2)), PemError::SeveralKeys);
        assert_eq!(key(&KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")), PemError::EncryptedKey);
        let old = KEY.replace("PRIVATE", "RSA PRIVATE").replace("-----\naG", "-----\nProc-Type: 4,ENCRYPTED\n\naG");
        assert_eq!(key(&old), PemError::EncryptedKey);
        assert_eq!(
            certificate(&CERT.replace("CERTIFICATE", "CERTIFICATE REQUEST")),
            PemError::SomethingElse("CERTIFICATE REQUEST".into())
        );
        assert_eq!(
            key(&KEY.replace("PRIVATE", "OPENSSH PRIVATE")),
            PemError::SomethingElse("OPENSSH PRIVATE KEY".into())
        );
        assert!(matches!(certificate("-----BEGIN CERTIFICATE-----\naGVsbG8="), PemError::Damaged(_)));
        assert!(matches!(certificate(&CERT.replace("aGVsbG8=", "!!!")), PemError::Damaged(_)));
        assert!(matches!(certificate(&CERT.replace("aGVsbG8=", "")), PemError::Damaged(_)));
        assert_eq!(certificates_from_pem(&[0x30, 0x82, 1, 0, 0xff]).unwrap_err(), PemError::Binary);
        assert_eq!(certificates_from_pem(&vec![b'a'; PEM_LIMIT + 1]).unwrap_err(), PemError::TooLarge);
    }
}
