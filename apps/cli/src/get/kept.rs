//! What is kept of a download by several interfaces that was not finished: the file with the pieces
//! that have come, and beside it which these are, so that `-C` fetches the others.
//!
//! *Invariants*: the note speaks of pieces that are on the disk; it is believed only if it is about
//! the same URL and the same version, which a strong validator proves (RFC 9110 section 13.1.5),
//! and fits the length of the file; a file without a note is not neater's. The note is there from
//! the beginning and has its length from the beginning, so that a disk that has become full does
//! not keep it from being true: of it only single digits change, from pieces that are not there to
//! pieces that are, and whichever of them reach the disk, it holds.

use super::target::{Version, beside, is_mine, is_still, keep_mode, of_another};
use crate::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The longest note that is looked at: one for the most pieces has 16 kB of them.
const NOTE_MAX: u64 = 64 << 10;

/// The file that is being filled, and its note.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    note: PathBuf,
    /// The note, and at which byte of it the digits begin that record which pieces are there.
    digits: Mutex<(File, u64)>,
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
    /// Makes the file of this version, or goes on with the one that is there if that is wanted.
    /// `cut` is how a new one is taken apart: how long a piece is, and how many there are.
    pub(super) fn open(
        target: &Path,
        url: &str,
        version: &Version,
        total: u64,
        cut: (u64, usize),
        resume: bool,
    ) -> Result<Self, Failure> {
        let [path, note] = names(target);
        let bad = |e: &io::Error| super::file("write", &path, e);
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
        let of = |file, digits, version, piece, there| Self {
            path: path.clone(),
            note: note.clone(),
            digits: Mutex::new(digits),
            file,
            version,
            piece,
            there,
        };
        let new = |file: File| {
            // Before the note: a file of another length is not the one that it speaks of.
            file.set_len(total).map_err(|e| bad(&e))?;
            let digits = begin(&note, url, version, cut).map_err(|e| super::file("write", &note, &e))?;
            Ok(of(file, digits, version.clone(), cut.0, vec![false; cut.1]))
        };
        if made {
            let mine = file.try_clone();
            let kept = keep_mode(target, &file).map_err(|e| bad(&e)).and_then(|()| new(file));
            // Nothing has come: nothing is left.
            if kept.is_err() && mine.is_ok_and(|file| is_still(&path, &file)) {
                let _ = std::fs::remove_file(&path);
            }
            return kept;
        }
        let refuse =
            |what: String, advice: &str| Err(Failure::new(Exit::Local, "part", what).advise(advice.to_owned()));
        if !is_mine(&file) {
            return Err(of_another(&path));
        }
        let (written, held) = match read(&note) {
            Some(both) => both,
            None => {
                let what = format!("{} exists, and nothing shows of what it is a part", path.display());
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
            return Ok(of(file, (written, held.at), held.version, held.piece, held.there));
        }
        // Another version: what has come of the one before is of no use. The note goes first.
        std::fs::remove_file(&note).map_err(|e| super::file("remove", &note, &e))?;
        file.set_len(0).map_err(|e| bad(&e))?;
        new(file)
    }

    /// The version of the pieces by the note beside `target`, if they are of this URL.
    pub(super) fn version_of(target: &Path, url: &str) -> Option<Version> {
        let [path, note] = names(target);
        let (_, held) = read(&note).filter(|(_, held)| held.url == url)?;
        path.is_file().then_some(held.version)
    }

    /// Whether pieces of an earlier run are there.
    pub(super) fn is_continued(&self) -> bool {
        self.there.contains(&true)
    }

    /// Keeps what has come for a later run: `there` is asked which pieces these are, and then they
    /// are brought to the disk. False if there is nothing worth keeping. May block.
    pub(super) fn keep(&self, there: impl FnOnce() -> Vec<bool>) -> bool {
        // One after the other: a later one knows of more.
        let digits = self.digits.lock().unwrap_or_else(PoisonError::into_inner);
        let there = there();
        // A note beside a foreign file would record pieces that are not in it.
        if !there.contains(&true) || !is_still(&self.path, &self.file) {
            return false;
        }
        let (note, at) = &*digits;
        if self.file.sync_data().is_ok() && note.write_all_at(digits_of(&there).as_bytes(), *at).is_ok() {
            let _ = note.sync_data();
        }
        // If that was of no use, the earlier note still holds, for fewer pieces.
        is_still(&self.note, note) && self.note.exists()
    }

    /// Nothing of it is of use any more.
    pub(super) fn forget(&self) {
        if !is_still(&self.path, &self.file) {
            return;
        }
        self.drop_note();
        let _ = std::fs::remove_file(&self.path);
    }

    /// Removes the note, if it is still ours.
    fn drop_note(&self) {
        if is_still(&self.note, &self.digits.lock().unwrap_or_else(PoisonError::into_inner).0) {
            let _ = std::fs::remove_file(&self.note);
        }
    }

    /// It has become the file.
    pub(super) fn finish(&self, target: &Path) -> Result<(), Failure> {
        self.file.sync_data().map_err(|e| super::file("write", &self.path, &e))?;
        if !is_still(&self.path, &self.file) {
            let what = format!(
                "{} is not the file that was filled any more: another file was put in its place",
                self.path.display()
            );
            return Err(
                Failure::new(Exit::Local, "file", what).advise("fetch it again, with no other program writing there")
            );
        }
        std::fs::rename(&self.path, target).map_err(|e| super::file("rename", &self.path, &e))?;
        self.drop_note();
        Ok(())
    }
}

/// Four pieces to a hexadecimal digit, the first in its lowest bit.
fn digits_of(there: &[bool]) -> String {
    let bits = |four: &[bool]| four.iter().enumerate().map(|(i, there)| u32::from(*there) << i).sum();
    there.chunks(4).filter_map(|four| char::from_digit(bits(four), 16)).collect()
}

/// How the digits are introduced. No text within the note has this: there, its marks would be
/// escaped.
const THERE: &str = "\"there\":\"";

/// Makes the note of a file of which nothing is there yet; it, and where its digits begin. A note
/// of ours that is there speaks of a file that is not there any more.
fn begin(note: &Path, url: &str, v: &Version, (piece, pieces): (u64, usize)) -> io::Result<(File, u64)> {
    if let Some((old, _)) = read(note)
        && is_still(note, &old)
    {
        std::fs::remove_file(note)?;
    }
    let text = json!({"url": url, "etag": v.etag, "modified": v.modified, "date": v.date, "total": v.total,
        "piece": piece, "pieces": pieces, "there": digits_of(&vec![false; pieces])});
    let text = format!("{text}\n");
    let at = text.find(THERE).map(|i| (i + THERE.len()) as u64).ok_or(io::ErrorKind::InvalidData)?;
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(note)?;
    match file.write_all(text.as_bytes()) {
        Ok(()) => Ok((file, at)),
        Err(e) => {
            if is_still(note, &file) {
                let _ = std::fs::remove_file(note);
            }
            Err(e)
        }
    }
}

/// The content of a note.
struct Held {
    url: String,
    version: Version,
    piece: u64,
    there: Vec<bool>,
    /// At which byte the digits begin.
    at: u64,
}

/// Opens and reads a note; `None` if it is none of ours.
fn read(path: &Path) -> Option<(File, Held)> {
    let mut how = OpenOptions::new();
    let mut file = super::target::open_same(path, how.read(true).write(true)).ok().filter(is_mine)?;
    let mut text = String::new();
    (&mut file).take(NOTE_MAX).read_to_string(&mut text).ok()?;
    Some((file, parse(&text)?))
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
    let at = text.find(THERE).map(|i| i + THERE.len())?;
    // What is written over must be what was read.
    if !text[at..].starts_with(&digits) {
        return None;
    }
    Some(Held { url: word("url")?, version, piece: value["piece"].as_u64()?, there, at: at as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str) -> Version {
        Version { etag: Some(format!("\"{etag}\"")), total: Some(1000), ..Version::default() }
    }

    /// Whatever stands in a note: it is none, or its digits stand where they will be written over.
    #[test]
    fn what_is_believed_of_a_note_is_where_it_is_written_over() {
        let seed =
            r#"{"etag":"\"there\":\"f\"","piece":9,"pieces":9,"there":"f01","total":81,"url":"http://h/\"there\":\""}"#;
        assert_eq!(parse(seed).expect("a note").there, [true, true, true, true, false, false, false, false, true]);
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: usize| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x % below as u64) as usize
        };
        let mut believed = 0;
        for _ in 0..20_000 {
            let mut text = seed.as_bytes().to_vec();
            for _ in 0..=next(3) {
                let (at, from) = (next(text.len()), next(text.len()));
                match next(4) {
                    0 => text[at] = b"0123456789abcdef\"{}:,\\"[next(22)],
                    1 => {
                        text.remove(at);
                    }
                    2 => text.insert(at, text[from]),
                    _ => {
                        text.splice(at..at, seed.bytes().skip(from).take(12));
                    }
                }
            }
            let text = String::from_utf8_lossy(&text);
            let Some(held) = parse(&text) else { continue };
            believed += 1;
            let at = usize::try_from(held.at).expect("short");
            let digits = digits_of(&held.there);
            assert_eq!(text.get(at..at + digits.len()).map(str::to_ascii_lowercase), Some(digits), "{text}");
        }
        assert!(believed > 1000, "{believed}");
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
        assert!(!first.is_continued() && !first.keep(|| first.there.clone()), "nothing is worth keeping");
        let length = || note.metadata().expect("there from the beginning").len();
        let before = length();
        let other = open("http://h/f", "1", true);
        assert!(why(other).contains("another neater"));
        let mut there = first.there.clone();
        (there[0], there[9]) = (true, true);
        assert!(first.keep(|| there.clone()) && length() == before);
        drop(first);
        assert!(why(open("http://h/f", "1", false)).contains("-C goes on"));
        assert!(why(open("http://h/g", "1", true)).contains("holds pieces of http://h/f"));
        let again = open("http://h/f", "1", true).expect("the same");
        assert_eq!(again.there, there);
        drop(again);
        let changed = open("http://h/f", "2", true).expect("begun anew");
        assert!(!changed.is_continued());
        drop(changed);
        // A run that was killed: nothing was kept, and what it has noted holds.
        assert!(!open("http://h/f", "2", true).expect("the same").is_continued());
        std::fs::remove_file(&note).expect("there");
        assert!(why(open("http://h/f", "2", true)).contains("nothing shows of what"));
        for bad in [
            "",
            "{}",
            "[1]",
            r#"{"url":"http://h/f","piece":100,"pieces":10,"there":"fffff"}"#,
            r#"{"url":"http://h/f","piece":100,"pieces":10,"there":"ff4"}"#,
            r#"{"url":"http://h/f","piece":100,"pieces":10,"there":"ff3","there":"ff1"}"#,
            r#"{"url":"http://h/f","piece":100,"pieces":18446744073709551615,"there":"ff"}"#,
        ] {
            std::fs::write(&note, bad).expect("written");
            assert!(why(open("http://h/f", "2", true)).contains("nothing shows of what"), "{bad}");
        }
        // Another file in its place: what this one has filled is nothing of that.
        std::fs::remove_file(&part).expect("there");
        assert!(why(open("http://h/f", "3", false)).contains("exists") && note.exists(), "no note of ours");
        assert!(!part.exists(), "what was made for nothing goes again");
        std::fs::remove_file(&note).expect("there");
        let filled = open("http://h/f", "3", false).expect("a new one");
        std::fs::remove_file(&part).expect("there");
        std::fs::write(&part, [0; 1000]).expect("written");
        assert!(!filled.keep(|| vec![true; 10]));
        filled.forget();
        assert!(part.exists());
        assert!(filled.finish(&target).is_err() && part.exists() && !target.exists());
        drop(filled);
        // A note that fits nothing is of no use, and neither is the file.
        let text = r#"{"url":"http://h/f","etag":"\"2\"","total":1000,"piece":0,"pieces":10,"there":"ff3"}"#;
        std::fs::write(&note, text).expect("written");
        assert!(!open("http://h/f", "2", true).expect("begun anew").is_continued());
        std::fs::remove_file(&part).expect("there");
        std::os::unix::fs::symlink(dir.join("elsewhere"), &part).expect("made");
        assert!(open("http://h/f", "2", true).is_err() && !dir.join("elsewhere").exists());
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
