//! The error causes of ERROR and ABORT: one file each, but for those of RFC 5061 that have one
//! shape.

mod asconf;
mod cookie_while_shutting_down;
mod invalid_mandatory_parameter;
mod invalid_stream;
mod missing_parameters;
mod no_user_data;
mod out_of_resource;
mod protocol_violation;
mod restart;
mod stale_cookie;
mod unrecognized_chunk;
mod unrecognized_parameters;
mod unresolvable_address;
mod unsupported_hmac;
mod user_abort;

pub use asconf::{DeleteLastAddress, DeleteSourceAddress, IllegalAsconfAck, NoAuthorization, ResourceShortage};
pub use cookie_while_shutting_down::CookieWhileShuttingDown;
pub use invalid_mandatory_parameter::InvalidMandatoryParameter;
pub use invalid_stream::InvalidStream;
pub use missing_parameters::MissingParameters;
pub use no_user_data::NoUserData;
pub use out_of_resource::OutOfResource;
pub use protocol_violation::ProtocolViolation;
pub use restart::Restart;
pub use stale_cookie::StaleCookie;
pub use unrecognized_chunk::UnrecognizedChunk;
pub use unrecognized_parameters::UnrecognizedParameters;
pub use unresolvable_address::UnresolvableAddress;
pub use unsupported_hmac::UnsupportedHmac;
pub use user_abort::UserAbort;

use crate::error::WireError;
use crate::list::{Item, List, RawItem};
use crate::writer::Writer;

/// A list of error causes.
pub type Causes<'a> = List<'a, Cause<'a>>;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?,)*) => {
        /// An error cause.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Cause<'a> {
            $($(#[$doc])* $name($name$(<$life>)?),)*
            /// A cause whose code is not known here.
            Unknown(RawItem<'a>),
        }

        impl<'a> Item<'a> for Cause<'a> {
            const WHAT: &'static str = "error cause";

            fn decode(raw: &RawItem<'a>) -> Result<Self, WireError> {
                match raw.kind {
                    $($name::CODE => $name::decode(raw.fields($name::NAME)).map(Self::$name),)*
                    _ => Ok(Self::Unknown(*raw)),
                }
            }

            fn write(&self, out: &mut Writer<'_>) {
                match self {
                    $(Self::$name(cause) => out.item($name::CODE, |out| cause.write(out)),)*
                    Self::Unknown(raw) => out.item(raw.kind, |out| out.bytes(raw.value)),
                }
            }
        }

        impl Cause<'_> {
            /// Its code.
            #[must_use]
            pub const fn code(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $name::CODE,)*
                    Self::Unknown(raw) => raw.kind,
                }
            }

            /// What the standards call it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Unknown(_) => "unknown cause",
                }
            }
        }

        $(
            impl<'a> From<$name$(<$life>)?> for Cause<'a> {
                fn from(cause: $name$(<$life>)?) -> Self {
                    Self::$name(cause)
                }
            }
        )*
    };
}

causes! {
    /// A DATA chunk named a stream that there is not (RFC 9260).
    InvalidStream,
    /// Parameters that must be there are not (RFC 9260).
    MissingParameters<'a>,
    /// The cookie came back too late (RFC 9260).
    StaleCookie,
    /// The sender can do no more (RFC 9260).
    OutOfResource,
    /// An address that cannot be used (RFC 9260).
    UnresolvableAddress<'a>,
    /// A chunk that the sender does not know (RFC 9260).
    UnrecognizedChunk<'a>,
    /// A field of INIT or INIT ACK that must not be as it is (RFC 9260).
    InvalidMandatoryParameter,
    /// Parameters that the sender does not know (RFC 9260).
    UnrecognizedParameters<'a>,
    /// A DATA chunk without data (RFC 9260).
    NoUserData,
    /// A cookie while the association ends (RFC 9260).
    CookieWhileShuttingDown,
    /// A restart that brings addresses along (RFC 9260).
    Restart<'a>,
    /// The application wanted it so (RFC 9260).
    UserAbort<'a>,
    /// Anything else that the peer must not do (RFC 9260).
    ProtocolViolation<'a>,
    /// The last address cannot be deleted (RFC 5061).
    DeleteLastAddress<'a>,
    /// No room for another address (RFC 5061).
    ResourceShortage<'a>,
    /// The address that a request comes from cannot be deleted (RFC 5061).
    DeleteSourceAddress<'a>,
    /// An ASCONF-ACK that answers nothing (RFC 5061).
    IllegalAsconfAck<'a>,
    /// The request is not granted (RFC 5061).
    NoAuthorization<'a>,
    /// A digest that the sender cannot check (RFC 4895).
    UnsupportedHmac,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// That `cause` is `wire` (without padding): written, and read. And that no part of it makes
    /// the reader panic.
    pub(crate) fn assert_wire(cause: impl Into<Cause<'static>>, wire: &[u8]) {
        let cause = cause.into();
        let mut buffer = [0xaa; 512];
        let mut out = Writer::new(&mut buffer);
        Item::write(&cause, &mut out);
        assert_eq!(out.written(), wire, "{} is written otherwise", cause.name());
        assert_eq!(decode(wire), Ok(cause), "{} is read otherwise", cause.name());
        assert_eq!(cause.code().to_be_bytes(), wire[..2]);
        for cut in 4..wire.len() {
            let mut bytes = wire[..cut].to_vec();
            bytes[2..4].copy_from_slice(&(cut as u16).to_be_bytes());
            match decode(&bytes) {
                Ok(cause) => drop(format!("{cause:?}")),
                Err(error) => assert!(error.offset <= cut, "{error}"),
            }
        }
    }

    /// What reading that cause gives.
    pub(crate) fn decode(wire: &[u8]) -> Result<Cause<'_>, WireError> {
        Causes::from_bytes(wire).iter().next().expect("not empty")
    }
}

#[cfg(test)]
mod tests {
    use super::testing::assert_wire;
    use super::*;

    #[test]
    fn an_unknown_cause_is_handed_over_whole_and_written_as_it_was() {
        const WIRE: &[u8] = &[0x7f, 0, 0, 5, 1];
        let raw = RawItem { kind: 0x7f00, value: &[1], bytes: WIRE, offset: 0 };
        assert_wire(Cause::Unknown(raw), WIRE);
        assert_eq!(Cause::Unknown(raw).name(), "unknown cause");
    }
}
