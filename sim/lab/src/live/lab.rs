//! The lab: a plan made real, for as long as this object lives.

use super::capture::{Capture, Captured};
use super::command::{self, Cmd, Output, Place, Running};
use super::cradle::Cradle;
use super::emulator::{Emulator, EmulatorReport};
use super::error::{LiveError, Result};
use super::hosts::{Happened, Hosts};
use super::kernel::{self, Kernel};
use super::netns::Netns;
use super::plan::{Kind, Plan, Routes};
use super::record::Record;
use super::settle;
use super::tun::{self, Tun};
use super::{privileges, record};
use neater_base::Instant;
use neater_link::LinkConfig;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who moves the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Emulation {
    /// The link model of the simulator, in real time, over TUN devices.
    #[default]
    Neater,
    /// The kernel: routers are namespaces, links its queueing disciplines (netem, TBF).
    Netem,
}

/// How a lab is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Who moves the packets.
    pub emulation: Emulation,
    /// Packet buffers of our own emulator: the most packets that wait or travel in all links together.
    pub buffers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { emulation: Emulation::Neater, buffers: 32_768 }
    }
}

#[derive(Debug)]
struct Host {
    node: usize,
    netns: Netns,
}

/// Who moves the packets, and what is needed to ask it.
#[derive(Debug)]
enum Mover {
    Ours(Emulator),
    /// With the namespaces of all nodes, routers included.
    Kernel(Kernel, Vec<Netns>),
}

/// What one direction of a link did.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// The wire's name.
    pub link: String,
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// Packets offered.
    pub offered: u64,
    /// Packets delivered or on their way.
    pub delivered: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Dropped by the full queue; where the kernel emulates links, by the discipline of the queue, too.
    pub queue_full: u64,
    /// Dropped by the discipline of the queue: CoDel, RED.
    pub managed: u64,
    /// Marked by it with ECN, and not dropped.
    pub marked: u64,
    /// Dropped for other reasons: filters, MTU, link down.
    pub other: u64,
}

/// Hosts, links and the emulator between them. Everything is gone when this is dropped, and also when the process is killed.
#[derive(Debug)]
pub struct Lab {
    // Dropped in this order: commands first, so that nobody sees the network go.
    cradle: Cradle,
    happenings: Hosts,
    mover: Mover,
    hosts: Vec<Host>,
    plan: Plan,
    hosts_file: String,
    ipv6: bool,
    record: Record,
    start: Instant,
}

impl Lab {
    /// Builds a plan.
    ///
    /// # Errors
    /// The plan makes no sense, the machine or the user does not allow it, or a tool is missing.
    pub fn up(plan: &Plan, options: &Options) -> Result<Self> {
        plan.check().map_err(LiveError::Usage)?;
        // Whatever speaks against it is said before anything is built.
        let words = if options.emulation == Emulation::Netem { Some(kernel::words(plan)?) } else { None };
        privileges::check()?;
        if let Some(words) = &words {
            kernel::check(words)?;
        }
        let record = Record::begin();
        let ipv6 = settle::has_ipv6();
        let cradle = Cradle::new()?;
        let routes = plan.routes();
        let (mover, hosts) = match words {
            None => Self::over_tun(plan, options, &routes, ipv6)?,
            Some(words) => Self::over_kernel(plan, words, &routes, ipv6)?,
        };
        let netns = |node: usize| match hosts.iter().find(|h: &&Host| h.node == node) {
            Some(host) => host.netns.again(),
            None => Err(LiveError::Failed(format!("node {node} is no host"))),
        };
        let restore = |node: usize, i: usize| settle::restore(plan, node, i, &routes[node], ipv6);
        // Our emulator answers only when it runs, so a lab that is up is ready.
        let (start, told) = match &mover {
            Mover::Ours(emulator) => (emulator.report()?.start, Vec::new()),
            Mover::Kernel(kernel, nodes) => (super::sys::now(), kernel.retold(plan, nodes)?),
        };
        let happenings = Hosts::start(plan, start, netns, restore, told)?;
        let hosts_file = settle::hosts_file(plan, ipv6);
        Ok(Self { cradle, happenings, mover, hosts, plan: plan.clone(), hosts_file, ipv6, record, start })
    }

    /// The hosts, their interfaces TUN devices of our own emulator.
    fn over_tun(plan: &Plan, options: &Options, routes: &[Routes], ipv6: bool) -> Result<(Mover, Vec<Host>)> {
        let (mut hosts, mut tuns) = (Vec::new(), Vec::new());
        for (node, planned) in plan.nodes.iter().enumerate().filter(|(_, n)| n.kind == Kind::Host) {
            let netns = Netns::new()?;
            settle::sysctls(&netns, &planned.sysctls, ipv6)?;
            for i in &planned.interfaces {
                tuns.push(netns.with(|| {
                    let tun = Tun::create(&i.name)?;
                    tun::offloads_off(&i.name)?;
                    Ok(tun)
                })?);
            }
            netns.ip(&settle::batch(plan, node, &routes[node], ipv6))?;
            hosts.push(Host { node, netns });
        }
        Ok((Mover::Ours(Emulator::start(plan.clone(), tuns, options.buffers)?), hosts))
    }

    /// The hosts and routers, their interfaces ends of the kernel's wires.
    fn over_kernel(plan: &Plan, words: kernel::Words, routes: &[Routes], ipv6: bool) -> Result<(Mover, Vec<Host>)> {
        let nodes = plan.nodes.iter().map(|_| Netns::new()).collect::<Result<Vec<_>>>()?;
        for (netns, planned) in nodes.iter().zip(&plan.nodes) {
            settle::sysctls(netns, &planned.sysctls, ipv6)?;
        }
        let kernel = Kernel::new(plan, words, &nodes)?;
        let mut hosts = Vec::new();
        for (node, netns) in nodes.iter().enumerate() {
            for i in &plan.nodes[node].interfaces {
                netns.with(|| tun::offloads_off(&i.name))?;
            }
            if kernel::forwards(plan, node) {
                for (key, value) in kernel::FORWARD.iter().filter(|(k, _)| ipv6 || !k.starts_with("net.ipv6")) {
                    netns.sysctl(key, value)?;
                }
                netns.ip(&kernel::router_batch(plan, node, &routes[node], ipv6))?;
            } else {
                netns.ip(&(kernel::host_prelude(plan, node) + &settle::batch(plan, node, &routes[node], ipv6)))?;
                hosts.push(Host { node, netns: netns.again()? });
            }
            kernel.emulate(plan, node, netns)?;
        }
        Ok((Mover::Kernel(kernel, nodes), hosts))
    }

    /// What it was built from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How long the network has been there: the time that schedules count.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        super::sys::now().saturating_since(self.start)
    }

    /// The first address of a host or router.
    ///
    /// # Errors
    /// There is no such node, or it has no address of this family.
    pub fn address(&self, name: &str, v6: bool) -> Result<IpAddr> {
        let node = self.plan.node(name).ok_or_else(|| self.unknown(name))?;
        let found = self.plan.address(node, v6).filter(|a| self.ipv6 || a.is_ipv4());
        found.ok_or_else(|| LiveError::Usage(format!("{name} has no such address")))
    }

    fn host(&self, name: &str) -> Result<&Host> {
        let known = self.hosts.iter().find(|h| self.plan.nodes[h.node].name == name);
        known.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> LiveError {
        let names: Vec<&str> = self.hosts.iter().map(|h| self.plan.nodes[h.node].name.as_str()).collect();
        let why = match self.plan.node(name) {
            Some(_) => "is a router, which is part of the emulator: commands run in hosts",
            None => "is not in this scenario",
        };
        LiveError::Usage(format!("{name} {why}; hosts are {}", names.join(", ")))
    }

    /// The network of a host, for what no command does.
    ///
    /// # Errors
    /// There is no such host.
    pub fn netns(&self, host: &str) -> Result<&Netns> {
        Ok(&self.host(host)?.netns)
    }

    /// Starts a command in a host and leaves it running.
    ///
    /// # Errors
    /// There is no such host or program.
    pub fn spawn(&self, host: &str, cmd: Cmd) -> Result<Running> {
        let place = Place { cradle: &self.cradle, netns: &self.host(host)?.netns, hosts: &self.hosts_file, host };
        command::start(&place, &cmd)
    }

    /// Runs a command in a host to its end, or to the end of its limit.
    ///
    /// # Errors
    /// There is no such host or program. A command that fails is no error here: see [`Output::success`].
    pub fn run(&self, host: &str, cmd: Cmd) -> Result<Output> {
        self.spawn(host, cmd)?.wait()
    }

    /// Starts a server in a host and waits until it listens at a TCP port, asked from inside the host.
    ///
    /// # Errors
    /// As [`Lab::spawn`]; and nobody listens within `limit`, with what the server said.
    pub fn serve(&self, host: &str, cmd: Cmd, port: u16, limit: Duration) -> Result<Running> {
        let running = self.spawn(host, cmd)?;
        match self.wait_for_tcp(host, port, limit) {
            Ok(()) => Ok(running),
            Err(e) => {
                let said = running.stop(libc::SIGTERM)?;
                Err(LiveError::Failed(format!("{e}; {} said: {}", said.command, said.errors().trim())))
            }
        }
    }

    /// Waits until somebody listens at a TCP port of a host, asked from inside the host.
    ///
    /// # Errors
    /// There is no such host, or nobody listens within `limit`.
    pub fn wait_for_tcp(&self, host: &str, port: u16, limit: Duration) -> Result<()> {
        let address = SocketAddr::new(self.address(host, false)?, port);
        self.wait_for(host, address, limit)
    }

    /// The same for an address of either family.
    ///
    /// # Errors
    /// As [`Lab::wait_for_tcp`].
    pub fn wait_for(&self, host: &str, address: SocketAddr, limit: Duration) -> Result<()> {
        command::wait_for_tcp(&self.host(host)?.netns, address, limit)
    }

    /// Starts a capture at an interface of a host; an empty filter lets everything through.
    ///
    /// # Errors
    /// There is no such host or interface, or tcpdump does not begin.
    pub fn capture(&self, host: &str, interface: &str, filter: &str, snap: usize, file: &Path) -> Result<Capture> {
        Capture::start(self, host, interface, filter, snap, file)
    }

    /// Starts captures at all interfaces of all hosts, in files `HOST-INTERFACE.pcap` under `dir`.
    ///
    /// # Errors
    /// As [`Lab::capture`].
    pub fn capture_all(&self, dir: &Path, snap: usize) -> Result<Vec<Capture>> {
        let mut all = Vec::new();
        for host in &self.hosts {
            let node = &self.plan.nodes[host.node];
            for i in &node.interfaces {
                let file: PathBuf = dir.join(format!("{}-{}.pcap", node.name, i.name));
                all.push(self.capture(&node.name, &i.name, "", snap, &file)?);
            }
        }
        Ok(all)
    }

    /// Changes a link from now on: both directions, or one (0 there, 1 back).
    ///
    /// # Errors
    /// There is no such link.
    pub fn set_link(&self, link: &str, side: usize, config: LinkConfig) -> Result<()> {
        let wire = self.plan.wire(link);
        let wire = wire.ok_or_else(|| LiveError::Usage(format!("there is no link {link}")))?;
        match &self.mover {
            Mover::Ours(emulator) => emulator.set(wire, side.min(1), config),
            Mover::Kernel(..) => {
                Err(LiveError::Usage("a link that the kernel emulates changes by the scenario's schedule only".into()))
            }
        }
    }

    /// What our emulator did so far.
    ///
    /// # Errors
    /// It does not answer, or the kernel emulates.
    pub fn emulator(&self) -> Result<EmulatorReport> {
        match &self.mover {
            Mover::Ours(emulator) => emulator.report(),
            Mover::Kernel(..) => Err(LiveError::Usage("the kernel emulates: it tells nothing of itself".into())),
        }
    }

    /// Who moves the packets.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        match self.mover {
            Mover::Ours(_) => Emulation::Neater,
            Mover::Kernel(..) => Emulation::Netem,
        }
    }

    /// What the links did so far, there and back for each.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub fn links(&self) -> Result<Vec<LinkReport>> {
        let counters = match &self.mover {
            Mover::Ours(emulator) => emulator.links()?,
            Mover::Kernel(kernel, nodes) => return kernel.links(&self.plan, nodes),
        };
        let report = |(i, c): (usize, &neater_link::Counters)| {
            let wire = self.plan.wires.get(i / 2)?;
            let name = |side: usize| self.plan.nodes[wire.ends[side].0].name.clone();
            Some(LinkReport {
                link: wire.name.clone(),
                from: name(i % 2),
                to: name(1 - i % 2),
                offered: c.offered,
                delivered: c.delivered,
                delivered_bytes: c.delivered_bytes,
                lost: c.lost,
                queue_full: c.queue_full,
                managed: c.managed,
                marked: c.marked,
                other: c.filtered + c.too_big + c.down,
            })
        };
        Ok(counters.iter().enumerate().filter_map(report).collect())
    }

    /// What the schedule has done to hosts so far; and to links, where the kernel emulates them.
    #[must_use]
    pub fn happened(&self) -> Vec<Happened> {
        self.happenings.changes()
    }

    /// Packets that hosts' kernels dropped before the emulator could read them: its fault, not the scenario's.
    ///
    /// # Errors
    /// A host's counters cannot be read.
    pub fn unread(&self) -> Result<u64> {
        let mut total = 0;
        for host in &self.hosts {
            total += host.netns.with(record::tx_dropped)?;
        }
        Ok(total)
    }

    /// What happened that is no property of the scenario, so that this run says nothing of what ran in it; `None` if there is
    /// no such thing. `late_max_us`: how late the 99th percentile of all packets may be, in microseconds; infinite for
    /// whoever judges that otherwise. Of the kernel's emulation no lateness is known.
    ///
    /// # Errors
    /// The emulator does not answer, or a host's counters cannot be read.
    pub fn disturbance(&self, late_max_us: f64) -> Result<Option<String>> {
        let unread = self.unread()?;
        match &self.mover {
            Mover::Ours(emulator) => Ok(emulator.report()?.disturbance(unread, late_max_us)),
            Mover::Kernel(..) => {
                Ok((unread > 0).then(|| format!("{unread} packets were dropped before they were on a link")))
            }
        }
    }

    /// Writes `run.json`: what ran, on what, how busy the machine was, and what the emulator and the links did.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_record(&self, dir: &Path, commands: &[Output], captures: &[Captured]) -> Result<()> {
        record::keep(self, &self.record, dir, commands, captures)
    }

    /// The hosts with their settings, for the record.
    pub(crate) fn settings(&self) -> Vec<(String, Vec<(String, String)>)> {
        let read = |host: &Host| {
            let pairs = settle::RECORDED.iter().filter_map(|key| {
                let value = host.netns.read_sysctl(key).ok()?;
                Some(((*key).to_owned(), value))
            });
            (self.plan.nodes[host.node].name.clone(), pairs.collect())
        };
        self.hosts.iter().map(read).collect()
    }

    /// What `nsenter --net=` takes to enter a host from another terminal.
    ///
    /// # Errors
    /// There is no such host.
    pub fn netns_path(&self, host: &str) -> Result<String> {
        Ok(format!("/proc/{}/fd/{}", std::process::id(), self.host(host)?.netns.raw()))
    }

    /// The process with which all commands end.
    #[must_use]
    pub fn init_pid(&self) -> i32 {
        self.cradle.pid()
    }
}
