//! CoDel (RFC 8289): drops at the head when packets have waited too long for too long.

use super::{Fifo, Waiting};
use core::time::Duration;
use neater_base::Instant;

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// How long packets may wait: 5 ms (RFC 8289 section 4.4).
    pub target: Duration,
    /// For how long they must have waited longer before one is dropped: 100 ms, a round trip of most flows (section 4.3).
    pub interval: Duration,
    /// Marks packets of flows that understand it instead of dropping them.
    pub ecn: bool,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false }
    }
}

/// The state of one queue, with the names of RFC 8289 section 5.
#[derive(Debug, Default)]
pub(super) struct CodelState {
    /// When packets will have waited too long for an interval; `None` while they do not.
    first_above_time: Option<Instant>,
    drop_next: Instant,
    /// Packets dropped (or marked) since dropping began.
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl CodelState {
    /// When the next packet is dropped: sooner each time, by the square root of the number of drops (section 5.3).
    fn control_law(config: &Codel, from: Instant, count: u64) -> Instant {
        // Both operations are exact to the last bit by IEEE 754, so every machine drops the same packets.
        let nanos = config.interval.as_nanos() as f64 / (count.max(1) as f64).sqrt();
        from.after_nanos(nanos as u64)
    }

    /// Takes a packet out, and says whether it may be dropped: `dodequeue` of section 5.5.
    fn take<P>(&mut self, config: &Codel, queue: &mut Fifo<P>, now: Instant, mtu: u32) -> (Option<Waiting<P>>, bool) {
        let Some(packet) = queue.pop() else {
            self.first_above_time = None;
            return (None, false);
        };
        let mut ok_to_drop = false;
        // With less than a full packet left there is no queue to speak of.
        if now - packet.since < config.target || queue.bytes <= u64::from(mtu) {
            self.first_above_time = None;
        } else {
            match self.first_above_time {
                None => self.first_above_time = Some(now + config.interval),
                Some(at) => ok_to_drop = now >= at,
            }
        }
        (Some(packet), ok_to_drop)
    }

    /// Takes out the packet to send: `dequeue` of section 5.4.
    pub(super) fn pop<P>(
        &mut self,
        config: &Codel,
        queue: &mut Fifo<P>,
        now: Instant,
        mtu: u32,
        dropped: &mut Vec<Waiting<P>>,
    ) -> Option<Waiting<P>> {
        let (mut packet, mut ok_to_drop) = self.take(config, queue, now, mtu);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            // Bounded: every turn takes a packet out of the queue or ends the loop.
            while self.dropping && now >= self.drop_next {
                let Some(mut victim) = packet.take() else { break };
                self.count += 1;
                if victim.mark(config.ecn) {
                    self.drop_next = Self::control_law(config, self.drop_next, self.count);
                    packet = Some(victim);
                    break;
                }
                dropped.push(victim);
                (packet, ok_to_drop) = self.take(config, queue, now, mtu);
                if ok_to_drop {
                    self.drop_next = Self::control_law(config, self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop && let Some(mut victim) = packet.take() {
            if victim.mark(config.ecn) {
                packet = Some(victim);
            } else {
                dropped.push(victim);
                packet = self.take(config, queue, now, mtu).0;
            }
            self.dropping = true;
            // Soon after the last time the rate that controlled the queue then is a good one to begin with.
            let delta = self.count.saturating_sub(self.last_count);
            let recent = now - self.drop_next < 16 * config.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = Self::control_law(config, now, self.count);
            self.last_count = self.count;
        }
        packet
    }
}
