//! The files that configure name resolution.
//!
//! *Responsible for* reading them when first asked and reporting when their contents have changed.
//! *Deliberately not here*: what they mean.
//!
//! *Invariants*: at most [`MAX_FILE`] bytes of a file are read, from regular files only, so that
//! nothing that stands in their place can block or fill the process.

use super::paths::SETTLE;
use crate::sys::{self, NameWatch, Poller};
use neater_base::Instant;
use neater_base::net::{NameConfig, NetError};
use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// More of a file is not read.
const MAX_FILE: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Names {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    config: OnceCell<NameConfig>,
    /// Why there is no `config` although it was asked for.
    error: Cell<Option<NetError>>,
    /// `None`: not yet asked, or the system does not let us watch.
    watch: RefCell<Option<NameWatch>>,
    due: Option<Instant>,
}

impl Names {
    pub(crate) const fn new(resolv_conf: PathBuf, hosts: PathBuf) -> Self {
        Self {
            resolv_conf,
            hosts,
            config: OnceCell::new(),
            error: Cell::new(None),
            watch: RefCell::new(None),
            due: None,
        }
    }

    /// The texts; `None` when they cannot be read now, for lack of a descriptor perhaps.
    pub(crate) fn config(&self, poller: &Poller) -> Option<&NameConfig> {
        if self.config.get().is_none() {
            // Watching begins before reading, so that no change falls between.
            let mut watch = self.watch.borrow_mut();
            if watch.is_none() {
                *watch = NameWatch::open(poller).ok();
            }
            self.watch_files(watch.as_mut());
            let read = self.read();
            self.error.set(read.as_ref().err().map(sys::io_error));
            let _ = self.config.set(read.ok()?);
        }
        self.config.get()
    }

    /// Why the texts could not be read when they were last asked for.
    pub(crate) fn error(&self) -> Option<NetError> {
        self.error.get()
    }

    /// What has been read so far, without looking.
    pub(crate) fn known(&self) -> Option<&NameConfig> {
        self.config.get()
    }

    fn watch_files(&self, watch: Option<&mut NameWatch>) {
        if let Some(watch) = watch {
            // Often a link into a directory of the network manager, which is where the change
            // happens.
            let mut files = vec![self.resolv_conf.clone(), self.hosts.clone()];
            files.extend([&self.resolv_conf, &self.hosts].iter().filter_map(|f| f.canonicalize().ok()));
            watch.watch(&files);
        }
    }

    fn read(&self) -> io::Result<NameConfig> {
        Ok(NameConfig { resolv_conf: read_file(&self.resolv_conf)?, hosts: read_file(&self.hosts)? })
    }

    /// The watch has something.
    pub(crate) fn notice(&mut self, now: Instant) {
        if self.watch.borrow().as_ref().is_some_and(NameWatch::drain) {
            // A file that is being replaced is briefly empty or absent.
            self.due.get_or_insert(now + SETTLE);
        }
    }

    /// When [`Names::settle`] wants to be called.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Reads again; returns whether the contents have changed.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        // A link may lead elsewhere now.
        self.watch_files(self.watch.borrow_mut().as_mut());
        let new = self.read();
        match (self.config.get_mut(), new) {
            (Some(old), Ok(new)) if *old != new => {
                *old = new;
                true
            }
            _ => false,
        }
    }
}

/// The beginning of a regular file; nothing of anything else, or of what may not be read.
///
/// # Errors
/// When it may be there and cannot be read now.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let absent = |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    // Opening a pipe would wait for its other end.
    if !path.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(Vec::new());
    }
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut text).map(|_| text),
        Err(e) if absent(&e) => Ok(text),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_reads_as_nothing_and_a_long_file_is_cut() {
        for path in ["/", "/dev/zero", "/nonexistent/file"] {
            assert!(read_file(Path::new(path)).unwrap().is_empty());
        }
        let path = std::env::temp_dir().join(format!("neater-names-{}", std::process::id()));
        std::fs::write(&path, vec![b'#'; MAX_FILE as usize + 5]).unwrap();
        assert_eq!(read_file(&path).unwrap().len() as u64, MAX_FILE);
        std::fs::remove_file(&path).unwrap();
    }
}
