//! Packets that are sent, seen at both ends by tcpdump, and sent once more over the same link in the simulator.

use neater_base::{Instant, Rng};
use neater_emulator::{Capture, Lab, LiveError, pcap};
use neater_link::LinkConfig;
use neater_netsim::{TraceVerdict, World};
use neater_scenario::{Builder, Direction};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// IPv4 and UDP headers, in bytes.
pub(super) const HEADERS: u32 = 28;
/// Bytes of a packet that are captured: headers and number.
const SNAP: usize = 64;
/// Where the sender's packets go. Nobody listens there: what counts is seen before.
pub(super) const PORT: u16 = 9;

/// So long after the last packet was sent all have arrived, over the slowest of the links.
const LAST: Duration = Duration::from_secs(60);

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// When it was seen to leave its host, in nanoseconds.
    pub sent: u64,
    /// When it was seen to arrive, if it was.
    pub seen: Option<u64>,
    /// Its length with the IP header.
    pub len: u32,
}

impl Step {
    /// How long it was under way, in milliseconds.
    pub(super) fn ms(&self) -> Option<f64> {
        Some((self.seen? as f64 - self.sent as f64) / 1e6)
    }
}

/// What is captured at the two ends of one direction.
pub(super) struct Journey {
    ends: [Capture; 2],
}

impl Journey {
    /// Begins to watch what goes from one host to another.
    pub(super) fn watch(lab: &Lab, from: &str, to: &str, filter: &str, dir: &Path) -> Result<Self, LiveError> {
        let file = |host: &str| dir.join(format!("{host}.pcap"));
        let source = lab.address(from, false)?;
        let filter = format!("src host {source} and ({filter})");
        Ok(Self {
            ends: [
                lab.capture(from, "eth0", &filter, SNAP, &file(from))?,
                lab.capture(to, "eth0", &filter, SNAP, &file(to))?,
            ],
        })
    }

    /// Ends it; the packets in the order in which they left. A packet that was seen at both ends is the same if its first
    /// bytes behind the IP header are, which the sender's numbers and ping's make unique.
    pub(super) fn end(self) -> Result<Vec<Step>, LiveError> {
        let mut seen: HashMap<Vec<u8>, u64> = HashMap::new();
        let [from, to] = self.ends;
        let [from, to] = [from.stop()?, to.stop()?];
        if from.missed + to.missed > 0 {
            return Err(LiveError::Failed(format!(
                "tcpdump missed {} packets: this machine is too busy to measure on",
                from.missed + to.missed
            )));
        }
        for p in pcap::read(&to.file)? {
            seen.entry(key(&p.bytes)).or_insert(p.at);
        }
        let steps = pcap::read(&from.file)?
            .into_iter()
            .map(|p| Step { sent: p.at, seen: seen.get(&key(&p.bytes)).copied(), len: p.len })
            .collect();
        for file in [from.file, to.file] {
            let _ = std::fs::remove_file(file);
        }
        Ok(steps)
    }
}

/// What tells packets apart and does not change on the way: ICMP's identifier and number with the time behind them, or
/// UDP's ports and our number.
fn key(bytes: &[u8]) -> Vec<u8> {
    bytes.get(20..36.min(bytes.len())).unwrap_or_default().to_vec()
}

/// Sends numbered UDP packets of `len` bytes (with IP header) from a host, each so long after the first as `gaps` says.
pub(super) fn send(
    lab: &Lab,
    from: &str,
    to: &str,
    len: u32,
    gaps: impl IntoIterator<Item = Duration> + Send,
) -> Result<(), LiveError> {
    let to = SocketAddr::new(lab.address(to, false)?, PORT);
    let failed = |e: std::io::Error| LiveError::Failed(format!("sending from {from}: {e}"));
    lab.netns(from)?.with(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").and_then(|s| s.connect(to).map(|()| s)).map_err(failed)?;
        let mut payload = vec![0u8; len.saturating_sub(HEADERS).max(8) as usize];
        let start = std::time::Instant::now();
        let mut due = Duration::ZERO;
        for (n, gap) in gaps.into_iter().enumerate() {
            due += gap;
            let left = due.saturating_sub(start.elapsed());
            if left > Duration::from_micros(200) {
                std::thread::sleep(left - Duration::from_micros(150));
            }
            while start.elapsed() < due {
                std::hint::spin_loop();
            }
            payload[..8].copy_from_slice(&(n as u64).to_be_bytes());
            match socket.send(&payload) {
                // The receiver's "port unreachable" about an earlier packet says that packets arrive.
                Err(e) if e.kind() != std::io::ErrorKind::ConnectionRefused => return Err(failed(e)),
                _ => {}
            }
        }
        Ok(())
    })
}

/// Sends packets, when they were seen to leave, from one host to another in the simulator, over a link of this name and
/// these directions: when each arrives there, in nanoseconds on the same clock, `None` if it does not. `begins` is when the network
/// began, on that clock.
pub(super) fn simulate(
    name: &str,
    directions: [&LinkConfig; 2],
    seed: u64,
    begins: u64,
    steps: &[Step],
) -> Result<Vec<Option<u64>>, LiveError> {
    /// So many packets follow each other until one has the port of an earlier one.
    const PORTS: usize = 60_000;
    let failed = |why: String| LiveError::Failed(format!("the simulator: {why}"));
    let mut builder = Builder::new("journey");
    let (from, to) = (builder.host("c"), builder.host("s"));
    let direction = |config: &LinkConfig| Direction { config: config.clone(), queue_bdp: None };
    builder.link(name, from, to, directions.map(direction));
    let scenario = builder.build().map_err(|e| failed(e.to_string()))?;
    let network = World::build(&scenario, seed).map_err(failed)?;
    let (world, start) = (&network.world, network.start());
    world.trace(true);
    let address = |node| scenario.address(node, true).ok_or_else(|| failed("a host has no address".into()));
    let (source, destination) = (address(from)?, address(to)?);
    let there = network.links()[0][0];
    // What enters the link at a time from a port is one packet.
    let mut under_way: HashMap<(u16, Instant), usize> = HashMap::new();
    let mut arrived = vec![None; steps.len()];
    let mut look = |under_way: &mut HashMap<(u16, Instant), usize>| {
        for event in world.take_trace().into_iter().filter(|e| e.link == Some(there)) {
            if let TraceVerdict::Crossed { entered } = event.verdict
                && let Some(n) = under_way.remove(&(event.from.port(), entered))
            {
                arrived[n] = Some(begins + (event.time - start).as_nanos() as u64);
            }
        }
    };
    let mut payload = vec![0; 65_535];
    for (n, step) in steps.iter().enumerate() {
        let at = start + Duration::from_nanos(step.sent.saturating_sub(begins));
        world.run_until(at);
        let port = 1024 + (n % PORTS) as u16;
        payload[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let contents = payload[..step.len.saturating_sub(HEADERS) as usize].to_vec();
        under_way.insert((port, at), n);
        if !world.send_datagram((source, port).into(), (destination, PORT).into(), contents.into()) {
            return Err(failed("there is no way from one host to the other".into()));
        }
        if n % 1000 == 0 {
            look(&mut under_way);
        }
    }
    world.run_until(world.now() + LAST);
    look(&mut under_way);
    Ok(arrived)
}

/// Times between packets of a Poisson process with this mean.
pub(super) fn poisson(mean: Duration, n: usize, rng: &mut Rng) -> Vec<Duration> {
    (0..n).map(|_| mean.mul_f64(-(1.0 - rng.unit()).ln())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(n: u64, gap: u64, len: u32) -> Vec<Step> {
        (0..n).map(|i| Step { sent: 1_000_000 + i * gap, seen: None, len }).collect()
    }

    #[test]
    fn a_replayed_link_delays_serialises_and_drops_as_it_should() {
        let config =
            LinkConfig::rate(1_000_000, Duration::from_millis(5)).with_queue(neater_link::QueueLimit::Packets(3));
        let got = simulate("link", [&config, &LinkConfig::default()], 1, 0, &steps(10, 0, 1250)).expect("simulated");
        // 10 ms each; three are there at most.
        let due: Vec<_> = (1..=3u64).map(|i| Some(1_000_000 + i * 10_000_000 + 5_000_000)).collect();
        assert_eq!(got[..3], due);
        assert!(got[3..].iter().all(Option::is_none));
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_deviation() {
        let gaps = poisson(Duration::from_millis(1), 20_000, &mut Rng::from_number(1));
        let ms: Vec<f64> = gaps.iter().map(|g| g.as_secs_f64() * 1e3).collect();
        let mean = ms.iter().sum::<f64>() / ms.len() as f64;
        let sd = (ms.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / ms.len() as f64).sqrt();
        assert!((0.98..1.02).contains(&mean) && (0.97..1.03).contains(&sd), "{mean} {sd}");
    }
}
