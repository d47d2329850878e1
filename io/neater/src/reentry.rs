//! A framer of the program's runs while the engine is borrowed, and so do the two callbacks of a handshake. If one of them
//! calls the objects of that engine, it would wait for itself for ever: here it is told apart from others who wait, and
//! panics with the reason, which ends its connection.

use crate::{FramerSpec, SecurityParameters, tls};
use bytes::Bytes;
use core::cell::Cell;
use neater_framing::{Framer, FramerError, Input, Outbound, Readiness};
use std::sync::Arc;

std::thread_local! {
    /// The engine, by the address of its lock, whose framer or callback runs on this thread; 0: none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Panics if this thread is inside a framer or callback of the engine behind the lock at `engine`: it would wait for itself.
#[cold]
pub(crate) fn check(engine: usize) {
    let inside = INSIDE.try_with(|i| i.get() == engine).unwrap_or(false);
    assert!(
        !inside,
        "a framer or callback must not call the objects of its own engine: they wait until it has returned"
    );
}

/// Notes that a framer or callback runs, for as long as it lives.
struct Inside(usize);

impl Inside {
    fn enter(engine: usize) -> Self {
        Self(INSIDE.try_with(|i| i.replace(engine)).unwrap_or(0))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A thread that ends runs no framer.
        let _ = INSIDE.try_with(|i| i.set(self.0));
    }
}

/// A framer that is known to be running while it runs.
struct Marked {
    engine: usize,
    inner: Box<dyn Framer>,
}

impl Framer for Marked {
    fn name(&self) -> &str {
        let _inside = Inside::enter(self.engine);
        self.inner.name()
    }

    fn start(&mut self, out: &mut Outbound) -> Result<Readiness, FramerError> {
        let _inside = Inside::enter(self.engine);
        self.inner.start(out)
    }

    fn stop(&mut self, out: &mut Outbound) {
        let _inside = Inside::enter(self.engine);
        self.inner.stop(out);
    }

    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, first: bool, end: bool) -> Result<(), FramerError> {
        let _inside = Inside::enter(self.engine);
        self.inner.new_sent_message(out, data, first, end)
    }

    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        let _inside = Inside::enter(self.engine);
        self.inner.handle_received_data(input)
    }

    fn buffer_limit(&self) -> usize {
        let _inside = Inside::enter(self.engine);
        self.inner.buffer_limit()
    }

    fn is_broken(&self) -> bool {
        let _inside = Inside::enter(self.engine);
        self.inner.is_broken()
    }
}

/// The same framers, known to be running while they run.
pub(crate) fn marked(spec: FramerSpec, engine: usize) -> FramerSpec {
    match spec {
        FramerSpec::Custom(make) => FramerSpec::Custom(Arc::new(move || {
            let inner = {
                let _inside = Inside::enter(engine);
                make()
            };
            Box::new(Marked { engine, inner })
        })),
        other => other,
    }
}

/// The callbacks of handshakes that this engine knows: what the program gave, and the same known to be running while it runs.
///
/// *Invariant*: the same callback has the same answer here for as long as the program or a request keeps it, because
/// requests share their sessions if their callbacks are the same.
#[derive(Default)]
pub(crate) struct Callbacks {
    trust: Vec<(tls::TrustVerification, tls::TrustVerification)>,
    identity: Vec<(tls::IdentityChallenge, tls::IdentityChallenge)>,
}

impl Callbacks {
    /// The same parameters, with callbacks that are known to be running while they run.
    pub(crate) fn marked(&mut self, security: &SecurityParameters, engine: usize) -> SecurityParameters {
        let mut security = security.clone();
        if let Some(inner) = security.trust_verification.take() {
            security.trust_verification = Some(same(&mut self.trust, inner, |inner| {
                Arc::new(move |chain, name| {
                    let _inside = Inside::enter(engine);
                    inner(chain, name)
                })
            }));
        }
        if let Some(inner) = security.identity_challenge.take() {
            security.identity_challenge = Some(same(&mut self.identity, inner, |inner| {
                Arc::new(move |challenge| {
                    let _inside = Inside::enter(engine);
                    inner(challenge)
                })
            }));
        }
        security
    }
}

/// What `inner` was marked as before, or is now. Those that nobody but this list and the marked one itself has are forgotten.
fn same<T: ?Sized>(known: &mut Vec<(Arc<T>, Arc<T>)>, inner: Arc<T>, mark: impl FnOnce(Arc<T>) -> Arc<T>) -> Arc<T> {
    known.retain(|(inner, marked)| Arc::strong_count(inner) > 2 || Arc::strong_count(marked) > 1);
    let address = |of: &Arc<T>| Arc::as_ptr(of).addr();
    if let Some((_, marked)) = known.iter().find(|(k, _)| address(k) == address(&inner)) {
        return marked.clone();
    }
    let marked = mark(inner.clone());
    known.push((inner, marked.clone()));
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_marked_once_and_forgotten_with_its_last_user() {
        let mut callbacks = Callbacks::default();
        let mut security = SecurityParameters::new();
        security.trust_verification = Some(Arc::new(|_, _| true));
        let of = |s: &SecurityParameters| Arc::as_ptr(s.trust_verification.as_ref().unwrap()).addr();
        let (a, b) = (callbacks.marked(&security, 1), callbacks.marked(&security.clone(), 1));
        assert_eq!(of(&a), of(&b));
        assert_ne!(of(&a), of(&security));
        // The program still has it: the next request has the same.
        let before = of(&a);
        drop((a, b));
        assert_eq!(of(&callbacks.marked(&security, 1)), before);
        // A request still has it, the program does not.
        let kept = callbacks.marked(&security, 1);
        security.trust_verification = Some(Arc::new(|_, _| false));
        callbacks.marked(&security, 1);
        assert_eq!(callbacks.trust.len(), 2);
        drop(kept);
        callbacks.marked(&security, 1);
        assert_eq!(callbacks.trust.len(), 1);
    }
}
