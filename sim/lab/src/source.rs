//! Scenario files on disk, and those that come with neater: the same for simulator and lab.
//!
//! *Responsible for* finding a scenario by name or path, and the files that it names, which are looked for beside it. What is
//! read is bounded, and read only from ordinary files.

use neater_scenario::{FileContent, FileKind, MAX_DOCUMENT, SHIPPED, Scenario, ScenarioError, shipped, shipped_file};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest file of a scenario that is read, in bytes: a trace of some eight hours at 2 Mbit/s.
pub const TRACE_MAX: u64 = 64 << 20;

/// What a file says, and a number that changes with its text.
type Read = (FileContent, u64);

/// A scenario as text, and where it stands.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    /// The directory that its files are beside; `None` for one that comes with neater or was made by a program.
    directory: Option<PathBuf>,
    /// What has been read, by name.
    files: Arc<Mutex<BTreeMap<(String, FileKind), Read>>>,
}

impl Source {
    /// A scenario that is no file.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), directory: None, files: Arc::default() }
    }

    /// Opens a scenario file, or one that comes with neater by its name.
    ///
    /// # Errors
    /// There is neither, or the file cannot be read: what was looked for, and what there is.
    pub fn open(scenario: &Path) -> Result<Self, String> {
        let name = scenario.display();
        match fs::metadata(scenario) {
            Ok(m) if m.is_file() => {
                let text = read(scenario, MAX_DOCUMENT as u64).map_err(|e| format!("{name}: {e}"))?;
                let directory = scenario.parent().map(Path::to_owned).unwrap_or_default();
                Ok(Self { directory: Some(directory), ..Self::from_text(text) })
            }
            found => match scenario.to_str().and_then(shipped) {
                Some(text) => Ok(Self::from_text(text)),
                None => {
                    let why = match found {
                        Ok(_) => "not an ordinary file".to_owned(),
                        Err(e) => e.to_string(),
                    };
                    let names: Vec<&str> = SHIPPED.iter().map(|(n, _)| *n).collect();
                    Err(format!("{name}: {why}; scenarios that come with neater: {}", names.join(", ")))
                }
            },
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scenario, with other values for some of its keys.
    ///
    /// # Errors
    /// As [`Scenario::parse_with`]; of a file that it names, with the line in that file.
    pub fn parse(&self, set: &[(String, String)]) -> Result<Scenario, ScenarioError> {
        Scenario::parse_with(&self.text, set, |name, kind| self.file(name, kind))
    }

    fn file(&self, name: &str, kind: FileKind) -> Result<FileContent, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), kind);
        if let Some((content, _)) = files.get(&key) {
            return Ok(content.clone());
        }
        // A file on the command line (--set trace=...) of a scenario that comes with neater is beside whoever typed it.
        let text = match (&self.directory, shipped_file(name)) {
            (None, Some(text)) => text.to_owned(),
            (directory, _) => {
                let directory = directory.clone().unwrap_or_default();
                let path = directory.join(name);
                read(&path, TRACE_MAX).map_err(|e| {
                    if e.starts_with("No such") {
                        let place =
                            if directory.as_os_str().is_empty() { ".".into() } else { directory.display().to_string() };
                        format!("{e}, looked for in {place}")
                    } else {
                        e
                    }
                })?
            }
        };
        let content = kind.read(&text)?;
        files.insert(key, (content.clone(), fnv(text.bytes())));
        Ok(content)
    }

    /// A number that changes with the texts of the scenario and of the files read so far.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = files.iter().flat_map(|((name, _), (_, n))| name.bytes().chain(n.to_be_bytes()));
        fnv(self.text.bytes().chain(numbers))
    }
}

/// FNV-1a (RFC 9923), 64 bits: nobody attacks it here.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// The text of an ordinary file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<String, String> {
    let told = |e: std::io::Error| e.to_string();
    // Opened only if it is a file: a pipe would wait for its writer.
    if !fs::metadata(path).map_err(told)?.is_file() {
        return Err("not an ordinary file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(told)?.take(most + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > most {
        return Err(format!("longer than {most} bytes"));
    }
    String::from_utf8(bytes).map_err(|e| format!("not text: byte {} is no UTF-8", e.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("neater-source-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        dir
    }

    const TEXT: &str = "[host.a]\n[host.b]\n[link.x]\nfrom = 'a'\nto = 'b'\nrate = { trace-file = 'my.trace' }\n";

    #[test]
    fn a_trace_is_beside_its_scenario_and_wrong_ones_are_told_with_both_places() {
        let dir = directory("trace");
        fs::write(dir.join("s.toml"), TEXT).expect("written");
        let open = || Source::open(&dir.join("s.toml")).expect("opens");
        let error = open().parse(&[]).expect_err("no such file").to_string();
        assert!(error.contains("line 6, column 23") && error.contains("my.trace: No such file"), "{error}");
        fs::write(dir.join("my.trace"), "0\n5\nsix\n").expect("written");
        let error = open().parse(&[]).expect_err("wrong").to_string();
        assert!(error.contains("line 6, column 23: trace-file: my.trace: line 3: expected a time"), "{error}");
        fs::write(dir.join("my.trace"), "0\n5\n6\n").expect("written");
        let source = open();
        let before = source.fingerprint();
        let scenario = source.parse(&[]).expect("parses");
        assert_ne!(source.fingerprint(), before, "what is in the file counts");
        let rate = &scenario.links[0].directions[1].config.rate;
        assert_eq!(rate.mean(), Some(3.0 * 12_000.0 / 0.006));
        fs::write(dir.join("my.trace"), [0xff]).expect("written");
        assert!(open().parse(&[]).expect_err("no text").to_string().contains("UTF-8"));
        fs::remove_file(dir.join("my.trace")).expect("removed");
        fs::create_dir(dir.join("my.trace")).expect("made");
        assert!(open().parse(&[]).expect_err("a directory").to_string().contains("ordinary file"));
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn jitter_comes_from_a_file_too() {
        let dir = directory("jitter");
        let text = TEXT.replace("rate = { trace-file = 'my.trace' }", "jitter = { values-file = 'my.jitter' }");
        fs::write(dir.join("s.toml"), text).expect("written");
        let open = || Source::open(&dir.join("s.toml")).expect("opens");
        fs::write(dir.join("my.jitter"), "# measured\n0\n1.5\n\n250 us # short\n").expect("written");
        let scenario = open().parse(&[]).expect("parses");
        let us = |n| std::time::Duration::from_micros(n);
        let jitter = &scenario.links[0].directions[0].config.jitter;
        assert_eq!(*jitter, neater_link::Jitter::Values([us(0), us(1500), us(250)].into()));
        for (wrong, said) in [("1\nfast\n", "my.jitter: line 2:"), ("\n", "has no times"), ("-1", "line 1:")] {
            fs::write(dir.join("my.jitter"), wrong).expect("written");
            let error = open().parse(&[]).expect_err(wrong).to_string();
            assert!(error.contains(said) && error.contains("line 6, column 26: values-file"), "{error}");
        }
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn what_comes_with_neater_is_found_and_a_scenario_must_be_small() {
        let s = Source::open(Path::new("cellular")).expect("shipped").parse(&[]).expect("parses");
        let mean = s.links[0].directions[1].config.rate.mean().expect("a rate");
        assert!((1e6..12e6).contains(&mean), "{mean}");
        let error = Source::open(Path::new("/no/such")).expect_err("nothing there");
        assert!(error.contains("No such file") && error.contains("dumbbell"), "{error}");
        let dir = directory("large");
        fs::write(dir.join("s.toml"), vec![b'#'; MAX_DOCUMENT + 1]).expect("written");
        assert!(Source::open(&dir.join("s.toml")).expect_err("too long").contains("longer than"));
        fs::remove_dir_all(&dir).expect("removed");
    }
}
