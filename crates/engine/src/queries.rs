//! What can be asked about a connection, and changes nothing.

use crate::carrier::FlowId;
use crate::carrier::channel::Kind;
use crate::conn::{ConnectionState, ConnectionStats, Delivery};
use crate::event::{CandidateOutcome, ConnectionError, TimelineEntry};
use crate::{ConnectionId, Engine, GroupId, Stack};
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::ConnectionApi;
use std::net::SocketAddr;

impl<N: Net> Engine<N> {
    /// The state of a connection; [`ConnectionState::Closed`] if there is none of that id, and in a child of `fork`.
    #[must_use]
    pub fn state(&self, conn: ConnectionId) -> ConnectionState {
        if self.is_forked() {
            return ConnectionState::Closed;
        }
        self.conns.get(conn.0).map_or(ConnectionState::Closed, |c| c.state)
    }

    /// How a connection has ended, if it has: for whoever takes it after its last event.
    #[must_use]
    pub fn ending(&self, conn: ConnectionId) -> Option<Result<(), Box<ConnectionError>>> {
        match self.conns.get(conn.0) {
            Some(c) if c.state != ConnectionState::Closed => None,
            // The peer wanted no more of a stream that has ended in order all the same.
            Some(c) if c.fin_acked && c.peer_ended => Some(Ok(())),
            Some(c) => Some(c.error().map_or(Ok(()), |e| Err(Box::new(e.clone())))),
            None => Some(Ok(())),
        }
    }

    /// The stack that was chosen, once it was.
    #[must_use]
    pub fn stack(&self, conn: ConnectionId) -> Option<Stack> {
        self.conns.get(conn.0)?.stack
    }

    /// The request that the connection was made with.
    #[must_use]
    pub fn request(&self, conn: ConnectionId) -> Option<crate::Request> {
        Some(crate::Request(self.conns.get(conn.0)?.request.clone()))
    }

    /// Whether the connection can be seen as a stream of bytes.
    ///
    /// # Errors
    /// [`ConnectionError::Unsupported`]: a framer makes messages of them, or what carries it does.
    pub fn check_bytes(&self, conn: ConnectionId) -> Result<(), ConnectionError> {
        let Some(c) = self.conns.get(conn.0) else { return Ok(()) };
        if c.request.framer.frames() {
            return Err(ConnectionError::Unsupported("a connection with a message framer has no byte view"));
        }
        if c.stack.is_some_and(|stack| !stack.is_stream()) {
            return Err(ConnectionError::Unsupported("a connection that carries datagrams has no byte view"));
        }
        Ok(())
    }

    /// Whether the program may send (RFC 9622 section 8.1.11.2).
    #[must_use]
    pub fn can_send(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && !c.final_sent && c.request.may_send)
    }

    /// Whether the program may receive (RFC 9622 section 8.1.11.3).
    #[must_use]
    pub fn can_receive(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && !c.read_closed && c.request.may_receive)
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        match c.flow {
            FlowId::Channel(k) => self.carriers.channels.get(k).map(|c| c.remote),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } | FlowId::StreamPending { quic } => {
                self.carriers.quic.connections.get(quic).map(|q| q.conn.remote())
            }
            FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } => {
                self.carriers.sctp.associations.get(sctp).map(|a| a.remote)
            }
            FlowId::Peer { .. } => Some(c.ext.as_ref()?.peer?.remote),
            FlowId::Dtls { dtls } => self.carriers.dtls.sessions.get(dtls).map(|d| d.remote),
            FlowId::None => None,
        }
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let bound = |channel: Key| self.cx.net.local_addr(self.carriers.channels.get(channel)?.sock).ok();
        let c = self.conns.get(conn.0)?;
        match c.flow {
            FlowId::Channel(k) => bound(k),
            FlowId::Peer { channel } => Some(c.ext.as_ref()?.peer?.local(bound(channel)?)),
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } | FlowId::StreamPending { quic } => {
                let q = self.carriers.quic.connections.get(quic)?;
                let bound = self.cx.net.local_addr(self.carriers.quic.sockets.get(q.socket)?.sock).ok()?;
                Some(SocketAddr::new(q.local.or_else(|| q.conn.local_ip()).unwrap_or(bound.ip()), bound.port()))
            }
            FlowId::Sctp { sctp, .. } | FlowId::SctpPending { sctp } => self.sctp_addrs(sctp).map(|(_, ours)| ours),
            FlowId::Dtls { dtls } => {
                let d = self.carriers.dtls.sessions.get(dtls)?;
                Some(d.peer().local(bound(d.channel())?))
            }
            FlowId::None => None,
        }
    }

    /// The application protocol that TLS or QUIC agreed on.
    #[must_use]
    pub fn alpn(&self, conn: ConnectionId) -> Option<Vec<u8>> {
        match self.conns.get(conn.0)?.flow {
            FlowId::Channel(k) => match &self.carriers.channels.get(k)?.kind {
                Kind::Tls(t) => t.alpn().map(<[u8]>::to_vec),
                _ => None,
            },
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => {
                self.carriers.quic.connections.get(quic)?.conn.alpn()
            }
            _ => None,
        }
    }

    /// The peer's certificates, leaf first, in DER; empty without security or client authentication.
    #[must_use]
    pub fn peer_certificates(&self, conn: ConnectionId) -> Vec<Vec<u8>> {
        match self.conns.get(conn.0).map(|c| c.flow) {
            Some(FlowId::Channel(k)) => match self.carriers.channels.get(k).map(|c| &c.kind) {
                Some(Kind::Tls(t)) => {
                    t.peer_certificates().map(|l| l.iter().map(|c| c.to_vec()).collect()).unwrap_or_default()
                }
                _ => Vec::new(),
            },
            Some(FlowId::Stream { quic, .. } | FlowId::Datagrams { quic }) => {
                self.carriers.quic.connections.get(quic).map(|q| q.conn.peer_certificates()).unwrap_or_default()
            }
            Some(FlowId::Sctp { sctp, .. }) => {
                let session =
                    self.carriers.sctp.associations.get(sctp).and_then(|a| self.carriers.dtls.sessions.get(a.dtls?));
                session.map(crate::carrier::dtls::Dtls::peer_certificates).unwrap_or_default()
            }
            Some(FlowId::Dtls { dtls }) => self
                .carriers
                .dtls
                .sessions
                .get(dtls)
                .map(crate::carrier::dtls::Dtls::peer_certificates)
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// The version of TLS in use, in words.
    #[must_use]
    pub fn security(&self, conn: ConnectionId) -> Option<String> {
        match self.conns.get(conn.0)?.flow {
            FlowId::Channel(k) => match &self.carriers.channels.get(k)?.kind {
                Kind::Tls(t) => match t.version()? {
                    neater_tls::rustls::ProtocolVersion::TLSv1_3 => Some("TLS 1.3".into()),
                    neater_tls::rustls::ProtocolVersion::TLSv1_2 => Some("TLS 1.2".into()),
                    other => Some(format!("{other:?}")),
                },
                _ => None,
            },
            FlowId::Stream { .. } | FlowId::Datagrams { .. } => Some("TLS 1.3".into()),
            FlowId::Dtls { dtls } => self.carriers.dtls.sessions.get(dtls)?.version(),
            FlowId::Sctp { sctp, .. } => {
                self.carriers.dtls.sessions.get(self.carriers.sctp.associations.get(sctp)?.dtls?)?.version()
            }
            _ => None,
        }
    }

    /// How the race went: every candidate and what became of it. Empty when a cached outcome was used alone.
    #[must_use]
    pub fn candidates(&self, conn: ConnectionId) -> Vec<CandidateOutcome> {
        self.conns.get(conn.0).and_then(|c| c.ext.as_ref()).map(|e| e.candidates.clone()).unwrap_or_default()
    }

    /// The steps of establishment so far.
    #[must_use]
    pub fn timeline(&self, conn: ConnectionId) -> Vec<TimelineEntry> {
        self.conns.get(conn.0).and_then(|c| c.ext.as_ref()).map(|e| e.timeline.clone()).unwrap_or_default()
    }

    /// How far what was sent on a connection has come; `None` when nothing carries it any more, or
    /// what does keeps no such figures.
    #[must_use]
    pub fn delivery(&self, conn: ConnectionId) -> Option<Delivery> {
        let c = self.conns.get(conn.0)?;
        let read = c.fast.lane_bytes().1;
        let received = c.bytes_received + read;
        let queued = c.tx.bytes as u64;
        // Of a stream it is not known what has been acknowledged but its end.
        let end = u64::from(c.fin_done && !c.fin_acked);
        match c.flow {
            FlowId::Channel(k) => {
                let ch = self.carriers.channels.get(k)?;
                let info = self.cx.net.stream_info(ch.sock).ok()?;
                let records = matches!(&ch.kind, Kind::Tls(tls) if tls.wants_write());
                let system = info.in_flight.unwrap_or(0) + info.unsent.unwrap_or(0);
                let pending = queued + u64::from(records) + system;
                Some(Delivery { acknowledged: info.acknowledged.unwrap_or(0), pending, received })
            }
            FlowId::Stream { quic, .. } => {
                let acknowledged = self.carriers.quic.connections.get(quic)?.conn.acknowledged();
                Some(Delivery { acknowledged, pending: queued + end, received })
            }
            FlowId::Sctp { sctp, .. } => {
                Some(Delivery { acknowledged: self.sctp_acknowledged(sctp), pending: queued + end, received })
            }
            _ => None,
        }
    }

    /// As [`Engine::delivery`], of all streams of a session together; what comes, and what waits,
    /// is not counted.
    #[must_use]
    pub fn group_delivery(&self, group: GroupId) -> Option<Delivery> {
        let acknowledged = self.carriers.session_acknowledged(self.groups.get(group.0)?.session?)?;
        Some(Delivery { acknowledged, ..Delivery::default() })
    }

    /// Figures of a connection.
    #[must_use]
    pub fn connection_stats(&self, conn: ConnectionId) -> Option<ConnectionStats> {
        let c = self.conns.get(conn.0)?;
        let (written, read) = c.fast.lane_bytes();
        let mut stats = ConnectionStats {
            bytes_sent: c.bytes_sent + written,
            bytes_received: c.bytes_received + read,
            messages_sent: u64::from(c.messages_sent),
            messages_received: u64::from(c.messages_received),
            datagrams_dropped: u64::from(c.dropped),
            establishment: c.since - c.began,
            rtt: None,
            congestion_window: None,
            queued: c.tx.bytes,
            ended: c.end_is_out(),
        };
        match c.flow {
            FlowId::Channel(k) => {
                if let Some(info) = self.carriers.channels.get(k).and_then(|ch| self.cx.net.stream_info(ch.sock).ok()) {
                    stats.rtt = info.rtt;
                    stats.congestion_window = info.congestion_window;
                }
            }
            FlowId::Stream { quic, .. } | FlowId::Datagrams { quic } => {
                if let Some(s) = self.carriers.quic.connections.get(quic).map(|q| q.conn.stats()) {
                    stats.rtt = Some(s.rtt);
                    stats.congestion_window = Some(s.congestion_window);
                }
            }
            FlowId::Sctp { sctp, .. } => {
                if let Some((rtt, window)) = self.sctp_path(sctp) {
                    stats.rtt = rtt;
                    stats.congestion_window = Some(window);
                }
            }
            _ => {}
        }
        Some(stats)
    }
}
