//! Gives the shared library its soname: programs are linked with the version of the interface and
//! not with a file name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libneater.so.0");
    }
}
