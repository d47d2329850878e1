//! Socket options.
//!
//! *Responsible for* every field of `SocketOptions` and every `SocketOption`: each is set on the
//! socket or refused. *Deliberately not here*: defaults; what is not asked for costs no system
//! call.

use super::Result;
use super::errno::check;
use super::socket::get_int;
use crate::sys::{Fd, Traits};
use core::time::Duration;
use neater_base::net::{ErrorKind, NetError, SocketOption, SocketOptions};

/// Unanswered keep-alive probes before a connection is dead: the kernel's default, set so that no
/// sysctl changes it.
const KEEP_ALIVE_PROBES: libc::c_int = 9;
/// `TCP_KEEPIDLE` and `TCP_KEEPINTVL` take at most this many seconds.
const MAX_KEEP_ALIVE_SECS: u64 = 32_767;
/// The two low bits of the traffic class are ECN's (RFC 3168 section 5).
const ECN_BITS: libc::c_int = 3;
/// Not in `libc` for every target.
pub(super) const SO_BINDTOIFINDEX: libc::c_int = 62;
/// Checksum coverage of sent and least coverage of received datagrams (`linux/udp.h`); not in
/// `libc`.
const UDPLITE_SEND_CSCOV: libc::c_int = 10;
const UDPLITE_RECV_CSCOV: libc::c_int = 11;

/// Sets an option to a value of the kernel's form.
pub(super) fn set_raw<T>(fd: Fd, level: libc::c_int, name: libc::c_int, value: &T) -> Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` points to `len` readable bytes; the kernel copies them.
    check(unsafe { libc::setsockopt(fd, level, name, core::ptr::from_ref(value).cast(), len) })?;
    Ok(())
}

fn set_int(fd: Fd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> Result<()> {
    set_raw(fd, level, name, &value)
}

pub(super) fn set_bool(fd: Fd, level: libc::c_int, name: libc::c_int, on: bool) -> Result<()> {
    set_int(fd, level, name, libc::c_int::from(on))
}

/// What is asked for at the opening, except the address.
#[inline]
pub(super) fn apply(fd: Fd, traits: Traits, options: &SocketOptions) -> Result<()> {
    // Most connections ask for nothing.
    if options.set.is_empty()
        && options.interface.is_none()
        && options.temporary_address.is_none()
        && !options.reuse_address
    {
        return Ok(());
    }
    apply_all(fd, traits, options)
}

fn apply_all(fd: Fd, traits: Traits, options: &SocketOptions) -> Result<()> {
    if options.reuse_address {
        // SO_REUSEADDR lets a server restart; two sockets at once need SO_REUSEPORT on both.
        set_bool(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, true)?;
        set_bool(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, true)?;
    }
    if let Some(index) = options.interface {
        bind_to_interface(fd, traits, index)?;
    }
    if let Some(temporary) = options.temporary_address
        && traits.v6
    {
        // RFC 5014 section 5.
        let preference = if temporary { libc::IPV6_PREFER_SRC_TMP } else { libc::IPV6_PREFER_SRC_PUBLIC };
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_ADDR_PREFERENCES, preference)?;
    }
    for option in &options.set {
        set_option(fd, traits, *option)?;
    }
    Ok(())
}

/// Ties a socket to an interface.
///
/// SO_BINDTOIFINDEX comes first: since Linux 5.7 it needs no privilege on a socket that is not yet
/// tied, takes an index where SO_BINDTODEVICE takes a name that can change its owner, and it is a
/// real tie: TCP and UDP, both directions. On an older kernel an unprivileged UDP socket still gets
/// IP_UNICAST_IF, which chooses the way out only. It has no effect on TCP connections, which are
/// therefore refused rather than sent by the wrong interface.
fn bind_to_interface(fd: Fd, traits: Traits, index: u32) -> Result<()> {
    let Some(value) = libc::c_int::try_from(index).ok().filter(|i| *i > 0) else {
        return Err(NetError::new(ErrorKind::InvalidInput));
    };
    // The kernel would tie a socket to an interface that does not exist.
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = value;
    // SAFETY: this request reads the index and writes the name.
    check(unsafe { libc::ioctl(fd, libc::SIOCGIFNAME, &mut request) })?;
    match set_int(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, value) {
        Err(e) if !traits.stream && matches!(e.kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
            if traits.v6 {
                set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF, value.to_be())
            } else {
                set_int(fd, libc::IPPROTO_IP, libc::IP_UNICAST_IF, value.to_be())
            }
        }
        result => result,
    }
}

/// Sets one option.
///
/// # Errors
/// `Unsupported` where the socket has no such thing, `InvalidInput` for a value out of range, or
/// the error of the operating system.
pub(crate) fn set_option(fd: Fd, traits: Traits, option: SocketOption) -> Result<()> {
    match option {
        SocketOption::NoDelay(on) => {
            stream_only(traits)?;
            set_bool(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, on)
        }
        SocketOption::Dscp(codepoint) => set_dscp(fd, traits, codepoint),
        SocketOption::KeepAlive(idle) => {
            stream_only(traits)?;
            set_keep_alive(fd, idle)
        }
        SocketOption::UserTimeout(timeout) => {
            stream_only(traits)?;
            // Zero means the system's default; what is shorter than a millisecond does not become
            // that default.
            let millis = timeout.map_or(0, |t| t.as_millis().clamp(1, i32::MAX as u128) as libc::c_int);
            set_int(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
        }
        SocketOption::ReceiveBuffer(bytes) => set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, saturate(bytes)),
        SocketOption::SendBuffer(bytes) => set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, saturate(bytes)),
        SocketOption::IcmpErrors(on) => {
            if traits.v6 {
                set_bool(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, on)
            } else {
                set_bool(fd, libc::IPPROTO_IP, libc::IP_RECVERR, on)
            }
        }
        SocketOption::DontFragment(on) => set_dont_fragment(fd, traits, on),
        SocketOption::NoUdpChecksum(on) => {
            // IPv6 forbids it outside of tunnels (RFC 6935), and Linux drops such packets. UDP-Lite
            // has no datagrams without one (RFC 3828 section 3.1), and Linux would ignore the
            // option.
            if traits.stream || traits.v6 || is_udp_lite(fd)? {
                return Err(NetError::new(ErrorKind::Unsupported));
            }
            set_bool(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, on)
        }
        SocketOption::NotSentLowWater(bytes) => {
            stream_only(traits)?;
            let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
            set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value)
        }
        // Higher ones need a capability, and are for the system's own use.
        SocketOption::Priority(p @ 0..=6) => set_int(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, libc::c_int::from(p)),
        SocketOption::Priority(_) => Err(NetError::new(ErrorKind::InvalidInput)),
        SocketOption::ChecksumCoverage(bytes) => set_coverage(fd, UDPLITE_SEND_CSCOV, bytes),
        SocketOption::MinChecksumCoverage(bytes) => set_coverage(fd, UDPLITE_RECV_CSCOV, bytes),
        // The enum may grow: what is not known here is not done.
        _ => Err(NetError::new(ErrorKind::Unsupported)),
    }
}

fn stream_only(traits: Traits) -> Result<()> {
    if traits.stream { Ok(()) } else { Err(NetError::new(ErrorKind::Unsupported)) }
}

fn saturate(bytes: usize) -> libc::c_int {
    libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX)
}

fn set_dscp(fd: Fd, traits: Traits, codepoint: u8) -> Result<()> {
    if codepoint > 63 {
        return Err(NetError::new(ErrorKind::InvalidInput));
    }
    let (level, name) =
        if traits.v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    // On a TCP socket the ECN bits are the congestion control's, on a UDP socket the application's:
    // leave them.
    let ecn = get_int(fd, level, name)? & ECN_BITS;
    set_int(fd, level, name, libc::c_int::from(codepoint) << 2 | ecn)
}

fn is_udp_lite(fd: Fd) -> Result<bool> {
    Ok(get_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_UDPLITE)
}

/// Any other socket than one of UDP-Lite refuses it.
fn set_coverage(fd: Fd, name: libc::c_int, bytes: u16) -> Result<()> {
    // The kernel would make 8 of these.
    if matches!(bytes, 1..=7) {
        return Err(NetError::new(ErrorKind::InvalidInput));
    }
    set_int(fd, libc::IPPROTO_UDPLITE, name, libc::c_int::from(bytes))
}

fn set_keep_alive(fd: Fd, idle: Option<Duration>) -> Result<()> {
    if let Some(idle) = idle {
        let secs = |s: u64| s.clamp(1, MAX_KEEP_ALIVE_SECS) as libc::c_int;
        // Round up: never probe more often than asked.
        let idle_secs = idle.as_secs().saturating_add(u64::from(idle.subsec_nanos() > 0));
        set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, secs(idle_secs))?;
        set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, secs(idle_secs / 10))?;
        set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEP_ALIVE_PROBES)?;
    }
    set_bool(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, idle.is_some())
}

/// TCP follows the path MTU that the kernel knows. On UDP the protocol above finds it out itself,
/// with packets that are larger than what the kernel believes (RFC 8899); the interface's MTU
/// remains the limit. `false` is the system's default: the kernel fragments what is larger than the
/// path.
fn set_dont_fragment(fd: Fd, traits: Traits, on: bool) -> Result<()> {
    let mode = match (on, traits.stream) {
        (true, true) => libc::IP_PMTUDISC_DO,
        (true, false) => libc::IP_PMTUDISC_PROBE,
        (false, _) => libc::IP_PMTUDISC_WANT,
    };
    if traits.v6 {
        // The values are the same for both families.
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, mode)?;
        // Without this one the sender still fragments (`__ip6_append_data` in the kernel).
        if !traits.stream {
            set_bool(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, on)?;
        }
        Ok(())
    } else {
        set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)
    }
}
