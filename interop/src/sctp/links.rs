//! Two network namespaces with two links between them: usrsctp behind the one end, an endpoint of ours behind the other.

use super::wire::{Arrived, Wire};
use neater_base::net::Ecn;
use neater_sctp::{LayerId, Route};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The UDP port of both ends.
pub(super) const LINKS_UDP: u16 = neater_sctp::UDP_PORT;
/// Names the namespace of the peer for the process that runs in ours.
const PEER_SPACE: &str = "NEATER_INTEROP_PEER_SPACE";

/// The two namespaces, removed when this is dropped.
#[derive(Debug)]
struct Spaces([String; 2]);

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in &self.0 {
            ip(&["netns", "del", space]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// The address of a host on a link: we are host 1, the peer is host 2.
#[must_use]
pub fn link_address(link: u8, host: u8) -> IpAddr {
    [10, 79, link, host].into()
}

/// Runs the test `name` of this program in a namespace with two links to another one, and returns true in there. Outside it
/// returns false once the test has passed inside.
///
/// A socket belongs to the namespace of the process that opened it. Hence the process of its own.
///
/// # Errors
/// Why there can be no namespaces.
///
/// # Panics
/// If the test fails.
pub fn between_links(name: &str) -> Result<bool, String> {
    if peer_space().is_some() {
        return Ok(true);
    }
    let spaces = Spaces(["a", "b"].map(|side| format!("neater-{side}-{}-{name}", std::process::id())));
    let [ours, theirs] = &spaces.0;
    if !ip(&["netns", "add", ours]) {
        return Err(format!("{name}: namespaces are for root (and `ip`, package iproute2)"));
    }
    let mut done = ip(&["netns", "add", theirs]);
    done &= [ours, theirs].iter().all(|space| ip(&["-n", space, "link", "set", "lo", "up"]));
    for link in 0..2u8 {
        let [near, far] = ["near", "far"].map(|end| format!("{end}{link}"));
        done &= ip(&["-n", ours, "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", theirs]);
        for (space, device, host) in [(ours, &near, 1), (theirs, &far, 2)] {
            let address = format!("{}/24", link_address(link, host));
            done &= ip(&["-n", space, "address", "add", &address, "dev", device]);
            done &= ip(&["-n", space, "link", "set", device, "up"]);
        }
    }
    assert!(done, "the namespaces are there, and their links are not");
    let program = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", ours]).arg(program).args(["--exact", name, "--nocapture"]);
    let status = command.env(PEER_SPACE, theirs).status().expect("`ip` starts");
    assert!(status.success(), "{name} fails in its namespace: {status}");
    Ok(false)
}

/// The namespace of the peer, in a process that [`between_links`] has started.
pub(super) fn peer_space() -> Option<String> {
    std::env::var(PEER_SPACE).ok()
}

/// A UDP socket on our end of each link; each is a layer.
#[derive(Debug)]
pub(super) struct Links {
    sockets: Vec<UdpSocket>,
    buffer: Vec<u8>,
}

impl Links {
    /// # Panics
    /// If this process is not between links.
    pub(super) fn new() -> Self {
        let open = |link| {
            let socket = UdpSocket::bind((link_address(link, 1), LINKS_UDP)).expect("an address of this namespace");
            socket.set_nonblocking(true).expect("a socket");
            socket
        };
        Self { sockets: (0..2).map(open).collect(), buffer: vec![0; 65_536] }
    }

    fn next(&mut self) -> Option<Arrived> {
        self.sockets.iter().zip(0..).find_map(|(socket, layer)| {
            let (len, remote) = socket.recv_from(&mut self.buffer).ok()?;
            let route = Route { layer: LayerId(layer), remote };
            Some(Arrived { route, ecn: Ecn::NotEct, bytes: self.buffer[..len].to_vec() })
        })
    }
}

impl Wire for Links {
    fn send(&mut self, route: Route, _: Ecn, bytes: &[u8]) -> bool {
        let to = SocketAddr::new(route.remote.ip(), LINKS_UDP);
        self.sockets.get(usize::from(route.layer.0)).is_some_and(|s| s.send_to(bytes, to).is_ok())
    }

    fn receive(&mut self, patience: Duration) -> Option<Arrived> {
        let end = Instant::now() + patience;
        loop {
            let arrived = self.next();
            if arrived.is_some() || Instant::now() >= end {
                return arrived;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn overhead(&self) -> u32 {
        28 // IPv4 and UDP.
    }

    fn port(&self) -> u16 {
        LINKS_UDP
    }
}
