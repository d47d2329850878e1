//! Connections over TCP whose local address goes away.

use core::time::Duration;
use neater_base::net::InterfaceAddr;
use neater_engine::{SendOptions, Stack};
use neater_testkit::town::CLIENT_V4;
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn connected(stack: Stack) -> (Town, FlowId) {
    let mut town = Plan::new(1).delay(20 * MS).build();
    town.listen(&Ask::over(&[stack]), 443, Manner::echo());
    let flow = town.open(&Ask::over(&[stack]), Manner::default());
    town.play.say(flow, "first ", SendOptions::default());
    assert!(town.play.run_until(S, |p| p.flow(flow).received.len() == 6), "{stack}");
    (town, flow)
}

fn lose_the_address(town: &Town) {
    town.play.world().remove_address(town.client_iface, CLIENT_V4.parse().unwrap());
}

/// Nothing is sent by either side: TCP alone would never notice, and a program that waits for data would wait for ever.
#[test]
fn a_connection_from_an_address_that_is_gone_ends_within_seconds() {
    for stack in [Stack::Tcp, Stack::Tls] {
        for sends in [false, true] {
            let (mut town, flow) = connected(stack);
            lose_the_address(&town);
            if sends {
                town.play.say(flow, "lost", SendOptions::default());
            }
            assert!(town.play.run_until(8 * S, |p| p.flow(flow).is_over()), "{stack}, sends: {sends}");
            assert!(matches!(town.play.flow(flow).end(), Some(Over::Failed(_))), "{stack}");
        }
    }
}

/// A lease that is renewed, or a cable that was pulled for a moment, costs nothing; and the patience is the usual one again.
#[test]
fn an_address_that_comes_back_soon_costs_nothing() {
    for stack in [Stack::Tcp, Stack::Tls] {
        let (mut town, flow) = connected(stack);
        lose_the_address(&town);
        town.play.say(flow, "second ", SendOptions::default());
        town.play.run_for(3 * S);
        let addr = CLIENT_V4.parse().unwrap();
        let back = InterfaceAddr { addr, prefix: 24, temporary: false, deprecated: false };
        town.play.world().add_address(town.client_iface, back);
        assert!(town.play.run_until(20 * S, |p| p.flow(flow).received.len() == 13), "{stack}");
        // A silence that would be too long for a connection whose address is gone.
        town.play.world().set_interface_up(town.client_iface, true);
        let (up, down) = town.client_links;
        let links = [up, down].map(|link| (link, town.play.world().link_config(link)));
        for (link, config) in &links {
            let rule = neater_link::Filter::drop(neater_link::Match::Any);
            town.play.world().set_link(*link, config.clone().with_filter(rule));
        }
        town.play.say(flow, "third ", SendOptions::default());
        town.play.run_for(10 * S);
        for (link, config) in links {
            town.play.world().set_link(link, config);
        }
        town.play.say(flow, "last", SendOptions { is_final: true, ..SendOptions::default() });
        assert!(town.play.run_until(60 * S, |p| p.flow(flow).is_over()), "{stack}");
        assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{stack}");
        assert_eq!(town.play.flow(flow).received, b"first second third last", "{stack}");
    }
}
