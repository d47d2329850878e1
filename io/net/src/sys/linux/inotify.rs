//! Noticing that a file was replaced (inotify(7)).
//!
//! *Responsible for* watching directories: editors and network managers replace files rather than
//! write into them, and what is watched by its inode is then gone. *Deliberately not here*: which
//! files, and whether their contents changed.

use super::Result;
use super::errno::{check, from_io, retry};
use super::netlink::u32_at;
use super::poller::{Poller, own};
use crate::sys::DATA_NAMES;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Receive calls in one [`NameWatch::drain`].
const MAX_DRAIN: usize = 64;
/// Files watched at once.
const MAX_FILES: usize = 16;
/// The fixed part of `struct inotify_event`: watch 0, mask 4, cookie 8, length of the name 12.
const HEADER: usize = 16;
const MASK: u32 = libc::IN_CLOSE_WRITE
    | libc::IN_CREATE
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_ONLYDIR;

/// Notices changes of files.
#[derive(Debug)]
pub(crate) struct NameWatch {
    fd: OwnedFd,
    files: Vec<(i32, OsString)>,
}

impl NameWatch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// No descriptor left, or the user's limit of watches.
    pub(crate) fn open(poller: &Poller) -> Result<Self> {
        // SAFETY: takes numbers and returns a new descriptor.
        let fd = own(unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) }).map_err(|e| from_io(&e))?;
        poller.add_signal(fd.as_raw_fd(), DATA_NAMES)?;
        Ok(Self { fd, files: Vec::new() })
    }

    /// Watches these files and no others. One whose directory does not exist goes unwatched.
    pub(crate) fn watch(&mut self, files: &[PathBuf]) {
        let before = core::mem::take(&mut self.files);
        for file in files.iter().take(MAX_FILES) {
            let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { continue };
            let dir = if dir.as_os_str().is_empty() { OsStr::new(".") } else { dir.as_os_str() };
            let Ok(dir) = CString::new(dir.as_bytes()) else { continue };
            // SAFETY: `dir` is a string that ends with a zero.
            if let Ok(watch) = check(unsafe { libc::inotify_add_watch(self.fd.as_raw_fd(), dir.as_ptr(), MASK) }) {
                self.files.push((watch, name.to_owned()));
            }
        }
        for (watch, _) in before {
            if !self.files.iter().any(|(w, _)| *w == watch) {
                // SAFETY: takes numbers; a watch that is already gone is refused.
                unsafe { libc::inotify_rm_watch(self.fd.as_raw_fd(), watch) };
            }
        }
    }

    /// Whether one of the files may have changed since the last call.
    pub(crate) fn drain(&self) -> bool {
        let (mut buffer, mut changed) = ([0u8; 4096], false);
        for _ in 0..MAX_DRAIN {
            let fd = self.fd.as_raw_fd();
            // SAFETY: `buffer` is writable for its length.
            let n = retry(|| unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) });
            match n {
                Ok(n) if n > 0 => changed |= self.concerns(buffer.get(..n).unwrap_or(&[])),
                _ => break,
            }
        }
        changed
    }

    fn concerns(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let (Some(watch), Some(mask), Some(len)) = (u32_at(rest, 0), u32_at(rest, 4), u32_at(rest, 12)) {
            let Some(name) = rest.get(HEADER..).and_then(|r| r.get(..len as usize)) else { break };
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            let name = OsStr::from_bytes(&name[..end]);
            // Events were lost, or the directory itself has gone.
            let unclear = mask & (libc::IN_Q_OVERFLOW | libc::IN_IGNORED) != 0;
            if unclear || self.files.iter().any(|(w, n)| *w == watch as i32 && n == name) {
                return true;
            }
            rest = &rest[HEADER + len as usize..];
        }
        false
    }
}
