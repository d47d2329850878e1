//! Attempts at establishing a connection, whichever protocol carries them.
//!
//! *Responsible for* beginning an attempt, for what is known of it while it is under way, for
//! handing what has won to its connection, and for releasing the others. *Not responsible for*
//! which attempts are made, and when ([`crate::establish`]).

use crate::Stack;
use crate::carrier::channel::{Kind, SocketUse};
use crate::carrier::sctp::{PacketLayer, RemoteTarget};
use crate::carrier::terms::Taken;
use crate::carrier::terms::{Abandoned, Silent, Target};
use crate::carrier::{Carriers, FlowId, SessionId};
use crate::context::Context;
use crate::event::AttemptError;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net};
use neater_base::{Instant, Key};
use neater_quic::ConnectionApi;
use std::net::{IpAddr, SocketAddr};

impl FlowId {
    /// What a connection that is not established waits for.
    pub(crate) const fn awaited(self) -> Option<SessionId> {
        match self {
            Self::Channel(k) => Some(SessionId::Channel(k)),
            Self::StreamPending { quic } => Some(SessionId::Quic(quic)),
            Self::SctpPending { sctp } => Some(SessionId::Sctp(sctp)),
            Self::Dtls { dtls } => Some(SessionId::Dtls(dtls)),
            _ => None,
        }
    }

    /// Whether its session may go on at another address of the peer's.
    pub(crate) const fn may_migrate(self) -> bool {
        matches!(self, Self::Stream { .. } | Self::StreamPending { .. } | Self::Datagrams { .. })
    }
}

impl SessionId {
    /// Whether several connections may share it, so that it belongs to a group.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Quic(_) | Self::Sctp(_))
    }

    /// Whether streams and datagrams of the peer's may wait in it when it wins.
    pub(crate) const fn may_hold_more(self) -> bool {
        matches!(self, Self::Quic(_))
    }

    /// What stands in for the flow of a connection that waits for this attempt alone.
    pub(crate) const fn awaiting(self) -> FlowId {
        match self {
            Self::Channel(k) => FlowId::Channel(k),
            Self::Quic(quic) => FlowId::StreamPending { quic },
            Self::Sctp(sctp) => FlowId::SctpPending { sctp },
            Self::Dtls(dtls) => FlowId::Dtls { dtls },
        }
    }
}

impl Carriers {
    /// By which stack an attempt is made, and to which address; `None`: it is gone.
    pub(crate) fn describe(&self, session: SessionId) -> Option<(Stack, SocketAddr)> {
        match session {
            SessionId::Channel(k) => {
                let c = self.sockets.channels.get(k)?;
                let stack = match c.kind {
                    Kind::Tcp => Stack::Tcp,
                    Kind::TlsPending(_) | Kind::Tls(_) => Stack::Tls,
                    _ => Stack::Udp,
                };
                Some((stack, c.remote))
            }
            SessionId::Quic(k) => self.quic.connections.get(k).map(|q| (q.stack, q.remote)),
            SessionId::Sctp(k) => self.sctp.associations.get(k).map(|a| (a.stack, a.remote)),
            SessionId::Dtls(k) => self.dtls.sessions.get(k).map(|d| (Stack::Dtls, d.remote)),
        }
    }

    /// The attempt that a socket of its own is used for.
    pub(crate) fn attempt_at(&self, socket: Key) -> Option<(Key, SessionId)> {
        let attempt = self.sockets.channels.get(socket)?.used_by.attempt()?;
        Some((attempt, SessionId::Channel(socket)))
    }

    /// The connection that is attempted.
    fn attempt_of(&self, session: SessionId) -> Option<Key> {
        match session {
            SessionId::Channel(k) => self.sockets.channels.get(k)?.used_by.attempt(),
            SessionId::Quic(k) => self.quic.connections.get(k)?.attempt,
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.attempt,
            SessionId::Dtls(k) => self.dtls.sessions.get(k)?.attempt(),
        }
    }

    /// The attempt that a connection waits for alone.
    pub(crate) fn awaited_attempt(&self, conn: Key, flow: FlowId) -> Option<SessionId> {
        flow.awaited().filter(|session| self.attempt_of(*session) == Some(conn))
    }

    /// Whether a connection waits for a stream of a session that is established.
    pub(crate) fn awaits_stream(&self, conn: Key, flow: FlowId) -> bool {
        flow.waits_on().is_some_and(|s| self.describe(s).is_some() && self.attempt_of(s) != Some(conn))
    }

    /// Whether the session that a connection waits for carries others.
    pub(crate) fn carries_others(&self, flow: FlowId) -> bool {
        match flow {
            FlowId::StreamPending { quic } => self.quic.connections.get(quic).is_some_and(|q| !q.streams.is_empty()),
            _ => true,
        }
    }

    /// Assigns an attempt to another candidate, and returns how long after its start the peer had
    /// answered, if it has.
    pub(crate) fn adopt(&mut self, now: Instant, session: SessionId, conn: Key) -> Option<Duration> {
        match session {
            SessionId::Channel(k) => self.sockets.channels.get_mut(k)?.used_by = SocketUse::Attempt(conn),
            SessionId::Quic(k) => self.quic.connections.get_mut(k)?.attempt = Some(conn),
            SessionId::Sctp(k) => self.sctp.associations.get_mut(k)?.attempt = Some(conn),
            SessionId::Dtls(k) => self.dtls.sessions.get_mut(k)?.adopt(conn),
        }
        self.answered_after(now, session)
    }

    /// How long after its start the peer of an attempt had answered, at most; `None`: it has not.
    pub(crate) fn answered_after(&self, now: Instant, session: SessionId) -> Option<Duration> {
        match session {
            SessionId::Channel(k) => self.sockets.channels.get(k).filter(|c| c.connected).map(|c| now - c.started),
            SessionId::Quic(k) => self.quic.connections.get(k)?.answered_after(now),
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.answered_after(now),
            SessionId::Dtls(k) => self.dtls.sessions.get(k)?.answered_after(),
        }
    }

    /// From which address an attempt is made, if that is known.
    pub(crate) fn source_of<N: Net>(&self, net: &N, session: SessionId) -> Option<IpAddr> {
        let from = match session {
            SessionId::Channel(k) => net.local_addr(self.sockets.channels.get(k)?.sock).ok()?.ip(),
            SessionId::Dtls(k) => self.dtls.local_addr(net, k)?.ip(),
            SessionId::Quic(k) => self.quic.connections.get(k)?.local?,
            SessionId::Sctp(k) => self.sctp.addresses(net, k)?.1.ip(),
        };
        Some(from).filter(|ip| !ip.is_unspecified())
    }

    /// Whether an attempt's peer is silent, where it has `fair` to answer; `None`: the attempt is
    /// gone.
    pub(crate) fn is_silent(&self, now: Instant, session: SessionId, fair: Duration) -> Option<Silent> {
        let if_had_its_time = |silent: bool| if silent { Silent::Yes } else { Silent::No };
        Some(match session {
            SessionId::Channel(k) => {
                let c = self.sockets.channels.get(k)?;
                if_had_its_time(!c.connected && now - c.started >= fair)
            }
            SessionId::Quic(k) => match self.quic.connections.get(k)? {
                q if q.answered_after(now).is_some() => Silent::No,
                q => Silent::UnlessAnsweredBy(q.started + fair),
            },
            SessionId::Sctp(k) => match self.sctp.associations.get(k)? {
                a if a.answered_after(now).is_some() => Silent::No,
                // It is withdrawn with its session.
                a if a.stack == Stack::SctpDtls => if_had_its_time(now - a.started >= fair),
                a => Silent::UnlessAnsweredBy(a.started + fair),
            },
            SessionId::Dtls(k) => if_had_its_time(self.dtls.sessions.get(k).is_some_and(|d| d.silent_since(now, fair))),
        })
    }

    /// Gives a withdrawn attempt until `due` to be answered. Whether it was is reported
    /// ([`CarrierEvent::LateAnswer`], [`CarrierEvent::NoAnswer`]), unless it is dropped before.
    /// False: it is gone.
    ///
    /// [`CarrierEvent::LateAnswer`]: super::event::CarrierEvent::LateAnswer
    /// [`CarrierEvent::NoAnswer`]: super::event::CarrierEvent::NoAnswer
    pub(crate) fn put_on_trial<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId, due: Instant) -> bool {
        match session {
            SessionId::Quic(quic) => self.quic.put_on_trial(cx, quic, due),
            SessionId::Sctp(sctp) => self.sctp.put_on_trial(cx, sctp, due),
            SessionId::Channel(_) | SessionId::Dtls(_) => false,
        }
    }

    /// Whether anything but its handshake has come on any stream of a flow's session; `None`: the
    /// connection itself has to know.
    pub(crate) fn has_carried(&self, flow: FlowId) -> Option<bool> {
        match flow {
            FlowId::Stream { quic, .. } | FlowId::StreamPending { quic } | FlowId::Datagrams { quic } => {
                Some(self.quic.connections.get(quic).is_some_and(|q| q.conn.stats().data_frames > 0))
            }
            FlowId::Sctp { sctp, .. } => Some(self.sctp.has_heard(sctp)),
            _ => None,
        }
    }

    /// Where the race has found the peer of a session that may have moved since.
    pub(crate) fn found_at(&self, flow: FlowId) -> Option<SocketAddr> {
        match flow {
            FlowId::Stream { quic, .. } | FlowId::StreamPending { quic } | FlowId::Datagrams { quic } => {
                Some(self.quic.connections.get(quic)?.remote)
            }
            _ => None,
        }
    }

    /// Begins an attempt.
    ///
    /// # Errors
    /// Why this host cannot make it. Nothing has been sent then.
    pub(crate) fn connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        attempt: Key,
        to: &Target<'_>,
    ) -> Result<SessionId, AttemptError> {
        let Target { stack, addr, request, options, .. } = *to;
        let begun = match stack {
            Stack::Tcp | Stack::Tls => self.sockets.tcp_connect(cx, attempt, to),
            Stack::Udp => self.sockets.udp_connect(cx, attempt, to),
            Stack::Quic | Stack::QuicDatagram => {
                self.quic.connect(cx, attempt, to, &to.server_name()).map(SessionId::Quic)
            }
            Stack::Sctp | Stack::SctpIp | Stack::SctpDtls => {
                let udp_port = to.remote.and_then(|r| r.encapsulation_port).unwrap_or(neater_sctp::UDP_PORT);
                let name = to.server_name();
                let below = PacketLayer::of(stack).unwrap_or(PacketLayer::Udp);
                let there = RemoteTarget { below, addr, udp_port, name: &name };
                let (sctp, mut layers) = self.over_layers();
                sctp.connect(cx, &mut layers, attempt, there, to).map(SessionId::Sctp)
            }
            Stack::Dtls => {
                let name = to.server_name();
                self.dtls.connect(cx, attempt, (addr, &name), request, options).map(SessionId::Dtls)
            }
        };
        begun.map_err(|e| with_zone_named(e, addr))
    }

    /// Ends an attempt that is not wanted any more, or has failed. What is withdrawn ends as early
    /// as its protocol allows: TCP by reset before any byte, QUIC by CONNECTION_CLOSE.
    pub(crate) fn release_attempt<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId, withdrawn: bool) {
        match session {
            SessionId::Channel(k) => {
                if let Some(c) = self.sockets.channels.remove(k) {
                    if withdrawn && c.connected && !matches!(c.kind, Kind::Udp) {
                        cx.net.abort(c.sock);
                    } else {
                        cx.net.close(c.sock);
                    }
                }
            }
            SessionId::Quic(k) => self.quic.withdraw(cx, k),
            SessionId::Sctp(k) => {
                self.sctp.withdraw(cx, k);
                // The handshake of the layer below, if there is one, is not to go on.
                self.tie(cx);
            }
            SessionId::Dtls(k) => self.dtls.drop_session(cx, k),
        }
    }

    /// An attempt at a connection that shares no session has won: it carries this connection.
    pub(crate) fn take(&mut self, session: SessionId, conn: Key) -> Taken {
        let mut first = false;
        match session {
            SessionId::Channel(k) => {
                if let Some(ch) = self.sockets.channels.get_mut(k) {
                    ch.used_by = SocketUse::Conn(conn);
                    ch.deadline = None;
                }
                first = self.sockets.tls_took_first(k);
            }
            SessionId::Dtls(dtls) => self.dtls.take(dtls, conn),
            SessionId::Quic(_) | SessionId::Sctp(_) => {}
        }
        Taken { flow: session.awaiting(), waits: None, first }
    }

    /// Takes what the peer has sent to a connection while its race was being decided.
    pub(crate) fn take_early<N: Net>(&mut self, cx: &mut Context<N>, session: SessionId, conn: Key) {
        match session {
            SessionId::Quic(k) => self.quic.report_early_stop(k, conn),
            SessionId::Sctp(k) => self.sctp.begin(cx, k),
            SessionId::Dtls(k) => self.dtls.take_early(k),
            SessionId::Channel(_) => {}
        }
    }

    /// Ends what a connection waits for that is taken back. `None`: it waits for nothing but its
    /// framer.
    pub(crate) fn abandon<N: Net>(&mut self, cx: &mut Context<N>, conn: Key, flow: FlowId) -> Option<Abandoned> {
        let session = match flow {
            FlowId::StreamPending { quic } => {
                let session = SessionId::Quic(quic);
                if self.attempt_of(session) == Some(conn) {
                    self.release_attempt(cx, session, true);
                }
                return Some(Abandoned { spare: Some(session) });
            }
            FlowId::SctpPending { sctp } if self.attempt_of(SessionId::Sctp(sctp)) == Some(conn) => {
                SessionId::Sctp(sctp)
            }
            FlowId::Channel(k) => SessionId::Channel(k),
            FlowId::Dtls { dtls } => SessionId::Dtls(dtls),
            FlowId::None => return Some(Abandoned { spare: None }),
            _ => return None,
        };
        self.release_attempt(cx, session, true);
        Some(Abandoned { spare: None })
    }
}

/// The system calls it an invalid argument where a link-local address has no zone.
fn with_zone_named(error: AttemptError, addr: SocketAddr) -> AttemptError {
    let invalid = matches!(&error, AttemptError::Net(e) if e.kind == ErrorKind::InvalidInput);
    match addr {
        SocketAddr::V6(v6) if invalid && v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => AttemptError::NoZone,
        _ => error,
    }
}
