//! Attempts at establishing a connection, whichever protocol carries them.
//!
//! *Responsible for* beginning an attempt, for what is known of it while it is under way, for handing what has won to its
//! connection, and for releasing the others. *Not responsible for* which attempts are made, and when ([`crate::establish`]).

use crate::carrier::channel::{Behind, Kind};
use crate::carrier::sctp::{Below, There};
use crate::carrier::{Carriers, FlowId, SessionId};
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use crate::{Engine, RemoteEndpoint, Stack};
use bytes::Bytes;
use core::time::Duration;
use neater_base::net::{Net, SocketOptions};
use neater_base::{Instant, Key};
use neater_quic::ConnectionApi;
use neater_race::CandidateId;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How long the peer of an attempt may take over the TLS handshake: as long as QUIC's idle timeout.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);

/// The connection that an attempt is for, and its candidate in the race; without one it is the cached outcome, tried alone.
pub(crate) type AttemptFor = (Key, Option<CandidateId>);

/// Where an attempt leads, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) stack: Stack,
    pub(crate) addr: SocketAddr,
    /// Whose address it is.
    pub(crate) remote: Option<&'a RemoteEndpoint>,
    /// All of the connection's remote endpoints.
    pub(crate) remotes: &'a Arc<[RemoteEndpoint]>,
    pub(crate) request: &'a Arc<Compiled>,
    pub(crate) options: &'a SocketOptions,
    /// The first message, which may leave with the handshake.
    pub(crate) first: Option<&'a Bytes>,
    /// What the attempt may go on as, where its peer does not offer the stack.
    pub(crate) may_become: Option<Stack>,
}

impl Target<'_> {
    /// The name that certificates are checked against.
    pub(crate) fn server_name(&self) -> String {
        if let Some(name) = &self.request.server_name {
            return name.clone();
        }
        match self.remote.and_then(|r| r.host.as_deref()) {
            Some(host) => host.trim_end_matches('.').to_owned(),
            None => self.addr.ip().to_string(),
        }
    }
}

/// Whether the peer of an attempt that is about to be withdrawn is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    /// It has answered, or has not had its time and will not be heard any more.
    No,
    /// It has had its time.
    Yes,
    /// Unless it answers by then: see [`Carriers::put_on_trial`].
    UnlessAnsweredBy(Instant),
}

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
                let c = self.channels.get(k)?;
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
    pub(crate) fn attempt_at(&self, socket: Key) -> Option<(AttemptFor, SessionId)> {
        match self.channels.get(socket)?.behind {
            Behind::Attempt(conn, candidate) => Some(((conn, candidate), SessionId::Channel(socket))),
            _ => None,
        }
    }

    /// The connection that is attempted.
    fn attempt_of(&self, session: SessionId) -> Option<Key> {
        match session {
            SessionId::Channel(k) => self.channels.get(k)?.behind.attempt(),
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

    /// Makes an attempt that of another candidate, and says how long after its start the peer had answered, if it has.
    pub(crate) fn adopt(
        &mut self,
        now: Instant,
        session: SessionId,
        conn: Key,
        candidate: Option<CandidateId>,
    ) -> Option<Duration> {
        match session {
            SessionId::Channel(k) => self.channels.get_mut(k)?.behind = Behind::Attempt(conn, candidate),
            SessionId::Quic(k) => self.quic.connections.get_mut(k)?.attempt = Some(conn),
            SessionId::Sctp(k) => self.sctp.associations.get_mut(k)?.attempt = Some(conn),
            SessionId::Dtls(k) => self.dtls.sessions.get_mut(k)?.adopt(conn),
        }
        self.answered_after(now, session)
    }

    /// How long after its start the peer of an attempt had answered, at most; `None`: it has not.
    pub(crate) fn answered_after(&self, now: Instant, session: SessionId) -> Option<Duration> {
        match session {
            SessionId::Channel(k) => self.channels.get(k).filter(|c| c.connected).map(|c| now - c.started),
            SessionId::Quic(k) => self.quic.connections.get(k)?.answered_after(now),
            SessionId::Sctp(k) => self.sctp.associations.get(k)?.answered_after(now),
            SessionId::Dtls(k) => self.dtls.sessions.get(k)?.answered_after(),
        }
    }

    /// From which address an attempt is made, if that is known.
    pub(crate) fn source_of<N: Net>(&self, net: &N, session: SessionId) -> Option<IpAddr> {
        let from = match session {
            SessionId::Channel(k) => net.local_addr(self.channels.get(k)?.sock).ok()?.ip(),
            SessionId::Dtls(k) => self.dtls.local_addr(net, k)?.ip(),
            SessionId::Quic(k) => self.quic.connections.get(k)?.local?,
            SessionId::Sctp(k) => self.sctp.addresses(net, k)?.1.ip(),
        };
        Some(from).filter(|ip| !ip.is_unspecified())
    }

    /// Whether an attempt's peer is silent, where it has `fair` to answer; `None`: the attempt is gone.
    pub(crate) fn is_silent(&self, now: Instant, session: SessionId, fair: Duration) -> Option<Silent> {
        let if_had_its_time = |silent: bool| if silent { Silent::Yes } else { Silent::No };
        Some(match session {
            SessionId::Channel(k) => {
                let c = self.channels.get(k)?;
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

    /// Ends an attempt over SCTP, and over the layer below it if there is one.
    fn withdraw_sctp<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        self.sctp.withdraw(cx, key);
        // The handshake of a layer is not to go on.
        self.tie(cx);
    }

    /// Gives a withdrawn attempt until `due` to be answered. Whether it was is reported ([`CarrierEvent::LateAnswer`],
    /// [`CarrierEvent::NoAnswer`]), unless it is dropped before. False: it is gone.
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

    /// Whether anything but its handshake has come on any stream of a flow's session; `None`: the connection itself has to know.
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
}

// Until the protocols report events.
impl<N: Net> Engine<N> {
    /// Begins an attempt.
    ///
    /// # Errors
    /// Why this host cannot make it. Nothing has been sent then.
    pub(crate) fn connect(&mut self, attempt: AttemptFor, to: &Target<'_>) -> Result<SessionId, AttemptError> {
        let Target { stack, addr, request, options, .. } = *to;
        match stack {
            Stack::Tcp | Stack::Tls => self.carriers.tcp_connect(&mut self.cx, attempt, to),
            Stack::Udp => self.carriers.udp_connect(&mut self.cx, attempt, to),
            Stack::Quic | Stack::QuicDatagram => {
                self.carriers.quic.connect(&mut self.cx, attempt.0, to, &to.server_name()).map(SessionId::Quic)
            }
            Stack::Sctp | Stack::SctpIp | Stack::SctpDtls => {
                let udp_port = to.remote.and_then(|r| r.encapsulation_port).unwrap_or(neater_sctp::UDP_PORT);
                let name = to.server_name();
                let below = Below::of(stack).unwrap_or(Below::Udp);
                let there = There { below, addr, udp_port, name: &name };
                let (sctp, mut layers) = self.carriers.over_layers();
                sctp.connect(&mut self.cx, &mut layers, attempt.0, there, to).map(SessionId::Sctp)
            }
            Stack::Dtls => {
                let (name, (conn, _)) = (to.server_name(), attempt);
                let session = self.carriers.dtls.connect(&mut self.cx, conn, (addr, &name), request, options)?;
                Ok(SessionId::Dtls(session))
            }
        }
    }

    /// Ends an attempt that is not wanted any more, or has failed. What is withdrawn ends as early as its protocol allows: TCP by
    /// reset before any byte, QUIC by CONNECTION_CLOSE.
    pub(crate) fn release_attempt(&mut self, session: SessionId, withdrawn: bool) {
        match session {
            SessionId::Channel(k) => {
                if let Some(c) = self.carriers.channels.remove(k) {
                    if withdrawn && c.connected && !matches!(c.kind, Kind::Udp) {
                        self.cx.net.abort(c.sock);
                    } else {
                        self.cx.net.close(c.sock);
                    }
                }
            }
            SessionId::Quic(k) => self.carriers.quic.withdraw(&self.cx, k),
            SessionId::Sctp(k) => self.carriers.withdraw_sctp(&mut self.cx, k),
            SessionId::Dtls(k) => self.carriers.dtls.drop_session(&mut self.cx, k),
        }
    }

    /// Makes what an attempt has led to the flow of its connection.
    pub(crate) fn take(&mut self, conn: Key, session: SessionId, stack: Stack) {
        match session {
            SessionId::Channel(k) => {
                if let Some(c) = self.conns.get_mut(conn) {
                    c.flow = FlowId::Channel(k);
                }
                if let Some(ch) = self.carriers.channels.get_mut(k) {
                    ch.behind = Behind::Conn(conn);
                    ch.deadline = None;
                }
                if stack == Stack::Tls && self.carriers.tls_took_first(k) {
                    self.first_was_taken(conn);
                }
            }
            SessionId::Quic(_) | SessionId::Sctp(_) => self.session_won(conn, session),
            SessionId::Dtls(dtls) => {
                if let Some(c) = self.conns.get_mut(conn) {
                    c.flow = FlowId::Dtls { dtls };
                }
                self.carriers.dtls.take(dtls, conn);
            }
        }
    }

    /// Takes what the peer sent while the race was being decided.
    pub(crate) fn take_early(&mut self, conn: Key, session: SessionId) {
        match session {
            SessionId::Quic(k) => {
                self.accept_streams(session);
                self.accept_datagrams(session);
                self.carriers.quic.report_early_stop(k, conn);
            }
            SessionId::Sctp(k) => self.carriers.sctp.begin(&mut self.cx, k),
            SessionId::Dtls(k) => self.carriers.dtls.take_early(k),
            SessionId::Channel(_) => {}
        }
    }

    /// Ends what a connection waits for that is taken back. False: it waits for nothing but its framer.
    pub(crate) fn abandon(&mut self, conn: Key, flow: FlowId) -> bool {
        match flow {
            FlowId::Channel(k) => self.release_attempt(SessionId::Channel(k), true),
            FlowId::StreamPending { quic } => {
                let session = SessionId::Quic(quic);
                if self.carriers.attempt_of(session) == Some(conn) {
                    self.carriers.quic.withdraw(&self.cx, quic);
                }
                self.close_spare(session);
            }
            FlowId::SctpPending { sctp } if self.carriers.attempt_of(SessionId::Sctp(sctp)) == Some(conn) => {
                self.carriers.withdraw_sctp(&mut self.cx, sctp);
            }
            FlowId::Dtls { dtls } => self.carriers.dtls.drop_session(&mut self.cx, dtls),
            FlowId::None => {}
            _ => return false,
        }
        true
    }

    /// A connection does not wait for a stream of its session any more.
    pub(crate) fn stop_awaiting(&mut self, flow: FlowId) {
        if let FlowId::StreamPending { quic } = flow {
            self.close_spare(SessionId::Quic(quic));
        }
    }
}
