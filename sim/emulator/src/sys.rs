//! The system calls that the standard library has no words for, each in one small function.

use super::error::{LiveError, Result, last};
use neater_base::Instant;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The kernel's monotonic clock, which packet timers and this process share.
#[must_use]
pub fn now() -> Instant {
    clock(libc::CLOCK_MONOTONIC)
}

/// Sleeps until a time of [`now`]'s clock, or until a signal.
///
/// Unlike a wait with a time limit, this sets one timer and does not take it back, which halves what it costs.
pub(crate) fn sleep_until(at: Instant) {
    let ns = at.as_nanos();
    let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as _ };
    // SAFETY: the time lives during the call; the null pointer says that nobody wants to know what was left.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut()) };
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(clock(libc::CLOCK_THREAD_CPUTIME_ID).as_nanos())
}

fn clock(id: libc::clockid_t) -> Instant {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec. These clocks exist in every Linux.
    unsafe { libc::clock_gettime(id, &mut t) };
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Takes over a descriptor that a system call returned.
pub(crate) fn owned(what: &str, fd: libc::c_long) -> Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: a non-negative result is a new descriptor that nobody else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => last(what),
    }
}

/// A datagram socket in the namespace of the calling thread, for ioctls about its interfaces.
pub(crate) fn datagram_socket() -> Result<OwnedFd> {
    // SAFETY: socket takes numbers and returns a new descriptor or -1.
    owned("socket", unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())
}

/// Moves the calling thread into a namespace. For `CLONE_NEWPID` this concerns the processes that it starts from now on.
pub(crate) fn setns(fd: &OwnedFd, kind: libc::c_int) -> Result<()> {
    // SAFETY: the descriptor is open; no memory is passed.
    if unsafe { libc::setns(fd.as_raw_fd(), kind) } == 0 { Ok(()) } else { last("setns") }
}

/// Gives the calling thread namespaces of its own.
pub(crate) fn unshare(kind: libc::c_int) -> Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::unshare(kind) } == 0 { Ok(()) } else { last("unshare") }
}

/// Runs `f` on a thread of its own, which may therefore change its namespaces.
pub(crate) fn on_thread<R: Send>(f: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    std::thread::scope(|scope| {
        scope.spawn(f).join().unwrap_or_else(|_| Err(LiveError::Failed("a helper thread panicked".into())))
    })
}

/// A pidfd, which becomes readable when the process has ended.
pub(crate) fn pidfd(pid: libc::pid_t) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes a number and flags.
    owned("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// Waits until a descriptor is readable; false when `limit` is over.
pub(crate) fn readable(fd: &OwnedFd, limit: Duration) -> bool {
    let end = std::time::Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let ms = libc::c_int::try_from(left.as_millis().saturating_add(1)).unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd is passed with the count 1.
        match unsafe { libc::poll(&mut poll, 1, ms) } {
            n if n > 0 => return true,
            0 => return false,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            _ => return false,
        }
    }
}

/// Sends a signal to a process, or to a group when `pid` is negative. An error means that nobody is there.
pub fn kill(pid: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// What the calling thread was granted against being late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Precedence {
    /// It runs before everything that is not real-time (`SCHED_FIFO`).
    pub real_time: bool,
    /// Its memory stays in memory (`mlockall`).
    pub locked_memory: bool,
}

/// Asks for real-time scheduling of the calling thread, for exact timers, and for the process's memory to stay.
pub(crate) fn take_precedence() -> Precedence {
    let parameters = libc::sched_param { sched_priority: 20 };
    // SAFETY: 0 is the calling thread; the pointer is to a live structure. The other calls pass no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        let real_time = libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) == 0;
        if !real_time {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
        Precedence { real_time, locked_memory: lock_memory() }
    }
}

/// How many have asked for the process's memory to stay: it is one lock for all of them.
static LOCKED: Mutex<usize> = Mutex::new(0);

/// Keeps the process's memory in memory until as many have let it go.
fn lock_memory() -> bool {
    let mut holders = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    *holders += 1;
    // SAFETY: numbers only.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) == 0 }
}

/// Lets the process's memory go again, when nobody else wants it to stay. To be called once for each [`take_precedence`].
pub(crate) fn unlock_memory() {
    let mut holders = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    *holders = holders.saturating_sub(1);
    if *holders == 0 {
        // SAFETY: no memory is passed.
        unsafe { libc::munlockall() };
    }
}

/// Reads into a buffer; `Ok(0)` when there is nothing at the moment.
pub(crate) fn read(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live buffer.
    let n = unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) };
    match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => match io::Error::last_os_error() {
            e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            e => Err(e),
        },
    }
}

/// Writes a buffer in one call.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live buffer.
    let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of this process that is locked, in KiB.
    fn locked() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let line = text.lines().find_map(|l| l.strip_prefix("VmLck:")).expect("a line");
        line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
    }

    #[test]
    fn memory_stays_until_the_last_has_let_it_go() {
        if !lock_memory() {
            println!("SKIP: memory cannot be locked here");
            return unlock_memory();
        }
        assert!(lock_memory());
        unlock_memory();
        assert!(locked() > 0, "one has let it go, and the other has not");
        unlock_memory();
    }
}
