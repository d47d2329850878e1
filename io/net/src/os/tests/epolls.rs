//! The descriptor alone is enough, in every way of watching it.

use super::*;
use neater_base::net::Transmit;
use std::os::fd::{FromRawFd, OwnedFd};

const MODES: [(&str, u32); 3] = [("level", 0), ("edge", libc::EPOLLET as u32), ("one-shot", libc::EPOLLONESHOT as u32)];

/// Epolls inside one another, the innermost holding the descriptor of a net, all in one mode.
struct Chain {
    levels: Vec<OwnedFd>,
    watched: Vec<i32>,
    mode: u32,
}

impl Chain {
    fn new(net: &OsNet, depth: usize, mode: u32) -> Self {
        let mut chain = Self { levels: Vec::new(), watched: Vec::new(), mode };
        let mut inner = net.as_raw_fd();
        for _ in 0..depth {
            // SAFETY: makes a new descriptor, which has no other owner.
            let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
            chain.watched.insert(0, inner);
            inner = epoll.as_raw_fd();
            chain.levels.insert(0, epoll);
        }
        for i in 0..depth {
            chain.control(i, libc::EPOLL_CTL_ADD);
        }
        chain
    }

    fn control(&self, level: usize, operation: libc::c_int) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | self.mode, u64: 0 };
        let (epoll, fd) = (self.levels[level].as_raw_fd(), self.watched[level]);
        // SAFETY: `event` is valid.
        assert_eq!(unsafe { libc::epoll_ctl(epoll, operation, fd, &mut event) }, 0);
    }

    /// Waits as an application does, from the outside inwards; true if the news came through to the
    /// net.
    fn fired(&self, within: Duration) -> bool {
        for (i, level) in self.levels.iter().enumerate() {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // Only the outermost loop sleeps.
            let timeout = if i == 0 { within.as_millis() as libc::c_int } else { 0 };
            // SAFETY: room for one event.
            if unsafe { libc::epoll_wait(level.as_raw_fd(), &mut event, 1, timeout) } != 1 {
                return false;
            }
        }
        true
    }

    /// Ends a turn: one-shot watchers are set again, innermost first.
    fn again(&self) {
        if self.mode == libc::EPOLLONESHOT as u32 {
            for i in (0..self.levels.len()).rev() {
                self.control(i, libc::EPOLL_CTL_MOD);
            }
        }
    }
}

const SOON: Duration = Duration::from_millis(30);

/// Runs a test in every mode, one to three epolls deep, with a net that has nothing to report.
fn everywhere(test: impl Fn(&mut OsNet, &Chain)) {
    for (name, mode) in MODES {
        for depth in 1..=3 {
            eprintln!("{name}-triggered, {depth} deep");
            let mut net = OsNet::new().unwrap();
            let chain = Chain::new(&net, depth, mode);
            test(&mut net, &chain);
        }
    }
}

/// One turn of a driver; returns the events.
fn turn(net: &mut OsNet, chain: &Chain, deadline: Option<neater_base::Instant>, again: bool) -> Vec<NetEvent> {
    let mut events = Vec::new();
    net.poll(&mut events);
    net.arm(deadline, again);
    chain.again();
    events
}

#[test]
fn readiness_of_a_socket_makes_it_readable_each_time() {
    everywhere(|net, chain| {
        let a = net.udp(Token(1), at(V4), &bound(V4)).unwrap();
        let to = net.local_addr(a).unwrap();
        assert!(chain.fired(PATIENCE), "a new socket is writable");
        turn(net, chain, None, false);
        assert!(!chain.fired(Duration::ZERO), "quiet");
        let other = std::net::UdpSocket::bind((V4, 0)).unwrap();
        for _ in 0..3 {
            other.send_to(b"x", to).unwrap();
            assert!(chain.fired(PATIENCE));
            let events = turn(net, chain, None, false);
            assert!(matches!(events[..], [NetEvent::Ready { token: Token(1), ready }] if ready.readable));
            while net.recv(a, &mut neater_base::net::RecvBatch::default()).is_ok() {}
            assert!(!chain.fired(Duration::ZERO), "quiet");
        }
        net.close(a);
    });
}

#[test]
fn a_deadline_makes_it_readable_when_it_comes_and_not_before() {
    everywhere(|net, chain| {
        for _ in 0..2 {
            let at = net.now() + SOON;
            turn(net, chain, Some(at), false);
            assert!(net.timeout_ms() > 0 && net.timeout_ms() <= 30);
            assert!(chain.fired(PATIENCE));
            assert!(net.now() >= at, "not before");
            assert_eq!(net.timeout_ms(), 0);
            turn(net, chain, None, false);
            assert_eq!(net.timeout_ms(), -1);
            assert!(!chain.fired(Duration::ZERO), "quiet");
        }
        // One that has passed fires at once.
        turn(net, chain, Some(neater_base::Instant::ZERO), false);
        assert!(chain.fired(PATIENCE));
    });
}

#[test]
fn work_left_over_makes_a_new_edge_each_time() {
    everywhere(|net, chain| {
        turn(net, chain, None, true);
        for _ in 0..5 {
            assert!(chain.fired(Duration::ZERO), "without waiting");
            turn(net, chain, None, true);
        }
        assert!(chain.fired(Duration::ZERO));
        turn(net, chain, None, false);
        assert!(!chain.fired(Duration::ZERO), "quiet");
    });
}

#[test]
fn a_wake_up_from_another_thread_ends_the_wait() {
    everywhere(|net, chain| {
        let waker = net.waker();
        for _ in 0..3 {
            let (waker, start) = (waker.clone(), std::time::Instant::now());
            let thread = std::thread::spawn(move || {
                std::thread::sleep(SOON);
                // However often: once.
                (0..1000).for_each(|_| waker.wake());
            });
            assert!(chain.fired(PATIENCE));
            assert!(start.elapsed() >= SOON);
            thread.join().unwrap();
            assert!(turn(net, chain, None, false).is_empty());
            assert!(!chain.fired(Duration::ZERO), "quiet");
        }
    });
}

#[test]
fn what_is_put_in_place_before_waking_is_found_after_polling() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let mut net = OsNet::new().unwrap();
    let chain = Chain::new(&net, 2, libc::EPOLLET as u32);
    let (waker, work) = (net.waker(), std::sync::Arc::new(AtomicU32::new(0)));
    let given = work.clone();
    const PIECES: u32 = 20_000;
    let thread = std::thread::spawn(move || {
        for _ in 0..PIECES {
            given.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }
    });
    let mut done = 0;
    while done < PIECES {
        assert!(chain.fired(PATIENCE), "a wake-up was lost after {done} pieces");
        turn(&mut net, &chain, None, false);
        done += work.swap(0, Ordering::Relaxed);
    }
    thread.join().unwrap();
}

#[test]
fn a_later_deadline_does_not_move_the_timer_and_an_earlier_one_does() {
    let mut net = OsNet::new().unwrap();
    let t = |ms| Duration::from_millis(ms);
    let now = net.now();
    net.arm(Some(now + t(40)), false);
    net.arm(Some(now + t(9000)), false);
    assert_eq!(net.armed.unwrap().at, now + t(40));
    assert_eq!(net.next_deadline(), Some(now + t(9000)));
    net.arm(None, false);
    assert!(readable(net.as_raw_fd(), PATIENCE), "one wake-up too many is the price");
    assert!(!net.poll(&mut Vec::new()));
    assert!(net.armed.is_none());
    net.arm(Some(now + t(9000)), false);
    net.arm(Some(now + t(8000)), false);
    assert_eq!(net.armed.unwrap().at, now + t(8000));
    net.arm(Some(neater_base::Instant::FAR_FUTURE), false);
    assert_eq!(net.timeout_ms(), -1);
}

#[test]
fn a_deadline_that_outlives_an_early_wake_up_is_still_kept() {
    let mut net = OsNet::new().unwrap();
    let start = net.now();
    net.arm(Some(start + Duration::from_millis(10)), false);
    let late = start + Duration::from_millis(60);
    net.arm(Some(late), false);
    let mut wakes = 0;
    while net.now() < late {
        assert!(readable(net.as_raw_fd(), PATIENCE));
        wakes += 1;
        // Even if the driver does not arm again.
        net.poll(&mut Vec::new());
    }
    assert_eq!(wakes, 2);
}

#[test]
fn left_over_events_are_found_by_an_edge_triggered_watcher_through_again() {
    many_descriptors();
    let mut net = OsNet::new().unwrap();
    let chain = Chain::new(&net, 1, libc::EPOLLET as u32);
    let socks: Vec<_> = (0..600).map(|i| net.udp(Token(i), at(V4), &SocketOptions::default()).unwrap()).collect();
    let (mut seen, mut turns) = (0, 0);
    while seen < socks.len() {
        assert!(chain.fired(PATIENCE));
        let mut events = Vec::new();
        let more = net.poll(&mut events);
        seen += events.len();
        turns += 1;
        net.arm(None, more);
    }
    assert_eq!(turns, 3);
    let to = net.local_addr(socks[0]).unwrap();
    let to = SocketAddr::new(V4, to.port());
    let transmit = Transmit {
        destination: to,
        source: None,
        interface: None,
        ecn: Default::default(),
        segment_size: None,
        contents: b"x",
    };
    net.send(socks[1], &transmit).unwrap();
    assert!(chain.fired(PATIENCE));
}
