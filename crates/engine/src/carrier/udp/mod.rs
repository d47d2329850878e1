//! Plain UDP (RFC 768): datagrams over a socket of its own, or over one that several peers share.
//!
//! *Responsible for* moving datagrams between a connection's queue and a socket; those that look
//! alike leave together. *Not responsible for* which connection a datagram is for.

pub(crate) mod shared;

use super::channel::{Channel, Kind};
use super::{SessionId, SocketCarrier};
use crate::carrier::ids::CarrierSocket;
use crate::carrier::peer::Peer;
use crate::carrier::terms::Target;
use crate::context::Context;
use crate::event::{AttemptError, ConnectionError, SendError};
use crate::preferences::socket_priority;
use crate::queue::{Budget, Flushed, ReceivedDatagram, SendQueue};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Ecn, ErrorKind, IcmpError, Net, NetError, RecvBatch, SocketOption, Transmit};

/// What one UDP packet can hold: datagrams that leave together must fit into it.
const UDP_MAX: usize = 65_507;

/// How many datagrams at the front of a queue can leave with one call: as long as the first, and at
/// most one shorter one after them. Empty ones have no length by which they could be cut apart, and
/// leave alone. What else a message may ask for does not change what a UDP datagram looks like:
/// that is the socket's.
fn run(queue: &SendQueue, most: usize) -> usize {
    let mut lens = queue.queue.iter().map(|s| s.data.len());
    let Some(first) = lens.next().filter(|len| *len > 0) else { return 1 };
    let most = most.min(UDP_MAX / first);
    let mut count = 1;
    for len in lens.take(most.saturating_sub(1)) {
        if len == 0 || len > first {
            break;
        }
        count += 1;
        if len < first {
            break;
        }
    }
    count
}

/// Sends datagrams, several with one call where the network cuts them up again. `packet` is room
/// for these.
pub(super) fn send<N: Net>(
    net: &mut N,
    ch: &mut Channel,
    peer: Peer,
    queue: &mut SendQueue,
    budget: &mut Budget,
    (done, packet): (&mut Flushed, &mut Vec<u8>),
) {
    let (source, interface) = peer.source();
    let mut retried = false;
    let mut most = if queue.queue.len() > 1 { net.max_segments(ch.sock) } else { 1 };
    while ch.writable {
        let before = *budget;
        let wanted = run(queue, most);
        let may = queue.queue.iter().take(wanted).take_while(|s| budget.take_datagram(s.data.len())).count();
        let Some(front) = queue.queue.front().filter(|_| may > 0) else { return };
        let segment_size = (may > 1).then_some(front.data.len());
        if may > 1 {
            packet.clear();
            queue.queue.iter().take(may).for_each(|s| packet.extend_from_slice(&s.data));
        }
        let transmit = Transmit {
            destination: peer.remote,
            source,
            interface,
            ecn: Ecn::NotEct,
            segment_size,
            contents: if may > 1 { packet } else { &front.data },
        };
        let result = net.send(ch.sock, &transmit);
        let failed = match result {
            Ok(()) => None,
            Err(e) if e.is_would_block() => {
                ch.writable = false;
                return;
            }
            // What the system reports here is about an earlier datagram (RFC 1122 section 4.1.3.3):
            // not this one's fault.
            Err(e) if e.kind == ErrorKind::ConnectionRefused && !core::mem::replace(&mut retried, true) => {
                *budget = before;
                done.refused = Some(e);
                continue;
            }
            // None of them has left. Perhaps they are too long to be cut up, or one is to blame:
            // each is sent alone.
            Err(_) if may > 1 => {
                (*budget, most) = (before, 1);
                continue;
            }
            Err(e) if e.kind == ErrorKind::MessageTooLarge => Some(SendError::MessageTooLarge { max: 0 }),
            Err(e) => Some(SendError::Connection(ConnectionError::Net(e))),
        };
        if failed.is_some() {
            *budget = before;
        }
        for _ in 0..may {
            let n = queue.queue.front().map_or(0, |s| s.data.len());
            let id = queue.pop();
            match (&failed, id) {
                (None, id) => {
                    done.bytes += n;
                    done.sent.extend(id);
                }
                (Some(error), Some(id)) => done.failed.push((id, error.clone())),
                (Some(_), None) => {}
            }
        }
    }
}

/// What one read of a socket has found.
pub(crate) enum Batch {
    /// Datagrams; `drained`: and all that there were.
    Filled { drained: bool },
    /// Nothing.
    Empty,
    /// The ICMP error of an earlier datagram of ours, or another one. There may be datagrams behind
    /// it.
    Error(NetError),
}

impl SocketCarrier {
    pub(in crate::carrier) fn udp_connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        attempt: Key,
        to: &Target<'_>,
    ) -> Result<SessionId, AttemptError> {
        let key = self.channels.next_key();
        let sock = cx.net.udp(CarrierSocket::channel(key).token(), to.addr, to.options).map_err(AttemptError::Net)?;
        if let Err(e) = cx.net.udp_connect(sock, to.addr) {
            cx.net.close(sock);
            return Err(AttemptError::Net(e));
        }
        if let p @ 1.. = socket_priority(to.request.properties.connection.priority) {
            // A wish: the datagrams leave without it, too.
            let _ = cx.net.set(sock, SocketOption::Priority(p));
        }
        let mut channel = Channel::new(sock, Kind::Udp, to.used_by(attempt), to.addr, cx.now);
        (channel.connected, channel.writable, channel.readable) = (true, true, true);
        self.channels.insert(channel);
        Ok(SessionId::Channel(key))
    }

    /// Takes a batch of datagrams from a socket, and notes when none are left.
    pub(crate) fn receive_batch<N: Net>(&mut self, cx: &mut Context<N>, key: Key, batch: &mut RecvBatch) -> Batch {
        let Some(ch) = self.channels.get_mut(key) else { return Batch::Empty };
        let outcome = match cx.net.recv(ch.sock, batch) {
            Ok(_) => Batch::Filled { drained: batch.drained },
            Err(e) if e.is_would_block() => Batch::Empty,
            Err(e) => Batch::Error(e),
        };
        if matches!(outcome, Batch::Filled { drained: true } | Batch::Empty) {
            ch.readable = false;
        }
        outcome
    }

    /// The next ICMP error of a socket that asked for them.
    pub(crate) fn take_icmp_error<N: Net>(&self, cx: &mut Context<N>, key: Key) -> Option<IcmpError> {
        cx.net.take_icmp_error(self.channels.get(key)?.sock)
    }
}

/// Hands on each datagram of a batch. The system may have put several of one length behind each
/// other.
pub(crate) fn each_datagram(batch: &mut RecvBatch, mut take: impl FnMut(ReceivedDatagram)) {
    for (meta, data) in batch.filled() {
        for one in data.chunks(meta.stride.max(1)) {
            take(ReceivedDatagram { data: Bytes::copy_from_slice(one), ecn: meta.ecn });
        }
        if data.is_empty() {
            take(ReceivedDatagram { data: Bytes::new(), ecn: meta.ecn });
        }
    }
}
