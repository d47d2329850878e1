//! Messages and their contexts.

use crate::{errors, values};
use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyKeyError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::{c_int, c_void};

/// The properties of a message that is sent, and what is known of one that was received.
#[pyclass(module = "neater", weakref)]
#[derive(Clone, Default)]
pub(crate) struct MessageContext(pub(crate) neater::MessageContext);

#[pymethods]
impl MessageContext {
    #[new]
    #[pyo3(signature = (*, stream=None, payload_protocol=None, **properties))]
    fn new(
        stream: Option<u16>,
        payload_protocol: Option<u32>,
        properties: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut context = neater::MessageContext::new();
        if let Some(stream) = stream {
            context = context.on_stream(stream);
        }
        if let Some(ppid) = payload_protocol {
            context = context.with_payload_protocol(ppid);
        }
        let mut this = Self(context);
        for (name, value) in properties.into_iter().flatten() {
            this.add(&name.extract::<String>()?, &value)?;
        }
        Ok(this)
    }

    fn add(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.add(name, values::value(value)?).map_err(|e| errors::set(&e))?;
        Ok(())
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let value = self.0.get(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        values::object(py, value)
    }

    #[getter]
    fn is_final(&self) -> bool {
        self.0.is_final()
    }

    #[getter]
    fn is_early_data(&self) -> bool {
        self.0.is_early_data()
    }

    #[getter]
    fn stream(&self) -> Option<u16> {
        self.0.stream()
    }

    #[getter]
    fn payload_protocol(&self) -> Option<u32> {
        self.0.payload_protocol()
    }

    #[getter]
    fn message_number(&self) -> Option<u64> {
        self.0.message_number()
    }

    #[getter]
    fn ecn(&self) -> Option<&'static str> {
        use neater_base::net::Ecn;
        self.0.ecn().map(|e| match e {
            Ecn::NotEct => "not-ect",
            Ecn::Ect1 => "ect1",
            Ecn::Ect0 => "ect0",
            Ecn::Ce => "ce",
        })
    }

    #[getter]
    fn remote_address(&self) -> Option<String> {
        self.0.remote_endpoint().map(|e| e.to_string())
    }

    #[getter]
    fn local_address(&self) -> Option<String> {
        self.0.local_addr().map(|a| a.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<MessageContext from {}>", self.remote_address().unwrap_or_else(|| "here".to_owned()))
    }
}

/// A received message: a read-only buffer, whose memory is that of the engine.
#[pyclass(frozen, module = "neater", weakref)]
pub(crate) struct Message(neater::Message);

impl Message {
    pub(crate) fn of(message: neater::Message) -> Self {
        Self(message)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.0.data.clone()
    }
}

#[pymethods]
impl Message {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.data)
    }

    #[getter]
    fn context(&self) -> MessageContext {
        MessageContext(self.0.context.clone())
    }

    #[getter]
    fn end_of_message(&self) -> bool {
        self.0.end_of_message
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.data(py)
    }

    fn __len__(&self) -> usize {
        self.0.data.len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<Self>() {
            return Ok(other.get().0.data == self.0.data);
        }
        match other.cast::<PyBytes>() {
            Ok(bytes) => Ok(bytes.as_bytes() == &self.0.data[..]),
            Err(_) => Ok(false),
        }
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.data(py).hash()
    }

    fn __repr__(&self) -> String {
        let shown: String =
            self.0.data.iter().take(32).flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
        let more = if self.0.data.len() > 32 { "..." } else { "" };
        format!("<Message of {} bytes: b\"{shown}{more}\">", self.0.data.len())
    }

    #[allow(unsafe_code, reason = "the buffer protocol is a C interface")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a received message is read-only"));
        }
        let (at, len) = {
            let data = &slf.get().0.data;
            (data.as_ptr().cast_mut().cast::<c_void>(), isize::try_from(data.len()))
        };
        let len = len.map_err(|_| PyTypeError::new_err("too long for a buffer"))?;
        // SAFETY: the interpreter gives a view to be filled. The memory is that of the message,
        // which is immutable and, being frozen, is never replaced; the view gets a reference that
        // keeps the message alive until it is released.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at, len, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::take(slf.py()).unwrap_or_else(|| PyBufferError::new_err("no such view"))),
        }
    }
}
