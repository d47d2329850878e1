//! Directories of policy, profile and CIB files: text in, tables out. The caller reads the files.
//!
//! A file that cannot be used is reported with line and column, and its earlier content stays in
//! force; so a typing error never takes a policy away. Everything is put in place at once, or not
//! at all.

use super::Manager;
use super::cib::MAX_NODES;
use super::file::{Fault, Node, Rule};
use super::layer::{Contents, Item, Layer};
use neater_base::WallTime;
use neater_property::Fingerprint;
use std::collections::BTreeMap;

/// How many files of a directory are read.
pub const MAX_FILES: usize = 100_000;

/// A file of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// Its path from the directory on, with `/` between the parts.
    pub name: &'a str,
    /// Its content.
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
    /// What a file of the policy directory is for, by its name. Only files that lie in it directly
    /// count.
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

/// The content of a file when it was last understood.
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
    layer: Layer,
    /// The nodes for which there was no room.
    dropped: Vec<String>,
}

/// The order of files: by the bytes of their names, the files of a directory before its
/// sub-directories.
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
    /// Reads the files of the policy directory and of the CIB directory and puts their content into
    /// `manager`, in place of the files read before. Files that did not change are not read again,
    /// so that the lifetime of a node begins when its file is first seen.
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
                        fault.why += "; its earlier content stays in force";
                    }
                    report.faults.push(fault);
                }
            }
        }
        self.doubles(&mut report);
        if report.changed {
            let mut contents = Contents::beneath(manager, &mut [&mut self.layer], now);
            self.lay(&mut contents, now);
            contents.install(manager);
        }
        self.full(&mut report);
        (report.profiles, report.policies) = (manager.profiles().rules().len(), manager.policies().rules().len());
        report.nodes = manager.cib().nodes().count();
        report
    }

    /// The file that defines this uid: of several the one that counts, which is the last one.
    #[must_use]
    pub fn file_of(&self, kind: FileKind, uid: &str) -> Option<String> {
        let is = |loaded: &Loaded| loaded.item.uid() == uid;
        let found = self.files.iter().rev().find(|((k, _), loaded)| *k == kind && is(loaded));
        found.map(|((_, order), _)| order.name())
    }

    /// Whether a file defines this uid.
    #[must_use]
    pub fn says(&self, kind: FileKind, uid: &str) -> bool {
        self.layer.says(kind, uid)
    }

    /// What the files cover.
    pub const fn layer(&mut self) -> &mut Layer {
        &mut self.layer
    }

    /// Lays the files' content on top of what there is, after [`Contents::beneath`].
    pub(crate) fn lay(&mut self, contents: &mut Contents, now: WallTime) {
        let items = self.files.iter().map(|((kind, _), loaded)| (*kind, loaded.item.clone()));
        self.dropped = contents.lay(&mut self.layer, items, now);
    }

    /// Reports that there was no room for all nodes.
    fn full(&self, report: &mut Report) {
        let Some(first) = self.dropped.first() else { return };
        let file = self.file_of(FileKind::Cib, first).unwrap_or_default();
        let why = format!(
            "the CIB holds at most {MAX_NODES} nodes: {} of them, {first} first, gave way to others and do not count",
            self.dropped.len()
        );
        report.faults.push(Fault { file, line: 1, column: 1, why, harmless: false });
    }

    /// Reports which files take the place of others.
    fn doubles(&self, report: &mut Report) {
        let mut seen: BTreeMap<(FileKind, &str), String> = BTreeMap::new();
        for ((kind, order), loaded) in &self.files {
            let uid = loaded.item.uid();
            if let Some(earlier) = seen.insert((*kind, uid), order.name()) {
                report.faults.push(doubled(&order.name(), &earlier, uid));
            }
        }
    }
}

fn doubled(file: &str, earlier: &str, uid: &str) -> Fault {
    let why = format!("this takes the place of {earlier}, which has the same uid, {uid}");
    Fault { file: file.into(), line: 1, column: 1, why, harmless: true }
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
    look_at(file, now).0
}

/// Looks at files that would be loaded together, in the order of their names: what is wrong or odd
/// about each, and which take the place of others because they have the same uid.
#[must_use]
pub fn check_all(files: &[SourceFile<'_>], now: WallTime) -> Vec<Fault> {
    let mut seen: BTreeMap<(FileKind, String), &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for file in files {
        let (of_file, says) = look_at(file, now);
        faults.extend(of_file);
        if let Some((kind, uid)) = says
            && let Some(earlier) = seen.insert((kind, uid.clone()), file.name)
        {
            faults.push(doubled(file.name, earlier, &uid));
        }
    }
    faults
}

/// The faults of a file, and what it defines, if it does.
fn look_at(file: &SourceFile<'_>, now: WallTime) -> (Vec<Fault>, Option<(FileKind, String)>) {
    let Some(kind) = FileKind::of(file.name) else {
        let why = "no policy, profile or CIB file by its name: it ends in none of .policy, .profile, .cib, .local, \
                   .connection, .remote and .slim, or begins with . or #";
        return (vec![Fault { file: file.name.into(), line: 1, column: 1, why: why.into(), harmless: false }], None);
    };
    match read(kind, file, now) {
        Ok((item, mut warnings)) => {
            if matches!(&item, Item::Node(node) if !node.counts(now)) {
                let why = "this node has expired, so that it does not count".into();
                warnings.push(Fault { file: file.name.into(), line: 1, column: 1, why, harmless: true });
            }
            (warnings, Some((kind, item.uid().to_owned())))
        }
        Err(fault) => (vec![fault], None),
    }
}

/// The line, from 1, on which the text of a policy or profile states a property; that of its first
/// statement, if no property is named or the text does not name it.
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
