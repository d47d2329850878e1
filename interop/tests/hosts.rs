//! The engine inside event loops that are not ours, each of them a program in `hosts/`.
//!
//! Every one does the same: 50 connections of 100 kB each way and a fallback that only a timer can bring about; then, one
//! after the other so that nothing hides a wake-up that does not come, 200 incoming connections at once, QUIC used by a thread
//! that does not drive, and a wake-up after silence; then everything is released. The program counts its turns and how often
//! its loop came round.

use neater_interop::{Finished, Scratch, black_hole, compile, echo_server, here, run, shim_library, skip, which};
use std::process::Command;

const UV: (&str, &str) = ("libuv", "libuv1-dev");
const GLIB: (&str, &str) = ("glib-2.0", "libglib2.0-dev");

fn scenario(mut command: Command, more: &[&str]) {
    let echo = echo_server();
    let Some(hole) = black_hole() else { skip!("this kernel answers a SYN although the queue is full") };
    command.arg(echo.port().to_string()).arg(hole.port().to_string()).args(more);
    let Finished { status, said } = run(&mut command, neater_interop::LIMIT);
    println!("{said}");
    assert!(status.success() && said.lines().any(|l| l == "ok"), "{status}");
}

fn host(source: &str, packages: &[(&str, &str)], more: &[&str]) {
    let scratch = Scratch::new("host");
    let program = scratch.path().join("host");
    if let Err(missing) = compile(source, packages, &program) {
        skip!("{source}: {missing}");
    }
    scenario(Command::new(program), more);
}

#[test]
fn bare_poll() {
    host("host_poll.c", &[], &[]);
}

#[test]
fn level_triggered_epoll() {
    host("host_epoll.c", &[], &["level"]);
}

#[test]
fn edge_triggered_epoll() {
    host("host_epoll.c", &[], &["edge"]);
}

#[test]
fn one_shot_epoll() {
    host("host_epoll.c", &[], &["oneshot"]);
}

#[test]
fn libuv() {
    host("host_uv.c", &[UV], &[]);
}

#[test]
fn an_epoll_around_libuv_around_the_engine() {
    host("host_nested.c", &[UV], &[]);
}

#[test]
fn glib() {
    host("host_glib.c", &[GLIB], &[]);
}

#[test]
fn asyncio() {
    let Some(python) = which("python3") else { skip!("no python3 (package python3)") };
    let mut command = Command::new(python);
    command.arg(here("hosts/host_asyncio.py")).arg(shim_library());
    scenario(command, &[]);
}
