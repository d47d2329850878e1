//! Doing a plan: faults in their time, then the calm, then the end of everything, and what must hold all along.
//!
//! *Responsible for* the order of things and for the invariants that are not a flow's own: bounds of memory, progress,
//! ends, and nothing left. *Not for* drawing plans (`draw`) or making failures small (`minimise`).

use crate::client;
use crate::ledger::{Fate, Ledger};
use crate::node::Node;
use crate::plan::{Fault, Plan, SystemMood};
use crate::proof::{judge, proofs};
use crate::server::LISTEN_AGAIN;
use crate::world::Network;
use core::ops::Range;
use core::time::Duration;
use neater_base::net::{NetEvent, Ready, Token};
use neater_base::{Instant, WallTime};
use neater_netsim::DEFAULT_WALL;
use neater_testkit::Executor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A flow that does not move for this long in the calm has stalled: TCP tries again every 60 s at least (RFC 6298 section
/// 2.5), a SYN that is never answered takes 63 s, and what depends on both takes as long as both.
pub const STALL: Duration = Duration::from_secs(150);
/// A host that stood still in the middle of a handshake makes a first round trip as long as that. QUIC's probe timeout is three
/// times its first sample then (RFC 9002 sections 5.3 and 6.2.1) and doubles each time, and a connection does not end before
/// three of them have passed (RFC 9000 section 10.1): nine times as long as the host stood still. Who is silent for less has
/// not stalled.
const PER_FREEZE: u32 = 9;
/// A TCP connection whose address has gone from the host that sends probes into a closed window fifteen times, a minute apart, and only
/// then fails: so long it takes whoever opened one at an address that did not last, and set no timeout.
const ABANDONED: Duration = Duration::from_secs(16 * 60);
/// How long after the calm every program must be over.
pub const FINISH: Duration = Duration::from_secs(900);
/// How long after its last program an engine may hold anything. A QUIC connection drains for three probe timeouts (RFC 9000
/// section 10.2), which a round trip over an outage of a minute makes nine minutes.
pub const EMPTY: Duration = Duration::from_secs(600);
/// How long after its last process the network may hold anything: an abandoned TCP connection sends again eight times.
pub const GONE: Duration = Duration::from_secs(1200);
/// For so long the oldest of too many handshakes keeps its place (`neater_engine::Limits::handshakes`).
const HASTE: Duration = Duration::from_secs(2);
/// How long a proof of life may take: a few round trips of a second at most, and a handshake that is tried again.
const PROOF: Duration = Duration::from_secs(60);
/// Bounds are looked at after so many events of a world.
const LOOK: u32 = 16;
/// A process that was stopped for longer learns of it (`NetEvent::Resumed`).
const RESUMED: Duration = Duration::from_secs(10);

/// What came of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What could not be true, if something was.
    pub failure: Option<String>,
    /// A hash of everything that happened: equal for equal plans.
    pub digest: u64,
    /// How long it took in the world.
    pub virtual_time: Duration,
    /// Flows that were opened, the proofs of life among them.
    pub flows: usize,
    /// Flows whose opener did all it had to do.
    pub done: usize,
    /// Services that were used once more when nothing was wrong any more, and worked.
    pub proofs: usize,
    /// Bytes that programs have heard.
    pub bytes: u64,
    /// The time line, if it was asked for.
    pub lines: Vec<String>,
}

/// How much of a run is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Telling {
    /// Nothing but its outcome.
    Nothing,
    /// What programs and faults do.
    Events,
    /// Each packet, too, at each place.
    Packets,
}

/// Does a plan, and tells of it. A panic is a failure like any other.
#[must_use]
pub fn run(plan: &Plan, telling: Telling) -> Outcome {
    let tracing = telling >= Telling::Events;
    let mut run = Run::new(plan, tracing);
    run.network.world.trace(telling == Telling::Packets);
    let (failure, panicked) = match catch_unwind(AssertUnwindSafe(|| run.whole())) {
        Ok(outcome) => (outcome.err(), false),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().copied();
            let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            (Some(format!("panic: {said}")), true)
        }
    };
    let start = run.start;
    let world = run.network.world.clone();
    if failure.is_some() && tracing {
        for line in run.ledger.describe() {
            run.ledger.note(world.now(), || line);
        }
    }
    let (ledger, proofs) = (run.ledger.clone(), run.proven);
    for e in world.take_trace() {
        ledger.note(e.time, || {
            let link = e.link.map_or(String::new(), |l| format!(" {l:?}"));
            format!("packet{link} {} > {} {:?}, {} bytes: {:?}", e.from, e.to, e.kind, e.size, e.verdict)
        });
    }
    // The rest goes quietly.
    ledger.with(|b| b.killing = true);
    if panicked {
        // Nobody knows what state it is in; it must not panic again on the way out.
        core::mem::forget(run);
    } else {
        drop(run);
    }
    Outcome {
        failure,
        digest: world.digest(),
        virtual_time: world.now() - start,
        flows: ledger.with(|b| b.flows.len()),
        done: ledger.with(|b| b.flows.iter().filter(|f| f.fates()[0] == Fate::Done).count()),
        proofs,
        bytes: ledger.with(|b| b.bytes),
        lines: ledger.take_lines(),
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    End(usize),
}

struct Run {
    plan: Rc<Plan>,
    start: Instant,
    nodes: Vec<Option<Node>>,
    lives: Vec<u64>,
    /// When the power went last.
    dark: Vec<Instant>,
    /// When a process was stopped.
    stopped: Vec<Option<Instant>>,
    executor: Executor,
    network: Network,
    ledger: Ledger,
    calm: bool,
    /// The programs of the plan that are proofs of life, which begin after all others.
    proofs: Range<usize>,
    /// How many of them have been given.
    proven: usize,
}

impl Run {
    fn new(plan: &Plan, tracing: bool) -> Self {
        let network = Network::new(plan);
        let mut plan = plan.clone();
        let own = plan.apps.len();
        plan.apps.extend(proofs(&plan));
        let proofs = own..plan.apps.len();
        let plan = Rc::new(plan);
        let start = network.world.now();
        let ledger = Ledger::new(start, tracing);
        // A reset between system and program, or from nobody, loses what was acknowledged; so does a lost power.
        let hostile = plan.hosts.iter().enumerate().filter(|(_, h)| h.system == SystemMood::Hostile).map(|(n, _)| n);
        let struck = plan.faults.iter().filter_map(|f| match f.what {
            Fault::Resets { host, .. } | Fault::PowerCut { host } => Some(host),
            _ => None,
        });
        ledger.with(|b| b.lossy.extend(hostile.chain(struck)));
        let executor = Executor::new(network.world.clone());
        let count = plan.hosts.len();
        let mut run = Self {
            plan,
            start,
            nodes: (0..count).map(|_| None).collect(),
            lives: vec![0; count],
            dark: vec![start; count],
            stopped: vec![None; count],
            executor,
            network,
            ledger,
            calm: false,
            proofs,
            proven: 0,
        };
        for host in 0..count {
            run.power_on(host);
        }
        run
    }

    fn now(&self) -> Instant {
        self.network.world.now()
    }

    fn whole(&mut self) -> Result<(), String> {
        for (at, step) in self.steps() {
            self.go(self.start + Duration::from_millis(at))?;
            self.ledger.note(self.now(), || match step {
                Step::Begin(n) => format!("fault {n} begins: {:?}", self.plan.faults[n].what),
                Step::End(n) => format!("fault {n} ends"),
            });
            match step {
                Step::Begin(n) => self.begin(n),
                Step::End(n) => self.end(n),
            }
            self.check()?;
        }
        self.go(self.start + Duration::from_millis(self.plan.calm_at))?;
        self.heal();
        self.finish()?;
        self.prove()?;
        self.empty()?;
        self.gone()
    }

    /// What happens when, in order.
    fn steps(&self) -> Vec<(u64, Step)> {
        let mut steps = Vec::new();
        for (n, fault) in self.plan.faults.iter().enumerate() {
            steps.push((fault.at, Step::Begin(n)));
            steps.push((fault.at + fault.lasts, Step::End(n)));
        }
        steps.sort_by_key(|(at, _)| *at);
        steps.retain(|(at, _)| *at <= self.plan.calm_at);
        steps
    }

    /// Lets time pass.
    fn go(&mut self, until: Instant) -> Result<(), String> {
        let (ledger, nodes) = (&self.ledger, &self.nodes);
        let mut events = 0u32;
        self.executor.run_until(until, || {
            events = events.wrapping_add(1);
            if events.is_multiple_of(LOOK)
                && let Some(why) = nodes.iter().flatten().find_map(Node::over_bounds)
            {
                ledger.fail(|| format!("over its bounds: {why}"));
            }
            ledger.has_failed()
        });
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(why) = self.ledger.with(|b| b.failure.clone()) {
            return Err(why);
        }
        match self.nodes.iter().flatten().find_map(Node::over_bounds) {
            Some(why) => Err(format!("over its bounds: {why}")),
            None => Ok(()),
        }
    }

    fn begin(&mut self, number: usize) {
        match self.plan.faults[number].what {
            Fault::PowerCut { host } => self.power_off(host),
            Fault::Freeze { host } if self.stopped[host].is_none() => {
                self.stopped[host] = Some(self.now());
                self.executor.freeze(self.network.hosts[host], true);
            }
            _ => {}
        }
        self.network.begin(number);
    }

    fn end(&mut self, number: usize) {
        match self.plan.faults[number].what {
            Fault::PowerCut { host } => self.power_on(host),
            Fault::Freeze { host } => self.thaw(host),
            _ => {}
        }
        self.network.end(number);
    }

    fn thaw(&mut self, host: usize) {
        let Some(since) = self.stopped[host].take() else { return };
        let gap = self.now() - since;
        let id = self.network.hosts[host];
        self.executor.freeze(id, false);
        if gap > RESUMED && self.nodes[host].is_some() {
            self.network.world.inject(id, NetEvent::Resumed { gap });
        }
    }

    fn power_off(&mut self, host: usize) {
        let Some(node) = self.nodes[host].take() else { return };
        let id = self.network.hosts[host];
        // The network first: a process that dies says nothing any more.
        self.network.world.set_host_up(id, false);
        self.dark[host] = self.now();
        self.ledger.kill(host);
        self.ledger.with(|b| b.killing = true);
        self.executor.kill(id);
        drop(node);
        self.ledger.with(|b| b.killing = false);
        self.stopped[host] = None;
    }

    fn power_on(&mut self, host: usize) {
        if self.nodes[host].is_some() {
            return;
        }
        let id = self.network.hosts[host];
        self.network.world.set_host_up(id, true);
        let life = self.lives[host];
        self.lives[host] += 1;
        let node = Node::begin(&self.plan, host, id, life, &mut self.executor, &self.ledger, self.calm);
        let own = self.plan.apps.iter().enumerate().take(self.proofs.start);
        for (number, app) in own.filter(|(_, app)| app.client == host) {
            let at = self.start + Duration::from_millis(app.at);
            // Programs that had begun before the power went do not begin again.
            if at >= self.dark[host] {
                self.executor.spawn_on(id, client::run(node.place.clone(), number, at - self.now()));
            }
        }
        self.nodes[host] = Some(node);
    }

    /// From here on nothing goes wrong any more.
    fn heal(&mut self) {
        self.ledger.note(self.now(), || "the calm".into());
        self.calm = true;
        self.network.heal();
        let passed = self.now() - self.start;
        self.network.world.set_wall(WallTime(DEFAULT_WALL.0 + passed));
        for host in 0..self.nodes.len() {
            self.thaw(host);
            self.power_on(host);
            if self.nodes[host].as_mut().is_some_and(Node::calm) {
                // An event that means nothing, as a system may tell one any time.
                let nothing = NetEvent::Ready { token: Token(u64::MAX), ready: Ready::default() };
                self.network.world.inject(self.network.hosts[host], nothing);
            }
        }
    }

    fn busy(&self) -> usize {
        self.nodes.iter().flatten().map(Node::busy).sum()
    }

    /// After how much silence in the calm a flow of this plan has stalled.
    fn stall(&self) -> Duration {
        let frozen = self.plan.faults.iter().filter(|f| matches!(f.what, Fault::Freeze { .. })).map(|f| f.lasts).max();
        let moves = self.plan.faults.iter().any(|f| matches!(f.what, Fault::NewAddresses { .. }));
        let abandoned = if moves { ABANDONED } else { STALL };
        abandoned.max(Duration::from_millis(frozen.unwrap_or(0)) * PER_FREEZE)
    }

    /// Every program comes to its end.
    fn finish(&mut self) -> Result<(), String> {
        let calm = self.now();
        let stall = self.stall();
        let finish = FINISH.max(stall + STALL);
        // Everybody notices that it is calm: who could not listen just before tries again, and connections that a system has taken
        // for a process without a socket to spare are accepted, whose clients may be over long ago.
        self.go(calm + LISTEN_AGAIN + Duration::from_millis(1))?;
        while self.busy() > 0 {
            let now = self.now();
            self.go(now + Duration::from_secs(1))?;
            if now - calm > stall
                && let Some(why) = self.ledger.stalled(now - stall)
            {
                return Err(format!("stalled in the calm: {why}"));
            }
            if now - calm > finish {
                let count = self.busy();
                let why = self.ledger.stalled(now).unwrap_or_else(|| "none of them has a flow".into());
                return Err(format!("{count} programs are not over {finish:?} after the calm: {why}"));
            }
        }
        self.ledger.settle();
        self.check()
    }

    /// What can be reached is reached, one after the other, so that small limits are no reason.
    fn prove(&mut self) -> Result<(), String> {
        // A client that a power cut has ended may have a place among the handshakes of a server that read its first packet only now: it
        // keeps others out, where there is one place, until it has had its time.
        if self.plan.hosts.iter().any(|h| h.tight) {
            let now = self.now();
            self.go(now + HASTE + Duration::from_millis(1))?;
        }
        for number in self.proofs.clone() {
            let plan = self.plan.clone();
            let app = &plan.apps[number];
            let Some(node) = &self.nodes[app.client] else { return Err(format!("h{} has no process", app.client)) };
            let flow = self.ledger.with(|b| b.flows.len() as u32);
            self.executor.spawn_on(node.place.host, client::run(node.place.clone(), number, Duration::ZERO));
            let until = self.now() + PROOF;
            loop {
                let now = self.now();
                self.go(now + Duration::from_millis(200))?;
                if self.busy() == 0 || now >= until {
                    break;
                }
            }
            judge(&self.ledger, flow, app)?;
            self.proven += 1;
        }
        self.ledger.settle();
        self.check()
    }

    /// No engine holds anything, no process has a socket.
    fn empty(&mut self) -> Result<(), String> {
        self.ledger.note(self.now(), || "the servers end".into());
        for host in self.network.hosts.clone() {
            self.executor.end_tasks(host);
        }
        let until = self.now() + EMPTY;
        loop {
            let left = self.left();
            if left.is_empty() {
                return Ok(());
            }
            let now = self.now();
            if now >= until {
                return Err(format!("left {EMPTY:?} after the end: {}", left.join("; ")));
            }
            self.go(now + Duration::from_secs(1))?;
        }
    }

    /// What engines and processes still hold.
    fn left(&self) -> Vec<String> {
        let engines = self.nodes.iter().flatten().filter_map(Node::left);
        let sockets = self.network.hosts.iter().enumerate().filter_map(|(n, host)| {
            let open = self.network.world.open_sockets(*host);
            (open > 0).then(|| format!("h{n} has {open} sockets"))
        });
        engines.chain(sockets).collect()
    }

    /// The network is empty.
    fn gone(&mut self) -> Result<(), String> {
        for host in self.network.hosts.clone() {
            self.executor.kill(host);
        }
        self.nodes.clear();
        // It has no keep-alives: a question over TCP by a host whose power went is open at its side for ever.
        self.network.world.set_host_up(self.network.names_host, false);
        let until = self.now() + GONE;
        while !self.network.world.is_empty() {
            let now = self.now();
            if now >= until {
                return Err(format!("the network is not empty {GONE:?} after the last process"));
            }
            self.go(now + Duration::from_secs(10))?;
        }
        Ok(())
    }
}
