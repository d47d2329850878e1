//! Sockets: what a handle of `Net` names.

use crate::udp::UdpSocket;
use neater_base::Key;
use neater_base::net::{IcmpError, Ready, Token};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// ICMP errors kept for a socket; more are dropped.
pub(crate) const MAX_ICMP_ERRORS: usize = 32;

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) token: Token,
    pub(crate) watch: Watch,
    pub(crate) wants_icmp: bool,
    pub(crate) icmp: VecDeque<IcmpError>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Stream(Stream),
    Listener(Box<Listener>),
    Udp(Box<UdpSocket>),
}

/// The application's end of a TCP connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) conn: Key,
    pub(crate) local: SocketAddr,
    /// The end of the attempt has not been reported.
    pub(crate) connecting: bool,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    pub(crate) interface: Option<u32>,
    pub(crate) reuse: bool,
    pub(crate) backlog: usize,
    /// Connections that wait to be accepted, oldest first.
    pub(crate) queue: VecDeque<Key>,
    /// Connections whose handshake is not complete.
    pub(crate) half_open: usize,
    pub(crate) options: Box<crate::tcp::Options>,
}

impl Listener {
    /// As in Linux, one more than the backlog may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() > self.backlog
    }
}

/// Edge-triggered readiness: what was promised by a `WouldBlock`, and what is to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) wants_read: bool,
    pub(crate) wants_write: bool,
    /// That it is over was reported.
    pub(crate) told: bool,
    pub(crate) pending: Ready,
    /// It stands in the host's list of ready sockets.
    pub(crate) listed: bool,
}

impl Socket {
    pub(crate) fn new(token: Token, kind: Kind) -> Self {
        Self { token, watch: Watch::default(), wants_icmp: false, icmp: VecDeque::new(), kind }
    }
}
