//! A fresh Debian below a folder, and the packages in it.
//!
//! *Responsible for* debootstrap from the mirror that this system's apt uses, and running `try.sh` there in namespaces of its own
//! for mounts and processes. *Deliberately not*: a network of its own, for packages come from the mirror. *Invariant*: nothing
//! outside the folder is changed, but for debootstrap itself, which is installed if it is not here.

use super::LACKS;
use crate::tools::{must, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is done there.
const SCRIPT: &str = include_str!("try.sh");

/// Installs the packages in a fresh system and tries them; the exit code.
pub(super) fn try_packages(folder: &Path, packages: &[PathBuf]) -> Result<u8, String> {
    if output(Command::new("id").arg("-u"), "id")?.trim() != "0" {
        println!("SKIP: a fresh system: debootstrap and chroot need root");
        return Ok(LACKS);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|l| l.strip_prefix("VERSION_CODENAME=")).map(|s| s.trim_matches('"'));
    let Some((suite, mirror)) = suite.and_then(|suite| Some((suite, mirror(&sources(), suite)?))) else {
        println!("SKIP: a fresh system: this one's apt names no mirror of its Debian");
        return Ok(LACKS);
    };
    if Command::new("debootstrap").arg("--version").output().is_err() {
        println!("installing debootstrap with apt-get");
        let install = ["install", "-q", "-y", "--no-install-recommends", "debootstrap"];
        if must(Command::new("apt-get").args(install).env("DEBIAN_FRONTEND", "noninteractive"), "apt-get").is_err() {
            println!("SKIP: a fresh system: no debootstrap");
            return Ok(LACKS);
        }
    }
    let root = folder.join("chroot");
    super::remove(&root)?;
    let proxy = output(Command::new("apt-config").args(["shell", "P", "Acquire::http::Proxy"]), "apt-config")?;
    let proxy = proxy.trim().trim_start_matches("P=").trim_matches('\'').to_owned();
    println!("a fresh {suite} in {}", root.display());
    let log = folder.join("debootstrap.log");
    let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=ca-certificates", suite]).arg(&root).arg(&mirror).stdout(file);
    if !proxy.is_empty() {
        debootstrap.env("http_proxy", &proxy);
    }
    must(&mut debootstrap, &format!("debootstrap ({})", log.display()))?;
    let write = |name: &str, text: &str| fs::write(root.join(name), text).map_err(|e| format!("{name}: {e}"));
    if !proxy.is_empty() {
        write("etc/apt/apt.conf.d/proxy", &format!("Acquire::http::Proxy \"{proxy}\";\n"))?;
    }
    fs::create_dir_all(root.join("debs")).map_err(|e| format!("{}: {e}", root.display()))?;
    for package in packages {
        let name = package.file_name().unwrap_or_default();
        fs::copy(package, root.join("debs").join(name)).map_err(|e| format!("{}: {e}", package.display()))?;
    }
    write("try.sh", SCRIPT)?;
    let mut run = Command::new("unshare");
    run.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(&root).args(["/bin/sh", "-eu", "/try.sh"]);
    let environment = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root"), ("LC_ALL", "C.UTF-8")];
    must(run.env_clear().envs(environment).env("DEBIAN_FRONTEND", "noninteractive"), "the packages in a fresh system")?;
    super::remove(&root)?;
    Ok(0)
}

/// What apt knows of mirrors here.
fn sources() -> Vec<String> {
    let listed = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|e| e.path());
    let mut paths: Vec<PathBuf> =
        listed.filter(|p| p.extension().is_some_and(|e| e == "list" || e == "sources")).collect();
    paths.sort();
    paths.insert(0, "/etc/apt/sources.list".into());
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// The first mirror that has the suite, in either form that apt reads.
fn mirror(sources: &[String], suite: &str) -> Option<String> {
    sources.iter().find_map(|text| {
        let line = text.lines().find_map(|line| {
            let line = line.trim().strip_prefix("deb ")?.trim();
            // Options stand in brackets before the address.
            let line = if line.starts_with('[') { line.split_once(']')?.1 } else { line };
            let mut words = line.split_whitespace();
            let address = words.next()?;
            (words.next() == Some(suite) && words.any(|w| w == "main")).then(|| address.to_owned())
        });
        line.or_else(|| text.split("\n\n").find_map(|stanza| of_stanza(stanza, suite)))
    })
}

/// The mirror of a stanza of the newer form.
fn of_stanza(stanza: &str, suite: &str) -> Option<String> {
    let words = |name: &str| {
        let line = stanza.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().collect::<Vec<_>>())
    };
    let fits = words("Types:")?.contains(&"deb")
        && words("Suites:")?.contains(&suite)
        && words("Components:")?.contains(&"main");
    let enabled = words("Enabled:").is_none_or(|w| w != ["no"]);
    if fits && enabled { words("URIs:")?.first().map(|uri| (*uri).to_owned()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_first_one_that_has_the_suite() {
        let old = "# deb http://no.example/debian stable main\n\
                   deb http://security.example/debian stable-security main\n\
                   deb [arch=amd64 signed-by=/x] http://mirror.example/debian  stable main contrib\n";
        let new = "Types: deb\nURIs: http://tools.example/x\nSuites: other\nComponents: main\n\n\
                   Types: deb deb-src\nURIs: http://new.example/debian\nSuites: stable stable-updates\nComponents: main\n";
        let find = |texts: &[&str], suite| mirror(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>(), suite);
        assert_eq!(find(&[old, new], "stable").as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(find(&["", new], "stable").as_deref(), Some("http://new.example/debian"));
        assert_eq!(find(&[&new.replace("Suites: stable", "Enabled: no\nSuites: stable")], "stable"), None);
        assert_eq!(find(&[old, new], "testing"), None);
    }
}
