//! What the engine and carriers give to each other.
//!
//! *Responsible for* what operations take and return, beside events ([`super::event`]). *Not
//! responsible for* what it means to one protocol.

use super::peer::Peer;
use super::{FlowId, SessionId};
use crate::event::ConnectionError;
use crate::request::Compiled;
use crate::{RemoteEndpoint, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::net::{NetError, SocketOptions};
use neater_base::{Instant, Key};
use neater_quic::Direction;
use std::net::SocketAddr;
use std::sync::Arc;

/// A closing connection is given up when the peer does not answer for this long, or takes nothing
/// for this long while room is short; its socket waits no longer than this for the peer's end of
/// stream after what was sent is delivered.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// How long the peer of an attempt may take over the TLS handshake: as long as QUIC's idle timeout.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);

/// Where an attempt leads, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) stack: Stack,
    pub(crate) addr: SocketAddr,
    /// It is the only one: the cached outcome is tried.
    pub(crate) alone: bool,
    /// Whose address it is.
    pub(crate) remote: Option<&'a RemoteEndpoint>,
    /// All of the connection's remote endpoints.
    pub(crate) remotes: &'a Arc<[RemoteEndpoint]>,
    pub(crate) request: &'a Arc<Compiled>,
    pub(crate) options: &'a SocketOptions,
    /// The first message, which may leave with the handshake.
    pub(crate) first: Option<&'a Bytes>,
    /// What the attempt may go on as, where its peer does not offer the stack.
    pub(crate) may_become: Option<Stack>,
}

impl Target<'_> {
    /// The name that certificates are checked against.
    pub(crate) fn server_name(&self) -> String {
        if let Some(name) = &self.request.server_name {
            return name.clone();
        }
        match self.remote.and_then(|r| r.host.as_deref()) {
            Some(host) => host.trim_end_matches('.').to_owned(),
            None => self.addr.ip().to_string(),
        }
    }
}

/// What a connection had waited for was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// A session that may be unused now.
    pub(crate) spare: Option<SessionId>,
}

/// Whether the peer of an attempt that is about to be withdrawn is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    /// It has answered, or was stopped before its time, and no answer will be taken from it.
    No,
    /// It has had its time.
    Yes,
    /// Unless it answers by then: see [`super::Carriers::put_on_trial`].
    UnlessAnsweredBy(Instant),
}

/// How a connection can be cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cloning {
    /// By another stream of its session.
    Stream(SessionId),
    /// By another transport connection to the same place.
    Connection,
    /// Not at all: it is one of its kind with its peer.
    Never,
}

/// A stream for a new member of a group, or the place of one that has to wait for it.
#[derive(Debug)]
pub(crate) struct OpenedStream {
    pub(crate) flow: FlowId,
    pub(crate) stack: Stack,
    pub(crate) request: Arc<Compiled>,
    pub(crate) remotes: Arc<[RemoteEndpoint]>,
}

/// What a connection uses of the session that has won its race.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) flow: FlowId,
    /// It waits for a stream in this direction: see [`FlowId::waits_on`].
    pub(crate) waits: Option<Direction>,
    /// The peer has taken the first message with the handshake.
    pub(crate) first: bool,
}

/// How the connection of a session begins that has come to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// With the first stream that its peer opens: it may wait for that.
    Streams,
    /// At once, for the datagrams that it carries.
    Datagrams,
    /// At once: there is no other, and no group.
    Connection,
    /// At once, with a stream that is open from the beginning.
    Begun,
}

/// What a carrier needs to know of the connection that sends on a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    /// The connection: what becomes of its messages later is reported to it.
    pub(crate) conn: Key,
    /// The peer, where several share a socket.
    pub(crate) peer: Option<Peer>,
    /// A framer makes bytes of its messages.
    pub(crate) framed: bool,
    /// Nothing follows what is in the queue.
    pub(crate) last: bool,
    /// `connPriority`: lower is more important.
    pub(crate) priority: u32,
}

/// Why bytes were not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The flow takes none now.
    Blocked,
    /// The socket has failed, and the flow with it.
    Broken(ConnectionError),
    /// The flow takes none any more, or none at all.
    Refused(ConnectionError),
}

impl From<NetError> for WriteError {
    fn from(e: NetError) -> Self {
        if e.is_would_block() { Self::Blocked } else { Self::Broken(ConnectionError::Net(e)) }
    }
}

/// What reading bytes has found.
#[derive(Debug)]
pub(crate) enum Read {
    /// So many bytes; 0 is the end where there was room for any.
    Bytes(usize),
    /// Nothing now: an event follows.
    Blocked,
    /// Nothing yet, and no event follows: the reader is to come back after the others have had
    /// their turn.
    Again,
    /// The flow is gone, for the reason that its connection knows.
    Gone,
    Failed(ConnectionError),
}

impl From<Result<Option<usize>, ConnectionError>> for Read {
    #[inline]
    fn from(read: Result<Option<usize>, ConnectionError>) -> Self {
        match read {
            Ok(Some(n)) => Self::Bytes(n),
            Ok(None) => Self::Blocked,
            Err(e) => Self::Failed(e),
        }
    }
}

/// What reading a broken flow has found.
#[derive(Debug)]
pub(crate) enum Remains {
    /// So many bytes.
    Bytes(usize),
    /// The peer's end; `authenticated`: the end was the peer's, proved by cryptography, and not the
    /// network's.
    End {
        authenticated: bool,
    },
    /// Nothing, and nothing will come.
    Nothing,
    Failed(ConnectionError),
}

/// Where the datagrams of a flow come from.
#[derive(Debug)]
pub(crate) enum DatagramSource {
    /// A socket of its own, which is to be read.
    Socket(Key),
    /// The carrier hands them to the connection when they arrive.
    Pushed,
    /// The session has ended, for this reason.
    Lost(ConnectionError),
    /// The flow is gone.
    Gone,
}

/// What has become of a connection that is being closed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// It is not over yet, as far as is known.
    Waits,
    /// The peer has everything.
    Done,
    Failed(ConnectionError),
}

/// A step of the closing of a connection.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) end: End,
    /// The end of this side's direction was handed to the flow.
    pub(crate) fin_done: bool,
    /// The peer has ended its direction.
    pub(crate) peer_ended: bool,
    /// The session was ended with it.
    pub(crate) session: Option<SessionOver>,
}

impl From<End> for Closed {
    fn from(end: End) -> Self {
        Self { end, fin_done: false, peer_ended: false, session: None }
    }
}

/// A session was ended from this side: no more streams come of it.
#[derive(Debug)]
pub(crate) struct SessionOver {
    pub(crate) session: SessionId,
    pub(crate) error: ConnectionError,
}

/// What the end of a session means to a connection that it carried.
#[derive(Clone, Debug)]
pub(crate) struct SessionLost {
    pub(crate) error: ConnectionError,
    /// Ended by one side with the code of an orderly end.
    pub(crate) orderly: bool,
    /// The session has kept something of the connection that has not left.
    pub(crate) unsent: bool,
    /// Nothing is acknowledged one by one, and all has left.
    pub(crate) all_left: bool,
    /// Its protocol ends a session in order only when both sides have everything.
    pub(crate) ends_complete: bool,
}

/// Whether the peer has what was sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delivery {
    /// Not yet, as far as is known.
    Open,
    Done,
    Failed(ConnectionError),
}

/// How far the closing of a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// A number that changes while there is progress, and stands still while there is none.
    pub(crate) mark: u64,
    /// How many packets have come from the peer; 0 where that is not counted.
    pub(crate) packets: u64,
    /// How often the system has asked the peer without an answer so far; `None` where it does not,
    /// or does not report it.
    pub(crate) unanswered: Option<u32>,
}

/// A socket that is to be read, and how far it was.
#[derive(Debug)]
pub(crate) struct Reading(pub(in crate::carrier) At);

#[derive(Debug)]
pub(in crate::carrier) enum At {
    /// A UDP socket of a listener's, of which so many batches were read.
    Shared { socket: Key, round: usize },
    /// A socket of DTLS sessions, of which so many batches may be read.
    Sessions { socket: Key, budget: usize, late: Option<Key> },
    /// None, but the deadline of this session has passed.
    Late { session: Key },
}
