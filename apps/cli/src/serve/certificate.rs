//! A certificate for this host that stays the same from run to run, so that it can be trusted once.
//!
//! *Invariants*: the private key is readable by its owner only from the moment it exists; two
//! servers that start at the same time end up with the same certificate; what is shown to others
//! holds no key.

use super::reset;
use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
use crate::seen::hexadecimal;
use neater::Identity;
use neater::tls::{Validity, certificates_to_pem, identity_from_pem, private_key_to_pem, self_signed_p256, validity};
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A certificate is valid for a year; one that is older than this is replaced.
const RENEW_AFTER: Duration = Duration::from_secs(300 * 24 * 60 * 60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate that is valid for less than this is mentioned.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * DAY.as_secs());

/// The largest file with a key that is read; ours are far smaller.
const KEY_MAX: u64 = 1 << 20;

/// What people need to know of the certificate that is shown.
pub(super) struct Shown {
    pub(super) path: PathBuf,
    /// In hexadecimal, as `--pin` takes it.
    pub(super) sha256: String,
    /// From when until when it is valid.
    validity: Option<Validity>,
}

impl Shown {
    pub(super) fn new(identity: &Identity, path: PathBuf) -> Self {
        let leaf = identity.chain.first().map_or(&[][..], |c| c.as_ref());
        let digest = ring::digest::digest(&ring::digest::SHA256, leaf);
        Self { path, sha256: hexadecimal(digest.as_ref()), validity: identity.chain.first().and_then(validity) }
    }

    /// What clients object to its dates at this time, if they do, or will do so soon.
    pub(super) fn warning(&self, now: Duration) -> Option<String> {
        let validity = self.validity?;
        let (path, from, to) = (self.path.display(), validity.not_before.0, validity.not_after.0);
        let days = |span: Duration| match span.as_secs() / DAY.as_secs() {
            0 => "less than a day".to_owned(),
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        if now > to {
            return Some(format!("the certificate {path} expired {} ago: clients will refuse it", days(now - to)));
        }
        if now < from {
            let text = "clients will refuse it until then, and the clock of this host may be slow";
            return Some(format!("the certificate {path} is valid only in {}: {text}", days(from - now)));
        }
        let left = to - now;
        (left < EXPIRES_SOON).then(|| format!("the certificate {path} expires in {}: renew it", days(left)))
    }
}

/// The certificate that is kept for these names, or a new one.
pub(super) fn generated(args: &ServeArgs) -> Result<(Identity, Shown), Failure> {
    let dir = match &args.cert_dir {
        Some(d) => d.clone(),
        None => state_dir().ok_or_else(|| {
            Failure::usage(
                "there is no home directory to keep the certificate in: give --cert-dir DIR, or --cert and --key",
            )
        })?,
    };
    std::fs::create_dir_all(&dir).map_err(|e| Failure::file("make", &dir, &e))?;
    let dir = dir.canonicalize().map_err(|e| Failure::file("use", &dir, &e))?;
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let bound = args.bind.iter().filter(|ip| !ip.is_unspecified()).map(ToString::to_string);
    if let Some(bad) = args.name.iter().find(|n| !is_name(n)) {
        return Err(Failure::usage(format!("--name {bad:?} is neither the name of a host nor an address")));
    }
    for name in args.name.iter().cloned().chain(bound) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let stem = stem(&names);
    let (secret, public) = (dir.join(format!("{stem}.key.pem")), dir.join(format!("{stem}.pem")));
    let identity = match kept(&secret)? {
        Some(identity) => identity,
        None => make(&names, &secret)?,
    };
    publish(&identity, &public).map_err(|e| Failure::file("write", &public, &e))?;
    let shown = Shown::new(&identity, public);
    Ok((identity, shown))
}

/// Whether a certificate can be for it: an address, or a name in the letters of the DNS (RFC 1123
/// section 2.1; the underscore is common), whose first label may be a wildcard.
pub(super) fn is_name(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let labels = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<std::net::IpAddr>().is_ok() || name.len() <= 253 && labels.split('.').all(label)
}

pub(crate) fn state_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    // systemd's, which may name several (systemd.exec(5)); it is made for the unit alone.
    let unit = set("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next()).filter(|p| p.is_absolute());
    if unit.is_some() {
        return unit;
    }
    let state = set("XDG_STATE_HOME").filter(|p| p.is_absolute()).or_else(|| Some(set("HOME")?.join(".local/state")));
    Some(state?.join("neater"))
}

/// The name of the files: the host's, and a digest of other names.
fn stem(names: &[String]) -> String {
    let Some(extra) = names.get(3) else { return "localhost".into() };
    let digest = ring::digest::digest(&ring::digest::SHA256, names.join(",").as_bytes());
    let tail: String = digest.as_ref().iter().take(4).map(|b| format!("{b:02x}")).collect();
    let safe: String =
        extra.chars().take(60).map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    format!("{}-{tail}", safe.trim_start_matches('.'))
}

/// What an earlier run has made, unless it is old.
fn kept(secret: &Path) -> Result<Option<Identity>, Failure> {
    let Some((meta, text)) = private(secret)? else { return Ok(None) };
    let age = meta.modified().ok().and_then(|t| SystemTime::now().duration_since(t).ok());
    match identity_from_pem(&text, &text) {
        Ok(identity) if age.is_none_or(|a| a < RENEW_AFTER) => Ok(Some(identity)),
        // Old, or damaged: the next one takes its place.
        _ => {
            std::fs::remove_file(secret).map_err(|e| Failure::file("replace", secret, &e))?;
            Ok(None)
        }
    }
}

/// A file with a private key, and what is known of it; `None` if there is none. It must be ours,
/// and ours alone: a user who may write to it decides with which key we answer, and one who may
/// read it can answer in our place.
fn private(path: &Path) -> Result<Option<(Metadata, Vec<u8>)>, Failure> {
    let bad = |e: &io::Error| Failure::file("read", path, e);
    let file = match neater::policies::folder::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| bad(&e))?,
    };
    let meta = file.metadata().map_err(|e| bad(&e))?;
    let no = |why: &str, advice: &str| {
        let what = format!("{}: a private key, and {why}", path.display());
        Err(Failure::new(Exit::Local, "file", what).advise(advice))
    };
    if !reset::is_ours(meta.uid(), rustix::process::geteuid().as_raw()) {
        return no("it is another user's", "keep keys of your own elsewhere: --cert-dir DIR");
    }
    if meta.mode() & 0o077 != 0 {
        return no(
            "others may read it or write to it",
            "remove it, and another is made; where a folder cannot keep anything private: --cert-dir DIR",
        );
    }
    let mut text = Vec::new();
    file.take(KEY_MAX).read_to_end(&mut text).map_err(|e| bad(&e))?;
    Ok(Some((meta, text)))
}

fn make(names: &[String], secret: &Path) -> Result<Identity, Failure> {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let identity = self_signed_p256(&list, neater_base::WallTime(wall))
        .map_err(|e| Failure::usage(format!("a certificate for {}: {e}", names.join(", "))))?;
    let text = certificates_to_pem(&identity.chain) + &private_key_to_pem(&identity.key);
    let bad = |e: &io::Error| Failure::file("write", secret, e);
    let temporary = secret.with_extension(format!("{}.new", std::process::id()));
    write_new(&temporary, text.as_bytes(), 0o600).map_err(|e| bad(&e))?;
    match put_in_place(&temporary, secret, text.as_bytes()) {
        // A file system may not have kept it to ourselves.
        Ok(()) => private(secret).map(|_| identity),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let text = private(secret)?.map(|(_, text)| text).unwrap_or_default();
            identity_from_pem(&text, &text).map_err(|e| Failure::usage(format!("{}: {e}", secret.display())))
        }
        Err(e) => Err(bad(&e)),
    }
}

/// Writes the public part.
fn publish(identity: &Identity, public: &Path) -> io::Result<()> {
    let text = certificates_to_pem(&identity.chain);
    if std::fs::read(public).is_ok_and(|t| t == text.as_bytes()) {
        return Ok(());
    }
    let temporary = public.with_extension(format!("{}.new", std::process::id()));
    write_new(&temporary, text.as_bytes(), 0o644)?;
    std::fs::rename(&temporary, public)
}

/// Gives a file that is written, with `text`, its name, if nothing has it: of several servers, the
/// first one's stays.
pub(super) fn put_in_place(temporary: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let linked = std::fs::hard_link(temporary, path);
    let _ = std::fs::remove_file(temporary);
    match linked {
        // There are file systems without links (FAT, exFAT): what is read meanwhile may be less
        // than all.
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => unlinked(path, text),
        done => done,
    }
}

/// The same without links.
fn unlinked(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

pub(super) fn write_new(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // What a process with our number has left behind.
    let _ = std::fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_may_touch_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = std::env::temp_dir().join(format!("neater-key-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("made");
        let (key, names) = (dir.join("k.pem"), ["localhost".to_owned()]);
        let why = || kept(&key).map(|k| k.is_some()).map_err(|f| f.message);
        assert_eq!(why(), Ok(false));
        let made = make(&names, &key).unwrap_or_else(|f| panic!("{f:?}"));
        assert_eq!(why(), Ok(true));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("ours");
        assert!(why().expect_err("known to others").contains("others may read it"));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("ours");
        // Only root can give a file away.
        if chown(&key, Some(65534), None).is_ok() {
            assert!(why().expect_err("another's").contains("another user's"));
        }
        // Without links: the first one stays as well.
        let other = dir.join("o.pem");
        unlinked(&other, b"first").expect("written");
        assert_eq!(unlinked(&other, b"second").map_err(|e| e.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&other).expect("there"), b"first");
        assert_eq!(std::fs::metadata(&other).expect("there").mode() & 0o777, 0o600);
        assert!(!made.chain.is_empty());
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn a_certificate_that_clients_refuse_or_will_soon_is_mentioned() {
        let made = Duration::from_secs(1_750_000_000);
        let identity = neater::tls::self_signed(&["localhost"], neater_base::WallTime(made), [1; 32]);
        let shown = Shown::new(&identity, PathBuf::from("a.pem"));
        // Valid from a day before it is made, for a year after that.
        let at = |days: u32| shown.warning(made + days * DAY).unwrap_or_default();
        assert_eq!((at(0), at(357)), (String::new(), String::new()));
        assert!(at(359).contains("a.pem expires in ") && at(359).contains(" days: renew it"), "{}", at(359));
        assert!(at(364).contains("expires in less than a day") || at(364).contains("expires in 1 day"), "{}", at(364));
        assert!(at(375).contains("expired 9 days ago") || at(375).contains("expired 10 days ago"), "{}", at(375));
        let early = shown.warning(made - 5 * DAY).unwrap_or_default();
        assert!(early.contains("is valid only in"), "{early}");
    }

    #[test]
    fn what_is_no_name_gets_no_certificate() {
        for good in ["localhost", "a.example", "*.a.example", "my_host-1", "192.0.2.1", "::1", "xn--bcher-kva.example"]
        {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a\nb", "a b", ".", "a.", ".a", "a..b", "*", "a.*.b", "b\u{fc}cher.example", "a/b"] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn other_names_have_other_files() {
        let names = |extra: &[&str]| {
            ["localhost", "127.0.0.1", "::1"].iter().chain(extra).map(|s| (*s).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(stem(&names(&[])), "localhost");
        assert_ne!(stem(&names(&["a", "b"])), stem(&names(&["a", "c"])));
        assert!(!stem(&names(&["../../etc/x"])).contains('/'));
    }
}
