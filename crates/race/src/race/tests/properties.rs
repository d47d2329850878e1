//! What holds for every race, whatever the network does.

use super::super::*;
use super::world::*;
use crate::{BadCause, MAX_ATTEMPT_DELAY, MIN_ATTEMPT_DELAY, Service, StackId};
use neater_base::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A network that a race is run against.
#[derive(Clone, Debug)]
struct Weather {
    delay: u64,
    resolution_delay: u64,
    first_family_count: usize,
    max_candidates: usize,
    grace: bool,
    deadline: Option<u64>,
    stacks: &'static str,
    paths: Vec<PathWeather>,
    /// The outcome history against candidates: path, then as [`marked`].
    marks: Vec<(u16, &'static str, BadCause, bool, bool)>,
    /// Candidate `n` behaves as number `n`, modulo how many there are.
    scripts: Vec<Script>,
}

/// When the answers of a path come, and how many addresses they have; 0 is a negative answer.
#[derive(Clone, Debug)]
struct PathWeather {
    v6: (u64, u8),
    v4: (u64, u8),
    services: Option<(u64, Vec<Listed>)>,
}

/// A service: priority, listed stacks, number of hints.
type Listed = (u16, &'static str, u8);

fn script() -> impl Strategy<Value = Script> {
    let answered = |s: Script, reachable: Option<(u64, u64)>| Script { reachable, ..s };
    let reachable = prop::option::of((0u64..600, 1u64..600));
    prop_oneof![
        Just(SILENT),
        reachable.clone().prop_map(move |r| answered(SILENT, r)),
        (0u64..900).prop_map(fails),
        (0u64..900, reachable.clone()).prop_map(move |(at, r)| answered(connects(at), r)),
        (0u64..900, 0u64..300).prop_map(|(at, more)| connects(at).then_fails(at + more)),
    ]
}

fn path_weather() -> impl Strategy<Value = PathWeather> {
    let answer = || (0u64..300, 0u8..5);
    let listed = (0u16..3, prop::sample::select(vec!["Q", "T", "QT", "SQT", "X"]), 0u8..3);
    let services = prop::option::of((0u64..300, prop::collection::vec(listed, 0..4)));
    (answer(), answer(), services).prop_map(|(v6, v4, services)| PathWeather { v6, v4, services })
}

fn weather() -> impl Strategy<Value = Weather> {
    let config = (0u64..3000, 0u64..200, 1usize..4, 1usize..40, any::<bool>(), prop::option::of(0u64..4000));
    let stacks = prop::sample::select(vec!["T", "QT", "TQ", "SQT", "SQTM"]);
    let paths = prop::collection::vec(path_weather(), 1..4);
    let scripts = prop::collection::vec(script(), 1..12);
    let names = prop::sample::select(vec!["Q6.1", "Q4.1", "T6.1", "T4.1", "T4.2", "S6.1", "X4.9"]);
    let mark = (0u16..4, names, Just(BadCause::Silent), any::<bool>(), any::<bool>());
    let marks = prop::collection::vec(mark, 0..6);
    (config, stacks, paths, marks, scripts).prop_map(|(c, stacks, paths, marks, scripts)| {
        let (delay, resolution_delay, first_family_count, max_candidates, grace, deadline) = c;
        Weather {
            delay,
            resolution_delay,
            first_family_count,
            max_candidates,
            grace,
            deadline,
            stacks,
            paths,
            marks,
            scripts,
        }
    })
}

impl Weather {
    fn config(&self) -> Config {
        Config {
            attempt_delay: Duration::from_millis(self.delay),
            resolution_delay: Duration::from_millis(self.resolution_delay),
            first_family_count: self.first_family_count,
            max_candidates: self.max_candidates,
            grace: self.grace,
            deadline: self.deadline.map(World::instant),
            ..Config::default()
        }
    }

    fn script(&self, id: CandidateId) -> Script {
        self.scripts[id.0 as usize % self.scripts.len()]
    }

    fn world(&self) -> World {
        let spec = |i: usize, p: &PathWeather| PathSpec { expect_services: p.services.is_some(), ..path(i as u16) };
        let paths = self.paths.iter().enumerate().map(|(i, p)| spec(i, p)).collect();
        let mut world = World::new(self.config(), paths, stacks(self.stacks));
        for (path, name, cause, group, family) in &self.marks {
            world.race.pass_history(PathId(*path), core::iter::once(marked(name, *cause, *group, *family)));
        }
        for (i, p) in self.paths.iter().enumerate() {
            let list = |family: u8, n: u8| (1..=n).map(|k| format!("{family}.{k} ")).collect::<String>();
            let i = i as u16;
            world = world.at(p.v6.0, answer(i, Family::V6, &list(6, p.v6.1)));
            world = world.at(p.v4.0, answer(i, Family::V4, &list(4, p.v4.1)));
            if let Some((at, listed)) = &p.services {
                let hints = |n: u8| (1..=n).map(|k| format!("{}.9{k} ", 4 + 2 * (k % 2))).collect::<String>();
                let list = listed.iter().map(|(priority, stacks, n)| service(*priority, stacks, &hints(*n)));
                world = world.at(*at, Input::Services { path: PathId(i), result: Ok(list.collect()) });
            }
        }
        let scripts = self.clone();
        world.scripted(move |_, c| scripts.script(c.id))
    }

    /// Whether, with no deadline, it can last for ever: an attempt without an end.
    fn may_hang(&self) -> bool {
        self.scripts.iter().any(|s| s.established.is_none() && s.failed.is_none()) && self.deadline.is_none()
    }
}

/// What holds of the outputs of any race: one end, no double endings, nothing after the end.
fn check_outputs(world: &World) {
    let mut started = BTreeSet::new();
    let mut ended = BTreeSet::new();
    let mut doubted = BTreeSet::new();
    let mut end = 0;
    for (_, output) in &world.outputs {
        match output {
            Output::Doubted(c, _) => assert!(doubted.insert(c.id), "{c:?} doubted twice"),
            Output::Start(c) => {
                assert_eq!(end, 0, "a start after the end");
                assert!(started.insert(c.id), "{c:?} started twice");
            }
            Output::Cancel(id) => assert!(started.contains(id) && ended.insert(*id), "{id:?} cancelled"),
            Output::Won(id) => {
                assert!(started.contains(id) && ended.insert(*id));
                end += 1;
            }
            Output::Lost => end += 1,
        }
    }
    assert_eq!(end, usize::from(world.race.is_over()));
    let report = world.race.report();
    for r in &report {
        let id = r.candidate.id;
        assert_eq!(r.started_at.is_some(), started.contains(&id), "{r:?}");
        if world.race.is_over() && started.contains(&id) {
            let failed = matches!(r.outcome, CandidateOutcome::Failed(_));
            assert!(failed != ended.contains(&id), "each ends exactly once: {r:?}");
            assert!(r.ended_at.is_some());
        }
    }
    assert_eq!(started.len(), report.iter().filter(|r| r.started_at.is_some()).count());
}

/// When candidates failed.
fn failures(world: &World) -> Vec<Instant> {
    let failed = |r: &CandidateReport<Reason>| matches!(r.outcome, CandidateOutcome::Failed(_)).then_some(r.ended_at);
    world.race.report().iter().filter_map(failed).flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_race_ends_once_and_every_attempt_ends_once(w in weather()) {
        let mut world = w.world();
        world.run();
        check_outputs(&world);
        prop_assert!(world.race.is_over() || w.may_hang());
        prop_assert!(world.race.report().len() <= w.max_candidates.max(1));
    }

    #[test]
    fn starts_are_spaced_unless_something_failed(w in weather()) {
        let mut world = w.world();
        world.run();
        let failures = failures(&world);
        let mut starts: Vec<Instant> = world.race.report().iter().filter_map(|r| r.started_at).collect();
        starts.sort();
        let delay = Duration::from_millis(w.delay).clamp(MIN_ATTEMPT_DELAY, MAX_ATTEMPT_DELAY);
        for pair in starts.windows(2) {
            let excused = failures.iter().any(|f| (pair[0]..=pair[1]).contains(f));
            prop_assert!(excused || pair[1] - pair[0] >= delay, "{:?}", world.log());
        }
    }

    #[test]
    fn nothing_is_started_while_a_candidate_is_established(w in weather()) {
        let mut world = w.world();
        world.run();
        let report = world.race.report();
        for r in &report {
            let Some((from, to)) = r.established_at.zip(r.ended_at) else { continue };
            let within = |s: &Instant| *s > from && *s < to;
            prop_assert!(!report.iter().filter_map(|r| r.started_at).any(|s| within(&s)), "{:?}", world.log());
        }
    }

    /// "A dead family AND a blocked protocol": whatever else is dead, one candidate that works is
    /// found.
    #[test]
    fn if_any_candidate_works_the_race_is_won(w in weather()) {
        let w = Weather { deadline: None, ..w };
        let mut world = w.world();
        world.run();
        let works = |r: &CandidateReport<Reason>| {
            let script = w.script(r.candidate.id);
            script.established.is_some() && script.failed.is_none()
        };
        if world.race.report().iter().any(works) {
            prop_assert!(world.outputs.iter().any(|(_, o)| matches!(o, Output::Won(_))), "{:?}", world.log());
        }
    }

    /// Without loss: connected within resolution, the first handshake and the grace.
    #[test]
    fn without_loss_the_connection_takes_resolution_one_handshake_and_the_grace(
        w in weather(),
        rtts in prop::collection::vec(1u64..800, 1..6),
    ) {
        let scripts = rtts.iter().map(|rtt| connects(2 * rtt).answers(*rtt, *rtt)).collect();
        let w = Weather { scripts, deadline: None, ..w };
        let mut world = w.world();
        world.run();
        let end = world.outputs.iter().find(|(_, o)| matches!(o, Output::Won(_) | Output::Lost));
        let Some((won_at, Output::Won(_))) = end else {
            // Possible only where no address came that a stack may use.
            prop_assert!(world.race.report().is_empty());
            return Ok(());
        };
        let report = world.race.report();
        let first = report.iter().filter(|r| r.started_at.is_some()).min_by_key(|r| r.started_at).unwrap();
        let slowest = *rtts.iter().max().unwrap();
        // All answers are in by 300 ms.
        let resolved = World::instant(300 + w.resolution_delay);
        prop_assert!(first.started_at.unwrap() <= resolved);
        let handshake = 2 * w.script(first.candidate.id).reachable.unwrap().1;
        let begun = (first.started_at.unwrap() - World::instant(0)).as_millis() as u64;
        let grace = if w.grace { w.delay.clamp(10, 2000).min(slowest) + 2 * slowest } else { 0 };
        prop_assert!(*won_at <= begun + handshake + grace, "{:?}", world.log());
    }

    #[test]
    fn a_race_is_a_function_of_its_inputs_and_early_wake_ups_change_nothing(w in weather()) {
        let (mut one, mut two, mut three) = (w.world(), w.world(), w.world());
        three.nosy = true;
        let log = one.run();
        prop_assert_eq!(&log, &two.run());
        prop_assert_eq!(&log, &three.run());
        prop_assert_eq!(one.race.report(), three.race.report());
    }
}

/// Anything at all, in any order, as a fuzzer would send it.
fn anything(rng: &mut Rng) -> Input<Reason> {
    let list = |rng: &mut Rng| {
        let one = |rng: &mut Rng| Address {
            addr: if rng.chance(0.5) {
                std::net::IpAddr::from(rng.u32().to_be_bytes())
            } else {
                std::net::IpAddr::from((u128::from(rng.u64() & 0xffff) << 112 | u128::from(rng.below(4))).to_be_bytes())
            },
            source: rng.chance(0.7).then(|| std::net::IpAddr::from(rng.u32().to_be_bytes())),
            rtt: rng.chance(0.3).then(|| Duration::from_nanos(rng.u64())),
        };
        (0..rng.below(40)).map(|_| one(rng)).collect::<Vec<_>>()
    };
    let path = PathId(rng.below(4) as u16);
    match rng.below(10) {
        0 => {
            let family = if rng.chance(0.5) { Family::V4 } else { Family::V6 };
            let result = if rng.chance(0.8) { Ok(list(rng)) } else { Err("failed") };
            Input::Answer { path, family, result }
        }
        1 => {
            let one = |rng: &mut Rng| Service {
                priority: rng.below(3) as u16,
                stacks: (0..rng.below(4)).map(|_| StackId(b"QTSX"[rng.below(4) as usize].into())).collect(),
                port: rng.chance(0.3).then(|| rng.u16()),
                hints: list(rng),
                target: rng.chance(0.3).then(|| list(rng)),
            };
            let count = rng.below(12);
            let result = if rng.chance(0.8) { Ok((0..count).map(|_| one(rng)).collect()) } else { Err("failed") };
            Input::Services { path, result }
        }
        n => {
            let progress = match n {
                2..5 => Progress::Reachable { rtt: Duration::from_nanos(rng.u64() >> rng.below(64)) },
                5 => Progress::Established,
                _ => Progress::Failed("failed"),
            };
            Input::Progress { candidate: CandidateId(rng.below(80) as u32), progress }
        }
    }
}

#[test]
fn random_inputs_in_random_order_never_panic_and_outputs_stay_bounded() {
    let mut ends = BTreeMap::new();
    for seed in 0..400 {
        let mut rng = Rng::from_number(seed);
        let config = Config {
            max_candidates: rng.below(80) as usize,
            attempt_delay: Duration::from_nanos(rng.u64() >> rng.below(64)),
            deadline: rng.chance(0.3).then(|| World::instant(rng.below(5000))),
            ..Config::default()
        };
        let paths = (0..rng.below(4) as u16).map(path).collect();
        let mut world = World::new(config, paths, stacks("SQTM"));
        let mut now = World::instant(0);
        // At least one round, so that the race's first outputs are taken.
        for _ in 0..1 + rng.below(400) {
            now += Duration::from_nanos(rng.u64() >> 64u64.saturating_sub(rng.below(32)).min(63));
            if rng.chance(0.2) {
                world.race.handle_timeout(now);
            } else {
                let input = anything(&mut rng);
                world.race.handle_input(now, input);
            }
            while let Some(output) = world.race.poll_output(now) {
                world.outputs.push((0, output));
            }
            let timeout = world.race.next_timeout();
            assert!(timeout.is_none_or(|at| at > now), "seed {seed}: {timeout:?} at {now:?}");
            let bound = config.clamped().max_candidates;
            assert!(world.race.report().len() <= bound, "seed {seed}");
            assert!(world.outputs.len() <= 2 * bound + 1, "seed {seed}");
        }
        check_outputs(&world);
        let end = world.outputs.iter().map(|(_, o)| o).find(|o| matches!(o, Output::Won(_) | Output::Lost));
        *ends.entry(end.map(|o| matches!(o, Output::Won(_)))).or_insert(0) += 1;
    }
    // The inputs are worth something only if they reach every kind of end, and none.
    assert!(ends.len() == 3 && ends.values().all(|n| *n > 20), "{ends:?}");
}
