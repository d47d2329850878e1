//! Answers that did not come from name servers: those of a program, or of the system's resolver.
//!
//! *Responsible for* keeping them for their stated lifetime, under the name that was asked for.
//! *Not responsible for* asking.

use core::time::Duration;
use neater_base::Instant;
use std::net::IpAddr;

use crate::cache::{Fact, KeyRef, Kind, MAX_TTL};
use crate::name::NameBuf;
use crate::{MAX_ADDRESSES_PER_HOST, Resolver};

impl Resolver {
    /// Whether this host alone decides what a name means: it stands in the hosts file, or is
    /// special (RFC 6761: `localhost`, `invalid` and what is below them).
    #[must_use]
    pub fn decides(&self, name: &str) -> bool {
        NameBuf::lower(name.strip_suffix('.').unwrap_or(name)).is_some_and(|n| self.local(n.as_str()).is_some())
    }

    /// Keeps addresses for a name until `lifetime` is over, at most [`MAX_TTL`], in place of what
    /// was known: of each family the first [`MAX_ADDRESSES_PER_HOST`]. [`Resolver::external`] and
    /// [`Resolver::expiry`] return them, for this interface alone.
    pub fn set_external(
        &mut self,
        now: Instant,
        name: &str,
        interface: Option<u32>,
        addresses: &[IpAddr],
        lifetime: Duration,
    ) {
        let Some(name) = NameBuf::lower(name.strip_suffix('.').unwrap_or(name)) else { return };
        let expires = now + lifetime.min(MAX_TTL);
        for (kind, v4) in [(Kind::Aaaa, false), (Kind::A, true)] {
            let of = addresses.iter().filter(|a| a.is_ipv4() == v4).take(MAX_ADDRESSES_PER_HOST);
            let key = KeyRef { name: name.as_str(), kind, interface };
            self.cache.put(now, key, Fact::Addresses(of.copied().collect()), expires);
        }
    }

    /// What was kept by [`Resolver::set_external`]: IPv6 addresses and then IPv4 addresses, in the
    /// order in which they were given.
    pub fn external(&mut self, now: Instant, name: &str, interface: Option<u32>) -> Option<Vec<IpAddr>> {
        let name = NameBuf::lower(name.strip_suffix('.').unwrap_or(name))?;
        let mut all = Vec::new();
        for kind in [Kind::Aaaa, Kind::A] {
            let slot = self.cache.find(now, KeyRef { name: name.as_str(), kind, interface })?;
            all.extend_from_slice(self.cache.at(slot)?.0.addresses());
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Hosts};

    const S: Duration = Duration::from_secs(1);

    fn resolver() -> Resolver {
        Resolver::new(Config::parse(b"search a.test\n").0, Hosts::parse(b"192.0.2.1 here\n"), [1; 32])
    }

    #[test]
    fn what_was_told_holds_as_long_as_it_was_said_to_and_for_its_interface() {
        let (mut r, t) = (resolver(), Instant::ZERO);
        let all: [IpAddr; 3] = ["192.0.2.7", "2001:db8::7", "192.0.2.8"].map(|a| a.parse().unwrap());
        r.set_external(t, "Printer.local.", None, &all, 10 * S);
        assert_eq!(r.external(t, "printer.LOCAL", None), Some(vec![all[1], all[0], all[2]]));
        assert_eq!(
            (r.expiry(t, "printer.local", true), r.expiry(t, "printer.local", false)),
            (Some(t + 10 * S), Some(t + 10 * S))
        );
        assert_eq!(r.external(t, "printer.local", Some(2)), None);
        assert_eq!(r.external(t + 10 * S, "printer.local", None), None);
        r.set_external(t, "printer.local", None, &all[..1], Duration::ZERO);
        assert_eq!(
            r.external(t, "printer.local", None),
            None,
            "nothing is kept that holds for no time, nor what it replaced"
        );
    }

    #[test]
    fn a_lifetime_and_a_number_of_addresses_have_bounds() {
        let (mut r, t) = (resolver(), Instant::ZERO);
        let many: Vec<IpAddr> = (0..1000u32).map(|i| IpAddr::V4(i.into())).collect();
        r.set_external(t, "many", None, &many, Duration::MAX);
        assert!(r.external(t, "many", None).is_none_or(|a| a.len() <= MAX_ADDRESSES_PER_HOST));
        r.set_external(t, "one", None, &many[..1], Duration::MAX);
        assert_eq!(r.expiry(t, "one", true), Some(t + MAX_TTL));
        r.set_external(t, &"x".repeat(5000), None, &many[..1], S);
    }

    #[test]
    fn the_hosts_file_and_special_names_are_this_hosts_own_business() {
        let r = resolver();
        for (name, own) in
            [("here", true), ("HERE.", true), ("a.localhost", true), ("x.invalid", true), ("there", false)]
        {
            assert_eq!(r.decides(name), own, "{name}");
        }
    }
}
