//! The end of an association (RFC 9260 section 9).

use super::{Association, State};
use crate::event::{CloseReason, Event};
use crate::ids::Route;
use crate::serial::unwrap32;
use neater_base::Instant;
use neater_sctp_wire::chunk::{Abort, ShutdownComplete};
use neater_sctp_wire::{Array, Cause, Causes, Checksum, ChunkSet, CommonHeader, PacketBuilder, Tag, Tsn};

impl Association {
    /// Whether data from the peer is taken.
    pub(super) const fn is_receiving(&self) -> bool {
        matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownSent)
    }

    /// Whether data is sent.
    pub(super) const fn is_sending(&self) -> bool {
        matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived)
    }

    /// Goes on with the shutdown if all data is acknowledged.
    pub(super) fn advance_shutdown(&mut self, now: Instant) {
        if !self.queues.is_empty() || !self.out.is_empty() {
            return;
        }
        let next = match self.state {
            State::ShutdownPending => State::ShutdownSent,
            State::ShutdownReceived => State::ShutdownAckSent,
            _ => return,
        };
        self.enter_shutdown(now, next);
    }

    fn enter_shutdown(&mut self, now: Instant, state: State) {
        self.timers.guard.get_or_insert(now + 5 * self.config.rto.max);
        self.state = state;
        self.outbox.state = true;
        self.timers.t2 = None;
        self.tries = 0;
        for path in &mut self.paths {
            path.heartbeat.stop();
            path.mtu.stop();
            path.paced_until = None;
        }
    }

    pub(super) fn on_shutdown(&mut self, now: Instant, cumulative: Tsn) {
        match self.state {
            State::Established | State::ShutdownPending => {
                if !self.acknowledge_to(now, cumulative) {
                    return;
                }
                self.state = State::ShutdownReceived;
                self.events.push_back(Event::PeerShutdown);
            }
            State::ShutdownReceived => {
                self.acknowledge_to(now, cumulative);
            }
            // Both have sent it.
            State::ShutdownSent => self.enter_shutdown(now, State::ShutdownAckSent),
            State::ShutdownAckSent => {
                self.outbox.state = true;
                self.timers.t2 = None;
            }
            State::CookieWait | State::CookieEchoed(_) | State::Closed => {}
        }
    }

    /// The cumulative TSN of a SHUTDOWN chunk; false if it ended the association.
    ///
    /// Some implementations (pion, webrtc-rs and with it str0m) put a TSN of their own data there,
    /// which has nothing to do with ours. A number that is none of a chunk that waits for
    /// acknowledgement acknowledges nothing, and is no reason to end the association in disorder:
    /// what is outstanding is sent until a SACK chunk acknowledges it, and only then the shutdown
    /// goes on (section 9.2).
    fn acknowledge_to(&mut self, now: Instant, cumulative: Tsn) -> bool {
        let tsn = unwrap32(self.out.base(), cumulative.0);
        if (self.out.base()..self.out.next()).contains(&tsn) {
            self.acknowledge(now, tsn, None, core::iter::empty(), (Array::EMPTY, 0));
        }
        !self.is_closed()
    }

    pub(super) fn on_shutdown_ack(&mut self, route: Route) {
        match self.state {
            State::ShutdownSent | State::ShutdownAckSent => {
                let tag = self.peer_tag;
                self.farewell =
                    self.packet(tag, |p| p.push(&ShutdownComplete { reflected: false })).map(|b| Box::new((route, b)));
                self.close(CloseReason::Shutdown);
            }
            // Section 8.5.1 E and 9.2: of an association that we know nothing of.
            State::CookieWait | State::CookieEchoed(_) => {}
            _ => {}
        }
    }

    /// The tag rules of section 8.5.1 have been applied.
    pub(super) fn on_shutdown_complete(&mut self) {
        if self.state == State::ShutdownAckSent {
            self.close(CloseReason::Shutdown);
        }
    }

    /// Whether the peer has acknowledged everything, and only the last chunks of the shutdown are
    /// missing.
    pub(crate) const fn is_shut(&self) -> bool {
        matches!(self.state, State::ShutdownSent | State::ShutdownAckSent)
    }

    /// Ends the association without a packet: the layer below carries none any more.
    pub(crate) fn end(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    /// Ends the association; the peer gets the reason, if its tag is known.
    pub(super) fn abort_with(&mut self, causes: &[Cause<'_>], reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        if self.peer_tag != Tag::ZERO {
            let tag = self.peer_tag;
            let route = self.paths[self.current].route;
            let abort = Abort { reflected: false, causes: Causes::new(causes) };
            self.farewell = self.packet(tag, |p| p.push(&abort)).map(|b| Box::new((route, b)));
        }
        self.close(reason);
    }

    /// A packet of its own, small enough for every path.
    fn packet(
        &mut self,
        tag: Tag,
        write: impl FnOnce(&mut PacketBuilder<'_>) -> Result<(), neater_sctp_wire::Full>,
    ) -> Option<Vec<u8>> {
        let mut buffer = vec![0; usize::from(crate::config::MIN_ROOM)];
        let header = CommonHeader { source_port: self.port, destination_port: self.peer_port, tag };
        let mut packet = PacketBuilder::new(&mut buffer, header).ok()?;
        self.sign(&mut packet, ChunkSet::EMPTY);
        write(&mut packet).ok()?;
        self.seal(&mut packet);
        let len = packet.finish(Checksum::Crc32c);
        buffer.truncate(len);
        Some(buffer)
    }
}
