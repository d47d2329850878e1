//! Which hosts requests may name.
//!
//! A page of another origin can let its name lead to this host, and would read what is served here
//! under that name (DNS rebinding). Where only programs of this host can connect, names that are
//! not its own are no reason to answer.

use super::certificate::is_name;
use crate::args::ServeArgs;
use crate::failure::Failure;
use neater::tls::{CertificateDer, certifies};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

/// Where Linux has the name of the host.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The hosts that are served.
#[derive(Debug)]
pub(super) struct Hosts {
    names: HashSet<String>,
    addresses: HashSet<IpAddr>,
    certificate: Option<CertificateDer<'static>>,
}

impl Hosts {
    /// What is served at these addresses; `None` if it is any host.
    pub(super) fn new(
        args: &ServeArgs,
        at: &[SocketAddr],
        certificate: Option<CertificateDer<'static>>,
    ) -> Result<Option<Self>, Failure> {
        let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let given: Vec<String> = args.host.iter().map(|host| bare(host)).collect();
        if let Some(bad) = given.iter().find(|host| *host != "*" && (host.contains('*') || !is_name(host))) {
            return Err(Failure::usage(format!("--host {bad:?} is neither the name of a host nor an address, nor *")));
        }
        let own = at.iter().all(|at| at.ip().is_loopback());
        let restricted = own || !given.is_empty() || args.cert.is_some();
        if !restricted || given.iter().any(|host| host == "*") {
            return Ok(None);
        }
        let mut addresses: HashSet<IpAddr> = at.iter().map(SocketAddr::ip).collect();
        let mut names: HashSet<String> = HashSet::from(["localhost".to_owned()]);
        names.extend(std::fs::read_to_string(HOST_NAME).ok().map(|name| name.trim().to_ascii_lowercase()));
        for host in given {
            match host.parse::<IpAddr>() {
                Ok(address) => drop(addresses.insert(address.to_canonical())),
                Err(_) => drop(names.insert(host)),
            }
        }
        Ok(Some(Self { names, addresses, certificate }))
    }

    /// Whether a host is served, in lower case and without brackets.
    pub(super) fn serve(&self, host: &str) -> bool {
        let known = match host.parse::<IpAddr>() {
            Ok(address) => self.addresses.contains(&address.to_canonical()),
            // RFC 6761 section 6.3: names below localhost lead nowhere else.
            Err(_) => self.names.contains(host) || host.ends_with(".localhost"),
        };
        known || self.certificate.as_ref().is_some_and(|certificate| certifies(certificate, host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use core::time::Duration;

    fn hosts(at: &str, more: &[&str]) -> Result<Option<Hosts>, Failure> {
        let line = ["neater", "serve"].iter().chain(more);
        let Command::Serve(args) = Cli::parse_from(line).command else { unreachable!("it was asked for") };
        let made = neater_base::WallTime(Duration::from_secs(1_750_000_000));
        let identity = neater::tls::self_signed(&["a.test", "*.b.test", "192.0.2.1"], made, [1; 32]);
        Hosts::new(&args, &[at.parse().expect("an address")], identity.chain.first().cloned())
    }

    #[test]
    fn what_only_this_host_can_reach_serves_its_own_names() {
        let of = |more: &[&str]| hosts("127.0.0.1:4433", more).unwrap_or_else(|f| panic!("{f:?}"));
        let own = of(&[]).expect("some hosts");
        for name in ["localhost", "a.localhost", "127.0.0.1", "a.test", "x.b.test", "192.0.2.1", "::ffff:127.0.0.1"] {
            assert!(own.serve(name), "{name}");
        }
        for name in ["evil.test", "localhost.evil.test", "127.0.0.2", "x.a.test", "", "notlocalhost", "a b"] {
            assert!(!own.serve(name), "{name}");
        }
        let more = of(&["--host", "Evil.test", "--host", "[2001:db8::1]"]).expect("some hosts");
        assert!(more.serve("evil.test") && more.serve("2001:db8:0::1") && more.serve("localhost"));
        assert!(of(&["--host", "*"]).is_none());
    }

    #[test]
    fn what_others_can_reach_serves_any_host_unless_some_are_named() {
        let of = |more: &[&str]| hosts("0.0.0.0:4433", more).unwrap_or_else(|f| panic!("{f:?}"));
        assert!(of(&[]).is_none());
        assert!(of(&["--host", "a.example"]).is_some_and(|h| h.serve("a.example") && !h.serve("b.example")));
        let certified = of(&["--cert", "c", "--key", "k"]).expect("those of the certificate");
        assert!(certified.serve("a.test") && !certified.serve("b.example"));
        assert!(of(&["--cert", "c", "--key", "k", "--host", "*"]).is_none());
        assert!(hosts("127.0.0.1:1", &["--host", "a/b"]).is_err() && hosts("127.0.0.1:1", &["--host", "*.a"]).is_err());
    }
}
