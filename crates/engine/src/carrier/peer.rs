//! A peer of a socket that several share: its address, and where its packets arrive.

use neater_base::net::RecvMeta;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The peer of a socket that several share, and at which address of this host: an answer from
/// another one would not be taken for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    pub(crate) remote: SocketAddr,
    /// `None`: the system chooses, or does not report it.
    pub(crate) here: Option<IpAddr>,
    /// Of a link-local address, which several interfaces may have; otherwise 0.
    pub(crate) interface: u32,
}

impl Peer {
    pub(crate) fn of(meta: &RecvMeta) -> Self {
        let link_local = matches!(meta.local, Some(IpAddr::V6(ip)) if ip.is_unicast_link_local());
        let interface = meta.interface.filter(|_| link_local).unwrap_or(0);
        Self { remote: meta.source, here: meta.local, interface }
    }

    /// The address of this host's that answers come from, and its interface.
    pub(crate) fn source(&self) -> (Option<IpAddr>, Option<u32>) {
        (self.here, Some(self.interface).filter(|i| *i != 0))
    }

    /// Where a socket that is bound like this is for this peer.
    pub(crate) fn local(&self, bound: SocketAddr) -> SocketAddr {
        match self.here {
            Some(IpAddr::V6(ip)) => SocketAddrV6::new(ip, bound.port(), 0, self.interface).into(),
            Some(ip) => SocketAddr::new(ip, bound.port()),
            None => bound,
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(remote: SocketAddr) -> Self {
        Self { remote, here: None, interface: 0 }
    }
}
