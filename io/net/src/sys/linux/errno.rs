//! Error numbers to kinds.

use super::Result;
use neater_base::net::{ErrorKind, NetError};

/// The error that the last system call of this thread left.
pub(super) fn last() -> NetError {
    from_errno(last_code())
}

/// Its number.
pub(super) fn last_code() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An error of the standard library or of `quinn-udp`.
pub(crate) fn from_io(error: &std::io::Error) -> NetError {
    error.raw_os_error().map_or(NetError::new(ErrorKind::Other), from_errno)
}

/// `-1` means that the error number has the reason.
#[inline]
pub(super) fn check(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// Repeats a call that a signal interrupted.
///
/// A call on a non-blocking descriptor does not sleep, so that this cannot go on for long.
#[inline]
pub(super) fn retry(mut call: impl FnMut() -> isize) -> Result<usize> {
    let first = call();
    told(first, call)
}

/// What a call of this thread that returned `first` a moment ago has come to; repeats it if a
/// signal interrupted it.
#[inline]
pub(crate) fn told(first: isize, call: impl FnMut() -> isize) -> Result<usize> {
    match usize::try_from(first) {
        Ok(n) => Ok(n),
        Err(_) => retry_again(call),
    }
}

/// A call has failed; the error number shows whether to try again.
#[inline(never)]
fn retry_again(mut call: impl FnMut() -> isize) -> Result<usize> {
    loop {
        match last_code() {
            libc::EINTR => {}
            code => return Err(from_errno(code)),
        }
        if let Ok(n) = usize::try_from(call()) {
            return Ok(n);
        }
    }
}

/// The kind of every error number that a socket call is documented to give; the rest is `Other`.
pub(super) fn from_errno(code: i32) -> NetError {
    let kind = match code {
        libc::EAGAIN | libc::EINPROGRESS | libc::EALREADY => ErrorKind::WouldBlock,
        libc::ECONNREFUSED => ErrorKind::ConnectionRefused,
        libc::ECONNRESET | libc::ENETRESET => ErrorKind::ConnectionReset,
        libc::ECONNABORTED => ErrorKind::ConnectionAborted,
        libc::ETIMEDOUT => ErrorKind::TimedOut,
        libc::ENETUNREACH => ErrorKind::NetworkUnreachable,
        libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENONET => ErrorKind::HostUnreachable,
        // An interface that has gone is as good as down.
        libc::ENETDOWN | libc::ENODEV | libc::ENXIO => ErrorKind::NetworkDown,
        libc::EADDRINUSE => ErrorKind::AddrInUse,
        libc::EADDRNOTAVAIL => ErrorKind::AddrNotAvailable,
        libc::EAFNOSUPPORT | libc::EPFNOSUPPORT => ErrorKind::FamilyNotSupported,
        libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
        libc::EMFILE | libc::ENFILE => ErrorKind::TooManyFiles,
        // ENOSPC: epoll's limit of watched descriptors.
        libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC => ErrorKind::NoBuffers,
        libc::EMSGSIZE => ErrorKind::MessageTooLarge,
        libc::EPIPE | libc::ESHUTDOWN => ErrorKind::BrokenPipe,
        libc::ENOTCONN | libc::EBADF | libc::ENOTSOCK => ErrorKind::NotConnected,
        libc::EINVAL | libc::EFAULT | libc::EDESTADDRREQ | libc::EISCONN | libc::EDOM => ErrorKind::InvalidInput,
        libc::ENOPROTOOPT
        | libc::EOPNOTSUPP
        | libc::ENOSYS
        | libc::EPROTONOSUPPORT
        | libc::EPROTOTYPE
        | libc::ESOCKTNOSUPPORT => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    };
    NetError { kind, code: Some(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_keeps_its_number_and_the_unknown_ones_are_other() {
        for code in 1..200 {
            assert_eq!(from_errno(code).code, Some(code));
        }
        assert_eq!(from_errno(libc::EPROTO).kind, ErrorKind::Other);
        assert_eq!(from_errno(libc::EMFILE).kind, ErrorKind::TooManyFiles);
        assert_eq!(from_errno(libc::EHOSTDOWN).kind, ErrorKind::HostUnreachable);
    }
}
