//! The scenarios of `interop/parity/scenarios.toml`, from Rust and from C.

mod rust;

use crate::tools::{compile, here, run, skip};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenario: Vec<Scenario>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[serde(default)]
    stacks: Vec<String>,
    script: String,
    events: BTreeMap<String, Vec<String>>,
}

/// All scenarios, one for each of their stacks.
fn scenarios() -> Vec<Scenario> {
    let text = std::fs::read_to_string(here("../../interop/parity/scenarios.toml")).expect("scenarios");
    let file: File = toml::from_str(&text).expect("the format of scenarios");
    let of_stacks = |s: Scenario| {
        let variants = s.stacks.iter().map(|pair| {
            let (stack, security) = pair.split_once(':').expect("STACK:SECURITY");
            let script = s.script.replace("$STACK", stack).replace("$SECURITY", security);
            Scenario { name: format!("{} ({stack})", s.name), script, ..s.clone() }
        });
        if s.stacks.is_empty() { vec![s] } else { variants.collect() }
    };
    let all: Vec<Scenario> = file.scenario.into_iter().flat_map(of_stacks).collect();
    assert!(all.len() > 30, "{} scenarios", all.len());
    let only = std::env::var("SCENARIO").unwrap_or_default();
    all.into_iter().filter(|s| s.name.contains(&only)).collect()
}

/// What the objects saw, of lines with an object and an event.
fn seen(lines: &str) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (object, event) in lines.lines().filter_map(|l| l.split_once(' ')) {
        seen.entry(object.to_owned()).or_default().push(event.to_owned());
    }
    seen
}

/// Runs all scenarios by `run`, and lists which did not go as they should.
fn all(door: &str, run: impl Fn(&Scenario) -> Result<String, String>) {
    let mut wrong = Vec::new();
    let scenarios = scenarios();
    for s in &scenarios {
        match run(s) {
            Err(e) => wrong.push(format!("{}: {e}", s.name)),
            Ok(lines) => {
                let seen = seen(&lines);
                for (object, should) in &s.events {
                    let is = seen.get(object).cloned().unwrap_or_default();
                    if is != *should {
                        wrong.push(format!("{}: {object} saw {is:?} and should have seen {should:?}", s.name));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} from {door}:\n{}", wrong.len(), scenarios.len(), wrong.join("\n"));
}

#[test]
fn from_rust() {
    all("Rust", |s| rust::run(&s.script));
}

#[test]
fn from_c() {
    let Some(program) = compile("tests/parity.c") else { skip!("no C compiler (package gcc)") };
    all("neater.h", |s| {
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|e| e.to_string())?;
        let script = s.script.trim_start();
        child.stdin.take().expect("piped").write_all(script.as_bytes()).map_err(|e| e.to_string())?;
        let done = child.wait_with_output().map_err(|e| e.to_string())?;
        let out = String::from_utf8_lossy(&done.stdout).into_owned();
        if done.status.success() { Ok(out) } else { Err(out) }
    });
}

/// Some of them, for they take their time: what a scenario leaves behind, and reads that it should
/// not.
#[test]
fn from_c_under_valgrind() {
    let Some(valgrind) = crate::tools::valgrind() else {
        skip!("no valgrind (apt-get install valgrind), or a sanitizer instead")
    };
    let Some(program) = compile("tests/parity.c") else { skip!("no C compiler (package gcc)") };
    let few = ["connect (tls)", "streams (sctp)", "race with a dead family", "bad input", "refused", "abort (tcp)"];
    for s in scenarios().into_iter().filter(|s| few.contains(&s.name.as_str())) {
        let script = crate::tools::folder().join("valgrind.script");
        std::fs::write(&script, s.script.trim_start()).expect("written");
        let mut command = Command::new(&valgrind);
        command.args(crate::programs::VALGRIND).arg(&program);
        command.stdin(std::fs::File::open(&script).expect("the script"));
        let done = run(&mut command, Duration::from_secs(120));
        assert!(done.status.success(), "{}: {}\n{}", s.name, done.out, done.err);
    }
}
