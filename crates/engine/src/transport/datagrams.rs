//! Datagrams of plain UDP: those that look alike leave together.

use crate::carrier::channel::{Channel, Peer};
use crate::event::{ConnectionError, SendError};
use crate::queue::{Budget, Flushed, SendQueue};
use neater_base::net::{Ecn, ErrorKind, Net, Transmit};

/// What one UDP packet can hold: datagrams that leave together must fit into it.
const UDP_MAX: usize = 65_507;

/// How many datagrams at the front of a queue can leave with one call: as long as the first, and at most one shorter one after them.
/// Empty ones have no length that could be told, and leave alone. What else a message may ask for does not change what a UDP datagram
/// looks like: that is the socket's.
fn run(tx: &SendQueue, most: usize) -> usize {
    let mut lens = tx.queue.iter().map(|s| s.data.len());
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

/// Sends datagrams, several with one call where the network cuts them up again. `packet` is room for these.
pub(super) fn flush_datagrams<N: Net>(
    net: &mut N,
    ch: &mut Channel,
    peer: Peer,
    tx: &mut SendQueue,
    budget: &mut Budget,
    (done, packet): (&mut Flushed, &mut Vec<u8>),
) {
    let (source, interface) = peer.source();
    let mut retried = false;
    let mut most = if tx.queue.len() > 1 { net.max_segments(ch.sock) } else { 1 };
    while ch.writable {
        let before = *budget;
        let wanted = run(tx, most);
        let may = tx.queue.iter().take(wanted).take_while(|s| budget.take_datagram(s.data.len())).count();
        let Some(front) = tx.queue.front().filter(|_| may > 0) else { return };
        let segment_size = (may > 1).then_some(front.data.len());
        if may > 1 {
            packet.clear();
            tx.queue.iter().take(may).for_each(|s| packet.extend_from_slice(&s.data));
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
            // What the kernel reports here is about an earlier datagram (RFC 1122 section 4.1.3.3): not this one's fault.
            Err(e) if e.kind == ErrorKind::ConnectionRefused && !core::mem::replace(&mut retried, true) => {
                *budget = before;
                done.refused = Some(e);
                continue;
            }
            // None of them has left. Perhaps they are too long to be cut up, or one is to blame: each is told its own.
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
            let n = tx.queue.front().map_or(0, |s| s.data.len());
            let id = tx.pop();
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
