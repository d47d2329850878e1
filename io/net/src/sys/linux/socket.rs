//! What streams, listeners and datagram sockets have in common.

use super::addr::{RAW_LEN, RawAddr};
use super::errno::{check, last};
use super::{Result, options};
use crate::sys::{Fd, Traits};
use neater_base::net::{ErrorKind, NetError, SocketOptions};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A new socket, with the options that come before an address.
#[inline]
pub(super) fn open(traits: Traits, options: &SocketOptions) -> Result<OwnedFd> {
    if options.multipath
        && traits.stream
        && let Some(fd) = super::mptcp::open(traits, options)
    {
        return Ok(fd);
    }
    let kind = if traits.stream { libc::SOCK_STREAM } else { libc::SOCK_DGRAM };
    open_as(kind, 0, traits, options)
}

/// The same, of any kind and protocol.
#[inline]
pub(super) fn open_as(
    kind: libc::c_int,
    protocol: libc::c_int,
    traits: Traits,
    options: &SocketOptions,
) -> Result<OwnedFd> {
    let family = if traits.v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: takes numbers and returns a new descriptor.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol) };
    let fd = super::poller::own(fd).map_err(|e| super::errno::from_io(&e))?;
    options::apply(fd.as_raw_fd(), traits, options)?;
    Ok(fd)
}

/// Gives a socket its address.
pub(super) fn bind(fd: &OwnedFd, traits: Traits, local: &SocketAddr) -> Result<()> {
    if local.is_ipv6() != traits.v6 {
        return Err(NetError::new(ErrorKind::InvalidInput));
    }
    let (raw, len) = RawAddr::new(local);
    // SAFETY: `raw` is an address of `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), len) })?;
    Ok(())
}

/// The socket's own address.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn local_addr(fd: Fd) -> Result<SocketAddr> {
    let (mut raw, mut len) = (RawAddr::empty(), RAW_LEN);
    // SAFETY: `raw` has room for `len` bytes.
    check(unsafe { libc::getsockname(fd, raw.as_mut_ptr(), &mut len) })?;
    raw.get(len).ok_or(NetError::new(ErrorKind::FamilyNotSupported))
}

/// Releases a descriptor; the kernel takes it out of the epoll.
#[inline]
pub(crate) fn close(fd: Fd) {
    // SAFETY: the caller owns the descriptor and forgets it. On Linux it is released even if a
    // signal interrupts.
    unsafe { libc::close(fd) };
}

/// Releases a stream and sends a reset instead of what is still unsent.
pub(crate) fn abort(fd: Fd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // Should it fail, closing in the ordinary way is all that is left.
    let _ = options::set_raw(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    close(fd);
}

/// Reads an option of fixed size.
#[inline]
pub(super) fn get_int(fd: Fd, level: libc::c_int, name: libc::c_int) -> Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    if unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) } < 0 {
        return Err(last());
    }
    Ok(value)
}
