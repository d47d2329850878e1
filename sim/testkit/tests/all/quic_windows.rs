//! What peers of QUIC connections may send ahead of the program: enough for the path, and no more
//! than there is memory for. And how much of a fast path a connection uses that changes the order
//! of packets, or loses some.

use bytes::Bytes;
use neater_engine::{Limits, SendOptions, Stack, StreamDirection};
use neater_link::{Jitter, LinkConfig, QueueLimit};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// What a connection may have unread at first.
const FIRST: usize = 1_250_000;

fn ask() -> Ask {
    Ask::over(&[Stack::Quic])
}

fn counts() -> Manner {
    Manner { keeps: false, ..Manner::patient() }
}

fn idles() -> Manner {
    Manner { reads: false, ..counts() }
}

/// So many bytes wait to be sent.
fn floods(town: &mut Town, flow: FlowId, bytes: usize) {
    let piece = Bytes::from(vec![7; 64_000]);
    for _ in 0..bytes.div_ceil(piece.len()) {
        town.play.say(flow, piece.clone(), SendOptions::default());
    }
}

/// What was kept for these flows after so much time, all of which is read now and nothing else.
fn held(town: &mut Town, flows: &[FlowId], after: Duration) -> usize {
    town.play.run_for(after);
    let links = [town.v4.to, town.v4.from, town.v6.to, town.v6.from];
    let set = |town: &Town, config: LinkConfig| {
        links.iter().for_each(|l| town.play.world().set_link(*l, config.clone()));
    };
    set(town, LinkConfig::delay(10 * MS).with_loss(1.0));
    let count = |town: &Town| flows.iter().map(|f| town.play.flow(*f).count).sum::<usize>();
    let before = count(town);
    for f in flows {
        town.play.flow_mut(*f).manner.reads = true;
        town.play.read(*f);
    }
    town.play.run_for(S);
    set(town, LinkConfig::delay(10 * MS));
    count(town) - before
}

#[test]
fn one_stream_fills_a_long_fast_path() {
    for limits in [Limits::default(), Limits { engine_bytes: usize::MAX, ..Limits::default() }] {
        // 6.25 MB are under way when the path is full.
        let mut plan = Plan::new(1).delay(50 * MS).rate(500_000_000);
        (plan.client_limits, plan.server_limits) = (limits, limits);
        let mut town = plan.build();
        let (c, s) = town.pair(&ask(), Manner::patient(), counts());
        let began = town.play.now();
        floods(&mut town, c, 40_000_000);
        assert!(town.play.run_until(60 * S, |p| p.flow(s).count >= 40_000_000));
        let took = town.play.now() - began;
        // A window of 1.25 MB takes 3.2 s for the bytes alone.
        assert!(took < 2500 * MS, "{limits:?}: {took:?}");
        let granted = town.play.stats(s.node).receive_windows;
        assert!((2_000_000..=16 << 20).contains(&granted), "{granted} bytes");
        town.play.end();
    }
}

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other() {
    let mut town = Plan::new(2).delay(20 * MS).rate(200_000_000).build();
    let (stalled, from) = town.pair(&ask(), idles(), counts());
    let conn = town.play.engine(stalled.node).clone_connection(stalled.conn, StreamDirection::Both).unwrap();
    let other = town.play.adopt(stalled.node, conn, counts());
    let before = town.play.accepted(from.node).len();
    town.play.say(other, "!", SendOptions::default());
    assert!(town.play.run_until(5 * S, |p| p.accepted(from.node).len() > before));
    let to_other = town.play.accepted(from.node)[before];
    // The peer has far more for it than a stream may hold.
    floods(&mut town, from, 24_000_000);
    town.play.run_for(2 * S);
    for i in 1..=5 {
        floods(&mut town, to_other, 1_024_000);
        let all = town.play.run_until(5 * S, |p| p.flow(other).count >= i * 1_024_000);
        assert!(all, "{} bytes came, {i}", town.play.flow(other).count);
    }
    assert_eq!(town.play.flow(stalled).count, 0);
    // Nothing is lost of what waited, and what was lent for it comes back with it.
    town.play.flow_mut(stalled).manner.reads = true;
    town.play.read(stalled);
    assert!(town.play.run_until(60 * S, |p| p.flow(stalled).count == 24_000_000));
    town.play.end();
}

#[test]
fn a_program_that_reads_nothing_keeps_what_it_had() {
    let mut town = Plan::new(3).delay(20 * MS).rate(200_000_000).build();
    let (stalled, from) = town.pair(&ask(), idles(), counts());
    floods(&mut town, from, 24_000_000);
    town.play.run_for(5 * S);
    assert_eq!(town.play.stats(stalled.node).receive_windows, 0);
    let held = held(&mut town, &[stalled], Duration::ZERO);
    assert!(held > FIRST / 2 && held <= FIRST, "{held} bytes");
    town.play.end();
}

#[test]
fn peers_of_stalled_readers_fill_no_more_than_the_limit_says() {
    let limits = Limits { engine_bytes: 8 << 20, ..Limits::default() };
    let mut plan = Plan::new(4).delay(25 * MS).rate(1_000_000_000);
    plan.client_limits = limits;
    let mut town = plan.build();
    town.listen(&ask(), 443, counts());
    let (me, server) = (town.client, town.server);
    let flows: Vec<FlowId> = (0..40).map(|i| town.open(&ask(), if i < 3 { counts() } else { idles() })).collect();
    for (i, f) in flows.iter().enumerate() {
        town.play.say(*f, "!", SendOptions::default());
        assert!(town.play.run_until(10 * S, |p| p.accepted(server).len() == i + 1));
    }
    let peers = town.play.accepted(server).to_vec();
    // Three read as fast as the path allows, one after the other, so that what there is of memory is theirs.
    for (f, s) in flows.iter().zip(&peers).take(3) {
        floods(&mut town, *s, 40_000_000);
        assert!(town.play.run_until(20 * S, |p| p.flow(*f).count >= 40_000_000));
    }
    let granted = town.play.stats(me).receive_windows;
    assert!(granted > 4 << 20 && granted <= 8 << 20, "{granted} bytes");
    // Now nobody reads, and the peers send what they may.
    flows.iter().for_each(|f| town.play.flow_mut(*f).manner.reads = false);
    for s in peers {
        floods(&mut town, s, 16_000_000);
    }
    let held = held(&mut town, &flows, 3 * S);
    let bound = flows.len() * FIRST + limits.engine_bytes;
    assert!(held > bound / 2 && held <= bound, "{held} bytes kept, {bound} allowed");
    town.play.end();
}

/// How long 10 MB take over a round trip of 10 ms. Of the packets to the server each hundredth is
/// `late`, and each is lost with probability `lost`.
fn time_of_10_mb(seed: u64, rate: u64, late: Duration, lost: f64) -> Duration {
    let mut plan = Plan::new(seed).delay(5 * MS).rate(rate);
    let mut extra = vec![Duration::ZERO; 100];
    extra[50] = late;
    let up = plan.access.0.clone().with_queue(QueueLimit::Packets(2000)).with_loss(lost);
    plan.access.0 = LinkConfig { jitter: Jitter::Values(extra.into()), reorder: true, ..up };
    let mut town = plan.build();
    let (c, s) = town.pair(&ask(), Manner::patient(), counts());
    let began = town.play.now();
    floods(&mut town, c, 10_000_000);
    assert!(town.play.run_until(120 * S, |p| p.flow(s).count >= 10_000_000), "{} bytes", town.play.flow(s).count);
    let took = town.play.now() - began;
    town.play.end();
    took
}

#[test]
fn packets_that_are_late_are_not_taken_for_lost() {
    // At 1 Gbit/s 254 packets pass one that is 3 ms late, and quinn-proto's receiver takes what
    // comes 130 packets late for a copy of what it has: there packets are lost, until the sender is
    // slower.
    for (rate, most) in [(100_000_000, 1.5), (400_000_000, 1.5), (1_000_000_000, 3.0)] {
        let ordered = time_of_10_mb(5, rate, Duration::ZERO, 0.0);
        for late in [2 * MS, 3 * MS] {
            let took = time_of_10_mb(5, rate, late, 0.0);
            println!("{rate} bit/s: {ordered:?} in order, {took:?} with 1 % of packets {late:?} late");
            assert!(took <= ordered.mul_f64(most), "{rate} bit/s, {late:?} late: {took:?} instead of {ordered:?}");
        }
    }
}

#[test]
fn losses_cost_what_the_congestion_control_makes_of_them() {
    const SEEDS: u32 = 3;
    // Windows of 39, 12 and 6 packets on average, by RFC 9438 section 4.3, take 1.8, 5.7 and
    // 12.7 s; probe timeouts come on top.
    for (lost, most) in [(0.001, 3 * S), (0.01, 8 * S), (0.05, 22 * S)] {
        let all: Duration =
            (0..SEEDS).map(|n| time_of_10_mb(10 + u64::from(n), 1_000_000_000, Duration::ZERO, lost)).sum();
        let took = all / SEEDS;
        println!("{} % lost: {took:?}", 100.0 * lost);
        assert!(took <= most, "{} % lost: {took:?}", 100.0 * lost);
    }
}
