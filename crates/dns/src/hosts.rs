//! The hosts file.
//!
//! *Responsible for* reading `hosts(5)` leniently and finding a name in it without allocating. *Not
//! responsible for* finding or watching the file, nor for reverse lookups.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::net::IpAddr;

use crate::name::{self, NameBuf};

/// Bytes of the file that are read at most. Block lists are large.
pub const MAX_HOSTS_BYTES: usize = 8 << 20;
/// Names that are kept at most.
pub const MAX_HOST_NAMES: usize = 262_144;
/// Addresses of each family that one name may have.
pub const MAX_ADDRESSES_PER_HOST: usize = 64;

/// The addresses of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) v4: Vec<IpAddr>,
    pub(crate) v6: Vec<IpAddr>,
}

/// The names of a hosts file.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    // Looked up, never iterated.
    table: HashMap<Box<str>, Host, FixedState>,
}

impl Hosts {
    /// Reads the text of a hosts file. Never fails: a line that cannot be understood is left out.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut hosts = Self::default();
        let bytes = bytes.get(..MAX_HOSTS_BYTES).unwrap_or(bytes);
        for line in bytes.split(|b| *b == b'\n') {
            let line = line.split(|b| *b == b'#').next().unwrap_or_default();
            if let Ok(text) = core::str::from_utf8(line) {
                hosts.line(text);
            }
        }
        hosts
    }

    fn line(&mut self, text: &str) {
        let mut words = text.split_ascii_whitespace();
        let Some(addr) = words.next().and_then(|w| w.parse::<IpAddr>().ok()) else { return };
        let addr = addr.to_canonical();
        for word in words {
            let word = word.strip_suffix('.').unwrap_or(word);
            if name::check(word).is_err() {
                continue;
            }
            let lower = word.to_ascii_lowercase();
            if self.table.len() >= MAX_HOST_NAMES && !self.table.contains_key(lower.as_str()) {
                return;
            }
            let host = self.table.entry(lower.into_boxed_str()).or_default();
            let list = if addr.is_ipv4() { &mut host.v4 } else { &mut host.v6 };
            if list.len() < MAX_ADDRESSES_PER_HOST && !list.contains(&addr) {
                list.push(addr);
            }
        }
    }

    /// The addresses of `name`, IPv6 first, each family in the file's order. Case and a final dot
    /// do not matter.
    pub fn lookup(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let host = NameBuf::lower(name.strip_suffix('.').unwrap_or(name)).and_then(|n| self.find(n.as_str()));
        let (v6, v4): (&[IpAddr], &[IpAddr]) = host.map_or((&[], &[]), |h| (&h.v6, &h.v4));
        v6.iter().chain(v4).copied()
    }

    /// The entry of a lower-case name without final dot.
    pub(crate) fn find(&self, lower: &str) -> Option<&Host> {
        self.table.get(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(hosts: &Hosts, name: &str) -> Vec<String> {
        hosts.lookup(name).map(|a| a.to_string()).collect()
    }

    #[test]
    fn a_line_may_hold_several_names_in_any_case() {
        let hosts = Hosts::parse(b"10.0.0.1\tOne.Test  one two # three\n::1 one.test\n10.0.0.2 one.TEST.\n");
        assert_eq!(lookup(&hosts, "ONE.test."), ["::1", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(lookup(&hosts, "two"), ["10.0.0.1"]);
        assert_eq!(lookup(&hosts, "three"), [""; 0]);
        assert_eq!(lookup(&hosts, &"x".repeat(300)), [""; 0]);
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        let hosts = Hosts::parse(b"::ffff:192.0.2.1 one\n192.0.2.1 one\n");
        assert_eq!(lookup(&hosts, "one"), ["192.0.2.1"]);
    }

    #[test]
    fn bad_lines_cost_only_themselves() {
        let hosts =
            Hosts::parse(b"nonsense host\n\xff\xfe bad\n10.0.0.1 b\xc3\xbccher good\n10.0.0.2\n\n10.0.0.3 last");
        assert_eq!(lookup(&hosts, "good"), ["10.0.0.1"]);
        assert_eq!(lookup(&hosts, "last"), ["10.0.0.3"]);
        assert_eq!(hosts.table.len(), 2);
    }

    #[test]
    fn addresses_per_name_are_bounded() {
        let text: String = (0..1000).map(|i| format!("10.0.{}.{} many\n", i / 250, i % 250)).collect();
        assert_eq!(Hosts::parse(text.as_bytes()).lookup("many").count(), MAX_ADDRESSES_PER_HOST);
    }
}
