//! Compilers, interpreters and libraries.

use crate::{Finished, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// A file of this package.
#[must_use]
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where a program is, if it is somewhere; `/usr/sbin` is looked into as well.
#[must_use]
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// The shared library of the test shim, which cargo has built for this package.
///
/// # Panics
/// When it is not beside the test's program.
#[must_use]
pub fn shim_library() -> PathBuf {
    // Naming a function of it makes sure that it is a dependency and not only listed as one.
    let _: extern "C" fn() -> *mut neater_interop_shim::NeaterShim = neater_interop_shim::neater_shim_create;
    let exe = std::env::current_exe().expect("a program");
    let library = exe.with_file_name("libneater_interop_shim.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// Compiles a program of `hosts/` together with the scenario, against the shim and these packages of pkg-config.
///
/// # Errors
/// What is missing here, with the Debian package that has it.
///
/// # Panics
/// When the program does not compile: that is a bug in it.
pub fn compile(source: &str, packages: &[(&str, &str)], output: &Path) -> Result<(), String> {
    let cc = which("cc").ok_or("no C compiler (package gcc)")?;
    let mut command = Command::new(cc);
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(output);
    command.arg(here("hosts").join(source)).arg(here("hosts/scenario.c"));
    let library = shim_library();
    let dir = library.parent().ok_or("the shim has no folder")?;
    command.arg(&library).arg(format!("-Wl,-rpath,{}", dir.display()));
    for (package, debian) in packages {
        let tool = which("pkg-config").ok_or("no pkg-config (package pkg-config)")?;
        let flags = run(Command::new(tool).args(["--cflags", "--libs", package]), Duration::from_secs(5));
        if !flags.status.success() {
            return Err(format!("no {package} (package {debian})"));
        }
        command.args(flags.said.split_whitespace());
    }
    let Finished { status, said } = run(&mut command, Duration::from_secs(15));
    assert!(status.success(), "{source} does not compile:\n{said}");
    Ok(())
}

/// A program of `c/`, compiled against these libraries of a Debian package.
///
/// # Errors
/// What is missing here.
///
/// # Panics
/// When the program does not compile where the headers are there: that is a bug in it.
pub fn c_peer(source: &str, (header, package): (&str, &str), libraries: &[&str], output: &Path) -> Result<(), String> {
    let cc = which("cc").ok_or("no C compiler (package gcc)")?;
    if !Path::new("/usr/include").join(header).exists() {
        return Err(format!("no {header} (package {package})"));
    }
    let mut command = Command::new(cc);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(output).arg(here("c").join(source));
    command.args(libraries.iter().map(|library| format!("-l{library}")));
    let Finished { status, said } = run(&mut command, Duration::from_secs(15));
    assert!(status.success(), "{source} does not compile:\n{said}");
    Ok(())
}

/// A Python with aioquic: the one that `NEATER_PYTHON` names, or one in `target/interop-venv`, made the first time.
///
/// # Errors
/// Why there is none.
pub fn python_with_aioquic() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find_python).clone()
}

fn find_python() -> Result<PathBuf, String> {
    let has_it = |python: &Path| {
        python.is_file()
            && run(Command::new(python).args(["-c", "import aioquic"]), Duration::from_secs(10)).status.success()
    };
    if let Some(named) = std::env::var_os("NEATER_PYTHON").map(PathBuf::from) {
        return if has_it(&named) { Ok(named) } else { Err(format!("{} has no aioquic", named.display())) };
    }
    let venv = here("../target/interop-venv");
    let python = venv.join("bin/python");
    if has_it(&python) {
        return Ok(python);
    }
    let system = which("python3").ok_or("no python3 (package python3)")?;
    let long = Duration::from_secs(120);
    let made = run(Command::new(system).args(["-m", "venv"]).arg(&venv), long);
    if !made.status.success() {
        return Err(format!("no virtual environment (package python3-venv): {}", made.said));
    }
    let pip = run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "aioquic"]), long);
    if has_it(&python) { Ok(python) } else { Err(format!("pip cannot install aioquic: {}", pip.said)) }
}

/// The program in `go/`, built the first time: quic-go and pion/dtls as peers.
///
/// # Errors
/// Why it cannot be built here.
pub fn go_peer() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let go = which("go").ok_or("no go (https://go.dev/dl)")?;
        let peer = here("../target/interop-go-peer");
        let mut command = Command::new(go);
        command.args(["build", "-o"]).arg(&peer).arg(".").current_dir(here("go"));
        let done = run(&mut command, Duration::from_secs(180));
        if done.status.success() { Ok(peer) } else { Err(format!("the peer in Go does not build here: {}", done.said)) }
    };
    BUILT.get_or_init(build).clone()
}

/// The `neater` command: the one that `NEATER_COMMAND` names, or the one that cargo has built beside the tests.
///
/// # Errors
/// It is not there, or cannot do `subcommand`.
pub fn neater_command(subcommand: &str) -> Result<PathBuf, String> {
    let built = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("neater"));
    let named = std::env::var_os("NEATER_COMMAND").map(PathBuf::from);
    let Some(command) = named.or_else(built).filter(|p| p.is_file()) else {
        return Err("the neater command is not built here (cargo build -p neater-cli)".to_owned());
    };
    let help = run(Command::new(&command).args([subcommand, "--help"]), Duration::from_secs(5));
    if help.status.success() && help.said.contains("--") {
        Ok(command)
    } else {
        Err(format!("this neater command has no {subcommand}"))
    }
}
