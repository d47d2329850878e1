//! Early data (0-RTT): a first message that travels with the handshake (RFC 9622 sections 6.2.5 and
//! 9.2.5, RFC 9623 section 5.3).
//!
//! *The client* offers the first message to every attempt that resumes a session which permits it,
//! whole or not at all, and keeps a copy. What the winner's server has taken is sent; what it has
//! refused is sent again, before everything else. A losing attempt may have delivered it, too: that
//! is what `safelyReplayable` allows.
//!
//! *The server* takes early data only where its listener asks for it (`zeroRttMsg` preferred or
//! required). It delivers the connection at once then, before the client has finished its
//! handshake, and may answer it. Until then what is received may be a replay, and is marked so
//! ([`crate::Received::early`]). The rest of the handshake is driven here, whether or not the
//! program reads; it must be finished in the time that every incoming handshake has.

use crate::MessageId;

/// The number of a first message that may be early data: it is the first of its connection,
/// whenever it is written.
pub(crate) const FIRST: MessageId = MessageId(1);
