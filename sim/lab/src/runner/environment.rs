//! What a figure was measured on: system, processor, load, programs and their versions.

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// The machine and the programs of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Name and version of the system.
    pub system: String,
    /// The processor, and how many there are.
    pub processor: String,
    /// Processors that this process may use at once.
    pub processors: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// The congestion control of TCP unless an experiment names its own.
    pub congestion_control: String,
    /// Load average over one minute, at the start.
    pub load_before: f64,
    /// And at the end.
    pub load_after: f64,
    /// Processors that others had while it was measured, in the mean; `None` where the system does not say.
    #[serde(default)]
    pub others: Option<f64>,
    /// The part of that time in which something waited for a processor (PSI), the lab's own programs included.
    #[serde(default)]
    pub pressure: Option<f64>,
    /// The programs, with what they say of their version.
    pub programs: Vec<(String, String)>,
}

fn line_of(path: &str, key: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches([' ', '\t', ':']).trim().to_owned()
}

/// The load average over one minute; NaN where the system does not tell.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(f64::NAN)
}

/// The first line that a program says of its version.
fn version_of(program: &str, arg: &str) -> Option<String> {
    let output = Command::new(program).arg(arg).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|l| !l.trim().is_empty()).map(|l| l.trim().chars().take(160).collect())
}

impl Environment {
    /// What it is now.
    #[must_use]
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let kb = line_of("/proc/meminfo", "MemTotal");
        let programs = [
            ("curl", "--version"),
            ("nginx", "-v"),
            ("h2load", "--version"),
            ("valgrind", "--version"),
            ("strace", "-V"),
            ("ip", "-V"),
            ("iperf3", "--version"),
        ];
        Self {
            system: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")),
            processor: line_of("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kb.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024,
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_before: load(),
            load_after: 0.0,
            others: None,
            pressure: None,
            programs: programs.iter().filter_map(|(p, a)| Some(((*p).to_owned(), version_of(p, a)?))).collect(),
        }
    }
}

/// The release of the kernel.
#[must_use]
pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// What raw data depends on beside our programs: the kernel, and the outside references as far as they are here.
#[must_use]
pub fn references() -> Vec<String> {
    let said = [("curl", "--version"), ("nginx", "-v")].map(|(p, a)| version_of(p, a).unwrap_or_default());
    std::iter::once(kernel()).chain(said).collect()
}

/// What tells one build of programs, among these words, from another: the first 12 digits of a SHA-256 over their files and
/// the words.
///
/// # Errors
/// A program cannot be read.
pub fn fingerprint(programs: &[&Path], words: &[String]) -> std::io::Result<String> {
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 16];
    for program in programs {
        let mut file = File::open(program)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
    }
    for word in words {
        hash.update(&(word.len() as u64).to_le_bytes());
        hash.update(word.as_bytes());
    }
    Ok(hash.finish().as_ref().iter().take(6).map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_describes_itself() {
        let e = Environment::now();
        assert!(e.system.starts_with("Linux ") && e.processors >= 1, "{e:?}");
        assert!(e.memory > 1 << 20 && e.load_before >= 0.0, "{e:?}");
        let text = serde_json::to_string(&e).expect("serializes");
        assert_eq!(serde_json::from_str::<Environment>(&text).expect("reads").system, e.system);
    }

    #[test]
    fn other_programs_have_another_fingerprint() {
        let file = |name: &str, text: &str| {
            let path = std::env::temp_dir().join(format!("neater-print-{}-{name}", std::process::id()));
            fs::write(&path, text).expect("writes");
            path
        };
        let (a, b) = (file("a", "one"), file("b", "two"));
        let of = |p: &[&Path], words: &[&str]| {
            fingerprint(p, &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()).expect("reads")
        };
        assert_eq!(of(&[&a], &["6.18"]), of(&[&a], &["6.18"]));
        assert_ne!(of(&[&a], &[]), of(&[&a, &b], &[]));
        assert_ne!(of(&[&a], &["6.18", "curl 8"]), of(&[&a], &["6.19", "curl 8"]), "another kernel");
        assert_ne!(of(&[&a], &["ab", ""]), of(&[&a], &["a", "b"]));
        assert_eq!(of(&[&a], &[]).len(), 12);
        assert!(fingerprint(&[Path::new("/no/such/file")], &[]).is_err());
        assert!(references().first().is_some_and(|kernel| kernel.contains('.')), "{:?}", references());
        let _ = (fs::remove_file(a), fs::remove_file(b));
    }
}
