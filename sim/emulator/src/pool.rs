//! Packet buffers that are made once and used again.

use std::rc::Rc;

/// One buffer with what is in it.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

/// A packet. Cloning shares the bytes; who changes a shared packet gets bytes of its own ([`Pool::change`]).
#[derive(Clone, Debug)]
pub struct Packet(Rc<Buffer>);

impl Packet {
    /// What is in it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes.get(..self.0.len).unwrap_or_default()
    }

    /// How long it is.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> u32 {
        self.0.len as u32
    }
}

/// The buffers that nobody uses at the moment.
///
/// *Invariant*: there are never more buffers, used and unused, than were asked for.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Rc<Buffer>>,
    total: usize,
    size: usize,
}

impl Pool {
    /// So many buffers of so many bytes, all touched, so that their pages are there.
    #[must_use]
    pub fn new(total: usize, size: usize) -> Self {
        let fresh = || Rc::new(Buffer { bytes: vec![1; size].into_boxed_slice(), len: 0 });
        Self { free: (0..total).map(|_| fresh()).collect(), total, size }
    }

    /// A packet that `fill` writes: it gets the whole buffer and returns the length, or `None` for no packet. `None` also when
    /// all buffers are in use, and then `fill` is not called.
    pub fn fill<E>(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Option<Result<Packet, E>> {
        let mut buffer = self.free.pop()?;
        let Some(inner) = Rc::get_mut(&mut buffer) else {
            return None; // Not reachable: only buffers with one owner come back.
        };
        match fill(&mut inner.bytes) {
            Ok(len) => {
                inner.len = len.min(inner.bytes.len());
                Some(Ok(Packet(buffer)))
            }
            Err(e) => {
                self.free.push(buffer);
                Some(Err(e))
            }
        }
    }

    /// Changes the bytes of a packet; shared ones are copied first. Returns whether it could: a copy needs a buffer.
    pub fn change<R>(&mut self, packet: &mut Packet, change: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        if Rc::get_mut(&mut packet.0).is_none() {
            let mut copy = self.free.pop()?;
            let inner = Rc::get_mut(&mut copy)?;
            inner.bytes.get_mut(..packet.0.len)?.copy_from_slice(packet.bytes());
            inner.len = packet.0.len;
            let old = std::mem::replace(packet, Packet(copy));
            self.give_back(old);
        }
        let inner = Rc::get_mut(&mut packet.0)?;
        Some(change(inner.bytes.get_mut(..inner.len)?))
    }

    /// Takes a packet back whose journey is over.
    pub fn give_back(&mut self, packet: Packet) {
        let mut buffer = packet.0;
        if Rc::get_mut(&mut buffer).is_some() && self.free.len() < self.total {
            self.free.push(buffer);
        }
    }

    /// How many buffers nobody uses.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many bytes a buffer has.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(pool: &mut Pool, text: &[u8]) -> Option<Packet> {
        pool.fill(|b| {
            b[..text.len()].copy_from_slice(text);
            Ok::<_, ()>(text.len())
        })?
        .ok()
    }

    #[test]
    fn buffers_run_out_and_come_back() {
        let mut pool = Pool::new(2, 8);
        let a = packet(&mut pool, b"a").expect("room");
        let b = packet(&mut pool, b"b").expect("room");
        assert!(packet(&mut pool, b"c").is_none());
        pool.give_back(a);
        assert_eq!(packet(&mut pool, b"c").expect("room").bytes(), b"c");
        assert_eq!(b.bytes(), b"b");
        assert!(pool.fill(|_| Err::<usize, _>("nothing to read")).is_none());
    }

    #[test]
    fn a_shared_packet_is_changed_alone_and_its_buffer_comes_back_once() {
        let mut pool = Pool::new(3, 8);
        let mut a = packet(&mut pool, b"one").expect("room");
        let b = a.clone();
        pool.change(&mut a, |bytes| bytes[0] = b'O').expect("room");
        assert_eq!((a.bytes(), b.bytes()), (&b"One"[..], &b"one"[..]));
        pool.give_back(a.clone());
        assert_eq!(pool.free(), 1, "still in use");
        pool.give_back(a);
        pool.give_back(b);
        assert_eq!(pool.free(), 3);
    }
}
