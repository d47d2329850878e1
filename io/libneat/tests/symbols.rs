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

/// What the header defines beside functions: macros, constants, and callbacks.
fn defined() -> BTreeSet<String> {
    let header = include_str!("../include/neat.h");
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_owned()
    };
    let mut found = BTreeSet::new();
    for line in header.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#define ") {
            found.insert(word(rest));
        } else if line.starts_with("NEAT_")
            && !line.starts_with("NEAT_EXTERN")
            && !line.starts_with("NEAT_OPTARGS_CHECK_")
        {
            found.insert(word(line));
        } else if let Some(declared) = line.strip_suffix(';').filter(|d| !d.contains(['(', ')']))
            && let Some((kind, name)) = declared.rsplit_once(' ')
            && (kind.ends_with("_fx") || kind.ends_with("_t") || name.ends_with("_id"))
        {
            found.insert(word(name));
        }
    }
    // Of the compiler's, and of the header's own.
    found.retain(|name| {
        !name.ends_with('_') && !["NEAT_INCLUDED_NEAT_H", "NEAT_EXTERN", "_POSIX_C_SOURCE"].contains(&&**name)
    });
    found
}

#[test]
fn every_macro_constant_callback_and_property_is_in_the_manual() {
    let defined = defined();
    assert!(defined.len() > 70, "{defined:?}");
    for known in ["NEAT_TAG_LAST", "NEAT_OPTARG_STRING", "NEAT_STACK_WEBRTC", "on_rate_hint", "clone_id"] {
        assert!(defined.contains(known), "{known} is not found in the header");
    }
    let manual = include_str!("../../../docs/libneat.md");
    let properties = include_str!("../src/properties.rs").split("const OWN").nth(1).expect("the list");
    let properties = properties.split(';').nth(1).expect("its end").split('"').skip(1).step_by(2).map(str::to_owned);
    let properties: Vec<_> = properties.chain(["so/<level>/<option>".to_owned()]).collect();
    assert!(properties.len() > 8, "{properties:?}");
    let missing: Vec<_> =
        defined.into_iter().chain(properties).filter(|n| !manual.contains(&format!("`{n}`"))).collect();
    assert!(missing.is_empty(), "docs/libneat.md has no {missing:?}");
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
