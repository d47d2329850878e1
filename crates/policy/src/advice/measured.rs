//! What was seen of the ways to other ends: how soon they answer, how much they carry, what they lose.
//!
//! The engine tells what it sees of connections of its own ([`Seen`]); for a connection that is to be opened, the rows of the
//! interfaces have what was seen there of the same other end, and of no other. Facts end by themselves, because a network that
//! nobody has used for a while may be another one. They are rounded to two digits, so that what is the same but for noise
//! changes no decision.

use crate::manager::{Manager, Node};
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::WallTime;
use neater_property::neat::{NeatArray, NeatMultiArray, NeatProperty, NeatValue};

/// What the names of the properties begin with. A policy that wants none of these makes nobody look.
pub const MEASURED: &str = "measured_";
/// What the uids of the nodes begin with.
const PREFIX: &str = "measured-";
/// How long something counts after it was seen last.
const LIFETIME: Duration = Duration::from_secs(600);
/// How many pairs of an interface and another end are remembered; the one that ends first goes.
const MAX_SEEN: usize = 256;
/// How much a new sample counts that is less than what was seen before, or in doubt.
const WEIGHT: f64 = 0.25;

/// What was seen of a connection lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The round trip, smoothed by the transport.
    pub rtt: Option<Duration>,
    /// What was carried in the busier direction, in bits per second, where that was enough to say something.
    pub rate: Option<f64>,
    /// The part of what was sent that was lost, from 0 to 1, likewise.
    pub loss: Option<f64>,
}

/// What is known of one interface and one other end.
#[derive(Clone, Copy, Debug)]
struct Known {
    seen: Seen,
    /// When the last of it ends.
    until: WallTime,
    /// When what was seen of the rate and of the loss ends: a flow that says nothing of them does not keep them.
    rate_until: WallTime,
    loss_until: WallTime,
}

/// Two digits of a number, or 0.
fn two_digits(x: f64) -> f64 {
    if !x.is_finite() || x <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(x.log10().floor() as i32 - 1);
    // Dividing by a whole number keeps tenths as they are written.
    if unit < 1.0 { (x / unit).round() / (1.0 / unit).round() } else { (x / unit).round() * unit }
}

impl Known {
    /// Of this, what still counts.
    fn at(&self, now: WallTime) -> Self {
        let mut known = *self;
        known.seen.rate = self.seen.rate.filter(|_| self.rate_until.0 > now.0);
        known.seen.loss = self.seen.loss.filter(|_| self.loss_until.0 > now.0);
        known
    }

    /// When the first of what counts ends.
    fn ends(&self) -> WallTime {
        let rate = self.seen.rate.map(|_| self.rate_until);
        let loss = self.seen.loss.map(|_| self.loss_until);
        rate.into_iter().chain(loss).chain([self.until]).min_by_key(|t| t.0).unwrap_or(self.until)
    }

    /// The facts as policies see them: milliseconds, megabits per second and percent.
    fn facts(&self) -> [Option<(&'static str, f64)>; 3] {
        [
            self.seen.rtt.map(|rtt| ("measured_rtt", two_digits(rtt.as_secs_f64() * 1e3))),
            self.seen.rate.map(|rate| ("measured_rate", two_digits(rate / 1e6))),
            self.seen.loss.map(|loss| ("measured_loss", two_digits(loss * 100.0))),
        ]
    }

    fn learn(&mut self, seen: &Seen, until: WallTime) {
        self.until = until;
        if seen.rate.is_some() {
            self.rate_until = until;
        }
        if seen.loss.is_some() {
            self.loss_until = until;
        }
        let blend = |old: f64, new: f64| old + WEIGHT * (new - old);
        self.seen.rtt = seen.rtt.or(self.seen.rtt);
        // A flow that has little to send says nothing against its way, and more than before is more.
        let rate = |new: f64| self.seen.rate.map_or(new, |old| if new > old { new } else { blend(old, new) });
        self.seen.rate = seen.rate.map(rate).or(self.seen.rate);
        let loss = |new: f64| self.seen.loss.map_or(new, |old| blend(old, new));
        self.seen.loss = seen.loss.map(loss).or(self.seen.loss);
    }
}

/// What was seen, by interface and other end.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    known: HashMap<(Box<str>, Box<str>), Known, FixedState>,
}

impl Default for Measured {
    fn default() -> Self {
        Self { known: HashMap::with_hasher(FixedState::with_seed(0x7365_656e)) }
    }
}

/// The other end as a policy names it: its name in lower case, or its address.
pub(super) fn end_of(host: Option<&str>, addr: Option<std::net::IpAddr>) -> Option<String> {
    let name = |host: &str| host.to_ascii_lowercase().trim_end_matches('.').to_owned();
    host.map(name).or_else(|| addr.map(|a| a.to_string()))
}

impl Measured {
    /// Takes what was seen; whether a policy could see a difference.
    pub(super) fn learn(&mut self, interface: &str, end: &str, seen: &Seen, now: WallTime) -> bool {
        let key = (interface.into(), end.into());
        let until = WallTime(now.0.saturating_add(LIFETIME));
        self.known.retain(|_, known| known.until.0 > now.0);
        let before = self.known.get(&key).map(|known| known.at(now).facts());
        if before.is_none() && self.known.len() >= MAX_SEEN {
            let first = self.known.iter().min_by(|a, b| (a.1.until.0, a.0).cmp(&(b.1.until.0, b.0)));
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.known.remove(&first);
            }
        }
        let fresh = Known { seen: Seen::default(), until, rate_until: until, loss_until: until };
        let known = self.known.entry(key).or_insert(fresh);
        *known = known.at(now);
        known.learn(seen, until);
        before != Some(known.facts())
    }

    /// Gives the rows of the interfaces what is known of this end, and takes from them what was of another. Nothing where
    /// nothing was ever seen.
    pub(super) fn put(&self, manager: &mut Manager, end: Option<&str>, now: WallTime) {
        let held: Vec<String> =
            manager.cib().nodes().map(|n| n.uid.clone()).filter(|uid| uid.starts_with(PREFIX)).collect();
        if self.known.is_empty() && held.is_empty() {
            return;
        }
        let of_end = |((interface, to), known): (&(Box<str>, Box<str>), &Known)| {
            (end == Some(&**to) && known.until.0 > now.0).then(|| node(interface, &known.at(now)))
        };
        let nodes: Vec<Node> = self.known.iter().filter_map(of_end).collect();
        for uid in held.iter().filter(|uid| !nodes.iter().any(|n| n.uid == **uid)) {
            manager.remove_node(uid);
        }
        for node in nodes {
            if manager.cib().get(&node.uid) != Some(&node) {
                manager.insert_node(node, now);
            }
        }
    }
}

/// A node that links to an interface, so that its row takes the place of the plain one.
fn node(interface: &str, known: &Known) -> Node {
    let property = |(key, value): (&str, f64)| NeatProperty::new(key, NeatValue::Number(value));
    let facts: NeatArray = known.facts().into_iter().flatten().map(property).map(|p| (p.key.clone(), p)).collect();
    let wanted = NeatProperty::new("interface", interface);
    let mut properties = NeatMultiArray::new();
    properties.push(vec![facts.clone()]);
    Node {
        uid: format!("{PREFIX}{interface}"),
        root: false,
        link: true,
        matches: vec![[(wanted.key.clone(), wanted)].into_iter().collect()],
        properties,
        alternatives: vec![facts],
        priority: 0,
        expires: Some(known.ends()),
        description: "as connections of this program have seen it".into(),
        others: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

    fn rtt(ms: u64) -> Seen {
        Seen { rtt: Some(Duration::from_millis(ms)), ..Seen::default() }
    }

    fn later(seconds: u64) -> WallTime {
        WallTime(NOW.0 + Duration::from_secs(seconds))
    }

    #[test]
    fn two_digits_are_kept() {
        let told: Vec<f64> = [0.0, 0.123, 1.26, 12.4, 99.6, 1234.0, f64::NAN, -1.0].map(two_digits).into();
        assert_eq!(told, [0.0, 0.12, 1.3, 12.0, 100.0, 1200.0, 0.0, 0.0]);
    }

    #[test]
    fn what_is_the_same_but_for_noise_is_no_news() {
        let mut m = Measured::default();
        assert!(m.learn("eth0", "h", &rtt(100), NOW));
        assert!(!m.learn("eth0", "h", &rtt(102), NOW));
        assert!(m.learn("eth0", "h", &rtt(120), NOW));
        assert!(m.learn("eth0", "other", &rtt(120), NOW), "another end");
        assert!(!m.learn("eth0", "h", &rtt(120), later(599)));
        assert!(m.learn("eth0", "h", &rtt(120), later(1300)), "it had been forgotten");
    }

    #[test]
    fn a_rate_rises_at_once_and_falls_slowly_and_a_silent_flow_says_nothing_of_it() {
        let mut m = Measured::default();
        let rate = |mbit: f64| Seen { rate: Some(mbit * 1e6), ..Seen::default() };
        let mut learn = |seen: &Seen| {
            m.learn("eth0", "h", seen, NOW);
            m.known.values().next().and_then(|k| k.facts()[1])
        };
        assert_eq!(learn(&rate(10.0)), Some(("measured_rate", 10.0)));
        assert_eq!(learn(&rate(20.0)), Some(("measured_rate", 20.0)));
        assert_eq!(learn(&rate(8.0)), Some(("measured_rate", 17.0)));
        assert_eq!(learn(&rtt(5)), Some(("measured_rate", 17.0)));
    }

    #[test]
    fn what_was_lost_once_is_not_kept_by_flows_that_say_nothing_of_it() {
        let mut m = Measured::default();
        let lossy = Seen { rate: Some(3e6), loss: Some(0.2), ..rtt(50) };
        m.learn("eth0", "h", &lossy, NOW);
        let facts = |m: &Measured, at| m.known.values().next().map(|k| k.at(at).facts());
        m.learn("eth0", "h", &rtt(50), later(500));
        assert_eq!(facts(&m, later(599)).and_then(|f| f[2]), Some(("measured_loss", 20.0)));
        assert_eq!(facts(&m, later(600)), Some([Some(("measured_rtt", 50.0)), None, None]));
        assert_eq!(m.known.values().next().map(Known::ends), Some(later(600)), "the node ends with the first of it");
        assert!(m.learn("eth0", "h", &rtt(50), later(601)) || facts(&m, later(601)).is_some_and(|f| f[1].is_none()));
        assert_eq!(m.known.values().next().map(Known::ends), Some(later(1201)));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut m = Measured::default();
        for i in 0..10_000u64 {
            m.learn("eth0", &format!("h{i}"), &rtt(i + 1), later(i / 1000));
        }
        assert_eq!(m.known.len(), MAX_SEEN);
        assert!(m.known.contains_key(&("eth0".into(), "h9999".into())));
    }
}
