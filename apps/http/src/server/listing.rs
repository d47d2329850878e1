//! A folder as a page.

use crate::url::escape;
use core::fmt::Write as _;
use std::fs::DirEntry;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Entries that a page lists; the page of a larger folder notes that it is larger.
const ENTRIES_MAX: usize = 10_000;

/// The page of a folder, `shown` being its path for people; with names that begin with a dot if
/// `hidden`.
pub(super) fn page(folder: &Path, shown: &str, root: &Path, hidden: bool) -> io::Result<String> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut more = false;
    for entry in std::fs::read_dir(folder)? {
        if entries.len() >= ENTRIES_MAX {
            more = true;
            break;
        }
        if !hidden && entry.as_ref().is_ok_and(|e| e.file_name().as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        // What cannot be looked at, or has a name that no URL could have led to, is left out.
        if let Some(e) = entry.ok().and_then(|e| line(&e, root)) {
            entries.push(e);
        }
    }
    // Folders first, each kind by name.
    entries.sort_by(|a, b| (!a.0, &a.1).cmp(&(!b.0, &b.1)));
    let title = html(shown);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>body{{font:16px/1.5 \
         system-ui,sans-serif;margin:2em}}td{{padding-right:2em}}td+td{{text-align:right;color:#666}}</style></head>\n\
         <body><h1>{title}</h1><table>\n"
    );
    if folder != root {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for (is_folder, name, length, modified) in &entries {
        let slash = if *is_folder { "/" } else { "" };
        let size = if *is_folder { String::new() } else { size(*length) };
        let (link, text) = (segment(name), html(name));
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{text}{slash}</a></td><td>{size}</td><td>{}</td></tr>",
            date(*modified)
        );
    }
    page.push_str("</table>");
    if more {
        let _ = write!(page, "<p>The first {ENTRIES_MAX} entries; there are more.</p>");
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// Whether it is a folder, its name, its length, and when it was written last.
type Entry = (bool, String, u64, Option<SystemTime>);

/// `2026-11-28 14:05`, of the world's time; nothing where it is not known.
fn date(at: Option<SystemTime>) -> String {
    // The parts of `Sat, 28 Nov 2026 14:05:59 GMT` (RFC 9110 section 5.6.7).
    let text = at.map(httpdate::fmt_http_date).unwrap_or_default();
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, _] = parts[..] else { return String::new() };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|m| *m == month).map_or(0, |m| m + 1);
    format!("{year}-{month:02}-{day} {}", time.get(..5).unwrap_or_default())
}

fn line(entry: &DirEntry, root: &Path) -> Option<Entry> {
    let name = entry.file_name().into_string().ok()?;
    // A link that leads out is not served, so nothing about its target is revealed.
    if entry.file_type().ok()?.is_symlink() && !entry.path().canonicalize().ok()?.starts_with(root) {
        return None;
    }
    let meta = std::fs::metadata(entry.path()).ok()?;
    (meta.is_dir() || meta.is_file())
        .then(|| (meta.is_dir(), name, meta.len(), meta.modified().ok().filter(is_writable)))
}

/// Whether a date can be written as HTTP has it: until the year 9999.
fn is_writable(at: &SystemTime) -> bool {
    at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|d| d.as_secs() < 253_402_300_800)
}

/// A name as one segment of a path.
fn segment(name: &str) -> String {
    // What stands for something in a path or a query is escaped, too, and so is what stands for
    // something in HTML.
    name.split_inclusive(['%', '?', '#', '&', '\'', ';', '\\'])
        .map(|part| match part.as_bytes().last() {
            Some(b @ (b'%' | b'?' | b'#' | b'&' | b'\'' | b';' | b'\\')) => {
                format!("{}%{b:02X}", escape(&part[..part.len() - 1]))
            }
            _ => escape(part),
        })
        .collect()
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_neither_leave_its_link_nor_its_text() {
        assert_eq!(segment("a b?c#d%e&f'g"), "a%20b%3Fc%23d%25e%26f%27g");
        assert_eq!(html("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((size(999), size(1000), size(20_000_000)), ("999 B".into(), "1.0 kB".into(), "20.0 MB".into()));
    }
}
