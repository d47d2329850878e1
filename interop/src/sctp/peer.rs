//! The peer: started, told what to do, and listened to. The one on usrsctp is built once.

use super::ledger::Received;
use super::machine::{InMachine, Shared};
use crate::{Running, here, run, which};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The program in `c/sctp_peer.c`, compiled the first time.
///
/// # Errors
/// What is missing here, with the Debian package that has it.
///
/// # Panics
/// When it does not compile: that is a bug in it.
pub fn usrsctp_program() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let cc = which("cc").ok_or("no C compiler (package gcc)")?;
        let tool = which("pkg-config").ok_or("no pkg-config (package pkg-config)")?;
        let flags = run(Command::new(tool).args(["--cflags", "--libs", "usrsctp"]), Duration::from_secs(5));
        if !flags.status.success() {
            return Err("no usrsctp (package libusrsctp-dev)".to_owned());
        }
        let target = here("../target");
        std::fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        // Another process may be at it, too: each has a file of its own until it is complete.
        let (fresh, program) =
            (target.join(format!("interop-sctp-peer.{}", std::process::id())), target.join("interop-sctp-peer"));
        let mut command = Command::new(cc);
        command.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&fresh);
        command.arg(here("c/sctp_peer.c")).args(flags.said.split_whitespace()).arg("-lpthread");
        let done = run(&mut command, Duration::from_secs(60));
        assert!(done.status.success(), "sctp_peer.c does not compile:\n{}", done.said);
        std::fs::rename(&fresh, &program).map_err(|e| format!("{}: {e}", program.display()))?;
        Ok(program)
    };
    BUILT.get_or_init(build).clone()
}

/// A program that a peer is: it is told commands and says what happens, a line each.
pub trait Program: core::fmt::Debug {
    /// Tells it something.
    fn tell(&mut self, text: &str);

    /// What it has said since the first `from` bytes.
    fn said_from(&self, from: usize) -> String;

    /// Ends it.
    fn kill(&mut self);
}

impl Program for Running {
    fn tell(&mut self, text: &str) {
        Self::tell(self, text);
    }

    fn said_from(&self, from: usize) -> String {
        Self::said_from(self, from)
    }

    fn kill(&mut self) {
        Self::kill(self);
    }
}

/// A peer that runs.
#[derive(Debug)]
pub struct Peer {
    program: Box<dyn Program>,
    heard: usize,
    /// What has happened there so far, but for messages.
    pub events: Vec<Value>,
}

impl Peer {
    /// Starts the one on usrsctp with these arguments.
    ///
    /// # Errors
    /// Why it cannot be built here.
    pub fn usrsctp(arguments: &[&str]) -> Result<Self, String> {
        let program = usrsctp_program()?;
        let mut command = match super::links::peer_space() {
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &space]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let running = Running::start(command.args(arguments));
        let _ = running.wait_to_say("\"ready\"");
        Ok(Self { program: Box::new(running), heard: 0, events: Vec::new() })
    }

    /// Starts the one on Linux with these arguments, in a machine that has none yet.
    ///
    /// # Panics
    /// If it is not ready after ten seconds.
    #[must_use]
    pub fn linux(machine: &Shared, arguments: &[&str]) -> Self {
        let heard = machine.borrow_mut().start(&arguments.join(" "));
        let mut peer = Self { program: Box::new(InMachine(machine.clone())), heard, events: Vec::new() };
        let end = Instant::now() + Duration::from_secs(10);
        while !peer.has("ready") {
            assert!(Instant::now() < end, "the peer is not ready: {:?}", peer.events);
            assert!(peer.listen().is_empty(), "nothing was sent");
            std::thread::sleep(Duration::from_millis(2));
        }
        peer
    }

    /// Tells it to do something; see `c/sctp_peer.c` and `c/linux_peer.c`.
    pub fn tell(&mut self, command: &str) {
        self.program.tell(&format!("{}\n", command.trim_end()));
    }

    /// Takes in what it has said since; returns the messages that it has received.
    ///
    /// # Panics
    /// If it says something else than objects, or that it has failed.
    pub fn listen(&mut self) -> Vec<Received> {
        let said = self.program.said_from(self.heard);
        let Some(end) = said.rfind('\n') else { return Vec::new() };
        self.heard += end + 1;
        let mut messages = Vec::new();
        for line in said[..end].lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("the peer says {line:?}: {e}"));
            assert_ne!(event["event"], "failed", "the peer says {line}");
            if event["event"] == "message" {
                let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
                messages.push(Received {
                    number: number("ppid") as u32,
                    stream: number("stream") as u16,
                    unordered: event["unordered"] == true,
                    size: number("size") as usize,
                    hash: event["hash"].as_str().and_then(|h| u64::from_str_radix(h, 16).ok()).expect("a hash"),
                });
            } else {
                self.events.push(event);
            }
        }
        messages
    }

    /// Ends its process: usrsctp says no word to anybody then, Linux does.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Whether it has said that this happened.
    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.event(event).is_some()
    }

    /// The last event of that name.
    #[must_use]
    pub fn event(&self, event: &str) -> Option<&Value> {
        self.events.iter().rfind(|e| e["event"] == event)
    }
}
