//! Scripted services: hosts that answer without a `Net` of their own, such as DNS servers and liars.

use crate::host::Owner;
use crate::sim::{Event, Sim, UdpReply};
use crate::tcp::Conn;
use crate::world::HostId;
use core::time::Duration;
use neater_base::net::ErrorKind;
use neater_base::{Instant, Key, Rng};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A scripted UDP service: given the time, who asks, the datagram and randomness, it returns datagrams to send back and
/// how long to wait with each. It must not use the [`crate::World`] it belongs to: that would wait for itself.
pub type UdpService = Box<dyn FnMut(Instant, SocketAddr, &[u8], &mut Rng) -> Vec<(Duration, Vec<u8>)> + Send>;

/// A scripted TCP service, for requests and responses. It is called when a connection opens (with nothing received) and
/// whenever something was received; the vector holds all bytes of that connection that it has not taken out yet. It
/// returns what to do and how long to wait with each. When the peer closes its direction and all is done and sent, the
/// connection is closed. The same rule about the [`crate::World`] holds.
pub type TcpService = Box<dyn FnMut(Instant, SocketAddr, &mut Vec<u8>, &mut Rng) -> Vec<(Duration, TcpAction)> + Send>;

/// What a scripted TCP service does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpAction {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Closes after what was sent.
    Close,
    /// Resets the connection.
    Abort,
}

/// Answers of a service to one call; more are dropped.
pub const MAX_ANSWERS: usize = 1024;
/// Bytes that a service may leave in the vector; then it is given no more.
pub const MAX_UNTAKEN: usize = 1 << 20;
/// Bytes that wait to be sent on one connection of a service; the connection is reset beyond.
pub const MAX_UNSENT: usize = 64 << 20;

/// The state of one connection of a service.
#[derive(Debug, Default)]
pub(crate) struct ServiceConn {
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    opened: bool,
    /// Actions that are still to come.
    pending: usize,
    peer_ended: bool,
    closing: bool,
    /// The connection has been let go.
    released: bool,
}

impl Sim {
    /// Gives a datagram to the service at its port. False: there is none.
    pub(crate) fn udp_service_input(
        &mut self,
        id: HostId,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
    ) -> bool {
        let now = self.now;
        let host = self.host(id);
        let Some(service) = host.udp_services.get_mut(&destination.port()) else { return false };
        let mut answers = service(now, source, payload, &mut host.rng);
        answers.truncate(MAX_ANSWERS);
        for (delay, payload) in answers {
            self.schedule(
                now + delay,
                Event::UdpReply(Box::new(UdpReply { host: id, from: destination, to: source, payload })),
            );
        }
        true
    }

    /// Lets the service of a connection read, act and write.
    pub(crate) fn drive_service(&mut self, id: HostId, key: Key) {
        let now = self.now;
        let host = self.host(id);
        let Some(entry) = host.conns.get_mut(key) else { return };
        let Owner::Service(port) = entry.owner else { return };
        if !entry.conn.was_established() || entry.conn.is_closed() {
            return;
        }
        let remote = entry.remote;
        let state = host.service_conns.entry(key).or_default();
        let before = state.received.len();
        let mut chunk = [0; 16 * 1024];
        while state.received.len() < MAX_UNTAKEN {
            match entry.conn.read(now, &mut chunk) {
                Ok(0) => state.peer_ended = true,
                Ok(n) => {
                    state.received.extend_from_slice(&chunk[..n]);
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        let new = state.received.len() > before || !state.opened;
        state.opened = true;
        let mut actions = Vec::new();
        match host.tcp_services.get_mut(&port) {
            Some(service) if new => actions = service(now, remote, &mut state.received, &mut host.rng),
            None if new => return entry.conn.abort(),
            _ => {}
        }
        actions.truncate(MAX_ANSWERS);
        state.pending += actions.len();
        push_out(&mut entry.conn, state, now);
        for (delay, action) in actions {
            self.schedule(now + delay, Event::TcpAction(Box::new((id, key, action))));
        }
    }

    /// A delayed action of a service is due.
    pub(crate) fn service_action(&mut self, id: HostId, key: Key, action: TcpAction) {
        let host = self.host(id);
        let (Some(entry), Some(state)) = (host.conns.get_mut(key), host.service_conns.get_mut(&key)) else { return };
        state.pending = state.pending.saturating_sub(1);
        match action {
            TcpAction::Send(bytes) if state.unsent.len() + bytes.len() > MAX_UNSENT => entry.conn.abort(),
            TcpAction::Send(bytes) if !state.closing => state.unsent.extend(bytes),
            TcpAction::Send(_) => {}
            TcpAction::Close => state.closing = true,
            TcpAction::Abort => entry.conn.abort(),
        }
        self.settle(id, key);
    }
}

/// Writes what fits, and closes when there is nothing left to do.
fn push_out(conn: &mut Conn, state: &mut ServiceConn, now: Instant) {
    while !state.unsent.is_empty() {
        let (a, b) = state.unsent.as_slices();
        match conn.write(now, [a, b]) {
            Ok(0) | Err(ErrorKind::WouldBlock) => return,
            Ok(n) => drop(state.unsent.drain(..n)),
            Err(_) => state.unsent.clear(),
        }
    }
    let done = state.closing || (state.peer_ended && state.pending == 0);
    if done && !state.released {
        state.released = true;
        conn.close(now);
    }
}
