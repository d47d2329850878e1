//! From security parameters to configurations of rustls, for TLS and for QUIC.

use crate::error::SecurityError;
use crate::identity::{ClientIdentities, Identity, ServerIdentities};
use crate::params::{ClientAuthentication, Pin, Protection, SecurityParameters, TlsVersion, Trust};
use crate::provider::Crypto;
use crate::server_sessions::ServerSessions;
use crate::sessions::{Authentication, Digest, MAX_LIFETIME, MAX_SESSIONS, SessionStore};
use crate::ticket::Ticketer;
use crate::verify::{Checks, ClientVerifier, Listed, ServerVerifier};
use ring::digest::{Context, SHA256};
use rustls::client::{Resumption, VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use std::sync::Arc;

/// How much early data a server of TLS over a byte stream takes per connection, in bytes. QUIC
/// bounds it by flow control.
pub const EARLY_DATA_LIMIT: u32 = 16_384;

/// The configuration of clients with these parameters.
///
/// `alpn` is what the protocol stack suggests; names in the parameters replace it. With `for_quic`
/// only TLS 1.3 is spoken. Sessions are resumed from `sessions` (the part of its isolation key).
/// Making a configuration costs some microseconds once the store knows the parameters; a caller
/// that connects often still does well to keep it.
///
/// # Errors
/// What is wrong with the parameters. Nothing was sent.
pub fn client_config(
    parameters: &SecurityParameters,
    crypto: &Crypto,
    alpn: &[&[u8]],
    for_quic: bool,
    sessions: &SessionStore,
) -> Result<Arc<ClientConfig>, SecurityError> {
    let common = Common::new(parameters, crypto, alpn, for_quic)?;
    let key = authentication_digest(parameters, crypto);
    let Authentication { verifier, resolver, .. } = sessions.authentication(key, || {
        let identities = load(&parameters.client_certificates, &common.provider, parameters)?;
        Ok::<_, SecurityError>(Authentication {
            verifier: Arc::new(server_verifier(parameters, crypto, &common.provider)?),
            resolver: Arc::new(ClientIdentities(identities)),
            _held: (crypto.provider.clone(), crypto.roots.clone()),
        })
    })?;
    let scoped = sessions.scoped(
        context_digest(&key, &common, for_quic),
        parameters.max_cached_sessions,
        parameters.cached_session_lifetime,
    );
    let mut config = ClientConfig::builder_with_details(common.provider, crypto.clock.clone())
        .with_protocol_versions(&common.versions)
        .map_err(other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = common.alpn;
    config.enable_early_data = parameters.early_data;
    config.resumption = match parameters.max_cached_sessions {
        Some(0) => Resumption::disabled(),
        _ => Resumption::store(Arc::new(scoped)),
    };
    if let Some(log) = parameters.key_log.as_ref().or(crypto.key_log.as_ref()) {
        config.key_log = log.clone();
    }
    Ok(Arc::new(config))
}

/// The same configuration with sessions of its own, of which at most `max` are kept for `lifetime`
/// (as in the parameters that the configuration was made from). No other configuration may have the
/// isolation key of `sessions`: other differences are not compared. It costs a copy, and none of
/// the work that making a configuration is.
#[must_use]
pub fn with_sessions(
    config: &ClientConfig,
    (max, lifetime): (Option<usize>, Option<core::time::Duration>),
    for_quic: bool,
    sessions: &SessionStore,
) -> Arc<ClientConfig> {
    let mut own = config.clone();
    own.resumption = match max {
        Some(0) => Resumption::disabled(),
        _ => Resumption::store(Arc::new(sessions.scoped([u8::from(for_quic); 32], max, lifetime))),
    };
    Arc::new(own)
}

/// The configuration of a server with these parameters: one per listener, shared by its
/// connections.
///
/// `alpn` and `for_quic` as for [`client_config`]. Sessions are kept in the configuration where
/// early data is accepted, and otherwise in tickets that the clients keep. Where early data is
/// accepted it may also be answered before the client has finished its handshake (RFC 8446 section
/// 2.3), unless clients must show a certificate.
///
/// # Errors
/// What is wrong with the parameters; [`SecurityError::NoServerCertificate`] if there is none.
pub fn server_config(
    parameters: &SecurityParameters,
    crypto: &Crypto,
    alpn: &[&[u8]],
    for_quic: bool,
) -> Result<Arc<ServerConfig>, SecurityError> {
    let common = Common::new(parameters, crypto, alpn, for_quic)?;
    if parameters.server_certificates.is_empty() {
        return Err(SecurityError::NoServerCertificate);
    }
    let identities = load(&parameters.server_certificates, &common.provider, parameters)?;
    let early_data = parameters.early_data && common.versions.contains(&&TLS13);
    let mut config = ServerConfig::builder_with_details(common.provider.clone(), crypto.clock.clone())
        .with_protocol_versions(&common.versions)
        .map_err(other)?
        .with_client_cert_verifier(client_verifier(parameters, &common.provider)?)
        .with_cert_resolver(Arc::new(ServerIdentities(identities)));
    config.alpn_protocols = common.alpn;
    let lifetime = parameters.cached_session_lifetime.unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME).as_secs();
    match (parameters.max_cached_sessions.unwrap_or(MAX_SESSIONS).min(MAX_SESSIONS), early_data) {
        (0, _) => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        (max, true) => {
            config.session_storage = Arc::new(ServerSessions::new(crypto.clock.clone(), max, lifetime));
            // QUIC has no other value: RFC 9001 section 4.6.1 wants 0xffffffff or nothing.
            config.max_early_data_size = if for_quic { u32::MAX } else { EARLY_DATA_LIMIT };
            config.send_half_rtt_data = true;
        }
        (_, false) => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.ticketer = Arc::new(Ticketer::new(common.provider.secure_random, crypto.clock.clone()));
        }
    }
    if let Some(log) = parameters.key_log.as_ref().or(crypto.key_log.as_ref()) {
        config.key_log = log.clone();
    }
    Ok(Arc::new(config))
}

/// The cipher suite that protects QUIC's Initial packets (RFC 9001 section 5.2), whatever the
/// parameters allow later.
#[must_use]
pub fn quic_initial_suite(crypto: &Crypto) -> Option<rustls::quic::Suite> {
    let suites = crypto.provider.cipher_suites.iter();
    suites
        .filter(|s| s.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(|s| s.tls13().and_then(|s| s.quic_suite()))
}

/// What clients and servers have in common.
pub(crate) struct Common {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    alpn: Vec<Vec<u8>>,
}

impl Common {
    pub(crate) fn new(
        p: &SecurityParameters,
        crypto: &Crypto,
        alpn: &[&[u8]],
        for_quic: bool,
    ) -> Result<Self, SecurityError> {
        if p.protection == Protection::Disabled {
            return Err(SecurityError::Disabled);
        }
        if p.pre_shared_key.is_some() {
            return Err(SecurityError::Unsupported("pre_shared_key"));
        }
        let provider = restricted(p, crypto)?;
        let versions = versions(p, &provider, for_quic)?;
        let alpn: Vec<Vec<u8>> =
            if p.alpn.is_empty() { alpn.iter().map(|a| a.to_vec()).collect() } else { p.alpn.clone() };
        let encoded: usize = alpn.iter().map(|a| a.len() + 1).sum();
        if encoded > usize::from(u16::MAX) || alpn.iter().any(|a| a.is_empty() || a.len() > usize::from(u8::MAX)) {
            return Err(SecurityError::BadAlpn);
        }
        Ok(Self { provider, versions, alpn })
    }
}

fn other(e: rustls::Error) -> SecurityError {
    SecurityError::Other(e.to_string().into())
}

/// Those of `have` that `want` names, in the order of `want`; all if it names none.
fn pick<T: Copy, N: PartialEq>(have: &[T], want: &[N], name: impl Fn(&T) -> N) -> Vec<T> {
    if want.is_empty() {
        return have.to_vec();
    }
    want.iter().filter_map(|w| have.iter().find(|h| name(h) == *w)).copied().collect()
}

fn restricted(p: &SecurityParameters, crypto: &Crypto) -> Result<Arc<CryptoProvider>, SecurityError> {
    let mut checks = Checks::new(&crypto.provider);
    checks.schemes.clone_from(&p.signature_algorithms);
    if checks.supported().is_empty() {
        return Err(SecurityError::NothingLeft("signature_algorithms"));
    }
    if p.ciphersuites.is_empty() && p.supported_groups.is_empty() {
        return Ok(crypto.provider.clone());
    }
    let mut provider = CryptoProvider::clone(&crypto.provider);
    provider.cipher_suites = pick(&provider.cipher_suites, &p.ciphersuites, SupportedCipherSuite::suite);
    provider.kx_groups = pick(&provider.kx_groups, &p.supported_groups, |g| g.name());
    if provider.cipher_suites.is_empty() {
        return Err(SecurityError::NothingLeft("ciphersuites"));
    }
    if provider.kx_groups.is_empty() {
        return Err(SecurityError::NothingLeft("supported_groups"));
    }
    Ok(Arc::new(provider))
}

fn versions(
    p: &SecurityParameters,
    provider: &CryptoProvider,
    for_quic: bool,
) -> Result<Vec<&'static SupportedProtocolVersion>, SecurityError> {
    if p.min_version > p.max_version {
        return Err(SecurityError::VersionRange);
    }
    let allowed = p.min_version..=p.max_version;
    if for_quic && !allowed.contains(&TlsVersion::Tls13) {
        return Err(SecurityError::QuicNeedsTls13);
    }
    let usable = |v: &SupportedProtocolVersion| provider.cipher_suites.iter().any(|s| s.version().version == v.version);
    let mut versions = Vec::with_capacity(2);
    if allowed.contains(&TlsVersion::Tls13) && usable(&TLS13) {
        versions.push(&TLS13);
    }
    if !for_quic && allowed.contains(&TlsVersion::Tls12) && usable(&TLS12) {
        versions.push(&TLS12);
    }
    if versions.is_empty() {
        return Err(SecurityError::NothingLeft("ciphersuites"));
    }
    Ok(versions)
}

pub(crate) fn load(
    identities: &[Identity],
    provider: &CryptoProvider,
    p: &SecurityParameters,
) -> Result<Vec<Arc<CertifiedKey>>, SecurityError> {
    let challenge = p.identity_challenge.as_ref();
    identities.iter().map(|i| i.load(provider, &p.signature_algorithms, challenge)).collect()
}

/// The trust anchors, where trust rests on authorities.
fn anchors(trust: &Trust, crypto: &Crypto) -> Result<Option<Arc<RootCertStore>>, SecurityError> {
    let add = |store: &mut RootCertStore, certificates: &[CertificateDer<'static>]| {
        certificates.iter().enumerate().try_for_each(|(i, c)| {
            store
                .add(c.clone())
                .map_err(|e| SecurityError::BadCertificate(format!("trusted authority number {}: {e}", i + 1).into()))
        })
    };
    match trust {
        Trust::System if crypto.roots.is_empty() => {
            let why = crypto.roots_error.as_deref().unwrap_or("none were loaded");
            Err(SecurityError::NoSystemRoots(why.into()))
        }
        Trust::System => Ok(Some(crypto.roots.clone())),
        // Without the system's anchors the ones named still serve.
        Trust::SystemAnd(more) => {
            let mut store = RootCertStore::clone(&crypto.roots);
            add(&mut store, more)?;
            Ok(Some(Arc::new(store)))
        }
        Trust::Only(these) => {
            let mut store = RootCertStore::empty();
            add(&mut store, these)?;
            Ok(Some(Arc::new(store)))
        }
        Trust::Pinned(_) | Trust::Callback => Ok(None),
    }
}

/// The certificates that were named one by one.
fn listed(trust: &Trust) -> Listed {
    match trust {
        Trust::Only(these) | Trust::SystemAnd(these) => Listed(these.clone()),
        Trust::System | Trust::Pinned(_) | Trust::Callback => Listed::default(),
    }
}

/// The checks that do not depend on authorities.
fn checks(p: &SecurityParameters, provider: &CryptoProvider) -> Result<Checks, SecurityError> {
    let mut checks = Checks::new(provider);
    checks.callback.clone_from(&p.trust_verification);
    checks.refused.clone_from(&p.refused_certificate);
    checks.schemes.clone_from(&p.signature_algorithms);
    match &p.trust {
        Trust::Pinned(pins) if pins.is_empty() => Err(SecurityError::NothingTrusted),
        Trust::Callback if checks.callback.is_none() => Err(SecurityError::NothingTrusted),
        Trust::Pinned(pins) => {
            checks.pins.clone_from(pins);
            Ok(checks)
        }
        _ => Ok(checks),
    }
}

fn no_anchors(e: VerifierBuilderError) -> SecurityError {
    match e {
        VerifierBuilderError::NoRootAnchors => SecurityError::NothingTrusted,
        e => SecurityError::Other(e.to_string().into()),
    }
}

pub(crate) fn server_verifier(
    p: &SecurityParameters,
    crypto: &Crypto,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerVerifier, SecurityError> {
    let mut checks = checks(p, provider)?;
    if !p.pinned_server_certificates.is_empty() {
        // Both lists of pins must match: the intersection.
        let both = |pin: &Pin| match (&p.trust, pin) {
            (Trust::Pinned(trusted), Pin::Chain(c)) => c.first().is_some_and(|c| trusted.iter().any(|t| t.matches(c))),
            (Trust::Pinned(trusted), Pin::Sha256(_)) => trusted.iter().any(|t| match t {
                Pin::Sha256(_) => t == pin,
                Pin::Chain(c) => c.first().is_some_and(|c| pin.matches(c)),
            }),
            _ => true,
        };
        checks.pins = p.pinned_server_certificates.iter().filter(|pin| both(pin)).cloned().collect();
        if checks.pins.is_empty() {
            return Err(SecurityError::NothingTrusted);
        }
    }
    let authorities = match p.protection {
        Protection::Opportunistic => None,
        _ => match anchors(&p.trust, crypto)? {
            Some(roots) => {
                Some(WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build().map_err(no_anchors)?)
            }
            None => None,
        },
    };
    Ok(ServerVerifier { authorities, listed: listed(&p.trust), checks })
}

pub(crate) fn client_verifier(
    p: &SecurityParameters,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SecurityError> {
    let mandatory = match p.client_authentication {
        ClientAuthentication::None => return Ok(Arc::new(NoClientAuth)),
        ClientAuthentication::Optional => false,
        ClientAuthentication::Required => true,
    };
    let authorities = match &p.trust {
        // A public authority certifies an identity, not the right to connect.
        Trust::System | Trust::SystemAnd(_) => return Err(SecurityError::ClientTrust),
        Trust::Only(_) => {
            let roots = anchors(&p.trust, &Crypto::from_provider(CryptoProvider::clone(provider)))?
                .ok_or(SecurityError::NothingTrusted)?;
            Some(WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().map_err(no_anchors)?)
        }
        Trust::Pinned(_) | Trust::Callback => None,
    };
    let checks = checks(p, provider)?;
    Ok(Arc::new(ClientVerifier { authorities, listed: listed(&p.trust), mandatory, checks }))
}

/// Hashes a list so that no two different lists look alike.
pub(crate) fn list<'a>(context: &mut Context, items: impl ExactSizeIterator<Item = &'a [u8]>) {
    context.update(&(items.len() as u64).to_be_bytes());
    for item in items {
        context.update(&(item.len() as u64).to_be_bytes());
        context.update(item);
    }
}

pub(crate) fn finish(context: Context) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

pub(crate) fn address<T: ?Sized>(of: &Arc<T>) -> [u8; 8] {
    (Arc::as_ptr(of).cast::<()>() as usize as u64).to_be_bytes()
}

/// What determines the peer's required identity and our own.
///
/// Callbacks, anchors and providers count by identity. That is sound although memory is reused:
/// whatever is kept under the digest holds on to them, except sessions, and those rustls offers
/// under the very same verifier only.
fn authentication_digest(p: &SecurityParameters, crypto: &Crypto) -> Digest {
    let mut c = Context::new(&SHA256);
    c.update(&address(&crypto.provider));
    // The system's roots may be read at any time; configurations without them keep their sessions.
    if matches!(p.trust, Trust::System | Trust::SystemAnd(_)) {
        c.update(&address(&crypto.roots));
    }
    // It does not change the exchange between peers, but each observer is called for its own
    // refusals.
    c.update(&p.refused_certificate.as_ref().map_or([0; 8], address));
    hash_authentication(&mut c, p);
    finish(c)
}

pub(crate) fn hash_authentication(c: &mut Context, p: &SecurityParameters) {
    c.update(&[p.protection as u8]);
    let pins = |c: &mut Context, pins: &[Pin]| {
        c.update(&(pins.len() as u64).to_be_bytes());
        for pin in pins {
            match pin {
                Pin::Sha256(hash) => list(c, [&b"hash"[..], hash].into_iter()),
                Pin::Chain(chain) => list(c, chain.iter().map(AsRef::as_ref)),
            }
        }
    };
    let certificates = |c: &mut Context, kind: u8, list_of: &[CertificateDer<'static>]| {
        c.update(&[kind]);
        list(c, list_of.iter().map(AsRef::as_ref));
    };
    match &p.trust {
        Trust::System => c.update(&[0]),
        Trust::Only(these) => certificates(c, 1, these),
        Trust::SystemAnd(more) => certificates(c, 2, more),
        Trust::Pinned(these) => {
            c.update(&[3]);
            pins(c, these);
        }
        Trust::Callback => c.update(&[4]),
    }
    pins(c, &p.pinned_server_certificates);
    c.update(&p.trust_verification.as_ref().map_or([0; 8], address));
    c.update(&p.identity_challenge.as_ref().map_or([0; 8], address));
    c.update(&(p.signature_algorithms.len() as u64).to_be_bytes());
    for scheme in &p.signature_algorithms {
        c.update(&u16::from(*scheme).to_be_bytes());
    }
    c.update(&(p.client_certificates.len() as u64).to_be_bytes());
    for identity in &p.client_certificates {
        list(c, identity.chain.iter().map(AsRef::as_ref));
        list(c, [identity.key.secret_der()].into_iter());
    }
}

/// What a session may be resumed under, beyond authentication.
fn context_digest(authentication: &Digest, common: &Common, for_quic: bool) -> Digest {
    let mut c = Context::new(&SHA256);
    c.update(authentication);
    c.update(&[u8::from(for_quic)]);
    list(&mut c, common.alpn.iter().map(Vec::as_slice));
    for version in &common.versions {
        c.update(&u16::from(version.version).to_be_bytes());
    }
    finish(c)
}
