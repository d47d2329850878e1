//! The header: written from the definitions, whole, documented, and good C99 and C++17.

use crate::tools::{STRICT, folder, here, library, output, skip, which};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// In the order in which the header has them.
const MODULES: [&str; 18] = [
    "status",
    "error",
    "race",
    "border",
    "event",
    "lookup",
    "context",
    "endpoint",
    "properties",
    "security",
    "challenge",
    "message",
    "preconnection",
    "connection",
    "connection_properties",
    "info",
    "listener",
    "group",
];

const TOP: &str = include_str!("top.h");

fn generate() -> String {
    let mut config = cbindgen::Config::from_file(here("cbindgen.toml")).expect("cbindgen.toml");
    config.header = Some(TOP.trim_end().to_owned());
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in MODULES {
        builder = builder.with_src(here(&format!("src/{module}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("the definitions are understood").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

fn checked_in() -> String {
    fs::read_to_string(here("include/neater.h")).expect("include/neater.h")
}

#[test]
fn the_header_is_what_the_definitions_say() {
    let header = generate();
    if std::env::var_os("NEATER_WRITE_HEADER").is_some() {
        fs::write(here("include/neater.h"), &header).expect("written");
    }
    if let Some((n, (is, should))) =
        checked_in().lines().zip(header.lines()).enumerate().find(|(_, (is, should))| is != should)
    {
        panic!(
            "line {} of include/neater.h is\n    {is}\nand should be\n    {should}\n\
             write it again: NEATER_WRITE_HEADER=1 cargo test -p neater-c",
            n + 1
        );
    }
    assert_eq!(checked_in().lines().count(), header.lines().count(), "NEATER_WRITE_HEADER=1 cargo test -p neater-c");
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut comment = false;
    for line in header.lines() {
        let line = line.trim();
        comment |= line.starts_with("/*");
        if !comment
            && let Some((before, _)) = line.split_once('(')
            && !before.contains("typedef")
            && let Some(name) = before.split([' ', '*']).next_back()
            && name.starts_with("neater_")
        {
            found.insert(name.to_owned());
        }
        if line.ends_with("*/") {
            comment = false;
        }
    }
    found
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else_of_its_name() {
    let Some(nm) = which("nm") else { skip!("no nm (package binutils)") };
    let symbols = output(Command::new(nm).args(["-D", "--defined-only", "--format=posix"]).arg(library()));
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|l| l.split(' ').next())
        .filter(|n| n.starts_with("neater_"))
        .map(Into::into)
        .collect();
    let declared = declared(&checked_in());
    assert!(declared.len() > 100, "{declared:?}");
    let missing: Vec<_> = declared.difference(&exported).collect();
    let hidden: Vec<_> = exported.difference(&declared).filter(|n| !n.starts_with("neater_shim")).collect();
    assert!(missing.is_empty() && hidden.is_empty(), "declared only: {missing:?}; exported only: {hidden:?}");
}

#[test]
fn the_library_has_the_name_of_its_interface() {
    let Some(readelf) = which("readelf") else { skip!("no readelf (package binutils)") };
    let dynamic = output(Command::new(readelf).arg("-d").arg(library()));
    assert!(dynamic.contains("soname: [libneater.so.0]"), "{dynamic}");
}

#[test]
fn every_function_says_who_owns_what_and_which_thread_may_call_it() {
    let header = checked_in();
    let mut comment = String::new();
    let mut bad = Vec::new();
    let mut inside = false;
    for line in header.lines() {
        let line = line.trim();
        if line.starts_with("/*") {
            comment.clear();
            inside = true;
        }
        if inside {
            comment.push_str(line);
            inside = !line.ends_with("*/");
        } else if let Some((before, _)) = line.split_once('(')
            && !before.contains("typedef")
            && let Some(name) = before.split([' ', '*']).next_back()
            && name.starts_with("neater_")
        {
            let releases = name.ends_with("_free") || name.contains("_take_");
            if !comment.contains("Thread:") || releases && !comment.contains("Ownership:") {
                bad.push(name.to_owned());
            }
            comment.clear();
        }
    }
    assert!(bad.is_empty(), "without a word on threads or ownership: {bad:?}");
}

#[test]
fn every_function_is_in_the_manual() {
    let manual = fs::read_to_string(here("../../docs/neater-h.md")).expect("docs/neater-h.md");
    let missing: Vec<_> = declared(&checked_in()).into_iter().filter(|n| !manual.contains(&format!("`{n}`"))).collect();
    assert!(missing.is_empty(), "not in docs/neater-h.md: {missing:?}");
}

/// The constants of a header's enumerations.
fn constants(header: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in header.lines().map(str::trim) {
        let end = line.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(line.len());
        if line.starts_with("NEATER_") && line[end..].starts_with(" =") {
            found.insert(line[..end].to_owned());
        }
    }
    found
}

#[test]
fn every_constant_is_in_the_manual() {
    let manual = fs::read_to_string(here("../../docs/neater-h.md")).expect("docs/neater-h.md");
    let constants = constants(&checked_in());
    assert!(constants.len() > 100, "{constants:?}");
    let missing: Vec<_> = constants.into_iter().filter(|n| !manual.contains(&format!("`{n}`"))).collect();
    assert!(missing.is_empty(), "not in docs/neater-h.md: {missing:?}");
}

#[test]
fn every_public_type_is_in_the_header() {
    let header = checked_in();
    for module in MODULES {
        let source = fs::read_to_string(here(&format!("src/{module}.rs"))).expect("a module");
        for kind in ["pub enum neater_", "pub struct neater_", "pub type neater_", "pub union neater_"] {
            for rest in source.split(kind).skip(1) {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                assert!(header.contains(&format!("neater_{name}")), "neater_{name} of src/{module}.rs is not there");
            }
        }
    }
}

#[test]
fn the_header_is_c99_and_cpp17_without_a_warning() {
    let source = folder().join("twice.c");
    fs::write(&source, "#include <neater.h>\n#include <neater.h>\nint main(void) { return neater_version() == 0; }\n")
        .expect("written");
    let c = STRICT.map(|f| if f == "-std=gnu99" { "-std=c99" } else { f });
    for (compiler, language, flags) in
        [("cc", "c", &c[..]), ("c++", "c++", &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])]
    {
        let Some(compiler) = which(compiler) else { skip!("no {compiler} (packages gcc and g++)") };
        let mut command = Command::new(compiler);
        command.args(flags).args(["-x", language, "-fsyntax-only", "-I"]).arg(here("include")).arg(&source);
        let done = command.output().expect("a compiler");
        assert!(done.status.success(), "{language}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
