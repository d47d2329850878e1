//! Reading bytes that may be hostile.

/// The input ended before the field did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// Reads big-endian fields off the front of a slice; never panics.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Short`] if fewer remain; the reader is unchanged.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Short)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Short`] at the end.
    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.take(1)?[0])
    }

    /// The next two bytes as a big-endian number.
    ///
    /// # Errors
    /// [`Short`] if fewer remain.
    pub fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().map_err(|_| Short)?))
    }

    /// The next four bytes as a big-endian number.
    ///
    /// # Errors
    /// [`Short`] if fewer remain.
    pub fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Short)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_leaves_the_reader_unchanged() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u32(), Err(Short));
        assert_eq!(r.u16(), Ok(0x0102));
        assert_eq!(r.u8(), Ok(3));
        assert_eq!(r.u8(), Err(Short));
    }
}
