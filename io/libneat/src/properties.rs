//! NEAT properties: the JSON of `neat_set_property`, read once per text.
//!
//! *Responsible for* reading them with the policy engine's own reader, for what a flow does by
//! them, and for reading them back.
//! *Not responsible for* what policies make of them (`neater-policy`).
//!
//! *Invariant*: a property that means something to this library has a value of the right type, or
//! the text is refused.

use core::cell::OnceCell;
use neater_engine::{Request, Stack};
use neater_property::neat::{NeatProperty, read};
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::rc::Rc;

/// A transport by the name that NEAT gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Sctp,
    SctpUdp,
    Udp,
    UdpLite,
    Mptcp,
    WebRtc,
}

impl Transport {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "TCP" => Self::Tcp,
            "MPTCP" => Self::Mptcp,
            "SCTP" => Self::Sctp,
            "SCTP/UDP" => Self::SctpUdp,
            "UDP" => Self::Udp,
            "UDP-Lite" | "UDPLite" | "UDPlite" | "UDP-lite" | "UDPLITE" => Self::UdpLite,
            "WEBRTC" => Self::WebRtc,
            _ => return None,
        })
    }

    /// What carries it, best first. None: this build has no such transport.
    pub(crate) fn stacks(self, secure: bool) -> &'static [Stack] {
        match (self, secure) {
            // With several paths where they were asked for: see `names_mptcp`.
            (Self::Tcp | Self::Mptcp, false) => &[Stack::Tcp],
            (Self::Tcp | Self::Mptcp, true) => &[Stack::Tls],
            (Self::Udp, false) => &[Stack::Udp],
            (Self::Udp, true) => &[Stack::Dtls],
            // Straight over IP where this process may, and over UDP, where a NAT or the system lets
            // nothing else through.
            (Self::Sctp, false) => &[Stack::SctpIp, Stack::Sctp],
            (Self::SctpUdp, false) => &[Stack::Sctp],
            (Self::Sctp | Self::SctpUdp, true) => &[Stack::SctpDtls],
            (Self::UdpLite | Self::WebRtc, _) => &[],
        }
    }

    /// Whether it carries datagrams.
    pub(crate) const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::UdpLite)
    }
}

/// The properties of a flow.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    json: Map<String, Value>,
    /// As named, unknown names left out; `None`: the property is absent.
    pub(crate) transports: Option<Vec<Transport>>,
    pub(crate) security: bool,
    /// The certificate of the peer is not to be looked at.
    pub(crate) unverified: bool,
    pub(crate) multihoming: bool,
    /// Messages keep their boundaries.
    pub(crate) messages: bool,
    pub(crate) tproxy: bool,
    pub(crate) local_ips: Vec<IpAddr>,
    /// The name to find in the peer's certificate, where it is not the one connected to.
    pub(crate) server_name: Option<String>,
    /// Milliseconds between two candidates.
    pub(crate) he_delay: Option<u64>,
    /// What policies are asked with beside.
    pub(crate) policy: Vec<NeatProperty>,
    /// What `neat_open` makes of them: groups of candidates, one tried after the other.
    pub(crate) requests: OnceCell<Rc<[Request]>>,
}

/// Those that this library acts on itself, or that policies are asked with by other means.
const OWN: [&str; 8] =
    ["transport", "security", "verification", "multihoming", "transport_type", "tproxy", "local_ips", "__he_delay"];

impl Properties {
    /// Reads a text, laid over what is there: each key replaces that of the same name.
    ///
    /// # Errors
    /// In words: it is not JSON, or a property has no value of the right type.
    pub(crate) fn over(&self, text: &str) -> Result<Self, String> {
        let Value::Object(new) = read(text).map_err(|e| e.to_string())? else { return Self::of(self.json.clone()) };
        let mut json = self.json.clone();
        json.extend(new);
        Self::of(json)
    }

    /// What this library reads of an object of properties.
    ///
    /// # Errors
    /// As [`Properties::over`].
    pub(crate) fn of(json: Map<String, Value>) -> Result<Self, String> {
        let transports = match json.get("transport") {
            None => None,
            Some(p) => Some(transports(p)?),
        };
        let local_ips = json.get("local_ips").map_or(Ok(Vec::new()), addresses)?;
        let he_delay = match json.get("__he_delay") {
            None => None,
            Some(p) => value(p).ok_or("__he_delay has no `value`")?.as_u64(),
        };
        let messages = match json.get("transport_type") {
            None => false,
            Some(p) => match value(p) {
                Some(Value::String(s)) => s == "message",
                _ => return Err("transport_type: `value` is a string, \"message\" or \"stream\"".into()),
            },
        };
        let is = |name: &str, wanted: bool| json.get(name).and_then(value) == Some(&Value::Bool(wanted));
        let policy = json.iter().filter(|(k, _)| !OWN.contains(&k.as_str()) && !k.starts_with("so/"));
        let policy = policy.filter_map(|(k, p)| NeatProperty::from_json(k, p).ok()).collect();
        Ok(Self {
            transports,
            local_ips,
            he_delay,
            messages,
            security: is("security", true),
            unverified: is("verification", false),
            multihoming: is("multihoming", true),
            tproxy: is("tproxy", true),
            policy,
            server_name: None,
            requests: OnceCell::new(),
            json,
        })
    }

    /// Of an accepted flow.
    pub(crate) fn accepted(transport: &str, port: u16, address: Option<IpAddr>) -> Self {
        let property = |v: Value| serde_json::json!({ "value": v });
        let mut json = Map::new();
        json.insert("transport".into(), property(transport.into()));
        json.insert("port".into(), property(port.into()));
        json.insert("interface".into(), property("(unknown)".into()));
        if let Some(address) = address {
            json.insert("address".into(), property(address.to_canonical().to_string().into()));
        }
        Self { json, ..Self::default() }
    }

    /// The `value` of a property.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.json.get(name).and_then(value)
    }

    pub(crate) fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// Whether SCTP was asked for by the name of its encapsulation.
    pub(crate) fn names_sctp_udp(&self) -> bool {
        self.transports.as_ref().is_some_and(|t| t.contains(&Transport::SctpUdp) && !t.contains(&Transport::Sctp))
    }

    /// Whether MPTCP was asked for by name; in the list of a program that names nothing it stands
    /// behind TCP, which is the same without further paths.
    pub(crate) fn names_mptcp(&self) -> bool {
        self.transports.as_ref().is_some_and(|t| t.contains(&Transport::Mptcp))
    }

    /// The transports to open a flow with, best first.
    pub(crate) fn to_open(&self) -> Vec<Transport> {
        let named = self.transports.clone();
        let mut all = named.unwrap_or_else(|| vec![Transport::Tcp, Transport::Sctp, Transport::Mptcp]);
        all.retain(|t| !(self.messages && matches!(t, Transport::Tcp | Transport::Mptcp)));
        all
    }

    /// The transports to listen with.
    pub(crate) fn to_accept(&self) -> Vec<Transport> {
        use Transport::{Mptcp, Sctp, SctpUdp, Tcp, Udp, UdpLite};
        match &self.transports {
            Some(named) => named.clone(),
            None if self.is_empty() => vec![Udp, UdpLite, Tcp, Mptcp, Sctp, SctpUdp],
            None => vec![Tcp, Sctp, Mptcp],
        }
    }
}

/// The value of a property: its member `value`, or the property itself where it is no object, which
/// NEAT's older files have.
fn value(property: &Value) -> Option<&Value> {
    match property {
        Value::Object(o) => o.get("value"),
        other => Some(other),
    }
}

fn transports(property: &Value) -> Result<Vec<Transport>, String> {
    let bad = || "transport: `value` is the name of a transport, or a list of names".to_owned();
    let list = match value(property).ok_or_else(bad)? {
        Value::Array(list) => list.as_slice(),
        one @ Value::String(_) => core::slice::from_ref(one),
        _ => return Err(bad()),
    };
    let mut all = Vec::new();
    for name in list {
        let Some(Value::String(name)) = value(name) else { return Err(bad()) };
        if let Some(t) = Transport::from_name(name)
            && !all.contains(&t)
        {
            all.push(t);
        }
    }
    Ok(all)
}

fn addresses(property: &Value) -> Result<Vec<IpAddr>, String> {
    let bad = || "local_ips: a list of addresses, each {\"value\": \"192.0.2.1\"}".to_owned();
    let list = value(property).ok_or_else(bad)?.as_array().ok_or_else(bad)?;
    list.iter().map(|a| value(a).and_then(Value::as_str).and_then(|a| a.parse().ok()).ok_or_else(bad)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Properties, String> {
        Properties::default().over(text)
    }

    #[test]
    fn transports_are_read_in_all_forms_that_programs_have() {
        for text in [
            r#"{"transport": {"value": ["SCTP", "TCP"], "precedence": 2}}"#,
            r#"{"transport": ["SCTP", "TCP"]}"#,
            r#"{"transport": [{"value": "SCTP", "precedence": 1}, {"value": "TCP"}, {"value": "unheard-of"}]}"#,
        ] {
            let p = of(text).expect(text);
            assert_eq!(p.to_open(), [Transport::Sctp, Transport::Tcp], "{text}");
        }
        assert_eq!(of(r#"{"transport": {"value": "UDPlite"}}"#).expect("one").to_open(), [Transport::UdpLite]);
        assert_eq!(of(r#"{"transport": {"value": "reliable"}}"#).expect("unknown").to_open(), []);
    }

    #[test]
    fn what_crashes_neat_is_refused() {
        for text in [
            r#"{"transport": {"precedence": 1}}"#,
            r#"{"transport": {"value": 7}}"#,
            r#"{"transport_type": {"value": 1}}"#,
            r#"{"__he_delay": {"precedence": 1}}"#,
            r#"{"local_ips": [{"precedence": 1}]}"#,
            r#"{"local_ips": {"value": "::1"}}"#,
            r#"{"transport": {"value": "TCP"}} trailing"#,
            "{",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
        assert!(of("[1, 2]").expect("ignored").is_empty());
    }

    #[test]
    fn later_texts_replace_keys() {
        let p = of(r#"{"security": {"value": true}, "x": {"value": 1}}"#).expect("first");
        let p = p.over(r#"{"security": {"value": false}}"#).expect("second");
        assert!(!p.security);
        assert_eq!(p.value("x"), Some(&Value::from(1)));
        assert_eq!(p.to_accept(), [Transport::Tcp, Transport::Sctp, Transport::Mptcp]);
        assert_eq!(Properties::default().to_accept().len(), 6);
    }
}
