//! Names, cache, search list, hosts.

use crate::world::*;
use neater_dns::{
    Answer, Config, Hosts, MAX_LOOKUPS, MAX_QUERIES, Output, Question, RecordKind, ResolveError, Resolver,
};
use std::time::Duration;

const ZONE: &str = "\
    h.test A 10.0.0.1\nh.test AAAA 2001:db8::1\nh.test HTTPS 1 . alpn=h3\n\
    v4.test A 10.0.0.4\nwww.test CNAME h.test\nhost.corp.test A 10.0.0.7\n";

fn world() -> World {
    World::new(config(1), vec![honest(ZONE)])
}

#[test]
fn all_three_kinds_are_asked_at_once_in_the_order_https_aaaa_a() {
    let mut w = world();
    let answers = w.resolve(&all("h.test"));
    let asked: Vec<&str> = w.asked.iter().map(|(.., q)| q.as_str()).collect();
    assert_eq!(asked, ["h.test. HTTPS", "h.test. AAAA", "h.test. A"]);
    assert!(w.asked.iter().all(|(at, ..)| *at == w.asked[0].0));
    assert_eq!(answers.len(), 3);
    assert_eq!(text(&answers[1].1), ["2001:db8::1"]);
    assert_eq!(text(&answers[2].1), ["10.0.0.1"]);
    let Answer::Services(s) = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!((s[0].target.as_str(), s[0].alpn.len()), ("h.test", 2));
}

#[test]
fn each_answer_is_delivered_as_it_comes() {
    let mut inner = honest(ZONE);
    let mut n = 0;
    let server: Server = Box::new(move |q, tcp| {
        n += 1;
        inner(q, tcp).into_iter().map(|(d, a)| (d + ms(200 * n), a)).collect()
    });
    let mut w = World::new(config(1), vec![server]);
    w.resolve(&all("h.test"));
    let times: Vec<_> = w.answers.iter().map(|(_, k, _, at)| (*k, *at)).collect();
    assert!(times[0].1 < times[1].1 && times[1].1 < times[2].1, "{times:?}");
    assert_eq!(times[0].0, RecordKind::Https);
}

#[test]
fn every_question_has_a_transport_and_an_id_of_its_own() {
    let mut w = world();
    for i in 0..50 {
        w.resolve(&addresses(&format!("n{i}.test")));
    }
    assert_eq!(w.opened, 100);
    let ids: std::collections::BTreeSet<_> = w.wire.iter().map(|m| [m[0], m[1]]).collect();
    assert!(ids.len() > 95, "{} different ids", ids.len());
}

#[test]
fn questions_carry_the_payload_size_and_want_recursion() {
    let mut w = world();
    w.resolve(&only_a("h.test"));
    let m = hickory_proto::op::Message::from_vec(&w.wire[0]).unwrap();
    assert_eq!(m.max_payload(), 1232);
    assert!(m.metadata.recursion_desired && !m.metadata.authentic_data);
}

#[test]
fn a_family_without_records_is_an_empty_answer_and_not_a_failure() {
    let mut w = world();
    let answers = w.resolve(&addresses("v4.test"));
    assert_eq!(answers[0], (RecordKind::Aaaa, Answer::Addresses(Vec::new())));
    assert_eq!(text(&answers[1].1), ["10.0.0.4"]);
}

#[test]
fn aliases_are_followed_inside_the_answer_without_further_questions() {
    let mut w = world();
    assert_eq!(text(&w.one(&only_a("www.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(w.asked.len(), 1);
}

#[test]
fn what_was_learnt_is_not_asked_again_until_it_expires() {
    let mut w = world();
    w.resolve(&all("h.test"));
    let before = w.asked.len();
    w.now += ms(59_000);
    let id = w.lookup(&all("H.TEST."));
    assert_eq!(w.of(id).len(), 3, "known answers come out at once");
    assert_eq!(w.asked.len(), before);
    w.now += ms(2000);
    w.resolve(&all("h.test"));
    assert_eq!(w.asked.len(), before + 3);
}

#[test]
fn the_hot_path_knows_what_lookups_learnt() {
    let mut w = world();
    assert_eq!(w.resolver.cached(w.now, "h.test"), None);
    w.resolve(&all("h.test"));
    let now = w.now;
    let c = w.resolver.cached(now, "H.test").expect("both families are known");
    assert_eq!((c.v6.len(), c.v4.len(), c.https.map(<[_]>::len), c.no_such_name), (1, 1, Some(1), false));
    let expires = c.expires;
    assert!(expires > now + ms(59_000) && expires <= now + ms(60_000));
    assert_eq!(w.resolver.cached(expires, "h.test"), None);
    w.resolve(&only_a("v4.test"));
    assert_eq!(w.resolver.cached(w.now, "v4.test"), None, "one family is not enough");
}

#[test]
fn a_name_that_does_not_exist_is_remembered_for_the_soa_minimum() {
    let mut w = World::new(config(1), vec![honest(&format!("$NEGATIVE 20\n{ZONE}"))]);
    let gone = Answer::Failed(ResolveError::NoSuchName);
    assert_eq!(w.resolve(&addresses("gone.test")), [(RecordKind::Aaaa, gone.clone()), (RecordKind::A, gone.clone())]);
    w.now += ms(19_000);
    let now = w.now;
    assert!(w.resolver.cached(now, "gone.test").is_some_and(|c| c.no_such_name));
    w.resolve(&addresses("gone.test"));
    assert_eq!(w.asked.len(), 2);
    w.now += ms(1000);
    w.resolve(&addresses("gone.test"));
    assert_eq!(w.asked.len(), 4);
}

#[test]
fn a_negative_answer_without_soa_is_not_remembered() {
    // The responder's answer without its authority section.
    let mut inner = honest(ZONE);
    let server: Server = Box::new(move |q, tcp| {
        let strip = |a| match a {
            Act::Data(d) => {
                let mut m = hickory_proto::op::Message::from_vec(&d).unwrap();
                m.authorities.clear();
                Act::Data(m.to_vec().unwrap())
            }
            other => other,
        };
        inner(q, tcp).into_iter().map(|(d, a)| (d, strip(a))).collect()
    });
    let mut w = World::new(config(1), vec![server]);
    for n in 1..=2 {
        assert_eq!(w.one(&only_a("gone.test"), RecordKind::A), Answer::Failed(ResolveError::NoSuchName));
        assert_eq!(w.asked.len(), n);
    }
}

#[test]
fn the_search_list_is_followed_and_an_absolute_name_is_not_searched() {
    let search = vec!["other.test".to_owned(), "corp.test".to_owned()];
    let mut w = World::new(Config { search, ..config(1) }, vec![honest(ZONE)]);
    assert_eq!(text(&w.one(&addresses("host"), RecordKind::A)), ["10.0.0.7"]);
    let names: Vec<&str> = w.asked.iter().map(|(.., q)| q.as_str()).collect();
    let wanted = ["host.other.test. AAAA", "host.other.test. A", "host.corp.test. AAAA", "host.corp.test. A"];
    assert_eq!(names, wanted);
    let now = w.now;
    assert_eq!(w.resolver.cached(now, "host").expect("searched in the cache too").v4.len(), 1);
    assert_eq!(w.one(&only_a("host."), RecordKind::A), Answer::Failed(ResolveError::NoSuchName));
    assert_eq!(w.asked.last().unwrap().3, "host. A");
}

#[test]
fn https_answers_belong_to_the_candidate_that_has_the_addresses() {
    let zone = "host.a.test HTTPS 1 . alpn=h3\nhost.b.test A 10.0.0.2\nhost.b.test HTTPS 1 . alpn=h2\n";
    let search = vec!["a.test".to_owned(), "b.test".to_owned()];
    let mut w = World::new(Config { search, ..config(1) }, vec![honest(zone)]);
    let Answer::Services(s) = w.one(&all("host"), RecordKind::Https) else { panic!("no services") };
    assert_eq!((s.len(), s[0].target.as_str()), (1, "host.b.test"));
}

#[test]
fn localhost_is_this_host_without_asking() {
    let mut w = world();
    for name in ["localhost", "LocalHost.", "x.localhost"] {
        let answers = w.resolve(&all(name));
        assert_eq!(answers[0].1, Answer::Services(Vec::new()));
        // AAAA last: a program that begins with it knows all addresses by then.
        assert_eq!(text(&answers[1].1), ["127.0.0.1"]);
        assert_eq!(text(&answers[2].1), ["::1"]);
        let now = w.now;
        assert_eq!(w.resolver.cached(now, name).map(|c| (c.v6.len(), c.v4.len())), Some((1, 1)));
    }
    assert_eq!(w.one(&only_a("x.invalid"), RecordKind::A), Answer::Failed(ResolveError::NoSuchName));
    assert!(w.asked.is_empty());
}

#[test]
fn the_hosts_file_comes_first_and_answers_every_kind() {
    let mut w = world();
    w.resolver.set_config(w.now, config(1), Hosts::parse(b"10.0.0.99 h.test me\n"));
    let answers = w.resolve(&all("H.Test"));
    assert_eq!(answers[0].1, Answer::Services(Vec::new()));
    assert_eq!(text(&answers[1].1), ["10.0.0.99"]);
    assert_eq!(answers[2].1, Answer::Addresses(Vec::new()));
    assert!(w.asked.is_empty());
}

#[test]
fn names_that_cannot_be_asked_for_fail_at_once_with_advice() {
    let mut w = world();
    for name in ["", ".", "bücher.test", "a..b", "10.0.0.1", &"x".repeat(300)] {
        let id = w.lookup(&all(name));
        let answers = w.of(id);
        assert_eq!(answers.len(), 3, "{name:?}");
        assert!(answers.iter().all(|(_, a)| matches!(a, Answer::Failed(ResolveError::InvalidName(_)))));
    }
    assert!(w.asked.is_empty());
}

#[test]
fn a_lookup_for_nothing_is_done_at_once() {
    let mut w = world();
    let q = Question { name: "h.test", a: false, aaaa: false, https: None, interface: None };
    assert_eq!(w.resolve(&q), []);
}

#[test]
fn without_servers_a_lookup_fails_at_once() {
    let mut w = World::new(Config::default(), Vec::new());
    let id = w.lookup(&all("h.test"));
    assert!(w.of(id).iter().all(|(_, a)| *a == Answer::Failed(ResolveError::NoServers)));
    assert_eq!(w.done.len(), 1);
}

#[test]
fn identical_questions_under_way_are_asked_once() {
    let mut w = world();
    let ids: Vec<_> = (0..10).map(|_| w.lookup(&all("h.test"))).collect();
    w.run();
    assert_eq!(w.asked.len(), 3);
    assert!(ids.iter().all(|id| w.of(*id).len() == 3));
}

#[test]
fn interfaces_share_neither_questions_nor_the_cache() {
    let mut w = world();
    let through = |i| Question { interface: i, ..only_a("h.test") };
    for i in [None, Some(1), Some(2)] {
        w.lookup(&through(i));
    }
    w.run();
    assert_eq!(w.asked.len(), 3);
    w.resolve(&through(Some(1)));
    assert_eq!(w.asked.len(), 3);
}

#[test]
fn a_cancelled_lookup_says_nothing_more_and_frees_its_sockets() {
    let mut w = world();
    let (a, b) = (w.lookup(&all("h.test")), w.lookup(&only_a("h.test")));
    w.resolver.cancel(a);
    w.run();
    assert_eq!(w.of(a), []);
    assert_eq!(w.of(b).len(), 1, "the shared question goes on");
    assert_eq!(w.done.len(), 1);
    let c = w.resolver.lookup(w.now, &all("localhost"));
    w.resolver.cancel(c);
    w.run();
    assert_eq!(w.of(c), [], "not even what was already known");
}

#[test]
fn the_number_of_lookups_is_bounded() {
    let mut w = World::new(config(1), vec![slow(ZONE, ms(100))]);
    w.resolve(&only_a("v4.test"));
    let now = w.now;
    // All want the same, so that there is one question.
    for _ in 0..MAX_LOOKUPS {
        w.resolver.lookup(now, &only_a("h.test"));
    }
    let one_more = w.lookup(&only_a("h.test"));
    assert_eq!(w.of(one_more), [(RecordKind::A, Answer::Failed(ResolveError::TooMany))]);
    let known = w.lookup(&only_a("v4.test"));
    assert_eq!(text(&w.of(known)[0].1), ["10.0.0.4"], "what is known is told");
    w.run();
    assert_eq!(w.asked.len(), 2);
    assert_eq!(w.done.len(), MAX_LOOKUPS + 3);
}

#[test]
fn more_questions_than_may_be_asked_at_once_wait_for_their_turn() {
    let n = 3 * MAX_QUERIES;
    let zone: String = (0..n).map(|i| format!("n{i}.test A 10.1.{}.{}\n", i / 250, i % 250)).collect();
    let mut w = World::new(config(1), vec![slow(&zone, ms(20))]);
    let ids: Vec<_> = (0..n).map(|i| w.lookup(&only_a(&format!("n{i}.test")))).collect();
    assert_eq!(w.asked.len(), MAX_QUERIES, "so many at once");
    w.run();
    assert_eq!(w.asked.len(), n);
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(text(&w.of(*id)[0].1), [format!("10.1.{}.{}", i / 250, i % 250)]);
    }
}

#[test]
fn an_abandoned_lookup_still_teaches_and_gives_its_place_to_who_needs_it() {
    let mut w = World::new(config(1), vec![slow(ZONE, ms(20))]);
    let gone = w.lookup(&only_a("h.test"));
    w.resolver.abandon(gone);
    w.run();
    assert_eq!((w.of(gone), w.done.len()), (vec![], 0), "nobody is told");
    w.resolve(&only_a("h.test"));
    assert_eq!(w.asked.len(), 1, "the answer is known");
    // No lookup waits for these, and no server will answer them.
    let mut w = World::new(config(1), vec![dead()]);
    let idle: Vec<_> = (0..MAX_QUERIES).map(|i| w.lookup(&only_a(&format!("n{i}.test")))).collect();
    let waits = w.lookup(&only_a("h.test"));
    assert_eq!((w.asked.len(), w.resolver.has_turns()), (MAX_QUERIES, false));
    w.resolver.abandon(idle[7]);
    assert!(w.resolver.has_turns());
    w.resolver.cancel(idle[8]);
    w.lookup(&only_a("other.test"));
    assert_eq!(w.asked.len(), MAX_QUERIES + 2);
    w.run();
    assert_eq!(w.of(waits).len(), 1);
    assert_eq!(w.done.len(), MAX_QUERIES);
}

#[test]
fn another_network_has_other_answers_even_from_the_same_server() {
    let mut w = World::new(config(1), vec![slow(ZONE, ms(100))]);
    w.resolve(&only_a("v4.test"));
    let running = w.lookup(&only_a("h.test"));
    let now = w.now;
    w.resolver.network_changed(now);
    let after = w.lookup(&only_a("h.test"));
    w.run();
    assert_eq!(w.asked.len(), 3, "one for each: what was asked elsewhere is not shared");
    assert_eq!((w.of(running).len(), w.of(after).len()), (1, 1), "and goes on");
    w.resolve(&only_a("v4.test"));
    assert_eq!(w.asked.len(), 4, "nor is what was learnt");
}

#[test]
fn new_servers_empty_the_cache_and_running_lookups_go_on() {
    let mut w = World::new(config(2), vec![slow(ZONE, ms(100)), honest("h.test A 10.0.0.200\n")]);
    w.resolve(&only_a("v4.test"));
    let running = w.lookup(&only_a("h.test"));
    let second = Config { servers: vec![addr(2)], ..config(2) };
    let now = w.now;
    w.resolver.set_config(now, second, Hosts::default());
    let after = w.lookup(&only_a("h.test"));
    w.run();
    assert_eq!(text(&w.of(running)[0].1), ["10.0.0.1"]);
    assert_eq!(text(&w.of(after)[0].1), ["10.0.0.200"], "what the old server says later does not count");
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.200"]);
    assert_eq!(w.one(&only_a("v4.test"), RecordKind::A), Answer::Failed(ResolveError::NoSuchName));
}

#[test]
fn a_change_of_patience_alone_keeps_the_cache() {
    let mut w = world();
    w.resolve(&only_a("h.test"));
    let now = w.now;
    w.resolver.set_config(now, Config { attempts: 5, ..config(1) }, Hosts::default());
    w.resolve(&only_a("h.test"));
    assert_eq!(w.asked.len(), 1);
    w.resolver.flush_cache();
    w.resolve(&only_a("h.test"));
    assert_eq!(w.asked.len(), 2);
}

#[test]
fn the_same_seed_and_inputs_give_the_same_outputs() {
    let run = |seed| {
        let mut w = World::seeded(config(2), vec![dead(), honest(ZONE)], seed);
        for name in ["h.test", "gone.test", "www.test"] {
            w.resolve(&all(name));
        }
        (w.wire, w.answers, w.now)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn a_resolver_can_be_driven_by_hand() {
    let now = neater_base::Instant::ZERO + Duration::from_secs(1);
    let mut r = Resolver::new(config(1), Hosts::default(), [0; 32]);
    let id = r.lookup(now, &only_a("h.test"));
    assert!(matches!(r.poll_output(now), Some(Output::OpenUdp { .. })));
    assert!(matches!(r.poll_output(now), Some(Output::Send { .. })));
    assert_eq!(r.poll_output(now), None);
    assert_eq!(r.next_timeout(), Some(now + Duration::from_secs(1)));
    r.cancel(id);
    assert!(matches!(r.poll_output(now), Some(Output::Close { .. })));
    assert_eq!((r.poll_output(now), r.next_timeout()), (None, None));
}

#[test]
fn without_aaaa_no_ipv6_address_is_asked_for_and_whether_a_name_exists_is_known_all_the_same() {
    let mut zone = String::from("h.test A 10.0.0.1\nh.test AAAA 2001:db8::1\nh.test HTTPS 1 cdn.test alpn=h3\n");
    zone += "cdn.test A 10.0.0.2\ncdn.test AAAA 2001:db8::2\n";
    let mut w = World::new(Config { no_aaaa: true, ..config(1) }, vec![honest(&zone)]);
    let answers = w.resolve(&all("h.test"));
    let of = |kind| &answers.iter().find(|(k, _)| *k == kind).unwrap().1;
    assert_eq!((text(of(RecordKind::Aaaa)).len(), text(of(RecordKind::A))), (0, vec!["10.0.0.1".to_owned()]));
    let Answer::Services(s) = of(RecordKind::Https) else { panic!("{answers:?}") };
    assert_eq!(s[0].addresses.len(), 1);
    assert!(!w.asked.iter().any(|(.., q)| q.ends_with("AAAA")), "{:?}", w.asked);
    assert_eq!(w.one(&addresses("gone.test"), RecordKind::A), Answer::Failed(ResolveError::NoSuchName));
    let q = Question { a: false, aaaa: true, https: None, ..all("h.test") };
    assert_eq!(w.one(&q, RecordKind::Aaaa), Answer::Addresses(Vec::new()));
}
