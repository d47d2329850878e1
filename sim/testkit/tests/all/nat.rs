//! Engines through a NAT box: every stack works, and a rebinding is survived by who can.

use core::time::Duration;
use neater_engine::{SendOptions, Stack};
use neater_link::{LinkConfig, NatConfig};
use neater_netsim::NatId;
use neater_testkit::{Ask, Manner, Over, Plan, Town};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A town whose client is behind a box.
fn town(seed: u64, config: fn(std::net::IpAddr) -> NatConfig) -> (Town, NatId) {
    let town = Plan::new(seed).build();
    let world = town.play.world();
    let config = config("203.0.113.200".parse().unwrap()).with_external("2001:db8::200".parse().unwrap());
    let nat = world.add_nat(config, LinkConfig::delay(MS), LinkConfig::delay(MS));
    world.attach_behind(town.client_iface, nat, LinkConfig::delay(MS), LinkConfig::delay(MS));
    (town, nat)
}

fn last() -> SendOptions {
    SendOptions { is_final: true, ..SendOptions::default() }
}

#[test]
fn every_stack_works_through_every_kind_of_box() {
    let kinds =
        [NatConfig::full_cone, NatConfig::restricted_cone, NatConfig::port_restricted_cone, NatConfig::symmetric];
    for (seed, kind) in kinds.into_iter().enumerate() {
        for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
            let (mut town, nat) = town(seed as u64, kind);
            let (client, _) = town.pair(&Ask::over(&[stack]), Manner::default(), Manner::echo());
            town.play.say(client, "through the box", last());
            assert!(town.play.run_until(10 * S, |p| p.flow(client).is_over()), "{stack}");
            assert_eq!(town.play.flow(client).end(), Some(&Over::Closed), "{stack}");
            assert_eq!(town.play.flow(client).received, b"through the box", "{stack}");
            assert!(town.play.world().with_nat(nat, |nat, _| nat.counters().mapped) > 0);
            town.play.end();
        }
    }
}

#[test]
fn quic_survives_a_rebinding_and_tcp_does_not() {
    for (stack, survives) in [(Stack::Quic, true), (Stack::Tcp, false)] {
        let (mut town, nat) = town(1, NatConfig::port_restricted_cone);
        let (client, _) = town.pair(&Ask::over(&[stack]), Manner::default(), Manner::echo());
        town.play.say(client, "before ", SendOptions::default());
        town.play.run_for(S);
        town.play.world().with_nat(nat, |nat, now| nat.rebind(now));
        town.play.say(client, "after", last());
        assert!(town.play.run_until(100 * S, |p| p.flow(client).is_over()), "{stack}");
        let flow = town.play.flow(client);
        assert_eq!(flow.received == b"before after", survives, "{stack}: {:?}", flow.end());
        town.play.end();
    }
}
