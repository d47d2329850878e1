//! The README's program is the program that is tested here, and it runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Ends the program that was started, whatever happens.
struct Ends(Child);
impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_readme_shows_the_program_that_is_tested() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).expect("README.md");
    let program = include_str!("../src/bin/quickstart.rs");
    let body = program.split_once('\n').expect("a first line").1;
    assert!(readme.contains(body.trim()), "README.md does not show examples/src/bin/quickstart.rs word for word");
}

#[test]
fn quickstart_says_hello_over_quic() {
    let ca = std::env::temp_dir().join(format!("neater-quickstart-{}.pem", std::process::id()));
    let mut echo = Command::new(env!("CARGO_BIN_EXE_echo"));
    let mut echo = Ends(echo.arg("0").arg(&ca).stdout(Stdio::piped()).spawn().expect("echo starts"));
    let mut lines = BufReader::new(echo.0.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    let port = line.rsplit(':').next().expect("a port").to_owned();
    let out = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .arg(format!("localhost:{port}"))
        .arg(&ca)
        .output()
        .expect("quickstart runs");
    let _ = std::fs::remove_file(&ca);
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    assert_eq!(text, "carried by QUIC\nhello\n");
}
