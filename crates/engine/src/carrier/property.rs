//! Connection Properties that a carrier keeps itself, and their values.
//!
//! *Responsible for* properties that mean something to a session. *Not responsible for* those that
//! are options of a socket, nor for names and values ([`crate::properties`]).

use super::{Carriers, FlowId};
use crate::Stack;
use crate::context::Context;
use core::time::Duration;
use neater_base::net::{Net, NetError};
use neater_property::MultipathPolicy;
use std::net::IpAddr;

/// Bytes of headers in a UDP packet, by family.
const UDP_HEADERS: (usize, usize) = (28, 48);
/// The largest payload of a UDP datagram over IPv4; IPv6 allows 20 bytes more, on which no program
/// can count.
const UDP_PAYLOAD_MAX: usize = 65_507;

/// A property that carriers know (RFC 9622 section 8.1), and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarrierProperty {
    /// `connTimeout`.
    Timeout(Option<Duration>),
    /// `keepAliveTimeout`.
    KeepAlive(Option<Duration>),
    /// `multipathPolicy`.
    MultipathPolicy(MultipathPolicy),
}

impl FlowId {
    /// Whether its session is over after some silence of the peer, whether that was asked for or
    /// not.
    pub(crate) const fn has_idle_timeout(self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Datagrams { .. })
    }
}

impl Carriers {
    /// Sets a property of what carries a connection, which may be a session of several. `None`: it
    /// is an option of its socket, if it has one.
    pub(crate) fn set<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        flow: FlowId,
        property: CarrierProperty,
    ) -> Option<Result<(), NetError>> {
        match (flow, property) {
            (FlowId::Stream { quic, .. } | FlowId::Datagrams { quic }, CarrierProperty::KeepAlive(every)) => {
                Some(self.quic.keep_alive_every(cx, quic, every))
            }
            (FlowId::Stream { quic, .. } | FlowId::Datagrams { quic }, CarrierProperty::Timeout(limit)) => {
                Some(self.quic.limit_silence(cx, quic, limit))
            }
            (FlowId::Sctp { sctp, .. }, CarrierProperty::Timeout(limit)) => {
                self.sctp.set_user_timeout(sctp, limit);
                Some(Ok(()))
            }
            (FlowId::Sctp { sctp, stream }, CarrierProperty::MultipathPolicy(policy)) => {
                self.sctp.set_policy(sctp, stream, policy);
                Some(Ok(()))
            }
            // Others have one path at a time.
            (_, CarrierProperty::MultipathPolicy(_)) => Some(Ok(())),
            _ => None,
        }
    }

    /// How long a message may be that leaves in one packet of UDP, on a link that takes packets of
    /// `mtu` bytes. `None`: it is gone.
    pub(crate) fn datagram_room(&self, flow: FlowId, mtu: usize, from: IpAddr) -> Option<usize> {
        let sealing = match flow {
            FlowId::Dtls { dtls } => self.dtls.sessions.get(dtls)?.overhead(),
            _ => 0,
        };
        let headers = if from.is_ipv4() { UDP_HEADERS.0 } else { UDP_HEADERS.1 };
        Some(mtu.saturating_sub(headers + sealing))
    }
}

/// The longest message that can come over a stack which keeps messages apart by itself, in bytes.
/// `None`: it does not, and what does, decides.
pub(crate) const fn message_max(stack: Stack) -> Option<usize> {
    match stack {
        Stack::Dtls => Some(neater_dtls::MAX_MESSAGE),
        Stack::Udp | Stack::QuicDatagram => Some(UDP_PAYLOAD_MAX),
        Stack::Tcp | Stack::Tls | Stack::Quic | Stack::Sctp | Stack::SctpIp | Stack::SctpDtls => None,
    }
}
