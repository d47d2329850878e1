//! Targets in `sim/scenario`: scenario files.

use neater_scenario::{MAX_EVENTS, MAX_FLOWS, MAX_LINKS, MAX_NODES, Scenario};

/// Reads `data` up to the first NUL as a scenario, over which each further pair of pieces lays a key and its value.
pub fn scenario_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.split('\0');
    let text = pieces.next().unwrap_or_default();
    let mut set = Vec::new();
    while let (Some(key), Some(value)) = (pieces.next(), pieces.next()) {
        set.push((key.to_owned(), value.to_owned()));
        if set.len() == 8 {
            break;
        }
    }
    match Scenario::parse(text, &set) {
        Ok(s) => {
            assert!(s.nodes.len() <= MAX_NODES && s.links.len() <= MAX_LINKS && s.events.len() <= MAX_EVENTS);
            assert!(s.traffic.iter().map(|t| u64::from(t.flows)).sum::<u64>() <= MAX_FLOWS);
            assert!(s.events.windows(2).all(|w| w[0].at <= w[1].at), "in the order of time");
            for t in &s.traffic {
                assert!(t.from < s.nodes.len() && t.to < s.nodes.len() && t.from != t.to);
            }
            let again = Scenario::parse(text, &set).expect("as before");
            // Not by `==`: a number may be none.
            assert_eq!(format!("{again:?}"), format!("{s:?}"), "what is read does not depend on anything else");
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
