//! What is sent, and when it may be.

use super::payload::Payload;
use super::segment::{MAX_UNSCALED_WINDOW, Sack, Segment, Seq};
use super::state::State;
use super::timer::Alarm;
use super::{Conn, EcnMode};
use neater_base::Instant;
use neater_base::net::Ecn;

impl Conn {
    /// Sends the SYN, for the first time or again; with an ACK once the peer's SYN is known.
    pub(super) fn send_syn(&mut self, now: Instant) {
        let answering = self.state == State::SynReceived;
        let tcp = self.options.tcp;
        let window = if answering { self.rcv.acknowledge() } else { self.rcv.limit() as u64 };
        let seq = self.snd.iss;
        let first = self.snd.max == seq;
        // An option is answered only if it was asked for.
        let offers = |wanted: bool, agreed: bool| if answering { agreed } else { wanted };
        let timestamps = offers(tcp.timestamps, self.agreed.timestamps);
        let ecn = offers(tcp.ecn == EcnMode::Request, self.agreed.ecn);
        self.output.push_back(Segment {
            seq,
            ack: answering.then_some(self.rcv.nxt),
            syn: true,
            ece: ecn,
            cwr: ecn && !answering,
            window: window.min(MAX_UNSCALED_WINDOW),
            mss: Some(self.path_mtu.saturating_sub(self.overhead)),
            scale: offers(tcp.window_scaling, self.agreed.scale).then(|| self.rcv.wanted_shift()),
            sack_permitted: offers(tcp.sack, self.agreed.sack),
            multipath: offers(self.options.multipath, self.agreed.multipath.is_some()).then_some(0),
            timestamps: timestamps.then(|| super::Timestamps { value: Self::clock(now), echo: self.recent }),
            ..Segment::default()
        });
        self.snd.syn_at = first.then_some(now);
        self.snd.max = seq.plus(1);
        self.snd.stalled_since.get_or_insert(now);
        self.timers.set_alarm(Alarm::Timeout, now + self.rtt.rto());
        if !first {
            self.counts.retransmits += 1;
        }
    }

    /// Sends all that may be sent now: lost data again, new data, FIN, or an acknowledgment that is owed.
    pub(super) fn transmit(&mut self, now: Instant) {
        if self.state.may_transmit() {
            if self.snd.has_new() {
                self.cc.on_send_after(now, self.snd.flight(), self.rtt.rto());
            }
            if !self.recovery.new_first && self.snd.board.lost() > 0 {
                self.resend_lost(now);
            }
            let empty = self.snd.board.is_empty();
            let mut sent = false;
            // Bounded: every turn sends a segment into a finite window.
            while self.send_next(now) {
                sent = true;
            }
            self.watch_usage(sent);
            if sent {
                if empty || self.timers.alarm() == Some(Alarm::Probe) || self.timers.alarm().is_none() {
                    self.arm_timeout(now, empty);
                }
                self.arm_probe(now, false);
            }
        }
        if self.rcv.must_ack_now() && !self.state.is_opening() && !self.is_closed() {
            self.send_ack(now);
        }
        self.rcv.schedule_ack(now, self.rtt.smoothed());
        self.watch_window(now);
    }

    /// Remembers whether the congestion window is what holds the sender back (Linux: `tcp_cwnd_validate`).
    fn watch_usage(&mut self, sent: bool) {
        let limited = self.in_flight() + self.snd.mss > self.cc.window();
        if !sent && !limited {
            return;
        }
        let most = self.snd.flight();
        let usage = &mut self.usage;
        if self.snd.una >= usage.until || limited || (!usage.limited && most > usage.most) {
            *usage = super::Usage { limited, most, until: self.snd.max };
        }
    }

    /// Whether `len` bytes more may be in flight, and be sent now if the connection is paced.
    fn may_send(&mut self, now: Instant, len: u64) -> bool {
        if self.in_flight() + len > self.cc.window() {
            return false;
        }
        let Some(rate) = self.cc.pacing_rate(self.rtt.smoothed()) else { return true };
        let burst = self.options.tcp.congestion.pacing.map_or(0, |p| u64::from(p.burst_segments) * self.snd.mss);
        let at = self.pacer.release(now, rate, burst);
        if at > now {
            self.timers.pace = Some(at);
            return false;
        }
        true
    }

    /// Something of `len` bytes was sent.
    fn account(&mut self, now: Instant, len: u64, in_flight: u64) {
        self.cc.on_sent(now, len, in_flight);
        if let Some(rate) = self.cc.pacing_rate(self.rtt.smoothed()) {
            self.pacer.on_sent(now, len, rate);
        }
    }

    /// Sends lost segments again, lowest first, as far as the window allows.
    fn resend_lost(&mut self, now: Instant) {
        while let Some(index) = self.snd.board.next_lost() {
            let Some(len) = self.snd.board.get(index).map(|s| s.len().min(self.snd.mss)) else { return };
            if !std::mem::take(&mut self.recovery.force) && !self.may_send(now, len) {
                return;
            }
            self.resend(now, index);
            if index == 0 && self.timers.alarm() != Some(Alarm::Reorder) {
                self.timers.set_alarm(Alarm::Timeout, now + self.rtt.rto());
            }
        }
    }

    /// Sends the segment at `index` of the scoreboard again, cut if segments have become smaller.
    fn resend(&mut self, now: Instant, index: usize) {
        self.snd.board.split(index, self.snd.mss);
        let Some(s) = self.snd.board.get(index).copied() else { return };
        let in_flight = self.in_flight();
        let payload = self.snd.bytes_at(s.seq, s.len() - u64::from(s.fin));
        let segment = self.data_segment(now, s.seq, payload, s.fin);
        self.output.push_back(segment);
        self.snd.board.retransmitted(now, index);
        self.counts.retransmits += 1;
        self.account(now, s.len(), in_flight);
        self.resent(now);
        self.snd.stalled_since.get_or_insert(now);
    }

    /// Sends the first unacknowledged segment again, whatever the windows say.
    pub(super) fn resend_first(&mut self, now: Instant) {
        if !self.snd.board.is_empty() {
            self.resend(now, 0);
        }
    }

    /// Sends the last segment again, as a probe. False if there is none.
    pub(super) fn resend_last(&mut self, now: Instant) -> bool {
        let Some(last) = self.snd.board.count().checked_sub(1) else { return false };
        self.resend(now, last);
        true
    }

    /// Sends one new segment beyond the congestion window, as a probe. False if there is none or the peer has no room.
    pub(super) fn send_new_probe(&mut self, now: Instant) -> bool {
        let unsent = self.snd.unsent();
        let room = self.snd.una.plus(self.snd.wnd).since(self.snd.max);
        let len = unsent.min(self.snd.mss);
        let fin = self.snd.fin_queued && len == unsent && self.snd.has_new();
        if (len == 0 && !fin) || len > room {
            return false;
        }
        self.emit(now, len, fin);
        true
    }

    /// Sends the next new segment if window, congestion and size allow it.
    fn send_next(&mut self, now: Instant) -> bool {
        let unsent = self.snd.unsent();
        if unsent == 0 && !self.snd.has_new() {
            return false;
        }
        let room = self.snd.una.plus(self.snd.wnd).since(self.snd.max);
        let len = unsent.min(self.snd.mss).min(room);
        let fin = self.snd.fin_queued && len == unsent;
        if len == 0 && !fin {
            return false;
        }
        if len < self.snd.mss && !self.may_be_small(len, unsent) {
            return false;
        }
        if !self.may_send(now, len.max(1)) {
            return false;
        }
        self.emit(now, len, fin);
        true
    }

    /// Whether a segment that is not full may be sent: Nagle's algorithm and the sender's side of silly window avoidance
    /// (RFC 9293 sections 3.7.4 and 3.8.6.2.1).
    fn may_be_small(&self, len: u64, unsent: u64) -> bool {
        let all = len == unsent && (self.options.no_delay || self.snd.fin_queued || self.snd.flight() == 0);
        all || (len > 0 && 2 * len >= self.snd.max_wnd)
    }

    /// Makes the peer state its window again (RFC 9293 section 3.8.6.1). If the window is merely too small for a full segment,
    /// what fits; if it is closed, a segment below it that must be answered, as Linux does, so that nothing is outstanding
    /// which the peer had no room for.
    pub(super) fn send_probe(&mut self, now: Instant) {
        let room = self.snd.una.plus(self.snd.wnd).since(self.snd.max);
        let len = self.snd.unsent().min(self.snd.mss).min(room);
        let fin = self.snd.fin_queued && len == self.snd.unsent() && room > 0;
        if len == 0 && !fin {
            return self.send_keep_alive(now);
        }
        self.emit(now, len, fin);
        self.arm_timeout(now, true);
    }

    /// A segment below the window that asks for an acknowledgment (RFC 9293 section 3.8.4).
    pub(super) fn send_keep_alive(&mut self, now: Instant) {
        let segment = self.data_segment(now, self.snd.una.minus(1), Payload::default(), false);
        self.output.push_back(segment);
    }

    pub(super) fn send_ack(&mut self, now: Instant) {
        let segment = self.data_segment(now, self.snd.max, Payload::default(), false);
        self.output.push_back(segment);
    }

    pub(super) fn send_reset(&mut self) {
        let seq = self.snd.max;
        self.output.push_back(Segment {
            seq,
            ack: Some(self.rcv.nxt),
            rst: true,
            multipath: self.agreed.multipath,
            ..Segment::default()
        });
    }

    /// Beside the option of MPTCP there is room for one block.
    fn selective(&mut self) -> Sack {
        let all = self.rcv.selective();
        if self.agreed.multipath.is_some() { all.first_only() } else { all }
    }

    fn data_segment(&mut self, now: Instant, seq: Seq, payload: Payload, fin: bool) -> Segment {
        let window = self.rcv.acknowledge();
        Segment {
            seq,
            ack: Some(self.rcv.nxt),
            fin,
            ece: self.agreed.ecn && self.ecn.echo,
            window,
            shift: self.rcv.shift(),
            timestamps: self.timestamps(now),
            // Where there are data, there is room for them alone: full segments must fit the path.
            sack: if payload.is_empty() { self.selective() } else { Default::default() },
            multipath: self.agreed.multipath,
            payload,
            ..Segment::default()
        }
    }

    /// Sends `len` new bytes.
    fn emit(&mut self, now: Instant, len: u64, fin: bool) {
        let seq = self.snd.max;
        let in_flight = self.in_flight();
        let payload = self.snd.bytes_at(seq, len);
        let mut segment = self.data_segment(now, seq, payload, fin);
        if self.agreed.ecn {
            // Only new data are marked as able to be (RFC 3168 section 6.1.5).
            segment.ecn = Ecn::Ect0;
            segment.cwr = std::mem::take(&mut self.ecn.reduced);
        }
        let end = segment.end();
        self.output.push_back(segment);
        self.snd.board.push(now, seq, end, fin);
        self.snd.max = end;
        self.snd.stalled_since.get_or_insert(now);
        self.rcv.policy.on_data_sent(now);
        self.account(now, end.since(seq), in_flight);
    }

    /// Starts or stops the persist timer: it runs while data wait, nothing is in flight and the window forbids sending.
    fn watch_window(&mut self, now: Instant) {
        let stuck = self.state.may_transmit() && !self.timers.retransmit_is_running() && self.snd.has_new();
        if !stuck || self.timers.pace.is_some() {
            self.timers.stop_persist();
        } else if !self.timers.persist_is_running() {
            self.snd.stalled_since.get_or_insert(now);
            self.timers.start_persist(now, self.rtt.rto());
        }
    }

    // --- the retransmission timer --------------------------------------------------------------------------------------

    /// Starts the timer that guards what is in flight: a probe where one helps, else the timeout.
    pub(super) fn arm(&mut self, now: Instant, advanced: bool) {
        if !self.arm_probe(now, advanced) {
            self.arm_timeout(now, advanced);
        }
    }

    /// `afresh`: from now; else from when the first segment was sent, as far as another alarm has taken the timeout's place.
    pub(super) fn arm_timeout(&mut self, now: Instant, afresh: bool) {
        let rto = self.rtt.rto();
        let Some(first) = self.snd.board.first() else { return self.timers.stop_retransmit() };
        let replaced = matches!(self.timers.alarm(), Some(Alarm::Probe | Alarm::Reorder));
        let at = if afresh || !replaced {
            now + rto
        } else {
            (first.at + rto).max(now + core::time::Duration::from_millis(1))
        };
        self.timers.set_alarm(Alarm::Timeout, at);
    }

    fn arm_probe(&mut self, now: Instant, advanced: bool) -> bool {
        let rto = self.rtt.rto();
        let left = match self.snd.board.first() {
            Some(first) if !advanced => (first.at + rto).saturating_since(now),
            _ => rto,
        };
        let rto = if left.is_zero() { rto } else { left };
        let Some(delay) = self.probe_delay(rto) else { return false };
        self.timers.set_alarm(Alarm::Probe, now + delay);
        true
    }
}
