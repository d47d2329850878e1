//! What each experiment declares: what is asked, under which conditions, what was published, what
//! is measured.
//!
//! Sources: **T** Weinrank and Tüxen's measurements of NEAT's resource cost; **U** the thesis on
//! reliable UDP transports under emulation; **F** the browser demonstration; **S** the dissertation
//! on SCTP's streams, acknowledgments and paths. They are among the founding documents of this
//! project.

use super::{
    Experiment, Metric, Need, a1, a5, a8, a9, a10, b0, bulk, cpu, emulated, f1, f2, f3, links, memory, multipath,
    networks, nr_sack, p1, py, router, s1, s2, s3, web0, x1, x2,
};

const TASKSET: Need = Need::Tool("taskset", "util-linux");
const TOOLS: &[Need] = &[
    Need::Peers,
    Need::Tool("valgrind", "valgrind"),
    Need::Tool("strace", "strace"),
    Need::Tool("cc", "gcc"),
    TASKSET,
];
/// As [`TOOLS`]: what is counted there needs no other program in Rust beside ours in a quick look.
const COUNTED: &[Need] = &[
    Need::FlowPeers,
    Need::Tool("valgrind", "valgrind"),
    Need::Tool("strace", "strace"),
    Need::Tool("cc", "gcc"),
    TASKSET,
];
const STEADIED: &str = "30, up to 120 where the control is wider than 0.1; 8 with --quick";
const LOOPBACK: (&str, &str) =
    ("network", "loopback, no router between; TCP with the machine's own congestion control, which every record names");
const FLOWS: (&str, &str) = ("flows at once", "1 and 256");
const BARS: &str = "bars with 95 % intervals and bounds";

const LAB: &[Need] = &[Need::Lab, Need::Neater, Need::Tool("curl", "curl"), Need::Tool("nginx", "nginx-light")];
const DUMBBELL: (&str, &str) =
    ("network", "dumbbell, only the middle link is shaped, the same both ways; MTU 1,500; IPv4");
const TCP: (&str, &str) = ("kernel TCP", "CUBIC, named in every host");
const QUEUE: (&str, &str) = ("queue", "drop-tail, one bandwidth-delay product in packets of 1,500 bytes, at least 10");
const CURVES: &str = "curves with smallest, median and largest";

const PATHS: (&str, &str) = (
    "network",
    "two paths of 10 Mbit/s (assumed: the source has rates in a figure only) and 45 ms each way, in virtual time",
);
const PUBLISHED_SCTP: (&str, &str) = (
    "SCTP",
    "RFC 9260 with CMT of 2006 (split fast retransmit, window update, delayed acknowledgments, RTX-SSTHRESH), CMT-PF2",
);

const fn metric(name: &'static str, unit: &'static str, bound: &'static str) -> Metric {
    Metric { name, unit, bound, drawn: BARS }
}

/// All experiments, in the order of `run all`.
pub const ALL: &[Experiment] = &[
    Experiment {
        id: "A1",
        title: "A1: what opening a TCP flow costs the client",
        asked: "How many user-space instructions, allocations and system calls does a flow cost its client, with \
                selection, policy, cache and racing on?",
        note: "Whole life of a flow (open, connected, closed), slope between 256 and 2,048 flows opened at once on \
               loopback. neater connects by name (two A and two AAAA records) with the outcome cached; \
               the others to the address.",
        parameters: &[LOOPBACK, ("flows at once", "256 and 2,048")],
        published: &[("kqueue 153, libuv 946, NEAT 202,000 instructions per flow", "T, chapters 3 to 5")],
        metrics: &[
            metric(
                "instructions_per_flow",
                "instructions",
                "neater at most 2,000, by its descriptor 1,300 (by NEAT's interface 2,400 are wanted)",
            ),
            metric("over_kept_count", "ratio", "at most 1.03 of what sim/lab/data/counts.toml has"),
            metric("allocations_per_flow", "allocations", ""),
            metric("syscalls_per_flow", "calls", "neater at most 5"),
        ],
        needs: COUNTED,
        minutes: (0.7, 4.0),
        run: a1::run,
    },
    Experiment {
        id: "A2",
        title: "A2: client CPU time over libuv",
        asked: "How much more CPU time does a client need than one on libuv?",
        note: "User and system time from the first open to the last close (libraries loaded, outcome of the race cached; what \
               the process costs to start and to end is not part of it), ratio of medians over interleaved pairs, 95 % \
               bootstrap interval. 1 or 256 TCP flows at once, repeated; client and server share a processor, and the programs \
               of a round take turns of 10 ms.",
        parameters: &[LOOPBACK, FLOWS, ("pairs", STEADIED)],
        published: &[("+1046 % with 1 flow, +952 % with 256", "T, chapters 3 to 5")],
        metrics: &[metric("cpu_ratio", "1", "lower end of the interval at most 1.1")],
        needs: TOOLS,
        minutes: (0.6, 5.0),
        run: cpu::clients,
    },
    Experiment {
        id: "A3",
        title: "A3: client CPU time of SCTP over usrsctp's",
        asked: "What does opening SCTP associations cost a client, beside usrsctp?",
        note: "User and system time from the first open to the end, ratio of medians over interleaved pairs, 95 % bootstrap \
               interval. 1 or 256 associations over UDP at once, up and then ended in order, repeated; the server is ours for both, and shares a processor with them.",
        parameters: &[LOOPBACK, ("associations at once", "1 and 256"), ("pairs", "30; 2 with --quick")],
        published: &[("NEAT over usrsctp +949 % with 1, +739 % with 256, over libuv's TCP", "T, chapters 3 to 5")],
        metrics: &[metric("cpu_ratio_vs_usrsctp", "1", "at most 1")],
        needs: &[Need::Peers, TASKSET],
        minutes: (0.6, 5.0),
        run: s2::clients,
    },
    Experiment {
        id: "A4",
        title: "A4: server CPU time over libuv",
        asked: "How much more CPU time does a server need than one on libuv?",
        note: "User and system time from when it listens to the last close (what the process costs to start and to end is not \
               part of it), ratio of medians over interleaved pairs, 95 % bootstrap interval. 1 or 256 TCP flows at once, repeated; the client is the same for all, and shares a processor with \
               them; the programs of a round take turns of 10 ms.",
        parameters: &[LOOPBACK, FLOWS, ("pairs", STEADIED)],
        published: &[("+744 % with 1 flow, +295 % with 256", "T, chapters 3 to 5")],
        metrics: &[metric("cpu_ratio", "1", "lower end of the interval at most 1.1")],
        needs: TOOLS,
        minutes: (0.6, 5.0),
        run: cpu::servers,
    },
    Experiment {
        id: "A5",
        title: "A5: connect delay added to libuv's",
        asked: "How much later is a flow connected than with libuv?",
        note: "Median over the flows from the call to the connection, difference of medians over interleaved pairs, \
               95 % bootstrap interval; client and server share a processor.",
        parameters: &[LOOPBACK, FLOWS, ("pairs", "30; 8 with --quick")],
        published: &[("+72 ms with 1 flow, +109 ms with 256", "T, chapters 3 to 5")],
        metrics: &[metric("added_delay_ms", "ms", "under 0.2 ms with 1 flow, under 2 ms with 256")],
        needs: TOOLS,
        minutes: (0.3, 2.0),
        run: a5::run,
    },
    Experiment {
        id: "A6",
        title: "A6: client memory per open TCP flow",
        asked: "How much memory does an open flow cost its client?",
        note: "Slope between 256 and 2,048 open flows: bytes the allocator has given out (memcheck), and anonymous \
               resident memory (/proc).",
        parameters: &[LOOPBACK, ("open flows", "256 and 2,048")],
        published: &[("+94 kB with 1 flow, +6.7 MB with 256", "T, chapters 3 to 5")],
        metrics: &[metric("bytes_per_flow", "bytes", "under 2,000")],
        needs: COUNTED,
        minutes: (0.5, 3.0),
        run: memory::clients,
    },
    Experiment {
        id: "A7",
        title: "A7: server memory per open TCP flow",
        asked: "How much memory does an open flow cost its server?",
        note: "Slope between 256 and 2,048 open flows: bytes the allocator has given out (memcheck), and anonymous \
               resident memory (/proc).",
        parameters: &[LOOPBACK, ("open flows", "256 and 2,048")],
        published: &[("+3.4 MB with 256 flows", "T, chapters 3 to 5")],
        metrics: &[metric("bytes_per_flow", "bytes", "under 2,000")],
        needs: COUNTED,
        minutes: (0.5, 3.0),
        run: memory::servers,
    },
    Experiment {
        id: "A8",
        title: "A8: what a transferred megabyte costs",
        asked: "What does moving data cost beyond opening the flow?",
        note: "Objects one after the other over 1 or 8 TCP flows, handed over in pieces of at most 64 kB, read with \
               64 kB, both sides on one processor. Counts are slopes between two amounts. CPU time \
               is user and system time of 600 MB (1 kB objects: 150 MB), taken in turns of 10 ms.",
        parameters: &[
            (
                "network",
                "loopback of a namespace, with Reno and receive buffers of 2 MiB; without the right to make one, the machine's own",
            ),
            ("objects", "1 kB, 100 kB, 10 MB, 1 GB"),
            ("flows", "1 and 8"),
            ("pairs for CPU time and throughput", STEADIED),
        ],
        published: &[("sender +41 %, receiver +33 % CPU with 1 flow; +42 % and +35 % with 8", "T, chapters 3 to 5")],
        metrics: &[
            metric("syscalls_per_mb", "calls", "equal to libuv's"),
            metric("instruction_ratio", "1", "within 2 % of libuv's"),
            metric("instruction_ratio_vs_rust", "1", "NEAT's interface at most 1.2 of neater's in Rust"),
            metric("cpu_ratio", "1", ""),
        ],
        needs: TOOLS,
        minutes: (1.2, 45.0),
        run: a8::run,
    },
    Experiment {
        id: "A9",
        title: "A9: SCTP raced against TCP",
        asked: "Does SCTP win where it works, and what does it cost where it does not?",
        note: "Engines in virtual time, one way by IPv4; SCTP is preferred, TCP is started after the delay between \
               attempts. Added delay: from TCP's being established to its being chosen, the longest over all runs; \
               -cached: the second connect, over TCP alone.",
        parameters: &[
            ("round trip", "20 and 100 ms"),
            ("delay between attempts", "10 and 260 ms, as in NEAT"),
            ("SCTP", "works; vanishes; INIT ACK vanishes; is refused by ICMP"),
            ("runs", "40; 6 with --quick"),
        ],
        published: &[("with 10 ms SCTP loses: its handshake takes two round trips", "T, chapters 3 to 5")],
        metrics: &[
            metric("sctp_wins", "1", "1 at equal round trip"),
            metric("added_delay_ms", "ms", "at most the grace; 0 when refused, and from the cache"),
            metric("server_state", "associations", "0"),
        ],
        needs: &[],
        minutes: (0.1, 0.2),
        run: a9::run,
    },
    Experiment {
        id: "A10",
        title: "A10: a cached connect over a single-protocol connect",
        asked: "What does a connect cost whose race was run before?",
        note: "User-space instructions per flow: by name with the race's outcome cached, over one protocol and a \
               literal address.",
        parameters: &[LOOPBACK, ("flows at once", "256 and 2,048")],
        published: &[("CPU falls with the hit rate, by over 40 % in the clear, almost 20 % with TLS", "F, section 3")],
        metrics: &[metric("instruction_ratio", "1", "at most 1.05")],
        needs: COUNTED,
        minutes: (0.4, 2.0),
        run: a10::run,
    },
    Experiment {
        id: "AR",
        title: "AR: the A experiments through a router of 10 Mbit/s and 50 ms",
        asked: "What does opening flows cost between hosts, as it was published: with a router between them?",
        note: "Client and server in network namespaces, the router in the live lab's emulator. A run opens its flows at once, \
               holds them and closes them; it gives delay (A5), CPU time from when the peer is ready to its end (A2, A4) and \
               anonymous memory with all flows open (A6, A7) together, in full also instructions (A1). Order drawn anew in \
               every round, libuv twice. Judged are delays, CPU time and memory with 256 flows, delay with 1.",
        parameters: &[
            ("network", "client, router, server; 10 Mbit/s, 50 ms and room for 1,000 packets each way; IPv6"),
            ("flows at once", "1, 2, 4 ... 256; servers 1 and 256; with --quick 1, 16, 256 and 256"),
            TCP,
            ("runs", "10; 3 with --quick, without tokio"),
        ],
        published: &[
            ("delay +72 ms with 1 flow, +109 ms with 256, over libuv", "T, chapters 3 to 5"),
            ("client CPU +1046 % with 1 flow, +952 % with 256", "T, chapters 3 to 5"),
            ("server CPU +744 % and +295 %", "T, chapters 3 to 5"),
            ("client memory +94 kB and +6.7 MB; server +3.4 MB with 256", "T, chapters 3 to 5"),
        ],
        metrics: &[
            metric("added_delay_ms", "ms", "under 0.2 ms with 1 flow, under 2 ms with more"),
            metric("cpu_ratio", "1", "lower end of the interval at most 1.1 with 256 flows"),
            metric("resident_bytes_per_flow", "bytes", "under 2,048"),
            Metric { name: "connect_delay_ms", unit: "ms", bound: "", drawn: CURVES },
        ],
        needs: &[
            Need::Lab,
            Need::Peers,
            Need::Tool("cc", "gcc"),
            Need::Tool("valgrind", "valgrind"),
            Need::Tool("nsenter", "util-linux"),
        ],
        minutes: (0.5, 8.0),
        run: router::run,
    },
    Experiment {
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
    },
    Experiment {
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
    },
    Experiment {
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
            metric(
                "throughput_ratio",
                "1",
                "quic at least 0.8, tls 0.6 of the Rust API; tcp at least asyncio's streams",
            ),
            metric("lost", "1", "none"),
            metric("bytes_per_connection", "B", ""),
            metric("cpu_us_per_connection", "us", ""),
            metric("stall_p999_ms", "ms", "at most 5"),
        ],
        needs: &[Need::RustPeers, Need::Tool("python3", "python3"), TASKSET],
        minutes: (1.5, 12.0),
        run: py::run,
    },
    Experiment {
        id: "B0",
        title: "B0: whether the emulated network is what it is said to be",
        asked: "Do delay, jitter, loss, queue and rate come out of lab and simulator as they are configured?",
        note: "Every packet is captured by tcpdump where it leaves its host and where it arrives. It is held against closed \
               forms, and against the same link in virtual time, which is given the packets as they left. Offloads are \
               off. The kernel's token bucket filter is measured beside the emulator, by the same means.",
        parameters: &[
            ("delay", "0, 10, 25, 50 ms; 10 ms and a rate at which a packet takes 12 ms"),
            ("jitter", "normal, 0 to 5 ms, on 25 ms"),
            ("loss", "0, 0.1, 0.5, 1, 2.5, 5 %, and in runs (Gilbert-Elliott); 20,000 packets each, 100,000 in full"),
            (
                "queue",
                "50 packets at 1 to 100 Mbit/s; 5, 20 and 200 packets, 25,999 and 120,000 bytes at 10; bursts of 500 while the link is \
                 held; the kernel's TBF beside, which cannot be held",
            ),
            ("rate", "1 to 500 Mbit/s, 20 % more is sent, queue of 50 ms"),
            ("sharing", "3 connections of Reno or CUBIC; 1, 10, 50 Mbit/s; 100 ms; queue of one BDP"),
        ],
        published: &[(
            "delay, jitter, loss, queue, and fairness of TCP as in figures 4.3.1 to 4.3.10",
            "U, section 4.3",
        )],
        metrics: &[
            metric("delay_error_ms", "ms", "median at most 0.2"),
            metric("jitter_error_ms", "ms", "within three standard errors and 0.2 ms"),
            metric("loss_error", "1", "within three standard deviations of the binomial distribution"),
            metric("packets_lost_differently", "packets", "none"),
            metric("queue_error_packets", "packets", "none"),
            metric("serialisation_error", "1", "at most 0.01"),
            metric("loss_run_error", "packets", "within three standard errors of the geometric law"),
            metric("md1_wait_error_ms", "ms", "at most 0.2 from what these arrivals wait"),
            metric("rate_error", "1", "at most 0.01"),
            metric("lab_capacity_mbit", "Mbit/s", "at least 500"),
            metric("jain", "1", ""),
        ],
        needs: &[
            Need::Lab,
            Need::Tool("ip", "iproute2"),
            Need::Tool("ping", "iputils-ping"),
            Need::Tool("tcpdump", "tcpdump"),
            Need::Tool("iperf3", "iperf3"),
        ],
        minutes: (0.7, 9.0),
        run: b0::run,
    },
    Experiment {
        id: "B1",
        title: "B1: one file of 10 MB over emulated paths",
        asked: "Is QUIC as fast as TCP where the link limits, and not slower where starting up or loss does?",
        note: "neater serve and neater get over QUIC, TLS and TCP, nginx and curl as the outside reference, in network \
               namespaces; in the simulator the engine, with the same QUIC and with the simulator's TCP. Goodput is the \
               payload over the life of the client's process; every file is compared with what was served.",
        parameters: &[
            DUMBBELL,
            QUEUE,
            TCP,
            ("bandwidth", "2 to 70 Mbit/s at 20 ms"),
            ("round-trip time", "80 to 800 ms at 10 Mbit/s"),
            ("loss", "0 to 5 % in each direction at 5 Mbit/s, 160 ms"),
            ("runs", "5, in the simulator 20 where chance decides; 1 and 6 with --quick, with fewer points"),
        ],
        published: &[("QUIC 36, HTTPS 56 Mbit/s at 70 Mbit/s; with loss QUIC about twice HTTPS", "U, section 5.2.1")],
        metrics: &[
            Metric { name: "goodput_mbit", unit: "Mbit/s", bound: "", drawn: CURVES },
            metric("goodput_ratio", "1", "QUIC over kernel TCP at least 0.97 where 10 MB take 50 round trips or more"),
            metric("goodput_ratio_mean", "1", "geometric mean of the other points at least 1"),
            metric("simulator_over_lab", "1", "error bars meet, or it is explained"),
            metric("simulator_agrees", "1", "error bars meet at 80 % of the points"),
            metric("unexplained_points", "1", "none apart of which the runs say nothing"),
        ],
        needs: LAB,
        minutes: (1.6, 80.0),
        run: emulated::b1,
    },
    Experiment {
        id: "B2",
        title: "B2: ten files of 100 kB on one connection",
        asked: "What do streams bring over requests that follow each other, and what does jitter cost?",
        note: "As B1, with ten files: streams at once over HTTP/3 and HTTP/2, one request after the other over HTTP/1.1, \
               and HTTP/1.1 over 2, 5 and 10 connections whose initial windows together are one connection's.",
        parameters: &[
            DUMBBELL,
            QUEUE,
            TCP,
            ("bandwidth", "2 to 50 Mbit/s at 20 ms"),
            ("round-trip time", "10 to 500 ms at 10 Mbit/s"),
            ("loss", "0 to 5 % in each direction at 10 Mbit/s, 100 ms"),
            (
                "jitter",
                "normal, standard deviation 0 to 10 ms in each direction at 10 Mbit/s, 50 ms, with and without reordering",
            ),
            ("runs", "5, in the simulator 20 where chance decides; 1 and 6 with --quick, with fewer points"),
        ],
        published: &[(
            "QUIC ahead of sequential HTTPS; 0.5 ms of jitter cut it from 7 to 2 Mbit/s",
            "U, section 5.3.1",
        )],
        metrics: &[
            Metric { name: "goodput_mbit", unit: "Mbit/s", bound: "", drawn: CURVES },
            metric("goodput_ratio", "1", "QUIC over one TCP connection with TLS at least 1"),
            metric("goodput_over_best_n", "1", "QUIC over the best of 1, 2, 5 and 10 connections at least 1"),
            metric("jitter_goodput_ratio", "1", "at least 0.9 of the goodput without jitter, if the order is kept"),
        ],
        needs: LAB,
        minutes: (1.3, 40.0),
        run: emulated::b2,
    },
    Experiment {
        id: "B3",
        title: "B3: what is sent for what is delivered",
        asked: "How many bytes and packets does each stack send for a byte that arrives?",
        note: "The runs of B1 and B2, counted by the links of server and client: IP packets with their headers, handshake \
               and retransmissions included.",
        parameters: &[DUMBBELL, QUEUE, TCP, ("sweeps", "those of B1 and B2, whose runs are used")],
        published: &[("parity cost QUIC 1.6 percentage points more bytes than HTTP", "U, section 5.3.1")],
        metrics: &[
            Metric { name: "overhead_bytes_ratio", unit: "1", bound: "", drawn: CURVES },
            Metric { name: "overhead_packets_per_mb", unit: "packets", bound: "", drawn: CURVES },
            Metric { name: "back_bytes_ratio", unit: "1", bound: "", drawn: "table" },
        ],
        needs: LAB,
        minutes: (0.1, 1.0),
        run: emulated::b3,
    },
    Experiment {
        id: "B4",
        title: "B4: fairness towards the kernel's TCP",
        asked: "Do connections of ours share a link with TCP as TCP connections share it among themselves?",
        note: "Long transfers that begin together, each between hosts of its own; rates of IP bytes at the clients' links, \
               over the whole run.",
        parameters: &[
            DUMBBELL,
            ("middle link", "5 Mbit/s, 100 ms, queue of five bandwidth-delay products"),
            TCP,
            ("mixes", "2 QUIC + 2 TCP; 1 QUIC connection of 2 streams + 2 TCP; 4 TCP"),
            ("runs", "30 of 40 s; 3 of 12 s with --quick; as many in the simulator"),
        ],
        published: &[("Jain's index 0.84; with two streams more than TCP in 60 % of the runs", "U, section 5.4.1")],
        metrics: &[
            Metric {
                name: "jain",
                unit: "1",
                bound: "median of 2 + 2 at least that of 4 TCP less 0.02",
                drawn: "distributions over the runs",
            },
            Metric { name: "our_share", unit: "1", bound: "0.4 to 0.6 in 2 + 2", drawn: "distributions over the runs" },
        ],
        needs: LAB,
        minutes: (0.6, 17.0),
        run: emulated::b4,
    },
    Experiment {
        id: "I1",
        title: "I1: never worse than the better link",
        asked: "Is one flow over two links ever slower than over the better one alone, with default settings?",
        note: "20 MiB from the connection call to the last byte that the receiver's application has, in virtual time, over both links and over \
               each alone with the same seed. The association is opened on the first link, and the second is added when it is up. Jitter is \
               normal in each direction, cut at no delay, and reorders as netem's does; the second table keeps the order and has queues of \
               one bandwidth-delay product. `ratio_to_sum`: bytes in order when the transfer over both ends, over what both single ones had by then.",
        parameters: &[
            ("links", "the 16 pairs that the mqvpn project has published"),
            ("queues", "1,000 packets; one bandwidth-delay product in the second table"),
            ("seeds", "100; 20 with --quick, and the first table alone"),
        ],
        published: &[(
            "better link alone, default settings, best of its settings, in Mbit/s: beside each row",
            "mqvpn, report of 2026-06-18, section 3.3",
        )],
        metrics: &[
            metric("ratio_to_best", "1", "mean at least 0.97 in each environment"),
            metric("ratio_to_best_low", "1", "lower end of its interval at least 0.95"),
            metric("ratio_to_best_least", "1", "no seed below 0.80"),
            metric(
                "bottleneck_share",
                "1",
                "default at most 0.6: two paths through one bottleneck beside one flow with CUBIC",
            ),
            metric(
                "ratio_to_sum",
                "1",
                "at least 0.90 where links are not too different; 0.80 in jitter-20, loss-2 and congested",
            ),
        ],
        needs: &[],
        minutes: (4.0, 40.0),
        run: links::i1,
    },
    Experiment {
        id: "I1L",
        title: "I1 with real packets",
        asked: "Is one download over two links slower than over the better one alone, by the command that users run?",
        note: "`neater get` of 20 MiB, in hosts of the lab: over both links, over each alone, and once more over each, which is the \
               control. `sctp`: over UDP, with Aggregate; `mptcp`: TCP with the kernel's MPTCP (CUBIC), its path manager told of the second \
               address; both ends start the race, and the process, within the time. `noq`: as many bytes by noq, a QUIC with several paths \
               (draft-ietf-quic-multipath; CUBIC, a window of 2 MiB), from its call to connect to the last byte. A row fails only where its \
               interval lies below 0.97 and that of the control does not.",
        parameters: &[
            ("links", "the 16 pairs of I1, two of them with --quick"),
            ("queues", "1,000 packets"),
            ("runs", "5; 1 with --quick"),
        ],
        published: &[("as I1", "mqvpn, report of 2026-06-18, section 3.3")],
        metrics: &[metric(
            "ratio_to_best",
            "1",
            "sctp: the upper end of the interval at least 0.97; mptcp and noq are shown",
        )],
        needs: &[Need::Lab, Need::Neater, Need::RustPeers],
        minutes: (3.0, 90.0),
        run: links::i1_live,
    },
    Experiment {
        id: "I2",
        title: "I2: a link dies without a word",
        asked: "After which time does something arrive that had to be sent again?",
        note: "From the death of the link that carries most to the first byte in order that was lost with it, in virtual time; where nothing was \
               sent, from the next message on. Bound: two round trips of the survivor, one probe timeout of the sender (RFC 8985) and 25 ms.",
        parameters: &[
            ("links", "two of 20 Mbit/s and 50 ms, queues of one bandwidth-delay product"),
            ("application", "half of what one link carries; all that both do; silence for 0.5 to 2.5 s and a message"),
            ("deaths", "1,000 of each; 50 with --quick"),
        ],
        published: &[],
        metrics: &[
            metric("resume_ms", "ms", "app-limited-p99 at most 250"),
            metric("within_bound", "1", "at least 0.99"),
        ],
        needs: &[],
        minutes: (0.5, 5.0),
        run: links::i2,
    },
    Experiment {
        id: "S1",
        title: "S1: SCTP in bulk over loopback",
        asked: "Is a single SCTP association as fast as the machine allows, beside usrsctp and beside QUIC?",
        note: "One association over UDP in a network namespace, its sender on one processor and its receiver on another; \
               usrsctp computes its checksums as on a network; quinn encrypts. CPU time is that of the whole processes. \
               Instructions and copied bytes are slopes between two volumes, under valgrind, of transfers without a loss (a side \
               under valgrind is slow, and what repairs a loss is no steady state); allocations are counted by the \
               peer from a quarter of the volume on. The capture has a transfer whose segments the kernel cuts before they are \
               captured; where GSO holds, the same segments travel together.",
        parameters: &[
            ("network", "loopback of a namespace, MTU 1,500"),
            ("messages", "1, 16 and 64 kB"),
            ("runs", "10; 2 with --quick"),
        ],
        published: &[],
        metrics: &[
            metric("throughput_ratio_vs_usrsctp", "1", "at least 8; reported without GSO"),
            metric("throughput_ratio_vs_quinn", "1", "at least 1"),
            metric("cpu_per_gb_ratio_vs_usrsctp", "1", "at most an eighth; reported without GSO"),
            metric("instructions_per_datagram", "instructions", "at most 3,000"),
            metric("over_kept_count", "ratio", "at most 1.03 of what sim/lab/data/counts.toml has"),
            metric("allocations_per_datagram", "allocations", "none"),
            metric("copies_per_byte", "copies", "at most one, and headers"),
            metric("largest_packet_bytes", "bytes", "at most 1,500"),
            metric("throughput", "MB/s", ""),
        ],
        needs: &[
            Need::Lab,
            Need::Peers,
            Need::Tool("nsenter", "util-linux"),
            Need::Tool("valgrind", "valgrind"),
            Need::Tool("tcpdump", "tcpdump"),
            Need::Tool("ethtool", "ethtool"),
        ],
        minutes: (0.9, 8.0),
        run: s1::run,
    },
    Experiment {
        id: "S2",
        title: "S2: SCTP handshakes and memory",
        asked: "How many associations can one core open, and what do they hold?",
        note: "Both sides on one processor, 256 associations over UDP at once, up and then ended in order, repeated; for the server \
               alone by its CPU time. Memory is what the peer's allocator has given out to a server when its clients are gone: \
               slope between 1,200 and 4,800 idle associations, and between 128 and 1,024 streams of one association that have all \
               carried a message each way at the same time, 80 s before.",
        parameters: &[LOOPBACK, ("runs", "10; 3 with --quick")],
        published: &[],
        metrics: &[
            metric("handshakes_per_second", "1/s", ""),
            metric("bytes_per_association", "bytes", "under 4,096"),
            metric("bytes_per_stream", "bytes", "under 64"),
        ],
        needs: &[Need::Peers, TASKSET],
        minutes: (0.1, 0.5),
        run: s2::run,
    },
    Experiment {
        id: "S3",
        title: "S3: SCTP beside the kernel's TCP over a sweep of round-trip times",
        asked: "Does a user-space SCTP deliver as much as the kernel's TCP?",
        note: "Bulk over the lab's emulator, one flow, in pairs of runs with the same losses (the same packets by number); goodput by \
               the receiver's clock from the first it hears of its peer to the last byte. A program sends for 5 s, or, with loss, for \
               10 s. Ratio: geometric mean over pairs, 95 % bootstrap interval.",
        parameters: &[
            ("network", "dumbbell, only the middle link is shaped, the same both ways; IPv4, UDP"),
            ("round-trip time", "0, 10, 20, 50, 100, 200 ms"),
            ("rate", "100 and 500 Mbit/s"),
            ("loss", "0 and 0.1 % in each direction"),
            ("queue", "one bandwidth-delay product, at least 64 packets"),
            ("kernel TCP", "CUBIC, buffers up to 64 MB"),
            ("pairs", "10; 2 with --quick, at three points"),
        ],
        published: &[],
        metrics: &[metric(
            "goodput_ratio_vs_tcp",
            "1",
            "geometric mean at least 1; lower end of the interval at least 0.90 at each point",
        )],
        needs: &[Need::Lab, Need::Peers],
        minutes: (0.9, 60.0),
        run: s3::run,
    },
    Experiment {
        id: "D1",
        title: "D1: what the retransmission queue holds, with and without NR-SACK, over one path",
        asked: "How much of what a sender keeps is at the receiver already, and what does NR-SACK save?",
        note: "Pairs by seed. Needed is what the last acknowledgment does not say has arrived, read from the packets at the sender's door; \
               the queue is what the sender keeps. Looked at every millisecond. Others' senders are windows that halve when a packet is lost. \
               rtxq_util is over medium and heavy load without a bound on the send buffer, rtxq_util_l of that while something is missing.",
        parameters: &[
            (
                "bottleneck",
                "100 Mbit/s, 2 ms, drop-tail queue of 100 ms, files, pages and videos of others in both directions",
            ),
            ("load", "low, mild, medium, heavy: below 0.1, 1 to 2, 3 to 4, 8 to 9 % of others' packets dropped"),
            ("sender and receiver", "links of 100 Mbit/s and 14 ms each, 30 ms one way in all"),
            ("send buffer", "32 kB, 64 kB, without bound; receive buffer 64 MB; unordered messages"),
            PUBLISHED_SCTP,
            ("times", "transfer from 18 s, looked at from 38 to 70 s; 4 s, 5 to 9 s with --quick"),
            ("pairs", "30; 3 with --quick, at one point"),
        ],
        published: &[("SACK about 0.5 in recovery, 20 to 30 % of the queue wasted; NR-SACK 1.0", "S, chapter 3")],
        metrics: &[
            metric("rtxq_util", "1", "SACK 0.65 to 0.85, NR-SACK at least 0.97"),
            metric("rtxq_util_l", "1", "SACK 0.45 to 0.6, NR-SACK at least 0.97"),
            metric("goodput_difference", "1", "lower end of the interval above -0.01 at each point (D3)"),
            metric("throughput_ratio", "1", "geometric mean at least 0.99"),
        ],
        needs: &[],
        minutes: (0.2, 20.0),
        run: nr_sack::d1,
    },
    Experiment {
        id: "D2",
        title: "D2: the same over two paths",
        asked: "Does NR-SACK do with half the send buffer what SACK does, where data goes over two paths?",
        note: "As D1, with CMT over two bottlenecks; the second has a low load.",
        parameters: &[
            ("bottlenecks", "two as in D1"),
            ("load", "path 1 low, mild, medium, heavy; path 2 low"),
            ("send buffer", "128 kB, 256 kB, without bound"),
            PUBLISHED_SCTP,
            ("pairs", "30; 3 with --quick, at one load"),
        ],
        published: &[("NR-SACK with 128 kB as SACK with 256 kB, fewer timeouts", "S, chapter 3")],
        metrics: &[
            metric("throughput_ratio", "1", "nr128_vs_sack256 at least 0.98"),
            metric("goodput_difference", "1", "lower end of the interval above -0.01 at each point (D3)"),
        ],
        needs: &[],
        minutes: (0.4, 40.0),
        run: nr_sack::d2,
    },
    Experiment {
        id: "E1",
        title: "E1: a path fails for good during a transfer over two",
        asked: "How long does the receive buffer stay blocked with CMT, and with the potentially-failed state?",
        note: "8 MB over two paths, of which the second fails after 5 s; nothing is lost otherwise. Times count from the first data to \
               the last byte that the receiver's application has. The bound is what the receive buffer allows in a round trip, and one \
               retransmission timeout.",
        parameters: &[PATHS, PUBLISHED_SCTP, ("receive buffer", "64 kB"), ("Path.Max.Retrans", "5")],
        published: &[("CMT about 80 s, CMT-PF about 15 s (FreeBSD: 80 s and 18 s)", "S, sections 4.4.1.1 and 4.6.1.1")],
        metrics: &[
            metric("completion_s", "s", "CMT at least 75"),
            metric("completion_s_at_most", "s", "CMT at most 85: without countermeasures it is to be as bad as it was"),
            metric("bound_ratio", "1", "CMT-PF at most 1.1"),
        ],
        needs: &[],
        minutes: (0.1, 0.1),
        run: multipath::e1,
    },
    Experiment {
        id: "E2",
        title: "E2: goodput until a failure is found out",
        asked: "What does a transfer over two paths carry from the failure of one until that is found out?",
        note: "As E1 with 1 % of Bernoulli loss on both paths, and data without end. Goodput of the receiving application between the failure \
               and the moment when the sender marks the path inactive, over the goodput of 8 MB over one path alone; means over runs. \
               Variants pmrN: CMT-PF with Path.Max.Retrans N; -or: with opportunistic retransmission and penalisation; cmt-: CMT.",
        parameters: &[PATHS, PUBLISHED_SCTP, ("receive buffer", "64 kB"), ("runs", "30; 3 with --quick")],
        published: &[("CMT falls with Path.Max.Retrans, CMT-PF reaches one path's from 3 on", "S, figure 4.7")],
        metrics: &[metric(
            "goodput_fraction",
            "1",
            "CMT-PF at least 0.75, 0.88, 0.94, 0.97 at 1, 2, 3, 5; with opportunistic retransmission at least 0.95 from 1 on",
        )],
        needs: &[],
        minutes: (0.2, 1.0),
        run: multipath::e2,
    },
    Experiment {
        id: "E3",
        title: "E3: a path fails for five seconds",
        asked: "What is gained by the potentially-failed state when a failure is short, and how does that depend on the receive buffer?",
        note: "The course of one transfer each without loss; then pairs with 1 % of Bernoulli loss and the same seeds: goodput of the receiving \
               application while the second path is down, from 5 s to 10 s.",
        parameters: &[PATHS, PUBLISHED_SCTP, ("receive buffer", "32 to 256 kB"), ("pairs", "30; 3 with --quick")],
        published: &[("CMT-PF ahead, the more so with small buffers", "S, figures 4.8 and 4.9")],
        metrics: &[
            metric("completion_s", "s", ""),
            metric("goodput_ratio", "1", "CMT-PF over CMT at least 0.99 at each point, geometric mean at least 1"),
        ],
        needs: &[],
        minutes: (0.2, 1.0),
        run: multipath::e3,
    },
    Experiment {
        id: "E4a",
        title: "E4a: paths of different delay with the same losses",
        asked: "Is the potentially-failed state ever a loss where paths lose packets and none fails?",
        note: "8 MB; pairs by seed. Drawn as in the source: goodput of CMT over that of CMT-PF.",
        parameters: &[
            PATHS,
            ("delay of path 2", "45, 90, 180, 360, 450 ms each way"),
            ("loss", "1 to 10 % on both paths, Bernoulli"),
            PUBLISHED_SCTP,
            ("receive buffer", "64 kB"),
            ("pairs", "30; 3 with --quick, at four points"),
        ],
        published: &[("equal where delays are, CMT-PF ahead as they differ", "S, figures 4.15 and 4.16")],
        metrics: &[metric(
            "goodput_ratio",
            "1",
            "CMT-PF over CMT at least 0.99 at each point, geometric mean at least 1",
        )],
        needs: &[],
        minutes: (0.3, 6.0),
        run: multipath::e4a,
    },
    Experiment {
        id: "E4b",
        title: "E4b: paths that others use, with bursty losses",
        asked: "Is the potentially-failed state ever a loss where losses come in bursts and no path fails?",
        note: "32 MB; pairs by seed. Others send by 32 sources on each path and direction, on and off for times with a Pareto \
               distribution (shape 1.5, means 0.5 s). Timeouts in a row: how often one on path 2 was the second, third, ... without an \
               acknowledgment from there between; and transmissions on each path, means over runs, beside tables 4.1 and 4.2.",
        parameters: &[
            PATHS,
            ("queue", "50 ms, twice what the shared link holds"),
            ("what others send", "40 to 100 % of both links; 50 % of one and 50 to 100 % of the other"),
            ("their packets", "50 % of 44, 25 % of 576, 25 % of 1,500 bytes"),
            PUBLISHED_SCTP,
            ("receive buffer", "64 kB"),
            ("pairs", "30; 3 with --quick, at two points with 4 MB"),
        ],
        published: &[(
            "CMT-PF on par or ahead, more so as loads differ",
            "S, figures 4.14 and 4.18, tables 4.1 and 4.2",
        )],
        metrics: &[
            metric("goodput_ratio", "1", "CMT-PF over CMT at least 0.99 at each point, geometric mean at least 1"),
            metric("timeouts_in_a_row", "1", ""),
            metric("transmissions", "1", ""),
        ],
        needs: &[],
        minutes: (0.3, 20.0),
        run: multipath::e4b,
    },
    Experiment {
        id: "E5",
        title: "E5: one file over two networks, with real packets",
        asked: "How much of two networks does one transfer get, by the commands that users run?",
        note: "`neater get` of a file from `neater serve`, in hosts of the lab, from the start of the command to its end: resolution, race and \
               handshake are in it. `one`: SCTP over UDP with both networks and the policy Handover; `equal`: with Aggregate; \
               `equal-dtls`: the same over DTLS. `rtt-10-100` and `rate-2-18`: as `equal`, over networks whose round trips are 10 and 100 ms, \
               or whose rates are 2 and 18 Mbit/s. `mptcp-`: TCP with the kernel's MPTCP over the same, its path manager told of the second \
               address. Payload; of 20 Mbit/s of IP bytes 19.2 can be payload.",
        parameters: &[
            ("networks", "two of 10 Mbit/s and 10 ms each way, queues of 100 ms, where the row says nothing else"),
            ("file", "64 MB; 4 MB with --quick"),
            ("kernel TCP", "CUBIC"),
            ("runs", "10; 1 with --quick"),
        ],
        published: &[("9 Mbit/s over TCP, 18 over CMT", "F")],
        metrics: &[metric("goodput_mbit", "Mbit/s", "equal, rtt-10-100 and rate-2-18 at least 18.5, equal-dtls 18.0")],
        needs: &[Need::Lab, Need::Neater],
        minutes: (1.0, 55.0),
        run: networks::e5,
    },
    Experiment {
        id: "E6",
        title: "E6: networks that fail under a transfer, with real packets",
        asked: "Is a byte lost, and how long does nothing arrive, when a network swallows everything, goes, or changes its address?",
        note: "As E5 with Aggregate. From 5 to 15 s the first network is a black hole, or its interface is down, or both are black holes, of \
               which the second returns; or the second interface has another address from 5 s on; or both networks lead to one NAT box, which \
               gives every mapping another port 10 s after its start. How much has arrived is looked at every 10 ms.",
        parameters: &[
            ("networks", "as in E5"),
            ("file", "64 MB; 16 MB with --quick"),
            ("runs", "10; 1 of the first failure with --quick"),
        ],
        published: &[],
        metrics: &[
            metric("whole", "1", "1: no byte is lost"),
            metric("stall_s", "s", "reported: the longest time in which nothing arrives"),
            metric("resumes_s", "s", "at most 1 after both networks were dead for 10 s"),
        ],
        needs: &[Need::Lab, Need::Neater],
        minutes: (0.4, 22.0),
        run: networks::e6,
    },
    Experiment {
        id: "F1",
        title: "F1: which modem, by what it says of itself",
        asked: "Do the shipped policies score modems as the founding document says, and what is a choice by these scores worth?",
        note: "Scores are those of the policy manager with the ready-made tables. Gain: two modems whose rates and round trips wander \
               for 30 minutes (a decision every 10 s), metadata that follow the rate with a stated correlation of their logarithms and \
               normal scores; mean rate and round trip of the choice over the mean of both modems, which a fixed choice has on average. Generated, not \
               measured: it tells what the choice makes of metadata, not what metadata are worth.",
        parameters: &[
            ("modems", "20, at random"),
            ("correlations", "0, 0.3, 0.6, 0.9"),
            ("traces", "200; 20 with --quick"),
        ],
        published: &[(
            "RTT -11.4 to +23.3 %, throughput -4.3 to +46.7 %",
            "NEAT, Final Version of Use Cases, 2018, table 7",
        )],
        metrics: &[
            metric("score", "points", "64 exactly"),
            metric("agreeing_modems", "1", "1"),
            metric("rate_gain", "%", "0 within the interval where the correlation is 0"),
            metric("rtt_gain", "%", "likewise"),
        ],
        needs: &[],
        minutes: (0.1, 0.5),
        run: f1::run,
    },
    Experiment {
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
    },
    Experiment {
        id: "F3",
        title: "F3: a day with and without provisioning domains",
        asked: "Which of four workloads succeed, fail or are not attempted at four places, with one network, with two, and with two that \
                say what they are; and what do the attempts cost that were doomed?",
        note: "Capacities, thresholds, requirements and the time limit stand in sim/lab/data/f3.toml with their reasons, and were fixed \
               before the first run. Namespaces and emulated links, IPv6; gateways advertise domains (RFC 8801) and serve their documents \
               over HTTPS, neater pm hears and asks, neater get and a caller of neater's datagrams obey. What was attempted over a network is \
               what tcpdump saw leave the host for the workload's server; done work is not tried again. Boxes: seconds, ours; a * where \
               the published table expects another result.",
        parameters: &[
            ("days", "5; 1 with --quick, and with domains alone unless --only names others"),
            ("kernel TCP", "CUBIC, named in every host"),
            ("order", "all workloads that are left at once; without domains the first network, then the second"),
        ],
        published: &[(
            "with domains no doomed attempt is made; tables 11 to 13",
            "NEAT, Validation and Evaluation Results, 2018, section 2.2 (expected results)",
        )],
        metrics: &[
            metric("doomed_attempts", "attempts", "0 with domains"),
            metric("doomed_mb", "MB", ""),
            metric("workloads_done", "workloads", "4 with domains"),
            metric("day_seconds", "s", ""),
            metric("cells_as_published", "cells", ""),
        ],
        needs: &[Need::Lab, Need::Neater, Need::Tool("nginx", "nginx-light"), Need::Tool("tcpdump", "tcpdump")],
        minutes: (1.0, 25.0),
        run: f3::run,
    },
    Experiment {
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
    },
    Experiment {
        id: "X1",
        title: "X1: how fast the simulator is",
        asked: "How many packets does the simulator move over a hop in a second, on one core?",
        note: "Dumbbell of three NewReno and three CUBIC transfers with all of TCP at both ends, scenario `speed`; a packet \
               over one link counts once. Processor time of the run, without building the network; median over runs.",
        parameters: &[("rate", "100 Mbit/s for 20 s; 1 Mbit/s for 60 minutes"), ("runs", "10; 3 with --quick")],
        published: &[],
        metrics: &[
            metric("sim_packets_per_second", "1/s", "at least 1,000,000"),
            metric("sim_hour_seconds", "s", "at most 5"),
        ],
        needs: &[],
        minutes: (0.1, 0.5),
        run: x1::run,
    },
    Experiment {
        id: "X2",
        title: "X2: whether a run can be repeated",
        asked: "Does a seed give the same bytes in another process, with another home, directory, start and address layout?",
        note: "Scenario `replay`: engines with QUIC, TLS and TCP beside traffic of every kind over a lossy bottleneck. Packets \
               (pcapng, CSV), QUIC connections (qlog) and samples are kept in files named trace*, and compared.",
        parameters: &[("seeds", "5; 1 with --quick")],
        published: &[],
        metrics: &[metric("identical_share", "1", "1")],
        needs: &[],
        minutes: (0.1, 0.5),
        run: x2::run,
    },
];
