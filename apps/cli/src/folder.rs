//! Folders of policy, profile and CIB files.

use crate::failure::Failure;
use neater_policy::manager::{FileKind, MAX_FILES};
use neater_property::neat::MAX_JSON;
use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How deep the folders of a CIB are followed.
const MAX_DEPTH: usize = 16;

/// A file of a folder.
pub(crate) struct Listed {
    /// Its path within the folder, with `/` between the parts.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) metadata: Metadata,
}

/// A text file of a size that a reader takes.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let file = std::fs::File::open(path).map_err(|e| Failure::file("read", path, &e))?;
    let mut text = String::new();
    file.take(MAX_JSON as u64 + 1).read_to_string(&mut text).map_err(|e| Failure::file("read", path, &e))?;
    Ok(text)
}

/// The files of a folder that count by their names; of the folders in it, too, if `deep`. What went away meanwhile is left
/// out.
pub(crate) fn list(dir: &Path, deep: bool) -> Result<Vec<Listed>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![(dir.to_path_buf(), String::new(), 0)];
    while let Some((path, prefix, depth)) = folders.pop() {
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if depth > 0 && e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Failure::file("read", &path, &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| Failure::file("read", &path, &e))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
            if metadata.is_dir() && deep && depth < MAX_DEPTH {
                folders.push((entry.path(), format!("{name}/"), depth + 1));
            } else if metadata.is_file() && FileKind::of(&name).is_some() {
                if files.len() >= MAX_FILES {
                    return Err(Failure::usage(format!("{} holds more than {MAX_FILES} files", dir.display())));
                }
                files.push(Listed { name, path: entry.path(), metadata });
            }
        }
    }
    Ok(files)
}
