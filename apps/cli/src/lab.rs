//! The laboratory is a program of its own: it links what only measurements need.

use crate::args::LabArgs;
use crate::failure::{Exit, Failure};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Becomes neater-lab.
pub(crate) fn run(args: &LabArgs) -> Result<Exit, Failure> {
    let Some(program) = find() else {
        return Err(Failure::new(Exit::Failed, "lab", "neater-lab is neither beside neater nor on the PATH")
            .advise("in neater's source directory: cargo install --locked --path sim/lab"));
    };
    let error = std::process::Command::new(&program).args(&args.rest).exec();
    Err(Failure::new(Exit::Failed, "lab", format!("{}: {error}", program.display())))
}

fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join("neater-lab")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|f| f.join("neater-lab"));
    beside.into_iter().chain(folders).find(|p| p.is_file())
}
