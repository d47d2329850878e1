//! The system's roots of trust.
//!
//! *Responsible for* reading them when the first request is compiled that is verified by them, and
//! not before: that is some 150 files. *Deliberately not here*: what they are used for
//! (`neater-tls`).
//!
//! *Invariants*: a request that does not need them never fails or waits for them, no thread waits
//! for the files while the engine is locked, and a failure to read them is not remembered.

use crate::SecurityParameters;
use crate::shared::Shared;
use neater_property::Role;
use neater_tls::rustls::RootCertStore;
use neater_tls::{Crypto, Protection, Trust};
use std::io;

/// Whether what is compiled from these parameters verifies its peer by the system's roots.
fn needs_system_roots(security: &SecurityParameters, role: Role) -> bool {
    // A server verifies its clients by authorities of its own, and opportunistic encryption
    // verifies no peer.
    security.protection == Protection::Required
        && role != Role::Listen
        && matches!(security.trust, Trust::System | Trust::SystemAnd(_))
}

/// Sees to it that the engine has the system's roots, if this request needs them. It is compiling
/// that reports their lack.
pub(crate) fn provide(shared: &Shared, security: &SecurityParameters, role: Role) {
    if !needs_system_roots(security, role) || shared.look(|s| s.roots_loaded) {
        return;
    }
    let (roots, error) = read();
    shared.look(|s| {
        // Another thread may have been faster, and the program may have given its own.
        if !s.roots_loaded {
            s.roots_loaded = error.is_none();
            let crypto = s.engine.crypto().with_roots(roots, error);
            s.engine.set_crypto(crypto);
        }
    });
}

/// Cryptography with the system's roots of trust, for an engine that is not behind the public
/// objects. Reading them takes some milliseconds; that they cannot be read is reported when a
/// request that needs them is compiled.
#[must_use]
pub fn with_system_roots(crypto: Crypto) -> Crypto {
    let (roots, error) = read();
    crypto.with_roots(roots, error)
}

/// The system's roots, or none and why.
fn read() -> (RootCertStore, Option<String>) {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    // A part of the roots, because descriptors ran out half-way, would fail connections without a
    // visible reason.
    let exhausted = found.errors.iter().any(|e| is_exhaustion(e));
    if added > 0 && !exhausted {
        return (roots, None);
    }
    let mut why: Vec<String> = found.errors.iter().take(REASONS_MAX).map(ToString::to_string).collect();
    if found.errors.len() > REASONS_MAX {
        why.push(format!("and {} more", found.errors.len() - REASONS_MAX));
    }
    if why.is_empty() {
        why.push("no root certificate was found".to_owned());
    }
    (RootCertStore::empty(), Some(why.join("; ")))
}

/// How many of the files that could not be read are named.
const REASONS_MAX: usize = 3;

/// Whether an error, or what caused it, is that the process or the system has no descriptor or
/// memory left.
fn is_exhaustion(error: &(dyn core::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && matches!(io.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
        {
            return true;
        }
        cause = e.source();
    }
    false
}
