//! What DTLS takes from the security parameters: the same judgement of peers and the same
//! identities as TLS.
//!
//! rustls does not speak DTLS, so the crate that does (`neater-dtls`) is handed the pieces of which
//! [`client_config`](crate::client_config) and [`server_config`](crate::server_config) build
//! rustls's configurations. Trust is decided in one place.

use crate::config::{Common, client_verifier, load, server_verifier};
use crate::error::SecurityError;
use crate::params::{ClientAuthentication, SecurityParameters};
use crate::provider::Crypto;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;

/// What clients and servers of DTLS have in common.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Cipher suites and key exchange groups that the parameters allow, preferred first.
    pub provider: Arc<CryptoProvider>,
    /// Whether version 1.2 may be spoken.
    pub version12: bool,
    /// Whether version 1.3 may be spoken.
    pub version13: bool,
    /// Our identities, each loaded and checked; a challenge callback is behind its key. May be
    /// empty for clients.
    pub identities: Vec<Arc<CertifiedKey>>,
}

impl Parts {
    fn new(common: Common, identities: Vec<Arc<CertifiedKey>>) -> Self {
        let (version12, version13) = (common.versions.contains(&&TLS12), common.versions.contains(&&TLS13));
        Self { provider: common.provider, version12, version13, identities }
    }
}

/// The pieces of a client, and what judges its server.
///
/// # Errors
/// As [`client_config`](crate::client_config).
pub fn client_parts(
    parameters: &SecurityParameters,
    crypto: &Crypto,
) -> Result<(Parts, Arc<dyn ServerCertVerifier>), SecurityError> {
    let common = Common::new(parameters, crypto, &[], false)?;
    let verifier = Arc::new(server_verifier(parameters, crypto, &common.provider)?);
    let identities = load(&parameters.client_certificates, &common.provider, parameters)?;
    Ok((Parts::new(common, identities), verifier))
}

/// The pieces of a server, and what judges its clients, if they are asked for a certificate.
///
/// # Errors
/// As [`server_config`](crate::server_config).
pub fn server_parts(
    parameters: &SecurityParameters,
    crypto: &Crypto,
) -> Result<(Parts, Option<Arc<dyn ClientCertVerifier>>), SecurityError> {
    let common = Common::new(parameters, crypto, &[], false)?;
    if parameters.server_certificates.is_empty() {
        return Err(SecurityError::NoServerCertificate);
    }
    let identities = load(&parameters.server_certificates, &common.provider, parameters)?;
    let verifier = match parameters.client_authentication {
        ClientAuthentication::None => None,
        _ => Some(client_verifier(parameters, &common.provider)?),
    };
    Ok((Parts::new(common, identities), verifier))
}
