//! Messages that come in parts, put together for receivers of whole ones.
//!
//! *Responsible for* keeping what was gathered whatever becomes of the receiver: a future that was
//! dropped, a message that is too long, a receiver that takes parts from then on. *Not responsible
//! for* reading.
//!
//! *Invariants*: the bytes of a message come out in the order in which they went in, each once, and
//! none of one message with those of another; messages whose parts alternated come out in the order
//! of their ends.

use bytes::{Bytes, BytesMut};
use neater_engine::{ConnectionError, Received};

/// The most that whole-message receiving gathers, in bytes; `Connection::receive_partial` takes a
/// longer message.
pub(crate) const GATHER_MAX: usize = 64 << 20;

/// Parts of messages that have come and have not been taken. Mostly they are of one.
#[derive(Default)]
pub(crate) struct Gathered {
    begun: Vec<Begun>,
}

/// Parts of one message.
struct Begun {
    data: BytesMut,
    /// What came with the last part.
    last: Received,
}

impl Gathered {
    /// Takes what is here for a receiver: `Some` if that answers it, so that nothing needs to be
    /// read.
    pub(crate) fn take(&mut self, max: usize, whole: bool) -> Option<Result<Received, ConnectionError>> {
        if !whole {
            return if self.is_empty() { None } else { self.take_part(0, max).map(Ok) };
        }
        let complete = self.begun.iter().position(|b| b.last.end_of_message && b.data.len() <= GATHER_MAX);
        if let Some(at) = complete {
            return self.take_part(at, usize::MAX).map(Ok);
        }
        if self.begun.iter().map(|b| b.data.len()).sum::<usize>() > GATHER_MAX {
            return Some(Err(ConnectionError::Unsupported("the message is over 64 MB: receive it in parts")));
        }
        None
    }

    fn take_part(&mut self, at: usize, max: usize) -> Option<Received> {
        let begun = self.begun.get_mut(at)?;
        let n = begun.data.len().min(max.max(1));
        let data = begun.data.split_to(n).freeze();
        if !begun.data.is_empty() {
            return Some(Received { data, end_of_message: false, is_final: false, ..begun.last.clone() });
        }
        let Begun { last, .. } = self.begun.remove(at);
        // Parts that were all empty and did not end the message are no data.
        (last.end_of_message || !data.is_empty()).then_some(Received { data, ..last })
    }

    /// Adds a part, for a receiver of whole messages. The receiver's answer is then
    /// [`Gathered::take`], or there is more to be read. Returns the part's own data, of which there
    /// is a copy now: it may be the program's own, whose destructor must not run while the engine
    /// is borrowed.
    #[must_use]
    pub(crate) fn add(&mut self, mut part: Received) -> Bytes {
        let data = core::mem::take(&mut part.data);
        match self.begun.iter_mut().find(|b| b.last.message == part.message && !b.last.end_of_message) {
            Some(begun) => {
                begun.data.extend_from_slice(&data);
                // A message is early data if any of it was.
                part.early |= begun.last.early;
                begun.last = part;
            }
            None => self.begun.push(Begun { data: BytesMut::from(&data[..]), last: part }),
        }
        data
    }

    /// Whether a part waits for the rest of its message.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_empty()
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
            message: None,
            ecn: None,
            early: false,
        }
    }

    #[test]
    fn parts_become_one_message() {
        let mut g = Gathered::default();
        assert!(g.take(9, true).is_none() && g.is_empty());
        let _ = g.add(part(b"ab", false));
        assert!(g.take(9, true).is_none() && !g.is_empty());
        let _ = g.add(part(b"cd", true));
        assert_eq!(g.take(1, true), Some(Ok(part(b"abcd", true))), "the most is for parts");
        assert!(g.is_empty());
    }

    #[test]
    fn parts_of_several_messages_are_told_apart() {
        let of = |message, data, end| Received { message: Some(message), ..part(data, end) };
        let mut g = Gathered::default();
        for one in [of(1, b"a", false), of(2, b"x", false), of(1, b"b", false), of(2, b"y", true)] {
            assert!(g.take(9, true).is_none());
            let _ = g.add(one);
        }
        assert_eq!(g.take(9, true), Some(Ok(of(2, b"xy", true))));
        assert!(g.take(9, true).is_none() && !g.is_empty());
        let _ = g.add(of(1, b"c", true));
        assert_eq!(g.take(9, true), Some(Ok(of(1, b"abc", true))));
        assert!(g.is_empty());
    }

    #[test]
    fn what_was_gathered_can_be_taken_in_parts() {
        let mut g = Gathered::default();
        let _ = g.add(part(b"abc", false));
        assert_eq!(g.take(2, false), Some(Ok(part(b"ab", false))));
        assert_eq!(g.take(2, false), Some(Ok(part(b"c", false))));
        assert!(g.take(2, false).is_none(), "the rest is to be read");
        let _ = g.add(part(b"de", false));
        let _ = g.add(part(b"", true));
        assert_eq!(g.take(1, false), Some(Ok(part(b"d", false))));
        assert_eq!(g.take(9, true), Some(Ok(part(b"e", true))), "and the rest of it at once");
        let _ = g.add(part(b"", false));
        assert!(g.take(9, false).is_none() && g.is_empty());
    }

    #[test]
    fn too_long_a_message_is_refused_as_long_as_it_is_here() {
        let mut g = Gathered::default();
        let half = Bytes::from(vec![7; GATHER_MAX / 2]);
        for end in [false, false, true] {
            let _ = g.add(Received { data: half.clone(), ..part(b"", end) });
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
