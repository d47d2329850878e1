//! What is kept for connections, listeners and groups beside the engine: waiters, and what was not
//! taken yet.
//!
//! *Responsible for* the places and how they are found. *Not responsible for* what happens in them
//! ([`super::State`]).
//!
//! *Invariant*: a place belongs to an object while its `bits` are that object's id; a listener that
//! has stopped and lost its index to another one is among the stopped.

use super::after::Wakers;
use crate::gather::Gathered;
use crate::waiting::{Ticket, WAITS, Waiter, Waiters};
use crate::{EventHandler, GroupId, ListenerId};
use neater_engine::{ConnectionError, ConnectionId, EstablishmentError, Event};
use std::collections::VecDeque;
use std::task::Waker;

/// What the waiters of a connection wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Readable,
    Writable,
    Changed,
    Event,
}

/// What is kept for one connection.
#[derive(Default)]
pub(crate) struct Slot {
    /// The connection's id as a number, which is not 0.
    pub(super) bits: u64,
    // There is mostly one waiter; the others are in `Rare::more`.
    pub(super) readable: Option<Waiter>,
    pub(super) writable: Option<Waiter>,
    pub(super) changed: Option<Waiter>,
    pub(crate) outcome: Option<Result<(), Box<EstablishmentError>>>,
    pub(crate) ended: Option<Result<(), Box<ConnectionError>>>,
    pub(super) rare: Option<Box<Rare>>,
}

/// What most connections never need.
#[derive(Default)]
pub(crate) struct Rare {
    /// Parts of a message whose end has not come, for receivers of whole messages.
    pub(crate) gathered: Gathered,
    pub(crate) subscribed: bool,
    pub(crate) events: VecDeque<Event>,
    /// The waiters beside the first, by [`Wait`].
    pub(super) more: [Waiters; WAITS],
    pub(crate) handler: Option<EventHandler>,
}

impl Slot {
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether parts of a message have been gathered.
    pub(crate) fn has_gathered(&self) -> bool {
        self.rare.as_ref().is_some_and(|r| !r.gathered.is_empty())
    }

    /// Whether it owns nothing.
    #[inline]
    pub(super) fn is_light(&self) -> bool {
        self.readable.is_none()
            && self.writable.is_none()
            && self.changed.is_none()
            && self.rare.is_none()
            && matches!(self.outcome, None | Some(Ok(())))
            && matches!(self.ended, None | Some(Ok(())))
    }
}

#[derive(Default)]
pub(super) struct ListenerSlot {
    pub(super) bits: u64,
    pub(super) queue: VecDeque<Incoming>,
    pub(super) waiters: Waiters,
    pub(super) stopped: bool,
    pub(super) handler: Option<EventHandler>,
}

/// What a listener has received.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming {
    Connection(ConnectionId),
    Group(GroupId),
}

#[derive(Default)]
pub(super) struct GroupSlot {
    pub(super) bits: u64,
    /// How many objects refer to the group.
    pub(super) handles: u32,
    pub(super) queue: VecDeque<ConnectionId>,
    pub(super) waiters: Waiters,
}

impl Slot {
    pub(super) fn wake_all(&mut self, wakers: &mut Wakers) {
        let first = [self.readable.take(), self.writable.take(), self.changed.take()];
        wakers.extend(first.into_iter().flatten().map(|w| w.waker));
    }

    pub(super) fn forget_waiter(&mut self, ticket: Ticket) -> Option<Waker> {
        for first in [&mut self.readable, &mut self.writable, &mut self.changed] {
            if first.as_ref().is_some_and(|w| w.ticket == ticket) {
                return first.take().map(|w| w.waker);
            }
        }
        self.rare.as_mut()?.more.iter_mut().find_map(|w| w.remove(ticket))
    }
}

/// The waits that an event ends, beside its subscribers.
pub(super) fn woken_by(event: &Event) -> &'static [Wait] {
    match event {
        Event::Readable => &[Wait::Readable],
        Event::Writable => &[Wait::Writable],
        Event::Ready => &[Wait::Changed, Wait::Writable, Wait::Readable],
        Event::EstablishmentError(_) | Event::Closed | Event::ConnectionError(_) => {
            &[Wait::Readable, Wait::Writable, Wait::Changed, Wait::Event]
        }
        _ => &[],
    }
}

pub(super) trait Keyed: Default {
    /// The id of its owner; 0, which is no id, without an owner.
    fn key(&self) -> u64;
}

macro_rules! keyed {
    ($($t:ty),*) => { $( impl Keyed for $t { #[inline] fn key(&self) -> u64 { self.bits } } )* };
}
keyed!(Slot, ListenerSlot, GroupSlot);

#[inline]
pub(super) fn slot_of<T: Keyed>(slots: &mut [T], index: usize, bits: u64) -> Option<&mut T> {
    slots.get_mut(index).filter(|s| s.key() == bits)
}

/// The place of a listener.
#[inline]
pub(super) fn listener_of<'a>(
    slots: &'a mut [ListenerSlot],
    stopped: &'a mut [ListenerSlot],
    id: ListenerId,
) -> Option<&'a mut ListenerSlot> {
    match slot_of(slots, id.index(), id.to_bits()) {
        None => stopped.iter_mut().find(|slot| slot.bits == id.to_bits()),
        found => found,
    }
}

#[inline]
pub(super) fn adopt<T: Keyed>(slots: &mut Vec<T>, index: usize, set: impl FnOnce(&mut T)) {
    if slots.len() <= index {
        grow(slots, index);
    }
    set(&mut slots[index]);
}

/// Makes room for `index`, and for some more. Growing moves all, so it happens seldom.
#[cold]
pub(super) fn grow<T: Keyed>(slots: &mut Vec<T>, index: usize) {
    let room = (index | 31) + 1;
    if room > slots.capacity() {
        slots.reserve_exact(3 * room - slots.len());
    }
    slots.resize_with(room, T::default);
}
