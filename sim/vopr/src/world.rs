//! The network of a plan: building it, and doing what goes wrong with it.
//!
//! *Responsible for* hosts, links, the name server and all faults but those of a process itself (its power, its stops, its
//! system's moods), which are `node`'s. *Not for* when they happen (`run`).

use crate::content::mix;
use crate::plan::{Block, Fault, FaultPlan, LinkFault, LinkPlan, NamesFault, NatKind, Plan, Side};
use core::time::Duration;
use neater_base::WallTime;
use neater_base::net::{InterfaceAddr, InterfaceKind, NameConfig};
use neater_dns::Zone;
use neater_link::{Discipline, Family, Filter, FqCodel, LinkConfig, Match, NatConfig, Protocol, QueueLimit, TooBig};
use neater_netsim::{ForgedIcmp, HostId, IfaceId, LinkId, NatId, Unroutable, World};
use neater_testkit::names::{A, AAAA, HTTPS};
use neater_testkit::{Lie, NameServer, Temper};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where the name server is.
const NAMES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 53)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 0x53))];
/// Addresses that nobody has.
pub(crate) const NOBODY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 99)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 0x99))];
/// What stands for an interface of a cable in addresses.
const CABLE: usize = 9;

/// The address of a host's interface; `epoch` counts those it has had.
pub(crate) fn address(host: usize, iface: usize, v4: bool, epoch: u8) -> IpAddr {
    if v4 {
        Ipv4Addr::new(10, host as u8, iface as u8, epoch).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, host as u16, iface as u16, 0, 0, 0, u16::from(epoch)).into()
    }
}

/// The name of a host: one that the certificate of all servers is good for.
pub(crate) fn name(host: usize) -> String {
    format!("h{host}.many.test")
}

/// An interface with its links from and to the host.
#[derive(Clone, Copy, Debug)]
struct Iface {
    id: IfaceId,
    links: (LinkId, LinkId),
    nat: Option<NatId>,
}

/// A network as a plan has it.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) world: World,
    pub(crate) hosts: Vec<HostId>,
    /// Where the name server runs.
    pub(crate) names_host: HostId,
    plan: Plan,
    ifaces: Vec<Vec<Iface>>,
    names: NameServer,
    /// Faults that last, by their number.
    active: BTreeSet<usize>,
    calm: bool,
}

impl Network {
    pub(crate) fn new(plan: &Plan) -> Self {
        let world = World::new(plan.seed);
        if plan.unreachable {
            world.set_unroutable(Unroutable::Unreachable);
        }
        let mut hosts = Vec::new();
        let mut ifaces = Vec::new();
        for (h, host) in plan.hosts.iter().enumerate() {
            let id = world.add_host(&format!("h{h}"));
            hosts.push(id);
            let mut own = Vec::new();
            for (n, iface) in host.ifaces.iter().enumerate() {
                let has = |v4| if v4 { iface.v4 } else { iface.v6 };
                let addrs: Vec<IpAddr> =
                    [true, false].into_iter().filter(|v4| has(*v4)).map(|v4| address(h, n, v4, 1)).collect();
                let id = world.add_interface(id, &format!("eth{n}"), iface.kind, &addrs);
                let (up, down) = (config(&iface.up, [], false), config(&iface.down, [], false));
                let (nat, links) = match iface.nat {
                    None => (None, world.attach(id, up, down)),
                    Some(kind) => {
                        let near = LinkConfig::delay(Duration::from_millis(1));
                        let nat = world.add_nat(nat(kind, h, n), near.clone(), near);
                        (Some(nat), world.attach_behind(id, nat, up, down))
                    }
                };
                own.push(Iface { id, links, nat });
            }
            ifaces.push(own);
        }
        for (n, cable) in plan.cables.iter().enumerate() {
            let end = |h: usize| {
                let addr = address(h, CABLE + n, true, 1);
                world.add_interface(hosts[h], &format!("cable{n}"), InterfaceKind::Wired, &[addr])
            };
            let link = config(&cable.link, [], false);
            world.connect(end(cable.a), end(cable.b), link.clone(), link);
        }
        let server = world.add_host("names");
        let iface = world.add_interface(server, "eth0", InterfaceKind::Wired, &NAMES);
        let near = LinkConfig::delay(Duration::from_millis(3));
        world.attach(iface, near.clone(), near);
        let names = NameServer::install(&world, server, zone(plan), Temper::default());
        let mut network = Self {
            world,
            hosts,
            names_host: server,
            plan: plan.clone(),
            ifaces,
            names,
            active: BTreeSet::new(),
            calm: false,
        };
        network.configure_names();
        network
    }

    fn configure_names(&mut self) {
        let dead = if self.plan.dead_resolver { format!("nameserver {}\n", NOBODY[0]) } else { String::new() };
        let text = format!("{dead}nameserver {}\nnameserver {}\n", NAMES[0], NAMES[1]);
        for host in &self.hosts {
            let resolv_conf = text.clone().into_bytes();
            self.world.set_name_config(*host, NameConfig { resolv_conf, hosts: Vec::new() });
        }
    }

    /// A fault begins.
    pub(crate) fn begin(&mut self, number: usize) {
        let FaultPlan { what, at, .. } = self.plan.faults[number].clone();
        self.active.insert(number);
        let w = &self.world;
        match what {
            Fault::Link { host, iface, .. } => self.refresh(host, iface),
            Fault::InterfaceDown { host, iface } => w.set_interface_up(self.ifaces[host][iface].id, false),
            Fault::NewAddresses { host, iface } => self.renumber(host, iface, 1, 2),
            Fault::WallJump { seconds } => {
                let by = Duration::from_secs(seconds.unsigned_abs());
                let now = w.wall().0;
                w.set_wall(WallTime(if seconds < 0 { now.saturating_sub(by) } else { now + by }));
            }
            Fault::Names(how) => self.spoil_names(how),
            Fault::Resets { host, count } => {
                for n in 0..count {
                    w.forge_reset(self.hosts[host], mix(at ^ n));
                }
            }
            Fault::Icmp { host, count } => {
                for n in 0..count {
                    let what = match mix(at ^ n) % 7 {
                        0 => ForgedIcmp::PortUnreachable,
                        1 | 2 => ForgedIcmp::HostUnreachable,
                        3 => ForgedIcmp::Prohibited,
                        4 => ForgedIcmp::TooBig(0),
                        5 => ForgedIcmp::TooBig(576),
                        _ => ForgedIcmp::TooBig(1280),
                    };
                    w.forge_icmp(self.hosts[host], mix(at + n), what);
                }
            }
            Fault::FewSockets { host, max } => w.set_max_sockets(self.hosts[host], max),
            Fault::NatForgets { host, iface } => {
                if let Some(nat) = self.ifaces[host][iface].nat {
                    w.with_nat(nat, |nat, now| nat.rebind(now));
                }
            }
            Fault::PowerCut { .. } | Fault::Freeze { .. } => {}
        }
    }

    /// A fault is over.
    pub(crate) fn end(&mut self, number: usize) {
        if !self.active.remove(&number) {
            return;
        }
        let w = &self.world;
        match self.plan.faults[number].what.clone() {
            Fault::Link { host, iface, .. } => self.refresh(host, iface),
            Fault::InterfaceDown { host, iface } => w.set_interface_up(self.ifaces[host][iface].id, true),
            Fault::NewAddresses { host, iface } => self.renumber(host, iface, 2, 1),
            Fault::WallJump { seconds } => {
                let by = Duration::from_secs(seconds.unsigned_abs());
                let now = w.wall().0;
                w.set_wall(WallTime(if seconds < 0 { now + by } else { now.saturating_sub(by) }));
            }
            Fault::Names(_) => {
                self.names.set_temper(Temper::default());
                self.names.set_zone(zone(&self.plan));
            }
            Fault::FewSockets { host, .. } => w.set_max_sockets(self.hosts[host], 1024),
            _ => {}
        }
    }

    /// Nothing is wrong any more, and nothing is lost.
    pub(crate) fn heal(&mut self) {
        self.calm = true;
        for number in core::mem::take(&mut self.active) {
            self.active.insert(number);
            self.end(number);
        }
        for host in 0..self.ifaces.len() {
            for iface in 0..self.ifaces[host].len() {
                self.refresh(host, iface);
                self.world.set_interface_up(self.ifaces[host][iface].id, true);
            }
            self.world.set_max_sockets(self.hosts[host], 1024);
        }
    }

    /// Sets an interface's links to what its plan and the faults that last make of them.
    fn refresh(&self, host: usize, iface: usize) {
        let plan = &self.plan.hosts[host].ifaces[iface];
        let faults = |mine: Side| {
            self.active.iter().filter_map(move |n| match self.plan.faults[*n].what {
                Fault::Link { host: h, iface: i, side, how } if (h, i) == (host, iface) => {
                    (side == mine || side == Side::Both).then_some(how)
                }
                _ => None,
            })
        };
        let (up, down) = self.ifaces[host][iface].links;
        self.world.set_link(up, config(&plan.up, faults(Side::Up), self.calm));
        self.world.set_link(down, config(&plan.down, faults(Side::Down), self.calm));
    }

    fn renumber(&self, host: usize, iface: usize, from: u8, to: u8) {
        let plan = &self.plan.hosts[host].ifaces[iface];
        let id = self.ifaces[host][iface].id;
        for v4 in [true, false] {
            if if v4 { plan.v4 } else { plan.v6 } {
                self.world.remove_address(id, address(host, iface, v4, from));
                let addr = address(host, iface, v4, to);
                let prefix = if v4 { 24 } else { 64 };
                self.world.add_address(id, InterfaceAddr { addr, prefix, temporary: false, deprecated: false });
            }
        }
    }

    fn spoil_names(&self, how: NamesFault) {
        let good = Temper::default();
        let temper = match how {
            NamesFault::Dead => Temper { dead: true, ..good },
            NamesFault::Late(ms) => Temper { delay: Duration::from_millis(ms), ..good },
            NamesFault::ServFail => Temper { servfail: vec![A, AAAA, HTTPS], ..good },
            NamesFault::SilentAaaa => Temper { silent: vec![AAAA, HTTPS], ..good },
            NamesFault::Truncates => Temper { truncates: true, ..good },
            NamesFault::LieOtherId => Temper { lie: Lie::OtherId, delay: Duration::from_millis(20), ..good },
            NamesFault::LieOtherName => Temper { lie: Lie::OtherName, delay: Duration::from_millis(20), ..good },
            NamesFault::LieGarbage => Temper { lie: Lie::Garbage, delay: Duration::from_millis(20), ..good },
            NamesFault::WrongAddresses | NamesFault::Empty => {
                let wrong = |h| format!("{0} A {1}\n{0} AAAA {2}\n", name(h), NOBODY[0], NOBODY[1]);
                let text: String = match how {
                    NamesFault::Empty => String::new(),
                    _ => (0..self.hosts.len()).map(wrong).collect(),
                };
                self.names.set_zone(parsed(&text));
                return;
            }
        };
        self.names.set_temper(temper);
    }
}

/// A NAT box with outside addresses of its own.
fn nat(kind: NatKind, host: usize, iface: usize) -> NatConfig {
    let v4 = Ipv4Addr::new(192, 88, host as u8, 1 + iface as u8);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xa000 + host as u16, iface as u16, 0, 0, 0, 1);
    let config = match kind {
        NatKind::FullCone => NatConfig::full_cone(v4.into()),
        NatKind::PortRestricted => NatConfig::port_restricted_cone(v4.into()),
        NatKind::Symmetric => NatConfig::symmetric(v4.into()),
    };
    config.with_external(v6.into())
}

fn parsed(text: &str) -> Zone {
    Zone::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// What the name server knows when it is honest: the addresses that hosts have at the start.
fn zone(plan: &Plan) -> Zone {
    let mut text = String::new();
    let mut add = |host: usize, iface: usize, v4: bool| {
        let record = if v4 { "A" } else { "AAAA" };
        text.push_str(&format!("{} {record} {}\n", name(host), address(host, iface, v4, 1)));
    };
    for (h, host) in plan.hosts.iter().enumerate() {
        for (n, iface) in host.ifaces.iter().enumerate() {
            for v4 in [true, false] {
                if if v4 { iface.v4 } else { iface.v6 } {
                    add(h, n, v4);
                }
            }
        }
    }
    for (n, cable) in plan.cables.iter().enumerate() {
        add(cable.a, CABLE + n, true);
        add(cable.b, CABLE + n, true);
    }
    parsed(&text)
}

fn filters(block: Block) -> Filter {
    match block {
        Block::Udp => Filter::drop(Match::Protocol(Protocol::Udp)),
        Block::UdpRejected => Filter::reject(Match::Protocol(Protocol::Udp)),
        Block::Tcp => Filter::drop(Match::Protocol(Protocol::Tcp)),
        Block::V6 => Filter::drop(Match::Family(Family::V6)),
        Block::Port(port) => Filter::drop(Match::DestinationPort(port)),
    }
}

/// A link as it is, with its faults, latest last. In the calm nothing is lost by chance.
fn config(plan: &LinkPlan, faults: impl IntoIterator<Item = LinkFault>, calm: bool) -> LinkConfig {
    let mut c = LinkConfig::delay(Duration::from_micros(plan.delay_us))
        .with_jitter(Duration::from_micros(plan.jitter_us))
        .with_queue(QueueLimit::Packets(plan.queue))
        .with_mtu(plan.mtu, TooBig::Report);
    c.rate = plan.rate.into();
    c.reorder = plan.reorder;
    c.duplicate = plan.twice as f64 / 10_000.0;
    if !calm {
        c.corrupt = plan.corrupt as f64 / 10_000.0;
    }
    if plan.fq_codel {
        c = c.with_discipline(Discipline::FqCodel(FqCodel::default()));
    }
    if plan.loss > 0 && !calm {
        c = c.with_loss(plan.loss as f64 / 10_000.0);
    }
    if let Some(block) = plan.blocked {
        c = c.with_filter(filters(block));
    }
    for fault in faults {
        c = match fault {
            LinkFault::Cut => c.with_down(true),
            LinkFault::Loss(loss) => c.with_loss(loss as f64 / 10_000.0),
            LinkFault::Slower(us) => LinkConfig { delay: c.delay + Duration::from_micros(us), ..c },
            LinkFault::Rate(rate) => LinkConfig { rate: rate.into(), ..c },
            LinkFault::BlackHole(mtu) => c.with_mtu(mtu, TooBig::BlackHole),
            LinkFault::Mtu(mtu) => c.with_mtu(mtu, TooBig::Report),
            LinkFault::Block(block) => c.with_filter(filters(block)),
        };
    }
    c
}
