//! The 16 environments of I1: pairs of links, as the mqvpn project has published them
//! (`docs/report/2026-06-18-reorder-only-datagram-…`, section 3.3, snapshot of 2026-07-25).

use neater_link::{Jitter, LinkConfig, QueueLimit};
use std::time::Duration;

/// The length of a full packet in bits.
const PACKET: u64 = 1500 * 8;

/// One link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::experiments) struct Side {
    /// In Mbit/s.
    pub(in crate::experiments) rate: u64,
    /// Round trip in milliseconds, half of it each way.
    pub(in crate::experiments) rtt: u64,
    /// Standard deviation of the delay of each direction in milliseconds.
    pub(in crate::experiments) deviation: u64,
    /// Share of packets that are lost, in each direction.
    pub(in crate::experiments) loss: f64,
}

impl Side {
    const fn new(rate: u64, rtt: u64) -> Self {
        Self { rate, rtt, deviation: 0, loss: 0.0 }
    }

    const fn varying(self, deviation: u64) -> Self {
        Self { deviation, ..self }
    }

    const fn losing(self, percent: f64) -> Self {
        Self { loss: percent / 100.0, ..self }
    }

    /// One direction. `Queue::Deep`: 1,000 packets, and jitter reorders, as netem does it.
    pub(in crate::experiments) fn link(&self, queue: Queue) -> LinkConfig {
        let mut link = LinkConfig::rate(self.rate * 1_000_000, Duration::from_micros(self.rtt * 500));
        let bdp = self.rate * 1000 * self.rtt / PACKET;
        (link.queue, link.reorder) = match queue {
            Queue::Deep => (QueueLimit::Packets(1000), true),
            Queue::Bdp => (QueueLimit::Packets((bdp as usize).max(10)), false),
        };
        if self.deviation > 0 {
            link.jitter = Jitter::Normal(Duration::from_millis(self.deviation));
        }
        if self.loss > 0.0 { link.with_loss(self.loss) } else { link }
    }
}

/// What waits in front of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum Queue {
    /// 1,000 packets; packets may overtake others.
    Deep,
    /// What is under way in a round trip; they keep their order.
    Bdp,
}

/// Two links, and what was published of them: goodput of the better one alone, with default
/// settings, and with the best of them, in Mbit/s; nothing where there was none.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiments) struct Environment {
    pub(in crate::experiments) name: &'static str,
    pub(in crate::experiments) sides: [Side; 2],
    pub(in crate::experiments) published: &'static str,
}

const fn pair(name: &'static str, a: Side, b: Side, published: &'static str) -> Environment {
    Environment { name, sides: [a, b], published }
}

const PLAIN: Side = Side::new(50, 20);

pub(in crate::experiments) const ALL: [Environment; 16] = [
    pair("alike", PLAIN, PLAIN, "40.6, 73.9, 58.0"),
    pair("rtt-40", PLAIN, Side::new(50, 40), "40.5, 0.85, 49.0"),
    pair("rtt-70", PLAIN, Side::new(50, 70), "40.6, 1.25, 36.5"),
    pair("rtt-120", PLAIN, Side::new(50, 120), "40.7, 7.05, 28.2"),
    pair("rtt-320", PLAIN, Side::new(50, 320), "40.3, 40.1, 35.7"),
    pair("jitter-5", PLAIN.varying(5), PLAIN.varying(5), "38.8, 3.38, 61.4"),
    pair("jitter-20", PLAIN.varying(20), PLAIN.varying(20), "17.4, 0.93, 37.6"),
    pair("loss-0.5", PLAIN.losing(0.5), PLAIN.losing(0.5), "32.2, 70.7, 52.7"),
    pair("loss-2", PLAIN.losing(2.0), PLAIN.losing(2.0), "16.3, 29.0, 24.5"),
    pair("rate-4-1", PLAIN, Side::new(12, 20), "40.6, 15.6, 26.1"),
    pair("rate-10-1", Side::new(100, 20), Side::new(10, 20), "74.2, 13.3, 21.0"),
    pair(
        "two-lte",
        Side::new(40, 30).varying(5).losing(0.5),
        Side::new(25, 45).varying(8).losing(0.5),
        "29.6, 0.91, 21.8",
    ),
    pair("fibre-lte", Side::new(300, 8), Side::new(30, 40).varying(8).losing(0.5), "212.4, 4.94, 77.3"),
    pair("lte-leo", Side::new(40, 35).varying(8), Side::new(100, 50).varying(25).losing(1.0), "29.6, none, 17.1"),
    pair("lte-geo", Side::new(40, 35), Side::new(20, 320).varying(20).losing(0.5), "31.7, 31.1, 27.3"),
    pair(
        "congested",
        Side::new(20, 50).varying(20).losing(2.0),
        Side::new(15, 60).varying(25).losing(2.0),
        "6.4, none, 5.7",
    ),
];
