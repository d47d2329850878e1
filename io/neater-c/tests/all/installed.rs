//! The installed library, as pkg-config and CMake find it.

use crate::tools::{folder, here, library, output, sanitizing, skip, which};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where everything is installed, once.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = folder().join("prefix");
        output(Command::new(here("install")).arg(&prefix).arg(library()));
        prefix
    })
}

/// Whether a client that was built against the installed library talks to a server that was.
fn echoes(server: &Path, client: &Path) {
    let with_library = |program: &Path| {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", prefix().join("lib"));
        command
    };
    let mut child = with_library(server).arg("1").stdout(Stdio::piped()).spawn().expect("a server");
    let mut port = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut port).expect("its port");
    let answer = output(with_library(client).arg(format!("127.0.0.1:{}", port.trim())).arg("installed"));
    assert!(answer.contains("installed"), "{answer}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn pkg_config_has_what_compilers_need() {
    let (Some(cc), Some(pkg_config)) = (which("cc"), which("pkg-config")) else {
        skip!("no cc or pkg-config (packages gcc and pkg-config)")
    };
    let mut asked = Command::new(pkg_config);
    asked.args(["--cflags", "--libs", "libneater"]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = output(&mut asked);
    let built = ["echo_server", "echo_client"].map(|name| {
        let program = prefix().join(name);
        let source = here(&format!("examples/{name}.c"));
        let mut command = Command::new(&cc);
        command.arg("-o").arg(&program).arg(source).args(flags.split_whitespace()).args(sanitizing());
        output(&mut command);
        program
    });
    echoes(&built[0], &built[1]);
}

#[test]
fn cmake_finds_the_library_in_a_version_that_serves() {
    let Some(cmake) = which("cmake") else { skip!("no cmake (package cmake)") };
    let configure = |wanted: &str| {
        let project = folder().join(format!("cmake-{wanted}"));
        std::fs::create_dir_all(&project).expect("a folder");
        let examples = here("examples");
        let text = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(echo C)\nfind_package(neater {wanted} REQUIRED)\n\
             foreach(name echo_server echo_client)\n  add_executable(${{name}} \"{}/${{name}}.c\")\n  \
             target_link_libraries(${{name}} neater::neater)\nendforeach()\n",
            examples.display()
        );
        std::fs::write(project.join("CMakeLists.txt"), text).expect("written");
        let mut command = Command::new(&cmake);
        command.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
        command.env("CFLAGS", sanitizing().join(" "));
        let done = command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())).output().expect("cmake");
        (project.join("build"), done.status.success())
    };
    let version = env!("CARGO_PKG_VERSION");
    let (built, configured) = configure(version);
    assert!(configured);
    output(Command::new(&cmake).arg("--build").arg(&built));
    echoes(&built.join("echo_server"), &built.join("echo_client"));
    for unfit in ["99.0", "0.0"] {
        assert!(!configure(unfit).1, "{unfit}");
    }
}
