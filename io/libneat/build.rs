//! Gives the library its soname, and leaves it empty where libuv is not installed, so that the
//! workspace builds there.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-check-cfg=cfg(has_libuv)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libneat.so.0");
    let listed = Command::new("pkg-config").args(["--exists", "libuv"]).status().is_ok_and(|s| s.success());
    if listed || Path::new("/usr/include/uv.h").exists() {
        println!("cargo:rustc-cfg=has_libuv");
    } else {
        println!("cargo:warning=libneat has no functions: libuv is not installed (Debian: libuv1-dev)");
    }
}
