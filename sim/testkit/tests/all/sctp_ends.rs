//! What an association of the engine must not confuse: one life of its peer with the next, a part with the whole, a full buffer with a
//! full path.

use bytes::Bytes;
use neater_base::Instant;
use neater_base::net::{Ecn, InterfaceKind, Net, RecvBatch, Sock, SocketOptions, Token, Transmit};
use neater_engine::{ConnectionError, Limits, SendOptions, Stack, StreamDirection};
use neater_link::LinkConfig;
use neater_netsim::SimNet;
use neater_sctp::{AssociationConfig, AssociationId, Config, Endpoint, Layer, LayerId, Route, StreamId};
use neater_testkit::{Ask, Manner, Over, Plan, Town};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ask() -> Ask {
    Ask::over(&[Stack::Sctp])
}

/// A client without an engine, which can begin anew at the same address and ports.
struct Phoenix {
    net: SimNet,
    sock: Sock,
    endpoint: Endpoint,
    id: Option<AssociationId>,
    server: SocketAddr,
}

fn life(number: u8) -> Endpoint {
    let association = AssociationConfig::default();
    let config = Config { layers: vec![Layer::udp()], port: 5000, association, ..Config::default() };
    Endpoint::new(config, [number; 32], &[number; 32])
}

impl Phoenix {
    fn new(town: &Town) -> Self {
        let world = town.play.world().clone();
        let host = world.add_host("phoenix");
        let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &["203.0.113.66".parse().unwrap()]);
        world.attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
        let mut net = world.net(host);
        let server: SocketAddr = "198.51.100.1:9899".parse().unwrap();
        let sock = net.udp(Token(1), server, &SocketOptions::default()).expect("a socket");
        Self { net, sock, endpoint: life(1), id: None, server }
    }

    /// Another life; everything of the last is forgotten.
    fn begin(&mut self, town: &Town, number: u8) {
        self.endpoint = life(number);
        let route = Route { layer: LayerId(0), remote: self.server };
        self.id = Some(self.endpoint.connect(town.play.now(), 443, &[route]).expect("a new association"));
    }

    fn say(&mut self, words: &[u8]) {
        let words = Bytes::copy_from_slice(words);
        let id = self.id.expect("it has begun");
        self.endpoint.send(id, StreamId(0), words, neater_sctp::SendOptions::default()).expect("room");
    }

    /// Does what there is to do now.
    fn turn(&mut self, now: Instant) {
        let (mut batch, mut buffer) = (RecvBatch::default(), vec![0; 2000]);
        self.net.poll(&mut Vec::new());
        while self.net.recv(self.sock, &mut batch).is_ok_and(|n| n > 0) {
            for (meta, data) in batch.filled() {
                let route = Route { layer: LayerId(0), remote: meta.source };
                self.endpoint.handle_packet(now, route, false, data);
            }
        }
        self.endpoint.handle_timeout(now);
        while let Some(t) = self.endpoint.poll_transmit(now, &mut buffer) {
            let (destination, contents) = (t.route.remote, &buffer[..t.len]);
            let packet =
                Transmit { destination, source: None, interface: None, ecn: Ecn::NotEct, segment_size: None, contents };
            self.net.send(self.sock, &packet).expect("sent");
        }
        while self.endpoint.poll_event().is_some() {}
        self.net.arm(self.endpoint.next_timeout(), false);
    }

    /// Lives for so long.
    fn run(&mut self, town: &mut Town, time: Duration) {
        town.play.run_until(time, |p| {
            self.turn(p.now());
            false
        });
    }
}

#[test]
fn what_a_peer_says_after_it_has_begun_anew_is_for_a_new_connection() {
    for reads in [true, false] {
        let mut town = Plan::new(31).build();
        let manner = Manner { reads, ..Manner::patient() };
        town.listen(&ask(), 443, manner.clone());
        let mut phoenix = Phoenix::new(&town);
        phoenix.begin(&town, 1);
        phoenix.say(&vec![b'1'; 100_000]);
        phoenix.run(&mut town, S);
        let me = town.server;
        let first = town.play.accepted(me)[0];
        // Of its second life the first words come with the cookie.
        phoenix.begin(&town, 2);
        phoenix.say(b"second life");
        phoenix.run(&mut town, S);
        let accepted = town.play.accepted(me).to_vec();
        assert_eq!(accepted.len(), 2, "a connection for each");
        assert!(matches!(town.play.flow(first).end(), Some(Over::Failed(ConnectionError::Sctp(_)))));
        // What it had is read, or thrown away, while the new one is there: that changes nothing for the new one.
        if reads {
            assert_eq!(town.play.flow(first).received.len(), 100_000);
        }
        assert!(town.play.flow(first).received.iter().all(|b| *b == b'1'), "nothing of the second life");
        town.play.release(first);
        town.play.flow_mut(accepted[1]).manner.reads = true;
        town.play.read(accepted[1]);
        for _ in 0..30 {
            phoenix.say(&vec![b'2'; 60_000]);
            phoenix.run(&mut town, 200 * MS);
        }
        assert_eq!(town.play.flow(accepted[1]).received.len(), 11 + 30 * 60_000);
        phoenix.endpoint.abort(phoenix.id.unwrap(), b"the end");
        phoenix.run(&mut town, S);
        let Phoenix { mut net, sock, .. } = phoenix;
        net.close(sock);
        drop(net);
        town.play.end();
    }
}

#[test]
fn a_part_does_not_look_like_the_whole_when_there_is_no_room_for_the_word_that_says_so() {
    let limits = Limits { send_buffer: 64 << 10, ..Limits::default() };
    let mut plan = Plan::new(32);
    plan.client_limits = limits;
    let mut town = plan.build();
    town.listen(&ask(), 443, Manner { keeps: false, ..Manner::patient() });
    let first = town.open(&ask(), Manner::patient());
    assert!(town.play.run_until(5 * S, |p| p.flow(first).is_ready()));
    let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
    let second = town.play.adopt(first.node, clone, Manner::patient());
    town.play.say(second, "a part", SendOptions::default());
    let me = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(me).len() == 2));
    let peer = town.play.accepted(me)[1];
    // The other connection fills the association's buffer to the last bytes, and nothing leaves.
    let block = |town: &Town, loss: f64| {
        let config = LinkConfig::delay(10 * MS).with_loss(loss);
        [town.v4.to, town.v4.from].into_iter().for_each(|link| town.play.world().set_link(link, config.clone()));
    };
    block(&town, 1.0);
    for _ in 0..12_000 {
        town.play.say(first, vec![1; 8], SendOptions::default());
    }
    town.play.run_for(20 * MS);
    assert!(!town.play.flow(first).has_said_all(), "it waits for room");
    town.play.engine(second.node).reset_sending(second.conn, 77);
    town.play.run_for(20 * MS);
    block(&town, 0.0);
    let seen = |p: &neater_testkit::Playground| p.flow(peer).receive_error.is_some() || p.flow(peer).ended_at.is_some();
    assert!(town.play.run_until(20 * S, |p| seen(p)));
    let flow = town.play.flow(peer);
    assert_eq!((flow.receive_error.clone(), flow.ended_at), (Some(ConnectionError::StreamReset(77)), None));
    town.play.end();
}

#[test]
fn the_receive_window_grows_with_what_the_program_takes_and_fills_a_long_path() {
    // The window at first is 1 MB; the path has 2.5 MB under way.
    let mut town = Plan::new(33).delay(200 * MS).rate(50_000_000).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner { keeps: false, ..Manner::patient() });
    let (chunk, count) = (Bytes::from(vec![7; 100_000]), 240);
    for _ in 0..count {
        town.play.say(c, chunk.clone(), SendOptions::default());
    }
    let began = town.play.now();
    assert!(town.play.run_until(60 * S, |p| p.flow(s).count == count * 100_000));
    let took = town.play.now() - began;
    // 3.84 s for the bytes and 8 round trips until the path is full; a window of 1 MB takes 10 s for the bytes alone.
    assert!(took < 8500 * MS, "{took:?}");
    town.play.end();
}

#[test]
fn the_last_message_of_a_direction_is_acknowledged_at_once_and_its_end_follows_within_a_round_trip() {
    let mut town = Plan::new(34).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    town.play.run_for(S);
    let began = town.play.now();
    town.play.say(c, "the last", SendOptions { is_final: true, ..SendOptions::default() });
    assert!(town.play.run_until(5 * S, |p| p.flow(s).ended_at.is_some()));
    let took = town.play.flow(s).ended_at.expect("ended") - began;
    assert!(took <= 31 * MS, "there, back and there again: {took:?}");
    town.play.end();
}
