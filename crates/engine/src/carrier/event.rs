//! What carriers report to the engine.
//!
//! A carrier knows neither connections nor races, groups or listeners: it reports by the ids of its sessions, and by the keys that
//! the engine has given it for flows, attempts, groups and listeners, which mean nothing to it. Events are drained before the
//! carriers are flushed, always, and each is handled before the next.

use super::SessionId;
use crate::event::AttemptError;
use core::time::Duration;
use neater_base::Key;
use std::collections::VecDeque;

/// What one carrier has to report, oldest first.
pub(crate) type Events = VecDeque<CarrierEvent>;

/// See the module's documentation. `attempt` is the key that the engine has given for an attempt.
#[derive(Debug)]
pub(crate) enum CarrierEvent {
    /// The peer has answered for the first time, so long after the attempt began.
    Reachable { attempt: Key, session: SessionId, rtt: Duration },
    /// The session is up.
    Established { attempt: Key, session: SessionId },
    /// The attempt has failed; the session goes when it is withdrawn.
    Failed { attempt: Key, session: SessionId, error: AttemptError },
}
