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

use super::store::{Daemon, MAX_GUESTS};
use super::wire::{Malformed, Rest, put_count, put_text};
use crate::advice::{Fact, Figure, Known, LEAST, LIFETIME, MAX_OUTCOMES, RaceOutcome, put_known};
use crate::manager::Requests;
use core::time::Duration;
use neater_base::WallTime;
use neater_property::Fingerprint;
use neater_property::neat::{NeatArray, NeatValue};
use std::collections::{BTreeMap, BTreeSet};

/// How many facts of one user's programs are kept.
pub const MAX_FACTS: usize = 512;
/// How many paths one client may report on.
pub const MAX_FACTS_OF_CLIENT: usize = 256;
/// For how many kinds of requests it is remembered whether a policy uses facts.
const MAX_HEEDS: usize = 1024;
/// How many facts one frame carries.
pub const MAX_FACTS_OF_FRAME: usize = 64;
/// The longest names of interfaces, other ends and transports.
const MAX_INTERFACE: usize = 64;
const MAX_END: usize = 255;
const MAX_TRANSPORT: usize = 32;
/// The greatest round trip (s) and rate (bit/s) that are believed.
const MAX_RTT: f64 = 3600.0;
const MAX_RATE: f64 = 1e15;

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
pub(super) struct Facts {
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
    pub(super) fn len(&self) -> usize {
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
    pub(super) fn learn(
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
    pub(super) fn put_facts(&self, user: u32, known: u64, out: &mut Vec<u8>, now: WallTime) {
        let mut news: Vec<(&Way, &Held)> = Vec::new();
        if known < self.facts.number {
            let counts = |(_, held): &(&Way, &Held)| held.number > known && last(&held.known) > now.0;
            news.extend(self.facts.of.get(&self.teller(user)).into_iter().flatten().filter(counts));
            news.sort_unstable_by_key(|(_, held)| held.number);
        }
        let more = news.len() > MAX_FACTS_OF_FRAME;
        news.truncate(MAX_FACTS_OF_FRAME);
        let number = if more { news.last().map_or(known, |(_, held)| held.number) } else { self.facts.number };
        out.extend(number.to_le_bytes());
        out.push(u8::from(more));
        put_count(out, news.len());
        for ((interface, end), held) in news {
            put_fact(out, interface, end, &held.known.at(now), now);
        }
    }

    /// Puts what is known of the one end that requests are about into the rows of the tables that
    /// steer a user, if a policy uses it; returns whether one did, so that [`Daemon::take_facts`]
    /// is to be called.
    pub(super) fn put_facts_of(&mut self, user: u32, requests: &Requests, now: WallTime) -> bool {
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
    pub(super) fn take_facts(&mut self, user: u32, now: WallTime) {
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
        let heeds = crate::advice::heeds(self.manager_of(user, now), names.into_iter());
        self.facts.heeds.1.insert(key, heeds);
        heeds
    }
}

fn seconds(until: WallTime, now: WallTime) -> u16 {
    u16::try_from(until.0.saturating_sub(now.0).as_secs()).unwrap_or(u16::MAX)
}

/// Adds what is known of a way.
fn put_fact(out: &mut Vec<u8>, interface: &str, end: &str, known: &Known, now: WallTime) {
    put_text(out, interface);
    put_text(out, end);
    let figures = [known.rtt, known.rate, known.loss];
    out.push(figures.iter().enumerate().map(|(i, f)| u8::from(f.is_some()) << i).sum());
    for figure in figures.into_iter().flatten() {
        out.extend(figure.value.to_le_bytes());
        out.extend(seconds(figure.until, now).to_le_bytes());
    }
    put_count(out, known.outcomes.len());
    for o in &known.outcomes {
        out.extend(o.port.to_le_bytes());
        out.push(u8::from(o.won));
        put_text(out, &o.transport);
        out.extend(seconds(o.until, now).to_le_bytes());
    }
}

/// Adds the payload of a program's facts: at most [`MAX_FACTS_OF_FRAME`], the rest is left out.
pub fn put_told(out: &mut Vec<u8>, facts: &[Fact], now: WallTime) {
    let facts = &facts[..facts.len().min(MAX_FACTS_OF_FRAME)];
    put_count(out, facts.len());
    facts.iter().for_each(|f| put_fact(out, &f.interface, &f.end, &f.known, now));
}

fn until(rest: &mut Rest<'_>, now: WallTime) -> Result<WallTime, Malformed> {
    let seconds = Duration::from_secs(rest.short()?.into());
    Ok(WallTime(now.0.saturating_add(seconds.min(LIFETIME))))
}

fn name<'a>(rest: &mut Rest<'a>, most: usize) -> Result<&'a str, Malformed> {
    let text = rest.text()?;
    let good = !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if good { Ok(text) } else { Err(Malformed::Value) }
}

fn fact(rest: &mut Rest<'_>, now: WallTime) -> Result<Fact, Malformed> {
    let (interface, end) = (name(rest, MAX_INTERFACE)?.to_owned(), name(rest, MAX_END)?.to_ascii_lowercase());
    let flags = rest.byte()?;
    if flags > 7 {
        return Err(Malformed::Value);
    }
    let mut figures = [None; 3];
    for (i, most) in [MAX_RTT, MAX_RATE, 1.0].into_iter().enumerate().filter(|(i, _)| flags >> i & 1 == 1) {
        let value = rest.finite()?;
        if !(0.0..=most).contains(&value) {
            return Err(Malformed::Value);
        }
        // What is as little as this is nothing, and no number to reckon with.
        let value = if value < LEAST { 0.0 } else { value };
        figures[i] = Some(Figure { value, until: until(rest, now)? });
    }
    let count = rest.count()?;
    if count > MAX_OUTCOMES {
        return Err(Malformed::TooMany);
    }
    let mut outcomes = Vec::with_capacity(count);
    for _ in 0..count {
        let (port, won) = (rest.short()?, rest.byte()?);
        if won > 1 {
            return Err(Malformed::Value);
        }
        let transport = name(rest, MAX_TRANSPORT)?.to_owned();
        outcomes.push(RaceOutcome { port, transport, won: won == 1, until: until(rest, now)? });
    }
    let [rtt, rate, loss] = figures;
    Ok(Fact { interface, end, known: Known { rtt, rate, loss, outcomes } })
}

fn facts(rest: &mut Rest<'_>, now: WallTime) -> Result<Vec<Fact>, Malformed> {
    let count = rest.count()?;
    if count > MAX_FACTS_OF_FRAME {
        return Err(Malformed::TooMany);
    }
    (0..count).map(|_| fact(rest, now)).collect()
}

/// Reads the facts that a program sends at `now`.
///
/// # Errors
/// [`Malformed`].
pub fn told(payload: &[u8], now: WallTime) -> Result<Vec<Fact>, Malformed> {
    let mut rest = Rest::of(payload);
    let all = facts(&mut rest, now)?;
    rest.end()?;
    Ok(all)
}

/// Reads a page of news: up to which change it goes, whether there is more, and the facts.
pub(super) fn news(payload: &[u8], now: WallTime) -> Result<(u64, bool, Vec<Fact>), Malformed> {
    let mut rest = Rest::of(payload);
    let (number, more) = (rest.long()?, rest.byte()?);
    let all = facts(&mut rest, now)?;
    rest.end()?;
    if more > 1 { Err(Malformed::Value) } else { Ok((number, more == 1, all)) }
}
