//! Packets with nothing but new data, one behind the other.
//!
//! What else could leave, and where to, is the same for all packets that leave at one moment, as
//! long as nothing arrives between them: it is asked for once for all of them.
//!
//! *Invariant*: every packet is the one that [`Association::poll_transmit`] would have written, and
//! leaves everything as it would have; what this file does not do it leaves to that.

use super::Association;
use crate::ids::Route;
use neater_base::Instant;
use neater_sctp_wire::{Checksum, CommonHeader, PacketBuilder};

/// What the packets of a train have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Like {
    pub(crate) route: Route,
    pub(crate) ect: bool,
    /// The length of each but the last.
    pub(crate) segment: usize,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bulk {
    /// Packets of the asked-for length, but the last, which may be shorter.
    pub(crate) packets: usize,
    /// Their bytes.
    pub(crate) len: usize,
    /// The length of one more behind them, which is longer.
    pub(crate) over: Option<usize>,
}

impl Association {
    /// Writes packets of new data into `buffer`, at most `most`, until one has another length, or
    /// something else is to be done. It is not filled further than `spare` bytes before its end.
    pub(crate) fn poll_bulk(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        like: &Like,
        spare: usize,
        most: usize,
    ) -> Bulk {
        let mut bulk = Bulk::default();
        if !self.is_plain() || self.paths[0].route != like.route || self.agreed.ecn != like.ect {
            return bulk;
        }
        let header = CommonHeader { source_port: self.port, destination_port: self.peer_port, tag: self.peer_tag };
        let checksum = if self.agreed.zero_checksum { Checksum::Zero } else { Checksum::Crc32c };
        let (room, full) = (usize::from(self.paths[0].room), self.fragment_size());
        let mut any = false;
        while bulk.packets < most
            && buffer.len() - bulk.len >= spare.max(room)
            && self.fits_window(full)
            && self.may_leave(now, 0)
        {
            let Ok(mut packet) = PacketBuilder::new(&mut buffer[bulk.len..][..room], header) else { break };
            let mut bytes = 0;
            while let Some(size) = self.write_new(now, &mut packet, 0, (full, bytes)) {
                bytes += u64::from(size);
            }
            if bytes == 0 {
                break;
            }
            let len = packet.finish(checksum);
            self.queues.end_of_packet();
            self.stats.packets_sent += 1;
            let path = &mut self.paths[0];
            path.paced_until = None;
            path.on_sent(now, bytes);
            any = true;
            if len > like.segment {
                bulk.over = Some(len);
                break;
            }
            bulk.packets += 1;
            bulk.len += len;
            if len < like.segment {
                break;
            }
        }
        if any {
            self.arm(now, 0, false, true);
        }
        bulk
    }

    /// Whether new data on the only path is all that can leave.
    fn is_plain(&self) -> bool {
        let [path] = &self.paths[..] else { return false };
        let o = &self.outbox;
        let said = o.cookie_ack.is_none() && o.heartbeat_acks.is_empty() && o.errors.is_empty();
        let quiet = said && !o.state && o.ecne.is_none() && o.cwr.is_none() && !o.forward && self.candidate.is_none();
        quiet
            && self.is_sending()
            && path.is_active()
            && !path.heartbeat.wanted
            && path.mtu.wanted().is_none()
            && !self.out.has_lost()
            && !self.rx.arrivals.is_owed()
            && self.auth.is_none()
            && self.timers.window_probe.is_none()
            && !self.reconfig.is_wanted()
            && self.addresses.is_quiet()
    }

    /// Whether the peer's window takes what is next, so that nothing need be known of silly windows
    /// and probes.
    fn fits_window(&mut self, full: usize) -> bool {
        let left = self.window_left();
        self.queues.peek().is_some_and(|(_, message)| message.payload.len().min(full) <= left)
    }
}
