//! `maxSendRate` and `maxRecvRate` (RFC 9622 section 8.1.8): bits of application data in any one second.
//!
//! *Responsible for* letting no more through in either direction of a connection, over any stack. A sender waits in the
//! send queue, with its usual back-pressure; a receiver leaves the rest to the transport, whose flow control slows the peer
//! down. Datagrams cannot be slowed down by not reading them, so `maxRecvRate` has no effect on stacks that carry them.
//!
//! *Invariant*: what a bucket holds and what flows into it within a second is together no more than the rate, or a byte.

use crate::Engine;
use crate::conn::Conn;
use crate::event::Event;
use crate::timer::Timer;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};

/// Nanobits in a byte: elapsed nanoseconds times bits per second are nanobits, so nothing is ever rounded.
const BYTE: i128 = 8_000_000_000;
/// A bucket holds a fiftieth of a second's bits, or this many bytes if that is more: a packet.
const LEAST_DEPTH: i128 = 1200 * BYTE;
const SECOND: i128 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bits per second that flow in.
    inflow: i128,
    /// Nanobits that it holds at most.
    depth: i128,
    /// Nanobits that it holds; negative after a datagram that is larger than the bucket.
    level: i128,
    filled: Instant,
    /// Somebody waits, and a timer is set.
    waiting: bool,
}

impl Bucket {
    fn new(bits_per_second: u64, now: Instant) -> Self {
        let rate = i128::from(bits_per_second.max(1)) * SECOND;
        // It must be able to hold a byte, or none would ever pass.
        let depth = (rate / 50).max(LEAST_DEPTH).min(rate / 2).max(BYTE);
        Self { inflow: ((rate - depth) / SECOND).max(1), depth, level: depth, filled: now, waiting: false }
    }

    fn fill(&mut self, now: Instant) {
        // Filled to the brim in a second at the latest, unless it lacks a large datagram.
        let elapsed = (now - self.filled).as_nanos().min(1 << 62) as i128;
        self.level = (self.level + elapsed.saturating_mul(self.inflow)).min(self.depth);
        self.filled = self.filled.max(now);
    }

    /// How many bytes may pass now.
    fn available(&mut self, now: Instant) -> usize {
        self.fill(now);
        usize::try_from(self.level / BYTE).unwrap_or(0)
    }

    fn take(&mut self, bytes: usize) {
        self.level -= bytes as i128 * BYTE;
    }

    /// When it is worth trying again to pass `bytes` at once: when it is half full, and they may. `None`: they may now, and
    /// whoever waits waits for something else.
    fn wait(&mut self, bytes: usize) -> Option<Instant> {
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
    send: Option<Bucket>,
    receive: Option<Bucket>,
}

impl Conn {
    fn send_bucket(&mut self) -> Option<&mut Bucket> {
        self.ext.as_mut()?.rates.as_mut()?.send.as_mut()
    }

    fn receive_bucket(&mut self) -> Option<&mut Bucket> {
        self.ext.as_mut()?.rates.as_mut()?.receive.as_mut()
    }

    /// How many bytes may be sent now, and whether a datagram may even if it is larger: the bucket is full.
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

impl<N: Net> Engine<N> {
    /// Limits a connection to these rates, in bit/s, from now on; `None`: unlimited.
    pub(crate) fn limit_rates(&mut self, conn: Key, send: Option<u64>, receive: Option<u64>) {
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        if send.is_none() && receive.is_none() && c.ext.as_ref().is_none_or(|e| e.rates.is_none()) {
            return;
        }
        let bucket = |rate: Option<u64>| rate.map(|r| Bucket::new(r, now));
        let waiting = c.receive_bucket().is_some_and(|b| b.waiting);
        c.ext().rates = Some(Box::new(Rates { send: bucket(send), receive: bucket(receive) }));
        // Who waits at an old bucket looks at the new one.
        self.cx.timers.push(now, Timer::Rate(conn));
        if waiting {
            self.notify(conn, Event::Readable);
        }
    }

    /// The rates of a connection's request begin to count.
    #[cold]
    pub(crate) fn begin_rates(&mut self, conn: Key) {
        let new = |c: &&Conn| c.ext.as_ref().is_none_or(|e| e.rates.is_none());
        if let Some((send, receive)) = self.conns.get(conn).filter(new).map(|c| c.request.rates) {
            self.limit_rates(conn, send, receive);
        }
    }

    /// Something waits to be sent, `bytes` of it at once: until the rate allows it, if that is what it waits for.
    pub(crate) fn wait_to_send(&mut self, conn: Key, bytes: usize) {
        let Some(b) = self.conns.get_mut(conn).and_then(Conn::send_bucket) else { return };
        if !b.waiting
            && let Some(at) = b.wait(bytes)
        {
            b.waiting = true;
            self.cx.timers.push(at, Timer::Rate(conn));
        }
    }

    /// Something waits to be read until the rate allows it.
    pub(crate) fn wait_to_receive(&mut self, conn: Key) {
        let Some(b) = self.conns.get_mut(conn).and_then(Conn::receive_bucket) else { return };
        if !b.waiting
            && let Some(at) = b.wait(1)
        {
            b.waiting = true;
            self.cx.timers.push(at, Timer::Rate(conn));
        }
    }

    /// The rate may allow more now.
    pub(crate) fn rate_timeout(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let receiving = c.receive_bucket().is_some_and(|b| core::mem::take(&mut b.waiting));
        if let Some(b) = c.send_bucket() {
            b.waiting = false;
        }
        if receiving {
            self.notify(conn, Event::Readable);
        }
        self.conn_ready_stream(conn, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::Rng;

    /// Takes what it may, at random times, and checks every window of a second.
    #[test]
    fn no_second_ever_sees_more_than_the_rate() {
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
    fn who_waits_as_long_as_told_gets_nearly_the_rate() {
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
