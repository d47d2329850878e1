//! Packets of an IP protocol that the kernel does not speak itself (raw(7)).
//!
//! *Responsible for* opening such sockets, for why they cannot be had, and for taking the IP header
//! off what arrives: IPv4 delivers it, IPv6 does not (RFC 3542 section 3). Sending and receiving
//! are as for datagrams.

use super::addr::any;
use super::socket::{bind, open_as};
use super::{Result, udp};
use crate::sys::{Fd, Traits};
use neater_base::net::{ErrorKind, RecvBatch, SocketOptions};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

/// SCTP's protocol number (RFC 9260 section 1.5, IANA).
const SCTP: u8 = 132;
/// There while Linux' own SCTP is.
const LINUX_SCTP: &str = "/proc/net/sctp";

/// Opens a socket for the packets of a protocol, to `options.local` or to any address.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_RAW, or the error of the operating system.
pub(crate) fn raw_open(protocol: u8, v6: bool, options: &SocketOptions) -> Result<Fd> {
    let traits = Traits { stream: false, v6 };
    let fd = open_as(libc::SOCK_RAW, protocol.into(), traits, options)?;
    udp::tell_all(fd.as_raw_fd(), v6)?;
    if let Some(mut local) = options.local {
        local.set_port(0);
        bind(&fd, traits, &local)?;
    } else {
        bind(&fd, traits, &any(v6))?;
    }
    Ok(fd.into_raw_fd())
}

/// Why the packets of a protocol cannot be had on this host; `None`: nothing is known against it.
pub(crate) fn raw_obstacle(protocol: u8) -> Option<&'static str> {
    if protocol == SCTP && Path::new(LINUX_SCTP).exists() {
        return Some("Linux' own SCTP (the module sctp) is loaded here, and would answer every packet with an ABORT");
    }
    let nothing = SocketOptions::default();
    let open = |v6| open_as(libc::SOCK_RAW, protocol.into(), Traits { stream: false, v6 }, &nothing);
    match open(false).or_else(|e| if e.kind == ErrorKind::PermissionDenied { Err(e) } else { open(true) }) {
        Ok(_) => None,
        Err(e) if e.kind == ErrorKind::PermissionDenied => {
            Some("raw sockets take the privilege CAP_NET_RAW, which this process does not have")
        }
        Err(_) => Some("this system has no raw sockets"),
    }
}

/// Takes the IPv4 headers off the packets of a batch. What is no packet becomes an empty one.
pub(crate) fn strip_headers(batch: &mut RecvBatch) {
    for (meta, buffer) in batch.metas.iter_mut().zip(&batch.buffers) {
        let header = buffer.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
        let header = if header < 20 { meta.len } else { header.min(meta.len) };
        meta.start = header;
        meta.len -= header;
        // Nothing is coalesced here.
        meta.stride = meta.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::net::{Ecn, RecvMeta};

    #[test]
    fn headers_go_whatever_their_length_and_nonsense_is_empty() {
        let meta = |len| RecvMeta {
            source: ([192, 0, 2, 1], 0).into(),
            local: None,
            interface: None,
            ecn: Ecn::NotEct,
            start: 0,
            len,
            stride: len,
        };
        let mut batch = RecvBatch::default();
        // Without options, with 40 bytes of them, a header that claims to be longer than the
        // packet, one that is too short.
        for (first, len, left) in [(0x45, 100, 80), (0x4f, 100, 40), (0x4f, 30, 0), (0x44, 100, 0), (0x45, 20, 0)] {
            batch.metas.clear();
            batch.metas.push(meta(len));
            batch.buffers[0][0] = first;
            strip_headers(&mut batch);
            let (meta, data) = batch.filled().next().map(|(m, d)| (m, d.len())).expect("it is there");
            assert_eq!((meta.len, meta.stride, data), (left, left, left), "{first:x} {len}");
        }
    }
}
