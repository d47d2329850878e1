//! Payload buffers that are used again, so that a steady flow allocates nothing.

/// The most buffers that are kept for later.
const MAX_SPARE: usize = 1024;
/// The most bytes of capacity that are kept for later.
const MAX_SPARE_BYTES: usize = 1 << 20;

/// A bounded store of empty buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer that holds a copy of `payload`.
    pub(crate) fn filled(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer.extend_from_slice(payload);
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
}
