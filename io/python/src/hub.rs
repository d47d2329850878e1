//! What drives a transport system from Python: its one descriptor as a reader of an event loop, or
//! poll(2).
//!
//! *Responsible for* waking what waits. A waker may ring on any thread, with or without the
//! interpreter: it notes the slot, and the thread of the loop wakes what waits there after a turn,
//! or soon if there is no turn under way.

use neater::Driver;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PySet, PyWeakrefMethods, PyWeakrefReference};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// How many waiters are woken in one turn of an event loop: what they do next keeps the loop's
/// other tasks waiting, a tenth of a millisecond each where they open connections.
const WAKES: usize = 8;

/// What is to be done for a waiter.
pub(crate) enum Target {
    /// Set the result of this future of asyncio's.
    Future(Py<PyAny>),
    /// Call this, now and whenever it is woken.
    Callback(Py<PyAny>),
}

#[derive(Default)]
struct SlotState {
    woken: bool,
    queued: bool,
    target: Option<Target>,
}

/// The place of a waiter, which alone owns it: a waker that the engine keeps does not, since from
/// an asyncio future a way may lead back to the engine, which no collector of garbage would see.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets that it was woken: what follows asks again.
    pub(crate) fn reset(&self) {
        self.lock().woken = false;
    }

    /// Whether it was woken since [`Slot::reset`].
    pub(crate) fn is_woken(&self) -> bool {
        self.lock().woken
    }

    /// Waits with this, unless it was woken already: then it comes back.
    pub(crate) fn aim(&self, target: Target) -> Result<(), Target> {
        let mut state = self.lock();
        if state.woken {
            return Err(target);
        }
        state.target = Some(target);
        Ok(())
    }

    /// Sets what is called, whether it was woken or not.
    pub(crate) fn call(&self, callback: Option<Py<PyAny>>) {
        let before = core::mem::replace(&mut self.lock().target, callback.map(Target::Callback));
        drop(before);
    }

    /// Nothing is waited for any more.
    pub(crate) fn clear(&self) {
        let before = self.lock().target.take();
        drop(before);
    }

    /// For the collector of garbage.
    pub(crate) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        if let Ok(state) = self.state.try_lock()
            && let Some(Target::Future(object) | Target::Callback(object)) = &state.target
        {
            visit.call(object)?;
        }
        Ok(())
    }
}

/// A waker of a slot.
struct Bell {
    hub: Weak<Hub>,
    slot: Weak<Slot>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (Some(slot), Some(hub)) = (self.slot.upgrade(), self.hub.upgrade()) else { return };
        {
            let mut state = slot.lock();
            state.woken = true;
            if core::mem::replace(&mut state.queued, true) {
                return;
            }
        }
        hub.ring(self.slot.clone());
    }
}

/// An event loop that drives.
struct Host {
    /// Weak: the loop has the reader, which has the hub.
    of: Py<PyWeakrefReference>,
    /// What wakes, for the loop to call.
    drain: Py<PyAny>,
    /// Weak: the set of what the loop keeps alive, which lies beside the reader in the loop.
    kept: Py<PyWeakrefReference>,
}

/// The driver of one transport system.
pub(crate) struct Hub {
    driver: Driver,
    process: u32,
    ready: Mutex<VecDeque<Weak<Slot>>>,
    /// Those that are ready will be woken without anything more.
    busy: AtomicBool,
    host: Mutex<Option<Host>>,
    /// Wakes a thread that waits in [`Hub::pause`].
    poke: OnceLock<OwnedFd>,
}

impl Hub {
    pub(crate) fn new(driver: Driver) -> Arc<Self> {
        Arc::new(Self {
            driver,
            process: std::process::id(),
            ready: Mutex::new(VecDeque::new()),
            busy: AtomicBool::new(false),
            host: Mutex::new(None),
            poke: OnceLock::new(),
        })
    }

    /// Whether this is a child of the process that made it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.driver.as_raw_fd()
    }

    pub(crate) fn waker(self: &Arc<Self>, slot: &Arc<Slot>) -> Waker {
        Waker::from(Arc::new(Bell { hub: Arc::downgrade(self), slot: Arc::downgrade(slot) }))
    }

    fn host(&self) -> MutexGuard<'_, Option<Host>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Weak<Slot>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are woken now, the oldest first.
    fn take_ready(&self) -> Vec<Weak<Slot>> {
        let most = if self.host().is_some() { WAKES } else { usize::MAX };
        let mut ready = self.ready();
        let count = ready.len().min(most);
        ready.drain(..count).collect()
    }

    fn ring(&self, slot: Weak<Slot>) {
        self.ready().push_back(slot);
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(fd) = self.poke.get() {
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
        // Fails where the interpreter ends: then nothing waits any more.
        let _ = Python::try_attach(|py| {
            let of = self.host().as_ref().map(|h| (h.of.clone_ref(py), h.drain.clone_ref(py)));
            let Some((of, drain)) = of else { return };
            let Some(of) = of.bind(py).upgrade() else { return };
            // Fails when the loop is closed: then nothing waits on it any more.
            let _ = of.call_method1(intern!(py, "call_soon_threadsafe"), (drain,));
        });
    }

    /// The loop that drives.
    pub(crate) fn running<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let of = match &*self.host() {
            Some(host) => host.of.clone_ref(py),
            None => return Ok(None),
        };
        match of.bind(py).upgrade() {
            Some(of) => Ok(Some(of)),
            None => Err(PyRuntimeError::new_err("the event loop of this transport system is gone")),
        }
    }

    /// Has an event loop drive: from now on its descriptor is a reader of that loop.
    pub(crate) fn attach(self: &Arc<Self>, py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_process()?;
        if let Some(other) = self.running(py).ok().flatten() {
            if other.is(of) {
                return Ok(());
            }
            return Err(PyRuntimeError::new_err("another event loop drives this transport system: detach it first"));
        }
        let weak = Arc::downgrade(self);
        let drain = PyCFunction::new_closure(py, Some(c"drain"), None, move |args, _| {
            if let Some(hub) = weak.upgrade() {
                hub.drain(args.py());
            }
        })?;
        let hub = self.clone();
        let turn = PyCFunction::new_closure(py, Some(c"turn"), None, move |args, _| hub.turn(args.py()))?;
        let kept = PySet::empty(py)?;
        let weak_kept = PyWeakrefReference::new(&kept)?.unbind();
        of.call_method1(intern!(py, "add_reader"), (self.descriptor(), turn, kept))?;
        let weak_of = PyWeakrefReference::new(of)?.unbind();
        *self.host() = Some(Host { of: weak_of, drain: drain.into_any().unbind(), kept: weak_kept });
        // What happened before now is not missed.
        self.busy.store(false, Ordering::Release);
        self.turn(py);
        Ok(())
    }

    /// Has the loop keep an object alive for as long as it drives, or keep it no longer, as
    /// asyncio's loops keep transports that are open.
    pub(crate) fn keep(&self, py: Python<'_>, object: &Bound<'_, PyAny>, keeps: bool) -> PyResult<()> {
        let kept = self.host().as_ref().map(|h| h.kept.clone_ref(py));
        let Some(kept) = kept.and_then(|k| k.bind(py).upgrade()) else { return Ok(()) };
        let name = if keeps { intern!(py, "add") } else { intern!(py, "discard") };
        kept.call_method1(name, (object,)).map(drop)
    }

    /// Has no event loop drive any more.
    pub(crate) fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let host = self.host().take();
        let Some(host) = host else { return Ok(()) };
        let Some(of) = host.of.bind(py).upgrade() else { return Ok(()) };
        if of.call_method0(intern!(py, "is_closed"))?.is_truthy()? {
            return Ok(());
        }
        of.call_method1(intern!(py, "remove_reader"), (self.descriptor(),)).map(drop)
    }

    /// Does what there is to do, and wakes what may go on.
    pub(crate) fn turn(&self, py: Python<'_>) {
        self.busy.store(true, Ordering::Release);
        let done = py.detach(|| {
            self.driver.turn();
            self.driver.is_done()
        });
        self.drain(py);
        if done {
            // Nothing is left, and no object can make more: the loop need not keep it.
            if let Err(e) = self.detach(py) {
                e.write_unraisable(py, None);
            }
        }
    }

    /// Whether everything that was made here is gone, and what was sent is delivered.
    pub(crate) fn is_done(&self) -> bool {
        self.driver.is_done()
    }

    /// Wakes what may go on.
    pub(crate) fn drain(&self, py: Python<'_>) {
        self.busy.store(false, Ordering::Release);
        for slot in self.take_ready() {
            let Some(slot) = slot.upgrade() else { continue };
            let (future, callback) = {
                let mut state = slot.lock();
                state.queued = false;
                match state.target.take() {
                    Some(Target::Future(f)) => (Some(f), None),
                    Some(Target::Callback(c)) => {
                        let call = c.clone_ref(py);
                        state.target = Some(Target::Callback(c));
                        (None, Some(call))
                    }
                    None => (None, None),
                }
            };
            if let Some(future) = future
                && let Err(e) = finish(future.bind(py))
            {
                // The loop was closed with tasks that wait: they cannot go on.
                e.write_unraisable(py, None);
            }
            if let Some(callback) = callback
                && let Err(e) = callback.call0(py)
            {
                self.report(py, e);
            }
        }
        self.drain_later(py);
    }

    /// Has the loop wake the rest when its other tasks have had their turn.
    fn drain_later(&self, py: Python<'_>) {
        if self.ready().is_empty() || self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let host = self.host().as_ref().map(|h| (h.of.clone_ref(py), h.drain.clone_ref(py)));
        let Some((of, drain)) = host else { return };
        let Some(of) = of.bind(py).upgrade() else { return };
        // Fails when the loop is closed: then nothing waits on it any more.
        let _ = of.call_method1(intern!(py, "call_soon"), (drain,));
    }

    /// Something that the program gave has failed: the loop's handler of exceptions decides.
    fn report(&self, py: Python<'_>, e: PyErr) {
        let Ok(Some(of)) = self.running(py) else { return e.write_unraisable(py, None) };
        let report = || {
            let context = PyDict::new(py);
            context.set_item("message", "exception in a callback of a neater connection")?;
            context.set_item("exception", e.clone_ref(py))?;
            of.call_method1(intern!(py, "call_exception_handler"), (context,))
        };
        if report().is_err() {
            e.write_unraisable(py, None);
        }
    }

    /// Waits until there is something to do, or until then. Only for a system that no loop drives.
    pub(crate) fn pause(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<bool> {
        self.check_process()?;
        if self.host().is_some() {
            return Err(PyRuntimeError::new_err(
                "an event loop drives this transport system: await there, or detach it first",
            ));
        }
        if self.poke.get().is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| pyo3::exceptions::PyOSError::new_err(e.to_string()))?;
            let _ = self.poke.set(fd);
            self.busy.store(false, Ordering::Release);
        }
        let Some(poke) = self.poke.get() else { return Ok(false) };
        if !self.ready().is_empty() {
            self.turn(py);
            return Ok(true);
        }
        loop {
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            let answer = py.detach(|| {
                let mut fds = [PollFd::new(&self.driver, PollFlags::IN), PollFd::new(poke, PollFlags::IN)];
                let timeout = left
                    .map(|l| Timespec { tv_sec: l.as_secs().min(1 << 31) as i64, tv_nsec: l.subsec_nanos().into() });
                poll(&mut fds, timeout.as_ref())
            });
            match answer {
                Ok(n) => {
                    let mut eight = [0; 8];
                    let _ = rustix::io::read(poke.as_fd(), &mut eight);
                    self.turn(py);
                    return Ok(n > 0);
                }
                // A handler of Python's may raise, as KeyboardInterrupt does.
                Err(Errno::INTR) => py.check_signals()?,
                Err(e) => return Err(pyo3::exceptions::PyOSError::new_err(e.to_string())),
            }
        }
    }

    pub(crate) fn check_process(&self) -> PyResult<()> {
        if self.is_inherited() {
            return Err(crate::errors::forked());
        }
        Ok(())
    }
}

/// Sets the result of a future that was not cancelled meanwhile.
fn finish(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    future.call_method1(intern!(py, "set_result"), (py.None(),)).map(drop)
}

/// A number of seconds as a length of time: none is for ever.
pub(crate) fn seconds(of: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(of) = of else { return Ok(None) };
    match Duration::try_from_secs_f64(of.max(0.0)) {
        Ok(d) if !of.is_nan() => Ok(Some(d)),
        _ => Err(pyo3::exceptions::PyValueError::new_err(format!("{of} is no number of seconds"))),
    }
}
