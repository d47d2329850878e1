//! Connections (RFC 9622 sections 8 to 10).

use crate::message::Stated;
use crate::shared::{Handle, State, Wait};
use crate::waiting::{Place, Turns, Waiting, Who};
use crate::{
    ByteStream, Carrier, ConnectionError, ConnectionState, EstablishmentError, EventHandler, Group, Message,
    MessageContext, SendError, SetPropertyError, Value,
};
use bytes::Bytes;
use core::future::Future;
use core::task::{Context, Poll};
use neater_base::net::NetError;
use neater_engine::{
    CandidateOutcome, ConnectionId, ConnectionStats, Delivery, EndpointChange, EndpointError, Event, LocalEndpoint,
    MessageId, PathInfo, Reason, ReceiveOutcome, Received, SendOptions, ServiceOutcome, Stack, StreamDirection,
    TimelineEntry,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection: messages in, messages out, over whichever transport was chosen.
///
/// All methods take `&self` and may be called from any thread, and any number of tasks may wait on
/// one connection: each is woken when there may be something for it. Dropping the connection closes
/// it gracefully: what was sent is still delivered, and the socket is released then.
///
/// Every future here is cancel-safe: dropping one loses nothing and takes nothing.
///
/// A task that never has to wait lets others have their turn all the same: after 128 messages in a
/// row, sent or received, a future is pending although it need not be, and wakes its task at once.
pub struct Connection {
    handle: Handle,
    id: ConnectionId,
    turns: Turns,
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Connection({:?})", self.id)
    }
}

/// A message of its own, and all of it.
const WHOLE: (bool, bool) = (true, true);

impl Connection {
    pub(crate) fn new(handle: Handle, id: ConnectionId) -> Self {
        Self { handle, id, turns: Turns::default() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The connection's id in its engine: stable, and never used again while the engine lives.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// As [`Connection::ready`], for hand-written futures. Of several that poll by hand, the last
    /// is woken.
    ///
    /// # Errors
    /// As [`Connection::ready`].
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), EstablishmentError>> {
        self.handle.look(|s| self.poll_ready_as(s, &mut Who::new(cx.waker(), None)))
    }

    #[inline]
    fn poll_ready_as(&self, s: &mut State, who: &mut Who<'_>) -> Poll<Result<(), EstablishmentError>> {
        let Some(slot) = s.slot(self.id) else {
            return Poll::Ready(Err(s.engine.unusable().map_or_else(cancelled, not_usable)));
        };
        match &slot.outcome {
            Some(Ok(())) => Poll::Ready(Ok(())),
            Some(Err(e)) => Poll::Ready(Err((**e).clone())),
            None if slot.ended.is_some() => Poll::Ready(Err(cancelled())),
            None => {
                if let Some(e) = s.engine.unusable() {
                    return Poll::Ready(Err(not_usable(e)));
                }
                s.wait_as(self.id, Wait::Changed, who);
                Poll::Pending
            }
        }
    }

    /// A future that waits at this connection.
    fn waiting<T, F>(&self, ask: F) -> Waiting<'_, F>
    where
        F: FnMut(&mut State, &mut Who<'_>) -> Poll<T> + Unpin,
    {
        Waiting::new(&self.handle, Place::Connection(self.id), ask)
    }

    /// Waits until the connection is ready (the Ready event).
    ///
    /// # Errors
    /// The EstablishmentError event, with every candidate and what became of it.
    pub fn ready(&self) -> impl Future<Output = Result<(), EstablishmentError>> + Send + '_ {
        self.waiting(|s, who| self.poll_ready_as(s, who))
    }

    /// Sends a message. Ends when the connection has taken it: from then on it is delivered, or
    /// reported by an event as unsent. While the send buffer is full, it waits.
    ///
    /// # Errors
    /// The message cannot be sent, and why; the connection may go on.
    pub fn send(&self, data: impl Into<Bytes>) -> impl Future<Output = Result<MessageId, SendError>> + Send + '_ {
        self.send_part(data.into(), Stated::default(), WHOLE)
    }

    /// Sends a message with properties. Its lifetime, if it has one, counts from here on, while it
    /// waits for room, too.
    ///
    /// # Errors
    /// As [`Connection::send`]; [`SendError::Expired`] if there was no room for it in its lifetime.
    pub fn send_with(
        &self,
        data: impl Into<Bytes>,
        context: &MessageContext,
    ) -> impl Future<Output = Result<MessageId, SendError>> + Send + '_ {
        self.send_part(data.into(), context.stated(), WHOLE)
    }

    /// Sends a part of a message (RFC 9622 section 9.2.3). Parts belong together until one has
    /// `end_of_message`; until then no other message can be sent where messages have boundaries.
    ///
    /// # Errors
    /// As [`Connection::send`]; datagrams cannot be sent in parts.
    pub fn send_partial(
        &self,
        data: impl Into<Bytes>,
        context: &MessageContext,
        end_of_message: bool,
    ) -> impl Future<Output = Result<MessageId, SendError>> + Send + '_ {
        self.send_part(data.into(), context.stated(), (false, end_of_message))
    }

    fn send_part(
        &self,
        data: Bytes,
        stated: Stated,
        (begins, end_of_message): (bool, bool),
    ) -> impl Future<Output = Result<MessageId, SendError>> + Send + '_ {
        // When the message is pointless: its lifetime counts from here on, not from when there is
        // room.
        let mut until = None;
        self.waiting(move |s, who| {
            if self.turns.are_over(who) {
                return Poll::Pending;
            }
            let options = SendOptions { begins, end_of_message, ..stated.over(s.engine.message_defaults(self.id)) };
            let mut now = options;
            if let (Some(_), Some(lifetime)) = (until, options.lifetime) {
                match s.engine.lifetime_left(self.id, lifetime, &mut until) {
                    None => return Poll::Ready(Err(SendError::Expired)),
                    left => now.lifetime = left,
                }
            }
            self.turns.note(match s.engine.send(self.id, data.clone(), now) {
                Err(SendError::Blocked { .. }) => {
                    if let (None, Some(lifetime)) = (until, options.lifetime) {
                        let _ = s.engine.lifetime_left(self.id, lifetime, &mut until);
                    }
                    s.wait_as(self.id, Wait::Writable, who);
                    Poll::Pending
                }
                done => Poll::Ready(done),
            })
        })
    }

    /// Sends a message if there is room for it now.
    ///
    /// # Errors
    /// [`SendError::Blocked`] if there is not, and nothing was taken.
    pub fn try_send(&self, data: impl Into<Bytes>, context: &MessageContext) -> Result<MessageId, SendError> {
        let data = data.into();
        self.handle.with(|s| {
            let options = context.stated().over(s.engine.message_defaults(self.id));
            s.engine.send(self.id, data, SendOptions { begins: true, ..options })
        })
    }

    /// Sends a part of a message if there is room for it now: as [`Connection::send_partial`],
    /// without waiting.
    ///
    /// # Errors
    /// [`SendError::Blocked`] if there is not, and nothing was taken; others as of
    /// [`Connection::send_partial`].
    pub fn try_send_partial(
        &self,
        data: impl Into<Bytes>,
        context: &MessageContext,
        end_of_message: bool,
    ) -> Result<MessageId, SendError> {
        let data = data.into();
        self.handle.with(|s| {
            let options = context.stated().over(s.engine.message_defaults(self.id));
            s.engine.send(self.id, data, SendOptions { begins: false, end_of_message, ..options })
        })
    }

    /// Hints that several sends follow, which may be put together (RFC 9622 section 9.2.4).
    pub fn start_batch(&self) {
        self.handle.with(|s| s.engine.start_batch(self.id));
    }

    /// The batch is complete: send it.
    pub fn end_batch(&self) {
        self.handle.with(|s| s.engine.end_batch(self.id));
    }

    /// Receives the next whole message; `None` when the peer will send no more. A byte stream
    /// without framer has no boundaries, so whatever has arrived is delivered, with
    /// `end_of_message` false.
    ///
    /// # Errors
    /// Why the connection is over. A message of more than 64 MB is an error here, again and again,
    /// and stays until [`Connection::receive_partial`] has taken it.
    pub fn receive(&self) -> impl Future<Output = Result<Option<Message>, ConnectionError>> + Send + '_ {
        self.waiting(|s, who| self.poll_receive_as(s, who, usize::MAX, true))
    }

    /// Receives what has arrived of the next message, at most `max` bytes of a byte stream (and at
    /// least one); `None` when the peer will send no more. What a [`Connection::receive`] that was
    /// given up had gathered comes first. Where the connection is a whole SCTP association, parts
    /// of several messages may alternate: [`MessageContext::message_number`] distinguishes them.
    ///
    /// # Errors
    /// Why the connection is over.
    pub fn receive_partial(
        &self,
        max: usize,
    ) -> impl Future<Output = Result<Option<Message>, ConnectionError>> + Send + '_ {
        self.waiting(move |s, who| self.poll_receive_as(s, who, max, false))
    }

    /// As [`Connection::receive`], for hand-written futures. Of several that poll by hand, the last
    /// is woken.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        max: usize,
        whole: bool,
    ) -> Poll<Result<Option<Message>, ConnectionError>> {
        Who::by_hand(&self.handle, cx, |s, who| self.poll_receive_as(s, who, max, whole))
    }

    fn poll_receive_as(
        &self,
        s: &mut State,
        who: &mut Who<'_>,
        max: usize,
        whole: bool,
    ) -> Poll<Result<Option<Message>, ConnectionError>> {
        loop {
            if self.turns.are_over(who) {
                return Poll::Pending;
            }
            if let Some(gathered) = s.gathered(self.id)
                && let Some(answer) = gathered.take(max, whole)
            {
                return Poll::Ready(answer.map(|part| Some(self.message(s, part))));
            }
            let outcome = match s.engine.receive(self.id, max) {
                Ok(o) => o,
                Err(e) => return Poll::Ready(Err(e)),
            };
            let part = match outcome {
                ReceiveOutcome::Blocked => {
                    s.wait_as(self.id, Wait::Readable, who);
                    return self.turns.note(Poll::Pending);
                }
                ReceiveOutcome::End => return Poll::Ready(Ok(None)),
                ReceiveOutcome::Received(r) => r,
            };
            // The end of a raw byte stream is an empty, final part: to a program that is simply the
            // end.
            let bytes = part.ecn.is_none() && !s.engine.stack(self.id).is_some_and(Stack::is_sctp);
            let raw = bytes && !s.engine.request(self.id).is_some_and(|r| r.framer().frames());
            if raw && part.data.is_empty() && part.is_final {
                return Poll::Ready(Ok(None));
            }
            let Some(slot) = s.slot(self.id) else { return Poll::Ready(Err(ConnectionError::Closed)) };
            if whole && !raw && (!part.end_of_message || slot.has_gathered()) {
                let data = slot.rare().gathered.add(part);
                s.discard_data(data);
                continue;
            }
            return Poll::Ready(Ok(Some(self.message(s, part))));
        }
    }

    fn message(&self, s: &mut State, part: Received) -> Message {
        let (remote, local) = (s.engine.remote_addr(self.id), s.engine.local_addr(self.id));
        let context = MessageContext::received(remote, local, &part);
        Message { data: part.data, context, end_of_message: part.end_of_message }
    }

    /// Ends this side's direction: what was sent is delivered, and the peer sees the end
    /// (half-close). Receiving goes on.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn finish(&self) -> Result<(), SendError> {
        self.handle.with(|s| s.engine.finish(self.id))
    }

    /// Closes the connection gracefully and waits until the peer has acknowledged everything that
    /// was sent. What the peer still sends is thrown away. Dropping the future does not stop the
    /// closing.
    ///
    /// # Errors
    /// The connection failed first, the peer has not answered within ten seconds of the last
    /// progress, or it has answered and taken nothing for five minutes (ten seconds, where room is
    /// short): what was sent may not have been delivered.
    pub async fn close(&self) -> Result<(), ConnectionError> {
        self.handle.with(|s| s.engine.close(self.id));
        self.closed().await
    }

    /// Waits until the connection is over, from whichever side.
    ///
    /// # Errors
    /// The error that ended it, if one did.
    pub fn closed(&self) -> impl Future<Output = Result<(), ConnectionError>> + Send + '_ {
        self.waiting(|s, who| {
            let Some(slot) = s.slot(self.id) else {
                return Poll::Ready(s.engine.unusable().map_or(Ok(()), |e| Err(ConnectionError::Net(e))));
            };
            if let Some(ended) = &slot.ended {
                return Poll::Ready(ended.clone().map_err(|e| *e));
            }
            if matches!(slot.outcome, Some(Err(_))) {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
            if let Some(e) = s.engine.unusable() {
                return Poll::Ready(Err(ConnectionError::Net(e)));
            }
            s.wait_as(self.id, Wait::Changed, who);
            Poll::Pending
        })
    }

    /// Ends the connection at once; nothing more is delivered, and the peer is notified where the
    /// protocol can.
    pub fn abort(&self) {
        self.handle.with(|s| s.engine.abort(self.id));
    }

    /// As [`Connection::abort`], with an application error code where the protocol has them (QUIC).
    pub fn abort_with(&self, code: u64) {
        self.handle.with(|s| s.engine.abort_with(self.id, code));
    }

    /// Refuses what the peer may still send, with an application error code where the protocol has
    /// them (QUIC).
    pub fn stop_receiving(&self, code: u64) {
        self.handle.with(|s| s.engine.stop_receiving(self.id, code));
    }

    /// Abandons the sending direction, with an application error code where the protocol has them
    /// (QUIC, SCTP). TCP and TLS cannot: there the connection is aborted, unless everything was
    /// sent, because the peer would take a part for the whole. While the connection is being
    /// established, the reset follows at the end of that.
    pub fn reset_sending(&self, code: u64) {
        self.handle.with(|s| s.engine.reset_sending(self.id, code));
    }

    /// Adds a connection to this one's group (`Clone` of RFC 9622 section 7.4): a stream where the
    /// transport has them, another transport connection otherwise. Returns it in state Establishing
    /// or Established; see [`Connection::ready`].
    ///
    /// # Errors
    /// This connection is not established, or cannot be cloned.
    pub fn clone_connection(&self) -> Result<Connection, EstablishmentError> {
        self.clone_in_direction(StreamDirection::Both)
    }

    /// As [`Connection::clone_connection`]; [`StreamDirection::One`] asks for a stream that only
    /// this side sends on.
    ///
    /// # Errors
    /// As [`Connection::clone_connection`]; also when the transport has no one-way streams.
    pub fn clone_in_direction(&self, direction: StreamDirection) -> Result<Connection, EstablishmentError> {
        let id = self.handle.with(|s| {
            let id = s.engine.clone_connection(self.id, direction)?;
            s.adopt_opened(id);
            Ok(id)
        })?;
        Ok(Connection::new(self.handle.clone(), id))
    }

    /// The group of this connection. While the result lives, streams that the peer opens come to
    /// it.
    ///
    /// # Errors
    /// The connection is over.
    pub fn group(&self) -> Result<Group, ConnectionError> {
        let id = self.handle.with(|s| {
            let id = s.engine.group(self.id)?;
            s.adopt_group(id);
            Ok(id)
        })?;
        Ok(Group::new(self.handle.clone(), id))
    }

    /// The connection as a stream of bytes.
    ///
    /// # Errors
    /// The connection carries datagrams or has a message framer; it comes back unharmed.
    pub fn into_bytes(self) -> Result<ByteStream, (Self, ConnectionError)> {
        let fit = self.handle.look(|s| s.engine.check_bytes(self.id));
        match fit {
            Ok(()) => Ok(ByteStream::new(self)),
            Err(e) => Err((self, e)),
        }
    }

    /// The events of this connection from now on, Readable and Writable left out; `None` after the
    /// last. Up to 1,024 are kept for a subscriber that is slow; the oldest are dropped then.
    pub fn next_event(&self) -> impl Future<Output = Option<Event>> + Send + '_ {
        self.waiting(|s, who| {
            let Some(slot) = s.slot(self.id) else { return Poll::Ready(None) };
            let over = slot.ended.is_some() || matches!(slot.outcome, Some(Err(_)));
            let rare = slot.rare();
            rare.subscribed = true;
            match rare.events.pop_front() {
                Some(e) => Poll::Ready(Some(e)),
                None if over || s.engine.unusable().is_some() => Poll::Ready(None),
                None => {
                    s.wait_as(self.id, Wait::Event, who);
                    Poll::Pending
                }
            }
        })
    }

    /// Calls `handler` with every event of this connection from now on, in place of the function
    /// that was set before; see [`Preconnection::on_event`](crate::Preconnection::on_event). For
    /// connections that were received, cloned or opened as streams, whose events are reported to no
    /// function else. What has become of the connection already comes first: that it is ready,
    /// could not be established, or is over.
    pub fn on_event(&self, handler: impl Fn(&Event) + Send + Sync + 'static) {
        let handler: EventHandler = Arc::new(handler);
        self.handle.with(|s| s.report_to(self.id, &handler));
    }

    /// The state (`connState`).
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.handle.with(|s| s.engine.state(self.id))
    }

    /// The protocol stack that was chosen, once it was.
    #[must_use]
    pub fn stack(&self) -> Option<Stack> {
        self.handle.with(|s| s.engine.stack(self.id))
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.handle.with(|s| s.engine.remote_addr(self.id))
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.handle.with(|s| s.engine.local_addr(self.id))
    }

    /// The application protocol agreed on by ALPN.
    #[must_use]
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.handle.with(|s| s.engine.alpn(self.id))
    }

    /// The security protocol in use, in words; `None` in the clear.
    #[must_use]
    pub fn security(&self) -> Option<String> {
        self.handle.with(|s| s.engine.security(self.id))
    }

    /// The paths of the transport below, with what is known of each: several where an SCTP
    /// association has them (`multipath`, RFC 9622 section 6.2.14), else the only one.
    /// [`Event::PathChange`] reports that something about them has changed.
    #[must_use]
    pub fn paths(&self) -> Vec<PathInfo> {
        self.handle.with(|s| s.engine.paths(self.id))
    }

    /// Uses one more address of the peer's, which it has not named itself (RFC 9622 section 7.5).
    /// The port is the one below the transport: of UDP where SCTP is encapsulated, 0 for the one in
    /// use. Data goes there after the peer has answered from there; [`Event::PathChange`] reports
    /// that, and [`Connection::paths`] shows it. One that is known already changes nothing.
    ///
    /// # Errors
    /// [`EndpointError::OnePath`] unless SCTP carries the connection and `multipath` allows it; see
    /// [`EndpointError`] for the others.
    pub fn add_remote(&self, remote: SocketAddr) -> Result<(), EndpointError> {
        self.change_endpoints(&EndpointChange::AddRemote(remote))
    }

    /// Uses an address of the peer's no more, and believes nothing that comes from there. The peer
    /// is not notified, because RFC 5061 lets each side delete its own addresses alone (section
    /// 4.2.2): it goes on sending from there until its path has failed for want of answers.
    ///
    /// # Errors
    /// [`EndpointError::Last`] if no other path has been found to work; see [`EndpointError`] for
    /// the others.
    pub fn remove_remote(&self, remote: SocketAddr) -> Result<(), EndpointError> {
        self.change_endpoints(&EndpointChange::RemoveRemote(remote))
    }

    /// Uses one more interface or address of this host (RFC 9622 section 7.5). A client opens a
    /// path from there and asks the peer to use it (RFC 5061). The connection of a listener names
    /// the address to its client, so it has to lead here from everywhere. An interface that policy
    /// prohibits is refused.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn add_local(&self, local: &LocalEndpoint) -> Result<(), EndpointError> {
        self.change_endpoints(&EndpointChange::AddLocal(local.clone()))
    }

    /// Uses an interface or address of this host no more, also when it comes again, until it is
    /// added.
    ///
    /// # Errors
    /// [`EndpointError::Last`] if no other path has been found to work; see [`EndpointError`] for
    /// the others.
    pub fn remove_local(&self, local: &LocalEndpoint) -> Result<(), EndpointError> {
        self.change_endpoints(&EndpointChange::RemoveLocal(local.clone()))
    }

    fn change_endpoints(&self, change: &EndpointChange) -> Result<(), EndpointError> {
        self.handle.with(|s| s.engine.change_endpoints(self.id, change))
    }

    /// The peer's certificates, leaf first, in DER.
    #[must_use]
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.handle.with(|s| s.engine.peer_certificates(self.id))
    }

    /// How the race went: every candidate and what became of it. Empty when the outcome of an
    /// earlier race was used.
    #[must_use]
    pub fn candidates(&self) -> Vec<CandidateOutcome> {
        self.handle.with(|s| s.engine.candidates(self.id))
    }

    /// What carries this connection, for reports of how it served; `None` if it is not established,
    /// or was not initiated here.
    #[must_use]
    pub fn carrier(&self) -> Option<Carrier> {
        let carrier = self.handle.with(|s| s.engine.carrier(self.id))?;
        Some(Carrier::new(self.handle.clone(), self.id, carrier))
    }

    /// Reports how this connection has served: see [`Carrier::report`]. Of one without a
    /// [carrier](Connection::carrier) nothing is remembered. The connection goes on.
    pub fn report(&self, outcome: ServiceOutcome) {
        if let Some(carrier) = self.carrier() {
            carrier.report(outcome);
        }
    }

    /// The steps of establishment.
    #[must_use]
    pub fn timeline(&self) -> Vec<TimelineEntry> {
        self.handle.with(|s| s.engine.timeline(self.id))
    }

    /// Figures of this connection.
    #[must_use]
    pub fn stats(&self) -> Option<ConnectionStats> {
        self.handle.with(|s| s.engine.connection_stats(self.id))
    }

    /// How far what was sent has come: what of it the peer has acknowledged, and not only what the
    /// system has taken. `None` when nothing carries the connection any more, or what does keeps no
    /// such figures.
    #[must_use]
    pub fn delivery(&self) -> Option<Delivery> {
        self.handle.look(|s| s.engine.delivery(self.id))
    }

    /// The number of the stream on the wire, where the connection is a stream of QUIC.
    #[must_use]
    pub fn stream_number(&self) -> Option<u64> {
        self.handle.with(|s| s.engine.stream_number(self.id))
    }

    /// Reads a property by the name that RFC 9622 gives it; `None` if there is none of that name.
    /// Selection Properties of type Preference read as what was asked for until a stack is chosen,
    /// and as Booleans then: what that stack really does (section 6.2).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        self.handle.with(|s| s.engine.get_property(self.id, name))
    }

    /// Sets a Connection Property by name (RFC 9622 section 8). It holds for all connections of the
    /// group, except `connPriority`. Selection Properties cannot be changed any more. A Message
    /// Property is a default for the messages that are sent on this connection alone, from the next
    /// one on.
    ///
    /// # Errors
    /// There is no such property, it cannot be set on a connection or on this transport, or the
    /// value is out of range. The connection goes on in any case.
    pub fn set(&self, name: &str, value: impl Into<Value>) -> Result<(), SetPropertyError> {
        let value = value.into();
        self.handle.with(|s| s.engine.set_property(self.id, name, &value))
    }
}

/// The error of a call on an engine without a driver, or in a child of `fork`.
fn not_usable(e: NetError) -> EstablishmentError {
    never_ready(Reason::EstablishmentFailed, e.kind.as_str())
}

fn cancelled() -> EstablishmentError {
    never_ready(Reason::Cancelled, "the connection was closed before it was ready")
}

fn never_ready(reason: Reason, message: &str) -> EstablishmentError {
    EstablishmentError {
        reason,
        message: message.into(),
        candidates: Vec::new(),
        excluded: Vec::new(),
        resolution: Vec::new(),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.handle.with(|s| {
            s.disown(self.id);
            s.engine.release(self.id);
        });
    }
}
