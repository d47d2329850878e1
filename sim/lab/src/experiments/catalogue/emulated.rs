//! Emulated networks: B0 to B4.

use super::{CURVES, TCP, metric};
use crate::experiments::{Experiment, Metric, Need, b0, emulated};

const LAB: &[Need] = &[Need::Lab, Need::Neater, Need::Tool("curl", "curl"), Need::Tool("nginx", "nginx-light")];

const DUMBBELL: (&str, &str) =
    ("network", "dumbbell, only the middle link is shaped, the same both ways; MTU 1,500; IPv4");

const QUEUE: (&str, &str) = ("queue", "drop-tail, one bandwidth-delay product in packets of 1,500 bytes, at least 10");

pub(super) const B0: Experiment = Experiment {
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
    published: &[("delay, jitter, loss, queue, and fairness of TCP as in figures 4.3.1 to 4.3.10", "U, section 4.3")],
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
};

pub(super) const B1: Experiment = Experiment {
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
};

pub(super) const B2: Experiment = Experiment {
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
    published: &[("QUIC ahead of sequential HTTPS; 0.5 ms of jitter cut it from 7 to 2 Mbit/s", "U, section 5.3.1")],
    metrics: &[
        Metric { name: "goodput_mbit", unit: "Mbit/s", bound: "", drawn: CURVES },
        metric("goodput_ratio", "1", "QUIC over one TCP connection with TLS at least 1"),
        metric("goodput_over_best_n", "1", "QUIC over the best of 1, 2, 5 and 10 connections at least 1"),
        metric("jitter_goodput_ratio", "1", "at least 0.9 of the goodput without jitter, if the order is kept"),
    ],
    needs: LAB,
    minutes: (1.3, 40.0),
    run: emulated::b2,
};

pub(super) const B3: Experiment = Experiment {
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
};

pub(super) const B4: Experiment = Experiment {
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
};
