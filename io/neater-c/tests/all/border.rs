//! What a careless program gives: NULL everywhere, wrong sizes, texts that are none, objects in
//! another state, callbacks that free what they are called for, threads.

use crate::tools::{compile, compile_with, folder, here, run, skip, valgrind};
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

/// A function of the header: what it returns, and its arguments by type and name.
struct Function {
    name: String,
    returns: String,
    arguments: Vec<(String, String)>,
}

fn functions() -> Vec<Function> {
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
    let argument = |text: &str| {
        let at = text.rfind([' ', '*']).expect("a type before a name") + 1;
        (text[..at].trim().trim_start_matches("const ").replace("struct ", ""), text[at..].to_owned())
    };
    let declaration = |text: &str| {
        let text = text.rsplit_once('{').map_or(text, |(_, t)| t).trim();
        if text.starts_with("typedef") || text.contains('}') {
            return None;
        }
        let (head, arguments) = text.strip_suffix(')')?.split_once('(')?;
        let at = head.rfind("neater_")?;
        let (returns, name) = head.split_at(at);
        let arguments = arguments.split(',').map(str::trim).filter(|a| *a != "void").map(argument).collect();
        Some(Function { name: name.to_owned(), returns: returns.trim().to_owned(), arguments })
    };
    code.split(';').filter_map(declaration).collect()
}

fn is_pointer(kind: &str) -> bool {
    kind.ends_with('*') || kind.ends_with("_fn")
}

/// Pointers that may be NULL, by function and argument, besides `user` and functions of the
/// program's.
const OPTIONAL: [(&str, &str); 14] = [
    ("neater_context_new", "options"),
    ("neater_event_clear", "event"),
    ("neater_connection_send", "context"),
    ("neater_connection_send", "message_id"),
    ("neater_connection_send_partial", "context"),
    ("neater_connection_send_partial", "message_id"),
    ("neater_connection_send_owned", "context"),
    ("neater_connection_send_owned", "message_id"),
    ("neater_connection_receive", "options"),
    ("neater_preconnection_initiate_with_send", "context"),
    ("neater_preconnection_explain", "remote"),
    ("neater_connection_is_established", "connection"),
    ("neater_security_parameters_add_server_certificate", "key_pem"),
    ("neater_security_parameters_add_client_certificate", "key_pem"),
];

fn may_be_null(function: &str, (kind, name): &(String, String)) -> bool {
    name == "user"
        || kind.ends_with("_fn")
        || function.ends_with("_free")
        || OPTIONAL.contains(&(function, name.as_str()))
}

/// A good value for an argument, in C.
fn good(function: &str, (kind, name): &(String, String)) -> String {
    let text = match (function, name.as_str()) {
        (_, "host_and_port") => "127.0.0.1:9",
        (_, "words") => "reliable",
        ("neater_transport_properties_get_number" | "neater_transport_properties_set_number", "name") => "connTimeout",
        ("neater_connection_get_number" | "neater_connection_set_number", "name") => "connPriority",
        ("neater_message_context_get_number" | "neater_message_context_set_number", "name") => "msgPriority",
        (f, "name") if f.starts_with("neater_message_context") => "msgOrdered",
        (f, "name") if f.contains("_properties_") || f.contains("_connection_get") => "reliability",
        (_, "name") => "localhost",
        (_, "address") => "127.0.0.1",
        _ => "1",
    };
    match kind.as_str() {
        "char *" if ["buffer"].contains(&name.as_str()) => "buffer".to_owned(),
        "char *" => format!("\"{text}\""),
        "char *const *" => "texts".to_owned(),
        "void *" if name == "user" => "NULL".to_owned(),
        "void *" => "buffer".to_owned(),
        "double *" => "&a_double".to_owned(),
        "bool *" => "&a_bool".to_owned(),
        "int32_t *" => "&an_int".to_owned(),
        "uint32_t *" => "&a_stack".to_owned(),
        "uint64_t *" => "&an_id".to_owned(),
        k if k.ends_with("_fn") => format!("no_{}", &k["neater_".len()..k.len() - "_fn".len()]),
        k if k.ends_with("**") => format!("&out_{}", &k["neater_".len()..k.len() - " **".len()]),
        k if k.ends_with('*') => format!("a_{}", &k["neater_".len()..k.len() - " *".len()]),
        _ if ["length", "key_length", "room"].contains(&name.as_str()) => "8".to_owned(),
        _ if ["count"].contains(&name.as_str()) => "1".to_owned(),
        _ => "0".to_owned(),
    }
}

/// The calls of one function: with NULL for all pointers, and for one after the other.
fn calls(f: &Function) -> String {
    let mut lines = String::new();
    let mut call = |null: &dyn Fn(usize) -> bool, what: &str, must_fail: bool| {
        let value = |(i, a): (usize, &(String, String))| match is_pointer(&a.0) && null(i) {
            true => "NULL".to_owned(),
            false => good(&f.name, a),
        };
        let arguments: Vec<_> = f.arguments.iter().enumerate().map(value).collect();
        let call = format!("{}({})", f.name, arguments.join(", "));
        let expected = match (must_fail, what) {
            (false, _) => "allowed",
            // Whether there is anything to be written may be looked at first.
            (true, "buffer") => "failed",
            (true, "value") if f.name.contains("_get_") => "failed",
            (true, _) => "refused",
        };
        let place = format!("\"{}\", \"{what}\"", f.name);
        let line = match f.returns.as_str() {
            "void" => format!("    {call};"),
            // Whose answer is a status whatever is asked.
            _ if f.name == "neater_error_status" => format!("    (void){call};"),
            "neater_status" | "int64_t" => format!("    {expected}((int64_t){call}, {place});"),
            _ => format!("    nothing(!{call}, {place}, {});", u8::from(must_fail)),
        };
        writeln!(lines, "{line}").expect("a string");
    };
    let pointers: Vec<usize> = (0..f.arguments.len()).filter(|i| is_pointer(&f.arguments[*i].0)).collect();
    let needed = |i: usize| !may_be_null(&f.name, &f.arguments[i]);
    if !pointers.is_empty() {
        call(&|_| true, "everything", pointers.iter().any(|i| needed(*i)));
    }
    // What is given back by a good pointer is gone.
    if !f.name.ends_with("_free") {
        for i in &pointers {
            call(&|n| n == *i, &f.arguments[*i].1, needed(*i));
        }
    }
    lines
}

#[test]
fn null_is_answered_by_every_function_for_every_pointer_also_in_callbacks() {
    let functions = functions();
    assert!(functions.len() > 100, "{}", functions.len());
    for (function, argument) in OPTIONAL {
        let known = functions.iter().find(|f| f.name == function).expect(function);
        assert!(known.arguments.iter().any(|(_, name)| name == argument), "{function} has no {argument}");
    }
    let mut program = String::from(include_str!("../null.c"));
    program += "static void all(void)\n{\n";
    for f in &functions {
        program += &calls(f);
    }
    program += "}\n";
    let source = folder().join("null.c");
    std::fs::write(&source, program).expect("written");
    let Some(made) = compile_with(&source, &[]) else { skip!("no C compiler (package gcc)") };
    let done = run(&mut Command::new(made), Duration::from_secs(60));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
    assert_eq!(done.out, "done\n");
}

/// Runs a program of this package that checks by itself, and again under valgrind.
pub(crate) fn checks_itself(source: &str, arguments: &[&str]) {
    let Some(program) = compile(source) else { skip!("no C compiler (package gcc)") };
    let done = run(Command::new(&program).args(arguments), Duration::from_secs(60));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
    let Some(valgrind) = valgrind() else { skip!("no valgrind (apt-get install valgrind), or a sanitizer instead") };
    let mut command = Command::new(valgrind);
    command.args(crate::programs::VALGRIND).arg(&program).args(arguments);
    let done = run(&mut command, Duration::from_secs(120));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
}

#[test]
fn a_careless_program_gets_errors_and_nothing_worse() {
    checks_itself("tests/careless.c", &[]);
}
