//! Random programs on a random network: whatever they do, in whatever order, nothing panics, nothing spins, nothing is
//! delivered that was not sent, and nothing is left.

use bytes::Bytes;
use neater_base::Rng;
use neater_engine::{LocalEndpoint, RemoteEndpoint, SendOptions, Stack, StreamDirection};
use neater_net::{FaultNet, FaultRates};
use neater_netsim::SimNet;
use neater_property::Role;
use neater_testkit::town::{SERVER_NAME, SERVER_V4, SERVER_V6};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town, WhenEnded, for_each_seed};
use std::collections::BTreeMap;
use std::time::Duration;

type Chaos = Town<FaultNet<SimNet>>;

/// What each port of the server speaks.
fn services() -> Vec<(u16, Ask)> {
    vec![
        (1001, Ask::over(&[Stack::Tcp])),
        (1002, Ask::over(&[Stack::Tls])),
        (1003, Ask::over(&[Stack::Quic])),
        (1004, Ask::over(&[]).framed()),
        (1005, Ask::over(&[Stack::Udp])),
        (1006, Ask::over(&[Stack::QuicDatagram])),
        (1007, Ask::over(&[Stack::Tcp]).framed()),
    ]
}

fn listen(town: &mut Chaos, port: u16, ask: &Ask) -> neater_engine::ListenerId {
    let request = town.compile(town.server, Role::Listen, ask).unwrap();
    town.play.listen(town.server, &request, &[LocalEndpoint::new().with_port(port)]).unwrap()
}

/// A flow of the client and what it has said.
struct Said {
    flow: FlowId,
    stream: bool,
    bytes: Vec<u8>,
}

struct Run {
    town: Chaos,
    rng: Rng,
    said: Vec<Said>,
    listeners: BTreeMap<u16, neater_engine::ListenerId>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_number(seed ^ 0x0063_6861_6f73);
        let rates = match rng.below(3) {
            0 => FaultRates::NONE,
            1 => FaultRates { no_buffers: 0.03, ..FaultRates::nasty() },
            _ => FaultRates { no_buffers: 0.03, reset: 0.005, ..FaultRates::nasty() },
        };
        let delay = Duration::from_millis(1 + rng.below(40));
        let mut plan = Plan::new(seed).delay(delay).rate(10_000_000).loss(if rng.chance(0.5) { 0.02 } else { 0.0 });
        plan.server_limits.send_buffer = 20_000;
        let mut town = plan.build_over(|net, rng| FaultNet::new(net, rng, rates));
        town.play.serve(town.server, Manner { when_ended: WhenEnded::Finish, ..Manner::echo() });
        let listeners = services().iter().map(|(port, ask)| (*port, listen(&mut town, *port, ask))).collect();
        Self { town, rng, said: Vec::new(), listeners }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    /// A random flow of the client's, or of the server's.
    fn pick(&mut self, server: bool) -> Option<FlowId> {
        let node = if server { self.town.server } else { self.town.client };
        let all: Vec<FlowId> = self.town.play.flows().map(|(id, _)| id).filter(|id| id.node == node).collect();
        let n = self.below(all.len().max(1));
        all.get(n).copied()
    }

    fn open(&mut self) {
        let all = services();
        let (port, ask) = all[self.below(all.len())].clone();
        let remote = match self.rng.below(3) {
            0 => RemoteEndpoint::new().with_host_name(SERVER_NAME),
            1 => RemoteEndpoint::new().with_ip_address(SERVER_V4.parse().unwrap()),
            _ => RemoteEndpoint::new().with_ip_address(SERVER_V6.parse().unwrap()),
        };
        let request = self.town.compile(self.town.client, Role::Initiate, &ask).unwrap();
        let first = self.rng.chance(0.3).then(|| Bytes::from_static(b"first"));
        let early = first.as_deref().map(<[u8]>::to_vec).unwrap_or_default();
        let client = self.town.client;
        let remotes = [remote.with_port(port)];
        let made = self.town.play.initiate_with(client, &request, &remotes, None, first, Manner::patient());
        // A missing descriptor may be known at once.
        let Ok(flow) = made else { return };
        self.forget(flow);
        let stream = ask.stacks.len() == 1 && ask.stacks[0].is_stream() && !ask.options.framer.frames();
        self.said.push(Said { flow, stream, bytes: early });
    }

    /// A slot is used again: what was said in it is history.
    fn forget(&mut self, flow: FlowId) {
        self.check(Some(flow));
        self.said.retain(|s| s.flow != flow);
    }

    fn say(&mut self) {
        let Some(flow) = self.pick(false) else { return };
        let len = if self.rng.chance(0.2) { self.below(60_000) } else { self.below(1200) };
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        let is_final = self.rng.chance(0.1);
        let lifetime = self.rng.chance(0.1).then(|| Duration::from_millis(self.rng.below(50)));
        let said = self.said.iter_mut().find(|s| s.flow == flow);
        let Some(said) = said else { return };
        // What may expire would leave a hole in a stream.
        let lifetime = lifetime.filter(|_| !said.stream);
        said.bytes.extend_from_slice(&data);
        self.town.play.say(flow, data, SendOptions { is_final, lifetime, ..SendOptions::default() });
    }

    fn clone_one(&mut self) {
        let Some(flow) = self.pick(false) else { return };
        let Some(stream) = self.said.iter().find(|s| s.flow == flow).map(|s| s.stream) else { return };
        let direction = if self.rng.chance(0.3) { StreamDirection::One } else { StreamDirection::Both };
        let engine = self.town.play.engine(flow.node);
        if let Ok(conn) = engine.clone_connection(flow.conn, direction) {
            let clone = FlowId { node: flow.node, conn };
            self.forget(clone);
            self.town.play.adopt(flow.node, conn, Manner::patient());
            self.said.push(Said { flow: clone, stream, bytes: Vec::new() });
        }
    }

    fn shake_the_network(&mut self) {
        let world = self.town.play.world().clone();
        let way = if self.rng.chance(0.5) { self.town.v4 } else { self.town.v6 };
        let down = !world.link_config(way.to).down;
        let config = world.link_config(way.to).with_down(down);
        world.set_link(way.to, config);
        if self.rng.chance(0.3) {
            world.set_interface_up(self.town.client_iface, self.rng.chance(0.7));
        }
    }

    fn restart_a_listener(&mut self) {
        let all = services();
        let (port, ask) = &all[self.below(all.len())];
        let Some(old) = self.listeners.remove(port) else {
            // Where the old one's connections still hold the port, it stays closed for now.
            let request = self.town.compile(self.town.server, Role::Listen, ask).unwrap();
            let local = [LocalEndpoint::new().with_port(*port)];
            if let Ok(new) = self.town.play.listen(self.town.server, &request, &local) {
                self.listeners.insert(*port, new);
            }
            return;
        };
        self.town.play.engine(self.town.server).stop(old);
    }

    fn step(&mut self) {
        let server = self.rng.chance(0.3);
        match self.rng.below(22) {
            0..=4 => self.open(),
            5..=11 => self.say(),
            12 => self.clone_one(),
            13 => {
                let Some(flow) = self.pick(server) else { return };
                self.town.play.finish(flow);
            }
            14 | 15 => {
                let Some(flow) = self.pick(server) else { return };
                self.town.play.close(flow);
            }
            16 => {
                let Some(flow) = self.pick(server) else { return };
                self.town.play.abort(flow);
            }
            17 | 18 => {
                let Some(flow) = self.pick(server) else { return };
                self.town.play.release(flow);
            }
            19 => {
                let Some(flow) = self.pick(server) else { return };
                let reads = &mut self.town.play.flow_mut(flow).manner.reads;
                *reads = !*reads;
                self.town.play.read(flow);
            }
            20 => self.shake_the_network(),
            _ => self.restart_a_listener(),
        }
    }

    /// An echo is a prefix of what was said.
    fn check(&self, only: Option<FlowId>) {
        for said in self.said.iter().filter(|s| s.stream && only.is_none_or(|f| f == s.flow)) {
            let heard = &self.town.play.flow(said.flow).received;
            assert!(said.bytes.starts_with(heard), "{:?} heard what it has not said", said.flow);
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut run = Run::new(seed);
    for _ in 0..80 {
        run.step();
        let pause = if run.rng.chance(0.1) { run.rng.below(3000) } else { run.rng.below(60) };
        run.town.play.run_for(Duration::from_millis(pause));
    }
    run.check(None);
    let world = run.town.play.world().clone();
    run.town.play.end();
    world.digest()
}

#[test]
fn random_programs_on_random_networks_leave_nothing() {
    for_each_seed("chaos", "random_programs_on_random_networks_leave_nothing", 100, |seed| {
        run(seed);
    });
}

#[test]
fn a_random_program_does_the_same_again() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
