//! What has been sent and is not acknowledged cumulatively: the scoreboard (RFC 9260 section
//! 6.2.1).
//!
//! *Responsible for* the fate of every TSN and for reading SACK chunks. *Not responsible for*
//! deciding what is lost, for windows, or for timers.
//!
//! *Invariants*: `ring[i]` is TSN `base + i`; a chunk is in `lost` exactly if its fate is
//! [`Fate::Lost`]; a TSN is in `received` if its fate is [`Fate::Received`].

use crate::ids::{MessageId, PathId};
use crate::ranges::RangeSet;
use crate::send::{Piece, Reliability};
use core::ops::Range;
use neater_base::Instant;
use neater_sctp_wire::StreamId;
use std::collections::{BTreeSet, VecDeque};

/// What is believed of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// On its way.
    InFlight,
    /// A gap block reports that it arrived.
    Received,
    /// Believed lost: to be sent again.
    Lost,
    /// Given up: never sent again (RFC 3758).
    Abandoned,
}

/// A chunk that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) piece: Piece,
    /// Its length on the wire, header and padding included.
    pub(crate) size: u16,
    pub(crate) fate: Fate,
    /// Where it was sent last.
    pub(crate) path: PathId,
    pub(crate) sent_at: Instant,
    /// How often it was sent.
    pub(crate) times: u16,
    /// Miss indications.
    pub(crate) misses: u8,
    /// It was retransmitted because of miss indications, and is not again (RFC 9260 section 7.2.4,
    /// step 5).
    pub(crate) fast: bool,
    /// It was lost to a timeout: it may go another way (section 6.4.1).
    pub(crate) timed_out: bool,
    /// It was sent on more than one path.
    pub(crate) elsewhere: bool,
    /// A copy of it went on another path meanwhile: that it has arrived shows nothing of either.
    pub(crate) copied: bool,
    /// It was sent last when this was the next TSN: what lies below was sent before it.
    pub(crate) after: u64,
}

/// What an acknowledgment did to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    /// It is acknowledged for the first time.
    pub(crate) delivered: bool,
    /// It was in flight before.
    pub(crate) in_flight: bool,
    /// It was believed lost, and was not.
    pub(crate) mistaken: bool,
    /// By the cumulative TSN.
    pub(crate) cumulative: bool,
}

/// The scoreboard.
#[derive(Debug)]
pub(crate) struct Outstanding {
    base: u64,
    ring: VecDeque<Sent>,
    received: RangeSet,
    /// Of those, what the peer will not take back, and whose payload is not kept; nothing where
    /// there is no NR-SACK.
    released: Option<Box<RangeSet>>,
    lost: BTreeSet<u64>,
    /// Payload bytes of everything in the ring.
    payload: usize,
    /// Payload bytes that are on their way.
    flying: usize,
    /// Chunks whose fate is [`Fate::InFlight`].
    in_flight: usize,
}

impl Outstanding {
    /// Nothing sent; the first TSN will be `initial`.
    pub(crate) const fn new(initial: u64) -> Self {
        Self {
            base: initial,
            ring: VecDeque::new(),
            received: RangeSet::new(),
            released: None,
            lost: BTreeSet::new(),
            payload: 0,
            flying: 0,
            in_flight: 0,
        }
    }

    /// The first TSN that is not acknowledged cumulatively.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// The next TSN to be sent.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Payload bytes of everything that is kept.
    pub(crate) const fn payload(&self) -> usize {
        self.payload
    }

    /// Payload bytes that are on their way.
    pub(crate) const fn flying(&self) -> usize {
        self.flying
    }

    /// Whether anything is on its way.
    pub(crate) const fn any_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    pub(crate) fn get(&self, tsn: u64) -> Option<&Sent> {
        self.ring.get(usize::try_from(tsn.checked_sub(self.base)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, tsn: u64) -> Option<&mut Sent> {
        self.ring.get_mut(usize::try_from(tsn.checked_sub(self.base)?).ok()?)
    }

    /// What has arrived above `base`.
    pub(crate) const fn received(&self) -> &RangeSet {
        &self.received
    }

    /// All chunks with their TSNs.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Sent)> {
        self.ring.iter().enumerate().map(|(i, s)| (self.base + i as u64, s))
    }

    /// A new chunk is sent; returns its TSN.
    pub(crate) fn push(&mut self, now: Instant, path: PathId, size: u16, piece: Piece) -> u64 {
        let tsn = self.next();
        self.payload += piece.payload.len();
        self.flying += piece.payload.len();
        self.in_flight += 1;
        self.ring.push_back(Sent {
            piece,
            size,
            fate: Fate::InFlight,
            path,
            sent_at: now,
            times: 1,
            misses: 0,
            fast: false,
            timed_out: false,
            elsewhere: false,
            copied: false,
            after: tsn,
        });
        tsn
    }

    /// The lowest lost TSN from `from` on.
    pub(crate) fn next_lost(&self, from: u64) -> Option<u64> {
        if self.lost.is_empty() {
            return None; // Asked for with every packet.
        }
        self.lost.range(from..).next().copied()
    }

    /// Whether anything is to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A lost chunk is sent again.
    pub(crate) fn resend(&mut self, now: Instant, tsn: u64, path: PathId) {
        self.lost.remove(&tsn);
        let after = self.next();
        let Some(sent) = self.get_mut(tsn) else { return };
        sent.after = after;
        sent.fate = Fate::InFlight;
        sent.elsewhere |= sent.path != path;
        sent.path = path;
        sent.sent_at = now;
        sent.times = sent.times.saturating_add(1);
        sent.misses = 0;
        sent.timed_out = false;
        let len = sent.piece.payload.len();
        self.flying += len;
        self.in_flight += 1;
    }

    /// A chunk in flight is believed lost; returns its path and size.
    pub(crate) fn lose(&mut self, tsn: u64, timed_out: bool) -> Option<(PathId, u16)> {
        let sent = self.get_mut(tsn).filter(|s| s.fate == Fate::InFlight)?;
        sent.fate = Fate::Lost;
        sent.timed_out = timed_out;
        let (path, size, len) = (sent.path, sent.size, sent.piece.payload.len());
        self.flying -= len;
        self.in_flight -= 1;
        self.lost.insert(tsn);
        Some((path, size))
    }

    /// A chunk is given up; returns its path and size if it was in flight.
    pub(crate) fn abandon(&mut self, tsn: u64) -> Option<(PathId, u16)> {
        let sent = self.get_mut(tsn)?;
        let fate = core::mem::replace(&mut sent.fate, Fate::Abandoned);
        let (path, size) = (sent.path, sent.size);
        let len = core::mem::take(&mut sent.piece.payload).len();
        if fate != Fate::Abandoned {
            self.payload -= len;
        }
        match fate {
            Fate::InFlight => {
                self.flying -= len;
                self.in_flight -= 1;
                Some((path, size))
            }
            Fate::Lost => {
                self.lost.remove(&tsn);
                None
            }
            Fate::Received | Fate::Abandoned => None,
        }
    }

    /// Reads an acknowledgment: `cumulative`, then `gaps`, in order. `each` is called for every
    /// chunk with a new state. Returns whether the cumulative TSN advanced.
    ///
    /// `gaps` beyond what was sent are cut off. The caller has checked that `cumulative` was sent.
    pub(crate) fn acknowledge(
        &mut self,
        cumulative: u64,
        gaps: impl Iterator<Item = Range<u64>>,
        mut each: impl FnMut(u64, &Sent, Acked),
    ) -> bool {
        let before = self.base;
        while self.base <= cumulative {
            let Some(sent) = self.ring.pop_front() else { break };
            let tsn = self.base;
            self.base += 1;
            let len = sent.piece.payload.len();
            if sent.fate != Fate::Abandoned {
                self.payload -= len;
            }
            if sent.fate == Fate::InFlight {
                self.flying -= len;
                self.in_flight -= 1;
            }
            if sent.fate == Fate::Lost {
                self.lost.remove(&tsn);
            }
            let fate = sent.fate;
            each(
                tsn,
                &sent,
                Acked {
                    delivered: matches!(fate, Fate::InFlight | Fate::Lost),
                    in_flight: fate == Fate::InFlight,
                    mistaken: fate == Fate::Lost,
                    cumulative: true,
                },
            );
        }
        if self.base > before {
            self.received.remove_below(self.base);
            if let Some(released) = &mut self.released {
                released.remove_below(self.base);
            }
        }
        let (base, next) = (self.base, self.next());
        let (ring, lost) = (&mut self.ring, &mut self.lost);
        let (flying, in_flight) = (&mut self.flying, &mut self.in_flight);
        for gap in gaps {
            let gap = gap.start.max(base)..gap.end.min(next);
            self.received.insert_range(gap, |fresh| {
                for tsn in fresh {
                    let sent = &mut ring[(tsn - base) as usize];
                    let fate = sent.fate;
                    if fate == Fate::Abandoned {
                        continue;
                    }
                    sent.fate = Fate::Received;
                    if fate == Fate::InFlight {
                        *flying -= sent.piece.payload.len();
                        *in_flight -= 1;
                    }
                    if fate == Fate::Lost {
                        lost.remove(&tsn);
                    }
                    each(
                        tsn,
                        sent,
                        Acked {
                            delivered: true,
                            in_flight: fate == Fate::InFlight,
                            mistaken: fate == Fate::Lost,
                            cumulative: false,
                        },
                    );
                }
            });
        }
        self.base > before
    }

    /// Whether the peer has dropped what it had reported: the first TSN above the cumulative one
    /// cannot be in a gap block.
    pub(crate) fn has_reneged(&self) -> bool {
        self.received.get(0).is_some_and(|r| r.start == self.base)
    }

    /// The peer has these chunks, as it has reported before, and will not take them back: their
    /// payload is not kept any longer.
    pub(crate) fn release(&mut self, block: Range<u64>) {
        let block = block.start.max(self.base)..block.end.min(self.next());
        if block.is_empty() {
            return;
        }
        let (ring, base, payload) = (&mut self.ring, self.base, &mut self.payload);
        self.released.get_or_insert_default().insert_range(block, |fresh| {
            for tsn in fresh {
                let sent = &mut ring[(tsn - base) as usize];
                if sent.fate != Fate::Abandoned {
                    *payload -= core::mem::take(&mut sent.piece.payload).len();
                }
            }
        });
    }

    /// Forgets what gap blocks reported: the chunks count as lost. False if the peer takes back
    /// what it called non-renegable.
    pub(crate) fn forget_received(&mut self) -> bool {
        let released = self.released.take();
        let is_released = |tsn| released.as_ref().is_some_and(|r| r.contains(tsn));
        if is_released(self.base) {
            self.released = released;
            return false;
        }
        for range in self.received.iter() {
            for tsn in range.clone() {
                let sent = &mut self.ring[(tsn - self.base) as usize];
                if sent.fate == Fate::Received && !is_released(tsn) {
                    sent.fate = Fate::Lost;
                    self.lost.insert(tsn);
                }
            }
        }
        self.received.clear();
        released.iter().flat_map(|r| r.iter()).for_each(|r| self.received.insert_range(r.clone(), |_| {}));
        self.released = released;
        true
    }

    /// Calls `f` with each TSN from `base` on that is not [`Fate::Received`], until it returns
    /// false.
    pub(crate) fn each_hole(&mut self, mut f: impl FnMut(u64, &mut Sent) -> bool) {
        let next = self.next();
        let (mut tsn, mut range) = (self.base, 0);
        while tsn < next {
            if let Some(r) = self.received.get(range).filter(|r| r.start <= tsn) {
                tsn = r.end;
                range += 1;
                continue;
            }
            if !f(tsn, &mut self.ring[(tsn - self.base) as usize]) {
                return;
            }
            tsn += 1;
        }
    }

    /// How far the peer's cumulative TSN can be moved by giving up (RFC 3758 section 3.5:
    /// `Advanced.Peer.Ack.Point`): the last TSN of the abandoned chunks at the beginning, if the
    /// first is one.
    pub(crate) fn advanced(&self) -> Option<u64> {
        let n = self.ring.iter().take_while(|s| s.fate == Fate::Abandoned).count();
        (n > 0).then(|| self.base + n as u64 - 1)
    }

    /// Whether the first of them was given up: [`Outstanding::advanced`] has something to report.
    pub(crate) fn has_advanced(&self) -> bool {
        self.ring.front().is_some_and(|s| s.fate == Fate::Abandoned)
    }

    /// The TSNs of a message, in order; nothing of it is kept below `from`.
    pub(crate) fn of_message(&self, stream: StreamId, id: MessageId, from: u64) -> Vec<u64> {
        let mut tsns = Vec::new();
        let skip = usize::try_from(from.saturating_sub(self.base)).unwrap_or(usize::MAX);
        for (i, sent) in self.ring.iter().enumerate().skip(skip) {
            if sent.piece.id == id && sent.piece.stream == stream {
                tsns.push(self.base + i as u64);
                if sent.piece.ends {
                    break;
                }
            }
        }
        tsns
    }

    /// The TSN with which the message begins that a TSN is part of, as far as it is kept.
    pub(crate) fn begin_of(&self, tsn: u64) -> u64 {
        let Some(of) = self.get(tsn).map(|s| (s.piece.id, s.piece.stream)) else { return tsn };
        let mut first = tsn;
        for at in (self.base..=tsn).rev() {
            let Some(sent) = self.get(at).filter(|s| (s.piece.id, s.piece.stream) == of) else { continue };
            first = at;
            if sent.piece.begins {
                break;
            }
        }
        first
    }

    /// The least important message that is outstanding and may be given up for one of `priority`
    /// (RFC 7496 section 3.2).
    pub(crate) fn least_important(&self, priority: u32) -> Option<(StreamId, MessageId)> {
        let with = self.ring.iter().filter_map(|s| match s.piece.reliability {
            Reliability::Priority(p) if p > priority && matches!(s.fate, Fate::InFlight | Fate::Lost) => {
                Some((p, s.piece.id, s.piece.stream))
            }
            _ => None,
        });
        with.max().map(|(_, id, stream)| (stream, id))
    }

    /// The bytes outstanding of what is less important and can be given up: all of a message of
    /// which anything has not arrived.
    pub(crate) fn less_important(&self, priority: u32) -> usize {
        let less = |s: &&Sent| matches!(s.piece.reliability, Reliability::Priority(p) if p > priority);
        let open = |s: &&Sent| matches!(s.fate, Fate::InFlight | Fate::Lost);
        let ids: BTreeSet<MessageId> = self.ring.iter().filter(less).filter(open).map(|s| s.piece.id).collect();
        self.ring.iter().filter(less).filter(|s| ids.contains(&s.piece.id)).map(|s| s.piece.payload.len()).sum()
    }

    /// Whether a stream has anything outstanding that was not acknowledged.
    pub(crate) fn has_stream(&self, stream: StreamId) -> bool {
        self.ring.iter().any(|s| s.piece.stream == stream)
    }

    /// Gives memory back that nothing is in.
    pub(crate) fn trim(&mut self) {
        if self.ring.is_empty() {
            self.ring = VecDeque::new();
        }
    }

    /// Takes everything out: the association is over.
    pub(crate) fn drain(&mut self) -> VecDeque<Sent> {
        self.base = self.next();
        self.received.clear();
        self.released = None;
        self.lost.clear();
        (self.payload, self.flying, self.in_flight) = (0, 0, 0);
        core::mem::take(&mut self.ring)
    }
}

#[cfg(test)]
#[path = "outstanding_tests.rs"]
mod tests;
