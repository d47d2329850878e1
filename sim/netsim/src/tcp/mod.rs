//! TCP at the level of segments (RFC 9293), as a machine without a network.
//!
//! *Responsible for* one connection: handshake, data, acknowledgment, retransmission, congestion and flow control, the
//! end. *Not responsible for* ports, listeners, accept queues, routes or readiness: the host around it does that.
//! Left out: urgent data, path MTU black hole detection, fast open. Sequence numbers never wrap, so timestamps serve to
//! measure and to undo, not to protect (PAWS).
//!
//! Key types: [`Conn`] is the machine; it is given segments, time and the application's calls and leaves segments in
//! [`Conn::take_output`]. `state.rs` is the diagram of RFC 9293; `input.rs`, `output.rs` and `timer.rs` are what happens;
//! `recovery.rs` is the second diagram, of loss recovery, on the `scoreboard.rs`; [`TcpConfig`] has a switch for each
//! mechanism. The default is what Linux does, measured against it (`sim/netsim/calibration`).
//!
//! *Invariants*: after every call, everything that may be sent is in the output; [`Conn::next_timeout`] is then exact.

mod ack_policy;
mod config;
mod input;
mod output;
mod payload;
mod probe;
mod rack;
mod recovery;
mod recv;
mod rtt;
mod scoreboard;
mod segment;
mod send;
mod state;
#[cfg(test)]
mod tests;
mod timer;

pub use config::{BufferSize, DelayedAck, EcnMode, RtoFloor, TcpConfig, TcpController};
pub(crate) use payload::Payload;
pub use probe::{TcpPhase, TcpProbe};
pub(crate) use segment::{Segment, Seq};
pub(crate) use state::State;

use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{ErrorKind, StreamInfo};
use neater_cc::{Congestion, Pacer};
use probe::Counts;
use rack::Rack;
use recovery::Recovery;
use recv::Recv;
use rtt::Rtt;
use segment::Timestamps;
use send::Send;
use state::Cause;
use std::collections::VecDeque;
use timer::Timers;

/// The segment size to assume when the peer states none (RFC 9293 section 3.7.1), for IPv4.
const DEFAULT_MSS: u32 = 536;
/// The least segment size that is believed.
const MIN_MSS: u32 = 88;

/// What an application can set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Fixed when the connection begins, but for the buffers.
    pub(crate) tcp: TcpConfig,
    pub(crate) no_delay: bool,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) not_sent_low_water: Option<u32>,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
    /// Several paths are offered, and accepted.
    pub(crate) multipath: bool,
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

/// What the two sides have agreed on in their SYNs.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    sack: bool,
    timestamps: bool,
    ecn: bool,
    scale: bool,
    /// Several paths, and the peer's token.
    multipath: Option<u64>,
}

/// Explicit congestion notification of a connection that has agreed on it (RFC 3168 section 6.1).
#[derive(Clone, Copy, Debug, Default)]
struct EcnState {
    /// A mark has come, and the peer has not yet said that it knows.
    echo: bool,
    /// The next new data say that the window was reduced.
    reduced: bool,
}

/// How much of the window is used (Linux: `tcp_cwnd_validate`).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    limited: bool,
    most: u64,
    until: Seq,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    state: State,
    options: Options,
    agreed: Agreed,
    snd: Send,
    rcv: Recv,
    cc: Congestion,
    rtt: Rtt,
    rack: Rack,
    recovery: Recovery,
    timers: Timers,
    pacer: Pacer,
    usage: Usage,
    ecn: EcnState,
    /// The peer's timestamp to echo.
    recent: u32,
    /// Bytes of IP and TCP headers before the payload, options left out.
    overhead: u32,
    path_mtu: u32,
    /// What is told to the application once.
    error: Option<ErrorKind>,
    /// Why it never was established; stays.
    connect_error: Option<ErrorKind>,
    /// What a router said; becomes the error if the connection times out.
    soft_error: Option<ErrorKind>,
    established: bool,
    /// This side has opened it.
    active: bool,
    /// The application has let go.
    orphan: bool,
    output: VecDeque<Segment>,
    counts: Counts,
    rate: Option<u64>,
}

impl Conn {
    fn new(now: Instant, state: State, iss: Seq, path_mtu: u32, ip_header: u32, options: Options) -> Self {
        let overhead = ip_header + segment::HEADER;
        let mss = u64::from(path_mtu.saturating_sub(overhead).max(MIN_MSS));
        let tcp = &options.tcp;
        let mut conn = Self {
            state,
            options,
            agreed: Agreed { sack: false, timestamps: false, ecn: false, scale: false, multipath: None },
            active: false,
            snd: Send::new(iss, mss, tcp.send_buffer),
            rcv: Recv::new(mss, tcp),
            cc: Congestion::new(tcp.congestion, tcp.controller.make(), mss),
            rtt: Rtt::new(tcp.min_rto, tcp.rto_floor),
            rack: Rack::default(),
            recovery: Recovery::default(),
            timers: Timers::new(now),
            pacer: Pacer::new(),
            usage: Usage::default(),
            ecn: EcnState::default(),
            recent: 0,
            overhead,
            path_mtu,
            error: None,
            connect_error: None,
            soft_error: None,
            established: false,
            orphan: false,
            output: VecDeque::new(),
            counts: Counts::default(),
            rate: None,
        };
        conn.apply(options);
        conn
    }

    /// Starts a connection: the SYN is in the output. `path_mtu` and `ip_header` are in bytes.
    pub(crate) fn connect(now: Instant, iss: Seq, path_mtu: u32, ip_header: u32, options: Options) -> Self {
        let mut conn = Self::new(now, State::SynSent, iss, path_mtu, ip_header, options);
        conn.active = true;
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

    /// The number after the last that was ever sent.
    pub(crate) fn highest_sent(&self) -> Seq {
        self.snd.max
    }

    /// Takes options; they work from now on.
    pub(crate) fn apply(&mut self, options: Options) {
        self.options = options;
        self.snd.set_size(options.send_buffer.map_or(options.tcp.send_buffer, BufferSize::Fixed));
        self.rcv.set_size(options.receive_buffer.map_or(options.tcp.receive_buffer, BufferSize::Fixed));
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
        self.take(now, |rcv| rcv.read(now, out))
    }

    /// As [`Conn::read`], up to `n` bytes that nobody looks at.
    pub(crate) fn discard(&mut self, now: Instant, n: usize) -> Result<usize, ErrorKind> {
        self.take(now, |rcv| rcv.discard(now, n))
    }

    fn take(&mut self, now: Instant, take: impl FnOnce(&mut Recv) -> usize) -> Result<usize, ErrorKind> {
        if self.rcv.available() > 0 {
            let n = take(&mut self.rcv);
            if self.rcv.must_ack_now() {
                self.transmit(now);
            }
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

    /// How much may be written now; an error if nothing may ever be.
    fn writable(&mut self) -> Result<usize, ErrorKind> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.state.is_opening() {
            return Err(ErrorKind::WouldBlock);
        }
        if !self.state.may_write() {
            return Err(ErrorKind::BrokenPipe);
        }
        Ok(match self.options.not_sent_low_water {
            // As in Linux: full once that much is unsent, and a write may go past the mark.
            Some(low) if self.snd.unsent() >= u64::from(low) => 0,
            _ => self.snd.space(),
        })
    }

    /// Buffers bytes to send and returns how many.
    pub(crate) fn write<'a>(
        &mut self,
        now: Instant,
        bufs: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<usize, ErrorKind> {
        let mut room = self.writable()?;
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

    /// As [`Conn::write`], with up to `n` synthetic bytes: zeros that are not stored.
    pub(crate) fn write_zeros(&mut self, now: Instant, n: usize) -> Result<usize, ErrorKind> {
        let room = self.writable()?;
        let written = self.snd.push_zeros(n.min(room));
        if written == 0 && n > 0 {
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

    pub(crate) fn is_opening(&self) -> bool {
        self.state.is_opening()
    }

    /// A router or host reported an error (RFC 9293 section 3.9.2.2): fatal while connecting, advice afterwards. A socket that has
    /// `asked` for such errors returns it once, as Linux does (`IP_RECVERR`), although the connection goes on.
    pub(crate) fn on_unreachable(&mut self, error: ErrorKind, asked: bool) {
        if self.state.is_opening() {
            self.fail(error);
        } else if asked {
            self.error = Some(error);
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
        let mss = u64::from(mtu.saturating_sub(self.overhead + self.options_overhead()).max(MIN_MSS));
        if mss < self.snd.mss {
            self.snd.mss = mss;
            self.cc.set_mss(mss);
            if self.state.may_transmit() {
                // As in Linux (`tcp_simple_retransmit`): what was too large never arrived. That is no congestion.
                for index in self.snd.board.oversized(mss) {
                    self.snd.board.mark_lost(index);
                }
                self.transmit(now);
            }
        }
    }

    /// The smoothed round-trip time, once it was measured.
    pub(crate) fn smoothed_rtt(&self) -> Option<core::time::Duration> {
        self.rtt.smoothed()
    }

    /// What is known of the connection.
    pub(crate) fn info(&self, now: Instant) -> StreamInfo {
        StreamInfo {
            rtt: self.rtt.smoothed(),
            rtt_var: self.rtt.variation(),
            congestion_window: Some(self.cc.window()),
            retransmits: Some(self.counts.retransmits),
            in_flight: Some(self.snd.flight()),
            unsent: Some(self.snd.unsent()),
            path_mtu: Some(self.path_mtu),
            delivery_rate: self.rate,
            acknowledged: Some(self.snd.una.since(self.snd.iss)),
            received: Some(self.counts.received),
            last_heard: Some(self.timers.last_heard(now)),
            unanswered: Some(self.timers.unanswered()),
        }
    }

    /// Whether this side has opened it.
    pub(crate) const fn is_active(&self) -> bool {
        self.active
    }

    /// What the peer names the connection by where both take part in MPTCP.
    pub(crate) fn token(&self) -> Option<u64> {
        self.agreed.multipath.map(|_| self.snd.iss.0)
    }

    /// How often the peer was asked since it was last heard of.
    pub(crate) const fn unanswered(&self) -> u32 {
        self.timers.unanswered()
    }

    /// How often segments were sent again.
    pub(crate) fn retransmits(&self) -> u64 {
        self.counts.retransmits
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

    /// Bytes of options in every segment.
    fn options_overhead(&self) -> u32 {
        let timestamps = if self.agreed.timestamps { segment::TIMESTAMPS } else { 0 };
        timestamps + if self.agreed.multipath.is_some() { segment::MULTIPATH_DATA } else { 0 }
    }

    /// The timestamp clock: milliseconds.
    fn clock(now: Instant) -> u32 {
        (now.as_nanos() / 1_000_000) as u32
    }

    fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.agreed.timestamps.then(|| Timestamps { value: Self::clock(now), echo: self.recent })
    }

    /// Learns what a SYN says and settles what both sides want.
    fn learn_syn(&mut self, syn: &Segment) {
        let tcp = self.options.tcp;
        self.rcv.start(syn.seq.plus(1));
        self.agreed.sack = tcp.sack && syn.sack_permitted;
        self.agreed.timestamps = tcp.timestamps && syn.timestamps.is_some();
        self.agreed.multipath = syn.multipath.filter(|_| self.options.multipath).map(|_| syn.seq.0);
        self.agreed.scale = tcp.window_scaling && syn.scale.is_some();
        // A SYN asks with both flags; its answer says yes with one (RFC 3168 section 6.1.1).
        let answer = syn.ack.is_some();
        self.agreed.ecn = match tcp.ecn {
            EcnMode::Off => false,
            EcnMode::Accept => !answer && syn.ece && syn.cwr,
            EcnMode::Request => syn.ece && syn.cwr != answer,
        };
        if let Some(ts) = syn.timestamps {
            self.recent = ts.value;
        }
        if self.agreed.sack {
            self.rcv.enable_sack();
        }
        if self.agreed.scale {
            self.rcv.enable_scale();
        }
        let peer = u64::from(syn.mss.unwrap_or(DEFAULT_MSS).max(MIN_MSS));
        let own = u64::from(self.path_mtu.saturating_sub(self.overhead).max(MIN_MSS));
        let mss = (peer.min(own) - u64::from(self.options_overhead())).max(u64::from(MIN_MSS / 2));
        if mss != self.snd.mss {
            self.snd.mss = mss;
            // Nothing was sent yet: the initial window counts segments of the size that will be used.
            self.cc = Congestion::new(tcp.congestion, tcp.controller.make(), mss);
            self.rcv.set_mss(mss);
        }
    }

    /// The pipe: what counts against the congestion window.
    fn in_flight(&self) -> u64 {
        let board = &self.snd.board;
        if !self.options.tcp.limited_transmit && self.recovery.is_calm() {
            return self.snd.flight();
        }
        board.in_flight().saturating_sub(self.recovery.duplicates * self.snd.mss)
    }

    /// What a probe sees.
    pub(crate) fn probe(&self) -> TcpProbe {
        TcpProbe {
            phase: self.recovery.phase,
            window: self.cc.window(),
            threshold: self.cc.threshold(),
            in_flight: self.in_flight(),
            outstanding: self.snd.flight(),
            sacked: self.snd.board.sacked() + self.recovery.duplicates * self.snd.mss,
            lost: self.snd.board.lost(),
            unsent: self.snd.unsent(),
            mss: self.snd.mss,
            srtt: self.rtt.smoothed(),
            rtt_variation: self.rtt.variation(),
            least_rtt: self.rtt.least(),
            rto: self.rtt.rto(),
            peer_window: self.snd.wnd,
            own_window: self.rcv.limit() as u64,
            delivered: self.snd.board.delivered,
            received: self.counts.received,
            retransmits: self.counts.retransmits,
            recoveries: self.counts.recoveries,
            timeouts: self.counts.timeouts,
            probes: self.counts.probes,
            undone: self.counts.undone,
            marks: self.counts.marks,
            reordering: self.rack.reordering,
            delivery_rate: self.rate,
        }
    }
}
