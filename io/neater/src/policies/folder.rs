//! Folders of policy, profile and CIB files.

use neater_policy::manager::{FileKind, MAX_FILES};
use neater_property::neat::MAX_JSON;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How deep the folders of a CIB are followed.
const MAX_DEPTH: usize = 16;

/// How long most files are not, in bytes.
const USUAL: usize = 4096;

/// A file of a folder.
#[derive(Debug)]
pub struct Listed {
    /// Its path within the folder, with `/` between the parts.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its metadata from the operating system.
    pub metadata: Metadata,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub struct Files {
    /// The files that count by their names.
    pub files: Vec<Listed>,
    /// What is in it and cannot be looked at, folders mostly, and why: what is there is not known.
    pub closed: Vec<(PathBuf, io::Error)>,
}

/// Whether a folder is there, and its content is from a user who may define policies.
///
/// # Errors
/// It is no folder, or every user may write to it; with its path.
pub fn check(dir: &Path) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
    let metadata = std::fs::metadata(dir).map_err(named)?;
    if !metadata.is_dir() {
        return Err(named(io::ErrorKind::NotADirectory.into()));
    }
    if metadata.mode() & 0o002 != 0 {
        let why = format!("{}: every user may write to this folder of policies (chmod o-w)", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Opens a regular file for reading, and nothing else: opening a pipe blocks until there is a
/// writer, and the path may lead to another object than when it was checked.
///
/// # Errors
/// It cannot be opened, or is no file.
pub fn open(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// A text file of a size that a reader takes; of a longer one, so much that the reader refuses it.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read(path: &Path) -> io::Result<String> {
    // Most are much shorter: one call reads them, and one finds their end.
    let mut text = String::with_capacity(USUAL);
    open(path)?.take(MAX_JSON as u64 + 1).read_to_string(&mut text)?;
    text.shrink_to_fit();
    Ok(text)
}

/// The files of a folder that count by their names; of the folders in it, too, if `deep`. What went
/// away meanwhile is left out.
///
/// # Errors
/// The folder cannot be read, or there are more than [`MAX_FILES`]; with its path. A folder in it
/// that cannot be read, or not to its end, hides nothing else, and one that leads back to where it
/// lies is not followed.
pub fn list(dir: &Path, deep: bool) -> io::Result<Files> {
    let Files { mut files, mut closed } = Files::default();
    let mut folders = vec![(dir.to_path_buf(), String::new(), Vec::new())];
    while let Some((path, prefix, mut within)) = folders.pop() {
        let depth = within.len();
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if depth > 0 && e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) if depth > 0 => {
                closed.push((path, e));
                continue;
            }
            Err(e) => return Err(named(e)),
        };
        within.extend(std::fs::metadata(&path).ok().map(|m| (m.dev(), m.ino())));
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) if depth > 0 => {
                    closed.push((path, e));
                    break;
                }
                Err(e) => return Err(named(e)),
            };
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let metadata = match std::fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == io::ErrorKind::NotFound && entry.file_type().is_ok_and(|t| !t.is_symlink()) => {
                    continue;
                }
                // A link that leads nowhere, or to where access is denied: reading it will report
                // that. What might be a folder, or lies in one that may be listed and not searched,
                // is reported here.
                Err(e) => match entry.metadata() {
                    Ok(metadata) if FileKind::of(&name).is_some() => {
                        files.push(Listed { name, path: entry.path(), metadata });
                        continue;
                    }
                    Ok(_) if !deep || e.kind() == io::ErrorKind::NotFound => continue,
                    Err(_) if FileKind::of(&name).is_none() && !deep => continue,
                    _ => {
                        closed.push((entry.path(), e));
                        continue;
                    }
                },
            };
            if metadata.is_dir() && deep && depth < MAX_DEPTH {
                if !within.contains(&(metadata.dev(), metadata.ino())) {
                    folders.push((entry.path(), format!("{name}/"), within.clone()));
                }
            } else if !metadata.is_dir() && FileKind::of(&name).is_some() {
                // What is no file is reported when it is read.
                if files.len() >= MAX_FILES {
                    let why = format!("{} holds more than {MAX_FILES} files", dir.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                files.push(Listed { name, path: entry.path(), metadata });
            }
        }
    }
    Ok(Files { files, closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
        let path = std::env::temp_dir().join(format!("neater-folder-{}.policy", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(read(&path).unwrap_err().to_string(), "it is no file");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path).unwrap(), "{}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(read(&std::env::temp_dir()).is_err());
    }

    #[test]
    fn a_folder_that_is_not_read_to_its_end_and_one_that_leads_back_hide_nothing_and_are_no_more_than_once() {
        let dir = std::env::temp_dir().join(format!("neater-folders-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("in")).unwrap();
        std::fs::write(dir.join("a.policy"), "{}").unwrap();
        std::fs::write(dir.join("in/b.policy"), "{}").unwrap();
        std::os::unix::fs::symlink("..", dir.join("in/back")).unwrap();
        std::os::unix::fs::symlink(".", dir.join("self")).unwrap();
        // Where a container's root is not the host's, it opens and cannot be listed; elsewhere it
        // lists what is no file of ours.
        std::os::unix::fs::symlink("/proc/1/map_files", dir.join("mapped")).unwrap();
        let mut names: Vec<_> = list(&dir, true).unwrap().files.into_iter().map(|f| f.name).collect();
        names.sort();
        assert_eq!(names, ["a.policy", "in/b.policy"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
