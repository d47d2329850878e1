//! What segments carry, and queues of it. Bytes that only matter by their number are not stored: they read as zeros.

use bytes::Bytes;
use std::collections::VecDeque;

/// The payload of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Bytes(Bytes),
    /// This many synthetic bytes: an experiment's bulk data. On a trace they are zeros.
    Zeros(u32),
}

impl Default for Payload {
    fn default() -> Self {
        Self::Zeros(0)
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl Payload {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(b) => b.len(),
            Self::Zeros(n) => *n as usize,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts off the first `n` bytes.
    pub(crate) fn skip(&mut self, n: usize) {
        match self {
            Self::Bytes(b) => drop(b.split_to(n.min(b.len()))),
            Self::Zeros(len) => *len = len.saturating_sub(n as u32),
        }
    }

    /// Keeps the first `n` bytes.
    pub(crate) fn truncate(&mut self, n: usize) {
        match self {
            Self::Bytes(b) => b.truncate(n),
            Self::Zeros(len) => *len = (*len).min(n as u32),
        }
    }
}

/// A run of one kind in a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    real: bool,
    len: usize,
}

/// A queue of bytes, real ones stored and synthetic ones counted.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    runs: VecDeque<Run>,
    real: VecDeque<u8>,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn grow(&mut self, real: bool, len: usize) {
        if len == 0 {
            return;
        }
        self.len += len;
        match self.runs.back_mut() {
            Some(run) if run.real == real => run.len += len,
            _ => self.runs.push_back(Run { real, len }),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.real.extend(bytes);
        self.grow(true, bytes.len());
    }

    pub(crate) fn push_zeros(&mut self, n: usize) {
        self.grow(false, n);
    }

    pub(crate) fn push_payload(&mut self, payload: &Payload) {
        match payload {
            Payload::Bytes(b) => self.push(b),
            Payload::Zeros(n) => self.push_zeros(*n as usize),
        }
    }

    /// Up to `len` bytes from the position `from` on.
    pub(crate) fn slice(&self, from: usize, len: usize) -> Payload {
        let from = from.min(self.len);
        let to = from.saturating_add(len).min(self.len);
        if from == to {
            return Payload::default();
        }
        if let [Run { real, .. }] = self.runs.make_ref() {
            return if *real { self.real_range(from, to).into() } else { Payload::Zeros((to - from) as u32) };
        }
        self.slice_runs(from, to)
    }

    /// The general case of [`Queue::slice`]: a payload that has a real byte is real altogether.
    fn slice_runs(&self, from: usize, to: usize) -> Payload {
        let (mut at, mut real_at) = (0, 0);
        let mut out = Vec::new();
        let (mut zeros, mut any_real) = (0, false);
        for run in &self.runs {
            let (start, end) = (at.max(from), (at + run.len).min(to));
            if start < end {
                if run.real {
                    out.resize(out.len() + std::mem::take(&mut zeros), 0);
                    let base = real_at + (start - at);
                    out.extend_from_slice(&self.real_range(base, base + (end - start)));
                    any_real = true;
                } else {
                    zeros += end - start;
                }
            }
            at += run.len;
            real_at += if run.real { run.len } else { 0 };
            if at >= to {
                break;
            }
        }
        if !any_real {
            return Payload::Zeros((to - from) as u32);
        }
        out.resize(out.len() + zeros, 0);
        Payload::Bytes(out.into())
    }

    fn real_range(&self, from: usize, to: usize) -> Bytes {
        let (a, b) = self.real.as_slices();
        if to <= a.len() {
            return Bytes::copy_from_slice(&a[from..to]);
        }
        if from >= a.len() {
            return Bytes::copy_from_slice(&b[from - a.len()..to - a.len()]);
        }
        let mut out = Vec::with_capacity(to - from);
        out.extend_from_slice(&a[from..]);
        out.extend_from_slice(&b[..to - a.len()]);
        out.into()
    }

    /// Takes bytes out; synthetic ones come as zeros. Returns how many.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.len);
        let mut done = 0;
        while done < n {
            let Some(run) = self.runs.front().copied() else { break };
            let part = run.len.min(n - done);
            if run.real {
                let (a, b) = self.real.as_slices();
                let first = part.min(a.len());
                out[done..done + first].copy_from_slice(&a[..first]);
                out[done + first..done + part].copy_from_slice(&b[..part - first]);
            } else {
                out[done..done + part].fill(0);
            }
            self.discard(part);
            done += part;
        }
        n
    }

    /// Drops the first `n` bytes, or all. Returns how many.
    pub(crate) fn discard(&mut self, n: usize) -> usize {
        let n = n.min(self.len);
        let mut left = n;
        while left > 0 {
            let Some(run) = self.runs.front_mut() else { break };
            let part = run.len.min(left);
            run.len -= part;
            if run.real {
                self.real.drain(..part);
            }
            if run.len == 0 {
                self.runs.pop_front();
            }
            left -= part;
        }
        self.len -= n;
        n
    }
}

/// The runs as one slice where there is one, which is nearly always.
trait AsOne {
    fn make_ref(&self) -> &[Run];
}

impl AsOne for VecDeque<Run> {
    fn make_ref(&self) -> &[Run] {
        let (a, b) = self.as_slices();
        if b.is_empty() { a } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_found_by_position_also_where_the_ring_wraps() {
        let mut q = Queue::default();
        let data: Vec<u8> = (0..200).collect();
        q.push(&data);
        q.discard(150);
        q.push(&data);
        let expected: Vec<u8> = data[150..].iter().chain(&data).copied().collect();
        assert_eq!(q.slice(0, 1000), Payload::Bytes(expected.clone().into()));
        assert_eq!(q.slice(39, 20), Payload::Bytes(expected[39..59].to_vec().into()));
        assert_eq!(q.slice(5000, 20), Payload::default());
    }

    #[test]
    fn synthetic_bytes_take_no_memory() {
        let mut q = Queue::default();
        q.push_zeros(1 << 40);
        assert_eq!((q.slice(7, 1448), q.real.capacity()), (Payload::Zeros(1448), 0));
        assert_eq!(q.discard(1 << 39), 1 << 39);
    }

    proptest! {
        /// The same as a plain vector, whatever mixture goes in.
        #[test]
        fn prop_a_queue_is_a_queue(steps in proptest::collection::vec((0u8..4, 0usize..50, 0usize..60), 1..60)) {
            let (mut queue, mut model) = (Queue::default(), Vec::new());
            let mut next = 1u8;
            for (what, a, b) in steps {
                match what {
                    0 => {
                        let bytes: Vec<u8> = (0..a).map(|i| next.wrapping_add(i as u8) | 1).collect();
                        next = next.wrapping_add(7);
                        queue.push(&bytes);
                        model.extend(bytes);
                    }
                    1 => { queue.push_zeros(a); model.extend(vec![0; a]); }
                    2 => {
                        let mut out = vec![9; a];
                        let n = queue.read(&mut out);
                        let taken: Vec<u8> = model.drain(..a.min(model.len())).collect();
                        prop_assert_eq!(&out[..n], &taken[..]);
                    }
                    _ => {
                        let expected: Vec<u8> = model.iter().skip(a).take(b).copied().collect();
                        match queue.slice(a, b) {
                            Payload::Bytes(bytes) => prop_assert_eq!(&bytes[..], &expected[..]),
                            Payload::Zeros(n) => prop_assert_eq!(vec![0; n as usize], expected),
                        }
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
