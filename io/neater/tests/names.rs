//! Names that the program or the system's resolver finds the addresses of, over real sockets.

#![allow(unsafe_code, reason = "poll")]

mod common;

use common::LIMIT;
use neater::{LocalEndpoint, Lookup, Neater, RemoteEndpoint, SecurityParameters, Stack};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Connects by a name to a listener on 127.0.0.1, and returns the result.
async fn connect(neater: &Neater, name: &str) -> Result<(), String> {
    let plain = || neater.preconnection().stacks(&[Stack::Tcp]).security(SecurityParameters::disabled());
    let listener = plain()
        .local(LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0))))
        .listen()
        .expect("listening");
    let remote = RemoteEndpoint::new().with_host_name(name).with_port(listener.port());
    match tokio::time::timeout(LIMIT, plain().remote(remote).initiate()).await.expect("it ends") {
        Ok(c) => {
            let from = tokio::time::timeout(LIMIT, listener.accept()).await.expect("in time").expect("accepted");
            drop((c, from));
            Ok(())
        }
        Err(e) => Err(e.to_string()),
    }
}

#[tokio::test]
async fn the_program_answers_at_once_or_later_from_any_thread() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let answer = move |lookup: Lookup| {
        count.fetch_add(1, Ordering::Relaxed);
        match lookup.name() {
            "now.directory" => lookup.answer(&[HERE], LONG),
            "later.directory" => drop(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                lookup.answer(&[HERE], Duration::ZERO);
            })),
            "none.directory" => lookup.no_such_name(),
            "bad.directory" => panic!("the test's"),
            // Forgotten.
            _ => drop(lookup),
        }
    };
    let neater = Neater::builder().names_by(answer).build().expect("engine");
    for name in ["now.directory", "now.directory", "later.directory"] {
        assert_eq!(connect(&neater, name).await, Ok(()), "{name}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "what holds is not asked again");
    assert_eq!(connect(&neater, "localhost").await, Ok(()));
    assert_eq!(asked.load(Ordering::Relaxed), 2, "this host's own");
    for (name, says) in
        [("none.directory", "no such name"), ("bad.directory", "has failed"), ("other.directory", "has failed")]
    {
        let said = connect(&neater, name).await.expect_err(name);
        assert!(said.contains(says), "{name}: {said}");
    }
}

#[test]
fn without_tokio_the_descriptor_tells_of_an_answer() {
    let kept: Arc<Mutex<Vec<Lookup>>> = Arc::default();
    let keep = kept.clone();
    let builder = Neater::builder().names_by(move |lookup| keep.lock().expect("its lock").push(lookup));
    let (neater, driver) = builder.without_driver().expect("engine");
    let plain = || neater.preconnection().stacks(&[Stack::Tcp]).security(SecurityParameters::disabled());
    let listener = plain()
        .local(LocalEndpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0))))
        .listen()
        .expect("listening");
    let remote = RemoteEndpoint::new().with_host_name("a.directory").with_port(listener.port());
    let mut opening = Box::pin(plain().remote(remote).initiate());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(opening.as_mut().poll(&mut cx).is_pending());
    let wait = |ms: i32| {
        let mut p = libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(&driver), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&mut p, 1, ms) == 1 }
    };
    let begin = std::time::Instant::now();
    while kept.lock().expect("its lock").is_empty() {
        assert!(wait(5000) && begin.elapsed() < LIMIT, "the question is there");
        driver.turn();
    }
    while wait(0) {
        driver.turn();
    }
    let lookup = kept.lock().expect("its lock").pop().expect("a question");
    let other = std::thread::spawn(move || lookup.answer(&[HERE], LONG));
    loop {
        assert!(wait(5000) && begin.elapsed() < LIMIT, "the answer makes the descriptor readable");
        driver.turn();
        if let std::task::Poll::Ready(done) = opening.as_mut().poll(&mut cx) {
            break drop(done.expect("connected"));
        }
    }
    other.join().expect("it answered");
}

#[tokio::test]
async fn a_lookup_outlives_its_engine_and_answers_nobody() {
    let kept: Arc<Mutex<Vec<Lookup>>> = Arc::default();
    let keep = kept.clone();
    let neater = Neater::builder().names_by(move |l| keep.lock().expect("its lock").push(l)).build().expect("engine");
    let remote = RemoteEndpoint::new().with_host_name("a.directory").with_port(9);
    let pre = neater.preconnection().stacks(&[Stack::Tcp]).security(SecurityParameters::disabled()).remote(remote);
    let gone = tokio::time::timeout(Duration::from_millis(100), pre.initiate()).await;
    assert!(gone.is_err(), "nobody has answered");
    drop((pre, neater));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let lookups = core::mem::take(&mut *kept.lock().expect("its lock"));
    assert_eq!(lookups.len(), 1);
    for lookup in lookups {
        lookup.answer(&[HERE], LONG);
    }
}

#[tokio::test]
async fn the_system_answers_what_no_name_server_was_told() {
    // A name of this machine's hosts file, which our resolver is not given: only the system's can
    // know it.
    let system = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let words = |line: &str| -> Vec<String> {
        line.split('#').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let names = system.lines().map(words).filter(|w| w.first().is_some_and(|a| a.starts_with("127.")));
    let Some(name) = names.flat_map(|w| w.into_iter().skip(1)).find(|n| !n.starts_with("localhost")) else {
        return println!("SKIP: the system's resolver: /etc/hosts has no name for 127.x but localhost");
    };
    let builder = Neater::builder().hosts("/dev/null").resolv_conf("/dev/null");
    let neater = builder.names_by_system().build().expect("engine");
    // Debian's 127.0.1.1 has no listener: then the connection is refused, and the name was found.
    if let Err(said) = connect(&neater, &name).await {
        assert!(said.contains("refused"), "{name}: {said}");
    }
    let said = connect(&neater, "no-such-name.invalid-for-the-test").await.expect_err("there is none");
    assert!(said.contains("no such name") || said.contains("has failed"), "{said}");
}
