//! Delivery opportunities recorded on a real link, in the format of mahimahi.
//!
//! Netravali et al. 2015, "Mahimahi: accurate record-and-replay for HTTP", section 4: a text file with one line per
//! opportunity, each the time in whole milliseconds at which one packet of full size may leave; the file begins again after
//! its last time. The bytes of a packet may use several opportunities, several small packets may share one, and what is not
//! used when its time comes is lost. Mahimahi's packet of full size has 1,504 bytes because it counts four bytes of TUN
//! header; here an opportunity is 1,500 bytes of IP packets.

use core::fmt;
use core::time::Duration;

/// The most opportunities of a trace: an hour at 100 Mbit/s has 30 million of them, ten minutes five.
pub const MAX_OPPORTUNITIES: usize = 32 << 20;
/// Bytes of one opportunity.
const OPPORTUNITY: u32 = 1500;
const MILLISECOND: u64 = 1_000_000;

/// A trace of delivery opportunities.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryTrace {
    /// Milliseconds from the origin, ascending; equal times are several opportunities.
    times: Vec<u32>,
    /// Milliseconds until it begins again: the last time.
    period: u32,
}

/// What is wrong with the text of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1; 0 is the file as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub what: TraceErrorKind,
}

/// Kinds of [`TraceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// Not a whole number of milliseconds, at most 4,294,967,295.
    NotANumber,
    /// Earlier than the line before.
    Descending,
    /// No opportunity at all, or all of them at 0: the trace would take no time.
    NoTime,
    /// More than [`MAX_OPPORTUNITIES`].
    TooMany,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match self.what {
            TraceErrorKind::NotANumber => f.write_str("expected a time in whole milliseconds, at most 4294967295"),
            TraceErrorKind::Descending => f.write_str("the time is earlier than in the line before: sort the file"),
            TraceErrorKind::NoTime => f.write_str("the trace takes no time: its last line must be greater than 0"),
            TraceErrorKind::TooMany => write!(f, "more than {MAX_OPPORTUNITIES} lines: cut the file"),
        }
    }
}

impl core::error::Error for TraceError {}

impl fmt::Debug for DeliveryTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeliveryTrace({} opportunities in {} ms)", self.times.len(), self.period)
    }
}

impl DeliveryTrace {
    /// Reads mahimahi's format: one time in milliseconds per line, ascending. Blank lines and white space around a number
    /// are allowed.
    ///
    /// # Errors
    /// The first line that is wrong, and how.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut times: Vec<u32> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let error = |what| TraceError { line: i + 1, what };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            // `parse` alone would take a sign.
            let digits = line.bytes().all(|b| b.is_ascii_digit());
            let time = line.parse().ok().filter(|_| digits).ok_or(error(TraceErrorKind::NotANumber))?;
            if times.last().is_some_and(|last| time < *last) {
                return Err(error(TraceErrorKind::Descending));
            }
            if times.len() == MAX_OPPORTUNITIES {
                return Err(error(TraceErrorKind::TooMany));
            }
            times.push(time);
        }
        Self::from_millis(times)
    }

    /// A trace with opportunities at these times, in milliseconds, ascending.
    ///
    /// # Errors
    /// When times descend, there are too many, or the last is 0. The line is that of [`DeliveryTrace::to_text`].
    pub fn from_millis(times: Vec<u32>) -> Result<Self, TraceError> {
        let error = |line, what| Err(TraceError { line, what });
        if times.len() > MAX_OPPORTUNITIES {
            return error(0, TraceErrorKind::TooMany);
        }
        if let Some(i) = times.windows(2).position(|w| w[1] < w[0]) {
            return error(i + 2, TraceErrorKind::Descending);
        }
        match times.last() {
            Some(&period) if period > 0 => Ok(Self { times, period }),
            _ => error(0, TraceErrorKind::NoTime),
        }
    }

    /// The same in mahimahi's format.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.times.iter().map(|t| format!("{t}\n")).collect()
    }

    /// How long it is until it begins again.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.period))
    }

    /// The mean rate in bits per second, if every opportunity is used.
    #[must_use]
    pub fn mean_rate(&self) -> f64 {
        self.times.len() as f64 * f64::from(OPPORTUNITY) * 8.0 / self.period().as_secs_f64()
    }

    /// Bytes of one opportunity.
    pub(crate) const fn bytes(&self) -> u32 {
        OPPORTUNITY
    }

    /// When the opportunity with this number is, counted through all repetitions, in nanoseconds after the origin.
    pub(crate) fn time(&self, number: u64) -> u64 {
        let n = self.times.len() as u64;
        let time = u64::from(self.times[(number % n) as usize]);
        (number / n).saturating_mul(u64::from(self.period)).saturating_add(time).saturating_mul(MILLISECOND)
    }

    /// The number of the first opportunity that is not before `offset`, in nanoseconds after the origin.
    pub(crate) fn seek(&self, offset: u64) -> u64 {
        let (millis, period) = (offset.div_ceil(MILLISECOND), u64::from(self.period));
        // At the end of a repetition its last opportunities come before the first of the next one.
        let round = millis.saturating_sub(1) / period;
        let inner = millis - round * period;
        round * self.times.len() as u64 + self.times.partition_point(|t| u64::from(*t) < inner) as u64
    }
}
