use super::*;
use crate::Preference;
use proptest::prelude::*;

fn text(t: &str) -> NeatValue {
    t.into()
}

fn set(elements: &[&str]) -> NeatValue {
    NeatValue::set(elements.iter().map(|e| text(e))).unwrap()
}

fn range(start: f64, end: f64) -> NeatValue {
    NeatValue::range(start, end).unwrap()
}

#[test]
fn touching_ranges_meet_in_one_number() {
    assert_eq!(range(0.0, 10.0).intersect(&range(10.0, 30.0)), Some(NeatValue::Number(10.0)));
    assert_eq!(range(0.0, 10.0).intersect(&range(11.0, 30.0)), None);
    assert_eq!(range(0.0, f64::INFINITY).intersect(&NeatValue::Number(7.0)), Some(NeatValue::Number(7.0)));
}

#[test]
fn booleans_are_not_numbers_and_texts_lie_in_no_range() {
    assert!(!NeatValue::Bool(true).matches(&NeatValue::Number(1.0)));
    assert!(!NeatValue::Bool(true).matches(&range(0.0, 5.0)));
    assert!(!text("5").matches(&range(0.0, 10.0)));
    assert!(text("").matches(&text("")));
}

#[test]
fn the_empty_set_matches_only_any() {
    let empty = set(&[]);
    assert_eq!(empty, NeatValue::Set(vec![]));
    for other in [empty.clone(), text("x"), set(&["x", "y"]), range(0.0, 1.0)] {
        assert!(!empty.matches(&other) && !other.matches(&empty));
    }
    assert_eq!(empty.intersect(&NeatValue::Any), Some(empty));
}

#[test]
fn a_set_of_one_is_that_value_and_repetition_does_not_count() {
    assert_eq!(set(&["x", "x"]), text("x"));
    assert_eq!(set(&["a", "b"]).intersect(&set(&["b", "c"])), Some(text("b")));
    assert_eq!(NeatValue::set([set(&["a", "b"])]), Err(InvalidValue::Element));
    assert_eq!(NeatValue::set([NeatValue::Number(f64::NAN)]), Err(InvalidValue::NotFinite));
    let numbers = |n: usize| NeatValue::set((0..n).map(|i| NeatValue::Number(i as f64)));
    assert!(numbers(MAX_SET).is_ok());
    assert_eq!(numbers(MAX_SET + 1), Err(InvalidValue::SetTooLarge));
}

#[test]
fn a_range_in_the_wrong_order_is_no_value() {
    assert_eq!(NeatValue::range(2.0, 1.0), Err(InvalidValue::Range));
    assert_eq!(NeatValue::range(f64::NAN, 1.0), Err(InvalidValue::Range));
}

/// The value, precedence and score of `update` on disjoint and on equal values, for each pair of
/// precedences.
#[test]
fn the_table_of_updates_holds_for_every_pair_of_precedences() {
    for a in 0..=2u8 {
        for b in 0..=2u8 {
            let held = NeatProperty::new("K", "a").with_precedence(a).with_score(3.0);
            let same = NeatProperty::new("k", "a").with_precedence(b).with_score(5.0);
            let other = NeatProperty::new("k", "b").with_precedence(b).with_score(5.0);

            let mut p = held.clone();
            p.update(&same).unwrap();
            assert_eq!((p.value, p.precedence, p.score, p.evaluated), (text("a"), a.max(b), 8.0, true));

            let mut p = held.clone();
            let updated = p.update(&other);
            assert!(p.evaluated);
            let expected = if b >= a && (a, b) != (2, 2) { (text("b"), b, 5.0) } else { (text("a"), a, 3.0) };
            assert_eq!((p.value, p.precedence, p.score), expected, "update {a} by {b}");
            assert_eq!(updated.is_err(), (a, b) == (2, 2));

            match held.sum(&other) {
                Err(conflict) => {
                    assert_eq!((a, b), (2, 2));
                    assert_eq!(conflict.to_string(), "k is immutable as a and cannot be b");
                }
                Ok(sum) => {
                    let expected = if b > 0 && b >= a { (text("b"), b, 5.0) } else { (text("a"), a, 3.0) };
                    assert_eq!((sum.value, sum.precedence, sum.score), expected, "sum {a} and {b}");
                    assert_eq!(sum.evaluated, b != 0);
                }
            }
        }
    }
}

#[test]
fn properties_of_different_keys_do_not_meet() {
    let (mut a, b) = (NeatProperty::new("a", "x"), NeatProperty::new("b", "x").with_precedence(0));
    assert!(!matches(&a, &b));
    let before = a.clone();
    update(&mut a, &b).unwrap();
    assert_eq!(a, before);
    assert_eq!(a.sum(&b).unwrap(), before);
}

#[test]
fn a_sum_with_a_default_keeps_the_mark_of_evaluation() {
    let mut a = NeatProperty::new("k", "x");
    a.evaluated = true;
    assert!(a.sum(&NeatProperty::new("k", "y").with_precedence(0)).unwrap().evaluated);
}

#[test]
fn preferences_map_to_precedence_and_back() {
    for p in Preference::ALL {
        assert_eq!(NeatProperty::from_preference("Reliability", p).to_preference(), Some(p));
    }
    let require = NeatProperty::from_preference("reliability", Preference::Require);
    assert_eq!((require.value.clone(), require.precedence), (NeatValue::Bool(true), 2));
    let avoid = NeatProperty::from_preference("reliability", Preference::Avoid);
    assert_eq!((avoid.value.clone(), avoid.precedence), (NeatValue::Bool(false), 1));
    assert!(require.clone().update(&NeatProperty::from_preference("reliability", Preference::Prohibit)).is_err());
    assert_eq!(NeatProperty::new("transport", "TCP").to_preference(), None);
}

#[test]
fn scores_of_evaluated_properties_rank_first() {
    let plain = NeatArray::fold([NeatProperty::new("a", "x").with_score(9.0)]).unwrap();
    let evaluated =
        NeatArray::fold([NeatProperty::new("a", "x").with_score(1.0), NeatProperty::new("A", "x").with_score(1.0)])
            .unwrap();
    assert_eq!(
        (plain.score(), evaluated.score()),
        (Score { evaluated: 0.0, others: 9.0 }, Score { evaluated: 2.0, others: 0.0 })
    );
    assert!(evaluated.score().order(&plain.score()).is_gt());
}

#[test]
fn an_expansion_is_bounded_before_it_is_made() {
    let two = vec![NeatArray::new(), NeatArray::new()];
    let mut multi = NeatMultiArray::new();
    for _ in 0..13 {
        multi.push(two.clone());
    }
    assert_eq!(multi.combinations(), Ok(8192));
    multi.push(two.clone());
    assert_eq!(multi.expand(), Err(TooMany));
    multi.push(vec![]);
    assert_eq!(multi.expand(), Ok(vec![]), "a group without alternatives leaves nothing");
    for _ in 0..MAX_GROUPS {
        multi.push(vec![NeatArray::new()]);
    }
    assert_eq!(multi.expand(), Err(TooMany));

    let wide = NeatArray::fold((0..3000).map(|i| NeatProperty::new(&format!("k{i}"), true))).unwrap();
    let mut multi = NeatMultiArray::new();
    multi.push(vec![wide; 66]);
    assert_eq!(multi.combinations(), Ok(66));
    multi.push(vec![NeatArray::new(); 2]);
    assert_eq!(multi.expand(), Err(TooMany), "{} properties", 66 * 2 * 3000);
}

#[test]
fn a_clash_drops_its_combination_only() {
    let array = |value: &str| NeatArray::fold([NeatProperty::new("k", value).with_precedence(2)]).unwrap();
    let mut multi = NeatMultiArray::new();
    multi.push(vec![array("a")]);
    multi.push(vec![array("a"), array("b")]);
    let arrays = multi.expand().unwrap();
    assert_eq!(arrays.len(), 1);
    assert_eq!(arrays[0].get("K").map(|p| p.value.clone()), Some(text("a")));
}

fn single() -> impl Strategy<Value = NeatValue> {
    prop_oneof![
        any::<bool>().prop_map(NeatValue::Bool),
        (-5i32..5).prop_map(|n| NeatValue::Number(n.into())),
        "[ab]{0,1}".prop_map(NeatValue::Text),
    ]
}

fn value() -> impl Strategy<Value = NeatValue> {
    prop_oneof![
        Just(NeatValue::Any),
        single(),
        proptest::collection::vec(single(), 0..5).prop_map(|v| NeatValue::set(v).unwrap()),
        (-5i32..5, 0i32..5).prop_map(|(start, len)| range(start.into(), (start + len).into())),
    ]
}

/// Whether the single value `x` satisfies `v`, by the plain meaning of the words.
fn satisfies(x: &NeatValue, v: &NeatValue) -> bool {
    match v {
        NeatValue::Any => true,
        NeatValue::Set(elements) => elements.contains(x),
        NeatValue::Range { start, end } => matches!(x, NeatValue::Number(n) if start <= n && n <= end),
        one => one == x,
    }
}

proptest! {
    #[test]
    fn prop_an_intersection_holds_exactly_what_both_hold(a in value(), b in value(), x in single()) {
        let common = a.intersect(&b);
        prop_assert_eq!(common.as_ref().is_some_and(|c| satisfies(&x, c)), satisfies(&x, &a) && satisfies(&x, &b));
        prop_assert_eq!(a.matches(&b), b.matches(&a));
    }

    #[test]
    fn prop_an_immutable_property_is_never_widened(a in value(), b in value(), precedence in 0u8..3, x in single()) {
        let mut p = NeatProperty::new("k", a.clone()).with_precedence(2);
        let _ = p.update(&NeatProperty::new("k", b).with_precedence(precedence));
        prop_assert!(satisfies(&x, &a) || !satisfies(&x, &p.value));
        prop_assert_eq!(p.precedence, 2);
    }
}

#[cfg(feature = "json")]
mod json {
    use super::super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Vectors of NEAT's policy manager, with the replies of a manager whose defects are mended
    /// where that differs.
    const VECTORS: &str = include_str!("../../testdata/neat-properties.json");

    /// Numbers as doubles, sets in one order, infinities in words: what may differ between equal
    /// replies.
    fn canonical(v: &Value) -> Value {
        match v {
            Value::Number(n) => json!(n.as_f64()),
            Value::String(s) if s == "Infinity" => json!("inf"),
            Value::String(s) if s == "-Infinity" => json!("-inf"),
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(canonical).collect();
                items.sort_by_key(ToString::to_string);
                Value::Array(items)
            }
            Value::Object(o) => Value::Object(o.iter().map(|(k, v)| (k.clone(), canonical(v))).collect()),
            other => other.clone(),
        }
    }

    fn answer(request: &Value) -> Result<Value, NeatError> {
        let array = |name: &str| NeatArray::from_json(&request[name]);
        let only = |a: &NeatArray| a.iter().next().cloned().ok_or(NeatError::Shape("no property"));
        let shown = |p: NeatProperty| -> Result<Value, NeatError> { Ok(NeatArray::fold([p])?.to_json()) };
        Ok(match request["op"].as_str() {
            Some("parse") => array("a")?.to_json(),
            Some("match") => json!({ "match": only(&array("a")?)?.matches(&only(&array("b")?)?) }),
            Some("subset") => json!({ "subset": array("a")?.is_subset_of(&array("b")?) }),
            Some("update") => {
                let mut a = only(&array("a")?)?;
                a.update(&only(&array("b")?)?)?;
                shown(a)?
            }
            Some("add") => shown(only(&array("a")?)?.sum(&only(&array("b")?)?)?)?,
            Some("array_add") => array("a")?.sum(&array("b")?)?.to_json(),
            Some("expand") => {
                let arrays = NeatMultiArray::from_json(&request["properties"])?.expand()?;
                json!({ "arrays": arrays.iter().map(NeatArray::to_json).collect::<Vec<_>>() })
            }
            Some("expand_request") => {
                // A document is a list of requests.
                let mut arrays = Vec::new();
                for one in request["request"].as_array().ok_or(NeatError::Shape("no list"))? {
                    arrays.extend(NeatMultiArray::from_json(one)?.expand()?.iter().map(NeatArray::to_json));
                }
                json!({ "arrays": arrays })
            }
            other => panic!("unknown operation {other:?}"),
        })
    }

    #[test]
    fn neats_own_property_vectors_hold() {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let mut checked = 0;
        for vector in vectors.as_array().unwrap() {
            let (requests, replies) = (vector["requests"].as_array().unwrap(), vector["reply"].as_array().unwrap());
            assert_eq!(requests.len(), replies.len());
            for (request, reply) in requests.iter().zip(replies) {
                let answer = answer(request).unwrap_or_else(|e| {
                    let class = match e.kind() {
                        NeatError::Conflict(_) => "ImmutablePropertyError",
                        NeatError::Value(InvalidValue::Range) => "IndexError",
                        NeatError::Shape(_) => "InvalidPropertyError",
                        other => panic!("{request}: {other}"),
                    };
                    json!({ "error": class })
                });
                // The order of an expansion counts, that of alternatives in a request does not.
                let in_order = request["op"] == "expand";
                let shape = |v: &Value| match (in_order, v["arrays"].as_array()) {
                    (true, Some(arrays)) => json!(arrays.iter().map(|a| canonical(a).to_string()).collect::<Vec<_>>()),
                    _ => canonical(v),
                };
                assert_eq!(shape(&answer), shape(reply), "{} {request}", vector["name"]);
                checked += 1;
            }
        }
        assert_eq!(checked, 128, "every vector was run");
    }

    #[test]
    fn text_goes_out_as_it_came_in() {
        let source = r#"{"a\u00e9": {"evaluated": false, "precedence": 2, "score": 1.5, "value": {"end":"inf","start":3}}, "b": {"evaluated": false, "precedence": 1, "score": 0, "value": ["x",1,true]}}"#;
        assert_eq!(NeatArray::from_text(source).unwrap().to_text(), source);
        let clef = NeatArray::from_text(r#"{"k": {"value": "𝄞"}}"#).unwrap().to_text();
        assert!(clef.contains(r"\ud834\udd1e") && clef.is_ascii());
    }

    #[test]
    fn bad_attributes_are_errors_and_bad_bans_are_ignored() {
        for bad in [
            "[]",
            "5",
            "{",
            r#"{"k": 5}"#,
            r#"{"": {}}"#,
            r#"{"k": {"precedence": 3}}"#,
            r#"{"k": {"precedence": 1.5}}"#,
            r#"{"k": {"precedence": true}}"#,
            r#"{"k": {"score": "5"}}"#,
            r#"{"k": {"evaluated": 1}}"#,
            r#"{"k": {"value": [[1], [2]]}}"#,
            r#"{"k": {"value": {"start": 2, "end": 1}}}"#,
            r#"{"k": {"value": 1e999}}"#,
        ] {
            assert!(NeatArray::from_text(bad).is_err(), "{bad}");
        }
        let banned = NeatArray::from_text(r#"{"k": {"banned": ["UDP", 5]}}"#).unwrap();
        assert_eq!(banned.get("k").unwrap().banned, ["UDP"]);
        assert!(matches!(NeatArray::from_text(&" ".repeat(MAX_JSON + 1)), Err(NeatError::Syntax(_))));
        assert!(matches!(NeatArray::from_text(&"[".repeat(100_000)), Err(NeatError::Syntax(_))));
    }

    #[test]
    fn lists_in_files_are_alternatives_and_their_product_is_bounded() {
        let arrays = |t: &str| NeatMultiArray::from_text(t).unwrap().expand().unwrap();
        let two = arrays(r#"{"transport": [{"value": "SCTP"}, {"value": "TCP"}], "port": {"value": 80}}"#);
        let transports: Vec<_> = two.iter().map(|a| a.get("transport").unwrap().value.to_string()).collect();
        assert_eq!(transports, ["SCTP", "TCP"]);
        assert!(two.iter().all(|a| a.get("port").is_some()));

        let lists: Vec<String> = (0..14).map(|i| format!(r#""k{i}": [{{}}, {{"value": 1}}]"#)).collect();
        let object = format!("{{{}}}", lists.join(","));
        assert_eq!(NeatMultiArray::from_text(&object).unwrap().expand(), Err(TooMany));
        let nested = NeatMultiArray::from_text(&format!("[[{object}]]")).unwrap_err();
        assert_eq!(nested.kind(), &NeatError::TooMany(TooMany));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(t in r#"[\[\]{}":,a-c0-9.e+-]{0,60}"#) {
            let _ = NeatArray::from_text(&t);
            let _ = NeatMultiArray::from_text(&t).map(|m| m.expand());
        }
    }
}

#[test]
fn a_choice_among_nothing_matches_nothing_not_even_itself() {
    let array = NeatArray::from_text(r#"{"transport":{"value":[]},"mtu":{"value":1500}}"#).expect("an array");
    assert!(!array.is_subset_of(&array));
    assert_eq!(array.sum(&NeatArray::new()), Ok(array.clone()));
}
