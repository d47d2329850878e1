//! Sockets and attempts: how connections begin, and how those end that were not chosen.

use super::{NO_ERROR, Quic, QuicSocket, SOCKET_BUFFER};
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::{CarrierSocket, Due, Socket};
use crate::carrier::terms::Target;
use crate::carrier::terms::{OpenedStream, Taken};
use crate::carrier::{FlowId, QuicCarrier, SessionId};
use crate::closing::ABORTED;
use crate::context::Context;
use crate::event::AttemptError;
use crate::request::Compiled;
use crate::{RemoteEndpoint, Stack};
use neater_base::net::{ErrorKind, Net, SocketOption, SocketOptions};
use neater_base::{Instant, Key};
use neater_quic::{Connection, ConnectionApi, Direction, Endpoint, EndpointApi, Epoch, Handle, Identity, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// What this engine's QUIC endpoint at `local` is known by.
fn identity<N: Net>(cx: &mut Context<N>, local: Option<SocketAddr>) -> Identity {
    let secret = cx.config.shared_secret.unwrap_or(cx.config.seed);
    let mut keys = neater_base::Rng::new(secret);
    let qlog = cx.config.qlog.clone();
    let (engine, seed) = (cx.config.engine, cx.rng.seed());
    let (own, token_key) = (keys.seed(), keys.seed());
    let reset_key = match (&cx.config.reset_secret, local) {
        (Some(secret), Some(local)) => neater_quic::reset_key_at(secret, local),
        _ => own,
    };
    Identity { engine, seed, reset_key, token_key, qlog }
}

/// What a connection begins with.
pub(super) struct Beginning {
    pub(super) socket: Key,
    pub(super) handle: Handle,
    pub(super) conn: Connection,
    pub(super) stack: Stack,
    pub(super) remote: SocketAddr,
    pub(super) request: Arc<Compiled>,
    pub(super) remotes: Arc<[RemoteEndpoint]>,
    pub(super) client: bool,
}

impl QuicCarrier {
    /// Opens a UDP socket that speaks QUIC; `server`: it accepts connections for this listener.
    pub(crate) fn open_socket<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        family: SocketAddr,
        options: &SocketOptions,
        server: Option<(Key, &Arc<Compiled>)>,
    ) -> Result<Key, AttemptError> {
        let asked = options;
        let mut options = options.clone();
        options.set.push(SocketOption::ReceiveBuffer(SOCKET_BUFFER));
        options.set.push(SocketOption::SendBuffer(SOCKET_BUFFER));
        // Path MTU discovery needs packets that are not fragmented (RFC 9000 section 14).
        options.set.push(SocketOption::DontFragment(true));
        // A refused port or a missing route is the end of an attempt, which need not wait for a
        // timeout then.
        if server.is_none() {
            options.set.push(SocketOption::IcmpErrors(true));
        }
        let tls = server.and_then(|(_, r)| r.setups.quic_server.as_ref()).map(|(tls, tuning)| (tls.clone(), tuning));
        let key = self.sockets.next_key();
        let sock = cx.net.udp(CarrierSocket(Socket::Quic(key)).token(), family, &options).map_err(AttemptError::Net)?;
        let local = cx.net.local_addr(sock).ok();
        let identity = identity(cx, local);
        let made = Endpoint::new(Epoch::new(), &identity, tls).map_err(AttemptError::Quic);
        let mut endpoint = made.inspect_err(|_| cx.net.close(sock))?;
        endpoint.set_wall(cx.net.wall());
        endpoint.limit_handshakes(cx.limits.handshakes);
        self.sockets.insert(QuicSocket {
            sock,
            endpoint,
            conns: Vec::new(),
            writable: true,
            blocked: None,
            waiting: Vec::new(),
            mute: VecDeque::new(),
            listener: server.map(|(l, request)| (l, request.clone())),
            options: SocketOptions { local, ..asked.clone() },
        });
        Ok(key)
    }

    /// Listens again at a socket that is there for the connections of a listener that has stopped,
    /// if there is one: another cannot have its port.
    pub(crate) fn reopen_socket<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        options: &SocketOptions,
        listener: Key,
        request: &Arc<Compiled>,
    ) -> Result<Option<Key>, AttemptError> {
        let left = |s: &QuicSocket| s.listener.is_none() && s.endpoint.is_server() && s.options == *options;
        let Some(key) = self.sockets.iter().find(|(_, s)| left(s)).map(|(k, _)| k) else {
            return Ok(None);
        };
        let Some((tls, tuning)) = request.setups.quic_server.as_ref() else { return Ok(None) };
        let Some(s) = self.sockets.get_mut(key) else { return Ok(None) };
        let identity = identity(cx, s.options.local);
        s.endpoint.accept_again(&identity, tls.clone(), tuning).map_err(AttemptError::Quic)?;
        s.listener = Some((listener, request.clone()));
        Ok(Some(key))
    }

    /// Begins an attempt, with the name that the peer's certificate is to have.
    pub(crate) fn connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        attempt: Key,
        to: &Target<'_>,
        name: &str,
    ) -> Result<Key, AttemptError> {
        let Target { stack, addr, request, options, .. } = *to;
        let setup = request.setups.quic.as_ref().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        // Connections share a socket unless the socket itself was asked to be special.
        let plain = options.local.is_none() && options.set.is_empty() && options.temporary_address.is_none();
        let sharing = (addr.is_ipv6(), options.interface, request.isolation);
        let shared = self.client_sockets.iter().find(|(of, _)| plain && *of == sharing).map(|(_, k)| *k);
        let socket = match shared {
            Some(k) => k,
            None => {
                let k = self.open_socket(cx, addr, options, None)?;
                // Nothing can have come yet, but no event is promised before it was tried.
                self.socket_readable(cx, k);
                if plain {
                    self.client_sockets.push((sharing, k));
                }
                k
            }
        };
        // A UDP socket that is not connected does not report that there is no route until it sends.
        let remote = crate::context::with_scope(addr, options.interface);
        let Some(source) = cx.route_to(remote) else {
            self.tidy_socket(cx, socket);
            return Err(AttemptError::Net(ErrorKind::NetworkUnreachable.into()));
        };
        let Some(s) = self.sockets.get_mut(socket) else { return Err(AttemptError::NoAddress) };
        let (handle, conn) = match s.endpoint.connect(cx.now, setup, remote, name) {
            Ok(c) => c,
            Err(e) => {
                self.tidy_socket(cx, socket);
                return Err(AttemptError::Quic(e));
            }
        };
        let (request, remotes) = (request.clone(), to.remotes.clone());
        let key = self.insert(cx, Beginning { socket, handle, conn, stack, remote, request, remotes, client: true });
        if let Some(q) = self.connections.get_mut(key) {
            // By a certain interface it may be another one.
            q.local = options.local.map(|l| l.ip()).or(source.filter(|_| options.interface.is_none()));
            q.attempt = Some(attempt);
            q.may_become = to.may_become;
            let framed = q.request.framer.frames();
            if let (Some(data), Stack::Quic, true) = (to.first, stack, q.conn.has_early_data() && !framed) {
                // All or nothing: of a message that is half sent it would not be known which half
                // to send again.
                if let Some(stream) = q.conn.open(Direction::Both) {
                    if q.conn.write(stream, data) == Ok(data.len()) {
                        q.early = Some(stream);
                    } else {
                        q.conn.reset(stream, NO_ERROR);
                    }
                }
            }
        }
        self.mark_dirty(key);
        Ok(key)
    }

    pub(super) fn insert<N: Net>(&mut self, cx: &Context<N>, beginning: Beginning) -> Key {
        let Beginning { socket, handle, conn, stack, remote, request, remotes, client } = beginning;
        let peer_limit = request.properties.connection.group_conn_limit;
        let key = self.connections.insert(Quic {
            socket,
            handle,
            conn,
            client,
            stack,
            remote,
            connected: false,
            lost: None,
            attempt: None,
            may_become: None,
            answered: false,
            shaking: !client,
            on_trial: false,
            group: None,
            streams: BTreeMap::new(),
            datagrams: None,
            datagrams_over: false,
            datagrams_closing: false,
            request,
            remotes,
            early: None,
            opened: None,
            early_stopped: None,
            dirty: false,
            spoken: false,
            drained: false,
            armed: None,
            started: cx.now,
            window: neater_quic::Tuning::SEND_WINDOW_MIN,
            granted: 0,
            peer_limit,
            heard: cx.now,
            unacknowledged: None,
            local: None,
            pinned: None,
            moved: None,
            listens_at: None,
            give_up: None,
            keep_alive: None,
        });
        if let Some(s) = self.sockets.get_mut(socket) {
            if s.conns.len() <= handle.0 {
                s.conns.resize(handle.0 + 1, None);
            }
            s.conns[handle.0] = Some(key);
        }
        key
    }

    /// An attempt is not wanted any more.
    pub(crate) fn withdraw<N: Net>(&mut self, cx: &Context<N>, key: Key) {
        if let Some(q) = self.connections.get_mut(key) {
            q.attempt = None;
            if q.lost.is_none() && !q.spoken {
                // The peer has received nothing, and need not know that it was nothing.
                self.forget(key);
            } else if q.lost.is_none() {
                q.conn.close(cx.now, NO_ERROR, b"");
            }
            self.mark_dirty(key);
        }
    }

    /// Gives a withdrawn attempt until `due` to be answered.
    pub(crate) fn put_on_trial<N: Net>(&mut self, cx: &mut Context<N>, key: Key, due: Instant) -> bool {
        let Some(q) = self.connections.get_mut(key) else { return false };
        q.on_trial = true;
        cx.timers.push(due.max(cx.now), Due::QuicTrial(key).into());
        true
    }

    /// The time of a withdrawn attempt is up: its peer was silent.
    pub(crate) fn trial_over(&mut self, key: Key) {
        if self.connections.get_mut(key).is_some_and(|q| core::mem::take(&mut q.on_trial)) {
            self.events.push_back(CarrierEvent::NoAnswer { session: SessionId::Quic(key) });
        }
    }

    /// An attempt has won: its session belongs to a group, and carries this connection. Returns
    /// what that uses of it.
    pub(crate) fn take(&mut self, key: Key, group: Key, conn: Key) -> Option<Taken> {
        let q = self.connections.get_mut(key)?;
        q.attempt = None;
        q.group = Some(group);
        if q.stack == Stack::QuicDatagram {
            q.datagrams = Some(conn);
            return Some(Taken { flow: FlowId::Datagrams { quic: key }, waits: None, first: false });
        }
        let early = q.early.take().filter(|_| q.conn.accepted_early_data());
        let direction = q.direction();
        let stream = early.or_else(|| q.opened.take()).or_else(|| q.conn.open(direction));
        Some(match stream {
            Some(stream) => Taken { flow: FlowId::Stream { quic: key, stream }, waits: None, first: early.is_some() },
            None => Taken { flow: FlowId::StreamPending { quic: key }, waits: Some(direction), first: false },
        })
    }

    /// Reports to a connection that has just got the stream of its early data the STOP_SENDING that
    /// arrived for that stream before.
    pub(crate) fn report_early_stop(&mut self, key: Key, conn: Key) {
        if let Some(code) = self.connections.get_mut(key).and_then(|q| q.early_stopped.take()) {
            self.events.push_back(CarrierEvent::PeerStopped { conn, code });
        }
    }

    /// The next stream that the peer has opened. It may have come as early data, which may be a
    /// replay (RFC 9001 section 9.2): only where the listener asks for it.
    pub(crate) fn accept_stream(&mut self, quic: Key) -> Option<(OpenedStream, Direction)> {
        let q = self.connections.get_mut(quic).filter(|q| q.connected)?;
        let stream = q.conn.accept(Direction::Both).or_else(|| q.conn.accept(Direction::One))?;
        let (request, remotes) = (q.request.clone(), q.remotes.clone());
        let opened = OpenedStream { flow: FlowId::Stream { quic, stream }, stack: Stack::Quic, request, remotes };
        Some((opened, stream.direction()))
    }

    /// A stream of the peer's that no connection is made for.
    pub(crate) fn refuse_stream(&mut self, key: Key, stream: StreamId) {
        if let Some(q) = self.connections.get_mut(key) {
            q.conn.stop(stream, ABORTED);
            q.conn.reset(stream, ABORTED);
        }
    }

    /// A connection uses a stream from now on.
    pub(crate) fn bind<N: Net>(&mut self, cx: &mut Context<N>, key: Key, stream: StreamId, conn: Key) {
        if let Some(q) = self.connections.get_mut(key) {
            q.streams.insert(stream, conn);
            self.watch_silence(cx, key);
        }
    }
}
