//! Certificates without a public authority, for `serve` and for tests.

use crate::error::SecurityError;
use crate::identity::Identity;
use core::time::Duration;
use neater_base::WallTime;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// For how long a certificate is valid before the time it is made at, so that slow clocks take it
/// too.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);
/// For how long it is valid after that.
const VALID: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The latest time at which a certificate can be made: 2⁴² ms, in 2109. Dates of certificates end
/// in 9999.
const LATEST: Duration = Duration::from_millis(1 << 42);

/// A self-signed certificate for these names (DNS names or IP addresses) with an Ed25519 key, valid
/// from a day before `wall` for a year after it. All of it follows from the arguments.
///
/// Browsers do not take Ed25519 certificates; [`self_signed_p256`] makes one that they can be
/// configured to accept.
///
/// # Panics
/// If a name is not ASCII; [`try_self_signed`] returns that as an error.
#[must_use]
pub fn self_signed(names: &[&str], wall: WallTime, seed: [u8; 32]) -> Identity {
    match try_self_signed(names, wall, seed) {
        Ok(identity) => identity,
        Err(e) => panic!("{e}"),
    }
}

/// [`self_signed`] with errors returned.
///
/// # Errors
/// [`SecurityError::BadCertificate`] if a name cannot stand in a certificate.
pub fn try_self_signed(names: &[&str], wall: WallTime, seed: [u8; 32]) -> Result<Identity, SecurityError> {
    let key = ed25519(seed)?;
    let certificate = end_entity(names, wall, &key)?.self_signed(&key).map_err(bad)?;
    Ok(Identity { chain: vec![certificate.der().clone()], key: private(&key) })
}

/// A self-signed certificate with an ECDSA P-256 key that is drawn from the operating system: for
/// servers that browsers and old clients visit. Neither repeatable nor fit for simulation.
///
/// # Errors
/// As [`try_self_signed`].
pub fn self_signed_p256(names: &[&str], wall: WallTime) -> Result<Identity, SecurityError> {
    let key = KeyPair::generate().map_err(bad)?;
    let certificate = end_entity(names, wall, &key)?.self_signed(&key).map_err(bad)?;
    Ok(Identity { chain: vec![certificate.der().clone()], key: private(&key) })
}

/// A self-signed certificate for `names` that is marked as an authority, as `openssl req -x509`
/// makes it.
#[cfg(test)]
pub(crate) fn authority_of_its_own(names: &[&str], wall: WallTime, seed: [u8; 32]) -> Identity {
    let make = || {
        let key = ed25519(seed)?;
        let mut params = end_entity(names, wall, &key)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages.clear();
        let certificate = params.self_signed(&key).map_err(bad)?;
        Ok::<_, SecurityError>(Identity { chain: vec![certificate.der().clone()], key: private(&key) })
    };
    make().unwrap()
}

/// An authority, and a certificate for `names` that it issued: the identity's chain has both, the
/// authority last. For tests and for private networks that trust the authority.
///
/// # Errors
/// As [`try_self_signed`].
pub fn certificate_authority(names: &[&str], wall: WallTime, seed: [u8; 32]) -> Result<Identity, SecurityError> {
    let mut other = seed;
    if let Some(first) = other.first_mut() {
        *first ^= 0x80;
    }
    let (authority_key, key) = (ed25519(seed)?, ed25519(other)?);
    let mut params = end_entity(&[], wall, &authority_key)?;
    params.distinguished_name = subject("neater authority", &authority_key);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages.clear();
    let authority = params.self_signed(&authority_key).map_err(bad)?;
    let issuer = Issuer::new(params, authority_key);
    let certificate = end_entity(names, wall, &key)?.signed_by(&key, &issuer).map_err(bad)?;
    Ok(Identity { chain: vec![certificate.der().clone(), authority.der().clone()], key: private(&key) })
}

fn bad(e: rcgen::Error) -> SecurityError {
    SecurityError::BadCertificate(e.to_string().into())
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

/// A subject that no other key has. Issuers are looked up by subject: were they alike, an unknown
/// certificate would look like a forged one.
fn subject(kind: &str, key: &KeyPair) -> DistinguishedName {
    let hash = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    let short: String = hash.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let mut dn = DistinguishedName::new();
    dn.push(DnType::CommonName, format!("{kind} {short}"));
    dn
}

fn end_entity(names: &[&str], wall: WallTime, key: &KeyPair) -> Result<CertificateParams, SecurityError> {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(bad)?;
    let now = wall.0.min(LATEST);
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BACKDATED);
    params.not_after = date_time_ymd(1970, 1, 1) + (now + VALID);
    params.distinguished_name = subject("neater self-signed", key);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// The key of a seed: RFC 8410 section 7's PKCS#8 wrapping of RFC 8032's 32 private bytes.
fn ed25519(seed: [u8; 32]) -> Result<KeyPair, SecurityError> {
    const PREFIX: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let pkcs8 = [&PREFIX[..], &seed].concat();
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ED25519).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: WallTime = WallTime(Duration::from_secs(1_700_000_000));

    #[test]
    fn a_certificate_follows_from_its_arguments() {
        let make = |seed| self_signed(&["example.com", "192.0.2.1"], WALL, [seed; 32]);
        assert_eq!(make(1).chain, make(1).chain);
        assert_eq!(make(1).key, make(1).key);
        assert_ne!(make(1).chain, make(2).chain);
        assert_eq!(certificate_authority(&["a"], WALL, [1; 32]).unwrap().chain.len(), 2);
    }

    #[test]
    fn a_name_that_is_not_ascii_is_an_error() {
        assert!(matches!(try_self_signed(&["bücher.example"], WALL, [1; 32]), Err(SecurityError::BadCertificate(_))));
    }

    #[test]
    fn any_time_makes_a_certificate() {
        for wall in [Duration::ZERO, Duration::MAX] {
            assert!(try_self_signed(&["a.example"], WallTime(wall), [1; 32]).is_ok());
        }
    }
}
