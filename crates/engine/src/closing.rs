//! Connections that are being closed: how long that may take, when it is done, and what it means to give up.
//!
//! *Responsible for* telling delivered from not delivered: a connection is closed when its peer has acknowledged what was
//! sent (RFC 9293 section 3.6), and has failed when it has not and will not. *Not responsible for* what begins the closing
//! (`terminate`).
//!
//! A closing lasts as long as something of what was sent is delivered now and then. A peer that
//! answers and takes nothing has paused: it has [`STANDSTILL`], unless the engine is short of room,
//! when it has [`LINGER`], as a peer that does not answer at all. Systems probe a closed window ever
//! more rarely: a peer that is not asked owes no answer.
//!
//! *Invariants*: a connection that is closing and waits has a [`Closing`] with a timer, so that it ends at last; giving up
//! before what was sent is acknowledged is an error, never [`Event::Closed`].

use crate::Engine;
use crate::carrier::FlowId;
use crate::carrier::end::{Closed, Delivery, End, LINGER, Progress};
use crate::conn::ConnectionState;
use crate::event::{ConnectionError, Event};
use crate::terminate::ABORTED;
use crate::timer::Timer;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};

/// How soon after the closing has begun it is first asked how far it is.
const FIRST_CHECK: Duration = Duration::from_millis(2);
/// How much later it is asked again at most.
const CHECKS_APART: Duration = Duration::from_secs(1);
/// How long a peer that answers may take nothing of what is to be delivered before its connection
/// is closed. A reader that is slow seems to stand still, too: its kernel reports room when a good
/// part of its buffer is free (RFC 9293 section 3.8.6.2.2), which at 3 kB/s takes minutes.
const STANDSTILL: Duration = Duration::from_secs(300);
/// For how long a lack of descriptors is taken to last.
const SHORTAGE: Duration = Duration::from_secs(2);

/// How far the closing of a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    since: Instant,
    /// When there was progress last.
    moved: Instant,
    /// What [`Progress::mark`] was then.
    mark: u64,
    /// How many packets had come from the peer by then, where they are counted.
    packets: u64,
    /// Since when the system waits for an answer to a retransmission or a probe.
    asked: Option<Instant>,
}

impl<N: Net> Engine<N> {
    /// A connection's closing has begun. If it is not done already, it is watched from now on.
    pub(crate) fn watch_closing(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing) {
            self.watch(conn);
        }
    }

    fn watch(&mut self, conn: Key) {
        let Progress { mark, packets, .. } = self.progress_of_closing(conn);
        // One that is watched already has its timer.
        if self
            .closings
            .insert(conn, Closing { since: self.cx.now, moved: self.cx.now, mark, packets, asked: None })
            .is_none()
        {
            self.cx.timers.push(self.cx.now + FIRST_CHECK, Timer::Closing(conn));
        }
    }

    /// Asks how far the closing of a connection is, gives it up, or asks again later.
    pub(crate) fn closing_timeout(&mut self, conn: Key) {
        let flow = self.conns.get(conn).map_or(FlowId::None, |c| c.flow);
        if flow.ends_when_sent() {
            self.advance_close(conn);
        } else {
            let end = self.carriers.check_closed(&mut self.cx, flow);
            self.closing_went_on(conn, end.into());
        }
        self.both_ended(conn);
        let Progress { mark, packets, unanswered } = self.progress_of_closing(conn);
        // When it is over, the timer may still come.
        let Some(c) = self.closings.get_mut(&conn) else { return };
        // A connection that both sides have ended and the program has not closed waits as long as the system does.
        if mark != c.mark || self.conns.get(conn).is_some_and(|c| c.is_open()) {
            (c.mark, c.moved, c.packets) = (mark, self.cx.now, packets);
        }
        c.asked = unanswered.filter(|n| *n > 0).map(|_| c.asked.unwrap_or(self.cx.now));
        let c = *c;
        let flow = self.conns.get(conn).map_or(FlowId::None, |c| c.flow);
        let answers =
            unanswered == Some(0) || self.carriers.answered_since(&self.cx, flow, c.moved, packets > c.packets);
        let until = match c.asked {
            _ if self.is_short() => c.moved + LINGER,
            // It may be on its way.
            Some(asked) => (c.moved + LINGER).max(asked + LINGER / 2).min(c.moved + STANDSTILL),
            None if answers => c.moved + STANDSTILL,
            None => c.moved + LINGER,
        };
        if until <= self.cx.now {
            return self.give_up_closing(conn);
        }
        self.ask_peer_of_closing(conn, &c);
        // Half as often each time: the checks are cheap, and few.
        let next = self.cx.now + (self.cx.now - c.since).clamp(FIRST_CHECK, CHECKS_APART);
        self.cx.timers.push(next.min(until), Timer::Closing(conn));
    }

    /// How far the closing of a connection is.
    fn progress_of_closing(&mut self, conn: Key) -> Progress {
        match self.conns.get(conn) {
            Some(c) => self.carriers.progress(&self.cx, c.flow, c.tx.bytes as u64),
            None => Progress { mark: 0, packets: 0, unanswered: None },
        }
    }

    /// A peer that is silent is asked whether it is there, where the transport does not do so itself.
    fn ask_peer_of_closing(&mut self, conn: Key, closing: &Closing) {
        let Some(c) = self.conns.get(conn) else { return };
        // What the transport has taken, a peer that is there acknowledges.
        if c.tx.bytes == 0 {
            return;
        }
        let unwanted = c.state == ConnectionState::Closing && c.recv.may_read();
        let stands_still = self.cx.now.saturating_since(closing.moved) >= LINGER / 2;
        self.carriers.ask_peer(&self.cx, c.flow, LINGER / 2, stands_still, unwanted);
    }

    /// Whether room is short: what makes no progress is in the way of others.
    fn is_short(&self) -> bool {
        self.cx.queued >= self.cx.limits.engine_bytes
            || self.conns.len() >= self.cx.limits.connections
            || self.cx.starved.is_some_and(|at| self.cx.now.saturating_since(at) < SHORTAGE)
    }

    /// The system has no descriptor for another connection.
    pub(crate) fn note_shortage(&mut self) {
        self.cx.starved = Some(self.cx.now);
    }

    /// What was sent is not taken, or not acknowledged, and has not been for as long as we wait.
    fn give_up_closing(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let (group, flow) = (c.group, c.flow);
        let unwritten = !c.tx.is_empty() || !c.send.is_finished();
        if flow.acknowledges_end() {
            c.send = c.send.on_fin_sent();
            // If it is the last of its session, the session does not end in order either.
            if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                g.abort_code = Some(ABORTED);
            }
        }
        if let Some(over) = self.carriers.give_up(&mut self.cx, flow, unwritten) {
            self.session_over(over);
        }
        self.fail_connection(conn, ConnectionError::TimedOut);
        if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
            g.abort_code = None;
        }
    }

    /// Nothing more can be sent on a stream: the peer has said so, with this code, and has everything or not.
    pub(crate) fn given_up_by_peer(&mut self, conn: Key, delivered: bool, code: u64) {
        let error = ConnectionError::StreamReset(code);
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.send = c.send.on_stopped(code, delivered);
        if c.state == ConnectionState::Closing && delivered {
            return self.finish_close(conn);
        }
        if c.state == ConnectionState::Closing || c.recv.reset_code().is_some() {
            return self.fail_connection(conn, error);
        }
        c.ext().error = Some(error.clone());
        self.report_unsent(conn, &error);
        // Whoever waits for room learns that there is none to come.
        self.notify(conn, Event::Writable);
    }

    /// A stream on which nothing can be sent any more is over when the peer has abandoned the other direction, too: that is
    /// found out here, because the program may not be reading.
    pub(crate) fn find_reset(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.is_open() && c.send.is_over_for_peer()) else { return };
        // The transport forgets a reset that was read.
        let read = c.recv.reset_code();
        let code = self.carriers.peer_reset(c.flow, read);
        if let Some(code) = code {
            c.recv = c.recv.on_reset(code);
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// A connection that both sides have ended is over when the peer has what was sent. What it has sent can still be read.
    pub(crate) fn both_ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn).filter(|c| c.is_open() && c.send.is_finished() && c.tx.is_empty()) else {
            return;
        };
        // Also where the peer has no direction, or this side, or the program wants no more and the peer was notified of it.
        let nothing_comes = c.recv.has_peer_finished() || !c.recv.may_read() && self.carriers.reports_stop(c.flow);
        let nothing_goes = c.send.is_settled() || c.send.is_absent();
        if c.flow.acknowledges_end() {
            if nothing_comes && c.given_up() {
                if let Some(error) = c.refusal() {
                    self.fail_connection(conn, error);
                }
            } else if nothing_comes && nothing_goes && c.request.may_receive {
                self.ended(conn);
            }
            return;
        }
        match self.carriers.both_delivered(&mut self.cx, c.flow, c.recv.has_peer_finished()) {
            Some(Delivery::Done) => self.ended(conn),
            Some(Delivery::Failed(error)) => self.break_connection(conn, error),
            Some(Delivery::Open) if !self.closings.contains_key(&conn) => self.watch(conn),
            Some(Delivery::Open) | None => {}
        }
    }

    fn ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let unread = c.recv.may_read();
        let shared = c.flow.keeps_session();
        if unread {
            self.notify(conn, Event::Readable);
        }
        self.notify(conn, Event::Closed);
        if !unread && !shared {
            self.detach(conn);
        }
        let group = self.conns.get(conn).filter(|c| c.is_peers_stream()).and_then(|c| c.group);
        self.set_closed(conn);
        if let Some(group) = group {
            self.room_in_group(group, false);
        }
    }

    /// The closing of a connection has gone on.
    pub(crate) fn closing_went_on(&mut self, conn: Key, Closed { end, fin_done, peer_ended, session }: Closed) {
        if fin_done || peer_ended {
            let Some(c) = self.conns.get_mut(conn) else { return };
            if fin_done {
                c.send = c.send.on_fin_sent();
            }
            if peer_ended {
                c.recv = c.recv.on_peer_finished();
            }
        }
        if let Some(over) = session {
            self.session_over(over);
        }
        match end {
            End::Waits => {}
            End::Done => self.finish_close(conn),
            End::Failed(error) => self.fail_connection(conn, error),
        }
    }

    /// Drops what a peer sends to a connection that is closing and still has something to
    /// send: a peer that is closing, too, would wait for that, and this side for the peer.
    pub(crate) fn discard_incoming(&mut self, conn: Key) {
        let closing = self.conns.get(conn).filter(|c| c.state == ConnectionState::Closing);
        if let Some(flow) = closing.map(|c| c.flow) {
            let closed = self.carriers.discard_incoming(&mut self.cx, conn, flow);
            self.closing_went_on(conn, closed);
        }
    }
}
