//! `neater policy` as people and programs call it.

mod common;

use common::{Folder, Ran, neater, run};
use std::path::Path;

fn policy(what: &str, argument: impl AsRef<std::ffi::OsStr>) -> Ran {
    run(neater().args(["policy", what]).arg(argument))
}

#[test]
fn vectors_are_counted_and_a_difference_is_a_line_and_an_exit_code() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/policy/tests/vectors");
    let all = policy("vectors", &own);
    assert_eq!(all.code, 0, "{}{}", all.out, all.err);
    assert!(all.out.contains("vectors, 0 not as expected"), "{}", all.out);

    let folder = Folder::new("policy-vectors");
    let text = std::fs::read_to_string(own.join("rows-paths.json")).expect("the vector");
    // The expected row, and only it, has another peer.
    let at = text.rfind("\"p\"").expect("the peer of the reply");
    folder.put("rows-paths.json", format!("{}\"q\"{}", &text[..at], &text[at + 3..]));
    let one = policy("vectors", folder.path("."));
    assert_eq!(one.code, 1);
    assert_eq!(one.out.lines().filter(|l| l.starts_with("rows-paths: ")).count(), 1, "{}", one.out);
    assert!(one.out.contains("1 vectors, 1 not as expected"), "{}", one.out);
}

#[test]
fn a_broken_file_is_named_with_line_and_column() {
    let folder = Folder::new("policy-check");
    let file = folder.put("bad.policy", "{\"uid\": \"x\",\n \"properties\": [[{\"b\": {\"value\": ]]\n}");
    let checked = policy("check", file);
    assert_eq!(checked.code, 1);
    let all = checked.out + &checked.err;
    assert!(all.contains("bad.policy:2:"), "{all}");
    assert_eq!(policy("check", folder.path("not-there.policy")).code, 4);
}

#[test]
fn folders_are_checked_and_diagnostics_and_doubles_reported() {
    let folder = Folder::new("policy-slips");
    folder.put("all/a.policy", "{\"uid\": \"x\",\n \"mach\": {}, \"match\": {}}");
    folder.put("all/b.policy", "{\"uid\": \"X\", \"properties\": {\"y\": {\"valeu\": 1}}}");
    folder.put("all/deeper/c.cib", "{\"root\": true, \"expire\": -1}");
    folder.put("all/notes.txt", "nothing");
    let checked = policy("check", folder.path("all"));
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    for says in [
        "a.policy:2:2: warning: \"mach\" means nothing here: is match meant?",
        "is value meant?",
        "a.policy, which has the same uid, x",
        "3 files, 0 with errors",
    ] {
        assert!(checked.out.contains(says), "{says}: {}", checked.out);
    }
}

/// A typing error must not turn a rule off, or on for all users, without a diagnostic.
#[test]
fn what_would_not_count_is_told_and_hides_nothing_else() {
    let folder = Folder::new("policy-odd");
    folder.put("all/a.policy", "{\"uid\": \"x\",\n \"matches\": {}, \"properties\": [[]]}");
    folder.put("all/b.policy", [b'{', 0xff, b'}']);
    folder.put("all/deeper/c.policy", "{\"uid\": \"c\", \"match\": {}}");
    std::os::unix::fs::symlink("nowhere", folder.path("all/d.policy")).expect("a link");
    let pipe = std::process::Command::new("mkfifo").arg(folder.path("all/e.policy")).status();
    assert!(pipe.expect("mkfifo").success());
    let checked = policy("check", folder.path("all"));
    assert_eq!(checked.code, 1, "{}{}", checked.out, checked.err);
    for says in [
        "a.policy:2:2: error: this means nothing here: is match meant?",
        "b.policy: error: it cannot be read: ",
        "c.policy: warning: this does not count: policies are those of ",
        "d.policy: error: it cannot be read: ",
        "e.policy: error: it cannot be read: it is no file",
        "5 files, 4 with errors",
    ] {
        assert!(checked.out.contains(says), "{says}: {}", checked.out);
    }
}

#[test]
fn an_unreadable_file_hides_no_decision() {
    let folder = Folder::new("policy-unread");
    folder.put("pib/a.policy", [b'{', 0xff, b'}']);
    folder
        .put("pib/b.policy", "\u{feff}{\"uid\": \"b\", \"match\": {}, \"properties\": {\"seen\": {\"value\": true}}}");
    let told = run(neater()
        .args(["policy", "explain", "--pib"])
        .arg(folder.path("pib"))
        .arg(r#"[{"transport": {"value": "TCP"}}]"#));
    assert_eq!(told.code, 0, "{}{}", told.out, told.err);
    assert!(told.err.contains("a.policy: error: it cannot be read: "), "{}", told.err);
    assert!(told.out.contains("policy b: seen = true"), "{}", told.out);
}

#[test]
fn cases_of_ones_own_are_run_and_each_difference_is_a_line() {
    let folder = Folder::new("policy-cases");
    folder
        .put("pib/no-udp.policy", r#"{"uid": "no-udp", "match": {"transport": {"value": "UDP"}}, "properties": [[]]}"#);
    let case = |name: &str, wanted: &str| {
        let requests = r#"[{"transport": [{"value": "TCP"}, {"value": "UDP"}]}]"#;
        format!(r#"[{{"name": "{name}", "requests": {requests}, "candidates": [{{"transport": "{wanted}"}}]}}]"#)
    };
    let run_case = |text: String| {
        let file = folder.put("cases.json", text);
        run(neater().args(["policy", "test", "--bare", "--pib"]).arg(folder.path("pib")).arg(file))
    };
    let good = run_case(case("udp is out", "TCP"));
    assert!(good.code == 0 && good.out.contains("1 cases, 0 not as expected"), "{}{}", good.out, good.err);
    let bad = run_case(case("udp stays", "UDP"));
    assert!(
        bad.code == 1 && bad.out.contains("udp stays: candidate 1: transport is TCP and not UDP"),
        "{}{}",
        bad.out,
        bad.err
    );
    let none = run_case("{}".into());
    assert!(none.code == 2 && none.err.contains("cases.json:1:1"), "{}{}", none.out, none.err);
    // The same, drawn: what is left, and what was denied by which rule.
    let request = r#"[{"transport": [{"value": "TCP"}, {"value": "UDP"}]}]"#;
    let drawn =
        run(neater().args(["policy", "explain", "--bare", "--diagram", "--pib"]).arg(folder.path("pib")).arg(request));
    assert_eq!(drawn.code, 0, "{}", drawn.err);
    for part in ["flowchart LR", "1. score 0 + 0", "denied by policy no-udp"] {
        assert!(drawn.out.contains(part), "{part}: {}", drawn.out);
    }
}

#[test]
fn a_decision_is_explained_and_a_bad_request_refused() {
    let told = policy("explain", r#"[{"profile": {"value": "low-latency"}}]"#);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.starts_with("1. score 0 + 3: transport +3"), "{}", told.out);
    assert!(told.out.contains("profile low-latency: capacity_profile = low-latency"), "{}", told.out);
    assert!(told.out.contains("policy elephant-bytes does not match: flow_size_bytes is not there"), "{}", told.out);
    let bad = policy("explain", "{bad");
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("the request:1:2: not JSON"), "{}", bad.err);
}
