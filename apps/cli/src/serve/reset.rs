//! The secret with which a restarted server resets QUIC connections that it has forgotten
//! (stateless reset, RFC 9000 section 10.3).
//!
//! *Invariants*: it stays the same from run to run, also of servers that start at the same time;
//! only its owner can read it from the moment it exists.

use super::certificate::{put_in_place, state_dir, write_new};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the file is called, beside the certificates.
const NAME: &str = "quic-reset.secret";
/// Where a host keeps the number that identifies it (machine-id(5)).
const MACHINE: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// How long the file is.
const LENGTH: u64 = 65;

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
    let secret = kept_or_made(&dir, &path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(of_this_host(secret, MACHINE.iter().find_map(|path| std::fs::read(path).ok()).as_deref()))
}

/// The secret of this host: others may share the folder. Where a host has no number of its own,
/// they share the secret, too.
fn of_this_host(secret: [u8; 32], machine: Option<&[u8]>) -> [u8; 32] {
    let machine = machine.map(<[u8]>::trim_ascii).filter(|m| !m.is_empty());
    let Some(machine) = machine else { return secret };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(b"neater stateless reset of ");
    context.update(machine);
    let mut own = [0; 32];
    own.copy_from_slice(context.sign().as_ref());
    own
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
    match put_in_place(&temporary, path, text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            kept(path)?.ok_or_else(|| io::Error::other("gone while it was read"))
        }
        made => made.map(|()| secret),
    }
}

/// The secret in the file, if there is one.
fn kept(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let file = match neater::policies::folder::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let meta = file.metadata()?;
    let no = |why: &str| Err(io::Error::other(format!("{why}; remove it, and another is made")));
    if !is_ours(meta.uid(), rustix::process::geteuid().as_raw()) {
        return no("it is another user's");
    }
    if meta.mode() & 0o077 != 0 {
        return no("others may read it");
    }
    if meta.len() != LENGTH {
        return no("not 64 hexadecimal digits and the end of a line");
    }
    let mut text = String::new();
    file.take(LENGTH).read_to_string(&mut text)?;
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

/// The owner of the file knows what is in it, and may put something else there.
pub(super) const fn is_ours(owner: u32, user: u32) -> bool {
    owner == user
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn hosts_that_share_a_folder_have_secrets_of_their_own() {
        let secret = [7; 32];
        let of = |machine: Option<&str>| of_this_host(secret, machine.map(str::as_bytes));
        assert_eq!(of(Some("a\n")), of(Some("a")));
        assert_ne!(of(Some("a")), of(Some("b")));
        assert_ne!(of(Some("a")), secret);
        assert_ne!(of(Some("a")), of_this_host([8; 32], Some(b"a")));
        assert_eq!((of(None), of(Some("\n"))), (secret, secret));
    }

    #[test]
    fn a_secret_of_another_users_does_not_count() {
        use std::os::unix::fs::chown;
        let dir = std::env::temp_dir().join(format!("neater-reset-owner-{}", std::process::id()));
        secret(Some(&dir)).expect("made");
        assert!(is_ours(0, 0) && is_ours(5, 5) && !is_ours(5, 0) && !is_ours(0, 5));
        // Only root can give a file away.
        if chown(dir.join(NAME), Some(65534), None).is_ok() {
            assert!(secret(Some(&dir)).expect_err("another's").contains("another user's"));
        }
        std::fs::remove_dir_all(&dir).expect("ours");
    }

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
