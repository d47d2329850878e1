//! Files that are read whole: keys and certificates.

use crate::failure::Failure;
use std::io::Read;
use std::path::Path;

/// The largest file that is read whole.
const FILE_MAX: u64 = 4 << 20;

/// A file that is read whole.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bad = |e: &std::io::Error| Failure::file("read", path, e);
    let mut all = Vec::new();
    // A device has no length that could be looked at first.
    let file = std::fs::File::open(path).map_err(|e| bad(&e))?;
    file.take(FILE_MAX + 1).read_to_end(&mut all).map_err(|e| bad(&e))?;
    if all.len() as u64 > FILE_MAX {
        let what = format!("{}: more than {} MB are too many for this", path.display(), FILE_MAX >> 20);
        return Err(Failure::usage(what));
    }
    Ok(all)
}
