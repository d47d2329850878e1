//! The parameters: one file each.

mod adaptation;
mod add_incoming;
mod add_ip;
mod add_outgoing;
mod address;
mod chunk_list;
mod cookie_preservative;
mod delete_ip;
mod ecn_capable;
mod error_indication;
mod forward_tsn_supported;
mod hmac_algo;
mod host_name;
mod incoming_reset;
mod outgoing_reset;
mod padding;
mod random;
mod reconfig_response;
mod set_primary;
mod ssn_tsn_reset;
mod state_cookie;
mod success;
mod supported_address_types;
mod supported_extensions;
mod unrecognized;
mod zero_checksum;

pub use adaptation::Adaptation;
pub use add_incoming::AddIncoming;
pub use add_ip::AddIp;
pub use add_outgoing::AddOutgoing;
pub(crate) use address::take_address;
pub use address::{Ipv4Address, Ipv6Address};
pub use chunk_list::ChunkList;
pub use cookie_preservative::CookiePreservative;
pub use delete_ip::DeleteIp;
pub use ecn_capable::EcnCapable;
pub use error_indication::ErrorIndication;
pub use forward_tsn_supported::ForwardTsnSupported;
pub use hmac_algo::HmacAlgo;
pub use host_name::HostName;
pub use incoming_reset::IncomingReset;
pub use outgoing_reset::OutgoingReset;
pub use padding::Padding;
pub use random::Random;
pub use reconfig_response::{NextTsns, ReconfigResponse, ReconfigResult};
pub use set_primary::SetPrimary;
pub use ssn_tsn_reset::SsnTsnReset;
pub use state_cookie::StateCookie;
pub use success::Success;
pub use supported_address_types::SupportedAddressTypes;
pub use supported_extensions::SupportedExtensions;
pub use unrecognized::Unrecognized;
pub use zero_checksum::{ErrorDetection, ZeroChecksumAcceptable};

use core::net::IpAddr;

use crate::error::WireError;
use crate::list::{Item, List, RawItem};
use crate::writer::Writer;

/// A list of parameters.
pub type Parameters<'a> = List<'a, Parameter<'a>>;

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?,)*) => {
        /// A parameter.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Parameter<'a> {
            $($(#[$doc])* $name($name$(<$life>)?),)*
            /// A parameter of a type that is not known here: [`RawItem::unknown_action`] returns
            /// what to do with it.
            Unknown(RawItem<'a>),
        }

        impl<'a> Item<'a> for Parameter<'a> {
            const WHAT: &'static str = "parameter";

            fn decode(raw: &RawItem<'a>) -> Result<Self, WireError> {
                match raw.kind {
                    $($name::KIND => $name::decode(raw.fields($name::NAME)).map(Self::$name),)*
                    _ => Ok(Self::Unknown(*raw)),
                }
            }

            fn write(&self, out: &mut Writer<'_>) {
                match self {
                    $(Self::$name(parameter) => out.item($name::KIND, |out| parameter.write(out)),)*
                    Self::Unknown(raw) => out.item(raw.kind, |out| out.bytes(raw.value)),
                }
            }
        }

        impl Parameter<'_> {
            /// Its type.
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $name::KIND,)*
                    Self::Unknown(raw) => raw.kind,
                }
            }

            /// What the standards call it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Unknown(_) => "unknown parameter",
                }
            }
        }

        $(
            impl<'a> From<$name$(<$life>)?> for Parameter<'a> {
                fn from(parameter: $name$(<$life>)?) -> Self {
                    Self::$name(parameter)
                }
            }
        )*
    };
}

parameters! {
    /// An address of the sender (RFC 9260).
    Ipv4Address,
    /// An address of the sender (RFC 9260).
    Ipv6Address,
    /// What the responder wants back (RFC 9260).
    StateCookie<'a>,
    /// A parameter that the responder did not know (RFC 9260).
    Unrecognized<'a>,
    /// A wish for a longer life of the cookie (RFC 9260).
    CookiePreservative,
    /// A host name, which is not to be used any more (RFC 9260).
    HostName<'a>,
    /// The kinds of addresses that the sender can use (RFC 9260).
    SupportedAddressTypes<'a>,
    /// A request to reset outgoing streams (RFC 6525).
    OutgoingReset<'a>,
    /// A request that the peer reset its outgoing streams (RFC 6525).
    IncomingReset<'a>,
    /// A request to reset all numbers (RFC 6525).
    SsnTsnReset,
    /// The answer to a request of RFC 6525.
    ReconfigResponse,
    /// A request for more outgoing streams (RFC 6525).
    AddOutgoing,
    /// A request that the peer have more outgoing streams (RFC 6525).
    AddIncoming,
    /// The sender understands congestion marks (RFC 4960 appendix A).
    EcnCapable,
    /// The sender accepts packets without checksum (RFC 9653).
    ZeroChecksumAcceptable,
    /// The sender's part of the key (RFC 4895).
    Random<'a>,
    /// The chunks that the sender wants authenticated (RFC 4895).
    ChunkList<'a>,
    /// The digests that the sender can check (RFC 4895).
    HmacAlgo<'a>,
    /// Nothing, of any length (RFC 4820).
    Padding,
    /// The chunks of extensions that the sender knows (RFC 5061).
    SupportedExtensions<'a>,
    /// The sender knows FORWARD TSN (RFC 3758).
    ForwardTsnSupported,
    /// A request to add an address (RFC 5061).
    AddIp,
    /// A request to delete an address (RFC 5061).
    DeleteIp,
    /// Why a request was refused (RFC 5061).
    ErrorIndication<'a>,
    /// A request to send to this address (RFC 5061).
    SetPrimary,
    /// A request was granted (RFC 5061).
    Success,
    /// What the application runs over SCTP (RFC 5061).
    Adaptation,
}

impl Parameter<'_> {
    /// The address that it is, if it is one.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Ipv4Address(Ipv4Address(address)) => Some(IpAddr::V4(*address)),
            Self::Ipv6Address(Ipv6Address(address)) => Some(IpAddr::V6(*address)),
            _ => None,
        }
    }
}

impl From<IpAddr> for Parameter<'_> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Ipv4Address(address).into(),
            IpAddr::V6(address) => Ipv6Address(address).into(),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// That `parameter` is `wire` (without padding): written, and read. And that no part of it
    /// makes the reader panic.
    pub(crate) fn assert_wire(parameter: impl Into<Parameter<'static>>, wire: &[u8]) {
        let parameter = parameter.into();
        let mut buffer = [0xaa; 512];
        let mut out = Writer::new(&mut buffer);
        Item::write(&parameter, &mut out);
        assert_eq!(out.written(), wire, "{} is written otherwise", parameter.name());
        assert_eq!(decode(wire), Ok(parameter), "{} is read otherwise", parameter.name());
        assert_eq!(parameter.kind().to_be_bytes(), wire[..2]);
        for cut in 4..wire.len() {
            let mut bytes = wire[..cut].to_vec();
            bytes[2..4].copy_from_slice(&(cut as u16).to_be_bytes());
            match decode(&bytes) {
                Ok(parameter) => drop(format!("{parameter:?}")),
                Err(error) => assert!(error.offset <= cut, "{error}"),
            }
        }
    }

    /// What reading that parameter gives.
    pub(crate) fn decode(wire: &[u8]) -> Result<Parameter<'_>, WireError> {
        Parameters::from_bytes(wire).iter().next().expect("not empty")
    }
}

#[cfg(test)]
mod tests {
    use super::testing::assert_wire;
    use super::*;
    use crate::UnknownAction;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn an_unknown_parameter_is_handed_over_whole_and_written_as_it_was() {
        const WIRE: &[u8] = &[0x7f, 0, 0, 6, 1, 2];
        let raw = RawItem { kind: 0x7f00, value: &[1, 2], bytes: WIRE, offset: 0 };
        assert_wire(Parameter::Unknown(raw), WIRE);
        assert_eq!(raw.unknown_action(), UnknownAction::StopAndReport);
        assert_eq!(Parameter::Unknown(raw).name(), "unknown parameter");
        assert_eq!(Parameter::Unknown(raw).address(), None);
    }

    #[test]
    fn addresses_are_parameters() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert_eq!(Parameter::from(address).address(), Some(address));
        }
    }
}
