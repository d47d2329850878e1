//! How figures are taken: from outside the measured process.
//!
//! Instructions come from `valgrind --tool=callgrind`, allocations and bytes in use from `valgrind --tool=memcheck`, system
//! calls from `strace -c`, resident memory from `/proc`, CPU time from what the kernel reports when it buries the child.
//! The measured program contributes its answer that the work is done, and, for delays, its clock around the call.

mod again;
pub mod callgrind;
pub mod copies;
pub mod cpu;
pub mod memory;
pub mod process;
pub mod server;
pub mod stats;
pub mod strace;
pub mod turns;

pub use again::soundest;
pub use process::{Child, Exit};
pub use server::Server;

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Why a measurement could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureError {
    /// A tool is not installed.
    MissingTool {
        /// The program that was looked for.
        tool: String,
        /// The Debian package that has it.
        package: String,
    },
    /// The machine or the user does not allow it.
    NotPossible(String),
    /// A program is not there, because it does not exist or does not build.
    MissingPeer(String),
    /// A child did something else than it should.
    Failed(String),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingTool { tool, package } => {
                write!(f, "`{tool}` is missing: install the Debian package {package}")
            }
            Self::NotPossible(why) | Self::MissingPeer(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for MeasureError {}

impl From<neater_emulator::LiveError> for MeasureError {
    fn from(e: neater_emulator::LiveError) -> Self {
        use neater_emulator::LiveError;
        match e {
            LiveError::MissingTool { tool, package } => Self::MissingTool { tool, package },
            other => Self::Failed(other.to_string()),
        }
    }
}

impl MeasureError {
    /// Whether it is the machine that lacks something, rather than the measurement that failed.
    #[must_use]
    pub const fn is_lack(&self) -> bool {
        matches!(self, Self::MissingTool { .. } | Self::NotPossible(_))
    }
}

impl From<std::io::Error> for MeasureError {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}

/// What a measurement gives.
pub type Result<T> = std::result::Result<T, MeasureError>;

/// Shorthand for a [`MeasureError::Failed`].
pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T> {
    Err(MeasureError::Failed(why.into()))
}

/// What can be counted of a whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Instructions in user space.
    Instructions,
    /// Calls that allocate memory.
    Allocations,
    /// Bytes that the allocator has given out and not got back when the process ends.
    BytesInUse,
    /// System calls.
    SystemCalls,
}

impl Counter {
    /// `command` under the tool that counts; its output goes to `scratch`, if not to the child's error output.
    ///
    /// # Errors
    /// [`MeasureError::MissingTool`].
    pub fn wrap(self, command: &Command, scratch: &Path) -> Result<Command> {
        let out = self.out(scratch);
        let _ = std::fs::remove_file(&out);
        Ok(match self {
            Self::SystemCalls => {
                process::need("strace", "strace")?;
                strace::under(command, &out)
            }
            Self::Instructions => {
                process::need("valgrind", "valgrind")?;
                callgrind::under(command, &out)
            }
            Self::Allocations | Self::BytesInUse => {
                process::need("valgrind", "valgrind")?;
                memory::under(command)
            }
        })
    }

    /// The count of a wrapped command that has ended.
    ///
    /// # Errors
    /// The tool's output makes no sense.
    pub fn read(self, scratch: &Path, exit: &Exit) -> Result<u64> {
        let out = self.out(scratch);
        match self {
            Self::SystemCalls => Ok(strace::read(&out)?.total()),
            Self::Instructions => callgrind::read(&out),
            Self::Allocations => Ok(memory::read(&exit.stderr)?.allocations),
            Self::BytesInUse => Ok(memory::read(&exit.stderr)?.in_use),
        }
    }

    /// Runs a command and counts.
    ///
    /// # Errors
    /// The tool is missing, the command fails, or the tool's output makes no sense.
    pub fn count(self, command: &Command, scratch: &Path, limit: Duration) -> Result<u64> {
        let exit = process::run(&mut self.wrap(command, scratch)?, limit)?;
        self.read(scratch, &exit)
    }

    /// Runs a peer and counts from when it says that it is ready (`--mark`) if the tool can do that, from its start if not.
    ///
    /// # Errors
    /// As [`Counter::count`].
    pub fn count_from_mark(self, command: &mut Command, scratch: &Path, limit: Duration) -> Result<u64> {
        if self != Self::Instructions {
            return self.count(command, scratch, limit);
        }
        Self::instructions_from_mark(command, scratch, limit, Ok)
    }

    /// The instructions of a command from its mark on, where `enter` takes it: valgrind follows no other program into the one that is
    /// counted, so that what leads there stands outside of it.
    ///
    /// # Errors
    /// As [`Counter::count`].
    pub fn instructions_from_mark(
        command: &mut Command,
        scratch: &Path,
        limit: Duration,
        enter: impl FnOnce(Command) -> Result<Command>,
    ) -> Result<u64> {
        process::need("callgrind_control", "valgrind")?;
        let out = Self::Instructions.out(scratch);
        let _ = std::fs::remove_file(&out);
        let mut child = Child::start(&mut enter(callgrind::under_stopped(command.arg("--mark"), &out))?)?;
        child.line(limit)?;
        callgrind::start_counting(&child)?;
        child.say("go")?;
        child.wait(limit)?;
        callgrind::read(&out)
    }

    /// The count of the last wrapped command by system call; `None` for other counters.
    #[must_use]
    pub fn read_parts(self, scratch: &Path) -> Option<strace::Calls> {
        (self == Self::SystemCalls).then(|| strace::read(&self.out(scratch)).ok()).flatten()
    }

    fn out(self, scratch: &Path) -> std::path::PathBuf {
        scratch.join(if self == Self::SystemCalls { "strace.out" } else { "callgrind.out" })
    }
}

/// `command` run by another program, with that program's arguments first and the same environment.
pub(crate) fn wrap(command: &Command, tool: &str, tool_args: &[&str]) -> Command {
    let mut w = Command::new(tool);
    w.args(tool_args).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => w.env(key, value),
            None => w.env_remove(key),
        };
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_command_keeps_its_arguments_and_environment() {
        let mut c = Command::new("peer");
        c.args(["client", "--flows", "1"]).env("A", "b");
        let w = wrap(&c, "strace", &["-c"]);
        assert_eq!(w.get_args().collect::<Vec<_>>(), ["-c", "peer", "client", "--flows", "1"]);
        assert!(w.get_envs().any(|(k, v)| k == "A" && v == Some("b".as_ref())));
    }
}
