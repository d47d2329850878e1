//! The receiving direction: reassembly, the window that is offered, and when to acknowledge.
//!
//! *Invariants*: `nxt` never moves back; the offered window never shrinks (RFC 9293 section 3.8.6); what is kept out of
//! order lies inside the window and is at most [`MAX_OUT_OF_ORDER`] pieces.

use super::segment::Seq;
use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Receive buffer unless `SocketOption::ReceiveBuffer` says otherwise, in bytes.
pub(crate) const RECEIVE_BUFFER: usize = 256 * 1024;
/// How long an acknowledgment may wait (RFC 5681 section 4.2 allows 500 ms; this is what Linux does).
pub(crate) const DELAYED_ACK: Duration = Duration::from_millis(40);
/// The most pieces kept out of order; more are dropped and come again.
pub(crate) const MAX_OUT_OF_ORDER: usize = 4096;

/// How soon what has arrived must be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckNeed {
    None,
    /// With the next segment, or when the timer says so.
    Soon,
    Now,
}

/// The receiving direction of a connection.
#[derive(Debug)]
pub(crate) struct Recv {
    /// The next byte that is expected.
    pub(crate) nxt: Seq,
    /// The right edge that the peer has been told of.
    edge: Seq,
    buffer: VecDeque<u8>,
    limit: usize,
    out_of_order: BTreeMap<Seq, Bytes>,
    /// Where the peer's FIN is, once seen.
    fin: Option<Seq>,
    /// The FIN has been reached.
    ended: bool,
    need: AckNeed,
    pub(crate) ack_at: Option<Instant>,
    /// Bytes that came since the last acknowledgment was sent.
    unacked: u64,
    mss: u64,
}

impl Recv {
    pub(crate) fn new(mss: u64) -> Self {
        Self {
            nxt: Seq(0),
            edge: Seq(0),
            buffer: VecDeque::new(),
            limit: RECEIVE_BUFFER,
            out_of_order: BTreeMap::new(),
            fin: None,
            ended: false,
            need: AckNeed::None,
            ack_at: None,
            unacked: 0,
            mss,
        }
    }

    /// The peer's SYN has come: its data begin at `nxt`.
    pub(crate) fn start(&mut self, nxt: Seq) {
        self.nxt = nxt;
        self.edge = nxt;
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many bytes may wait to be read.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The size of the segments that are full: two of them are acknowledged at once.
    pub(crate) fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
    }

    /// Bytes from `nxt` to the right edge that the peer knows of.
    pub(crate) fn offered(&self) -> u64 {
        self.edge.since(self.nxt)
    }

    /// The window to state now. It may only widen; a gain of less than a segment or half the buffer is not worth it
    /// (RFC 9293 section 3.8.6.2.2).
    fn fresh_window(&self) -> u64 {
        let free = self.limit.saturating_sub(self.buffer.len()) as u64;
        let offered = self.offered();
        if free >= offered + self.mss.min(self.limit as u64 / 2) { free } else { offered }
    }

    /// The window for a segment that is sent now, with the acknowledgment it carries; nothing is owed after it.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        let window = self.fresh_window();
        self.edge = self.nxt.plus(window);
        self.need = AckNeed::None;
        self.ack_at = None;
        self.unacked = 0;
        window
    }

    pub(crate) fn need_ack(&mut self, need: AckNeed) {
        self.need = self.need.max(need);
    }

    pub(crate) fn must_ack_now(&self) -> bool {
        self.need == AckNeed::Now
    }

    /// Starts the timer of a delayed acknowledgment if one is owed.
    pub(crate) fn schedule_ack(&mut self, now: Instant) {
        if self.need == AckNeed::Soon && self.ack_at.is_none() {
            self.ack_at = Some(now + DELAYED_ACK);
        }
    }

    /// Takes what is new of a segment's payload; what lies outside the offered window is cut off.
    pub(crate) fn insert(&mut self, seq: Seq, mut payload: Bytes) {
        let had_gap = !self.out_of_order.is_empty();
        let skip = self.nxt.since(seq).min(payload.len() as u64);
        let seq = seq.plus(skip);
        let _ = payload.split_to(skip as usize);
        payload.truncate(self.edge.since(seq).min(payload.len() as u64) as usize);
        if payload.is_empty() {
            // Nothing new: the sender must hear at once where we are.
            self.need_ack(AckNeed::Now);
            return;
        }
        if seq > self.nxt {
            self.keep(seq, payload);
            self.need_ack(AckNeed::Now);
            return;
        }
        self.unacked += payload.len() as u64;
        self.nxt = self.nxt.plus(payload.len() as u64);
        self.buffer.extend(payload.iter());
        self.join();
        let now = had_gap || self.unacked >= 2 * self.mss;
        self.need_ack(if now { AckNeed::Now } else { AckNeed::Soon });
    }

    fn keep(&mut self, seq: Seq, payload: Bytes) {
        if self.out_of_order.len() >= MAX_OUT_OF_ORDER {
            return;
        }
        let longer = self.out_of_order.get(&seq).is_none_or(|have| have.len() < payload.len());
        if longer {
            self.out_of_order.insert(seq, payload);
        }
    }

    /// Moves what has become contiguous to the buffer. Pieces may overlap.
    fn join(&mut self) {
        while let Some(entry) = self.out_of_order.first_entry() {
            if *entry.key() > self.nxt {
                break;
            }
            let (seq, piece) = entry.remove_entry();
            let skip = self.nxt.since(seq).min(piece.len() as u64) as usize;
            self.nxt = self.nxt.plus((piece.len() - skip) as u64);
            self.buffer.extend(piece[skip..].iter());
        }
    }

    /// The peer's FIN lies at `seq`. True if it is reached now.
    pub(crate) fn fin_at(&mut self, seq: Seq) -> bool {
        self.fin.get_or_insert(seq);
        self.need_ack(AckNeed::Now);
        self.take_fin()
    }

    /// Counts the FIN if everything before it has come. True if it is reached now.
    pub(crate) fn take_fin(&mut self) -> bool {
        if self.ended || self.fin != Some(self.nxt) {
            return false;
        }
        self.ended = true;
        self.nxt = self.nxt.plus(1);
        self.edge = self.edge.max(self.nxt);
        self.out_of_order.clear();
        self.need_ack(AckNeed::Now);
        true
    }

    /// Bytes that can be read.
    pub(crate) fn available(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the peer's direction has ended; bytes may still wait.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads, and asks for a window update when the peer's view of the window has become much too small.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.buffer.len());
        let (a, b) = self.buffer.as_slices();
        let first = n.min(a.len());
        out[..first].copy_from_slice(&a[..first]);
        out[first..n].copy_from_slice(&b[..n - first]);
        self.buffer.drain(..n);
        let (offered, fresh) = (self.offered(), self.fresh_window());
        if !self.ended && fresh > offered && fresh >= 2 * offered {
            self.need_ack(AckNeed::Now);
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recv() -> Recv {
        let mut r = Recv::new(1000);
        r.start(Seq(100));
        r.acknowledge();
        r
    }

    fn all(r: &mut Recv) -> Vec<u8> {
        let mut out = vec![0; r.available()];
        r.read(&mut out);
        out
    }

    #[test]
    fn pieces_in_any_order_and_overlapping_are_joined_once() {
        let mut r = recv();
        r.insert(Seq(106), Bytes::from_static(b"ghij"));
        r.insert(Seq(103), Bytes::from_static(b"defgh"));
        assert_eq!((r.available(), r.must_ack_now()), (0, true));
        r.insert(Seq(100), Bytes::from_static(b"abcd"));
        assert_eq!(all(&mut r), b"abcdefghij");
        r.insert(Seq(100), Bytes::from_static(b"abcdefghijk"));
        assert_eq!(all(&mut r), b"k");
        assert_eq!(r.nxt, Seq(111));
    }

    #[test]
    fn every_second_full_segment_is_acknowledged_at_once() {
        let mut r = recv();
        r.insert(Seq(100), Bytes::from(vec![0; 1000]));
        assert!(!r.must_ack_now());
        r.schedule_ack(Instant::ZERO);
        assert_eq!(r.ack_at, Some(Instant::ZERO + DELAYED_ACK));
        r.insert(Seq(1100), Bytes::from(vec![0; 1000]));
        assert!(r.must_ack_now());
        r.acknowledge();
        assert_eq!((r.must_ack_now(), r.ack_at), (false, None));
    }

    #[test]
    fn bytes_beyond_the_window_are_cut_off_and_the_window_reopens_when_read() {
        let mut r = recv();
        r.insert(Seq(100), Bytes::from(vec![7; RECEIVE_BUFFER + 500]));
        assert_eq!(r.available(), RECEIVE_BUFFER);
        assert_eq!(r.acknowledge(), 0);
        let mut one = [0; 10];
        r.read(&mut one);
        assert!(!r.must_ack_now(), "ten bytes are not worth a window update");
        let mut more = [0; 2000];
        r.read(&mut more);
        assert!(r.must_ack_now());
        assert_eq!(r.acknowledge(), 2010);
    }

    #[test]
    fn a_fin_counts_when_everything_before_it_has_come() {
        let mut r = recv();
        assert!(!r.fin_at(Seq(103)));
        r.insert(Seq(100), Bytes::from_static(b"abc"));
        assert!(r.take_fin() && !r.take_fin());
        assert_eq!((r.nxt, r.ended()), (Seq(104), true));
    }

    #[test]
    fn what_is_kept_out_of_order_is_bounded() {
        let mut r = recv();
        for i in 0..MAX_OUT_OF_ORDER as u64 + 50 {
            r.insert(Seq(102 + 2 * i), Bytes::from_static(b"x"));
        }
        assert_eq!(r.out_of_order.len(), MAX_OUT_OF_ORDER);
    }
}
