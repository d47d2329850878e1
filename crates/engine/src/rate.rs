//! `maxSendRate` and `maxRecvRate` (RFC 9622 section 8.1.8): bits of application data in any one
//! second.
//!
//! *Responsible for* letting no more through in either direction of a connection, over any stack. A
//! sender waits in the send queue, with its usual back-pressure; a receiver leaves the rest to the
//! transport, whose flow control slows the peer down. Datagrams cannot be slowed down by not
//! reading them, so `maxRecvRate` has no effect on stacks that carry them.
//!
//! *Invariant*: what a bucket holds and what flows into it within a second is together no more than
//! the rate, or a byte.

use crate::conn::Conn;
use core::time::Duration;
use neater_base::Instant;

/// Nanobits in a byte: elapsed nanoseconds times bits per second are nanobits, so nothing is ever
/// rounded.
const BYTE: i128 = 8_000_000_000;

/// A bucket holds a fiftieth of a second's bits, or this many bytes if that is more: a packet.
const LEAST_DEPTH: i128 = 1200 * BYTE;

const SECOND: i128 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bits per second that flow in.
    pub(crate) inflow: i128,
    /// Nanobits that it holds at most.
    pub(crate) depth: i128,
    /// Nanobits that it holds; negative after a datagram that is larger than the bucket.
    pub(crate) level: i128,
    pub(crate) filled: Instant,
    /// A writer waits, and a timer is set.
    pub(crate) waiting: bool,
}

impl Bucket {
    pub(crate) fn new(bits_per_second: u64, now: Instant) -> Self {
        let rate = i128::from(bits_per_second.max(1)) * SECOND;
        // It must be able to hold a byte, or none would ever pass.
        let depth = (rate / 50).max(LEAST_DEPTH).min(rate / 2).max(BYTE);
        Self { inflow: ((rate - depth) / SECOND).max(1), depth, level: depth, filled: now, waiting: false }
    }

    pub(crate) fn fill(&mut self, now: Instant) {
        // Filled to the brim in a second at the latest, unless it lacks a large datagram.
        let elapsed = (now - self.filled).as_nanos().min(1 << 62) as i128;
        self.level = (self.level + elapsed.saturating_mul(self.inflow)).min(self.depth);
        self.filled = self.filled.max(now);
    }

    /// How many bytes may pass now.
    pub(crate) fn available(&mut self, now: Instant) -> usize {
        self.fill(now);
        usize::try_from(self.level / BYTE).unwrap_or(0)
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.level -= bytes as i128 * BYTE;
    }

    /// When it is worth trying again to pass `bytes` at once: when it is half full, and they may.
    /// `None`: they may now, and a writer that waits waits for something else.
    pub(crate) fn wait(&mut self, bytes: usize) -> Option<Instant> {
        // A packet that is larger than the bucket may pass when it is full.
        let need = (bytes.max(1) as i128).saturating_mul(BYTE).min(self.depth);
        if self.level >= need {
            return None;
        }
        let lacking = need.max(self.depth / 2) - self.level;
        let nanos = lacking.max(0) / self.inflow.max(1) + 1;
        Some(self.filled + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// The buckets of a connection.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    pub(crate) send: Option<Bucket>,
    pub(crate) receive: Option<Bucket>,
}

impl Conn {
    pub(crate) fn send_bucket(&mut self) -> Option<&mut Bucket> {
        self.cold.as_mut()?.rates.as_mut()?.send.as_mut()
    }

    pub(crate) fn receive_bucket(&mut self) -> Option<&mut Bucket> {
        self.cold.as_mut()?.rates.as_mut()?.receive.as_mut()
    }

    /// How many bytes may be sent now, and whether a datagram may even if it is larger: the bucket
    /// is full.
    pub(crate) fn may_send_now(&mut self, now: Instant) -> (usize, bool) {
        self.send_bucket().map_or((usize::MAX, true), |b| (b.available(now), b.level >= b.depth))
    }

    pub(crate) fn note_sent(&mut self, bytes: usize) {
        if let Some(b) = self.send_bucket() {
            b.take(bytes);
        }
    }

    /// How many bytes may be received now.
    pub(crate) fn may_receive_now(&mut self, now: Instant) -> usize {
        self.receive_bucket().map_or(usize::MAX, |b| b.available(now))
    }

    pub(crate) fn note_received(&mut self, bytes: usize) {
        if let Some(b) = self.receive_bucket() {
            b.take(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::Rng;

    /// Takes what it may, at random times, and checks every window of a second.
    #[test]
    pub(crate) fn no_second_ever_sees_more_than_the_rate() {
        for (seed, bits) in [(1, 8), (2, 1_000), (3, 64_000), (4, 1_000_000), (5, 10_000_000_000), (6, 1)] {
            let mut rng = Rng::from_number(seed);
            let mut now = Instant::ZERO + Duration::from_secs(5);
            let mut bucket = Bucket::new(bits, now);
            let mut taken: Vec<(Instant, u64)> = Vec::new();
            for _ in 0..3000 {
                now += Duration::from_micros(rng.below(20_000));
                let n = bucket.available(now);
                bucket.take(n);
                taken.push((now, n as u64));
                let from = taken.partition_point(|(at, _)| *at + Duration::from_secs(1) <= now);
                let sum: u64 = taken[from..].iter().map(|(_, n)| n * 8).sum();
                assert!(sum <= bits.max(8), "{sum} bits in a second at {bits} bit/s");
            }
        }
    }

    #[test]
    pub(crate) fn who_waits_as_long_as_told_gets_nearly_the_rate() {
        for bits in [200_000, 1_000_000, 100_000_000] {
            let start = Instant::ZERO;
            let mut now = start;
            let mut bucket = Bucket::new(bits, now);
            let mut sum = 0;
            while now - start < Duration::from_secs(10) {
                let n = bucket.available(now);
                bucket.take(n);
                sum += n as u64 * 8;
                now = bucket.wait(1).unwrap_or(now + Duration::from_nanos(1));
            }
            assert!(sum > bits * 10 * 9 / 10, "{sum} of {}", bits * 10);
        }
    }
}
