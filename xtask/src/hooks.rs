//! `cargo xtask hooks`: the hook that checks the subject of a commit.
//!
//! *Responsible for* putting [`HOOK`] where git looks for it. *Deliberately not*: a hook of the user's own, which stays; and
//! building, so that a commit waits for nothing.

use crate::workspace;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The hook, in POSIX shell.
const HOOK: &str = include_str!("hooks/commit-msg");
/// By which a hook of ours is known.
const MARK: &str = "# neater: ";

/// Installs the hook.
///
/// # Errors
/// When there is no repository, another hook is there, or the file cannot be written.
pub(crate) fn chore() -> Result<bool, String> {
    let folder = folder(&workspace::root())?;
    println!("{}", install(&folder)?);
    Ok(true)
}

/// Where git looks for hooks.
fn folder(root: &Path) -> Result<PathBuf, String> {
    let out = Command::new("git")
        .args(["rev-parse", "--git-path", "hooks"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    if !out.status.success() {
        return Err(format!("no repository: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    Ok(root.join(String::from_utf8_lossy(&out.stdout).trim()))
}

fn install(folder: &Path) -> Result<String, String> {
    let path = folder.join("commit-msg");
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    match std::fs::read_to_string(&path) {
        Ok(there) if there == HOOK => return Ok(format!("{} is up to date", path.display())),
        Ok(there) if !there.contains(MARK) => {
            return Err(format!("{} is another hook: move it away, or call ours from it", path.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(&path, HOOK).map_err(failed)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    Ok(format!("{} checks subjects of commits", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("neater-xtask-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    /// What the hook answers to a message; `None`: nothing.
    fn refusal(folder: &Folder, message: &str) -> Option<String> {
        let file = folder.0.join("message");
        std::fs::write(&file, message).unwrap();
        let out = Command::new("sh").arg(folder.0.join("commit-msg")).arg(&file).output().unwrap();
        (!out.status.success()).then(|| String::from_utf8_lossy(&out.stderr).into_owned())
    }

    #[test]
    fn subjects_are_short_and_imperative() {
        let folder = Folder::new("subjects");
        install(&folder.0).unwrap();
        let long = "A".to_owned() + &"ä".repeat(71);
        for subject in [
            "Store sent packets in a ring buffer",
            "Address the second path",
            "Embed the font",
            "Need less",
            "Bring it back",
            "Merge what was split",
            "Revert \"Told.\"",
            "fixup! x",
            &long,
        ] {
            assert_eq!(refusal(&folder, &format!("{subject}\n")), None, "{subject}");
            assert_eq!(refusal(&folder, &format!("# a comment\n\n{subject}\n\nWhy.\n")), None, "{subject}");
        }
        for (message, why) in [
            ("", "is empty"),
            ("# only a comment\n", "is empty"),
            ("Stored packets", "\"Stored\" is not imperative"),
            ("Stores packets", "\"Stores\" is not imperative"),
            ("Storing packets", "\"Storing\" is not imperative"),
            ("store packets", "capital letter"),
            ("Store packets.", "full stop"),
            ("Store packets\nin a ring", "not blank"),
            (&(long.clone() + "b"), "has 73 characters"),
        ] {
            let refused = refusal(&folder, message).unwrap_or_default();
            assert!(refused.contains(why), "{message:?}: {refused:?}");
        }
    }

    #[test]
    fn ours_is_replaced_and_another_one_stays() {
        let folder = Folder::new("hooks");
        let path = folder.0.join("commit-msg");
        std::fs::write(&path, format!("#!/bin/sh\n{MARK}an older one\n")).unwrap();
        assert!(install(&folder.0).unwrap().ends_with("checks subjects of commits"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0o111);
        assert!(install(&folder.0).unwrap().ends_with("is up to date"));
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(install(&folder.0).unwrap_err().contains("is another hook"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "#!/bin/sh\n");
    }
}
