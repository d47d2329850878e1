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
//! users reach it a moment later. [`Follower`](neater_policy::protocol::Follower) is the program's
//! side.

use crate::store::Daemon;
use core::time::Duration;
use neater_base::WallTime;
use neater_policy::manager::{Manager, Stage};
use neater_policy::protocol::wire::{END, MAX_PAYLOAD, Malformed, put_page, tables_question};
use std::collections::BTreeSet;

/// How much of a page is filled before the text that is its last.
const FULL: usize = 64 * 1024;
/// The longest text of a rule or node that is sent; a longer one is left out.
const MAX_TEXT: usize = MAX_PAYLOAD - FULL - 64;
/// How many snapshots of the tables of one view are kept, and how many bytes of all. Without a
/// snapshot, pages are of the tables as they are.
const MAX_SNAPSHOTS: usize = 4;
const MAX_SNAPSHOT_BYTES: usize = 16 << 20;
/// How long a snapshot without requests is kept.
const IDLE: Duration = Duration::from_secs(30);

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
pub(crate) type View = (Option<u32>, u64);

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
pub(crate) struct Snapshots(Vec<Snapshot>);

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
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|s| s.bytes).sum()
    }
}

impl Daemon {
    /// Adds to `out` the page that a user asks for: see [`wire`](neater_policy::protocol::wire).
    /// `fetching` is what the connection is in the middle of.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn put_page(
        &mut self,
        user: u32,
        fetching: &mut Option<View>,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: WallTime,
    ) -> Result<(), Malformed> {
        let [known, table, from] = tables_question(payload)?;
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
