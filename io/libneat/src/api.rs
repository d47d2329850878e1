//! The functions of `neat.h`.
//!
//! Each looks at its pointers, catches panics, and leaves the rest to the other modules. C's
//! promises about its pointers are stated once, here: a non-NULL context or flow came from this
//! library and is still alive (a flow until the loop goes round after its `on_close`), buffers have
//! the lengths that are given with them, and texts end with a NUL.
#![allow(clippy::missing_safety_doc, reason = "stated once, above")]

use crate::abi::{self, Operations, Tlv};
use crate::context::Context;
use crate::flow::{Flow, Phase};
use crate::log::Level;
use crate::open::OpenArguments;
use crate::transfer::WriteArguments;
use crate::uv::{self, UvLoop};
use crate::{dispatch, open, settings, stats, transfer};
use core::ffi::{CStr, c_char, c_float, c_int, c_uchar, c_uint, c_void};
use core::ptr::NonNull;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// More optional arguments than there are tags, and some repetitions.
const ARGUMENTS_MAX: c_uint = 1024;

/// Runs what a function does; a panic is an error of this library's, and becomes `failed`.
fn guard<R>(failed: R, f: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(failed)
}

/// With a context.
fn with_ctx<R>(ctx: *mut Context, failed: R, f: impl FnOnce(&Context) -> R) -> R {
    match NonNull::new(ctx) {
        Some(ctx) => guard(failed, || f(Context::of(ctx))),
        None => failed,
    }
}

/// A flow from C, if it has not ended.
fn flow_of<'a>(flow: *mut Flow) -> Option<&'a Flow> {
    let flow = NonNull::new(flow)?;
    // SAFETY: see the module: it is a flow, or the place of one that has ended while its context
    // lives, where this field can be read.
    let ctx = unsafe { (&raw const (*flow.as_ptr()).ctx).read() };
    if ctx == NonNull::dangling() {
        return None;
    }
    // SAFETY: see the module.
    Some(unsafe { flow.as_ref() })
}

/// With a context and a flow of it; `absent` otherwise.
fn with_flow<R: Copy>(
    ctx: *mut Context,
    flow: *mut Flow,
    absent: R,
    failed: R,
    f: impl FnOnce(&Context, &Flow) -> R,
) -> R {
    match (NonNull::new(ctx), flow_of(flow)) {
        (Some(ctx), Some(flow)) if flow.ctx == ctx => guard(failed, || f(Context::of(ctx), flow)),
        _ => absent,
    }
}

/// With both, for what returns an error code.
fn status(ctx: *mut Context, flow: *mut Flow, f: impl FnOnce(&Context, &Flow) -> u64) -> u64 {
    with_flow(ctx, flow, abi::BAD_ARGUMENT, abi::INTERNAL, f)
}

/// Optional arguments.
unsafe fn arguments<'a>(optional: *mut Tlv, count: c_uint) -> Option<&'a mut [Tlv]> {
    match count {
        0 => Some(&mut []),
        _ if optional.is_null() || count > ARGUMENTS_MAX => None,
        // SAFETY: C has passed `count` as their number.
        n => Some(unsafe { core::slice::from_raw_parts_mut(optional, n as usize) }),
    }
}

/// A text from C; `None` where there is none.
unsafe fn bytes_of<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: it ends with a NUL.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A text from C that is UTF-8.
unsafe fn text_of<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: as the caller promises.
    unsafe { bytes_of(text) }.and_then(|b| core::str::from_utf8(b).ok())
}

/// Reports that an argument is not understood, and is ignored.
fn unknown(ctx: &Context, function: &str, argument: &Tlv) {
    ctx.log.line(Level::Debug, format_args!("{function}: tag {} with type {} is ignored", argument.tag, argument.kind));
}

/// A new context, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn neat_init_ctx() -> *mut Context {
    guard(core::ptr::null_mut(), || match Context::make() {
        Ok(ctx) => ctx.as_ptr(),
        Err(why) => {
            eprintln!("libneat: no context: {why}");
            core::ptr::null_mut()
        }
    })
}

/// Runs the loop.
#[unsafe(no_mangle)]
pub extern "C" fn neat_start_event_loop(ctx: *mut Context, mode: c_int) -> u64 {
    let events = with_ctx(ctx, Err(abi::BAD_ARGUMENT), |ctx| {
        if !(0..=2).contains(&mode) {
            return Err(abi::BAD_ARGUMENT);
        }
        if ctx.depth.get() > 0 || ctx.events.running.get() {
            ctx.log.line(Level::Error, format_args!("the loop is running already: a callback cannot run it"));
            return Err(abi::UNABLE);
        }
        Ok(ctx.events.clone())
    });
    match events {
        // The context may be gone when it returns.
        Ok(events) => guard(abi::INTERNAL, || {
            events.run(mode);
            abi::OK
        }),
        Err(status) => status,
    }
}

/// Has the loop return when its round is over, or at once when it is run next.
#[unsafe(no_mangle)]
pub extern "C" fn neat_stop_event_loop(ctx: *mut Context) {
    with_ctx(ctx, (), |ctx| {
        // SAFETY: the loop is initialised.
        unsafe { uv::uv_stop(ctx.events.ptr) }
    });
}

/// The loop.
#[unsafe(no_mangle)]
pub extern "C" fn neat_get_event_loop(ctx: *mut Context) -> *mut UvLoop {
    with_ctx(ctx, core::ptr::null_mut(), |ctx| ctx.events.ptr)
}

/// The descriptor to wait for in another loop.
#[unsafe(no_mangle)]
pub extern "C" fn neat_get_backend_fd(ctx: *mut Context) -> c_int {
    // SAFETY: the loop is initialised.
    with_ctx(ctx, -1, |ctx| unsafe { uv::uv_backend_fd(ctx.events.ptr) })
}

/// How long another loop may wait, in milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn neat_get_backend_timeout(ctx: *mut Context) -> c_int {
    with_ctx(ctx, -1, |ctx| {
        if let Ok(mut core) = ctx.core.try_borrow_mut() {
            core.engine.settle();
            ctx.after_call(&mut core);
        }
        // SAFETY: the loop is initialised.
        unsafe { uv::uv_backend_timeout(ctx.events.ptr) }
    })
}

/// Ends a context, now or when the outermost callback returns.
#[unsafe(no_mangle)]
pub extern "C" fn neat_free_ctx(ctx: *mut Context) {
    if let Some(ctx) = NonNull::new(ctx) {
        guard((), || Context::free(ctx));
    }
}

/// How much is logged.
#[unsafe(no_mangle)]
pub extern "C" fn neat_log_level(ctx: *mut Context, level: u8) {
    with_ctx(ctx, (), |ctx| match Level::from_number(level) {
        Some(level) => ctx.log.set_level(level),
        None => {
            eprintln!("libneat: there is no log level {level}; DEBUG is used");
            ctx.log.set_level(Level::Debug);
        }
    });
}

/// Where it is logged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_log_file(ctx: *mut Context, file_name: *const c_char) -> u8 {
    with_ctx(ctx, 1, |ctx| {
        // SAFETY: see the module.
        let name = unsafe { bytes_of(file_name) };
        let path = name.map(|n| Path::new(std::ffi::OsStr::from_bytes(n)));
        u8::from(!ctx.log.set_file(path))
    })
}

/// Figures as JSON, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_get_stats(ctx: *mut Context, to: *mut *mut c_char) -> u64 {
    if to.is_null() {
        return abi::BAD_ARGUMENT;
    }
    with_ctx(ctx, abi::BAD_ARGUMENT, |ctx| {
        let text = stats::text(ctx);
        // SAFETY: one byte more than the text is asked for, which is zero; `to` is a pointer of the
        // caller's.
        unsafe {
            let memory = libc::calloc(1, text.len() + 1).cast::<u8>();
            if memory.is_null() {
                return abi::OUT_OF_MEMORY;
            }
            core::ptr::copy_nonoverlapping(text.as_ptr(), memory, text.len());
            *to = memory.cast();
        }
        abi::OK
    })
}

/// A new flow, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn neat_new_flow(ctx: *mut Context) -> *mut Flow {
    with_ctx(ctx, core::ptr::null_mut(), |ctx| {
        let mut core = ctx.core.borrow_mut();
        Flow::make(ctx, &mut core, Operations::zero()).as_ptr()
    })
}

/// Sets a flow's callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_set_operations(ctx: *mut Context, flow: *mut Flow, ops: *mut Operations) -> u64 {
    if ops.is_null() {
        return abi::BAD_ARGUMENT;
    }
    status(ctx, flow, |ctx, f| {
        if ops != f.ops.get() {
            // SAFETY: the caller's struct, which is another one than the flow's.
            let new = unsafe { *ops };
            f.edit(|o| *o = Operations { transport_protocol: o.transport_protocol, ..new });
        }
        let open = {
            let mut s = f.state.borrow_mut();
            s.stalled = false;
            s.phase == Phase::Open
        };
        if open {
            let mut core = ctx.core.borrow_mut();
            ctx.wake(&mut core, f.into());
            ctx.after_call(&mut core);
        }
        abi::OK
    })
}

/// Adds properties to a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_set_property(ctx: *mut Context, flow: *mut Flow, properties: *const c_char) -> u64 {
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let Some(text) = (unsafe { text_of(properties) }) else { return abi::BAD_ARGUMENT };
        if text.is_empty() {
            return abi::OK;
        }
        let before = f.state.borrow().props.clone();
        let new = match before {
            None => ctx.core.borrow_mut().intern(text),
            Some(props) => props.over(text).map(Into::into),
        };
        match new {
            Ok(new) => {
                f.state.borrow_mut().props = Some(new);
                abi::OK
            }
            Err(why) => {
                ctx.log.line(Level::Error, format_args!("neat_set_property: {why}"));
                abi::BAD_ARGUMENT
            }
        }
    })
}

/// Reads a property of a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_get_property(
    ctx: *mut Context,
    flow: *mut Flow,
    name: *const c_char,
    ptr: *mut c_void,
    size: *mut usize,
) -> u64 {
    if size.is_null() {
        return abi::BAD_ARGUMENT;
    }
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let Some(name) = (unsafe { text_of(name) }) else { return abi::BAD_ARGUMENT };
        let Some(props) = open::properties_of(ctx, f) else { return abi::UNABLE };
        // SAFETY: the caller's.
        let room = if ptr.is_null() { 0 } else { unsafe { *size } };
        let (bytes, reported): (Vec<u8>, usize) = match props.value(name) {
            Some(serde_json::Value::String(s)) => {
                let bytes: Vec<u8> = s.bytes().chain([0]).collect();
                let length = bytes.len();
                (bytes, length - 1)
            }
            Some(serde_json::Value::Bool(b)) => (i64::from(*b).to_ne_bytes().to_vec(), 8),
            Some(serde_json::Value::Number(n)) if n.is_i64() => {
                (n.as_i64().unwrap_or_default().to_ne_bytes().to_vec(), 8)
            }
            _ => return abi::UNABLE,
        };
        // SAFETY: `room` bytes are the caller's at `ptr`, and `size` is.
        unsafe {
            if room < bytes.len() {
                *size = bytes.len();
                return abi::MESSAGE_TOO_BIG;
            }
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), ptr.cast::<u8>(), bytes.len());
            *size = reported;
        }
        abi::OK
    })
}

/// Opens a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_open(
    ctx: *mut Context,
    flow: *mut Flow,
    name: *const c_char,
    port: u16,
    optional: *mut Tlv,
    count: c_uint,
) -> u64 {
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let (name, optional) = unsafe { (bytes_of(name), arguments(optional, count)) };
        let (Some(name), Some(optional)) = (name, optional) else { return abi::BAD_ARGUMENT };
        let mut given = OpenArguments::default();
        for argument in optional.iter() {
            match (argument.tag, argument.integer(), argument.real(), argument.string()) {
                (abi::TAG_PRIORITY, _, Some(priority), _) => given.priority = Some(priority),
                (abi::TAG_FLOW_GROUP, Some(group), _, _) => given.group = group,
                (abi::TAG_CC_ALGORITHM, _, _, Some(name)) => {
                    // SAFETY: see the module.
                    given.congestion = unsafe { text_of(name) }.map(str::to_owned);
                }
                // As many streams as there are flows.
                (abi::TAG_STREAM_COUNT, Some(_), _, _) => {}
                _ => unknown(ctx, "neat_open", argument),
            }
        }
        open::open(ctx, f, name, port, given)
    })
}

/// Listens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_accept(
    ctx: *mut Context,
    flow: *mut Flow,
    port: u16,
    optional: *mut Tlv,
    count: c_uint,
) -> u64 {
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let Some(optional) = (unsafe { arguments(optional, count) }) else { return abi::BAD_ARGUMENT };
        let mut local = None;
        for argument in optional.iter() {
            match (argument.tag, argument.integer(), argument.string()) {
                // SAFETY: see the module.
                (abi::TAG_LOCAL_NAME, _, Some(name)) => match unsafe { text_of(name) } {
                    Some(name) => local = Some(name),
                    None => return abi::BAD_ARGUMENT,
                },
                (abi::TAG_STREAM_COUNT, Some(_), _) => {}
                _ => unknown(ctx, "neat_accept", argument),
            }
        }
        open::accept(ctx, f, port, local)
    })
}

/// Reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_read(
    ctx: *mut Context,
    flow: *mut Flow,
    buffer: *mut c_uchar,
    amt: u32,
    actual: *mut u32,
    optional: *mut Tlv,
    count: c_uint,
) -> u64 {
    if actual.is_null() {
        return abi::BAD_ARGUMENT;
    }
    // SAFETY: the caller's.
    unsafe { *actual = 0 };
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let Some(optional) = (unsafe { arguments(optional, count) }) else { return abi::BAD_ARGUMENT };
        if buffer.is_null() && amt > 0 {
            return abi::BAD_ARGUMENT;
        }
        let into = match amt {
            0 => &mut [][..],
            // SAFETY: the caller's buffer of this length.
            n => unsafe { core::slice::from_raw_parts_mut(buffer, n as usize) },
        };
        let (status, n) = transfer::read(ctx, f, into);
        // SAFETY: the caller's.
        unsafe { *actual = u32::try_from(n).unwrap_or(u32::MAX) };
        if status == abi::OK && !optional.is_empty() {
            describe(ctx, f, optional);
        }
        status
    })
}

/// Fills what a reader wants to know beside the bytes.
fn describe(ctx: &Context, f: &Flow, optional: &mut [Tlv]) {
    let s = f.state.borrow();
    for argument in optional {
        match argument.tag {
            abi::TAG_STREAM_ID => argument.set_integer(s.inbox.stream.map_or(0, c_int::from)),
            abi::TAG_TRANSPORT_STACK => argument.set_integer(f.callbacks().transport_protocol),
            abi::TAG_PARTIAL_MESSAGE_RECEIVED
            | abi::TAG_PARTIAL_SEQNUM
            | abi::TAG_UNORDERED
            | abi::TAG_UNORDERED_SEQNUM => argument.set_integer(0),
            _ => unknown(ctx, "neat_read", argument),
        }
    }
}

/// Writes. The data is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_write(
    ctx: *mut Context,
    flow: *mut Flow,
    buffer: *const c_uchar,
    amt: u32,
    optional: *mut Tlv,
    count: c_uint,
) -> u64 {
    status(ctx, flow, |ctx, f| {
        // SAFETY: see the module.
        let Some(optional) = (unsafe { arguments(optional, count) }) else { return abi::BAD_ARGUMENT };
        if buffer.is_null() && amt > 0 {
            return abi::BAD_ARGUMENT;
        }
        let data = match amt {
            0 => &[][..],
            // SAFETY: the caller's bytes of this number.
            n => unsafe { core::slice::from_raw_parts(buffer, n as usize) },
        };
        let (mut given, mut method, mut value) = (WriteArguments::default(), None, None);
        for argument in optional.iter() {
            match (argument.tag, argument.integer()) {
                (abi::TAG_STREAM_ID, Some(stream)) => match u16::try_from(stream) {
                    Ok(stream) => given.stream = Some(stream),
                    Err(_) => return abi::BAD_ARGUMENT,
                },
                (abi::TAG_UNORDERED, Some(unordered)) => given.unordered = unordered != 0,
                (abi::TAG_PR_METHOD, Some(m)) => method = Some(m),
                (abi::TAG_PR_VALUE, Some(v)) => value = Some(v),
                _ => unknown(ctx, "neat_write", argument),
            }
        }
        given.partial = method.zip(value);
        transfer::write(ctx, f, data, given)
    })
}

/// Ends this side's direction.
#[unsafe(no_mangle)]
pub extern "C" fn neat_shutdown(ctx: *mut Context, flow: *mut Flow) -> u64 {
    status(ctx, flow, transfer::shutdown)
}

/// Closes a flow.
#[unsafe(no_mangle)]
pub extern "C" fn neat_close(ctx: *mut Context, flow: *mut Flow) -> u64 {
    status(ctx, flow, |ctx, f| {
        dispatch::outer(f.ctx, || dispatch::close(ctx, f.into()));
        abi::OK
    })
}

/// Ends a flow at once.
#[unsafe(no_mangle)]
pub extern "C" fn neat_abort(ctx: *mut Context, flow: *mut Flow) -> u64 {
    status(ctx, flow, |ctx, f| {
        let conn = {
            let mut s = f.state.borrow_mut();
            (s.out, s.out_at) = (Vec::new(), 0);
            s.waiting.clear();
            s.conn.filter(|_| s.phase != Phase::Closed)
        };
        if let Some(conn) = conn {
            ctx.core.borrow_mut().engine.abort(conn);
        }
        dispatch::outer(f.ctx, || dispatch::close(ctx, f.into()));
        abi::OK
    })
}

/// Addresses of a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_getlpaddrs(
    ctx: *mut Context,
    flow: *mut Flow,
    to: *mut *mut libc::sockaddr,
    local: c_int,
) -> c_int {
    if to.is_null() {
        return -1;
    }
    // SAFETY: the caller's.
    unsafe { *to = core::ptr::null_mut() };
    with_flow(ctx, flow, -1, -1, |ctx, f| {
        let all = settings::addresses(ctx, f, local != 0);
        if all.is_empty() {
            return -1;
        }
        let memory = settings::to_c(&all);
        if memory.is_null() {
            return -1;
        }
        // SAFETY: the caller's.
        unsafe { *to = memory };
        c_int::try_from(all.len()).unwrap_or(c_int::MAX)
    })
}

/// Frees what [`neat_getlpaddrs`] has given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_freelpaddrs(addrs: *mut libc::sockaddr) {
    // SAFETY: it came from calloc, or is NULL.
    unsafe { libc::free(addrs.cast()) };
}

/// How long TCP waits for acknowledgements.
#[unsafe(no_mangle)]
pub extern "C" fn neat_change_timeout(ctx: *mut Context, flow: *mut Flow, seconds: c_uint) -> u64 {
    status(ctx, flow, |ctx, f| settings::change_timeout(ctx, f, seconds))
}

/// Which address of the peer's SCTP prefers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_set_primary_dest(ctx: *mut Context, flow: *mut Flow, name: *const c_char) -> u64 {
    // SAFETY: see the module.
    status(ctx, flow, |ctx, f| match unsafe { text_of(name) } {
        Some(name) => settings::set_primary_dest(ctx, f, name),
        None => abi::BAD_ARGUMENT,
    })
}

/// What checksums cover.
#[unsafe(no_mangle)]
pub extern "C" fn neat_set_checksum_coverage(
    ctx: *mut Context,
    flow: *mut Flow,
    send: c_uint,
    _receive: c_uint,
) -> u64 {
    status(ctx, flow, |ctx, f| settings::set_checksum_coverage(ctx, f, send))
}

/// Which certificate and key a listener has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_secure_identity(
    ctx: *mut Context,
    flow: *mut Flow,
    file: *const c_char,
    kind: c_int,
) -> u64 {
    status(ctx, flow, |_, f| {
        // SAFETY: see the module.
        let Some(file) = (unsafe { bytes_of(file) }) else { return abi::BAD_ARGUMENT };
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(file));
        let mut s = f.state.borrow_mut();
        let more = s.more();
        if matches!(kind, abi::CERT_PEM | abi::CERT_KEY_PEM) {
            more.certificate = Some(path.clone());
        }
        if matches!(kind, abi::KEY_PEM | abi::CERT_KEY_PEM) {
            more.key = Some(path);
        }
        abi::OK
    })
}

/// The differentiated services codepoint.
#[unsafe(no_mangle)]
pub extern "C" fn neat_set_qos(ctx: *mut Context, flow: *mut Flow, qos: u8) -> u64 {
    status(ctx, flow, |ctx, f| settings::set_qos(ctx, f, qos))
}

/// What was set.
#[unsafe(no_mangle)]
pub extern "C" fn neat_get_qos(ctx: *mut Context, flow: *mut Flow) -> c_int {
    with_flow(ctx, flow, 0, 0, |_, f| f.state.borrow().more.as_ref().map_or(0, |m| c_int::from(m.qos)))
}

/// The ECN codepoint.
#[unsafe(no_mangle)]
pub extern "C" fn neat_set_ecn(ctx: *mut Context, flow: *mut Flow, ecn: u8) -> u64 {
    status(ctx, flow, |ctx, f| settings::set_ecn(ctx, f, ecn))
}

/// How little of what was written may wait in the system before the flow is writable.
#[unsafe(no_mangle)]
pub extern "C" fn neat_set_low_watermark(ctx: *mut Context, flow: *mut Flow, watermark: u32) -> u64 {
    status(ctx, flow, |ctx, f| settings::set_low_watermark(ctx, f, watermark))
}

/// The descriptor of a flow's socket.
#[unsafe(no_mangle)]
pub extern "C" fn neat_get_socket_fd(flow: *mut Flow) -> c_int {
    flow_of(flow).map_or(-1, |f| guard(-1, || settings::socket_fd(Context::of(f.ctx), f)))
}

/// The sizes of a socket's buffers in the system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_get_max_buffer_sizes(flow: *mut Flow, send: *mut c_int, recv: *mut c_int) {
    let Some(f) = flow_of(flow) else { return };
    let (sending, receiving) = guard((0, 0), || {
        let fd = settings::socket_fd(Context::of(f.ctx), f);
        let of = |name| if fd > 0 { settings::integer_of(fd, libc::SOL_SOCKET, name).unwrap_or(0) } else { 0 };
        (of(libc::SO_SNDBUF), of(libc::SO_RCVBUF))
    });
    for (to, size) in [(send, sending), (recv, receiving)] {
        if !to.is_null() {
            // SAFETY: the caller's.
            unsafe { *to = size };
        }
    }
}

/// The name of the transport that carries a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neat_get_stack(flow: *mut Flow, ptr: *mut c_void, size: *mut usize) -> u64 {
    let Some(f) = flow_of(flow) else { return abi::BAD_ARGUMENT };
    if ptr.is_null() || size.is_null() {
        return abi::BAD_ARGUMENT;
    }
    let Some(stack) = guard(None, || f.state.borrow().stack) else { return abi::OK };
    let name = abi::stack_name(stack).as_bytes();
    // SAFETY: the caller's buffer of `*size` bytes, which is filled as strncpy does.
    unsafe {
        let room = *size;
        core::ptr::write_bytes(ptr.cast::<u8>(), 0, room);
        core::ptr::copy_nonoverlapping(name.as_ptr(), ptr.cast::<u8>(), name.len().min(room));
    }
    abi::OK
}

/// Calls `on_timeout` unless the flow is connected in time.
#[unsafe(no_mangle)]
pub extern "C" fn set_initiate_timer(ctx: *mut Context, flow: *mut Flow, ops: *mut Operations, timeout: c_float) {
    let Some(ops) = NonNull::new(ops) else { return };
    with_flow(ctx, flow, (), (), |ctx, f| settings::set_initiate_timer(ctx, f, ops, timeout));
}

/// Sets `userData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn set_ops_user_data(ops: *mut Operations, data: *mut c_uchar) {
    if !ops.is_null() {
        // SAFETY: the caller's struct.
        unsafe { (*ops).user_data = data.cast() };
    }
}

/// Reads `userData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ops_user_data(ops: *mut Operations) -> *mut c_uchar {
    match ops.is_null() {
        true => core::ptr::null_mut(),
        // SAFETY: the caller's struct.
        false => unsafe { (*ops).user_data }.cast(),
    }
}

/// Of WebRTC, which this build has not: `NEAT_ERROR_UNABLE`, and the text stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn neat_send_remote_parameters(ctx: *mut Context, flow: *mut Flow, _params: *mut c_char) -> u64 {
    status(ctx, flow, |_, _| abi::UNABLE)
}
