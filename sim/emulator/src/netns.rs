//! Network namespaces without names: they are held by descriptors of this process and by the processes in them, so the
//! kernel removes them, with everything in them, when those are gone, however this process ended.

use super::error::{LiveError, Result, failed};
use super::sys;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};

/// A network namespace.
#[derive(Debug)]
pub struct Netns(OwnedFd);

impl Netns {
    /// A new one.
    ///
    /// # Errors
    /// The kernel or the user's rights do not allow it.
    pub fn new() -> Result<Self> {
        sys::on_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)?;
            match fs::File::open("/proc/thread-self/ns/net") {
                Ok(file) => Ok(Self(file.into())),
                Err(e) => failed("/proc/thread-self/ns/net", e),
            }
        })
    }

    /// The same namespace, held once more.
    ///
    /// # Errors
    /// The kernel has no descriptor for it.
    pub fn again(&self) -> Result<Self> {
        self.0.try_clone().map(Self).or_else(|e| failed("a network namespace", e))
    }

    /// Runs `f` on a thread inside.
    ///
    /// # Errors
    /// Those of `f`, and that the namespace cannot be entered.
    pub fn with<R: Send>(&self, f: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        sys::on_thread(|| {
            sys::setns(&self.0, libc::CLONE_NEWNET)?;
            f()
        })
    }

    /// Runs commands of `ip` (iproute2) inside, one a line, as `ip -batch` takes them. Lines that begin with `-6` are run after
    /// the others, by `ip -6`: a batch knows one family only, and rules do not tell theirs by their addresses.
    ///
    /// # Errors
    /// One of them fails; what `ip` said is told.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let (mut all, mut v6) = (String::new(), String::new());
        for line in lines.lines() {
            let (to, line) = line.strip_prefix("-6 ").map_or((&mut all, line), |rest| (&mut v6, rest));
            to.push_str(line);
            to.push('\n');
        }
        self.with(|| {
            run_with_input("ip", &["-force", "-batch", "-"], &all, "iproute2")?;
            if v6.is_empty() {
                return Ok(());
            }
            run_with_input("ip", &["-6", "-force", "-batch", "-"], &v6, "iproute2")
        })
    }

    /// Runs commands of `tc` (iproute2) inside, one a line.
    ///
    /// # Errors
    /// One of them fails; what `tc` said is told.
    pub fn tc(&self, lines: &str) -> Result<()> {
        self.with(|| run_with_input("tc", &["-batch", "-"], lines, "iproute2"))
    }

    /// Sets a kernel setting (dots or slashes between its parts).
    ///
    /// # Errors
    /// There is none of this name here, or it does not take the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = sysctl_path(key)?;
        self.with(|| fs::write(&path, value).or_else(|e| failed(&format!("setting {key} to {value:?}"), e)))
    }

    /// Reads a kernel setting.
    ///
    /// # Errors
    /// There is none of this name here.
    pub fn read_sysctl(&self, key: &str) -> Result<String> {
        let path = sysctl_path(key)?;
        self.with(|| match fs::read_to_string(&path) {
            Ok(text) => Ok(text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Err(e) => failed(key, e),
        })
    }

    /// The descriptor, for `setns` in a child.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The file of a setting. Names of interfaces may contain dots, so slashes separate where there is one.
fn sysctl_path(key: &str) -> Result<String> {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    let fine = path.starts_with("net/") && !path.split('/').any(|part| part.is_empty() || part == "..");
    if fine {
        Ok(format!("/proc/sys/{path}"))
    } else {
        Err(LiveError::Usage(format!("{key:?} is no setting of a network namespace (net.…)")))
    }
}

/// Runs a tool with lines on its input; its failure is what it said.
pub(crate) fn run_with_input(tool: &str, args: &[&str], input: &str, package: &str) -> Result<()> {
    use std::io::Write;
    let started =
        Command::new(tool).args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(LiveError::MissingTool { tool: tool.into(), package: package.into() });
        }
        Err(e) => return failed(tool, e),
    };
    // These tools read to the end before they say much, so neither side waits for the other.
    if let Some(mut stdin) = child.stdin.take()
        && let Err(e) = stdin.write_all(input.as_bytes())
    {
        let _ = child.wait();
        return failed(tool, e);
    }
    match child.wait_with_output() {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => failed(tool, String::from_utf8_lossy(&out.stderr).trim()),
        Err(e) => failed(tool, e),
    }
}
