//! `neater-fuzz`: lists, drives and replays the fuzz targets without libFuzzer.

#![forbid(unsafe_code)]

use neater_fuzz::{TARGETS, Target, drive, target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
usage: neater-fuzz list
       neater-fuzz run [TARGET] [--seconds N] [--seed N]   drive one target or all, each for N seconds (default 10)
       neater-fuzz replay TARGET FILE                      run one input
       neater-fuzz seeds FOLDER TARGET                     write the inputs that a target starts from, as a corpus
A failing input is written to fuzz/artifacts/TARGET/, next to this program's sources.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["list"] => {
            for t in TARGETS {
                println!("{:<20} {}", t.name, t.law);
            }
            Ok(true)
        }
        ["run", rest @ ..] => run(rest),
        ["replay", name, file] => find(name).and_then(|t| {
            (t.run)(&std::fs::read(file).map_err(|e| format!("{file}: {e}"))?);
            println!("{name}: passed on {file}");
            Ok(true)
        }),
        ["seeds", folder, name] => find(name).and_then(|t| seeds(Path::new(folder), t)),
        _ => Err(format!("what is meant by `{}`?\n\n{HELP}", words.join(" "))),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprint!("neater-fuzz: {why}");
            eprintln!();
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<&'static Target, String> {
    target(name).ok_or_else(|| format!("no target is called `{name}`; `list` names them"))
}

fn run(args: &[&str]) -> Result<bool, String> {
    let (mut chosen, mut seconds, mut seed) = (None, 10, 1);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).ok_or_else(|| format!("{arg} needs a number"));
        match *arg {
            "--seconds" => seconds = number()?,
            "--seed" => seed = number()?,
            name => chosen = Some(find(name)?),
        }
    }
    let mut clean = true;
    for t in TARGETS.iter().filter(|t| chosen.is_none_or(|c| c.name == t.name)) {
        match drive::run_for(t, seed, Duration::from_secs(seconds), drive::HANG) {
            Ok(count) => println!("{:<20} {count} inputs in {seconds} s: ok", t.name),
            Err(failure) => {
                clean = false;
                let file = keep(&failure)?;
                println!("FAILED {failure}\n  again: cargo run -p neater-fuzz -- replay {} {}", t.name, file.display());
            }
        }
    }
    Ok(clean)
}

/// Where the input of a failure was written, under a name that depends on the input alone.
fn keep(failure: &drive::Failure) -> Result<PathBuf, String> {
    // FNV-1a: names must be stable, not secret.
    let hash =
        failure.input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../artifacts").join(failure.target);
    let file = folder.join(format!("input-{hash:016x}"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, &failure.input));
    written.map(|()| file.clone()).map_err(|e| format!("{}: {e}", file.display()))
}

fn seeds(folder: &Path, t: &Target) -> Result<bool, String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (number, seed) in t.seeds.iter().enumerate() {
        let file = folder.join(format!("seed-{number}"));
        std::fs::write(&file, seed).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(true)
}
