//! Events that wait to be taken.
//!
//! *Responsible for* keeping them in order and small. *Not responsible for* their receivers.
//!
//! *Invariant*: what goes in comes out as it went in.

use crate::event::{Event, Notice, Source};
use crate::{ConnectionId, ListenerId, MessageId, Spent};
use std::collections::VecDeque;

/// A queue of notices. A thousand connections that become ready in one turn put a thousand in: the
/// common ones take a quarter of what [`Notice`] does.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    queue: VecDeque<Waiting>,
    spent: Spent,
}

#[derive(Debug)]
struct Waiting {
    source: Source,
    event: Brief,
}

/// The events of every connection and every message, and all others.
#[derive(Debug)]
enum Brief {
    Ready,
    Readable,
    Writable,
    Closed,
    Sent(MessageId),
    Received(ConnectionId),
    /// No connection's event: makes the driver take [`Notices::take_spent`].
    Spent,
    Other(Box<Event>),
}

impl Notices {
    pub(crate) fn push(&mut self, source: Source, event: Event) {
        let event = match event {
            Event::Ready => Brief::Ready,
            Event::Readable => Brief::Readable,
            Event::Writable => Brief::Writable,
            Event::Closed => Brief::Closed,
            Event::Sent(id) => Brief::Sent(id),
            Event::ConnectionReceived(id) => Brief::Received(id),
            event => Brief::Other(Box::new(event)),
        };
        self.queue.push_back(Waiting { source, event });
    }

    /// [`Event::Ready`], without asking which event it is.
    #[inline]
    pub(crate) fn push_ready(&mut self, conn: ConnectionId) {
        self.queue.push_back(Waiting { source: Source::Connection(conn), event: Brief::Ready });
    }

    /// [`Event::Readable`], likewise.
    #[inline]
    pub(crate) fn push_readable(&mut self, conn: ConnectionId) {
        self.queue.push_back(Waiting { source: Source::Connection(conn), event: Brief::Readable });
    }

    /// [`Event::ConnectionReceived`], likewise.
    #[inline]
    pub(crate) fn push_received(&mut self, listener: ListenerId, conn: ConnectionId) {
        self.queue.push_back(Waiting { source: Source::Listener(listener), event: Brief::Received(conn) });
    }

    /// The oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Notice> {
        let Waiting { source, event } = self.queue.pop_front()?;
        let event = match event {
            Brief::Spent => return self.pop(),
            Brief::Ready => Event::Ready,
            Brief::Readable => Event::Readable,
            Brief::Writable => Event::Writable,
            Brief::Closed => Event::Closed,
            Brief::Sent(id) => Event::Sent(id),
            Brief::Received(id) => Event::ConnectionReceived(id),
            Brief::Other(event) => *event,
        };
        Some(Notice { source, event })
    }

    /// The oldest, if it is a connection's [`Event::Readable`], and whether there is another after
    /// it.
    #[inline]
    pub(crate) fn pop_readable(&mut self) -> (Option<ConnectionId>, bool) {
        let conn = match self.queue.front() {
            Some(Waiting { source: Source::Connection(conn), event: Brief::Readable }) => Some(*conn),
            _ => None,
        };
        if conn.is_some() {
            self.queue.pop_front();
        }
        (conn, !self.queue.is_empty())
    }

    /// Keeps what is not to be dropped while the engine is borrowed. A notice that waits anyway
    /// sees to its being taken.
    pub(crate) fn spend(&mut self, conn: ConnectionId, keep: impl FnOnce(&mut Spent)) {
        if self.queue.is_empty() {
            self.queue.push_back(Waiting { source: Source::Connection(conn), event: Brief::Spent });
        }
        keep(&mut self.spent);
    }

    /// Whether there is something to be dropped.
    #[inline]
    pub(crate) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// What is to be dropped.
    #[inline]
    pub(crate) fn take_spent(&mut self) -> Spent {
        core::mem::take(&mut self.spent)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn what_is_spent_makes_a_notice_that_nobody_sees() {
        let mut notices = Notices::default();
        let conn = ConnectionId::from_bits(1 << 32 | 5);
        notices.spend(conn, |s| s.keep(Bytes::from_static(b"a")));
        notices.push_ready(conn);
        notices.spend(conn, |s| s.keep(Bytes::from_static(b"b")));
        assert!(!notices.is_empty());
        assert_eq!(notices.pop().map(|n| n.event), Some(Event::Ready));
        assert!(notices.pop().is_none() && notices.is_empty());
        assert!(!notices.take_spent().is_empty() && notices.take_spent().is_empty());
    }

    #[test]
    fn readable_connections_are_told_in_their_turn() {
        let mut notices = Notices::default();
        let conn = ConnectionId::from_bits(1 << 32 | 5);
        assert_eq!(notices.pop_readable(), (None, false));
        notices.push_readable(conn);
        assert_eq!(notices.pop_readable(), (Some(conn), false));
        notices.push_readable(conn);
        notices.push_ready(conn);
        notices.push_readable(conn);
        assert_eq!(notices.pop_readable(), (Some(conn), true));
        assert_eq!(notices.pop_readable(), (None, true));
        assert_eq!(notices.pop().map(|n| n.event), Some(Event::Ready));
        assert_eq!(notices.pop_readable(), (Some(conn), false));
    }

    #[test]
    fn every_event_comes_out_as_it_went_in() {
        let mut notices = Notices::default();
        let conn = ConnectionId::from_bits(1 << 32 | 5);
        let source = Source::Connection(conn);
        let events = [
            Event::Ready,
            Event::Readable,
            Event::Writable,
            Event::Sent(MessageId(7)),
            Event::ConnectionReceived(conn),
            Event::Expired(MessageId(8)),
            Event::PathChange,
            Event::Closed,
        ];
        for event in &events {
            notices.push(source, event.clone());
        }
        notices.push_ready(conn);
        for event in events.into_iter().chain([Event::Ready]) {
            assert_eq!(notices.pop(), Some(Notice { source, event }));
        }
        assert!(notices.is_empty() && notices.pop().is_none());
        assert!(size_of::<Waiting>() * 3 <= size_of::<Notice>(), "{}", size_of::<Waiting>());
    }
}
