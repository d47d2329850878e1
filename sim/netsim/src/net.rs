//! [`SimNet`]: `neater_base::net::Net` for one host of a [`crate::World`].

use crate::host::MAX_POLL;
use crate::sim::Sim;
use crate::socket::{Kind, Socket};
use crate::stream;
use crate::tcp::TcpProbe;
use crate::world::{HostId, World};
use neater_base::net::{
    ErrorKind, IcmpError, Interface, NameConfig, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions,
    StreamInfo, StreamPaths, Token, Transmit,
};
use neater_base::{Instant, Key, WallTime};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

type Result<T> = core::result::Result<T, NetError>;

/// The network as one host sees it.
///
/// A host is one process: all handles of a host share its sockets and its events. When the last handle is dropped, the
/// process has ended: its sockets are closed, as an operating system would. [`Net::interfaces`] and [`Net::name_config`]
/// show the state as of the last [`Net::poll`] (or of the handle's creation).
///
/// Readiness is strict: an event comes after a `WouldBlock` and only then (besides the end of a connection attempt and
/// the first ICMP error in an empty queue), so that code which relies on more is found out.
#[derive(Debug)]
pub struct SimNet {
    world: World,
    host: HostId,
    interfaces: Vec<Interface>,
    interfaces_version: u64,
    names: NameConfig,
    names_version: u64,
}

impl SimNet {
    pub(crate) fn new(world: World, host: HostId) -> Self {
        let mut net = Self {
            world,
            host,
            interfaces: Vec::new(),
            interfaces_version: u64::MAX,
            names: NameConfig::default(),
            names_version: u64::MAX,
        };
        net.world.clone().with(|sim| {
            sim.host(host).handles += 1;
            net.refresh(sim);
        });
        net
    }

    /// The host that this is.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The world that the host is in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// As [`Net::write`], with `n` synthetic bytes: zeros that nobody stores or copies, for experiments in which only lengths
    /// matter.
    ///
    /// # Errors
    /// As [`Net::write`].
    pub fn write_zeros(&mut self, sock: Sock, n: usize) -> Result<usize> {
        self.with(|sim, host| {
            let now = sim.now;
            let result = sim.with_conn(host, key(sock), |conn| conn.write_zeros(now, n));
            promise(sim, host, sock, Wants::Write, result)
        })
    }

    /// As [`Net::read`], throwing away up to `n` bytes; 0 is the end.
    ///
    /// # Errors
    /// As [`Net::read`].
    pub fn discard(&mut self, sock: Sock, n: usize) -> Result<usize> {
        self.with(|sim, host| {
            let now = sim.now;
            let result = sim.with_conn(host, key(sock), |conn| conn.discard(now, n));
            promise(sim, host, sock, Wants::Read, result)
        })
    }

    /// The inside of a TCP connection.
    ///
    /// # Errors
    /// `NotConnected` if the socket is not an established connection.
    pub fn tcp_probe(&self, sock: Sock) -> Result<TcpProbe> {
        self.with(|sim, host| {
            sim.with_conn(host, key(sock), |conn| {
                if conn.was_established() && !conn.is_closed() {
                    Ok(conn.probe())
                } else {
                    Err(ErrorKind::NotConnected)
                }
            })
        })
    }

    fn refresh(&mut self, sim: &mut Sim) {
        let host = sim.host(self.host);
        if host.interfaces_version != self.interfaces_version {
            self.interfaces_version = host.interfaces_version;
            self.interfaces = host.public_interfaces();
        }
        if host.names_version != self.names_version {
            self.names_version = host.names_version;
            self.names = host.names.clone();
        }
    }

    fn with<T>(&self, call: impl FnOnce(&mut Sim, HostId) -> core::result::Result<T, ErrorKind>) -> Result<T> {
        self.world.with(|sim| call(sim, self.host)).map_err(NetError::new)
    }

    /// Runs `call` on a socket, if the handle names one.
    fn socket<T>(&self, sock: Sock, call: impl FnOnce(&mut Socket) -> core::result::Result<T, ErrorKind>) -> Result<T> {
        self.with(|sim, host| call(sim.host(host).sockets.get_mut(key(sock)).ok_or(ErrorKind::NotConnected)?))
    }
}

impl Drop for SimNet {
    fn drop(&mut self) {
        let host = self.host;
        self.world.with(|sim| {
            sim.host(host).handles -= 1;
            if sim.host(host).handles == 0 {
                for sock in sim.host(host).sockets.keys() {
                    sim.close(host, sock, false);
                }
                sim.host(host).clear_events();
            }
        });
    }
}

fn key(sock: Sock) -> Key {
    Key::from_bits(sock.0)
}

/// Which promise a `WouldBlock` makes.
#[derive(Clone, Copy)]
enum Wants {
    Read,
    Write,
}

/// Remembers the promise of a `WouldBlock`.
fn promise<T>(
    sim: &mut Sim,
    host: HostId,
    sock: Sock,
    wants: Wants,
    result: core::result::Result<T, ErrorKind>,
) -> core::result::Result<T, ErrorKind> {
    if matches!(result, Err(ErrorKind::WouldBlock))
        && let Some(socket) = sim.host(host).sockets.get_mut(key(sock))
    {
        match wants {
            Wants::Read => socket.watch.wants_read = true,
            Wants::Write => socket.watch.wants_write = true,
        }
    }
    result
}

impl Net for SimNet {
    fn now(&self) -> Instant {
        self.world.now()
    }

    fn wall(&self) -> WallTime {
        self.world.wall()
    }

    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.with(|sim, host| sim.tcp_connect(host, token, remote, options))
    }

    fn connect_result(&mut self, sock: Sock) -> Result<()> {
        self.with(|sim, host| sim.with_conn(host, key(sock), |conn| conn.connect_result()))
    }

    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.with(|sim, host| sim.tcp_listen(host, token, local, options))
    }

    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)> {
        self.with(|sim, host| sim.tcp_accept(host, key(listener), token))
    }

    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        self.with(|sim, host| {
            let now = sim.now;
            let result = sim.with_conn(host, key(sock), |conn| conn.read(now, buf));
            promise(sim, host, sock, Wants::Read, result)
        })
    }

    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.with(|sim, host| {
            let now = sim.now;
            let result = sim.with_conn(host, key(sock), |conn| conn.write(now, bufs.iter().map(|b| &**b)));
            promise(sim, host, sock, Wants::Write, result)
        })
    }

    fn shutdown_write(&mut self, sock: Sock) -> Result<()> {
        self.with(|sim, host| {
            let now = sim.now;
            sim.with_conn(host, key(sock), |conn| conn.shutdown_write(now))
        })
    }

    fn close(&mut self, sock: Sock) {
        self.world.with(|sim| sim.close(self.host, key(sock), false));
    }

    fn abort(&mut self, sock: Sock) {
        self.world.with(|sim| sim.close(self.host, key(sock), true));
    }

    fn stream_info(&self, sock: Sock) -> Result<StreamInfo> {
        self.with(|sim, host| {
            let now = sim.now;
            sim.with_conn(host, key(sock), |conn| {
                let connected = conn.was_established() && !conn.is_closed();
                if connected { Ok(conn.info(now)) } else { Err(ErrorKind::NotConnected) }
            })
        })
    }

    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        self.world.with(|sim| match &sim.host(self.host).sockets.get(key(sock))?.kind {
            Kind::Stream(stream) => {
                let conn = stream.conn;
                sim.stream_paths(self.host, conn)
            }
            _ => None,
        })
    }

    fn take_error(&mut self, sock: Sock) -> Option<NetError> {
        self.with(|sim, host| sim.with_conn(host, key(sock), |conn| conn.take_error().map_or(Ok(()), Err))).err()
    }

    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        let sock = self.with(|sim, host| sim.udp_open(host, token, family, options))?;
        for option in &options.set {
            // As at `connect` and `listen`: what a UDP socket does not have is left out.
            if let (Err(error), true) = (self.set(sock, *option), options.udp_lite) {
                self.close(sock);
                return Err(error);
            }
        }
        Ok(sock)
    }

    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        let has = self.world.with(|sim| sim.host(self.host).udp_lite);
        (!has).then_some("this host has no UDP-Lite")
    }

    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()> {
        self.with(|sim, host| sim.udp_connect(host, key(sock), remote))
    }

    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        self.with(|sim, host| sim.udp_send(host, key(sock), transmit))
    }

    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        self.with(|sim, host| sim.udp_recv(host, key(sock), batch))
    }

    fn max_segments(&self, sock: Sock) -> usize {
        let segments = |kind: &Kind| if let Kind::Udp(udp) = kind { udp.max_segments() } else { 1 };
        self.socket(sock, |socket| Ok(segments(&socket.kind))).unwrap_or(1)
    }

    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError> {
        self.socket(sock, |socket| Ok(socket.icmp.pop_front())).ok().flatten()
    }

    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        self.socket(sock, |socket| {
            Ok(match &socket.kind {
                Kind::Stream(stream) => stream.local,
                Kind::Listener(listener) => listener.local,
                Kind::Udp(udp) => udp.local,
            })
        })
    }

    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()> {
        self.with(|sim, host| {
            let now = sim.now;
            let socket = sim.host(host).sockets.get_mut(key(sock)).ok_or(ErrorKind::NotConnected)?;
            match option {
                SocketOption::IcmpErrors(on) => {
                    socket.wants_icmp = on;
                    return Ok(());
                }
                // Nothing in this network looks at it.
                SocketOption::Dscp(0..=63) | SocketOption::Priority(0..=6) => return Ok(()),
                SocketOption::Dscp(_) | SocketOption::Priority(_) => return Err(ErrorKind::InvalidInput),
                _ => {}
            }
            let fits = |known| if known { Ok(()) } else { Err(ErrorKind::Unsupported) };
            match &mut socket.kind {
                Kind::Listener(listener) => fits(stream::apply(&mut listener.options, option)),
                Kind::Stream(_) => sim.with_conn(host, key(sock), |conn| {
                    let mut options = conn.options();
                    let known = stream::apply(&mut options, option);
                    conn.set_options(now, options);
                    // TCP never fragments: asking for that changes nothing.
                    fits(known || option == SocketOption::DontFragment(true))
                }),
                Kind::Udp(udp) => {
                    let bound = |n: usize| n.clamp(*stream::BUFFER_RANGE.start(), *stream::BUFFER_RANGE.end());
                    match option {
                        SocketOption::DontFragment(on) => udp.dont_fragment = on,
                        SocketOption::ReceiveBuffer(n) => udp.receive_buffer = bound(n),
                        SocketOption::SendBuffer(n) => udp.send_buffer = bound(n),
                        SocketOption::NoUdpChecksum(on) if udp.local.is_ipv4() && udp.lite.is_none() => {
                            udp.unchecked = on;
                        }
                        SocketOption::ChecksumCoverage(bytes) => udp.coverage(bytes)?.coverage = bytes,
                        SocketOption::MinChecksumCoverage(bytes) => udp.coverage(bytes)?.least = bytes,
                        _ => return Err(ErrorKind::Unsupported),
                    }
                    Ok(())
                }
            }
        })
    }

    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        self.world.clone().with(|sim| {
            self.refresh(sim);
            for _ in 0..MAX_POLL {
                let Some(event) = sim.host(self.host).next_event() else { break };
                let now = sim.now;
                sim.recorder.event(now, self.host.0, &event);
                events.push(event);
            }
            sim.host(self.host).has_pending()
        })
    }

    fn arm(&mut self, deadline: Option<Instant>, again: bool) {
        self.world.with(|sim| {
            let host = sim.host(self.host);
            host.armed = deadline;
            host.again = again;
        });
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        self.world.with(|sim| sim.lookup(self.host, remote, None, None, None)).ok().map(|found| found.source)
    }

    fn name_config(&self) -> &NameConfig {
        &self.names
    }
}
