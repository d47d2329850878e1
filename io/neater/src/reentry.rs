//! A framer of the program's runs while the engine is borrowed. If it calls the objects of that engine, it would wait for
//! itself for ever: here it is told apart from others who wait, and panics with the reason, which ends its connection.

use crate::FramerSpec;
use bytes::Bytes;
use core::cell::Cell;
use neater_framing::{Framer, FramerError, Input, Outbound, Readiness};
use std::sync::Arc;

std::thread_local! {
    /// The engine, by the address of its lock, whose framer runs on this thread; 0: none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Panics if this thread is inside a framer of the engine behind the lock at `engine`: it would wait for itself.
#[cold]
pub(crate) fn check(engine: usize) {
    let inside = INSIDE.try_with(|i| i.get() == engine).unwrap_or(false);
    assert!(!inside, "a framer must not call the objects of its own engine: they wait until it has returned");
}

/// Notes that a framer runs, for as long as it lives.
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
