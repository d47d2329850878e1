//! What programs were sent of nodes, and when it must be sent again.
//!
//! A modem repeats itself every second, and a router every few minutes; a program that got all
//! tables each time would do little else. It is sent what is different, and what would otherwise
//! end with it too early.

use neater_base::WallTime;
use neater_policy::manager::{MAX_NODES, Node};
use std::collections::BTreeMap;

/// Until when programs believe nodes that end.
#[derive(Debug, Default)]
pub(crate) struct Published {
    until: BTreeMap<String, WallTime>,
}

impl Published {
    /// Whether a node that takes the place of another is news. Then it counts as sent.
    pub(crate) fn is_news(&mut self, held: Option<&Node>, node: &Node, now: WallTime) -> bool {
        let news = match held.filter(|held| held.counts(now)) {
            None => node.counts(now),
            Some(held) if !held.says_the_same(node) => true,
            Some(held) => match (held.expires, node.expires) {
                (None, None) => false,
                (Some(old), Some(new)) if new.0 >= old.0 => {
                    // Sent again in the second half of its life.
                    let published = self.until.get(&node.uid).copied().unwrap_or(old);
                    let (left, life) = (published.0.saturating_sub(now.0), new.0.saturating_sub(now.0));
                    left.saturating_mul(2) < life
                }
                _ => true,
            },
        };
        if news {
            self.until.remove(&node.uid);
            if let Some(at) = node.expires {
                if self.until.len() >= 2 * MAX_NODES {
                    self.until.retain(|_, at| at.0 > now.0);
                }
                if self.until.len() >= 2 * MAX_NODES {
                    // Without a record the node is sent again a little too often.
                    self.until.clear();
                }
                self.until.insert(node.uid.clone(), at);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_repeated_is_told_again_before_it_ends() {
        let at = |s: u64| WallTime(Duration::from_secs(1_800_000_000 + s));
        let node = |rsrp: i64, now: u64| {
            let line = format!(r#"{{"interface": "wwan0", "rsrp": {rsrp}, "ttl": 60}}"#);
            crate::metadata_node(&line, at(now)).expect("a line")
        };
        let mut published = Published::default();
        let mut held: Option<Node> = None;
        let mut news = Vec::new();
        for now in 0..120 {
            let node = node(if now < 100 { -87 } else { -88 }, now);
            if published.is_news(held.as_ref(), &node, at(now)) {
                news.push(now);
            }
            held = Some(node);
        }
        assert_eq!(news, [0, 31, 62, 93, 100]);
    }
}
