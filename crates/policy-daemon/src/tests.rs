//! The daemon as its clients meet it, without sockets.

use super::*;
use neater_base::WallTime;
use neater_policy::manager::{Limits, Node, Requests, Rule, SourceFile, Stage, Tables};
use neater_policy::protocol::wire::{self, Frame, Kind};
use neater_policy::protocol::{Door, Follower, MAX_FACTS_OF_FRAME, put_told, told};
use neater_property::neat::{NeatArray, NeatProperty, NeatValue};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

mod bounds;
mod facts;
mod layers;

const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));
/// The user the daemon runs as, and two others.
const OWNER: u32 = 500;
const ANN: u32 = 1000;
const BOB: u32 = 1001;

fn daemon() -> Daemon {
    Daemon::new(Options { limits: Limits::default(), owner: OWNER, ready: false, keeps_rules: true })
}

/// What a client gets that sends a text and closes its half.
fn say(daemon: &mut Daemon, door: Door, user: u32, text: &str) -> (String, Vec<String>) {
    let mut session = Session::new(door, user);
    for piece in text.as_bytes().chunks(7) {
        session.receive(piece, daemon, NOW);
    }
    session.end(daemon, NOW);
    assert!(session.is_closed());
    (String::from_utf8(session.take_output()).expect("text"), session.take_refusals())
}

fn ask(daemon: &mut Daemon, user: u32, text: &str) -> Vec<Value> {
    let (answer, refusals) = say(daemon, Door::Requests, user, text);
    assert_eq!(refusals, [] as [String; 0]);
    assert!(answer.ends_with('\n'));
    serde_json::from_str(&answer).expect("a list")
}

/// The interfaces of the candidates.
fn interfaces(daemon: &mut Daemon, user: u32) -> Vec<String> {
    let answer = ask(daemon, user, r#"[{"transport": {"value": "TCP"}}]"#);
    let interface = |c: &Value| c["interface"]["value"].as_str().unwrap_or("-").to_owned();
    answer.iter().map(interface).collect()
}

fn interface(uid: &str) -> String {
    json!({"uid": uid, "root": true, "expire": -1, "properties": {"interface": {"value": uid, "score": 1}}}).to_string()
}

fn tell(daemon: &mut Daemon, door: Door, user: u32, text: &str) {
    assert_eq!(say(daemon, door, user, text), (String::new(), vec![]));
}

#[test]
fn what_a_user_tells_steers_that_user_and_what_root_tells_everybody() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, 0, &interface("eth0"));
    tell(&mut d, Door::Cib, ANN, &interface("tun0"));
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "tun0", "-"]);
    for other in [BOB, OWNER, 0] {
        assert_eq!(interfaces(&mut d, other), ["eth0", "-"]);
    }
    // A link of Ann's takes the plain row of the interface away for her alone.
    let link = json!({"uid": "l", "link": true, "match": [{"interface": {"value": "eth0"}}],
        "properties": {"delay": {"value": 5, "score": 9}}});
    tell(&mut d, Door::Cib, ANN, &link.to_string());
    assert_eq!(ask(&mut d, ANN, r#"[{"transport": {"value": "TCP"}}]"#)[0]["delay"]["value"], 5);
    assert_eq!(ask(&mut d, BOB, r#"[{"transport": {"value": "TCP"}}]"#)[0]["delay"], Value::Null);

    let deny = json!({"uid": "deny", "match": {"interface": {"value": "eth0"}}, "properties": [[]]}).to_string();
    tell(&mut d, Door::Pib, BOB, &deny);
    assert_eq!(interfaces(&mut d, BOB), ["-"]);
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "tun0", "-"]);
    tell(
        &mut d,
        Door::Pib,
        OWNER,
        &json!({"uid": "all", "match": {"interface": {"value": "tun0"}}, "properties": [[]]}).to_string(),
    );
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "-"]);
    // News of root's reach users with something of their own, too.
    tell(&mut d, Door::Cib, 0, &interface("wlan0"));
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "wlan0", "-"]);
    assert_eq!(interfaces(&mut d, BOB), ["wlan0", "-"]);
}

#[test]
fn who_is_trusted_speaks_for_everybody() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, ANN, &interface("anns"));
    d.trust(ANN);
    assert_eq!(interfaces(&mut d, BOB), ["-"], "what was said before is forgotten");
    let mut modem = Session::new(Door::Metadata, ANN);
    tell(&mut d, Door::Cib, OWNER, &interface("wwan0"));
    modem.receive(b"{\"interface\": \"wwan0\", \"mode\": \"4G\"}\n", &mut d, NOW);
    assert_eq!(ask(&mut d, BOB, r#"[{"transport": {"value": "TCP"}}]"#)[0]["mode"]["value"], "4G");
}

#[test]
fn nobody_changes_what_belongs_to_another() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, OWNER, &interface("eth0"));
    tell(&mut d, Door::Pib, OWNER, r#"{"uid": "Rule", "properties": {"x": {"value": 1}}}"#);
    for (door, text) in [(Door::Cib, interface("eth0")), (Door::Pib, r#"{"uid": "rULE"}"#.into())] {
        let (told, why) = say(&mut d, door, ANN, &text);
        assert!(told.contains("belongs to another user") && why.len() == 1, "{told}");
    }
    assert_eq!(d.remove_node(ANN, "eth0"), Err(Refusal::NotYours));
    assert_eq!(d.remove_rule(ANN, Stage::Policy, "rule"), Err(Refusal::NotYours));
    tell(&mut d, Door::Cib, ANN, &interface("tun0"));
    tell(&mut d, Door::Cib, BOB, &interface("tun0"));
    assert_eq!(d.remove_node(ANN, "tun0"), Ok(()));
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "-"]);
    assert_eq!(interfaces(&mut d, BOB), ["eth0", "tun0", "-"]);
    assert_eq!(d.remove_node(ANN, "tun0"), Err(Refusal::Unknown));

    // A document counts as a whole or not at all.
    let mixed = format!("[{}, {}]", interface("a"), interface("eth0"));
    assert!(say(&mut d, Door::Cib, ANN, &mixed).0.contains("another user"));
    assert_eq!(interfaces(&mut d, ANN), ["eth0", "-"]);
}

#[test]
fn guests_have_bounds_each_and_together() {
    let mut d = daemon();
    let rules = |from: usize, n: usize| {
        let all: Vec<Value> = (from..from + n).map(|i| json!({"uid": format!("r{i}")})).collect();
        Value::from(all).to_string()
    };
    tell(&mut d, Door::Pib, ANN, &rules(0, MAX_GUEST_RULES));
    tell(&mut d, Door::Pib, ANN, &rules(0, 5));
    assert!(say(&mut d, Door::Pib, ANN, &rules(MAX_GUEST_RULES, 1)).0.contains("remove some first"));
    assert!(say(&mut d, Door::Pib, BOB, &rules(0, MAX_BATCH + 1)).0.contains("at most 1024 objects"));
    for i in 1..MAX_GUESTS as u32 {
        tell(&mut d, Door::Cib, 2000 + i, &interface("x"));
    }
    assert!(say(&mut d, Door::Cib, BOB, &interface("x")).0.contains("64 users"));
    // A user with nothing left makes room.
    assert_eq!(d.remove_node(2001, "x"), Ok(()));
    tell(&mut d, Door::Cib, BOB, &interface("x"));
    for i in 1..MAX_GUESTS as u32 {
        interfaces(&mut d, 2000 + i);
    }
    assert!(d.views() <= MAX_VIEWS);
}

#[test]
fn news_without_end_take_no_more_room() {
    let mut d = daemon();
    let mut session = Session::new(Door::Cib, ANN);
    let node = |i: u32| {
        let json = json!({"uid": format!("n{i}"), "match": [{"interface": {"value": "eth0"}}], "link": true,
            "properties": {"rtt": {"value": i}}, "expire": 1_800_000_000 + i64::from(i)});
        Node::from_json(json, "", "", NOW).expect("a node").0
    };
    for i in 1..20_000 {
        let mut bytes = Vec::new();
        wire::frame(&mut bytes, Kind::Node, i as u16, |out| wire::put_node(out, &node(i), 60 + i));
        session.receive(&bytes, &mut d, NOW);
        let answer = session.take_output();
        assert_eq!(Frame::first(&answer).expect("a frame").map(|f| f.kind), Some(Kind::Done));
        if i % 1000 == 0 {
            interfaces(&mut d, ANN);
        }
    }
    assert_eq!(d.guest_nodes(ANN), MAX_GUEST_NODES);
    let later = WallTime(NOW.0 + Duration::from_secs(100_000));
    tell(&mut d, Door::Cib, ANN, &interface("eth0"));
    d.decide(ANN, &Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).expect("a request"), later)
        .expect("done");
    assert_eq!(d.rows(later).rows.len(), 0);
}

#[test]
fn hostile_documents_are_refused_with_their_place() {
    let mut d = daemon();
    let deep = "[".repeat(100_000);
    let huge = format!("[{{\"a\": {{\"value\": \"{}\"}}}}]", "x".repeat(1 << 20));
    for (text, why) in [
        (deep.as_str(), "recursion limit"),
        (&huge, "at most 1048576 bytes"),
        ("[{\"a\": {\"value\": NaN}}]", "line 1 column 18: not JSON"),
        ("[{\"a\": {},\n \"a\": {}}]", "line 2 column"),
        ("[{\"a\": {\"value\": 1e999}}]", "number out of range"),
        ("{}", "list of requests"),
        ("", "EOF"),
        ("[{\"a\":\n  {\"precedence\": 7}}]", "line 2 column 4: precedence is 0, 1 or 2"),
    ] {
        // NEAT's library waits for ever for a word that is no list of candidates.
        let (told, refusals) = say(&mut d, Door::Requests, ANN, text);
        if text.is_empty() {
            assert_eq!((told.as_str(), refusals.len()), ("", 0));
            continue;
        }
        assert_eq!(told, "");
        assert!(refusals[0].contains(why), "{why}: {}", refusals[0]);
        // As a policy, the others are none either.
        if text != "{}" && !text.contains("precedence") {
            let (told, _) = say(&mut d, Door::Pib, ANN, text);
            assert!(serde_json::from_str::<Value>(&told).expect("JSON")["error"].is_string(), "{told}");
        }
    }
    for (text, why) in [("", "no document came"), (" []", "empty list")] {
        for door in [Door::Pib, Door::Cib] {
            assert!(say(&mut d, door, ANN, text).0.contains(why), "{text}");
        }
    }
    let (told, _) =
        say(&mut d, Door::Cib, ANN, "[{\"uid\": \"a\"},\n {\"uid\": \"b\", \"properties\": [[{\"c\": 1}]]}]");
    assert!(told.contains("line 2 column 32"), "{told}");
    let many: Vec<Value> = (0..=MAX_REQUESTS).map(|i| json!({"a": {"value": i}})).collect();
    assert!(say(&mut d, Door::Requests, ANN, &Value::from(many).to_string()).1[0].contains("too much"));
    let mut session = Session::new(Door::Requests, ANN);
    session.receive(b"[\"\xff\"]", &mut d, NOW);
    session.end(&mut d, NOW);
    assert!(session.take_refusals()[0].contains("not UTF-8"));
}

fn value() -> impl Strategy<Value = NeatValue> {
    let single = prop_oneof![
        any::<bool>().prop_map(NeatValue::Bool),
        (-4i32..4).prop_map(|n| NeatValue::Number(n.into())),
        "[ab€]{0,3}".prop_map(NeatValue::Text),
    ];
    prop_oneof![
        1 => Just(NeatValue::Any),
        6 => single.clone(),
        2 => proptest::collection::vec(single, 0..4).prop_map(|v| NeatValue::set(v).unwrap()),
        2 => (0i32..4, 0i32..3).prop_map(|(start, len)| NeatValue::range(start.into(), (start + len).into()).unwrap()),
    ]
}

fn array() -> impl Strategy<Value = NeatArray> {
    let key = prop_oneof!["[a-d]", Just("transport".to_string()), Just("security".to_string())];
    let property = (key, value(), 0u8..3, -2i32..3, any::<bool>()).prop_map(|(k, v, p, s, evaluated)| NeatProperty {
        evaluated,
        ..NeatProperty::new(&k, v).with_precedence(p).with_score(s.into())
    });
    proptest::collection::vec(property, 0..4).prop_map(|all| all.into_iter().map(|p| (p.key.clone(), p)).collect())
}

fn object(array: &NeatArray) -> Value {
    array.to_json()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn prop_both_forms_of_a_question_get_the_same_answer(requests in proptest::collection::vec(array(), 1..5), row in array()) {
        let mut d = daemon();
        tell(&mut d, Door::Cib, 0, &json!({"uid": "n", "root": true, "properties": object(&row)}).to_string());
        let text = Value::from(requests.iter().map(object).collect::<Vec<_>>()).to_string();
        let (told, _) = say(&mut d, Door::Requests, ANN, &text);
        let mut session = Session::new(Door::Requests, ANN);
        let mut question = Vec::new();
        wire::frame(&mut question, Kind::Decide, 7, |out| wire::put_requests(out, &requests));
        question.iter().for_each(|b| session.receive(&[*b], &mut d, NOW));
        let answer = session.take_output();
        let frame = Frame::first(&answer).expect("a frame").expect("all of it");
        prop_assert_eq!((frame.kind, frame.id, frame.len()), (Kind::Decision, 7, answer.len()));
        let ranked = wire::decision(frame.payload).expect("a decision");
        let json: Vec<Value> = ranked.iter().map(|r| r.properties.to_json()).collect();
        prop_assert_eq!(serde_json::from_str::<Value>(&told).expect("JSON"), Value::from(json));
    }

    #[test]
    fn prop_a_node_is_read_as_it_was_written(
        groups in proptest::collection::vec(proptest::collection::vec(array(), 0..3), 0..3),
        matches in proptest::collection::vec(array(), 0..3),
        root: bool, link: bool, seconds in 0u32..100,
    ) {
        let mut properties = neater_property::neat::NeatMultiArray::new();
        groups.into_iter().for_each(|g| properties.push(g));
        let node = Node {
            uid: "n".into(), root, link, matches, alternatives: properties.expand().expect("few"), properties,
            priority: 0, expires: (seconds > 0).then(|| WallTime(NOW.0 + Duration::from_secs(seconds.into()))),
            description: String::new(), others: serde_json::Map::new(),
        };
        let mut bytes = Vec::new();
        wire::put_node(&mut bytes, &node, seconds);
        prop_assert_eq!(wire::node(&bytes, NOW), Ok(node));
        for cut in 0..bytes.len() {
            prop_assert!(wire::node(&bytes[..cut], NOW).is_err());
        }
    }

    #[test]
    fn prop_no_bytes_do_harm(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(wire::MARK), any::<u8>()], 0..200)) {
        let mut d = daemon();
        for door in Door::ALL {
            let mut session = Session::new(door, ANN);
            session.receive(&bytes, &mut d, NOW);
            session.end(&mut d, NOW);
            prop_assert!(session.is_closed());
        }
        let _ = (wire::requests(&bytes), wire::node(&bytes, NOW), wire::decision(&bytes), wire::forget(&bytes));
    }

    #[test]
    fn prop_nothing_weakens_what_a_program_requires_for_its_security(
        rules in proptest::collection::vec((array(), array(), any::<bool>(), any::<bool>()), 1..6),
        rows in proptest::collection::vec(array(), 0..4),
        more in array(),
    ) {
        let mut d = daemon();
        let texts = rules.iter().enumerate().map(|(i, (matches, says, replaces, profile))| {
            json!({"uid": format!("r{i}"), "match": object(matches), "properties": object(says), "replace_matched": replaces,
                "policy_type": if *profile { "profile" } else { "policy" }})
        });
        tell(&mut d, Door::Pib, 0, &Value::from(texts.collect::<Vec<_>>()).to_string());
        for (i, row) in rows.iter().enumerate() {
            tell(&mut d, Door::Cib, 0, &json!({"uid": format!("n{i}"), "root": true, "properties": object(row)}).to_string());
        }
        let mut request = more;
        request.replace(NeatProperty::new("security", true).with_precedence(2));
        request.replace(NeatProperty::new("transport", "TCP"));
        for candidate in ask(&mut d, ANN, &Value::from(vec![object(&request)]).to_string()) {
            prop_assert_eq!(&candidate["security"]["value"], true);
            prop_assert_eq!(&candidate["security"]["precedence"], 2);
        }
    }
}

#[test]
fn a_short_decision_does_not_become_a_long_one() {
    // One property of 60,000 bytes, and thousands of candidates that have it.
    let mut payload = vec![1, 0, 1, 0, b'k', 0];
    payload.extend(0f64.to_le_bytes());
    payload.push(4);
    payload.extend(60_000u16.to_le_bytes());
    payload.extend(vec![b'x'; 60_000]);
    let with = |candidates: u16| {
        let mut payload = payload.clone();
        payload.extend(candidates.to_le_bytes());
        for _ in 0..candidates {
            payload.extend([0; 16]);
            payload.extend([1, 0, 0, 0]);
        }
        wire::decision(&payload).map(|d| d.len())
    };
    assert_eq!(with(200), Ok(200));
    assert_eq!(with(5_000), Err(wire::Malformed::TooMany));
}

#[test]
fn what_is_put_under_a_uid_is_to_be_saved_under_it() {
    let mut d = daemon();
    let policy = r#"{"match": {"app": {"value": "x"}}, "properties": {"dscp": {"value": 10}}}"#;
    assert_eq!(d.put_rules_of(policy, Some("Site"), OWNER, NOW), Ok(vec![]));
    assert!(d.base().policies().get("SITE").is_some());
    assert!(
        matches!(&d.take_effects()[..], [Effect::Save { file, text, new: true }] if file == "site.policy" && text.contains("dscp"))
    );
    assert_eq!(d.remove_rule(OWNER, Stage::Policy, "site"), Ok(()));
    assert_eq!(d.take_effects(), [Effect::Remove { file: "site.policy".into() }]);
    assert_eq!(d.remove_rule(OWNER, Stage::Policy, "site"), Err(Refusal::Unknown));
    let two = "[{}, {}]";
    assert!(matches!(d.put_rules_of(two, Some("x"), OWNER, NOW), Err(DocumentError::Malformed(_))));
}

#[test]
fn names_of_files_lead_nowhere_else() {
    let mut d = daemon();
    for uid in ["../../etc/passwd", ".hidden", "a/b", "é", "", "x y", &"l".repeat(200)] {
        let put = json!({"uid": uid}).to_string();
        let _ = say(&mut d, Door::Pib, 0, &put);
    }
    for effect in d.take_effects() {
        let Effect::Save { file, .. } = effect else { panic!("{effect:?}") };
        assert!(file.starts_with("uid-") && file.ends_with(".policy") && !file.contains('/'), "{file}");
    }
    // The file that defines a rule is the one that is written when the rule changes.
    d.load(&[SourceFile { name: "10-site.policy", text: r#"{"uid": "site"}"# }], &[], NOW);
    tell(&mut d, Door::Pib, OWNER, r#"{"uid": "site", "priority": 3}"#);
    assert!(matches!(&d.take_effects()[..], [Effect::Save { file, new: false, .. }] if file == "10-site.policy"));
    assert_eq!(d.remove_rule(OWNER, Stage::Policy, "site"), Ok(()));
    assert_eq!(d.take_effects(), [Effect::Remove { file: "10-site.policy".into() }]);
}

#[test]
fn what_happened_is_counted() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, OWNER, &interface("eth0"));
    interfaces(&mut d, ANN);
    interfaces(&mut d, BOB);
    // What is asked for the second time is kept.
    interfaces(&mut d, ANN);
    let _ = say(&mut d, Door::Requests, ANN, "nonsense");
    d.counters.worked(Duration::from_micros(15));
    let text = d.metrics(NOW);
    for line in [
        "neater_pm_decisions_total 3",
        "neater_pm_decisions_cached_total 1",
        "neater_pm_nodes 1",
        "neater_pm_requests_total{socket=\"pm\"} 4",
        "neater_pm_refused_total{socket=\"pm\"} 1",
        "neater_pm_work_seconds_bucket{le=\"0.00001\"} 0",
        "neater_pm_work_seconds_bucket{le=\"0.00002\"} 1",
        "neater_pm_work_seconds_bucket{le=\"+Inf\"} 1",
        "neater_pm_work_seconds_count 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    // Every family has its type, and every sample a number.
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (name, number) = line.rsplit_once(' ').expect("two parts");
        assert!(number.parse::<f64>().is_ok(), "{line}");
        let family = name.split('{').next().expect("a name");
        let family = ["_bucket", "_sum", "_count"].iter().fold(family, |f, s| f.strip_suffix(s).unwrap_or(f));
        assert!(text.contains(&format!("# TYPE {family} ")), "{family}");
    }
}

#[test]
fn frames_belong_to_their_sockets_and_nonsense_ends_the_connection() {
    let mut d = daemon();
    let mut session = Session::new(Door::Requests, ANN);
    let mut bytes = Vec::new();
    wire::frame(&mut bytes, Kind::Forget, 1, |out| out.extend([1, 0, b'x']));
    wire::frame(&mut bytes, Kind::Decide, 2, |out| wire::put_requests(out, &[]));
    session.receive(&bytes, &mut d, NOW);
    assert!(session.is_idle() && !session.is_closed());
    let answers = session.take_output();
    let first = Frame::first(&answers).expect("a frame").expect("all");
    assert_eq!((first.kind, first.id), (Kind::Refused, 1));
    let second = Frame::first(&answers[first.len()..]).expect("a frame").expect("all");
    assert_eq!((second.kind, second.id), (Kind::Decision, 2));
    assert_eq!(wire::decision(second.payload).expect("a decision").len(), 0);
    session.receive(&[wire::MARK, 99, 0, 0, 0, 0, 0, 0], &mut d, NOW);
    assert!(session.is_closed());
    let last = session.take_output();
    assert_eq!(Frame::first(&last).expect("a frame").map(|f| f.kind), Some(Kind::Refused));
    // A rule of the same kind for what is far too long.
    let mut session = Session::new(Door::Cib, ANN);
    session.receive(&[wire::MARK, 2, 0, 0, 0xff, 0xff, 0xff, 0x7f], &mut d, NOW);
    assert!(session.is_closed());
}

/// Everything a follower is sent by a session, as often as there are questions.
fn follow(follower: &mut Follower, session: &mut Session, daemon: &mut Daemon) -> Option<Tables> {
    let (mut questions, mut tables) = (Vec::new(), None);
    follower.ask(&mut questions);
    while !questions.is_empty() {
        session.receive(&core::mem::take(&mut questions), daemon, NOW);
        let answer = session.take_output();
        // In pieces, as a stream has them.
        for piece in answer.chunks(1000) {
            tables = follower.receive(piece, &mut questions, NOW).expect("a page").tables.or(tables);
        }
    }
    assert!(!follower.is_asking());
    tables
}

#[test]
fn a_program_follows_the_tables_of_its_user() {
    let mut d = daemon();
    let rule = |i: usize| {
        json!({"uid": format!("r{i}"), "match": {"app": {"value": format!("program {i}")}},
        "properties": {"transport": {"value": "TCP", "score": i}}})
    };
    let rules: Vec<Rule> = (0..2000).map(|i| Rule::from_json(rule(i), "", "").expect("a rule").0).collect();
    d.put_rules(0, rules.iter().map(|r| (Stage::Policy, r.clone())).collect(), NOW).expect("root may");
    let (mut mine, mut theirs) = (Session::new(Door::Requests, 1000), Session::new(Door::Requests, 1001));
    let own = Rule::from_json(json!({"uid": "own", "properties": {}}), "", "").expect("a rule").0;
    d.put_rules(1000, vec![(Stage::Profile, own.clone())], NOW).expect("a guest may");
    let mut follower = Follower::new();
    let tables = follow(&mut follower, &mut mine, &mut d).expect("tables");
    assert_eq!(tables.policies.len(), 2000);
    assert!(rules.iter().all(|r| tables.policies.contains(r)), "rules are told whole");
    assert!(tables.profiles.contains(&own));
    assert_eq!(follow(&mut follower, &mut mine, &mut d), None, "nothing is new");
    let tables = follow(&mut Follower::new(), &mut theirs, &mut d).expect("tables");
    assert!(!tables.profiles.contains(&own), "that is another user's");
    d.remove_rule(0, Stage::Policy, "r7").expect("root may");
    assert_eq!(follow(&mut follower, &mut mine, &mut d).expect("what is new").policies.len(), 1999);
}

#[test]
fn tables_that_change_on_the_way_are_asked_for_again() {
    let mut d = daemon();
    let rule =
        |i: usize| Rule::from_json(json!({"uid": format!("rule-{i:05}"), "properties": {}}), "", "").expect("a rule").0;
    d.put_rules(0, (0..2000).map(|i| (Stage::Policy, rule(i))).collect(), NOW).expect("root may");
    let (mut session, mut follower) = (Session::new(Door::Requests, 0), Follower::new());
    let (mut questions, mut tables, mut pages) = (Vec::new(), None, 0);
    follower.ask(&mut questions);
    while tables.is_none() {
        session.receive(&core::mem::take(&mut questions), &mut d, NOW);
        pages += 1;
        assert!(pages < 100);
        if pages == 2 {
            d.remove_rule(0, Stage::Policy, "rule-00000").expect("root may");
            // There was no room for what they were.
            d.snapshots = tables::Snapshots::default();
        }
        tables = follower.receive(&session.take_output(), &mut questions, NOW).expect("a page").tables;
    }
    assert!(pages > 3, "{pages}");
    assert_eq!(tables.expect("whole ones").policies.len(), 1999);
}

#[test]
fn a_daemon_that_lies_about_its_tables_is_found_out() {
    let frame = |payload: &[u8]| {
        let mut out = Vec::new();
        wire::frame(&mut out, wire::Kind::Page, 0, |out| out.extend(payload));
        out
    };
    let page = |version: u64, table: u8, from: u32, rest: &[u8]| {
        let mut page = version.to_le_bytes().to_vec();
        page.push(table);
        page.extend(from.to_le_bytes());
        page.extend(rest);
        frame(&page)
    };
    let hear = |bytes: &[u8]| {
        let (mut follower, mut out) = (Follower::new(), Vec::new());
        follower.ask(&mut out);
        follower.receive(bytes, &mut out, NOW)
    };
    assert!(hear(&page(5, 3, 0, &[])).expect("empty tables").tables.is_some());
    assert!(hear(&page(5, 0, 0, &[])).is_err(), "it does not go on");
    assert!(hear(&page(5, 3, 0, &[1, 9, 0, 0, 0, b'{'])).is_err(), "it ends too early");
    assert!(hear(&frame(&[1, 2, 3])).is_err());
    assert!(hear(b"HTTP/1.1 200").is_err());
    // What is no rule of ours is left out.
    let text = b"{\"match\": 7}";
    let mut rest = vec![1, text.len() as u8, 0, 0, 0];
    rest.extend(text);
    assert_eq!(hear(&page(5, 3, 0, &rest)).expect("a page").tables.expect("tables").policies, []);
    // There was no request.
    assert!(Follower::new().receive(&page(5, 3, 0, &[]), &mut Vec::new(), NOW).is_err());
    let (mut follower, mut out) = (Follower::new(), Vec::new());
    follower.ask(&mut out);
    let endless = vec![wire::MARK; 3 * wire::MAX_PAYLOAD];
    assert!(follower.receive(&endless, &mut out, NOW).is_err());
}

/// The `outcome` of the reference's vectors, except for
/// `specs/exceptions/neat-vectors-no-request.toml`: a request is answered, and what is none closes
/// the connection.
#[test]
fn what_is_no_request_is_closed_and_what_is_denied_is_answered() {
    const CLOSED: [&str; 5] = ["req-bad-property", "req-bad-range", "req-not-json", "req-number-element", "req-object"];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/tests/reference");
    let mut closed = Vec::new();
    let mut answered = 0;
    #[allow(clippy::disallowed_methods, reason = "a test reads its vectors; the crate reads nothing")]
    let files = std::fs::read_dir(folder).expect("the vectors").map(|f| f.expect("a file").path());
    for file in files.filter(|f| f.extension().is_some_and(|e| e == "json")) {
        #[allow(clippy::disallowed_methods, reason = "a test reads its vectors; the crate reads nothing")]
        let vector: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("text")).expect("JSON");
        if vector["kind"] != "request" {
            continue;
        }
        // Whether there is an answer at all does not depend on tables.
        let asked = vector["requests"].as_str().map_or_else(|| vector["requests"].to_string(), str::to_owned);
        let (answer, refusals) = say(&mut daemon(), Door::Requests, OWNER, &asked);
        assert_eq!(answer.is_empty(), !refusals.is_empty(), "{file:?}: why is told to whoever runs the daemon");
        if answer.is_empty() {
            closed.push(file.file_stem().expect("a name").to_string_lossy().into_owned());
        } else {
            let list: Value = serde_json::from_str(&answer).expect("JSON");
            assert!(list.is_array(), "{file:?}: {answer}");
            answered += 1;
        }
    }
    closed.sort();
    assert_eq!(closed, CLOSED);
    assert!(answered > 40, "{answered}");
}
