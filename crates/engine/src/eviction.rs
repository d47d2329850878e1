//! Which handshake is given up for another one, where there is room for no more.
//!
//! *Responsible for* fairness between the places where handshakes come from: none of these keeps
//! others out by coming more often. *Not responsible for* the room itself ([`crate::backlog`], and
//! the sockets of carriers that several sessions share).

use core::cmp::Reverse;
use core::time::Duration;
use neater_base::{Instant, Key};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// How long an incoming handshake is left in peace, although there is no room for another one. On a
/// path of 600 ms it takes one round trip and perhaps the repair of a loss; peers that keep a
/// listener busy with handshakes that they never finish need `Limits::handshakes` new connections
/// in this time.
pub(crate) const HASTE: Duration = Duration::from_secs(2);

/// Where a handshake comes from: of IPv6 the first 64 bits, because a host that has one address
/// there has them all (RFC 4291 section 2.5.1).
pub(crate) fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Which of these handshakes, each with its peer's address and its beginning, is given up for
/// another one that comes `from` there, if that is known: the oldest of the source that has most,
/// of those that may be given up at all.
pub(crate) fn who_makes_room(
    all: impl Iterator<Item = (Key, IpAddr, Instant)>,
    from: Option<IpAddr>,
    now: Instant,
) -> Option<Key> {
    let all: Vec<_> = all.map(|(key, ip, since)| (key, source(ip), since)).collect();
    let mut count: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (_, of, _) in &all {
        *count.entry(*of).or_default() += 1;
    }
    let with_it = from.map(|ip| count.get(&source(ip)).copied().unwrap_or(0) + 1);
    let has = |of: &IpAddr| count.get(of).copied().unwrap_or(0);
    let may = |of: &IpAddr, since: Instant| since + HASTE <= now || with_it.is_some_and(|n| has(of) > n);
    let victims = all.iter().filter(|(_, of, since)| may(of, *since));
    victims.max_by_key(|(_, of, since)| (has(of), Reverse(*since))).map(|(key, ..)| *key)
}

/// The source of which there are most, and how many; of equals the greatest.
pub(crate) fn biggest(sources: impl Iterator<Item = IpAddr>) -> Option<(IpAddr, usize)> {
    let mut count: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for of in sources {
        *count.entry(of).or_default() += 1;
    }
    count.into_iter().max_by_key(|(_, n)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::Slab;

    /// Handshakes by address, `age` milliseconds old, and which of them makes room.
    fn victim(all: &[(&str, u64)], from: Option<&str>) -> Option<usize> {
        let now = Instant::ZERO + Duration::from_secs(100);
        let mut slab = Slab::new();
        let keys: Vec<Key> = all.iter().map(|_| slab.insert(())).collect();
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let each = all.iter().zip(&keys).map(|((of, age), k)| (*k, ip(of), now - Duration::from_millis(*age)));
        let gone = who_makes_room(each, from.map(ip), now)?;
        keys.iter().position(|k| *k == gone)
    }

    const A: &str = "192.0.2.1";
    const B: &str = "192.0.2.2";
    const C: &str = "192.0.2.3";

    #[test]
    fn the_oldest_of_those_that_had_their_time_makes_room() {
        assert_eq!(victim(&[], Some(A)), None);
        assert_eq!(victim(&[(A, 100), (B, 1999)], None), None, "all are left in peace");
        assert_eq!(victim(&[(A, 2000), (B, 3000), (C, 2500)], None), Some(1));
        assert_eq!(victim(&[(A, 2000), (B, 9000), (A, 3000)], None), Some(2), "of the source that has most");
    }

    #[test]
    fn whoever_comes_often_makes_room_at_once_for_whoever_comes_seldom() {
        let crowd = [(A, 30), (A, 20), (A, 10), (B, 40)];
        assert_eq!(victim(&crowd, Some(C)), Some(0));
        assert_eq!(victim(&crowd, Some(B)), Some(0), "it would have two, and they have three");
        assert_eq!(victim(&crowd, Some(A)), None, "but not for itself");
        assert_eq!(victim(&[(A, 30), (B, 20)], Some(C)), None, "nor where no source has more");
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let crowd = [("2001:db8::1", 30), ("2001:db8::2", 20), ("2001:db8:0:1::1", 90), ("::ffff:192.0.2.1", 50)];
        assert_eq!(victim(&crowd, Some(A)), None, "it would have as many");
        assert_eq!(victim(&crowd, Some(B)), Some(0));
    }
}
