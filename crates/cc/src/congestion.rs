//! What a transport holds for one path: the window, the phase, and the rules that are the same for
//! every policy.

use crate::controller::{Ack, Cause, Controller, Loss, Window};
use crate::pacing::PacingConfig;
use crate::prr::{Prr, PrrAck};
use core::time::Duration;
use neater_base::Instant;

/// How much may be sent before anything is known of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// This many segments.
    Segments(u32),
    /// This many bytes, however they are cut, and two segments at least.
    Bytes(u32),
    /// `min(10 MSS, max(2 MSS, 14600))` bytes (RFC 6928 section 2).
    Rfc6928,
    /// `min(4 MSS, max(2 MSS, 4380))` bytes (RFC 3390, RFC 5681 section 3.1).
    Rfc3390,
}

impl InitialWindow {
    /// In bytes.
    #[must_use]
    pub fn bytes(self, mss: u64) -> u64 {
        match self {
            Self::Segments(n) => u64::from(n.max(1)) * mss,
            Self::Bytes(n) => u64::from(n).max(2 * mss),
            Self::Rfc6928 => (10 * mss).min((2 * mss).max(14_600)),
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
        }
    }
}

/// How the window comes down after a congestion event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// In proportion to what is delivered: RFC 6937, RFC 9937.
    #[default]
    Proportional,
    /// To the threshold at once; nothing new is sent until half the flight has drained (RFC 6675
    /// section 5).
    Instant,
}

/// What becomes of the window when nothing was sent for longer than a retransmission timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRule {
    /// It stays.
    Keep,
    /// At most the initial window (RFC 5681 section 4.1).
    #[default]
    Restart,
    /// Halved for each timeout that passed, down to the initial window (RFC 2861 section 3; Linux:
    /// `tcp_slow_start_after_idle`).
    Decay,
}

/// The switches that are not the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The first window.
    pub initial_window: InitialWindow,
    /// How the window comes down.
    pub reduction: Reduction,
    /// What idleness does.
    pub idle: IdleRule,
    /// Whether a window that was not used may grow all the same: stacks before RFC 2861.
    pub grow_unused: bool,
    /// The pacing rate; `None`: not paced.
    pub pacing: Option<PacingConfig>,
}

impl Default for Config {
    /// What today's stacks do, without pacing.
    fn default() -> Self {
        Self {
            initial_window: InitialWindow::Segments(10),
            reduction: Reduction::default(),
            idle: IdleRule::default(),
            grow_unused: false,
            pacing: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The window may grow.
    Open,
    /// It is coming down: recovery from loss, or the answer to a mark.
    Reducing(Prr),
    /// After a timeout: it grows again from one segment.
    Loss,
}

/// The window and threshold of before a congestion event.
#[derive(Clone, Copy, Debug)]
struct Prior {
    cwnd: u64,
    ssthresh: u64,
}

/// The congestion control of one path.
#[derive(Clone, Debug)]
pub struct Congestion {
    config: Config,
    controller: Box<dyn Controller>,
    window: Window,
    phase: Phase,
    /// What to go back to if the event was spurious.
    prior: Option<Prior>,
    last_sent: Option<Instant>,
    /// By how many bytes the window may grow in congestion avoidance for each that is acknowledged,
    /// where it grows together with others, and what of that is not yet a byte.
    coupled: Option<(f64, f64)>,
    /// The rule about idleness has been applied to the silence since then.
    restarted: bool,
}

impl Congestion {
    /// For a path whose full segments are `mss` bytes.
    #[must_use]
    pub fn new(config: Config, controller: Box<dyn Controller>, mss: u64) -> Self {
        let mss = mss.max(1);
        let window = Window { cwnd: config.initial_window.bytes(mss), ssthresh: Window::UNKNOWN, mss };
        Self {
            config,
            controller,
            window,
            phase: Phase::Open,
            prior: None,
            last_sent: None,
            coupled: None,
            restarted: false,
        }
    }

    /// How much may be in flight, in bytes, at least one segment.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.cwnd.max(self.window.mss)
    }

    /// The slow start threshold in bytes; `None` until there was congestion or slow start was
    /// ended.
    #[must_use]
    pub fn threshold(&self) -> Option<u64> {
        (self.window.ssthresh < Window::UNKNOWN).then_some(self.window.ssthresh)
    }

    /// Whether the window grows exponentially.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    /// Whether the window is coming down after a loss or a mark.
    #[must_use]
    pub fn is_reducing(&self) -> bool {
        matches!(self.phase, Phase::Reducing(_))
    }

    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.controller.name()
    }

    /// The segment size.
    #[must_use]
    pub fn mss(&self) -> u64 {
        self.window.mss
    }

    /// Bytes per second to send at, if it is paced and the round-trip time is known.
    #[must_use]
    pub fn pacing_rate(&self, srtt: Option<Duration>) -> Option<u64> {
        let pacing = self.config.pacing?;
        self.controller.rate().or_else(|| pacing.rate(&self.window, srtt))
    }

    /// `bytes` are sent, new or again, while `in_flight` were in flight.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        if let Phase::Reducing(prr) = &mut self.phase {
            prr.on_sent(bytes);
        }
        if let (0, Some(last)) = (in_flight, self.last_sent)
            && now > last
        {
            self.controller.on_idle(now, now - last);
        }
        self.last_sent = Some(now);
        self.restarted = false;
    }

    /// Something is about to be sent: applies the rule about idleness. `rto` is the current
    /// retransmission timeout.
    pub fn on_send_after(&mut self, now: Instant, in_flight: u64, rto: Duration) {
        let Some(last) = self.last_sent else { return };
        let idle = now - last;
        if in_flight > 0 || idle <= rto || std::mem::replace(&mut self.restarted, true) {
            return;
        }
        let least = self.config.initial_window.bytes(self.window.mss).min(self.window.cwnd);
        match self.config.idle {
            IdleRule::Keep => {}
            IdleRule::Restart => self.window.cwnd = least,
            IdleRule::Decay => {
                // What the window was stays known as the threshold (RFC 2861 section 3.2; Linux:
                // tcp_current_ssthresh).
                let w = &mut self.window;
                if w.ssthresh < Window::UNKNOWN {
                    w.ssthresh = w.ssthresh.max(w.cwnd / 4 * 3);
                }
                let times = (idle.as_nanos() / rto.as_nanos().max(1)).min(63) as u32;
                w.cwnd = (w.cwnd >> times).max(least);
            }
        }
    }

    /// For so long before `now` something else than the window held the sender back.
    /// [`Congestion::on_sent`] finds out by itself when nothing was in flight at all; this is for a
    /// transport that knows more.
    pub fn on_unused(&mut self, now: Instant, time: Duration) {
        self.controller.on_idle(now, time);
    }

    /// An acknowledgment has come; the scoreboard is up to date and losses that it shows were
    /// reported before.
    pub fn on_ack(&mut self, ack: &Ack) {
        self.controller.on_sample(&mut self.window, ack);
        match &mut self.phase {
            Phase::Reducing(prr) => {
                if self.config.reduction == Reduction::Instant {
                    return;
                }
                let quota = prr.on_ack(&PrrAck {
                    delivered: ack.delivered,
                    in_flight: ack.in_flight,
                    ssthresh: self.window.ssthresh,
                    safe: ack.acked > 0 && ack.lost == 0,
                    mss: self.window.mss,
                });
                if ack.delivered > 0 || quota > 0 {
                    self.window.cwnd = (ack.in_flight + quota).max(self.window.mss);
                }
            }
            Phase::Open | Phase::Loss => {
                if ack.acked > 0 && (ack.limited || self.config.grow_unused) {
                    let before = self.window;
                    self.controller.grow(&mut self.window, ack);
                    self.grow_together(before, ack.acked);
                }
            }
        }
    }

    /// From now on the window grows in congestion avoidance by at most so many bytes for each that
    /// is acknowledged: it is one of several of a flow ([`crate::Coupled`]). `None`: for itself.
    pub fn set_coupled(&mut self, growth: Option<f64>) {
        self.coupled = growth.map(|growth| (growth, self.coupled.map_or(0.0, |(_, rest)| rest)));
    }

    /// Takes back what the window has grown by beyond what is allowed where windows grow together.
    fn grow_together(&mut self, before: Window, acked: u64) {
        let Some((growth, rest)) = self.coupled.filter(|(growth, _)| growth.is_finite() && !before.in_slow_start())
        else {
            return;
        };
        let allowed = growth * acked as f64 + rest;
        if allowed < 0.0 {
            self.window.cwnd = before.cwnd.saturating_sub(allowed.abs() as u64).max(2 * before.mss);
            self.coupled = Some((growth, 0.0));
            return;
        }
        // A policy may grow by whole segments now and then: what it has not used is kept for that.
        let grown = self.window.cwnd.saturating_sub(before.cwnd).min(allowed as u64);
        self.window.cwnd = before.cwnd + grown;
        self.coupled = Some((growth, (allowed - grown as f64).min(before.mss as f64)));
    }

    /// Losses or a mark: the window comes down from here until [`Congestion::on_recovered`].
    /// Nothing happens if it already does, for a further loss in one recovery is no new congestion.
    pub fn on_congestion(&mut self, loss: &Loss) {
        if self.is_reducing() {
            return;
        }
        self.remember();
        let start = self.window.cwnd;
        self.window.ssthresh = self.controller.threshold(&self.window, loss);
        self.phase = Phase::Reducing(Prr::new(start));
        if self.config.reduction == Reduction::Instant {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// What was in flight at the congestion event has been acknowledged.
    pub fn on_recovered(&mut self) {
        if self.is_reducing() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.phase = Phase::Open;
    }

    /// The retransmission timer has expired. `first`: a new congestion event, not the same segment
    /// once more. `in_flight` is what remains after the lost were taken off.
    pub fn on_timeout(&mut self, loss: &Loss, first: bool, in_flight: u64) {
        if first {
            self.remember();
            let loss = Loss { cause: Cause::Timeout, ..*loss };
            self.window.ssthresh = self.controller.threshold(&self.window, &loss);
        }
        self.window.cwnd = in_flight + self.window.mss;
        self.phase = Phase::Loss;
    }

    /// Everything that was sent over a long time was lost (RFC 9002 section 7.6): slow start from
    /// the least window.
    pub fn on_persistent_congestion(&mut self) {
        self.window.cwnd = 2 * self.window.mss;
        self.phase = Phase::Open;
        self.prior = None;
    }

    /// The last congestion event was none (reordering, a delay spike): the window is what it was
    /// (RFC 4015).
    pub fn on_spurious(&mut self) {
        if let Some(prior) = self.prior.take() {
            self.window.cwnd = self.window.cwnd.max(prior.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(prior.ssthresh);
            self.controller.on_spurious(&self.window);
        }
        self.phase = Phase::Open;
    }

    /// The segment size has changed. With smaller ones the window keeps its number of segments, as
    /// in Linux; with larger ones its bytes, for to find that a path takes larger packets is no
    /// reason to send more (RFC 8899 section 3, item 7).
    pub fn set_mss(&mut self, mss: u64) {
        let mss = mss.max(1);
        if mss < self.window.mss {
            self.window.cwnd = self.window.cwnd * mss / self.window.mss;
        }
        self.window.cwnd = self.window.cwnd.max(mss);
        self.window.mss = mss;
    }

    /// Replaces the window, as before the first data when a SYN was lost (RFC 5681 section 3.1).
    pub fn set_window(&mut self, bytes: u64) {
        self.window.cwnd = bytes.max(self.window.mss);
    }

    fn remember(&mut self) {
        self.prior = Some(Prior { cwnd: self.window.cwnd, ssthresh: self.window.ssthresh });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cubic, CubicConfig, NewReno, NewRenoConfig};

    const MSS: u64 = 1000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    fn reno(config: Config) -> Congestion {
        Congestion::new(config, Box::new(NewReno::new(NewRenoConfig::linux())), MSS)
    }

    fn loss(ms: u64, flight: u64) -> Loss {
        Loss { now: at(ms), cause: Cause::Loss, flight }
    }

    fn ack(ms: u64, bytes: u64, in_flight: u64) -> Ack {
        Ack { acked: bytes, delivered: bytes, in_flight, limited: true, ..Ack::at(at(ms)) }
    }

    #[test]
    fn initial_windows_are_those_of_the_standards() {
        assert_eq!(InitialWindow::Rfc6928.bytes(1460), 14_600);
        assert_eq!(InitialWindow::Rfc6928.bytes(536), 5360);
        assert_eq!(InitialWindow::Rfc6928.bytes(9000), 18_000);
        assert_eq!(InitialWindow::Rfc3390.bytes(1460), 4380);
        assert_eq!(InitialWindow::Rfc3390.bytes(536), 2144);
        assert_eq!(InitialWindow::Segments(3).bytes(1448), 4344);
        assert_eq!([1200, 1452, 9000].map(|mss| InitialWindow::Bytes(14_720).bytes(mss)), [14_720, 14_720, 18_000]);
    }

    #[test]
    fn larger_segments_leave_the_bytes_and_smaller_ones_their_number() {
        let mut cc = reno(Config::default());
        cc.set_mss(MSS * 3 / 2);
        assert_eq!(cc.window(), 10 * MSS);
        cc.set_mss(MSS / 2);
        assert_eq!(cc.window(), 10 * MSS / 3);
        cc.set_mss(20 * MSS);
        assert_eq!(cc.window(), 20 * MSS, "never less than one");
    }

    #[test]
    fn a_recovery_ends_at_the_threshold() {
        let mut cc = reno(Config::default());
        cc.set_window(20 * MSS);
        cc.on_congestion(&loss(0, 20 * MSS));
        assert_eq!((cc.threshold(), cc.is_reducing()), (Some(10 * MSS), true));
        let mut in_flight = 19 * MSS;
        for i in 0..19 {
            in_flight -= MSS;
            cc.on_ack(&Ack { acked: 0, ..ack(i, MSS, in_flight) });
            while in_flight + MSS <= cc.window() {
                cc.on_sent(at(i), MSS, in_flight);
                in_flight += MSS;
            }
        }
        assert_eq!(in_flight, 10 * MSS);
        cc.on_congestion(&loss(1, 10 * MSS));
        assert_eq!(cc.threshold(), Some(10 * MSS), "no second reduction in one recovery");
        cc.on_recovered();
        assert_eq!((cc.window(), cc.is_reducing()), (10 * MSS, false));
    }

    #[test]
    fn the_old_reduction_stops_until_the_flight_has_drained() {
        let mut cc = reno(Config { reduction: Reduction::Instant, ..Config::default() });
        cc.set_window(20 * MSS);
        cc.on_congestion(&loss(0, 20 * MSS));
        assert_eq!(cc.window(), 10 * MSS);
        cc.on_ack(&ack(1, MSS, 18 * MSS));
        assert_eq!(cc.window(), 10 * MSS);
    }

    #[test]
    fn a_timeout_starts_again_from_one_segment_and_a_second_one_leaves_the_threshold() {
        let mut cc = reno(Config::default());
        cc.set_window(20 * MSS);
        cc.on_timeout(&loss(0, 20 * MSS), true, 0);
        assert_eq!((cc.window(), cc.threshold()), (MSS, Some(10 * MSS)));
        cc.on_timeout(&loss(0, MSS), false, 0);
        assert_eq!(cc.threshold(), Some(10 * MSS));
        cc.on_ack(&ack(50, MSS, 0));
        assert_eq!(cc.window(), 2 * MSS);
    }

    #[test]
    fn what_was_spurious_is_undone() {
        let mut cc = reno(Config::default());
        cc.set_window(20 * MSS);
        cc.on_timeout(&loss(0, 20 * MSS), true, 0);
        cc.on_spurious();
        assert_eq!((cc.window(), cc.threshold()), (20 * MSS, None));
        cc.on_spurious();
        assert_eq!(cc.window(), 20 * MSS, "only once");
    }

    #[test]
    fn an_unused_window_does_not_grow_unless_told_to() {
        let mut cc = reno(Config::default());
        cc.on_ack(&Ack { limited: false, ..ack(0, MSS, 0) });
        assert_eq!(cc.window(), 10 * MSS);
        let mut old = reno(Config { grow_unused: true, ..Config::default() });
        old.on_ack(&Ack { limited: false, ..ack(0, MSS, 0) });
        assert_eq!(old.window(), 11 * MSS);
    }

    #[test]
    fn idleness_keeps_restarts_or_decays() {
        let rto = Duration::from_millis(250);
        let after = |idle, ms| {
            let mut cc = reno(Config { idle, ..Config::default() });
            cc.set_window(80 * MSS);
            cc.on_sent(at(0), MSS, 0);
            cc.on_send_after(at(ms), 0, rto);
            cc.window() / MSS
        };
        assert_eq!((after(IdleRule::Keep, 9000), after(IdleRule::Restart, 240)), (80, 80));
        assert_eq!((after(IdleRule::Restart, 300), after(IdleRule::Decay, 300)), (10, 40));
        assert_eq!((after(IdleRule::Decay, 600), after(IdleRule::Decay, 60_000)), (20, 10));
    }

    #[test]
    fn a_smaller_segment_keeps_the_number_of_segments() {
        let mut cc = Congestion::new(Config::default(), Box::new(Cubic::new(CubicConfig::rfc9438())), 1448);
        cc.set_mss(1228);
        assert_eq!((cc.window(), cc.mss(), cc.name()), (12_280, 1228, "cubic"));
    }

    #[test]
    fn pacing_follows_the_window() {
        let mut cc = reno(Config { pacing: Some(PacingConfig::default()), ..Config::default() });
        let rtt = Some(Duration::from_millis(100));
        assert_eq!((cc.pacing_rate(None), cc.pacing_rate(rtt)), (None, Some(200_000)));
        cc.on_congestion(&loss(0, 10 * MSS));
        cc.on_recovered();
        assert_eq!(cc.pacing_rate(rtt), Some(60_000));
    }

    #[test]
    fn a_coupled_window_grows_by_no_more_than_it_may() {
        let mut cc = reno(Config::default());
        cc.on_congestion(&loss(0, 10 * MSS));
        cc.on_recovered();
        assert_eq!(cc.window(), 5 * MSS);
        cc.set_coupled(Some(0.05));
        for i in 0..100 {
            cc.on_ack(&ack(i, MSS, 4 * MSS));
        }
        let grown = cc.window() - 5 * MSS;
        assert!((4500..=5000).contains(&grown), "{grown}");
        cc.set_coupled(Some(-2.0));
        cc.on_ack(&ack(100, MSS, 4 * MSS));
        assert!((MSS..=2 * MSS).contains(&(5 * MSS + grown - cc.window())));
    }

    #[test]
    fn persistent_congestion_leaves_two_segments() {
        let mut cc = reno(Config::default());
        cc.on_persistent_congestion();
        assert_eq!(cc.window(), 2 * MSS);
    }
}
