//! SCTP over DTLS (RFC 8261) between two engines: establishment, trust, races, losses, and the ends of sessions and associations.

use bytes::Bytes;
use neater_base::net::{Ecn, InterfaceKind, Net, RecvBatch, Sock, SocketOptions, Token, Transmit};
use neater_base::{Instant, Rng};
use neater_dtls::{ClientConfig, ServerConfig, Session, Tuning};
use neater_engine::{ConnectionError, SendOptions, Stack, StreamDirection};
use neater_link::{LinkConfig, TooBig};
use neater_netsim::SimNet;
use neater_property::{Role, TransportProperties};
use neater_sctp::{AssociationId, Config, Endpoint, Layer, LayerId, Route, StreamId};
use neater_testkit::{Ask, Fault, FlowId, Manner, Over, Plan, Town, for_each_seed, security};
use neater_tls::{SecurityParameters, ServerName, TlsVersion, Trust};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ask() -> Ask {
    Ask::over(&[Stack::SctpDtls])
}

fn message() -> SendOptions {
    SendOptions::default()
}

fn last() -> SendOptions {
    SendOptions { is_final: true, ..message() }
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::from_number(seed).fill(&mut out);
    out
}

fn secured(role: Role, change: impl FnOnce(&mut SecurityParameters)) -> Ask {
    let mut security = ask().security(role);
    change(&mut security);
    Ask { security: Some(security), ..ask() }
}

fn echo(town: &mut Town, c: FlowId) {
    let before = town.play.flow(c).messages.len();
    town.play.say(c, "ping", message());
    let back = town.play.run_until(5 * S, |p| p.flow(c).messages.len() > before);
    assert!(back, "{:?}", town.play.flow(c));
}

#[test]
fn an_association_opens_in_the_round_trips_of_both_and_says_what_secures_it() {
    // A round trip is 20 ms: two of the session's (three in 1.2), and INIT and COOKIE ECHO.
    for (max, name, trips) in [(TlsVersion::Tls13, "DTLS 1.3", 4), (TlsVersion::Tls12, "DTLS 1.2", 5)] {
        let mut town = Plan::new(1).build();
        town.listen(&secured(Role::Listen, |s| s.min_version = TlsVersion::Tls12), 443, Manner::echo());
        let client = secured(Role::Initiate, |s| (s.min_version, s.max_version) = (TlsVersion::Tls12, max));
        let c = town.open(&client, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{name}: {:?}", town.play.flow(c));
        assert_eq!(town.play.flow(c).establishment(), Some(20 * MS * trips), "{name}");
        echo(&mut town, c);
        let s = town.play.accepted(town.server)[0];
        for flow in [c, s] {
            let engine = town.play.engine(flow.node);
            assert_eq!(engine.stack(flow.conn), Some(Stack::SctpDtls));
            assert_eq!(engine.security(flow.conn).as_deref(), Some(name));
        }
        let shown = town.play.engine(c.node).peer_certificates(c.conn);
        assert_eq!(shown, [security::identity_p256().chain[0].to_vec()]);
        // A clone is a stream: no handshake.
        let clone = town.play.engine(c.node).clone_connection(c.conn, StreamDirection::Both).expect("a stream");
        let clone = town.play.adopt(c.node, clone, Manner::patient());
        echo(&mut town, clone);
        assert_eq!(town.play.stats(town.client).sctp_associations, 1);
        for flow in [c, clone] {
            town.play.finish(flow);
        }
        let both = town.play.run_until(5 * S, |p| [c, clone, s].iter().all(|f| p.flow(*f).is_over()));
        assert!(both, "{name}: {:?}", town.play.flow(s));
        for flow in [c, clone, s] {
            assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{name}");
        }
        town.play.end();
    }
}

#[test]
fn losses_delays_and_doubles_change_nothing_about_what_arrives() {
    for_each_seed("sctp_dtls", "losses", 12, |seed| {
        let mut dice = Rng::from_number(seed);
        let loss = [0.0, 0.01, 0.05, 0.1][dice.below(4) as usize];
        let mut town = Plan::new(seed).loss(loss).rate(20_000_000).build();
        town.listen(&ask(), 443, Manner::echo());
        let f = town.open(&ask(), Manner::default());
        assert!(town.play.run_until(60 * S, |p| p.flow(f).is_ready()), "{:?}", town.play.flow(f).end());
        let n = 1 + dice.below(20) as usize;
        let all: Vec<Bytes> = (0..n).map(|k| random(seed ^ k as u64, dice.below(40_000) as usize).into()).collect();
        for (k, m) in all.iter().enumerate() {
            town.play.say(f, m.clone(), if k + 1 == n { last() } else { message() });
        }
        assert!(town.play.run_until(300 * S, |p| p.flow(f).is_over()), "still open: {:?}", town.play.flow(f));
        assert_eq!(town.play.flow(f).end(), Some(&Over::Closed));
        assert!(town.play.flow(f).messages == all, "not the same messages in the same order");
        town.play.end();
    });
}

/// Packets grow to what the interface takes and the path passes on, and shrink when the path does.
#[test]
fn packets_are_as_large_as_the_path_takes() {
    for (stack, overhead) in [(Stack::Sctp, 28 + 12 + 20), (Stack::SctpDtls, 28 + 22 + 12 + 20)] {
        for mtu in [1500u32, 1400, 1300, 700] {
            let ask = Ask::over(&[stack]);
            let mut town = Plan::new(7).build();
            town.listen(&ask, 443, Manner::patient());
            let c = town.open(&ask, Manner::patient());
            assert!(town.play.run_until(5 * S, |p| p.flow(c).is_ready()));
            for link in [town.v4.to, town.v4.from] {
                let narrow = LinkConfig::delay(10 * MS).with_mtu(mtu, TooBig::BlackHole);
                town.play.world().set_link(link, narrow);
            }
            // Time for the probes.
            for i in 0..40 {
                town.play.say(c, random(i, 10_000), message());
                town.play.run_for(S);
            }
            let server = town.play.accepted(town.server)[0];
            let seen = |t: &Town| t.play.flow(server).messages.len();
            assert!(
                town.play.run_until(60 * S, |p| p.flow(server).messages.len() == 40),
                "{stack} {mtu}: {}",
                seen(&town)
            );
            let before = town.play.world().link_counters(town.v4.to);
            town.play.say(c, random(99, 1_000_000), message());
            assert!(town.play.run_until(60 * S, |p| p.flow(server).messages.len() == 41), "{stack} {mtu}");
            let after = town.play.world().link_counters(town.v4.to);
            let packets = (after.offered - before.offered) as f64;
            // What the interface takes is asked for first, and found to the byte: also what DTLS 1.3 takes less than 1.2 would.
            let slack = if mtu == 1500 { 12.0 } else { 40.0 };
            let least = if mtu == 700 { 400.0 } else { f64::from(mtu) - f64::from(overhead) - slack };
            assert!(1_000_000.0 / packets >= least, "{stack} {mtu}: {packets} packets");
            town.play.end();
        }
    }
}

#[test]
fn a_server_that_is_not_who_it_should_be_gets_no_association() {
    let mut town = Plan::new(3).build();
    town.listen(&ask(), 443, Manner::echo());
    let client = secured(Role::Initiate, |s| s.trust = Trust::Only(vec![security::stranger().chain[0].clone()]));
    let c = town.open(&client, Manner::patient());
    assert!(town.play.run_until(20 * S, |p| p.flow(c).is_over()));
    assert!(matches!(town.play.flow(c).end(), Some(Over::NotEstablished(_))), "{:?}", town.play.flow(c).end());
    assert_eq!(town.play.stats(town.server).sctp_associations, 0);
    assert!(town.play.accepted(town.server).is_empty());
    town.play.end();
}

fn raced() -> Ask {
    let mut properties = TransportProperties::new();
    properties.set("multistreaming", "prefer").unwrap();
    properties.set("_neater.attemptDelay", 10.0).unwrap();
    let mut ask = Ask::over(&[Stack::SctpDtls, Stack::Tls]).properties(properties);
    ask.options.bytes = true;
    ask
}

#[test]
fn it_wins_or_loses_races_as_other_stacks_do_and_a_loser_leaves_nothing() {
    for (fault, winner) in
        [(None, Stack::SctpDtls), (Some(Fault::UdpBlocked), Stack::Tls), (Some(Fault::UdpRejected), Stack::Tls)]
    {
        let mut plan = Plan::new(5);
        if let Some(fault) = fault {
            plan = plan.fault(fault);
        }
        let mut town = plan.build();
        town.listen(&raced(), 443, Manner::echo());
        for round in 0..2 {
            let c = town.open(&raced(), Manner::default());
            assert!(town.play.run_until(10 * S, |p| p.flow(c).is_ready()), "{:?}", town.play.flow(c).end());
            assert_eq!(town.play.engine(c.node).stack(c.conn), Some(winner), "{fault:?} {round}");
            town.play.say(c, "ping", last());
            assert!(town.play.run_until(10 * S, |p| p.flow(c).is_over()));
            assert_eq!(town.play.flow(c).received, b"ping");
            if winner == Stack::Tls {
                assert_eq!(town.play.stats(town.server).sctp_associations, 0);
                assert!(round == 0 || town.play.flow(c).establishment() <= Some(60 * MS), "the cache adds nothing");
            }
            town.play.run_for(2 * S);
        }
        town.play.end();
    }
}

#[test]
fn whoever_requires_security_and_streams_of_messages_gets_it_without_naming_it() {
    let mut town = Plan::new(6).build();
    let mut properties = TransportProperties::new();
    properties.set("preserveMsgBoundaries", "require").unwrap();
    properties.set("multistreaming", "require").unwrap();
    let needs = Ask { security: Some(ask().security(Role::Initiate)), ..Ask::over(&[]).properties(properties) };
    let ranked = town.compile(town.client, Role::Initiate, &needs).expect("a stack").stacks().to_vec();
    assert_eq!(ranked.first(), Some(&Stack::SctpDtls));
    assert!(!ranked.contains(&Stack::Sctp), "not in the clear");
}

#[test]
fn a_session_without_an_association_is_closed_and_one_that_has_died_takes_its_association_along() {
    let mut town = Plan::new(8).build();
    town.listen(&ask(), 443, Manner::echo());
    let c = town.open(&ask(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready()));
    echo(&mut town, c);
    let s = town.play.accepted(town.server)[0];
    // The client dies: nothing of its farewell arrives. The server finds out by its heartbeats, and forgets session and all.
    let (up, _) = town.client_links;
    let way = town.play.world().link_config(up);
    town.play.world().set_link(up, LinkConfig::default().with_loss(1.0));
    town.play.abort(c);
    town.play.say(s, "are you there?", message());
    assert!(town.play.run_until(600 * S, |p| p.flow(s).is_over()), "{:?}", town.play.flow(s));
    assert!(matches!(town.play.flow(s).end(), Some(Over::Failed(ConnectionError::Sctp(_)))));
    town.play.world().set_link(up, way);
    town.play.run_for(30 * S);
    // The next one opens as the first did.
    let again = town.open(&ask(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(again).is_ready()));
    assert_eq!(town.play.flow(again).establishment(), Some(80 * MS));
    echo(&mut town, again);
    town.play.end();
}

/// Types of chunks (RFC 9260 section 3.2).
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// The address of a [`Foreign`].
const FOREIGN: &str = "203.0.113.66";

/// A client or server without an engine, to which streams mean nothing, and which closes its session at a chunk
/// that the test chooses.
struct Foreign {
    net: SimNet,
    sock: Sock,
    session: Session,
    endpoint: Endpoint,
    /// A client's association.
    id: Option<AssociationId>,
    peer: SocketAddr,
    /// With which chunk it closes its session, and whether that chunk is sent before.
    closes: Option<(u8, bool)>,
    closed: bool,
}

impl Foreign {
    /// A client, which sends "hello" as soon as it can.
    fn new(town: &Town) -> Self {
        let peer = "198.51.100.1:9899".parse().unwrap();
        let crypto = security::crypto(9, 9);
        crypto.clock.set(town.play.world().wall());
        let config = ClientConfig::new(&ask().security(Role::Initiate), &crypto, Tuning::default()).unwrap();
        let name = ServerName::try_from("server.test").unwrap().to_owned();
        let session = Session::client(&config, name, town.play.now(), &mut Rng::from_number(9));
        let mut foreign = Self::with(town, session, peer, SocketOptions::default(), 5000);
        let route = Route { layer: LayerId(0), remote: peer };
        let id = foreign.endpoint.connect(town.play.now(), 443, &[route]).expect("an association");
        let hello = Bytes::from_static(b"hello");
        foreign.endpoint.send(id, StreamId(0), hello, neater_sctp::SendOptions::default()).expect("room");
        foreign.id = Some(id);
        foreign
    }

    /// A server for one client, at [`FOREIGN`].
    fn server(town: &Town) -> Self {
        let crypto = security::crypto(9, 9);
        crypto.clock.set(town.play.world().wall());
        let config = ServerConfig::new(&ask().security(Role::Listen), &crypto, Tuning::default()).unwrap();
        let session = Session::server(&config, town.play.now(), &mut Rng::from_number(9));
        let local = Some("203.0.113.66:9899".parse().unwrap());
        // The peer is known from its first datagram.
        let peer = "198.51.100.1:9899".parse().unwrap();
        Self::with(town, session, peer, SocketOptions { local, ..SocketOptions::default() }, 443)
    }

    fn with(town: &Town, session: Session, peer: SocketAddr, options: SocketOptions, port: u16) -> Self {
        let world = town.play.world().clone();
        let host = world.add_host("foreign");
        let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[FOREIGN.parse().unwrap()]);
        world.attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
        let mut net = world.net(host);
        let sock = net.udp(Token(1), peer, &options).expect("a socket");
        // IP, UDP, and what DTLS adds at most.
        let layer = Layer { overhead: 28 + 37, ..Layer::udp() };
        let config = Config { layers: vec![layer], port, accept: port == 443, ..Config::default() };
        let endpoint = Endpoint::new(config, [9; 32], &[9; 32]);
        Self { net, sock, session, endpoint, id: None, peer, closes: None, closed: false }
    }

    /// Does what there is to do now.
    fn turn(&mut self, now: Instant) {
        let mut batch = RecvBatch::default();
        self.net.poll(&mut Vec::new());
        while self.net.recv(self.sock, &mut batch).is_ok_and(|n| n > 0) {
            for (meta, data) in batch.filled() {
                self.peer = meta.source;
                data.chunks(meta.stride.max(1)).for_each(|one| self.session.handle_datagram(now, one));
            }
        }
        self.session.handle_timeout(now);
        let route = Route { layer: LayerId(0), remote: self.peer };
        while let Some(packet) = self.session.recv() {
            self.endpoint.handle_packet(now, route, false, &packet);
        }
        self.endpoint.handle_timeout(now);
        while self.endpoint.poll_event().is_some() {}
        let mut buffer = vec![0; 2000];
        while self.session.is_connected()
            && let Some(t) = self.endpoint.poll_transmit(now, &mut buffer)
        {
            let last = self.closes.filter(|(kind, _)| *kind == buffer[12]);
            if last.is_none_or(|(_, sent)| sent) {
                self.session.send(now, &buffer[..t.len]).expect("a session that is up");
            }
            if last.is_some() {
                self.close(now);
            }
        }
        self.transmit();
        let next = self.endpoint.next_timeout().filter(|_| self.session.is_connected());
        self.net.arm([next, self.session.next_timeout()].into_iter().flatten().min(), false);
    }

    fn close(&mut self, now: Instant) {
        self.session.close(now);
        self.closed = true;
    }

    fn transmit(&mut self) {
        while let Some(contents) = self.session.poll_transmit() {
            let datagram = Transmit {
                destination: self.peer,
                source: None,
                interface: None,
                ecn: Ecn::NotEct,
                segment_size: None,
                contents: &contents,
            };
            self.net.send(self.sock, &datagram).expect("sent");
        }
    }

    /// Lives for so long, or until it has closed its session.
    fn run(&mut self, town: &mut Town, time: Duration) {
        let before = self.closed;
        town.play.run_until(time, |p| {
            self.turn(p.now());
            self.closed != before
        });
    }

    /// Lets the last datagrams arrive together, so that the server finds them in one turn.
    fn arrive(&mut self, town: &mut Town) {
        assert!(self.closed, "it has not come to that");
        let world = town.play.world().clone();
        world.run_until(world.now() + 15 * MS);
        self.run(town, S);
    }
}

/// What a foreign client sends, the end of the association included, counts although it closes its
/// session right behind it.
#[test]
fn the_end_of_a_session_does_not_overtake_what_came_before_it() {
    // The program closes; or the client shuts down, and closes the session with its last chunk, in
    // place of it, or with its first.
    let ends = [
        (true, (SHUTDOWN_ACK, true)),
        (false, (SHUTDOWN_COMPLETE, true)),
        (false, (SHUTDOWN_COMPLETE, false)),
        (false, (SHUTDOWN, true)),
    ];
    for (ours, closes) in ends {
        for reads in [true, false] {
            let case = format!("ours: {ours}, {closes:?}, reads: {reads}");
            let mut town = Plan::new(9).build();
            town.listen(&ask(), 443, Manner { reads, ..Manner::patient() });
            let mut peer = Foreign::new(&town);
            peer.run(&mut town, S);
            let s = *town.play.accepted(town.server).first().expect("an association");
            assert_eq!(town.play.flow(s).messages.len(), usize::from(reads), "{case}");
            peer.closes = Some(closes);
            if ours {
                town.play.close(s);
            } else {
                peer.endpoint.shutdown(town.play.now(), peer.id.expect("a client"));
            }
            peer.run(&mut town, S);
            peer.arrive(&mut town);
            assert_eq!(town.play.flow(s).end(), Some(&Over::Closed), "{case}");
            if !ours {
                town.play.flow_mut(s).manner.reads = true;
                town.play.read(s);
                let flow = town.play.flow(s);
                assert_eq!(flow.messages, ["hello"], "{case}");
                assert!(flow.ended_at.is_some() && flow.receive_error.is_none(), "{case}: {flow:?}");
            }
            let Foreign { mut net, sock, .. } = peer;
            net.close(sock);
            drop(net);
            town.play.end();
        }
    }
}

/// Without a shutdown it is an abort, also of an association that is new to the server; what was sent
/// can be read.
#[test]
fn a_session_that_is_closed_without_a_shutdown_aborts_its_association() {
    for at_once in [false, true] {
        let mut town = Plan::new(10).build();
        town.listen(&ask(), 443, Manner::patient());
        let mut peer = Foreign::new(&town);
        // The first message goes with the cookie.
        peer.closes = at_once.then_some((COOKIE_ECHO, true));
        peer.run(&mut town, S);
        if !at_once {
            peer.close(town.play.now());
            peer.transmit();
        }
        peer.arrive(&mut town);
        let s = *town.play.accepted(town.server).first().expect("an association");
        let flow = town.play.flow(s);
        assert!(matches!(flow.end(), Some(Over::Failed(ConnectionError::Sctp(_)))), "at once: {at_once}: {flow:?}");
        assert_eq!(flow.messages, ["hello"], "at once: {at_once}");
        let Foreign { mut net, sock, .. } = peer;
        net.close(sock);
        drop(net);
        town.play.end();
    }
}

/// An association that is up has won its race, although its session is closed right behind the last chunk of its handshake: the connection
/// is ready, and fails at once.
#[test]
fn a_session_that_is_closed_behind_the_handshake_of_its_association_ends_the_connection() {
    let mut town = Plan::new(11).build();
    let mut server = Foreign::server(&town);
    server.closes = Some((COOKIE_ACK, true));
    let remote = SocketAddr::new(FOREIGN.parse().unwrap(), 443).into();
    let request = secured(Role::Initiate, |s| s.server_name = Some("server.test".into()));
    let c = town.open_to(&request, &[remote], Manner::patient());
    server.run(&mut town, S);
    server.arrive(&mut town);
    let flow = town.play.flow(c);
    assert!(flow.is_over(), "{flow:?}");
    assert!(matches!(flow.end(), Some(Over::Failed(ConnectionError::Sctp(_)))), "{flow:?}");
    let Foreign { mut net, sock, .. } = server;
    net.close(sock);
    drop(net);
    town.play.end();
}

/// A session may outlive its association for some seconds; it holds up no listener.
#[test]
fn a_listener_that_has_stopped_leaves_its_port_to_the_next_one() {
    let mut town = Plan::new(12).build();
    let l = town.listen(&ask(), 443, Manner::echo());
    let c = town.open(&ask(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready()));
    echo(&mut town, c);
    let s = town.play.accepted(town.server)[0];
    town.play.finish(c);
    assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    assert!(town.play.run_until(S, |p| p.stats(town.server).sctp_associations == 0));
    town.play.engine(town.server).stop(l);
    town.listen(&ask(), 443, Manner::echo());
    let c = town.open(&ask(), Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready()), "{:?}", town.play.flow(c));
    town.play.abort(c);
    town.play.run_for(30 * S);
    town.play.end();
}
