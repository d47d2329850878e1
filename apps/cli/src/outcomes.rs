//! What races have taught, from one run of the command to the next.
//!
//! *Responsible for* the file: where it is, whose it must be, and that it is replaced whole. *Not
//! responsible for* what is in it (`neater-race` writes and judges it).
//!
//! *Invariants*: only its owner can read it from the moment it exists; a file that others may
//! have written, or that is damaged, decides nothing; no run fails or waits because of it.

use crate::args::ConnectArgs;
use crate::output::Output;
use neater::Neater;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A longer file is none of ours.
const LONGEST: u64 = 1 << 20;

/// The file of one run.
pub(crate) struct Outcomes {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
}

impl Outcomes {
    /// Lets connections begin with what earlier runs have found, if that is wanted.
    pub(crate) fn load(neater: &Neater, args: &ConnectArgs, output: &Output) -> Self {
        let path = if args.no_cache { None } else { folder().map(|folder| folder.join("outcomes")) };
        if let Some(path) = &path
            && let Err(why) = take_in(neater, path)
            && (output.json || !output.quiet)
        {
            let text =
                format!("neater: {}: {why}: not used, and replaced when there is something to keep", path.display());
            output.report("cache", None, &text);
        }
        Self { path }
    }

    /// Keeps what this run has learnt beside what others have kept meanwhile.
    pub(crate) fn keep(&self, neater: &Neater, output: &Output) {
        let Some(path) = &self.path else { return };
        // One that cannot be used has been reported.
        let _ = take_in(neater, path);
        let Some(text) = neater.export_outcomes() else { return };
        if let Err(e) = replace(path, text.as_bytes())
            && output.verbose
        {
            output.report("cache", None, &format!("neater: {}: {e}: nothing is kept for the next run", path.display()));
        }
    }
}

/// Where the file lies: in the folder that the environment names, if it names one, or with the
/// user's caches.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("NEATER_CACHE") {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Some(caches?.join("neater"))
}

/// Lets what is in the file count. None is there: there is nothing.
///
/// # Errors
/// Why it cannot be used, for people.
fn take_in(neater: &Neater, path: &Path) -> Result<(), String> {
    match read(path) {
        Ok(Some(text)) => neater.import_outcomes(&text).map(drop).map_err(|e| e.to_string()),
        Ok(None) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match neater::policies::folder::open(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        opened => opened?,
    };
    let meta = file.metadata()?;
    if meta.uid() != user() {
        return Err(io::Error::other("another user's"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read or change it"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    // What is too long is refused by its reader.
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("no text"))
}

/// Puts the text in place of the file. A reader finds all of the one or all of the other.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::NotFound)?;
    let owner = |path: &Path| std::fs::metadata(path).map(|m| m.uid());
    // What root makes in a folder of another user's, as with sudo, that user could not replace.
    let above = folder.ancestors().find_map(|a| owner(a).ok());
    if user() == 0 && above != Some(0) {
        return Err(io::Error::other("the folder is another user's"));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if owner(folder)? != user() {
        return Err(io::Error::other("the folder is another user's"));
    }
    let new = folder.join(format!("outcomes.{}.new", std::process::id()));
    // What a process with the same number has left.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let done = file.write_all(text).and_then(|()| std::fs::rename(&new, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
