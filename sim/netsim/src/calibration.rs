//! One bulk transfer over one bottleneck, the way the kernel's TCP is measured in the lab, and the table of both.
//!
//! *Responsible for* what a point of the calibration is, which packets it loses, and simulating it. *Not responsible for*
//! measuring the kernel: `neater-lab calibrate` does, with the same points and the same losses.

use crate::tcp::{BufferSize, TcpConfig, TcpProbe};
use crate::world::World;
use core::time::Duration;
use neater_base::net::{InterfaceKind, Net, NetEvent, SocketOptions, Token};
use neater_link::{LinkConfig, QueueLimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The table that is checked in: `sim/netsim/calibration/linux.csv`.
pub const LINUX: &str = include_str!("../calibration/linux.csv");
/// Its columns.
pub const COLUMNS: &str =
    "controller,mbit,rtt_ms,loss_percent,queue_bytes,seed,seconds,goodput_mbit,retransmits,queue_drops,lost,offered";
/// The largest receive and send buffers: larger than any window of the table, so that congestion control alone decides.
/// `tcp_rmem` is twice this, because half of it is window.
pub const BUFFER: usize = 32 << 20;

/// One transfer: a sender that always has data, one bottleneck, and a way back that only delays.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// `cubic` or `reno`.
    pub controller: String,
    /// The rate of the bottleneck in Mbit/s, IP headers included.
    pub mbit: f64,
    /// The round-trip time without queueing, in milliseconds; half of it each way.
    pub rtt_ms: f64,
    /// Which share of the packets is lost behind the queue, in percent: see [`Point::lost`].
    pub loss_percent: f64,
    /// The bottleneck's drop-tail queue, in bytes.
    pub queue_bytes: u64,
    /// Which packets are lost.
    pub seed: u64,
    /// How long the transfer is watched, from the SYN on.
    pub seconds: f64,
}

/// A row of the table: a point and what the kernel delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was transferred how.
    pub point: Point,
    /// Payload delivered to the receiving program, in Mbit/s.
    pub goodput_mbit: f64,
}

/// Reads a table.
///
/// # Errors
/// The line and what is wrong with it.
pub fn rows(table: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (i, line) in table.lines().enumerate() {
        if line.starts_with('#') || line == COLUMNS || line.is_empty() {
            continue;
        }
        let f: Vec<&str> = line.split(',').collect();
        let bad = |column: usize| format!("line {}, column {}: not a positive number", i + 1, column + 1);
        let number = |column: usize| {
            let n: f64 = f.get(column).and_then(|t| t.parse().ok()).ok_or_else(|| bad(column))?;
            if n.is_finite() && n >= 0.0 { Ok(n) } else { Err(bad(column)) }
        };
        let controller = f[0].to_owned();
        if !["cubic", "reno"].contains(&f[0]) {
            return Err(format!("line {}: the controller is {:?}, not cubic or reno", i + 1, f[0]));
        }
        let point = Point {
            controller,
            mbit: number(1)?,
            rtt_ms: number(2)?,
            loss_percent: number(3)?,
            queue_bytes: number(4)? as u64,
            seed: number(5)? as u64,
            seconds: number(6)?,
        };
        rows.push(Row { point, goodput_mbit: number(7)? });
    }
    Ok(rows)
}

/// A hash of 64 bits (the finaliser of splitmix64; Steele, Lea and Flood 2014).
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Point {
    /// The indices of the packets that the bottleneck loses: a function of seed and index alone, so that simulator and lab
    /// lose the same ones whatever their past. The handshake is spared.
    #[must_use]
    pub fn lost(&self) -> Vec<u64> {
        let p = self.loss_percent / 100.0;
        if p <= 0.0 {
            return Vec::new();
        }
        // As many as could be sent if half of them were dropped before they are counted.
        let packets = (self.mbit * 1e6 / 8.0 / 750.0 * self.seconds) as u64 + 1000;
        let unit = |i: u64| (mix(mix(self.seed) ^ i) >> 11) as f64 / (1u64 << 53) as f64;
        (3..packets).filter(|i| unit(*i) < p).collect()
    }

    /// The bottleneck, and the way back.
    #[must_use]
    pub fn links(&self) -> (LinkConfig, LinkConfig) {
        let delay = Duration::from_secs_f64(self.rtt_ms / 2000.0);
        let there = LinkConfig::rate((self.mbit * 1e6) as u64, delay)
            .with_queue(QueueLimit::Bytes(self.queue_bytes))
            .without(self.lost());
        (there, LinkConfig::delay(delay))
    }

    /// What the table calls the point, the seed left out.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { controller, mbit, rtt_ms, loss_percent, queue_bytes, .. } = self;
        format!("{controller} {mbit} Mbit/s {rtt_ms} ms {loss_percent} % {queue_bytes} B")
    }
}

/// Simulates a point and returns the goodput in Mbit/s and the sender at its end. `look` sees the sender every 5 ms.
pub fn simulate(point: &Point, mut look: impl FnMut(Duration, &TcpProbe)) -> (f64, Option<TcpProbe>) {
    let world = World::new(point.seed);
    let (a, b) = (world.add_host("sender"), world.add_host("receiver"));
    let address = |n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n));
    let from = world.add_interface(a, "eth0", InterfaceKind::Wired, &[address(1)]);
    let to = world.add_interface(b, "eth0", InterfaceKind::Wired, &[address(2)]);
    let (there, back) = point.links();
    world.connect(from, to, there, back);
    let base = if point.controller == "reno" { TcpConfig::linux_reno() } else { TcpConfig::linux() };
    let buffer = |tuned: BufferSize| BufferSize::Tuned { start: tuned.start(), most: BUFFER };
    let tcp = TcpConfig { receive_buffer: buffer(base.receive_buffer), send_buffer: buffer(base.send_buffer), ..base };
    world.set_tcp(a, tcp);
    world.set_tcp(b, tcp);
    let (mut client, mut server) = (world.net(a), world.net(b));
    let plain = SocketOptions::default();
    let port = |n| SocketAddr::new(address(n), 5001);
    let (Ok(listener), Ok(sock)) =
        (server.listen(Token(1), port(2), &plain), client.connect(Token(2), port(2), &plain))
    else {
        return (0.0, None);
    };
    // Readiness is only told to those who were told to wait.
    let mut accepted = server.accept(listener, Token(3)).ok().map(|(sock, _)| sock);
    let start = world.now();
    let end = start + Duration::from_secs_f64(point.seconds);
    let (mut got, mut last, mut probe) = (0u64, start, None);
    let mut events: Vec<NetEvent> = Vec::new();
    while world.next_event().is_some_and(|t| t <= end) {
        world.step();
        if world.has_events(a) {
            while client.poll(&mut events) {}
            while client.write_zeros(sock, 1 << 18).is_ok() {}
        }
        if world.has_events(b) {
            while server.poll(&mut events) {}
            accepted = accepted.or_else(|| server.accept(listener, Token(3)).ok().map(|(sock, _)| sock));
            if let Some(sock) = accepted {
                while let Ok(n @ 1..) = server.discard(sock, 1 << 20) {
                    got += n as u64;
                }
            }
        }
        events.clear();
        if world.now() - last >= Duration::from_millis(5) {
            last = world.now();
            if let Ok(seen) = client.tcp_probe(sock) {
                look(last - start, &seen);
                probe = Some(seen);
            }
        }
    }
    (got as f64 * 8.0 / point.seconds.max(1e-9) / 1e6, probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_an_error_says_where() {
        let good = "cubic,10,50,0,62500,1,20,9.58,11,11,0,16616";
        assert_eq!(rows(&format!("# note\n{COLUMNS}\n{good}\n")).unwrap().len(), 1);
        let error = |line: &str| rows(&format!("{COLUMNS}\n{line}")).unwrap_err();
        assert!(error("bbr,10,50,0,62500,1,20,9.58").contains("line 2: the controller"));
        assert!(error("reno,10,x,0,62500,1,20,9.58").contains("line 2, column 3"));
        assert!(error("reno,10,50").contains("column 4"));
    }

    #[test]
    fn losses_are_a_function_of_seed_and_index_and_as_many_as_asked_for() {
        let row = rows(LINUX).unwrap().into_iter().find(|r| r.point.loss_percent == 1.0 && r.point.mbit == 100.0);
        let point = row.unwrap().point;
        let lost = point.lost();
        let most = *lost.last().unwrap() as f64;
        assert!((lost.len() as f64 / most - 0.01).abs() < 0.0005, "{} of {most}", lost.len());
        assert!(lost[0] >= 3);
        assert_ne!(lost, Point { seed: point.seed + 1, ..point }.lost());
    }
}
