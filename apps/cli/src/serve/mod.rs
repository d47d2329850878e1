//! `neater serve`.

mod answers;
mod certificate;
mod hosts;
mod limits;
mod reset;

use crate::args::{ConnectArgs, ServeArgs};
use crate::connect;
use crate::failure::{Exit, Failure};
use crate::output::{Output, bytes};
use certificate::Shown;
pub(crate) use certificate::state_dir;
use neater::tls::identity_from_pem;
use neater::{EstablishmentError, Listener, LocalEndpoint, Neater, SecurityParameters, Stack};
use neater_base::net::ErrorKind;
use neater_http::{Files, Server, ServerLimits};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::SystemTime;

/// The port when none is given: encrypted, in the clear.
const PORTS: (u16, u16) = (4433, 8080);
/// Descriptors for what is no connection: listeners, the runtime, standard streams, a log.
const DESCRIPTORS: u64 = 32;
/// How often the system may choose a port.
const PORT_TRIES: u32 = 8;
/// The port to which SCTP is encapsulated where none is named (RFC 6951 section 6.1).
const UDP_PORT: u16 = 9899;

pub(crate) async fn run(args: ServeArgs, output: &Output) -> Result<Exit, Failure> {
    let files = Files::new(&args.dir).map_err(|e| Failure::file("serve", &args.dir, &e))?;
    let root = files.root().to_owned();
    if !args.no_listings {
        let readable = std::fs::read_dir(&root).map_err(|e| Failure::file("serve", &root, &e));
        readable.map_err(|f| f.advise("--no-listings serves files by their names alone"))?;
    }
    let mut builder = connect::builder(&ConnectArgs { qlog: args.qlog.clone(), ..ConnectArgs::default() })?;
    if !args.plain {
        match reset::secret(args.cert_dir.as_deref()) {
            Ok(secret) => builder = builder.reset_secret(secret),
            // Clients of an earlier run wait a little longer: no reason not to serve.
            Err(why) => {
                output.note(&format!("QUIC clients of an earlier run will not be notified that it ended: {why}"))
            }
        }
    }
    let neater = connect::start(builder)?;
    let (security, shown) = if args.plain { (SecurityParameters::disabled(), None) } else { secured(&args)? };
    let listeners = listening(&neater, &args, &security)?;
    all_are_served(&args, &listeners)?;
    let addresses: Vec<SocketAddr> = listeners.iter().flat_map(Listener::local_addrs).map(|(_, a)| a).collect();
    let port = listeners.first().map_or(0, Listener::port);
    let urls = urls(&args, &addresses, port);
    let leaf = security.server_certificates.first().and_then(|identity| identity.chain.first());
    let hosts = hosts::Hosts::new(&args, &addresses, leaf.cloned())?;
    let mut udp: Vec<u16> = Vec::new();
    for port in listeners.iter().flat_map(Listener::udp_ports) {
        // Listeners at several addresses mostly have one port.
        if !udp.contains(&port) {
            udp.push(port);
        }
    }
    announce(&args, output, &root, &urls, shown.as_ref(), &udp);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if let Some(warning) = shown.as_ref().and_then(|s| s.warning(now)) {
        output.report("certificate", None, &warning);
    }
    make_room_for(args.max_connections, output);
    let connections = args.max_connections as usize;
    let connections_per_address = args.max_per_address.map_or(connections, |n| n as usize);
    let (idle, standstill) = (args.max_idle, args.max_pause);
    let limits = ServerLimits { connections, connections_per_address, idle, standstill, ..ServerLimits::default() };
    let server = Server::new(files.listings(!args.no_listings).hidden(args.hidden)).limits(limits);
    let reports = output.clone();
    let mut server = server.on_turned_away(move |turned_away| limits::turned_away(turned_away, connections, &reports));
    if let Some(hosts) = hosts {
        server = server.serves_host(move |host| hosts.serve(host));
    }
    if !args.plain && stacks(&args)?.contains(&Stack::Quic) {
        server = server.alt_svc(port);
    }
    let log = answers::are_logged(output, args.quiet).then(|| answers::Log::new(output.clone()));
    if let Some(log) = &log {
        server = server.on_answer(log.taker());
    }
    let stop = crate::signals::stop_signal(output)?;
    let summary = tokio::select! {
        summary = server.run(listeners, stop) => summary,
        never = limits::watch_transport(&neater, output) => match never {},
    };
    if let Some(log) = log {
        log.finish();
    }
    if output.json {
        output.event(&json!({
            "event": "stopped", "requests": summary.requests, "bytes": summary.bytes,
            "refused": summary.refused, "ended_for_others": summary.ended_for_others, "cut_off": summary.cut_off,
        }));
    } else {
        let cut = match summary.cut_off {
            0 => String::new(),
            n => format!("; {n} connections were cut off"),
        };
        output.note(&format!("stopped: {} requests, {}{cut}", summary.requests, bytes(summary.bytes)));
    }
    Ok(Exit::Ok)
}

/// Sees to it that there are descriptors for so many connections, each with one more for the file
/// that it sends, or reports that there are not: then others wait until some have gone.
fn make_room_for(connections: u32, output: &Output) {
    let needed = 2 * u64::from(connections) + DESCRIPTORS;
    if let Some(limit) = crate::descriptors::raise(needed).filter(|limit| *limit < needed) {
        if output.json {
            output.event(&json!({ "event": "few-descriptors", "limit": limit, "needed": needed }));
        } else {
            output.note(&format!(
                "only {limit} files and sockets may be open (ulimit -n): where {connections} connections come, some will wait"
            ));
        }
    }
}

fn secured(args: &ServeArgs) -> Result<(SecurityParameters, Option<Shown>), Failure> {
    let mut security = SecurityParameters::new();
    let (identity, shown) = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let identity = identity_from_pem(&connect::read(cert)?, &connect::read(key)?)
                .map_err(|e| Failure::usage(format!("--cert {} and --key {}: {e}", cert.display(), key.display())))?;
            let shown = Shown::new(&identity, cert.clone());
            (identity, shown)
        }
        _ => certificate::generated(args)?,
    };
    security.server_certificates = vec![identity];
    // HTTP/3 over QUIC, the others over TLS: neater offers each where it belongs.
    security.alpn = vec![b"h3".to_vec(), b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((security, Some(shown)))
}

/// Listens. The port that the system chose for one address may be taken at another: then it may
/// choose again.
fn listening(neater: &Neater, args: &ServeArgs, security: &SecurityParameters) -> Result<Vec<Listener>, Failure> {
    let mut tries = if args.port == Some(0) { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        match listen(neater, args, security) {
            Err(f) if tries > 0 && f.message.contains(ErrorKind::AddrInUse.as_str()) => {}
            done => return done,
        }
    }
}

fn listen(neater: &Neater, args: &ServeArgs, security: &SecurityParameters) -> Result<Vec<Listener>, Failure> {
    let port = args.port.unwrap_or(if args.plain { PORTS.1 } else { PORTS.0 });
    let stacks = stacks(args)?;
    if args.udp_port.is_some() && !stacks.iter().any(|s| s.is_sctp()) {
        return Err(
            Failure::usage("--udp-port is SCTP's, and nothing is served over SCTP").advise("add --transport sctp")
        );
    }
    let on = |ip: IpAddr, port: u16| {
        let local = LocalEndpoint::from(SocketAddr::new(ip, port));
        let local = args.udp_port.map_or(local.clone(), |p| local.with_udp_port(p));
        Server::listen(&neater.preconnection().local(local).security(security.clone()).stacks(&stacks))
    };
    let (wanted, optional): (Vec<IpAddr>, Option<IpAddr>) = if args.bind.is_empty() {
        // "localhost" is both; a host may have no IPv6.
        (vec![Ipv4Addr::LOCALHOST.into()], Some(Ipv6Addr::LOCALHOST.into()))
    } else {
        (not_covered(&args.bind), None)
    };
    let udp = args.udp_port.unwrap_or(UDP_PORT);
    let mut listeners: Vec<Listener> = Vec::new();
    for ip in wanted {
        let port = listeners.first().map_or(port, Listener::port);
        listeners.push(on(ip, port).map_err(|e| cannot_listen(&e, (port, udp)))?);
    }
    if let Some(ip) = optional {
        let port = listeners.first().map_or(port, Listener::port);
        match on(ip, port) {
            Ok(l) => listeners.push(l),
            Err(e) if is_missing(&e.to_string()) => {}
            // Its owner would be asked in our place by half of the clients of localhost.
            Err(e) => return Err(cannot_listen(&e, (port, udp)).advise("or leave it out: --bind 127.0.0.1")),
        }
    }
    Ok(listeners)
}

/// Addresses to listen on, without those that others cover: `::` is every address of this host,
/// `0.0.0.0` every one of IPv4.
fn not_covered(bind: &[IpAddr]) -> Vec<IpAddr> {
    let (all, all_v4) = (IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    let mut kept: Vec<IpAddr> = Vec::new();
    for ip in bind {
        let covered = *ip != all && (bind.contains(&all) || *ip != all_v4 && ip.is_ipv4() && bind.contains(&all_v4));
        if !covered && !kept.contains(ip) {
            kept.push(*ip);
        }
    }
    kept
}

/// Whether a host has nothing to listen on there: no such family, or not this address.
fn is_missing(why: &str) -> bool {
    [ErrorKind::FamilyNotSupported, ErrorKind::AddrNotAvailable].iter().any(|kind| why.contains(kind.as_str()))
}

/// What is listened to. Encryption brings its own transports.
fn stacks(args: &ServeArgs) -> Result<Vec<Stack>, Failure> {
    let mut stacks = connect::stacks(&args.transport)?;
    // SCTP by that name is what security makes of it.
    let both = stacks.contains(&Stack::Sctp) && stacks.contains(&Stack::SctpDtls);
    stacks.retain(|s| !both || *s != if args.plain { Stack::SctpDtls } else { Stack::Sctp });
    if !args.plain {
        if let Some(s) = stacks.iter().find(|s| !matches!(s, Stack::Quic | Stack::Tls | Stack::SctpDtls)) {
            let what = "there are QUIC, TLS and SCTP (over DTLS), and others with --plain";
            return Err(Failure::usage(format!("--transport: {what}, not {s}")));
        }
        if stacks.is_empty() {
            stacks = vec![Stack::Quic, Stack::Tls];
        }
        return Ok(stacks);
    }
    if let Some(s) = stacks.iter().find(|s| !matches!(s, Stack::Tcp | Stack::Sctp | Stack::SctpIp)) {
        return Err(Failure::usage(format!("--transport: with --plain there are TCP, SCTP and SCTP/IP, not {s}")));
    }
    if stacks.is_empty() {
        stacks.push(Stack::Tcp);
    }
    Ok(stacks)
}

/// What was asked for by name is served, and not silently left out where something else could be.
fn all_are_served(args: &ServeArgs, listeners: &[Listener]) -> Result<(), Failure> {
    let served: Vec<Stack> = listeners.iter().flat_map(Listener::local_addrs).map(|(s, _)| s).collect();
    match stacks(args)?.into_iter().find(|s| !served.contains(s)) {
        Some(missing) if !args.transport.is_empty() => {
            let why = format!("--transport: {missing} cannot be served here; `neater explain --transport` shows why");
            Err(Failure::new(Exit::Failed, "listen", why))
        }
        _ => Ok(()),
    }
}

fn cannot_listen(e: &EstablishmentError, (port, udp): (u16, u16)) -> Failure {
    let text = e.to_string();
    let failure = Failure::new(Exit::Failed, "listen", text.clone());
    if text.contains(ErrorKind::AddrInUse.as_str()) && text.contains(&format!("(UDP port {udp})")) {
        failure.advise(format!(
            "another program has UDP port {udp}: choose another with --udp-port, or --udp-port 0 for any"
        ))
    } else if text.contains(ErrorKind::AddrInUse.as_str()) {
        failure.advise(format!("another program has port {port}: choose another with --port, or --port 0 for any"))
    } else if text.contains("permission denied") {
        failure.advise(format!("ports below 1024 need privileges: choose another than {port} with --port"))
    } else if is_missing(&text) {
        failure.advise("--bind needs an address of this host; 0.0.0.0 and :: are all of them")
    } else {
        // A certificate that its key does not fit, for example.
        Failure { exit: Exit::Usage, ..failure }
    }
}

/// The versions of HTTP that are spoken.
fn versions(args: &ServeArgs) -> Vec<&'static str> {
    let stacks = stacks(args).unwrap_or_default();
    let of = |s: Stack, words: &'static [&'static str]| if stacks.contains(&s) { words } else { &[] };
    let special = [of(Stack::Quic, &["h3"]), of(Stack::Tls, &["h2"])].concat();
    if stacks == [Stack::Quic] { special } else { [special, vec!["http/1.1"]].concat() }
}

/// What can be typed into a browser.
fn urls(args: &ServeArgs, addresses: &[SocketAddr], port: u16) -> Vec<String> {
    let scheme = if args.plain { "http" } else { "https" };
    let mut urls = Vec::new();
    let mut add = |host: &str| {
        let url = format!("{scheme}://{host}:{port}/");
        if !urls.contains(&url) {
            urls.push(url);
        }
    };
    if addresses.iter().any(|a| a.ip().is_loopback() || a.ip().is_unspecified()) {
        add("localhost");
    }
    args.name.iter().for_each(|n| add(&bracketed(n)));
    for a in addresses.iter().filter(|a| !a.ip().is_unspecified() && !a.ip().is_loopback()) {
        add(&bracketed(&a.ip().to_string()));
    }
    if urls.is_empty() {
        urls.push(format!("{scheme}://localhost:{port}/"));
    }
    urls
}

/// What can be typed to fetch something: over SCTP only where that is requested.
fn tries(stacks: &[Stack], udp: Option<u16>, ca: &str, url: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if stacks.iter().any(|s| matches!(s, Stack::Quic | Stack::Tls)) {
        lines.push(format!("  neater get --ca {ca} {url}"));
        if stacks.contains(&Stack::Tls) {
            lines.push(format!("  curl --cacert {ca} {url}"));
        }
    }
    if stacks.contains(&Stack::SctpDtls) {
        let port = udp.map_or_else(String::new, port_option);
        lines.push(format!("  neater get --transport sctp{port} --ca {ca} {url}"));
    }
    lines
}

/// The option that gives a client the UDP port, if it needs one.
fn port_option(port: u16) -> String {
    if port == UDP_PORT { String::new() } else { format!(" --udp-port {port}") }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn announce(
    args: &ServeArgs,
    output: &Output,
    root: &std::path::Path,
    urls: &[String],
    shown: Option<&Shown>,
    udp: &[u16],
) {
    if output.json {
        return output.event(&json!({
            "sctp_udp_ports": udp,
            "event": "serving", "dir": root.display().to_string(), "urls": urls,
            "certificate": shown.map(|s| s.path.display().to_string()), "sha256": shown.map(|s| s.sha256.clone()),
            "versions": versions(args),
            "pid": std::process::id(),
        }));
    }
    output.line(&format!("Serving {}", root.display()));
    urls.iter().for_each(|u| output.line(&format!("  {u}")));
    match shown {
        None => {
            let over = args.transport.iter().map(|t| t.to_uppercase()).collect::<Vec<_>>().join(" and ");
            let over = if over.is_empty() { "TCP" } else { &over };
            output.line(&format!("  HTTP/1.1 over {over}, in the clear"));
            if let Some(port) = udp.first() {
                output.line(&format!("  SCTP is encapsulated to UDP port {port}"));
                if let Some(url) = urls.first() {
                    output.line("Try");
                    output.line(&format!("  neater get --transport sctp{} {url}", port_option(*port)));
                }
            }
        }
        Some(s) => {
            let stacks = stacks(args).unwrap_or_default();
            let spoken = [
                (Stack::Quic, "HTTP/3 over QUIC"),
                (Stack::Tls, "HTTP/2 and HTTP/1.1 over TLS"),
                (Stack::SctpDtls, "HTTP/1.1 over SCTP over DTLS"),
            ];
            let spoken: Vec<_> = spoken.iter().filter(|(s, _)| stacks.contains(s)).map(|(_, text)| *text).collect();
            output.line(&format!("  {}", spoken.join(", ")));
            if let Some(port) = udp.first() {
                output.line(&format!("  SCTP is at UDP port {port}"));
            }
            output.line(&format!("Certificate {}", s.path.display()));
            output.line(&format!("  SHA-256 {}", s.sha256));
            if let Some(url) = urls.first().filter(|_| args.cert.is_none()) {
                let path = super::get::quote(&s.path.display().to_string());
                output.line("Try");
                tries(&stacks, udp.first().copied(), &path, url).iter().for_each(|line| output.line(line));
            }
        }
    }
    output.line("Ctrl-C ends it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_another_covers_is_listened_on_once() {
        let of = |bind: &[&str]| {
            let bind: Vec<IpAddr> = bind.iter().map(|b| b.parse().expect("an address")).collect();
            not_covered(&bind).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["0.0.0.0", "::"]), ["::"]);
        assert_eq!(of(&["::1", "0.0.0.0", "127.0.0.1", "::1"]), ["::1", "0.0.0.0"]);
        assert_eq!(of(&["192.0.2.1", "::", "::1"]), ["::"]);
        assert_eq!(of(&["192.0.2.1", "192.0.2.2"]), ["192.0.2.1", "192.0.2.2"]);
    }

    #[test]
    fn only_what_a_host_has_not_is_left_out() {
        assert!(is_missing("cannot listen on [::1]:1: address family not supported"));
        assert!(is_missing("cannot listen on [::1]:1: address not available on this host"));
        for other in ["address already in use", "permission denied", "too many open files"] {
            assert!(!is_missing(other), "{other}");
        }
    }

    #[test]
    fn what_is_advised_reaches_what_is_served() {
        let of = |stacks: &[Stack], udp| tries(stacks, udp, "ca.pem", "https://localhost:1/");
        assert_eq!(
            of(&[Stack::SctpDtls], Some(7)),
            ["  neater get --transport sctp --udp-port 7 --ca ca.pem https://localhost:1/"]
        );
        assert_eq!(
            of(&[Stack::SctpDtls], Some(UDP_PORT)),
            ["  neater get --transport sctp --ca ca.pem https://localhost:1/"]
        );
        assert_eq!(of(&[Stack::Quic, Stack::Tls], None).len(), 2);
        assert_eq!(of(&[Stack::Quic], None).len(), 1, "curl may know no HTTP/3");
        assert_eq!(of(&[Stack::Tls, Stack::SctpDtls], Some(7)).len(), 3);
    }
}
