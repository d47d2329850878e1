//! What happened on the way to a decision, step by step.

use super::file::of_array;
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

impl Origin {
    /// About how many bytes it takes, and whatever it is the origin of beside its properties.
    fn weight(&self) -> usize {
        let more = match self {
            Self::Rule { uid, .. } => uid.len(),
            Self::Row { nodes } => of_texts(nodes),
            Self::Request(_) | Self::Bare | Self::Transport => 0,
        };
        256 + more
    }
}

/// About how many bytes texts take.
fn of_texts(texts: &[String]) -> usize {
    texts.iter().map(|text| 32 + text.len()).sum()
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
    /// How many candidates came of the same rule at the same time, this one included; 1 if no rule
    /// made it.
    pub siblings: usize,
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

impl Event {
    /// About how many bytes it takes.
    fn weight(&self) -> usize {
        let of_miss = |miss: &Miss| miss.key.len() + miss.wanted.len() + miss.held.as_ref().map_or(0, String::len);
        let more = match self {
            Self::Unmatched { uid, miss, .. } => uid.len() + of_miss(miss),
            Self::Fired { uid, children, clashes, .. } => {
                let of_clash = |c: &Conflict| 96 + c.key.len() + c.held.len() + c.wanted.len();
                uid.len() + 8 * children.len() + clashes.iter().map(|(_, clash)| of_clash(clash)).sum::<usize>()
            }
            Self::RowSkipped { nodes, miss, .. } => of_texts(nodes) + of_miss(miss),
            Self::Cut { .. } | Self::Duplicate { .. } | Self::NoTransport { .. } => 0,
        };
        192 + more
    }
}

/// The way to a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    on: bool,
    /// About how many bytes more may be written down.
    room: usize,
    /// A candidate did not fit, or a step.
    full: (bool, bool),
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
        Self::within(usize::MAX)
    }

    /// A trace that writes everything down as long as it takes no more than about so many bytes.
    /// What happened is then counted only; a candidate for which there is no room makes it
    /// [full](Self::is_full).
    #[must_use]
    pub(crate) fn within(bytes: usize) -> Self {
        Self { on: true, room: bytes, ..Self::default() }
    }

    /// Whether a candidate was not written down, so that others cannot be identified by their
    /// numbers.
    #[must_use]
    pub(crate) const fn is_full(&self) -> bool {
        self.full.0
    }

    /// Takes room for so many bytes, if there is any.
    const fn takes(&mut self, bytes: usize) -> bool {
        match self.room.checked_sub(bytes) {
            Some(left) => {
                self.room = left;
                true
            }
            None => false,
        }
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
        if !self.takes(of_array(properties) + origin.weight()) {
            self.full.0 = true;
            return 0;
        }
        self.candidates.push(Traced { properties: properties.clone(), parent, origin, siblings: 1 });
        self.candidates.len() - 1
    }

    /// Writes down that these candidates came of one rule at one time.
    pub(crate) fn siblings(&mut self, candidates: &[usize]) {
        for &candidate in candidates {
            if let Some(held) = self.candidates.get_mut(candidate) {
                held.siblings = candidates.len();
            }
        }
    }

    /// Writes down a step.
    pub(crate) fn event(&mut self, event: impl FnOnce() -> Event) {
        if !self.on {
            return;
        }
        if self.events.len() < MAX_EVENTS && !self.full.1 {
            let event = event();
            if self.takes(event.weight()) {
                return self.events.push(event);
            }
            self.full.1 = true;
        }
        self.unwritten += 1;
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
