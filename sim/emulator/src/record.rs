//! What a run was: versions, settings, and how busy the machine was meanwhile.

use super::capture::Captured;
use super::command::Output;
use super::error::{Result, failed};
use super::lab::Lab;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The machine when the lab was built.
#[derive(Clone, Debug)]
pub struct Record {
    start: Instant,
    wall: u64,
    cpu: Option<Cpu>,
}

/// The machine's processors so far, in the kernel's ticks of all processors together (proc(5), /proc/stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    total: u64,
    idle: u64,
    steal: u64,
}

impl Record {
    pub(crate) fn begin() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self { start: Instant::now(), wall, cpu: cpu(&fs::read_to_string("/proc/stat").unwrap_or_default()) }
    }

    /// The part of all processors' time since the beginning in which they were busy, and in which the host of this virtual
    /// machine gave them to others.
    #[must_use]
    pub fn load(&self) -> Option<(f64, f64)> {
        let now = cpu(&fs::read_to_string("/proc/stat").ok()?)?;
        let then = self.cpu?;
        let total = now.total.checked_sub(then.total).filter(|t| *t > 0)? as f64;
        let part = |now: u64, then: u64| now.saturating_sub(then) as f64 / total;
        Some((1.0 - part(now.idle, then.idle), part(now.steal, then.steal)))
    }
}

fn cpu(stat: &str) -> Option<Cpu> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|t| t.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is in user time already.
    let counted = ticks.get(..8)?;
    Some(Cpu { total: counted.iter().sum(), idle: counted[3] + counted[4], steal: counted[7] })
}

/// Packets that this namespace's interfaces could not send.
pub(crate) fn tx_dropped() -> Result<u64> {
    let text = match fs::read_to_string("/proc/thread-self/net/dev") {
        Ok(text) => text,
        Err(e) => return failed("/proc/net/dev", e),
    };
    // Two lines of titles; then name: 8 numbers of reception, 8 of sending, of which the fourth is "drop".
    let drops =
        text.lines().skip(2).filter_map(|l| l.split_once(':')?.1.split_whitespace().nth(11)?.parse::<u64>().ok());
    Ok(drops.sum())
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    let text = if out.stdout.is_empty() { out.stderr } else { out.stdout };
    String::from_utf8_lossy(&text).lines().next().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())
}

/// The versions of the kernel, of this program and of the tools that labs use.
#[must_use]
pub fn versions() -> Value {
    let read = |path: &str| fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "kernel_build": read("/proc/sys/kernel/version"),
        "neater": env!("CARGO_PKG_VERSION"),
        "commit": first_line("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
        "iproute2": first_line("ip", &["-V"]),
        "tcpdump": first_line("tcpdump", &["--version"]),
        "iperf3": first_line("iperf3", &["--version"]),
        "ping": first_line("ping", &["-V"]),
        "processors": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "clock_source": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    })
}

pub(crate) fn keep(lab: &Lab, record: &Record, dir: &Path, commands: &[Output], captures: &[Captured]) -> Result<()> {
    let load = record.load();
    let commands: Vec<Value> = commands
        .iter()
        .map(|c| {
            json!({ "command": c.command, "exit_code": c.code, "timed_out": c.timed_out, "seconds": c.wall.as_secs_f64() })
        })
        .collect();
    let settings: serde_json::Map<String, Value> = lab
        .settings()
        .into_iter()
        .map(|(host, pairs)| (host, pairs.into_iter().map(|(k, v)| (k, Value::from(v))).collect()))
        .collect();
    let text = json!({
        "started_unix": record.wall,
        "seconds": record.start.elapsed().as_secs_f64(),
        "seed": lab.plan().seed,
        "versions": versions(),
        "machine": {
            "busy": load.map(|l| l.0),
            "steal": load.map(|l| l.1),
            "load_average": fs::read_to_string("/proc/loadavg").ok().map(|t| t.trim().to_owned()),
        },
        "emulator": serde_json::to_value(lab.emulator()?).unwrap_or_default(),
        "unread_by_emulator": lab.unread()?,
        "links": lab.links()?,
        "happened": lab.happened(),
        "settings": settings,
        "commands": commands,
        "captures": captures,
    });
    let file = dir.join("run.json");
    let written = fs::create_dir_all(dir)
        .and_then(|()| Ok(serde_json::to_string_pretty(&text)?))
        .and_then(|text| fs::write(&file, text + "\n"));
    written.or_else(|e| failed(&file.display().to_string(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_without_counting_guests_twice() {
        let got = cpu("cpu  10 1 5 100 4 0 2 8 3 1\ncpu0 1 1 1 1\n").expect("read");
        assert_eq!(got, Cpu { total: 130, idle: 104, steal: 8 });
        assert_eq!(cpu("cpu0 1\n"), None);
    }

    #[test]
    fn drops_of_this_machine_can_be_read() {
        tx_dropped().expect("/proc/net/dev");
    }
}
