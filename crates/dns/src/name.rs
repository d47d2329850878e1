//! Names as text: lower case, without the final dot, at most 253 bytes.
//!
//! *Responsible for* the check that every name passes before it is asked for, and for joining names
//! without allocating. *Not responsible for* IDNA: a name with non-ASCII characters is refused.

use hickory_proto::rr::Name;

/// Bytes in the longest name in text form, without the final dot: RFC 1035 section 2.3.4 allows 255
/// octets on the wire, of which the first length octet and the root's take two.
pub(crate) const MAX_NAME: usize = 253;
/// Bytes in the longest label (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;

/// Checks a name that has no final dot.
///
/// # Errors
/// What is wrong and what to do about it.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty: give a host name");
    }
    if !name.is_ascii() {
        return Err("it has non-ASCII characters: convert it to its ASCII form (xn--...) first");
    }
    if name.len() > MAX_NAME {
        return Err("it has more than 253 characters: shorten it");
    }
    // A literal address would only leak to the servers.
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err("it is an address: use it directly");
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("it has an empty label: remove the extra dot");
        }
        if label.len() > MAX_LABEL {
            return Err("it has a label of more than 63 characters: shorten it");
        }
        if !label.bytes().all(plain) {
            return Err("it has a character other than letters, digits, hyphen and underscore: give the host alone");
        }
    }
    Ok(())
}

/// Whether `b` may be in a host's label. DNS would carry anything, but hosts have letters, digits
/// and hyphens (RFC 1035 section 2.3.1) and services underscores; the rest are mistakes, such as a
/// URL or a bracketed address.
fn plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'-' || b == b'_'
}

/// The name in hickory's form; `None` if it does not pass [`check`].
pub(crate) fn to_wire(name: &str) -> Option<Name> {
    check(name).ok()?;
    Name::from_labels(name.split('.').map(str::as_bytes)).ok()
}

/// The text form of a name off the wire, in lower case; `None` for the root and for names that have
/// no plain text form.
pub(crate) fn from_wire(name: &Name) -> Option<String> {
    let mut text = String::new();
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        if label.is_empty() || !label.iter().all(|b| plain(*b)) {
            return None;
        }
        text.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
    }
    check(&text).ok().map(|()| text)
}

/// What RFC 6761 and RFC 7686 want answered without a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// `localhost` and everything under it: the loopback addresses (RFC 6761 section 6.3).
    Localhost,
    /// Under `invalid` (RFC 6761 section 6.4) or `onion` (RFC 7686 section 2): never exists in DNS.
    Never,
}

/// Whether a lower-case name without final dot is special.
pub(crate) fn special(name: &str) -> Option<Special> {
    match name.rsplit('.').next() {
        Some("localhost") => Some(Special::Localhost),
        Some("invalid" | "onion") => Some(Special::Never),
        _ => None,
    }
}

/// A lower-case name on the stack.
pub(crate) struct NameBuf {
    bytes: [u8; MAX_NAME],
    len: usize,
}

impl NameBuf {
    /// `name` in lower case; `None` if it is too long.
    pub(crate) fn lower(name: &str) -> Option<Self> {
        let mut buf = Self { bytes: [0; MAX_NAME], len: 0 };
        buf.push(name)?;
        Some(buf)
    }

    /// `name` and `suffix` with a dot between, in lower case; `None` if that is too long.
    pub(crate) fn join(name: &str, suffix: &str) -> Option<Self> {
        let mut buf = Self::lower(name)?;
        buf.push(".")?;
        buf.push(suffix)?;
        Some(buf)
    }

    fn push(&mut self, text: &str) -> Option<()> {
        let end = self.len.checked_add(text.len())?;
        let room = self.bytes.get_mut(self.len..end)?;
        room.copy_from_slice(text.as_bytes());
        room.make_ascii_lowercase();
        self.len = end;
        Some(())
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        // Only whole strings are appended and ASCII lower-casing keeps UTF-8 intact, so this never
        // falls back.
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_dns_cannot_carry_are_refused_with_advice() {
        for bad in ["", ".", "a..b", "bücher.example", "a b", "a\\b", "a/b", "h:80", "10.0.0.1", "::1", "[::1]"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check(&"a".repeat(64)).is_err());
        assert!(check(&["a".repeat(63).as_str(); 4].join(".")).is_err());
        assert!(check("bücher.example").unwrap_err().contains("xn--"));
        for good in ["a", "_443._https.example", "xn--bcher-kva.example", "10.0.0.1.example"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn the_longest_name_survives_the_wire_form() {
        let label = "a".repeat(63);
        let name = [label.as_str(), &label, &label, &"b".repeat(61)].join(".");
        assert_eq!(name.len(), MAX_NAME);
        let wire = to_wire(&name).expect("253 characters are allowed");
        assert_eq!(from_wire(&wire), Some(name));
    }

    #[test]
    fn joining_stops_at_the_longest_name() {
        assert_eq!(NameBuf::join("Host", "Example.TEST").unwrap().as_str(), "host.example.test");
        assert!(NameBuf::join(&"a".repeat(200), &"b".repeat(52)).is_some());
        assert!(NameBuf::join(&"a".repeat(200), &"b".repeat(53)).is_none());
    }

    #[test]
    fn names_under_localhost_invalid_and_onion_are_special() {
        assert_eq!(special("localhost"), Some(Special::Localhost));
        assert_eq!(special("a.b.localhost"), Some(Special::Localhost));
        assert_eq!(special("notlocalhost"), None);
        assert_eq!(special("localhost.example"), None);
        assert_eq!(special("x.invalid"), Some(Special::Never));
        assert_eq!(special("abc.onion"), Some(Special::Never));
    }
}
