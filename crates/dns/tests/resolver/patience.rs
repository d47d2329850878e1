//! Servers that are slow, dead, refusing, or need TCP.

use crate::world::*;
use neater_base::net::ErrorKind;
use neater_dns::{Answer, Config, RecordKind, ResolveError};

const ZONE: &str = "h.test A 10.0.0.1\n";

fn many() -> String {
    (0..200).map(|i| format!("many.test A 10.0.1.{i}\n")).collect()
}

fn seconds_taken(w: &World) -> f64 {
    (w.done[0].1 - w.asked[0].0).as_secs_f64()
}

#[test]
fn when_the_first_server_is_dead_the_second_is_asked_after_a_second() {
    let mut w = World::new(config(2), vec![dead(), honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    let times: Vec<_> = w.asked.iter().map(|(at, s, ..)| ((*at - w.asked[0].0).as_millis(), *s)).collect();
    assert_eq!(times, [(0, addr(1)), (1000, addr(2))]);
    // The silent server is now asked last, so that the next user does not wait.
    w.resolve(&only_a("other.test"));
    assert_eq!(w.asked[2].1, addr(2));
    assert_eq!(w.asked.len(), 3);
    w.now += ms(31_000);
    w.resolve(&only_a("another.test"));
    assert_eq!(w.asked[3].1, addr(1));
}

#[test]
fn when_both_servers_are_dead_the_lookup_times_out_after_nine_seconds() {
    let mut w = World::new(config(2), vec![dead(), dead()]);
    let answers = w.resolve(&all("h.test"));
    assert!(answers.iter().all(|(_, a)| *a == Answer::Failed(ResolveError::Timeout)), "{answers:?}");
    assert_eq!(answers.len(), 3);
    assert_eq!(w.done[0].1 - w.asked[0].0, config(2).silence());
    assert_eq!(config(2).silence(), ms(9000));
    let a: Vec<_> = w.asked.iter().filter(|(.., q)| q == "h.test. A").collect();
    let times: Vec<_> = a.iter().map(|(at, s, ..)| ((*at - a[0].0).as_secs(), *s)).collect();
    assert_eq!(times, [(0, addr(1)), (1, addr(2)), (2, addr(1)), (4, addr(2))]);
}

#[test]
fn a_slow_servers_late_answer_still_counts() {
    let mut w = World::new(config(1), vec![slow(ZONE, ms(3500))]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(seconds_taken(&w), 3.52);
    assert_eq!(w.asked.len(), 2);
}

#[test]
fn a_late_answer_clears_a_servers_name() {
    let mut w = World::new(config(2), vec![slow(ZONE, ms(1500)), dead()]);
    w.resolve(&only_a("h.test"));
    w.resolve(&only_a("other.test"));
    let servers: Vec<_> = w.asked.iter().map(|(_, s, ..)| *s).collect();
    assert_eq!(servers, [addr(1), addr(2), addr(1), addr(2)]);
}

#[test]
fn a_server_that_fails_or_refuses_is_left_for_the_next_at_once() {
    for rcode in [2, 5, 9] {
        let mut w = World::new(config(2), vec![code(rcode), honest(ZONE)]);
        assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"], "code {rcode}");
        assert_eq!(seconds_taken(&w), 0.04);
    }
}

#[test]
fn when_every_server_fails_the_error_says_how_and_comes_at_once() {
    for (rcode, error) in [(2, ResolveError::ServerFailure), (5, ResolveError::Refused)] {
        let mut w = World::new(config(2), vec![code(rcode), code(rcode)]);
        assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(error));
        assert_eq!(w.asked.len(), 2, "a server that has failed is not asked again");
        assert_eq!(seconds_taken(&w), 0.04);
    }
}

#[test]
fn an_icmp_error_leads_to_the_next_server_at_once() {
    let refuse: Server = Box::new(|_, _| vec![(ms(0), Act::Fail)]);
    let mut w = World::new(config(2), vec![refuse, honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(seconds_taken(&w), 0.04);
    let refuse: Server = Box::new(|_, _| vec![(ms(0), Act::Fail)]);
    let mut w = World::new(config(1), vec![refuse]);
    let error = ResolveError::Unreachable(ErrorKind::ConnectionRefused.into());
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(error));
}

#[test]
fn a_refusal_does_not_cut_off_a_slow_server_that_may_still_answer() {
    let mut w = World::new(Config { attempts: 1, ..config(2) }, vec![slow(ZONE, ms(4000)), code(5)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(seconds_taken(&w), 4.02);
}

#[test]
fn a_truncated_answer_is_fetched_over_tcp() {
    let mut w = World::new(config(1), vec![honest(&many())]);
    assert_eq!(text(&w.one(&only_a("many.test"), RecordKind::A)).len(), 64);
    let over: Vec<bool> = w.asked.iter().map(|(_, _, tcp, _)| *tcp).collect();
    assert_eq!(over, [false, true]);
}

#[test]
fn when_tcp_is_refused_the_next_server_is_asked() {
    let mut w = World::new(config(2), vec![honest(&many()), honest(&many())]);
    w.no_tcp = vec![addr(1)];
    assert_eq!(text(&w.one(&only_a("many.test"), RecordKind::A)).len(), 64);
    w.resolver.flush_cache();
    w.no_tcp = vec![addr(1), addr(2)];
    let answer = w.one(&only_a("many.test"), RecordKind::A);
    assert_eq!(answer, Answer::Failed(ResolveError::Unreachable(ErrorKind::ConnectionRefused.into())));
}

#[test]
fn use_vc_asks_over_tcp_from_the_start() {
    let mut w = World::new(Config { use_tcp: true, ..config(1) }, vec![honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert!(w.asked.iter().all(|(_, _, tcp, _)| *tcp));
}

#[test]
fn a_server_that_always_truncates_and_stalls_on_tcp_ends_in_time() {
    let server = || -> Server {
        Box::new(|q, tcp| {
            let mut reply = with_code(q, 0);
            reply[2] |= 2;
            if tcp { Vec::new() } else { vec![(ms(0), Act::Data(reply))] }
        })
    };
    let mut w = World::new(config(2), vec![server(), server()]);
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(ResolveError::Timeout));
    assert!(w.done[0].1 - w.asked[0].0 <= config(2).longest_question());
}

#[test]
fn a_server_that_stalls_on_tcp_delays_the_next_by_one_wait() {
    let stalls: Server = Box::new(|q, tcp| {
        let mut reply = with_code(q, 0);
        reply[2] |= 2;
        if tcp { Vec::new() } else { vec![(ms(0), Act::Data(reply))] }
    });
    let mut w = World::new(config(2), vec![stalls, honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(seconds_taken(&w), 1.04);
}

#[test]
fn a_server_without_edns_is_asked_again_without_it() {
    let mut inner = honest(ZONE);
    let server: Server = Box::new(move |q, tcp| {
        let plain = hickory_proto::op::Message::from_vec(q).unwrap().edns.is_none();
        // Such a server may send back the bare header.
        let mut header = vec![q[0], q[1], 0x80, 1];
        header.extend([0; 8]);
        if plain { inner(q, tcp) } else { vec![(ms(0), Act::Data(header))] }
    });
    let mut w = World::new(config(1), vec![server]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(w.asked.len(), 2);
}

#[test]
fn rotation_spreads_questions_over_the_servers() {
    let mut w = World::new(Config { rotate: true, ..config(2) }, vec![honest(ZONE), honest(ZONE)]);
    for i in 0..4 {
        w.resolve(&only_a(&format!("n{i}.test")));
    }
    let servers: Vec<_> = w.asked.iter().map(|(_, s, ..)| *s).collect();
    assert_eq!(servers, [addr(1), addr(2), addr(1), addr(2)]);
}

#[test]
fn early_and_repeated_timeouts_have_no_effect() {
    let mut w = World::new(config(1), vec![dead()]);
    w.lookup(&only_a("h.test"));
    for _ in 0..3 {
        w.resolver.handle_timeout(w.now + ms(999));
    }
    w.drain();
    assert_eq!(w.asked.len(), 1);
    w.now += ms(1000);
    for _ in 0..3 {
        w.resolver.handle_timeout(w.now);
    }
    w.drain();
    assert_eq!(w.asked.len(), 2);
}
