//! Security parameters (RFC 9622 section 6.3).

use crate::border::{
    Failure, bytes, check_out, give_back, guard, guard_number, object, object_mut, optional_text, put, put_text, text,
    within,
};
use crate::status::neater_status;
use core::time::Duration;
use neater::tls::rustls::{CipherSuite, NamedGroup, SignatureScheme};
use neater::tls::{
    CertificateDer, ClientAuthentication, Crypto, Identity, Pin, PreSharedKey, TlsVersion, Trust,
    certificates_from_pem, certificates_to_pem, identity_from_pem,
};
use neater::{Protection, SecurityParameters};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// What is asked of security (`SecurityParameters` of RFC 9622): a plain value without a context.
#[derive(Clone)]
pub struct neater_security_parameters {
    pub(crate) inner: SecurityParameters,
}

impl core::fmt::Debug for neater_security_parameters {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("neater_security_parameters")
    }
}

/// A certificate in DER, as a callback sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_certificate {
    /// Its bytes.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
}

impl neater_certificate {
    /// A chain as C sees it.
    pub(crate) fn list(chain: &[CertificateDer<'_>]) -> Vec<Self> {
        chain.iter().map(|c| Self { data: c.as_ptr().cast(), length: c.len() }).collect()
    }
}

/// Asked during the handshake whether the peer is trusted (`SetTrustVerificationCallback`): its
/// chain, end entity first, and the name of the server, which is empty for clients. False ends the
/// handshake.
///
/// It is called while the engine is at work, from any thread that drives: it must not wait, and
/// functions of contexts, and of what was made from them, answer NEATER_ERROR_REENTRANT there. What
/// it is given lives until it returns.
pub type neater_trust_fn = Option<
    unsafe extern "C" fn(
        chain: *const neater_certificate,
        certificates: usize,
        server_name: *const c_char,
        user: *mut c_void,
    ) -> bool,
>;

/// What the program gave for its callback.
#[derive(Clone, Copy)]
pub(crate) struct User(*mut c_void);

// SAFETY: the library hands it back and never looks behind it; the manual states that callbacks
// come from any thread that drives.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    pub(crate) const fn new(p: *mut c_void) -> Self {
        Self(p)
    }

    pub(crate) const fn get(self) -> *mut c_void {
        self.0
    }
}

/// # Safety
/// `out` is NULL or may be written to.
unsafe fn give(out: *mut *mut neater_security_parameters, inner: SecurityParameters) -> neater_status {
    guard(|| {
        check_out(out, "security")?;
        // SAFETY: the caller's promise.
        unsafe { put(out, Box::into_raw(Box::new(neater_security_parameters { inner })), "security") }
    })
}

/// Makes the default (`NewSecurityParameters`), into `*security`: encrypted with TLS 1.2 or better,
/// and the peer authenticated by the system's authorities.
///
/// Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_new(
    security: *mut *mut neater_security_parameters,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { give(security, SecurityParameters::new()) }
}

/// Makes parameters without any security (`NewDisabledSecurityParameters`), into `*security`:
/// connections are in the clear.
///
/// Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_new_disabled(
    security: *mut *mut neater_security_parameters,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { give(security, SecurityParameters::disabled()) }
}

/// Makes parameters with which security is tried and not insisted on
/// (`NewOpportunisticSecurityParameters`), into `*security`.
///
/// Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_new_opportunistic(
    security: *mut *mut neater_security_parameters,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { give(security, SecurityParameters::opportunistic()) }
}

/// Makes parameters for trying things out, into `*security`: a server shows a certificate of its
/// own making for `names` (DNS names or addresses, separated by commas), and clients with the same
/// parameters trust it alone. It is valid for a year.
///
/// Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_new_self_signed(
    names: *const c_char,
    security: *mut *mut neater_security_parameters,
) -> neater_status {
    guard(|| {
        check_out(security, "security")?;
        // SAFETY: the caller's promise.
        let names = unsafe { text(names, "names") }?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let inner = neater::self_signed(&names).map_err(|e| refused(&e))?;
        // SAFETY: the caller's promise.
        unsafe { put(security, Box::into_raw(Box::new(neater_security_parameters { inner })), "security") }
    })
}

/// Copies parameters, into `*copy`.
///
/// Ownership: the copy is the caller's, to be given back by `neater_security_parameters_free`.
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_clone(
    security: *const neater_security_parameters,
    copy: *mut *mut neater_security_parameters,
) -> neater_status {
    guard(|| {
        check_out(copy, "copy")?;
        // SAFETY: the caller's promise.
        let security = unsafe { object(security, "security") }?;
        // SAFETY: the caller's promise.
        unsafe { put(copy, Box::into_raw(Box::new(security.clone())), "copy") }
    })
}

/// Gives parameters back. NULL is allowed. What was made with them is not affected.
///
/// Ownership: they are gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_free(security: *mut neater_security_parameters) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(security) };
}

fn refused(e: &dyn core::fmt::Display) -> Failure {
    Failure::new(neater_status::NEATER_ERROR_SECURITY, e.to_string())
}

/// # Safety
/// As all functions of the border.
unsafe fn change(
    security: *mut neater_security_parameters,
    f: impl FnOnce(&mut SecurityParameters) -> Result<(), Failure>,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        f(&mut unsafe { object_mut(security, "security") }?.inner)
    })
}

/// # Safety
/// As [`text`].
unsafe fn identity(chain_pem: *const c_char, key_pem: *const c_char) -> Result<Identity, Failure> {
    // SAFETY: the caller's promise.
    let (chain, key) = unsafe { (text(chain_pem, "chain_pem")?, optional_text(key_pem, "key_pem")?) };
    match key {
        Some(key) => identity_from_pem(chain.as_bytes(), key.as_bytes()).map_err(|e| refused(&e)),
        None => {
            let chain = certificates_from_pem(chain.as_bytes()).map_err(|e| refused(&e))?;
            Ok(Identity::with_key_elsewhere(chain))
        }
    }
}

/// Adds a certificate to show as a server (`serverCertificate`): a chain, end entity first, and its
/// private key, both as PEM text (RFC 7468). Of several, the client's name and abilities decide.
/// NULL as key: it is elsewhere, and the callback for challenges signs
/// (`neater_security_parameters_set_challenge_callback`).
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_add_server_certificate(
    security: *mut neater_security_parameters,
    chain_pem: *const c_char,
    key_pem: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            s.server_certificates.push(identity(chain_pem, key_pem)?);
            Ok(())
        })
    }
}

/// Adds a certificate to show as a client if the server asks (`clientCertificate`), as the function
/// for servers does.
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_add_client_certificate(
    security: *mut neater_security_parameters,
    chain_pem: *const c_char,
    key_pem: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            s.client_certificates.push(identity(chain_pem, key_pem)?);
            Ok(())
        })
    }
}

/// The certificates that are trusted, or shown as a server, as PEM text with a zero byte behind it,
/// as far as it fits into `room` bytes: for the clients of a server with a certificate of its own
/// making. Returns how long all of it is, or a negative status.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_get_certificate(
    security: *const neater_security_parameters,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let security = unsafe { object(security, "security") }?;
        let chain = security.inner.server_certificates.first().ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &certificates_to_pem(&chain.chain)) }
    })
}

/// Trusts authorities: those of this PEM text, and with `system` those of the system, too.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_trusted(
    security: *mut neater_security_parameters,
    authorities_pem: *const c_char,
    system: bool,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            let pem = text(authorities_pem, "authorities_pem")?;
            let authorities = certificates_from_pem(pem.as_bytes()).map_err(|e| refused(&e))?;
            s.trust = if system { Trust::SystemAnd(authorities) } else { Trust::Only(authorities) };
            Ok(())
        })
    }
}

/// Adds a pin (`pinnedServerCertificate`): the SHA-256 of the server's certificate in DER, 32
/// bytes. The certificate must be one of those pinned, besides being trusted; with `alone`, it need
/// not be trusted otherwise, and names and dates are not looked at.
///
/// Ownership: the bytes are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_add_pin(
    security: *mut neater_security_parameters,
    sha256: *const c_void,
    alone: bool,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            let hash: [u8; 32] = bytes(sha256, 32, "sha256")?.try_into().map_err(|_| Failure::argument("sha256"))?;
            let pin = Pin::Sha256(hash);
            match &mut s.trust {
                Trust::Pinned(pins) if alone => pins.push(pin),
                trust if alone => *trust = Trust::Pinned(vec![pin]),
                _ => s.pinned_server_certificates.push(pin),
            }
            Ok(())
        })
    }
}

/// Sets whether a server asks its clients for a certificate: 0, it does not; 1, it asks and serves
/// those without one, too; 2, those without one are refused.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_client_authentication(
    security: *mut neater_security_parameters,
    mode: u32,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            s.client_authentication = match mode {
                0 => ClientAuthentication::None,
                1 => ClientAuthentication::Optional,
                2 => ClientAuthentication::Required,
                _ => return Err(Failure::argument("mode must be 0, 1 or 2")),
            };
            Ok(())
        })
    }
}

/// Sets a security parameter by its name of RFC 9622 section 6.3 from a text:
///
/// - `allowedSecurityProtocols`: `TLS 1.2`, `TLS 1.3`, or both with a comma between them;
/// - `alpn`: application protocols, preferred first, separated by commas;
/// - `ciphersuite`, `supportedGroup`, `signatureAlgorithm`: names of IANA's registries, preferred
///   first, separated by commas;
/// - `maxCachedSessions`, `cachedSessionLifetimeSeconds`: a number;
/// - `serverName` (ours): the name to ask for and to find in the certificate, instead of the one
///   connected to;
/// - `earlyData` (ours): `true` or `false`, whether data may travel before the handshake is done.
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_text(
    security: *mut neater_security_parameters,
    name: *const c_char,
    value: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            let (name, value) = (text(name, "name")?, text(value, "value")?);
            set(s, name, value)
        })
    }
}

fn invalid(name: &str, value: &str, expected: &str) -> Failure {
    let short: String = value.chars().filter(|c| !c.is_control()).take(48).collect();
    Failure::new(neater_status::NEATER_ERROR_INVALID_VALUE, format!("{name} takes {expected}, not '{short}'"))
}

/// A name of IANA's as rustls has it, and the other way round: rustls marks suites of TLS 1.3.
fn same_name(known: Option<&str>, given: &str) -> bool {
    let bare = |n: &str| n.replace("TLS13_", "TLS_").to_ascii_uppercase();
    known.is_some_and(|k| bare(k) == bare(given))
}

fn set(s: &mut SecurityParameters, name: &str, value: &str) -> Result<(), Failure> {
    const SCHEMES: [SignatureScheme; 10] = [
        SignatureScheme::ECDSA_NISTP256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        SignatureScheme::ECDSA_NISTP521_SHA512,
        SignatureScheme::ED25519,
        SignatureScheme::RSA_PSS_SHA256,
        SignatureScheme::RSA_PSS_SHA384,
        SignatureScheme::RSA_PSS_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
    ];
    let is = |n: &str| n.eq_ignore_ascii_case(name);
    let items: Vec<&str> = value.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
    let number = || value.trim().parse::<u32>().map_err(|_| invalid(name, value, "a number"));
    if is("allowedSecurityProtocols") {
        let version = |t: &&str| match t.to_ascii_lowercase().replace([' ', '-', '_'], "").as_str() {
            "tls1.2" | "tls12" => Some(TlsVersion::Tls12),
            "tls1.3" | "tls13" => Some(TlsVersion::Tls13),
            _ => None,
        };
        let versions: Option<Vec<TlsVersion>> = items.iter().map(version).collect();
        let versions = versions.unwrap_or_default();
        let (Some(min), Some(max)) = (versions.iter().min(), versions.iter().max()) else {
            return Err(invalid(name, value, "TLS 1.2 and TLS 1.3"));
        };
        (s.min_version, s.max_version) = (*min, *max);
    } else if is("alpn") {
        s.alpn = items.iter().map(|t| t.as_bytes().to_vec()).collect();
    } else if is("ciphersuite") {
        let known = Crypto::system().provider.cipher_suites.clone();
        let find = |t: &&str| known.iter().map(|k| k.suite()).find(|k: &CipherSuite| same_name(k.as_str(), t));
        let found: Option<Vec<_>> = items.iter().map(find).collect();
        s.ciphersuites = found.ok_or_else(|| invalid(name, value, "names of cipher suites that this library has"))?;
    } else if is("supportedGroup") {
        let known = Crypto::system().provider.kx_groups.clone();
        let find = |t: &&str| known.iter().map(|k| k.name()).find(|k: &NamedGroup| same_name(k.as_str(), t));
        let found: Option<Vec<_>> = items.iter().map(find).collect();
        s.supported_groups = found.ok_or_else(|| invalid(name, value, "names of groups that this library has"))?;
    } else if is("signatureAlgorithm") {
        let find = |t: &&str| SCHEMES.into_iter().find(|k| same_name(k.as_str(), t));
        let found: Option<Vec<_>> = items.iter().map(find).collect();
        s.signature_algorithms = found.ok_or_else(|| invalid(name, value, "names of signature schemes of TLS 1.3"))?;
    } else if is("maxCachedSessions") {
        s.max_cached_sessions = Some(number()? as usize);
    } else if is("cachedSessionLifetimeSeconds") {
        s.cached_session_lifetime = Some(Duration::from_secs(number()?.into()));
    } else if is("serverName") {
        s.server_name = (!value.is_empty()).then(|| value.to_owned());
    } else if is("earlyData") {
        s.early_data = value.trim().parse().map_err(|_| invalid(name, value, "true or false"))?;
    } else {
        return Err(crate::values::unknown(name));
    }
    Ok(())
}

/// Sets a key agreed upon beforehand (`preSharedKey`) and its name. The TLS of this library has no
/// external pre-shared keys: every use of the parameters fails then with
/// NEATER_ERROR_INVALID_CONFIGURATION, so that the key cannot be mistaken for protection.
///
/// Ownership: both are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_pre_shared_key(
    security: *mut neater_security_parameters,
    key: *const c_void,
    key_length: usize,
    identity: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            let (key, identity) = (bytes(key, key_length, "key")?, text(identity, "identity")?);
            s.pre_shared_key = Some(PreSharedKey { key: key.to_vec(), identity: identity.as_bytes().to_vec() });
            Ok(())
        })
    }
}

/// Has the program judge the peer's certificates, after every other check; with `alone` nothing
/// else is looked at. NULL takes the callback away.
///
/// Lifetime: `user` must live as long as any object that was made with the parameters. Thread: one
/// at a time for an object; the callback comes from any thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_set_trust_callback(
    security: *mut neater_security_parameters,
    callback: neater_trust_fn,
    user: *mut c_void,
    alone: bool,
) -> neater_status {
    let user = User::new(user);
    // SAFETY: the caller's promise.
    unsafe {
        change(security, |s| {
            s.trust_verification = callback.map(|callback| {
                let judge: neater::tls::TrustVerification =
                    Arc::new(move |chain: &[CertificateDer<'_>], name: &str| {
                        let list = neater_certificate::list(chain);
                        let name = CString::new(name).unwrap_or_default();
                        within(|| callback(list.as_ptr(), list.len(), name.as_ptr(), user.get()))
                    });
                judge
            });
            if alone && s.trust_verification.is_some() {
                s.trust = Trust::Callback;
            } else if s.trust_verification.is_none() && matches!(s.trust, Trust::Callback) {
                s.trust = Trust::System;
            }
            Ok(())
        })
    }
}

/// Whether security is required (0), tried (1) or off (2). Negative: an error.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_security_parameters_protection(security: *const neater_security_parameters) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let security = unsafe { object(security, "security") }?;
        Ok(match security.inner.protection {
            Protection::Required => 0,
            Protection::Opportunistic => 1,
            Protection::Disabled => 2,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_their_names() {
        let mut s = SecurityParameters::new();
        let mut ok = |name, value| set(&mut s, name, value).is_ok();
        assert!(ok("allowedSecurityProtocols", "TLS 1.3"));
        assert!(ok("alpn", "h2, http/1.1"));
        assert!(ok("ciphersuite", "TLS_AES_128_GCM_SHA256"));
        assert!(ok("supportedGroup", "x25519"));
        assert!(ok("signatureAlgorithm", "ED25519"));
        assert!(ok("maxCachedSessions", "3"));
        assert!(ok("earlyData", "false"));
        for (name, value) in [
            ("allowedSecurityProtocols", "TLS 1.1"),
            ("ciphersuite", "TLS_NULL_WITH_NULL_NULL"),
            ("maxCachedSessions", "-1"),
            ("preSharedKey", "x"),
        ] {
            assert!(!ok(name, value), "{name} {value}");
        }
        assert_eq!((s.min_version, s.ciphersuites.len(), s.alpn.len()), (TlsVersion::Tls13, 1, 2));
        assert_eq!((s.max_cached_sessions, s.early_data), (Some(3), false));
    }
}
