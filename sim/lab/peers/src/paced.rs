//! Messages that are sent by a plan, and when each arrives: what is asked of a flow whose path dies.
//!
//! *Invariants*: both ends are on one machine and read one clock. A message has what its sender knew
//! when it was handed over: the time, and what a round trip on each path took. *Not responsible for*
//! what it means: the laboratory reads what [`Arrivals`] prints.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Bytes of each message: one fills a packet.
pub const MESSAGE: usize = 1250;
/// Bytes of what a receiver asks for.
pub const REQUEST: usize = 9;
/// Paths that a message describes.
pub const PATHS: usize = 2;
/// Between two messages of an application that is the limit itself: 10 Mbit/s.
const EVERY: Duration = Duration::from_millis(1);
/// Messages at once, before silence.
const BURST: u64 = 100;
/// When a single one follows them, which shows the path that the next one takes.
const SINGLE: Duration = Duration::from_millis(1800);
/// How often a sender looks what its paths are like.
const LOOK: Duration = Duration::from_millis(5);
/// What is read of one path, in bytes of a message: its address and its round trip.
const OF_PATH: usize = 8;

/// What the sending application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It sends 10 Mbit/s for a time.
    AppLimited,
    /// It sends as much as the transport takes for a time.
    Full,
    /// It sends a few messages at once, and the last one at a time; with real packets another one 1.8 s
    /// after the first, to see which path is used.
    Idle,
}

impl Load {
    /// Every load.
    pub const ALL: [Self; 3] = [Self::AppLimited, Self::Full, Self::Idle];

    /// Its name on command lines and in figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppLimited => "app-limited",
            Self::Full => "full",
            Self::Idle => "idle",
        }
    }

    /// The load of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.name() == name)
    }
}

/// What a receiver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// So many bytes, as fast as possible.
    Bytes(u64),
    /// Messages, until or at this time after the request has come.
    Messages(Load, Duration),
}

impl Asked {
    /// As it travels.
    #[must_use]
    pub fn encode(self) -> [u8; REQUEST] {
        let (kind, number) = match self {
            Self::Bytes(n) => (0, n),
            Self::Messages(load, time) => (1 + load as u8, time.as_millis() as u64),
        };
        let mut out = [kind; REQUEST];
        out[1..].copy_from_slice(&number.to_be_bytes());
        out
    }

    /// What this asks for, if it makes sense.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, number) = bytes.split_first()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        match kind.checked_sub(1) {
            None => Some(Self::Bytes(number)),
            Some(i) => Some(Self::Messages(*Load::ALL.get(usize::from(i))?, Duration::from_millis(number))),
        }
    }
}

/// When the messages of a load are due, one after the other, from the request on.
#[derive(Clone, Debug)]
pub struct Pace {
    load: Load,
    time: Duration,
    sent: u64,
}

impl Pace {
    /// Those of `load` until or at `time`.
    #[must_use]
    pub const fn new(load: Load, time: Duration) -> Self {
        Self { load, time, sent: 0 }
    }

    /// When the next one is due; `elapsed`: since the request. `None`: that was all.
    pub fn next(&mut self, elapsed: Duration) -> Option<Duration> {
        let due = match (self.load, self.sent) {
            (Load::AppLimited, n) => Some(EVERY * u32::try_from(n).unwrap_or(u32::MAX)).filter(|at| *at < self.time),
            (Load::Full, _) => (elapsed < self.time).then_some(Duration::ZERO),
            (Load::Idle, ..BURST) => Some(Duration::ZERO),
            (Load::Idle, BURST) => Some(SINGLE),
            (Load::Idle, n) => (n == BURST + 1).then_some(self.time),
        };
        self.sent += 1;
        due
    }
}

/// The messages of a load with what is known of the paths, each as soon as it is due.
#[derive(Debug)]
pub struct Messages {
    begin: Instant,
    pace: Pace,
    looked: Option<Instant>,
    paths: Vec<(IpAddr, Option<Duration>)>,
}

impl Messages {
    /// Those of `load` until or at `time` from now on.
    #[must_use]
    pub fn new(load: Load, time: Duration) -> Self {
        Self { begin: Instant::now(), pace: Pace::new(load, time), looked: None, paths: Vec::new() }
    }

    /// Waits for the next one. `paths` looks what the sender's are like, now and then. `None`: that
    /// was all.
    pub async fn next(&mut self, paths: impl FnOnce() -> Vec<(IpAddr, Option<Duration>)>) -> Option<Vec<u8>> {
        let due = self.pace.next(self.begin.elapsed())?;
        let early = due.saturating_sub(self.begin.elapsed());
        if !early.is_zero() {
            tokio::time::sleep(early).await;
        }
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.paths = paths();
        }
        Some(message(self.paths.iter().copied()))
    }
}

/// Microseconds of the clock that all processes of this machine share.
#[must_use]
pub fn now_us() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// A message that is handed over now, by a sender that knows these paths: the peer's address, and the
/// smoothed round trip.
pub fn message(paths: impl IntoIterator<Item = (IpAddr, Option<Duration>)>) -> Vec<u8> {
    let mut out = vec![7; MESSAGE];
    out[..8].copy_from_slice(&now_us().to_be_bytes());
    let (known, _) = out[8..].split_at_mut(PATHS * OF_PATH);
    known.fill(0);
    for (slot, (address, rtt)) in known.chunks_exact_mut(OF_PATH).zip(paths) {
        let v4 = match address {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(v6) => v6.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        let micros = rtt.map_or(0, |r| u32::try_from(r.as_micros()).unwrap_or(u32::MAX));
        slot[..4].copy_from_slice(&v4.octets());
        slot[4..].copy_from_slice(&micros.to_be_bytes());
    }
    out
}

/// What has arrived, and when: the first message of each millisecond.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    count: u64,
    rows: Vec<Value>,
    last: Option<u64>,
}

impl Arrivals {
    /// This message has just arrived.
    pub fn note(&mut self, message: &[u8]) {
        self.count += 1;
        let now = now_us();
        if self.last.replace(now / 1000) == Some(now / 1000) {
            return;
        }
        let number = |at: usize, n: usize| {
            message.get(at..at + n).map_or(0, |b| b.iter().fold(0, |sum: u64, b| sum << 8 | u64::from(*b)))
        };
        let paths = (0..PATHS).map(|i| {
            let at = 8 + i * OF_PATH;
            json!([Ipv4Addr::from(number(at, 4) as u32).to_string(), number(at + 4, 4)])
        });
        self.rows.push(json!([now, number(0, 8), self.count, paths.collect::<Vec<_>>()]));
    }

    /// Prints, on one line, all of it: for each row the time, when the message was handed over, how many
    /// messages have arrived, and the sender's paths with their round trips, times in microseconds.
    /// `whole`: the end has come.
    pub fn print(&self, whole: bool) {
        println!("{}", json!({ "whole": whole, "messages": self.count, "arrivals": self.rows }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_travel_and_nonsense_is_none() {
        let second = Duration::from_secs(1);
        let all = Load::ALL.map(|load| Asked::Messages(load, second)).into_iter().chain([Asked::Bytes(7)]);
        for asked in all {
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
        }
        assert_eq!((Asked::decode(&[4; REQUEST]), Asked::decode(&[1; 3]), Asked::decode(&[])), (None, None, None));
    }

    #[test]
    fn messages_are_due_by_their_load() {
        let ms = Duration::from_millis;
        let all = |load, time| {
            let mut pace = Pace::new(load, time);
            std::iter::from_fn(move || pace.next(Duration::ZERO)).take(1000).collect::<Vec<_>>()
        };
        assert_eq!(all(Load::AppLimited, ms(3)), [ms(0), ms(1), ms(2)]);
        let idle = all(Load::Idle, ms(4000));
        assert_eq!((idle.len(), idle[99], idle[100], idle[101]), (102, ms(0), SINGLE, ms(4000)));
        assert_eq!(all(Load::Full, ms(5)).len(), 1000);
        assert_eq!(Pace::new(Load::Full, ms(5)).next(ms(5)), None);
    }

    #[test]
    fn a_message_tells_what_its_sender_knew() {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let text = message([(address, Some(Duration::from_millis(50)))]);
        assert_eq!(text.len(), MESSAGE);
        let mut arrivals = Arrivals::default();
        arrivals.note(&text);
        let row = &arrivals.rows[0];
        assert!(row[0].as_u64() >= row[1].as_u64(), "{row}");
        assert_eq!((row[2].as_u64(), &row[3]), (Some(1), &json!([["10.0.0.2", 50_000], ["0.0.0.0", 0]])));
        // What is too short is counted, and has no times.
        let mut arrivals = Arrivals::default();
        arrivals.note(&[]);
        assert_eq!((arrivals.count, &arrivals.rows[0][1]), (1, &json!(0)));
    }
}
