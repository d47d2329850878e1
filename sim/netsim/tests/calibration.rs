//! The simulated TCP beside the kernel's: the table of `sim/netsim/calibration`.

use neater_base::Instant;
use neater_base::net::{InterfaceKind, Net, NetEvent, SocketOptions, Token};
use neater_link::{LinkConfig, QueueLimit};
use neater_netsim::{BufferSize, TcpConfig, TcpProbe, World};
use std::time::Duration;

/// One row: what was transferred over which link, and what the kernel delivered.
#[derive(Clone, Debug)]
struct Row {
    controller: String,
    mbit: f64,
    rtt_ms: f64,
    loss_percent: f64,
    queue: u64,
    seed: u64,
    seconds: f64,
    kernel: f64,
}

fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which of the first `n` packets of the link are lost: the same in the lab.
fn lost(seed: u64, p: f64, n: u64) -> Vec<u64> {
    let unit = |i: u64| (mix(mix(seed) ^ i) >> 11) as f64 / (1u64 << 53) as f64;
    (3..n).filter(|i| p > 0.0 && unit(*i) < p).collect()
}

fn simulate(row: &Row, mut look: impl FnMut(Duration, &TcpProbe)) -> f64 {
    let world = World::new(row.seed);
    let (a, b) = (world.add_host("a"), world.add_host("b"));
    let ia = world.add_interface(a, "e", InterfaceKind::Wired, &["192.0.2.1".parse().unwrap()]);
    let ib = world.add_interface(b, "e", InterfaceKind::Wired, &["192.0.2.2".parse().unwrap()]);
    let delay = Duration::from_secs_f64(row.rtt_ms / 2000.0);
    let packets = (row.mbit * 1e6 / 8.0 / 1000.0 * row.seconds) as u64 + 1000;
    let link = LinkConfig::rate((row.mbit * 1e6) as u64, delay).with_queue(QueueLimit::Bytes(row.queue)).without(lost(
        row.seed,
        row.loss_percent / 100.0,
        packets,
    ));
    let (_ab, _) = world.connect(ia, ib, link, LinkConfig::delay(delay));
    let buffer = |start| BufferSize::Tuned { start, most: 32 << 20 };
    let base = if row.controller == "reno" { TcpConfig::linux_reno() } else { TcpConfig::linux() };
    let tcp = TcpConfig { receive_buffer: buffer(65_536), send_buffer: buffer(87_040), ..base };
    world.set_tcp(a, tcp);
    world.set_tcp(b, tcp);
    let (mut client, mut server) = (world.net(a), world.net(b));
    let plain = SocketOptions::default();
    let listener = server.listen(Token(1), "0.0.0.0:80".parse().unwrap(), &plain).unwrap();
    let start = world.now();
    let c = client.connect(Token(2), "192.0.2.2:80".parse().unwrap(), &plain).unwrap();
    // Readiness is only told to those who were told to wait.
    let mut s = server.accept(listener, Token(3)).ok().map(|(s, _)| s);
    let mut got = 0u64;
    let mut events: Vec<NetEvent> = Vec::new();
    let end: Instant = start + Duration::from_secs_f64(row.seconds);
    let mut last = start;
    while world.next_event().is_some_and(|t| t <= end) {
        world.step();
        if world.has_events(a) {
            while client.poll(&mut events) {}
            while client.write_zeros(c, 1 << 18).is_ok() {}
        }
        if world.has_events(b) {
            while server.poll(&mut events) {}
            s = s.or_else(|| server.accept(listener, Token(3)).ok().map(|(s, _)| s));
            if let Some(s) = s {
                while let Ok(n @ 1..) = server.discard(s, 1 << 20) {
                    got += n as u64;
                }
            }
        }
        events.clear();
        if world.now() - last >= Duration::from_millis(5) {
            last = world.now();
            if let Ok(probe) = client.tcp_probe(c) {
                look(last - start, &probe);
            }
        }
    }
    got as f64 * 8.0 / row.seconds / 1e6
}

fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.starts_with("controller"))
        .map(|line| {
            let f: Vec<&str> = line.split(',').collect();
            Row {
                controller: f[0].into(),
                mbit: f[1].parse().unwrap(),
                rtt_ms: f[2].parse().unwrap(),
                loss_percent: f[3].parse().unwrap(),
                queue: f[4].parse().unwrap(),
                seed: f[5].parse().unwrap(),
                seconds: f[6].parse().unwrap(),
                kernel: f[8].parse().unwrap(),
            }
        })
        .collect()
}

#[test]
fn explore() {
    let Ok(file) = std::env::var("CAL") else { return };
    let verbose = std::env::var("VERBOSE").is_ok();
    for row in rows(&std::fs::read_to_string(file).unwrap()) {
        let mut most = None;
        let goodput = simulate(&row, |t, p| {
            most = Some(*p);
            if verbose {
                println!(
                    "{:.3} {} cwnd {} ssthresh {:?} rtt {:?} out {} sacked {} lost {} retr {} peerwnd {}",
                    t.as_secs_f64(),
                    p.phase.name(),
                    p.window / 1448,
                    p.threshold.map(|t| t / 1448),
                    p.srtt.unwrap(),
                    p.outstanding / 1448,
                    p.sacked / 1448,
                    p.lost / 1448,
                    p.retransmits,
                    p.peer_window
                );
            }
        });
        let p = most.unwrap();
        println!(
            "{},{},{},{},{},{},{:.4},{:.4},{:.4},retr {} rec {} rto {} tlp {} undo {}",
            row.controller,
            row.mbit,
            row.rtt_ms,
            row.loss_percent,
            row.queue,
            row.seed,
            row.kernel,
            goodput,
            goodput / row.kernel,
            p.retransmits,
            p.recoveries,
            p.timeouts,
            p.probes,
            p.undone
        );
    }
}
