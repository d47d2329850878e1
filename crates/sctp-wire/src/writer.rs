//! Writing into a buffer that may be too small.

use crate::padded;

/// Something that can be put into a packet: a chunk.
pub trait Emit {
    /// Writes the whole chunk, header first, without its padding.
    fn emit(&self, out: &mut Writer<'_>);
}

/// Where chunks are written. What does not fit is not written, and the writer remembers that.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    at: usize,
    overflowed: bool,
}

impl<'b> Writer<'b> {
    pub(crate) const fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, at: 0, overflowed: false }
    }

    pub(crate) const fn len(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) const fn room(&self) -> usize {
        self.buffer.len() - self.at
    }

    pub(crate) fn written(&self) -> &[u8] {
        &self.buffer[..self.at]
    }

    pub(crate) fn written_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.at]
    }

    /// Whether something did not fit.
    pub(crate) const fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Forgets what was written from `at` on, and that something did not fit.
    pub(crate) const fn rewind(&mut self, at: usize) {
        self.at = at;
        self.overflowed = false;
    }

    #[inline]
    fn space(&mut self, n: usize) -> Option<&mut [u8]> {
        let space = if self.overflowed { None } else { self.buffer[self.at..].get_mut(..n) };
        match space {
            Some(space) => {
                self.at += n;
                Some(space)
            }
            None => {
                self.overflowed = true;
                None
            }
        }
    }

    /// Several fields at once: what stands in every packet is not looked at field by field.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(space) = self.space(N) {
            space.copy_from_slice(&bytes);
        }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if let Some(space) = self.space(bytes.len()) {
            space.copy_from_slice(bytes);
        }
    }

    pub(crate) fn zeros(&mut self, n: usize) {
        if let Some(space) = self.space(n) {
            space.fill(0);
        }
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.array(value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.array(value.to_be_bytes());
    }

    /// Zeros up to the next multiple of four.
    #[inline]
    pub(crate) fn align(&mut self) {
        let missing = padded(self.at) - self.at;
        if missing > 0 {
            self.zeros(missing);
        }
    }

    /// A chunk: its header, what `value` writes, and the length of both.
    pub(crate) fn chunk(&mut self, kind: u8, flags: u8, value: impl FnOnce(&mut Self)) {
        self.with_length([kind, flags], value);
    }

    /// A parameter or cause, behind the padding of what precedes it.
    ///
    /// So the last of a chunk leaves its padding to the chunk, which does not count it (RFC 9260
    /// section 3.2).
    pub(crate) fn item(&mut self, kind: u16, value: impl FnOnce(&mut Self)) {
        self.align();
        self.with_length(kind.to_be_bytes(), value);
    }

    #[inline]
    fn with_length(&mut self, head: [u8; 2], value: impl FnOnce(&mut Self)) {
        let start = self.at;
        self.array([head[0], head[1], 0, 0]);
        value(self);
        // Without an overflow it is there.
        if !self.overflowed
            && let Some(space) = self.buffer.get_mut(start + 2..start + 4)
        {
            // A packet is at most PACKET_MAX long, which fits.
            let len = u16::try_from(self.at - start).unwrap_or(u16::MAX);
            space.copy_from_slice(&len.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lengths_leave_out_the_last_padding_and_count_the_inner_one() {
        let mut buffer = [0xff; 32];
        let mut out = Writer::new(&mut buffer);
        out.chunk(9, 1, |out| {
            out.item(0x0102, |out| out.bytes(&[7]));
            out.item(0x0304, |out| out.u16(8));
        });
        assert_eq!(out.written(), [9, 1, 0, 18, 1, 2, 0, 5, 7, 0, 0, 0, 3, 4, 0, 6, 0, 8]);
        out.align();
        assert_eq!(out.len(), 20);
        assert_eq!(out.written()[18..], [0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_remembered_until_it_is_rewound() {
        let mut buffer = [0; 6];
        let mut out = Writer::new(&mut buffer);
        out.u32(1);
        out.u32(2);
        assert!(out.overflowed());
        out.bytes(&[3]);
        assert_eq!(out.written(), [0, 0, 0, 1]);
        out.rewind(4);
        assert!(!out.overflowed());
        out.u16(0x0405);
        assert_eq!(out.written(), [0, 0, 0, 1, 4, 5]);
        assert_eq!(out.room(), 0);
    }
}
