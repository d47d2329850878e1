//! Messages between two engines of ours on the streams of an association.
//!
//! Both send the adaptation indication [`ADAPTATION`] (RFC 5061 section 4.2.6) and agree on
//! RE-CONFIG and I-DATA: then a stream, in both directions, is a connection. The side that has
//! opened the association opens streams of even numbers, the other one of odd numbers; the first
//! message on a number that is not in use opens it, but for number 0, which is open from the
//! beginning. A direction ends when its stream is reset (RFC 6525), after everything on it was
//! delivered.
//!
//! The payload protocol identifier distinguishes what is no message of the program's, because a
//! message of SCTP has at least one byte (RFC 9260 section 6.2) and a reset carries nothing but the
//! end.

/// Announces that streams are connections: "neat" in ASCII.
pub(super) const ADAPTATION: u32 = 0x6e65_6174;

/// A message of the program's.
pub(super) const PPID_DATA: u32 = 0;
/// A message of the program's without bytes; what it carries means nothing.
pub(super) const PPID_EMPTY: u32 = 0x6e65_0001;
/// A [`Control`].
pub(super) const PPID_CONTROL: u32 = 0x6e65_0002;

/// A word about the stream that it comes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// This direction ends here, and not in order: with this code.
    Reset(u64),
    /// Nothing more is wanted of the other direction.
    Stop(u64),
    /// What the paths of the association are to be used for, which the side decides that has opened
    /// it: 0 one of them (`Handover`), 1 all, the fastest first (`Interactive`), 2 all
    /// (`Aggregate`).
    Paths(u64),
}

impl Control {
    pub(super) fn to_bytes(self) -> [u8; 9] {
        let (kind, code) = match self {
            Self::Reset(code) => (1, code),
            Self::Stop(code) => (2, code),
            Self::Paths(code) => (3, code),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&code.to_be_bytes());
        bytes
    }

    /// `None`: it is none that we know, and is passed over.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, code) = bytes.split_first()?;
        let code = u64::from_be_bytes(code.try_into().ok()?);
        match kind {
            1 => Some(Self::Reset(code)),
            2 => Some(Self::Stop(code)),
            3 => Some(Self::Paths(code)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_back_as_it_was_and_nonsense_is_passed_over() {
        for word in [Control::Reset(0), Control::Stop(u64::MAX), Control::Reset(0x0102), Control::Paths(2)] {
            assert_eq!(Control::parse(&word.to_bytes()), Some(word));
        }
        for bytes in [&[][..], &[1], &[4, 0, 0, 0, 0, 0, 0, 0, 0], &[1; 8], &[2; 10]] {
            assert_eq!(Control::parse(bytes), None, "{bytes:?}");
        }
    }
}
