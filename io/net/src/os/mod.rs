//! [`OsNet`]: the sockets of this host as a [`Net`](neater_base::net::Net).
//!
//! *Responsible for* handles, tokens, readiness, the deadline and the wake-up; for checking every
//! argument before it reaches the system. *Deliberately not here*: system calls (`sys`) and
//! decisions (the engine).
//!
//! *Invariants*
//!
//! * An event is reported only for the socket it belongs to, while that is open: the poller carries
//!   handles, not tokens.
//! * The timer inside the poller is set whenever there is a deadline, and never later than the
//!   deadline. It is not moved to a later one: flows that come and go before their deadline cost no
//!   system call, and one early wake-up does.
//! * After `fork` nothing that is shared with the parent is touched.

mod direct;
mod fresh;
mod locals;
mod names;
mod net;
mod paths;
mod resume;
mod routers;
mod slots;
#[cfg(all(test, target_os = "linux", not(feature = "shell")))]
mod tests;
mod waker;

pub use direct::OsDirectStream;
pub use routers::{MAX_MESSAGE, Neighbour, Role, RouterDiscovery};
pub use waker::Waker;

use crate::sys::{self, Fd, ForkGuard, Poller, UdpSupport};
use direct::DirectState;
use fresh::Fresh;
use locals::Locals;
use names::Names;
use neater_base::Instant;
use neater_base::net::{ErrorKind, NetError, NetEvent, Ready, Sock, Token};
use paths::Paths;
use resume::ResumeWatch;
use slots::{Datagrams, Kind, Slots, Writes};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

type Result<T> = core::result::Result<T, NetError>;

/// Where an [`OsNet`] finds what is not in the system itself. Nothing else, no environment
/// variable, changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsNetOptions {
    /// The resolver's configuration.
    pub resolv_conf: PathBuf,
    /// The hosts file.
    pub hosts: PathBuf,
}

impl Default for OsNetOptions {
    fn default() -> Self {
        Self { resolv_conf: PathBuf::from(sys::RESOLV_CONF), hosts: PathBuf::from(sys::HOSTS) }
    }
}

/// The sockets of this host as a [`neater_base::net::Net`], behind one descriptor.
///
/// The descriptor is readable whenever `poll` has something to report or the armed deadline has
/// come; watch it level-triggered, edge-triggered or one-shot, directly or inside further epolls. A
/// turn of a driver is: `poll`, act on the events, `arm` with the next deadline (and `again` if
/// `poll` returned true or work was left over).
///
/// It is `Send`: one thread at a time uses it, others use its [`Waker`].
pub struct OsNet {
    guard: ForkGuard,
    poller: Poller,
    waker: Waker,
    slots: Slots,
    datagrams: Datagrams,
    locals: Locals,
    fresh: Fresh,
    /// By descriptor.
    directs: Vec<Option<Arc<DirectState>>>,
    udp: Option<UdpSupport>,
    paths: Paths,
    names: Names,
    resume: ResumeWatch,
    /// What the driver asked for.
    deadline: Option<Instant>,
    /// What the timer is set to, if it has not been seen to fire.
    armed: Option<Armed>,
    /// Sockets, and what they are watched with, that were reported only because they may be
    /// written. Empty between turns.
    idle_writes: Vec<(Fd, u64)>,
    /// Why the last read that failed did.
    not_read: NetError,
    /// `arm` has made an edge for work left over since the last `poll`.
    again: bool,
    /// The fork was reported to the child.
    told_forked: bool,
}

/// Readiness that makes the owner of a socket try everything.
const EVERYTHING: Ready = Ready { readable: true, writable: true, error: true, hangup: true };

#[derive(Clone, Copy, Debug)]
struct Armed {
    at: Instant,
    /// It lay ahead when it was set, so that finding it long past is evidence of a gap.
    ahead: bool,
}

impl OsNet {
    /// A `Net` with the system's name files.
    ///
    /// # Errors
    /// When the process has no descriptor or memory left; `Unsupported` on the shell platform.
    pub fn new() -> io::Result<Self> {
        Self::with_options(OsNetOptions::default())
    }

    /// A `Net` with name files of the caller's choice.
    ///
    /// # Errors
    /// As [`OsNet::new`].
    pub fn with_options(options: OsNetOptions) -> io::Result<Self> {
        let (guard, poller) = (ForkGuard::new()?, Poller::new()?);
        let waker = Waker::new(poller.wake_handle(), guard.clone());
        Ok(Self {
            guard,
            poller,
            waker,
            slots: Slots::default(),
            datagrams: Datagrams::default(),
            locals: Locals::default(),
            fresh: Fresh::default(),
            directs: Vec::new(),
            udp: None,
            paths: Paths::default(),
            names: Names::new(options.resolv_conf, options.hosts),
            resume: ResumeWatch::new(sys::boot_time(), sys::awake_time()),
            deadline: None,
            armed: None,
            idle_writes: Vec::new(),
            not_read: NetError::new(ErrorKind::WouldBlock),
            again: false,
            told_forked: false,
        })
    }

    /// A handle by which other threads make the descriptor readable.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// When `poll` wants to be called at the latest, for callers that watch time themselves;
    /// `None`: when the descriptor is readable.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.deadline, self.paths.due(), self.names.due(), self.fresh.due()].into_iter().flatten().min()
    }

    /// [`OsNet::next_deadline`] as poll(2) wants it: milliseconds from now, rounded up; 0 when it
    /// has come; -1 for never.
    #[must_use]
    pub fn timeout_ms(&self) -> i32 {
        match self.next_deadline() {
            None | Some(Instant::FAR_FUTURE) => -1,
            Some(at) => i32::try_from((at - sys::boot_time()).as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        }
    }

    /// Whether this process is a child of the one that made it: then every operation fails with
    /// `Forked`.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.guard.forked()
    }

    /// Every operation begins here.
    #[inline]
    fn alive(&self) -> Result<()> {
        if self.guard.forked() { Err(NetError::new(ErrorKind::Forked)) } else { Ok(()) }
    }

    /// A socket that is a stream, a listener or a datagram socket, as the operation wants.
    #[inline]
    fn stream(&self, sock: Sock) -> Result<Fd> {
        self.alive()?;
        match self.slots.get(sock)? {
            (fd, slot) if slot.kind.is_stream() => Ok(fd),
            _ => Err(NetError::new(ErrorKind::InvalidInput)),
        }
    }

    /// Takes in a new descriptor; closes it if it cannot be watched.
    #[inline(always)]
    fn adopt(&mut self, fd: Fd, token: Token, kind: Kind, v6: bool) -> Result<Sock> {
        let sock = self.slots.predict(fd);
        if let Err(error) = self.poller.add_socket(fd, sock.0, true) {
            sys::close(fd);
            return Err(error);
        }
        Ok(self.slots.insert(fd, token, kind, v6))
    }

    /// Forgets a socket and returns its descriptor, to be closed.
    #[inline]
    fn release(&mut self, sock: Sock) -> Option<Fd> {
        let (fd, slot) = self.slots.remove(sock)?;
        match slot.kind {
            Kind::Datagram(index) => self.datagrams.remove(index),
            Kind::Direct => self.close_direct(fd),
            _ => {}
        }
        Some(fd)
    }

    fn direct_of(&self, fd: Fd) -> Option<&Arc<DirectState>> {
        self.directs.get(fd as usize)?.as_ref()
    }

    /// The direct stream that leads to a connected stream, made if there is none.
    fn make_direct(&mut self, sock: Sock) -> Option<Arc<DirectState>> {
        self.alive().ok()?;
        let (fd, slot) = self.slots.get_mut(sock).ok()?;
        match slot.kind {
            Kind::Direct => self.direct_of(fd).cloned(),
            Kind::Stream => {
                // Others know nothing of the poller.
                fresh::tell(&self.poller, fd, sock, slot).ok()?;
                slot.kind = Kind::Direct;
                let index = fd as usize;
                if index >= self.directs.len() {
                    self.directs.resize((index | 63) + 1, None);
                }
                let direct = DirectState::new(fd, self.guard.clone(), slot.wary);
                Some(self.directs[index].insert(Arc::new(direct)).clone())
            }
            _ => None,
        }
    }

    /// The descriptor is about to be closed: it is not used from here on.
    #[cold]
    fn close_direct(&mut self, fd: Fd) {
        if let Some(direct) = self.directs.get_mut(fd as usize).and_then(Option::take) {
            direct.close();
        }
    }

    /// As [`OsNet::stream`] for bytes, where a direct stream may hold a result that its owner has
    /// to get.
    #[cold]
    #[inline(never)]
    fn with_direct(&self, sock: Sock, said: fn(&DirectState) -> Option<NetError>) -> Result<Fd> {
        let fd = self.stream(sock)?;
        match self.direct_of(fd).and_then(|direct| said(direct)) {
            Some(error) => Err(error),
            None => Ok(fd),
        }
    }

    /// Takes in a stream that has been accepted. It is mostly read first, and takes what is
    /// written.
    #[inline]
    fn adopt_accepted(&mut self, fd: Fd, token: Token, v6: bool) -> Result<Sock> {
        let sock = self.slots.insert(fd, token, Kind::Stream, v6);
        let Some(due) = self.fresh.push(sock) else {
            let told = self.tell_fresh(sock);
            if told.is_err()
                && let Some(fd) = self.release(sock)
            {
                sys::close(fd);
            }
            return told.map(|()| sock);
        };
        self.set_timer(Some(due));
        Ok(sock)
    }

    /// Sees to it that what comes on a socket is reported.
    #[cold]
    fn tell_fresh(&mut self, sock: Sock) -> Result<()> {
        let (fd, slot) = self.slots.get_mut(sock)?;
        fresh::tell(&self.poller, fd, sock, slot)
    }

    /// Watches what was reported for nothing as long as no caller waits for it.
    #[cold]
    fn unwatch_writes(&mut self) {
        for (fd, sock) in self.idle_writes.drain(..) {
            if self.poller.watch_writes(fd, sock, false).is_err()
                && let Ok((_, slot)) = self.slots.get_mut(Sock(sock))
            {
                slot.writes = Writes::Watched;
            }
        }
    }

    /// A write has to wait: the writer is notified when there is room.
    #[cold]
    fn await_writes(&mut self, sock: Sock) -> Result<()> {
        let (fd, slot) = self.slots.get_mut(sock)?;
        match slot.writes {
            Writes::Untold => self.poller.add_socket(fd, sock.0, true)?,
            Writes::Unwatched => self.poller.watch_writes(fd, sock.0, true)?,
            Writes::Watched | Writes::Awaited => {}
        }
        slot.writes = Writes::Awaited;
        Ok(())
    }

    /// A stream that has no direct stream, and room as far as is known.
    #[inline]
    fn plain(&self, sock: Sock) -> Option<Fd> {
        match self.slots.get(sock) {
            Ok((fd, slot)) if slot.kind == Kind::Stream && slot.writes != Writes::Awaited && !self.guard.forked() => {
                Some(fd)
            }
            _ => None,
        }
    }

    /// Sets the timer if it is not already set to that time or an earlier one.
    fn set_timer(&mut self, at: Option<Instant>) {
        let Some(at) = at.filter(|at| *at != Instant::FAR_FUTURE) else { return };
        if self.armed.is_none_or(|armed| at < armed.at) {
            self.armed = Some(Armed { at, ahead: at > sys::boot_time() });
            self.poller.set_timer(at);
        }
    }

    /// One turn of [`neater_base::net::Net::poll`].
    fn turn(&mut self, events: &mut Vec<NetEvent>) -> bool {
        if self.guard.forked() {
            self.tell_forked(events);
            return false;
        }
        self.again = false;
        let (slots, directs, idle) = (&mut self.slots, &self.directs, &mut self.idle_writes);
        let (mut fired, mut woken, mut paths, mut names) = (false, false, false, false);
        let start = events.len();
        let full = self.poller.wait(|data, ready, wary| match data {
            sys::DATA_TIMER => fired = true,
            sys::DATA_WAKE => woken = true,
            sys::DATA_PATHS => paths = true,
            sys::DATA_NAMES => names = true,
            sock => {
                let Ok((fd, slot)) = slots.get_mut(Sock(sock)) else { return };
                (slot.drained, slot.wary) = (false, slot.wary | wary);
                if slot.kind == Kind::Connecting && ready.writable {
                    // A stream that may be written and has no error is connected, and the system
                    // need not be asked: one that still connects is not writable, and one that
                    // failed reports error and hang-up with it.
                    slot.kind = if ready.error || ready.hangup { Kind::Settled } else { Kind::Stream };
                } else if slot.kind == Kind::Direct
                    && let Some(Some(direct)) = directs.get(fd as usize)
                {
                    let over = ready.error || ready.hangup;
                    direct.reported(ready.readable || over, ready.writable || over, slot.wary);
                }
                // A waiter for room finds out by writing what an error means.
                if ready.writable || ready.error {
                    let only = !ready.readable && !wary;
                    slot.writes = match slot.writes {
                        Writes::Watched if only && matches!(slot.kind, Kind::Stream | Kind::Direct) => {
                            // Nothing waits for it, and there is nothing else: a wake-up for
                            // nothing, and the last of its kind.
                            idle.push((fd, sock));
                            Writes::Unwatched
                        }
                        Writes::Untold | Writes::Unwatched => slot.writes,
                        Writes::Watched | Writes::Awaited => Writes::Watched,
                    };
                }
                events.push(NetEvent::Ready { token: slot.token, ready });
            }
        });
        if !self.idle_writes.is_empty() {
            self.unwatch_writes();
        }
        if woken {
            self.waker.taken();
        }
        let missed = self.armed.filter(|armed| fired && armed.ahead).map(|armed| armed.at);
        if fired {
            self.armed = None;
        }
        let now = sys::boot_time();
        if let Some(gap) = self.resume.observe(now, sys::awake_time, missed) {
            // It determines how to understand what follows.
            events.insert(start, NetEvent::Resumed { gap });
        }
        if paths {
            self.paths.notice(now);
        }
        if names {
            self.names.notice(now);
        }
        if self.paths.due().is_some() && self.paths.settle(now) {
            events.push(NetEvent::PathsChanged);
        }
        if self.names.due().is_some() && self.names.settle(now) {
            events.push(NetEvent::NamesChanged);
        }
        self.fresh.turned(now);
        while let Some(sock) = self.fresh.next_due(now) {
            let Ok((fd, slot)) = self.slots.get_mut(sock) else { continue };
            if fresh::tell(&self.poller, fd, sock, slot).is_err() {
                // Its owner tries, and learns why.
                events.push(NetEvent::Ready { token: slot.token, ready: EVERYTHING });
            }
        }
        if fired || paths || names {
            // A deadline that has come has made its edge; the driver sets the next one with `arm`.
            let ahead = self.deadline.filter(|at| *at > now);
            self.set_timer([ahead, self.paths.due(), self.names.due(), self.fresh.due()].into_iter().flatten().min());
        }
        full
    }

    /// The poller is the parent's. Each socket is reported once, so that its owner tries and learns
    /// why.
    fn tell_forked(&mut self, events: &mut Vec<NetEvent>) {
        if !core::mem::replace(&mut self.told_forked, true) {
            events.extend(self.slots.iter().map(|(_, slot)| NetEvent::Ready { token: slot.token, ready: EVERYTHING }));
        }
    }
}

impl core::fmt::Debug for OsNet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OsNet")
            .field("fd", &self.poller.fd())
            .field("sockets", &self.slots.iter().count())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}

/// Closes every socket that is still open. In a child of `fork` this releases the child's copies;
/// the parent's live on.
impl Drop for OsNet {
    fn drop(&mut self) {
        for direct in self.directs.iter().flatten() {
            direct.close();
        }
        for (fd, _) in self.slots.iter() {
            sys::close(fd);
        }
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for OsNet {
    /// The descriptor to watch for reading.
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.poller.fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for OsNet {
    /// The descriptor to watch for reading.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
