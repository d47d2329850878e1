//! Messages that come in parts, put together for receivers of whole ones.
//!
//! *Responsible for* keeping what was gathered whatever becomes of the receiver: a future that was dropped, a message that is
//! too long, a receiver that takes parts from then on. *Not responsible for* reading.
//!
//! *Invariants*: bytes come out in the order in which they went in, each once, and none of one message with those of another.

use bytes::{Bytes, BytesMut};
use neater_engine::{ConnectionError, Received};

/// The most that whole-message receiving gathers, in bytes; `Connection::receive_partial` takes a longer message.
pub(crate) const GATHER_MAX: usize = 64 << 20;

/// Parts of one message that have come and have not been taken.
#[derive(Default)]
pub(crate) struct Gathered {
    data: BytesMut,
    /// What came with the last part. `None`: nothing is here.
    last: Option<Received>,
}

impl Gathered {
    /// Takes what is here for a receiver: `Some` if that answers it, so that nothing needs to be read.
    pub(crate) fn take(&mut self, max: usize, whole: bool) -> Option<Result<Received, ConnectionError>> {
        let last = self.last.as_ref()?;
        if !whole {
            return Some(Ok(self.take_part(max)?));
        }
        if self.data.len() > GATHER_MAX {
            return Some(Err(ConnectionError::Unsupported("the message is over 64 MB: receive it in parts")));
        }
        last.end_of_message.then(|| self.take_part(usize::MAX)).flatten().map(Ok)
    }

    fn take_part(&mut self, max: usize) -> Option<Received> {
        let n = self.data.len().min(max.max(1));
        let data = self.data.split_to(n).freeze();
        if !self.data.is_empty() {
            let last = self.last.as_ref()?;
            return Some(Received { data, end_of_message: false, is_final: false, ..last.clone() });
        }
        let last = self.last.take()?;
        self.data = BytesMut::new();
        // Parts that were all empty and did not end the message say nothing.
        (last.end_of_message || !data.is_empty()).then_some(Received { data, ..last })
    }

    /// Adds a part, for a receiver of whole messages. What [`Gathered::take`] says then is its answer, or there is more to be
    /// read.
    pub(crate) fn add(&mut self, mut part: Received) {
        self.data.extend_from_slice(&part.data);
        part.data = Bytes::new();
        // A message is early data if any of it was.
        part.early |= self.last.as_ref().is_some_and(|l| l.early);
        self.last = Some(part);
    }

    /// Whether a part waits for the rest of its message.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(data: &'static [u8], end_of_message: bool) -> Received {
        Received {
            data: Bytes::from_static(data),
            end_of_message,
            is_final: end_of_message,
            stream: None,
            ppid: None,
            ecn: None,
            early: false,
        }
    }

    #[test]
    fn parts_become_one_message() {
        let mut g = Gathered::default();
        assert!(g.take(9, true).is_none() && g.is_empty());
        g.add(part(b"ab", false));
        assert!(g.take(9, true).is_none() && !g.is_empty());
        g.add(part(b"cd", true));
        assert_eq!(g.take(1, true), Some(Ok(part(b"abcd", true))), "the most is for parts");
        assert!(g.is_empty());
    }

    #[test]
    fn what_was_gathered_can_be_taken_in_parts() {
        let mut g = Gathered::default();
        g.add(part(b"abc", false));
        assert_eq!(g.take(2, false), Some(Ok(part(b"ab", false))));
        assert_eq!(g.take(2, false), Some(Ok(part(b"c", false))));
        assert!(g.take(2, false).is_none(), "the rest is to be read");
        g.add(part(b"de", false));
        g.add(part(b"", true));
        assert_eq!(g.take(1, false), Some(Ok(part(b"d", false))));
        assert_eq!(g.take(9, true), Some(Ok(part(b"e", true))), "and the rest of it at once");
        g.add(part(b"", false));
        assert!(g.take(9, false).is_none() && g.is_empty());
    }

    #[test]
    fn too_long_a_message_is_refused_as_long_as_it_is_here() {
        let mut g = Gathered::default();
        let half = Bytes::from(vec![7; GATHER_MAX / 2]);
        for end in [false, false, true] {
            g.add(Received { data: half.clone(), ..part(b"", end) });
        }
        for _ in 0..3 {
            assert!(matches!(g.take(usize::MAX, true), Some(Err(ConnectionError::Unsupported(_)))));
        }
        let first = g.take(GATHER_MAX, false).expect("here").expect("a part");
        assert_eq!((first.data.len(), first.end_of_message), (GATHER_MAX, false));
        let rest = g.take(usize::MAX, true).expect("here").expect("short enough now");
        assert_eq!((rest.data.len(), rest.end_of_message), (GATHER_MAX / 2, true));
    }
}
