//! What several experiments do with flows: open many at once against the plain server, and count.

use super::{FEW, LIMIT, Lab, MANY, Outcome};
use crate::measure::process::together;
use crate::measure::turns::{Pair, Side};
use crate::measure::{Child, Counter, Exit, Result, Server, failed, stats};
use crate::programs::Program;
use std::net::SocketAddr;
use std::process::Command;

/// How often a client is counted. Instructions are counted after the first connect, whose race takes its own course, and
/// repeat to a part in a thousand; the other counters start with the process and are steadied by the median.
pub(super) const fn runs(lab: &Lab) -> usize {
    if lab.quick { 1 } else { 5 }
}

/// What one more flow costs the client, by the counter: the slope between the medians of two sizes. Each run has a server of
/// its own, and with it a fresh set of ports.
pub(super) fn client_slope(
    lab: &Lab,
    out: &mut Outcome,
    counter: Counter,
    series: &str,
    runs: usize,
    command: &dyn Fn(SocketAddr) -> Result<Command>,
) -> Result<f64> {
    let mut medians = Vec::new();
    for flows in [FEW, MANY] {
        let variant = format!("{flows} flows");
        let mut counts = Vec::new();
        for run in 0..runs {
            let server = Server::plain(&lab.programs, true)?;
            let mut command = command(server.addr)?;
            command.args(["--flows", &flows.to_string()]);
            let count = counter.count_from_mark(&mut command, &lab.scratch, LIMIT)? as f64;
            server.stop()?;
            counts.push(count);
            out.sample(&format!("{counter:?}"), series, &variant, run, count);
            for (name, n) in counter.read_parts(&lab.scratch).unwrap_or_default().0 {
                out.sample(&format!("{counter:?} {name}"), series, &variant, run, n as f64);
            }
        }
        medians.push((flows, stats::median(&counts).round() as u64));
    }
    match medians.as_slice() {
        [few, many] => Ok(stats::slope(*few, *many)),
        _ => failed("two sizes were to be counted"),
    }
}

/// The client of a program.
pub(super) fn client(lab: &Lab, program: Program, addr: SocketAddr) -> Result<Command> {
    lab.programs.connecting(program, "client", addr)
}

/// A batch of flows, repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub flows: u64,
    pub rounds: u64,
}

impl Batch {
    fn add(self, command: &mut Command) {
        command.args(["--flows", &self.flows.to_string(), "--rounds", &self.rounds.to_string()]);
    }

    /// Whether a peer did all of it.
    pub(super) fn check(self, exit: Exit) -> Result<Exit> {
        if exit.line["done"] == self.flows * self.rounds && exit.line["failed"] == 0 {
            Ok(exit)
        } else {
            failed(format!("{} flows were to be done: {}", self.flows * self.rounds, exit.line))
        }
    }

    /// Starts the client of `program` and a fresh plain server.
    pub(super) fn start_client(self, lab: &Lab, program: Program, more: &[&str]) -> Result<Pair> {
        let mut server = together(&Server::plain_command(&lab.programs, true)?)?;
        let server = Server::start(&mut server)?;
        let mut command = client(lab, program, server.addr)?;
        self.add(&mut command);
        let mut client = Child::start(&mut together(command.arg("--mark").args(more))?)?;
        client.line(LIMIT)?;
        Ok(Pair { client, server, measured: Side::Client })
    }

    /// Starts the server of `program` and the plain client.
    pub(super) fn start_server(self, lab: &Lab, program: Program) -> Result<Pair> {
        let mut command = lab.programs.command(program, "server")?;
        self.add(command.args(["--addr", "[::1]:0", "--mark"]));
        let server = Server::start(&mut together(&command)?)?;
        let mut command = client(lab, Program::Epoll, server.addr)?;
        self.add(command.arg("--mark"));
        let mut client = Child::start(&mut together(&command)?)?;
        client.line(LIMIT)?;
        Ok(Pair { client, server, measured: Side::Server })
    }

    /// Runs the client of `program` against a fresh plain server. Its CPU time is that of the flows: libraries are loaded
    /// and the outcome of the race is cached before the clock starts, and it ends before the process does. Both sides share a
    /// processor.
    pub(super) fn client(self, lab: &Lab, program: Program, more: &[&str]) -> Result<Exit> {
        let Pair { mut client, server, .. } = self.start_client(lab, program, more)?;
        let before = client.cpu_so_far()?;
        client.say("go")?;
        let exit = client.wait_result(before, LIMIT)?;
        server.stop()?;
        self.check(exit)
    }

    /// Runs the server of `program` with the plain client. Its CPU time is that of the flows: from when it listens to when all are
    /// closed.
    pub(super) fn server(self, lab: &Lab, program: Program) -> Result<Exit> {
        let Pair { mut client, server, .. } = self.start_server(lab, program)?;
        let before = server.child.cpu_so_far()?;
        client.say("go")?;
        let exit = server.child.wait_result(before, LIMIT)?;
        client.wait(LIMIT)?;
        self.check(exit)
    }
}
