//! The installed library, as build systems find it.

#![cfg(has_libuv)]

mod common;

use common::{Server, build, port, prefix, run, sanitizing};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A project for CMake with this line, whose program is the client; configured.
fn configure(name: &str, find: &str) -> (PathBuf, bool) {
    let folder = prefix().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/echo_client.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(client C)\n{find}\nadd_executable(client \"{}\")\n\
         target_compile_definitions(client PRIVATE _GNU_SOURCE)\ntarget_link_libraries(client neat::neat)\n",
        source.display()
    );
    std::fs::write(folder.join("CMakeLists.txt"), project).expect("written");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(&folder).arg("-B").arg(folder.join("build"));
    cmake.env("CFLAGS", sanitizing().join(" "));
    let output = cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())).output().expect("cmake");
    (folder.join("build"), output.status.success())
}

#[test]
fn cmake_finds_the_library_in_a_version_that_serves() {
    if Command::new("cmake").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no cmake (package cmake)");
        return;
    }
    let (built, configured) = configure("cmake", "find_package(neat 1.0 REQUIRED)");
    assert!(configured);
    run(Command::new("cmake").arg("--build").arg(&built));
    let port = port();
    let server = Server::start(&build("examples/echo_server.c"), &["tcp", &port]);
    let out = run(&mut common::program(&built.join("client"), &["tcp", "127.0.0.1", &port, "1000"]));
    assert!(out.starts_with("1000 bytes over "), "{out}");
    server.stop();
    for unfit in ["1.1", "2.0", "0.9"] {
        let (_, configured) = configure("cmake-unfit", &format!("find_package(neat {unfit} REQUIRED)"));
        assert!(!configured, "{unfit}");
    }
}

#[test]
fn a_packager_may_say_where_libraries_go_and_what_stands_for_the_root() {
    let root = prefix().join("root");
    let _ = std::fs::remove_dir_all(&root);
    let library = std::env::current_exe().expect("this test").with_file_name("libneat.so");
    run(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install"))
        .arg("/usr")
        .arg(library)
        .env("DESTDIR", &root)
        .env("LIBDIR", "/usr/lib/a-b-c"));
    let pc = std::fs::read_to_string(root.join("usr/lib/a-b-c/pkgconfig/libneat.pc")).expect("a file for pkg-config");
    assert!(pc.contains("\nlibdir=/usr/lib/a-b-c\n") && !pc.contains('@'), "{pc}");
    assert!(!pc.contains(&*root.to_string_lossy()), "{pc}");
    for file in ["include/neat.h", "lib/a-b-c/libneat.so", "lib/a-b-c/cmake/neat/neat-config.cmake"] {
        assert!(root.join("usr").join(file).exists(), "{file}");
    }
}
