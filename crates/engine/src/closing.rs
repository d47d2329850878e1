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
//! before what was sent is acknowledged is an error, never [`Event::Closed`]; a peer that never stops
//! sending costs no more than [`LINGER_READS`] reads of a turn, and its socket goes when the time is over.

use crate::Engine;
use crate::carrier::FlowId;
use crate::carrier::channel::{Behind, Channel, Kind};
use crate::conn::ConnectionState;
use crate::engine::LINGER;
use crate::event::{ConnectionError, Event};
use crate::terminate::{ABORTED, NO_CODE};
use crate::timer::Timer;
use crate::transport::tls_out;
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};
use neater_quic::{ConnectionApi, StreamId};

/// How soon after the closing has begun it is first asked how far it is.
const FIRST_CHECK: Duration = Duration::from_millis(2);
/// How much later it is asked again at most.
const CHECKS_APART: Duration = Duration::from_secs(1);
/// How long a peer that answers may take nothing of what is to be delivered before its connection
/// is closed. A reader that is slow seems to stand still, too: its kernel reports room when a good
/// part of its buffer is free (RFC 9293 section 3.8.6.2.2), which at 3 kB/s takes minutes.
const STANDSTILL: Duration = Duration::from_secs(300);
/// An answer of the peer is news if it came so much later than the last progress: systems state its
/// age coarsely.
const COARSE: Duration = Duration::from_millis(100);
/// For how long a lack of descriptors is taken to last.
const SHORTAGE: Duration = Duration::from_secs(2);
/// Reads of a lingering socket in one turn.
const LINGER_READS: usize = 64;

/// How far the closing of a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    since: Instant,
    /// When there was progress last.
    moved: Instant,
    /// What [`Engine::mark_of_closing`] was then.
    mark: u64,
    /// How many packets of an association had come by then.
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
        let (mark, packets) = (self.mark_of_closing(conn), self.packets_of_closing(conn));
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
        if let Some(FlowId::Channel(key)) = self.conns.get(conn).map(|c| c.flow) {
            self.check_delivered(key);
        }
        if let Some(FlowId::Datagrams { .. }) = self.conns.get(conn).map(|c| c.flow) {
            self.advance_close(conn);
        }
        self.both_ended(conn);
        let (mark, packets) = (self.mark_of_closing(conn), self.packets_of_closing(conn));
        let unanswered = self.unanswered_of_closing(conn);
        // Nobody is told here when it is over: the timer is the last to know.
        let Some(c) = self.closings.get_mut(&conn) else { return };
        // A connection that both sides have ended and nobody has closed waits as long as the system does.
        if mark != c.mark || self.conns.get(conn).is_some_and(|c| c.is_open()) {
            (c.mark, c.moved, c.packets) = (mark, self.cx.now, packets);
        }
        c.asked = unanswered.filter(|n| *n > 0).map(|_| c.asked.unwrap_or(self.cx.now));
        let c = *c;
        let answers = unanswered == Some(0) || self.answers_since(conn, &c, packets);
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

    /// How often the system has asked the peer of a closing connection without an answer so far;
    /// `None` where another transport carries it, or the system does not report it.
    fn unanswered_of_closing(&self, conn: Key) -> Option<u32> {
        let Some(FlowId::Channel(key)) = self.conns.get(conn).map(|c| c.flow) else { return None };
        self.cx.net.stream_info(self.carriers.channels.get(key)?.sock).ok()?.unanswered
    }

    /// Whether the peer of a closing connection has answered since the last progress, if only to
    /// report that it has no room.
    fn answers_since(&self, conn: Key, closing: &Closing, packets: u64) -> bool {
        match self.conns.get(conn).map(|c| c.flow) {
            Some(FlowId::Channel(key)) => {
                let info = self.carriers.channels.get(key).and_then(|ch| self.cx.net.stream_info(ch.sock).ok());
                let ago = info.and_then(|i| i.last_heard);
                ago.is_some_and(|ago| ago + COARSE < self.cx.now.saturating_since(closing.moved))
            }
            Some(FlowId::Stream { quic, .. }) => {
                self.carriers.quic.connections.get(quic).is_some_and(|q| q.last_heard() > closing.moved + COARSE)
            }
            Some(FlowId::Sctp { .. }) => packets > closing.packets,
            _ => false,
        }
    }

    /// TCP and SCTP ask a peer without room again and again. QUIC does not, and its idle timeout
    /// would end the session of a reader that has paused.
    fn ask_peer_of_closing(&mut self, conn: Key, closing: &Closing) {
        let Some(c) = self.conns.get(conn) else { return };
        let FlowId::Stream { quic, stream } = c.flow else { return };
        // What the session has taken, a peer that is there acknowledges.
        if c.tx.bytes == 0 {
            return;
        }
        let unwanted = c.state == ConnectionState::Closing && !c.read_closed;
        let now = self.cx.now;
        let Some(q) = self.carriers.quic.connections.get_mut(quic).filter(|q| q.connected && q.lost.is_none()) else {
            return;
        };
        let stands_still = now.saturating_since(closing.moved) >= LINGER / 2;
        if stands_still && unwanted {
            // The peer may be closing, too, and wait for us to read.
            q.conn.stop(stream, NO_CODE);
        }
        let silent = now.saturating_since(q.last_heard()) >= LINGER / 2;
        if silent {
            q.conn.ping();
        }
        if silent || stands_still {
            self.mark_dirty(quic);
        }
    }

    /// How many packets an association has received; 0 where another transport carries the
    /// connection.
    fn packets_of_closing(&self, conn: Key) -> u64 {
        match self.conns.get(conn).map(|c| c.flow) {
            Some(FlowId::Sctp { sctp, .. }) => self.sctp_packets_received(sctp),
            _ => 0,
        }
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

    /// A number that changes while the closing of a connection makes progress, and stands still while it does not.
    fn mark_of_closing(&mut self, conn: Key) -> u64 {
        let Some(c) = self.conns.get(conn) else { return 0 };
        let queued = c.tx.bytes as u64;
        match c.flow {
            // What the engine hands to the system moves from one term to the other.
            FlowId::Channel(key) => {
                let info = self.carriers.channels.get(key).and_then(|ch| self.cx.net.stream_info(ch.sock).ok());
                queued + info.map_or(0, |i| i.in_flight.unwrap_or(0) + i.unsent.unwrap_or(0))
            }
            // The session takes no more than the peer has room for: what it has taken arrives as long as the path carries
            // anything. Before that, only what it takes counts.
            FlowId::Stream { quic, .. } if queued == 0 => {
                self.carriers.quic.connections.get(quic).map_or(0, |q| q.conn.acknowledged())
            }
            FlowId::Datagrams { quic } => {
                queued + self.carriers.quic.connections.get_mut(quic).map_or(0, |q| q.conn.queued_datagrams() as u64)
            }
            FlowId::Sctp { sctp, .. } if queued == 0 => self.sctp_acknowledged(sctp),
            _ => queued,
        }
    }

    /// What was sent is not taken, or not acknowledged, and has not been for as long as we wait.
    fn give_up_closing(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let group = c.group;
        match c.flow {
            FlowId::Channel(key) => {
                let unwritten = !c.tx.is_empty() || !c.fin_done;
                if let Some(ch) = self.carriers.channels.remove(key) {
                    // The peer must not take a part for the whole. What the system has all of it may still deliver.
                    if unwritten { self.cx.net.abort(ch.sock) } else { self.cx.net.close(ch.sock) }
                }
            }
            FlowId::Stream { quic, stream } => {
                c.fin_done = true;
                if let Some(q) = self.carriers.quic.connections.get_mut(quic) {
                    q.conn.reset(stream, ABORTED);
                }
                self.mark_dirty(quic);
                // If it is the last of its session, the session does not end in order either.
                if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                    g.abort_code = Some(ABORTED);
                }
            }
            FlowId::Sctp { sctp, stream } => {
                c.fin_done = true;
                if self.carriers.sctp.associations.get(sctp).is_some_and(|a| a.mux) {
                    self.sctp_reset(sctp, stream, ABORTED);
                } else {
                    // Its association is being shut down, which a peer with a closed window can make last for ever.
                    self.sctp_close(sctp, Some(ABORTED));
                }
                if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
                    g.abort_code = Some(ABORTED);
                }
            }
            _ => {}
        }
        self.fail_connection(conn, ConnectionError::TimedOut);
        if let Some(g) = group.and_then(|g| self.groups.get_mut(g)) {
            g.abort_code = None;
        }
    }

    /// The peer does not want more of this stream.
    pub(crate) fn stream_stopped(&mut self, conn: Key, quic: Key, stream: StreamId, code: u64) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.is_greeting() {
            return self.greeting_failed(conn, &ConnectionError::StreamReset(code));
        }
        let Some(q) = self.carriers.quic.connections.get_mut(quic) else { return };
        c.stopped = true;
        if c.fin_done && code == NO_CODE && !c.reset {
            // Everything is on its way, the end included: the acknowledgement will tell what has become of it (RFC 9000
            // section 3.5 lets us wait for it).
            return;
        }
        // A peer that closes in order has what it has acknowledged.
        let delivered = code == NO_CODE && c.tx.is_empty() && !q.conn.has_unacknowledged(stream);
        q.conn.reset(stream, code);
        self.mark_dirty(quic);
        self.given_up_by_peer(conn, delivered, code);
    }

    /// Nothing more can be sent on a stream: the peer has said so, with this code, and has everything or not.
    pub(crate) fn given_up_by_peer(&mut self, conn: Key, delivered: bool, code: u64) {
        let error = ConnectionError::StreamReset(code);
        let Some(c) = self.conns.get_mut(conn) else { return };
        (c.final_sent, c.fin_done, c.fin_acked) = (true, true, delivered);
        if c.state == ConnectionState::Closing && delivered {
            return self.finish_close(conn);
        }
        if c.state == ConnectionState::Closing || c.reset {
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
        let Some(c) = self.conns.get_mut(conn).filter(|c| c.is_open() && (c.stopped || c.fin_acked)) else { return };
        let FlowId::Stream { quic, stream } = c.flow else { return };
        // The transport forgets a reset that was read.
        let read = c.ext.as_ref().filter(|_| c.reset).map(|e| e.reset_code);
        let code =
            read.or_else(|| self.carriers.quic.connections.get_mut(quic).and_then(|q| q.conn.received_reset(stream)));
        if let Some(code) = code {
            c.reset = true;
            self.fail_connection(conn, ConnectionError::StreamReset(code));
        }
    }

    /// A connection that both sides have ended is over when the peer has what was sent. What it has sent can still be read.
    pub(crate) fn both_ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn).filter(|c| c.is_open() && c.fin_done && c.tx.is_empty()) else { return };
        // Also where the peer has no direction, or this side, or the program wants no more. A peer that gives streams of SCTP no meaning
        // is not told that it may be silent: there the association's end is the only one.
        let told = match c.flow {
            FlowId::Sctp { sctp, .. } => self.carriers.sctp.associations.get(sctp).is_some_and(|a| a.mux),
            _ => true,
        };
        let nothing_comes = c.peer_ended || c.read_closed && told;
        let nothing_goes = c.fin_acked || c.one_way;
        match c.flow {
            FlowId::Stream { .. } | FlowId::Sctp { .. } if nothing_comes && c.given_up() => {
                if let Some(error) = c.refusal() {
                    self.fail_connection(conn, error);
                }
            }
            FlowId::Stream { .. } | FlowId::Sctp { .. } if nothing_comes && nothing_goes && c.request.may_receive => {
                self.ended(conn);
            }
            FlowId::Channel(key) => {
                let hangup =
                    self.carriers.channels.get(key).is_some_and(|ch| ch.hangup && !matches!(ch.kind, Kind::Udp));
                if !c.peer_ended && !hangup {
                    return;
                }
                match self.delivered(key, true) {
                    Delivery::Done => self.ended(conn),
                    Delivery::Failed(error) => self.break_connection(conn, error),
                    Delivery::Open if !self.closings.contains_key(&conn) => self.watch(conn),
                    Delivery::Open => {}
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let unread = !c.read_closed;
        // The program may still open others beside it, or end their session with a code of its own: as long as it has this one.
        let shared = matches!(c.flow, FlowId::Stream { .. });
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

    /// Ends the socket of a closing connection, whose queue is empty.
    pub(crate) fn close_channel(&mut self, conn: Key, key: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let (untouched, peer_ended) = (c.bytes_sent == 0 && c.bytes_received == 0, c.peer_ended);
        let Some(ch) = self.carriers.channels.get(key) else { return self.finish_close(conn) };
        if ch.behind != Behind::Conn(conn) {
            // It lingers already.
            return;
        }
        let plain = match &ch.kind {
            Kind::Tls(tls) => tls.wants_write(),
            Kind::Tcp if untouched => return self.drop_channel(conn, key),
            Kind::Tcp => false,
            _ => return self.drop_channel(conn, key),
        };
        // Both sides have said everything, and the peer has it: our end goes with the socket.
        let over = peer_ended && !plain && self.delivered(key, true) == Delivery::Done;
        let Some(ch) = self.carriers.channels.get_mut(key) else { return };
        if let Kind::Tls(tls) = &mut ch.kind {
            tls.close_notify();
            let queued = tls.close_notify_queued();
            match tls_out(&mut self.cx.net, ch) {
                Ok(true) if queued => {}
                // Writability will bring us back; or the end of the handshake.
                Ok(_) => return,
                Err(_) if over => {}
                Err(e) => return self.fail_connection(conn, ConnectionError::Net(e)),
            }
        }
        if over {
            return self.drop_channel(conn, key);
        }
        let Some(c) = self.conns.get_mut(conn) else { return };
        if !core::mem::replace(&mut c.fin_done, true)
            && let Some(ch) = self.carriers.channels.get(key)
            && let Err(e) = self.cx.net.shutdown_write(ch.sock)
        {
            return self.fail_connection(conn, ConnectionError::Net(e));
        }
        // Closing a socket with unread data would reset the connection and destroy what the peer has not read yet (RFC 1122
        // section 4.2.2.13).
        let until = self.cx.now + LINGER;
        if let Some(ch) = self.carriers.channels.get_mut(key) {
            ch.behind = Behind::Lingering { until, conn: Some(conn) };
        }
        self.linger(key);
        self.check_delivered(key);
    }

    fn drop_channel(&mut self, conn: Key, key: Key) {
        if let Some(ch) = self.carriers.channels.remove(key) {
            self.cx.net.close(ch.sock);
        }
        self.finish_close(conn);
    }

    /// Throws away what a peer sends to a connection that is closing and still has something to
    /// send: a peer that is closing, too, would wait for that, and this side for the peer.
    pub(crate) fn discard_incoming(&mut self, conn: Key, key: Key) {
        let closes = self.conns.get(conn).is_some_and(|c| c.state == ConnectionState::Closing);
        // A handshake still needs what comes.
        let fits = |ch: &Channel| match &ch.kind {
            Kind::Tcp => ch.behind == Behind::Conn(conn),
            Kind::Tls(tls) => ch.behind == Behind::Conn(conn) && !tls.is_handshaking(),
            _ => false,
        };
        if closes && self.carriers.channels.get(key).is_some_and(fits) {
            self.linger(key);
        }
    }

    /// Throws away what a peer still sends, until it ends its direction: so much in a turn.
    pub(crate) fn linger(&mut self, key: Key) {
        let Some(ch) = self.carriers.channels.get_mut(key) else { return };
        let (conn, lingers) = match ch.behind {
            Behind::Lingering { conn, .. } => (conn, true),
            Behind::Conn(conn) => (Some(conn), false),
            _ => return,
        };
        let mut scratch = core::mem::take(&mut self.cx.scratch);
        scratch.resize(64 << 10, 0);
        // `None`: there is more.
        let mut end = None;
        for _ in 0..LINGER_READS {
            match ch.read(&mut self.cx.net, &mut scratch) {
                Ok(0) => end = Some(Ok(true)),
                Ok(_) => continue,
                Err(e) if e.is_would_block() => end = Some(Ok(false)),
                Err(e) => end = Some(Err(e)),
            }
            break;
        }
        self.cx.scratch = scratch;
        match (end, conn) {
            (None, _) => {
                self.carriers.pending_lingers.push(key);
                self.cx.again = true;
            }
            (Some(Ok(false)), _) => {}
            // Writing meets it, too, if it concerns what is to be delivered.
            (Some(Err(_)), _) if !lingers => {}
            // What was sent may still be on its way, though the peer has nothing more to say.
            (Some(Ok(true)), Some(conn)) => {
                if let Some(c) = self.conns.get_mut(conn) {
                    c.peer_ended = true;
                }
                self.check_delivered(key);
            }
            (Some(end), conn) => {
                if let Some(ch) = self.carriers.channels.remove(key) {
                    self.cx.net.close(ch.sock);
                }
                // What was sent may not have arrived.
                if let (Err(e), Some(conn)) = (end, conn) {
                    self.fail_connection(conn, ConnectionError::Net(e));
                }
            }
        }
    }

    /// Whether the peer has acknowledged everything that was given to a channel's socket.
    /// `ended`: the peer has ended its direction, which has to do where the system does not tell.
    fn delivered(&mut self, key: Key, ended: bool) -> Delivery {
        let Some(ch) = self.carriers.channels.get(key) else { return Delivery::Open };
        match self.cx.net.stream_info(ch.sock) {
            Ok(i) if i.in_flight.unwrap_or(u64::from(!ended)) + i.unsent.unwrap_or(0) == 0 => Delivery::Done,
            Ok(_) => Delivery::Open,
            // The system has done with the connection: in order, or there is an error.
            Err(_) => match self.cx.net.take_error(ch.sock) {
                None => Delivery::Done,
                Some(e) => Delivery::Failed(ConnectionError::Net(e)),
            },
        }
    }

    /// A connection is closed when its peer has everything; its socket may linger for the peer's end a little longer.
    fn check_delivered(&mut self, key: Key) {
        let Some(ch) = self.carriers.channels.get(key) else { return };
        let Behind::Lingering { conn: Some(conn), .. } = ch.behind else { return };
        let ended = self.conns.get(conn).is_none_or(|c| c.peer_ended);
        match self.delivered(key, ended) {
            Delivery::Open => {}
            Delivery::Done => {
                if ended {
                    return self.drop_channel(conn, key);
                }
                // From the delivery on: a socket that is closed resets a peer that sends, and what
                // that has not read yet may go with it.
                let until = self.cx.now + LINGER;
                if let Some(ch) = self.carriers.channels.get_mut(key) {
                    ch.behind = Behind::Lingering { until, conn: None };
                }
                self.cx.timers.push(until, crate::carrier::dispatch::CarrierTimer::channel(key));
                self.finish_close(conn);
            }
            Delivery::Failed(error) => {
                if let Some(ch) = self.carriers.channels.remove(key) {
                    self.cx.net.close(ch.sock);
                }
                self.fail_connection(conn, error);
            }
        }
    }

    /// The time is over in which a socket may wait for its peer's end.
    pub(crate) fn lingered(&mut self, key: Key) {
        // Before what was sent is delivered, it is the connection's time that counts.
        if let Some(ch) = self.carriers.channels.get(key)
            && let Behind::Lingering { until, conn: None } = ch.behind
            && until <= self.cx.now
            && let Some(ch) = self.carriers.channels.remove(key)
        {
            self.cx.net.close(ch.sock);
        }
    }
}

/// See [`Engine::delivered`].
#[derive(Clone, Debug, PartialEq)]
enum Delivery {
    /// Not yet, as far as is known.
    Open,
    Done,
    Failed(ConnectionError),
}
