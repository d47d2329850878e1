//! What carries the packets of a [`super::Driver`].

use neater_base::net::Ecn;
use neater_sctp::{LayerId, Route};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// A packet that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Where from.
    pub route: Route,
    /// Its congestion mark.
    pub ecn: Ecn,
    /// The SCTP packet.
    pub bytes: Vec<u8>,
}

/// Something that carries SCTP packets.
pub trait Wire: core::fmt::Debug {
    /// Sends a packet with a congestion mark; false if it is not taken.
    fn send(&mut self, route: Route, ecn: Ecn, bytes: &[u8]) -> bool;

    /// The next packet; waits for it at most as long as `patience`.
    fn receive(&mut self, patience: Duration) -> Option<Arrived>;

    /// What is below the SCTP packet, in bytes.
    fn overhead(&self) -> u32;

    /// The UDP port that others send to; 0 where there is none.
    fn port(&self) -> u16;

    /// What has arrived that was not as it should be.
    fn wrong(&self) -> &[&'static str] {
        &[]
    }
}

/// A UDP socket on loopback, as layer 0.
#[derive(Debug)]
pub struct Loopback {
    socket: UdpSocket,
    port: u16,
    buffer: Vec<u8>,
}

impl Loopback {
    /// On a free port.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let port = socket.local_addr().expect("it is bound").port();
        Self { socket, port, buffer: vec![0; 65_536] }
    }
}

impl Default for Loopback {
    fn default() -> Self {
        Self::new()
    }
}

impl Wire for Loopback {
    fn send(&mut self, route: Route, _: Ecn, bytes: &[u8]) -> bool {
        self.socket.send_to(bytes, route.remote).is_ok()
    }

    fn receive(&mut self, patience: Duration) -> Option<Arrived> {
        patient(&self.socket, patience);
        let (len, remote) = self.socket.recv_from(&mut self.buffer).ok()?;
        let route = Route { layer: LayerId(0), remote };
        Some(Arrived { route, ecn: Ecn::NotEct, bytes: self.buffer[..len].to_vec() })
    }

    fn overhead(&self) -> u32 {
        28 // IPv4 and UDP.
    }

    fn port(&self) -> u16 {
        self.port
    }
}

/// Lets a socket wait that long.
pub(super) fn patient(socket: &UdpSocket, patience: Duration) {
    socket.set_nonblocking(patience.is_zero()).expect("a socket");
    if !patience.is_zero() {
        socket.set_read_timeout(Some(patience.max(Duration::from_micros(200)))).expect("a socket");
    }
}
