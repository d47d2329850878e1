//! An application's security parameters: RFC 9622 section 6.3.

use crate::challenge::IdentityChallenge;
use crate::config::{finish, hash_authentication, list};
use crate::error::SecurityError;
use crate::identity::Identity;
use core::fmt;
use core::time::Duration;
use ring::digest::{Context, SHA256};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, KeyLog, NamedGroup, SignatureScheme};
use std::sync::Arc;

/// A version of TLS. Older ones are not implemented; QUIC uses 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with ephemeral keys and authenticated encryption only.
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// How much security there must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Connections are encrypted and the peer is authenticated, or they fail.
    #[default]
    Required,
    /// Connections are encrypted without authentication if the peer can, and in the clear if not.
    Opportunistic,
    /// Connections are in the clear.
    Disabled,
}

/// A certificate that is recognised by itself. Only the peer's own (end-entity) certificate is
/// compared, since a server may show different paths to the same certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The SHA-256 of the certificate in DER.
    Sha256([u8; 32]),
    /// The first certificate of this chain; an empty chain matches nothing.
    Chain(Vec<CertificateDer<'static>>),
}

impl Pin {
    /// The pin of a certificate by its hash.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self::Sha256(sha256(certificate))
    }

    pub(crate) fn matches(&self, end_entity: &CertificateDer<'_>) -> bool {
        match self {
            Self::Sha256(hash) => *hash == sha256(end_entity),
            Self::Chain(chain) => chain.first().is_some_and(|c| c.as_ref() == end_entity.as_ref()),
        }
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// On what grounds the peer's certificate is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// An authority of this system issued it.
    #[default]
    System,
    /// One of these authorities issued it. A self-signed certificate is its own authority, even if
    /// it is marked as one; its names and dates are looked at.
    Only(Vec<CertificateDer<'static>>),
    /// An authority of this system or one of these issued it.
    SystemAnd(Vec<CertificateDer<'static>>),
    /// It is one of these. Its issuer, names and dates are not looked at: the pin is stronger
    /// evidence.
    Pinned(Vec<Pin>),
    /// The trust verification callback accepts it; nothing else is looked at.
    Callback,
}

/// Whether a server asks its clients for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientAuthentication {
    /// It does not ask.
    #[default]
    None,
    /// It asks, and serves clients without one too. A certificate that is shown must be good.
    Optional,
    /// Clients without a good certificate are refused.
    Required,
}

/// Asked during the handshake about the peer's chain (end entity first) and the server's name
/// (empty for clients); false ends the handshake. RFC 9622 section 6.3.8,
/// `SetTrustVerificationCallback`.
///
/// It is the last word, not the first: unless trust is [`Trust::Callback`], it is asked only about
/// chains that have passed every other check. It is called while the engine is at work, so it must
/// neither block nor call back into it, which is a panic. It is not asked again when a session is
/// resumed. A panic in it is a no.
pub type TrustVerification = Arc<dyn Fn(&[CertificateDer<'_>], &str) -> bool + Send + Sync>;

/// Called with the peer's chain (end entity first) and the server's name (empty for clients) when
/// that chain is refused, for whatever reason: for a message that names the certificate, as no
/// error carries it.
///
/// Nothing can be allowed by it. It is called while the engine is at work, so it must neither block
/// nor call back into it, which is a panic. A panic in it changes nothing.
pub type CertificateObserver = Arc<dyn Fn(&[CertificateDer<'_>], &str) + Send + Sync>;

/// A key agreed upon beforehand (RFC 9622 section 6.3.7).
#[derive(Clone, PartialEq, Eq)]
pub struct PreSharedKey {
    /// The key.
    pub key: Vec<u8>,
    /// Its name.
    pub identity: Vec<u8>,
}

impl fmt::Debug for PreSharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreSharedKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What setting a parameter does in this implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// As in the RFC.
    Full,
    /// Less than that; the text names what is missing.
    Partial(&'static str),
    /// Nothing is implemented; setting it makes every configuration fail, so that it cannot be
    /// mistaken for protection.
    Refused(&'static str),
    /// There is no such parameter.
    Unknown,
}

/// The security parameters of connections (RFC 9622 section 6.3). The defaults are safe; a client
/// needs to set nothing, a server only its certificate.
#[derive(Clone)]
#[non_exhaustive]
pub struct SecurityParameters {
    /// How much security there must be.
    pub protection: Protection,
    /// `allowedSecurityProtocols`: the lowest TLS version. Default: 1.2.
    pub min_version: TlsVersion,
    /// `allowedSecurityProtocols`: the highest TLS version. Default: 1.3.
    pub max_version: TlsVersion,
    /// On what grounds the peer's certificate is believed. Default: an authority of this system
    /// issued it.
    pub trust: Trust,
    /// `pinnedServerCertificate`: if not empty, the server's certificate must be one of these
    /// *besides* being trusted.
    pub pinned_server_certificates: Vec<Pin>,
    /// `serverCertificate`: our identities as a server. With several, the client's name and
    /// abilities decide.
    pub server_certificates: Vec<Identity>,
    /// `clientCertificate`: our identities as a client, if the server asks. Never used as a server.
    pub client_certificates: Vec<Identity>,
    /// Whether we, as a server, ask clients for a certificate. It is judged by `trust`, which must
    /// name authorities of our own.
    pub client_authentication: ClientAuthentication,
    /// `alpn`: application protocols, preferred first. Empty: what the protocol stack suggests.
    pub alpn: Vec<Vec<u8>>,
    /// `ciphersuite`: allowed cipher suites, preferred first. Empty: all safe ones.
    pub ciphersuites: Vec<CipherSuite>,
    /// `supportedGroup`: allowed key exchange groups, preferred first. Empty: all safe ones.
    pub supported_groups: Vec<NamedGroup>,
    /// `signatureAlgorithm`: allowed signature algorithms of handshakes. Empty: all safe ones.
    pub signature_algorithms: Vec<SignatureScheme>,
    /// `maxCachedSessions`: how many sessions are kept for resumption, 0 for none. Default: what
    /// the store allows.
    pub max_cached_sessions: Option<usize>,
    /// `cachedSessionLifetimeSeconds`: for how long. Default: what the store allows; at most seven
    /// days.
    pub cached_session_lifetime: Option<Duration>,
    /// `preSharedKey`: refused when set, so that it cannot be mistaken for protection. rustls,
    /// which does TLS and QUIC here, has no external pre-shared keys in its interface (RFC 8446
    /// section 2.2); those that it uses are of sessions.
    pub pre_shared_key: Option<PreSharedKey>,
    /// Whether data may travel before the handshake is done (0-RTT). A client sends some only when
    /// asked to message by message; a server accepts some only of sessions it has kept and takes
    /// each once, so that a replay to it fails. Default: true; but a listener must ask for it
    /// besides, by preferring or requiring `zeroRttMsg`, and a client that avoids or prohibits that
    /// property sends none.
    pub early_data: bool,
    /// Where session keys are written for debugging, in the format of NSS. A reader of them can
    /// decrypt everything.
    pub key_log: Option<Arc<dyn KeyLog>>,
    /// The application's own judgement of the peer's chain.
    pub trust_verification: Option<TrustVerification>,
    /// Called with chains that are refused.
    pub refused_certificate: Option<CertificateObserver>,
    /// The application's approval of every signature of ours, and its own signatures where a key is
    /// not in memory.
    pub identity_challenge: Option<IdentityChallenge>,
    /// The name to ask for and to find in the certificate, instead of the one connected to.
    pub server_name: Option<String>,
}

impl Default for SecurityParameters {
    fn default() -> Self {
        Self::new()
    }
}

impl SecurityParameters {
    /// `NewSecurityParameters`: encrypted and authenticated, TLS 1.3 or 1.2, trusting the system's
    /// authorities.
    #[must_use]
    pub fn new() -> Self {
        Self {
            protection: Protection::Required,
            min_version: TlsVersion::Tls12,
            max_version: TlsVersion::Tls13,
            trust: Trust::System,
            pinned_server_certificates: Vec::new(),
            server_certificates: Vec::new(),
            client_certificates: Vec::new(),
            client_authentication: ClientAuthentication::None,
            alpn: Vec::new(),
            ciphersuites: Vec::new(),
            supported_groups: Vec::new(),
            signature_algorithms: Vec::new(),
            max_cached_sessions: None,
            cached_session_lifetime: None,
            pre_shared_key: None,
            early_data: true,
            key_log: None,
            trust_verification: None,
            refused_certificate: None,
            identity_challenge: None,
            server_name: None,
        }
    }

    /// `NewDisabledSecurityParameters`: no transport security is attempted.
    #[must_use]
    pub fn disabled() -> Self {
        Self { protection: Protection::Disabled, ..Self::new() }
    }

    /// `NewOpportunisticSecurityParameters`: connections without security are allowed, but
    /// unauthenticated security is attempted if available. Pins and the verification callback still
    /// count where there is security.
    #[must_use]
    pub fn opportunistic() -> Self {
        Self { protection: Protection::Opportunistic, ..Self::new() }
    }

    /// The application protocols set; empty if the protocol stack is to choose.
    #[must_use]
    pub fn alpn(&self) -> &[Vec<u8>] {
        &self.alpn
    }

    /// The server name set, in place of the one connected to.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// A number that differs where any parameter of the security does (by chance it fails to once
    /// in 2⁶⁴).
    ///
    /// Callbacks count by identity, so it means something only while the parameters live, and in
    /// one process. A key log and an observer of refused certificates do not count: they do not
    /// change the exchange between peers.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut c = Context::new(&SHA256);
        hash_authentication(&mut c, self);
        for identity in &self.server_certificates {
            list(&mut c, identity.chain.iter().map(AsRef::as_ref));
            list(&mut c, [identity.key.secret_der()].into_iter());
        }
        list(&mut c, self.alpn.iter().map(Vec::as_slice));
        c.update(&[self.min_version as u8, self.max_version as u8, self.client_authentication as u8]);
        c.update(&[u8::from(self.early_data)]);
        let numbers = |c: &mut Context, numbers: Vec<u16>| {
            c.update(&(numbers.len() as u64).to_be_bytes());
            numbers.iter().for_each(|n| c.update(&n.to_be_bytes()));
        };
        numbers(&mut c, self.ciphersuites.iter().copied().map(u16::from).collect());
        numbers(&mut c, self.supported_groups.iter().copied().map(u16::from).collect());
        let number = |n: Option<u128>| n.map_or([0xff; 16], u128::to_be_bytes);
        c.update(&number(self.max_cached_sessions.map(|n| n as u128)));
        c.update(&number(self.cached_session_lifetime.map(|d| d.as_nanos())));
        list(
            &mut c,
            self.pre_shared_key.iter().flat_map(|k| [&k.key[..], &k.identity]).collect::<Vec<_>>().into_iter(),
        );
        list(&mut c, self.server_name.iter().map(String::as_bytes).collect::<Vec<_>>().into_iter());
        finish(c).iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// The name to ask for and to verify when `host` is connected to.
    ///
    /// # Errors
    /// [`SecurityError::BadName`] if it is neither a DNS name nor an IP address.
    pub fn name_for(&self, host: &str) -> Result<ServerName<'static>, SecurityError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        // A name that ends in the root label is the same name; certificates never have it.
        let bare = name.strip_suffix('.').unwrap_or(name);
        let bare = bare.strip_prefix('[').and_then(|b| b.strip_suffix(']')).unwrap_or(bare);
        ServerName::try_from(bare).map(|n| n.to_owned()).map_err(|_| {
            let short: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
            SecurityError::BadName(format!("{short:?}").into())
        })
    }

    /// What setting the parameter of this name does. Names are those of RFC 9622, in any case.
    #[must_use]
    pub fn effect(name: &str) -> Effect {
        const FULL: [&str; 11] = [
            "allowedSecurityProtocols",
            "serverCertificate",
            "clientCertificate",
            "pinnedServerCertificate",
            "alpn",
            "ciphersuite",
            "supportedGroup",
            "maxCachedSessions",
            "cachedSessionLifetimeSeconds",
            "trustVerificationCallback",
            "identityChallengeCallback",
        ];
        let is = |n: &str| n.eq_ignore_ascii_case(name);
        if FULL.into_iter().any(is) {
            Effect::Full
        } else if is("signatureAlgorithm") {
            Effect::Partial(
                "handshake signatures of both sides are restricted; signatures inside certificate chains are not",
            )
        } else if is("preSharedKey") {
            Effect::Refused(
                "rustls has no external pre-shared keys: it uses those of sessions only (RFC 8446 section 2.2)",
            )
        } else {
            Effect::Unknown
        }
    }
}

impl fmt::Debug for SecurityParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityParameters")
            .field("protection", &self.protection)
            .field("versions", &(self.min_version, self.max_version))
            .field("pinned_server_certificates", &self.pinned_server_certificates.len())
            .field("server_certificates", &self.server_certificates)
            .field("client_certificates", &self.client_certificates)
            .field("client_authentication", &self.client_authentication)
            .field("alpn", &self.alpn.iter().map(|a| String::from_utf8_lossy(a)).collect::<Vec<_>>())
            .field("early_data", &self.early_data)
            .field("key_log", &self.key_log.is_some())
            .field("trust_verification", &self.trust_verification.is_some())
            .field("refused_certificate", &self.refused_certificate.is_some())
            .field("identity_challenge", &self.identity_challenge.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_implemented_says_so() {
        assert_eq!(SecurityParameters::effect("ALPN"), Effect::Full);
        assert!(matches!(SecurityParameters::effect("preSharedKey"), Effect::Refused(_)));
        assert_eq!(SecurityParameters::effect("identityChallengeCallback"), Effect::Full);
        assert!(matches!(SecurityParameters::effect("signatureAlgorithm"), Effect::Partial(_)));
        assert_eq!(SecurityParameters::effect("colour"), Effect::Unknown);
    }

    #[test]
    fn a_server_name_may_be_a_name_an_address_or_an_override() {
        let mut p = SecurityParameters::new();
        assert_eq!(p.name_for("example.com.").unwrap().to_str(), "example.com");
        assert_eq!(p.name_for("[::1]").unwrap().to_str(), "::1");
        assert_eq!(p.name_for("192.0.2.1").unwrap().to_str(), "192.0.2.1");
        assert!(matches!(p.name_for("a b"), Err(SecurityError::BadName(_))));
        assert!(matches!(p.name_for(""), Err(SecurityError::BadName(_))));
        p.server_name = Some("other.example".into());
        assert_eq!(p.name_for("192.0.2.1").unwrap().to_str(), "other.example");
    }

    #[test]
    fn the_fingerprint_tells_parameters_apart() {
        let base = SecurityParameters::new();
        let changes: [fn(&mut SecurityParameters); 15] = [
            |p| p.protection = Protection::Opportunistic,
            |p| p.min_version = TlsVersion::Tls13,
            |p| p.trust = Trust::Only(Vec::new()),
            |p| p.pinned_server_certificates = vec![Pin::Sha256([1; 32])],
            |p| p.client_authentication = ClientAuthentication::Optional,
            |p| p.alpn = vec![b"h2".to_vec()],
            |p| p.ciphersuites = vec![CipherSuite::TLS13_AES_128_GCM_SHA256],
            |p| p.supported_groups = vec![NamedGroup::X25519],
            |p| p.signature_algorithms = vec![SignatureScheme::ED25519],
            |p| p.max_cached_sessions = Some(3),
            |p| p.cached_session_lifetime = Some(Duration::from_secs(3)),
            |p| p.early_data = false,
            |p| p.trust_verification = Some(Arc::new(|_, _| true)),
            |p| p.identity_challenge = Some(Arc::new(|_| crate::Answer::Sign)),
            |p| p.server_name = Some("a.example".into()),
        ];
        let mut seen = vec![base.fingerprint()];
        for change in changes {
            let mut p = base.clone();
            change(&mut p);
            assert_eq!(p.clone().fingerprint(), p.fingerprint());
            seen.push(p.fingerprint());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), changes.len() + 1);
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let mut p = SecurityParameters::new();
        p.pre_shared_key = Some(PreSharedKey { key: b"topsecret".to_vec(), identity: b"me".to_vec() });
        let text = format!("{p:?} {:?}", p.pre_shared_key);
        assert!(!text.contains("topsecret") && !text.contains("116, 111, 112"), "{text}");
    }
}
