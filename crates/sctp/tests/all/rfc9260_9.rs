//! RFC 9260 section 9: the end of an association, in every state and with every packet lost.

use crate::support::raw::Raw;
use crate::support::{Log, PORTS, Packet, World, address, kinds, ms, record};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, CloseReason, Event, SendError, SendOptions};
use neater_sctp_wire::chunk::{Data, Sack, Shutdown, ShutdownAck, ShutdownComplete};
use neater_sctp_wire::{Array, Chunk, Packet as Wire, Ppid, Ssn, StreamId, Tag, Tsn};

fn world() -> (World, [AssociationId; 2], Log) {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let log = record(&mut w);
    let ids = w.established();
    w.run(ms(200));
    (w, ids, log)
}

fn tags(log: &Log) -> [Tag; 2] {
    let log = log.borrow();
    [1, 0].map(|from| {
        let (_, b) = log.iter().rev().find(|(e, _)| *e == from).unwrap();
        Wire::parse(b).unwrap().header.tag
    })
}

fn give(w: &mut World, to: usize, tag: Tag, chunks: &[Chunk<'_>]) {
    let bytes = crate::support::packet([PORTS[1 - to], PORTS[to]], tag, chunks);
    w.deliver(to, 0, &Packet { from: address(1 - to, 0), to: address(to, 0), bytes, ect: false, whole: true }, false);
}

/// Drops the first `count` packets of `end` that begin with this chunk.
fn lose(w: &mut World, end: usize, kind: u8, mut count: u32) -> Log {
    let log = Log::default();
    let seen = log.clone();
    w.tap = Some(Box::new(move |e, packet| {
        seen.borrow_mut().push((e, packet.bytes.clone()));
        let drop = e == end && kinds(&packet.bytes)[0] == kind && count > 0;
        count -= u32::from(drop);
        !drop
    }));
    log
}

fn shutdown(w: &mut World, end: usize, id: AssociationId) {
    let now = w.now;
    w.ends[end].shutdown(now, id);
}

fn good(w: &World) {
    assert_eq!((w.closed(0), w.closed(1)), (Some(CloseReason::Shutdown), Some(CloseReason::Shutdown)));
    assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0));
    assert_eq!((w.ends[0].next_timeout(), w.ends[1].next_timeout()), (None, None));
}

#[test]
fn each_chunk_of_the_shutdown_is_sent_again_when_it_is_lost() {
    for (end, kind) in [(0, Shutdown::KIND), (1, ShutdownAck::KIND), (0, ShutdownComplete::KIND)] {
        for count in [1, 3] {
            let (mut w, [a, _], _) = world();
            let log = lose(&mut w, end, kind, count);
            shutdown(&mut w, 0, a);
            w.run(Duration::from_secs(30));
            good(&w);
            let sent = log.borrow().iter().filter(|(e, b)| *e == end && kinds(b)[0] == kind).count();
            assert!(sent > count as usize, "{kind}");
        }
    }
}

#[test]
fn a_lost_shutdown_complete_is_made_up_for_by_whoever_knows_nothing_any_more() {
    // Section 8.4, rule 5: SHUTDOWN ACK out of the blue is answered with the tag reflected.
    let (mut w, [a, _], _) = world();
    let log = lose(&mut w, 0, ShutdownComplete::KIND, 1);
    shutdown(&mut w, 0, a);
    w.run(Duration::from_secs(10));
    good(&w);
    let log = log.borrow();
    let complete: Vec<_> = log.iter().filter(|(e, b)| *e == 0 && kinds(b)[0] == ShutdownComplete::KIND).collect();
    assert_eq!(complete.len(), 2);
    assert_eq!((complete[0].1[13], complete[1].1[13]), (0, 1), "the T bit");
}

#[test]
fn a_peer_that_does_not_answer_shutdown_is_given_up_after_association_max_retrans() {
    let (mut w, [a, _], _) = world();
    let log = lose(&mut w, 0, Shutdown::KIND, u32::MAX);
    shutdown(&mut w, 0, a);
    w.run(Duration::from_secs(1000));
    assert_eq!(w.closed(0), Some(CloseReason::Unreachable));
    let sent = log.borrow().iter().filter(|(e, b)| *e == 0 && kinds(b)[0] == Shutdown::KIND).count();
    assert_eq!(sent, 11, "Association.Max.Retrans is 10");
}

#[test]
fn both_at_once() {
    let (mut w, [a, b], log) = world();
    shutdown(&mut w, 0, a);
    shutdown(&mut w, 1, b);
    w.run(Duration::from_secs(5));
    good(&w);
    let log = log.borrow();
    let count = |kind| log.iter().filter(|(_, b)| kinds(b)[0] == kind).count();
    assert_eq!(
        (count(Shutdown::KIND), count(ShutdownAck::KIND)),
        (2, 2),
        "SHUTDOWN-SENT to SHUTDOWN-ACK-SENT on both sides"
    );
}

#[test]
fn after_shutdown_nothing_new_is_taken_and_everything_old_is_delivered() {
    let (mut w, [a, b], _) = world();
    w.send(0, a, 0, &[1; 30_000]);
    w.send(1, b, 0, &[2; 30_000]);
    shutdown(&mut w, 0, a);
    let refused = w.ends[0].send(a, StreamId(0), b"more"[..].into(), SendOptions::default());
    assert_eq!(refused, Err(SendError::ShuttingDown));
    w.run(ms(25));
    w.run_until(Duration::from_secs(5), |w| w.saw(1, &Event::PeerShutdown));
    let refused = w.ends[1].send(b, StreamId(0), b"more"[..].into(), SendOptions::default());
    assert_eq!(refused, Err(SendError::ShuttingDown), "in SHUTDOWN-RECEIVED too");
    w.run(Duration::from_secs(5));
    assert_eq!((w.read(0, a).len(), w.read(1, b).len()), (1, 1));
    w.flush();
    good(&w);
}

#[test]
fn data_in_shutdown_sent_is_acknowledged_by_shutdown_at_once() {
    // Packets come one by one.
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::rate(10_000_000, ms(10)));
    let log = record(&mut w);
    let [a, b] = w.established();
    w.run(ms(200));
    // The server's data keeps coming after our SHUTDOWN.
    let payload = vec![2; 100_000];
    w.send(1, b, 0, &payload);
    shutdown(&mut w, 0, a);
    w.run(Duration::from_secs(10));
    let log = log.borrow();
    let first = log.iter().position(|(e, b)| *e == 0 && kinds(b).contains(&Shutdown::KIND)).unwrap();
    let after = &log[first + 1..];
    let data = after.iter().filter(|(e, b)| *e == 1 && kinds(b).contains(&64)).count();
    let said = after.iter().filter(|(e, b)| *e == 0 && kinds(b).contains(&Shutdown::KIND)).count();
    assert!(data > 20 && said >= data, "{data} packets, {said} SHUTDOWN chunks");
    drop(log);
    assert_eq!(w.read(0, a).iter().map(|m| m.payload.len()).sum::<usize>(), 100_000);
    w.flush();
    good(&w);
}

#[test]
fn a_shutdown_that_takes_too_long_is_ended_by_the_guard() {
    // A peer that goes on sending and never answers SHUTDOWN: T5-shutdown-guard is five times
    // RTO.Max.
    let mut w = World::new(1, AssociationConfig::rfc9260(), LinkConfig::delay(ms(10)));
    let log = record(&mut w);
    let [a, _] = w.established();
    w.run(ms(200));
    let tag = tags(&log)[0];
    let ack = log.borrow().iter().find(|(_, b)| kinds(b)[0] == 2).unwrap().1.clone();
    let first = u32::from_be_bytes(ack[28..32].try_into().unwrap());
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        seen.borrow_mut().push((end, packet.bytes.clone()));
        false
    }));
    shutdown(&mut w, 0, a);
    for i in 0..290u32 {
        let data =
            Data { payload: b"never", ..Data::whole(Tsn(first.wrapping_add(i)), StreamId(0), Ssn(i as u16), Ppid(0)) };
        give(&mut w, 0, tag, &[data.into()]);
        w.run(Duration::from_secs(1));
        assert_eq!(w.closed(0), None, "after {i} s");
    }
    w.run(Duration::from_secs(20));
    assert_eq!(w.closed(0), Some(CloseReason::ShutdownTimeout));
    assert_eq!(kinds(&log.borrow().last().unwrap().1), [6], "and the peer is told by ABORT");
}

#[test]
fn shutdown_complete_counts_only_in_shutdown_ack_sent() {
    let (mut w, ids, log) = world();
    let [to_client, to_server] = tags(&log);
    for (end, tag) in [(0, to_client), (1, to_server)] {
        give(&mut w, end, tag, &[ShutdownComplete { reflected: false }.into()]);
        give(&mut w, end, tag, &[ShutdownAck.into()]);
    }
    w.run(ms(100));
    assert_eq!((w.closed(0), w.closed(1)), (None, None));
    w.send(0, ids[0], 0, b"x");
    w.run(ms(300));
    assert_eq!(w.read(1, ids[1]).len(), 1);
}

#[test]
fn the_t_bit_decides_which_tag_shutdown_complete_has() {
    // Section 8.5.1 C.
    for (reflected, right) in [(false, true), (true, true), (false, false), (true, false)] {
        let (mut w, [a, _], log) = world();
        let [to_client, to_server] = tags(&log);
        w.tap = Some(Box::new(|end, packet| !(end == 0 && kinds(&packet.bytes)[0] == ShutdownComplete::KIND)));
        shutdown(&mut w, 0, a);
        w.run(ms(100));
        assert_eq!(w.closed(1), None, "it waits for SHUTDOWN COMPLETE");
        let tag = if reflected == right { to_client } else { to_server };
        give(&mut w, 1, tag, &[ShutdownComplete { reflected }.into()]);
        w.flush();
        assert_eq!(w.closed(1).is_some(), right, "reflected: {reflected}");
    }
}

#[test]
fn shutdown_before_the_association_is_up() {
    // In COOKIE-WAIT with nothing to send: the INIT is simply forgotten.
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let a = w.connect(0);
    shutdown(&mut w, 0, a);
    w.run(Duration::from_secs(5));
    assert_eq!((w.closed(0), w.ends[0].kept(), w.ends[1].kept()), (Some(CloseReason::Aborted), 0, 0));
    // With data to send it is sent first, in COOKIE-WAIT and in COOKIE-ECHOED.
    for delay in [0, 25] {
        let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
        let a = w.connect(0);
        w.send(0, a, 0, b"hello and goodbye");
        w.run(ms(delay));
        shutdown(&mut w, 0, a);
        w.run(Duration::from_secs(5));
        let b = w.events[1][0].0;
        assert_eq!(w.read(1, b).len(), 1, "{delay}");
        w.flush();
        good(&w);
    }
}

#[test]
fn a_shutdown_for_an_association_that_is_not_up_is_ignored() {
    let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
    let log = record(&mut w);
    let a = w.connect(0);
    w.flush();
    let raw = log.borrow()[0].1.clone();
    let tag = Tag(u32::from_be_bytes(raw[16..20].try_into().unwrap()));
    give(&mut w, 0, tag, &[Shutdown { cumulative: Tsn(1) }.into()]);
    w.run(Duration::from_secs(2));
    assert!(w.saw(0, &Event::Connected) && w.closed(0).is_none());
    let _ = a;
}

#[test]
fn abort_in_every_state_ends_both_sides_and_leaves_nothing() {
    for (step, name) in
        ["cookie wait", "cookie echoed", "established", "pending", "sent", "received"].iter().enumerate()
    {
        for who in 0..2 {
            let mut w = World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)));
            let a = w.connect(0);
            w.run(ms([5, 25, 60, 60, 60, 60][step]));
            let b = w.events[1].iter().find(|(_, e)| *e == Event::Accepted).map(|(id, _)| *id);
            if step >= 3 {
                if step == 3 {
                    w.send(0, a, 0, &[0; 50_000]);
                }
                shutdown(&mut w, 0, a);
                w.run(ms(if step == 5 { 12 } else { 2 }));
            }
            match (who, b) {
                (0, _) => w.ends[0].abort(a, b"now"),
                (_, Some(b)) => w.ends[1].abort(b, b"now"),
                _ => continue,
            }
            w.run(Duration::from_secs(2));
            let kept = w.ends[1].kept();
            assert_eq!((w.ends[0].kept(), kept), (0, 0), "{name} {who}: {:?}", w.events);
        }
    }
}

/// Straight over IP, what belongs to no association may be another program's.
#[test]
fn a_last_word_that_was_lost_is_said_again_even_where_strangers_are_left_to_others() {
    let association = AssociationConfig::default;
    let mut configs = [0, 1].map(|end| crate::support::config(end, 1, association()));
    configs[0].reserved = true;
    let mut w = World::with(1, configs, vec![LinkConfig::delay(ms(10))]);
    let [a, _] = w.established();
    w.run(ms(200));
    lose(&mut w, 0, ShutdownComplete::KIND, 1);
    shutdown(&mut w, 0, a);
    w.run(Duration::from_secs(3));
    assert_eq!([0, 1].map(|end| w.closed(end)), [0; 2].map(|_| Some(CloseReason::Shutdown)));
    assert_eq!(w.ends[1].kept(), 0);
    // A tag that was never ours gets no answer.
    let log = record(&mut w);
    give(&mut w, 0, Tag(12_345), &[ShutdownAck.into()]);
    w.run(ms(100));
    assert!(log.borrow().is_empty());
}

#[test]
fn an_association_whose_layer_below_is_gone_ends_without_a_packet_and_reports_what_is_lost() {
    let (mut w, [a, _], log) = world();
    w.send(0, a, 0, b"lost");
    assert!(!w.ends[0].is_shut(a));
    let sent = |log: &Log| log.borrow().iter().filter(|(end, _)| *end == 0).count();
    let before = sent(&log);
    w.ends[0].end(a, CloseReason::Unreachable);
    w.flush();
    assert_eq!((w.closed(0), sent(&log)), (Some(CloseReason::Unreachable), before));
    let failed = w.events[0].iter().filter(|(_, e)| matches!(e, Event::Failed { .. })).count();
    assert_eq!((failed, w.ends[0].kept()), (1, 0));
    // An association that is over does not end again.
    w.ends[0].end(a, CloseReason::Shutdown);
    w.flush();
    assert_eq!(w.closed(0), Some(CloseReason::Unreachable));
}

#[test]
fn when_only_the_last_chunks_of_the_shutdown_are_missing_is_known() {
    let (mut w, [a, b], _) = world();
    lose(&mut w, 0, ShutdownComplete::KIND, u32::MAX);
    shutdown(&mut w, 0, a);
    w.flush();
    assert_eq!((w.ends[0].is_shut(a), w.ends[1].is_shut(b)), (true, false), "SHUTDOWN-SENT");
    w.run(ms(100));
    assert_eq!((w.ends[0].is_shut(a), w.ends[1].is_shut(b)), (false, true), "SHUTDOWN-ACK-SENT");
    w.ends[1].end(b, CloseReason::Shutdown);
    w.flush();
    assert_eq!((w.closed(0), w.closed(1)), (Some(CloseReason::Shutdown), Some(CloseReason::Shutdown)));
}

/// pion, webrtc-rs and str0m put a TSN of their own data into a SHUTDOWN chunk.
#[test]
fn a_shutdown_chunk_with_a_tsn_that_is_none_of_ours_acknowledges_nothing_and_ends_the_association_in_order() {
    let is = |packets: &[Vec<u8>], kind: u8| packets.iter().any(|p| kinds(p).contains(&kind));
    for messages in [0u32, 3] {
        for offset in [messages, messages + 1, 100, 1 << 30, u32::MAX / 2, u32::MAX / 2 + 2, 3 << 30, u32::MAX - 7] {
            let case = format!("{messages} messages, {offset}");
            let mut raw = Raw::connected(AssociationConfig::rfc9260());
            let id = raw.id.unwrap();
            for _ in 0..messages {
                raw.server.send(id, StreamId(0), b"x".as_slice().into(), SendOptions::default()).unwrap();
            }
            assert_eq!(is(&raw.take(), Data::KIND), messages > 0, "{case}");
            raw.chunk(&Shutdown { cumulative: raw.initial.plus(offset) });
            assert_eq!(raw.closed(), None, "{case}");
            assert_eq!(raw.server.buffered(id), messages as usize, "{case}: nothing was acknowledged");
            if messages > 0 {
                let sent = raw.wait(Duration::from_secs(5));
                assert!(is(&sent, Data::KIND) && !is(&sent, ShutdownAck::KIND), "{case}: it is sent again");
                let cumulative = raw.initial.plus(messages - 1);
                raw.chunk(&Sack {
                    cumulative,
                    a_rwnd: 1_000,
                    gaps: Array::EMPTY,
                    duplicates: Array::EMPTY,
                    packets: 0,
                });
            }
            assert!(is(&raw.take(), ShutdownAck::KIND), "{case}");
            raw.chunk(&ShutdownComplete { reflected: false });
            assert_eq!((raw.closed(), raw.server.kept()), (Some(CloseReason::Shutdown), 0), "{case}");
        }
    }
}

#[test]
fn a_shutdown_chunk_acknowledges_what_it_names() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let id = raw.id.unwrap();
    for _ in 0..3 {
        raw.server.send(id, StreamId(0), b"x".as_slice().into(), SendOptions::default()).unwrap();
    }
    raw.take();
    raw.chunk(&Shutdown { cumulative: raw.initial.plus(1) });
    assert_eq!((raw.server.buffered(id), raw.closed()), (1, None));
    raw.chunk(&Shutdown { cumulative: raw.initial.plus(2) });
    assert!(raw.take().iter().any(|p| kinds(p).contains(&ShutdownAck::KIND)));
}
