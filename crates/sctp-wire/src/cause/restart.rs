//! Restart of an Association with New Addresses (RFC 9260 section 3.3.10.11).
//!
//! ```text
//! |        Cause Code = 11        |         Cause Length          |
//! /                       New Address TLVs                        /
//! ```

use core::net::IpAddr;

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::writer::Writer;

/// An INIT for an association that exists named addresses that do not belong to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart<'a> {
    /// Those addresses.
    pub addresses: List<'a, IpAddr>,
}

impl<'a> Restart<'a> {
    /// Its code.
    pub const CODE: u16 = 11;
    pub(super) const NAME: &'static str = "Restart of an Association with New Addresses";

    #[allow(clippy::unnecessary_wraps, reason = "all causes are read through this signature")]
    pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { addresses: List::rest(fields) })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.addresses.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn it_lists_addresses() {
        let addresses =
            List::new(&const { [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))] });
        let wire = [0, 11, 0, 20, 0, 5, 0, 8, 192, 0, 2, 1, 0, 5, 0, 8, 192, 0, 2, 2];
        assert_wire(Restart { addresses }, &wire);
    }
}
