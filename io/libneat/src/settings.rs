//! Settings of one flow: options of its socket, its addresses, timers.

use crate::abi::{self, Operations};
use crate::context::{Context, make_handle};
use crate::dispatch;
use crate::flow::{Flow, Phase};
use crate::log::Level;
use crate::uv::{self, UvHandle};
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::time::Duration;
use neater_base::net::{NetError, SocketOption};
use neater_engine::{ConnectionId, Stack};
use std::net::{IpAddr, SocketAddr};

/// The connection of a flow, and what carries it.
fn carried(f: &Flow) -> Option<(ConnectionId, Stack)> {
    let s = f.state.borrow();
    Some((s.conn?, s.stack?))
}

fn set(ctx: &Context, conn: ConnectionId, option: SocketOption) -> Result<(), NetError> {
    let mut core = ctx.core.borrow_mut();
    let result = core.engine.set_option(conn, option);
    ctx.after_call(&mut core);
    result
}

/// Sets TCP's congestion control.
pub(crate) fn set_congestion(fd: c_int, name: &str) -> bool {
    let length = libc::socklen_t::try_from(name.len()).unwrap_or(0);
    // SAFETY: the text is `length` bytes, and the descriptor is an open one of the engine's.
    unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast::<c_void>(), length) == 0
    }
}

/// `neat_change_timeout`.
pub(crate) fn change_timeout(ctx: &Context, f: &Flow, seconds: u32) -> u64 {
    let stack = f.state.borrow().stack;
    if stack.is_some_and(|s| !matches!(s, Stack::Tcp | Stack::Tls)) {
        return abi::UNABLE;
    }
    let Some((conn, _)) = carried(f) else { return abi::BAD_ARGUMENT };
    if seconds > (u32::MAX - 1000) / 1000 {
        return abi::BAD_ARGUMENT;
    }
    // 0 is the system's own time.
    let timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    match set(ctx, conn, SocketOption::UserTimeout(timeout)) {
        Ok(()) => abi::OK,
        Err(_) => abi::IO,
    }
}

/// `neat_set_primary_dest`.
pub(crate) fn set_primary_dest(ctx: &Context, f: &Flow, name: &str) -> u64 {
    let Some((conn, stack)) = carried(f).filter(|(_, s)| s.is_sctp()) else { return abi::UNABLE };
    let Ok(ip) = name.parse::<IpAddr>() else { return abi::BAD_ARGUMENT };
    let core = ctx.core.borrow();
    let paths = core.engine.paths(conn);
    if !paths.iter().any(|p| p.remote.ip() == ip.to_canonical()) {
        ctx.log.line(Level::Warning, format_args!("{ip} is no address that the peer has over {stack}"));
    } else if paths.len() > 1 {
        ctx.log
            .line(Level::Info, format_args!("the paths of {stack} are chosen by what they carry; {ip} stays a wish"));
    }
    abi::OK
}

/// `neat_set_checksum_coverage`.
pub(crate) fn set_checksum_coverage(ctx: &Context, f: &Flow, send: u32) -> u64 {
    match carried(f) {
        Some((conn, Stack::Udp)) => match set(ctx, conn, SocketOption::NoUdpChecksum(send == 0)) {
            Ok(()) => abi::OK,
            Err(_) => abi::UNABLE,
        },
        _ => abi::UNABLE,
    }
}

/// `neat_set_qos`.
pub(crate) fn set_qos(ctx: &Context, f: &Flow, qos: u8) -> u64 {
    f.state.borrow_mut().more().qos = qos;
    let Some((conn, stack)) = carried(f) else { return abi::OK };
    match set(ctx, conn, SocketOption::Dscp(qos & 0x3f)) {
        Err(_) if stack == Stack::Udp => abi::UNABLE,
        // Several flows share the socket, and its marks with it.
        Err(e) => {
            ctx.log.line(Level::Info, format_args!("the codepoint is kept and not sent: {e}"));
            abi::OK
        }
        Ok(()) => abi::OK,
    }
}

/// `neat_set_ecn`.
pub(crate) fn set_ecn(ctx: &Context, f: &Flow, ecn: u8) -> u64 {
    let (ecn, qos) = {
        let mut s = f.state.borrow_mut();
        let more = s.more();
        more.ecn = ecn & 3;
        (more.ecn, more.qos)
    };
    // TCP and SCTP mark by themselves what they can react to.
    let Some((conn, Stack::Udp)) = carried(f) else { return abi::OK };
    let core = ctx.core.borrow();
    let Some(fd) = core.engine.descriptor(conn) else { return abi::UNABLE };
    let tos = c_int::from((qos & 0x3f) << 2 | ecn);
    let v6 = core.engine.remote_addr(conn).is_some_and(|a| a.is_ipv6());
    let (level, name) = if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    match set_integer(fd, level, name, tos) {
        true => abi::OK,
        false => abi::UNABLE,
    }
}

fn set_integer(fd: c_int, level: c_int, name: c_int, value: c_int) -> bool {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `value` is an int, as these options are, and the descriptor is an open one of the
    // engine's.
    unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast::<c_void>(), length) == 0 }
}

/// An option that is an int.
pub(crate) fn integer_of(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the option writes at most `length` bytes to `value`.
    let e = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast::<c_void>(), &raw mut length) };
    (e == 0).then_some(value)
}

/// `neat_set_low_watermark`.
pub(crate) fn set_low_watermark(ctx: &Context, f: &Flow, watermark: u32) -> u64 {
    match carried(f) {
        Some((conn, Stack::Tcp | Stack::Tls)) => match set(ctx, conn, SocketOption::NotSentLowWater(watermark)) {
            Ok(()) => abi::OK,
            Err(_) => abi::UNABLE,
        },
        _ => abi::UNABLE,
    }
}

/// The descriptor of a flow's socket: 0 before it is connected, -1 where it has none of its own.
pub(crate) fn socket_fd(ctx: &Context, f: &Flow) -> c_int {
    match carried(f) {
        Some((conn, _)) => ctx.core.borrow().engine.descriptor(conn).unwrap_or(-1),
        None => 0,
    }
}

/// Local or remote addresses of a flow.
pub(crate) fn addresses(ctx: &Context, f: &Flow, local: bool) -> Vec<SocketAddr> {
    let Some(conn) = f.state.borrow().conn else { return Vec::new() };
    let stack = f.state.borrow().stack;
    let core = ctx.core.borrow();
    let mut all = Vec::new();
    if stack.is_some_and(Stack::is_sctp) {
        for path in core.engine.paths(conn) {
            let at = if local { path.local } else { path.remote };
            if !all.contains(&at) {
                all.push(at);
            }
        }
    }
    if all.is_empty() {
        let one = if local { core.engine.local_addr(conn) } else { core.engine.remote_addr(conn) };
        all.extend(one);
    }
    all
}

/// These addresses as C has them, one behind the other, in memory of the C library's.
pub(crate) fn to_c(addresses: &[SocketAddr]) -> *mut libc::sockaddr {
    let mut bytes: Vec<u8> = Vec::new();
    let family = |f: c_int| libc::sa_family_t::try_from(f).unwrap_or(0).to_ne_bytes();
    for a in addresses {
        match a {
            SocketAddr::V4(a) => {
                bytes.extend(family(libc::AF_INET));
                bytes.extend(a.port().to_be_bytes());
                bytes.extend(a.ip().octets());
                bytes.extend([0; 8]);
            }
            SocketAddr::V6(a) => {
                bytes.extend(family(libc::AF_INET6));
                bytes.extend(a.port().to_be_bytes());
                bytes.extend(a.flowinfo().to_be_bytes());
                bytes.extend(a.ip().octets());
                bytes.extend(a.scope_id().to_ne_bytes());
            }
        }
    }
    // As large as any address, so that a reader of a sockaddr_storage stays within.
    let size = bytes.len().max(size_of::<libc::sockaddr_storage>());
    // SAFETY: `size` bytes are asked for, of which the first are written.
    unsafe {
        let memory = libc::calloc(1, size);
        if !memory.is_null() {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), bytes.len());
        }
        memory.cast()
    }
}

/// `set_initiate_timer`.
pub(crate) fn set_initiate_timer(ctx: &Context, f: &Flow, ops: NonNull<Operations>, seconds: f32) {
    let mut s = f.state.borrow_mut();
    if !matches!(s.phase, Phase::New | Phase::Opening) || !seconds.is_finite() {
        return;
    }
    dispatch::stop_timer(&mut s);
    let Some(timer) = make_handle(uv::TIMER) else { return };
    // SAFETY: the handle is memory of the size that libuv asks for a timer, the loop is
    // initialised, and the flow outlives the timer: closing it stops it.
    unsafe {
        if uv::uv_timer_init(ctx.events.ptr, timer) != 0 {
            libc::free(timer.cast());
            return;
        }
        uv::uv_handle_set_data(timer, f.as_ptr().cast::<c_void>());
        uv::uv_timer_start(timer, on_initiate_timer, (f64::from(seconds.max(0.0)) * 1000.0) as u64, 0);
    }
    let more = s.more();
    (more.timer, more.timer_ops) = (NonNull::new(timer), Some(ops));
}

/// The time of `set_initiate_timer` is over.
extern "C" fn on_initiate_timer(handle: *mut UvHandle) {
    // SAFETY: the data is the flow, until the timer is closed.
    let Some(flow) = NonNull::new(unsafe { uv::uv_handle_get_data(handle) }.cast::<Flow>()) else { return };
    // SAFETY: closing a flow closes its timer, before it is freed.
    let f = unsafe { flow.as_ref() };
    let ctx = Context::of(f.ctx);
    let ops = {
        let Ok(mut s) = f.state.try_borrow_mut() else { return };
        let ops = s.more.as_ref().and_then(|m| m.timer_ops);
        dispatch::stop_timer(&mut s);
        ops.filter(|_| s.phase == Phase::Opening)
    };
    let Some(ops) = ops else { return };
    // SAFETY: the program has promised that its struct outlives the timer.
    let on_timeout = unsafe {
        (*ops.as_ptr()).ctx = ctx.as_ptr();
        (*ops.as_ptr()).flow = f.as_ptr();
        (*ops.as_ptr()).on_timeout
    };
    if let Some(on_timeout) = on_timeout {
        dispatch::outer(f.ctx, || {
            on_timeout(ops.as_ptr());
        });
    }
}
