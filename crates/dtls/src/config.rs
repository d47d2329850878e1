//! From security parameters to what sessions are made of.

use crate::crypto;
use core::fmt;
use core::time::Duration;
use dimpl::Config;
use dimpl::crypto::{Dtls12CipherSuite, Dtls13CipherSuite};
use neater_base::Rng;
use neater_tls::{ClientAuthentication, Clock, Crypto, Parts, SecurityError, SecurityParameters};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, SignatureScheme};
use std::sync::Arc;

/// How handshakes behave on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The largest datagram of a handshake, in bytes of UDP payload; at least 256. Larger messages
    /// are fragmented (RFC 6347 section 4.2.3). Datagrams with messages are as large as the
    /// messages make them. Default: 1,200, which every path for QUIC has to carry (RFC 9000 section
    /// 14).
    pub mtu: u16,
    /// After how long a flight is sent again for the first time; then after twice as long, each
    /// time give or take a quarter. Default: one second (RFC 6347 section 4.2.4.1, RFC 9147 section
    /// 5.8.2).
    pub first_timeout: Duration,
    /// How often a flight is sent again at most. Default: 6.
    pub retries: usize,
    /// How long a handshake may take in all, from the first ClientHello. Default: 30 seconds.
    pub handshake_timeout: Duration,
}

/// The smallest MTU that handshakes are made for: below it the retry of a server would have to be
/// fragmented.
const MIN_MTU: u16 = 256;

impl Default for Tuning {
    fn default() -> Self {
        Self {
            mtu: 1200,
            first_timeout: Duration::from_secs(1),
            retries: 6,
            handshake_timeout: Duration::from_secs(30),
        }
    }
}

/// What dimpl's configurations are made of.
#[derive(Clone)]
struct Recipe {
    provider: Arc<CryptoProvider>,
    tuning: Tuning,
    suites12: Vec<Dtls12CipherSuite>,
    suites13: Vec<Dtls13CipherSuite>,
    ask_client: bool,
}

/// What clients and servers have in common.
#[derive(Clone)]
pub(crate) struct Common {
    recipe: Recipe,
    /// The configuration that sessions share; where they need a seed each, it only shows that one
    /// can be made.
    shared: Arc<Config>,
    repeatable: bool,
    pub(crate) identity: Option<Arc<CertifiedKey>>,
    pub(crate) schemes: Arc<[SignatureScheme]>,
    pub(crate) clock: Arc<Clock>,
}

/// Both versions of the suites, by the names that rustls has for them.
const SUITES: [(CipherSuite, Option<Dtls12CipherSuite>, Option<Dtls13CipherSuite>); 6] = {
    use {CipherSuite as C, Dtls12CipherSuite as Old, Dtls13CipherSuite as New};
    [
        (C::TLS13_AES_256_GCM_SHA384, None, Some(New::AES_256_GCM_SHA384)),
        (C::TLS13_AES_128_GCM_SHA256, None, Some(New::AES_128_GCM_SHA256)),
        (C::TLS13_CHACHA20_POLY1305_SHA256, None, Some(New::CHACHA20_POLY1305_SHA256)),
        (C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, Some(Old::ECDHE_ECDSA_AES256_GCM_SHA384), None),
        (C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, Some(Old::ECDHE_ECDSA_AES128_GCM_SHA256), None),
        (C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, Some(Old::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256), None),
    ]
};

impl Recipe {
    fn cook(&self, seed: Option<u64>) -> Result<Arc<Config>, dimpl::Error> {
        let mut builder = Config::builder()
            .with_crypto_provider(crypto::provider(&self.provider))
            .mtu(self.tuning.mtu.into())
            .max_queue_rx(64)
            .max_queue_tx(32)
            .require_client_certificate(self.ask_client)
            .use_server_cookie(true)
            .flight_start_rto(self.tuning.first_timeout)
            .flight_retries(self.tuning.retries)
            .handshake_timeout(self.tuning.handshake_timeout)
            .dtls12_cipher_suites(&self.suites12)
            .dtls13_cipher_suites(&self.suites13)
            // Nothing here is SRTP, and servers refuse clients that offer it alone (RFC 5764
            // section 4.1).
            .srtp_profiles(&[]);
        if let Some(seed) = seed {
            builder = builder.dangerously_set_rng_seed(seed);
        }
        builder.build().map(Arc::new)
    }
}

impl Common {
    fn new(
        parts: Parts,
        parameters: &SecurityParameters,
        crypto: &Crypto,
        tuning: Tuning,
        ask_client: bool,
    ) -> Result<Self, SecurityError> {
        if !parameters.alpn.is_empty() {
            return Err(SecurityError::Unsupported("alpn (over DTLS)"));
        }
        let allowed = |c: CipherSuite| parts.provider.cipher_suites.iter().any(|s| s.suite() == c);
        let suites = || SUITES.into_iter().filter(|(c, ..)| allowed(*c));
        let suites12: Vec<_> = suites().filter_map(|s| s.1).filter(|_| parts.version12).collect();
        let suites13: Vec<_> = suites().filter_map(|s| s.2).filter(|_| parts.version13).collect();
        if suites12.is_empty() && suites13.is_empty() {
            return Err(SecurityError::NothingLeft("ciphersuites"));
        }
        let usable = parts.identities.iter().find(|k| crypto::is_usable(k)).cloned();
        if usable.is_none() && !parts.identities.is_empty() {
            let why = "DTLS signs with ECDSA on P-256 or P-384 only, and no certificate is for such a key";
            return Err(SecurityError::BadKey(why.into()));
        }
        let tuning = Tuning { mtu: tuning.mtu.max(MIN_MTU), ..tuning };
        let recipe = Recipe { provider: parts.provider, tuning, suites12, suites13, ask_client };
        Ok(Self {
            shared: recipe.cook(None).map_err(|e| SecurityError::Other(e.to_string().into()))?,
            recipe,
            repeatable: crypto.repeatable,
            identity: usable,
            schemes: parameters.signature_algorithms.as_slice().into(),
            clock: crypto.clock.clone(),
        })
    }

    /// dimpl's configuration for one more session. It takes a seed with it, so that where all is to
    /// follow from one, each session must have its own: at the price of dimpl's self-test every
    /// time, some milliseconds.
    pub(crate) fn for_session(&self, rng: &mut Rng) -> Arc<Config> {
        if !self.repeatable {
            return self.shared.clone();
        }
        self.recipe.cook(Some(rng.u64())).unwrap_or_else(|_| self.shared.clone())
    }

    /// Which versions may be spoken: 1.2, 1.3.
    pub(crate) fn versions(&self) -> (bool, bool) {
        (!self.recipe.suites12.is_empty(), !self.recipe.suites13.is_empty())
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common")
            .field("tuning", &self.recipe.tuning)
            .field("suites12", &self.recipe.suites12)
            .field("suites13", &self.recipe.suites13)
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// What clients are made of: one per set of parameters, for any number of sessions. Making it takes
/// some milliseconds.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) common: Common,
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
}

impl ClientConfig {
    /// From the same parameters as for TLS: trust, pins, callbacks, versions, suites, groups and
    /// signature algorithms mean the same. A client certificate must be for an ECDSA key on P-256
    /// or P-384; the order of suites is dimpl's.
    ///
    /// # Errors
    /// What is wrong with the parameters; [`SecurityError::Unsupported`] for `alpn`, which dimpl
    /// does not have.
    pub fn new(parameters: &SecurityParameters, crypto: &Crypto, tuning: Tuning) -> Result<Self, SecurityError> {
        let (parts, verifier) = neater_tls::client_parts(parameters, crypto)?;
        Ok(Self { common: Common::new(parts, parameters, crypto, tuning, false)?, verifier })
    }
}

/// What servers are made of: one per listener. Making it takes some milliseconds.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) common: Common,
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl ServerConfig {
    /// From the same parameters as for TLS. The first certificate with an ECDSA key on P-256 or
    /// P-384 is shown, alone: dimpl sends no chain, so clients must trust its issuer, or itself,
    /// directly.
    ///
    /// # Errors
    /// What is wrong with the parameters; [`SecurityError::Unsupported`] for `alpn`, and for asking
    /// clients for a certificate without insisting on one, neither of which dimpl has.
    pub fn new(parameters: &SecurityParameters, crypto: &Crypto, tuning: Tuning) -> Result<Self, SecurityError> {
        if parameters.client_authentication == ClientAuthentication::Optional {
            return Err(SecurityError::Unsupported("optional client certificates (over DTLS)"));
        }
        let (parts, verifier) = neater_tls::server_parts(parameters, crypto)?;
        let ask = verifier.is_some();
        Ok(Self { common: Common::new(parts, parameters, crypto, tuning, ask)?, verifier })
    }
}
