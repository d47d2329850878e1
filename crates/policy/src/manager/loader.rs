//! Directories of policy, profile and CIB files: text in, tables out. Reading the directories is for others.
//!
//! A file that cannot be used is reported with line and column, and what it said before goes on to count; so a slip of an
//! editor never takes a policy away. Everything is put in place at once, or not at all.

use super::Manager;
use super::cib::Cib;
use super::file::{Fault, Node, Rule};
use super::pib::Table;
use neater_base::WallTime;
use neater_property::Fingerprint;
use std::collections::{BTreeMap, BTreeSet};

/// How many files of a directory are read.
pub const MAX_FILES: usize = 100_000;

/// A file of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// Its path from the directory on, with `/` between the parts.
    pub name: &'a str,
    /// What it says.
    pub text: &'a str,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `*.profile`
    Profile,
    /// `*.policy`
    Policy,
    /// `*.cib`, `*.local`, `*.connection`, `*.remote`, `*.slim`
    Cib,
}

impl FileKind {
    /// What a file of the policy directory is for, by its name. Only files that lie in it directly count.
    #[must_use]
    pub fn of_pib(name: &str) -> Option<Self> {
        match ending(name)? {
            _ if name.contains('/') => None,
            "profile" => Some(Self::Profile),
            "policy" => Some(Self::Policy),
            _ => None,
        }
    }

    /// What a file of the CIB directory, or of one within it, is for, by its name.
    #[must_use]
    pub fn of_cib(name: &str) -> Option<Self> {
        matches!(ending(name)?, "cib" | "local" | "connection" | "remote" | "slim").then_some(Self::Cib)
    }

    /// What a file is for by its ending alone.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::of_pib(name.rsplit('/').next()?).or_else(|| Self::of_cib(name))
    }
}

/// The ending of a file name that counts; hidden files and those that editors leave do not.
fn ending(name: &str) -> Option<&str> {
    let last = name.rsplit('/').next()?;
    if last.starts_with(['.', '#']) {
        return None;
    }
    last.rsplit_once('.').map(|(_, ending)| ending)
}

/// What a file said when it was last understood.
#[derive(Clone, Debug)]
enum Item {
    Rule(Box<Rule>),
    Node(Box<Node>),
}

#[derive(Clone, Debug)]
struct Loaded {
    fingerprint: u64,
    item: Item,
}

/// What came of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong or odd, in the order of the files.
    pub faults: Vec<Fault>,
    /// How many profiles, policies and nodes there are now.
    pub profiles: usize,
    /// As above.
    pub policies: usize,
    /// As above.
    pub nodes: usize,
    /// Whether anything is different from before.
    pub changed: bool,
}

/// The files as they were last understood.
#[derive(Clone, Debug, Default)]
pub struct Loader {
    files: BTreeMap<(FileKind, Order), Loaded>,
    installed: BTreeMap<FileKind, BTreeSet<String>>,
}

/// The order of files: by the bytes of their names, the files of a directory before its sub-directories.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order(Vec<(bool, String)>);

impl Order {
    fn of(name: &str) -> Self {
        let parts: Vec<&str> = name.split('/').collect();
        let last = parts.len() - 1;
        Self(parts.into_iter().enumerate().map(|(i, part)| (i < last, part.to_string())).collect())
    }

    fn name(&self) -> String {
        self.0.iter().map(|(_, part)| part.as_str()).collect::<Vec<_>>().join("/")
    }
}

impl Loader {
    /// Reads the files of the policy directory and of the CIB directory and puts what they say into `manager`, in place
    /// of what the files read before said. Files that did not change are not read again, so that the lifetime of a node
    /// begins when its file is first seen.
    pub fn load(
        &mut self,
        manager: &mut Manager,
        pib: &[SourceFile<'_>],
        cib: &[SourceFile<'_>],
        now: WallTime,
    ) -> Report {
        let mut report = Report::default();
        let of_pib = pib.iter().filter_map(|f| Some((FileKind::of_pib(f.name)?, f)));
        let of_cib = cib.iter().filter_map(|f| Some((FileKind::of_cib(f.name)?, f)));
        let wanted: BTreeMap<(FileKind, Order), &SourceFile<'_>> =
            of_pib.chain(of_cib).take(MAX_FILES).map(|(kind, f)| ((kind, Order::of(f.name)), f)).collect();
        let before = self.files.len();
        self.files.retain(|key, _| wanted.contains_key(key));
        report.changed = self.files.len() != before;
        for (key, file) in wanted {
            let mut f = Fingerprint::default();
            f.text(file.text);
            let fingerprint = f.finish();
            if self.files.get(&key).is_some_and(|held| held.fingerprint == fingerprint) {
                continue;
            }
            match read(key.0, file, now) {
                Ok((item, warnings)) => {
                    report.faults.extend(warnings);
                    report.changed = true;
                    self.files.insert(key, Loaded { fingerprint, item });
                }
                Err(mut fault) => {
                    if self.files.contains_key(&key) {
                        fault.why += "; what the file said before goes on to count";
                    }
                    report.faults.push(fault);
                }
            }
        }
        self.doubles(&mut report);
        if report.changed {
            self.install(manager, now);
        }
        (report.profiles, report.policies) = (manager.profiles().rules().len(), manager.policies().rules().len());
        report.nodes = manager.cib().nodes().count();
        report
    }

    /// The file that says what something of this uid is: of several the one that counts, which is the last one.
    #[must_use]
    pub fn file_of(&self, kind: FileKind, uid: &str) -> Option<String> {
        let is = |loaded: &Loaded| match &loaded.item {
            Item::Rule(rule) => rule.uid == uid,
            Item::Node(node) => node.uid == uid,
        };
        let found = self.files.iter().rev().find(|((k, _), loaded)| *k == kind && is(loaded));
        found.map(|((_, order), _)| order.name())
    }

    /// Whether a file says what something of this uid is.
    #[must_use]
    pub fn says(&self, kind: FileKind, uid: &str) -> bool {
        self.installed.get(&kind).is_some_and(|uids| uids.contains(uid))
    }

    /// Says which files take the place of others.
    fn doubles(&self, report: &mut Report) {
        let mut seen: BTreeMap<(FileKind, &str), String> = BTreeMap::new();
        for ((kind, order), loaded) in &self.files {
            let uid = match &loaded.item {
                Item::Rule(rule) => rule.uid.as_str(),
                Item::Node(node) => node.uid.as_str(),
            };
            if let Some(earlier) = seen.insert((*kind, uid), order.name()) {
                let why = format!("this takes the place of {earlier}, which has the same uid, {uid}");
                report.faults.push(Fault { file: order.name(), line: 1, column: 1, why, harmless: true });
            }
        }
    }

    /// Puts everything in place at once.
    fn install(&mut self, manager: &mut Manager, now: WallTime) {
        let old = std::mem::take(&mut self.installed);
        let was_ours = |kind: FileKind, uid: &str| old.get(&kind).is_some_and(|uids| uids.contains(uid));
        let kept = |kind, table: &Table| -> Vec<Rule> {
            table.rules().iter().filter(|r| !was_ours(kind, &r.uid)).cloned().collect()
        };
        let mut profiles = kept(FileKind::Profile, manager.profiles());
        let mut policies = kept(FileKind::Policy, manager.policies());
        let mut cib = Cib::default();
        for node in manager.cib().nodes().filter(|n| !was_ours(FileKind::Cib, &n.uid)) {
            cib.insert(node.clone());
        }
        for ((kind, _), loaded) in &self.files {
            let uid = match &loaded.item {
                Item::Rule(rule) => {
                    if *kind == FileKind::Profile { &mut profiles } else { &mut policies }.push((**rule).clone());
                    rule.uid.clone()
                }
                Item::Node(node) => {
                    if node.counts(now) {
                        cib.insert((**node).clone());
                    }
                    node.uid.clone()
                }
            };
            self.installed.entry(*kind).or_default().insert(uid);
        }
        manager.install(profiles.into_iter().collect(), policies.into_iter().collect(), cib);
    }
}

fn read(kind: FileKind, file: &SourceFile<'_>, now: WallTime) -> Result<(Item, Vec<Fault>), Fault> {
    Ok(match kind {
        FileKind::Profile | FileKind::Policy => {
            let (rule, warnings) = Rule::from_text(file.name, file.text)?;
            (Item::Rule(Box::new(rule)), warnings)
        }
        FileKind::Cib => {
            let (node, warnings) = Node::from_text(file.name, file.text, now)?;
            (Item::Node(Box::new(node)), warnings)
        }
    })
}

/// Looks at one file alone, as it would be loaded: what is wrong or odd about it.
#[must_use]
pub fn check(file: &SourceFile<'_>, now: WallTime) -> Vec<Fault> {
    let Some(kind) = FileKind::of(file.name) else {
        let why = "no policy, profile or CIB file by its name: it ends in none of .policy, .profile, .cib, .local, \
                   .connection, .remote and .slim, or begins with . or #";
        return vec![Fault { file: file.name.into(), line: 1, column: 1, why: why.into(), harmless: false }];
    };
    match read(kind, file, now) {
        Ok((Item::Node(node), mut warnings)) => {
            if !node.counts(now) {
                let why = "this node has expired, so that it does not count".into();
                warnings.push(Fault { file: file.name.into(), line: 1, column: 1, why, harmless: true });
            }
            warnings
        }
        Ok((Item::Rule(_), warnings)) => warnings,
        Err(fault) => vec![fault],
    }
}

/// The line, from 1, on which the text of a policy or profile says something of a property; that of what it says at all, if
/// no property is named or the text does not name it.
#[must_use]
pub fn line_of(text: &str, key: Option<&str>) -> usize {
    fn find(value: &serde_json::Value, key: &str, pointer: &str) -> Option<String> {
        match value {
            serde_json::Value::Object(map) => map.keys().find(|k| k.eq_ignore_ascii_case(key)).map(|name| {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                format!("{pointer}/{escaped}")
            }),
            serde_json::Value::Array(list) => {
                list.iter().enumerate().find_map(|(i, inner)| find(inner, key, &format!("{pointer}/{i}")))
            }
            _ => None,
        }
    }
    let json = neater_property::neat::read(text).unwrap_or_default();
    let found = key.and_then(|key| find(json.get("properties")?, key, "/properties"));
    neater_property::neat::locate(text, found.as_deref().unwrap_or("/properties")).0.max(1)
}
