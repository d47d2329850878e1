//! The frames of an answer over HTTP/3, as they come (RFC 9114 section 7.1).
//!
//! *Responsible for* what h3 does not look at in answers: a stream that ends within a frame, frames
//! out of order, and DATA frames without bytes, which it takes for the end. *Not responsible for*
//! what is in a frame.

use bytes::{Buf, Bytes, BytesMut};

/// DATA, HEADERS (RFC 9114 section 7.2).
const DATA: u64 = 0;
const HEADERS: u64 = 1;
/// The longest head of a frame: two integers of eight bytes (RFC 9000 section 16).
const HEAD_MAX: usize = 16;

/// Follows the frames of one stream, and leaves out those without content that mean nothing.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Bytes that are left of the frame that is being passed on.
    left: u64,
    /// The head of a frame whose end has not come yet.
    head: Vec<u8>,
    order: Order,
}

/// RFC 9114 section 4.1: HEADERS, any number of them before the content, then DATA, then HEADERS
/// once at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Nothing,
    Heads,
    Content,
    Trailers,
}

/// Frames that may not follow one another (RFC 9114 section 4.1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Frames {
    /// Takes what has come next, and returns what is to be passed on.
    pub(crate) fn take(&mut self, came: Bytes) -> Result<Bytes, OutOfOrder> {
        // Nearly always it is all content of one frame.
        if self.head.is_empty() && self.left >= came.len() as u64 {
            self.left -= came.len() as u64;
            return Ok(came);
        }
        self.walk(came)
    }

    fn walk(&mut self, mut came: Bytes) -> Result<Bytes, OutOfOrder> {
        let mut out = BytesMut::with_capacity(came.len() + self.head.len());
        while came.has_remaining() {
            if self.left > 0 {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(came.len());
                self.left -= n as u64;
                out.extend_from_slice(&came.split_to(n));
                continue;
            }
            let before = self.head.len();
            self.head.extend(came.iter().take(HEAD_MAX - before));
            let Some((kind, length, size)) = head(&self.head) else { break };
            came.advance(size - before);
            self.head.truncate(size);
            self.order = self.order.after(kind)?;
            if kind != DATA || length > 0 {
                out.extend_from_slice(&self.head);
                self.left = length;
            }
            self.head.clear();
        }
        Ok(out.freeze())
    }

    /// Whether the stream may end here.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0 && self.head.is_empty()
    }
}

impl Order {
    fn after(self, kind: u64) -> Result<Self, OutOfOrder> {
        match (kind, self) {
            (HEADERS, Self::Nothing | Self::Heads) => Ok(Self::Heads),
            (HEADERS, Self::Content) => Ok(Self::Trailers),
            (DATA, Self::Heads | Self::Content) => Ok(Self::Content),
            (HEADERS | DATA, _) => Err(OutOfOrder),
            // Whether others may come here, h3 knows.
            _ => Ok(self),
        }
    }
}

/// Type, length, and bytes of the head of a frame; `None`: it is not whole.
fn head(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, first) = integer(bytes)?;
    let (length, second) = integer(bytes.get(first..)?)?;
    Some((kind, length, first + second))
}

/// RFC 9000 section 16: the two highest bits of the first byte give the length.
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let size = 1 << (first >> 6);
    let value = bytes.get(1..size)?.iter().fold(u64::from(first & 0x3f), |value, b| value << 8 | u64::from(*b));
    Some((value, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it, in pieces of this size.
    fn passed(bytes: &'static [u8], piece: usize) -> (Result<Vec<u8>, OutOfOrder>, bool) {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            match frames.take(Bytes::from_static(piece)) {
                Ok(piece) => all.extend_from_slice(&piece),
                Err(e) => return (Err(e), false),
            }
        }
        (Ok(all), frames.is_whole())
    }

    #[test]
    fn what_is_in_order_is_passed_on_however_it_comes() {
        let answers: [(&'static [u8], &'static [u8]); 5] = [
            (b"\x01\x03\0\0\xd9\0\x03hel\0\x02lo", b"\x01\x03\0\0\xd9\0\x03hel\0\x02lo"),
            // Without the empty frames, also where a number is longer than it need be.
            (b"\x01\x01a\0\0\0\x01b\x40\0\x80\0\0\0\0\x01c", b"\x01\x01a\0\x01b\0\x01c"),
            // Interim answers, trailers, and a type that is reserved (section 7.2.8).
            (b"\x01\x01a\x01\x01b\0\x01c\x21\x02xy\x01\x01t", b"\x01\x01a\x01\x01b\0\x01c\x21\x02xy\x01\x01t"),
            (b"\x01\0", b"\x01\0"),
            (b"", b""),
        ];
        for (came, goes) in answers {
            for piece in 1..=came.len().max(1) {
                assert_eq!(passed(came, piece), (Ok(goes.to_vec()), true), "{came:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_cut_or_out_of_order_is_not_whole() {
        for cut in [&b"\x01"[..], b"\x01\x40", b"\x01\x03\0\0", b"\x01\x01a\0\x0ahel", b"\x01\x01a\0"] {
            for piece in 1..=cut.len() {
                let (passed, whole) = passed(cut, piece);
                assert!(passed.is_ok() && !whole, "{cut:?} by {piece}");
            }
        }
        for wrong in [&b"\0\x01a"[..], b"\x01\x01a\0\x01b\x01\x01t\0\x01c", b"\x01\x01a\0\x01b\x01\x01t\x01\x01u"] {
            for piece in 1..=wrong.len() {
                assert_eq!(passed(wrong, piece).0, Err(OutOfOrder), "{wrong:?} by {piece}");
            }
        }
    }
}
