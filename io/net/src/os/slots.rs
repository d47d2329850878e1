//! Handles.
//!
//! *Responsible for* the table from descriptors to what is known of their sockets, and for
//! distinguishing a handle from that of an earlier socket with the same descriptor. *Deliberately
//! not here*: system calls.
//!
//! *Invariants*: a handle is the descriptor (low half) and the generation of its slot (high half);
//! generations are odd while the slot is in use; nothing is allocated for a socket beyond its slot,
//! which is reused. The table is as long as the highest descriptor seen, rounded up, which the
//! process's limit bounds.

use crate::sys::{Fd, Traits};
use neater_base::net::{ErrorKind, NetError, Sock, Token};

/// What a socket is and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stream whose connection attempt goes on: its end has not been reported.
    Connecting,
    /// A stream whose connection attempt has come to an end; how, has not been asked.
    Settled,
    /// A stream whose connection attempt failed for this reason, which has not been reported.
    Ended(ErrorKind),
    /// A stream whose connection attempt failed, as has been reported.
    Failed,
    /// A connected stream.
    Stream,
    /// A connected stream that others may read and write too: it has a
    /// [`super::direct::DirectState`].
    Direct,
    /// A listener.
    Listener,
    /// A datagram socket; the number is its place in [`Datagrams`].
    Datagram(u32),
}

impl Kind {
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::Connecting | Self::Settled | Self::Ended(_) | Self::Failed | Self::Stream | Self::Direct)
    }
}

/// Whether the poller watches a stream for room to write. Watching without a waiter is not free: a
/// socket that is read while more arrives is reported once more, because it may be written as ever,
/// and the driver wakes up for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// The socket is not registered with the poller at all: see [`super::fresh`].
    Untold,
    /// It does not.
    Unwatched,
    /// It does, and nothing waits for it.
    Watched,
    /// It does, because the last write, or the connection attempt, has to wait.
    Awaited,
}

/// One descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// What its events are reported with.
    pub(crate) token: Token,
    generation: u32,
    pub(crate) kind: Kind,
    pub(crate) v6: bool,
    /// A stream: the last read took less than there was room for, so that nothing is left; what
    /// comes makes an edge.
    pub(crate) drained: bool,
    /// A stream of which something was reported that makes a read short and leaves something behind
    /// it: the peer's end, an error, urgent data.
    pub(crate) wary: bool,
    pub(crate) writes: Writes,
}

// Each idle connection pays for this.
const _: () = assert!(size_of::<Slot>() <= 24);

impl Slot {
    const FREE: Self = Self {
        token: Token(0),
        generation: 0,
        kind: Kind::Failed,
        v6: false,
        drained: false,
        wary: false,
        writes: Writes::Unwatched,
    };

    const fn in_use(&self) -> bool {
        self.generation & 1 == 1
    }

    /// A stream without a direct stream that takes nothing now, of which the poller will report
    /// when it does.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.kind == Kind::Stream && self.writes == Writes::Awaited
    }

    /// As options see it. A listener's options are those of its streams.
    pub(crate) const fn traits(&self) -> Traits {
        Traits { stream: !matches!(self.kind, Kind::Datagram(_)), v6: self.v6 }
    }
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
}

const fn gone() -> NetError {
    NetError::new(ErrorKind::NotConnected)
}

impl Slots {
    /// The handle that [`Slots::insert`] will give to this descriptor.
    #[inline]
    pub(crate) fn predict(&self, fd: Fd) -> Sock {
        let generation = self.slots.get(fd as usize).map_or(0, |s| s.generation);
        Sock(u64::from(generation | 1) << 32 | u64::from(fd as u32))
    }

    /// Takes in a descriptor that the system has just made.
    #[inline]
    pub(crate) fn insert(&mut self, fd: Fd, token: Token, kind: Kind, v6: bool) -> Sock {
        let writes = if kind == Kind::Stream { Writes::Untold } else { Writes::Awaited };
        let sock = self.predict(fd);
        let index = fd as usize;
        if index >= self.slots.len() {
            self.grow(index);
        }
        let generation = (sock.0 >> 32) as u32;
        self.slots[index] = Slot { token, generation, kind, v6, drained: false, wary: false, writes };
        sock
    }

    /// Makes room for `index`, and for some more. Growing moves the table, so it happens seldom.
    #[cold]
    fn grow(&mut self, index: usize) {
        let room = (index | 63) + 1;
        if room > self.slots.capacity() {
            self.slots.reserve_exact(3 * room - self.slots.len());
        }
        self.slots.resize(room, Slot::FREE);
    }

    /// The descriptor and what is known of it.
    #[inline]
    pub(crate) fn get(&self, sock: Sock) -> Result<(Fd, &Slot), NetError> {
        let fd = sock.0 as u32;
        match self.slots.get(fd as usize) {
            Some(slot) if slot.generation == (sock.0 >> 32) as u32 && slot.in_use() => Ok((fd as Fd, slot)),
            _ => Err(gone()),
        }
    }

    /// The descriptor and what is known of it, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, sock: Sock) -> Result<(Fd, &mut Slot), NetError> {
        let fd = sock.0 as u32;
        match self.slots.get_mut(fd as usize) {
            Some(slot) if slot.generation == (sock.0 >> 32) as u32 && slot.in_use() => Ok((fd as Fd, slot)),
            _ => Err(gone()),
        }
    }

    /// Forgets a socket; the caller closes the descriptor.
    #[inline]
    pub(crate) fn remove(&mut self, sock: Sock) -> Option<(Fd, Slot)> {
        let (fd, slot) = self.get_mut(sock).ok()?;
        let old = *slot;
        slot.generation = slot.generation.wrapping_add(1);
        Some((fd, old))
    }

    /// All that are open.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Fd, &Slot)> {
        self.slots.iter().enumerate().filter(|(_, s)| s.in_use()).map(|(fd, s)| (fd as Fd, s))
    }
}

/// What only a datagram socket needs, apart, so that the others' slots stay small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// The fixed peer.
    pub(crate) peer: Option<std::net::SocketAddr>,
    /// The codepoint that [`neater_base::net::SocketOption::Dscp`] set: sending with ECN must
    /// repeat it.
    pub(crate) dscp: u8,
    /// Whether the system may be asked to cut batches up.
    pub(crate) offload: bool,
    /// It carries the packets of another IP protocol, and has no ports.
    pub(crate) raw: bool,
}

/// The [`Datagram`]s, found by the number in [`Kind::Datagram`].
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    entries: Vec<Datagram>,
    free: Vec<u32>,
}

impl Datagrams {
    pub(crate) fn insert(&mut self, datagram: Datagram) -> u32 {
        if let Some(index) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(index as usize)
        {
            *entry = datagram;
            return index;
        }
        self.entries.push(datagram);
        self.entries.len() as u32 - 1
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Datagram> {
        self.entries.get(index as usize)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Datagram> {
        self.entries.get_mut(index as usize)
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_does_not_reach_the_next_socket_with_its_descriptor() {
        let mut slots = Slots::default();
        let a = slots.insert(7, Token(1), Kind::Stream, false);
        assert_eq!(a, Sock(1 << 32 | 7));
        assert!(slots.get(a).is_ok() && slots.get(Sock(7)).is_err() && slots.get(Sock(u64::MAX)).is_err());
        assert!(slots.remove(a).is_some() && slots.remove(a).is_none());
        let expected = slots.predict(7);
        let b = slots.insert(7, Token(2), Kind::Listener, false);
        assert_eq!(b, expected);
        assert!(slots.get(a).is_err());
        assert_eq!(slots.get(b).unwrap().1.token, Token(2));
        assert_eq!(slots.iter().count(), 1);
    }

    #[test]
    fn places_of_closed_datagram_sockets_are_used_again() {
        let mut side = Datagrams::default();
        let one = Datagram { peer: None, dscp: 0, offload: true, raw: false };
        let (a, b) = (side.insert(one), side.insert(one));
        assert_ne!(a, b);
        side.remove(a);
        assert_eq!(side.insert(Datagram { dscp: 46, ..one }), a);
        assert_eq!(side.get(a).unwrap().dscp, 46);
    }
}
