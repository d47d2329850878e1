//! `cargo xtask debs`: packages for Debian, and a fresh system in which they are tried.
//!
//! *Responsible for* an optimised build, what goes into each package, cargo-deb, which packs it by the tables
//! `[package.metadata.deb]` of the crates, and, with `--try`, installing them where nothing else is (`chroot`). *Deliberately not*:
//! signing and publishing. *Invariant*: files are laid out by the same scripts `install` that users call.

mod chroot;

use crate::man::{self, Library};
use crate::tools::{Tool, cargo, must, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How `debs --try` ends where no fresh system can be made.
pub(crate) const LACKS: u8 = 77;

const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0" };

/// A package: its name, the crate whose manifest describes it, and the variant there.
struct Package {
    name: &'static str,
    of: &'static str,
    variant: Option<&'static str>,
}

const PACKAGES: &[Package] = &[
    Package { name: "libneat0", of: "libneat", variant: None },
    Package { name: "libneat-dev", of: "libneat", variant: Some("dev") },
    Package { name: "libneater0", of: "neater-c", variant: None },
    Package { name: "libneater-dev", of: "neater-c", variant: Some("dev") },
    Package { name: "neater", of: "neater-cli", variant: None },
    Package { name: "neater-pm", of: "neater-pm", variant: None },
];

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Take what an earlier `cargo build --release` has left.
    no_build: bool,
    /// Only install and try the packages that are there.
    only_try: bool,
    /// Install and try them in a fresh system.
    try_them: bool,
}

impl Request {
    /// `--try`, `--no-build`, `--only-try`.
    ///
    /// # Errors
    /// What is not understood.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        for arg in args {
            match arg.as_str() {
                "--try" => request.try_them = true,
                "--no-build" => request.no_build = true,
                "--only-try" => (request.only_try, request.try_them) = (true, true),
                other => return Err(format!("debs does not understand {other}")),
            }
        }
        Ok(request)
    }
}

/// Builds, packs and tries them; the exit code.
///
/// # Errors
/// What failed.
pub(crate) fn chore(request: &Request) -> Result<u8, String> {
    let root = crate::workspace::root();
    let folder = folder(&root);
    if !request.only_try {
        build(&root, request.no_build)?;
    }
    let packages = present(&root)?;
    if packages.is_empty() {
        return Err(format!("no packages in {}: run `cargo xtask debs`", folder.display()));
    }
    for package in &packages {
        let size = fs::metadata(package).map_or(0, |m| m.len());
        println!("{} ({:.2} MB)", package.display(), size as f64 / 1e6);
    }
    if request.try_them { chroot::try_packages(&folder, &packages) } else { Ok(0) }
}

/// Where packages go.
pub(crate) fn folder(root: &Path) -> PathBuf {
    crate::workspace::target(root).join("debs")
}

/// The packages of this version that are there.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn present(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = folder(root);
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "deb")).collect();
    found.sort();
    Ok(found)
}

fn build(root: &Path, no_build: bool) -> Result<(), String> {
    let lacking = |name: &str, package: &str| format!("{name} is not here (Debian: apt-get install {package})");
    let uv = Command::new("pkg-config").args(["--exists", "libuv"]).status();
    if !uv.is_ok_and(|s| s.success()) {
        return Err(lacking("libuv, without which libneat is empty,", "libuv1-dev pkg-config"));
    }
    // Which folder libraries of this architecture have, and which packages have those that ours need.
    let triple = output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"), "dpkg-architecture")
        .map_err(|why| format!("{why}; {}", lacking("dpkg-dev", "dpkg-dev")))?;
    let cargo_deb = CARGO_DEB.get(root)?;
    let built = crate::workspace::target(root).join("release");
    if !no_build {
        let packages = ["-p", "libneat", "-p", "neater-c", "-p", "neater-cli", "-p", "neater-pm"];
        must(cargo(root).args(["build", "--release", "--locked"]).args(packages), "cargo build --release")?;
    }
    let stage = built.join("debs");
    remove(&stage)?;
    lay_out(root, &built, &stage, triple.trim())?;
    let folder = folder(root);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for old in present(root)? {
        fs::remove_file(&old).map_err(|e| format!("{}: {e}", old.display()))?;
    }
    for package in PACKAGES {
        let mut deb = Command::new(&cargo_deb);
        deb.args(["deb", "--no-build", "--locked", "--quiet", "-p", package.of, "--output"]).arg(&folder);
        if let Some(variant) = package.variant {
            deb.args(["--variant", variant]);
        }
        must(deb.current_dir(root), &format!("cargo-deb of {}", package.name))?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", folder.display())),
        _ => Ok(()),
    }
}

/// Puts what the packages have below a folder for each.
fn lay_out(root: &Path, built: &Path, stage: &Path, triple: &str) -> Result<(), String> {
    let sources = man::Sources::read(root)?;
    let libraries =
        [("libneat", "libneat", "libneat", Library::Neat), ("neater-c", "libneater", "libneater_c", Library::Neater)];
    for (dir, name, file, library) in libraries {
        let (dir, dev) = (root.join("io").join(dir), stage.join(format!("{name}-dev")));
        let mut install = Command::new(dir.join("install"));
        install.arg("/usr").arg(built.join(format!("{file}.so")));
        install.env("DESTDIR", &dev).env("LIBDIR", format!("/usr/lib/{triple}"));
        must(&mut install, &format!("installing {name}"))?;
        let of_dev = Path::new("usr/lib").join(triple);
        // Hundreds of megabytes, which those who want them build.
        let _ = fs::remove_file(dev.join(&of_dev).join(format!("{name}.a")));
        // Of the library itself, headers need the link without a number alone.
        let runtime = stage.join(format!("{name}0"));
        fs::create_dir_all(runtime.join(&of_dev)).map_err(|e| format!("{}: {e}", runtime.display()))?;
        let libraries = fs::read_dir(dev.join(&of_dev)).map_err(|e| format!("{}: {e}", dev.display()))?;
        for entry in libraries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_string_lossy().contains(".so.") {
                let to = runtime.join(&of_dev).join(name);
                fs::rename(&path, &to).map_err(|e| format!("{}: {e}", to.display()))?;
            }
        }
        man::write(&man::pages(&sources, library)?, &dev.join("usr/share/man"))?;
        compress(&dev.join("usr/share/man/man3"))?;
        copy_files(&dir.join("examples"), &dev.join(format!("usr/share/doc/{name}-dev/examples")))?;
    }
    let command = stage.join("neater/usr/share");
    let neater = built.join("neater");
    must(
        Command::new(&neater).args(["--json", "man"]).arg(command.join("man/man1")).stdout(std::process::Stdio::null()),
        "neater man",
    )?;
    compress(&command.join("man/man1"))?;
    for (shell, file) in [
        ("bash", "bash-completion/completions/neater"),
        ("zsh", "zsh/vendor-completions/_neater"),
        ("fish", "fish/vendor_completions.d/neater.fish"),
    ] {
        let path = command.join(file);
        let script = output(Command::new(&neater).args(["completions", shell]), "neater completions")?;
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(|e| format!("{}: {e}", path.display()))?;
        fs::write(&path, script).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Compresses manual pages, as Debian has them.
fn compress(folder: &Path) -> Result<(), String> {
    must(Command::new("gzip").args(["-9", "-n", "-r"]).arg(folder), "gzip")
}

/// Copies the files of a folder.
fn copy_files(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let entries = fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?;
    for entry in entries.flatten().filter(|e| e.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(|e| format!("{}: {e}", entry.path().display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_named() {
        let parse = |s: &str| Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Request::default()));
        assert_eq!(parse("--try --no-build"), Ok(Request { no_build: true, only_try: false, try_them: true }));
        assert_eq!(parse("--only-try"), Ok(Request { no_build: false, only_try: true, try_them: true }));
        assert!(parse("--all").unwrap_err().contains("--all"));
    }

    #[test]
    fn every_package_is_described_by_the_manifest_of_its_crate() {
        let root = crate::workspace::root();
        for Package { name, of, variant } in PACKAGES {
            let dir = match *of {
                "libneat" => "io/libneat",
                "neater-c" => "io/neater-c",
                "neater-pm" => "apps/pm",
                _ => "apps/cli",
            };
            let text = fs::read_to_string(root.join(dir).join("Cargo.toml")).unwrap();
            let table =
                variant.map_or("[package.metadata.deb]".into(), |v| format!("[package.metadata.deb.variants.{v}]"));
            let own = text
                .split_once(&format!("\n{table}\n"))
                .map(|(_, rest)| rest)
                .unwrap_or_else(|| panic!("{dir}: {table}"));
            let own = own.split_once("\n[").map_or(own, |(own, _)| own);
            assert!(
                own.contains(&format!("\nname = \"{name}\"\n")) || own.starts_with(&format!("name = \"{name}\"\n")),
                "{own}"
            );
            assert!(own.contains(&format!("target/release/debs/{name}/")) || *name == "neater-pm", "{own}");
            // What belongs together is installed together.
            let version = crate::workspace::version(&fs::read_to_string(root.join("Cargo.toml")).unwrap()).unwrap();
            if variant.is_some() {
                assert!(own.contains(&format!(" (= {version}-1)")), "{own}");
            }
        }
    }

    #[test]
    fn the_number_of_a_soname_is_the_same_wherever_it_is_written() {
        let root = crate::workspace::root();
        for (dir, name) in [("io/libneat", "libneat"), ("io/neater-c", "libneater")] {
            let read = |file: &str| fs::read_to_string(root.join(dir).join(file)).unwrap();
            let soname = read("build.rs").split_once("-soname,").unwrap().1.split('"').next().unwrap().to_owned();
            let number = soname.strip_prefix(&format!("{name}.so.")).unwrap();
            assert!(PACKAGES.iter().any(|p| p.name == format!("{name}{number}")), "{soname}");
            assert!(read("install").contains(&format!("/{soname}\"")), "{soname}");
            let cmake = format!("package/{}-config.cmake", &name[3..]);
            assert!(read(&cmake).contains(&format!("IMPORTED_SONAME {soname}\n")), "{soname}");
        }
    }
}
