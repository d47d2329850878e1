//! Carriers: state machines for QUIC, DTLS, SCTP and sockets (TCP, TLS, UDP), side by side.
//!
//! *Responsible for* holding each protocol's state. Only this file names all carriers.

pub(crate) mod blame;
pub(crate) mod channel;
pub(crate) mod data;
mod deadline;
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
pub(crate) mod terms;
pub(crate) mod udp;

pub(crate) use self::ids::{FlowId, SessionId};
pub(crate) use self::quic::QuicCarrier;
pub(crate) use self::sctp::SctpCarrier;
pub(crate) use self::socket::SocketCarrier;
pub(crate) use self::tcp::accept::Begun;
pub(crate) use self::tcp::early::Early;
pub(crate) use self::udp::shared::Owner;
pub(crate) use self::udp::{Batch, each_datagram};

use crate::carrier::dtls::DtlsCarrier;
use crate::carrier::event::CarrierEvent;
use crate::carrier::layer::{LayerEvent, Layers};
use crate::carrier::packet::PacketInfo;
use crate::context::Context;
use neater_base::net::{Ecn, Net};

/// The carriers of an engine.
#[derive(Debug, Default)]
pub(crate) struct Carriers {
    pub(crate) quic: QuicCarrier,
    pub(crate) dtls: DtlsCarrier,
    pub(crate) sctp: SctpCarrier,
    pub(crate) sockets: SocketCarrier,
}

impl Carriers {
    /// The next event of a carrier.
    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        let (quic, dtls, sctp) = (&mut self.quic.events, &mut self.dtls.events, &mut self.sctp.events);
        let sockets = self.sockets.events.pop_front();
        let event = sockets.or_else(|| quic.pop_front()).or_else(|| dtls.pop_front()).or_else(|| sctp.pop_front());
        event.or_else(|| self.sockets.reading.pop_front().map(CarrierEvent::ReadOn))
    }

    /// Whether a carrier has something to report.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !(self.sockets.events.is_empty()
            && self.sockets.reading.is_empty()
            && self.quic.events.is_empty()
            && self.dtls.events.is_empty()
            && self.dtls.layer_events.is_empty()
            && !self.sctp.has_events())
    }
}

impl Carriers {
    /// See [`Layers`].
    pub(crate) fn layers(&mut self) -> Layers<'_> {
        Layers(&mut self.dtls)
    }

    /// SCTP, and the packet layers that it can send over.
    pub(super) fn over_layers(&mut self) -> (&mut SctpCarrier, Layers<'_>) {
        (&mut self.sctp, Layers(&mut self.dtls))
    }

    /// Runs the commands that are left for layers, then passes the next layer event to its user.
    /// False: there is no event.
    pub(crate) fn pass_between_layers<N: Net>(&mut self, cx: &mut Context<N>) -> bool {
        self.tie(cx);
        let Some(event) = self.dtls.layer_events.pop_front() else { return false };
        let (sctp, layers) = self.over_layers();
        match event {
            LayerEvent::Answered { user } => sctp.layer_answered(cx, user),
            LayerEvent::Up { user } | LayerEvent::Writable { user } => sctp.layer_up(cx, &layers, user),
            LayerEvent::Packet { user, from, ecn, data } => {
                let came = PacketInfo { from, to: None, marked: ecn == Ecn::Ce };
                sctp.datagram(cx, user, came, &data);
            }
            LayerEvent::Lost { user, from, end } => sctp.layer_lost(cx, user, from, &end),
            LayerEvent::Refused { user, error } => sctp.layer_refused(cx, user, error),
        }
        true
    }

    /// Executes the commands that users have left for packet layers.
    pub(super) fn tie<N: Net>(&mut self, cx: &mut Context<N>) {
        let (sctp, mut layers) = self.over_layers();
        sctp.tie(cx, &mut layers);
    }
}
