//! The handshakes of message framers.

use crate::closing::ABORTED;
use crate::conn::{ColdState, Conn, ConnectionState};
use crate::context::HANDSHAKE_TIMEOUT;
use crate::event::{ConnectionError, EstablishmentError, Event, Reason};
use crate::framer_handshake::{FramerHandshake, HandOver};
use crate::kept::take_queued;
use crate::queue::{Segment, SendFlags, SendQueue};
use crate::receive::{CHUNK, ROUNDS};
use crate::timer::Timer;
use crate::{ConnectionId, Engine, ListenerId, Stack};
use core::time::Duration;
use neater_base::Key;
use neater_base::net::Net;
use neater_framing::{Outbound, Readiness};

impl<N: Net> Engine<N> {
    /// Starts the framer of a connection whose transport is up, if it has one. True: the connection
    /// is ready. Otherwise it is handed over when it is, or has failed.
    pub(crate) fn begin_framing(&mut self, conn: Key, to: HandOver) -> bool {
        let Some(c) = self.conns.get_mut(conn) else { return false };
        // Messages that were sent meanwhile have made the framer already.
        if !c.framed() {
            let Some(framer) = c.request.framer.make() else { return true };
            c.cold().framer = Some(framer);
        }
        let mut out = Outbound::default();
        let started = match &mut c.cold().framer {
            Some(framer) => framer.start(&mut out),
            None => return true,
        };
        let (counted, until) = match (to, c.flow.own_socket()) {
            (HandOver::Listener(l), Some(_)) => (Some(l), self.cx.now + HANDSHAKE_TIMEOUT),
            (HandOver::Opener, _) => (None, c.request.timeout.map_or(self.cx.now + PATIENCE, |t| c.began + t)),
            _ => (None, self.cx.now + HANDSHAKE_TIMEOUT),
        };
        if let Ok(Readiness::Ready) = started {
            self.queue_front(conn, out);
            return true;
        }
        c.cold().framer_handshake =
            Some(Box::new(FramerHandshake { tx: SendQueue::default(), to, until, due: false, counted }));
        if let (Some(listener), Some(channel)) = (counted, c.flow.own_socket()) {
            self.count_handshake(listener, channel);
        }
        self.queue_framer_output(conn, out);
        match started {
            Ok(_) => {
                self.cx.timers.push(until, Timer::FramerHandshake(conn));
                self.drive_framer_handshake(conn);
            }
            Err(e) => self.framer_handshake_failed(conn, &ConnectionError::Framer(e.0)),
        }
        false
    }

    /// Queues the output of a framer that is in its handshake.
    pub(crate) fn queue_framer_output(&mut self, conn: Key, out: Outbound) {
        let Some(framer_handshake) = self.conns.get_mut(conn).and_then(|c| c.cold().framer_handshake.as_mut()) else {
            return;
        };
        for data in out.pieces {
            framer_handshake.tx.bytes += data.len();
            framer_handshake.tx.queue.push_back(Segment {
                data,
                completes: None,
                expires: None,
                flags: SendFlags::default(),
            });
        }
    }

    /// Moves a framer's handshake on.
    pub(crate) fn drive_framer_handshake(&mut self, conn: Key) {
        for _ in 0..ROUNDS {
            let step = self.flush_framer_handshake(conn).and_then(|()| self.feed_framer_handshake(conn));
            match step {
                Ok(Some(Readiness::Handshaking)) => {}
                Ok(Some(Readiness::Ready)) => return self.framer_ready(conn),
                Ok(None) => return,
                Err(error) => return self.framer_handshake_failed(conn, &error),
            }
        }
        self.come_back_to(conn);
    }

    /// There is more to read, and others want their turn: the next is this connection's, without
    /// waiting for readiness. No task knows of one whose framer shakes hands, so that there is none
    /// to notify.
    pub(crate) fn come_back_to(&mut self, conn: Key) {
        self.cx.again = true;
        let framer_handshake = self.conns.get_mut(conn).and_then(|c| c.cold.as_mut()?.framer_handshake.as_mut());
        match framer_handshake {
            None => self.notify(conn, Event::Readable),
            Some(framer_handshake) if framer_handshake.due => {}
            Some(framer_handshake) => {
                framer_handshake.due = true;
                self.pending_framer_handshakes.push(conn);
            }
        }
    }

    /// Writes the framer's output, and nothing of the program's.
    pub(crate) fn flush_framer_handshake(&mut self, conn: Key) -> Result<(), ConnectionError> {
        let swap = |c: &mut Conn, state| {
            c.state = state;
            if let (tx, Some(framer_handshake)) = (&mut c.tx, c.cold.as_mut().and_then(|e| e.framer_handshake.as_mut()))
            {
                core::mem::swap(tx, &mut framer_handshake.tx);
            }
        };
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.is_framer_handshaking()) else { return Ok(()) };
        swap(c, ConnectionState::Established);
        let done = self.flush(conn);
        if let Some(c) = self.conns.get_mut(conn) {
            swap(c, ConnectionState::Establishing);
        }
        done.error.map_or(Ok(()), Err)
    }

    /// Gives the framer the bytes received from the peer; `None`: nothing has arrived.
    pub(crate) fn feed_framer_handshake(&mut self, conn: Key) -> Result<Option<Readiness>, ConnectionError> {
        let Some(c) = self.conns.get(conn).filter(|c| c.is_framer_handshaking()) else { return Ok(None) };
        let mut ended = false;
        if c.stack.is_some_and(Stack::is_stream) {
            let mut scratch = core::mem::take(&mut self.cx.scratch);
            scratch.resize(CHUNK, 0);
            let read = self.read_transport(conn, &mut scratch);
            if let (Ok(Some(n)), Some(c)) = (&read, self.conns.get_mut(conn)) {
                c.cold().receiver.buffer().extend_from_slice(&scratch[..*n]);
            }
            self.cx.scratch = scratch;
            match read? {
                None => return Ok(None),
                Some(n) => ended = n == 0,
            }
        } else {
            let socket = c.flow.own_socket();
            let data = loop {
                let Some(c) = self.conns.get_mut(conn) else { return Ok(None) };
                match (take_queued(c, &mut self.cx.kept), socket) {
                    (Some((data, _)), _) => break data,
                    (None, Some(k)) if self.fill_datagrams(conn, k)? => {}
                    _ => return Ok(None),
                }
            };
            if let Some(c) = self.conns.get_mut(conn) {
                c.cold().receiver.buffer().extend_from_slice(&data);
            }
        }
        let Some(c) = self.conns.get_mut(conn) else { return Ok(None) };
        let ColdState { framer: Some(framer), receiver, .. } = c.cold() else { return Ok(None) };
        let mut out = Outbound::default();
        let mut readiness = receiver.run(framer.as_mut(), ended, &mut out);
        // Messages may have come with the end of the handshake, and nothing more may come for a
        // long time.
        if readiness == Ok(Readiness::Ready) && !receiver.buffer().is_empty() {
            readiness = receiver.run(framer.as_mut(), ended, &mut out);
        }
        self.queue_framer_output(conn, out);
        match readiness {
            Ok(Readiness::Handshaking) if ended => {
                // The framer's last output may carry the reason to the peer.
                let _ = self.flush_framer_handshake(conn);
                Err(ConnectionError::Framer("the peer has ended the connection in the framer's handshake".into()))
            }
            Ok(readiness) => Ok(Some(readiness)),
            Err(e) => {
                let _ = self.flush_framer_handshake(conn);
                Err(ConnectionError::Framer(e.0))
            }
        }
    }

    /// The framer is ready: so is the connection.
    pub(crate) fn framer_ready(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(mut framer_handshake) = self.end_framer_handshake(conn) else { return };
        let Some(c) = self.conns.get_mut(conn) else { return };
        c.since = now;
        if !framer_handshake.tx.is_empty() {
            for segment in core::mem::take(&mut framer_handshake.tx.queue).into_iter().rev() {
                c.tx.bytes += segment.data.len();
                c.tx.queue.push_front(segment);
            }
            self.recount(conn);
        }
        match framer_handshake.to {
            HandOver::Opener => self.now_established(conn),
            to => {
                self.enter_established_quietly(conn);
                self.hand_over(conn, to);
            }
        }
        // What came behind the handshake has had its event.
        if self.conns.get(conn).is_some_and(|c| c.is_open()) {
            self.notify(conn, Event::Readable);
        }
    }

    /// A datagram has come for a connection that shares a socket.
    pub(crate) fn arrived(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(Conn::is_framer_handshaking) {
            self.drive_framer_handshake(conn);
        } else {
            self.notify(conn, Event::Readable);
        }
    }

    /// Takes a connection's handshake out of all books.
    pub(crate) fn end_framer_handshake(&mut self, conn: Key) -> Option<Box<FramerHandshake>> {
        let mut framer_handshake = self.conns.get_mut(conn)?.cold.as_mut()?.framer_handshake.take()?;
        self.cx.queued -= framer_handshake.tx.counted;
        if let Some(queue) = framer_handshake.tx.made() {
            queue.counted = 0;
        }
        if let Some(listener) = framer_handshake.counted {
            self.handshake_over(listener);
        }
        // What it kept is room for others.
        self.let_in_if_room();
        Some(framer_handshake)
    }

    /// A connection has ended during its framer's handshake: the framer's pending output is
    /// discarded.
    pub(crate) fn drop_framer_handshake(&mut self, conn: Key) -> Option<HandOver> {
        let mut framer_handshake = self.end_framer_handshake(conn)?;
        for segment in framer_handshake.tx.made().map(|q| core::mem::take(&mut q.queue)).unwrap_or_default() {
            self.notices.spend(ConnectionId(conn), |s| s.keep(segment.data));
        }
        Some(framer_handshake.to)
    }

    /// The connection will not be ready: its opener is notified why, and one that was received was
    /// not delivered.
    pub(crate) fn framer_handshake_failed(&mut self, conn: Key, error: &ConnectionError) {
        let Some(to) = self.drop_framer_handshake(conn) else { return };
        if to != HandOver::Opener {
            tracing::debug!(target: "neater::listen", "an incoming connection's framer is not ready: {error}");
            self.cancel_establishment(conn);
            if let Some(c) = self.conns.get_mut(conn) {
                c.released = true;
            }
            return self.set_closed(conn);
        }
        let reason = match error {
            ConnectionError::TimedOut => Reason::Timeout,
            _ => Reason::EstablishmentFailed,
        };
        let message = match error {
            ConnectionError::TimedOut => "the framer's handshake was not finished in the time allowed".into(),
            error => error.to_string(),
        };
        let candidates = self.candidates(ConnectionId(conn));
        self.note_bad_framing(conn, error);
        self.cancel_establishment(conn);
        self.fail(conn, EstablishmentError { candidates, ..EstablishmentError::new(reason, message) });
    }

    /// It has its next turn.
    pub(crate) fn resume_framer_handshake(&mut self, conn: Key) {
        let framer_handshake = self.conns.get_mut(conn).and_then(|c| c.cold.as_mut()?.framer_handshake.as_mut());
        if let Some(framer_handshake) = framer_handshake {
            framer_handshake.due = false;
            self.drive_framer_handshake(conn);
        }
    }

    /// The time for a framer's handshake may be over.
    pub(crate) fn framer_handshake_timeout(&mut self, conn: Key) {
        let until = self.conns.get(conn).and_then(|c| Some(c.cold.as_ref()?.framer_handshake.as_ref()?.until));
        if until.is_some_and(|until| until <= self.cx.now) {
            self.framer_handshake_failed(conn, &ConnectionError::TimedOut);
        }
    }

    /// Delivers a received connection whose transport is up, now or when its framer is ready.
    pub(crate) fn deliver(&mut self, conn: Key, to: HandOver) {
        if self.begin_framing(conn, to) {
            self.enter_established_quietly(conn);
            self.hand_over(conn, to);
        }
    }

    /// Delivers a received connection.
    pub(crate) fn hand_over(&mut self, conn: Key, to: HandOver) {
        if !self.conns.get(conn).is_some_and(Conn::is_open) {
            return;
        }
        match to {
            HandOver::Opener => {}
            // It stopped in the meantime.
            HandOver::Listener(listener) if !self.listeners.contains(listener) => self.release(ConnectionId(conn)),
            HandOver::Listener(listener) => self.report_received(listener, conn),
            HandOver::Group(group) if self.groups.get(group).is_some_and(|g| g.claimed) => {
                self.report_stream(group, conn);
            }
            HandOver::Group(group) => match self.group_listener(group) {
                Some(ListenerId(listener)) => self.hand_over(conn, HandOver::Listener(listener)),
                None => {
                    if let Some(c) = self.conns.get_mut(conn) {
                        c.released = true;
                    }
                    match self.groups.get_mut(group) {
                        // The group's opener has not asked for the peer's streams yet: no task
                        // holds it until one asks.
                        Some(g) if g.listener.is_none() => g.waiting.push_back(conn),
                        // The listener stopped in the meantime.
                        _ => self.abort_with(ConnectionId(conn), ABORTED),
                    }
                }
            },
        }
    }
}

/// How long the framer of a connection that was initiated may take, unless the request has a limit.
const PATIENCE: Duration = Duration::from_secs(30);
