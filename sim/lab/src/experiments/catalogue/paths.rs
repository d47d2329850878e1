//! Several paths: I1, I2, E1 to E6.

use super::{PUBLISHED_SCTP, metric};
use crate::experiments::{Experiment, Need, links, multipath, networks};

const PATHS: (&str, &str) = (
    "network",
    "two paths of 10 Mbit/s (assumed: the source has rates in a figure only) and 45 ms each way, in virtual time",
);

pub(super) const I1: Experiment = Experiment {
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
};

pub(super) const I1L: Experiment = Experiment {
    id: "I1L",
    title: "I1 with real packets",
    asked: "Is one download over two links slower than over the better one alone, by the command that users run?",
    note: "`neater get` of 20 MiB, in hosts of the lab: over both links, over each alone, and once more over each, which is the \
           control. `sctp`: over UDP, with Aggregate; `mptcp`: TCP with the kernel's MPTCP (CUBIC), its path manager told of the second \
           address; both ends start the race, and the process, within the time. `noq`: as many bytes by noq, a QUIC with several paths \
           (draft-ietf-quic-multipath; CUBIC, a window of 2 MiB), from its call to connect to the last byte. A row fails only where its \
           interval lies below 0.97 and that of the control does not. `bottleneck_share`: both links lead to one bottleneck, and another host \
           downloads over TCP by it; shares of the IP bytes from 10 to 60 s.",
    parameters: &[
        ("links", "the 16 pairs of I1, two of them with --quick"),
        ("queues", "1,000 packets"),
        ("bottleneck", "20 Mbit/s, 40 ms, a queue of two bandwidth-delay products"),
        ("runs", "5; 1 with --quick"),
    ],
    published: &[("as I1", "mqvpn, report of 2026-06-18, section 3.3")],
    metrics: &[
        metric("ratio_to_best", "1", "sctp: the upper end of the interval at least 0.97; mptcp and noq are shown"),
        metric(
            "bottleneck_share",
            "1",
            "sctp: the lower end of the interval at most 0.6; mptcp and one path of TCP are shown",
        ),
    ],
    needs: &[Need::Lab, Need::Neater, Need::RustPeers],
    minutes: (6.0, 110.0),
    run: links::i1_live,
};

pub(super) const I2: Experiment = Experiment {
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
    metrics: &[metric("resume_ms", "ms", "app-limited-p99 at most 250"), metric("within_bound", "1", "at least 0.99")],
    needs: &[],
    minutes: (0.5, 5.0),
    run: links::i2,
};

pub(super) const I2L: Experiment = Experiment {
    id: "I2L",
    title: "I2 with real packets",
    asked: "After which time does something arrive that had to be sent again, by neater's API, MPTCP and noq?",
    note: "Messages of 1,250 bytes from a server to a client, in hosts of the lab. From the death of the link that has carried more of late \
           (both directions swallow everything) to the end of the longest gap in what arrives in order, of those that begin within 75 ms: \
           by then all that was on the other link has come. Where nothing was sent, from the message to its arrival. The bound is I2's, \
           from the round trips that the sender knew when it handed over the last message that came before the death. \
           `sctp`: over UDP, with Aggregate; `mptcp`: the kernel's, as in I1L; `noq`: as in I1L, with a keep-alive of each \
           path every 0.5 s and an idle timeout of 1.5 s, without which a connection is lost with the path that carries it.",
    parameters: &[
        ("links", "two of 20 Mbit/s and 50 ms, queues of one bandwidth-delay product"),
        ("application", "10 Mbit/s; all that both links do; silence for 0.5 to 2.5 s and a message"),
        ("deaths", "50 of each; 2 with --quick"),
    ],
    published: &[],
    metrics: &[
        metric("resume_ms", "ms", "sctp-app-limited-p99 at most 250; mptcp and noq are shown"),
        metric("within_bound", "1", "sctp: at least 0.99; mptcp and noq are shown"),
    ],
    needs: &[Need::Lab, Need::Neater, Need::RustPeers],
    minutes: (2.5, 60.0),
    run: links::i2_live,
};

pub(super) const E1: Experiment = Experiment {
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
};

pub(super) const E2: Experiment = Experiment {
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
};

pub(super) const E3: Experiment = Experiment {
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
};

pub(super) const E4A: Experiment = Experiment {
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
    metrics: &[metric("goodput_ratio", "1", "CMT-PF over CMT at least 0.99 at each point, geometric mean at least 1")],
    needs: &[],
    minutes: (0.3, 6.0),
    run: multipath::e4a,
};

pub(super) const E4B: Experiment = Experiment {
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
    published: &[("CMT-PF on par or ahead, more so as loads differ", "S, figures 4.14 and 4.18, tables 4.1 and 4.2")],
    metrics: &[
        metric("goodput_ratio", "1", "CMT-PF over CMT at least 0.99 at each point, geometric mean at least 1"),
        metric("timeouts_in_a_row", "1", ""),
        metric("transmissions", "1", ""),
    ],
    needs: &[],
    minutes: (0.3, 20.0),
    run: multipath::e4b,
};

pub(super) const E5: Experiment = Experiment {
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
};

pub(super) const E6: Experiment = Experiment {
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
};
