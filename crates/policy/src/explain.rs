//! A decision for people, and for programs that show it to people.

use crate::request::{Reason, Request, Verdict};
use neater_property::Preference;

/// Why a candidate stands where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ExplainedReason {
    /// The property.
    pub property: String,
    /// What was wanted of it.
    pub preference: String,
    /// What it adds to the score, or takes from it; `None` where it rules the candidate out.
    pub points: Option<i32>,
    /// The same in words.
    pub text: String,
}

impl From<&Reason> for ExplainedReason {
    fn from(r: &Reason) -> Self {
        Self {
            property: r.property.into(),
            preference: r.preference.to_string(),
            points: (r.verdict != Verdict::Excludes).then(|| r.verdict.points()),
            text: r.text.clone(),
        }
    }
}

/// A candidate and why it stands where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ExplainedCandidate {
    /// Its name.
    pub name: String,
    /// Its score; `None` where it is ruled out.
    pub score: Option<i32>,
    /// Why.
    pub reasons: Vec<ExplainedReason>,
}

/// A decision, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Explanation {
    /// How the connections come about.
    pub role: String,
    /// What is wanted of each property about which something is wanted: name, preference, and
    /// whether the program stated it.
    pub properties: Vec<(String, String, bool)>,
    /// What security was asked for.
    pub security: String,
    /// How the network is asked to treat the connections.
    pub capacity_profile: String,
    /// The candidates, best first.
    pub ranked: Vec<ExplainedCandidate>,
    /// What is ruled out.
    pub excluded: Vec<ExplainedCandidate>,
    /// The number of the request, in hexadecimal.
    pub fingerprint: String,
}

/// Takes `request` apart.
#[must_use]
pub fn explanation(request: &Request) -> Explanation {
    let reasons = |reasons: &[Reason]| reasons.iter().map(ExplainedReason::from).collect();
    let needs = &request.needs;
    let wanted = neater_property::SelectionProperty::ALL.into_iter().filter_map(|p| {
        let preference = needs.preference(p);
        (preference != Preference::NoPreference)
            .then(|| (p.name().to_string(), preference.to_string(), needs.explicit.contains(p)))
    });
    let ranked = request.ranked.iter().map(|r| ExplainedCandidate {
        name: r.name.into(),
        score: Some(r.score),
        reasons: reasons(&r.reasons),
    });
    let excluded = request.excluded.iter().map(|e| ExplainedCandidate {
        name: e.name.into(),
        score: None,
        reasons: reasons(&e.reasons),
    });
    Explanation {
        role: needs.role.to_string(),
        properties: wanted.collect(),
        security: request.security.to_string(),
        capacity_profile: request.capacity_profile.to_string(),
        ranked: ranked.collect(),
        excluded: excluded.collect(),
        fingerprint: format!("{:016x}", request.fingerprint),
    }
}

/// Explains `request` in lines of plain text: what was asked, the candidates in order, and what is
/// ruled out.
#[must_use]
pub fn explain(request: &Request) -> Vec<String> {
    explanation(request).lines()
}

impl Explanation {
    /// The explanation in lines of plain text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for preference in Preference::ALL.into_iter().rev().map(Preference::as_str) {
            let of = |explicit: bool| -> Vec<&str> {
                let wanted = self.properties.iter().filter(|(_, p, e)| p == preference && *e == explicit);
                wanted.map(|(name, _, _)| name.as_str()).collect()
            };
            for (names, suffix) in [(of(true), ""), (of(false), " by default")] {
                if !names.is_empty() {
                    lines.push(format!("{preference}{suffix}: {}", names.join(", ")));
                }
            }
        }
        lines.push(format!("Security: {}", self.security));
        lines.push(format!("Capacity profile: {}", self.capacity_profile));
        for (i, candidate) in self.ranked.iter().enumerate() {
            let mut line = format!("{}. {}, score {}", i + 1, candidate.name, candidate.score.unwrap_or_default());
            for (j, r) in candidate.reasons.iter().enumerate() {
                let separator = if j == 0 { ": " } else { ", " };
                line += &format!("{separator}{} {:+} ({})", r.property, r.points.unwrap_or_default(), r.text);
            }
            lines.push(line);
        }
        for candidate in &self.excluded {
            let reasons: Vec<String> =
                candidate.reasons.iter().map(|r| format!("{} ({})", r.property, r.text)).collect();
            lines.push(format!("-  {} is ruled out by {}", candidate.name, reasons.join(" and ")));
        }
        lines
    }
}
