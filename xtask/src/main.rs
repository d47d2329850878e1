//! `cargo xtask`: chores of the project that a shell script would do badly.
//!
//! *Responsible for* what `./test` runs (`test`), the rules that no compiler checks (`tidy`), the
//! licences of what we link (`licences`), the hook that checks subjects of commits (`hooks`),
//! running fuzz targets with whatever tools are there (`fuzz`), what tests reach (`coverage`), long
//! simulations (`sim`), the whole system under faults (`vopr`), the front doors in C under
//! sanitizers (`sanitize`), the wheel of the Python package (`wheel`), manual pages (`man`), packages
//! for Debian (`debs`), what a release would be (`release`), and the peer that needs a machine of its
//! own (`interop`).
//!
//! *Deliberately not*: building and formatting. Cargo does that.
//!
//! *Invariants*: a rule is a function of data and touches no file, so that each is tested by
//! violating it; a chore exits with 0 when all is well, 1 when something is wrong with the project,
//! 2 when it was called wrongly.

#![forbid(unsafe_code)]

mod coverage;
mod debs;
mod fuzz;
mod hooks;
mod interop;
mod licences;
mod man;
mod release;
mod sanitize;
mod sim;
mod test;
mod tidy;
mod tools;
mod vopr;
mod wheel;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <chore>

  test [PART...] [--list]          everything that must hold before a change is merged; ./test calls this, and --help explains it
  tidy                             check the rules that no compiler checks
  tidy --figures [--json]          print how far the engine is one object and the project has one language, beside the bounds;
                                   --json: one line of numbers
  hooks                            install the commit-msg hook, which checks subjects: at most 72 characters, imperative
  licences                         check licences, bans and sources of every crate in the lock file against deny.toml
  fuzz [TARGET] [--seconds N]      fuzz one target or all: with cargo-fuzz on nightly where both are installed,
                                   else the same targets on stable with random and mutated inputs (default: 10 s each)
  fuzz --list                      name the targets
  sim [--seeds N]                  simulate establishment, chaos and faults for N seeds (default 300)
  vopr [--seeds N] [--seed FIRST] [--jobs N] [--program PATH]
                                   the whole system under random faults, N seeds (default 300) from FIRST (default 0),
                                   in release, in N processes; failing seeds are listed; --program: by this build of neater-vopr
  coverage [--list] [PACKAGE...]   which lines and branches the tests of these packages reach (default: SCTP's); --list names those
                                   they do not; wants LLVM's tools, as CONTRIBUTING.md says; exit code 77: not here
  interop linux [--quick|--prepare] [WORD...]
                                   our SCTP against Linux' in a virtual machine (QEMU, no privilege); --prepare: only make
                                   in target/interop-linux what it boots from; exit code 77: that cannot be had here
  sanitize [address|thread] [-- TEST...]
                                   libneat and neater.h, and their programs in C, under the sanitizers of the nightly compiler (default:
                                   both); behind --, arguments of the tests; exit code 77: there is no nightly with them here
  wheel [--quick|--tests]          build the wheel of the Python package, install it in a fresh virtual environment and run its quick
                                   start there; --tests: its tests and types, too; --quick: the same not optimised, without those that
                                   are slow; exit code 77: Python or pip is not to be had here
  man DIR                          write the manual pages of libneat and neater.h into DIR/man3; `neater man DIR/man1` writes the command's
  debs [--try] [--no-build]        build the packages for Debian into target/debs (cargo-deb is installed below target if it is not
                                   there); --try: install and use them in a fresh Debian below target (root), exit code 77: that cannot
                                   be had here; --no-build: from the last release build; --only-try: the packages that are there
  release --dry-run [--quick]      whether this state could be a release: versions, changelog, licences, public interfaces, crates packed;
                                   what it would consist of goes to target/neater-VERSION with checksums; --quick: nothing is compiled
  release --accept-api             record the public interfaces as those of this version
  help                             print this
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("tidy") => match tidy::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => tidy::chore(request),
            Err(why) => return usage(&why),
        },
        Some("licences") if args.len() == 1 => licences::chore(),
        Some("hooks") if args.len() == 1 => hooks::chore(),
        Some("fuzz") => match fuzz::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => fuzz::chore(&request),
            Err(why) => return usage(&why),
        },
        Some("test") => match test::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => test::chore(&request),
            Err(why) => return usage(&why),
        },
        Some("sim") => match sim::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => sim::chore(&request),
            Err(why) => return usage(&why),
        },
        Some("vopr") => match vopr::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => vopr::chore(&request),
            Err(why) => return usage(&why),
        },
        Some("coverage") => match coverage::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => match coverage::chore(&request) {
                Ok(code) => return ExitCode::from(code),
                Err(why) => Err(why),
            },
            Err(why) => return usage(&why),
        },
        Some("interop") => match interop::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => match interop::chore(&request) {
                Ok(code) => return ExitCode::from(code),
                Err(why) => Err(why),
            },
            Err(why) => return usage(&why),
        },
        Some("sanitize") => match sanitize::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => match sanitize::chore(&request) {
                Ok(code) => return ExitCode::from(code),
                Err(why) => Err(why),
            },
            Err(why) => return usage(&why),
        },
        Some("wheel") => match wheel::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => match wheel::chore(&request) {
                Ok(code) => return ExitCode::from(code),
                Err(why) => Err(why),
            },
            Err(why) => return usage(&why),
        },
        Some("debs") => match debs::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => match debs::chore(&request) {
                Ok(code) => return ExitCode::from(code),
                Err(why) => Err(why),
            },
            Err(why) => return usage(&why),
        },
        Some("release") => match release::Request::parse(args.get(1..).unwrap_or_default()) {
            Ok(request) => release::chore(request),
            Err(why) => return usage(&why),
        },
        Some("man") => match args.get(1..) {
            Some([folder]) => man::chore(folder.as_ref()),
            _ => return usage("man takes the folder that pages go to"),
        },
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(_) => return usage(&format!("no such chore: {}", args.join(" "))),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage(why: &str) -> ExitCode {
    eprint!("xtask: {why}\n\n{HELP}");
    ExitCode::from(2)
}
