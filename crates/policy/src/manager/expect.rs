//! Files of requests with the candidates that are expected: tests of one's own policies.
//!
//! A file is a JSON list of cases: `{"name", "requests": [...], "candidates": [{"transport": "TCP",
//! ...}, ...]}`. A candidate states the values it must have; what it does not mention may be
//! anything, and `null` means that it must not be there. The answer has exactly as many candidates,
//! in this order; with `"at_least": true` there may be more behind.

use super::document::same_value;
use super::{Manager, Requests, told};
use neater_base::WallTime;
use neater_property::neat::{NeatArray, NeatError, NeatValue, read};
use serde_json::Value;

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Its name, or its number where it has none.
    pub name: String,
    /// What is not as expected; nothing when all is well.
    pub differences: Vec<String>,
}

/// Runs every case of a file.
///
/// # Errors
/// [`NeatError`] with the place, when the file is no such list.
pub fn test(manager: &mut Manager, text: &str, now: WallTime) -> Result<Vec<Tested>, NeatError> {
    let json = read(text)?;
    let Value::Array(cases) = &json else { return Err(NeatError::Shape("a file of tests is a list of cases")) };
    cases.iter().enumerate().map(|(i, case)| one(manager, i, case, now).map_err(|e| e.within(&i.to_string()))).collect()
}

fn one(manager: &mut Manager, number: usize, case: &Value, now: WallTime) -> Result<Tested, NeatError> {
    let name = case["name"].as_str().map_or_else(|| format!("case {}", number + 1), String::from);
    let requests = Requests::from_json(&case["requests"]).map_err(|e| e.within("requests"))?;
    let Value::Array(wanted) = &case["candidates"] else {
        return Err(NeatError::Shape("candidates is a list of what is expected").within("candidates"));
    };
    let found: Vec<NeatArray> =
        manager.decide_anew(&requests, now)?.ranked().iter().map(|r| told(&r.properties)).collect();
    let mut differences = Vec::new();
    let open = case["at_least"].as_bool().unwrap_or(false);
    if found.len() < wanted.len() || (found.len() > wanted.len() && !open) {
        differences.push(format!("{} candidates and not {}", found.len(), wanted.len()));
    }
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let place = |e: NeatError| e.within(&i.to_string()).within("candidates");
        let Value::Object(members) = wanted else {
            return Err(place(NeatError::Shape("an expected candidate is an object of values")));
        };
        for (key, value) in members {
            let held = found.get(key).map(|p| &p.value);
            if value.is_null() {
                if let Some(held) = held {
                    differences.push(format!("candidate {}: {key} is {held}, though it must not be there", i + 1));
                }
                continue;
            }
            let value = NeatValue::from_json(value).map_err(|e| place(NeatError::from(e).within(key)))?;
            if !held.is_some_and(|h| same_value(h, &value)) {
                let held = held.map_or("nothing".to_string(), ToString::to_string);
                differences.push(format!("candidate {}: {key} is {held} and not {value}", i + 1));
            }
        }
    }
    Ok(Tested { name, differences })
}
