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
    // A queue that marks a packet every 10 ms and more often, while packets wait for over 5 ms.
    let codel = Discipline::Codel(Codel { target: MS * 5, interval: MS * 10, ecn: true });
    let link = LinkConfig::rate(10_000_000, MS * 50).with_queue(QueueLimit::Packets(500)).with_discipline(codel);
    let ecn = TcpConfig { ecn: EcnMode::Request, ..linux() };
    let d = transfer(pair_of(1, link, LinkConfig::delay(MS * 50)), [ecn, ecn], 8_000_000, |_, _| {});
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
    // What may leave at once, and the one that is due.
    assert!(paced_burst <= 3, "{paced_burst}");
    assert!(paced_queued * 3 <= queued, "{paced_queued} against {queued} bytes waited");
    assert!(paced_took < took + MS * 60, "a round trip longer at most: {paced_took:?} against {took:?}");
    let (wide, ..) = go(paced(6));
    assert!((4..=7).contains(&wide), "{wide}");
}

#[test]
fn a_lost_tail_is_probed_for_and_not_waited_for() {
    // SYN, ACK, ten segments, and the last ones of them are lost.
    let go = |tail_loss_probe, lost: &[u64]| {
        let p = pair_of(1, LinkConfig::delay(MS * 20).without(lost.iter().copied()), LinkConfig::delay(MS * 20));
        p.world.set_tcp(p.a, TcpConfig { tail_loss_probe, ..linux() });
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
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
        assert_eq!(p.world.link_counters(p.ab).lost, lost.len() as u64);
        (took, client.tcp_probe(c).unwrap())
    };
    // The first eight are acknowledged after 40 ms; two round trips later the last one is sent again (RFC 8985 section 7.2),
    // its report tells of the other one, which arrives a round trip after that.
    let (took, probe) = go(true, &[10, 11]);
    assert_eq!((probe.probes, probe.timeouts, probe.recoveries), (1, 0, 1), "{probe:?}");
    assert!(took >= MS * 160 && took <= MS * 200, "{took:?}");
    let (took, probe) = go(false, &[10, 11]);
    assert_eq!((probe.probes, probe.timeouts), (0, 1));
    assert!(took >= MS * 280, "{took:?}: after the timeout");
}

#[test]
fn a_loss_that_a_probe_repaired_costs_the_window_its_share() {
    // The last of ten segments is lost. A single segment might have its acknowledgment delayed: 200 ms more patience.
    let p = pair_of(1, LinkConfig::delay(MS * 20).without([11]), LinkConfig::delay(MS * 20));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    let start = p.world.now();
    write(&mut client, c, &random_bytes(1, 14_480)).unwrap();
    let mut got = 0;
    assert!(step_until(&p.world, S * 10, || {
        got += read(&mut server, s).map_or(0, |b| b.len());
        got == 14_480
    }));
    let took = p.world.now() - start;
    assert!(took >= MS * 280 && took <= MS * 340, "{took:?}");
    wait(&p.world, MS * 100);
    let before = client.tcp_probe(c).unwrap();
    assert_eq!((before.probes, before.timeouts, before.recoveries, before.threshold), (1, 0, 0, None), "{before:?}");
    // Without a word of duplicates until more is acknowledged, the probe has repaired a loss (RFC 8985 section 7.4.2).
    write(&mut client, c, &random_bytes(2, 4000)).unwrap();
    wait(&p.world, S);
    let after = client.tcp_probe(c).unwrap();
    assert!(after.threshold.is_some_and(|t| t < before.window) && after.window < before.window, "{after:?}");
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
    // Without RACK and its probe: as Linux has them, they take what follows the one segment sent again for lost.
    let plain =
        TcpConfig { timestamps: false, frto: false, undo: false, rack: false, tail_loss_probe: false, ..linux() };
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
    for (name, d) in [("without", &without), ("F-RTO", &frto)] {
        println!("{name} {:?}", d.last);
    }
    // By timestamps (RFC 3522): an acknowledgment of the original.
    let eifel = delayed(TcpConfig { timestamps: true, undo: true, ..plain });
    assert!(eifel.last.undone >= 1 && eifel.last.retransmits * 4 <= without.last.retransmits, "{:?}", eifel.last);
    // The window is what it was before the alarm, and not that of a beginner.
    for (name, d) in [("F-RTO", &frto), ("Eifel", &eifel)] {
        let before = window_at(d, MS * 500);
        let after = window_at(d, MS * 1900);
        assert!(after * 10 >= before * 9, "{name}: {after} after {before}");
    }
    assert!(window_at(&without, MS * 1900) < window_at(&frto, MS * 1900));
    assert!(delayed(linux()).last.undone >= 1, "with everything on");
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
            ..LinkConfig::rate(10_000_000, MS * 20).with_queue(QueueLimit::Packets(1000))
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
