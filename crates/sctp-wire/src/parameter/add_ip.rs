//! Add IP Address (RFC 5061 section 4.2.1).
//!
//! ```text
//! |        Type = 0xc001          |    Length = 16 or 28          |
//! |               ASCONF-Request Correlation ID                   |
//! |                       Address Parameter                       |
//! ```

use core::net::IpAddr;

use super::take_address;
use crate::error::WireError;
use crate::fields::Fields;
use crate::list::Item;
use crate::writer::Writer;

/// A request to add an address to the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddIp {
    /// The request's number, which the answer repeats.
    pub correlation: u32,
    /// The address; the unspecified one stands for where the packet came from.
    pub address: IpAddr,
}

impl AddIp {
    /// Its type.
    pub const KIND: u16 = 0xc001;
    pub(super) const NAME: &'static str = "Add IP Address";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let parameter = Self { correlation: fields.u32()?, address: take_address(&mut fields)? };
        fields.end().map(|()| parameter)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.correlation);
        Item::write(&self.address, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn an_address_of_either_family() {
        let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let wire = [0xc0, 1, 0, 16, 1, 2, 0x34, 0x76, 0, 5, 0, 8, 192, 0, 2, 1];
        assert_wire(AddIp { correlation: 0x0102_3476, address: v4 }, &wire);
        let wire = [&[0xc0, 1, 0, 28, 0, 0, 0, 1, 0, 6, 0, 20][..], &[0; 15], &[1]].concat();
        assert_wire(AddIp { correlation: 1, address: IpAddr::V6(Ipv6Addr::LOCALHOST) }, &wire);
    }

    #[test]
    fn anything_behind_the_address_is_an_error() {
        assert!(decode(&[0xc0, 1, 0, 20, 0, 0, 0, 1, 0, 5, 0, 8, 192, 0, 2, 1, 0, 0, 0, 0]).is_err());
    }
}
