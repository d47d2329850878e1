//! What a million updates of the CIB leave behind: `cargo run --release -p
//! neater-policy-daemon --example updates [UPDATES]`.
//!
//! A daemon takes them as its socket does, each over a connection of its own: of a hundred nodes
//! that change their values, end and come again, for two users, with a decision after every
//! hundredth. Anonymous memory (Linux, `/proc/self/status`) is printed after a tenth of them and at
//! the end; a growth of more than one megabyte in between is a failure.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the system's figures; the crate does not")]

use neater_base::WallTime;
use neater_policy::manager::{Limits, Requests};
use neater_policy::protocol::Door;
use neater_policy_daemon::{Daemon, Options, Session};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How much memory may grow, in kB: an allocator does not give back every page at once.
const GROWTH_MAX: u64 = 1000;
const OWNER: u32 = 900;
const USERS: [u32; 2] = [OWNER, 1000];

/// Anonymous memory in kB.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// The update of that number.
fn update(i: u64) -> String {
    let (node, value) = (i * 7 % 100, i % 97);
    let expire = if i.is_multiple_of(5) { 1_800_000_000 + i / 1000 + 1 } else { 1_900_000_000 };
    format!(
        r#"{{"uid": "n{node}", "root": true, "expire": {expire}, "properties": {{"interface": {{"value": "wwan{node}"}}, "rsrp": {{"value": -{value}}}, "operator": {{"value": "o{}"}}}}}}"#,
        i % 1013
    )
}

fn main() -> ExitCode {
    let updates: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let mut daemon = Daemon::new(Options { limits: Limits::default(), owner: OWNER, ready: true, keeps_rules: false });
    let asked = r#"[{"transport": {"value": ["TCP", "SCTP"]}, "app": {"value": "video"}}]"#;
    let Ok(asked) = Requests::from_text(asked) else { return ExitCode::FAILURE };
    let (began, mut early, mut candidates) = (Instant::now(), 0, 0);
    for i in 0..updates {
        // A thousand of them in a second.
        let now = WallTime(Duration::from_secs(1_800_000_000) + Duration::from_millis(i));
        let which = (i % 2) as usize;
        let mut session = Session::new(Door::Cib, USERS[which]);
        session.receive(update(i).as_bytes(), &mut daemon, now);
        session.end(&mut daemon, now);
        let refused = session.take_refusals();
        if !refused.is_empty() {
            eprintln!("update {i}: {}", refused.join("; "));
            return ExitCode::FAILURE;
        }
        let _ = daemon.take_effects();
        if i.is_multiple_of(100) {
            let user = USERS[(i / 100 % 2) as usize];
            candidates += daemon.decide(user, &asked, now).map_or(0, |d| d.len());
        }
        if i == updates / 10 {
            early = anonymous();
        }
    }
    let end = anonymous();
    println!(
        "{updates} updates in {:.1} s, {} candidates in {} decisions: {early} kB after a tenth, {end} kB at the end",
        began.elapsed().as_secs_f64(),
        candidates,
        updates.div_ceil(100)
    );
    if end > early + GROWTH_MAX {
        eprintln!("that is more than {GROWTH_MAX} kB more");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
