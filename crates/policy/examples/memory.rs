//! What tables cost in memory: `cargo run --release -p neater-policy --example memory [POLICIES]`.
//!
//! Anonymous memory (Linux, `/proc/self/status`) before there is a manager, with the policies of
//! the example `decision` loaded as files, as the daemon does, and after a decision, for which they
//! are compiled.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the system's figures; the crate does not")]

#[allow(dead_code, reason = "the other example uses the rest")]
#[path = "decision/workload.rs"]
mod workload;

use neater_policy::manager::{Loader, Manager, SourceFile};
use workload::{LIMITS, NOW, nodes, policy, profiles, request};

/// Anonymous memory in kB.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

fn main() {
    let count: i32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let begin = anonymous();
    let (mut manager, mut loader) = (Manager::new(LIMITS), Loader::default());
    {
        // Their texts are in memory meanwhile, as in the daemon.
        let text = |(name, json): (String, serde_json::Value)| (name, json.to_string());
        let pib: Vec<_> = profiles().into_iter().chain((0..count).map(policy)).map(text).collect();
        let cib: Vec<_> = nodes().into_iter().map(text).collect();
        let sources = |all| -> Vec<SourceFile<'_>> {
            let all: &[(String, String)] = all;
            all.iter().map(|(name, text)| SourceFile { name, text }).collect()
        };
        let report = loader.load(&mut manager, &sources(&pib), &sources(&cib), NOW);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }
    let loaded = anonymous();
    drop(manager.decide(&request(), NOW));
    println!("{count} policies: {begin} kB before, {loaded} kB loaded, {} kB after a decision", anonymous());
}
