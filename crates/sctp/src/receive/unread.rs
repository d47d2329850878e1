//! Messages that the application has not taken: by stream, and in the order of their arrival.
//!
//! *Responsible for* keeping them, and for which streams have something to be taken. *Not
//! responsible for* their order within a stream: `Order` determines when the turn of each has come.
//!
//! *Invariants*: a message whose turn has come is in two lists, that of all and that of its stream;
//! in the latter the parts of a message stand together, those of a message that was handed out in
//! part before everything else; a stream has a queue only as long as something of it is unread or
//! the rest of a message is missing.

use super::reassembly::OVERHEAD;
use super::{Buffers, Message};
use crate::ids::StreamUse;
use neater_sctp_wire::StreamId;
use std::collections::BTreeMap;

/// In the place of a slot: there is none.
const NONE: u32 = u32::MAX;

/// The neighbours in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

const ALONE: Links = Links { before: NONE, after: NONE };

#[derive(Debug)]
struct Slot {
    /// `None`: the slot is free, and `all.after` is the next that is.
    message: Option<Message>,
    /// The order of arrival.
    all: Links,
    /// The order in its stream.
    stream: Links,
}

/// What is unread of one use of a stream.
#[derive(Debug)]
struct Queue {
    from: StreamUse,
    first: u32,
    last: u32,
    /// A message was handed out in part: nothing but the rest of it can be taken.
    begun: bool,
    /// The application knows that there is something to be taken.
    reported: bool,
}

impl Queue {
    const fn new(from: StreamUse) -> Self {
        Self { from, first: NONE, last: NONE, begun: false, reported: false }
    }
}

/// The last unread part of each message that is delivered in parts and whose end was not, by its
/// number.
#[derive(Debug, Default)]
struct Parts(BTreeMap<u64, u32>);

/// The store of messages, those that still wait for their turn included.
#[derive(Debug)]
pub(super) struct Unread {
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    newest: u32,
    /// The oldest message whose stream may have to be reported: before it there is none.
    fresh: u32,
    /// The stream that was used last, and the others.
    hot: Queue,
    cold: BTreeMap<StreamUse, Queue>,
    /// Few associations ever have any.
    parts: Option<Box<Parts>>,
    /// Nothing more will come.
    over: bool,
    charged: usize,
}

const fn charge(message: &Message) -> usize {
    message.payload.len() + OVERHEAD
}

impl Unread {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            fresh: NONE,
            hot: Queue::new(StreamUse { stream: StreamId(0), reset: 0 }),
            cold: BTreeMap::new(),
            parts: None,
            over: false,
            charged: 0,
        }
    }

    /// What is charged for all messages.
    pub(super) const fn charged(&self) -> usize {
        self.charged
    }

    /// Whether there is no message whose turn has come.
    pub(super) const fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// Keeps a message that is in no list yet.
    pub(super) fn put(&mut self, message: Message) -> u32 {
        self.charged += charge(&message);
        let slot = Slot { message: Some(message), all: ALONE, stream: ALONE };
        let index = self.free;
        if let Some(free) = self.slots.get_mut(index as usize) {
            self.free = free.all.after;
            *free = slot;
            return index;
        }
        if self.slots.capacity() == 0 {
            // Most associations have one at a time.
            self.slots.reserve_exact(1);
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    /// The message in a slot.
    pub(super) fn get(&self, index: u32) -> Option<&Message> {
        self.slots.get(index as usize)?.message.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Message> {
        self.slots.get_mut(index as usize)?.message.as_mut()
    }

    /// Takes out a message that is in no list.
    pub(super) fn remove(&mut self, index: u32) -> Option<Message> {
        let slot = self.slots.get_mut(index as usize)?;
        let message = slot.message.take()?;
        slot.all.after = core::mem::replace(&mut self.free, index);
        self.charged -= charge(&message);
        Some(message)
    }

    /// The turn of a message has come: it can be taken, or will be when the message before it that
    /// was handed out in part has ended.
    pub(super) fn ready(&mut self, index: u32) {
        let Some(message) = self.get(index) else { return };
        let (from, number, first, last) = (message.origin(), message.number, message.first, message.last);
        self.append(index);
        self.turn_to(from);
        let unread = self.parts.as_ref().and_then(|p| p.0.get(&number).copied());
        let before = if first { self.hot.last } else { unread.unwrap_or(NONE) };
        let after = if before == NONE { self.hot.first } else { self.slots[before as usize].stream.after };
        self.slots[index as usize].stream = Links { before, after };
        match before {
            NONE => self.hot.first = index,
            _ => self.slots[before as usize].stream.after = index,
        }
        match after {
            NONE => self.hot.last = index,
            _ => self.slots[after as usize].stream.before = index,
        }
        if !last {
            self.parts.get_or_insert_default().0.insert(number, index);
        } else if unread.is_some() {
            self.forget_part(number);
        }
        self.report(index);
    }

    /// The stream of this message is to be reported, if it is not known that there is something to
    /// be taken.
    fn report(&mut self, index: u32) {
        if self.fresh == NONE && !self.hot.reported && self.can_be_taken(&self.hot) {
            self.fresh = index;
        }
    }

    /// A message can be taken that may have been passed over when streams were reported.
    fn renew(&mut self, index: u32) {
        if let Some(from) = self.get(index).map(Message::origin) {
            self.detach(index);
            self.append(index);
            self.turn_to(from);
            self.report(index);
        }
    }

    /// Puts a message behind all others.
    fn append(&mut self, index: u32) {
        let before = core::mem::replace(&mut self.newest, index);
        self.slots[index as usize].all = Links { before, after: NONE };
        match before {
            NONE => self.oldest = index,
            _ => self.slots[before as usize].all.after = index,
        }
    }

    /// Takes a message out of the list of all.
    fn detach(&mut self, index: u32) {
        let Links { before, after } = self.slots[index as usize].all;
        if self.fresh == index {
            self.fresh = after;
        }
        match before {
            NONE => self.oldest = after,
            _ => self.slots[before as usize].all.after = after,
        }
        match after {
            NONE => self.newest = before,
            _ => self.slots[after as usize].all.before = before,
        }
    }

    /// Takes a message out of everything.
    fn unlink(&mut self, index: u32) -> Option<Message> {
        self.get(index)?;
        self.detach(index);
        let Links { before, after } = self.slots[index as usize].stream;
        let message = self.remove(index)?;
        self.turn_to(message.origin());
        match before {
            NONE => self.hot.first = after,
            _ => self.slots[before as usize].stream.after = after,
        }
        match after {
            NONE => self.hot.last = before,
            _ => self.slots[after as usize].stream.before = before,
        }
        self.hot.reported &= self.can_be_taken(&self.hot);
        if !message.last && self.parts.as_ref().is_some_and(|p| p.0.get(&message.number) == Some(&index)) {
            self.forget_part(message.number);
        }
        Some(message)
    }

    fn forget_part(&mut self, number: u64) -> Option<u32> {
        let parts = self.parts.as_mut()?;
        let index = parts.0.remove(&number);
        if parts.0.is_empty() {
            self.parts = None;
        }
        index
    }

    /// Makes `hot` the queue of this stream.
    fn turn_to(&mut self, from: StreamUse) {
        if self.hot.from == from {
            return;
        }
        let next = self.cold.remove(&from).unwrap_or(Queue::new(from));
        let last = core::mem::replace(&mut self.hot, next);
        if last.first != NONE || last.begun {
            self.cold.insert(last.from, last);
        }
    }

    fn queue(&self, from: StreamUse) -> Option<&Queue> {
        if self.hot.from == from { Some(&self.hot) } else { self.cold.get(&from) }
    }

    fn can_be_taken(&self, queue: &Queue) -> bool {
        self.get(queue.first).is_some_and(|m| !queue.begun || !m.first || self.over)
    }

    /// Takes the oldest message of all.
    pub(super) fn take(&mut self) -> Option<Message> {
        self.unlink(self.oldest)
    }

    /// Takes the next message of a stream, or the next part of the one that was handed out in part.
    pub(super) fn take_from(&mut self, from: StreamUse) -> Option<Message> {
        self.turn_to(from);
        if !self.can_be_taken(&self.hot) {
            return None;
        }
        self.hot.begun = self.get(self.hot.first).is_some_and(|m| !m.last);
        let message = self.unlink(self.hot.first);
        // Its reader knows of it.
        self.hot.reported = self.can_be_taken(&self.hot);
        message
    }

    /// What [`Unread::take_from`] would take.
    pub(super) fn peek(&self, from: StreamUse) -> Option<&Message> {
        let queue = self.queue(from).filter(|q| self.can_be_taken(q))?;
        self.get(queue.first)
    }

    /// Whether anything of a stream is unread.
    pub(super) fn has(&self, from: StreamUse) -> bool {
        self.queue(from).is_some_and(|q| q.first != NONE)
    }

    /// Whether [`Unread::next_readable`] may have something to report.
    pub(super) const fn has_news(&self) -> bool {
        self.fresh != NONE
    }

    /// The next stream that has something to be taken and was not reported since it had nothing.
    pub(super) fn next_readable(&mut self) -> Option<StreamUse> {
        while let Some(from) = self.get(self.fresh).map(Message::origin) {
            self.fresh = self.slots[self.fresh as usize].all.after;
            self.turn_to(from);
            if !self.hot.reported && self.can_be_taken(&self.hot) {
                self.hot.reported = true;
                return Some(self.hot.from);
            }
        }
        None
    }

    /// Takes the messages of a kind out of the lists, the oldest first.
    pub(super) fn extract(&mut self, wanted: impl Fn(&Message) -> bool) -> Vec<Message> {
        let (mut found, mut next) = (Vec::new(), self.oldest);
        while let Some(slot) = self.slots.get(next as usize) {
            let index = core::mem::replace(&mut next, slot.all.after);
            if slot.message.as_ref().is_some_and(&wanted) {
                found.extend(self.unlink(index));
            }
        }
        self.fresh = self.oldest;
        found
    }

    /// Throws away what is unread of a stream.
    pub(super) fn discard(&mut self, from: StreamUse, buffers: &mut Buffers) {
        self.turn_to(from);
        self.hot.begun = false;
        while let Some(message) = self.unlink(self.hot.first) {
            buffers.recycle(message.payload);
        }
    }

    /// The rest of a message that was delivered in parts will not come. Drops those that are
    /// unread; whether any was taken before.
    pub(super) fn lose(&mut self, from: StreamUse, number: u64, buffers: &mut Buffers) -> bool {
        let (mut taken, mut part) = (true, self.forget_part(number));
        let dropped = part.is_some();
        while let Some(index) = part {
            part = Some(self.slots[index as usize].stream.before);
            let Some(message) = self.unlink(index) else { break };
            taken = !message.first;
            buffers.recycle(message.payload);
            part = part.filter(|before| self.get(*before).is_some_and(|m| m.number == number));
        }
        self.turn_to(from);
        let freed = taken && core::mem::take(&mut self.hot.begun);
        if (dropped || freed) && !self.hot.reported && self.can_be_taken(&self.hot) {
            self.renew(self.hot.first);
        }
        taken
    }

    /// Nothing more will come: what waits for the rest of a message can be taken.
    pub(super) fn end(&mut self) {
        self.over = true;
        let queues = self.cold.values().chain([&self.hot]).filter(|q| q.begun);
        queues.map(|q| q.first).collect::<Vec<_>>().into_iter().for_each(|first| self.renew(first));
    }

    /// Gives memory back that nothing is in.
    pub(super) fn trim(&mut self) {
        if self.charged == 0 {
            (self.slots, self.free) = (Vec::new(), NONE);
        }
        if self.cold.is_empty() {
            self.cold = BTreeMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::Rng;
    use neater_sctp_wire::Ppid;
    use std::collections::BTreeSet;

    /// The same as plain lists.
    #[derive(Default)]
    struct Model {
        all: Vec<Message>,
        streams: BTreeMap<StreamUse, Vec<Message>>,
        begun: BTreeSet<StreamUse>,
        reported: BTreeSet<StreamUse>,
    }

    impl Model {
        fn ready(&mut self, m: &Message) {
            self.all.push(m.clone());
            let list = self.streams.entry(m.origin()).or_default();
            let behind = list.iter().rposition(|x| x.number == m.number).map_or(0, |at| at + 1);
            list.insert(if m.first { list.len() } else { behind }, m.clone());
        }

        fn next(&self, from: StreamUse) -> Option<&Message> {
            let first = self.streams.get(&from)?.first()?;
            (!self.begun.contains(&from) || !first.first).then_some(first)
        }

        fn remove(&mut self, m: &Message) {
            self.all.retain(|x| x != m);
            if let Some(list) = self.streams.get_mut(&m.origin()) {
                list.retain(|x| x != m);
            }
        }

        /// What waited becomes the newest.
        fn renew(&mut self, from: StreamUse) {
            let first = self.streams.get(&from).and_then(|list| list.first()).cloned();
            self.all.retain(|m| Some(m) != first.as_ref());
            self.all.extend(first);
        }

        fn forget_reports(&mut self) {
            let known = core::mem::take(&mut self.reported);
            self.reported = known.into_iter().filter(|s| self.next(*s).is_some()).collect();
        }
    }

    #[test]
    fn it_does_what_plain_lists_would() {
        for seed in 0..1000 {
            let mut rng = Rng::from_number(seed);
            // Read in one way or the other.
            let by_stream = !seed.is_multiple_of(4);
            let (mut unread, mut model, mut buffers) = (Unread::new(), Model::default(), Buffers::default());
            // Messages that have begun and not ended, and how many parts there were of anything.
            let (mut open, mut number, mut parts) = (Vec::new(), 0, 0u32);
            for _ in 0..400 {
                let any = StreamUse { stream: StreamId(rng.below(4) as u16), reset: rng.below(2) as u32 };
                match rng.below(12) {
                    op @ 0..=5 => {
                        let (from, number, first) = match (op, open.is_empty()) {
                            (0..=2, false) => {
                                let (from, number) = open.swap_remove(rng.below(open.len() as u64) as usize);
                                (from, number, false)
                            }
                            _ => {
                                number += 1;
                                (any, number, true)
                            }
                        };
                        let last = rng.chance(0.6);
                        if !last {
                            open.push((from, number));
                        }
                        parts += 1;
                        let StreamUse { stream, reset } = from;
                        let payload = parts.to_be_bytes().to_vec();
                        let (ppid, unordered) = (Ppid(parts), false);
                        let m = Message { number, stream, reset, ppid, unordered, first, last, payload };
                        model.ready(&m);
                        let index = unread.put(m);
                        unread.ready(index);
                    }
                    6..=8 if !by_stream => {
                        let expected = model.all.first().cloned();
                        expected.iter().for_each(|m| model.remove(m));
                        assert_eq!(unread.take(), expected, "seed {seed}");
                    }
                    6..=8 => {
                        let expected = model.next(any).cloned();
                        if let Some(m) = &expected {
                            model.remove(m);
                            model.begun.remove(&any);
                            model.begun.extend((!m.last).then_some(any));
                            model.reported.insert(any);
                        }
                        assert_eq!(unread.take_from(any), expected, "seed {seed}");
                    }
                    9 if !open.is_empty() => {
                        let (from, number) = open.swap_remove(rng.below(open.len() as u64) as usize);
                        let gone: Vec<_> = model.all.iter().filter(|m| m.number == number).cloned().collect();
                        gone.iter().for_each(|m| model.remove(m));
                        let taken = !gone.iter().any(|m| m.first);
                        model.forget_reports();
                        let freed = taken && model.begun.remove(&from);
                        let readable = !model.reported.contains(&from) && model.next(from).is_some();
                        if (freed || !gone.is_empty()) && readable {
                            model.renew(from);
                        }
                        assert_eq!(unread.lose(from, number, &mut buffers), taken, "seed {seed}");
                    }
                    10 if rng.chance(0.3) => {
                        let gone = model.streams.remove(&any).unwrap_or_default();
                        model.all.retain(|m| !gone.contains(m));
                        model.begun.remove(&any);
                        open.retain(|(from, _)| *from != any);
                        unread.discard(any, &mut buffers);
                    }
                    _ => {
                        model.forget_reports();
                        let mut found = BTreeSet::new();
                        while let Some(from) = unread.next_readable() {
                            assert!(model.next(from).is_some() && found.insert(from), "seed {seed}: {from:?}");
                            assert!(model.reported.insert(from), "seed {seed}: {from:?} is known");
                        }
                        let all = model.streams.keys().filter(|s| model.next(**s).is_some()).copied().collect();
                        assert_eq!(model.reported, all, "seed {seed}");
                    }
                }
                model.forget_reports();
                assert_eq!(unread.peek(any), model.next(any), "seed {seed}");
                assert_eq!(unread.has(any), model.streams.get(&any).is_some_and(|list| !list.is_empty()));
                assert_eq!(unread.charged(), model.all.len() * (4 + OVERHEAD), "seed {seed}");
                assert_eq!((unread.is_empty(), unread.has_news() && unread.is_empty()), (model.all.is_empty(), false));
            }
            let all = core::iter::from_fn(|| unread.take()).collect::<Vec<_>>();
            assert_eq!(all, model.all, "seed {seed}");
            // What is left is that messages were taken in part.
            assert!(unread.parts.is_none() && unread.cold.values().all(|q| q.begun), "seed {seed}");
            unread.trim();
            assert_eq!((unread.charged(), unread.slots.capacity()), (0, 0));
        }
    }
}
