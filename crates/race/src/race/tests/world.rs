//! A race in virtual time: scripted answers and attempts in, a readable log out.
//!
//! Addresses are written `6.1` (2001:db8::1) and `4.1` (192.0.2.1), candidates `Q6.1`, with `p1/`
//! before them on path 1. Stacks are letters; Q and S need UDP (group 0), the others do not (group
//! 1); C is in the clear. Times are milliseconds.

use super::super::*;
use crate::{BadCause, Penalty, Service, StackId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub(super) type Reason = &'static str;

/// What becomes of an attempt, in milliseconds from its start. The default: no answer, ever.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Script {
    /// When the peer first answers, and the round-trip time it gives.
    pub(super) reachable: Option<(u64, u64)>,
    pub(super) established: Option<u64>,
    pub(super) failed: Option<u64>,
}

pub(super) const SILENT: Script = Script { reachable: None, established: None, failed: None };

pub(super) fn connects(ms: u64) -> Script {
    Script { established: Some(ms), ..SILENT }
}

pub(super) fn fails(ms: u64) -> Script {
    Script { failed: Some(ms), ..SILENT }
}

impl Script {
    pub(super) fn answers(self, ms: u64, rtt: u64) -> Self {
        Self { reachable: Some((ms, rtt)), ..self }
    }

    pub(super) fn then_fails(self, ms: u64) -> Self {
        Self { failed: Some(ms), ..self }
    }
}

/// A bad mark of a candidate in short, like `Q6.1`, and whether its group and its family are
/// suspected with it.
pub(super) fn marked(name: &str, cause: BadCause, suspect_group: bool, suspect_family: bool) -> Mark {
    let (stack, place) = name.split_at(1);
    let addr = addresses(place)[0].addr;
    let stack = StackId(u16::from(stack.as_bytes()[0]));
    let penalty = Penalty { suspect_group, suspect_family, ..Penalty::new(stack, SocketAddr::new(addr, 443), cause) };
    Mark { penalty, since: Instant::ZERO, until: World::instant(60_000) }
}

type Scripts = Box<dyn Fn(&str, &Candidate) -> Script>;

pub(super) struct World {
    pub(super) race: Race<Reason>,
    pub(super) now: Instant,
    origin: Instant,
    events: BTreeMap<(Instant, u64), Input<Reason>>,
    sequence: u64,
    scripts: Scripts,
    /// Everything that came out, with when.
    pub(super) outputs: Vec<(u64, Output)>,
    names: BTreeMap<CandidateId, String>,
    /// Wakes the race more often than it asked.
    pub(super) nosy: bool,
}

pub(super) fn path(id: u16) -> PathSpec {
    PathSpec { id: PathId(id), port: 443, expect_v4: true, expect_v6: true, expect_services: false }
}

pub(super) fn stacks(names: &str) -> Vec<StackOption> {
    let group = |name| u8::from(!matches!(name, 'Q' | 'S'));
    let option = |name| StackOption {
        id: StackId(name as u16),
        group: group(name),
        port: None,
        needs_service: false,
        secure: name != 'C',
    };
    names.chars().map(option).collect()
}

pub(super) fn addresses(list: &str) -> Vec<Address> {
    let address = |text: &str| match text.split_once('.') {
        Some(("6", n)) => Address::new(format!("2001:db8::{n}").parse().unwrap(), "2001:db8:ffff::1".parse().ok()),
        Some((_, n)) => Address::new(format!("192.0.2.{n}").parse().unwrap(), "198.51.100.1".parse().ok()),
        None => panic!("{text}"),
    };
    list.split_whitespace().map(address).collect()
}

pub(super) fn answer(path: u16, family: Family, list: &str) -> Input<Reason> {
    Input::Answer { path: PathId(path), family, result: Ok(addresses(list)) }
}

pub(super) fn v6(list: &str) -> Input<Reason> {
    answer(0, Family::V6, list)
}

pub(super) fn v4(list: &str) -> Input<Reason> {
    answer(0, Family::V4, list)
}

pub(super) fn services(list: Vec<Service>) -> Input<Reason> {
    Input::Services { path: PathId(0), result: Ok(list) }
}

pub(super) fn service(priority: u16, stacks: &str, hints: &str) -> Service {
    let stacks = stacks.chars().map(|c| StackId(c as u16)).collect();
    Service { priority, stacks, port: None, hints: addresses(hints), target: None }
}

pub(super) fn name(c: &Candidate) -> String {
    let path = if c.path.0 == 0 { String::new() } else { format!("p{}/", c.path.0) };
    let stack = char::from_u32(u32::from(c.stack.0)).unwrap();
    let text = c.addr.ip().to_string();
    let last = text.rsplit(['.', ':']).next().unwrap();
    format!("{path}{stack}{}.{last}", if c.addr.is_ipv4() { 4 } else { 6 })
}

impl World {
    pub(super) fn new(config: Config, paths: Vec<PathSpec>, stacks: Vec<StackOption>) -> Self {
        let origin = Instant::from_nanos(1_000_000_000);
        Self {
            race: Race::new(origin, config, paths, stacks, [7; 32]),
            now: origin,
            origin,
            events: BTreeMap::new(),
            sequence: 0,
            scripts: Box::new(|_, _| SILENT),
            outputs: Vec::new(),
            names: BTreeMap::new(),
            nosy: false,
        }
    }

    /// One path, the default configuration.
    pub(super) fn with(names: &str) -> Self {
        Self::new(Config::default(), vec![path(0)], stacks(names))
    }

    pub(super) fn instant(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms)
    }

    /// An input at this time.
    pub(super) fn at(mut self, ms: u64, input: Input<Reason>) -> Self {
        self.schedule(self.origin + Duration::from_millis(ms), input);
        self
    }

    /// Attempts that are not named get no answer.
    pub(super) fn attempts(self, scripts: &[(&'static str, Script)]) -> Self {
        let scripts = scripts.to_vec();
        self.scripted(move |name, _| scripts.iter().find(|(n, _)| *n == name).map_or(SILENT, |(_, s)| *s))
    }

    pub(super) fn scripted(mut self, scripts: impl Fn(&str, &Candidate) -> Script + 'static) -> Self {
        self.scripts = Box::new(scripts);
        self
    }

    fn schedule(&mut self, at: Instant, input: Input<Reason>) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), input);
    }

    /// Runs until the race is over or nothing more will happen.
    pub(super) fn run(&mut self) -> Vec<String> {
        self.run_until(u64::MAX)
    }

    /// Runs as long as something happens before or at this time.
    pub(super) fn run_until(&mut self, ms: u64) -> Vec<String> {
        for _ in 0..100_000 {
            self.drain();
            let timeout = self.race.next_timeout();
            assert!(timeout.is_none_or(|at| at > self.now), "the race asks for what has passed: {timeout:?}");
            let event = self.events.keys().next().map(|(at, _)| *at);
            let Some(next) = event.into_iter().chain(timeout).min() else { return self.log() };
            if next > self.origin + Duration::from_millis(ms) {
                return self.log();
            }
            if self.nosy {
                let between = Instant::from_nanos(self.now.as_nanos().midpoint(next.as_nanos()));
                self.race.handle_timeout(between);
                assert_eq!(self.race.poll_output(between), None, "woken too early, it has nothing to say");
            }
            self.now = next;
            if event == Some(next) {
                if let Some((_, input)) = self.events.pop_first() {
                    self.race.handle_input(next, input);
                }
            } else {
                self.race.handle_timeout(next);
            }
        }
        panic!("the race does not come to an end");
    }

    fn drain(&mut self) {
        while let Some(output) = self.race.poll_output(self.now) {
            self.outputs.push(((self.now - self.origin).as_millis() as u64, output));
            match output {
                Output::Start(c) => self.begin(&c),
                Output::Cancel(id) => {
                    self.events.retain(|_, e| !matches!(e, Input::Progress { candidate, .. } if *candidate == id));
                }
                Output::Doubted(..) | Output::Won(_) | Output::Lost => {}
            }
        }
    }

    fn begin(&mut self, c: &Candidate) {
        let name = name(c);
        let script = (self.scripts)(&name, c);
        self.names.insert(c.id, name);
        let ms = Duration::from_millis;
        let reachable = script.reachable.map(|(at, rtt)| (at, Progress::Reachable { rtt: ms(rtt) }));
        let established = script.established.map(|at| (at, Progress::Established));
        let failed = script.failed.map(|at| (at, Progress::Failed("failed")));
        for (at, progress) in [reachable, established, failed].into_iter().flatten() {
            self.schedule(self.now + ms(at), Input::Progress { candidate: c.id, progress });
        }
    }

    pub(super) fn log(&self) -> Vec<String> {
        let line = |(at, output): &(u64, Output)| match output {
            Output::Doubted(c, _) => format!("{at} doubt {}", name(c)),
            Output::Start(c) => format!("{at} start {}", name(c)),
            Output::Cancel(id) => format!("{at} cancel {}", self.names[id]),
            Output::Won(id) => format!("{at} won {}", self.names[id]),
            Output::Lost => format!("{at} lost"),
        };
        self.outputs.iter().map(line).collect()
    }

    pub(super) fn outcome(&self, wanted: &str) -> CandidateOutcome<Reason> {
        let report = self.race.report();
        report.into_iter().find(|r| name(&r.candidate) == wanted).map(|r| r.outcome).expect("no such candidate")
    }
}
