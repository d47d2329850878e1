//! `cargo xtask interop linux`: our SCTP against the SCTP of Linux' kernel, in a virtual machine.
//!
//! *Responsible for* what the machine boots from, in `target/interop-linux`: Debian's kernel, downloaded and unpacked but not
//! installed; the modules that it needs; our guest program. And for starting the tests in their full form. *Not for* the tests
//! (`interop/tests/sctp_linux.rs`) or the machine (`interop/src/sctp/machine.rs`).
//!
//! *Needs* no privilege: a Debian system or one like it with `apt-get`, a C compiler with static libraries, and QEMU.

mod cpio;
mod modules;

use crate::workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package that depends on the newest kernel for virtual machines: the smallest with SCTP in it.
const KERNEL: &str = "linux-image-cloud-amd64";
/// The modules that are loaded, in this order, each after what it depends on.
const MODULES: &[&str] = &["virtio_pci", "virtio_console", "virtio_net", "crc32c_intel", "sctp"];
/// What a chore answers that can do nothing here; `./test` makes a skip of it.
const SKIPPED: u8 = 77;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Only make what the machine boots from.
    prepare: bool,
    /// Only what `./test` runs.
    quick: bool,
    /// Only tests with these words in their names.
    words: Vec<String>,
}

impl Request {
    /// `linux`, then `--prepare`, `--quick` and words of tests' names.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self { prepare: false, quick: false, words: Vec::new() };
        match args.split_first() {
            Some((peer, rest)) if peer == "linux" => {
                for arg in rest {
                    match arg.as_str() {
                        "--prepare" => request.prepare = true,
                        "--quick" => request.quick = true,
                        flag if flag.starts_with('-') => {
                            return Err(format!("interop linux takes --prepare and --quick, not `{flag}`"));
                        }
                        word => request.words.push(word.to_owned()),
                    }
                }
                Ok(request)
            }
            Some((other, _)) => Err(format!("interop knows the peer `linux`, not `{other}`")),
            None => Err("interop takes the name of a peer: linux".to_owned()),
        }
    }
}

/// Prepares, and runs the tests unless only that was asked for. The program's exit code.
pub(crate) fn chore(request: &Request) -> Result<u8, String> {
    let root = workspace::root();
    let dir = root.join("target/interop-linux");
    if let Err(why) = prepare(&root, &dir) {
        println!("SKIP: Linux' SCTP as peer: {why}");
        return Ok(SKIPPED);
    }
    println!("{} is ready", dir.display());
    if request.prepare {
        return Ok(0);
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "-p", "neater-interop", "--locked", "--test", "sctp_linux", "--"]).current_dir(&root);
    if !request.quick {
        command.arg("--full");
    }
    let status = command.args(&request.words).status().map_err(|e| format!("cargo cannot be run: {e}"))?;
    Ok(u8::from(!status.success()))
}

/// Makes what is not there yet. The guest program is always made anew: it takes a second.
fn prepare(root: &Path, dir: &Path) -> Result<(), String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!("the machine is made for x86_64, and this is {}", std::env::consts::ARCH));
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let unpacked = dir.join("unpacked");
    if !unpacked.join("boot").is_dir() {
        fetch(dir, &unpacked)?;
    }
    let kernel = only(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let tree = only(&unpacked.join("lib/modules"), |_| true)?;
    let guest = compile(root, dir)?;

    let modules = modules::closure(&tree, MODULES)?;
    let mut archive = cpio::Archive::default();
    archive.directory("modules");
    let names: String = modules.iter().map(|(name, _)| format!("{name}.ko\n")).collect();
    archive.file("modules/list", 0o644, names.as_bytes());
    for (name, bytes) in &modules {
        archive.file(&format!("modules/{name}.ko"), 0o644, bytes);
    }
    archive.file("init", 0o755, &guest);
    put(&dir.join("initramfs.cpio"), &archive.finish())?;
    put(&dir.join("vmlinuz"), &fs::read(&kernel).map_err(|e| format!("{}: {e}", kernel.display()))?)
}

/// Writes a file so that who reads it sees all of it or none.
fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&fresh, bytes).and_then(|()| fs::rename(&fresh, path)).map_err(|e| format!("{}: {e}", path.display()))
}

/// Downloads the newest kernel for virtual machines and unpacks it.
fn fetch(dir: &Path, unpacked: &Path) -> Result<(), String> {
    let package = newest(&said(Command::new("apt-cache").args(["show", "--no-all-versions", KERNEL]))?)
        .ok_or_else(|| format!("{KERNEL} depends on no kernel"))?;
    println!("downloading {package}");
    let download = dir.join("download");
    // What was broken off is begun again.
    for old in [&download, unpacked] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir_all(&download).map_err(|e| format!("{}: {e}", download.display()))?;
    said(Command::new("apt-get").args(["-q", "download", &package]).current_dir(&download))?;
    let file = only(&download, |name| name.ends_with(".deb"))?;
    let fresh = dir.join("unpacked.new");
    let _ = fs::remove_dir_all(&fresh);
    said(Command::new("dpkg-deb").arg("-x").arg(file).arg(&fresh))?;
    fs::rename(&fresh, unpacked).map_err(|e| format!("{}: {e}", unpacked.display()))?;
    let _ = fs::remove_dir_all(download);
    Ok(())
}

/// The package with a kernel that a description names among what it depends on.
fn newest(description: &str) -> Option<String> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let names = depends.split(',').map(|d| d.trim().split(' ').next().unwrap_or_default());
    names.into_iter().find(|n| n.starts_with("linux-image-")).map(str::to_owned)
}

/// Compiles the guest: static, since there is nothing else in the machine.
fn compile(root: &Path, dir: &Path) -> Result<Vec<u8>, String> {
    let program = dir.join(format!("init.{}", std::process::id()));
    let sources = ["linux_guest.c", "linux_peer.c"].map(|name| root.join("interop/c").join(name));
    let mut command = Command::new("cc");
    command.args(["-static", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    said(command.args(sources).arg("-lpthread"))?;
    let bytes = fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?;
    let _ = fs::remove_file(program);
    Ok(bytes)
}

/// What a program says; what it complains of, if it fails.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{name} cannot be run: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{name} fails: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

/// The only entry of a folder with such a name.
fn only(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut all: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_name().to_str().is_some_and(&fits))
        .map(|e| e.path())
        .collect();
    match all.pop() {
        Some(path) if all.is_empty() => Ok(path),
        found => Err(format!(
            "{} holds {} of what there should be one",
            folder.display(),
            all.len() + usize::from(found.is_some())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<Request, String> {
        Request::parse(&s.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_for_is_understood_or_refused_with_the_reason() {
        let all = Request { prepare: false, quick: false, words: vec![] };
        assert_eq!(parse("linux"), Ok(all));
        let some = Request { prepare: true, quick: true, words: vec!["loss".to_owned()] };
        assert_eq!(parse("linux --prepare --quick loss"), Ok(some));
        assert!(parse("").is_err_and(|e| e.contains("linux")));
        assert!(parse("windows").is_err_and(|e| e.contains("windows")));
        assert!(parse("linux --fast").is_err_and(|e| e.contains("--fast")));
    }

    #[test]
    fn the_kernel_is_what_the_package_depends_on() {
        let text =
            "Package: linux-image-cloud-amd64\nDepends: base (>= 1), linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n";
        assert_eq!(newest(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest("Depends: linux-base\n"), None);
    }
}
