//! Why a name could not be resolved.

use core::fmt;
use neater_base::net::NetError;

/// Why a record kind of a lookup has no answer. The text names the cause and what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveError {
    /// A server reports that the name does not exist (NXDOMAIN).
    NoSuchName,
    /// Every server failed, the last of them with SERVFAIL or a code without a better word.
    ServerFailure,
    /// Every server failed, the last of them by refusing to answer us.
    Refused,
    /// No server answered in time.
    Timeout,
    /// What a server sent cannot be read.
    Malformed,
    /// There is no server to ask.
    NoServers,
    /// The name is not a name that DNS can carry; the text gives the reason.
    InvalidName(&'static str),
    /// The servers cannot be reached; the network's error gives the reason.
    Unreachable(NetError),
    /// A chain of aliases is longer than is sane, or has no end.
    Loop,
    /// Too many lookups or questions are under way.
    TooMany,
    /// The program, or the system's resolver, was asked in place of name servers and has failed.
    Elsewhere,
}

/// Whether `name` can be asked for as the name of a host, with or without a final dot: letters,
/// digits, hyphens and underscores in labels of at most 63 characters (RFC 1035 section 2.3.4), 253
/// in all, and no address. Nothing is asked.
///
/// # Errors
/// [`ResolveError::InvalidName`], with what to do about it.
pub fn check_name(name: &str) -> Result<(), ResolveError> {
    crate::name::check(name.strip_suffix('.').unwrap_or(name)).map_err(ResolveError::InvalidName)
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName => f.write_str("no such name: check the spelling"),
            Self::ServerFailure => {
                f.write_str("the name server failed: the name's own servers may be broken; try again later")
            }
            Self::Refused => f.write_str("the name server refuses to answer: check the configured name servers"),
            Self::Timeout => {
                f.write_str("no name server answered in time: check the network and the configured name servers")
            }
            Self::Malformed => f.write_str("the name server's answer cannot be read: try another name server"),
            Self::NoServers => f.write_str("no name server is configured: add one to the resolver configuration"),
            Self::InvalidName(why) => write!(f, "not a valid name: {why}"),
            Self::Unreachable(e) if e.kind == neater_base::net::ErrorKind::ConnectionRefused => write!(
                f,
                "the name servers refuse connections ({e}): an answer that is too long for UDP needs TCP (RFC 7766), which they or a firewall do not let through"
            ),
            Self::Unreachable(e) => write!(f, "the name servers cannot be reached ({e}): check the network"),
            Self::Loop => f.write_str("the name's aliases form a loop or too long a chain: its owner must repair it"),
            Self::Elsewhere => f.write_str(
                "the resolver of the program or of the system has failed: see its own messages, and try again later",
            ),
            Self::TooMany => f.write_str("too many lookups at once: wait for some to end and try again"),
        }
    }
}

impl std::error::Error for ResolveError {}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::ErrorKind;

    #[test]
    fn every_error_says_what_to_do_next() {
        let all = [
            ResolveError::NoSuchName,
            ResolveError::ServerFailure,
            ResolveError::Refused,
            ResolveError::Timeout,
            ResolveError::Malformed,
            ResolveError::NoServers,
            ResolveError::InvalidName("empty: give a name"),
            ResolveError::Unreachable(ErrorKind::NetworkUnreachable.into()),
            ResolveError::Loop,
            ResolveError::TooMany,
            ResolveError::Elsewhere,
        ];
        for e in all {
            assert!(e.to_string().contains(": "), "{e}");
        }
    }
}
