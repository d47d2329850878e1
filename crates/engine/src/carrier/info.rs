//! Answers about a flow, whichever protocol carries it.
//!
//! *Responsible for* addresses, security, and the counters of transports. Asking changes nothing.

use super::channel::{Channel, Kind};
use super::dtls::Dtls;
use super::tcp::paths::TcpPaths;
use super::{Carriers, FlowId, SessionId};
use crate::carrier::peer::Peer;
use crate::context::Context;
use crate::measured::TransportCounters;
use crate::path::{EndpointChange, EndpointError, PathInfo, PathUse};
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::ConnectionApi;
use neater_tls::TlsStream;
use std::net::SocketAddr;

/// The headers of IP and TCP with timestamps, in bytes (RFC 791, RFC 9293, RFC 7323).
const TCP_HEADERS: u64 = 52;

/// How far what was sent on a flow has come, below the engine's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowDelivery {
    /// Grows with what the peer has acknowledged, in bytes: see [`crate::Delivery::acknowledged`].
    pub(crate) acknowledged: u64,
    /// Bytes in the system that are not acknowledged; `None`: of this flow alone that is not known.
    pub(crate) unacknowledged: Option<u64>,
}

impl Carriers {
    /// The peer's address; `peer`: the one of a connection that shares its socket.
    pub(crate) fn remote_addr(&self, flow: FlowId, peer: Option<Peer>) -> Option<SocketAddr> {
        match flow {
            FlowId::Channel(k) => self.sockets.channels.get(k).map(|c| c.remote),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } | FlowId::StreamPending { quic } => {
                self.quic.connections.get(quic).map(|q| q.conn.remote())
            }
            FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } => {
                self.sctp.associations.get(sctp).map(|a| a.remote)
            }
            FlowId::Peer { .. } => Some(peer?.remote),
            FlowId::Dtls { dtls } => self.dtls.sessions.get(dtls).map(|d| d.remote),
            FlowId::None => None,
        }
    }

    /// Our address.
    pub(crate) fn local_addr<N: Net>(&self, cx: &Context<N>, flow: FlowId, peer: Option<Peer>) -> Option<SocketAddr> {
        let bound = |channel: Key| cx.net.local_addr(self.sockets.channels.get(channel)?.sock).ok();
        match flow {
            FlowId::Channel(k) => bound(k),
            FlowId::Peer { channel } => Some(peer?.local(bound(channel)?)),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } | FlowId::StreamPending { quic } => {
                let q = self.quic.connections.get(quic)?;
                let bound = cx.net.local_addr(self.quic.sockets.get(q.socket)?.sock).ok()?;
                Some(SocketAddr::new(q.local.or_else(|| q.conn.local_ip()).unwrap_or(bound.ip()), bound.port()))
            }
            FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } => {
                self.sctp.addresses(&cx.net, sctp).map(|(_, ours)| ours)
            }
            FlowId::Dtls { dtls } => self.dtls.local_addr(&cx.net, dtls),
            FlowId::None => None,
        }
    }

    /// TLS over a socket.
    fn tls(&self, channel: Key) -> Option<&TlsStream> {
        match self.sockets.channels.get(channel) {
            Some(Channel { kind: Kind::Tls(tls), .. }) => Some(tls),
            _ => None,
        }
    }

    /// The DTLS session of a flow, or of the association below it.
    fn dtls_of(&self, flow: FlowId) -> Option<&Dtls> {
        let key = match flow {
            FlowId::Dtls { dtls } => dtls,
            FlowId::Sctp { sctp, .. } => self.sctp.associations.get(sctp)?.session()?,
            _ => return None,
        };
        self.dtls.sessions.get(key)
    }

    /// The application protocol that the security protocol has negotiated (RFC 7301).
    pub(crate) fn alpn(&self, flow: FlowId) -> Option<Vec<u8>> {
        match flow {
            FlowId::Channel(k) => self.tls(k)?.alpn().map(<[u8]>::to_vec),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => self.quic.connections.get(quic)?.conn.alpn(),
            _ => None,
        }
    }

    /// The peer's certificates, leaf first, in DER; empty without security or client
    /// authentication.
    pub(crate) fn peer_certificates(&self, flow: FlowId) -> Vec<Vec<u8>> {
        match flow {
            FlowId::Channel(k) => self
                .tls(k)
                .and_then(TlsStream::peer_certificates)
                .map(|l| l.iter().map(|c| c.to_vec()).collect())
                .unwrap_or_default(),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => {
                self.quic.connections.get(quic).map(|q| q.conn.peer_certificates()).unwrap_or_default()
            }
            _ => self.dtls_of(flow).map(Dtls::peer_certificates).unwrap_or_default(),
        }
    }

    /// The version of the security protocol in use, in words.
    pub(crate) fn security(&self, flow: FlowId) -> Option<String> {
        match flow {
            FlowId::Channel(k) => match self.tls(k)?.version()? {
                neater_tls::rustls::ProtocolVersion::TLSv1_3 => Some("TLS 1.3".into()),
                neater_tls::rustls::ProtocolVersion::TLSv1_2 => Some("TLS 1.2".into()),
                other => Some(format!("{other:?}")),
            },
            FlowId::Stream { .. } | FlowId::Datagrams { .. } => Some("TLS 1.3".into()),
            _ => self.dtls_of(flow)?.version(),
        }
    }

    /// How far what was sent has come; `None` when nothing carries it any more, or the protocol
    /// keeps no such figures.
    pub(crate) fn flow_delivery<N: Net>(&self, cx: &Context<N>, flow: FlowId) -> Option<FlowDelivery> {
        let session = match flow {
            FlowId::Channel(k) => {
                let ch = self.sockets.channels.get(k)?;
                let info = cx.net.stream_info(ch.sock).ok()?;
                let records = matches!(&ch.kind, Kind::Tls(tls) if tls.wants_write());
                let system = info.in_flight.unwrap_or(0) + info.unsent.unwrap_or(0);
                let unacknowledged = Some(u64::from(records) + system);
                return Some(FlowDelivery { acknowledged: info.acknowledged.unwrap_or(0), unacknowledged });
            }
            FlowId::Stream { quic, .. } => SessionId::Quic(quic),
            FlowId::Sctp { sctp, .. } => SessionId::Sctp(sctp),
            _ => return None,
        };
        Some(FlowDelivery { acknowledged: self.session_acknowledged(session)?, unacknowledged: None })
    }

    /// Smoothed round-trip time, and congestion window in bytes, where the transport of a flow
    /// knows them.
    pub(crate) fn path_figures<N: Net>(&self, cx: &Context<N>, flow: FlowId) -> (Option<Duration>, Option<u64>) {
        match flow {
            FlowId::Channel(k) => {
                let info = self.sockets.channels.get(k).and_then(|ch| cx.net.stream_info(ch.sock).ok());
                info.map_or((None, None), |info| (info.rtt, info.congestion_window))
            }
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => {
                let stats = self.quic.connections.get(quic).map(|q| q.conn.stats());
                stats.map_or((None, None), |s| (Some(s.rtt), Some(s.congestion_window)))
            }
            FlowId::Sctp { sctp, .. } => {
                self.sctp.path_figures(sctp).map_or((None, None), |(rtt, window)| (rtt, Some(window)))
            }
            _ => (None, None),
        }
    }

    /// The paths of a flow's transport; `received` bytes have come by it if it is the only one.
    pub(crate) fn paths<N: Net>(
        &self,
        cx: &Context<N>,
        (flow, peer): (FlowId, Option<Peer>),
        received: u64,
    ) -> Vec<PathInfo> {
        if let FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } = flow {
            return self.sctp.paths(cx, sctp);
        }
        let why = match flow {
            FlowId::Channel(k) => match self.sockets.tcp_paths(cx, k) {
                TcpPaths::Several(paths) if !paths.is_empty() => return paths,
                TcpPaths::Several(_) => None,
                TcpPaths::One(why) => why,
            },
            _ => None,
        };
        let addresses = self.local_addr(cx, flow, peer).zip(self.remote_addr(flow, peer));
        let Some((local, remote)) = addresses else { return Vec::new() };
        let (rtt, window) = self.path_figures(cx, flow);
        let counters = self.counters(cx, flow, 0);
        let (sent, lost) = counters.packets;
        let of = |i: &&neater_base::net::Interface| i.addrs.iter().any(|a| a.addr == local.ip());
        let interface = cx.net.interfaces().iter().find(of).map(|i| i.name.clone());
        let (window, state) = (window.unwrap_or(0), PathUse::InUse);
        let delivered = self.flow_delivery(cx, flow).map_or(0, |d| d.acknowledged);
        vec![PathInfo {
            local,
            remote,
            interface,
            state,
            why,
            rtt,
            window,
            in_flight: 0,
            sent,
            lost,
            delivered,
            received,
        }]
    }

    /// Changes the endpoints of a flow's transport.
    pub(crate) fn change_endpoints<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        flow: FlowId,
        change: &EndpointChange,
    ) -> Result<(), EndpointError> {
        match flow {
            FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } => self.sctp.change_endpoints(cx, sctp, change),
            _ => Err(EndpointError::OnePath),
        }
    }

    /// What the transport of a flow has counted, that was handed `sent` bytes.
    pub(crate) fn counters<N: Net>(&self, cx: &Context<N>, flow: FlowId, sent: u64) -> TransportCounters {
        let mut counters = TransportCounters { carried: sent, ..TransportCounters::default() };
        match flow {
            FlowId::Channel(k) => {
                let info =
                    self.sockets.channels.get(k).and_then(|ch| cx.net.stream_info(ch.sock).ok()).unwrap_or_default();
                let here = info.unsent.unwrap_or(0) + info.in_flight.unwrap_or(0);
                counters.carried = sent.saturating_sub(here);
                if let Some(lost) = info.retransmits {
                    let mtu = u64::from(info.path_mtu.unwrap_or(1500));
                    counters.segment = Some(mtu.saturating_sub(TCP_HEADERS).max(1));
                    counters.packets = (0, lost);
                }
            }
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => {
                if let Some(s) = self.quic.connections.get(quic).map(|q| q.conn.stats()) {
                    (counters.carried, counters.packets) = (s.sent.1.saturating_sub(s.lost.1), (s.sent.0, s.lost.0));
                }
            }
            FlowId::Sctp { sctp, .. } => {
                counters.carried = self.sctp.acknowledged(sctp);
                counters.packets = self.sctp.sent_and_lost(sctp);
            }
            _ => {}
        }
        counters
    }
}
