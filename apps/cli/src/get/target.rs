//! Where the bytes go.
//!
//! *Invariants*: a regular file appears under its name only when it is complete; until then its bytes are in `NAME.part`,
//! and what is needed to go on is in `NAME.part.json`. Nobody else writes to `NAME.part` meanwhile.

use crate::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a transfer is saved as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Stdout,
    /// A device or a pipe: there is nothing to rename.
    Device(PathBuf),
    /// A file.
    File(PathBuf),
}

/// What the server said of a file, to find out later whether it is still the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
    pub(crate) total: Option<u64>,
}

impl Version {
    /// What If-Range takes: a strong tag or a date (RFC 9110 section 13.1.5).
    pub(crate) fn validator(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|t| t.starts_with('"'));
        strong.or(self.modified.as_deref())
    }
}

impl Target {
    pub(crate) fn of(path: PathBuf) -> Self {
        match std::fs::metadata(&path) {
            Ok(m) if !m.is_file() && !m.is_dir() => Self::Device(path),
            _ => Self::File(path),
        }
    }

    pub(crate) fn is_stdout(&self) -> bool {
        *self == Self::Stdout
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdout => None,
            Self::Device(p) | Self::File(p) => Some(p),
        }
    }
}

/// An open target.
pub(crate) struct Sink {
    target: Target,
    out: Out,
    written: u64,
    version: Version,
}

enum Out {
    Stdout,
    File(File),
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

impl Sink {
    /// Opens a target; `resume`: behind what is there already.
    pub(crate) fn open(target: &Target, resume: bool) -> Result<Self, Failure> {
        let (out, mut written, mut version) = match target {
            Target::Stdout => (Out::Stdout, 0, Version::default()),
            Target::Device(path) => {
                let file = OpenOptions::new().write(true).open(path).map_err(|e| Failure::file("write", path, &e))?;
                (Out::File(file), 0, Version::default())
            }
            Target::File(path) => {
                if path.is_dir() {
                    let what = format!("{} is a folder", path.display());
                    return Err(Failure::new(Exit::Local, "file", what).advise("give a file's name with -o FILE"));
                }
                let part = beside(path, ".part");
                let bad = |e: &io::Error| Failure::file("write", &part, e);
                let file = OpenOptions::new().append(true).create(true).open(&part).map_err(|e| bad(&e))?;
                match file.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => {
                        let what = format!("{} is being written by another neater", part.display());
                        return Err(Failure::new(Exit::Local, "file", what));
                    }
                    // A file system without locks is no reason not to save a file.
                    Err(TryLockError::Error(_)) => {}
                }
                let length = file.metadata().map_err(|e| bad(&e))?.len();
                (Out::File(file), length, remembered(path))
            }
        };
        if !resume && written > 0 {
            (written, version) = (0, Version::default());
            if let (Out::File(file), Target::File(path)) = (&out, target) {
                file.set_len(0).map_err(|e| Failure::file("write", &beside(path, ".part"), &e))?;
            }
        }
        Ok(Self { target: target.clone(), out, written, version })
    }

    /// Bytes that are there.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// What the server said of the file that the bytes are of.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// The bytes are of this file, from which and since when they come.
    pub(crate) fn remember(&mut self, url: &str, version: Version) -> Result<(), Failure> {
        if self.version == version {
            return Ok(());
        }
        if let Target::File(path) = &self.target {
            let note = beside(path, ".part.json");
            let value =
                json!({ "url": url, "etag": version.etag, "modified": version.modified, "total": version.total });
            std::fs::write(&note, format!("{value}\n")).map_err(|e| Failure::file("write", &note, &e))?;
        }
        self.version = version;
        Ok(())
    }

    /// From the beginning again; false if what was written cannot be taken back.
    pub(crate) fn restart(&mut self) -> Result<bool, Failure> {
        if self.written == 0 {
            return Ok(true);
        }
        let (Out::File(file), Target::File(path)) = (&self.out, &self.target) else { return Ok(false) };
        file.set_len(0).map_err(|e| Failure::file("write", &beside(path, ".part"), &e))?;
        self.written = 0;
        self.version = Version::default();
        Ok(true)
    }

    /// Writes all of it. May block.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        let mut rest = data;
        while !rest.is_empty() {
            let n = match &mut self.out {
                Out::Stdout => io::stdout().lock().write(rest),
                Out::File(file) => file.write(rest),
            };
            match n {
                Ok(0) => return Err(self.bad(&io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.written += n as u64;
                    rest = &rest[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.bad(&e)),
            }
        }
        Ok(())
    }

    /// Everything is there: it becomes the file. May block.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match (&mut self.out, &self.target) {
            (Out::Stdout, _) => io::stdout().lock().flush().map_err(|e| self.bad(&e)),
            (Out::File(file), Target::File(path)) => {
                let part = beside(path, ".part");
                // A disk that is full or broken may tell only now; under its name the file must be whole.
                file.sync_data().map_err(|e| Failure::file("write", &part, &e))?;
                std::fs::rename(&part, path).map_err(|e| Failure::file("rename", &part, &e))?;
                let _ = std::fs::remove_file(beside(path, ".part.json"));
                Ok(())
            }
            (Out::File(file), _) => file.flush().map_err(|e| self.bad(&e)),
        }
    }

    /// What is kept, in words; `None` when there is nothing to go on with.
    pub(crate) fn kept(&self) -> Option<String> {
        let Target::File(path) = &self.target else { return None };
        let part = beside(path, ".part");
        if self.written == 0 {
            let _ = std::fs::remove_file(&part);
            let _ = std::fs::remove_file(beside(path, ".part.json"));
            return None;
        }
        let of = self.version.total.map_or_else(String::new, |t| format!(" of {t}"));
        Some(format!("{}{of} bytes are kept in {}", self.written, part.display()))
    }

    fn bad(&self, e: &io::Error) -> Failure {
        match &self.target {
            Target::Stdout if e.kind() == io::ErrorKind::BrokenPipe => {
                Failure::new(Exit::Local, "pipe", "whoever reads the output has stopped reading")
            }
            Target::Stdout => Failure::file("write", Path::new("standard output"), e),
            Target::Device(path) => Failure::file("write", path, e),
            Target::File(path) => Failure::file("write", &beside(path, ".part"), e),
        }
    }
}

/// What an earlier run has noted.
fn remembered(path: &Path) -> Version {
    let Ok(text) = std::fs::read(beside(path, ".part.json")) else { return Version::default() };
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Version { etag: text("etag"), modified: text("modified"), total: value["total"].as_u64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_tag_does_not_vouch_for_a_part() {
        let weak = Version { etag: Some("W/\"a\"".into()), modified: Some("date".into()), total: None };
        assert_eq!(weak.validator(), Some("date"));
        let strong = Version { etag: Some("\"a\"".into()), ..weak };
        assert_eq!(strong.validator(), Some("\"a\""));
    }
}
