//! Passes the engine's events on to the tasks that wait for them.

use super::State;
use super::after::Wakers;
use super::slots::{Incoming, Wait, listener_of, slot_of, woken_by};
use crate::ListenerId;
use neater_engine::{ConnectionId, Event, Notice, Source};

/// Events kept for a subscriber that does not take them. The oldest are dropped beyond it.
const EVENTS_MAX: usize = 1024;

impl State {
    /// Dispatches everything that has happened.
    pub(super) fn dispatch(&mut self, wakers: &mut Wakers) {
        while let Some(Notice { source, event }) = self.engine.poll_notice() {
            match source {
                Source::Connection(id) => self.connection_event(id, event, wakers),
                Source::Listener(id) => self.listener_event(id, event, wakers),
                Source::Group(id) => {
                    let slot = slot_of(&mut self.groups, id.index(), id.to_bits());
                    match (slot, event) {
                        (Some(slot), Event::StreamReceived(conn)) => {
                            slot.queue.push_back(conn);
                            wakers.extend(slot.waiters.take());
                        }
                        (None, Event::StreamReceived(conn)) => self.engine.release(conn),
                        // The session is over: the tasks that wait for its streams ask the engine
                        // why.
                        (Some(slot), _) => wakers.extend(slot.waiters.take()),
                        (None, _) => {}
                    }
                }
            }
        }
    }

    /// A connection has something to be read.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(super) fn readable(&mut self, id: ConnectionId, wakers: &mut Wakers) {
        match slot_of(&mut self.conns, id.index(), id.to_bits()) {
            Some(slot) if slot.rare.is_none() => wakers.take(slot.readable.take()),
            _ => self.connection_event(id, Event::Readable, wakers),
        }
    }

    fn connection_event(&mut self, id: ConnectionId, event: Event, wakers: &mut Wakers) {
        let Some(slot) = slot_of(&mut self.conns, id.index(), id.to_bits()) else { return };
        if let Some(rare) = &mut slot.rare {
            if let Some(handler) = &rare.handler {
                self.calls.push_back((handler.clone(), event.clone()));
            }
            if rare.subscribed && !matches!(event, Event::Readable | Event::Writable) {
                if rare.events.len() >= EVENTS_MAX {
                    rare.events.pop_front();
                }
                rare.events.push_back(event.clone());
                wakers.extend(rare.more[Wait::Event as usize].take());
            }
            for wait in woken_by(&event) {
                wakers.extend(rare.more[*wait as usize].take());
            }
        }
        match event {
            Event::Readable => wakers.take(slot.readable.take()),
            Event::Writable => wakers.take(slot.writable.take()),
            Event::Ready => {
                slot.outcome = Some(Ok(()));
                wakers.take(slot.changed.take());
                wakers.take(slot.writable.take());
                // What the peer has sent meanwhile has been reported to an attempt, if at all.
                wakers.take(slot.readable.take());
            }
            Event::EstablishmentError(e) => {
                slot.outcome = Some(Err(e));
                slot.wake_all(wakers);
            }
            Event::Closed => {
                slot.ended = Some(Ok(()));
                slot.wake_all(wakers);
            }
            Event::ConnectionError(e) => {
                slot.ended = Some(Err(Box::new(e)));
                slot.wake_all(wakers);
            }
            _ => {}
        }
    }

    fn listener_event(&mut self, id: ListenerId, event: Event, wakers: &mut Wakers) {
        let incoming = match event {
            Event::ConnectionReceived(c) => Some(Incoming::Connection(c)),
            Event::GroupReceived(g) => Some(Incoming::Group(g)),
            _ => None,
        };
        let slot = listener_of(&mut self.listeners, &mut self.stopped, id);
        match (slot, incoming) {
            (Some(slot), Some(incoming)) => {
                slot.queue.push_back(incoming);
                // Of many at once, the first has woken them.
                if !slot.waiters.is_empty() {
                    wakers.extend(slot.waiters.take());
                }
                // Its first streams may come before the program has taken the group.
                if let Incoming::Group(g) = incoming {
                    self.adopt_group(g);
                }
            }
            (Some(slot), None) => {
                if matches!(event, Event::Stopped) {
                    slot.stopped = true;
                    wakers.extend(slot.waiters.take());
                } else if let Some(handler) = &slot.handler {
                    self.calls.push_back((handler.clone(), event));
                } else if let Event::ListenerError(e) = event {
                    tracing::warn!(target: "neater::listen", "the listener cannot accept for now: {e}");
                }
            }
            (None, Some(Incoming::Connection(c))) => self.engine.release(c),
            (None, Some(Incoming::Group(g))) => {
                self.engine.close_group(g);
                self.engine.release_group(g);
            }
            (None, None) => {}
        }
    }
}
