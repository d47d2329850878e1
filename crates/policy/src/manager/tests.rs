//! The compiled form against the plain form, on tables, rows and requests made at random.

use super::*;
use neater_property::neat::{NeatMultiArray, NeatProperty, NeatValue};
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

const NOW: WallTime = WallTime(Duration::from_secs(1_000_000));

fn value() -> impl Strategy<Value = NeatValue> {
    let single = prop_oneof![
        Just(NeatValue::Bool(true)),
        (0i32..4).prop_map(|n| NeatValue::Number(n.into())),
        "[ab]{0,1}".prop_map(NeatValue::Text),
    ];
    prop_oneof![
        1 => Just(NeatValue::Any),
        6 => single.clone(),
        2 => proptest::collection::vec(single, 0..4).prop_map(|v| NeatValue::set(v).unwrap()),
        2 => (0i32..4, 0i32..3).prop_map(|(start, len)| NeatValue::range(start.into(), (start + len).into()).unwrap()),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-d]", 1 => Just("transport".to_string())]
}

fn property() -> impl Strategy<Value = NeatProperty> {
    (key(), value(), 0u8..3, prop_oneof![Just(0.0), Just(0.1), Just(0.2), Just(1.0), Just(-3.0)])
        .prop_map(|(k, v, p, s)| NeatProperty::new(&k, v).with_precedence(p).with_score(s))
}

fn array(most: usize) -> impl Strategy<Value = NeatArray> {
    proptest::collection::vec(property(), 0..=most)
        .prop_map(|all| all.into_iter().map(|p| (p.key.clone(), p)).collect())
}

fn rule(prefix: &'static str) -> impl Strategy<Value = Rule> {
    let alternatives = prop_oneof![
        5 => array(2).prop_map(|a| vec![a]),
        1 => Just(vec![]),
        2 => proptest::collection::vec(array(2), 2..4),
    ];
    (0u32..12, -1i64..3, any::<bool>(), array(2), alternatives).prop_map(
        move |(n, priority, replace_matched, matches, alternatives)| {
            let mut properties = NeatMultiArray::new();
            properties.push(alternatives.clone());
            Rule {
                uid: format!("{prefix}{n}"),
                priority,
                replace_matched,
                matches,
                properties,
                alternatives,
                description: String::new(),
                others: serde_json::Map::new(),
            }
        },
    )
}

fn node(n: usize) -> impl Strategy<Value = Node> {
    (any::<bool>(), any::<bool>(), proptest::collection::vec(array(1), 0..2), proptest::collection::vec(array(3), 1..3))
        .prop_map(move |(root, link, matches, alternatives)| {
            let mut properties = NeatMultiArray::new();
            properties.push(alternatives.clone());
            Node {
                uid: format!("n{n}"),
                root,
                link,
                matches,
                properties,
                alternatives,
                priority: 0,
                expires: None,
                description: String::new(),
                others: serde_json::Map::new(),
            }
        })
}

prop_compose! {
    fn manager()(
        profiles in proptest::collection::vec(rule("p"), 0..4),
        policies in proptest::collection::vec(rule("q"), 0..8),
        nodes in (node(0), node(1), node(2), node(3), node(4)),
        rows in 1usize..12,
        candidates in 1usize..12,
    ) -> Manager {
        let mut manager = Manager::new(Limits { rows, candidates });
        profiles.into_iter().for_each(|r| manager.insert_rule(Stage::Profile, r));
        policies.into_iter().for_each(|r| manager.insert_rule(Stage::Policy, r));
        let (a, b, c, d, e) = nodes;
        [a, b, c, d, e].into_iter().for_each(|n| manager.insert_node(n, NOW));
        manager
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn prop_the_compiled_form_decides_as_the_plain_one(
        mut manager in manager(),
        requests in proptest::collection::vec(array(4), 1..12),
        again in array(3),
    ) {
        for arrays in [requests, vec![again]] {
            let requests = Requests::from_arrays(arrays);
            let plain = manager.explain(&requests, NOW).map(|(ranked, _)| ranked);
            let compiled = manager.decide_anew(&requests, NOW).map(|d| d.ranked());
            prop_assert_eq!(plain, compiled);
        }
    }
}

/// A rule as administrators write them: it looks for an interface or what is known of it, mostly
/// writes what no rule looks at, and seldom has alternatives.
fn usual_rule() -> impl Strategy<Value = Rule> {
    let score = prop_oneof![Just(0.0), Just(0.1), Just(0.2), Just(1.0), Just(-3.0)];
    let effect = (prop_oneof![4 => "[xyz]", 2 => Just("transport".to_string()), 1 => "[ab]"], value(), 0u8..3, score)
        .prop_map(|(k, v, p, s)| NeatProperty::new(&k, v).with_precedence(p).with_score(s));
    let effects = proptest::collection::vec(effect, 0..3)
        .prop_map(|all| all.into_iter().map(|p| (p.key.clone(), p)).collect::<NeatArray>())
        .boxed();
    let wanted = |key: &'static str, value: NeatValue| NeatProperty::new(key, value);
    let interface = (0u32..8).prop_map(move |i| wanted("interface", NeatValue::Text(format!("if{i}"))));
    let guard = prop_oneof![4 => interface, 1 => value().prop_map(move |v| wanted("a", v))];
    let app = (any::<bool>()).prop_map(|b| NeatProperty::new("app", NeatValue::Text(if b { "v" } else { "w" }.into())));
    let matches =
        (guard, proptest::option::of(app), proptest::option::weighted(0.2, value())).prop_map(|(guard, app, of_b)| {
            let of_b = of_b.map(|v| NeatProperty::new("b", v));
            [Some(guard), app, of_b].into_iter().flatten().map(|p| (p.key.clone(), p)).collect::<NeatArray>()
        });
    let alternatives = prop_oneof![
        16 => effects.clone().prop_map(|a| vec![a]),
        1 => Just(vec![]),
        1 => proptest::collection::vec(effects, 2..3),
    ];
    (0u32..1000, 0i64..3, proptest::bool::weighted(0.1), matches, alternatives).prop_map(
        |(n, priority, replace_matched, matches, alternatives)| {
            let mut properties = NeatMultiArray::new();
            properties.push(alternatives.clone());
            let (description, others) = (String::new(), serde_json::Map::new());
            let uid = format!("r{n}");
            Rule { uid, priority, replace_matched, matches, properties, alternatives, description, others }
        },
    )
}

prop_compose! {
    /// A manager of a host with several interfaces, each a row of its own.
    fn manager_of_interfaces()(
        policies in proptest::collection::vec(usual_rule(), 0..40),
        links in proptest::collection::vec((value(), value(), -2i32..3), 1..8),
        rows in 1usize..12,
        candidates in 1usize..24,
    ) -> Manager {
        let mut manager = Manager::new(Limits { rows, candidates });
        policies.into_iter().for_each(|r| manager.insert_rule(Stage::Policy, r));
        for (i, (a, b, score)) in links.into_iter().enumerate() {
            let name = NeatValue::Text(format!("if{i}"));
            let name = NeatProperty::new("interface", name).with_precedence(2).with_score(score.into());
            let all = [name, NeatProperty::new("a", a), NeatProperty::new("b", b)];
            let array: NeatArray = all.into_iter().map(|p| (p.key.clone(), p)).collect();
            let mut properties = NeatMultiArray::new();
            properties.push(vec![array.clone()]);
            manager.insert_node(
                Node {
                    uid: format!("if{i}"),
                    root: true,
                    link: false,
                    matches: Vec::new(),
                    properties,
                    alternatives: vec![array],
                    priority: 0,
                    expires: None,
                    description: String::new(),
                    others: serde_json::Map::new(),
                },
                NOW,
            );
        }
        manager
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn prop_rules_for_interfaces_decide_alike_in_both_forms(
        mut manager in manager_of_interfaces(),
        transport in value(),
        app in "[vw]",
        more in array(2),
    ) {
        let named = |key: &str, value: NeatValue| (key.to_string(), NeatProperty::new(key, value));
        let both = NeatValue::set(["TCP".into(), "SCTP".into()]).unwrap();
        for transport in [transport, "TCP".into(), both] {
            let usual = [named("transport", transport), named("app", NeatValue::Text(app.clone()))];
            let with_more: NeatArray = usual.iter().cloned().chain(more.iter().map(|p| (p.key.clone(), p.clone()))).collect();
            for array in [usual.into_iter().collect(), with_more] {
                let requests = Requests::from_arrays([array]);
                let plain = manager.explain(&requests, NOW).map(|(ranked, _)| ranked);
                let compiled = manager.decide_anew(&requests, NOW).map(|d| d.ranked());
                prop_assert_eq!(plain, compiled);
            }
        }
    }
}

/// A manager filled from a list of policies and nodes as JSON.
fn filled(policies: serde_json::Value, nodes: serde_json::Value) -> Manager {
    let mut manager = Manager::default();
    for policy in policies.as_array().unwrap() {
        manager.insert_rule(Stage::Policy, Rule::from_json(policy.clone(), "", "").unwrap().0);
    }
    for node in nodes.as_array().unwrap() {
        manager.insert_node(Node::from_json(node.clone(), "", "", NOW).unwrap().0, NOW);
    }
    manager
}

#[test]
fn many_alternatives_and_many_rows_decide_alike_in_both_forms() {
    let nodes: Vec<_> = (0..300)
        .map(|i| {
            json!({"uid": format!("n{i}"), "root": true, "expire": -1, "properties": {
                "interface": {"value": format!("if{i}"), "precedence": 2},
                "speed": {"value": {"start": i, "end": i + 10}, "score": f64::from(i % 7) / 10.0},
            }})
        })
        .collect();
    let many: Vec<_> = (0..15).map(|i| json!({"colour": {"value": i, "score": f64::from(i % 5)}})).collect();
    let policies = json!([
        {"uid": "a", "priority": 1, "match": {"speed": {"value": {"start": 40, "end": 60}}},
         "properties": {"fast": {"value": true, "score": 1}}},
        {"uid": "b", "priority": 2, "match": {"fast": {"value": true}}, "properties": [many]},
    ]);
    let mut manager = filled(policies, nodes.into());
    manager.limits = Limits { rows: 1000, candidates: 1000 };
    for request in [
        json!([{"transport": {"value": "TCP"}}]),
        json!([{"transport": {"value": ["TCP", "UDP"]}, "speed": {"value": 45}}]),
    ] {
        let requests = Requests::from_json(&request).unwrap();
        let (plain, _) = manager.explain(&requests, NOW).unwrap();
        assert_eq!(manager.decide_anew(&requests, NOW).unwrap().ranked(), plain);
        assert!(plain.len() > 300, "{} candidates", plain.len());
    }
}

#[test]
fn a_decision_is_kept_until_something_it_depends_on_changes() {
    let node = |uid: &str, interface: &str| {
        let json =
            json!({"uid": uid, "root": true, "expire": 1_000_100, "properties": {"interface": {"value": interface}}});
        Node::from_json(json, "", "", NOW).unwrap().0
    };
    let policy = |key: &str, transport: &str| {
        let json =
            json!({"uid": key, "match": {key: {}}, "properties": {"transport": {"value": transport, "score": 1}}});
        Rule::from_json(json, "", "").unwrap().0
    };
    let mut manager = Manager::default();
    manager.insert_node(node("a", "if0"), NOW);
    let requests =
        Requests::from_text(r#"[{"transport": {"value": ["TCP", "SCTP"]}, "app": {"value": "x"}}]"#).unwrap();
    let once = manager.decide(&requests, NOW).unwrap();
    let first = manager.decide(&requests, NOW).unwrap();
    assert!(once == first && !Arc::ptr_eq(&once, &first), "what is asked for the second time is kept");
    let same = |manager: &mut Manager, now| Arc::ptr_eq(&first, &manager.decide(&requests, now).unwrap());
    assert!(same(&mut manager, NOW));

    // A policy that wants what no candidate has, and knowledge that is only confirmed, change
    // nothing.
    manager.insert_rule(Stage::Policy, policy("site", "TCP"));
    manager.insert_node(node("a", "if0"), NOW);
    assert!(same(&mut manager, NOW));

    let mut other = manager.clone();
    other.insert_rule(Stage::Policy, policy("app", "SCTP"));
    assert!(!same(&mut other, NOW));
    assert_eq!(other.decide(&requests, NOW).unwrap().get(0, "transport").unwrap().value.to_string(), "SCTP");
    other.remove_rule(Stage::Policy, "app");
    assert_eq!(*other.decide(&requests, NOW).unwrap(), *first);

    let mut other = manager.clone();
    other.insert_node(node("b", "if1"), NOW);
    assert_eq!(other.decide(&requests, NOW).unwrap().len(), 6);
    let later = WallTime(NOW.0 + Duration::from_secs(100));
    assert!(!same(&mut manager, later), "the row has expired");
    assert_eq!(manager.decide(&requests, later).unwrap().len(), 2);
    assert_eq!(manager.cib().nodes().count(), 0);
}

#[test]
fn a_decision_outlives_rows_that_it_did_not_read() {
    let node = |uid: &str, score: f64| {
        let json = json!({"uid": uid, "root": true, "expire": -1,
            "properties": {"interface": {"value": uid, "precedence": 2}, "rtt": {"value": 1, "score": score}}});
        Node::from_json(json, "", "", NOW).unwrap().0
    };
    let mut manager = Manager::new(Limits { rows: 2, candidates: 10 });
    for (uid, score) in [("a", 5.0), ("b", 4.0), ("c", 3.0)] {
        manager.insert_node(node(uid, score), NOW);
    }
    let any = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).unwrap();
    let bound = r#"[{"transport": {"value": "TCP"}, "interface": {"value": "b", "precedence": 2}}]"#;
    let bound = Requests::from_text(bound).unwrap();
    let kept = |manager: &mut Manager, change: Node| {
        // What is asked for the second time is kept.
        [&any, &bound].iter().for_each(|r| drop(manager.decide(r, NOW)));
        let before = [&any, &bound].map(|r| manager.decide(r, NOW).unwrap());
        manager.insert_node(change, NOW);
        let after = [&any, &bound].map(|r| manager.decide(r, NOW).unwrap());
        for (decision, requests) in after.iter().zip([&any, &bound]) {
            assert_eq!(**decision, manager.decide_anew(requests, NOW).unwrap());
        }
        [0, 1].map(|i| Arc::ptr_eq(&before[i], &after[i]))
    };
    assert_eq!(kept(&mut manager, node("c", 3.5)), [true, true], "c was not kept and is not now");
    assert_eq!(kept(&mut manager, node("a", 6.0)), [false, true], "a cannot serve a request for b");
    assert_eq!(kept(&mut manager, node("c", 4.0)), [false, true], "c is as good as the last that is kept");
    assert_eq!(kept(&mut manager, node("b", 1.0)), [false, false]);
    assert_eq!(kept(&mut manager, node("b", 2.0)), [true, false], "two are better for any");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn prop_what_is_kept_is_what_would_be_decided(
        mut manager in manager(),
        requests in proptest::collection::vec(array(3), 1..4),
        changes in proptest::collection::vec((0usize..5, node(0), any::<bool>()), 1..6),
    ) {
        let requests: Vec<Requests> = requests.into_iter().map(|r| Requests::from_arrays([r])).collect();
        for (at, node, remove) in changes {
            // Twice, so that it is kept.
            requests.iter().chain(&requests).for_each(|r| drop(manager.decide(r, NOW)));
            let uid = format!("n{at}");
            if remove {
                manager.remove_node(&uid);
            } else {
                manager.insert_node(Node { uid, ..node }, NOW);
            }
            for r in &requests {
                prop_assert_eq!(&*manager.decide(r, NOW).unwrap(), &manager.decide_anew(r, NOW).unwrap());
            }
        }
    }
}

#[test]
fn a_broken_file_is_reported_and_what_it_said_goes_on_to_count() {
    let mut manager = Manager::default();
    let mut loader = Loader::default();
    let good = r#"{"uid": "a", "match": {}, "properties": {"transport": {"value": "TCP"}}}"#;
    let file = |text| [SourceFile { name: "a.policy", text }];
    let report = loader.load(&mut manager, &file(good), &[], NOW);
    assert_eq!((report.faults.len(), report.policies, report.changed), (0, 1, true));

    let bad = "{\"uid\": \"a\",\n \"properties\": {\"transport\":\n   {\"value\": \"TCP\", \"precedence\": 7}}}";
    let report = loader.load(&mut manager, &file(bad), &[], NOW);
    assert_eq!(
        report.faults[0].to_string(),
        "a.policy:3:21: error: precedence is 0, 1 or 2; its earlier content stays in force"
    );
    assert_eq!((report.policies, report.changed), (1, false));
    let report = loader.load(&mut manager, &file("{\n  \"uid\": \"a\",\n"), &[], NOW);
    assert!(report.faults[0].to_string().starts_with("a.policy:3:0: error: not JSON: EOF"), "{}", report.faults[0]);
    assert_eq!(manager.policies().rules()[0].uid, "a");

    let report = loader.load(&mut manager, &[], &[], NOW);
    assert_eq!((report.policies, report.changed), (0, true), "what has no file any more is gone");
}

#[test]
fn what_was_not_loaded_from_files_survives_a_reload() {
    let mut manager = Manager::default();
    manager.insert_rule(Stage::Policy, Rule::from_json(json!({"uid": "mine"}), "", "").unwrap().0);
    let mut loader = Loader::default();
    let uids = |m: &Manager| m.policies().rules().iter().map(|r| r.uid.clone()).collect::<Vec<_>>();
    loader.load(&mut manager, &[SourceFile { name: "a.policy", text: r#"{"uid": "theirs"}"# }], &[], NOW);
    assert_eq!(uids(&manager), ["mine", "theirs"]);
    loader.load(
        &mut manager,
        &[SourceFile { name: "b.policy", text: r#"{"uid": "others", "priority": -1}"# }],
        &[],
        NOW,
    );
    assert_eq!(uids(&manager), ["others", "mine"]);
}

#[test]
fn what_is_written_can_be_read_again() {
    let policy = json!({"uid": "p", "priority": 3, "replace_matched": true, "match": {"a": {"value": {"start": "-inf", "end": 2}}},
        "properties": [{"b": {"value": ["x", 1], "banned": ["y"]}}, [{"c": {"value": 1}}, {"c": {"value": 2}}]],
        "description": "d", "policy_type": "policy", "filename": "kept"});
    let (rule, warnings) = Rule::from_json(policy, "", "").unwrap();
    assert_eq!(warnings, []);
    assert_eq!(Rule::from_json(rule.to_json(), "", "").unwrap().0, rule);
    let node = json!({"uid": "N", "root": true, "match": [{"a": {}}], "properties": [[{"b": {}}, {"c": {}}]], "expire": 2_000_000});
    let (node, _) = Node::from_json(node, "", "", NOW).unwrap();
    assert_eq!(Node::from_json(node.to_json(), "", "", NOW).unwrap().0, node);
}

#[test]
fn more_news_than_there_is_room_for_leaves_the_latest() {
    let mut manager = Manager::default();
    for i in 0..6000u32 {
        let json = json!({"uid": format!("n{i}"), "root": true, "properties": {"rtt": {"value": i}}});
        manager.insert_node(Node::from_json(json, "", "", NOW).unwrap().0, NOW);
    }
    assert_eq!(manager.cib().nodes().count(), MAX_NODES);
    assert!(manager.rows(NOW).rows.len() <= MAX_ROWS);
}

/// Nodes that all link to each other have more paths than can be counted, each as long as there are
/// nodes. The bound is on what is compared and copied, not on time: this ends at once, or not at
/// all.
#[test]
fn nodes_that_all_link_to_each_other_do_not_keep_it_busy() {
    let mut manager = Manager::default();
    let node = |json| Node::from_json(json, "", "", NOW).unwrap().0;
    for i in 0..5 {
        manager.insert_node(
            node(json!({"uid": format!("r{i}"), "root": true, "properties": {"interface": {"value": i}}})),
            NOW,
        );
    }
    assert!(!manager.rows(NOW).truncated);
    for i in 0..900 {
        let (uid, key) = (format!("l{i}"), format!("b{i}"));
        manager.insert_node(
            node(json!({"uid": uid, "link": true, "match": [{}], "properties": {key: {"value": 1}}})),
            NOW,
        );
    }
    let rows = manager.rows(NOW);
    let properties: usize = rows.rows.iter().map(|r| r.properties.len()).sum();
    assert!(rows.truncated && properties <= 400_000, "{} rows, {properties} properties", rows.rows.len());
    let requests = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).unwrap();
    assert!(manager.decide(&requests, NOW).is_ok());
}

#[test]
fn an_explanation_names_every_step() {
    let policies = json!([
        {"uid": "fast", "match": {"wired": {"value": true}}, "properties": {"wired": {"value": true, "score": 5}}},
        {"uid": "other", "match": {"site": {"value": "home"}}},
    ]);
    let nodes = json!([
        {"uid": "eth0", "root": true, "expire": -1, "properties": {"interface": {"value": "eth0"}, "wired": {"value": true}}},
        {"uid": "lo", "root": true, "expire": -1, "properties": {"interface": {"value": "lo", "precedence": 2}}},
    ]);
    let mut manager = filled(policies, nodes);
    let requests =
        Requests::from_text(r#"[{"transport": {"value": "TCP"}, "interface": {"value": "eth0", "precedence": 2}}]"#)
            .unwrap();
    let (_, trace) = manager.explain(&requests, NOW).unwrap();
    assert_eq!(
        trace.lines(),
        [
            "1. score 5 + 0: wired +5",
            "   request 1: interface = eth0 immutable, transport = TCP",
            "   row eth0: wired = true",
            "   policy fast: wired = true +5",
            "2. score 0 + 0: no property has a score",
            "   request 1: interface = eth0 immutable, transport = TCP",
            "   no row: nothing changes",
            "-  row lo has lo for interface, which must be eth0",
            "-  policy other does not match: site is not there, not home",
        ]
    );
    assert!(trace.mermaid().contains("c0 --> c"));
    assert_eq!(trace.to_json()["candidates"][0]["scores"][0]["score"], 5.0);
}

#[test]
fn tests_of_policies_say_what_is_not_as_expected() {
    let policies = json!([{"uid": "p", "match": {"app": {"value": "video"}}, "properties": {"dscp": {"value": 34}}}]);
    let mut manager = filled(policies, json!([]));
    let text = r#"[
        {"name": "good", "requests": [{"app": {"value": "video"}, "transport": {"value": "UDP"}}],
         "candidates": [{"dscp": 34, "transport": "UDP", "site": null}]},
        {"requests": [{"transport": {"value": "UDP"}}], "candidates": [{"dscp": 34, "transport": null}]}]"#;
    let tested = test(&mut manager, text, NOW).unwrap();
    assert_eq!((tested[0].name.as_str(), tested[0].differences.len()), ("good", 0));
    assert_eq!(
        tested[1].differences,
        ["candidate 1: dscp is nothing and not 34", "candidate 1: transport is UDP, though it must not be there"]
    );
    assert!(test(&mut manager, "[{}]", NOW).is_err());
}

#[test]
fn large_decisions_are_not_kept_without_end() {
    let mut manager = Manager::new(Limits::default());
    let mut kept = 0;
    for i in 0..600 {
        let text = format!("{i}{}", "x".repeat(20_000));
        let requests = Requests::from_json(&json!([{"transport": {"value": "TCP"}, "app": {"value": text}}])).unwrap();
        for _ in 0..2 {
            manager.decide(&requests, NOW).unwrap();
        }
        kept = manager.cache.len();
        assert!(manager.cache.weight() <= 4 << 20, "{}", manager.cache.weight());
    }
    assert!((40..300).contains(&kept), "{kept}");
    let huge = Requests::from_json(&json!([{"transport": {"value": "TCP"}, "app": {"value": "x".repeat(600_000)}}]));
    let huge = huge.unwrap();
    for _ in 0..2 {
        manager.decide(&huge, NOW).unwrap();
    }
    assert_eq!(manager.cache.len(), kept, "one that is too long takes nobody's place");
    manager.install(Table::default(), Table::default(), Cib::default());
    assert_eq!((manager.cache.len(), manager.cache.weight()), (0, 0));
}

#[test]
fn a_large_request_leaves_no_memory_behind() {
    let mut manager = Manager::new(Limits::default());
    let ask = |manager: &mut Manager, n: usize| {
        let mut request = json!({"transport": {"value": "TCP"}});
        (0..n).for_each(|i| request[format!("k{i}")] = json!({"value": i}));
        manager.decide(&Requests::from_json(&json!([request])).unwrap(), NOW).unwrap();
        manager.compiled().room()
    };
    assert!((5..100).contains(&ask(&mut manager, 5)), "what is usual is used again");
    assert_eq!(ask(&mut manager, 5000), 0);
    assert!(ask(&mut manager, 5) < 100);
}

#[test]
fn long_values_are_much_work() {
    let mut manager = Manager::patient(Limits::default(), 10_000);
    let each: Vec<_> = (0..50).map(|i| json!({"n": {"value": i}})).collect();
    let rule = json!({"uid": "r", "match": {"transport": {"value": "TCP"}}, "properties": [each]});
    manager.insert_rule(Stage::Policy, Rule::from_json(rule, "", "").unwrap().0);
    let asked = |bytes: usize| {
        Requests::from_json(&json!([{"transport": {"value": "TCP"}, "app": {"value": "x".repeat(bytes)}}])).unwrap()
    };
    assert!(manager.explain(&asked(100), NOW).is_ok());
    assert!(manager.explain(&asked(100_000), NOW).is_err(), "fifty copies of it");
    // As text and for programs, a long one is shown by its beginning.
    let (_, trace) = manager.explain(&asked(5_000), NOW).unwrap();
    assert!(trace.lines().iter().all(|line| line.len() < 1500));
    let several = trace.lines().iter().filter(|line| line.contains("policy r (")).count();
    assert!(several > 0, "{:?}", trace.lines());
}

#[test]
fn a_decision_in_plain_form_has_a_budget() {
    let mut manager = Manager::patient(Limits::default(), 1000);
    let requests = Requests::from_json(&json!([{"transport": {"value": "TCP"}}])).unwrap();
    assert!(manager.explain(&requests, NOW).is_ok());
    for i in 0..500 {
        let rule = json!({"uid": format!("r{i}"), "match": {"transport": {"value": "TCP"}}, "properties": {}});
        manager.insert_rule(Stage::Policy, Rule::from_json(rule, "", "").unwrap().0);
    }
    assert!(manager.explain(&requests, NOW).is_err());
}

#[test]
fn diagnostics_of_files_are_reported_with_their_place() {
    let told = |name: &str, text: &str| -> Vec<String> {
        let faults = check(&SourceFile { name, text }, NOW);
        assert!(faults.iter().all(|f| f.harmless), "{faults:?}");
        faults.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.why)).collect()
    };
    let text = "{\"uid\": \"a\",\n \"mach\": {},\n \"match\": {\"app\": {\"valeu\": 1}},\n \
                \"properties\": [[{\"x\": {\"scroe\": 1, \"precedance\": 2}}], {\"y\": [{\"banned\": [\"z\"]}]}],\n \"note\": 1}";
    let told_of = told("a.policy", text);
    for (place, words) in [
        ("2:", "\"mach\" means nothing here: is match meant?"),
        ("3:", "\"valeu\" is no attribute of a property: is value meant?"),
        ("4:", "\"scroe\" is no attribute of a property: is score meant?"),
        ("4:", "\"precedance\" is no attribute of a property: is precedence meant?"),
        ("4:", "banned is kept, and nothing follows from it"),
        ("5:", "\"note\" means nothing here"),
    ] {
        assert!(told_of.iter().any(|t| t.starts_with(place) && t.contains(words)), "{place} {words}: {told_of:#?}");
    }
    assert_eq!(told_of.len(), 6, "{told_of:#?}");
    // Where match or properties itself is misspelt, the document would be about everything, or have
    // no content.
    let refused = |name: &str, text: &str| -> Vec<String> {
        let faults = check(&SourceFile { name, text }, NOW);
        assert!(faults.iter().any(|f| !f.harmless), "{faults:?}");
        faults.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.why)).collect()
    };
    let node = "{\"root\": true, \"expire\": -1, \"propertys\": {}}";
    assert_eq!(refused("a.cib", node), ["1:30 this means nothing here: is properties meant?"]);
    let rule = "{\"uid\": \"a\", \"matches\": {\"app\": {\"value\": \"x\"}}, \"properties\": [[]]}";
    assert_eq!(refused("a.policy", rule), ["1:14 this means nothing here: is match meant?"]);
    let kind = "{\"uid\": \"a\", \"policy_type\": \"banana\", \"match\": {}}";
    assert_eq!(refused("a.policy", kind), ["1:14 policy_type is \"policy\" or \"profile\""]);
    let good = "{\"uid\": \"b\", \"policy_type\": \"policy\", \"match\": {\"a\": {\"value\": 1, \"evaluated\": true}}}";
    assert_eq!(told("a.policy", good), [] as [String; 0]);
}

#[test]
fn values_that_no_program_can_use_are_told() {
    let told = |name: &str, text: &str| -> Vec<String> {
        let faults = check(&SourceFile { name, text }, NOW);
        assert!(faults.iter().all(|f| f.harmless), "{faults:?}");
        faults.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.why)).collect()
    };
    let text = "{\"uid\": \"a\", \"match\": {\"transport\": {\"value\": \"TPC\"}, \"dscp\": {\"value\": 300}},\n \
                \"properties\": [{\"dscp\": {\"value\": 300}},\n \
                {\"transport\": [{\"value\": \"TPC\"}, {\"value\": [\"tls\", \"quick\"]}]},\n \
                {\"SO/SOL_SOCKET/SO_DEBUG\": {\"value\": 1}}]}";
    let told_of = told("a.policy", text);
    for (place, words) in [
        ("2:18", "dscp = 300 has no effect: a DSCP is a whole number from 0 to 63"),
        ("3:3", "\"TPC\" is no transport of neater's: is TCP meant?"),
        ("3:3", "\"quick\" is no transport of neater's: is QUIC meant?"),
        ("4:3", "so/sol_socket/so_debug = 1 has no effect: neater does not set this option for a policy"),
    ] {
        assert!(told_of.iter().any(|t| t.starts_with(place) && t.contains(words)), "{place} {words}: {told_of:#?}");
    }
    assert_eq!(told_of.len(), 4, "{told_of:#?}");
    let good = "{\"uid\": \"a\", \"match\": {}, \"properties\": [{\"dscp\": {\"value\": 46}, \"transport\": {\"value\": [\"sctp\", \"MPTCP\", \"reliable\"]},\
                \"SO/IPPROTO_TCP/TCP_NODELAY\": {\"value\": 1}}]}";
    assert_eq!(told("a.policy", good), [] as [String; 0]);
}

#[test]
fn scores_add_up_and_texts_stay_on_their_line() {
    let refused = |text: &str| Rule::from_json(serde_json::from_str(text).unwrap(), "", "").unwrap_err().to_string();
    assert!(refused(r#"{"match": {}, "properties": {"a": {"score": 1e308}}}"#).contains("from -1e15 to 1e15"));
    assert!(refused(r#"{"match": {}, "properties": {"a\nb": {"value": 1}}}"#).contains("no control characters"));
    assert!(refused(r#"{"uid": "a\nb", "match": {}}"#).contains("no control characters"));
    // A sum stays within what can be read again.
    let most = neater_property::neat::NeatProperty::new("a", true).with_score(1e15);
    let mut sum = most.clone();
    sum.update(&most).unwrap();
    assert_eq!(sum.score, 1e15);
    assert_eq!(neater_property::neat::NeatProperty::from_json("a", &sum.to_json()), Ok(sum));
    let text = neater_property::neat::NeatValue::from("a\n-  QUIC is denied by policy site");
    assert_eq!(text.to_string().lines().count(), 1);
}

#[test]
fn files_that_are_checked_together_may_have_no_uid_twice() {
    let file = |name: &'static str, text: &'static str| SourceFile { name, text };
    let files = [
        file("a/one.policy", r#"{"uid": "same", "match": {}}"#),
        file("a/one.profile", r#"{"uid": "same", "match": {}}"#),
        file("b/two.policy", r#"{"uid": "Same", "match": {}}"#),
    ];
    let faults = check_all(&files, NOW);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].file == "b/two.policy" && faults[0].why.contains("takes the place of a/one.policy"),
        "{}",
        faults[0]
    );
}
