//! What a program needs that keeps associations for others: an engine, whose connections are
//! streams.

use super::Endpoint;
use crate::association::Association;
use crate::error::SendError;
use crate::event::CloseReason;
use crate::ids::{AssociationId, MessageId, Route};
use crate::send::SendOptions;
use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::StreamId;

impl Endpoint {
    /// Our SCTP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.config.port
    }

    /// Lets an endpoint without associations answer for another SCTP port: one for all the ports of
    /// a UDP socket that are not in use.
    pub const fn set_port(&mut self, port: u16) {
        self.config.port = port;
    }

    /// Whether associations that peers open are taken from now on. Those that are there go on.
    pub const fn set_accept(&mut self, accept: bool) {
        self.config.accept = accept;
    }

    /// Whether packets that belong to no association are left to others: see
    /// [`crate::Config::reserved`].
    pub const fn set_reserved(&mut self, reserved: bool) {
        self.config.reserved = reserved;
    }

    /// Whether a packet belongs to an association here: its verification tag is one of ours.
    #[must_use]
    pub fn owns(&self, packet: &[u8]) -> bool {
        let tag = packet.get(4..8).map(|t| u32::from_be_bytes([t[0], t[1], t[2], t[3]]));
        tag.is_some_and(|tag| self.index.by_tag(neater_sctp_wire::Tag(tag)).is_some())
    }

    /// Whether there is an association with the peer's SCTP port `port` there.
    #[must_use]
    pub fn is_peer(&self, route: Route, port: u16) -> bool {
        self.index.by_peer(route.remote, port).is_some()
    }

    /// Where the packets of an association go first, and the peer's SCTP port.
    #[must_use]
    pub fn peer(&self, id: AssociationId) -> Option<(Route, u16)> {
        let association = self.live(id)?;
        Some((association.current_route(), association.peer_port()))
    }

    /// Whether an association is over, or unknown; its last events may still be to come.
    #[must_use]
    pub fn is_over(&self, id: AssociationId) -> bool {
        self.live(id).is_none_or(Association::is_closed)
    }

    /// Whether this side or the peer has shut the association down and the peer has acknowledged
    /// everything: only SHUTDOWN ACK or SHUTDOWN COMPLETE is missing (RFC 9260 section 9.2). No
    /// data is lost if the layer below ends then.
    #[must_use]
    pub fn is_shut(&self, id: AssociationId) -> bool {
        self.live(id).is_some_and(Association::is_shut)
    }

    /// Ends an association whose layer below is gone, such as a DTLS session that the peer has
    /// closed: nothing is sent. Events that wait come first, then what was not acknowledged is
    /// reported as failed, and [`crate::Event::Closed`] with this reason is the last. What had
    /// arrived can still be read. Nothing happens if the association is over.
    pub fn end(&mut self, id: AssociationId, reason: CloseReason) {
        self.act(id, |a| a.end(reason));
    }

    /// Whether everything that was sent on an outbound stream is acknowledged, or given up; true if
    /// there is no such association, and false if it is over or not the one that the program knows.
    #[must_use]
    pub fn is_stream_idle(&self, id: AssociationId, stream: StreamId) -> bool {
        self.live(id).is_none_or(|a| !a.is_closed() && !a.is_another() && a.is_stream_idle(stream))
    }

    /// How many bytes of what was received the program keeps in queues of its own: the window that
    /// the peer is given shrinks by that much.
    pub fn set_held(&mut self, id: AssociationId, bytes: usize) {
        self.act(id, |a| a.set_held(bytes));
    }

    /// As [`Endpoint::send`], and [`SendError::Blocked`] does not happen: for a short word without
    /// which what was sent would mean something else. How many of them there can be is the
    /// program's business.
    ///
    /// # Errors
    /// See [`SendError`]; the word was then not taken.
    pub fn send_word(
        &mut self,
        id: AssociationId,
        stream: StreamId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<MessageId, SendError> {
        self.act(id, |a| a.send_word(stream, payload, options)).unwrap_or(Err(SendError::Closed))
    }

    /// How many bytes may wait to be sent or acknowledged from now on;
    /// [`crate::AssociationConfig::send_buffer`] until it is set.
    pub fn set_send_buffer(&mut self, id: AssociationId, bytes: usize) {
        self.act(id, |a| a.set_send_buffer(bytes));
    }

    /// The association is over ([`crate::CloseReason::Unreachable`]) when data has been outstanding
    /// for so long and none of it was acknowledged, even if the limits on retransmissions would let
    /// it wait longer; `None`, as at first: they alone decide. A peer that answers and keeps its
    /// window closed is waited for (RFC 9260 section 6.1, rule A).
    pub fn set_patience(&mut self, id: AssociationId, patience: Option<Duration>) {
        self.act(id, |a| a.set_patience(patience));
    }

    /// The association is over ([`crate::CloseReason::Unreachable`]) when it is up and nothing at
    /// all has come of the peer for so long. Heartbeats must be more frequent than that, and are
    /// answered by every peer; `None`, as at first:
    /// [`crate::AssociationConfig::max_association_retransmits`] of them may be lost, which takes
    /// minutes.
    pub fn set_silence(&mut self, now: Instant, id: AssociationId, silence: Option<Duration>) {
        self.act(id, |a| a.set_silence(now, silence));
    }

    /// The layer takes SCTP packets of so many bytes on the way to this peer, more or less than was
    /// configured: what DTLS adds depends on the version that is agreed on. Longer packets are sent
    /// when a probe of that length has arrived.
    pub fn set_largest_packet(&mut self, id: AssociationId, size: u16) {
        self.largest = self.largest.max(usize::from(size));
        self.act(id, |a| a.set_largest_packet(size));
    }

    /// The congestion window of the path that data goes, in bytes. Where several are used for what
    /// they carry together: what leaves on all of them while the slowest takes a round trip.
    #[must_use]
    pub fn window(&self, id: AssociationId) -> u64 {
        self.live(id).map_or(0, Association::window)
    }
}
