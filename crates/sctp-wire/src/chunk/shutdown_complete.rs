//! SHUTDOWN COMPLETE (RFC 9260 section 3.3.13).
//!
//! ```text
//! |   Type = 14   |  Reserved   |T|          Length = 4           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::writer::Writer;

/// The association is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownComplete {
    /// The T bit: the packet's tag is the one that the receiver sent, because its sender knows no
    /// other (section 8.5.1).
    pub reflected: bool,
}

impl ShutdownComplete {
    /// Its type.
    pub const KIND: u8 = 14;
    pub(super) const NAME: &'static str = "SHUTDOWN COMPLETE";

    pub(super) fn decode(flags: u8, fields: Fields<'_>) -> Result<Self, WireError> {
        fields.end().map(|()| Self { reflected: flags & 1 != 0 })
    }

    pub(super) fn flags(&self) -> u8 {
        u8::from(self.reflected)
    }

    pub(super) const fn write(&self, _out: &mut Writer<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::assert_wire;
    use super::*;

    #[test]
    fn with_and_without_the_t_bit() {
        assert_wire(ShutdownComplete { reflected: false }, &[14, 0, 0, 4]);
        assert_wire(ShutdownComplete { reflected: true }, &[14, 1, 0, 4]);
    }
}
