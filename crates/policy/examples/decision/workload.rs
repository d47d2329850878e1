//! The work of P1: 10,000 policies of which 20 match the request and 200 a row of the CIB, 100
//! rows, 100 candidates of which the first 10 are ranked out. The example `decision` and the lab's
//! peer both do it.

use neater_base::WallTime;
use neater_policy::manager::{Cib, Limits, Manager, Node, Requests, Rule};
use serde_json::{Value, json};
use std::time::Duration;

/// The time of every decision.
pub(crate) const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));
/// How many candidates are kept.
pub(crate) const LIMITS: Limits = Limits { rows: 100, candidates: 10 };
/// What is asked.
pub(crate) const REQUEST: &str = r#"[{"app": {"value": "video"}, "port": {"value": 443}, "domain_name": {"value": "example.com"},
    "remote_ip": {"value": "203.0.113.7"}, "security": {"value": true}, "delay": {"value": {"start": 0, "end": 1000}}}]"#;

/// The same to another address, one that no policy speaks of: what a program asks for the first
/// time.
pub(crate) fn unasked(n: usize) -> Requests {
    let text = REQUEST.replace("203.0.113.7", &format!("198.18.{}.{}", n / 256 % 256, n % 256));
    Requests::from_text(&text).expect("a document")
}

/// The profiles, with the names of their files.
pub(crate) fn profiles() -> Vec<(String, Value)> {
    let default =
        json!({"uid": "default", "match": {}, "properties": {"transport": {"value": "reliable", "precedence": 0}}});
    let reliable = json!({"uid": "reliable", "priority": 1, "match": {"transport": {"value": "reliable"}},
        "replace_matched": true, "properties": {"transport": {"value": ["TCP", "SCTP"], "precedence": 1, "score": 2}}});
    vec![("default.profile".into(), default), ("reliable.profile".into(), reliable)]
}

/// A policy of the 10,000, likewise.
pub(crate) fn policy(i: i32) -> (String, Value) {
    // Every one wants two things. 20 want what the request has, 200 what two rows have, the others
    // what nothing has.
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
    let uid = format!("p{i:05}");
    let file = format!("{uid}.policy");
    (file, json!({"uid": uid, "priority": i % 7, "match": wanted, "properties": properties}))
}

/// All of them.
pub(crate) fn policies() -> Vec<(String, Value)> {
    (0..10_000).map(policy).collect()
}

/// The nodes, likewise.
pub(crate) fn nodes() -> Vec<(String, Value)> {
    let node = |i: i32| {
        let node = json!({"uid": format!("if{i}"), "root": true, "expire": -1, "properties": {
            "interface": {"value": format!("if{}", i / 2), "precedence": 2},
            "local_ip": {"value": format!("10.0.{i}.1"), "precedence": 2, "score": f64::from(i % 13)},
            "wired": {"value": i % 2 == 0, "score": 1}, "mtu": {"value": 1500 - i % 3},
            "ip_version": {"value": if i % 2 == 0 { 4 } else { 6 }, "precedence": 2},
            "delay": {"value": {"start": i, "end": i + 20}, "score": f64::from(-i) / 10.0}, "up": {"value": true},
        }});
        (format!("if{i}.cib"), node)
    };
    (10..110).map(node).collect()
}

/// A manager that has all of them.
pub(crate) fn manager() -> Manager {
    let rule = |(_, json): (String, Value)| Rule::from_json(json, "", "").expect("a rule").0;
    let mut cib = Cib::default();
    for (_, json) in nodes() {
        cib.insert(Node::from_json(json, "", "", NOW).expect("a node").0);
    }
    let mut manager = Manager::new(LIMITS);
    manager.install(profiles().into_iter().map(rule).collect(), policies().into_iter().map(rule).collect(), cib);
    manager
}

/// What is asked.
pub(crate) fn request() -> Requests {
    Requests::from_text(REQUEST).expect("a request")
}
