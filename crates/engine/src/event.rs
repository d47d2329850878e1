//! What the engine reports (RFC 9622 sections 7 to 11), and why things fail.

use crate::stacks::errors::*;
use crate::{ConnectionId, GroupId, ListenerId, MessageId, Stack};
use core::fmt;
use core::time::Duration;
use neater_base::net::{IcmpError, NetError};
use neater_dns::ResolveError;
use neater_race::BadCause;
use std::net::SocketAddr;

/// An event and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Whose.
    pub source: Source,
    /// What.
    pub event: Event,
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection's.
    Connection(ConnectionId),
    /// A listener's.
    Listener(ListenerId),
    /// A group's.
    Group(GroupId),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established. The peer's first data may be there already, without an
    /// [`Event::Readable`] of its own: a program that wants it reads until there is nothing.
    Ready,
    /// The connection could not be established. It is closed.
    EstablishmentError(Box<EstablishmentError>),
    /// Worth receiving.
    Readable,
    /// Worth sending: there is room again.
    Writable,
    /// A message has been handed to the transport.
    Sent(MessageId),
    /// A message's lifetime ended before it was sent.
    Expired(MessageId),
    /// A message cannot be sent.
    SendError(MessageId, SendError),
    /// An ICMP error that does not end the connection.
    SoftError(IcmpError),
    /// Addresses or path of the connection have changed.
    PathChange,
    /// The connection is closed, and the peer has acknowledged what was sent; no event follows. It
    /// comes after [`crate::Engine::close`], or when both sides have ended their direction
    /// ([`crate::Engine::finish`]), or when the peer ends a QUIC session in order. What has arrived
    /// can still be read then, unless this side has closed.
    ///
    /// Over TCP and TLS a peer that has closed looks as one that has ended its direction and still
    /// listens. So that is not an end: it is found out by writing to it, or by ending this side's
    /// direction. Where a QUIC stream ends is found out by reading it.
    Closed,
    /// The connection failed; no event follows. What had arrived by then can still be read, but for
    /// what a peer has abandoned on QUIC (RFC 9000 section 3.2).
    ConnectionError(ConnectionError),
    /// A step of establishment, for people.
    Timeline(TimelineEntry),
    /// A listener has a new connection.
    ConnectionReceived(ConnectionId),
    /// A listener has a new group (only when it asked for groups).
    GroupReceived(GroupId),
    /// A listener has stopped; no event follows.
    Stopped,
    /// A listener cannot take connections now, for this reason; it goes on by itself.
    ListenerError(NetError),
    /// The peer has opened a stream in a group that takes its streams itself.
    StreamReceived(ConnectionId),
}

/// Why one attempt failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptError {
    /// The network or the system.
    Net(NetError),
    /// TLS.
    Tls(TlsError),
    /// QUIC.
    Quic(QuicError),
    /// SCTP: why the association was not opened.
    Sctp(CloseReason),
    /// Name resolution.
    Resolve(ResolveError),
    /// The framer's handshake.
    Framer(String),
    /// It did not end in time.
    TimedOut,
    /// The peer closed during set-up.
    ClosedByPeer,
    /// The name has no address of this family, or the interface is missing.
    NoAddress,
    /// Not tried without security: with it, the peer was not the one that was meant.
    PeerRefused,
    /// The peer is there, and offers something else than this stack carries: what, and what to ask
    /// for instead.
    NotOffered(&'static str),
    /// A link-local address without the interface by which it is meant (RFC 4007 section 6).
    NoZone,
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(e) => e.fmt(f),
            Self::Tls(e) => e.fmt(f),
            Self::Quic(e) => e.fmt(f),
            Self::Sctp(e) => e.fmt(f),
            Self::Resolve(e) => e.fmt(f),
            Self::Framer(e) => write!(f, "framer: {e}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::ClosedByPeer => f.write_str("closed by the peer during set-up"),
            Self::NoAddress => f.write_str("no address"),
            Self::PeerRefused => f.write_str("not without security: the peer was refused with it"),
            Self::NotOffered(why) => f.write_str(why),
            Self::NoZone => f.write_str(
                "a link-local address is one of each interface: name the one that is meant, as in fe80::1%eth0",
            ),
        }
    }
}

/// The kinds of failure of RFC 9623 appendix B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Endpoints or properties make no sense together.
    InvalidConfiguration,
    /// No protocol stack can do what was asked.
    NoCandidates,
    /// No address was found.
    ResolutionFailed,
    /// Every candidate failed.
    EstablishmentFailed,
    /// The time given for establishment ended.
    Timeout,
    /// Policy forbids it.
    PolicyProhibited,
    /// The program closed the connection first.
    Cancelled,
    /// The system has no descriptors, memory or ports left, or the engine's limit is reached.
    Exhausted,
    /// It was only asked what would be tried ([`Engine::plan`](crate::Engine::plan)), and nothing
    /// was: here is the answer.
    Planned,
}

impl Reason {
    /// The reason's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidConfiguration => "invalid configuration",
            Self::NoCandidates => "no candidates",
            Self::ResolutionFailed => "resolution failed",
            Self::EstablishmentFailed => "establishment failed",
            Self::Timeout => "timeout",
            Self::PolicyProhibited => "prohibited by policy",
            Self::Cancelled => "cancelled",
            Self::Exhausted => "resources exhausted",
            Self::Planned => "planned",
        }
    }
}

/// The outcome history that deprioritised a candidate behind others. It was not excluded for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What was wrong.
    pub cause: BadCause,
    /// How long ago.
    pub ago: Duration,
    /// With what, if it was not this candidate itself: one of the same family, or one whose
    /// protocol tends to be blocked together with this one's.
    pub of: Option<(Stack, SocketAddr)>,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Some((stack, addr)) => write!(f, "{stack} to {addr} {}", self.cause)?,
            None => write!(f, "it {}", self.cause)?,
        }
        write!(f, " {} s ago", self.ago.as_secs())
    }
}

/// How one candidate fared.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateOutcome {
    /// The protocol stack.
    pub stack: Stack,
    /// The remote address.
    pub addr: SocketAddr,
    /// The port of UDP that SCTP is encapsulated to, where it is: the port of the address is SCTP's
    /// then.
    pub encapsulation_port: Option<u16>,
    /// When it was started, from the call to initiate; `None`: never.
    pub started: Option<Duration>,
    /// When it became reachable.
    pub reachable: Option<Duration>,
    /// When it ended, in whatever way.
    pub ended: Option<Duration>,
    /// The outcome history against it, if it was deprioritised for that.
    pub doubt: Option<Doubt>,
    /// In what way.
    pub fate: Fate,
}

/// The end of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It carries the connection.
    Won,
    /// It was not needed.
    NotStarted,
    /// It was withdrawn because another one won.
    Withdrawn,
    /// It was still being tried.
    Running,
    /// It failed.
    Failed(AttemptError),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Won => f.write_str("won"),
            Self::NotStarted => f.write_str("not started"),
            Self::Withdrawn => f.write_str("withdrawn"),
            Self::Running => f.write_str("no answer"),
            Self::Failed(e) => write!(f, "{e}"),
        }
    }
}

/// Why a connection could not be established: every candidate, what was tried, and why each lost.
/// `Debug` prints the text of `Display`, since that is what a `main` that returns errors prints;
/// `{:#?}` shows the fields.
#[derive(Clone, PartialEq)]
pub struct EstablishmentError {
    /// The kind of failure.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// Every candidate, best first.
    pub candidates: Vec<CandidateOutcome>,
    /// Stacks that were not eligible, each with the properties that rule it out.
    pub excluded: Vec<String>,
    /// What went wrong with names.
    pub resolution: Vec<String>,
}

impl EstablishmentError {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), candidates: Vec::new(), excluded: Vec::new(), resolution: Vec::new() }
    }
}

impl fmt::Display for EstablishmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.message)?;
        for c in &self.candidates {
            write!(f, "\n  {} to {}", c.stack, c.addr)?;
            if let Some(port) = c.encapsulation_port {
                write!(f, " (UDP port {port})")?;
            }
            f.write_str(": ")?;
            match c.started {
                Some(t) => write!(f, "started at {} ms, {}", t.as_millis(), c.fate)?,
                None => write!(f, "{}", c.fate)?,
            }
            if let Some(doubt) = c.doubt {
                write!(f, " (put back: {doubt})")?;
            }
        }
        for line in &self.resolution {
            write!(f, "\n  {line}")?;
        }
        for line in &self.excluded {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for EstablishmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("EstablishmentError")
            .field("reason", &self.reason)
            .field("message", &self.message)
            .field("candidates", &self.candidates)
            .field("excluded", &self.excluded)
            .field("resolution", &self.resolution)
            .finish()
    }
}

impl std::error::Error for EstablishmentError {}

/// Why an established connection ended.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The network or the system.
    Net(NetError),
    /// TLS: a broken record, an alert, a truncation.
    Tls(TlsError),
    /// QUIC.
    Quic(QuicError),
    /// SCTP: why the association is over.
    Sctp(CloseReason),
    /// The byte stream ended without TLS's close_notify: what the peer sent may have been cut
    /// short.
    Truncated,
    /// The peer abandoned the stream with this code.
    StreamReset(u64),
    /// The framer gave up.
    Framer(String),
    /// Aborted from this side.
    LocalAbort,
    /// Nothing was received for longer than the time allowed, or, of a connection that is being
    /// closed, nothing was taken.
    TimedOut,
    /// The connection does not exist, or is closed.
    Closed,
    /// Not established yet.
    NotReady,
    /// The operation does not fit this connection, and why.
    Unsupported(&'static str),
}

impl ConnectionError {
    /// Whether the transport is gone with it, and not only one stream of it.
    pub(crate) const fn ends_connection(&self) -> bool {
        matches!(self, Self::Net(_) | Self::Tls(_) | Self::Truncated)
    }
}

/// In words: `main` prints what it returns like this.
impl fmt::Debug for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(e) => e.fmt(f),
            Self::Tls(e) => e.fmt(f),
            Self::Quic(e) => e.fmt(f),
            Self::Sctp(e) => e.fmt(f),
            Self::Truncated => {
                f.write_str("the stream ended without TLS's close_notify: what was received may have been cut short")
            }
            Self::StreamReset(code) => write!(f, "the peer abandoned the stream with code {code}"),
            Self::Framer(e) => write!(f, "framer: {e}"),
            Self::LocalAbort => f.write_str("aborted locally"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Closed => f.write_str("the connection is closed"),
            Self::NotReady => f.write_str("the connection is not established yet"),
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// Why a message cannot be sent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// No room now; [`Event::Writable`] follows when there is. `room` bytes of a partial message
    /// would fit.
    Blocked {
        /// Bytes that would fit.
        room: usize,
    },
    /// Larger than this transport, path or engine can ever take.
    MessageTooLarge {
        /// Largest message, in bytes.
        max: usize,
    },
    /// A final message was sent, or the connection is closing.
    AfterFinal,
    /// The message's properties contradict the connection's, and which.
    InvalidMessageProperties(String),
    /// The framer refused the message.
    Framer(String),
    /// Parts of the message were taken, and the connection was ended before its last one: the
    /// framer sends none of it, or not the end.
    Unfinished,
    /// The message's lifetime (`msgLifetime`) has ended before there was room for it.
    Expired,
    /// The connection has failed.
    Connection(ConnectionError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { room } => write!(f, "the send buffer has room for {room} bytes only; wait for Writable"),
            Self::MessageTooLarge { max } => write!(f, "the message is larger than the {max} bytes possible here"),
            Self::AfterFinal => f.write_str("nothing can be sent after a final message or a close"),
            Self::InvalidMessageProperties(why) => write!(f, "message properties: {why}"),
            Self::Framer(why) => write!(f, "framer: {why}"),
            Self::Unfinished => f.write_str("the connection was ended before the last part of the message was sent"),
            Self::Expired => f.write_str("the message's lifetime has ended before there was room for it"),
            Self::Connection(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

/// A step of establishment.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    /// When, from the call to initiate.
    pub at: Duration,
    /// What.
    pub step: Step,
}

/// What happened during establishment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// A question was asked.
    Resolving {
        /// The name.
        name: String,
    },
    /// Addresses of a family arrived.
    Resolved {
        /// `A`, `AAAA` or `HTTPS`.
        record: &'static str,
        /// What was found, in words.
        found: String,
    },
    /// The outcome of an earlier race is used.
    FromCache {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
    },
    /// Rates of earlier transfers put this stack before others that are equally good.
    ByRate {
        /// The stack that goes first.
        first: Stack,
        /// The stacks that were measured, in bytes per second, in the order of the race.
        rates: Vec<(Stack, u64)>,
        /// It is not the fastest: one race in 20 begins with another, so that its rate is known.
        tries_other: bool,
    },
    /// A candidate stands behind others, because of earlier establishments.
    Doubted {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
        /// Why.
        doubt: Doubt,
    },
    /// The advice of policies for the connection.
    Policy {
        /// In words.
        text: String,
    },
    /// An attempt was started.
    Started {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
    },
    /// The peer has answered an attempt.
    Reachable {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
        /// The round-trip time seen.
        rtt: Duration,
    },
    /// The whole stack of an attempt is up.
    Established {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
    },
    /// What has become of the wish for several paths (MPTCP, RFC 8684) of an attempt over TCP.
    SeveralPaths {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
        /// The peer takes part; if it does not, or something on the way took the options out, the
        /// attempt is over ordinary TCP, with one path.
        agreed: bool,
    },
    /// The peer of an attempt offers another stack over the same session, which will do: the
    /// attempt goes on as that.
    Became {
        /// The stack that the attempt is for now.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
        /// What it was started for.
        before: Stack,
    },
    /// An attempt failed.
    Failed {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
        /// Why.
        error: AttemptError,
    },
    /// An attempt was withdrawn.
    Withdrawn {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
    },
    /// The race is over and this carries the connection.
    Chosen {
        /// The stack.
        stack: Stack,
        /// Where to.
        addr: SocketAddr,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolving { name } => write!(f, "resolving {name}"),
            Self::Resolved { record, found } => write!(f, "{record}: {found}"),
            Self::FromCache { stack, addr } => write!(f, "{stack} to {addr}: worked before, tried alone"),
            Self::ByRate { first, rates, tries_other } => {
                let rate = |(stack, rate): &(Stack, u64)| format!("{stack} {:.1} MB/s", *rate as f64 / 1e6);
                let rates = rates.iter().map(rate).collect::<Vec<_>>().join(", ");
                let why = if *tries_other { ", one race in 20, so that its rate is known" } else { "" };
                write!(f, "{first} first{why}: earlier transfers from this host: {rates}")
            }
            Self::Policy { text } => write!(f, "policy: {text}"),
            Self::Doubted { stack, addr, doubt } => write!(f, "{stack} to {addr}: put back: {doubt}"),
            Self::Started { stack, addr } => write!(f, "{stack} to {addr}: started"),
            Self::Reachable { stack, addr, rtt } => {
                write!(f, "{stack} to {addr}: reachable, round trip {:.1} ms", rtt.as_secs_f64() * 1e3)
            }
            Self::Established { stack, addr } => write!(f, "{stack} to {addr}: established"),
            Self::SeveralPaths { stack, addr, agreed: true } => {
                write!(f, "{stack} to {addr}: may use several paths (MPTCP)")
            }
            Self::SeveralPaths { stack, addr, agreed: false } => {
                write!(f, "{stack} to {addr}: one path: the peer, or something on the way to it, has no MPTCP")
            }
            Self::Became { stack, addr, before } => write!(f, "{before} to {addr}: the peer offers {stack} instead"),
            Self::Failed { stack, addr, error } => write!(f, "{stack} to {addr}: failed: {error}"),
            Self::Withdrawn { stack, addr } => write!(f, "{stack} to {addr}: withdrawn"),
            Self::Chosen { stack, addr } => write!(f, "{stack} to {addr}: chosen"),
        }
    }
}
