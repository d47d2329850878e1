//! A child of `fork` cannot use its parent's engine and does its parent no harm.

#![allow(unsafe_code, reason = "fork")]

mod common;

use common::{LIMIT, loopback, security};
use neater::{
    AttemptError, ByteStream, Connection, ConnectionState, EstablishmentError, Event, Fate, FramerSpec, Group,
    Listener, MessageContext, Neater, Preconnection, Role, SecurityParameters, Stack, StreamDirection,
};
use neater_base::net::ErrorKind;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Drives an engine by poll(2) until a future ends.
fn drive<T>(driver: &neater::Driver, future: impl Future<Output = T>) -> T {
    let (mut future, until) = (pin!(future), Instant::now() + LIMIT);
    loop {
        if let Poll::Ready(v) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return v;
        }
        assert!(Instant::now() < until, "it takes too long");
        let mut fd = libc::pollfd { fd: driver.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and the count is one.
        unsafe { libc::poll(&mut fd, 1, 1000) };
        driver.turn();
    }
}

fn forked(e: &EstablishmentError) -> bool {
    let by_fate = |f: &Fate| matches!(f, Fate::Failed(AttemptError::Net(n)) if n.kind == ErrorKind::Forked);
    e.candidates.iter().any(|c| by_fate(&c.fate)) || e.message.contains(ErrorKind::Forked.as_str())
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(v) => Some(v),
        Poll::Pending => None,
    }
}

fn says_forked(what: &dyn core::fmt::Display) -> bool {
    what.to_string().contains(ErrorKind::Forked.as_str())
}

/// What the child has inherited.
struct Inherited {
    plain: Connection,
    secure: Connection,
    stream: Connection,
    bytes: ByteStream,
    group: Group,
    establishing: Connection,
    listener: Listener,
}

fn tells_forked(event: &Event) -> bool {
    matches!(event, Event::ConnectionError(e) if says_forked(e))
}

/// Every call on one connection reports it, each as the first one.
fn no_call_succeeds(inherited: &Connection) -> Result<(), &'static str> {
    let context = MessageContext::new();
    let fails = |what: &'static str, failed: Option<bool>| if failed == Some(true) { Ok(()) } else { Err(what) };
    fails("send", now(inherited.send("from the child")).map(|r| r.is_err_and(|e| says_forked(&e))))?;
    fails("try_send", Some(inherited.try_send("from the child", &context).is_err_and(|e| says_forked(&e))))?;
    fails("receive", now(inherited.receive()).map(|r| r.is_err_and(|e| says_forked(&e))))?;
    fails("finish", Some(inherited.finish().is_err_and(|e| says_forked(&e))))?;
    fails("clone", Some(inherited.clone_connection().is_err_and(|e| forked(&e))))?;
    fails("group", Some(inherited.group().is_err_and(|e| says_forked(&e))))?;
    fails("closed", now(inherited.closed()).map(|r| r.is_err_and(|e| says_forked(&e))))?;
    fails("next_event", now(inherited.next_event()).map(|e| e.is_none_or(|e| tells_forked(&e))))?;
    fails("close", now(inherited.close()).map(|r| r.is_err_and(|e| says_forked(&e))))?;
    fails("state", Some(inherited.state() == ConnectionState::Closed))
}

/// What the child does; its exit status shows which of its expectations was wrong.
fn child(neater: &Neater, driver: &neater::Driver, inherited: &mut Inherited, port: u16) -> i32 {
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    for connection in [&inherited.plain, &inherited.secure, &inherited.stream] {
        if let Err(what) = no_call_succeeds(connection) {
            eprintln!("{:?}: {what}", connection.stack());
            return 10;
        }
    }
    match now(inherited.establishing.ready()) {
        Some(Err(e)) if forked(&e) => {}
        other => {
            eprintln!("ready: {other:?}");
            return 11;
        }
    }
    if now(inherited.listener.accept()).is_none_or(|c| c.is_some()) {
        return 12;
    }
    if now(inherited.group.accept()).is_none_or(|r| !r.is_err_and(|e| says_forked(&e)))
        || !inherited.group.open(StreamDirection::Both).is_err_and(|e| forked(&e))
    {
        return 13;
    }
    let (mut cx, mut buf) = (Context::from_waker(Waker::noop()), [0; 8]);
    // Nothing was there to read: the socket need not be asked, but the owning process must be
    // checked.
    let read = inherited.bytes.poll_read_bytes(&mut cx, &mut buf);
    if !matches!(&read, Poll::Ready(Err(e)) if says_forked(e)) {
        eprintln!("read: {read:?}");
        return 14;
    }
    match now(pre.clone().remote(loopback(port)).initiate()) {
        Some(Err(e)) if forked(&e) => {}
        other => {
            eprintln!("initiate: {other:?}");
            return 1;
        }
    }
    match pre.local(loopback(0)).listen() {
        Err(e) if forked(&e) => {}
        other => {
            eprintln!("listen: {other:?}");
            return 2;
        }
    }
    for _ in 0..3 {
        driver.turn();
    }
    if let Err(what) = no_call_succeeds(&inherited.plain) {
        eprintln!("after a turn: {what}");
        return 3;
    }
    // An engine of its own works.
    let Ok((own, driver)) = Neater::builder().without_driver() else { return 4 };
    let pre = own.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let Ok(listener) = pre.clone().local(loopback(0)).listen() else { return 5 };
    let Ok(ours) = drive(&driver, pre.remote(loopback(listener.port())).initiate()) else { return 6 };
    drop((ours, listener));
    0
}

/// Runs something in a child that gets its own copy of what it takes, and waits for its end.
fn in_a_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child uses this thread's state only, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        // SAFETY: nothing of the parent's is flushed or dropped.
        unsafe { libc::_exit(code.unwrap_or(99)) };
    }
    let (mut status, until) = (0, Instant::now() + LIMIT);
    // SAFETY: `pid` is our child, and `status` an int.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > until {
            // SAFETY: it is our child, not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(libc::WIFEXITED(status), "status {status:x}");
    libc::WEXITSTATUS(status)
}

fn pair(driver: &neater::Driver, client: Preconnection, server: Preconnection) -> (Connection, Connection, Listener) {
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1000 };
    let listener = server.framer(framer.clone()).local(loopback(0)).listen().expect("listening");
    let ours = drive(driver, client.framer(framer).remote(loopback(listener.port())).initiate()).expect("connected");
    drive(driver, ours.send("first")).expect("sent");
    let theirs = drive(driver, listener.accept()).expect("a connection");
    drive(driver, theirs.receive()).expect("alive").expect("a message");
    (ours, theirs, listener)
}

/// A peer of the system's own, to which only what is really sent comes.
struct Peers {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
}

impl Peers {
    fn new() -> Self {
        let udp = std::net::UdpSocket::bind(loopback(0)).expect("a socket");
        let tcp = std::net::TcpListener::bind(loopback(0)).expect("a listener");
        udp.set_nonblocking(true).expect("set");
        Self { udp, tcp }
    }

    /// How many datagrams have come since the last question.
    fn datagrams(&self) -> usize {
        let mut buf = [0; 2000];
        core::iter::from_fn(|| self.udp.recv(&mut buf).ok()).count()
    }
}

#[test]
fn the_first_use_in_a_child_fails_and_the_parent_goes_on() {
    let (neater, driver) = Neater::builder().without_driver().expect("engine");
    let plain = || neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let (client, server) = security();
    let over =
        |security: &SecurityParameters, stack| neater.preconnection().security(security.clone()).stacks(&[stack]);
    let (ours, theirs, listener) = pair(&driver, plain(), plain());
    let port = listener.port();
    let (secure, their_secure, _l1) = pair(&driver, over(&client, Stack::Tls), over(&server, Stack::Tls));
    let (stream, their_stream, _l2) = pair(&driver, over(&client, Stack::Quic), over(&server, Stack::Quic));
    let group = stream.group().expect("a session");

    // To peers of the system's own: one that never answers, and one that never speaks.
    let peers = Peers::new();
    let mut quic = over(&client, Stack::Quic).remote(peers.udp.local_addr().expect("bound"));
    quic.compile(Role::Initiate).expect("possible");
    let establishing = quic.initiate().connection().expect("begun");
    let to_tcp = plain().remote(peers.tcp.local_addr().expect("bound"));
    let bytes = drive(&driver, to_tcp.connect_bytes()).expect("connected");
    let (accepted, _) = peers.tcp.accept().expect("connected");
    accepted.set_nonblocking(true).expect("set");
    for _ in 0..20 {
        driver.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut cx = Context::from_waker(Waker::noop());
    assert!(bytes.poll_read_bytes(&mut cx, &mut [0; 8]).is_pending());
    assert!(peers.datagrams() > 0, "the beginning of a handshake");

    let mut inherited = Inherited { plain: ours, secure, stream, bytes, group, establishing, listener };
    assert_eq!(in_a_child(|| child(&neater, &driver, &mut inherited, port)), 0, "see the child's code");
    // A child that only drops what it has inherited, by and by, and drives meanwhile.
    let mut kept = Some((inherited, neater, driver));
    let status = in_a_child(|| {
        let Some((inherited, neater, driver)) = kept.take() else { return 1 };
        let Inherited { plain, secure, stream, bytes, group, establishing, listener } = inherited;
        plain.abort();
        secure.abort_with(7);
        group.close_session(8, b"from the child");
        stream.reset_sending(9);
        drop((plain, secure, stream, bytes, group, establishing, listener));
        driver.turn();
        drop(neater);
        driver.turn();
        drop(driver);
        0
    });
    assert_eq!(status, 0);
    assert_eq!(peers.datagrams(), 0, "a child has sent packets of its parent's connection");
    let peek = accepted.peek(&mut [0; 8]).map_err(|e| e.kind());
    assert_eq!(peek, Err(std::io::ErrorKind::WouldBlock), "a child has ended its parent's connection");

    // The parent's connections have neither been closed nor written to.
    let (inherited, neater, driver) = kept.expect("the parent's");
    let Inherited { plain, secure, stream, .. } = &inherited;
    for (ours, theirs) in [(plain, &theirs), (secure, &their_secure), (stream, &their_stream)] {
        drive(&driver, ours.send("from the parent")).expect("sent");
        let message = drive(&driver, theirs.receive()).expect("alive").expect("a message");
        assert_eq!(&message[..], b"from the parent");
    }
    let pre = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let another = drive(&driver, pre.remote(loopback(port)).initiate()).expect("connected");
    drop((another, inherited, theirs));
}

/// A framer that reports that it runs, and goes on on command.
struct Held(std::sync::mpsc::Sender<()>, std::sync::Arc<std::sync::Mutex<std::sync::mpsc::Receiver<()>>>);

impl neater::Framer for Held {
    fn name(&self) -> &str {
        "held"
    }

    fn new_sent_message(
        &mut self,
        out: &mut neater::Outbound,
        data: bytes::Bytes,
        _: bool,
        _: bool,
    ) -> Result<(), neater::FramerError> {
        let _ = self.0.send(());
        let _ = self.1.lock().expect("one user").recv_timeout(LIMIT);
        out.pieces.push(data);
        Ok(())
    }

    fn handle_received_data(&mut self, _: &mut neater::Input<'_>) -> Result<neater::Readiness, neater::FramerError> {
        Ok(neater::Readiness::Ready)
    }
}

#[test]
fn a_child_is_answered_although_a_thread_of_its_parent_held_the_lock() {
    let (neater, driver) = Neater::builder().without_driver().expect("engine");
    let clear = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
    let listener = clear.clone().local(loopback(0)).listen().expect("listening");
    let (inside, told) = std::sync::mpsc::channel();
    let (go_on, waits) = std::sync::mpsc::channel();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
    let make = move || Box::new(Held(inside.clone(), waits.clone())) as Box<dyn neater::Framer>;
    let framed = clear.clone().framer(FramerSpec::Custom(std::sync::Arc::new(make)));
    let ours = drive(&driver, framed.remote(loopback(listener.port())).initiate()).expect("connected");
    std::thread::scope(|threads| {
        // A framer runs while the engine is locked.
        let sending = threads.spawn(|| now(ours.send("slowly")));
        told.recv_timeout(LIMIT).expect("the framer runs");
        let status = in_a_child(|| {
            if let Err(what) = no_call_succeeds(&ours) {
                eprintln!("{what}");
                return 1;
            }
            if !now(clear.clone().remote(loopback(9)).initiate()).is_some_and(|r| r.is_err_and(|e| forked(&e))) {
                return 2;
            }
            if now(listener.accept()).is_none_or(|c| c.is_some()) {
                return 3;
            }
            driver.turn();
            let Ok((own, driver)) = Neater::builder().without_driver() else { return 4 };
            drop((own, driver));
            0
        });
        go_on.send(()).expect("it waits");
        assert!(matches!(sending.join().expect("no panic"), Some(Ok(_))), "the parent's call goes on");
        assert_eq!(status, 0, "see the child's code");
    });
}

/// Also if a thread of the parent's had the family locked: numbers and secrets are the parent's.
#[test]
fn a_child_makes_no_siblings_of_its_parents_engines() {
    let shards = neater::EngineShards::new().expect("random numbers");
    let _ours = Neater::builder().shard_of(&shards).without_driver().expect("engine");
    let status = in_a_child(|| {
        let Err(refused) = Neater::builder().shard_of(&shards).without_driver() else { return 1 };
        if !refused.to_string().contains("make new ones") {
            return 2;
        }
        let Ok(own) = neater::EngineShards::new() else { return 3 };
        i32::from(Neater::builder().shard_of(&own).without_driver().is_err())
    });
    assert_eq!(status, 0, "see the child's code");
    Neater::builder().shard_of(&shards).without_driver().expect("the parent is none the worse");
}
