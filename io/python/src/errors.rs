//! Errors as exceptions. The classes are written in Python (`neater/errors.py`), where their
//! documentation is.

use crate::facts::Candidate;
use crate::hub::Hub;
use neater::{ConnectionError, ErrorKind, EstablishmentError, SendError, SetPropertyError};
use neater_property::PropertyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyModule::import(py, "neater.errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

fn raise(name: &str, text: String, details: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
    Python::attach(|py| {
        let made = || {
            let kwargs = PyDict::new(py);
            details(&kwargs)?;
            class(py, name)?.call((text,), Some(&kwargs))
        };
        made().map_or_else(|e| e, PyErr::from_value)
    })
}

/// What a child of `fork` is answered.
pub(crate) fn forked() -> PyErr {
    raise(
        "ForkedError",
        "this transport system belongs to the parent of this process: make one of your own after fork".to_owned(),
        |_| Ok(()),
    )
}

pub(crate) fn establishment(hub: &Hub, e: EstablishmentError) -> PyErr {
    if hub.is_inherited() {
        return forked();
    }
    raise("EstablishmentError", e.to_string(), |d| {
        let candidates: Vec<Candidate> = e.candidates.into_iter().map(Candidate::from).collect();
        d.set_item("reason", e.reason.as_str().replace(' ', "-"))?;
        d.set_item("message", e.message)?;
        d.set_item("candidates", candidates)?;
        d.set_item("excluded", e.excluded)?;
        d.set_item("resolution", e.resolution)
    })
}

/// The kind of a connection's error in a word, and the code that the peer gave.
fn kind(e: &ConnectionError) -> (&'static str, Option<u64>) {
    match e {
        ConnectionError::Net(e) => match e.kind {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ("reset", None),
            ErrorKind::TimedOut => ("timed-out", None),
            _ => ("net", None),
        },
        ConnectionError::Tls(_) => ("tls", None),
        ConnectionError::Quic(_) => ("quic", None),
        ConnectionError::Sctp(_) => ("sctp", None),
        ConnectionError::Truncated => ("truncated", None),
        ConnectionError::StreamReset(code) => ("stream-reset", Some(*code)),
        ConnectionError::Framer(_) => ("framer", None),
        ConnectionError::LocalAbort => ("local-abort", None),
        ConnectionError::TimedOut => ("timed-out", None),
        ConnectionError::Closed => ("closed", None),
        ConnectionError::NotReady => ("not-ready", None),
        ConnectionError::Unsupported(_) => ("unsupported", None),
        _ => ("other", None),
    }
}

pub(crate) fn connection(hub: &Hub, e: &ConnectionError) -> PyErr {
    if hub.is_inherited() {
        return forked();
    }
    let (kind, code) = kind(e);
    raise("ConnectionError", e.to_string(), |d| {
        d.set_item("kind", kind)?;
        d.set_item("code", code)
    })
}

pub(crate) fn send(hub: &Hub, e: &SendError) -> PyErr {
    if hub.is_inherited() {
        return forked();
    }
    let (kind, limit) = match e {
        SendError::Connection(e) => return connection(hub, e),
        SendError::Blocked { room } => ("blocked", Some(*room)),
        SendError::MessageTooLarge { max } => ("message-too-large", Some(*max)),
        SendError::AfterFinal => ("after-final", None),
        SendError::InvalidMessageProperties(_) => ("invalid-message-properties", None),
        SendError::Framer(_) => ("framer", None),
        SendError::Unfinished => ("unfinished", None),
        SendError::Expired => ("expired", None),
        _ => ("other", None),
    };
    raise("SendError", e.to_string(), |d| {
        d.set_item("kind", kind)?;
        d.set_item("limit", limit)
    })
}

/// An endpoint, a need or a scenario that cannot be read.
pub(crate) fn value(e: impl core::fmt::Display) -> PyErr {
    raise("PropertyError", e.to_string(), |d| d.set_item("kind", "parse"))
}

const fn property_kind(e: &PropertyError) -> &'static str {
    match e {
        PropertyError::Unknown { .. } => "unknown",
        PropertyError::Invalid { .. } => "invalid",
        PropertyError::ReadOnly { .. } => "read-only",
    }
}

/// A property that there is not, or that is not as it should be.
pub(crate) fn set(e: &PropertyError) -> PyErr {
    raise("PropertyError", e.to_string(), |d| d.set_item("kind", property_kind(e)))
}

/// A property that cannot be set on a connection.
pub(crate) fn property(hub: &Hub, name: &str, e: &SetPropertyError) -> PyErr {
    if hub.is_inherited() {
        return forked();
    }
    let kind = if neater_property::lookup(name).is_some() { "invalid" } else { "unknown" };
    raise("PropertyError", e.to_string(), |d| d.set_item("kind", kind))
}

pub(crate) fn security(e: impl core::fmt::Display) -> PyErr {
    raise("SecurityError", e.to_string(), |_| Ok(()))
}

/// A change of endpoints that was refused.
pub(crate) fn endpoint(hub: &Hub, e: neater::EndpointError) -> PyErr {
    if hub.is_inherited() {
        return forked();
    }
    raise("EndpointError", e.to_string(), |_| Ok(()))
}
