//! What else crosses a bottleneck: files, pages and videos, whose senders slow down when their packets are lost.
//!
//! A sender is a congestion window and a round-trip time (additive increase, multiplicative decrease, one decrease in a round trip):
//! what it takes of the queue matters here, and not its protocol.

use neater_base::{Instant, Rng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How busy a bottleneck of 100 Mbit/s is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Load {
    Low,
    Mild,
    Medium,
    Heavy,
}

impl Load {
    pub(super) const ALL: [Self; 4] = [Self::Low, Self::Mild, Self::Medium, Self::Heavy];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Mild => "mild",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        }
    }

    /// How many senders of files, pages and videos there are. The first are what fills the queue.
    const fn senders(self) -> (usize, usize, usize) {
        match self {
            Self::Low => (0, 60, 20),
            Self::Mild => (72, 90, 20),
            Self::Medium => (122, 115, 20),
            Self::Heavy => (210, 170, 20),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file that does not end.
    File,
    /// Pages of random length, with pauses between them.
    Page,
    /// A constant rate, whatever is lost.
    Video,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// It begins, or sends the next packet of a constant rate.
    Send,
    Acked,
    Lost,
}

struct Sender {
    kind: Kind,
    rtt: Duration,
    /// Of its packets, in bytes.
    size: u32,
    window: f64,
    threshold: f64,
    in_flight: u32,
    /// Packets that are left to be sent.
    left: u64,
    /// Losses until then are of the round trip for which the window was halved.
    halved: Instant,
}

/// All senders of one direction of a bottleneck.
pub(super) struct Traffic {
    senders: Vec<Sender>,
    due: BinaryHeap<Reverse<(Instant, u32, What)>>,
    rng: Rng,
}

/// Packets of a page: bounded Pareto with shape 1.2, of which the mean is about 12.
const PAGE: (f64, f64, f64) = (1.2, 3.0, 400.0);
/// The mean of pauses between pages.
const PAUSE: Duration = Duration::from_secs(1);
/// Bits per second and bytes per packet of a video.
const VIDEO: (u64, u32) = (300_000, 1000);
/// Edges of the dumbbell, one way, in ms: one of these on either side, and the bottleneck's own 2.
const EDGES: ([u64; 3], [u64; 3]) = ([0, 12, 25], [2, 37, 75]);

impl Traffic {
    pub(super) fn new(load: Load, start: Instant, seed: u64) -> Self {
        let mut rng = Rng::from_number(seed);
        let (files, pages, videos) = load.senders();
        let mut traffic = Self { senders: Vec::new(), due: BinaryHeap::new(), rng: rng.fork() };
        let kinds = [(Kind::File, files), (Kind::Page, pages), (Kind::Video, videos)];
        for kind in kinds.iter().flat_map(|(kind, n)| core::iter::repeat_n(*kind, *n)) {
            let edge = EDGES.0[rng.below(3) as usize] + EDGES.1[rng.below(3) as usize];
            let small = kind == Kind::File && rng.chance(0.1);
            let sender = Sender {
                kind,
                rtt: Duration::from_millis(2 * (edge + 2)),
                size: if kind == Kind::Video {
                    VIDEO.1
                } else if small {
                    576
                } else {
                    1500
                },
                window: 2.0,
                threshold: f64::MAX,
                in_flight: 0,
                left: 0,
                halved: Instant::ZERO,
            };
            let first = start + Duration::from_nanos(rng.below(2_000_000_000));
            traffic.due.push(Reverse((first, traffic.senders.len() as u32, What::Send)));
            traffic.senders.push(sender);
        }
        traffic
    }

    /// When something is to be done next.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Does what is due: packets that leave are handed to `offer`, with their sender and length.
    pub(super) fn handle_timeout(&mut self, now: Instant, mut offer: impl FnMut(u32, u32)) {
        while let Some(Reverse((at, index, what))) = self.due.peek().copied().filter(|Reverse((at, ..))| *at <= now) {
            self.due.pop();
            let sender = &mut self.senders[index as usize];
            match (what, sender.kind) {
                (What::Send, Kind::Video) => {
                    offer(index, sender.size);
                    let gap = Duration::from_nanos(u64::from(VIDEO.1) * 8 * 1_000_000_000 / VIDEO.0);
                    self.due.push(Reverse((at + gap, index, What::Send)));
                    continue;
                }
                (What::Send, kind) => {
                    (sender.window, sender.threshold) = (2.0, f64::MAX);
                    sender.left = if kind == Kind::File { u64::MAX } else { page(&mut self.rng) };
                }
                (_, Kind::Video) => continue,
                (What::Acked, _) => {
                    sender.in_flight = sender.in_flight.saturating_sub(1);
                    sender.window += if sender.window < sender.threshold { 1.0 } else { 1.0 / sender.window };
                }
                (What::Lost, _) => {
                    sender.in_flight = sender.in_flight.saturating_sub(1);
                    sender.left = sender.left.saturating_add(1);
                    if at > sender.halved {
                        sender.threshold = (sender.window / 2.0).max(1.0);
                        sender.window = sender.threshold;
                        sender.halved = at + sender.rtt;
                    }
                }
            }
            while sender.left > 0 && f64::from(sender.in_flight) < sender.window {
                sender.left -= u64::from(sender.left != u64::MAX);
                sender.in_flight += 1;
                offer(index, sender.size);
            }
            if sender.left == 0 && sender.in_flight == 0 {
                let pause = -self.rng.unit().max(1e-9).ln() * PAUSE.as_secs_f64();
                self.due.push(Reverse((at + Duration::from_secs_f64(pause), index, What::Send)));
            }
        }
    }

    /// A packet has come out of the bottleneck, or has not: its sender finds out after a round trip.
    pub(super) fn left(&mut self, at: Instant, index: u32, lost: bool) {
        let sender = &self.senders[index as usize];
        if sender.kind != Kind::Video {
            let what = if lost { What::Lost } else { What::Acked };
            self.due.push(Reverse((at + sender.rtt, index, what)));
        }
    }
}

fn page(rng: &mut Rng) -> u64 {
    let (shape, least, most) = PAGE;
    (least / rng.unit().max(1e-9).powf(1.0 / shape)).min(most) as u64
}
