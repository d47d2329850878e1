//! Receiving.

use crate::carrier::terms::Read as FlowRead;
use crate::carrier::terms::{DatagramSource, Remains};
use crate::carrier::{Batch, each_datagram};
use crate::conn::{ColdState, ConnectionState};
use crate::connection::fast_path::FastRead;
use crate::event::ConnectionError;
use crate::kept::take_queued;
use crate::receive::{CHUNK, ROUNDS, Read, ReceiveOutcome, Received};
use crate::{ConnectionId, Engine};
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{Ecn, ErrorKind, Net, NetError};
use neater_framing::Outbound;

impl<N: Net> Engine<N> {
    /// Reads bytes of a raw byte stream into `buf`: `Some(0)` at the peer's end of stream, and
    /// where `buf` is empty, `None` when there is nothing now and [`crate::Event::Readable`]
    /// follows.
    ///
    /// # Errors
    /// Why the connection is over, or [`ConnectionError::Unsupported`] on connections that carry
    /// messages.
    #[inline]
    pub fn read(&mut self, conn: ConnectionId, buf: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
        let mut ended = None;
        match fast_path!(self).read(conn.0, buf, &mut ended) {
            0 => self.read_in_full(conn, buf, ended),
            n => Ok(Some(n)),
        }
    }

    /// The general way; `ended` is what the fast one has met.
    #[inline(never)]
    pub(crate) fn read_in_full(
        &mut self,
        conn: ConnectionId,
        buf: &mut [u8],
        ended: Option<FastRead>,
    ) -> Result<Option<usize>, ConnectionError> {
        if let Some(FastRead::Ended(result)) = ended {
            let _ = self.after_read(conn.0, true, result.map(|()| Some(0)).map_err(ConnectionError::Net));
        }
        self.own()?;
        let Some(c) = self.conns.get(conn.0) else { return Err(ConnectionError::Closed) };
        if c.state == ConnectionState::Establishing || c.fast.is_read_blocked() && !buf.is_empty() {
            return Ok(None);
        }
        if !c.request.may_receive {
            return Err(ConnectionError::Unsupported(SEND_ONLY));
        }
        // A network could not answer an empty read other than by the end of the stream.
        if buf.is_empty() && c.is_open() {
            return Ok(Some(0));
        }
        if c.cold.is_some() || c.stack.is_some_and(|s| !s.is_stream()) {
            c.bytes_possible()?;
        }
        let result = self.read_transport(conn.0, buf);
        if matches!(result, Ok(Some(n)) if n > 0) {
            fast_path!(self).note(conn.0);
        }
        result
    }

    /// Reads from whatever carries the connection.
    pub(crate) fn read_transport(&mut self, conn: Key, buf: &mut [u8]) -> Read {
        let Some(c) = self.conns.get_mut(conn) else { return Err(ConnectionError::Closed) };
        if !c.recv.may_read() {
            return Ok(Some(0));
        }
        let room = c.may_receive_now(self.cx.now);
        if room == 0 && !buf.is_empty() {
            self.wait_to_receive(conn);
            return Ok(None);
        }
        let len = buf.len().min(room);
        let buf = &mut buf[..len];
        if let Some(channel) = c.flow.own_socket()
            && c.state == ConnectionState::Closed
        {
            return self.read_remains(conn, channel, buf);
        }
        let result = match self.carriers.read(&mut self.cx, c.flow, buf) {
            FlowRead::Bytes(n) => Ok(Some(n)),
            FlowRead::Blocked => Ok(None),
            FlowRead::Again => {
                self.come_back_to(conn);
                Ok(None)
            }
            FlowRead::Gone => Err(closed(c.error())),
            FlowRead::Failed(e) => Err(e),
        };
        self.after_read(conn, !buf.is_empty(), result)
    }

    /// Reads what had arrived before the connection broke. Whatever comes after it is that the
    /// connection broke.
    pub(crate) fn read_remains(&mut self, conn: Key, key: Key, buf: &mut [u8]) -> Read {
        let Some(c) = self.conns.get_mut(conn) else { return Err(ConnectionError::Closed) };
        let (error, in_order) = (closed(c.error()), c.error().is_none());
        let Some(remains) = self.carriers.read_remains(&mut self.cx, key, buf) else { return Err(error) };
        match remains {
            Remains::Bytes(n) => {
                c.bytes_received += n as u64;
                return Ok(Some(n));
            }
            // Security protocols know that the peer has sent everything. Otherwise the system
            // reports it by an error: by this one for a connection whose other direction had ended
            // before it was reset.
            Remains::End { authenticated }
                if authenticated || in_order || error == ConnectionError::Net(ErrorKind::BrokenPipe.into()) =>
            {
                c.recv = c.recv.on_end_read();
                self.detach(conn);
                return Ok(Some(0));
            }
            Remains::Nothing => return Err(error),
            Remains::End { .. } => {}
            Remains::Failed(e) => {
                self.detach(conn);
                return Err(if in_order { e } else { error });
            }
        }
        self.detach(conn);
        Err(error)
    }

    /// Draws the consequences of what reading found. `had_room`: so that reading nothing means the
    /// end.
    #[inline(never)]
    pub(crate) fn after_read(&mut self, conn: Key, had_room: bool, result: Read) -> Read {
        let Some(c) = self.conns.get_mut(conn) else { return Err(ConnectionError::Closed) };
        match &result {
            Ok(Some(0)) if had_room => {
                c.recv = c.recv.on_end_read();
                if c.send.is_finished() {
                    self.both_ended(conn);
                }
            }
            Ok(Some(n)) => {
                c.bytes_received += *n as u64;
                c.note_received(*n);
            }
            Err(ConnectionError::StreamReset(code)) => {
                c.recv = c.recv.on_reset(*code);
                // Abandoned in both directions, the connection is over.
                if c.send.is_over_for_peer() && c.is_open() {
                    self.fail_connection(conn, ConnectionError::StreamReset(*code));
                }
            }
            Err(e) if e.ends_connection() && c.is_open() => {
                let error = e.clone();
                self.fail_connection(conn, error);
            }
            _ => {}
        }
        result
    }

    /// Takes the next message, or the next part of one of at most `max` bytes.
    ///
    /// # Errors
    /// Why the connection is over.
    pub fn receive(&mut self, conn: ConnectionId, max: usize) -> Result<ReceiveOutcome, ConnectionError> {
        self.own()?;
        let key = conn.0;
        let Some(c) = self.conns.get(key) else { return Err(ConnectionError::Closed) };
        if c.state == ConnectionState::Establishing {
            return Ok(ReceiveOutcome::Blocked);
        }
        if !c.request.may_receive {
            return Err(ConnectionError::Unsupported(SEND_ONLY));
        }
        let passive = c.passive;
        let mut outcome = if c.stack.is_some_and(|s| !s.is_stream()) {
            self.receive_datagram(key)
        } else if c.framed() {
            self.receive_framed(key)
        } else if c.flow.has_messages() {
            self.receive_message(key)
        } else {
            self.receive_raw(key, max)
        };
        let early = passive && self.is_early(key);
        if let (Ok(ReceiveOutcome::Received(r)), Some(c)) = (&mut outcome, self.conns.get_mut(key)) {
            r.early = early;
            if c.framed() || c.stack.is_some_and(|s| !s.is_stream()) {
                c.messages_received = c.messages_received.saturating_add(u32::from(r.end_of_message));
            }
            if c.stack.is_some_and(|s| !s.is_stream()) {
                c.bytes_received += r.data.len() as u64;
            }
        }
        outcome
    }

    /// Takes the next message of a transport that has messages, or the next part of a long one.
    pub(crate) fn receive_message(&mut self, key: Key) -> Result<ReceiveOutcome, ConnectionError> {
        let Some(c) = self.conns.get_mut(key) else { return Err(ConnectionError::Closed) };
        if !c.recv.may_read() {
            return Ok(ReceiveOutcome::End);
        }
        if let Some(received) = self.carriers.receive(&self.cx, c.flow) {
            c.bytes_received += received.data.len() as u64;
            c.messages_received = c.messages_received.saturating_add(u32::from(received.end_of_message));
            return Ok(ReceiveOutcome::Received(received));
        }
        let read = self.carriers.nothing_to_read(c.flow);
        match self.after_read(key, true, read)? {
            None => Ok(ReceiveOutcome::Blocked),
            Some(_) => Ok(ReceiveOutcome::End),
        }
    }

    pub(crate) fn receive_raw(&mut self, key: Key, max: usize) -> Result<ReceiveOutcome, ConnectionError> {
        if self.conns.get(key).is_some_and(|c| !c.recv.may_read()) {
            return Ok(ReceiveOutcome::End);
        }
        let mut scratch = core::mem::take(&mut self.cx.scratch);
        scratch.resize(CHUNK, 0);
        let want = max.clamp(1, CHUNK);
        let read = self.read_transport(key, &mut scratch[..want]);
        let outcome = read.map(|r| match r {
            None => ReceiveOutcome::Blocked,
            // The end of the one message that all bytes were.
            Some(0) => ReceiveOutcome::Received(Received {
                data: Bytes::new(),
                end_of_message: true,
                is_final: true,
                ecn: None,
                early: false,
                stream: None,
                ppid: None,
                message: None,
            }),
            Some(n) => ReceiveOutcome::Received(Received {
                data: Bytes::copy_from_slice(&scratch[..n]),
                end_of_message: false,
                is_final: false,
                ecn: None,
                early: false,
                stream: None,
                ppid: None,
                message: None,
            }),
        });
        self.cx.scratch = scratch;
        outcome
    }

    pub(crate) fn receive_framed(&mut self, key: Key) -> Result<ReceiveOutcome, ConnectionError> {
        // After the last event of a connection no task is woken again, and no more data arrives.
        let closed = self.conns.get(key).is_some_and(|c| c.state == ConnectionState::Closed);
        for _ in 0..if closed { 64 * ROUNDS } else { ROUNDS } {
            let Some(c) = self.conns.get_mut(key) else { return Err(ConnectionError::Closed) };
            let ended = !c.recv.may_read();
            if let Some(d) = c.cold().receiver.take() {
                let is_final = ended && c.cold().receiver.finished();
                return Ok(ReceiveOutcome::Received(Received {
                    data: d.data,
                    end_of_message: d.end_of_message,
                    is_final,
                    ecn: None,
                    early: false,
                    stream: None,
                    ppid: None,
                    message: None,
                }));
            }
            // It has given up on what came behind the last message, and is not asked again.
            if let Some(failure) = c.cold().receiver.failure() {
                return Err(ConnectionError::Framer(failure.0.clone()));
            }
            if !c.recv.may_read() && c.cold().receiver.finished() {
                return Ok(ReceiveOutcome::End);
            }
            let mut scratch = core::mem::take(&mut self.cx.scratch);
            scratch.resize(CHUNK, 0);
            let read = self.read_transport(key, &mut scratch);
            if let (Ok(Some(n)), Some(c)) = (&read, self.conns.get_mut(key)) {
                c.cold().receiver.buffer().extend_from_slice(&scratch[..*n]);
            }
            self.cx.scratch = scratch;
            match read? {
                None => return Ok(ReceiveOutcome::Blocked),
                Some(n) => {
                    let run = self.run_framer(key, n == 0);
                    // What was whole before the framer gave up is the program's, and comes first.
                    if let Err(e) = run
                        && !self.conns.get_mut(key).is_some_and(|c| c.cold().receiver.has_delivered())
                    {
                        return Err(e);
                    }
                }
            }
        }
        // There is more to read: come back without waiting for readiness.
        self.notify(key, crate::Event::Readable);
        self.cx.again = true;
        Ok(ReceiveOutcome::Blocked)
    }

    pub(crate) fn run_framer(&mut self, key: Key, ended: bool) -> Result<(), ConnectionError> {
        let mut out = Outbound::default();
        let Some(c) = self.conns.get_mut(key) else { return Err(ConnectionError::Closed) };
        let ColdState { framer, receiver, .. } = c.cold();
        let Some(framer) = framer else { return Ok(()) };
        if let Err(e) = receiver.run(framer.as_mut(), ended, &mut out) {
            self.spend_data(key, out.pieces);
            let error = ConnectionError::Framer(e.0);
            self.note_bad_framing(key, &error);
            self.fail_connection(key, error.clone());
            return Err(error);
        }
        self.say_for_framer(key, out);
        Ok(())
    }

    /// Sends the unsolicited output of a framer. After our end nothing can be sent any more.
    pub(crate) fn say_for_framer(&mut self, key: Key, out: Outbound) {
        if out.pieces.is_empty() {
            return;
        }
        if self.conns.get(key).is_some_and(|c| c.is_open() && !c.send.is_finished()) {
            self.queue_front(key, out);
            self.flush_and_report(key);
        } else {
            self.spend_data(key, out.pieces);
        }
    }

    /// This is not needed any more. It may be the program's own, whose destructor must not run
    /// here.
    pub(crate) fn spend_data(&mut self, key: Key, data: Vec<Bytes>) {
        for data in data {
            self.notices.spend(ConnectionId(key), |s| s.keep(data));
        }
    }

    /// Lets a framer find the messages of a datagram. Any host can send a datagram that makes no
    /// sense: it is dropped, and the connection goes on.
    pub(crate) fn frame_datagram(&mut self, key: Key, data: &[u8], ecn: Ecn) {
        let mut out = Outbound::default();
        let Some(c) = self.conns.get_mut(key) else { return };
        let ColdState { framer, receiver, framed_ecn, .. } = c.cold();
        let Some(framer) = framer else { return };
        *framed_ecn = ecn;
        let mut cut = Vec::new();
        if !receiver.run_datagram(framer.as_mut(), data, &mut out, &mut cut) {
            c.dropped = c.dropped.saturating_add(1);
        }
        self.spend_data(key, cut);
        self.say_for_framer(key, out);
    }

    pub(crate) fn receive_datagram(&mut self, key: Key) -> Result<ReceiveOutcome, ConnectionError> {
        for _ in 0..ROUNDS {
            let Some(c) = self.conns.get_mut(key) else { return Err(ConnectionError::Closed) };
            let (flow, framed) = (c.flow, c.framed());
            if framed
                && let Some(cold) = &mut *c.cold
                && let Some(d) = cold.receiver.take()
            {
                return Ok(ReceiveOutcome::Received(Received {
                    data: d.data,
                    end_of_message: d.end_of_message,
                    is_final: false,
                    ecn: Some(cold.framed_ecn),
                    early: false,
                    stream: None,
                    ppid: None,
                    message: None,
                }));
            }
            if let Some((data, ecn)) = take_queued(c, &mut self.cx.kept) {
                if framed {
                    self.frame_datagram(key, &data, ecn);
                    continue;
                }
                let received = Received {
                    data,
                    end_of_message: true,
                    is_final: false,
                    ecn: Some(ecn),
                    early: false,
                    stream: None,
                    ppid: None,
                    message: None,
                };
                return Ok(ReceiveOutcome::Received(received));
            }
            if !c.recv.may_read() && c.state != ConnectionState::Closed {
                return Ok(ReceiveOutcome::End);
            }
            match self.carriers.datagram_source(flow) {
                DatagramSource::Socket(k) => {
                    if !self.fill_datagrams(key, k)? {
                        return Ok(ReceiveOutcome::Blocked);
                    }
                }
                DatagramSource::Pushed => return Ok(ReceiveOutcome::Blocked),
                DatagramSource::Lost(_) if self.has_ended_well(key) => return Ok(ReceiveOutcome::End),
                DatagramSource::Lost(e) => return Err(e),
                DatagramSource::Gone => return Err(closed(self.conns.get(key).and_then(|c| c.error()))),
            }
        }
        self.notify(key, crate::Event::Readable);
        self.cx.again = true;
        Ok(ReceiveOutcome::Blocked)
    }

    /// Whether a connection over a transport that is lost was closed by the peer in order.
    pub(crate) fn has_ended_well(&self, key: Key) -> bool {
        self.conns.get(key).is_some_and(|c| c.state == ConnectionState::Closed && c.error().is_none())
    }

    /// Takes datagrams from a connection's own socket to its queue. True if there were any.
    pub(crate) fn fill_datagrams(&mut self, conn: Key, channel: Key) -> Result<bool, ConnectionError> {
        let (got, missing) = self.read_datagrams(conn, channel)?;
        if let Some(e) = missing {
            let error = ConnectionError::Net(e);
            self.fail_connection(conn, error.clone());
            return Err(error);
        }
        Ok(got)
    }

    /// The same, with the error that shows that the peer is not there, if there was one.
    pub(crate) fn read_datagrams(
        &mut self,
        conn: Key,
        channel: Key,
    ) -> Result<(bool, Option<NetError>), ConnectionError> {
        let Some(ch) = self.carriers.sockets.channels.get(channel) else { return Err(ConnectionError::Closed) };
        if !ch.readable {
            return Ok((false, None));
        }
        let mut batch = self.cx.batch.take().unwrap_or_default();
        let mut got = false;
        // ICMP errors come between datagrams; each is worth one more try.
        let mut drained = false;
        let mut missing = None;
        for _ in 0..ROUNDS {
            match self.carriers.sockets.receive_batch(&mut self.cx, channel, &mut batch) {
                Batch::Filled { drained: all } => {
                    each_datagram(&mut batch, |d| got |= self.queue_datagram(conn, d));
                    drained = all;
                    break;
                }
                Batch::Empty => {
                    drained = true;
                    break;
                }
                // ICMP gives a soft error on a connectionless transport (RFC 9623 section 10.3).
                Batch::Error(e) => {
                    if self.conns.get(conn).is_some_and(|c| c.request.soft_errors)
                        && let Some(icmp) = self.carriers.sockets.take_icmp_error(&mut self.cx, channel)
                    {
                        self.notify(conn, crate::Event::SoftError(icmp));
                    }
                    // The system reports it before what has arrived, which may be the peer's answer
                    // to an earlier datagram.
                    if self.is_peer_missing(conn, e) {
                        missing = Some(e);
                    }
                }
            }
        }
        self.cx.batch = Some(batch);
        let missing = missing.filter(|_| self.is_unanswered(conn));
        if missing.is_none() && !got && !drained {
            // Nothing but errors, and more of them.
            self.come_back_to(conn);
        }
        Ok((got, missing))
    }

    /// Whether an ICMP error that sending has met is the end of a connection without a handshake.
    /// What the peer has sent before is looked at first.
    pub(crate) fn is_peer_missing_for_sender(&mut self, conn: Key, error: NetError) -> bool {
        if !self.is_peer_missing(conn, error) {
            return false;
        }
        let Some(flow) = self.conns.get(conn).map(|c| c.flow) else { return true };
        let Some(channel) = flow.own_socket() else { return true };
        self.carriers.expect_data(flow);
        if self.read_datagrams(conn, channel).is_ok_and(|(got, _)| got) {
            // The reader has not been notified of it.
            self.come_back_to(conn);
        }
        self.is_unanswered(conn)
    }

    /// Whether this is a connection without a handshake whose peer has sent nothing yet, and may.
    /// One that only sends is never answered, and its receiver may be away for a while.
    pub(crate) fn is_unanswered(&self, conn: Key) -> bool {
        self.conns.get(conn).is_some_and(|c| {
            // Also of data that the program did not want.
            let heard = c.cold.as_ref().is_some_and(|e| e.last_activity > neater_base::Instant::ZERO);
            c.stack.is_some_and(|s| !s.has_handshake()) && !c.passive && c.request.may_receive && !heard
        })
    }

    /// Whether an ICMP error is the end of a connection without a handshake. What stands for one is
    /// the first datagram that comes back: until then an unreachable peer is one that is not there.
    /// After that, errors pass (RFC 1122 section 4.2.3.9 has TCP bear them, too).
    pub(crate) fn is_peer_missing(&self, conn: Key, error: NetError) -> bool {
        let soft = self.conns.get(conn).is_none_or(|c| c.request.soft_errors);
        let hard = match error.kind {
            ErrorKind::ConnectionRefused => true,
            // Without being asked the system reports those that do not pass. Where the program has
            // asked for soft errors, it reports all.
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::PermissionDenied => !soft,
            _ => false,
        };
        hard && self.is_unanswered(conn)
    }
}

const SEND_ONLY: &str = "this connection was opened for sending only (direction: Unidirectional send)";

fn closed(error: Option<&ConnectionError>) -> ConnectionError {
    error.cloned().unwrap_or(ConnectionError::Closed)
}
