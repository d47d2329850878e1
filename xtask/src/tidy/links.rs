//! Links in Markdown that point at files point at files that exist.
//!
//! Deliberately not: links into the web, which would make the check depend on it, and headings within a file.

use super::Finding;
use crate::workspace::Files;

/// Every link to a file for which `exists` is false. `exists` takes a path relative to the root.
pub(super) fn check(files: &Files, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in targets(text) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let place = format!("{path}:{line}");
            match resolve(folder, file) {
                None => findings.push(Finding::error(place, format!("the link `{target}` leads out of the project"))),
                Some(file) if !exists(&file) => {
                    findings.push(Finding::error(place, format!("the link `{target}` leads to no file (`{file}`)")));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// The targets of inline links and link definitions outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_some() || mark.is_some() {
            continue;
        }
        let prose = without_code(line);
        for (at, _) in prose.match_indices("](") {
            found.extend(destination(&prose[at + 2..], ')').map(|target| (index + 1, target)));
        }
        let definition = prose.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
        if let Some((_, rest)) = definition.filter(|(name, _)| !name.contains(']') && !name.starts_with('^')) {
            found.extend(destination(rest.trim_start(), '\n').map(|target| (index + 1, target)));
        }
    }
    found
}

/// The destination at the start of `rest`: up to `end`, white space (a title follows), or the closing angle bracket.
fn destination(rest: &str, end: char) -> Option<String> {
    let target = match rest.strip_prefix('<') {
        Some(rest) => rest.split('>').next(),
        None => rest.split(|c: char| c == end || c.is_whitespace()).next(),
    };
    target.filter(|t| !t.is_empty()).map(str::to_owned)
}

/// The line with `code spans` left out.
fn without_code(line: &str) -> String {
    let mut parts = line.split('`');
    let mut prose = parts.next().unwrap_or_default().to_owned();
    while let (Some(_code), Some(after)) = (parts.next(), parts.next()) {
        prose.push_str("code");
        prose.push_str(after);
    }
    prose
}

/// `target` as a path relative to the root; `None` if it leaves the root. A leading `/` means the root.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let folder = if target.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        let files = Files::from([(path.to_owned(), text.to_owned())]);
        check(&files, |path| ["README.md", "docs/a.md", "docs", ""].contains(&path)).len()
    }

    #[test]
    fn links_to_files_and_folders_that_exist_pass() {
        for text in
            ["[x](a.md)", "[x](../README.md#top)", "[x](.)", "![x](/docs/a.md \"title\")", "[x]: a.md", "[x](<a.md>)"]
        {
            assert_eq!(broken("docs/b.md", text), 0, "{text}");
        }
    }

    #[test]
    fn links_to_nothing_and_out_of_the_project_are_reported() {
        for text in
            ["[x](b.md)", "[x][y]\n\n[y]: gone.md", "a [x](../docs/c.md) b", "[x](../../etc)", "[`code`](gone.md)"]
        {
            assert_eq!(broken("docs/b.md", text), 1, "{text}");
        }
        let files = Files::from([("docs/b.md".to_owned(), "\n\n[x](b.md)".to_owned())]);
        assert_eq!(check(&files, |_| false)[0].place, "docs/b.md:3");
    }

    #[test]
    fn the_web_headings_footnotes_and_code_are_left_alone() {
        for text in
            ["[x](https://a/b)", "[x](mailto:a@b)", "[x](#y)", "`[x](b.md)`", "```\n[x](b.md)\n```", "[^1]: note"]
        {
            assert_eq!(broken("docs/b.md", text), 0, "{text}");
        }
    }
}
