use super::*;
use crate::{CapacityProfile, Preference, Role, SecurityLevel};
use proptest::prelude::*;

fn parse(text: &str) -> Parsed {
    TransportProperties::parse(text).unwrap()
}

fn error(text: &str) -> String {
    TransportProperties::parse(text).unwrap_err().to_string()
}

/// What differs from the defaults.
fn changes(text: &str) -> Vec<String> {
    let defaults = TransportProperties::new();
    let is_new = |(name, value): &(&'static str, crate::Value)| defaults.get(name).as_ref() != Some(value);
    parse(text).properties.iter().filter(is_new).map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn words_say_what_they_mean() {
    for (text, expected) in [
        ("reliable", ""),
        ("unreliable", "reliability=Avoid preserveOrder=No Preference"),
        ("ordered", ""),
        ("unordered", "preserveOrder=Avoid"),
        ("messages", "preserveMsgBoundaries=Require"),
        (
            "datagrams",
            "reliability=Avoid preserveMsgBoundaries=Require preserveOrder=Avoid congestionControl=No Preference \
             safelyReplayable=true",
        ),
        ("low-delay", "connCapacityProfile=Low Latency/Interactive"),
        ("Real_Time", "connCapacityProfile=Low Latency/Non-Interactive"),
        ("bulk", "connCapacityProfile=Capacity-Seeking"),
        ("background", "connCapacityProfile=Scavenger"),
        ("keep-alive", "keepAlive=Require"),
        ("0rtt", "zeroRttMsg=Prefer"),
        ("zero-rtt", "zeroRttMsg=Prefer"),
        ("multistreaming", "multistreaming=Require"),
        ("no-multistreaming", "multistreaming=Prohibit"),
        ("no-fragmentation", "noFragmentation=true"),
        ("no-no-fragmentation", ""),
        ("multistreaming=avoid", "multistreaming=Avoid"),
        ("congestion-control=no_preference", "congestionControl=No Preference"),
        ("connCapacityProfile=low-latency-interactive", "connCapacityProfile=Low Latency/Interactive"),
        ("conn_timeout=1500ms", "connTimeout=1.5 tcp.userTimeoutChangeable=false"),
        ("__he_delay=25", "_neater.attemptDelay=25"),
        ("isolated", "isolateSession=true"),
        ("receive-only", "direction=Unidirectional receive"),
        (" ,, ", ""),
    ] {
        assert_eq!(changes(text).join(" "), expected, "{text}");
    }
}

#[test]
fn security_is_stated_by_words() {
    let required = |minimum| Some(SecurityNeed::Required { minimum });
    assert_eq!(parse("reliable").security, None);
    assert_eq!(parse("encrypted").security, required(SecurityLevel::Tls12));
    assert_eq!(parse("tls13,encrypted").security, required(SecurityLevel::Tls13));
    assert_eq!(parse("cleartext cleartext").security, Some(SecurityNeed::Disabled));
    assert_eq!(parse("opportunistic").security, Some(SecurityNeed::Opportunistic));
    assert_eq!(error("encrypted,cleartext"), "'encrypted' and 'cleartext' ask for different things (security)");
}

#[test]
fn the_order_of_words_does_not_matter() {
    for (a, b) in [
        ("unreliable,ordered", "ordered,unreliable"),
        ("datagrams,congestionControl", "congestionControl,datagrams"),
        ("unreliable-datagram,ordered", "ordered,unreliable-datagram"),
        ("unreliable,unreliable-datagram", "unreliable-datagram,unreliable"),
        ("interface=eth0,reliable-message", "reliable-message,interface=eth0"),
        ("reliable,encrypted,low-delay", "low-delay,reliable,encrypted"),
    ] {
        assert_eq!(parse(a), parse(b), "{a}");
    }
    let p = parse("ordered,unreliable").properties;
    assert_eq!(p.preference(SelectionProperty::PreserveOrder, Role::Initiate), Preference::Require);
}

#[test]
fn the_first_example_gives_what_it_says() {
    let Parsed { properties, security } = parse("reliable,encrypted,low-delay");
    assert_eq!(properties.explicit_preference(SelectionProperty::Reliability), Some(Preference::Require));
    assert_eq!(properties.connection.capacity_profile, CapacityProfile::LowLatencyInteractive);
    assert_eq!(security, Some(SecurityNeed::Required { minimum: SecurityLevel::Tls12 }));
}

#[test]
fn words_that_ask_for_different_things_are_refused() {
    assert_eq!(error("reliable,unreliable"), "'reliable' and 'unreliable' ask for different things (reliability)");
    assert_eq!(error("bulk,low-delay"), "'bulk' and 'low-delay' ask for different things (connCapacityProfile)");
    assert_eq!(error("datagrams reliable"), "'datagrams' and 'reliable' ask for different things (reliability)");
    assert_eq!(
        error("reliable-message,unreliable-datagram"),
        "'reliable-message' and 'unreliable-datagram' ask for different things (profile)"
    );
}

#[test]
fn an_unknown_word_lists_what_looks_like_it() {
    assert_eq!(
        error("relable"),
        "'relable' is no property and no word for one; did you mean reliable, unreliable or replayable?"
    );
    assert_eq!(error("encripted"), "'encripted' is no property and no word for one; did you mean encrypted?");
    assert_eq!(error("xyzzy"), "'xyzzy' is no property and no word for one");
    assert_eq!(
        error("multisteaming=avoid"),
        "'multisteaming' is no property and no word for one; did you mean multistreaming?"
    );
}

#[test]
fn a_word_with_a_value_is_told_to_stand_alone() {
    assert_eq!(
        error("multistreaming,encrypted=no"),
        "'encrypted' is a word and takes no value: write 'encrypted', leave it out, or name the property that you mean"
    );
    assert!(error("unreliable-datagram=true").contains("takes no value"));
}

#[test]
fn a_wrong_value_says_what_is_taken() {
    assert_eq!(
        error("reliability=maybe"),
        "reliability takes Prohibit, Avoid, No Preference, Prefer or Require, not 'maybe'"
    );
    assert_eq!(error("connTimeout"), "connTimeout takes a positive number of seconds or Disabled, not 'true'");
    assert_eq!(error("canSend=true"), "canSend can be read but not set");
}

#[test]
fn interface_preferences_add_up() {
    let p = parse("interface=eth0,interface=avoid:wifi+prefer:wlan1,pvd=prefer:example.com").properties;
    assert_eq!(p.get("interface").unwrap().to_string(), "Require:eth0+Avoid:wifi+Prefer:wlan1");
    assert_eq!(p.get("pvd").unwrap().to_string(), "Prefer:example.com");
}

#[test]
fn long_texts_are_refused() {
    assert_eq!(TransportProperties::parse(&"reliable,".repeat(65)), Err(ParseError::TooLong));
    assert!(TransportProperties::parse(&"reliable,".repeat(64)).is_ok());
    assert_eq!(TransportProperties::parse(&" ".repeat(MAX_REQUEST_TEXT + 1)), Err(ParseError::TooLong));
}

#[test]
fn every_word_has_a_meaning_that_compiles() {
    for word in WORDS {
        let parsed = parse(word.word);
        assert!(parsed.properties.compile(Role::Initiate).is_ok(), "{}", word.word);
        assert!(parsed.security.is_some() || parsed.properties != TransportProperties::new(), "{}", word.word);
    }
    for (spelling, word) in SPELLINGS {
        assert_eq!(parse(spelling), parse(word));
    }
}

proptest! {
    #[test]
    fn any_text_gives_properties_or_an_error(text in "\\PC{0,80}") {
        let _ = TransportProperties::parse(&text);
    }

    #[test]
    fn any_mixture_of_words_and_values_gives_properties_or_an_error(
        picks in proptest::collection::vec((0usize..200, "[a-z0-9.:+=-]{0,12}"), 0..8),
    ) {
        let text: Vec<String> = picks
            .iter()
            .map(|(pick, junk)| match WORDS.get(*pick) {
                Some(word) => word.word.to_string(),
                None => format!("{}={junk}", PROPERTIES[pick % PROPERTIES.len()].name),
            })
            .collect();
        if let Ok(parsed) = TransportProperties::parse(&text.join(",")) {
            // Whatever was read can be written down property by property and read again.
            let mut again = TransportProperties::new();
            for (name, value) in parsed.properties.iter() {
                again.set_text(name, &value.to_string()).unwrap();
                prop_assert_eq!(again.get(name), Some(value));
            }
            let _ = parsed.properties.compile(Role::Initiate).map(|needs| needs.fingerprint());
        }
    }
}
