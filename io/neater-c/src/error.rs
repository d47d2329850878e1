//! Errors: a status, words, and for establishment every candidate.

use crate::border::{Failure, c_text, give_back, guard_or, object};
use crate::race::neater_race;
use crate::status::neater_status;
use neater::{ConnectionError, EndpointError, EstablishmentError, NetError, QuicError, SctpClose, SendError};
use neater_property::PropertyError;
use std::ffi::{CString, c_char};

/// Why something has failed.
#[derive(Debug)]
pub struct neater_error {
    pub(crate) status: neater_status,
    pub(crate) text: CString,
    race: Option<Box<neater_race>>,
    system: i32,
    application: u64,
}

impl neater_error {
    pub(crate) fn new(status: neater_status, text: String) -> Self {
        Self { status, text: c_text(&text), race: None, system: 0, application: 0 }
    }

    fn of_network(e: &NetError) -> Self {
        Self { system: e.code.unwrap_or(0), ..Self::new(neater_status::of_network(e.kind), e.to_string()) }
    }

    pub(crate) fn of_send(e: &SendError) -> Self {
        let status = match e {
            SendError::Blocked { .. } => neater_status::NEATER_ERROR_BLOCKED,
            SendError::MessageTooLarge { .. } => neater_status::NEATER_ERROR_MESSAGE_TOO_LARGE,
            SendError::AfterFinal => neater_status::NEATER_ERROR_AFTER_FINAL,
            SendError::InvalidMessageProperties(_) => neater_status::NEATER_ERROR_INVALID_VALUE,
            SendError::Framer(_) => neater_status::NEATER_ERROR_FRAMER,
            SendError::Unfinished => neater_status::NEATER_ERROR_STATE,
            SendError::Expired => neater_status::NEATER_ERROR_EXPIRED,
            SendError::Connection(e) => return Self::of_connection(e),
            _ => neater_status::NEATER_ERROR_OTHER,
        };
        Self::new(status, e.to_string())
    }

    pub(crate) fn of_connection(e: &ConnectionError) -> Self {
        use neater_status as S;
        let (status, application) = match e {
            ConnectionError::Net(e) => return Self::of_network(e),
            ConnectionError::Tls(_) => (S::NEATER_ERROR_TLS, 0),
            ConnectionError::Quic(QuicError::Closed { code, .. }) => (S::NEATER_ERROR_QUIC, *code),
            ConnectionError::Quic(QuicError::TimedOut) => (S::NEATER_ERROR_TIMED_OUT, 0),
            ConnectionError::Quic(_) => (S::NEATER_ERROR_QUIC, 0),
            ConnectionError::Sctp(SctpClose::Aborted) => (S::NEATER_ERROR_ABORTED, 0),
            ConnectionError::Sctp(SctpClose::PeerAborted { .. }) => (S::NEATER_ERROR_RESET, 0),
            ConnectionError::Sctp(SctpClose::Unreachable) => (S::NEATER_ERROR_TIMED_OUT, 0),
            ConnectionError::Sctp(_) => (S::NEATER_ERROR_SCTP, 0),
            ConnectionError::Truncated => (S::NEATER_ERROR_TRUNCATED, 0),
            ConnectionError::StreamReset(code) => (S::NEATER_ERROR_STREAM_RESET, *code),
            ConnectionError::Framer(_) => (S::NEATER_ERROR_FRAMER, 0),
            ConnectionError::LocalAbort => (S::NEATER_ERROR_ABORTED, 0),
            ConnectionError::TimedOut => (S::NEATER_ERROR_TIMED_OUT, 0),
            ConnectionError::Closed => (S::NEATER_ERROR_CLOSED, 0),
            ConnectionError::NotReady => (S::NEATER_ERROR_STATE, 0),
            ConnectionError::Unsupported(_) => (S::NEATER_ERROR_UNSUPPORTED, 0),
            _ => (S::NEATER_ERROR_OTHER, 0),
        };
        Self { application, ..Self::new(status, e.to_string()) }
    }

    pub(crate) fn of_establishment(e: &EstablishmentError) -> Self {
        let error = Self::new(neater_status::of_reason(e.reason), e.to_string());
        Self { race: Some(Box::new(neater_race::of_error(e))), ..error }
    }
}

impl From<neater_error> for Failure {
    fn from(e: neater_error) -> Self {
        Self::Full(Box::new(e))
    }
}

impl From<EstablishmentError> for Failure {
    fn from(e: EstablishmentError) -> Self {
        neater_error::of_establishment(&e).into()
    }
}

impl From<ConnectionError> for Failure {
    fn from(e: ConnectionError) -> Self {
        neater_error::of_connection(&e).into()
    }
}

impl From<SendError> for Failure {
    fn from(e: SendError) -> Self {
        match e {
            // So common that it costs nothing.
            SendError::Blocked { .. } => neater_status::NEATER_ERROR_BLOCKED.into(),
            e => neater_error::of_send(&e).into(),
        }
    }
}

impl From<EndpointError> for Failure {
    fn from(e: EndpointError) -> Self {
        let status = match e {
            EndpointError::NotEstablished => neater_status::NEATER_ERROR_STATE,
            EndpointError::OnePath | EndpointError::Unsupported(_) => neater_status::NEATER_ERROR_UNSUPPORTED,
            EndpointError::NoInterface | EndpointError::Unused => neater_status::NEATER_ERROR_NOT_FOUND,
            EndpointError::Prohibited => neater_status::NEATER_ERROR_PROHIBITED,
            EndpointError::TooMany => neater_status::NEATER_ERROR_EXHAUSTED,
            _ => neater_status::NEATER_ERROR_INVALID_ARGUMENT,
        };
        Self::new(status, e.to_string())
    }
}

impl From<PropertyError> for Failure {
    fn from(e: PropertyError) -> Self {
        let status = match e {
            PropertyError::Unknown { .. } => neater_status::NEATER_ERROR_NOT_FOUND,
            _ => neater_status::NEATER_ERROR_INVALID_VALUE,
        };
        Self::new(status, e.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        let error = neater_error::new(neater_status::NEATER_ERROR_SYSTEM, e.to_string());
        neater_error { system: e.raw_os_error().unwrap_or(0), ..error }.into()
    }
}

/// The status of an error. NEATER_OK for NULL.
///
/// Thread: any, but not while the error is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_status(error: *const neater_error) -> neater_status {
    // SAFETY: the caller's promise.
    guard_or(neater_status::NEATER_OK, || Ok(unsafe { object(error, "error") }?.status))
}

/// What was wrong and what to do, in words that end with a zero byte: of establishment every
/// candidate on a line of its own. Never NULL.
///
/// Lifetime: as long as the error. Not to be freed. Thread: any, but not while the error is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_text(error: *const neater_error) -> *const c_char {
    // SAFETY: the caller's promise.
    guard_or(c"no error".as_ptr(), || Ok(unsafe { object(error, "error") }?.text.as_ptr()))
}

/// The number of the operating system's error (errno) behind this one; 0 if there is none.
///
/// Thread: any, but not while the error is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_system_code(error: *const neater_error) -> i32 {
    // SAFETY: the caller's promise.
    guard_or(0, || Ok(unsafe { object(error, "error") }?.system))
}

/// The code that the peer's application gave when it reset a stream or ended a session (QUIC,
/// SCTP); 0 if it gave none.
///
/// Thread: any, but not while the error is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_application_code(error: *const neater_error) -> u64 {
    // SAFETY: the caller's promise.
    guard_or(0, || Ok(unsafe { object(error, "error") }?.application))
}

/// How the race went whose end this error is: every candidate and its reason, as lists. NULL if it
/// is no error of establishment.
///
/// Lifetime: as long as the error. Not to be freed. Thread: any, but not while the error is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_race(error: *const neater_error) -> *const neater_race {
    guard_or(core::ptr::null(), || {
        // SAFETY: the caller's promise.
        let error = unsafe { object(error, "error") }?;
        Ok(error.race.as_deref().map_or(core::ptr::null(), core::ptr::from_ref))
    })
}

/// Gives an error of an event back. NULL is allowed. What `neater_last_error` returns must not be
/// given here.
///
/// Ownership: the error is gone afterwards, and so is what was taken from it. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_error_free(error: *mut neater_error) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(error) };
}

/// A few words for a status, without what is known of a particular error. Never NULL.
///
/// Lifetime: for ever. Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn neater_status_text(status: i32) -> *const c_char {
    macro_rules! texts {
        ($($name:ident => $text:literal),* $(,)?) => {
            match status { $( s if s == neater_status::$name as i32 => concat!($text, "\0"), )* _ => "unknown status\0" }
        };
    }
    let text: &'static str = texts!(
        NEATER_OK => "no error",
        NEATER_ERROR_INVALID_ARGUMENT => "invalid argument",
        NEATER_ERROR_SIZE => "wrong size of a struct",
        NEATER_ERROR_PANIC => "a bug in the library",
        NEATER_ERROR_BLOCKED => "no room now",
        NEATER_ERROR_NOT_FOUND => "not found",
        NEATER_ERROR_INVALID_VALUE => "invalid value",
        NEATER_ERROR_PARSE => "not understood",
        NEATER_ERROR_SECURITY => "unusable security parameter",
        NEATER_ERROR_STATE => "wrong state",
        NEATER_ERROR_CLOSED => "closed",
        NEATER_ERROR_MESSAGE_TOO_LARGE => "message too large",
        NEATER_ERROR_AFTER_FINAL => "after the final message",
        NEATER_ERROR_EXPIRED => "expired",
        NEATER_ERROR_UNSUPPORTED => "unsupported",
        NEATER_ERROR_SYSTEM => "refused by the system",
        NEATER_ERROR_REENTRANT => "called from within a callback",
        NEATER_ERROR_NO_CONTEXT => "the context is gone",
        NEATER_ERROR_INVALID_CONFIGURATION => "invalid configuration",
        NEATER_ERROR_NO_CANDIDATES => "no candidates",
        NEATER_ERROR_RESOLUTION_FAILED => "resolution failed",
        NEATER_ERROR_ESTABLISHMENT_FAILED => "establishment failed",
        NEATER_ERROR_ESTABLISHMENT_TIMEOUT => "establishment timed out",
        NEATER_ERROR_PROHIBITED => "prohibited by policy",
        NEATER_ERROR_CANCELLED => "cancelled",
        NEATER_ERROR_EXHAUSTED => "resources exhausted",
        NEATER_ERROR_NETWORK => "network error",
        NEATER_ERROR_TLS => "TLS error",
        NEATER_ERROR_QUIC => "QUIC error",
        NEATER_ERROR_SCTP => "SCTP error",
        NEATER_ERROR_TRUNCATED => "truncated",
        NEATER_ERROR_STREAM_RESET => "stream reset by the peer",
        NEATER_ERROR_FRAMER => "framer error",
        NEATER_ERROR_ABORTED => "aborted locally",
        NEATER_ERROR_TIMED_OUT => "timed out",
        NEATER_ERROR_RESET => "reset by the peer",
        NEATER_ERROR_OTHER => "other error",
    );
    text.as_ptr().cast()
}
