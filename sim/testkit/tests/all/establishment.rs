//! Establishment on a thousand random networks: never later than promised, nothing left, the same again.
//!
//! `SIM_SEEDS=N` runs so many seeds in place of a thousand.

use neater_base::Rng;
use neater_engine::{CandidateOutcome, Fate, SendOptions, Stack};
use neater_netsim::DEFAULT_START;
use neater_property::Role;
use neater_testkit::names::{A, AAAA};
use neater_testkit::town::{SERVER_NAME, SERVER_V4, SERVER_V6, server_by_name};
use neater_testkit::{Ask, Fault, FlowId, Lie, Manner, Plan, Playground, Temper, Town, for_each_seed, with_seeds};
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// RFC 8305 section 8: Connection Attempt Delay and Resolution Delay.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// There and back between the client and the name server.
const NAMES: Duration = Duration::from_millis(10);
/// What rounding and processing may cost.
const SLACK: Duration = Duration::from_millis(5);
/// How long a connection may take to be given up where nothing works.
const LIMIT: Duration = Duration::from_secs(15);

/// A network made from a seed.
#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    /// Round trips to the server, by IPv4 and by IPv6.
    rtt: (Duration, Duration),
    faults: (Fault, Fault),
    /// What the server listens with.
    stacks: Vec<Stack>,
    tls12: bool,
    /// An address of each family at which nobody is.
    dead: (bool, bool),
    temper: Temper,
}

fn fault(rng: &mut Rng) -> Fault {
    match rng.below(20) {
        0..=11 => Fault::None,
        12..=14 => Fault::BlackHole,
        15 => Fault::Unreachable,
        16 | 17 => Fault::UdpBlocked,
        18 => Fault::UdpRejected,
        _ => Fault::TcpBlocked,
    }
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_number(seed ^ 0x0065_7374_6162);
        let rtt = |rng: &mut Rng| MS * 2 * (1 + rng.below(150) as u32);
        let slow = |rng: &mut Rng| if rng.chance(0.3) { MS * rng.below(300) as u32 } else { Duration::ZERO };
        Self {
            seed,
            rtt: (rtt(&mut rng), rtt(&mut rng)),
            faults: (fault(&mut rng), fault(&mut rng)),
            stacks: match rng.below(10) {
                0 => vec![Stack::Quic],
                1 | 2 => vec![Stack::Tls],
                _ => vec![Stack::Quic, Stack::Tls],
            },
            tls12: rng.chance(0.25),
            dead: (rng.chance(0.1), rng.chance(0.1)),
            temper: Temper {
                delay: if rng.chance(0.3) { MS * rng.below(200) as u32 } else { Duration::ZERO },
                slow: [(A, slow(&mut rng)), (AAAA, slow(&mut rng))].into(),
                truncates: rng.chance(0.05),
                lie: [Lie::None, Lie::None, Lie::None, Lie::OtherId, Lie::OtherName, Lie::Garbage]
                    [rng.below(6) as usize],
                ..Temper::default()
            },
        }
    }

    fn build(&self) -> Town {
        let mut zone = String::new();
        for (dead, line) in [(self.dead.0, "A 198.51.100.99"), (self.dead.1, "AAAA 2001:db8:1::99")] {
            if dead {
                zone += &format!("{SERVER_NAME} {line}\n");
            }
        }
        zone += &format!("{SERVER_NAME} A {SERVER_V4}\n{SERVER_NAME} AAAA {SERVER_V6}\n");
        let plan = Plan::new(self.seed).delays(self.rtt.0 / 2, self.rtt.1 / 2).zone(zone).temper(self.temper.clone());
        let mut town = plan.fault_v4(self.faults.0).fault_v6(self.faults.1).build();
        town.listen(&Ask::over(&self.stacks), 443, Manner::echo());
        town
    }

    fn ask(&self) -> Ask {
        let ask = Ask::over(&[]).within(LIMIT);
        if self.tls12 { ask.tls12() } else { ask }
    }

    /// Whether a stack gets through to an address, and is served there.
    fn lives(&self, stack: Stack, addr: IpAddr) -> bool {
        let fault = if addr.is_ipv4() { self.faults.0 } else { self.faults.1 };
        let passes = match fault {
            Fault::None => true,
            Fault::BlackHole | Fault::Unreachable => false,
            Fault::UdpBlocked | Fault::UdpRejected => !stack.over_udp(),
            Fault::TcpBlocked => stack.over_udp(),
        };
        let ours = [SERVER_V4, SERVER_V6].iter().any(|a| a.parse() == Ok(addr));
        passes && ours && self.stacks.contains(&stack) && !(self.tls12 && stack.over_udp())
    }

    fn rtt_to(&self, addr: IpAddr) -> Duration {
        if addr.is_ipv4() { self.rtt.0 } else { self.rtt.1 }
    }

    /// Round trips of a handshake: TCP takes 1, TLS 1.3 one more, TLS 1.2 two more, QUIC 1.
    fn handshake(&self, stack: Stack, addr: IpAddr) -> Duration {
        let trips = match stack {
            Stack::Tls if self.tls12 => 3,
            Stack::Tls => 2,
            _ => 1,
        };
        self.rtt_to(addr) * trips
    }

    /// When the addresses of a family are known.
    fn answered(&self, v4: bool) -> Duration {
        let t = &self.temper;
        let slow = t.slow[if v4 { &A } else { &AAAA }];
        // A truncated answer comes undelayed by the record's own slowness; then TCP's handshake and the question again.
        let over_tcp = if t.truncates { 2 * NAMES + t.delay + slow } else { Duration::ZERO };
        NAMES + t.delay + slow + over_tcp
    }

    /// When the race begins: with IPv6, or a Resolution Delay after IPv4.
    fn opens(&self) -> Duration {
        let (v4, v6) = (self.answered(true), self.answered(false));
        v6.min(v4 + RESOLUTION_DELAY)
    }
}

/// How long an established candidate may have waited for better ones: half its handshake, at most an attempt delay, where
/// one of them was silent to the end; and two round trips of one that had answered.
fn grace(case: &Case, winner: &CandidateOutcome, all: &[CandidateOutcome], handshake: Duration) -> Duration {
    let better = |c: &&CandidateOutcome| c.stack == Stack::Quic && winner.stack == Stack::Tls;
    let started = all.iter().filter(better).filter(|c| c.started.is_some() && !matches!(c.fate, Fate::Failed(_)));
    let waits = started.map(|c| match c.reachable {
        None => ATTEMPT_DELAY.min(handshake / 2),
        Some(_) => ATTEMPT_DELAY.min(handshake / 2) + 2 * case.rtt_to(c.addr.ip()),
    });
    // One that failed during the grace was waited for until then.
    let failed = all.iter().filter(better).filter(|c| matches!(c.fate, Fate::Failed(_)) && c.started.is_some());
    let failed = failed.map(|_| ATTEMPT_DELAY.min(handshake / 2));
    waits.chain(failed).max().unwrap_or_default()
}

/// One run: connects, checks the promise, uses the connection, and leaves nothing.
fn establish(seed: u64) -> u64 {
    let case = Case::new(seed);
    let mut town = case.build();
    let flow = town.open_to(&case.ask(), &[server_by_name()], Manner::default());
    let decided = town.play.run_until(LIMIT + S, |p| p.flow(flow).is_ready() || p.flow(flow).is_over());
    assert!(decided, "the run hangs: {case:?}");
    let any_lives = [Stack::Quic, Stack::Tls]
        .iter()
        .any(|s| [SERVER_V4, SERVER_V6].iter().any(|a| case.lives(*s, a.parse().unwrap())));
    if any_lives {
        assert!(town.play.flow(flow).is_ready(), "{case:?}: {:?}", town.play.flow(flow).establishment_error());
        check(&case, &mut town, flow);
        town.play.say(flow, "ping", SendOptions { is_final: true, ..SendOptions::default() });
        assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()), "{case:?}");
        assert_eq!(town.play.flow(flow).received, b"ping", "{case:?}");
        establish_again(&case, &mut town, flow);
    } else {
        let error = town.play.flow(flow).establishment_error().unwrap_or_else(|| panic!("{case:?}: nothing lives"));
        assert!(!error.candidates.is_empty() && error.candidates.iter().all(|c| c.fate != Fate::Won), "{error}");
    }
    let world = town.play.world().clone();
    town.play.end();
    world.digest()
}

/// What has worked is tried alone: the second connection takes one attempt and one handshake, whatever the first had to
/// find out.
fn establish_again(case: &Case, town: &mut Town, first: FlowId) {
    let engine = town.play.engine(first.node);
    let candidates = engine.candidates(first.conn);
    let winner = candidates.iter().find(|c| c.fate == Fate::Won).unwrap_or_else(|| panic!("no winner: {case:?}"));
    let attempts = engine.stats().attempts;
    town.play.run_for(2 * S);
    let flow = town.open_to(&case.ask(), &[server_by_name()], Manner::default());
    assert!(town.play.run_until(LIMIT, |p| p.flow(flow).is_ready() || p.flow(flow).is_over()), "{case:?}");
    let took = town.play.flow(flow).establishment().unwrap_or_else(|| panic!("{case:?}"));
    let handshake = case.handshake(winner.stack, winner.addr.ip());
    // One that takes longer than the attempt delay has others beside it, and wins at once nevertheless.
    assert!(took <= handshake + SLACK, "{took:?} instead of {handshake:?}: {case:#?}");
    let engine = town.play.engine(flow.node);
    assert_eq!(engine.stack(flow.conn), Some(winner.stack), "{case:?}");
    let alone = handshake < ATTEMPT_DELAY;
    assert!(!alone || engine.stats().attempts == attempts + 1, "{case:?}");
    town.play.release(flow);
}

fn check(case: &Case, town: &mut Town, flow: FlowId) {
    let took = town.play.flow(flow).establishment().unwrap();
    let engine = town.play.engine(flow.node);
    let all = engine.candidates(flow.conn);
    let timeline: Vec<_> = engine.timeline(flow.conn).iter().map(|t| format!("{:?} {}", t.at, t.step)).collect();
    let explain = || format!("{case:#?}\n{}", timeline.join("\n"));
    let winner = all.iter().find(|c| c.fate == Fate::Won).unwrap_or_else(|| panic!("no winner: {}", explain()));
    let addr = winner.addr.ip();
    assert!(case.lives(winner.stack, addr), "a dead candidate won: {}", explain());
    // No candidate that was started before the winner cost more than one attempt delay.
    let started = winner.started.unwrap();
    let before = all.iter().filter(|c| c.started.is_some_and(|at| at < started)).count() as u32;
    let could_start = case.opens().max(case.answered(addr.is_ipv4())) + ATTEMPT_DELAY * before;
    assert!(started <= could_start + SLACK, "started at {started:?} instead of {could_start:?}: {}", explain());
    let handshake = case.handshake(winner.stack, addr);
    let bound = started + handshake + grace(case, winner, &all, handshake) + SLACK;
    assert!(took <= bound, "took {took:?}, {bound:?} was promised: {}", explain());
    assert!(took >= started + handshake, "faster than the network: {}", explain());
}

#[test]
fn establishment_1000_seeds() {
    for_each_seed("establishment", "establishment_1000_seeds", 1000, |seed| {
        establish(seed);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    with_seeds("establishment", "the_same_seed_gives_the_same_run", 20, |seed| {
        assert_eq!(establish(seed), establish(seed));
    });
}

// --- with losses -----------------------------------------------------------------------------------------------------

/// Times at which the ways to the server are cut: whatever is sent meanwhile is lost.
///
/// Losses by time and not by the index of a packet, so that they are the same for a candidate alone as among others.
#[derive(Clone, Debug)]
struct Outages {
    /// From, to, and whether IPv4 or IPv6.
    windows: Vec<(Duration, Duration, bool)>,
}

impl Outages {
    fn new(rng: &mut Rng) -> Self {
        let window = |rng: &mut Rng| {
            let from = MS * rng.below(1500) as u32;
            (from, from + MS * (5 + rng.below(300) as u32), rng.chance(0.5))
        };
        let count = 1 + rng.below(5);
        Self { windows: (0..count).map(|_| window(rng)).collect() }
    }

    /// When something changes, in order.
    fn edges(&self) -> Vec<Duration> {
        let mut edges: Vec<_> = self.windows.iter().flat_map(|w| [w.0, w.1]).collect();
        edges.sort();
        edges
    }

    fn is_down(&self, at: Duration, v4: bool) -> bool {
        self.windows.iter().any(|w| w.2 == v4 && w.0 <= at && at < w.1)
    }
}

/// Runs while the ways come and go, until `done` or `limit`; times count from the beginning of the world.
fn run_through(town: &mut Town, outages: &Outages, limit: Duration, mut done: impl FnMut(&Playground) -> bool) -> bool {
    let edges = outages.edges().into_iter().filter(|e| *e < limit);
    for edge in edges.chain([limit]) {
        let elapsed = town.play.now() - DEFAULT_START;
        if elapsed > edge {
            continue;
        }
        if town.play.run_until(edge - elapsed, |p| done(p)) {
            return true;
        }
        for (v4, way) in [(true, town.v4), (false, town.v6)] {
            for link in [way.to, way.from] {
                let config = town.play.world().link_config(link);
                let down = outages.is_down(edge, v4);
                if config.down != down {
                    town.play.world().set_link(link, config.with_down(down));
                }
            }
        }
    }
    false
}

/// The same network for all runs of one seed: names in a file, so that time is that of the race alone.
fn lossy_town(case: &Case) -> Town {
    let town = case.build();
    let host = town.play.host(town.client);
    let hosts = format!("{SERVER_V4} {SERVER_NAME}\n{SERVER_V6} {SERVER_NAME}\n").into_bytes();
    town.play.world().set_name_config(host, neater_base::net::NameConfig { resolv_conf: Vec::new(), hosts });
    town
}

/// When a candidate would have been established alone, begun at the time at which the race began it, through the same
/// outages; `None`: not within the limit.
fn alone(case: &Case, outages: &Outages, c: &CandidateOutcome, begun: Duration) -> Option<Duration> {
    let mut town = lossy_town(case);
    let mut security = case.ask().security(Role::Initiate);
    security.server_name = Some(SERVER_NAME.into());
    let ask = Ask { stacks: vec![c.stack], security: Some(security), ..case.ask() };
    run_through(&mut town, outages, begun, |_| false);
    let flow = town.open_to(&ask, &[c.addr.into()], Manner::default());
    run_through(&mut town, outages, begun + LIMIT, |p| p.flow(flow).is_ready() || p.flow(flow).is_over());
    town.play.flow(flow).ready_at.map(|at| at - DEFAULT_START)
}

/// When a candidate that was not started would have been, had nobody else been established: from the call to initiate. Whoever has
/// answered holds others back for two of its round trips or an attempt delay, at most 2 s, and the others take turns.
fn would_start(all: &[CandidateOutcome], which: usize) -> Duration {
    let free = all.iter().filter_map(|c| {
        let started = c.started?;
        let hold = |at: Duration| at + ATTEMPT_DELAY.max(2 * (at - started)).min(2 * S);
        Some(c.reachable.map_or(Duration::ZERO, hold).max(started + ATTEMPT_DELAY))
    });
    let turns = all[..which].iter().filter(|c| c.started.is_none()).count() as u32;
    free.max().unwrap_or_default() + turns * ATTEMPT_DELAY
}

/// With losses, the promise is relative: the race is decided no later than the first of the candidates that it started
/// would have been established alone, begun at the same time and through the same losses, plus the grace for better ones.
/// Candidates that were never started count from when they were held back no longer.
fn establish_through_outages(seed: u64) {
    let mut case = Case::new(seed);
    (case.dead, case.temper) = ((false, false), Temper::default());
    let mut rng = Rng::from_number(seed ^ 0x6f75_7461_6765);
    let outages = Outages::new(&mut rng);
    let mut town = lossy_town(&case);
    run_through(&mut town, &outages, MS, |_| false);
    let flow = town.open_to(&case.ask(), &[server_by_name()], Manner::default());
    let opened = town.play.flow(flow).opened_at - DEFAULT_START;
    run_through(&mut town, &outages, LIMIT + S, |p| p.flow(flow).is_ready() || p.flow(flow).is_over());
    let decided = town.play.flow(flow).is_ready() || town.play.flow(flow).is_over();
    assert!(decided, "the run hangs: {case:?} {outages:?}");
    let engine = town.play.engine(flow.node);
    let all = engine.candidates(flow.conn);
    let timeline: Vec<_> = engine.timeline(flow.conn).iter().map(|t| format!("{:?} {}", t.at, t.step)).collect();
    let ready = town.play.flow(flow).ready_at.map(|at| at - DEFAULT_START);
    let mut first: Option<(Duration, Duration)> = None;
    for (which, c) in all.iter().enumerate() {
        // One that was held back is compared from the end of the hold.
        let begun = opened + c.started.unwrap_or_else(|| would_start(&all, which));
        if let Some(at) = alone(&case, &outages, c, begun)
            && first.is_none_or(|(best, _)| at < best)
        {
            let better = c.stack == Stack::Tls && all.iter().any(|o| o.stack == Stack::Quic && o.started.is_some());
            let grace = ATTEMPT_DELAY.min((at - begun) / 2) + 2 * case.rtt.0.max(case.rtt.1);
            first = Some((at, if better { grace } else { Duration::ZERO }));
        }
    }
    if let Some((at, grace)) = first
        && at < opened + LIMIT
    {
        let explain = format!("{case:#?}\n{outages:?}\n{}", timeline.join("\n"));
        let ready = ready.unwrap_or_else(|| panic!("alone it takes {at:?}, in the race for ever: {explain}"));
        assert!(ready <= at + grace + SLACK, "alone at {at:?}, in the race at {ready:?}: {explain}");
    }
    town.play.end();
}

#[test]
fn losses_delay_a_race_no_more_than_its_fastest_candidate() {
    for_each_seed("establishment", "losses_delay_a_race_no_more_than_its_fastest_candidate", 300, |seed| {
        establish_through_outages(seed);
    });
}

/// The time that a cached outcome was tried alone counts, too.
#[test]
fn a_time_limit_holds_although_an_outcome_is_remembered() {
    for limit in [100, 250, 600] {
        let limit = Duration::from_millis(limit);
        let mut town = Plan::new(50).build();
        let ask = Ask::over(&[Stack::Tcp]).within(limit);
        town.listen(&ask, 443, Manner::patient());
        let first = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(Duration::from_secs(5), |p| p.flow(first).is_ready()));
        let to = town.v4.to;
        town.play.world().set_link(to, neater_link::LinkConfig::default().with_loss(1.0));
        let before = town.play.now();
        let late = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(Duration::from_secs(30), |p| p.flow(late).is_over()));
        assert_eq!(town.play.now() - before, limit);
        let error = town.play.flow(late).establishment_error().expect("not established");
        assert_eq!(error.reason, neater_engine::Reason::Timeout, "{error}");
    }
}
