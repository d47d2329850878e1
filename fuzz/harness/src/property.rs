//! Targets in `crates/property`: needs from a command line, and NEAT's JSON.

use neater_property::neat::{MAX_EXPANSION, NeatArray, NeatMultiArray, NeatProperty, NeatValue};
use neater_property::{Role, TransportProperties};

/// Reads `data` as needs. The order of the words must not matter, but for preferences between interfaces.
pub fn property_parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match TransportProperties::parse(&text) {
        Ok(parsed) => {
            let ordered = ["interface", "pvd"].iter().any(|word| text.to_ascii_lowercase().contains(word));
            let mut words: Vec<&str> = text.split(|c: char| c == ',' || c.is_whitespace()).collect();
            words.reverse();
            if !ordered {
                assert_eq!(TransportProperties::parse(&words.join(",")).as_ref(), Ok(&parsed), "{text:?} backwards");
            }
            for role in [Role::Initiate, Role::Listen, Role::Rendezvous] {
                let compiled = parsed.properties.compile(role);
                assert_eq!(compiled.is_ok(), parsed.properties.check(role).is_ok(), "{text:?}");
            }
        }
        Err(e) => {
            let said = e.to_string();
            assert!(!said.is_empty() && said.len() < 1000, "{said}");
        }
    }
}

/// The array as it is written: NEAT does not write what is banned, and neither do we.
fn without_banned(array: &NeatArray) -> NeatArray {
    let mut written = NeatArray::new();
    for property in array.iter() {
        written.replace(NeatProperty { banned: Vec::new(), ..property.clone() });
    }
    written
}

/// Reads `data` as an array of NEAT properties and as a multi-array. What is read can be written and read again.
pub fn property_neat(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(array) = NeatArray::from_text(&text) {
        let written = array.to_text();
        assert_eq!(NeatArray::from_text(&written), Ok(without_banned(&array)), "{written}");
        assert_eq!(array.sum(&NeatArray::new()).as_ref(), Ok(&array));
        // Nothing satisfies a choice among nothing, not even itself.
        let hopeless = array.iter().any(|p| matches!(&p.value, NeatValue::Set(choices) if choices.is_empty()));
        assert_eq!(array.is_subset_of(&array), !hopeless, "{written}");
    }
    if let Ok(multi) = NeatMultiArray::from_text(&text) {
        match (multi.combinations(), multi.expand()) {
            (Ok(count), Ok(arrays)) => assert!(arrays.len() <= count && count <= MAX_EXPANSION),
            (Err(_), Err(_)) => {}
            (count, arrays) => panic!("{count:?} combinations, but expansion gives {arrays:?}"),
        }
    }
}
