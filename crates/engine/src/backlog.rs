//! What a listener holds for the program, and for peers that are slow.
//!
//! *Responsible for* bounding both: connections that were delivered and that the program has not taken
//! ([`crate::Limits::untaken`]), and handshakes that make no haste while others wait
//! ([`crate::Limits::handshakes`]). What comes beyond the first bound waits in the kernel, or is refused where no kernel keeps
//! it (QUIC, UDP). *Not responsible for* accepting.
//!
//! *Invariants*: a listener that is full accepts again when a quarter of its room is free; no handshake is given up before
//! [`HASTE`], nor while there is room for others.

use crate::channel::{Behind, Channel};
use crate::conn::{Conn, Conns};
use crate::event::ConnectionError;
use crate::{Engine, ListenerId};
use core::time::Duration;
use neater_base::Instant;
use neater_base::Key;
use neater_base::net::Net;
use std::collections::VecDeque;

/// How long an incoming handshake is left in peace, although there is no room for another one. On a path of 600 ms it takes
/// one round trip and perhaps the repair of a loss; peers that keep a listener busy with handshakes that they never finish
/// need `Limits::handshakes` new connections in this time.
const HASTE: Duration = Duration::from_secs(2);

/// Whether a channel is one of a listener's that shake hands: itself, or the framer of its connection.
fn is_handshaking(conns: &Conns, channel: &Channel, listener: Key) -> bool {
    match channel.behind {
        Behind::Listener(of) => of == listener,
        Behind::Conn(conn) => conns.get(conn).is_some_and(Conn::is_greeting),
        _ => false,
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
}

impl Backlog {
    /// Whether the program must take something first.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

impl<N: Net> Engine<N> {
    /// The program has taken what a listener has delivered ([`crate::Event::ConnectionReceived`],
    /// [`crate::Event::GroupReceived`]): there is room for another one. Whoever drives an engine calls this once for each.
    pub fn taken(&mut self, listener: ListenerId) {
        let max = self.limits.untaken;
        let Some(l) = self.listeners.get_mut(listener.0) else { return };
        l.backlog.untaken = l.backlog.untaken.saturating_sub(1);
        if l.backlog.full && l.backlog.untaken <= max / 4 * 3 {
            l.backlog.full = false;
            self.now = self.net.now();
            self.deliver_again(listener.0);
        }
    }

    /// Something was delivered.
    pub(crate) fn count_untaken(&mut self, listener: Key) {
        let max = self.limits.untaken;
        if let Some(l) = self.listeners.get_mut(listener) {
            l.backlog.untaken += 1;
            l.backlog.full |= l.backlog.untaken >= max;
        }
    }

    /// A handshake begins.
    pub(crate) fn count_handshake(&mut self, listener: Key, key: Key) {
        let Some(l) = self.listeners.get_mut(listener) else { return };
        l.handshaking += 1;
        l.backlog.handshakes.push_back(key);
        if l.backlog.handshakes.len() > 2 * l.handshaking + 64 {
            let (channels, conns) = (&self.channels, &self.conns);
            l.backlog.handshakes.retain(|k| channels.get(*k).is_some_and(|c| is_handshaking(conns, c, listener)));
        }
    }

    /// Makes room for another handshake by giving up the oldest, if it has had its time. `Err`: when it will have had it.
    pub(crate) fn evict_handshake(&mut self, listener: Key) -> Result<(), Option<Instant>> {
        loop {
            let l = self.listeners.get_mut(listener).ok_or(None)?;
            let key = *l.backlog.handshakes.front().ok_or(None)?;
            match self.channels.get(key).filter(|c| is_handshaking(&self.conns, c, listener)) {
                Some(c) if self.now < c.started + HASTE => return Err(Some(c.started + HASTE)),
                Some(&Channel { behind: Behind::Conn(conn), .. }) => {
                    l.backlog.handshakes.pop_front();
                    self.stats.refused += 1;
                    self.greeting_failed(conn, &ConnectionError::TimedOut);
                    return Ok(());
                }
                Some(c) => {
                    self.net.abort(c.sock);
                    self.channels.remove(key);
                    l.backlog.handshakes.pop_front();
                    l.handshaking = l.handshaking.saturating_sub(1);
                    self.stats.refused += 1;
                    tracing::debug!(target: "neater::listen", "a slow handshake made room for others");
                    return Ok(());
                }
                None => drop(l.backlog.handshakes.pop_front()),
            }
        }
    }
}
