//! What both places of a scenario must have in common, so that the same scenario and seed lose the same packets and take the same
//! ways in the simulator and in the lab: the seeds of links, the choice among equal ways, and the MTU that hosts know of.

use neater_link::{LinkConfig, PacketMeta, Protocol, TooBig};
use std::net::IpAddr;

/// A packet that hosts send where nobody told them of less.
const USUAL_MTU: u32 = 1500;

/// The mixing step of `SplitMix64` (Steele, Lea and Flood 2014).
const fn mix(h: u64) -> u64 {
    let h = h.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// The seed of something that a scenario names, in a run of this seed. Other names more or less change nothing.
fn named(seed: u64, what: u64, name: &str) -> u64 {
    name.bytes().fold(mix(mix(seed) ^ what), |h, b| mix(h ^ u64::from(b)))
}

/// The seed of a link's direction, 0 forward and 1 backward, in a run of this seed.
#[must_use]
pub fn link_seed(seed: u64, name: &str, direction: usize) -> u64 {
    named(seed, 1 + direction as u64, name)
}

/// What makes a router's choices its own, in a run of this seed.
#[must_use]
pub fn router_salt(seed: u64, name: &str) -> u64 {
    named(seed, 0x0100, name)
}

/// Which of `count` equal ways a router takes for a packet: the same for all packets of a flow in one direction.
#[must_use]
pub fn way(meta: &PacketMeta, salt: u64, count: usize) -> usize {
    let mut h = mix(salt);
    for address in [meta.source, meta.destination] {
        let bits = match address.ip() {
            IpAddr::V4(a) => u128::from(a.to_bits()),
            IpAddr::V6(a) => a.to_bits(),
        };
        h = mix(h ^ bits as u64);
        h = mix(h ^ (bits >> 64) as u64 ^ (u64::from(address.port()) << 40));
    }
    h = mix(h ^ match meta.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Icmp => 1,
        Protocol::Other(n) => u64::from(n) | 0x100,
    });
    ((u128::from(h) * count as u128) >> 64) as usize
}

/// What the interface at the beginning of a link takes for its MTU: the link's, unless that is a black hole, which nobody knows of.
#[must_use]
pub fn interface_mtu(config: &LinkConfig) -> u32 {
    if config.too_big == TooBig::Report { config.mtu } else { config.mtu.max(USUAL_MTU) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::Ecn;

    #[test]
    fn seeds_differ_by_run_name_and_direction() {
        let mut all = std::collections::BTreeSet::new();
        for seed in 0..50 {
            for name in ["a", "b", "ab", "ba", ""] {
                all.extend([link_seed(seed, name, 0), link_seed(seed, name, 1), router_salt(seed, name)]);
            }
        }
        assert_eq!(all.len(), 50 * 5 * 3);
    }

    #[test]
    fn flows_spread_evenly_and_stay_where_they_are() {
        let meta = |port: u16| PacketMeta {
            protocol: Protocol::Tcp,
            source: ([10, 0, 0, 1], port).into(),
            destination: ([10, 0, 1, 1], 443).into(),
            ecn: Ecn::NotEct,
        };
        for salt in [0, 1, u64::MAX] {
            let mut ways = [0; 4];
            for port in 1..=4000 {
                let chosen = way(&meta(port), salt, 4);
                assert_eq!(chosen, way(&meta(port), salt, 4));
                ways[chosen] += 1;
            }
            assert!(ways.iter().all(|n| (900..1100).contains(n)), "{ways:?}");
        }
        // What one router has put together, another one takes apart.
        let mut both = [[0; 2]; 2];
        for port in 1..=4000 {
            both[way(&meta(port), router_salt(1, "a"), 2)][way(&meta(port), router_salt(1, "b"), 2)] += 1;
        }
        assert!(both.iter().flatten().all(|n| (900..1100).contains(n)), "{both:?}");
    }
}
