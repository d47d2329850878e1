//! Connection groups (RFC 9622 section 7.4).

use crate::StreamDirection as Direction;
use crate::carrier::SessionId;
use neater_base::Key;
use std::collections::VecDeque;

/// Connections that belong together: streams of one session, or transport connections to the same
/// place.
#[derive(Debug)]
pub(crate) struct Group {
    /// The session whose streams members are, if they are.
    pub(crate) session: Option<SessionId>,
    pub(crate) members: Vec<Key>,
    /// Where streams that the peer opens are reported: to the listener, or to the group itself.
    pub(crate) listener: Option<Key>,
    pub(crate) claimed: bool,
    /// Streams of the peer that came before the program claimed them.
    pub(crate) waiting: VecDeque<Key>,
    /// Streams that were reported to the group and that the program has not taken.
    pub(crate) untaken: usize,
    /// No more of the peer's streams are taken from the session until the program takes some.
    pub(crate) full: bool,
    /// Members that wait for the peer to allow another stream.
    pub(crate) pending: VecDeque<(Key, Direction)>,
    /// How many handles refer to it.
    pub(crate) held: u32,
    pub(crate) closing: bool,
    /// The session is to be closed with this code: its last member was aborted.
    pub(crate) abort_code: Option<u64>,
}
