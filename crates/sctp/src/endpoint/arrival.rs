//! A packet arrives: whose is it (RFC 9260 sections 8.4 and 8.5).

use super::Endpoint;
use crate::association::{REFLECTED, is_unicast};
use crate::event::IcmpError;
use crate::ids::{AssociationId, Route};
use neater_base::{Instant, Key};
use neater_sctp_wire::chunk::{Abort, Auth, CookieAck, CookieEcho, Error, Init, ShutdownAck, ShutdownComplete};
use neater_sctp_wire::{
    Cause, Causes, Checksum, Chunk, CommonHeader, Emit, Packet, PacketBuilder, RawChunk, Tag, ZeroChecksum,
};

impl Endpoint {
    /// Takes a packet that came over `route`; `marked`: the network has marked it as having met
    /// congestion.
    pub fn handle_packet(&mut self, now: Instant, route: Route, marked: bool, bytes: &[u8]) {
        self.stats.packets_received += 1;
        let Some(layer) = self.config.layers.get(usize::from(route.layer.0)) else { return };
        let zero = layer.authenticates && self.association_config.extensions.zero_checksum;
        let zero = if zero { ZeroChecksum::Accepted } else { ZeroChecksum::Refused };
        let packet = match Packet::parse(bytes) {
            Ok(packet) if packet.verify(zero).is_ok() => packet,
            _ => {
                self.stats.malformed += 1;
                return;
            }
        };
        if packet.header.destination_port != self.config.port {
            self.stats.wrong_port += 1;
            return;
        }
        let Some(Ok(first)) = packet.chunks().next() else {
            self.stats.malformed += 1;
            return;
        };
        // The chunk behind an AUTH chunk determines whose the packet is (RFC 4895 section 6.3).
        let auth = (first.kind == Auth::KIND).then_some(first);
        let leading = match packet.chunks().nth(1) {
            Some(Ok(second)) if auth.is_some() => second,
            _ => first,
        };
        match leading.kind {
            Init::KIND => self.on_init(now, route, &packet, &first),
            CookieEcho::KIND => self.on_cookie_echo(now, route, marked, &packet, auth.as_ref(), &leading),
            kind => match self.owner(route, &packet, &leading, kind) {
                Some(key) => self.deliver(now, key, route, marked, &packet, (0, false)),
                None => self.out_of_the_blue(now, route, &packet),
            },
        }
    }

    /// Takes an ICMP message about a packet that was sent over `route`; `quoted` is what it quotes
    /// of the SCTP packet, from the common header on (behind the UDP header if there is one).
    pub fn handle_icmp(&mut self, now: Instant, route: Route, error: IcmpError, quoted: &[u8]) {
        // Section 10, ICMP5 and ICMP6: what cannot be attributed to a packet of ours is ignored.
        let ports = |a: usize| quoted.get(a..a + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
        let peer = ports(2).filter(|_| ports(0) == Some(self.config.port));
        let key = peer.and_then(|port| self.index.by_peer(route.remote, port));
        let entry = key.and_then(|key| Some((key, self.associations.get_mut(key)?)));
        let taken = entry.is_some_and(|(_, entry)| entry.association.handle_icmp(now, route, error, quoted));
        self.stats.icmp += u64::from(taken);
        self.stats.icmp_ignored += u64::from(!taken);
        if let Some(key) = key.filter(|_| taken) {
            self.touch(key);
        }
    }

    /// The association of ours that sent a packet over `route`, as an ICMP message quotes it: by
    /// ports and tag.
    #[must_use]
    pub fn quoted(&self, route: Route, quoted: &[u8]) -> Option<AssociationId> {
        let ports = |a: usize| quoted.get(a..a + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
        let peer = ports(2).filter(|_| ports(0) == Some(self.config.port))?;
        let key = self.index.by_peer(route.remote, peer)?;
        let entry = self.associations.get(key).filter(|e| !e.released && e.association.is_quoted(quoted))?;
        (!entry.association.is_closed()).then_some(AssociationId(key))
    }

    /// Hands a packet to its association, without chunks at its beginning that have been taken, and
    /// whether AUTH was among them.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        key: Key,
        route: Route,
        marked: bool,
        packet: &Packet<'_>,
        (skip, authenticated): (usize, bool),
    ) {
        if let Some(entry) = self.associations.get_mut(key) {
            entry.association.set_receive_room(self.config.receive_budget.saturating_sub(self.unread));
            entry.association.handle_packet(now, route, marked, packet, skip, authenticated, &mut self.rng);
            self.touch(key);
        }
    }

    /// The association that a packet is for, by the rules for tags.
    fn owner(&self, route: Route, packet: &Packet<'_>, first: &RawChunk<'_>, kind: u8) -> Option<Key> {
        let CommonHeader { source_port, tag, .. } = packet.header;
        let ends = matches!(kind, Abort::KIND | ShutdownComplete::KIND);
        if ends && first.flags & REFLECTED != 0 {
            // The peer knows nothing of the association and sends back the tag that we put into our
            // packets.
            let key = self.index.by_peer(route.remote, source_port)?;
            let entry = self.associations.get(key)?;
            // An address that has not answered may be another host's, which rightly reports that it
            // knows nothing.
            let known = entry.association.peer_tag() == tag && tag != Tag::ZERO;
            return (known && !entry.association.is_doubtful(route.remote)).then_some(key);
        }
        let key = self.index.by_tag(tag)?;
        let entry = self.associations.get(key)?;
        (entry.association.peer_port() == source_port).then_some(key)
    }

    /// A packet that no association can be found for (section 8.4).
    fn out_of_the_blue(&mut self, now: Instant, route: Route, packet: &Packet<'_>) {
        let CommonHeader { source_port, tag, .. } = packet.header;
        let known = self.index.by_peer(route.remote, source_port).and_then(|k| self.associations.get(k));
        let mut kinds = packet.chunks().flatten();
        let shutdown_ack = kinds.clone().any(|c| c.kind == ShutdownAck::KIND);
        if let Some(entry) = known {
            // A wrong tag: silently discarded (section 8.5), unless the handshake is met by the end
            // of an older association (section 8.5.1 E).
            if !(shutdown_ack && entry.association.is_opening()) {
                self.stats.wrong_tag += 1;
                return;
            }
        }
        self.stats.out_of_the_blue += 1;
        // A peer that still sends SHUTDOWN ACK to an association that was ours has missed our last
        // chunk.
        if self.config.reserved && !(shutdown_ack && self.ended.has(tag)) {
            return;
        }
        let silent = kinds.any(|c| {
            matches!(c.kind, Abort::KIND | ShutdownComplete::KIND | CookieAck::KIND | Init::KIND) || is_stale(&c)
        });
        if silent || !is_unicast(route.remote.ip()) || tag == Tag::ZERO || !self.replies.allow(now, route.remote.ip()) {
            return;
        }
        if shutdown_ack {
            self.reply(route, source_port, tag, &ShutdownComplete { reflected: true });
        } else {
            self.reply(route, source_port, tag, &Abort { reflected: true, causes: Causes::EMPTY });
        }
    }

    /// Sends a packet with one chunk that belongs to no association.
    pub(super) fn reply(&mut self, route: Route, port: u16, tag: Tag, chunk: &impl Emit) {
        let mut buffer = vec![0; usize::from(crate::config::MIN_ROOM)];
        let header = CommonHeader { source_port: self.config.port, destination_port: port, tag };
        let Ok(mut packet) = PacketBuilder::new(&mut buffer, header) else { return };
        if packet.push(chunk).is_ok() {
            let len = packet.finish(Checksum::Crc32c);
            buffer.truncate(len);
            self.replies.push(route, buffer);
        }
    }
}

/// Whether it is an ERROR chunk about a stale cookie.
fn is_stale(raw: &RawChunk<'_>) -> bool {
    raw.kind == Error::KIND
        && matches!(Chunk::decode(raw), Ok(Chunk::Error(e)) if e.causes.iter().flatten().any(|c| matches!(c, Cause::StaleCookie(_))))
}
