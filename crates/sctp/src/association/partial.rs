//! Messages that are given up (RFC 3758, RFC 7496, RFC 8260 section 2.3).

use super::Association;
use crate::event::Event;
use crate::ids::MessageId;
use crate::recovery::Fate;
use crate::send::{Piece, Reliability};
use bytes::Bytes;
use neater_base::Instant;
use neater_sctp_wire::chunk::{ForwardTsn, IForwardTsn, Skipped, SkippedMessage};
use neater_sctp_wire::{Array, Full, Mid, PacketBuilder, Ppid, Ssn, StreamId, Tsn};
use std::collections::BTreeMap;

/// How many messages of a stream one FORWARD TSN chunk may skip.
const MOST_SKIPPED: u32 = (1 << 15) - 1;

/// A FORWARD TSN or I-FORWARD-TSN chunk that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    /// The cumulative TSN that it moves the peer to.
    to: u64,
    /// When it was sent last.
    at: Instant,
    /// It was sent before.
    again: bool,
    /// The path, as an index.
    pub(super) path: usize,
}

impl Association {
    /// A SACK chunk has come; `advanced`: it has moved the cumulative TSN. What was given up and is
    /// not acknowledged is reported again (RFC 3758 section 3.5, C3), but the same not more than
    /// once in a round trip (F2).
    pub(super) fn forward_again(&mut self, now: Instant, advanced: bool) {
        if let Some(f) = self.outbox.forwarded.filter(|f| f.to < self.out.base()) {
            self.outbox.forwarded = None;
            // The peer is there. What was sent once measures the round trip, like any chunk (RFC
            // 9260 section 6.3.1, C5).
            self.errors = 0;
            if !f.again {
                self.paths[f.path].rtt.sample(now - f.at);
            }
            if self.paths[f.path].errors > 0 {
                self.answered_by_data(f.path);
            }
        }
        let Some(to) = self.out.advanced() else { return };
        let rtt = &self.paths[self.current].rtt;
        let patience = rtt.smoothed().unwrap_or(rtt.rto());
        let waits = self.outbox.forwarded.is_some_and(|f| f.to >= to && now < f.at + patience);
        self.outbox.forward |= advanced || !waits;
    }

    /// The chunk that moves the peer on has been written.
    pub(super) fn has_forwarded(&mut self, now: Instant, to: u64) {
        let again = self.outbox.forwarded.is_some_and(|f| f.to >= to);
        let path = self.current;
        self.outbox.forwarded = Some(Forwarded { to, at: now, again, path });
        let path = &mut self.paths[path];
        path.t3.get_or_insert(now + path.rtt.rto());
    }

    /// Gives up a message: what waits of it is dropped, what was sent is not sent again. Nothing of
    /// it has a TSN below `from`, or no TSN at all: there may be very many of them at once, and
    /// looking through all that is outstanding for each would take long.
    pub(super) fn abandon(&mut self, stream: StreamId, id: MessageId, from: Option<u64>) {
        let waiting = self.queues.remove(stream, id);
        let sent = from.map_or_else(Vec::new, |from| self.out.of_message(stream, id, from));
        let wanted = |tsn: &u64| self.out.get(*tsn).is_some_and(|s| matches!(s.fate, Fate::InFlight | Fate::Lost));
        if waiting.is_none() && !sent.iter().any(wanted) {
            return; // It has arrived, or was given up before.
        }
        for tsn in &sent {
            if let Some((path, size)) = self.out.abandon(*tsn) {
                self.paths[usize::from(path.0)].leave(size);
            }
        }
        // Its number is used up, and perhaps the peer has acknowledged all that was sent of it. A
        // TSN for the rest that is given up at once lets FORWARD TSN release the peer from waiting.
        if let Some((number, fsn)) = waiting.as_ref().and_then(|m| m.started) {
            let unordered = waiting.as_ref().is_some_and(|m| m.unordered);
            self.give_up_rest(stream, id, unordered, number, fsn);
        }
        let begun = !sent.is_empty() || waiting.is_some_and(|m| m.started.is_some());
        self.stats.abandoned += 1;
        self.outbox.forward |= self.out.has_advanced();
        self.events.push_back(Event::Failed { message: id, stream, sent: begun });
        self.retry_reconfig();
    }

    /// Takes a TSN for what was never sent of a message, and gives it up.
    fn give_up_rest(&mut self, stream: StreamId, id: MessageId, unordered: bool, number: u32, fsn: u32) {
        let piece = Piece {
            id,
            stream,
            ppid: Ppid(0),
            unordered,
            immediate: false,
            report: false,
            reliability: Reliability::Full,
            number,
            fsn,
            begins: false,
            ends: true,
            payload: Bytes::new(),
        };
        let tsn = self.out.push(Instant::ZERO, self.paths[self.current].id, 0, piece);
        self.out.abandon(tsn);
    }

    /// When the time of a message is over.
    pub(super) fn first_expiry(&self) -> Option<Instant> {
        self.expiries.first_key_value().map(|((deadline, ..), _)| *deadline)
    }

    /// Gives up the messages whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(expiry) = self.expiries.first_entry().filter(|e| e.key().0 <= now) {
            let ((_, stream, id), first) = expiry.remove_entry();
            // Before the handshake it is not known whether the peer lets us.
            if self.agreed.partial_reliability || first.is_none() {
                self.abandon(StreamId(stream), id, first);
            }
        }
        self.tell_writable();
        self.advance_shutdown(now);
    }

    /// Gives up messages that were sent often enough (RFC 7496 section 3.1).
    pub(super) fn after_losses(&mut self, _now: Instant) {
        if !self.agreed.partial_reliability {
            return;
        }
        let mut from = 0;
        while let Some(tsn) = self.out.next_lost(from) {
            from = tsn + 1;
            let Some(sent) = self.out.get(tsn) else { continue };
            if let Reliability::Retransmissions(most) = sent.piece.reliability
                && u32::from(sent.times) > most
            {
                let (stream, id) = (sent.piece.stream, sent.piece.id);
                let first = self.out.begin_of(tsn);
                self.abandon(stream, id, Some(first));
            }
        }
    }

    /// Whether `len` bytes fit when everything less important is given up: else nothing is, for
    /// nothing would come of it.
    fn would_fit(&self, len: usize, priority: u32) -> bool {
        if self.buffered() + len <= self.send_limit() && self.queues.messages() < self.config.max_messages {
            return true;
        }
        let (messages, bytes) = self.queues.less_important(priority);
        let left = self.buffered().saturating_sub(bytes + self.out.less_important(priority));
        // One message always fits where there is nothing else.
        (left == 0 || left + len <= self.send_limit()) && self.queues.messages() - messages < self.config.max_messages
    }

    /// Gives up less important messages until `len` bytes fit (RFC 7496 section 3.2).
    pub(super) fn make_room(&mut self, len: usize, priority: u32) {
        if !self.agreed.partial_reliability || !self.would_fit(len, priority) {
            return;
        }
        while self.buffered() + len > self.send_limit() || self.queues.messages() >= self.config.max_messages {
            let candidate = self.queues.least_important(priority).or_else(|| self.out.least_important(priority));
            let Some((stream, id)) = candidate else { break };
            self.abandon(stream, id, Some(0));
        }
    }

    /// Writes a FORWARD TSN or I-FORWARD-TSN chunk that moves the peer's cumulative TSN over what
    /// was given up, with as many streams as fit. Returns where to, if there was anything to
    /// report.
    pub(super) fn write_forward(&self, packet: &mut PacketBuilder<'_>) -> Result<Option<u64>, Full> {
        let Some(mut last) = self.out.advanced() else { return Ok(None) };
        let per_stream = if self.agreed.interleaving { 8 } else { 4 };
        let most = (packet.room().saturating_sub(8)) / per_stream;
        // Per stream the first and the last number.
        let mut streams: BTreeMap<(u16, bool), (u32, u32)> = BTreeMap::new();
        for (tsn, sent) in self.out.iter().take_while(|(tsn, s)| *tsn <= last && s.fate == Fate::Abandoned) {
            let key = (sent.piece.stream.0, sent.piece.unordered);
            if sent.piece.unordered && !self.agreed.interleaving {
                continue;
            }
            let number = sent.piece.number;
            let fits = match streams.get(&key) {
                None => streams.len() < most,
                // The peer takes what is further ahead for old (serial numbers of 16 bits: RFC 1982
                // section 3.2). The next chunk goes on from here.
                Some((first, _)) => self.agreed.interleaving || number.wrapping_sub(*first) < MOST_SKIPPED,
            };
            if !fits {
                last = tsn - 1;
                break;
            }
            streams.entry(key).or_insert((number, number)).1 = number;
        }
        if last < self.out.base() {
            return Err(Full);
        }
        let cumulative = Tsn(last as u32);
        if self.agreed.interleaving {
            let list: Vec<SkippedMessage> = streams
                .iter()
                .map(|((s, u), (_, n))| SkippedMessage { stream: StreamId(*s), unordered: *u, mid: Mid(*n) })
                .collect();
            packet.push(&IForwardTsn { cumulative, skipped: Array::from(&list[..]) })?;
        } else {
            let list: Vec<Skipped> =
                streams.iter().map(|((s, _), (_, n))| Skipped { stream: StreamId(*s), ssn: Ssn(*n as u16) }).collect();
            packet.push(&ForwardTsn { cumulative, skipped: Array::from(&list[..]) })?;
        }
        Ok(Some(last))
    }
}
