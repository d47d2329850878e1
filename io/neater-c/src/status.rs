//! What functions answer, and the small enumerations that functions take.

use neater::{ErrorKind, Preference, Reason, Stack};
use neater_property::Role;

/// What a function answers: `NEATER_OK`, or a negative number. `neater_last_error` has the words.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_status {
    /// It was done.
    NEATER_OK = 0,
    /// An argument is NULL, not UTF-8 or makes no sense.
    NEATER_ERROR_INVALID_ARGUMENT = -1,
    /// The `size` of a struct is smaller than in the first version of this header, or something
    /// unknown to this library is asked for in what lies behind the part that it knows.
    NEATER_ERROR_SIZE = -2,
    /// A bug in the library was stopped at its border. The objects concerned should be given back.
    NEATER_ERROR_PANIC = -3,
    /// No room now. NEATER_EVENT_WRITABLE follows; nothing was taken.
    NEATER_ERROR_BLOCKED = -4,
    /// There is no property, service, profile or item of this name or number.
    NEATER_ERROR_NOT_FOUND = -5,
    /// The property does not take this value, cannot be set, or not here.
    NEATER_ERROR_INVALID_VALUE = -6,
    /// Words that are not understood.
    NEATER_ERROR_PARSE = -7,
    /// A certificate, key or security parameter cannot be used.
    NEATER_ERROR_SECURITY = -8,
    /// The object is in another state: not established yet, or over.
    NEATER_ERROR_STATE = -9,
    /// The connection is closed.
    NEATER_ERROR_CLOSED = -10,
    /// The message is larger than this transport, path or engine can ever take.
    NEATER_ERROR_MESSAGE_TOO_LARGE = -11,
    /// A final message was sent before, or the connection is closing.
    NEATER_ERROR_AFTER_FINAL = -12,
    /// The lifetime of the message (`msgLifetime`) has ended.
    NEATER_ERROR_EXPIRED = -13,
    /// The connection, or this library, cannot do it.
    NEATER_ERROR_UNSUPPORTED = -14,
    /// The operating system refuses: no descriptor or memory is left, or a file cannot be read.
    NEATER_ERROR_SYSTEM = -15,
    /// The function was called from within an event callback of the same context, where it cannot
    /// be.
    NEATER_ERROR_REENTRANT = -16,
    /// The context is gone.
    NEATER_ERROR_NO_CONTEXT = -17,
    /// Endpoints, properties or security make no sense together (RFC 9623 appendix B).
    NEATER_ERROR_INVALID_CONFIGURATION = -20,
    /// No protocol can do what was asked.
    NEATER_ERROR_NO_CANDIDATES = -21,
    /// No address was found.
    NEATER_ERROR_RESOLUTION_FAILED = -22,
    /// Every candidate failed.
    NEATER_ERROR_ESTABLISHMENT_FAILED = -23,
    /// The time given for establishment has ended.
    NEATER_ERROR_ESTABLISHMENT_TIMEOUT = -24,
    /// Policy forbids it.
    NEATER_ERROR_PROHIBITED = -25,
    /// The program closed the connection before it was established.
    NEATER_ERROR_CANCELLED = -26,
    /// No descriptors, memory or ports are left, or a limit is reached.
    NEATER_ERROR_EXHAUSTED = -27,
    /// The connection has failed: the network or the system.
    NEATER_ERROR_NETWORK = -30,
    /// The connection has failed: TLS.
    NEATER_ERROR_TLS = -31,
    /// The connection has failed: QUIC.
    NEATER_ERROR_QUIC = -32,
    /// The connection has failed: SCTP.
    NEATER_ERROR_SCTP = -33,
    /// The byte stream ended without TLS's close_notify: what was received may have been cut short.
    NEATER_ERROR_TRUNCATED = -34,
    /// The peer has abandoned the stream; `neater_error_application_code` has its code.
    NEATER_ERROR_STREAM_RESET = -35,
    /// The framer has given up.
    NEATER_ERROR_FRAMER = -36,
    /// Aborted from this side.
    NEATER_ERROR_ABORTED = -37,
    /// Nothing came for longer than the time allowed.
    NEATER_ERROR_TIMED_OUT = -38,
    /// The peer has reset or refused the connection.
    NEATER_ERROR_RESET = -39,
    /// A reason that this version of the header has no number for; the words have it.
    NEATER_ERROR_OTHER = -99,
}

impl neater_status {
    pub(crate) const fn of_reason(reason: Reason) -> Self {
        match reason {
            Reason::InvalidConfiguration => Self::NEATER_ERROR_INVALID_CONFIGURATION,
            Reason::NoCandidates => Self::NEATER_ERROR_NO_CANDIDATES,
            Reason::ResolutionFailed => Self::NEATER_ERROR_RESOLUTION_FAILED,
            Reason::EstablishmentFailed => Self::NEATER_ERROR_ESTABLISHMENT_FAILED,
            Reason::Timeout => Self::NEATER_ERROR_ESTABLISHMENT_TIMEOUT,
            Reason::PolicyProhibited => Self::NEATER_ERROR_PROHIBITED,
            Reason::Cancelled => Self::NEATER_ERROR_CANCELLED,
            Reason::Exhausted => Self::NEATER_ERROR_EXHAUSTED,
            _ => Self::NEATER_ERROR_OTHER,
        }
    }

    pub(crate) const fn of_network(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused => Self::NEATER_ERROR_RESET,
            ErrorKind::ConnectionAborted => Self::NEATER_ERROR_ABORTED,
            ErrorKind::TimedOut => Self::NEATER_ERROR_TIMED_OUT,
            ErrorKind::NotDriven => Self::NEATER_ERROR_NO_CONTEXT,
            _ => Self::NEATER_ERROR_NETWORK,
        }
    }

    /// What it means where nothing more is known.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NEATER_OK => "no error",
            Self::NEATER_ERROR_INVALID_ARGUMENT => "an argument is NULL or makes no sense",
            Self::NEATER_ERROR_SIZE => {
                "the size of a struct is not that of this library: set its `size` to sizeof of the struct"
            }
            Self::NEATER_ERROR_PANIC => "a bug in the library was stopped at its border",
            Self::NEATER_ERROR_BLOCKED => "no room now: wait for NEATER_EVENT_WRITABLE",
            Self::NEATER_ERROR_NOT_FOUND => "there is none of this name or number",
            Self::NEATER_ERROR_CLOSED => "the connection is closed",
            Self::NEATER_ERROR_STATE => "the object is in another state",
            Self::NEATER_ERROR_UNSUPPORTED => "this cannot be done here",
            Self::NEATER_ERROR_REENTRANT => {
                "called from within an event callback of the same context: return from it first"
            }
            Self::NEATER_ERROR_NO_CONTEXT => "the context is gone: free its objects, too",
            _ => "it has failed",
        }
    }
}

/// A preference (RFC 9622 section 4.2).
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_preference {
    /// Select only what lacks it.
    NEATER_PROHIBIT = -2,
    /// Prefer what lacks it.
    NEATER_AVOID = -1,
    /// It does not matter.
    NEATER_NO_PREFERENCE = 0,
    /// Prefer what has it.
    NEATER_PREFER = 1,
    /// Select only what has it.
    NEATER_REQUIRE = 2,
}

pub(crate) const fn preference(number: i32) -> Option<Preference> {
    Some(match number {
        -2 => Preference::Prohibit,
        -1 => Preference::Avoid,
        0 => Preference::NoPreference,
        1 => Preference::Prefer,
        2 => Preference::Require,
        _ => return None,
    })
}

pub(crate) const fn preference_number(preference: Preference) -> i32 {
    match preference {
        Preference::Prohibit => neater_preference::NEATER_PROHIBIT as i32,
        Preference::Avoid => neater_preference::NEATER_AVOID as i32,
        Preference::NoPreference => neater_preference::NEATER_NO_PREFERENCE as i32,
        Preference::Prefer => neater_preference::NEATER_PREFER as i32,
        Preference::Require => neater_preference::NEATER_REQUIRE as i32,
    }
}

/// A protocol stack. Programs need it for diagnosis and for endpoints that are of one protocol
/// alone (RFC 9622 section 6.1.3).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_stack {
    /// None is chosen yet.
    NEATER_STACK_NONE = 0,
    /// TCP in the clear.
    NEATER_STACK_TCP = 1,
    /// TLS over TCP.
    NEATER_STACK_TLS = 2,
    /// A stream of QUIC.
    NEATER_STACK_QUIC = 3,
    /// Datagrams of QUIC (RFC 9221).
    NEATER_STACK_QUIC_DATAGRAM = 4,
    /// UDP in the clear.
    NEATER_STACK_UDP = 5,
    /// A stream of SCTP over UDP (RFC 6951), in the clear.
    NEATER_STACK_SCTP = 6,
    /// A stream of SCTP straight over IP, in the clear.
    NEATER_STACK_SCTP_IP = 7,
    /// A stream of SCTP over DTLS (RFC 8261).
    NEATER_STACK_SCTP_DTLS = 8,
    /// DTLS over UDP.
    NEATER_STACK_DTLS = 9,
    /// One that this version of the header has no number for.
    NEATER_STACK_OTHER = 99,
}

/// The stacks beside their numbers of C.
const STACKS: [(Stack, neater_stack); 9] = [
    (Stack::Tcp, neater_stack::NEATER_STACK_TCP),
    (Stack::Tls, neater_stack::NEATER_STACK_TLS),
    (Stack::Quic, neater_stack::NEATER_STACK_QUIC),
    (Stack::QuicDatagram, neater_stack::NEATER_STACK_QUIC_DATAGRAM),
    (Stack::Udp, neater_stack::NEATER_STACK_UDP),
    (Stack::Sctp, neater_stack::NEATER_STACK_SCTP),
    (Stack::SctpIp, neater_stack::NEATER_STACK_SCTP_IP),
    (Stack::SctpDtls, neater_stack::NEATER_STACK_SCTP_DTLS),
    (Stack::Dtls, neater_stack::NEATER_STACK_DTLS),
];

pub(crate) fn stack_number(stack: Option<Stack>) -> u32 {
    let Some(stack) = stack else { return neater_stack::NEATER_STACK_NONE as u32 };
    STACKS.iter().find(|(s, _)| *s == stack).map_or(neater_stack::NEATER_STACK_OTHER, |(_, n)| *n) as u32
}

pub(crate) fn stack(number: u32) -> Option<Stack> {
    STACKS.iter().find(|(_, n)| *n as u32 == number).map(|(s, _)| *s)
}

/// How a preconnection is used.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_role {
    /// By `neater_preconnection_initiate`.
    NEATER_ROLE_INITIATE = 0,
    /// By `neater_preconnection_listen`.
    NEATER_ROLE_LISTEN = 1,
}

pub(crate) const fn role(number: u32) -> Option<Role> {
    match number {
        0 => Some(Role::Initiate),
        1 => Some(Role::Listen),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_has_a_number_and_every_number_its_stack() {
        for s in Stack::ALL {
            let n = stack_number(Some(s));
            assert_ne!(n, neater_stack::NEATER_STACK_OTHER as u32, "{s} has no number of its own");
            assert_eq!(stack(n), Some(s));
        }
        assert_eq!(stack(0), None);
    }

    #[test]
    fn preferences_are_the_same_there_and_back() {
        for p in Preference::ALL {
            assert_eq!(preference(preference_number(p)), Some(p));
        }
        assert_eq!(preference(3), None);
    }
}
