//! Data that only matter by their number, for traffic without programs.

use super::Conn;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::ErrorKind;

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl Conn {
    /// Buffers up to `len` zeros and returns how many.
    pub(crate) fn write_zeros(&mut self, now: Instant, len: u64) -> Result<u64, ErrorKind> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROS.len() as u64) as usize;
            match self.write(now, [&ZEROS[..part]]) {
                Ok(n) => done += n as u64,
                Err(ErrorKind::WouldBlock) => break,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Reads everything and throws it away; returns how many bytes it was, 0 at the end.
    pub(crate) fn read_away(&mut self, now: Instant) -> Result<u64, ErrorKind> {
        let mut buf = [0; 16 * 1024];
        let mut all = 0;
        loop {
            match self.read(now, &mut buf) {
                Ok(0) => return Ok(all),
                Ok(n) => all += n as u64,
                Err(_) if all > 0 => return Ok(all),
                Err(e) => return Err(e),
            }
        }
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }
}
