//! Data that only matter by their number, for traffic without programs.

use super::Conn;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::ErrorKind;

impl Conn {
    /// Reads everything and throws it away; returns how many bytes it was, 0 at the end.
    pub(crate) fn read_away(&mut self, now: Instant) -> Result<u64, ErrorKind> {
        self.discard(now, usize::MAX).map(|n| n as u64)
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }
}
