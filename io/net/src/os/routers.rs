//! Router discovery (RFC 4861): receiving routers' advertisements; and the other side of it, for
//! routers of tests.
//!
//! *Responsible for* messages and where they came from. *Deliberately not here*: their meaning,
//! which is `neater_policy::pvd`'s, and whether they count: a hop limit below 255 means that a
//! message came through a router.

use crate::sys::RouterSocket;
use neater_base::net::{ErrorKind, NetError};
use std::io;
use std::net::Ipv6Addr;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// The longest message that is received, in bytes.
pub const MAX_MESSAGE: usize = 65_535;
/// A router solicitation without options (RFC 4861 section 4.1); the system computes its checksum.
const SOLICITATION: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];

/// A side of router discovery. It receives what the system itself listens to: for solicitations,
/// the system must forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives advertisements, and solicits them.
    Host,
    /// Receives solicitations, and advertises.
    Router,
}

#[cfg_attr(any(not(target_os = "linux"), feature = "shell"), expect(dead_code, reason = "the shell receives nothing"))]
impl Role {
    /// The type of the messages that are received.
    pub(crate) const fn heard(self) -> u8 {
        match self {
            Self::Host => 134,
            Self::Router => 133,
        }
    }

    /// The group that is spoken to: all routers or all nodes of the link (RFC 4291 section 2.7.1).
    pub(crate) const fn speaks_to(self) -> Ipv6Addr {
        match self {
            Self::Host => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2),
            Self::Router => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        }
    }
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The index of the interface that it came over.
    pub interface: u32,
    /// Its source address.
    pub source: Ipv6Addr,
    /// Its hop limit; 0 where the system does not report it.
    pub hop_limit: u8,
}

/// A socket for one side of router discovery. It takes `CAP_NET_RAW`.
#[derive(Debug)]
pub struct RouterDiscovery {
    socket: RouterSocket,
    role: Role,
}

impl RouterDiscovery {
    /// Opens one that does not block; its descriptor is readable when there is a message.
    ///
    /// # Errors
    /// The error of the operating system: `PermissionDenied` without the capability, `Unsupported`
    /// where there is no such socket.
    pub fn open(role: Role) -> io::Result<Self> {
        let socket = RouterSocket::open(role).map_err(io_error)?;
        Ok(Self { socket, role })
    }

    /// Receives and sends on one interface only.
    ///
    /// # Errors
    /// The error of the operating system: there is no such interface.
    pub fn bind_to(&self, interface: &str) -> io::Result<()> {
        self.socket.bind_to(interface).map_err(io_error)
    }

    /// Receives a message; `None` when there is none at the moment.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(&'a [u8], Neighbour)>> {
        match self.socket.receive(buffer) {
            Ok((len, from)) => Ok(Some((buffer.get(..len).unwrap_or_default(), from))),
            Err(e) if e.kind == ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(io_error(e)),
        }
    }

    /// Asks the routers of an interface to advertise (RFC 4861 section 6.3.7).
    ///
    /// # Errors
    /// The error of the operating system; `InvalidInput` for the router's side.
    pub fn solicit(&self, interface: u32) -> io::Result<()> {
        if self.role != Role::Host {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.socket.send(interface, &SOLICITATION).map_err(io_error)
    }

    /// Sends an advertisement to all hosts of an interface, from its link-local address.
    ///
    /// # Errors
    /// The error of the operating system; `InvalidInput` for the host's side.
    pub fn advertise(&self, interface: u32, message: &[u8]) -> io::Result<()> {
        if self.role != Role::Router {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.socket.send(interface, message).map_err(io_error)
    }
}

fn io_error(e: NetError) -> io::Error {
    match (e.code, e.kind) {
        (Some(code), _) => io::Error::from_raw_os_error(code),
        (None, ErrorKind::Unsupported) => io::ErrorKind::Unsupported.into(),
        (None, kind) => io::Error::other(format!("{kind:?}")),
    }
}

#[cfg(unix)]
impl AsFd for RouterDiscovery {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(unix)]
impl AsRawFd for RouterDiscovery {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
