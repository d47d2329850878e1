//! The library exports what the header declares, and the manual describes all of it.

#![cfg(has_libuv)]

mod common;

use std::collections::BTreeSet;
use std::process::Command;

/// The functions of the header.
fn declared() -> BTreeSet<String> {
    let header = include_str!("../include/neat.h");
    let declarations = header.split("NEAT_EXTERN ").skip(1).filter_map(|d| d.split_once('(')).map(|(before, _)| before);
    declarations
        .filter(|d| !d.contains("__attribute__") && !d.contains('#'))
        .filter_map(|d| d.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_function_is_exported_and_in_the_manual() {
    let declared = declared();
    assert_eq!(declared.len(), 38, "{declared:?}");
    let library = common::prefix().join("lib/libneat.so.0");
    let symbols = common::run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|l| l.split_whitespace().last()).map(str::to_owned).collect();
    let ours = |s: &&String| s.starts_with("neat_") || s.ends_with("_ops_user_data") || s.starts_with("set_");
    assert_eq!(exported.iter().filter(ours).collect::<Vec<_>>(), declared.iter().collect::<Vec<_>>());
    let manual = include_str!("../../../docs/libneat.md");
    for function in &declared {
        assert!(manual.contains(&format!("`{function}`")), "docs/libneat.md has no {function}");
    }
    let dynamic = common::run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("libneat.so.0"), "{dynamic}");
}
