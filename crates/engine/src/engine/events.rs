//! What carriers report, and what becomes of it: the one way from a protocol to connections, races, groups and listeners.

use super::Engine;
use crate::carrier::SessionId;
use crate::carrier::event::CarrierEvent;
use crate::conn::ConnectionState;
use crate::event::Event;
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

    fn on_carrier_event(&mut self, event: CarrierEvent) {
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
                self.trial_without_end(session);
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

    /// Which candidate of a connection's race this session is an attempt of; `Some(None)`: the cached outcome, tried alone. `None`:
    /// it has been withdrawn meanwhile.
    fn candidate_of(&self, conn: Key, session: SessionId) -> Option<Option<CandidateId>> {
        let c = self.conns.get(conn)?;
        let attempts = c.est.as_deref().map_or(&[][..], |est| &est.attempts);
        match attempts.iter().find(|a| a.session == session) {
            Some(attempt) => Some(attempt.candidate),
            // What has won is no attempt any more, though its framer may still shake hands.
            None if c.state != ConnectionState::Establishing || c.is_greeting() => None,
            None => (c.flow.tries() == Some(session)).then_some(None),
        }
    }
}
