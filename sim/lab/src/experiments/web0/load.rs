//! Serving: h2load on one processor, the server on another, and what a request costs the server.

use super::bench::{Bench, CIPHER};
use super::{ID, Run, Side};
use crate::experiments::{LIMIT, Outcome};
use crate::measure::strace::{self, Calls};
use crate::measure::{Child, Result, failed, process};
use crate::report::Figure;
use neater_emulator::sys;
use serde_json::{Map, Value};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Connections of h2load.
const CONNECTIONS: &str = "32";
/// Requests at once on each: over HTTP/1.1, over HTTP/2.
const AT_ONCE: [&str; 2] = ["1", "32"];
/// What a server does behind the last answer, such as closing connections, is done by then.
const END: Duration = Duration::from_millis(20);
/// strace has all threads of a server within this time.
const ATTACH: Duration = Duration::from_secs(10);
/// From one look at them to the next.
const LOOK: Duration = Duration::from_millis(10);
/// Requests while system calls are counted: full and quick. Each call takes many times longer then.
const TRACED: (u64, u64) = (10_000, 5000);
/// Bytes of a gigabyte.
const GB: f64 = 1e9;
const KB: u64 = 1000;

/// What is requested.
pub(super) struct Load {
    /// The variant.
    pub(super) name: &'static str,
    file: &'static str,
    bytes: u64,
    tls: bool,
    h2: bool,
    /// Requests of a run: full and quick.
    requests: (u64, u64),
}

pub(super) const LOADS: [Load; 4] = [
    Load { name: "plain-1kB", file: "1kB", bytes: KB, tls: false, h2: false, requests: (100_000, 20_000) },
    Load { name: "tls-1kB", file: "1kB", bytes: KB, tls: true, h2: false, requests: (100_000, 20_000) },
    Load { name: "h2-1kB", file: "1kB", bytes: KB, tls: true, h2: true, requests: (100_000, 20_000) },
    Load { name: "tls-10MB", file: "10MB", bytes: 10_000 * KB, tls: true, h2: false, requests: (320, 64) },
];

/// What h2load reports.
#[derive(Debug, PartialEq)]
struct Report {
    /// Requests per second.
    rate: f64,
    succeeded: u64,
    protocol: Option<String>,
    cipher: Option<String>,
}

impl Report {
    fn parse(text: &str) -> Option<Self> {
        let after = |key: &str| text.lines().find_map(|l| l.trim().strip_prefix(key)).map(str::to_owned);
        let rate = after("finished in ")?;
        let rate = rate.split(", ").find_map(|part| part.strip_suffix(" req/s"))?.parse().ok()?;
        let counts = after("requests: ")?;
        let succeeded = counts.split(", ").find_map(|part| part.strip_suffix(" succeeded"))?.parse().ok()?;
        Some(Self { rate, succeeded, protocol: after("Application protocol: "), cipher: after("Cipher: ") })
    }
}

impl Load {
    /// The unit of its CPU time: of large files what a gigabyte takes, of small ones what a request does.
    pub(super) const fn unit(&self) -> &'static str {
        if self.bytes > KB { "cpu_seconds_per_gb" } else { "cpu_us_per_request" }
    }

    /// CPU time in that unit.
    fn cost(&self, cpu: Duration, requests: u64) -> f64 {
        if self.bytes > KB {
            cpu.as_secs_f64() * GB / (requests * self.bytes) as f64
        } else {
            cpu.as_secs_f64() * 1e6 / requests as f64
        }
    }

    fn command(&self, bench: &Bench<'_>, side: Side, requests: u64) -> Command {
        let mut h2load = Command::new("h2load");
        h2load.args(["-n", &requests.to_string(), "-c", CONNECTIONS, "-m", AT_ONCE[usize::from(self.h2)]]);
        if !self.h2 {
            h2load.arg("--h1");
        }
        h2load.arg(bench.url(side, self.tls, self.file));
        h2load
    }

    /// What h2load reports, if all requests were answered as they should be.
    fn check(&self, text: &str, requests: u64) -> Result<Report> {
        let Some(report) = Report::parse(text) else {
            return failed(format!("h2load reports nothing: {}", text.trim()));
        };
        if report.succeeded != requests {
            return failed(format!("{} of {requests} requests succeeded", report.succeeded));
        }
        let wanted = if self.h2 { "h2" } else { "http/1.1" };
        if let Some(other) = report.protocol.as_deref().filter(|p| *p != wanted) {
            return failed(format!("{other} was spoken, and not {wanted}"));
        }
        let cipher = report.cipher.as_deref().unwrap_or("none that h2load reports");
        if self.tls && cipher != CIPHER {
            return failed(format!("the cipher was {cipher}, and not {CIPHER}"));
        }
        Ok(report)
    }

    /// One run against the server of a side.
    pub(super) fn run(&self, bench: &Bench<'_>, side: Side) -> Result<Run> {
        let requests = if bench.lab.quick { self.requests.1 } else { self.requests.0 };
        let server = bench.server(side, self.tls);
        let before = server.cpu_so_far()?;
        let (exit, text) = bench.run(&self.command(bench, side, requests))?;
        std::thread::sleep(END);
        let cpu = server.cpu_so_far()?.saturating_sub(before);
        let report = self.check(&text, requests)?;
        let generator = exit.cpu.as_secs_f64() / exit.wall.as_secs_f64();
        Ok(Run { rate: report.rate, cpu: self.cost(cpu, requests), generator })
    }

    /// The system calls of the server of a side for so many requests.
    fn traced(&self, bench: &Bench<'_>, side: Side, requests: u64) -> Result<Calls> {
        let server = bench.server(side, self.tls);
        let file = bench.work().join("strace");
        let _ = fs::remove_file(&file);
        let mut command = Command::new("strace");
        command.args(["-c", "-f", "-o"]).arg(&file).args(["-p", &server.pid().to_string()]);
        let mut tracer = Child::start(&mut command)?;
        let end = Instant::now() + ATTACH;
        while !is_traced(server.pid()) {
            // Why it has ended is in the error, if it has.
            tracer.line_if_any()?;
            if Instant::now() > end {
                return failed("strace does not attach to the server");
            }
            std::thread::sleep(LOOK);
        }
        let done = bench.run(&self.command(bench, side, requests));
        sys::kill(tracer.pid(), libc::SIGINT);
        // It ends by this signal, which is no failure: whether it has counted is in its file.
        let ended = tracer.wait(LIMIT);
        let (_, text) = done?;
        self.check(&text, requests)?;
        strace::read(&file).map_err(|e| ended.err().unwrap_or(e))
    }
}

/// Whether all threads of a process are traced.
fn is_traced(pid: i32) -> bool {
    let Ok(mut threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let tracer = |status: &str| status.lines().any(|l| l.strip_prefix("TracerPid:").is_some_and(|n| n.trim() != "0"));
    threads.all(|t| {
        let status = t.and_then(|t| fs::read_to_string(t.path().join("status")));
        status.is_ok_and(|status| tracer(&status))
    })
}

/// System calls for a request of 1 kB, of both servers, in runs of their own.
pub(super) fn syscalls(bench: &Bench<'_>, out: &mut Outcome) {
    let requests = if bench.lab.quick { TRACED.1 } else { TRACED.0 };
    let there = process::need("strace", "strace");
    if let Err(e) = &there {
        (bench.lab.progress)(&format!("SKIP: syscalls_per_request: {e}"));
        out.remarks.push(format!("System calls were not counted: {e}"));
    }
    for load in LOADS.iter().filter(|l| l.bytes == KB) {
        for (side, program) in [(Side::Ours, "neater"), (Side::Reference, "nginx")] {
            let figure = Figure::new(ID, "syscalls_per_request", format!("{program}-{}", load.name), "calls");
            let figure = figure.with("program", program);
            let counted = there.clone().and_then(|()| {
                (bench.lab.progress)(&format!("system calls of {program}, {}", load.name));
                load.traced(bench, side, requests)
            });
            let figure = match counted {
                Ok(calls) => {
                    let each = |count: u64| count as f64 / requests as f64;
                    let by_call: Map<String, Value> =
                        calls.0.iter().map(|(name, count)| (name.clone(), each(*count).into())).collect();
                    out.sample("syscalls_per_request", program, load.name, 0, each(calls.total()));
                    figure.value(each(calls.total()), 1).with("by_call", by_call)
                }
                Err(e) => figure.missing(e.to_string()),
            };
            out.figures.push(figure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...\nspawning thread #0: 32 total client(s). 20000 total requests\n\
        TLS Protocol: TLSv1.3\nCipher: TLS_AES_128_GCM_SHA256\nServer Temp Key: X25519 253 bits\n\
        Application protocol: h2\nprogress: 10% done\n\nfinished in 412.03ms, 48540.10 req/s, 51.20MB/s\n\
        requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx\n";

    #[test]
    fn what_h2load_reports_is_read() {
        let report = Report::parse(OUTPUT).expect("a report");
        assert_eq!((report.rate, report.succeeded), (48540.1, 20_000));
        assert_eq!((report.protocol.as_deref(), report.cipher.as_deref()), (Some("h2"), Some(CIPHER)));
        assert_eq!(Report::parse("starting benchmark...\n"), None);
    }

    #[test]
    fn a_run_counts_if_all_was_answered_in_the_protocol_and_with_the_cipher_that_were_wanted() {
        let [plain, tls, h2, large] = &LOADS;
        assert!(h2.check(OUTPUT, 20_000).is_ok());
        for (load, text, requests) in [
            (h2, OUTPUT.to_owned(), 20_001),
            (tls, OUTPUT.to_owned(), 20_000),
            (h2, OUTPUT.replace("128_GCM_SHA256", "256_GCM_SHA384"), 20_000),
            (h2, OUTPUT.replace("Cipher: ", "cipher "), 20_000),
            (plain, String::new(), 1),
        ] {
            assert!(load.check(&text, requests).is_err(), "{} {text}", load.name);
        }
        let second = Duration::from_secs(1);
        assert_eq!((plain.cost(second, 20_000), plain.unit()), (50.0, "cpu_us_per_request"));
        assert_eq!((large.cost(second, 100), large.unit()), (1.0, "cpu_seconds_per_gb"));
    }

    #[test]
    fn a_process_without_a_tracer_is_not_traced() {
        assert!(!is_traced(i32::try_from(std::process::id()).expect("a small number")));
    }
}
