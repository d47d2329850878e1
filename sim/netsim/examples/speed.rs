//! What a packet costs the simulator: the scenario of experiment X1, as short as it is told, and nothing around it.
//!
//! `cargo build --release -p neater-netsim --example speed`, then under a profiler, such as
//! `valgrind --tool=callgrind target/release/examples/speed 2`. It prints packets over hops, and the digest of the run, which
//! an optimisation must not change.

use neater_netsim::World;
use neater_scenario::{Scenario, shipped};

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().unwrap_or_else(|| "20".into());
    let rate = args.next().unwrap_or_else(|| "100".into());
    let set = [("rate".to_owned(), format!("{rate} Mbit/s")), ("duration".to_owned(), format!("{seconds} s"))];
    let text = shipped("speed").unwrap_or_default();
    let scenario = Scenario::parse(text, &set).map_err(|e| e.to_string())?;
    let network = World::build(&scenario, 1)?;
    network.run(|_| true);
    println!("{} packets over hops, digest {:016x}", network.packet_hops(), network.world.digest());
    Ok(())
}
