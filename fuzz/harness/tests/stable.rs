//! The fuzz targets on a stable toolchain, and the driver that drives them.

use neater_fuzz::drive::{self, LONGEST, Mutator};
use neater_fuzz::{TARGETS, Target, target};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long each target is driven, in seconds; `FUZZ_SECONDS` overrides it, `FUZZ_SEED` the seed.
const SECONDS: u64 = 1;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_target_keeps_its_law_on_random_and_mutated_inputs() {
    let (seconds, seed) = (setting("FUZZ_SECONDS", SECONDS), setting("FUZZ_SEED", 1));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            match drive::run_for(target, seed, Duration::from_secs(seconds), drive::HANG) {
                Ok(count) => {
                    println!("{}: {count} inputs", target.name);
                    assert!(count >= target.seeds.len() as u64);
                }
                Err(failure) => failures.lock().unwrap().push(failure.to_string()),
            }
        }
    };
    // One worker for each processor.
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "FUZZ_SEED={seed}:\n{}", failures.join("\n"));
}

#[test]
fn every_target_has_a_wrapper_for_libfuzzer_and_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let name = target.name;
        let file = folder.join(format!("fuzz_targets/{name}.rs"));
        let wrapper = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert!(
            wrapper.contains(&format!("neater_fuzz::{name}(data)")),
            "fuzz_targets/{name}.rs does not call neater_fuzz::{name}"
        );
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml has no [[bin]] {name}");
        assert!(!target.seeds.is_empty(), "{name} starts from nothing");
    }
    let wrappers = std::fs::read_dir(folder.join("fuzz_targets")).unwrap().count();
    assert_eq!(wrappers, TARGETS.len(), "a wrapper without a target");
}

#[test]
fn targets_are_found_by_name_and_names_are_unique() {
    for t in TARGETS {
        assert_eq!(TARGETS.iter().filter(|other| other.name == t.name).count(), 1, "{}", t.name);
        assert!(target(t.name).is_some());
    }
    assert!(target("nonsense").is_none());
}

#[test]
fn the_driver_finds_a_planted_panic_from_a_seed_that_is_near_it() {
    static BUGGY: Target = Target {
        name: "buggy",
        law: "no input begins with `magic` and has a large length",
        run: |data| {
            let Some(rest) = data.strip_prefix(b"magic".as_slice()) else { return };
            assert!(rest.first().is_none_or(|length| *length < 0xf0), "length too large");
        },
        seeds: &[b"magic\x01x"],
    };
    let failure = drive::run_for(&BUGGY, 1, Duration::from_secs(60), drive::HANG).unwrap_err();
    assert!(failure.why.contains("length too large"), "{failure}");
    assert!(failure.input.starts_with(b"magic"));
}

#[test]
fn the_driver_reports_an_input_on_which_a_target_hangs() {
    static SLOW: Target = Target {
        name: "slow",
        law: "ends",
        run: |data| {
            if data == b"wait" {
                std::thread::sleep(Duration::from_secs(30));
            }
        },
        seeds: &[b"go", b"wait"],
    };
    let failure = drive::run_for(&SLOW, 1, Duration::ZERO, Duration::from_millis(300)).unwrap_err();
    assert_eq!(failure.input, b"wait");
    assert!(failure.why.contains("took longer"), "{failure}");
}

#[test]
fn the_driver_plays_the_seeds_even_without_time() {
    let reader = target("base_reader").unwrap();
    assert_eq!(drive::run_for(reader, 1, Duration::ZERO, drive::HANG).unwrap(), reader.seeds.len() as u64);
}

#[test]
fn inputs_are_a_function_of_the_seed_and_stay_bounded() {
    let seeds: &[&[u8]] = &[b"hello", &[7; 2 * LONGEST]];
    let (mut a, mut b, mut c) = (Mutator::new(3, seeds), Mutator::new(3, seeds), Mutator::new(4, seeds));
    let (mut longest, mut different) = (0, 0);
    for turn in 0..5000 {
        let input = a.next_input();
        assert_eq!(input, b.next_input(), "turn {turn}");
        different += usize::from(input != c.next_input());
        longest = longest.max(input.len());
    }
    assert_eq!(longest, LONGEST);
    assert!(different > 4000);
}
