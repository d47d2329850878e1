//! The document of a provisioning domain (RFC 8801 section 4.3).
//!
//! Of the keys that RFC 8801 registers, all count. What a network is like is no part of it: earlier
//! drafts had `metered`, and NEAT's networks had `capacity`, `latency` and `cost` (NEAT validation
//! and evaluation, 2018, section 2.2, listing 1). Here they are read from the sub-dictionary
//! `vendor-neater`, as section 4.3 wants of keys of one's own, and `metered` also at the root. A
//! network describes itself with these; its other names become properties that begin with `pvd_`,
//! so that no network can replace a statement of the system, of a program or of an administrator.

use super::advertisement::Prefix;
use core::time::Duration;
use neater_base::WallTime;
use neater_property::neat::{NeatProperty, NeatValue, read};
use serde_json::{Map, Value};

/// What the document is served as.
pub const MEDIA_TYPE: &str = "application/pvd+json";
/// The longest document, in bytes.
pub const MAX_DOCUMENT: usize = 64 * 1024;
/// How many prefixes, or zones, a document may have.
const MAX_LIST: usize = 64;
/// How many properties of its own a network may have.
const MAX_PROPERTIES: usize = 32;
/// How long a name or a text of one may be, in bytes.
const MAX_TEXT: usize = 256;
/// The sub-dictionary that is ours.
const OURS: &str = "vendor-neater";
/// What a network may state by its plain name, each with the units of docs/policy.md.
const PLAIN: [&str; 4] = ["capacity", "latency", "cost", "metered"];

/// The information of a domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Information {
    /// When it expires.
    pub expires: WallTime,
    /// The prefixes of the domain.
    pub prefixes: Vec<Prefix>,
    /// The properties that its rows have, each immutable: what is so is so.
    pub properties: Vec<NeatProperty>,
}

/// What RFC 4343 calls the same name.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a.trim_end_matches('.').eq_ignore_ascii_case(b.trim_end_matches('.'))
}

impl Information {
    /// Reads a document of the domain `id`.
    ///
    /// # Errors
    /// What is wrong with it: it is no I-JSON object, a mandatory key is missing or unsound, it is
    /// another domain's or has expired.
    pub fn parse(id: &str, document: &[u8], now: WallTime) -> Result<Self, String> {
        if document.len() > MAX_DOCUMENT {
            return Err(format!("a document has at most {MAX_DOCUMENT} bytes"));
        }
        let text = core::str::from_utf8(document).map_err(|_| "it is no UTF-8".to_owned())?;
        let Value::Object(members) = read(text).map_err(|e| e.to_string())? else {
            return Err("it is no JSON object".into());
        };
        match members.get("identifier") {
            Some(Value::String(name)) if same_name(name, id) => {}
            Some(Value::String(name)) => return Err(format!("identifier is {name:.80?}, and not {id:?}")),
            _ => return Err("identifier is missing, or no text".into()),
        }
        let expires = members.get("expires").and_then(Value::as_str).and_then(date);
        let expires = expires.ok_or("expires is missing, or no date as in RFC 3339")?;
        if expires <= now {
            return Err("it has expired".into());
        }
        let prefixes = list(&members, "prefixes")?.ok_or("prefixes is missing")?;
        let prefixes: Option<Vec<Prefix>> = prefixes.iter().map(|p| Prefix::parse(p)).collect();
        let prefixes = prefixes.ok_or("prefixes holds something that is no IPv6 prefix")?;
        let mut properties = Vec::new();
        let mut tell = |key: &str, value: NeatValue| {
            properties.push(NeatProperty::new(key, value).with_precedence(NeatProperty::IMMUTABLE));
        };
        if let Some(zones) = list(&members, "dnsZones")? {
            let zones = zones.iter().map(|z| NeatValue::Text(z.trim_end_matches('.').to_ascii_lowercase()));
            tell("pvd_dns_zones", NeatValue::set(zones).map_err(|e| format!("dnsZones: {e}"))?);
        }
        // Stated or not, programs can ask for it.
        tell("pvd_internet", NeatValue::Bool(members.get("noInternet") != Some(&Value::Bool(true))));
        let none = Map::new();
        let own = members.get(OURS).and_then(Value::as_object).unwrap_or(&none);
        if let (Some(metered @ Value::Bool(_)), None) = (members.get("metered"), own.get("metered")) {
            tell("metered", NeatValue::from_json(metered).map_err(|e| e.to_string())?);
        }
        for (key, value) in own.iter().take(MAX_PROPERTIES) {
            if let Some((key, value)) = own_property(key, value) {
                tell(&key, value);
            }
        }
        // The same name in another case is a contradiction: the first counts.
        let mut known = Vec::new();
        properties.retain(|p| {
            !known.contains(&p.key) && {
                known.push(p.key.clone());
                true
            }
        });
        Ok(Self { expires, prefixes, properties })
    }

    /// Whether every one of these prefixes is the domain's (section 4.4).
    pub fn covers<'a>(&self, mut announced: impl Iterator<Item = &'a Prefix>) -> bool {
        announced.all(|a| self.prefixes.iter().any(|p| p.covers(a)))
    }
}

/// A key of our sub-dictionary, if it can be a property; what cannot be is ignored, as unknown keys
/// are.
fn own_property(key: &str, value: &Value) -> Option<(String, NeatValue)> {
    let lower = key.to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if lower.is_empty() || lower.len() > 64 || !lower.bytes().all(plain) {
        return None;
    }
    let value = match value {
        Value::Bool(_) | Value::Number(_) => NeatValue::from_json(value).ok()?,
        Value::String(text) if text.len() <= MAX_TEXT => NeatValue::Text(text.clone()),
        _ => return None,
    };
    let fits = match lower.as_str() {
        "capacity" | "latency" | "cost" => matches!(value, NeatValue::Number(n) if n >= 0.0),
        "metered" => matches!(value, NeatValue::Bool(_)),
        _ => true,
    };
    let name = if PLAIN.contains(&lower.as_str()) { lower } else { format!("pvd_{lower}") };
    fits.then_some((name, value))
}

/// A list of texts.
fn list<'a>(members: &'a Map<String, Value>, key: &str) -> Result<Option<Vec<&'a str>>, String> {
    let Some(value) = members.get(key) else { return Ok(None) };
    let bad = || format!("{key} is no list of at most {MAX_LIST} texts");
    let items = value.as_array().filter(|a| a.len() <= MAX_LIST).ok_or_else(bad)?;
    items.iter().map(|i| i.as_str().filter(|t| t.len() <= MAX_TEXT).ok_or_else(bad)).collect::<Result<_, _>>().map(Some)
}

/// A date and time of RFC 3339 section 5.6, from 1970 on.
fn date(text: &str) -> Option<WallTime> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || bytes.len() > 40 || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<u64> {
        let part = text.get(from..to)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let marks = (bytes[4], bytes[7], bytes[10].to_ascii_uppercase(), bytes[13], bytes[16]);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is the second behind it.
    if marks != (b'-', b'-', b'T', b':', b':') || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        rest = fraction.get(digits..).filter(|_| digits > 0)?;
    }
    let offset: i64 = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let at = text.len() - 5;
            let (h, m) = (number(at, at + 2)?, number(at + 3, at + 5)?);
            let minutes = i64::try_from(h * 60 + m).ok().filter(|_| h < 24 && m < 60)?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    // Days since 1970, with years that begin in March so that leap days come last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = (y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day).checked_sub(719_469)?;
    let seconds = i64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()? - offset * 60;
    Some(WallTime(Duration::from_secs(u64::try_from(seconds).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_rfc_3339_are_read_and_others_are_not() {
        let at = |text: &str| date(text).map(|w| w.0.as_secs());
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2020-05-23T06:00:00Z"), Some(1_590_213_600));
        assert_eq!(at("2000-02-29t23:59:60z"), Some(951_868_800));
        assert_eq!(at("2026-11-22T12:00:00.25+01:30"), at("2026-11-22T10:30:00Z"));
        assert_eq!(at("1985-04-12T23:20:50.52-08:00"), Some(482_224_850));
        for wrong in [
            "",
            "2020-05-23",
            "2020-05-23 06:00:00Z",
            "2020-13-23T06:00:00Z",
            "2021-02-29T06:00:00Z",
            "2020-05-23T24:00:00Z",
            "2020-05-23T06:00:00",
            "2020-05-23T06:00:00.Z",
            "2020-05-23T06:00:00+1:00",
            "1969-12-31T23:59:59Z",
            "2020-05-23T06:00:00+24:00",
            "20e0-05-23T06:00:00Z",
            "0000-00-00T00:00:00Z",
            "2020-05-23T06:00:00Z\u{e9}",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }
}
