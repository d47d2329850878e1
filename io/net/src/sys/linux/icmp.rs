//! The error queue of a socket (`IP_RECVERR`, ip(7) and ipv6(7)).
//!
//! *Responsible for* turning one entry into an [`IcmpError`]. Errors that this host found itself (a
//! datagram larger than the path MTU it has learnt) take the form of the router's message that they
//! repeat, without an offender.

use super::addr::{RAW_LEN, RawAddr};
use super::errno::{from_errno, retry};
use crate::sys::Fd;
use neater_base::net::{IcmpError, Quoted};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Entries that are no errors (timestamps, notifications) are passed over, at most this many in one
/// call.
const MAX_SKIPPED: usize = 16;
const CONTROL_LEN: usize = 512;

/// Takes the oldest error; `None` when there is none.
pub(crate) fn take_icmp_error(fd: Fd) -> Option<IcmpError> {
    (0..MAX_SKIPPED).map_while(|_| next(fd)).find_map(|entry| entry)
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// One entry: `None` when the queue is empty, `Some(None)` when it is not an error.
fn next(fd: Fd) -> Option<Option<IcmpError>> {
    let (mut name, mut control, mut payload) = (RawAddr::empty(), Control([0; CONTROL_LEN]), [0u8; Quoted::MAX]);
    let mut part = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = RAW_LEN;
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_LEN as _;
    // SAFETY: name, payload and control are writable for the lengths given.
    let len = retry(|| unsafe { libc::recvmsg(fd, &mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) }).ok()?;
    let quoted = Quoted::new(payload.get(..len).unwrap_or(&[]));
    let destination = name.get(message.msg_namelen);
    // SAFETY: the kernel has filled the control buffer and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !header.is_null() {
        // SAFETY: the header lies within the control buffer; CMSG_FIRSTHDR and CMSG_NXTHDR see to
        // it. Its data follow it, and their length is checked against the end of the buffer.
        let (level, kind, data) = unsafe {
            let start = libc::CMSG_DATA(header) as usize - control.0.as_ptr() as usize;
            let len = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = control.0.get(start..).map(|rest| &rest[..len.min(rest.len())]);
            ((*header).cmsg_level, (*header).cmsg_type, data.unwrap_or(&[]))
        };
        if matches!((level, kind), (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)) {
            return Some(decode(destination, data, quoted));
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&message, header) };
    }
    Some(None)
}

/// `struct sock_extended_err` and the address of the offender behind it.
fn decode(destination: Option<SocketAddr>, data: &[u8], quoted: Quoted) -> Option<IcmpError> {
    let (fixed, offender) = data.split_first_chunk::<16>()?;
    let [e0, e1, e2, e3, origin, icmp_type, icmp_code, _, i0, i1, i2, i3, ..] = *fixed;
    let errno = i32::from_ne_bytes([e0, e1, e2, e3]);
    let info = u32::from_ne_bytes([i0, i1, i2, i3]);
    let v6 = destination.map_or(origin == libc::SO_EE_ORIGIN_ICMP6, |d| d.is_ipv6());
    // "Fragmentation needed" (RFC 792, RFC 1191 section 4) and "packet too big" (RFC 4443 section
    // 3.2).
    let too_big = if v6 { (2, 0) } else { (3, 4) };
    let (icmp_type, icmp_code) = match origin {
        libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => (icmp_type, icmp_code),
        libc::SO_EE_ORIGIN_LOCAL if errno == libc::EMSGSIZE => too_big,
        _ => return None,
    };
    Some(IcmpError {
        destination,
        quoted,
        offender: decode_offender(offender),
        icmp_type,
        icmp_code,
        // A router before RFC 1191 sends zero.
        mtu: ((icmp_type, icmp_code) == too_big && info > 0).then_some(info),
        error: from_errno(errno),
    })
}

/// A `sockaddr` of unspecified alignment.
fn decode_offender(bytes: &[u8]) -> Option<IpAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    match family {
        libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?))),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::ErrorKind;

    fn entry(errno: i32, origin: u8, icmp: (u8, u8), info: u32) -> Vec<u8> {
        let mut bytes = errno.to_ne_bytes().to_vec();
        bytes.extend([origin, icmp.0, icmp.1, 0]);
        bytes.extend(info.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn a_router_that_says_fragmentation_needed_tells_the_mtu() {
        let mut bytes = entry(libc::EMSGSIZE, libc::SO_EE_ORIGIN_ICMP, (3, 4), 1280);
        bytes.extend((libc::AF_INET as u16).to_ne_bytes());
        bytes.extend([0, 0, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let to = SocketAddr::from(([198, 51, 100, 1], 443));
        let error = decode(Some(to), &bytes, Quoted::new(&[7; 40])).unwrap();
        assert_eq!(error.quoted.as_slice(), [7; Quoted::MAX]);
        assert_eq!((error.mtu, error.offender), (Some(1280), Some(IpAddr::from([192, 0, 2, 1]))));
        assert_eq!((error.error.kind, error.destination), (ErrorKind::MessageTooLarge, Some(to)));
    }

    #[test]
    fn entries_cut_short_or_of_another_origin_are_not_errors() {
        let whole = entry(libc::ECONNREFUSED, libc::SO_EE_ORIGIN_ICMP6, (1, 4), 0);
        for len in 0..16 {
            assert_eq!(decode(None, &whole[..len], Quoted::default()), None);
        }
        assert_eq!(decode(None, &whole, Quoted::default()).unwrap().offender, None);
        assert_eq!(decode(None, &entry(0, libc::SO_EE_ORIGIN_TIMESTAMPING, (0, 0), 0), Quoted::default()), None);
    }

    #[test]
    fn a_local_size_error_looks_like_the_routers_message_it_repeats() {
        let to = "[2001:db8::1]:443".parse().ok();
        let local = entry(libc::EMSGSIZE, libc::SO_EE_ORIGIN_LOCAL, (0, 0), 1400);
        let error = decode(to, &local, Quoted::default()).unwrap();
        assert_eq!((error.icmp_type, error.icmp_code, error.mtu), (2, 0, Some(1400)));
    }
}
