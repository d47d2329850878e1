//! Establishment where names lead elsewhere, on a thousand random networks: service records with targets, ports and hints that are
//! right, wrong or dead, aliases, CNAMEs, search lists, and name servers that fail for some of it.
//!
//! What must hold is worked out here from the zone alone: a connection goes only where the records and the host's own addresses say,
//! is made if any of that works, and is begun no later than names are known and those before it have had their time.
//! The quick form runs 300 seeds, `SIM_SEEDS=1000` runs all.

use neater_base::Rng;
use neater_engine::{CandidateOutcome, EstablishmentError, Fate, Reason, SendOptions, Stack, Step};
use neater_testkit::names::{A, AAAA, HTTPS};
use neater_testkit::town::{SERVER_NAME, SERVER_V4, SERVER_V6, server_by_name};
use neater_testkit::{Ask, Fault, FlowId, Manner, Plan, Temper, Town, for_each_seed, with_seeds};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// There and back between the client and the name server.
const NAMES: Duration = Duration::from_millis(10);
const SLACK: Duration = Duration::from_millis(5);
/// How long a connection may take to be given up where nothing works: silent name servers take 9 s, and dead candidates their time.
const LIMIT: Duration = Duration::from_secs(30);

/// Where the server listens beside port 443.
const OTHER_PORT: u16 = 4600;
/// Where it listens, too, and no record of this host or of a host with its addresses sends anybody.
const TRAP: u16 = 4700;
const DEAD_V4: &str = "198.51.100.99";
const DEAD_V6: &str = "2001:db8:1::99";

/// What the target of a service record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The host itself.
    Own,
    /// Another name with the server's addresses.
    Elsewhere,
    /// Another name, at whose addresses nobody is, with a port at which this host is somebody else.
    Trap,
    /// Another name without addresses.
    Nowhere,
}

#[derive(Clone, Debug)]
struct Record {
    target: Target,
    alpn: &'static [&'static str],
    port: Option<u16>,
    hints: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    rtt: (Duration, Duration),
    faults: (Fault, Fault),
    /// Whether the host has addresses of its own.
    own: (bool, bool),
    records: Vec<Record>,
    /// The records stand at another name, to which the host's only record leads.
    alias: bool,
    /// The host is another name.
    cname: bool,
    /// A domain is tried first in which there is no such name.
    search: bool,
    temper: Temper,
}

fn fault(rng: &mut Rng) -> Fault {
    match rng.below(12) {
        0..=7 => Fault::None,
        8 => Fault::BlackHole,
        9 => Fault::Unreachable,
        10 => Fault::UdpBlocked,
        _ => Fault::TcpBlocked,
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Record {
    fn new(rng: &mut Rng) -> Self {
        let target = [Target::Own, Target::Own, Target::Elsewhere, Target::Elsewhere, Target::Trap, Target::Nowhere]
            [rng.below(6) as usize];
        let alpn: &[_] = [&["h3", "h2"][..], &["h3"], &["h2"]][rng.below(3) as usize];
        let port = match target {
            Target::Trap => Some(TRAP),
            _ if rng.chance(0.4) => Some(OTHER_PORT),
            _ => None,
        };
        // Of the server's addresses only such as lead to the server: a hint is not held against the record.
        let (right, dead) = ([SERVER_V6, SERVER_V4], [DEAD_V6, DEAD_V4]);
        let hints = match (target, rng.below(4)) {
            (Target::Trap, 0 | 1) => dead.map(address).to_vec(),
            (Target::Own | Target::Elsewhere | Target::Nowhere, 0) => right.map(address).to_vec(),
            (Target::Own | Target::Elsewhere | Target::Nowhere, 1) => vec![address(right[rng.below(2) as usize])],
            (Target::Own | Target::Elsewhere, 2) => vec![address(dead[rng.below(2) as usize])],
            _ => Vec::new(),
        };
        Self { target, alpn, port, hints }
    }

    /// A line of the zone for `owner`.
    fn line(&self, owner: &str, priority: usize) -> String {
        let target = match self.target {
            Target::Own => SERVER_NAME,
            Target::Elsewhere => "elsewhere.test",
            Target::Trap => "trap.test",
            Target::Nowhere => "nowhere.test",
        };
        let mut line = format!("{owner} HTTPS {priority} {target} alpn={} no-default-alpn", self.alpn.join(","));
        if let Some(port) = self.port {
            let _ = write!(line, " port={port}");
        }
        for (key, v6) in [("ipv4hint", false), ("ipv6hint", true)] {
            let of: Vec<_> = self.hints.iter().filter(|a| a.is_ipv6() == v6).map(ToString::to_string).collect();
            if !of.is_empty() {
                let _ = write!(line, " {key}={}", of.join(","));
            }
        }
        line + "\n"
    }
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_number(seed ^ 0x0073_7663_6273);
        let rtt = |rng: &mut Rng| MS * 2 * (1 + rng.below(100) as u32);
        let slow = |rng: &mut Rng| if rng.chance(0.3) { MS * rng.below(300) as u32 } else { Duration::ZERO };
        let kind = |rng: &mut Rng| [A, AAAA, HTTPS][rng.below(3) as usize];
        Self {
            seed,
            rtt: (rtt(&mut rng), rtt(&mut rng)),
            faults: (fault(&mut rng), fault(&mut rng)),
            own: (rng.chance(0.8), rng.chance(0.8)),
            records: (0..rng.below(4)).map(|_| Record::new(&mut rng)).collect(),
            alias: rng.chance(0.2),
            cname: rng.chance(0.2),
            search: rng.chance(0.2),
            temper: Temper {
                delay: if rng.chance(0.3) { MS * rng.below(100) as u32 } else { Duration::ZERO },
                slow: [(A, slow(&mut rng)), (AAAA, slow(&mut rng)), (HTTPS, slow(&mut rng))].into(),
                servfail: if rng.chance(0.15) { vec![kind(&mut rng)] } else { Vec::new() },
                silent: if rng.chance(0.15) { vec![kind(&mut rng)] } else { Vec::new() },
                ..Temper::default()
            },
        }
    }

    /// The name that has the host's records.
    fn host(&self) -> &'static str {
        if self.cname { "end.test" } else { SERVER_NAME }
    }

    fn zone(&self) -> String {
        let (host, mut zone) = (self.host(), String::new());
        if self.cname {
            let _ = writeln!(zone, "{SERVER_NAME} CNAME {host}");
        }
        for (has, record, addr) in [(self.own.0, "A", SERVER_V4), (self.own.1, "AAAA", SERVER_V6)] {
            if has {
                let _ = writeln!(zone, "{host} {record} {addr}");
            }
        }
        let holder = if self.alias { "alias.test" } else { host };
        if self.alias {
            let _ = writeln!(zone, "{host} HTTPS 0 {holder}");
        }
        for (i, r) in self.records.iter().enumerate() {
            zone += &r.line(holder, i + 1);
        }
        for (name, v4, v6) in [("elsewhere.test", SERVER_V4, SERVER_V6), ("trap.test", DEAD_V4, DEAD_V6)] {
            let _ = writeln!(zone, "{name} A {v4}\n{name} AAAA {v6}");
        }
        zone
    }

    fn ask() -> Ask {
        Ask::over(&[]).alpn(&["h3", "h2"]).within(LIMIT)
    }

    fn build(&self) -> Town {
        let plan = Plan::new(self.seed).delays(self.rtt.0 / 2, self.rtt.1 / 2).zone(self.zone());
        let mut plan = plan.temper(self.temper.clone()).fault_v4(self.faults.0).fault_v6(self.faults.1);
        if self.search {
            plan.resolv_conf = "search absent.test\noptions ndots:3\n".into();
        }
        let mut town = plan.build();
        for port in [443, OTHER_PORT, TRAP] {
            town.listen(&Self::ask(), port, Manner::echo());
        }
        town
    }

    fn fails(&self, kind: u16) -> bool {
        self.temper.servfail.contains(&kind) || self.temper.silent.contains(&kind)
    }

    /// When a question about this kind is answered, from when it is put; `None`: never, or with a failure.
    fn answered(&self, kind: u16) -> Option<Duration> {
        (!self.fails(kind)).then(|| NAMES + self.temper.delay + self.temper.slow[&kind])
    }

    /// When the host's own name is asked for.
    fn asked(&self) -> Option<Duration> {
        if !self.search {
            return Some(Duration::ZERO);
        }
        // Both families have to say that there is no such name; where one says nothing, the search has ended or goes on late.
        Some(self.answered(A)?.max(self.answered(AAAA)?))
    }

    /// Where the host's records may send a connection, with which stacks, and when that is known at the latest; `None`: not at a time
    /// that can be told.
    fn places(&self) -> Vec<(IpAddr, u16, Stack, Option<Duration>)> {
        let asked = self.asked();
        let at = |from: Option<Duration>, kind| Some(from? + self.answered(kind)?);
        let kind = |a: &IpAddr| if a.is_ipv4() { A } else { AAAA };
        let mut places = Vec::new();
        let mut add = |addr: IpAddr, port, stacks: &[Stack], known| {
            places.extend(stacks.iter().map(|s| (addr, port, *s, known)));
        };
        let own: Vec<IpAddr> = [(self.own.0, SERVER_V4), (self.own.1, SERVER_V6)]
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, a)| address(a))
            .collect();
        for a in &own {
            add(*a, 443, &[Stack::Quic, Stack::Tls], at(asked, kind(a)));
        }
        let https = at(asked, HTTPS);
        let records = if self.alias { at(https, HTTPS) } else { https };
        for r in &self.records {
            let port = r.port.unwrap_or(443);
            let stacks: Vec<Stack> = r.alpn.iter().map(|a| if *a == "h3" { Stack::Quic } else { Stack::Tls }).collect();
            for hint in &r.hints {
                // Once a family is answered, hints mean nothing any more: whether they are tried is a matter of what comes first.
                let known = records.filter(|_| self.fails(kind(hint)));
                add(*hint, port, &stacks, known);
                if r.target == Target::Own {
                    // They stand for the host's own addresses as long as those are not known.
                    add(*hint, 443, &[Stack::Quic, Stack::Tls], known);
                }
            }
            // Below an alias or a CNAME, the host's name is a target like any other, and the host's addresses are asked for again.
            let addresses: Vec<IpAddr> = match r.target {
                Target::Own => own.clone(),
                Target::Elsewhere => vec![address(SERVER_V4), address(SERVER_V6)],
                Target::Trap => vec![address(DEAD_V4), address(DEAD_V6)],
                Target::Nowhere => Vec::new(),
            };
            for a in addresses {
                add(a, port, &stacks, at(records, kind(&a)));
            }
        }
        places
    }

    fn lives(&self, addr: IpAddr, port: u16, stack: Stack) -> bool {
        let ours = [SERVER_V4, SERVER_V6].iter().any(|a| address(a) == addr) && [443, OTHER_PORT].contains(&port);
        ours && match if addr.is_ipv4() { self.faults.0 } else { self.faults.1 } {
            Fault::None => true,
            Fault::UdpBlocked => !stack.over_udp(),
            Fault::TcpBlocked => stack.over_udp(),
            _ => false,
        }
    }

    fn rtt_to(&self, addr: IpAddr) -> Duration {
        if addr.is_ipv4() { self.rtt.0 } else { self.rtt.1 }
    }
}

/// One run: connects where it may, in time, and leaves nothing.
fn establish(seed: u64) -> u64 {
    let case = Case::new(seed);
    let mut town = case.build();
    let flow = town.open_to(&Case::ask(), &[server_by_name()], Manner::default());
    let decided = town.play.run_until(LIMIT + S, |p| p.flow(flow).is_ready() || p.flow(flow).is_over());
    assert!(decided, "the run hangs: {case:?}");
    check(&case, &mut town, flow);
    if town.play.flow(flow).is_ready() {
        town.play.say(flow, "ping", SendOptions { is_final: true, ..SendOptions::default() });
        assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()), "{case:?}");
        assert_eq!(town.play.flow(flow).received, b"ping", "{case:?}");
    }
    let world = town.play.world().clone();
    town.play.end();
    world.digest()
}

fn check(case: &Case, town: &mut Town, flow: FlowId) {
    let places = case.places();
    let engine = town.play.engine(flow.node);
    let all = engine.candidates(flow.conn);
    let timeline: Vec<_> = engine.timeline(flow.conn).iter().map(|t| format!("{:?} {}", t.at, t.step)).collect();
    let explain = || format!("{case:#?}\n{}\n{}", case.zone(), timeline.join("\n"));
    let is_at = |c: &CandidateOutcome| -> Vec<Option<Duration>> {
        let here = (c.addr.ip(), c.addr.port(), c.stack);
        places.iter().filter(|(a, port, s, _)| (*a, *port, *s) == here).map(|(.., known)| *known).collect()
    };
    // Not only the winner: nobody is to be bothered whom no record means.
    for c in all.iter().filter(|c| c.started.is_some()) {
        // The end of a chain of aliases is an endpoint of its own, and has no addresses here.
        assert!(!is_at(c).is_empty(), "{} over {} is nowhere in the records: {}", c.addr, c.stack, explain());
    }
    let live = places.iter().filter(|(a, port, s, known)| known.is_some() && case.lives(*a, *port, *s));
    if !town.play.flow(flow).is_ready() {
        assert_eq!(live.count(), 0, "{:?}: {}", town.play.flow(flow).establishment_error(), explain());
        return;
    }
    let took = town.play.flow(flow).establishment().unwrap();
    let winner = all.iter().find(|c| c.fate == Fate::Won).unwrap_or_else(|| panic!("no winner: {}", explain()));
    assert!(case.lives(winner.addr.ip(), winner.addr.port(), winner.stack), "a dead one won: {}", explain());
    // Not later than it was known, and the first address of any kind, and those that began before it.
    let Some(known) = is_at(winner).into_iter().flatten().min() else { return };
    let Some(first) = places.iter().filter_map(|(.., known)| *known).min() else { return };
    let started = winner.started.unwrap();
    let before = all.iter().filter(|c| c.started.is_some_and(|s| s < started)).count() as u32;
    let could_start = known.max(first + RESOLUTION_DELAY) + ATTEMPT_DELAY * before;
    assert!(started <= could_start + SLACK, "started at {started:?} instead of {could_start:?}: {}", explain());
    let trips = if winner.stack == Stack::Tls { 2 } else { 1 };
    let handshake = trips * case.rtt_to(winner.addr.ip());
    // Better ones that were silent, or had answered, or failed while they were waited for. What is better may have changed since with
    // what became known, so that all others count.
    let others = all.iter().filter(|c| c.started.is_some() && c.fate != Fate::Won);
    let grace = others.map(|c| {
        let trips = if c.reachable.is_some() { 2 * case.rtt_to(c.addr.ip()) } else { Duration::ZERO };
        ATTEMPT_DELAY.min(handshake / 2) + trips
    });
    let bound = started + handshake + grace.max().unwrap_or_default() + SLACK;
    assert!(took <= bound, "took {took:?}, {bound:?} was promised: {}", explain());
    assert!(took >= started + handshake, "faster than the network: {}", explain());
}

/// What is planned is what is tried where nobody answers, and takes no longer to find out than names take.
fn keep_to_the_plan(seed: u64) {
    let case = Case { faults: (Fault::BlackHole, Fault::BlackHole), ..Case::new(seed) };
    let ends = |town: &mut Town, flow: FlowId| {
        assert!(town.play.run_until(LIMIT + S, |p| p.flow(flow).is_over()), "the run hangs: {case:?}");
        town.play.flow(flow).establishment_error().cloned().expect("nobody answers")
    };
    let mut town = case.build();
    let began = town.play.world().now();
    let (client, request) = (town.client, town.request(&Case::ask()));
    let conn = town.play.engine(client).plan(&request, &[server_by_name()].into(), &[]).expect("a plan");
    let flow = town.play.adopt(client, conn, Manner::default());
    let planned = ends(&mut town, flow);
    assert_eq!(town.play.engine(client).stats().attempts, 0, "something was tried: {case:?}");
    let took = town.play.world().now() - began;
    town.play.end();

    let mut town = case.build();
    let flow = town.open_to(&Case::ask(), &[server_by_name()], Manner::default());
    let raced = ends(&mut town, flow);
    let timeline = town.play.engine(client).timeline(flow.conn);
    town.play.end();
    let starts = |e: &EstablishmentError| e.candidates.iter().map(|c| (c.stack, c.addr, c.started)).collect::<Vec<_>>();
    assert_eq!(starts(&planned), starts(&raced), "{case:?}");
    assert_eq!(planned.resolution, raced.resolution, "{case:?}");
    let reason = if planned.candidates.is_empty() { raced.reason } else { Reason::Planned };
    assert_eq!(planned.reason, reason, "{case:?}");
    // All that is heard of names, and nobody was waited for but name servers.
    let resolved = |s: &Step| matches!(s, Step::Resolved { .. });
    let last = timeline.iter().filter(|t| resolved(&t.step)).map(|t| t.at).max();
    assert!(last.is_none_or(|at| took >= at), "{took:?} {last:?} {case:?}");
    if !planned.candidates.is_empty() && case.temper.silent.is_empty() {
        assert!(took <= S * 2, "{took:?}: {case:?}");
    }
}

#[test]
fn what_is_planned_is_what_is_tried_1000_seeds() {
    for_each_seed("establishment_services", "what_is_planned_is_what_is_tried_1000_seeds", 1000, keep_to_the_plan);
}

#[test]
fn names_that_lead_elsewhere_1000_seeds() {
    for_each_seed("establishment_services", "names_that_lead_elsewhere_1000_seeds", 1000, |seed| {
        establish(seed);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    with_seeds("establishment_services", "the_same_seed_gives_the_same_run", 20, |seed| {
        assert_eq!(establish(seed), establish(seed));
    });
}
