//! The process has no descriptor left: every operation reports it, nothing spins, and all goes on
//! when descriptors come back. Alone in its process, because it limits descriptors.

#![allow(unsafe_code, reason = "limits of the process, and poll(2)")]

mod common;

use common::{LIMIT, loopback, security};
use neater::{Connection, Event, Neater, Preconnection, RemoteEndpoint, SecurityParameters, Stack};
use std::cell::Cell;
use std::future::Future;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const TOO_MANY: &str = "too many open files";

/// Drives an engine, and counts its turns.
struct Loop {
    driver: neater::Driver,
    turns: Cell<u32>,
}

impl Loop {
    fn turn(&self, until: Instant) {
        let mut fd = libc::pollfd { fd: self.driver.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: the last fraction of a millisecond is not to be spent turning.
        let wait = until.saturating_duration_since(Instant::now()).as_millis() + 1;
        let wait = wait.try_into().unwrap_or(i32::MAX);
        // SAFETY: one pollfd, and the count is one.
        unsafe { libc::poll(&mut fd, 1, wait) };
        self.driver.turn();
        self.turns.set(self.turns.get() + 1);
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, until) = (pin!(future), Instant::now() + LIMIT);
        loop {
            if let Poll::Ready(v) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return v;
            }
            assert!(Instant::now() < until, "it takes too long");
            self.turn(until);
        }
    }

    /// Lets time pass; returns how many turns that took.
    fn pass(&self, time: Duration) -> u32 {
        let (before, until) = (self.turns.get(), Instant::now() + time);
        while Instant::now() < until {
            self.turn(until);
        }
        self.turns.get() - before
    }
}

/// While it lives, no descriptor can be opened.
struct Exhausted(libc::rlimit);

impl Exhausted {
    fn new() -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it is filled in.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) }, 0);
        let none = libc::rlimit { rlim_cur: 3, ..before };
        // SAFETY: it is read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
        Self(before)
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        // SAFETY: it is read.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

/// A name server that knows one address for every name.
struct NameServer {
    addr: std::net::SocketAddr,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl NameServer {
    fn new() -> Self {
        let socket = UdpSocket::bind(loopback(0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let (addr, done) = (socket.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let over = done.clone();
        let thread = std::thread::spawn(move || {
            let mut buf = [0; 1500];
            while !over.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buf) else { continue };
                // Header, then the question: a name, its type, its class.
                let Some(name) = buf[12..n].iter().position(|b| *b == 0) else { continue };
                let question = buf[12..12 + name + 5].to_vec();
                let is_a = question[name + 1..name + 3] == [0, 1];
                let mut answer = vec![buf[0], buf[1], 0x85, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
                answer.extend(question);
                if is_a {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
                }
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { addr, done, thread: Some(thread) }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn plain(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

fn works(events: &Loop, ours: &Connection, theirs: &Connection) {
    events.wait(ours.send("hello")).expect("sent");
    assert_eq!(&events.wait(theirs.receive()).expect("alive").expect("a message")[..], b"hello");
}

#[test]
fn the_lack_of_descriptors_is_told_and_nothing_spins_and_all_goes_on_when_they_are_back() {
    let (client, server) = security();
    let name_server = NameServer::new();
    let resolv_conf = std::env::temp_dir().join(format!("neater-exhaustion-{}", std::process::id()));
    std::fs::write(&resolv_conf, format!("nameserver {}#{}\n", name_server.addr.ip(), name_server.addr.port()))
        .expect("written");
    let builder = Neater::builder().resolv_conf(&resolv_conf).hosts("/dev/null");
    let (neater, driver) = builder.without_driver().expect("engine");
    let events = Loop { driver, turns: Cell::new(0) };
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let heard = move |event: &Event| {
        if let Event::ListenerError(e) = event {
            assert!(e.to_string().contains(TOO_MANY), "{e}");
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let listener = plain(&neater).on_event(heard).local(loopback(0)).listen().expect("listening");
    let at = loopback(listener.port());
    let secure = neater.preconnection().security(server).local(loopback(0)).listen().expect("listening");
    let secure_at = loopback(secure.port());
    // A silent peer, which takes what is sent to it.
    let silent = TcpListener::bind(loopback(0)).expect("bound");

    making_connections_and_listeners(&neater, &events, &client, at, secure_at);
    accepting(&neater, &events, &listener, at, &told);
    racing(&neater, &events, &client, &secure, secure_at, &silent);
    resolving(&neater, &events, &listener, at);
    let _ = std::fs::remove_file(&resolv_conf);
}

fn making_connections_and_listeners(
    neater: &Neater,
    events: &Loop,
    client: &SecurityParameters,
    at: std::net::SocketAddr,
    secure_at: std::net::SocketAddr,
) {
    let lack = Exhausted::new();
    let over_tcp = plain(neater).remote(at);
    let over_any = neater.preconnection().security(client.clone()).remote(secure_at);
    for pre in [over_tcp, over_any] {
        let error = events.wait(pre.initiate()).expect_err("there is no descriptor for it");
        assert!(error.to_string().contains(TOO_MANY), "{error}");
    }
    let error = plain(neater).local(loopback(0)).listen().expect_err("there is no descriptor for it");
    assert!(error.to_string().contains(TOO_MANY), "{error}");
    let turns = events.pass(Duration::from_millis(500));
    assert!(turns < 50, "{turns} turns with nothing to do");
    assert!(Neater::builder().without_driver().is_err());
    drop(lack);
    assert_eq!(neater.stats().connections, 0, "failed attempts leave nothing");
}

fn accepting(
    neater: &Neater,
    events: &Loop,
    listener: &neater::Listener,
    at: std::net::SocketAddr,
    told: &AtomicUsize,
) {
    let early: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(at).expect("connected")).collect();
    // One is here, the others wait in the kernel when descriptors run out.
    let first = events.wait(listener.accept()).expect("a connection");
    let late: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(at).expect("connected")).collect();
    let lack = Exhausted::new();
    let turns = events.pass(Duration::from_secs(1));
    assert!(turns < 100, "{turns} turns in a second in which nothing could be accepted");
    let told = told.load(Ordering::Relaxed);
    assert!((1..=20).contains(&told), "the program was told {told} times");
    drop(lack);
    let others: Vec<_> = (0..5).map(|_| events.wait(listener.accept()).expect("a connection")).collect();
    drop((early, late, first, others));
    let ours = events.wait(plain(neater).remote(at).initiate()).expect("connected");
    works(events, &ours, &events.wait(listener.accept()).expect("a connection"));
}

fn racing(
    neater: &Neater,
    events: &Loop,
    client: &SecurityParameters,
    secure: &neater::Listener,
    secure_at: std::net::SocketAddr,
    silent: &TcpListener,
) {
    let silent_at = silent.local_addr().expect("bound");
    let pre = neater.preconnection().security(client.clone()).stacks(&[Stack::Tls]);
    let pre = pre.remote(silent_at).remote(secure_at);
    let connection = pre.initiate().connection().expect("begun");
    events.pass(Duration::from_millis(50));
    let (mut held, _) = silent.accept().expect("the first attempt");
    let lack = Exhausted::new();
    // The time of the second attempt comes, and it cannot be made.
    let turns = events.pass(Duration::from_secs(1));
    assert!(turns < 100, "{turns} turns in a second of waiting");
    drop(lack);
    let _ = held.read(&mut [0; 2000]);
    drop(held);
    let error = events.wait(connection.ready()).expect_err("neither attempt can succeed");
    assert!(error.to_string().contains(TOO_MANY), "{error}");
    assert!(error.candidates.len() == 2, "{error}");
    drop(connection);
    // The next one races as if nothing had been.
    let pre = neater.preconnection().security(client.clone()).stacks(&[Stack::Tls]);
    let ours = events.wait(pre.remote(secure_at).initiate()).expect("connected");
    works(events, &ours, &events.wait(secure.accept()).expect("a connection"));
}

fn resolving(neater: &Neater, events: &Loop, listener: &neater::Listener, at: std::net::SocketAddr) {
    let named = |name: &str| {
        let remote: RemoteEndpoint = format!("{name}:{}", at.port()).parse().expect("a name");
        plain(neater).remote(remote)
    };
    let lack = Exhausted::new();
    let before = events.turns.get();
    let started = Instant::now();
    let error = events.wait(named("one.test").initiate()).expect_err("nobody can be asked");
    assert!(error.to_string().contains(TOO_MANY), "{error}");
    let turns = events.turns.get() - before;
    assert!(turns < 200, "{turns} turns in {:?} of resolving in vain", started.elapsed());
    drop(lack);
    let goes_on = |name: &str| {
        let ours = events.wait(named(name).initiate()).unwrap_or_else(|e| panic!("{e}"));
        works(events, &ours, &events.wait(listener.accept()).expect("a connection"));
    };
    goes_on("one.test");
    goes_on("two.test");
    // The name server is known now, and there is no descriptor to ask it by.
    let lack = Exhausted::new();
    let before = events.turns.get();
    let error = events.wait(named("three.test").initiate()).expect_err("nobody can be asked");
    assert!(error.to_string().contains(TOO_MANY), "{error}");
    assert!(events.turns.get() - before < 200);
    drop(lack);
    goes_on("three.test");
}
