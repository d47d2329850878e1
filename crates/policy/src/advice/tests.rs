//! Advice by examples, and against the rules that no policy may break.

use super::*;
use crate::stack::StackFeatures;
use neater_base::Rng;
use neater_base::net::{InterfaceAddr, InterfaceKind, SocketOption};
use neater_property::neat::NeatProperty;
use neater_property::{Needs, PropertySet, Role, SecurityLevel, SelectionProperty as P, TransportProperties};
use serde_json::json;
use std::time::Duration;

const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));
const TLS: u16 = 1;
const QUIC: u16 = 2;
const TCP: u16 = 0;

fn stack(id: u16, name: &'static str, transport: &'static str, secure: bool) -> Named {
    let features = StackFeatures {
        id,
        name,
        provides: PropertySet::EMPTY.with(P::Reliability),
        configurable: PropertySet::EMPTY,
        security: if secure { SecurityLevel::Tls13 } else { SecurityLevel::None },
        secure,
        bytes: true,
        messages: false,
        handshake_rtts: 1,
        duplicates: false,
        base_score: 0,
    };
    Named { features, transport }
}

fn web() -> Vec<Named> {
    vec![stack(QUIC, "QUIC", "QUIC", true), stack(TLS, "TLS/TCP", "TCP", true)]
}

fn needs(words: &str) -> Needs {
    TransportProperties::parse(words).unwrap().properties.compile(Role::Initiate).unwrap()
}

fn interface(index: u32, name: &str, kind: InterfaceKind, addrs: &[&str]) -> Interface {
    let addr = |a: &&str| InterfaceAddr { addr: a.parse().unwrap(), prefix: 24, temporary: false, deprecated: false };
    let default_v4 = kind != InterfaceKind::Loopback;
    let addrs = addrs.iter().map(addr).collect();
    Interface { index, name: name.into(), kind, up: true, addrs, mtu: 1500, default_v4, default_v6: false }
}

fn two() -> Vec<Interface> {
    vec![
        interface(1, "lo", InterfaceKind::Loopback, &["127.0.0.1", "::1"]),
        interface(2, "eth0", InterfaceKind::Wired, &["192.0.2.1"]),
        interface(3, "wwan0", InterfaceKind::Cellular, &["198.51.100.1", "198.51.100.2"]),
    ]
}

fn adviser(files: &[(&str, serde_json::Value)]) -> Adviser {
    let mut adviser = Adviser::new();
    let texts: Vec<(String, String)> = files.iter().map(|(n, j)| (n.to_string(), j.to_string())).collect();
    let sources: Vec<SourceFile<'_>> = texts.iter().map(|(name, text)| SourceFile { name, text }).collect();
    let report = adviser.load(&sources, &sources, NOW);
    let wrong: Vec<_> = report.faults.iter().filter(|f| !f.harmless).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    adviser.set_interfaces(&two(), NOW);
    adviser
}

/// The ways in order: interface, address, stacks.
fn ways(adviser: &mut Adviser, stacks: &[Named], host: &str) -> Result<Vec<String>, String> {
    let needs = needs("");
    let ask =
        Ask { needs: &needs, stacks, app: "test", host: Some(host), addr: None, port: 443, extra: &[], bound: &[] };
    told(adviser, &ask)
}

fn told(adviser: &mut Adviser, ask: &Ask<'_>) -> Result<Vec<String>, String> {
    let advice = adviser.advise(ask, 0, NOW).map_err(|e| e.to_string())?;
    let way = |p: &AdvisedPath| {
        let stacks: Vec<String> = p.picks.iter().map(|p| p.stack.to_string()).collect();
        let local = p.local.map_or("-".into(), |l| l.to_string());
        format!("{} {local} {}", p.interface.unwrap_or_default(), stacks.join(","))
    };
    let mut ways: Vec<String> = advice.paths.iter().map(way).collect();
    if advice.is_neutral() {
        ways.push("neutral".into());
    }
    Ok(ways)
}

fn rule(wanted: serde_json::Value, properties: serde_json::Value) -> serde_json::Value {
    json!({"uid": "rule", "match": wanted, "properties": properties})
}

#[test]
fn without_policies_nothing_changes() {
    assert_eq!(ways(&mut adviser(&[]), &web(), "example.com").unwrap(), ["0 - 2,1", "neutral"]);
}

#[test]
fn a_score_for_one_host_changes_the_order_there_alone() {
    let policy = rule(
        json!({"domain_name": {"value": "example.com"}, "transport": {"value": "TCP"}}),
        json!({"transport": {"value": "TCP", "score": 10}}),
    );
    let mut adviser = adviser(&[("tcp.policy", policy)]);
    assert_eq!(ways(&mut adviser, &web(), "Example.com.").unwrap(), ["0 - 1,2"]);
    assert_eq!(ways(&mut adviser, &web(), "example.org").unwrap(), ["0 - 2,1", "neutral"]);
}

#[test]
fn what_is_denied_on_one_interface_is_tried_on_the_other() {
    let policy = rule(json!({"transport": {"value": "QUIC"}, "interface": {"value": "eth0"}}), json!([[]]));
    let mut adviser = adviser(&[("no-quic.policy", policy)]);
    assert_eq!(ways(&mut adviser, &web(), "example.com").unwrap(), ["2 - 1", "3 - 2,1"]);
    assert_eq!(ways(&mut adviser, &web(), "localhost").unwrap(), ["0 - 2,1", "neutral"], "that goes by lo");
}

#[test]
fn the_loopback_has_policies_of_its_own() {
    let policy = rule(json!({"transport": {"value": "QUIC"}, "link_type": {"value": "loopback"}}), json!([[]]));
    let mut adviser = adviser(&[("no-quic.policy", policy)]);
    assert_eq!(ways(&mut adviser, &web(), "localhost").unwrap(), ["0 - 1"]);
    assert_eq!(ways(&mut adviser, &web(), "example.com").unwrap(), ["0 - 2,1", "neutral"]);
}

#[test]
fn an_interface_may_be_forbidden_and_an_address_preferred() {
    let no_mobile = rule(json!({"link_type": {"value": "cellular"}}), json!([[]]));
    assert_eq!(ways(&mut adviser(&[("a.policy", no_mobile)]), &web(), "h").unwrap(), ["2 - 2,1"]);
    let second = rule(
        json!({"local_ip": {"value": "198.51.100.2"}}),
        json!({"local_ip": {"value": "198.51.100.2", "score": 5}}),
    );
    let expected = ["3 198.51.100.2 2,1", "2 - 2,1", "3 198.51.100.1 2,1"];
    assert_eq!(ways(&mut adviser(&[("a.policy", second)]), &web(), "h").unwrap(), expected);
}

#[test]
fn who_denies_everything_is_named() {
    let policy = rule(json!({"domain_name": {"value": "bad.example"}}), json!([[]]));
    let mut adviser = adviser(&[("no.policy", policy)]);
    let why = ways(&mut adviser, &web(), "bad.example").unwrap_err();
    assert_eq!(why, "the policies leave no transport and no interface for bad.example:443: denied by policy rule");
    // Each interface by itself, too: what is left without a row is not what was meant.
    let policy = rule(json!({"interface": {"value": null}}), json!([[]]));
    assert!(ways(&mut self::adviser(&[("no.policy", policy)]), &web(), "h").is_err());
}

#[test]
fn no_policy_brings_back_what_the_needs_have_ruled_out() {
    let clear = rule(
        json!({}),
        json!({"transport": {"value": "TCP", "precedence": 2, "score": 50},
        "security": {"value": false, "precedence": 2, "score": 50}}),
    );
    let mut adviser = adviser(&[("clear.policy", clear)]);
    let why = ways(&mut adviser, &web(), "example.com").unwrap_err();
    assert!(why.starts_with("the policies leave no transport"), "{why}");
    let all = [web(), vec![stack(TCP, "TCP", "TCP", false)]].concat();
    assert_eq!(ways(&mut adviser, &all, "example.com").unwrap(), ["0 - 0"], "where the program allows it, it may");
}

#[test]
fn profiles_may_make_keys_immutable_that_rows_do_not_have() {
    let profile = rule(json!({}), json!({"dscp": {"value": 8, "precedence": 2}}));
    let mut adviser = adviser(&[("a.profile", profile)]);
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap(), ["0 - 2,1"]);
    let ask_needs = needs("");
    let extra = [NeatProperty::new("profile", "confidential")];
    let stacks = web();
    let ask = Ask {
        needs: &ask_needs,
        stacks: &stacks,
        app: "",
        host: Some("h"),
        addr: None,
        port: 1,
        extra: &extra,
        bound: &[],
    };
    assert_eq!(
        told(&mut self::adviser(&[]), &ask).unwrap(),
        ["0 - 2,1", "neutral"],
        "the ready-made one leads somewhere"
    );
}

#[test]
fn options_reach_the_sockets_that_have_them() {
    let policy = rule(
        json!({}),
        json!({"dscp": {"value": 10}, "so/IPPROTO_TCP/TCP_NODELAY": {"value": 1},
        "so/SOL_SOCKET/SO_LINGER": {"value": 1}}),
    );
    let mut adviser = adviser(&[("a.policy", policy)]);
    let (needs, stacks) = (needs(""), web());
    let ask =
        Ask { needs: &needs, stacks: &stacks, app: "", host: Some("h"), addr: None, port: 1, extra: &[], bound: &[] };
    let advice = adviser.advise(&ask, 0, NOW).unwrap();
    let options: Vec<&[SocketOption]> = advice.paths[0].picks.iter().map(|p| &*p.options).collect();
    let both = [SocketOption::Dscp(10), SocketOption::NoDelay(true)];
    assert_eq!(options, [&both[..1], &both[..]]);
    let lines = adviser.explain(&ask, NOW).unwrap().lines(&|place| Some(format!("{}.policy:3", place.uid)));
    let all = lines.join("\n");
    assert!(all.contains("so/sol_socket/so_linger = 1 has no effect: neater does not set"), "{all}");
    assert!(all.contains("policy rule (rule.policy:3): dscp = 10"), "{all}");
}

#[test]
fn a_policy_may_require_what_programs_may_require() {
    let policy = rule(json!({}), json!({"multistreaming": {"value": true, "precedence": 2}}));
    let mut stacks = web();
    stacks[0].features.provides.insert(P::Multistreaming);
    let mut adviser = adviser(&[("a.policy", policy)]);
    assert_eq!(ways(&mut adviser, &stacks, "h").unwrap(), ["0 - 2"]);
    let (needs, ask_stacks) = (needs(""), stacks);
    let ask = Ask {
        needs: &needs,
        stacks: &ask_stacks,
        app: "",
        host: Some("h"),
        addr: None,
        port: 1,
        extra: &[],
        bound: &[],
    };
    let lines = adviser.explain(&ask, NOW).unwrap().lines(&|_| None).join("\n");
    assert!(lines.contains("a policy requires multistreaming, which TLS/TCP does not have"), "{lines}");
}

#[test]
fn facts_of_a_node_that_links_count_for_the_interface() {
    let hotspot = json!({"uid": "hotspot", "link": true, "expire": -1, "match": [{"interface": {"value": "eth0"}}],
        "properties": {"metered": {"value": true}}});
    let policy = rule(json!({"metered": {"value": true}}), json!({"metered": {"value": true, "score": -10}}));
    let mut adviser = adviser(&[("a.policy", policy), ("hotspot.cib", hotspot)]);
    // The cable's own fact stands nearer the root: it is a cable, and not metered.
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap(), ["2 - 2,1", "3 - 2,1"]);
    let modem = json!({"uid": "modem", "root": true, "expire": -1,
        "properties": {"interface": {"value": "wwan0", "precedence": 2}, "mode": {"value": "4G"}, "quality_indicator": {"value": 2}}});
    let mut adviser = self::adviser(&[("modem.cib", modem)]);
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap(), ["3 - 2,1", "2 - 2,1"], "30 points for quality");
}

#[test]
fn advice_follows_interfaces_and_time() {
    let mut file = json!({"uid": "modem", "link": true, "match": [{"interface": {"value": "wwan0"}}],
        "properties": {"mode": {"value": "4G"}, "quality_indicator": {"value": 2}}});
    file["expire"] = json!(NOW.0.as_secs() + 60);
    let mut adviser = adviser(&[("modem.cib", file)]);
    let (needs, stacks) = (needs(""), web());
    let ask =
        Ask { needs: &needs, stacks: &stacks, app: "", host: Some("h"), addr: None, port: 1, extra: &[], bound: &[] };
    let first = |adviser: &mut Adviser, at: u64| {
        let now = WallTime(NOW.0 + Duration::from_secs(at));
        adviser.advise(&ask, 7, now).unwrap().paths[0].interface
    };
    assert_eq!(first(&mut adviser, 0), Some(3));
    assert_eq!(first(&mut adviser, 61), None, "the fact has ended");
    let mut adviser = self::adviser(&[]);
    let policy = rule(json!({"interface": {"value": "eth0"}}), json!({"interface": {"value": "eth0", "score": 1}}));
    adviser
        .manager_mut()
        .insert_rule(crate::manager::Stage::Policy, crate::manager::Rule::from_json(policy, "", "").unwrap().0);
    assert_eq!(first(&mut adviser, 0), Some(2));
    let mut interfaces = two();
    interfaces[1].up = false;
    adviser.set_interfaces(&interfaces, NOW);
    assert_eq!(first(&mut adviser, 0), None);
}

/// Whatever the rules, advice has eligible stacks and usable interfaces only, and none of them
/// twice by one way.
#[test]
fn random_rules_lead_to_nothing_that_was_not_asked_for() {
    let mut rng = Rng::from_number(11);
    let (mut changed, mut denied) = (0, 0);
    for _ in 0..400 {
        let mut pick = |list: &[&str]| list[rng.below(list.len() as u64) as usize].to_string();
        let mut files = Vec::new();
        for i in 0..4 {
            let wanted = match &*pick(&["any", "transport", "interface", "security", "host"]) {
                "transport" => json!({"transport": {"value": pick(&["TCP", "QUIC", "SCTP"])}}),
                "interface" => json!({"interface": {"value": pick(&["eth0", "wwan0", "lo"])}}),
                "security" => json!({"security": {"value": true}}),
                "host" => json!({"domain_name": {"value": "h"}}),
                _ => json!({}),
            };
            let precedence = if pick(&["1", "2"]) == "2" { 2 } else { 1 };
            let score: i64 = pick(&["0", "3", "-3"]).parse().unwrap();
            let properties = match &*pick(&["deny", "transport", "security", "interface", "remote_ip"]) {
                "deny" => json!([[]]),
                "transport" => {
                    json!({"transport": {"value": pick(&["TCP", "TLS", "SCTP", "UDP"]), "score": score, "precedence": precedence}})
                }
                "security" => {
                    json!({"security": {"value": pick(&["", "x"]).is_empty(), "score": score, "precedence": precedence}})
                }
                "interface" => json!({"interface": {"value": pick(&["eth0", "tun9"]), "score": score}}),
                _ => json!({"remote_ip": {"value": "203.0.113.1", "score": score}}),
            };
            let mut rule = rule(wanted, properties);
            rule["uid"] = json!(format!("r{i}"));
            rule["replace_matched"] = json!(pick(&["t", "f"]) == "t");
            files.push((["a.policy", "b.policy", "c.profile", "d.policy"][i], rule));
        }
        let mut adviser = adviser(&files);
        match ways(&mut adviser, &web(), "h") {
            Ok(ways) if ways.last().is_some_and(|w| w == "neutral") => {}
            Ok(ways) => {
                changed += 1;
                let mut seen = std::collections::BTreeSet::new();
                for way in &ways {
                    let parts: Vec<&str> = way.split(' ').collect();
                    assert!(["0", "2", "3"].contains(&parts[0]), "{ways:?}");
                    for stack in parts[2].split(',') {
                        assert!(["1", "2"].contains(&stack), "{ways:?} in {files:?}");
                        assert!(seen.insert((parts[0], parts[1], stack)), "{ways:?} twice");
                    }
                }
            }
            Err(_) => denied += 1,
        }
    }
    assert!(changed > 40 && denied > 10, "{changed} {denied}");
}

#[test]
fn a_choice_follows_what_connections_have_seen_of_the_same_end() {
    let quick = rule(
        json!({"measured_rtt": {"value": {"start": 0, "end": 50}}}),
        json!({"measured_rtt": {"value": null, "score": 5}}),
    );
    let mut adviser = adviser(&[("quick.policy", quick)]);
    assert!(adviser.heeds_measurements());
    let seen = |ms: u64| Seen { rtt: Some(Duration::from_millis(ms)), ..Seen::default() };
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap(), ["0 - 2,1", "neutral"], "nothing was seen");
    adviser.learn("eth0", Some("h"), None, &seen(120), NOW);
    adviser.learn("wwan0", Some("H."), None, &seen(30), NOW);
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap()[0], "3 - 2,1");
    assert_eq!(ways(&mut adviser, &web(), "other").unwrap(), ["0 - 2,1", "neutral"], "of another end");
    adviser.learn("eth0", Some("h"), None, &seen(10), NOW);
    adviser.learn("wwan0", Some("h"), None, &seen(300), NOW);
    assert_eq!(ways(&mut adviser, &web(), "h").unwrap()[0], "2 - 2,1", "the networks have changed");
    // With a number, advice is remembered until a fact ends.
    let needs = needs("");
    let ask = Ask {
        needs: &needs,
        stacks: &web(),
        app: "test",
        host: Some("h"),
        addr: None,
        port: 443,
        extra: &[],
        bound: &[],
    };
    let first = |adviser: &mut Adviser, after: u64| {
        let now = WallTime(NOW.0 + Duration::from_secs(after));
        adviser.advise(&ask, 7, now).unwrap().paths[0].interface
    };
    assert_eq!((first(&mut adviser, 0), first(&mut adviser, 599)), (Some(2), Some(2)));
    assert_eq!(first(&mut adviser, 601), None, "what was seen counts no more");
    adviser.learn("wwan0", Some("h"), None, &seen(20), WallTime(NOW.0 + Duration::from_secs(700)));
    assert_eq!(first(&mut adviser, 700), Some(3));
}

#[test]
fn what_a_manager_tells_and_files_say_cover_each_other_and_what_is_ready_made() {
    let rule = |who: &str| {
        let json = json!({"uid": "confidential", "description": who, "match": {}, "properties": {}});
        (json.to_string(), Rule::from_json(json, "", "").unwrap().0)
    };
    let mut adviser = Adviser::new();
    let told = |tell: bool| {
        let profiles = if tell { vec![rule("manager").1] } else { Vec::new() };
        Tables { profiles, ..Tables::default() }
    };
    let file = |adviser: &mut Adviser, there: bool| {
        let (text, _) = rule("file");
        let files = [SourceFile { name: "a.profile", text: &text }];
        adviser.load(&files[..usize::from(there)], &[], NOW);
    };
    let who = |adviser: &Adviser| {
        let text = adviser.manager().profiles().get("confidential").map_or("none", |r| &r.description);
        text.split(' ').next().unwrap().to_owned()
    };
    for _ in 0..2 {
        assert_eq!(who(&adviser), "Only", "the ready-made one");
        adviser.share(told(true), NOW);
        assert_eq!(who(&adviser), "manager");
        file(&mut adviser, true);
        assert_eq!(who(&adviser), "file");
        file(&mut adviser, false);
        assert_eq!(who(&adviser), "manager", "the user's file goes, the administrator's rule stays");
        file(&mut adviser, true);
        adviser.share(told(false), NOW);
        assert_eq!(who(&adviser), "file");
        adviser.share(told(true), NOW);
        assert_eq!(who(&adviser), "file");
        adviser.share(told(false), NOW);
        file(&mut adviser, false);
    }
}

#[test]
fn nobody_looks_where_no_policy_wants_to_know() {
    let plain = rule(json!({"transport": {"value": "TCP"}}), json!({"transport": {"value": "TCP", "score": 1}}));
    let mut adviser = adviser(&[("a.policy", plain)]);
    assert!(!adviser.heeds_measurements());
    ways(&mut adviser, &web(), "h").unwrap();
    assert!(!adviser.heeds_measurements(), "the ready-made ones are for profiles that nobody asked for");
    let wanting = json!({"uid": "w", "match": {"Measured_Rate": {"value": null}}, "properties": {}});
    adviser.manager_mut().insert_rule(Stage::Policy, Rule::from_json(wanting, "", "").unwrap().0);
    assert!(adviser.heeds_measurements());
}

#[test]
fn where_too_many_names_were_asked_for_any_may_be() {
    let wanting =
        json!({"uid": "w", "match": {"later": {"value": 1}, "measured_rtt": {"value": null}}, "properties": {}});
    let mut adviser = adviser(&[("w.policy", wanting)]);
    let asked =
        |name: String| Requests::from_arrays([[(name.clone(), NeatProperty::new(&name, 1.0))].into_iter().collect()]);
    adviser.notice(&asked("first".into()));
    assert!(!adviser.heeds_measurements());
    (0..MAX_ASKED).for_each(|i| adviser.notice(&asked(format!("k{i}"))));
    adviser.notice(&asked("later".into()));
    assert!(adviser.heeds_measurements(), "it was asked for, though it is not remembered");
}

/// The first way of a connection with this profile, where one may ask for it.
fn of_profile(adviser: &mut Adviser, profile: &str) -> String {
    let needs = needs("");
    let extra = [NeatProperty::new("profile", profile)];
    let stacks = [stack(TCP, "TCP", "TCP", false)];
    let ask = Ask {
        needs: &needs,
        stacks: &stacks,
        app: "",
        host: Some("h"),
        addr: None,
        port: 443,
        extra: &extra,
        bound: &[],
    };
    told(adviser, &ask).unwrap().remove(0)
}

#[test]
fn ready_made_policies_heed_what_connections_have_seen() {
    let mut adviser = adviser(&[]);
    assert_eq!(of_profile(&mut adviser, "low-latency"), "2 - 0", "the cable");
    assert!(adviser.heeds_measurements(), "such connections are looked at from now on");
    let seen = |ms: u64, mbit: f64| Seen { rtt: Some(Duration::from_millis(ms)), rate: Some(mbit * 1e6), loss: None };
    adviser.learn("eth0", Some("h"), None, &seen(120, 80.0), NOW);
    adviser.learn("wwan0", Some("h"), None, &seen(30, 20.0), NOW);
    assert_eq!(of_profile(&mut adviser, "low-latency"), "3 - 0", "30 ms");
    assert_eq!(of_profile(&mut adviser, "bulk"), "2 - 0", "80 Mbit/s");
    adviser.learn("eth0", Some("h"), None, &seen(20, 8.0), NOW);
    adviser.learn("wwan0", Some("h"), None, &seen(90, 200.0), NOW);
    assert_eq!(of_profile(&mut adviser, "low-latency"), "2 - 0");
}

#[test]
fn ready_made_policies_heed_what_networks_say_of_themselves() {
    let with = |latency: u32, capacity: f64| {
        let document = json!({"identifier": "home.example", "expires": "2099-01-01T00:00:00Z",
            "prefixes": ["2001:db8::/64"], "vendor-neater": {"latency": latency, "capacity": capacity}});
        let said = crate::pvd::Information::parse("home.example", document.to_string().as_bytes(), NOW).unwrap();
        domains_of(said.properties)
    };
    let home = "2 2001:db8::1 0";
    assert_eq!(of_profile(&mut with(20, 1e6), "low-latency"), home);
    assert_eq!(of_profile(&mut with(90, 1e8), "bulk"), home);
    assert_ne!(of_profile(&mut with(90, 1e6), "bulk"), home);
}

/// The interfaces of [`two`], where the network of eth0 has two domains and that of wwan0 none.
fn domains() -> Adviser {
    domains_of(Vec::new())
}

/// The same, where home.example has a document.
fn domains_of(said: Vec<NeatProperty>) -> Adviser {
    use crate::pvd::Provisioned;
    use crate::rows::network_nodes;
    let mut all = two();
    all[1].addrs.extend(interface(2, "", InterfaceKind::Wired, &["2001:db8::1", "2001:db8:1::1"]).addrs);
    all[1].default_v6 = true;
    let domain = |id: &str, addr: &str| Provisioned {
        id: id.into(),
        interface: "eth0".into(),
        addrs: vec![addr.parse().unwrap()],
        properties: [NeatProperty::new("pvd", id).with_precedence(NeatProperty::IMMUTABLE)]
            .into_iter()
            .chain(said.iter().filter(|_| id == "home.example").cloned())
            .collect(),
        expires: WallTime(NOW.0 + Duration::from_secs(1800)),
    };
    let told = [domain("home.example", "2001:db8::1"), domain("garden.example", "2001:db8:1::1")];
    let nodes = network_nodes(&all, &told).into_iter().filter(|n| n.uid.starts_with("pvd-")).collect();
    let mut adviser = Adviser::new();
    adviser.set_interfaces(&all, NOW);
    adviser.share(Tables { nodes, ..Tables::default() }, NOW);
    adviser
}

#[test]
fn a_provisioning_domain_that_is_wished_for_is_the_one_that_is_used() {
    let stacks = [stack(TCP, "TCP", "TCP", false)];
    let mut adviser = domains();
    let mut of = |words: &str, addr: Option<&str>| {
        let needs = needs(words);
        let addr = addr.map(|a| a.parse().unwrap());
        let host = addr.is_none().then_some("server.example");
        told(
            &mut adviser,
            &Ask { needs: &needs, stacks: &stacks, app: "", host, addr, port: 443, extra: &[], bound: &[] },
        )
    };
    let ways = |all: &[&str]| Ok(all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (home, garden) = ("2 2001:db8::1 0", "2 2001:db8:1::1 0");
    assert_eq!(of("", None), ways(&["0 - 0", "neutral"]), "nobody says anything");
    for name in ["home.example", "HOME.example."] {
        assert_eq!(of(&format!("pvd=require:{name}"), None), ways(&[home]), "{name}");
    }
    assert_eq!(of("pvd=require:garden.example", Some("2001:db8:9::1")), ways(&[garden]));
    let why = of("pvd=require:garden.example", Some("203.0.113.7")).unwrap_err();
    assert!(why.contains("the provisioning domain garden.example is required"), "{why}");
    assert!(of("pvd=require:far.example", None).is_err());
    // What is preferred comes first, and the rest goes on to serve.
    let preferred = of("pvd=prefer:garden.example", None).unwrap();
    assert_eq!(preferred.first().map(String::as_str), Some(garden));
    assert!(preferred.len() > 1, "{preferred:?}");
    assert_eq!(of("pvd=prefer:far.example", None), ways(&["0 - 0", "neutral"]));
    let avoided = of("pvd=avoid:garden.example", None).unwrap();
    assert_eq!(avoided.last().map(String::as_str), Some(garden));
    let prohibited = of("pvd=prohibit:garden.example", None).unwrap();
    assert!(!prohibited.iter().any(|way| way == garden || way.starts_with("0 ") || way == "2 - 0"), "{prohibited:?}");
    assert!(prohibited.iter().any(|way| way == home), "{prohibited:?}");
    // Addresses that no network names a domain for are of the interface's own.
    assert_eq!(of("pvd=require:wwan0", None), ways(&["3 - 0"]));
    assert_eq!(of("pvd=require:eth0", None), ways(&["2 192.0.2.1 0"]));
}

#[test]
fn policies_see_which_domain_is_wished_for_and_cannot_bring_in_another() {
    let stacks = [stack(TCP, "TCP", "TCP", false)];
    let mut adviser = domains();
    let deny = json!({"uid": "deny", "match": {"pvd_required": {"value": "home.example"}}, "properties": [[]]});
    let lie = json!({"uid": "lie", "match": {}, "properties": {"pvd": {"value": "far.example", "precedence": 2}}});
    adviser.manager_mut().insert_rule(Stage::Policy, Rule::from_json(deny, "", "").unwrap().0);
    let mut of = |words: &str| {
        let needs = needs(words);
        let host = Some("server.example");
        told(
            &mut adviser,
            &Ask { needs: &needs, stacks: &stacks, app: "", host, addr: None, port: 443, extra: &[], bound: &[] },
        )
    };
    let why = of("pvd=require:home.example").unwrap_err();
    assert!(why.contains("deny"), "{why}");
    assert!(of("pvd=require:garden.example").is_ok());
    adviser.manager_mut().insert_rule(Stage::Profile, Rule::from_json(lie, "", "").unwrap().0);
    let needs = needs("pvd=require:home.example");
    let ask =
        Ask { needs: &needs, stacks: &stacks, app: "", host: Some("h"), addr: None, port: 443, extra: &[], bound: &[] };
    assert!(told(&mut adviser, &ask).is_err());
}

#[test]
fn a_node_that_is_called_like_a_row_of_an_interface_is_somebodys() {
    let node = |uid: &str| json!({"uid": uid, "root": true, "expire": -1, "properties": {"x": {"value": 1}}});
    let mut adviser = adviser(&[("a.cib", node("interface-of-mine")), ("b.cib", node("measured-eth0"))]);
    let mut all = two();
    all[1].up = false;
    adviser.set_interfaces(&all, NOW);
    adviser.set_interfaces(&two(), NOW);
    let seen = Seen { rtt: Some(Duration::from_millis(9)), ..Seen::default() };
    let heeding = json!({"uid": "heeds", "match": {"measured_rtt": {"value": 1}}, "properties": {}});
    adviser.manager_mut().insert_rule(Stage::Policy, Rule::from_json(heeding, "", "").unwrap().0);
    adviser.learn("eth0", Some("h"), None, &seen, NOW);
    ways(&mut adviser, &web(), "h").unwrap();
    ways(&mut adviser, &web(), "other").unwrap();
    for uid in ["interface-of-mine", "measured-eth0"] {
        let held = adviser.manager().cib().get(uid);
        assert!(held.is_some_and(|n| n.alternatives[0].get("x").is_some()), "{uid}");
    }
}

/// No tables of bare interfaces: one with a link-local address only, which leads nowhere by itself,
/// and no default route.
fn three() -> Vec<Interface> {
    let mut all = two();
    all[2].default_v4 = false;
    all.push(interface(4, "eth1", InterfaceKind::Wired, &["fe80::4"]));
    all[3].default_v4 = false;
    all
}

#[test]
fn what_a_profile_makes_immutable_hides_no_interface_from_those_who_deny_it() {
    let immutable = rule(json!({}), json!({"dscp": {"value": 8, "precedence": 2}}));
    let mut deny = rule(json!({"interface": {"value": "wwan0"}}), json!([[]]));
    deny["uid"] = json!("deny");
    let mut all = vec![("a.profile", immutable), ("deny.policy", deny.clone())];
    assert_eq!(ways(&mut adviser(&all), &web(), "h").unwrap(), ["2 - 2,1"]);
    // And where all are denied, nothing is left.
    deny["match"] = json!({"local_interface": {"value": true}});
    all[1].1 = deny;
    let why = ways(&mut adviser(&all), &web(), "h").unwrap_err();
    assert!(why.contains("deny"), "{why}");
    // Rows of an administrator's, which know nothing of it either.
    let modem = json!({"uid": "modem", "root": true, "expire": -1,
        "properties": {"interface": {"value": "wwan0", "precedence": 2}, "dear": {"value": true}}});
    let dear = rule(json!({"dear": {"value": true}}), json!({"dear": {"value": true, "score": 10}}));
    let files = [("a.profile", all[0].1.clone()), ("dear.policy", dear), ("modem.cib", modem)];
    assert_eq!(ways(&mut adviser(&files), &web(), "h").unwrap(), ["3 - 2,1", "2 - 2,1"]);
}

/// A property that only provisioning domains state is false for a network that does not state it: a
/// device's servers are looked for where its zone is.
#[test]
fn what_a_profile_requires_of_domains_is_looked_for_where_one_says_it() {
    let zone = |precedence: u8| json!({"value": "iot.example", "precedence": precedence});
    let profile = rule(json!({}), json!({"pvd_dns_zones": zone(2)}));
    let garden = json!({"uid": "garden", "root": true, "expire": -1,
        "properties": {"interface": {"value": "wwan0", "precedence": 2}, "pvd_dns_zones": zone(2)}});
    let files = [("a.profile", profile.clone()), ("garden.cib", garden)];
    assert_eq!(ways(&mut adviser(&files), &web(), "h").unwrap(), ["3 - 2,1"]);
    // Where no domain states it, no interface is chosen.
    assert_eq!(ways(&mut adviser(&[("a.profile", profile)]), &web(), "h").unwrap(), ["0 - 2,1", "neutral"]);
}

#[test]
fn a_requirement_that_is_no_yes_or_no_is_met_by_nobody() {
    let all = || [web(), vec![stack(TCP, "TCP", "TCP", false)]].concat();
    let of = |key: &str, value: serde_json::Value| {
        let policy = rule(json!({}), json!({key: {"value": value, "precedence": 2}}));
        ways(&mut adviser(&[("a.policy", policy)]), &all(), "h")
    };
    assert_eq!(of("security", json!(true)).unwrap(), ["0 - 2,1"]);
    // As in NEAT.
    assert_eq!(of("security", json!(1)).unwrap(), ["0 - 2,1"]);
    for odd in [json!("true"), json!("yes"), json!(2)] {
        let why = of("security", odd.clone()).expect_err(&odd.to_string());
        assert!(why.contains("leave no"), "{odd}: {why}");
    }
    assert!(of("multistreaming", json!("yes")).is_err());
}

#[test]
fn who_binds_a_connection_is_not_out_of_reach() {
    let deny = |name: &str| rule(json!({"interface": {"value": name}}), json!([[]]));
    let (needs, stacks) = (needs(""), web());
    let ask = |name: &str, bound: &[Bound<'_>]| {
        let mut adviser = adviser(&[("a.policy", deny(name))]);
        adviser.set_interfaces(&three(), NOW);
        let ask =
            Ask { needs: &needs, stacks: &stacks, app: "", host: Some("h"), addr: None, port: 1, extra: &[], bound };
        told(&mut adviser, &ask)
    };
    let second = Bound::Address("198.51.100.2".parse().unwrap());
    // By routes alone nothing would go by it.
    assert_eq!(ask("wwan0", &[]).unwrap(), ["0 - 2,1", "neutral"]);
    for bound in [Bound::Interface("wwan0"), second] {
        assert!(ask("wwan0", &[bound]).is_err(), "{bound:?}");
        assert_eq!(ask("eth0", &[bound]).unwrap(), ["0 - 2,1", "neutral"], "{bound:?}");
    }
    assert_eq!(ask("wwan0", &[Bound::Interface("eth0"), second]).unwrap(), ["2 - 2,1"]);
    // A link-local peer, on an interface whose rows are of the other family; a zone may be a
    // number.
    let near = |name: &str, bound: Bound<'_>| {
        let mut adviser = adviser(&[("a.policy", deny(name))]);
        let addr = Some("fe80::1".parse().unwrap());
        let bound = [bound];
        let ask = Ask { needs: &needs, stacks: &stacks, app: "", host: None, addr, port: 1, extra: &[], bound: &bound };
        told(&mut adviser, &ask)
    };
    for bound in [Bound::Interface("eth0"), Bound::Interface("2")] {
        assert_eq!(near("wwan0", bound).unwrap(), ["0 - 2,1", "neutral"], "{bound:?}");
        assert!(near("eth0", bound).is_err(), "{bound:?}");
    }
    // One of several local endpoints may leave the choice to the system.
    assert_eq!(ask("wwan0", &[Bound::Interface("wwan0"), Bound::Anywhere]).unwrap(), ["2 - 2,1"]);
    // An interface that has a link-local address alone, or none.
    for bound in [Bound::Interface("eth1"), Bound::Address("fe80::4".parse().unwrap())] {
        assert!(ask("eth1", &[bound]).is_err(), "{bound:?}");
        assert_eq!(ask("eth0", &[bound]).unwrap(), ["0 - 2,1", "neutral"], "{bound:?}");
    }
}

#[test]
fn stacks_of_one_name_stay_together() {
    let stacks = vec![
        stack(5, "SCTP/UDP", "SCTP", false),
        stack(QUIC, "QUIC", "QUIC", true),
        stack(6, "SCTP/IP", "SCTP", false),
    ];
    assert_eq!(ways(&mut adviser(&[]), &stacks, "h").unwrap(), ["0 - 5,2,6", "neutral"]);
    let sctp = rule(json!({"transport": {"value": "SCTP"}}), json!({"transport": {"value": "SCTP", "score": -1}}));
    assert_eq!(ways(&mut adviser(&[("a.policy", sctp)]), &stacks, "h").unwrap(), ["0 - 2,5,6"]);
}
