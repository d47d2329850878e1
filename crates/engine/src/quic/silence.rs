//! A reliable connection that says nothing is not over: QUIC would end it after its idle timeout (RFC 9000 section 10.1), TCP
//! does not, and no program has asked for either.
//!
//! *Responsible for* a PING when nothing was heard for a third of the idle timeout (section 10.1.2), as long as somebody holds
//! a stream. *Not responsible for* keep-alives that a program asks for, which quinn-proto sends by itself.

use crate::Engine;
use crate::engine::Timer;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_property::{Preference, Role, SelectionProperty, TransportProperties};
use neater_quic::{ConnectionApi, Tuning};

/// The idle timeout that peers commonly have. What this one has is not known; if it is shorter than a third of this, the
/// connection ends with it.
const COMMON: Duration = Duration::from_secs(30);

/// After how much silence to ask whether the peer is still there; `None`: the program does not want that.
pub(crate) fn patience(properties: &TransportProperties, role: Role, tuning: &Tuning) -> Option<Duration> {
    let unwanted =
        matches!(properties.preference(SelectionProperty::KeepAlive, role), Preference::Avoid | Preference::Prohibit);
    let idle = tuning.idle_timeout.unwrap_or(COMMON).min(COMMON);
    (!unwanted).then_some(idle / 3)
}

impl<N: Net> Engine<N> {
    /// A stream is in use: from now on silence is listened to.
    pub(super) fn quic_listen(&mut self, key: Key) {
        let now = self.now;
        let Some(q) = self.quics.get_mut(key) else { return };
        if let Some(patience) = q.request.silence
            && !core::mem::replace(&mut q.listening, true)
        {
            self.timers.push(now + patience, Timer::Silence(key));
        }
    }

    /// It may have been silent for too long.
    pub(crate) fn quic_silence(&mut self, key: Key) {
        let now = self.now;
        let Some(q) = self.quics.get(key) else { return };
        let held = |c: &Key| self.conns.get(*c).is_some_and(|c| !c.released && c.is_open());
        let wanted = q.lost.is_none() && q.streams.values().any(held);
        let Some(q) = self.quics.get_mut(key) else { return };
        let (true, Some(patience)) = (wanted, q.request.silence) else {
            // The next stream begins it anew.
            q.listening = false;
            return;
        };
        let mut due = q.heard + patience;
        if due <= now {
            if q.connected {
                q.conn.ping();
            }
            due = now + patience;
            self.mark_dirty(key);
        }
        self.timers.push(due, Timer::Silence(key));
    }
}
