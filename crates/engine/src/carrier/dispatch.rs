//! Which carrier an event of the network, or a deadline, is for.
//!
//! *Responsible for* what is inside a [`CarrierSocket`] and a [`CarrierTimer`], which the rest of
//! the engine only passes on, and for the work that each carrier has left over. *Not responsible
//! for* what carriers do with it.

use super::ids::{CarrierSocket, CarrierTimer, Due, Socket};
use super::{Carriers, FlowId};
use crate::config::{EngineStats, Refusals};
use crate::context::Context;
use neater_base::net::{Net, Ready};
use neater_base::{Instant, Key};

impl Carriers {
    /// Whether the object of a deadline is there and may still wait for it. Of a deadline that was
    /// set again, only the one that counts.
    pub(crate) fn is_armed(&self, timer: CarrierTimer, at: Instant) -> bool {
        match timer.0 {
            Due::Channel(k) => self.sockets.channels.contains(k),
            Due::Quic(k) => self.quic.connections.get(k).is_some_and(|q| q.armed == Some(at)),
            Due::QuicTrial(k) => self.quic.connections.get(k).is_some_and(|q| q.on_trial),
            Due::QuicSilence(k) => self.quic.connections.contains(k),
            Due::Sctp(k) | Due::SctpEndpoint(k) => self.sctp.endpoints.contains(k),
            Due::SctpTrial(k) => self.sctp.associations.contains(k),
            Due::Dtls(k) | Due::DtlsIncoming(k) => self.dtls.sessions.contains(k),
            Due::DtlsUnverified(k) => self.dtls.sockets.contains(k),
        }
    }

    /// How many objects there are that may have deadlines.
    pub(crate) fn len(&self) -> usize {
        let sockets = self.sockets.channels.len() + self.dtls.sockets.len();
        sockets + self.quic.connections.len() + self.sctp.associations.len() + self.dtls.sessions.len()
    }

    /// Adds what carriers count to the figures of an engine.
    pub(crate) fn stats(&self, stats: EngineStats) -> EngineStats {
        // Of the endpoints that are still there.
        let live: u64 = self.sctp.endpoints.iter().map(|(_, e)| e.refused()).sum();
        let associations = stats.refusals.associations + live;
        EngineStats {
            channels: (self.sockets.channels.len() + self.dtls.sockets.len()) as u64,
            quic_connections: self.quic.connections.len() as u64,
            sctp_associations: self.sctp.associations.len() as u64,
            refusals: Refusals { associations, ..stats.refusals },
            ..stats
        }
    }

    /// Whether something waits to be reported or sent.
    #[inline]
    pub(crate) fn needs_flush(&self) -> bool {
        !self.quic.dirty.is_empty() || !self.sctp.dirty.is_empty() || self.has_events()
    }
}

/// A carrier whose sessions are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Quic,
    Sctp,
}

impl Flushed {
    /// All of them, in the order in which they are flushed.
    pub(crate) const ALL: [Self; 2] = [Self::Quic, Self::Sctp];
}

/// What is being flushed: a session, or what several have in common, and how far that is.
#[derive(Debug)]
pub(crate) enum Flush {
    Quic(Key, super::quic::Flushing),
    Sctp(Key, super::sctp::Flushing),
}

impl Flush {
    pub(crate) fn new(of: Flushed, key: Key) -> Self {
        match of {
            Flushed::Quic => Self::Quic(key, super::quic::Flushing::default()),
            Flushed::Sctp => Self::Sctp(key, super::sctp::Flushing::default()),
        }
    }

    /// Of the session that sends the packets of a flow; `None`: it has none, or sends at once.
    pub(crate) fn of(flow: FlowId) -> Option<Self> {
        match flow {
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => Some(Self::new(Flushed::Quic, quic)),
            _ => None,
        }
    }
}

impl Carriers {
    /// The sessions that have something to report, or to send: a list that goes back by
    /// [`Carriers::keep_list`].
    pub(crate) fn take_dirty(&mut self, of: Flushed) -> Vec<Key> {
        match of {
            Flushed::Quic => core::mem::take(&mut self.quic.dirty),
            Flushed::Sctp => core::mem::take(&mut self.sctp.dirty),
        }
    }

    /// Keeps the memory of such a list.
    pub(crate) fn keep_list(&mut self, of: Flushed, list: Vec<Key>) {
        let dirty = match of {
            Flushed::Quic => &mut self.quic.dirty,
            Flushed::Sctp => &mut self.sctp.dirty,
        };
        if dirty.is_empty() {
            *dirty = list;
        }
    }

    /// Whether sessions have something to report, or to send.
    pub(crate) fn is_dirty(&self, of: Flushed) -> bool {
        match of {
            Flushed::Quic => !self.quic.dirty.is_empty(),
            Flushed::Sctp => !self.sctp.dirty.is_empty(),
        }
    }

    /// One of these is flushed now, and not because of the list any more.
    pub(crate) fn unmark(&mut self, of: Flushed, key: Key) {
        match of {
            Flushed::Quic => self.quic.unmark(key),
            Flushed::Sctp => self.sctp.unmark(key),
        }
    }

    /// Takes what a session has to report, up to the first event. False: there is no more.
    pub(crate) fn collect<N: Net>(&mut self, cx: &mut Context<N>, flush: &mut Flush) -> bool {
        match flush {
            Flush::Quic(key, progress) => self.quic.collect(cx, *key, progress),
            Flush::Sctp(end, _) => self.sctp.collect(cx, *end),
        }
    }

    /// Sends one train of packets. False: there is nothing more to send now.
    pub(crate) fn transmit<N: Net>(&mut self, cx: &mut Context<N>, flush: &mut Flush) -> bool {
        match flush {
            Flush::Quic(key, progress) => self.quic.transmit(cx, *key, progress),
            Flush::Sctp(end, progress) => {
                let (sctp, mut layers) = self.over_layers();
                sctp.transmit(cx, &mut layers, *end, progress)
            }
        }
    }

    /// A session has sent what it may.
    pub(crate) fn rest<N: Net>(&mut self, cx: &mut Context<N>, flush: &Flush) {
        match flush {
            Flush::Quic(key, _) => self.quic.rest(cx, *key),
            Flush::Sctp(end, _) => self.sctp.rest(cx, *end),
        }
    }

    /// Drops a session that is over and unused. Every event that names it was handled.
    pub(crate) fn tidy<N: Net>(&mut self, cx: &mut Context<N>, flush: &Flush) {
        match flush {
            Flush::Quic(key, _) => self.quic.tidy(cx, *key),
            Flush::Sctp(..) => self.sctp.tidy_all(cx),
        }
    }
}

const READABLE: Ready = Ready { readable: true, writable: false, error: false, hangup: false };

impl Carriers {
    /// A socket that is no [`CarrierSocket::own`] is ready.
    pub(crate) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, socket: CarrierSocket, ready: Ready) {
        match socket.0 {
            // That of a connection alone, which the fast path has seen first.
            Socket::Channel(_) => {}
            Socket::Quic(key) => self.quic.socket_ready(cx, key, ready),
            Socket::Sctp(key) => self.sctp.on_ready(cx, key, ready),
            Socket::Dtls(key) => {
                if self.dtls.on_ready(cx, key, ready) {
                    self.read_sessions(key, None);
                }
            }
        }
    }

    /// A deadline has passed.
    pub(crate) fn on_timer<N: Net>(&mut self, cx: &mut Context<N>, timer: CarrierTimer) {
        match timer.0 {
            Due::Channel(channel) => self.sockets.on_socket_timer(cx, channel),
            Due::Quic(quic) => self.quic.timeout(cx, quic),
            Due::QuicTrial(quic) => self.quic.trial_over(quic),
            Due::QuicSilence(quic) => self.quic.silence(cx, quic),
            Due::Sctp(end) => self.sctp.on_timeout(cx, end),
            Due::SctpTrial(key) => self.sctp.trial_over(cx, key),
            Due::SctpEndpoint(end) => self.sctp.endpoint_over(cx, end),
            Due::Dtls(dtls) => match self.dtls.begin_timeout(cx, dtls) {
                Some(socket) => self.read_sessions(socket, Some(dtls)),
                None => self.dtls.on_timeout(cx, dtls),
            },
            Due::DtlsUnverified(socket) => self.dtls.on_unverified_timeout(cx, socket),
            Due::DtlsIncoming(dtls) => self.dtls.on_incoming_timeout(cx, dtls),
        }
    }

    /// Reads on from the sockets that the budget of the last turn has left unread, and ends what
    /// lingers.
    pub(crate) fn resume_sockets<N: Net>(&mut self, cx: &mut Context<N>) {
        for key in core::mem::take(&mut self.quic.unread) {
            self.quic.socket_ready(cx, key, READABLE);
        }
        for key in core::mem::take(&mut self.sctp.unread) {
            self.sctp.on_ready(cx, key, READABLE);
        }
        for key in core::mem::take(&mut self.sockets.pending_lingers) {
            self.sockets.go_on_lingering(cx, key);
        }
    }

    /// The same of UDP sockets that the connections of a listener share.
    pub(crate) fn resume_shared<N: Net>(&mut self, cx: &mut Context<N>) {
        for key in core::mem::take(&mut self.sockets.pending_shared) {
            self.sockets.shared_ready(cx, key, false);
        }
        for socket in core::mem::take(&mut self.dtls.unread) {
            self.read_sessions(socket, None);
        }
    }

    /// Lets those that have not done it since windows were looked at give back what they do not
    /// need of theirs.
    pub(crate) fn take_back_windows<N: Net>(&mut self, cx: &mut Context<N>) {
        if self.quic.is_to_take_back(cx) {
            self.quic.take_back_windows(cx, None);
        }
        self.sctp.take_back_if_asked(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_owner() {
        let key = Key::from_bits(0x3fff_ffff_0000_0007);
        for socket in [Socket::Channel(key), Socket::Quic(key), Socket::Sctp(key), Socket::Dtls(key)].map(CarrierSocket)
        {
            assert_eq!(CarrierSocket::of(socket.token()), Some(socket));
        }
        assert_eq!(CarrierSocket::of(neater_base::net::Token(CarrierSocket::FREE | 7)), None);
    }

    #[test]
    fn a_timer_is_no_larger_for_what_is_inside() {
        assert_eq!(size_of::<crate::timer::Timer>(), 12);
    }
}
