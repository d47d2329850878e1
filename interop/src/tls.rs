//! Certificates in the forms that other programs want.

use crate::Scratch;
use neater::tls::Trust;
use neater::{Identity, SecurityParameters};
use std::fmt::Write;
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
    let cert = scratch.file(&format!("{name}.crt"), pem("CERTIFICATE", &identity.chain[0]));
    let key = scratch.file(&format!("{name}.key"), pem("PRIVATE KEY", identity.key.secret_der()));
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

/// DER in the textual encoding of RFC 7468.
#[must_use]
pub fn pem(label: &str, der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = format!("-----BEGIN {label}-----\n");
    // 48 bytes make a line of 64 characters.
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits = (0..3).fold(0u32, |n, i| n << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
            for i in 0..4 {
                let c = ALPHABET[(bits >> (18 - 6 * i) & 63) as usize];
                out.push(if i <= group.len() { char::from(c) } else { '=' });
            }
        }
        out.push('\n');
    }
    let _ = writeln!(out, "-----END {label}-----");
    out
}

#[cfg(test)]
mod tests {
    use super::pem;

    #[test]
    fn every_length_of_a_last_group_is_encoded() {
        let body = |der: &[u8]| pem("X", der).lines().nth(1).map(str::to_owned).unwrap_or_default();
        assert_eq!(body(b"Man"), "TWFu");
        assert_eq!(body(b"Ma"), "TWE=");
        assert_eq!(body(b"M"), "TQ==");
        assert_eq!(pem("X", &[0; 49]).lines().nth(2), Some("AA=="));
    }
}
