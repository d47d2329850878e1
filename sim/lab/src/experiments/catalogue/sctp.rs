//! SCTP by itself: S1 to S3, D1 and D2.

use super::{LOOPBACK, PUBLISHED_SCTP, TASKSET, metric};
use crate::experiments::{Experiment, Need, nr_sack, s1, s2, s3};

pub(super) const S1: Experiment = Experiment {
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
};

pub(super) const S2: Experiment = Experiment {
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
};

pub(super) const S3: Experiment = Experiment {
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
};

pub(super) const D1: Experiment = Experiment {
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
};

pub(super) const D2: Experiment = Experiment {
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
};
