//! [`Programs`]: a scenario's network, with programs on neater's engine for the traffic that they are to carry.
//!
//! *Responsible for* an engine on each host that needs one, for what its programs say and when, for the figures of their flows and
//! the samples that the scenario's probes want of them. *Not responsible for* the network and for all other traffic (`neater-netsim`).
//!
//! *Invariants*: a run is a function of the scenario, its seed and the code; probes change nothing.

use crate::flow::{FlowId, Manner, Over};
use crate::playground::{Node, Playground};
use crate::qlogs::Qlogs;
use crate::security;
use bytes::Bytes;
use core::time::Duration;
use neater_base::{Instant, Rng};
use neater_engine::{EngineConfig, Limits, LocalEndpoint, RemoteEndpoint, Request, RequestOptions, SendOptions, Stack};
use neater_netsim::{DEFAULT_WALL, FlowStats, HostId, Network, Program, Sample, Samples, World};
use neater_property::{Role, TransportProperties};
use neater_scenario::{Carrier, ProbeKind, Scenario};
use neater_tls::{Identity, SecurityParameters, Trust, self_signed};
use std::collections::BTreeMap;

/// A program hands over its data in pieces of this many bytes.
const PIECE: usize = 64 << 10;
/// So many pieces wait with a program for room: more than it can hand over at an instant.
const READY: usize = 8;
/// How often the round-trip time of a flow is looked at for its mean.
const LOOK: Duration = Duration::from_millis(100);
/// A probe of every change samples a program so often.
const EVERY_CHANGE: Duration = Duration::from_millis(10);

const fn stack(over: Carrier) -> Option<Stack> {
    match over {
        Carrier::Model => None,
        Carrier::Tcp => Some(Stack::Tcp),
        Carrier::Tls => Some(Stack::Tls),
        Carrier::Quic => Some(Stack::Quic),
        Carrier::Sctp => Some(Stack::Sctp),
    }
}

/// One flow.
#[derive(Debug)]
struct Running {
    program: Program,
    /// The engines of sender and receiver.
    nodes: [Node; 2],
    /// The sender's connection.
    flow: Option<FlowId>,
    /// The receiver's.
    theirs: Option<FlowId>,
    /// What is still to be handed over; `None` without end.
    left: Option<u64>,
    /// All of it was handed over.
    said: bool,
    /// Nothing more is to be done.
    ended: bool,
    stats: FlowStats,
    /// What had been delivered at the end of the warm-up.
    before: Option<u64>,
}

/// Something to be sampled again and again.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Which flow, and whether its goodput or its window is wanted.
    flow: usize,
    goodput: bool,
    subject: u32,
    interval: Duration,
    next: Instant,
    /// What had been delivered at the last sample.
    last: u64,
}

/// A network with its programs.
#[derive(Debug)]
pub struct Programs {
    network: Network,
    play: Option<Playground>,
    running: Vec<Running>,
    qlogs: Qlogs,
    watches: Vec<Watch>,
    tables: [Samples; 2],
    looked: Instant,
}

impl Programs {
    /// Builds a scenario with its programs.
    ///
    /// # Errors
    /// As [`World::build`], and what an engine says to a program that listens.
    pub fn build(scenario: &Scenario, seed: u64) -> Result<Self, String> {
        Self::on(World::build(scenario, seed)?, seed)
    }

    /// Brings the programs of a network that was built from a scenario and has not run yet.
    ///
    /// # Errors
    /// What an engine says to a program that listens.
    pub fn on(network: Network, seed: u64) -> Result<Self, String> {
        let mut play = Playground::new(network.world.clone());
        let mut rng = Rng::from_number(seed ^ 0x7072_6f67_7261_6d73);
        let qlogs = Qlogs::default();
        let mut hosts: BTreeMap<HostId, Node> = BTreeMap::new();
        let mut running = Vec::new();
        for program in network.programs() {
            let nodes = [program.from, program.to].map(|host| {
                *hosts.entry(host).or_insert_with(|| {
                    let qlog = Some(qlogs.of(&network.world.host_name(host)));
                    let crypto = security::crypto(seed, play.nodes() as u64);
                    let limits = Limits::default();
                    play.add(
                        host,
                        network.world.net(host),
                        EngineConfig { qlog, limits, ..EngineConfig::new(rng.seed(), crypto) },
                    )
                })
            });
            let stats = FlowStats { traffic: program.traffic, flow: program.flow, ..FlowStats::default() };
            let left = program.bytes;
            let program = program.clone();
            running.push(Running {
                program,
                nodes,
                flow: None,
                theirs: None,
                left,
                said: false,
                ended: false,
                stats,
                before: None,
            });
        }
        let now = network.start();
        let mut this = Self {
            network,
            play: (!running.is_empty()).then_some(play),
            running,
            qlogs,
            watches: Vec::new(),
            tables: [Samples::default(), Samples::default()],
            looked: now,
        };
        this.listen()?;
        this.watch();
        Ok(this)
    }

    /// The network.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The network, to record more of it.
    pub const fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    fn listen(&mut self) -> Result<(), String> {
        let Some(play) = &mut self.play else { return Ok(()) };
        for r in &self.running {
            play.serve(r.nodes[1], Manner { keeps: false, ..Manner::default() });
            let request = request(play, r.nodes[1], Role::Listen, &r.program)?;
            let local =
                LocalEndpoint::new().with_ip_address(r.program.address.ip()).with_port(r.program.address.port());
            play.listen(r.nodes[1], &request, &[local]).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// What the scenario's probes want of programs.
    fn watch(&mut self) {
        let scenario = self.network.scenario().clone();
        for probe in &scenario.probes {
            let (ProbeKind::Tcp(name) | ProbeKind::Goodput(name)) = &probe.what else { continue };
            let goodput = matches!(probe.what, ProbeKind::Goodput(_));
            let (table, columns): (_, &'static [&'static str]) =
                if goodput { ("goodput", &["bytes", "mbit_per_s"]) } else { ("program", &["cwnd_bytes", "srtt_s"]) };
            for (flow, r) in self.running.iter().enumerate() {
                if scenario.traffic[r.program.traffic].name != *name {
                    continue;
                }
                let samples = &mut self.tables[usize::from(goodput)];
                (samples.name, samples.columns) = (table, columns);
                samples.subjects.push(format!("{name}.{}", r.program.flow));
                let interval = probe.interval.unwrap_or(if goodput { LOOK } else { EVERY_CHANGE });
                let (subject, next) = (samples.subjects.len() as u32 - 1, self.network.start() + interval);
                self.watches.push(Watch { flow, goodput, subject, interval, next, last: 0 });
            }
        }
    }

    /// Runs until the end of the scenario. `progress` is told the share that is done, 0 to 1, a hundred times or less; it returns
    /// whether to go on.
    ///
    /// # Errors
    /// An engine refuses what a program asks before anything is sent.
    pub fn run(&mut self, mut progress: impl FnMut(f64) -> bool) -> Result<(), String> {
        let Some(mut play) = self.play.take() else {
            self.network.run(progress);
            return Ok(());
        };
        let (start, total) = (self.network.start(), self.network.scenario().total());
        let mut done = 0;
        let result = loop {
            let now = play.now();
            if let Err(e) = self.act(&mut play, now) {
                break Err(e);
            }
            while done < 100 && now >= start + total * (done + 1) / 100 {
                done += 1;
                if !progress(f64::from(done) / 100.0) {
                    self.play = Some(play);
                    return Ok(());
                }
            }
            if now >= start + total {
                break Ok(());
            }
            let next = self.next(now).min(start + total * (done + 1).min(100) / 100).min(start + total);
            let mut hungry = false;
            play.run_until(next - now, |play| {
                hungry = self.running.iter().any(|r| r.is_hungry(play));
                hungry
            });
        };
        self.play = Some(play);
        result
    }

    /// The next time at which something is to be done.
    fn next(&self, now: Instant) -> Instant {
        let warm = self.network.start() + self.network.scenario().warm_up;
        let times = self.running.iter().flat_map(|r| [Some(r.program.begin), r.program.stop]).flatten();
        let watches = self.watches.iter().map(|w| w.next);
        let all = times.chain(watches).chain([warm, self.looked + LOOK]);
        all.filter(|at| *at > now).min().unwrap_or(now + LOOK)
    }

    /// Does what is due.
    fn act(&mut self, play: &mut Playground, now: Instant) -> Result<(), String> {
        let warm = self.network.start() + self.network.scenario().warm_up;
        let looks = now >= self.looked + LOOK;
        if looks {
            self.looked = now;
        }
        for r in &mut self.running {
            r.act(play, now)?;
            r.account(play, now, warm);
            if looks && now >= warm {
                r.look(play);
            }
        }
        for w in &mut self.watches {
            while w.next <= now {
                let (at, r) = (w.next - self.network.start(), &self.running[w.flow]);
                let interval = w.interval.max(Duration::from_micros(1));
                w.next += interval;
                let values = if w.goodput {
                    let bytes = (r.stats.delivered - core::mem::replace(&mut w.last, r.stats.delivered)) as f64;
                    [bytes, bytes * 8e-6 / interval.as_secs_f64(), 0.0, 0.0, 0.0]
                } else {
                    let Some((window, rtt)) = r.path(play) else { continue };
                    [window, rtt, 0.0, 0.0, 0.0]
                };
                let table = &mut self.tables[usize::from(w.goodput)];
                if table.rows.len() < neater_netsim::MAX_SAMPLES {
                    table.rows.push(Sample { at, subject: w.subject, values });
                } else {
                    table.truncated = true;
                }
            }
        }
        Ok(())
    }

    /// What every flow has done so far, in the order of the scenario, those of programs among them. Of these, retransmissions are
    /// not known; the round-trip time is what the sender's engine knows, looked at ten times a second.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowStats> {
        let mut all = self.network.flows();
        all.extend(self.running.iter().map(|r| r.stats.clone()));
        all.sort_by_key(|f| (f.traffic, f.flow));
        all
    }

    /// Takes the tables that probes have filled so far: the network's, and `program` (window and round-trip time of the senders)
    /// where programs were to be probed.
    #[must_use]
    pub fn take_samples(&mut self) -> Vec<Samples> {
        let mut all = self.network.take_samples();
        for table in &mut self.tables {
            if table.name.is_empty() {
                continue;
            }
            let mut own = Samples { rows: core::mem::take(&mut table.rows), ..table.clone() };
            let Some(theirs) = all.iter_mut().find(|t| t.name == own.name) else {
                all.push(own);
                continue;
            };
            let first = theirs.subjects.len() as u32;
            own.rows.iter_mut().for_each(|row| row.subject += first);
            theirs.subjects.append(&mut own.subjects);
            theirs.rows.append(&mut own.rows);
            theirs.rows.sort_by_key(|row| row.at);
            theirs.truncated |= own.truncated;
        }
        all
    }

    /// Ends the programs and returns the traces of their QUIC connections: names and bytes, in the format qlog (JSON text
    /// sequences). The network is as it was at the end of the run.
    #[must_use]
    pub fn into_qlogs(self) -> Vec<(String, Vec<u8>)> {
        drop(self.play);
        self.qlogs.files()
    }
}

impl Running {
    /// Whether its program could hand over more than it has ready.
    fn is_hungry(&self, play: &Playground) -> bool {
        let Some(flow) = self.flow.filter(|_| !self.said && !self.ended) else { return false };
        let flow = play.flow(flow);
        !flow.is_over() && flow.waiting() == 0
    }

    fn act(&mut self, play: &mut Playground, now: Instant) -> Result<(), String> {
        if self.ended || now < self.program.begin {
            return Ok(());
        }
        let stopped = self.program.stop.is_some_and(|at| now >= at);
        let Some(flow) = self.flow else {
            if stopped {
                self.ended = true;
                return Ok(());
            }
            let request = request(play, self.nodes[0], Role::Initiate, &self.program)?;
            let remote: RemoteEndpoint = self.program.address.into();
            let manner = Manner { keeps: false, ..Manner::patient() };
            let flow = play.initiate(self.nodes[0], &request, &[remote], manner).map_err(|e| e.to_string())?;
            (self.flow, self.stats.started) = (Some(flow), Some(now));
            return self.act(play, now);
        };
        if let Some(end) = play.flow(flow).end() {
            let failed = *end != Over::Closed && self.stats.finished.is_none();
            self.stats.failures += u64::from(failed);
            self.ended = true;
            return Ok(());
        }
        if self.stats.finished.is_some() {
            self.ended = true;
            play.close(flow);
            return Ok(());
        }
        if stopped {
            self.ended = true;
            play.abort(flow);
            return Ok(());
        }
        while play.flow(flow).waiting() < READY && self.left != Some(0) {
            let size = self.left.map_or(PIECE, |left| left.min(PIECE as u64) as usize);
            self.left = self.left.map(|left| left - size as u64);
            let last = self.left == Some(0);
            static DATA: [u8; PIECE] = [b'.'; PIECE];
            let options = SendOptions { is_final: last, ..SendOptions::default() };
            play.say(flow, Bytes::from_static(&DATA[..size]), options);
        }
        self.said = self.left == Some(0) && play.flow(flow).waiting() == 0;
        Ok(())
    }

    /// Counts what has arrived.
    fn account(&mut self, play: &Playground, now: Instant, warm: Instant) {
        if self.theirs.is_none() && self.flow.is_some() {
            let port = Some(self.program.address.port());
            let mine = |f: &&FlowId| play.flow(**f).received_by.map(|a| a.port()) == port;
            self.theirs = play.accepted(self.nodes[1]).iter().find(mine).copied();
        }
        let delivered = self.theirs.map_or(self.stats.delivered, |f| play.flow(f).count as u64);
        self.stats.delivered = delivered;
        let before = if now < warm { None } else { Some(*self.before.get_or_insert(delivered)) };
        self.stats.measured = delivered - before.unwrap_or(delivered);
        if self.program.bytes == Some(delivered) && self.stats.finished.is_none() {
            self.stats.finished = self.theirs.and_then(|f| play.flow(f).received_at);
        }
    }

    /// The sender's window in bytes and round-trip time in seconds.
    fn path(&self, play: &mut Playground) -> Option<(f64, f64)> {
        let flow = self.flow.filter(|f| !play.flow(*f).is_over())?;
        let stats = play.engine(flow.node).connection_stats(flow.conn)?;
        let window = stats.congestion_window.map_or(f64::NAN, |w| w as f64);
        Some((window, stats.rtt.map_or(f64::NAN, |r| r.as_secs_f64())))
    }

    fn look(&mut self, play: &mut Playground) {
        if let Some((_, rtt)) = self.path(play).filter(|_| self.stats.finished.is_none())
            && rtt.is_finite()
        {
            self.stats.rtt.add(rtt);
        }
    }
}

fn request(play: &mut Playground, node: Node, role: Role, program: &Program) -> Result<Request, String> {
    let Some(stack) = stack(program.over) else { return Err("the simulator's TCP is no program".to_owned()) };
    let options = RequestOptions { stacks: vec![stack], ..RequestOptions::default() };
    let security = if stack.is_secure() { secure(program, role) } else { SecurityParameters::disabled() };
    let wall = play.world().wall();
    let engine = play.engine(node);
    engine.crypto().clock.set(wall);
    engine.compile(&TransportProperties::default(), &security, role, &options).map_err(|e| e.to_string())
}

/// The receiver has a certificate for its address, and the sender trusts that one.
fn secure(program: &Program, role: Role) -> SecurityParameters {
    let identity: Identity = self_signed(&[&program.address.ip().to_string()], DEFAULT_WALL, [9; 32]);
    let mut security = SecurityParameters::new();
    match role {
        Role::Listen => security.server_certificates = vec![identity],
        _ => security.trust = Trust::Only(identity.chain),
    }
    security
}
