//! The metadata of a modem, as lines of JSON: `{"interface": "wwan0", "mode": "4G", "rsrp": -87,
//! "quality_indicator": 2}`.
//!
//! The names of NEAT's exporter are those of the Final Version of Use Cases (2018), section 2.1,
//! table 2: `mode`, `submode`, `rssi`, `rscp`, `ecio`, `rsrp`, `rsrq`, `lac`, `cid`, `oper`,
//! `device_state`, `ipaddr`; its table 3 scores `frequency` and `quality_indicator`, too. Any other
//! name is a property all the same. Each line takes the place of the one before for its interface,
//! and counts for `ttl` seconds: a modem that has gone silent gets no good score.

use core::time::Duration;
use neater_base::WallTime;
use neater_policy::manager::Node;
use neater_property::neat::{NeatArray, NeatMultiArray, NeatProperty, NeatValue, read};
use serde_json::Value;

/// The longest line, in bytes.
pub const MAX_LINE: usize = 4096;
/// How many members a line may have.
const MAX_MEMBERS: usize = 64;
/// The lifetime of a line that states none, and the longest that one may state, in seconds.
const TTL: (u64, u64) = (60, 3600);
/// The longest name of an interface, as Linux has it with room to spare.
const MAX_NAME: usize = 64;

/// The node that a line is: linked to the interface it names, so that the rows of the interface
/// have its properties.
///
/// # Errors
/// What is wrong with the line.
pub fn metadata_node(line: &str, now: WallTime) -> Result<Node, String> {
    if line.len() > MAX_LINE {
        return Err(format!("a line has at most {MAX_LINE} bytes"));
    }
    let Value::Object(members) = read(line).map_err(|e| e.to_string())? else {
        return Err("a line is one JSON object".into());
    };
    if members.len() > MAX_MEMBERS {
        return Err(format!("a line has at most {MAX_MEMBERS} members"));
    }
    let name = match members.get("interface") {
        Some(Value::String(name)) if !name.is_empty() && name.len() <= MAX_NAME => name.as_str(),
        _ => return Err(format!("interface is the name of one, with 1 to {MAX_NAME} bytes")),
    };
    let seconds = match members.get("ttl") {
        None => TTL.0,
        Some(ttl) => ttl
            .as_u64()
            .filter(|ttl| (1..=TTL.1).contains(ttl))
            .ok_or_else(|| format!("ttl is a whole number of seconds from 1 to {}", TTL.1))?,
    };
    let mut said = NeatArray::new();
    for (key, value) in members.iter().filter(|(key, _)| !matches!(key.as_str(), "interface" | "ttl")) {
        let value = match value {
            // What a modem does not know counts as not stated.
            Value::Null => continue,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => NeatValue::from_json(value),
            _ => return Err(format!("{key} is a text, a number, true, false or null")),
        };
        let value = value.map_err(|e| format!("{key}: {e}"))?;
        let property = NeatProperty::new(&key.to_lowercase(), value);
        if property.key.is_empty() || property.key.len() > MAX_NAME || said.get(&property.key).is_some() {
            return Err(format!("{key:?} is no name, too long, or there twice"));
        }
        said.replace(property);
    }
    let interface = NeatProperty::new("interface", name);
    let mut properties = NeatMultiArray::new();
    properties.push(vec![said.clone()]);
    Ok(Node {
        uid: format!("metadata-{name}"),
        root: false,
        link: true,
        matches: vec![[(interface.key.clone(), interface)].into_iter().collect()],
        properties,
        alternatives: vec![said],
        priority: 0,
        expires: Some(WallTime(now.0.saturating_add(Duration::from_secs(seconds)))),
        description: "as the modem reports".into(),
        others: serde_json::Map::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Daemon, Options, Session};
    use neater_policy::manager::{Limits, Requests};
    use neater_policy::protocol::Door;

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

    fn say(d: &mut Daemon, text: &str) -> String {
        let mut session = Session::new(Door::Metadata, 0);
        text.as_bytes().chunks(5).for_each(|piece| session.receive(piece, d, NOW));
        session.end(d, NOW);
        String::from_utf8(session.take_output()).expect("text")
    }

    #[test]
    fn the_better_modem_is_the_one_that_says_so_and_only_while_it_does() {
        let mut d = Daemon::new(Options { limits: Limits::default(), owner: 0, ready: true, keeps_rules: false });
        for name in ["wwan0", "wwan1"] {
            let mut session = Session::new(Door::Cib, 0);
            let node = format!(
                r#"{{"uid": "{name}", "root": true, "expire": -1, "properties": {{"interface": {{"value": "{name}", "precedence": 2}}}}}}"#
            );
            session.receive(node.as_bytes(), &mut d, NOW);
            session.end(&mut d, NOW);
        }
        let request = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).expect("a request");
        let best = |d: &mut Daemon, after: u64| {
            let now = WallTime(NOW.0 + Duration::from_secs(after));
            let decision = d.decide(0, &request, now).expect("a decision");
            let interface = decision.get(0, "interface").map_or("-".into(), |p| p.value.to_string());
            (interface, decision.score(0).map_or(0.0, |s| s.evaluated))
        };
        // The example of the use cases: 30 + 20 + 3 + 3 + 8.
        let first = r#"{"interface": "wwan0", "mode": "4G", "quality_indicator": 2, "frequency": 800, "rsrp": -87, "rsrq": -4, "lac": null}"#;
        let second = r#"{"interface": "wwan1", "mode": "3G", "quality_indicator": 1, "frequency": 1800, "rssi": -70, "ttl": 600}"#;
        assert_eq!(say(&mut d, &format!("{first}\n{second}\n")), "");
        assert_eq!(best(&mut d, 0), ("wwan0".into(), 64.0));
        assert_eq!(best(&mut d, 61), ("wwan1".into(), 21.0));
        assert_eq!(say(&mut d, &format!("{first}\n{}", second.replace("3G", "4G").replace(": 1,", ": 2,"))), "");
        assert_eq!(best(&mut d, 0).0, "wwan0");
    }

    #[test]
    fn what_is_no_line_is_refused_and_the_next_one_taken() {
        let mut d = Daemon::new(Options { limits: Limits::default(), owner: 0, ready: false, keeps_rules: false });
        let lines = [
            ("{\"interface\": \"a\", \"rssi\": NaN}", "line 1: not JSON"),
            ("[]", "line 2: a line is one JSON object"),
            ("{\"mode\": \"4G\"}", "line 3: interface is the name"),
            ("{\"interface\": \"a\", \"ttl\": 0}", "line 4: ttl is a whole number"),
            ("{\"interface\": \"a\", \"mode\": [\"4G\"]}", "line 5: mode is a text"),
            ("{\"interface\": \"a\", \"Mode\": 1, \"mode\": 2}", "line 6: "),
        ];
        let text: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
        let told = say(&mut d, &format!("{text}\n  \n{{\"interface\": \"good\"}}\r\n"));
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told.len(), lines.len(), "{told:?}");
        for (said, (_, why)) in told.iter().zip(lines) {
            assert!(said.contains(why), "{said}, not {why}");
        }
        assert!(d.base().cib().get("metadata-good").is_some());
        // A line without an end is not kept waiting for.
        assert!(say(&mut d, &"x".repeat(MAX_LINE + 10)).contains("at most 4096 bytes"));
    }
}
