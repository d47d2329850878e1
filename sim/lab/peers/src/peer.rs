//! What the peers written in Rust share: the command line, the clock, the one line of JSON.
//!
//! A peer is the program that an experiment measures: the same work, written once on each API. *Responsible for* what is
//! around the API, so that the peers differ in nothing else, with as little of it as possible. *Deliberately not here*:
//! anything that opens, reads or writes a flow. The C peers have `peers/common.h`.
//!
//! *Invariants*: a peer ends by itself after `--limit` seconds, whatever happens.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

/// The most that is read or written by one call, in bytes. Every peer uses the same.
pub const BUFFER: usize = 65_536;
/// Pending connections of a listener; the system's own bound (somaxconn) is 4,096.
pub const BACKLOG: u32 = 4096;
/// The largest number of flows that a peer takes.
const FLOWS_MAX: u64 = 100_000;
/// The name in the peers' certificate.
pub const SERVER_NAME: &str = "localhost";

const USAGE: &str =
    "usage: MODE(client|server|send|recv) --addr IP:PORT [--flows N] [--rounds R] [--bytes B] [--object SIZE]
       [--delays] [--mark] [--hold | --leave-open] [--limit SECONDS] [--security none|tls|quic] [--credentials DIR]
       [--api async|fd] [--name HOST --hosts FILE] [--cold]";

/// What a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Opens `flows` flows at once, waits until all are connected, closes them; `rounds` times.
    Client,
    /// Accepts flows and closes each when its peer does; ends after `flows * rounds`, or, with 0 flows, with its input.
    Server,
    /// Sends `bytes` over `flows` flows, objects of `object` bytes one after the other.
    Send,
    /// Receives `flows` flows to their end.
    Recv,
}

/// How flows are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TCP.
    None,
    /// TLS over TCP.
    Tls,
    /// QUIC.
    Quic,
}

/// The command line of a peer.
#[derive(Clone, Debug)]
pub struct Args {
    /// What it does.
    pub mode: Mode,
    /// Where to connect, or to listen (port 0: any, and the peer says which).
    pub addr: SocketAddr,
    /// Flows at once.
    pub flows: u64,
    /// How often.
    pub rounds: u64,
    /// Bytes to send, over all flows.
    pub bytes: u64,
    /// Bytes of an object.
    pub object: u64,
    /// With all flows open, say so and wait for the end of the standard input.
    pub hold: bool,
    /// With all flows open, say so and leave the process with all it holds.
    pub leave_open: bool,
    /// Measure the time from the call to the connection, for each flow.
    pub delays: bool,
    /// With everything prepared, say so and wait for a line of input.
    pub mark: bool,
    /// Seconds after which the process ends.
    pub limit: u32,
    /// How flows are protected.
    pub security: Security,
    /// Where `cert.der` and `key.der` are.
    pub credentials: PathBuf,
    /// Connect by this name instead of by address.
    pub name: Option<String>,
    /// The hosts file that resolves the name.
    pub hosts: PathBuf,
    /// Do not open a flow before those that are measured, so that nothing is cached.
    pub cold: bool,
    /// Drive by descriptor instead of by futures.
    pub fd_api: bool,
}

fn usage(why: &str) -> ! {
    eprintln!("{why}\n{USAGE}");
    std::process::exit(2);
}

/// Ends the peer with an error.
pub fn fail(what: &str, error: &dyn std::fmt::Display) -> ! {
    eprintln!("{what}: {error}");
    std::process::exit(1);
}

impl Args {
    /// Reads the command line and sets the time limit; ends the process when the line makes no sense.
    #[must_use]
    pub fn from_env() -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let parsed = Self::parse(&args).unwrap_or_else(|why| usage(&why));
        // SAFETY: alarm has no preconditions; the default action of SIGALRM ends the process.
        unsafe { libc::alarm(parsed.limit) };
        parsed
    }

    /// Parses a command line without the program's name.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mode = match args.first().map(String::as_str) {
            Some("client") => Mode::Client,
            Some("server") => Mode::Server,
            Some("send") => Mode::Send,
            Some("recv") => Mode::Recv,
            _ => return Err("unknown mode".to_owned()),
        };
        let mut a = Self {
            mode,
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            flows: 1,
            rounds: 1,
            bytes: 0,
            object: BUFFER as u64,
            hold: false,
            leave_open: false,
            delays: false,
            mark: false,
            limit: 120,
            security: Security::None,
            credentials: PathBuf::new(),
            name: None,
            hosts: PathBuf::new(),
            cold: false,
            fd_api: false,
        };
        let mut addr = None;
        let mut rest = args.iter().skip(1);
        while let Some(option) = rest.next() {
            match option.as_str() {
                "--hold" => a.hold = true,
                "--leave-open" => a.leave_open = true,
                "--delays" => a.delays = true,
                "--mark" => a.mark = true,
                "--cold" => a.cold = true,
                _ => {
                    let value = rest.next().ok_or_else(|| format!("{option} wants a value"))?;
                    let number = || value.parse::<u64>().map_err(|_| format!("{option} wants a number"));
                    match option.as_str() {
                        "--addr" => addr = Some(value.parse().map_err(|_| "--addr wants IP:PORT".to_owned())?),
                        "--flows" => a.flows = number()?,
                        "--rounds" => a.rounds = number()?,
                        "--bytes" => a.bytes = number()?,
                        "--object" => a.object = number()?,
                        "--limit" => {
                            a.limit = u32::try_from(number()?).map_err(|_| "--limit is too long".to_owned())?
                        }
                        "--credentials" => a.credentials = value.into(),
                        "--name" => a.name = Some(value.clone()),
                        "--hosts" => a.hosts = value.into(),
                        "--api" => a.fd_api = value == "fd",
                        "--security" => {
                            a.security = match value.as_str() {
                                "none" => Security::None,
                                "tls" => Security::Tls,
                                "quic" => Security::Quic,
                                _ => return Err("--security is none, tls or quic".to_owned()),
                            }
                        }
                        _ => return Err(format!("unknown option {option}")),
                    }
                }
            }
        }
        a.addr = addr.ok_or_else(|| "--addr is missing".to_owned())?;
        if a.flows > FLOWS_MAX || a.rounds == 0 || a.object == 0 || (a.flows == 0 && mode != Mode::Server) {
            return Err("a number is out of range".to_owned());
        }
        Ok(a)
    }

    /// Tells where the peer listens.
    pub fn say_listening(&self, addr: SocketAddr) {
        println!("{{\"listening\":\"{addr}\"}}");
    }

    /// Everything is prepared: says so and waits for a line of input if the command line says so, so that what follows can
    /// be measured alone.
    pub fn ready(&self) {
        if self.mark {
            println!("{{\"ready\":1}}");
            let _ = io::stdin().read_line(&mut String::new());
        }
    }

    /// All flows are open: holds them or leaves with them, if the command line says so.
    pub fn all_open(&self) {
        if self.hold || self.leave_open {
            println!("{{\"held\":{}}}", self.flows);
        }
        if self.leave_open {
            // SAFETY: _exit has no preconditions. Nothing is released, which is what the option is for.
            unsafe { libc::_exit(0) };
        }
        if self.hold {
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
    }

    /// Bytes that each flow carries.
    #[must_use]
    pub fn bytes_per_flow(&self) -> u64 {
        self.bytes / self.flows.max(1)
    }
}

/// What a peer counts.
#[derive(Debug)]
pub struct Tally {
    /// Flows that went well.
    pub done: u64,
    /// Flows that did not.
    pub failed: u64,
    /// Bytes received, or handed over.
    pub bytes: u64,
    /// Since when.
    pub start: Instant,
    /// How long it took, if the clock was stopped.
    elapsed: Option<Duration>,
    delays: Vec<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { done: 0, failed: 0, bytes: 0, start: Instant::now(), elapsed: None, delays: Vec::new() }
    }
}

impl Tally {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(args: &Args) -> Self {
        let capacity = if args.delays { (args.flows * args.rounds) as usize } else { 0 };
        Self { delays: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// The transfer is over: the clock ran from the first byte that [`pull`] read, so that no handshake is part of it, and
    /// stops now.
    pub fn stop(&mut self) {
        self.elapsed = Some(FIRST_BYTE.get().unwrap_or(&self.start).elapsed());
    }

    /// A flow was connected, so long after the call.
    pub fn delay(&mut self, opened: Instant) {
        self.delays.push(u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Prints the line and ends the process: with 1 if a flow failed.
    pub fn report(mut self, peer: &str, args: &Args) -> ! {
        let ns = self.elapsed.unwrap_or_else(|| self.start.elapsed()).as_nanos();
        self.delays.sort_unstable();
        let quantile = |q: usize| self.delays.get(self.delays.len() * q / 10).copied();
        let mut delays = String::new();
        if let (Some(median), Some(p90)) = (quantile(5), quantile(9)) {
            delays = format!(",\"delay_median_ns\":{median},\"delay_p90_ns\":{p90}");
        }
        println!(
            "{{\"peer\":\"{peer}\",\"mode\":\"{}\",\"flows\":{},\"rounds\":{},\"done\":{},\"failed\":{},\"bytes\":{},\"ns\":{ns}{delays}}}",
            match args.mode {
                Mode::Client => "client",
                Mode::Server => "server",
                Mode::Send => "send",
                Mode::Recv => "recv",
            },
            args.flows,
            args.rounds,
            self.done,
            self.failed,
            self.bytes,
        );
        if args.mark {
            // Until the input ends, so that what it costs to end can be left out of what is measured.
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
        std::process::exit(i32::from(self.failed > 0));
    }
}

enum Slot<F: Future> {
    Pending(Pin<Box<F>>),
    Done(F::Output),
}

/// Starts `n` futures at once, then waits for all: one allocation each, one task for all.
///
/// `noticed` is called for each when it is seen to have ended. Futures are awaited in order, so a delay measured by it is
/// never too small.
pub async fn all_at_once<F: Future>(
    n: usize,
    mut make: impl FnMut(usize) -> F,
    mut noticed: impl FnMut(usize),
) -> Vec<F::Output> {
    let mut slots = Vec::with_capacity(n);
    poll_fn(|cx| {
        for i in 0..n {
            let mut future = Box::pin(make(i));
            slots.push(match future.as_mut().poll(cx) {
                Poll::Ready(output) => {
                    noticed(i);
                    Slot::Done(output)
                }
                Poll::Pending => Slot::Pending(future),
            });
        }
        Poll::Ready(())
    })
    .await;
    let mut outputs = Vec::with_capacity(n);
    for (i, slot) in slots.into_iter().enumerate() {
        outputs.push(match slot {
            Slot::Done(output) => output,
            Slot::Pending(future) => {
                let output = future.await;
                noticed(i);
                output
            }
        });
    }
    outputs
}

/// The most that the next write may hand over: an object is handed over in pieces of at most one buffer.
#[must_use]
pub fn next_piece(left: u64, object_left: u64) -> usize {
    left.min(object_left).min(BUFFER as u64) as usize
}

/// Page by page like the buffer of the C peers, and no zeroes: see `fill` in `common.h`.
#[repr(align(4096))]
struct Payload([u8; BUFFER]);

static PAYLOAD: Payload = Payload([0x5a; BUFFER]);

/// The first `n` bytes of what is sent.
#[must_use]
pub fn payload(n: usize) -> &'static [u8] {
    PAYLOAD.0.get(..n).unwrap_or(&PAYLOAD.0)
}

/// Sends what a flow has to send and closes its direction; returns how much it was.
///
/// # Errors
/// Those of the flow.
pub async fn push<W: AsyncWrite + Unpin>(flow: &mut W, args: &Args) -> io::Result<u64> {
    for piece in pieces(args) {
        flow.write_all(piece).await?;
    }
    flow.shutdown().await?;
    Ok(args.bytes_per_flow())
}

/// What a flow sends, write by write.
pub fn pieces(args: &Args) -> impl Iterator<Item = &'static [u8]> {
    let (mut left, mut object_left, object) = (args.bytes_per_flow(), args.object, args.object);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let piece = next_piece(left, object_left);
        left -= piece as u64;
        object_left -= piece as u64;
        if object_left == 0 {
            object_left = object;
        }
        Some(payload(piece))
    })
}

/// When the first byte was read.
static FIRST_BYTE: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// All flows read into one buffer: an idle flow costs none.
    static READ: RefCell<[u8; BUFFER]> = const { RefCell::new([0; BUFFER]) };
}

/// What the tasks of a server count together: one reference for each, and one thing to wait for.
#[derive(Debug, Default)]
pub struct Served {
    closed: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    /// All flows that are expected have ended.
    pub over: Notify,
}

impl Served {
    /// A flow has ended; `want` are expected.
    pub fn ended(&self, got: &io::Result<u64>, want: u64) {
        match got {
            Ok(n) => self.bytes.fetch_add(*n, Ordering::Relaxed),
            Err(e) => {
                eprintln!("a flow has failed: {e}");
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        if self.closed.fetch_add(1, Ordering::Relaxed) + 1 == want {
            self.over.notify_one();
        }
    }

    /// What there was in all.
    pub fn report(&self, tally: &mut Tally) {
        tally.done = self.closed.load(Ordering::Relaxed);
        tally.bytes = self.bytes.load(Ordering::Relaxed);
        tally.failed = self.failed.load(Ordering::Relaxed);
    }
}

/// Reads a flow to its end; returns how much it was.
///
/// # Errors
/// Those of the flow.
pub async fn pull<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<u64> {
    pull_by(|cx, buffer| {
        let mut buf = ReadBuf::new(buffer);
        Pin::new(&mut *flow).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
    })
    .await
}

/// As [`pull`], by a function that reads once.
///
/// # Errors
/// Those of the flow.
pub async fn pull_by(mut read: impl FnMut(&mut Context<'_>, &mut [u8]) -> Poll<io::Result<usize>>) -> io::Result<u64> {
    let mut total = 0;
    // The buffer is taken once for all that there is to be read now, as a program with a buffer of its own has it at hand.
    poll_fn(|cx| {
        READ.with_borrow_mut(|buffer| {
            loop {
                let n = ready!(read(cx, buffer))?;
                if n == 0 {
                    return Poll::Ready(Ok(total));
                }
                if total == 0 {
                    FIRST_BYTE.get_or_init(Instant::now);
                }
                total += n as u64;
            }
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_line_becomes_arguments_or_says_what_is_wrong() {
        let a = parse("send --addr [::1]:80 --flows 8 --bytes 80 --object 7 --security quic --delays").expect("valid");
        assert_eq!((a.mode, a.flows, a.bytes_per_flow(), a.object), (Mode::Send, 8, 10, 7));
        assert_eq!((a.security, a.delays, a.addr.port()), (Security::Quic, true, 80));
        for (line, word) in [
            ("", "mode"),
            ("client", "--addr is missing"),
            ("client --addr x", "IP:PORT"),
            ("client --addr 127.0.0.1:1 --flows 0", "out of range"),
            ("client --addr 127.0.0.1:1 --flows 100001", "out of range"),
            ("client --addr 127.0.0.1:1 --flows", "wants a value"),
            ("client --addr 127.0.0.1:1 --frobnicate 1", "unknown option"),
        ] {
            let why = parse(line).expect_err(line);
            assert!(why.contains(word), "{line}: {why}");
        }
        assert!(parse("server --addr 127.0.0.1:0 --flows 0").is_ok());
    }

    #[test]
    fn an_object_is_handed_over_in_pieces_of_at_most_one_buffer() {
        assert_eq!(next_piece(200_000, 100_000), BUFFER);
        assert_eq!(next_piece(200_000, 1_000), 1_000);
        assert_eq!(next_piece(10, 1_000), 10);
        assert_eq!(payload(BUFFER + 1).len(), BUFFER);
    }

    #[test]
    fn what_is_pushed_is_pulled_to_its_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let args = parse("send --addr 127.0.0.1:1 --bytes 300000 --object 1000").expect("valid");
        let (mut a, mut b) = tokio::io::duplex(4096);
        let (sent, got) = runtime.block_on(async { tokio::join!(push(&mut a, &args), pull(&mut b)) });
        assert_eq!((sent.expect("sent"), got.expect("received")), (300_000, 300_000));
    }

    #[test]
    fn futures_that_are_started_at_once_are_all_noticed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let mut noticed = Vec::new();
        let outputs = runtime.block_on(all_at_once(
            5,
            |i| async move {
                if i % 2 == 1 {
                    tokio::task::yield_now().await;
                }
                i
            },
            |i| noticed.push(i),
        ));
        assert_eq!(outputs, [0, 1, 2, 3, 4]);
        assert_eq!(noticed, [0, 2, 4, 1, 3]);
    }
}
