//! X1: how fast the simulator is, by the processor time of the one thread that it has: on a machine that does nothing else that is
//! the time that passes, and on a busy one it is still what the simulator costs. The time that passed is told beside it.

use super::{Lab, Outcome};
use crate::measure::stats::{median, quantile};
use crate::measure::{MeasureError, Result};
use crate::report::{Bound, Figure};
use neater_emulator::sys::thread_cpu;
use neater_netsim::World;
use neater_scenario::{Scenario, shipped};
use std::time::Instant;

/// Runs of the full form, which a verdict needs, and of the quick one.
const RUNS: (usize, usize) = (10, 3);
/// Runs of the long simulation, in either form.
const HOURS: usize = 3;

/// One run of the scenario `speed`.
struct Run {
    /// Seconds of processor time.
    cpu: f64,
    /// Seconds that passed.
    wall: f64,
    /// Packets, counted once for each link.
    hops: u64,
    digest: u64,
}

fn once(rate: &str, duration: &str) -> Result<Run> {
    let failed = |what: String| MeasureError::from(std::io::Error::other(what));
    let set = [("rate", rate), ("duration", duration)].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let text = shipped("speed").unwrap_or_default();
    let scenario = Scenario::parse(text, &set).map_err(|e| failed(e.to_string()))?;
    let network = World::build(&scenario, 1).map_err(failed)?;
    let (began, before) = (Instant::now(), thread_cpu());
    network.run(|_| true);
    let (cpu, wall) = ((thread_cpu() - before).as_secs_f64(), began.elapsed().as_secs_f64());
    Ok(Run { cpu, wall, hops: network.packet_hops(), digest: network.world.digest() })
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let runs = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    let (mut speeds, mut passed) = (Vec::new(), Vec::new());
    let mut digests = Vec::new();
    for run in 0..runs {
        (lab.progress)(&format!("3 + 3 endpoints at 100 Mbit/s, {} of {runs}", run + 1));
        let r = once("100 Mbit/s", "20 s")?;
        speeds.push(r.hops as f64 / r.cpu);
        passed.push(r.hops as f64 / r.wall);
        digests.push(r.digest);
        out.sample("sim_packets_per_second", "netsim", "100-mbit", run, r.hops as f64 / r.cpu);
        out.sample("sim_packets_per_second_passed", "netsim", "100-mbit", run, r.hops as f64 / r.wall);
    }
    // A build without optimisation is ten times slower, and says nothing of what is shipped.
    let debug = cfg!(debug_assertions).then_some("built without optimisation");
    let speed = Figure::new("X1", "sim_packets_per_second", "100-mbit", "1/s").value(median(&speeds), runs);
    let speed = speed
        .void_for(debug)
        .needs(RUNS.0)
        .judge(Bound::AtLeast(1e6))
        .with("least", quantile(&speeds, 0.0))
        .with("most", quantile(&speeds, 1.0))
        .with("by_time_passed", median(&passed));
    if debug.is_some() {
        out.remarks.push(
            "Built without optimisation: run it with `cargo run --release -p neater-lab --bin neater-lab -- run X1`."
                .into(),
        );
    }
    let mut hours = Vec::new();
    for run in 0..runs.min(HOURS) {
        (lab.progress)(&format!("60 simulated minutes at 1 Mbit/s, {} of {}", run + 1, runs.min(HOURS)));
        let cpu = once("1 Mbit/s", "60 min")?.cpu;
        hours.push(cpu);
        out.sample("sim_hour_seconds", "netsim", "1-mbit", run, cpu);
    }
    let hour = Figure::new("X1", "sim_hour_seconds", "1-mbit", "s");
    let hour = hour.value(median(&hours), hours.len()).void_for(debug).needs(HOURS);
    out.figures.extend([speed, hour.judge(Bound::AtMost(5.0))]);
    if digests.windows(2).any(|w| w[0] != w[1]) {
        return Err(std::io::Error::other("equal runs have different digests").into());
    }
    out.runs = Some(runs);
    out.panel("sim_packets_per_second", "Packets over a hop", "packets/s", |f| {
        (f.variant.clone(), "netsim".to_owned())
    });
    out.panel("sim_hour_seconds", "60 simulated minutes at 1 Mbit/s", "s", |f| {
        (f.variant.clone(), "netsim".to_owned())
    });
    Ok(out)
}
