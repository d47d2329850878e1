//! TCP at the level of segments (RFC 9293), as a machine without a network.
//!
//! *Responsible for* one connection: handshake, data, acknowledgment, retransmission, congestion and flow control, the
//! end. *Not responsible for* ports, listeners, accept queues, routes or readiness: the host around it does that.
//! Left out: urgent data, timestamps, SACK, ECN, path MTU black hole detection.
//!
//! Key types: [`Conn`] is the machine; it is given segments, time and the application's calls and leaves segments in
//! [`Conn::take_output`]. `state.rs` is the diagram; `input.rs`, `output.rs` and `timer.rs` are what happens.
//!
//! *Invariants*: after every call, everything that may be sent is in the output; [`Conn::next_timeout`] is then exact.

mod congestion;
mod input;
mod output;
mod recv;
mod rtt;
mod segment;
mod send;
mod state;
mod synthetic;
#[cfg(test)]
mod tests;
mod timer;

pub(crate) use segment::{Segment, Seq};
pub(crate) use state::State;

use congestion::Congestion;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{ErrorKind, StreamInfo};
use recv::{RECEIVE_BUFFER, Recv};
use rtt::Rtt;
use send::{SEND_BUFFER, Send};
use state::Cause;
use std::collections::VecDeque;
use timer::Timers;

/// The segment size to assume when the peer states none (RFC 9293 section 3.7.1), for IPv4.
const DEFAULT_MSS: u32 = 536;
/// The least segment size that is believed.
const MIN_MSS: u32 = 88;

/// What an application can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) no_delay: bool,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) not_sent_low_water: Option<u32>,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
}

/// What a connection is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    /// Worth waking a writer for, which is less often than a write would succeed.
    pub(crate) writable: bool,
    pub(crate) error: bool,
    pub(crate) hangup: bool,
    /// Nothing more will be read or written.
    pub(crate) over: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    state: State,
    options: Options,
    snd: Send,
    rcv: Recv,
    cc: Congestion,
    rtt: Rtt,
    timers: Timers,
    /// Bytes of IP and TCP headers before the payload.
    overhead: u32,
    path_mtu: u32,
    /// What is told to the application once.
    error: Option<ErrorKind>,
    /// Why it never was established; stays.
    connect_error: Option<ErrorKind>,
    /// What a router said; becomes the error if the connection times out.
    soft_error: Option<ErrorKind>,
    established: bool,
    /// The application has let go.
    orphan: bool,
    output: VecDeque<Segment>,
    retransmits: u64,
    rate: Option<u64>,
}

impl Conn {
    fn new(now: Instant, state: State, iss: Seq, path_mtu: u32, ip_header: u32, options: Options) -> Self {
        let overhead = ip_header + segment::HEADER;
        let mss = u64::from(path_mtu.saturating_sub(overhead).max(MIN_MSS));
        let mut conn = Self {
            state,
            options,
            snd: Send::new(iss, mss, now),
            rcv: Recv::new(mss),
            cc: Congestion::new(mss, iss),
            rtt: Rtt::default(),
            timers: Timers::new(now),
            overhead,
            path_mtu,
            error: None,
            connect_error: None,
            soft_error: None,
            established: false,
            orphan: false,
            output: VecDeque::new(),
            retransmits: 0,
            rate: None,
        };
        conn.apply(options);
        conn
    }

    /// Starts a connection: the SYN is in the output. `path_mtu` and `ip_header` are in bytes.
    pub(crate) fn connect(now: Instant, iss: Seq, path_mtu: u32, ip_header: u32, options: Options) -> Self {
        let mut conn = Self::new(now, State::SynSent, iss, path_mtu, ip_header, options);
        conn.send_syn(now);
        conn
    }

    /// Answers a SYN: the SYN with ACK is in the output.
    pub(crate) fn accept(
        now: Instant,
        syn: &Segment,
        iss: Seq,
        path_mtu: u32,
        ip_header: u32,
        options: Options,
    ) -> Self {
        let mut conn = Self::new(now, State::SynReceived, iss, path_mtu, ip_header, options);
        conn.learn_syn(syn);
        conn.send_syn(now);
        conn
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The handshake was completed once.
    pub(crate) fn was_established(&self) -> bool {
        self.established
    }

    /// The next segment to put on the network.
    pub(crate) fn take_output(&mut self) -> Option<Segment> {
        self.output.pop_front()
    }

    /// Whether numbers of a quoted segment lie in what is outstanding (RFC 5927 section 4.1).
    pub(crate) fn is_outstanding(&self, seq: Seq) -> bool {
        self.snd.una <= seq && seq <= self.snd.max
    }

    /// The number that a reused connection must be above (RFC 9293 section 3.6.1).
    pub(crate) fn receive_next(&self) -> Seq {
        self.rcv.nxt
    }

    /// Takes options; they work from now on.
    pub(crate) fn apply(&mut self, options: Options) {
        self.options = options;
        self.snd.set_limit(options.send_buffer.unwrap_or(SEND_BUFFER));
        self.rcv.set_limit(options.receive_buffer.unwrap_or(RECEIVE_BUFFER));
    }

    /// As [`Conn::apply`], and sends what an option has held back.
    pub(crate) fn set_options(&mut self, now: Instant, options: Options) {
        self.apply(options);
        self.transmit(now);
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }

    /// How the attempt ended.
    pub(crate) fn connect_result(&mut self) -> Result<(), ErrorKind> {
        if let Some(error) = self.connect_error {
            return Err(error);
        }
        if self.state.is_opening() {
            return Err(ErrorKind::WouldBlock);
        }
        self.error.take().map_or(Ok(()), Err)
    }

    /// Why the connection is gone, if that was not told.
    pub(crate) fn take_error(&mut self) -> Option<ErrorKind> {
        self.error.take()
    }

    /// What the socket is ready for now.
    pub(crate) fn readiness(&self) -> Readiness {
        let closed = self.is_closed();
        let error = self.error.is_some() || self.connect_error.is_some();
        let hangup = closed || self.rcv.ended();
        let end = error || closed;
        let below = self.options.not_sent_low_water.is_none_or(|low| self.snd.unsent() < u64::from(low));
        Readiness {
            readable: end || self.rcv.available() > 0 || self.rcv.ended(),
            writable: end || self.snd.fin_queued || (self.state.may_write() && self.snd.half_free() && below),
            error,
            hangup,
            over: end || (self.snd.fin_queued && self.rcv.ended()),
        }
    }

    /// Reads; 0 is the end of the peer's direction, also after a reset has been reported once.
    pub(crate) fn read(&mut self, now: Instant, out: &mut [u8]) -> Result<usize, ErrorKind> {
        if self.rcv.available() > 0 {
            let n = self.rcv.read(out);
            self.transmit(now);
            return Ok(n);
        }
        if self.rcv.ended() {
            // The peer's direction was complete: a later reset concerns the other one.
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.connect_error.is_some() {
            return Err(ErrorKind::NotConnected);
        }
        if self.is_closed() { Ok(0) } else { Err(ErrorKind::WouldBlock) }
    }

    /// Buffers bytes to send and returns how many.
    pub(crate) fn write<'a>(
        &mut self,
        now: Instant,
        bufs: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<usize, ErrorKind> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.state.is_opening() {
            return Err(ErrorKind::WouldBlock);
        }
        if !self.state.may_write() {
            return Err(ErrorKind::BrokenPipe);
        }
        let mut room = match self.options.not_sent_low_water {
            // As in Linux: full once that much is unsent, and a write may go past the mark.
            Some(low) if self.snd.unsent() >= u64::from(low) => 0,
            _ => self.snd.space(),
        };
        let (mut written, mut offered) = (0, 0);
        for buf in bufs {
            offered += buf.len();
            let n = self.snd.push(&buf[..buf.len().min(room)]);
            written += n;
            room -= n;
        }
        if written == 0 && offered > 0 {
            return Err(ErrorKind::WouldBlock);
        }
        self.transmit(now);
        Ok(written)
    }

    /// Closes the sending direction after what was written.
    pub(crate) fn shutdown_write(&mut self, now: Instant) -> Result<(), ErrorKind> {
        if self.state == State::SynSent || self.is_closed() {
            return Err(ErrorKind::NotConnected);
        }
        if !self.snd.fin_queued {
            self.snd.fin_queued = true;
            self.state = self.state.after(Cause::Close);
            self.transmit(now);
        }
        Ok(())
    }

    /// The application lets go. What was written is still delivered, unless there is something it has not read: then the
    /// peer is told by a reset that it was lost (RFC 9293 section 3.6.1).
    pub(crate) fn close(&mut self, now: Instant) {
        self.orphan = true;
        if self.state == State::SynSent {
            self.end();
        } else if self.rcv.available() > 0 {
            self.abort();
        } else if !self.is_closed() {
            let _ = self.shutdown_write(now);
            self.linger_if_orphan(now);
        }
    }

    /// Ends at once, with a reset if the peer may know of the connection.
    pub(crate) fn abort(&mut self) {
        self.orphan = true;
        if !matches!(self.state, State::SynSent | State::Closed | State::TimeWait) {
            self.send_reset();
        }
        self.end();
    }

    /// A router or host reported an error (RFC 9293 section 3.9.2.2): fatal while connecting, advice afterwards.
    pub(crate) fn on_unreachable(&mut self, error: ErrorKind) {
        if self.state.is_opening() {
            self.fail(error);
        } else {
            self.soft_error = Some(error);
        }
    }

    /// A local send failed: not reported, but remembered as the reason if the connection times out.
    pub(crate) fn on_send_failure(&mut self, error: ErrorKind) {
        self.soft_error = Some(error);
    }

    /// The path carries no more than `mtu` bytes: sends smaller segments, again from the first unacknowledged byte.
    pub(crate) fn on_path_mtu(&mut self, now: Instant, mtu: u32) {
        if mtu >= self.path_mtu {
            return;
        }
        self.path_mtu = mtu;
        let mss = u64::from(mtu.saturating_sub(self.overhead).max(MIN_MSS));
        if mss < self.snd.mss {
            self.snd.mss = mss;
            self.cc.set_smss(mss);
            if self.state.may_transmit() {
                self.snd.nxt = self.snd.una;
                self.snd.forget_timing();
                self.transmit(now);
            }
        }
    }

    /// What is known of the connection.
    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            rtt: self.rtt.smoothed(),
            rtt_var: self.rtt.variation(),
            congestion_window: Some(self.cc.window()),
            retransmits: Some(self.retransmits),
            in_flight: Some(self.snd.flight()),
            unsent: Some(self.snd.unsent()),
            path_mtu: Some(self.path_mtu),
            delivery_rate: self.rate,
        }
    }

    /// Ends with an error.
    fn fail(&mut self, error: ErrorKind) {
        if self.established {
            self.error = Some(error);
        } else {
            self.connect_error = Some(error);
        }
        self.end();
    }

    fn end(&mut self) {
        self.state = State::Closed;
        self.timers.stop();
        self.rcv.ack_at = None;
        self.snd.clear();
    }

    /// Learns what a SYN says.
    fn learn_syn(&mut self, syn: &Segment) {
        self.rcv.start(syn.seq.plus(1));
        let peer = u64::from(syn.mss.unwrap_or(DEFAULT_MSS).max(MIN_MSS));
        if peer < self.snd.mss {
            self.snd.mss = peer;
            // Nothing was sent yet: the initial window is ten segments of the size that will be used.
            self.cc = Congestion::new(peer, self.snd.iss);
            self.rcv.set_mss(peer);
        }
    }
}
