//! What a QUIC session carries: streams, datagrams, or both.
//!
//! *Responsible for* attempts whose peer does not offer what they were started for, and for the
//! datagrams that come to a listener (decision 0034). *Not responsible for* what this side offers,
//! which follows from its request, nor for streams.
//!
//! *Invariants*: a connection is established only as something that its peer has offered; a session
//! has at most one connection for datagrams in its life, and a client that has nothing else learns
//! of its end; datagrams wait in their session only for what looks at them again.

use super::Quic;
use crate::carrier::event::CarrierEvent;
use crate::carrier::{FlowId, SessionId};
use crate::config::Refusal;
use crate::conn::Conn;
use crate::event::{AttemptError, Step};
use crate::greeting::HandOver;
use crate::queue::ReceivedDatagram;
use crate::{Engine, Stack};
use neater_base::Key;
use neater_base::net::{Ecn, Net};
use neater_quic::{ConnectionApi, Direction};

/// Why an attempt for datagrams cannot go on.
const NO_DATAGRAMS: &str = "the peer takes no QUIC datagrams, it offers streams: let reliable transports be candidates (do not \
                            prohibit reliability), and set a message framer, which keeps messages apart on a stream";
/// Why an attempt for a stream cannot go on.
const NO_STREAMS: &str = "the peer allows no QUIC stream, it offers datagrams: do not require reliability and order (the words \
                          \"unreliable\" and \"datagrams\" do not)";
/// Why a listener closes the session of a client that takes no datagrams.
pub(super) const NONE_OFFERED: &str = "this listener carries QUIC datagrams only, and the client takes none";

impl Quic {
    /// Whether this is a session of datagrams alone whose connection is over. What its client still
    /// sends is acknowledged, and not received: the session has to end, too.
    pub(crate) fn is_spent(&self) -> bool {
        self.datagrams_over && self.conn.stats().stream_frames == 0
    }
}

impl<N: Net> Engine<N> {
    /// The handshake of an attempt is complete, and with it is known what its peer offers: the
    /// attempt is established as what it was started for, or as what is offered instead, or it has
    /// failed.
    pub(super) fn quic_attempt_connected(&mut self, key: Key, conn: Key) {
        let what = SessionId::Quic(key);
        if let Some((instead, why)) = self.quic_not_offered(key)
            && !self.quic_become(key, conn, instead)
        {
            return self.carriers.quic.events.push_back(CarrierEvent::Failed {
                attempt: conn,
                session: what,
                error: AttemptError::NotOffered(why),
            });
        }
        self.carriers.quic.events.push_back(CarrierEvent::Established { attempt: conn, session: what });
    }

    /// What the peer of an attempt offers instead of what it was started for, and in words.
    fn quic_not_offered(&mut self, key: Key) -> Option<(Stack, &'static str)> {
        let q = self.carriers.quic.connections.get_mut(key)?;
        let datagrams = q.conn.max_datagram().is_some_and(|max| max > 0);
        let early = q.early.is_some() && q.conn.accepted_early_data();
        match q.stack {
            Stack::QuicDatagram if !datagrams => Some((Stack::Quic, NO_DATAGRAMS)),
            // A peer that takes datagrams and allows no stream by the end of the handshake wants
            // none. Another one may allow a stream later.
            Stack::Quic if datagrams && !early => {
                let direction = if q.request.may_receive { Direction::Both } else { Direction::One };
                q.opened = q.conn.open(direction);
                q.opened.is_none().then_some((Stack::QuicDatagram, NO_STREAMS))
            }
            _ => None,
        }
    }

    /// Lets an attempt go on as what its peer offers instead, if that may serve, too, and nothing
    /// that would serve better is still to have its turn.
    fn quic_become(&mut self, key: Key, conn: Key, instead: Stack) -> bool {
        let (Some(q), Some(c)) = (self.carriers.quic.connections.get_mut(key), self.conns.get(conn)) else {
            return false;
        };
        let (before, addr) = (q.stack, q.remote);
        let rank = |stack: Stack| c.request.stacks.iter().position(|s| *s == stack);
        let next = rank(instead).zip(rank(before)).is_some_and(|(instead, before)| instead <= before + 1);
        let named = c.remotes.iter().all(|r| r.protocol.is_none_or(|only| only == instead));
        // Policies choose ways and socket options for each stack.
        if !next || !named || c.advice().is_some() {
            return false;
        }
        q.stack = instead;
        let attempts = self.est(conn).map(|est| &mut est.attempts[..]).unwrap_or_default();
        for attempt in attempts.iter_mut().filter(|a| a.session == SessionId::Quic(key)) {
            attempt.stack = instead;
        }
        self.step(conn, Step::Became { stack: instead, addr, before });
        true
    }

    /// Whether something can be sent to a client that is to have datagrams, if anything is to be.
    pub(super) fn quic_can_be_answered(&mut self, key: Key) -> bool {
        let Some(q) = self.carriers.quic.connections.get_mut(key) else { return false };
        !q.request.may_send || q.conn.max_datagram().is_some_and(|max| max > 0)
    }

    /// Takes the datagrams that have come to the connection that they are for.
    pub(crate) fn quic_take_datagrams(&mut self, key: Key) {
        let begun = self.carriers.quic.connections.get(key).and_then(|q| q.datagrams);
        let Some(conn) = begun.or_else(|| self.quic_begin_datagrams(key)) else { return };
        let mut got = false;
        while let Some(data) = self.carriers.quic.connections.get_mut(key).and_then(|q| q.conn.recv_datagram()) {
            got |= self.queue_datagram(conn, ReceivedDatagram { data, ecn: Ecn::NotEct });
        }
        if got {
            self.arrived(conn);
        }
    }

    /// Throws away the datagrams that wait in a session. True if there were any.
    fn quic_drop_datagrams(&mut self, key: Key) -> bool {
        let mut any = false;
        while self.carriers.quic.connections.get_mut(key).and_then(|q| q.conn.recv_datagram()).is_some() {
            any = true;
        }
        any
    }

    /// The first datagram of a session whose listener delivers streams and datagrams: what a client
    /// that offers both will use is not known earlier. Until the program takes more, datagrams wait
    /// in the session, which keeps the latest.
    fn quic_begin_datagrams(&mut self, key: Key) -> Option<Key> {
        let q = self.carriers.quic.connections.get(key)?;
        if q.datagrams_over {
            self.quic_drop_datagrams(key);
            return None;
        }
        let open = !q.client && q.connected && q.lost.is_none();
        if !open || !q.request.stacks.contains(&Stack::QuicDatagram) {
            return None;
        }
        let group = q.group?;
        let claimed = self.groups.get(group)?.claimed;
        let listener = self.group_listener(group);
        let undeliverable = !claimed && listener.is_none_or(|l| self.is_full(l.0));
        if undeliverable || self.is_group_full(group) {
            return None;
        }
        if self.conns.len() >= self.cx.limits.connections {
            // Whose end will make room is not known, and a session reports a datagram only if none
            // waits there: the next one asks again.
            if self.quic_drop_datagrams(key) {
                self.cx.stats.refuse(Refusal::Connection);
            }
            return None;
        }
        let q = self.carriers.quic.connections.get_mut(key)?;
        let data = q.conn.recv_datagram()?;
        let mut c = Conn::new(q.request.clone(), q.remotes.clone(), self.cx.now);
        c.stack = Some(Stack::QuicDatagram);
        c.passive = true;
        c.flow = FlowId::Datagrams { quic: key };
        let conn = self.conns.insert(c);
        q.datagrams = Some(conn);
        self.join_group(group, conn);
        self.queue_datagram(conn, ReceivedDatagram { data, ecn: Ecn::NotEct });
        self.deliver(conn, HandOver::Group(group));
        Some(conn)
    }
}
