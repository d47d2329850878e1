//! What a listener holds for the program, and for peers that are slow.
//!
//! *Responsible for* bounding both: connections that were delivered and that the program has not taken
//! ([`crate::Limits::untaken`]), and handshakes that make no haste while others wait
//! ([`crate::Limits::handshakes`]). What comes beyond the first bound waits in the kernel, or is refused where no kernel keeps
//! it (QUIC, UDP). *Not responsible for* accepting.
//!
//! Where one source holds more than half of the room over TCP, who comes is looked at before it is full again: who comes from
//! elsewhere takes the place of one of that source's, and that source's own wait in a second room of the same size. Where that is full,
//! too, more are left in the kernel, until the oldest has waited for a tenth of a second and goes.
//!
//! *Invariants*: a listener that is full accepts again when a quarter of its room is free; no handshake is given up while
//! there is room for others, nor before [`HASTE`], unless its source (an address, or of IPv6 a network of 64 bits) has more of
//! them than that of the newcomer would have: nobody keeps others out by coming more often.

use crate::carrier::channel::Channel;
use crate::config::Refusal;
use crate::conn::{Conn, Conns};
use crate::event::ConnectionError;
use crate::eviction::{HASTE, biggest, source, who_makes_room};
use crate::{Engine, ListenerId};
use core::time::Duration;
use neater_base::Instant;
use neater_base::Key;
use neater_base::net::Net;
use std::collections::VecDeque;
use std::net::IpAddr;

/// How long who waits for the handshake to begin is left in peace, although others wait behind who may come from elsewhere. Of those
/// who mean it, a room's handshakes take less than that, and the next room's begin.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether a channel is one of a listener's that shake hands: itself, or the framer of its connection.
fn is_handshaking(conns: &Conns, channel: &Channel, listener: Key) -> bool {
    match channel.behind.conn() {
        Some(conn) => conns.get(conn).is_some_and(Conn::is_greeting),
        None => channel.behind.listener() == Some(listener),
    }
}

/// What a listener holds.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Delivered, and not taken.
    untaken: usize,
    /// No more is delivered until some are taken.
    full: bool,
    /// Channels in their handshake, oldest first, and some whose handshake is over.
    handshakes: VecDeque<Key>,
    /// Channels of a crowd that wait for their handshake to begin, oldest first.
    waiting: VecDeque<Key>,
}

impl Backlog {
    /// Whether the program must take something first.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Something was delivered, of which there may be `max` that were not taken.
    #[inline]
    pub(crate) fn count_untaken(&mut self, max: usize) {
        self.untaken += 1;
        self.full |= self.untaken >= max;
    }

    /// Whether connections that were accepted wait for their handshake to begin.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl<N: Net> Engine<N> {
    /// The program has taken what a listener has delivered ([`crate::Event::ConnectionReceived`],
    /// [`crate::Event::GroupReceived`]): there is room for another one. Whoever drives an engine calls this once for each.
    pub fn taken(&mut self, listener: ListenerId) {
        let max = self.cx.limits.untaken;
        let Some(l) = self.listeners.get_mut(listener.0) else { return };
        l.backlog.untaken = l.backlog.untaken.saturating_sub(1);
        if l.backlog.full && l.backlog.untaken <= max / 4 * 3 {
            l.backlog.full = false;
            self.cx.now = self.cx.net.now();
            self.deliver_again(listener.0);
        }
    }

    /// A handshake begins.
    pub(crate) fn count_handshake(&mut self, listener: Key, key: Key) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.handshaking += 1;
        l.backlog.handshakes.push_back(key);
        if l.backlog.handshakes.len() > 2 * l.handshaking + 64 {
            let (channels, conns) = (&self.carriers.channels, &self.conns);
            l.backlog.handshakes.retain(|k| channels.get(*k).is_some_and(|c| is_handshaking(conns, c, listener)));
        }
    }

    /// The source that holds more than half of the room for handshakes, if there is one.
    pub(crate) fn crowd(&self, listener: Key) -> Option<IpAddr> {
        let l = self.listeners.get(listener)?;
        let (channels, conns) = (&self.carriers.channels, &self.conns);
        let all = l.backlog.handshakes.iter().filter_map(|k| channels.get(*k));
        let sources = all.filter(|c| is_handshaking(conns, c, listener)).map(|c| source(c.remote.ip()));
        biggest(sources).filter(|(_, n)| *n > (self.cx.limits.handshakes / 2).max(1)).map(|(source, _)| source)
    }

    /// Makes room for one more that waits for its handshake to begin: where as many wait as may, the crowd's oldest goes, if it has
    /// had [`PATIENCE`]. `Err`: when it will have had it.
    pub(crate) fn make_room_to_wait(&mut self, listener: Key, crowd: IpAddr) -> Result<(), Option<Instant>> {
        let l = self.listeners.get_mut(listener).ok_or(None)?;
        let channels = &self.carriers.channels;
        let waiting = |k: &Key| channels.get(*k).filter(|c| c.awaits_handshake());
        // They end in the order in which they came.
        while l.backlog.waiting.front().is_some_and(|k| waiting(k).is_none()) {
            l.backlog.waiting.pop_front();
        }
        if l.backlog.waiting.len() < self.cx.limits.handshakes {
            return Ok(());
        }
        let of_crowd = |k: &Key| waiting(k).is_some_and(|c| source(c.remote.ip()) == crowd);
        let at = l.backlog.waiting.iter().position(of_crowd).ok_or(None)?;
        let since = l.backlog.waiting.get(at).and_then(waiting).ok_or(None)?.started;
        if self.cx.now < since + PATIENCE {
            return Err(Some(since + PATIENCE));
        }
        if l.backlog.waiting.remove(at).is_some_and(|k| self.carriers.abort_channel(&mut self.cx, k)) {
            self.cx.stats.refuse(Refusal::NotBegun);
        }
        Ok(())
    }

    /// A connection waits for its handshake to begin.
    pub(crate) fn wait_for_handshake(&mut self, listener: Key, key: Key) {
        if let Some(l) = self.listeners.get_mut(listener) {
            l.backlog.waiting.push_back(key);
        }
    }

    /// The connection that has waited longest for its handshake to begin.
    pub(crate) fn has_waited(&mut self, listener: Key) -> Option<Key> {
        let waiting = &mut self.listeners.get_mut(listener)?.backlog.waiting;
        let channels = &self.carriers.channels;
        core::iter::from_fn(|| waiting.pop_front()).find(|k| channels.get(*k).is_some_and(Channel::awaits_handshake))
    }

    /// Makes room for another handshake, `from` there if that is known, by giving up one that has had its time, or is one too
    /// many of its source. `Err`: when the oldest will have had it.
    pub(crate) fn evict_handshake(&mut self, listener: Key, from: Option<IpAddr>) -> Result<(), Option<Instant>> {
        let l = self.listeners.get_mut(listener).ok_or(None)?;
        let (channels, conns) = (&self.carriers.channels, &self.conns);
        let is_one = |k: &Key| channels.get(*k).filter(|c| is_handshaking(conns, c, listener));
        while l.backlog.handshakes.front().is_some_and(|k| is_one(k).is_none()) {
            l.backlog.handshakes.pop_front();
        }
        let oldest = l.backlog.handshakes.front().and_then(is_one).ok_or(None)?.started;
        if from.is_none() && self.cx.now < oldest + HASTE {
            return Err(Some(oldest + HASTE));
        }
        let all = l.backlog.handshakes.iter().filter_map(|k| Some((*k, is_one(k)?)));
        let victim = who_makes_room(all.map(|(k, c)| (k, c.remote.ip(), c.started)), from, self.cx.now);
        let victim = victim.ok_or(Some(oldest + HASTE))?;
        l.backlog.handshakes.retain(|k| *k != victim);
        self.cx.stats.refuse(Refusal::Handshake);
        tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
        match self.carriers.channels.get(victim).and_then(|c| c.behind.conn()) {
            Some(conn) => self.greeting_failed(conn, &ConnectionError::TimedOut),
            None => {
                self.carriers.abort_channel(&mut self.cx, victim);
                if let Some(l) = self.listeners.get_mut(listener) {
                    l.handshaking = l.handshaking.saturating_sub(1);
                }
            }
        }
        Ok(())
    }
}
