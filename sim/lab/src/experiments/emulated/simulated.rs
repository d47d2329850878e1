//! One transfer in the simulator: the engine on both hosts of a dumbbell, in virtual time, over QUIC or over the simulator's
//! TCP.

use super::path::Path;
use super::{Transfer, Work};
use crate::measure::{MeasureError, Result, failed};
use neater_base::Rng;
use neater_base::net::InterfaceKind;
use neater_engine::{
    EngineConfig, Limits, LocalEndpoint, RemoteEndpoint, Request, RequestOptions, SendOptions, Stack, StreamDirection,
};
use neater_link::LinkConfig;
use neater_netsim::{IfaceId, LinkId, World};
use neater_property::{Role, TransportProperties};
use neater_testkit::security;
use neater_testkit::town::{CLIENT_V4, SERVER_V4};
use neater_testkit::{FlowId, Manner, Node, Playground};
use neater_tls::SecurityParameters;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 443;
/// What a request and the head of a response take in HTTP/3, more or less, in bytes.
const REQUEST: usize = 60;
const HEAD: usize = 150;
/// No transfer takes longer in virtual time.
const LIMIT: Duration = Duration::from_secs(3600);
/// A program hands over its data in pieces of this many bytes.
const PIECE: usize = 64 << 10;

/// A client and a server with a dumbbell between them.
struct Dumbbell {
    play: Playground,
    client: Node,
    server: Node,
    /// From the client, over the middle, to the server; and back.
    there: [LinkId; 3],
    back: [LinkId; 3],
}

fn fault(e: impl std::fmt::Display) -> MeasureError {
    MeasureError::Failed(format!("the simulator: {e}"))
}

impl Dumbbell {
    fn new(path: &Path, seed: u64) -> Result<Self> {
        let world = World::new(seed);
        let address = |text: &str| text.parse::<IpAddr>().map_err(fault);
        let host = |name: &str, text: &str| -> Result<_> {
            let host = world.add_host(name);
            Ok((host, world.add_interface(host, "eth0", InterfaceKind::Wired, &[address(text)?])))
        };
        let (client, a) = host("client1", CLIENT_V4)?;
        let (server, b) = host("server1", SERVER_V4)?;
        let edge = || world.add_link(LinkConfig::default());
        let there = [edge(), world.add_link(path.config()), edge()];
        let back = [edge(), world.add_link(path.config()), edge()];
        let route = |from: IfaceId, to: IfaceId, links: &[LinkId]| world.set_route(from, to, links);
        route(a, b, &there);
        route(b, a, &back);
        let mut rng = Rng::from_number(seed ^ 0x6475_6d62);
        let mut play = Playground::new(world.clone());
        let mut node = |host, number| {
            let crypto = security::crypto(seed, number);
            let config = EngineConfig { limits: Limits::default(), ..EngineConfig::new(rng.seed(), crypto) };
            play.add(host, world.net(host), config)
        };
        let (client, server) = (node(client, 1), node(server, 2));
        Ok(Self { play, client, server, there, back })
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

/// Runs one transfer.
///
/// # Errors
/// It does not come to its end.
pub(super) fn transfer(path: &Path, stack: Stack, work: Work, seed: u64) -> Result<Transfer> {
    let mut d = Dumbbell::new(path, seed)?;
    let (files, size) = work.files();
    let listen = d.request(d.server, Role::Listen, stack)?;
    let connect = d.request(d.client, Role::Initiate, stack)?;
    let keep_nothing = Manner { keeps: false, ..Manner::patient() };
    d.play.serve(d.server, keep_nothing.clone());
    d.play.listen(d.server, &listen, &[LocalEndpoint::new().with_port(PORT)]).map_err(fault)?;
    let start = d.play.now();
    let ask = Manner { greeting: Some(vec![b'?'; REQUEST].into()), ..keep_nothing };
    let remote: RemoteEndpoint = SocketAddr::new(SERVER_V4.parse::<IpAddr>().map_err(fault)?, PORT).into();
    let first = d.play.initiate(d.client, &connect, &[remote], ask.clone()).map_err(fault)?;
    d.play.finish(first);
    let mut flows = vec![first];
    let data = vec![b'.'; HEAD + size as usize];
    let (server, client) = (d.server, d.client);
    let mut answered = BTreeSet::new();
    // All has come, or something can come no more.
    let done = |play: &mut Playground, flows: &[FlowId]| {
        let whole = |f: &FlowId| play.flow(*f).count == data.len();
        flows.iter().all(whole) || flows.iter().any(|f| !whole(f) && play.flow(*f).is_over())
    };
    let mut broken = None;
    d.play.run_until(LIMIT, |play| {
        if flows.len() < files && play.flow(first).is_ready() {
            match open_more(play, client, first, files - 1, &ask) {
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
    let (sent, back) = (counters(d.back[0]), counters(d.there[0]));
    let middle = [counters(d.there[1]), counters(d.back[1])];
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

/// Opens further streams beside the first, with a request on each.
fn open_more(play: &mut Playground, client: Node, first: FlowId, more: usize, ask: &Manner) -> Result<Vec<FlowId>> {
    let group = play.engine(client).group(first.conn).map_err(fault)?;
    let mut flows = Vec::new();
    for _ in 0..more {
        let conn = play.engine(client).open_stream(group, StreamDirection::Both).map_err(fault)?;
        let flow = play.adopt(client, conn, ask.clone());
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
