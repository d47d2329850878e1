//! A framer of the program's runs while the engine is borrowed, and so do the callbacks of a
//! handshake and a key log. If one of them calls the objects of that engine, it would wait for
//! itself for ever: here it is distinguished from other waiting threads, and panics with the
//! reason, which ends its connection.
//!
//! Their destructors are the program's, too, and may call what they like: the engine may let go of
//! them while it is borrowed, and they are dropped when it is not.

use crate::shared::Shared;
use crate::{FramerSpec, SecurityParameters, tls};
use bytes::Bytes;
use core::cell::Cell;
use neater_framing::{Framer, FramerError, Input, Outbound, Readiness};
use neater_tls::rustls::KeyLog;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

std::thread_local! {
    /// The engine, by the address of its lock, whose framer or callback runs on this thread; 0:
    /// none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Panics if this thread is inside a framer or callback of the engine behind the lock at `engine`:
/// it would wait for itself.
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

/// Something of the program's. If the engine releases it last, it is dropped when the engine is not
/// borrowed.
struct Foreign<T: ?Sized + Send + Sync + 'static> {
    /// There until it is dropped.
    inner: Option<Arc<T>>,
    engine: Weak<Shared>,
}

impl<T: ?Sized + Send + Sync + 'static> Foreign<T> {
    fn new(inner: Arc<T>, engine: &Weak<Shared>) -> Self {
        Self { inner: Some(inner), engine: engine.clone() }
    }

    /// Does something with it, which is known to be running meanwhile.
    fn run<R>(&self, with: impl FnOnce(&T) -> R) -> R {
        let _inside = Inside::enter(Shared::address_of(&self.engine));
        match self.inner.as_deref() {
            Some(inner) => with(inner),
            None => unreachable!("it is there until it is dropped"),
        }
    }
}

impl<T: ?Sized + Send + Sync + 'static> Drop for Foreign<T> {
    fn drop(&mut self) {
        if let (Some(inner), Some(engine)) = (self.inner.take(), self.engine.upgrade()) {
            engine.drop_outside(Box::new(inner));
        }
    }
}

/// A panic is the log's alone: what it would have written is lost, and the connection is none of
/// its business.
impl KeyLog for Foreign<dyn KeyLog> {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if catch_unwind(AssertUnwindSafe(|| self.run(|log| log.log(label, client_random, secret)))).is_err() {
            tracing::error!(target: "neater::tls", "the program's key log has panicked: {label} is not in it");
        }
    }

    fn will_log(&self, label: &str) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.run(|log| log.will_log(label)))).unwrap_or(false)
    }
}

impl core::fmt::Debug for Foreign<dyn KeyLog> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.inner.fmt(f)
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
pub(crate) fn marked(spec: FramerSpec, engine: &Weak<Shared>) -> FramerSpec {
    match spec {
        FramerSpec::Custom(make) => {
            let (make, engine) = (Foreign::new(make, engine), Shared::address_of(engine));
            FramerSpec::Custom(Arc::new(move || Box::new(Marked { engine, inner: make.run(|make| make()) })))
        }
        other => other,
    }
}

/// The callbacks of handshakes that this engine knows: what the program gave, and the same known to
/// be running while it runs.
///
/// *Invariant*: the same callback has the same answer here for as long as the program or a request
/// keeps it, because requests share their sessions if their callbacks are the same. A key log is
/// not among what is compared, and ends with the last request that has it: its writer to a file
/// waits for that.
#[derive(Default)]
pub(crate) struct Callbacks {
    trust: Vec<(tls::TrustVerification, tls::TrustVerification)>,
    refused: Vec<(tls::CertificateObserver, tls::CertificateObserver)>,
    identity: Vec<(tls::IdentityChallenge, tls::IdentityChallenge)>,
    /// By the address of what the program gave: a marked log keeps that, so that no other log has
    /// it meanwhile.
    logs: Vec<(usize, Weak<Foreign<dyn KeyLog>>)>,
    /// What is not needed any more. Dropping it may run the program's code, which must not find
    /// this locked.
    pub(crate) gone: Vec<Box<dyn Send>>,
}

impl Callbacks {
    /// The same parameters, with callbacks that are known to be running while they run.
    pub(crate) fn marked(&mut self, security: &SecurityParameters, engine: &Weak<Shared>) -> SecurityParameters {
        let mut security = security.clone();
        if let Some(inner) = security.trust_verification.take() {
            security.trust_verification = Some(same(&mut self.trust, &mut self.gone, inner, |inner| {
                let inner = Foreign::new(inner, engine);
                Arc::new(move |chain, name| inner.run(|verify| verify(chain, name)))
            }));
        }
        if let Some(inner) = security.refused_certificate.take() {
            security.refused_certificate = Some(same(&mut self.refused, &mut self.gone, inner, |inner| {
                let inner = Foreign::new(inner, engine);
                Arc::new(move |chain, name| inner.run(|refused| refused(chain, name)))
            }));
        }
        if let Some(inner) = security.identity_challenge.take() {
            security.identity_challenge = Some(same(&mut self.identity, &mut self.gone, inner, |inner| {
                let inner = Foreign::new(inner, engine);
                Arc::new(move |challenge| inner.run(|choose| choose(challenge)))
            }));
        }
        if let Some(inner) = security.key_log.take() {
            let address = Arc::as_ptr(&inner).addr();
            self.logs.retain(|(_, log)| log.strong_count() > 0);
            let known = self.logs.iter().find(|(of, _)| *of == address).and_then(|(_, log)| log.upgrade());
            let marked = known.unwrap_or_else(|| {
                let marked = Arc::new(Foreign::new(inner, engine));
                self.logs.push((address, Arc::downgrade(&marked)));
                marked
            });
            security.key_log = Some(marked);
        }
        security
    }
}

/// What `inner` was marked as before, or is now. Those that only this list and the marked one
/// itself have are forgotten: they are `gone`.
fn same<T: ?Sized + Send + Sync + 'static>(
    known: &mut Vec<(Arc<T>, Arc<T>)>,
    gone: &mut Vec<Box<dyn Send>>,
    inner: Arc<T>,
    mark: impl FnOnce(Arc<T>) -> Arc<T>,
) -> Arc<T> {
    let unused =
        |(inner, marked): &mut (Arc<T>, Arc<T>)| Arc::strong_count(inner) <= 2 && Arc::strong_count(marked) <= 1;
    gone.extend(known.extract_if(.., unused).map(|unused| -> Box<dyn Send> { Box::new(unused) }));
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
        let (mut callbacks, nowhere) = (Callbacks::default(), Weak::new());
        let mut security = SecurityParameters::new();
        security.trust_verification = Some(Arc::new(|_, _| true));
        let of = |s: &SecurityParameters| Arc::as_ptr(s.trust_verification.as_ref().unwrap()).addr();
        let (a, b) = (callbacks.marked(&security, &nowhere), callbacks.marked(&security.clone(), &nowhere));
        assert_eq!(of(&a), of(&b));
        assert_ne!(of(&a), of(&security));
        // The program still has it: the next request has the same.
        let before = of(&a);
        drop((a, b));
        assert_eq!(of(&callbacks.marked(&security, &nowhere)), before);
        // A request still has it, the program does not.
        let kept = callbacks.marked(&security, &nowhere);
        security.trust_verification = Some(Arc::new(|_, _| false));
        callbacks.marked(&security, &nowhere);
        assert_eq!(callbacks.trust.len(), 2);
        drop(kept);
        callbacks.marked(&security, &nowhere);
        assert_eq!(callbacks.trust.len(), 1);
    }
}
