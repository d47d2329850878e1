//! C functions over neater's public Rust API, just enough for the test programs in `interop/hosts`, which put an engine
//! into event loops of other languages.
//!
//! This is **not** the C API of neater. That one is `neater.h`, generated and layout-tested in `io/neater-c`; this one is
//! never installed, has no stability, and speaks only TCP in the clear to IP addresses. Do not grow it: a test that needs
//! more is a test of `neater.h`.
//!
//! *Responsible for* opaque handles, turning futures into "not now", and stopping panics at the edge. *Not responsible
//! for* waiting: the caller watches [`neater_shim_fd`] and calls [`neater_shim_turn`].
//!
//! *Invariants*: no function blocks, except [`neater_shim_flood`], whose connects to loopback the kernel answers itself;
//! no panic leaves a function; a null or unknown argument is an error, not undefined behaviour, as long as the handle is
//! one that [`neater_shim_create`] returned and [`neater_shim_destroy`] has not taken.

#![allow(unsafe_code, reason = "functions for C take raw pointers")]

mod threads;

use neater::{ByteStream, Connection, ConnectionState, Driver, Listener, Neater, SecurityParameters, Stack};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::future::Future;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Not now: the call would have to wait. (Negative, as all errors are.)
pub const NEATER_SHIM_AGAIN: i64 = -1;
/// The connection has failed, or does not exist.
pub const NEATER_SHIM_FAILED: i64 = -2;
/// An argument makes no sense.
pub const NEATER_SHIM_INVALID: i64 = -3;
/// A panic was stopped at the edge: a bug.
pub const NEATER_SHIM_PANIC: i64 = -4;

/// An engine with its connections: opaque to C.
#[derive(Debug)]
pub struct NeaterShim {
    driver: Driver,
    /// `None` after [`neater_shim_release`].
    neater: Option<Neater>,
    connections: BTreeMap<i64, Entry>,
    next: i64,
    turns: u64,
    flood: Option<Flood>,
    threads: threads::Threads,
}

#[derive(Debug)]
enum Entry {
    Establishing(Connection),
    Stream(Arc<ByteStream>),
    Failed,
}

#[derive(Debug)]
struct Flood {
    listener: Listener,
    clients: Vec<TcpStream>,
    accepted: Vec<Connection>,
}

/// Polls a future once; nobody is woken, since the C side asks again after every turn.
fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(v) => Some(v),
        Poll::Pending => None,
    }
}

/// Runs `f` on the shim behind a handle; panics become [`NEATER_SHIM_PANIC`].
///
/// # Safety
/// `shim` is null or came from [`neater_shim_create`], was not destroyed, and no other thread uses it now.
unsafe fn with(shim: *mut NeaterShim, f: impl FnOnce(&mut NeaterShim) -> i64) -> i64 {
    // SAFETY: the caller's promise.
    let Some(shim) = (unsafe { shim.as_mut() }) else { return NEATER_SHIM_INVALID };
    catch_unwind(AssertUnwindSafe(|| f(shim))).unwrap_or(NEATER_SHIM_PANIC)
}

/// # Safety
/// `ip` is null or a string that ends with a null byte.
unsafe fn address(ip: *const c_char, port: u16) -> Option<SocketAddr> {
    if ip.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let ip: IpAddr = unsafe { CStr::from_ptr(ip) }.to_str().ok()?.parse().ok()?;
    Some(SocketAddr::new(ip, port))
}

impl NeaterShim {
    fn stream(&mut self, id: i64) -> Result<Arc<ByteStream>, i64> {
        match self.connections.get(&id) {
            Some(Entry::Stream(s)) => Ok(s.clone()),
            Some(Entry::Establishing(_)) => Err(NEATER_SHIM_AGAIN),
            Some(Entry::Failed) | None => Err(NEATER_SHIM_FAILED),
        }
    }
}

/// Makes an engine; null on failure. [`neater_shim_destroy`] takes it.
#[unsafe(no_mangle)]
pub extern "C" fn neater_shim_create() -> *mut NeaterShim {
    let made = catch_unwind(|| Neater::builder().without_driver().ok());
    let Ok(Some((neater, driver))) = made else { return core::ptr::null_mut() };
    Box::into_raw(Box::new(NeaterShim {
        driver,
        neater: Some(neater),
        connections: BTreeMap::new(),
        next: 1,
        turns: 0,
        flood: None,
        threads: threads::Threads::default(),
    }))
}

/// The descriptor to watch for reading. It stays the engine's.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_fd(shim: *mut NeaterShim) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.driver.as_raw_fd().into()) as c_int }
}

/// Does what there is to do; returns how many turns there have been.
///
/// # Safety
/// `shim` came from [`neater_shim_create`], was not destroyed, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_turn(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            s.driver.turn();
            s.turns += 1;
            s.turns as i64
        })
    }
}

/// Opens a TCP connection to `ip`:`port`; if `other_ip` is not null, either of the two will do, the first is preferred.
/// Returns a number above 0 that names the connection until [`neater_shim_close`].
///
/// # Safety
/// As [`neater_shim_turn`]; `ip` and `other_ip` are null or end with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_connect(
    shim: *mut NeaterShim,
    ip: *const c_char,
    port: u16,
    other_ip: *const c_char,
    other_port: u16,
) -> i64 {
    // SAFETY: the caller's promise.
    let (first, other) = unsafe { (address(ip, port), address(other_ip, other_port)) };
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let (Some(neater), Some(first)) = (&s.neater, first) else { return NEATER_SHIM_INVALID };
            let mut pre =
                neater.preconnection().remote(first).security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
            if let Some(other) = other {
                pre = pre.remote(other);
            }
            let Ok(connection) = pre.initiate().connection() else { return NEATER_SHIM_FAILED };
            let id = s.next;
            s.next += 1;
            s.connections.insert(id, Entry::Establishing(connection));
            id
        })
    }
}

/// 0: establishing, 1: established, 2: closing, 3: closed; [`NEATER_SHIM_FAILED`] if it could not be established.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_state(shim: *mut NeaterShim, id: i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let Some(entry) = s.connections.remove(&id) else { return NEATER_SHIM_INVALID };
            let entry = match entry {
                Entry::Establishing(c) => match now_or_never(c.ready()) {
                    None => Entry::Establishing(c),
                    Some(Ok(())) => c.into_bytes().map_or(Entry::Failed, |b| Entry::Stream(Arc::new(b))),
                    Some(Err(_)) => Entry::Failed,
                },
                other => other,
            };
            let state = match &entry {
                Entry::Establishing(_) => 0,
                Entry::Failed => NEATER_SHIM_FAILED,
                Entry::Stream(b) => match b.connection().state() {
                    ConnectionState::Establishing => 0,
                    ConnectionState::Established => 1,
                    ConnectionState::Closing => 2,
                    ConnectionState::Closed => 3,
                },
            };
            s.connections.insert(id, entry);
            state
        })
    }
}

/// Sends some of `len` bytes; returns how many were taken, or [`NEATER_SHIM_AGAIN`].
///
/// # Safety
/// As [`neater_shim_turn`]; `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_send(shim: *mut NeaterShim, id: i64, data: *const c_void, len: usize) -> i64 {
    if data.is_null() || len == 0 || len > isize::MAX as usize {
        return NEATER_SHIM_INVALID;
    }
    // SAFETY: the caller's promise.
    let data = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len) };
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let stream = match s.stream(id) {
                Ok(stream) => stream,
                Err(code) => return code,
            };
            match stream.poll_write_bytes(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(data)]) {
                Poll::Ready(Ok(n)) => n as i64,
                Poll::Ready(Err(_)) => NEATER_SHIM_FAILED,
                Poll::Pending => NEATER_SHIM_AGAIN,
            }
        })
    }
}

/// Receives at most `room` bytes; returns how many, 0 at the end of the peer's direction, or [`NEATER_SHIM_AGAIN`].
///
/// # Safety
/// As [`neater_shim_turn`]; `data` points to `room` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_receive(shim: *mut NeaterShim, id: i64, data: *mut c_void, room: usize) -> i64 {
    if data.is_null() || room == 0 || room > isize::MAX as usize {
        return NEATER_SHIM_INVALID;
    }
    // SAFETY: the caller's promise; what the caller has not written is never read, only overwritten.
    let data = unsafe {
        core::ptr::write_bytes(data.cast::<u8>(), 0, room);
        core::slice::from_raw_parts_mut(data.cast::<u8>(), room)
    };
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let stream = match s.stream(id) {
                Ok(stream) => stream,
                Err(code) => return code,
            };
            match stream.poll_read_bytes(&mut Context::from_waker(Waker::noop()), data) {
                Poll::Ready(Ok(n)) => n as i64,
                Poll::Ready(Err(_)) => NEATER_SHIM_FAILED,
                Poll::Pending => NEATER_SHIM_AGAIN,
            }
        })
    }
}

/// Ends our direction of a connection; the other stays open.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_finish(shim: *mut NeaterShim, id: i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| match s.stream(id) {
            Ok(stream) => stream.connection().finish().map_or(NEATER_SHIM_FAILED, |()| 0),
            Err(code) => code,
        })
    }
}

/// Closes a connection gracefully and forgets its number.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_close(shim: *mut NeaterShim, id: i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.connections.remove(&id).map_or(NEATER_SHIM_INVALID, |_| 0)) }
}

/// Test hook: leaves more work than a turn's budget. Opens a listener in the engine and `count` connections to it from
/// ordinary sockets, all before it returns. [`neater_shim_flood_accepted`] tells how many have come through.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_flood(shim: *mut NeaterShim, count: u32) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let Some(neater) = &s.neater else { return NEATER_SHIM_INVALID };
            let pre = neater.preconnection().local(SocketAddr::from(([127, 0, 0, 1], 0)));
            let pre = pre.security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
            let Ok(listener) = pre.listen() else { return NEATER_SHIM_FAILED };
            let addr = SocketAddr::from(([127, 0, 0, 1], listener.port()));
            let connect = |_| TcpStream::connect_timeout(&addr, Duration::from_secs(2));
            let Ok(clients) = (0..count).map(connect).collect::<Result<Vec<_>, _>>() else { return NEATER_SHIM_FAILED };
            s.flood = Some(Flood { listener, clients, accepted: Vec::new() });
            0
        })
    }
}

/// How many connections of [`neater_shim_flood`] were accepted so far.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_flood_accepted(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            let Some(flood) = &mut s.flood else { return NEATER_SHIM_INVALID };
            while let Some(Some(connection)) = now_or_never(flood.listener.accept()) {
                flood.accepted.push(connection);
            }
            flood.accepted.len() as i64
        })
    }
}

/// Closes what [`neater_shim_flood`] opened.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_flood_end(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.flood.take().map_or(NEATER_SHIM_INVALID, |f| f.clients.len() as i64)) }
}

/// Test hook: after `delay_ms` another thread sends `byte` on a connection.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_send_from_thread(shim: *mut NeaterShim, id: i64, byte: u8, delay_ms: u32) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| match s.stream(id) {
            Ok(stream) => s.threads.send_later(stream, byte, Duration::from_millis(delay_ms.into())),
            Err(code) => code,
        })
    }
}

/// Test hook: another thread opens a QUIC listener and a QUIC connection in the same engine and echoes `bytes` bytes
/// through them. It never drives the engine, so all of its progress depends on its calls waking the host's loop.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_quic_from_thread(shim: *mut NeaterShim, bytes: u32) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| match &s.neater {
            Some(neater) => s.threads.quic_echo(neater.clone(), bytes as usize),
            None => NEATER_SHIM_INVALID,
        })
    }
}

/// Whether the other threads have what they wanted: 1 all of them; 0 not yet; [`NEATER_SHIM_FAILED`] one has failed.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_threads_done(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.threads.done()) }
}

/// How many connections the engine has; -3 after [`neater_shim_release`].
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_live(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.neater.as_ref().map_or(NEATER_SHIM_INVALID, |n| n.stats().connections as i64)) }
}

/// Drops every public object: connections, listeners, the engine's handle. What was sent is still delivered while the
/// host goes on turning; [`neater_shim_is_done`] tells when nothing is left.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_release(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        with(shim, |s| {
            s.connections.clear();
            s.flood = None;
            s.neater = None;
            0
        })
    }
}

/// 1 when nothing is left to drive.
///
/// # Safety
/// As [`neater_shim_turn`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_is_done(shim: *mut NeaterShim) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { with(shim, |s| s.driver.is_done().into()) }
}

/// Destroys an engine with all that is left in it, after the test hooks' threads have ended. Null is allowed.
///
/// # Safety
/// As [`neater_shim_turn`]; the handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_shim_destroy(shim: *mut NeaterShim) {
    if !shim.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back only once.
        let shim = unsafe { Box::from_raw(shim) };
        // A panic while dropping must not cross into C; there is nobody to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(shim)));
    }
}
