//! The reasons for the winner of a race, in words.

use crate::output::ms;
use neater::{CandidateOutcome, Fate};

/// Why the winner of these candidates, which stand in the order of the plan, best first, was
/// chosen.
pub(crate) fn why(candidates: &[CandidateOutcome], from_cache: bool) -> String {
    if from_cache {
        return "it worked before".into();
    }
    let Some((place, won)) = candidates.iter().enumerate().find(|(_, c)| c.fate == Fate::Won) else {
        return "it was the only one".into();
    };
    let earlier = |c: &CandidateOutcome| c.started.is_some_and(|s| won.started.is_none_or(|w| s < w));
    let mut before: Vec<&CandidateOutcome> = candidates
        .iter()
        .enumerate()
        .filter(|(i, c)| *i != place && (*i < place || earlier(c)))
        .map(|(_, c)| c)
        .collect();
    before.sort_by_key(|c| c.started.unwrap_or(core::time::Duration::MAX));
    if before.is_empty() {
        return match candidates.len() {
            1 => "it was the only candidate".into(),
            _ => "it was the best candidate, and answered in time".into(),
        };
    }
    let fates: Vec<String> = before.iter().map(|c| format!("{} to {} {}", c.stack, c.addr, fate(c))).collect();
    format!("it was the first to work: {}", fates.join("; "))
}

fn fate(c: &CandidateOutcome) -> String {
    let waited = c.started.zip(c.ended).map(|(from, to)| ms(to.saturating_sub(from)));
    match (&c.fate, c.reachable, waited) {
        (Fate::Failed(e), ..) => format!("failed ({e})"),
        (Fate::Withdrawn, None, Some(waited)) => format!("had not answered within {waited:.0} ms"),
        (Fate::Withdrawn, Some(_), _) => "had answered, and was not ready".into(),
        (Fate::NotStarted, ..) => "was not tried".into(),
        (fate, ..) => fate.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use core::time::Duration;
    use neater::Stack;

    pub(crate) fn candidate(stack: Stack, times: [Option<u64>; 3], fate: Fate) -> CandidateOutcome {
        let [started, reachable, ended] = times.map(|t| t.map(Duration::from_millis));
        CandidateOutcome {
            stack,
            addr: ([192, 0, 2, 1], 443).into(),
            started,
            reachable,
            ended,
            doubt: None,
            fate,
            encapsulation_port: None,
        }
    }

    #[test]
    fn a_choice_names_what_became_of_those_before_it() {
        let won = candidate(Stack::Tls, [Some(250), Some(260), Some(270)], Fate::Won);
        let silent = candidate(Stack::Quic, [Some(0), None, Some(270)], Fate::Withdrawn);
        let text = why(&[silent.clone(), won.clone()], false);
        assert_eq!(text, "it was the first to work: QUIC to 192.0.2.1:443 had not answered within 270 ms");
        // What the plan had behind it, and was tried before it all the same.
        assert_eq!(why(&[won.clone(), silent], false), text);
        let later = candidate(Stack::Quic, [Some(260), None, Some(270)], Fate::Withdrawn);
        assert_eq!(why(&[won.clone(), later], false), "it was the best candidate, and answered in time");
        assert_eq!(why(core::slice::from_ref(&won), false), "it was the only candidate");
        assert_eq!(why(&[won], true), "it worked before");
    }
}
