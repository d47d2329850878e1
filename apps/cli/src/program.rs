//! Programs of their own that `neater` becomes: they link what only they need.

use crate::failure::{Exit, Failure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Becomes `name`, which the folder `source` of the repository has; `topic` is the subcommand.
pub(crate) fn execute(name: &str, topic: &'static str, words: Vec<OsString>, source: &str) -> Result<Exit, Failure> {
    let Some(program) = find(name) else {
        return Err(Failure::new(Exit::Failed, topic, format!("{name} is neither beside neater nor on the PATH"))
            .advise(format!("in neater's source directory: cargo install --locked --path {source}"))
            .advise(format!("`neater help {topic}` describes it")));
    };
    let error = std::process::Command::new(&program).args(words).exec();
    Err(Failure::new(Exit::Failed, topic, format!("{}: {error}", program.display())))
}

fn find(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join(name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|f| f.join(name));
    beside.into_iter().chain(folders).find(|p| p.is_file())
}

/// The command line without the subcommand, for a program that reads the same arguments.
pub(crate) fn without(subcommand: &str, line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = line.into_iter().skip(1).collect();
    let mut value = false;
    let at = words.iter().position(|word| {
        // The filter of --log may be the word itself.
        let is_value = std::mem::replace(&mut value, word == "--log");
        !is_value && word == subcommand
    });
    at.map(|at| words.remove(at));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subcommand_alone_is_left_out() {
        let of = |line: &str| {
            let words = without("pm", line.split(' ').map(OsString::from));
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("neater pm --sock pm"), "--sock pm");
        assert_eq!(of("neater --json -v pm --bare"), "--json -v --bare");
        assert_eq!(of("neater --log pm pm --pib pm"), "--log pm --pib pm");
        assert_eq!(of("neater --log=pm pm"), "--log=pm");
    }
}
