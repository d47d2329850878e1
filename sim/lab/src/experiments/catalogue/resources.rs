//! What flows and messages cost a program: A1 to A10, and AR.

use super::{CURVES, LOOPBACK, TASKSET, TCP, TOOLS, metric};
use crate::experiments::{Experiment, Metric, Need, a1, a5, a8, a9, a10, cpu, memory, router, s2};

/// As [`TOOLS`]: what is counted there needs no other program in Rust beside ours in a quick look.
const COUNTED: &[Need] = &[
    Need::FlowPeers,
    Need::Tool("valgrind", "valgrind"),
    Need::Tool("strace", "strace"),
    Need::Tool("cc", "gcc"),
    TASKSET,
];

const STEADIED: &str = "30, up to 120 where the control is wider than 0.1; 8 with --quick";

const FLOWS: (&str, &str) = ("flows at once", "1 and 256");

pub(super) const A1: Experiment = Experiment {
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
};

pub(super) const A2: Experiment = Experiment {
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
};

pub(super) const A3: Experiment = Experiment {
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
};

pub(super) const A4: Experiment = Experiment {
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
};

pub(super) const A5: Experiment = Experiment {
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
};

pub(super) const A6: Experiment = Experiment {
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
};

pub(super) const A7: Experiment = Experiment {
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
};

pub(super) const A8: Experiment = Experiment {
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
};

pub(super) const A9: Experiment = Experiment {
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
};

pub(super) const A10: Experiment = Experiment {
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
};

pub(super) const AR: Experiment = Experiment {
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
};
