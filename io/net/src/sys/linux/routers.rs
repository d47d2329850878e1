//! Raw ICMPv6 for router discovery (RFC 4861, raw(7), RFC 3542).
//!
//! *Responsible for* messages of one type in, with what distinguishes a neighbour's from a
//! forwarded one, and messages to a group out with a hop limit of 255. The kernel verifies and
//! computes checksums. *Deliberately not here*: the meaning of messages.

use super::addr::{RAW_LEN, RawAddr};
use super::errno::{check, retry};
use super::options::{set_bool, set_raw};
use super::poller::own;
use super::{Result, errno};
use crate::sys::{Neighbour, Role};
use neater_base::net::{ErrorKind, NetError};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `ICMP6_FILTER` of `linux/icmpv6.h`: a bit for each type, set for what is kept out.
const ICMP6_FILTER: libc::c_int = 1;
/// Neighbour discovery is for neighbours (RFC 4861 section 6.1.1).
const HOPS: libc::c_int = 255;
/// Room for an address with its interface, and for a hop limit.
const CONTROL_LEN: usize = 128;

/// A raw socket for one side of router discovery.
#[derive(Debug)]
pub(crate) struct RouterSocket {
    fd: OwnedFd,
    role: Role,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl RouterSocket {
    /// Opens one. It takes `CAP_NET_RAW`.
    pub(crate) fn open(role: Role) -> Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers and returns a new descriptor.
        let fd = own(unsafe { libc::socket(libc::AF_INET6, kind, libc::IPPROTO_ICMPV6) });
        let fd = fd.map_err(|e| errno::from_io(&e))?;
        let raw = fd.as_raw_fd();
        let mut filter = [u32::MAX; 8];
        filter[usize::from(role.heard() >> 5)] &= !(1 << (role.heard() & 31));
        set_raw(raw, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
        set_bool(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, true)?;
        set_bool(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, true)?;
        set_raw(raw, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &HOPS)?;
        set_bool(raw, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, false)?;
        Ok(Self { fd, role })
    }

    /// Receives one message into `buffer`; its length and where it came from.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<(usize, Neighbour)> {
        let (mut name, mut control) = (RawAddr::empty(), Control([0; CONTROL_LEN]));
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zero is an empty message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = RAW_LEN;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN as _;
        // SAFETY: name, payload and control are writable for the lengths given.
        let len = retry(|| unsafe { libc::recvmsg(self.fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) })?;
        let source = match name.get(message.msg_namelen) {
            Some(SocketAddr::V6(source)) => *source.ip(),
            _ => return Err(NetError::new(ErrorKind::FamilyNotSupported)),
        };
        // A value that the kernel does not report counts as a wrong one: a hop limit of 0 is no
        // neighbour's.
        let (mut interface, mut hop_limit) = (0, 0);
        // SAFETY: the kernel has filled the control buffer and set its length.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
        while !header.is_null() {
            // SAFETY: the header lies within the control buffer; CMSG_FIRSTHDR and CMSG_NXTHDR see
            // to it. Its data follow it, and are read as far as they lie within the buffer.
            let (level, kind, data) = unsafe {
                let start = libc::CMSG_DATA(header) as usize - control.0.as_ptr() as usize;
                let len = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = control.0.get(start..).map(|rest| &rest[..len.min(rest.len())]);
                ((*header).cmsg_level, (*header).cmsg_type, data.unwrap_or(&[]))
            };
            match (level, kind) {
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let told = data.first_chunk().map(|b| i32::from_ne_bytes(*b));
                    hop_limit = told.and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
                }
                // `struct in6_pktinfo`: an address of 16 bytes, and the interface.
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let told = data.get(16..).and_then(|d| d.first_chunk());
                    interface = told.map_or(0, |b| u32::from_ne_bytes(*b));
                }
                _ => {}
            }
            // SAFETY: as above.
            header = unsafe { libc::CMSG_NXTHDR(&message, header) };
        }
        Ok((len, Neighbour { interface, source, hop_limit }))
    }

    /// Sends a message to the other side's group on an interface.
    pub(crate) fn send(&self, index: u32, message: &[u8]) -> Result<()> {
        let group: Ipv6Addr = self.role.speaks_to();
        let (raw, len) = RawAddr::new(&SocketAddr::V6(SocketAddrV6::new(group, 0, 0, index)));
        let fd = self.fd.as_raw_fd();
        // SAFETY: message and address are readable for the lengths given.
        let send = || unsafe {
            libc::sendto(fd, message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL, raw.as_ptr(), len)
        };
        retry(send).map(drop)
    }

    /// Sends from this interface only, and receives on this one only.
    pub(crate) fn bind_to(&self, name: &str) -> Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the name is readable for its length; the kernel copies it.
        check(unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name.as_ptr().cast(),
                name.len() as libc::socklen_t,
            )
        })?;
        Ok(())
    }
}

impl AsFd for RouterSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
