//! The parts of `./test`, one function each.
//!
//! *Responsible for* what a part runs and how. *Not here*: how its output is counted (`report`), how programs run side by
//! side (`programs`).

use super::log::Log;
use super::packages::{self, Want, header, library, program};
use super::programs::{self, EVERYTHING, Job, Program, cargo};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds per fuzz target.
const FUZZ_SECONDS: u64 = 1;
/// How long the file of the demonstration is, in MB, which is 200 for people.
const DEMO_MB: &str = "8";
/// Seeds of long simulations, and of establishment, whose seeds take milliseconds each.
const SEEDS: (u64, u64) = (300, 1000);
/// The experiments whose figures do not depend on how busy this machine is: instructions, allocations and calls of a flow,
/// decisions, simulations. They must meet their bounds.
const DETERMINISTIC: &[&str] = &["A1", "A6", "A7", "A9", "A10", "X2", "F1"];
/// The others, whose figures depend on time: `neater lab run` judges them.
const COUNTING: &[&str] = &["A2", "A3", "A4", "A5", "A8", "AR", "BULK", "S1", "S2", "F2", "P1", "X1"];
/// Those of them that wait for emulated links.
const WAITING: &[&str] = &["B0", "B1", "B2", "B3", "B4", "S3"];
/// How the laboratory ends when it lacks a tool or a privilege.
const LACKS: i32 = 3;

/// How a part ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    Failed,
    /// With the reason, which is in the log as well.
    Skipped(String),
}

impl From<bool> for Ended {
    fn from(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// What the parts share.
pub(super) struct Shared {
    pub(super) root: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) may_install: bool,
    /// Processors.
    pub(super) cores: usize,
    /// What the part `build` has built.
    pub(super) programs: Vec<Program>,
    /// The interpreter with the modules that peers in Python need.
    pub(super) python: Option<PathBuf>,
}

/// A part.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Whether it runs what the part `build` builds.
    pub(super) runs: bool,
    /// What it needs besides cargo.
    pub(super) wants: &'static [&'static [Want]],
    pub(super) run: fn(&mut Shared, &Log) -> Ended,
}

const fn part(
    name: &'static str,
    what: &'static str,
    runs: bool,
    wants: &'static [&'static [Want]],
    run: fn(&mut Shared, &Log) -> Ended,
) -> Part {
    Part { name, what, runs, wants, run }
}

/// What the live lab works with, in its own tests and in its experiments.
const LAB: &[Want] = &[
    program("ip", "iproute2", "network namespaces"),
    program("ping", "iputils-ping", "the emulator seen from outside"),
    program("tracepath", "iputils-tracepath", "the routers on the way, seen from outside"),
    program("tcpdump", "tcpdump", "packet captures"),
    program("ethtool", "ethtool", "loopback with and without segmentation by the system"),
    program("iperf3", "iperf3", "rates and shares of TCP and UDP"),
    program("nginx", "nginx-light", "nginx as the outside reference"),
    program("curl", "curl", "curl as the outside reference, and as client of neater serve"),
];
const UNIT: &[Want] = &[
    library("libuv", "libuv1-dev", "the loop of libneat, which does not link without it"),
    program("openssl", "openssl", "openssl as peer of libneat's programs"),
    library("usrsctp", "libusrsctp-dev", "usrsctp as peer of libneat's programs"),
    program("tshark", "tshark", "packet records as Wireshark reads them"),
    program("strace", "strace", "which system calls a flow makes"),
    program("tinyproxy", "tinyproxy-bin", "tinyproxy as proxy of neater get"),
    program("valgrind", "valgrind", "programs on neater.h without errors and leaks"),
    program("c++", "g++", "neater.h as C++"),
    program("cmake", "cmake", "neat.h and neater.h as CMake finds them"),
    program("groff", "groff", "manual pages without a warning"),
];
const INTEROP: &[Want] = &[
    program("nginx", "nginx-light", "nginx as HTTP peer"),
    program("curl", "curl", "curl as HTTP peer"),
    program("openssl", "openssl", "openssl as TLS peer"),
    library("libuv", "libuv1-dev", "libuv as host loop"),
    library("glib-2.0", "libglib2.0-dev", "GLib as host loop"),
    library("usrsctp", "libusrsctp-dev", "usrsctp as SCTP peer"),
    library("wolfssl", "libwolfssl-dev", "wolfSSL as DTLS peer"),
    header("mbedtls/ssl_cookie.h", "libmbedtls-dev", "mbedTLS as DTLS peer"),
    program("tshark", "tshark", "tshark as judge of SCTP packets"),
    program("qemu-system-x86_64", "qemu-system-x86", "Linux' SCTP as peer"),
];
const EXPERIMENTS: &[Want] = &[
    program("valgrind", "valgrind", "instruction counts"),
    program("strace", "strace", "system call counts"),
    library("libuv", "libuv1-dev", "comparison with libuv"),
];

/// The parts, in the order in which they run.
pub(super) const PARTS: &[Part] = &[
    part("fmt", "sources are formatted (rustfmt)", false, &[], fmt),
    part("tidy", "the rules that no compiler checks: arrows between crates, unsafe, lengths, links", false, &[], tidy),
    part("deny", "licences, bans and sources of everything we link; advisories where possible", false, &[], deny),
    part("clippy", "no lint fires; no sans-IO crate reads a clock or opens a socket", false, &[], clippy),
    part("docs", "the documentation builds without a warning", false, &[], docs),
    part("unit", "unit, integration and documentation tests of every crate", true, &[LAB, UNIT], unit),
    part("sim", "simulations in virtual time: 300 seeds, of establishment 1,000", true, &[], sim),
    part("vopr", "the whole system under random faults, 300 seeds, with assertions", true, &[], vopr),
    part("fuzz-quick", "every fuzz target, a second each", true, &[], fuzz_quick),
    part("interop", "against peers that are not ours, on loopback", true, &[INTEROP], interop),
    part(
        "lab-quick",
        "the experiments in their shortest form; deterministic figures meet their bounds",
        true,
        &[LAB, EXPERIMENTS],
        lab_quick,
    ),
    part("examples", "every example builds; those that measure run in their shortest form", true, &[], examples),
    part(
        "python",
        "the Python package: installed, its quick start, its tests, types checked by mypy",
        true,
        &[],
        python,
    ),
    part("demo", "the demonstration, with a file of 8 MB and programs built for debugging", true, &[], demo),
];

/// What is downloaded, before anything that counts: crates, packages, modules.
pub(super) const FETCH: Part = part("fetch", "downloads: crates, packages, modules", false, &[], fetch);
/// What the parts that run programs share.
pub(super) const BUILD: Part = part("build", "everything, once, for the parts that run it", false, &[], build);

fn fetch(shared: &mut Shared, log: &Log) -> Ended {
    log.run(cargo().args(["fetch", "--locked"]).current_dir(&shared.root)).into()
}

/// Installs what the chosen parts want, and downloads what the peers are built from.
pub(super) fn install(shared: &mut Shared, parts: &[&Part], log: &Log) {
    let wants: Vec<Want> = parts.iter().flat_map(|p| p.wants.iter().flat_map(|w| w.iter().copied())).collect();
    if shared.may_install {
        packages::install(&wants, log);
    }
    if !parts.iter().any(|p| p.name == "interop") {
        return;
    }
    match packages::python(&shared.root, &["aioquic"], shared.may_install, log) {
        Ok(python) => shared.python = Some(python),
        Err(why) => log.line(&why),
    }
    if packages::which("go").is_some() && shared.may_install {
        log.run(Command::new("go").args(["mod", "download"]).current_dir(shared.root.join("interop/go")));
    }
    prepare_linux(shared, log);
}

/// Linux' SCTP as peer, in a virtual machine: the tests use what this makes.
fn prepare_linux(shared: &Shared, log: &Log) {
    if packages::which("qemu-system-x86_64").is_none() {
        return;
    }
    if !shared.may_install && !shared.root.join("target/interop-linux/unpacked").is_dir() {
        return log.line("SKIP: Linux' SCTP as peer: its kernel may not be downloaded (--no-install)");
    }
    // What it lacks it says itself.
    log.run(chore(shared, &["interop", "linux", "--prepare"]).env("LC_ALL", "C"));
}

fn build(shared: &mut Shared, log: &Log) -> Ended {
    let args = [&["test", "--no-run"], EVERYTHING].concat();
    match programs::build(&args, &shared.root, log) {
        Some(built) => {
            log.line(&format!("{} programs", built.len()));
            shared.programs = built;
            Ended::Passed
        }
        None => Ended::Failed,
    }
}

fn fmt(shared: &mut Shared, log: &Log) -> Ended {
    if let Err(why) = packages::component("rustfmt", "rustfmt", shared.may_install, log) {
        return Ended::Skipped(why);
    }
    if !log.run(cargo().args(["fmt", "--all", "--check", "--", "--color", "never"])) {
        log.line("mend it with: cargo fmt --all");
        return Ended::Failed;
    }
    let folder = std::fs::read_dir("fuzz/fuzz_targets").into_iter().flatten().filter_map(Result::ok);
    let files = folder.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    log.run(Command::new("rustfmt").args(["--check", "--color", "never", "--edition", "2024"]).args(files)).into()
}

fn clippy(shared: &mut Shared, log: &Log) -> Ended {
    if let Err(why) = packages::component("clippy", "cargo-clippy", shared.may_install, log) {
        return Ended::Skipped(why);
    }
    log.run(cargo().args(["clippy", "--all-targets"]).args(EVERYTHING).args(["--", "-D", "warnings"])).into()
}

fn tidy(shared: &mut Shared, log: &Log) -> Ended {
    log.run(&mut chore(shared, &["tidy"])).into()
}

fn deny(shared: &mut Shared, log: &Log) -> Ended {
    let deny = |args: &[&str]| log.run(cargo().args(["deny", "--locked"]).args(args));
    if packages::which("cargo-deny").is_none() {
        log.line("cargo-deny is not here: our own check of the same lists");
        log.line("SKIP: advisories: cargo-deny is not here (cargo install cargo-deny --locked; takes minutes)");
        return log.run(&mut chore(shared, &["licences"])).into();
    }
    if !deny(&["check", "licenses", "bans", "sources"]) {
        return Ended::Failed;
    }
    if !deny(&["fetch", "db"]) {
        log.line("SKIP: advisories: the database cannot be fetched (no network?)");
        return Ended::Passed;
    }
    deny(&["check", "--disable-fetch", "advisories"]).into()
}

fn docs(_: &mut Shared, log: &Log) -> Ended {
    let mut flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
    flags.push_str(" -D warnings");
    // Programs document themselves by --help; leaving them out also keeps the program and the library called neater apart.
    log.run(cargo().args(["doc", "--no-deps", "--lib"]).args(EVERYTHING).env("RUSTDOCFLAGS", flags)).into()
}

fn unit(shared: &mut Shared, log: &Log) -> Ended {
    lacking(&[LAB, UNIT], log);
    // Those two have parts of their own.
    let others = |p: &&Program| p.test && !["neater-interop", "neater-fuzz"].contains(&p.package.as_str());
    let mut jobs: Vec<Job<'_>> = shared.programs.iter().filter(others).map(Job::all).collect();
    // What takes longest begins first.
    jobs.sort_by_key(|job| SLOWEST.iter().position(|name| *name == job.program.name()).unwrap_or(SLOWEST.len()));
    let mut passed = programs::run(&jobs, shared.cores * 2, &shared.logs.join("unit"), log);
    passed &= log.run(cargo().args(["test", "--doc"]).args(EVERYTHING).current_dir(&shared.root));
    // The system that is none, for which the caller moves the packets, is a feature that is off by default.
    let shell =
        ["test", "-p", "neater-net", "--locked", "--no-fail-fast", "--features", "shell", "--lib", "--", "shell"];
    passed &= log.run(cargo().args(shell).current_dir(&shared.root));
    passed.into()
}

/// The test programs that take longest, which begin first so that none of them runs on alone at the end.
const SLOWEST: &[&str] = &[
    "neater-testkit all",
    "neater all",
    "neater-netsim calibration",
    "neater-lab both",
    "neater-cli multi",
    "neater-c all",
    "neater-sctp all",
    "neater-policy neater_policy",
];

fn python(shared: &mut Shared, log: &Log) -> Ended {
    if !shared.may_install {
        return Ended::Skipped(
            "SKIP: the Python package: pip may not install what its tests import (--no-install)".into(),
        );
    }
    // What it lacks it says itself.
    match log.run_code(&mut chore(shared, &["wheel", "--quick"])) {
        Some(0) => Ended::Passed,
        Some(77) => Ended::Skipped("SKIP: the Python package: the log says what it lacks here".into()),
        _ => Ended::Failed,
    }
}

fn sim(shared: &mut Shared, log: &Log) -> Ended {
    let (few, many) = SEEDS;
    let Some(tests) = shared.programs.iter().find(|p| p.test && p.package == "neater-testkit" && p.target == "all")
    else {
        log.line("error: the test program of neater-testkit is not there");
        return Ended::Failed;
    };
    let job = |module: &str, seeds: u64| Job::all(tests).only(module).with("SIM_SEEDS", seeds);
    let jobs = [job("establishment::", many), job("chaos::", few), job("soak::", few)];
    programs::run(&jobs, shared.cores, &shared.logs.join("sim"), log).into()
}

fn vopr(shared: &mut Shared, log: &Log) -> Ended {
    // Without optimisation, which takes minutes to build and saves seconds.
    let Some(program) = binary(shared, "neater-vopr", "neater-vopr", log) else { return Ended::Failed };
    let seeds = SEEDS.0.to_string();
    log.run(chore(shared, &["vopr", "--seeds", &seeds, "--program"]).arg(program)).into()
}

fn fuzz_quick(shared: &mut Shared, log: &Log) -> Ended {
    let Some(stable) = shared.programs.iter().find(|p| p.test && p.package == "neater-fuzz" && p.target == "stable")
    else {
        log.line("error: the test program of neater-fuzz is not there");
        return Ended::Failed;
    };
    // The driver and the laws on stable, then libFuzzer where it is installed.
    let job = Job::all(stable).with("FUZZ_SECONDS", FUZZ_SECONDS);
    if !programs::run(&[job], 1, &shared.logs.join("fuzz"), log) {
        return Ended::Failed;
    }
    if !packages::quiet(Command::new("cargo").args(["+nightly", "fuzz", "--version"]).env_remove("CARGO")) {
        log.line("SKIP: fuzzing led by coverage: needs a nightly toolchain and cargo-fuzz");
        return Ended::Passed;
    }
    log.run(&mut chore(shared, &["fuzz", "--seconds", &FUZZ_SECONDS.to_string()])).into()
}

fn interop(shared: &mut Shared, log: &Log) -> Ended {
    lacking(&[INTEROP], log);
    for (program, what) in [("go", "peers in Go"), ("node", "peers in Node")] {
        if packages::which(program).is_none() {
            log.line(&format!("SKIP: {what}: no {program} here"));
        }
    }
    let mut jobs: Vec<Job<'_>> =
        shared.programs.iter().filter(|p| p.test && p.package == "neater-interop").map(Job::all).collect();
    if let Some(python) = &shared.python {
        jobs = jobs.into_iter().map(|job| job.with("NEATER_PYTHON", python.display())).collect();
    }
    programs::run(&jobs, shared.cores * 2, &shared.logs.join("interop"), log).into()
}

fn lab_quick(shared: &mut Shared, log: &Log) -> Ended {
    lacking(&[LAB, EXPERIMENTS], log);
    let Some(lab_program) = binary(shared, "neater-lab", "neater-lab", log) else { return Ended::Failed };
    let lab = |args: &[&str]| log.run(Command::new(&lab_program).args(args).current_dir(&shared.root));
    // What an earlier test measured is measured again; what cannot be measured here is skipped, with the reason.
    let ids = DETERMINISTIC.join(",");
    let mut counted = vec!["run"];
    counted.extend(DETERMINISTIC);
    counted.extend(["--quick", "--fresh", "--strict-for", &ids]);
    if !lab(&counted) {
        return Ended::Failed;
    }
    // What a datagram costs, against the count that is kept. Its namespace is not to be had everywhere.
    let datagram = ["run", "S1", "--quick", "--fresh", "--only", "counts", "--strict-for", "S1", "--out", "out/counts"];
    match log.run_code(Command::new(&lab_program).args(datagram).current_dir(&shared.root)) {
        Some(0) => {}
        Some(LACKS) => log.line("SKIP: instructions of an SCTP datagram: the log says what they lack here"),
        _ => return Ended::Failed,
    }
    // That they still run is all that is asked of the others: one run of each point, and nothing is judged. Those that wait
    // for emulated links most of the time run beside those that count.
    let others = |ids: &[&str], out: &str| {
        let mut command = Command::new(&lab_program);
        command.arg("run").args(ids).args(["--quick", "--fresh", "--seeds", "1", "--unoptimised", "--out", out]);
        command.current_dir(&shared.root);
        command
    };
    let emulated = "out/emulated";
    let mut waiting = others(WAITING, emulated);
    let waiting = std::thread::spawn(move || waiting.stdin(Stdio::null()).output());
    let mut passed = log.run(&mut others(COUNTING, "out"));
    match waiting.join() {
        Ok(Ok(out)) => {
            log.line(&String::from_utf8_lossy(&out.stdout));
            log.line(&String::from_utf8_lossy(&out.stderr));
            passed &= out.status.success();
        }
        _ => passed = false,
    }
    // A day with provisioning domains has time limits, which a busy machine can miss once; wrong decisions miss them twice.
    let day = || log.run_code(others(&["F3"], emulated).args(["--strict-for", "F3"]));
    passed &= match day() {
        Some(0) => true,
        Some(LACKS) => {
            log.line("SKIP: F3: the log says what it lacks here");
            true
        }
        _ => day() == Some(0),
    };
    // Where nothing could be emulated there is nothing to report of it.
    let reported = |dir: &str| !shared.root.join(dir).is_dir() || lab(&["report", dir]);
    (passed & reported("out") & reported(emulated)).into()
}

fn examples(shared: &mut Shared, log: &Log) -> Ended {
    let runs: [(&str, &str, &[&str]); 4] = [
        ("neater-engine", "memory", &["20"]),
        ("neater-policy", "decision", &["cached", "2"]),
        ("neater-netsim", "speed", &["1", "10"]),
        ("neater-policy-daemon", "updates", &["100000"]),
    ];
    let run = |(package, target, args): (&str, &str, &[&str])| {
        let found = shared.programs.iter().find(|p| p.example && p.target == target);
        let Some(program) = found else {
            log.line(&format!("error: the example {target} of {package} is not there"));
            return false;
        };
        log.run(program.command().args(args))
    };
    runs.into_iter().all(run).into()
}

fn demo(shared: &mut Shared, log: &Log) -> Ended {
    let mut demo = Command::new("./demo");
    demo.args(["--unoptimised", "--no-build", "--size", DEMO_MB]).current_dir(&shared.root);
    log.run(&mut demo).into()
}

/// Says what goes without what could not be installed.
fn lacking(wants: &[&[Want]], log: &Log) {
    wants.iter().flat_map(|w| w.iter()).filter(|w| !w.is_here()).for_each(|want| log.line(&want.skip()));
}

/// A program that is no test.
fn binary(shared: &Shared, package: &str, target: &str, log: &Log) -> Option<PathBuf> {
    let is = |p: &&Program| !p.test && !p.example && p.package == package && p.target == target;
    let found = shared.programs.iter().find(is).map(|p| p.path.clone());
    if found.is_none() {
        log.line(&format!("error: {target} of {package} is not among what was built"));
    }
    found
}

/// Another chore of this program.
fn chore(shared: &Shared, args: &[&str]) -> Command {
    let me = std::env::current_exe().unwrap_or_else(|_| Path::new("xtask").to_path_buf());
    let mut command = Command::new(me);
    command.args(args).current_dir(&shared.root);
    command
}
