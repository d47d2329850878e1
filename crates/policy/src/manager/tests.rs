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
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
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
    let many: Vec<_> = (0..30).map(|i| json!({"colour": {"value": i, "score": f64::from(i % 5)}})).collect();
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
