//! Manual pages, written from the same description of the command line that `--help` reads.

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use clap::CommandFactory;
use std::path::Path;

/// Writes `neater.1`, `neater-get.1` and so on into `directory`.
pub(crate) fn run(directory: &Path, output: &Output) -> Result<Exit, Failure> {
    std::fs::create_dir_all(directory).map_err(|e| Failure::file("make", directory, &e))?;
    let mut neater = Cli::command();
    // Names them as man(1) does: neater-get.
    neater.build();
    write(&neater, directory, output)?;
    Ok(Exit::Ok)
}

/// Writes the page of a command and those of its subcommands.
fn write(command: &clap::Command, directory: &Path, output: &Output) -> Result<(), Failure> {
    let page = clap_mangen::Man::new(command.clone());
    let path = directory.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|e| Failure::file("write", &path, &e))?;
    std::fs::write(&path, text).map_err(|e| Failure::file("write", &path, &e))?;
    output.file(&path);
    command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
        .try_for_each(|c| write(c, directory, output))
}
