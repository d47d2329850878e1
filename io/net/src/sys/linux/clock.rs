//! The clocks. All of them are read through the vDSO, without entering the kernel.

use core::time::Duration;
use neater_base::{Instant, WallTime};

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call fails only for an unknown clock, and then leaves zero.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Monotonic time that goes on while the machine sleeps.
pub(crate) fn boot_time() -> Instant {
    Instant::ZERO + read(libc::CLOCK_BOOTTIME)
}

/// Monotonic time that stands still while the machine sleeps.
pub(crate) fn awake_time() -> Instant {
    Instant::ZERO + read(libc::CLOCK_MONOTONIC)
}

/// Wall-clock time.
pub(crate) fn wall_time() -> WallTime {
    WallTime(read(libc::CLOCK_REALTIME))
}
