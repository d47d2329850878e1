//! One request for a domain's document (RFC 8801 section 4.1), with the domain's own configuration and nothing else: its
//! interface, one of its addresses, its DNS servers.
//!
//! *Invariant*: whoever advertises decides what is connected to only as far as it is another host of the network, at the port of
//! HTTPS: no address of this host's own, whatever the domain's servers say of the name.

use crate::explain::resolve;
use crate::ping::ways::interfaces;
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use neater::{LocalEndpoint, Neater, SecurityParameters, Stack};
use neater_http::{Client, Error, RequestOptions, Url};
use neater_policy::pvd::{Failure, Fetch, MAX_DOCUMENT, MEDIA_TYPE};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often another place is named.
const REDIRECTS: u8 = 5;

/// A file that is gone with what this stands for.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether an error says that somebody answered who has no document, or may not speak for the domain.
fn refused(e: &Error) -> bool {
    e.is_security()
        || matches!(e, Error::Url(_) | Error::Needs(_) | Error::Redirect(_) | Error::Protocol(_) | Error::Length { .. })
}

/// Whether a document may be asked for there: at an ordinary IPv6 address that is none of this host's.
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
    let local = |e: std::io::Error| Failure::Unreachable(format!("{}: this host: {e}", fetch.id));
    // Names are resolved by the domain's servers. A link-local one is on the domain's interface.
    let servers: String = fetch
        .dns
        .iter()
        .map(|s| {
            let zone = if s.is_unicast_link_local() { format!("%{}", fetch.index) } else { String::new() };
            format!("nameserver {s}{zone}\n")
        })
        .collect();
    let resolv = folder.join(format!(".resolv-{}-{}", std::process::id(), fetch.ticket));
    std::fs::write(&resolv, servers).map_err(local)?;
    let resolv = Gone(resolv);
    let found = resolve::addresses(&fetch.id, Some(&resolv.0), Some(Path::new("/dev/null")), Some(PATIENCE)).await;
    let found = match found {
        Ok(found) => found.map_err(|why| Failure::Unreachable(format!("{}: {why}", fetch.id)))?,
        Err(e) => return Err(Failure::Refused(format!("{}: {}", fetch.id, e.message))),
    };
    let own = interfaces().map_err(|e| Failure::Unreachable(format!("{}: {}", fetch.id, e.message)))?;
    let own: Vec<IpAddr> = own.iter().flat_map(|i| i.addrs.iter().map(|a| a.addr)).collect();
    let others: Vec<IpAddr> = found.into_iter().filter(|ip| is_elsewhere(*ip, &own)).collect();
    if others.is_empty() {
        return Err(Failure::Refused(format!("{}: it has no address of another host", fetch.id)));
    }
    // What stands in a hosts file is asked of nobody: neither other addresses nor another port come from an HTTPS record.
    let hosts = Gone(folder.join(format!(".hosts-{}-{}", std::process::id(), fetch.ticket)));
    let lines: String = others.iter().map(|ip| format!("{ip} {}\n", fetch.id)).collect();
    std::fs::write(&hosts.0, lines).map_err(local)?;
    // What the host's administrator wrote into its files, its policies too, is not the domain's configuration.
    let context = Neater::builder().resolv_conf("/dev/null").hosts(&hosts.0).without_policies().build();
    let from = LocalEndpoint::new().with_ip_address(IpAddr::V6(fetch.source)).with_interface(&fetch.interface);
    let client = Client::builder(context.map_err(local)?)
        .local(from)
        .stacks(&[Stack::Tls])
        .security(security)
        .connect_timeout(PATIENCE)
        .silence(PATIENCE)
        .build();
    let url = Url::parse(&format!("https://{}/.well-known/pvd", fetch.id));
    let url = url.map_err(|e| Failure::Refused(format!("{}: {e}", fetch.id)))?;
    let mut options = RequestOptions { redirects: REDIRECTS, ..RequestOptions::default() };
    options.headers.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
    let failed = |e: Error| {
        let why = format!("{url}: {e}");
        if refused(&e) { Failure::Refused(why) } else { Failure::Unreachable(why) }
    };
    let mut response = client.get(&url, &options).await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(Failure::Refused(format!("{url}: HTTP {}", response.status().as_u16())));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(Failure::Refused(format!("{url}: it is {essence:.80?}, and not {MEDIA_TYPE}")));
    }
    let mut document = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
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
}
