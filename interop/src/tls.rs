//! Certificates in the forms that other programs want.

use crate::Scratch;
use neater::tls::{Trust, certificates_to_pem, private_key_to_pem};
use neater::{Identity, SecurityParameters};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A self-signed certificate for localhost, in memory and in PEM files.
#[derive(Debug)]
pub struct Certificate {
    /// For our side.
    pub identity: Identity,
    /// The certificate's file.
    pub cert: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// Makes a certificate and puts it into `scratch` as `NAME.crt` and `NAME.key`.
///
/// # Panics
/// When that is not possible.
#[must_use]
pub fn certificate(scratch: &Scratch, name: &str) -> Certificate {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let identity =
        neater::tls::self_signed_p256(&["localhost", "127.0.0.1"], neater_base::WallTime(wall)).expect("a certificate");
    let cert = scratch.file(&format!("{name}.crt"), certificates_to_pem(&identity.chain));
    let key = scratch.file(&format!("{name}.key"), private_key_to_pem(&identity.key));
    Certificate { identity, cert, key }
}

/// What a client that trusts this certificate and nothing else, and a server that shows it, are configured with.
#[must_use]
pub fn security(certificate: &Certificate) -> (SecurityParameters, SecurityParameters) {
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(certificate.identity.chain.clone());
    client.server_name = Some("localhost".to_owned());
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![certificate.identity.clone()];
    (client, server)
}
