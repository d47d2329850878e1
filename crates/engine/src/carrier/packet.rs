//! What is known of a packet beside its bytes.

use neater_quic::{Datagram, Transmit};
use std::net::{IpAddr, SocketAddr};

/// Where an SCTP packet has come from and to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketInfo {
    pub(crate) from: SocketAddr,
    /// The local address, if the socket reports it.
    pub(crate) to: Option<IpAddr>,
    /// Whether the network has marked it (RFC 3168).
    pub(crate) marked: bool,
}

/// What the sender of a datagram is sent if its connection is unknown everywhere.
pub(in crate::carrier) type Answer = (Transmit, Box<[u8]>);

/// Which carrier's datagram it is, and what came with it.
#[derive(Debug)]
pub(crate) struct Misrouted(pub(in crate::carrier) Packet);

#[derive(Debug)]
pub(in crate::carrier) enum Packet {
    Quic(Datagram, Option<Answer>),
    Sctp(PacketInfo),
}
