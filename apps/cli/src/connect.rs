//! From the command line to needs, security and a transport system.

use crate::args::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::seen::Seen;
use neater::tls::{Pin, certificates_from_pem};
use neater::{
    Builder, LocalEndpoint, Neater, PolicyFault, Preference, SecurityNeed, SecurityParameters, Stack,
    TransportProperties, Trust,
};
pub(crate) use neater_command::file::read;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// What was asked for, checked.
pub(crate) struct Asked {
    /// The local endpoint of connections, if given: an address, or any of a family.
    pub(crate) local: Option<LocalEndpoint>,
    pub(crate) properties: TransportProperties,
    /// The security of the needs, if they state any.
    pub(crate) need: Option<SecurityNeed>,
    /// For connections that are to be secure.
    pub(crate) security: SecurityParameters,
    /// The certificates that were refused.
    pub(crate) seen: Seen,
    pub(crate) stacks: Vec<Stack>,
}

impl Asked {
    pub(crate) fn new(args: &ConnectArgs, output: &Output) -> Result<Self, Failure> {
        if args.insecure {
            let text =
                "--insecure: no certificate is checked, and any host on the path can read and change what is sent";
            output.report("insecure", None, &format!("neater: {text}"));
        }
        let (mut properties, need) = match &args.needs {
            None => (TransportProperties::new(), None),
            Some(text) => {
                let parsed = TransportProperties::parse(text).map_err(|e| Failure::usage(format!("--needs: {e}")))?;
                (parsed.properties, parsed.security)
            }
        };
        let local = local(args, &mut properties)?;
        let mut security = need.map_or_else(SecurityParameters::new, neater::security_for);
        let pins = args.pin.iter().map(|p| pin(p)).collect::<Result<Vec<_>, _>>()?;
        match &args.ca {
            Some(path) => {
                let authorities = certificates_from_pem(&read(path)?)
                    .map_err(|e| Failure::usage(format!("--ca {}: {e}", path.display())))?;
                security.trust = Trust::Only(authorities);
                security.pinned_server_certificates = pins;
            }
            None if args.insecure => {
                security.trust = Trust::Callback;
                security.trust_verification = Some(Arc::new(|_, _| true));
            }
            None if pins.is_empty() => {}
            None => security.trust = Trust::Pinned(pins),
        }
        let seen = Seen::of(&mut security, args.ca.is_some());
        let stacks = stacks(&args.transport)?;
        Ok(Self { local, properties, need, security, seen, stacks })
    }
}

/// Where connections are to come from. An interface is a property, which policies see.
fn local(args: &ConnectArgs, properties: &mut TransportProperties) -> Result<Option<LocalEndpoint>, Failure> {
    let family: Option<IpAddr> = match (args.ipv4, args.ipv6) {
        (true, _) => Some(Ipv4Addr::UNSPECIFIED.into()),
        (_, true) => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    };
    let Some(name) = &args.interface else { return Ok(family.map(at)) };
    let Ok(ip) = name.parse::<IpAddr>() else {
        properties
            .interface(Preference::Require, name)
            .map_err(|e| Failure::usage(format!("--interface {name}: {e}")))?;
        return Ok(family.map(at));
    };
    if ip.is_unspecified() {
        return Err(Failure::usage(format!(
            "--interface {ip}: an address of this host is wanted; -4 and -6 choose a family"
        )));
    }
    if family.is_some_and(|f| f.is_ipv4() != ip.is_ipv4()) {
        return Err(Failure::usage(format!("--interface {ip}: an address of the other family than -4 or -6 asks for")));
    }
    Ok(Some(at(ip)))
}

fn at(ip: IpAddr) -> LocalEndpoint {
    LocalEndpoint::new().with_ip_address(ip)
}

/// The transport system. Must be called on tokio.
pub(crate) fn neater(args: &ConnectArgs) -> Result<Neater, Failure> {
    let neater = start(builder(args)?)?;
    for (_, name) in args.property.iter().filter(|(key, _)| key.eq_ignore_ascii_case("profile")) {
        let known = neater.policy_profiles();
        if !known.contains(name) {
            let all = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("--property profile={name}: there is no such profile, but {all}")));
        }
    }
    Ok(neater)
}

/// Makes what was set up. Must be called on tokio.
pub(crate) fn start(builder: Builder) -> Result<Neater, Failure> {
    builder.build().map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => Failure::new(crate::Exit::Failed, "policy", e.to_string())
            .advise("`neater policy check FOLDER` reports all; without --strict-policies the others apply"),
        // Of all that is opened here, the files that the environment names have their names in the
        // error.
        _ if e.to_string().starts_with("SSLKEYLOGFILE=") => Failure::new(crate::Exit::Local, "file", e.to_string()),
        _ => Failure::new(crate::Exit::Failed, "local", format!("this system: {e}")),
    })
}

/// The builder of a transport system for these arguments.
pub(crate) fn builder(args: &ConnectArgs) -> Result<Builder, Failure> {
    let mut builder = Neater::builder().key_log_from_environment();
    let named = || std::env::var_os("NEATER_QLOG").filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(folder) = args.qlog.clone().or_else(named) {
        // Anything but a folder would be an error of the whole system later.
        if let Err(e) = std::fs::read_dir(&folder) {
            return Err(Failure::new(crate::Exit::Local, "file", format!("--qlog {}: {e}", folder.display())));
        }
        builder = builder.qlog_dir(folder);
    }
    for (path, option) in [(&args.resolv_conf, "--resolv-conf"), (&args.hosts, "--hosts")] {
        if let Some(path) = path
            && let Err(e) = std::fs::metadata(path)
        {
            return Err(Failure::new(crate::Exit::Local, "file", format!("{option} {}: {e}", path.display())));
        }
    }
    if let Some(path) = &args.resolv_conf {
        builder = builder.resolv_conf(path);
    }
    if let Some(path) = &args.hosts {
        builder = builder.hosts(path);
    }
    if args.system_names {
        builder = builder.names_by_system();
    }
    if args.no_policy {
        builder = builder.without_policies();
    } else if !args.policy.is_empty() {
        for folder in &args.policy {
            std::fs::read_dir(folder)
                .map_err(|e| Failure::new(crate::Exit::Local, "file", format!("--policy {}: {e}", folder.display())))?;
        }
        builder = builder.policies(&args.policy);
    }
    if args.strict_policies {
        builder = builder.strict_policies();
    }
    Ok(builder.application("neater"))
}

/// What is wrong with files of policies, for people; `neater policy check` reports more. Each fault
/// is reported once.
#[derive(Default)]
pub(crate) struct PolicyFaults(Vec<PolicyFault>);

impl PolicyFaults {
    pub(crate) fn report(&mut self, neater: &Neater, output: &Output) {
        for fault in neater.policy_faults() {
            if self.0.contains(&fault) {
                continue;
            }
            if output.json {
                output.event(&json!({"event": "fault", "file": fault.file, "line": fault.line, "column": fault.column,
                    "harmless": fault.harmless, "why": fault.why}));
            } else {
                output.note(&fault.to_string());
            }
            self.0.push(fault);
        }
    }
}

fn pin(text: &str) -> Result<Pin, Failure> {
    let hex: String = text.strip_prefix("sha256:").unwrap_or(text).chars().filter(|c| *c != ':').collect();
    let bad = || Failure::usage(format!("--pin {text}: a SHA-256 has 64 hexadecimal digits"));
    if hex.len() != 64 || !hex.is_ascii() {
        return Err(bad());
    }
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
    }
    Ok(Pin::Sha256(hash))
}

/// The protocol stacks that are meant: SCTP is over UDP in the clear, and over DTLS where there is
/// security.
pub(crate) fn stacks(names: &[String]) -> Result<Vec<Stack>, Failure> {
    let mut all = Vec::new();
    for name in names {
        let stack = stack(name)?;
        all.push(stack);
        if stack == Stack::Sctp && !name.contains('/') {
            all.push(Stack::SctpDtls);
        }
    }
    Ok(all)
}

fn stack(name: &str) -> Result<Stack, Failure> {
    let short =
        [("TCP", Stack::Tcp), ("TLS", Stack::Tls), ("QUIC", Stack::Quic), ("UDP", Stack::Udp), ("SCTP", Stack::Sctp)];
    let found = short.iter().find(|(s, _)| s.eq_ignore_ascii_case(name.trim())).map(|(_, s)| *s);
    found.or_else(|| Stack::from_name(name.trim())).ok_or_else(|| {
        Failure::usage(format!(
            "--transport {name}: there are TCP, TLS, QUIC, SCTP (over UDP or DTLS), SCTP/IP, UDP and quic-datagram"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_may_have_colons_and_a_prefix() {
        let plain = "00".repeat(32);
        let colons = ["00"; 32].join(":");
        assert_eq!(pin(&plain).ok(), Some(Pin::Sha256([0; 32])));
        assert_eq!(pin(&format!("sha256:{colons}")).ok(), Some(Pin::Sha256([0; 32])));
        for bad in ["", "00", &"0g".repeat(32), &"\u{fc}".repeat(32)] {
            assert!(pin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn transports_have_the_names_that_people_use() {
        assert_eq!(stack("tls").ok(), Some(Stack::Tls));
        assert_eq!(stack("Quic").ok(), Some(Stack::Quic));
        assert_eq!(stack("sctp").ok(), Some(Stack::Sctp));
        let of = |name: &str| stacks(&[name.to_owned()]).ok();
        assert_eq!(of("SCTP"), Some(vec![Stack::Sctp, Stack::SctpDtls]), "whichever security allows");
        assert_eq!(of("sctp/udp"), Some(vec![Stack::Sctp]));
        assert_eq!((of("sctp/ip"), of("sctp-ip")), (Some(vec![Stack::SctpIp]), Some(vec![Stack::SctpIp])));
        assert_eq!((of("SCTP/DTLS"), of("sctp-dtls")), (Some(vec![Stack::SctpDtls]), Some(vec![Stack::SctpDtls])));
        assert!(stack("dccp").err().is_some_and(|f| f.message.contains("SCTP")));
    }
}
