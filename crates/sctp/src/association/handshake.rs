//! The handshake, from the side that has a state: INIT ACK, COOKIE ACK, stale cookies, and what a
//! cookie does to an association that exists (RFC 9260 sections 5.1 and 5.2).

use super::input::Arrived;
use super::{Association, State};
use crate::event::{CloseReason, Event};
use crate::handshake::{Cookie, Offer, RANDOM_LEN, Refusal};
use crate::ids::Route;
use crate::recovery::{Fate, Outstanding};
use crate::serial::first;
use neater_base::Instant;
use neater_sctp_wire::cause::{
    InvalidMandatoryParameter, MissingParameters, ProtocolViolation, UnrecognizedParameters, UnresolvableAddress,
};
use neater_sctp_wire::chunk::Init;
use neater_sctp_wire::parameter::StateCookie;
use neater_sctp_wire::{Array, Tag};

/// The longest cookie that is echoed, in bytes: it fits into a packet that every path of today
/// takes (1,232 bytes over UDP and IPv6), with its headers and an AUTH chunk. Where packets must be
/// smaller, it may be cut on the way. Those of usrsctp and Linux have both sides' INIT chunks
/// within them, with all their addresses.
const MAX_COOKIE: usize = 1100;
/// What stands around it at most: the common header, that of the chunk, and an AUTH chunk.
const AROUND_COOKIE: usize = 12 + 4 + 28;

/// What a cookie means to the association that it meets (section 5.2.4, table 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// A: the peer has restarted.
    Restart,
    /// B: both have begun at about the same time.
    Collision,
    /// D: it is the cookie of this association.
    Same,
    /// C, and whatever is not in the table.
    Discard,
}

/// What an association begins with when its peer restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) random: [u8; RANDOM_LEN],
    pub(crate) ties: (u32, u32),
}

impl Association {
    /// Decides what a cookie means.
    pub(crate) fn resolve(&self, cookie: &Cookie) -> Resolution {
        let local = cookie.tag == self.tag;
        let peer = cookie.peer.tag == self.peer_tag && self.peer_tag != Tag::ZERO;
        let ties = cookie.ties == self.ties && cookie.ties != (0, 0);
        match (local, peer) {
            (false, false) if ties => Resolution::Restart,
            (true, false) => Resolution::Collision,
            (true, true) => Resolution::Same,
            _ => Resolution::Discard,
        }
    }

    /// The INIT ACK chunk has come.
    pub(super) fn on_init_ack(&mut self, arrived: &Arrived, init: &Init<'_>) {
        if self.state != State::CookieWait {
            return; // Section 5.2.3.
        }
        let (peer, cookie, report) = match Offer::read(init) {
            Ok((peer, Some(cookie), report)) => match peer.acceptable(&self.config, self.authenticated) {
                Ok(()) => (peer, cookie, report),
                Err(refusal) => {
                    self.peer_tag = peer.tag;
                    return self.refuse(&refusal);
                }
            },
            Ok((peer, None, _)) => {
                self.peer_tag = peer.tag;
                return self.refuse(&Refusal::NoCookie);
            }
            Err(refusal) => {
                self.peer_tag = init.tag;
                return self.refuse(&refusal);
            }
        };
        let route = arrived.path.unwrap_or(self.current);
        let most = usize::from(self.paths[route].mtu.most()).saturating_sub(AROUND_COOKIE);
        if cookie.len() > MAX_COOKIE.min(most) {
            self.peer_tag = peer.tag;
            return self.refuse(&Refusal::InvalidField("the cookie is too long for a packet"));
        }
        let path = arrived.path.unwrap_or(self.current);
        // T1-cookie begins with RTO.Initial where nothing better is known: INIT was sent again
        // (Karn), or one of the two stood still meanwhile, which is no evidence about the path. A
        // peer that has restarted since never answers (section 5.1.5), and its client is not to
        // wait for that all the longer.
        let rtt = &mut self.paths[path].rtt;
        match self.timers.t1.filter(|_| self.tries == 0).map(|t1| arrived.now - (t1 - rtt.rto())) {
            Some(took) if took < self.config.rto.initial => rtt.sample(took),
            _ => rtt.start_over(),
        }
        let room = self.paths[path].mtu.most();
        self.agree_as_initiator(&peer, room, arrived.route);
        (self.current, self.preferred) = (path, path);
        self.state = State::CookieEchoed(cookie.to_vec());
        self.outbox.state = true;
        self.timers.t1 = None;
        self.tries = 0;
        if !report.is_empty() {
            self.queue_error(&UnrecognizedParameters(&report).into());
        }
        self.events.push_back(Event::Reachable);
    }

    /// Takes the peer's offer, and gives up messages for streams that there are not.
    fn agree_as_initiator(&mut self, peer: &Offer, room: u16, from: Route) {
        self.agree(peer, room, from);
        for (stream, message) in self.queues.beyond() {
            self.queues.remove(stream, message);
            self.events.push_back(Event::Failed { message, stream, sent: false });
        }
        if !self.agreed.partial_reliability {
            self.queues.make_reliable();
            self.expiries.clear();
        }
    }

    /// The handshake cannot go on.
    fn refuse(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Silent => self.close(CloseReason::Refused("the peer's tag is zero")),
            Refusal::InvalidField(what) => {
                self.abort_with(&[InvalidMandatoryParameter.into()], CloseReason::Refused(what));
            }
            Refusal::Violation(what) => {
                self.abort_with(&[ProtocolViolation(what.as_bytes()).into()], CloseReason::Refused(what));
            }
            Refusal::HostName(name) => {
                let reason = CloseReason::Refused("the peer names a host in place of an address");
                self.abort_with(&[UnresolvableAddress(name).into()], reason);
            }
            Refusal::NoCookie => {
                let kinds = [StateCookie::KIND];
                let cause = MissingParameters { kinds: Array::from(&kinds[..]) };
                self.abort_with(&[cause.into()], CloseReason::Refused("there is no cookie in the INIT ACK chunk"));
            }
        }
    }

    /// The COOKIE ACK chunk has come.
    pub(super) fn on_cookie_ack(&mut self, now: Instant) {
        if matches!(self.state, State::CookieEchoed(_)) {
            if let (0, Some(t1)) = (self.tries, self.timers.t1) {
                let path = &mut self.paths[self.current];
                let sent_at = t1 - path.rtt.rto();
                path.rtt.sample(now - sent_at);
            }
            self.establish(now);
        }
    }

    /// The association is up.
    pub(super) fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.timers.t1 = None;
        self.outbox.state = false;
        self.tries = 0;
        self.errors = 0;
        self.events.push_back(Event::Connected);
        self.start_heartbeats(now);
        for path in &mut self.paths {
            if path.in_flight > 0 {
                path.t3 = Some(now + path.rtt.rto());
            }
        }
        if self.ending {
            self.shutdown(now);
        }
    }

    /// Our cookie has come back too late (section 5.2.6): the handshake begins again.
    pub(super) fn on_stale_cookie(&mut self, _now: Instant, _staleness_us: u32) {
        if !matches!(self.state, State::CookieEchoed(_)) {
            return;
        }
        // The second alternative after one new attempt: the peer's clock and ours may never agree.
        if core::mem::replace(&mut self.stale_before, true) {
            return self.close(CloseReason::Refused("the peer calls every cookie stale"));
        }
        self.lose_everything();
        self.state = State::CookieWait;
        self.peer_tag = Tag::ZERO;
        self.outbox.state = true;
        self.timers.t1 = None;
    }

    /// A cookie that is ours has come for this association (section 5.2.4). Returns whether the
    /// rest of the packet is for it.
    pub(crate) fn on_cookie(
        &mut self,
        now: Instant,
        cookie: &Cookie,
        resolution: Resolution,
        from: Route,
        fresh: Fresh,
    ) -> bool {
        match resolution {
            Resolution::Restart => self.on_restart(now, cookie, from, fresh),
            Resolution::Collision => self.on_collision(now, cookie, from),
            Resolution::Same => {
                if matches!(self.state, State::CookieEchoed(_)) {
                    self.establish(now);
                }
                self.acknowledge_cookie(from);
                true
            }
            Resolution::Discard => false,
        }
    }

    /// Action B: the cookie of the peer's INIT, made with our tag.
    fn on_collision(&mut self, now: Instant, cookie: &Cookie, from: Route) -> bool {
        if !matches!(self.state, State::CookieWait | State::CookieEchoed(_)) {
            // The tag changes under an association that is up: its data would be for another one.
            return false;
        }
        self.lose_everything();
        let room = self.paths[self.current].mtu.most();
        self.agree_as_initiator(&cookie.peer, room, cookie.route);
        self.establish(now);
        self.acknowledge_cookie(from);
        true
    }

    /// Action A: the peer has lost everything.
    fn on_restart(&mut self, now: Instant, cookie: &Cookie, from: Route, fresh: Fresh) -> bool {
        if self.state == State::ShutdownAckSent {
            self.outbox.state = true;
            self.timers.t2 = None;
            self.queue_error(&neater_sctp_wire::cause::CookieWhileShuttingDown.into());
            return false;
        }
        // The application's wish to end it outlives the peer's memory.
        let keeps = self.config.outlives_restart;
        let ending = keeps && matches!(self.state, State::ShutdownPending | State::ShutdownSent);
        // What was sent may or may not have arrived; what was not sent at all can still be.
        let sent = self.out.drain().into_iter().filter(|s| s.fate != Fate::Abandoned);
        let sent: Vec<_> = sent.map(|s| (s.piece.id, s.piece.stream)).collect();
        let waiting = self.queues.drain();
        let mut failed: Vec<_> = sent;
        failed.extend(waiting.iter().filter(|(_, m)| m.started.is_some()).map(|(s, m)| (m.id, *s)));
        failed.sort_unstable();
        failed.dedup();
        for (message, stream) in failed {
            self.events.push_back(Event::Failed { message, stream, sent: true });
        }
        let (waiting, never) = if keeps { (waiting, Vec::new()) } else { (Vec::new(), waiting) };
        for (stream, message) in never.into_iter().filter(|(_, m)| m.started.is_none()) {
            self.events.push_back(Event::Failed { message: message.id, stream, sent: false });
        }
        self.forget_changes();
        let request = self.forget_request();
        (self.tag, self.initial, self.random) = (cookie.tag, cookie.initial, fresh.random);
        // A cookie with those that it had until now is from before this restart, and must not cause
        // another.
        self.ties = fresh.ties;
        self.out = Outstanding::new(first(cookie.initial.0));
        self.queues = self.queues.anew(self.config.outbound_streams, keeps);
        self.concurrent = None;
        for path in &mut self.paths {
            path.restart(&self.config);
        }
        let room = self.paths[self.current].mtu.most();
        self.agree(&cookie.peer, room, cookie.route);
        for (stream, message) in waiting {
            if message.started.is_some() {
                continue;
            }
            if stream.0 < self.queues.count() {
                self.queues.push(stream, message);
            } else {
                self.events.push_back(Event::Failed { message: message.id, stream, sent: false });
            }
        }
        if !self.agreed.partial_reliability {
            self.queues.make_reliable();
            self.expiries.clear();
        }
        self.reduced_to = 0;
        self.outbox = super::Outbox::default();
        self.timers = super::Deadlines::default();
        (self.tries, self.errors) = (0, 0);
        self.state = State::Established;
        self.acknowledge_cookie(from);
        self.routes_changed = true;
        self.tell_forgotten(request);
        self.events.push_back(Event::Restarted);
        (self.restarted, self.readable_told) = (true, false);
        self.start_heartbeats(now);
        if ending {
            self.shutdown(now);
        }
        true
    }

    /// A COOKIE ACK chunk goes to where the cookie came from, if that is known to be the peer's
    /// address (section 5.4).
    pub(super) fn acknowledge_cookie(&mut self, from: Route) {
        let known = self.paths.iter().any(|p| p.route == from && p.is_active());
        self.outbox.cookie_ack = Some(if known { from } else { self.paths[self.current].route });
    }

    /// Data that went with a COOKIE ECHO chunk is sent again with the next.
    pub(super) fn lose_everything(&mut self) {
        let flying: Vec<u64> = self.out.iter().map(|(tsn, _)| tsn).collect();
        for tsn in flying {
            if let Some((path, size)) = self.out.lose(tsn, false) {
                self.paths[usize::from(path.0)].leave(size);
            }
        }
        for path in &mut self.paths {
            (path.t3, path.reorder, path.tail.due) = (None, None, None);
        }
    }
}
