//! X2: whether a run can be repeated, bit by bit, in another process.

use super::{Lab, Outcome};
use crate::measure::{MeasureError, Result};
use crate::report::{Bound, Figure};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes the run of a seed and writes its records into a directory; the names of the files.
///
/// # Errors
/// A file that cannot be written.
pub fn write(seed: u64, dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let records = neater_testkit::replay::replay(seed).into_iter();
    records.map(|(name, bytes)| fs::write(dir.join(&name), bytes).map(|()| name)).collect()
}

/// The same in a process of its own, in another directory, with another home and another environment (which also moves its
/// stack; the kernel moves the rest, or nothing at all where it can be told so), a second later.
fn elsewhere(lab: &Lab, seed: u64, dir: &Path, number: usize) -> Result<()> {
    let home = lab.scratch.join(format!("home-{number}"));
    fs::create_dir_all(&home)?;
    let program = std::env::current_exe()?;
    let still = number % 2 == 1 && Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|s| s.success());
    let mut command = Command::new(if still { Path::new("setarch") } else { &program });
    if still {
        command.arg("-R").arg(&program);
    }
    std::thread::sleep(std::time::Duration::from_secs(1));
    command.args(["replay", "--seed", &seed.to_string(), "--out"]).arg(dir).current_dir(&home);
    command
        .env("HOME", &home)
        .env("NEATER_LAB_PADDING", "x".repeat(1 + number * 4099))
        .env("TZ", ["UTC", "Asia/Tokyo"][number % 2]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(MeasureError::from(io::Error::other(format!("replay: {status}")))) }
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let own = lab.out.join("X2");
    let runs = lab.seeds.unwrap_or(if lab.quick { 1 } else { 5 });
    let (mut equal, mut all, mut bytes) = (0usize, 0usize, 0u64);
    for run in 0..runs {
        let seed = lab.seed + run as u64;
        (lab.progress)(&format!("seed {seed}, twice"));
        let here = if run == 0 { own.clone() } else { lab.scratch.join(format!("replay-{seed}")) };
        let mut names: BTreeSet<String> = write(seed, &here)?.into_iter().collect();
        let there = std::path::absolute(lab.scratch.join(format!("again-{seed}")))?;
        elsewhere(lab, seed, &there, run + 1)?;
        for entry in fs::read_dir(&there)? {
            names.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        for name in names {
            all += 1;
            let (a, b) = (fs::read(here.join(&name)), fs::read(there.join(&name)));
            let (Ok(a), Ok(b)) = (a, b) else {
                out.remarks.push(format!("seed {seed}: {name} is there once only"));
                continue;
            };
            equal += usize::from(a == b);
            bytes += b.len() as u64;
            if a != b {
                let at = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
                out.remarks.push(format!("seed {seed}: {name} differs from byte {at} on"));
            }
        }
        out.sample("identical_share", "netsim", &format!("seed-{seed}"), run, equal as f64 / all.max(1) as f64);
    }
    let share =
        Figure::new("X2", "identical_share", "two-processes", "1").value(equal as f64 / all.max(1) as f64, runs);
    out.figures.push(share.judge(Bound::AtLeast(1.0)).with("files", all as u64).with("bytes", bytes));
    out.runs = Some(runs);
    out.panel("identical_share", "Records that are the same in two processes", "share", |f| {
        (f.variant.clone(), "netsim".to_owned())
    });
    Ok(out)
}
