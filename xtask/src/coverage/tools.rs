//! LLVM's tools, and the toolchain whose profiles they can read.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tools {
    /// Whether the compiler counts branches: nightly does.
    pub(super) branches: bool,
    pub(super) profdata: PathBuf,
    pub(super) cov: PathBuf,
}

impl Tools {
    /// Looks for a compiler and for tools of the same LLVM or a newer one: nightly before the usual one, and the toolchain's own
    /// tools (`llvm-tools`) before those of the system.
    ///
    /// # Errors
    /// What is missing, and how it can be had.
    pub(super) fn find() -> Result<Self, String> {
        let nightly = Compiler::ask(true);
        let branches = nightly.is_some();
        let compiler = nightly.or_else(|| Compiler::ask(false)).ok_or("rustc does not say which LLVM it has")?;
        let own = compiler.tools();
        let find = |tool: &str| {
            let candidates = candidates(tool, compiler.llvm, own.as_deref());
            candidates.into_iter().find(|path| version(path).is_some_and(|v| v >= compiler.llvm))
        };
        match (find("llvm-profdata"), find("llvm-cov")) {
            (Some(profdata), Some(cov)) => Ok(Self { branches, profdata, cov }),
            _ => Err(format!(
                "no llvm-profdata and llvm-cov of LLVM {0} or newer here: `rustup component add llvm-tools{1}`, or a package of \
                 the system (Debian: `apt-get install llvm-{0}`)",
                compiler.llvm,
                if branches { " --toolchain nightly" } else { "" }
            )),
        }
    }

    /// Cargo with instrumentation switched on.
    pub(super) fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        // The chore itself was started by cargo, whose choice of a toolchain must not reach the other one.
        command.env_remove("CARGO").env_remove("RUSTC");
        let mut flags = "-Cinstrument-coverage".to_owned();
        if self.branches {
            command.arg("+nightly");
            flags += " -Zcoverage-options=branch";
        }
        command.env("RUSTFLAGS", flags);
        command
    }
}

/// A compiler.
struct Compiler {
    sysroot: PathBuf,
    host: String,
    /// The first number of its LLVM's version.
    llvm: u32,
}

impl Compiler {
    fn ask(nightly: bool) -> Option<Self> {
        let say = |args: &[&str]| {
            let out = Command::new("rustc").args(nightly.then_some("+nightly")).args(args).output().ok()?;
            out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
        };
        let (host, llvm) = read_version(&say(&["-vV"])?)?;
        Some(Self { sysroot: PathBuf::from(say(&["--print", "sysroot"])?.trim()), host, llvm })
    }

    /// Where `llvm-tools` are if they were added.
    fn tools(&self) -> Option<PathBuf> {
        Some(self.sysroot.join("lib/rustlib").join(&self.host).join("bin")).filter(|path| path.is_dir())
    }
}

/// Host and LLVM of what `rustc -vV` says.
fn read_version(text: &str) -> Option<(String, u32)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let llvm = field("LLVM version:")?.split('.').next()?.parse().ok()?;
    Some((field("host:")?.to_owned(), llvm))
}

/// Where a tool may be: with the toolchain, then under the names that systems give it, those of newer versions last.
fn candidates(tool: &str, llvm: u32, own: Option<&Path>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = own.map(|folder| folder.join(tool)).into_iter().collect();
    all.push(tool.into());
    all.extend((llvm..llvm + 4).map(|n| PathBuf::from(format!("{tool}-{n}"))));
    all
}

/// The first number of a tool's version, if it can be run.
fn version(tool: &Path) -> Option<u32> {
    let out = Command::new(tool).arg("--version").output().ok()?;
    tool_version(&String::from_utf8_lossy(&out.stdout))
}

fn tool_version(text: &str) -> Option<u32> {
    text.split("LLVM version ").nth(1)?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let said = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(read_version(said), Some(("x86_64-unknown-linux-gnu".into(), 22)));
        assert_eq!(read_version("host: a\n"), None);
        assert_eq!(tool_version("Debian LLVM version 22.1.8\n  Optimized build.\n"), Some(22));
        assert_eq!(tool_version("something else"), None);
    }

    #[test]
    fn the_toolchain_s_own_tools_come_first_and_newer_ones_last() {
        let all = candidates("llvm-cov", 22, Some(Path::new("/t/bin")));
        let names: Vec<_> = all.iter().map(|p| p.to_string_lossy()).collect();
        assert_eq!(names, ["/t/bin/llvm-cov", "llvm-cov", "llvm-cov-22", "llvm-cov-23", "llvm-cov-24", "llvm-cov-25"]);
        assert_eq!(version(Path::new("there-is-no-such-tool")), None);
    }
}
