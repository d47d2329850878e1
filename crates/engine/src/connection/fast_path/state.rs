//! What is known of a connection's bytes.

use neater_base::net::{DirectStream, Sock};

/// Whether the bytes of a connection may go straight to its socket and come straight from it; see
/// invariants 3 to 5 of the folder.
#[derive(Debug)]
pub(crate) struct DirectBytes {
    /// The socket of the connection's own TCP.
    pub(super) sock: Sock,
    /// Bytes may be written, and the socket may take some.
    pub(super) write: bool,
    /// Bytes may be written, and the socket takes none until its next event.
    pub(super) write_blocked: bool,
    /// Bytes may be read, and there may be some.
    pub(super) read: bool,
    /// Bytes may be read, and there are none until the socket's next event.
    pub(super) read_blocked: bool,
    /// A way around the engine, open in the same directions. In a box because most connections have
    /// none.
    pub(super) direct_stream: Option<Box<Box<dyn DirectStream>>>,
}

impl DirectBytes {
    pub(crate) const NONE: Self = Self {
        sock: Sock(0),
        write: false,
        write_blocked: false,
        read: false,
        read_blocked: false,
        direct_stream: None,
    };

    /// Whether anything is known that need not hold any more when the connection changes.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.write || self.write_blocked || self.read || self.read_blocked
    }

    /// The connection changes: nothing need hold any more.
    #[inline(never)]
    pub(crate) fn forget(&mut self) {
        (self.write, self.write_blocked, self.read, self.read_blocked) = (false, false, false, false);
        if let Some(direct_stream) = &self.direct_stream {
            direct_stream.close();
        }
    }

    /// Bytes written and read around the engine.
    pub(crate) fn direct_bytes(&self) -> (u64, u64) {
        self.direct_stream.as_ref().map_or((0, 0), |direct_stream| direct_stream.bytes())
    }

    /// Whether it is known that a read finds nothing.
    #[inline]
    pub(crate) fn is_read_blocked(&self) -> bool {
        self.read_blocked
    }

    /// Whether it is known that a write finds no room.
    #[inline]
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked
    }

    /// The socket has nothing to be read now.
    pub(super) fn set_read_blocked(&mut self) {
        (self.read, self.read_blocked) = (false, true);
    }

    /// The socket takes nothing now.
    pub(super) fn set_write_blocked(&mut self) {
        (self.write, self.write_blocked) = (false, true);
    }

    /// The socket takes something again. False: it is not known whether bytes may be written.
    pub(crate) fn writable_again(&mut self) -> bool {
        // A direct stream may have been full before the connection knew of it.
        if self.may_be_written() {
            (self.write, self.write_blocked) = (true, false);
            if let Some(direct_stream) = &self.direct_stream {
                direct_stream.open(true, false);
            }
        }
        self.write
    }

    /// The socket has something to be read again.
    #[inline]
    pub(crate) fn readable_again(&mut self) {
        if self.may_be_read() {
            (self.read, self.read_blocked) = (true, false);
            if let Some(direct_stream) = &self.direct_stream {
                direct_stream.open(false, true);
            }
        }
    }

    /// Whether bytes may be written, if there is room.
    #[inline]
    pub(super) fn may_be_written(&self) -> bool {
        self.write || self.write_blocked
    }

    /// Whether bytes may be read, if there are any.
    #[inline]
    pub(super) fn may_be_read(&self) -> bool {
        self.read || self.read_blocked
    }
}
