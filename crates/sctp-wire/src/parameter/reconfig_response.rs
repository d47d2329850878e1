//! Re-configuration Response (RFC 6525 section 4.4).
//!
//! ```text
//! |     Parameter Type = 16       |      Parameter Length         |
//! |         Re-configuration Response Sequence Number             |
//! |                            Result                             |
//! |                   Sender's Next TSN (optional)                |
//! |                  Receiver's Next TSN (optional)               |
//! ```

use crate::error::WireError;
use crate::fields::Fields;
use crate::number::{ReconfigSeq, Tsn};
use crate::writer::Writer;

/// How a request ended (RFC 6525 section 4.4, table 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconfigResult(pub u32);

impl ReconfigResult {
    /// Success: nothing to do.
    pub const NOTHING_TO_DO: Self = Self(0);
    /// Success: performed.
    pub const PERFORMED: Self = Self(1);
    /// Denied.
    pub const DENIED: Self = Self(2);
    /// Error: wrong SSN.
    pub const WRONG_SSN: Self = Self(3);
    /// Error: a request is already in progress.
    pub const ALREADY_IN_PROGRESS: Self = Self(4);
    /// Error: bad sequence number.
    pub const BAD_SEQUENCE_NUMBER: Self = Self(5);
    /// Not yet: the request is to be sent again.
    pub const IN_PROGRESS: Self = Self(6);
}

/// Where both directions go on after an SSN/TSN reset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextTsns {
    /// The next TSN of the sender of the response.
    pub sender: Tsn,
    /// The next TSN that the receiver of the response must use.
    pub receiver: Tsn,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReconfigResponse {
    /// The request's number.
    pub response: ReconfigSeq,
    /// How it ended.
    pub result: ReconfigResult,
    /// In answers to SSN/TSN resets.
    pub next_tsns: Option<NextTsns>,
}

impl ReconfigResponse {
    /// Its type.
    pub const KIND: u16 = 16;
    pub(super) const NAME: &'static str = "Re-configuration Response";

    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, WireError> {
        let (response, result) = (ReconfigSeq(fields.u32()?), ReconfigResult(fields.u32()?));
        let next_tsns = match fields.left() {
            0 => None,
            _ => Some(NextTsns { sender: Tsn(fields.u32()?), receiver: Tsn(fields.u32()?) }),
        };
        fields.end().map(|()| Self { response, result, next_tsns })
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.response.0);
        out.u32(self.result.0);
        if let Some(next) = self.next_tsns {
            out.u32(next.sender.0);
            out.u32(next.receiver.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn with_both_tsns_or_none() {
        let short = ReconfigResponse { response: ReconfigSeq(1), result: ReconfigResult::IN_PROGRESS, next_tsns: None };
        assert_wire(short, &[0, 16, 0, 12, 0, 0, 0, 1, 0, 0, 0, 6]);
        let next_tsns = Some(NextTsns { sender: Tsn(2), receiver: Tsn(3) });
        let long = ReconfigResponse { result: ReconfigResult::PERFORMED, next_tsns, ..short };
        assert_wire(long, &[0, 16, 0, 20, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert!(decode(&[0, 16, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2]).is_err());
    }
}
