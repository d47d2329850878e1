//! What is sent, and when it may be.

use super::Conn;
use super::segment::{MAX_UNSCALED_WINDOW, Segment, Seq};
use super::state::State;
use neater_base::Instant;

impl Conn {
    /// Sends the SYN, for the first time or again; with an ACK once the peer's SYN is known.
    pub(super) fn send_syn(&mut self, now: Instant) {
        let answering = self.state == State::SynReceived;
        let window = if answering { self.rcv.acknowledge() } else { self.rcv.limit() as u64 };
        let seq = self.snd.iss;
        let first = self.snd.max == seq;
        self.output.push_back(Segment {
            seq,
            ack: answering.then_some(self.rcv.nxt),
            syn: true,
            window: window.min(MAX_UNSCALED_WINDOW),
            mss: Some(self.path_mtu.saturating_sub(self.overhead)),
            ..Segment::default()
        });
        self.snd.sent(now, seq.plus(1), first);
        self.snd.nxt = seq.plus(1);
        self.timers.start_retransmit(now + self.rtt.rto());
        if !first {
            self.retransmits += 1;
        }
    }

    /// Sends all that may be sent now: data, FIN, or an acknowledgment that is owed.
    pub(super) fn transmit(&mut self, now: Instant) {
        if self.state.may_transmit() {
            if self.snd.flight() == 0 && now - self.snd.last_sent > self.rtt.rto() {
                self.cc.restart_after_idle();
            }
            // Bounded: every turn sends a segment into a finite window.
            while self.send_next(now) {}
        }
        if self.rcv.must_ack_now() && !self.state.is_opening() && !self.is_closed() {
            self.send_ack();
        }
        self.rcv.schedule_ack(now);
        self.watch_window(now);
    }

    /// Sends the next segment if window, congestion and size allow it.
    fn send_next(&mut self, now: Instant) -> bool {
        let (nxt, end) = (self.snd.nxt, self.snd.data_end());
        if nxt > end {
            return false;
        }
        let window = self.snd.wnd.min(self.cc.window() + self.cc.limited_transmit());
        let room = self.snd.una.plus(window).since(nxt);
        let unsent = end.since(nxt);
        let len = unsent.min(self.snd.mss).min(room);
        let fin = self.snd.fin_queued && len == unsent;
        if len == 0 && !fin {
            return false;
        }
        if nxt == self.snd.max && len < self.snd.mss && !self.may_be_small(len, unsent) {
            return false;
        }
        self.emit(now, nxt, len, fin);
        self.snd.nxt = nxt.plus(len + u64::from(fin));
        true
    }

    /// Whether a segment that is not full may be sent: Nagle's algorithm and the sender's side of silly window avoidance
    /// (RFC 9293 sections 3.7.4 and 3.8.6.2.1).
    fn may_be_small(&self, len: u64, unsent: u64) -> bool {
        let all = len == unsent && (self.options.no_delay || self.snd.fin_queued || self.snd.flight() == 0);
        all || (len > 0 && 2 * len >= self.snd.max_wnd)
    }

    /// Sends the first unacknowledged segment again, whatever the windows say, and returns the number after it.
    pub(super) fn retransmit_first(&mut self, now: Instant) -> Seq {
        let (una, end) = (self.snd.una, self.snd.data_end());
        let len = end.since(una).min(self.snd.mss).min(self.snd.max.since(una));
        let fin = self.snd.fin_queued && una.plus(len) == end && self.snd.max > end;
        if len > 0 || fin {
            self.emit(now, una, len, fin);
        }
        una.plus(len + u64::from(fin))
    }

    /// One byte beyond the window, so that the peer states its window again: "The sending TCP peer must regularly
    /// transmit at least one octet of new data" (RFC 9293 section 3.8.6.1). Or, if the window is merely too small for a
    /// full segment, what fits.
    pub(super) fn send_probe(&mut self, now: Instant) {
        let una = self.snd.una;
        let len = self.snd.data_end().since(una).min(self.snd.mss).min(self.snd.wnd.max(1));
        let payload = self.snd.bytes_at(una, len);
        let end = una.plus(payload.len() as u64);
        let segment = self.data_segment(una, payload, false);
        self.output.push_back(segment);
        self.snd.sent(now, end, false);
    }

    /// A segment below the window that asks for an acknowledgment (RFC 9293 section 3.8.4).
    pub(super) fn send_keep_alive(&mut self) {
        let segment = self.data_segment(self.snd.una.minus(1), bytes::Bytes::new(), false);
        self.output.push_back(segment);
    }

    pub(super) fn send_ack(&mut self) {
        let segment = self.data_segment(self.snd.max, bytes::Bytes::new(), false);
        self.output.push_back(segment);
    }

    pub(super) fn send_reset(&mut self) {
        let seq = self.snd.max;
        self.output.push_back(Segment { seq, ack: Some(self.rcv.nxt), rst: true, ..Segment::default() });
    }

    fn data_segment(&mut self, seq: Seq, payload: bytes::Bytes, fin: bool) -> Segment {
        let window = self.rcv.acknowledge();
        Segment { seq, ack: Some(self.rcv.nxt), fin, window, payload, ..Segment::default() }
    }

    fn emit(&mut self, now: Instant, seq: Seq, len: u64, fin: bool) {
        let payload = self.snd.bytes_at(seq, len);
        let segment = self.data_segment(seq, payload, fin);
        let end = segment.end();
        let new = seq >= self.snd.max;
        if !new {
            self.retransmits += 1;
        }
        self.output.push_back(segment);
        self.snd.sent(now, end, new);
        if !self.timers.retransmit_is_running() {
            self.timers.start_retransmit(now + self.rtt.rto());
        }
    }

    /// Starts or stops the persist timer: it runs while data wait, nothing is in flight and the window forbids sending.
    fn watch_window(&mut self, now: Instant) {
        let stuck =
            self.state.may_transmit() && !self.timers.retransmit_is_running() && self.snd.nxt < self.snd.data_end();
        if !stuck {
            self.timers.stop_persist();
        } else if !self.timers.persist_is_running() {
            self.snd.stalled_since.get_or_insert(now);
            self.timers.start_persist(now, self.rtt.rto());
        }
    }
}
