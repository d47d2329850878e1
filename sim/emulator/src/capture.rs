//! Captures: tcpdump at an interface of a host, with nanoseconds, and with a count of what it missed.

use super::command::{Cmd, Running};
use super::error::{Result, failed};
use super::lab::Lab;
use super::privileges::need;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long tcpdump may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// tcpdump's buffer in the kernel, in KiB.
const BUFFER: &str = "32768";

/// A capture that runs. Dropping it ends it; [`Capture::stop`] also tells what was missed.
#[derive(Debug)]
pub struct Capture {
    file: PathBuf,
    running: Running,
}

/// What a capture has written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Captured {
    /// Where: a pcap file with nanosecond time stamps and packets that begin with the IP header.
    pub file: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Packets that tcpdump was too slow for. Where this is not 0, the file is no measurement.
    pub missed: u64,
}

impl Capture {
    /// Starts to capture at an interface, all packets or those that a filter of tcpdump's lets through, `snap` bytes of each.
    ///
    /// # Errors
    /// tcpdump is missing, or does not begin.
    pub fn start(lab: &Lab, host: &str, interface: &str, filter: &str, snap: usize, file: &Path) -> Result<Self> {
        need("tcpdump", "tcpdump")?;
        let cmd = Cmd::new("tcpdump")
            .args(["-i", interface, "-n", "-p", "--immediate-mode", "-Z", "root", "-B", BUFFER])
            .args(["--time-stamp-precision=nano", "-s"])
            .arg(snap.max(1).to_string())
            .arg("-w")
            .arg(file)
            .args(filter.split_whitespace())
            .limit(Duration::from_secs(24 * 3600));
        let mut running = lab.spawn(host, cmd)?;
        running.wait_for_error_output("listening on", PATIENCE)?;
        Ok(Self { file: file.to_owned(), running })
    }

    /// Ends it and tells what it caught.
    ///
    /// # Errors
    /// tcpdump failed.
    pub fn stop(self) -> Result<Captured> {
        let out = self.running.stop(libc::SIGINT)?;
        let said = out.errors();
        if out.code != 0 {
            return failed(&out.command, said.trim());
        }
        let number = |words: &str| {
            let line = said.lines().find(|l| l.contains(words))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        match (number("packets captured").or(number("packet captured")), number("dropped by kernel")) {
            (Some(packets), Some(missed)) => Ok(Captured { file: self.file, packets, missed }),
            _ => failed(&out.command, format!("did not tell its counts: {}", said.trim())),
        }
    }
}
