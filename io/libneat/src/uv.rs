//! The few functions of libuv that are needed, declared by hand.
//!
//! No size or layout is known here: libuv reports sizes, and reads and writes the fields itself.

use core::ffi::{c_int, c_void};

/// A loop of libuv's.
#[repr(C)]
pub struct UvLoop {
    _opaque: [u8; 0],
}

/// A handle of libuv's, of any type.
#[repr(C)]
pub(crate) struct UvHandle {
    _opaque: [u8; 0],
}

/// Called with a handle.
pub(crate) type HandleCb = extern "C" fn(*mut UvHandle);
/// Called with a `uv_poll_t`, a status and events.
pub(crate) type PollCb = extern "C" fn(*mut UvHandle, c_int, c_int);

/// `UV_READABLE`.
pub(crate) const READABLE: c_int = 1;
/// `UV_WRITABLE`.
pub(crate) const WRITABLE: c_int = 2;
/// `UV_EBUSY`.
pub(crate) const EBUSY: c_int = -libc::EBUSY;

// The numbers that `uv_handle_type` gives to the types, in the order of libuv's public list
// `UV_HANDLE_TYPE_MAP`, from 1.
/// `UV_IDLE`.
pub(crate) const IDLE: c_int = 6;
/// `UV_POLL`.
pub(crate) const POLL: c_int = 8;
/// `UV_PREPARE`.
pub(crate) const PREPARE: c_int = 9;
/// `UV_TIMER`.
pub(crate) const TIMER: c_int = 13;

/// `UV_RUN_NOWAIT`.
pub(crate) const RUN_NOWAIT: c_int = 2;

#[link(name = "uv")]
unsafe extern "C" {
    pub(crate) fn uv_loop_size() -> usize;
    pub(crate) fn uv_handle_size(kind: c_int) -> usize;
    pub(crate) fn uv_loop_init(uv: *mut UvLoop) -> c_int;
    pub(crate) fn uv_loop_close(uv: *mut UvLoop) -> c_int;
    pub(crate) fn uv_run(uv: *mut UvLoop, mode: c_int) -> c_int;
    pub(crate) fn uv_stop(uv: *mut UvLoop);
    pub(crate) fn uv_backend_fd(uv: *const UvLoop) -> c_int;
    pub(crate) fn uv_backend_timeout(uv: *const UvLoop) -> c_int;
    pub(crate) fn uv_handle_set_data(handle: *mut UvHandle, data: *mut c_void);
    pub(crate) fn uv_handle_get_data(handle: *const UvHandle) -> *mut c_void;
    pub(crate) fn uv_close(handle: *mut UvHandle, closed: HandleCb);
    pub(crate) fn uv_poll_init(uv: *mut UvLoop, handle: *mut UvHandle, fd: c_int) -> c_int;
    pub(crate) fn uv_poll_start(handle: *mut UvHandle, events: c_int, cb: PollCb) -> c_int;
    pub(crate) fn uv_timer_init(uv: *mut UvLoop, handle: *mut UvHandle) -> c_int;
    pub(crate) fn uv_timer_start(handle: *mut UvHandle, cb: HandleCb, after: u64, every: u64) -> c_int;
    pub(crate) fn uv_timer_stop(handle: *mut UvHandle) -> c_int;
    pub(crate) fn uv_idle_init(uv: *mut UvLoop, handle: *mut UvHandle) -> c_int;
    pub(crate) fn uv_idle_start(handle: *mut UvHandle, cb: HandleCb) -> c_int;
    pub(crate) fn uv_idle_stop(handle: *mut UvHandle) -> c_int;
    pub(crate) fn uv_prepare_init(uv: *mut UvLoop, handle: *mut UvHandle) -> c_int;
    pub(crate) fn uv_prepare_start(handle: *mut UvHandle, cb: HandleCb) -> c_int;
}
