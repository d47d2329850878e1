//! Sources of one's own: documents of nodes that are fetched again and again, from a file or over
//! HTTP.
//!
//! Each document takes the place of the source's one before, as a whole. Its nodes stay in force
//! for as long as the source answers: one without an expiry of its own expires with the time that
//! the source may be silent. A faulty document changes nothing; the earlier one stays in force
//! until it expires.

use super::Daemon;
use super::document::{objects, within};
use core::time::Duration;
use neater_base::WallTime;
use neater_policy::manager::Node;
use serde_json::Value;
use std::collections::BTreeSet;

/// How many sources there may be.
pub const MAX_SOURCES: usize = 16;
/// The longest document of a source, in bytes.
pub const MAX_SOURCE_TEXT: usize = 1 << 20;

impl Daemon {
    /// Takes the current document of a source, in place of the one before: a node or a list of
    /// nodes, as JSON. A node without an end ends after `silence`, unless the source repeats it
    /// until then. How many nodes there are is given back.
    ///
    /// # Errors
    /// What is wrong with the document, with line and column, or which node belongs to another
    /// writer; nothing has changed then.
    pub fn set_source(&mut self, source: &str, text: &str, silence: Duration, now: WallTime) -> Result<usize, String> {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(source) {
            return Err(format!("there are at most {MAX_SOURCES} sources"));
        }
        if text.len() > MAX_SOURCE_TEXT {
            return Err(format!("a document has at most {MAX_SOURCE_TEXT} bytes, and this one {}", text.len()));
        }
        let end = now.0.saturating_add(silence).as_secs();
        let held = self.sources.get(source);
        let (mut nodes, mut uids) = (Vec::new(), BTreeSet::new());
        for (i, mut object) in objects(text, None)?.into_iter().enumerate() {
            if let Value::Object(members) = &mut object {
                members.entry("expire").or_insert_with(|| end.into());
            }
            let (node, _) = Node::from_json(object, "", "", now).map_err(|e| within(text, i, e))?;
            let theirs = |uid: &String| held.is_some_and(|held| held.contains(uid));
            if !theirs(&node.uid) && self.base().cib().get(&node.uid).is_some_and(|other| other.counts(now)) {
                return Err(format!("the node {} belongs to another writer: choose another uid", node.uid));
            }
            if !uids.insert(node.uid.clone()) {
                return Err(format!("the node {} stands there twice", node.uid));
            }
            nodes.push(node);
        }
        let gone: Vec<String> = held.into_iter().flatten().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            // It may have ended already.
            let _ = self.remove_base(&uid, true);
        }
        let count = nodes.len();
        self.put_base(nodes, now);
        self.sources.insert(source.to_owned(), uids);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_BATCH, Options};
    use neater_policy::manager::Limits;

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));
    const SILENCE: Duration = Duration::from_secs(30);

    fn later(seconds: u64) -> WallTime {
        WallTime(NOW.0 + Duration::from_secs(seconds))
    }

    fn daemon() -> Daemon {
        Daemon::new(Options { limits: Limits::default(), owner: 0, ready: false, keeps_rules: false })
    }

    fn uids(d: &mut Daemon, now: WallTime) -> Vec<String> {
        d.rows(now).rows.iter().flat_map(|row| row.path.clone()).collect()
    }

    fn node(uid: &str, more: &str) -> String {
        format!(r#"{{"uid": "{uid}", "root": true, "properties": {{"interface": {{"value": "{uid}"}}}}{more}}}"#)
    }

    #[test]
    fn a_document_takes_the_place_of_the_one_before() {
        let mut d = daemon();
        let both = format!("[{}, {}]", node("a", ""), node("b", ""));
        assert_eq!(d.set_source("file", &both, SILENCE, NOW), Ok(2));
        assert_eq!(uids(&mut d, NOW), ["a", "b"]);
        assert_eq!(d.set_source("file", &node("b", ""), SILENCE, later(20)), Ok(1));
        assert_eq!(uids(&mut d, later(20)), ["b"]);
        assert_eq!(uids(&mut d, later(49)), ["b"], "it was heard after 20 s");
        assert!(uids(&mut d, later(51)).is_empty(), "the source has gone silent");
        assert_eq!(d.set_source("file", "[]", SILENCE, later(60)), Ok(0));
        assert_eq!(d.set_source("file", &node("c", r#", "expire": -1"#), SILENCE, later(60)), Ok(1));
        assert_eq!(uids(&mut d, later(100_000)), ["c"], "it says itself when it ends");
    }

    #[test]
    fn a_bad_document_changes_nothing() {
        let mut d = daemon();
        assert_eq!(d.set_source("one", &node("a", ""), SILENCE, NOW), Ok(1));
        let bad = [
            ("[{\"uid\": \"x\",\n \"root\": tru}]".to_owned(), "line 2"),
            ("[1]".into(), "object"),
            (format!("[{}, {}]", node("x", ""), node("x", "")), "twice"),
            ("\"text\"".into(), "object"),
            (format!("[{}]", vec!["{\"uid\": \"x\"}"; MAX_BATCH + 1].join(",")), "at most 1024"),
            (" ".repeat(MAX_SOURCE_TEXT + 1), "at most 1048576 bytes"),
            (String::new(), "line 1"),
        ];
        for (text, says) in bad {
            let why = d.set_source("one", &text, SILENCE, NOW).expect_err(says);
            assert!(why.contains(says), "{why}, not {says}");
        }
        let why = d.set_source("two", &node("a", ""), SILENCE, NOW).expect_err("another's");
        assert!(why.contains("a belongs to another writer"), "{why}");
        assert_eq!(uids(&mut d, NOW), ["a"]);
    }

    #[test]
    fn sources_are_few_and_what_they_hold_is_bounded() {
        let mut d = daemon();
        for i in 0..MAX_SOURCES {
            assert_eq!(d.set_source(&i.to_string(), &node(&format!("n{i}"), ""), SILENCE, NOW), Ok(1));
        }
        assert!(d.set_source("one more", "[]", SILENCE, NOW).is_err());
        for i in 0..5000 {
            assert_eq!(d.set_source("0", &node(&format!("x{i}"), ""), SILENCE, later(i)), Ok(1));
        }
        assert_eq!(d.sources.values().map(BTreeSet::len).sum::<usize>(), MAX_SOURCES);
        assert_eq!(uids(&mut d, later(4999)), ["x4999"], "the others have gone silent");
    }
}
