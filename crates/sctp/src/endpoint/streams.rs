//! Reading an association stream by stream.
//!
//! What is not read stays where it is and counts against the window that the peer is given,
//! whichever stream it is on.
//!
//! After [`crate::Event::Readable`], and when the association is over, a program takes all words
//! ([`Endpoint::receive_word`]) and asks which streams have become readable
//! ([`Endpoint::next_readable`]) until there is none. It reads each of those
//! ([`Endpoint::receive_from`]) when it wants to, until there is nothing.

use super::Endpoint;
use crate::association::Association;
use crate::ids::{AssociationId, StreamUse};
use crate::receive::Message;
use neater_sctp_wire::{Ppid, StreamId};

impl Endpoint {
    /// The next message of a stream, or the next part of one that is long, in the order in which
    /// [`Endpoint::receive`] would return them. But a part is followed by the next part of the same
    /// message: messages that came between them (unordered ones, RFC 8260 section 2) wait until its
    /// end, until [`crate::Event::PartLost`] for it, or until the association is over. In the last
    /// two cases a message that begins ([`Message::first`]) follows one that did not end.
    ///
    /// The uses of a stream are independent of each other: one that has ended can be read before or
    /// after those that follow it.
    pub fn receive_from(&mut self, id: AssociationId, from: StreamUse) -> Option<Message> {
        self.act(id, |a| a.receive_from(from))?
    }

    /// The next stream that has become readable, in the order of arrival; also one that the peer
    /// has used for the first time. A stream is returned again when something arrives after
    /// [`Endpoint::receive_from`] had nothing more of it. `None`: there are no more now. The work
    /// is proportional to the messages that have arrived, and does not depend on the number of
    /// streams.
    pub fn next_readable(&mut self, id: AssociationId) -> Option<StreamUse> {
        self.act(id, Association::next_readable)?
    }

    /// The message or part that [`Endpoint::receive_from`] returns next. `None`: there is none, or
    /// it would be the beginning of a long message that [`Endpoint::next_readable`] has not
    /// returned the stream for.
    #[must_use]
    pub fn peek(&self, id: AssociationId, from: StreamUse) -> Option<&Message> {
        self.live(id)?.peek(from)
    }

    /// Whether anything of a stream is unread, messages that wait for the rest of another one
    /// included. False for a use that has ended: it was read to its end.
    #[must_use]
    pub fn has_unread(&self, id: AssociationId, from: StreamUse) -> bool {
        self.live(id).is_some_and(|a| a.has_unread(from))
    }

    /// The current use of an inbound stream. It may have begun with a reset whose event was not
    /// taken yet.
    #[must_use]
    pub fn stream_use(&self, id: AssociationId, stream: StreamId) -> StreamUse {
        self.live(id).map_or(StreamUse { stream, reset: 0 }, |a| a.stream_use(stream))
    }

    /// Throws away what is unread of a stream, and everything but words that comes on it until the
    /// peer resets it. None of it counts against the window or is reported by
    /// [`crate::Event::PartLost`]. Of a use that has ended only what is unread is thrown away.
    pub fn discard(&mut self, id: AssociationId, from: StreamUse) {
        self.act(id, |a| a.discard(from));
    }

    /// Makes short messages with this identifier words, those that are unread included: control
    /// messages about the stream that they come on. They are received by [`Endpoint::receive_word`]
    /// alone, and count against the window until then. A long message of which part was delivered
    /// before its end is none, and on a stream that is discarded only messages of one fragment are.
    ///
    /// To be called when the association is up, and again when the peer has restarted.
    pub fn set_word(&mut self, id: AssociationId, ppid: Ppid) {
        self.act(id, |a| a.set_word(ppid));
    }

    /// The next word of any stream. A word can be received as soon as everything that was sent
    /// before it on the stream has arrived, though that may be unread; on a stream that is
    /// discarded as soon as it has arrived itself.
    pub fn receive_word(&mut self, id: AssociationId) -> Option<Message> {
        self.act(id, Association::receive_word)?
    }
}
