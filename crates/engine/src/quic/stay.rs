//! Which address a client's connection uses when those of its host change.
//!
//! *Responsible for* staying where it works, and for moving on where it does not. *Not responsible for* what the peer makes of a new
//! address (quinn-proto), nor for noticing that addresses have changed (the engine).

use super::Quic;
use crate::Engine;
use crate::engine::Timer;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Net;
use neater_quic::ConnectionApi;
use std::net::IpAddr;

/// An address and its interface that worked when the host's addresses changed: a client that left them without need might get to where
/// nothing comes back, and the server would follow it there (RFC 9000 section 9.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(super) from: IpAddr,
    pub(super) interface: u32,
    /// When the peer was asked whether they still work.
    asked: Instant,
}

/// How long the peer has for the answer to that.
const STAY: Duration = Duration::from_secs(1);

impl Quic {
    /// Goes where the system chooses, under another connection id (RFC 9000 section 9.5), from an address that is gone or where nobody
    /// answers. Whatever `multipath` says: the socket is not bound, and packets would leave from elsewhere in any case.
    pub(super) fn move_on(&mut self) {
        self.stays = None;
        self.conn.local_address_changed();
    }

    /// The peer is asked once more whether it still works where this connection stays: until when it may answer.
    pub(super) fn ask_here(&mut self, now: Instant) -> Option<Instant> {
        let stay = self.stays.as_mut()?;
        stay.asked = now;
        Some(now + STAY)
    }

    /// Whether the peer has not answered from where this connection stays.
    pub(super) fn stays_in_vain(&self, now: Instant) -> bool {
        self.stays.is_some_and(|s| self.heard <= s.asked && now >= s.asked + STAY)
    }
}

impl<N: Net> Engine<N> {
    /// The host's addresses have changed: connections whose own is gone migrate to the one that the system now chooses (RFC 9000
    /// section 9). The others stay, by the same interface, and ask whether that still works.
    pub(crate) fn quic_paths_changed(&mut self) {
        let now = self.now;
        let interfaces = self.net.interfaces().to_vec();
        for key in self.quics.keys() {
            let Some(q) = self.quics.get_mut(key).filter(|q| q.client && q.connected && q.lost.is_none()) else {
                continue;
            };
            let has = |i: &&neater_base::net::Interface| i.up && i.addrs.iter().any(|a| Some(a.addr) == q.local);
            if q.local.is_some_and(|ip| ip.is_loopback()) {
                continue;
            }
            let of = q.local.and_then(|from| Some((from, interfaces.iter().find(has)?.index)));
            match of {
                Some((from, interface)) => {
                    q.stays = Some(Stay { from, interface, asked: now });
                    q.conn.ping();
                    q.listens_at = Some(now + STAY);
                    self.timers.push(now + STAY, Timer::Silence(key));
                }
                None => q.move_on(),
            }
            self.mark_dirty(key);
        }
    }
}
