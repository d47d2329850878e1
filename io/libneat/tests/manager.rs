//! A policy manager that speaks NEAT's protocol: a stand-in that records what it is asked and
//! answers as its test asks.

#![cfg(has_libuv)]

mod common;

use common::{build, port, program};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How the stand-in answers a request, with text; `None`: not at all, and it keeps the connection.
type Answer = fn(&Value) -> Option<String>;

/// A manager at a socket of its own; returns that, and what it is asked.
fn manager(name: &str, answer: Answer) -> (PathBuf, Receiver<Value>) {
    // Not among what is built: a socket's name has 107 bytes at most.
    let path = std::env::temp_dir().join(format!("neat-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let (asked, questions) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stream.read_to_end(&mut text);
                // What is no JSON is of another protocol, which NEAT's manager drops.
                let Ok(question) = serde_json::from_slice::<Value>(&text) else { return };
                let reply = answer(&question);
                let _ = asked.send(question);
                match reply {
                    Some(reply) => drop(stream.write_all(reply.as_bytes())),
                    None => std::thread::sleep(Duration::from_secs(20)),
                }
            });
        }
    });
    (path, questions)
}

/// Opens a flow towards a listener of TCP that takes everything; returns what the program printed.
fn open(name: &str, answer: Answer, host: &str) -> (String, Vec<Value>) {
    let (path, questions) = manager(name, answer);
    let port = port();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("a listener");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            kept.push(stream);
        }
    });
    let managed = build("tests/c/managed.c");
    let properties = r#"{"transport": {"value": ["SCTP", "TCP"], "precedence": 1}, "flow_size": {"value": 7}}"#;
    let mut command = program(&managed, &[properties, host, &port]);
    command.env("NEAT_PM_SOCKET", &path).env("NEATER_POLICY", "");
    let out = common::run(&mut command);
    let _ = std::fs::remove_file(path);
    (out, questions.try_iter().collect())
}

/// NEAT's first answer is a candidate for each combination, and its second one chooses.
fn over_tcp_only(question: &Value) -> Option<String> {
    let request = &question[0];
    if request["__request_type"]["value"] == "pre-resolve" {
        let name = &request["domain_name"][0]["value"];
        let candidate = |transport: &str, ip: &str| {
            json!({"domain_name": {"value": name, "precedence": 2}, "transport": {"value": transport},
                   "local_ip": {"value": ip}, "interface": {"value": "lo"}, "port": request["port"]})
        };
        return Some(json!([candidate("SCTP", "127.0.0.1"), candidate("TCP", "127.0.0.1")]).to_string());
    }
    let of_tcp = |c: &&Value| c["transport"]["value"] == "TCP";
    let mut chosen: Vec<Value> = question.as_array()?.iter().filter(of_tcp).cloned().collect();
    for candidate in &mut chosen {
        candidate["because"] = json!({"value": "policy"});
    }
    Some(Value::from(chosen).to_string())
}

#[test]
fn its_candidates_are_what_is_tried() {
    for host in ["127.0.0.1", "localhost"] {
        let (out, asked) = open(&format!("tcp-{host}"), over_tcp_only, host);
        assert_eq!(out, "connected over 3 transport=TCP remote_ip=127.0.0.1 because=policy\n", "{host}");
        // The flow that was closed at once may have been asked about, too.
        let first = asked.iter().find(|q| q[0]["flow_size"]["value"] == 7 && q[0]["__request_type"].is_object());
        let first = &first.expect("the flow is asked about")[0];
        assert_eq!(first["domain_name"][0]["value"], host);
        assert_eq!(first["transport"]["value"], json!(["SCTP", "TCP"]), "the program's own properties");
        assert_eq!(first["port"]["precedence"], 2);
        let here = first["local_endpoint"].as_array().expect("a list");
        assert!(here.iter().any(|e| e["value"].as_str().is_some_and(|e| e.starts_with("127.0.0.1@"))), "{here:?}");
        let second = asked.iter().find(|q| q[0]["remote_ip"].is_object()).expect("a second question");
        let second = second.as_array().expect("a list");
        assert!(second.iter().all(|c| c["remote_ip"]["value"] == "127.0.0.1"), "{second:?}");
        assert_eq!(second.len(), 2, "{second:?}");
    }
}

#[test]
fn a_manager_that_leaves_no_candidate_is_an_error() {
    let (out, asked) = open("empty", |_| Some("[]".to_owned()), "127.0.0.1");
    assert_eq!(out, "error 7\n");
    assert!(!asked.is_empty());
}

#[test]
fn nonsense_is_no_answer_and_nothing_is_lost() {
    for (name, answer) in [
        ("nonsense", (|_| Some("no JSON".to_owned())) as Answer),
        ("silent", |_| Some(String::new())),
        ("wrong", |_| Some("[1, 2]".to_owned())),
        ("nowhere", |_| Some(r#"[{"transport": {"value": "TCP"}, "local_ip": {"value": "192.0.2.1"}}]"#.to_owned())),
    ] {
        let began = Instant::now();
        let (out, asked) = open(name, answer, "127.0.0.1");
        assert!(out.starts_with("connected over 3"), "{name}: {out}");
        assert!(!asked.is_empty() && began.elapsed() < Duration::from_secs(10), "{name}");
    }
}

#[test]
fn a_manager_that_hangs_costs_three_seconds() {
    let began = Instant::now();
    let (out, _) = open("hangs", |_| None, "127.0.0.1");
    assert!(out.starts_with("connected over 3"), "{out}");
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}
