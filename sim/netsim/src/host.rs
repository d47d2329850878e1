//! A host: its interfaces, sockets, connections and services.
//!
//! *Responsible for* the tables and for readiness. *Not responsible for* the network between hosts. One host is one
//! process: its limit of descriptors and its event queue are shared by all its [`crate::SimNet`] handles.

use crate::agent::{AgentId, Side};
use crate::deadlines::Alarm;
use crate::iface::{IfaceState, LOOPBACK_INDEX, loopback_addresses};
use crate::service::{ServiceConn, TcpService, UdpService};
use crate::sim::Route;
use crate::socket::{Kind, Socket};
use crate::tcp::{Conn, TcpConfig};
use neater_base::net::{ErrorKind, Interface, InterfaceKind, NameConfig, NetEvent, Ready};
use neater_base::{Instant, Key, Rng, Slab};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The ports that the system chooses from (Linux: ip_local_port_range).
pub(crate) const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Descriptors unless the host is told otherwise (Linux: the usual soft limit).
pub(crate) const MAX_SOCKETS: usize = 1024;
/// Connections of a host, those in TIME-WAIT included; a SYN beyond is dropped.
pub(crate) const MAX_CONNECTIONS: usize = 1 << 17;
/// Facts (not readiness) that wait for a host; more are dropped.
pub(crate) const MAX_FACTS: usize = 64;
/// Destinations whose path MTU is remembered; the smallest address is forgotten first.
pub(crate) const MAX_PATH_MTUS: usize = 1024;
/// The least that every IPv6 link carries (RFC 8200 section 5).
pub(crate) const MIN_MTU_V6: u32 = 1280;
/// The least path MTU that is believed of IPv4 (Linux: net.ipv4.route.min_pmtu).
pub(crate) const MIN_MTU_V4: u32 = 552;
/// Events of one call of `poll`.
pub(crate) const MAX_POLL: usize = 256;

/// Who is told of what happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A socket of the application.
    Socket(Key),
    /// A listener: half open, or waiting to be accepted.
    Listener(Key),
    /// The scripted service at this port.
    Service(u16),
    /// An agent, at one of its ends.
    Agent(AgentId, Side),
    /// An agent that has done its part with it.
    Finished(AgentId, Side),
    /// Nobody: it is only being brought to its end.
    Nobody,
}

/// A TCP connection and its place in the tables.
#[derive(Debug)]
pub(crate) struct ConnEntry {
    pub(crate) conn: Conn,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) interface: Option<u32>,
    pub(crate) owner: Owner,
    /// Pairs of addresses that it is known by besides, the one that was left last first.
    pub(crate) others: Vec<Pair>,
    /// Addresses of this host whose paths were refused: they are not tried again.
    pub(crate) refused: Vec<IpAddr>,
    /// Its deadline, as the world knows it.
    pub(crate) alarm: Alarm,
    /// The way of its segments, and the version of the world's routes that it is from.
    pub(crate) route: Option<(u64, Route)>,
}

impl ConnEntry {
    pub(crate) fn new(conn: Conn, pair: Pair, interface: Option<u32>, owner: Owner) -> Self {
        let (local, remote) = pair;
        let (others, refused) = (Vec::new(), Vec::new());
        Self { conn, local, remote, interface, owner, others, refused, alarm: Alarm::default(), route: None }
    }
}

/// The local and the remote address of a connection.
pub(crate) type Pair = (SocketAddr, SocketAddr);

/// A host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) rng: Rng,
    pub(crate) interfaces: Vec<IfaceState>,
    /// Counts changes of interfaces, so that handles know when their copy is old.
    pub(crate) interfaces_version: u64,
    pub(crate) names: NameConfig,
    pub(crate) names_version: u64,
    pub(crate) sockets: Slab<Socket>,
    pub(crate) max_sockets: usize,
    pub(crate) conns: Slab<ConnEntry>,
    /// Connections by local and remote address.
    pub(crate) pairs: BTreeMap<Pair, Key>,
    /// The one that was found last: segments come in runs.
    last_pair: Option<(Pair, Key)>,
    /// Connections per local port.
    pub(crate) local_ports: BTreeMap<u16, usize>,
    pub(crate) listeners: BTreeMap<u16, Vec<Key>>,
    /// Sockets of UDP and UDP-Lite by their ports, which are not the same.
    pub(crate) udp_ports: BTreeMap<u16, Vec<Key>>,
    /// Its system has UDP-Lite.
    pub(crate) udp_lite: bool,
    /// Its system has MPTCP.
    pub(crate) multipath: bool,
    ready: VecDeque<Key>,
    facts: VecDeque<NetEvent>,
    pub(crate) armed: Option<Instant>,
    pub(crate) again: bool,
    /// Living [`crate::SimNet`] handles.
    pub(crate) handles: usize,
    pub(crate) path_mtus: BTreeMap<IpAddr, u32>,
    /// What sockets opened from now on will speak.
    pub(crate) tcp: TcpConfig,
    pub(crate) udp_services: BTreeMap<u16, UdpService>,
    pub(crate) tcp_services: BTreeMap<u16, TcpService>,
    pub(crate) service_conns: BTreeMap<Key, ServiceConn>,
    /// Agents by the ports that they have here.
    pub(crate) agent_ports: BTreeMap<u16, AgentId>,
}

impl Host {
    pub(crate) fn new(name: &str, rng: Rng) -> Self {
        let loopback = Interface {
            index: LOOPBACK_INDEX,
            name: "lo".into(),
            kind: InterfaceKind::Loopback,
            up: true,
            addrs: loopback_addresses(),
            mtu: 65_536,
            default_v4: false,
            default_v6: false,
        };
        Self {
            name: name.into(),
            up: true,
            rng,
            interfaces: vec![IfaceState::new(loopback)],
            interfaces_version: 0,
            names: NameConfig::default(),
            names_version: 0,
            sockets: Slab::new(),
            max_sockets: MAX_SOCKETS,
            conns: Slab::new(),
            pairs: BTreeMap::new(),
            last_pair: None,
            local_ports: BTreeMap::new(),
            listeners: BTreeMap::new(),
            udp_ports: BTreeMap::new(),
            udp_lite: true,
            multipath: true,
            ready: VecDeque::new(),
            facts: VecDeque::new(),
            armed: None,
            again: false,
            handles: 0,
            path_mtus: BTreeMap::new(),
            tcp: TcpConfig::default(),
            udp_services: BTreeMap::new(),
            tcp_services: BTreeMap::new(),
            service_conns: BTreeMap::new(),
            agent_ports: BTreeMap::new(),
        }
    }

    pub(crate) fn iface(&self, index: u32) -> Option<&IfaceState> {
        self.interfaces.iter().find(|i| i.public.index == index)
    }

    pub(crate) fn iface_mut(&mut self, index: u32) -> Option<&mut IfaceState> {
        self.interfaces.iter_mut().find(|i| i.public.index == index)
    }

    /// Whether one of the interfaces has this address. All of 127.0.0.0/8 is the loopback's.
    pub(crate) fn has_address(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.interfaces.iter().any(|i| i.has(addr))
    }

    /// The public view of all interfaces.
    pub(crate) fn public_interfaces(&self) -> Vec<Interface> {
        self.interfaces.iter().map(|i| i.public.clone()).collect()
    }

    /// What is remembered of the path MTU towards `remote`, at most `mtu`.
    pub(crate) fn path_mtu(&self, remote: IpAddr, mtu: u32) -> u32 {
        self.path_mtus.get(&remote).map_or(mtu, |known| mtu.min(*known))
    }

    /// What a router has said of the way to `remote`; whoever remembers routes must look them up again. An ICMP error is
    /// believed within reason: IPv6 carries 1,280 bytes everywhere, and less is a lie (RFC 8201 section 4).
    pub(crate) fn learn_path_mtu(&mut self, remote: IpAddr, mtu: u32) {
        let mtu = match remote {
            IpAddr::V6(_) if mtu < MIN_MTU_V6 => return,
            IpAddr::V6(_) => mtu,
            IpAddr::V4(_) => mtu.max(MIN_MTU_V4),
        };
        let known = self.path_mtus.entry(remote).or_insert(mtu);
        *known = mtu.min(*known);
        while self.path_mtus.len() > MAX_PATH_MTUS {
            self.path_mtus.pop_first();
        }
    }

    // --- readiness -----------------------------------------------------------------------------------------------

    /// Tells the application that a socket is ready.
    pub(crate) fn wake(&mut self, key: Key, ready: Ready) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let pending = &mut socket.watch.pending;
        pending.readable |= ready.readable;
        pending.writable |= ready.writable;
        pending.error |= ready.error;
        pending.hangup |= ready.hangup;
        if !socket.watch.listed {
            socket.watch.listed = true;
            self.ready.push_back(key);
        }
    }

    /// Tells the application that a socket is ready to read, if it was told to wait.
    pub(crate) fn wake_reader(&mut self, key: Key) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if std::mem::take(&mut socket.watch.wants_read) {
            self.wake(key, Ready { readable: true, ..Ready::default() });
        }
    }

    /// Tells the application that a socket is ready to write, if it was told to wait.
    pub(crate) fn wake_writer(&mut self, key: Key) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if std::mem::take(&mut socket.watch.wants_write) {
            self.wake(key, Ready { writable: true, ..Ready::default() });
        }
    }

    /// Queues a fact, unless nobody listens or it is already queued.
    pub(crate) fn tell(&mut self, fact: NetEvent) {
        if self.handles > 0 && self.facts.len() < MAX_FACTS && !self.facts.contains(&fact) {
            self.facts.push_back(fact);
        }
    }

    /// The next event for the application.
    pub(crate) fn next_event(&mut self) -> Option<NetEvent> {
        if let Some(fact) = self.facts.pop_front() {
            return Some(fact);
        }
        // Sockets may have been closed since they were listed.
        while let Some(key) = self.ready.pop_front() {
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.watch.listed = false;
                let ready = std::mem::take(&mut socket.watch.pending);
                return Some(NetEvent::Ready { token: socket.token, ready });
            }
        }
        None
    }

    /// Whether [`Host::next_event`] has one.
    pub(crate) fn has_pending(&self) -> bool {
        !self.facts.is_empty() || self.ready.iter().any(|k| self.sockets.contains(*k))
    }

    /// When the application wants to be called next: `now` if something is pending.
    pub(crate) fn wakeup(&self, now: Instant) -> Option<Instant> {
        if self.handles == 0 {
            None
        } else if self.again || self.has_pending() {
            Some(now)
        } else {
            self.armed.map(|t| t.max(now))
        }
    }

    pub(crate) fn clear_events(&mut self) {
        self.ready.clear();
        self.facts.clear();
        self.armed = None;
        self.again = false;
    }

    // --- ports -----------------------------------------------------------------------------------------------------

    /// Whether one more descriptor may be opened.
    pub(crate) fn check_room(&self) -> Result<(), ErrorKind> {
        if !self.up {
            Err(ErrorKind::NetworkDown)
        } else if self.sockets.len() >= self.max_sockets {
            Err(ErrorKind::TooManyFiles)
        } else {
            Ok(())
        }
    }

    /// Whether a socket may be bound to this address.
    pub(crate) fn check_local(&self, local: IpAddr) -> Result<(), ErrorKind> {
        if local.is_unspecified() || self.has_address(local) { Ok(()) } else { Err(ErrorKind::AddrNotAvailable) }
    }

    /// A port for which `free` holds: random first, then the ones after it.
    pub(crate) fn ephemeral_port(&mut self, free: impl Fn(&Self, u16) -> bool) -> Result<u16, ErrorKind> {
        let count = u32::from(*EPHEMERAL.end() - *EPHEMERAL.start()) + 1;
        let start = self.rng.below(u64::from(count)) as u32;
        (0..count)
            .map(|i| *EPHEMERAL.start() + ((start + i) % count) as u16)
            .find(|port| free(self, *port))
            .ok_or(ErrorKind::AddrNotAvailable)
    }

    /// Whether a new listener may take `local`.
    pub(crate) fn listener_fits(&self, local: SocketAddr, reuse: bool) -> bool {
        let others = self.listeners.get(&local.port()).into_iter().flatten();
        let free = others.filter_map(|k| self.sockets.get(*k)).all(|s| match &s.kind {
            Kind::Listener(other) => !overlap(other.local, local) || (other.reuse && reuse),
            _ => true,
        });
        free && (reuse || !self.tcp_services.contains_key(&local.port()))
    }

    /// Whether a new UDP socket, or one of UDP-Lite, may take `local`.
    pub(crate) fn udp_fits(&self, local: SocketAddr, reuse: bool, is_lite: bool) -> bool {
        let others = self.udp_ports.get(&local.port()).into_iter().flatten();
        others.filter_map(|k| self.sockets.get(*k)).all(|s| match &s.kind {
            Kind::Udp(other) if other.lite.is_some() != is_lite => true,
            Kind::Udp(other) => !overlap(other.local, local) || (other.reuse && reuse),
            _ => true,
        })
    }

    /// Takes a socket out of a table of ports.
    pub(crate) fn unlist(table: &mut BTreeMap<u16, Vec<Key>>, port: u16, key: Key) {
        if let Some(keys) = table.get_mut(&port) {
            keys.retain(|k| *k != key);
            if keys.is_empty() {
                table.remove(&port);
            }
        }
    }

    // --- connections -------------------------------------------------------------------------------------------------

    /// Puts a connection into the tables. The pair must be free.
    pub(crate) fn add_conn(&mut self, entry: ConnEntry) -> Key {
        let pair = (entry.local, entry.remote);
        *self.local_ports.entry(entry.local.port()).or_default() += 1;
        let key = self.conns.insert(entry);
        self.pairs.insert(pair, key);
        key
    }

    /// The connection between two addresses.
    #[inline]
    pub(crate) fn conn_between(&mut self, pair: Pair) -> Option<Key> {
        if let Some((last, key)) = &self.last_pair
            && *last == pair
        {
            return Some(*key);
        }
        let key = self.pairs.get(&pair).copied()?;
        self.last_pair = Some((pair, key));
        Some(key)
    }

    /// Makes the address pairs free, so that segments no longer find the connection.
    pub(crate) fn unmap(&mut self, key: Key) {
        let Some(entry) = self.conns.get_mut(key) else { return };
        let (pair, others) = ((entry.local, entry.remote), std::mem::take(&mut entry.others));
        for pair in others.into_iter().chain([pair]) {
            self.unmap_pair(key, pair);
        }
    }

    pub(crate) fn unmap_pair(&mut self, key: Key, pair: Pair) {
        if self.pairs.get(&pair) == Some(&key) {
            self.pairs.remove(&pair);
            self.last_pair = None;
            if let Some(n) = self.local_ports.get_mut(&pair.0.port()) {
                *n -= 1;
                if *n == 0 {
                    self.local_ports.remove(&pair.0.port());
                }
            }
        }
    }
}

/// Whether two local addresses collide on their port: the same family, and the same or any address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.is_ipv4() == b.is_ipv4() && (any || a.ip() == b.ip())
}
