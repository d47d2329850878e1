//! Certificates for trying things out.

use crate::{SecurityParameters, Trust, WallTime, tls};
use std::time::{SystemTime, UNIX_EPOCH};

/// Security for a server that shows a certificate of its own making, and for clients that trust
/// this certificate and nothing else: for trying things out, and for tests. The certificate is for
/// these names (DNS names or addresses), has an ECDSA key on P-256 and is valid from yesterday on,
/// for a year. Clients elsewhere are given it as a file: [`tls::certificates_to_pem`].
///
/// # Errors
/// A name cannot stand in a certificate, or the system's clock is before 1970.
pub fn self_signed(names: &[&str]) -> Result<SecurityParameters, tls::SecurityError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let identity = tls::self_signed_p256(names, WallTime(now))?;
    let mut security = SecurityParameters::new();
    security.trust = Trust::Only(identity.chain.clone());
    security.server_certificates = vec![identity];
    Ok(security)
}
