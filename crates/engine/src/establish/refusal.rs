//! A peer that was refused does not get what was meant for it in the clear.
//!
//! Opportunistic security takes what there is: a peer without TLS is talked to in the clear. A peer that speaks TLS and is
//! then found not to be the one that was meant (it has another certificate than those pinned, the application's trust
//! verification says no) is another case: RFC 9622 section 6.3.8 makes that the end of an attempt, and the attempts at the
//! same endpoint without security would only hide it. So they are not started, and those that run are withdrawn. Nor is it a
//! lesson for later races: whoever stands between could have stacks without security tried before the others by it.

use crate::carrier::SessionId;
use crate::carrier::blame::is_refusal;
use crate::event::AttemptError;
use crate::{Engine, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_race::CandidateId;

impl<N: Net> Engine<N> {
    /// Whether this stack may be tried for a connection, as far as earlier attempts have taught.
    pub(super) fn may_try(&self, conn: Key, stack: Stack) -> Result<(), AttemptError> {
        let refused = self.conns.get(conn).and_then(|c| c.ext.as_ref()).is_some_and(|e| e.refused);
        if refused && !stack.is_secure() { Err(AttemptError::PeerRefused) } else { Ok(()) }
    }

    /// Draws the consequence of an attempt's failure for attempts without security.
    pub(super) fn heed_refusal(&mut self, conn: Key, error: &AttemptError) {
        if !is_refusal(error) {
            return;
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        // It holds for the race that begins when the cached outcome is refused, too.
        c.ext().refused = true;
        let Some(est) = &c.est else { return };
        let bare: Vec<(Option<CandidateId>, SessionId)> =
            est.attempts.iter().filter(|a| !a.stack.is_secure()).map(|a| (a.candidate, a.session)).collect();
        for (candidate, session) in bare {
            self.attempt_failed(conn, candidate, session, AttemptError::PeerRefused);
        }
    }
}
