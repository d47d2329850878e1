//! How establishment went, or would go: candidates, steps, and what was ruled out.

use crate::border::{
    Failure, Versioned, c_text, check_out, fixed_text, give_back, guard, guard_number, guard_or, object, put,
    write_sized,
};
use crate::status::{neater_status, stack_number};
use core::time::Duration;
use neater::{CandidateOutcome, EstablishmentError, Fate, Plan, TimelineEntry};
use std::ffi::{CString, c_char};

/// How establishment went: its candidates with the fate of each, its steps, and what was ruled out
/// before it began.
#[derive(Debug)]
pub struct neater_race {
    candidates: Vec<Candidate>,
    steps: Vec<(Duration, CString)>,
    excluded: Vec<CString>,
    resolution: Vec<CString>,
}

#[derive(Debug)]
struct Candidate {
    stack: u32,
    fate: neater_fate,
    remote: String,
    encapsulation_port: u16,
    started: Option<Duration>,
    reachable: Option<Duration>,
    ended: Option<Duration>,
    reason: Option<CString>,
    doubt: Option<CString>,
}

/// What became of a candidate.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_fate {
    /// It was not needed, or is only planned.
    NEATER_FATE_NOT_STARTED = 0,
    /// It was still being tried when the race ended.
    NEATER_FATE_RUNNING = 1,
    /// It carries the connection.
    NEATER_FATE_WON = 2,
    /// It was withdrawn because another one won.
    NEATER_FATE_WITHDRAWN = 3,
    /// It failed; `reason` has why.
    NEATER_FATE_FAILED = 4,
}

/// A candidate of a race. `size` is set by the program to `sizeof(neater_candidate)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_candidate {
    /// `sizeof(neater_candidate)`.
    pub size: usize,
    /// The protocol: a `neater_stack`.
    pub stack: u32,
    /// A `neater_fate`.
    pub fate: u32,
    /// When it was started, in microseconds from the call that began the race; -1 if it never was.
    /// Of a plan: when it would be.
    pub started_us: i64,
    /// When its peer answered, likewise; -1 if it did not.
    pub reachable_us: i64,
    /// When it ended, likewise; -1 if it has not.
    pub ended_us: i64,
    /// Why it failed, in words that live as long as the race; NULL if it did not.
    pub reason: *const c_char,
    /// What earlier establishments hold against it, for which it stood behind others; NULL if
    /// nothing.
    pub doubt: *const c_char,
    /// Its address and port, as text.
    pub remote: [c_char; 64],
    /// The UDP port that SCTP is encapsulated to; 0 if it is not.
    pub encapsulation_port: u32,
    /// Not used.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_candidate {
    const FIRST: usize = 128;
}

/// A step of establishment. `size` is set by the program to `sizeof(neater_step)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_step {
    /// `sizeof(neater_step)`.
    pub size: usize,
    /// When, in microseconds from the call that began it.
    pub at_us: i64,
    /// What, in words that live as long as the race.
    pub text: *const c_char,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_step {
    const FIRST: usize = 24;
}

fn micros(d: Option<Duration>) -> i64 {
    d.map_or(-1, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

impl Candidate {
    fn of(c: &CandidateOutcome) -> Self {
        let (fate, reason) = match &c.fate {
            Fate::Won => (neater_fate::NEATER_FATE_WON, None),
            Fate::NotStarted => (neater_fate::NEATER_FATE_NOT_STARTED, None),
            Fate::Withdrawn => (neater_fate::NEATER_FATE_WITHDRAWN, None),
            Fate::Running => (neater_fate::NEATER_FATE_RUNNING, None),
            Fate::Failed(e) => (neater_fate::NEATER_FATE_FAILED, Some(c_text(&e.to_string()))),
        };
        Self {
            stack: stack_number(Some(c.stack)),
            fate,
            remote: c.addr.to_string(),
            encapsulation_port: c.encapsulation_port.unwrap_or(0),
            started: c.started,
            reachable: c.reachable,
            ended: c.ended,
            reason,
            doubt: c.doubt.map(|d| c_text(&d.to_string())),
        }
    }
}

fn texts(lines: &[String]) -> Vec<CString> {
    lines.iter().map(|l| c_text(l)).collect()
}

fn steps(timeline: &[TimelineEntry]) -> Vec<(Duration, CString)> {
    timeline.iter().map(|e| (e.at, c_text(&e.step.to_string()))).collect()
}

impl neater_race {
    pub(crate) fn of_error(e: &EstablishmentError) -> Self {
        Self {
            candidates: e.candidates.iter().map(Candidate::of).collect(),
            steps: Vec::new(),
            excluded: texts(&e.excluded),
            resolution: texts(&e.resolution),
        }
    }

    pub(crate) fn of_connection(candidates: &[CandidateOutcome], timeline: &[TimelineEntry]) -> Self {
        Self {
            candidates: candidates.iter().map(Candidate::of).collect(),
            steps: steps(timeline),
            excluded: Vec::new(),
            resolution: Vec::new(),
        }
    }

    pub(crate) fn of_plan(plan: &Plan) -> Self {
        let candidates = plan.candidates.iter().map(|c| Candidate {
            stack: stack_number(Some(c.stack)),
            fate: if c.refused.is_some() {
                neater_fate::NEATER_FATE_FAILED
            } else {
                neater_fate::NEATER_FATE_NOT_STARTED
            },
            remote: c.addr.to_string(),
            encapsulation_port: 0,
            started: c.starts,
            reachable: None,
            ended: None,
            reason: c.refused.as_ref().map(|e| c_text(&e.to_string())),
            doubt: c.doubt.map(|d| c_text(&d.to_string())),
        });
        Self {
            candidates: candidates.collect(),
            steps: steps(&plan.timeline),
            excluded: texts(&plan.excluded),
            resolution: texts(&plan.resolution),
        }
    }
}

/// What the lists of a race are of.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_race_list {
    /// Candidates: `neater_race_candidate`.
    NEATER_RACE_CANDIDATES = 0,
    /// Steps of establishment: `neater_race_step`.
    NEATER_RACE_STEPS = 1,
    /// Stacks that were not eligible, each with the properties that rule it out:
    /// `neater_race_text`.
    NEATER_RACE_EXCLUDED = 2,
    /// What went wrong with names: `neater_race_text`.
    NEATER_RACE_RESOLUTION = 3,
}

/// How long a list of a race is; `list` is a `neater_race_list`. Negative: an error.
///
/// Thread: any, but not while the race is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_race_count(race: *const neater_race, list: u32) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let race = unsafe { object(race, "race") }?;
        let count = match list {
            0 => race.candidates.len(),
            1 => race.steps.len(),
            2 => race.excluded.len(),
            3 => race.resolution.len(),
            _ => return Err(Failure::argument("there is no such list of a race")),
        };
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// A candidate by its number, best first, into `*candidate`, whose `size` the program has set.
/// NEATER_ERROR_NOT_FOUND beyond the last.
///
/// Lifetime: the texts in it live as long as the race. Thread: any, but not while the race is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_race_candidate(
    race: *const neater_race,
    index: usize,
    candidate: *mut neater_candidate,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let race = unsafe { object(race, "race") }?;
        let c = race.candidates.get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        let text = |t: &Option<CString>| t.as_ref().map_or(core::ptr::null(), |t| t.as_ptr());
        let value = neater_candidate {
            size: size_of::<neater_candidate>(),
            stack: c.stack,
            fate: c.fate as u32,
            started_us: micros(c.started),
            reachable_us: micros(c.reachable),
            ended_us: micros(c.ended),
            reason: text(&c.reason),
            doubt: text(&c.doubt),
            remote: fixed_text(&c.remote),
            encapsulation_port: c.encapsulation_port.into(),
            reserved: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { write_sized(candidate, &value, "candidate") }
    })
}

/// A step of establishment by its number, in the order of time, into `*step`, whose `size` the
/// program has set. NEATER_ERROR_NOT_FOUND beyond the last.
///
/// Lifetime: the text in it lives as long as the race. Thread: any, but not while the race is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_race_step(
    race: *const neater_race,
    index: usize,
    step: *mut neater_step,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let race = unsafe { object(race, "race") }?;
        let (at, text) = race.steps.get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        let value = neater_step { size: size_of::<neater_step>(), at_us: micros(Some(*at)), text: text.as_ptr() };
        // SAFETY: the caller's promise.
        unsafe { write_sized(step, &value, "step") }
    })
}

/// A line of NEATER_RACE_EXCLUDED or NEATER_RACE_RESOLUTION by its number; NULL beyond the last,
/// and for other lists.
///
/// Lifetime: as long as the race. Not to be freed. Thread: any, but not while the race is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_race_text(race: *const neater_race, list: u32, index: usize) -> *const c_char {
    guard_or(core::ptr::null(), || {
        // SAFETY: the caller's promise.
        let race = unsafe { object(race, "race") }?;
        let lines = match list {
            2 => &race.excluded,
            3 => &race.resolution,
            _ => return Err(Failure::argument("this list of a race has no texts")),
        };
        Ok(lines.get(index).map_or(core::ptr::null(), |l| l.as_ptr()))
    })
}

/// Gives a race back that `neater_connection_race` or an event has given. NULL is allowed. One of
/// `neater_error_race` is its error's.
///
/// Ownership: the race is gone afterwards, with all texts in it. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_race_free(race: *mut neater_race) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(race) };
}

/// Hands a race to the program.
///
/// # Safety
/// `out` is NULL or may be written to.
pub(crate) unsafe fn give(out: *mut *mut neater_race, race: neater_race) -> Result<(), Failure> {
    check_out(out, "race")?;
    // SAFETY: the caller's promise.
    unsafe { put(out, Box::into_raw(Box::new(race)), "race") }
}
