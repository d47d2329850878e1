//! `neater lab`: the arguments of the laboratory.

use crate::args::LabArgs;
use crate::failure::{Exit, Failure};
use crate::program;
use std::ffi::OsString;

/// Becomes neater-lab.
pub(crate) fn run(args: &LabArgs, json: bool) -> Result<Exit, Failure> {
    program::execute("neater-lab", "lab", words(&args.rest, json)?, "sim/lab")
}

/// The arguments of neater-lab: `--json` stands before the subcommand here, and behind it there.
fn words(rest: &[OsString], json: bool) -> Result<Vec<OsString>, Failure> {
    let mut words = rest.to_vec();
    if json && words.iter().all(|w| w != "--json") {
        match words.first() {
            Some(w) if ["list", "run", "sim"].iter().any(|knows| w == knows) => words.insert(1, "--json".into()),
            Some(w) if !w.to_string_lossy().starts_with('-') => {
                let w = w.display();
                return Err(Failure::usage(format!(
                    "`lab {w}` has no --json: of the lab, `list`, `run` and `sim` have"
                )));
            }
            _ => {}
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_asked_for_where_they_are_known() {
        let of = |text: &str, json| {
            let rest: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
            match words(&rest, json) {
                Ok(words) => words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
                Err(f) => f.message,
            }
        };
        assert_eq!(of("list B1", true), "list --json B1");
        assert_eq!(of("run B1 --json", true), "run B1 --json");
        assert_eq!(of("list", false), "list");
        assert_eq!(of("sim twolinks", true), "sim --json twolinks");
        assert_eq!(of("report out", false), "report out");
        assert!(of("report out", true).contains("`lab report` has no --json"));
        assert_eq!((of("", true), of("--help", true)), (String::new(), "--help".to_owned()));
    }
}
