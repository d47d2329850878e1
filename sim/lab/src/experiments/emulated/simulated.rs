//! Transfers in the simulator: the engine on all hosts of a dumbbell, in virtual time, over QUIC or over the simulator's TCP.

use super::path::Path;
use super::{Transfer, Work};
use crate::measure::{MeasureError, Result, failed};
use bytes::Bytes;
use neater_base::Rng;
use neater_base::net::InterfaceKind;
use neater_engine::{
    EngineConfig, Limits, LocalEndpoint, RemoteEndpoint, Request, RequestOptions, SendOptions, Stack, StreamDirection,
};
use neater_link::LinkConfig;
use neater_netsim::{IfaceId, LinkId, World};
use neater_property::{Role, TransportProperties};
use neater_testkit::security;
use neater_testkit::town::SERVER_V4;
use neater_testkit::{FlowId, Manner, Node, Playground};
use neater_tls::SecurityParameters;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 443;
/// What a request and the head of a response take in HTTP/3, more or less, in bytes.
const REQUEST: usize = 60;
const HEAD: usize = 150;
/// No transfer takes longer in virtual time.
const LIMIT: Duration = Duration::from_secs(3600);
/// A program hands over its data in pieces of this many bytes.
const PIECE: usize = 64 << 10;

/// How often programs of an endless run look around.
const TURN: Duration = Duration::from_millis(5);
/// Programs that are started together start within this time.
const START: Duration = Duration::from_millis(100);

/// The links from a client, over the middle, to the server, and back.
type Ways = [[LinkId; 3]; 2];

/// Clients and a server with a dumbbell between them.
struct Dumbbell {
    play: Playground,
    server: Node,
    clients: Vec<(Node, Ways)>,
}

fn fault(e: impl std::fmt::Display) -> MeasureError {
    MeasureError::Failed(format!("the simulator: {e}"))
}

impl Dumbbell {
    fn new(path: &Path, clients: u8, seed: u64) -> Result<Self> {
        let world = World::new(seed);
        let host = |name: &str, address: IpAddr| {
            let host = world.add_host(name);
            (host, world.add_interface(host, "eth0", InterfaceKind::Wired, &[address]))
        };
        let (server, b) = host("server1", SERVER_V4.parse().map_err(fault)?);
        let edge = || world.add_link(LinkConfig::default());
        // The lab's wire of this name loses the same packets.
        let of_middle = |side| world.add_link_of(path.config(), neater_scenario::link_seed(seed, "middle", side));
        let (middle, server_edge) = ([0, 1].map(of_middle), [0; 2].map(|_| edge()));
        let mut hosts = Vec::new();
        for i in 1..=clients {
            let (client, a) = host(&format!("client{i}"), Ipv4Addr::new(192, 0, 2, i).into());
            let ways = [[edge(), middle[0], server_edge[0]], [server_edge[1], middle[1], edge()]];
            let route = |from: IfaceId, to: IfaceId, links: &[LinkId]| world.set_route(from, to, links);
            route(a, b, &ways[0]);
            route(b, a, &ways[1]);
            hosts.push((client, ways));
        }
        let mut rng = Rng::from_number(seed ^ 0x6475_6d62);
        let mut play = Playground::new(world.clone());
        let mut node = |host, number| {
            let crypto = security::crypto(seed, number);
            let config = EngineConfig { limits: Limits::default(), ..EngineConfig::new(rng.seed(), crypto) };
            play.add(host, world.net(host), config)
        };
        let clients = hosts.into_iter().zip(2..).map(|((host, ways), n)| (node(host, n), ways)).collect();
        let server = node(server, 1);
        Ok(Self { play, server, clients })
    }

    /// Lets the server take connections over this stack.
    fn listen(&mut self, stack: Stack) -> Result<()> {
        let request = self.request(self.server, Role::Listen, stack)?;
        self.play.listen(self.server, &request, &[LocalEndpoint::new().with_port(PORT)]).map_err(fault)?;
        Ok(())
    }

    /// Lets a client ask for something.
    fn ask(&mut self, client: Node, stack: Stack) -> Result<FlowId> {
        let connect = self.request(client, Role::Initiate, stack)?;
        let remote: RemoteEndpoint = SocketAddr::new(SERVER_V4.parse::<IpAddr>().map_err(fault)?, PORT).into();
        let first = self.play.initiate(client, &connect, &[remote], asks()).map_err(fault)?;
        self.play.finish(first);
        Ok(first)
    }

    fn request(&mut self, node: Node, role: Role, stack: Stack) -> Result<Request> {
        let options = RequestOptions { stacks: vec![stack], ..RequestOptions::default() };
        let security = match (stack.is_secure(), role) {
            (false, _) => SecurityParameters::disabled(),
            (true, Role::Listen) => security::server_security(),
            (true, _) => security::client_security(),
        };
        let wall = self.play.world().wall();
        let engine = self.play.engine(node);
        engine.crypto().clock.set(wall);
        engine.compile(&TransportProperties::default(), &security, role, &options).map_err(fault)
    }

    /// Answers what has been asked and not answered yet.
    fn answer(play: &mut Playground, server: Node, answered: &mut BTreeSet<FlowId>, data: &[u8]) {
        let asked: Vec<FlowId> =
            play.accepted(server).iter().copied().filter(|f| play.flow(*f).count >= REQUEST).collect();
        for flow in asked {
            if answered.insert(flow) {
                play.say_bytes(flow, data, PIECE, true);
            }
        }
    }
}

/// Programs that count what they receive.
fn counts() -> Manner {
    Manner { keeps: false, ..Manner::patient() }
}

/// Clients say first what they want.
fn asks() -> Manner {
    Manner { greeting: Some(vec![b'?'; REQUEST].into()), ..counts() }
}

/// Runs one transfer.
///
/// # Errors
/// It does not come to its end.
pub(super) fn transfer(path: &Path, stack: Stack, work: Work, seed: u64) -> Result<Transfer> {
    let mut d = Dumbbell::new(path, 1, seed)?;
    let (files, size) = work.files();
    d.play.serve(d.server, counts());
    d.listen(stack)?;
    let start = d.play.now();
    let (client, [there, back]) = d.clients[0];
    let first = d.ask(client, stack)?;
    let mut flows = vec![first];
    let data = vec![b'.'; HEAD + size as usize];
    let server = d.server;
    let mut answered = BTreeSet::new();
    // All has come, or something can come no more.
    let done = |play: &mut Playground, flows: &[FlowId]| {
        let whole = |f: &FlowId| play.flow(*f).count == data.len();
        flows.iter().all(whole) || flows.iter().any(|f| !whole(f) && play.flow(*f).is_over())
    };
    let mut broken = None;
    d.play.run_until(LIMIT, |play| {
        if flows.len() < files && play.flow(first).is_ready() {
            match open_more(play, client, first, files - 1) {
                Ok(more) => flows.extend(more),
                Err(e) => broken = Some(e),
            }
        }
        Dumbbell::answer(play, server, &mut answered, &data);
        broken.is_some() || (flows.len() == files && done(play, &flows))
    });
    if let Some(e) = broken {
        return Err(e);
    }
    let mut last = start;
    for flow in &flows {
        let f = d.play.flow(*flow);
        if f.count != data.len() {
            return failed(format!("the simulator: {} of {} bytes came: {:?}", f.count, data.len(), f.end()));
        }
        last = last.max(f.received_at.ok_or_else(|| fault("bytes came, but no time is known"))?);
    }
    let seconds = (last - start).as_secs_f64();
    let world = d.play.world();
    let counters = |link: LinkId| world.link_counters(link);
    let middle = [counters(there[1]), counters(back[1])];
    let (sent, back) = (counters(back[0]), counters(there[0]));
    Ok(Transfer {
        payload: work.payload(),
        seconds,
        own_seconds: seconds,
        sent: (sent.delivered_bytes, sent.delivered),
        back: (back.delivered_bytes, back.delivered),
        queue_drops: middle.iter().map(|m| m.queue_full).sum(),
        lost: middle.iter().map(|m| m.lost).sum(),
        late_p99_us: 0.0,
    })
}

/// Lets connections fetch without end over one link, and tells the rate at which IP packets reached each client, in Mbit/s.
/// `connections` are the stack and the streams of each; they begin within [`START`].
///
/// # Errors
/// A connection comes to its end.
pub(super) fn share(path: &Path, connections: &[(Stack, usize)], seconds: u64, seed: u64) -> Result<Vec<f64>> {
    let mut d = Dumbbell::new(path, connections.len() as u8, seed)?;
    d.play.serve(d.server, counts());
    for stack in connections.iter().map(|(stack, _)| *stack).collect::<BTreeSet<_>>() {
        d.listen(stack)?;
    }
    // More than any of them can fetch.
    let pieces = (seconds as f64 * path.rate * 1e6 / 8.0 / PIECE as f64).ceil() as usize;
    let piece = Bytes::from(vec![b'.'; PIECE]);
    let begun = d.play.now();
    let mut rng = Rng::from_number(seed ^ 0x7368_6172);
    let offsets: Vec<Duration> = connections.iter().map(|_| START.mul_f64(rng.unit())).collect();
    let mut flows: Vec<Option<FlowId>> = vec![None; connections.len()];
    let mut grown = vec![false; connections.len()];
    let mut answered = BTreeSet::new();
    let mut next = begun;
    while d.play.now() < begun + Duration::from_secs(seconds) {
        for (i, (stack, streams)) in connections.iter().enumerate() {
            let client = d.clients[i].0;
            match flows[i] {
                None if d.play.now() >= begun + offsets[i] => flows[i] = Some(d.ask(client, *stack)?),
                Some(first) if !grown[i] && d.play.flow(first).is_ready() => {
                    grown[i] = true;
                    open_more(&mut d.play, client, first, streams - 1)?;
                }
                Some(first) if d.play.flow(first).is_over() => {
                    return failed(format!("the simulator: a connection ended: {:?}", d.play.flow(first).end()));
                }
                _ => {}
            }
        }
        let accepted = d.play.accepted(d.server).iter().copied();
        let asked: Vec<FlowId> = accepted.filter(|f| d.play.flow(*f).count >= REQUEST && answered.insert(*f)).collect();
        for flow in asked {
            for _ in 0..pieces {
                d.play.say(flow, piece.clone(), SendOptions { end_of_message: false, ..SendOptions::default() });
            }
        }
        next += TURN;
        let now = d.play.now();
        d.play.run_for(next - now);
    }
    let world = d.play.world();
    let bytes = |ways: &Ways| world.link_counters(ways[1][2]).delivered_bytes;
    Ok(d.clients.iter().map(|(_, ways)| bytes(ways) as f64 * 8.0 / 1e6 / seconds as f64).collect())
}

/// Opens further streams beside the first, with a request on each.
fn open_more(play: &mut Playground, client: Node, first: FlowId, more: usize) -> Result<Vec<FlowId>> {
    let group = play.engine(client).group(first.conn).map_err(fault)?;
    let mut flows = Vec::new();
    for _ in 0..more {
        let conn = play.engine(client).open_stream(group, StreamDirection::Both).map_err(fault)?;
        let flow = play.adopt(client, conn, asks());
        play.say(flow, "", SendOptions { is_final: true, ..SendOptions::default() });
        flows.push(flow);
    }
    Ok(flows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_as_long_as_the_link_needs_and_is_a_function_of_its_seed() {
        let path = Path::new(10.0, 20.0);
        let t = transfer(&path, Stack::Quic, Work::Ten, 1).expect("ends");
        // 1 MB at 10 Mbit/s is 0.8 s; headers of 40 to 60 bytes in 1,452, two round trips before the first byte.
        assert!((0.84..1.1).contains(&t.seconds), "{t:?}");
        assert!(t.sent.0 > 1_020_000 && t.sent.0 < 1_150_000, "{t:?}");
        assert!(t.sent.1 > 700 && t.back.1 > 20, "{t:?}");
        assert_eq!(t, transfer(&path, Stack::Quic, Work::Ten, 1).expect("ends"));
        let lossy = Path { loss: 2.0, ..path };
        let (a, b) = (
            transfer(&lossy, Stack::Quic, Work::Ten, 1).expect("ends"),
            transfer(&lossy, Stack::Quic, Work::Ten, 2).expect("ends"),
        );
        assert!(a.lost > 0 && b.lost > 0 && a.seconds > t.seconds, "{a:?} {b:?}");
        assert_ne!(a, b);
        let tcp = transfer(&path, Stack::Tcp, Work::One, 1).expect("ends");
        assert!((8.2..20.0).contains(&tcp.seconds) && tcp.sent.0 > 10_200_000, "{tcp:?}");
    }
}
