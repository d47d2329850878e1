//! Listeners and groups (RFC 9622 sections 7.2 and 7.4).

use crate::shared::{Handle, Incoming, State};
use crate::waiting::{Place, Turns, Waiting, Who};
use crate::{Connection, ConnectionError, EstablishmentError, EventHandler, GroupId, ListenerId};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use neater_engine::{Delivery, Stack, StreamDirection};
use std::net::SocketAddr;

/// Receives connections over every eligible protocol. Dropping it stops listening; connections that
/// were accepted go on.
#[derive(Debug)]
pub struct Listener {
    handle: Handle,
    id: ListenerId,
    handler: Handler,
    turns: Turns,
}

#[derive(Clone)]
struct Handler(Option<EventHandler>);

impl core::fmt::Debug for Handler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.is_some() { "on_event" } else { "-" })
    }
}

/// What a listener that delivers groups has received.
#[derive(Debug)]
pub enum Accepted {
    /// A connection of a transport without streams.
    Connection(Connection),
    /// A transport connection whose streams come from [`Group::accept`].
    Group(Group),
}

impl Listener {
    pub(crate) fn new(handle: Handle, id: ListenerId, handler: Option<EventHandler>) -> Self {
        Self { handle, id, handler: Handler(handler), turns: Turns::default() }
    }

    /// The next connection (the ConnectionReceived event); `None` when the listener has stopped.
    /// Any number of tasks may wait for one at the same time. What keeps the listener from
    /// accepting for now, such as a lack of descriptors, is reported to the function of
    /// [`crate::Preconnection::on_event`], or to `tracing` if there is none; it is tried again.
    pub fn accept(&self) -> impl Future<Output = Option<Connection>> + Send + '_ {
        Waiting::new(&self.handle, Place::Listener(self.id), |s, who| self.poll_accept_as(s, who))
    }

    /// As [`Listener::accept`], for hand-written futures. Of several that poll by hand, the last is
    /// woken.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Connection>> {
        Who::by_hand(&self.handle, cx, |s, who| self.poll_accept_as(s, who))
    }

    fn poll_accept_as(&self, s: &mut State, who: &mut Who<'_>) -> Poll<Option<Connection>> {
        loop {
            match self.poll_incoming(s, who) {
                Poll::Ready(Some(Incoming::Connection(id))) => {
                    return Poll::Ready(Some(Connection::new(self.handle.clone(), id)));
                }
                // Not requested by the program: an unaccepted group is closed.
                Poll::Ready(Some(Incoming::Group(id))) => {
                    s.engine.close_group(id);
                    s.disown_group(id);
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// The next connection or group, after [`Listener::deliver_groups`].
    pub fn accept_any(&self) -> impl Future<Output = Option<Accepted>> + Send + '_ {
        Waiting::new(&self.handle, Place::Listener(self.id), |s, who| self.poll_accept_any_as(s, who))
    }

    /// As [`Listener::accept_any`], for hand-written futures. Of several that poll by hand, the
    /// last is woken.
    pub fn poll_accept_any(&self, cx: &mut Context<'_>) -> Poll<Option<Accepted>> {
        Who::by_hand(&self.handle, cx, |s, who| self.poll_accept_any_as(s, who))
    }

    fn poll_accept_any_as(&self, s: &mut State, who: &mut Who<'_>) -> Poll<Option<Accepted>> {
        self.poll_incoming(s, who).map(|incoming| {
            incoming.map(|incoming| match incoming {
                Incoming::Connection(id) => Accepted::Connection(Connection::new(self.handle.clone(), id)),
                Incoming::Group(id) => Accepted::Group(Group::new(self.handle.clone(), id)),
            })
        })
    }

    fn poll_incoming(&self, s: &mut State, who: &mut Who<'_>) -> Poll<Option<Incoming>> {
        if self.turns.are_over(who) {
            return Poll::Pending;
        }
        match s.next_incoming(self.id, who) {
            Ok(Some(incoming)) => {
                // A group has had its place since it was reported, for the streams that came with
                // it.
                if let Incoming::Connection(id) = incoming {
                    s.adopt_received(id, self.handler.0.as_ref());
                }
                Poll::Ready(Some(incoming))
            }
            Ok(None) => self.turns.note(Poll::Pending),
            Err(()) => Poll::Ready(None),
        }
    }

    /// Where it listens, and with what.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<(Stack, SocketAddr)> {
        self.handle.with(|s| s.engine.listener_addrs(self.id))
    }

    /// The port number that all protocols share.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.local_addrs().first().map_or(0, |(_, a)| a.port())
    }

    /// The UDP ports at which SCTP is taken (RFC 6951).
    #[must_use]
    pub fn udp_ports(&self) -> Vec<u16> {
        self.handle.with(|s| s.engine.listener_udp_ports(self.id))
    }

    /// How many connections may still be received (`SetNewConnectionLimit`); `None`: any number.
    pub fn set_new_connection_limit(&self, limit: Option<u64>) {
        self.handle.with(|s| s.engine.set_new_connection_limit(self.id, limit));
    }

    /// Where the transport has streams, deliver groups instead of a connection for every stream.
    pub fn deliver_groups(&self, groups: bool) {
        self.handle.with(|s| s.engine.deliver_groups(self.id, groups));
    }

    /// Stops listening. What was received and not accepted can still be accepted. What this
    /// listener has not received yet is refused, with an error: connections in their handshake,
    /// streams that wait for [`Listener::set_new_connection_limit`], and sessions without any
    /// other.
    pub fn stop(&self) {
        self.handle.with(|s| s.engine.stop(self.id));
    }
}

/// The connections that it accepts, as [`Listener::poll_accept`] gives them.
impl futures_core::Stream for Listener {
    type Item = Connection;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Connection>> {
        self.poll_accept(cx)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.with(|s| s.disown_listener(self.id));
    }
}

/// A connection group: the connections that share a transport connection. While it lives, streams
/// that the peer opens are received from it.
#[derive(Debug)]
pub struct Group {
    handle: Handle,
    id: GroupId,
    turns: Turns,
}

impl Group {
    pub(crate) fn new(handle: Handle, id: GroupId) -> Self {
        Self { handle, id, turns: Turns::default() }
    }

    /// The next stream that the peer opened. Any number of tasks may wait for one at the same time.
    ///
    /// # Errors
    /// The session is over, and why.
    pub fn accept(&self) -> impl Future<Output = Result<Connection, ConnectionError>> + Send + '_ {
        Waiting::new(&self.handle, Place::Group(self.id), |s, who| self.poll_accept_as(s, who))
    }

    /// As [`Group::accept`], for hand-written futures. Of several that poll by hand, the last is
    /// woken.
    ///
    /// # Errors
    /// As [`Group::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<Connection, ConnectionError>> {
        Who::by_hand(&self.handle, cx, |s, who| self.poll_accept_as(s, who))
    }

    fn poll_accept_as(&self, s: &mut State, who: &mut Who<'_>) -> Poll<Result<Connection, ConnectionError>> {
        if self.turns.are_over(who) {
            return Poll::Pending;
        }
        match s.next_stream(self.id, who) {
            Some(id) => {
                s.adopt_received(id, None);
                Poll::Ready(Ok(Connection::new(self.handle.clone(), id)))
            }
            None => match s.engine.session_error(self.id) {
                Some(e) => Poll::Ready(Err(e)),
                None => self.turns.note(Poll::Pending),
            },
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// The session is over, or the transport has no streams.
    pub fn open(&self, direction: StreamDirection) -> Result<Connection, EstablishmentError> {
        let id = self.handle.with(|s| {
            let id = s.engine.open_stream(self.id, direction)?;
            s.adopt_opened(id);
            Ok(id)
        })?;
        Ok(Connection::new(self.handle.clone(), id))
    }

    /// Whether the group lives on a transport with streams.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        self.handle.with(|s| s.engine.group_has_streams(self.id))
    }

    /// The stack that carries the session; `None` when that is gone.
    #[must_use]
    pub fn stack(&self) -> Option<Stack> {
        self.handle.with(|s| s.engine.group_stack(self.id))
    }

    /// Whether the session is over: [`Group::accept`] has nothing but an error any more, once the
    /// streams that came before are taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.handle.with(|s| s.engine.session_error(self.id).is_some())
    }

    /// The application protocol agreed on by ALPN.
    #[must_use]
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.handle.with(|s| s.engine.group_alpn(self.id))
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.handle.with(|s| s.engine.group_remote(self.id))
    }

    /// As [`Connection::delivery`], of all streams of the session together; what comes, and what
    /// waits, is not counted.
    #[must_use]
    pub fn delivery(&self) -> Option<Delivery> {
        self.handle.look(|s| s.engine.group_delivery(self.id))
    }

    /// How many connections the group has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handle.with(|s| s.engine.grouped_connections(self.id).len())
    }

    /// Whether the group has no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes all connections of the group gracefully, then the session (`CloseGroup`).
    pub fn close(&self) {
        self.handle.with(|s| s.engine.close_group(self.id));
    }

    /// Aborts all connections of the group (`AbortGroup`).
    pub fn abort(&self) {
        self.handle.with(|s| s.engine.abort_group(self.id));
    }

    /// Ends the session at once with an application error code and a few words for the peer.
    pub fn close_session(&self, code: u64, reason: &[u8]) {
        let wakers = self.handle.with(|s| {
            s.engine.close_session(self.id, code, reason);
            s.wake_group(self.id)
        });
        for w in wakers {
            w.wake();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.handle.with(|s| s.disown_group(self.id));
    }
}
