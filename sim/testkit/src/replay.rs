//! One run with everything in it whose repetition is worth checking: engines with QUIC, TLS and TCP, traffic of every kind,
//! a lossy bottleneck, and the records of all of it. Experiment X2 and a test compare such runs byte by byte.

use crate::flow::Manner;
use crate::playground::Playground;
use crate::qlogs::Qlogs;
use crate::security;
use crate::town::{Ask, SERVER_V4};
use core::time::Duration;
use neater_base::Rng;
use neater_engine::{EngineConfig, LocalEndpoint, RemoteEndpoint, RequestOptions, Stack};
use neater_netsim::World;
use neater_property::Role;
use neater_scenario::{Scenario, shipped};
use std::net::{IpAddr, SocketAddr};

/// What each of the three connections carries, in bytes.
pub const TRANSFER: usize = 200_000;

/// Makes the run of a seed and returns its records, each with the name of a file: packets at the bottleneck (pcapng), every
/// packet at every place (CSV), QUIC connections (qlog), samples (CSV), and a summary.
///
/// # Panics
/// If a connection does not carry its bytes within the run, or the scenario cannot be built.
#[must_use]
pub fn replay(seed: u64) -> Vec<(String, Vec<u8>)> {
    let scenario = Scenario::parse(shipped("replay").unwrap_or_default(), &[]).unwrap_or_else(|e| panic!("{e}"));
    let network = World::build(&scenario, seed).unwrap_or_else(|e| panic!("{e}"));
    let world = network.world.clone();
    world.trace(true);
    let mut rng = Rng::from_number(seed ^ 0x7265_706c_6179);
    let (client_traces, server_traces) = (Qlogs::default(), Qlogs::default());
    let mut play = Playground::new(world.clone());
    let mut add = |name: &str, number, qlog| {
        let host = network.host(name).unwrap_or_else(|| panic!("no host {name}"));
        let config = EngineConfig::new(rng.seed(), security::crypto(seed, number));
        play.add(host, world.net(host), EngineConfig { qlog: Some(qlog), ..config })
    };
    let client = add("l1", 1, client_traces.of("l1"));
    let server = add("r1", 2, server_traces.of("r1"));
    let stacks = [Stack::Quic, Stack::Tls, Stack::Tcp];
    let address: IpAddr = SERVER_V4.parse().unwrap_or_else(|e| panic!("{e}"));
    let mut flows = Vec::new();
    play.serve(server, Manner { keeps: false, ..Manner::echo() });
    for (i, stack) in stacks.into_iter().enumerate() {
        let ask = Ask::over(&[stack]);
        let options = RequestOptions { stacks: ask.stacks.clone(), ..ask.options.clone() };
        let mut compile = |node, role| {
            let wall = play.world().wall();
            let engine = play.engine(node);
            engine.crypto().clock.set(wall);
            engine.compile(&ask.transport(), &ask.security(role), role, &options).unwrap_or_else(|e| panic!("{e}"))
        };
        let (listen, initiate) = (compile(server, Role::Listen), compile(client, Role::Initiate));
        let port = 4433 + i as u16;
        play.listen(server, &listen, &[LocalEndpoint::new().with_port(port)]).unwrap_or_else(|e| panic!("{e}"));
        let remote: RemoteEndpoint = SocketAddr::new(address, port).into();
        let flow = play.initiate(client, &initiate, &[remote], Manner { keeps: false, ..Manner::patient() });
        flows.push(flow.unwrap_or_else(|e| panic!("{e}")));
    }
    let data: Vec<u8> = (0..TRANSFER).map(|i| (i * 31 % 251) as u8).collect();
    for flow in &flows {
        play.say_bytes(*flow, &data, 16_000, true);
    }
    play.run_for(scenario.total());
    let mut summary = String::new();
    for (flow, stack) in flows.iter().zip(stacks) {
        let flow = play.flow(*flow);
        assert_eq!(flow.count, TRANSFER, "{stack:?}: {:?}", flow.over);
        let took = flow.received_at.map(|at| at - flow.opened_at);
        summary.push_str(&format!("{stack:?}: {} bytes back in {took:?}\n", flow.count));
    }
    for f in network.flows() {
        summary.push_str(&format!("{f:?}\n"));
    }
    summary.push_str(&format!("digest {:016x}\n", world.digest()));
    // The engines go first: a trace is complete when its connection is gone.
    drop(play);
    let mut files = vec![("trace.csv".to_owned(), network.trace_csv(&world.take_trace()).into_bytes())];
    files.extend(network.captures_so_far().into_iter().map(|(link, bytes)| (format!("trace-{link}.pcapng"), bytes)));
    let samples = network.take_samples();
    files.extend(samples.iter().map(|t| (format!("trace-{}.csv", t.name), t.to_csv().into_bytes())));
    files.extend(client_traces.files());
    files.extend(server_traces.files());
    files.push(("trace-summary.txt".to_owned(), summary.into_bytes()));
    files
}

/// How long the run is in the simulator.
#[must_use]
pub fn length() -> Duration {
    Scenario::parse(shipped("replay").unwrap_or_default(), &[]).map_or(Duration::ZERO, |s| s.total())
}
