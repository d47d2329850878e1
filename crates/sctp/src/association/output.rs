//! Packets that leave: which, where to, and what is in them (RFC 9260 sections 6.1 and 6.10).

use super::addresses::ALWAYS_SIGNED;
use super::heartbeats::CANDIDATE;
use super::{Association, State, heartbeats};
use crate::config::{LossDetection, MIN_ROOM};
use crate::handshake::write_init;
use crate::ids::Route;
use crate::path::{Info, PathState};
use crate::send::{Piece, Reliability};
use neater_base::{Instant, Rng};
use neater_sctp_wire::chunk::{
    CookieAck, CookieEcho, Cwr, Data, Ecne, Heartbeat, HeartbeatAck, IData, NrSack, Part, Sack, Shutdown, ShutdownAck,
};
use neater_sctp_wire::{Array, Causes, Checksum, CommonHeader, Fsn, Full, Mid, PacketBuilder, Ssn, Tag, Tsn};

/// A message is not cut to fill what is left of a packet if that is less than this: a chunk's
/// header would not be worth it. Packets of one length can travel together, so that even little is
/// worth more than a shorter packet.
const SLIVER: usize = 32;
/// With a window of more packets than this it does not matter in slow start that one of them is
/// acknowledged late.
const FEW: u64 = 32;
/// An INIT packet has at least this many bytes, so that its answer has at most three times as many.
const INIT_LEN: usize = 128;

/// A packet that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) route: Route,
    pub(crate) len: usize,
    /// It may be marked by the network: ECT(0).
    pub(crate) ect: bool,
    /// It must not be cut into fragments on the way.
    pub(crate) whole: bool,
    /// It asks whether the path takes packets of its length.
    pub(crate) probe: bool,
}

/// Where the next packet goes.
#[derive(Clone, Copy, Debug)]
struct Target {
    route: Route,
    path: Option<usize>,
    /// Data may go with it.
    data: bool,
}

impl Association {
    /// Writes the next packet into `buffer`.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8], rng: &mut Rng) -> Option<Packed> {
        if let Some(probe) = self.poll_probe(now, buffer, rng) {
            self.stats.packets_sent += 1;
            return Some(probe);
        }
        // A target can turn out to have nothing after all (a chunk that does not fit); it is then
        // not chosen again.
        for _ in 0..8 {
            let target = self.choose(now)?;
            let packed = self.write(now, target, buffer, rng);
            if packed.is_some() {
                self.stats.packets_sent += 1;
                return packed;
            }
        }
        None
    }

    /// Chooses where the next packet goes.
    fn choose(&mut self, now: Instant) -> Option<Target> {
        let to = |index: usize, a: &Self, data| Target { route: a.paths[index].route, path: Some(index), data };
        match self.state {
            State::Closed => return None,
            State::CookieWait | State::CookieEchoed(_) => {
                let echo = matches!(self.state, State::CookieEchoed(_));
                return self.outbox.state.then(|| to(self.current, self, echo));
            }
            _ => {}
        }
        if let Some(index) = self.data_path(now) {
            return Some(to(index, self, true));
        }
        let reply = self.outbox.cookie_ack.or_else(|| self.outbox.heartbeat_acks.front().map(|(r, _)| *r));
        let reply = reply.or_else(|| self.candidate.filter(|c| !c.sent).map(|c| c.route));
        let reply = reply.or_else(|| self.addresses.answer_route()).or_else(|| self.asconf_route());
        if let Some(route) = reply {
            return Some(Target { route, path: self.path_of(route), data: false });
        }
        if let Some(index) = self.paths.iter().position(|p| self.may_ask(p)) {
            return Some(to(index, self, false));
        }
        if self.outbox.state {
            return Some(to(self.current, self, false));
        }
        let o = &self.outbox;
        let control = !o.errors.is_empty() || o.ecne.is_some() && self.rx.arrivals.is_due(now) || o.cwr.is_some();
        if control || o.forward || self.reconfig.is_wanted() {
            return Some(to(self.current, self, false));
        }
        let sack = self.is_receiving() && self.rx.arrivals.is_due(now);
        sack.then(|| {
            to(if self.paths[self.last_from].is_active() { self.last_from } else { self.current }, self, false)
        })
    }

    /// The path on which data can leave now.
    fn data_path(&mut self, now: Instant) -> Option<usize> {
        if !self.is_sending() {
            return None;
        }
        for path in &mut self.paths {
            path.paced_until = None;
        }
        self.forget_rescue();
        // What is lost goes first (section 6.1, rule C).
        let lost = self.lost_targets();
        for index in 0..self.paths.len() {
            if lost & 1 << index != 0 && self.may_leave(now, index) {
                return Some(index);
            }
        }
        if self.copies_everything()
            && let Some(index) = self.copy_path(now, lost)
        {
            return Some(index);
        }
        if self.has_new_data(now) {
            return self.fresh_path(now, lost);
        }
        self.rescue_path(now).or_else(|| self.copy_path(now, lost))
    }

    /// Whether window, burst and pace let a packet leave on a path that has something to send.
    pub(super) fn may_leave(&mut self, now: Instant, index: usize) -> bool {
        let next = self.out.next();
        let path = &mut self.paths[index];
        if path.in_flight == 0 && !path.forced {
            let rto = path.rtt.rto();
            path.cc.on_send_after(now, 0, rto);
        }
        if !path.has_room() {
            if path.is_limited() {
                path.limited_to = next;
            }
            return false;
        }
        let release = path.release(now);
        if release > now {
            path.paced_until = Some(release);
        }
        release <= now
    }

    /// Where a lost chunk goes: after a timeout another way if there is one (section 6.4.1).
    pub(super) fn retransmission_path(&self, tsn: u64) -> usize {
        let Some(sent) = self.out.get(tsn) else { return self.current };
        let last = usize::from(sent.path.0);
        if let Some(multipath) = self.multipath() {
            return self.lost_goes(&multipath, tsn, last);
        }
        if sent.timed_out {
            return self.alternate(last).unwrap_or(self.current);
        }
        if self.paths[last].is_active() { last } else { self.current }
    }

    /// Whether there is new data that the peer's window takes, or that may probe a closed one.
    pub(super) fn has_new_data(&mut self, now: Instant) -> bool {
        if self.is_numbered_out() {
            return false;
        }
        let left = self.window_left();
        let most = self.fragment_size();
        let Some((_, message)) = self.queues.peek() else {
            // All streams are held until the peer has reset them: there is nothing to probe with.
            self.timers.window_probe = None;
            return false;
        };
        // Either all that is left of the message or a full chunk: no silly windows (RFC 1122
        // section 4.2.3.4).
        if message.payload.len().min(most) <= left {
            return true;
        }
        if self.out.any_in_flight() || self.out.has_lost() {
            return false;
        }
        let rto = self.paths[self.current].rtt.rto();
        let at = *self.timers.window_probe.get_or_insert(now + rto);
        at <= now
    }

    /// Whether a message more could be one whose stream sequence number is that of another one
    /// under way, of the same stream: fewer than 2¹⁶ may be (section 6.1). All streams are counted
    /// together, which is not noticeable below 65,535 packets; and a receiver, like ours, need not
    /// follow more than so many TSNs, with I-DATA neither.
    pub(super) fn is_numbered_out(&self) -> bool {
        self.out.len() >= usize::from(u16::MAX)
    }

    fn write(&mut self, now: Instant, target: Target, buffer: &mut [u8], rng: &mut Rng) -> Option<Packed> {
        let room = target.path.map_or(MIN_ROOM, |i| self.paths[i].room);
        let lone = self.oversized(&target, usize::from(room));
        let room = lone.unwrap_or_else(|| usize::from(room)).min(buffer.len());
        let tag = if self.state == State::CookieWait { Tag::ZERO } else { self.peer_tag };
        let header = CommonHeader { source_port: self.port, destination_port: self.peer_port, tag };
        let mut packet = PacketBuilder::new(&mut buffer[..room], header).ok()?;
        if self.state == State::CookieWait {
            return self.write_init(now, packet, target.route);
        }
        self.sign(&mut packet, ALWAYS_SIGNED);
        let mut plain = false;
        if let State::CookieEchoed(cookie) = &self.state {
            packet.push(&CookieEcho { cookie }).ok()?;
            self.outbox.state = false;
            self.timers.t1 = Some(now + self.paths[self.current].rtt.rto());
            plain = true;
        }
        // A chunk that does not fit waits for the next packet.
        let _ = self.write_control(now, &mut packet, target, rng);
        let (mut bytes, repeated) = (0, self.stats.retransmissions);
        if target.data
            && !self.has_state_chunk()
            && let Some(index) = target.path
        {
            bytes = self.write_data(now, &mut packet, index);
        }
        if packet.is_empty() {
            return None;
        }
        self.seal(&mut packet);
        let checksum = if self.agreed.zero_checksum && !plain { Checksum::Zero } else { Checksum::Crc32c };
        let len = packet.finish(checksum);
        if bytes > 0 {
            self.queues.end_of_packet();
        }
        // What is sent again must not be marked (RFC 3168 section 6.1.5).
        let ect = self.agreed.ecn && bytes > 0 && self.stats.retransmissions == repeated;
        let whole = lone.is_none() && target.path.is_none_or(|i| !self.paths[i].mtu.may_be_cut());
        Some(Packed { route: target.route, len, ect, whole, probe: false })
    }

    /// The length of the packet for a lost chunk that was cut when packets could be larger, or for
    /// a long cookie: it goes alone and may be cut on the way, for a chunk that was sent is not cut
    /// again (RFC 9260 sections 6.9 and 7.3).
    fn oversized(&self, target: &Target, room: usize) -> Option<usize> {
        if let State::CookieEchoed(cookie) = &self.state {
            let len = CommonHeader::LEN + self.auth_overhead() + 4 + cookie.len().next_multiple_of(4);
            return (len > room).then_some(len);
        }
        let index = target.path.filter(|_| target.data)?;
        let tsn = self.next_lost_on(index)?;
        let len = CommonHeader::LEN + self.auth_overhead() + usize::from(self.out.get(tsn)?.size);
        (len > room).then_some(len)
    }

    /// Whether a SHUTDOWN or SHUTDOWN ACK chunk is to go, with which no data can (section 6.10).
    fn has_state_chunk(&self) -> bool {
        self.outbox.state && matches!(self.state, State::ShutdownSent | State::ShutdownAckSent)
    }

    fn write_init(&mut self, now: Instant, mut packet: PacketBuilder<'_>, route: Route) -> Option<Packed> {
        write_init(&mut packet, &self.offer(), None, INIT_LEN).ok()?;
        self.outbox.state = false;
        self.timers.t1 = Some(now + self.paths[self.current].rtt.rto());
        Some(Packed { route, len: packet.finish(Checksum::Crc32c), ect: false, whole: true, probe: false })
    }

    /// Everything but data.
    fn write_control(
        &mut self,
        now: Instant,
        packet: &mut PacketBuilder<'_>,
        target: Target,
        rng: &mut Rng,
    ) -> Result<(), Full> {
        if self.outbox.cookie_ack == Some(target.route) {
            packet.push(&CookieAck)?;
            self.outbox.cookie_ack = None;
        }
        let unconfirmed = target.path.is_none_or(|i| self.paths[i].state == PathState::Unconfirmed);
        if !unconfirmed {
            self.write_sack(now, packet, target.data)?;
        }
        while let Some((_, info)) = self.outbox.heartbeat_acks.front().filter(|(r, _)| *r == target.route) {
            let written = packet.push(&HeartbeatAck { info });
            if written.is_err() && !packet.is_empty() {
                break;
            }
            // One that does not even fit alone was never sent by an honest peer.
            self.outbox.heartbeat_acks.pop_front();
        }
        self.write_heartbeat(now, packet, target, rng)?;
        if self.agreed.dynamic_addresses {
            self.write_asconf(now, packet, target.route)?;
        }
        if unconfirmed {
            return Ok(());
        }
        while let Some(cause) = self.outbox.errors.front() {
            packet.push(&neater_sctp_wire::chunk::Error { causes: Causes::from_bytes(cause) })?;
            self.outbox.errors.pop_front();
        }
        if let Some(lowest) = self.outbox.cwr {
            packet.push(&Cwr { lowest })?;
            self.outbox.cwr = None;
        }
        if self.outbox.forward && !matches!(self.state, State::CookieEchoed(_)) {
            let said = if self.is_sending() { self.write_forward(packet)? } else { None };
            self.outbox.forward = false;
            if let Some(to) = said {
                self.has_forwarded(now, to);
            }
        }
        self.write_reconfig(now, packet)?;
        if self.has_state_chunk() {
            if self.state == State::ShutdownSent {
                packet.push(&Shutdown { cumulative: Tsn(self.rx.arrivals.cumulative() as u32) })?;
            } else {
                packet.push(&ShutdownAck)?;
            }
            self.outbox.state = false;
            self.timers.t2 = Some(now + self.paths[self.current].rtt.rto());
        }
        Ok(())
    }

    fn write_heartbeat(
        &mut self,
        now: Instant,
        packet: &mut PacketBuilder<'_>,
        target: Target,
        rng: &mut Rng,
    ) -> Result<(), Full> {
        if let Some(path) = target.path.map(|i| &mut self.paths[i]).filter(|p| p.heartbeat.wanted) {
            let again = path.heartbeat.nonce();
            let nonce = again.unwrap_or_else(|| rng.u64());
            packet.push(&Heartbeat { info: &Info { path: path.id, nonce }.to_bytes() })?;
            let rto = path.rtt.rto();
            path.heartbeat.sent(now, nonce, rto);
            if path.state == PathState::Unconfirmed {
                self.credit = self.credit.saturating_sub(heartbeats::QUESTION);
            }
        }
        if let Some(candidate) = self.candidate.as_mut().filter(|c| !c.sent && c.route == target.route) {
            packet.push(&Heartbeat { info: &Info { path: CANDIDATE, nonce: candidate.nonce }.to_bytes() })?;
            (candidate.sent, candidate.sent_at) = (true, now);
        }
        Ok(())
    }

    /// A SACK chunk if one is due, or one is owed and data goes along (section 6.1).
    fn write_sack(&mut self, now: Instant, packet: &mut PacketBuilder<'_>, data: bool) -> Result<(), Full> {
        let owed = self.rx.arrivals.is_due(now) || data && self.rx.arrivals.is_owed();
        if !owed || !self.is_receiving() {
            return Ok(());
        }
        let window = self.rx.window(self.silly());
        let (_, duplicates) = self.rx.arrivals.report_size();
        let header = if self.agreed.nr_sack { NrSack::HEADER_LEN } else { Sack::HEADER_LEN };
        let most = packet.room().saturating_sub(header + 4 * duplicates) / 4;
        let both_ends = self.config.recovery.detection == LossDetection::RackTlp;
        let packets = if self.multipath().is_some_and(|m| m.delayed_ack) { self.rx.arrivals.packets() } else { 0 };
        let (cumulative, gaps, duplicates) = self.rx.arrivals.report(most, both_ends);
        let (gaps, duplicates) = (Array::from(gaps), Array::from(duplicates));
        if self.agreed.nr_sack {
            // What was taken in is never dropped again.
            let (gaps, non_renegable) = (Array::EMPTY, gaps);
            packet.push(&NrSack { cumulative, a_rwnd: window, gaps, non_renegable, duplicates, packets })?;
        } else {
            packet.push(&Sack { cumulative, a_rwnd: window, gaps, duplicates, packets })?;
        }
        self.rx.arrivals.reported();
        self.rx.set_advertised(window);
        self.stats.sacks_sent += 1;
        if let Some(lowest) = self.outbox.ecne {
            // Repeated with every SACK chunk until the peer answers with CWR (RFC 4960 appendix
            // A.2).
            packet.push(&Ecne { lowest })?;
        }
        Ok(())
    }

    /// Chunks with data, lost ones first; returns their bytes.
    fn write_data(&mut self, now: Instant, packet: &mut PacketBuilder<'_>, index: usize) -> u64 {
        let (mut bytes, mut earliest) = (0, false);
        let (mut from, mut left) = (0, false);
        while let Some(tsn) = self.out.next_lost(from) {
            from = tsn + 1;
            if self.paths.len() > 1 && self.retransmission_path(tsn) != index {
                continue;
            }
            let Some(sent) = self.out.get(tsn) else { break };
            if self.write_chunk(packet, tsn, &sent.piece, false).is_err() {
                left = true;
                break;
            }
            bytes += u64::from(sent.size);
            earliest |= tsn == self.out.base();
            self.out.resend(now, tsn, self.paths[index].id);
            if let Some(several) = &mut self.paths[index].several {
                several.pseudo.resent(tsn);
                several.count.again += 1;
                several.count.sent += 1;
            }
            self.stats.retransmissions += 1;
        }
        self.rescued();
        let copying = self.take_copying(index);
        let copies = !copying.is_empty();
        for tsn in copying {
            let Some(sent) = self.out.get(tsn) else { continue };
            if self.write_chunk(packet, tsn, &sent.piece, false).is_err() {
                break;
            }
            bytes += u64::from(sent.size);
            self.copied(now, tsn, index);
        }
        // New data goes behind what was lost, and only when all of it went (rule C of section 6.1).
        let (full, mut fresh) = (self.fragment_size(), false);
        while !copies
            && !left
            && (self.carries_new(index) || matches!(self.state, State::CookieEchoed(_)))
            && let Some(size) = self.write_new(now, packet, index, (full, bytes))
        {
            bytes += u64::from(size);
            fresh = true;
        }
        if bytes == 0 {
            return 0;
        }
        if fresh {
            self.fresh_data_left(index);
        }
        self.window_answered = false;
        self.paths[index].on_sent(now, bytes);
        self.arm(now, index, earliest, fresh);
        self.watch_silence(now, index, false);
        bytes
    }

    /// Sets the timers of a path on which data was sent: the first that is outstanding among it, or
    /// new data.
    pub(super) fn arm(&mut self, now: Instant, index: usize, earliest: bool, fresh: bool) {
        let rack = self.config.recovery.detection == LossDetection::RackTlp;
        let (single, delay) = (self.out.len() == 1, self.config.sack_delay);
        let established = !matches!(self.state, State::CookieEchoed(_));
        let path = &mut self.paths[index];
        if established && (path.t3.is_none() || earliest) {
            path.t3 = Some(now + path.rtt.rto());
        }
        if established && rack && fresh && path.recovery.is_none() && self.timers.window_probe.is_none() {
            path.tail.due = path.tail_deadline(now, delay, single);
        }
    }

    /// Whether a chunk that brings what is in flight to `flight` bytes is to be acknowledged at
    /// once because it fills the window (RFC 9260 section 6.1, the third reason to set the I bit;
    /// RFC 7053): nothing follows it that would bring the acknowledgment, and in slow start
    /// everything waits for that, longer than a round trip if the number of packets was odd.
    fn fills_window(&self, index: usize, flight: u64) -> bool {
        let cc = &self.paths[index].cc;
        let modern = self.config.recovery.detection == LossDetection::RackTlp;
        modern && cc.in_slow_start() && flight >= cc.window() && cc.window() <= FEW * cc.mss()
    }

    /// One chunk of new data, if it fits into packet and window; `full` is the largest payload of a
    /// chunk, `before` what there is of chunks in the packet already, in bytes.
    pub(super) fn write_new(
        &mut self,
        now: Instant,
        packet: &mut PacketBuilder<'_>,
        index: usize,
        (full, before): (usize, u64),
    ) -> Option<u16> {
        if self.is_numbered_out() {
            return None;
        }
        let header = self.data_header();
        let room = packet.room().checked_sub(header)?.min(full);
        let left = self.window_left();
        let (_, message) = self.queues.peek()?;
        let len = message.payload.len();
        // A message that fits into a packet of its own is not cut to fill this one.
        let whole = len <= room;
        if !whole && (len <= full && message.started.is_none() || room < SLIVER) || room == 0 {
            return None;
        }
        // What the window has room for whole is neither a silly window nor a probe.
        if len.min(full) > left && !self.has_new_data(now) {
            return None;
        }
        if len.min(full) > left && self.timers.window_probe.is_some_and(|at| at <= now) {
            let rto = self.paths[self.current].rtt.rto();
            self.probes = (self.probes + 1).min(6);
            self.timers.window_probe = Some(now + (rto * (1 << self.probes)).min(self.config.rto.max));
        }
        let piece = self.queues.take(room)?;
        let size = (header + piece.payload.len()).next_multiple_of(4) as u16;
        let tsn = self.out.next();
        if self.out.is_empty() {
            self.unanswered = now;
        }
        let flight = self.paths[index].in_flight + before + u64::from(size);
        let fills = self.fills_window(index, flight);
        // It fits, for that was asked before.
        self.write_chunk(packet, tsn, &piece, fills).ok()?;
        if let Reliability::Until(deadline) = piece.reliability
            && piece.begins
            && let Some(first) = self.expiries.get_mut(&(deadline, piece.stream.0, piece.id))
        {
            *first = Some(tsn);
        }
        self.out.push(now, self.paths[index].id, size, piece);
        if let Some(several) = &mut self.paths[index].several {
            several.count.sent += 1;
        }
        self.stats.chunks_sent += 1;
        Some(size)
    }

    /// `fills`: it is to be acknowledged at once because it fills the window.
    fn write_chunk(&self, packet: &mut PacketBuilder<'_>, tsn: u64, piece: &Piece, fills: bool) -> Result<(), Full> {
        let tsn = Tsn(tsn as u32);
        let immediate = fills || piece.immediate && piece.ends || self.state == State::ShutdownPending;
        if self.agreed.interleaving {
            let fsn = Fsn(piece.fsn.wrapping_sub(u32::from(self.config.linux_fragments)));
            let part = if piece.begins { Part::First(piece.ppid) } else { Part::Later(fsn) };
            return packet.push(&IData {
                tsn,
                stream: piece.stream,
                mid: Mid(piece.number),
                part,
                immediate,
                unordered: piece.unordered,
                ending: piece.ends,
                payload: &piece.payload,
            });
        }
        packet.push(&Data {
            tsn,
            stream: piece.stream,
            ssn: Ssn(piece.number as u16),
            ppid: piece.ppid,
            immediate,
            unordered: piece.unordered,
            beginning: piece.begins,
            ending: piece.ends,
            payload: &piece.payload,
        })
    }
}
