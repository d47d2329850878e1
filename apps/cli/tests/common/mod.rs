//! What the tests of the command share: a folder, a server, and how a run ended.

#![allow(dead_code, reason = "each test file uses some of it")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command. The tests of another package take the one that cargo has built beside them.
pub(crate) fn program() -> PathBuf {
    let beside = || {
        let tests = std::env::current_exe().expect("a program");
        let beside = tests.ancestors().nth(2).expect("a folder").join("neater");
        assert!(beside.is_file(), "the neater command is not built here: cargo build -p neater-cli");
        beside
    };
    option_env!("CARGO_BIN_EXE_neater").map_or_else(beside, PathBuf::from)
}

/// The binary under test, without the settings of the user who runs the tests.
pub(crate) fn neater() -> Command {
    let mut c = Command::new(program());
    for name in ["RUST_LOG", "SSLKEYLOGFILE", "NEATER_QLOG"] {
        c.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
        c.env_remove(name);
    }
    c.stdin(Stdio::null());
    // What one run has learnt decides nothing in the next one, unless a test names the place where
    // it is kept.
    c.env("NEATER_CACHE", "");
    c
}

/// Prints it past the test harness, which would keep it to itself: a test that is skipped must be
/// seen.
pub(crate) fn say_skipped(why: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("\nskipped: {why}\n").as_bytes());
}

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The objects of standard output; every line must be one.
    pub(crate) fn events(&self) -> Vec<Value> {
        parse(&self.out)
    }
}

pub(crate) fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// The objects of one kind.
pub(crate) fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == kind).collect()
}

pub(crate) fn run(command: &mut Command) -> Ran {
    let out = command.output().expect("started");
    Ran {
        code: out.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// A folder that is removed again.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("neater-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("made");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, contents).expect("written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that follow from a number.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

/// A running `neater serve`.
pub(crate) struct Serving {
    child: Child,
    rest: BufReader<std::process::ChildStdout>,
    pub(crate) port: u16,
    pub(crate) ca: PathBuf,
    pub(crate) sha256: String,
    /// For SCTP, at the first address.
    pub(crate) udp_port: Option<u16>,
}

impl Serving {
    /// Serves `dir`, on a free port unless `more` names one; the certificate goes into `state`.
    pub(crate) fn new(dir: &Path, state: &Path, more: &[&str]) -> Self {
        let mut c = neater();
        c.args(["serve", "--json"]).args(more).arg(dir);
        if !more.contains(&"--port") {
            c.args(["--port", "0"]);
        }
        if !more.contains(&"--plain") && !more.contains(&"--cert") {
            c.arg("--cert-dir").arg(state);
        }
        let mut child = c.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut rest = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        rest.read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let url = told["urls"][0].as_str().expect("a URL");
        let port = url.trim_end_matches('/').rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let udp_port = told["sctp_udp_ports"][0].as_u64().and_then(|p| u16::try_from(p).ok());
        Self { child, rest, port, ca: text("certificate").into(), sha256: text("sha256"), udp_port }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.port)
    }

    /// `neater get` that trusts this server.
    pub(crate) fn get(&self) -> Command {
        let mut c = neater();
        c.args(["get", "--ca"]).arg(&self.ca);
        c
    }

    /// Ends it by SIGTERM; its exit code, and its last event.
    pub(crate) fn stop(self) -> (i32, Value) {
        let (code, mut events) = self.stop_with_events();
        (code, events.pop().unwrap_or_default())
    }

    /// As [`Serving::stop`], with all events that were not read yet.
    pub(crate) fn stop_with_events(mut self) -> (i32, Vec<Value>) {
        signal(&self.child, "-TERM");
        let mut text = String::new();
        self.rest.read_to_string(&mut text).expect("text");
        let code = self.child.wait().expect("ended").code().unwrap_or(-1);
        (code, parse(&text))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}
