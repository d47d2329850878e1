//! Receives that wait for their message: each is answered by exactly one event (RFC 9622 section
//! 9.3).

use crate::connection::neater_connection;
use crate::error::neater_error;
use crate::event::{Outgoing, Payload, neater_event_kind as K};
use crate::message::neater_message;
use crate::status::neater_status;
use bytes::{Bytes, BytesMut};
use neater::Message;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

/// What one receive asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Fewer bytes than this are no answer, unless the message ends with them.
    pub(crate) min: usize,
    /// More bytes than this are left to the next; `None`: whole messages.
    pub(crate) max: Option<usize>,
}

/// The receives of a connection.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    queue: VecDeque<Wanted>,
    /// What has come for the first of them and is not enough yet.
    begun: Option<(BytesMut, Message)>,
}

/// How many receives may wait at one connection.
pub(crate) const MAX: usize = 65_536;

impl Receives {
    pub(crate) fn add(&mut self, wanted: Wanted) -> bool {
        let room = self.queue.len() < MAX;
        if room {
            self.queue.push_back(wanted);
        }
        room
    }

    /// A part has come: the answer, if it is enough.
    fn part(&mut self, wanted: Wanted, part: Message) -> Option<Message> {
        let (mut bytes, first) = match self.begun.take() {
            None if part.end_of_message || part.data.len() >= wanted.min => return Some(part),
            None => (BytesMut::from(&part.data[..]), part.clone()),
            Some((mut bytes, first)) => {
                bytes.extend_from_slice(&part.data);
                (bytes, first)
            }
        };
        if part.end_of_message || bytes.len() >= wanted.min {
            let data: Bytes = bytes.split().freeze();
            return Some(Message { data, context: part.context, end_of_message: part.end_of_message });
        }
        self.begun = Some((bytes, first));
        None
    }

    /// Nothing more comes: what has come is the answer, if anything has.
    fn rest(&mut self) -> Option<Message> {
        let (bytes, first) = self.begun.take()?;
        Some(Message { data: bytes.freeze(), ..first })
    }

    fn begun(&self) -> usize {
        self.begun.as_ref().map_or(0, |(bytes, _)| bytes.len())
    }
}

/// Answers the receives of a connection as far as something has come for them.
pub(crate) fn attempt(c: &Arc<neater_connection>) {
    let Some(connection) = c.inner.get() else { return };
    if !c.ready.load(Ordering::Acquire) {
        return;
    }
    let over = c.over.load(Ordering::Acquire);
    let mut r = c.receives.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cx = Context::from_waker(&c.waker);
    while let Some(wanted) = r.queue.front().copied() {
        let room = wanted.max.map(|max| max.saturating_sub(r.begun()).max(1));
        let answer = connection.poll_receive(&mut cx, room.unwrap_or(usize::MAX), room.is_none());
        let (kind, payload) = match answer {
            Poll::Pending if !over => break,
            Poll::Ready(Ok(Some(part))) => match r.part(wanted, part) {
                Some(message) => received(message),
                None => continue,
            },
            Poll::Ready(Ok(None)) => match r.rest() {
                Some(message) => received(message),
                None => (K::NEATER_EVENT_RECEIVE_END, Payload::None),
            },
            Poll::Ready(Err(e)) => match r.rest() {
                Some(message) => received(message),
                None => failed(neater_error::of_connection(&e)),
            },
            // Nothing comes any more where nothing has a reason.
            Poll::Pending => match r.rest() {
                Some(message) => received(message),
                None => failed(neater_error::new(
                    neater_status::NEATER_ERROR_CLOSED,
                    neater_status::NEATER_ERROR_CLOSED.words().to_owned(),
                )),
            },
        };
        r.queue.pop_front();
        c.base.core.publish(Outgoing::of(c, kind, payload));
    }
}

/// Answers all receives of a connection that was never established.
pub(crate) fn give_up(c: &Arc<neater_connection>) {
    let mut r = c.receives.lock().unwrap_or_else(PoisonError::into_inner);
    while r.queue.pop_front().is_some() {
        let text = "the connection could not be established".to_owned();
        let (kind, payload) = failed(neater_error::new(neater_status::NEATER_ERROR_CLOSED, text));
        c.base.core.publish(Outgoing::of(c, kind, payload));
    }
}

fn received(inner: Message) -> (K, Payload) {
    let kind = if inner.end_of_message { K::NEATER_EVENT_RECEIVED } else { K::NEATER_EVENT_RECEIVED_PARTIAL };
    (kind, Payload::Message(Box::new(neater_message { inner })))
}

fn failed(e: neater_error) -> (K, Payload) {
    (K::NEATER_EVENT_RECEIVE_ERROR, Payload::Error(Box::new(e), 0))
}
