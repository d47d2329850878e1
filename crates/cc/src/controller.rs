//! The seam between a transport and a policy: a controller's inputs and what it may change.

use core::fmt;
use core::time::Duration;
use neater_base::Instant;

/// What a controller steers. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The congestion window.
    pub cwnd: u64,
    /// The slow start threshold; [`Window::UNKNOWN`] until the first congestion.
    pub ssthresh: u64,
    /// The sender's maximum segment size, at least 1.
    pub mss: u64,
}

impl Window {
    /// A threshold that no window reaches: "arbitrarily high" in RFC 5681 section 3.1.
    pub const UNKNOWN: u64 = u64::MAX / 4;

    /// Whether the window grows exponentially.
    #[must_use]
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// The window in segments, rounded down.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        self.cwnd / self.mss
    }
}

/// The content of one acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// Bytes that it acknowledges in order, for the first time.
    pub acked: u64,
    /// Bytes that it reports as delivered for the first time, in order or not.
    pub delivered: u64,
    /// Bytes that were found to be lost because of it.
    pub lost: u64,
    /// Bytes in flight after it: sent, not delivered, not believed lost.
    pub in_flight: u64,
    /// The round-trip time it measures, if it measures one.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time, once known.
    pub srtt: Option<Duration>,
    /// Whether the congestion window was what held the sender back. A window that was not used does
    /// not grow (RFC 9293 and RFC 7661: no growth without validation).
    pub limited: bool,
    /// Up to where the data are acknowledged in order, in any unit that only grows (a sequence or
    /// packet number).
    pub acked_to: u64,
    /// Up to where data have been sent, in the same unit. Rounds are measured with these two.
    pub sent_to: u64,
}

impl Ack {
    /// An acknowledgment of nothing; the rest is filled in.
    #[must_use]
    pub const fn at(now: Instant) -> Self {
        Self {
            now,
            acked: 0,
            delivered: 0,
            lost: 0,
            in_flight: 0,
            rtt: None,
            srtt: None,
            limited: false,
            acked_to: 0,
            sent_to: 0,
        }
    }
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were lost, as acknowledgments of later ones showed.
    Loss,
    /// The network marked packets (RFC 3168).
    Ecn,
    /// The retransmission timer expired.
    Timeout,
}

/// A congestion event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was noticed.
    pub now: Instant,
    /// Why.
    pub cause: Cause,
    /// Bytes in flight before the lost ones were taken off: FlightSize of RFC 5681 section 2.
    pub flight: u64,
}

/// Which size a multiplicative decrease starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// What is in flight: RFC 5681 section 3.1 equation 4, and RFC 9438 section 4.6.
    #[default]
    Flight,
    /// The window: what Linux does.
    Window,
}

impl Base {
    pub(crate) fn of(self, window: &Window, loss: &Loss) -> u64 {
        match self {
            Self::Flight => loss.flight,
            Self::Window => window.cwnd,
        }
    }
}

/// A congestion control policy.
///
/// The transport does not call it: [`crate::Congestion`] does, which owns the [`Window`], the
/// recovery and the rules that are the same for all policies.
pub trait Controller: fmt::Debug + Send + Sync {
    /// A short name for reports, such as `cubic`.
    fn name(&self) -> &'static str;

    /// An acknowledgment has come, in any phase. Slow start may be ended here, by a threshold at
    /// the window.
    fn on_sample(&mut self, window: &mut Window, ack: &Ack) {
        let _ = (window, ack);
    }

    /// The window may grow: an acknowledgment outside of any recovery while the window was the
    /// limit.
    fn grow(&mut self, window: &mut Window, ack: &Ack);

    /// Congestion: returns the new slow start threshold. The caller sets the window.
    fn threshold(&mut self, window: &Window, loss: &Loss) -> u64;

    /// The last congestion event turned out not to have been one. The caller restores window and
    /// threshold.
    fn on_spurious(&mut self, window: &Window) {
        let _ = window;
    }

    /// Nothing was in flight for this long, and now something is sent.
    fn on_idle(&mut self, now: Instant, idle: Duration) {
        let _ = (now, idle);
    }

    /// How fast to send, in bytes per second, for a policy that knows better than window over
    /// round-trip time.
    fn rate(&self) -> Option<u64> {
        None
    }

    /// A copy, for hosts that are snapshotted.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
