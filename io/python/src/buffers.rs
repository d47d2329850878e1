//! Bytes of Python as bytes of the engine, without a copy where they cannot change.

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// From this many bytes on, keeping a reference costs less than a copy.
const KEPT: usize = 512;

/// A `bytes` object that the engine keeps until it is sent. Its memory does not move or change
/// while there is a reference.
struct Kept {
    object: Py<PyBytes>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // Dropped, and read, by threads that have the interpreter or not: what is needed of the
        // object is its address, which was taken when it was there.
        slice(&self.object, self.at, self.len)
    }
}

#[allow(unsafe_code, reason = "the bytes of an object that is immutable and alive, without asking the interpreter")]
fn slice(_keeps: &Py<PyBytes>, at: usize, len: usize) -> &[u8] {
    // SAFETY: `at` and `len` are within the memory of the `bytes` object that `_keeps` keeps alive
    // for as long as the result lives; CPython neither moves nor changes it.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), len) }
}

fn keep(object: &Bound<'_, PyBytes>, at: usize, len: usize) -> Bytes {
    Bytes::from_owner(Kept { object: object.clone().unbind(), at, len })
}

/// The bytes of a bytes-like object. A `bytes` object, and a view of one, is kept and not copied;
/// what could change is copied.
pub(crate) fn data(of: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = of.cast::<PyBytes>() {
        let own = bytes.as_bytes();
        if own.len() < KEPT {
            return Ok(Bytes::copy_from_slice(own));
        }
        return Ok(keep(bytes, own.as_ptr().expose_provenance(), own.len()));
    }
    if let Ok(message) = of.cast::<crate::message::Message>() {
        return Ok(message.get().bytes());
    }
    if of.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("a message is bytes: encode the text"));
    }
    let buffer = PyBuffer::<u8>::get(of)
        .map_err(|_| PyTypeError::new_err(format!("a bytes-like object is needed, not {}", of.get_type())))?;
    let py = of.py();
    if buffer.readonly()
        && buffer.is_c_contiguous()
        && buffer.len_bytes() >= KEPT
        && let Ok(view) = of.cast::<PyMemoryView>()
        && let Ok(owner) = view.getattr(pyo3::intern!(py, "obj"))
        && let Ok(bytes) = owner.cast::<PyBytes>()
    {
        return Ok(keep(bytes, buffer.buf_ptr().expose_provenance(), buffer.len_bytes()));
    }
    Ok(buffer.to_vec(py)?.into())
}
