//! The size of packets: probes of it, black holes, and what the network reports (RFC 8899, RFC 9260
//! sections 7.3 and 10).

use super::output::Packed;
use super::{Association, State};
use crate::event::{CloseReason, IcmpError};
use crate::ids::Route;
use crate::path::{Info, PathState};
use neater_base::{Instant, Rng};
use neater_sctp_wire::chunk::{Heartbeat, Init};
use neater_sctp_wire::{Checksum, ChunkSet, CommonHeader, PacketBuilder, Tag};

/// With so many packets' data to send or unacknowledged, the size of packets matters.
const WORTH_A_SEARCH: usize = 4;

impl Association {
    /// Writes a probe, if one is to be sent: it has nothing in it that would be missed.
    pub(super) fn poll_probe(&mut self, now: Instant, buffer: &mut [u8], rng: &mut Rng) -> Option<Packed> {
        if !matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived) {
            return None;
        }
        // A search costs some packets, and is worth them where larger ones would be used.
        let least =
            if self.config.search_idle { 0 } else { WORTH_A_SEARCH * usize::from(self.paths[self.current].room) };
        if self.buffered() < least {
            return None;
        }
        let wanted = |p: &crate::path::Path| p.mtu.wanted().filter(|_| p.is_active() && p.heartbeat.is_idle());
        let (index, size) = self.paths.iter().enumerate().find_map(|(i, p)| Some((i, wanted(p)?)))?;
        let header = CommonHeader { source_port: self.port, destination_port: self.peer_port, tag: self.peer_tag };
        let space = buffer.get_mut(..usize::from(size))?;
        let mut packet = PacketBuilder::new(space, header).ok()?;
        self.sign(&mut packet, ChunkSet::EMPTY);
        let path = &mut self.paths[index];
        let nonce = rng.u64();
        packet.push(&Heartbeat { info: &Info { path: path.id, nonce }.to_bytes() }).ok()?;
        packet.pad_to(usize::from(size)).ok()?;
        let rto = path.rtt.rto();
        path.mtu.sent(now, size, nonce, rto);
        let route = path.route;
        self.stats.mtu_probes += 1;
        self.seal(&mut packet);
        let checksum = if self.agreed.zero_checksum { Checksum::Zero } else { Checksum::Crc32c };
        Some(Packed { route, len: packet.finish(checksum), ect: false, whole: true, probe: true })
    }

    /// A heartbeat came back that no timer waits for: perhaps it was a probe.
    pub(super) fn probe_answered(&mut self, now: Instant, index: usize, nonce: u64) {
        if self.paths[index].mtu.answered(now, nonce) {
            self.answered(index);
            self.errors = 0;
            self.adjust_size(index);
        }
    }

    /// A path takes larger or smaller packets than before.
    pub(super) fn adjust_size(&mut self, index: usize) {
        let path = &mut self.paths[index];
        let size = path.mtu.size();
        if path.room != size {
            path.room = size;
            path.cc.set_mss(u64::from(size) - 12);
        }
    }

    /// The layer takes packets of so many bytes.
    pub(crate) fn set_largest_packet(&mut self, size: u16) {
        for index in 0..self.paths.len() {
            self.paths[index].mtu.set_most(size);
            self.adjust_size(index);
        }
    }

    /// T3-rtx of a path has expired so often in a row.
    pub(super) fn suspect_size(&mut self, index: usize, times: u32) {
        let path = &mut self.paths[index];
        if path.mtu.suspect(times) {
            self.stats.black_holes += 1;
            self.adjust_size(index);
        }
    }

    /// Whether a packet that the network quotes was ours (RFC 9260 section 10, ICMP6): by the
    /// peer's tag, or in an INIT chunk by ours.
    pub(crate) fn is_quoted(&self, quoted: &[u8]) -> bool {
        let word = |at: usize| quoted.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        match word(4) {
            Some(0) => quoted.get(12) == Some(&Init::KIND) && word(16) == Some(self.tag.0),
            Some(tag) => tag == self.peer_tag.0 && self.peer_tag != Tag::ZERO,
            None => false,
        }
    }

    /// The network reports about a packet that we seem to have sent; false if it was not ours.
    pub(crate) fn handle_icmp(&mut self, now: Instant, route: Route, error: IcmpError, quoted: &[u8]) -> bool {
        let init = quoted.get(4..8) == Some(&[0; 4]);
        let Some(index) = self.path_of(route).filter(|_| !self.is_closed() && self.is_quoted(quoted)) else {
            return false;
        };
        // RFC 6951 section 5.5: to a packet in UDP the port is the protocol.
        let error = match error {
            IcmpError::PortUnreachable if route.remote.port() != 0 => IcmpError::ProtocolUnreachable,
            other => other,
        };
        match error {
            IcmpError::PacketTooBig { size } => {
                if self.paths[index].mtu.too_big(now, size) {
                    self.adjust_size(index);
                }
            }
            // ICMP8. An INIT chunk can be refused only while it is under way.
            IcmpError::ProtocolUnreachable if !init || self.state == State::CookieWait => {
                // With another path that works the peer is there.
                let several = self.live_paths().filter(|p| p.state != PathState::Unconfirmed).count() > 1;
                if several || self.is_doubtful(route.remote) {
                    self.failed(index, false);
                } else {
                    self.close(CloseReason::Refused("no socket listens there (ICMP)"));
                }
            }
            IcmpError::ProtocolUnreachable => {}
            // ICMP9: one more error of the path.
            IcmpError::Unreachable => self.failed(index, false),
            // ICMP3.
            IcmpError::PortUnreachable => {}
        }
        true
    }
}
