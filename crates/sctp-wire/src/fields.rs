//! Reading the fields of one chunk, parameter or cause, knowing where they are.

use crate::error::{Problem, WireError};
use neater_base::Reader;

/// The value of a chunk, parameter or cause, from which fields are taken in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    reader: Reader<'a>,
    /// The offset just behind the value.
    end: usize,
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8], offset: usize, what: &'static str) -> Self {
        Self { reader: Reader::new(bytes), end: offset + bytes.len(), what }
    }

    /// Where the next field is.
    pub(crate) const fn offset(&self) -> usize {
        self.end - self.reader.rest().len()
    }

    pub(crate) const fn left(&self) -> usize {
        self.reader.rest().len()
    }

    pub(crate) const fn error(&self, problem: Problem) -> WireError {
        WireError::new(self.offset(), self.what, problem)
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let left = self.left();
        self.reader.take(n).map_err(|_| self.error(Problem::Short { needed: n, left }))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let left = self.left();
        self.take(N)?.try_into().map_err(|_| self.error(Problem::Short { needed: N, left }))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// All that is left.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.reader.rest()
    }

    /// That nothing is left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.left() {
            0 => Ok(()),
            extra => Err(self.error(Problem::Trailing { extra })),
        }
    }

    /// That nothing is left but up to three bytes, which are padding that a sender has counted: RFC
    /// 9260 section 3.2 expects a robust implementation to take them.
    pub(crate) fn end_or_padding(self) -> Result<(), WireError> {
        if self.left() < 4 { Ok(()) } else { self.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_that_is_short_by_its_place() {
        let mut fields = Fields::new(&[0, 2, 9, 9, 9], 100, "TEST");
        assert_eq!(fields.u16(), Ok(2));
        assert_eq!(fields.u32(), Err(WireError::new(102, "TEST", Problem::Short { needed: 4, left: 3 })));
        assert_eq!(fields.end(), Err(WireError::new(102, "TEST", Problem::Trailing { extra: 3 })));
        assert_eq!(fields.end_or_padding(), Ok(()));
        assert_eq!(fields.rest(), [9, 9, 9]);
    }

    #[test]
    fn four_bytes_are_not_padding() {
        assert!(Fields::new(&[0; 4], 0, "TEST").end_or_padding().is_err());
    }
}
