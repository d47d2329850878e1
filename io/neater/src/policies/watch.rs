//! Folders of policies: found, looked at again and again, and read when something changed.
//!
//! *Invariants*: a folder that other users may write to is not read; a file that cannot be
//! understood leaves its earlier policies in force.

use super::link::{self, Link};
use super::teller::Teller;
use super::{PolicySource, SYSTEM, VARIABLE, folder};
use neater_policy::manager::{Fault, FileKind, SourceFile};
use neater_policy::protocol::Heard;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long policies count unseen, at least; and a hundred times as long as looking takes.
pub(super) const REST: Duration = Duration::from_secs(1);

/// Which folders hold policies.
#[derive(Clone, Debug, Default)]
pub(crate) enum Whence {
    /// Those that `NEATER_POLICY` names; without it `/etc/neater/policy` and `neater/policy` in the
    /// user's folder of configurations, as far as they are there.
    #[default]
    Usual,
    /// These, which must be there.
    These(Vec<PathBuf>),
}

impl Whence {
    /// The folders, those that count more behind the others, and whether any is there. One that is
    /// not named need not exist: it may appear later.
    fn folders(self) -> io::Result<(Vec<PathBuf>, bool)> {
        let of_variable = || std::env::var_os(VARIABLE);
        let (folders, must, source) = match self {
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
                // Its faults are reported at each look, once, and may be mended while the program
                // runs.
                Err(_) if !must => {
                    good.push(folder);
                    there = true;
                }
                Err(e) if source.is_empty() => return Err(e),
                Err(e) => return Err(io::Error::new(e.kind(), format!("{e} (named by {source})"))),
            }
        }
        Ok((good, there))
    }
}

/// `neater/policy` in the folder of this user's configurations (XDG Base Directory Specification
/// 0.8).
fn of_user() -> Option<PathBuf> {
    let absolute = |p: PathBuf| p.is_absolute().then_some(p);
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).and_then(absolute);
    let config = config.or_else(|| Some(absolute(std::env::home_dir()?)?.join(".config")))?;
    Some(config.join("neater").join("policy"))
}

/// What becomes of what cannot be read.
const STAYS: &str = "its earlier policies stay in force";
/// And where there were no earlier policies.
const NOTHING: &str = "its policies do not count";
/// A file that changed so lately may change again without a new time.
const UNSETTLED: Duration = Duration::from_secs(2);

/// A folder by its number, under which the adviser knows its files.
fn numbered(folder: usize) -> String {
    format!("{folder:06}")
}

/// What distinguishes one state of a file from another.
type Stamp = (u64, i64, i64, u64, i64, i64);

/// The folders as they were last looked at.
#[derive(Debug)]
pub(crate) struct Watch {
    folders: Vec<PathBuf>,
    /// By path, as bytes: paths take long to compare.
    seen: BTreeMap<OsString, Stamp>,
    next: Instant,
    pub(super) faults: Vec<Fault>,
    /// The files that could not be read.
    unreadable: Vec<Fault>,
    /// The files that were there, by their folders' numbers and their names.
    known: Vec<(usize, String)>,
    /// None of them had changed so lately that it may have changed again.
    settled: bool,
    /// A manager that runs may be followed.
    usual: bool,
    /// A manager that runs.
    pub(super) link: Option<Link>,
    /// What publishes the connections' measurements to it.
    pub(super) teller: Option<Teller>,
}

/// The texts of all files by the names under which the adviser knows them: the folder's number, and
/// the name within it.
pub(super) struct Texts {
    pub(super) pib: Vec<(String, String)>,
    pub(super) cib: Vec<(String, String)>,
    /// Those that could not be read, and folders.
    pub(super) unreadable: Vec<Fault>,
    /// Those that lie in such folders: their earlier policies stay in force.
    pub(super) kept: Vec<String>,
}

impl Watch {
    /// Looks for folders of policies and for a manager that runs; `None`: there are neither. A
    /// program that names its folders means these and no others.
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

    /// Where what counts comes from, what counts least first.
    pub(super) fn sources(&self) -> Vec<PolicySource> {
        let manager = self.link.as_ref().map(|l| PolicySource::Manager(l.path().to_path_buf(), l.state().err()));
        let files = |i: usize| self.known.iter().filter(|(folder, _)| *folder == i).count();
        let folders = self.folders.iter().enumerate().map(|(i, f)| PolicySource::Folder(f.clone(), files(i)));
        manager.into_iter().chain(folders).collect()
    }

    /// Looks for a manager where there was none, if it is time to look for anything.
    pub(super) fn find_manager(&mut self) -> Option<Heard> {
        if !self.usual || self.link.is_some() || Instant::now() < self.next {
            return None;
        }
        let link = self.link.insert(Link::find()?);
        self.teller = Some(Teller::beside(link.path()));
        Some(link.begin())
    }

    /// The files, if any has come, gone or changed since they were last looked at, or can be read
    /// again or no more.
    pub(super) fn changed(&mut self) -> Option<Texts> {
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
            // A text that is no JSON leaves the earlier policies in force.
            let text = path.map_or(Ok(String::new()), |path| {
                // What cannot be read is read again at the next look, whether it has changed or
                // not.
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
        // What cannot be read is no news, if it could not be read before and nothing else has
        // changed.
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

    /// Takes what is wrong with files now; new faults are reported.
    pub(super) fn take_faults(&mut self, mut faults: Vec<Fault>, unreadable: Vec<Fault>, kept: &[String]) {
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
    pub(super) fn path_of(&self, name: &str) -> Option<PathBuf> {
        let (folder, name) = name.split_once(':')?;
        Some(self.folders.get(folder.parse::<usize>().ok()?)?.join(name))
    }
}

impl Texts {
    pub(super) fn sources(list: &[(String, String)]) -> Vec<SourceFile<'_>> {
        list.iter().map(|(name, text)| SourceFile { name, text }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_policy::advice::Adviser;
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
        // Another file changes, and this one is back as it was, to the byte and second: it is read
        // again.
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

        // The folder is not trusted for a while, and the same as before then.
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

    /// A folder that cannot be read stands in for one of another user's, since tests may be root's:
    /// a chain of links without end.
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
        // From now on any user may put something there; meanwhile a deny comes to the other one.
        set(&open, 0o777);
        std::fs::write(open.join("late.policy"), r#"{"uid": "late", "properties": {}}"#).unwrap();
        deny(&other);
        assert_eq!(look(&mut watch, &mut adviser), 1);
        assert!(watch.faults[0].to_string().contains("every user may write"), "{}", watch.faults[0]);
        assert!(there(&adviser, "deny"), "what can be read counts");
        assert!(there(&adviser, "early") && !there(&adviser, "late"), "the earlier policies stay in force");
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
