//! Futures as awaitables: an [`Operation`] is what every method that may have to wait returns.
//!
//! It is first asked without an event loop: most sends, and receives of what has arrived, are done
//! then. Only if it has to wait it takes a future from the loop.

use crate::hub::{Hub, Slot, Target};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTimeoutError};
use pyo3::intern;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

/// Makes the Python object of an outcome.
pub(crate) type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A waker that only notes that it rang.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

std::thread_local! {
    static FLAG: (Arc<Flag>, Waker) = {
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        (flag.clone(), Waker::from(flag))
    };
    /// Whether the interpreter is inside of an operation's destructor, where a warning may not lead
    /// to another.
    static WARNING: Cell<bool> = const { Cell::new(false) };
}

/// What became of asking.
enum Asked {
    Done(Outcome),
    /// Ask again, after others.
    Again,
    /// The slot will be woken.
    Waits,
}

/// Something that is under way: see the stubs.
#[pyclass(module = "neater", weakref)]
pub(crate) struct Operation {
    name: &'static str,
    hub: Arc<Hub>,
    /// Behind a lock that is never waited for: a future need not be shareable between threads, and
    /// Python's objects must be.
    work: Option<Mutex<Work>>,
    slot: Option<Arc<Slot>>,
    asked: bool,
}

impl Operation {
    pub(crate) fn new<T: Send + 'static>(
        hub: &Arc<Hub>,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work: Work = Box::pin(async move {
            let outcome = work.await;
            Box::new(move |py: Python<'_>| finish(py, outcome)) as Outcome
        });
        Self { name, hub: hub.clone(), work: Some(Mutex::new(work)), slot: None, asked: false }
    }

    fn ask(&mut self) -> PyResult<Asked> {
        self.asked = true;
        let Some(work) = &mut self.work else {
            return Err(PyRuntimeError::new_err(format!("{} was already awaited", self.name)));
        };
        let work = work.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.slot.is_none() {
            let answer = FLAG.with(|(flag, waker)| {
                flag.0.store(false, Ordering::Relaxed);
                let answer = work.as_mut().poll(&mut Context::from_waker(waker));
                (answer, flag.0.swap(false, Ordering::Relaxed))
            });
            match answer {
                (Poll::Ready(outcome), _) => {
                    self.work = None;
                    return Ok(Asked::Done(outcome));
                }
                (Poll::Pending, true) => return Ok(Asked::Again),
                (Poll::Pending, false) => self.slot = Some(Arc::default()),
            }
        }
        let Some(slot) = &self.slot else { return Ok(Asked::Again) };
        slot.reset();
        let waker = self.hub.waker(slot);
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                self.work = None;
                self.slot = None;
                Ok(Asked::Done(outcome))
            }
            Poll::Pending if slot.is_woken() => Ok(Asked::Again),
            Poll::Pending => Ok(Asked::Waits),
        }
    }

    /// A future of the running loop, with which a task waits.
    fn future<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(of) = self.hub.running(py)? else {
            return Err(PyRuntimeError::new_err(
                "no event loop drives this transport system: attach one, or use wait() in place of await",
            ));
        };
        let running = running_loop(py)?;
        if !running.is(&of) {
            return Err(PyRuntimeError::new_err("another event loop drives this transport system"));
        }
        let future = of.call_method0(intern!(py, "create_future"))?;
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        let Some(slot) = &self.slot else { return Ok(None) };
        Ok(slot.aim(Target::Future(future.clone().unbind())).is_ok().then_some(future))
    }

    fn drop_work(&mut self) {
        self.asked = true;
        self.work = None;
        self.slot = None;
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    let get = GET.get_or_try_init(py, || py.import("asyncio")?.getattr("get_running_loop").map(Bound::unbind))?;
    get.bind(py).call0()
}

#[pymethods]
impl Operation {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// What a task calls to go on.
    fn __next__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.ask()? {
            Asked::Done(outcome) => {
                let value = outcome(py)?;
                // In a tuple: an outcome that is a tuple, or an exception, is one all the same.
                Err(PyStopIteration::new_err((value,)))
            }
            Asked::Again => Ok(py.None()),
            Asked::Waits => Ok(self.future(py)?.map_or_else(|| py.None(), Bound::unbind)),
        }
    }

    fn send(&mut self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        drop(value);
        self.__next__(py)
    }

    /// Ends it with an exception, as the cancellation of its task does.
    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &mut self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        drop(traceback);
        // Whatever it waited for is given up, and nothing is taken.
        self.drop_work();
        let error = match value {
            Some(v) if v.is_instance_of::<pyo3::exceptions::PyBaseException>() => v,
            Some(v) => kind.call1((v,))?,
            None if kind.is_instance_of::<pyo3::types::PyType>() => kind.call0()?,
            None => kind,
        };
        Err(PyErr::from_value(error))
    }

    /// Gives it up.
    fn close(&mut self) {
        self.drop_work();
    }

    /// Asks, without waiting: the outcome in a tuple, or None.
    fn poll(&mut self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        for _ in 0..2 {
            match self.ask()? {
                Asked::Done(outcome) => return Ok(Some((outcome(py)?,))),
                Asked::Again => {}
                Asked::Waits => break,
            }
        }
        Ok(None)
    }

    /// Waits without an event loop.
    #[pyo3(signature = (timeout=None))]
    fn wait(&mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let until = crate::hub::seconds(timeout)?.and_then(|t| Instant::now().checked_add(t));
        loop {
            match self.ask()? {
                Asked::Done(outcome) => return outcome(py),
                Asked::Again => self.hub.turn(py),
                Asked::Waits => {
                    if until.is_some_and(|u| Instant::now() >= u) {
                        return Err(PyTimeoutError::new_err(format!("{}: no answer in time", self.name)));
                    }
                    self.hub.pause(py, until)?;
                }
            }
        }
    }

    fn __repr__(&self) -> String {
        let state = match (&self.work, self.asked) {
            (None, _) => "ended",
            (_, true) => "waits",
            (_, false) => "not awaited yet",
        };
        format!("<neater.Operation {}: {state}>", self.name)
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        match &self.slot {
            Some(slot) => slot.traverse(&visit),
            None => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.drop_work();
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.asked || self.hub.is_inherited() || WARNING.try_with(|w| w.replace(true)).unwrap_or(true) {
            return;
        }
        let text = format!("{} was never awaited: nothing was done", self.name);
        let _ = Python::try_attach(|py| {
            let text = CString::new(text).unwrap_or_default();
            if let Err(e) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
                e.write_unraisable(py, None);
            }
        });
        let _ = WARNING.try_with(|w| w.set(false));
    }
}
