//! What happens when a segment arrives (RFC 9293 section 3.10.7).

use super::Conn;
use super::recv::AckNeed;
use super::segment::{Segment, Seq};
use super::state::{Cause, State};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{Ecn, ErrorKind};

impl Conn {
    /// Takes a segment. `may_establish` is asked when the last step of a passive handshake is at hand: if it says no, the
    /// segment is ignored, as by a listener whose queue is full.
    pub(crate) fn on_segment(&mut self, now: Instant, segment: &Segment, may_establish: bool) {
        match self.state {
            State::Closed => return,
            State::SynSent => self.in_syn_sent(now, segment),
            _ => {
                // The options do not come through: from here on it is TCP (RFC 8684 section 3.7).
                if !segment.syn && !segment.rst && segment.multipath.is_none() {
                    self.agreed.multipath = None;
                }
                self.in_synchronized(now, segment, may_establish);
            }
        }
        if !self.is_closed() {
            self.transmit(now);
        }
    }

    /// Section 3.10.7.3.
    fn in_syn_sent(&mut self, now: Instant, seg: &Segment) {
        let acks_syn = seg.ack.is_some_and(|ack| self.snd.iss < ack && ack <= self.snd.max);
        if seg.ack.is_some() && !acks_syn {
            self.output.extend(seg.reset_reply());
            return;
        }
        if seg.rst {
            if acks_syn {
                self.fail(ErrorKind::ConnectionRefused);
            }
            return;
        }
        if !seg.syn {
            return;
        }
        self.learn_syn(seg);
        match seg.ack {
            Some(ack) => {
                self.establish(now, ack);
                self.snd.update_window(seg.seq, ack, seg.window);
                self.rcv.need_ack(AckNeed::Now);
            }
            None => {
                // Both sides have called: a simultaneous open.
                self.state = State::SynReceived;
                self.send_syn(now);
            }
        }
    }

    /// The handshake is complete: `ack` covers our SYN.
    fn establish(&mut self, now: Instant, ack: Seq) {
        self.state = if self.snd.fin_queued { State::FinWait1 } else { State::Established };
        self.established = true;
        let resent = self.timers.retransmit_tries > 0;
        if resent {
            self.rtt.fall_back();
            // "The initial window used by a sender after a correctly transmitted SYN MUST be one segment" (RFC 5681 section
            // 3.1).
            self.cc.set_window(self.snd.mss);
        }
        if let Some(at) = self.snd.syn_at.take() {
            self.rtt.sample(now, now - at, now - at, (ack, self.snd.max));
            self.rcv.measured(now - at);
        }
        self.snd.advance(now, ack);
        self.snd.tune(self.cc.window());
        self.timers.stop_retransmit();
        self.timers.retransmit_tries = 0;
        self.timers.heard(now);
        self.soft_error = None;
    }

    /// Section 3.10.7.4.
    fn in_synchronized(&mut self, now: Instant, seg: &Segment, may_establish: bool) {
        if self.state == State::SynReceived && seg.syn && seg.seq.plus(1) == self.rcv.nxt {
            // The peer has not heard our answer, or calls at the same time.
            match seg.ack {
                Some(ack) if self.snd.iss < ack && ack <= self.snd.max => {
                    self.establish(now, ack);
                    self.snd.update_window(seg.seq, ack, seg.window);
                    self.rcv.need_ack(AckNeed::Now);
                }
                _ => self.send_syn(now),
            }
            return;
        }
        if !self.is_acceptable(seg) {
            if !seg.rst {
                self.timers.heard(now);
                self.restart_time_wait(now, seg);
                self.rcv.need_ack(AckNeed::Now);
            }
            return;
        }
        if seg.rst {
            // Only an exact number resets; a near miss is asked about with a challenge ACK.
            if seg.seq == self.rcv.nxt {
                self.on_reset()
            } else {
                self.rcv.need_ack(AckNeed::Now)
            }
            return;
        }
        if seg.syn {
            self.rcv.need_ack(AckNeed::Now);
            return;
        }
        let Some(ack) = seg.ack else { return };
        if self.state == State::SynReceived {
            if ack <= self.snd.una || ack > self.snd.max {
                self.output.extend(seg.reset_reply());
                return;
            }
            if !may_establish {
                return;
            }
            self.establish(now, ack);
            self.snd.update_window(seg.seq, ack, seg.window);
        }
        self.timers.heard(now);
        if ack > self.snd.max {
            self.rcv.need_ack(AckNeed::Now);
            return;
        }
        self.on_ack(now, seg, ack);
        self.on_payload(now, seg);
    }

    /// Table 6 of section 3.10.7.4. With a closed window nothing can be stored, but a segment at the very edge still
    /// brings its acknowledgment.
    fn is_acceptable(&self, seg: &Segment) -> bool {
        let (nxt, window) = (self.rcv.nxt, self.rcv.offered());
        if window == 0 {
            return seg.seq == nxt;
        }
        let edge = nxt.plus(window);
        if seg.len() == 0 {
            // The edge itself: what a peer that has filled the window sends.
            return nxt <= seg.seq && seg.seq <= edge;
        }
        seg.seq < edge && seg.end() > nxt
    }

    fn on_reset(&mut self) {
        match self.state {
            State::SynReceived => self.fail(ErrorKind::ConnectionRefused),
            State::CloseWait => self.fail(ErrorKind::BrokenPipe),
            State::TimeWait => self.end(),
            _ => self.fail(ErrorKind::ConnectionReset),
        }
    }

    fn on_ack(&mut self, now: Instant, seg: &Segment, ack: Seq) {
        let before = self.snd.flight();
        let una = self.snd.una;
        self.note_timestamps(now, seg);
        let window_changed = self.snd.update_window(seg.seq, ack, seg.window);
        if ack < una {
            return;
        }
        // The definition of a duplicate acknowledgment: RFC 5681 section 2.
        let repeats = ack == una && seg.len() == 0 && !window_changed && before > 0;
        if self.snd.board.is_empty() {
            return;
        }
        self.digest(now, seg, ack, repeats);
        if self.snd.fin_acked {
            let was = self.state;
            self.state = self.state.after(Cause::FinAcked);
            match self.state {
                State::FinWait2 => self.linger_if_orphan(now),
                State::TimeWait if was != State::TimeWait => self.start_time_wait(now),
                State::Closed => self.end(),
                _ => {}
            }
        }
    }

    /// Remembers the timestamp to echo: that of the segment which the next acknowledgment answers (RFC 7323 section 4.3).
    fn note_timestamps(&mut self, now: Instant, seg: &Segment) {
        let Some(ts) = seg.timestamps.filter(|_| self.agreed.timestamps) else { return };
        if seg.seq <= self.rcv.told() && (ts.value.wrapping_sub(self.recent) as i32) >= 0 {
            self.recent = ts.value;
        }
        // A full segment that answers one of our acknowledgments: a round trip as the receiver sees it.
        if ts.echo != 0 && seg.len() >= self.snd.mss {
            let ms = u64::from(Self::clock(now).wrapping_sub(ts.echo)).max(1);
            self.rcv.measured(Duration::from_millis(ms));
        }
    }

    /// Answers marks of the network until the peer says that it has reduced its window (RFC 3168 section 6.1.3).
    fn note_marks(&mut self, seg: &Segment) {
        if !self.agreed.ecn {
            return;
        }
        if seg.cwr {
            self.ecn.echo = false;
        }
        if seg.ecn == Ecn::Ce {
            self.ecn.echo = true;
            self.rcv.need_ack(AckNeed::Now);
        }
    }

    fn on_payload(&mut self, now: Instant, seg: &Segment) {
        if !self.state.may_receive() {
            self.restart_time_wait(now, seg);
            if seg.len() > 0 {
                self.rcv.need_ack(AckNeed::Now);
            }
            return;
        }
        if !seg.payload.is_empty() {
            if self.orphan && seg.end() > self.rcv.nxt {
                // Nobody will read it: the peer must know (RFC 9293 section 3.6.1).
                self.abort();
                return;
            }
            let before = self.rcv.nxt;
            self.note_marks(seg);
            self.rcv.insert(now, self.rtt.rto(), seg.seq, seg.payload.clone());
            self.counts.received += self.rcv.nxt.since(before);
        }
        let reached =
            if seg.fin { self.rcv.fin_at(seg.seq.plus(seg.payload.len() as u64)) } else { self.rcv.take_fin() };
        if reached {
            self.state = self.state.after(Cause::PeerFin);
            if self.state == State::TimeWait {
                self.start_time_wait(now);
            }
        }
    }

    /// "The only thing that can arrive in this state is a retransmission of the remote FIN. Acknowledge it, and restart
    /// the 2 MSL timeout." (section 3.10.7.4)
    fn restart_time_wait(&mut self, now: Instant, seg: &Segment) {
        if self.state == State::TimeWait && seg.fin {
            self.start_time_wait(now);
        }
    }
}
