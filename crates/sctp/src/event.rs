//! The events of an association for the application.

use crate::ids::{LayerId, MessageId, PathId, Route};
use crate::path::PathState;
use core::fmt;
use neater_sctp_wire::StreamId;

/// Why an association is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides have delivered everything (RFC 9260 section 9.2).
    Shutdown,
    /// The application aborted it.
    Aborted,
    /// The peer aborted it.
    PeerAborted {
        /// The code of its first error cause (RFC 9260 section 3.3.10), if it gave one.
        cause: Option<u16>,
        /// The reason of the peer's application, at most 256 bytes of it.
        reason: Vec<u8>,
    },
    /// The peer answers no more, or never did.
    Unreachable,
    /// The peer violated the protocol.
    PeerMisbehaved(&'static str),
    /// The peer refused or could not be agreed with.
    Refused(&'static str),
    /// The shutdown took too long (T5-shutdown-guard).
    ShutdownTimeout,
}

/// A change of our addresses (RFC 5061), each named by the layer that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// The peer can reach us there too.
    Add(LayerId),
    /// The peer can no longer reach us there.
    Remove(LayerId),
    /// The peer can reach us there only.
    KeepOnly(LayerId),
    /// The peer should send there.
    Prefer(LayerId),
}

/// The content of an ICMP or ICMPv6 message (RFC 9260 section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Fragmentation needed, or Packet Too Big.
    PacketTooBig {
        /// The largest SCTP packet that gets through: the size in the message, less what the layer
        /// puts around it.
        size: u16,
    },
    /// Protocol unreachable, or an unrecognized next header.
    ProtocolUnreachable,
    /// Port unreachable.
    PortUnreachable,
    /// Any other destination unreachable.
    Unreachable,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shutdown => f.write_str("the association was shut down"),
            Self::Aborted => f.write_str("the association was aborted from this side"),
            Self::PeerAborted { cause, reason } => {
                f.write_str("the peer aborted the association")?;
                if let Some(cause) = cause {
                    write!(f, " (error cause {cause})")?;
                }
                if !reason.is_empty() {
                    write!(f, ": {}", String::from_utf8_lossy(reason).escape_debug())?;
                }
                Ok(())
            }
            Self::Unreachable => f.write_str("the peer does not answer"),
            Self::PeerMisbehaved(what) => write!(f, "the peer violated SCTP: {what}"),
            Self::Refused(why) => write!(f, "SCTP was refused: {why}"),
            Self::ShutdownTimeout => f.write_str("the shutdown of the association took too long"),
        }
    }
}

impl std::error::Error for CloseReason {}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The INIT ACK chunk has arrived: the peer is there and willing.
    Reachable,
    /// The association is up.
    Connected,
    /// A peer has opened this association.
    Accepted,
    /// There is something to read that was not there before. It is reported again when
    /// [`crate::Endpoint::receive`] or [`crate::Endpoint::next_readable`] has returned `None`
    /// since.
    Readable,
    /// There is room to send again, after [`crate::SendError::Blocked`].
    Writable,
    /// The peer has started again, and the association with it: what was under way is reported as
    /// failed.
    Restarted,
    /// A path has become usable or unusable.
    Path {
        /// Which.
        path: PathId,
        /// Where it goes.
        route: Route,
        /// What it is now.
        state: PathState,
    },
    /// Data goes this way from now on.
    PrimaryPath {
        /// Which.
        path: PathId,
    },
    /// A message that was to be reported on is delivered: the peer has acknowledged all of it.
    Acknowledged {
        /// Which.
        message: MessageId,
    },
    /// A message will not be delivered: given up as its reliability allows, or lost with the
    /// association.
    Failed {
        /// Which.
        message: MessageId,
        /// Its stream.
        stream: StreamId,
        /// Whether any of it has been sent.
        sent: bool,
    },
    /// The peer gave up a message of which part has been read.
    PartLost {
        /// Its stream.
        stream: StreamId,
        /// Its number: [`crate::Message::number`].
        number: u64,
    },
    /// The peer wants to end the association and takes no more new messages.
    PeerShutdown,
    /// Our outbound streams have been reset, or the peer refused (RFC 6525).
    OutgoingReset {
        /// The streams; none means all.
        streams: Vec<StreamId>,
        /// Whether the peer did it.
        done: bool,
    },
    /// The peer has reset its outbound streams: our inbound ones begin again. What came before can
    /// still be read, and differs from what comes after in its [`crate::StreamUse`].
    IncomingReset {
        /// The streams; none means all.
        streams: Vec<StreamId>,
        /// Which of the peer's resets this is, counted from 1. It names the use of each of the
        /// streams that begins with it: all uses of them with a smaller number have ended.
        number: u32,
    },
    /// The peer was asked to reset its outbound streams and does not: it refuses, has a request of
    /// its own under way that waits for us (RFC 6525 section 4.4, result 4: try again), or has lost
    /// its memory.
    IncomingResetRefused {
        /// The streams; none means all.
        streams: Vec<StreamId>,
    },
    /// The peer was asked to have more outbound streams and does not, for one of the same reasons.
    IncomingAddRefused {
        /// How many more it was asked for.
        more: u16,
    },
    /// There are more outbound streams, or the peer refused to take more.
    StreamsAdded {
        /// How many there are now.
        outbound: u16,
        /// Whether the peer agreed.
        done: bool,
    },
    /// A change of our addresses has been made, or the peer refused.
    AddressChanged {
        /// Which.
        change: AddressChange,
        /// Whether the peer made it.
        done: bool,
    },
    /// The peer reports an error that does not end the association.
    PeerError {
        /// The code of the cause (RFC 9260 section 3.3.10).
        cause: u16,
    },
    /// The association is over. The last event.
    Closed(CloseReason),
}
