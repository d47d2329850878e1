//! A decision explained to people: as text, as JSON for programs, and as a diagram.

use super::trace::{Event, Miss, Origin, Stage, Trace};
use neater_property::neat::{NeatArray, NeatProperty, Score};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How many rules that did not match are listed one by one for a table, those nearest to matching
/// first.
const MOST_UNMATCHED: usize = 8;
/// How many losses are listed one by one.
const MOST_LOST: usize = 500;
/// How many bytes of a value are shown, and of a line on what did not come about.
const MOST_SHOWN: usize = 200;
/// How many that were denied a drawing shows.
const MOST_DENIED: usize = 50;
const MOST_OF_LINE: usize = 1000;

/// The beginning of a text that is too long to be shown.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// A rule that did not match: its uid, the candidate, and the property for which it did not.
type Unmatched<'a> = (&'a str, usize, &'a Miss);

fn numbers(score: Score) -> String {
    format!("{} + {}", score.evaluated, score.others)
}

fn shown(p: &NeatProperty) -> String {
    let precedence = match p.precedence {
        0 => " by default",
        1 => "",
        _ => " immutable",
    };
    let score = if p.score == 0.0 { String::new() } else { format!(" {:+}", p.score) };
    format!("{} = {}{precedence}{score}", p.key, shortened(&p.value.to_string(), MOST_SHOWN))
}

/// What is different in `after`: the key, and the difference in words.
pub(crate) fn difference(before: &NeatArray, after: &NeatArray) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for p in after.iter() {
        match before.get(&p.key) {
            Some(b) if b.value == p.value && b.precedence == p.precedence && b.score == p.score => {}
            Some(b) if b.value == p.value => out.push((p.key.clone(), shown(p))),
            Some(b) => {
                out.push((p.key.clone(), format!("{} (was {})", shown(p), shortened(&b.value.to_string(), MOST_SHOWN))))
            }
            None => out.push((p.key.clone(), shown(p))),
        }
    }
    let gone = before.iter().filter(|p| after.get(&p.key).is_none());
    out.extend(gone.map(|p| (p.key.clone(), format!("without {}", p.key))));
    out
}

fn or_nothing(parts: &[String]) -> String {
    if parts.is_empty() { "nothing changes".into() } else { parts.join(", ") }
}

impl Trace {
    fn of(&self, candidate: usize) -> &NeatArray {
        const NOTHING: &NeatArray = &NeatArray::EMPTY;
        self.candidates.get(candidate).map_or(NOTHING, |c| &c.properties)
    }

    /// One line for how a candidate came about, and what that changed.
    fn step(&self, candidate: usize) -> String {
        let Some(c) = self.candidates.get(candidate) else { return String::new() };
        let changes = || -> Vec<String> {
            let changes = c.parent.map_or_else(Vec::new, |p| difference(self.of(p), &c.properties));
            changes.into_iter().map(|(_, text)| text).collect()
        };
        match &c.origin {
            Origin::Request(i) => {
                let all: Vec<String> = c.properties.iter().map(shown).collect();
                format!("request {}: {}", i + 1, all.join(", "))
            }
            Origin::Rule { stage, uid, alternative } => {
                let which = if c.siblings > 1 { format!(" ({})", alternative + 1) } else { String::new() };
                format!("{} {uid}{which}: {}", stage.as_str(), or_nothing(&changes()))
            }
            Origin::Row { nodes } => format!("row {}: {}", nodes.join(" > "), or_nothing(&changes())),
            Origin::Bare => "no row: nothing changes".into(),
            Origin::Transport => format!("one transport: {}", or_nothing(&changes())),
        }
    }

    /// The scores that make up that of a candidate.
    fn sum(&self, candidate: usize) -> String {
        let scored = self.of(candidate).iter().filter(|p| p.score != 0.0);
        let parts: Vec<String> = scored
            .map(|p| format!("{} {:+}{}", p.key, p.score, if p.evaluated { "" } else { " (not evaluated)" }))
            .collect();
        if parts.is_empty() { "no property has a score".into() } else { parts.join(", ") }
    }

    /// The rules of one table that matched nothing, those nearest to matching first, and how many
    /// more there are.
    fn unmatched(&self, stage: Stage) -> (Vec<Unmatched<'_>>, usize) {
        let fired: BTreeSet<&str> = self
            .events
            .iter()
            .filter_map(|e| match e {
                Event::Fired { stage: s, uid, .. } if *s == stage => Some(uid.as_str()),
                _ => None,
            })
            .collect();
        let mut told = BTreeSet::new();
        let mut near = Vec::new();
        for event in &self.events {
            let Event::Unmatched { stage: s, uid, candidate, miss } = event else { continue };
            if *s != stage || fired.contains(uid.as_str()) || !told.insert(uid.as_str()) {
                continue;
            }
            near.push((uid.as_str(), *candidate, miss));
        }
        let more = near.len().saturating_sub(MOST_UNMATCHED);
        near.sort_by_key(|(_, _, miss)| miss.held.is_none());
        near.truncate(MOST_UNMATCHED);
        (near, more)
    }

    /// The decision in lines of plain text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (place, (candidate, score)) in self.ranked.iter().enumerate() {
            lines.push(format!("{}. score {}: {}", place + 1, numbers(*score), self.sum(*candidate)));
            lines.extend(self.lineage(*candidate).into_iter().map(|c| format!("   {}", self.step(c))));
        }
        if self.ranked.is_empty() {
            lines.push("no candidate is left".into());
        }
        let (lost, more) = self.losses();
        lines.extend(lost.into_iter().map(|l| format!("-  {l}")));
        if more > 0 {
            lines.push(format!("-  and {more} more steps on which something was lost"));
        }
        for stage in [Stage::Profile, Stage::Policy] {
            let (told, more) = self.unmatched(stage);
            for (uid, _, miss) in told {
                let held = miss.held.as_ref().map_or("is not there".to_string(), |h| format!("is {h}"));
                let line = format!("{} {uid} does not match: {} {held}, not {}", stage.as_str(), miss.key, miss.wanted);
                lines.push(format!("-  {}", shortened(&line, MOST_OF_LINE)));
            }
            if more > 0 {
                lines.push(format!("-  and {more} more of this table that do not match"));
            }
        }
        if self.unwritten > 0 {
            lines.push(format!("-  {} more steps", self.unwritten));
        }
        lines
    }

    /// What kept candidates from the answer, and how many steps more did.
    fn losses(&self) -> (Vec<String>, usize) {
        let (mut all, mut more) = (Vec::new(), 0);
        let mut rows = BTreeSet::new();
        for event in &self.events {
            let is_loss = match event {
                Event::Unmatched { .. } => false,
                Event::Fired { children, clashes, .. } => children.is_empty() || !clashes.is_empty(),
                _ => true,
            };
            if is_loss && all.len() >= MOST_LOST {
                more += 1;
            }
            if !is_loss || all.len() >= MOST_LOST {
                continue;
            }
            let mut out = Vec::new();
            match event {
                Event::Fired { stage, uid, children, clashes, .. } => {
                    for (alternative, clash) in clashes {
                        out.push(format!("{} {uid} ({}) clashes: {clash}", stage.as_str(), alternative + 1));
                    }
                    if children.is_empty() && clashes.is_empty() {
                        out.push(format!("{} {uid} denies a candidate", stage.as_str()));
                    }
                }
                Event::RowSkipped { nodes, miss, .. } => {
                    let held = miss.held.as_ref().map_or("does not state it".to_string(), |h| format!("has {h} for"));
                    let line = format!("row {} {held} {}, which must be {}", nodes.join(" > "), miss.key, miss.wanted);
                    if rows.insert(line.clone()) {
                        out.push(line);
                    }
                }
                Event::Cut { candidate, limit } => {
                    let score = numbers(self.of(*candidate).score());
                    let step = self.step(*candidate);
                    out.push(format!("beyond the first {limit}: score {score}, {step}"));
                }
                Event::Duplicate { candidate, .. } => {
                    out.push(format!("there already: {}", self.step(*candidate)));
                }
                Event::NoTransport { candidate } => {
                    out.push(format!("without a transport that is a text: {}", self.step(*candidate)));
                }
                Event::Unmatched { .. } => {}
            }
            for line in out {
                let line = shortened(&line, MOST_OF_LINE);
                if all.last() != Some(&line) {
                    all.push(line);
                }
            }
        }
        all.truncate(MOST_LOST);
        (all, more)
    }

    /// The decision for programs: the candidates with every step that led to them, what was lost,
    /// and of the rules that did not match those nearest to it, as for people
    /// ([`lines`](Self::lines)); how many more there are stands beside each list.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let candidate = |(place, (candidate, score)): (usize, &(usize, Score))| {
            let scores: Vec<Value> = self
                .of(*candidate)
                .iter()
                .filter(|p| p.score != 0.0)
                .map(|p| json!({"property": p.key, "score": p.score, "evaluated": p.evaluated}))
                .collect();
            let steps: Vec<Value> =
                self.lineage(*candidate).into_iter().map(|c| json!({"candidate": c, "text": self.step(c)})).collect();
            json!({
                "place": place + 1,
                "score": {"evaluated": score.evaluated, "others": score.others},
                "scores": scores,
                "steps": steps,
                "properties": self.of(*candidate).to_json(),
            })
        };
        let (mut unmatched, mut more_unmatched) = (Vec::new(), 0);
        for stage in [Stage::Profile, Stage::Policy] {
            let (told, more) = self.unmatched(stage);
            more_unmatched += more;
            unmatched.extend(told.into_iter().map(|(uid, candidate, miss)| {
                json!({
                    "table": stage.as_str(), "uid": uid, "candidate": candidate, "property": miss.key,
                    "wanted": shortened(&miss.wanted, MOST_SHOWN),
                    "held": miss.held.as_ref().map(|held| shortened(held, MOST_SHOWN)),
                })
            }));
        }
        let (lost, more_lost) = self.losses();
        json!({
            "candidates": self.ranked.iter().enumerate().map(candidate).collect::<Vec<_>>(),
            "lost": lost,
            "more_lost": more_lost,
            "unmatched": unmatched,
            "more_unmatched": more_unmatched,
            "unwritten": self.unwritten,
        })
    }

    /// The way to the candidates as a diagram in Mermaid's language (mermaid.js.org, `flowchart`).
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart LR\n");
        let denied: Vec<(usize, String)> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Fired { stage, uid, candidate, children, .. } if children.is_empty() => {
                    Some((*candidate, format!("denied by {} {uid}", stage.as_str())))
                }
                _ => None,
            })
            .collect();
        // A drawing of thousands is unreadable.
        let (all, denied) = (denied.len(), &denied[..denied.len().min(MOST_DENIED)]);
        let ends = self.ranked.iter().map(|(c, _)| *c).chain(denied.iter().map(|(c, _)| *c));
        let on_the_way: BTreeSet<usize> = ends.flat_map(|c| self.lineage(c)).collect();
        let escaped =
            |text: &str| text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
        for &c in &on_the_way {
            let label = escaped(&self.step(c));
            // Writing to a text cannot fail.
            let _ = writeln!(out, "  c{c}[\"{label}\"]");
            if let Some(parent) = self.candidates.get(c).and_then(|c| c.parent) {
                let _ = writeln!(out, "  c{parent} --> c{c}");
            }
        }
        for (place, (c, score)) in self.ranked.iter().enumerate() {
            let _ = writeln!(out, "  r{place}([\"{}. score {}\"])\n  c{c} --> r{place}", place + 1, numbers(*score));
        }
        for (number, (c, why)) in denied.iter().enumerate() {
            let _ = writeln!(out, "  d{number}[/\"{}\"/]\n  c{c} --> d{number}", escaped(why));
        }
        if all > denied.len() {
            let _ = writeln!(out, "  more[\"{} more are denied\"]", all - denied.len());
        }
        out
    }
}
