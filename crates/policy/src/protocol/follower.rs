//! A program's side of a connection to a daemon.

use super::facts;
use super::wire::{self, END, Frame, HEAD, Kind, MAX_PAYLOAD, Malformed, put_tables_question};
use crate::advice::Fact;
use crate::manager::{Node, Rule, Tables};
use neater_base::WallTime;

/// How many rules and nodes a program takes from a daemon, and how many bytes of texts.
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;
/// How many facts are taken at once: more than a daemon keeps of one user.
const MAX_HEARD: usize = 2048;

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
            wire::frame(out, Kind::Tables, 0, |out| put_tables_question(out, known, 0, 0));
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
            wire::frame(out, Kind::Tables, 0, |out| put_tables_question(out, known, 0, 0));
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
        wire::frame(out, Kind::Tables, 0, |out| put_tables_question(out, known, next.0, next.1));
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
