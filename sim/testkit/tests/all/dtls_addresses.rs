//! Whose an address is, for a DTLS listener: clients that come back to theirs, and strangers that pretend to be there.

use neater_base::Rng;
use neater_base::net::{Ecn, ErrorKind, Net, RecvBatch, Sock, SocketOptions, Token, Transmit};
use neater_dtls::{ClientConfig, Look, Session, Tuning, look};
use neater_engine::{ConnectionError, LocalEndpoint, SendOptions, Stack};
use neater_link::LinkConfig;
use neater_property::Role;
use neater_testkit::town::{CLIENT_V4, SERVER_V4, server_v4};
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, security};
use neater_tls::TlsVersion;
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// The client's port.
const PORT: u16 = 5000;
/// The versions, and the round trips that a handshake takes.
const VERSIONS: [(TlsVersion, u32); 2] = [(TlsVersion::Tls12, 3), (TlsVersion::Tls13, 2)];

fn dtls() -> Ask {
    Ask::over(&[Stack::Dtls])
}

/// What speaks only this version.
fn only(version: TlsVersion) -> Ask {
    let mut security = dtls().security(Role::Initiate);
    (security.min_version, security.max_version) = (version, version);
    Ask { security: Some(security), ..dtls() }
}

/// Opens a connection from the client's port.
fn open(town: &mut Town, ask: &Ask) -> FlowId {
    let request = town.request(ask);
    let local = LocalEndpoint::new().with_port(PORT);
    let made = town.play.initiate_with(town.client, &request, &[server_v4()], Some(&local), None, Manner::patient());
    made.unwrap_or_else(|e| panic!("{e}"))
}

fn echo(town: &mut Town, c: FlowId) {
    let before = town.play.flow(c).messages.len();
    town.play.say(c, "ping", SendOptions::default());
    let back = town.play.run_until(S, |p| p.flow(c).messages.len() > before);
    assert!(back, "{:?}", town.play.flow(c));
}

fn here() -> SocketAddr {
    SocketAddr::new(CLIENT_V4.parse().unwrap(), PORT)
}

fn there() -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), 443)
}

/// A client that a test drives itself, on this version.
fn by_hand(town: &Town, version: TlsVersion, seed: u64) -> Session {
    let security = only(version).security.unwrap();
    let crypto = security::crypto(seed, 9);
    crypto.clock.set(town.play.world().wall());
    let config = ClientConfig::new(&security, &crypto, Tuning::default()).unwrap();
    let name = neater_tls::ServerName::try_from("server.test").unwrap().to_owned();
    Session::client(&config, name, town.play.now(), &mut Rng::from_number(seed))
}

/// A hello that is nobody's: a real one with a random of its own.
fn forged(rng: &mut Rng, hello: &[u8]) -> Vec<u8> {
    let mut hello = hello.to_vec();
    rng.fill(&mut hello[27..59]);
    assert!(matches!(look(&hello), Look::Hello { whole: true, .. }));
    hello
}

#[test]
fn a_forged_hello_does_not_take_an_address() {
    for (version, trips) in VERSIONS {
        let mut town = Plan::new(1).build();
        town.listen(&dtls(), 443, Manner::echo());
        let hello = forged(&mut Rng::from_number(1), &by_hand(&town, version, 1).poll_transmit().unwrap());
        assert!(town.play.world().forge_datagram(here(), there(), &hello));
        town.play.run_for(50 * MS);
        let c = open(&mut town, &only(version));
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{version:?}: {:?}", town.play.flow(c));
        assert_eq!(town.play.flow(c).establishment(), Some(20 * MS * trips), "{version:?}: it is not even slower");
        echo(&mut town, c);
        town.play.end();
    }
}

#[test]
fn a_flood_of_forged_sources_takes_nobodys_room() {
    let mut plan = Plan::new(2);
    (plan.server_limits.unverified, plan.server_limits.handshakes) = (64, 4);
    let mut town = plan.build();
    town.listen(&dtls(), 443, Manner::echo());
    let mut rng = Rng::from_number(2);
    let hello = by_hand(&town, TlsVersion::Tls13, 2).poll_transmit().unwrap();
    let mut flood = |town: &mut Town, rounds: u32| {
        // Two a millisecond: the pool lasts for 32 ms, and a round trip takes 20.
        for _ in 0..2 * rounds {
            let source = [203, 0, 113, rng.below(250) as u8 + 1];
            let source = SocketAddr::new(source.into(), 1024 + rng.below(60_000) as u16);
            town.play.world().forge_datagram(source, there(), &forged(&mut rng, &hello));
            town.play.run_for(MS / 2);
        }
    };
    flood(&mut town, 100);
    assert!(town.play.stats(town.server).refused >= 100, "there is a bound");
    let c = open(&mut town, &dtls());
    flood(&mut town, 60);
    assert!(town.play.flow(c).is_ready(), "{:?}", town.play.flow(c));
    assert_eq!(town.play.flow(c).establishment(), Some(40 * MS));
    echo(&mut town, c);
    assert_eq!(town.play.accepted(town.server).len(), 1);
    town.play.end();
}

#[test]
fn whoever_died_without_a_word_comes_back_to_its_port() {
    for (version, trips) in VERSIONS {
        let mut town = Plan::new(3).build();
        town.listen(&dtls(), 443, Manner::echo());
        let first = open(&mut town, &only(version));
        assert!(town.play.run_until(S, |p| p.flow(first).is_ready()));
        echo(&mut town, first);
        let old = town.play.accepted(town.server)[0];
        // It dies: nothing of its farewell arrives.
        let (up, _) = town.client_links;
        let way = town.play.world().link_config(up);
        town.play.world().set_link(up, LinkConfig::default().with_loss(1.0));
        town.play.abort(first);
        town.play.run_for(S);
        town.play.world().set_link(up, way);
        assert!(!town.play.flow(old).is_over());
        let second = open(&mut town, &only(version));
        // The server has the last flight 10 ms before the client has the answer to it in 1.2, and 10 ms after the client is through in 1.3.
        town.play.run_for(20 * MS * trips - 15 * MS);
        assert!(!town.play.flow(old).is_over(), "{version:?}: the old one stays until the new one is finished");
        assert!(town.play.run_until(S, |p| p.flow(second).is_ready()), "{version:?}: {:?}", town.play.flow(second));
        assert_eq!(town.play.flow(second).establishment(), Some(20 * MS * trips), "{version:?}");
        echo(&mut town, second);
        match town.play.flow(old).end() {
            Some(Over::Failed(ConnectionError::Net(e))) => assert_eq!(e.kind, ErrorKind::ConnectionReset),
            other => panic!("{version:?}: {other:?}"),
        }
        assert_eq!(town.play.accepted(town.server).len(), 2);
        assert!(town.play.flow(second).over.is_none());
        town.play.end();
    }
}

#[test]
fn whoever_has_closed_comes_back_at_once_although_the_old_connection_is_kept() {
    for (version, trips) in VERSIONS {
        let mut town = Plan::new(4).build();
        // The server's programs stay on what they have.
        let stays = Manner { when_ended: Manner::patient().when_ended, ..Manner::echo() };
        town.listen(&dtls(), 443, stays);
        for round in 0..3 {
            let c = open(&mut town, &only(version));
            let ready = town.play.run_until(S, |p| p.flow(c).is_ready());
            assert!(ready, "{version:?} {round}: {:?}", town.play.flow(c));
            assert_eq!(town.play.flow(c).establishment(), Some(20 * MS * trips), "{version:?} {round}: no flight lost");
            echo(&mut town, c);
            town.play.close(c);
            assert!(town.play.run_until(S, |p| p.flow(c).is_over()));
        }
        town.play.run_for(S);
        let kept = town.play.accepted(town.server).to_vec();
        assert_eq!(kept.len(), 3);
        for s in kept {
            assert_eq!(town.play.flow(s).end(), Some(&Over::Closed), "{version:?}");
        }
        town.play.end();
    }
}

#[test]
fn the_end_of_a_peer_that_closes_in_order_is_an_end_and_no_error() {
    for stack in [Stack::Dtls, Stack::QuicDatagram] {
        let mut town = Plan::new(5).build();
        let ask = Ask::over(&[stack]);
        town.listen(&ask, 443, Manner::patient());
        let c = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{stack}");
        town.play.say(c, "last", SendOptions::default());
        town.play.run_for(100 * MS);
        town.play.close(c);
        let s = town.play.accepted(town.server)[0];
        assert!(town.play.run_until(5 * S, |p| p.flow(s).is_over()), "{stack}");
        town.play.read(s);
        let flow = town.play.flow(s);
        assert_eq!(flow.end(), Some(&Over::Closed), "{stack}");
        assert_eq!(flow.messages, ["last"], "{stack}");
        assert!(flow.ended_at.is_some() && flow.receive_error.is_none(), "{stack}: {flow:?}");
        town.play.end();
    }
}

#[test]
fn hellos_forged_from_a_connections_address_cost_it_nothing() {
    for (version, _) in VERSIONS {
        let mut plan = Plan::new(6);
        plan.server_limits.unverified = 8;
        let mut town = plan.build();
        town.listen(&dtls(), 443, Manner::echo());
        let c = open(&mut town, &only(version));
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()));
        let mut rng = Rng::from_number(6);
        let hello = by_hand(&town, version, 6).poll_transmit().unwrap();
        let mut later = forged(&mut rng, &hello);
        // A later fragment, and records in the clear.
        later[21] = 1;
        let alert = [21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, 2, 2, 40];
        let change = [20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, 1, 1];
        for n in 0..40u8 {
            for contents in [&forged(&mut rng, &hello)[..], &later, &alert, &change] {
                town.play.world().forge_datagram(here(), there(), contents);
            }
            town.play.say(c, vec![n; 100], SendOptions::default());
            town.play.run_for(2 * MS);
        }
        town.play.run_for(S);
        let flow = town.play.flow(c);
        assert_eq!(flow.messages.len(), 40, "{version:?}: nothing is lost");
        assert!(flow.over.is_none() && !town.play.flow(town.play.accepted(town.server)[0]).is_over());
        assert_eq!(town.play.accepted(town.server).len(), 1);
        town.play.end();
    }
}

/// A socket of the client's, and clients on it whose turn it is when the test says so.
struct Shared {
    sock: Sock,
    clients: [Session; 2],
}

impl Shared {
    /// One client sends what it has, and gets what comes for it.
    fn turn(&mut self, town: &mut Town, which: usize) {
        let now = town.play.now();
        let client = &mut self.clients[which];
        let net = town.play.engine(town.client).net_mut();
        while let Some(contents) = client.poll_transmit() {
            let contents = &contents[..];
            let t = Transmit {
                destination: there(),
                source: None,
                interface: None,
                ecn: Ecn::NotEct,
                segment_size: None,
                contents,
            };
            net.send(self.sock, &t).unwrap();
        }
        town.play.run_for(25 * MS);
        let net = town.play.engine(town.client).net_mut();
        let mut batch = RecvBatch::default();
        while net.recv(self.sock, &mut batch).is_ok() {
            for (_, data) in batch.filled() {
                client.handle_datagram(now + 25 * MS, data);
            }
        }
    }
}

#[test]
fn of_two_that_alternate_at_one_address_the_later_one_has_it() {
    for (version, trips) in VERSIONS {
        let mut town = Plan::new(7).build();
        town.listen(&dtls(), 443, Manner::echo());
        let options = SocketOptions { local: Some(here()), ..SocketOptions::default() };
        let net = town.play.engine(town.client).net_mut();
        let sock = net.udp(Token(u64::MAX), there(), &options).unwrap();
        let mut shared = Shared { sock, clients: [1, 2].map(|seed| by_hand(&town, version, seed)) };
        for round in 0..=trips {
            // Flights in the clear that follow a ServerHello do not show whose they are: in 1.2 the first client is gone by
            // then. In 1.3 there are none.
            if version == TlsVersion::Tls13 || round < 2 {
                shared.turn(&mut town, 0);
            }
            shared.turn(&mut town, 1);
        }
        let said: Vec<_> = core::iter::from_fn(|| shared.clients[1].poll_event()).collect();
        assert!(shared.clients[1].is_connected(), "{version:?}: {said:?} {:?}", shared.clients);
        let delivered = town.play.accepted(town.server).len();
        assert!((1..=2).contains(&delivered), "{version:?}: {delivered}");
        let now = town.play.now();
        shared.clients[1].send(now, b"ping").unwrap();
        shared.turn(&mut town, 1);
        assert_eq!(shared.clients[1].recv().as_deref(), Some(&b"ping"[..]), "{version:?}");
        town.play.engine(town.client).net_mut().close(sock);
        town.play.end();
    }
}
