//! Each program of the gallery runs by itself, and states that what it shows is true.

use std::process::Command;
use std::time::{Duration, Instant};

/// What each prints at its end.
const PROGRAMS: [(&str, &str, &str); 9] = [
    ("chat", env!("CARGO_BIN_EXE_chat"), "all lines arrived, in order"),
    ("media", env!("CARGO_BIN_EXE_media"), "frames in time"),
    ("fetch_file", env!("CARGO_BIN_EXE_fetch_file"), "bytes 1048576 to 3000000"),
    ("requests", env!("CARGO_BIN_EXE_requests"), "20 requests in"),
    ("server_tokio", env!("CARGO_BIN_EXE_server_tokio"), "60 messages answered"),
    ("server_plain", env!("CARGO_BIN_EXE_server_plain"), "9 messages answered"),
    ("poll_loop", env!("CARGO_BIN_EXE_poll_loop"), "carried by QUIC"),
    ("hyper_client", env!("CARGO_BIN_EXE_hyper_client"), "3 requests over 1 connection"),
    ("hyper_server", env!("CARGO_BIN_EXE_hyper_server"), "HTTP/2.0 200 OK: HELLO, HYPER"),
];

#[test]
fn each_program_shows_what_it_promises() {
    for (name, path, end) in PROGRAMS {
        let begun = Instant::now();
        let out = Command::new(path).output().unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains(end), "{name}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}: {:?}", begun.elapsed());
    }
}

/// A newcomer copies them: they use nothing that is not public, and no private work of ours.
#[test]
fn none_uses_what_is_not_public() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    for file in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (name, text) = (file.file_name(), std::fs::read_to_string(file.path()).expect("a text"));
        // The demonstration makes a network with name servers of its own.
        if name == "demo.rs" {
            continue;
        }
        for inner in ["neater_", "/dev/urandom", "BEGIN CERTIFICATE"] {
            assert!(!text.contains(inner) || inner == "neater_" && text.contains("neater_http"), "{name:?}: {inner}");
        }
    }
}
