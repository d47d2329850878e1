//! The laboratory is a program of its own: it links what only measurements need.

use crate::args::LabArgs;
use crate::failure::{Exit, Failure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Becomes neater-lab.
pub(crate) fn run(args: &LabArgs, json: bool) -> Result<Exit, Failure> {
    let Some(program) = find() else {
        return Err(Failure::new(Exit::Failed, "lab", "neater-lab is neither beside neater nor on the PATH")
            .advise("in neater's source directory: cargo install --locked --path sim/lab"));
    };
    let error = std::process::Command::new(&program).args(words(&args.rest, json)).exec();
    Err(Failure::new(Exit::Failed, "lab", format!("{}: {error}", program.display())))
}

/// What neater-lab is told: `--json` stands before the subcommand here, and behind it there.
fn words(rest: &[OsString], json: bool) -> Vec<OsString> {
    let mut words = rest.to_vec();
    let knows = words.first().is_some_and(|w| w == "list" || w == "run");
    if json && knows && words.iter().all(|w| w != "--json") {
        words.insert(1, "--json".into());
    }
    words
}

fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join("neater-lab")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|f| f.join("neater-lab"));
    beside.into_iter().chain(folders).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_asked_for_where_they_are_known() {
        let of = |text: &str, json| {
            let rest: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
            words(&rest, json).iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("list B1", true), "list --json B1");
        assert_eq!(of("run B1 --json", true), "run B1 --json");
        assert_eq!(of("list", false), "list");
        assert_eq!(of("report out", true), "report out");
        assert_eq!(of("", true), "");
    }
}
