//! One epoll with a timer and a wake-up inside.
//!
//! *Responsible for* making one descriptor readable whenever anything registered has news.
//! *Deliberately not here*: what the news mean.
//!
//! *Invariants*
//!
//! * Everything is registered edge-triggered, timer and wake-up too: an expiry or a write makes a
//!   new edge whether or not the last one was looked at, so that neither is ever read, and the
//!   epoll stays readable (for a level-triggered watcher) exactly until [`Poller::wait`] has
//!   reported the edge.
//! * A new edge travels upwards through any number of epolls, because the kernel wakes the watchers
//!   of an epoll on every event and not only on the first.

use super::errno;
use super::{Result, errno::check};
use crate::sys::{DATA_TIMER, DATA_WAKE, Fd};
use neater_base::Instant;
use neater_base::net::Ready;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Events taken by one call of [`Poller::wait`].
const EVENTS: usize = 256;
const SOCKET_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET) as u32;
const WRITE_EVENTS: u32 = libc::EPOLLOUT as u32;
const SIGNAL_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLET) as u32;

/// Readiness of many descriptors, a timer and a wake-up behind one descriptor.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    wake: WakeHandle,
    events: Box<[libc::epoll_event]>,
}

/// Wakes a [`Poller`] from any thread.
#[derive(Clone, Debug)]
pub(crate) struct WakeHandle(Arc<OwnedFd>);

impl WakeHandle {
    /// Makes the poller's descriptor readable, with a new edge.
    pub(crate) fn notify(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes. The counter is never read; it would take 2^64 writes to
        // fill it.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

const fn socket_events(writes: bool) -> u32 {
    if writes { SOCKET_EVENTS | WRITE_EVENTS } else { SOCKET_EVENTS }
}

/// Takes the descriptor that a call returned.
pub(super) fn own(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call that returned it made it, and no other code has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Poller {
    /// An epoll with a disarmed timer.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: these calls take numbers and return new descriptors.
        let (epoll, timer, wake) = unsafe {
            (
                own(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                own(libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC))?,
                own(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC))?,
            )
        };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS].into_boxed_slice();
        let poller = Self { epoll, timer, wake: WakeHandle(Arc::new(wake)), events };
        poller.register(poller.timer.as_raw_fd(), DATA_TIMER, SIGNAL_EVENTS).map_err(to_io)?;
        poller.register(poller.wake.0.as_raw_fd(), DATA_WAKE, SIGNAL_EVENTS).map_err(to_io)?;
        Ok(poller)
    }

    /// The descriptor to watch.
    pub(crate) fn fd(&self) -> Fd {
        self.epoll.as_raw_fd()
    }

    /// The descriptor to watch.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// A way to wake this poller.
    pub(crate) fn wake_handle(&self) -> WakeHandle {
        self.wake.clone()
    }

    /// Makes the descriptor readable, with a new edge.
    pub(crate) fn notify(&self) {
        self.wake.notify();
    }

    /// Watches a socket; its events carry `data`. It is unwatched when it is closed. `writes`: it
    /// is watched for room to write, too.
    ///
    /// # Errors
    /// No memory, or the user's limit of watched descriptors.
    #[inline]
    pub(crate) fn add_socket(&self, fd: Fd, data: u64, writes: bool) -> Result<()> {
        self.register(fd, data, socket_events(writes))
    }

    /// Watches a socket that is watched already for room to write, too, or for that no more.
    /// Present readiness makes an edge, whether it was reported before or not.
    ///
    /// # Errors
    /// None is documented for a socket that is watched.
    #[cold]
    pub(crate) fn watch_writes(&self, fd: Fd, data: u64, writes: bool) -> Result<()> {
        let mut event = libc::epoll_event { events: socket_events(writes), u64: data };
        // SAFETY: `event` is a valid event for the duration of the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, &mut event) })?;
        Ok(())
    }

    /// Watches something that only becomes readable.
    ///
    /// # Errors
    /// As [`Poller::add_socket`].
    pub(crate) fn add_signal(&self, fd: Fd, data: u64) -> Result<()> {
        self.register(fd, data, SIGNAL_EVENTS)
    }

    #[inline]
    fn register(&self, fd: Fd, data: u64, events: u32) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: `event` is a valid event for the duration of the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) })?;
        Ok(())
    }

    /// Reports what has happened, without waiting; returns true if the array was full, so that more
    /// may be there. The third argument of `each`: a read may be short although something is left
    /// (the end, an error, the mark of urgent data).
    #[inline]
    pub(crate) fn wait(&mut self, mut each: impl FnMut(u64, Ready, bool)) -> bool {
        let (fd, at) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: `at` points to `EVENTS` events. With a timeout of 0 it does not sleep.
        let n = errno::retry(|| unsafe { libc::epoll_wait(fd, at, EVENTS as libc::c_int, 0) } as isize).unwrap_or(0);
        for event in self.events.iter().take(n) {
            let (bits, data) = (event.events as libc::c_int, event.u64);
            let over = bits & libc::EPOLLHUP != 0;
            let error = bits & libc::EPOLLERR != 0;
            let hangup = over || bits & libc::EPOLLRDHUP != 0;
            each(
                data,
                Ready {
                    // An error or the end is found out by trying.
                    readable: bits & libc::EPOLLIN != 0 || hangup || error,
                    // Not so an error alone: a connection attempt may go on after one.
                    writable: bits & libc::EPOLLOUT != 0 || over,
                    error,
                    hangup,
                },
                hangup || error || bits & libc::EPOLLPRI != 0,
            );
        }
        n == EVENTS
    }

    /// Sets the timer, in place of what it was set to. A time that has passed fires at once.
    pub(crate) fn set_timer(&self, at: Instant) {
        // Zero would disarm it.
        let nanos = at.as_nanos().max(1);
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(nanos / 1_000_000_000).unwrap_or(libc::time_t::MAX),
                tv_nsec: (nanos % 1_000_000_000) as _,
            },
        };
        // SAFETY: `spec` is valid and its nanoseconds are in range; the old value is not asked for.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &spec, core::ptr::null_mut());
        }
    }
}

/// For the constructor, which speaks `io::Error`.
fn to_io(error: neater_base::net::NetError) -> io::Error {
    error.code.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}
