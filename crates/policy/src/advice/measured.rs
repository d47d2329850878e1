//! What was seen of the ways to other ends: how soon they answer, how much they carry, what they
//! lose, what races came to.
//!
//! The engine reports measurements of its own connections ([`Seen`]), a daemon those of other
//! programs of this user ([`Fact`]); for a connection that is to be opened, the rows of the
//! interfaces have what was seen there of the same other end, and of no other. Facts end by
//! themselves, because a network that was not used for a while may be another one. They are rounded
//! to two digits, so that what is the same but for noise changes no decision.

use super::fact::{Fact, Known, RaceOutcome};
use crate::manager::Manager;
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::WallTime;

/// What the names of the properties begin with. Without a policy that uses one of these nothing is
/// looked up.
pub const MEASURED: &str = "measured_";
/// How many pairs of an interface and another end are remembered; the one that ends first goes. As
/// many again are kept from others.
const MAX_SEEN: usize = 256;
/// An unchanged fact is published again when that extends its life at others by this much.
const RENEWED: Duration = Duration::from_secs(60);

/// What was seen of a connection lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The round trip, smoothed by the transport.
    pub rtt: Option<Duration>,
    /// What was carried in the busier direction, in bits per second, where that was enough to
    /// measure.
    pub rate: Option<f64>,
    /// The part of what was sent that was lost, from 0 to 1, likewise.
    pub loss: Option<f64>,
}

/// An interface and another end.
type Way = (Box<str>, Box<str>);

#[derive(Clone, Debug, Default)]
struct Held {
    known: Known,
    /// The version that was published last.
    told: Option<Known>,
}

/// What was seen, by interface and other end.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    own: HashMap<Way, Held, FixedState>,
    /// The facts of other programs.
    heard: HashMap<Way, Held, FixedState>,
    /// Something may not have been published yet.
    news: bool,
}

impl Default for Measured {
    fn default() -> Self {
        let empty = |seed| HashMap::with_hasher(FixedState::with_seed(seed));
        Self { own: empty(0x7365_656e), heard: empty(0x6865_6172), news: false }
    }
}

/// The other end as a policy names it: its name in lower case, or its address.
pub(super) fn end_of(host: Option<&str>, addr: Option<std::net::IpAddr>) -> Option<String> {
    let name = |host: &str| host.to_ascii_lowercase().trim_end_matches('.').to_owned();
    host.map(name).or_else(|| addr.map(|a| a.to_string()))
}

/// Changes what is known of a way, made if need be; whether a policy could see a difference.
fn change(
    ways: &mut HashMap<Way, Held, FixedState>,
    interface: &str,
    end: &str,
    now: WallTime,
    change: impl FnOnce(&mut Known),
) -> bool {
    let last = |held: &Held| held.known.last_end().map_or(Duration::ZERO, |t| t.0);
    ways.retain(|_, held| last(held) > now.0);
    let key = (interface.into(), end.into());
    if ways.len() >= MAX_SEEN && !ways.contains_key(&key) {
        let first = ways.iter().min_by(|a, b| (last(a.1), a.0).cmp(&(last(b.1), b.0))).map(|(key, _)| key.clone());
        first.and_then(|first| ways.remove(&first));
    }
    let held = ways.entry(key).or_default();
    let before = core::mem::take(&mut held.known).at(now);
    held.known = before.clone();
    change(&mut held.known);
    !held.known.looks_like(&before)
}

impl Measured {
    /// Takes what was seen; whether a policy could see a difference.
    pub(super) fn learn(&mut self, interface: &str, end: &str, seen: &Seen, now: WallTime) -> bool {
        self.news = true;
        change(&mut self.own, interface, end, now, |known| known.learn(seen, now))
    }

    /// Takes what a race came to, likewise.
    pub(super) fn outcome(&mut self, interface: &str, end: &str, outcome: RaceOutcome, now: WallTime) -> bool {
        self.news = true;
        change(&mut self.own, interface, end, now, |known| known.outcome(outcome))
    }

    /// Takes a fact of another program, likewise.
    pub(super) fn hear(&mut self, fact: Fact, now: WallTime) -> bool {
        change(&mut self.heard, &fact.interface, &fact.end, now, |known| known.absorb(fact.known.at(now)))
    }

    /// Whether there may be unpublished facts.
    pub(super) const fn has_news(&self) -> bool {
        self.news
    }

    /// Unpublished facts, at most so many.
    pub(super) fn take_news(&mut self, most: usize, now: WallTime) -> Vec<Fact> {
        let end = |known: &Known| known.last_end().map_or(Duration::ZERO, |t| t.0);
        let is_news = |held: &Held| {
            end(&held.known) > now.0
                && held.told.as_ref().is_none_or(|told| {
                    !told.looks_like(&held.known) || end(told).saturating_add(RENEWED) <= end(&held.known)
                })
        };
        let mut facts = Vec::new();
        for ((interface, to), held) in self.own.iter_mut().filter(|(_, held)| is_news(held)) {
            if facts.len() >= most {
                return facts;
            }
            held.told = Some(held.known.clone());
            let known = held.known.at(now);
            facts.push(Fact { interface: interface.to_string(), end: to.to_string(), known });
        }
        self.news = false;
        facts
    }

    /// The receiver has lost what was published.
    pub(super) fn tell_again(&mut self) {
        self.own.values_mut().for_each(|held| held.told = None);
        self.news = !self.own.is_empty();
    }

    /// Gives the rows of the interfaces what is known of this end, and takes from them what was of
    /// another. Nothing where nothing was ever seen.
    pub(super) fn put(&mut self, manager: &mut Manager, end: Option<&str>, port: u16, now: WallTime) {
        let mut ways: Vec<(&str, Known)> = Vec::new();
        let of_end = |(way, _): &(&Way, &Held)| end == Some(&*way.1);
        for ((interface, _), held) in self.own.iter().filter(of_end) {
            ways.push((interface, held.known.at(now)));
        }
        for ((interface, _), held) in self.heard.iter().filter(of_end) {
            let others = held.known.at(now);
            match ways.iter_mut().find(|(name, _)| *name == &**interface) {
                Some((_, own)) => *own = core::mem::take(own).or(&others),
                None => ways.push((interface, others)),
            }
        }
        put_known(manager, &ways, port);
    }
}

/// Gives the rows of these interfaces what is known of the ways to one end, and takes from all
/// others what they were given before.
pub fn put_known(manager: &mut Manager, ways: &[(&str, Known)], port: u16) {
    let seen = ways.iter().filter_map(|(interface, known)| {
        let facts = known.properties(port);
        let ends = known.first_end().filter(|_| !facts.is_empty())?;
        Some(((*interface).to_owned(), (facts, ends)))
    });
    manager.set_seen(seen.collect());
}

#[cfg(test)]
mod tests {
    use super::super::fact::Figure;
    use super::*;
    use crate::manager::{Node, Row};

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

    fn rtt(ms: u64) -> Seen {
        Seen { rtt: Some(Duration::from_millis(ms)), ..Seen::default() }
    }

    fn later(seconds: u64) -> WallTime {
        WallTime(NOW.0 + Duration::from_secs(seconds))
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
            m.own.values().next().and_then(|held| held.known.figures()[1])
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
        let facts = |m: &Measured, at| m.own.values().next().map(|held| held.known.at(at).figures());
        m.learn("eth0", "h", &rtt(50), later(500));
        assert_eq!(facts(&m, later(599)).and_then(|f| f[2]), Some(("measured_loss", 20.0)));
        assert_eq!(facts(&m, later(600)), Some([Some(("measured_rtt", 50.0)), None, None]));
        let ends = |m: &Measured| m.own.values().next().and_then(|held| held.known.first_end());
        assert_eq!(ends(&m), Some(later(600)), "the node ends with the first of it");
        assert!(m.learn("eth0", "h", &rtt(50), later(601)) || facts(&m, later(601)).is_some_and(|f| f[1].is_none()));
        assert_eq!(ends(&m), Some(later(1201)));
    }

    #[test]
    fn others_are_told_what_is_new_once_and_again_when_it_would_end_there() {
        let mut m = Measured::default();
        assert!(!m.has_news());
        m.learn("eth0", "h", &rtt(100), NOW);
        m.learn("eth0", "other", &rtt(10), NOW);
        assert!(m.has_news());
        assert_eq!((m.take_news(1, NOW).len(), m.has_news()), (1, true), "no more than are wanted at once");
        assert_eq!((m.take_news(9, NOW).len(), m.has_news()), (1, false));
        m.learn("eth0", "h", &rtt(101), later(1));
        assert_eq!(m.take_news(9, later(1)), [], "noise");
        m.learn("eth0", "h", &rtt(120), later(2));
        assert_eq!(m.take_news(9, later(2)).len(), 1);
        m.learn("eth0", "h", &rtt(120), later(70));
        assert_eq!(m.take_news(9, later(70)).len(), 1, "it would end there too early");
        m.tell_again();
        assert_eq!(m.take_news(9, later(70)).len(), 2, "a new daemon knows nothing");
        m.tell_again();
        assert_eq!(m.take_news(9, later(620)).len(), 1, "what has ended is not told");
    }

    /// A node of its own for an interface.
    fn root(interface: &str) -> Node {
        let text = format!(
            r#"{{"uid": "{interface}", "root": true, "expire": -1, "properties": {{"interface": {{"value": "{interface}"}}}}}}"#
        );
        Node::from_json(serde_json::from_str(&text).expect("JSON"), "", &text, NOW).expect("a node").0
    }

    #[test]
    fn what_an_administrator_says_of_an_interface_stands_beside_what_was_seen_of_it() {
        let mut manager = Manager::new(crate::manager::Limits::default());
        manager.insert_node(root("eth0"), NOW);
        let text = r#"{"uid": "costs", "link": true, "expire": -1, "match": [{"interface": {"value": "eth0"}}],
            "properties": {"metered": {"value": true}}}"#;
        let costs = Node::from_json(serde_json::from_str(text).expect("JSON"), "", text, NOW).expect("a node").0;
        manager.insert_node(costs, NOW);
        let mut m = Measured::default();
        m.learn("eth0", "h", &rtt(100), NOW);
        m.put(&mut manager, Some("h"), 443, NOW);
        let rows = &manager.rows(NOW).rows;
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows[0].properties.get("metered").is_some() && rows[0].properties.get("measured_rtt").is_some());
        let after = &manager.rows(later(700)).rows;
        assert!(after.len() == 1 && after[0].properties.get("measured_rtt").is_none(), "it has ended: {after:?}");
    }

    #[test]
    fn what_others_tell_counts_where_nothing_was_seen_here() {
        let rows = |m: &mut Measured| {
            let mut manager = Manager::new(crate::manager::Limits::default());
            m.put(&mut manager, Some("h"), 443, NOW);
            for node in ["eth0", "wwan0"].map(root) {
                manager.insert_node(node, NOW);
            }
            let of = |row: &Row| (row.path.join(" "), row.properties.get("measured_rtt").map(|p| p.value.to_string()));
            let all: Vec<_> = manager.rows(NOW).rows.iter().map(of).collect();
            m.put(&mut manager, Some("another"), 443, NOW);
            assert!(
                manager.rows(NOW).rows.iter().all(|row| of(row).1.is_none()),
                "a fact about one end is about no other"
            );
            all
        };
        let mut teller = Measured::default();
        teller.learn("eth0", "h", &rtt(100), NOW);
        teller.learn("wwan0", "h", &rtt(30), NOW);
        let mut hearer = Measured::default();
        hearer.learn("eth0", "h", &rtt(50), NOW);
        teller.take_news(9, NOW).into_iter().for_each(|fact| assert!(hearer.hear(fact, NOW)));
        let told = |ms: &str| Some(ms.to_owned());
        assert_eq!(
            rows(&mut hearer),
            [("eth0 measured-eth0".into(), told("50")), ("wwan0 measured-wwan0".into(), told("30"))]
        );
        assert_eq!(hearer.take_news(9, NOW).len(), 1, "hearsay is told to nobody");
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut m = Measured::default();
        for i in 0..10_000u64 {
            m.learn("eth0", &format!("h{i}"), &rtt(i + 1), later(i / 1000));
            let known = Known { rtt: Some(Figure { value: 1.0, until: later(i / 100 + 600) }), ..Known::default() };
            m.hear(Fact { interface: "eth0".into(), end: format!("h{i}"), known }, NOW);
        }
        assert_eq!(m.heard.len(), MAX_SEEN);
        assert_eq!(m.own.len(), MAX_SEEN);
        assert!(m.own.contains_key(&("eth0".into(), "h9999".into())));
    }
}
