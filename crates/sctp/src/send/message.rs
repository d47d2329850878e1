//! Messages on their way out: what the application asked for, and what is left of it.

use crate::ids::MessageId;
use bytes::Bytes;
use neater_base::Instant;
use neater_sctp_wire::{Ppid, StreamId};

/// How hard to try (RFC 3758, RFC 7496). Anything but [`Reliability::Full`] needs the peer's
/// support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliability {
    /// Until it is delivered or the association ends.
    #[default]
    Full,
    /// Until this time (RFC 3758 section 4).
    Until(Instant),
    /// With at most this many retransmissions of each part (RFC 7496 section 3.1).
    Retransmissions(u32),
    /// Until the send buffer is needed for messages of higher priority; smaller numbers are higher
    /// (RFC 7496 section 3.2).
    Priority(u32),
}

/// How a message is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The payload protocol identifier: passed to the peer as it is.
    pub ppid: u32,
    /// Deliver it as soon as it is complete, whatever the order.
    pub unordered: bool,
    /// How hard to try.
    pub reliability: Reliability,
    /// Ask the peer to acknowledge without delay (RFC 7053).
    pub immediate: bool,
    /// Fail rather than cut the message into fragments.
    pub whole: bool,
    /// Report with [`crate::Event::Acknowledged`] when it is delivered.
    pub report: bool,
}

/// A message that is not completely sent.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: MessageId,
    pub(crate) ppid: Ppid,
    pub(crate) unordered: bool,
    pub(crate) immediate: bool,
    pub(crate) report: bool,
    pub(crate) reliability: Reliability,
    /// What is left of it.
    pub(crate) payload: Bytes,
    /// Its number (stream sequence number or message identifier) once its first part was sent, and
    /// the number of the next part.
    pub(crate) started: Option<(u32, u32)>,
}

/// The next part of a message, cut to fit.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) id: MessageId,
    pub(crate) stream: StreamId,
    pub(crate) ppid: Ppid,
    pub(crate) unordered: bool,
    pub(crate) immediate: bool,
    pub(crate) report: bool,
    pub(crate) reliability: Reliability,
    pub(crate) number: u32,
    pub(crate) fsn: u32,
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    pub(crate) payload: Bytes,
}
