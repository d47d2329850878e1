//! Preconnections, and the endpoints and framers that they are made of.

use crate::bytestream::ByteStream;
use crate::connection::Connection;
use crate::facts::{Event, Explanation, Plan};
use crate::hub::{Hub, seconds};
use crate::listener::Listener;
use crate::message::MessageContext;
use crate::operation::Operation;
use crate::properties::TransportProperties;
use crate::security::SecurityParameters;
use crate::system::Neater;
use crate::{buffers, errors};
use neater::{FramerSpec, Role, Stack};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::net::IpAddr;
use std::sync::Arc;

fn ip(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|_| errors::value(format!("`{text}` is no IP address")))
}

pub(crate) fn stack(name: &str) -> PyResult<Stack> {
    Stack::from_name(name).ok_or_else(|| {
        let all: Vec<_> = Stack::ALL.iter().map(|s| s.as_str()).collect();
        errors::value(format!("`{name}` is no stack: {}", all.join(", ")))
    })
}

/// Where a connection goes.
#[pyclass(frozen, module = "neater")]
pub(crate) struct RemoteEndpoint(pub(crate) neater::RemoteEndpoint);

#[pymethods]
impl RemoteEndpoint {
    #[new]
    #[pyo3(signature = (host_name=None, port=None, *, ip_address=None, interface=None, protocol=None, udp_port=None))]
    fn new(
        host_name: Option<&str>,
        port: Option<u16>,
        ip_address: Option<&str>,
        interface: Option<&str>,
        protocol: Option<&str>,
        udp_port: Option<u16>,
    ) -> PyResult<Self> {
        let mut e = neater::RemoteEndpoint::new();
        if let Some(name) = host_name {
            e = e.with_host_name(name);
        }
        if let Some(port) = port {
            e = e.with_port(port);
        }
        if let Some(address) = ip_address {
            e = e.with_ip_address(ip(address)?);
        }
        if let Some(name) = interface {
            e = e.with_interface(name);
        }
        if let Some(name) = protocol {
            e = e.with_protocol(stack(name)?);
        }
        if let Some(port) = udp_port {
            e = e.with_udp_port(port);
        }
        Ok(Self(e))
    }

    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(errors::value)
    }

    #[getter]
    fn host_name(&self) -> Option<&str> {
        self.0.host_name()
    }

    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    #[getter]
    fn ip_address(&self) -> Option<String> {
        self.0.ip_address().map(|a| a.to_string())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<RemoteEndpoint {}>", self.0)
    }
}

/// Where a connection comes from, or a listener listens.
#[pyclass(frozen, module = "neater")]
pub(crate) struct LocalEndpoint(pub(crate) neater::LocalEndpoint);

#[pymethods]
impl LocalEndpoint {
    #[new]
    #[pyo3(signature = (ip_address=None, port=None, *, interface=None, udp_port=None))]
    fn new(
        ip_address: Option<&str>,
        port: Option<u16>,
        interface: Option<&str>,
        udp_port: Option<u16>,
    ) -> PyResult<Self> {
        let mut e = neater::LocalEndpoint::new();
        if let Some(port) = port {
            e = e.with_port(port);
        }
        if let Some(address) = ip_address {
            e = e.with_ip_address(ip(address)?);
        }
        if let Some(name) = interface {
            e = e.with_interface(name);
        }
        if let Some(port) = udp_port {
            e = e.with_udp_port(port);
        }
        Ok(Self(e))
    }

    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    #[getter]
    fn ip_address(&self) -> Option<String> {
        self.0.ip_address().map(|a| a.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<LocalEndpoint {}:{}>", self.ip_address().unwrap_or_else(|| "*".to_owned()), self.0.port())
    }
}

/// How messages are framed over byte streams.
#[pyclass(frozen, module = "neater")]
pub(crate) struct Framer(FramerSpec);

#[pymethods]
impl Framer {
    #[staticmethod]
    #[pyo3(signature = (width=4, max=1048576))]
    fn length_prefixed(width: u8, max: u64) -> PyResult<Self> {
        if ![1, 2, 4, 8].contains(&width) {
            return Err(PyValueError::new_err("the length is 1, 2, 4 or 8 bytes wide"));
        }
        Ok(Self(FramerSpec::LengthPrefixed { width, max }))
    }

    #[staticmethod]
    #[pyo3(signature = (max=65536, *, crlf=false))]
    fn lines(max: usize, crlf: bool) -> Self {
        Self(FramerSpec::Lines { max, crlf })
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            FramerSpec::LengthPrefixed { width, max } => format!("<Framer.length_prefixed width={width} max={max}>"),
            FramerSpec::Lines { max, crlf } => format!("<Framer.lines max={max} crlf={crlf}>"),
            _ => "<Framer>".to_owned(),
        }
    }
}

/// One, or a list.
fn each<'py>(of: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if of.is_instance_of::<PyList>() { of.try_iter()?.collect() } else { Ok(vec![of.clone()]) }
}

fn remote(of: &Bound<'_, PyAny>) -> PyResult<neater::RemoteEndpoint> {
    if let Ok(endpoint) = of.cast::<RemoteEndpoint>() {
        return Ok(endpoint.get().0.clone());
    }
    if let Ok(text) = of.cast::<PyString>() {
        return text.to_string().parse().map_err(errors::value);
    }
    if let Ok(pair) = of.cast::<PyTuple>() {
        let (host, port): (String, u16) = pair.get_slice(0, 2).extract()?;
        return Ok(neater::RemoteEndpoint::new().with_host_name(&host).with_port(port));
    }
    Err(PyTypeError::new_err("a remote endpoint is a RemoteEndpoint, (host, port) or \"host:port\""))
}

fn local(of: &Bound<'_, PyAny>) -> PyResult<neater::LocalEndpoint> {
    if let Ok(endpoint) = of.cast::<LocalEndpoint>() {
        return Ok(endpoint.get().0.clone());
    }
    let pair = |host: &str, port: u16| {
        let e = neater::LocalEndpoint::new().with_port(port);
        Ok(if host.is_empty() { e } else { e.with_ip_address(ip(host)?) })
    };
    if let Ok(port) = of.extract::<u16>() {
        return Ok(neater::LocalEndpoint::new().with_port(port));
    }
    if let Ok(text) = of.cast::<PyString>() {
        let text = text.to_string();
        let bad = || errors::value(format!("`{text}` is not ADDRESS:PORT, such as 127.0.0.1:0 or [::1]:443"));
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        return pair(host, port.parse().map_err(|_| bad())?);
    }
    if let Ok(two) = of.cast::<PyTuple>() {
        let (host, port): (String, u16) = two.get_slice(0, 2).extract()?;
        return pair(&host, port);
    }
    Err(PyTypeError::new_err("a local endpoint is a LocalEndpoint, a port, (address, port) or \"address:port\""))
}

fn role(name: &str) -> PyResult<Role> {
    match name {
        "initiate" => Ok(Role::Initiate),
        "listen" => Ok(Role::Listen),
        _ => Err(PyValueError::new_err(format!("`{name}` is no role: initiate or listen"))),
    }
}

/// What a connection or a listener is made from.
#[pyclass(frozen, subclass, module = "neater", weakref)]
pub(crate) struct Preconnection {
    hub: Arc<Hub>,
    inner: neater::Preconnection,
    remotes: Vec<neater::RemoteEndpoint>,
    system: neater::Neater,
}

#[pymethods]
impl Preconnection {
    #[new]
    #[pyo3(signature = (
        system, remote=None, local=None, *, needs=None, properties=None, security=None, framer=None, stacks=None,
        timeout=None, policy=None, on_event=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn new(
        system: &Neater,
        remote: Option<&Bound<'_, PyAny>>,
        local: Option<&Bound<'_, PyAny>>,
        needs: Option<&str>,
        properties: Option<&TransportProperties>,
        security: Option<&SecurityParameters>,
        framer: Option<&Framer>,
        stacks: Option<Vec<String>>,
        timeout: Option<f64>,
        policy: Option<&Bound<'_, PyDict>>,
        on_event: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        system.hub.check_process()?;
        let mut pre = system.inner.preconnection();
        let mut remotes = Vec::new();
        for r in remote.map(each).transpose()?.unwrap_or_default() {
            let endpoint = self::remote(&r)?;
            remotes.push(endpoint.clone());
            pre = pre.remote(endpoint);
        }
        for l in local.map(each).transpose()?.unwrap_or_default() {
            pre = pre.local(self::local(&l)?);
        }
        if needs.is_some() && properties.is_some() {
            return Err(PyValueError::new_err("`needs` and `properties` are two forms of the same: give one of them"));
        }
        if let Some(words) = needs {
            pre = pre.needs(words).map_err(errors::value)?;
        }
        if let Some(properties) = properties {
            pre = pre.properties(properties.0.clone());
        }
        if let Some(security) = security {
            pre = pre.security(security.0.clone());
        }
        if let Some(framer) = framer {
            pre = pre.framer(framer.0.clone());
        }
        if let Some(names) = stacks {
            pre = pre.stacks(&names.iter().map(|n| stack(n)).collect::<PyResult<Vec<_>>>()?);
        }
        if let Some(timeout) = seconds(timeout)? {
            pre = pre.timeout(timeout);
        }
        for (name, value) in policy.into_iter().flatten() {
            // As policies write them: `true`, and not `True`.
            let text = match value.extract::<bool>() {
                Ok(b) => b.to_string(),
                Err(_) => value.str()?.to_string(),
            };
            pre = pre.policy_property(&name.extract::<String>()?, &text);
        }
        if let Some(handler) = on_event {
            pre = pre.on_event(Event::reporter(&system.hub, handler));
        }
        Ok(Self { hub: system.hub.clone(), inner: pre, remotes, system: system.inner.clone() })
    }

    fn initiate(&self) -> Operation {
        let hub = self.hub.clone();
        let begun = self.inner.initiate();
        Operation::new(&self.hub, "initiate()", begun, move |py, r| match r {
            Ok(c) => Connection::object(&hub, py, c),
            Err(e) => Err(errors::establishment(&hub, e)),
        })
    }

    #[pyo3(signature = (data, context=None))]
    fn initiate_with_send(&self, data: &Bound<'_, PyAny>, context: Option<&MessageContext>) -> PyResult<Operation> {
        let (hub, data) = (self.hub.clone(), buffers::data(data)?);
        let context = context.map_or_else(neater::MessageContext::new, |c| c.0.clone());
        let begun = self.inner.initiate_with_send(data, &context);
        Ok(Operation::new(&self.hub, "initiate_with_send()", begun, move |py, r| match r {
            Ok(c) => Connection::object(&hub, py, c),
            Err(e) => Err(errors::establishment(&hub, e)),
        }))
    }

    /// The connection at once, in state establishing.
    #[pyo3(signature = (first=None, context=None))]
    fn begin(&self, first: Option<&Bound<'_, PyAny>>, context: Option<&MessageContext>) -> PyResult<Connection> {
        let context = context.map_or_else(neater::MessageContext::new, |c| c.0.clone());
        let begun = match first {
            Some(first) => self.inner.initiate_with_send(buffers::data(first)?, &context),
            None => self.inner.initiate(),
        };
        let made = begun.connection().map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(Connection::new(&self.hub, made))
    }

    /// A connection as a stream of bytes.
    fn connect_bytes(&self) -> Operation {
        let (hub, pre) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "connect_bytes()", async move { pre.connect_bytes().await }, move |py, r| match r {
            Ok(b) => Ok(Py::new(py, ByteStream::new(&hub, b))?.into_any()),
            Err(e) => Err(errors::establishment(&hub, e)),
        })
    }

    fn listen(&self) -> PyResult<Listener> {
        let listener = self.inner.listen().map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(Listener::new(&self.hub, listener))
    }

    fn plan(&self) -> Operation {
        let (hub, pre) = (self.hub.clone(), self.inner.clone());
        Operation::new(&self.hub, "plan()", async move { pre.plan().await }, move |py, r| match r {
            Ok(p) => Ok(Py::new(py, Plan(p))?.into_any()),
            Err(e) => Err(errors::establishment(&hub, e)),
        })
    }

    #[pyo3(signature = (role="initiate"))]
    fn explain(&self, role: &str) -> PyResult<Explanation> {
        let request = self.inner.clone().compile(self::role(role)?).map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(Explanation(neater::explanation(request.policy())))
    }

    #[pyo3(signature = (role="initiate"))]
    fn eligible(&self, role: &str) -> PyResult<Vec<&'static str>> {
        let request = self.inner.clone().compile(self::role(role)?).map_err(|e| errors::establishment(&self.hub, e))?;
        Ok(request.stacks().iter().map(|s| s.as_str()).collect())
    }

    fn explain_policies(&self) -> PyResult<Option<crate::facts::PolicyStory>> {
        let request = self.inner.clone().compile(Role::Initiate).map_err(|e| errors::establishment(&self.hub, e))?;
        let Some(remote) = self.remotes.first() else {
            return Err(errors::value("policies are asked about a remote endpoint: give one"));
        };
        Ok(self.system.explain_policies(&request, remote).map(crate::facts::PolicyStory))
    }

    fn __repr__(&self) -> String {
        let remotes: Vec<_> = self.remotes.iter().map(ToString::to_string).collect();
        format!(
            "<neater.Preconnection to {}>",
            if remotes.is_empty() { "nowhere".to_owned() } else { remotes.join(", ") }
        )
    }
}
