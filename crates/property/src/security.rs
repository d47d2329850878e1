//! How much transport security is wanted.

use core::fmt;

/// How strong a security protocol is; later ones contain the guarantees of earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecurityLevel {
    /// Cleartext.
    #[default]
    None,
    /// TLS 1.2, or DTLS 1.2.
    Tls12,
    /// TLS 1.3, which QUIC has built in, or DTLS 1.3.
    Tls13,
}

impl SecurityLevel {
    /// The level in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "cleartext",
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        }
    }
}

impl fmt::Display for SecurityLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a program asks of transport security (RFC 9622 section 6.3), as far as it bears on
/// selection.
///
/// Security filters candidates and is never traded for anything else: RFC 9621 section 3.3 forbids
/// falling back to a weaker protocol than the program accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecurityNeed {
    /// No transport security is attempted (NewDisabledSecurityParameters).
    Disabled,
    /// Security if it can be had, without authentication; cleartext otherwise
    /// (NewOpportunisticSecurityParameters).
    Opportunistic,
    /// Security always; everything from `minimum` upwards is equivalent to this program, and may be
    /// raced.
    Required {
        /// The weakest acceptable level; [`SecurityLevel::None`] accepts any encryption there is.
        minimum: SecurityLevel,
    },
}

impl Default for SecurityNeed {
    /// TLS 1.2 or better: RFC 9622 section 6.3 wants connections to be secured in general.
    fn default() -> Self {
        Self::Required { minimum: SecurityLevel::Tls12 }
    }
}

impl fmt::Display for SecurityNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::Opportunistic => f.write_str("opportunistic"),
            Self::Required { minimum: SecurityLevel::None } => f.write_str("required"),
            Self::Required { minimum } => write!(f, "required, {minimum} or better"),
        }
    }
}
