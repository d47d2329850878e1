//! How many associations peers at each address have opened.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::net::IpAddr;

/// What is counted together: an IPv4 address, or a network of 64 bits, for a host with one address
/// of IPv6 has all of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    V4(u32),
    V6(u64),
}

impl Source {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::V4(a.to_bits()),
            IpAddr::V6(a) => Self::V6((a.to_bits() >> 64) as u64),
        }
    }
}

/// The counts; there are no more of them than associations.
#[derive(Debug)]
pub(super) struct Sources {
    counts: HashMap<Source, usize, FixedState>,
}

impl Sources {
    /// `seed` keeps peers from choosing addresses that collide.
    pub(super) const fn new(seed: u64) -> Self {
        Self { counts: HashMap::with_hasher(FixedState::with_seed(seed)) }
    }

    pub(super) fn of(&self, source: Source) -> usize {
        self.counts.get(&source).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, source: Source) {
        *self.counts.entry(source).or_default() += 1;
    }

    pub(super) fn remove(&mut self, source: Source) {
        if let Some(count) = self.counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_counts_as_one_and_nothing_is_kept_of_those_that_are_gone() {
        let source = |a: &str| Source::of(a.parse().unwrap());
        let mut sources = Sources::new(1);
        sources.add(source("2001:db8::1"));
        sources.add(source("2001:db8::2:3"));
        sources.add(source("192.0.2.1"));
        assert_eq!(sources.of(source("2001:db8::9")), 2);
        assert_eq!((sources.of(source("2001:db8:0:1::9")), sources.of(source("192.0.2.2"))), (0, 0));
        for gone in ["2001:db8::1", "2001:db8::1", "192.0.2.1"] {
            sources.remove(source(gone));
        }
        assert!(sources.counts.is_empty());
    }
}
