//! A race as bars over time.

use crate::output::ms;
use core::time::Duration;
use neater::{CandidateOutcome, Fate};

/// Columns of the bars.
const WIDTH: usize = 48;

/// One line for each candidate: when it ran, when its peer answered, and what became of it.
pub(super) fn draw(candidates: &[CandidateOutcome]) -> Vec<String> {
    let times = candidates.iter().flat_map(|c| [c.started, c.reachable, c.ended]).flatten();
    let end = times.max().unwrap_or_default().max(Duration::from_micros(1));
    let names: Vec<String> = candidates.iter().map(|c| format!("{} {}", c.stack, c.addr)).collect();
    let widest = names.iter().map(|n| n.chars().count()).max().unwrap_or_default();
    let column = |t: Duration| ((t.as_nanos() * WIDTH as u128 / end.as_nanos()) as usize).min(WIDTH - 1);
    let mut lines = Vec::new();
    for (c, name) in candidates.iter().zip(&names) {
        let mut bar = [' '; WIDTH];
        if let Some(started) = c.started {
            let (from, to) = (column(started), column(c.ended.unwrap_or(end)));
            bar[from..=to.max(from)].fill('-');
            if let Some(t) = c.reachable {
                let answered = column(t).clamp(from, to.max(from));
                bar[answered..=to.max(answered)].fill('=');
                bar[answered] = '+';
            }
            bar[to.max(from)] = match &c.fate {
                Fate::Won => '*',
                Fate::Failed(_) => 'x',
                Fate::Withdrawn => '<',
                Fate::Running | Fate::NotStarted => '>',
            };
        }
        let bar: String = bar.iter().collect();
        let when = c.ended.or(c.started).map_or_else(String::new, |t| format!(" {:.1} ms", ms(t)));
        let doubt = c.doubt.map_or_else(String::new, |d| format!(" (put back: {d})"));
        lines.push(format!("  {name:<widest$} |{bar}| {}{when}{doubt}", c.fate));
    }
    if !lines.is_empty() {
        lines.push(format!("  {:<widest$} 0{:>w$}", "", format!("{:.1} ms", ms(end)), w = WIDTH + 1));
        lines.push("  - tried   + answered   * won   x failed   < withdrawn   > still running".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::tests::candidate;
    use neater::Stack;

    #[test]
    fn a_race_is_drawn_to_scale() {
        let lines = draw(&[
            candidate(Stack::Quic, [Some(0), None, Some(96)], Fate::Withdrawn),
            candidate(Stack::Tls, [Some(48), Some(72), Some(96)], Fate::Won),
            candidate(Stack::Tcp, [None, None, None], Fate::NotStarted),
        ]);
        let bar = |i: usize| lines[i].split('|').nth(1).expect("a bar").to_owned();
        assert_eq!(bar(0), format!("{}<", "-".repeat(47)));
        assert_eq!(bar(1), format!("{}{}+{}*", " ".repeat(24), "-".repeat(12), "=".repeat(10)));
        assert_eq!(bar(2), " ".repeat(48));
    }

    #[test]
    fn what_was_put_back_says_why() {
        let doubt = neater::Doubt { cause: neater::BadCause::Silent, ago: Duration::from_secs(12), of: None };
        let quic = CandidateOutcome { doubt: Some(doubt), ..candidate(Stack::Quic, [None; 3], Fate::NotStarted) };
        let lines = draw(&[candidate(Stack::Tls, [Some(0), Some(20), Some(40)], Fate::Won), quic]);
        assert!(!lines[0].contains("put back"), "{lines:?}");
        assert!(lines[1].ends_with("not started (put back: it did not answer 12 s ago)"), "{lines:?}");
    }

    #[test]
    fn times_of_any_kind_are_drawn_without_complaint() {
        assert!(draw(&[]).is_empty());
        let odd = candidate(Stack::Tcp, [Some(9), Some(1), Some(0)], Fate::Running);
        assert_eq!(draw(&[odd]).len(), 3);
        assert_eq!(draw(&[candidate(Stack::Tcp, [Some(0), Some(0), Some(0)], Fate::Won)]).len(), 3);
    }
}
