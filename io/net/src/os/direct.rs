//! [`DirectState`]s: the bytes of one TCP connection past the owner of the [`super::OsNet`], and
//! past its lock.
//!
//! *Responsible for* reads and writes from any thread while the direct stream is open, and for no
//! use of a descriptor that has been closed. *Deliberately not here*: when a direct stream is open,
//! which its owner decides.
//!
//! *Invariants*
//!
//! * Between [`DirectState::close`] and [`DirectState::open`] no call on the descriptor is under
//!   way or begins: `close` waits for the one that is. The descriptor is non-blocking, so that this
//!   does not take long; a direct stream's own calls never wait.
//! * The system's result of a call on the direct stream (that nothing can be written now, why the
//!   connection is gone) is returned to the owner by its next call and not lost: the system reports
//!   some of it only once.

use crate::sys::{self, Fd, ForkGuard};
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use neater_base::net::{self, NetError};
use std::sync::{Arc, Mutex, PoisonError};

/// Free for use.
const OPEN: u32 = 0;
/// In use.
const BUSY: u32 = OPEN + IN_USE;
/// Not to be used.
const CLOSED: u32 = 2;
/// Not to be used until more is reported, although its owner has not closed it.
const DRY: u32 = 4;
/// In use, and closed afterwards by its user, because another thread waits for that.
const LAST: u32 = CLOSED + IN_USE;
/// What a use is, so that one step ends it whatever comes after it.
const IN_USE: u32 = 1;

/// One direction.
#[derive(Debug)]
struct Side {
    state: AtomicU32,
    /// How often the poller has reported the direction.
    reports: AtomicU32,
    /// A read that is short may leave something behind.
    wary: AtomicBool,
    bytes: AtomicU64,
    /// That nothing could be done, if its owner has not been notified: [`BLOCKED`], and the reports
    /// when the system was asked.
    blocked: AtomicU64,
    /// There is something in `said`.
    failed: AtomicBool,
    /// Why the connection is gone, if its owner has not been notified.
    said: Mutex<Option<NetError>>,
}

/// In [`Side::blocked`]; the low half are the reports.
const BLOCKED: u64 = 1 << 32;

impl Side {
    const fn new(wary: bool) -> Self {
        Self {
            state: AtomicU32::new(CLOSED),
            reports: AtomicU32::new(0),
            wary: AtomicBool::new(wary),
            bytes: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            said: Mutex::new(None),
        }
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Option<NetError>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a use of the direction, if it is open.
    #[inline(always)]
    fn begin(&self) -> bool {
        self.state.compare_exchange(OPEN, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What has been reported, to be asked before the system is.
    #[inline(always)]
    fn reports(&self) -> u32 {
        self.reports.load(Ordering::Acquire)
    }

    /// Ends a use of the direction in which the system returned `n`. If it moved less than `room`,
    /// nothing is left. Small on purpose, as everything is that a use passes by when there is
    /// nothing the matter.
    #[inline(always)]
    fn end(&self, n: isize, room: usize, reports: u32) -> Option<NonZeroUsize> {
        if n <= 0 {
            return self.not_at_once(n, room, reports);
        }
        // Only this thread writes it while the direction is busy.
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + n.unsigned_abs() as u64, Ordering::Relaxed);
        if n.unsigned_abs() < room && !self.wary.load(Ordering::Relaxed) {
            // Nothing passes until more is reported, as [`super::OsNet`] has it.
            self.stop_blocked(reports);
        } else {
            self.state.fetch_sub(IN_USE, Ordering::Release);
        }
        NonZeroUsize::new(n.unsigned_abs())
    }

    /// The direction carries nothing until more is reported than so much.
    #[inline]
    fn stop_blocked(&self, reports: u32) {
        self.blocked.store(BLOCKED | u64::from(reports), Ordering::Relaxed);
        // Another thread may be waiting to close it, and finds it closed then.
        let dry = self.state.compare_exchange(BUSY, DRY, Ordering::Release, Ordering::Relaxed);
        if dry.is_err() {
            self.state.store(CLOSED, Ordering::Release);
        }
    }

    /// See [`net::DirectStream::is_dry`].
    #[inline]
    fn is_dry(&self) -> bool {
        self.state.load(Ordering::Acquire) == DRY && self.is_still(self.blocked.load(Ordering::Relaxed))
    }

    /// Whether nothing has been reported since nothing could be done.
    #[inline]
    fn is_still(&self, blocked: u64) -> bool {
        blocked == BLOCKED | u64::from(self.reports.load(Ordering::Relaxed))
    }

    /// The call moved nothing. If it was only interrupted, the owner makes it again: what that
    /// would need is not kept for each byte.
    #[cold]
    #[inline(never)]
    fn not_at_once(&self, n: isize, room: usize, reports: u32) -> Option<NonZeroUsize> {
        match sys::told(n, || 0) {
            // Nothing was asked for, which is no evidence about the direction.
            Ok(0) if room == 0 => drop(self.state.fetch_sub(IN_USE, Ordering::Release)),
            Err(e) if e.is_would_block() => self.stop_blocked(reports),
            result => self.stop(result.err()),
        }
        None
    }

    /// The direction carries nothing any more. Without an error (the end of a stream, a child of
    /// `fork`) its owner finds out again.
    #[cold]
    fn stop(&self, error: Option<NetError>) {
        if error.is_some() {
            *self.said() = error;
            self.failed.store(true, Ordering::Release);
        }
        self.state.store(CLOSED, Ordering::Release);
    }

    fn open(&self) {
        // What would only find once more that nothing can be done waits for the report.
        let to = if self.is_still(self.blocked.load(Ordering::Relaxed)) { DRY } else { OPEN };
        // A direction that is in use already is open.
        let open = |from| self.state.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
        let _ = open(DRY).or_else(|_| open(CLOSED));
    }

    fn close(&self, guard: &ForkGuard) {
        let mut rounds = 0_u32;
        loop {
            match self.state.compare_exchange(OPEN, CLOSED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) | Err(CLOSED) => return,
                Err(DRY) => drop(self.state.compare_exchange(DRY, CLOSED, Ordering::Relaxed, Ordering::Relaxed)),
                Err(_) => drop(self.state.compare_exchange(BUSY, LAST, Ordering::Relaxed, Ordering::Relaxed)),
            }
            // The thread that uses it does not exist in a child.
            if guard.forked() {
                return;
            }
            rounds += 1;
            if rounds < 64 { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    /// The result that the owner has not got; that nothing can be done now is returned only as long
    /// as it is true.
    fn take_said(&self) -> Option<NetError> {
        if self.failed.swap(false, Ordering::Acquire) {
            return self.said().take();
        }
        let blocked = self.blocked.swap(0, Ordering::Relaxed);
        self.is_still(blocked).then_some(NetError::new(net::ErrorKind::WouldBlock))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct DirectState {
    fd: Fd,
    guard: ForkGuard,
    write: Side,
    read: Side,
}

impl DirectState {
    pub(crate) fn new(fd: Fd, guard: ForkGuard, wary: bool) -> Self {
        Self { fd, guard, write: Side::new(false), read: Side::new(wary) }
    }

    /// The poller has reported the socket; `wary`: from now on a read may be short although
    /// something is left.
    pub(crate) fn reported(&self, readable: bool, writable: bool, wary: bool) {
        if wary {
            // Before the report: a thread that has seen that sees this.
            self.read.wary.store(true, Ordering::Relaxed);
        }
        for (side, ready) in [(&self.read, readable), (&self.write, writable)] {
            if ready {
                side.reports.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The result of a write on the direct stream that its owner has not got.
    pub(crate) fn take_write_error(&self) -> Option<NetError> {
        self.write.take_said()
    }

    /// The result of a read on the direct stream that its owner has not got.
    pub(crate) fn take_read_error(&self) -> Option<NetError> {
        self.read.take_said()
    }
}

impl DirectState {
    pub(crate) fn close(&self) {
        self.write.close(&self.guard);
        self.read.close(&self.guard);
    }

    /// A write that has begun where it takes longer to know which process this is.
    #[cold]
    #[inline(never)]
    fn write_slowly(&self, buf: &[u8], reports: u32) -> Option<NonZeroUsize> {
        if self.guard.forked() {
            self.write.stop(None);
            return None;
        }
        self.write.end(sys::tcp_write_once(self.fd, buf), buf.len(), reports)
    }

    /// As [`DirectState::write_slowly`].
    #[cold]
    #[inline(never)]
    fn read_slowly(&self, buf: &mut [u8], reports: u32) -> Option<NonZeroUsize> {
        if self.guard.forked() {
            self.read.stop(None);
            return None;
        }
        let room = buf.len();
        self.read.end(sys::tcp_read_once(self.fd, buf), room, reports)
    }
}

/// The bytes of one TCP connection of an [`super::OsNet`] without it, from any thread: what
/// [`net::Net::direct_stream`] returns there.
///
/// Reading and writing work as in the trait, and are here for callers that have found this type by
/// `Any`: they are compiled into the caller's own loop, where nothing has to be kept and brought
/// back for each piece.
#[derive(Debug)]
pub struct OsDirectStream(pub(crate) Arc<DirectState>);

impl OsDirectStream {
    /// As [`net::DirectStream::write`].
    #[inline(always)]
    pub fn write(&self, buf: &[u8]) -> Option<NonZeroUsize> {
        // By epoll(7), on a stream a write of less than was asked for has used up the room, and a
        // read likewise. The owner, notified by the next call, watches for more.
        let direct = &*self.0;
        if !direct.write.begin() {
            return None;
        }
        let reports = direct.write.reports();
        if direct.guard.unsure() {
            return direct.write_slowly(buf, reports);
        }
        direct.write.end(sys::tcp_write_once(direct.fd, buf), buf.len(), reports)
    }

    /// As [`net::DirectStream::read`].
    #[inline(always)]
    pub fn read(&self, buf: &mut [u8]) -> Option<NonZeroUsize> {
        let (direct, room) = (&*self.0, buf.len());
        if !direct.read.begin() {
            return None;
        }
        let reports = direct.read.reports();
        if direct.guard.unsure() {
            return direct.read_slowly(buf, reports);
        }
        direct.read.end(sys::tcp_read_once(direct.fd, buf), room, reports)
    }

    /// As [`net::DirectStream::is_dry`].
    #[inline]
    #[must_use]
    pub fn is_dry(&self) -> bool {
        !self.0.guard.unsure() && self.0.read.is_dry()
    }
}

impl net::DirectStream for OsDirectStream {
    fn write(&self, buf: &[u8]) -> Option<NonZeroUsize> {
        self.write(buf)
    }

    fn read(&self, buf: &mut [u8]) -> Option<NonZeroUsize> {
        self.read(buf)
    }

    fn is_dry(&self) -> bool {
        self.is_dry()
    }

    fn open(&self, write: bool, read: bool) {
        if write {
            self.0.write.open();
        }
        if read {
            self.0.read.open();
        }
    }

    fn close(&self) {
        self.0.close();
    }

    fn bytes(&self) -> (u64, u64) {
        (self.0.write.bytes.load(Ordering::Relaxed), self.0.read.bytes.load(Ordering::Relaxed))
    }
}
