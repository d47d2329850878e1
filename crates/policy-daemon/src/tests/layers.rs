//! What lies beneath something else counts again when that goes.

use super::*;

const OWN: &str =
    r#"{"uid": "confidential", "match": {"profile": {"value": "confidential"}}, "properties": {"own": {"value": 1}}}"#;

fn with_ready() -> Daemon {
    Daemon::new(Options { limits: Limits::default(), owner: OWNER, ready: true, keeps_rules: true })
}

/// Whether what is asked for with this profile must be secure.
fn is_secure(d: &mut Daemon) -> bool {
    let answer = ask(d, OWNER, r#"[{"profile": {"value": "confidential"}, "transport": {"value": "QUIC"}}]"#);
    assert!(!answer.is_empty());
    answer.iter().all(|c| c["security"]["value"] == true && c["security"]["precedence"] == 2)
}

fn files(d: &mut Daemon, pib: &[(&str, &str)]) {
    let files: Vec<SourceFile<'_>> = pib.iter().map(|&(name, text)| SourceFile { name, text }).collect();
    let report = d.load(&files, &[], NOW);
    assert_eq!(report.faults, []);
}

#[test]
fn a_file_that_goes_leaves_the_ready_made_profile_that_it_covered() {
    let mut d = with_ready();
    assert!(is_secure(&mut d));
    for other in ["1", "2"] {
        files(&mut d, &[("mine.profile", OWN)]);
        assert!(!is_secure(&mut d), "the file counts");
        // Other files come and go.
        let more = format!(r#"{{"uid": "other", "match": {{}}, "description": "{other}"}}"#);
        files(&mut d, &[("mine.profile", OWN), ("other.policy", &more)]);
        assert!(!is_secure(&mut d));
        files(&mut d, &[]);
        assert!(is_secure(&mut d), "the ready-made one is there again");
    }
}

#[test]
fn what_is_put_in_and_taken_back_leaves_the_ready_made_profile() {
    let told = r#"{"policy_type": "profile", "match": {"profile": {"value": "confidential"}}, "properties": {}}"#;
    for is_saved in [false, true] {
        let mut d = with_ready();
        assert_eq!(d.put_rules_of(told, Some("confidential"), OWNER, NOW), Ok(vec![]));
        assert!(!is_secure(&mut d));
        let effects = d.take_effects();
        let [Effect::Save { file, text, new: true }] = &effects[..] else { panic!("{effects:?}") };
        if is_saved {
            files(&mut d, &[(file, text)]);
            assert!(!is_secure(&mut d));
            // And a second time, into the same file.
            assert_eq!(d.put_rules_of(told, Some("confidential"), OWNER, NOW), Ok(vec![]));
            assert!(matches!(&d.take_effects()[..], [Effect::Save { file: again, new: false, .. }] if again == file));
        }
        assert_eq!(d.remove_rule(OWNER, Stage::Profile, "confidential"), Ok(()));
        assert!(is_secure(&mut d), "saved: {is_saved}");
        assert_eq!(d.take_effects(), [Effect::Remove { file: file.clone() }]);
        files(&mut d, &[]);
        assert!(is_secure(&mut d), "saved: {is_saved}");
    }
}

#[test]
fn a_node_of_a_file_is_changed_in_the_file_and_what_it_covers_comes_back() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, OWNER, &interface("x"));
    let file = r#"{"uid": "x", "root": true, "expire": -1, "properties": {"interface": {"value": "filed"}}}"#;
    d.load(&[], &[SourceFile { name: "x.cib", text: file }], NOW);
    assert_eq!(interfaces(&mut d, OWNER), ["-", "filed"]);
    let put = d.put_nodes_of(&interface("other"), Some("x"), OWNER, NOW);
    assert_eq!(put, Err(DocumentError::Refused(Refusal::Filed)));
    assert_eq!(d.remove_node(OWNER, "x"), Err(Refusal::Filed));
    let (answer, refusals) = say(&mut d, Door::Cib, 0, &interface("x"));
    assert!(answer.contains("change the file") && refusals.len() == 1, "{answer}");
    assert_eq!(interfaces(&mut d, OWNER), ["-", "filed"]);
    d.load(&[], &[], NOW);
    assert_eq!(interfaces(&mut d, OWNER), ["x", "-"], "what was told before the file came");
}

#[test]
fn a_node_of_a_file_that_has_ended_can_be_told_again() {
    for source in [false, true] {
        let mut d = daemon();
        let end = NOW.0.as_secs() + 10;
        let file = format!(
            r#"{{"uid": "x", "root": true, "expire": {end}, "properties": {{"interface": {{"value": "filed"}}}}}}"#
        );
        let files = [SourceFile { name: "x.cib", text: &file }];
        d.load(&[], &files, NOW);
        let told = |d: &mut Daemon, now: WallTime| match source {
            true => d.set_source("modems", &interface("x"), Duration::from_secs(30), now).map(|_| ()),
            false => {
                let node = Node::from_json(serde_json::from_str(&interface("x")).expect("JSON"), "", "", now);
                d.put_nodes(OWNER, vec![node.expect("a node").0], now).map_err(|e| e.to_string())
            }
        };
        assert!(told(&mut d, NOW).is_err(), "the file's counts");
        let later = WallTime(NOW.0 + Duration::from_secs(11));
        assert_eq!(told(&mut d, later), Ok(()));
        let named = |d: &Daemon| d.base().cib().get("x").map(|n| n.alternatives[0].get("interface").cloned());
        let is = |d: &Daemon, what: &str| named(d).flatten().is_some_and(|p| p.value == what.into());
        assert!(is(&d, "x"));
        // Other files change: an expired node displaces no other.
        let other = SourceFile { name: "y.cib", text: r#"{"uid": "y", "root": true, "expire": -1}"# };
        d.load(&[], &[files[0], other], later);
        assert!(is(&d, "x"));
        if !source {
            assert_eq!(d.remove_node(OWNER, "x"), Ok(()));
            assert_eq!(d.base().cib().get("x"), None);
        }
    }
}

#[test]
fn a_node_that_is_put_with_an_end_in_the_past_takes_the_old_one_away() {
    for user in [OWNER, ANN] {
        let mut d = daemon();
        tell(&mut d, Door::Cib, user, &interface("x"));
        assert_eq!(interfaces(&mut d, user), ["x", "-"]);
        tell(&mut d, Door::Cib, user, r#"{"uid": "x", "root": true, "expire": 7}"#);
        assert_eq!(interfaces(&mut d, user), ["-"], "user {user}");
    }
}

#[test]
fn nodes_of_files_beyond_what_there_is_room_for_are_a_fault() {
    use neater_policy::manager::MAX_NODES;
    let mut d = daemon();
    let texts: Vec<(String, String)> = (0..MAX_NODES + 3)
        .map(|i| (format!("{i}.cib"), format!(r#"{{"uid": "n{i}", "root": true, "expire": -1}}"#)))
        .collect();
    let files: Vec<SourceFile<'_>> = texts.iter().map(|(name, text)| SourceFile { name, text }).collect();
    for _ in 0..2 {
        let report = d.load(&[], &files, NOW);
        assert_eq!(report.nodes, MAX_NODES);
        let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
        assert!(!fault.harmless && fault.why.contains("at most 4096 nodes: 3 of them"), "{fault}");
    }
}

#[test]
fn what_comes_ready_made_can_be_covered_and_not_taken_away() {
    let mut d = with_ready();
    let remove = |d: &mut Daemon| d.remove_rule(OWNER, Stage::Profile, "confidential");
    assert_eq!(remove(&mut d), Err(Refusal::Ready));
    let own = OWN.replacen('{', r#"{"policy_type": "profile", "#, 1);
    tell(&mut d, Door::Pib, OWNER, &own);
    assert!(!is_secure(&mut d));
    assert_eq!(remove(&mut d), Ok(()));
    assert!(is_secure(&mut d), "the ready-made one is there again");
    assert_eq!(remove(&mut d), Err(Refusal::Ready), "and once more takes nothing away");
    assert!(is_secure(&mut d));
}
