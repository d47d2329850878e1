//! What a decision costs: `cargo run --release -p neater-policy --example decision
//! [cold|first|cached|row|plain] [TURNS]`.
//!
//! 10,000 policies of which 20 match the request and 200 a row of the CIB, 100 rows, 100 candidates
//! of which the first 10 are ranked out. `cold` decides and keeps nothing; `first` does what a
//! program does that asks something for the first time, and keeps it with what it depended on;
//! `row` changes one of the rows before each decision. Without a word, every form is timed and the
//! medians are printed in microseconds; with one, only that form runs, TURNS times, for a counter
//! of instructions.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; the crate does not")]

mod workload;

use neater_policy::manager::Node;
use std::hint::black_box;
use std::time::{Duration, Instant};
use workload::{NOW, manager, nodes, request, unasked};

/// The first node, whose content changes every time.
fn changed(turn: u32) -> Node {
    let (_, mut json) = nodes().swap_remove(0);
    json["properties"]["wired"]["score"] = (1 + turn % 2).into();
    Node::from_json(json, "", "", NOW).expect("a node").0
}

fn main() {
    let mut manager = manager();
    let request = request();
    let args: Vec<String> = std::env::args().collect();
    let turns: usize = args.get(2).and_then(|t| t.parse().ok()).unwrap_or(1000);
    let candidates = manager.decide_anew(&request, NOW).expect("a decision").ranked();
    if args.len() < 2 {
        let plain = manager.explain(&request, NOW).expect("a decision").0;
        assert_eq!(candidates, plain, "both forms decide alike");
    }
    let mut changes = 0;
    let mut time = |form: &str| {
        let turns = if form == "plain" { turns.min(20) } else { turns };
        let mut times: Vec<Duration> = (0..turns)
            .map(|_| {
                changes += 1;
                let node = (form == "row").then(|| changed(changes));
                let unasked = (form == "first").then(|| unasked(changes as usize));
                let begin = Instant::now();
                if let Some(node) = node {
                    manager.insert_node(node, NOW);
                }
                match form {
                    "plain" => drop(black_box(manager.explain(black_box(&request), NOW))),
                    "first" => drop(black_box(manager.decide(black_box(unasked.as_ref().unwrap_or(&request)), NOW))),
                    "cached" => drop(black_box(manager.decide(black_box(&request), NOW))),
                    _ => drop(black_box(manager.decide_anew(black_box(&request), NOW))),
                }
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    match args.get(1) {
        Some(form) => println!("{form} {:.2} us", time(form)),
        None => {
            println!("{} candidates ranked out", candidates.len());
            for form in ["cold", "first", "cached", "row", "plain"] {
                println!("{form} {:.2} us", time(form));
            }
        }
    }
}
