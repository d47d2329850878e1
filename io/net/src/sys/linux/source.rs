//! The source address that the kernel would choose (RFC 6724 section 5 is its business).

use super::addr::RawAddr;
use super::socket::open;
use super::{Result, local_addr, udp_connect};
use crate::sys::Traits;
use neater_base::net::{ErrorKind, SocketOptions};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// The discard port: connecting a datagram socket sends nothing, but zero is refused by some.
const PORT: u16 = 9;

/// A socket per family that is connected, asked and disconnected.
#[derive(Debug, Default)]
pub(crate) struct SourceProbe {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

impl SourceProbe {
    /// The address that a packet to `remote` would carry; `None` when there is no route.
    ///
    /// # Errors
    /// The query could not be made: this process has no descriptor, or the system no memory.
    pub(crate) fn ask(&mut self, remote: IpAddr) -> Result<Option<IpAddr>> {
        match self.try_ask(remote) {
            Ok(source) => Ok(Some(source)),
            Err(e) if matches!(e.kind, ErrorKind::TooManyFiles | ErrorKind::NoBuffers) => Err(e),
            Err(_) => Ok(None),
        }
    }

    fn try_ask(&mut self, remote: IpAddr) -> Result<IpAddr> {
        let v6 = remote.is_ipv6();
        let slot = if v6 { &mut self.v6 } else { &mut self.v4 };
        let socket = match slot {
            Some(fd) => fd,
            None => slot.insert(open(Traits { stream: false, v6 }, &SocketOptions::default())?),
        };
        let fd = socket.as_raw_fd();
        let source = udp_connect(fd, &SocketAddr::new(remote, PORT)).and_then(|()| local_addr(fd));
        // The address of one peer would stick for the next: dissolve the association. An address of
        // no family does it.
        let (nobody, len) = (RawAddr::empty(), size_of::<libc::sockaddr>() as libc::socklen_t);
        // SAFETY: `nobody` is larger than the `sockaddr` whose length is given.
        unsafe { libc::connect(fd, nobody.as_ptr(), len) };
        source.map(|address| address.ip())
    }
}
