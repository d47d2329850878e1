//! Where the bytes go.
//!
//! *Invariants*: a regular file appears under its name only when it is complete, and replaces what
//! was there by a rename; until then its bytes are in `NAME.part`, and what is needed to go on is
//! in `NAME.part.json`. No other program writes to `NAME.part` meanwhile. Nothing that was there
//! before is changed until a server's answer is there to take its place, and what neater did not
//! write is never changed. What belongs to another user is neither written to nor believed: the
//! owner of a file may change it meanwhile, and would own the download.

use crate::failure::{Exit, Failure};
use crate::output::bytes;
use bytes::Bytes;
use core::time::Duration;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The largest `NAME.part.json` that is looked at; ours are far smaller.
const NOTE_MAX: u64 = 64 << 10;
/// How much older than its answer a file must be for its date to distinguish versions (RFC 9110
/// section 8.8.2.2: far enough for differences of clocks not to matter).
const DATE_GAP: Duration = Duration::from_secs(60);

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

/// The server's description of a file, to find out later whether it is still the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
    /// When the server sent it, by its own clock.
    pub(crate) date: Option<String>,
    pub(crate) total: Option<u64>,
}

impl Version {
    /// What If-Range takes (RFC 9110 section 13.1.5): a strong tag, or where there is no tag at
    /// all, a date that is a strong validator. `None`: nothing can show whether the file is still
    /// the same.
    pub(crate) fn validator(&self) -> Option<&str> {
        match &self.etag {
            Some(tag) => Some(tag.as_str()).filter(|t| is_strong(t)),
            None => self.modified.as_deref().filter(|m| self.is_well_after(m)),
        }
    }

    /// Whether another answer is about the same version: no field that both have differs.
    pub(crate) fn is_also(&self, other: &Self) -> bool {
        let agree = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
        agree(&self.etag, &other.etag) && agree(&self.modified, &other.modified)
    }

    fn is_well_after(&self, modified: &str) -> bool {
        let date = self.date.as_deref().and_then(|d| httpdate::parse_http_date(d).ok());
        match (httpdate::parse_http_date(modified), date) {
            (Ok(modified), Some(date)) => date.duration_since(modified).is_ok_and(|d| d >= DATE_GAP),
            _ => false,
        }
    }
}

/// A tag of RFC 9110 section 8.8.3 that is not weak.
fn is_strong(tag: &str) -> bool {
    let inner = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    inner.is_some_and(|i| i.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x7e)))
}

impl Target {
    pub(crate) fn of(path: PathBuf) -> Self {
        match std::fs::metadata(&path) {
            Ok(m) if !m.is_file() && !m.is_dir() => Self::Device(path),
            _ => Self::File(path),
        }
    }

    /// The names that a transfer to it uses while it goes on.
    pub(crate) fn uses(&self) -> Vec<PathBuf> {
        match self {
            Self::File(p) => {
                let kept = [".part", ".part.json", ".multi", ".multi.json"].map(|end| beside(p, end));
                core::iter::once(p.clone()).chain(kept).collect()
            }
            Self::Device(p) => vec![p.clone()],
            Self::Stdout => Vec::new(),
        }
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
    out: Arc<File>,
    /// A pipe or a device, whose writer may have to wait for as long as a reader likes, or a disk
    /// that takes its time.
    slow: bool,
    /// It is a file or the null device, and no reader is waited for.
    takes_all: bool,
    /// Writes in a row to a file, or to what takes everything, that were not slow any more.
    quick: u32,
    /// After how many such writes the file counts as quick again; twice as many each time.
    patience: u32,
    /// Bytes that were taken: those that are written, being written, or held.
    written: u64,
    /// Of a slow target: what is being written elsewhere, and what is to be written next.
    writing: Option<Writing>,
    held: Vec<Bytes>,
    held_bytes: usize,
    version: Version,
    /// The part holds bytes that do not count, and are given up when there is an answer to take
    /// their place.
    stale: bool,
    /// The part was made by us: it may be removed again.
    made: bool,
    /// The note beside the part is ours.
    noted: bool,
    finished: bool,
    _open: Open,
}

/// How many targets are open in this process.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Counts a target that is open.
struct Open;

impl Open {
    fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is being written on another thread.
struct Writing {
    task: tokio::task::JoinHandle<(u64, io::Result<()>, bool)>,
    bytes: usize,
}

/// What is held for a slow target while it is busy, in bytes: then the writer waits.
const HELD: usize = 256 * 1024;
/// A write to a file that takes longer goes to another thread from then on: a transport that is not
/// attended to for as long slows down.
const LONG: Duration = Duration::from_millis(20);
/// After so many shorter ones in a row it was the machine that was busy, and not the file that is
/// slow.
const QUICK: u32 = 32;
/// A file of at most so many bytes is brought to the disk by the thread that has written it, unless
/// that has taken longer than [`SHORT`] before: where it takes microseconds, handing it over takes
/// longer.
const SMALL: u64 = 1 << 20;
const SHORT: Duration = Duration::from_millis(2);

/// The most bytes of a file's name on the file systems that there are.
const NAME_MAX: usize = 255;
/// What is put behind a name, at most.
const LONGEST_END: usize = ".multi.json.new".len();

/// The name of what is kept beside a file: its own with something behind it. A name that has no
/// room for that is cut, and distinguished from others by a digest.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let own = path.file_name().unwrap_or_default();
    if own.len() + LONGEST_END <= NAME_MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        return name.into();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, own.as_encoded_bytes());
    let tail: String = digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let mut kept = own.to_string_lossy().into_owned();
    while kept.len() + 1 + tail.len() + LONGEST_END > NAME_MAX {
        kept.pop();
    }
    path.with_file_name(format!("{kept}-{tail}{end}"))
}

impl Sink {
    /// Opens a target for what comes from `url`, and changes nothing that is there. A part that can
    /// be gone on with is; one that this transfer would destroy is refused, unless the server's
    /// answer shows that it is of no use.
    pub(crate) async fn open(target: &Target, url: &str, resume: bool) -> Result<Self, Failure> {
        let of = |out: File| {
            // open_part opens nothing but files.
            let is_file = matches!(target, Target::File(_));
            let takes_all = is_file || out.metadata().is_ok_and(|m| m.is_file() || is_null(&m));
            Self {
                target: target.clone(),
                slow: !takes_all,
                takes_all,
                quick: 0,
                patience: QUICK,
                out: Arc::new(out),
                written: 0,
                writing: None,
                held: Vec::new(),
                held_bytes: 0,
                version: Version::default(),
                stale: false,
                made: false,
                noted: false,
                finished: false,
                _open: Open::new(),
            }
        };
        match target {
            Target::Stdout => {
                // Past the buffer of the standard library, which cuts at lines.
                let out = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
                let bad = |e| super::file("write", Path::new("standard output"), &e);
                Ok(of(out.map_err(bad)?.into()))
            }
            Target::Device(path) => {
                // A pipe without a reader does not open.
                let there = path.clone();
                let opened = tokio::task::spawn_blocking(move || OpenOptions::new().write(true).open(there)).await;
                let opened = opened.unwrap_or_else(|e| Err(io::Error::other(e)));
                Ok(of(opened.map_err(|e| super::file("write", path, &e))?))
            }
            Target::File(path) => {
                let (file, made) = open_part(path)?;
                let mut sink = of(file);
                sink.made = made;
                sink.look_at(path, url, resume)?;
                Ok(sink)
            }
        }
    }

    /// Decides what becomes of the part that is there.
    fn look_at(&mut self, path: &Path, url: &str, resume: bool) -> Result<(), Failure> {
        let part = beside(path, ".part");
        let length = match self.made {
            true => 0,
            false => self.out.metadata().map_err(|e| super::file("write", &part, &e))?.len(),
        };
        let refuse = |what: String| Failure::new(Exit::Local, "part", what);
        let note = match noted(path)? {
            Noted::Foreign => {
                let what = format!("{} is there, and is not neater's", beside(path, ".part.json").display());
                return Err(refuse(what).advise("move it away, or choose another name with -o FILE"));
            }
            Noted::Nothing if length == 0 => return Ok(()),
            Noted::Nothing => {
                let what = format!(
                    "{} exists, and nothing shows that neater wrote it or of what it is a part",
                    part.display()
                );
                return Err(refuse(what).advise("move it away, or choose another name with -o FILE"));
            }
            Noted::Ours(note) => note,
        };
        self.noted = true;
        if length == 0 {
            return Ok(());
        }
        let kept = format!("{} holds {} of {}", part.display(), bytes(length), note.url);
        if note.url != url {
            let what = format!("{kept}, and {url} is asked for");
            return Err(refuse(what).advise("remove it if it is of no use, or choose another name with -o FILE"));
        }
        if note.version.validator().is_none() {
            if resume {
                let what = format!("{kept}, and the server sent nothing that shows whether the file is still the same");
                return Err(refuse(what).advise("fetch it from the start, without -C"));
            }
            self.stale = true;
            return Ok(());
        }
        (self.written, self.version) = (length, note.version);
        Ok(())
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Bytes that are there, or will be without more being asked for.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The server's description of the file that the bytes belong to.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// An answer with the whole has come: what was there before is given up for it.
    pub(crate) fn begin(&mut self, url: &str, version: Version) -> Result<(), Failure> {
        if core::mem::take(&mut self.stale)
            && let Target::File(path) = &self.target
        {
            // Before the note: a note never speaks of bytes of another version.
            self.out.set_len(0).map_err(|e| super::file("write", &beside(path, ".part"), &e))?;
        }
        self.remember(url, version)
    }

    /// The bytes are of this file, from which and since when they come.
    pub(crate) fn remember(&mut self, url: &str, version: Version) -> Result<(), Failure> {
        if self.noted && self.version == version {
            return Ok(());
        }
        if let Target::File(path) = &self.target {
            let note = beside(path, ".part.json");
            let value = json!({
                "url": url, "etag": version.etag, "modified": version.modified, "date": version.date,
                "total": version.total,
            });
            let written = write_note(&note, &format!("{value}\n"), self.noted);
            self.noted = true;
            written.map_err(|e| super::file("write", &note, &e))?;
        }
        self.version = version;
        Ok(())
    }

    /// From the beginning again, once there is an answer; false if what was written cannot be taken
    /// back.
    pub(crate) fn restart(&mut self) -> bool {
        if self.written == 0 {
            return true;
        }
        if !matches!(self.target, Target::File(_)) {
            return false;
        }
        self.stale = true;
        self.written = 0;
        self.version = Version::default();
        true
    }

    /// Writes all of it. What a reader keeps waiting is written on another thread, in pieces as
    /// large as have come meanwhile, so that the caller may stop waiting.
    pub(crate) async fn write(&mut self, data: Bytes) -> Result<(), Failure> {
        self.written += data.len() as u64;
        if self.slow {
            self.held_bytes += data.len();
            self.held.push(data);
            let busy = self.writing.as_ref().is_some_and(|w| !w.task.is_finished());
            if !busy && self.quick >= self.patience {
                self.flush().await?;
                if self.quick > self.patience {
                    (self.slow, self.quick, self.patience) = (false, 0, self.patience.saturating_mul(2));
                }
                return Ok(());
            }
            return if busy && self.held_bytes < HELD { Ok(()) } else { self.pass_on().await };
        }
        let began = std::time::Instant::now();
        let (n, done) = write_all(&self.out, std::slice::from_ref(&data));
        self.slow = began.elapsed() > LONG;
        done.map_err(|e| {
            self.written -= data.len() as u64 - n;
            self.bad(&e)
        })
    }

    /// Waits for what is being written, and writes what is held.
    async fn pass_on(&mut self) -> Result<(), Failure> {
        self.settle().await?;
        let (out, held) = (self.out.clone(), core::mem::take(&mut self.held));
        let bytes = core::mem::take(&mut self.held_bytes);
        let takes_all = self.takes_all;
        let task = tokio::task::spawn_blocking(move || {
            let began = std::time::Instant::now();
            let (n, done) = write_all(&out, &held);
            (n, done, takes_all && began.elapsed() <= LONG)
        });
        self.writing = Some(Writing { task, bytes });
        Ok(())
    }

    /// Waits for what is being written.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(Writing { task, bytes }) = self.writing.take() else { return Ok(()) };
        let (n, done, quick) = task.await.unwrap_or_else(|e| (0, Err(io::Error::other(e)), false));
        self.quick = if quick { self.quick + 1 } else { 0 };
        done.map_err(|e| {
            let held = core::mem::take(&mut self.held_bytes);
            self.held.clear();
            self.written -= (bytes + held) as u64 - n;
            self.bad(&e)
        })
    }

    /// Writes what is held, and waits until it is written.
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        if self.held_bytes > 0 {
            self.pass_on().await?;
        }
        self.settle().await
    }

    /// Everything is there: it becomes the file.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        self.flush().await?;
        let Target::File(path) = &self.target else { return Ok(()) };
        let part = beside(path, ".part");
        // A disk that is full or broken may report that only now; under its name the file must be
        // whole.
        self.sync().await.map_err(|e| super::file("write", &part, &e))?;
        if !is_still(&part, &self.out) {
            let what = format!("{} was removed or replaced while it was being written", part.display());
            return Err(Failure::new(Exit::Local, "file", what).advise("ask for it again"));
        }
        keep_mode(path, &self.out).map_err(|e| super::file("write", &part, &e))?;
        std::fs::rename(&part, path).map_err(|e| super::file("rename", &part, &e))?;
        self.finished = true;
        if self.noted {
            let _ = std::fs::remove_file(beside(path, ".part.json"));
        }
        Ok(())
    }

    /// Brings what is written to the disk. Where that takes long, or may, other transfers go on
    /// meanwhile.
    async fn sync(&self) -> io::Result<()> {
        /// A small file was not brought to the disk at once.
        static SLOW: AtomicBool = AtomicBool::new(false);
        let alone = OPEN.load(Ordering::Relaxed) == 1;
        if alone && self.written <= SMALL && !SLOW.load(Ordering::Relaxed) {
            let began = std::time::Instant::now();
            let synced = self.out.sync_data();
            if began.elapsed() > SHORT {
                SLOW.store(true, Ordering::Relaxed);
            }
            return synced;
        }
        let out = self.out.clone();
        let synced = tokio::task::spawn_blocking(move || out.sync_data()).await;
        synced.unwrap_or_else(|e| Err(io::Error::other(e)))
    }

    /// What is kept, in words; `None` when there is nothing.
    pub(crate) fn kept(&self) -> Option<String> {
        let Target::File(path) = &self.target else { return None };
        let part = beside(path, ".part");
        if !is_still(&part, &self.out) {
            // What is there now, if anything, is not ours.
            return None;
        }
        if self.stale {
            return Some(format!("{} is left as it was", part.display()));
        }
        let of = self.version.total.map_or_else(String::new, |t| format!(" of {t}"));
        (self.written > 0).then(|| format!("{}{of} bytes are kept in {}", self.written, part.display()))
    }

    /// Whether a later run can go on with what is kept.
    pub(crate) fn can_be_continued(&self) -> bool {
        self.written > 0 && self.is_continuable()
    }

    /// Whether what comes now will be something to go on with.
    pub(crate) fn is_continuable(&self) -> bool {
        matches!(self.target, Target::File(_)) && self.version.validator().is_some()
    }

    fn bad(&self, e: &io::Error) -> Failure {
        match &self.target {
            Target::Stdout if e.kind() == io::ErrorKind::BrokenPipe => {
                Failure::new(Exit::Local, "pipe", "the reader of the output has stopped reading")
            }
            Target::Stdout => super::file("write", Path::new("standard output"), e),
            Target::Device(path) => super::file("write", path, e),
            Target::File(path) => super::file("write", &beside(path, ".part"), e),
        }
    }
}

/// A part that was made and never written to is removed.
impl Drop for Sink {
    fn drop(&mut self) {
        let Target::File(path) = &self.target else { return };
        if self.finished || !self.made || self.written > 0 {
            return;
        }
        let part = beside(path, ".part");
        if is_still(&part, &self.out) {
            let _ = std::fs::remove_file(&part);
            if self.noted {
                let _ = std::fs::remove_file(beside(path, ".part.json"));
            }
        }
    }
}

/// Opens the part of a file for appending, or makes it, and keeps others from writing to it;
/// whether it was made.
fn open_part(path: &Path) -> Result<(File, bool), Failure> {
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        let what = format!("{} is a folder", path.display());
        return Err(Failure::new(Exit::Local, "file", what).advise("give a file's name with -o FILE"));
    }
    let part = beside(path, ".part");
    let bad = |e: &io::Error| super::file("write", &part, e);
    let mut how = OpenOptions::new();
    how.append(true);
    // This follows no link.
    let (file, made) = match how.clone().create_new(true).open(&part) {
        Ok(file) => (file, true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => (open_existing_part(&part, &how)?, false),
        Err(e) => return Err(bad(&e)),
    };
    if made {
        // Bytes that are for few are not shown to all while they come.
        take_mode(there.as_ref(), &file).map_err(|e| bad(&e))?;
    }
    // A file system without locks is no reason not to save a file.
    let locked_by_another = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    // Between its making and the lock another process may have written to it, or finished it.
    let taken = made && (file.metadata().map_err(|e| bad(&e))?.len() > 0 || !is_still(&part, &file));
    if locked_by_another || taken {
        let what = format!("{} is being written by another neater", part.display());
        return Err(Failure::new(Exit::Local, "file", what));
    }
    Ok((file, made))
}

/// Opens a part that is there, if it is a file of this user that has no other name.
fn open_existing_part(part: &Path, how: &OpenOptions) -> Result<File, Failure> {
    match std::fs::symlink_metadata(part) {
        Ok(m) if m.is_symlink() || is_shared(&m) => return Err(elsewhere(part)),
        Ok(m) if !m.is_file() && !m.is_dir() => {
            return Err(Failure::new(Exit::Local, "file", format!("{} is not a file", part.display())));
        }
        _ => {}
    }
    let file = how.open(part).map_err(|e| super::file("write", part, &e))?;
    if !is_still(part, &file) {
        // It was replaced since the look above.
        return Err(elsewhere(part));
    }
    if !is_mine(&file) {
        return Err(of_another(part));
    }
    Ok(file)
}

/// Whether a file belongs to the user of this process: other users know what is in theirs, and may
/// write to it.
pub(super) fn is_mine(file: &File) -> bool {
    #[cfg(unix)]
    return file.metadata().is_ok_and(|m| is_users(&m));
    #[cfg(not(unix))]
    return file.metadata().is_ok();
}

/// The same, of what was looked at.
#[cfg(unix)]
fn is_users(m: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(m) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_users(_: &std::fs::Metadata) -> bool {
    true
}

pub(super) fn of_another(path: &Path) -> Failure {
    let what = format!("{} is another user's: what is in it may be anything", path.display());
    Failure::new(Exit::Local, "part", what).advise("remove it, or choose another name with -o FILE")
}

fn elsewhere(path: &Path) -> Failure {
    let what = format!("{} is a link to something else, and is not neater's", path.display());
    Failure::new(Exit::Local, "part", what).advise("move it away, or choose another name with -o FILE")
}

/// Whether a file has other names.
fn is_shared(m: &std::fs::Metadata) -> bool {
    #[cfg(unix)]
    return m.is_file() && std::os::unix::fs::MetadataExt::nlink(m) > 1;
    #[cfg(not(unix))]
    return m.is_symlink();
}

/// The users who may read and write the old file may do so with the new one, and no others.
pub(super) fn keep_mode(path: &Path, file: &File) -> io::Result<()> {
    take_mode(std::fs::metadata(path).ok().as_ref(), file)
}

/// The same, of what was looked at.
fn take_mode(there: Option<&std::fs::Metadata>, file: &File) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(there) = there.filter(|m| m.is_file()) {
        use std::os::unix::fs::PermissionsExt;
        let mode = there.permissions().mode() & 0o777;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    #[cfg(not(unix))]
    let _ = (there, file);
    Ok(())
}

/// Writes what is to be remembered: over an earlier note of ours, or where nothing is, or nothing
/// is in it. An earlier note is never shorter in between, and needs no further room on the disk:
/// until the new one is there, the old one is.
fn write_note(note: &Path, text: &str, ours: bool) -> io::Result<()> {
    let mut how = OpenOptions::new();
    how.write(true);
    let mut file = match how.clone().create_new(true).open(note) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => how.open(note)?,
        // It was made just now, and has nothing in it.
        made => return made?.write_all(text.as_bytes()),
    };
    let length = file.metadata()?.len();
    if !is_still(note, &file) || !is_mine(&file) || !ours && length > 0 {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not neater's"));
    }
    // What follows the object is blank, and no more than was there.
    let blank = usize::try_from(length.min(NOTE_MAX)).unwrap_or_default().saturating_sub(text.len());
    file.write_all(format!("{text}{:blank$}", "").as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Writes all of it: how much was, and what kept the rest from it.
fn write_all(mut out: &File, pieces: &[Bytes]) -> (u64, io::Result<()>) {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let (mut rest, mut written) = (&mut slices[..], 0);
    // Without what is empty: nothing more to write is no failure.
    IoSlice::advance_slices(&mut rest, 0);
    let done = loop {
        if rest.is_empty() {
            break Ok(());
        }
        match out.write_vectored(rest) {
            Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                written += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => break Err(e),
        }
    };
    (written, done)
}

/// Whether it is what takes everything at once and keeps nothing.
fn is_null(m: &std::fs::Metadata) -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        // Device 1, 3, as Linux numbers it.
        m.file_type().is_char_device() && m.rdev() == 0x103
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = m;
        false
    }
}

/// Opens a file of ours that is there: no link to another, and nothing that has other names.
pub(super) fn open_same(path: &Path, how: &OpenOptions) -> Result<File, Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_symlink() || is_shared(&m) => return Err(elsewhere(path)),
        Ok(m) if !m.is_file() => {
            return Err(Failure::new(Exit::Local, "file", format!("{} is not a file", path.display())));
        }
        _ => {}
    }
    let file = how.open(path).map_err(|e| super::file("write", path, &e))?;
    if is_still(path, &file) { Ok(file) } else { Err(elsewhere(path)) }
}

/// Whether a path still names this open file.
pub(super) fn is_still(path: &Path, file: &File) -> bool {
    #[cfg(unix)]
    let id = |m: std::fs::Metadata| (std::os::unix::fs::MetadataExt::dev(&m), std::os::unix::fs::MetadataExt::ino(&m));
    #[cfg(not(unix))]
    let id = |m: std::fs::Metadata| m.len();
    match (std::fs::symlink_metadata(path).map(id), file.metadata().map(id)) {
        (Ok(there), Ok(ours)) => there == ours,
        (Err(e), _) => e.kind() != io::ErrorKind::NotFound,
        (_, Err(_)) => true,
    }
}

/// What an earlier run has noted.
struct Note {
    url: String,
    version: Version,
}

/// What is beside a part.
enum Noted {
    Nothing,
    Ours(Note),
    /// Something that is not ours.
    Foreign,
}

fn noted(path: &Path) -> Result<Noted, Failure> {
    let there = beside(path, ".part.json");
    // Not what a link leads to: what we write is no link.
    match std::fs::symlink_metadata(&there) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Noted::Nothing),
        Err(e) => return Err(super::file("read", &there, &e)),
        Ok(m) if is_shared(&m) || !is_users(&m) => return Ok(Noted::Foreign),
        Ok(m) if m.is_file() && m.len() == 0 => return Ok(Noted::Nothing),
        Ok(m) if m.is_file() && m.len() <= NOTE_MAX => {}
        Ok(_) => return Ok(Noted::Foreign),
    }
    let mut text = Vec::new();
    // It may be another than the one that was looked at.
    let opened = neater::policies::folder::open(&there).ok().filter(is_mine);
    let read = opened.and_then(|f| f.take(NOTE_MAX).read_to_end(&mut text).ok());
    Ok(read.and_then(|_| parse(&text)).map_or(Noted::Foreign, Noted::Ours))
}

/// The content of a note; `None` if it is none of ours.
fn parse(text: &[u8]) -> Option<Note> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let word = |name: &str| value[name].as_str().map(str::to_owned);
    // Every note of ours has these two.
    let (url, total) = (word("url")?, value.get("total")?);
    let version = Version { etag: word("etag"), modified: word("modified"), date: word("date"), total: total.as_u64() };
    Some(Note { url, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: Option<&str>, modified: Option<&str>, date: Option<&str>) -> Version {
        let own = |t: Option<&str>| t.map(str::to_owned);
        Version { etag: own(etag), modified: own(modified), date: own(date), total: None }
    }

    #[tokio::test]
    async fn what_a_slow_target_holds_is_written_in_order_and_before_a_new_beginning() {
        let dir = std::env::temp_dir().join(format!("neater-slow-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("made");
        let path = dir.join("file");
        let mut sink = Sink::open(&Target::File(path.clone()), "u", false).await.expect("opened");
        sink.begin("u", version(Some("\"1\""), None, None)).expect("begun");
        sink.slow = true;
        let pieces: Vec<Bytes> = (0..200u8).map(|i| vec![i; 5000].into()).collect();
        for piece in &pieces {
            sink.write(piece.clone()).await.expect("taken");
        }
        assert_eq!(sink.written(), 1_000_000);
        sink.flush().await.expect("written");
        assert!(std::fs::read(beside(&path, ".part")).expect("there") == pieces.concat());
        // Another version: nothing of this one is left, or comes behind it.
        assert!(sink.restart());
        sink.begin("u", version(Some("\"2\""), None, None)).expect("begun");
        sink.write(Bytes::from_static(b"other")).await.expect("taken");
        sink.finish().await.expect("finished");
        assert_eq!(std::fs::read(&path).expect("there"), b"other");
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn a_note_is_replaced_without_being_lost_in_between() {
        let dir = std::env::temp_dir().join(format!("neater-note-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("made");
        let (path, note) = (dir.join("f"), dir.join("f.part.json"));
        let text = |url: &str| format!("{{\"url\":\"{url}\",\"total\":9}}\n");
        let says = || match noted(&path) {
            Ok(Noted::Ours(n)) => n.url,
            Ok(Noted::Nothing) => "nothing".into(),
            _ => "foreign".into(),
        };
        assert_eq!(says(), "nothing");
        write_note(&note, &text("http://long/er"), false).expect("written");
        assert_eq!(says(), "http://long/er");
        assert!(write_note(&note, &text("x"), false).is_err(), "somebody's is there");
        // Shorter, and longer again.
        for url in ["http://a", "http://long/er/still"] {
            write_note(&note, &text(url), true).expect("written");
            assert_eq!((says().as_str(), std::fs::read_to_string(&note).expect("text")), (url, text(url)));
        }
        for bad in ["", " ", "{}", "[]", "{\"url\":1,\"total\":1}", "{\"url\":\"u\"}", "\u{fe}"] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn only_what_tells_versions_apart_for_certain_vouches_for_a_part() {
        let (old, new) = (Some("Sat, 21 Nov 2026 07:00:46 GMT"), Some("Sat, 21 Nov 2026 07:10:46 GMT"));
        assert_eq!(version(Some("\"a\""), old, new).validator(), Some("\"a\""));
        // RFC 9110 section 13.1.5: with a weak tag there is a tag, so the date is of no use either.
        assert_eq!(version(Some("W/\"a\""), old, new).validator(), None);
        assert_eq!(version(None, old, new).validator(), old);
        // Section 8.8.2.2: two versions of one second have the same date.
        assert_eq!(version(None, old, old).validator(), None);
        assert_eq!(version(None, new, old).validator(), None);
        assert_eq!(version(None, old, None).validator(), None);
        assert_eq!(version(None, Some("yesterday"), new).validator(), None);
        for bad in ["\"", "a", "\"a\"b\"", "\"a\nb\"", ""] {
            assert_eq!(version(Some(bad), None, None).validator(), None, "{bad}");
        }
    }
}
