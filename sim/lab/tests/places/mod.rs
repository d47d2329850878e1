//! The simulator and the lab, as a play sees them: hosts, UDP sockets and time.
#![allow(dead_code, reason = "each test binary uses its own part")]

use neater_base::net::{Ecn, ErrorKind, Net, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit};
use neater_emulator::{Lab, Options, Plan, privileges, sys};
use neater_netsim::{Network, SimNet, World};
use neater_scenario::Scenario;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Whether there can be a lab here.
pub(crate) fn possible() -> bool {
    match privileges::check() {
        Ok(()) => true,
        Err(e) => {
            println!("SKIP: no live lab: {e}");
            false
        }
    }
}

/// Where a play is played. Times count from the start of the schedules.
pub(crate) trait Place {
    fn address(&self, host: &str) -> IpAddr;
    fn open(&mut self, host: &str, port: u16);
    /// The same for a socket whose packets nobody may cut.
    fn open_whole(&mut self, host: &str, port: u16);
    /// Sends `bytes` bytes; an error if the host's system says so at once.
    fn send_bytes(&mut self, host: &str, port: u16, to: SocketAddr, bytes: usize) -> Result<(), String>;
    /// Who has sent what arrived since this was last asked.
    fn senders(&mut self, host: &str, port: u16) -> Vec<SocketAddr>;
    /// Whether a datagram from a new socket to nobody is refused.
    fn refused(&mut self, host: &str, port: u16, to: SocketAddr) -> bool;
    fn now(&self) -> Duration;
    fn until(&mut self, at: Duration);

    fn wait(&mut self, time: Duration) {
        let at = self.now() + time;
        self.until(at);
    }

    /// As [`Place::senders`], but waits for the first one, for as long as any way takes with the machine busy.
    fn soon(&mut self, host: &str, port: u16) -> Vec<SocketAddr> {
        let end = self.now() + Duration::from_millis(300);
        loop {
            let all = self.senders(host, port);
            if !all.is_empty() || self.now() >= end {
                return all;
            }
            self.wait(Duration::from_millis(10));
        }
    }

    fn send(&mut self, host: &str, port: u16, to: SocketAddr) -> Result<(), String> {
        self.send_bytes(host, port, to, 5)
    }

    /// A packet of 1,500 bytes.
    fn send_large(&mut self, host: &str, port: u16, to: SocketAddr) -> Result<(), String> {
        self.send_bytes(host, port, to, 1472)
    }
}

type Sockets<T> = BTreeMap<(String, u16), T>;

pub(crate) struct Simulated {
    network: Network,
    sockets: Sockets<(SimNet, Sock)>,
}

impl Simulated {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        // Its own traffic would disturb the play, and the lab has none.
        let scenario = Scenario { traffic: Vec::new(), probes: Vec::new(), ..scenario.clone() };
        Self { network: World::build(&scenario, 1).expect("a world"), sockets: BTreeMap::new() }
    }

    fn socket(&self, host: &str, port: u16, whole: bool) -> (SimNet, Sock) {
        let mut net = self.network.world.net(self.network.host(host).expect("a host"));
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let options = SocketOptions {
            local: Some(local),
            set: if whole { vec![SocketOption::DontFragment(true)] } else { Vec::new() },
            ..SocketOptions::default()
        };
        let sock = net.udp(Token(1), local, &options).expect("a socket");
        (net, sock)
    }
}

impl Place for Simulated {
    fn address(&self, host: &str) -> IpAddr {
        let s = self.network.scenario();
        s.address(s.node(host).expect("a node"), true).expect("an address")
    }

    fn open(&mut self, host: &str, port: u16) {
        let socket = self.socket(host, port, false);
        self.sockets.insert((host.to_owned(), port), socket);
    }

    fn open_whole(&mut self, host: &str, port: u16) {
        let socket = self.socket(host, port, true);
        self.sockets.insert((host.to_owned(), port), socket);
    }

    fn send_bytes(&mut self, host: &str, port: u16, to: SocketAddr, bytes: usize) -> Result<(), String> {
        let (net, sock) = self.sockets.get_mut(&(host.to_owned(), port)).expect("open");
        let contents = &vec![7; bytes][..];
        let transmit =
            Transmit { destination: to, source: None, interface: None, ecn: Ecn::NotEct, segment_size: None, contents };
        net.send(*sock, &transmit).map_err(|e| e.to_string())
    }

    fn senders(&mut self, host: &str, port: u16) -> Vec<SocketAddr> {
        let (net, sock) = self.sockets.get_mut(&(host.to_owned(), port)).expect("open");
        let mut batch = RecvBatch::default();
        let mut all = Vec::new();
        while net.recv(*sock, &mut batch).is_ok() {
            all.extend(batch.metas.iter().map(|m| m.source));
        }
        all
    }

    fn refused(&mut self, host: &str, port: u16, to: SocketAddr) -> bool {
        let (mut net, sock) = self.socket(host, port, false);
        net.udp_connect(sock, to).expect("connects");
        let transmit = Transmit {
            destination: to,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: b"?",
        };
        net.send(sock, &transmit).expect("leaves");
        self.wait(Duration::from_millis(300));
        net.send(sock, &transmit).is_err_and(|e| e.kind == ErrorKind::ConnectionRefused)
    }

    fn now(&self) -> Duration {
        self.network.world.now() - self.network.start()
    }

    fn until(&mut self, at: Duration) {
        self.network.world.run_until(self.network.start() + at);
    }
}

pub(crate) struct Live {
    pub(crate) lab: Lab,
    start: neater_base::Instant,
    sockets: Sockets<UdpSocket>,
}

impl Live {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let plan = Plan::from_scenario(scenario, 1).expect("a plan");
        let lab = Lab::up(&plan, &Options::default()).expect("a lab");
        let start = lab.emulator().expect("runs").start;
        Self { lab, start, sockets: BTreeMap::new() }
    }

    fn socket(&self, host: &str, port: u16) -> UdpSocket {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("bound");
        let socket = self.lab.netns(host).and_then(|n| n.with(|| Ok(bind()))).expect("a host");
        socket.set_nonblocking(true).expect("non-blocking");
        socket
    }
}

impl Place for Live {
    fn address(&self, host: &str) -> IpAddr {
        self.lab.address(host, false).expect("an address")
    }

    fn open(&mut self, host: &str, port: u16) {
        let socket = self.socket(host, port);
        self.sockets.insert((host.to_owned(), port), socket);
    }

    #[expect(unsafe_code, reason = "the standard library has no word for this option")]
    fn open_whole(&mut self, host: &str, port: u16) {
        let socket = self.socket(host, port);
        // As `io/net` asks for it.
        let probe = libc::IP_PMTUDISC_PROBE;
        let (value, len) = ((&raw const probe).cast(), libc::socklen_t::try_from(size_of_val(&probe)).expect("short"));
        // SAFETY: the descriptor is open, and the value is read from an integer of the length that is given.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value, len) };
        assert_eq!(set, 0);
        self.sockets.insert((host.to_owned(), port), socket);
    }

    fn send_bytes(&mut self, host: &str, port: u16, to: SocketAddr, bytes: usize) -> Result<(), String> {
        let sent = self.sockets[&(host.to_owned(), port)].send_to(&vec![7; bytes], to);
        sent.map(|_| ()).map_err(|e| e.to_string())
    }

    fn senders(&mut self, host: &str, port: u16) -> Vec<SocketAddr> {
        let mut buf = [0; 2048];
        std::iter::from_fn(|| self.sockets[&(host.to_owned(), port)].recv_from(&mut buf).ok().map(|(_, from)| from))
            .collect()
    }

    fn refused(&mut self, host: &str, port: u16, to: SocketAddr) -> bool {
        let socket = self.socket(host, port);
        socket.connect(to).expect("connects");
        socket.send(b"?").expect("leaves");
        self.wait(Duration::from_millis(300));
        socket.send(b"?").is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    fn now(&self) -> Duration {
        sys::now().saturating_since(self.start)
    }

    fn until(&mut self, at: Duration) {
        std::thread::sleep(at.saturating_sub(self.now()));
    }
}
