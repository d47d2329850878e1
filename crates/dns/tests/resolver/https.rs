//! Service bindings from end to end.

use crate::world::*;
use hickory_proto::rr::RecordType;
use neater_dns::{Answer, MAX_ALIASES, MAX_TARGETS, Question, RecordKind, ResolveError, ServiceBinding};

fn services(w: &mut World, q: &Question<'_>) -> Vec<ServiceBinding> {
    match w.one(q, RecordKind::Https) {
        Answer::Services(s) => s,
        other => panic!("no services: {other:?}"),
    }
}

fn world(zone: &str) -> World {
    World::new(config(1), vec![honest(zone)])
}

#[test]
fn a_foreign_targets_addresses_are_attached_ipv6_first() {
    let mut w = world(
        "h.test A 10.0.0.1\nh.test HTTPS 1 cdn.test alpn=h3,h2 port=8443\nh.test HTTPS 2 . alpn=h2\n\
         cdn.test A 10.0.0.2\ncdn.test AAAA 2001:db8::2\n",
    );
    let s = services(&mut w, &all("h.test"));
    assert_eq!(s.len(), 2);
    assert_eq!((s[0].target.as_str(), s[0].port), ("cdn.test", Some(8443)));
    let got: Vec<_> = s[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(got, ["2001:db8::2", "10.0.0.2"]);
    assert_eq!((s[1].target.as_str(), s[1].addresses.len()), ("h.test", 0), "its addresses are answers of their own");
    let now = w.now;
    let cached = w.resolver.cached(now, "h.test").expect("known");
    assert_eq!(cached.https, Some(&s[..]));
    let before = w.asked.len();
    assert_eq!(services(&mut w, &all("h.test")), s);
    assert_eq!(w.asked.len(), before);
}

#[test]
fn another_port_is_asked_under_its_own_name() {
    let mut w = world("h.test A 10.0.0.1\n_8443._https.h.test HTTPS 1 h.test alpn=h3\n");
    let q = Question { https: Some(8443), ..all("h.test") };
    let s = services(&mut w, &q);
    assert_eq!((s.len(), s[0].target.as_str()), (1, "h.test"));
    assert!(w.asked.iter().any(|(.., q)| q == "_8443._https.h.test. HTTPS"));
    let q = Question { https: Some(9), ..all("h.test") };
    assert_eq!(services(&mut w, &q), [], "a port without records is no failure");
}

#[test]
fn an_alias_is_followed_to_its_services() {
    let mut w =
        world("h.test A 10.0.0.1\nh.test HTTPS 0 pool.test\npool.test HTTPS 1 . alpn=h3\npool.test A 10.0.0.3\n");
    let s = services(&mut w, &all("h.test"));
    assert_eq!(s.len(), 2, "the service and the end of the alias itself");
    assert_eq!((s[0].priority, s[0].target.as_str()), (1, "pool.test"));
    assert_eq!((s[1].priority, s[1].target.as_str()), (u16::MAX, "pool.test"));
    assert!(s.iter().all(|b| b.addresses.len() == 1));
}

#[test]
fn a_loop_of_aliases_fails_https_alone() {
    let mut w = world("h.test A 10.0.0.1\nh.test HTTPS 0 i.test\ni.test HTTPS 0 h.test\n");
    let answers = w.resolve(&all("h.test"));
    for (kind, answer) in answers {
        match kind {
            RecordKind::Https => assert_eq!(answer, Answer::Failed(ResolveError::Loop)),
            RecordKind::A => assert_eq!(text(&answer), ["10.0.0.1"]),
            RecordKind::Aaaa => assert_eq!(answer, Answer::Addresses(Vec::new())),
        }
    }
    assert!(w.asked.len() <= 4);
}

#[test]
fn a_hostile_zone_cannot_multiply_questions() {
    let mut zone = String::from("h.test A 10.0.0.1\n");
    for i in 0..30 {
        zone += &format!("h.test HTTPS {} t{i}.test\n", i + 1);
    }
    let mut w = world(&zone);
    w.resolve(&all("h.test"));
    let datagrams = w.asked.iter().filter(|(_, _, tcp, _)| !tcp).count();
    assert_eq!(datagrams, 3 + 2 * MAX_TARGETS);
    let mut zone = String::from("h.test A 10.0.0.1\nh.test HTTPS 0 a0.test\n");
    for i in 0..30 {
        zone += &format!("a{i}.test HTTPS 0 a{}.test\n", i + 1);
    }
    let mut w = world(&zone);
    w.resolve(&all("h.test"));
    assert_eq!(w.asked.len(), 3 + usize::from(MAX_ALIASES));
}

#[test]
fn a_malformed_record_condemns_https_and_nothing_else() {
    let mut inner = honest("h.test A 10.0.0.1\nh.test HTTPS 1 . alpn=h3 port=8443\n");
    let server: Server = Box::new(move |q, tcp| {
        let bend = |a| match a {
            Act::Data(mut d) => {
                // The first parameter's key becomes greater than the second's.
                if let Some(at) = d.windows(7).position(|w| w == [0, 1, 0, 3, 2, b'h', b'3']) {
                    d[at + 1] = 9;
                }
                Act::Data(d)
            }
            other => other,
        };
        inner(q, tcp).into_iter().map(|(d, a)| (d, bend(a))).collect()
    });
    let mut w = World::new(config(1), vec![server]);
    let answers = w.resolve(&all("h.test"));
    let find = |kind| &answers.iter().find(|(k, _)| *k == kind).unwrap().1;
    assert_eq!(*find(RecordKind::Https), Answer::Failed(ResolveError::Malformed));
    assert_eq!(text(find(RecordKind::A)), ["10.0.0.1"]);
}

#[test]
fn an_unknown_mandatory_key_hides_only_its_record() {
    let mut w = world("h.test A 10.0.0.1\nh.test HTTPS 1 . mandatory=key65400 key65400=x\nh.test HTTPS 2 . alpn=h2\n");
    let s = services(&mut w, &all("h.test"));
    assert_eq!(s.iter().map(|b| b.priority).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_server_that_drops_https_questions_delays_nothing_else() {
    let mut inner = honest("h.test A 10.0.0.1\nh.test AAAA 2001:db8::1\n");
    let server: Server = Box::new(move |q, tcp| {
        let m = hickory_proto::op::Message::from_vec(q).unwrap();
        let https = m.queries[0].query_type() == hickory_proto::rr::RecordType::HTTPS;
        if https { Vec::new() } else { inner(q, tcp) }
    });
    let mut w = World::new(config(1), vec![server]);
    let start = w.now;
    let id = w.lookup(&all("h.test"));
    w.run_until(start + ms(100));
    assert_eq!(w.of(id).len(), 2);
    w.run();
    assert_eq!(w.of(id)[2], (RecordKind::Https, Answer::Failed(ResolveError::Timeout)));
}

#[test]
fn a_targets_failure_leaves_its_hints_and_is_not_remembered() {
    let zone = "h.test HTTPS 1 cdn.test alpn=h3 ipv4hint=10.0.0.8\nh.test HTTPS 2 gone.test alpn=h2\n";
    let mut inner = honest(zone);
    let server: Server = Box::new(move |q, tcp| {
        let m = hickory_proto::op::Message::from_vec(q).unwrap();
        if m.queries[0].name().to_string() == "cdn.test." {
            return vec![(ms(0), Act::Data(with_code(q, 2)))];
        }
        inner(q, tcp)
    });
    let mut w = World::new(config(1), vec![server]);
    let q = Question { a: false, aaaa: false, ..all("h.test") };
    let s = services(&mut w, &q);
    assert_eq!(s.len(), 1, "an endpoint without any address is left out");
    assert_eq!((s[0].target.as_str(), s[0].hints.len(), s[0].addresses.len()), ("cdn.test", 1, 1));
    let before = w.asked.len();
    services(&mut w, &q);
    assert!(w.asked.len() > before);
}

#[test]
fn what_was_known_of_one_candidate_is_not_taken_for_another() {
    // Through the alias, the first candidate's services hang on a target whose addresses cannot be
    // found out, so they are put together again each time from what the cache holds.
    let zone = "host.a.test HTTPS 0 alias.test\nalias.test HTTPS 1 broken.test\n\
                host.b.test A 10.0.0.2\nhost.b.test HTTPS 1 . alpn=h2\n";
    let mut inner = honest(zone);
    let server: Server = Box::new(move |q, tcp| {
        let m = hickory_proto::op::Message::from_vec(q).unwrap();
        if m.queries[0].name().to_string() == "broken.test." {
            return vec![(ms(0), Act::Data(with_code(q, 2)))];
        }
        inner(q, tcp)
    });
    let search = vec!["a.test".to_owned(), "b.test".to_owned()];
    let mut w = World::new(neater_dns::Config { search, ..config(1) }, vec![server]);
    assert_eq!(services(&mut w, &all("host.a.test.")), []);
    let before = w.asked.len();
    let s = services(&mut w, &all("host"));
    assert_eq!(s.iter().map(|b| b.target.as_str()).collect::<Vec<_>>(), ["host.b.test"]);
    // The target's addresses are asked for again: with some, the first candidate's services would
    // be what is wanted.
    let may = |q: &str| q.starts_with("broken.test.") || q.starts_with("host.b.test.");
    assert!(w.asked[before..].iter().all(|(.., q)| may(q)), "{:?}", &w.asked[before..]);
}

#[test]
fn services_put_together_across_a_change_of_servers_are_not_remembered() {
    let mut inner = honest("h.test A 10.0.0.1\nh.test HTTPS 1 cdn.test alpn=h3\ncdn.test A 10.0.0.2\n");
    let old: Server = Box::new(move |q, tcp| {
        let m = hickory_proto::op::Message::from_vec(q).unwrap();
        let late = m.queries[0].name().to_string() == "cdn.test.";
        inner(q, tcp).into_iter().map(|(d, a)| (if late { d + ms(500) } else { d }, a)).collect()
    });
    let mut w = World::new(config(1), vec![old, honest("h.test HTTPS 5 . alpn=h2\n")]);
    let start = w.now;
    let id = w.lookup(&all("h.test"));
    w.run_until(start + ms(200));
    let servers = vec![addr(2)];
    w.resolver.set_config(w.now, neater_dns::Config { servers, ..config(1) }, neater_dns::Hosts::default());
    w.run();
    assert!(w.of(id).iter().any(|(_, a)| matches!(a, Answer::Services(s) if s[0].target == "cdn.test")));
    assert_eq!(services(&mut w, &all("h.test"))[0].priority, 5);
}

/// A server that is honest but for the answers that `spoils` selects: `None` is silence.
fn spoilt(zone: &str, mut spoils: impl FnMut(&str, RecordType) -> Option<Spoilt> + Send + 'static) -> Server {
    let mut inner = honest(zone);
    Box::new(move |q, tcp| {
        let m = hickory_proto::op::Message::from_vec(q).unwrap();
        let (name, kind) = (m.queries[0].name().to_string(), m.queries[0].query_type());
        match spoils(&name, kind) {
            None => inner(q, tcp),
            Some(Spoilt::Silent) => Vec::new(),
            Some(Spoilt::Fails) => vec![(ms(0), Act::Data(with_code(q, 2)))],
            Some(Spoilt::Late(by)) => inner(q, tcp).into_iter().map(|(d, a)| (d + by, a)).collect(),
        }
    })
}

enum Spoilt {
    Silent,
    Fails,
    Late(std::time::Duration),
}

#[test]
fn hints_of_another_host_are_told_at_once_and_give_way_to_its_addresses_one_family_after_the_other() {
    let zone = "h.test A 10.0.0.1\nh.test HTTPS 1 cdn.test alpn=h3 ipv4hint=10.0.0.8 ipv6hint=2001:db8::8\n\
                cdn.test A 10.0.0.2\ncdn.test AAAA 2001:db8::2\n";
    let server = spoilt(zone, |name, kind| match (name, kind) {
        ("cdn.test.", RecordType::AAAA) => Some(Spoilt::Silent),
        ("cdn.test.", RecordType::A) => Some(Spoilt::Late(ms(100))),
        _ => None,
    });
    let mut w = World::new(config(1), vec![server]);
    let start = w.now;
    let id = w.lookup(&all("h.test"));
    w.run();
    let so_far: Vec<(Vec<String>, _)> = w
        .so_far
        .iter()
        .filter(|(l, ..)| *l == id)
        .map(|(_, s, at)| (s[0].addresses.iter().map(ToString::to_string).collect(), at.saturating_since(start)))
        .collect();
    let expected = [(["2001:db8::8", "10.0.0.8"], RTT), (["2001:db8::8", "10.0.0.2"], RTT * 2 + ms(100))];
    assert_eq!(so_far, expected.map(|(a, at)| (a.map(str::to_owned).to_vec(), at)));
    let Some((_, Answer::Services(s))) = w.of(id).into_iter().find(|(k, _)| *k == RecordKind::Https) else { panic!() };
    let end: Vec<_> = s[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(end, ["2001:db8::8", "10.0.0.2"], "of one family nothing could be found out");
}

#[test]
fn nothing_is_told_early_of_a_candidate_that_may_not_be_the_one() {
    let zone = "host.a.test HTTPS 1 gone.test alpn=h3\nhost.b.test A 10.0.0.2\nhost.b.test HTTPS 1 cdn.test alpn=h2\n\
                cdn.test A 10.0.0.3\n";
    let search = vec!["a.test".to_owned(), "b.test".to_owned()];
    let mut w = World::new(neater_dns::Config { search, ..config(1) }, vec![honest(zone)]);
    assert_eq!(services(&mut w, &all("host"))[0].target, "cdn.test");
    let of_gone = w.so_far.iter().any(|(_, s, _)| s.iter().any(|b| b.target == "gone.test"));
    assert!(!of_gone && !w.so_far.is_empty(), "{:?}", w.so_far);
}

#[test]
fn a_host_that_is_another_name_is_at_the_end_of_its_chain_without_asking_again() {
    let mut w = world(
        "h.test CNAME i.test\ni.test CNAME e.test\ne.test A 10.0.0.2\n\
         e.test HTTPS 1 . alpn=h3 ipv4hint=10.0.0.9\ne.test HTTPS 2 h.test alpn=h2\n",
    );
    let s = services(&mut w, &all("h.test"));
    assert_eq!(
        s.iter().map(|b| (b.target.as_str(), b.foreign)).collect::<Vec<_>>(),
        [("e.test", false), ("h.test", false)]
    );
    assert_eq!(w.asked.len(), 3, "{:?}", w.asked);
}

#[test]
fn the_end_of_a_chain_below_an_alias_or_another_port_is_another_host() {
    let mut w =
        world("h.test A 10.0.0.1\n_8443._https.h.test CNAME s.test\ns.test HTTPS 1 . alpn=h3\ns.test A 10.0.0.7\n");
    let s = services(&mut w, &Question { https: Some(8443), ..all("h.test") });
    assert_eq!((s[0].target.as_str(), s[0].foreign, s[0].addresses.len()), ("s.test", true, 1));
    let mut w = world(
        "h.test A 10.0.0.1\nh.test HTTPS 0 alias.test\nalias.test CNAME end.test\nend.test HTTPS 1 . alpn=h3\n\
         end.test A 10.0.0.7\n",
    );
    let s = services(&mut w, &all("h.test"));
    assert!(s.iter().all(|b| b.foreign && b.addresses.len() == 1), "{s:?}");
}

#[test]
fn hints_of_another_host_settle_a_candidate() {
    let zone = "host.a.test HTTPS 1 broken.test alpn=h3 ipv4hint=10.0.0.8\nhost.b.test A 10.0.0.2\n";
    let search = vec!["a.test".to_owned(), "b.test".to_owned()];
    let server = spoilt(zone, |name, _| (name == "broken.test.").then_some(Spoilt::Fails));
    let mut w = World::new(neater_dns::Config { search, ..config(1) }, vec![server]);
    let s = services(&mut w, &all("host"));
    assert_eq!((s[0].target.as_str(), s[0].hints.len(), s[0].addresses.len()), ("broken.test", 1, 1));
    assert!(!w.asked.iter().any(|(.., q)| q.starts_with("host.b.test.")));
}

#[test]
fn a_candidate_with_services_alone_is_known_without_asking() {
    let zone = "host.a.test HTTPS 1 cdn.test alpn=h3\ncdn.test A 10.0.0.8\nhost.b.test A 10.0.0.2\n";
    let search = vec!["a.test".to_owned(), "b.test".to_owned()];
    let mut w = World::new(neater_dns::Config { search, ..config(1) }, vec![honest(zone)]);
    w.resolve(&all("host.b.test."));
    let s = services(&mut w, &all("host"));
    let now = w.now;
    let cached = w.resolver.cached(now, "host").expect("known");
    assert_eq!((cached.https, cached.v4.len()), (Some(&s[..]), 0));
}

#[test]
fn a_broken_zone_is_told_of_where_only_services_are_asked_for() {
    let search = vec!["broken.test".to_owned()];
    let server = spoilt("b.test A 10.0.0.2\n", |name, _| name.ends_with("broken.test.").then_some(Spoilt::Fails));
    let mut w = World::new(neater_dns::Config { search, ..config(1) }, vec![server]);
    let q = Question { a: false, aaaa: false, ..all("host") };
    assert_eq!(w.one(&q, RecordKind::Https), Answer::Failed(ResolveError::ServerFailure));
}

#[test]
fn an_alias_leads_somewhere_also_where_the_records_there_cannot_be_had() {
    let zone = "h.test A 10.0.0.1\nh.test HTTPS 0 pool.test\npool.test A 10.0.0.3\n";
    let server =
        spoilt(zone, |name, kind| (name == "pool.test." && kind == RecordType::HTTPS).then_some(Spoilt::Fails));
    let mut w = World::new(config(1), vec![server]);
    let s = services(&mut w, &all("h.test"));
    assert_eq!((s.len(), s[0].target.as_str(), s[0].priority, s[0].addresses.len()), (1, "pool.test", u16::MAX, 1));
    let before = w.asked.len();
    services(&mut w, &all("h.test"));
    assert!(w.asked[before..].iter().any(|(.., q)| q == "pool.test. HTTPS"), "a failure may pass");
}

/// RFC 9460 section 8: a client that does not support a mandatory key must not use the record.
/// neater does not support ECH.
#[test]
fn a_record_that_demands_ech_is_not_used() {
    let mut w = world("h.test A 10.0.0.1\nh.test HTTPS 1 . mandatory=ech ech=AEX+ alpn=h2\nh.test HTTPS 2 . alpn=h2\n");
    let s = services(&mut w, &all("h.test"));
    assert_eq!(s.iter().map(|b| b.priority).collect::<Vec<_>>(), [2]);
}
