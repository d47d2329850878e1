//! Streams and listeners.

use super::Result;
use super::addr::{RAW_LEN, RawAddr};
use super::errno::{check, from_errno, last_code, retry};
use super::options::set_bool;
use super::socket::{bind, get_int, open};
use crate::sys::{Fd, Traits};
use neater_base::net::{ErrorKind, NetError, SocketOptions};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

/// Connections that may wait to be accepted when the caller sets no number.
const DEFAULT_BACKLOG: u32 = 1024;
/// The kernel takes no more buffers in one call.
const MAX_BUFFERS: usize = 1024;
/// Connections that died while they waited are passed over, at most this many in one call.
const MAX_DEAD_ACCEPTS: usize = 16;

/// Starts a connection.
///
/// # Errors
/// What can be known at once.
#[inline]
pub(crate) fn tcp_connect(remote: &SocketAddr, options: &SocketOptions) -> Result<Fd> {
    let traits = Traits { stream: true, v6: remote.is_ipv6() };
    let fd = open(traits, options)?;
    if let Some(local) = &options.local {
        bind_late(&fd, traits, local)?;
    }
    let (raw, len) = RawAddr::new(remote);
    // SAFETY: `raw` is an address of `len` bytes.
    if unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), len) } < 0 {
        match last_code() {
            // After EINTR the connection goes on by itself.
            libc::EINPROGRESS | libc::EINTR => {}
            // Here it does not mean "later" (connect(2)).
            libc::EAGAIN => return Err(NetError { kind: ErrorKind::NoBuffers, code: Some(libc::EAGAIN) }),
            code => return Err(from_errno(code)),
        }
    }
    Ok(fd.into_raw_fd())
}

/// Gives a socket that will connect its address.
fn bind_late(fd: &OwnedFd, traits: Traits, local: &SocketAddr) -> Result<()> {
    if local.port() == 0 {
        // The port is chosen when the peer is known: only the pair must be unique, not the port. A
        // kernel that does not know this (before 4.2) chooses early.
        let _ = set_bool(fd.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, true);
    } else {
        // The attempts of a race come from one port, to several peers; what an earlier connection
        // has left there holds up none.
        set_bool(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, true)?;
    }
    bind(fd, traits, local)
}

/// How a connection attempt that has come to an end ended.
///
/// # Errors
/// Why it failed.
#[inline]
pub(crate) fn tcp_connect_error(fd: Fd) -> Result<()> {
    match get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        code => Err(from_errno(code)),
    }
}

/// Listens.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn tcp_listen(local: &SocketAddr, options: &SocketOptions) -> Result<Fd> {
    match listen_at(local, options) {
        // Whatever such a socket cannot do, one of ordinary TCP may.
        Err(_) if options.multipath => listen_at(local, &SocketOptions { multipath: false, ..options.clone() }),
        result => result,
    }
}

fn listen_at(local: &SocketAddr, options: &SocketOptions) -> Result<Fd> {
    let traits = Traits { stream: true, v6: local.is_ipv6() };
    let fd = open(traits, options)?;
    if !options.reuse_address {
        // A server must be able to restart while its old connections linger.
        set_bool(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, true)?;
    }
    if traits.v6 {
        // One family per socket, regardless of the sysctl: [::] and 0.0.0.0 can have the same port.
        set_bool(fd.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, true)?;
    }
    bind(&fd, traits, local)?;
    let backlog = libc::c_int::try_from(options.backlog.unwrap_or(DEFAULT_BACKLOG)).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes numbers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(fd.into_raw_fd())
}

/// Takes one established connection.
///
/// # Errors
/// `WouldBlock` when there is none; else the error of the operating system.
pub(crate) fn tcp_accept(listener: Fd) -> Result<(Fd, SocketAddr)> {
    for _ in 0..MAX_DEAD_ACCEPTS {
        let (mut raw, mut len) = (RawAddr::empty(), RAW_LEN);
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: `raw` has room for `len` bytes.
        let fd = unsafe { libc::accept4(listener, raw.as_mut_ptr(), &mut len, flags) };
        if fd >= 0 {
            match raw.get(len) {
                Some(peer) => return Ok((fd, peer)),
                None => {
                    super::close(fd);
                    continue;
                }
            }
        }
        match last_code() {
            // The connection died in the queue; accept(2) lists these as errors of the connection,
            // not of the listener.
            libc::EINTR
            | libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH => {}
            code => return Err(from_errno(code)),
        }
    }
    // There may be more behind them, and no new edge follows: not `WouldBlock`.
    Err(NetError::new(ErrorKind::ConnectionAborted))
}

/// Reads bytes, and returns the system's result: 0 at the end of the peer's direction, negative for
/// an error, for which [`super::told`] is to be asked at once.
#[inline(always)]
pub(crate) fn tcp_read_once(fd: Fd, buf: &mut [u8]) -> isize {
    // Not recv(2), which is the same without flags and prepares three arguments more.
    // SAFETY: `buf` is writable for its length.
    unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) }
}

/// Writes some of the bytes.
///
/// # Errors
/// `WouldBlock`, or why the connection is gone.
#[inline]
pub(crate) fn tcp_write(fd: Fd, bufs: &[IoSlice<'_>]) -> Result<usize> {
    match bufs {
        [buf] => retry(|| tcp_write_once(fd, buf)),
        bufs => tcp_write_many(fd, bufs),
    }
}

/// As [`tcp_write`] of one buffer, returning the system's result, as [`tcp_read_once`] does.
#[inline(always)]
pub(crate) fn tcp_write_once(fd: Fd, buf: &[u8]) -> isize {
    // SAFETY: `buf` is readable for its length.
    unsafe { libc::send(fd, buf.as_ptr().cast(), buf.len(), libc::MSG_NOSIGNAL) }
}

#[inline(never)]
fn tcp_write_many(fd: Fd, bufs: &[IoSlice<'_>]) -> Result<usize> {
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    // `IoSlice` is guaranteed to have the form of an `iovec`; the kernel does not write to it.
    message.msg_iov = bufs.as_ptr().cast_mut().cast();
    message.msg_iovlen = bufs.len().min(MAX_BUFFERS) as _;
    // SAFETY: the message names `msg_iovlen` readable buffers and nothing else.
    retry(|| unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) })
}

/// Closes the sending direction.
///
/// # Errors
/// When the connection is gone.
pub(crate) fn tcp_shutdown_write(fd: Fd) -> Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::shutdown(fd, libc::SHUT_WR) })?;
    Ok(())
}
