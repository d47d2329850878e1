//! Endpoints (RFC 9622 section 6.1).

use core::fmt;
use core::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a connection goes: at most one name, one address, one port and one interface each.
///
/// With an address it leads only there; with a name and no address, to any address derived from the
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteEndpoint {
    pub(crate) host: Option<Arc<str>>,
    pub(crate) addr: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) interface: Option<Arc<str>>,
    pub(crate) protocol: Option<crate::Stack>,
    /// The UDP port that SCTP is encapsulated to.
    pub(crate) encapsulation_port: Option<u16>,
    /// Of the other fields: the key of the outcome cache, computed once here instead of at every
    /// connect.
    pub(crate) hash: u64,
}

impl RemoteEndpoint {
    /// An endpoint without any identifier.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn rehash(mut self) -> Self {
        let identifiers = (&self.host, self.addr, self.port, &self.interface, self.protocol, self.encapsulation_port);
        self.hash = foldhash::fast::FixedState::with_seed(1).hash_one(identifiers);
        self
    }

    /// A name to be resolved when a connection is initiated. A literal address is taken as one.
    #[must_use]
    pub fn with_host_name(mut self, name: &str) -> Self {
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        // fe80::1%eth0 is an address and the interface that qualifies its scope zone.
        let (addr, zone) = bare.split_once('%').map_or((bare, None), |(a, z)| (a, Some(z)));
        if let Ok(addr) = addr.parse() {
            self.addr = Some(IpAddr::to_canonical(&addr));
            if let Some(zone) = zone {
                self.interface = Some(zone.into());
            }
        } else {
            self.host = Some(name.into());
        }
        self.rehash()
    }

    /// The port. 0 is no port: opening fails.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self.rehash()
    }

    /// The address. An IPv4 address in the clothes of IPv6 (`::ffff:192.0.2.1`, RFC 4291 section
    /// 2.5.5.2) is the IPv4 address: that is what its host is asked by, and what it answers from.
    #[must_use]
    pub fn with_ip_address(mut self, addr: IpAddr) -> Self {
        self.addr = Some(addr.to_canonical());
        self.rehash()
    }

    /// The interface that qualifies the scope zone of a link-local address.
    #[must_use]
    pub fn with_interface(mut self, name: &str) -> Self {
        self.interface = Some(name.into());
        self.rehash()
    }

    /// Applies this endpoint to one protocol only (RFC 9622 section 6.1.3).
    #[must_use]
    pub fn with_protocol(mut self, stack: crate::Stack) -> Self {
        self.protocol = Some(stack);
        self.rehash()
    }

    /// The UDP port of the peer that SCTP is encapsulated to (RFC 6951), where it is not 9899. The
    /// port of the endpoint is that of SCTP.
    #[must_use]
    pub fn with_udp_port(mut self, port: u16) -> Self {
        self.encapsulation_port = Some(port);
        self.rehash()
    }

    /// The name, if there is one.
    #[must_use]
    pub fn host_name(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if it was given.
    #[must_use]
    pub fn ip_address(&self) -> Option<IpAddr> {
        self.addr
    }
}

impl From<SocketAddr> for RemoteEndpoint {
    /// The scope of a link-local address becomes the number of its interface.
    fn from(a: SocketAddr) -> Self {
        let endpoint = Self::new().with_ip_address(a.ip()).with_port(a.port());
        match a {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => endpoint.with_interface(&v6.scope_id().to_string()),
            _ => endpoint,
        }
    }
}

/// A text that is no endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct BadEndpoint(String);

/// In words: `main` prints what it returns like this.
impl fmt::Debug for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for BadEndpoint {}

impl core::str::FromStr for RemoteEndpoint {
    type Err = BadEndpoint;

    /// `host:port`, `1.2.3.4:port` or `[::1]:port`.
    fn from_str(s: &str) -> Result<Self, BadEndpoint> {
        let bad = |why: &str| BadEndpoint(format!("`{s}` is not HOST:PORT: {why}"));
        if s.contains("://") {
            return Err(bad("it is a URL: give its host and port alone"));
        }
        if s.contains(char::is_whitespace) {
            return Err(bad("there is a space in it"));
        }
        let (host, port) = s.rsplit_once(':').ok_or_else(|| bad("the port is missing (try example.com:443)"))?;
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse::<u16>().ok().filter(|_| digits);
        let port = port.ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        if port == 0 {
            return Err(bad("port 0 cannot be connected to"));
        }
        if host.is_empty() {
            return Err(bad("the host is missing"));
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err(bad("an IPv6 address needs brackets: [::1]:443"));
        }
        let e = Self::new().with_host_name(host).with_port(port);
        if host.starts_with('[') && e.addr.is_none() {
            return Err(bad("what stands in brackets is not an IPv6 address"));
        }
        Ok(e)
    }
}

impl fmt::Display for RemoteEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.addr) {
            (Some(h), _) => write!(f, "{h}:{}", self.port),
            (None, Some(a)) => write!(f, "{}", SocketAddr::new(a, self.port)),
            (None, None) => write!(f, "?:{}", self.port),
        }
    }
}

/// Where a connection comes from, or a listener listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalEndpoint {
    pub(crate) addr: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) interface: Option<Arc<str>>,
    /// The UDP port that SCTP is encapsulated to.
    pub(crate) encapsulation_port: Option<u16>,
}

impl LocalEndpoint {
    /// An endpoint without any identifier: any address, an ephemeral port.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The port; 0 lets the system choose.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The address. For a listener `::` means any, IPv4 included; for a connection an unspecified
    /// address, `0.0.0.0` or `::`, is any of its family, and no other family is used.
    #[must_use]
    pub fn with_ip_address(mut self, addr: IpAddr) -> Self {
        self.addr = Some(addr);
        self
    }

    /// Bind to this interface.
    #[must_use]
    pub fn with_interface(mut self, name: &str) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// The UDP port at which a listener takes SCTP (RFC 6951), where it is not 9899; 0 lets the
    /// system choose. The port of the endpoint is that of SCTP. Several listeners of one engine may
    /// have the same UDP port.
    #[must_use]
    pub fn with_udp_port(mut self, port: u16) -> Self {
        self.encapsulation_port = Some(port);
        self
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if one was given.
    #[must_use]
    pub fn ip_address(&self) -> Option<IpAddr> {
        self.addr
    }

    /// The address that a connection is to come from, if it is a certain one.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.addr.filter(|a| !a.is_unspecified())
    }
}

impl From<SocketAddr> for LocalEndpoint {
    fn from(a: SocketAddr) -> Self {
        Self::new().with_ip_address(a.ip()).with_port(a.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_endpoints_or_say_what_is_wrong() {
        let e: RemoteEndpoint = "example.com:443".parse().expect("name");
        assert_eq!((e.host_name(), e.port(), e.ip_address()), (Some("example.com"), 443, None));
        let e: RemoteEndpoint = "[::1]:80".parse().expect("v6");
        assert_eq!(e.ip_address(), Some("::1".parse().expect("literal")));
        let e: RemoteEndpoint = "[::ffff:192.0.2.1]:80".parse().expect("v4, whatever it looks like");
        assert_eq!(e, RemoteEndpoint::from(SocketAddr::from(([192, 0, 2, 1], 80))));
        let e: RemoteEndpoint = "[fe80::1%eth0]:80".parse().expect("scoped");
        assert_eq!(e.interface.as_deref(), Some("eth0"));
        let scoped = std::net::SocketAddrV6::new("fe80::1".parse().expect("literal"), 80, 0, 3);
        assert_eq!(RemoteEndpoint::from(SocketAddr::from(scoped)).interface.as_deref(), Some("3"));
        for (text, word) in [
            ("example.com", "port is missing"),
            ("example.com:0", "port 0"),
            ("example.com:70000", "1 to 65535"),
            ("example.com:+80", "1 to 65535"),
            ("https://example.com:443", "URL"),
            ("exa mple.com:443", "space"),
            ("::1:80", "brackets"),
            (":80", "host is missing"),
            ("[nonsense]:80", "not an IPv6 address"),
        ] {
            let e = text.parse::<RemoteEndpoint>().expect_err(text);
            assert!(e.to_string().contains(word), "{e}");
        }
    }

    #[test]
    fn the_hash_follows_every_identifier() {
        let base = RemoteEndpoint::new().with_host_name("a").with_port(1);
        for other in [
            base.clone().with_port(2),
            base.clone().with_interface("eth0"),
            base.clone().with_protocol(crate::Stack::Quic),
            RemoteEndpoint::new().with_host_name("b").with_port(1),
        ] {
            assert_ne!(base.hash, other.hash);
        }
        assert_eq!(base.hash, RemoteEndpoint::new().with_port(1).with_host_name("a").hash);
    }
}
