//! The receiving direction: reassembly, the window that is offered, what is selectively acknowledged, and when.
//!
//! *Invariants*: `nxt` never moves back; the offered window never shrinks (RFC 9293 section 3.8.6); what is kept out of
//! order lies inside the window and is at most [`MAX_OUT_OF_ORDER`] pieces.

use super::ack_policy::{AckPolicy, Arrival};
use super::config::{BufferSize, TcpConfig};
use super::payload::{Payload, Queue};
use super::segment::{MAX_UNSCALED_WINDOW, Sack, Seq};
use core::time::Duration;
use neater_base::Instant;
use std::collections::{BTreeMap, VecDeque};

/// The most pieces kept out of order; more are dropped and come again.
pub(crate) const MAX_OUT_OF_ORDER: usize = 65_536;
/// Ranges remembered for selective acknowledgment, the most recent first (Linux: `selective_acks`).
const RANGES: usize = 4;

/// How soon what has arrived must be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckNeed {
    None,
    /// With the next segment, or when the timer says so.
    Soon,
    Now,
}

/// How the receive window grows with what is read (Linux: dynamic right-sizing, `tcp_rcv_space_adjust`).
#[derive(Clone, Debug)]
struct Tuning {
    most: usize,
    /// Bytes read in the last round trip, and since the current one began.
    last: u64,
    read: u64,
    began: Option<Instant>,
}

/// The receiving direction of a connection.
#[derive(Debug)]
pub(crate) struct Recv {
    /// The next byte that is expected.
    pub(crate) nxt: Seq,
    /// The right edge that the peer has been told of.
    edge: Seq,
    buffer: Queue,
    limit: usize,
    tuning: Option<Tuning>,
    out_of_order: BTreeMap<Seq, Payload>,
    ranges: VecDeque<(Seq, Seq)>,
    /// What came twice, to be reported once (RFC 2883).
    duplicate: Option<(Seq, Seq)>,
    /// Where the peer's FIN is, once seen.
    fin: Option<Seq>,
    /// The FIN has been reached.
    ended: bool,
    need: AckNeed,
    pub(crate) ack_at: Option<Instant>,
    /// A pending acknowledgment of this length of time instead of the policy's.
    hold: Option<Duration>,
    /// Bytes that came since the last acknowledgment was sent.
    unacked: u64,
    mss: u64,
    /// By how many bits the window is shifted; windows are multiples of this power of two.
    shift: u8,
    /// The largest window that can be stated.
    most_window: u64,
    pub(crate) policy: AckPolicy,
    sack: bool,
    /// The round-trip time as the receiver sees it.
    rtt: Option<Duration>,
    /// `nxt` when the last acknowledgment was sent (`Last.ACK.sent` of RFC 7323 section 4.3).
    told: Seq,
}

impl Recv {
    pub(crate) fn new(mss: u64, config: &TcpConfig) -> Self {
        let mut recv = Self {
            nxt: Seq(0),
            edge: Seq(0),
            buffer: Queue::default(),
            limit: 0,
            tuning: None,
            out_of_order: BTreeMap::new(),
            ranges: VecDeque::new(),
            duplicate: None,
            fin: None,
            ended: false,
            need: AckNeed::None,
            ack_at: None,
            hold: None,
            unacked: 0,
            mss,
            shift: 0,
            most_window: MAX_UNSCALED_WINDOW,
            policy: AckPolicy::new(config.delayed_ack),
            sack: false,
            rtt: None,
            told: Seq(0),
        };
        recv.set_size(config.receive_buffer);
        recv
    }

    /// The peer's SYN has come: its data begin at `nxt`.
    pub(crate) fn start(&mut self, nxt: Seq) {
        self.nxt = nxt;
        self.edge = nxt;
        self.told = nxt;
    }

    /// Up to where the peer has been told that its data have come.
    pub(crate) fn told(&self) -> Seq {
        self.told
    }

    pub(crate) fn set_size(&mut self, size: BufferSize) {
        match (size, &mut self.tuning) {
            (BufferSize::Tuned { most, .. }, Some(tuning)) => tuning.most = most,
            (BufferSize::Tuned { start, most }, none) => {
                self.limit = start.min(most);
                *none = Some(Tuning { most, last: (10 * self.mss).min(start as u64), read: 0, began: None });
            }
            (BufferSize::Fixed(n), tuning) => {
                self.limit = n;
                *tuning = None;
            }
        }
    }

    /// The shift that this side states in its SYN: the least that can state its largest buffer (RFC 7323 section 2.3), as
    /// Linux chooses it from `tcp_rmem`, which is twice the window.
    pub(crate) fn wanted_shift(&self) -> u8 {
        let most = self.tuning.as_ref().map_or(self.limit, |t| t.most * 2);
        (most.max(1).ilog2().saturating_sub(15)).min(14) as u8
    }

    /// Both sides scale their windows.
    pub(crate) fn enable_scale(&mut self) {
        self.shift = self.wanted_shift();
        self.most_window = MAX_UNSCALED_WINDOW << self.shift;
    }

    /// By how many bits windows are shifted.
    pub(crate) fn shift(&self) -> u8 {
        self.shift
    }

    pub(crate) fn enable_sack(&mut self) {
        self.sack = true;
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
        let free = (self.limit.saturating_sub(self.buffer.len()) as u64).min(self.most_window);
        let free = free >> self.shift << self.shift;
        let offered = self.offered();
        if free >= offered + self.mss.min(self.limit as u64 / 2) { free } else { offered }
    }

    /// The window for a segment that is sent now, with the acknowledgment it carries; nothing is owed after it.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        let window = self.fresh_window();
        self.edge = self.nxt.plus(window);
        self.told = self.nxt;
        self.need = AckNeed::None;
        self.ack_at = None;
        self.hold = None;
        self.unacked = 0;
        self.policy.on_ack_sent();
        window
    }

    /// What is selectively acknowledged by a segment that is sent now.
    pub(crate) fn selective(&mut self) -> Sack {
        let mut sack = Sack::default();
        if self.sack {
            if let Some((start, end)) = self.duplicate.take() {
                sack.push(start, end);
            }
            for (start, end) in &self.ranges {
                sack.push(*start, *end);
            }
        }
        sack
    }

    pub(crate) fn need_ack(&mut self, need: AckNeed) {
        self.need = self.need.max(need);
    }

    pub(crate) fn must_ack_now(&self) -> bool {
        self.need == AckNeed::Now
    }

    /// Starts the timer of a delayed acknowledgment if one is owed.
    pub(crate) fn schedule_ack(&mut self, now: Instant, srtt: Option<Duration>) {
        if self.need == AckNeed::Soon {
            let wait = self.hold.unwrap_or_else(|| self.policy.wait(srtt));
            let at = now + wait;
            self.ack_at = Some(self.ack_at.map_or(at, |old| old.min(at)));
        }
    }

    fn arrival(&self, now: Instant, rto: Duration) -> Arrival {
        Arrival { now, rto, window: self.offered(), mss: self.mss }
    }

    /// Takes what is new of a segment's payload; what lies outside the offered window is cut off.
    pub(crate) fn insert(&mut self, now: Instant, rto: Duration, seq: Seq, mut payload: Payload) {
        let had_gap = !self.out_of_order.is_empty();
        let end = seq.plus(payload.len() as u64);
        let skip = self.nxt.since(seq).min(payload.len() as u64);
        let seq_new = seq.plus(skip);
        if skip > 0 {
            self.duplicate = Some((seq, end.min(self.nxt)));
            payload.skip(skip as usize);
        }
        payload.truncate(self.edge.since(seq_new).min(payload.len() as u64) as usize);
        if payload.is_empty() {
            // Nothing new: the sender must hear at once where we are.
            self.policy.on_oddity(&self.arrival(now, rto));
            self.need_ack(AckNeed::Now);
            return;
        }
        if seq_new > self.nxt {
            self.keep(seq_new, payload);
            let wait =
                if self.sack && self.duplicate.is_none() { self.policy.compress(self.rtt) } else { Duration::ZERO };
            if wait.is_zero() {
                self.need_ack(AckNeed::Now);
            } else {
                self.hold = Some(wait);
                self.need_ack(AckNeed::Soon);
            }
            return;
        }
        self.policy.on_data(&self.arrival(now, rto));
        self.unacked += payload.len() as u64;
        self.nxt = self.nxt.plus(payload.len() as u64);
        self.buffer.push_payload(&payload);
        if had_gap {
            self.join();
        }
        let at_once = had_gap || self.policy.now(self.unacked, self.mss);
        self.need_ack(if at_once { AckNeed::Now } else { AckNeed::Soon });
    }

    fn keep(&mut self, seq: Seq, payload: Payload) {
        let end = seq.plus(payload.len() as u64);
        if self.out_of_order.len() >= MAX_OUT_OF_ORDER {
            return;
        }
        let have = self.out_of_order.get(&seq).map_or(0, Payload::len);
        if have >= payload.len() {
            self.duplicate = Some((seq, end));
        } else {
            self.out_of_order.insert(seq, payload);
        }
        self.remember(seq, end);
    }

    /// Adds to the ranges, joins those that touch, and puts the result first.
    fn remember(&mut self, mut start: Seq, mut end: Seq) {
        self.ranges.retain(|&(s, e)| {
            let touches = s <= end && start <= e;
            if touches {
                (start, end) = (start.min(s), end.max(e));
            }
            !touches
        });
        self.ranges.truncate(RANGES - 1);
        self.ranges.push_front((start, end));
    }

    /// Moves what has become contiguous to the buffer. Pieces may overlap.
    fn join(&mut self) {
        while let Some(entry) = self.out_of_order.first_entry() {
            if *entry.key() > self.nxt {
                break;
            }
            let (seq, mut piece) = entry.remove_entry();
            let skip = self.nxt.since(seq).min(piece.len() as u64) as usize;
            piece.skip(skip);
            self.nxt = self.nxt.plus(piece.len() as u64);
            self.buffer.push_payload(&piece);
        }
        let nxt = self.nxt;
        self.ranges.retain(|(_, end)| *end > nxt);
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
        self.ranges.clear();
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

    /// The receiver has measured how long a round trip takes.
    pub(crate) fn measured(&mut self, rtt: Duration) {
        self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
    }

    /// Reads, and asks for a window update when the peer's view of the window has become much too small.
    pub(crate) fn read(&mut self, now: Instant, out: &mut [u8]) -> usize {
        let n = self.buffer.read(out);
        self.after_reading(now, n);
        n
    }

    /// As [`Recv::read`], without looking at the bytes.
    pub(crate) fn discard(&mut self, now: Instant, n: usize) -> usize {
        let n = self.buffer.discard(n);
        self.after_reading(now, n);
        n
    }

    fn after_reading(&mut self, now: Instant, n: usize) {
        self.tune(now, n as u64);
        let (offered, fresh) = (self.offered(), self.fresh_window());
        if !self.ended && fresh > offered && fresh >= 2 * offered {
            self.need_ack(AckNeed::Now);
        }
    }

    /// Once per round trip: if more was read than in any before, the window becomes room for twice as much, and for as much
    /// again as the rate has grown by.
    fn tune(&mut self, now: Instant, n: u64) {
        let (mss, beyond) = (self.mss, self.out_of_order.last_key_value());
        let beyond = beyond.map_or(0, |(seq, p)| seq.plus(p.len() as u64).since(self.nxt));
        let rtt = self.rtt;
        let Some(tuning) = &mut self.tuning else { return };
        tuning.read += n;
        let began = *tuning.began.get_or_insert(now);
        let Some(rtt) = rtt else { return };
        if now - began < rtt {
            return;
        }
        if tuning.read > tuning.last {
            let window = 2 * tuning.read + 16 * mss;
            let growth = window * (tuning.read - tuning.last) / tuning.last.max(1);
            let wanted = usize::try_from(window + 2 * growth + beyond).unwrap_or(usize::MAX);
            self.limit = self.limit.max(wanted.min(tuning.most));
            tuning.last = tuning.read;
        }
        tuning.read = 0;
        tuning.began = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::config::DelayedAck;
    use bytes::Bytes;

    const LIMIT: usize = 256 * 1024;
    const DELAY: Duration = Duration::from_millis(40);
    const RTO: Duration = Duration::from_millis(250);
    const T: Instant = Instant::from_nanos(1_000_000_000);

    fn recv() -> Recv {
        let config = TcpConfig {
            receive_buffer: BufferSize::Fixed(LIMIT),
            delayed_ack: DelayedAck::Fixed { every: 2, delay: DELAY },
            ..TcpConfig::linux()
        };
        let mut r = Recv::new(1000, &config);
        r.enable_sack();
        r.most_window = u64::MAX;
        r.start(Seq(100));
        r.acknowledge();
        r
    }

    fn insert(r: &mut Recv, seq: u64, bytes: impl Into<Bytes>) {
        r.insert(T, RTO, Seq(seq), Payload::Bytes(bytes.into()));
    }

    fn all(r: &mut Recv) -> Vec<u8> {
        let mut out = vec![0; r.available()];
        r.read(T, &mut out);
        out
    }

    #[test]
    fn pieces_in_any_order_and_overlapping_are_joined_once() {
        let mut r = recv();
        insert(&mut r, 106, &b"ghij"[..]);
        insert(&mut r, 103, &b"defgh"[..]);
        assert_eq!((r.available(), r.must_ack_now()), (0, true));
        insert(&mut r, 100, &b"abcd"[..]);
        assert_eq!(all(&mut r), b"abcdefghij");
        insert(&mut r, 100, &b"abcdefghijk"[..]);
        assert_eq!(all(&mut r), b"k");
        assert_eq!(r.nxt, Seq(111));
    }

    #[test]
    fn every_second_full_segment_is_acknowledged_at_once() {
        let mut r = recv();
        insert(&mut r, 100, vec![0; 1000]);
        assert!(!r.must_ack_now());
        r.schedule_ack(T, None);
        assert_eq!(r.ack_at, Some(T + DELAY));
        insert(&mut r, 1100, vec![0; 1000]);
        assert!(r.must_ack_now());
        r.acknowledge();
        assert_eq!((r.must_ack_now(), r.ack_at), (false, None));
    }

    #[test]
    fn bytes_beyond_the_window_are_cut_off_and_the_window_reopens_when_read() {
        let mut r = recv();
        insert(&mut r, 100, vec![7; LIMIT + 500]);
        assert_eq!(r.available(), LIMIT);
        assert_eq!(r.acknowledge(), 0);
        let mut one = [0; 10];
        r.read(T, &mut one);
        assert!(!r.must_ack_now(), "ten bytes are not worth a window update");
        let mut more = [0; 2000];
        r.read(T, &mut more);
        assert!(r.must_ack_now());
        assert_eq!(r.acknowledge(), 2010);
    }

    #[test]
    fn a_fin_counts_when_everything_before_it_has_come() {
        let mut r = recv();
        assert!(!r.fin_at(Seq(103)));
        insert(&mut r, 100, &b"abc"[..]);
        assert!(r.take_fin() && !r.take_fin());
        assert_eq!((r.nxt, r.ended()), (Seq(104), true));
    }

    #[test]
    fn what_is_kept_out_of_order_is_bounded() {
        let mut r = recv();
        for i in 0..MAX_OUT_OF_ORDER as u64 + 50 {
            insert(&mut r, 102 + 2 * i, &b"x"[..]);
        }
        assert_eq!(r.out_of_order.len(), MAX_OUT_OF_ORDER);
    }

    #[test]
    fn the_most_recent_range_is_reported_first_and_neighbours_are_joined() {
        let mut r = recv();
        for seq in [300, 500, 700] {
            insert(&mut r, seq, vec![0; 100]);
        }
        let blocks = |r: &mut Recv| r.selective().blocks().iter().map(|b| (b.0.0, b.1.0)).collect::<Vec<_>>();
        assert_eq!(blocks(&mut r), [(700, 800), (500, 600), (300, 400)]);
        insert(&mut r, 400, vec![0; 100]);
        assert_eq!(blocks(&mut r), [(300, 600), (700, 800)]);
        insert(&mut r, 100, vec![0; 200]);
        assert_eq!((blocks(&mut r), r.nxt), (vec![(700, 800)], Seq(600)));
    }

    #[test]
    fn what_comes_twice_is_reported_once() {
        let mut r = recv();
        insert(&mut r, 100, vec![0; 100]);
        insert(&mut r, 100, vec![0; 100]);
        assert_eq!(r.selective().blocks(), [(Seq(100), Seq(200))]);
        assert!(r.selective().blocks().is_empty());
        insert(&mut r, 300, vec![0; 100]);
        insert(&mut r, 300, vec![0; 100]);
        assert_eq!(r.selective().blocks(), [(Seq(300), Seq(400)), (Seq(300), Seq(400))]);
    }

    #[test]
    fn a_tuned_window_follows_what_is_read_up_to_its_bound() {
        let config = TcpConfig::linux();
        let mut r = Recv::new(1448, &config);
        r.enable_scale();
        r.start(Seq(0));
        r.acknowledge();
        let mut now = T;
        r.measured(Duration::from_millis(100));
        let mut limits = vec![r.limit()];
        let mut seq = 0;
        for _ in 0..14 {
            let n = r.offered();
            r.insert(now, RTO, Seq(seq), Payload::Zeros(n as u32));
            seq += n;
            r.discard(now, n as usize);
            r.acknowledge();
            now += Duration::from_millis(101);
            limits.push(r.limit());
        }
        assert!(limits.windows(2).all(|w| w[1] >= w[0]), "{limits:?}");
        assert_eq!(*limits.last().unwrap(), 3 << 20);
    }
}
