//! Where a running transfer reports what its paths do: a file for each transfer, replaced while it
//! runs.
//!
//! *Responsible for* the folder, what is in a file, and for files of processes that are gone. *Not
//! responsible for* their readers.
//!
//! *Invariants*: no other user's files are read or written, for the folder is this user's alone; a
//! file is never seen half written; a transfer without a place for its file goes on without one.

use neater::PathInfo;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

const END: &str = ".json";
/// A longer file is no file of ours.
const LONGEST: u64 = 1 << 20;

/// The folder: in the user's runtime directory, or with the user's state.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let runtime = set("XDG_RUNTIME_DIR").map(|d| d.join("neater"));
    runtime.or_else(|| Some(crate::serve::state_dir()?.join("running")))
}

/// The file of one transfer, which disappears with it.
#[derive(Debug)]
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(folder: &Path, number: usize) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self(folder.join(format!("{}-{number}{END}", std::process::id()))))
    }

    pub(crate) fn write(&self, status: &Value) -> io::Result<()> {
        let new = self.0.with_extension("new");
        let _ = std::fs::remove_file(&new);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        io::Write::write_all(&mut file, status.to_string().as_bytes())?;
        std::fs::rename(&new, &self.0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What is known of a transfer's paths over time.
#[derive(Debug)]
pub(crate) struct Course {
    last: Instant,
    bytes: u64,
    by_path: HashMap<(SocketAddr, SocketAddr), u64>,
}

impl Course {
    pub(crate) fn new(now: Instant, bytes: u64) -> Self {
        Self { last: now, bytes, by_path: HashMap::new() }
    }

    /// The paths now, with what each has carried since the last call; and how many bytes have been
    /// written in a second.
    pub(crate) fn look(&mut self, now: Instant, bytes: u64, paths: &[PathInfo]) -> (u64, Vec<Value>) {
        let seconds = (now - self.last).as_secs_f64().max(1e-3);
        let rate = |more: u64| (more as f64 / seconds) as u64;
        let mut carried: Vec<u64> = Vec::new();
        for path in paths {
            let total = path.received + path.delivered;
            let before = self.by_path.insert((path.local, path.remote), total);
            carried.push(total.saturating_sub(before.unwrap_or(0)));
        }
        let all = carried.iter().sum::<u64>().max(1);
        let objects = paths.iter().zip(&carried).map(|(path, carried)| {
            json!({
                "interface": path.interface, "local": path.local, "remote": path.remote, "state": path.state.as_str(),
                "why": path.why,
                "rtt_ms": path.rtt.map(|d| d.as_secs_f64() * 1e3), "window": path.window, "sent": path.sent, "lost": path.lost,
                "delivered": path.delivered, "received": path.received, "bytes_per_second": rate(*carried),
                "share": *carried as f64 / all as f64,
            })
        });
        let objects = objects.collect();
        let whole = rate(bytes.saturating_sub(self.bytes));
        (self.last, self.bytes) = (now, bytes);
        (whole, objects)
    }
}

/// The transfers that run now, oldest process first. What a process that is gone has left behind is
/// removed.
pub(crate) fn running(folder: &Path) -> io::Result<Vec<Value>> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for path in entries.filter_map(|e| Some(e.ok()?.path())) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let number = |text: &str| text.parse::<u32>().ok();
        let of = name.split_once('.').and_then(|(name, _)| name.split_once('-'));
        let Some((pid, transfer)) = of.and_then(|(pid, n)| Some((number(pid)?, number(n)?))) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            let _ = std::fs::remove_file(&path);
            continue;
        }
        if !name.ends_with(END) || std::fs::metadata(&path).is_ok_and(|m| m.len() > LONGEST) {
            continue;
        }
        // It may just have ended.
        let status = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        found.extend(status.filter(Value::is_object).map(|status| ((pid, transfer), status)));
    }
    found.sort_by_key(|(of, _)| *of);
    Ok(found.into_iter().map(|(_, status)| status).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_as_long_as_its_transfer_and_what_the_dead_have_left_is_removed() {
        let folder = std::env::temp_dir().join(format!("neater-paths-{}", std::process::id()));
        let file = File::new(&folder, 3).unwrap();
        file.write(&json!({"url": "one"})).unwrap();
        file.write(&json!({"url": "two"})).unwrap();
        for (name, text) in [("4294967295-0.json", "{}"), ("note.txt", "x"), ("1-1.json", "no object")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(running(&folder).unwrap(), [json!({"url": "two"})]);
        assert!(!folder.join("4294967295-0.json").exists() && folder.join("note.txt").exists());
        drop(file);
        assert!(running(&folder).unwrap().is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(running(&folder).unwrap().is_empty(), "no folder is no transfer");
    }
}
