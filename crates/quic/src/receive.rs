//! How much the peer of a connection may send ahead of the program that reads.
//!
//! The window of the connection is the bound; that of a stream (see [`Tuning::stream_window`]) is
//! fixed when the connection begins, and as large as one stream may ever need. The window follows
//! what is read: twice as much as the program reads in one round trip, as the kernel sizes TCP's
//! buffers, so that a program which reads nothing has what it had. What streams hold whose readers
//! have stopped is added while other streams have nothing to be read, or it would hold those up.

use crate::Tuning;
use core::time::Duration;
use neater_base::Instant;
use quinn_proto::StreamId;
use std::collections::BTreeMap;

/// A window that would be so much larger is worth announcing to the peer.
const STEP: u64 = 4;

/// The receive window of one connection.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// What quinn-proto has for its window.
    window: u64,
    /// What was taken from the window and is still the peer's to use: reading pays it back.
    owed: u64,
    /// What the program reads in so much time as a round trip takes is known since.
    since: Option<Instant>,
    read: u64,
    /// Twice that.
    wanted: u64,
    /// Frames of each stream since it was last read to its end.
    unread: BTreeMap<StreamId, u64>,
    /// And of all of them.
    frames: u64,
    /// The largest datagram that has come: no frame was longer.
    largest: u64,
    /// Streams hold so much more or less that the window may have to follow.
    shifted: bool,
    /// What they held, in steps, when that was found.
    held: u64,
}

impl Receiving {
    pub(crate) fn new() -> Self {
        Self {
            window: Tuning::RECEIVE_WINDOW_MIN,
            owed: 0,
            since: None,
            read: 0,
            wanted: Tuning::RECEIVE_WINDOW_MIN,
            unread: BTreeMap::new(),
            frames: 0,
            largest: 0,
            shifted: false,
            held: 0,
        }
    }

    /// A datagram has come.
    pub(crate) fn arrived(&mut self, len: usize) {
        self.largest = self.largest.max(len as u64);
    }

    /// A frame of a stream has come.
    pub(crate) fn filled(&mut self, stream: StreamId) {
        *self.unread.entry(stream).or_default() += 1;
        self.frames += 1;
        self.shift();
    }

    /// So many bytes of a stream were read; `all`: there are no more.
    pub(crate) fn was_read(&mut self, stream: StreamId, bytes: usize, all: bool) {
        self.read += bytes as u64;
        self.owed = self.owed.saturating_sub(bytes as u64);
        if all {
            self.frames -= self.unread.remove(&stream).unwrap_or(0);
        } else if let Some(frames) = self.unread.get_mut(&stream) {
            // Headers took some of the datagrams: what a stream that is read holds is rather too
            // little than more each time.
            let read = (bytes as u64).div_ceil((self.largest - self.largest / 16).max(1)).min(*frames);
            *frames -= read;
            self.frames -= read;
        }
        self.shift();
    }

    fn shift(&mut self) {
        let (bytes, step) = (self.frames * self.largest, self.wanted / STEP);
        if bytes < self.held || bytes >= self.held + step {
            (self.held, self.shifted) = (bytes / step * step, true);
        }
    }

    /// Whether it is worth asking [`Receiving::suitable`] because of what streams hold. Returns
    /// true once.
    pub(crate) fn has_shifted(&mut self) -> bool {
        core::mem::take(&mut self.shifted)
    }

    /// The window that would suit now, of a connection with so many streams, if that has changed.
    /// `give`: others need what this one does not.
    pub(crate) fn suitable(&mut self, now: Instant, rtt: Duration, streams: usize, give: bool) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let took = now - since;
        // Over a whole round trip, or what lay there and is read at once would be taken for speed.
        if took >= rtt.max(Duration::from_micros(100)) {
            let per_rtt = u128::from(self.read) * rtt.as_nanos() / took.as_nanos().max(1);
            let want = 2 * u64::try_from(per_rtt).unwrap_or(u64::MAX / 2);
            if want > self.wanted + self.wanted / STEP {
                self.wanted = want.min(2 * self.wanted).min(Tuning::RECEIVE_WINDOW_MAX);
                self.shift();
            } else if give && want < self.wanted / STEP {
                self.wanted = (self.wanted / 2).max(Tuning::RECEIVE_WINDOW_MIN);
                self.shift();
            }
            (self.since, self.read) = (Some(now), 0);
        }
        // quinn-proto announces room to the peer when that is an eighth of the window: the others'
        // part is to be more than that.
        let suits = (self.wanted + self.held + self.held / 4).min(Tuning::RECEIVE_WINDOW_MAX);
        if suits < self.window {
            return Some(suits);
        }
        // What is lent because of some is for others: where all streams hold something, there are
        // no others to be held up.
        let others = streams > self.unread.len();
        let suits = if others { suits } else { self.wanted };
        // What the peer still has of a larger window is not given a second time.
        (suits > self.exposed()).then(|| self.window + suits - self.exposed())
    }

    /// The window.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// The most that the peer may make this side keep.
    pub(crate) const fn exposed(&self) -> u64 {
        self.window + self.owed
    }

    pub(crate) const fn set(&mut self, window: u64) {
        self.owed += self.window.saturating_sub(window);
        self.window = window;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(100);
    const MIN: u64 = Tuning::RECEIVE_WINDOW_MIN;

    fn stream(n: u64) -> StreamId {
        StreamId::new(quinn_proto::Side::Client, quinn_proto::Dir::Bi, n)
    }

    /// Reads so many bytes in each of `rtts` round trips, ten times in each, and takes every window
    /// that would suit.
    fn reads(r: &mut Receiving, from: Instant, rtts: u32, each: impl Fn(u64) -> u64) -> Instant {
        let mut now = from;
        for _ in 0..rtts {
            let bytes = each(r.window());
            for _ in 0..10 {
                now += RTT / 10;
                r.was_read(stream(0), (bytes / 10) as usize, true);
                if let Some(w) = r.suitable(now, RTT, 1, false) {
                    r.set(w);
                }
            }
        }
        now
    }

    #[test]
    fn the_window_doubles_while_it_is_what_holds_the_peer_up_and_stops_at_twice_the_path() {
        let mut r = Receiving::new();
        let path = 5_000_000;
        let now = reads(&mut r, Instant::ZERO, 20, |window| window.min(path));
        assert!((8_000_000..=10_000_000).contains(&r.window()), "{}", r.window());
        reads(&mut r, now, 40, |window| window);
        assert_eq!(r.window(), Tuning::RECEIVE_WINDOW_MAX);
    }

    #[test]
    fn bursts_that_lay_there_are_no_speed() {
        let mut r = Receiving::new();
        let mut now = Instant::ZERO;
        for _ in 0..20 {
            now += 10 * RTT;
            for _ in 0..10 {
                r.was_read(stream(0), (MIN / 10) as usize, true);
                assert_eq!(r.suitable(now, RTT, 1, false), None);
                now += MS;
            }
        }
    }

    #[test]
    fn what_stalled_streams_hold_is_added_while_others_wait() {
        let mut r = Receiving::new();
        r.arrived(1000);
        for _ in 0..MIN / 1000 {
            r.filled(stream(0));
        }
        assert!(r.has_shifted() && !r.has_shifted());
        assert_eq!(r.suitable(Instant::ZERO, RTT, 1, false), None, "nobody else to be held up");
        let w = r.suitable(Instant::ZERO, RTT, 2, false).unwrap();
        assert!((MIN + MIN / 4 * 3..=MIN / 4 * 9).contains(&w), "{w}");
        r.set(w);
        // Read again, all of it: the window is what it was, and all that was lent is paid back by
        // what was read.
        r.was_read(stream(0), MIN as usize - 1, true);
        assert!(r.has_shifted());
        let w = r.suitable(Instant::ZERO, RTT, 2, false).unwrap();
        assert_eq!(w, MIN);
        let more = r.window() - w;
        r.set(w);
        assert_eq!(r.exposed(), MIN + more, "the peer may still use it");
        r.was_read(stream(0), more as usize, true);
        assert_eq!(r.exposed(), MIN);
    }

    #[test]
    fn who_reads_slowly_gives_back_what_others_need() {
        let mut r = Receiving::new();
        let mut now = reads(&mut r, Instant::ZERO, 10, |window| window);
        let large = r.window();
        assert!(large > 16 * MIN);
        for _ in 0..10 {
            now += RTT;
            r.was_read(stream(0), 1000, true);
            assert_eq!(r.suitable(now, RTT, 1, false), None, "nobody needs it");
        }
        for _ in 0..10 {
            now += RTT;
            r.was_read(stream(0), 1000, true);
            if let Some(w) = r.suitable(now, RTT, 1, true) {
                r.set(w);
            }
        }
        assert_eq!(r.window(), MIN);
        assert!(r.exposed() > large / 2, "not before it was read");
    }
}
