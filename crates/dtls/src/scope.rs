//! What the cryptography of a session has to know of it, while dimpl is at work for it.
//!
//! dimpl's provider is a set of statics that get neither the session whose handshake they serve nor
//! more of the peer than its first certificate. What belongs to one session is therefore lent to
//! them for the length of one call, in a slot of the thread that makes the call: the key to sign
//! with, what the peer may sign with, and a place for the certificate chains that pass by in the
//! transcript of the handshake.

use crate::certificates;
use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use std::cell::RefCell;
use std::sync::Arc;

/// More lists of certificates than this are not in one handshake: one of each side, and again after
/// a retry.
const MAX_LISTS: usize = 4;

/// What is lent.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Our own identity, if there is one.
    pub(crate) identity: Option<Arc<CertifiedKey>>,
    /// What the peer may sign its handshake with; empty: anything that is implemented.
    pub(crate) schemes: Arc<[SignatureScheme]>,
    /// The chains seen so far, both sides'.
    pub(crate) chains: Vec<Vec<CertificateDer<'static>>>,
    /// A signature was wanted of a side that has no key.
    pub(crate) no_key: bool,
    /// A signature was wanted and could not, or must not, be made.
    pub(crate) unsigned: Option<Box<str>>,
    /// The handshake is over: transcripts are not looked at any more.
    pub(crate) done: bool,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Calls `f` with `scope` lent to the cryptography.
pub(crate) fn lend<R>(scope: &mut Scope, f: impl FnOnce() -> R) -> R {
    SCOPE.with_borrow_mut(|slot| *slot = Some(core::mem::take(scope)));
    let result = f();
    SCOPE.with_borrow_mut(|slot| *scope = slot.take().unwrap_or_default());
    result
}

/// Looks at, or writes to, what is lent; `None` where nothing is.
pub(crate) fn with<R>(f: impl FnOnce(&mut Scope) -> R) -> Option<R> {
    SCOPE.with_borrow_mut(|slot| slot.as_mut().map(f))
}

/// A transcript of a handshake, or the beginning of one, is about to be hashed: keeps the chains in
/// it.
pub(crate) fn see_transcript(transcript: &[u8]) {
    with(|scope| {
        if scope.done {
            return;
        }
        for chain in certificates::in_transcript(transcript) {
            if scope.chains.len() < MAX_LISTS && !scope.chains.contains(&chain) {
                scope.chains.push(chain);
            }
        }
    });
}
