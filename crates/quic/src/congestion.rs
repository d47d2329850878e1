//! Congestion control of QUIC: the project's own, in the place that quinn-proto has for one.
//!
//! *Responsible for* translating quinn-proto's reports to its controllers for
//! [`neater_cc::Congestion`]; for recovery periods, persistent congestion and a change of the
//! datagram size (RFC 9002 section 7); and for a CONNECTION_CLOSE being sent at once, although data
//! waits for room in the window: it is not subject to congestion control, but quinn-proto 0.11
//! holds it back with the data, and since a closing connection takes no acknowledgements, for ever.
//! *Not responsible for* what is lost, for probe timeouts and for pacing: that is quinn-proto's,
//! which paces at 5/4 per round trip of the window that it is given, and so is given more in slow
//! start, while there is room.
//!
//! *Invariants*: time is counted from the making of the controller, so a run is a function of its
//! inputs; what is in flight never passes the window but by probes and by one datagram at the start
//! of a recovery (RFC 9002 section 7.3.2).

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use neater_base::Instant;
use neater_cc::{
    Ack, Base, Cause, Config, Congestion, Cubic, CubicConfig, HyStartConfig, IdleRule, InitialWindow, Loss, Reduction,
};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::any::Any;
use std::sync::Arc;

#[allow(clippy::disallowed_types, reason = "quinn-proto's trait speaks Instant; the values come from our clock")]
type Time = std::time::Instant;

/// Larger than whatever is in flight, and so large that quinn-proto does not pace either.
const NO_LIMIT: u64 = 1 << 40;
/// The most of RFC 9002 section 7.2: what ten segments of a TCP carry, while datagrams still have
/// the 1,200 bytes that every path takes (specs/exceptions, docs/decisions/0017).
const INITIAL: InitialWindow = InitialWindow::Bytes(14_720);
/// In slow start quinn-proto is given so many fifths of the window while there is room in it: it
/// then paces two windows per round trip, as TCP in Linux does there, instead of 5/4, at which a
/// window grows 1.9 times a round trip and not twice.
const FIFTHS: u64 = 8;

/// The switches that QUIC has. The window comes down at once (RFC 9002 section 7.3.2), and stays
/// when nothing is sent, for what is sent then is paced (section 7.8).
const RULES: Config = Config {
    initial_window: INITIAL,
    reduction: Reduction::Instant,
    idle: IdleRule::Keep,
    grow_unused: false,
    pacing: None,
};

/// CUBIC of RFC 9438 as it suits QUIC.
const fn cubic() -> CubicConfig {
    CubicConfig {
        // The window cannot have grown unused, so it is what RFC 9002 section 7.3.2 reduces.
        base: Base::Window,
        // As the TCP that it shares links with. HyStart++ of RFC 9406 goes on for five rounds, in
        // which a window triples; beside a sender that stops at once it kept 0.62 of the link
        // (docs/decisions/0017).
        hystart: Some(HyStartConfig::Classic { paced: true }),
        // RFC 9406 section 4.3: a sender that paces needs no limit.
        slow_start_limit: u32::MAX,
        ..CubicConfig::rfc9438()
    }
}

/// Makes the controllers of paths.
#[derive(Debug, Default)]
pub(crate) struct Controllers;

impl ControllerFactory for Controllers {
    fn build(self: Arc<Self>, now: Time, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(PathController::new(now, current_mtu))
    }
}

/// What the packets that one ACK frame acknowledges add up to.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Bytes of all of them.
    delivered: u64,
    /// Bytes of those sent after the last recovery began.
    fresh: u64,
    /// When the first and the last of them were sent.
    sent: Option<(Instant, Instant)>,
    srtt: Option<Duration>,
}

/// The controller of one path.
#[derive(Clone, Debug)]
struct PathController {
    congestion: Congestion,
    /// The origin of our time.
    start: Time,
    /// When the last recovery began: packets sent until then neither end it nor begin another one.
    recovery: Option<Instant>,
    /// There was congestion on this path.
    congested: bool,
    batch: Batch,
    last_sent: Instant,
    /// When acknowledgements were taken last, and whether anything was in flight then.
    last_acks: Option<(Instant, bool)>,
    /// Bytes in flight, as far as reported.
    in_flight: u64,
    /// The first datagram of a recovery need not wait.
    first_again: bool,
    signals: Arc<Signals>,
    acknowledged: u64,
}

/// The signals between a connection and the controllers of its paths.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Nothing that is sent from now on waits for room.
    closing: AtomicBool,
    /// Room was asked for.
    asked: AtomicBool,
    /// Packets were acknowledged that had not been before.
    acknowledged: AtomicBool,
    /// Others were in flight then.
    in_flight: AtomicBool,
}

impl Signals {
    /// Whether quinn-proto has asked for room since this was called last: it does when it has
    /// something to send that is to be acknowledged, before it knows whether window and pacer let
    /// it go.
    pub(crate) fn take_asked(&self) -> bool {
        // One thread at a time uses a connection.
        let asked = self.asked.load(Ordering::Relaxed);
        if asked {
            self.asked.store(false, Ordering::Relaxed);
        }
        asked
    }

    /// Whether packets were acknowledged since this was called last that had not been before; if
    /// so, whether others are still in flight.
    pub(crate) fn take_acknowledged(&self) -> Option<bool> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        if acknowledged {
            self.acknowledged.store(false, Ordering::Relaxed);
        }
        acknowledged.then(|| self.in_flight.load(Ordering::Relaxed))
    }
}

/// Distinguishes controllers of different paths, while both are there.
pub(crate) fn identity(connection: &quinn_proto::Connection) -> usize {
    core::ptr::from_ref(connection.congestion_state()).cast::<()>().addr()
}

/// What is shared with the controller of the present path; another path may have another.
pub(crate) fn signals(connection: &quinn_proto::Connection) -> Arc<Signals> {
    controller(connection).map(|c| c.signals).unwrap_or_default()
}

/// The controller of the present path.
fn controller(connection: &quinn_proto::Connection) -> Option<Box<PathController>> {
    connection.congestion_state().clone_box().into_any().downcast::<PathController>().ok()
}

/// Nothing that is sent from now on waits for room.
pub(crate) fn let_go(connection: &quinn_proto::Connection) {
    if let Some(controller) = controller(connection) {
        controller.signals.closing.store(true, Ordering::Relaxed);
    }
}

/// Bytes that were acknowledged on the present path.
pub(crate) fn acknowledged(connection: &quinn_proto::Connection) -> u64 {
    controller(connection).map_or(0, |c| c.acknowledged)
}

impl PathController {
    fn new(start: Time, mtu: u16) -> Self {
        Self {
            congestion: Congestion::new(RULES, Box::new(Cubic::new(cubic())), u64::from(mtu)),
            start,
            recovery: None,
            congested: false,
            batch: Batch::default(),
            last_sent: Instant::ZERO,
            last_acks: None,
            in_flight: 0,
            first_again: false,
            signals: Arc::default(),
            acknowledged: 0,
        }
    }

    fn ours(&self, t: Time) -> Instant {
        Instant::ZERO + t.saturating_duration_since(self.start)
    }

    /// One packet was acknowledged.
    fn acked(&mut self, sent: Time, bytes: u64, srtt: Duration) {
        self.acknowledged += bytes;
        let sent = self.ours(sent);
        let batch = &mut self.batch;
        batch.delivered += bytes;
        if self.recovery.is_none_or(|began| sent > began) {
            batch.fresh += bytes;
        }
        let (first, last) = batch.sent.unwrap_or((sent, sent));
        batch.sent = Some((first.min(sent), last.max(sent)));
        batch.srtt = Some(srtt);
    }

    /// The time in which the window was not what held the sender back, which does not count for the
    /// cubic function.
    fn skip_unused(&mut self, now: Instant, app_limited: bool, first_sent: Instant) {
        let Some((last, flying)) = self.last_acks.replace((now, self.in_flight > 0)) else { return };
        let until = if app_limited {
            now
        } else if flying {
            return;
        } else {
            first_sent
        };
        if until > last {
            self.congestion.on_unused(now, until - last);
        }
    }
}

impl Controller for PathController {
    fn on_sent(&mut self, now: Time, bytes: u64, _last_packet_number: u64) {
        self.last_sent = self.ours(now);
        self.in_flight += bytes;
        self.first_again = false;
    }

    fn on_ack(&mut self, _now: Time, sent: Time, bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.acked(sent, bytes, rtt.get());
    }

    fn on_end_acks(&mut self, now: Time, in_flight: u64, app_limited: bool, _largest_packet_num_acked: Option<u64>) {
        let now = self.ours(now);
        let batch = core::mem::take(&mut self.batch);
        self.in_flight = in_flight;
        self.signals.in_flight.store(in_flight > 0, Ordering::Relaxed);
        self.signals.acknowledged.store(true, Ordering::Relaxed);
        // Only packets that ask for acknowledgement count.
        let Some((first, last)) = batch.sent else { return };
        self.skip_unused(now, app_limited, first);
        if self.recovery.is_some_and(|began| last > began) {
            self.congestion.on_recovered();
        }
        self.congestion.on_ack(&Ack {
            acked: batch.fresh,
            delivered: batch.delivered,
            in_flight,
            rtt: Some(now - last),
            srtt: batch.srtt,
            limited: !app_limited,
            acked_to: last.as_nanos(),
            sent_to: self.last_sent.as_nanos(),
            ..Ack::at(now)
        });
    }

    fn on_congestion_event(&mut self, now: Time, sent: Time, is_persistent_congestion: bool, lost_bytes: u64) {
        let (now, sent) = (self.ours(now), self.ours(sent));
        let flight = self.in_flight;
        self.in_flight = flight.saturating_sub(lost_bytes);
        self.congested = true;
        if self.recovery.is_none_or(|began| sent > began) {
            let cause = match (is_persistent_congestion, lost_bytes) {
                (true, _) => Cause::Timeout,
                (false, 0) => Cause::Ecn,
                (false, _) => Cause::Loss,
            };
            self.recovery = Some(now);
            self.congestion.on_recovered();
            self.congestion.on_congestion(&Loss { now, cause, flight });
            self.first_again = lost_bytes > 0;
        }
        if is_persistent_congestion {
            self.congestion.on_persistent_congestion();
            self.recovery = None;
            self.first_again = false;
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        let (old, new) = (self.congestion.mss(), u64::from(new_mtu).max(1));
        let window = self.congestion.window();
        self.congestion.set_mss(new);
        // The initial window counts datagrams (RFC 9002 section 7.2); what was learned since counts
        // bytes.
        let first = !self.congested && self.congestion.in_slow_start();
        let more = if first { INITIAL.bytes(new).saturating_sub(INITIAL.bytes(old)) } else { 0 };
        self.congestion.set_window((window + more).max(2 * new));
    }

    fn window(&self) -> u64 {
        self.signals.asked.store(true, Ordering::Relaxed);
        if self.signals.closing.load(Ordering::Relaxed) {
            return NO_LIMIT;
        }
        let window = self.congestion.window();
        let window = if self.first_again { window.max(self.in_flight + self.congestion.mss()) } else { window };
        // With less room, the reported window is what holds quinn-proto back.
        if self.congestion.in_slow_start() && self.in_flight + 2 * self.congestion.mss() <= window {
            return window * FIFTHS / 5;
        }
        // quinn-proto keeps what is in flight below the window, where RFC 9002 section 7 allows as
        // much as the window.
        window + 1
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.congestion.window();
        metrics.ssthresh = self.congestion.threshold();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL.bytes(self.congestion.mss())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    const MTU: u64 = 1200;
    const RTT: u64 = 50;

    /// A controller with a path of its own: packets are acknowledged a round trip after they were
    /// sent.
    struct Path {
        epoch: Epoch,
        controller: PathController,
    }

    impl Path {
        fn new() -> Self {
            let epoch = Epoch::new();
            Self { epoch, controller: PathController::new(epoch.theirs(Instant::ZERO), MTU as u16) }
        }

        /// With a window of ten packets, which are easier to count.
        fn of_ten() -> Self {
            let mut path = Self::new();
            path.controller.congestion.set_window(10 * MTU);
            path
        }

        fn at(&self, ms: u64) -> Time {
            self.epoch.theirs(Instant::ZERO + Duration::from_millis(ms))
        }

        fn send(&mut self, ms: u64, packets: u64) {
            for _ in 0..packets {
                self.controller.on_sent(self.at(ms), MTU, 0);
            }
        }

        /// So many packets that were sent at `sent` are acknowledged by one frame; so many are in
        /// flight then.
        fn ack(&mut self, sent: u64, now: u64, packets: u64, in_flight: u64, app_limited: bool) {
            for _ in 0..packets {
                self.controller.acked(self.at(sent), MTU, Duration::from_millis(RTT));
            }
            self.controller.on_end_acks(self.at(now), in_flight * MTU, app_limited, None);
        }

        fn lose(&mut self, sent: u64, now: u64, packets: u64) {
            self.controller.on_congestion_event(self.at(now), self.at(sent), false, packets * MTU);
        }

        /// The window in packets, as quinn-proto uses it: what is in flight stays below the
        /// reported window.
        fn packets(&self) -> u64 {
            let mut full = self.controller.clone();
            full.in_flight = full.in_flight.max(full.congestion.window() - MTU);
            (full.window() - 1) / MTU
        }
    }

    #[test]
    fn a_connection_begins_with_as_many_bytes_as_a_tcp() {
        let mut p = Path::new();
        assert_eq!((p.packets(), p.controller.initial_window()), (12, 14_720));
        p.controller.on_mtu_update(1452);
        assert_eq!(p.controller.congestion.window(), 14_720);
        p.lose(0, 60, 1);
        let window = p.controller.congestion.window();
        p.controller.on_mtu_update(1500);
        assert_eq!(p.controller.congestion.window(), window, "what was learned counts bytes");
        p.controller.on_mtu_update(9000);
        assert_eq!(p.controller.congestion.window(), 18_000, "but never less than two datagrams");
    }

    #[test]
    fn a_used_window_doubles_and_an_unused_one_does_not() {
        let mut p = Path::of_ten();
        p.send(0, 10);
        p.ack(0, RTT, 10, 0, false);
        assert_eq!(p.packets(), 20);
        p.send(RTT, 5);
        p.ack(RTT, 2 * RTT, 5, 0, true);
        assert_eq!(p.packets(), 20);
    }

    #[test]
    fn in_slow_start_two_windows_leave_in_a_round_trip_and_no_more_than_one_is_in_flight() {
        let mut p = Path::new();
        // quinn-proto paces at 5/4 of the reported window, and asks before each datagram.
        assert_eq!(p.controller.window() * 5 / 4, 2 * 14_720);
        let mut sent = 0;
        while sent * MTU + MTU < p.controller.window() {
            p.send(0, 1);
            sent += 1;
        }
        assert_eq!(sent, 12, "14,400 of 14,720 bytes");
        p.ack(0, RTT, 11, 0, false);
        p.lose(0, RTT, 1);
        assert_eq!(p.controller.window(), p.controller.congestion.window() + 1, "afterwards it is the window");
    }

    #[test]
    fn one_round_trip_of_losses_is_one_congestion() {
        let mut p = Path::of_ten();
        p.send(0, 10);
        p.ack(0, RTT, 9, 1, false);
        p.lose(0, RTT, 1);
        assert_eq!(p.packets(), 13, "seven tenths of nineteen");
        p.send(RTT, 13);
        let window = p.controller.window();
        p.lose(RTT, RTT + 10, 2);
        assert_eq!(p.controller.window(), window, "sent before the recovery began, as far as can be told");
        p.ack(RTT, 2 * RTT, 2, 9, false);
        assert_eq!(p.controller.window(), window, "nor does it end it");
        p.send(2 * RTT, 2);
        p.ack(2 * RTT, 3 * RTT, 2, 9, false);
        assert!(p.controller.window() > window);
        p.lose(2 * RTT, 3 * RTT + 1, 1);
        assert!(p.controller.window() < window);
    }

    #[test]
    fn the_first_datagram_of_a_recovery_goes_at_once() {
        let mut p = Path::of_ten();
        p.send(0, 10);
        p.ack(0, RTT, 0, 10, false);
        p.send(RTT, 0);
        p.lose(0, RTT, 1);
        // Nine are in flight, and the window is seven.
        assert_eq!(p.packets(), 10);
        p.send(RTT, 1);
        assert_eq!(p.packets(), 7);
    }

    #[test]
    fn a_mark_is_a_congestion_that_lost_nothing() {
        let mut p = Path::of_ten();
        p.send(0, 10);
        p.controller.on_congestion_event(p.at(RTT), p.at(0), false, 0);
        assert_eq!((p.packets(), p.controller.in_flight), (7, 10 * MTU));
    }

    #[test]
    fn persistent_congestion_leaves_two_datagrams_and_slow_start() {
        let mut p = Path::of_ten();
        p.send(0, 10);
        p.controller.on_congestion_event(p.at(900), p.at(800), true, 8 * MTU);
        assert_eq!(p.packets(), 2);
        assert!(p.controller.congestion.in_slow_start());
        p.send(900, 2);
        p.ack(900, 950, 2, 0, false);
        assert_eq!(p.packets(), 4);
    }

    #[test]
    fn a_rising_round_trip_ends_slow_start_before_anything_is_lost() {
        let mut p = Path::of_ten();
        let (mut now, mut rtt, mut doublings) = (0, RTT, 0);
        while p.controller.congestion.in_slow_start() {
            let n = p.packets();
            p.send(now, n);
            for i in 0..n {
                p.ack(now, now + rtt, 1, n - 1 - i, false);
            }
            now += rtt;
            doublings += 1;
            // A queue builds up when more than forty packets are in flight.
            rtt = if p.packets() > 40 { RTT + (p.packets() - 40) } else { RTT };
            assert!(doublings < 20, "{:?}", p.controller);
        }
        assert!((40..100).contains(&p.packets()), "{}", p.packets());
        assert!(!p.controller.congested);
    }

    #[test]
    fn time_in_which_little_was_to_be_sent_does_not_let_the_window_jump() {
        let grown = |pause: u64| {
            let mut p = Path::of_ten();
            p.send(0, 10);
            p.ack(0, RTT, 9, 1, false);
            p.lose(0, RTT, 1);
            let mut now = 2 * RTT;
            p.send(now, 2);
            p.ack(now, now + RTT, 2, 0, false);
            now += RTT + pause;
            for _ in 0..4 {
                let n = p.packets();
                p.send(now, n);
                p.ack(now, now + RTT, n, 0, false);
                now += RTT;
            }
            p.controller.congestion.window()
        };
        assert_eq!(grown(0), grown(60_000));
    }

    #[test]
    fn nothing_holds_back_the_end() {
        let p = Path::of_ten();
        let other = p.controller.clone_box().into_any().downcast::<PathController>().expect("its own kind");
        other.signals.closing.store(true, Ordering::Relaxed);
        assert_eq!(p.controller.window(), NO_LIMIT);
    }
}
