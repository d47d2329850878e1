//! One request for a domain's document (RFC 8801 section 4.1), with the domain's own configuration
//! and nothing else: its interface, one of its addresses, its DNS servers.
//!
//! *Invariant*: the advertising router decides the destination only as far as it is another host of
//! the network, at the port of HTTPS: no address of this host's own, whatever the domain's servers
//! answer for the name, and wherever an answer redirects.

use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue};
use neater::{LocalEndpoint, Neater, SecurityParameters, Stack};
use neater_command::{interfaces, resolve};
use neater_http::{Client, Error, Response, Scheme, Url};
use neater_policy::pvd::{Failure, Fetch, MAX_DOCUMENT, MEDIA_TYPE};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often another place is named.
const REDIRECTS: usize = 5;

/// A file that is gone with what this stands for.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether an error means that a server answered which has no document, or is not authorised for
/// the domain.
fn refused(e: &Error) -> bool {
    e.is_security()
        || matches!(e, Error::Url(_) | Error::Needs(_) | Error::Redirect(_) | Error::Protocol(_) | Error::Length { .. })
}

/// Whether a document may be asked for there: at an ordinary IPv6 address that is none of this
/// host's.
fn is_elsewhere(ip: IpAddr, own: &[IpAddr]) -> bool {
    let IpAddr::V6(v6) = ip else { return false };
    let special = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local();
    !special && v6.to_ipv4_mapped().is_none() && !own.contains(&ip)
}

/// Asks for a document. `folder` is one that only the manager writes to.
pub(super) async fn document(fetch: Fetch, security: SecurityParameters, folder: &Path) -> Result<Vec<u8>, Failure> {
    match tokio::time::timeout(PATIENCE, ask(&fetch, security, folder)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::Unreachable(format!("{}: nothing came for {} s", fetch.id, PATIENCE.as_secs()))),
    }
}

async fn ask(fetch: &Fetch, security: SecurityParameters, folder: &Path) -> Result<Vec<u8>, Failure> {
    // Names are resolved by the domain's servers. A link-local one is on the domain's interface.
    let servers: String = fetch
        .dns
        .iter()
        .map(|s| {
            let zone = if s.is_unicast_link_local() { format!("%{}", fetch.index) } else { String::new() };
            format!("nameserver {s}{zone}\n")
        })
        .collect();
    let resolv = Gone(folder.join(format!(".resolv-{}-{}", std::process::id(), fetch.ticket)));
    std::fs::write(&resolv.0, servers).map_err(|e| this_host(fetch, &e))?;
    let url = Url::parse(&format!("https://{}/.well-known/pvd", fetch.id));
    let mut url = url.map_err(|e| Failure::Refused(format!("{}: {e}", fetch.id)))?;
    for _ in 0..=REDIRECTS {
        let (client, _hosts) = client(fetch, &security, folder, &resolv.0, &url).await?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        let response = client.get_once(&url, &headers).await.map_err(|e| failed(&url, &e))?;
        match location(&response) {
            // RFC 8801 section 4.1: a redirection is followed, with the same configuration.
            Some(location) => url = next(&url, &location)?,
            None => return read(&url, response).await,
        }
    }
    Err(Failure::Refused(format!("{}: more than {REDIRECTS} redirections, the last to {url}", fetch.id)))
}

fn this_host(fetch: &Fetch, e: &std::io::Error) -> Failure {
    Failure::Unreachable(format!("{}: this host: {e}", fetch.id))
}

fn failed(url: &Url, e: &Error) -> Failure {
    let why = format!("{url}: {e}");
    if refused(e) { Failure::Refused(why) } else { Failure::Unreachable(why) }
}

/// Where an answer sends us, if it does.
fn location(response: &Response) -> Option<String> {
    let sends = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| sends)?;
    location.to_str().ok().map(str::to_owned)
}

/// What is asked next: nothing but another place of HTTPS at its own port.
fn next(url: &Url, location: &str) -> Result<Url, Failure> {
    let no = |why: String| Failure::Refused(format!("{url}: it redirects to where no request is sent: {why}"));
    let next = url.join(location).map_err(|e| no(e.to_string()))?;
    let origin = next.origin();
    if (origin.scheme, origin.port) != (Scheme::Https, 443) {
        return Err(no(format!("{next} is not of HTTPS at port 443")));
    }
    Ok(next)
}

/// The addresses of a URL's host that may be asked.
async fn places(fetch: &Fetch, resolv: &Path, host: &str) -> Result<Vec<IpAddr>, Failure> {
    let found = match host.parse::<IpAddr>() {
        Ok(literal) => vec![literal],
        Err(_) => match resolve::addresses(host, Some(resolv), Some(Path::new("/dev/null")), Some(PATIENCE)).await {
            Ok(found) => found.map_err(|why| Failure::Unreachable(format!("{host}: {why}")))?,
            Err(e) => return Err(Failure::Refused(format!("{host}: {}", e.message))),
        },
    };
    let own = interfaces().map_err(|e| Failure::Unreachable(format!("{}: {}", fetch.id, e.message)))?;
    let own: Vec<IpAddr> = own.iter().flat_map(|i| i.addrs.iter().map(|a| a.addr)).collect();
    let others: Vec<IpAddr> = found.into_iter().filter(|ip| is_elsewhere(*ip, &own)).collect();
    if others.is_empty() {
        return Err(Failure::Refused(format!("{host}: it has no address of another host")));
    }
    Ok(others)
}

/// A client that can request this URL and no other, and the file that it looks into.
async fn client(
    fetch: &Fetch,
    security: &SecurityParameters,
    folder: &Path,
    resolv: &Path,
    url: &Url,
) -> Result<(Client, Gone), Failure> {
    let host = &url.origin().host;
    let others = places(fetch, resolv, host).await?;
    // Names in a hosts file are not looked up: neither other addresses nor another port come from
    // an HTTPS record.
    let hosts = Gone(folder.join(format!(".hosts-{}-{}", std::process::id(), fetch.ticket)));
    let lines: String = others.iter().map(|ip| format!("{ip} {host}\n")).collect();
    std::fs::write(&hosts.0, lines).map_err(|e| this_host(fetch, &e))?;
    // What the host's administrator wrote into its files, its policies too, is not the domain's
    // configuration.
    let context = Neater::builder().resolv_conf("/dev/null").hosts(&hosts.0).without_policies().build();
    let from = LocalEndpoint::new().with_ip_address(IpAddr::V6(fetch.source)).with_interface(&fetch.interface);
    let client = Client::builder(context.map_err(|e| this_host(fetch, &e))?)
        .local(from)
        .stacks(&[Stack::Tls])
        .security(security.clone())
        .connect_timeout(PATIENCE)
        .silence(PATIENCE)
        .build();
    Ok((client, hosts))
}

/// The document that an answer is.
async fn read(url: &Url, mut response: Response) -> Result<Vec<u8>, Failure> {
    if !response.status().is_success() {
        return Err(Failure::Refused(format!("{url}: HTTP {}", response.status().as_u16())));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(Failure::Refused(format!("{url}: it is {essence:.80?}, and not {MEDIA_TYPE}")));
    }
    let mut document = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| failed(url, &e))? {
        document.extend_from_slice(&piece);
        if document.len() > MAX_DOCUMENT {
            return Err(Failure::Refused(format!("{url}: it has more than {MAX_DOCUMENT} bytes")));
        }
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_cannot_send_this_host_to_itself() {
        let ip = |s: &str| s.parse::<IpAddr>().expect("literal");
        let own = [ip("2001:db8::7"), ip("192.0.2.7")];
        assert!(is_elsewhere(ip("2001:db8::8"), &own) && is_elsewhere(ip("fd00::2"), &own));
        let bad =
            ["2001:db8::7", "::1", "::", "fe80::1", "ff02::1", "::ffff:192.0.2.8", "::ffff:127.0.0.1", "192.0.2.8"];
        for bad in bad {
            assert!(!is_elsewhere(ip(bad), &own), "{bad}");
        }
    }

    #[test]
    fn a_redirection_leads_to_no_other_port_and_to_nothing_in_clear() {
        let url = Url::parse("https://home.example/.well-known/pvd").expect("a URL");
        let to = |location: &str| next(&url, location).map(|url| url.to_string()).map_err(|e| format!("{e:?}"));
        assert_eq!(to("/pvd.json").as_deref(), Ok("https://home.example/pvd.json"));
        assert_eq!(to("https://other.example:443/x").as_deref(), Ok("https://other.example/x"));
        // Whether this is another host is seen before it is asked.
        assert_eq!(to("https://[2001:db8::8]/x").as_deref(), Ok("https://[2001:db8::8]/x"));
        for bad in [
            "https://home.example:22/",
            "http://home.example/",
            "https://[::1]:8443/",
            "//home.example:80/",
            "ftp://x/",
        ] {
            let why = to(bad).expect_err(bad);
            assert!(why.contains("no request is sent"), "{bad}: {why}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_is_named_is_asked_only_if_that_is_another_host() {
        let fetch = Fetch {
            ticket: 1,
            id: "home.example".into(),
            interface: "lo".into(),
            index: 1,
            source: std::net::Ipv6Addr::LOCALHOST,
            dns: Vec::new(),
        };
        let ask = |host: &'static str| {
            let fetch = &fetch;
            async move { places(fetch, Path::new("/dev/null"), host).await.map_err(|e| format!("{e:?}")) }
        };
        assert_eq!(ask("2001:db8::8").await.map(|a| a.len()), Ok(1));
        for own in ["::1", "127.0.0.1", "fe80::1", "::ffff:127.0.0.1"] {
            assert!(ask(own).await.is_err_and(|why| why.contains("no address of another host")), "{own}");
        }
    }
}
