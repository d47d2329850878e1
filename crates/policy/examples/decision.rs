//! What a decision costs: `cargo run --release -p neater-policy --example decision [cold|cached|plain] [TURNS]`.
//!
//! 10,000 policies of which 20 match the request and 200 a row of the CIB, 100 rows, 100 candidates of which the first 10
//! are ranked out. Without a word, every form is timed and the medians are printed in microseconds; with one, only that form
//! runs, as often as TURNS says, which is what a counter of instructions wants.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; the crate does not")]

use neater_base::WallTime;
use neater_policy::manager::{Limits, Manager, Node, Requests, Rule, Stage};
use serde_json::json;
use std::hint::black_box;
use std::time::{Duration, Instant};

const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

fn manager() -> Manager {
    let mut manager = Manager::new(Limits { rows: 100, candidates: 10 });
    let mut add = |stage, json| manager.insert_rule(stage, Rule::from_json(json, "", "").expect("a rule").0);
    add(
        Stage::Profile,
        json!({"uid": "default", "match": {}, "properties": {"transport": {"value": "reliable", "precedence": 0}}}),
    );
    add(
        Stage::Profile,
        json!({"uid": "reliable", "priority": 1, "match": {"transport": {"value": "reliable"}}, "replace_matched": true,
        "properties": {"transport": {"value": ["TCP", "SCTP"], "precedence": 1, "score": 2}}}),
    );
    for i in 0..10_000 {
        // Every one wants two things. 20 want what the request says, 200 what two rows say, the others what nobody says.
        let wanted = match i {
            0..20 => json!({"app": {"value": "video"}, "port": {"value": {"start": i, "end": 1000}}}),
            20..220 => json!({"local_ip": {"value": format!("10.0.{}.1", i / 2)}, "app": {"value": "video"}}),
            _ => json!({"remote_ip": {"value": format!("192.0.{}.{}", i / 250, i % 250)}, "app": {"value": "video"}}),
        };
        let properties = match i % 3 {
            0 => json!({"tos": {"value": 8, "score": 0.5}}),
            1 => json!({"transport": {"value": "TCP", "score": 1}}),
            _ => json!({"rank": {"value": i, "score": 0.25}}),
        };
        add(
            Stage::Policy,
            json!({"uid": format!("p{i:05}"), "priority": i % 7, "match": wanted, "properties": properties}),
        );
    }
    for i in 10..110 {
        let node = json!({"uid": format!("if{i}"), "root": true, "expire": -1, "properties": {
            "interface": {"value": format!("if{}", i / 2), "precedence": 2},
            "local_ip": {"value": format!("10.0.{i}.1"), "precedence": 2, "score": f64::from(i % 13)},
            "wired": {"value": i % 2 == 0, "score": 1}, "mtu": {"value": 1500 - i % 3},
            "ip_version": {"value": if i % 2 == 0 { 4 } else { 6 }, "precedence": 2},
            "delay": {"value": {"start": i, "end": i + 20}, "score": f64::from(-i) / 10.0}, "up": {"value": true},
        }});
        manager.insert_node(Node::from_json(node, "", "", NOW).expect("a node").0, NOW);
    }
    manager
}

fn request() -> Requests {
    Requests::from_text(
        r#"[{"app": {"value": "video"}, "port": {"value": 443}, "domain_name": {"value": "example.com"},
             "remote_ip": {"value": "203.0.113.7"}, "security": {"value": true}, "delay": {"value": {"start": 0, "end": 1000}}}]"#,
    )
    .expect("a request")
}

fn main() {
    let mut manager = manager();
    let request = request();
    let args: Vec<String> = std::env::args().collect();
    let turns: usize = args.get(2).and_then(|t| t.parse().ok()).unwrap_or(1000);
    let plain = manager.explain(&request, NOW).expect("a decision").0;
    assert_eq!(manager.decide_anew(&request, NOW).expect("a decision").ranked(), plain, "both forms decide alike");
    let mut time = |form: &str| {
        let turns = if form == "plain" { turns.min(20) } else { turns };
        let mut times: Vec<Duration> = (0..turns)
            .map(|_| {
                let begin = Instant::now();
                match form {
                    "plain" => drop(black_box(manager.explain(black_box(&request), NOW))),
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
            println!("{} candidates ranked out", plain.len());
            for form in ["cold", "cached", "plain"] {
                println!("{form} {:.2} us", time(form));
            }
        }
    }
}
