//! What a group needs of its session: streams that are opened and accepted, and the session's end.
//!
//! *Responsible for* the answers of each carrier. *Not responsible for* the members of a group, nor
//! for which of them gets a stream ([`crate::group`]).

use super::quic::DEFAULT_PRIORITY;
use super::sctp::Waiter;
use super::{Carriers, FlowId, SessionId};
use crate::Stack;
use crate::carrier::terms::SessionOver;
use crate::carrier::terms::{Arrived, Cloning, OpenedStream, Taken};
use crate::closing::ABORTED;
use crate::context::Context;
use crate::event::{ConnectionError, EstablishmentError, Reason};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, Direction};
use std::net::SocketAddr;
use std::sync::Arc;

impl Carriers {
    /// A connection accepts a peer's session that carries one alone. Returns its flow, and another
    /// connection, which the peer has lost: it has come back to its address without knowing of it.
    pub(crate) fn accept<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        session: SessionId,
        conn: Key,
    ) -> (FlowId, Option<Key>) {
        match session {
            SessionId::Dtls(dtls) => (FlowId::Dtls { dtls }, self.dtls.accept(cx, dtls, conn)),
            SessionId::Channel(k) => {
                self.sockets.hand_over(k, conn);
                (FlowId::Channel(k), None)
            }
            SessionId::Quic(_) | SessionId::Sctp(_) => (FlowId::None, None),
        }
    }

    /// How a connection that is carried by this can be cloned.
    pub(crate) fn cloning(&self, flow: FlowId) -> Cloning {
        match flow {
            FlowId::Stream { quic, .. } => Cloning::Stream(SessionId::Quic(quic)),
            FlowId::Sctp { sctp, .. } if self.has_streams(SessionId::Sctp(sctp)) => {
                Cloning::Stream(SessionId::Sctp(sctp))
            }
            FlowId::Datagrams { .. } | FlowId::Peer { .. } => Cloning::Never,
            _ => Cloning::Connection,
        }
    }

    /// The group that a session belongs to.
    pub(crate) fn group_of(&self, session: SessionId) -> Option<Key> {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k)?.group,
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.group,
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The sessions of all groups, each with its group.
    pub(crate) fn grouped_sessions(&self) -> impl Iterator<Item = (SessionId, Key)> {
        let quic = self.quic.connections.iter().filter_map(|(k, q)| Some((SessionId::Quic(k), q.group?)));
        quic.chain(self.sctp.associations.iter().filter_map(|(k, a)| Some((SessionId::Sctp(k), a.group?))))
    }

    /// Whether a session is gone, or takes no more streams because it ends.
    pub(crate) fn is_lost(&self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k).is_none_or(|q| q.lost.is_some()),
            SessionId::Sctp(k) => self.sctp.associations.get(k).is_none_or(|a| a.lost.is_some()),
            SessionId::Channel(_) | SessionId::Dtls(_) => true,
        }
    }

    /// Why a session is over, if it is.
    pub(crate) fn session_error(&self, session: SessionId) -> Option<ConnectionError> {
        match session {
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.lost.clone().map(ConnectionError::Sctp),
            SessionId::Quic(k) => match self.quic.connections.get(k) {
                Some(q) => q.lost.clone().map(ConnectionError::Quic),
                None => Some(ConnectionError::Closed),
            },
            SessionId::Channel(_) | SessionId::Dtls(_) => Some(ConnectionError::Closed),
        }
    }

    /// Whether streams of the session are connections.
    pub(crate) fn has_streams(&self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(_) => true,
            SessionId::Sctp(k) => self.sctp.associations.get(k).is_some_and(|a| a.mux),
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// The stack that carries a session.
    pub(crate) fn session_stack(&self, session: SessionId) -> Option<Stack> {
        match session {
            SessionId::Quic(k) => Some(self.quic.connections.get(k)?.stack),
            SessionId::Sctp(k) => Some(self.sctp.associations.get(k)?.stack),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The application protocol that both sides of a session have agreed on.
    pub(crate) fn session_alpn(&self, session: SessionId) -> Option<Vec<u8>> {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k)?.conn.alpn(),
            _ => None,
        }
    }

    /// The peer's address of a session.
    pub(crate) fn session_remote(&self, session: SessionId) -> Option<SocketAddr> {
        match session {
            SessionId::Quic(k) => Some(self.quic.connections.get(k)?.conn.remote()),
            SessionId::Sctp(k) => Some(self.sctp.associations.get(k)?.remote),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// A number that grows with what the peer has acknowledged on all streams of a session.
    pub(crate) fn session_acknowledged(&self, session: SessionId) -> Option<u64> {
        match session {
            SessionId::Quic(k) => Some(self.quic.connections.get(k)?.conn.acknowledged()),
            SessionId::Sctp(k) => Some(self.sctp.acknowledged(k)),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// Opens a stream of a session, or finds that it has to wait until the peer allows another one:
    /// see [`FlowId::waits_on`].
    pub(crate) fn open_stream(
        &mut self,
        session: SessionId,
        direction: Direction,
    ) -> Result<OpenedStream, EstablishmentError> {
        match session {
            SessionId::Quic(quic) => {
                let Some(q) = self.quic.connections.get_mut(quic).filter(|q| q.connected && q.lost.is_none()) else {
                    let why = "the QUIC connection is over";
                    return Err(EstablishmentError::new(Reason::EstablishmentFailed, why));
                };
                let stream = q.conn.open(direction);
                let flow = stream.map_or(FlowId::StreamPending { quic }, |stream| FlowId::Stream { quic, stream });
                Ok(OpenedStream { flow, stack: q.stack, request: q.request.clone(), remotes: q.remotes.clone() })
            }
            SessionId::Sctp(sctp) => self.sctp.open_stream(sctp, direction),
            SessionId::Channel(_) | SessionId::Dtls(_) => Err(EstablishmentError::new(
                Reason::InvalidConfiguration,
                "the group's transport is gone, or has no streams",
            )),
        }
    }

    /// Opens a stream for a connection that has waited for it, if the peer allows one.
    pub(crate) fn open_waiting(&mut self, session: SessionId, direction: Direction) -> Option<FlowId> {
        match session {
            SessionId::Quic(quic) => {
                let stream = self.quic.connections.get_mut(quic)?.conn.open(direction)?;
                Some(FlowId::Stream { quic, stream })
            }
            SessionId::Sctp(sctp) => {
                let stream = self.sctp.free_stream(sctp)?;
                Some(FlowId::Sctp { sctp, stream })
            }
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The next stream that the peer of a session has opened, and its direction.
    pub(crate) fn accept_stream(&mut self, session: SessionId) -> Option<(OpenedStream, Direction)> {
        match session {
            SessionId::Quic(k) => self.quic.accept_stream(k),
            SessionId::Sctp(k) => self.sctp.accept_stream(k).map(|stream| (stream, Direction::Both)),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// A stream of the peer's that no connection is made for. Returns its session if that has ended
    /// with it.
    pub(crate) fn refuse_stream<N: Net>(&mut self, cx: &Context<N>, flow: FlowId) -> Option<SessionOver> {
        match flow {
            FlowId::Stream { quic, stream } => self.quic.refuse_stream(quic, stream),
            FlowId::Sctp { sctp, stream } => return self.sctp.refuse_stream(cx, sctp, stream),
            _ => {}
        }
        None
    }

    /// A connection uses this stream from now on, with this priority.
    pub(crate) fn bind<N: Net>(&mut self, cx: &mut Context<N>, flow: FlowId, conn: Key, priority: u32) {
        match flow {
            FlowId::Stream { quic, stream } => {
                self.quic.bind(cx, quic, stream, conn);
                if priority != DEFAULT_PRIORITY {
                    self.set_priority(flow, priority);
                }
            }
            FlowId::Sctp { sctp, stream } => self.sctp.bind(sctp, stream, conn, priority),
            _ => {}
        }
    }

    /// An attempt has won: its session belongs to this group, and carries this connection.
    pub(crate) fn take_session(&mut self, session: SessionId, group: Key, conn: Key) -> Option<Taken> {
        match session {
            SessionId::Quic(k) => self.quic.take(k, group, conn),
            SessionId::Sctp(sctp) => {
                let (stream, first) = self.sctp.take(sctp, group)?;
                Some(Taken { flow: FlowId::Sctp { sctp, stream }, waits: None, first })
            }
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// How a session begins that has come to a listener; `None`: it is over.
    pub(crate) fn arrived(&self, session: SessionId) -> Option<Arrived> {
        match session {
            SessionId::Quic(k) => {
                let q = self.quic.connections.get(k).filter(|q| q.lost.is_none())?;
                Some(if q.stack == Stack::QuicDatagram { Arrived::Datagrams } else { Arrived::Streams })
            }
            SessionId::Sctp(k) => self.sctp.associations.contains(k).then_some(Arrived::Begun),
            SessionId::Dtls(k) => self.dtls.sessions.contains(k).then_some(Arrived::Connection),
            SessionId::Channel(_) => None,
        }
    }

    /// A session that has come to a listener belongs to this group.
    pub(crate) fn set_group(&mut self, session: SessionId, group: Key) {
        match session {
            SessionId::Quic(k) => {
                if let Some(q) = self.quic.connections.get_mut(k) {
                    q.group = Some(group);
                }
            }
            SessionId::Sctp(k) => self.sctp.set_group(k, group),
            SessionId::Channel(_) | SessionId::Dtls(_) => {}
        }
    }

    /// A session has come to a listener that does not take it.
    pub(crate) fn turn_away<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId) {
        match session {
            SessionId::Quic(k) => drop(self.quic.close(cx, k, ABORTED, b"")),
            SessionId::Sctp(k) => self.sctp.turn_away(cx, k),
            SessionId::Channel(_) | SessionId::Dtls(_) => {}
        }
    }

    /// A session has come to a listener that delivers nothing of it before its peer sends
    /// something. Returns one that was ended because too many wait like this.
    pub(crate) fn await_first<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId) -> Option<SessionOver> {
        match session {
            SessionId::Quic(k) => self.quic.await_first(cx, k),
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The connection for the datagrams of a session.
    pub(crate) fn datagrams_of(&self, session: SessionId) -> Option<Key> {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k)?.datagrams,
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// Whether datagrams of a session that has no connection for them may get one.
    pub(crate) fn may_begin_datagrams(&mut self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(k) => self.quic.may_begin_datagrams(k),
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// Makes this the connection for the datagrams of a session.
    pub(crate) fn begin_datagrams(&mut self, session: SessionId, conn: Key) {
        if let SessionId::Quic(k) = session
            && let Some(q) = self.quic.connections.get_mut(k)
        {
            q.datagrams = Some(conn);
        }
    }

    /// The flow of a session's datagrams.
    pub(crate) fn datagrams(&self, session: SessionId) -> Option<OpenedStream> {
        match session {
            SessionId::Quic(k) => self.quic.datagrams(k),
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The oldest datagram that waits in a session.
    pub(crate) fn receive_datagram(&mut self, session: SessionId) -> Option<Bytes> {
        match session {
            SessionId::Quic(k) => self.quic.receive_datagram(k),
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// Whether this side has opened a session.
    pub(crate) fn is_client(&self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k).is_some_and(|q| q.client),
            SessionId::Sctp(k) => self.sctp.associations.get(k).is_some_and(|a| a.client),
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// How many streams of a session its peer may have open (`groupConnLimit`).
    pub(crate) fn peer_limit(&self, session: SessionId) -> Option<u32> {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k)?.peer_limit,
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.request.properties.connection.group_conn_limit,
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The answer to [`CarrierEvent::IsUsed`]: `held` returns whether the program still uses a
    /// flow.
    ///
    /// [`CarrierEvent::IsUsed`]: super::event::CarrierEvent::IsUsed
    pub(crate) fn used<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId, held: impl Fn(Key) -> bool) {
        if let SessionId::Quic(k) = session {
            self.quic.used(cx, k, held);
        }
    }

    /// Those that use a session, in the order in which their turns come when there is room. Those
    /// that do not wait are to be left out.
    pub(crate) fn in_turn(&self, session: SessionId) -> Vec<Waiter> {
        match session {
            SessionId::Sctp(k) => self.sctp.in_turn(k),
            SessionId::Quic(_) | SessionId::Channel(_) | SessionId::Dtls(_) => Vec::new(),
        }
    }

    /// Begins the turns of those that wait for room in a session.
    pub(crate) fn begin_turns(&mut self, session: SessionId, waiting: Vec<Waiter>) {
        if let SessionId::Sctp(k) = session {
            self.sctp.begin_turns(k, waiting);
        }
    }

    /// Whose turn it is: it may hand over its share until [`Carriers::end_turn`]. `None`: nothing
    /// waits any more, or there is no room.
    pub(crate) fn next_turn(&mut self, session: SessionId) -> Option<Key> {
        match session {
            SessionId::Sctp(k) => self.sctp.next_turn(k),
            SessionId::Quic(_) | SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// The turn of a connection is over. `more`: it has handed over something, and has more.
    pub(crate) fn end_turn(&mut self, session: SessionId, more: bool) {
        if let SessionId::Sctp(k) = session {
            self.sctp.end_turn(k, more);
        }
    }

    /// Ends a session: at once with a code, or as its protocol ends in order. Returns why it is
    /// over for those that wait for it; `None`: it was over before.
    pub(crate) fn end_session<N: Net>(
        &mut self,
        cx: &Context<N>,
        session: SessionId,
        code: Option<u64>,
    ) -> Option<SessionOver> {
        match session {
            SessionId::Quic(k) => self.quic.close(cx, k, code.unwrap_or(super::quic::NO_ERROR), b""),
            SessionId::Sctp(k) => self.sctp.close(cx.now, k, code),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// Ends a session with a code of the application's and words for the peer, where its protocol
    /// has room for them, and reports that to its flows.
    pub(crate) fn end_session_for_all<N: Net>(
        &mut self,
        cx: &Context<N>,
        session: SessionId,
        code: u64,
        reason: &[u8],
    ) -> Option<SessionOver> {
        match session {
            SessionId::Quic(k) => self.quic.close_for_all(cx, k, code, reason),
            SessionId::Sctp(k) => return self.sctp.close(cx.now, k, Some(code)),
            SessionId::Channel(_) | SessionId::Dtls(_) => {}
        }
        None
    }

    /// All sessions that may have several flows.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let quic = self.quic.connections.keys().into_iter().map(SessionId::Quic);
        quic.chain(self.sctp.associations.keys().into_iter().map(SessionId::Sctp)).collect()
    }

    /// The host's addresses have changed; `elsewhere`: it is in another network now. `usual`: after
    /// how much silence a connection's program wants its peer to be asked, and how long data may be
    /// unacknowledged.
    pub(crate) fn paths_changed<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        elsewhere: bool,
        usual: impl Fn(Key) -> Option<(Option<Duration>, Option<Duration>)>,
    ) {
        self.sockets.paths_changed(cx, usual);
        self.quic.paths_changed(cx, elsewhere);
        self.sctp.paths_changed(cx);
    }

    /// Whether streams of the peer's may still be taken from a session.
    pub(crate) fn may_accept(&self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(_) => !self.is_lost(session),
            SessionId::Sctp(_) => true,
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// Whether a session may keep streams of the peer's for which there was no room in its group.
    /// `waited`: there was none because of those that nothing has taken.
    pub(crate) fn may_hold_streams(&self, session: SessionId, waited: bool) -> bool {
        match session {
            SessionId::Quic(k) => {
                let q = self.quic.connections.get(k);
                q.is_some_and(|q| (q.peer_limit.is_some() || waited) && q.lost.is_none())
            }
            SessionId::Sctp(_) => true,
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// Streams of the peer's were accepted: it may open as many more. The next flush announces
    /// that.
    pub(crate) fn allow_more_streams(&mut self, session: SessionId) {
        match session {
            SessionId::Quic(k) => self.quic.mark_dirty(k),
            // It takes the numbers of streams that have ended.
            SessionId::Sctp(_) | SessionId::Channel(_) | SessionId::Dtls(_) => {}
        }
    }

    /// Limits how many streams of a session the peer may have open (`groupConnLimit`). False: it
    /// has none.
    pub(crate) fn limit_peers_streams(&mut self, session: SessionId, limit: Option<u32>) -> bool {
        match session {
            SessionId::Quic(k) => {
                if let Some(q) = self.quic.connections.get_mut(k) {
                    q.limit_peers_streams(limit);
                }
                true
            }
            SessionId::Sctp(k) => match self.sctp.associations.get_mut(k).filter(|a| a.mux) {
                Some(a) => {
                    // Others may have been opened with the same request.
                    Arc::make_mut(&mut a.request).properties.connection.group_conn_limit = limit;
                    true
                }
                None => false,
            },
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// Whether a session that is still there ends with its group even if that is not closed: this
    /// side has opened it, or nothing more can come of it. `None`: there is nothing to end.
    pub(crate) fn ends_with_group(&self, session: SessionId) -> Option<bool> {
        match session {
            SessionId::Quic(k) => Some(self.quic.connections.get(k).is_some_and(|q| q.client || q.is_spent())),
            SessionId::Sctp(k) => self.sctp.associations.get(k).filter(|a| !a.is_over()).map(|a| a.client || !a.mux),
            SessionId::Channel(_) | SessionId::Dtls(_) => None,
        }
    }

    /// Whether this side has opened a session that works and that no connection uses.
    pub(crate) fn is_unused(&self, session: SessionId) -> bool {
        match session {
            SessionId::Quic(k) => self.quic.connections.get(k).is_some_and(|q| {
                q.client && q.lost.is_none() && q.attempt.is_none() && q.streams.is_empty() && q.datagrams.is_none()
            }),
            SessionId::Sctp(k) => self
                .sctp
                .associations
                .get(k)
                .is_some_and(|a| a.client && a.lost.is_none() && a.attempt.is_none() && !a.is_used()),
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }
}
