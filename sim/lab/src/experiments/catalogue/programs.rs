//! What users run, beside what they would run otherwise: bulk transfers, HTTP, Python, and the policy manager.

use super::{LOOPBACK, TASKSET, TOOLS, metric};
use crate::experiments::{Experiment, Need, bulk, f2, p1, py, web0};

pub(super) const BULK: Experiment = Experiment {
    id: "BULK",
    title: "BULK: throughput over other people's programs",
    asked: "Is bulk transfer as fast as on the libraries that users would pick instead?",
    note: "One flow on loopback, the same program on both sides, 64 kB writes and reads, one thread each, both on one processor; ratio of \
           medians over interleaved pairs, 95 % bootstrap interval.",
    parameters: &[LOOPBACK, ("pairs", "30, up to 120 where the control is wider than 0.1; 6 with --quick")],
    published: &[],
    metrics: &[metric("throughput_ratio", "1", "at least 0.95")],
    needs: TOOLS,
    minutes: (0.5, 3.0),
    run: bulk::run,
};

pub(super) const WEB0: Experiment = Experiment {
    id: "WEB0",
    title: "WEB0: downloads beside curl, serving beside nginx",
    asked: "Are the commands that users run as fast and as frugal as the ones that they have, and is the API?",
    note: "Servers on one processor, clients on another, all from the first row to the last. `neater get --quiet` and `curl -s`, from \
           nginx: rate over the life of the process, CPU time (user and system) of the process; small files one after the other, \
           `plain-4-at-once` by four connections. `neater serve` and nginx (one worker, sendfile, no open_file_cache, no access log, \
           the same certificate, TLS 1.3 with AES-128-GCM) under h2load: CPU time of the server process from before to after a run, \
           for a request or, at 10 MB, for a GB; requests per second are void where h2load had its processor for 85 % of the time. \
           Ours, reference, control, then in the reverse order; ratio of medians, 95 % bootstrap interval; a row is void whose control \
           is wider than 0.03. System calls by strace, which slows the server and lets more requests come together. \
           TLS and QUIC through the async API: as in BULK.",
    parameters: &[
        LOOPBACK,
        ("download", "1 GiB; 128 MiB with --quick; HTTP/1.1, to /dev/null"),
        ("small files", "2,000 of 20 kB in one invocation; 200 with --quick; HTTP/1.1, into a folder in memory"),
        ("requests of 1 kB", "100,000; 20,000 with --quick; 32 connections, over HTTP/2 with 32 streams each"),
        ("requests of 10 MB", "320; 64 with --quick; 32 connections"),
        ("pairs", "20, 40 where the control is wider than 0.03; 5 with --quick"),
    ],
    published: &[],
    metrics: &[
        metric("get_ratio_vs_curl", "1", "at least 0.97"),
        metric("get_ratio_vs_curl_low", "1", "lower end of the interval at least 0.93"),
        metric("get_cpu_ratio_vs_curl", "1", "at most 1.1"),
        metric("small_files_ratio_vs_curl", "1", "at least 0.97, one after the other"),
        metric("small_files_ratio_vs_curl_low", "1", "lower end of the interval at least 0.93"),
        metric("startup_ms", "ms", ""),
        metric("serve_cpu_ratio_vs_nginx", "1", "at most 1.25"),
        metric("serve_ratio_vs_nginx", "1", "at least 0.8"),
        metric("syscalls_per_request", "calls", ""),
        metric("tls_ratio_vs_tokio_rustls", "1", "at least 0.97"),
        metric("quic_ratio_vs_quinn", "1", "at least 0.97"),
    ],
    needs: &[
        Need::RustPeers,
        Need::Neater,
        Need::Tool("curl", "curl"),
        Need::Tool("nginx", "nginx-light"),
        Need::Tool("h2load", "nghttp2-client"),
        TASKSET,
    ],
    minutes: (2.5, 25.0),
    run: web0::run,
};

pub(super) const PY: Experiment = Experiment {
    id: "PY",
    title: "PY: the Python package beside the Rust API and asyncio's streams",
    asked: "What does Python cost, and does one loop carry ten thousand connections?",
    note: "Messages of 64 kB over loopback, both ends in one process and one loop; megabytes for each second of CPU time, beside the \
           same by the Rust API or by asyncio's own streams. Ours, reference, control, then in the reverse order; ratio of medians, \
           95 % bootstrap interval; a row is void whose control is wider than 0.03. Connections: a process of its own, to asyncio's \
           own server; each sends and receives 8 bytes, and is kept. A stall is the CPU time of the loop's thread between two turns of \
           a task that only yields; the worst of all runs is judged. The interpreter is the one that `cargo xtask wheel` has made, or \
           that NEATER_PYTHON names.",
    parameters: &[
        LOOPBACK,
        ("megabytes", "640; 128 with --quick"),
        ("connections", "10,000, 100 at once while they are opened; 1,000 with --quick"),
        ("pairs", "20, 40 where the control is wider than 0.03; 5 with --quick"),
    ],
    published: &[],
    metrics: &[
        metric("throughput_ratio", "1", "quic at least 0.8, tls 0.6 of the Rust API; tcp at least asyncio's streams"),
        metric("lost", "1", "none"),
        metric("bytes_per_connection", "B", ""),
        metric("cpu_us_per_connection", "us", ""),
        metric("stall_p999_ms", "ms", "at most 5"),
    ],
    needs: &[Need::RustPeers, Need::Tool("python3", "python3"), TASKSET],
    minutes: (1.5, 12.0),
    run: py::run,
};

pub(super) const F2: Experiment = Experiment {
    id: "F2",
    title: "F2: what policies cost a host and a download",
    asked: "How much memory has the daemon with 1,000 policies, and how much more processor time does a download take with them?",
    note: "Memory: anonymous pages of `neater pm` with 1,000 policies and 100 rows as files, after a decision: with these alone, and as a \
           host's service has it (ready-made policies, interfaces, domains, REST). 20 of the policies are about the download, and one about what connections have seen. Processor time: user \
           and system time of `neater get` of a file of holes over plain TCP on loopback, with the policies in a folder (`folder`) or \
           from the daemon (`daemon`), over that with `--no-policy`, in turn; the control is that against itself; client and server share a processor. It has in it what a \
           program pays once, when it starts, for reading 1,000 policies.",
    parameters: &[
        ("bytes", "1 GB; 256 MB with --quick"),
        ("pairs", "30; 8 with --quick"),
        ("policies", "1,000, and 100 nodes"),
    ],
    published: &[("1.31; 21.6 MB and 8.3 MB", "NEAT, Final Version of Use Cases, 2018")],
    metrics: &[
        metric("anonymous_bytes", "bytes", "at most 5,000,000"),
        metric("cpu_ratio", "1", "lower end of the interval at most 1.05"),
    ],
    needs: &[Need::Peers, Need::Neater, TASKSET],
    minutes: (1.0, 8.0),
    run: f2::run,
};

pub(super) const P1: Experiment = Experiment {
    id: "P1",
    title: "P1: what a decision of the policy manager costs",
    asked: "How long does a decision take with 10,000 policies: anew, kept, and through the daemon's socket?",
    note: "10,000 policies of which 20 match the request and 200 some row, 100 rows, 100 candidates of which the first 10 are ranked \
           out. Medians of a process, median over processes; instructions by callgrind. Socket: round trip of the compact form \
           to neater pm, over that of the same bytes to a process that answers at once, in the same run, all on one processor.",
    parameters: &[("runs", "15; 3 with --quick"), ("network", "none")],
    published: &[("8 to 16 ms", "measured with NEAT's manager at commit a5e1662")],
    metrics: &[metric("decision_us", "us", "cold_10k 10, cached 1, socket 20 over the ping-pong")],
    needs: &[Need::Peers, Need::Neater, Need::Tool("valgrind", "valgrind")],
    minutes: (0.5, 3.0),
    run: p1::run,
};
