//! Whatever one user sends costs the others little: time, memory, and news.

use super::*;

/// Rules that make very many candidates, and then deny them.
fn fan_out(n: usize) -> String {
    let mut all = Vec::new();
    for i in 0..n {
        let each: Vec<Value> = (0..20).map(|v| json!({(format!("k{i}")): {"value": v}})).collect();
        all.push(json!({"uid": format!("a{i}"), "priority": i, "match": {}, "properties": [each]}));
    }
    all.push(json!({"uid": "z", "priority": 99, "match": {}, "properties": [[]]}));
    Value::from(all).to_string()
}

#[test]
fn rules_that_fan_out_stall_nobody_for_long() {
    let mut d = daemon();
    tell(&mut d, Door::Pib, ANN, &fan_out(3));
    let requests: Vec<Value> = (0..200).map(|i| json!({"transport": {"value": "TCP"}, "n": {"value": i}})).collect();
    let (answer, refusals) = say(&mut d, Door::Requests, ANN, &Value::from(requests).to_string());
    assert!(answer.is_empty() && refusals.len() == 1, "{answer} {refusals:?}");
    assert!(refusals[0].contains("too much"), "8,000 candidates for each of 200 requests: {refusals:?}");
    assert_eq!(interfaces(&mut d, BOB), ["-"], "another user is served");
}

#[test]
fn requests_have_a_bounded_number_of_properties() {
    let mut d = daemon();
    let with = |n: usize| {
        let mut all: serde_json::Map<String, Value> = (0..n).map(|i| (format!("k{i}"), json!({}))).collect();
        all.insert("transport".into(), json!({"value": "TCP"}));
        Value::from(vec![Value::Object(all)]).to_string()
    };
    assert_eq!(ask(&mut d, ANN, &with(MAX_PROPERTIES - 1)).len(), 1);
    let (answer, refusals) = say(&mut d, Door::Requests, ANN, &with(MAX_PROPERTIES));
    assert!(answer.is_empty() && refusals[0].contains("too much"), "{refusals:?}");
    let many: Vec<Value> = (0..256)
        .map(|i| {
            let all = (0..100).map(|k| (format!("k{k}"), json!({"value": i})));
            Value::Object(all.collect())
        })
        .collect();
    let (answer, refusals) = say(&mut d, Door::Requests, ANN, &Value::from(many).to_string());
    assert!(answer.is_empty() && refusals[0].contains("too much"), "{refusals:?}");
}

#[test]
fn what_one_user_writes_is_bounded_in_bytes() {
    let mut d = daemon();
    let heavy = |uid: &str| {
        json!({"uid": uid, "description": "x".repeat(500_000), "root": true, "expire": -1, "properties": {}})
            .to_string()
    };
    let mut took = 0;
    for i in 0..16 {
        took += usize::from(say(&mut d, Door::Pib, ANN, &heavy(&format!("r{i}"))).1.is_empty());
        took += usize::from(say(&mut d, Door::Cib, ANN, &heavy(&format!("n{i}"))).1.is_empty());
    }
    assert_eq!(took, MAX_GUEST_BYTES / 500_600);
    // Few bytes that make many combinations are many bytes.
    let each: Vec<Value> = (0..10).map(|v| json!({"a": {"value": v}})).collect();
    let groups: Vec<Value> =
        "bcde".chars().map(|k| each.iter().map(|p| json!({(k.to_string()): p["a"]})).collect()).collect();
    let wide = json!({"uid": "wide", "match": {}, "properties": groups}).to_string();
    let (answer, _) = say(&mut d, Door::Pib, BOB, &wide);
    assert!(wide.len() < 2000 && answer.contains("remove some first"), "{answer}");
    tell(&mut d, Door::Pib, BOB, r#"{"uid": "narrow"}"#);
}

#[test]
fn only_what_a_user_sees_is_news_for_that_user() {
    let mut d = daemon();
    let before = d.version_of(ANN);
    // What others write for themselves, what is refused, and what is known already.
    tell(&mut d, Door::Cib, BOB, &interface("bobs"));
    tell(&mut d, Door::Pib, BOB, r#"{"uid": "bobs"}"#);
    assert_eq!(d.version_of(ANN), before);
    tell(&mut d, Door::Pib, OWNER, r#"{"uid": "all"}"#);
    let all = d.version_of(ANN);
    assert!(all > before && d.version_of(BOB) == all);
    say(&mut d, Door::Pib, ANN, r#"{"uid": "all"}"#);
    say(&mut d, Door::Pib, ANN, "{");
    tell(&mut d, Door::Pib, OWNER, r#"{"uid": "all"}"#);
    let _ = d.remove_rule(ANN, Stage::Policy, "nothing");
    let _ = d.remove_node(OWNER, "nothing");
    assert_eq!(d.version_of(ANN), all);
    // A modem that repeats itself; a new value is news.
    let line = |rsrp: i32| format!("{{\"interface\": \"wwan0\", \"rsrp\": {rsrp}}}\n");
    let mut modem = Session::new(Door::Metadata, 0);
    modem.receive(line(-80).as_bytes(), &mut d, NOW);
    let first = d.version_of(ANN);
    assert!(first > all);
    (0..20).for_each(|_| modem.receive(line(-80).as_bytes(), &mut d, NOW));
    assert_eq!(d.version_of(ANN), first);
    modem.receive(line(-81).as_bytes(), &mut d, NOW);
    assert!(d.version_of(ANN) > first);
    // What ANN writes is news for ANN alone.
    let (ann, bob) = (d.version_of(ANN), d.version_of(BOB));
    tell(&mut d, Door::Cib, ANN, &interface("anns"));
    assert!(d.version_of(ANN) > ann && d.version_of(BOB) == bob);
    // The host's interfaces are seen by all users.
    let version = d.version_of(BOB);
    let eth0 = neater_base::net::Interface {
        index: 2,
        name: "eth0".into(),
        kind: neater_base::net::InterfaceKind::Wired,
        up: true,
        addrs: vec![neater_base::net::InterfaceAddr {
            addr: "192.0.2.1".parse().expect("an address"),
            prefix: 24,
            temporary: false,
            deprecated: false,
        }],
        mtu: 1500,
        default_v4: true,
        default_v6: false,
    };
    d.set_interfaces(&[eth0], NOW);
    assert_eq!(d.version_of(BOB), version);
}

/// Asks for the tables one page after the other, and does something after each page; how many pages
/// it took.
fn fetch(d: &mut Daemon, user: u32, mut meanwhile: impl FnMut(&mut Daemon, usize)) -> (Tables, usize) {
    let (mut follower, mut session) = (Follower::new(), Session::new(Door::Requests, user));
    let mut out = Vec::new();
    follower.ask(&mut out);
    for pages in 1..100 {
        session.receive(&std::mem::take(&mut out), d, NOW);
        let heard = follower.receive(&session.take_output(), &mut out, NOW).expect("a daemon");
        if let Some(tables) = heard.tables {
            return (tables, pages);
        }
        meanwhile(d, pages);
    }
    panic!("the tables never come");
}

#[test]
fn tables_that_change_while_they_are_told_are_told_to_the_end() {
    let mut d = daemon();
    let rule = |i: usize| json!({"uid": format!("rule-{i}"), "description": "x".repeat(1000)}).to_string();
    (0..400).for_each(|i| tell(&mut d, Door::Pib, OWNER, &rule(i)));
    let nodes = |d: &mut Daemon, i: usize| tell(d, Door::Cib, OWNER, &interface(&format!("n{i:03}")));
    (100..200).for_each(|i| nodes(&mut d, i));
    let (tables, pages) = fetch(&mut d, ANN, |d, page| {
        // Another rule before all others, and a node that goes.
        tell(d, Door::Pib, OWNER, &json!({"uid": format!("new-{page}"), "priority": -1}).to_string());
        assert_eq!(d.remove_node(OWNER, &format!("n{}", 100 + page)), Ok(()));
    });
    assert!((7..20).contains(&pages), "{pages}");
    assert_eq!((tables.policies.len(), tables.nodes.len()), (400, 100), "those of one time");
    let (tables, _) = fetch(&mut d, ANN, |_, _| ());
    assert!(tables.policies.len() > 400 && tables.nodes.len() < 100, "and then the new ones");
    assert_eq!(d.snapshots.bytes(), 0, "they are gone with their last pages");
    // A client dies in the middle of it, and there is no request for half a minute.
    let begin = |d: &mut Daemon, now: WallTime| {
        let (mut session, mut out) = (Session::new(Door::Requests, BOB), Vec::new());
        Follower::new().ask(&mut out);
        session.receive(&out, d, now);
        d.snapshots.bytes()
    };
    let one = begin(&mut d, NOW);
    assert!((400_000..1 << 20).contains(&one), "{one}");
    assert_eq!(begin(&mut d, NOW), one, "two share one");
    tell(&mut d, Door::Pib, OWNER, r#"{"uid": "yet-another"}"#);
    assert!(begin(&mut d, NOW) > one + one / 2, "another time");
    assert!(begin(&mut d, WallTime(NOW.0 + Duration::from_secs(31))) < one + one / 2, "the new one alone");
}

#[test]
fn snapshots_are_few_and_bounded_whoever_asks() {
    let mut d = daemon();
    let rule = |i: usize| json!({"uid": format!("rule-{i}"), "description": "x".repeat(10_000)}).to_string();
    (0..400).for_each(|i| tell(&mut d, Door::Pib, OWNER, &rule(i)));
    for user in 2000..2010 {
        for i in 0..3 {
            tell(&mut d, Door::Cib, user, &interface(&format!("of-{user}-{i}")));
            let (mut session, mut out) = (Session::new(Door::Requests, user), Vec::new());
            Follower::new().ask(&mut out);
            session.receive(&out, &mut d, NOW);
        }
    }
    assert!(d.snapshots.bytes() <= 16 << 20, "{}", d.snapshots.bytes());
    let (tables, _) = fetch(&mut d, ANN, |d, page| {
        if page < 3 {
            tell(d, Door::Pib, OWNER, &json!({"uid": format!("new-{page}")}).to_string());
        }
    });
    assert_eq!(tables.policies.len(), 400, "what counts for everybody has room");
}

/// The explanation for a user.
fn explained(d: &mut Daemon, user: u32, how: u8, requests: &str) -> (Kind, String) {
    let mut question = Vec::new();
    wire::frame(&mut question, Kind::Explain, 1, |out| {
        out.push(how);
        out.extend(requests.as_bytes());
    });
    let mut session = Session::new(Door::Requests, user);
    session.receive(&question, d, NOW);
    let output = session.take_output();
    let frame = Frame::first(&output).expect("a frame").expect("the whole of it");
    (frame.kind, String::from_utf8_lossy(frame.payload).into_owned())
}

#[test]
fn why_is_told_to_nobody_at_the_cost_of_all_memory() {
    let mut d = daemon();
    tell(&mut d, Door::Pib, ANN, &fan_out(3));
    let with = |bytes: usize| json!([{"transport": {"value": "TCP"}, "app": {"value": "x".repeat(bytes)}}]).to_string();
    // 8,420 candidates, each with all of the text.
    assert!(ask(&mut d, ANN, &with(20_000)).is_empty(), "all are denied");
    let (kind, why) = explained(&mut d, ANN, 0, &with(20_000));
    assert!(kind == Kind::Refused && why.contains("too much"), "{why}");
    for how in 0..3 {
        assert_eq!(explained(&mut d, ANN, how, &with(20)).0, Kind::Explained);
    }
    assert_eq!(explained(&mut d, BOB, 0, &with(20_000)).0, Kind::Explained, "one text is not too much");
}

#[test]
fn what_does_not_match_is_told_in_one_frame_however_much_it_is() {
    let mut d = daemon();
    let rule = |i: usize| json!({"uid": format!("rule-{i:04}"), "match": {"app": {"value": "y".repeat(1000)}}});
    for all in (0..2000).map(rule).collect::<Vec<_>>().chunks(500) {
        tell(&mut d, Door::Pib, OWNER, &json!(all).to_string());
    }
    let (kind, told) = explained(&mut d, ANN, 1, r#"[{"transport": {"value": "TCP"}}]"#);
    assert_eq!(kind, Kind::Explained, "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((told["unmatched"].as_array().map(Vec::len), &told["more_unmatched"]), (Some(8), &json!(1992)));
}

#[test]
fn what_is_replaced_makes_room_for_what_replaces_it() {
    let mut d = daemon();
    let heavy = |text: &str| {
        let long = text.repeat(900_000);
        json!({"uid": "one", "description": long, "root": true, "expire": -1, "properties": {}}).to_string()
    };
    for door in [Door::Pib, Door::Cib] {
        for text in ["a", "b", "c"] {
            assert_eq!(say(&mut d, door, ANN, &heavy(text)), (String::new(), vec![]), "{text}");
        }
    }
    // Three of 900 kB are there with these, and a fourth is too much beside them.
    tell(&mut d, Door::Pib, ANN, &heavy("d").replace("\"one\"", "\"two\""));
    tell(&mut d, Door::Pib, ANN, &heavy("e").replace("\"one\"", "\"three\""));
    assert!(say(&mut d, Door::Pib, ANN, &heavy("f").replace("\"one\"", "\"four\"")).0.contains("remove some first"));
    for (door, text) in [(Door::Pib, "g"), (Door::Cib, "h")] {
        tell(&mut d, door, ANN, &heavy(text));
    }
}
