//! What is kept of a download by several interfaces that was not finished: the file with the pieces that have come, and beside
//! it which these are, so that `-C` fetches the others.
//!
//! *Invariants*: the note speaks of pieces that are on the disk; it is believed only if it is about the same URL and the same
//! version, which a strong validator tells (RFC 9110 section 13.1.5), and fits the length of the file; a file that nobody
//! has noted anything about is somebody else's.

use super::target::{Version, beside, is_still, keep_mode};
use crate::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The longest note that is looked at: one for the most pieces has 16 kB of them.
const NOTE_MAX: u64 = 64 << 10;

/// The file that is being filled, and what is told of it.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    note: PathBuf,
    url: String,
    pub(super) file: File,
    pub(super) version: Version,
    /// How long a piece is, in bytes.
    pub(super) piece: u64,
    /// Which pieces have come already.
    pub(super) there: Vec<bool>,
}

/// The names that are used beside a file.
pub(super) fn names(path: &Path) -> [PathBuf; 2] {
    [beside(path, ".multi"), beside(path, ".multi.json")]
}

impl Kept {
    /// Makes the file of this version, or goes on with the one that is there if that is wanted. `cut` is how a new one is
    /// taken apart: how long a piece is, and how many there are.
    pub(super) fn open(
        target: &Path,
        url: &str,
        version: &Version,
        total: u64,
        cut: (u64, usize),
        resume: bool,
    ) -> Result<Self, Failure> {
        let [path, note] = names(target);
        let bad = |e: &io::Error| Failure::file("write", &path, e);
        let mut how = OpenOptions::new();
        how.write(true);
        let (file, made) = match how.clone().create_new(true).open(&path) {
            Ok(file) => (file, true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && resume => {
                (super::target::open_same(&path, &how)?, false)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let advice = match std::fs::symlink_metadata(&note) {
                    Ok(_) => "-C goes on with it; if it is of no use, remove it",
                    Err(_) => "if no other neater is fetching this file, remove what is there",
                };
                return Err(bad(&e).advise(advice));
            }
            Err(e) => return Err(bad(&e)),
        };
        match file.try_lock() {
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("{} is being written by another neater", path.display());
                return Err(Failure::new(Exit::Local, "file", what));
            }
        }
        let new = |file| Self {
            path: path.clone(),
            note: note.clone(),
            url: url.to_owned(),
            file,
            version: version.clone(),
            piece: cut.0,
            there: vec![false; cut.1],
        };
        if made {
            // A note without its file speaks of nothing.
            let _ = std::fs::remove_file(&note);
            let kept = new(file);
            return match keep_mode(target, &kept.file).and_then(|()| kept.file.set_len(total)) {
                Ok(()) => Ok(kept),
                Err(e) => {
                    kept.forget();
                    Err(bad(&e))
                }
            };
        }
        let refuse =
            |what: String, advice: &str| Err(Failure::new(Exit::Local, "part", what).advise(advice.to_owned()));
        if !is_mine(&file) {
            let what = format!("{} is another user's: what is in it may be anything", path.display());
            return refuse(what, "remove it, or choose another name with -o FILE");
        }
        let held = match read(&note) {
            Some(held) => held,
            None => {
                let what = format!("{} is there, and nothing says of what it is a part", path.display());
                return refuse(what, "remove it if it is of no use, or choose another name with -o FILE");
            }
        };
        if held.url != url {
            let what = format!("{} holds pieces of {}, and {url} is asked for", path.display(), held.url);
            return refuse(what, "remove it if it is of no use, or choose another name with -o FILE");
        }
        let length = file.metadata().map_err(|e| bad(&e))?.len();
        let same = held.version.validator().is_some()
            && held.version.validator() == version.validator()
            && held.version.is_also(version)
            && (held.version.total, length) == (Some(total), total);
        let fits = held.piece > 0 && usize::try_from(total.div_ceil(held.piece)).is_ok_and(|n| n == held.there.len());
        if same && fits {
            return Ok(Self { version: held.version, piece: held.piece, there: held.there, ..new(file) });
        }
        // Another version: what has come of the one before is of no use. The note goes first.
        std::fs::remove_file(&note).map_err(|e| Failure::file("remove", &note, &e))?;
        file.set_len(0).and_then(|()| file.set_len(total)).map_err(|e| bad(&e))?;
        Ok(new(file))
    }

    /// Whether pieces of an earlier run are there.
    pub(super) fn is_continued(&self) -> bool {
        self.there.contains(&true)
    }

    /// Keeps what has come for a later run; false if there is nothing worth keeping. May block.
    pub(super) fn keep(&self, there: &[bool]) -> bool {
        let is_worth = self.version.validator().is_some() && there.contains(&true);
        // A note beside somebody else's file would tell of pieces that are not in it.
        if !is_worth || self.file.sync_data().is_err() || !is_still(&self.path, &self.file) {
            return false;
        }
        let digits: String = there
            .chunks(4)
            .map(|four| four.iter().enumerate().map(|(i, there)| u32::from(*there) << i).sum())
            .filter_map(|bits: u32| char::from_digit(bits, 16))
            .collect();
        let v = &self.version;
        let text = json!({"url": self.url, "etag": v.etag, "modified": v.modified, "date": v.date, "total": v.total,
            "piece": self.piece, "pieces": there.len(), "there": digits});
        // As a whole or not at all: the one before holds as well, of fewer pieces.
        let mut draft = self.note.as_os_str().to_owned();
        draft.push(".new");
        let draft = PathBuf::from(draft);
        let _ = std::fs::remove_file(&draft);
        let written = OpenOptions::new().write(true).create_new(true).open(&draft).and_then(|mut file| {
            file.write_all(format!("{text}\n").as_bytes())?;
            file.sync_data()
        });
        let written = written.and_then(|()| std::fs::rename(&draft, &self.note));
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        written.is_ok() || self.note.exists()
    }

    /// Nothing of it is of use any more.
    pub(super) fn forget(&self) {
        if !is_still(&self.path, &self.file) {
            return;
        }
        let _ = std::fs::remove_file(&self.note);
        let _ = std::fs::remove_file(&self.path);
    }

    /// It has become the file.
    pub(super) fn finish(&self, target: &Path) -> Result<(), Failure> {
        self.file.sync_data().map_err(|e| Failure::file("write", &self.path, &e))?;
        if !is_still(&self.path, &self.file) {
            let what =
                format!("{} is not the file any more that was filled: somebody put another there", self.path.display());
            return Err(Failure::new(Exit::Local, "file", what).advise("fetch it again, with nobody else at it"));
        }
        std::fs::rename(&self.path, target).map_err(|e| Failure::file("rename", &self.path, &e))?;
        let _ = std::fs::remove_file(&self.note);
        Ok(())
    }
}

/// What a note says.
struct Held {
    url: String,
    version: Version,
    piece: u64,
    there: Vec<bool>,
}

/// Whether a file belongs to whoever runs this: others know what is in theirs, and may write to it.
fn is_mine(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        file.metadata().is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        true
    }
}

/// Reads a note; `None` if it is none of ours.
fn read(path: &Path) -> Option<Held> {
    let mut text = String::new();
    let file = neater::policies::folder::open(path).ok().filter(is_mine)?;
    file.take(NOTE_MAX).read_to_string(&mut text).ok()?;
    parse(&text)
}

fn parse(text: &str) -> Option<Held> {
    let value: Value = serde_json::from_str(text).ok()?;
    let word = |key: &str| value[key].as_str().map(str::to_owned);
    let version =
        Version { etag: word("etag"), modified: word("modified"), date: word("date"), total: value["total"].as_u64() };
    let pieces = usize::try_from(value["pieces"].as_u64()?).ok()?;
    let digits = word("there")?;
    if digits.len() != pieces.div_ceil(4) {
        return None;
    }
    let mut there = Vec::with_capacity(pieces.min(4 * digits.len()));
    for digit in digits.chars() {
        let bits = digit.to_digit(16)?;
        there.extend((0..4).map(|i| bits >> i & 1 == 1));
    }
    // What stands behind the last piece is nothing.
    if there.iter().skip(pieces).any(|t| *t) {
        return None;
    }
    there.truncate(pieces);
    Some(Held { url: word("url")?, version, piece: value["piece"].as_u64()?, there })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str) -> Version {
        Version { etag: Some(format!("\"{etag}\"")), total: Some(1000), ..Version::default() }
    }

    #[test]
    fn pieces_are_kept_for_the_same_file_and_no_other() {
        let dir = std::env::temp_dir().join(format!("neater-kept-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("made");
        let target = dir.join("file");
        let open = |url: &str, etag: &str, resume| Kept::open(&target, url, &version(etag), 1000, (100, 10), resume);
        let why = |kept: Result<Kept, Failure>| {
            kept.err().map(|f| format!("{} {}", f.message, f.advice.join(" "))).unwrap_or_default()
        };
        let [part, note] = names(&target);

        let first = open("http://h/f", "1", true).expect("a new one");
        assert!(!first.is_continued() && !first.keep(&first.there), "nothing is worth keeping");
        let other = open("http://h/f", "1", true);
        assert!(why(other).contains("another neater"));
        let mut there = first.there.clone();
        (there[0], there[9]) = (true, true);
        assert!(first.keep(&there));
        drop(first);
        assert!(why(open("http://h/f", "1", false)).contains("-C goes on"));
        assert!(why(open("http://h/g", "1", true)).contains("holds pieces of http://h/f"));
        let again = open("http://h/f", "1", true).expect("the same");
        assert_eq!(again.there, there);
        drop(again);
        let changed = open("http://h/f", "2", true).expect("begun anew");
        assert!(!changed.is_continued() && !note.exists());
        drop(changed);
        assert!(why(open("http://h/f", "2", true)).contains("nothing says of what"));
        for bad in [
            "",
            "{}",
            "[1]",
            r#"{"url": "http://h/f", "piece": 100, "pieces": 10, "there": "fffff"}"#,
            r#"{"url": "http://h/f", "piece": 100, "pieces": 10, "there": "ff4"}"#,
            r#"{"url": "http://h/f", "piece": 100, "pieces": 18446744073709551615, "there": "ff"}"#,
        ] {
            std::fs::write(&note, bad).expect("written");
            assert!(why(open("http://h/f", "2", true)).contains("nothing says of what"), "{bad}");
        }
        // Another file in its place: what this one has filled is nothing of that.
        std::fs::remove_file(&part).expect("there");
        let filled = open("http://h/f", "3", false).expect("a new one");
        std::fs::remove_file(&part).expect("there");
        std::fs::write(&part, [0; 1000]).expect("written");
        assert!(!filled.keep(&[true; 10]) && !note.exists());
        filled.forget();
        assert!(part.exists());
        assert!(filled.finish(&target).is_err() && part.exists() && !target.exists());
        drop(filled);
        // A note that fits nothing is of no use, and neither is the file.
        let text = r#"{"url": "http://h/f", "etag": "\"2\"", "total": 1000, "piece": 0, "pieces": 10, "there": "ff3"}"#;
        std::fs::write(&note, text).expect("written");
        assert!(!open("http://h/f", "2", true).expect("begun anew").is_continued());
        std::fs::remove_file(&part).expect("there");
        std::os::unix::fs::symlink(dir.join("elsewhere"), &part).expect("made");
        assert!(open("http://h/f", "2", true).is_err() && !dir.join("elsewhere").exists());
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
