//! Decisions over the stacks that the engine will state, with the capability matrix derived from
//! RFC 8303 and RFC 8923.

use super::*;
use SecurityLevel::{None as Cleartext, Tls12, Tls13};
use neater_base::net::{Interface, InterfaceAddr, InterfaceKind};
use neater_property::{Needs, Preference, PropertySet, Role, SelectionProperty as P, TransportProperties};
use proptest::prelude::*;

const TCP_FEATURES: PropertySet = PropertySet::of(&[
    P::Reliability,
    P::PreserveOrder,
    P::FullChecksumSend,
    P::FullChecksumRecv,
    P::CongestionControl,
    P::SoftErrorNotify,
    P::ActiveReadBeforeSend,
]);
const TCP: StackFeatures = StackFeatures {
    id: 1,
    name: "TCP",
    provides: TCP_FEATURES,
    configurable: PropertySet::of(&[P::ZeroRttMsg, P::KeepAlive]),
    security: Cleartext,
    secure: false,
    bytes: true,
    messages: false,
    handshake_rtts: 1,
    duplicates: false,
    base_score: 0,
};
const TLS: StackFeatures =
    StackFeatures { id: 2, name: "TLS/TCP", security: Tls13, secure: true, handshake_rtts: 2, ..TCP };
const QUIC: StackFeatures = StackFeatures {
    id: 3,
    name: "QUIC",
    provides: PropertySet::of(&[
        P::Reliability,
        P::PreserveOrder,
        P::Multistreaming,
        P::FullChecksumSend,
        P::FullChecksumRecv,
        P::CongestionControl,
        P::SoftErrorNotify,
    ]),
    configurable: PropertySet::of(&[P::ZeroRttMsg, P::KeepAlive]),
    security: Tls13,
    secure: true,
    bytes: true,
    messages: false,
    handshake_rtts: 1,
    duplicates: false,
    base_score: 0,
};
const QUIC_DATAGRAM: StackFeatures = StackFeatures {
    id: 4,
    name: "QUIC datagrams",
    provides: PropertySet::of(&[
        P::PreserveMsgBoundaries,
        P::FullChecksumSend,
        P::FullChecksumRecv,
        P::CongestionControl,
        P::SoftErrorNotify,
    ]),
    configurable: PropertySet::of(&[P::ZeroRttMsg, P::KeepAlive]),
    security: Tls13,
    secure: true,
    bytes: false,
    messages: true,
    handshake_rtts: 1,
    duplicates: false,
    base_score: 0,
};
const UDP: StackFeatures = StackFeatures {
    id: 5,
    name: "UDP",
    provides: PropertySet::of(&[P::PreserveMsgBoundaries, P::ZeroRttMsg, P::SoftErrorNotify]),
    configurable: PropertySet::of(&[P::FullChecksumSend, P::FullChecksumRecv]),
    security: Cleartext,
    secure: false,
    bytes: false,
    messages: true,
    handshake_rtts: 0,
    duplicates: true,
    base_score: 0,
};
const STACKS: [StackFeatures; 5] = [TCP, TLS, QUIC, QUIC_DATAGRAM, UDP];
const SECURE: SecurityNeed = SecurityNeed::Required { minimum: Tls12 };

fn needs(words: &str) -> Needs {
    TransportProperties::parse(words).unwrap().properties.compile(Role::Initiate).unwrap()
}

fn ask(words: &str) -> Result<Request, NoCandidates> {
    let parsed = TransportProperties::parse(words).unwrap();
    let needs = parsed.properties.compile(Role::Initiate).unwrap();
    compile(&needs, parsed.security.unwrap_or_default(), false, &STACKS)
}

fn names(request: &Request) -> Vec<&'static str> {
    request.ranked.iter().map(|r| r.name).collect()
}

fn order(words: &str) -> Vec<&'static str> {
    names(&ask(words).unwrap())
}

#[test]
fn reliable_encrypted_and_low_delay_is_quic_and_then_tls() {
    let request = ask("reliable,encrypted,low-delay").unwrap();
    assert_eq!(
        explain(&request),
        [
            "Require: reliability",
            "Require by default: preserveOrder, fullChecksumSend, fullChecksumRecv, congestionControl",
            "Prefer by default: multistreaming, useTemporaryLocalAddress",
            "Security: required, TLS 1.2 or better",
            "Capacity profile: Low Latency/Interactive",
            "1. QUIC, score 10: multistreaming +10 (preferred by default), connCapacityProfile -10 (1 round trip before the \
             first byte), connCapacityProfile +10 (no head-of-line blocking between streams or messages)",
            "2. TLS/TCP, score -20: connCapacityProfile -20 (2 round trips before the first byte)",
            "-  TCP is ruled out by security (required, TCP is cleartext)",
            "-  QUIC datagrams is ruled out by reliability (required, QUIC datagrams has none) and preserveOrder (required by \
             default, QUIC datagrams has none)",
            "-  UDP is ruled out by reliability (required, UDP has none) and preserveOrder (required by default, UDP has none) \
             and congestionControl (required by default, UDP has none) and safelyReplayable (not stated, UDP may deliver a \
             message twice) and security (required, UDP is cleartext)",
        ]
    );
}

#[test]
fn the_defaults_with_security_are_quic_and_tls() {
    assert_eq!(order("encrypted"), ["QUIC", "TLS/TCP"]);
    assert_eq!(order("encrypted,multistreaming=avoid"), ["TLS/TCP", "QUIC"]);
    assert_eq!(order("encrypted,multistreaming=prohibit"), ["TLS/TCP"]);
    assert_eq!(order("encrypted,multistreaming"), ["QUIC"]);
}

#[test]
fn the_defaults_without_security_are_tcp() {
    assert_eq!(order("cleartext"), ["TCP"]);
    let request = ask("cleartext").unwrap();
    let quic = request.excluded.iter().find(|e| e.name == "QUIC").unwrap();
    assert_eq!(
        quic.to_string(),
        "QUIC is ruled out by security (disabled, QUIC always encrypts and needs a certificate)"
    );
}

#[test]
fn unreliable_datagrams_in_the_clear_are_udp() {
    assert_eq!(order("unreliable-datagram,cleartext"), ["UDP"]);
    assert_eq!(order("datagrams,encrypted"), ["QUIC datagrams"]);
    assert_eq!(order("datagrams,opportunistic"), ["QUIC datagrams", "UDP"]);
    assert_eq!(order("unreliable-datagram,cleartext,fullChecksumSend=prohibit"), ["UDP"]);
}

#[test]
fn udp_needs_messages_that_may_be_repeated() {
    let error = ask("unreliable-datagram,safelyReplayable=false,cleartext").unwrap_err();
    let udp = error.stacks.iter().find(|s| s.name == "UDP").unwrap();
    assert_eq!(udp.to_string(), "UDP is ruled out by safelyReplayable (not stated, UDP may deliver a message twice)");
}

#[test]
fn opportunistic_security_comes_before_every_preference() {
    assert_eq!(order("opportunistic"), ["QUIC", "TLS/TCP", "TCP"]);
    assert_eq!(order("opportunistic,activeReadBeforeSend=prefer,multistreaming=avoid"), ["TLS/TCP", "QUIC", "TCP"]);
}

#[test]
fn bulk_prefers_what_is_cheap_per_byte() {
    assert_eq!(order("bulk,encrypted"), ["TLS/TCP", "QUIC"]);
    assert_eq!(order("bulk,encrypted,multistreaming=prefer"), ["QUIC", "TLS/TCP"]);
}

#[test]
fn a_minimum_of_security_excludes_what_is_below() {
    let old = StackFeatures { id: 9, name: "old TLS", security: Tls12, ..TLS };
    let minimum =
        |minimum| compile(&needs(""), SecurityNeed::Required { minimum }, true, &[old, TLS, TCP]).map(|r| names(&r));
    assert_eq!(minimum(Tls12), Ok(vec!["TLS/TCP", "old TLS"]));
    assert_eq!(minimum(Tls13), Ok(vec!["TLS/TCP"]));
    assert_eq!(minimum(Cleartext), Ok(vec!["TLS/TCP", "old TLS"]), "any encryption, but not none");
    let error = compile(&needs(""), SecurityNeed::Required { minimum: Tls13 }, true, &[old]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no transport can do this: old TLS is ruled out by security (TLS 1.3 required, old TLS gives TLS 1.2 at best)"
    );
}

#[test]
fn boundaries_come_from_the_stack_or_from_a_framer() {
    let needs = needs("reliable-message");
    let with = |framer| compile_with(&needs, SECURE, Shape { bytes_needed: false, framer }, &STACKS).map(|r| names(&r));
    let error = with(false).unwrap_err();
    let tls = error.stacks.iter().find(|s| s.name == "TLS/TCP").unwrap();
    assert_eq!(
        tls.to_string(),
        "TLS/TCP is ruled out by preserveMsgBoundaries (required, TLS/TCP has none without a message framer)"
    );
    assert_eq!(with(true), Ok(vec!["QUIC", "TLS/TCP"]));
}

#[test]
fn a_byte_stream_excludes_what_carries_messages() {
    let needs = needs("unreliable,congestionControl=none,replayable");
    let names_of = |bytes| names(&compile(&needs, SecurityNeed::Disabled, bytes, &STACKS).unwrap());
    assert_eq!(names_of(false), ["UDP"]);
    assert_eq!(names_of(true), ["TCP"]);
}

#[test]
fn what_a_message_is_does_not_depend_on_the_candidate() {
    let ranked = |words: &str, framer| {
        let shape = Shape { bytes_needed: false, framer };
        compile_with(&needs(words), SECURE, shape, &STACKS).unwrap()
    };
    let unreliable = ranked("unreliable,low-delay", false);
    assert_eq!(names(&unreliable), ["QUIC datagrams"]);
    let tls = unreliable.excluded.iter().find(|e| e.name == "TLS/TCP").unwrap();
    assert_eq!(
        tls.to_string(),
        "TLS/TCP is ruled out by preserveMsgBoundaries (without a message framer TLS/TCP joins messages that QUIC datagrams \
         keeps apart: set a framer to have both)"
    );
    assert_eq!(names(&ranked("unreliable,low-delay", true)), ["QUIC datagrams", "QUIC", "TLS/TCP"]);
    // Defaults and taste do not decide between the kinds; what is stated does.
    let ignored = "reliability=none,preserveOrder=none";
    assert_eq!(names(&ranked(ignored, false)), ["QUIC datagrams"]);
    assert_eq!(names(&ranked("reliability=prefer,preserveOrder=none", false)), ["QUIC", "TLS/TCP"]);
    let joined = ranked(&format!("{ignored},preserveMsgBoundaries=avoid"), false);
    assert_eq!(names(&joined), ["QUIC", "TLS/TCP"]);
    let datagrams = joined.excluded.iter().find(|e| e.name == "QUIC datagrams").unwrap();
    assert!(datagrams.to_string().contains("keeps messages apart that QUIC joins"), "{datagrams}");
    assert_eq!(names(&ranked("", false)), ["QUIC", "TLS/TCP"], "a program of bytes has what it had");
    // Of a listener's connections each is what its client has made it.
    let listens = TransportProperties::parse("unreliable").unwrap().properties.compile(Role::Listen).unwrap();
    let shape = Shape::default();
    let all = compile_with(&listens, SECURE, shape, &STACKS).unwrap();
    assert_eq!(names(&all), ["QUIC datagrams", "QUIC", "TLS/TCP"]);
}

#[test]
fn a_stack_without_a_handshake_goes_last_and_says_why() {
    let shape = Shape { bytes_needed: false, framer: true };
    let words = "unreliable,congestionControl=none,replayable,low-delay";
    let framed = compile_with(&needs(words), SecurityNeed::Disabled, shape, &STACKS).unwrap();
    assert_eq!(names(&framed), ["TCP", "UDP"]);
    let line = |request: &Request| explain(request).into_iter().find(|l| l.contains(" UDP, score")).unwrap();
    assert!(line(&framed).contains("no handshake: chosen only if no peer answers one"), "{}", line(&framed));
    let alone = ask("unreliable-datagram,cleartext").unwrap();
    assert!(line(&alone).contains("no handshake: that the peer is there is not known"), "{}", line(&alone));
    // Success in the past does not bring it before one that asks.
    let history = [Outcome { stack: UDP.id, succeeded: true }; 100];
    let standing = framed.standing(&Facts { history: &history, ..Facts::default() });
    assert_eq!(standing[0].stack, TCP.id);
}

#[test]
fn the_error_names_every_stack_and_its_properties() {
    let error = compile(&needs("messages,reliable"), SecurityNeed::Disabled, false, &[TCP, UDP]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no transport can do this: TCP is ruled out by preserveMsgBoundaries (required, TCP has none without a message \
         framer); UDP is ruled out by reliability (required, UDP has none) and preserveOrder (required by default, UDP has none) and congestionControl \
         (required by default, UDP has none) and safelyReplayable (not stated, UDP may deliver a message twice)"
    );
    let nothing = compile(&needs(""), SECURE, true, &[]).unwrap_err();
    assert_eq!(nothing.to_string(), "no transport can do this: there is none");
}

#[test]
fn contradictions_are_found_before_any_stack_is_looked_at() {
    let parsed = TransportProperties::parse("reliability=prohibit,perMsgReliability=require").unwrap();
    let error = parsed.properties.compile(Role::Initiate).unwrap_err();
    assert_eq!(error.properties, ["reliability", "perMsgReliability"]);
    // Unlikely, but not contradictory: the stacks decide.
    let request = compile(&needs("reliable,congestionControl=prohibit"), SecurityNeed::Disabled, true, &STACKS);
    assert!(
        request
            .unwrap_err()
            .to_string()
            .contains("TCP is ruled out by congestionControl (prohibited, TCP always has it)")
    );
    let reckless =
        StackFeatures { id: 7, name: "reckless", configurable: PropertySet::of(&[P::CongestionControl]), ..TCP };
    let request =
        compile(&needs("reliable,congestionControl=prohibit"), SecurityNeed::Disabled, true, &[TCP, reckless]);
    assert_eq!(names(&request.unwrap()), ["reckless"]);
}

#[test]
fn what_is_stated_outweighs_what_is_default_and_prefer_outweighs_every_avoid() {
    let all_avoided = StackFeatures { id: 8, name: "everything", provides: PropertySet::ALL, messages: true, ..TCP };
    let plain = StackFeatures {
        id: 9,
        name: "nothing",
        provides: PropertySet::EMPTY,
        configurable: PropertySet::EMPTY,
        base_score: 1000,
        ..TCP
    };
    let mut p = TransportProperties::new();
    P::ALL.into_iter().for_each(|x| {
        p.avoid(x);
    });
    let first = |p: &TransportProperties| {
        names(
            &compile(&p.compile(Role::Initiate).unwrap(), SecurityNeed::Disabled, true, &[all_avoided, plain]).unwrap(),
        )[0]
    };
    assert_eq!(first(&p), "nothing");
    p.prefer(P::SoftErrorNotify);
    assert_eq!(first(&p), "everything");
}

#[test]
fn the_engines_own_order_decides_only_between_equals() {
    let loud = StackFeatures { base_score: i32::MAX, ..TLS };
    let ranked = |words: &str| names(&compile(&needs(words), SECURE, true, &[loud, QUIC]).unwrap());
    assert_eq!(ranked(""), ["TLS/TCP", "QUIC"]);
    assert_eq!(ranked("multistreaming=prefer"), ["QUIC", "TLS/TCP"]);
    let quiet = StackFeatures { base_score: i32::MIN, ..QUIC };
    assert_eq!(names(&compile(&needs(""), SECURE, true, &[TLS, quiet]).unwrap()), ["TLS/TCP", "QUIC"]);
}

#[test]
fn the_past_moves_stacks_but_never_against_the_program() {
    let failed = [Outcome { stack: QUIC.id, succeeded: false }; 1000];
    let facts = Facts { history: &failed, ..Facts::default() };
    let stacks = |request: &Request, facts: &Facts<'_>| -> Vec<u16> {
        request.standing(facts).iter().map(|s| s.stack).collect()
    };
    let request = ask("encrypted").unwrap();
    assert_eq!(stacks(&request, &Facts::default()), [QUIC.id, TLS.id]);
    assert_eq!(stacks(&request, &facts), [TLS.id, QUIC.id]);
    assert_eq!(request.standing(&facts)[1].score, 10 - 50);
    let stated = ask("encrypted,multistreaming=prefer").unwrap();
    assert_eq!(stacks(&stated, &facts), [QUIC.id, TLS.id]);
}

#[cfg(feature = "serde")]
#[test]
fn the_explanation_can_be_written_as_json() {
    let request = ask("reliable-message,cleartext").unwrap_err();
    assert_eq!(request.stacks.len(), STACKS.len());
    let request = ask("cleartext").unwrap();
    let json = serde_json::to_value(explanation(&request)).unwrap();
    assert_eq!(json["ranked"][0]["name"], "TCP");
    assert_eq!(json["security"], "disabled");
    assert_eq!(json["excluded"][0]["reasons"][0]["points"], serde_json::Value::Null);
    assert_eq!(json["properties"][0], serde_json::json!(["reliability", "Require", false]));
}

#[test]
fn equal_requests_have_equal_fingerprints_and_others_not() {
    let print = |words: &str| ask(words).unwrap().fingerprint;
    assert_eq!(print("reliable,encrypted"), print("encrypted,reliable"));
    let all = [print(""), print("tls13"), print("opportunistic"), print("cleartext"), print("bulk"), print("reliable")];
    let mut unique = all.to_vec();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), all.len());
    let framed = compile_with(&needs(""), SECURE, Shape { framer: true, bytes_needed: false }, &STACKS).unwrap();
    assert_ne!(framed.fingerprint, print("encrypted"));
}

fn interface(index: u32, name: &str, kind: InterfaceKind, temporary: bool) -> Interface {
    let addr =
        |addr: &str, temporary| InterfaceAddr { addr: addr.parse().unwrap(), prefix: 64, temporary, deprecated: false };
    let mut addrs = vec![addr("2001:db8::1", false)];
    addrs.extend(temporary.then(|| addr("2001:db8::abcd", true)));
    let default = kind != InterfaceKind::Loopback;
    Interface { index, name: name.into(), kind, up: true, addrs, mtu: 1500, default_v4: default, default_v6: default }
}

fn interfaces() -> Vec<Interface> {
    vec![
        interface(1, "lo", InterfaceKind::Loopback, false),
        interface(2, "eth0", InterfaceKind::Wired, false),
        interface(3, "wlan0", InterfaceKind::WiFi, true),
        interface(4, "wwan0", InterfaceKind::Cellular, true),
    ]
}

/// The interfaces in order, or the error.
fn paths(words: &str, interfaces: &[Interface]) -> String {
    match rank_paths(&needs(words), interfaces) {
        Ok(paths) => paths.iter().map(|p| p.name.clone()).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn paths_are_ranked_by_name_and_by_type() {
    let all = interfaces();
    assert_eq!(paths("", &all), "wlan0 wwan0 eth0 lo");
    assert_eq!(paths("interface=prefer:eth0", &all), "eth0 wlan0 wwan0 lo");
    assert_eq!(paths("interface=avoid:Wi-Fi", &all), "wwan0 eth0 lo wlan0");
    assert_eq!(paths("interface=prohibit:cellular,interface=prohibit:lo", &all), "wlan0 eth0");
    assert_eq!(paths("interface=require:wifi", &all), "wlan0");
    assert_eq!(paths("interface=require:wifi+require:wlan0", &all), "wlan0");
    assert_eq!(paths("useTemporaryLocalAddress=require", &all), "wlan0 wwan0");
    assert_eq!(paths("useTemporaryLocalAddress=no_preference", &all), "eth0 wlan0 wwan0 lo");
}

#[test]
fn a_path_that_cannot_be_had_is_an_error_that_names_the_property() {
    let all = interfaces();
    assert_eq!(
        paths("interface=require:eth7", &all[1..3]),
        "no interface can do this: eth0 is ruled out by interface (eth7 required); wlan0 is ruled out by interface (eth7 \
         required)"
    );
    assert_eq!(
        paths("interface=require:wired,useTemporaryLocalAddress=require", &all[1..2]),
        "no interface can do this: eth0 is ruled out by useTemporaryLocalAddress (required, eth0 has none)"
    );
    assert_eq!(
        paths("pvd=require:example.com", &all[..1]),
        "no interface can do this: lo is ruled out by pvd (example.com required, no provisioning domain is known: `neater pm` receives them)"
    );
    let mut down = all[1].clone();
    (down.up, down.addrs) = (false, vec![]);
    assert_eq!(
        paths("", &[down]),
        "no interface can do this: eth0 is ruled out by interface (eth0 is down) and interface (eth0 has no address)"
    );
    assert_eq!(paths("", &[]), "", "nothing is known of interfaces: the system chooses");
    assert_eq!(paths("interface=require:eth0", &[]), "no interface can do this: there is none");
}

#[test]
fn a_request_ranks_the_paths_of_its_needs() {
    let all = interfaces();
    let request = ask("encrypted,interface=require:eth0").unwrap();
    let facts = Facts { interfaces: &all, ..Facts::default() };
    assert_eq!(request.paths(&facts).unwrap().iter().map(|p| p.index).collect::<Vec<_>>(), [2]);
}

/// Some of all properties, `one_in` of them.
fn any_set(one_in: u32) -> impl Strategy<Value = PropertySet> {
    proptest::collection::vec(0..one_in, P::COUNT)
        .prop_map(|v| P::ALL.into_iter().zip(v).filter(|(_, n)| *n == 0).map(|(p, _)| p).collect())
}

fn any_stack() -> impl Strategy<Value = StackFeatures> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0u16..100, any_set(5), any_set(5), 0usize..3, flags, 0u8..5, any::<i32>()).prop_map(
        |(id, lacks, configurable, level, (secure, bytes, messages, duplicates), handshake_rtts, base_score)| {
            // Most of what is common, so that many stacks pass and the order is tested too.
            let provides = if lacks.len().is_multiple_of(2) { TCP_FEATURES } else { PropertySet::ALL } - lacks;
            let security = [Cleartext, Tls12, Tls13][level];
            StackFeatures {
                id,
                name: "some",
                provides,
                configurable,
                security,
                secure,
                bytes,
                messages,
                handshake_rtts,
                duplicates,
                base_score,
            }
        },
    )
}

fn any_needs() -> impl Strategy<Value = Option<Needs>> {
    (proptest::collection::vec(0usize..25, P::COUNT), 0usize..6, any::<bool>(), 0usize..3).prop_map(
        |(preferences, profile, replayable, role)| {
            let mut p = TransportProperties::new();
            for (property, preference) in P::ALL.into_iter().zip(preferences) {
                if let Some(preference) = Preference::ALL.get(preference) {
                    p.prefer_as(property, *preference);
                }
            }
            p.connection.capacity_profile = neater_property::CapacityProfile::ALL[profile];
            p.message.safely_replayable = replayable;
            p.compile([Role::Initiate, Role::Listen, Role::Rendezvous][role]).ok()
        },
    )
}

fn any_security() -> impl Strategy<Value = SecurityNeed> {
    prop_oneof![
        Just(SecurityNeed::Disabled),
        Just(SecurityNeed::Opportunistic),
        (0usize..3).prop_map(|i| SecurityNeed::Required { minimum: [Cleartext, Tls12, Tls13][i] }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn prop_no_ranked_stack_breaks_a_require_a_prohibit_or_security(
        needs in any_needs(), security in any_security(), bytes_needed in any::<bool>(), framer in any::<bool>(),
        stacks in proptest::collection::vec(any_stack(), 0..12),
    ) {
        let Some(needs) = needs else { return Ok(()) };
        // One stack, one number: as the engine has it.
        let mut stacks = stacks;
        stacks.sort_by_key(|s| s.id);
        stacks.dedup_by_key(|s| s.id);
        let decided = compile_with(&needs, security, Shape { bytes_needed, framer }, &stacks);
        let excluded = match &decided {
            Ok(request) => &request.excluded,
            Err(error) => &error.stacks,
        };
        for e in excluded {
            prop_assert!(!e.reasons.is_empty());
            prop_assert!(e.reasons.iter().all(|r| r.verdict == Verdict::Excludes && !r.property.is_empty()));
        }
        let ranked: &[Ranked] = decided.as_ref().map_or(&[], |r| &r.ranked);
        prop_assert_eq!(ranked.len() + excluded.len(), stacks.len());
        for r in ranked {
            let stack = stacks.iter().find(|s| s.id == r.stack).unwrap();
            for p in P::ALL.into_iter().filter(|p| *p != P::UseTemporaryLocalAddress) {
                let boundaries = p == P::PreserveMsgBoundaries;
                let framed = boundaries && framer && stack.bytes && !stack.messages;
                let either = stack.configurable.contains(p) || framed;
                let has = stack.provides.contains(p) || (boundaries && stack.messages);
                prop_assert!(!needs.require.contains(p) || has || either, "{} required", p);
                prop_assert!(!needs.prohibit.contains(p) || !has || either, "{} prohibited", p);
            }
            prop_assert!(!stack.duplicates || needs.message.safely_replayable);
            prop_assert!(stack.bytes || !bytes_needed);
            match security {
                SecurityNeed::Required { minimum } => prop_assert!(stack.secure && stack.security >= minimum),
                SecurityNeed::Disabled => prop_assert!(!stack.secure),
                SecurityNeed::Opportunistic => {}
            }
            prop_assert_eq!(r.score, r.reasons.iter().map(|r| r.verdict.points()).sum::<i32>());
        }
        prop_assert!(ranked.windows(2).all(|w| w[0].score >= w[1].score));

        // The order in which stacks are given does not matter.
        stacks.reverse();
        prop_assert_eq!(compile_with(&needs, security, Shape { bytes_needed, framer }, &stacks), decided);
    }
}
