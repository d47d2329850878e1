//! `isolateSession` (RFC 9622 section 8.1.10): a connection that shares no cached state with
//! others, except with those of its own group.
//!
//! Each connection that is initiated gets a number of its own, under which its sessions and the
//! outcome of its race are kept, and shared sockets with their ports; clones have the same number.
//! Sessions are forgotten with the last connection of the group. The name resolver's cache is
//! shared: it reveals nothing to a server.

use core::time::Duration;

/// In what the requests of isolated connections, one for each, differ from the one that they are
/// copies of.
#[derive(Clone, Debug)]
pub(crate) struct Isolate {
    /// How many sessions are kept, and for how long.
    pub(crate) sessions: (Option<usize>, Option<Duration>),
    /// Whether they may go the shortest way.
    pub(crate) direct: bool,
}
