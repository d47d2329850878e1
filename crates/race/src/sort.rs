//! Destination address selection (RFC 6724 section 6).
//!
//! *Responsible for* the order of addresses before families are interleaved. *Not responsible for*
//! choosing source addresses: they come with the destinations, and rules 3, 4 and 7 need facts
//! about them that no caller gives.

use crate::{Address, Family};
use core::cmp::Reverse;
use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr};

/// Sorts destinations by RFC 6724 section 6, as far as source addresses are known: rules 1, 2, 5,
/// 6, 8, 9 and 10, with the default policy table of section 2.1.
///
/// Between rules 8 and 9 stands the rule of RFC 8305 section 4 that "prefers addresses with lower
/// RTTs"; an address with a known round-trip time has been used, so it goes before one without.
/// Rule 9 is applied to IPv6 alone, over the first 64 bits: the length of an IPv4 source's prefix
/// is not known here, and comparing beyond it would undo the order by which DNS spreads load. The
/// sort is stable, which is rule 10.
pub fn sort_destinations(addresses: &mut [Address]) {
    // One key for all pairs, hence a total order: rule 6 separates the families, so rule 9 never
    // compares across them.
    addresses.sort_by_key(|a| {
        let usability = Usability::of(a);
        let policy = policy(mapped(a.addr));
        let prefix = a.source.map_or(0, |source| common_prefix_len(source, a.addr));
        (usability, Reverse(policy.precedence), scope(a.addr), rtt_key(a.rtt), Reverse(prefix))
    });
}

/// Rules 1, 2 and 5: what speaks against a destination whatever its precedence. Less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Usability {
    /// Rule 1: "Avoid unusable destinations."
    no_source: bool,
    /// Rule 2: "Prefer matching scope."
    other_scope: bool,
    /// Rule 5: "Prefer matching label."
    other_label: bool,
}

impl Usability {
    pub(crate) fn of(a: &Address) -> Self {
        Self {
            no_source: a.source.is_none(),
            other_scope: a.source.is_none_or(|source| scope(source) != scope(a.addr)),
            other_label: a.source.is_none_or(|s| policy(mapped(s)).label != policy(mapped(a.addr)).label),
        }
    }
}

/// Lower before higher, known before unknown.
fn rtt_key(rtt: Option<Duration>) -> (bool, Duration) {
    (rtt.is_none(), rtt.unwrap_or_default())
}

/// RFC 6724 section 3.2: "IPv4 addresses MUST be represented as IPv4-mapped addresses".
fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

struct Row {
    prefix: u128,
    len: u32,
    precedence: u8,
    label: u8,
}

const fn row(prefix: Ipv6Addr, len: u32, precedence: u8, label: u8) -> Row {
    Row { prefix: prefix.to_bits(), len, precedence, label }
}

const fn ip(a: u16, b: u16, f: u16, g: u16, h: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, 0, 0, 0, f, g, h)
}

/// The default policy table of RFC 6724 section 2.1, longest prefix first.
const POLICY: [Row; 9] = [
    row(ip(0, 0, 0, 0, 1), 128, 50, 0),
    row(ip(0, 0, 0xffff, 0, 0), 96, 35, 4),
    row(ip(0, 0, 0, 0, 0), 96, 1, 3),
    row(ip(0x2001, 0, 0, 0, 0), 32, 5, 5),
    row(ip(0x2002, 0, 0, 0, 0), 16, 30, 2),
    row(ip(0x3ffe, 0, 0, 0, 0), 16, 1, 12),
    row(ip(0xfec0, 0, 0, 0, 0), 10, 1, 11),
    row(ip(0xfc00, 0, 0, 0, 0), 7, 3, 13),
    REST,
];
const REST: Row = row(ip(0, 0, 0, 0, 0), 0, 40, 1);

fn policy(addr: Ipv6Addr) -> &'static Row {
    let bits = addr.to_bits();
    POLICY.iter().find(|row| (bits ^ row.prefix).leading_zeros() >= row.len).unwrap_or(&REST)
}

const LINK_LOCAL: u8 = 0x2;
const SITE_LOCAL: u8 = 0x5;
const GLOBAL: u8 = 0xe;

/// RFC 6724 sections 3.1 to 3.4.
fn scope(addr: IpAddr) -> u8 {
    match addr.to_canonical() {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_link_local() => LINK_LOCAL,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            if v6.is_multicast() {
                (first & 0xf) as u8
            } else if v6.is_loopback() || first & 0xffc0 == 0xfe80 {
                LINK_LOCAL
            } else if first & 0xffc0 == 0xfec0 {
                SITE_LOCAL
            } else {
                GLOBAL
            }
        }
    }
}

/// RFC 6724 section 2.2, "up to the length of S's prefix (i.e., the portion of the address not
/// including the interface ID)", which is 64 bits; 0 for IPv4.
fn common_prefix_len(source: IpAddr, destination: IpAddr) -> u32 {
    match (source.to_canonical(), destination.to_canonical()) {
        (IpAddr::V6(s), IpAddr::V6(d)) => (s.to_bits() ^ d.to_bits()).leading_zeros().min(64),
        _ => 0,
    }
}

/// The family whose attempts go first, of addresses already sorted; `None` when there are none.
pub(crate) fn first_family(sorted: &[Address], preferred: Family) -> Option<Family> {
    let first = sorted.first()?;
    // RFC 6724 prefers IPv6 by precedence. A caller that prefers IPv4 overrules that, but not what
    // makes an address unusable.
    let overruling = sorted.iter().find(|a| preferred == Family::V4 && a.family() == Family::V4);
    Some(match overruling {
        Some(a) if Usability::of(a) <= Usability::of(first) => Family::V4,
        _ => first.family(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut list: Vec<Address> = pairs.iter().map(|(d, s)| address(d, s)).collect();
        sort_destinations(&mut list);
        list.iter().map(|a| a.addr.to_string()).collect()
    }

    fn address(destination: &str, source: &str) -> Address {
        Address::new(destination.parse().unwrap(), source.parse().ok())
    }

    /// RFC 6724 section 10.2. Each row: destinations with the source that source selection gives
    /// them, in the order of the RFC's result. The fifth and sixth examples need rules 4 (home
    /// addresses) and 3 (deprecated addresses).
    #[test]
    fn the_examples_of_rfc_6724_section_10_2_come_out_as_printed() {
        let examples: [&[(&str, &str)]; 7] = [
            // "prefer matching scope"
            &[("2001:db8:1::1", "2001:db8:1::2"), ("198.51.100.121", "169.254.13.78")],
            &[("198.51.100.121", "198.51.100.117"), ("2001:db8:1::1", "fe80::1")],
            // "prefer higher precedence"
            &[("2001:db8:1::1", "2001:db8:1::2"), ("10.1.2.3", "10.1.2.4")],
            // "prefer smaller scope"
            &[("fe80::1", "fe80::2"), ("2001:db8:1::1", "2001:db8:1::2")],
            // "longest matching prefix"
            &[("2001:db8:1::1", "2001:db8:1::2"), ("2001:db8:3ffe::1", "2001:db8:3f44::2")],
            // "prefer matching label"
            &[("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2002:c633:6401::2")],
            // "prefer higher precedence"
            &[("2001:db8:1::1", "2001:db8:1::2"), ("2002:c633:6401::1", "2002:c633:6401::2")],
        ];
        for example in examples {
            let expected: Vec<&str> = example.iter().map(|(d, _)| *d).collect();
            assert_eq!(sorted(example), expected);
            let reversed: Vec<_> = example.iter().rev().copied().collect();
            assert_eq!(sorted(&reversed), expected, "and from the other order");
        }
    }

    /// RFC 6724 section 6: "If DB is known to be unreachable or if Source(DB) is undefined, then
    /// prefer DA."
    #[test]
    fn an_address_without_a_route_goes_last() {
        let list = [("2001:db8::1", ""), ("192.0.2.1", "192.0.2.9"), ("2001:db8::2", "")];
        assert_eq!(sorted(&list), ["192.0.2.1", "2001:db8::1", "2001:db8::2"]);
    }

    /// RFC 6724 section 6: "Rule 10: Otherwise, leave the order unchanged."
    #[test]
    fn equal_addresses_keep_the_order_of_the_answer() {
        let list = [("192.0.2.7", "198.51.100.1"), ("192.0.2.3", "198.51.100.1"), ("198.51.100.9", "198.51.100.1")];
        assert_eq!(sorted(&list), ["192.0.2.7", "192.0.2.3", "198.51.100.9"]);
    }

    /// RFC 8305 section 4: "it SHOULD add a Destination Address Selection rule between rules 8 and
    /// 9 that prefers addresses with lower RTTs"
    #[test]
    fn a_shorter_round_trip_goes_before_a_longer_prefix_but_not_before_precedence() {
        let ms = |n| Some(Duration::from_millis(n));
        let mut list = [
            address("2001:db8:1::1", "2001:db8:1::9"),
            Address { rtt: ms(40), ..address("2001:db8:2::1", "2001:db8:1::9") },
            Address { rtt: ms(30), ..address("2001:db8:3::1", "2001:db8:1::9") },
            Address { rtt: ms(1), ..address("192.0.2.1", "192.0.2.9") },
        ];
        sort_destinations(&mut list);
        let order: Vec<_> = list.iter().map(|a| a.addr.to_string()).collect();
        assert_eq!(order, ["2001:db8:3::1", "2001:db8:2::1", "2001:db8:1::1", "192.0.2.1"]);
    }

    #[test]
    fn the_policy_table_is_searched_by_longest_prefix() {
        let look = |a: &str| {
            let row = policy(mapped(a.parse().unwrap()));
            (row.precedence, row.label)
        };
        let table = [
            ("::1", (50, 0)),
            ("2606::1", (40, 1)),
            ("192.0.2.1", (35, 4)),
            ("2002::1", (30, 2)),
            ("2001::1", (5, 5)),
            ("2001:db8::1", (40, 1)),
            ("fd00::1", (3, 13)),
            ("::2", (1, 3)),
            ("fec0::1", (1, 11)),
            ("3ffe::1", (1, 12)),
        ];
        for (addr, expected) in table {
            assert_eq!(look(addr), expected, "{addr}");
        }
    }

    #[test]
    fn a_preference_for_ipv4_overrules_precedence_but_not_usability() {
        let mut both = [address("2001:db8::1", "2001:db8::9"), address("192.0.2.1", "192.0.2.9")];
        sort_destinations(&mut both);
        assert_eq!(first_family(&both, Family::V6), Some(Family::V6));
        assert_eq!(first_family(&both, Family::V4), Some(Family::V4));
        let mut broken = [address("2001:db8::1", "2001:db8::9"), address("192.0.2.1", "169.254.1.1")];
        sort_destinations(&mut broken);
        assert_eq!(first_family(&broken, Family::V4), Some(Family::V6));
        assert_eq!(first_family(&[], Family::V4), None);
    }
}
