//! Loss recovery: the machine of Linux's `tcp_fastretrans_alert`, which follows RFC 6675, 6582, 8985, 5682 and 3522.
//!
//! ```text
//!          out of order              lost               timeout
//!   Open ─────────────► Disorder ──────────► Recovery ──────────► Loss
//!    ▲ ▲                    │                   │                  │
//!    │ └────────────────────┘    `high` acknowledged, or undone    │
//!    └──────────────────────────────────────────┴──────────────────┘
//!   Open ── mark ──► Reducing ── beyond `high` acknowledged ──► Open
//! ```
//!
//! *Responsible for* what is believed lost, when the window is reduced, and taking both back. *Not responsible for* how far
//! the window is reduced (`neater-cc`) or what is sent when (`output.rs`).

use super::Conn;
use super::probe::TcpPhase;
use super::rack::DUP_THRESHOLD;
use super::scoreboard::Delivered;
use super::segment::{Segment, Seq};
use super::timer::Alarm;
use core::time::Duration;
use neater_base::Instant;
use neater_cc::{Ack, Cause, Loss};

/// What Linux adds to timers of a fraction of a round trip (TCP_TIMEOUT_MIN_US: two ticks, at least).
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// A tail loss probe that has not been answered.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// What had been sent by then.
    high: Seq,
    /// It was old data.
    resent: bool,
}

/// The state of recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    pub(super) phase: TcpPhase,
    /// What had been sent when the phase began.
    high: Seq,
    /// Duplicate acknowledgments that stand for segments delivered, without selective acknowledgments.
    pub(super) duplicates: u64,
    /// Where the connection stood when the window was reduced; none when nothing can be undone.
    undo: Option<Seq>,
    /// Retransmissions of this recovery that the receiver has not reported as duplicates; none before the first.
    unproved: Option<u64>,
    /// The timestamp of the first retransmission.
    first_resent: Option<u32>,
    /// A timeout may have been spurious: new data find out.
    frto: bool,
    /// Something may only be late: the alarm is set for when that will be known.
    waiting: bool,
    /// The first retransmission of a recovery is never held back (RFC 6675 section 5, step 4.3).
    pub(super) force: bool,
    /// New data go before lost data until the next acknowledgment (RFC 5682 section 3.1 step 2b).
    pub(super) new_first: bool,
    probe: Option<TailProbe>,
}

impl Recovery {
    pub(super) fn is_calm(&self) -> bool {
        matches!(self.phase, TcpPhase::Open | TcpPhase::Disorder)
    }
}

/// What an acknowledgment has brought, besides bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    /// It acknowledges new data in order.
    pub(super) advanced: bool,
    /// It only repeats: RFC 5681 section 2.
    pub(super) repeats: bool,
    /// It reports new data out of order.
    pub(super) sacked: bool,
    /// It reports a duplicate.
    pub(super) duplicate: bool,
    /// The peer echoes a mark.
    pub(super) marked: bool,
    /// The timestamp it echoes.
    pub(super) echo: Option<u32>,
}

impl Conn {
    /// Brings the scoreboard up to date with an acknowledgment, finds losses and steers the window.
    pub(super) fn digest(&mut self, now: Instant, seg: &Segment, ack: Seq, repeats: bool) {
        let una = self.snd.una;
        let advanced = ack > una;
        let least = self.rtt.least();
        let mut d = Delivered::default();
        let highest = self.snd.board.highest_sacked(una);
        let duplicate = self.take_blocks(now, seg, ack, &mut d);
        let sacked = d.bytes > 0;
        if advanced {
            self.snd.board.acknowledge(now, ack, &mut d, &mut self.rack.newest, least);
            self.snd.advance(now, ack);
            self.timers.retransmit_tries = 0;
            self.soft_error = None;
        }
        let marked = self.agreed.ecn && seg.ece;
        let echo = seg.timestamps.map(|t| t.echo).filter(|_| self.agreed.timestamps);
        let news = News { advanced, repeats: repeats && !duplicate, sacked, duplicate, marked, echo };
        self.measure(now, &d, &news);
        if let Some(low) = d.reordered {
            self.rack.on_reordering(highest.since(low), self.snd.mss);
        }
        if !self.agreed.sack {
            self.count_duplicates(&news, &mut d);
        }
        self.recovery.new_first = false;
        self.answer_probe(now, ack, &news);
        let rearm = advanced || d.sack_rtt.is_some_and(|rtt| self.snd.board.first().is_none_or(|s| rtt > now - s.at));
        self.recovery.waiting = false;
        let lost = self.alert(now, &d, &news);
        if self.snd.board.is_empty() {
            self.timers.stop_retransmit();
        } else if rearm && !self.recovery.waiting {
            self.arm(now, advanced);
        }
        self.steer(now, &mut d, lost);
    }

    /// Tells congestion control.
    fn steer(&mut self, now: Instant, d: &mut Delivered, lost: u64) {
        self.snd.board.rate(now, d);
        self.rate = d.rate.or(self.rate);
        let in_order = self.rack.reordering <= DUP_THRESHOLD;
        let (flight, window) = (self.in_flight(), self.cc.window());
        let limited = self.usage.limited || (self.cc.in_slow_start() && window < 2 * self.usage.most);
        self.cc.on_ack(&Ack {
            now,
            // Where the network reorders, data out of order count as well (Linux: `tcp_may_raise_cwnd`).
            acked: if in_order && d.acked == 0 { 0 } else { d.bytes },
            delivered: d.bytes,
            lost,
            in_flight: flight,
            rtt: d.fresh_rtt.or(d.sack_rtt),
            srtt: self.rtt.smoothed(),
            limited,
            acked_to: self.snd.una.0,
            sent_to: self.snd.max.0,
        });
        self.snd.tune(self.cc.window());
    }

    /// Takes selective acknowledgments. True if the first block reports a duplicate (RFC 2883 section 4).
    fn take_blocks(&mut self, now: Instant, seg: &Segment, ack: Seq, d: &mut Delivered) -> bool {
        let blocks = seg.sack.blocks();
        if !self.agreed.sack || blocks.is_empty() {
            return false;
        }
        let max = self.snd.max;
        let (first, second) = (blocks[0], blocks.get(1));
        let duplicate = first.0 < ack || second.is_some_and(|s| s.0 <= first.0 && first.1 <= s.1);
        if duplicate {
            if self.recovery.undo.is_some_and(|undo| first.1 > undo)
                && let Some(n) = &mut self.recovery.unproved
            {
                let segments = first.1.since(first.0).div_ceil(self.snd.mss).max(1);
                *n = n.saturating_sub(segments);
            }
            self.rack.on_duplicate(self.snd.una, max);
        }
        let fresh = &blocks[usize::from(duplicate)..];
        // Blocks that were never sent are not believed.
        if fresh.iter().all(|b| b.1 <= max && b.0 > ack) {
            self.snd.board.sack(now, fresh, d, &mut self.rack.newest, self.rtt.least());
        }
        duplicate
    }

    /// Takes a round-trip time: of data sent once, or by the timestamp that the acknowledgment echoes (RFC 7323 section 4).
    fn measure(&mut self, now: Instant, d: &Delivered, news: &News) {
        let by_clock = || {
            let echo = news.echo.filter(|e| *e != 0 && news.advanced)?;
            Some(Duration::from_millis(u64::from(Self::clock(now).wrapping_sub(echo)).max(1)))
        };
        if let Some(rtt) = d.rtt.or(d.sack_rtt).or_else(by_clock) {
            self.rtt.sample(now, rtt, d.fresh_rtt.unwrap_or(rtt), (self.snd.una, self.snd.max));
        }
    }

    /// Without selective acknowledgments a duplicate one stands for a segment that arrived (RFC 5681 section 3.2).
    fn count_duplicates(&mut self, news: &News, d: &mut Delivered) {
        let mss = self.snd.mss;
        if news.advanced {
            // One segment filled the hole, the others had been counted.
            let segments = d.acked.div_ceil(mss).max(1);
            let counted = self.recovery.duplicates.min(segments - 1);
            d.bytes = d.acked.saturating_sub(counted * mss).max(d.acked.min(mss));
            self.recovery.duplicates -= counted;
        } else if news.repeats && self.recovery.duplicates < self.snd.board.count() as u64 {
            self.recovery.duplicates += 1;
            d.bytes = mss;
        }
    }

    /// Whether the segment that the last window reduction answered had merely been late.
    fn was_spurious(&self, news: &News) -> bool {
        if !self.options.tcp.undo || self.recovery.undo.is_none() {
            return false;
        }
        self.recovery.unproved == Some(0) || self.answers_original(news)
    }

    /// The acknowledgment was caused by a segment sent before the first retransmission (RFC 3522).
    fn answers_original(&self, news: &News) -> bool {
        match (news.echo, self.recovery.first_resent) {
            (Some(echo), Some(first)) => echo != 0 && (first.wrapping_sub(echo) as i32) > 0,
            _ => false,
        }
    }

    fn take_back(&mut self, unlose: bool) {
        if unlose {
            self.snd.board.unlose_all();
        }
        self.cc.on_spurious();
        self.recovery.undo = None;
        self.counts.undone += 1;
    }

    /// Returns the bytes that have become lost.
    fn alert(&mut self, now: Instant, d: &Delivered, news: &News) -> u64 {
        let phase = self.recovery.phase;
        let dubious = news.repeats || news.sacked || news.duplicate || news.marked;
        if phase == TcpPhase::Open && !dubious {
            self.recovery.first_resent = None;
            return 0;
        }
        let complete = self.snd.una >= self.recovery.high;
        match phase {
            TcpPhase::Open => self.recovery.first_resent = None,
            TcpPhase::Reducing if complete && self.snd.una != self.recovery.high => self.finish(),
            TcpPhase::Recovery if complete => {
                self.recovery.duplicates = 0;
                if self.end_recovery(news) {
                    return 0;
                }
            }
            _ => {}
        }
        match self.recovery.phase {
            TcpPhase::Recovery => self.in_recovery(now, news),
            TcpPhase::Loss => {
                self.in_loss(d, news, complete);
                let resent = self.snd.board.resent();
                let lost = self.find_lost(now, news);
                let again = self.snd.board.resent() < resent;
                if self.recovery.phase == TcpPhase::Loss && again && lost > 0 {
                    self.enter_recovery(now);
                }
                lost
            }
            _ => self.in_order(now, news),
        }
    }

    /// Open, Disorder or Reducing.
    fn in_order(&mut self, now: Instant, news: &News) -> u64 {
        if !self.agreed.sack && news.advanced {
            self.recovery.duplicates = 0;
        }
        if self.recovery.is_calm() && self.recovery.unproved == Some(0) && self.was_spurious(news) {
            self.take_back(false);
        }
        let lost = self.find_lost(now, news);
        if self.snd.board.lost() > 0 {
            self.enter_recovery(now);
            return lost;
        }
        if news.marked && self.recovery.is_calm() {
            self.reduce(now, Cause::Ecn);
            self.recovery.undo = None;
            self.set_phase(TcpPhase::Reducing);
            self.counts.marks += 1;
        } else if self.recovery.phase != TcpPhase::Reducing {
            self.try_keep_open();
        }
        lost
    }

    fn in_recovery(&mut self, now: Instant, news: &News) -> u64 {
        if news.advanced && self.options.tcp.undo && self.recovery.undo.is_some() && self.answers_original(news) {
            // A late original filled the hole: the network reorders more than was known (Linux: `tcp_try_undo_partial`).
            self.rack.on_reordering(self.snd.board.highest_sacked(self.snd.una).since(self.snd.una), self.snd.mss);
            if self.snd.board.resent() > 0 {
                return 0;
            }
            self.take_back(true);
            self.try_keep_open();
        } else if self.recovery.unproved == Some(0) && self.was_spurious(news) {
            self.take_back(false);
            self.try_keep_open();
        }
        let lost = self.find_lost(now, news);
        if self.recovery.phase != TcpPhase::Recovery && self.snd.board.lost() > 0 {
            self.enter_recovery(now);
        }
        lost
    }

    /// After a timeout: `tcp_process_loss`, with F-RTO (RFC 5682 section 3.1).
    fn in_loss(&mut self, d: &Delivered, news: &News, complete: bool) {
        if news.advanced && self.was_spurious(news) {
            return self.undo_timeout();
        }
        if self.recovery.frto {
            let original = d.original_below.is_some_and(|end| end <= self.recovery.high);
            if original && self.options.tcp.undo {
                // Step 3b: something that was never sent again has arrived.
                return self.undo_timeout();
            }
            if self.snd.max > self.recovery.high {
                if news.sacked || news.repeats {
                    self.recovery.frto = false;
                }
            } else if news.advanced && !complete {
                self.recovery.high = self.snd.max;
                if self.snd.has_new() && self.snd.una.plus(self.snd.wnd) > self.snd.max {
                    self.recovery.new_first = true;
                    return;
                }
                self.recovery.frto = false;
            }
        }
        if complete {
            self.end_recovery(news);
        } else if !self.agreed.sack && news.advanced {
            self.recovery.duplicates = 0;
        }
    }

    fn undo_timeout(&mut self) {
        self.take_back(true);
        self.recovery.frto = false;
        self.recovery.duplicates = 0;
        self.finish();
    }

    /// Everything of before the recovery has arrived. True: the phase is held until something beyond is acknowledged, so that
    /// without selective acknowledgments duplicates of old data start nothing (RFC 6582 section 3.2).
    fn end_recovery(&mut self, news: &News) -> bool {
        if self.was_spurious(news) {
            self.take_back(false);
        } else {
            self.rack.on_recovered();
        }
        if self.snd.una == self.recovery.high && !self.agreed.sack {
            return true;
        }
        self.finish();
        false
    }

    fn finish(&mut self) {
        self.cc.on_recovered();
        self.recovery.undo = None;
        self.recovery.frto = false;
        self.set_phase(TcpPhase::Open);
    }

    fn set_phase(&mut self, phase: TcpPhase) {
        self.recovery.phase = phase;
    }

    fn try_keep_open(&mut self) {
        let board = &self.snd.board;
        let calm = board.sacked() + board.lost() + board.resent() == 0 && self.recovery.duplicates == 0;
        let phase = if calm { TcpPhase::Open } else { TcpPhase::Disorder };
        if phase != self.recovery.phase {
            self.set_phase(phase);
            self.recovery.high = self.snd.max;
        }
    }

    /// Marks what is lost. Returns how many bytes.
    pub(super) fn find_lost(&mut self, now: Instant, news: &News) -> u64 {
        let mss = self.snd.mss;
        if !self.agreed.sack {
            let fresh = self.recovery.is_calm() && self.recovery.duplicates >= DUP_THRESHOLD;
            let partial = self.recovery.phase == TcpPhase::Recovery && news.advanced;
            let known = self.snd.board.first().is_none_or(|s| s.lost);
            return if (fresh || partial) && !known { self.snd.board.mark_lost(0) } else { 0 };
        }
        if !self.options.tcp.rack {
            return self.snd.board.detect_by_count(DUP_THRESHOLD, mss);
        }
        self.find_late(now)
    }

    /// RACK: what was sent long enough before something that has arrived.
    fn find_late(&mut self, now: Instant) -> u64 {
        let Some(newest) = self.rack.newest else { return 0 };
        let recovering = matches!(self.recovery.phase, TcpPhase::Recovery | TcpPhase::Loss);
        let overtaken_by = self.snd.board.sacked() / self.snd.mss;
        let patience = self.rack.patience(recovering, overtaken_by, self.rtt.least(), self.rtt.smoothed());
        let (lost, wait) = self.snd.board.detect_by_time(now, &newest, patience);
        self.recovery.waiting = wait.is_some();
        if let Some(wait) = wait {
            self.timers.set_alarm(Alarm::Reorder, now + wait + TIMER_SLACK);
        }
        lost
    }

    /// The same when no acknowledgment came, but time has passed.
    pub(super) fn find_lost_by_timer(&mut self, now: Instant) -> u64 {
        if self.agreed.sack && self.options.tcp.rack { self.find_late(now) } else { 0 }
    }

    /// Whether losses are already being repaired.
    pub(super) fn is_recovering(&self) -> bool {
        matches!(self.recovery.phase, TcpPhase::Recovery | TcpPhase::Loss)
    }

    /// The send quota after losses were found without an acknowledgment.
    pub(super) fn cc_quota(&mut self, now: Instant, lost: u64) {
        self.steer(now, &mut Delivered::default(), lost);
    }

    fn reduce(&mut self, now: Instant, cause: Cause) {
        self.cc.on_congestion(&Loss { now, cause, flight: self.snd.flight() });
        self.recovery.high = self.snd.max;
        self.recovery.probe = None;
        self.ecn.reduced = true;
    }

    fn mark_undo(&mut self) {
        self.recovery.undo = Some(self.snd.una);
        let resent = self.snd.board.resent().div_ceil(self.snd.mss);
        self.recovery.unproved = (resent > 0).then_some(resent);
    }

    pub(super) fn enter_recovery(&mut self, now: Instant) {
        self.mark_undo();
        if !self.cc.is_reducing() {
            self.reduce(now, Cause::Loss);
        }
        self.recovery.high = self.snd.max;
        self.recovery.frto = false;
        self.recovery.force = true;
        self.set_phase(TcpPhase::Recovery);
        self.counts.recoveries += 1;
    }

    /// The retransmission timer has expired: `tcp_enter_loss`.
    pub(super) fn enter_loss(&mut self, now: Instant, tries: u32) {
        let before = self.recovery.phase;
        let flight = self.snd.flight();
        let newest = self.rack.newest;
        let patience = self.rack.patience(true, 0, self.rtt.least(), self.rtt.smoothed());
        let timed = self.agreed.sack && self.options.tcp.rack;
        let recent = |at: Instant| timed && newest.is_some_and(|n| now - at < n.rtt + patience);
        self.snd.board.lose_all(|s| recent(s.at));
        let fresh_congestion = matches!(before, TcpPhase::Open | TcpPhase::Disorder)
            || self.snd.una >= self.recovery.high
            || (before == TcpPhase::Loss && tries == 1);
        self.recovery.duplicates = 0;
        if fresh_congestion {
            self.mark_undo();
        }
        let in_flight = self.snd.board.in_flight();
        self.cc.on_timeout(&Loss { now, cause: Cause::Timeout, flight }, fresh_congestion, in_flight);
        self.rack.on_timeout();
        let calm = matches!(before, TcpPhase::Open | TcpPhase::Disorder | TcpPhase::Reducing);
        self.recovery.frto = self.options.tcp.frto && self.agreed.sack && (calm || tries > 1);
        self.recovery.high = self.snd.max;
        self.recovery.new_first = false;
        self.recovery.probe = None;
        self.ecn.reduced = true;
        self.set_phase(TcpPhase::Loss);
        self.counts.timeouts += 1;
    }

    /// A segment has been sent again.
    pub(super) fn resent(&mut self, now: Instant) {
        self.recovery.first_resent.get_or_insert(Self::clock(now));
        let n = self.recovery.unproved.get_or_insert(0);
        *n += 1;
    }

    // --- the tail loss probe (RFC 8985 section 7) ----------------------------------------------------------------------

    /// When a probe is due, if the flight may have lost its tail.
    pub(super) fn probe_delay(&self, rto: Duration) -> Option<Duration> {
        let may = self.options.tcp.tail_loss_probe
            && self.agreed.sack
            && matches!(self.recovery.phase, TcpPhase::Open | TcpPhase::Reducing)
            && !self.snd.board.is_empty();
        if !may {
            return None;
        }
        let srtt = self.rtt.smoothed()?;
        let late = if self.snd.board.count() == 1 { self.rtt.min_rto() } else { TIMER_SLACK };
        Some((srtt * 2 + late).min(rto))
    }

    /// The probe timer has expired.
    pub(super) fn send_tail_probe(&mut self, now: Instant) {
        if self.recovery.probe.is_none() {
            let sent = self.send_new_probe(now);
            let resent = !sent && self.resend_last(now);
            if sent || resent {
                self.recovery.probe = Some(TailProbe { high: self.snd.max, resent });
                self.counts.probes += 1;
                self.timers.set_alarm(Alarm::Timeout, now + self.rtt.rto());
                return;
            }
        }
        self.arm_timeout(now, false);
    }

    /// An acknowledgment may answer a probe: if the probe was old data and it did repair something, that was a loss.
    fn answer_probe(&mut self, now: Instant, ack: Seq, news: &News) {
        let Some(probe) = self.recovery.probe else { return };
        if ack < probe.high {
            return;
        }
        if !probe.resent || news.duplicate {
            self.recovery.probe = None;
        } else if ack > probe.high {
            self.reduce(now, Cause::Loss);
            self.finish();
            self.try_keep_open();
        } else if news.repeats && !news.sacked {
            self.recovery.probe = None;
        }
    }
}
