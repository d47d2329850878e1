//! A path: where packets go, what is known of the way, and how much may be on it.
//!
//! *Responsible for* the state of one destination: round-trip time, congestion control, error
//! counter, heartbeats and the deadlines of its timers. *Not responsible for* which path is used,
//! or for the chunks on it.

mod heartbeat;
mod mtu;
mod rtt;

pub(crate) use heartbeat::{Heartbeat, Info};
pub(crate) use mtu::{BASE, Search};
pub(crate) use rtt::Rtt;

use crate::config::{AssociationConfig, Burst};
use crate::ids::{PathId, Route};
use crate::multipath::Pseudo;
use crate::recovery::Rack;
use core::time::Duration;
use neater_base::{Instant, Rng};
use neater_cc::{Congestion, Pacer};

/// After so many probes without an answer an address is verified more seldom: `Path.Max.Retrans` of
/// RFC 9260 section 16.
const VERIFICATIONS: u32 = 5;
/// And so often where no heartbeats are wanted otherwise.
const SELDOM: Duration = Duration::from_secs(30);

/// Whether a path can be used (RFC 9260 sections 5.4 and 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The peer has not shown yet that it is there: nothing but heartbeats is sent.
    Unconfirmed,
    /// In use, or ready for it.
    Active,
    /// Timeouts cast doubt on it: data goes another way if there is one, and heartbeats find out
    /// (RFC 7829 section 3). Only where there are several paths.
    PotentiallyFailed,
    /// Too many transmissions in a row were not answered.
    Inactive,
    /// No longer part of the association (RFC 5061). Its number may be given again.
    Removed,
}

/// The result of one SACK chunk for one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathAck {
    /// Bytes acknowledged cumulatively.
    pub(crate) cumulative: u64,
    /// Of those, what was not given up.
    pub(crate) credited: u64,
    /// Bytes acknowledged for the first time, cumulatively or not.
    pub(crate) delivered: u64,
    /// Bytes found lost.
    pub(crate) lost: u64,
    /// In flight before.
    pub(crate) before: u64,
    /// When the chunk was sent that measures the round trip: the one sent last of those sent once.
    pub(crate) measured: Option<Instant>,
    /// Highest TSN newly acknowledged: the HTNA of RFC 9260 section 7.2.4; and the lowest.
    pub(crate) highest: u64,
    pub(crate) lowest: u64,
    /// What was in flight longest is acknowledged; looked at where several paths are in use.
    pub(crate) advanced: bool,
    /// Something is acknowledged that was sent on no other path.
    pub(crate) certain: bool,
    /// Something that was believed lost had arrived.
    pub(crate) mistaken: bool,
}

/// What was counted of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// Chunks sent, and of those again.
    pub(crate) sent: u64,
    pub(crate) again: u64,
    /// Chunks believed lost.
    pub(crate) lost: u64,
    /// Bytes of payload acknowledged.
    pub(crate) delivered: u64,
    /// Bytes of payload that have come by it.
    pub(crate) received: u64,
    /// T3-rtx.
    pub(crate) timeouts: u64,
}

/// What a path has where its association has or had others: most have one, and idle ones are to be
/// small.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Several {
    /// The highest TSN that was acknowledged of those sent on it.
    pub(crate) highest: u64,
    /// Bytes acknowledged since the congestion window was last allowed to grow.
    pub(crate) uncredited: u64,
    /// What is outstanding longest.
    pub(crate) pseudo: Pseudo,
    /// What was in flight longest before the acknowledgment that is being read, of chunks sent once
    /// and of others.
    pub(crate) earliest: (u64, u64),
    pub(crate) count: Count,
    /// When a packet came by it last.
    pub(crate) last_received: Option<Instant>,
    /// What was sent before shows nothing of the path: all were silent, or it got another route.
    pub(crate) shows_from: Option<Instant>,
    /// How many times a path of the association had become potentially failed when this one last
    /// did.
    pub(crate) doubted: u32,
    /// When it counts as silent: something is under way, and nothing comes back.
    pub(crate) silent: Option<Instant>,
    /// When it was left because of that, as long as it has not answered since, and how often in a
    /// row.
    pub(crate) left_at: Option<Instant>,
    pub(crate) lapses: u32,
    /// Bytes that had been delivered at the last two losses: what OLIA looks at.
    pub(crate) losses: (u64, u64),
}

impl Several {
    /// The more of what was delivered between the last two losses, and since the last.
    pub(crate) fn between_losses(&self) -> u64 {
        let (before, last) = self.losses;
        (last - before).max(self.count.delivered.saturating_sub(last))
    }

    /// There was a loss.
    pub(crate) fn has_lost(&mut self) {
        self.losses = (self.losses.1, self.count.delivered);
    }
}

/// The probe for a loss at the end (RFC 8985 section 7).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailProbe {
    /// When it is due.
    pub(crate) due: Option<Instant>,
    /// One is under way: data was sent up to here, and whether the probe was a retransmission.
    pub(crate) sent: Option<(u64, bool)>,
}

/// The pace, and what it was computed from: window, threshold and round-trip time.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    of: (u64, Option<u64>, Option<Duration>),
    pacing: Option<(u64, u64)>,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) route: Route,
    pub(crate) state: PathState,
    /// The largest SCTP packet, in bytes.
    pub(crate) room: u16,
    pub(crate) rtt: Rtt,
    pub(crate) cc: Congestion,
    pub(crate) rack: Rack,
    pacer: Pacer,
    pace: Pace,
    burst: Burst,
    /// Bytes of chunks with data that are on their way.
    pub(crate) in_flight: u64,
    /// T3-rtx.
    pub(crate) t3: Option<Instant>,
    /// When to look for late chunks again.
    pub(crate) reorder: Option<Instant>,
    pub(crate) tail: TailProbe,
    /// A recovery lasts until this TSN is acknowledged.
    pub(crate) recovery: Option<u64>,
    /// Timeouts without an acknowledgment between them.
    pub(crate) timeouts: u32,
    /// One packet may leave regardless of the window.
    pub(crate) forced: bool,
    /// The window was the limit for data sent up to here.
    pub(crate) limited_to: u64,
    /// With [`Burst::Packets`]: how much may be in flight until something is received.
    burst_to: u64,
    /// The pace holds data back until then.
    pub(crate) paced_until: Option<Instant>,
    /// Unanswered transmissions in a row.
    pub(crate) errors: u32,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) mtu: Search,
    pub(crate) ack: PathAck,
    pub(crate) several: Option<Box<Several>>,
}

impl Path {
    /// `most` is the largest packet that the layer takes.
    pub(crate) fn new(id: PathId, route: Route, most: u16, state: PathState, config: &AssociationConfig) -> Self {
        let mtu = Search::new(most, config.base_packet, config.search_mtu);
        let room = mtu.size();
        let mss = u64::from(room) - 12;
        let mut path = Self {
            id,
            route,
            state,
            room,
            rtt: Rtt::new(config.rto),
            cc: config.recovery.congestion(mss),
            rack: Rack::default(),
            pacer: Pacer::new(),
            pace: Pace::default(),
            burst: config.recovery.burst,
            in_flight: 0,
            t3: None,
            reorder: None,
            tail: TailProbe::default(),
            recovery: None,
            timeouts: 0,
            forced: false,
            limited_to: 0,
            burst_to: u64::MAX,
            paced_until: None,
            errors: 0,
            heartbeat: Heartbeat::default(),
            mtu,
            ack: PathAck::default(),
            several: None,
        };
        path.refill_burst();
        path
    }

    /// Congestion control and timers restart; the route stays (RFC 9260 section 5.2.4, action A).
    pub(crate) fn restart(&mut self, config: &AssociationConfig) {
        let most = self.mtu.most();
        let several = self.several.is_some().then(Box::default);
        *self = Self { several, ..Self::new(self.id, self.route, most, self.state, config) };
    }

    /// See [`Several::doubted`].
    pub(crate) fn doubted(&self) -> u32 {
        self.several.as_ref().map_or(0, |s| s.doubted)
    }

    pub(crate) const fn is_active(&self) -> bool {
        matches!(self.state, PathState::Active)
    }

    /// Whether it may carry data if there is nothing better.
    pub(crate) const fn is_usable(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::PotentiallyFailed)
    }

    /// It is no longer part of the association.
    pub(crate) fn remove(&mut self) {
        self.state = PathState::Removed;
        (self.t3, self.reorder, self.paced_until) = (None, None, None);
        (self.tail, self.recovery, self.forced) = (TailProbe::default(), None, false);
        if let Some(several) = &mut self.several {
            (several.silent, several.left_at) = (None, None);
        }
        self.heartbeat.stop();
        self.mtu.stop();
    }

    /// Something was received, or the application sent after silence: another burst may leave (rule
    /// D of section 6.1).
    pub(crate) fn refill_burst(&mut self) {
        if let Burst::Packets(n) = self.burst {
            self.burst_to = self.in_flight + u64::from(n.max(1)) * self.cc.mss();
        }
    }

    /// Whether the window has room: one packet may go beyond it (rule B of section 6.1).
    pub(crate) fn has_room(&self) -> bool {
        self.forced || self.in_flight < self.cc.window().min(self.burst_to)
    }

    /// Whether the congestion window, and not the burst, is what stops it.
    pub(crate) fn is_limited(&self) -> bool {
        self.in_flight >= self.cc.window()
    }

    /// Rate and burst; recomputed when what they follow from has changed, for they are asked for
    /// with every packet.
    fn pacing(&mut self) -> Option<(u64, u64)> {
        let Burst::Paced(config) = self.burst else { return None };
        let of = (self.cc.window(), self.cc.threshold(), self.rtt.smoothed());
        if self.pace.of != of {
            let rate = self.cc.pacing_rate(self.rtt.smoothed());
            // A timer is not precise: at least a millisecond's worth may leave at once.
            let least = u64::from(config.burst_segments) * self.cc.mss();
            self.pace = Pace { of, pacing: rate.map(|rate| (rate, least.max(rate / 1000))) };
        }
        self.pace.pacing
    }

    /// When the next packet with data may leave.
    pub(crate) fn release(&mut self, now: Instant) -> Instant {
        match self.pacing() {
            Some((rate, burst)) if !self.forced => self.pacer.release(now, rate, burst),
            _ => now,
        }
    }

    /// A packet with `bytes` of data has left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.cc.on_sent(now, bytes, self.in_flight);
        self.in_flight += bytes;
        // As it was when the packet was let go.
        if let Some((rate, _)) = self.pace.pacing {
            self.pacer.on_sent(now, bytes, rate);
        }
        self.forced = false;
        self.heartbeat.active(now);
    }

    /// Bytes are no longer in flight: acknowledged, lost or given up.
    pub(crate) fn leave(&mut self, bytes: u16) {
        debug_assert!(self.in_flight >= u64::from(bytes), "more left the path than was on it");
        self.in_flight = self.in_flight.saturating_sub(u64::from(bytes));
    }

    /// When the probe for a loss at the end is due: `PTO` of RFC 8985 section 7.2, at the latest
    /// when T3-rtx is.
    pub(crate) fn tail_deadline(&self, now: Instant, ack_delay: Duration, single: bool) -> Option<Instant> {
        let srtt = self.rtt.smoothed()?;
        let pto = 2 * srtt + if single { ack_delay } else { Duration::from_millis(2) };
        let due = now + pto;
        Some(self.t3.map_or(due, |t3| due.min(t3)))
    }

    /// Whether nothing is known of its round trip, and nothing is under way that would show it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.rtt.smoothed().is_none() && self.in_flight == 0 && self.heartbeat.is_idle()
    }

    /// The round trip of a packet that leaves now. Of the queue that the path has built itself as
    /// much is there as of its window is under way: a path that carries nothing is not measured,
    /// and would else be taken for as slow as it was when it was full.
    pub(crate) fn expected(&self) -> Option<Duration> {
        let (smoothed, least) = (self.rtt.smoothed()?, self.rtt.least()?);
        let window = self.cc.window().max(1);
        let full = self.in_flight.min(window) as f64 / window as f64;
        Some(least + smoothed.saturating_sub(least).mul_f64(full))
    }

    /// Whether less is under way than the path carries in its least round trip: it has no queue of
    /// its own, and will have nothing to carry.
    pub(crate) fn is_drained(&self) -> bool {
        let (Some(smoothed), Some(least)) = (self.rtt.smoothed(), self.rtt.least()) else { return true };
        let rounds = |bytes: u64, time: Duration| u128::from(bytes) * time.as_nanos();
        rounds(self.in_flight, smoothed) < rounds(self.cc.window(), least)
    }

    /// How long the answer to what was sent may take before the path counts as silent; `None`: it
    /// was not measured yet.
    pub(crate) fn probe_timeout(&self, ack_delay: Duration) -> Option<Duration> {
        let single = self.in_flight <= self.cc.mss();
        self.rtt.probe_timeout().map(|timeout| timeout + if single { ack_delay } else { Duration::ZERO })
    }

    /// One more transmission was not answered; true if the path has just become inactive (section
    /// 8.2), or is doubted because there were more than `doubt` of them (RFC 7829 section 3).
    pub(crate) fn fail(&mut self, limit: u32, doubt: Option<u32>) -> bool {
        self.errors = self.errors.saturating_add(1);
        let state = match self.state {
            PathState::Active | PathState::PotentiallyFailed if self.errors > limit => PathState::Inactive,
            PathState::Active if doubt.is_some_and(|d| self.errors > d) => PathState::PotentiallyFailed,
            same => same,
        };
        core::mem::replace(&mut self.state, state) != state
    }

    /// The peer has answered; true if the path has just become active.
    pub(crate) fn answered(&mut self) -> bool {
        self.errors = 0;
        core::mem::replace(&mut self.state, PathState::Active) != PathState::Active
    }

    /// Whether the answer to what was sent then shows how the path is. Where there are several, a
    /// chunk that is acknowledged now may have arrived long ago: after all were silent, the first
    /// acknowledgement by any of them covers what all had carried.
    pub(crate) fn shows(&self, sent_at: Instant) -> bool {
        let from = self.several.as_ref().and_then(|s| s.shows_from);
        from.is_none_or(|at| sent_at >= at)
    }

    /// The earliest of the path's deadlines.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let silent = self.several.as_ref().and_then(|s| s.silent);
        [self.t3, self.reorder, self.tail.due, self.heartbeat.deadline(), self.mtu.deadline(), silent]
            .into_iter()
            .flatten()
            .min()
    }

    /// The interval to the next heartbeat (section 8.3): RTO plus the configured interval, jittered
    /// by half an RTO.
    pub(crate) fn heartbeat_interval(&self, interval: Option<Duration>, rng: &mut Rng) -> Option<Duration> {
        let rto = self.rtt.rto();
        let jittered = rto / 2 + Duration::from_nanos(rng.below(rto.as_nanos() as u64));
        match self.state {
            // Verification goes at one probe per RTO (section 5.4), and so does doubt (RFC 7829
            // section 3.3). An address that never answers may be that of an uninvolved host: it is
            // probed as seldom as one that is known, then.
            PathState::Unconfirmed if self.errors > VERIFICATIONS => Some(interval.unwrap_or(SELDOM) + jittered),
            PathState::Unconfirmed | PathState::PotentiallyFailed => Some(jittered),
            PathState::Active | PathState::Inactive => Some(interval? + jittered),
            PathState::Removed => None,
        }
    }
}
