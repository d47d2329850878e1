//! IPv4 Address and IPv6 Address (RFC 9260 sections 3.3.2.1.1 and 3.3.2.1.2).
//!
//! ```text
//! |           Type = 5            |          Length = 8           |
//! |                         IPv4 Address                          |
//!
//! |           Type = 6            |          Length = 20          |
//! |                         IPv6 Address                          |
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::list::{Item, RawItem};
use crate::writer::Writer;

/// An address of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Address(pub Ipv4Addr);

/// An address of the sender. An IPv4-mapped one is read as it is; RFC 9260 forbids to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Address(pub Ipv6Addr);

impl Ipv4Address {
    /// Its type.
    pub const KIND: u16 = 5;
    pub(super) const NAME: &'static str = "IPv4 Address";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let address = Self(fields.array::<4>()?.into());
        fields.end().map(|()| address)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.bytes(&self.0.octets());
    }
}

impl Ipv6Address {
    /// Its type.
    pub const KIND: u16 = 6;
    pub(super) const NAME: &'static str = "IPv6 Address";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let address = Self(fields.array::<16>()?.into());
        fields.end().map(|()| address)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.bytes(&self.0.octets());
    }
}

/// Where a parameter of either type is expected and no other, as in ASCONF.
impl<'a> Item<'a> for IpAddr {
    const WHAT: &'static str = "address parameter";

    fn decode(raw: &RawItem<'a>) -> Result<Self, WireError> {
        match raw.kind {
            Ipv4Address::KIND => Ipv4Address::decode(raw.fields(Ipv4Address::NAME)).map(|a| Self::V4(a.0)),
            Ipv6Address::KIND => Ipv6Address::decode(raw.fields(Ipv6Address::NAME)).map(|a| Self::V6(a.0)),
            kind => {
                let problem = Problem::Value { field: "its type", value: u32::from(kind) };
                Err(WireError::new(raw.offset, <Self as Item<'_>>::WHAT, problem))
            }
        }
    }

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Self::V4(address) => out.item(Ipv4Address::KIND, |out| out.bytes(&address.octets())),
            Self::V6(address) => out.item(Ipv6Address::KIND, |out| out.bytes(&address.octets())),
        }
    }
}

/// The address parameter that comes next in `fields`.
pub(crate) fn take_address(fields: &mut Fields<'_>) -> Result<IpAddr, WireError> {
    let offset = fields.offset();
    let mut head = *fields;
    let (_, length) = (head.u16()?, head.u16()?);
    let bytes = fields.take(usize::from(length))?;
    let Some(value) = bytes.get(4..) else {
        let problem = Problem::Value { field: "the length", value: u32::from(length) };
        return Err(WireError::new(offset + 2, <IpAddr as Item<'_>>::WHAT, problem));
    };
    let kind = u16::from_be_bytes([bytes[0], bytes[1]]);
    Item::decode(&RawItem { kind, value, bytes, offset })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;
    use crate::List;

    #[test]
    fn both_families() {
        assert_wire(Ipv4Address(Ipv4Addr::new(192, 0, 2, 1)), &[0, 5, 0, 8, 192, 0, 2, 1]);
        let wire = [&[0, 6, 0, 20][..], &[0; 15], &[1]].concat();
        assert_wire(Ipv6Address(Ipv6Addr::LOCALHOST), &wire);
    }

    #[test]
    fn an_address_of_another_length_is_an_error() {
        assert!(decode(&[0, 5, 0, 7, 1, 2, 3]).is_err());
        assert!(decode(&[0, 5, 0, 9, 1, 2, 3, 4, 5]).is_err());
    }

    #[test]
    fn a_list_of_addresses_takes_nothing_else() {
        let list = List::<IpAddr>::from_bytes(&[0, 5, 0, 8, 192, 0, 2, 1, 0, 11, 0, 5, b'a', 0, 0, 0]);
        let items: Vec<_> = list.iter().collect();
        assert_eq!(items[0], Ok(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))));
        assert!(items[1].unwrap_err().to_string().contains("its type must not be 11"));
    }

    #[test]
    fn a_length_that_is_too_short_for_itself_is_an_error() {
        for length in 0..4 {
            assert!(take_address(&mut Fields::new(&[0, 5, 0, length, 1, 2, 3, 4], 0, "TEST")).is_err());
        }
    }
}
