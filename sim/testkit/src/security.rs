//! Certificates and cryptography that are functions of a seed.

use core::time::Duration;
use neater_base::{Rng, WallTime};
use neater_tls::{Crypto, Identity, SecurityParameters, Trust, self_signed};
use std::sync::OnceLock;

/// The names that the server's certificate is made for.
pub const SERVER_NAMES: [&str; 6] = [
    "server.test",
    "www.server.test",
    "*.many.test",
    crate::town::SERVER_V4,
    crate::town::SERVER_V6,
    "short.search.test",
];

/// Cryptography for one host of a run: a function of `seed` and the host's number.
#[must_use]
pub fn crypto(seed: u64, host: u64) -> Crypto {
    let mut rng = Rng::from_number(seed ^ 0x6372_7970_746f ^ host.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Crypto::deterministic(rng.seed())
}

/// Who the servers of all runs are: a self-signed certificate for [`SERVER_NAMES`], valid at the start of a world. Made
/// once, since it does not depend on the run.
#[must_use]
pub fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| self_signed(&SERVER_NAMES, neater_netsim::DEFAULT_WALL, [7; 32]))
}

/// Who the servers of DTLS are, which signs with ECDSA only: a certificate and a key on P-256 for [`SERVER_NAMES`], valid
/// from 2020 to 2049. A file, because such keys and certificates cannot be made from a seed.
///
/// # Panics
/// If the file is damaged.
#[must_use]
pub fn identity_p256() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    const PEM: &[u8] = include_bytes!("p256.pem");
    IDENTITY.get_or_init(|| match neater_tls::identity_from_pem(PEM, PEM) {
        Ok(identity) => identity,
        Err(e) => panic!("p256.pem: {e}"),
    })
}

/// A certificate for the same names that no client of a run trusts.
#[must_use]
pub fn stranger() -> Identity {
    let wall = WallTime(neater_netsim::DEFAULT_WALL.0 + Duration::from_secs(60));
    self_signed(&SERVER_NAMES, wall, [8; 32])
}

/// The same parameters with [`identity_p256`] in place of [`identity`].
#[must_use]
pub fn on_p256(mut security: SecurityParameters) -> SecurityParameters {
    if !security.server_certificates.is_empty() {
        security.server_certificates = vec![identity_p256().clone()];
    }
    if let Trust::Only(trusted) = &mut security.trust {
        trusted.clone_from(&identity_p256().chain);
    }
    security
}

/// Security parameters of a server with [`identity`].
#[must_use]
pub fn server_security() -> SecurityParameters {
    let mut security = SecurityParameters::new();
    security.server_certificates = vec![identity().clone()];
    security
}

/// Security parameters of a client that trusts [`identity`] and nobody else.
#[must_use]
pub fn client_security() -> SecurityParameters {
    let mut security = SecurityParameters::new();
    security.trust = Trust::Only(identity().chain.clone());
    security
}
