//! The sending direction: what is buffered, sent and acknowledged.
//!
//! *Invariants*: `una <= max`; the buffer begins with the first unacknowledged byte; the scoreboard covers `una..max`
//! once the connection is established.

use super::config::BufferSize;
use super::payload::{Payload, Queue};
use super::scoreboard::Scoreboard;
use super::segment::Seq;
use neater_base::Instant;

/// What Linux reserves in a send buffer for a segment with its bookkeeping: a power of two for the data and headers, and the
/// descriptor.
const SEGMENT_SPACE: u64 = 4096 + 256;

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) iss: Seq,
    /// The oldest unacknowledged number.
    pub(crate) una: Seq,
    /// The number after the highest ever sent.
    pub(crate) max: Seq,
    /// The peer's window.
    pub(crate) wnd: u64,
    /// The widest window the peer has ever offered.
    pub(crate) max_wnd: u64,
    /// The sequence and acknowledgment numbers of the segment that last updated the window.
    update: (Seq, Seq),
    buffer: Queue,
    limit: usize,
    size: BufferSize,
    pub(crate) fin_queued: bool,
    pub(crate) fin_acked: bool,
    /// The effective maximum segment size: payload bytes of a full segment.
    pub(crate) mss: u64,
    pub(crate) board: Scoreboard,
    /// When the SYN was last sent, to time its answer; none once it was sent twice (Karn's algorithm).
    pub(crate) syn_at: Option<Instant>,
    /// Since when data wait for an acknowledgment without any progress.
    pub(crate) stalled_since: Option<Instant>,
}

impl Send {
    pub(crate) fn new(iss: Seq, mss: u64, size: BufferSize) -> Self {
        Self {
            iss,
            una: iss,
            max: iss,
            wnd: 0,
            max_wnd: 0,
            update: (Seq(0), Seq(0)),
            buffer: Queue::default(),
            limit: size.start(),
            size,
            fin_queued: false,
            fin_acked: false,
            mss,
            board: Scoreboard::default(),
            syn_at: None,
            stalled_since: None,
        }
    }

    pub(crate) fn set_size(&mut self, size: BufferSize) {
        if self.size != size {
            self.size = size;
            self.limit = size.start();
        }
    }

    /// Lets a tuned buffer follow the congestion window: room for two of them, as Linux does (`tcp_sndbuf_expand`).
    pub(crate) fn tune(&mut self, window: u64) {
        if let BufferSize::Tuned { most, .. } = self.size {
            let segments = (window / self.mss.max(1)).max(10);
            let wanted = usize::try_from(2 * segments * SEGMENT_SPACE).unwrap_or(usize::MAX);
            self.limit = self.limit.max(wanted.min(most));
        }
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

    /// Whether there is something that was never sent: data, or the FIN.
    pub(crate) fn has_new(&self) -> bool {
        self.unsent() > 0 || (self.fin_queued && self.max <= self.data_end())
    }

    /// Free space in the buffer.
    pub(crate) fn space(&self) -> usize {
        self.limit.saturating_sub(self.buffer.len())
    }

    /// Whether enough is free to wake a writer: a third of the buffer (Linux: `sk_stream_min_wspace`), or half of a small one.
    pub(crate) fn half_free(&self) -> bool {
        self.buffer.len() <= self.limit / 2
    }

    /// Buffers as much as fits and returns how much that is.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.space());
        self.buffer.push(&bytes[..n]);
        n
    }

    /// The same with synthetic bytes.
    pub(crate) fn push_zeros(&mut self, n: usize) -> usize {
        let n = n.min(self.space());
        self.buffer.push_zeros(n);
        n
    }

    /// Up to `len` buffered bytes at `seq`.
    pub(crate) fn bytes_at(&self, seq: Seq, len: u64) -> Payload {
        self.buffer.slice(seq.since(self.data_start()) as usize, len as usize)
    }

    /// Takes an acknowledgment with `una < ack <= max` off the buffer.
    pub(crate) fn advance(&mut self, now: Instant, ack: Seq) {
        let bytes = ack.since(self.data_start());
        if bytes > self.buffer.len() as u64 {
            self.fin_acked = true;
        }
        self.buffer.discard(bytes as usize);
        self.una = ack;
        self.stalled_since = (self.una < self.max).then_some(now);
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
        self.buffer = Queue::default();
        self.board.clear();
        self.stalled_since = None;
        self.syn_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send() -> Send {
        let mut s = Send::new(Seq(10), 100, BufferSize::Fixed(1000));
        s.max = Seq(11);
        s.advance(Instant::ZERO, Seq(11));
        s
    }

    #[test]
    fn the_buffer_takes_no_more_than_its_limit() {
        let mut s = send();
        s.set_size(BufferSize::Fixed(10));
        assert_eq!((s.push(&[0; 8]), s.push_zeros(8)), (8, 2));
        assert!(!s.half_free());
    }

    #[test]
    fn a_tuned_buffer_is_room_for_two_windows_and_their_bookkeeping() {
        let mut s = send();
        s.set_size(BufferSize::Tuned { start: 1000, most: 100_000 });
        s.tune(0);
        assert_eq!(s.space(), 87_040);
        s.tune(100 * 100);
        assert_eq!(s.space(), 100_000);
    }

    #[test]
    fn the_fin_is_acknowledged_by_the_number_after_the_last_byte() {
        let mut s = send();
        s.push(&[0; 5]);
        s.fin_queued = true;
        assert!(s.has_new());
        s.max = Seq(17);
        assert!(!s.has_new());
        s.advance(Instant::ZERO, Seq(16));
        assert!(!s.fin_acked);
        s.advance(Instant::ZERO, Seq(17));
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
