//! DTLS over UDP in the engine: establishment, races, trust, strangers, and the ends of sessions.

use neater_base::net::{Ecn, Net, SocketOptions, Token, Transmit};
use neater_engine::{ConnectionState, SendOptions, Stack};
use neater_property::Role;
use neater_testkit::town::{SERVER_V4, server_v4};
use neater_testkit::{Ask, Fault, FlowId, Manner, Over, Plan, Town, security};
use neater_tls::{ClientAuthentication, Identity, Pin, SecurityParameters, TlsVersion, Trust};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn dtls() -> Ask {
    Ask::over(&[Stack::Dtls])
}

fn message() -> SendOptions {
    SendOptions::default()
}

fn secured(ask: &Ask, security: SecurityParameters) -> Ask {
    Ask { security: Some(security), ..ask.clone() }
}

fn versions(role: Role, min: TlsVersion, max: TlsVersion) -> Ask {
    let mut security = dtls().security(role);
    (security.min_version, security.max_version) = (min, max);
    secured(&dtls(), security)
}

fn echo(town: &mut Town, c: FlowId) {
    let before = town.play.flow(c).messages.len();
    town.play.say(c, "ping", message());
    let back = town.play.run_until(5 * S, |p| p.flow(c).messages.len() > before);
    assert!(back, "{:?}", town.play.flow(c));
    assert_eq!(town.play.flow(c).messages.last().map(|m| &m[..]), Some(&b"ping"[..]));
}

#[test]
fn a_session_opens_in_its_round_trips_and_says_what_it_is() {
    use TlsVersion::{Tls12, Tls13};
    // A round trip is 20 ms. The client's address is proved first, which takes one of them in either version.
    for ((min, max), name, trips) in [((Tls12, Tls13), "DTLS 1.3", 2), ((Tls12, Tls12), "DTLS 1.2", 3)] {
        let mut town = Plan::new(1).build();
        town.listen(&versions(Role::Listen, Tls12, Tls13), 443, Manner::echo());
        let c = town.open(&versions(Role::Initiate, min, max), Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{name}: {:?}", town.play.flow(c));
        assert_eq!(town.play.flow(c).establishment(), Some(20 * MS * trips), "{name}");
        echo(&mut town, c);
        let s = town.play.accepted(town.server)[0];
        for flow in [c, s] {
            let engine = town.play.engine(flow.node);
            assert_eq!(engine.stack(flow.conn), Some(Stack::Dtls));
            assert_eq!(engine.security(flow.conn).as_deref(), Some(name));
        }
        let shown = town.play.engine(c.node).peer_certificates(c.conn);
        assert_eq!(shown, [security::identity_p256().chain[0].to_vec()]);
        town.play.close(c);
        let both = town.play.run_until(S, |p| p.flow(c).is_over() && p.flow(s).is_over());
        assert!(both, "{name}: the peer learns of the end: {:?}", town.play.flow(s));
        assert_eq!((town.play.flow(c).end(), town.play.flow(s).end()), (Some(&Over::Closed), Some(&Over::Closed)));
        town.play.end();
    }
}

#[test]
fn a_session_that_is_closed_as_soon_as_it_is_up_ends_its_connection() {
    use TlsVersion::Tls12;
    // The server is up first, and the client finds the end of the handshake and of the session at once.
    let mut town = Plan::new(1).build();
    let node = town.server;
    town.listen(&versions(Role::Listen, Tls12, Tls12), 443, Manner::patient());
    let c = town.open(&versions(Role::Initiate, Tls12, Tls12), Manner::patient());
    assert!(town.play.run_until(S, |p| !p.accepted(node).is_empty()));
    assert!(!town.play.flow(c).is_ready());
    let s = town.play.accepted(node)[0];
    town.play.close(s);
    let both_arrived = town.play.now() + 15 * MS;
    town.play.world().run_until(both_arrived);
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "{:?}", town.play.flow(c));
    assert!(town.play.flow(c).is_ready(), "it was established");
    assert_eq!(town.play.flow(c).end(), Some(&Over::Closed));
    town.play.end();
}

#[test]
fn sessions_come_up_and_carry_messages_over_a_lossy_path() {
    for seed in 0..10 {
        let mut town = Plan::new(seed).loss(0.1).build();
        town.listen(&dtls(), 443, Manner::echo());
        let c = town.open(&dtls(), Manner::patient());
        assert!(town.play.run_until(60 * S, |p| p.flow(c).is_ready()), "{seed}: {:?}", town.play.flow(c));
        // The server is through when it has the client's last flight, which may have to be sent again; before that it can
        // read nothing.
        let server = town.server;
        assert!(town.play.run_until(30 * S, |p| !p.accepted(server).is_empty()), "{seed}");
        for n in 0..100u8 {
            town.play.say(c, vec![n; 500], message());
            town.play.run_for(5 * MS);
        }
        town.play.run_for(S);
        let back = &town.play.flow(c).messages;
        assert!((50..=100).contains(&back.len()), "{seed}: {} of 100", back.len());
        assert!(back.iter().all(|m| m.len() == 500 && m.iter().all(|b| *b == m[0])));
        town.play.end();
    }
}

#[test]
fn quic_datagrams_go_first_and_dtls_wins_where_only_it_is_served() {
    let both = Ask::over(&[Stack::QuicDatagram, Stack::Dtls]);
    let ranked = |town: &mut Town, role| town.compile(town.client, role, &both).unwrap().stacks().to_vec();
    let mut town = Plan::new(2).build();
    assert_eq!(ranked(&mut town, Role::Initiate), [Stack::QuicDatagram, Stack::Dtls]);
    assert_eq!(ranked(&mut town, Role::Listen), [Stack::QuicDatagram], "one protocol has the port");
    town.play.end();
    for served in [Stack::QuicDatagram, Stack::Dtls] {
        let mut town = Plan::new(3).build();
        let on_p256 = security::on_p256(security::server_security());
        town.listen(&secured(&Ask::over(&[served]), on_p256), 443, Manner::echo());
        let c = town.open(&both, Manner::patient());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()), "{served}: {:?}", town.play.flow(c));
        assert_eq!(town.play.engine(c.node).stack(c.conn), Some(served));
        echo(&mut town, c);
        town.play.run_for(60 * S);
        assert_eq!(town.play.accepted(town.server).len(), 1, "{served}: a loser leaves no connection");
        town.play.end();
    }
}

#[test]
fn what_dtls_cannot_do_leaves_it_out_of_the_race_or_is_an_error_where_it_is_alone() {
    let mut town = Plan::new(4).build();
    let both = Ask::over(&[Stack::QuicDatagram, Stack::Dtls]).alpn(&["game"]);
    assert_eq!(town.request(&both).stacks(), [Stack::QuicDatagram], "there are no application protocols");
    let error = town.compile(town.client, Role::Initiate, &dtls().alpn(&["game"])).unwrap_err();
    assert!(error.to_string().contains("alpn"), "{error}");
    let ed25519 = secured(&dtls(), security::server_security());
    let error = town.compile(town.server, Role::Listen, &ed25519).unwrap_err();
    assert!(error.to_string().contains("ECDSA"), "{error}");
    let clear = secured(&dtls(), SecurityParameters::disabled());
    assert!(town.compile(town.client, Role::Initiate, &clear).is_err());
    town.play.end();
}

/// What becomes of a client with these parameters at a server with those.
fn meet(client: SecurityParameters, server: SecurityParameters) -> Result<(), String> {
    let mut town = Plan::new(5).build();
    town.listen(&secured(&dtls(), server), 443, Manner::echo());
    let c = town.open(&secured(&dtls(), client), Manner::patient());
    assert!(town.play.run_until(60 * S, |p| p.flow(c).is_ready() || p.flow(c).is_over()));
    let result = match town.play.flow(c).establishment_error() {
        Some(e) => Err(e.to_string()),
        None => {
            echo(&mut town, c);
            Ok(())
        }
    };
    if result.is_err() {
        assert!(town.play.accepted(town.server).is_empty(), "the server has no connection");
    }
    town.play.end();
    result
}

#[test]
fn only_who_is_trusted_is_talked_to() {
    let (client, server) = (dtls().security(Role::Initiate), dtls().security(Role::Listen));
    assert_eq!(meet(client.clone(), server.clone()), Ok(()));
    let mut other = client.clone();
    other.trust = Trust::Only(security::identity().chain.clone());
    let error = meet(other, server.clone()).unwrap_err();
    assert!(error.contains("not issued by an authority"), "{error}");
    let mut other = client.clone();
    other.server_name = Some("elsewhere.test".into());
    let error = meet(other, server.clone()).unwrap_err();
    assert!(error.contains("elsewhere.test"), "{error}");
    let mut other = client.clone();
    other.trust = Trust::Pinned(vec![Pin::of(&security::identity_p256().chain[0])]);
    assert_eq!(meet(other.clone(), server.clone()), Ok(()));
    other.trust = Trust::Pinned(vec![Pin::Sha256([1; 32])]);
    let error = meet(other, server).unwrap_err();
    assert!(error.contains("pinned"), "{error}");
}

#[test]
fn a_listener_may_want_certificates_of_its_clients() {
    let (mut client, mut server) = (dtls().security(Role::Initiate), dtls().security(Role::Listen));
    let identity: Identity = security::identity_p256().clone();
    server.client_authentication = ClientAuthentication::Required;
    server.trust = Trust::Only(identity.chain.clone());
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut without = client.clone();
        (without.min_version, without.max_version) = (version, version);
        // In 1.3 the client is done before the server has seen that there is no certificate: the listener delivers nothing.
        let mut town = Plan::new(6).build();
        town.listen(&secured(&dtls(), server.clone()), 443, Manner::echo());
        let c = town.open(&secured(&dtls(), without), Manner::patient());
        town.play.run_for(60 * S);
        assert!(town.play.accepted(town.server).is_empty(), "{version:?}");
        assert!(version == TlsVersion::Tls13 || town.play.flow(c).establishment_error().is_some());
        town.play.end();
    }
    client.client_certificates = vec![identity];
    assert_eq!(meet(client, server), Ok(()));
}

#[test]
fn nobody_there_is_a_failed_attempt() {
    // Refused by ICMP: at once. Silence: when the flights are used up.
    let mut town = Plan::new(7).build();
    let c = town.open(&dtls(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "{:?}", town.play.flow(c));
    town.play.end();
    let mut town = Plan::new(7).fault(Fault::UdpBlocked).build();
    town.listen(&dtls(), 443, Manner::echo());
    let c = town.open(&dtls(), Manner::patient());
    assert!(town.play.run_until(60 * S, |p| p.flow(c).is_over()), "{:?}", town.play.flow(c));
    let error = town.play.flow(c).establishment_error().expect("not established").to_string();
    assert!(error.contains("timed out"), "{error}");
    town.play.end();
}

#[test]
fn a_crowd_of_hellos_costs_a_bounded_number_of_sessions_and_keeps_nobody_out() {
    let mut plan = Plan::new(8);
    (plan.server_limits.handshakes, plan.server_limits.unverified) = (64, 64);
    let mut town = plan.build();
    town.listen(&dtls(), 443, Manner::echo());
    // The first flight of a real client, caught, and said again from 300 ports.
    let first = {
        let config = neater_dtls::ClientConfig::new(
            &dtls().security(Role::Initiate),
            &security::crypto(1, 1),
            neater_dtls::Tuning::default(),
        );
        let name = neater_tls::ServerName::try_from("server.test").unwrap();
        let now = neater_base::Instant::ZERO;
        let mut rng = neater_base::Rng::from_number(1);
        neater_dtls::Session::client(&config.unwrap(), name, now, &mut rng).poll_transmit().unwrap()
    };
    let to = SocketAddr::new(SERVER_V4.parse().unwrap(), 443);
    let net = town.play.engine(town.client).net_mut();
    let mut socks = Vec::new();
    for _ in 0..300 {
        let sock = net.udp(Token(u64::MAX), to, &SocketOptions::default()).unwrap();
        let t = Transmit {
            destination: to,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: &first,
        };
        net.send(sock, &t).unwrap();
        // And something that begins nothing.
        let junk = Transmit { contents: &first[..40], ..t };
        net.send(sock, &junk).unwrap();
        socks.push(sock);
    }
    town.play.run_for(50 * MS);
    assert!(town.play.stats(town.server).refused > 0, "there is a bound");
    let c = town.open(&dtls(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{:?}", town.play.flow(c));
    assert_eq!(town.play.flow(c).establishment(), Some(40 * MS), "whoever is really there need not wait");
    echo(&mut town, c);
    let net = town.play.engine(town.client).net_mut();
    for sock in socks {
        net.close(sock);
    }
    town.play.run_for(60 * S);
    assert_eq!(town.play.stats(town.server).connections, 1);
    town.play.end();
}

#[test]
fn a_stopped_listener_keeps_its_connections_and_their_socket() {
    let mut town = Plan::new(9).build();
    let listener = town.listen(&dtls(), 443, Manner::echo());
    let c = town.open(&dtls(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready()));
    echo(&mut town, c);
    let node = town.server;
    town.play.engine(node).stop(listener);
    echo(&mut town, c);
    let late = town.open(&dtls(), Manner::patient());
    assert!(town.play.run_until(60 * S, |p| p.flow(late).is_over()), "nobody new is let in");
    let s = town.play.accepted(node)[0];
    town.play.close(s);
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()));
    assert_eq!(town.play.engine(c.node).state(c.conn), ConnectionState::Closed);
    town.play.end();
}

#[test]
fn a_peer_of_which_nothing_is_heard_is_forgotten() {
    let mut town = Plan::new(10).build();
    town.listen(&dtls(), 443, Manner::patient());
    let c = town.open_to(&dtls(), &[server_v4()], Manner::patient());
    town.play.say(c, "hello", message());
    town.play.run_for(5 * S);
    let s = town.play.accepted(town.server)[0];
    assert_eq!(town.play.flow(s).messages.len(), 1);
    assert!(town.play.flow(s).over.is_none());
    town.play.run_for(130 * S);
    assert!(town.play.flow(s).is_over(), "{:?}", town.play.flow(s));
    town.play.end();
}
