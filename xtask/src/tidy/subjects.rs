//! Commits whose subjects fit into a line of `git log --oneline`.

use super::Finding;

/// The commit from which on subjects count: those before it are as they are.
pub(super) const SINCE: &str = "7d2f18de2321b7eb1012f9a22024c3dba69cb2c9";
/// Characters of a subject; the hook of `cargo xtask hooks` refuses more.
const LONGEST: usize = 72;
/// Of a hundred subjects, as many may be longer.
const PERCENT: usize = 3;

/// A finding if too many subjects are too long; a warning where the history is not here.
pub(super) fn check(subjects: &Result<Vec<String>, String>) -> Vec<Finding> {
    let subjects = match subjects {
        Ok(subjects) => subjects,
        Err(why) => return vec![Finding::warning("git log", format!("subjects are not checked: {why}"))],
    };
    let long: Vec<&String> = subjects.iter().filter(|subject| subject.chars().count() > LONGEST).collect();
    if long.len() * 100 <= subjects.len() * PERCENT {
        return Vec::new();
    }
    let mut message = format!(
        "{} of {} subjects since {} have more than {LONGEST} characters, and {PERCENT} % may: install the hook by \
         `cargo xtask hooks`",
        long.len(),
        subjects.len(),
        &SINCE[..8]
    );
    for subject in long.iter().take(3) {
        message += &format!("; {subject:?}");
    }
    vec![Finding::error("git log", message)]
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn subjects(short: usize, long: usize) -> Result<Vec<String>, String> {
        let of = |columns: usize, count: usize| core::iter::repeat_n("ä".repeat(columns), count);
        Ok(of(LONGEST, short).chain(of(LONGEST + 1, long)).collect())
    }

    #[test]
    fn three_of_a_hundred_may_be_longer() {
        assert_eq!(check(&subjects(97, 3)), []);
        let found = check(&subjects(96, 4));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("error: git log: 4 of 100 subjects since "), "{}", found[0]);
        assert_eq!(check(&subjects(5, 1)).len(), 1);
    }

    #[test]
    fn no_commits_pass_and_no_history_is_a_warning() {
        assert_eq!(check(&Ok(Vec::new())), []);
        let found = check(&Err("fatal: bad object".into()));
        assert_eq!((found[0].severity, found.len()), (Severity::Warning, 1));
        assert!(found[0].message.contains("bad object"));
    }
}
