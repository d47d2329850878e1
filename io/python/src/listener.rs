//! Listeners and groups.

use crate::bytestream::ByteStream;
use crate::connection::Connection;
use crate::errors;
use crate::facts::Delivery;
use crate::hub::Hub;
use crate::operation::Operation;
use neater::{Accepted, StreamDirection};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use std::sync::Arc;

/// Receives connections.
#[pyclass(frozen, module = "neater", weakref)]
pub(crate) struct Listener {
    hub: Arc<Hub>,
    inner: Arc<neater::Listener>,
}

impl Listener {
    pub(crate) fn new(hub: &Arc<Hub>, inner: neater::Listener) -> Self {
        Self { hub: hub.clone(), inner: Arc::new(inner) }
    }

    fn accepting(&self, ends: bool) -> Operation {
        let (hub, l) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "accept()", async move { l.accept_any().await }, move |py, r| match r {
            Some(Accepted::Connection(c)) => Connection::object(&hub, py, c),
            Some(Accepted::Group(g)) => Ok(Py::new(py, Group::new(&hub, g))?.into_any()),
            None if ends => Err(PyStopAsyncIteration::new_err(())),
            None => Ok(py.None()),
        })
    }
}

#[pymethods]
impl Listener {
    fn accept(&self) -> Operation {
        self.accepting(false)
    }

    /// The next connection as a stream of bytes.
    fn accept_bytes(&self) -> Operation {
        let (hub, l) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "accept_bytes()", async move { l.accept().await }, move |py, r| match r {
            Some(c) => ByteStream::object(&hub, py, c),
            None => Ok(py.None()),
        })
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Operation {
        self.accepting(true)
    }

    #[getter]
    fn local_addresses(&self) -> Vec<(&'static str, String, u16)> {
        let all = self.inner.local_addrs();
        all.into_iter().map(|(stack, a)| (stack.as_str(), a.ip().to_string(), a.port())).collect()
    }

    #[getter]
    fn port(&self) -> u16 {
        self.inner.port()
    }

    #[getter]
    fn udp_ports(&self) -> Vec<u16> {
        self.inner.udp_ports()
    }

    fn set_new_connection_limit(&self, limit: Option<u64>) {
        self.inner.set_new_connection_limit(limit);
    }

    fn deliver_groups(&self, groups: bool) {
        self.inner.deliver_groups(groups);
    }

    fn stop(&self) {
        self.inner.stop();
    }

    fn __repr__(&self) -> String {
        format!("<neater.Listener at port {}>", self.inner.port())
    }
}

/// The connections that share a transport connection.
#[pyclass(frozen, module = "neater", weakref)]
pub(crate) struct Group {
    hub: Arc<Hub>,
    inner: Arc<neater::Group>,
}

impl Group {
    pub(crate) fn new(hub: &Arc<Hub>, inner: neater::Group) -> Self {
        Self { hub: hub.clone(), inner: Arc::new(inner) }
    }

    fn accepting(&self, ends: bool) -> Operation {
        let (hub, g) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "accept()", async move { g.accept().await }, move |py, r| match r {
            Ok(c) => Connection::object(&hub, py, c),
            Err(neater::ConnectionError::Closed) if ends => Err(PyStopAsyncIteration::new_err(())),
            Err(e) => Err(errors::connection(&hub, &e)),
        })
    }
}

#[pymethods]
impl Group {
    fn accept(&self) -> Operation {
        self.accepting(false)
    }

    /// The next stream that the peer opened, as a stream of bytes.
    fn accept_bytes(&self) -> Operation {
        let (hub, g) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "accept_bytes()", async move { g.accept().await }, move |py, r| match r {
            Ok(c) => ByteStream::object(&hub, py, c),
            Err(e) => Err(errors::connection(&hub, &e)),
        })
    }

    /// A stream of ours, as a stream of bytes.
    #[pyo3(signature = (*, one_way=false))]
    fn open_bytes(&self, one_way: bool) -> PyResult<ByteStream> {
        let direction = if one_way { StreamDirection::One } else { StreamDirection::Both };
        let made = self.inner.open(direction).map_err(|e| errors::establishment(&self.hub, e))?;
        ByteStream::of(&self.hub, made)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Operation {
        self.accepting(true)
    }

    #[pyo3(signature = (*, one_way=false))]
    fn open(&self, one_way: bool) -> PyResult<Connection> {
        let direction = if one_way { StreamDirection::One } else { StreamDirection::Both };
        let made = self.inner.open(direction).map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(Connection::new(&self.hub, made))
    }

    #[getter]
    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }

    #[getter]
    fn stack(&self) -> Option<&'static str> {
        self.inner.stack().map(neater::Stack::as_str)
    }

    #[getter]
    fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    #[getter]
    fn alpn(&self) -> Option<String> {
        self.inner.alpn().map(|a| String::from_utf8_lossy(&a).into_owned())
    }

    #[getter]
    fn remote_address(&self) -> Option<(String, u16)> {
        self.inner.remote_addr().map(|a| (a.ip().to_string(), a.port()))
    }

    fn delivery(&self) -> Option<Delivery> {
        self.inner.delivery().map(Delivery::from)
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn close(&self) {
        self.inner.close();
    }

    fn abort(&self) {
        self.inner.abort();
    }

    #[pyo3(signature = (code, reason=None))]
    fn close_session(&self, code: u64, reason: Option<&[u8]>) {
        self.inner.close_session(code, reason.unwrap_or_default());
    }

    fn __repr__(&self) -> String {
        format!("<neater.Group of {} connections over {}>", self.inner.len(), self.stack().unwrap_or("nothing"))
    }
}
