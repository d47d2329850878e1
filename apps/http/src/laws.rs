//! What must hold of this crate's parsers whatever they are given, for fuzzers: they do not panic,
//! and what they return makes sense. Not for programs.

use crate::url::{URL_MAX, escape, unescape};
use crate::{ContentRange, Url};
use core::time::Duration;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderValue};
use std::time::SystemTime;

/// A URL and what a Location means there, divided by the first NUL: what is read is written as a
/// URL that means the same.
///
/// # Panics
/// When that is not so.
pub fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, location) = text.split_once('\0').unwrap_or((&text, "../x?y"));
    let escaped = escape(text);
    assert!(escaped.is_ascii() && !escaped.contains(|c: char| c.is_ascii_control() || c == ' '), "{escaped:?}");
    assert_eq!(escape(&escaped), escaped, "what is escaped stays");
    if !text.contains('%') {
        assert_eq!(unescape(&escaped).as_deref(), Some(text));
    }
    let Ok(url) = Url::parse(text) else { return };
    means_the_same(&url);
    if let Ok(next) = url.join(location) {
        means_the_same(&next);
    }
}

fn means_the_same(url: &Url) {
    let written = url.to_string();
    assert!(written.is_ascii() && url.target().as_str().starts_with('/'), "{written}");
    let host = &url.origin().host;
    assert!(!host.is_empty() && url.origin().port != 0, "{written}");
    assert!(!url.origin().authority().contains('%'), "a zone is not sent to others");
    // A zone may be written in two ways (RFC 6874 section 3), and escapes make longer.
    if !host.contains('%') && written.len() <= URL_MAX {
        let again = Url::parse(&written).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(&again, url);
    }
    for absolute in [false, true] {
        // hyper has limits of its own.
        let _ = url.uri(absolute, None);
    }
    if let Some(name) = url.file_name() {
        assert!(!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0', '\n']), "{name:?}");
    }
}

/// Fields of a request and of an answer, one in each line, the first byte of which selects the
/// field: a part that is served lies in the file, and one that is announced makes sense.
///
/// # Panics
/// When that is not so.
pub fn conditions(data: &[u8]) {
    use crate::server::conditions::{Part, Validators, Verdict, judge, part};
    let names = [RANGE, IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    let (mut headers, mut length) = (HeaderMap::new(), 1000u64);
    for line in data.split(|b| *b == b'\n').take(64) {
        let Some((which, text)) = line.split_first() else { continue };
        match names.get(usize::from(which.wrapping_sub(b'0'))) {
            Some(name) => {
                if let Ok(value) = HeaderValue::from_bytes(text) {
                    announced(&value);
                    headers.append(name, value);
                }
            }
            None => length = text.iter().fold(0, |n: u64, b| n.wrapping_mul(257).wrapping_add(u64::from(*b))),
        }
    }
    let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    let tagged = |tag: &str, modified| Validators { etag: Some(tag.to_owned()), modified };
    for v in [tagged("\"a\"", modified), tagged("\"b\"", None), Validators::NONE] {
        let verdict = judge(&headers, &v);
        if headers.is_empty() {
            assert_eq!((verdict, part(&headers, length, &v)), (Verdict::Go, Part::Whole));
        }
        match part(&headers, length, &v) {
            Part::Whole => {}
            Part::Unsatisfiable => assert!(headers.contains_key(RANGE)),
            Part::From { start, length: n } => {
                assert!(headers.contains_key(RANGE) && n > 0, "{headers:?}");
                assert!(start.checked_add(n).is_some_and(|end| end <= length), "{start} {n} of {length}: {headers:?}");
            }
        }
    }
}

fn announced(value: &HeaderValue) {
    match ContentRange::parse(value) {
        Some(ContentRange::Part { first, last, total }) => {
            assert!(first <= last && last < total.unwrap_or(u64::MAX), "{value:?}");
            let total = total.map_or_else(|| "*".to_owned(), |t| t.to_string());
            let written = format!("bytes {first}-{last}/{total}").parse::<HeaderValue>().expect("a field");
            assert_eq!(ContentRange::parse(&written), ContentRange::parse(value));
        }
        Some(ContentRange::None { total }) => {
            let written = format!("bytes */{total}").parse::<HeaderValue>().expect("a field");
            assert_eq!(ContentRange::parse(&written), Some(ContentRange::None { total }));
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_laws_hold_for_what_is_common() {
        for text in
            ["https://h/a/../b?c#d", "h:8443/\u{fc} x\0//g/", "[::1]:1?x\0?y", "http://[fe80::1%25eth0]/\0/", "", "\0"]
        {
            super::url(text.as_bytes());
        }
        for text in
            ["0bytes=1-5\n1\"a\"", "0bytes=-0", "0bytes=-5\nx", "0bytes 1-5/9", "0bytes */7", "2*\n3W/\"a\"", ""]
        {
            super::conditions(text.as_bytes());
        }
    }
}
