//! Proportional rate reduction (RFC 6937, revised by RFC 9937): how much may be sent during a
//! recovery.
//!
//! *Invariant*: at the end of a recovery in which the window was always used, what is in flight is
//! the threshold, never more.

/// The bookkeeping of one recovery. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prr {
    /// `RecoverFS`: what was in flight when it began.
    start: u64,
    /// `prr_delivered`: what has been delivered since.
    delivered: u64,
    /// `prr_out`: what has been sent since.
    out: u64,
}

/// An acknowledgment during a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrrAck {
    /// Bytes newly delivered.
    pub delivered: u64,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// The slow start threshold.
    pub ssthresh: u64,
    /// The acknowledgment advances in order and reports no new loss: `SafeACK`.
    pub safe: bool,
    /// The segment size.
    pub mss: u64,
}

impl Prr {
    /// Begins a recovery with `start` bytes in flight.
    #[must_use]
    pub const fn new(start: u64) -> Self {
        Self { start, delivered: 0, out: 0 }
    }

    /// Something was sent, for the first time or again.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }

    /// How much may be sent now. The quota is rounded up to whole segments, as RFC 6937 section 3
    /// rounds up.
    pub fn on_ack(&mut self, ack: &PrrAck) -> u64 {
        let first = if self.out == 0 { ack.mss } else { 0 };
        if ack.delivered == 0 {
            return first;
        }
        self.delivered += ack.delivered;
        let quota = if ack.in_flight > ack.ssthresh {
            let share = u128::from(self.delivered) * u128::from(ack.ssthresh);
            let share = share.div_ceil(u128::from(self.start.max(1))).min(u128::from(u64::MAX / 2)) as u64;
            (share.div_ceil(ack.mss) * ack.mss).saturating_sub(self.out)
        } else {
            let mut most = self.delivered.saturating_sub(self.out).max(ack.delivered);
            if ack.safe {
                most += ack.mss;
            }
            most.min(ack.ssthresh - ack.in_flight)
        };
        quota.max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Twenty segments in flight, `lost` of them; the rest is acknowledged one by one and
    /// everything allowed is sent.
    fn recover(lost: u64, ssthresh: u64) -> (Vec<u64>, u64) {
        let mut prr = Prr::new(20 * MSS);
        let mut in_flight = (20 - lost) * MSS;
        let mut sent = Vec::new();
        for _ in 0..20 - lost {
            in_flight -= MSS;
            let quota = prr.on_ack(&PrrAck { delivered: MSS, in_flight, ssthresh, safe: false, mss: MSS });
            let n = quota / MSS;
            prr.on_sent(n * MSS);
            in_flight += n * MSS;
            sent.push(n);
        }
        (sent, in_flight)
    }

    #[test]
    fn one_loss_with_half_the_window_sends_one_for_every_two() {
        let (sent, flight) = recover(1, 10 * MSS);
        assert_eq!(flight, 10 * MSS, "{sent:?}");
        assert_eq!(sent.iter().sum::<u64>(), 10);
        assert_eq!(sent[0], 1, "the fast retransmit is never held back");
        assert!(sent.windows(3).all(|w| (1..=2).contains(&w.iter().sum::<u64>())), "evenly spread: {sent:?}");
    }

    #[test]
    fn cubic_keeps_seven_tenths() {
        let (sent, flight) = recover(1, 14 * MSS);
        assert_eq!(flight, 14 * MSS, "{sent:?}");
    }

    #[test]
    fn heavy_loss_sends_what_arrives_and_no_more() {
        // Twelve of twenty lost: less is in flight than the threshold. Without safe acknowledgments
        // this is the conservative bound: one for one.
        let (sent, flight) = recover(12, 10 * MSS);
        assert!(sent.iter().all(|n| *n == 1), "{sent:?}");
        assert_eq!(flight, 8 * MSS);
    }

    #[test]
    fn safe_acknowledgments_grow_back_to_the_threshold_like_slow_start() {
        let mut prr = Prr::new(20 * MSS);
        let ack = PrrAck { delivered: MSS, in_flight: 3 * MSS, ssthresh: 10 * MSS, safe: true, mss: MSS };
        assert_eq!(prr.on_ack(&ack), 2 * MSS);
        prr.on_sent(2 * MSS);
        let near = PrrAck { in_flight: 9 * MSS + 400, ..ack };
        assert_eq!(prr.on_ack(&near), 600, "never beyond the threshold");
    }
}
