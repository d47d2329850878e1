//! The other side of a measurement: a peer that serves until it is told to stop.

use super::{Child, Exit, Result, failed};
use crate::programs::{Program, Programs};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// A peer must listen within this time; valgrind needs most of it.
const START: Duration = Duration::from_secs(30);

/// A running server and its address.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub child: Child,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a command that says where it listens.
    ///
    /// # Errors
    /// It does not start or does not say so.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = Child::start(command)?;
        let line = child.line(START)?;
        match line["listening"].as_str().and_then(|a| a.parse().ok()) {
            Some(addr) => Ok(Self { child, addr }),
            None => failed(format!("a server said {line} instead of where it listens")),
        }
    }

    /// Starts the plain epoll peer on loopback, until [`Server::stop`]: the counterpart of every client.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn plain(programs: &Programs, v6: bool) -> Result<Self> {
        Self::start(&mut Self::plain_command(programs, v6)?)
    }

    /// What [`Server::plain`] starts.
    ///
    /// # Errors
    /// The peer was not built.
    pub fn plain_command(programs: &Programs, v6: bool) -> Result<Command> {
        let mut command = programs.command(Program::Epoll, "server")?;
        command.args(["--addr", if v6 { "[::1]:0" } else { "127.0.0.1:0" }, "--flows", "0", "--limit", "600"]);
        Ok(command)
    }

    /// Ends a server that serves without end.
    ///
    /// # Errors
    /// It does not end well.
    pub fn stop(mut self) -> Result<Exit> {
        self.child.close_stdin();
        self.child.wait(START)
    }
}
