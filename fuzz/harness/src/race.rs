//! Targets in `crates/race`: any order of answers and news, with time in between.

use neater_base::{Instant, Reader, WallTime};
use neater_race::{
    Address, BadCause, Candidate, CandidateId, Config, Family, Input, MAX_SAVED, Mark, OutcomeCache, Output, PathId,
    PathSpec, Penalty, Progress, Race, Service, StackId, StackOption,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// What the race has said so far, and what it was told.
#[derive(Default)]
struct Seen {
    started: BTreeMap<CandidateId, Candidate>,
    running: BTreeSet<CandidateId>,
    established: BTreeSet<CandidateId>,
    end: Option<Output>,
    doubted: BTreeSet<CandidateId>,
}

impl Seen {
    fn drain(&mut self, race: &mut Race<u8>, now: Instant) {
        while let Some(output) = race.poll_output(now) {
            match output {
                Output::Doubted(c, _) => assert!(self.doubted.insert(c.id), "{c:?} doubted twice"),
                Output::Start(candidate) => {
                    assert!(self.end.is_none(), "starts after its end");
                    assert_eq!(self.started.insert(candidate.id, candidate), None, "a name used twice");
                    self.running.insert(candidate.id);
                }
                Output::Cancel(id) => assert!(self.running.remove(&id), "{id:?} cancelled, but not running"),
                Output::Won(id) => {
                    assert!(self.running.remove(&id) && self.established.contains(&id), "{id:?} won unestablished");
                    assert_eq!(self.end.replace(output), None);
                }
                Output::Lost => assert_eq!(self.end.replace(output), None),
            }
        }
        let targets: BTreeSet<_> = self.started.values().map(|c| (c.path, c.stack, c.addr)).collect();
        assert_eq!(targets.len(), self.started.len(), "the same attempt twice");
        assert_eq!(self.end.is_some(), race.is_over());
    }
}

fn address(byte: u8, v6: bool) -> Address {
    let (addr, source): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(byte)).into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Ipv4Addr::new(192, 0, 2, byte).into(), Ipv4Addr::LOCALHOST.into())
    };
    Address::new(addr, (!byte.is_multiple_of(5)).then_some(source))
}

/// A bad mark.
fn mark(byte: u8, now: Instant) -> Mark {
    let penalty = Penalty {
        stack: StackId(u16::from(byte & 3)),
        addr: SocketAddr::new(address(byte >> 5, byte & 4 != 0).addr, 443),
        cause: BadCause::Silent,
        suspect_group: byte & 8 != 0,
        suspect_family: byte & 16 != 0,
    };
    Mark { penalty, since: now, until: now + Duration::from_secs(60) }
}

/// Takes one input of the race from the fuzzer's; `None` at its end.
fn fact(input: &mut Reader<'_>, seen: &mut Seen) -> Option<Input<u8>> {
    let (kind, a) = (input.u8().ok()?, input.u8().ok()?);
    let path = PathId(u16::from(a & 3));
    let count = usize::from(a >> 4);
    let mut addresses = |v6| -> Vec<Address> {
        let bytes = input.take(count.min(input.rest().len())).unwrap_or_default();
        bytes.iter().map(|b| address(*b, v6)).collect()
    };
    Some(match kind % 4 {
        0 => {
            let family = if kind & 4 == 0 { Family::V4 } else { Family::V6 };
            let result = if kind & 8 == 0 { Ok(addresses(family == Family::V6)) } else { Err(a) };
            Input::Answer { path, family, result }
        }
        1 => {
            let service = Service {
                priority: u16::from(kind >> 4),
                stacks: vec![StackId(u16::from(a & 7))],
                port: (kind & 4 != 0).then_some(8443),
                hints: addresses(kind & 8 != 0),
                target: (kind & 16 != 0).then(Vec::new),
            };
            Input::Services { path, result: if kind & 32 == 0 { Ok(vec![service]) } else { Err(a) } }
        }
        _ => {
            let candidate = seen.running.iter().nth(usize::from(a >> 4)).copied().unwrap_or(CandidateId(u32::from(a)));
            let progress = match kind >> 2 & 3 {
                0 => Progress::Reachable { rtt: Duration::from_millis(u64::from(a)) },
                1 | 2 => {
                    seen.established.insert(candidate);
                    Progress::Established
                }
                _ => {
                    seen.running.remove(&candidate);
                    seen.established.remove(&candidate);
                    Progress::Failed(a)
                }
            };
            Input::Progress { candidate, progress }
        }
    })
}

/// Plays facts and time. Names are used once, only what runs is cancelled, only what is established wins, there is one end,
/// it comes by the deadline, and after it nothing runs but the winner.
pub fn race_events(data: &[u8]) {
    let mut now = Instant::from_nanos(5);
    let deadline = now + Duration::from_secs(30);
    let path = |id| PathSpec { id: PathId(id), port: 443, expect_v4: true, expect_v6: true, expect_services: id == 0 };
    let stack = |id: u16| StackOption {
        id: StackId(id),
        group: (id / 2) as u8,
        port: None,
        needs_service: id == 3,
        secure: id != 1,
    };
    let config = Config { deadline: Some(deadline), ..Config::default() };
    let mut race = Race::new(now, config, vec![path(0), path(1)], (0..4).map(stack).collect(), [9; 32]);
    let mut seen = Seen::default();
    seen.drain(&mut race, now);
    // What earlier races say is advice: none of the laws depends on it.
    for id in 0..2 {
        race.pass_history(PathId(id), data.iter().rev().skip(usize::from(id)).step_by(2).map(|b| mark(*b, now)));
    }

    let mut input = Reader::new(data);
    while let Ok(wait) = input.u8() {
        now += Duration::from_millis(u64::from(wait & 0x3f) * 4);
        if wait & 0x40 != 0 {
            race.handle_timeout(now);
            seen.drain(&mut race, now);
        }
        let Some(fact) = fact(&mut input, &mut seen) else { break };
        race.handle_input(now, fact);
        seen.drain(&mut race, now);
    }
    // At most: one start for each candidate, one end of each delay, and the deadline.
    for _ in 0..10_000 {
        let Some(at) = race.next_timeout() else { break };
        assert!(at <= deadline, "a timeout after the deadline");
        now = now.max(at);
        race.handle_timeout(now);
        seen.drain(&mut race, now);
    }
    assert!(seen.end.is_some(), "no end by the deadline");
    assert!(seen.running.is_empty(), "{:?} left running", seen.running);
    assert!(seen.started.len() <= 64, "more than max_candidates");
}

/// Outcomes that a file may hold: the body of one, below a header that is right. What is read is
/// written, and read as the same again.
///
/// # Panics
/// When that does not hold, or something is kept of text that was refused.
pub fn race_saved(data: &[u8]) {
    const BASIS: u64 = 5;
    let (now, wall) = (Instant::ZERO + Duration::from_secs(10_000), WallTime(Duration::from_secs(1_000_000)));
    let header = |cache: &mut OutcomeCache| {
        cache.forget_outcomes();
        let text = cache.export(now, wall, BASIS).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let text = String::from_utf8_lossy(data);
    let text = match text.strip_prefix('=') {
        Some(raw) => raw.to_owned(),
        None => format!("{}\n{text}", header(&mut OutcomeCache::new(1))),
    };
    let mut cache = OutcomeCache::new(1);
    let Ok(count) = cache.import(now, wall, BASIS, &text) else {
        return assert!(cache.is_empty(), "refused, and kept");
    };
    assert_eq!(count, cache.len());
    // What was only imported is not written.
    let key = neater_race::CacheKey { network: u64::MAX, endpoint: 0, request: 0, isolation: 0 };
    let bad = Penalty::new(StackId(0), SocketAddr::from(([192, 0, 2, 1], 1)), BadCause::Failed);
    cache.record_bad(now, key, bad);
    let count = cache.len();
    let written = cache.export(now, wall, BASIS).unwrap_or_default();
    assert!(written.len() <= MAX_SAVED);
    let mut again = OutcomeCache::new(2);
    assert_eq!(again.import(now, wall, BASIS, &written), Ok(count));
    again.record_bad(now, key, bad);
    assert_eq!(again.export(now, wall, BASIS), Some(written));
}
