//! Which address a client's connection uses when those of its host change.
//!
//! *Responsible for* staying where it works, for moving on where it does not, and for the end where
//! no answer comes either. *Not responsible for* what the peer makes of a new address
//! (quinn-proto), nor for noticing that addresses have changed (the engine).

use super::{NO_ERROR, Quic};
use crate::carrier::QuicCarrier;
use crate::carrier::ids::Due;
use crate::context::Context;
use core::time::Duration;
use neater_base::Instant;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, QuicError};
use std::net::IpAddr;

/// An address and its interface that worked when the host's addresses changed: a client that left
/// them without need might get to where nothing comes back, and the server would follow it there
/// (RFC 9000 section 9.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinnedAddress {
    pub(super) from: IpAddr,
    pub(super) interface: u32,
    /// When the peer was asked whether they still work.
    asked: Instant,
}

/// A client that has gone where the system chooses, and does not know yet whether the server has
/// followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    since: Instant,
    /// When the peer was asked last, and how often it had challenged this side by then.
    asked: Instant,
    challenges: u64,
}

/// How long the peer has for the answer to that, at least.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long the peer has to answer from where a connection has moved to. RFC 9000 section 8.2.4
/// gives the validation of a path three probe timeouts, which are three seconds on a path of which
/// nothing is known; this is some more for paths that lose, on which it is asked every
/// [`ANSWER_TIME`]. The idle timeout, half a minute mostly, is much longer than a program wants to
/// wait for what another protocol could have brought: many networks let no UDP through.
const ANSWER: Duration = Duration::from_secs(5);

impl Quic {
    /// Goes where the system chooses, under another connection id (RFC 9000 section 9.5), from an
    /// address that is gone or where no peer answers. Regardless of `multipath`: the socket is not
    /// bound, and packets would leave from elsewhere in any case. Returns when to look whether an
    /// answer has come from there. `elsewhere`: in another network than before.
    pub(super) fn move_on(&mut self, now: Instant, elsewhere: bool) -> Instant {
        self.pinned = None;
        self.conn.local_address_changed();
        // Another address of the network in which no answer has come so far is no new chance.
        let since = self.moved.filter(|m| !elsewhere && self.heard <= m.since).map_or(now, |m| m.since);
        self.moved = Some(Moved { since, asked: now, challenges: self.conn.stats().challenges });
        let over = self.give_up.map(|limit| self.heard + limit).filter(|over| *over > now);
        let due = over.map_or(now + ANSWER_TIME, |over| over.min(now + ANSWER_TIME));
        self.listens_at = Some(self.listens_at.map_or(due, |at| at.min(due)));
        due
    }

    /// Whether the server has not shown yet that it has followed this connection to where it is
    /// now: it has when it answers and challenges no more. Until then it may return to the address
    /// that it knew (RFC 9000 section 9.3.2), and follows only a client that sends.
    fn is_followed(&mut self) -> bool {
        let Some(moved) = self.moved else { return true };
        let challenged = self.conn.stats().challenges > moved.challenges;
        if self.lost.is_some() || (self.heard > moved.asked && !challenged) {
            self.moved = None;
        }
        self.moved.is_none()
    }

    /// The peer is asked once more whether it still works where this connection stays: until when
    /// it may answer.
    pub(super) fn ask_here(&mut self, now: Instant) -> Option<Instant> {
        let until = now + self.answer_time();
        self.pinned.as_mut()?.asked = now;
        Some(until)
    }

    /// Whether nothing was acknowledged of what has left from where this connection stays. That
    /// packets of the peer arrive there is not enough: the path may be dead in one direction.
    pub(super) fn pin_has_failed(&self, now: Instant) -> bool {
        let works = |asked| self.conn.acknowledgements().last.is_some_and(|at| at > asked);
        self.pinned.is_some_and(|s| !works(s.asked) && now >= s.asked + self.answer_time())
    }

    /// How long the peer has for its answer from where this connection stays.
    fn answer_time(&self) -> Duration {
        ANSWER_TIME.max(2 * self.conn.stats().rtt)
    }
}

impl QuicCarrier {
    /// The host's addresses have changed: connections whose own is gone migrate to the one that the
    /// system now chooses (RFC 9000 section 9). The others stay, by the same interface, and ask
    /// whether that still works.
    pub(crate) fn paths_changed<N: Net>(&mut self, cx: &mut Context<N>, elsewhere: bool) {
        let now = cx.now;
        let interfaces = cx.net.interfaces().to_vec();
        for key in self.connections.keys() {
            let Some(q) = self.connections.get_mut(key).filter(|q| q.client && q.connected && q.lost.is_none()) else {
                continue;
            };
            let has = |i: &&neater_base::net::Interface| i.up && i.addrs.iter().any(|a| Some(a.addr) == q.local);
            if q.local.is_some_and(|ip| ip.is_loopback()) {
                continue;
            }
            let of = q.local.and_then(|from| Some((from, interfaces.iter().find(has)?.index)));
            match of {
                Some((from, interface)) => {
                    q.pinned = Some(PinnedAddress { from, interface, asked: now });
                    q.conn.ping();
                    let due = now + q.answer_time();
                    q.listens_at = Some(due);
                    cx.timers.push(due, Due::QuicSilence(key).into());
                }
                None => {
                    let due = q.move_on(now, elsewhere);
                    cx.timers.push(due, Due::QuicSilence(key).into());
                }
            }
            self.mark_dirty(key);
        }
    }

    /// Asks a server until it has followed this connection to where it is now, and ends the
    /// connection when it does not answer at all. False if there is nothing to ask.
    pub(super) fn asks_from_here<N: Net>(&mut self, cx: &mut Context<N>, key: Key) -> bool {
        let (now, leads_out) = (cx.now, cx.has_way_out());
        let Some(q) = self.connections.get_mut(key) else { return false };
        if q.is_followed() {
            return false;
        }
        let (challenges, limit) = (q.conn.stats().challenges, q.give_up.map(|limit| q.heard + limit));
        let Some(moved) = &mut q.moved else { return false };
        if limit.is_some_and(|over| over <= now) {
            // connTimeout ends it as it ends every other.
            return false;
        }
        if !leads_out {
            // Between two networks no answer can come: what counts is the time in the next one.
            moved.since = now;
        } else if q.heard <= moved.since && now >= moved.since + ANSWER && limit.is_none() {
            q.conn.close(now, NO_ERROR, b"");
            self.lose(key, QuicError::NoViablePath);
            self.mark_dirty(key);
            return true;
        }
        (moved.asked, moved.challenges) = (now, challenges);
        q.conn.ping();
        let due = limit.map_or(now + ANSWER_TIME, |over| over.min(now + ANSWER_TIME));
        q.listens_at = Some(due);
        cx.timers.push(due, Due::QuicSilence(key).into());
        self.mark_dirty(key);
        true
    }
}
