//! Every decision record has its line in the index, in the order of the numbers, with the status that it gives itself.

use super::Finding;
use crate::workspace::Files;

/// Where the records are.
const FOLDER: &str = "docs/decisions/";

/// Every record that the index lacks, and every line of it that is at the wrong place or says something else than its record.
pub(super) fn check(files: &Files) -> Vec<Finding> {
    let path = format!("{FOLDER}README.md");
    let index = files.get(&path).map_or("", String::as_str);
    let mut findings = Vec::new();
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for (number, line) in index.lines().enumerate() {
        let Some((file, status)) = row(line) else { continue };
        let place = format!("{path}:{}", number + 1);
        if rows.last().is_some_and(|(before, _)| *before >= file) {
            findings.push(Finding::error(place, format!("`{file}` is not in the order of the numbers")));
        }
        rows.push((file, status));
    }
    for (record, text) in files.iter().filter_map(|(path, text)| Some((path.strip_prefix(FOLDER)?, text))) {
        if !record.ends_with(".md") || !record.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let own = text.lines().find_map(|l| l.split_once("Status: ")).map_or("", |(_, s)| s.trim_end_matches('.'));
        match rows.iter().find(|(file, _)| *file == record) {
            None => findings.push(Finding::error(path.as_str(), format!("`{record}` is not in the index"))),
            Some((_, status)) if *status != own => {
                let said = format!("`{record}` says of itself that it is `{own}`, and the index `{status}`");
                findings.push(Finding::error(path.as_str(), said));
            }
            Some(_) => {}
        }
    }
    findings
}

/// The file and the status in a line `| [NNNN](FILE) | DECISION | STATUS |` of the table.
fn row(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.strip_prefix("| [")?.split_once("](")?;
    let (file, rest) = rest.split_once(')')?;
    let status = rest.trim_end().strip_suffix('|')?.rsplit('|').next()?;
    Some((file, status.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(index: &str) -> Vec<String> {
        let record = |n: &str, status: &str| {
            (format!("docs/decisions/{n}.md"), format!("# {n}: x\n\nDate: 2026-01-01. Status: {status}.\n"))
        };
        let mut files = Files::from([record("0001-a", "accepted"), record("0002-b", "replaced by 0003")]);
        files.insert("docs/decisions/README.md".into(), index.into());
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_index_that_has_every_record_passes() {
        let index = "| record |\n| --- |\n| [0001](0001-a.md) | a, or b | accepted |\n\
                     | [0002](0002-b.md) | b | replaced by 0003 |\n";
        assert_eq!(broken(index), [""; 0]);
    }

    #[test]
    fn what_is_missing_out_of_order_or_of_another_status_is_reported() {
        let both = "| [0002](0002-b.md) | b | replaced by 0003 |\n| [0001](0001-a.md) | a | accepted |\n";
        for (index, words) in [
            ("| [0001](0001-a.md) | a | accepted |\n", &["`0002-b.md` is not in the index"][..]),
            ("", &["`0001-a.md` is not in the index", "`0002-b.md` is not in the index"]),
            (both, &["README.md:2: `0001-a.md` is not in the order"]),
            (
                &both.replace("replaced by 0003", "accepted"),
                &["not in the order", "itself that it is `replaced by 0003`"],
            ),
        ] {
            let found = broken(index);
            assert_eq!(found.len(), words.len(), "{found:?}");
            for (found, word) in found.iter().zip(words) {
                assert!(found.contains(word), "{found}");
            }
        }
    }
}
