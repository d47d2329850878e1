//! The peer on noq, between its own client and server on loopback.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const PEER: &str = env!("CARGO_BIN_EXE_peer-noq");
/// Of each path, in bytes per second: loopback loses packets where all is sent at once, the first
/// of a path among them.
const RATE: u64 = 8_000_000;

/// A server that ends with the test.
struct Server {
    child: Child,
    addr: String,
    credentials: PathBuf,
}

impl Server {
    fn start(name: &str) -> Self {
        let credentials = std::env::temp_dir().join(format!("peer-noq-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&credentials).expect("a directory");
        neater_peers::credentials::generate(&credentials).expect("a certificate");
        let mut serve = Command::new(PEER);
        serve.args(["serve", "--bind", "127.0.0.1", "--port", "0", "--rate", &RATE.to_string(), "--credentials"]);
        serve.arg(&credentials);
        let mut child = serve.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let addr = said["listening"].as_str().expect("an address").to_owned();
        Self { child, addr, credentials }
    }

    fn get(&self, bytes: u64, locals: &[&str]) -> Value {
        let mut get = Command::new(PEER);
        get.args(["get", "--addr", &self.addr, "--bytes", &bytes.to_string(), "--credentials"]).arg(&self.credentials);
        let out = get.args(locals.iter().flat_map(|l| ["--local", l])).output().expect("it starts");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{:?}: {said}", out.status);
        serde_json::from_slice(&out.stdout).expect("JSON")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.credentials);
    }
}

#[test]
fn a_transfer_has_a_path_from_each_address_and_all_carry_data() {
    const BYTES: u64 = RATE;
    let server = Server::start("paths");
    let got = server.get(BYTES, &["127.0.0.1", "127.0.0.2"]);
    assert_eq!(got["bytes"], BYTES);
    let paths = got["paths"].as_array().expect("paths");
    assert_eq!(paths.iter().map(|p| p["local"].as_str()).collect::<Vec<_>>(), [Some("127.0.0.1"), Some("127.0.0.2")]);
    let carried: Vec<u64> = paths.iter().filter_map(|p| p["bytes"].as_u64()).collect();
    assert!(carried.iter().all(|n| *n > BYTES / 4) && carried.iter().sum::<u64>() > BYTES, "{got}");
}

#[test]
fn a_transfer_from_one_address_has_one_path() {
    let server = Server::start("path");
    let got = server.get(1_000_000, &["127.0.0.2"]);
    let paths = got["paths"].as_array().expect("paths");
    assert!(got["bytes"] == 1_000_000 && paths.len() == 1, "{got}");
    assert!(paths[0]["bytes"].as_u64() > Some(1_000_000) && got["seconds"].as_f64() > Some(0.0), "{got}");
}

#[test]
fn messages_come_when_they_are_due_with_what_the_sender_knows_of_its_paths() {
    let server = Server::start("messages");
    let mut get = Command::new(PEER);
    get.args(["get", "--addr", &server.addr, "--load", "app-limited", "--ms", "300", "--local", "127.0.0.3"]);
    let out = get.arg("--credentials").arg(&server.credentials).output().expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(
        (&lines[0]["open"], &lines[1]["whole"], &lines[1]["messages"]),
        (&true.into(), &true.into(), &300.into())
    );
    let arrivals = lines[1]["arrivals"].as_array().expect("rows");
    let (first, last) = (arrivals[0][0].as_u64().expect("a time"), arrivals[arrivals.len() - 1][0].as_u64());
    assert!(last.expect("a time") - first > 250_000, "{first} to {last:?}");
    assert_eq!(arrivals[arrivals.len() - 1][3][0][0], "127.0.0.3");
}
