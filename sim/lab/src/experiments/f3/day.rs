//! The day of F3, as `data/f3.toml` has it: places, networks, workloads, limits, and what a network says of itself.

use crate::measure::{Result, failed};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const DAY: &str = include_str!("../../../data/f3.toml");

/// See the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Day {
    pub(super) limit_seconds: u64,
    pub(super) queue_ms: u64,
    pub(super) core_ms: u64,
    pub(super) words: BTreeMap<String, f64>,
    #[serde(rename = "workload")]
    pub(super) workloads: Vec<Workload>,
    #[serde(rename = "place")]
    pub(super) places: Vec<Place>,
    /// Networks that are the same in several places.
    #[serde(rename = "network")]
    common: Vec<Network>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) id: String,
    /// The host that serves it, and nothing else.
    pub(super) server: String,
    pub(super) kind: Kind,
    /// By the name of what a network says, the word or text that is required.
    pub(super) wants: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Kind {
    Call { seconds: u32, answered: f64, within_ms: u64 },
    Get { objects: usize, bytes: u64 },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) name: String,
    #[serde(rename = "network")]
    pub(super) networks: Vec<Network>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Network {
    pub(super) name: String,
    same_as: Option<String>,
    #[serde(default)]
    pub(super) rate: u64,
    #[serde(default)]
    pub(super) delay_ms: u64,
    #[serde(default)]
    pub(super) serves: Vec<String>,
    #[serde(default, rename = "domain")]
    pub(super) domains: Vec<Domain>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Domain {
    pub(super) id: String,
    pub(super) says: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub(super) zones: Vec<String>,
    #[serde(default = "yes")]
    pub(super) internet: bool,
    /// Where it differs from the network's.
    pub(super) serves: Option<Vec<String>>,
}

const fn yes() -> bool {
    true
}

impl Day {
    /// Reads the file, with networks that stand for others put in.
    pub(super) fn read() -> Result<Self> {
        let mut day: Self = match toml::from_str(DAY) {
            Ok(day) => day,
            Err(e) => return failed(format!("data/f3.toml: {e}")),
        };
        for network in day.places.iter_mut().flat_map(|p| &mut p.networks) {
            if let Some(name) = &network.same_as {
                match day.common.iter().find(|n| n.name == *name) {
                    Some(common) => *network = Network { name: network.name.clone(), ..common.clone() },
                    None => return failed(format!("data/f3.toml: there is no network {name:?}")),
                }
            }
        }
        day.check()?;
        Ok(day)
    }

    fn check(&self) -> Result<()> {
        let servers: BTreeSet<&str> = self.workloads.iter().map(|w| w.server.as_str()).collect();
        if servers.len() != self.workloads.len() {
            return failed("data/f3.toml: two workloads have one server: their packets could not be told apart");
        }
        for network in self.places.iter().flat_map(|p| &p.networks) {
            let serves = || network.domains.iter().filter_map(|d| d.serves.as_ref()).flatten().chain(&network.serves);
            if network.rate == 0 || network.domains.is_empty() || !serves().all(|s| servers.contains(s.as_str())) {
                return failed(format!("data/f3.toml: {} lacks a rate, a domain or a server", network.name));
            }
        }
        for (want, word) in self.workloads.iter().flat_map(|w| &w.wants) {
            let known = matches!(want.as_str(), "capacity" | "latency" | "cost") && self.words.contains_key(word);
            if !known && want != "zone" {
                return failed(format!("data/f3.toml: nobody knows what {want} = {word:?} wants"));
            }
        }
        Ok(())
    }

    /// What a word is worth.
    pub(super) fn word(&self, word: &str) -> f64 {
        self.words.get(word).copied().unwrap_or(f64::NAN)
    }
}

impl Network {
    /// Whom a domain of this network lets through to.
    pub(super) fn served_by<'a>(&'a self, domain: &'a Domain) -> &'a [String] {
        domain.serves.as_deref().unwrap_or(&self.serves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_is_sound_and_its_networks_say_what_is_so() {
        let day = Day::read().expect("sound");
        assert_eq!((day.workloads.len(), day.places.len()), (4, 4));
        for network in day.places.iter().flat_map(|p| &p.networks) {
            for (i, domain) in network.domains.iter().enumerate() {
                let says = |key: &str| domain.says.get(key).and_then(serde_json::Value::as_f64).expect("a number");
                assert!(says("latency") == network.delay_ms as f64, "{}", domain.id);
                assert!(says("capacity") <= network.rate as f64 && (i > 0 || says("capacity") == network.rate as f64));
            }
        }
    }
}
