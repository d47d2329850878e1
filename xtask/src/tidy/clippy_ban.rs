//! The ban on clocks, sockets, threads and unordered maps reaches every sans-IO crate.
//!
//! Clippy takes the nearest `clippy.toml` upwards from a crate, so `crates/clippy.toml` covers the folder as long as no crate
//! puts its own in front. The simulator's crates live elsewhere and keep a copy, which must not drift.

use super::Finding;
use crate::workspace::{Files, Package};

const BAN: &str = "crates/clippy.toml";
/// Rooms outside `crates/` that keep their own copy.
const COPIES: &[&str] = &["sim/link", "sim/netsim", "sim/scenario", "sim/vopr"];

/// Every sans-IO crate that the ban does not reach.
pub(super) fn check(packages: &[Package], files: &Files) -> Vec<Finding> {
    let Some(ban) = files.get(BAN) else {
        return vec![Finding::error(BAN, "missing: nothing keeps clocks and sockets out of the sans-IO crates")];
    };
    let mut findings = Vec::new();
    for package in packages {
        let dir = &package.dir;
        let own = [format!("{dir}/clippy.toml"), format!("{dir}/.clippy.toml")];
        if dir.starts_with("crates/") {
            for path in own.iter().filter(|path| files.contains_key(*path)) {
                findings.push(Finding::error(path.as_str(), format!("hides {BAN} from this crate")));
            }
        } else if COPIES.contains(&dir.as_str()) {
            match files.get(&own[0]) {
                None => findings.push(Finding::error(own[0].as_str(), format!("missing: copy {BAN}"))),
                Some(copy) if copy != ban => {
                    findings.push(Finding::error(own[0].as_str(), format!("differs from {BAN}: copy it")))
                }
                Some(_) => {}
            }
            if files.contains_key(&own[1]) {
                findings.push(Finding::error(own[1].as_str(), format!("hides {}", own[0])));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(dir: &str) -> Package {
        Package { dir: dir.into(), description: None, deps: Vec::new(), root_file: None, is_library: true }
    }

    fn run(packages: &[&str], files: &[(&str, &str)]) -> Vec<String> {
        let packages: Vec<_> = packages.iter().map(|dir| package(dir)).collect();
        let files = files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
        check(&packages, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_ban_and_its_identical_copies_pass() {
        assert!(run(&["crates/a", "sim/link", "sim/lab"], &[(BAN, "x"), ("sim/link/clippy.toml", "x")]).is_empty());
    }

    #[test]
    fn a_missing_ban_a_missing_copy_and_a_drifted_copy_are_reported() {
        assert_eq!(run(&["crates/a"], &[]).len(), 1);
        assert!(run(&["sim/netsim"], &[(BAN, "x")])[0].contains("missing: copy"));
        assert!(run(&["sim/netsim"], &[(BAN, "x"), ("sim/netsim/clippy.toml", "y")])[0].contains("differs"));
    }

    #[test]
    fn a_crate_that_hides_the_ban_behind_its_own_file_is_reported() {
        for own in ["crates/a/clippy.toml", "crates/a/.clippy.toml"] {
            assert!(run(&["crates/a"], &[(BAN, "x"), (own, "x")])[0].contains("hides"), "{own}");
        }
    }
}
