//! The clocks. All of them are read through the vDSO, without entering the kernel.

use core::time::Duration;
use neater_base::{Instant, WallTime};

/// Seconds and nanoseconds, neither of which is negative.
#[inline]
fn read(clock: libc::clockid_t) -> (u64, u32) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call fails only for an unknown clock, and
    // then leaves zero.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64, time.tv_nsec as u32)
}

#[inline]
fn instant(clock: libc::clockid_t) -> Instant {
    let (secs, nanos) = read(clock);
    Instant::from_nanos(secs.wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanos)))
}

/// Monotonic time that goes on while the machine sleeps.
#[inline]
pub(crate) fn boot_time() -> Instant {
    instant(libc::CLOCK_BOOTTIME)
}

/// Monotonic time that stands still while the machine sleeps.
pub(crate) fn awake_time() -> Instant {
    instant(libc::CLOCK_MONOTONIC)
}

/// Wall-clock time.
pub(crate) fn wall_time() -> WallTime {
    let (secs, nanos) = read(libc::CLOCK_REALTIME);
    WallTime(Duration::new(secs, nanos))
}
