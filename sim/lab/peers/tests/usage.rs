//! Each program refuses what it does not understand, and says what it does: a measurement must not be one of nothing.

use std::process::Command;

#[test]
fn an_unknown_mode_is_refused_with_the_usage() {
    let programs = [
        env!("CARGO_BIN_EXE_peer-neater"),
        env!("CARGO_BIN_EXE_peer-noq"),
        env!("CARGO_BIN_EXE_peer-policy"),
        env!("CARGO_BIN_EXE_peer-quinn"),
        env!("CARGO_BIN_EXE_peer-sctp"),
        env!("CARGO_BIN_EXE_peer-tokio"),
    ];
    for program in programs {
        let out = Command::new(program).arg("nonsense").output().expect("it starts");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains("usage: "), "{program}: {:?}: {said}", out.status);
    }
}
