//! A server that begins anew at the same address: what the clients of its former life learn of it, and when.

use neater_engine::{ConnectionError, Engine, EngineConfig, SendOptions, Stack};
use neater_testkit::town::SERVER_PORT;
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, security};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

/// A new life of the server: its engine is gone without a word, and another one is there.
fn live(town: &mut Town, life: u8, reset_secret: Option<[u8; 32]>) {
    let (server, world) = (town.server, town.play.world().clone());
    let config = EngineConfig { reset_secret, ..EngineConfig::new([life; 32], security::crypto(u64::from(life), 2)) };
    // The sockets of a host are closed with the last that holds them: before there are others.
    let nowhere = world.add_host("nowhere");
    *town.play.engine(server) = Engine::new(world.net(nowhere), config.clone());
    let host = town.play.host(server);
    *town.play.engine(server) = Engine::new(world.net(host), config);
    town.play.engine(server).settle();
    town.listen(&Ask::over(&[Stack::Quic]), SERVER_PORT, Manner::echo());
}

/// A client of a server whose first and second life have these secrets; and how long it took to learn, from something that it
/// said, that its connection is over, if it did in ten seconds.
fn outlived(seed: u64, secrets: [Option<[u8; 32]>; 2]) -> (Town, FlowId, Option<Duration>) {
    let mut town = Plan::new(seed).delay(Duration::from_millis(20)).build();
    live(&mut town, 1, secrets[0]);
    let c = town.open(&Ask::over(&[Stack::Quic]), Manner::patient());
    town.play.say(c, "hello", SendOptions::default());
    assert!(town.play.run_until(5 * S, |p| p.flow(c).count == 5), "{:?}", town.play.flow(c).end());
    live(&mut town, 2, secrets[1]);
    let began = town.play.now();
    town.play.say(c, "are you there?", SendOptions::default());
    let learnt = town.play.run_until(10 * S, |p| p.flow(c).is_over());
    let took = town.play.now() - began;
    (town, c, learnt.then_some(took))
}

#[test]
fn clients_of_a_server_that_kept_its_secret_learn_at_once_that_it_began_anew() {
    for seed in 0..20 {
        let (mut town, c, took) = outlived(seed, [Some([7; 32]), Some([7; 32])]);
        // One round trip.
        assert!(took.is_some_and(|t| t <= Duration::from_millis(100)), "{took:?}");
        let end = town.play.flow(c).end().cloned();
        assert!(matches!(end, Some(Over::Failed(ConnectionError::Quic(_)))), "{end:?}");
        // And it serves.
        let again = town.open(&Ask::over(&[Stack::Quic]), Manner::patient());
        town.play.say(again, "hello", SendOptions::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(again).count == 5));
    }
}

#[test]
fn a_server_with_another_secret_or_none_ends_nobodys_connections() {
    for secrets in [[Some([7; 32]), Some([8; 32])], [Some([7; 32]), None], [None, Some([7; 32])], [None, None]] {
        let (_, _, took) = outlived(3, secrets);
        assert_eq!(took, None, "{secrets:?}");
    }
}
