//! What the application asks of an association.

use super::{Association, State};
use crate::config::INITIAL_BUFFER;
use crate::error::SendError;
use crate::event::{CloseReason, Event};
use crate::ids::{MessageId, PathId, StreamUse};
use crate::receive::Message;
use crate::send::{Pending, Reliability, SendOptions};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_sctp_wire::cause::UserAbort;
use neater_sctp_wire::{Ppid, StreamId};

impl Association {
    /// Takes a message to be sent.
    pub(crate) fn send(
        &mut self,
        stream: StreamId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<MessageId, SendError> {
        self.may_send(stream, payload.len(), &options)?;
        if let Reliability::Priority(priority) = options.reliability {
            self.make_room(payload.len(), priority);
        }
        let full = self.buffered() > 0 && self.buffered() + payload.len() > self.send_limit();
        if full || self.queues.messages() >= self.config.max_messages {
            self.blocked = true;
            return Err(SendError::Blocked);
        }
        Ok(self.queue(stream, payload, options))
    }

    /// Takes a word to be sent although there may be no room.
    pub(crate) fn send_word(
        &mut self,
        stream: StreamId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<MessageId, SendError> {
        self.may_send(stream, payload.len(), &options)?;
        Ok(self.queue(stream, payload, options))
    }

    fn queue(&mut self, stream: StreamId, payload: Bytes, options: SendOptions) -> MessageId {
        self.messages += 1;
        let id = MessageId(self.messages);
        if let Reliability::Until(deadline) = options.reliability {
            self.expiries.insert((deadline, stream.0, id), None);
        }
        let pending = Pending {
            id,
            ppid: Ppid(options.ppid),
            unordered: options.unordered,
            immediate: options.immediate,
            report: options.report,
            reliability: options.reliability,
            payload,
            started: None,
        };
        if self.queues.is_empty() {
            for path in &mut self.paths {
                path.refill_burst();
            }
        }
        self.queues.push(stream, pending);
        id
    }

    /// How much may be buffered: three times [`Self::window`], and at least three times what may
    /// be in flight. What was sent is kept for a round trip, two where it was lost, and what waits
    /// must last until the application has been notified of room.
    pub(super) fn send_limit(&self) -> usize {
        let windows: u64 = self.paths.iter().map(|p| p.cc.window()).sum();
        let wanted = usize::try_from(self.window().max(windows).saturating_mul(3)).unwrap_or(usize::MAX);
        wanted.max(INITIAL_BUFFER as usize).min(self.send_buffer)
    }

    /// Whether the application's command is for an association that has ended by the peer's
    /// restart, of which it has not been notified yet.
    pub(crate) fn is_another(&self) -> bool {
        self.restarted && !self.config.outlives_restart
    }

    fn may_send(&self, stream: StreamId, len: usize, options: &SendOptions) -> Result<(), SendError> {
        if self.is_another() {
            return Err(SendError::Closed);
        }
        let open = match self.state {
            State::CookieWait | State::CookieEchoed(_) | State::Established => !self.ending,
            State::Closed => return Err(SendError::Closed),
            _ => false,
        };
        if !open {
            return Err(SendError::ShuttingDown);
        }
        let settled = !matches!(self.state, State::CookieWait);
        if stream.0 >= self.queues.count() {
            return Err(SendError::NoSuchStream { streams: self.queues.count() });
        }
        if len == 0 {
            return Err(SendError::Empty);
        }
        let most =
            if options.whole { self.fragment_size().min(self.config.max_message) } else { self.config.max_message };
        if len > most {
            return Err(SendError::TooLong { most });
        }
        if settled && options.reliability != Reliability::Full && !self.agreed.partial_reliability {
            return Err(SendError::NotPartiallyReliable);
        }
        Ok(())
    }

    /// The next message, or part of one.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        if self.restarted {
            // What there is came after the peer's restart, and the caller knows only the old
            // association.
            return None;
        }
        let message = self.rx.read(self.silly());
        if message.is_none() {
            self.readable_told = false;
        }
        self.update_window();
        message
    }

    /// The next message of a stream, or part of one.
    pub(crate) fn receive_from(&mut self, from: StreamUse) -> Option<Message> {
        if self.restarted {
            return None;
        }
        let message = self.rx.read_from(from, self.silly());
        // Where the buffer was short, this may have brought out the beginning of a message on
        // another stream.
        self.tell_readable();
        self.update_window();
        message
    }

    /// The next word.
    pub(crate) fn receive_word(&mut self) -> Option<Message> {
        if self.restarted {
            return None;
        }
        let message = self.rx.read_word();
        self.update_window();
        message
    }

    /// The next stream that has something to read, once until it has nothing.
    pub(crate) fn next_readable(&mut self) -> Option<StreamUse> {
        if self.restarted {
            return None;
        }
        let readable = self.rx.next_readable(self.silly());
        self.readable_told &= readable.is_some();
        readable
    }

    /// What is received next from a stream.
    pub(crate) fn peek(&self, from: StreamUse) -> Option<&Message> {
        if self.restarted { None } else { self.rx.peek(from) }
    }

    /// Whether anything of a stream is to be read.
    pub(crate) fn has_unread(&self, from: StreamUse) -> bool {
        !self.restarted && self.rx.has_unread(from)
    }

    /// The use of an inbound stream that has begun last.
    pub(crate) fn stream_use(&self, stream: StreamId) -> StreamUse {
        self.rx.current(stream)
    }

    /// Nothing of a stream is read any more.
    pub(crate) fn discard(&mut self, from: StreamUse) {
        if !self.restarted {
            self.rx.discard(from);
            self.update_window();
        }
    }

    /// Messages with this identifier are words.
    pub(crate) fn set_word(&mut self, ppid: Ppid) {
        if !self.restarted {
            self.rx.set_word(ppid);
        }
    }

    /// Acknowledges at once when the window has opened.
    fn update_window(&mut self) {
        if self.is_receiving() && self.rx.has_opened(self.silly()) {
            self.rx.arrivals.acknowledge_now();
        }
    }

    /// Whether nothing that was sent on a stream waits for anything.
    pub(crate) fn is_stream_idle(&self, stream: StreamId) -> bool {
        !self.queues.has_stream(stream) && !self.out.has_stream(stream)
    }

    /// What it holds of what was received, what the application keeps included.
    pub(crate) const fn holds(&self) -> usize {
        self.rx.used()
    }

    /// All associations together may hold so much more.
    pub(crate) const fn set_receive_room(&mut self, room: usize) {
        self.rx.set_room(room);
    }

    /// The application keeps this much of what it was given.
    pub(crate) fn set_held(&mut self, bytes: usize) {
        self.rx.set_held(bytes);
        self.update_window();
    }

    pub(crate) const fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    pub(crate) const fn set_silence(&mut self, now: Instant, silence: Option<Duration>) {
        (self.silence, self.heard) = (silence, now);
    }

    pub(crate) fn set_send_buffer(&mut self, bytes: usize) {
        self.send_buffer = bytes;
        self.tell_writable();
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.rx.recycle(buffer);
    }

    /// Ends the association when everything is delivered (RFC 9260 section 9.2).
    pub(crate) fn shutdown(&mut self, now: Instant) {
        if self.is_another() {
            return;
        }
        match self.state {
            State::CookieWait if self.queues.is_empty() => self.close(CloseReason::Aborted),
            State::CookieWait | State::CookieEchoed(_) => self.ending = true,
            State::Established => {
                self.state = State::ShutdownPending;
                self.advance_shutdown(now);
            }
            _ => {}
        }
    }

    /// Ends the association at once; the peer is notified (RFC 9260 section 9.1).
    pub(crate) fn abort(&mut self, reason: &[u8]) {
        let reason = &reason[..reason.len().min(256)];
        self.abort_with(&[UserAbort(reason).into()], CloseReason::Aborted);
    }

    /// Lets data go this way, if it can be used.
    pub(crate) fn set_primary(&mut self, path: PathId) -> bool {
        let index = usize::from(path.0);
        let known = self.paths.get(index).is_some_and(|p| p.state != crate::path::PathState::Removed);
        if known {
            self.preferred = index;
            self.choose_path();
        }
        known
    }

    pub(crate) fn set_stream_value(&mut self, stream: StreamId, value: u16) -> bool {
        let known = stream.0 < self.queues.count();
        if known {
            self.queues.set_value(stream, value);
        }
        known
    }

    /// Notifies the application that there is something to read, once until it has read everything.
    pub(super) fn tell_readable(&mut self) {
        if !self.readable_told && self.rx.has_news(self.silly()) {
            self.readable_told = true;
            self.events.push_back(Event::Readable);
        }
    }

    /// What is left of the send buffer.
    pub(crate) fn room(&self) -> usize {
        self.send_limit().saturating_sub(self.buffered())
    }

    /// The application waits for room.
    pub(crate) const fn tell_when_writable(&mut self) {
        self.blocked = true;
    }

    /// Notifies the application that there is room, if it was notified that there is none.
    pub(super) fn tell_writable(&mut self) {
        if !self.blocked || self.is_closed() {
            return;
        }
        let limit = self.send_limit();
        if self.buffered() <= limit - limit / 4 && self.queues.messages() < self.config.max_messages {
            self.blocked = false;
            self.events.push_back(Event::Writable);
        }
    }
}
