//! What TCP does about marks, bursts, lost tails and false alarms, from one end of a path to the other: each mechanism
//! against the same path without it.

mod common;

use common::*;
use neater_base::Instant;
use neater_cc::{Config, PacingConfig};
use neater_link::{Codel, Discipline, DropReason, Jitter, LinkConfig, QueueLimit};
use neater_netsim::{EcnMode, PacketKind, TcpConfig, TcpProbe, TraceEvent, TraceVerdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// A transfer and what became of it.
struct Done {
    p: Pair,
    took: Duration,
    /// The sender's inside, shortly before its end.
    last: TcpProbe,
    /// Its window, every millisecond.
    windows: Vec<(Instant, u64)>,
    start: Instant,
}

/// Sends `len` bytes from `a` to `b`. `at` is told the time since the beginning once a millisecond, and may change the world.
fn transfer(p: Pair, tcp: [TcpConfig; 2], len: usize, mut at: impl FnMut(&Pair, Duration)) -> Done {
    p.world.set_tcp(p.a, tcp[0]);
    p.world.set_tcp(p.b, tcp[1]);
    let data = random_bytes(7, len);
    let mut receiver = Receiver::new(p.world.net(p.b), 65_536, Duration::ZERO, 1);
    let mut sender = Sender::new(p.world.net(p.a), addr("192.0.2.2:80"), data.clone(), 65_536, 2);
    let start = p.world.now();
    let (mut last, mut windows) = (None, Vec::new());
    for _ in 0..600_000 {
        at(&p, p.world.now() - start);
        let over = run(&p.world, &mut [&mut sender, &mut receiver], MS);
        if over {
            break;
        }
        let now = p.world.now();
        p.world.run_until(now.max(start + MS * (windows.len() as u32 + 1)));
        let probe = sender.net.tcp_probe(sender.sock).ok();
        windows.push((p.world.now(), probe.map_or(0, |p| p.window)));
        last = probe.or(last);
    }
    assert!(receiver.data == data, "exactly the bytes");
    let took = receiver.ended.expect("ended") - start;
    Done { p, took, last: last.expect("was established"), windows, start }
}

fn linux() -> TcpConfig {
    TcpConfig::linux()
}

#[test]
fn marks_take_the_place_of_losses_where_both_sides_agree() {
    let codel = Discipline::Codel(Codel { ecn: true, ..Codel::default() });
    let link = LinkConfig::rate(10_000_000, MS * 20).with_queue(QueueLimit::Packets(500)).with_discipline(codel);
    let ecn = |mode| TcpConfig { ecn: mode, ..linux() };
    let go = |modes: [EcnMode; 2]| {
        let d = transfer(pair_of(1, link.clone(), LinkConfig::delay(MS * 20)), modes.map(ecn), 6_000_000, |_, _| {});
        let c = d.p.world.link_counters(d.p.ab);
        (d.last, c.marked, c.managed + c.queue_full, d.took)
    };
    let (probe, marked, dropped, took) = go([EcnMode::Request, EcnMode::Accept]);
    assert!(marked > 0 && dropped == 0, "{marked} marked, {dropped} dropped");
    assert!(probe.marks > 0 && probe.marks <= marked, "reduced {} times for {marked} marks", probe.marks);
    assert_eq!(
        (probe.retransmits, probe.recoveries, probe.timeouts),
        (0, 0, 0),
        "nothing was lost, nothing sent again"
    );
    let rate = 6e6 * 8.0 / took.as_secs_f64();
    assert!(rate > 8.5e6, "{rate} bit/s");
    // A side that does not want it, or does not ask: the same queue drops, and the sender repairs.
    for modes in [[EcnMode::Request, EcnMode::Off], [EcnMode::Accept, EcnMode::Accept], [EcnMode::Off, EcnMode::Accept]]
    {
        let (probe, marked, dropped, _) = go(modes);
        assert_eq!(marked, 0, "{modes:?}");
        assert!(dropped > 0 && probe.retransmits >= dropped && probe.marks == 0, "{modes:?}: {dropped} dropped");
    }
}

#[test]
fn a_window_is_reduced_once_a_round_trip_however_many_marks_come() {
    // A queue that marks all it can: every packet that waited for over 1 ms, from the first interval on.
    let codel = Discipline::Codel(Codel { target: MS, interval: MS, ecn: true });
    let link = LinkConfig::rate(10_000_000, MS * 50).with_queue(QueueLimit::Packets(500)).with_discipline(codel);
    let ecn = TcpConfig { ecn: EcnMode::Request, ..linux() };
    let d = transfer(pair_of(1, link, LinkConfig::delay(MS * 50)), [ecn, ecn], 2_000_000, |_, _| {});
    let marked = d.p.world.link_counters(d.p.ab).marked;
    let trips = d.took.as_millis() as u64 / 100;
    assert!(d.last.marks >= 2 && d.last.marks <= trips, "{} reductions in {trips} round trips", d.last.marks);
    assert!(marked > d.last.marks * 2, "{marked} marks");
}

/// The most data packets that enter the link at one instant.
fn largest_burst(d: &Done) -> usize {
    let mut at: BTreeMap<Instant, usize> = BTreeMap::new();
    for e in d.p.world.take_trace() {
        let data = matches!(e.kind, PacketKind::Tcp { payload: 1.., .. }) && e.link == Some(d.p.ab);
        if let (true, TraceVerdict::Crossed { entered }) = (data, e.verdict) {
            *at.entry(entered).or_default() += 1;
        }
    }
    at.into_values().max().unwrap_or(0)
}

#[test]
fn a_paced_sender_spreads_its_window_and_needs_a_shorter_queue() {
    let paced = |burst_segments| {
        let pacing = Some(PacingConfig { burst_segments, ..PacingConfig::default() });
        TcpConfig { congestion: Config { pacing, ..linux().congestion }, ..linux() }
    };
    let link = || LinkConfig::rate(20_000_000, MS * 30).with_queue(QueueLimit::Packets(2000));
    let go = |tcp: TcpConfig| {
        let p = pair_of(1, link(), LinkConfig::delay(MS * 30));
        p.world.trace(true);
        // Up to half the bandwidth-delay product: the rate does not limit yet, only bursts wait.
        let d = transfer(p, [tcp, linux()], 120_000, |_, _| {});
        let queued = d.p.world.link_counters(d.p.ab).max_queued_bytes;
        (largest_burst(&d), queued, d.took)
    };
    let (burst, queued, took) = go(linux());
    assert!(burst >= 10, "an initial window at once: {burst}");
    let (paced_burst, paced_queued, paced_took) = go(paced(2));
    assert!(paced_burst <= 2, "{paced_burst}");
    assert!(paced_queued * 3 <= queued, "{paced_queued} against {queued} bytes waited");
    assert!(paced_took < took + MS * 60, "a round trip longer at most: {paced_took:?} against {took:?}");
    let (wide, ..) = go(paced(6));
    assert!((3..=6).contains(&wide), "{wide}");
}

#[test]
fn a_lost_tail_is_probed_for_and_not_waited_for() {
    // SYN, ACK, ten segments, and the last of them is lost; the end of the stream goes with it.
    let go = |tail_loss_probe| {
        let p = pair_of(1, LinkConfig::delay(MS * 20).without([11]), LinkConfig::delay(MS * 20));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        p.world.set_tcp(p.a, TcpConfig { tail_loss_probe, ..linux() });
        let (c, _, s) = established(&p, &mut client, &mut server);
        let data = random_bytes(1, 14_480);
        let start = p.world.now();
        write(&mut client, c, &data).unwrap();
        let mut got = Vec::new();
        assert!(step_until(&p.world, S * 10, || {
            got.extend(read(&mut server, s).unwrap_or_default());
            got.len() == data.len()
        }));
        assert!(got == data);
        let took = p.world.now() - start;
        wait(&p.world, S);
        (took, client.tcp_probe(c).unwrap(), p.world.link_counters(p.ab).lost)
    };
    let (took, probe, lost) = go(true);
    assert_eq!((lost, probe.probes, probe.timeouts), (1, 1, 0));
    // RFC 8985 section 7.2: two round trips after the last acknowledgment or transmission, and half a round trip there.
    assert!(took >= MS * 100 && took < MS * 150, "{took:?}");
    assert_eq!(probe.recoveries, 1, "the probe repaired a loss, and the window answers for it (section 7.4.2)");
    let (took, probe, _) = go(false);
    assert_eq!((probe.probes, probe.timeouts), (0, 1));
    assert!(took >= MS * 240, "{took:?}: after the timeout");
}

#[test]
fn a_probe_for_a_tail_that_was_only_late_costs_no_window() {
    // Nothing is lost; the way there takes 150 ms longer from the first data on.
    let p = pair(1, LinkConfig::delay(MS * 20));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    p.world.set_link(p.ab, LinkConfig::delay(MS * 170));
    write(&mut client, c, &random_bytes(1, 14_480)).unwrap();
    let window = client.tcp_probe(c).unwrap().window;
    wait(&p.world, MS * 600);
    let probe = client.tcp_probe(c).unwrap();
    assert_eq!(probe.probes, 1, "it asked");
    assert_eq!((probe.recoveries, probe.lost, probe.outstanding), (0, 0, 0));
    assert!(probe.window >= window, "{} after {window}", probe.window);
    assert_eq!(read(&mut server, s).unwrap().len(), 14_480);
}

/// A bulk transfer whose way there takes a second longer from 500 ms on, for a second: its timer runs out, and nothing was lost.
fn delayed(tcp: TcpConfig) -> Done {
    let link = || LinkConfig::rate(10_000_000, MS * 20).with_queue(QueueLimit::Packets(100));
    let mut stage = 0;
    transfer(pair_of(1, link(), LinkConfig::delay(MS * 20)), [tcp, linux()], 2_500_000, move |p, at| {
        if stage == 0 && at >= MS * 500 {
            p.world.set_link(p.ab, LinkConfig { delay: MS * 1020, ..link() });
            stage = 1;
        }
        if stage == 1 && at >= MS * 1500 {
            p.world.set_link(p.ab, link());
            stage = 2;
        }
    })
}

#[test]
fn a_timeout_without_a_loss_is_found_out_and_undone() {
    let plain = TcpConfig { timestamps: false, frto: false, undo: false, ..linux() };
    let without = delayed(plain);
    assert!(without.last.timeouts >= 1, "the alarm was there");
    // F-RTO alone (RFC 5682): by what new data bring back.
    let frto = delayed(TcpConfig { frto: true, undo: true, ..plain });
    assert!(frto.last.timeouts >= 1 && frto.last.undone >= 1, "{:?}", frto.last);
    assert!(
        frto.last.retransmits * 4 <= without.last.retransmits,
        "{} sent again, {} without",
        frto.last.retransmits,
        without.last.retransmits
    );
    // By timestamps (RFC 3522): an acknowledgment of the original.
    let eifel = delayed(TcpConfig { timestamps: true, undo: true, ..plain });
    assert!(eifel.last.undone >= 1 && eifel.last.retransmits * 4 <= without.last.retransmits, "{:?}", eifel.last);
    // The window is what it was before the alarm, and not that of a beginner.
    for (name, d) in [("F-RTO", &frto), ("Eifel", &eifel)] {
        let before = window_at(d, MS * 500);
        let after = window_at(d, MS * 1900);
        assert!(after * 10 >= before * 9, "{name}: {after} after {before}");
    }
    assert!(window_at(&without, MS * 1900) * 2 < window_at(&frto, MS * 1900));
    let lost = |d: &Done| d.p.world.link_counters(d.p.ab).lost;
    assert_eq!((lost(&without), lost(&frto)), (0, 0));
}

fn window_at(d: &Done, at: Duration) -> u64 {
    let found = d.windows.iter().find(|(t, _)| *t >= d.start + at);
    found.unwrap_or_else(|| panic!("it was over at {at:?}")).1
}

#[test]
fn a_reduction_for_a_packet_that_was_only_late_is_undone() {
    // One packet travels 60 ms longer than the others, which RACK takes for a loss.
    let late = |times: usize| {
        let mut values = vec![Duration::ZERO; 4000];
        (0..times).for_each(|i| values[300 + 400 * i] = MS * 60);
        LinkConfig {
            jitter: Jitter::Values(values.into()),
            reorder: true,
            ..LinkConfig::rate(10_000_000, MS * 20).with_queue(QueueLimit::Packets(60))
        }
    };
    let go =
        |tcp: TcpConfig| transfer(pair_of(1, late(1), LinkConfig::delay(MS * 20)), [tcp, tcp], 1_000_000, |_, _| {});
    let undone = go(linux());
    assert!(undone.last.undone >= 1 && undone.last.timeouts == 0, "{:?}", undone.last);
    let kept = go(TcpConfig { undo: false, ..linux() });
    assert_eq!(kept.last.undone, 0);
    assert!(kept.last.recoveries >= 1);
    let dropped = |d: &Done| {
        let c = d.p.world.link_counters(d.p.ab);
        c.queue_full + c.lost
    };
    assert_eq!((dropped(&undone), dropped(&kept)), (0, 0), "nothing was lost in either");
    assert!(undone.last.window > kept.last.window, "{} against {}", undone.last.window, kept.last.window);
    // By duplicates that the receiver reports (RFC 3708), where there are no timestamps.
    let dsack = go(TcpConfig { timestamps: false, ..linux() });
    assert!(dsack.last.undone >= 1, "{:?}", dsack.last);
}

#[test]
fn a_real_loss_is_not_undone() {
    let link = LinkConfig::rate(10_000_000, MS * 20).without([200]);
    let p = pair_of(1, link, LinkConfig::delay(MS * 20));
    p.world.trace(true);
    let d = transfer(p, [linux(), linux()], 1_000_000, |_, _| {});
    let lost = |e: &TraceEvent| e.verdict == TraceVerdict::Dropped(DropReason::Lost);
    assert_eq!(d.p.world.take_trace().iter().filter(|e| lost(e)).count(), 1);
    assert_eq!((d.last.undone, d.last.recoveries, d.last.retransmits, d.last.timeouts), (0, 1, 1, 0));
}
