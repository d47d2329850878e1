//! The certificate of the peers: made by the lab for one run, trusted by nobody else.

use crate::peer::SERVER_NAME;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::path::Path;
use std::sync::Arc;

const CERT: &str = "cert.der";
const KEY: &str = "key.der";

/// Writes a self-signed certificate for [`SERVER_NAME`] and its key into `dir`.
///
/// # Errors
/// The files cannot be written.
pub fn generate(dir: &Path) -> io::Result<()> {
    let made = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).map_err(io::Error::other)?;
    std::fs::write(dir.join(CERT), made.cert.der())?;
    std::fs::write(dir.join(KEY), made.signing_key.serialize_der())?;
    std::fs::write(dir.join("cert.pem"), made.cert.pem())?;
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem())
}

fn cert(dir: &Path) -> io::Result<CertificateDer<'static>> {
    Ok(CertificateDer::from(std::fs::read(dir.join(CERT))?))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A TLS 1.3 client that trusts the certificate in `dir` and nothing else.
///
/// # Errors
/// The files are missing or make no sense.
pub fn client(dir: &Path, alpn: &[&[u8]]) -> io::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert(dir)?).map_err(io::Error::other)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|a| a.to_vec()).collect();
    Ok(config)
}

/// A TLS 1.3 server with the certificate in `dir`.
///
/// # Errors
/// The files are missing or make no sense.
pub fn server(dir: &Path, alpn: &[&[u8]]) -> io::Result<rustls::ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(std::fs::read(dir.join(KEY))?));
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![cert(dir)?], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = alpn.iter().map(|a| a.to_vec()).collect();
    Ok(config)
}
