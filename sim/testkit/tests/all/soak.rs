//! Everything an operating system does rarely, done often: short reads and writes, storms of `WouldBlock`, events that
//! come late or for nothing. The bytes must not notice.

use neater_base::Rng;
use neater_engine::{SendOptions, Stack};
use neater_net::{FaultCounts, FaultNet, FaultRates};
use neater_netsim::SimNet;
use neater_testkit::{Ask, Manner, Over, Plan, SEED, Town, for_each_seed, with_seeds};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

/// A datagram that the system drops is lost like any other, so too many of them are a bad path and not a bad system.
fn nasty() -> FaultRates {
    FaultRates { no_buffers: 0.03, ..FaultRates::nasty() }
}

type Bad = Town<FaultNet<SimNet>>;

fn bad(plan: Plan, rates: FaultRates) -> Bad {
    plan.build_over(|net, rng| FaultNet::new(net, rng, rates))
}

fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    rng.fill(&mut out);
    out
}

/// One run over one stack: bytes both ways in pieces of random size.
fn stream_run(seed: u64, ask: &Ask, rates: FaultRates, faults: &mut Vec<FaultCounts>) -> u64 {
    let mut rng = Rng::from_number(seed);
    let loss = if rng.chance(0.5) { 0.01 } else { 0.0 };
    let delay = Duration::from_millis(1 + rng.below(40));
    let mut town = bad(Plan::new(seed).delay(delay).rate(20_000_000).loss(loss), rates);
    let (c, s) = town.pair(ask, Manner::patient(), Manner::patient());
    let (len_up, len_down) = (1 + rng.below(150_000) as usize, 1 + rng.below(150_000) as usize);
    let (up, down) = (random(&mut rng, len_up), random(&mut rng, len_down));
    town.play.say_bytes(c, &up, 1 + rng.below(40_000) as usize, true);
    town.play.say_bytes(s, &down, 1 + rng.below(40_000) as usize, true);
    let both = town.play.run_until(300 * S, |p| p.flow(c).ended_at.is_some() && p.flow(s).ended_at.is_some());
    let (at_c, at_s) = (town.play.flow(c), town.play.flow(s));
    assert!(both, "{:?}: {} of {} up, {} of {} down", ask.stacks, at_s.count, up.len(), at_c.count, down.len());
    assert!(at_s.received == up && at_c.received == down, "{:?}: bytes differ", ask.stacks);
    town.play.close(c);
    town.play.close(s);
    assert!(town.play.run_until(60 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{:?}", ask.stacks);
    for flow in [c, s] {
        assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{:?}", ask.stacks);
        faults.push(town.play.engine(flow.node).net().counts());
    }
    let world = town.play.world().clone();
    town.play.end();
    world.digest()
}

fn stacks() -> [Ask; 4] {
    [Ask::over(&[Stack::Tcp]), Ask::over(&[Stack::Tls]), Ask::over(&[Stack::Tls]).tls12(), Ask::over(&[Stack::Quic])]
}

#[test]
fn bytes_are_equal_whatever_the_system_does() {
    let mut faults = Vec::new();
    for_each_seed("soak", "bytes_are_equal_whatever_the_system_does", 50, |seed| {
        for ask in &stacks() {
            stream_run(seed, ask, nasty(), &mut faults);
        }
    });
    let happened: [fn(&FaultCounts) -> u64; 6] = [
        |f| f.short_read,
        |f| f.short_write,
        |f| f.would_block,
        |f| f.no_buffers,
        |f| f.late_event,
        |f| f.spurious_event,
    ];
    // One seed alone need not meet them all.
    for (i, count) in happened.iter().enumerate().filter(|_| std::env::var_os(SEED).is_none()) {
        assert!(faults.iter().map(count).sum::<u64>() > 10, "fault number {i} never happened");
    }
}

#[test]
fn a_run_with_faults_is_a_function_of_its_seed() {
    with_seeds("soak", "a_run_with_faults_is_a_function_of_its_seed", 3, |seed| {
        for ask in &stacks() {
            let run = || stream_run(seed, ask, nasty(), &mut Vec::new());
            assert_eq!(run(), run(), "{:?}", ask.stacks);
        }
    });
}

#[test]
fn messages_are_equal_whatever_the_system_does() {
    for_each_seed("soak", "messages_are_equal_whatever_the_system_does", 50, |seed| {
        let mut rng = Rng::from_number(seed);
        for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
            let ask = Ask::over(&[stack]).framed();
            let mut town = bad(Plan::new(seed), nasty());
            let (c, _) = town.pair(&ask, Manner::patient(), Manner::echo());
            let messages: Vec<_> = (0..20)
                .map(|_| {
                    let len = rng.below(5000) as usize;
                    random(&mut rng, len)
                })
                .collect();
            for m in &messages {
                town.play.say(c, m.clone(), SendOptions::default());
            }
            let all = town.play.run_until(120 * S, |p| p.flow(c).messages.len() == messages.len());
            assert!(all, "{stack}: {} of {}", town.play.flow(c).messages.len(), messages.len());
            assert!(town.play.flow(c).messages == messages, "{stack}: messages differ");
            town.play.end();
        }
    });
}

#[test]
fn connections_by_name_come_to_be_whatever_the_system_does() {
    for_each_seed("soak", "connections_by_name_come_to_be_whatever_the_system_does", 50, |seed| {
        let mut town = bad(Plan::new(seed), nasty());
        let ask = Ask::over(&[]).framed();
        town.listen(&ask, 443, Manner::echo());
        for _ in 0..3 {
            let c = town.open_by_name(&ask, Manner::default());
            town.play.say(c, "ping", SendOptions { is_final: true, ..SendOptions::default() });
            assert!(town.play.run_until(60 * S, |p| p.flow(c).is_over()), "{:?}", town.play.flow(c));
            assert_eq!(town.play.flow(c).messages, ["ping"], "{:?}", town.play.flow(c).end());
        }
        town.play.end();
    });
}

#[test]
fn resets_and_missing_descriptors_end_in_errors_and_leave_nothing() {
    let (mut resets, mut missing, mut failed) = (0, 0, 0);
    for_each_seed("soak", "resets_and_missing_descriptors_end_in_errors_and_leave_nothing", 50, |seed| {
        let rates = FaultRates { reset: 0.02, too_many_files: 0.1, ..nasty() };
        for stacks in [&[][..], &[Stack::Tcp], &[Stack::Tls], &[Stack::Quic]] {
            let mut town = bad(Plan::new(seed), nasty());
            let ask = Ask::over(stacks);
            town.listen(&ask, 443, Manner::echo());
            for node in [town.client, town.server] {
                town.play.engine(node).net_mut().set_rates(rates);
            }
            let flows: Vec<_> =
                (0..4).map(|_| town.open_by_name(&ask.clone().within(20 * S), Manner::default())).collect();
            let mut rng = Rng::from_number(seed);
            let data = random(&mut rng, 50_000);
            for c in &flows {
                town.play.say_bytes(*c, &data, 10_000, true);
            }
            let over = town.play.run_until(120 * S, |p| {
                flows.iter().all(|c| p.flow(*c).is_over() || p.flow(*c).receive_error.is_some())
            });
            assert!(over, "{stacks:?}: {:?}", flows.iter().map(|c| town.play.flow(*c).end()).collect::<Vec<_>>());
            for c in &flows {
                let flow = town.play.flow(*c);
                failed += u32::from(flow.end() != Some(&Over::Closed));
                assert!(data.starts_with(&flow.received), "{stacks:?}: bytes that were never sent");
                if flow.end() == Some(&Over::Closed) && flow.ended_at.is_some() && flow.unsent.is_empty() {
                    assert!(flow.received == data, "{stacks:?}: an orderly end after {} bytes", flow.count);
                }
            }
            for node in [town.client, town.server] {
                let faults = town.play.engine(node).net().counts();
                resets += faults.reset;
                missing += faults.too_many_files;
            }
            town.play.end();
        }
    });
    let enough = (resets > 0 && missing > 0 && failed > 0) || std::env::var_os(SEED).is_some();
    assert!(enough, "nothing happened: {resets} {missing} {failed}");
    println!("{resets} resets, {missing} missing descriptors, {failed} connections failed");
}
