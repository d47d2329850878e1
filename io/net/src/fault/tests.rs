//! Faults over real loopback sockets.

use super::*;
use crate::OsNet;
use neater_base::net::Ecn;
use std::os::fd::AsRawFd;

const PATIENCE: Duration = Duration::from_secs(10);

type Bad = FaultNet<OsNet>;

fn bad(seed: u64, rates: FaultRates) -> Bad {
    FaultNet::new(OsNet::new().unwrap(), Rng::from_number(seed), rates)
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Sleeps on the descriptor alone, polls, and appends what happened.
fn turn(net: &mut Bad, events: &mut Vec<NetEvent>) {
    net.arm(None, false);
    let descriptor = net.inner().as_raw_fd();
    wait(descriptor);
    net.poll(events);
}

#[allow(unsafe_code, reason = "waiting is not what the crate does")]
fn wait(fd: i32) {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid `pollfd`.
    let n = unsafe { libc::poll(&mut poll, 1, PATIENCE.as_millis() as libc::c_int) };
    assert_eq!(n, 1, "nothing happens any more: an event was lost");
}

/// What is ready, by token.
#[derive(Default)]
struct Readiness(BTreeMap<u64, Ready>);

impl Readiness {
    fn take(&mut self, events: &mut Vec<NetEvent>) {
        for event in events.drain(..) {
            if let NetEvent::Ready { token, ready } = event {
                let entry = self.0.entry(token.0).or_default();
                *entry = merge(*entry, ready);
            }
        }
    }
}

/// Repeats an operation until it is not refused, and only after readiness was reported.
fn patiently<T>(
    net: &mut Bad,
    readiness: &mut Readiness,
    token: u64,
    mask: Ready,
    mut operation: impl FnMut(&mut Bad) -> Result<T>,
) -> Result<T> {
    loop {
        match operation(net) {
            Err(e) if e.is_would_block() => {
                let entry = readiness.0.entry(token).or_default();
                if mask.readable {
                    entry.readable = false;
                }
                if mask.writable {
                    entry.writable = false;
                }
                let ready = |r: &Readiness| {
                    r.0.get(&token).is_some_and(|e| (mask.readable && e.readable) || (mask.writable && e.writable))
                };
                let mut events = Vec::new();
                while !ready(readiness) {
                    turn(net, &mut events);
                    readiness.take(&mut events);
                }
            }
            result => return result,
        }
    }
}

fn connect(net: &mut Bad, readiness: &mut Readiness) -> (Sock, Sock) {
    let plain = SocketOptions::default();
    let l = net.listen(Token(0), any(), &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, &plain).unwrap();
    patiently(net, readiness, 1, WRITE, |net| net.connect_result(c)).unwrap();
    let (s, _) = patiently(net, readiness, 0, READ, |net| net.accept(l, Token(2))).unwrap();
    net.close(l);
    (c, s)
}

#[test]
fn bytes_arrive_complete_and_in_order_whatever_the_faults() {
    let mut rare = (0, 0);
    for seed in 0..5 {
        let mut net = bad(seed, FaultRates::nasty());
        let mut readiness = Readiness::default();
        let (c, s) = connect(&mut net, &mut readiness);
        let sent: Vec<u8> = (0..50_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let (mut written, mut received, mut buf) = (0, Vec::new(), vec![0; 1000]);
        while received.len() < sent.len() {
            if written < sent.len() {
                let rest = &sent[written..sent.len().min(written + 2000)];
                let (a, b) = rest.split_at(rest.len().min(700));
                written += patiently(&mut net, &mut readiness, 1, WRITE, |net| {
                    net.write(c, &[IoSlice::new(&[]), IoSlice::new(a), IoSlice::new(b)])
                })
                .unwrap();
            }
            let n = patiently(&mut net, &mut readiness, 2, READ, |net| net.read(s, &mut buf)).unwrap();
            assert!(n > 0);
            received.extend_from_slice(&buf[..n]);
        }
        assert_eq!(received, sent);
        net.close(c);
        assert_eq!(patiently(&mut net, &mut readiness, 2, READ, |net| net.read(s, &mut buf)), Ok(0));
        let c = net.counts();
        assert!(c.short_read > 0 && c.short_write > 0 && c.would_block > 0, "{c:?}");
        assert!(c.reset == 0 && c.too_many_files == 0);
        rare = (rare.0 + c.late_event, rare.1 + c.spurious_event);
    }
    assert!(rare.0 > 0 && rare.1 > 0);
}

#[test]
fn a_reset_is_final_and_the_peer_sees_it() {
    let mut net = bad(3, FaultRates::NONE);
    let mut readiness = Readiness::default();
    let (c, s) = connect(&mut net, &mut readiness);
    net.set_rates(FaultRates { reset: 1.0, ..FaultRates::NONE });
    let kind = |r: Result<usize>| r.unwrap_err().kind;
    assert_eq!(kind(net.write(c, &[IoSlice::new(b"x")])), ErrorKind::ConnectionReset);
    net.set_rates(FaultRates::NONE);
    assert_eq!(kind(net.read(c, &mut [0; 8])), ErrorKind::ConnectionReset);
    assert!(net.shutdown_write(c).is_err());
    let mut events = Vec::new();
    let told = |events: &[NetEvent], token| {
        events.iter().any(|e| matches!(e, NetEvent::Ready { token: t, ready } if *t == Token(token) && ready.error))
    };
    while !(told(&events, 1) && told(&events, 2)) {
        turn(&mut net, &mut events);
    }
    assert_eq!(kind(net.read(s, &mut [0; 8])), ErrorKind::ConnectionReset);
    net.close(c);
    net.close(s);
    assert_eq!(net.counts().reset, 1);
}

#[test]
fn without_descriptors_nothing_opens_and_the_queue_keeps_what_it_has() {
    let mut net = bad(4, FaultRates::NONE);
    let plain = SocketOptions::default();
    let l = net.listen(Token(0), any(), &plain).unwrap();
    let to = net.local_addr(l).unwrap();
    let c = net.connect(Token(1), to, &plain).unwrap();
    let mut readiness = Readiness::default();
    patiently(&mut net, &mut readiness, 1, WRITE, |net| net.connect_result(c)).unwrap();
    net.set_rates(FaultRates { too_many_files: 1.0, ..FaultRates::NONE });
    for result in [
        net.accept(l, Token(2)).map(|_| ()),
        net.udp(Token(2), any(), &plain).map(|_| ()),
        net.connect(Token(2), to, &plain).map(|_| ()),
        net.listen(Token(2), any(), &plain).map(|_| ()),
    ] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::TooManyFiles);
    }
    net.set_rates(FaultRates::NONE);
    net.accept(l, Token(2)).unwrap();
    assert_eq!(net.counts().too_many_files, 4);
}

#[test]
fn datagrams_that_are_refused_can_be_sent_later() {
    let mut net = bad(5, FaultRates { no_buffers: 0.5, would_block: 0.5, ..FaultRates::NONE });
    let (a, b) = (net.udp(Token(1), any(), &SocketOptions::default()).unwrap(), {
        let options = SocketOptions { local: Some(any()), ..SocketOptions::default() };
        net.udp(Token(2), any(), &options).unwrap()
    });
    let destination = net.local_addr(b).unwrap();
    let (mut readiness, mut batch, mut got) = (Readiness::default(), RecvBatch::default(), Vec::new());
    for i in 0..30u8 {
        let contents = [i];
        let transmit = Transmit {
            destination,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: &contents,
        };
        loop {
            match patiently(&mut net, &mut readiness, 1, WRITE, |net| net.send(a, &transmit)) {
                Ok(()) => break,
                Err(e) => assert_eq!(e.kind, ErrorKind::NoBuffers),
            }
        }
        patiently(&mut net, &mut readiness, 2, READ, |net| net.recv(b, &mut batch)).unwrap();
        got.extend(batch.filled().map(|(_, data)| data[0]));
    }
    assert_eq!(got, (0..30).collect::<Vec<_>>());
    assert!(net.counts().no_buffers > 0);
    assert!(batch.metas.len() == 1);
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    let run = |seed| {
        let mut net = bad(seed, FaultRates { short_write: 0.5, would_block: 0.3, ..FaultRates::NONE });
        net.set_rates(FaultRates::NONE);
        let (c, _s) = connect(&mut net, &mut Readiness::default());
        net.set_rates(FaultRates { short_write: 0.5, would_block: 0.3, ..FaultRates::NONE });
        (0..40).map(|_| net.write(c, &[IoSlice::new(&[0; 50])]).ok()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn events_of_closed_sockets_are_not_held_for_their_successors() {
    let mut net = bad(6, FaultRates { late_event: 1.0, would_block: 1.0, ..FaultRates::NONE });
    let a = net.udp(Token(1), any(), &SocketOptions::default()).unwrap();
    assert!(net.recv(a, &mut RecvBatch::default()).unwrap_err().is_would_block());
    let mut events = Vec::new();
    net.poll(&mut events);
    net.close(a);
    assert!(net.owed.is_empty());
    let end = net.now() + Duration::from_millis(60);
    while net.now() < end {
        std::thread::sleep(Duration::from_millis(10));
        net.poll(&mut events);
    }
    assert_eq!(events, []);
    assert!(net.held.is_empty());
}
