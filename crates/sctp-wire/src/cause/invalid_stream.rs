//! Invalid Stream Identifier (RFC 9260 section 3.3.10.1).
//!
//! ```text
//! |        Cause Code = 1         |       Cause Length = 8        |
//! |       Stream Identifier       |          (Reserved)           |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::StreamId;
use crate::writer::Writer;

/// A DATA chunk named a stream that there is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidStream {
    /// The stream.
    pub stream: StreamId,
}

impl InvalidStream {
    /// Its code.
    pub const CODE: u16 = 1;
    pub(super) const NAME: &'static str = "Invalid Stream Identifier";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let stream = StreamId(fields.u16()?);
        fields.u16()?;
        fields.end().map(|()| Self { stream })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.stream.0);
        out.u16(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn a_stream_and_something_reserved() {
        assert_wire(InvalidStream { stream: StreamId(0x0102) }, &[0, 1, 0, 8, 1, 2, 0, 0]);
        assert_eq!(decode(&[0, 1, 0, 8, 1, 2, 9, 9]), Ok(InvalidStream { stream: StreamId(0x0102) }.into()));
    }
}
