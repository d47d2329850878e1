//! Folders of policy, profile and CIB files, with failures that advise what to do.

use crate::failure::Failure;
use neater::policies::folder;
pub use neater::policies::folder::{Files, Listed, check};
use std::path::Path;

/// A text file of a size that a reader takes.
pub fn read(path: &Path) -> Result<String, Failure> {
    folder::read(path).map_err(|e| Failure::file("read", path, &e))
}

/// The files of a folder that count by their names; of the folders in it, too, if `deep`. What went
/// away meanwhile is left out.
pub fn list(dir: &Path, deep: bool) -> Result<Files, Failure> {
    folder::list(dir, deep).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Failure::usage(e.to_string()),
        kind => Failure::file("read", dir, &kind.into()),
    })
}
