//! The conditions of a transfer: what the middle link of the dumbbell is like.

use neater_link::{Jitter, LinkConfig, QueueLimit};
use std::fmt;
use std::time::Duration;

/// Bytes of the packets that queues are measured in.
const PACKET: f64 = 1500.0;
/// A queue has room for so many packets at least. One bandwidth-delay product of the slowest paths is less than a burst of
/// any sender of today, and would measure the burst.
pub(crate) const QUEUE_MIN: usize = 10;

/// The middle link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    /// Rate in Mbit/s.
    pub rate: f64,
    /// Round-trip time in ms, half in each direction.
    pub rtt: f64,
    /// Part of the packets that is lost in each direction, in percent, independently.
    pub loss: f64,
    /// Jitter in each direction: the standard deviation of a normal distribution, in ms.
    pub jitter: f64,
    /// Whether jitter changes the order of packets.
    pub reorder: bool,
    /// The queue, in bandwidth-delay products.
    pub queue: f64,
}

impl Path {
    /// A path without loss or jitter, with a queue of one bandwidth-delay product.
    pub(crate) const fn new(rate: f64, rtt: f64) -> Self {
        Self { rate, rtt, loss: 0.0, jitter: 0.0, reorder: false, queue: 1.0 }
    }

    /// Whether runs with other seeds are other runs.
    pub(crate) const fn has_chance(&self) -> bool {
        self.loss > 0.0 || self.jitter > 0.0
    }

    /// Packets that the queue has room for.
    pub(crate) fn queue_packets(&self) -> usize {
        let bdp = self.rate * 1e6 * self.rtt / 1e3 / 8.0 / PACKET;
        ((bdp * self.queue).round() as usize).max(QUEUE_MIN)
    }

    /// Round trips that sending so many bytes takes at the full rate.
    pub(crate) fn round_trips(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / (self.rate * 1e6) / (self.rtt / 1e3)
    }

    /// Seconds that a transfer of so many bytes will take, more or less: for the time left.
    pub(crate) fn seconds(&self, bytes: u64) -> f64 {
        let link = bytes as f64 * 8.0 / (self.rate * 1e6);
        let rtt = self.rtt / 1e3;
        // With random loss, a window of about 1.2 packets over the square root of the loss (Mathis et al. 1997).
        let lossy = if self.loss > 0.0 { bytes as f64 / 1460.0 * rtt * (self.loss / 100.0).sqrt() / 1.2 } else { 0.0 };
        link.max(lossy) + 8.0 * rtt + 0.3
    }

    /// The link in one direction.
    pub(crate) fn config(&self) -> LinkConfig {
        let delay = Duration::from_secs_f64(self.rtt / 2e3);
        let mut config = LinkConfig::rate((self.rate * 1e6) as u64, delay);
        config = config.with_queue(QueueLimit::Packets(self.queue_packets()));
        if self.loss > 0.0 {
            config = config.with_loss(self.loss / 100.0);
        }
        if self.jitter > 0.0 {
            config.jitter = Jitter::Normal(Duration::from_secs_f64(self.jitter / 1e3));
            config.reorder = self.reorder;
        }
        config
    }

    /// Whether the simulated TCP was compared with the kernel's under such conditions (`sim/netsim/calibration/README.md`): outside of
    /// them what it says is reported and not judged.
    pub(crate) fn in_tcp_box(&self) -> bool {
        let bdp = self.rate * 1e6 * self.rtt / 1e3 / 8.0 / PACKET;
        let queue = self.queue_packets() as f64 / bdp;
        (1.0..=100.0).contains(&self.rate)
            && (10.0..=200.0).contains(&self.rtt)
            && self.loss <= 2.0
            && self.jitter == 0.0
            && (0.49..=2.01).contains(&queue)
    }

    /// The path of a scenario's text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut path = Self::new(f64::NAN, f64::NAN);
        for word in text.split(' ') {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            let number = value.parse().ok()?;
            match key {
                "rate" => path.rate = number,
                "rtt" => path.rtt = number,
                "loss" => path.loss = number,
                "jitter" => path.jitter = number,
                "queue" => path.queue = number,
                "reorder" => path.reorder = true,
                _ => return None,
            }
        }
        (path.rate > 0.0 && path.rtt >= 0.0).then_some(path)
    }
}

impl fmt::Display for Path {
    /// As in raw data: `rate=10 rtt=20`, in Mbit/s, ms, percent and bandwidth-delay products.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate={} rtt={}", self.rate, self.rtt)?;
        if self.loss > 0.0 {
            write!(f, " loss={}", self.loss)?;
        }
        if self.jitter > 0.0 {
            write!(f, " jitter={}", self.jitter)?;
            if self.reorder {
                write!(f, " reorder")?;
            }
        }
        if self.queue == 1.0 { Ok(()) } else { write!(f, " queue={}", self.queue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_its_text_says() {
        let all = Path { loss: 0.5, jitter: 2.5, reorder: true, queue: 5.0, ..Path::new(10.0, 100.0) };
        assert_eq!(all.to_string(), "rate=10 rtt=100 loss=0.5 jitter=2.5 reorder queue=5");
        for p in [all, Path::new(2.0, 20.0), Path { jitter: 0.5, ..Path::new(10.0, 50.0) }] {
            assert_eq!(Path::parse(&p.to_string()), Some(p));
        }
        for bad in ["", "rate=10", "rate=x rtt=1", "rate=0 rtt=1", "rate=1 rtt=1 colour=2"] {
            assert_eq!(Path::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_queue_is_a_multiple_of_the_bandwidth_delay_product() {
        assert_eq!(Path { queue: 5.0, ..Path::new(5.0, 100.0) }.queue_packets(), 208);
        assert_eq!(Path::new(2.0, 20.0).queue_packets(), QUEUE_MIN);
        assert_eq!(Path::new(10.0, 800.0).round_trips(10_000_000), 10.0);
    }
}
