//! What is known of connections, as values: nothing here changes once it is made.

use crate::hub::Hub;
use crate::{errors, values};
use neater::{CandidateOutcome, Fate, PlannedCandidate};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

fn seconds(of: Option<Duration>) -> Option<f64> {
    of.map(|d| d.as_secs_f64())
}

/// How a candidate fared, or would.
#[pyclass(frozen, get_all, module = "neater")]
pub(crate) struct Candidate {
    stack: &'static str,
    address: String,
    encapsulation_port: Option<u16>,
    started: Option<f64>,
    reachable: Option<f64>,
    ended: Option<f64>,
    doubt: Option<String>,
    fate: &'static str,
    error: Option<String>,
}

impl From<CandidateOutcome> for Candidate {
    fn from(c: CandidateOutcome) -> Self {
        let (fate, error) = match &c.fate {
            Fate::Won => ("won", None),
            Fate::NotStarted => ("not-started", None),
            Fate::Withdrawn => ("withdrawn", None),
            Fate::Running => ("no-answer", None),
            Fate::Failed(e) => ("failed", Some(e.to_string())),
        };
        Self {
            stack: c.stack.as_str(),
            address: c.addr.to_string(),
            encapsulation_port: c.encapsulation_port,
            started: seconds(c.started),
            reachable: seconds(c.reachable),
            ended: seconds(c.ended),
            doubt: c.doubt.map(|d| d.to_string()),
            fate,
            error,
        }
    }
}

impl From<PlannedCandidate> for Candidate {
    fn from(c: PlannedCandidate) -> Self {
        Self {
            stack: c.stack.as_str(),
            address: c.addr.to_string(),
            encapsulation_port: None,
            started: seconds(c.starts),
            reachable: None,
            ended: None,
            doubt: c.doubt.map(|d| d.to_string()),
            fate: if c.refused.is_some() { "failed" } else { "planned" },
            error: c.refused.map(|e| e.to_string()),
        }
    }
}

#[pymethods]
impl Candidate {
    fn __repr__(&self) -> String {
        let error = self.error.as_ref().map_or_else(String::new, |e| format!(": {e}"));
        format!("<Candidate {} to {}: {}{error}>", self.stack, self.address, self.fate)
    }
}

/// A step of establishment.
#[pyclass(frozen, get_all, module = "neater")]
pub(crate) struct TimelineEntry {
    at: f64,
    text: String,
}

impl From<neater::TimelineEntry> for TimelineEntry {
    fn from(e: neater::TimelineEntry) -> Self {
        Self { at: e.at.as_secs_f64(), text: e.step.to_string() }
    }
}

#[pymethods]
impl TimelineEntry {
    fn __repr__(&self) -> String {
        format!("<TimelineEntry {:.1} ms: {}>", self.at * 1e3, self.text)
    }
}

/// What would be tried.
#[pyclass(frozen, module = "neater")]
pub(crate) struct Plan(pub(crate) neater::Plan);

#[pymethods]
impl Plan {
    #[getter]
    fn candidates(&self) -> Vec<Candidate> {
        self.0.candidates.iter().cloned().map(Candidate::from).collect()
    }

    #[getter]
    fn timeline(&self) -> Vec<TimelineEntry> {
        self.0.timeline.iter().cloned().map(TimelineEntry::from).collect()
    }

    #[getter]
    fn resolution(&self) -> Vec<String> {
        self.0.resolution.clone()
    }

    #[getter]
    fn excluded(&self) -> Vec<String> {
        self.0.excluded.clone()
    }

    /// In lines of plain text.
    fn __str__(&self) -> String {
        let step = |e: &neater::TimelineEntry| format!("{:7.1} ms  {}", e.at.as_secs_f64() * 1e3, e.step);
        let lines = self.0.timeline.iter().map(step);
        lines
            .chain(self.0.resolution.iter().cloned())
            .chain(self.0.excluded.iter().cloned())
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn __repr__(&self) -> String {
        format!("<Plan: {} candidates>", self.0.candidates.len())
    }
}

/// Figures of a connection.
#[pyclass(frozen, get_all, module = "neater")]
#[derive(Debug)]
pub(crate) struct ConnectionStats {
    bytes_sent: u64,
    bytes_received: u64,
    messages_sent: u64,
    messages_received: u64,
    datagrams_dropped: u64,
    establishment: f64,
    rtt: Option<f64>,
    congestion_window: Option<u64>,
    queued: usize,
    ended: bool,
}

impl From<neater::ConnectionStats> for ConnectionStats {
    fn from(s: neater::ConnectionStats) -> Self {
        Self {
            bytes_sent: s.bytes_sent,
            bytes_received: s.bytes_received,
            messages_sent: s.messages_sent,
            messages_received: s.messages_received,
            datagrams_dropped: s.datagrams_dropped,
            establishment: s.establishment.as_secs_f64(),
            rtt: seconds(s.rtt),
            congestion_window: s.congestion_window,
            queued: s.queued,
            ended: s.ended,
        }
    }
}

#[pymethods]
impl ConnectionStats {
    fn __repr__(&self) -> String {
        format!("<{self:?}>")
    }
}

/// How far what was sent has come.
#[pyclass(frozen, get_all, module = "neater")]
#[derive(Debug)]
pub(crate) struct Delivery {
    acknowledged: u64,
    pending: u64,
    received: u64,
}

impl From<neater::Delivery> for Delivery {
    fn from(d: neater::Delivery) -> Self {
        Self { acknowledged: d.acknowledged, pending: d.pending, received: d.received }
    }
}

#[pymethods]
impl Delivery {
    fn __repr__(&self) -> String {
        format!("<{self:?}>")
    }
}

/// A path of a connection.
#[pyclass(frozen, get_all, module = "neater")]
#[derive(Debug)]
pub(crate) struct PathInfo {
    local: String,
    remote: String,
    interface: Option<String>,
    state: String,
    why: Option<&'static str>,
    rtt: Option<f64>,
    window: u64,
    in_flight: u64,
    sent: u64,
    lost: u64,
    delivered: u64,
    received: u64,
}

impl From<neater::PathInfo> for PathInfo {
    fn from(p: neater::PathInfo) -> Self {
        Self {
            local: p.local.to_string(),
            remote: p.remote.to_string(),
            interface: p.interface,
            state: p.state.as_str().replace(' ', "-"),
            why: p.why,
            rtt: seconds(p.rtt),
            window: p.window,
            in_flight: p.in_flight,
            sent: p.sent,
            lost: p.lost,
            delivered: p.delivered,
            received: p.received,
        }
    }
}

#[pymethods]
impl PathInfo {
    fn __repr__(&self) -> String {
        format!("<PathInfo {} to {}: {}>", self.local, self.remote, self.state)
    }
}

/// Something that has happened to a connection.
#[pyclass(frozen, get_all, module = "neater")]
pub(crate) struct Event {
    kind: &'static str,
    text: String,
    message_id: Option<u64>,
    error: Option<Py<PyAny>>,
}

impl Event {
    pub(crate) fn new(py: Python<'_>, hub: &Arc<Hub>, e: &neater::Event) -> Self {
        use neater::Event as E;
        let (kind, text, message_id) = match e {
            E::Ready => ("ready", String::new(), None),
            E::EstablishmentError(e) => ("establishment-error", e.to_string(), None),
            E::Readable => ("readable", String::new(), None),
            E::Writable => ("writable", String::new(), None),
            E::Sent(id) => ("sent", String::new(), Some(id.0)),
            E::Expired(id) => ("expired", String::new(), Some(id.0)),
            E::SendError(id, e) => ("send-error", e.to_string(), Some(id.0)),
            E::SoftError(e) => ("soft-error", format!("{e:?}"), None),
            E::PathChange => ("path-change", String::new(), None),
            E::Closed => ("closed", String::new(), None),
            E::ConnectionError(e) => ("connection-error", e.to_string(), None),
            E::Timeline(t) => ("timeline", t.step.to_string(), None),
            E::ConnectionReceived(_) => ("connection-received", String::new(), None),
            E::GroupReceived(_) => ("group-received", String::new(), None),
            E::Stopped => ("stopped", String::new(), None),
            E::ListenerError(e) => ("listener-error", e.to_string(), None),
            E::StreamReceived(_) => ("stream-received", String::new(), None),
            _ => ("other", format!("{e:?}"), None),
        };
        let error = match e {
            E::EstablishmentError(e) => Some(errors::establishment(hub, (**e).clone())),
            E::SendError(_, e) => Some(errors::send(hub, e)),
            E::ConnectionError(e) => Some(errors::connection(hub, e)),
            _ => None,
        };
        Self { kind, text, message_id, error: error.map(|e| e.into_value(py).into_any()) }
    }

    /// What calls `handler` with events. The hub is not kept: the engine, which is in it, keeps
    /// this.
    pub(crate) fn reporter(hub: &Arc<Hub>, handler: Py<PyAny>) -> impl Fn(&neater::Event) + Send + Sync + 'static {
        let hub = Arc::downgrade(hub);
        move |event| {
            let Some(hub) = hub.upgrade() else { return };
            let _ = Python::try_attach(|py| {
                let called = Py::new(py, Self::new(py, &hub, event)).and_then(|e| handler.call1(py, (e,)));
                if let Err(e) = called {
                    e.write_unraisable(py, Some(handler.bind(py)));
                }
            });
        }
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let text = if self.text.is_empty() { String::new() } else { format!(": {}", self.text) };
        format!("<Event {}{text}>", self.kind)
    }
}

/// A decision, taken apart.
#[pyclass(frozen, module = "neater")]
pub(crate) struct Explanation(pub(crate) neater::Explanation);

type Explained = (String, Option<i32>, Vec<(String, String, Option<i32>, String)>);

fn explained(of: &[neater_policy::ExplainedCandidate]) -> Vec<Explained> {
    let reason =
        |r: &neater_policy::ExplainedReason| (r.property.clone(), r.preference.clone(), r.points, r.text.clone());
    of.iter().map(|c| (c.name.clone(), c.score, c.reasons.iter().map(reason).collect())).collect()
}

#[pymethods]
impl Explanation {
    #[getter]
    fn role(&self) -> &str {
        &self.0.role
    }

    #[getter]
    fn security(&self) -> &str {
        &self.0.security
    }

    #[getter]
    fn capacity_profile(&self) -> &str {
        &self.0.capacity_profile
    }

    #[getter]
    fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }

    #[getter]
    fn properties(&self) -> Vec<(String, String, bool)> {
        self.0.properties.clone()
    }

    #[getter]
    fn ranked(&self) -> Vec<Explained> {
        explained(&self.0.ranked)
    }

    #[getter]
    fn excluded(&self) -> Vec<Explained> {
        explained(&self.0.excluded)
    }

    #[getter]
    fn lines(&self) -> Vec<String> {
        self.0.lines()
    }

    fn __str__(&self) -> String {
        self.0.lines().join("\n")
    }

    fn __repr__(&self) -> String {
        format!("<Explanation: {} candidates, {} ruled out>", self.0.ranked.len(), self.0.excluded.len())
    }
}

/// What policies do to a connection.
#[pyclass(frozen, module = "neater")]
pub(crate) struct PolicyStory(pub(crate) neater::PolicyStory);

#[pymethods]
impl PolicyStory {
    #[getter]
    fn lines(&self) -> Vec<String> {
        self.0.lines()
    }

    #[getter]
    fn prohibited(&self) -> Option<String> {
        self.0.prohibited()
    }

    #[getter]
    fn stacks(&self) -> Vec<&'static str> {
        self.0.stacks().into_iter().map(neater::Stack::as_str).collect()
    }

    #[getter]
    fn interfaces(&self) -> Vec<u32> {
        self.0.interfaces()
    }

    #[getter]
    fn is_neutral(&self) -> bool {
        self.0.is_neutral()
    }

    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        values::json(py, &self.0.to_json())
    }

    fn __str__(&self) -> String {
        self.0.lines().join("\n")
    }

    fn __repr__(&self) -> String {
        format!(
            "<PolicyStory: {}>",
            self.0.stacks().into_iter().map(neater::Stack::as_str).collect::<Vec<_>>().join(", ")
        )
    }
}
