//! ABORT (RFC 9260 section 3.3.7).
//!
//! ```text
//! |   Type = 6    |  Reserved   |T|            Length             |
//! /                   zero or more Error Causes                   /
//! ```

use crate::cause::Causes;
use crate::error::WireError;
use crate::fields::Fields;
use crate::list::List;
use crate::writer::Writer;

/// The end of the association, at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Abort<'a> {
    /// The T bit: the packet's tag is the one that the receiver sent, because its sender knows no
    /// other (section 8.5.1).
    pub reflected: bool,
    /// Why.
    pub causes: Causes<'a>,
}

impl<'a> Abort<'a> {
    /// Its type.
    pub const KIND: u8 = 6;
    pub(super) const NAME: &'static str = "ABORT";

    pub(super) fn decode(flags: u8, fields: Fields<'a>) -> Result<Self, WireError> {
        Ok(Self { reflected: flags & 1 != 0, causes: List::rest(fields) })
    }

    pub(super) fn flags(&self) -> u8 {
        u8::from(self.reflected)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        self.causes.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;
    use crate::cause::{Cause, UserAbort};

    #[test]
    fn with_and_without_a_cause_and_the_t_bit() {
        assert_wire(Abort { reflected: true, causes: List::EMPTY }, &[6, 1, 0, 4]);
        let causes = List::new(&const { [Cause::UserAbort(UserAbort(b"bye"))] });
        assert_wire(Abort { reflected: false, causes }, b"\x06\0\0\x0b\0\x0c\0\x07bye\0");
    }
}
