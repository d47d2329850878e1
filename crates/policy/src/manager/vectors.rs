//! Runs test vectors: answers of NEAT's policy manager, a JSON file each.
//!
//! The format is described in `crates/policy/tests/vectors/README.md`. A vector that names quirks
//! of NEAT's manager has a second answer, `sane`, which counts here: such quirks are fixed.

use super::{Loader, Manager, Node, Requests, Rule, SourceFile, Stage, told};
use neater_base::WallTime;
use neater_property::neat::{InvalidValue, NeatArray, NeatError, NeatMultiArray, NeatProperty, Score, read};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The time at which vectors are run: between the times of expiry that they use.
pub const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

/// What the reference would answer with an empty list, and we refuse
/// (`specs/exceptions/neat-vectors-no-request.toml`).
const REFUSED: [&str; 5] = ["req-not-json", "req-object", "req-number-element", "req-bad-property", "req-bad-range"];

/// Runs one vector and returns what differs, one line each.
///
/// # Errors
/// When the file is no vector.
pub fn run(text: &str) -> Result<Vec<String>, String> {
    let vector = read(text).map_err(|e| e.to_string())?;
    let kind = vector["kind"].as_str().ok_or("there is no kind")?;
    let mut files = Vec::new();
    for directory in ["pib", "cib"] {
        let list = vector[directory].as_array().map_or(&[][..], Vec::as_slice);
        let read: Result<Vec<_>, _> = list.iter().map(file).collect();
        files.push(read?);
    }
    let sources =
        |i: usize| -> Vec<SourceFile<'_>> { files[i].iter().map(|(name, text)| SourceFile { name, text }).collect() };
    let mut manager = Manager::default();
    Loader::default().load(&mut manager, &sources(0), &sources(1), NOW);
    let expected = vector.get("sane").unwrap_or(&vector);
    let reply = &expected["reply"];
    if kind == "request" {
        let name = vector["name"].as_str().unwrap_or_default();
        let outcome = if REFUSED.contains(&name) { Some("no_reply") } else { expected["outcome"].as_str() };
        return Ok(request(&mut manager, &vector["requests"], expected, outcome.map(|o| o == "no_reply")));
    }
    let requests = vector["requests"].as_array().ok_or("requests is no list")?;
    let replies = reply.as_array().filter(|r| r.len() == requests.len()).ok_or("not one reply for each request")?;
    let mut differences = Vec::new();
    for (i, (request, reply)) in requests.iter().zip(replies).enumerate() {
        let op = request["op"].as_str().unwrap_or_default();
        let answer = match kind {
            "property" => property(op, request),
            "pib" => pib(&mut manager, op, request),
            "cib" => cib(&mut manager, op, request),
            other => return Err(format!("{other} is no kind of vector")),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failed::Class(class)) => json!({ "error": class }),
            Err(Failed::Unknown(what)) => return Err(what),
        };
        let in_order = op == "expand" || (kind == "pib" && op == "lookup");
        let (got, wanted) = (canonical_reply(&answer, in_order), canonical_reply(reply, in_order));
        if got != wanted {
            differences.push(format!("request {} ({op}): {got} is not {wanted}", i + 1));
        }
    }
    Ok(differences)
}

fn file(entry: &Value) -> Result<(String, String), String> {
    let name = entry["file"].as_str().ok_or("a file without a name")?.to_string();
    let text = match (entry.get("raw"), entry.get("json")) {
        (Some(Value::String(raw)), _) => raw.clone(),
        (_, Some(json)) => json.to_string(),
        _ => return Err(format!("{name} has no request and no expectation")),
    };
    Ok((name, text))
}

enum Failed {
    /// The class of error that the reference would have raised.
    Class(&'static str),
    /// The vector makes no sense.
    Unknown(String),
}

impl From<NeatError> for Failed {
    fn from(e: NeatError) -> Self {
        Self::Class(match e.kind() {
            NeatError::Conflict(_) => "ImmutablePropertyError",
            NeatError::Value(InvalidValue::Range) => "IndexError",
            NeatError::Shape(_) => "InvalidPropertyError",
            _ => "Error",
        })
    }
}

fn arrays_json(arrays: &[NeatArray]) -> Value {
    Value::Array(arrays.iter().map(NeatArray::to_json).collect())
}

fn property(op: &str, request: &Value) -> Result<Value, Failed> {
    let array = |name: &str| NeatArray::from_json(&request[name]);
    let only = |name: &str| -> Result<NeatProperty, Failed> {
        let array = NeatArray::from_json(&request[name])?;
        array.iter().next().cloned().ok_or(Failed::Unknown(format!("{op} needs one property in {name}")))
    };
    let shown =
        |p: NeatProperty| -> Result<Value, Failed> { Ok(NeatArray::fold([p]).map_err(NeatError::from)?.to_json()) };
    Ok(match op {
        "parse" => array("a")?.to_json(),
        "match" => json!({ "match": only("a")?.matches(&only("b")?) }),
        "subset" => json!({ "subset": array("a")?.is_subset_of(&array("b")?) }),
        "score" => json!({ "score": score_json(array("a")?.score()) }),
        "update" => {
            let mut a = only("a")?;
            a.update(&only("b")?).map_err(NeatError::from)?;
            shown(a)?
        }
        "add" => shown(only("a")?.sum(&only("b")?).map_err(NeatError::from)?)?,
        "array_add" => array("a")?.sum(&array("b")?).map_err(NeatError::from)?.to_json(),
        "expand" => {
            let multi = NeatMultiArray::from_json(&request["properties"])?;
            json!({ "arrays": arrays_json(&multi.expand().map_err(NeatError::from)?) })
        }
        "expand_request" => json!({ "arrays": arrays_json(&Requests::from_json(&request["request"])?.arrays) }),
        other => return Err(Failed::Unknown(format!("{other} is no operation on properties"))),
    })
}

fn pib(manager: &mut Manager, op: &str, request: &Value) -> Result<Value, Failed> {
    let stage = match request["table"].as_str() {
        None | Some("policy") => Stage::Policy,
        Some("profile") => Stage::Profile,
        Some(other) => return Err(Failed::Unknown(format!("{other} is no table"))),
    };
    Ok(match op {
        "lookup" => {
            let input = NeatArray::from_json(&request["input"])?;
            json!({ "candidates": arrays_json(&manager.apply_rules(stage, input).map_err(NeatError::from)?) })
        }
        "list" => {
            let table = if stage == Stage::Policy { manager.policies() } else { manager.profiles() };
            json!({ "uids": table.rules().iter().map(|r| r.uid.clone()).collect::<Vec<_>>() })
        }
        "import" => {
            for one in one_or_many(&request["policy"]) {
                // What is no policy is dropped, as it is when it comes over a socket.
                if let Ok((rule, _)) = Rule::from_json(one, "", "") {
                    manager.insert_rule(stage, rule);
                }
            }
            json!({})
        }
        "remove" => {
            let uid = request["uid"].as_str().unwrap_or_default();
            manager.remove_rule(stage, uid).map(|_| json!({})).ok_or(Failed::Class("KeyError"))?
        }
        other => return Err(Failed::Unknown(format!("{other} is no operation on the PIB"))),
    })
}

fn one_or_many(json: &Value) -> Vec<Value> {
    match json {
        Value::Array(many) => many.clone(),
        one => vec![one.clone()],
    }
}

fn cib(manager: &mut Manager, op: &str, request: &Value) -> Result<Value, Failed> {
    Ok(match op {
        "rows" => {
            let rows: Vec<NeatArray> = manager.rows(NOW).rows.iter().map(|r| r.properties.clone()).collect();
            json!({ "rows": arrays_json(&rows) })
        }
        "lookup" => {
            let found = manager.join_rows(NeatArray::from_json(&request["input"])?, NOW);
            let scores: Vec<Value> = found.iter().map(|c| score_json(c.score())).collect();
            let found = in_groups(&found, &scores);
            json!({ "candidates": found, "scores": scores })
        }
        "import" => {
            for one in one_or_many(&request["node"]) {
                if let Ok((node, _)) = Node::from_json(one, "", "", NOW) {
                    manager.insert_node(node, NOW);
                }
            }
            json!({})
        }
        "remove" => {
            let uid = request["uid"].as_str().unwrap_or_default();
            manager.remove_node(uid).map(|_| json!({})).ok_or(Failed::Class("KeyError"))?
        }
        "uids" => json!({ "uids": manager.cib().nodes().map(|n| n.uid.clone()).collect::<Vec<_>>() }),
        other => return Err(Failed::Unknown(format!("{other} is no operation on the CIB"))),
    })
}

/// Candidates with equal scores sorted among themselves, as their order is not defined.
fn in_groups(candidates: &[NeatArray], scores: &[Value]) -> Vec<Value> {
    let mut grouped: Vec<Value> = Vec::new();
    let mut at = 0;
    while at < candidates.len() {
        let end = (at..candidates.len()).find(|&i| !same_number(&scores[i], &scores[at])).unwrap_or(candidates.len());
        let mut group: Vec<Value> = candidates[at..end].iter().map(|c| canonical(&c.to_json())).collect();
        group.sort_by_key(ToString::to_string);
        grouped.extend(group);
        at = end;
    }
    grouped
}

fn same_number(a: &Value, b: &Value) -> bool {
    canonical(a) == canonical(b)
}

fn score_json(score: Score) -> Value {
    json!([score.evaluated, score.others])
}

/// `refused`: whether there is to be no answer, if that is stated; an empty one is another thing.
fn request(manager: &mut Manager, document: &Value, expected: &Value, refused: Option<bool>) -> Vec<String> {
    let text = match document {
        Value::String(raw) => raw.clone(),
        json => json.to_string(),
    };
    let mut is_refused = false;
    let mut refuse = || {
        is_refused = true;
        (Vec::new(), Vec::new())
    };
    let (found, ranking) = match Requests::from_text(&text) {
        Err(_) => refuse(),
        Ok(requests) => match (manager.explain(&requests, NOW), manager.decide_anew(&requests, NOW)) {
            (Ok((ranked, _)), Ok(decision)) if decision.ranked() != ranked => {
                return vec!["the compiled form and the plain form decide differently".into()];
            }
            (Err(_), _) | (_, Err(_)) => refuse(),
            (Ok((ranked, _)), _) => {
                let tell = |p: &NeatArray| if requests.pre_resolve { p.clone() } else { told(p) };
                ranked.iter().map(|r| (tell(&r.properties), score_json(r.score))).unzip()
            }
        },
    };
    let mut differences = Vec::new();
    if refused.is_some_and(|refused| refused != is_refused) {
        differences.push(
            if is_refused { "it is refused, and not answered" } else { "it is answered, and not refused" }.into(),
        );
    }
    let wanted: Vec<Value> = expected["reply"].as_array().cloned().unwrap_or_default();
    if expected["order"] == "score" {
        let scores = expected["scores"].as_array().cloned().unwrap_or_default();
        if canonical_scores(&ranking) != canonical_scores(&scores) {
            differences.push(format!(
                "the scores are {} and not {}",
                Value::from(ranking.clone()),
                Value::from(scores)
            ));
        }
        let (got, wanted) = (in_groups(&found, &ranking), regroup(&wanted, &ranking));
        if got != wanted {
            differences.push(format!("{} is not {}", Value::from(got), Value::from(wanted)));
        }
    } else {
        let got = multiset(&found.iter().map(NeatArray::to_json).collect::<Vec<_>>());
        let wanted = multiset(&wanted);
        if got != wanted {
            differences.push(format!("{} is not {}", Value::from(got), Value::from(wanted)));
        }
    }
    differences
}

fn canonical_scores(scores: &[Value]) -> Vec<Value> {
    scores.iter().map(|pair| Value::Array(pair.as_array().into_iter().flatten().map(canonical).collect())).collect()
}

/// The expected candidates, sorted within the groups that our scores make.
fn regroup(wanted: &[Value], scores: &[Value]) -> Vec<Value> {
    let mut wanted: Vec<Value> = wanted.iter().map(canonical).collect();
    let mut at = 0;
    while at < scores.len().min(wanted.len()) {
        let end = (at..scores.len()).find(|&i| !same_number(&scores[i], &scores[at])).unwrap_or(scores.len());
        let end = end.min(wanted.len());
        wanted[at..end].sort_by_key(ToString::to_string);
        at = end;
    }
    wanted
}

fn multiset(items: &[Value]) -> Vec<Value> {
    let mut items: Vec<Value> = items.iter().map(canonical).collect();
    items.sort_by_key(ToString::to_string);
    items
}

/// A reply to an operation in a form that can be compared.
fn canonical_reply(reply: &Value, in_order: bool) -> Value {
    let Value::Object(members) = reply else { return canonical(reply) };
    let mut out = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            ("arrays" | "rows", Value::Array(items)) if !in_order => multiset(items).into(),
            // Candidates of equal scores come in any order.
            ("candidates", Value::Array(items)) if members.contains_key("scores") => {
                regroup(items, members["scores"].as_array().map_or(&[][..], Vec::as_slice)).into()
            }
            ("arrays" | "rows" | "candidates", Value::Array(items)) => items.iter().map(canonical).collect(),
            ("scores", Value::Array(items)) => canonical_scores(items).into(),
            ("score", Value::Array(items)) => items.iter().map(canonical).collect(),
            ("uids", list) => list.clone(),
            (_, value) => canonical(value),
        };
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

/// Numbers to nine decimals, sets in one order, infinities in words.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(n) => {
            let rounded = (n.as_f64().unwrap_or_default() * 1e9).round() / 1e9;
            json!(rounded + 0.0)
        }
        Value::String(s) if s == "Infinity" => json!("inf"),
        Value::String(s) if s == "-Infinity" => json!("-inf"),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(canonical).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(members) => {
            // By name: another crate may have asked serde_json to keep the order that was written.
            let mut sorted: Vec<(String, Value)> = members.iter().map(|(k, v)| (k.clone(), canonical(v))).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            sorted.into_iter().collect()
        }
        other => other.clone(),
    }
}
