//! Drives a target with random and mutated inputs for a bounded time.
//!
//! [`Mutator`] makes the inputs and is a function of its seed. [`run_for`] plays them in a thread of its own, so that an input
//! on which a target hangs is found and not waited for.

use crate::Target;
use neater_base::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest input, in bytes: larger than a datagram that is not a jumbogram needs for most structures to repeat.
pub const LONGEST: usize = 4096;
/// How many inputs are kept to mutate further.
pub const POOL: usize = 256;
/// An input that takes longer is a failure. Generous, because this also runs unoptimised on small and busy machines.
pub const HANG: Duration = Duration::from_secs(10);

/// Numbers at which lengths and counters break.
const EDGES: &[u32] =
    &[0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
/// Bytes that mean something in some syntax.
const TOKENS: &[&[u8]] = &[
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"#",
    b":",
    b"::",
    b".",
    b"..",
    b"/",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"=",
    b"\0",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"65536",
    b"127.0.0.1",
    b"fe80::1%eth0",
    b"nameserver ",
    b"search ",
    b"options ",
    b"example.com",
    b"xn--",
    b"\xc0\x0c",
    b"\xff\xff",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
];

/// Makes inputs: fresh ones, and old ones with a few changes.
#[derive(Debug)]
pub struct Mutator {
    rng: Rng,
    pool: Vec<Vec<u8>>,
    given: u64,
    first: usize,
}

impl Mutator {
    /// A mutator that is a function of `seed` and of the inputs it starts from. The latter come out first, unchanged.
    #[must_use]
    pub fn new(seed: u64, seeds: &[&[u8]]) -> Self {
        let pool: Vec<Vec<u8>> = seeds.iter().take(POOL).map(|s| s[..s.len().min(LONGEST)].to_vec()).collect();
        Self { rng: Rng::from_number(seed), first: pool.len(), pool, given: 0 }
    }

    /// The next input, at most [`LONGEST`] bytes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let turn = self.given;
        self.given += 1;
        if let Some(seed) = usize::try_from(turn).ok().filter(|t| *t < self.first).and_then(|t| self.pool.get(t)) {
            return seed.clone();
        }
        let mut input = if self.pool.is_empty() || self.rng.chance(0.1) { self.fresh() } else { self.pick() };
        for _ in 0..1 + self.rng.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        if self.pool.len() < POOL {
            self.pool.push(input.clone());
        } else if self.rng.chance(0.05) {
            // The inputs it started from stay: mutation without coverage drifts into noise.
            let slot = self.first + self.below(POOL - self.first);
            if let Some(old) = self.pool.get_mut(slot) {
                old.clone_from(&input);
            }
        }
        input
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap_or(0)
    }

    fn fresh(&mut self) -> Vec<u8> {
        // Short ones often, long ones sometimes.
        let longest = [8, 64, 512, LONGEST][self.below(4)];
        let mut input = vec![0; self.below(longest + 1)];
        self.rng.fill(&mut input);
        input
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.below(self.pool.len());
        self.pool.get(at).cloned().unwrap_or_default()
    }

    /// A range of at most 64 bytes within `len`.
    fn range(&mut self, len: usize) -> core::ops::Range<usize> {
        let start = self.below(len + 1);
        start..start + self.below((len - start).min(64) + 1)
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.rng.below(9) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.rng.u32() & 7);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.rng.u32() as u8;
                }
            }
            2 => {
                let edge = EDGES[self.below(EDGES.len())].to_be_bytes();
                let wide = &edge[[0, 2, 3][self.below(3)]..];
                for (byte, new) in input.iter_mut().skip(at).zip(wide) {
                    *byte = *new;
                }
            }
            3 => {
                let range = self.range(input.len());
                input.drain(range);
            }
            4 => {
                let piece = input[self.range(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            5 => {
                let other = self.pick();
                let piece = other[self.range(other.len())].to_vec();
                input.splice(at..at, piece);
            }
            6 => {
                let token = TOKENS[self.below(TOKENS.len())].iter().copied();
                input.splice(at..at, token);
            }
            7 => input.truncate(at),
            _ => {
                let mut piece = vec![0; 1 + self.below(8)];
                self.rng.fill(&mut piece);
                input.splice(at..at, piece);
            }
        }
    }
}

/// An input on which a target failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The target's name.
    pub target: &'static str,
    /// The input; [`crate::run`] with it fails again.
    pub input: Vec<u8>,
    /// The panic's message, or that it hung.
    pub why: String,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {} on {} bytes: {}", self.target, self.why, self.input.len(), self.input.escape_ascii())
    }
}

impl std::error::Error for Failure {}

/// Drives `target` for about `time` with inputs made from `seed`, and returns how many it took. The inputs it starts from
/// are played even if `time` is zero.
///
/// # Errors
/// The first input on which the target panicked, or took longer than `hang`. In the latter case its thread is left behind.
pub fn run_for(target: &'static Target, seed: u64, time: Duration, hang: Duration) -> Result<u64, Failure> {
    let current = Arc::new(Mutex::new((0u64, Vec::new())));
    let (done, wait) = channel();
    let worker = {
        let current = Arc::clone(&current);
        move || {
            let mut mutator = Mutator::new(seed, target.seeds);
            let end = Instant::now() + time;
            let mut count = 0;
            while count < target.seeds.len() as u64 || Instant::now() < end {
                let input = mutator.next_input();
                count += 1;
                *current.lock().unwrap_or_else(PoisonError::into_inner) = (count, input.clone());
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
                    let why = format!("panicked ({})", message(panic.as_ref()));
                    return drop(done.send(Err(Failure { target: target.name, input, why })));
                }
            }
            drop(done.send(Ok(count)));
        }
    };
    std::thread::spawn(worker);
    let mut last = 0;
    loop {
        // An input is hung when one whole period passes and it is still the same.
        match wait.recv_timeout(hang) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure { target: target.name, input: Vec::new(), why: "the driver itself failed".into() });
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if now.0 == last {
                    let why = format!("took longer than {} s", hang.as_secs_f32());
                    return Err(Failure { target: target.name, input: now.1, why });
                }
                last = now.0;
            }
        }
    }
}

fn message(panic: &(dyn core::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
