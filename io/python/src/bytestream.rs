//! Connections as streams of bytes, for transports of asyncio: asked by functions that never wait,
//! which are called when it is worth asking again.

use crate::connection::{Connection, Held};
use crate::errors;
use crate::hub::{Hub, Slot};
use crate::operation::Operation;
use neater::ConnectionError;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What is read at a time.
const MOST: usize = 256 << 10;

std::thread_local! {
    /// What is read before its length is known. Once for all streams of a thread.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One direction: the callback's slot, and the waker that leads there.
struct Side {
    slot: Arc<Slot>,
    waker: Waker,
}

impl Side {
    fn new(hub: &Arc<Hub>) -> Self {
        let slot = Arc::<Slot>::default();
        let waker = hub.waker(&slot);
        Self { slot, waker }
    }
}

/// A connection as a stream of bytes.
#[pyclass(frozen, module = "neater", weakref)]
pub(crate) struct ByteStream {
    hub: Arc<Hub>,
    held: Arc<Held>,
    reads: Side,
    writes: Side,
}

impl ByteStream {
    pub(crate) fn of(hub: &Arc<Hub>, connection: neater::Connection) -> PyResult<Self> {
        match connection.into_bytes() {
            Ok(bytes) => Ok(Self::new(hub, bytes)),
            Err((_, e)) => Err(errors::connection(hub, &e)),
        }
    }

    pub(crate) fn new(hub: &Arc<Hub>, bytes: neater::ByteStream) -> Self {
        let held = Arc::new(Held::Bytes(bytes));
        Self { hub: hub.clone(), held, reads: Side::new(hub), writes: Side::new(hub) }
    }

    pub(crate) fn object(hub: &Arc<Hub>, py: Python<'_>, connection: neater::Connection) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self::of(hub, connection)?)?.into_any())
    }

    fn bytes(&self) -> PyResult<&neater::ByteStream> {
        match &*self.held {
            Held::Bytes(b) => Ok(b),
            Held::Messages(_) => Err(PyRuntimeError::new_err("this connection has no stream of bytes")),
        }
    }

    /// Asks until there is an answer that is not for the sake of others alone.
    fn read(&self, buf: &mut [u8]) -> PyResult<Option<usize>> {
        let stream = self.bytes()?;
        self.reads.slot.reset();
        match stream.poll_read_bytes(&mut Context::from_waker(&self.reads.waker), buf) {
            Poll::Ready(Ok(n)) => Ok(Some(n)),
            Poll::Ready(Err(ConnectionError::Closed)) => Ok(Some(0)),
            Poll::Ready(Err(e)) => Err(errors::connection(&self.hub, &e)),
            Poll::Pending => Ok(None),
        }
    }
}

#[allow(unsafe_code, reason = "the memory of another object, which it lends for as long as the view lives")]
fn fill(view: &PyBuffer<u8>, with: &[u8]) {
    let n = with.len().min(view.len_bytes());
    // SAFETY: the view is writable, contiguous and at least `n` bytes long, and its owner may not
    // move the memory while the view is there. The interpreter is held, so that no other code of
    // Python's runs; `with` is memory of this module.
    unsafe { core::ptr::copy_nonoverlapping(with.as_ptr(), view.buf_ptr().cast::<u8>(), n) };
}

#[pymethods]
impl ByteStream {
    /// The connection behind it.
    #[getter]
    fn connection(&self) -> Connection {
        Connection::held(&self.hub, self.held.clone())
    }

    /// Has the loop that drives keep `transport` alive, or, without `keeps`, keep it no longer.
    #[pyo3(signature = (transport, keeps=true))]
    fn keep(&self, transport: &Bound<'_, PyAny>, keeps: bool) -> PyResult<()> {
        self.hub.keep(transport.py(), transport, keeps)
    }

    /// Calls `callback` when a read that had nothing may have something; None: nothing is called.
    fn on_readable(&self, callback: Option<Py<PyAny>>) {
        self.reads.slot.call(callback);
    }

    /// Calls `callback` when a write that took nothing may take something; None: nothing is called.
    fn on_writable(&self, callback: Option<Py<PyAny>>) {
        self.writes.slot.call(callback);
    }

    /// What there is, at most `max` bytes; empty at the end; None where nothing is there, and then
    /// `on_readable` is called.
    #[pyo3(signature = (max=262144))]
    fn try_read<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        SCRATCH.with(|scratch| {
            let mut scratch = scratch.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("read within a read"))?;
            let max = max.clamp(1, MOST);
            if scratch.len() < max {
                scratch.resize(max, 0);
            }
            let Some(buf) = scratch.get_mut(..max) else { return Ok(None) };
            Ok(self.read(buf)?.and_then(|n| buf.get(..n)).map(|read| PyBytes::new(py, read)))
        })
    }

    /// Reads into a writable buffer: how many bytes; 0 at the end; None where nothing is there.
    fn try_read_into(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let view = PyBuffer::<u8>::get(buffer)?;
        if view.readonly() || !view.is_c_contiguous() {
            return Err(PyBufferError::new_err("a writable, contiguous buffer is needed"));
        }
        if view.len_bytes() == 0 {
            return Ok(Some(0));
        }
        SCRATCH.with(|scratch| {
            let mut scratch = scratch.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("read within a read"))?;
            let max = view.len_bytes().min(MOST);
            if scratch.len() < max {
                scratch.resize(max, 0);
            }
            let Some(buf) = scratch.get_mut(..max) else { return Ok(None) };
            let Some(n) = self.read(buf)? else { return Ok(None) };
            fill(&view, buf.get(..n).unwrap_or_default());
            Ok(Some(n))
        })
    }

    /// Writes some of a bytes-like object: how many bytes; None where there is no room, and then
    /// `on_writable` is called.
    fn try_write(&self, data: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let stream = self.bytes()?;
        let write = |buf: &[u8]| {
            self.writes.slot.reset();
            match stream.poll_write_bytes(&mut Context::from_waker(&self.writes.waker), &[IoSlice::new(buf)]) {
                Poll::Ready(Ok(n)) => Ok(Some(n)),
                Poll::Ready(Err(e)) => Err(errors::send(&self.hub, &e)),
                Poll::Pending => Ok(None),
            }
        };
        match data.cast::<PyBytes>() {
            Ok(bytes) => write(bytes.as_bytes()),
            // A view of `bytes` is not copied; what could change meanwhile is.
            Err(_) => write(&crate::buffers::data(data)?),
        }
    }

    /// Ends this side's direction, and waits until that end needs this process no more.
    fn end(&self) -> Operation {
        let (hub, held) = (self.hub.clone(), self.held.clone());
        let work = async move {
            match &*held {
                Held::Bytes(b) => b.end().await.map_err(|e| e.to_string()),
                Held::Messages(_) => Ok(()),
            }
        };
        Operation::new(&self.hub, "end()", work, move |py, r| match r {
            Ok(()) => Ok(py.None()),
            Err(_) if hub.is_inherited() => Err(errors::forked()),
            Err(e) => Err(pyo3::exceptions::PyConnectionError::new_err(e)),
        })
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        self.reads.slot.traverse(&visit)?;
        self.writes.slot.traverse(&visit)
    }

    fn __clear__(&self) {
        self.reads.slot.clear();
        self.writes.slot.clear();
    }

    fn __repr__(&self) -> String {
        let remote = self.held.remote_addr().map_or_else(String::new, |a| format!(" to {a}"));
        format!("<neater.ByteStream{remote}>")
    }
}
