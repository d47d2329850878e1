//! The peer on this project: `futures` through the public API on tokio, `fd` driving the engine by its descriptor.
//!
//! A client with `--name` asks for what a program asks for that names no protocol: reliable bytes, protected where that is
//! possible. Without a name it asks for TCP to a literal address. The first connection resolves and races, the measured ones
//! find its outcome in the cache; with `--cold` there is no first one.

#![allow(unsafe_code, reason = "poll(2) is only reachable through libc")]

mod fd;
mod futures;

use neater_peers::peer::{Args, SERVER_NAME, Security};
use neater_property::{SelectionProperty, TransportProperties};
use neater_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use neater_tls::{Identity, SecurityParameters, Trust};
use std::io;

fn main() {
    let args = Args::from_env();
    if args.fd_api && args.security != Security::None {
        // A figure that says `quic` and is of plain TCP is worse than none.
        eprintln!("peer-neater: --api fd measures plain TCP; leave --security out, or use --api futures");
        std::process::exit(2);
    }
    if args.fd_api { fd::run(&args) } else { futures::run(&args) }
}

/// Everything random follows from it, so that two runs do the same.
const SEED: [u8; 32] = [7; 32];

/// What is asked of the transport: nothing that a byte stream does not need.
fn needs() -> TransportProperties {
    let mut needs = TransportProperties::new();
    needs.require(SelectionProperty::Reliability).require(SelectionProperty::PreserveOrder);
    needs
}

/// What is asked of security.
fn security(args: &Args) -> io::Result<SecurityParameters> {
    if args.security == Security::None {
        return Ok(SecurityParameters::disabled());
    }
    let cert = CertificateDer::from(std::fs::read(args.credentials.join("cert.der"))?);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(std::fs::read(args.credentials.join("key.der"))?));
    let mut security = SecurityParameters::new();
    security.trust = Trust::Only(vec![cert.clone()]);
    security.server_certificates = vec![Identity { chain: vec![cert], key }];
    security.server_name = Some(SERVER_NAME.to_owned());
    Ok(security)
}
