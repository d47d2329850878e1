//! What an owner of associations on behalf of others needs: an engine whose connections are
//! streams.

use crate::support::raw::{FIRST, Raw, data};
use crate::support::watch::reports;
use crate::support::{PORTS, World, config, ms};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{
    AddressError, AssociationConfig, CloseReason, Config, Endpoint, Event, INITIAL_BUFFER, Layer, LayerId, PathId,
    ReconfigError, Reliability, Route, SendError, SendOptions,
};
use neater_sctp_wire::StreamId;

fn world() -> World {
    World::new(6, AssociationConfig::default(), LinkConfig::delay(ms(10)))
}

#[test]
fn who_is_there_is_told() {
    let mut w = world();
    assert_eq!((w.ends[0].port(), w.ends[1].port()), (PORTS[0], PORTS[1]));
    let route = w.route(1, 0);
    assert!(!w.ends[0].is_peer(route, PORTS[1]));
    let [a, b] = w.established();
    assert!(w.ends[0].is_peer(route, PORTS[1]) && !w.ends[0].is_peer(route, PORTS[1] + 1));
    assert_eq!(w.ends[0].peer(a), Some((route, PORTS[1])));
    assert_eq!(w.ends[1].peer(b), Some((w.route(0, 0), PORTS[0])));
    assert!(!w.ends[0].is_over(a) && w.ends[0].window(a) > 4000);
    w.ends[0].abort(a, b"");
    assert!(w.ends[0].is_over(a), "before its last event was taken");
    assert!(format!("{a:?}").starts_with("association "));
    w.run(ms(100));
    w.ends[0].release(a);
    assert_eq!((w.ends[0].peer(a), w.ends[0].window(a), w.ends[0].is_over(a)), (None, 0, true));
    assert!(!w.ends[0].is_peer(route, PORTS[1]) && w.ends[0].is_stream_idle(a, StreamId(0)));
}

#[test]
fn one_endpoint_can_answer_for_any_port() {
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.server.set_port(7);
    raw.init(9899);
    assert!(raw.take().is_empty());
    assert_eq!(raw.server.stats().wrong_port, 1);
    raw.server.set_port(PORTS[1]);
    raw.init(9899);
    assert_eq!(raw.take().len(), 1);
}

#[test]
fn a_server_that_takes_no_more_keeps_what_it_has() {
    let mut w = world();
    let [a, b] = w.established();
    w.ends[1].set_accept(false);
    w.send(0, a, 0, b"still here");
    w.run(ms(500));
    assert_eq!(w.read(1, b).len(), 1);
    // Another client is refused by ABORT, and a cookie that was given before is worth nothing.
    let mut raw = Raw::listening(AssociationConfig::default());
    raw.server.set_accept(false);
    raw.init(9899);
    assert_eq!(crate::support::kinds(&raw.take()[0]), [6]);
    assert_eq!(raw.server.stats().cookies_sent, 0);
}

#[test]
fn a_stream_is_idle_when_everything_on_it_is_acknowledged_or_given_up() {
    let mut w = world();
    let [a, b] = w.established();
    let idle = |w: &World, n: u16| w.ends[0].is_stream_idle(a, StreamId(n));
    assert!(idle(&w, 3));
    w.send(0, a, 3, &[1; 5000]);
    assert!(!idle(&w, 3) && idle(&w, 4), "it waits");
    w.flush();
    assert!(!idle(&w, 3), "it is under way");
    w.run(Duration::from_secs(1));
    assert!(idle(&w, 3));
    w.read(1, b);
    // Given up: nothing of it gets through.
    w.tap = Some(Box::new(|end, _| end == 1));
    let reliability = Reliability::Until(w.now + ms(50));
    let options = SendOptions { reliability, ..SendOptions::default() };
    w.ends[0].send(a, StreamId(4), vec![1; 100].into(), options).unwrap();
    w.run(ms(40));
    assert!(!idle(&w, 4));
    w.run(ms(40));
    w.tap = None;
    w.run(Duration::from_secs(5));
    assert!(idle(&w, 4));
}

#[test]
fn patience_ends_what_is_outstanding_for_too_long_and_nothing_else() {
    let mut w = world();
    let [a, _] = w.established();
    w.ends[0].set_patience(a, Some(Duration::from_secs(3)));
    // Nothing is outstanding: no deadline runs.
    w.run(Duration::from_secs(20));
    assert_eq!(w.closed(0), None);
    w.tap = Some(Box::new(|_, _| false));
    let begin = w.now;
    w.send(0, a, 0, b"is anybody there?");
    w.run_until(Duration::from_secs(30), |w| w.closed(0).is_some());
    assert_eq!(w.closed(0), Some(CloseReason::Unreachable));
    let took = w.now - begin;
    assert!((ms(3000)..ms(3200)).contains(&took), "{took:?}");
    assert!(w.events[0].iter().any(|(_, e)| matches!(e, Event::Failed { sent: true, .. })));
}

#[test]
fn patience_begins_anew_with_every_acknowledgment_and_waits_for_a_closed_window() {
    let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() });
    let id = raw.id.unwrap();
    raw.server.set_patience(id, Some(Duration::from_secs(4)));
    raw.send(&[100; 5]);
    raw.take();
    for count in 1..=4 {
        raw.wait(Duration::from_secs(3));
        raw.sack(count, 100_000, &[]);
        assert_eq!(raw.closed(), None, "{count}");
    }
    // The peer answers and has no room (RFC 9260 section 6.1, rule A).
    raw.sack(5, 0, &[]);
    raw.send(&[100]);
    for _ in 0..10 {
        raw.wait(Duration::from_secs(3));
        raw.sack(5, 0, &[]);
    }
    assert_eq!(raw.closed(), None);
    // It has room again, and is silent.
    raw.sack(5, 100_000, &[]);
    raw.wait(ms(3900));
    assert_eq!(raw.closed(), None);
    raw.wait(ms(200));
    assert_eq!(raw.closed(), Some(CloseReason::Unreachable));
}

#[test]
fn silence_ends_an_association_whose_peer_says_nothing_and_any_word_will_do() {
    let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() });
    let (id, now) = (raw.id.unwrap(), raw.now);
    raw.server.set_silence(now, id, Some(Duration::from_secs(10)));
    for _ in 0..5 {
        raw.wait(Duration::from_secs(9));
        raw.chunk(&neater_sctp_wire::chunk::Heartbeat { info: b"\0\x01\0\x08abcd" });
        assert_eq!(raw.closed(), None);
    }
    raw.take();
    raw.wait(ms(10_100));
    assert_eq!(raw.closed(), Some(CloseReason::Unreachable));
    assert_eq!((raw.server.associations(), raw.server.next_timeout()), (0, None));
    // It can be taken back.
    let mut raw = Raw::connected(AssociationConfig { heartbeat_interval: None, ..AssociationConfig::rfc9260() });
    let (id, now) = (raw.id.unwrap(), raw.now);
    raw.server.set_silence(now, id, Some(Duration::from_secs(10)));
    raw.server.set_silence(now, id, None);
    raw.wait(Duration::from_secs(100));
    assert_eq!(raw.closed(), None);
}

#[test]
fn while_it_opens_nobody_is_silent() {
    let mut w = world();
    w.tap = Some(Box::new(|_, _| false));
    let a = w.connect(0);
    let now = w.now;
    w.ends[0].set_silence(now, a, Some(ms(500)));
    w.run(Duration::from_secs(3));
    assert_eq!(w.closed(0), None, "the handshake has its own timer");
}

#[test]
fn what_the_program_holds_is_not_room_for_the_peer() {
    let mut raw = Raw::connected(AssociationConfig { receive_buffer: 40_000, ..AssociationConfig::rfc9260() });
    let id = raw.id.unwrap();
    let window = |raw: &mut Raw, tsn: u32| {
        let chunk = neater_sctp_wire::chunk::Data { unordered: true, ..data(FIRST + tsn, true, true, &[1; 100]) };
        raw.chunk(&chunk);
        let told = reports(&raw.wait(ms(300))).pop().unwrap().window;
        raw.read();
        told
    };
    let all = window(&mut raw, 0);
    raw.server.set_held(id, 30_000);
    assert_eq!(window(&mut raw, 1), all - 30_000);
    raw.server.set_held(id, 39_500);
    assert_eq!(window(&mut raw, 2), 0, "less than a packet is not worth telling");
    // It lets go: the peer is notified at once.
    raw.take();
    raw.server.set_held(id, 0);
    assert_eq!(reports(&raw.take()).pop().map(|r| r.window), Some(40_000));
    // A little is no news.
    raw.server.set_held(id, 1000);
    raw.server.set_held(id, 0);
    assert!(raw.take().is_empty());
}

#[test]
fn the_send_buffer_can_be_made_smaller_and_larger() {
    let mut w = world();
    let [a, b] = w.established();
    w.ends[0].set_send_buffer(a, 10_000);
    let send = |w: &mut World| w.ends[0].send(a, StreamId(0), vec![1; 4000].into(), SendOptions::default());
    assert!(send(&mut w).is_ok() && send(&mut w).is_ok());
    assert_eq!(send(&mut w), Err(SendError::Blocked));
    assert!(!w.saw(0, &Event::Writable));
    w.ends[0].set_send_buffer(a, INITIAL_BUFFER as usize);
    w.flush();
    assert!(w.saw(0, &Event::Writable), "there is room now");
    assert!(send(&mut w).is_ok());
    w.run(Duration::from_secs(1));
    assert_eq!(w.read(1, b).len(), 3);
    // Something is always taken when nothing waits.
    w.ends[0].set_send_buffer(a, 10);
    assert!(send(&mut w).is_ok());
}

#[test]
fn so_many_messages_may_wait_and_no_more() {
    let config = AssociationConfig { max_messages: 3, ..AssociationConfig::default() };
    let mut w = World::new(6, config, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    // The pace lets some leave; a peer that answers nothing stops them.
    w.tap = Some(Box::new(|_, _| false));
    let mut taken = 0;
    let blocked = loop {
        match w.ends[0].send(a, StreamId(0), vec![1; 10_000].into(), SendOptions::default()) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000);
        w.flush();
    };
    assert_eq!(blocked, SendError::Blocked);
    w.tap = None;
    w.run(Duration::from_secs(5));
    assert!(w.saw(0, &Event::Writable));
    assert_eq!(w.read(1, b).len(), taken);
}

#[test]
fn deadlines_of_messages_that_are_gone_are_forgotten() {
    let mut w = world();
    let [a, b] = w.established();
    let far = w.now + Duration::from_secs(100_000);
    let options = SendOptions { reliability: Reliability::Until(far), ..SendOptions::default() };
    for round in 0..60 {
        for _ in 0..100 {
            w.ends[0].send(a, StreamId(round % 7), vec![1; 20].into(), options).unwrap();
        }
        w.run(ms(100));
        w.read(1, b);
    }
    // Each deadline is in the debug form of the endpoint once; 6,000 messages had one.
    let kept = format!("{:?}", w.ends[0]).matches("MessageId(").count();
    assert!(kept <= 1200, "{kept}");
}

#[test]
fn of_what_is_not_there_nothing_is_done() {
    let mut w = world();
    let [a, _] = w.established();
    assert!(!w.ends[0].set_primary(a, PathId(9)) && w.ends[0].set_primary(a, PathId(0)));
    assert!(!w.ends[0].set_stream_value(a, StreamId(60_000), 1) && w.ends[0].set_stream_value(a, StreamId(0), 1));
    w.ends[0].release(a);
    w.run(ms(100));
    let e = &mut w.ends[0];
    assert_eq!(e.send(a, StreamId(0), vec![1].into(), SendOptions::default()), Err(SendError::Closed));
    assert_eq!(e.reset_outgoing(a, &[]), Err(ReconfigError::NotEstablished));
    assert_eq!(e.reset_incoming(a, &[]), Err(ReconfigError::NotEstablished));
    assert_eq!(e.add_outgoing(a, 1), Err(ReconfigError::NotEstablished));
    assert_eq!(e.add_incoming(a, 1), Err(ReconfigError::NotEstablished));
    assert_eq!(e.change_addresses(a, &[]), Err(AddressError::NotEstablished));
    assert!(e.receive(a).is_none() && e.paths(a).is_empty() && e.association_stats(a).is_none());
    assert_eq!((e.buffered(a), e.streams(a), e.agreed(a)), (0, (0, 0), None));
    assert!(!e.set_primary(a, PathId(0)) && !e.set_stream_value(a, StreamId(0), 1));
    assert!(!e.use_key(a, 0) && !e.remove_key(a, 0));
    e.recycle(a, Vec::new());
    e.release(a);
    assert_eq!((e.kept(), e.is_idle()), (0, true));
}

#[test]
fn everything_that_can_go_wrong_says_what_it_was() {
    let closed = [
        (CloseReason::Shutdown, "shut down"),
        (CloseReason::Aborted, "from this side"),
        (CloseReason::PeerAborted { cause: None, reason: Vec::new() }, "the peer aborted the association"),
        (
            CloseReason::PeerAborted { cause: Some(12), reason: b"en\xffough\n".to_vec() },
            "(error cause 12): en\u{fffd}ough\\n",
        ),
        (CloseReason::Unreachable, "does not answer"),
        (CloseReason::PeerMisbehaved("two beginnings"), "two beginnings"),
        (CloseReason::Refused("no cookie"), "no cookie"),
        (CloseReason::ShutdownTimeout, "too long"),
    ];
    for (reason, text) in closed {
        assert!(reason.to_string().ends_with(text) || reason.to_string().contains(text), "{reason}");
    }
    let sends = [
        (SendError::Closed, "over"),
        (SendError::ShuttingDown, "no more messages"),
        (SendError::Blocked, "full"),
        (SendError::Empty, "at least one byte"),
        (SendError::TooLong { most: 77 }, "77"),
        (SendError::NoSuchStream { streams: 5 }, "only 5"),
        (SendError::NotPartiallyReliable, "RFC 3758"),
    ];
    sends.iter().for_each(|(error, text)| assert!(error.to_string().contains(text), "{error}"));
    let reconfigs = [
        (ReconfigError::NotEstablished, "not established"),
        (ReconfigError::NotSupported, "RFC 6525"),
        (ReconfigError::Busy, "under way"),
        (ReconfigError::Streams, "65,535"),
    ];
    reconfigs.iter().for_each(|(error, text)| assert!(error.to_string().contains(text), "{error}"));
    let addresses = [AddressError::NotEstablished, AddressError::NotSupported, AddressError::TooMany];
    let all: std::collections::BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(all.len(), 3);
}

#[test]
fn a_layer_is_never_narrower_than_ipv4_guarantees_and_packets_have_whole_words() {
    assert_eq!(Layer { mtu: 100, overhead: 48, ..Layer::udp() }.room(), 456);
    assert_eq!(Layer { mtu: 20, overhead: 48, ..Layer::udp() }.room(), 456, "more around it than fits into it");
    assert_eq!(Layer { mtu: 1501, overhead: 28, ..Layer::udp() }.room(), 1472);
}

#[test]
#[should_panic(expected = "needs a packet layer")]
fn an_endpoint_without_a_layer_is_a_mistake() {
    let _ = Endpoint::new(Config { layers: Vec::new(), ..Config::default() }, [0; 32], &[0; 32]);
}

#[test]
fn many_associations_share_an_endpoint_by_turns_and_idle_deadlines_do_not_pile_up() {
    let server = config(1, 1, AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() });
    // A window that lets hundreds of packets leave at once.
    let mut eager = AssociationConfig::default();
    eager.recovery.initial_window = neater_cc::InitialWindow::Bytes(1_000_000);
    eager.recovery.burst = neater_sctp::Burst::Unlimited;
    let mut w = World::with(8, [config(0, 1, eager), server], vec![LinkConfig::delay(ms(1))]);
    // One sends, and others begin, to hosts that are not there.
    let [a, b] = w.established();
    let now = w.now;
    let far: Vec<_> = (0..5u16)
        .map(|i| {
            let remote = format!("10.0.0.{}:9899", 50 + i).parse().unwrap();
            w.ends[0].connect(now, PORTS[1], &[Route { layer: LayerId(0), remote }]).unwrap()
        })
        .collect();
    for _ in 0..300 {
        w.send(0, a, 0, &[1; 1000]);
    }
    let mut buffer = vec![0; 2000];
    let mut to: Vec<bool> = Vec::new();
    while let Some(t) = w.ends[0].poll_transmit(w.now, &mut buffer) {
        to.push(t.route.remote == crate::support::address(1, 0));
    }
    assert!(to.iter().filter(|sender| **sender).count() > 200, "{}", to.len());
    let first = to.iter().position(|sender| !*sender).unwrap();
    assert!(first <= 64, "after 64 packets the others have their turn: {first}");
    w.run(Duration::from_secs(400));
    assert!(far.iter().all(|id| w.ends[0].is_over(*id)), "nobody is there");
    far.iter().for_each(|id| w.ends[0].release(*id));
    w.read(1, b);
    w.ends[0].release(a);
    w.run(Duration::from_secs(1));
    assert_eq!((w.ends[0].kept(), w.ends[0].next_timeout(), w.ends[0].is_idle()), (0, None, true));
}
