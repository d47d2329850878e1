//! The causes of address reconfiguration, which all have one shape (RFC 5061 sections 4.3.1 to
//! 4.3.5).
//!
//! ```text
//! |   Cause Code=0x00A0..0x00A4   |      Cause Length=Variable    |
//! \                     TLV-Copied-From-ASCONF                    /
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

macro_rules! refusal {
    ($(#[$doc:meta])* $name:ident = $code:literal, $called:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a>(pub &'a [u8]);

        impl<'a> $name<'a> {
            /// Its code.
            pub const CODE: u16 = $code;
            pub(super) const NAME: &'static str = $called;

            #[allow(clippy::unnecessary_wraps, reason = "all causes are read through this signature")]
            pub(super) fn decode(fields: Fields<'a>) -> Result<Self, WireError> {
                Ok(Self(fields.rest()))
            }

            pub(super) fn write(&self, out: &mut Writer<'_>) {
                out.bytes(self.0);
            }
        }
    };
}

refusal! {
    /// A request to delete the last address; the parameter that it was.
    DeleteLastAddress = 0x00a0, "Request to Delete Last Remaining IP Address"
}
refusal! {
    /// A request for which there is no room; the parameter that it was.
    ResourceShortage = 0x00a1, "Operation Refused Due to Resource Shortage"
}
refusal! {
    /// A request to delete the address that it comes from; the parameter that it was.
    DeleteSourceAddress = 0x00a2, "Request to Delete Source IP Address"
}
refusal! {
    /// An ASCONF-ACK that answers nothing that was asked; nothing, as a rule.
    IllegalAsconfAck = 0x00a3, "Association Aborted Due to Illegal ASCONF-ACK"
}
refusal! {
    /// A request that is not granted; the parameter that it was.
    NoAuthorization = 0x00a4, "Request Refused - No Authorization"
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn each_carries_what_was_refused() {
        const TLV: &[u8] = &[0xc0, 2, 0, 16, 0, 0, 0, 1, 0, 5, 0, 8, 192, 0, 2, 1];
        let wire = |code: u8| [&[0, code, 0, 20][..], TLV].concat();
        assert_wire(DeleteLastAddress(TLV), &wire(0xa0));
        assert_wire(ResourceShortage(TLV), &wire(0xa1));
        assert_wire(DeleteSourceAddress(TLV), &wire(0xa2));
        assert_wire(IllegalAsconfAck(&[]), &[0, 0xa3, 0, 4]);
        assert_wire(NoAuthorization(TLV), &wire(0xa4));
    }
}
