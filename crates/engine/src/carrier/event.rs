//! What carriers report to the engine.
//!
//! A carrier knows neither connections nor races, groups or listeners: it reports by the ids of its
//! sessions, and by the keys that the engine has given it for flows, attempts, groups and
//! listeners, which mean nothing to it. Events are drained before the carriers are flushed, always,
//! and each is handled before the next.

use super::SessionId;
use crate::carrier::peer::Peer;
use crate::carrier::terms::Reading;
use crate::carrier::terms::{Closed, SessionLost};
use crate::event::{AttemptError, ConnectionError, SendError};
use crate::{MessageId, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{Ecn, IcmpError};
use std::collections::VecDeque;

/// What one carrier has to report, oldest first.
pub(crate) type Events = VecDeque<CarrierEvent>;

/// See the module's documentation. `attempt`, `conn`, `group` and `listener` are the keys that the
/// engine has given for an attempt, a flow, a session's group and a listener. An event whose object
/// is gone meanwhile has no effect.
#[derive(Debug)]
pub(crate) enum CarrierEvent {
    /// The peer has answered for the first time, so long after the attempt began.
    Reachable { attempt: Key, session: SessionId, rtt: Duration },
    /// The attempt goes on as another stack, because its peer does not offer what it was started
    /// for.
    Became { attempt: Key, session: SessionId, before: Stack, stack: Stack },
    /// The session is up.
    Established { attempt: Key, session: SessionId },
    /// The attempt has failed; the session goes when it is withdrawn.
    Failed { attempt: Key, session: SessionId, error: AttemptError },
    /// The peer of an attempt that was withdrawn has answered in its time.
    LateAnswer { session: SessionId },
    /// The peer of an attempt that was withdrawn has had its time, and has not answered.
    NoAnswer { session: SessionId },
    /// A peer's session is up at a listener, which may refuse it: it belongs to no group yet.
    Incoming { session: SessionId, listener: Key },
    /// The peer has opened streams that wait to be accepted.
    StreamsWaiting { session: SessionId },
    /// The peer allows more streams.
    StreamsAllowed { session: SessionId },
    /// Datagrams have come that wait to be received.
    DatagramsWaiting { session: SessionId },
    /// Asks whether the program still uses a flow of the session: see [`super::Carriers::used`].
    IsUsed { session: SessionId },
    /// The session of a group is over. Its flows were reported before; those that wait for a stream
    /// of it get none. `known`: this side has ended it, and its group knows that there are no more
    /// streams.
    SessionLost { session: SessionId, group: Key, lost: SessionLost, known: bool },
    /// A session that was over was dropped: nothing is known of it any more.
    SessionGone { session: SessionId, group: Option<Key> },
    /// Data can be received on a flow, or its peer's end.
    Readable { conn: Key },
    /// A flow has room for more.
    Writable { conn: Key },
    /// All that was sent on a flow that is being closed has left. Its protocol acknowledges
    /// nothing.
    AllLeft { conn: Key },
    /// The peer has acknowledged all that was sent on a flow, its end included.
    AllAcked { conn: Key },
    /// The peer has asked to stop a flow, with this code (STOP_SENDING).
    PeerStopped { conn: Key, code: u64 },
    /// The peer has abandoned its direction of a flow with this code, and nothing is left to be
    /// received before that.
    PeerReset { conn: Key, code: u64 },
    /// The peer has acknowledged a message whose fate was to be reported.
    MessageAcked { conn: Key, id: MessageId },
    /// Such a message was given up: because of this, or (`None`) because it was to be.
    MessageLost { conn: Key, id: MessageId, error: Option<SendError> },
    /// There is room in a session for those that wait for it: they are to have their turns.
    Turns { session: SessionId },
    /// The session below a flow is over. What has arrived can still be received.
    FlowLost { conn: Key, lost: SessionLost },
    /// A datagram has arrived for a connection.
    Datagram { conn: Key, data: Bytes, ecn: Ecn },
    /// A path of a flow's session has changed: see [`super::Carriers::paths`].
    PathChanged { conn: Key },
    /// The network has reported an error that does not end a connection.
    SoftError { conn: Key, error: IcmpError },
    /// The peer has closed a connection's flow in both directions: what has arrived can be read,
    /// what has not left is lost.
    FlowClosed { conn: Key },
    /// A connection's flow has failed.
    FlowFailed { conn: Key, error: ConnectionError },
    /// A connection that was accepted for a listener, as far as its limits allow, has its whole
    /// stack.
    Accepted { session: SessionId, listener: Key },
    /// A handshake that the listener counts is over, whatever has become of it.
    HandshakeOver { listener: Key },
    /// The time may be over for the handshake of a connection that was delivered before its end.
    HandshakeDue { conn: Key },
    /// A datagram has come to a socket that the connections of a listener share. Whose it is, is
    /// asked when this is handled ([`super::SocketCarrier::owner`]): the one before may have made
    /// its connection, or ended it.
    FromPeer { listener: Key, socket: Key, peer: Peer, data: Bytes, ecn: Ecn },
    /// A socket is to be read, now that everything that was reported before is handled: see
    /// [`super::Carriers::read_on`].
    ReadOn(Reading),
    /// The closing of a connection has gone on.
    CloseWentOn { conn: Key, closed: Closed },
}
