//! An ICMP error for a TCP connection attempt. No loopback address is unreachable, so that the
//! router is this test: in a network of its own, with an interface that leads nowhere.

use super::host::{elsewhere, ip};
use super::*;
use neater_base::net::{ErrorKind, SocketOption};

const ETH_P_ALL: u16 = 3;

/// A socket of the test's; its reads give up after a while.
fn raw(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> i32 {
    // SAFETY: takes numbers; the option is a readable `timeval`.
    unsafe {
        let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let limit = libc::timeval { tv_sec: 5, tv_usec: 0 };
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const limit).cast(), 16);
        fd
    }
}

/// The next packet on any interface with this IP version that carries TCP.
fn capture(sniffer: i32, version: u8) -> Vec<u8> {
    loop {
        let mut packet = vec![0; 2048];
        // SAFETY: `packet` is writable for its length.
        let n = unsafe { libc::recv(sniffer, packet.as_mut_ptr().cast(), packet.len(), 0) };
        assert!(n > 0, "no packet came by");
        packet.truncate(n as usize);
        let protocol = if version == 4 { packet[9] } else { packet[6] };
        if packet[0] >> 4 == version && protocol == 6 {
            return packet;
        }
    }
}

/// RFC 1071.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Host unreachable (RFC 792) or address unreachable (RFC 4443 section 3.1), quoting a packet.
fn unreachable(v6: bool, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![if v6 { 1 } else { 3 }, if v6 { 3 } else { 1 }, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(quoted);
    // Over IPv6 the kernel does it.
    let sum = if v6 { 0 } else { checksum(&message) };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn send_to(fd: i32, ip: IpAddr, message: &[u8]) {
    let socket = std::mem::ManuallyDrop::new({
        use std::os::fd::FromRawFd;
        // SAFETY: only for the sending; it is not dropped, so that the descriptor stays the
        // caller's.
        unsafe { std::net::UdpSocket::from_raw_fd(fd) }
    });
    assert_eq!(socket.send_to(message, (ip, 0)).unwrap(), message.len());
}

#[test]
fn the_icmp_error_that_ends_a_connection_attempt_says_who_could_not_reach_whom() {
    elsewhere(|| {
        let ready = ip("link set lo up")
            && ip("link add nowhere type veth peer name deadend")
            && ip("link set nowhere arp off")
            && ip("link set deadend up")
            && ip("link set nowhere up")
            && ip("addr add 192.0.2.1/24 dev nowhere")
            && ip("addr add 2001:db8::1/64 dev nowhere nodad");
        if !ready {
            return;
        }
        let sniffer = raw(libc::AF_PACKET, libc::SOCK_DGRAM, libc::c_int::from(ETH_P_ALL.to_be()));
        for (ours, theirs) in [("192.0.2.1", "192.0.2.9:80"), ("2001:db8::1", "[2001:db8::9]:80")] {
            let (ours, theirs): (IpAddr, SocketAddr) = (ours.parse().unwrap(), theirs.parse().unwrap());
            let v6 = ours.is_ipv6();
            let mut net = OsNet::new().unwrap();
            let options = SocketOptions { set: vec![SocketOption::IcmpErrors(true)], ..SocketOptions::default() };
            let c = net.connect(Token(1), theirs, &options).unwrap();
            let syn = capture(sniffer, if v6 { 6 } else { 4 });
            assert!(net.connect_result(c).unwrap_err().is_would_block() && net.take_icmp_error(c).is_none());
            let (family, protocol) =
                if v6 { (libc::AF_INET6, libc::IPPROTO_ICMPV6) } else { (libc::AF_INET, libc::IPPROTO_ICMP) };
            let router = raw(family, libc::SOCK_RAW, protocol);
            // The host may lose a packet that comes from nowhere; one that has ended the attempt
            // finds nothing to end again.
            for _ in 0..10 {
                send_to(router, ours, &unreachable(v6, &syn));
                if super::readable(net.as_raw_fd(), Duration::from_millis(400)) {
                    break;
                }
            }
            super::ready(&mut net, Token(1), |r| r.error);
            let error = net.take_icmp_error(c).unwrap();
            assert_eq!((error.destination, error.offender), (Some(theirs), Some(ours)));
            assert_eq!((error.icmp_type, error.icmp_code), if v6 { (1, 3) } else { (3, 1) });
            assert_eq!(error.error.kind, ErrorKind::HostUnreachable);
            assert_eq!(net.connect_result(c).unwrap_err().kind, ErrorKind::HostUnreachable);
            crate::sys::close(router);
        }
        crate::sys::close(sniffer);
    });
}
