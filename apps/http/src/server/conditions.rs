//! Conditional and range requests (RFC 9110 sections 13 and 14).

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use std::time::SystemTime;

/// What distinguishes one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// A strong entity tag, with its quotes; none where states cannot be distinguished.
    pub(crate) etag: Option<String>,
    /// When the file was last changed, in whole seconds.
    pub(crate) modified: Option<SystemTime>,
}

impl Validators {
    /// Those of what is made for one answer.
    pub(crate) const NONE: Self = Self { etag: None, modified: None };

    fn is(&self, tag: &str) -> bool {
        self.etag.as_deref() == Some(tag)
    }
}

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer it.
    Go,
    /// The client has it (304).
    NotModified,
    /// The state that the client insists on is gone (412).
    Failed,
}

/// The order of RFC 9110 section 13.2.2, for GET and HEAD.
pub(crate) fn judge(headers: &HeaderMap, v: &Validators) -> Verdict {
    if headers.contains_key(IF_MATCH) {
        if !lists(headers, &IF_MATCH, |tag| v.is(tag)) {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, &IF_UNMODIFIED_SINCE), v.modified)
        && modified > since
    {
        return Verdict::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        // Section 13.1.2: the weak comparison.
        if lists(headers, &IF_NONE_MATCH, |tag| v.is(tag.strip_prefix("W/").unwrap_or(tag))) {
            return Verdict::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, &IF_MODIFIED_SINCE), v.modified)
        && modified <= since
    {
        return Verdict::NotModified;
    }
    Verdict::Go
}

/// Which part of a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// So many bytes from here on (206).
    From { start: u64, length: u64 },
    /// A part that does not exist (416).
    Unsatisfiable,
}

/// The one range that is asked for. Several ranges, other units and what cannot be read mean the
/// whole: a server may ignore the field (section 14.2).
pub(crate) fn part(headers: &HeaderMap, length: u64, v: &Validators) -> Part {
    let Some(text) = headers.get(RANGE).and_then(|r| r.to_str().ok()) else { return Part::Whole };
    if headers.get_all(RANGE).iter().count() > 1 || !still_valid(headers, v) {
        return Part::Whole;
    }
    let Some((unit, spec)) = text.split_once('=') else { return Part::Whole };
    let Some((first, last)) = spec.trim().split_once('-') else { return Part::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return Part::Whole;
    }
    let number = |t: &str| -> Option<u64> {
        (!t.is_empty() && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", suffix) => match number(suffix) {
            None => Part::Whole,
            Some(0) => Part::Unsatisfiable,
            // Section 14.1.2: of what is shorter, all is meant; and nothing can be no part of it.
            Some(_) if length == 0 => Part::Whole,
            Some(n) => Part::From { start: length - n.min(length), length: n.min(length) },
        },
        (first, last) => {
            let Some(first) = number(first) else { return Part::Whole };
            let last = match last {
                "" => u64::MAX,
                last => match number(last) {
                    Some(n) if n >= first => n,
                    _ => return Part::Whole,
                },
            };
            if first >= length {
                return Part::Unsatisfiable;
            }
            Part::From { start: first, length: last.min(length - 1) - first + 1 }
        }
    }
}

/// Section 13.1.5: with If-Range, a part is only of use if the rest is what the client has. Strong
/// comparison: a date, of whole seconds, is none, for a file may be written twice within one.
fn still_valid(headers: &HeaderMap, v: &Validators) -> bool {
    let Some(condition) = headers.get(IF_RANGE) else { return true };
    let Ok(condition) = condition.to_str() else { return false };
    let condition = condition.trim();
    if condition.starts_with('"') || condition.starts_with("W/") {
        return v.is(condition);
    }
    false
}

fn date(headers: &HeaderMap, name: &http::HeaderName) -> Option<SystemTime> {
    // RFC 9110 section 13.1.3: one that is no date, such as a list of them, does not count.
    let mut all = headers.get_all(name).iter();
    let one = all.next().filter(|_| all.next().is_none())?;
    httpdate::parse_http_date(one.to_str().ok()?).ok()
}

/// Whether one of the tags of a field matches; `*` always does.
fn lists(headers: &HeaderMap, name: &http::HeaderName, is: impl Fn(&str) -> bool) -> bool {
    headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).any(|v| {
        // Our own tags have no comma in them, so a tag that is torn apart here cannot be one of
        // ours.
        v.trim() == "*" || v.split(',').map(str::trim).any(&is)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use http::{HeaderName, HeaderValue};

    fn validators() -> Validators {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        Validators { etag: Some("\"abc\"".into()), modified: Some(modified) }
    }

    fn headers(list: &[(HeaderName, &'static str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v))).collect()
    }

    const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
    const AT: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

    #[test]
    fn one_range_is_a_part_and_anything_else_the_whole() {
        let v = validators();
        let of = |range: &'static str| part(&headers(&[(RANGE, range)]), 100, &v);
        assert_eq!(of("bytes=0-9"), Part::From { start: 0, length: 10 });
        assert_eq!(of("bytes=90-"), Part::From { start: 90, length: 10 });
        assert_eq!(of("bytes=90-1000"), Part::From { start: 90, length: 10 });
        assert_eq!(of("bytes=-10"), Part::From { start: 90, length: 10 });
        assert_eq!(of("bytes=-1000"), Part::From { start: 0, length: 100 });
        assert_eq!(of("bytes=0-99999999999999999999999"), Part::From { start: 0, length: 100 });
        for unsatisfiable in ["bytes=100-", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(unsatisfiable), Part::Unsatisfiable, "{unsatisfiable}");
        }
        for whole in ["bytes=0-1,5-6", "bytes=9-3", "bytes=a-b", "lines=1-2", "bytes", "bytes=-", "bytes=+1-2"] {
            assert_eq!(of(whole), Part::Whole, "{whole}");
        }
        // Of an empty file, all that there is.
        assert_eq!(part(&headers(&[(RANGE, "bytes=-1")]), 0, &v), Part::Whole);
        assert_eq!(part(&headers(&[(RANGE, "bytes=0-")]), 0, &v), Part::Unsatisfiable);
    }

    #[test]
    fn a_range_of_another_state_is_the_whole() {
        let v = validators();
        let with = |condition| part(&headers(&[(RANGE, "bytes=5-"), (IF_RANGE, condition)]), 10, &v);
        let rest = Part::From { start: 5, length: 5 };
        assert_eq!(with("\"abc\""), rest);
        // A date cannot distinguish two states within its second.
        for other in [AT, "\"abd\"", "W/\"abc\"", BEFORE, "nonsense"] {
            assert_eq!(with(other), Part::Whole, "{other}");
        }
    }

    #[test]
    fn conditions_are_judged_in_the_order_of_the_rfc() {
        let v = validators();
        let of = |list: &[(HeaderName, &'static str)]| judge(&headers(list), &v);
        assert_eq!(of(&[]), Verdict::Go);
        assert_eq!(of(&[(IF_NONE_MATCH, "\"x\", W/\"abc\"")]), Verdict::NotModified);
        assert_eq!(of(&[(IF_NONE_MATCH, "*")]), Verdict::NotModified);
        // Not a tag, and no `*` either (RFC 9110 section 13.1.2).
        assert_eq!(of(&[(IF_NONE_MATCH, "\"x\", *")]), Verdict::Go);
        // A tag decides where there is one, and the date is not looked at.
        assert_eq!(of(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, AT)]), Verdict::Go);
        assert_eq!(of(&[(IF_MODIFIED_SINCE, AT)]), Verdict::NotModified);
        assert_eq!(of(&[(IF_MODIFIED_SINCE, BEFORE)]), Verdict::Go);
        assert_eq!(of(&[(IF_MATCH, "\"x\"")]), Verdict::Failed);
        assert_eq!(of(&[(IF_MATCH, "\"abc\"")]), Verdict::Go);
        assert_eq!(of(&[(IF_UNMODIFIED_SINCE, BEFORE)]), Verdict::Failed);
        // What has no tag is none of those that are listed, but it exists.
        let of = |list: &[(HeaderName, &'static str)]| judge(&headers(list), &Validators::NONE);
        for tags in ["\"x\"", ",", ""] {
            assert_eq!(of(&[(IF_MATCH, tags)]), Verdict::Failed, "{tags:?}");
            assert_eq!(of(&[(IF_NONE_MATCH, tags)]), Verdict::Go, "{tags:?}");
        }
        assert_eq!(of(&[(IF_MATCH, "*")]), Verdict::Go);
        assert_eq!(of(&[(IF_NONE_MATCH, "*")]), Verdict::NotModified);
        assert_eq!(of(&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AT)]), Verdict::Go);
    }
}
