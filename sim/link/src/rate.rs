//! How fast a link sends: fixed, by a schedule, or by a recorded trace.

use crate::delivery::DeliveryTrace;
use core::time::Duration;
use neater_base::Instant;
use std::sync::Arc;

/// How fast a link sends. Bytes of whole IP packets count, headers included.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rate {
    /// Every packet leaves at once.
    #[default]
    Unlimited,
    /// Bits per second. 0 is the same as a link that is down.
    Fixed(u64),
    /// A rate that changes at given times, counted from the origin of the link.
    Steps(Arc<RateSteps>),
    /// Recorded delivery opportunities, counted from the origin of the link.
    Trace(Arc<DeliveryTrace>),
}

impl From<u64> for Rate {
    fn from(bits_per_second: u64) -> Self {
        Self::Fixed(bits_per_second)
    }
}

impl From<Option<u64>> for Rate {
    fn from(bits_per_second: Option<u64>) -> Self {
        bits_per_second.map_or(Self::Unlimited, Self::Fixed)
    }
}

impl Rate {
    /// Bits per second in the mean: of a whole period where there is one, of the last step where it goes on for ever;
    /// `None` if there is no limit.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate as f64),
            Self::Steps(steps) => Some(match steps.period {
                Some(period) => steps.per_period as f64 / period as f64,
                None => steps.steps.last().map_or(0.0, |s| s.1 as f64),
            }),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// The most steps of a [`RateSteps`].
pub const MAX_RATE_STEPS: usize = 1 << 20;

/// A rate that changes at given times. At rate 0 packets wait; they are not lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSteps {
    /// From when, in nanoseconds after the origin, and bits per second. The first is at 0.
    steps: Vec<(u64, u64)>,
    /// After how many nanoseconds it begins again.
    period: Option<u64>,
    /// What one period carries, in bits times nanoseconds per second.
    per_period: u128,
}

/// What is wrong with the steps of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateStepsError {
    /// There is no step, or there are more than [`MAX_RATE_STEPS`].
    Count(usize),
    /// The first step is not at 0.
    LateStart,
    /// The step with this index (from 0) is not later than the one before it.
    OutOfOrder(usize),
    /// The period is not longer than the time of the last step.
    ShortPeriod,
    /// Without repetition the last rate must not be 0, and with it not all of them: packets would wait for ever.
    EndsAtZero,
}

impl core::fmt::Display for RateStepsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count(n) => write!(f, "{n} steps of rate: give 1 to {MAX_RATE_STEPS}"),
            Self::LateStart => f.write_str("the first step of a rate must be at time 0"),
            Self::OutOfOrder(i) => write!(f, "step {} of the rate is not later than the one before it", i + 1),
            Self::ShortPeriod => f.write_str("the period of a rate must be longer than the time of its last step"),
            Self::EndsAtZero => {
                f.write_str("the rate ends at 0, and packets would wait for ever: end with a rate, or repeat")
            }
        }
    }
}

impl core::error::Error for RateStepsError {}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl RateSteps {
    /// A rate that is `steps[i].1` bits per second from `steps[i].0` on, and begins again after `period` if there is one.
    ///
    /// # Errors
    /// When the times do not ascend from 0, or packets could wait for ever.
    pub fn new(
        steps: impl IntoIterator<Item = (Duration, u64)>,
        period: Option<Duration>,
    ) -> Result<Self, RateStepsError> {
        let steps: Vec<_> = steps.into_iter().take(MAX_RATE_STEPS + 1).map(|(at, rate)| (nanos(at), rate)).collect();
        let Some(&(last_at, last_rate)) = steps.last().filter(|_| steps.len() <= MAX_RATE_STEPS) else {
            return Err(RateStepsError::Count(steps.len()));
        };
        if steps[0].0 != 0 {
            return Err(RateStepsError::LateStart);
        }
        if let Some(i) = steps.windows(2).position(|w| w[1].0 <= w[0].0) {
            return Err(RateStepsError::OutOfOrder(i + 1));
        }
        let period = period.map(nanos);
        if period.is_some_and(|p| p <= last_at) {
            return Err(RateStepsError::ShortPeriod);
        }
        let ends = steps.iter().skip(1).map(|s| s.0).chain(period);
        let per_period = steps.iter().zip(ends).map(|(s, end)| u128::from(s.1) * u128::from(end - s.0)).sum();
        if (period.is_none() && last_rate == 0) || (period.is_some() && per_period == 0) {
            return Err(RateStepsError::EndsAtZero);
        }
        Ok(Self { steps, period, per_period })
    }

    /// The steps: from when after the origin, and bits per second.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.steps.iter().map(|s| (Duration::from_nanos(s.0), s.1))
    }

    /// After how long it begins again.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.period.map(Duration::from_nanos)
    }

    /// The rate at a time after the origin, in bits per second.
    #[must_use]
    pub fn at(&self, after: Duration) -> u64 {
        self.steps[self.find(nanos(after)).0].1
    }

    /// The step that holds at `offset`, and how many nanoseconds it goes on.
    fn find(&self, offset: u64) -> (usize, u64) {
        let inner = self.period.map_or(offset, |p| offset % p);
        let index = self.steps.partition_point(|s| s.0 <= inner).saturating_sub(1);
        let end = self.steps.get(index + 1).map(|s| s.0).or(self.period);
        (index, end.map_or(u64::MAX, |end| end - inner))
    }

    /// The first time from `offset` on at which the rate is not 0.
    fn starts(&self, mut offset: u64) -> u64 {
        // Bounded: after all steps of one period, and those of the next up to where it began, one of them was not 0.
        for _ in 0..=2 * self.steps.len() {
            let (index, left) = self.find(offset);
            if self.steps[index].1 > 0 {
                return offset;
            }
            offset = offset.saturating_add(left);
        }
        u64::MAX
    }

    /// When `work` (bits times nanoseconds per second) that begins at `offset` is done, and what is left of the last
    /// nanosecond.
    fn finish(&self, offset: u64, work: u128) -> (u64, u128) {
        let (mut offset, mut work) = (offset, work);
        if let Some(period) = self.period
            && work > self.per_period
        {
            // Whole periods at once: there may be very many.
            let whole = (work - 1) / self.per_period;
            work -= whole * self.per_period;
            offset = offset.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX).saturating_mul(period));
        }
        // Bounded: what is left takes at most one period, which may touch every step and one of them twice.
        for _ in 0..=2 * self.steps.len() {
            let (index, left) = self.find(offset);
            let rate = u128::from(self.steps[index].1);
            if rate > 0 && work <= rate * u128::from(left) {
                let took = work.div_ceil(rate);
                return (offset.saturating_add(u64::try_from(took).unwrap_or(u64::MAX)), took * rate - work);
            }
            work -= rate * u128::from(left);
            offset = offset.saturating_add(left);
        }
        (u64::MAX, 0)
    }
}

/// The sender of a link: when it may begin with a packet, and when it is done.
///
/// Times are exact to a nanosecond and do not drift: what a packet leaves of its last nanosecond, the next one uses if it
/// follows immediately.
#[derive(Clone, Debug)]
pub(crate) struct Transmitter {
    /// Where schedules and traces begin.
    pub(crate) origin: Instant,
    /// When the last bit of the last packet leaves.
    pub(crate) busy_until: Instant,
    /// What was left of the nanosecond before `busy_until`, in bits times nanoseconds per second.
    spare: u128,
    /// The delivery opportunity in use, counted from the origin, and how many of its bytes are left.
    opportunity: Option<(u64, u32)>,
}

impl Transmitter {
    pub(crate) fn new(origin: Instant) -> Self {
        Self { origin, busy_until: Instant::ZERO, spare: 0, opportunity: None }
    }

    /// Forgets where in a schedule or trace it was: the rate has changed.
    pub(crate) fn restart(&mut self, origin: Instant) {
        *self = Self { busy_until: self.busy_until, ..Self::new(origin) };
    }

    /// When a packet that is there from `from` on may begin to leave.
    #[inline]
    pub(crate) fn start(&self, rate: &Rate, from: Instant) -> Instant {
        let from = from.max(self.busy_until);
        match rate {
            Rate::Unlimited => from,
            Rate::Fixed(0) => Instant::FAR_FUTURE,
            Rate::Fixed(_) => from,
            Rate::Steps(steps) => {
                let from = from.max(self.origin);
                self.origin.after_nanos(steps.starts((from - self.origin).as_nanos() as u64))
            }
            Rate::Trace(trace) => {
                let next = self.next_opportunity(trace, from);
                self.origin.after_nanos(trace.time(next.0))
            }
        }
    }

    /// Sends `len` bytes from `start` on, which is what [`Transmitter::start`] has said. Returns when the last bit leaves.
    #[inline]
    pub(crate) fn send(&mut self, rate: &Rate, start: Instant, len: u32) -> Instant {
        if start != self.busy_until {
            self.spare = 0;
        }
        self.busy_until = match rate {
            Rate::Unlimited => start,
            Rate::Fixed(rate) => {
                let rate = (*rate).max(1);
                // 2³¹ bytes are 1.7e19 bit nanoseconds per second: 64 bits hold them, and divide much faster than 128.
                let work = (u64::from(len.min(1 << 31)) * 8_000_000_000).saturating_sub(self.spare as u64);
                let took = work.div_ceil(rate);
                self.spare = u128::from(took) * u128::from(rate) - u128::from(work);
                start.after_nanos(took)
            }
            Rate::Steps(steps) => {
                let work = (u128::from(len) * 8_000_000_000).saturating_sub(self.spare);
                let (end, spare) = steps.finish((start - self.origin).as_nanos() as u64, work);
                self.spare = spare;
                self.origin.after_nanos(end)
            }
            Rate::Trace(trace) => {
                let (first, room) = self.next_opportunity(trace, start);
                let more = len.saturating_sub(room);
                let (last, left) = if more == 0 {
                    (first, room - len)
                } else {
                    let extra = more.div_ceil(trace.bytes());
                    (first + u64::from(extra), (u64::from(extra) * u64::from(trace.bytes()) - u64::from(more)) as u32)
                };
                self.opportunity = Some((last, left));
                self.origin.after_nanos(trace.time(last))
            }
        };
        self.busy_until
    }

    /// The first opportunity with room from `from` on: its number and its room.
    fn next_opportunity(&self, trace: &DeliveryTrace, from: Instant) -> (u64, u32) {
        let offset = (from - self.origin).as_nanos() as u64;
        let whole = trace.bytes();
        match self.opportunity {
            Some((number, left)) if left > 0 && trace.time(number) >= offset => (number, left),
            Some((number, _)) if trace.time(number + 1) >= offset => (number + 1, whole),
            Some((number, _)) => (trace.seek(offset).max(number + 1), whole),
            None => (trace.seek(offset), whole),
        }
    }
}

#[cfg(test)]
mod tests;
