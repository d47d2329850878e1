//! [`World`]: hosts, interfaces, links and time, from outside.

use crate::host::{ConnEntry, Host};
use crate::iface::{IfaceState, plain_address};
use crate::nat::{NatBox, NatId};
use crate::net::SimNet;
use crate::service::{TcpService, UdpService};
use crate::sim::Sim;
use crate::tcp::{TcpConfig, TcpProbe};
use crate::trace::TraceEvent;
use core::fmt;
use core::time::Duration;
use neater_base::net::{Interface, InterfaceAddr, InterfaceKind, NameConfig, NetEvent};
use neater_base::{Instant, WallTime};
use neater_link::{Counters, LinkConfig, Nat, NatConfig};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Where time starts unless the world is told otherwise: far enough from the origin that nothing saturates.
pub const DEFAULT_START: Instant = Instant::from_nanos(1_000_000_000_000);
/// What the wall clock shows at the start: 2026-01-01T00:00:00Z.
pub const DEFAULT_WALL: WallTime = WallTime(Duration::from_secs(1_767_225_600));

/// Names a host of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// Names an interface of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId {
    /// The host.
    pub host: HostId,
    /// The index that the host knows it by.
    pub index: u32,
}

/// Names one direction of a link of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) usize);

/// What happens to packets for an address that nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unroutable {
    /// They vanish.
    #[default]
    BlackHole,
    /// A router answers with an ICMP host unreachable.
    Unreachable,
}

/// A network in virtual time. Clones are handles to the same world.
///
/// A method that takes an id panics if the id is another world's. No method may be called from inside a scripted
/// service of the same world.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Mutex<Sim>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// An empty world at [`DEFAULT_START`] and [`DEFAULT_WALL`]. Everything random in it is a function of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::starting_at(seed, DEFAULT_START, DEFAULT_WALL)
    }

    /// An empty world at another time.
    #[must_use]
    pub fn starting_at(seed: u64, start: Instant, wall: WallTime) -> Self {
        Self(Arc::new(Mutex::new(Sim::new(seed, start, wall))))
    }

    /// A panic elsewhere while the world was locked must not hide its cause behind a second one.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Sim) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    // --- topology ------------------------------------------------------------------------------------------------------

    /// Adds a host. It has a loopback interface (index 1) and nothing else.
    pub fn add_host(&self, name: &str) -> HostId {
        self.with(|sim| {
            let rng = sim.rng.fork();
            sim.hosts.push(Host::new(name, rng));
            HostId(sim.hosts.len() - 1)
        })
    }

    /// The name of a host.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> String {
        self.with(|sim| sim.host(host).name.clone())
    }

    /// Adds an interface that is up, with an MTU of 1,500 bytes and these addresses (prefixes of 24 and 64 bits), and not
    /// plugged in: see [`World::attach`] and [`World::connect`]. Indices count up from 2.
    pub fn add_interface(&self, host: HostId, name: &str, kind: InterfaceKind, addrs: &[IpAddr]) -> IfaceId {
        let iface = self.with(|sim| {
            let h = sim.host(host);
            let index = h.interfaces.len() as u32 + 1;
            h.interfaces.push(IfaceState::new(Interface {
                index,
                name: name.into(),
                kind,
                up: true,
                addrs: Vec::new(),
                mtu: 1500,
                default_v4: false,
                default_v6: false,
            }));
            IfaceId { host, index }
        });
        for addr in addrs {
            self.add_address(iface, plain_address(*addr));
        }
        self.change(iface, |_| {});
        iface
    }

    /// Plugs an interface into the internet by an access link up and one down, and returns them. Any address of any
    /// interface plugged in can reach any other, through the up link of one and the down link of the other.
    pub fn attach(&self, iface: IfaceId, up: LinkConfig, down: LinkConfig) -> (LinkId, LinkId) {
        let links = (self.add_link(up), self.add_link(down));
        self.with(|sim| sim.nats.iter_mut().for_each(|b| b.members.retain(|m| *m != iface)));
        self.change(iface, |i| (i.access, i.nat) = (Some(links), None));
        links
    }

    /// Adds a NAT box with an access link up and one down. Its outside addresses are its own: no interface may have them.
    pub fn add_nat(&self, config: NatConfig, up: LinkConfig, down: LinkConfig) -> NatId {
        let access = (self.add_link(up), self.add_link(down));
        self.with(|sim| {
            let nat = Nat::new(config, sim.rng.u64());
            sim.nats.push(NatBox { nat, access, members: Vec::new() });
            NatId(sim.nats.len() - 1)
        })
    }

    /// As [`World::attach`], but behind a NAT box: the links lead to it and from it. Interfaces behind one box reach each
    /// other without it; from elsewhere their addresses cannot be reached, and may be the same behind several boxes.
    pub fn attach_behind(&self, iface: IfaceId, nat: NatId, up: LinkConfig, down: LinkConfig) -> (LinkId, LinkId) {
        let links = (self.add_link(up), self.add_link(down));
        self.with(|sim| {
            sim.nats.iter_mut().for_each(|b| b.members.retain(|m| *m != iface));
            sim.nats[nat.0].members.push(iface);
        });
        self.change(iface, |i| (i.access, i.nat) = (Some(links), Some(nat)));
        links
    }

    /// Does something with a NAT box at the present time: looks at it, rebinds it, moves it to another address.
    pub fn with_nat<T>(&self, nat: NatId, call: impl FnOnce(&mut Nat, Instant) -> T) -> T {
        self.with(|sim| {
            let now = sim.now;
            call(&mut sim.nats[nat.0].nat, now)
        })
    }

    /// The access links of a NAT box, up and down.
    #[must_use]
    pub fn nat_links(&self, nat: NatId) -> (LinkId, LinkId) {
        self.with(|sim| sim.nats[nat.0].access)
    }

    /// Connects two interfaces directly and returns the links from `a` to `b` and back.
    pub fn connect(&self, a: IfaceId, b: IfaceId, a_to_b: LinkConfig, b_to_a: LinkConfig) -> (LinkId, LinkId) {
        let links = (self.add_link(a_to_b), self.add_link(b_to_a));
        self.set_route(a, b, &[links.0]);
        self.set_route(b, a, &[links.1]);
        links
    }

    /// Adds a link that is plugged in nowhere: for [`World::set_route`]. Several routes may share it.
    pub fn add_link(&self, config: LinkConfig) -> LinkId {
        self.with(|sim| sim.add_link(config))
    }

    /// The same with random choices that follow from a seed of its own, as a link of a scenario has
    /// ([`neater_scenario::link_seed`]), and one of the lab.
    pub fn add_link_of(&self, config: LinkConfig, seed: u64) -> LinkId {
        self.with(|sim| sim.add_link_of(config, seed))
    }

    /// Lets packets from `from` to addresses of `to` cross these links, first to last; no link means no route.
    pub fn set_route(&self, from: IfaceId, to: IfaceId, links: &[LinkId]) {
        self.change(from, |i| {
            if links.is_empty() {
                i.routes.remove(&to);
            } else {
                i.routes.insert(to, links.into());
            }
        });
    }

    /// Changes a link. Packets on the wire keep their time of arrival, those that wait are sent as the new configuration
    /// says, and dropped if it is down.
    pub fn set_link(&self, link: LinkId, config: LinkConfig) {
        self.with(|sim| sim.set_link(link, config));
    }

    /// What a link is like now.
    #[must_use]
    pub fn link_config(&self, link: LinkId) -> LinkConfig {
        self.with(|sim| sim.link(link).config().clone())
    }

    /// What a link has done.
    #[must_use]
    pub fn link_counters(&self, link: LinkId) -> Counters {
        self.with(|sim| sim.link(link).counters())
    }

    /// The access links of an interface, up and down.
    #[must_use]
    pub fn access_links(&self, iface: IfaceId) -> Option<(LinkId, LinkId)> {
        self.with(|sim| sim.host(iface.host).iface(iface.index)?.access)
    }

    /// What happens to packets for an address that nobody has: [`Unroutable::BlackHole`] at first.
    pub fn set_unroutable(&self, unroutable: Unroutable) {
        self.with(|sim| sim.unroutable = unroutable);
    }

    // --- changes of a host ---------------------------------------------------------------------------------------------

    /// Changes an interface and tells the host.
    pub(crate) fn change(&self, iface: IfaceId, change: impl FnOnce(&mut IfaceState)) {
        self.with(|sim| sim.change_interface(iface, change));
    }

    /// Takes an interface down or up.
    ///
    /// While it is down, nothing arrives by it and nothing leaves: a datagram from a socket bound to it fails with
    /// `NetworkDown`, and connections over it stall until it is up again or they time out, as on Linux.
    pub fn set_interface_up(&self, iface: IfaceId, up: bool) {
        self.change(iface, |i| i.public.up = up);
    }

    /// Sets the largest IP packet of an interface, in bytes. Connections already made do not notice.
    pub fn set_interface_mtu(&self, iface: IfaceId, mtu: u32) {
        self.change(iface, |i| i.public.mtu = mtu);
    }

    /// Whether default routes may lead through an interface, for IPv4 and IPv6: both, at first. They also need an access
    /// link, an address of the family, and the interface up.
    pub fn set_default_routes(&self, iface: IfaceId, v4: bool, v6: bool) {
        self.change(iface, |i| i.wants_default = (v4, v6));
    }

    /// Gives an interface one more address. An address that another interface of the internet has moves here.
    pub fn add_address(&self, iface: IfaceId, addr: InterfaceAddr) {
        self.with(|sim| sim.owners.insert(addr.addr, iface));
        self.change(iface, |i| {
            i.public.addrs.retain(|a| a.addr != addr.addr);
            i.public.addrs.push(addr);
        });
    }

    /// Takes an address away. Sockets bound to it can no longer send; connections from it stall until they time out.
    pub fn remove_address(&self, iface: IfaceId, addr: IpAddr) {
        self.with(|sim| {
            if sim.owners.get(&addr) == Some(&iface) {
                sim.owners.remove(&addr);
            }
        });
        self.change(iface, |i| i.public.addrs.retain(|a| a.addr != addr));
    }

    /// Switches a host off, or on again. Off, it forgets its sockets and connections without a word and hears nothing; on
    /// again, it answers segments of forgotten connections with resets. Scripted services survive.
    pub fn set_host_up(&self, host: HostId, up: bool) {
        self.with(|sim| {
            sim.version += 1;
            let h = sim.host(host);
            h.up = up;
            if !up {
                for key in h.sockets.keys() {
                    h.sockets.remove(key);
                }
                for key in h.conns.keys() {
                    h.unmap(key);
                    h.conns.remove(key);
                }
                h.listeners.clear();
                h.udp_ports.clear();
                h.service_conns.clear();
                h.path_mtus.clear();
                h.clear_events();
                sim.forget_deadlines(host);
            }
        });
    }

    /// Sets how names are resolved on a host and tells it.
    pub fn set_name_config(&self, host: HostId, names: NameConfig) {
        self.with(|sim| {
            let h = sim.host(host);
            h.names = names;
            h.names_version += 1;
            h.tell(NetEvent::NamesChanged);
        });
    }

    /// Chooses the TCP of a host: for sockets opened and listeners made from now on. [`TcpConfig::linux`] at first.
    pub fn set_tcp(&self, host: HostId, tcp: TcpConfig) {
        self.with(|sim| sim.host(host).tcp = tcp);
    }

    /// Whether the system of a host has UDP-Lite: it has, at first. Without it no socket of UDP-Lite can be opened, and datagrams
    /// that arrive are answered with an ICMP protocol unreachable.
    pub fn set_udp_lite(&self, host: HostId, on: bool) {
        self.with(|sim| sim.host(host).udp_lite = on);
    }

    /// Whether the system of a host has MPTCP: it has, at first. Which programs use it is up to them
    /// ([`neater_base::net::SocketOptions::multipath`]).
    pub fn set_multipath(&self, host: HostId, on: bool) {
        self.with(|sim| sim.host(host).multipath = on);
    }

    /// Whether a box at the entrance of a link takes the options of MPTCP out of the segments that pass.
    pub fn set_multipath_stripped(&self, link: LinkId, on: bool) {
        self.with(|sim| sim.strip_multipath(link, on));
    }

    /// The inside of all TCP connections of a host that have been established and not closed, by local and remote address.
    #[must_use]
    pub fn tcp_probes(&self, host: HostId) -> Vec<(SocketAddr, SocketAddr, TcpProbe)> {
        self.with(|sim| {
            let open = |e: &ConnEntry| e.conn.was_established() && !e.conn.is_closed();
            let host = sim.host(host);
            host.conns.iter().filter(|(_, e)| open(e)).map(|(_, e)| (e.local, e.remote, e.conn.probe())).collect()
        })
    }

    /// Sets how many sockets a host may have open; more fail with `TooManyFiles`. Those already open stay.
    pub fn set_max_sockets(&self, host: HostId, max: usize) {
        self.with(|sim| sim.host(host).max_sockets = max);
    }

    /// How many sockets a host has open.
    #[must_use]
    pub fn open_sockets(&self, host: HostId) -> usize {
        self.with(|sim| sim.host(host).sockets.len())
    }

    /// The network as a host sees it.
    #[must_use]
    pub fn net(&self, host: HostId) -> SimNet {
        SimNet::new(self.clone(), host)
    }

    /// Tells a host something, such as [`NetEvent::Resumed`], if it has a [`SimNet`].
    pub fn inject(&self, host: HostId, event: NetEvent) {
        self.with(|sim| sim.host(host).tell(event));
    }

    // --- services ------------------------------------------------------------------------------------------------------

    /// Lets a script answer datagrams to a UDP port of a host, on all its addresses. A socket at the port goes before it.
    pub fn udp_service(&self, host: HostId, port: u16, service: UdpService) {
        self.with(|sim| sim.host(host).udp_services.insert(port, service));
    }

    /// Lets a script serve connections to a TCP port of a host, on all its addresses. A listener goes before it.
    pub fn tcp_service(&self, host: HostId, port: u16, service: TcpService) {
        self.with(|sim| sim.host(host).tcp_services.insert(port, service));
    }

    /// Takes the scripted services at a port away; connections that they have are reset when next used.
    pub fn remove_service(&self, host: HostId, port: u16) {
        self.with(|sim| {
            sim.host(host).udp_services.remove(&port);
            sim.host(host).tcp_services.remove(&port);
        });
    }

    // --- time ----------------------------------------------------------------------------------------------------------

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.with(|sim| sim.now)
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.with(|sim| sim.wall())
    }

    /// Sets the wall clock; it may jump in either direction. It goes on from there.
    pub fn set_wall(&self, wall: WallTime) {
        self.with(|sim| sim.set_wall(wall));
    }

    /// When something happens next in the network; wake-ups of hosts are not counted.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.with(|sim| sim.next_event())
    }

    /// Advances to the next event in the network, lets it happen, and returns its time; `None` if there is none. Wake-ups
    /// of hosts do not stop it: whoever drives hosts compares [`World::next_wakeup`] first.
    pub fn step(&self) -> Option<Instant> {
        self.with(Sim::step)
    }

    /// Lets everything in the network happen up to and including `until`, which is then the time, unless it is past.
    pub fn run_until(&self, until: Instant) {
        self.with(|sim| sim.run_until(until));
    }

    /// The host that wants its turn first, and when: now, if it has events or said `again`; else at its armed deadline.
    /// Hosts without a [`SimNet`] want none. An armed deadline stands until it is armed anew.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<(HostId, Instant)> {
        self.with(|sim| {
            let now = sim.now;
            let wakeups = sim.hosts.iter().enumerate().filter_map(|(i, h)| Some((HostId(i), h.wakeup(now)?)));
            wakeups.min_by_key(|(id, at)| (*at, *id))
        })
    }

    /// When a host wants its turn: as [`World::next_wakeup`], of one host.
    #[must_use]
    pub fn wakeup(&self, host: HostId) -> Option<Instant> {
        self.with(|sim| {
            let now = sim.now;
            sim.host(host).wakeup(now)
        })
    }

    /// Whether a host should have its turn now: readiness or facts wait, its deadline has come, or it said `again`.
    #[must_use]
    pub fn has_events(&self, host: HostId) -> bool {
        self.with(|sim| {
            let now = sim.now;
            sim.host(host).wakeup(now).is_some_and(|at| at <= now)
        })
    }

    // --- what happened ---------------------------------------------------------------------------------------------------

    /// Starts or stops recording packets. At most [`crate::MAX_TRACE`] are kept, the youngest.
    pub fn trace(&self, on: bool) {
        self.with(|sim| sim.recorder.enable(on));
    }

    /// Takes what was recorded.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.with(|sim| sim.recorder.take())
    }

    /// A hash of everything that has happened since the beginning: every packet at every place with its contents and its
    /// fate, and every event that a host has polled. Equal runs have equal digests.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.with(|sim| sim.recorder.digest())
    }

    /// Whether nothing is left: no event to come, no socket open, no connection in any state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.with(|sim| sim.is_empty())
    }
}
