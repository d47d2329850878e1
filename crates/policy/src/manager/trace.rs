//! What happened on the way to a decision, step by step.

use neater_property::neat::{Conflict, NeatArray, Score};

/// How many steps are written down. What follows is counted only.
pub const MAX_EVENTS: usize = 20_000;

/// Which table a rule stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Profiles, which come before the CIB.
    Profile,
    /// Policies, which come behind it.
    Policy,
}

impl Stage {
    /// What its rules are called.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Policy => "policy",
        }
    }
}

/// Where a candidate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The request of this number in the document.
    Request(usize),
    /// A rule fired on another candidate.
    Rule {
        /// The table.
        stage: Stage,
        /// The rule.
        uid: String,
        /// Which of its alternatives.
        alternative: usize,
    },
    /// A row of the CIB was joined to another candidate.
    Row {
        /// The uids of its nodes, from the root on, and of the node that extends it.
        nodes: Vec<String>,
    },
    /// Another candidate went past the CIB without a row.
    Bare,
    /// One of several transports of another candidate.
    Transport,
}

/// A candidate at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// What it holds.
    pub properties: NeatArray,
    /// The candidate it was made of.
    pub parent: Option<usize>,
    /// How.
    pub origin: Origin,
}

/// A property that keeps a rule or row from a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Its key.
    pub key: String,
    /// What is wanted.
    pub wanted: String,
    /// What is there, if anything.
    pub held: Option<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A rule did not match.
    Unmatched {
        /// The table.
        stage: Stage,
        /// The rule.
        uid: String,
        /// The candidate.
        candidate: usize,
        /// The first property that failed.
        miss: Miss,
    },
    /// A rule fired: the candidate is replaced.
    Fired {
        /// The table.
        stage: Stage,
        /// The rule.
        uid: String,
        /// The candidate.
        candidate: usize,
        /// What became of it; nothing when the rule denies it.
        children: Vec<usize>,
        /// The alternatives that clash with it, by number.
        clashes: Vec<(usize, Conflict)>,
    },
    /// A row cannot serve a candidate.
    RowSkipped {
        /// The uids of the nodes of the row.
        nodes: Vec<String>,
        /// The candidate.
        candidate: usize,
        /// The property that stands against it.
        miss: Miss,
    },
    /// A candidate ranks behind as many as are kept.
    Cut {
        /// The candidate.
        candidate: usize,
        /// How many are kept.
        limit: usize,
    },
    /// A candidate is there already.
    Duplicate {
        /// The candidate.
        candidate: usize,
        /// The one that is the same.
        of: usize,
    },
    /// A candidate has no transport that is a text.
    NoTransport {
        /// The candidate.
        candidate: usize,
    },
}

/// The way to a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    on: bool,
    /// Every candidate that there was; others refer to them by their numbers.
    pub candidates: Vec<Traced>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// How many steps were not written down.
    pub unwritten: usize,
    /// The answer: candidates, best first, with the scores they were ranked by.
    pub ranked: Vec<(usize, Score)>,
}

impl Trace {
    /// A trace that writes everything down.
    #[must_use]
    pub fn on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// A trace that writes nothing down.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Writes down a candidate and gives its number.
    pub(crate) fn candidate(&mut self, properties: &NeatArray, parent: Option<usize>, origin: Origin) -> usize {
        if !self.on {
            return 0;
        }
        self.candidates.push(Traced { properties: properties.clone(), parent, origin });
        self.candidates.len() - 1
    }

    /// Writes down a step.
    pub(crate) fn event(&mut self, event: impl FnOnce() -> Event) {
        if !self.on {
            return;
        }
        if self.events.len() < MAX_EVENTS {
            self.events.push(event());
        } else {
            self.unwritten += 1;
        }
    }

    /// The candidates from the request to this one.
    #[must_use]
    pub fn lineage(&self, candidate: usize) -> Vec<usize> {
        let mut line = vec![candidate];
        while let Some(parent) = line.last().and_then(|&c| self.candidates.get(c)).and_then(|c| c.parent) {
            line.push(parent);
        }
        line.reverse();
        line
    }
}
