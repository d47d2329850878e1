//! What went wrong, for people, programs and shells.

use neater::{EstablishmentError, Reason};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What to do where nothing may be written.
pub const ELSEWHERE: &str = "choose a place that you may write to";

/// The exit codes, as `--help` documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Ok = 0,
    /// No connection, or a transfer failed.
    Failed = 1,
    /// The command line.
    Usage = 2,
    /// Some of several files.
    Partial = 3,
    /// A local file or disk.
    Local = 4,
    /// A status of 400 or more.
    Status = 5,
    /// A certificate.
    Security = 6,
    /// The keyboard.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(e: Exit) -> Self {
        Self::from(e as u8)
    }
}

/// A failure: what, what it is called by programs, and what to do next.
#[derive(Clone, Debug)]
pub struct Failure {
    /// How the command ends.
    pub exit: Exit,
    /// Its name for programs.
    pub kind: &'static str,
    /// What failed.
    pub message: String,
    /// What to do next.
    pub advice: Vec<String>,
}

impl Failure {
    /// A failure without advice.
    pub fn new(exit: Exit, kind: &'static str, message: impl Into<String>) -> Self {
        Self { exit, kind, message: message.into(), advice: Vec::new() }
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// A file that cannot be read or written, and what can be done about it.
    pub fn file(doing: &str, path: &Path, e: &io::Error) -> Self {
        let failure = Self::new(Exit::Local, "file", format!("cannot {doing} {}: {}", path.display(), plain(e)));
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.advise("free some space first"),
            io::ErrorKind::FileTooLarge => {
                failure.advise("raise the limit on the size of files (ulimit -f), or choose another file system")
            }
            io::ErrorKind::PermissionDenied if matches!(doing, "read" | "serve" | "use") => {
                failure.advise("only its owner, or who has the right to, may: ask for it, or choose another")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => failure.advise(ELSEWHERE),
            io::ErrorKind::NotFound if !matches!(doing, "read" | "serve" | "use") => {
                let there = path.parent().is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir());
                failure.advise(if there { ELSEWHERE } else { "the folder does not exist: make it first" })
            }
            _ => failure,
        }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }
}

/// The system's words without its number.
fn plain(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// A connection that could not be had.
pub fn establishment(e: &EstablishmentError) -> Failure {
    if neater_http::is_security(e) {
        let failure = Failure::new(Exit::Security, "security", e.to_string());
        // TLS has words of ours, QUIC those of its own TLS.
        let text = failure.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
        return match () {
            () if says(&["expired", "valid only", "not valid yet", "notvalidyet"]) => {
                failure.advise("its operator must renew it; if you know this very certificate: --pin SHA256")
            }
            () if says(&["is not for", "not valid for name", "notvalidforname"]) => {
                failure.advise("ask for a name that the certificate has, or pin it: --pin SHA256")
            }
            () if says(&["pinned"]) => {
                failure.advise("get the server's present certificate by a way you trust, and pin that")
            }
            () if says(&["alert certificaterequired", "requires a certificate", "certificate required"]) => {
                failure.advise("it lets in only clients with a certificate, and `neater get` has none to show")
            }
            // What the peer has against us, or a certificate that is damaged, no trust mends.
            () if says(&["the peer refused with alert", "cannot be used"]) => failure,
            () => failure
                .advise("trust its authority with --ca FILE, or this very certificate with --pin SHA256")
                .advise("`neater serve` prints both when it starts"),
        };
    }
    match e.reason {
        Reason::InvalidConfiguration | Reason::NoCandidates => Failure::new(Exit::Usage, "needs", e.to_string())
            .advise("`neater explain HOST:PORT --needs ...` shows what rules out what"),
        Reason::ResolutionFailed => Failure::new(Exit::Failed, "resolution", e.to_string())
            .advise("check the name, and --resolv-conf and --hosts if you gave them"),
        Reason::Timeout => Failure::new(Exit::Failed, "timeout", e.to_string()).advise("--timeout gives it more time"),
        _ => Failure::new(Exit::Failed, "establishment", e.to_string()),
    }
}

impl From<neater_http::Error> for Failure {
    fn from(e: neater_http::Error) -> Self {
        use neater_http::Error as E;
        match e {
            E::Establishment(e) => establishment(&e),
            E::Url(_) => Self::new(Exit::Usage, "url", e.to_string()),
            E::Needs(_) => Self::new(Exit::Usage, "needs", e.to_string()),
            E::Security(_) => {
                let failure = Self::new(Exit::Security, "security", e.to_string());
                failure.advise(
                    "it lets in only clients with a certificate that it trusts, and `neater get` has none to show",
                )
            }
            E::Silent(_) => Self::new(Exit::Failed, "timeout", e.to_string()).advise("--timeout gives it more time"),
            e => Self::new(Exit::Failed, e.kind(), e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_read_is_not_told_where_to_write() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for doing in ["read", "serve", "use"] {
            let f = Failure::file(doing, Path::new("/root/key"), &denied);
            assert!(f.exit == Exit::Local && !f.advice.is_empty(), "{f:?}");
            assert!(f.advice.iter().all(|a| !a.contains("write") && !a.contains("-o FILE")), "{f:?}");
        }
        for doing in ["write", "make", "rename"] {
            assert_eq!(Failure::file(doing, Path::new("/x"), &denied).advice, [ELSEWHERE]);
        }
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(Failure::file("serve", Path::new("/x"), &missing).advice.is_empty());
    }
}
