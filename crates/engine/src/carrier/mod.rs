//! What carries connections: the protocols, side by side.
//!
//! *Responsible for* holding each protocol's state. This is the one file that names them all.

pub(crate) mod blame;
pub(crate) mod channel;
pub(crate) mod data;
pub(crate) mod dispatch;
pub(crate) mod dtls;
pub(crate) mod end;
pub(crate) mod establish;
pub(crate) mod event;
pub(crate) mod ids;
pub(crate) mod info;
pub(crate) mod layer;
pub(crate) mod listen;
pub(crate) mod misrouted;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod property;
pub(crate) mod quic;
pub(crate) mod reading;
pub(crate) mod resolver;
pub(crate) mod sctp;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod socket;
pub(crate) mod tcp;
pub(crate) mod udp;

pub(crate) use self::ids::{FlowId, SessionId};
pub(crate) use self::tcp::accept::Begun;
pub(crate) use self::tcp::early::Early;
pub(crate) use self::udp::shared::Owner;

use crate::carrier::channel::Channel;
use crate::carrier::dtls::DtlsCarrier;
use crate::carrier::event::{CarrierEvent, Events};
use crate::carrier::quic::{Quic, QuicSocket};
use crate::carrier::reading::Reading;
use crate::carrier::sctp::{Sctp, SctpEnd, SctpSocket};
use neater_base::net::SocketOptions;
use neater_base::{Key, Slab};
use std::collections::VecDeque;

/// All protocols.
#[derive(Debug, Default)]
pub(crate) struct Carriers {
    pub(crate) quic: QuicCarrier,
    pub(crate) dtls: DtlsCarrier,
    pub(crate) sctp: SctpCarrier,
    pub(crate) channels: Slab<Channel>,
    /// What is reported of these.
    pub(crate) socket_events: Events,
    /// Sockets that are to be read when everything that was reported is handled.
    reading: VecDeque<Reading>,
    /// Lingering sockets that were not read empty within the budget.
    pub(crate) pending_lingers: Vec<Key>,
    /// Shared UDP sockets, likewise.
    pub(crate) pending_shared: Vec<Key>,
    /// The UDP sockets of listeners that connections share, and what they were opened with, with the ports that they got.
    pub(crate) shared: Vec<(Key, SocketOptions)>,
    /// The same of listeners that have stopped: see [`listen`].
    pub(crate) left_behind: Vec<(Key, SocketOptions)>,
}

/// QUIC (RFC 9000).
#[derive(Debug, Default)]
pub(crate) struct QuicCarrier {
    pub(crate) events: Events,
    pub(crate) connections: Slab<Quic>,
    pub(crate) sockets: Slab<QuicSocket>,
    /// Client-side sockets that new connections may share.
    pub(crate) client_sockets: Vec<(crate::carrier::quic::Sharing, Key)>,
    /// Connections that have something to do.
    pub(crate) dirty: Vec<Key>,
    /// Sockets that were not read empty within the budget.
    pub(crate) unread: Vec<Key>,
    /// How often windows were looked at when this carrier has last looked at its own: see [`crate::context::Windows::looks`].
    pub(crate) looked: u64,
}

/// SCTP (RFC 9260) over UDP, IP or DTLS.
#[derive(Debug, Default)]
pub(crate) struct SctpCarrier {
    pub(crate) events: Events,
    pub(crate) associations: Slab<Sctp>,
    pub(crate) endpoints: Slab<SctpEnd>,
    pub(crate) sockets: Slab<SctpSocket>,
    /// Client-side sockets that new associations may share.
    pub(crate) client_sockets: Vec<(crate::carrier::sctp::Sharing, Key)>,
    /// Endpoints that have something to do.
    pub(crate) dirty: Vec<Key>,
    /// Associations that may be over and unused.
    untidy: Vec<Key>,
    /// What is left to do to the layers below.
    ties: Vec<crate::carrier::sctp::Tie>,
    /// Sockets that were not read empty within the budget.
    pub(crate) unread: Vec<Key>,
    /// How often windows were looked at when this carrier has last looked at its own: see [`crate::context::Windows::looks`].
    pub(crate) looked: u64,
}

impl Carriers {
    /// What a carrier reports next.
    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        let (quic, dtls, sctp) = (&mut self.quic.events, &mut self.dtls.events, &mut self.sctp.events);
        let sockets = self.socket_events.pop_front();
        let event = sockets.or_else(|| quic.pop_front()).or_else(|| dtls.pop_front()).or_else(|| sctp.pop_front());
        event.or_else(|| self.reading.pop_front().map(CarrierEvent::ReadOn))
    }

    /// Whether a carrier has something to report.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !(self.socket_events.is_empty()
            && self.reading.is_empty()
            && self.quic.events.is_empty()
            && self.dtls.events.is_empty()
            && self.dtls.layer_events.is_empty()
            && !self.sctp.has_events())
    }
}
