//! One lookup: several record kinds of one name, along the search list.
//!
//! *Responsible for* deciding when an answer may be delivered and when the next candidate of the
//! search list is due. *Not responsible for* asking: [`crate::resolver`] does what is decided here.
//!
//! The rule: all kinds are answered by the same candidate. As soon as one has addresses, or service
//! records with addresses or hints of another host, it is settled, and every answer is delivered as
//! it comes. Only when every kind has the answer "none" is the next candidate tried. Servers that
//! answer and fail (SERVFAIL: one zone of the search list is broken) count as "none", too, and
//! their failure is the answer in the end if no candidate has anything, as libc's resolvers do it;
//! no answer at all settles, since dead servers would only be asked in vain again.
//!
//! *Invariant*: every requested kind is delivered exactly once.

use neater_base::Key;

use crate::api::{Answer, RecordKind};
use crate::name::{self, NameBuf};
use crate::resolv_conf::MAX_SEARCH;
use crate::svcb::{MAX_TARGETS, ServiceBinding, Walk};
use crate::{Config, ResolveError};

/// Candidates at most: the search list and the name as it is.
pub(crate) const MAX_CANDIDATES: usize = MAX_SEARCH + 1;
/// Questions that one lookup waits for at most.
pub(crate) const MAX_ASKING: usize = 3 + 2 * MAX_TARGETS;

/// What a question is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A kind that the lookup was asked for; for HTTPS also each further name of the chain.
    Kind(RecordKind),
    /// A foreign target's addresses.
    Target {
        /// The index that [`crate::svcb::Step::Resolve`] gave.
        target: usize,
        /// AAAA or A.
        v6: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Slot {
    /// Not asked for.
    Unwanted,
    Waiting,
    /// Answered, but it is not sure yet that this candidate is the one.
    Held(Answer),
    Delivered,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Wait for more.
    Wait,
    /// Deliver these; if `done`, nothing is left.
    Deliver(Vec<(RecordKind, Answer)>, bool),
    /// Drop the questions that are under way and ask for the next candidate.
    Next,
}

/// A lookup under way.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) interface: Option<u32>,
    /// The port of the HTTPS service.
    pub(crate) port: u16,
    /// The questions under way, and what for; at most [`MAX_ASKING`].
    pub(crate) asking: Vec<(Want, Key)>,
    /// The chain of HTTPS records, while it is being walked.
    pub(crate) walk: Option<Walk>,
    /// What is known of the services of the present candidate, if more than was reported.
    so_far: Option<Vec<ServiceBinding>>,
    candidates: Vec<String>,
    at: usize,
    settled: bool,
    /// A candidate existed without addresses.
    saw_no_data: bool,
    /// The first failure of servers for a candidate.
    failed: Option<ResolveError>,
    /// In the order of [`RecordKind::ALL`].
    slots: [Slot; 3],
}

impl Lookup {
    /// A lookup for those kinds for which `wanted` is true; `candidates` is not empty.
    pub(crate) fn new(
        candidates: Vec<String>,
        wanted: impl Fn(RecordKind) -> bool,
        port: u16,
        interface: Option<u32>,
    ) -> Self {
        Self {
            interface,
            port,
            asking: Vec::new(),
            walk: None,
            so_far: None,
            candidates,
            at: 0,
            settled: false,
            saw_no_data: false,
            failed: None,
            slots: RecordKind::ALL.map(|k| if wanted(k) { Slot::Waiting } else { Slot::Unwanted }),
        }
    }

    /// The present candidate.
    pub(crate) fn candidate(&self) -> &str {
        self.candidates.get(self.at).map_or("", String::as_str)
    }

    /// The kinds that wait for an answer, in the order in which they are asked.
    pub(crate) fn waiting(&self) -> Vec<RecordKind> {
        let kinds = RecordKind::ALL.into_iter().zip(&self.slots);
        kinds.filter(|(_, s)| **s == Slot::Waiting).map(|(k, _)| k).collect()
    }

    /// A kind is answered for the present candidate.
    pub(crate) fn hold(&mut self, kind: RecordKind, answer: Answer) {
        if let Some(slot) = self.slots.get_mut(kind.index())
            && *slot == Slot::Waiting
        {
            *slot = Slot::Held(answer);
        }
    }

    /// Something is known of the services of the present candidate.
    pub(crate) fn hold_so_far(&mut self, services: Vec<ServiceBinding>) {
        self.so_far = Some(services);
    }

    /// What may be reported of the services before their answer.
    pub(crate) fn take_so_far(&mut self) -> Option<Vec<ServiceBinding>> {
        let waits = self.slots.get(RecordKind::Https.index()).is_some_and(|s| *s == Slot::Waiting);
        self.so_far.take_if(|_| self.settled).filter(|_| waits)
    }

    /// What the answers so far lead to. After [`Decision::Next`] the lookup stands at the next
    /// candidate.
    pub(crate) fn decide(&mut self) -> Decision {
        if !self.settled {
            match self.judge() {
                Some(true) => self.settled = true,
                Some(false) => {
                    self.at += 1;
                    (self.walk, self.so_far) = (None, None);
                    for slot in &mut self.slots {
                        if matches!(slot, Slot::Held(_)) {
                            *slot = Slot::Waiting;
                        }
                    }
                    return Decision::Next;
                }
                None => return Decision::Wait,
            }
        }
        let mut deliver = Vec::new();
        let of_addresses = self.asks_for_addresses();
        for kind in RecordKind::REPORT_ORDER {
            let Some(slot) = self.slots.get_mut(kind.index()) else { continue };
            if let Slot::Held(answer) = slot {
                let mut answer = core::mem::replace(answer, Answer::Addresses(Vec::new()));
                *slot = Slot::Delivered;
                // Some candidate exists, or may exist, so "no such name" would not be true of all
                // of them.
                let alone = kind == RecordKind::Https && !of_addresses;
                if (kind != RecordKind::Https || alone) && answer == Answer::Failed(ResolveError::NoSuchName) {
                    if self.saw_no_data && !alone {
                        answer = Answer::Addresses(Vec::new());
                    } else if let Some(e) = self.failed {
                        answer = Answer::Failed(e);
                    }
                }
                deliver.push((kind, answer));
            }
        }
        let done = self.slots.iter().all(|s| matches!(s, Slot::Unwanted | Slot::Delivered));
        if deliver.is_empty() && !done { Decision::Wait } else { Decision::Deliver(deliver, done) }
    }

    fn asks_for_addresses(&self) -> bool {
        let asked = |kind: RecordKind| self.slots.get(kind.index()).is_some_and(|s| *s != Slot::Unwanted);
        asked(RecordKind::Aaaa) || asked(RecordKind::A)
    }

    /// Whether the present candidate is the one (`true`), is not (`false`), or may be.
    fn judge(&mut self) -> Option<bool> {
        if self.at + 1 >= self.candidates.len() {
            return Some(true);
        }
        let families = [RecordKind::Aaaa.index(), RecordKind::A.index()];
        // Where addresses are asked for and there is no such name, there are no service records
        // below it either (RFC 8020), and where servers fail for addresses no lookup waits for
        // those.
        let (mut waiting, mut services_wait, mut no_data, mut settles) = (false, false, false, false);
        let mut failed = None;
        let of_addresses = self.asks_for_addresses();
        if self.so_far.as_ref().is_some_and(|s| s.iter().any(ServiceBinding::leads_elsewhere)) {
            return Some(true);
        }
        for (i, slot) in self.slots.iter().enumerate() {
            match slot {
                Slot::Waiting if families.contains(&i) => waiting = true,
                Slot::Waiting => services_wait = true,
                Slot::Unwanted | Slot::Delivered | Slot::Held(Answer::Failed(ResolveError::NoSuchName)) => {}
                Slot::Held(Answer::Addresses(a)) if a.is_empty() => no_data = true,
                Slot::Held(Answer::Services(s)) if s.is_empty() => {}
                // Beside addresses, records count that lead elsewhere: others may lead nowhere.
                Slot::Held(Answer::Services(s)) if of_addresses && !s.iter().any(ServiceBinding::leads_elsewhere) => {}
                Slot::Held(Answer::Addresses(_) | Answer::Services(_)) => return Some(true),
                // Nothing is known of the addresses by that.
                Slot::Held(Answer::Failed(_)) if !families.contains(&i) && of_addresses => {}
                Slot::Held(Answer::Failed(e)) if of_the_candidate(e) => failed = Some(*e),
                Slot::Held(Answer::Failed(_)) => settles = true,
            }
        }
        if waiting || (services_wait && !settles && (no_data || !of_addresses)) {
            return None;
        }
        self.saw_no_data |= no_data;
        if self.failed.is_none() {
            self.failed = failed;
        }
        Some(settles)
    }
}

/// Whether an error is one of the candidate: its servers have answered, and another name may be
/// with others.
const fn of_the_candidate(e: &ResolveError) -> bool {
    matches!(e, ResolveError::ServerFailure | ResolveError::Refused | ResolveError::Malformed | ResolveError::Loop)
}

/// The `i`th name to try for `name` (which has no final dot), without allocating; `None` after the
/// last.
///
/// A candidate that would be too long comes as an empty name: it has to be skipped.
pub(crate) fn candidate(name: &str, absolute: bool, config: &Config, i: usize) -> Option<NameBuf> {
    let plain = || NameBuf::lower(name);
    let searched = |i: usize| {
        let suffix = config.search.get(i)?;
        NameBuf::join(name, suffix).or_else(|| NameBuf::lower(""))
    };
    if absolute {
        return if i == 0 { plain() } else { None };
    }
    let dots = name.bytes().filter(|b| *b == b'.').count();
    if dots >= usize::from(config.ndots) {
        if i == 0 { plain() } else { searched(i - 1) }
    } else if i == config.search.len() {
        plain()
    } else {
        searched(i)
    }
}

/// All valid names to try for `name`, in order.
pub(crate) fn candidates(name: &str, absolute: bool, config: &Config) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for i in 0..MAX_CANDIDATES {
        let Some(buf) = candidate(name, absolute, config, i) else { break };
        if name::check(buf.as_str()).is_ok() && !list.iter().any(|l| l == buf.as_str()) {
            list.push(buf.as_str().to_owned());
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn config(ndots: u8) -> Config {
        Config { search: vec!["a.test".into(), "b.test".into()], ndots, ..Config::default() }
    }

    fn some() -> Answer {
        Answer::Addresses(vec![IpAddr::from([10, 0, 0, 1])])
    }

    const NONE: Answer = Answer::Failed(ResolveError::NoSuchName);

    fn lookup() -> Lookup {
        Lookup::new(candidates("h", false, &config(1)), |_| true, 443, None)
    }

    #[test]
    fn names_with_enough_dots_are_first_tried_as_they_are() {
        assert_eq!(candidates("h", false, &config(1)), ["h.a.test", "h.b.test", "h"]);
        assert_eq!(candidates("h.x", false, &config(1)), ["h.x", "h.x.a.test", "h.x.b.test"]);
        assert_eq!(candidates("h.x", false, &config(2)), ["h.x.a.test", "h.x.b.test", "h.x"]);
        assert_eq!(candidates("H.x", true, &config(2)), ["h.x"]);
        assert_eq!(candidates("h", false, &Config::default()), ["h"]);
        let long = "a.".repeat(124) + "a";
        assert_eq!(candidates(&long, false, &config(1)), [long]);
    }

    #[test]
    fn the_first_addresses_settle_the_candidate_and_release_what_was_held() {
        let mut l = lookup();
        l.hold(RecordKind::Https, Answer::Services(Vec::new()));
        assert_eq!(l.decide(), Decision::Wait);
        l.hold(RecordKind::Aaaa, Answer::Addresses(Vec::new()));
        assert_eq!(l.decide(), Decision::Wait);
        l.hold(RecordKind::A, some());
        let Decision::Deliver(list, done) = l.decide() else { panic!("not settled") };
        assert_eq!((list.len(), done), (3, true));
    }

    #[test]
    fn only_when_every_family_says_none_is_the_next_candidate_tried() {
        let mut l = lookup();
        l.hold(RecordKind::Aaaa, NONE);
        assert_eq!(l.decide(), Decision::Wait);
        l.hold(RecordKind::A, NONE);
        assert_eq!(l.decide(), Decision::Next);
        assert_eq!(l.candidate(), "h.b.test");
        assert_eq!(l.waiting(), RecordKind::ALL);
    }

    #[test]
    fn an_error_ends_the_search() {
        let mut l = lookup();
        l.hold(RecordKind::Aaaa, NONE);
        l.hold(RecordKind::A, Answer::Failed(ResolveError::Timeout));
        let Decision::Deliver(list, done) = l.decide() else { panic!("not settled") };
        assert_eq!(list, [(RecordKind::A, Answer::Failed(ResolveError::Timeout)), (RecordKind::Aaaa, NONE)]);
        assert!(!done, "HTTPS is still asked for");
    }

    #[test]
    fn a_broken_zone_of_the_search_list_ends_nothing_and_is_told_in_the_end() {
        let broken = || Answer::Failed(ResolveError::ServerFailure);
        let mut l = lookup();
        for _ in 0..2 {
            l.hold(RecordKind::Aaaa, broken());
            l.hold(RecordKind::A, broken());
            assert_eq!(l.decide(), Decision::Next);
        }
        assert_eq!(l.candidate(), "h");
        l.hold(RecordKind::A, some());
        l.hold(RecordKind::Aaaa, NONE);
        let Decision::Deliver(list, _) = l.decide() else { panic!("not settled") };
        assert_eq!(list, [(RecordKind::A, some()), (RecordKind::Aaaa, broken())]);
    }

    #[test]
    fn service_records_settle_a_candidate_without_addresses() {
        let mut l = lookup();
        l.hold(RecordKind::Aaaa, Answer::Addresses(Vec::new()));
        l.hold(RecordKind::A, Answer::Addresses(Vec::new()));
        assert_eq!(l.decide(), Decision::Wait);
        let addresses = vec![IpAddr::from([10, 0, 0, 9])];
        let elsewhere = ServiceBinding { addresses, foreign: true, ..ServiceBinding::default() };
        l.hold(RecordKind::Https, Answer::Services(vec![elsewhere]));
        let Decision::Deliver(list, done) = l.decide() else { panic!("not settled") };
        assert_eq!((list.len(), done, l.candidate()), (3, true, "h.a.test"));
    }

    #[test]
    fn a_candidate_without_addresses_makes_the_end_no_data_and_not_no_such_name() {
        let mut l = lookup();
        for _ in 0..2 {
            l.hold(RecordKind::Aaaa, Answer::Addresses(Vec::new()));
            l.hold(RecordKind::A, Answer::Addresses(Vec::new()));
            assert_eq!(l.decide(), Decision::Wait, "there may be service records");
            l.hold(RecordKind::Https, Answer::Services(Vec::new()));
            assert_eq!(l.decide(), Decision::Next);
        }
        l.hold(RecordKind::A, NONE);
        assert_eq!(l.decide(), Decision::Deliver(vec![(RecordKind::A, Answer::Addresses(Vec::new()))], false));
    }
}
