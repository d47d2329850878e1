//! Contexts: one transport system each, with one descriptor and one queue of events.

use crate::border::{
    Failure, Handle, Versioned, bytes, check_out, check_sized, guard, guard_number, guard_or, handle, optional_text,
    put, put_text, read_sized, text, write_sized,
};
use crate::connection::shared;
use crate::event::{Callback, neater_event, neater_event_fn};
use crate::inbox::{Core, Item, Target, Task, waker};
use crate::lookup::neater_lookup_fn;
use crate::receive;
use crate::status::neater_status;
use neater::{Driver, Limits, Neater};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Events that callbacks get in one `neater_process`; the others come in the next, before which
/// other descriptors have their turn.
const CALLS_MAX: usize = 256;
/// What is looked at in one turn, likewise.
const ITEMS_MAX: usize = 4096;
/// Events in a row that `neater_poll_event` delivers before it looks at the network again.
const EVENTS_IN_A_ROW: usize = 64;

/// One transport system: connections, listeners and caches that belong together. A program may have
/// several, which share nothing.
pub struct neater_context {
    pub(crate) core: Arc<Core>,
    pub(crate) neater: Neater,
    driver: Mutex<Option<Arc<Driver>>>,
    /// What the program watches: the engine's descriptor and that of the queues.
    poller: OwnedFd,
    callback: Mutex<Option<Callback>>,
    /// Held by the thread that drives.
    driving: Mutex<()>,
    /// The thread that drives, by the address of something of its own; 0: none.
    thread: AtomicUsize,
    in_a_row: AtomicUsize,
}

impl core::fmt::Debug for neater_context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("neater_context")
    }
}

impl Handle for neater_context {
    fn given_back(&self) -> Option<neater_status> {
        self.core.gone.load(Ordering::Acquire).then_some(neater_status::NEATER_ERROR_NO_CONTEXT)
    }
}

/// What a context is made with. `size` is set by the program to `sizeof(neater_context_options)`;
/// zeros are defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_context_options {
    /// `sizeof(neater_context_options)`.
    pub size: usize,
    /// What policies call this program; NULL: the name of its file.
    pub application: *const c_char,
    /// Folders of policies, with `:` between them, of which each must be there; NULL: the usual
    /// ones.
    pub policies: *const c_char,
    /// 1: no policies, wherever they may lie.
    pub without_policies: u32,
    /// 1: `neater_context_new` fails while a file of policies cannot be used.
    pub strict_policies: u32,
    /// 1: names are looked up by the system's resolver, in helper threads, instead of at name
    /// servers.
    pub names_by_system: u32,
    /// 1: the keys of TLS and QUIC sessions are written to the file that the environment names in
    /// `SSLKEYLOGFILE`, if it names one.
    pub key_log_from_environment: u32,
    /// 1: SCTP over UDP and IP offers congestion marks (ECN).
    pub sctp_ecn: u32,
    /// Not used; 0.
    pub reserved: u32,
    /// Another resolver configuration than the system's; NULL: `/etc/resolv.conf`.
    pub resolv_conf: *const c_char,
    /// Another hosts file than the system's; NULL: `/etc/hosts`.
    pub hosts: *const c_char,
    /// A folder for logs of QUIC connections in the qlog format; NULL: none are written.
    pub qlog_dir: *const c_char,
    /// 32 bytes from which everything random follows, for tests; NULL: the system's random numbers.
    pub seed: *const c_void,
    /// 32 secret bytes that a server keeps from one run to the next, for stateless resets of QUIC;
    /// NULL: none.
    pub reset_secret: *const c_void,
    /// Bytes that may wait to be sent on one connection; 0: 256 kB.
    pub limit_send_buffer: usize,
    /// Bytes that may wait to be sent on all connections together; 0: 64 MB.
    pub limit_engine_bytes: usize,
    /// The longest message, in bytes; 0: 64 MB.
    pub limit_message: usize,
    /// Connections per listener that were received and not taken; 0: 1,024.
    pub limit_untaken: usize,
    /// Incoming connections per listener whose handshake is not finished; 0: 1,024.
    pub limit_handshakes: usize,
    /// Connections in all; 0: 1,000,000.
    pub limit_connections: usize,
    /// Looks names up instead of name servers; NULL: none does.
    pub names_by: neater_lookup_fn,
    /// What that function is given. It must live as long as the context, and lookups that wait.
    pub names_user: *mut c_void,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_context_options {
    const FIRST: usize = 136;
}

/// # Safety
/// The pointers are as the manual of the struct states.
unsafe fn build(o: &neater_context_options) -> Result<(Neater, Driver), Failure> {
    let or = |n: usize, default: usize| if n == 0 { default } else { n };
    let d = Limits::default();
    let mut b = Neater::builder().limits(Limits {
        send_buffer: or(o.limit_send_buffer, d.send_buffer),
        engine_bytes: or(o.limit_engine_bytes, d.engine_bytes),
        message: or(o.limit_message, d.message),
        untaken: or(o.limit_untaken, d.untaken),
        handshakes: or(o.limit_handshakes, d.handshakes),
        connections: or(o.limit_connections, d.connections),
        ..d
    });
    let secret = |p: *const c_void, what: &str| -> Result<Option<[u8; 32]>, Failure> {
        if p.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise: 32 bytes.
        let bytes = unsafe { bytes(p, 32, what) }?;
        bytes.try_into().map(Some).map_err(|_| Failure::argument(what))
    };
    b = b.sctp_ecn(o.sctp_ecn != 0);
    if let Some(seed) = secret(o.seed, "seed")? {
        b = b.seed(seed);
    }
    if let Some(key) = secret(o.reset_secret, "reset_secret")? {
        b = b.reset_secret(key);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(name) = optional_text(o.application, "application")? {
            b = b.application(name);
        }
        if let Some(folders) = optional_text(o.policies, "policies")? {
            b = b.policies(folders.split(':').filter(|f| !f.is_empty()));
        }
        if let Some(path) = optional_text(o.resolv_conf, "resolv_conf")? {
            b = b.resolv_conf(path);
        }
        if let Some(path) = optional_text(o.hosts, "hosts")? {
            b = b.hosts(path);
        }
        if let Some(path) = optional_text(o.qlog_dir, "qlog_dir")? {
            b = b.qlog_dir(path);
        }
    }
    if o.without_policies != 0 {
        b = b.without_policies();
    }
    if o.strict_policies != 0 {
        b = b.strict_policies();
    }
    if let Some(names) = crate::lookup::names_by(o) {
        b = b.names_by(names);
    } else if o.names_by_system != 0 {
        b = b.names_by_system();
    }
    if o.key_log_from_environment != 0 {
        b = b.key_log_from_environment();
    }
    Ok(b.without_driver()?)
}

/// Makes a context, into `*context`. NULL options are the defaults. It has no threads of its own:
/// the program drives it, by `neater_poll_event`, or by `neater_process` whenever `neater_fd` is
/// readable.
///
/// Ownership: the caller's, to be given back by `neater_context_free`; everything that the options
/// point to is copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_new(
    options: *const neater_context_options,
    context: *mut *mut neater_context,
) -> neater_status {
    guard(|| {
        check_out(context, "context")?;
        // SAFETY: the caller's promise.
        let options = unsafe { read_sized(options) }?;
        // SAFETY: zeros are a value of it, as `Versioned` states.
        let options = options.unwrap_or_else(|| unsafe { core::mem::zeroed() });
        // SAFETY: the caller's promise.
        let (neater, driver) = unsafe { build(&options) }?;
        let core = Core::new()?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        for fd in [driver.as_fd(), core.signal()] {
            let added = epoll::add(&poller, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            added.map_err(std::io::Error::from)?;
        }
        let made = Arc::new(neater_context {
            core,
            neater,
            driver: Mutex::new(Some(Arc::new(driver))),
            poller,
            callback: Mutex::new(None),
            driving: Mutex::new(()),
            thread: AtomicUsize::new(0),
            in_a_row: AtomicUsize::new(0),
        });
        // SAFETY: the caller's promise.
        unsafe { put(context, Arc::into_raw(made).cast_mut(), "context") }
    })
}

/// Gives a context back. NULL is allowed. Nothing drives it any more: its connections are cut off,
/// and what was sent and is not delivered is lost (`neater_context_drain` before this delivers it).
/// Its objects stay valid until they are given back, in any order, and answer
/// NEATER_ERROR_NO_CONTEXT or NEATER_ERROR_NETWORK.
///
/// Ownership: the object is gone afterwards. Thread: any, also from within a callback, but not
/// while another thread drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_free(context: *mut neater_context) {
    if !context.is_null() {
        guard_or((), || {
            // SAFETY: the caller's promise; a second time is noticed where the library still has
            // it.
            unsafe { handle(context, "context") }?;
            // SAFETY: it came from `Arc::into_raw`, and was not given back before.
            let context = unsafe { Arc::from_raw(context.cast_const()) };
            context.core.end();
            let driver = lock(&context.driver).take();
            drop(driver);
            Ok(())
        });
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something of this thread's own, by which it is known while it lives.
fn this_thread() -> usize {
    std::thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|m| core::ptr::from_ref(m).addr())
}

/// A thread drives while it has this.
struct Driving<'a> {
    context: &'a neater_context,
    _held: MutexGuard<'a, ()>,
}

impl<'a> Driving<'a> {
    fn begin(context: &'a neater_context) -> Result<Self, Failure> {
        let me = this_thread();
        if context.thread.load(Ordering::Acquire) == me {
            return Err(neater_status::NEATER_ERROR_REENTRANT.into());
        }
        let held = lock(&context.driving);
        context.thread.store(me, Ordering::Release);
        context.core.set_driven(true);
        Ok(Self { context, _held: held })
    }

    /// Does what there is to do, and makes events of it.
    fn turn(&self) -> Result<(), Failure> {
        let driver = lock(&self.context.driver).clone();
        driver.ok_or(neater_status::NEATER_ERROR_NO_CONTEXT)?.turn();
        self.settle();
        Ok(())
    }

    fn settle(&self) {
        for _ in 0..ITEMS_MAX {
            let Some(item) = self.context.core.next_item() else { return };
            match item {
                Item::Event(c, event) => {
                    if let Some(c) = c.upgrade() {
                        c.settle(event);
                    }
                }
                Item::ListenerError(l, e) => {
                    if let Some(l) = l.upgrade() {
                        l.failed(e);
                    }
                }
                Item::Try(target) => self.attempt(target),
            }
        }
    }

    fn attempt(&self, target: Target) {
        match target {
            Target::Connection(c) => {
                if let Some(c) = c.upgrade() {
                    receive::attempt(&c);
                }
            }
            Target::Listener(l) => {
                if let Some(l) = l.upgrade() {
                    l.attempt();
                }
            }
            Target::Group(g) => {
                if let Some(g) = g.upgrade() {
                    g.attempt();
                }
            }
            Target::Task(task) => self.advance(&task),
        }
    }

    fn advance(&self, task: &Arc<Task>) {
        let core = &self.context.core;
        let waker = waker(core, Target::Task(task.clone()));
        let mut place = lock(&task.0);
        let Some(future) = place.as_mut() else { return };
        if let Poll::Ready(event) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            let done = place.take();
            drop(place);
            drop(done);
            core.publish(event);
        }
    }

    /// Hands events to callbacks; returns how many wait for `neater_poll_event`.
    fn call(&self) -> usize {
        let core = &self.context.core;
        let mut kept = VecDeque::new();
        let mut calls = 0;
        while calls < CALLS_MAX
            && let Some(event) = core.next_event()
        {
            let callback = *lock(&self.context.callback);
            if callback.is_none() && !event.has_callback() {
                kept.push_back(event);
                continue;
            }
            if let Some(mut living) = event.living() {
                living.call(callback);
                calls += 1;
            }
        }
        let waits = kept.len();
        if waits > 0 {
            core.put_back(kept);
        }
        waits
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.context.core.set_driven(false);
        self.context.thread.store(0, Ordering::Release);
    }
}

/// The descriptor to watch for reading in an event loop: it is readable when `neater_process` has
/// something to do, at every deadline, and while events wait. It may be watched level-triggered,
/// edge-triggered or one-shot, from inside another epoll or event loop. -1 for NULL.
///
/// Ownership: the context's; it must not be read or closed. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_fd(context: *const neater_context) -> i32 {
    // SAFETY: the caller's promise.
    guard_or(-1, || Ok(unsafe { handle(context, "context") }?.poller.as_raw_fd()))
}

/// How long an event loop may wait for the descriptor, in milliseconds: 0 if there is something to
/// do at once, -1 for ever, since the descriptor is readable at every deadline, too.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_timeout_ms(context: *const neater_context) -> i32 {
    guard_or(0, || {
        // SAFETY: the caller's promise.
        let busy = unsafe { handle(context, "context") }?.core.is_busy();
        Ok(if busy { 0 } else { -1 })
    })
}

/// Does what there is to do, without waiting, and hands events to callbacks, 256 at most. Returns
/// how many events wait for `neater_poll_event`, or a negative status.
///
/// Thread: one drives at a time, others wait for it. From within a callback:
/// NEATER_ERROR_REENTRANT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_process(context: *mut neater_context) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise. A callback may give the context back meanwhile.
        let context = unsafe { shared(context, "context") }?;
        let driving = Driving::begin(&context)?;
        driving.turn()?;
        Ok(i64::try_from(driving.call()).unwrap_or(i64::MAX))
    })
}

/// Takes the next event, into `*event`, whose `size` the program has set, and drives meanwhile: it
/// waits for `timeout_ms` milliseconds at most, 0: not at all, negative: for ever. Returns 1 for an
/// event, 0 if there was none in that time or a signal came, or a negative status. Events of
/// objects with a callback go there.
///
/// Ownership: what belongs to the event is the program's: take it, and call `neater_event_clear`.
/// Thread: one drives at a time, others wait for it. From within a callback:
/// NEATER_ERROR_REENTRANT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_poll_event(
    context: *mut neater_context,
    event: *mut neater_event,
    timeout_ms: i32,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let context = unsafe {
            check_sized(event.cast_const(), "event")?;
            shared(context, "context")?
        };
        let until = deadline(timeout_ms);
        loop {
            let driving = Driving::begin(&context)?;
            // Others have their turn, too, however many events there are.
            let row = context.in_a_row.fetch_add(1, Ordering::Relaxed);
            if context.core.waiting() == 0 || row >= EVENTS_IN_A_ROW {
                context.in_a_row.store(0, Ordering::Relaxed);
                driving.turn()?;
            }
            while let Some(next) = context.core.next_event() {
                let Some(mut living) = next.living() else { continue };
                if !living.call(None) {
                    // SAFETY: the caller's promise.
                    unsafe { living.write(event) }?;
                    return Ok(1);
                }
                if context.core.gone.load(Ordering::Acquire) {
                    return Err(neater_status::NEATER_ERROR_NO_CONTEXT.into());
                }
            }
            drop(driving);
            if context.core.is_busy() {
                continue;
            }
            if !wait(&context, until)? {
                return Ok(0);
            }
        }
    })
}

fn deadline(timeout_ms: i32) -> Option<Instant> {
    let left = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(left))
}

/// Waits until there is something to do; false if there is nothing until then, or a signal came.
fn wait(context: &neater_context, until: Option<Instant>) -> Result<bool, Failure> {
    let left = match until {
        None => None,
        Some(until) => {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
        }
    };
    match poll(&mut [PollFd::new(&context.poller, PollFlags::IN)], left.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(std::io::Error::from(e).into()),
    }
}

/// Drives until no connection is left, so that what was sent is delivered and closes are complete:
/// `timeout_ms` milliseconds at most, then NEATER_ERROR_TIMED_OUT; negative: for ever. To be called
/// when all connections were closed or given back. Events go to callbacks; others are kept for
/// `neater_poll_event`.
///
/// Thread: one drives at a time, others wait for it. From within a callback:
/// NEATER_ERROR_REENTRANT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_drain(context: *mut neater_context, timeout_ms: i32) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise. A callback may give the context back meanwhile.
        let context = unsafe { shared(context, "context") }?;
        let until = deadline(timeout_ms);
        loop {
            let driving = Driving::begin(&context)?;
            driving.turn()?;
            driving.call();
            // Events that wait must not make this loop a busy one: the engine's own descriptor is
            // waited for.
            let driver = lock(&context.driver).clone().ok_or(neater_status::NEATER_ERROR_NO_CONTEXT)?;
            drop(driving);
            if context.neater.stats().connections == 0 {
                return Ok(());
            }
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                let n = context.neater.stats().connections;
                let text = format!("{n} connections are left: close them, or give them back");
                return Err(Failure::new(neater_status::NEATER_ERROR_TIMED_OUT, text));
            }
            // Another thread may add something that only the queues show: it is looked for ten
            // times a second.
            let most = left.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
            let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&*driver, PollFlags::IN)], Some(&most));
        }
    })
}

/// Has events delivered to a function, by `neater_process`, instead of `neater_poll_event`: those
/// of objects without a callback of their own. NULL takes it away.
///
/// Lifetime: `user` must live as long as the context is not given back. Thread: any; the function
/// is called from the thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_set_callback(
    context: *mut neater_context,
    callback: neater_event_fn,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        *lock(&unsafe { handle(context, "context") }?.callback) = Callback::of(callback, user);
        Ok(())
    })
}

/// Figures of a context since it was made. `size` is set by the program to
/// `sizeof(neater_context_statistics)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_context_statistics {
    /// `sizeof(neater_context_statistics)`.
    pub size: usize,
    /// Connections that exist now.
    pub connections: u64,
    /// Listeners that exist now.
    pub listeners: u64,
    /// Connection groups that exist now.
    pub groups: u64,
    /// QUIC connections that exist now.
    pub quic_connections: u64,
    /// SCTP associations that exist now.
    pub sctp_associations: u64,
    /// Bytes that wait to be sent now.
    pub bytes_queued: u64,
    /// Connections initiated.
    pub initiated: u64,
    /// Connections established, by either side.
    pub established: u64,
    /// Connections that could not be established.
    pub failed: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Connections that a cached outcome opened with one attempt.
    pub cache_hits: u64,
    /// Connections received by listeners.
    pub received: u64,
    /// Incoming connections turned away at a limit.
    pub refused: u64,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_context_statistics {
    const FIRST: usize = 112;
}

/// Figures of a context, into `*statistics`, whose `size` the program has set.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_get_statistics(
    context: *const neater_context,
    statistics: *mut neater_context_statistics,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let s = unsafe { handle(context, "context") }?.neater.stats();
        let value = neater_context_statistics {
            size: size_of::<neater_context_statistics>(),
            connections: s.connections,
            listeners: s.listeners,
            groups: s.groups,
            quic_connections: s.quic_connections,
            sctp_associations: s.sctp_associations,
            bytes_queued: s.bytes_queued,
            initiated: s.initiated,
            established: s.established,
            failed: s.failed,
            attempts: s.attempts,
            cache_hits: s.cache_hits,
            received: s.received,
            refused: s.refused,
        };
        // SAFETY: the caller's promise.
        unsafe { write_sized(statistics, &value, "statistics") }
    })
}

/// Forgets names and outcomes of races: the next connection resolves and races from the beginning.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_flush_caches(context: *mut neater_context) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(context, "context") }?.neater.flush_caches();
        Ok(())
    })
}

/// What the races of this context have taught, as text for `neater_context_import_outcomes` in a
/// later process of this host, as far as it fits into `room` bytes with a zero byte behind it; 1
/// MiB at most. Returns how long all of it is without that byte, 0 if there is nothing, or a
/// negative status. There are addresses of servers in it: keep it where only the user can read it.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_export_outcomes(
    context: *const neater_context,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { handle(context, "context") }?.neater.export_outcomes().unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &text) }
    })
}

/// Lets connections begin with what earlier processes have found to work. Returns how many entries
/// have come, or a negative status.
///
/// Ownership: the text is copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_import_outcomes(context: *mut neater_context, outcomes: *const c_char) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (context, outcomes) = unsafe { (handle(context, "context")?, text(outcomes, "outcomes")?) };
        let imported = context.neater.import_outcomes(outcomes);
        let count = imported.map_err(|e| Failure::new(neater_status::NEATER_ERROR_PARSE, e.to_string()))?;
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// What lists of texts a context has about policies, by the number of `neater_context_policy_text`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_policy_list {
    /// Where policies come from, those that count least first.
    NEATER_POLICY_SOURCES = 0,
    /// The profiles that a program may state (`neater_preconnection_set_policy_property`,
    /// `profile`).
    NEATER_POLICY_PROFILES = 1,
    /// What is wrong with files of policies, or odd about them.
    NEATER_POLICY_FAULTS = 2,
}

/// A line of a list about policies (`neater_policy_list`) by its number, as far as it fits into
/// `room` bytes with a zero byte behind it. Returns how long it is without that byte,
/// NEATER_ERROR_NOT_FOUND beyond the last, or another negative status.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_context_policy_text(
    context: *mut neater_context,
    list: u32,
    index: usize,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let neater = &unsafe { handle(context, "context") }?.neater;
        let line = match list {
            0 => neater.policy_sources().get(index).map(ToString::to_string),
            1 => neater.policy_profiles().into_iter().nth(index),
            2 => neater.policy_faults().get(index).map(ToString::to_string),
            _ => return Err(Failure::argument("list is no neater_policy_list")),
        };
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &line.ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?) }
    })
}

/// The version of the library, as text: `0.1.0`. Never NULL.
///
/// Lifetime: for ever. Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn neater_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
