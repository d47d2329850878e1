//! A program's own framer, kept from taking others with it.
//!
//! *Responsible for* making a panic of a framer an error of its connection alone: the driver of the
//! engine serves all connections on one stack. *Not responsible for* panics of other code.
//!
//! *Invariant*: a framer that has panicked is not called again.

use crate::{Framer, FramerError, Input, Outbound, Readiness};
use bytes::Bytes;
use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A framer whose panics are errors.
pub(crate) struct Guarded {
    /// `None` when it could not be made.
    inner: Option<Box<dyn Framer>>,
    /// The message of its panic. It is dropped with this value, not before: its destructor is the
    /// program's, too.
    said: Option<String>,
}

impl Guarded {
    /// Makes a framer; a panic is reported when it is to be started.
    pub(crate) fn make(make: &(dyn Fn() -> Box<dyn Framer> + Send + Sync)) -> Self {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(inner) => Self { inner: Some(inner), said: None },
            Err(panic) => Self { inner: None, said: Some(words(&*panic)) },
        }
    }

    /// Runs one of its functions.
    fn run<T>(&mut self, f: impl FnOnce(&mut dyn Framer) -> Result<T, FramerError>) -> Result<T, FramerError> {
        let Some(inner) = self.inner.as_mut().filter(|_| self.said.is_none()) else { return Err(self.error()) };
        // Whatever it was about to do, it is not used again.
        match catch_unwind(AssertUnwindSafe(|| f(inner.as_mut()))) {
            Ok(result) => result,
            Err(panic) => {
                self.said = Some(words(&*panic));
                Err(self.error())
            }
        }
    }

    fn error(&self) -> FramerError {
        FramerError(format!("the framer has panicked: {}", self.said.as_deref().unwrap_or_default()))
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let inner = self.inner.take();
        // A panic of its destructor has no receiver any more.
        drop(catch_unwind(AssertUnwindSafe(|| drop(inner))));
    }
}

impl Framer for Guarded {
    fn name(&self) -> &str {
        let inner = self.inner.as_ref();
        inner.and_then(|f| catch_unwind(AssertUnwindSafe(|| f.name())).ok()).unwrap_or("broken")
    }

    fn start(&mut self, out: &mut Outbound) -> Result<Readiness, FramerError> {
        self.run(|f| f.start(out))
    }

    fn stop(&mut self, out: &mut Outbound) {
        // It is the end of the connection in any case.
        drop(self.run(|f| {
            f.stop(out);
            Ok(())
        }));
    }

    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, first: bool, end: bool) -> Result<(), FramerError> {
        self.run(|f| f.new_sent_message(out, data, first, end))
    }

    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        self.run(|f| f.handle_received_data(input))
    }

    fn buffer_limit(&self) -> usize {
        let inner = self.inner.as_ref();
        inner.and_then(|f| catch_unwind(AssertUnwindSafe(|| f.buffer_limit())).ok()).unwrap_or(0)
    }

    fn is_broken(&self) -> bool {
        self.said.is_some() || self.inner.as_ref().is_none_or(|f| f.is_broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FramerSpec, Receiver};
    use std::sync::Arc;

    /// Panics in the function of this name, and when it is dropped.
    struct Bad(&'static str);

    impl Bad {
        fn at(&self, here: &str) {
            assert!(self.0 != here, "bad in {here}");
        }
    }

    impl Drop for Bad {
        fn drop(&mut self) {
            self.at("drop");
        }
    }

    impl Framer for Bad {
        fn name(&self) -> &str {
            self.at("name");
            "bad"
        }
        fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
            self.at("start");
            Ok(Readiness::Ready)
        }
        fn stop(&mut self, _: &mut Outbound) {
            self.at("stop");
        }
        fn new_sent_message(&mut self, _: &mut Outbound, _: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
            self.at("send");
            Ok(())
        }
        fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
            self.at("receive");
            Ok(Readiness::Ready)
        }
        fn buffer_limit(&self) -> usize {
            self.at("limit");
            1000
        }
    }

    #[test]
    fn a_panic_anywhere_in_a_framer_is_its_error_and_it_is_not_called_again() {
        for place in ["make", "name", "start", "stop", "send", "receive", "limit", "drop", "nowhere"] {
            let spec = FramerSpec::Custom(Arc::new(move || {
                assert!(place != "make", "bad in make");
                Box::new(Bad(place))
            }));
            let mut framer = spec.make().expect("custom");
            let mut out = Outbound::default();
            let _ = (framer.name().len(), framer.buffer_limit());
            let mut errors = Vec::new();
            errors.extend(framer.start(&mut out).err());
            errors.extend(framer.new_sent_message(&mut out, Bytes::new(), true, true).err());
            errors.extend(Receiver::default().run(framer.as_mut(), false, &mut out).err());
            framer.stop(&mut out);
            let broken = ["make", "start", "stop", "send", "receive"].contains(&place);
            assert_eq!(framer.is_broken(), broken, "{place}");
            let count = match place {
                "make" | "start" => 3,
                "send" => 2,
                "receive" => 1,
                _ => 0,
            };
            assert_eq!(errors.len(), count, "{place}: {errors:?}");
            assert!(errors.iter().all(|e| e.0 == format!("the framer has panicked: bad in {place}")), "{errors:?}");
        }
    }
}
