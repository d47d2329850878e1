//! From fragments to messages (RFC 9260 section 6.9, RFC 8260 section 2.2.3).
//!
//! *Responsible for* joining fragments, whatever order they come in. *Not responsible for* the
//! order of messages, nor for knowing whether a TSN was seen before.
//!
//! Fragments that follow each other form a [`Run`]. The run that grew last is kept apart, so that a
//! message whose fragments arrive in order is copied once, into one buffer, and nothing is looked
//! up.

use super::arrivals::Arrivals;
use super::begun::Begun;
use super::buffers::Buffers;
use neater_sctp_wire::{Ppid, StreamId};
use std::collections::{BTreeMap, VecDeque};

/// What is charged against the receive buffer for each object that is kept, besides its payload:
/// what bounds memory when the peer sends many tiny fragments.
pub(crate) const OVERHEAD: usize = 64;

/// Where a fragment belongs: fragments of one lane with successive indices are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    lane: u64,
    index: u64,
}

impl Place {
    /// Of a DATA chunk: neighbours have successive TSNs.
    pub(crate) const fn data(tsn: u64) -> Self {
        Self { lane: 0, index: tsn }
    }

    /// Of an I-DATA chunk: neighbours have successive FSNs in one message.
    pub(crate) const fn idata(stream: StreamId, unordered: bool, mid: u32, fsn: u32) -> Self {
        let lane = 1 << 63 | (stream.0 as u64) << 33 | (unordered as u64) << 32 | mid as u64;
        Self { lane, index: fsn as u64 }
    }
}

/// One piece of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    pub(crate) place: Place,
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    /// The stream sequence number, or the message identifier.
    pub(crate) number: u32,
    /// Known from the first fragment on.
    pub(crate) ppid: Ppid,
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    pub(crate) payload: &'a [u8],
}

/// Successive fragments of one message.
#[derive(Debug)]
pub(crate) struct Run {
    first: Place,
    /// The index that would extend it.
    next: u64,
    pub(super) begins: bool,
    ends: bool,
    /// What should extend it belongs to another message: the sender has given this one up.
    cut: bool,
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    pub(crate) number: u32,
    pub(crate) ppid: Ppid,
    /// Part of the message has been delivered, under this number: what is here continues it.
    pub(crate) continues: Option<u64>,
    head: Vec<u8>,
    /// What follows `head`, where a hole was filled between them.
    tail: VecDeque<Vec<u8>>,
    pub(super) bytes: usize,
    /// How large a buffer was when it was lent for this.
    lent: usize,
}

impl Run {
    fn new(f: &Fragment<'_>, buffers: &mut Buffers, lent: usize) -> Self {
        let grows = f.begins && !f.ends;
        let head = if grows { buffers.begun(f.payload, lent) } else { buffers.filled(f.payload) };
        Self {
            first: f.place,
            next: f.place.index + 1,
            begins: f.begins,
            ends: f.ends,
            cut: false,
            stream: f.stream,
            unordered: f.unordered,
            number: f.number,
            ppid: f.ppid,
            continues: None,
            lent: if grows { head.capacity() } else { 0 },
            head,
            tail: VecDeque::new(),
            bytes: f.payload.len(),
        }
    }

    const fn complete(&self) -> bool {
        self.begins && self.ends
    }

    /// What it is charged.
    pub(crate) fn charge(&self) -> usize {
        self.bytes + OVERHEAD * (1 + self.tail.len())
    }

    fn same_message(&self, stream: StreamId, unordered: bool, number: u32) -> bool {
        (self.stream, self.unordered, self.number) == (stream, unordered, number)
    }

    /// Whether a fragment is the next one of it, and nothing speaks against that.
    fn is_continued_by(&self, f: &Fragment<'_>) -> bool {
        self.next == f.place.index
            && self.first.lane == f.place.lane
            && !(self.ends || self.cut || f.begins)
            && self.same_message(f.stream, f.unordered, f.number)
    }

    /// Adds the fragment behind it.
    fn push(&mut self, f: &Fragment<'_>) {
        self.tail.back_mut().unwrap_or(&mut self.head).extend_from_slice(f.payload);
        self.bytes += f.payload.len();
        self.next += 1;
        self.ends = f.ends;
    }

    /// Adds the run that follows it. The handles of the smaller one are moved.
    fn join(&mut self, mut right: Self) {
        self.bytes += right.bytes;
        self.lent += right.lent;
        self.next = right.next;
        self.ends = right.ends;
        self.cut = right.cut;
        right.tail.push_front(right.head);
        if right.tail.len() <= self.tail.len() + 1 {
            self.tail.append(&mut right.tail);
        } else {
            while let Some(piece) = self.tail.pop_back() {
                right.tail.push_front(piece);
            }
            self.tail = right.tail;
        }
    }

    /// Its bytes in one buffer.
    pub(crate) fn into_payload(mut self, buffers: &mut Buffers) -> Vec<u8> {
        self.take_payload(buffers)
    }

    fn take_payload(&mut self, buffers: &mut Buffers) -> Vec<u8> {
        let mut head = core::mem::take(&mut self.head);
        if !self.tail.is_empty() {
            head.reserve_exact(self.bytes - head.len());
        }
        for piece in self.tail.drain(..) {
            head.extend_from_slice(&piece);
            buffers.recycle(piece);
        }
        (self.bytes, self.lent) = (0, 0);
        buffers.fitted(head)
    }

    pub(crate) fn discard(self, buffers: &mut Buffers) {
        buffers.recycle(self.head);
        for piece in self.tail {
            buffers.recycle(piece);
        }
    }
}

/// The fragments do not fit together: the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit(pub(crate) &'static str);

/// The messages that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// The run that grew last.
    hot: Option<Run>,
    cold: BTreeMap<Place, Run>,
    /// Kept from when the buffer is first short of room until nothing waits.
    begun: Option<Box<Begun>>,
    charged: usize,
    /// How large the buffers are that were lent to messages.
    lent: usize,
    /// Beginnings of messages whose ends will not come, in the order in which that was noticed.
    pub(crate) cut: Vec<Run>,
}

impl Reassembly {
    /// What is charged for everything that is kept.
    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }

    /// Takes a fragment that was not seen before, and returns the message if it is complete now.
    ///
    /// With `arrivals`, what has arrived before it, a message may break off: a sender that gives a
    /// message up when part of it has been acknowledged and the rest has no TSN yet has nothing
    /// left to skip by a FORWARD TSN chunk, and Linux (6.1) goes on with the next message. Such
    /// beginnings are put into `cut`.
    ///
    /// # Errors
    /// The fragment contradicts its neighbours.
    pub(crate) fn insert(
        &mut self,
        f: &Fragment<'_>,
        buffers: &mut Buffers,
        arrivals: Option<&Arrivals>,
    ) -> Result<Option<Run>, Misfit> {
        // A long message whose fragments come in their order stays where it is.
        let right = Place { lane: f.place.lane, index: f.place.index + 1 };
        let broken_off = |a: &Arrivals| right.lane == 0 && !f.ends && a.has(right.index);
        if let Some(run) = self.hot.as_mut().filter(|run| run.is_continued_by(f))
            && (self.cold.is_empty() || !self.cold.contains_key(&right))
            && !arrivals.is_some_and(broken_off)
        {
            run.push(f);
            self.charged += f.payload.len();
            if !run.complete() {
                return Ok(None);
            }
            let run = self.hot.take();
            run.iter().for_each(|run| self.over(run));
            return Ok(run);
        }
        let extends_hot = self.hot.as_ref().is_some_and(|r| r.first.lane == f.place.lane && r.next == f.place.index);
        if !extends_hot {
            self.cool();
            let left = self.cold.range(..f.place).next_back().map(|(p, r)| (*p, r.next));
            let fits = left.filter(|(p, next)| p.lane == f.place.lane && *next == f.place.index);
            self.hot = fits.and_then(|(p, _)| self.pull(p));
        }
        let mut run = match self.hot.take() {
            Some(left) => self.extend(left, f, buffers, arrivals.is_some())?,
            None => self.began(f, buffers),
        };
        self.join_right(&mut run, arrivals.is_some())?;
        let broken_off = |a: &Arrivals| f.place.lane == 0 && !run.ends && a.has(run.next);
        run.cut |= arrivals.is_some_and(broken_off);
        if run.begins && run.cut {
            self.over(&run);
            self.cut.push(run);
            return Ok(None);
        }
        if run.complete() {
            self.over(&run);
            return Ok(Some(run));
        }
        self.hot = Some(run);
        Ok(None)
    }

    /// Adds the fragment to the run on its left, if they belong together.
    fn extend(
        &mut self,
        mut left: Run,
        f: &Fragment<'_>,
        buffers: &mut Buffers,
        may_break_off: bool,
    ) -> Result<Run, Misfit> {
        left.cut |= may_break_off && !left.ends && f.begins;
        match (left.ends || left.cut, f.begins) {
            // They only stand side by side.
            (true, true) => {
                if left.cut && left.begins {
                    self.over(&left);
                    self.cut.push(left);
                } else {
                    self.put(left);
                }
                Ok(self.began(f, buffers))
            }
            (true, false) => Err(Misfit("a fragment follows the last one of its message")),
            (false, true) => Err(Misfit("a message begins before the one before it ends")),
            (false, false) if !left.same_message(f.stream, f.unordered, f.number) => {
                Err(Misfit("neighbouring fragments belong to different messages"))
            }
            (false, false) => {
                left.push(f);
                self.charged += f.payload.len();
                Ok(left)
            }
        }
    }

    /// Adds the run on the right, if it continues this one.
    fn join_right(&mut self, run: &mut Run, may_break_off: bool) -> Result<(), Misfit> {
        let at = Place { lane: run.first.lane, index: run.next };
        let Some(right) = self.cold.get(&at) else { return Ok(()) };
        run.cut |= may_break_off && !run.ends && right.begins;
        match (run.ends || run.cut, right.begins) {
            (true, true) => Ok(()),
            (true, false) => Err(Misfit("a fragment follows the last one of its message")),
            (false, true) => Err(Misfit("a message begins before the one before it ends")),
            (false, false) if !run.same_message(right.stream, right.unordered, right.number) => {
                Err(Misfit("neighbouring fragments belong to different messages"))
            }
            (false, false) => {
                if let Some(right) = self.pull(at) {
                    run.join(right);
                }
                Ok(())
            }
        }
    }

    fn cool(&mut self) {
        if let Some(run) = self.hot.take() {
            self.put(run);
        }
    }

    /// Lets a run wait.
    fn put(&mut self, run: Run) {
        if let Some(begun) = &mut self.begun {
            begun.put(run.first, &run);
        }
        self.cold.insert(run.first, run);
    }

    /// Takes a run that waits.
    fn pull(&mut self, place: Place) -> Option<Run> {
        let run = self.cold.remove(&place)?;
        if let Some(begun) = &mut self.begun {
            begun.pull(place, &run);
            if self.cold.is_empty() {
                self.begun = None;
            }
        }
        Some(run)
    }

    /// A run is kept from now on.
    fn began(&mut self, f: &Fragment<'_>, buffers: &mut Buffers) -> Run {
        let run = Run::new(f, buffers, self.lent);
        self.charged += run.charge();
        self.lent += run.lent;
        run
    }

    /// A run is not kept any more.
    fn over(&mut self, run: &Run) {
        self.charged -= run.charge();
        self.lent -= run.lent;
    }

    /// The turn of an ordered message of a stream has come.
    pub(crate) fn turn(&mut self, stream: StreamId, number: u32) {
        if let Some(begun) = &mut self.begun {
            begun.turn(stream, number);
        }
    }

    /// The beginning that [`Reassembly::take_partial`] takes.
    fn longest(&mut self, least: usize, next_in_order: impl Fn(&Run) -> bool) -> Option<Place> {
        self.cool();
        if self.cold.is_empty() {
            return None;
        }
        let Self { begun, cold, .. } = self;
        let begun = begun.get_or_insert_with(|| {
            let mut begun = Begun::default();
            cold.iter().for_each(|(place, run)| begun.put(*place, run));
            Box::new(begun)
        });
        begun.longest(least.max(1), cold, next_in_order)
    }

    /// Whether [`Reassembly::take_partial`] would return something.
    pub(crate) fn has_partial(&mut self, least: usize, next_in_order: impl Fn(&Run) -> bool) -> bool {
        self.longest(least, next_in_order).is_some()
    }

    /// Takes the beginning of a message that is not complete, the longest and at least `least`
    /// bytes of it, if by `next_in_order` the message may be delivered now. Returns a copy of the
    /// run's description with the bytes; the run continues.
    pub(crate) fn take_partial(
        &mut self,
        least: usize,
        buffers: &mut Buffers,
        number: u64,
        next_in_order: impl Fn(&Run) -> bool,
    ) -> Option<Partial> {
        let mut run = self.longest(least, next_in_order).and_then(|place| self.pull(place))?;
        self.over(&run);
        let payload = run.take_payload(buffers);
        self.charged += run.charge();
        let first = run.continues.is_none();
        let number = *run.continues.get_or_insert(number);
        let partial = Partial { number, stream: run.stream, unordered: run.unordered, ppid: run.ppid, first, payload };
        // What comes next is most likely more of it.
        self.hot = Some(run);
        Some(partial)
    }

    /// Drops fragments, and returns which messages of those had been delivered in part.
    pub(crate) fn drop_where(
        &mut self,
        buffers: &mut Buffers,
        gone: impl Fn(&Run, Place) -> bool,
    ) -> Vec<(StreamId, u64)> {
        self.cool();
        let places: Vec<Place> = self.cold.iter().filter(|(p, r)| gone(r, **p)).map(|(p, _)| *p).collect();
        self.drop_at(&places, buffers)
    }

    /// Drops the fragments of a stream.
    pub(crate) fn drop_stream(&mut self, stream: StreamId, buffers: &mut Buffers) {
        self.cool();
        // Of DATA chunks, whose TSNs are not related to streams, there are two runs for each gap at
        // most, and of I-DATA chunks those of the stream stand together.
        let (begin, end) = (Place::idata(stream, false, 0, 0), Place::idata(stream, true, u32::MAX, u32::MAX));
        let data = self.cold.range(..=Place::data(u64::MAX)).filter(|(_, run)| run.stream == stream);
        let places: Vec<Place> = data.chain(self.cold.range(begin..=end)).map(|(place, _)| *place).collect();
        self.drop_at(&places, buffers);
    }

    fn drop_at(&mut self, places: &[Place], buffers: &mut Buffers) -> Vec<(StreamId, u64)> {
        let mut cut = Vec::new();
        for run in places.iter().filter_map(|place| self.pull(*place)).collect::<Vec<_>>() {
            self.over(&run);
            if let Some(number) = run.continues {
                cut.push((run.stream, number));
            }
            run.discard(buffers);
        }
        cut
    }

    /// Puts the fragments of DATA chunks up to `tsn` into `cut` (RFC 3758 section 3.6).
    pub(crate) fn cut_data_to(&mut self, tsn: u64) {
        self.cool();
        // DATA has one lane, before all others: everything up to there is of DATA chunks.
        while let Some((&place, _)) = self.cold.range(..Place::data(tsn + 1)).next()
            && let Some(run) = self.pull(place)
        {
            self.over(&run);
            self.cut.push(run);
        }
    }

    /// Drops the fragments of messages of a stream up to `mid` (RFC 8260 section 2.3.1).
    pub(crate) fn drop_messages_to(
        &mut self,
        stream: StreamId,
        unordered: bool,
        mid: u32,
        buffers: &mut Buffers,
    ) -> Vec<(StreamId, u64)> {
        self.cool();
        // Those half the circle before it: a peer that names many messages must not have everything
        // looked at for each.
        let first = mid.wrapping_sub((1 << 31) - 1);
        let halves = if first <= mid { [Some((first, mid)), None] } else { [Some((first, u32::MAX)), Some((0, mid))] };
        let mut places = Vec::new();
        for (from, to) in halves.into_iter().flatten() {
            let (from, to) = (Place::idata(stream, unordered, from, 0), Place::idata(stream, unordered, to, u32::MAX));
            places.extend(self.cold.range(from..=to).map(|(place, _)| *place));
        }
        self.drop_at(&places, buffers)
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.hot.is_none() && self.cold.is_empty()
    }
}

/// Part of a message, delivered before the rest has come.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) number: u64,
    pub(crate) stream: StreamId,
    pub(crate) unordered: bool,
    pub(crate) ppid: Ppid,
    pub(crate) first: bool,
    pub(crate) payload: Vec<u8>,
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
