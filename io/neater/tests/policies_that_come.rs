//! A program that begins before there are policies follows them when they come.

mod common;

use common::loopback;
use neater::{Neater, SecurityParameters, Stack};
use std::process::Command;
use std::time::{Duration, Instant};

/// Set for the process that is observed: its folder of configurations.
const CHILD: &str = "NEATER_TEST_POLICIES_THAT_COME";

/// The environment of a process with threads cannot be changed: the program is a process of its
/// own.
#[test]
fn a_folder_that_comes_while_a_program_runs_is_followed() {
    let home = std::env::temp_dir().join(format!("neater-come-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).expect("made");
    let program = std::env::current_exe().expect("this test");
    let out = Command::new(program)
        .args(["--exact", "the_program", "--nocapture"])
        .env(CHILD, &home)
        .env("XDG_CONFIG_HOME", &home)
        .env("HOME", &home)
        .env_remove("NEATER_POLICY")
        .env_remove("NEAT_PM_SOCKET")
        .output()
        .expect("runs");
    let _ = std::fs::remove_dir_all(&home);
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && (said.contains("followed") || said.contains("SKIP")), "{said}");
    if said.contains("SKIP") {
        println!("SKIP: this machine has policies of its own");
    }
}

#[tokio::test]
async fn the_program() {
    let Some(home) = std::env::var_os(CHILD).map(std::path::PathBuf::from) else { return };
    if [neater::policies::SYSTEM, "/run/neater/neat_pm_socket"].iter().any(|p| std::path::Path::new(p).exists()) {
        println!("SKIP: this machine has policies of its own");
        return;
    }
    let neater = Neater::new().expect("engine");
    let clear = || neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = clear().local(loopback(0)).listen().expect("listening");
    let connect = || clear().remote(loopback(listener.port())).initiate();
    connect().await.expect("nobody forbids it").abort();
    let folder = home.join("neater").join("policy");
    std::fs::create_dir_all(&folder).expect("made");
    let deny = folder.join("deny.policy");
    std::fs::write(&deny, r#"{"uid": "deny", "properties": [[]]}"#).expect("written");
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match connect().await {
            Err(e) => {
                assert!(e.to_string().contains("deny"), "{e}");
                break;
            }
            Ok(c) => c.abort(),
        }
        assert!(Instant::now() < end, "policies that have come are not followed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::remove_file(deny).expect("removed");
    let end = Instant::now() + Duration::from_secs(10);
    while connect().await.map(|c| c.abort()).is_err() {
        assert!(Instant::now() < end, "a policy that has gone counts still");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("followed");
}
