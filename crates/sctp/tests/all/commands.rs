//! The fuzz target `sctp_commands` of `fuzz/harness`, on inputs made from seeds: `SIM_SEEDS=n` runs
//! the first n, `SIM_SEED=n` one.
//!
//! Half of the inputs are commands chosen with sense, half are those with bytes changed at random.

#[path = "../../../../fuzz/harness/src/sctp.rs"]
mod target;

use neater_base::Rng;

/// Commands with the bytes that they take, so that most of a long input means something.
fn input(rng: &mut Rng) -> Vec<u8> {
    let mut out = (rng.u32() as u16).to_be_bytes().to_vec();
    let connect = rng.below(2) as u8;
    out.push(connect);
    for _ in 0..4 {
        out.extend([4 << 1, 4 << 1 | 1]);
    }
    for _ in 0..rng.below(150) {
        let op = match rng.below(12) {
            0..=2 => 1 + rng.below(3) as u8,
            3..=7 => 4 + rng.below(6) as u8,
            8 => 16 + rng.below(4) as u8,
            9 => 20,
            _ => rng.below(32) as u8,
        };
        out.push(op << 1 | rng.below(2) as u8 | (rng.below(4) as u8) << 6);
        let bytes = match op {
            0..=3 | 16..=18 => 2,
            13 => 3,
            24..=31 => 1,
            14 | 15 => {
                let len = 4 * rng.below(20) as u8;
                out.push(len);
                let kinds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 64, 128, 130, 132, 192, 193, 194];
                if len >= 4 {
                    // A chunk of a known type and right length.
                    out.extend([kinds[rng.below(kinds.len() as u64) as usize], rng.u32() as u8 & 7, 0, len]);
                }
                usize::from(len.saturating_sub(4))
            }
            _ => 0,
        };
        out.extend((0..bytes).map(|_| if rng.chance(0.4) { 0 } else { rng.u32() as u8 }));
    }
    if rng.chance(0.5) {
        for _ in 0..1 + rng.below(10) {
            let at = rng.below(out.len() as u64) as usize;
            out[at] = rng.u32() as u8;
        }
    }
    out
}

#[test]
fn any_commands_and_packets_keep_the_laws() {
    #[allow(clippy::disallowed_methods, reason = "the seed to replay comes from whoever runs the test")]
    let variable = |name| std::env::var(name).ok().and_then(|s: String| s.parse::<u64>().ok());
    let (first, count) = match variable("SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (variable("SIM_FIRST").unwrap_or(0), variable("SIM_SEEDS").unwrap_or(2000)),
    };
    for seed in first..first + count {
        let data = input(&mut Rng::from_number(seed));
        let run = std::panic::catch_unwind(|| target::sctp_commands(&data));
        assert!(run.is_ok(), "replay with SIM_SEED={seed}");
    }
}
