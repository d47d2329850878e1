//! A part's log, and what the terminal shows while the part runs.
//!
//! *Responsible for* the file in `target/test-logs`, commands that write into it, a sign of life of a long part, and, with
//! `--verbose`, all of the log on the terminal as it grows.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two signs of life of a long part.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Between two looks at a log that is shown as it grows.
const FOLLOW: Duration = Duration::from_millis(200);

/// The log of a part.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    verbose: bool,
    watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Log {
    /// Begins the log of a part in `dir`.
    pub(super) fn begin(dir: &Path, part: &str, verbose: bool) -> io::Result<Self> {
        let path = dir.join(format!("{part}.log"));
        File::create(&path)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        let watched = path.clone();
        let (stop, stopped) = channel::<()>();
        let watcher = std::thread::spawn(move || {
            let (began, mut shown) = (Instant::now(), 0);
            loop {
                let ended = stopped.recv_timeout(if verbose { FOLLOW } else { HEARTBEAT });
                if verbose {
                    shown += follow(&watched, shown);
                }
                match ended {
                    Err(RecvTimeoutError::Timeout) if verbose => {}
                    Err(RecvTimeoutError::Timeout) => {
                        let line: String = last_line(&watched).chars().take(100).collect();
                        println!("    {:4} s  {line}", began.elapsed().as_secs());
                    }
                    _ => return,
                }
            }
        });
        Ok(Self { path, file, verbose, watcher: Some((stop, watcher)) })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All of it so far.
    pub(super) fn text(&self) -> String {
        text(&read(&self.path, 0))
    }

    /// Writes a line.
    pub(super) fn line(&self, text: &str) {
        // One write, so that lines of parallel programs stay whole.
        let _ = (&self.file).write_all(format!("{text}\n").as_bytes());
    }

    /// Writes a line, and shows it on the terminal in any case.
    pub(super) fn notice(&self, text: &str) {
        self.line(text);
        if !self.verbose {
            println!("   {text}");
        }
    }

    /// Runs a command whose output goes here; true if it ends well.
    pub(super) fn run(&self, command: &mut Command) -> bool {
        self.run_code(command) == Some(0)
    }

    /// Runs a command whose output goes here, and returns its exit code.
    pub(super) fn run_code(&self, command: &mut Command) -> Option<i32> {
        let output = || self.file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
        match command.stdin(Stdio::null()).stdout(output()).stderr(output()).status() {
            Ok(status) => status.code(),
            Err(e) => {
                self.line(&format!("error: {} cannot be run: {e}", command.get_program().to_string_lossy()));
                None
            }
        }
    }

    /// Runs a command whose errors go here, and returns what it prints, if it ends well.
    pub(super) fn output(&self, command: &mut Command) -> Option<String> {
        let errors = self.file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
        match command.stdin(Stdio::null()).stderr(errors).output() {
            Ok(out) if out.status.success() => Some(String::from_utf8_lossy(&out.stdout).into_owned()),
            Ok(_) => None,
            Err(e) => {
                self.line(&format!("error: {} cannot be run: {e}", command.get_program().to_string_lossy()));
                None
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some((stop, watcher)) = self.watcher.take() {
            drop(stop);
            let _ = watcher.join();
        }
    }
}

/// Prints what a file has from `shown` on, and returns how many bytes that was.
fn follow(path: &Path, shown: u64) -> u64 {
    let bytes = read(path, shown);
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(&bytes).and_then(|()| stdout.flush());
    bytes.len() as u64
}

/// A file from an offset on; one that cannot be read is empty.
fn read(path: &Path, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let done = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)
    });
    done.map(|_| bytes).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn last_line(path: &Path) -> String {
    text(&read(path, 0)).lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().to_owned()
}
