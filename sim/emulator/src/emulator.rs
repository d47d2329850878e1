//! The emulator: one thread in real time that moves packets between the hosts' TUN devices through the links of a [`Fabric`].
//!
//! It sleeps in the kernel until shortly before the next packet is due and then polls until it is due ([`SPIN`]), because a
//! sleeping thread is woken tens of microseconds late. Polling may take a quarter of a processor and no more (`Credit`). Where
//! packets are so close that it would take more, it naps for a time that does not depend on them ([`NAP`]) and then does
//! everything that has become due, with the times at which it was due: no rate is lost by it, and the hosts' programs get the
//! processor. Falling asleep is dear (two timers are set, each an exit from a virtual machine): a nap for every packet would
//! take more time than polling. It runs before everything that is not real-time, where that is allowed.
//! How late it was is counted for every packet, and told.

use super::error::{LiveError, Result, failed, last};
use super::fabric::{Fabric, FabricCounters, NatReport};
use super::plan::Plan;
use super::sys::{self, Precedence};
use super::tun::Tun;
use neater_base::Instant;
use neater_link::{Counters, LinkConfig};
use serde::Serialize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long before a packet is due the thread stops sleeping.
pub const SPIN: Duration = Duration::from_micros(70);
/// How long it sleeps, whatever arrives, when packets are closer than that and polling is used up.
pub const NAP: Duration = Duration::from_micros(50);
/// Polling that was saved up while there was nothing to poll for.
const CREDIT: Duration = Duration::from_millis(10);
/// For each so much time one part of it may be polled away.
const CREDIT_SHARE: u32 = 4;
/// Packets read from one host before the others and what is due have their turn.
const READS: usize = 16;
/// The token of the descriptor that wakes the thread for a request.
const WAKE: u64 = u64::MAX;
/// A packet that is handed over this late is reported as late.
pub const LATE: Duration = Duration::from_millis(1);

/// How late packets were, in buckets of an eighth of a power of two of nanoseconds: exact to 9 %.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Box<[u64; 64 * 8]>,
    count: u64,
    max: u64,
    late: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: Box::new([0; 64 * 8]), count: 0, max: 0, late: 0 }
    }
}

impl Lateness {
    fn add(&mut self, late: Duration) {
        let ns = late.as_nanos() as u64;
        let top = 63 - (ns | 1).leading_zeros() as usize;
        let rest = if top >= 3 { (ns >> (top - 3)) & 7 } else { 0 } as usize;
        self.buckets[top * 8 + rest] += 1;
        self.count += 1;
        self.max = self.max.max(ns);
        self.late += u64::from(late > LATE);
    }

    /// The quantile `q`, in microseconds: the upper end of its bucket.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> f64 {
        let wanted = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted && seen > 0 {
                let (top, rest) = (i / 8, (i % 8) as f64);
                return ((1u64 << top) as f64 * (1.0 + (rest + 1.0) / 8.0)).min(self.max as f64) / 1000.0;
            }
        }
        0.0
    }
}

/// What the emulator did.
#[derive(Clone, Debug, Serialize)]
pub struct EmulatorReport {
    /// Since it began, in seconds.
    pub seconds: f64,
    /// CPU time of its thread over that time: 1 is one processor.
    pub cpu: f64,
    /// What it was granted.
    pub precedence: Precedence,
    /// Packets in and out, and what it could not do.
    pub packets: FabricCounters,
    /// How late packets were handed to hosts, over when they were due there: the median, in microseconds.
    pub late_median_us: f64,
    /// The 99th percentile.
    pub late_p99_us: f64,
    /// The most.
    pub late_max_us: f64,
    /// Packets later than [`LATE`].
    pub late: u64,
    /// Packets that a host's kernel did not take.
    pub refused: u64,
    /// Packets for interfaces that were down.
    pub interface_down: u64,
    /// What the NAT boxes did.
    pub nats: Vec<NatReport>,
    /// When it began, by the clock that schedules count from.
    #[serde(skip)]
    pub start: Instant,
    /// How often the thread slept.
    pub sleeps: u64,
    /// How often that was a nap, because packets were close to each other.
    pub naps: u64,
}

impl EmulatorReport {
    /// What it did that is no property of the scenario, so that a run with it says nothing of what ran; `None` if there is
    /// no such thing. `unread`: packets that were dropped before it could read them; `late_max_us`: how late the 99th
    /// percentile of all packets may be, in microseconds.
    #[must_use]
    pub fn disturbance(&self, unread: u64, late_max_us: f64) -> Option<String> {
        let some = |n: u64, what: &str| (n > 0).then(|| format!("{n} packets {what}"));
        let late = self.late_p99_us > late_max_us;
        some(unread, "were dropped before it read them")
            .or_else(|| some(self.packets.no_buffer, "found no buffer"))
            .or_else(|| some(self.refused, "were not taken by the hosts' kernels"))
            .or_else(|| late.then(|| format!("one packet of 100 came {:.0} µs late or later", self.late_p99_us)))
            .map(|what| format!("the emulator could not keep up: {what}"))
    }
}

/// What to do until the next packet is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Look for arrivals and for the time.
    Poll,
    /// Sleep for [`NAP`], whatever arrives.
    Nap,
    /// Sleep so long, or until something arrives.
    Wait(Duration),
}

/// How much polling is affordable. Without a limit, a thread that comes before all others would take a processor for itself as
/// soon as packets are less than [`SPIN`] apart, and the programs that send them would wait for it.
#[derive(Debug)]
struct Credit {
    left: Duration,
    seen: Instant,
    last: Rest,
}

impl Credit {
    fn new(now: Instant) -> Self {
        Self { left: CREDIT, seen: now, last: Rest::Poll }
    }

    /// What to do when the next packet is due in `due`. Polling is paid for, and waiting earns it; naps earn nothing, so that
    /// under lasting load the thread does its work and nothing else.
    fn rest(&mut self, now: Instant, due: Duration) -> Rest {
        let passed = now.saturating_since(self.seen);
        self.seen = now;
        match self.last {
            Rest::Poll => self.left = self.left.saturating_sub(passed),
            Rest::Wait(_) => self.left = (self.left + passed / CREDIT_SHARE).min(CREDIT),
            Rest::Nap => {}
        }
        self.last = match due.checked_sub(SPIN) {
            Some(sleep) if self.left >= SPIN && !sleep.is_zero() => Rest::Wait(sleep),
            _ if due.is_zero() || self.left >= SPIN => Rest::Poll,
            _ if due < NAP => Rest::Nap,
            _ => Rest::Wait(due),
        };
        self.last
    }
}

enum Request {
    Report(SyncSender<EmulatorReport>),
    Links(SyncSender<Vec<Counters>>),
    Set { wire: usize, side: usize, config: Box<LinkConfig>, done: SyncSender<bool> },
    Stop,
}

/// A running emulator. Dropping it ends it.
#[derive(Debug)]
pub struct Emulator {
    requests: Sender<Request>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts it over the devices of the plan's host interfaces, in the order of [`Fabric::ports`].
    ///
    /// # Errors
    /// The kernel has no descriptors, or no thread, for it.
    pub fn start(plan: Plan, tuns: Vec<Tun>, buffers: usize) -> Result<Self> {
        let (requests, inbox) = channel();
        // SAFETY: numbers only; the results are new descriptors or -1.
        let (wake, epoll) = unsafe {
            (libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK), libc::epoll_create1(libc::EPOLL_CLOEXEC))
        };
        let (wake, epoll) = (sys::owned("eventfd", wake.into())?, sys::owned("epoll", epoll.into())?);
        for (fd, token) in tuns.iter().enumerate().map(|(i, t)| (t.fd(), i as u64)).chain([(wake.as_raw_fd(), WAKE)]) {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
            // SAFETY: both descriptors are open; the event lives.
            if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } != 0 {
                return last("epoll_ctl");
            }
        }
        let ours = wake.try_clone().or_else(|e| failed("eventfd", e))?;
        let run = move || {
            let precedence = sys::take_precedence();
            let start = sys::now();
            Loop {
                fabric: Fabric::new(&plan, buffers, start),
                tuns,
                epoll,
                wake: ours,
                inbox,
                precedence,
                start,
                cpu_start: sys::thread_cpu(),
                lateness: Lateness::default(),
                refused: 0,
                interface_down: 0,
                sleeps: 0,
                naps: 0,
                unread: false,
                credit: Credit::new(start),
            }
            .run();
            sys::unlock_memory();
        };
        match std::thread::Builder::new().name("emulator".into()).spawn(run) {
            Ok(thread) => Ok(Self { requests, wake, thread: Some(thread) }),
            Err(e) => failed("a thread for the emulator", e),
        }
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T> {
        let (answer, inbox) = sync_channel(1);
        let _ = self.requests.send(request(answer));
        self.ring();
        inbox
            .recv_timeout(Duration::from_secs(5))
            .map_err(|_| LiveError::Failed("the emulator does not answer: it has failed or is overloaded".into()))
    }

    fn ring(&self) {
        let _ = sys::write(self.wake.as_raw_fd(), &1u64.to_ne_bytes());
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn report(&self) -> Result<EmulatorReport> {
        self.ask(Request::Report)
    }

    /// What the links have done so far: wire 0 there and back, wire 1 there and back, and so on.
    ///
    /// # Errors
    /// It does not answer.
    pub fn links(&self) -> Result<Vec<Counters>> {
        self.ask(Request::Links)
    }

    /// Changes one direction of a wire from now on.
    ///
    /// # Errors
    /// There is no such wire, or it does not answer.
    pub fn set(&self, wire: usize, side: usize, config: LinkConfig) -> Result<()> {
        let config = Box::new(config);
        if self.ask(|done| Request::Set { wire, side, config, done })? {
            Ok(())
        } else {
            Err(LiveError::Usage(format!("there is no wire {wire}")))
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Stop);
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Loop {
    fabric: Fabric,
    tuns: Vec<Tun>,
    epoll: OwnedFd,
    wake: OwnedFd,
    inbox: Receiver<Request>,
    precedence: Precedence,
    start: Instant,
    cpu_start: Duration,
    lateness: Lateness,
    refused: u64,
    interface_down: u64,
    sleeps: u64,
    naps: u64,
    /// A host had more to read than it was given time for.
    unread: bool,
    credit: Credit,
}

impl Loop {
    fn run(mut self) {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        loop {
            let now = self.flush();
            let next = self.fabric.next_timeout();
            // Arrivals are looked for while a packet is waited for awake, and after a nap.
            let wait = match next.map(|at| self.credit.rest(now, at.saturating_since(now))) {
                None => None,
                Some(Rest::Wait(time)) => Some(time),
                // What is waiting to be read leaves no time for a nap.
                Some(Rest::Nap) if !self.unread => {
                    self.naps += 1;
                    self.sleeps += 1;
                    sys::sleep_until(now + NAP);
                    self.flush();
                    Some(Duration::ZERO)
                }
                Some(Rest::Poll | Rest::Nap) => Some(Duration::ZERO),
            };
            // Without events there is no emulator; whoever asks it then hears that it does not answer.
            let Some(n) = self.wait(&mut events, wait) else { return };
            self.unread = false;
            for event in events.iter().take(n) {
                let token = event.u64;
                if token == WAKE {
                    let mut count = [0; 8];
                    let _ = sys::read(self.wake.as_raw_fd(), &mut count);
                    if !self.serve() {
                        return;
                    }
                } else {
                    self.read(token as usize);
                }
            }
        }
    }

    /// Waits for packets or requests, at most so long. `None`: the kernel does not let it.
    fn wait(&mut self, events: &mut [libc::epoll_event], limit: Option<Duration>) -> Option<usize> {
        let time = limit.map(|d| libc::timespec {
            tv_sec: libc::time_t::try_from(d.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: d.subsec_nanos().into(),
        });
        let time: *const libc::timespec = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        self.sleeps += u64::from(limit != Some(Duration::ZERO));
        let none: *const libc::sigset_t = std::ptr::null();
        // SAFETY: the events are live and as many as said; the time is null or lives until the end of this function.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                time,
                none,
                0,
            )
        };
        match usize::try_from(n) {
            Ok(n) => Some(n),
            // A signal is no event.
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => Some(0),
            Err(_) => None,
        }
    }

    /// Reads what a host has sent.
    fn read(&mut self, port: usize) {
        for turn in 1..=READS {
            let Some(tun) = self.tuns.get(port) else { return };
            match self.fabric.pool().fill(|buffer| match tun.read(buffer) {
                Ok(0) => Err(()),
                Ok(n) => Ok(n),
                Err(_) => Err(()),
            }) {
                Some(Ok(packet)) => {
                    let now = sys::now();
                    self.fabric.advance(now);
                    self.fabric.arrive(now, port, packet);
                    self.unread |= turn == READS;
                }
                Some(Err(())) => break,
                None => {
                    // Read and forgotten: the host's queue must not be where packets wait.
                    let mut nothing = [0; 2048];
                    match tun.read(&mut nothing) {
                        Ok(n) if n > 0 => self.fabric.count_no_buffer(),
                        _ => break,
                    }
                }
            }
        }
        self.flush();
    }

    /// Hands over what is due, and tells the time.
    fn flush(&mut self) -> Instant {
        let mut now = sys::now();
        self.fabric.advance(now);
        while let Some((port, due, packet)) = self.fabric.poll_output() {
            match self.tuns.get(port).map(|t| t.write(packet.bytes())) {
                Some(Ok(_)) => {}
                // So the device says that its interface is down.
                Some(Err(e)) if e.raw_os_error() == Some(libc::EIO) => self.interface_down += 1,
                _ => self.refused += 1,
            }
            self.lateness.add(now.saturating_since(due));
            self.fabric.pool().give_back(packet);
            now = sys::now();
            self.fabric.advance(now);
        }
        now
    }

    /// Does what was asked; false when it is to end.
    fn serve(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Request::Report(to)) => {
                    let _ = to.send(self.report());
                }
                Ok(Request::Links(to)) => {
                    let _ = to.send(self.fabric.link_counters());
                }
                Ok(Request::Set { wire, side, config, done }) => {
                    let now = self.flush();
                    let _ = done.send(self.fabric.set_config(now, wire, side, *config));
                }
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn report(&mut self) -> EmulatorReport {
        let now = sys::now();
        let seconds = now.saturating_since(self.start).as_secs_f64();
        let cpu = sys::thread_cpu().saturating_sub(self.cpu_start).as_secs_f64();
        EmulatorReport {
            seconds,
            cpu: cpu / seconds.max(1e-9),
            precedence: self.precedence,
            packets: self.fabric.counters(),
            late_median_us: self.lateness.quantile_us(0.5),
            late_p99_us: self.lateness.quantile_us(0.99),
            late_max_us: self.lateness.max as f64 / 1000.0,
            late: self.lateness.late,
            refused: self.refused,
            interface_down: self.interface_down,
            nats: self.fabric.nat_reports(now),
            start: self.start,
            sleeps: self.sleeps,
            naps: self.naps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets packets be due at a fixed distance for a second. Returns the parts of the time polled and napped, and how often
    /// it slept.
    fn second(gap: Duration) -> (f64, f64, u32) {
        let (mut now, mut due) = (Instant::from_nanos(0), Instant::from_nanos(0));
        let mut credit = Credit::new(now);
        let (mut polled, mut napped, mut sleeps) = (Duration::ZERO, Duration::ZERO, 0);
        while now < Instant::from_nanos(1_000_000_000) {
            while due <= now {
                due += gap;
            }
            // A sleep takes 20 us longer than asked for.
            let late = Duration::from_micros(20);
            let time = match credit.rest(now, due - now) {
                Rest::Poll => Duration::from_micros(1),
                Rest::Nap => NAP + late,
                Rest::Wait(time) => time + late,
            };
            match credit.last {
                Rest::Poll => polled += time,
                Rest::Nap => napped += time,
                Rest::Wait(_) => {}
            }
            sleeps += u32::from(credit.last != Rest::Poll);
            now += time;
        }
        let part = |d: Duration| d.as_secs_f64() / (now - Instant::from_nanos(0)).as_secs_f64();
        (part(polled), part(napped), sleeps)
    }

    #[test]
    fn under_load_it_naps_and_does_not_poll() {
        // A packet every 24 us, as at 500 Mbit/s: what was saved up is polled away, and the rest is one nap after another.
        let (polled, napped, sleeps) = second(Duration::from_micros(24));
        assert!(polled < 0.02 && napped > 0.97, "{polled} {napped}");
        assert!((13_000..15_000).contains(&sleeps), "{sleeps}");
    }

    #[test]
    fn polling_takes_no_more_than_its_share() {
        // As at 100 Mbit/s: not enough for all packets, and some naps where one is due before the next earnings.
        let (polled, napped, _) = second(Duration::from_micros(120));
        assert!((0.1..0.25).contains(&polled), "{polled}");
        assert!((0.1..0.4).contains(&napped), "{napped}");
        // Where packets are rare, each is polled for.
        let (polled, napped, sleeps) = second(Duration::from_millis(1));
        assert!((0.045..0.07).contains(&polled) && napped == 0.0, "{polled} {napped}");
        assert!((950..1050).contains(&sleeps), "{sleeps}");
    }

    #[test]
    fn it_wakes_before_a_packet_is_due_and_polls_from_there() {
        let mut credit = Credit::new(Instant::ZERO);
        let five = Duration::from_millis(5);
        assert_eq!(credit.rest(Instant::ZERO, five), Rest::Wait(five - SPIN));
        assert_eq!(credit.rest(Instant::ZERO, SPIN), Rest::Poll);
        assert_eq!(credit.rest(Instant::ZERO, Duration::ZERO), Rest::Poll);
    }

    #[test]
    fn lateness_is_told_to_within_an_eighth() {
        let mut l = Lateness::default();
        for us in 1..=1000u64 {
            l.add(Duration::from_micros(us));
        }
        for (q, exact) in [(0.5, 500.0), (0.99, 990.0), (0.1, 100.0)] {
            let told = l.quantile_us(q);
            assert!((exact..=exact * 1.13).contains(&told), "{q}: {told}");
        }
        assert_eq!((l.max, l.late), (1_000_000, 0));
        assert_eq!(Lateness::default().quantile_us(0.5), 0.0);
    }

    #[test]
    fn whatever_the_emulator_could_not_do_is_a_disturbance() {
        let sound = EmulatorReport {
            seconds: 1.0,
            cpu: 0.1,
            precedence: Precedence::default(),
            packets: FabricCounters::default(),
            late_median_us: 5.0,
            late_p99_us: 80.0,
            late_max_us: 900.0,
            late: 0,
            refused: 0,
            interface_down: 3,
            nats: Vec::new(),
            start: Instant::ZERO,
            sleeps: 1,
            naps: 0,
        };
        assert_eq!(sound.disturbance(0, 100.0), None, "what the scenario takes down is none");
        let says = |report: &EmulatorReport, unread, word: &str| {
            report.disturbance(unread, 100.0).is_some_and(|why| why.contains(word))
        };
        assert!(says(&sound, 1, "before it read"));
        assert!(says(&EmulatorReport { late_p99_us: 101.0, ..sound.clone() }, 0, "101 µs late"));
        assert!(says(&EmulatorReport { refused: 2, ..sound.clone() }, 0, "2 packets were not taken"));
        let mut full = sound;
        full.packets.no_buffer = 7;
        assert!(says(&full, 0, "7 packets found no buffer"));
        assert!(full.disturbance(0, f64::INFINITY).is_some());
    }
}
