//! What the connections of programs have seen, passed on from one program of a user to the others.
//!
//! A fact is about one interface and one other end; a row of the CIB would steer connections to all
//! others, too. So facts lie beside the CIB, and stand in rows only while a decision about their
//! other end is made. They apply to the user whose program sent them, those of root's and of the
//! daemon's own user to all users; they expire by themselves.
//!
//! *Invariants*: a user has at most [`MAX_FACTS`], and one client sends at most
//! [`MAX_FACTS_OF_CLIENT`] within the [`LIFETIME`] of a fact; a fact counts no longer than that,
//! whatever lifetime it states.

use crate::store::{Daemon, MAX_GUESTS};
use core::time::Duration;
use neater_base::WallTime;
use neater_policy::advice::{self, Fact, Known, LIFETIME, put_known};
use neater_policy::manager::Requests;
use neater_policy::protocol::{MAX_FACTS_OF_FRAME, put_news};
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatValue};
use std::collections::{BTreeMap, BTreeSet};

/// How many facts of one user's programs are kept.
pub const MAX_FACTS: usize = 512;
/// How many paths one client may report on.
pub const MAX_FACTS_OF_CLIENT: usize = 256;
/// For how many kinds of requests it is remembered whether a policy uses facts.
const MAX_HEEDS: usize = 1024;

/// An interface and another end.
type Way = (String, String);

#[derive(Debug)]
struct Held {
    known: Known,
    /// When it changed, in the order of all changes.
    number: u64,
}

fn last(known: &Known) -> Duration {
    known.last_end().map_or(Duration::ZERO, |t| t.0)
}

/// The facts of all users; those that apply to all users are user 0's.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    of: BTreeMap<u32, BTreeMap<Way, Held>>,
    /// How many changes there were.
    number: u64,
    /// Whether the rules that steer a user want to know of facts for requests whose properties have
    /// these names, as of a version of the tables.
    heeds: (u64, BTreeMap<(u32, u64), bool>),
}

impl Facts {
    fn purge(&mut self, now: WallTime) {
        self.of.values_mut().for_each(|ways| ways.retain(|_, held| last(&held.known) > now.0));
        self.of.retain(|_, ways| !ways.is_empty());
    }

    /// Takes a fact; false if there are too many users.
    fn learn(&mut self, user: u32, fact: Fact, now: WallTime) -> bool {
        // Guests never displace the facts that apply to all users.
        let guests = |of: &BTreeMap<_, _>| of.len() - usize::from(of.contains_key(&0));
        if user != 0 && !self.of.contains_key(&user) && guests(&self.of) >= MAX_GUESTS {
            self.purge(now);
            if guests(&self.of) >= MAX_GUESTS {
                return false;
            }
        }
        let ways = self.of.entry(user).or_default();
        let way = (fact.interface, fact.end);
        if ways.len() >= MAX_FACTS && !ways.contains_key(&way) {
            let first = ways.iter().min_by_key(|(_, held)| last(&held.known)).map(|(way, _)| way.clone());
            first.and_then(|first| ways.remove(&first));
        }
        self.number += 1;
        let held = ways.entry(way).or_insert_with(|| Held { known: Known::default(), number: 0 });
        held.known = core::mem::take(&mut held.known).at(now);
        held.known.absorb(fact.known);
        held.number = self.number;
        true
    }

    /// How many facts are held, ended ones included.
    pub(crate) fn len(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }

    /// Those that steer a user.
    fn of(&self, user: u32) -> impl Iterator<Item = (&Way, &Held)> {
        let users = [Some(0), (user != 0).then_some(user)];
        users.into_iter().flatten().filter_map(|user| self.of.get(&user)).flatten()
    }

    /// What is known of the ways to one end; the facts of the user's own programs override those of
    /// root's.
    fn about(&self, user: u32, end: &str, now: WallTime) -> Vec<(String, Known)> {
        let mut all: BTreeMap<String, Known> = BTreeMap::new();
        for ((interface, _), held) in self.of(user).filter(|((_, to), _)| to == end) {
            all.entry(interface.clone()).or_default().absorb(held.known.at(now));
        }
        all.into_iter().collect()
    }
}

/// The one end that all requests are about, and its port.
fn end_of(requests: &Requests) -> Option<(String, u16)> {
    let mut ends = requests.arrays.iter().map(|array| {
        let text = |key: &str| match array.get(key).map(|p| &p.value) {
            Some(NeatValue::Text(text)) => Some(text.to_ascii_lowercase().trim_end_matches('.').to_owned()),
            _ => None,
        };
        let port = match array.get("port").map(|p| &p.value) {
            Some(NeatValue::Number(port)) => *port as u16,
            _ => 0,
        };
        Some((text("domain_name").or_else(|| text("remote_ip"))?, port))
    });
    let first = ends.next()??;
    ends.all(|end| end.as_ref() == Some(&first)).then_some(first)
}

impl Daemon {
    /// Under which user's facts those of this user are kept.
    fn teller(&self, user: u32) -> u32 {
        if self.is_trusted(user) { 0 } else { user }
    }

    /// Takes what a user's program has seen. `told` are the paths that this client has reported on,
    /// and when those facts expire.
    ///
    /// # Errors
    /// Why something was not taken; what stood before it was.
    pub(crate) fn learn(
        &mut self,
        user: u32,
        facts: Vec<Fact>,
        told: &mut BTreeMap<Way, WallTime>,
        now: WallTime,
    ) -> Result<(), String> {
        let teller = self.teller(user);
        for fact in facts {
            let way = (fact.interface.clone(), fact.end.clone());
            if told.len() >= MAX_FACTS_OF_CLIENT && !told.contains_key(&way) {
                told.retain(|_, until| until.0 > now.0);
                if told.len() >= MAX_FACTS_OF_CLIENT {
                    return Err(format!("one program may report on {MAX_FACTS_OF_CLIENT} paths at one time"));
                }
            }
            if !self.facts.learn(teller, fact, now) {
                return Err(format!("facts of {MAX_GUESTS} users are here; no more is taken from others"));
            }
            told.insert(way, WallTime(now.0.saturating_add(LIFETIME)));
            self.counters.facts_told += 1;
        }
        Ok(())
    }

    /// Adds to `out` the facts that a user may receive and that have changed since change number
    /// `known`: those of the user's own programs. Those of root's count where the user's decisions
    /// are made here, but the destinations of root's programs are not revealed to other users.
    pub(crate) fn put_facts(&self, user: u32, known: u64, out: &mut Vec<u8>, now: WallTime) {
        let mut news: Vec<(&Way, &Held)> = Vec::new();
        if known < self.facts.number {
            let counts = |(_, held): &(&Way, &Held)| held.number > known && last(&held.known) > now.0;
            news.extend(self.facts.of.get(&self.teller(user)).into_iter().flatten().filter(counts));
            news.sort_unstable_by_key(|(_, held)| held.number);
        }
        let more = news.len() > MAX_FACTS_OF_FRAME;
        news.truncate(MAX_FACTS_OF_FRAME);
        let number = if more { news.last().map_or(known, |(_, held)| held.number) } else { self.facts.number };
        let facts = news.into_iter().map(|((interface, end), held)| (&**interface, &**end, held.known.at(now)));
        put_news(out, number, more, facts, now);
    }

    /// Puts what is known of the one end that requests are about into the rows of the tables that
    /// steer a user, if a policy uses it; returns whether one did, so that [`Daemon::take_facts`]
    /// is to be called.
    pub(crate) fn put_facts_of(&mut self, user: u32, requests: &Requests, now: WallTime) -> bool {
        if self.facts.of.is_empty() {
            return false;
        }
        let Some((end, port)) = end_of(requests) else { return false };
        let ways = self.facts.about(user, &end, now);
        if ways.is_empty() || !self.heeds(user, requests, now) {
            return false;
        }
        let ways: Vec<(&str, Known)> = ways.iter().map(|(name, known)| (name.as_str(), known.clone())).collect();
        put_known(self.manager_of(user, now), &ways, port);
        true
    }

    /// Takes them from the rows again.
    pub(crate) fn take_facts(&mut self, user: u32, now: WallTime) {
        put_known(self.manager_of(user, now), &[], 0);
    }

    fn heeds(&mut self, user: u32, requests: &Requests, now: WallTime) -> bool {
        let version = self.version();
        if self.facts.heeds.0 != version || self.facts.heeds.1.len() >= MAX_HEEDS {
            self.facts.heeds = (version, BTreeMap::new());
        }
        let names: BTreeSet<&str> = requests.arrays.iter().flat_map(NeatArray::iter).map(|p| p.key.as_str()).collect();
        let mut f = Fingerprint::default();
        names.iter().for_each(|name| f.text(name));
        let key = (user, f.finish());
        if let Some(heeds) = self.facts.heeds.1.get(&key) {
            return *heeds;
        }
        let heeds = advice::heeds(self.manager_of(user, now), names.into_iter());
        self.facts.heeds.1.insert(key, heeds);
        heeds
    }
}
