//! Which policy did what to a connection, for people and for programs that show it to people.

use super::answer::{self, Advice, AdvisedPath, Denied, Found, Pick};
use super::ask::{Ask, Usable};
use crate::manager::{Decision, Event, Origin, Stage, Trace, difference};
use neater_property::neat::{NeatArray, NeatValue};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The place of a rule that took part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its table.
    pub stage: Stage,
    /// Its name.
    pub uid: String,
    /// The property that it changed; `None` where it denied a candidate.
    pub key: Option<String>,
}

/// What a rule changed of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    place: Place,
    what: String,
}

/// A way that is left.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    stack: &'static str,
    interface: Option<String>,
    local: Option<String>,
    score: (f64, f64),
    changes: Vec<Change>,
    vain: Vec<String>,
}

/// What policies did to a connection.
#[derive(Clone, Debug)]
pub struct Story {
    /// What is to be done.
    pub advised: Result<Arc<Advice>, Denied>,
    /// Every step of the manager.
    pub trace: Trace,
    told: Vec<Told>,
    /// What was denied, and by which rule.
    denied: Vec<(String, Place)>,
    /// Candidates that are none of the connection's, and why.
    unfit: BTreeSet<String>,
}

/// The rules that took candidates away, each once, in the order in which they did.
pub(super) fn deniers(trace: &Trace) -> Vec<(Stage, String)> {
    let mut rules = Vec::new();
    for event in &trace.events {
        if let Event::Fired { stage, uid, children, .. } = event
            && children.is_empty()
            && !rules.iter().any(|(s, u)| s == stage && u == uid)
        {
            rules.push((*stage, uid.clone()));
        }
    }
    rules
}

/// Whether the row of a usable interface was joined to a candidate.
pub(super) fn joined_rows(trace: &Trace, usable: &[Usable]) -> bool {
    trace.candidates.iter().any(|c| {
        let interface = c.properties.get("interface").map(|p| &p.value);
        let known = |name: &str| usable.iter().any(|u| u.name == name);
        matches!(c.origin, Origin::Row { .. }) && matches!(interface, Some(NeatValue::Text(name)) if known(name))
    })
}

fn text_of(trace: &Trace, candidate: usize, key: &str) -> Option<String> {
    trace.candidates.get(candidate)?.properties.get(key).map(|p| p.value.to_string())
}

impl Story {
    pub(super) fn new(
        ask: &Ask<'_>,
        usable: &[Usable],
        decision: &Decision,
        trace: Trace,
        advised: Result<Arc<Advice>, Denied>,
    ) -> Self {
        let (mut found, mut unfit) = (Vec::new(), BTreeSet::new());
        for (i, (number, _)) in trace.ranked.iter().enumerate() {
            match answer::candidates(decision, i, ask, usable) {
                Ok(candidates) => found.extend(candidates.into_iter().map(|candidate| (candidate, *number))),
                Err(why) => {
                    unfit.insert(why);
                }
            }
        }
        // Rows of interfaces that do not lead there are left out for people.
        unfit.retain(|why| !why.contains("does not lead there"));
        // Rows first: a candidate without one stands for what rows do not cover.
        found.sort_by_key(|(f, _)| f.place.is_none());
        let ways =
            advised.iter().flat_map(|a| &a.paths).flat_map(|path| path.picks.iter().map(move |pick| (path, pick)));
        let of_way = |(path, pick): (&AdvisedPath, &Pick)| {
            let is = |(f, _): &&(Found, usize)| {
                let interface = f.place.and_then(|(at, _)| usable.get(at)).map(|u| u.index);
                let local = f.place.and_then(|(_, local)| local);
                ask.stacks.get(f.stack).is_some_and(|s| s.features.id == pick.stack)
                    && (path.interface.is_none() || path.interface == interface)
                    && (path.local.is_none() || path.local == local)
            };
            let (found, number) = found.iter().find(is)?;
            let mut told = tell(found, *number, ask, usable, &trace);
            if path.interface.is_none() {
                told.interface = None;
            }
            told.local = path.local.map(|l| l.to_string());
            Some(told)
        };
        let told = ways.filter_map(of_way).collect();
        Self { denied: denied(&trace, usable), advised, trace, told, unfit }
    }

    /// The places of the rules that are part of the explanation.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let changes = self.told.iter().flat_map(|t| &t.changes).map(|c| &c.place);
        changes.chain(self.denied.iter().map(|(_, place)| place)).cloned()
    }

    /// The story in lines of plain text; `source_of` gives the file and the line of a rule, if it
    /// can.
    #[must_use]
    pub fn lines(&self, source_of: &dyn Fn(&Place) -> Option<String>) -> Vec<String> {
        let named = |place: &Place| {
            let source = source_of(place).map_or_else(String::new, |at| format!(" ({at})"));
            format!("{} {}{source}", place.stage.as_str(), place.uid)
        };
        let mut lines = Vec::new();
        match &self.advised {
            Err(denied) => lines.push(denied.to_string()),
            Ok(advice) if advice.is_neutral() => lines.push("no policy changes anything here".into()),
            Ok(_) => {}
        }
        for (i, told) in self.told.iter().enumerate() {
            let mut line = format!("{}. {}, score {} + {}", i + 1, told.way(), told.score.0, told.score.1);
            for change in &told.changes {
                line += &format!("; {}: {}", named(&change.place), change.what);
            }
            lines.push(line);
            lines.extend(told.vain.iter().map(|why| format!("   {why}")));
        }
        lines.extend(self.denied.iter().map(|(what, place)| format!("-  {what} is denied by {}", named(place))));
        lines.extend(self.unfit.iter().map(|why| format!("-  a candidate of the policies is left out: {why}")));
        lines
    }

    /// The story for programs.
    #[must_use]
    pub fn to_json(&self, source_of: &dyn Fn(&Place) -> Option<String>) -> Value {
        let rule = |place: &Place| json!({"table": place.stage.as_str(), "uid": place.uid, "property": place.key, "at": source_of(place)});
        let candidate = |(i, told): (usize, &Told)| {
            let change = |c: &Change| {
                let mut json = rule(&c.place);
                json["change"] = c.what.clone().into();
                json
            };
            json!({
                "rank": i + 1, "transport": told.stack, "interface": told.interface, "local": told.local,
                "score": [told.score.0, told.score.1], "changes": told.changes.iter().map(change).collect::<Vec<_>>(),
                "without_effect": told.vain,
            })
        };
        let denied = |(what, place): &(String, Place)| {
            let mut json = rule(place);
            json["candidate"] = what.clone().into();
            json
        };
        json!({
            "neutral": self.advised.as_ref().is_ok_and(|a| a.is_neutral()),
            "prohibited": self.advised.as_ref().err().map(ToString::to_string),
            "candidates": self.told.iter().enumerate().map(candidate).collect::<Vec<_>>(),
            "denied": self.denied.iter().map(denied).collect::<Vec<_>>(),
            "left_out": self.unfit,
        })
    }
}

impl Told {
    fn way(&self) -> String {
        let mut way = self.stack.to_owned();
        if let Some(interface) = &self.interface {
            way += &format!(" by {interface}");
        }
        if let Some(local) = &self.local {
            way += &format!(" from {local}");
        }
        way
    }
}

fn tell(found: &Found, number: usize, ask: &Ask<'_>, usable: &[Usable], trace: &Trace) -> Told {
    let mut changes = Vec::new();
    for step in trace.lineage(number) {
        let Some(c) = trace.candidates.get(step) else { continue };
        let (Origin::Rule { stage, uid, .. }, Some(parent)) = (&c.origin, c.parent) else { continue };
        let Some(before) = trace.candidates.get(parent) else { continue };
        let changed = difference(&before.properties, &c.properties);
        if let Some((key, _)) = changed.first() {
            let what: Vec<&str> = changed.iter().map(|(_, text)| text.as_str()).collect();
            let mut what = what.join(", ");
            let transport = |array: &NeatArray| array.get("transport").map(|p| p.value.to_string());
            if let (Some(was), Some(is)) = (transport(&before.properties), transport(&c.properties))
                && was != is
            {
                let (was, is) = (was.trim_matches('"'), is.trim_matches('"'));
                what += &format!(", so that the candidate for {was} becomes one for {is}");
            }
            let place = Place { stage: *stage, uid: uid.clone(), key: Some(key.clone()) };
            changes.push(Change { place, what });
        }
    }
    let (interface, local) = match found.place {
        Some((at, local)) => (usable.get(at).map(|u| u.name.clone()), local.map(|l| l.to_string())),
        None => (None, None),
    };
    let stack = ask.stacks.get(found.stack).map_or("", |s| s.features.name);
    Told { stack, interface, local, score: (found.evaluated, found.others), changes, vain: found.vain.clone() }
}

/// What was denied of the ways that lead there, each once.
fn denied(trace: &Trace, usable: &[Usable]) -> Vec<(String, Place)> {
    let mut out = Vec::new();
    for event in &trace.events {
        let Event::Fired { stage, uid, candidate, children, .. } = event else { continue };
        if !children.is_empty() {
            continue;
        }
        let interface = text_of(trace, *candidate, "interface").map(|i| i.trim_matches('"').to_owned());
        if interface.as_ref().is_some_and(|i| !usable.iter().any(|u| u.name == *i)) {
            continue;
        }
        let transport = text_of(trace, *candidate, "transport").unwrap_or_default();
        let what = match interface {
            Some(interface) => format!("{} by {interface}", transport.trim_matches('"')),
            None => transport.trim_matches('"').to_owned(),
        };
        let entry = (what, Place { stage: *stage, uid: uid.clone(), key: None });
        if !out.contains(&entry) {
            out.push(entry);
        }
    }
    out
}
