//! What traffic has achieved.

use core::time::Duration;
use neater_base::Instant;

/// Count, mean and extremes of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Their mean; 0 if there are none.
    pub mean: f64,
    /// The least; 0 if there are none.
    pub min: f64,
    /// The most; 0 if there are none.
    pub max: f64,
}

impl Summary {
    /// Adds one number.
    pub fn add(&mut self, x: f64) {
        (self.min, self.max) = if self.count == 0 { (x, x) } else { (self.min.min(x), self.max.max(x)) };
        self.count += 1;
        self.mean += (x - self.mean) / self.count as f64;
    }
}

/// The most objects of one flow that are kept one by one.
pub const MAX_OBJECTS: usize = 100_000;

/// An object of a web session that has arrived as a whole, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebObject {
    /// When it was asked for.
    pub asked: Instant,
    /// Seconds from the request to its last byte.
    pub seconds: f64,
    /// Its length.
    pub bytes: u64,
}

/// What one flow of a scenario's traffic has done. Numbers called *measured* count from the end of the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// The index of its traffic in the scenario.
    pub traffic: usize,
    /// Its number within that traffic, from 0.
    pub flow: u32,
    /// When it began: its first connection or packet.
    pub started: Option<Instant>,
    /// When everything it had to send had arrived; bulk transfers of a given size only.
    pub finished: Option<Instant>,
    /// It could not connect, or its connection broke.
    pub failures: u64,
    /// Application bytes that have arrived.
    pub delivered: u64,
    /// The same, measured.
    pub measured: u64,
    /// Datagrams sent and received; nothing for TCP.
    pub datagrams: (u64, u64),
    /// Datagrams that were sent after the warm-up and have had the time to arrive, and those of them that have, copies left out.
    pub measured_datagrams: (u64, u64),
    /// Segments of the data's sender that were sent again, measured; `None` where there are none, or they are not known.
    pub retransmits: Option<u64>,
    /// Round trips in seconds, measured: smoothed, at each acknowledgment, for TCP; of each echo for pings.
    pub rtt: Summary,
    /// Web: seconds from request to the last byte of an object, measured.
    pub object_time: Summary,
    /// Web: seconds from the first request of a page to its last byte, connection included, measured.
    pub page_time: Summary,
}

impl FlowStats {
    /// Application bytes per second that were delivered in `time` of measurement, in bits per second.
    #[must_use]
    pub fn goodput(&self, time: Duration) -> f64 {
        if time.is_zero() { 0.0 } else { self.measured as f64 * 8.0 / time.as_secs_f64() }
    }

    /// The share of datagrams sent that did not arrive, measured; `None` for TCP, or before any was sent.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let (sent, received) = self.measured_datagrams;
        (sent > 0).then(|| 1.0 - received as f64 / sent as f64)
    }
}
