//! The tables of a daemon for programs that decide themselves: asked for page by page, and given
//! again when they change.
//!
//! What connections of others have seen comes the same way, but only what has changed.
//!
//! Tables that do not fit into a page are sent from a snapshot, so that a program that fetches them
//! gets those of one time, and what changes meanwhile does not make it restart.
//!
//! A program that asked the daemon about every connection would wait for it, and share its fate.
//! With the tables it decides as the daemon would, at its own speed; the changes of the daemon's
//! users reach it a moment later. [`Follower`] is the program's side.

use super::facts;
use super::store::Daemon;
use super::wire::{self, Frame, HEAD, Kind, MAX_PAYLOAD, Malformed};
use crate::advice::Fact;
use crate::manager::{Manager, Node, Rule, Stage};
use core::time::Duration;
use neater_base::WallTime;
use std::collections::BTreeSet;

/// How much of a page is filled before the text that is its last.
const FULL: usize = 64 * 1024;
/// The longest text of a rule or node that is sent; a longer one is left out.
const MAX_TEXT: usize = MAX_PAYLOAD - FULL - 64;
/// How many rules and nodes a program takes from a daemon, and how many bytes of texts.
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;
/// The number of the table behind the last one.
const END: u8 = 3;
/// How many facts are taken at once: more than there could be.
const MAX_HEARD: usize = 4 * facts::MAX_FACTS;
/// How many snapshots of the tables of one view are kept, and how many bytes of all. Without a
/// snapshot, pages are of the tables as they are.
const MAX_SNAPSHOTS: usize = 4;
const MAX_SNAPSHOT_BYTES: usize = 16 << 20;
/// How long a snapshot without requests is kept.
const IDLE: Duration = Duration::from_secs(30);

/// Profiles, policies and nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// What words mean.
    pub profiles: Vec<Rule>,
    /// What is wanted.
    pub policies: Vec<Rule>,
    /// What is known, but for this host's interfaces, which a program sees itself.
    pub nodes: Vec<Node>,
}

/// The text of entry `at` of a table; `None` behind the last one.
fn entry(manager: &Manager, interfaces: &BTreeSet<String>, table: u8, at: usize) -> Option<Option<String>> {
    let rule = |stage| manager.table(stage).rules().get(at).map(|r| Some(r.to_json().to_string()));
    match table {
        0 => rule(Stage::Profile),
        1 => rule(Stage::Policy),
        _ => manager.cib().nodes().nth(at).map(|node| {
            let own = interfaces.contains(&node.uid);
            (!own).then(|| node.to_json().to_string())
        }),
    }
}

/// A table and an entry of it.
type At = (u8, u32);

/// A part of the tables.
#[derive(Debug, PartialEq)]
struct Page {
    from: At,
    next: At,
    texts: Vec<u8>,
}

/// The page that begins there.
fn page(manager: &Manager, interfaces: &BTreeSet<String>, from: At) -> Page {
    let (mut table, mut at) = (from.0, usize::try_from(from.1).unwrap_or(usize::MAX));
    let mut texts = Vec::new();
    while table < END && texts.len() < FULL {
        match entry(manager, interfaces, table, at) {
            None => (table, at) = (table + 1, 0),
            Some(text) => {
                at += 1;
                if let Some(text) = text.filter(|t| t.len() <= MAX_TEXT) {
                    texts.push(table);
                    texts.extend((text.len() as u32).to_le_bytes());
                    texts.extend(text.as_bytes());
                }
            }
        }
    }
    texts.shrink_to_fit();
    Page { from, next: (table, u32::try_from(at).unwrap_or(u32::MAX)), texts }
}

/// Which tables a snapshot is of: whose view, if it is not the base, and at which version.
pub(super) type View = (Option<u32>, u64);

#[derive(Debug)]
struct Snapshot {
    of: View,
    pages: Vec<Page>,
    bytes: usize,
    asked: WallTime,
    /// How many connections are in the middle of it.
    readers: usize,
}

/// Tables that are being sent.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Vec<Snapshot>);

impl Snapshots {
    /// Drops snapshots without requests.
    fn purge(&mut self, now: WallTime) {
        // A clock that was set back makes old ones new, for a while.
        self.0.retain(|s| now.0.saturating_sub(s.asked.0) < IDLE);
    }

    /// Adds the page of a snapshot that begins there; `None` where there is no such snapshot. It is
    /// gone with its last page, unless another client is in the middle of it.
    fn put(&mut self, of: View, from: At, out: &mut Vec<u8>, now: WallTime) -> Option<()> {
        let at = self.0.iter().position(|s| s.of == of)?;
        let snapshot = &mut self.0[at];
        snapshot.asked = now;
        let page = snapshot.pages.iter().find(|page| page.from == from)?;
        put_page(out, of.1, page.next.0, page.next.1, &page.texts);
        snapshot.readers += usize::from(from == (0, 0));
        if page.next.0 >= END {
            snapshot.readers = snapshot.readers.saturating_sub(1);
            if snapshot.readers == 0 {
                self.0.remove(at);
            }
        }
        Some(())
    }

    /// Keeps a snapshot, if there is room. Those of the same view make room, the oldest first; the
    /// base is kept before a user's view.
    fn keep(&mut self, of: View, pages: Vec<Page>, now: WallTime) {
        let bytes = pages.iter().map(|page| page.texts.len()).sum();
        let same = |s: &Snapshot| s.of.0 == of.0;
        while self.0.iter().filter(|s| same(s)).count() >= MAX_SNAPSHOTS || self.bytes() + bytes > MAX_SNAPSHOT_BYTES {
            let gives_way = self.0.iter().position(same);
            let gives_way = gives_way.or_else(|| self.0.iter().position(|s| of.0.is_none() && s.of.0.is_some()));
            match gives_way {
                Some(at) => drop(self.0.remove(at)),
                None => return,
            }
        }
        self.0.push(Snapshot { of, pages, bytes, asked: now, readers: 1 });
    }

    /// How many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|s| s.bytes).sum()
    }
}

impl Daemon {
    /// Adds to `out` the page that a user asks for: see [`wire`]. `fetching` is what the connection
    /// is in the middle of.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn put_page(
        &mut self,
        user: u32,
        fetching: &mut Option<View>,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: WallTime,
    ) -> Result<(), Malformed> {
        let [known, table, from] = asked(payload)?;
        let from: At = (u8::try_from(table).unwrap_or(END), u32::try_from(from).unwrap_or(u32::MAX));
        self.snapshots.purge(now);
        let current = (self.has_own(user).then_some(user), self.version_of(user));
        let begins = from == (0, 0);
        if begins {
            *fetching = (known != current.1).then_some(current);
        }
        let Some(of) = *fetching else {
            put_page(out, current.1, END, from.1, &[]);
            return Ok(());
        };
        if self.snapshots.put(of, from, out, now).is_some() {
            return Ok(());
        }
        // No client fetches these tables yet; or the snapshot is gone, and the program restarts if
        // they have changed.
        let interfaces = self.networks.interfaces();
        let first = page(self.manager_of(user, now), &interfaces, from);
        put_page(out, current.1, first.next.0, first.next.1, &first.texts);
        if begins && first.next.0 < END {
            let mut pages = vec![first];
            let (mut bytes, manager) = (0, self.manager_of(user, now));
            while let Some(last) = pages.last().filter(|last| last.next.0 < END && bytes <= MAX_SNAPSHOT_BYTES) {
                let next = page(manager, &interfaces, last.next);
                bytes += next.texts.len();
                pages.push(next);
            }
            if bytes <= MAX_SNAPSHOT_BYTES {
                self.snapshots.keep(of, pages, now);
            }
        }
        Ok(())
    }
}

/// Adds the payload of a page.
fn put_page(out: &mut Vec<u8>, version: u64, table: u8, at: u32, texts: &[u8]) {
    out.extend(version.to_le_bytes());
    out.push(table);
    out.extend(at.to_le_bytes());
    out.extend(texts);
}

/// Adds the payload of a question for a page.
fn put_question(out: &mut Vec<u8>, known: u64, table: u8, from: u32) {
    out.extend(known.to_le_bytes());
    out.push(table);
    out.extend(from.to_le_bytes());
}

fn asked(payload: &[u8]) -> Result<[u64; 3], Malformed> {
    let (Some(known), Some(table), Some(from), 13) =
        (payload.first_chunk::<8>(), payload.get(8), payload.last_chunk::<4>(), payload.len())
    else {
        return Err(if payload.len() > 13 { Malformed::Trailing } else { Malformed::Short });
    };
    Ok([u64::from_le_bytes(*known), u64::from(*table), u64::from(u32::from_le_bytes(*from))])
}

/// What a program has received of tables.
#[derive(Debug, Default)]
struct Fetch {
    version: u64,
    table: u8,
    from: u32,
    bytes: usize,
    items: usize,
    tables: Tables,
}

/// A program's side of a connection to a daemon: bytes in, bytes and tables out.
///
/// *Invariants*: at most one question is under way; whatever the daemon sends, memory stays
/// bounded; tables are given when they are whole, all of one version.
#[derive(Debug, Default)]
pub struct Follower {
    input: Vec<u8>,
    /// The version that was given last; 0 is none.
    version: u64,
    fetch: Option<Fetch>,
    /// Up to which change facts are known, and whether an answer about them is awaited.
    facts: (u64, bool),
}

/// What a daemon has sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// The tables, if they are new.
    pub tables: Option<Tables>,
    /// What connections of others have seen.
    pub facts: Vec<Fact>,
}

impl Heard {
    /// Whether it is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_none() && self.facts.is_empty()
    }
}

impl Follower {
    /// A program that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether an answer is awaited.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.fetch.is_some() || self.facts.1
    }

    /// Whether tables are on their way of which a part has come.
    #[must_use]
    pub fn is_fetching(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| (fetch.table, fetch.from) != (0, 0))
    }

    /// Asks for what is new, unless an answer is awaited: adds to `out` what is to be sent.
    pub fn ask(&mut self, out: &mut Vec<u8>) {
        if self.fetch.is_none() {
            self.fetch = Some(Fetch::default());
            let known = self.version;
            wire::frame(out, Kind::Tables, 0, |out| put_question(out, known, 0, 0));
        }
        if !self.facts.1 {
            self.ask_facts(out);
        }
    }

    fn ask_facts(&mut self, out: &mut Vec<u8>) {
        self.facts.1 = true;
        let known = self.facts.0;
        wire::frame(out, Kind::News, 0, |out| out.extend(known.to_le_bytes()));
    }

    /// Takes bytes that came, adds to `out` what is to be sent, and gives the tables if they are
    /// whole and new, and what others have seen.
    ///
    /// # Errors
    /// [`Malformed`]: this is no daemon that can be followed, and the connection is of no use any
    /// more.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>, now: WallTime) -> Result<Heard, Malformed> {
        if self.input.len() + bytes.len() > 2 * (HEAD + MAX_PAYLOAD) {
            return Err(Malformed::TooMany);
        }
        self.input.extend(bytes);
        let mut heard = Heard::default();
        while let Some(frame) = Frame::first(&self.input)? {
            let (length, kind, payload) = (frame.len(), frame.kind, frame.payload.to_vec());
            self.input.drain(..length);
            match kind {
                Kind::Page => heard.tables = self.page(&payload, out, now)?.or(heard.tables),
                Kind::Facts => {
                    let (known, more, told) = facts::news(&payload, now)?;
                    if !self.facts.1 || more && known <= self.facts.0 || heard.facts.len() > MAX_HEARD {
                        return Err(Malformed::Value);
                    }
                    self.facts = (known, false);
                    heard.facts.extend(told);
                    if more {
                        self.ask_facts(out);
                    }
                }
                kind => return Err(Malformed::Kind(kind as u8)),
            }
        }
        Ok(heard)
    }

    fn page(&mut self, page: &[u8], out: &mut Vec<u8>, now: WallTime) -> Result<Option<Tables>, Malformed> {
        let mut fetch = self.fetch.take().ok_or(Malformed::Trailing)?;
        let (Some(version), Some(table), Some(from)) =
            (page.first_chunk::<8>(), page.get(8), page.get(9..).and_then(|rest| rest.first_chunk::<4>()))
        else {
            return Err(Malformed::Short);
        };
        let (version, next) = (u64::from_le_bytes(*version), (*table, u32::from_le_bytes(*from)));
        if version == self.version {
            return Ok(None);
        }
        let begun = (fetch.table, fetch.from) != (0, 0);
        if begun && version != fetch.version {
            // They have changed meanwhile: from the beginning.
            let known = self.version;
            wire::frame(out, Kind::Tables, 0, |out| put_question(out, known, 0, 0));
            self.fetch = Some(Fetch::default());
            return Ok(None);
        }
        fetch.version = version;
        fetch.take(page.get(13..).unwrap_or_default(), now)?;
        if next.0 >= END {
            self.version = version;
            return Ok(Some(fetch.tables));
        }
        if next <= (fetch.table, fetch.from) {
            return Err(Malformed::Value);
        }
        (fetch.table, fetch.from) = next;
        let known = self.version;
        wire::frame(out, Kind::Tables, 0, |out| put_question(out, known, next.0, next.1));
        self.fetch = Some(fetch);
        Ok(None)
    }
}

impl Fetch {
    /// Takes the texts of a page. What is neither a rule nor a node is left out: it may be of a
    /// later version than ours.
    fn take(&mut self, mut texts: &[u8], now: WallTime) -> Result<(), Malformed> {
        while let Some(([table, length @ ..], rest)) = texts.split_first_chunk::<5>() {
            let length = u32::from_le_bytes(*length) as usize;
            let (Some(text), Some(rest)) = (rest.get(..length), rest.get(length..)) else {
                return Err(Malformed::Short);
            };
            texts = rest;
            self.bytes += length;
            self.items += 1;
            if self.bytes > MAX_BYTES || self.items > MAX_ITEMS {
                return Err(Malformed::TooMany);
            }
            let text = core::str::from_utf8(text).map_err(|_| Malformed::Value)?;
            let Ok(json) = neater_property::neat::read(text) else { continue };
            match table {
                0 => self.tables.profiles.extend(Rule::from_json(json, "", "").ok().map(|(rule, _)| rule)),
                1 => self.tables.policies.extend(Rule::from_json(json, "", "").ok().map(|(rule, _)| rule)),
                _ => self.tables.nodes.extend(Node::from_json(json, "", "", now).ok().map(|(node, _)| node)),
            }
        }
        if texts.is_empty() { Ok(()) } else { Err(Malformed::Short) }
    }
}
