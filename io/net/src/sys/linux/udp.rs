//! Datagrams.
//!
//! *Responsible for* opening, batched sending and receiving. Receiving is `quinn-udp`'s (`recvmmsg`
//! and the decoding of its control messages), and so is the finding out of what the kernel can do.
//!
//! *Deliberately not `quinn-udp`'s*:
//!
//! * Its setup of a socket: ten system calls, of which timestamps, no fragmentation and the probing
//!   of the kernel are not wanted for each socket. A resolver opens one per query.
//! * Its sending: it overwrites the whole traffic class with the ECN bits, so that a DSCP is lost,
//!   and one `EINVAL` (an IPv6 source address that has gone) switches ECN and segmentation off for
//!   good.
//!
//! *Invariant*: a batch is handed to the kernel whole, or from its front; what the kernel then has
//! no room for is lost like any datagram.

use super::Result;
use super::addr::{RawAddr, any, in_addr};
use super::errno::{check, from_io, retry};
use super::options::set_bool;
use super::socket::{bind, open, open_as};
use crate::sys::{Fd, Outgoing, Traits};
use neater_base::net::{BATCH, Ecn, ErrorKind, NetError, RecvBatch, RecvMeta, SocketOptions};
use quinn_udp::{UdpSockRef, UdpSocketState};
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

/// Buffers in one receive call.
const RECV_BATCH: usize = if quinn_udp::BATCH_SIZE < BATCH { quinn_udp::BATCH_SIZE } else { BATCH };
/// Room for the control messages of one send: traffic class, segment size, source address.
const CONTROL_LEN: usize = 128;

/// What the kernel can do for datagrams, found out once on a socket that is then thrown away.
#[derive(Debug)]
pub(crate) struct UdpSupport {
    state: UdpSocketState,
}

impl UdpSupport {
    /// Asks the kernel.
    ///
    /// # Errors
    /// No descriptor left, or no Internet protocol.
    pub(crate) fn probe() -> Result<Self> {
        let nothing = SocketOptions::default();
        let fd = open(Traits { stream: false, v6: false }, &nothing)
            .or_else(|_| open(Traits { stream: false, v6: true }, &nothing))?;
        let state = UdpSocketState::new(UdpSockRef::from(&fd)).map_err(|e| from_io(&e))?;
        Ok(Self { state })
    }

    /// How many segments the kernel takes at once.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }
}

/// Opens a socket, bound to `options.local` or to any address.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn udp_open(support: &UdpSupport, v6: bool, options: &SocketOptions) -> Result<Fd> {
    let traits = Traits { stream: false, v6 };
    let protocol = if options.udp_lite { libc::IPPROTO_UDPLITE } else { 0 };
    let fd = open_as(libc::SOCK_DGRAM, protocol, traits, options)?;
    let raw = fd.as_raw_fd();
    if v6 {
        set_bool(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, true)?;
    }
    tell_all(raw, v6)?;
    // The kernel coalesces UDP alone.
    if support.state.gro_segments() > 1 && !options.udp_lite {
        set_bool(raw, libc::SOL_UDP, libc::UDP_GRO, true)?;
    }
    bind(&fd, traits, &options.local.unwrap_or(any(v6)))?;
    Ok(fd.into_raw_fd())
}

/// Why there are no UDP-Lite sockets on this host; `None`: nothing is known against them.
pub(crate) fn udp_lite_obstacle() -> Option<&'static str> {
    let nothing = SocketOptions::default();
    let open = |v6| open_as(libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE, Traits { stream: false, v6 }, &nothing);
    match open(false).or_else(|_| open(true)).map_err(|e| e.kind) {
        Err(ErrorKind::Unsupported | ErrorKind::FamilyNotSupported) => {
            Some("this system has no UDP-Lite (newer versions of Linux have retired it)")
        }
        Err(ErrorKind::PermissionDenied) => Some("this process may not open UDP-Lite sockets"),
        // Without a descriptor, for example, the system has not been asked.
        _ => None,
    }
}

/// Enables all metadata of arriving datagrams: where it was sent to, by which interface it came,
/// how it is marked.
pub(super) fn tell_all(fd: Fd, v6: bool) -> Result<()> {
    if v6 {
        set_bool(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, true)?;
        set_bool(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, true)
    } else {
        set_bool(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, true)?;
        set_bool(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, true)
    }
}

/// Fixes the peer.
///
/// # Errors
/// No route.
pub(crate) fn udp_connect(fd: Fd, remote: &SocketAddr) -> Result<()> {
    let (raw, len) = RawAddr::new(remote);
    // SAFETY: `raw` is an address of `len` bytes. On a datagram socket the call does not wait.
    check(unsafe { libc::connect(fd, raw.as_ptr(), len) })?;
    Ok(())
}

/// Sends a batch. `offload` shows whether the kernel may be asked to cut it up, and becomes false
/// when it turns out that the device cannot.
///
/// # Errors
/// `WouldBlock`, `MessageTooLarge`, a pending ICMP error; for a source that this host does not
/// have, `AddrNotAvailable`, or `NetworkUnreachable` where the kernel does not distinguish the two.
pub(crate) fn udp_send(fd: Fd, out: &Outgoing<'_>, offload: &mut bool) -> Result<()> {
    let Some(size) = out.segment_size else {
        return send_one(fd, out, out.contents, None);
    };
    if *offload {
        match send_one(fd, out, out.contents, Some(size)) {
            // The device cannot compute checksums (udp(7)).
            Err(e) if e.code == Some(libc::EIO) => *offload = false,
            // Something about this batch: more than 64 kB in all, or segments that need
            // fragmentation. The error of a single datagram, if there is one, is the true one.
            Err(NetError {
                kind: ErrorKind::InvalidInput | ErrorKind::AddrNotAvailable | ErrorKind::MessageTooLarge,
                ..
            }) => {}
            result => return result,
        }
    }
    for (i, datagram) in out.contents.chunks(usize::from(size).max(1)).enumerate() {
        match send_one(fd, out, datagram, None) {
            Ok(()) => {}
            Err(e) if i == 0 => return Err(e),
            // The front is on its way. Were the rest reported, the caller would send the front
            // again.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Control messages as they are written.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_LEN],
    len: usize,
}

impl Control {
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        // SAFETY: these compute numbers.
        let (space, len) = unsafe { (libc::CMSG_SPACE(size_of::<T>() as _), libc::CMSG_LEN(size_of::<T>() as _)) };
        let space = space as usize;
        let Some(at) = self.bytes.get_mut(self.len..self.len + space) else {
            debug_assert!(false, "CONTROL_LEN holds every combination");
            return;
        };
        let header = at.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `at` is `CMSG_SPACE` bytes, aligned like every message because spaces are
        // multiples of the alignment, so that header and value fit; the value may be less aligned
        // than its type wants.
        unsafe {
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space;
    }
}

fn send_one(fd: Fd, out: &Outgoing<'_>, contents: &[u8], segment: Option<u16>) -> Result<()> {
    let mut control = Control { bytes: [0; CONTROL_LEN], len: 0 };
    let name = out.destination.as_ref().map(RawAddr::new);
    if out.ecn != Ecn::NotEct {
        let class = libc::c_int::from(out.dscp) << 2 | out.ecn as libc::c_int;
        if out.v6 {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class);
        } else {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, class);
        }
    }
    if let Some(size) = segment {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }
    match out.source {
        None => {}
        Some(IpAddr::V4(ip)) => {
            let ipi_ifindex = out.interface as libc::c_int;
            let info =
                libc::in_pktinfo { ipi_ifindex, ipi_spec_dst: in_addr(ip), ipi_addr: libc::in_addr { s_addr: 0 } };
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            let ipi6_ifindex = out.interface;
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex };
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
    let mut part = libc::iovec { iov_base: contents.as_ptr().cast_mut().cast(), iov_len: contents.len() };
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    if let Some((raw, len)) = &name {
        message.msg_name = raw.as_ptr().cast_mut().cast();
        message.msg_namelen = *len;
    }
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if control.len > 0 {
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.len as _;
    }
    // SAFETY: name, payload and control messages live until the call returns, and the kernel does
    // not write to them.
    match retry(|| unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) }) {
        Ok(_) => Ok(()),
        Err(e) if e.code == Some(libc::EINVAL) && out.source.is_some() => {
            Err(NetError { kind: ErrorKind::AddrNotAvailable, code: e.code })
        }
        Err(e) => Err(e),
    }
}

/// Receives a batch and returns how many buffers are filled.
///
/// # Errors
/// `WouldBlock`, or a pending ICMP error.
pub(crate) fn udp_recv(support: &UdpSupport, fd: Fd, batch: &mut RecvBatch) -> Result<usize> {
    let RecvBatch { buffers, metas, drained } = batch;
    metas.clear();
    let count = buffers.len().min(RECV_BATCH);
    if count == 0 {
        return Err(NetError::new(ErrorKind::InvalidInput));
    }
    let mut given = buffers.iter_mut();
    let mut slices: [IoSliceMut<'_>; RECV_BATCH] =
        core::array::from_fn(|_| IoSliceMut::new(given.next().map_or(&mut [], |b| b)));
    let mut found = [quinn_udp::RecvMeta::default(); RECV_BATCH];
    // SAFETY: the caller keeps the descriptor open for the duration of the call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let n = support
        .state
        .recv(UdpSockRef::from(&socket), &mut slices[..count], &mut found[..count])
        .map_err(|e| from_io(&e))?;
    // The kernel stops early for nothing else: an error that was pending is returned before
    // anything is received (recvmmsg(2)), and one that came meanwhile makes an edge of its own.
    *drained = n < count;
    metas.extend(found[..n].iter().map(|m| RecvMeta {
        source: m.addr,
        local: m.dst_ip,
        interface: m.interface_index,
        ecn: m.ecn.map_or(Ecn::NotEct, |e| Ecn::from_bits(e as u8)),
        start: 0,
        len: m.len,
        stride: m.stride,
    }));
    Ok(n)
}
