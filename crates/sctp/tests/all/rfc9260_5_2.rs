//! RFC 9260 section 5.2: INIT, INIT ACK, COOKIE ECHO and COOKIE ACK chunks that are unexpected.

use crate::support::{Log, PORTS, Packet, World, address, kinds, ms, record};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, Event, ReconfigError, SendError, SendOptions};
use neater_sctp_wire::chunk::{CookieAck, CookieEcho, Init, InitAck};
use neater_sctp_wire::parameter::StateCookie;
use neater_sctp_wire::{Cause, Chunk, Packet as Wire, Parameter, Parameters, StreamId, Tag, Tsn};
use std::net::SocketAddr;

fn world() -> World {
    World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)))
}

fn give(w: &mut World, to: usize, from: SocketAddr, tag: Tag, chunks: &[Chunk<'_>]) {
    let bytes = crate::support::packet([PORTS[1 - to], PORTS[to]], tag, chunks);
    w.deliver(to, 0, &Packet { from, to: address(to, 0), bytes, ect: false, whole: true }, false);
}

fn init(tag: u32, parameters: Parameters<'_>) -> Init<'_> {
    Init { tag: Tag(tag), a_rwnd: 50_000, outbound_streams: 3, inbound_streams: 3, initial_tsn: Tsn(tag), parameters }
}

/// What an end sends now: tag, kinds and bytes.
fn answers(w: &mut World, end: usize) -> Vec<(Tag, Vec<u8>, Vec<u8>)> {
    let mut buffer = vec![0; 2000];
    core::iter::from_fn(|| {
        let t = w.ends[end].poll_transmit(w.now, &mut buffer)?;
        let bytes = buffer[..t.len].to_vec();
        Some((Wire::parse(&bytes).unwrap().header.tag, kinds(&bytes), bytes))
    })
    .collect()
}

/// The INIT ACK chunk in a packet: its tag, first TSN and cookie.
fn init_ack(bytes: &[u8]) -> (Tag, Tsn, Vec<u8>) {
    let raw = Wire::parse(bytes).unwrap().chunks().next().unwrap().unwrap();
    let Ok(Chunk::InitAck(ack)) = Chunk::decode(&raw) else { panic!("no INIT ACK chunk") };
    let cookie = ack.0.parameters.iter().flatten().find_map(|p| match p {
        Parameter::StateCookie(c) => Some(c.0.to_vec()),
        _ => None,
    });
    (ack.0.tag, ack.0.initial_tsn, cookie.unwrap())
}

/// Tags by which the ends can be reached.
fn tags(log: &Log) -> [Tag; 2] {
    let log = log.borrow();
    [1, 0].map(|from| {
        let (_, b) = log.iter().rev().find(|(e, _)| *e == from).unwrap();
        Wire::parse(b).unwrap().header.tag
    })
}

fn works(w: &mut World, [a, b]: [AssociationId; 2]) {
    w.send(0, a, 0, b"there");
    w.send(1, b, 0, b"back");
    w.run(Duration::from_secs(3));
    assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1));
}

#[test]
fn section_5_2_1_an_init_in_cookie_wait_is_answered_with_the_tag_that_was_sent() {
    let mut w = world();
    w.tap = Some(Box::new(|_, _| false));
    let log = record(&mut w);
    let keep = w.tap.take();
    w.tap = keep;
    w.connect(0);
    w.flush();
    let ours = {
        let log = log.borrow();
        let raw = Wire::parse(&log[0].1).unwrap().chunks().next().unwrap().unwrap();
        let Ok(Chunk::Init(init)) = Chunk::decode(&raw) else { panic!() };
        (init.tag, init.initial_tsn)
    };
    give(&mut w, 0, address(1, 0), Tag::ZERO, &[init(77, Parameters::EMPTY).into()]);
    let sent = answers(&mut w, 0);
    assert_eq!((sent.len(), sent[0].0, sent[0].1.clone()), (1, Tag(77), vec![2]));
    let (tag, tsn, _) = init_ack(&sent[0].2);
    assert_eq!((tag, tsn), ours, "unchanged");
}

#[test]
fn section_5_2_2_an_init_for_an_association_that_is_up_changes_nothing_by_itself() {
    let mut w = world();
    let log = record(&mut w);
    let ids = w.established();
    w.run(ms(200));
    let before = tags(&log);
    for i in 0..50 {
        give(&mut w, 1, address(0, 0), Tag::ZERO, &[init(1000 + i, Parameters::EMPTY).into()]);
        let sent = answers(&mut w, 1);
        assert_eq!((sent.len(), sent[0].0), (1, Tag(1000 + i)));
        let (tag, ..) = init_ack(&sent[0].2);
        assert_ne!(tag, before[1], "a random tag, not that of the association");
    }
    assert!(!w.saw(1, &Event::Restarted));
    works(&mut w, ids);
    assert_eq!(tags(&log), before);
}

#[test]
fn section_5_2_2_a_restart_must_not_bring_addresses_along() {
    let mut w = world();
    let ids = w.established();
    w.run(ms(200));
    let extra: std::net::IpAddr = "10.7.7.7".parse().unwrap();
    let parameters = [Parameter::from(extra), Parameter::from(address(0, 0).ip())];
    give(&mut w, 1, address(0, 0), Tag::ZERO, &[init(77, Parameters::new(&parameters)).into()]);
    let sent = answers(&mut w, 1);
    assert_eq!((sent[0].0, sent[0].1.clone()), (Tag(77), vec![6]));
    let raw = Wire::parse(&sent[0].2).unwrap().chunks().next().unwrap().unwrap();
    let Ok(Chunk::Abort(abort)) = Chunk::decode(&raw) else { panic!() };
    let Some(Ok(Cause::Restart(restart))) = abort.causes.iter().next() else { panic!("{abort:?}") };
    assert_eq!(restart.addresses.iter().map(Result::unwrap).collect::<Vec<_>>(), [extra], "only the new one");
    works(&mut w, ids);
}

/// What the peer has named before is not new, whether we use it or not.
#[test]
fn section_5_2_2_a_restart_may_bring_addresses_that_no_path_leads_to() {
    let one_path = AssociationConfig { max_paths: 1, ..AssociationConfig::default() };
    let configs = [crate::support::config(0, 2, AssociationConfig::default()), crate::support::config(1, 2, one_path)];
    let links = vec![LinkConfig::delay(ms(10)), LinkConfig::delay(ms(10))];
    let mut w = World::with(1, configs.clone(), links);
    let [_, b] = w.established();
    w.run(ms(200));
    assert_eq!(w.ends[1].paths(b).len(), 1);
    let [client, _] = configs;
    w.ends[0] = neater_sctp::Endpoint::new(client, [9; 32], &[9; 32]);
    let a = w.connect(0);
    w.run(ms(500));
    assert!(w.saw(1, &Event::Restarted), "{:?}", w.events[0]);
    works(&mut w, [a, b]);
}

#[test]
fn section_5_2_3_an_init_ack_that_nobody_waits_for_is_discarded() {
    let mut w = world();
    let log = record(&mut w);
    let ids = w.established();
    w.run(ms(200));
    let cookie = [StateCookie(&[7; 40]).into()];
    let [to_client, to_server] = tags(&log);
    for (end, tag) in [(0, to_client), (1, to_server)] {
        let ack = InitAck(init(99, Parameters::new(&cookie)));
        give(&mut w, end, address(1 - end, 0), tag, &[ack.into()]);
        assert_eq!(answers(&mut w, end).len(), 0);
    }
    works(&mut w, ids);
    assert_eq!(tags(&log), [to_client, to_server]);
}

#[test]
fn section_5_2_4_action_b_both_began_and_the_other_side_changed_its_tag() {
    // The client's INIT gets through late, when the server has sent its own INIT, which was lost:
    // the cookie has the server's tag, and the peer's is unknown to it (M 0 A A).
    let mut w = world();
    w.tap = Some(Box::new(|end, packet| !(end == 1 && kinds(&packet.bytes)[0] == 1)));
    let routes = [w.route(0, 0)];
    let b = w.ends[1].connect(w.now, PORTS[0], &routes).unwrap();
    w.flush();
    let a = w.connect(0);
    w.run(Duration::from_secs(3));
    assert!(w.saw(0, &Event::Connected) && w.saw(1, &Event::Connected));
    assert_eq!((w.ends[0].associations(), w.ends[1].associations()), (1, 1));
    assert_eq!(w.ends[1].stats().accepted, 0, "it is the association that the server opened");
    works(&mut w, [a, b]);
}

#[test]
fn section_5_2_4_action_c_a_cookie_from_before_is_discarded() {
    // The server answers an INIT, then opens an association itself; the late cookie has another tag
    // of the server's, the right tag of the client and no tie tags (X M 0 0).
    let mut w = world();
    let held = std::rc::Rc::new(std::cell::RefCell::new(None::<Packet>));
    let hold = held.clone();
    w.tap = Some(Box::new(move |end, packet| {
        let echo = end == 0 && kinds(&packet.bytes)[0] == CookieEcho::KIND;
        if echo && hold.borrow().is_none() {
            *hold.borrow_mut() = Some(packet.clone());
            return false;
        }
        true
    }));
    let a = w.connect(0);
    w.run(ms(25));
    assert!(held.borrow().is_some(), "on its way for a long time");
    let routes = [w.route(0, 0)];
    let b = w.ends[1].connect(w.now, PORTS[0], &routes).unwrap();
    w.run(Duration::from_secs(5));
    assert!(w.saw(0, &Event::Connected) && w.saw(1, &Event::Connected));
    let late = held.borrow().clone().unwrap();
    w.deliver(1, 0, &late, false);
    assert_eq!(answers(&mut w, 1).len(), 0);
    assert!(!w.saw(1, &Event::Restarted) && w.ends[1].associations() == 1);
    works(&mut w, [a, b]);
}

#[test]
fn section_5_2_4_action_d_the_same_cookie_again_is_acknowledged_again() {
    let mut w = world();
    let log = record(&mut w);
    let a = w.connect(0);
    w.send(0, a, 0, b"early");
    w.run(Duration::from_secs(2));
    let b = w.events[1][0].0;
    assert_eq!(w.read(1, b).len(), 1);
    let echo = log.borrow().iter().find(|(_, b)| kinds(b)[0] == CookieEcho::KIND).unwrap().1.clone();
    for _ in 0..3 {
        let packet = Packet { from: address(0, 0), to: address(1, 0), bytes: echo.clone(), ect: false, whole: true };
        w.deliver(1, 0, &packet, false);
        let sent = answers(&mut w, 1);
        assert!(sent.iter().any(|(_, k, _)| k[0] == CookieAck::KIND), "{sent:?}");
        assert!(
            sent.iter().any(|(_, k, _)| k.contains(&3)),
            "the data that came with it is a copy: a SACK chunk says so"
        );
    }
    assert_eq!((w.read(1, b).len(), w.ends[1].stats().accepted), (0, 1));
    works(&mut w, [a, b]);
}

#[test]
fn section_5_2_4_whatever_is_not_in_the_table_is_discarded() {
    let mut w = world();
    let log = record(&mut w);
    let ids = w.established();
    w.run(ms(200));
    let before = tags(&log);
    // From another source: the cookie of an INIT that the association does not know of, so without
    // tie tags, with both tags new (X X 0 0) - sent from the address of the client.
    let stranger: SocketAddr = "10.0.0.99:9899".parse().unwrap();
    give(&mut w, 1, stranger, Tag::ZERO, &[init(55, Parameters::EMPTY).into()]);
    let sent = answers(&mut w, 1);
    let (tag, _, cookie) = init_ack(&sent[0].2);
    // It is good for the one that it was given to. From the client's address it opens what it
    // describes, elsewhere.
    give(&mut w, 1, address(0, 0), tag, &[CookieEcho { cookie: &cookie }.into()]);
    assert!(!w.saw(1, &Event::Restarted));
    works(&mut w, ids);
    assert_eq!(tags(&log)[1], before[1]);
    // A cookie whose packet has another tag than it names (section 5.1.5, step 3).
    let refused = w.ends[1].stats().cookies_refused;
    give(&mut w, 1, stranger, Tag(tag.0 ^ 1), &[CookieEcho { cookie: &cookie }.into()]);
    assert_eq!(w.ends[1].stats().cookies_refused, refused + 1);
}

#[test]
fn section_5_2_4_a_restart_while_we_shut_down_is_told_so() {
    let mut w = world();
    let log = record(&mut w);
    let [a, b] = w.established();
    w.run(ms(200));
    // The server waits for SHUTDOWN COMPLETE for ever.
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        end == 0 || kinds(&packet.bytes)[0] != 8
    }));
    let now = w.now;
    w.ends[0].shutdown(now, a);
    w.run(ms(100));
    let _ = b;
    // A cookie of an INIT from before the shutdown would restart it; an INIT now is answered by
    // SHUTDOWN ACK (section 9.2).
    give(&mut w, 1, address(0, 0), Tag::ZERO, &[init(77, Parameters::EMPTY).into()]);
    let sent = answers(&mut w, 1);
    assert_eq!(sent.iter().map(|(_, k, _)| k.clone()).collect::<Vec<_>>(), [[8]]);
    // Nothing in an INIT proves its sender: a flood from one source has as many answers in a second
    // as any other.
    let mut repeated = 0;
    for _ in 0..1000 {
        give(&mut w, 1, address(0, 0), Tag::ZERO, &[init(77, Parameters::EMPTY).into()]);
        repeated += answers(&mut w, 1).len();
    }
    assert!((1..100).contains(&repeated), "{repeated} answers");
}

#[test]
fn section_5_2_4_a_cookie_while_we_shut_down_gets_shutdown_ack_and_an_error() {
    let mut w = world();
    record(&mut w);
    let [a, _] = w.established();
    w.run(ms(200));
    give(&mut w, 1, address(0, 0), Tag::ZERO, &[init(77, Parameters::EMPTY).into()]);
    let (tag, _, cookie) = init_ack(&answers(&mut w, 1)[0].2);
    w.tap = Some(Box::new(|end, packet| end == 0 || kinds(&packet.bytes)[0] != 8));
    let now = w.now;
    w.ends[0].shutdown(now, a);
    w.run(ms(100));
    give(&mut w, 1, address(0, 0), tag, &[CookieEcho { cookie: &cookie }.into()]);
    let kinds: Vec<u8> = answers(&mut w, 1).into_iter().flat_map(|(_, k, _)| k).collect();
    assert!(kinds.contains(&8) && kinds.contains(&9) && !kinds.contains(&11), "{kinds:?}");
    assert!(!w.saw(1, &Event::Restarted));
}

/// The client of the world, from nothing, with an association that it opens and data to send with
/// the cookie.
fn again(w: &mut World, life: u8, early: &[u8]) -> AssociationId {
    let config = crate::support::config(0, 1, AssociationConfig::default());
    w.ends[0] = neater_sctp::Endpoint::new(config, [life; 32], &[life; 32]);
    let a = w.connect(0);
    w.send(0, a, 0, early);
    a
}

#[test]
fn section_5_2_4_a_cookie_of_an_earlier_restart_restarts_nothing() {
    let mut w = world();
    let log = record(&mut w);
    let [_, b] = w.established();
    again(&mut w, 77, b"second life");
    w.run(Duration::from_secs(2));
    let echoes = |log: &Log| -> Vec<Vec<u8>> {
        let log = log.borrow();
        log.iter().filter(|(end, b)| *end == 0 && kinds(b)[0] == CookieEcho::KIND).map(|(_, b)| b.clone()).collect()
    };
    let second = echoes(&log).pop().unwrap();
    let a = again(&mut w, 79, b"third life");
    w.run(Duration::from_secs(2));
    let restarts = |w: &World| w.events[1].iter().filter(|(_, e)| *e == Event::Restarted).count();
    assert_eq!(restarts(&w), 2);
    w.read(1, b);
    let packet = Packet { from: address(0, 0), to: address(1, 0), bytes: second, ect: false, whole: true };
    w.deliver(1, 0, &packet, false);
    w.run(Duration::from_secs(1));
    assert_eq!((restarts(&w), w.read(1, b).len()), (2, 0), "a copy from the second life, in the third");
    works(&mut w, [a, b]);
}

#[test]
fn what_came_with_the_cookie_of_a_restart_is_not_given_to_who_does_not_know_of_it_yet() {
    // And commands of an application that is not notified of it are not for the new association.
    let association = AssociationConfig { outlives_restart: false, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    w.run(ms(100));
    // Readable data was reported, and not read.
    w.send(0, a, 0, b"first life");
    w.run(ms(300));
    let held = std::rc::Rc::new(std::cell::RefCell::new(None));
    let keep = held.clone();
    w.tap = Some(Box::new(move |end, packet| {
        let echo = end == 0 && kinds(&packet.bytes)[0] == CookieEcho::KIND;
        if echo {
            *keep.borrow_mut() = Some(packet.clone());
        }
        !echo
    }));
    again(&mut w, 77, b"second life");
    w.run(ms(100));
    w.deliver(1, 0, &held.take().expect("a cookie"), false);
    assert_eq!(w.ends[1].receive(b), None, "it is not of the association that the application knows");
    let late = w.ends[1].send(b, StreamId(0), b"of the first life".to_vec().into(), SendOptions::default());
    assert_eq!(late, Err(SendError::Closed));
    assert_eq!(w.ends[1].reset_outgoing(b, &[StreamId(0)]), Err(ReconfigError::NotEstablished));
    let now = w.now;
    w.ends[1].shutdown(now, b);
    w.ends[1].abort(b, b"the first life");
    let events: Vec<Event> = core::iter::from_fn(|| w.ends[1].poll_event()).map(|(_, e)| e).collect();
    let restarted = events.iter().position(|e| *e == Event::Restarted).expect("told");
    assert!(events[restarted..].contains(&Event::Readable), "{events:?}");
    assert_eq!(w.ends[1].receive(b).map(|m| m.payload), Some(b"second life".to_vec()));
    assert!(w.ends[1].send(b, StreamId(0), b"of the second life".to_vec().into(), SendOptions::default()).is_ok());
    assert_eq!(w.ends[1].reset_outgoing(b, &[StreamId(0)]), Ok(()));
}

#[test]
fn section_5_2_5_a_cookie_ack_that_nobody_waits_for_is_discarded() {
    let mut w = world();
    let log = record(&mut w);
    let ids = w.established();
    w.run(ms(200));
    let tags = tags(&log);
    for (end, tag) in tags.into_iter().enumerate() {
        give(&mut w, end, address(1 - end, 0), tag, &[CookieAck.into()]);
        assert_eq!(answers(&mut w, end).len(), 0);
    }
    let connected = w.events[0].iter().filter(|(_, e)| *e == Event::Connected).count();
    assert_eq!(connected, 1);
    works(&mut w, ids);
}

#[test]
fn section_5_1_data_that_overtakes_cookie_ack_is_taken_for_one() {
    let mut w = world();
    // The COOKIE ACK is lost; data follows it at once.
    let mut lost = 0;
    w.tap = Some(Box::new(move |end, packet| {
        let drop = end == 1 && kinds(&packet.bytes)[0] == CookieAck::KIND && lost == 0;
        lost += i32::from(drop);
        !drop
    }));
    let a = w.connect(0);
    w.run_until(Duration::from_secs(5), |w| w.saw(1, &Event::Accepted));
    let b = w.events[1][0].0;
    w.send(1, b, 0, b"first");
    w.run(ms(300));
    assert_eq!(w.read(0, a).len(), 1);
    // The agreed features must be reported before data is.
    let order: Vec<_> = w.events[0].iter().map(|(_, e)| e).collect();
    let at = |event: &Event| order.iter().position(|e| *e == event);
    assert!(at(&Event::Connected).is_some() && at(&Event::Connected) < at(&Event::Readable), "{order:?}");
    w.run(Duration::from_secs(5));
    works(&mut w, [a, b]);
}

#[test]
fn section_5_2_4_a_restart_does_not_make_us_forget_that_we_are_ending() {
    let mut w = world();
    let [_, b] = w.established();
    w.run(ms(100));
    // The client is gone; the server has something to send and then wants to end.
    w.ends[0] =
        neater_sctp::Endpoint::new(crate::support::config(0, 1, AssociationConfig::default()), [9; 32], &[9; 32]);
    w.send(1, b, 0, b"last words");
    let now = w.now;
    w.ends[1].shutdown(now, b);
    let a = w.connect(0);
    w.run(Duration::from_secs(10));
    assert!(w.saw(1, &Event::Restarted));
    assert_eq!(w.closed(1), Some(neater_sctp::CloseReason::Shutdown));
    let _ = a;
}

/// For programs that send different data on different associations.
#[test]
fn section_5_2_4_what_waits_is_given_up_at_a_restart_where_that_was_asked_for() {
    let association = AssociationConfig { outlives_restart: false, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [_, b] = w.established();
    w.run(ms(100));
    // The client is gone; more than the window takes waits for it, and the end after that.
    w.ends[0] =
        neater_sctp::Endpoint::new(crate::support::config(0, 1, AssociationConfig::default()), [9; 32], &[9; 32]);
    for i in 0..50 {
        w.send(1, b, 0, &[i; 1000]);
    }
    let now = w.now;
    w.ends[1].shutdown(now, b);
    let a = w.connect(0);
    w.run(Duration::from_secs(10));
    assert!(w.saw(1, &Event::Restarted));
    assert_eq!(w.events[1].iter().filter(|(_, e)| matches!(e, Event::Failed { .. })).count(), 50);
    assert_eq!(w.closed(1), None, "the end was of the other one");
    assert!(w.read(0, a).is_empty());
    works(&mut w, [a, b]);
}
