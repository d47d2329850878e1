//! Outcomes as text, so that they outlive the process that has learnt them.
//!
//! *Responsible for* the format, and for times: a process has an [`Instant`] of its own, and only
//! wall-clock time means the same to the next one. *Not responsible for* files, nor for what is
//! right only as long as something else is (how names are resolved): of that the caller gives a
//! number, its basis, and outcomes count only where it is the same.
//!
//! *Invariants*: text that is damaged, of another version or from the future changes nothing; what
//! is read contains nothing that a cache could not have learnt by now: nothing outlives its
//! lifetime, and nothing is of an isolated session; it displaces nothing that is known; and the
//! text is at most [`MAX_SAVED`] bytes long.
//!
//! The text is a line of a header, then for each rate of transfers a line `r`, then for each key,
//! that used last first, a line `k` with what follows from it: `o`, what worked, and `b`, each what
//! was no good. The last line is `end`, so that a text that was cut is recognised.

use super::{BAD_MEMORY, Bad, CacheKey, MAX_BAD, MAX_BAD_LIFETIME, Outcome, OutcomeCache, Slot};
use crate::{BadCause, MAX_RATES, Mark, PathId, Penalty, RATE_LIFETIME, Rate, RateKey, StackId};
use core::fmt::{self, Write as _};
use core::str::FromStr;
use core::time::Duration;
use neater_base::{Instant, WallTime};

/// How long the text of [`OutcomeCache::export`] is at most, in bytes; a longer one is not read.
pub const MAX_SAVED: usize = 1 << 20;

/// What the text begins with.
const MAGIC: &str = "neater-outcomes 1";
/// What a text of another version differs by: numbers of stacks and keys may mean something else
/// there.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What it ends with.
const END: &str = "end";
/// No line is longer, in bytes: the longest has eight words, an address with its zone among them.
const LONGEST_LINE: usize = 256;

/// In the order of their numbers in the text, which do not change.
const CAUSES: [BadCause; 7] = [
    BadCause::Failed,
    BadCause::Silent,
    BadCause::Stalled,
    BadCause::Died,
    BadCause::Unanswered,
    BadCause::Broken,
    BadCause::WantsOther,
];

/// Why saved outcomes cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedError {
    /// The text is longer than [`MAX_SAVED`].
    TooLong,
    /// The text is something else.
    NotOutcomes,
    /// Another version has written it.
    OtherVersion,
    /// It was written at a time that is still to come: a clock is or was wrong.
    FromTheFuture,
    /// A line of this number, from 1, is not as it was written, or is missing.
    Damaged(usize),
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "longer than {MAX_SAVED} bytes"),
            Self::NotOutcomes => f.write_str("these are no outcomes of races"),
            Self::OtherVersion => f.write_str("written by another version"),
            Self::FromTheFuture => f.write_str("written at a time that is still to come (look at the clock)"),
            Self::Damaged(line) => write!(f, "damaged at line {line}"),
        }
    }
}

impl core::error::Error for SavedError {}

/// The same moment on both time lines; of the wall clock in milliseconds.
#[derive(Clone, Copy)]
struct Clock {
    now: Instant,
    wall: u64,
}

impl Clock {
    fn new(now: Instant, wall: WallTime) -> Self {
        Self { now, wall: millis(wall.0) }
    }

    fn wall_of(self, at: Instant) -> u64 {
        if at >= self.now {
            self.wall.saturating_add(millis(at - self.now))
        } else {
            self.wall.saturating_sub(millis(self.now - at))
        }
    }

    fn instant_of(self, wall: u64) -> Instant {
        if wall >= self.wall {
            self.now + Duration::from_millis(wall - self.wall)
        } else {
            self.now - Duration::from_millis(self.wall - wall)
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// What is saved of one key.
struct Entry {
    key: CacheKey,
    failures: u32,
    last_failure: Instant,
    outcome: Option<Outcome>,
    bad: Vec<Bad>,
}

/// The content of a text.
#[derive(Default)]
struct Saved {
    rates: Vec<(RateKey, Rate)>,
    /// That which was used last first.
    entries: Vec<Entry>,
}

impl OutcomeCache {
    /// What is remembered, as text for [`OutcomeCache::import`]; `None` if nothing was learnt but
    /// what was imported. Of isolated sessions there is nothing in it, and what was used longest
    /// ago is left out where it would be longer than [`MAX_SAVED`].
    ///
    /// `now` and `wall` are the same moment. `basis` is a number for what the outcomes rest on
    /// beside their keys.
    #[must_use]
    pub fn export(&self, now: Instant, wall: WallTime, basis: u64) -> Option<String> {
        self.changed.then(|| {
            let clock = Clock::new(now, wall);
            let mut text = String::new();
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{MAGIC} {VERSION} {} {basis:x}", clock.wall);
            for (key, rate) in self.rates.iter(now) {
                let RateKey { network, host, stack } = key;
                let until = clock.wall_of(rate.until);
                let _ = writeln!(text, "r {network:x} {host:x} {} {} {until}", stack.0, rate.bytes_per_second);
            }
            let mut at = self.newest;
            while let Some(slot) = self.slots.get(at as usize) {
                let before = text.len();
                write_slot(&mut text, slot, clock);
                if text.len() + END.len() + 1 > MAX_SAVED {
                    text.truncate(before);
                    break;
                }
                at = slot.older;
            }
            text.push_str(END);
            text.push('\n');
            text
        })
    }

    /// Takes in what [`OutcomeCache::export`] has written, in this process or another one, under
    /// keys of which nothing is known here, and as far as there is room. What has expired by now is
    /// left out, and so is what has worked if `basis` is another number than it was then. `now` and
    /// `wall` are the same moment. Returns how many keys have come.
    ///
    /// # Errors
    /// The text cannot be used; nothing has changed.
    pub fn import(&mut self, now: Instant, wall: WallTime, basis: u64, text: &str) -> Result<usize, SavedError> {
        let clock = Clock::new(now, wall);
        let Saved { rates, entries } = read(text, clock, basis, self.lifetime)?;
        for (key, rate) in rates {
            if self.rates.get(now, &key).is_none_or(|known| known.until < rate.until) {
                self.rates.put(key, rate);
            }
        }
        let room = self.capacity.saturating_sub(self.slots.len());
        let unknown = |e: &Entry| !self.index.contains_key(&e.key);
        let entries: Vec<Entry> = entries.into_iter().filter(unknown).take(room).collect();
        let (changed, before) = (self.changed, self.slots.len());
        // What was used last is made last.
        for entry in entries.into_iter().rev() {
            let slot = self.slot(entry.key);
            slot.failures = entry.failures;
            slot.last_failure = entry.last_failure;
            slot.outcome = entry.outcome;
            slot.bad = entry.bad;
            let until = slot.outcome.and_then(|o| slot.bad_until(o.stack, o.addr));
            slot.tell_from = until.unwrap_or(Instant::ZERO);
        }
        self.changed = changed;
        Ok(self.slots.len() - before)
    }
}

fn write_slot(text: &mut String, slot: &Slot, clock: Clock) {
    let now = clock.now;
    let outcome = slot.outcome.filter(|o| now < o.expires);
    let mut bad = slot.bad.iter().filter(|b| now < b.mark.until + BAD_MEMORY).peekable();
    if slot.key.isolation != 0 || (outcome.is_none() && bad.peek().is_none()) {
        return;
    }
    let CacheKey { network, endpoint, request, .. } = slot.key;
    let last = clock.wall_of(slot.last_failure);
    let _ = writeln!(text, "k {network:x} {endpoint:x} {request:x} {} {last}", slot.failures);
    if let Some(o) = outcome {
        let (expires, rtt) = (clock.wall_of(o.expires), o.rtt.map_or(0, |rtt| rtt.as_nanos()));
        let _ = writeln!(text, "o {} {} {} {expires} {} {rtt}", o.stack.0, o.addr, o.path.0, o.failures);
    }
    for b in bad {
        let Penalty { stack, addr, cause, suspect_group, suspect_family } = b.mark.penalty;
        let cause = CAUSES.iter().position(|c| *c == cause).unwrap_or_default();
        let suspects = u8::from(suspect_group) | u8::from(suspect_family) << 1;
        let (since, until) = (clock.wall_of(b.mark.since), clock.wall_of(b.mark.until));
        let _ = writeln!(text, "b {} {addr} {cause} {suspects} {since} {until} {}", stack.0, b.again);
    }
}

/// The words of one line.
struct Words<'a>(core::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Option<Self> {
        (line.len() <= LONGEST_LINE).then(|| Self(line.split(' ')))
    }

    fn word(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn value<T: FromStr>(&mut self) -> Option<T> {
        self.word()?.parse().ok()
    }

    fn hex(&mut self) -> Option<u64> {
        u64::from_str_radix(self.word()?, 16).ok()
    }

    /// The value, if the line ends here.
    fn end<T>(mut self, value: T) -> Option<T> {
        self.word().is_none().then_some(value)
    }
}

/// The content of the text, without expired entries.
fn read(text: &str, clock: Clock, basis: u64, lifetime: Duration) -> Result<Saved, SavedError> {
    if text.len() > MAX_SAVED {
        return Err(SavedError::TooLong);
    }
    let mut lines = text.lines();
    let header = lines.next().and_then(|line| line.strip_prefix(MAGIC)?.strip_prefix(' '));
    let mut header = Words::of(header.ok_or(SavedError::NotOutcomes)?).ok_or(SavedError::NotOutcomes)?;
    if header.word() != Some(VERSION) {
        return Err(SavedError::OtherVersion);
    }
    let times = header.value::<u64>().zip(header.hex());
    let (saved, rests_on) = times.and_then(|both| header.end(both)).ok_or(SavedError::Damaged(1))?;
    if saved > clock.wall {
        return Err(SavedError::FromTheFuture);
    }
    let reader = Reader { clock, saved, lifetime, same_basis: rests_on == basis };
    let mut all = Saved::default();
    let mut number = 1;
    let mut ended = false;
    for line in lines {
        number += 1;
        let done = match line {
            _ if ended => None,
            END => {
                ended = true;
                Some(())
            }
            line => reader.line(line, &mut all),
        };
        done.ok_or(SavedError::Damaged(number))?;
    }
    if !ended {
        return Err(SavedError::Damaged(number + 1));
    }
    all.entries.retain(|e| e.outcome.is_some() || !e.bad.is_empty());
    Ok(all)
}

/// What the lines of one text are judged by.
struct Reader {
    clock: Clock,
    saved: u64,
    lifetime: Duration,
    same_basis: bool,
}

impl Reader {
    /// Takes in one line; `None` if it is damaged.
    fn line(&self, line: &str, all: &mut Saved) -> Option<()> {
        let mut words = Words::of(line)?;
        let entries = &mut all.entries;
        match words.word()? {
            "r" => {
                let (network, host, stack) = (words.hex()?, words.hex()?, StackId(words.value()?));
                let (bytes_per_second, until) = (words.value()?, words.value::<u64>()?);
                let key = words.end(RateKey { network, host, stack })?;
                if all.rates.len() < MAX_RATES && self.is_within(until, self.saved, RATE_LIFETIME) {
                    all.rates.push((key, Rate { bytes_per_second, until: self.clock.instant_of(until) }));
                }
            }
            "k" => {
                let (network, endpoint, request) = (words.hex()?, words.hex()?, words.hex()?);
                let (failures, last) = (words.value()?, words.value::<u64>()?);
                let key = words.end(CacheKey { network, endpoint, request, isolation: 0 })?;
                let last_failure = self.clock.instant_of(last.min(self.saved));
                entries.push(Entry { key, failures, last_failure, outcome: None, bad: Vec::new() });
            }
            "o" => {
                let entry = entries.last_mut()?;
                let (stack, addr, path) = (StackId(words.value()?), words.value()?, PathId(words.value()?));
                let (expires, failures, rtt) = (words.value::<u64>()?, words.value()?, words.value::<u64>()?);
                let rtt = words.end((rtt > 0).then(|| Duration::from_nanos(rtt)))?;
                let counts = self.same_basis && self.is_within(expires, self.saved, self.lifetime);
                let expires = self.clock.instant_of(expires);
                entry.outcome = counts.then_some(Outcome { stack, addr, path, expires, failures, rtt });
            }
            "b" => {
                let entry = entries.last_mut()?;
                let (stack, addr) = (StackId(words.value()?), words.value()?);
                let cause = *CAUSES.get(words.value::<usize>()?)?;
                let suspects = words.value::<u8>().filter(|s| *s < 4)?;
                let (since, until) = (words.value::<u64>()?, words.value::<u64>()?);
                let again = words.value()?;
                let again = words.end(again)?;
                let (suspect_group, suspect_family) = (suspects & 1 != 0, suspects & 2 != 0);
                let penalty = Penalty { stack, addr, cause, suspect_group, suspect_family };
                let remembered = until.saturating_add(millis(BAD_MEMORY));
                let counts = since <= self.saved
                    && until <= since.saturating_add(millis(MAX_BAD_LIFETIME))
                    && remembered > self.clock.wall;
                if counts && entry.bad.len() < MAX_BAD && !entry.bad.iter().any(|b| b.is_about(stack, addr)) {
                    let (since, until) = (self.clock.instant_of(since), self.clock.instant_of(until));
                    entry.bad.push(Bad { mark: Mark { penalty, since, until }, again });
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether it is not yet over what may last this long from then.
    fn is_within(&self, end: u64, from: u64, lifetime: Duration) -> bool {
        end > self.clock.wall && end <= from.saturating_add(millis(lifetime))
    }
}

#[cfg(test)]
mod tests;
