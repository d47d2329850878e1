//! Two endpoints, no network: what one sends, the other takes.

use crate::*;
use bytes::BytesMut;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Ecn;
use std::net::SocketAddr;
use std::sync::Arc;

struct Side {
    endpoint: Endpoint,
    connection: Option<Connection>,
    handle: Option<Handle>,
    addr: SocketAddr,
    events: Vec<Event>,
}

struct Pair {
    client: Side,
    server: Side,
    now: Instant,
    /// Everything that was sent, for comparison of runs.
    wire: Vec<Vec<u8>>,
    /// Drops the n-th datagram.
    lose: Vec<usize>,
    /// Where the client was before: what is sent there gets lost.
    left: Option<SocketAddr>,
}

fn identity(engine: u8, seed: u8) -> Identity {
    Identity { engine, seed: [seed; 32], reset_key: [1; 32], token_key: [2; 32], qlog: None }
}

fn tls(seed: u8) -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    use neater_tls::*;
    let crypto = Crypto::deterministic([seed; 32]);
    let wall = neater_base::WallTime(Duration::from_secs(1_800_000_000));
    crypto.clock.set(wall);
    let identity = self_signed(&["example.test"], wall, [9; 32]);
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(vec![identity.chain[0].clone()]);
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![identity];
    let sessions = SessionStore::new(crypto.clock.clone());
    (
        client_config(&client, &crypto, &[b"test"], true, &sessions).expect("client"),
        server_config(&server, &crypto, &[b"test"], true).expect("server"),
    )
}

impl Pair {
    fn new(seed: u8, lose: &[usize]) -> Self {
        let epoch = Epoch::new();
        let (client_tls, server_tls) = tls(seed);
        let tuning = Tuning::default();
        let mut client = Endpoint::new(epoch, &identity(1, seed), None).expect("client");
        let server = Endpoint::new(epoch, &identity(2, seed), Some((server_tls, &tuning))).expect("server");
        let (a, b): (SocketAddr, SocketAddr) =
            ("192.0.2.1:1000".parse().expect("literal"), "192.0.2.2:2000".parse().expect("literal"));
        let setup = ClientSetup { tls: client_tls, tuning };
        let now = Instant::from_nanos(1_000_000_000);
        let (handle, connection) = client.connect(now, &setup, b, "example.test").expect("begun");
        let side = |endpoint, connection, handle, addr| Side { endpoint, connection, handle, addr, events: Vec::new() };
        Self {
            client: side(client, Some(connection), Some(handle), a),
            server: side(server, None, None, b),
            now,
            wire: Vec::new(),
            lose: lose.to_vec(),
            left: None,
        }
    }

    /// Lets both sides exchange packets until neither has any to send before `until`.
    fn run(&mut self, until: Duration) {
        let end = self.now + until;
        let mut idle = 0;
        while idle < 2 {
            let a = self.flow(true);
            let b = self.flow(false);
            if a || b {
                idle = 0;
                self.now += Duration::from_millis(5);
                continue;
            }
            let next = [&mut self.client, &mut self.server]
                .into_iter()
                .filter_map(|s| s.connection.as_mut()?.next_timeout())
                .min();
            match next {
                Some(t) if t <= end => {
                    self.now = self.now.max(t);
                    for side in [&mut self.client, &mut self.server] {
                        if let Some(c) = &mut side.connection {
                            c.handle_timeout(self.now);
                        }
                    }
                }
                _ => idle += 1,
            }
        }
    }

    /// Moves everything that one side has to send; true if there was anything.
    fn flow(&mut self, from_client: bool) -> bool {
        let (from, to) =
            if from_client { (&mut self.client, &mut self.server) } else { (&mut self.server, &mut self.client) };
        let Some(connection) = &mut from.connection else { return false };
        let mut sent = false;
        let mut buf = Vec::new();
        loop {
            while let Some(e) = connection.poll_endpoint_event() {
                if let Some(back) = from.endpoint.handle_event(from.handle.expect("known"), e) {
                    connection.handle_event(back);
                }
            }
            while let Some(e) = connection.poll_event() {
                from.events.push(e);
            }
            let Some(t) = connection.poll_transmit(self.now, 1, &mut buf) else { break };
            sent = true;
            if self.left == Some(t.destination) {
                continue;
            }
            assert_eq!(t.destination, to.addr);
            self.wire.push(buf[..t.size].to_vec());
            if self.lose.contains(&(self.wire.len() - 1)) {
                continue;
            }
            let meta = Datagram { source: from.addr, local: None, ecn: Ecn::NotEct };
            let mut out = Vec::new();
            match to.endpoint.handle_datagram(self.now, meta, BytesMut::from(&buf[..t.size]), &mut out) {
                Arrival::For(_, e) => to.connection.as_mut().expect("there").handle_event(e),
                Arrival::New(h, c) => {
                    to.handle = Some(h);
                    to.connection = Some(*c);
                }
                Arrival::Nothing => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        sent
    }

    /// What an endpoint with the client's keys answers to a packet of a connection that it has
    /// forgotten.
    fn reset_from_the_client(&self, packet: &[u8], seed: u8) -> Vec<u8> {
        let mut amnesiac = Endpoint::new(Epoch::new(), &identity(1, seed), None).expect("endpoint");
        let meta = Datagram { source: self.server.addr, local: None, ecn: Ecn::NotEct };
        let mut out = Vec::new();
        let arrival = amnesiac.handle_datagram(self.now, meta, BytesMut::from(packet), &mut out);
        assert!(matches!(arrival, Arrival::Respond(_)), "{arrival:?}");
        out
    }

    fn client(&mut self) -> &mut Connection {
        self.client.connection.as_mut().expect("there")
    }

    fn server(&mut self) -> &mut Connection {
        self.server.connection.as_mut().expect("accepted")
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The result of a read into a buffer of `room` bytes, and what it wrote there.
fn read(conn: &mut Connection, stream: StreamId, room: usize) -> (ReadOutcome, Vec<u8>) {
    let mut buf = vec![0; room];
    let outcome = conn.read(stream, &mut buf);
    buf.truncate(if let ReadOutcome::Data(n) = outcome { n } else { 0 });
    (outcome, buf)
}

#[test]
fn a_read_takes_what_many_packets_brought_and_the_end_is_said_by_the_next() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let sent: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    for (end, outcome) in [(true, ReadOutcome::End), (false, ReadOutcome::Reset(7))] {
        let stream = pair.client().open(Direction::One).expect("allowed");
        assert_eq!(pair.client().write(stream, &sent), Ok(sent.len()));
        pair.run(SECOND);
        let theirs = pair.server().accept(Direction::One).expect("opened");
        assert_eq!(read(pair.server(), theirs, 0).0, ReadOutcome::Data(0));
        if end {
            pair.client().finish(stream);
            pair.run(SECOND);
            let (first, bytes) = read(pair.server(), theirs, 15_000);
            assert_eq!((first, &bytes[..]), (ReadOutcome::Data(15_000), &sent[..15_000]));
            let (second, bytes) = read(pair.server(), theirs, 15_000);
            assert_eq!((second, &bytes[..]), (ReadOutcome::Data(5_000), &sent[15_000..]));
        } else {
            assert_eq!(read(pair.server(), theirs, 30_000).0, ReadOutcome::Data(20_000));
            assert_eq!(read(pair.server(), theirs, 30_000).0, ReadOutcome::Blocked);
            assert_eq!(read(pair.server(), theirs, 0).0, ReadOutcome::Blocked);
            pair.client().reset(stream, 7);
            pair.run(SECOND);
        }
        assert_eq!(read(pair.server(), theirs, 100).0, outcome);
        assert_eq!(read(pair.server(), theirs, 100).0, ReadOutcome::Closed);
    }
}

/// Of a stream as long as this, whatever part leaves at once: the other side knows how much.
#[test]
fn what_window_or_pacer_hold_back_has_not_left() {
    let (mut whole, mut part) = (0, 0);
    for len in (1..60).map(|n| 1_000 * n + 7) {
        let mut pair = Pair::new(1, &[]);
        pair.run(SECOND);
        let (stream, other) = (pair.client().open(Direction::One), pair.client().open(Direction::One));
        let (stream, other) = (stream.expect("allowed"), other.expect("allowed"));
        let written = pair.client().write(stream, &vec![1; len]).expect("open");
        assert!(pair.client().has_unsent(stream) && !pair.client().has_unsent(other), "{len}: nobody has asked for it");
        pair.flow(true);
        let theirs = pair.server().accept(Direction::One).expect("opened");
        let ReadOutcome::Data(arrived) = read(pair.server(), theirs, len).0 else { panic!("{len}: nothing has left") };
        assert_eq!(pair.client().has_unsent(stream), arrived < written, "{len}: {arrived} of {written} have arrived");
        *if arrived < written { &mut part } else { &mut whole } += 1;
        assert_eq!(pair.client().write(other, b"x"), Ok(1));
        pair.flow(true);
        let came = pair.server().accept(Direction::One).map(|theirs| read(pair.server(), theirs, 10).0);
        assert_eq!(pair.client().has_unsent(other), came != Some(ReadOutcome::Data(1)), "{len}: {came:?}");
        pair.run(SECOND);
        assert!(!pair.client().has_unsent(stream) && !pair.client().has_unsent(other), "{len}");
    }
    assert!(whole > 5 && part > 5, "{whole} {part}");
}

#[test]
fn what_is_sent_waits_until_it_is_acknowledged() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let before = pair.client().acknowledgements();
    assert!(before.last.is_some() && before.waiting_since.is_none(), "{before:?}");
    let stream = pair.client().open(Direction::One).expect("allowed");
    assert_eq!(pair.client().write(stream, b"x"), Ok(1));
    let sent = pair.now;
    pair.flow(true);
    let waits = pair.client().acknowledgements();
    assert_eq!((waits.last, waits.waiting_since), (before.last, Some(sent)));
    pair.run(SECOND);
    let after = pair.client().acknowledgements();
    assert!(after.last > before.last && after.waiting_since.is_none(), "{after:?}");
    // What is lost waits for as long as it is, whatever arrives meanwhile.
    pair.lose = (0..1_000).collect();
    assert_eq!(pair.client().write(stream, b"x"), Ok(1));
    let sent = pair.now;
    pair.run(SECOND);
    assert_eq!(pair.client().acknowledgements(), Acknowledgements { last: after.last, waiting_since: Some(sent) });
}

#[test]
fn a_stream_that_has_arrived_has_left_whatever_waits_beside_it() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let (small, large) = (pair.client().open(Direction::One), pair.client().open(Direction::One));
    let (small, large) = (small.expect("allowed"), large.expect("allowed"));
    assert_eq!(pair.client().write(small, b"x"), Ok(1));
    pair.client().finish(small);
    assert_eq!(pair.client().write(large, &[1; 200_000]), Ok(200_000));
    for _ in 0..20 {
        pair.flow(true);
        pair.now += Duration::from_millis(5);
        pair.flow(false);
        if pair.client.events.contains(&Event::Finished(small)) {
            break;
        }
    }
    assert!(pair.client.events.contains(&Event::Finished(small)));
    assert!(pair.client().has_unsent(large) && !pair.client().has_unsent(small));
}

#[test]
fn streams_carry_bytes_both_ways_and_end() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    assert!(pair.client.events.contains(&Event::Connected), "{:?}", pair.client.events);
    assert!(pair.server.events.contains(&Event::Connected));
    assert_eq!(pair.client().alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(pair.server().server_name().as_deref(), Some("example.test"));
    assert_eq!(pair.client().peer_certificates().len(), 1);
    let stream = pair.client().open(Direction::Both).expect("allowed");
    assert_eq!(pair.client().write(stream, b"ping"), Ok(4));
    pair.client().finish(stream);
    pair.run(SECOND);
    let theirs = pair.server().accept(Direction::Both).expect("opened");
    assert_eq!(theirs.number(), stream.number());
    assert_eq!(read(pair.server(), theirs, 100), (ReadOutcome::Data(4), b"ping".to_vec()));
    assert_eq!(read(pair.server(), theirs, 100).0, ReadOutcome::End);
    assert_eq!(pair.server().write(theirs, b"pong"), Ok(4));
    pair.server().finish(theirs);
    pair.run(SECOND);
    assert_eq!(read(pair.client(), stream, 2), (ReadOutcome::Data(2), b"po".to_vec()));
    assert_eq!(read(pair.client(), stream, 100), (ReadOutcome::Data(2), b"ng".to_vec()));
    assert_eq!(read(pair.client(), stream, 100).0, ReadOutcome::End);
    assert!(pair.client.events.contains(&Event::Finished(stream)));
}

#[test]
fn who_met_a_pause_in_the_handshake_waits_longer_for_a_peer_that_is_gone() {
    let lost_within = |pause: Duration, wait: Duration| {
        let mut pair = Pair::new(1, &[]);
        assert!(pair.flow(true));
        pair.now += pause;
        pair.run(SECOND);
        assert!(pair.client.events.contains(&Event::Connected), "{:?}", pair.client.events);
        pair.lose = (0..10_000).collect();
        let stream = pair.client().open(Direction::Both).expect("allowed");
        assert_eq!(pair.client().write(stream, b"anybody?"), Ok(8));
        pair.run(wait);
        pair.client.events.iter().any(|e| matches!(e, Event::Lost(_)))
    };
    assert!(lost_within(Duration::ZERO, 31 * SECOND), "the idle timeout");
    // Three probe timeouts, each of three times the first round trip, more or less (RFC 9000
    // section 10.1).
    assert!(!lost_within(21 * SECOND, 100 * SECOND));
    assert!(lost_within(21 * SECOND, 9 * 21 * SECOND + 31 * SECOND));
}

#[test]
fn asking_for_the_wrong_direction_is_an_answer_and_not_a_panic() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let ours = pair.client().open(Direction::One).expect("allowed");
    assert_eq!(read(pair.client(), ours, 10).0, ReadOutcome::Closed);
    pair.client().stop(ours, 1);
    assert_eq!(pair.client().write(ours, b"x"), Ok(1));
    pair.run(SECOND);
    let theirs = pair.server().accept(Direction::One).expect("opened");
    assert_eq!(pair.server().write(theirs, b"x"), Err(None));
    pair.server().finish(theirs);
    pair.server().reset(theirs, 1);
    pair.server().set_priority(theirs, 1);
}

#[test]
fn datagrams_are_carried_and_bounded() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let max = pair.client().max_datagram().expect("both sides take them");
    assert_eq!(pair.client().send_datagram(vec![7; max].into()), Ok(true));
    assert_eq!(pair.client().send_datagram(vec![7; max + 1].into()), Err(max));
    pair.run(SECOND);
    assert!(pair.server.events.contains(&Event::DatagramReceived));
    assert_eq!(pair.server().recv_datagram().map(|d| d.len()), Some(max));
}

#[test]
fn a_close_tells_the_peer_the_code_and_the_words() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let now = pair.now;
    pair.client().close(now, 42, b"enough");
    pair.run(10 * SECOND);
    let lost = QuicError::Closed { code: 42, reason: "enough".into() };
    assert!(pair.server.events.contains(&Event::Lost(lost.clone())), "{:?}", pair.server.events);
    assert_eq!(lost.to_string(), "closed by the peer with code 42: enough");
    assert!(pair.client().is_drained());
    assert_eq!((pair.client.endpoint.open_connections(), pair.server.endpoint.open_connections()), (0, 0));
}

#[test]
fn the_handshake_survives_the_loss_of_any_of_its_first_datagrams() {
    for n in 0..6 {
        let mut pair = Pair::new(1, &[n]);
        pair.run(20 * SECOND);
        assert!(pair.client.events.contains(&Event::Connected), "datagram {n} lost");
        assert!(pair.server.events.contains(&Event::Connected), "datagram {n} lost");
    }
}

#[test]
fn runs_of_one_seed_are_identical_and_of_two_are_not() {
    let wire = |seed| {
        let mut pair = Pair::new(seed, &[3]);
        pair.run(5 * SECOND);
        pair.wire
    };
    assert_eq!(wire(1), wire(1));
    assert_ne!(wire(1), wire(2));
}

#[test]
fn connection_ids_carry_the_engine_and_foreign_ones_are_told() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let short = pair.wire.iter().find(|p| p[0] & 0x80 == 0 && p[1] == 2).expect("a packet for the server").clone();
    let tuning = Tuning::default();
    let mut other = Endpoint::new(Epoch::new(), &identity(3, 1), Some((tls(1).1, &tuning))).expect("endpoint");
    let meta = Datagram { source: pair.client.addr, local: None, ecn: Ecn::NotEct };
    let arrival = other.handle_datagram(pair.now, meta, BytesMut::from(&short[..]), &mut Vec::new());
    let Arrival::Foreign(Foreign { engine: 2, data, answer }) = &arrival else { panic!("{arrival:?}") };
    assert_eq!(data[..], short[..]);
    assert!(answer.is_some(), "a stateless reset, if there is no engine 2");
}

#[test]
fn a_server_that_was_started_anew_ends_what_it_has_forgotten_and_nothing_elsewhere() {
    let secret = [7; 32];
    let at = |s: &str| reset_key_at(&secret, s.parse().expect("literal"));
    let addresses = ["192.0.2.1:443", "192.0.2.1:444", "192.0.2.2:443", "[2001:db8::1]:443"];
    for (i, a) in addresses.iter().enumerate() {
        assert_eq!(at(a), at(a));
        assert!(addresses[..i].iter().all(|b| at(a) != at(b)), "{a}");
    }
    assert_eq!(at("[::ffff:192.0.2.1]:443"), at("192.0.2.1:443"), "one address, in two ways");
    assert_ne!(at(addresses[0]), reset_key_at(&[8; 32], addresses[0].parse().expect("literal")));
}

#[test]
fn a_stateless_reset_ends_the_connection_whose_token_it_carries_whatever_engine_it_names() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    // On a new path the server uses a connection id with which it was given a token.
    pair.left = Some(pair.client.addr);
    pair.client.addr = "192.0.2.1:1001".parse().expect("literal");
    pair.client().ping();
    pair.run(SECOND);
    let to_client = |p: &&Vec<u8>| p[0] & 0x80 == 0 && p[1] == 1 && p.len() > 60;
    let packet = pair.wire.iter().rev().find(to_client).expect("a packet for the client").clone();
    let mut others = 0;
    for seed in 10..20 {
        let reset = pair.reset_from_the_client(&packet, seed);
        // Its id is random; most of them name some other engine.
        others += u32::from(reset[1] != 2);
        let meta = Datagram { source: pair.client.addr, local: None, ecn: Ecn::NotEct };
        let arrival = pair.server.endpoint.handle_datagram(pair.now, meta, BytesMut::from(&reset[..]), &mut Vec::new());
        let Arrival::For(_, event) = arrival else { panic!("{arrival:?}") };
        pair.server().handle_event(event);
    }
    assert!(others > 0);
    pair.run(SECOND);
    assert!(pair.server.events.iter().any(|e| matches!(e, Event::Lost(_))), "{:?}", pair.server.events);
}

#[test]
fn handshake_packets_are_told_apart_like_those_of_connections() {
    // Unless a datagram is lost, the client's Handshake packets share one with an Initial packet.
    let mut pairs = (0..6).map(|n| Pair::new(1, &[n]));
    let (pair, handshake) = pairs
        .find_map(|mut pair| {
            pair.run(5 * SECOND);
            let handshake = pair.wire.iter().find(|p| p[0] & 0xf0 == 0xe0 && p[6] == 2)?.clone();
            Some((pair, handshake))
        })
        .expect("a Handshake packet");
    let tuning = Tuning::default();
    let mut other = Endpoint::new(Epoch::new(), &identity(3, 1), Some((tls(1).1, &tuning))).expect("endpoint");
    let meta = Datagram { source: pair.client.addr, local: None, ecn: Ecn::NotEct };
    let mut out = Vec::new();
    let arrival = other.handle_datagram(pair.now, meta, BytesMut::from(&handshake[..]), &mut out);
    assert!(matches!(arrival, Arrival::Foreign(Foreign { engine: 2, .. })) && out.is_empty(), "{arrival:?}");
}

#[test]
fn a_close_waits_for_nothing_although_data_does() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let stream = pair.client().open(Direction::Both).expect("allowed");
    // More than the congestion window takes: the rest waits for acknowledgements, which do not come
    // any more.
    while pair.client().write(stream, &[7; 10_000]).is_ok_and(|n| n > 0) {}
    let (now, mut buf) = (pair.now, Vec::new());
    while pair.client().poll_transmit(now, 1, &mut buf).is_some() {}
    pair.client().close(now, 42, b"enough");
    pair.run(SECOND);
    let lost = QuicError::Closed { code: 42, reason: "enough".into() };
    assert!(pair.server.events.contains(&Event::Lost(lost)), "{:?}", pair.server.events);
}

/// A Retry packet for that connection id, of 40 bytes and nothing but zeros behind its header: no
/// key is needed to make one.
fn forged_retry(id: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xf0, 0, 0, 0, 1, id.len() as u8];
    packet.extend_from_slice(id);
    packet.resize(40, 0);
    packet
}

/// Gives one side so many copies of a datagram that seem to be from the other. Returns how many
/// datagrams it sent in answer; they never have more than three times the bytes that came.
fn answers(side: &mut Side, from: SocketAddr, now: Instant, datagram: &[u8], copies: usize) -> usize {
    let meta = Datagram { source: from, local: None, ecn: Ecn::NotEct };
    let connection = side.connection.as_mut().expect("there");
    let (mut buf, mut count, mut bytes) = (Vec::new(), 0, 0);
    for n in 1..=copies {
        let arrival = side.endpoint.handle_datagram(now, meta, BytesMut::from(datagram), &mut buf);
        let Arrival::For(_, event) = arrival else { panic!("{arrival:?}") };
        connection.handle_event(event);
        while let Some(t) = connection.poll_transmit(now, 1, &mut buf) {
            count += 1;
            bytes += t.size;
        }
        assert!(bytes <= 3 * n * datagram.len(), "{bytes} bytes for {n} datagrams of {}", datagram.len());
    }
    count
}

#[test]
fn a_client_that_gave_up_its_handshake_answers_a_flood_ever_more_rarely() {
    let mut pair = Pair::new(1, &[0, 1]);
    assert!(pair.flow(true));
    let now = pair.now;
    pair.client().close(now, 0, b"");
    assert!(pair.flow(true), "the close itself leaves at once");
    // Version 1 with an id of 16 bytes for the server: the client's own comes behind it.
    let id = pair.wire[0][23..31].to_vec();
    let server = pair.server.addr;
    let count = answers(&mut pair.client, server, now, &forged_retry(&id), 10_000);
    assert!((1..=13).contains(&count), "{count} answers");
}

#[test]
fn a_server_that_closes_answers_a_flood_ever_more_rarely() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let short = pair.wire.iter().find(|p| p[0] & 0x80 == 0 && p[1] == 2).expect("a packet for the server").clone();
    let now = pair.now;
    pair.server().close(now, 0, b"");
    let mut buf = Vec::new();
    while pair.server().poll_transmit(now, 1, &mut buf).is_some() {}
    let client = pair.client.addr;
    let count = answers(&mut pair.server, client, now, &forged_retry(&short[1..9]), 10_000);
    assert!((1..=13).contains(&count), "{count} answers");
}

#[test]
fn a_close_that_got_lost_is_repeated_for_a_peer_that_goes_on() {
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let now = pair.now;
    pair.client().close(now, 42, b"enough");
    pair.lose = vec![pair.wire.len()];
    assert!(pair.flow(true));
    let stream = pair.server().open(Direction::One).expect("allowed");
    assert_eq!(pair.server().write(stream, b"more"), Ok(4));
    pair.run(SECOND);
    let lost = QuicError::Closed { code: 42, reason: "enough".into() };
    assert!(pair.server.events.contains(&Event::Lost(lost)), "{:?}", pair.server.events);
}

#[test]
fn stateless_answers_are_shorter_than_their_questions_and_resets_are_rare() {
    let tuning = Tuning::default();
    let mut server = Endpoint::new(Epoch::new(), &identity(2, 1), Some((tls(1).1, &tuning))).expect("endpoint");
    let meta = Datagram { source: "192.0.2.1:1000".parse().expect("literal"), local: None, ecn: Ecn::NotEct };
    let mut answer = |now: Instant, begin: &[u8], len: usize| {
        let mut packet = begin.to_vec();
        packet.resize(len, 8);
        let mut out = Vec::new();
        let arrival = server.handle_datagram(now, meta, BytesMut::from(&packet[..]), &mut out);
        matches!(arrival, Arrival::Respond(_)).then_some(out.len())
    };
    let now = Instant::from_nanos(1_000_000_000);
    // A version that there is not, and two connection ids of eight bytes (RFC 9000 section 6.1).
    let unknown = [0xc0, 0x5a, 0x5a, 0x5a, 0x5a, 8];
    assert_eq!([40, 1199].map(|len| answer(now, &unknown, len)), [None, None]);
    // One version, and one that is reserved to be ignored (RFC 9000 section 6.3), behind two ids.
    assert_eq!(answer(now, &unknown, 1200), Some(7 + 16 + 2 * 4));
    // A packet of a connection of this engine that is forgotten (RFC 9000 section 10.3).
    let forgotten = [0x40, 2];
    assert_eq!(answer(now, &forgotten, 21), None);
    assert_eq!(answer(now, &forgotten, 22), Some(21));
    assert_eq!(answer(now, &forgotten, 1200), None, "at once after another one");
    assert!(answer(now + SECOND, &forgotten, 1200).is_some_and(|len| len < 1200));
}

#[test]
fn garbage_is_nothing() {
    let mut rng = neater_base::Rng::from_number(3);
    let mut pair = Pair::new(1, &[]);
    pair.run(SECOND);
    let meta = Datagram { source: pair.client.addr, local: None, ecn: Ecn::NotEct };
    for _ in 0..2000 {
        let mut data = vec![0; rng.below(1500) as usize];
        rng.fill(&mut data);
        let mut out = Vec::new();
        match pair.server.endpoint.handle_datagram(pair.now, meta, BytesMut::from(&data[..]), &mut out) {
            Arrival::Nothing | Arrival::Foreign(_) | Arrival::Respond(_) => {}
            other => panic!("{other:?} from garbage"),
        }
        // Never more than three times what came (RFC 9000 section 8.1).
        assert!(out.len() <= 3 * data.len().max(40), "{} for {}", out.len(), data.len());
    }
}
