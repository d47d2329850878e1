//! What can be wrong with a packet, and with the room for one.

use core::fmt;

/// A packet, chunk, parameter or cause that is not as its format requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    /// Where, in bytes from the beginning of what was parsed (the packet, as a rule).
    pub offset: usize,
    /// In what: the name of the chunk, parameter, cause or header.
    pub what: &'static str,
    /// How it is wrong.
    pub problem: Problem,
}

/// How something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It ends before it is complete.
    Short {
        /// How many bytes the next field, or all that was announced, takes.
        needed: usize,
        /// How many there are.
        left: usize,
    },
    /// Bytes follow where it should have ended.
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A field has a value that it must not have.
    Value {
        /// Which field.
        field: &'static str,
        /// The value.
        value: u32,
    },
    /// The checksum is that of other bytes.
    Checksum {
        /// What the packet carries.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
}

impl WireError {
    pub(crate) const fn new(offset: usize, what: &'static str, problem: Problem) -> Self {
        Self { offset, what, problem }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, what, problem } = self;
        write!(f, "{what} at byte {offset}: ")?;
        match problem {
            Problem::Short { needed, left } => write!(f, "{needed} bytes are needed, {left} are there"),
            Problem::Trailing { extra } => write!(f, "{extra} bytes too many"),
            Problem::Value { field, value } => write!(f, "{field} must not be {value}"),
            Problem::Checksum { found, computed } => {
                write!(f, "the checksum is {found:#010x}, but the bytes give {computed:#010x}")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// What was to be written does not fit into the packet; nothing of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room in the packet")
    }
}

impl core::error::Error for Full {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_what_and_how() {
        let short = WireError::new(12, "SACK", Problem::Short { needed: 4, left: 1 });
        assert_eq!(short.to_string(), "SACK at byte 12: 4 bytes are needed, 1 are there");
        let value = WireError::new(0, "common header", Problem::Value { field: "the source port", value: 0 });
        assert_eq!(value.to_string(), "common header at byte 0: the source port must not be 0");
        let trailing = WireError::new(20, "COOKIE ACK", Problem::Trailing { extra: 3 });
        assert_eq!(trailing.to_string(), "COOKIE ACK at byte 20: 3 bytes too many");
        let sum = WireError::new(8, "packet", Problem::Checksum { found: 1, computed: 0xabcd });
        assert_eq!(sum.to_string(), "packet at byte 8: the checksum is 0x00000001, but the bytes give 0x0000abcd");
        assert_eq!(Full.to_string(), "no room in the packet");
    }
}
