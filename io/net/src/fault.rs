//! [`FaultNet`]: any [`Net`], on a bad day.
//!
//! *Responsible for* doing to its user what operating systems do rarely and tests therefore never
//! see: short reads and writes, `WouldBlock` without need, no descriptors, connections reset, no
//! buffers, readiness that comes late or for nothing. *Deliberately not here*: the network's own
//! faults (loss, delay, reordering), which are a link's business.
//!
//! *Invariants*
//!
//! * The contract of [`Net`] holds: a caller that gets `WouldBlock` gets readiness later, no event
//!   is lost for good, a connection that was reset stays reset and its peer learns of it.
//! * A run is a function of the seed, the calls and the inner `Net`; a fault whose rate is zero
//!   draws no number.
//! * What is held back is bounded by [`MAX_HELD`] events, one per token besides.

use core::time::Duration;
use neater_base::net::{
    ErrorKind, IcmpError, Interface, NameConfig, Net, NetError, NetEvent, Ready, RecvBatch, Sock, SocketOption,
    SocketOptions, StreamInfo, StreamPaths, Token, Transmit,
};
use neater_base::{Instant, Rng, Timers, WallTime};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Events held back at once; beyond, they pass.
const MAX_HELD: usize = 4096;

type Result<T> = core::result::Result<T, NetError>;

/// How often each fault happens: probabilities per operation, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRates {
    /// A read gets fewer bytes than there are and than fit.
    pub short_read: f64,
    /// A write takes fewer bytes than it could.
    pub short_write: f64,
    /// A storm of `WouldBlock` begins on a socket.
    pub would_block: f64,
    /// The most operations that one storm refuses; at least 1.
    pub storm: u32,
    /// Opening or accepting fails with `TooManyFiles`.
    pub too_many_files: f64,
    /// A read or write finds its connection reset.
    pub reset: f64,
    /// Sending a datagram fails with `NoBuffers`.
    pub no_buffers: f64,
    /// An event comes late.
    pub late_event: f64,
    /// A poll reports readiness of a socket that is not ready.
    pub spurious_event: f64,
    /// The longest that an event is held back.
    pub delay: Duration,
}

impl FaultRates {
    /// No fault at all.
    pub const NONE: Self = Self {
        short_read: 0.0,
        short_write: 0.0,
        would_block: 0.0,
        storm: 4,
        too_many_files: 0.0,
        reset: 0.0,
        no_buffers: 0.0,
        late_event: 0.0,
        spurious_event: 0.0,
        delay: Duration::from_millis(20),
    };

    /// Everything that a correct program survives without its peer noticing: all faults but resets
    /// and missing descriptors, often.
    #[must_use]
    pub const fn nasty() -> Self {
        Self {
            short_read: 0.5,
            short_write: 0.5,
            would_block: 0.2,
            no_buffers: 0.1,
            late_event: 0.3,
            spurious_event: 0.2,
            ..Self::NONE
        }
    }
}

impl Default for FaultRates {
    fn default() -> Self {
        Self::NONE
    }
}

/// Changes the rates of a [`FaultNet`] from outside, whatever owns it: a new day begins with its
/// next [`Net::poll`].
#[derive(Clone, Debug, Default)]
pub struct FaultControl(Arc<Mutex<Option<FaultRates>>>);

impl FaultControl {
    /// The rates from the next poll on. What is held back then stays so.
    pub fn set_rates(&self, rates: FaultRates) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rates);
    }

    fn take(&self) -> Option<FaultRates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How many faults have happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field counts the fault of FaultRates with its name")]
pub struct FaultCounts {
    pub short_read: u64,
    pub short_write: u64,
    pub would_block: u64,
    pub too_many_files: u64,
    pub reset: u64,
    pub no_buffers: u64,
    pub late_event: u64,
    pub spurious_event: u64,
}

#[derive(Clone, Copy, Debug)]
struct Socket {
    token: Token,
    /// Operations that the storm still refuses.
    storm: u32,
    /// Reset, and given back to the inner `Net`.
    reset: bool,
}

/// What is held back.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// Late.
    Event(NetEvent),
    /// Promised by a `WouldBlock`: what is in `owed` for this token.
    Owed(Token),
}

/// A [`Net`] that misbehaves within the contract, at chosen rates.
#[derive(Debug)]
pub struct FaultNet<N> {
    inner: N,
    rng: Rng,
    rates: FaultRates,
    control: FaultControl,
    counts: FaultCounts,
    sockets: BTreeMap<Sock, Socket>,
    /// Open sockets per token.
    tokens: BTreeMap<Token, u32>,
    held: Timers<Held>,
    owed: BTreeMap<Token, Ready>,
    deadline: Option<Instant>,
    scratch: Vec<NetEvent>,
}

const READ: Ready = Ready { readable: true, writable: false, error: false, hangup: false };
const WRITE: Ready = Ready { readable: false, writable: true, error: false, hangup: false };
const GONE: Ready = Ready { readable: true, writable: true, error: true, hangup: true };

impl<N: Net> FaultNet<N> {
    /// Wraps a `Net`.
    #[must_use]
    pub fn new(inner: N, rng: Rng, rates: FaultRates) -> Self {
        Self {
            inner,
            rng,
            rates,
            control: FaultControl::default(),
            counts: FaultCounts::default(),
            sockets: BTreeMap::new(),
            tokens: BTreeMap::new(),
            held: Timers::new(),
            owed: BTreeMap::new(),
            deadline: None,
            scratch: Vec::new(),
        }
    }

    /// The wrapped `Net`, to reach its descriptor or its clock.
    #[must_use]
    pub const fn inner(&self) -> &N {
        &self.inner
    }

    /// The wrapped `Net`. Sockets opened on it directly suffer no faults.
    pub const fn inner_mut(&mut self) -> &mut N {
        &mut self.inner
    }

    /// Changes the rates from now on; what is held back stays so.
    pub const fn set_rates(&mut self, rates: FaultRates) {
        self.rates = rates;
    }

    /// A way to change the rates when another object owns this.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    /// How many faults have happened.
    #[must_use]
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    fn chance(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.chance(rate)
    }

    fn opened(&mut self, sock: Sock, token: Token) -> Sock {
        self.sockets.insert(sock, Socket { token, storm: 0, reset: false });
        *self.tokens.entry(token).or_default() += 1;
        sock
    }

    /// Forgets a socket; returns whether the inner one is still open.
    fn closed(&mut self, sock: Sock) -> bool {
        let Some(socket) = self.sockets.remove(&sock) else { return true };
        if let Some(count) = self.tokens.get_mut(&socket.token) {
            *count -= 1;
            if *count == 0 {
                self.tokens.remove(&socket.token);
                self.owed.remove(&socket.token);
            }
        }
        !socket.reset
    }

    fn opening(&mut self) -> Result<()> {
        if self.chance(self.rates.too_many_files) {
            self.counts.too_many_files += 1;
            return Err(NetError::new(ErrorKind::TooManyFiles));
        }
        Ok(())
    }

    /// Holds something back for a while.
    fn hold(&mut self, held: Held) {
        let nanos = u64::try_from(self.rates.delay.as_nanos()).unwrap_or(u64::MAX);
        let at = self.inner.now() + Duration::from_nanos(self.rng.below(nanos.saturating_add(1)));
        self.held.push(at, held);
        self.arm_inner(false);
    }

    /// Promises readiness.
    fn owe(&mut self, token: Token, ready: Ready) {
        if let Some(owed) = self.owed.get_mut(&token) {
            *owed = merge(*owed, ready);
            return;
        }
        self.owed.insert(token, ready);
        self.hold(Held::Owed(token));
    }

    /// Refuses an operation without need, sometimes; then `ready` is promised.
    fn storm(&mut self, sock: Sock, ready: Ready) -> Result<()> {
        let Some(&socket) = self.sockets.get(&sock) else { return Ok(()) };
        let mut left = socket.storm;
        if left == 0 && self.chance(self.rates.would_block) {
            left = 1 + self.rng.below(u64::from(self.rates.storm)) as u32;
        }
        if left == 0 {
            return Ok(());
        }
        if let Some(socket) = self.sockets.get_mut(&sock) {
            socket.storm = left - 1;
        }
        self.counts.would_block += 1;
        self.owe(socket.token, ready);
        Err(NetError::new(ErrorKind::WouldBlock))
    }

    /// Finds the connection reset, now or since an earlier operation.
    fn reset(&mut self, sock: Sock) -> Result<()> {
        let Some(&socket) = self.sockets.get(&sock) else { return Ok(()) };
        if !socket.reset {
            if !self.chance(self.rates.reset) {
                return Ok(());
            }
            self.counts.reset += 1;
            if let Some(socket) = self.sockets.get_mut(&sock) {
                socket.reset = true;
            }
            self.inner.abort(sock);
            // A waiter for the other direction is notified too.
            self.owe(socket.token, GONE);
        }
        Err(NetError::new(ErrorKind::ConnectionReset))
    }

    /// At least one byte, at most one less than `len`.
    fn shorter(&mut self, len: usize) -> usize {
        1 + self.rng.below(len as u64 - 1) as usize
    }

    fn arm_inner(&mut self, again: bool) {
        let next = [self.deadline, self.held.next()].into_iter().flatten().min();
        self.inner.arm(next, again);
    }

    /// Appends what has been held back long enough.
    fn release_due(&mut self, events: &mut Vec<NetEvent>) {
        let now = self.inner.now();
        while let Some(held) = self.held.pop_due(now) {
            match held {
                Held::Event(NetEvent::Ready { token, .. }) if !self.tokens.contains_key(&token) => {}
                Held::Event(event) => events.push(event),
                Held::Owed(token) => {
                    if let Some(ready) = self.owed.remove(&token) {
                        events.push(NetEvent::Ready { token, ready });
                    }
                }
            }
        }
    }
}

const fn merge(a: Ready, b: Ready) -> Ready {
    Ready {
        readable: a.readable || b.readable,
        writable: a.writable || b.writable,
        error: a.error || b.error,
        hangup: a.hangup || b.hangup,
    }
}

impl<N: Net> Net for FaultNet<N> {
    fn forked(&self) -> bool {
        self.inner.forked()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn wall(&self) -> WallTime {
        self.inner.wall()
    }

    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.opening()?;
        let sock = self.inner.connect(token, remote, options)?;
        Ok(self.opened(sock, token))
    }

    fn connect_result(&mut self, sock: Sock) -> Result<()> {
        self.storm(sock, WRITE)?;
        self.inner.connect_result(sock)
    }

    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.opening()?;
        let sock = self.inner.listen(token, local, options)?;
        Ok(self.opened(sock, token))
    }

    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)> {
        self.storm(listener, READ)?;
        self.opening()?;
        let (sock, peer) = self.inner.accept(listener, token)?;
        Ok((self.opened(sock, token), peer))
    }

    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        self.reset(sock)?;
        self.storm(sock, READ)?;
        if buf.len() > 1 && self.chance(self.rates.short_read) {
            self.counts.short_read += 1;
            let len = self.shorter(buf.len());
            return self.inner.read(sock, &mut buf[..len]);
        }
        self.inner.read(sock, buf)
    }

    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.reset(sock)?;
        self.storm(sock, WRITE)?;
        // The first buffer that holds anything is cut, and what follows it is left out.
        if let Some(first) = bufs.iter().find(|b| !b.is_empty())
            && (first.len() > 1 || bufs.len() > 1)
            && self.chance(self.rates.short_write)
        {
            self.counts.short_write += 1;
            let len = if first.len() > 1 { self.shorter(first.len()) } else { 1 };
            return self.inner.write(sock, &[IoSlice::new(&first[..len])]);
        }
        self.inner.write(sock, bufs)
    }

    fn shutdown_write(&mut self, sock: Sock) -> Result<()> {
        if self.sockets.get(&sock).is_some_and(|s| s.reset) {
            return Err(NetError::new(ErrorKind::NotConnected));
        }
        self.inner.shutdown_write(sock)
    }

    fn close(&mut self, sock: Sock) {
        if self.closed(sock) {
            self.inner.close(sock);
        }
    }

    fn abort(&mut self, sock: Sock) {
        if self.closed(sock) {
            self.inner.abort(sock);
        }
    }

    fn stream_info(&self, sock: Sock) -> Result<StreamInfo> {
        self.inner.stream_info(sock)
    }

    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        self.inner.stream_paths(sock)
    }

    fn take_error(&mut self, sock: Sock) -> Option<NetError> {
        self.inner.take_error(sock)
    }

    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.opening()?;
        let sock = self.inner.udp(token, family, options)?;
        Ok(self.opened(sock, token))
    }

    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        self.inner.udp_lite_obstacle()
    }

    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.opening()?;
        let sock = self.inner.raw(token, protocol, family, options)?;
        Ok(self.opened(sock, token))
    }

    fn raw_obstacle(&mut self, protocol: u8) -> Option<&'static str> {
        self.inner.raw_obstacle(protocol)
    }

    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()> {
        self.inner.udp_connect(sock, remote)
    }

    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        self.storm(sock, WRITE)?;
        if self.chance(self.rates.no_buffers) {
            self.counts.no_buffers += 1;
            return Err(NetError::new(ErrorKind::NoBuffers));
        }
        self.inner.send(sock, transmit)
    }

    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        if let Err(error) = self.storm(sock, READ) {
            batch.metas.clear();
            return Err(error);
        }
        self.inner.recv(sock, batch)
    }

    fn max_segments(&self, sock: Sock) -> usize {
        self.inner.max_segments(sock)
    }

    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError> {
        self.inner.take_icmp_error(sock)
    }

    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        self.inner.local_addr(sock)
    }

    fn descriptor(&self, sock: Sock) -> Option<i32> {
        self.inner.descriptor(sock)
    }

    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()> {
        self.inner.set(sock, option)
    }

    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        if let Some(rates) = self.control.take() {
            self.rates = rates;
        }
        let holding = self.held.next().is_some();
        let mut fresh = core::mem::take(&mut self.scratch);
        let full = self.inner.poll(&mut fresh);
        for event in fresh.drain(..) {
            if self.held.len() < MAX_HELD && self.chance(self.rates.late_event) {
                self.counts.late_event += 1;
                self.hold(Held::Event(event));
            } else {
                events.push(event);
            }
        }
        self.scratch = fresh;
        self.release_due(events);
        if holding {
            // The driver arms when its own deadline changes, and knows nothing of what was held
            // back: what is due no more must not wake it again and again.
            self.arm_inner(false);
        }
        if !self.tokens.is_empty() && self.chance(self.rates.spurious_event) {
            self.counts.spurious_event += 1;
            let nth = self.rng.below(self.tokens.len() as u64) as usize;
            let ready = merge(READ, WRITE);
            events.extend(self.tokens.keys().nth(nth).map(|token| NetEvent::Ready { token: *token, ready }));
        }
        full
    }

    fn arm(&mut self, deadline: Option<Instant>, again: bool) {
        self.deadline = deadline;
        self.arm_inner(again);
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        self.inner.source_for(remote)
    }

    fn name_config_error(&self) -> Option<NetError> {
        self.inner.name_config_error()
    }

    fn name_config(&self) -> &NameConfig {
        self.inner.name_config()
    }
}

#[cfg(all(test, target_os = "linux", not(feature = "shell")))]
mod tests;
