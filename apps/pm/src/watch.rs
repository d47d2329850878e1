//! The directories of policies, profiles and CIB nodes: looked at again and again, and read when
//! something changed.
//!
//! Polling, and not notifications of the system: it is the same on every file system, for folders
//! that are replaced, links that lead elsewhere and volumes that are mounted later, and costs a
//! thousandth of what it saves of surprise. A look lasts about 1 µs for each file, and the pause
//! after it is at least a hundred times as long.

use super::Shared;
use neater_base::WallTime;
use neater_command::failure::{Exit, Failure};
use neater_command::folder::{self, Listed};
use neater_policy::manager::{Fault, Report, SourceFile};
use neater_policy_daemon::{Daemon, Effect};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long no file is looked at, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// A file that changed so lately may change again without a new time.
const UNSETTLED: Duration = Duration::from_secs(2);

/// The directories by number: of rules, and of nodes.
const PIB: usize = 0;
const CIB: usize = 1;

/// What distinguishes a file from the same file after a change.
type Stamp = (PathBuf, Option<SystemTime>, i64, u64, u64);

/// The directories, and how they were found last.
pub(super) struct Watch {
    pib: Option<PathBuf>,
    cib: Option<PathBuf>,
    stamps: Vec<Stamp>,
    settled: bool,
    /// The files of both that were there.
    known: [Vec<(String, PathBuf)>; 2],
    /// What could not be looked at.
    closed: Vec<Fault>,
    /// The last faults of files, so that each is reported once.
    faults: Vec<Fault>,
}

impl Watch {
    pub(super) fn new(pib: Option<PathBuf>, cib: Option<PathBuf>) -> Result<Self, Failure> {
        for dir in [&pib, &cib].into_iter().flatten() {
            std::fs::read_dir(dir).map_err(|e| Failure::file("read", dir, &e))?;
            folder::check(dir).map_err(|e| Failure::new(Exit::Local, "file", e.to_string()))?;
        }
        let (known, closed) = ([Vec::new(), Vec::new()], Vec::new());
        Ok(Self { pib, cib, stamps: Vec::new(), settled: false, known, closed, faults: Vec::new() })
    }

    /// The files of one of the directories, and those that were there and lie where reading is not
    /// permitted now: their earlier content stays in force. What cannot be looked at hides nothing
    /// else.
    fn list(&mut self, which: usize, closed: &mut Vec<Fault>) -> (Vec<Listed>, Vec<String>) {
        let Some(dir) = [&self.pib, &self.cib][which].as_deref() else { return (Vec::new(), Vec::new()) };
        let found = match folder::check(dir) {
            Ok(()) => folder::list(dir, which == CIB).map_err(|e| e.message),
            Err(e) => Err(e.to_string()),
        };
        let (files, hidden) = match found {
            Ok(found) => {
                let hidden =
                    found.closed.into_iter().map(|(path, e)| (format!("cannot read {}: {e}", path.display()), path));
                (found.files, hidden.collect::<Vec<_>>())
            }
            Err(why) => (Vec::new(), vec![(why, dir.to_path_buf())]),
        };
        let before = std::mem::take(&mut self.known[which]);
        self.known[which] = files.iter().map(|f| (f.name.clone(), f.path.clone())).collect();
        let mut kept = Vec::new();
        for (why, path) in hidden {
            let lost: Vec<_> = before.iter().filter(|(_, own)| own.starts_with(&path)).cloned().collect();
            let stays =
                if lost.is_empty() { "what lies there does not count" } else { "its earlier content stays in force" };
            closed.push(Fault {
                file: String::new(),
                line: 0,
                column: 0,
                why: format!("{why}; {stays}"),
                harmless: false,
            });
            kept.extend(lost.iter().map(|(name, _)| name.clone()));
            self.known[which].extend(lost);
        }
        (files, kept)
    }

    /// Reads what the directories hold into the daemon, if they changed or `in_any_case`. A
    /// directory that cannot be read changes nothing: the earlier content of its files stays in
    /// force.
    pub(super) fn load(&mut self, daemon: &mut Daemon, in_any_case: bool, now: WallTime) -> Option<Report> {
        let mut closed = Vec::new();
        let (pib, kept_rules) = self.list(PIB, &mut closed);
        let (cib, kept_nodes) = self.list(CIB, &mut closed);
        let as_closed = closed.iter().map(|f| &f.why).eq(self.closed.iter().map(|f| &f.why));
        self.closed.clone_from(&closed);
        let clock = SystemTime::now();
        let mut settled = true;
        let mut stamps: Vec<Stamp> = Vec::with_capacity(pib.len() + cib.len());
        for file in pib.iter().chain(&cib) {
            let (m, changed) = (&file.metadata, file.metadata.modified().ok());
            settled &= changed.and_then(|at| clock.duration_since(at).ok()).is_some_and(|age| age > UNSETTLED);
            stamps.push((file.path.clone(), changed, m.ctime_nsec(), m.len(), m.ino()));
        }
        stamps.sort();
        if !in_any_case && self.settled && as_closed && stamps == self.stamps {
            return None;
        }
        (self.stamps, self.settled) = (stamps, settled);
        let mut unreadable = Vec::new();
        let mut read = |files: Vec<Listed>| -> Vec<(String, String)> {
            let one = |file: Listed| {
                let text = folder::read(&file.path).unwrap_or_else(|e| {
                    let why = format!("{}; its earlier content stays in force", e.message);
                    unreadable.push(Fault { file: file.name.clone(), line: 0, column: 0, why, harmless: false });
                    String::new()
                });
                (file.name, text)
            };
            files.into_iter().map(one).collect()
        };
        let (mut pib, mut cib) = (read(pib), read(cib));
        // A text that is no JSON leaves the earlier content in force.
        let kept: Vec<String> = kept_rules.iter().chain(&kept_nodes).cloned().collect();
        pib.extend(kept_rules.into_iter().map(|name| (name, String::new())));
        cib.extend(kept_nodes.into_iter().map(|name| (name, String::new())));
        let sources = |files| -> Vec<SourceFile<'_>> {
            let files: &[(String, String)] = files;
            files.iter().map(|(name, text)| SourceFile { name, text }).collect()
        };
        let mut report = daemon.load(&sources(&pib), &sources(&cib), now);
        // That an unreadable file is no JSON is not worth a second line.
        report.faults.retain(|f| !unreadable.iter().any(|u| u.file == f.file) && !kept.contains(&f.file));
        report.faults.extend(unreadable);
        report.faults.extend(closed);
        let faults = report.faults.clone();
        report.faults.retain(|f| in_any_case || !self.faults.contains(f));
        self.faults = faults;
        Some(report)
    }

    /// Writes or removes a file of the policy directory.
    pub(super) fn perform(&self, effect: &Effect) -> Result<(), Failure> {
        let Some(dir) = &self.pib else { return Ok(()) };
        match effect {
            Effect::Save { file, text, new } => save(dir, file, text, *new),
            Effect::Remove { file } => {
                let path = dir.join(file);
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::file("remove", &path, &e)),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Writes a file so that it is there as a whole, or as it was. One that is to be `new` takes no
/// other file's place.
fn save(dir: &Path, file: &str, text: &str, new: bool) -> Result<(), Failure> {
    let (path, draft) = (dir.join(file), dir.join(format!(".new-{}", std::process::id())));
    let written = std::fs::File::create(&draft)
        .and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
        .and_then(|()| if new { std::fs::hard_link(&draft, &path) } else { std::fs::rename(&draft, &path) });
    if new || written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let why = format!("{} has other content already: rename it, or choose another uid", path.display());
            Failure::new(Exit::Local, "file", why)
        }
        _ => Failure::file("write", &path, &e),
    })
}

/// Looks at the directories for as long as the program runs.
pub(super) async fn keep_looking(shared: Arc<Shared>) {
    let mut pause = PAUSE;
    loop {
        let asked = tokio::time::timeout(pause, shared.look.notified()).await.is_ok();
        let begin = Instant::now();
        shared.reload(asked);
        pause = PAUSE.max(begin.elapsed() * 100);
    }
}
