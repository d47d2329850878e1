//! ASCONF (RFC 5061 section 4.1.1).
//!
//! ```text
//! | Type = 0xC1   |  Chunk Flags  |      Chunk Length             |
//! |                      Sequence Number                          |
//! |                    Address Parameter                          |
//! |                     ASCONF Parameter #1                       |
//! /                             ....                              /
//! ```

use core::net::IpAddr;

use crate::error::WireError;
use crate::fields::Fields;
use crate::list::{Item, List};
use crate::number::AsconfSerial;
use crate::parameter::{self, Parameters};
use crate::writer::Writer;

/// A request to change addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asconf<'a> {
    /// Its number.
    pub serial: AsconfSerial,
    /// An address that belongs to the association; the unspecified one names none.
    pub address: IpAddr,
    /// Add IP, Delete IP and Set Primary parameters.
    pub requests: Parameters<'a>,
}

impl<'a> Asconf<'a> {
    /// Its type.
    pub const KIND: u8 = 0xc1;
    pub(super) const NAME: &'static str = "ASCONF";

    pub(super) fn decode(_flags: u8, mut fields: Fields<'a>) -> Result<Self, WireError> {
        let serial = AsconfSerial(fields.u32()?);
        let address = parameter::take_address(&mut fields)?;
        Ok(Self { serial, address, requests: List::rest(fields) })
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.serial.0);
        Item::write(&self.address, out);
        self.requests.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;
    use crate::parameter::{AddIp, DeleteIp, Parameter};
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn an_address_and_requests() {
        const NEW: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let requests = List::new(
            &const {
                [
                    Parameter::AddIp(AddIp { correlation: 0x0102_3474, address: NEW }),
                    Parameter::DeleteIp(DeleteIp { correlation: 2, address: IpAddr::V6(Ipv6Addr::LOCALHOST) }),
                ]
            },
        );
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let wire = [
            &[0xc1, 0, 0, 60, 0, 0, 0, 5, 0, 5, 0, 8, 10, 0, 0, 1][..],
            &[0xc0, 1, 0, 16, 1, 2, 0x34, 0x74, 0, 5, 0, 8, 192, 0, 2, 1],
            &[0xc0, 2, 0, 28, 0, 0, 0, 2, 0, 6, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ]
        .concat();
        assert_wire(Asconf { serial: AsconfSerial(5), address, requests }, &wire);
    }

    #[test]
    fn a_host_name_is_no_address() {
        let error = decode(b"\xc1\0\0\x10\0\0\0\x05\0\x0b\0\x08abc\0").unwrap_err();
        assert!(error.to_string().contains("type"), "{error}");
    }
}
