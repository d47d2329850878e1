//! The secret with which a server that was started anew tells QUIC clients that it has forgotten them (stateless reset,
//! RFC 9000 section 10.3).
//!
//! *Invariants*: it stays the same from run to run, also of servers that start at the same time; nobody but its owner can
//! read it from the moment it exists.

use super::certificate::{state_dir, write_new};
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the file is called, beside the certificates.
const NAME: &str = "quic-reset.secret";

/// The secret that is kept in `dir`, or with the user's state; made if there is none.
///
/// # Errors
/// Why there is none, for people.
pub(super) fn secret(dir: Option<&Path>) -> Result<[u8; 32], String> {
    let dir = match dir {
        Some(d) => d.to_owned(),
        None => state_dir().ok_or("there is no home directory to keep a secret in")?,
    };
    let path = dir.join(NAME);
    kept_or_made(&dir, &path).map_err(|e| format!("{}: {e}", path.display()))
}

fn kept_or_made(dir: &Path, path: &Path) -> io::Result<[u8; 32]> {
    if let Some(secret) = kept(path)? {
        return Ok(secret);
    }
    std::fs::create_dir_all(dir)?;
    let mut secret = [0; 32];
    SystemRandom::new().fill(&mut secret).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    let text: String = secret.iter().map(|b| format!("{b:02x}")).chain(["\n".to_owned()]).collect();
    let temporary = dir.join(format!("{NAME}.{}.new", std::process::id()));
    write_new(&temporary, text.as_bytes(), 0o600)?;
    // A link is made only where nothing is: of several servers, the first one's secret stays.
    let linked = std::fs::hard_link(&temporary, path);
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            kept(path)?.ok_or_else(|| io::Error::other("gone while it was read"))
        }
        made => made.map(|()| secret),
    }
}

/// The secret in the file, if there is one.
fn kept(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let meta = match std::fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let no = |why: &str| Err(io::Error::other(format!("{why}; remove it, and another is made")));
    if meta.mode() & 0o077 != 0 {
        return no("others may read it");
    }
    if !meta.is_file() || meta.len() != 65 {
        return no("not 64 hexadecimal digits and the end of a line");
    }
    let text = std::fs::read_to_string(path)?;
    let mut secret = [0; 32];
    for (i, byte) in secret.iter_mut().enumerate() {
        let digits = text.get(2 * i..2 * i + 2).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(value) => *byte = value,
            None => return no("not 64 hexadecimal digits"),
        }
    }
    Ok(Some(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_stays_and_is_for_its_owner_only() {
        let dir = std::env::temp_dir().join(format!("neater-reset-{}", std::process::id()));
        let (first, path) = (secret(Some(&dir)).expect("made"), dir.join(NAME));
        assert_eq!(secret(Some(&dir)), Ok(first));
        assert_ne!(first, [0; 32]);
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 1, "nothing is left over");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(secret(Some(&dir)).expect_err("known to others").contains("others may read it"));
        for text in ["", "00\n", &"+1".repeat(32), &"\u{e4}".repeat(32)] {
            write_new(&path, format!("{text}\n").as_bytes(), 0o600).expect("ours");
            assert!(secret(Some(&dir)).expect_err("damaged").contains("64 hexadecimal digits"), "{text:?}");
        }
        std::fs::remove_file(&path).expect("ours");
        assert_ne!(secret(Some(&dir)), Ok(first), "another");
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
