//! A6 and A7: memory per open flow, of client and server.

use super::{FEW, FLOW_PROGRAMS, FLOW_PROGRAMS_AND_NEATS, LIMIT, Lab, MANY, Outcome, flows, for_each};
use crate::measure::{Child, Counter, Result, Server, memory, stats};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use std::process::Command;

/// An idle TCP connection may cost this much of ours, in bytes.
const BOUND: f64 = 2048.0;

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

pub(super) fn clients(lab: &Lab) -> Result<Outcome> {
    run(lab, "A6", Side::Client, "+6.7 MB (183 %) for 256 flows")
}

pub(super) fn servers(lab: &Lab) -> Result<Outcome> {
    run(lab, "A7", Side::Server, "+3.4 MB (90 %) for 256 flows")
}

fn run(lab: &Lab, id: &'static str, side: Side, published: &'static str) -> Result<Outcome> {
    let mut out = Outcome::default();
    let runs = if lab.quick { 1 } else { 5 };
    for (name, resident, title) in [
        ("bytes_per_flow", false, "Bytes of the allocator per open flow"),
        ("resident_bytes_per_flow", true, "Resident memory per open flow"),
    ] {
        (lab.progress)(&format!("{title}, {}", side.name()));
        let programs = if side == Side::Client { &FLOW_PROGRAMS_AND_NEATS[..] } else { &FLOW_PROGRAMS[..] };
        let got = for_each(programs, |p| {
            let mut slopes = Vec::new();
            for run in 0..runs {
                let mut points = [(FEW, 0), (MANY, 0)];
                for (n, bytes) in &mut points {
                    *bytes =
                        if resident { resident_with(lab, side, p, *n)? } else { allocated_with(lab, side, p, *n)? };
                    out.sample(name, p.name(), &format!("{} {n} flows", side.name()), run, *bytes as f64);
                }
                slopes.push(stats::slope(points[0], points[1]));
            }
            Ok(stats::median(&slopes))
        })?;
        for (program, value) in got {
            let f = Figure::new(id, name, program.name(), "bytes").with("side", side.name());
            let f = match value {
                Ok(v) => f.value(v, runs),
                Err(why) => f.missing(why),
            };
            out.figures.push(if program.is_ours() { f.judge(Bound::AtMost(BOUND)).published(published) } else { f });
        }
        out.panel(name, &format!("{title}, {}", side.name()), "bytes", |f| (f.variant.clone(), f.variant.clone()));
    }
    Ok(out)
}

fn with_flows(mut command: Command, flows: u64, how: &str) -> Command {
    command.args(["--flows", &flows.to_string(), how]);
    command
}

/// A server of `program` that is to have `flows` flows open.
fn server_command(lab: &Lab, program: Program, flows: u64, how: &str) -> Result<Command> {
    let mut command = lab.programs.command(program, "server")?;
    command.args(["--addr", "[::1]:0"]);
    Ok(with_flows(command, flows, how))
}

/// Bytes in use when all flows are open: the process leaves at that moment.
fn allocated_with(lab: &Lab, side: Side, program: Program, flows: u64) -> Result<u64> {
    let counter = Counter::BytesInUse;
    if side == Side::Client {
        let server = Server::plain(&lab.programs, true)?;
        let command = with_flows(flows::client(lab, program, server.addr)?, flows, "--leave-open");
        let bytes = counter.count(&command, &lab.scratch, LIMIT)?;
        server.stop()?;
        return Ok(bytes);
    }
    let server = server_command(lab, program, flows, "--leave-open")?;
    let server = Server::start(&mut counter.wrap(&server, &lab.scratch)?)?;
    let client = with_flows(flows::client(lab, Program::Epoll, server.addr)?, flows, "--hold");
    let mut client = Child::start(&mut { client })?;
    client.line(LIMIT)?;
    let exit = server.child.wait(LIMIT)?;
    client.close_stdin();
    client.wait(LIMIT)?;
    counter.read(&lab.scratch, &exit)
}

/// Resident memory while all flows are open.
fn resident_with(lab: &Lab, side: Side, program: Program, flows: u64) -> Result<u64> {
    let (server, measured_server) = if side == Side::Client {
        (Server::plain(&lab.programs, true)?, None)
    } else {
        let server = Server::start(&mut server_command(lab, program, flows, "--hold")?)?;
        let pid = server.child.pid();
        (server, Some(pid))
    };
    let who = if side == Side::Client { program } else { Program::Epoll };
    let mut client = Child::start(&mut with_flows(flows::client(lab, who, server.addr)?, flows, "--hold"))?;
    client.line(LIMIT)?;
    let mut server = server;
    let bytes = match measured_server {
        None => memory::resident(client.pid())?,
        Some(pid) => {
            server.child.line(LIMIT)?;
            memory::resident(pid)?
        }
    };
    client.close_stdin();
    client.wait(LIMIT)?;
    server.stop()?;
    Ok(bytes)
}
