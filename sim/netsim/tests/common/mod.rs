//! A world of two hosts, programs that obey the contract of edge-triggered readiness, and an executor for them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use neater_base::net::{ErrorKind, InterfaceKind, Net, NetEvent, Ready, Sock, SocketOptions, Token};
use neater_base::{Instant, Rng};
use neater_link::LinkConfig;
use neater_netsim::{HostId, IfaceId, LinkId, SimNet, World};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

pub(crate) fn addr(s: &str) -> SocketAddr {
    s.parse().unwrap()
}

pub(crate) fn plain() -> SocketOptions {
    SocketOptions::default()
}

/// Two hosts with one interface each, connected directly.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) a: HostId,
    pub(crate) b: HostId,
    pub(crate) iface_a: IfaceId,
    pub(crate) iface_b: IfaceId,
    pub(crate) ab: LinkId,
    pub(crate) ba: LinkId,
}

pub(crate) const A4: &str = "192.0.2.1";
pub(crate) const B4: &str = "192.0.2.2";
pub(crate) const A6: &str = "2001:db8::1";
pub(crate) const B6: &str = "2001:db8::2";

pub(crate) fn pair_of(seed: u64, ab: LinkConfig, ba: LinkConfig) -> Pair {
    let world = World::new(seed);
    let (a, b) = (world.add_host("a"), world.add_host("b"));
    let ips = |v4: &str, v6: &str| [v4.parse().unwrap(), v6.parse().unwrap()];
    let iface_a = world.add_interface(a, "eth0", InterfaceKind::Wired, &ips(A4, A6));
    let iface_b = world.add_interface(b, "eth0", InterfaceKind::Wired, &ips(B4, B6));
    let (ab, ba) = world.connect(iface_a, iface_b, ab, ba);
    Pair { world, a, b, iface_a, iface_b, ab, ba }
}

pub(crate) fn pair(seed: u64, link: LinkConfig) -> Pair {
    pair_of(seed, link.clone(), link)
}

/// Advances event by event until `done`, at most for `limit`. False if it never was.
pub(crate) fn step_until(world: &World, limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = world.now() + limit;
    while !done() {
        match world.next_event() {
            Some(at) if at <= end => world.step(),
            _ => return done(),
        };
    }
    true
}

/// Lets `time` pass.
pub(crate) fn wait(world: &World, time: Duration) {
    world.run_until(world.now() + time);
}

/// An established connection from `a` to `b`: client socket, listener, accepted socket.
pub(crate) fn established(p: &Pair, client: &mut SimNet, server: &mut SimNet) -> (Sock, Sock, Sock) {
    let listener = server.listen(Token(1), addr("0.0.0.0:80"), &plain()).unwrap();
    let c = client.connect(Token(2), addr("192.0.2.2:80"), &plain()).unwrap();
    let mut s = None;
    assert!(step_until(&p.world, S * 10, || {
        s = s.or_else(|| server.accept(listener, Token(3)).ok().map(|(s, _)| s));
        s.is_some() && client.connect_result(c).is_ok()
    }));
    (c, listener, s.unwrap())
}

pub(crate) fn write(net: &mut SimNet, sock: Sock, bytes: &[u8]) -> Result<usize, ErrorKind> {
    net.write(sock, &[IoSlice::new(bytes)]).map_err(|e| e.kind)
}

pub(crate) fn read(net: &mut SimNet, sock: Sock) -> Result<Vec<u8>, ErrorKind> {
    let mut buf = vec![0; 1 << 20];
    let n = net.read(sock, &mut buf).map_err(|e| e.kind)?;
    buf.truncate(n);
    Ok(buf)
}

pub(crate) fn events(net: &mut SimNet) -> Vec<NetEvent> {
    let mut out = Vec::new();
    while net.poll(&mut out) {}
    out
}

pub(crate) fn readiness(net: &mut SimNet) -> Vec<(u64, Ready)> {
    let ready = |e: &NetEvent| if let NetEvent::Ready { token, ready } = e { Some((token.0, *ready)) } else { None };
    events(net).iter().filter_map(ready).collect()
}

pub(crate) fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::from_number(seed).fill(&mut out);
    out
}

/// A program that has its turn when its host has events.
pub(crate) trait Program {
    fn host(&self) -> HostId;
    fn turn(&mut self);
    fn done(&self) -> bool;
}

/// Runs programs until all are done; false if they are not at `limit`, or nothing happens any more.
pub(crate) fn run(world: &World, programs: &mut [&mut dyn Program], limit: Duration) -> bool {
    let end = world.now() + limit;
    loop {
        for program in programs.iter_mut() {
            if world.has_events(program.host()) {
                program.turn();
            }
        }
        if programs.iter().all(|p| p.done()) {
            return true;
        }
        let wakeup = world.next_wakeup().map(|(_, at)| at);
        match (world.next_event(), wakeup) {
            (Some(event), wakeup) if event <= end && wakeup.is_none_or(|w| event <= w) => drop(world.step()),
            (_, Some(wakeup)) if wakeup <= end => world.run_until(wakeup),
            _ => return false,
        }
    }
}

/// Connects, writes all bytes in chunks of random size, closes its direction and waits for the peer's end. It tries only
/// after an event, once it has been told to wait.
pub(crate) struct Sender {
    pub(crate) net: SimNet,
    pub(crate) sock: Sock,
    data: Vec<u8>,
    pos: usize,
    chunk: usize,
    rng: Rng,
    shut: bool,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: bool,
}

impl Sender {
    pub(crate) fn new(net: SimNet, remote: SocketAddr, data: Vec<u8>, chunk: usize, seed: u64) -> Self {
        Self::with(net, remote, data, chunk, seed, &plain())
    }

    pub(crate) fn with(
        mut net: SimNet,
        remote: SocketAddr,
        data: Vec<u8>,
        chunk: usize,
        seed: u64,
        options: &SocketOptions,
    ) -> Self {
        let sock = net.connect(Token(7), remote, options).unwrap();
        net.arm(None, false);
        let rng = Rng::from_number(seed);
        Self { net, sock, data, pos: 0, chunk, rng, shut: false, started: None, ended: false }
    }
}

impl Program for Sender {
    fn host(&self) -> HostId {
        self.net.host()
    }

    fn turn(&mut self) {
        let ready = readiness(&mut self.net);
        let writable = ready.iter().any(|(t, r)| *t == 7 && r.writable);
        let readable = ready.iter().any(|(t, r)| *t == 7 && r.readable);
        if writable && !self.shut {
            if self.started.is_none() {
                self.net.connect_result(self.sock).unwrap();
                self.started = Some(self.net.now());
            }
            while self.pos < self.data.len() {
                let n = 1 + self.rng.below(self.chunk as u64) as usize;
                let end = (self.pos + n).min(self.data.len());
                match write(&mut self.net, self.sock, &self.data[self.pos..end]) {
                    Ok(n) => self.pos += n,
                    Err(e) => return assert_eq!(e, ErrorKind::WouldBlock),
                }
            }
            self.net.shutdown_write(self.sock).unwrap();
            self.shut = true;
            self.read_end();
        } else if readable {
            self.read_end();
        }
    }

    fn done(&self) -> bool {
        self.ended
    }
}

impl Sender {
    fn read_end(&mut self) {
        match read(&mut self.net, self.sock) {
            Ok(bytes) => {
                assert!(bytes.is_empty());
                self.net.close(self.sock);
                self.ended = true;
            }
            Err(e) => assert_eq!(e, ErrorKind::WouldBlock),
        }
    }
}

/// Accepts one connection and reads it to its end in pieces of random size, with pauses in between.
pub(crate) struct Receiver {
    pub(crate) net: SimNet,
    listener: Sock,
    sock: Option<Sock>,
    pub(crate) data: Vec<u8>,
    piece: usize,
    pause: Duration,
    resume_at: Option<Instant>,
    rng: Rng,
    pub(crate) ended: Option<Instant>,
    /// When how many bytes had come.
    pub(crate) progress: Vec<(Instant, usize)>,
}

impl Receiver {
    pub(crate) fn new(net: SimNet, piece: usize, pause: Duration, seed: u64) -> Self {
        Self::with(net, piece, pause, seed, &plain())
    }

    pub(crate) fn with(mut net: SimNet, piece: usize, pause: Duration, seed: u64, options: &SocketOptions) -> Self {
        let listener = net.listen(Token(8), addr("0.0.0.0:80"), options).unwrap();
        assert_eq!(net.accept(listener, Token(9)).unwrap_err().kind, ErrorKind::WouldBlock);
        net.arm(None, false);
        Self {
            net,
            listener,
            sock: None,
            data: Vec::new(),
            piece,
            pause,
            resume_at: None,
            rng: Rng::from_number(seed),
            ended: None,
            progress: Vec::new(),
        }
    }

    fn read_some(&mut self, sock: Sock) {
        let mut buf = vec![0; self.piece];
        loop {
            let n = 1 + self.rng.below(self.piece as u64) as usize;
            match self.net.read(sock, &mut buf[..n]).map_err(|e| e.kind) {
                Ok(0) => {
                    self.ended = Some(self.net.now());
                    self.net.close(sock);
                    self.net.close(self.listener);
                    return;
                }
                Ok(n) => {
                    self.data.extend_from_slice(&buf[..n]);
                    self.progress.push((self.net.now(), self.data.len()));
                }
                Err(e) => return assert_eq!(e, ErrorKind::WouldBlock),
            }
            if !self.pause.is_zero() && self.rng.chance(0.1) {
                // Not told to wait: nothing but the clock may be relied on.
                self.resume_at = Some(self.net.now() + self.pause.mul_f64(self.rng.unit()));
                return self.net.arm(self.resume_at, false);
            }
        }
    }
}

impl Program for Receiver {
    fn host(&self) -> HostId {
        self.net.host()
    }

    fn turn(&mut self) {
        let ready = readiness(&mut self.net);
        let now = self.net.now();
        let resumed = self.resume_at.is_some_and(|t| t <= now);
        if resumed {
            self.resume_at = None;
            self.net.arm(None, false);
        }
        match self.sock {
            None if ready.iter().any(|(t, r)| *t == 8 && r.readable) => {
                let (sock, _) = self.net.accept(self.listener, Token(9)).unwrap();
                self.sock = Some(sock);
                self.read_some(sock);
            }
            Some(sock) if resumed || ready.iter().any(|(t, r)| *t == 9 && r.readable) => {
                assert!(self.ended.is_none());
                self.read_some(sock);
            }
            _ => {}
        }
    }

    fn done(&self) -> bool {
        self.ended.is_some()
    }
}
