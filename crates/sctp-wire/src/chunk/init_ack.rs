//! INIT ACK (RFC 9260 section 3.3.3): as INIT, with a State Cookie among its parameters.
//!
//! ```text
//! |   Type = 2    |  Chunk Flags  |         Chunk Length          |
//! /                           as in INIT                          /
//! ```

use super::Init;
use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The answer to INIT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InitAck<'a>(pub Init<'a>);

impl<'a> InitAck<'a> {
    /// Its type.
    pub const KIND: u8 = 2;
    pub(super) const NAME: &'static str = "INIT ACK";

    pub(super) fn decode(flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Init::decode(flags, fields).map(Self)
    }

    pub(super) const fn flags(&self) -> u8 {
        0
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::init::tests::INIT;
    use super::super::testing::assert_wire;
    use super::*;
    use crate::list::List;
    use crate::parameter::{Parameter, StateCookie};

    #[test]
    fn with_a_cookie_whose_padding_the_chunk_does_not_count() {
        let parameters = List::new(&const { [Parameter::StateCookie(StateCookie(b"cooky"))] });
        let mut wire = vec![2, 0, 0, 29, 1, 2, 3, 4, 0, 1, 0, 0, 0, 10, 8, 0, 5, 6, 7, 8, 0, 7, 0, 9];
        wire.extend_from_slice(b"cooky\0\0\0");
        assert_wire(InitAck(Init { parameters, ..INIT }), &wire);
    }
}
