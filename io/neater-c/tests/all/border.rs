//! What a careless program gives: NULL everywhere, wrong sizes, texts that are none, objects in
//! another state, callbacks that free what they are called for, threads.

use crate::tools::{STRICT, compile, folder, here, run, skip, which};
use std::process::Command;
use std::time::Duration;

/// A function of the header: what it returns, and the types of its arguments.
fn functions() -> Vec<(String, String, Vec<String>)> {
    let header = std::fs::read_to_string(here("include/neater.h")).expect("the header");
    let mut code = String::new();
    let mut comment = false;
    for line in header.lines().map(str::trim) {
        if comment || line.starts_with("/*") {
            comment = !line.ends_with("*/");
        } else if !line.starts_with('#') {
            code.push_str(line);
            code.push(' ');
        }
    }
    let declaration = |text: &str| {
        let text = text.rsplit_once('{').map_or(text, |(_, t)| t).trim();
        if text.starts_with("typedef") || text.contains('}') {
            return None;
        }
        let (head, arguments) = text.strip_suffix(')')?.split_once('(')?;
        let at = head.rfind("neater_")?;
        let (returns, name) = head.split_at(at);
        let arguments = arguments.split(',').map(|a| a.trim().to_owned()).filter(|a| a != "void").collect();
        Some((name.to_owned(), returns.trim().to_owned(), arguments))
    };
    code.split(';').filter_map(declaration).collect()
}

#[test]
fn null_is_answered_by_every_function() {
    let Some(cc) = which("cc") else { skip!("no C compiler (package gcc)") };
    let functions = functions();
    assert!(functions.len() > 100, "{}", functions.len());
    let mut program = String::from("#include <neater.h>\n#include <stdio.h>\nint main(void) {\n  int bad = 0;\n");
    for (name, returns, arguments) in &functions {
        let nothing = |a: &String| if a.contains('*') || a.contains("_fn ") { "NULL" } else { "0" };
        let call = format!("{name}({})", arguments.iter().map(nothing).collect::<Vec<_>>().join(", "));
        // What NULL means where it is no error: nothing to be given back.
        let allowed =
            arguments.is_empty() || name == "neater_event_clear" || name == "neater_connection_is_established";
        let number = ["neater_status", "int64_t"].contains(&returns.as_str());
        let no_status = ["neater_error_status"].contains(&name.as_str());
        program += &match (returns.as_str(), number && !allowed && !no_status) {
            ("void", _) => format!("  {call};\n"),
            (_, true) => format!("  if ({call} >= 0) {{ puts(\"{name} takes NULL\"); bad++; }}\n"),
            (_, false) => format!("  (void){call};\n"),
        };
    }
    program += "  return bad;\n}\n";
    let source = folder().join("null.c");
    std::fs::write(&source, program).expect("written");
    let made = folder().join("null");
    let mut command = Command::new(cc);
    command.args(STRICT).arg("-I").arg(here("include")).arg("-o").arg(&made).arg(&source);
    command.arg("-L").arg(folder()).arg("-lneater").arg(format!("-Wl,-rpath,{}", folder().display()));
    let done = command.output().expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = run(&mut Command::new(made), Duration::from_secs(20));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
}

#[test]
fn a_careless_program_gets_errors_and_nothing_worse() {
    let Some(program) = compile("tests/careless.c") else { skip!("no C compiler (package gcc)") };
    let done = run(&mut Command::new(&program), Duration::from_secs(60));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
    let Some(valgrind) = which("valgrind") else { skip!("no valgrind (apt-get install valgrind)") };
    let done = run(Command::new(valgrind).args(crate::programs::VALGRIND).arg(&program), Duration::from_secs(120));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
}
