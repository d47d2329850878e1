//! How connections end: what was sent is delivered or reported, what was received can be read, and nothing waits for ever.

use neater_base::Rng;
use neater_base::net::{InterfaceKind, Net, Sock, SocketOption, SocketOptions, Token};
use neater_engine::{ConnectionError, ConnectionState, Limits, ReceiveOutcome, SendOptions, Stack, StreamDirection};
use neater_link::LinkConfig;
use neater_net::{FaultNet, FaultRates};
use neater_netsim::{DEFAULT_WALL, SimNet};
use neater_testkit::{Ask, FlowId, Manner, Over, Plan, Town, security};
use neater_tls::TlsStream;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::from_number(seed).fill(&mut out);
    out
}

/// Every stream stack.
fn asks() -> [(&'static str, Ask); 3] {
    [("TCP", Ask::over(&[Stack::Tcp])), ("TLS", Ask::over(&[Stack::Tls])), ("QUIC", Ask::over(&[Stack::Quic]))]
}

/// Gives a flow more messages than its peer's window, the network's buffers and the engine's queue hold together.
fn fill(town: &mut Town, flow: FlowId) {
    fill_with(town, flow, 50_000);
}

fn fill_with(town: &mut Town, flow: FlowId, size: usize) {
    let message = random(1, size);
    loop {
        let mut more = false;
        while let Ok(id) = town.play.engine(flow.node).send(flow.conn, message.clone().into(), SendOptions::default()) {
            town.play.flow_mut(flow).given.push(id);
            more = true;
        }
        town.play.run_for(S);
        if !more {
            return;
        }
    }
}

/// A peer that never stops talking does not end the delivery of what was sent before.
#[test]
fn closing_delivers_what_was_sent_to_a_peer_that_goes_on_talking_and_reads_late() {
    for (name, ask) in asks() {
        // The socket gives little at a time, so that there is more of it than one turn reads.
        let rates = FaultRates { short_read: 1.0, ..FaultRates::NONE };
        let mut town = Plan::new(1).build_over(|net, rng| FaultNet::new(net, rng, rates));
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        let engine = town.play.engine(c.node);
        // QUIC has windows of its own.
        let _ = engine.set_option(c.conn, SocketOption::ReceiveBuffer(16 << 20));
        town.play.say_bytes(s, &random(1, 12_000_000), 50_000, false);
        let sent = random(2, 600_000);
        town.play.say_bytes(c, &sent, 50_000, false);
        town.play.run_for(20 * S);
        town.play.close(c);
        town.play.run_for(2 * S);
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        town.play.run_until(30 * S, |p| p.flow(c).is_over() && p.flow(s).count >= sent.len());
        assert_eq!(town.play.flow(s).count, sent.len(), "{name}: {:?}", town.play.flow(c).end());
        assert_eq!(town.play.flow(c).end(), Some(&Over::Closed), "{name}");
        town.play.end();
    }
}

#[test]
fn closing_fails_when_the_peer_takes_nothing_for_five_minutes_and_every_message_is_accounted_for() {
    for (name, ask) in asks() {
        let mut town = Plan::new(2).build();
        let (c, _) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        let queued = town.play.stats(c.node).bytes_queued;
        assert!(queued > 0, "{name}");
        town.play.close(c);
        assert!(!town.play.run_until(290 * S, |p| p.flow(c).is_over()), "{name}: the peer answers");
        let over = town.play.run_until(13 * S, |p| p.flow(c).is_over());
        assert!(over, "{name}: {:?}", town.play.engine(c.node).state(c.conn));
        let flow = town.play.flow(c);
        assert_eq!(flow.end(), Some(&Over::Failed(ConnectionError::TimedOut)), "{name}");
        assert!(!flow.unsent.is_empty(), "{name}");
        let mut told: Vec<_> = flow.sent.iter().chain(flow.unsent.iter().map(|(id, _)| id)).copied().collect();
        told.sort_unstable();
        assert_eq!(told, flow.given, "{name}: each once");
        let stats = town.play.stats(c.node);
        assert_eq!((stats.bytes_queued, stats.channels), (0, 0), "{name}");
        town.play.end();
    }
}

#[test]
fn a_framed_message_that_was_begun_and_not_ended_is_reported_however_the_connection_ends() {
    for (name, ask) in asks() {
        for how in ["close", "finish", "abort", "lost"] {
            let mut town = Plan::new(60).build();
            let (c, s) = town.pair(&ask.clone().framed(), Manner::patient(), Manner::patient());
            let part = SendOptions { end_of_message: false, ..SendOptions::default() };
            let engine = town.play.engine(c.node);
            let id = engine.send(c.conn, "AAAA".into(), part).unwrap();
            assert_eq!(engine.send(c.conn, "BBBB".into(), part), Ok(id), "{name}: parts of one message");
            assert!(engine.stats().bytes_queued >= 8, "{name}: what a framer keeps is counted");
            match how {
                "close" => town.play.close(c),
                "finish" => town.play.finish(c),
                "abort" => town.play.abort(c),
                _ => town.play.abort(s),
            }
            town.play.run_for(5 * S);
            let unsent: Vec<_> = town.play.flow(c).unsent.iter().map(|(id, _)| *id).collect();
            assert_eq!(unsent, [id], "{name}, {how}");
            assert_eq!(town.play.flow(s).count, 0, "{name}, {how}: a framer sends whole messages");
            assert_eq!(town.play.stats(c.node).bytes_queued, 0, "{name}, {how}");
            if how == "close" {
                assert_eq!(town.play.flow(c).end(), Some(&Over::Closed), "{name}");
            }
            town.play.end();
        }
    }
}

#[test]
fn a_released_flow_whose_peer_takes_nothing_is_gone_after_five_minutes() {
    for (name, ask) in asks() {
        let mut town = Plan::new(3).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.release(c);
        town.play.run_for(303 * S);
        let stats = town.play.stats(c.node);
        assert_eq!((stats.connections, stats.channels, stats.bytes_queued), (0, 0, 0), "{name}");
        // The peer does not take a part for the whole.
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        town.play.run_for(5 * S);
        let flow = town.play.flow(s);
        assert!(flow.ended_at.is_none() && (flow.receive_error.is_some() || flow.is_over()), "{name}: {flow:?}");
        town.play.end();
    }
}

/// A reader that has paused answers, though it takes nothing: it gets everything when it goes on.
#[test]
fn closing_waits_for_a_reader_that_pauses_for_two_minutes() {
    for (name, ask) in asks() {
        let mut town = Plan::new(5).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner { keeps: false, ..Manner::stalled() });
        fill(&mut town, c);
        town.play.close(c);
        town.play.run_for(120 * S);
        assert!(!town.play.flow(c).is_over(), "{name}: {:?}", town.play.flow(c).end());
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        assert!(town.play.run_until(30 * S, |p| p.flow(c).is_over()), "{name}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Closed), "{name}");
        assert!(town.play.flow(c).unsent.is_empty(), "{name}");
        let sent = town.play.flow(c).given.len() * 50_000;
        assert!(town.play.run_until(30 * S, |p| p.flow(s).count == sent), "{name}: {}", town.play.flow(s).count);
        town.play.end();
    }
}

/// A window that has been closed for a minute is probed once a minute. No answer in ten seconds is
/// no silence then.
#[test]
fn closing_waits_for_a_reader_that_had_paused_for_a_minute_before() {
    for (name, ask) in asks() {
        let mut town = Plan::new(5).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner { keeps: false, ..Manner::stalled() });
        fill(&mut town, c);
        town.play.run_for(60 * S);
        town.play.close(c);
        town.play.run_for(35 * S);
        assert!(!town.play.flow(c).is_over(), "{name}: {:?}", town.play.flow(c).end());
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        assert!(town.play.run_until(30 * S, |p| p.flow(c).is_over()), "{name}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Closed), "{name}");
        town.play.end();
    }
}

#[test]
fn closing_does_not_wait_for_a_peer_that_does_not_answer() {
    for (name, ask) in asks() {
        let mut town = Plan::new(6).build();
        let (c, _) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        for link in [town.v4.to, town.v4.from, town.v6.to, town.v6.from] {
            let config = town.play.world().link_config(link);
            town.play.world().set_link(link, config.with_down(true));
        }
        town.play.close(c);
        assert!(town.play.run_until(13 * S, |p| p.flow(c).is_over()), "{name}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Failed(ConnectionError::TimedOut)), "{name}");
        town.play.end();
    }
}

/// What stands still is in the way of others where room is short.
#[test]
fn closing_does_not_wait_for_a_reader_that_has_paused_where_room_is_short() {
    for (name, ask) in asks() {
        let mut plan = Plan::new(7);
        plan.client_limits = Limits { engine_bytes: 150_000, ..Limits::default() };
        let mut town = plan.build();
        let (c, _) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.close(c);
        assert!(town.play.run_until(13 * S, |p| p.flow(c).is_over()), "{name}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Failed(ConnectionError::TimedOut)), "{name}");
        town.play.end();
    }
}

#[test]
fn closing_does_not_wait_for_a_reader_that_has_paused_where_a_connection_cannot_be_opened() {
    for (name, ask) in asks() {
        let mut town = Plan::new(12).build();
        let (c, _) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.close(c);
        town.play.run_for(20 * S);
        assert!(!town.play.flow(c).is_over(), "{name}: {:?}", town.play.flow(c).end());
        let host = town.play.host(town.client);
        let open = town.play.world().open_sockets(host);
        town.play.world().set_max_sockets(host, open);
        let next = town.open(&Ask::over(&[Stack::Tcp]), Manner::default());
        assert!(town.play.run_until(3 * S, |p| p.flow(next).is_over() && p.flow(c).is_over()), "{name}");
        assert_eq!(town.play.flow(c).end(), Some(&Over::Failed(ConnectionError::TimedOut)), "{name}");
        town.play.end();
    }
}

/// Both have more to send than the other has room for, and neither reads any more.
#[test]
fn two_that_close_at_once_do_not_wait_for_each_other() {
    for (name, ask) in asks() {
        let mut town = Plan::new(8).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        fill(&mut town, s);
        town.play.close(c);
        town.play.close(s);
        assert!(town.play.run_until(30 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{name}");
        town.play.end();
    }
}

#[test]
fn what_was_sent_and_not_acknowledged_is_pending_and_becomes_less_as_the_peer_reads() {
    for (name, ask) in asks() {
        let mut town = Plan::new(9).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner { keeps: false, ..Manner::stalled() });
        fill(&mut town, c);
        let before = town.play.engine(c.node).delivery(c.conn).expect("carried");
        assert!(before.pending > 0 && before.acknowledged > 0, "{name}: {before:?}");
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        town.play.run_for(5 * S);
        let after = town.play.engine(c.node).delivery(c.conn).expect("carried");
        assert_eq!(after.pending, 0, "{name}: {after:?}");
        assert!(after.acknowledged > before.acknowledged, "{name}: {before:?} {after:?}");
        town.play.end();
    }
}

#[test]
fn closing_goes_on_as_long_as_the_peer_takes_a_little_now_and_then() {
    for (name, ask) in asks() {
        let mut town = Plan::new(4).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.close(c);
        let mut got = 0;
        let mut buf = vec![0; 100_000];
        for round in 0.. {
            assert!(round < 1000, "{name}: {got}");
            town.play.run_for(4 * S);
            assert!(!matches!(town.play.flow(c).end(), Some(Over::Failed(_))), "{name} in round {round}");
            // More than an eighth of a window of QUIC's, which is when a peer says that it has room again.
            let (mut some, mut ended) = (0, false);
            while some < 200_000 && !ended {
                match town.play.engine(s.node).read(s.conn, &mut buf).unwrap() {
                    Some(0) => ended = true,
                    Some(n) => some += n,
                    None => break,
                }
            }
            got += some;
            if ended {
                break;
            }
        }
        assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "{name}");
        let flow = town.play.flow(c);
        assert_eq!(flow.end(), Some(&Over::Closed), "{name}");
        assert_eq!(got as u64 + 1, town.play.engine(c.node).connection_stats(c.conn).unwrap().bytes_sent, "{name}");
        town.play.end();
    }
}

#[test]
fn closing_after_the_peer_has_aborted_without_reading_is_an_error() {
    for (name, ask) in asks() {
        let mut town = Plan::new(5).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.abort(s);
        town.play.run_for(S);
        let _ = town.play.engine(c.node).finish(c.conn);
        town.play.close(c);
        assert!(town.play.run_until(12 * S, |p| p.flow(c).is_over()), "{name}");
        assert!(matches!(town.play.flow(c).end(), Some(Over::Failed(_))), "{name}: {:?}", town.play.flow(c).end());
        town.play.end();
    }
}

#[test]
fn closing_is_an_error_when_the_peer_aborts_before_it_has_everything() {
    for (name, ask) in asks() {
        let mut town = Plan::new(6).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        fill(&mut town, c);
        town.play.close(c);
        town.play.run_for(100 * MS);
        town.play.abort(s);
        assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "{name}");
        assert!(matches!(town.play.flow(c).end(), Some(Over::Failed(_))), "{name}: {:?}", town.play.flow(c).end());
        town.play.end();
    }
}

#[test]
fn both_sides_may_close_at_once_when_everything_has_arrived() {
    for (name, ask) in asks() {
        let mut town = Plan::new(7).build();
        let (c, s) = town.pair(&ask, Manner::patient(), Manner::patient());
        town.play.say_bytes(c, &random(1, 10_000), 10_000, false);
        town.play.say_bytes(s, &random(2, 10_000), 10_000, false);
        town.play.run_for(S);
        town.play.close(c);
        town.play.close(s);
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{name}");
        for flow in [c, s] {
            assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{name}");
        }
        town.play.end();
    }
}

/// As after an answer to a question that did not end: the usual way of request and response.
#[test]
fn closing_after_the_peer_has_closed_in_order_is_in_order() {
    for (name, ask) in asks() {
        let mut town = Plan::new(8).build();
        let (c, s) = town.pair(&ask, Manner::patient(), Manner::patient());
        town.play.say_bytes(c, &random(1, 10_000), 10_000, false);
        assert!(town.play.run_until(S, |p| p.flow(s).count == 10_000), "{name}");
        town.play.say_bytes(s, &random(2, 10_000), 10_000, false);
        town.play.close(s);
        assert!(town.play.run_until(S, |p| p.flow(c).ended_at.is_some()), "{name}");
        town.play.run_for(100 * MS);
        town.play.close(c);
        assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{name}");
        for flow in [c, s] {
            assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{name}");
        }
        assert_eq!(town.play.engine(c.node).state(c.conn), ConnectionState::Closed);
        assert_eq!(town.play.engine(c.node).receive(c.conn, 10).ok(), Some(ReceiveOutcome::End), "{name}");
        town.play.end();
    }
}

/// What a flow that has failed still gives to a program that reads it only now, and the error after it.
fn rest(town: &mut Town, flow: FlowId) -> (Vec<u8>, ConnectionError) {
    let mut got = Vec::new();
    loop {
        match town.play.engine(flow.node).receive(flow.conn, 7_000) {
            Ok(ReceiveOutcome::Received(r)) => got.extend_from_slice(&r.data),
            Ok(other) => panic!("{other:?} after {} bytes", got.len()),
            Err(error) => return (got, error),
        }
    }
}

/// As HTTP's 413: the answer comes before the question is over, and the connection is reset then.
#[test]
fn what_has_arrived_before_a_reset_can_be_read_after_it() {
    for framed in [false, true] {
        for (name, ask) in asks().into_iter().take(2) {
            let ask = if framed { ask.framed() } else { ask };
            let mut town = Plan::new(9).build();
            let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
            let answer = random(1, 50_000);
            town.play.say(s, answer.clone(), SendOptions::default());
            town.play.run_for(S);
            fill(&mut town, c);
            town.play.abort(s);
            town.play.run_for(S);
            let failed = town.play.engine(c.node).send(c.conn, answer.clone().into(), SendOptions::default());
            assert!(failed.is_err(), "{name}: {failed:?}");
            let (got, error) = rest(&mut town, c);
            assert!(got == answer, "{name}, framed: {framed}: {} bytes, {error}", got.len());
            assert!(matches!(error, ConnectionError::Net(_)), "{name}: {error}");
            assert_eq!(town.play.stats(c.node).channels, 0, "{name}: the socket goes when everything is read");
            town.play.end();
        }
    }
}

#[test]
fn the_peers_abort_is_reported_at_once_although_nobody_reads_or_writes() {
    for (name, ask) in asks() {
        let mut town = Plan::new(10).build();
        let (c, s) = town.pair(&ask, Manner::stalled(), Manner::stalled());
        town.play.say(s, "unread", SendOptions::default());
        town.play.run_for(S);
        town.play.abort(s);
        let over = town.play.run_until(S, |p| p.flow(c).is_over());
        assert!(over, "{name}: {:?}", town.play.engine(c.node).state(c.conn));
        assert!(matches!(town.play.flow(c).end(), Some(Over::Failed(_))), "{name}: {:?}", town.play.flow(c).end());
        if name != "QUIC" {
            assert_eq!(rest(&mut town, c).0, b"unread", "{name}");
        }
        town.play.end();
    }
}

#[test]
fn an_unread_rest_of_a_failed_flow_goes_with_its_release_or_its_closing() {
    for close in [false, true] {
        let mut town = Plan::new(11).build();
        let (c, s) = town.pair(&Ask::over(&[Stack::Tcp]), Manner::stalled(), Manner::stalled());
        town.play.say(s, "unread", SendOptions::default());
        town.play.run_for(S);
        town.play.abort(s);
        assert!(town.play.run_until(S, |p| p.flow(c).is_over()));
        assert_eq!(town.play.stats(c.node).channels, 1);
        if close {
            town.play.engine(c.node).close(c.conn);
        } else {
            town.play.release(c);
        }
        assert_eq!(town.play.stats(c.node).channels, 0);
        town.play.end();
    }
}

#[test]
fn a_flow_that_both_sides_have_ended_is_closed_and_its_rest_can_be_read() {
    for (name, ask) in asks() {
        let mut town = Plan::new(12).build();
        let (c, s) = town.pair(&ask, Manner::patient(), Manner::stalled());
        town.play.finish(s);
        assert!(town.play.run_until(S, |p| p.flow(c).ended_at.is_some()), "{name}");
        town.play.run_for(S);
        // A half-close is not the end: this side may still send.
        assert!(town.play.flow(c).over.is_none() && town.play.flow(s).over.is_none(), "{name}");
        town.play.say(c, "last words", SendOptions::default());
        town.play.finish(c);
        town.play.run_for(S);
        if name == "QUIC" {
            // Where a stream ends is found out by reading it.
            town.play.flow_mut(s).manner.reads = true;
            town.play.read(s);
        }
        assert!(town.play.run_until(S, |p| p.flow(c).is_over() && p.flow(s).is_over()), "{name}");
        for flow in [c, s] {
            assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed), "{name}");
        }
        town.play.flow_mut(s).manner.reads = true;
        town.play.read(s);
        let flow = town.play.flow(s);
        assert_eq!((&flow.received[..], flow.receive_error.as_ref()), (&b"last words"[..], None), "{name}");
        assert!(flow.ended_at.is_some(), "{name}");
        town.play.end();
    }
}

#[test]
fn a_message_is_not_sent_before_the_system_has_its_last_record() {
    let mut town = Plan::new(13).build();
    let (c, s) = town.pair(&Ask::over(&[Stack::Tls]), Manner::stalled(), Manner::stalled());
    fill_with(&mut town, c, 1000);
    // What the buffers of the network hold at both ends.
    let sent = town.play.flow(c).sent.len() * 1000;
    assert!((300_000..512 << 10).contains(&sent), "{sent}");
    town.play.abort(s);
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()));
    let flow = town.play.flow(c);
    let mut told: Vec<_> = flow.sent.iter().chain(flow.unsent.iter().map(|(id, _)| id)).copied().collect();
    told.sort_unstable();
    assert_eq!(told, flow.given, "each once");
    town.play.end();
}

#[test]
fn messages_that_wait_when_sending_is_abandoned_are_reported() {
    let mut town = Plan::new(14).build();
    let (c, _) = town.pair(&Ask::over(&[Stack::Quic]), Manner::stalled(), Manner::stalled());
    fill(&mut town, c);
    town.play.engine(c.node).reset_sending(c.conn, 5);
    town.play.run_for(S);
    let flow = town.play.flow(c);
    assert!(!flow.unsent.is_empty());
    assert_eq!(flow.sent.len() + flow.unsent.len(), flow.given.len());
    town.play.end();
}

#[test]
fn a_session_outlives_its_ended_streams_as_long_as_the_program_has_one() {
    let mut town = Plan::new(31).build();
    let (c, s) = town.pair(&Ask::over(&[Stack::Quic]), Manner::patient(), Manner::patient());
    town.play.say(c, "question", SendOptions { is_final: true, ..SendOptions::default() });
    town.play.say(s, "answer", SendOptions { is_final: true, ..SendOptions::default() });
    assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    town.play.run_until(5 * S, |_| false);
    // Another stream beside the one that both sides have ended.
    let engine = town.play.engine(c.node);
    let group = engine.group(c.conn).expect("its session is there");
    let another = engine.open_stream(group, StreamDirection::Both).expect("another stream");
    let another = town.play.adopt(c.node, another, Manner::patient());
    town.play.say(another, "more", SendOptions { is_final: true, ..SendOptions::default() });
    let before = town.play.accepted(s.node).len();
    assert!(town.play.run_until(5 * S, |p| p.accepted(s.node).len() > before));
    // The session ends with the program's own code, which the peer is told.
    town.play.engine(c.node).close_session(group, 77, b"enough");
    let told = *town.play.accepted(s.node).last().unwrap();
    assert!(town.play.run_until(5 * S, |p| p.flow(told).is_over()));
    let end = format!("{:?}", town.play.flow(told).end());
    assert!(end.contains("77") && end.contains("enough"), "{end}");
}

/// All datagrams have left and arrived, and their receiver ends its session in order, before or after the sender has noticed.
#[test]
fn datagrams_that_have_all_arrived_are_no_error_when_their_receiver_ends_the_session() {
    for with_close in [false, true] {
        for count in [120, 180, 250, 400, 700, 900] {
            let ask = Ask::over(&[Stack::QuicDatagram]);
            let mut town = Plan::new(1).rate(5_000_000).delay(10 * MS).build();
            town.listen(&ask, 443, Manner::patient());
            let flow = town.open(&ask, Manner::patient());
            assert!(town.play.run_until(2 * S, |p| p.flow(flow).is_ready()));
            for _ in 0..count {
                town.play.say(flow, vec![1; 1000], SendOptions::default());
            }
            town.play.close(flow);
            let node = town.server;
            let arrived = town
                .play
                .run_until(5 * S, |p| p.accepted(node).first().is_some_and(|f| p.flow(*f).count >= count * 1000));
            if with_close {
                let at = town.play.accepted(node)[0];
                let engine = town.play.engine(node);
                let group = engine.group(at.conn).expect("open");
                engine.close_session(group, 0, b"");
                engine.release_group(group);
            }
            assert!(town.play.run_until(S, |p| p.flow(flow).is_over()), "{with_close} {count}");
            let end = format!("{:?}", town.play.flow(flow).end());
            // Of many, the queue on the way drops some.
            assert!(arrived || count > 180, "{with_close} {count}");
            assert!(!arrived || !end.contains("Failed"), "{with_close} {count}: {end}");
            town.play.end();
        }
    }
}

/// A TLS server without an engine, which answers and fails at the same time: its fatal alert is right
/// behind its answer.
struct Alarmed {
    net: SimNet,
    listener: Sock,
    sock: Option<Sock>,
    tls: TlsStream,
    said: bool,
}

impl Alarmed {
    /// Does what there is to do now.
    fn turn(&mut self) {
        self.net.poll(&mut Vec::new());
        if self.sock.is_none() {
            self.sock = self.net.accept(self.listener, Token(2)).ok().map(|(sock, _)| sock);
        }
        let Some(sock) = self.sock else { return };
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = self.net.read(sock, &mut buf) {
            let mut rest = &buf[..n];
            while !rest.is_empty() && self.tls.read_tls(&mut rest).is_ok_and(|n| n > 0) {
                self.tls.process().expect("a sound client");
            }
        }
        if !self.tls.is_handshaking() && !core::mem::replace(&mut self.said, true) {
            assert_eq!(self.tls.write_plain(&[IoSlice::new(b"answer")]), 6);
            // A record that no key of the session has made.
            let mut forged = [0; 5 + 32];
            forged[..5].copy_from_slice(&[23, 3, 3, 0, 32]);
            assert_eq!(self.tls.read_tls(&mut &forged[..]).ok(), Some(forged.len()));
            self.tls.process().expect_err("a forged record");
        }
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("room");
        }
        if !out.is_empty() {
            assert_eq!(self.net.write(sock, &[IoSlice::new(&out)]), Ok(out.len()));
        }
    }
}

#[test]
fn what_came_before_a_fatal_alert_can_be_read() {
    const ADDRESS: &str = "203.0.113.66";
    let mut town = Plan::new(61).build();
    let world = town.play.world().clone();
    let host = world.add_host("alarmed");
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ADDRESS.parse().unwrap()]);
    world.attach(iface, LinkConfig::delay(MS), LinkConfig::delay(MS));
    let mut net = world.net(host);
    let at = SocketAddr::new(ADDRESS.parse().unwrap(), 443);
    let listener = net.listen(Token(1), at, &SocketOptions::default()).expect("a socket");
    let identity = neater_tls::self_signed(&[ADDRESS], DEFAULT_WALL, [9; 32]);
    let (mut theirs, mut ours) = (security::server_security(), security::client_security());
    ours.trust = neater_tls::Trust::Only(identity.chain.clone());
    theirs.server_certificates = vec![identity];
    let crypto = security::crypto(61, 9);
    crypto.clock.set(net.wall());
    let config = neater_tls::server_config(&theirs, &crypto, &[], false).expect("a configuration");
    let tls = TlsStream::server(config).expect("a session");
    let mut server = Alarmed { net, listener, sock: None, tls, said: false };
    let ask = Ask { security: Some(ours), ..Ask::over(&[Stack::Tls]) };
    let c = town.open_to(&ask, &[at.into()], Manner::patient());
    let said = town.play.run_until(S, |_| {
        server.turn();
        server.said
    });
    assert!(said, "{:?}", town.play.flow(c).end());
    // All of it arrives together, so that the client finds it in one turn.
    world.run_until(world.now() + 20 * MS);
    let over = town.play.run_until(S, |p| {
        server.turn();
        p.flow(c).is_over()
    });
    let flow = town.play.flow(c);
    assert!(over && matches!(flow.end(), Some(Over::Failed(ConnectionError::Tls(_)))), "{flow:?}");
    assert_eq!(flow.received, b"answer", "{flow:?}");
    assert!(matches!(flow.receive_error, Some(ConnectionError::Tls(_))), "{flow:?}");
}

/// An engine that nobody drives any more keeps no socket, not even one that still delivers what was sent.
#[test]
fn an_orphaned_engine_keeps_no_socket_that_lingers() {
    for (name, ask) in [("TCP", Ask::over(&[Stack::Tcp])), ("TLS", Ask::over(&[Stack::Tls]))] {
        let mut town = Plan::new(23).build();
        let (c, _) = town.pair(&ask, Manner::patient(), Manner::patient());
        // What is sent arrives, and no acknowledgement does.
        let (_, down) = town.client_links;
        town.play.world().set_link(down, LinkConfig::default().with_loss(1.0));
        town.play.say(c, "the last word", SendOptions::default());
        town.play.close(c);
        town.play.run_for(S);
        assert_eq!(town.play.stats(town.client).channels, 1, "{name}: it lingers");
        town.play.engine(town.client).orphan();
        assert_eq!(town.play.stats(town.client).channels, 0, "{name}");
    }
}
