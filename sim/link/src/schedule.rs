//! Changes at given times.
//!
//! *Responsible for* the times, once or again and again. *Not responsible for* what the changes do: [`Change`] is what a
//! link understands; a simulator or a lab may schedule changes of its own.

use crate::config::{Discipline, Filter, LinkConfig, Overtaking, QueueLimit};
use crate::rate::Rate;
use crate::wire::{Jitter, Loss};
use core::fmt;
use core::time::Duration;
use neater_base::Instant;

/// The most changes of a [`Schedule`].
pub const MAX_CHANGES: usize = 1 << 20;

/// Changes at given times after an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule<C> {
    changes: Vec<(Duration, C)>,
    period: Option<Duration>,
}

/// What is wrong with a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// More than [`MAX_CHANGES`].
    TooMany,
    /// The change with this index (from 0) is earlier than the one before it.
    OutOfOrder(usize),
    /// The period is zero, or shorter than the time of the last change.
    ShortPeriod,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a schedule has at most {MAX_CHANGES} changes"),
            Self::OutOfOrder(i) => write!(f, "change {} of the schedule is earlier than the one before it", i + 1),
            Self::ShortPeriod => {
                f.write_str("the period of a schedule must be over zero and not end before its last change")
            }
        }
    }
}

impl core::error::Error for ScheduleError {}

impl<C> Schedule<C> {
    /// Changes at these times after the origin, ascending, and all of them again after each `period` if there is one.
    ///
    /// # Errors
    /// When times descend, or the period is too short.
    pub fn new(changes: Vec<(Duration, C)>, period: Option<Duration>) -> Result<Self, ScheduleError> {
        if changes.len() > MAX_CHANGES {
            return Err(ScheduleError::TooMany);
        }
        if let Some(i) = changes.windows(2).position(|w| w[1].0 < w[0].0) {
            return Err(ScheduleError::OutOfOrder(i + 1));
        }
        let last = changes.last().map_or(Duration::ZERO, |c| c.0);
        if period.is_some_and(|p| p.is_zero() || p < last) {
            return Err(ScheduleError::ShortPeriod);
        }
        Ok(Self { changes, period })
    }

    /// The changes, and when after the origin.
    #[must_use]
    pub fn changes(&self) -> &[(Duration, C)] {
        &self.changes
    }

    /// After how long it begins again.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.period
    }
}

/// A schedule and how far it is.
#[derive(Clone, Debug)]
pub struct Timeline<C> {
    schedule: Schedule<C>,
    /// When this round began.
    round: Instant,
    next: usize,
}

impl<C> Timeline<C> {
    /// A schedule that begins at `origin`.
    #[must_use]
    pub fn new(schedule: Schedule<C>, origin: Instant) -> Self {
        Self { schedule, round: origin, next: 0 }
    }

    /// When the next change is.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.schedule.changes.get(self.next).map(|c| self.round + c.0).filter(|at| *at < Instant::FAR_FUTURE)
    }

    /// The next change if it is due, and when it was.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, &C)> {
        let at = self.next_timeout().filter(|at| *at <= now)?;
        let index = self.next;
        self.next += 1;
        if let (true, Some(period)) = (self.next == self.schedule.changes.len(), self.schedule.period) {
            (self.round, self.next) = (self.round + period, 0);
        }
        Some((at, &self.schedule.changes[index].1))
    }
}

/// One change of a link.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The cable is mended.
    Up,
    /// The cable is cut.
    Down,
    /// Another rate. A schedule or trace in it begins with the change.
    Rate(Rate),
    /// Another propagation delay.
    Delay(Duration),
    /// Another jitter.
    Jitter(Jitter),
    /// Another loss model. Times in it count from the change.
    Loss(Loss),
    /// Another probability that packets arrive twice.
    Duplicate(f64),
    /// Another probability that a bit flips.
    Corrupt(f64),
    /// Other packets that overtake.
    Overtaking(Option<Overtaking>),
    /// Another limit of the queue.
    Queue(QueueLimit),
    /// Another discipline of the queue.
    Discipline(Discipline),
    /// Another MTU, in bytes.
    Mtu(u32),
    /// Another firewall.
    Filters(Vec<Filter>),
    /// Another configuration as a whole.
    All(Box<LinkConfig>),
}

impl Change {
    /// Makes the change.
    pub fn apply(&self, config: &mut LinkConfig) {
        match self {
            Self::Up => config.down = false,
            Self::Down => config.down = true,
            Self::Rate(rate) => config.rate = rate.clone(),
            Self::Delay(delay) => config.delay = *delay,
            Self::Jitter(jitter) => config.jitter = jitter.clone(),
            Self::Loss(loss) => config.loss = loss.clone(),
            Self::Duplicate(p) => config.duplicate = *p,
            Self::Corrupt(p) => config.corrupt = *p,
            Self::Overtaking(overtaking) => config.overtaking = *overtaking,
            Self::Queue(limit) => config.queue = *limit,
            Self::Discipline(discipline) => config.discipline = *discipline,
            Self::Mtu(mtu) => config.mtu = *mtu,
            Self::Filters(filters) => config.filters.clone_from(filters),
            Self::All(all) => config.clone_from(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn changes_come_in_time_again_and_again() {
        let at = |ms| Instant::ZERO + MS * ms;
        let schedule = Schedule::new(vec![(MS, 'a'), (MS * 3, 'b'), (MS * 3, 'c')], Some(MS * 3)).unwrap();
        let mut timeline = Timeline::new(schedule, at(10));
        assert_eq!(timeline.next_timeout(), Some(at(11)));
        assert_eq!(timeline.pop_due(at(10)), None);
        let mut got = Vec::new();
        while let Some((when, change)) = timeline.pop_due(at(17)) {
            got.push((when, *change));
        }
        assert_eq!(
            got,
            [(at(11), 'a'), (at(13), 'b'), (at(13), 'c'), (at(14), 'a'), (at(16), 'b'), (at(16), 'c'), (at(17), 'a')]
        );
        let mut once = Timeline::new(Schedule::new(vec![(MS, 'a')], None).unwrap(), at(0));
        assert_eq!(once.pop_due(at(5)), Some((at(1), &'a')));
        assert_eq!((once.next_timeout(), once.pop_due(at(9))), (None, None));
    }

    #[test]
    fn impossible_schedules_are_refused() {
        let new = |changes: &[Duration], period| Schedule::new(changes.iter().map(|d| (*d, ())).collect(), period);
        assert_eq!(new(&[MS * 2, MS], None), Err(ScheduleError::OutOfOrder(1)));
        assert_eq!(new(&[MS * 2], Some(MS)), Err(ScheduleError::ShortPeriod));
        assert_eq!(new(&[Duration::ZERO], Some(Duration::ZERO)), Err(ScheduleError::ShortPeriod));
        assert!(new(&[], Some(MS)).is_ok_and(|s| Timeline::new(s, Instant::ZERO).next_timeout().is_none()));
    }
}
