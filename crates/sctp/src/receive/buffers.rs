//! Payload buffers that are used again, so that a steady flow allocates nothing.
//!
//! *Invariant*: what a peer sends is kept in memory of about its size. A buffer that was a large
//! message's is lent to a small one only while the message grows, and of such loans there are few.

/// The most buffers that are kept for later.
const MAX_SPARE: usize = 1024;
/// The most bytes of capacity that are kept for later; and as many may be lent to messages that
/// have begun.
const MAX_SPARE_BYTES: usize = 1 << 20;
/// So many of the spare buffers are looked at for one that fits.
const LOOKED_AT: usize = 8;

/// A bounded store of empty buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

/// Whether a buffer of this capacity is not much too large for so many bytes.
const fn fits(capacity: usize, bytes: usize) -> bool {
    capacity <= 2 * bytes + 64
}

impl Buffers {
    /// A buffer that holds a copy of `payload`, and has little room for more.
    pub(crate) fn filled(&mut self, payload: &[u8]) -> Vec<u8> {
        let is_right = |b: &Vec<u8>| b.capacity() >= payload.len() && fits(b.capacity(), payload.len());
        let at = self.spare.iter().rev().take(LOOKED_AT).position(is_right);
        let mut buffer = at.map(|back| self.take(self.spare.len() - 1 - back)).unwrap_or_default();
        buffer.extend_from_slice(payload);
        buffer
    }

    /// A buffer that holds a copy of `payload`, the beginning of something whose length is not
    /// known: perhaps a large one, unless `lent` bytes of such are out already.
    pub(crate) fn begun(&mut self, payload: &[u8], lent: usize) -> Vec<u8> {
        let last = self.spare.last().filter(|b| lent + b.capacity() <= MAX_SPARE_BYTES);
        let mut buffer = match last {
            Some(_) => self.take(self.spare.len() - 1),
            None => Vec::new(),
        };
        buffer.extend_from_slice(payload);
        buffer
    }

    fn take(&mut self, at: usize) -> Vec<u8> {
        let buffer = self.spare.swap_remove(at);
        self.bytes -= buffer.capacity();
        buffer
    }

    /// What goes out of our hands: in a buffer of its own size, if this one is much too large for
    /// it.
    pub(crate) fn fitted(&mut self, full: Vec<u8>) -> Vec<u8> {
        if fits(full.capacity(), full.len()) {
            return full;
        }
        let buffer = self.filled(&full);
        self.recycle(full);
        buffer
    }

    /// Takes a buffer back, and forgets what is in it.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity == 0 || self.spare.len() >= MAX_SPARE || self.bytes + capacity > MAX_SPARE_BYTES {
            return;
        }
        buffer.clear();
        self.bytes += capacity;
        self.spare.push(buffer);
    }

    /// Gives everything that is kept back to the allocator.
    pub(crate) fn trim(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_the_store_is_bounded() {
        let mut buffers = Buffers::default();
        let first = buffers.filled(&[1; 100]);
        let at = first.as_ptr();
        buffers.recycle(first);
        let second = buffers.filled(&[2; 50]);
        assert_eq!((second.as_ptr(), second.as_slice()), (at, &[2; 50][..]));
        for _ in 0..1000 {
            buffers.recycle(Vec::with_capacity(8000));
        }
        assert!(buffers.spare.len() <= MAX_SPARE && buffers.bytes <= MAX_SPARE_BYTES);
        buffers.recycle(Vec::with_capacity(2 << 20));
        assert!(buffers.bytes <= MAX_SPARE_BYTES);
        buffers.trim();
        assert_eq!((buffers.spare.len(), buffers.bytes), (0, 0));
    }

    #[test]
    fn a_large_buffer_is_lent_to_what_grows_and_never_given_away_with_little_in_it() {
        let mut buffers = Buffers::default();
        buffers.recycle(Vec::with_capacity(400_000));
        assert!(buffers.filled(&[1]).capacity() < 100);
        let begun = buffers.begun(&[1], 0);
        assert!(begun.capacity() >= 400_000);
        let gone = buffers.fitted(begun);
        assert!(gone.capacity() < 100 && gone == [1] && buffers.bytes >= 400_000);
        assert!(buffers.begun(&[1], MAX_SPARE_BYTES - 1000).capacity() < 100);
    }
}
