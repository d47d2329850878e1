//! Policies of this host and its user: where they lie, and what they do to a connection.
//!
//! *Responsible for* finding the files (`Whence`), for reading them when they change, and for saying file and line.
//! *Not responsible for* what they mean (`neater-policy`) and for opening connections accordingly (the engine).
//!
//! *Invariants*: where there is neither a folder of policies nor a manager, nobody looks for them more than once a second; a folder that other users may write to is not read; a file that cannot be understood leaves what it said before.

pub mod folder;
mod link;
mod teller;

use crate::Neater;
use link::Link;
use neater_engine::{RemoteEndpoint, Request, Stack};
use neater_policy::advice::{Adviser, Denied, Place, Story};
use neater_policy::daemon::Heard;
use neater_policy::manager::{Fault, FileKind, READY, SourceFile, Stage, line_of};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use teller::{Ready, Teller};

/// The variable that names folders, with `:` between them; empty, there are none.
pub const VARIABLE: &str = "NEATER_POLICY";
/// Where an administrator's policies lie.
pub const SYSTEM: &str = "/etc/neater/policy";
/// How long policies count unseen, at least; and a hundred times as long as looking takes.
const REST: Duration = Duration::from_secs(1);

/// Which folders hold policies.
#[derive(Clone, Debug, Default)]
pub(crate) enum Whence {
    /// Those that `NEATER_POLICY` names; without it `/etc/neater/policy` and `neater/policy` in the user's folder of
    /// configurations, as far as they are there.
    #[default]
    Usual,
    /// These, which must be there.
    These(Vec<PathBuf>),
}

impl Whence {
    /// The folders, those that count more behind the others, and whether any is there. One that nobody has named need not be: it may
    /// come later.
    fn folders(self) -> io::Result<(Vec<PathBuf>, bool)> {
        let of_variable = || std::env::var_os(VARIABLE);
        let (folders, must, said) = match self {
            Self::These(folders) => (folders, true, ""),
            Self::Usual => match of_variable() {
                Some(named) => {
                    (std::env::split_paths(&named).filter(|p| !p.as_os_str().is_empty()).collect(), true, VARIABLE)
                }
                None => ([Some(PathBuf::from(SYSTEM)), of_user()].into_iter().flatten().collect(), false, ""),
            },
        };
        let (mut good, mut there) = (Vec::new(), false);
        for folder in folders {
            let listed = || std::fs::read_dir(&folder).map(drop);
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display()));
            match folder::check(&folder).and_then(|()| listed().map_err(named)) {
                Ok(()) => {
                    good.push(folder);
                    there = true;
                }
                Err(e) if !must && e.kind() == io::ErrorKind::NotFound => good.push(folder),
                // What is wrong with it is told at each look, once, and may be mended while the program runs.
                Err(_) if !must => {
                    good.push(folder);
                    there = true;
                }
                Err(e) if said.is_empty() => return Err(e),
                Err(e) => return Err(io::Error::new(e.kind(), format!("{e} (named by {said})"))),
            }
        }
        Ok((good, there))
    }
}

/// `neater/policy` in the folder of this user's configurations (XDG Base Directory Specification 0.8).
fn of_user() -> Option<PathBuf> {
    let absolute = |p: PathBuf| p.is_absolute().then_some(p);
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).and_then(absolute);
    let config = config.or_else(|| Some(absolute(std::env::home_dir()?)?.join(".config")))?;
    Some(config.join("neater").join("policy"))
}

/// What becomes of what cannot be read.
const STAYS: &str = "what was said there before goes on to count";
/// And where nothing was said before.
const NOTHING: &str = "its policies do not count";
/// A file that changed so lately may change again without a new time.
const UNSETTLED: Duration = Duration::from_secs(2);

/// A folder by its number, under which the adviser knows its files.
fn numbered(folder: usize) -> String {
    format!("{folder:06}")
}

/// What tells one state of a file from another.
type Stamp = (u64, i64, i64, u64, i64, i64);

/// The folders as they were last looked at.
#[derive(Debug)]
pub(crate) struct Watch {
    folders: Vec<PathBuf>,
    /// By path, as bytes: paths take long to compare.
    seen: BTreeMap<OsString, Stamp>,
    next: Instant,
    faults: Vec<Fault>,
    /// The files that could not be read.
    unreadable: Vec<Fault>,
    /// The files that were there, by their folders' numbers and their names.
    known: Vec<(usize, String)>,
    /// None of them had changed so lately that it may have changed again.
    settled: bool,
    /// A manager that runs may be followed.
    usual: bool,
    /// A manager that runs.
    link: Option<Link>,
    /// What tells it of what connections have seen.
    teller: Option<Teller>,
}

/// The texts of all files by the names under which the adviser knows them: the folder's number, and the name within it.
struct Texts {
    pib: Vec<(String, String)>,
    cib: Vec<(String, String)>,
    /// Those that could not be read, and folders.
    unreadable: Vec<Fault>,
    /// Those that lie in such folders: what they said before goes on to count.
    kept: Vec<String>,
}

impl Watch {
    /// Looks for folders of policies and for a manager that runs; `None`: there are neither. A program that names its
    /// folders means these and no others.
    pub(crate) fn begin(whence: Whence) -> io::Result<Option<Self>> {
        let usual = matches!(whence, Whence::Usual);
        let link = if usual { Link::find() } else { None };
        let (folders, there) = whence.folders()?;
        let teller = link.as_ref().map(|link| Teller::beside(link.path()));
        let begin = Self {
            folders,
            seen: BTreeMap::new(),
            next: Instant::now(),
            faults: Vec::new(),
            unreadable: Vec::new(),
            known: Vec::new(),
            settled: true,
            usual,
            link,
            teller,
        };
        Ok((there || begin.link.is_some()).then_some(begin))
    }

    /// Looks for a manager where there was none, if it is time to look for anything.
    fn find_manager(&mut self) -> Option<Heard> {
        if !self.usual || self.link.is_some() || Instant::now() < self.next {
            return None;
        }
        let link = self.link.insert(Link::find()?);
        self.teller = Some(Teller::beside(link.path()));
        Some(link.begin())
    }

    /// The files, if any has come, gone or changed since they were last looked at, or can be read again or no more.
    fn changed(&mut self) -> Option<Texts> {
        let began = Instant::now();
        if began < self.next {
            return None;
        }
        let texts = self.look();
        self.next = began + REST.max(began.elapsed() * 100);
        texts
    }

    fn look(&mut self) -> Option<Texts> {
        let (mut listed, mut closed) = (Vec::new(), Vec::new());
        for (i, dir) in self.folders.iter().enumerate() {
            // What cannot be read hides nothing else.
            match folder::check(dir).and_then(|()| folder::list(dir, true)) {
                Ok(found) => {
                    listed.extend(found.files.into_iter().map(|f| (i, f)));
                    closed.extend(found.closed.into_iter().map(|(path, e)| (i, path, e.to_string())));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => closed.push((i, dir.clone(), e.to_string())),
            }
        }
        let stamp = |m: &std::fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ino(), m.ctime(), m.ctime_nsec());
        let path = |f: &folder::Listed| f.path.clone().into_os_string();
        let mut seen: BTreeMap<OsString, Stamp> = listed.iter().map(|(_, f)| (path(f), stamp(&f.metadata))).collect();
        let mut texts = Texts { pib: Vec::new(), cib: Vec::new(), unreadable: Vec::new(), kept: Vec::new() };
        let mut known: Vec<(usize, String)> = listed.iter().map(|(i, f)| (*i, f.name.clone())).collect();
        for (i, dir, why) in &closed {
            let mut lost = 0;
            for (folder, name) in self.known.iter().filter(|(folder, _)| folder == i) {
                let path = self.folders[*folder].join(name);
                if path.starts_with(dir) && !seen.contains_key(path.as_os_str()) {
                    lost += 1;
                    known.push((*folder, name.clone()));
                    texts.kept.push(format!("{}:{name}", numbered(*folder)));
                    if let Some(stamp) = self.seen.get(path.as_os_str()) {
                        seen.insert(path.into_os_string(), *stamp);
                    }
                }
            }
            let why = format!("{why}; {}", if lost > 0 { STAYS } else { NOTHING });
            let file = dir.display().to_string();
            texts.unreadable.push(Fault { file, line: 0, column: 0, why, harmless: false });
        }
        self.known = known;
        if seen == self.seen && self.unreadable.is_empty() && closed.is_empty() && self.settled {
            return None;
        }
        let kept = texts.kept.clone().into_iter().map(|name| (name, None));
        let there = listed.into_iter().map(|(i, f)| (format!("{}:{}", numbered(i), f.name), Some(f.path)));
        for (name, path) in there.chain(kept) {
            let own = name.split_once(':').map_or("", |(_, own)| own);
            let list = match FileKind::of(own) {
                Some(FileKind::Profile | FileKind::Policy) if !own.contains('/') => &mut texts.pib,
                Some(FileKind::Cib) => &mut texts.cib,
                _ => continue,
            };
            // A text that is no JSON leaves what was said before as it is.
            let text = path.map_or(Ok(String::new()), |path| {
                // What cannot be read is read again at the next look, whether it has changed or not.
                folder::read(&path).inspect_err(|_| {
                    seen.remove(path.as_os_str());
                })
            });
            let text = text.unwrap_or_else(|e| {
                let why = format!("it cannot be read: {e}; {STAYS}");
                texts.unreadable.push(Fault { file: name.clone(), line: 0, column: 0, why, harmless: false });
                String::new()
            });
            list.push((name, text));
        }
        // So that the folders are in order by their names.
        texts.pib.sort_by(|a, b| a.0.cmp(&b.0));
        texts.cib.sort_by(|a, b| a.0.cmp(&b.0));
        // What cannot be read is no news, if it could not be read before and nothing else has changed.
        let is_news = seen != self.seen || texts.unreadable != self.unreadable || !self.settled;
        let now = link::wall().0;
        let lately = |s: &Stamp| {
            let changed = Duration::new(s.4.try_into().unwrap_or(0), s.5.try_into().unwrap_or(0));
            now.checked_sub(changed).is_some_and(|age| age < UNSETTLED)
        };
        self.settled = !seen.values().any(lately);
        self.seen = seen;
        self.unreadable.clone_from(&texts.unreadable);
        is_news.then_some(texts)
    }

    /// Takes what is wrong with files now; what was not before is told.
    fn take_faults(&mut self, mut faults: Vec<Fault>, unreadable: Vec<Fault>, kept: &[String]) {
        // That an unreadable file is no JSON is not worth a second line.
        faults.retain(|f| !unreadable.iter().any(|u| u.file == f.file) && !kept.contains(&f.file));
        faults.extend(unreadable);
        for fault in &mut faults {
            if let Some(path) = self.path_of(&fault.file) {
                fault.file = path.display().to_string();
            }
            // Files that are named beside this one.
            for (i, folder) in self.folders.iter().enumerate() {
                let number = format!("{}:", numbered(i));
                if fault.why.contains(&number) {
                    fault.why = fault.why.replace(&number, &format!("{}/", folder.display()));
                }
            }
        }
        for fault in faults.iter().filter(|f| !self.faults.contains(f)) {
            tracing::warn!(target: "neater::policy", "{fault}");
        }
        self.faults = faults;
    }

    /// Where a file lies that the adviser knows by this name.
    fn path_of(&self, name: &str) -> Option<PathBuf> {
        let (folder, name) = name.split_once(':')?;
        Some(self.folders.get(folder.parse::<usize>().ok()?)?.join(name))
    }
}

impl Texts {
    fn sources(list: &[(String, String)]) -> Vec<SourceFile<'_>> {
        list.iter().map(|(name, text)| SourceFile { name, text }).collect()
    }
}

/// What policies do to a connection, with the files and lines that say so.
#[derive(Clone, Debug)]
pub struct PolicyStory {
    story: Result<Story, Denied>,
    places: BTreeMap<Place, String>,
}

impl PolicyStory {
    /// In lines of plain text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match &self.story {
            Ok(story) => story.lines(&|place| self.places.get(place).cloned()),
            Err(denied) => vec![denied.to_string()],
        }
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.story {
            Ok(story) => story.to_json(&|place| self.places.get(place).cloned()),
            Err(denied) => serde_json::json!({"prohibited": denied.to_string()}),
        }
    }

    /// Why the connection may not be opened, if it may not.
    #[must_use]
    pub fn prohibited(&self) -> Option<String> {
        match &self.story {
            Ok(story) => story.advised.as_ref().err().map(ToString::to_string),
            Err(denied) => Some(denied.to_string()),
        }
    }

    /// The stacks that are left, in the order in which they are first tried.
    #[must_use]
    pub fn stacks(&self) -> Vec<Stack> {
        let advice = self.story.as_ref().ok().and_then(|s| s.advised.as_ref().ok());
        let picks = advice.into_iter().flat_map(|a| &a.paths).flat_map(|p| &p.picks);
        let mut stacks: Vec<Stack> = Vec::new();
        for stack in picks.filter_map(|p| Stack::from_number(p.stack)) {
            if !stacks.contains(&stack) {
                stacks.push(stack);
            }
        }
        stacks
    }

    /// The interfaces that policies choose, by their indices and in the order in which they are first tried; none where
    /// they leave the choice to the system.
    #[must_use]
    pub fn interfaces(&self) -> Vec<u32> {
        let advice = self.story.as_ref().ok().and_then(|s| s.advised.as_ref().ok());
        let mut interfaces: Vec<u32> = Vec::new();
        for interface in advice.into_iter().flat_map(|a| &a.paths).filter_map(|p| p.interface) {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        interfaces
    }

    /// Whether policies change anything.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.story.as_ref().is_ok_and(|s| s.advised.as_ref().is_ok_and(|a| a.is_neutral()))
    }
}

impl Neater {
    /// Begins to follow the policies of these folders.
    pub(crate) fn follow(&self, watch: Watch, app: &str) {
        follow(&self.handle, watch, app);
    }

    /// Begins to look for policies that may come.
    pub(crate) fn follow_later(&self, app: String) {
        let _ = self.handle.later.set(Later::new(app));
    }

    /// Reads policies that have changed. Nothing where there are none.
    pub(crate) fn look_at_policies(&self) {
        crate::policies::look(&self.handle);
    }

    /// What is wrong with the files of policies, or odd about them, as of when they were last read.
    #[must_use]
    pub fn policy_faults(&self) -> Vec<Fault> {
        let Some(watch) = self.handle.policies.get() else { return Vec::new() };
        watch.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    /// What policies say of a connection with these needs to this endpoint; `None` where there are no policies. Nothing is
    /// sent.
    #[must_use]
    pub fn explain_policies(&self, request: &Request, remote: &RemoteEndpoint) -> Option<PolicyStory> {
        self.look_at_policies();
        let story = self.handle.with(|s| s.engine.policy_story(request, remote))?;
        let watch = self.handle.policies.get().map(|w| w.lock().unwrap_or_else(PoisonError::into_inner));
        let mut places = BTreeMap::new();
        for place in story.iter().flat_map(Story::places) {
            let kind = match place.stage {
                Stage::Profile => FileKind::Profile,
                Stage::Policy => FileKind::Policy,
            };
            let name = self.handle.with_later(|s| s.engine.policy_file(kind, &place.uid));
            let path = name.and_then(|name| watch.as_ref()?.path_of(&name));
            let at = match path {
                Some(path) => {
                    let line = folder::read(&path).map_or(1, |text| line_of(&text, place.key.as_deref()));
                    format!("{}:{line}", path.display())
                }
                None if READY.iter().any(|f| f.name.rsplit_once('.').is_some_and(|(uid, _)| uid == place.uid)) => {
                    "ready-made".to_owned()
                }
                None => "of the policy manager".to_owned(),
            };
            places.insert(place, at);
        }
        Some(PolicyStory { story, places })
    }
}

/// Where the socket for requests of a policy manager is, if there may be one: `NEAT_PM_SOCKET`, or else in `~/.neat` or
/// `/run/neater`. Its other sockets lie beside it.
#[must_use]
pub fn manager_socket() -> Option<PathBuf> {
    link::socket()
}

/// What a program without policies looks for again: they may come while it runs.
#[derive(Debug)]
pub(crate) struct Later {
    app: String,
    /// In seconds of a clock that is cheap to read.
    next: AtomicU64,
    /// Held by the thread that looks: another one, which comes while it is held up, must not begin anew what this one has found.
    looking: Mutex<()>,
}

impl Later {
    pub(crate) fn new(app: String) -> Self {
        Self { app, next: AtomicU64::new(coarse() + REST.as_secs()), looking: Mutex::new(()) }
    }

    #[inline]
    fn look(&self, shared: &crate::shared::Shared) {
        let (now, next) = (coarse(), self.next.load(Ordering::Relaxed));
        if now > next {
            self.find(shared, now, next);
        }
    }

    #[cold]
    fn find(&self, shared: &crate::shared::Shared, now: u64, next: u64) {
        // One of several threads does; and what a child of `fork` finds, its parent must not hear.
        let Ok(_held) = self.looking.try_lock() else { return };
        let mine = self.next.compare_exchange(next, now + REST.as_secs(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !mine || shared.is_forked() || shared.policies.get().is_some() {
            return;
        }
        match Watch::begin(Whence::Usual) {
            Ok(Some(watch)) => follow(shared, watch, &self.app),
            Ok(None) => {}
            Err(e) => tracing::warn!(target: "neater::policy", "{e}"),
        }
    }
}

/// Seconds of the coarse clock, which is read without a system call and without looking at the hardware.
#[allow(unsafe_code, reason = "the standard library has no coarse clock")]
#[inline]
fn coarse() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The C library's, and not rustix's, which under valgrind looks for the kernel's code where there is none.
    // SAFETY: `now` is a timespec that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.unsigned_abs()
}

/// Begins to follow policies.
fn follow(shared: &crate::shared::Shared, mut watch: Watch, app: &str) {
    shared.with_later(|s| s.engine.set_adviser(Some(Adviser::new()), app));
    if let Some(link) = &mut watch.link {
        share(shared, link.begin());
    }
    // Whoever is first has made the engine, or has found them.
    let _ = shared.policies.set(Mutex::new(watch));
    look(shared);
}

/// See [`Neater::look_at_policies`].
#[inline]
pub(crate) fn look(shared: &crate::shared::Shared) {
    match (shared.policies.get(), shared.later.get()) {
        (Some(watch), _) => look_at(shared, watch),
        (None, Some(later)) => later.look(shared),
        (None, None) => {}
    }
}

fn look_at(shared: &crate::shared::Shared, watch: &Mutex<Watch>) {
    // Somebody else is looking already.
    let Ok(mut watch) = watch.try_lock() else { return };
    if shared.is_forked() {
        // The connection is the parent's: what is read from it is lost to that.
        return;
    }
    if let Some(link) = &mut watch.link {
        let heard = link.poll();
        // Another manager than the one that was followed before may be there.
        let path = link.path().to_path_buf();
        if watch.teller.as_ref().is_none_or(|teller| !teller.is_beside(&path)) {
            watch.teller = Some(Teller::beside(&path));
        }
        share(shared, heard);
    } else if let Some(heard) = watch.find_manager() {
        share(shared, heard);
    }
    let Some(texts) = watch.changed() else { return };
    let (pib, cib) = (Texts::sources(&texts.pib), Texts::sources(&texts.cib));
    let report = shared.with_later(|s| s.engine.load_policies(&pib, &cib));
    watch.take_faults(report.faults, texts.unreadable, &texts.kept);
}

/// Gives the engine what a manager has told.
fn share(shared: &crate::shared::Shared, heard: Heard) {
    if heard.is_empty() {
        return;
    }
    shared.with_later(|s| {
        if let Some(tables) = heard.tables {
            s.engine.share_policies(tables);
        }
        s.engine.share_facts(heard.facts);
    });
}

/// Tells the manager that runs here, if one does, what connections of this program have seen. It never waits, and what the
/// manager does not take now it is told later.
#[cold]
pub(crate) fn tell(shared: &crate::shared::Shared) {
    let Some(watch) = shared.policies.get() else { return };
    let Ok(mut watch) = watch.try_lock() else { return };
    if shared.is_forked() {
        // The connection is the parent's.
        return;
    }
    match watch.teller.as_mut().map(Teller::is_ready) {
        // There is nobody to tell.
        None | Some(Ready::Absent) => drop(shared.with_later(|s| s.engine.take_facts())),
        Some(Ready::Busy) => shared.with_later(|s| s.engine.hold_facts()),
        Some(ready) => {
            let facts = shared.with_later(|s| {
                if matches!(ready, Ready::Anew) {
                    s.engine.tell_facts_again();
                }
                s.engine.take_facts()
            });
            if let Some(teller) = &mut watch.teller {
                teller.tell(&facts);
            }
        }
    }
}

/// What policies call this program where it does not say: the name of its file.
pub(crate) fn own_name() -> String {
    let path = std::env::args_os().next().map(PathBuf::from);
    path.and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A folder of this test's own.
    fn fresh(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("neater-policies-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn deny(folder: &Path) {
        let text = r#"{"uid": "deny", "properties": [[]]}"#;
        std::fs::write(folder.join("deny.policy"), text).unwrap();
    }

    /// What is there now, as the adviser is given it; and the faults.
    fn look(watch: &mut Watch, adviser: &mut Adviser) -> usize {
        watch.next = Instant::now();
        if let Some(texts) = watch.changed() {
            let (pib, cib) = (Texts::sources(&texts.pib), Texts::sources(&texts.cib));
            let report = adviser.load(&pib, &cib, link::wall());
            watch.take_faults(report.faults, texts.unreadable, &texts.kept);
        }
        watch.faults.len()
    }

    #[test]
    fn a_file_that_cannot_be_read_goes_on_to_say_what_it_said() {
        let dir = fresh("unreadable");
        deny(&dir);
        let mut watch = Watch::begin(Whence::These(vec![dir.clone()])).unwrap().unwrap();
        let mut adviser = Adviser::new();
        let denies = |adviser: &Adviser| adviser.manager().policies().get("deny").is_some();
        assert_eq!(look(&mut watch, &mut adviser), 0);
        assert!(denies(&adviser));
        // No text: what root could not read would be one, too.
        std::fs::write(dir.join("deny.policy"), [0xff, 0xfe, 0xff]).unwrap();
        for _ in 0..2 {
            assert_eq!(look(&mut watch, &mut adviser), 1);
            assert!(denies(&adviser), "a deny must not fail open");
            assert!(watch.faults[0].to_string().contains("deny.policy"), "{}", watch.faults[0]);
            assert!(watch.faults[0].why.contains("cannot be read"), "{}", watch.faults[0]);
        }
        // Another file changes, and this one is back as it was, to the byte and second: it is read again.
        deny(&dir);
        assert_eq!(look(&mut watch, &mut adviser), 0);
        std::fs::remove_file(dir.join("deny.policy")).unwrap();
        assert_eq!(look(&mut watch, &mut adviser), 0);
        assert!(!denies(&adviser), "it is gone");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_taken_once_and_told_no_longer_than_it_lasts() {
        let dir = fresh("once");
        deny(&dir);
        std::fs::write(dir.join("broken.policy"), [0xff, 0xfe, 0xff]).unwrap();
        let mut watch = Watch::begin(Whence::These(vec![dir.clone()])).unwrap().unwrap();
        let mut adviser = Adviser::new();
        let is_news = |watch: &mut Watch| {
            // As if nothing had been written in the last seconds.
            watch.settled = true;
            watch.next = Instant::now();
            watch.changed().is_some()
        };
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert!(!is_news(&mut watch), "it is known that it cannot be read");
        std::fs::remove_file(dir.join("broken.policy")).unwrap();
        assert_eq!(look(&mut watch, &mut adviser), 0);

        // The folder is nobody's to believe for a while, and the same as before then.
        use std::os::unix::fs::PermissionsExt;
        let mode = |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert_eq!(look(&mut watch, &mut adviser), 1);
        mode(0o755);
        assert_eq!(look(&mut watch, &mut adviser), 0, "{:?}", watch.faults);
        assert!(!is_news(&mut watch));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn of_many_folders_the_last_one_counts_most() {
        let dir = fresh("many");
        let folders: Vec<PathBuf> = (0..12).map(|i| dir.join(i.to_string())).collect();
        for (i, folder) in folders.iter().enumerate() {
            std::fs::create_dir(folder).unwrap();
            let text = format!(r#"{{"uid": "who", "description": "{i}"}}"#);
            std::fs::write(folder.join("who.policy"), text).unwrap();
        }
        let mut watch = Watch::begin(Whence::These(folders.clone())).unwrap().unwrap();
        let mut adviser = Adviser::new();
        look(&mut watch, &mut adviser);
        assert_eq!(adviser.manager().policies().get("who").map(|r| r.description.as_str()), Some("11"));
        let file = adviser.file_of(FileKind::Policy, "who").unwrap();
        assert_eq!(watch.path_of(&file), Some(folders[11].join("who.policy")));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// A folder that cannot be read stands in for one of another user's, since tests may be root's: a chain of links without end.
    fn close(path: &Path) {
        std::fs::remove_dir_all(path).unwrap();
        std::os::unix::fs::symlink(path.file_name().unwrap(), path).unwrap();
    }

    #[test]
    fn a_folder_that_every_user_may_write_to_hides_no_other_and_keeps_what_it_said() {
        use std::os::unix::fs::PermissionsExt;
        let (open, other) = (fresh("open"), fresh("other"));
        let set = |dir: &Path, mode| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::write(open.join("early.policy"), r#"{"uid": "early", "properties": {}}"#).unwrap();
        let mut watch = Watch::begin(Whence::These(vec![open.clone(), other.clone()])).unwrap().unwrap();
        let mut adviser = Adviser::new();
        let there = |adviser: &Adviser, uid: &str| adviser.manager().policies().get(uid).is_some();
        assert_eq!(look(&mut watch, &mut adviser), 0);
        // From now on anybody may put something there; meanwhile a deny comes to the other one.
        set(&open, 0o777);
        std::fs::write(open.join("late.policy"), r#"{"uid": "late", "properties": {}}"#).unwrap();
        deny(&other);
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert!(watch.faults[0].to_string().contains("every user may write"), "{}", watch.faults[0]);
        assert!(there(&adviser, "deny"), "what can be read counts");
        assert!(there(&adviser, "early") && !there(&adviser, "late"), "what was said before goes on to count");
        std::fs::remove_file(other.join("deny.policy")).unwrap();
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert!(!there(&adviser, "deny") && there(&adviser, "early"));
        set(&open, 0o755);
        assert_eq!(look(&mut watch, &mut adviser), 0);
        assert!(there(&adviser, "late"), "it is mended, and followed");
        [open, other].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }

    #[test]
    fn a_folder_in_a_folder_that_cannot_be_read_hides_nothing_else() {
        let dir = fresh("closed");
        let sub = dir.join("sub");
        std::fs::create_dir(&sub).unwrap();
        let node = |uid: &str| {
            format!(r#"{{"uid": "{uid}", "root": true, "properties": {{"interface": {{"value": "{uid}"}}}}}}"#)
        };
        std::fs::write(sub.join("a.cib"), node("a")).unwrap();
        let found = folder::list(&dir, true).unwrap();
        assert_eq!((found.files.len(), found.closed.len()), (1, 0));
        let mut watch = Watch::begin(Whence::These(vec![dir.clone()])).unwrap().unwrap();
        let mut adviser = Adviser::new();
        assert_eq!(look(&mut watch, &mut adviser), 0);
        let known = |adviser: &Adviser| adviser.manager().cib().get("a").is_some();
        assert!(known(&adviser));
        close(&sub);
        assert_eq!(folder::list(&dir, true).unwrap().closed.len(), 1);
        deny(&dir);
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert!(watch.faults[0].file.ends_with("sub") && watch.faults[0].why.contains(STAYS), "{}", watch.faults[0]);
        assert!(adviser.manager().policies().get("deny").is_some(), "what can be read counts");
        assert!(known(&adviser), "and what was said before");
        std::fs::remove_file(&sub).unwrap();
        assert_eq!(look(&mut watch, &mut adviser), 0);
        assert!(!known(&adviser), "it is gone for certain");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_of_the_same_length_and_time_is_another_one() {
        let dir = fresh("same");
        let file = dir.join("r.policy");
        std::fs::write(&file, r#"{"uid": "r", "priority": 1      }"#).unwrap();
        let time = std::fs::metadata(&file).unwrap().modified().unwrap();
        let mut watch = Watch::begin(Whence::These(vec![dir.clone()])).unwrap().unwrap();
        let mut adviser = Adviser::new();
        look(&mut watch, &mut adviser);
        std::fs::write(&file, r#"{"uid": "r", "properties": [[]]}"#.to_owned() + " ").unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        look(&mut watch, &mut adviser);
        let rule = adviser.manager().policies().get("r").cloned().unwrap();
        assert!(format!("{rule:?}").contains("priority: 0"), "{rule:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
