//! Decisions, and what a seed gives: F1, F3, X1 and X2.

use super::metric;
use crate::experiments::{Experiment, Need, f1, f3, x1, x2};

pub(super) const F1: Experiment = Experiment {
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
};

pub(super) const F3: Experiment = Experiment {
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
};

pub(super) const X1: Experiment = Experiment {
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
};

pub(super) const X2: Experiment = Experiment {
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
};
