//! Listeners (RFC 9622 section 7.2, RFC 9623 section 4.7).

use crate::carrier::listen::Listening;
use crate::{Request, Stack};
pub(crate) use accept::gave_up;
use neater_base::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) mod accept;

/// A listener: sockets of every eligible protocol on every eligible address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) request: Request,
    /// Where it listens, in the order in which it began to.
    pub(crate) listening: Vec<Listening>,
    pub(crate) addrs: Vec<(Stack, SocketAddr)>,
    /// How many connections may still be delivered (RFC 9622 section 7.2, SetNewConnectionLimit).
    pub(crate) limit: Option<u64>,
    /// Connections whose handshake is not finished.
    pub(crate) handshaking: usize,
    /// Groups are delivered instead of connections where the transport has streams.
    pub(crate) groups: bool,
    /// What waits for the program, or for its peer.
    pub(crate) backlog: crate::backlog::Backlog,
    /// A deadline to accept again is set: one is enough, however many sockets want it.
    pub(crate) accept_armed: Option<Instant>,
}

/// The unspecified address of the family of `like`, with a port.
pub(crate) fn any_like(like: IpAddr, port: u16) -> SocketAddr {
    match like {
        IpAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
        IpAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
    }
}
