//! What carriers report, and what becomes of it: the one way from a protocol to connections, races,
//! groups and listeners.
//!
//! *Invariants*: a session sends nothing before its events are handled: what is queued in answer to
//! them is to be in the packets that leave now.

use crate::MessageId;
use crate::carrier::dispatch::{Flush, Flushed};
use crate::carrier::event::CarrierEvent;
use crate::carrier::{FlowId, SessionId};
use crate::closing::NO_CODE;
use crate::conn::{Conn, ConnectionState};
use crate::engine::Engine;
use crate::event::{ConnectionError, Event, SendError};
use crate::queue::ReceivedDatagram;
use neater_base::Key;
use neater_base::net::Net;
use neater_race::CandidateId;

impl<N: Net> Engine<N> {
    /// Handles what the carriers have reported, until there is no more.
    pub(crate) fn drain_carriers(&mut self) {
        loop {
            if self.carriers.pass_between_layers(&mut self.cx) {
                continue;
            }
            let Some(event) = self.carriers.poll_event() else { return };
            self.on_carrier_event(event);
        }
    }

    pub(crate) fn on_carrier_event(&mut self, event: CarrierEvent) {
        match event {
            CarrierEvent::Readable { conn } => self.flow_readable(conn),
            CarrierEvent::Writable { conn } => self.conn_ready_stream(conn, false),
            CarrierEvent::AllLeft { conn } => self.all_left(conn),
            CarrierEvent::AllAcked { conn } => self.all_acked(conn),
            CarrierEvent::PeerStopped { conn, code } => self.peer_stopped(conn, code),
            CarrierEvent::PeerReset { conn, code } => self.peer_reset(conn, code),
            CarrierEvent::MessageAcked { conn, id } => self.message_acked(conn, id),
            CarrierEvent::MessageLost { conn, id, error } => self.message_lost(conn, id, error),
            CarrierEvent::Turns { session } => self.give_turns(session),
            CarrierEvent::FlowLost { conn, lost } => self.session_lost(conn, lost),
            CarrierEvent::StreamsWaiting { session } => self.accept_streams(session),
            CarrierEvent::StreamsAllowed { session } => self.open_pending(session),
            CarrierEvent::DatagramsWaiting { session } => self.accept_datagrams(session),
            CarrierEvent::Reachable { attempt, session, rtt } => {
                let known = self.candidate_of(attempt, session).zip(self.carriers.describe(session));
                if let Some((candidate, (stack, addr))) = known {
                    self.reachable(attempt, candidate, stack, addr, rtt);
                }
            }
            CarrierEvent::Became { attempt, session, before, stack } => {
                if self.candidate_of(attempt, session).is_some() {
                    self.attempt_became(attempt, session, before, stack);
                }
            }
            CarrierEvent::Established { attempt, session } => {
                if let Some(candidate) = self.candidate_of(attempt, session) {
                    self.attempt_established(attempt, candidate, session);
                }
            }
            CarrierEvent::Failed { attempt, session, error } => {
                if let Some(candidate) = self.candidate_of(attempt, session) {
                    self.attempt_failed(attempt, candidate, session, error);
                }
            }
            CarrierEvent::LateAnswer { session } => self.trial_passed(session),
            CarrierEvent::NoAnswer { session } => self.trial_failed(session),
            CarrierEvent::Incoming { session, listener } => self.session_arrived(session, listener),
            CarrierEvent::IsUsed { session } => self.say_if_used(session),
            CarrierEvent::SessionLost { session, group, lost, known } => {
                self.group_lost(session, group, &lost, known);
            }
            CarrierEvent::SessionGone { session, group } => {
                // A withdrawn attempt is gone before its time was over, and shows nothing.
                drop(self.trials.take(session));
                if let Some(group) = group {
                    self.session_is_gone(group, session);
                }
            }
            CarrierEvent::Datagram { conn, data, ecn } => {
                if self.queue_datagram(conn, ReceivedDatagram { data, ecn }) {
                    self.arrived(conn);
                }
            }
            CarrierEvent::SoftError { conn, error } => {
                if self.conns.get(conn).is_some_and(|c| c.request.soft_errors) {
                    self.notify(conn, Event::SoftError(error));
                }
            }
            CarrierEvent::PathChanged { conn } => self.notify(conn, Event::PathChange),
            CarrierEvent::FlowClosed { conn } => self.flow_closed(conn),
            CarrierEvent::FlowFailed { conn, error } => self.fail_connection(conn, error),
            CarrierEvent::Accepted { session, listener } => drop(self.accepted(session, listener)),
            CarrierEvent::HandshakeOver { listener } => self.handshake_over(listener),
            CarrierEvent::HandshakeDue { conn } => self.early_timeout(conn),
            CarrierEvent::FromPeer { listener, socket, peer, data, ecn } => {
                self.on_peer_datagram(listener, (socket, peer), ReceivedDatagram { data, ecn });
            }
            CarrierEvent::ReadOn(reading) => {
                let full = self.carriers.listener_read(&reading).is_some_and(|l| self.is_full(l));
                self.cx.connections = self.conns.len();
                self.carriers.read_on(&mut self.cx, reading, full);
            }
            CarrierEvent::CloseWentOn { conn, closed } => self.closing_went_on(conn, closed),
        }
    }

    /// Which candidate of a connection's race this session is an attempt of; `Some(None)`: the
    /// cached outcome, tried alone. `None`: it has been withdrawn meanwhile.
    pub(crate) fn candidate_of(&self, conn: Key, session: SessionId) -> Option<Option<CandidateId>> {
        let c = self.conns.get(conn)?;
        let attempts = c.est.as_deref().map_or(&[][..], |est| &est.attempts);
        match attempts.iter().find(|a| a.session == session) {
            Some(attempt) => Some(attempt.candidate),
            // What has won is no attempt any more, though its framer may still shake hands.
            None if c.state != ConnectionState::Establishing || c.is_framer_handshaking() => None,
            None => (c.flow.tries() == Some(session)).then_some(None),
        }
    }

    /// Data can be received on a flow, or its end.
    pub(crate) fn flow_readable(&mut self, conn: Key) {
        // It may have left its flow since that was reported.
        if self.conns.get(conn).is_some_and(|c| c.flow != FlowId::None) {
            self.conn_ready_stream(conn, true);
        }
    }

    /// The peer has abandoned its direction of a flow. A stream on which nothing can be sent any
    /// more is over then.
    pub(crate) fn peer_reset(&mut self, conn: Key, code: u64) {
        if let Some(c) = self.conns.get_mut(conn)
            && c.is_open()
            && c.send.is_over_for_peer()
        {
            c.recv = c.recv.on_reset(code);
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// The peer has acknowledged a message.
    pub(crate) fn message_acked(&mut self, conn: Key, id: MessageId) {
        if let Some(c) = self.conns.get_mut(conn) {
            c.messages_sent = c.messages_sent.saturating_add(1);
        }
        self.notify(conn, Event::Sent(id));
    }

    /// A message that need not arrive was given up.
    pub(crate) fn message_lost(&mut self, conn: Key, id: MessageId, error: Option<SendError>) {
        self.notify(
            conn,
            match error {
                Some(error) => Event::SendError(id, error),
                None => Event::Expired(id),
            },
        );
    }

    /// Gives those that wait for room in a session their turns.
    pub(crate) fn give_turns(&mut self, session: SessionId) {
        let mut waiting = self.carriers.in_turn(session);
        waiting.retain_mut(|w| {
            let Some(c) = self.conns.get(w.conn) else { return false };
            (w.queued, w.priority) = (!c.tx.is_empty(), c.priority());
            w.queued || c.wants_room
        });
        self.carriers.begin_turns(session, waiting);
        while let Some(conn) = self.carriers.next_turn(session) {
            let before = self.conns.get(conn).map_or((0, 0), |c| (c.bytes_sent, c.tx.queue.len()));
            self.conn_ready_stream(conn, false);
            let moved = |c: &Conn| c.bytes_sent > before.0 || c.tx.queue.len() < before.1;
            let more = self.conns.get(conn).is_some_and(|c| !c.tx.is_empty() && moved(c));
            self.carriers.end_turn(session, more);
        }
    }

    /// All that was sent on a flow that acknowledges nothing has left.
    pub(crate) fn all_left(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing && c.tx.is_empty()) {
            self.finish_close(conn);
        }
    }

    /// The peer has acknowledged everything, the end of this side's direction included.
    pub(crate) fn all_acked(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        // What it did not want it has not got.
        if !c.given_up() {
            c.send = c.send.on_all_acked();
        }
        self.wake_sender(conn);
        let Some(c) = self.conns.get(conn) else { return };
        if c.state == ConnectionState::Closing {
            match c.refusal() {
                Some(error) => self.fail_connection(conn, error),
                None => self.finish_close(conn),
            }
        } else {
            self.both_ended(conn);
            self.find_reset(conn);
        }
    }

    /// The peer does not want more of what this side sends.
    pub(crate) fn peer_stopped(&mut self, conn: Key, code: u64) {
        if self.conns.get(conn).is_some_and(|c| c.flow.is_stream_of_session()) {
            self.stream_stopped(conn, code);
            self.find_reset(conn);
            self.both_ended(conn);
        }
    }

    pub(crate) fn stream_stopped(&mut self, conn: Key, code: u64) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_framer_handshaking() {
            return self.framer_handshake_failed(conn, &ConnectionError::StreamReset(code));
        }
        if c.send.is_finished() && code == NO_CODE && c.recv.reset_code().is_none() {
            c.send = c.send.on_unwanted();
            // Everything is on its way, the end included: the acknowledgement will show what has
            // become of it (RFC 9000 section 3.5 lets us wait for it).
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && self.carriers.is_delivered(c.flow);
        self.carriers.reset(c.flow, code);
        self.given_up_by_peer(conn, delivered, code);
    }

    /// The peer has closed what carries a connection.
    pub(crate) fn flow_closed(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        match c.state {
            // What has arrived can still be read, and then the end; what the peer can no longer
            // take is reported.
            ConnectionState::Established if !c.is_framer_handshaking() => {
                self.end_message(conn);
                self.report_unsent(conn, &ConnectionError::Closed);
                self.notify(conn, Event::Readable);
                self.notify(conn, Event::Closed);
                self.set_closed(conn);
            }
            ConnectionState::Closed => {}
            _ => self.fail_connection(conn, ConnectionError::Closed),
        }
    }

    /// Sends what sessions have to send, and reports what has happened to them.
    #[inline(never)]
    pub(crate) fn flush_carriers(&mut self) {
        self.carriers.take_back_windows(&mut self.cx);
        self.drain_carriers();
        self.flush_all();
        // What was reported may have something sent in turn.
        while self.carriers.has_events() {
            self.drain_carriers();
            self.flush_all();
        }
    }

    pub(crate) fn flush_all(&mut self) {
        for of in Flushed::ALL {
            self.flush_dirty(of);
        }
    }

    /// Lets every session of a carrier that has something to do do it.
    pub(crate) fn flush_dirty(&mut self, of: Flushed) {
        // One may mark another; what is marked again by the budget waits for the next turn.
        for _ in 0..ROUNDS {
            if !self.carriers.is_dirty(of) {
                return;
            }
            let mut list = self.carriers.take_dirty(of);
            for key in list.drain(..) {
                self.carriers.unmark(of, key);
                self.flush_session(Flush::new(of, key));
            }
            self.carriers.keep_list(of, list);
        }
        self.cx.again |= self.carriers.is_dirty(of);
    }

    pub(crate) fn flush_session(&mut self, mut flush: Flush) {
        loop {
            // Events first: they may produce more to send.
            while self.carriers.collect(&mut self.cx, &mut flush) {
                self.drain_carriers();
            }
            self.drain_carriers();
            if !self.carriers.transmit(&mut self.cx, &mut flush) {
                break;
            }
        }
        self.carriers.rest(&mut self.cx, &flush);
        self.drain_carriers();
        self.carriers.tidy(&mut self.cx, &flush);
        self.drain_carriers();
    }

    /// Sends what the session of a flow has queued itself and may send now.
    pub(crate) fn send_queued(&mut self, flow: FlowId) {
        if let Some(flush) = Flush::of(flow) {
            self.flush_session(flush);
        }
    }
}

/// How often those are looked at that are marked while others are flushed, before they wait for the
/// next turn.
const ROUNDS: usize = 8;
