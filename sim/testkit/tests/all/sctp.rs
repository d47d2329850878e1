//! SCTP over UDP between two engines: streams as connections, messages, losses, ends, and nothing left behind.

use bytes::Bytes;
use neater_base::Rng;
use neater_base::net::InterfaceAddr;
use neater_engine::{
    ConnectionError, Event, Limits, LocalEndpoint, SctpClose, SendError, SendOptions, Stack, StreamDirection,
};
use neater_link::{LinkConfig, TooBig};
use neater_property::{Role, TransportProperties};
use neater_testkit::town::server_v4;
use neater_testkit::{Ask, Fault, FlowId, Manner, Over, Plan, Town, WhenEnded, for_each_seed};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ask() -> Ask {
    Ask::over(&[Stack::Sctp])
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

/// Everything on the way by IPv4 is lost, or nothing is.
fn block(town: &Town, all: bool) {
    for link in [town.v4.to, town.v4.from] {
        let config = LinkConfig::delay(10 * MS);
        town.play.world().set_link(link, if all { config.with_loss(1.0) } else { config });
    }
}

/// A connection and its clones, all open.
fn streams(town: &mut Town, n: usize, client: &Manner) -> Vec<FlowId> {
    let first = town.open(&ask(), client.clone());
    assert!(town.play.run_until(5 * S, |p| p.flow(first).is_ready()), "{:?}", town.play.flow(first).end());
    let mut all = vec![first];
    for _ in 1..n {
        let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
        all.push(town.play.adopt(first.node, clone, client.clone()));
    }
    all
}

#[test]
fn a_message_goes_each_way_and_both_sides_close() {
    let mut town = Plan::new(1).build();
    let (c, s) = town.pair(&ask(), Manner::default(), Manner::echo());
    assert_eq!(town.play.flow(c).establishment(), Some(40 * MS), "INIT, COOKIE ECHO and their answers");
    assert_eq!(town.play.engine(c.node).stack(c.conn), Some(Stack::Sctp));
    assert_eq!(town.play.engine(c.node).remote_addr(c.conn).map(|a| a.port()), Some(443));
    assert!(town.play.engine(c.node).connection_stats(c.conn).is_some_and(|s| s.rtt.is_some()));
    town.play.say(c, "hello", last());
    assert!(town.play.run_until(5 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    for flow in [s, c] {
        assert_eq!(town.play.flow(flow).received, b"hello");
        assert_eq!(town.play.flow(flow).end(), Some(&Over::Closed));
    }
    town.play.end();
}

#[test]
fn messages_keep_their_boundaries_whatever_their_size() {
    let mut town = Plan::new(2).rate(50_000_000).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    let sizes = [1, 0, 100, 1200, 1201, 65_536, 0, 1 << 20, 3 << 20, 7];
    for (i, size) in sizes.iter().enumerate() {
        town.play.say(c, random(i as u64, *size), message());
    }
    // One in parts.
    for part in ["first ", "second ", "third"] {
        town.play.say(c, part, SendOptions { end_of_message: part == "third", ..message() });
    }
    assert!(town.play.run_until(30 * S, |p| p.flow(s).messages.len() == sizes.len() + 1));
    for (i, size) in sizes.iter().enumerate() {
        assert!(town.play.flow(s).messages[i] == random(i as u64, *size), "message {i} of {size} bytes");
    }
    assert_eq!(&town.play.flow(s).messages[sizes.len()][..], b"first second third");
    assert_eq!(town.play.flow(c).sent.len(), sizes.len() + 1);
    town.play.end();
}

#[test]
fn losses_delays_and_doubles_change_nothing_about_what_arrives() {
    for_each_seed("sctp", "losses", 40, |seed| {
        let mut dice = Rng::from_number(seed);
        let loss = [0.0, 0.01, 0.05, 0.1][dice.below(4) as usize];
        let mut town = Plan::new(seed).loss(loss).rate(20_000_000).build();
        town.listen(&ask(), 443, Manner::echo());
        let count = 1 + dice.below(8) as usize;
        let flows = streams(&mut town, count, &Manner::default());
        let mut said = Vec::new();
        for (i, f) in flows.iter().enumerate() {
            let n = 1 + dice.below(20) as usize;
            let all: Vec<Bytes> =
                (0..n).map(|k| random(seed ^ (i * 100 + k) as u64, dice.below(20_000) as usize).into()).collect();
            for (k, m) in all.iter().enumerate() {
                town.play.say(*f, m.clone(), if k + 1 == n { last() } else { message() });
            }
            said.push(all);
        }
        let over = town.play.run_until(300 * S, |p| flows.iter().all(|f| p.flow(*f).is_over()));
        let left: Vec<_> = flows.iter().filter(|f| !town.play.flow(**f).is_over()).collect();
        assert!(over, "still open: {left:?}");
        for (f, all) in flows.iter().zip(&said) {
            assert_eq!(town.play.flow(*f).end(), Some(&Over::Closed));
            assert!(town.play.flow(*f).messages == *all, "not the same messages in the same order");
        }
        assert_eq!(town.play.stats(town.client).sctp_associations, 1, "one association for all");
        town.play.end();
    });
}

#[test]
fn a_thousand_streams_of_one_association_open_and_close_and_their_numbers_are_used_again() {
    let mut plan = Plan::new(4).rate(100_000_000);
    plan.server_limits.untaken = 4096;
    let mut town = plan.build();
    town.listen(&ask(), 443, Manner::echo());
    let first = streams(&mut town, 1, &Manner::patient())[0];
    for round in 0..3 {
        let mut flows = Vec::new();
        for i in 0..1000u32 {
            let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
            let f = town.play.adopt(first.node, clone, Manner::default());
            town.play.say(f, Bytes::from(format!("{round} {i}")), last());
            flows.push(f);
        }
        let over = town.play.run_until(60 * S, |p| flows.iter().all(|f| p.flow(*f).is_over()));
        assert!(over, "round {round}: {} are open", flows.iter().filter(|f| !town.play.flow(**f).is_over()).count());
        for (i, f) in flows.iter().enumerate() {
            assert_eq!(town.play.flow(*f).received, format!("{round} {i}").as_bytes());
        }
    }
    town.play.run_for(S);
    let closed: Vec<FlowId> = town.play.accepted(town.server).to_vec();
    closed
        .into_iter()
        .filter(|f| town.play.flow(*f).is_over())
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|f| town.play.release(f));
    let stats = town.play.stats(town.server);
    assert_eq!((stats.sctp_associations, stats.connections), (1, 1), "what is closed is gone");
    town.play.end();
}

#[test]
fn more_streams_than_there_are_numbers_wait_for_one() {
    let mut plan = Plan::new(5);
    plan.server_limits.untaken = 10_000;
    let mut town = plan.build();
    town.listen(&ask(), 443, Manner::echo());
    // 4,096 numbers, of which half are the client's.
    let flows = streams(&mut town, 2100, &Manner::default());
    let waiting = flows.iter().filter(|f| !town.play.flow(**f).is_ready()).count();
    assert_eq!(waiting, 2100 - 2048);
    for f in &flows {
        town.play.say(*f, "x", last());
    }
    assert!(town.play.run_until(60 * S, |p| flows.iter().all(|f| p.flow(*f).is_over())));
    assert!(flows.iter().all(|f| town.play.flow(*f).received == b"x"));
    town.play.end();
}

#[test]
fn the_server_opens_streams_too() {
    let mut town = Plan::new(6).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    let group = town.play.engine(c.node).group(c.conn).unwrap();
    town.play.serve(c.node, Manner::echo());
    let back = town.play.engine(s.node).clone_connection(s.conn, StreamDirection::Both).unwrap();
    let back = town.play.adopt(s.node, back, Manner::default());
    town.play.say(back, "from the server", last());
    assert!(town.play.run_until(5 * S, |p| p.flow(back).is_over()));
    assert_eq!(town.play.flow(back).received, b"from the server");
    town.play.engine(c.node).release_group(group);
    town.play.end();
}

#[test]
fn a_half_closed_stream_still_carries_the_other_direction() {
    let mut town = Plan::new(7).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    town.play.say(c, "question", last());
    assert!(town.play.run_until(S, |p| p.flow(s).ended_at.is_some()), "the peer sees the end");
    town.play.say(s, "answer", message());
    assert!(town.play.run_until(S, |p| p.flow(c).received == b"answer"));
    town.play.say(s, "and goodbye", last());
    assert!(town.play.run_until(S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    assert_eq!(town.play.flow(c).messages, ["answer", "and goodbye"]);
    town.play.end();
}

#[test]
fn what_was_sent_before_a_close_arrives_and_an_abort_is_told() {
    let mut town = Plan::new(8).rate(10_000_000).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::default());
    let all = random(8, 500_000);
    for piece in all.chunks(10_000) {
        town.play.say(c, Bytes::copy_from_slice(piece), message());
    }
    town.play.close(c);
    assert!(town.play.run_until(10 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    assert!(town.play.flow(s).received == all);
    assert_eq!((town.play.flow(c).end(), town.play.flow(s).end()), (Some(&Over::Closed), Some(&Over::Closed)));
    // The last connection of an association takes it with it.
    let before = town.play.accepted(town.server).len();
    let d = town.open(&ask(), Manner::patient());
    town.play.say(d, "here", message());
    let me = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(me).len() > before && p.flow(p.accepted(me)[before]).count == 4));
    let e = town.play.accepted(me)[before];
    town.play.abort(d);
    assert!(town.play.run_until(S, |p| p.flow(e).is_over()));
    let end = town.play.flow(e).end();
    let told = |r: &SctpClose| matches!(r, SctpClose::PeerAborted { reason, .. } if reason.starts_with(b"aborted"));
    assert!(matches!(end, Some(Over::Failed(ConnectionError::Sctp(r))) if told(r)), "{end:?}");
    town.play.end();
}

#[test]
fn one_stream_is_abandoned_and_the_others_go_on() {
    let mut town = Plan::new(9).build();
    town.listen(&ask(), 443, Manner::patient());
    let flows = streams(&mut town, 3, &Manner::patient());
    for f in &flows {
        town.play.say(*f, "hello", message());
    }
    let me = town.server;
    assert!(town.play.run_until(S, |p| p.accepted(me).len() == 3));
    let peers = town.play.accepted(me).to_vec();
    town.play.engine(flows[1].node).abort_with(flows[1].conn, 77);
    assert!(town.play.run_until(S, |p| p.flow(peers[1]).receive_error.is_some() || p.flow(peers[1]).is_over()));
    let peer = town.play.flow(peers[1]);
    let code = ConnectionError::StreamReset(77);
    let seen = peer.receive_error == Some(code.clone()) || peer.end() == Some(&Over::Failed(code));
    assert!(seen, "{:?} {:?}", peer.receive_error, peer.end());
    for i in [0, 2] {
        town.play.say(flows[i], "still here", message());
    }
    assert!(town.play.run_until(S, |p| [0, 2].iter().all(|i| p.flow(peers[*i]).count == 15)));
    town.play.end();
}

#[test]
fn silence_and_refusal_are_errors_in_bounded_time() {
    for (fault, most) in [(Fault::UdpBlocked, 12 * S), (Fault::UdpRejected, 100 * MS)] {
        let mut town = Plan::new(10).fault(fault).build();
        town.listen(&ask(), 443, Manner::echo());
        let f = town.open(&ask().within(10 * S), Manner::default());
        assert!(town.play.run_until(most, |p| p.flow(f).is_over()), "{fault:?}");
        assert!(matches!(town.play.flow(f).end(), Some(Over::NotEstablished(_))), "{fault:?}");
        town.play.end();
    }
    // Somebody is at the UDP port, and nobody at that of SCTP: INIT is answered with ABORT (RFC 9260 section 8.4).
    let mut town = Plan::new(11).build();
    town.listen(&ask(), 444, Manner::echo());
    for _ in 0..3 {
        let f = town.open(&ask().within(10 * S), Manner::default());
        assert!(town.play.run_until(100 * MS, |p| p.flow(f).is_over()));
        let why = town.play.flow(f).establishment_error().expect("not established").to_string();
        assert!(why.contains("the peer aborted"), "{why}");
    }
    town.play.end();
}

/// The path becomes narrower than what is under way: chunks that were cut for longer packets must be cut on the way (RFC 9260
/// section 7.3), so that the system is told not to forbid that.
#[test]
fn a_path_that_becomes_narrow_carries_what_was_cut_for_a_wider_one() {
    let mut town = Plan::new(31).rate(10_000_000).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::echo());
    for i in 0..20 {
        town.play.say(c, random(i, 20_000), message());
        town.play.run_for(10 * MS);
        if i == 5 {
            for link in [town.v4.to, town.v4.from] {
                let narrow = LinkConfig::delay(10 * MS).with_mtu(700, TooBig::BlackHole);
                town.play.world().set_link(link, narrow);
            }
        }
    }
    assert!(town.play.run_until(60 * S, |p| p.flow(c).messages.len() == 20), "{}", town.play.flow(s).messages.len());
    assert!((0..20).all(|i| town.play.flow(c).messages[i as usize] == random(i, 20_000)));
    town.play.end();
}

/// Two addresses may be of one host, which can have one association with an SCTP port of ours: a second would be taken for a restart
/// of the first, and be given what was meant for it.
#[test]
fn associations_with_two_addresses_of_one_host_do_not_meet() {
    let mut town = Plan::new(32).build();
    let second: std::net::IpAddr = "198.51.100.2".parse().unwrap();
    town.play
        .world()
        .add_address(town.v4.iface, InterfaceAddr { addr: second, prefix: 24, temporary: false, deprecated: false });
    town.listen(&ask(), 443, Manner::echo());
    let other = std::net::SocketAddr::new(second, 443).into();
    let flows = [town.open(&ask(), Manner::patient()), town.open_to(&ask(), &[other], Manner::patient())];
    assert!(town.play.run_until(5 * S, |p| flows.iter().all(|f| p.flow(*f).is_ready())));
    for (i, f) in flows.iter().enumerate() {
        town.play.say(*f, random(i as u64, 100_000), message());
    }
    assert!(town.play.run_until(20 * S, |p| flows.iter().all(|f| p.flow(*f).messages.len() == 1)));
    for (i, f) in flows.iter().enumerate() {
        assert!(town.play.flow(*f).messages[0] == random(i as u64, 100_000));
    }
    town.play.end();
}

#[test]
fn a_peer_that_goes_silent_is_given_up() {
    let mut town = Plan::new(12).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    block(&town, true);
    town.play.say(c, "anybody?", message());
    assert!(town.play.run_until(1000 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    for f in [c, s] {
        let gone = Over::Failed(ConnectionError::Sctp(SctpClose::Unreachable));
        assert_eq!(town.play.flow(f).end(), Some(&gone));
    }
    town.play.end();
}

#[test]
fn who_does_not_read_slows_down_the_sender_and_nothing_is_lost() {
    let limits = Limits { send_buffer: 64 << 10, ..Limits::default() };
    let mut plan = Plan::new(13).rate(100_000_000);
    plan.client_limits = limits;
    let mut town = plan.build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner { keeps: false, ..Manner::stalled() });
    let n = 1000;
    for i in 0..n {
        town.play.say(c, random(i, 10_000), message());
    }
    town.play.run_for(20 * S);
    assert!(town.play.flow(c).blocked > 0, "the sender is told to wait");
    // The window of the receiver, and the buffer of the sender, which is twice the congestion window.
    let sent = town.play.flow(c).sent.len() * 10_000;
    assert!(sent < (1 << 20) + (5 << 18), "{sent} bytes have left the queue");
    town.play.flow_mut(s).manner.reads = true;
    town.play.read(s);
    assert!(town.play.run_until(60 * S, |p| p.flow(s).count == n as usize * 10_000));
    town.play.end();
}

#[test]
fn what_associations_keep_of_what_they_have_sent_stays_within_the_engines_limit() {
    let limits = Limits { send_buffer: 64 << 10, engine_bytes: 1 << 20, ..Limits::default() };
    let mut plan = Plan::new(15).delay(50 * MS).rate(200_000_000);
    plan.client_limits = limits;
    let mut town = plan.build();
    town.listen(&ask(), 443, Manner { keeps: false, ..Manner::patient() });
    let flows: Vec<FlowId> = (0..8).map(|_| town.open(&ask(), Manner::patient())).collect();
    let (me, server) = (town.client, town.server);
    assert!(town.play.run_until(5 * S, |p| flows.iter().all(|f| p.flow(*f).is_ready())));
    let data = Bytes::from(vec![9; 8 << 10]);
    for f in &flows {
        for _ in 0..4000 {
            town.play.say(*f, data.clone(), message());
        }
    }
    // What was handed over and has not come is kept; a little more than that, until it is acknowledged.
    let (mut kept, mut grown) = (0, 0);
    town.play.run_until(4 * S, |p| {
        let of = |p: &mut neater_testkit::Playground, f: &FlowId| {
            p.engine(me).connection_stats(f.conn).map(|s| s.bytes_sent)
        };
        let sent: u64 = flows.iter().filter_map(|f| of(p, f)).sum();
        let came: usize = p.accepted(server).iter().map(|f| p.flow(*f).count).sum();
        (kept, grown) = (kept.max(sent as usize - came), grown.max(p.stats(me).send_windows));
        false
    });
    let bound = limits.engine_bytes + 8 * limits.send_buffer;
    assert!(kept > bound / 2 && kept <= bound, "{kept} bytes kept, {bound} allowed");
    assert!(grown > 0 && grown <= limits.engine_bytes as u64, "{grown} bytes");
    for f in flows {
        town.play.abort(f);
    }
    town.play.end();
}

#[test]
fn a_thousand_stalled_readers_of_as_many_associations_cost_what_they_may() {
    let small = Limits { datagram_buffer: 8 << 10, ..Limits::default() };
    let limits = Limits { send_buffer: 16 << 10, engine_bytes: 4 << 20, send_floor: 4 << 10, ..small };
    let mut plan = Plan::new(14).delay(5 * MS).rate(1_000_000_000);
    (plan.client_limits, plan.server_limits) = (small, limits);
    let mut town = plan.build();
    town.listen(&ask(), 443, Manner::patient());
    let flows: Vec<FlowId> = (0..1000).map(|_| town.open(&ask(), Manner::stalled())).collect();
    let me = town.server;
    // A COOKIE ACK that was lost among what is sent below would have to wait for timers.
    let ready = |p: &neater_testkit::Playground| flows.iter().all(|f| p.flow(*f).is_ready());
    assert!(town.play.run_until(20 * S, |p| p.accepted(me).len() == 1000 && ready(p)));
    assert_eq!(town.play.stats(town.client).sctp_associations, 1000);
    // One UDP socket on either side carries them all, and one more asks for names.
    let sockets = town.play.world().open_sockets(town.play.host(town.client));
    assert!(sockets <= 2, "{sockets} sockets");
    let data = Bytes::from(vec![9; 8 << 10]);
    let peers = town.play.accepted(me).to_vec();
    for s in &peers {
        // More than the windows and the buffers, which follow the path, take.
        for _ in 0..32 {
            town.play.say(*s, data.clone(), message());
        }
    }
    let mut most = 0;
    town.play.run_until(5 * S, |p| {
        most = most.max(p.stats(me).bytes_queued);
        false
    });
    let bound = (limits.engine_bytes + 1000 * (16 << 10)) as u64;
    assert!(most <= bound, "{most} bytes queued, {bound} allowed");
    for f in &flows {
        let flow = town.play.flow(*f);
        assert!(flow.count == 0 && flow.is_ready(), "{:?} after {:?}", flow.end(), flow.establishment());
    }
    let stalled = peers.iter().filter(|s| !town.play.flow(**s).has_said_all()).count();
    assert_eq!(stalled, 1000, "each sender has been told to wait");
    // The next one is not hindered by them.
    let c = town.open(&ask(), Manner { keeps: false, ..Manner::default() });
    assert!(town.play.run_until(S, |p| p.flow(c).is_ready() && p.accepted(me).len() == 1001));
    let s = town.play.accepted(me)[1000];
    town.play.say_bytes(s, &vec![7; 1 << 20], 8 << 10, true);
    assert!(town.play.run_until(20 * S, |p| p.flow(c).count == 1 << 20), "{}", town.play.flow(c).count);
    town.play.end();
}

#[test]
fn a_connection_that_is_cancelled_leaves_nothing_at_the_server() {
    for_each_seed("sctp", "cancel", 60, |seed| {
        let mut dice = Rng::from_number(seed);
        let mut town = Plan::new(seed).loss(0.05).build();
        town.listen(&ask(), 443, Manner::echo());
        let f = town.open(&ask(), Manner::patient());
        if dice.chance(0.5) {
            town.play.say(f, "too late", message());
        }
        town.play.run_for(Duration::from_micros(dice.below(80_000)));
        if dice.chance(0.5) {
            town.play.abort(f);
        }
        town.play.release(f);
        town.play.end();
    });
}

#[test]
fn messages_that_need_not_arrive_may_be_lost_and_are_told_apart() {
    let mut town = Plan::new(15).loss(0.2).build();
    let (c, s) = town.pair(&ask().needs("partial-reliability"), Manner::patient(), Manner::patient());
    for i in 0..400u32 {
        let options = SendOptions { reliable: Some(i % 2 == 0), ordered: Some(i % 3 == 0), ..message() };
        town.play.say(c, i.to_be_bytes().to_vec(), options);
    }
    // Each gap that is given up costs a round trip at least, and with every loss the wait for the next attempt doubles.
    let told = |p: &mut neater_testkit::Playground| p.flow(c).sent.len() + p.flow(c).expired.len() == 400;
    assert!(town.play.run_until(2000 * S, told), "each is reported once");
    town.play.run_until(2000 * S, |p| p.flow(s).messages.iter().filter(|m| m[3] % 2 == 0).count() == 200);
    let got: Vec<u32> =
        town.play.flow(s).messages.iter().map(|m| u32::from_be_bytes(m[..4].try_into().unwrap())).collect();
    let lost: Vec<u32> = (0..400).step_by(2).filter(|i| got.iter().filter(|g| *g == i).count() != 1).collect();
    assert!(lost.is_empty(), "reliable ones arrive once, not {lost:?}; {:?}", town.play.flow(c).end());
    let ordered: Vec<u32> = got.iter().copied().filter(|g| g % 3 == 0).collect();
    assert!(ordered.is_sorted(), "ordered ones in order");
    let expired = town.play.flow(c).expired.len();
    assert!(expired > 0 && got.len() >= 400 - expired && got.len() < 400, "{expired} expired, {} came", got.len());
    town.play.end();
}

#[test]
fn a_message_whose_lifetime_is_over_is_not_sent() {
    let mut town = Plan::new(16).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    block(&town, true);
    town.play.say(c, "soon stale", SendOptions { lifetime: Some(300 * MS), ..message() });
    town.play.run_for(S);
    assert_eq!(town.play.flow(c).expired.len(), 1);
    block(&town, false);
    town.play.say(c, "fresh", message());
    assert!(town.play.run_until(30 * S, |p| p.flow(s).received == b"fresh"));
    town.play.end();
}

#[test]
fn a_message_that_must_not_be_cut_is_refused_when_it_is_too_long() {
    let mut town = Plan::new(17).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    let whole = SendOptions { whole: true, ..message() };
    town.play.say(c, vec![1; 1000], whole);
    town.play.say(c, vec![2; 5000], whole);
    assert!(town.play.run_until(S, |p| p.flow(s).count == 1000));
    assert!(matches!(town.play.flow(c).unsent[..], [(_, SendError::MessageTooLarge { max })] if max < 1500));
    town.play.end();
}

#[test]
fn the_more_important_stream_goes_first() {
    let mut properties = TransportProperties::new();
    properties.set("connScheduler", "PRIO").unwrap();
    let ask = ask().properties(properties);
    let mut town = Plan::new(18).rate(2_000_000).build();
    town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
    let first = town.open(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(first).is_ready()));
    let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
    let urgent = town.play.adopt(first.node, clone, Manner::patient());
    town.play.engine(first.node).set_priority(first.conn, 200);
    town.play.engine(first.node).set_priority(urgent.conn, 1);
    for f in [first, urgent] {
        for _ in 0..20 {
            town.play.say(f, vec![0; 10_000], message());
        }
    }
    let me = town.server;
    assert!(town.play.run_until(5 * S, |p| p.accepted(me).len() == 2));
    let of = |p: &neater_testkit::Playground, i: usize| p.flow(p.accepted(me)[i]).count;
    let full = town.play.run_until(5 * S, |p| of(p, 0).max(of(p, 1)) == 200_000);
    assert!(full);
    let slow = of(&town.play, 0).min(of(&town.play, 1));
    assert!(slow < 60_000, "{slow} bytes of the other had come by then");
    assert!(town.play.run_until(10 * S, |p| of(p, 0) + of(p, 1) == 400_000));
    town.play.end();
}

/// What two connections of a group have brought over, of which both always have something to send, with messages of these lengths.
/// The first may have sent a lot before, which nobody had to wait for.
fn shared(seed: u64, scheduler: &str, [a, b]: [(u32, usize); 2], alone: usize) -> [u64; 2] {
    let mut properties = TransportProperties::new();
    properties.set("connScheduler", scheduler).unwrap();
    let ask = ask().properties(properties);
    let mut town = Plan::new(seed).rate(20_000_000).build();
    town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
    let first = town.open(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(first).is_ready()));
    let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
    let second = town.play.adopt(first.node, clone, Manner::patient());
    town.play.engine(first.node).set_priority(first.conn, a.0);
    town.play.engine(first.node).set_priority(second.conn, b.0);
    for _ in 0..alone {
        town.play.say(first, vec![0; 20_000], message());
        town.play.run_for(20 * MS);
    }
    for (f, len) in [(first, a.1), (second, b.1)] {
        for _ in 0..12_000_000 / len {
            town.play.say(f, vec![0; len], message());
        }
    }
    let me = town.server;
    assert!(town.play.run_until(5 * S, |p| p.accepted(me).len() == 2));
    let of = |p: &neater_testkit::Playground, i: usize| p.flow(p.accepted(me)[i]).count as u64;
    town.play.run_for(S);
    let before = [0, 1].map(|i| of(&town.play, i));
    town.play.run_for(3 * S);
    let after = [0, 1].map(|i| of(&town.play, i));
    assert!(after.iter().all(|n| *n < 11_000_000 + alone as u64 * 20_000), "{after:?}: nobody has run dry");
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn connections_that_always_have_something_to_send_share_as_the_scheduler_says() {
    let ratio = |[a, b]: [u64; 2]| a as f64 / b as f64;
    // RFC 9622 section 8.1.5: priorities 50 and 100 are weights of 2 and 1.
    let weights = ratio(shared(40, "WFQ", [(50, 5000), (100, 5000)], 0));
    assert!((1.8..2.2).contains(&weights), "{weights}");
    let weights = ratio(shared(41, "WFQ", [(100, 60_000), (25, 1000)], 0));
    assert!((0.22..0.28).contains(&weights), "{weights}");
    let fair = ratio(shared(42, "FC", [(50, 60_000), (100, 2000)], 0));
    assert!((0.9..1.1).contains(&fair), "{fair}");
    let fair = ratio(shared(43, "WFQ", [(100, 5000), (100, 5000)], 500));
    assert!((0.9..1.1).contains(&fair), "{fair}: who was alone for a while owes nothing");
}

/// The same for programs that write bytes whenever there is room, and where the first of them always gets to it first.
#[test]
fn whoever_writes_bytes_gets_a_share_also_if_another_is_always_faster() {
    for (seed, messages, priority, least) in [(44, false, 100, 0.8), (45, true, 100, 0.8), (46, false, 50, 1.6)] {
        let ask = ask();
        let mut town = Plan::new(seed).rate(20_000_000).build();
        town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
        let first = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(first).is_ready()));
        let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
        let second = town.play.adopt(first.node, clone, Manner::patient());
        town.play.engine(second.node).set_priority(second.conn, priority);
        if messages {
            (0..2000).for_each(|_| town.play.say(first, vec![0; 10_000], message()));
        }
        let piece = vec![7; 65_536];
        for _ in 0..5000 {
            let engine = town.play.engine(first.node);
            for flow in [first, second].into_iter().skip(usize::from(messages)) {
                while engine.write(flow.conn, &[std::io::IoSlice::new(&piece)]).unwrap().is_some() {}
            }
            town.play.run_for(MS);
        }
        let of = |i: usize| town.play.accepted(town.server).get(i).map_or(0, |f| town.play.flow(*f).count);
        let (a, b) = (of(0), of(1));
        let ratio = b as f64 / a as f64;
        assert!(a + b > 10_000_000 && (least..1.5 * least).contains(&ratio), "{a} and {b} bytes");
        town.play.end();
    }
}

/// Room that is kept for a program that does not come for it is not kept for long.
#[test]
fn a_program_that_asked_for_room_and_never_writes_holds_nobody_up() {
    for scheduler in ["WFQ", "RR", "PRIO", "FCFS"] {
        let mut properties = TransportProperties::new();
        properties.set("connScheduler", scheduler).unwrap();
        let ask = ask().properties(properties);
        let mut town = Plan::new(47).rate(20_000_000).build();
        town.listen(&ask, 443, Manner { keeps: false, ..Manner::patient() });
        let first = town.open(&ask, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(first).is_ready()));
        let clone = town.play.engine(first.node).clone_connection(first.conn, StreamDirection::Both).unwrap();
        let second = town.play.adopt(first.node, clone, Manner::patient());
        town.play.engine(second.node).set_priority(second.conn, 1);
        let piece = vec![7; 65_536];
        for i in 0..5000 {
            let engine = town.play.engine(first.node);
            for flow in [first, second].into_iter().take(if i % 500 == 0 { 2 } else { 1 }) {
                // The second asks for room now and then, and does not use it.
                let most = if flow.conn == first.conn { u32::MAX } else { 1 };
                (0..most).find(|_| engine.write(flow.conn, &[std::io::IoSlice::new(&piece)]).unwrap().is_none());
            }
            town.play.run_for(MS);
        }
        let total: usize = town.play.accepted(town.server).iter().map(|f| town.play.flow(*f).count).sum();
        assert!(total > 11_000_000, "{scheduler}: {total} of 12,500,000 bytes");
        town.play.end();
    }
}

#[test]
fn bytes_and_framed_messages_go_over_a_stream_too() {
    let mut town = Plan::new(19).loss(0.02).build();
    let framed = ask().framed();
    let (c, s) = town.pair(&framed, Manner::default(), Manner::echo());
    let all: Vec<Bytes> = (0..50).map(|i| random(i, 3000 * i as usize % 40_000).into()).collect();
    for (i, m) in all.iter().enumerate() {
        town.play.say(c, m.clone(), if i + 1 == all.len() { last() } else { message() });
    }
    assert!(town.play.run_until(60 * S, |p| p.flow(c).is_over() && p.flow(s).is_over()));
    assert!(town.play.flow(c).messages == all);
    town.play.end();
}

#[test]
fn several_listeners_share_the_udp_port() {
    let mut town = Plan::new(20).build();
    let a = town.listen(&ask(), 443, Manner::echo());
    let b = town.listen(&ask(), 444, Manner::echo());
    let engine = town.play.engine(town.server);
    assert_eq!((engine.listener_udp_ports(a), engine.listener_udp_ports(b)), (vec![9899; 2], vec![9899; 2]));
    let request = town.compile(town.server, Role::Listen, &ask()).unwrap();
    let again = town.play.engine(town.server).listen(&request, &[LocalEndpoint::new().with_port(444)]);
    assert!(again.is_err_and(|e| e.message.contains("in use")), "the SCTP port is taken");
    let elsewhere = LocalEndpoint::new().with_port(443).with_udp_port(5000);
    town.play.listen(town.server, &request, &[elsewhere]).unwrap();
    for remote in [server_v4(), server_v4().with_port(444), server_v4().with_udp_port(5000)] {
        let f = town.open_to(&ask(), std::slice::from_ref(&remote), Manner::default());
        town.play.say(f, "hello", last());
        assert!(town.play.run_until(5 * S, |p| p.flow(f).is_over()), "{remote}");
        assert_eq!(town.play.flow(f).received, b"hello");
    }
    town.play.end();
}

#[test]
fn a_listener_that_is_full_refuses_and_one_that_stops_leaves_its_connections() {
    let mut plan = Plan::new(21);
    plan.server_limits.untaken = 2;
    let mut town = plan.build();
    let listener = town.listen(&ask(), 443, Manner { when_ended: WhenEnded::Finish, ..Manner::echo() });
    town.play.engine(town.server).set_new_connection_limit(listener, Some(2));
    let flows: Vec<FlowId> = (0..3).map(|_| town.open(&ask(), Manner::default())).collect();
    town.play.run_for(2 * S);
    assert_eq!(town.play.accepted(town.server).len(), 2);
    assert_eq!(town.play.stats(town.server).refused, 1);
    town.play.engine(town.server).stop(listener);
    let open: Vec<FlowId> = flows.into_iter().filter(|f| !town.play.flow(*f).is_over()).collect();
    assert_eq!(open.len(), 2);
    for f in &open {
        town.play.say(*f, "still there?", last());
    }
    assert!(town.play.run_until(5 * S, |p| open.iter().all(|f| p.flow(*f).is_over())));
    assert!(open.iter().all(|f| town.play.flow(*f).received == b"still there?"));
    let late = town.open(&ask().within(5 * S), Manner::default());
    assert!(town.play.run_until(6 * S, |p| p.flow(late).is_over()));
    assert!(matches!(town.play.flow(late).end(), Some(Over::NotEstablished(_))));
    town.play.end();
}

#[test]
fn sctp_is_a_candidate_of_those_who_ask_for_it() {
    let mut town = Plan::new(22).build();
    let engine = town.play.engine(town.client);
    let mut stacks = |text: &str| {
        let parsed = TransportProperties::parse(text).unwrap();
        let security = neater_tls::SecurityParameters::disabled();
        let options = neater_engine::RequestOptions::default();
        let request = engine.compile(&parsed.properties, &security, Role::Initiate, &options).unwrap();
        request.stacks().to_vec()
    };
    assert_eq!(stacks("reliable"), [Stack::Tcp]);
    assert!(!stacks("reliable, multistreaming=prefer").contains(&Stack::Sctp));
    assert_eq!(stacks("multistreaming=prefer, preserve-msg-boundaries=prefer").first(), Some(&Stack::Sctp));
    town.play.end();
}

#[test]
fn the_group_of_an_association_ends_with_it() {
    let mut town = Plan::new(23).build();
    let (c, s) = town.pair(&ask(), Manner::patient(), Manner::patient());
    let group = town.play.engine(s.node).group(s.conn).unwrap();
    town.play.abort(c);
    assert!(town.play.run_until(S, |p| p.flow(s).is_over()));
    let told = |e: &Event| matches!(e, Event::ConnectionError(ConnectionError::Sctp(_)));
    assert!(town.play.log(s.node).iter().any(|(_, n)| told(&n.event)));
    town.play.engine(s.node).release_group(group);
    town.play.end();
}
