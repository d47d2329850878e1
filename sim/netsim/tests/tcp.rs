//! TCP between two hosts, from the outside.

mod common;

use common::*;
use neater_base::net::{ErrorKind, IcmpError, Net, SocketOption, SocketOptions, Token};
use neater_link::{Filter, LinkConfig, Match, Protocol, QueueLimit, TooBig};
use neater_netsim::{BufferSize, DelayedAck, PacketKind, TcpConfig, TraceEvent, TraceVerdict, Unroutable, World};
use proptest::prelude::*;
use std::time::Duration;

/// Buffers of 256 kB that do not grow, on both sides.
fn fix_buffers(p: &Pair) {
    let size = BufferSize::Fixed(256 * 1024);
    for host in [p.a, p.b] {
        p.world.set_tcp(host, TcpConfig { receive_buffer: size, send_buffer: size, ..TcpConfig::linux() });
    }
}

fn bulk(seed: u64, link: LinkConfig, len: usize) -> (Pair, Sender, Receiver) {
    let p = pair(seed, link);
    let data = random_bytes(seed, len);
    let mut receiver = Receiver::new(p.world.net(p.b), 65_536, Duration::ZERO, seed);
    let mut sender = Sender::new(p.world.net(p.a), addr("192.0.2.2:80"), data.clone(), 65_536, seed);
    assert!(run(&p.world, &mut [&mut sender, &mut receiver], S * 600), "transfer ended: {}", receiver.data.len());
    assert!(receiver.data == data, "exactly the bytes");
    (p, sender, receiver)
}

#[test]
fn a_handshake_takes_one_round_trip() {
    for (from, to) in [("0.0.0.0:80", "192.0.2.2:80"), ("[::]:80", "[2001:db8::2]:80")] {
        let p = pair(1, LinkConfig::delay(MS * 20));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        server.listen(Token(1), addr(from), &plain()).unwrap();
        let start = p.world.now();
        let c = client.connect(Token(2), addr(to), &plain()).unwrap();
        assert_eq!(client.connect_result(c).unwrap_err().kind, ErrorKind::WouldBlock);
        assert_eq!(read(&mut client, c), Err(ErrorKind::WouldBlock));
        assert!(step_until(&p.world, S, || client.connect_result(c).is_ok()));
        assert_eq!(p.world.now() - start, MS * 40);
        let ready = readiness(&mut client);
        assert!(ready.len() == 1 && ready[0].0 == 2 && ready[0].1.writable && !ready[0].1.error);
        assert_eq!(client.stream_info(c).unwrap().rtt, Some(MS * 40));
    }
}

#[test]
fn bulk_reaches_nine_tenths_of_the_rate_and_delivers_exactly() {
    let (p, sender, receiver) = bulk(1, LinkConfig::rate(10_000_000, MS * 20), 4_000_000);
    // After start-up: from the first second on.
    let start = sender.started.unwrap() + S;
    let from = receiver.progress.iter().find(|(t, _)| *t >= start).unwrap();
    let to = receiver.progress.last().unwrap();
    let rate = (to.1 - from.1) as f64 * 8.0 / (to.0 - from.0).as_secs_f64();
    assert!(rate > 9_000_000.0, "{rate} bit/s");
    assert!(rate < 10_000_000.0, "{rate} bit/s");
    assert_eq!(p.world.link_counters(p.ab).queue_full, 0);
}

#[test]
fn bulk_delivers_exactly_under_loss() {
    for (loss, seed) in [(0.01, 1), (0.01, 2), (0.05, 3), (0.05, 4)] {
        let (p, ..) = bulk(seed, LinkConfig::rate(10_000_000, MS * 20).with_loss(loss), 1_000_000);
        assert!(p.world.link_counters(p.ab).lost > 0);
    }
}

#[test]
fn bulk_recovers_from_a_short_queue() {
    let link = LinkConfig::rate(10_000_000, MS * 20).with_queue(QueueLimit::Packets(30));
    let (p, sender, receiver) = bulk(1, link, 8_000_000);
    assert!(p.world.link_counters(p.ab).queue_full > 0);
    let took = receiver.ended.unwrap() - sender.started.unwrap();
    assert!(took < S * 14, "{took:?}");
}

#[test]
fn bulk_survives_reordering() {
    let link = LinkConfig { reorder: true, ..LinkConfig::rate(10_000_000, MS * 10).with_jitter(MS * 5) };
    bulk(5, link, 500_000);
}

#[test]
fn a_single_loss_is_repaired_without_a_timeout() {
    // Packets 0 and 1 are SYN and ACK; packet 12 is data.
    let p = pair_of(1, LinkConfig::rate(10_000_000, MS * 20).without([12]), LinkConfig::delay(MS * 20));
    let data = random_bytes(1, 200_000);
    let mut receiver = Receiver::new(p.world.net(p.b), 65_536, Duration::ZERO, 1);
    let mut sender = Sender::new(p.world.net(p.a), addr("192.0.2.2:80"), data.clone(), 65_536, 1);
    p.world.trace(true);
    assert!(run(&p.world, &mut [&mut sender, &mut receiver], S * 10));
    assert!(receiver.data == data);
    // The gap in the progress of the receiver is a round trip, far less than the minimum timeout on top of it.
    let gaps = receiver.progress.windows(2).map(|w| w[1].0 - w[0].0);
    assert!(gaps.max().unwrap() < MS * 120);
    let sent: u32 = data_bytes(&p.world);
    assert!(sent > 200_000 && sent <= 200_000 + 1460, "one segment more than the data: {sent}");
}

fn data_bytes(world: &World) -> u32 {
    let to_b = |e: &&neater_netsim::TraceEvent| e.link.is_some() && e.to.port() == 80;
    let payload = |e: neater_netsim::TraceEvent| if let PacketKind::Tcp { payload, .. } = e.kind { payload } else { 0 };
    world.take_trace().iter().filter(to_b).map(|e| payload(*e)).sum()
}

#[test]
fn a_closed_port_refuses() {
    let p = pair(1, LinkConfig::delay(MS * 20));
    let mut client = p.world.net(p.a);
    let start = p.world.now();
    let c = client.connect(Token(2), addr("192.0.2.2:81"), &plain()).unwrap();
    assert!(
        step_until(&p.world, S, || client.connect_result(c).map_err(|e| e.kind) == Err(ErrorKind::ConnectionRefused))
    );
    assert_eq!(p.world.now() - start, MS * 40);
    let ready = readiness(&mut client);
    assert!(ready.len() == 1 && ready[0].1.writable && ready[0].1.error);
    assert_eq!(read(&mut client, c), Err(ErrorKind::NotConnected));
    assert_eq!(write(&mut client, c, b"x"), Err(ErrorKind::BrokenPipe));
}

#[test]
fn a_syn_into_a_black_hole_times_out_after_the_sum_of_the_backoffs() {
    let p = pair(1, LinkConfig::delay(MS * 20).with_down(true));
    let mut client = p.world.net(p.a);
    p.world.trace(true);
    let start = p.world.now();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    assert!(step_until(&p.world, S * 100, || client.connect_result(c).map_err(|e| e.kind) == Err(ErrorKind::TimedOut)));
    assert_eq!(p.world.now() - start, S * 63);
    let at: Vec<_> = p.world.take_trace().iter().map(|e| (e.time - start).as_secs()).collect();
    assert_eq!(at, [0, 1, 3, 7, 15, 31]);
}

#[test]
fn a_lost_syn_is_sent_again_after_a_second() {
    let p = pair_of(1, LinkConfig::delay(MS * 20).without([0]), LinkConfig::delay(MS * 20));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let start = p.world.now();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    assert!(step_until(&p.world, S * 5, || client.connect_result(c).is_ok()));
    assert_eq!(p.world.now() - start, S + MS * 40);
    // Karn: the retransmitted SYN is not a measurement, and the window starts with one segment.
    let info = client.stream_info(c).unwrap();
    assert_eq!((info.rtt, info.congestion_window, info.retransmits), (None, Some(1448), Some(1)));
}

#[test]
fn a_half_closed_connection_still_carries_the_other_direction() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, l, s) = established(&p, &mut client, &mut server);
    write(&mut client, c, b"question").unwrap();
    client.shutdown_write(c).unwrap();
    assert_eq!(write(&mut client, c, b"more"), Err(ErrorKind::BrokenPipe));
    wait(&p.world, MS * 100);
    assert_eq!(read(&mut server, s).unwrap(), b"question");
    assert_eq!(read(&mut server, s).unwrap(), b"");
    for _ in 0..3 {
        write(&mut server, s, b"answer").unwrap();
        wait(&p.world, S);
        assert_eq!(read(&mut client, c).unwrap(), b"answer");
    }
    server.shutdown_write(s).unwrap();
    wait(&p.world, MS * 100);
    assert_eq!(read(&mut client, c).unwrap(), b"");
    client.close(c);
    server.close(s);
    server.close(l);
    assert!(!p.world.is_empty(), "TIME-WAIT");
    wait(&p.world, S * 61);
    assert!(p.world.is_empty());
}

#[test]
fn an_abort_resets_the_peer_once_and_then_it_is_the_end() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    assert_eq!(read(&mut server, s), Err(ErrorKind::WouldBlock));
    readiness(&mut server);
    client.abort(c);
    wait(&p.world, MS * 10);
    let ready = readiness(&mut server);
    assert!(ready.len() == 1 && ready[0].1.readable && ready[0].1.error && ready[0].1.hangup);
    assert_eq!(read(&mut server, s), Err(ErrorKind::ConnectionReset));
    assert_eq!(read(&mut server, s), Ok(Vec::new()));
    assert_eq!(write(&mut server, s, b"x"), Err(ErrorKind::BrokenPipe));
    assert_eq!(read(&mut client, c), Err(ErrorKind::NotConnected));
}

#[test]
fn data_before_a_reset_can_still_be_read() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    write(&mut client, c, b"last words").unwrap();
    wait(&p.world, MS);
    client.abort(c);
    wait(&p.world, MS * 10);
    assert_eq!(read(&mut server, s).unwrap(), b"last words");
    assert_eq!(read(&mut server, s), Err(ErrorKind::ConnectionReset));
}

#[test]
fn closing_with_unread_data_resets_instead_of_losing_it_silently() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    write(&mut client, c, b"unread").unwrap();
    wait(&p.world, MS * 10);
    server.close(s);
    wait(&p.world, MS * 10);
    assert_eq!(read(&mut client, c), Err(ErrorKind::ConnectionReset));
}

#[test]
fn what_was_written_before_a_close_is_delivered() {
    let p = pair(1, LinkConfig::rate(1_000_000, MS * 5).with_loss(0.02));
    fix_buffers(&p);
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    let data = random_bytes(1, 200_000);
    assert_eq!(write(&mut client, c, &data), Ok(data.len()));
    client.close(c);
    let mut got = Vec::new();
    assert!(step_until(&p.world, S * 60, || match read(&mut server, s) {
        Ok(bytes) if bytes.is_empty() => true,
        Ok(bytes) => {
            got.extend(bytes);
            false
        }
        Err(_) => false,
    }));
    assert!(got == data);
}

#[test]
fn a_full_accept_queue_makes_clients_try_again() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let options = SocketOptions { backlog: Some(1), ..plain() };
    let listener = server.listen(Token(1), addr("0.0.0.0:80"), &options).unwrap();
    let open =
        |client: &mut neater_netsim::SimNet, n| client.connect(Token(n), addr("192.0.2.2:80"), &plain()).unwrap();
    // Linux lets one more than the backlog wait.
    let early = [open(&mut client, 10), open(&mut client, 11)];
    wait(&p.world, MS * 100);
    assert!(early.iter().all(|c| client.connect_result(*c).is_ok()));
    let start = p.world.now();
    let late = open(&mut client, 12);
    wait(&p.world, MS * 500);
    assert_eq!(client.connect_result(late).unwrap_err().kind, ErrorKind::WouldBlock);
    server.accept(listener, Token(20)).unwrap();
    assert!(step_until(&p.world, S * 5, || client.connect_result(late).is_ok()));
    assert_eq!(p.world.now() - start, S + MS * 20, "its second SYN");
}

#[test]
fn a_final_ack_into_a_full_queue_is_ignored_until_there_is_room() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let options = SocketOptions { backlog: Some(0), ..plain() };
    let listener = server.listen(Token(1), addr("0.0.0.0:80"), &options).unwrap();
    // Both SYNs arrive while the queue is empty; the second handshake cannot be completed.
    let socks: Vec<_> = (10..12).map(|n| client.connect(Token(n), addr("192.0.2.2:80"), &plain()).unwrap()).collect();
    wait(&p.world, MS * 100);
    assert!(socks.iter().all(|c| client.connect_result(*c).is_ok()), "the client believes that it is connected");
    server.accept(listener, Token(20)).unwrap();
    assert_eq!(server.accept(listener, Token(21)).unwrap_err().kind, ErrorKind::WouldBlock);
    // The SYN with ACK comes again after a second, and its ACK finds room.
    wait(&p.world, S * 2);
    server.accept(listener, Token(21)).unwrap();
}

#[test]
fn a_closed_window_is_probed_and_reopens() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    fix_buffers(&p);
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    let data = random_bytes(2, 1_000_000);
    let mut sent = 0;
    // Long enough for the sender to force out the last piece, which is smaller than a segment.
    while let Ok(n) = write(&mut client, c, &data[sent..]) {
        sent += n;
        wait(&p.world, S);
    }
    // Both buffers are full: 256 kB each.
    assert_eq!(sent, 2 * 256 * 1024);
    readiness(&mut client);
    p.world.trace(true);
    wait(&p.world, S * 30);
    let probes = p.world.take_trace().iter().filter(|e| e.link == Some(p.ab)).count();
    assert!((4..10).contains(&probes), "{probes} probes in 30 s");
    assert!(readiness(&mut client).is_empty());
    let mut got = read(&mut server, s).unwrap();
    assert_eq!(got.len(), 256 * 1024);
    wait(&p.world, S);
    assert!(readiness(&mut client).iter().any(|(t, r)| *t == 2 && r.writable));
    got.extend(read(&mut server, s).unwrap());
    assert!(got == data[..sent]);
}

#[test]
fn a_lost_window_update_does_not_stall_for_ever() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    fix_buffers(&p);
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    let data = vec![7; 512 * 1024];
    let mut sent = 0;
    while let Ok(n @ 1..) = write(&mut client, c, &data[sent..]) {
        sent += n;
        wait(&p.world, S);
    }
    p.world.set_link(p.ba, LinkConfig::default().with_down(true));
    let mut got = read(&mut server, s).unwrap().len();
    wait(&p.world, MS * 10);
    p.world.set_link(p.ba, LinkConfig::delay(MS * 5));
    wait(&p.world, S * 10);
    got += read(&mut server, s).unwrap().len();
    assert_eq!(got, sent);
}

#[test]
fn a_filter_for_tcp_leaves_udp_alone_and_a_rejecting_one_ends_the_attempt_at_once() {
    let rule = Match::Protocol(Protocol::Tcp);
    let p = pair(1, LinkConfig::delay(MS * 10).with_filter(Filter::drop(rule)));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    wait(&p.world, S * 5);
    assert_eq!(client.connect_result(c).unwrap_err().kind, ErrorKind::WouldBlock);
    p.world.set_link(p.ab, LinkConfig::delay(MS * 10).with_filter(Filter::reject(rule)));
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    wait(&p.world, MS * 10);
    assert_eq!(client.connect_result(c).unwrap_err().kind, ErrorKind::HostUnreachable);
}

#[test]
fn unreachable_ends_an_attempt_but_only_advises_a_connection() {
    let world = World::new(3);
    world.set_unroutable(Unroutable::Unreachable);
    let (a, b) = (world.add_host("a"), world.add_host("b"));
    let kind = neater_base::net::InterfaceKind::Wired;
    let ia = world.add_interface(a, "e", kind, &["192.0.2.1".parse().unwrap()]);
    let ib = world.add_interface(b, "e", kind, &["198.51.100.1".parse().unwrap()]);
    for iface in [ia, ib] {
        world.attach(iface, LinkConfig::delay(MS * 5), LinkConfig::delay(MS * 5));
    }
    let (mut client, mut server) = (world.net(a), world.net(b));
    let options = SocketOptions { set: vec![SocketOption::UserTimeout(Some(S * 20))], ..plain() };
    let lost = client.connect(Token(1), addr("203.0.113.1:80"), &plain()).unwrap();
    assert!(
        step_until(&world, S, || client.connect_result(lost).map_err(|e| e.kind) == Err(ErrorKind::HostUnreachable))
    );
    server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let c = client.connect(Token(2), addr("198.51.100.1:80"), &options).unwrap();
    assert!(step_until(&world, S, || client.connect_result(c).is_ok()));
    world.remove_address(ib, "198.51.100.1".parse().unwrap());
    write(&mut client, c, b"anyone?").unwrap();
    let start = world.now();
    wait(&world, S * 5);
    assert_eq!(read(&mut client, c), Err(ErrorKind::WouldBlock), "a soft error");
    assert_eq!(client.take_icmp_error(c), None::<IcmpError>, "TCP queues none");
    assert!(step_until(&world, S * 60, || read(&mut client, c) == Err(ErrorKind::HostUnreachable)));
    assert_eq!(world.now() - start, S * 20, "the user timeout");
}

#[test]
fn a_connection_to_a_host_that_was_switched_off_is_reset_when_it_is_back() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, ..) = established(&p, &mut client, &mut server);
    p.world.set_host_up(p.b, false);
    write(&mut client, c, b"hello?").unwrap();
    wait(&p.world, S * 3);
    assert_eq!(read(&mut client, c), Err(ErrorKind::WouldBlock));
    p.world.set_host_up(p.b, true);
    assert!(step_until(&p.world, S * 10, || read(&mut client, c) == Err(ErrorKind::ConnectionReset)));
}

#[test]
fn a_vanished_peer_is_found_by_retransmission_user_timeout_or_keep_alive() {
    let vanish = |option: Option<SocketOption>, data: bool| {
        let p = pair(1, LinkConfig::delay(MS * 5));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (c, ..) = established(&p, &mut client, &mut server);
        if let Some(option) = option {
            client.set(c, option).unwrap();
        }
        p.world.set_link(p.ab, LinkConfig::default().with_down(true));
        if data {
            write(&mut client, c, b"hello?").unwrap();
        }
        let start = p.world.now();
        let ended = step_until(&p.world, S * 3600, || read(&mut client, c) == Err(ErrorKind::TimedOut));
        ended.then(|| p.world.now() - start)
    };
    let patient = vanish(None, true).unwrap();
    assert!((S * 400..S * 1000).contains(&patient), "{patient:?}");
    assert_eq!(vanish(Some(SocketOption::UserTimeout(Some(S * 7))), true), Some(S * 7));
    assert_eq!(vanish(None, false), None, "nothing to find out by");
    // Idle for 20 s, then nine probes at intervals of 2 s.
    let idle = vanish(Some(SocketOption::KeepAlive(Some(S * 20))), false).unwrap();
    assert!((S * 37..=S * 39).contains(&idle), "{idle:?}");
}

#[test]
fn keep_alive_does_not_disturb_a_living_peer() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, ..) = established(&p, &mut client, &mut server);
    client.set(c, SocketOption::KeepAlive(Some(S * 10))).unwrap();
    p.world.trace(true);
    wait(&p.world, S * 100);
    assert_eq!(read(&mut client, c), Err(ErrorKind::WouldBlock));
    let probes = p.world.take_trace().iter().filter(|e| e.link == Some(p.ab)).count();
    assert!((9..=10).contains(&probes), "{probes}");
}

#[test]
fn an_interface_that_goes_down_stalls_a_connection_until_it_is_back() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    p.world.set_interface_up(p.iface_a, false);
    assert!(events(&mut client).contains(&neater_base::net::NetEvent::PathsChanged));
    assert!(!client.interfaces()[1].up);
    assert_eq!(
        client.connect(Token(9), addr("192.0.2.2:80"), &plain()).unwrap_err().kind,
        ErrorKind::NetworkUnreachable
    );
    let bound = SocketOptions { interface: Some(p.iface_a.index), ..plain() };
    assert_eq!(client.connect(Token(9), addr("192.0.2.2:80"), &bound).unwrap_err().kind, ErrorKind::NetworkDown);
    write(&mut client, c, b"later").unwrap();
    wait(&p.world, S * 5);
    assert_eq!(read(&mut server, s), Err(ErrorKind::WouldBlock));
    p.world.set_interface_up(p.iface_a, true);
    wait(&p.world, S * 10);
    assert_eq!(read(&mut server, s).unwrap(), b"later");
}

#[test]
fn a_smaller_path_mtu_is_learnt_from_icmp_and_a_black_hole_is_not() {
    for (too_big, arrives) in [(TooBig::Report, true), (TooBig::BlackHole, false)] {
        let p = pair_of(1, LinkConfig::delay(MS * 5).with_mtu(1280, too_big), LinkConfig::delay(MS * 5));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (c, _, s) = established(&p, &mut client, &mut server);
        let data = random_bytes(1, 10_000);
        write(&mut client, c, &data).unwrap();
        wait(&p.world, S);
        assert_eq!(read(&mut server, s).ok(), arrives.then_some(data));
        let info = client.stream_info(c).unwrap();
        assert_eq!(info.path_mtu, Some(if arrives { 1280 } else { 1500 }));
    }
}

#[test]
fn nagle_holds_a_small_segment_back_and_no_delay_does_not() {
    for (no_delay, packets) in [(false, 2), (true, 3)] {
        let p = pair(1, LinkConfig::delay(MS * 50));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (c, ..) = established(&p, &mut client, &mut server);
        wait(&p.world, S);
        client.set(c, SocketOption::NoDelay(no_delay)).unwrap();
        p.world.trace(true);
        for _ in 0..3 {
            write(&mut client, c, b"tick").unwrap();
        }
        wait(&p.world, S);
        let with_data = |e: &&neater_netsim::TraceEvent| matches!(e.kind, PacketKind::Tcp { payload: 1.., .. });
        let trace = p.world.take_trace();
        let sent: Vec<_> = trace.iter().filter(|e| e.link == Some(p.ab)).filter(with_data).collect();
        assert_eq!(sent.len(), packets);
        assert_eq!(sent[0].size, 20 + 20 + 12 + 4, "timestamps and data");
        assert!(trace.iter().any(|e| e.verdict == TraceVerdict::Delivered));
    }
}

#[test]
fn an_acknowledgment_is_delayed_by_forty_milliseconds_but_for_the_first_ones() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, ..) = established(&p, &mut client, &mut server);
    client.set(c, SocketOption::NoDelay(true)).unwrap();
    let mut delays = Vec::new();
    for _ in 0..20 {
        wait(&p.world, MS * 100);
        p.world.trace(true);
        let start = p.world.now();
        write(&mut client, c, b"one").unwrap();
        wait(&p.world, MS * 100);
        let trace = p.world.take_trace();
        let entered =
            |e: &TraceEvent| if let TraceVerdict::Crossed { entered } = e.verdict { Some(entered) } else { None };
        delays.extend(trace.iter().filter(|e| e.link == Some(p.ba)).filter_map(entered).map(|t| t - start));
    }
    assert!(delays[..16].iter().all(|d| *d == MS * 10), "{delays:?}");
    assert!(delays[16..].iter().all(|d| *d == MS * 50), "{delays:?}");
}

#[test]
fn an_acknowledgment_is_delayed_by_what_the_configuration_says() {
    let p = pair(1, LinkConfig::delay(MS * 10));
    let delayed_ack = DelayedAck::Fixed { every: 2, delay: MS * 200 };
    p.world.set_tcp(p.b, TcpConfig { delayed_ack, ..TcpConfig::linux() });
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, ..) = established(&p, &mut client, &mut server);
    wait(&p.world, S);
    p.world.trace(true);
    let start = p.world.now();
    write(&mut client, c, b"one").unwrap();
    wait(&p.world, S);
    let acks: Vec<_> = p.world.take_trace().iter().filter(|e| e.link == Some(p.ba)).map(|e| e.verdict).collect();
    assert_eq!(acks, [TraceVerdict::Crossed { entered: start + MS * 210 }]);
}

#[test]
fn unsent_bytes_are_limited_by_the_low_water_mark() {
    let p = pair(1, LinkConfig::rate(1_000_000, MS * 20));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    client.set(c, SocketOption::NotSentLowWater(16_384)).unwrap();
    let data = vec![1; 8192];
    let mut written = 0;
    while let Ok(n) = write(&mut client, c, &data) {
        written += n;
    }
    let info = client.stream_info(c).unwrap();
    assert!(written as u64 - info.in_flight.unwrap() < 16_384 + 8192, "{written}");
    readiness(&mut client);
    let woken = step_until(&p.world, S, || {
        let _ = read(&mut server, s);
        readiness(&mut client).iter().any(|(t, r)| *t == 2 && r.writable)
    });
    assert!(woken);
    assert!(write(&mut client, c, &data).is_ok());
}

#[test]
fn closing_a_listener_resets_what_was_not_accepted() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let l = server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    wait(&p.world, MS * 50);
    client.connect_result(c).unwrap();
    server.close(l);
    wait(&p.world, MS * 50);
    assert_eq!(read(&mut client, c), Err(ErrorKind::ConnectionReset));
}

#[test]
fn after_everything_is_closed_the_world_is_empty() {
    let (p, sender, receiver) = bulk(9, LinkConfig::rate(10_000_000, MS * 20).with_loss(0.03), 300_000);
    wait(&p.world, S * 61);
    assert!(p.world.is_empty());
    assert_eq!(p.world.next_event(), None);
    drop((sender, receiver));
    assert_eq!((p.world.open_sockets(p.a), p.world.open_sockets(p.b)), (0, 0));
}

#[test]
fn an_abandoned_connection_does_not_live_for_ever() {
    // The peer never reads, never closes, or is gone.
    for gone in [false, true] {
        let p = pair(1, LinkConfig::delay(MS * 5));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (c, ..) = established(&p, &mut client, &mut server);
        while write(&mut client, c, &[0; 65_536]).is_ok() {
            wait(&p.world, MS * 50);
        }
        client.close(c);
        if gone {
            p.world.set_host_up(p.b, false);
        }
        wait(&p.world, S * 1000);
        drop((client, server));
        wait(&p.world, S * 1000);
        assert!(p.world.is_empty(), "gone: {gone}");
    }
}

#[test]
fn a_port_in_time_wait_can_be_called_again_from_the_same_port() {
    let mut at_once = 0;
    for seed in 0..10 {
        let p = pair(seed, LinkConfig::delay(MS * 10));
        let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
        let (c, _, s) = established(&p, &mut client, &mut server);
        let local = client.local_addr(c).unwrap();
        server.close(s);
        wait(&p.world, MS * 100);
        client.close(c);
        wait(&p.world, MS * 100);
        let start = p.world.now();
        let again =
            client.connect(Token(4), addr("192.0.2.2:80"), &SocketOptions { local: Some(local), ..plain() }).unwrap();
        assert!(step_until(&p.world, S * 5, || client.connect_result(again).is_ok()));
        // A lower initial number first has to clear the old connection away, and the SYN is sent again.
        at_once += u32::from(p.world.now() - start == MS * 20);
        assert!(p.world.now() - start <= S + MS * 20);
    }
    assert!((1..10).contains(&at_once), "{at_once}");
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_seed_another() {
    let digest = |seed| bulk(seed, LinkConfig::rate(10_000_000, MS * 20).with_loss(0.02), 200_000).0.world.digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn readiness_comes_exactly_when_it_was_promised() {
    let p = pair(1, LinkConfig::delay(MS * 5));
    let (mut client, mut server) = (p.world.net(p.a), p.world.net(p.b));
    let (c, _, s) = established(&p, &mut client, &mut server);
    readiness(&mut client);
    readiness(&mut server);
    // Nothing was promised: nothing comes, although there is data.
    write(&mut client, c, b"x").unwrap();
    wait(&p.world, MS * 100);
    assert!(readiness(&mut server).is_empty() && !p.world.has_events(p.b));
    assert_eq!(read(&mut server, s).unwrap(), b"x");
    // Promised: it comes at the very instant of the arrival, and once.
    assert_eq!(read(&mut server, s), Err(ErrorKind::WouldBlock));
    write(&mut client, c, b"y").unwrap();
    let sent = p.world.now();
    assert!(step_until(&p.world, S, || p.world.has_events(p.b)));
    assert_eq!(p.world.now() - sent, MS * 5);
    assert_eq!(p.world.next_wakeup(), Some((p.b, p.world.now())));
    assert_eq!(readiness(&mut server).len(), 1);
    write(&mut client, c, b"z").unwrap();
    wait(&p.world, MS * 100);
    assert!(readiness(&mut server).is_empty());
    assert_eq!(read(&mut server, s).unwrap(), b"yz");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Programs that try only after an event always finish: no wake-up is lost, no byte lost, doubled or displaced.
    #[test]
    fn prop_bytes_arrive_in_order_and_complete(
        seed in any::<u64>(),
        len in 0usize..150_000,
        chunk in 1usize..40_000,
        piece in 1usize..40_000,
        pause_ms in 0u32..200,
        loss in prop_oneof![Just(0.0), 0.0..0.15f64],
        delay_ms in 0u32..60,
        jitter_ms in 0u32..20,
        reorder in any::<bool>(),
        rate in prop_oneof![Just(None), (500_000u64..20_000_000).prop_map(Some)],
        queue in 4usize..100,
        send_buffer in prop_oneof![4096usize..40_000, Just(262_144)],
        receive_buffer in prop_oneof![4096usize..40_000, Just(262_144)],
        no_delay in any::<bool>(),
        low_water in prop_oneof![Just(u32::MAX), 1u32..30_000],
    ) {
        let link = LinkConfig {
            rate: rate.into(),
            delay: MS * delay_ms,
            jitter: (MS * jitter_ms).into(),
            reorder,
            queue: QueueLimit::Packets(queue),
            ..LinkConfig::default()
        };
        let p = pair(seed, link.with_loss(loss));
        let data = random_bytes(seed, len);
        // Tiny chunks make many system calls: bound them.
        let (chunk, piece) = (chunk.max(len / 2000 + 1), piece.max(len / 2000 + 1));
        let with = |set| SocketOptions { set, ..plain() };
        let takes = with(vec![SocketOption::ReceiveBuffer(receive_buffer)]);
        let gives = with(vec![
            SocketOption::SendBuffer(send_buffer),
            SocketOption::NoDelay(no_delay),
            SocketOption::NotSentLowWater(low_water),
        ]);
        let mut receiver = Receiver::with(p.world.net(p.b), piece, MS * pause_ms, seed ^ 1, &takes);
        let to = addr("192.0.2.2:80");
        let mut sender = Sender::with(p.world.net(p.a), to, data.clone(), chunk, seed ^ 2, &gives);
        prop_assert!(run(&p.world, &mut [&mut sender, &mut receiver], S * 3600), "{} of {len}", receiver.data.len());
        prop_assert!(receiver.data == data);
        wait(&p.world, S * 600);
        prop_assert!(p.world.is_empty());
    }
}
