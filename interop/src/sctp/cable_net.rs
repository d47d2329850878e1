//! The engine at our end of the cables: a [`Net`] whose only sockets are those for SCTP straight over IP.

use super::machine::{Cable, address};
use super::wire::{Arrived, Wire};
use neater_base::net::{
    ErrorKind, IcmpError, Interface, InterfaceAddr, InterfaceKind, NameConfig, Net, NetError, NetEvent, Ready,
    RecvBatch, RecvMeta, Sock, SocketOption, SocketOptions, StreamInfo, Token, Transmit,
};
use neater_base::{Instant, WallTime};
use neater_sctp::{LayerId, Route};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

type Result<T> = core::result::Result<T, NetError>;

/// One host with a card, as number 1 on its network, and raw sockets on it.
#[derive(Debug)]
pub struct CableNet {
    cable: Cable,
    started: std::time::Instant,
    /// The socket of each family: IPv4, IPv6.
    sockets: [Option<Open>; 2],
    interfaces: Vec<Interface>,
    names: NameConfig,
    ours: [IpAddr; 2],
}

/// A socket that is open.
#[derive(Debug)]
struct Open {
    token: Token,
    arrived: VecDeque<Arrived>,
    /// It was told that there is nothing, and waits to hear that there is.
    waits: bool,
    told: bool,
}

const fn unsupported<T>() -> Result<T> {
    Err(NetError::new(ErrorKind::Unsupported))
}

impl CableNet {
    /// On a cable that carries SCTP in IP itself, with our address of card 0 of each family as its layers 0 and 1.
    #[must_use]
    pub fn new(cable: Cable) -> Self {
        let ours = [address(0, false, 1), address(0, true, 1)];
        let addr = |(addr, prefix)| InterfaceAddr { addr, prefix, temporary: false, deprecated: false };
        let interface = Interface {
            index: 1,
            name: "cable0".to_owned(),
            kind: InterfaceKind::Wired,
            up: true,
            addrs: [(ours[0], 24), (ours[1], 64)].map(addr).to_vec(),
            mtu: 1500,
            default_v4: false,
            default_v6: false,
        };
        let started = std::time::Instant::now();
        let (interfaces, names) = (vec![interface], NameConfig::default());
        Self { cable, started, sockets: [None, None], interfaces, names, ours }
    }

    /// Waits for packets, at most as long as `patience`.
    pub fn wait(&mut self, patience: Duration) {
        let mut patience = patience;
        while let Some(packet) = self.cable.receive(patience) {
            patience = Duration::ZERO;
            if let Some(open) = &mut self.sockets[usize::from(packet.route.layer.0)] {
                open.arrived.push_back(packet);
            }
        }
    }

    fn open(&mut self, sock: Sock) -> Result<&mut Open> {
        let open = self.sockets.get_mut(sock.0 as usize).and_then(Option::as_mut);
        open.ok_or(NetError::new(ErrorKind::NotConnected))
    }
}

impl Net for CableNet {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_secs(1) + self.started.elapsed()
    }

    fn wall(&self) -> WallTime {
        WallTime(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
    }

    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, _: &SocketOptions) -> Result<Sock> {
        let at = usize::from(family.is_ipv6());
        if protocol != 132 || self.sockets[at].is_some() {
            return unsupported();
        }
        self.sockets[at] = Some(Open { token, arrived: VecDeque::new(), waits: false, told: false });
        Ok(Sock(at as u64))
    }

    fn raw_obstacle(&mut self, _: u8) -> Option<&'static str> {
        None
    }

    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        self.open(sock)?;
        let remote = SocketAddr::new(transmit.destination.ip(), 0);
        let layer = LayerId(u16::from(remote.is_ipv6()));
        if transmit.contents.len() + if remote.is_ipv6() { 40 } else { 20 } > 1500 {
            return Err(NetError::new(ErrorKind::MessageTooLarge));
        }
        self.cable.send(Route { layer, remote }, transmit.ecn, transmit.contents);
        Ok(())
    }

    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        let ours = self.ours[usize::from(sock.0 == 1)];
        let open = self.open(sock)?;
        batch.metas.clear();
        for buffer in &mut batch.buffers {
            let Some(Arrived { route, ecn, bytes }) = open.arrived.pop_front() else { break };
            buffer[..bytes.len()].copy_from_slice(&bytes);
            batch.metas.push(RecvMeta {
                source: route.remote,
                local: Some(ours),
                interface: Some(1),
                ecn,
                start: 0,
                len: bytes.len(),
                stride: bytes.len(),
            });
        }
        batch.drained = batch.metas.len() < batch.buffers.len();
        open.waits = batch.drained;
        open.told &= !open.waits;
        if batch.metas.is_empty() { Err(NetError::new(ErrorKind::WouldBlock)) } else { Ok(batch.metas.len()) }
    }

    fn max_segments(&self, _: Sock) -> usize {
        1
    }

    fn take_icmp_error(&mut self, _: Sock) -> Option<IcmpError> {
        None
    }

    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        let any: IpAddr = if sock.0 == 1 { [0u16; 8].into() } else { [0u8; 4].into() };
        Ok(SocketAddr::new(any, 0))
    }

    fn set(&mut self, _: Sock, _: SocketOption) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        for open in self.sockets.iter_mut().flatten() {
            if open.waits && !open.told && !open.arrived.is_empty() {
                open.told = true;
                let ready = Ready { readable: true, ..Ready::default() };
                events.push(NetEvent::Ready { token: open.token, ready });
            }
        }
        false
    }

    fn close(&mut self, sock: Sock) {
        if let Some(open) = self.sockets.get_mut(sock.0 as usize) {
            *open = None;
        }
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        Some(self.ours[usize::from(remote.is_ipv6())])
    }

    fn name_config(&self) -> &NameConfig {
        &self.names
    }

    fn arm(&mut self, _: Option<Instant>, _: bool) {}

    // There is nothing else on this cable.

    fn udp(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock> {
        unsupported()
    }

    fn udp_connect(&mut self, _: Sock, _: SocketAddr) -> Result<()> {
        unsupported()
    }

    fn connect(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock> {
        unsupported()
    }

    fn connect_result(&mut self, _: Sock) -> Result<()> {
        unsupported()
    }

    fn listen(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock> {
        unsupported()
    }

    fn accept(&mut self, _: Sock, _: Token) -> Result<(Sock, SocketAddr)> {
        unsupported()
    }

    fn read(&mut self, _: Sock, _: &mut [u8]) -> Result<usize> {
        unsupported()
    }

    fn write(&mut self, _: Sock, _: &[IoSlice<'_>]) -> Result<usize> {
        unsupported()
    }

    fn shutdown_write(&mut self, _: Sock) -> Result<()> {
        unsupported()
    }

    fn abort(&mut self, sock: Sock) {
        self.close(sock);
    }

    fn stream_info(&self, _: Sock) -> Result<StreamInfo> {
        unsupported()
    }

    fn take_error(&mut self, _: Sock) -> Option<NetError> {
        None
    }
}
