//! Connections.

use crate::facts::{Candidate, ConnectionStats, Delivery, Event, PathInfo, TimelineEntry};
use crate::hub::Hub;
use crate::listener::Group;
use crate::message::{Message, MessageContext};
use crate::operation::Operation;
use crate::preconnection::LocalEndpoint;
use crate::{buffers, errors, values};
use neater::{ConnectionState, ServiceOutcome, StreamDirection};
use pyo3::exceptions::{PyKeyError, PyStopAsyncIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A connection: messages in, messages out.
#[pyclass(frozen, module = "neater", weakref)]
pub(crate) struct Connection {
    hub: Arc<Hub>,
    inner: Arc<Held>,
}

/// What is held of a connection: its bytes have a way of their own.
pub(crate) enum Held {
    Messages(neater::Connection),
    Bytes(neater::ByteStream),
}

impl core::ops::Deref for Held {
    type Target = neater::Connection;
    fn deref(&self) -> &neater::Connection {
        match self {
            Self::Messages(c) => c,
            Self::Bytes(b) => b.connection(),
        }
    }
}

impl Connection {
    pub(crate) fn new(hub: &Arc<Hub>, inner: neater::Connection) -> Self {
        Self::held(hub, Arc::new(Held::Messages(inner)))
    }

    pub(crate) fn held(hub: &Arc<Hub>, inner: Arc<Held>) -> Self {
        Self { hub: hub.clone(), inner }
    }

    pub(crate) fn object(hub: &Arc<Hub>, py: Python<'_>, inner: neater::Connection) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self::new(hub, inner))?.into_any())
    }

    fn receiving(&self, name: &'static str, max: usize, whole: bool, ends: bool) -> Operation {
        let (hub, c) = (self.hub.clone(), self.inner.clone());
        let work = async move { if whole { c.receive().await } else { c.receive_partial(max).await } };
        Operation::new(&self.hub, name, work, move |py, r| match r {
            Ok(Some(m)) => Ok(Py::new(py, Message::of(m))?.into_any()),
            Ok(None) if ends => Err(PyStopAsyncIteration::new_err(())),
            Ok(None) => Ok(py.None()),
            Err(e) => Err(errors::connection(&hub, &e)),
        })
    }

    fn closing(&self, name: &'static str, close: bool) -> Operation {
        let (hub, c) = (self.hub.clone(), self.inner.clone());
        let work = async move { if close { c.close().await } else { c.closed().await } };
        Operation::new(&self.hub, name, work, move |py, r| match r {
            Ok(()) => Ok(py.None()),
            Err(e) => Err(errors::connection(&hub, &e)),
        })
    }
}

fn address(text: &str) -> PyResult<SocketAddr> {
    text.parse()
        .map_err(|_| PyValueError::new_err(format!("`{text}` is not ADDRESS:PORT, such as 192.0.2.1:443 or [::1]:443")))
}

#[pymethods]
impl Connection {
    /// The number that the connection has in its system.
    #[getter]
    fn id(&self) -> String {
        format!("{:?}", self.inner.id())
    }

    fn ready(&self) -> Operation {
        let (hub, c) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "ready()", async move { c.ready().await }, move |py, r| match r {
            Ok(()) => Ok(py.None()),
            Err(e) => Err(errors::establishment(&hub, e)),
        })
    }

    #[pyo3(signature = (data, context=None, *, end_of_message=None))]
    fn send(
        &self,
        data: &Bound<'_, PyAny>,
        context: Option<&MessageContext>,
        end_of_message: Option<bool>,
    ) -> PyResult<Operation> {
        let data = buffers::data(data)?;
        let context = context.map(|c| c.0.clone());
        let (hub, c) = (self.hub.clone(), self.inner.clone());
        let work = async move {
            match (context, end_of_message) {
                (None, None) => c.send(data).await,
                (Some(context), None) => c.send_with(data, &context).await,
                (context, Some(end)) => c.send_partial(data, &context.unwrap_or_default(), end).await,
            }
        };
        Ok(Operation::new(&self.hub, "send()", work, move |py, r| match r {
            Ok(id) => Ok(id.0.into_pyobject(py)?.into_any().unbind()),
            Err(e) => Err(errors::send(&hub, &e)),
        }))
    }

    #[pyo3(signature = (data, context=None))]
    fn try_send(&self, data: &Bound<'_, PyAny>, context: Option<&MessageContext>) -> PyResult<u64> {
        let data = buffers::data(data)?;
        let id = match context {
            Some(context) => self.inner.try_send(data, &context.0),
            None => self.inner.try_send(data, &neater::MessageContext::new()),
        };
        id.map(|id| id.0).map_err(|e| errors::send(&self.hub, &e))
    }

    fn start_batch(&self) {
        self.inner.start_batch();
    }

    fn end_batch(&self) {
        self.inner.end_batch();
    }

    fn receive(&self) -> Operation {
        self.receiving("receive()", usize::MAX, true, false)
    }

    #[pyo3(signature = (max=65536))]
    fn receive_partial(&self, max: usize) -> Operation {
        self.receiving("receive_partial()", max.max(1), false, false)
    }

    /// What has arrived, without waiting: whether something has, and then the message or None for
    /// the end.
    #[pyo3(signature = (max=None))]
    fn try_receive(&self, max: Option<usize>) -> PyResult<(bool, Option<Message>)> {
        for _ in 0..2 {
            let waker = Waker::noop();
            let mut cx = Context::from_waker(waker);
            match self.inner.poll_receive(&mut cx, max.unwrap_or(usize::MAX), max.is_none()) {
                Poll::Ready(Ok(m)) => return Ok((true, m.map(Message::of))),
                Poll::Ready(Err(e)) => return Err(errors::connection(&self.hub, &e)),
                Poll::Pending => {}
            }
        }
        Ok((false, None))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Operation {
        self.receiving("receive()", usize::MAX, true, true)
    }

    fn finish(&self) -> PyResult<()> {
        self.inner.finish().map_err(|e| errors::send(&self.hub, &e))
    }

    fn close(&self) -> Operation {
        self.closing("close()", true)
    }

    fn closed(&self) -> Operation {
        self.closing("closed()", false)
    }

    /// Begins to close, and does not wait.
    fn close_soon(&self) {
        let mut closing = Box::pin(self.inner.close());
        let _ = closing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    #[pyo3(signature = (code=None))]
    fn abort(&self, code: Option<u64>) {
        match code {
            Some(code) => self.inner.abort_with(code),
            None => self.inner.abort(),
        }
    }

    #[pyo3(signature = (code=0))]
    fn stop_receiving(&self, code: u64) {
        self.inner.stop_receiving(code);
    }

    #[pyo3(signature = (code=0))]
    fn reset_sending(&self, code: u64) {
        self.inner.reset_sending(code);
    }

    /// A connection in the same group.
    #[pyo3(signature = (*, one_way=false))]
    fn clone(&self, one_way: bool) -> PyResult<Self> {
        let direction = if one_way { StreamDirection::One } else { StreamDirection::Both };
        let made = self.inner.clone_in_direction(direction).map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(Self::new(&self.hub, made))
    }

    fn group(&self) -> PyResult<Group> {
        let group = self.inner.group().map_err(|e| errors::connection(&self.hub, &e))?;
        Ok(Group::new(&self.hub, group))
    }

    fn next_event(&self) -> Operation {
        let (hub, c) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "next_event()", async move { c.next_event().await }, move |py, r| match r {
            Some(e) => Ok(Py::new(py, Event::new(py, &hub, &e))?.into_any()),
            None => Ok(py.None()),
        })
    }

    /// Calls `callback` with every event from now on; first with what has become of the connection.
    fn on_event(&self, callback: Py<PyAny>) {
        self.inner.on_event(Event::reporter(&self.hub, callback));
    }

    #[getter]
    fn state(&self) -> &'static str {
        match self.inner.state() {
            ConnectionState::Establishing => "establishing",
            ConnectionState::Established => "established",
            ConnectionState::Closing => "closing",
            ConnectionState::Closed => "closed",
        }
    }

    #[getter]
    fn stack(&self) -> Option<&'static str> {
        self.inner.stack().map(neater::Stack::as_str)
    }

    #[getter]
    fn remote_address(&self) -> Option<(String, u16)> {
        self.inner.remote_addr().map(|a| (a.ip().to_string(), a.port()))
    }

    #[getter]
    fn local_address(&self) -> Option<(String, u16)> {
        self.inner.local_addr().map(|a| (a.ip().to_string(), a.port()))
    }

    #[getter]
    fn alpn(&self) -> Option<String> {
        self.inner.alpn().map(|a| String::from_utf8_lossy(&a).into_owned())
    }

    #[getter]
    fn security(&self) -> Option<String> {
        self.inner.security()
    }

    #[getter]
    fn peer_certificates<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.inner.peer_certificates().iter().map(|c| PyBytes::new(py, c)).collect()
    }

    #[getter]
    fn stream_number(&self) -> Option<u64> {
        self.inner.stream_number()
    }

    fn paths(&self) -> Vec<PathInfo> {
        self.inner.paths().into_iter().map(PathInfo::from).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.inner.candidates().into_iter().map(Candidate::from).collect()
    }

    fn timeline(&self) -> Vec<TimelineEntry> {
        self.inner.timeline().into_iter().map(TimelineEntry::from).collect()
    }

    fn stats(&self) -> Option<ConnectionStats> {
        self.inner.stats().map(ConnectionStats::from)
    }

    fn delivery(&self) -> Option<Delivery> {
        self.inner.delivery().map(Delivery::from)
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let value = self.inner.get(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        values::object(py, value)
    }

    fn set(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.inner.set(name, values::value(value)?).map_err(|e| errors::property(&self.hub, name, &e))
    }

    fn report(&self, outcome: &str) -> PyResult<()> {
        self.inner.report(match outcome {
            "answered" => ServiceOutcome::Answered,
            "silent" => ServiceOutcome::Silent,
            "broken" => ServiceOutcome::Broken,
            "wants-other" => ServiceOutcome::WantsOther,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "`{outcome}` is no outcome: answered, silent, broken or wants-other"
                )));
            }
        });
        Ok(())
    }

    fn add_remote(&self, remote: &str) -> PyResult<()> {
        self.inner.add_remote(address(remote)?).map_err(|e| errors::endpoint(&self.hub, e))
    }

    fn remove_remote(&self, remote: &str) -> PyResult<()> {
        self.inner.remove_remote(address(remote)?).map_err(|e| errors::endpoint(&self.hub, e))
    }

    fn add_local(&self, local: &LocalEndpoint) -> PyResult<()> {
        self.inner.add_local(&local.0).map_err(|e| errors::endpoint(&self.hub, e))
    }

    fn remove_local(&self, local: &LocalEndpoint) -> PyResult<()> {
        self.inner.remove_local(&local.0).map_err(|e| errors::endpoint(&self.hub, e))
    }

    fn __repr__(&self) -> String {
        let stack = self.stack().unwrap_or("no stack yet");
        let remote = self.inner.remote_addr().map_or_else(String::new, |a| format!(" to {a}"));
        format!("<neater.Connection {stack}{remote}: {}>", self.state())
    }
}
