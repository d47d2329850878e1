//! Transport systems.

use crate::errors;
use crate::hub::{Hub, seconds};
use neater::Limits;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// One transport system.
#[pyclass(frozen, subclass, module = "neater", weakref)]
pub(crate) struct Neater {
    pub(crate) hub: Arc<Hub>,
    pub(crate) inner: neater::Neater,
}

fn limits(of: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    for (name, value) in of {
        let (name, value): (String, usize) = (name.extract()?, value.extract()?);
        let field = match name.as_str() {
            "send_buffer" => &mut limits.send_buffer,
            "engine_bytes" => &mut limits.engine_bytes,
            "send_floor" => &mut limits.send_floor,
            "datagram_buffer" => &mut limits.datagram_buffer,
            "message" => &mut limits.message,
            "handshakes" => &mut limits.handshakes,
            "unverified" => &mut limits.unverified,
            "untaken" => &mut limits.untaken,
            "udp_peers" => &mut limits.udp_peers,
            "sctp_per_source" => &mut limits.sctp_per_source,
            "connections" => &mut limits.connections,
            _ => return Err(PyValueError::new_err(format!("there is no limit `{name}`"))),
        };
        *field = value;
    }
    Ok(limits)
}

#[pymethods]
impl Neater {
    #[new]
    #[pyo3(signature = (
        *, limits=None, seed=None, reset_secret=None, sctp_ecn=false, resolv_conf=None, hosts=None, names=None,
        policies=None, strict_policies=false, without_policies=false, application=None, key_log=false, qlog_dir=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn new(
        limits: Option<&Bound<'_, PyDict>>,
        seed: Option<[u8; 32]>,
        reset_secret: Option<[u8; 32]>,
        sctp_ecn: bool,
        resolv_conf: Option<PathBuf>,
        hosts: Option<PathBuf>,
        names: Option<&str>,
        policies: Option<Vec<PathBuf>>,
        strict_policies: bool,
        without_policies: bool,
        application: Option<String>,
        key_log: bool,
        qlog_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let mut b = neater::Neater::builder().sctp_ecn(sctp_ecn);
        if let Some(of) = limits {
            b = b.limits(self::limits(of)?);
        }
        if let Some(seed) = seed {
            b = b.seed(seed);
        }
        if let Some(secret) = reset_secret {
            b = b.reset_secret(secret);
        }
        if let Some(path) = resolv_conf {
            b = b.resolv_conf(path);
        }
        if let Some(path) = hosts {
            b = b.hosts(path);
        }
        match names {
            None | Some("dns") => {}
            Some("system") => b = b.names_by_system(),
            Some(other) => {
                return Err(PyValueError::new_err(format!("names are found by `dns` or `system`, not `{other}`")));
            }
        }
        if let Some(folders) = policies {
            b = b.policies(folders);
        }
        if strict_policies {
            b = b.strict_policies();
        }
        if without_policies {
            b = b.without_policies();
        }
        if let Some(name) = application {
            b = b.application(name);
        }
        if key_log {
            b = b.key_log_from_environment();
        }
        if let Some(dir) = qlog_dir {
            b = b.qlog_dir(dir);
        }
        let (inner, driver) = b.without_driver().map_err(|e| PyOSError::new_err(e.to_string()))?;
        Ok(Self { hub: Hub::new(driver), inner })
    }

    /// The descriptor that becomes readable when there is something to do.
    fn fileno(&self) -> i32 {
        self.hub.descriptor()
    }

    /// Does what there is to do now; never blocks.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        self.hub.check_process()?;
        self.hub.turn(py);
        Ok(())
    }

    /// Waits until there is something to do, at most so many seconds, and does it.
    #[pyo3(signature = (timeout=None))]
    fn poll(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = seconds(timeout)?.and_then(|t| Instant::now().checked_add(t));
        self.hub.pause(py, until)
    }

    /// Has an event loop drive.
    fn attach(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        if !event_loop.hasattr("add_reader")? {
            return Err(PyTypeError::new_err("an event loop with add_reader is needed, as asyncio's are on Unix"));
        }
        self.hub.attach(py, event_loop)
    }

    /// Has no event loop drive any more.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        self.hub.detach(py)
    }

    /// The event loop that drives, if one does.
    #[getter]
    fn event_loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.hub.running(py)
    }

    /// Whether this is a child of the process that made it.
    #[getter]
    fn is_inherited(&self) -> bool {
        self.hub.is_inherited()
    }

    /// Whether every other object is gone and what was sent is delivered.
    #[getter]
    fn is_done(&self) -> bool {
        self.hub.is_done()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.inner.stats();
        let d = PyDict::new(py);
        let all = [
            ("connections", s.connections),
            ("channels", s.channels),
            ("quic_connections", s.quic_connections),
            ("sctp_associations", s.sctp_associations),
            ("bytes_queued", s.bytes_queued),
            ("receive_windows", s.receive_windows),
            ("send_windows", s.send_windows),
            ("timers", s.timers),
            ("groups", s.groups),
            ("listeners", s.listeners),
            ("initiated", s.initiated),
            ("established", s.established),
            ("failed", s.failed),
            ("attempts", s.attempts),
            ("cache_hits", s.cache_hits),
            ("received", s.received),
            ("foreign_datagrams", s.foreign_datagrams),
            ("refused", s.refused),
            ("unclaimed_datagrams", s.unclaimed_datagrams),
        ];
        for (name, n) in all {
            d.set_item(name, n)?;
        }
        Ok(d)
    }

    fn flush_caches(&self) {
        self.inner.flush_caches();
    }

    fn export_outcomes(&self) -> Option<String> {
        self.inner.export_outcomes()
    }

    fn import_outcomes(&self, text: &str) -> PyResult<usize> {
        self.inner.import_outcomes(text).map_err(|e| errors::value(format!("{e}")))
    }

    fn policy_sources(&self) -> Vec<String> {
        self.inner.policy_sources().iter().map(ToString::to_string).collect()
    }

    fn policy_profiles(&self) -> Vec<String> {
        self.inner.policy_profiles().into_iter().collect()
    }

    fn policy_faults(&self) -> Vec<(String, bool)> {
        self.inner.policy_faults().iter().map(|f| (f.to_string(), f.harmless)).collect()
    }

    /// Trusts these authorities, in PEM, in place of the system's, from the next Preconnection on.
    fn set_roots(&self, pem: &Bound<'_, PyBytes>) -> PyResult<()> {
        let mut roots = neater::tls::rustls::RootCertStore::empty();
        for certificate in neater::tls::certificates_from_pem(pem.as_bytes()).map_err(errors::security)? {
            roots.add(certificate).map_err(errors::security)?;
        }
        self.inner.set_roots(roots);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let s = self.inner.stats();
        format!("<neater.Neater: {} connections, {} listeners>", s.connections, s.listeners)
    }
}
