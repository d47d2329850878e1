//! The sockets of the stub resolver: datagrams and streams to name servers.

use crate::context::Context;
use crate::ids::SocketId;
use neater_base::net::{Ecn, ErrorKind, Net, NetError, Ready, RecvBatch, Sock, SocketOptions, Transmit};
use neater_dns::{Input, Output, Resolver, TransportId};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;

/// Datagrams that wait for room in the socket of one transport; more are lost, which the retry
/// timer covers.
const MAX_WAITING: usize = 8;
/// Datagram batches, or pieces of a stream, that one transport may deliver in a turn.
const READS_PER_TURN: usize = 16;

/// A socket of the resolver.
#[derive(Debug)]
struct Transport {
    sock: Sock,
    server: SocketAddr,
    stream: bool,
    connected: bool,
    /// What a stream could not yet take.
    unsent: Vec<u8>,
    /// Datagrams that the socket could not yet take, at most [`MAX_WAITING`].
    waiting: VecDeque<Vec<u8>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct ResolverSockets {
    transports: BTreeMap<u32, Transport>,
    /// Transports that were not read empty within the budget.
    unread: Vec<TransportId>,
}

impl ResolverSockets {
    /// Whether a transport was not read empty.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Does what the resolver wants of the network. What is not for the network is returned.
    pub(crate) fn handle<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        resolver: &mut Resolver,
        output: Output,
    ) -> Option<Output> {
        match output {
            Output::OpenUdp { transport, server, interface } => {
                self.open_transport(cx, resolver, transport, server, interface, false);
            }
            Output::OpenTcp { transport, server, interface } => {
                self.open_transport(cx, resolver, transport, server, interface, true);
            }
            Output::Send { transport, data } => self.transport_send(cx, resolver, transport, &data),
            Output::Close { transport } => {
                if let Some(t) = self.transports.remove(&transport.0) {
                    cx.net.close(t.sock);
                }
            }
            other => return Some(other),
        }
        None
    }

    fn open_transport<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        resolver: &mut Resolver,
        id: TransportId,
        server: SocketAddr,
        interface: Option<u32>,
        stream: bool,
    ) {
        let options = SocketOptions { interface, ..SocketOptions::default() };
        let token = SocketId::Resolver(id.0).token();
        let opened = if stream {
            cx.net.connect(token, server, &options)
        } else {
            cx.net.udp(token, server, &options).and_then(|sock| {
                cx.net.udp_connect(sock, server).inspect_err(|_| cx.net.close(sock))?;
                Ok(sock)
            })
        };
        match opened {
            Ok(sock) => {
                let transport = Transport {
                    sock,
                    server,
                    stream,
                    connected: !stream,
                    unsent: Vec::new(),
                    waiting: VecDeque::new(),
                };
                self.transports.insert(id.0, transport);
                if !stream {
                    // Nothing can have come yet, but no event is promised before it was tried.
                    self.transport_read(cx, resolver, id);
                }
            }
            Err(error) => self.transport_failed(cx, resolver, id, stream, error),
        }
    }

    fn transport_failed<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        resolver: &mut Resolver,
        id: TransportId,
        stream: bool,
        error: NetError,
    ) {
        let now = cx.now;
        let input = if stream {
            Input::TcpClosed { transport: id, error: Some(error) }
        } else {
            Input::UdpFailed { transport: id, error }
        };
        resolver.handle_input(now, input);
    }

    fn transport_send<N: Net>(&mut self, cx: &mut Context<N>, resolver: &mut Resolver, id: TransportId, data: &[u8]) {
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        if t.stream {
            t.unsent.extend_from_slice(data);
            return self.transport_flush(cx, resolver, id);
        }
        let transmit = Transmit {
            destination: t.server,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: data,
        };
        match cx.net.send(t.sock, &transmit) {
            Err(e) if e.is_would_block() => {
                if t.waiting.len() < MAX_WAITING {
                    t.waiting.push_back(data.to_vec());
                }
            }
            // Lost like any other: the retry timer covers it.
            Err(e) if e.kind == ErrorKind::NoBuffers => {}
            Err(e) => self.transport_failed(cx, resolver, id, false, e),
            Ok(()) => {}
        }
    }

    fn transport_flush<N: Net>(&mut self, cx: &mut Context<N>, resolver: &mut Resolver, id: TransportId) {
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        for data in core::mem::take(&mut t.waiting) {
            self.transport_send(cx, resolver, id, &data);
        }
        let Some(t) = self.transports.get_mut(&id.0) else { return };
        while t.connected && !t.unsent.is_empty() {
            match cx.net.write(t.sock, &[IoSlice::new(&t.unsent)]) {
                Ok(n) => drop(t.unsent.drain(..n)),
                Err(e) if e.is_would_block() => return,
                Err(e) => return self.transport_failed(cx, resolver, id, true, e),
            }
        }
    }

    pub(crate) fn on_ready<N: Net>(&mut self, cx: &mut Context<N>, resolver: &mut Resolver, number: u32, ready: Ready) {
        let id = TransportId(number);
        let Some(t) = self.transports.get_mut(&number) else { return };
        let now = cx.now;
        let mut connected = false;
        if t.stream && !t.connected && ready.writable {
            match cx.net.connect_result(t.sock) {
                Ok(()) => {
                    t.connected = true;
                    connected = true;
                    resolver.handle_input(now, Input::TcpConnected { transport: id });
                }
                Err(e) if e.is_would_block() => {}
                Err(e) => self.transport_failed(cx, resolver, id, true, e),
            }
        }
        self.transport_flush(cx, resolver, id);
        if connected || ready.readable || ready.error || ready.hangup {
            self.transport_read(cx, resolver, id);
        }
    }

    fn transport_read<N: Net>(&mut self, cx: &mut Context<N>, resolver: &mut Resolver, id: TransportId) {
        let now = cx.now;
        let Some(t) = self.transports.get(&id.0) else { return };
        let (sock, stream) = (t.sock, t.stream);
        if stream {
            let mut buf = [0; 4096];
            for _ in 0..READS_PER_TURN {
                match cx.net.read(sock, &mut buf) {
                    Ok(0) => return resolver.handle_input(now, Input::TcpClosed { transport: id, error: None }),
                    Ok(n) => resolver.handle_input(now, Input::TcpReceived { transport: id, data: &buf[..n] }),
                    Err(e) if e.is_would_block() => return,
                    Err(e) => return resolver.handle_input(now, Input::TcpClosed { transport: id, error: Some(e) }),
                }
            }
            return self.read_later(cx, id);
        }
        let mut batch = cx.batch.take().unwrap_or_else(|| Box::new(RecvBatch::default()));
        let mut more = true;
        for _ in 0..READS_PER_TURN {
            match cx.net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        for datagram in data.chunks(meta.stride.max(1)) {
                            resolver.handle_input(now, Input::UdpReceived { transport: id, data: datagram });
                        }
                    }
                    if batch.drained {
                        more = false;
                        break;
                    }
                }
                Err(e) => {
                    more = false;
                    if !e.is_would_block() {
                        self.transport_failed(cx, resolver, id, false, e);
                    }
                    break;
                }
            }
        }
        cx.batch = Some(batch);
        if more {
            self.read_later(cx, id);
        }
    }

    /// A transport has more to read than one turn allows: no event reports it.
    fn read_later<N: Net>(&mut self, cx: &mut Context<N>, id: TransportId) {
        if !self.unread.contains(&id) {
            self.unread.push(id);
        }
        cx.again = true;
    }

    /// Goes on with what the budget of the last turn left.
    pub(crate) fn read_unread<N: Net>(&mut self, cx: &mut Context<N>, resolver: &mut Resolver) {
        for id in core::mem::take(&mut self.unread) {
            self.transport_read(cx, resolver, id);
        }
    }
}
