//! Which room may depend on which: the picture in docs and `Cargo.toml`, as a table.
//!
//! Only normal and build dependencies are arrows. Tests may use what they like: a dev-dependency is never linked into the
//! product, and that is how `crates/*` may use `sim/*`.

use super::Finding;
use crate::workspace::{Kind, Package};

/// One row: what a room may depend on, and why not on more.
///
/// `x/*` matches every folder directly below `x`; the first row that matches a room holds.
struct Row {
    room: &'static str,
    may: &'static [&'static str],
    why: &'static str,
}

const ANYTHING: &[&str] = &["*"];

const ROWS: &[Row] = &[
    Row { room: "crates/base", may: &[], why: "base lies under everything" },
    Row {
        room: "crates/policy",
        may: &["crates/base", "crates/property"],
        why: "policy ranks opaque candidates and knows no protocol",
    },
    Row {
        room: "crates/policy-daemon",
        may: &["crates/base", "crates/property", "crates/policy"],
        why: "the state of a daemon decides by policy, and knows neither sockets nor protocols",
    },
    Row {
        room: "crates/quic",
        may: &["crates/base", "crates/cc", "crates/tls"],
        why: "QUIC needs TLS configuration, knows congestion control, and nothing of ours above it",
    },
    Row {
        room: "crates/dtls",
        may: &["crates/base", "crates/tls", "third_party/dimpl"],
        why: "DTLS is a crate that is changed here, with the trust and the identities of TLS, and nothing of ours above it",
    },
    Row {
        room: "crates/sctp",
        may: &["crates/base", "crates/cc", "crates/sctp-wire"],
        why: "an association sits on a packet layer that it is given",
    },
    Row {
        room: "crates/utp",
        may: &["crates/base", "crates/cc"],
        why: "a protocol knows congestion control and nothing above itself",
    },
    Row { room: "crates/engine", may: &["crates/*"], why: "the engine composes sans-IO crates and is sans-IO itself" },
    Row {
        room: "crates/*",
        may: &["crates/base"],
        why: "a sans-IO crate stands on base alone, so that it can be tested, fuzzed and replaced alone; the engine composes",
    },
    Row {
        room: "io/net",
        may: &["crates/base"],
        why: "it implements the Net trait of base and must not know who calls it",
    },
    Row { room: "io/neater", may: &["crates/*", "io/net"], why: "the public API is a thin facade over engine and net" },
    Row {
        room: "io/python",
        may: &["crates/*", "io/neater", "sim/*"],
        why: "the Python package wraps the public API, and the simulator for experiments",
    },
    Row { room: "io/*", may: &["crates/*", "io/*"], why: "io stands on the sans-IO crates" },
    Row { room: "bindings/*", may: &["crates/*", "io/*"], why: "a binding wraps the public API" },
    Row {
        room: "apps/cli",
        may: &["crates/*", "io/*", "apps/http", "apps/command"],
        why: "the command is put together from io and apps; `neater lab` and `neater pm` execute programs of their own",
    },
    Row {
        room: "apps/pm",
        may: &["crates/*", "io/*", "apps/http", "apps/command"],
        why: "the policy manager requests documents over HTTP, and talks to people as the command does",
    },
    Row {
        room: "apps/command",
        may: &["crates/*", "io/*", "apps/http"],
        why: "what several programs have in common knows none of them",
    },
    Row { room: "apps/*", may: &["crates/*", "io/*"], why: "programs use the public API and no simulation" },
    Row { room: "sim/link", may: &["crates/base"], why: "simulator and lab share the link model; it knows neither" },
    Row {
        room: "sim/scenario",
        may: &["crates/base", "sim/link"],
        why: "scenarios are data that simulator and lab share; they know neither",
    },
    Row {
        room: "sim/netsim",
        may: &["crates/base", "crates/cc", "sim/link", "sim/scenario"],
        why: "it implements the Net trait of base and must not know who calls it",
    },
    Row {
        room: "sim/lab/peers",
        may: &["crates/*", "io/*"],
        why: "what is measured is built with what a program would be built with, and with nothing of the laboratory",
    },
    Row {
        room: "sim/emulator",
        may: &["crates/base", "crates/dns", "io/net", "sim/link", "sim/scenario"],
        why: "networks are emulated for any program; it knows neither the engine nor an experiment",
    },
    Row { room: "sim/*", may: ANYTHING, why: "" },
    Row { room: "interop", may: ANYTHING, why: "" },
    Row { room: "interop/*", may: ANYTHING, why: "" },
    Row { room: "examples", may: ANYTHING, why: "" },
    Row { room: "xtask", may: ANYTHING, why: "" },
    Row { room: "fuzz/*", may: ANYTHING, why: "" },
    Row { room: "examples/*", may: ANYTHING, why: "" },
];

fn matches(pattern: &str, dir: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.strip_suffix("/*") {
        Some(parent) => dir.rsplit_once('/').is_some_and(|(p, _)| p == parent),
        None => pattern == dir,
    }
}

/// Arrows that the table does not allow, and rooms that it does not know.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let place = format!("{}/Cargo.toml", package.dir);
        let Some(row) = ROWS.iter().find(|row| matches(row.room, &package.dir)) else {
            findings.push(Finding::error(
                place,
                "this room has no row in the table of xtask/src/tidy/arrows.rs: decide what it may use",
            ));
            continue;
        };
        for dep in package.deps.iter().filter(|dep| dep.kind == Kind::Normal) {
            if row.may.iter().any(|pattern| matches(pattern, &dep.dir)) {
                continue;
            }
            let allowed = if row.may.is_empty() { "no other room".to_owned() } else { row.may.join(", ") };
            let hint = if dep.dir.starts_with("sim/") { "; use it as a dev-dependency" } else { "" };
            findings.push(Finding::error(
                place.as_str(),
                format!("forbidden arrow {} -> {}: {} (it may use {allowed}){hint}", package.dir, dep.dir, row.why),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dep;

    fn package(dir: &str, deps: &[(&str, Kind)]) -> Package {
        Package {
            dir: dir.into(),
            description: None,
            deps: deps.iter().map(|(dir, kind)| Dep { dir: (*dir).into(), kind: *kind }).collect(),
            root_file: None,
            is_library: true,
        }
    }

    fn allowed(from: &str, to: &str) -> bool {
        check(&[package(from, &[(to, Kind::Normal)])]).is_empty()
    }

    #[test]
    fn the_arrows_of_the_design_are_allowed() {
        for (from, to) in [
            ("crates/policy", "crates/property"),
            ("crates/property", "crates/base"),
            ("crates/quic", "crates/tls"),
            ("crates/dtls", "crates/tls"),
            ("crates/engine", "crates/race"),
            ("io/net", "crates/base"),
            ("io/neater", "io/net"),
            ("apps/http", "io/neater"),
            ("apps/cli", "apps/http"),
            ("sim/netsim", "sim/link"),
            ("sim/lab", "io/neater"),
            ("sim/lab", "sim/emulator"),
            ("fuzz/harness", "crates/dns"),
            ("interop", "apps/http"),
        ] {
            assert!(allowed(from, to), "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_against_the_design_are_named_with_their_reason() {
        for (from, to) in [
            ("crates/base", "crates/property"),
            ("crates/race", "crates/policy"),
            ("crates/dns", "crates/tls"),
            ("crates/tls", "crates/quic"),
            ("crates/engine", "io/net"),
            ("crates/engine", "sim/netsim"),
            ("io/net", "crates/engine"),
            ("io/neater", "sim/testkit"),
            ("apps/http", "apps/cli"),
            ("apps/cli", "sim/lab"),
            ("sim/link", "sim/netsim"),
            ("sim/netsim", "crates/engine"),
        ] {
            let findings = check(&[package(from, &[(to, Kind::Normal)])]);
            assert_eq!(findings.len(), 1, "{from} -> {to}");
            assert!(findings[0].message.contains(&format!("{from} -> {to}: ")), "{}", findings[0]);
        }
    }

    #[test]
    fn a_sans_io_crate_may_use_the_simulator_in_its_tests_only() {
        assert!(check(&[package("crates/engine", &[("sim/netsim", Kind::Dev)])]).is_empty());
        let findings = check(&[package("crates/engine", &[("sim/netsim", Kind::Normal)])]);
        assert!(findings[0].message.ends_with("use it as a dev-dependency"));
    }

    #[test]
    fn a_room_without_a_rule_is_reported() {
        assert!(check(&[package("attic/old", &[])])[0].message.contains("no row"));
    }
}
