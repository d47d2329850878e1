//! The sending direction: what is buffered, sent and acknowledged.
//!
//! *Invariants*: `una <= nxt <= max` in a settled state; the buffer begins with the first unacknowledged byte.

use super::segment::Seq;
use bytes::Bytes;
use neater_base::Instant;
use std::collections::VecDeque;

/// Send buffer unless `SocketOption::SendBuffer` says otherwise, in bytes.
pub(crate) const SEND_BUFFER: usize = 256 * 1024;

/// One segment whose acknowledgment is timed (RFC 6298 section 3), and what was delivered when it was sent.
#[derive(Clone, Copy, Debug)]
struct Timing {
    end: Seq,
    at: Instant,
    delivered: u64,
}

/// What the acknowledgment of a timed segment says of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) rtt: core::time::Duration,
    /// Bytes per second.
    pub(crate) rate: Option<u64>,
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) iss: Seq,
    /// The oldest unacknowledged number.
    pub(crate) una: Seq,
    /// The next number to send; behind `max` while data are sent again after a timeout.
    pub(crate) nxt: Seq,
    /// The number after the highest ever sent.
    pub(crate) max: Seq,
    /// The peer's window.
    pub(crate) wnd: u64,
    /// The widest window the peer has ever offered.
    pub(crate) max_wnd: u64,
    /// The sequence and acknowledgment numbers of the segment that last updated the window.
    update: (Seq, Seq),
    buffer: VecDeque<u8>,
    limit: usize,
    pub(crate) fin_queued: bool,
    pub(crate) fin_acked: bool,
    /// The effective maximum segment size: payload bytes of a full segment.
    pub(crate) mss: u64,
    timing: Option<Timing>,
    delivered: u64,
    pub(crate) last_sent: Instant,
    /// Since when data wait for an acknowledgment without any progress.
    pub(crate) stalled_since: Option<Instant>,
}

impl Send {
    pub(crate) fn new(iss: Seq, mss: u64, now: Instant) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            max: iss,
            wnd: 0,
            max_wnd: 0,
            update: (Seq(0), Seq(0)),
            buffer: VecDeque::new(),
            limit: SEND_BUFFER,
            fin_queued: false,
            fin_acked: false,
            mss,
            timing: None,
            delivered: 0,
            last_sent: now,
            stalled_since: None,
        }
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Where the first byte of the buffer lies.
    fn data_start(&self) -> Seq {
        self.una.max(self.iss.plus(1))
    }

    /// The number after the last buffered byte: the FIN's, if there is one to send.
    pub(crate) fn data_end(&self) -> Seq {
        self.data_start().plus(self.buffer.len() as u64)
    }

    /// Outstanding sequence space.
    pub(crate) fn flight(&self) -> u64 {
        self.max.since(self.una)
    }

    /// Buffered bytes that were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.data_end().since(self.max.max(self.data_start()))
    }

    /// Free space in the buffer.
    pub(crate) fn space(&self) -> usize {
        self.limit.saturating_sub(self.buffer.len())
    }

    /// Whether enough is free to wake a writer: half of the buffer.
    pub(crate) fn half_free(&self) -> bool {
        self.buffer.len() <= self.limit / 2
    }

    /// Buffers as much as fits and returns how much that is.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.space());
        self.buffer.extend(&bytes[..n]);
        n
    }

    /// Up to `len` buffered bytes at `seq`.
    pub(crate) fn bytes_at(&self, seq: Seq, len: u64) -> Bytes {
        let from = (seq.since(self.data_start()) as usize).min(self.buffer.len());
        let to = from.saturating_add(len as usize).min(self.buffer.len());
        let (a, b) = self.buffer.as_slices();
        if to <= a.len() {
            return Bytes::copy_from_slice(&a[from..to]);
        }
        if from >= a.len() {
            return Bytes::copy_from_slice(&b[from - a.len()..to - a.len()]);
        }
        let mut out = Vec::with_capacity(to - from);
        out.extend_from_slice(&a[from..]);
        out.extend_from_slice(&b[..to - a.len()]);
        out.into()
    }

    /// Records that `seq..end` is sent now; `new` if any of it was never sent before.
    pub(crate) fn sent(&mut self, now: Instant, end: Seq, new: bool) {
        if new {
            self.timing.get_or_insert(Timing { end, at: now, delivered: self.delivered });
        } else {
            // Karn's algorithm: an acknowledgment may now be for either copy.
            self.timing = None;
        }
        self.max = self.max.max(end);
        self.last_sent = now;
        self.stalled_since.get_or_insert(now);
    }

    /// Records a segment that may not be timed.
    pub(crate) fn forget_timing(&mut self) {
        self.timing = None;
    }

    /// Takes an acknowledgment with `una < ack <= max`: how many numbers it covers, and what it says of the path.
    pub(crate) fn acknowledged(&mut self, now: Instant, ack: Seq) -> (u64, Option<Sample>) {
        let covered = ack.since(self.una);
        let bytes = ack.since(self.data_start());
        if bytes > self.buffer.len() as u64 {
            self.fin_acked = true;
        }
        self.buffer.drain(..(bytes as usize).min(self.buffer.len()));
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.delivered += covered;
        self.stalled_since = (self.una < self.max).then_some(now);
        let sample = self.timing.take_if(|t| t.end <= ack).map(|t| {
            let rtt = now - t.at;
            let delivered = u128::from(self.delivered - t.delivered);
            let rate = (delivered * 1_000_000_000).checked_div(rtt.as_nanos());
            Sample { rtt, rate: rate.and_then(|r| u64::try_from(r).ok()) }
        });
        (covered, sample)
    }

    /// Takes the window of a segment unless it is older than the last update (RFC 9293 section 3.10.7.4). True if the
    /// window has changed.
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u64) -> bool {
        if (seq, ack) < self.update {
            return false;
        }
        self.update = (seq, ack);
        let changed = self.wnd != window;
        self.wnd = window;
        self.max_wnd = self.max_wnd.max(window);
        changed
    }

    /// Forgets what was not acknowledged: the connection is gone.
    pub(crate) fn clear(&mut self) {
        self.buffer = VecDeque::new();
        self.stalled_since = None;
        self.timing = None;
        self.nxt = self.max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn send() -> Send {
        let mut s = Send::new(Seq(10), 100, Instant::ZERO);
        s.sent(Instant::ZERO, Seq(11), true);
        s.nxt = Seq(11);
        s.acknowledged(Instant::ZERO, Seq(11));
        s
    }

    #[test]
    fn bytes_are_found_by_number_also_where_the_ring_wraps() {
        let mut s = send();
        let data: Vec<u8> = (0..200).collect();
        s.push(&data);
        s.sent(Instant::ZERO, Seq(161), true);
        s.acknowledged(Instant::ZERO, Seq(161));
        s.push(&data);
        let expected: Vec<u8> = data[150..].iter().chain(&data).copied().collect();
        assert_eq!(s.bytes_at(Seq(161), 1000), expected);
        assert_eq!(s.bytes_at(Seq(200), 20), expected[39..59]);
        assert_eq!(s.bytes_at(Seq(5000), 20), Bytes::new());
    }

    #[test]
    fn the_buffer_takes_no_more_than_its_limit() {
        let mut s = send();
        s.set_limit(10);
        assert_eq!((s.push(&[0; 8]), s.push(&[0; 8])), (8, 2));
        assert!(!s.half_free());
    }

    #[test]
    fn a_retransmitted_segment_is_not_timed() {
        let mut s = send();
        s.push(&[0; 50]);
        s.sent(Instant::ZERO, Seq(61), true);
        let later = Instant::ZERO + Duration::from_millis(30);
        s.sent(later, Seq(61), false);
        assert_eq!(s.acknowledged(later, Seq(61)), (50, None));
        s.push(&[0; 50]);
        s.sent(later, Seq(111), true);
        let (covered, sample) = s.acknowledged(later + Duration::from_millis(10), Seq(111));
        assert_eq!((covered, sample), (50, Some(Sample { rtt: Duration::from_millis(10), rate: Some(5000) })));
    }

    #[test]
    fn the_fin_is_acknowledged_by_the_number_after_the_last_byte() {
        let mut s = send();
        s.push(&[0; 5]);
        s.fin_queued = true;
        s.sent(Instant::ZERO, Seq(17), true);
        s.acknowledged(Instant::ZERO, Seq(16));
        assert!(!s.fin_acked);
        s.acknowledged(Instant::ZERO, Seq(17));
        assert!(s.fin_acked && s.flight() == 0);
    }

    #[test]
    fn an_old_segment_does_not_update_the_window() {
        let mut s = send();
        assert!(s.update_window(Seq(5), Seq(11), 1000));
        assert!(!s.update_window(Seq(4), Seq(11), 10));
        assert_eq!(s.wnd, 1000);
    }
}
