//! Captures of SCTP packets, and what tshark says of them.

use crate::{run, which};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file in pcap format with SCTP packets, without what is below them.
#[derive(Debug)]
pub struct Capture {
    file: BufWriter<File>,
    path: PathBuf,
}

/// `LINKTYPE_SCTP`: packets begin with the SCTP common header.
const LINKTYPE_SCTP: u32 = 248;

impl Capture {
    /// Begins a capture.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn create(path: PathBuf) -> Self {
        let mut file = BufWriter::new(File::create(&path).expect("a file for the capture"));
        let head: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 18, LINKTYPE_SCTP];
        head.iter().for_each(|word| file.write_all(&word.to_le_bytes()).expect("written"));
        Self { file, path }
    }

    /// Adds a packet at a time since the beginning.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn packet(&mut self, at: Duration, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("a packet");
        for word in [at.as_secs() as u32, at.subsec_micros(), len, len] {
            self.file.write_all(&word.to_le_bytes()).expect("written");
        }
        self.file.write_all(bytes).expect("written");
    }

    /// Ends the capture and returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn finish(mut self) -> PathBuf {
        self.file.flush().expect("written");
        self.path
    }
}

/// How many packets of a capture tshark decodes, and what it says of those that it finds malformed, wrongly summed or in
/// error.
///
/// # Errors
/// If there is no tshark, or it does not read the capture.
pub fn decode_errors(capture: &Path) -> Result<(usize, Vec<String>), String> {
    let tshark = which("tshark").ok_or("no tshark (package tshark)")?;
    let read = |more: &[&str]| {
        let mut command = Command::new(&tshark);
        // What the messages carry is ours and no protocol's.
        command.args(["-o", "sctp.ulp_dissection:FALSE", "-o", "sctp.checksum:CRC 32c", "-r"]).arg(capture).args(more);
        let done = run(&mut command, Duration::from_secs(60));
        if done.status.success() { Ok(done.said) } else { Err(format!("tshark: {}", done.said)) }
    };
    // It warns of being the superuser beside what was asked for.
    let lines = |said: String| {
        said.lines()
            .filter(|l| !l.contains("superuser") && !l.contains("as user"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let good = read(&["-Y", "sctp.checksum.status == 1", "-T", "fields", "-e", "frame.number"])?;
    let filter = "_ws.malformed or sctp.checksum.status == 0 or _ws.expert.severity == error or not sctp";
    let bad = read(&["-Y", filter])?;
    Ok((lines(good).len(), lines(bad)))
}
