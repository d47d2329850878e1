//! Which hosts are asked without a proxy.
//!
//! *Responsible for* the list of `no_proxy`, with curl's meaning. *Not responsible for* where the
//! list comes from.
//!
//! *Invariants*: nothing is resolved: a name matches names, an address matches addresses and
//! networks.

use core::net::IpAddr;

/// The hosts that a list names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bypass {
    all: bool,
    /// Without dots around them, in lower case.
    names: Vec<String>,
    /// Addresses of networks, and how many bits of them count.
    networks: Vec<(IpAddr, u32)>,
}

impl Bypass {
    /// Reads a list, in which commas or blanks are between the hosts; newer versions of curl end it
    /// at a blank without a comma. `*` alone is all of them. What is neither name nor network, such
    /// as a host with a port, matches nothing, as in curl.
    pub(super) fn parse(list: &str) -> Self {
        if list.trim() == "*" {
            return Self { all: true, ..Self::default() };
        }
        let mut all = Self::default();
        for token in list.split([',', ' ', '\t']).filter(|t| !t.is_empty()) {
            match network(token) {
                Some(network) => all.networks.push(network),
                None => {
                    let name = token.strip_suffix('.').unwrap_or(token);
                    let name = name.strip_prefix('.').unwrap_or(name);
                    if !name.is_empty() {
                        all.names.push(name.to_ascii_lowercase());
                    }
                }
            }
        }
        all
    }

    /// Whether a host is named: itself, a domain that it is in, or a network.
    pub(super) fn has(&self, host: &str) -> bool {
        if self.all {
            return true;
        }
        // A zone (RFC 4007 section 11) is no part of the address.
        let bare = host.split('%').next().unwrap_or_default();
        if let Ok(address) = bare.parse::<IpAddr>() {
            return self.networks.iter().any(|(network, bits)| is_in(address, *network, *bits));
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.names.iter().any(|name| {
            // A domain ends where a label does.
            host.strip_suffix(name.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }
}

/// An address, or a network (RFC 4632 section 3.1, RFC 4291 section 2.3). Brackets around IPv6 are
/// taken off.
fn network(token: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = token.split_once('/').map_or((token, None), |(a, b)| (a, Some(b)));
    let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
    let address: IpAddr = bare.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |b| b.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let differ = a.to_bits() ^ n.to_bits();
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let differ = a.to_bits() ^ n.to_bits();
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of curl's manual for `--noproxy`, and the cases of its own test.
    #[test]
    fn hosts_match_as_in_curl() {
        for (list, host, named) in [
            ("*", "example.com", true),
            (" * ", "192.0.2.1", true),
            ("", "example.com", false),
            ("a.example,*", "example.com", false),
            // A name is that host, and all below it.
            ("example.com", "example.com", true),
            ("example.com", "www.example.com", true),
            ("example.com", "a.b.example.com", true),
            ("example.com", "nonexample.com", false),
            ("example.com", "example.com.evil.example", false),
            ("www.example.com", "example.com", false),
            ("localhost", "localhost", true),
            // A dot before or behind it changes nothing.
            (".example.com", "example.com", true),
            (".example.com", "www.example.com", true),
            (".example.com", "nonexample.com", false),
            ("example.com.", "www.example.com", true),
            ("example.com", "www.example.com.", true),
            (".", "example.com", false),
            // Nor does case.
            ("Example.COM", "www.example.com", true),
            // Lists, also untidy ones.
            ("localhost,.example.com,.example.org", "example.org", true),
            ("foo, bar, .example.com", "x.example.com", true),
            ("foo,,,,,    bar", "bar", true),
            ("foo bar", "bar", true),
            ("foo, bar", "foobar", false),
            ("example.com,", "example.com", true),
            // Addresses and networks.
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.10", false),
            ("localhost,192.0.2.1", "192.0.2.1", true),
            ("192.168.0.0/16", "192.168.7.1", true),
            ("192.168.0.0/16", "192.169.0.1", false),
            ("192.168.0.0/24", "192.168.1.1", false),
            ("192.168.0.0/32", "192.168.0.1", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("192.0.2.128/25", "192.0.2.129", true),
            ("192.0.2.128/25", "192.0.2.127", false),
            ("192.0.2.1/33", "192.0.2.1", false),
            ("192.0.2.1/x", "192.0.2.1", false),
            // As CIDR has it; curl takes it for the address alone.
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true),
            ("[::1]", "::1", true),
            ("0:0::1", "::1", true),
            ("fe80::/10", "fe80::1%eth0", true),
            ("2001:db8::/32", "2001:db8:7::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("2001:db8:80::/41", "2001:db8:ff::1", true),
            ("2001:db8:80::/41", "2001:db8:7f::1", false),
            ("::1/129", "::1", false),
            // No name is resolved, and no address is a domain.
            ("127.0.0.0/8", "localhost", false),
            ("2.1", "192.0.2.1", false),
            ("example.com", "192.0.2.1", false),
            // A port is no part of it.
            ("example.com:80", "example.com", false),
            ("192.0.2.1:80", "192.0.2.1", false),
        ] {
            assert_eq!(Bypass::parse(list).has(host), named, "{list:?} and {host}");
        }
    }
}
